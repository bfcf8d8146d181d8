"""What Gluon's kernels can be configured as: the config, what it supports, what is searched, what TMA is told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import triton
from packaging.version import Version
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from triton_vs_tilus.common import devices
from triton_vs_tilus.common.kernel import Grid, GroupedConfig, cdiv, grid_of, too_large
from triton_vs_tilus.common.plan import Placement, Slot
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import MULTIPROCESSORS, Fed, Feed, Tile, has_steps
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.configs import SHARED_MEMORY_LIMIT, TMA_ALIGNMENT

FIRST_TRITON = "3.9"  # which has all that both kernels say
WGMMA_ROWS = 64  # of a warpgroup
WARPGROUP = 4  # warps
MOST_ROWS = 256  # that a TMA copies, and columns of a wgmma
MOST_SUMS = 128  # that a thread of a consumer holds in registers
SHARED_BYTES = SHARED_MEMORY_LIMIT - 1024  # without mbarriers, and what the compiler keeps to hand work to the producer
DEFAULT_TILES = ((128, 128, 8), (128, 64, 8), (64, 64, 4))  # block_m, block_n, num_warps
DEFAULT_STEP = 64  # of K: 128 bytes, the widest swizzle
DTYPES = {torch.bfloat16: gl.bfloat16, torch.float16: gl.float16}


@dataclass(frozen=True)
class GluonConfig(GroupedConfig):
    """num_warps: of the consumers, 4 or 8; one more loads.
    swap: a tile is computed as its transpose: its columns are the 64 rows of a wgmma, and 8 rows are enough.
    pairs: two blocks of a cluster, neighbours along M, receive each tile of B by one TMA load (multicast)."""

    FED_BY: ClassVar[tuple[str, ...]] = ("swap", "pairs")

    swap: bool = False
    pairs: bool = False

    @staticmethod
    def own_fields(feed: Feed, transposed: bool) -> dict[str, bool] | str:
        """As GluonConfig has them, or why it has none."""
        if feed is Feed.COPY:
            return "Gluon's kernels copy by TMA alone"
        if feed is Feed.TMA_PRODUCER:
            return "a producer's warp issues every copy here: what tma says is the same"
        return {"swap": transposed, "pairs": feed is Feed.TMA_PAIRS}

    @property
    def fed(self) -> Fed:
        return Fed(Feed.TMA_PAIRS if self.pairs else Feed.TMA, self.swap, "wgmma")


def config_of(tile: Tile, split_k: int) -> GluonConfig | str:
    """The config of a wanted tile, or why there is none."""
    own = GluonConfig.own_fields(tile.feed, tile.transposed)
    if isinstance(own, str):
        return own
    return GluonConfig(*(tile.block_m, tile.block_n, tile.block_k, split_k, tile.num_warps, tile.num_stages), **own)


def default_config(
    problem: Matmul, splits: tuple[int, ...], most_blocks: int = MULTIPROCESSORS, beside: int = 0
) -> GluonConfig:
    """The largest of DEFAULT_TILES of which 8 splits occupy most multiprocessors; for up to 32 rows transposed, so that
    all rows of a wgmma are columns of the weight. Then the largest of these splits that makes at most so many blocks,
    in bands of 128 and more, and as many stages as fit.

    most_blocks: that run at once, one on a multiprocessor. beside: bytes of shared memory an element of the tile,
    beside the stages.
    """

    def tiles(tile: tuple[int, int, int]) -> int:
        return cdiv(problem.m, tile[0]) * cdiv(problem.n, tile[1])

    *_, (block_m, block_n, num_warps) = DEFAULT_TILES
    if swap := problem.m <= 32:
        block_m = max(8, 1 << (problem.m - 1).bit_length())
    else:
        block_m, block_n, num_warps = next(
            (tile for tile in DEFAULT_TILES if 8 * tiles(tile) >= 3 * MULTIPROCESSORS // 4), DEFAULT_TILES[-1]
        )
    most = min(most_blocks // tiles((block_m, block_n, num_warps)), problem.k // 128)
    fitting = (split for split in splits if split <= most and has_steps(problem, DEFAULT_STEP, split))
    split_k = max(fitting, default=min(splits))
    stages = (SHARED_BYTES - beside * block_m * block_n) // (2 * (block_m + block_n) * DEFAULT_STEP)
    return GluonConfig(block_m, block_n, DEFAULT_STEP, split_k, num_warps, min(8, stages), swap=swap)


def supports(problem: Matmul, config: GluonConfig | None = None) -> str | None:
    """Half precision whose rows TMA can address, on Hopper; a config of whole warpgroups that fits shared memory."""
    if Version(triton.__version__) < Version(FIRST_TRITON):
        return f"Triton {triton.__version__}; accepted: Triton {FIRST_TRITON} and newer, whose Gluon has all it takes"
    if triton.knobs.runtime.interpret:
        return "needs a CUDA device: Gluon has no interpreter"
    if (devices.capability() or (9, 0)) != (9, 0):
        return "wgmma needs compute capability 9.0"
    return fits(problem, config)


def fits(problem: Matmul, config: GluonConfig | None) -> str | None:
    """What `supports` says of a machine that has all that it takes."""
    if problem.dtype not in DTYPES:
        return f"operands of {problem.dtype}; accepted: bf16 and fp16"
    rows = problem.k, problem.k if problem.layout is Layout.NK else problem.n
    if any(row * problem.dtype.itemsize % TMA_ALIGNMENT for row in rows):
        return f"rows of A and B are {rows} elements; accepted: multiples of {TMA_ALIGNMENT} bytes, as TMA copies"
    return None if config is None else _fits_config(problem, config)


def _fits_config(problem: Matmul, config: GluonConfig) -> str | None:
    rows, columns = config.block_m, config.block_n
    if config.swap:
        rows, columns = columns, rows
    blocks = rows, columns, config.block_k
    if any(block & (block - 1) for block in blocks) or columns < 8 or config.block_k < 16 or max(blocks) > MOST_ROWS:
        return f"wgmma of {rows}x{columns}x{config.block_k}; accepted: powers of two up to {MOST_ROWS}, 64x8x16 or more"
    if config.num_warps not in (WARPGROUP, 2 * WARPGROUP) or rows % (WGMMA_ROWS * config.num_warps // WARPGROUP):
        return f"{rows} rows for {config.num_warps} warps; accepted: {WGMMA_ROWS} or 128 for 4, 128 or 256 for 8"
    if rows * columns > MOST_SUMS * 32 * config.num_warps:
        return f"wgmma of {rows}x{columns}: more than {MOST_SUMS} sums a thread"
    if problem.layout is Layout.KN and config.block_n < 16:
        return f"block_n is {config.block_n}; accepted: 16 or more of a weight stored [K, N], the narrowest swizzle"
    if config.pairs and (config.swap or problem.m <= config.block_m):
        return "pairs; accepted: without swap, and of two tiles along M"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_BYTES:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_BYTES}"
    return too_large(grid_of(problem, config))


def blocks_of(problem: Matmul, config: GluonConfig) -> Grid:
    """The grid, a pair of blocks as one."""
    return grid_of(problem, replace(config, block_m=config.block_m * (2 if config.pairs else 1)))


def registers(config: GluonConfig) -> int:
    """Of a thread before the roles share them anew (setmaxnreg): few, so that the reducer's blocks, or a second block,
    fit beside. ptxas takes no fewer than 154 for a wgmma of 256 columns."""
    columns = config.block_m if config.swap else config.block_n
    return 168 if columns == MOST_ROWS else 128


def described(
    problem: Matmul,
    placement: Placement,
    block_a: tuple[int, int],
    block_b: tuple[int, int],
    spread_a: list[list[int]],
    spread_b: list[list[int]],
) -> Mapping[Slot, Callable[[Any], TensorDescriptor]]:
    """What makes the TMA descriptors of A, of tiles [M, K], and of B, of tiles [N, K]; spread: the bases by which the
    blocks of a cluster share a tile out (`cga_layout`), of the same dimensions.

    Raises ValueError for tensors that TMA cannot address.
    """
    if not launching.addressable(problem, placement):
        raise ValueError(f"TMA cannot address A and B; accepted: rows that begin at multiples of {TMA_ALIGNMENT} bytes")
    shape_b, strides_b = [problem.n, problem.k], [placement.stride_bn, placement.stride_bk]
    tile_b = list(block_b)
    if problem.layout is Layout.KN:
        shape_b, strides_b, tile_b = shape_b[::-1], strides_b[::-1], tile_b[::-1]
        spread_b = [basis[::-1] for basis in spread_b]
    dtype = DTYPES[problem.dtype]

    def descriptor(shape: list[int], strides: list[int], tile: list[int], spread: list[list[int]]) -> Any:
        layout = gl.NVMMASharedLayout.get_default_for(tile, dtype, cga_layout=spread)
        return lambda tensor: TensorDescriptor(tensor, shape, strides, tile, layout)

    return {
        Slot.A: descriptor([problem.m, problem.k], [placement.stride_am, 1], list(block_a), spread_a),
        Slot.B: descriptor(shape_b, strides_b, tile_b, spread_b),
    }
