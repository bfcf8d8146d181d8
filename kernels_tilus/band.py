"""What every split-K kernel of this package does alike: a block's tile, its band of K, and the product over it.

The kernels differ in how the sums of the bands meet; that is what their files hold. A config chooses the engine of the
product: mma.py, wgmma.py, simt.py. Operands reach a Script as `operands` gives them: extents and strides along which
copies are wide in units of that width, as tilus 0.2.0 derives alignment from a product, and takes none from an argument
(`assume` included: it is joined with the argument's own divisibility of one).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from tilus import bfloat16, float16, float32, int32, void_p
from tilus.hidet.ir.type import DataType
from tilus.ir.tensor import RegisterTensor
from tilus.utils import cdiv
from torch import Tensor

from common.call import input_strides
from common.kernel import (
    GRID_LIMIT,
    MatmulConfig,
    default_splits,
    has_steps,
    rows_fit,
    split_where_possible,
    too_many_blocks,
)
from common.problem import Layout, Matmul
from kernels_tilus import launching, mma, simt, wgmma
from kernels_tilus.epilogue import EpilogueScript
from kernels_tilus.mma import MmaProduct
from kernels_tilus.simt import SimtProduct
from kernels_tilus.wgmma import WgmmaProduct

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
TILUS_DTYPE = {torch.bfloat16: bfloat16, torch.float16: float16, torch.float32: float32}
WIDEST_DEFAULT = 64  # columns of default_config's tiles
COPY_WIDTHS = (8, 4, 2)  # elements of a half-precision cp.async: 16, 8 or 4 bytes


@dataclass(frozen=True)
class BandConfig(MatmulConfig):
    """engine: what multiplies.

    mma            mma.sync, fed by cp.async
    wgmma          Hopper's wgmma, fed by TMA: 64 rows of A, or 128, times block_n columns
    wgmma_pairs    the same by pairs of blocks, neighbours along M, that load a tile of the weight together
    wgmma_swapped  wgmma on the transpose, so that few tokens fill a wgmma: 64 rows of the weight, or 128, times
                   block_m tokens
    simt           fp32 on CUDA cores, fed by plain loads

    Where the rows of tensors that a problem alone does not tell of are not aligned to the 16 bytes that TMA takes, a
    tile goes through mma; where they are not to the 4 bytes that cp.async takes, through simt.
    """

    engine: str = "mma"

    def __str__(self) -> str:
        return super().__str__().replace(f" engine={self.engine}", "" if self.engine == "mma" else f" {self.engine}")


class Tile(NamedTuple):
    """What of a config a BandScript is compiled for; the split is an argument, so that one build serves all."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    engine: str = "mma"


# Few warps and deep pipelines for few rows, wide tiles for many.
MMA_TILES = [
    *[(16, 8, 128, 1, 6), (16, 8, 256, 1, 4), (16, 8, 256, 1, 6), (16, 8, 512, 1, 3), (16, 16, 128, 1, 4)],
    *[(16, 16, 256, 2, 4), (16, 16, 512, 2, 3), (16, 32, 128, 2, 4), (16, 32, 128, 4, 4), (16, 64, 128, 4, 4)],
    *[(32, 16, 128, 2, 4), (32, 32, 64, 4, 6), (32, 32, 128, 4, 4), (32, 64, 128, 4, 4), (64, 16, 128, 4, 4)],
    *[(64, 32, 64, 4, 5), (64, 32, 128, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 3), (128, 64, 64, 4, 4)],
    # As wide as the tutorial's, and wider, where tiles are many.
    *[(32, 256, 32, 8, 4), (64, 128, 32, 4, 4), (64, 128, 64, 4, 3), (128, 64, 32, 4, 5), (128, 128, 32, 4, 4)],
    *[(128, 128, 32, 8, 5), (128, 128, 64, 8, 3), (128, 256, 32, 8, 4), (256, 128, 32, 8, 4)],
]
# As many bytes under way as shared memory holds, for one block a multiprocessor; or half of that, for two.
WGMMA_TILES = [
    *[(64, 32, 128, 4, 4), (64, 32, 128, 4, 8), (64, 64, 64, 4, 6), (64, 64, 64, 4, 12), (64, 64, 128, 4, 3)],
    *[(64, 64, 128, 4, 6), (64, 128, 64, 4, 4), (64, 128, 64, 4, 8), (64, 128, 128, 4, 4), (128, 64, 64, 4, 4)],
    *[(128, 64, 64, 4, 8), (128, 128, 64, 4, 3), (128, 128, 64, 4, 6), (128, 128, 128, 4, 3), (64, 256, 64, 4, 5)],
]
WGMMA_PAIRS_TILES = [
    *[(64, 64, 128, 4, 3), (64, 64, 128, 4, 6), (64, 128, 128, 4, 2), (64, 128, 128, 4, 4), (64, 256, 128, 4, 2)],
    *[(128, 64, 128, 4, 2), (128, 64, 128, 4, 4), (128, 128, 128, 4, 2), (128, 128, 128, 4, 3)],
]
WGMMA_SWAPPED_TILES = [
    *[(16, 64, 128, 4, 5), (16, 64, 128, 4, 10), (16, 64, 256, 4, 5), (16, 128, 128, 4, 6)],
    *[(32, 64, 128, 4, 4), (32, 64, 128, 4, 8), (32, 64, 256, 4, 4), (32, 128, 128, 4, 5)],
]
SIMT_TILES = [
    *[(16, 8, 32, 1, 2), (16, 16, 32, 2, 2), (16, 32, 32, 4, 2), (32, 16, 32, 2, 2), (32, 32, 32, 2, 2)],
    *[(32, 32, 32, 4, 2), (32, 64, 32, 4, 2), (64, 32, 32, 4, 2), (64, 64, 32, 4, 2), (128, 64, 32, 4, 2)],
]
TILES = [
    *(Tile(*tile) for tile in MMA_TILES),
    *(Tile(*tile, "wgmma") for tile in WGMMA_TILES),
    *(Tile(*tile, "wgmma_pairs") for tile in WGMMA_PAIRS_TILES),
    *(Tile(*tile, "wgmma_swapped") for tile in WGMMA_SWAPPED_TILES),
    *(Tile(*tile, "simt") for tile in SIMT_TILES),
]


class Vectors(NamedTuple):
    """Elements that one access may move: along K (of A, and of B stored [N, K]), along N, and of C: there 2 or 1, as
    a thread of an mma holds two side by side, or 0 for an `out` without unit stride along N."""

    k: int
    n: int
    c: int


def vectors(
    problem: Matmul,
    a: Tensor | None = None,
    b: Tensor | None = None,
    bias: Tensor | None = None,
    out: Tensor | None = None,
) -> Vectors:
    """Without tensors, contiguous ones are meant."""
    along_k, along_n = [problem.k], [problem.n]
    if a is not None:
        stride_am, *strides_b = input_strides(problem, a, b)
        along_k += [stride_am, a.data_ptr() // a.itemsize]
        beside_b = along_k if problem.layout is Layout.NK else along_n
        beside_b += [max(strides_b), b.data_ptr() // b.itemsize]
    if bias is not None:
        along_n.append(bias.data_ptr() // bias.itemsize)
    vector_k, vector_n = _widest(along_k), _widest(along_n)
    return Vectors(vector_k, vector_n, vector_c(problem.n, out))


def vector_c(n: int, out: Tensor | None) -> int:
    """Vectors.c for C [M, n]."""
    if out is None:
        return 2 if n % 2 == 0 else 1
    if out.stride(1) != 1:
        return 0
    pairs = n % 2 == 0 and out.stride(0) % 2 == 0 and out.data_ptr() % (2 * out.itemsize) == 0
    return 2 if pairs else 1


def _widest(extents: list[int]) -> int:
    return next((width for width in COPY_WIDTHS if all(extent % width == 0 for extent in extents)), 1)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """As `supports_product`, where a grid (tiles of M, tiles of N, splits) can be launched; without a config, that of
    the widest tile of `default_config`."""
    columns, split_k = (WIDEST_DEFAULT, 1) if config is None else (config.block_n, config.split_k)
    reason = too_many_blocks({"N": cdiv(problem.n, columns), "K": split_k})
    return reason or supports_product(problem, config)


def supports_product(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """Every problem that offsets reach; what a config needs depends on its engine."""
    if reason := out_of_reach(problem):
        return reason
    if config is None:
        return None
    match engine_of(config):
        case "mma":
            reason = needs_simt(problem) or mma.supports(config)
        case "wgmma":
            reason = needs_simt(problem) or wgmma.supports(problem, config, config.block_m, config.block_n)
        case "wgmma_pairs":
            reason = needs_simt(problem) or wgmma.supports(problem, config, config.block_m, config.block_n)
            reason = reason or wgmma.supports_pairs(problem, config)
        case "wgmma_swapped":
            reason = needs_simt(problem) or wgmma.supports(problem, config, config.block_n, config.block_m)
        case "simt":
            reason = simt.supports(config)
        case unknown:
            reason = f"engine is {unknown!r}; accepted: mma, wgmma, wgmma_pairs, wgmma_swapped, simt"
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


def partials_out_of_reach(problem: Matmul, config: MatmulConfig | None) -> str | None:
    """Why to refuse a workspace of a C for each split; None where offsets reach it, and without a config."""
    elements = 0 if config is None else config.split_k * problem.m * problem.n
    return launching.out_of_reach({"the workspace": elements})


def engine_of(config: MatmulConfig) -> str:
    """Of a kernel whose configs have none: mma."""
    return getattr(config, "engine", "mma")


def needs_simt(problem: Matmul, instead: str = "engine simt") -> str | None:
    """Why tensor cores cannot take it, and what can, `instead`; None where they can."""
    if problem.dtype is torch.float32:
        return f"fp32 inputs: tensor cores round them to TF32; {instead} does not"
    if problem.k % 2:
        return f"K = {problem.k} is odd: cp.async copies 4 bytes or more; {instead} takes it"
    if problem.layout is Layout.KN and problem.n % 2:
        return f"N = {problem.n} is odd with B stored [K, N]: cp.async copies 4 bytes or more; {instead} takes it"
    return None


def shared_bytes(problem: Matmul, config: MatmulConfig) -> int:
    """Of the stages of the pipeline."""
    if engine_of(config) == "simt":
        return simt.shared_bytes(config)
    stages = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    return stages if engine_of(config) == "mma" else stages + wgmma.BARRIERS_BYTES


def space(problem: Matmul, splits: tuple[int, ...]) -> list[BandConfig]:
    """Every tile whose rows fit the problem's, with every split of which each band has a step; of one band only where
    there is no other. Tiles of CUDA cores where tensor cores cannot take the problem."""
    on_cuda_cores = needs_simt(problem) is not None
    candidates = [
        BandConfig(**tile._asdict(), split_k=split_k)
        for tile in TILES
        for split_k in splits
        if (tile.engine == "simt") is on_cuda_cores and rows_fit(tile.block_m, problem.m)
    ]
    fitting = [config for config in candidates if has_steps(problem, config) and supports(problem, config) is None]
    return split_where_possible(fitting)


def default_config(problem: Matmul, most_splits: int) -> BandConfig:
    """Small tiles, so that few splits give each of Hopper's 132 multiprocessors a block or two; wider ones where a grid
    has no room for so many."""
    block_m = 16 if problem.m <= 32 else 32 if problem.m <= 256 else 64
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 256 else WIDEST_DEFAULT
    while block_n < WIDEST_DEFAULT and cdiv(problem.n, block_n) > GRID_LIMIT:
        block_n *= 2
    split_k = default_splits(problem, count_tiles(problem, block_m, block_n), most_splits)
    if needs_simt(problem):
        return BandConfig(block_m, block_n, 32, split_k, 2 if block_m * block_n == 256 else 4, 2, "simt")
    return BandConfig(block_m, block_n, 128, split_k, 2 if block_m * block_n == 256 else 4, 4)


def count_tiles(problem: Matmul, block_m: int, block_n: int) -> int:
    return cdiv(problem.m, block_m) * cdiv(problem.n, block_n)


def operands(
    problem: Matmul, config: MatmulConfig, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor
) -> tuple[Vectors, tuple[Tensor | int | None, ...]]:
    """What a Script has to be compiled for to take these tensors, and the first arguments of every BandScript's
    __call__, in its order. Raises ValueError for a tensor that offsets do not reach."""
    launching.check_reach(a=a, b=b, out=out)
    stored_b = b.T if problem.layout is Layout.NK else b  # as it stands in memory, row-major
    widths = vectors(problem, a, b, bias, out)
    stride_am, *strides_b = input_strides(problem, a, b)
    vector_b = widths.k if problem.layout is Layout.NK else widths.n
    return widths, (
        *(a, stored_b, bias, out),
        *(problem.m, problem.n // widths.n, problem.k // widths.k, config.split_k),
        *(stride_am // widths.k, max(strides_b) // vector_b),
        *(out.stride(0) // max(widths.c, 1), out.stride(1)),
    )


@dataclass(frozen=True)
class Build:
    """What every BandScript is compiled for; `settings` makes one. A Script's arguments must be hashable and named."""

    dtype: DataType
    out_dtype: DataType
    stored_nk: bool
    epilogue: str
    tile: Tile
    vectors: Vectors


def settings(problem: Matmul, config: MatmulConfig, vectors: Vectors) -> Build:
    stored_nk = problem.layout is Layout.NK
    dtypes = TILUS_DTYPE[problem.dtype], TILUS_DTYPE[problem.out_dtype]
    sizes = (config.block_m, config.block_n, config.block_k, config.num_warps, config.num_stages)
    tile = Tile(*sizes, _engine_for(engine_of(config), vectors, stored_nk))
    return Build(*dtypes, stored_nk, problem.epilogue.value, tile, vectors)


def _engine_for(engine: str, vectors: Vectors, stored_nk: bool) -> str:
    """The config's, or the next that takes these tensors."""
    if engine.startswith("wgmma") and vectors.k % wgmma.ALIGNMENT:
        engine = "mma"
    if engine == "mma" and unaligned(vectors, stored_nk):
        engine = "simt"
    return engine


def unaligned(vectors: Vectors, stored_nk: bool) -> bool:
    """Whether rows are aligned to less than the 4 bytes that cp.async takes."""
    return 1 in (vectors.k, vectors.k if stored_nk else vectors.n)


class BandScript(MmaProduct, WgmmaProduct, SimtProduct, EpilogueScript):
    """A block computes a [block_m, block_n] tile of C over one of split_k contiguous bands of K."""

    def __init__(self, build):
        super().__init__(build.dtype, build.out_dtype, build.vectors.c, build.epilogue)
        self.stored_nk = build.stored_nk
        self.block_m = build.tile.block_m
        self.block_n = build.tile.block_n
        self.block_k = build.tile.block_k
        self.num_warps = build.tile.num_warps
        self.num_stages = build.tile.num_stages
        self.engine = build.tile.engine
        self.paired = self.engine == "wgmma_pairs"
        self.cluster_m = wgmma.PAIR if self.paired else 1
        self.vector_k, self.vector_n, _ = build.vectors
        self.vector_b = self.vector_k if self.stored_nk else self.vector_n

    def band_product(
        self,
        acc: RegisterTensor,
        a_ptr: void_p,
        b_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        split_k: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        offset_m: int32,
        offset_n: int32,
        split: int32,
    ) -> None:
        """acc fp32 [block_m, block_n] += A[offset_m:, band] @ B[band, offset_n:], band `split` of split_k; nothing
        where there is no more K. Once in a program, as barriers count on. Ends in a sync."""
        k: int32 = k_units * self.vector_k
        band: int32 = cdiv(cdiv(k, self.block_k), split_k) * self.block_k
        k_begin: int32 = split * band
        # fmt: off
        self.product(
            acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units, offset_m, offset_n,
            k_begin, min(k_begin + band, k), 0,
        )
        # fmt: on

    def product(
        self,
        acc: RegisterTensor,
        a_ptr: void_p,
        b_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        offset_m: int32,
        offset_n: int32,
        k_begin: int32,
        k_end: int32,
        steps_before: int32,
    ) -> None:
        """acc fp32 [block_m, block_n] += A[offset_m:, k_begin:k_end] @ B[k_begin:k_end, offset_n:]. Once in a program;
        there it may stand in a loop: steps_before counts the steps of block_k that earlier rounds took."""
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        stride_am: int32 = stride_am_units * self.vector_k  # named, as the TMA of 0.2.0 takes a product for zero
        stride_b: int32 = stride_b_units * self.vector_b
        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k], strides=[stride_am, 1])
        gb = self.global_view(
            b_ptr, dtype=self.dtype, shape=[n, k] if self.stored_nk else [k, n], strides=[stride_b, 1]
        )
        if self.engine == "mma":
            self.mma_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
        if self.engine == "simt":
            self.simt_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
        if self.engine == "wgmma" or self.paired:
            self.wgmma_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end, steps_before)
        if self.engine == "wgmma_swapped":
            transposed = self.register_tensor(dtype=float32, shape=[self.block_n, self.block_m], init=0.0)
            self.wgmma_product(transposed, gb, ga, offset_n, offset_m, k_begin, k_end, steps_before)
            self.add(acc, self.transpose(transposed), out=acc)
