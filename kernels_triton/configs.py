"""What Triton's band kernels can be configured as: the config, what it supports, and what is searched of the wanted."""

from dataclasses import dataclass
from typing import ClassVar

from triton_vs_tilus.common import space
from triton_vs_tilus.common.kernel import GroupedConfig, MatmulConfig, Space, band_steps, grid_of, too_large
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Fed, Feed, Tile

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
TMA_ALIGNMENT = 16  # bytes
REGISTERS_OF_THREAD = 255
REGISTERS_OF_BLOCK = 65536


def block_options(num_warps: int) -> dict[str, int]:
    """Triton's options of a block of so many warps, which may have all registers of a multiprocessor.

    ptxas by itself spares registers, so that many blocks fit, and for that delays loads until those before them are
    used: trips to memory one after the other (measured: notes/registers.md). tilus' kernels have the same
    (kernels_tilus/kernel_attributes.py).
    """
    registers = min(REGISTERS_OF_THREAD, REGISTERS_OF_BLOCK // (32 * num_warps))
    return {"num_warps": num_warps, "maxnreg": registers}


@dataclass(frozen=True)
class BandConfig(GroupedConfig):
    """swap: a tile is computed as its transpose. Its columns, and not its rows, are then the 64 rows of a wgmma (16 of
    an mma), and 8 rows are enough.
    tma: the tensor memory accelerator copies the operands' tiles, Hopper and later; their rows must begin at multiples
    of 16 bytes. By pointers, otherwise. The compiler takes wgmma where tile and warps allow it, else mma.
    sliced: the warps share block_k: each multiplies the whole tile over its slice, by mma, and their sums meet in
    shared memory, once a tile."""

    FED_BY: ClassVar[tuple[str, ...]] = ("swap", "tma", "sliced")

    swap: bool = False
    tma: bool = False
    sliced: bool = False

    @staticmethod
    def own_fields(feed: Feed, transposed: bool) -> dict[str, bool] | str:
        """As BandConfig has them, or why it has none."""
        if feed is Feed.TMA_PAIRS:
            return "Triton has no multicast between the blocks of a cluster"
        if feed is Feed.TMA_PRODUCER:
            # 3.8.0 and 3.9.0 refuse tiles of 128 rows as 3.7.1 does. They all compile those of 64 rows, which none ran.
            return "a loop that Triton specializes warps of was wrong on Hopper in 3.6, and refused in 3.7"
        return {"swap": transposed, "tma": feed is Feed.TMA, "sliced": feed is Feed.COPY_SLICED}

    @property
    def fed(self) -> Fed:
        """On Hopper."""
        rows = self.block_n if self.swap else self.block_m
        wgmma = rows % 64 == 0 and self.num_warps % 4 == 0 and not self.sliced
        feed = Feed.TMA if self.tma else Feed.COPY_SLICED if self.sliced else Feed.COPY
        return Fed(feed, self.swap, "wgmma" if wgmma else "mma")

    @property
    def slices(self) -> int:
        """Of block_k, one a warp."""
        return self.num_warps if self.sliced else 1


@dataclass(frozen=True)
class ProgramsConfig(BandConfig):
    """programs: of the whole launch, each of which walks tiles one after the other; split_k is 1."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = (*BandConfig.AT_LAUNCH, "programs")

    programs: int = space.MULTIPROCESSORS


def band_space(problem: Matmul, splits: tuple[int, ...]) -> Space:
    """Every wanted tile with every one of these splits."""
    return space.split_tiles(problem, splits, config_of, lambda config: supports(problem, config))


def config_of(tile: Tile, split_k: int) -> BandConfig | str:
    """The config of a wanted tile, or why there is none."""
    own = BandConfig.own_fields(tile.feed, tile.transposed)
    if isinstance(own, str):
        return own
    return BandConfig(*(tile.block_m, tile.block_n, tile.block_k, split_k, tile.num_warps, tile.num_stages), **own)


def default_config(problem: Matmul, most_splits: int) -> BandConfig:
    """The rule of both languages, by pointers."""
    return BandConfig(**vars(space.default_config(problem, most_splits)))


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As `supports_product`, where the grid can be launched; without a config, that of the default one."""
    chosen = default_config(problem, most_splits=1) if config is None else config
    return too_large(grid_of(problem, chosen)) or supports_product(problem, config)


def supports_product(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """Any problem; a config must fit shared memory and Triton's powers of two."""
    if config is None:
        return None
    blocks = (config.block_m, config.block_n, config.block_k)
    least = (8, 16, 16) if config.swap else (16, 8, 16)
    if any(block < size or block & (block - 1) for block, size in zip(blocks, least, strict=True)):
        return f"blocks {blocks} are not powers of two, {least} or more"
    if reason := space.too_many_warps(config.num_warps) or bands_too_long(problem, config):
        return reason
    if config.num_warps & (config.num_warps - 1):
        return f"num_warps is {config.num_warps}; accepted: powers of two"
    if config.sliced and (config.swap or config.tma):
        accepted = "neither, as a batched product has no wgmma, and the descriptors have no slices"
        return f"swap or tma with sliced; accepted: {accepted}"
    if config.sliced and config.block_k < 16 * config.num_warps:
        accepted = "16 or more a warp, as mma takes"
        return f"{config.num_warps} warps share a block_k of {config.block_k}; accepted: {accepted}"
    if config.sliced and config.block_m * config.block_n < 32 * config.num_warps:
        tile = f"a {config.block_m}x{config.block_n} tile"
        return f"{config.num_warps} warps share {tile}; accepted: an element a thread or more"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    rows = (problem.k, problem.k if problem.layout is Layout.NK else problem.n)
    if config.tma and any(row * problem.dtype.itemsize % TMA_ALIGNMENT for row in rows):
        return f"rows of A and B are {rows} elements; accepted: multiples of {TMA_ALIGNMENT} bytes, as TMA copies"
    return None


def bands_too_long(problem: Matmul, config: MatmulConfig) -> str | None:
    """Why programs cannot tell where bands of K end, in int32; None where they can."""
    end = config.split_k * band_steps(problem.k, config.block_k, config.split_k) * config.block_k
    if end < 1 << 31:
        return None
    return f"{config.split_k} whole bands of K end at {end}; accepted: less than 2^31, as a program counts K in int32"
