"""What tilus' band kernels can be configured as: the config, what it supports, and what is searched of the wanted."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from tilus.utils import cdiv

from triton_vs_tilus.common import space
from triton_vs_tilus.common.kernel import GroupedConfig, MatmulConfig, Space, grid_of, too_large
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.space import Fed, Feed, Tile
from triton_vs_tilus.kernels_tilus import launching, mma, simt, wgmma
from triton_vs_tilus.kernels_tilus.partials import holds_pairs_of_a_row

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
VECTOR = 4  # fp32 of a 16-byte access


@dataclass(frozen=True)
class BandConfig(GroupedConfig):
    """engine: what multiplies.

    mma            mma.sync, fed by cp.async, or by plain loads where rows are aligned to less than its 4 bytes
    mma_sliced     the same by warps that share block_k: each multiplies the whole tile over its slice, and their sums
                   meet in shared memory, once a tile
    wgmma          Hopper's wgmma, fed by TMA: 64 rows of A, or 128, times block_n columns
    wgmma_specialized  the same, its copies by a producer warp beside the num_warps that multiply
    wgmma_pairs    the same by pairs of blocks, neighbours along M, that load a tile of the weight together
    wgmma_swapped  wgmma on the transpose, so that few tokens fill a wgmma: 64 rows of the weight, or 128, times
                   block_m tokens
    simt           fp32 on CUDA cores, fed by plain loads

    wgmma_pairs takes a weight stored [N, K] alone.
    Tensors whose rows are not aligned to TMA's 16 bytes go through mma.
    """

    FED_BY: ClassVar[tuple[str, ...]] = ("engine",)

    engine: str = "mma"

    @staticmethod
    def own_fields(feed: Feed, transposed: bool) -> dict[str, str] | str:
        """As BandConfig has them, or why it has none."""
        engine = ENGINES.get((feed, transposed))
        return (
            {"engine": engine} if engine else "tilus 0.2.0 copies no tile to be multiplied as its transpose by mma.sync"
        )

    @property
    def fed(self) -> Fed:
        """On Hopper."""
        known = {engine: fed for fed, engine in ENGINES.items()}
        feed, transposed = known.get(self.engine, (Feed.COPY, False))
        return Fed(feed, transposed, self.engine.partition("_")[0])

    def __str__(self) -> str:
        return super().__str__().replace(f" engine={self.engine}", "" if self.engine == "mma" else f" {self.engine}")


@dataclass(frozen=True)
class ProgramsConfig(BandConfig):
    """programs: of the whole launch, each of which walks tiles one after the other; split_k is 1."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = (*BandConfig.AT_LAUNCH, "programs")

    programs: int = space.MULTIPROCESSORS


ENGINES = {
    (Feed.COPY, False): "mma",
    (Feed.COPY_SLICED, False): "mma_sliced",
    (Feed.TMA, False): "wgmma",
    (Feed.TMA_PRODUCER, False): "wgmma_specialized",
    (Feed.TMA, True): "wgmma_swapped",
    (Feed.TMA_PAIRS, False): "wgmma_pairs",
}
KNOWN = [*ENGINES.values(), "simt"]


def band_space(problem: Matmul, splits: tuple[int, ...]) -> Space:
    """Every wanted tile with every one of these splits."""

    def as_config(tile: Tile, split_k: int) -> BandConfig | str:
        return config_of(tile, split_k, on_cuda_cores=needs_simt(problem) is not None)

    return space.split_tiles(problem, splits, as_config, lambda config: supports(problem, config))


def config_of(tile: Tile, split_k: int, *, on_cuda_cores: bool) -> BandConfig | str:
    """The config of a wanted tile, or why there is none. on_cuda_cores: tensor cores cannot take the problem."""
    own = BandConfig.own_fields(tile.feed, tile.transposed)
    if isinstance(own, str):
        return own
    if on_cuda_cores:
        if own["engine"] != "mma":
            return f"engine {own['engine']} multiplies on tensor cores, which cannot take the problem"
        own = {"engine": "simt"}
    return BandConfig(*(tile.block_m, tile.block_n, tile.block_k, split_k, tile.num_warps, tile.num_stages), **own)


def default_config(problem: Matmul, most_splits: int) -> BandConfig:
    """The rule of both languages, on tensor cores where they take the problem."""
    chosen = BandConfig(**vars(space.default_config(problem, most_splits)))
    if needs_simt(problem):
        return replace(chosen, block_k=32, num_stages=simt.STAGES, engine="simt")
    return chosen


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As `supports_product`, where the grid can be launched; without a config, that of the default one."""
    chosen = default_config(problem, most_splits=1) if config is None else config
    return too_large(grid_of(problem, chosen)) or supports_product(problem, config)


def supports_product(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """Every problem that offsets reach; what a config needs depends on its engine."""
    if reason := out_of_reach(problem):
        return reason
    if config is None:
        return None
    if reason := space.too_many_warps(config.num_warps) or tiles_out_of_reach(problem, config):
        return reason
    match config.engine:
        case "mma":
            reason = needs_simt(problem) or mma.supports(config, sliced=False)
        case "mma_sliced":
            reason = needs_simt(problem) or mma.supports(config, sliced=True)
        case "wgmma" | "wgmma_specialized":
            reason = needs_simt(problem) or wgmma.supports(problem, config)
        case "wgmma_pairs":
            reason = needs_simt(problem) or wgmma.supports(problem, config)
            reason = reason or wgmma.supports_pairs(problem, config)
            if config.group_m % wgmma.PAIR:
                reason = f"group_m is {config.group_m}; accepted: an even number, as blocks come in pairs"
        case "wgmma_swapped":
            reason = needs_simt(problem) or wgmma.supports(problem, config, swapped=True)
        case "simt":
            reason = simt.supports(config)
        case unknown:
            reason = f"engine is {unknown!r}; accepted: {', '.join(KNOWN)}"
    if reason:
        return reason
    shared = shared_bytes(problem, config)
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    return None


def out_of_reach(problem: Matmul) -> str | None:
    """Why to refuse its tensors; None where offsets reach them all."""
    m, n, k = problem.m, problem.n, problem.k
    return launching.out_of_reach({"A": m * k, "B": k * n, "C": m * n})


def tiles_out_of_reach(problem: Matmul, config: MatmulConfig) -> str | None:
    """Why to refuse its tiles, of which the last may end beyond the tensors; None where offsets reach their ends."""
    extents = {"M": (problem.m, config.block_m), "N": (problem.n, config.block_n), "K": (problem.k, config.block_k)}
    ends = {f"{name} in whole tiles": cdiv(extent, block) * block for name, (extent, block) in extents.items()}
    return launching.out_of_reach(ends)


def partials_out_of_reach(problem: Matmul, config: MatmulConfig | None) -> str | None:
    """Why to refuse a workspace of a C for each split; None where offsets reach it, and without a config."""
    elements = 0 if config is None else config.split_k * problem.m * problem.n
    return launching.out_of_reach({"the workspace": elements})


def shared_unevenly(rows: int, columns: int, num_warps: int) -> str | None:
    """Why warps cannot read fp32 [rows, columns] in vectors, by tilus' layouts; None where they can."""
    vectors, threads = rows * columns // VECTOR, 32 * num_warps
    if vectors % threads and threads % vectors:
        return f"{num_warps} warps share {rows}x{columns} partial sums; accepted: as many vectors of {VECTOR} a thread"
    return None


def needs_simt(problem: Matmul, instead: str = "engine simt") -> str | None:
    """Why tensor cores cannot take it, and what can, `instead`; None where they can."""
    if problem.dtype is torch.float32:
        return f"fp32 inputs: tensor cores round them to TF32; {instead} does not"
    return None


def shared_bytes(problem: Matmul, config: BandConfig) -> int:
    """Of the stages of the pipeline, in whose place the sums of warps meet, or those of a wgmma are put into rows, but
    for the alignment of rows of 256 columns."""
    if config.engine == "simt":
        return simt.shared_bytes(config)
    stages = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    sums = 4 * config.block_m * config.block_n
    if config.engine == "mma_sliced":
        return max(stages, config.num_warps * sums)
    if holds_pairs_of_a_row(config.engine):
        return max(stages, sums) + wgmma.BARRIERS_BYTES
    return stages if config.engine == "mma" else stages + wgmma.BARRIERS_BYTES
