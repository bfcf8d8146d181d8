"""What every split-K kernel of this package does alike: a block's tile, its band of K, and the product over it.

The kernels differ in how the sums of the bands meet; that is what their files hold. Operands reach a Script as
`operands` gives them: extents and strides along which copies are wide in units of that width, as tilus 0.2.0 derives
alignment from a product, and takes none from an argument (`assume` included: it is joined with the argument's own
divisibility of one).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from tilus import bfloat16, float16, float32, int32, void_p
from tilus.hidet.ir.type import DataType
from tilus.ir.tensor import RegisterTensor
from tilus.utils import cdiv
from torch import Tensor

from common.kernel import MatmulConfig
from common.problem import Layout, Matmul
from kernels_tilus.epilogue import EpilogueScript

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
TILUS_DTYPE = {torch.bfloat16: bfloat16, torch.float16: float16, torch.float32: float32}
COPY_WIDTHS = (8, 4, 2)  # elements of a half-precision cp.async: 16, 8 or 4 bytes


class Tile(NamedTuple):
    """What of a config a BandScript is compiled for; the split is an argument, so that one build serves all."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int


# Few warps and deep pipelines for few rows, wide tiles for many.
TILES = [
    *[(16, 8, 128, 1, 6), (16, 8, 256, 1, 4), (16, 8, 256, 1, 6), (16, 8, 512, 1, 3), (16, 16, 128, 1, 4)],
    *[(16, 16, 256, 2, 4), (16, 16, 512, 2, 3), (16, 32, 128, 2, 4), (16, 32, 128, 4, 4), (16, 64, 128, 4, 4)],
    *[(32, 16, 128, 2, 4), (32, 32, 64, 4, 6), (32, 32, 128, 4, 4), (32, 64, 128, 4, 4), (64, 16, 128, 4, 4)],
    *[(64, 32, 64, 4, 5), (64, 32, 128, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 3), (128, 64, 64, 4, 4)],
]


class Vectors(NamedTuple):
    """Elements that one access may move: along K (of A, and of B stored [N, K]), along N, and of C: there 2 or 1, as
    a thread of an mma holds two side by side, or 0 for an `out` without unit stride along N."""

    k: int
    n: int
    c: int


def vectors(
    problem: Matmul, a: Tensor | None = None, stored_b: Tensor | None = None, out: Tensor | None = None
) -> Vectors:
    """Without tensors, contiguous ones are meant. Raises ValueError where rows are not aligned to the 4 bytes that
    cp.async copies at least."""
    along_k, along_n = [problem.k], [problem.n]
    beside_b = along_k if problem.layout is Layout.NK else along_n
    if a is not None:
        along_k += [a.stride(0), a.data_ptr() // a.itemsize]
        beside_b += [stored_b.stride(0), stored_b.data_ptr() // stored_b.itemsize]
    vector_k, vector_n = _widest(along_k), _widest(along_n)
    if vector_k == 1:
        raise ValueError(f"a or b has extents, row strides and addresses along K of {along_k} elements; accepted: even")
    if vector_n == 1 and problem.layout is Layout.KN:
        raise ValueError(f"b has extent, row stride and address along N of {along_n} elements; accepted: even")
    pairs = problem.n % 2 == 0
    if out is not None:
        if out.stride(1) != 1:
            return Vectors(vector_k, vector_n, 0)
        pairs = pairs and out.stride(0) % 2 == 0 and out.data_ptr() % (2 * out.itemsize) == 0
    return Vectors(vector_k, vector_n, 2 if pairs else 1)


def _widest(extents: list[int]) -> int:
    return next((width for width in COPY_WIDTHS if all(extent % width == 0 for extent in extents)), 1)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """fp16 and bf16 inputs; the contiguous dimension of A and of B must be even, as cp.async copies 4 bytes or more."""
    if problem.dtype is torch.float32:
        return "fp32 inputs: the mma.sync path of tilus takes fp16 and bf16"
    if problem.k % 2:
        return f"K = {problem.k} is odd: cp.async copies 4 bytes or more"
    if problem.layout is Layout.KN and problem.n % 2:
        return f"N = {problem.n} is odd with B stored [K, N]: cp.async copies 4 bytes or more"
    if config is None:
        return None
    if config.block_m % 16 or config.block_n % 8 or config.block_k % 16:
        return f"blocks {config.block_m}x{config.block_n}x{config.block_k} are not multiples of mma's 16x8x16"
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    if not _warps_cover(config.block_m, config.block_n, config.num_warps):
        return f"{config.num_warps} warps do not divide a {config.block_m}x{config.block_n} tile of 16x8 products"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    return None


@lru_cache(maxsize=1024)
def _warps_cover(block_m: int, block_n: int, num_warps: int) -> bool:
    """Whether the warps can be laid out over the 16x8 products of a tile, each with as many."""
    rows, columns = block_m // 16, block_n // 8
    return any(
        num_warps % w == 0 and rows % w == 0 and columns % (num_warps // w) == 0 for w in range(1, num_warps + 1)
    )


def space(problem: Matmul, splits: tuple[int, ...]) -> list[MatmulConfig]:
    """Every tile with every split that leaves each band two steps of block_k and more."""
    candidates = [
        MatmulConfig(**tile._asdict(), split_k=split_k)
        for tile in map(Tile._make, TILES)
        for split_k in splits
        if split_k == 1 or split_k * 2 * tile.block_k <= problem.k
    ]
    return [config for config in candidates if supports(problem, config) is None]


def default_config(problem: Matmul, most_splits: int) -> MatmulConfig:
    """Small tiles, so that few splits give each of Hopper's 132 multiprocessors a block or two."""
    block_m = 16 if problem.m <= 32 else 32 if problem.m <= 256 else 64
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 256 else 64
    tiles = count_tiles(problem, block_m, block_n)
    split_k = 1
    while split_k * 2 <= most_splits and split_k * 2 * tiles <= 264 and problem.k // (split_k * 2) >= 256:
        split_k *= 2
    return MatmulConfig(block_m, block_n, 128, split_k, 2 if block_m * block_n == 256 else 4, 4)


def count_tiles(problem: Matmul, block_m: int, block_n: int) -> int:
    return cdiv(problem.m, block_m) * cdiv(problem.n, block_n)


def stored(problem: Matmul, b: Tensor) -> Tensor:
    """The weight as it stands in memory, row-major."""
    return b.T if problem.layout is Layout.NK else b


def operands(
    problem: Matmul, vectors: Vectors, split_k: int, a: Tensor, stored_b: Tensor, bias: Tensor | None, out: Tensor
) -> tuple[Tensor | int | None, ...]:
    """The first arguments of every BandScript's __call__, in its order."""
    vector_b = vectors.k if problem.layout is Layout.NK else vectors.n
    return (
        *(a, stored_b, bias, out),
        *(problem.m, problem.n // vectors.n, problem.k // vectors.k, split_k),
        *(a.stride(0) // vectors.k, stored_b.stride(0) // vector_b),
        *(out.stride(0) // max(vectors.c, 1), out.stride(1)),
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
    tile = Tile(*(getattr(config, name) for name in Tile._fields))
    return Build(*dtypes, stored_nk, problem.epilogue.value, tile, vectors)


class BandScript(EpilogueScript):
    """A block computes a [block_m, block_n] tile of C over one of split_k contiguous bands of K."""

    def __init__(self, build):
        super().__init__(build.dtype, build.out_dtype, build.vectors.c, build.epilogue)
        self.stored_nk = build.stored_nk
        self.block_m = build.tile.block_m
        self.block_n = build.tile.block_n
        self.block_k = build.tile.block_k
        self.num_warps = build.tile.num_warps
        self.num_stages = build.tile.num_stages
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
        where there is no more K. cp.async pipeline of num_stages."""
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        band: int32 = cdiv(cdiv(k, block_k), split_k) * block_k
        k_begin: int32 = split * band
        k_end: int32 = min(k_begin + band, k)

        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k], strides=[stride_am_units * self.vector_k, 1])
        b_shape = [n, k] if self.stored_nk else [k, n]
        gb = self.global_view(b_ptr, dtype=self.dtype, shape=b_shape, strides=[stride_b_units * self.vector_b, 1])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, block_m, block_k])
        sb_shape = [block_n, block_k] if self.stored_nk else [block_k, block_n]
        sb = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, sb_shape[0], sb_shape[1]])

        for stage in range(self.num_stages - 1):
            stage_k: int32 = k_begin + stage * block_k
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, stage_k])
            self.copy_async(
                src=gb, dst=sb[stage], offsets=[offset_n, stage_k] if self.stored_nk else [stage_k, offset_n]
            )
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()

        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step_k in self.range(k_begin, k_end, block_k, unroll=self.num_stages):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.dot(a, b.transpose() if self.stored_nk else b, acc, out=acc)

            preload_k: int32 = step_k + (self.num_stages - 1) * block_k
            if preload_k < k_end:
                self.copy_async(src=ga, dst=sa[preload], offsets=[offset_m, preload_k])
                self.copy_async(
                    src=gb, dst=sb[preload], offsets=[offset_n, preload_k] if self.stored_nk else [preload_k, offset_n]
                )
            self.copy_async_commit_group()
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()
        self.copy_async_wait_group(n=0)
        self.free_shared(sa)
        self.free_shared(sb)
