"""What tilus' band kernels do alike: a block's tile of C, its band of K, the product over it, the end of the tile.

The kernels differ in how the sums of the bands meet; that is what their files hold. Configs are in configs.py, the
engines of the product in mma.py, wgmma.py, wgmma_specialized.py and simt.py. Device code first, in the order in which a
block runs it; then what the host passes to a launch.

Extents and strides along which copies are wide reach a Script in units of that width (`n_units`, `k_units`,
`stride_am_units`, ...): tilus 0.2.0 derives alignment from a product, and takes none from an argument (`assume`
included: it is joined with the argument's own divisibility of one). They are decoded here alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import tilus
import torch
from tilus import bfloat16, float16, float32, int32, void_p
from tilus.hidet.ir.expr import Expr
from tilus.hidet.ir.type import DataType
from tilus.ir.tensor import GlobalTensor, RegisterTensor

from triton_vs_tilus.common.kernel import GroupedConfig, MatmulConfig, band_steps, grid_of, is_grouped
from triton_vs_tilus.common.plan import Placement
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import WIDEST_LOAD
from triton_vs_tilus.kernels_tilus import launching, wgmma
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_tilus.dependent_launch import after_kernel_before
from triton_vs_tilus.kernels_tilus.epilogue import EpilogueScript, view_of_c
from triton_vs_tilus.kernels_tilus.mma import MmaProduct
from triton_vs_tilus.kernels_tilus.partials import holds_pairs_of_a_row, in_rows
from triton_vs_tilus.kernels_tilus.simt import SimtProduct
from triton_vs_tilus.kernels_tilus.wgmma_specialized import WgmmaSpecializedProduct

TILUS_DTYPE = {torch.bfloat16: bfloat16, torch.float16: float16, torch.float32: float32}
COPY_WIDTHS = (8, 4, 2)  # elements of a half-precision cp.async: 16, 8 or 4 bytes


class Tile(NamedTuple):
    """What of a config a BandScript is compiled for; the rest are arguments, so that one build serves all."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    engine: str = "mma"


class Vectors(NamedTuple):
    """Elements that one access may move: along K (of A, and of B stored [N, K]), along N, and of C: there 16 bytes of
    them; or 2 or 1, as a thread of an mma holds two side by side; or 0 for an `out` without unit stride along N."""

    k: int
    n: int
    c: int


@dataclass(frozen=True)
class Build:
    """What every BandScript is compiled for; `settings` makes one. A Script's arguments must be hashable and named.

    grouped: M has more tiles than a group."""

    dtype: DataType
    out_dtype: DataType
    stored_nk: bool
    epilogue: str
    tile: Tile
    vectors: Vectors
    grouped: bool


class BandScript(MmaProduct, WgmmaSpecializedProduct, SimtProduct, EpilogueScript):
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
        self.weight_is_a = self.engine == "wgmma_swapped"
        self.a_along_m = self.weight_is_a and not self.stored_nk
        self.b_along_n = self.engine in ("wgmma", "wgmma_specialized") and not self.stored_nk
        self.fed_by_tma = self.engine.startswith("wgmma")
        self.grouped = build.grouped
        self.vector_k, self.vector_n, _ = build.vectors
        self.vector_b = self.vector_k if self.stored_nk else self.vector_n
        wide = self.vector_c * self.out_dtype.nbytes == WIDEST_LOAD
        self.stored_in_rows = wide and holds_pairs_of_a_row(self.engine)

    def pid_m_of(self, group_m: int32, groups: int32) -> int32:
        """Which row of tiles is this block's, in the grid of common.kernel.Grid."""
        pid_m: int32 = self.blockIdx.x
        if self.grouped:
            pid_m = self.blockIdx.x + self.blockIdx.z % groups * group_m
        return pid_m

    def split_of(self, groups: int32) -> int32:
        """Which band of K is this block's, in the grid of common.kernel.Grid."""
        split: int32 = self.blockIdx.z
        if self.grouped:
            split = self.blockIdx.z // groups
        return split

    def pid_m_of_tile(self, tile: int32, tiles_m: int32, tiles_n: int32, group_m: int32) -> int32:
        """Which row of tiles it is in, in the order of common.kernel.Grid, without gaps."""
        pid_m: int32 = 0
        if tiles_m > 1:  # few rows need no divisions
            first: int32 = tile // (group_m * tiles_n) * group_m
            pid_m = first + tile % (group_m * tiles_n) % min(tiles_m - first, group_m)
        return pid_m

    def pid_n_of_tile(self, tile: int32, tiles_m: int32, tiles_n: int32, group_m: int32) -> int32:
        """Which column of tiles it is in."""
        pid_n: int32 = tile
        if tiles_m > 1:
            first: int32 = tile // (group_m * tiles_n) * group_m
            pid_n = tile % (group_m * tiles_n) // min(tiles_m - first, group_m)
        return pid_n

    def band_product(
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
        split: int32,
        band_steps: int32,
    ) -> None:
        """`range_product` over band `split`, of `band_steps` steps of block_k; nothing where there is no more K. Once
        in a program, as barriers count on. Ends in a sync."""
        k_begin: int32 = split * band_steps * self.block_k
        k_end: int32 = min(k_begin + band_steps * self.block_k, k_units * self.vector_k)
        # fmt: off
        self.range_product(
            acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
            offset_m, offset_n, k_begin, k_end, 0,
        )
        # fmt: on

    def prefetched_product(
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
        split: int32,
        band_steps: int32,
    ) -> None:
        """`band_product` by mma; the first num_stages - 1 steps of B are on their way before the wait for the kernel
        before, which has written A and not B. They are waited for with the first step of A, or, through registers, at
        once."""
        block_k = self.block_k
        k_begin: int32 = split * band_steps * block_k
        k_end: int32 = min(k_begin + band_steps * block_k, k_units * self.vector_k)
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        gb = view_of_b(self, b_ptr, n, k, stride_b_units)
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, self.block_m, block_k])
        sb_shape = [self.block_n, block_k] if self.stored_nk else [block_k, self.block_n]
        sb = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, sb_shape[0], sb_shape[1]])
        for stage in range(self.num_stages - 1):
            b_k: int32 = k_begin + stage * block_k
            if b_k < k_end:
                self.copy_b(gb, sb, stage, offset_n, b_k)
        written: void_p = after_kernel_before(a_ptr)
        ga = view_of_a(self, written, m, k, stride_am_units)
        for stage in range(self.num_stages - 1):
            a_k: int32 = k_begin + stage * block_k
            if a_k < k_end:
                self.copy_a(ga, sa, stage, offset_m, a_k)
            self.copy_async_commit_group()
        self.mma_steps(acc, ga, gb, sa, sb, offset_m, offset_n, k_begin, k_end)
        self.free_shared(sa)
        self.free_shared(sb)

    def range_product(
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
        ga = view_of_a(self, a_ptr, m, k, stride_am_units)
        gb = view_of_b(self, b_ptr, n, k, stride_b_units)
        if self.engine == "mma":
            self.mma_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
        if self.engine == "mma_sliced":
            self.sliced_mma_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
            self.sync()  # other data take the memory in which the sums have met
        if self.engine == "simt":
            self.simt_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
        if self.engine == "wgmma" or self.paired:
            self.wgmma_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end, steps_before)
        if self.engine == "wgmma_specialized":
            self.wgmma_specialized_product(acc, ga, gb, offset_m, offset_n, k_begin, k_end)
        if self.weight_is_a:
            transposed = self.register_tensor(dtype=float32, shape=[self.block_n, self.block_m], init=0.0)
            self.wgmma_product(transposed, gb, ga, offset_n, offset_m, k_begin, k_end, steps_before)
            self.add(acc, self.transpose(transposed), out=acc)

    def finish_in_rows(
        self,
        acc: RegisterTensor,
        bias_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        offset_m: int32,
        offset_n: int32,
    ) -> None:
        """`finish` of sums as the product leaves them, by all of its warps: in whole lines where C is aligned to
        them, through the shared memory of the product."""
        self.apply_epilogue(acc, bias_ptr, n, offset_n)
        if self.stored_in_rows:
            gc = view_of_c(self, c_ptr, m, n, stride_cm_units, stride_cn)
            rounded = self.cast(acc, dtype=self.out_dtype)
            self.store_global(gc, in_rows(self, rounded), offsets=[offset_m, offset_n])
        else:
            self.store(acc, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


# Functions, and not methods: what a method of a Script returns lies outside of its scope. They take sizes and declare
# strides as variables: tilus 0.2.0 loses a view whose shape is a product, and its TMA takes a stride that is one for 0.
def view_of_a(script: tilus.Script, a_ptr: Expr, m: Expr, k: Expr, stride_am_units: Expr) -> GlobalTensor:
    """A [m, k]."""
    stride_am = script._builder.declare(int32, stride_am_units * script.vector_k)
    return script.global_view(a_ptr, dtype=script.dtype, shape=[m, k], strides=[stride_am, 1])


def view_of_b(script: tilus.Script, b_ptr: Expr, n: Expr, k: Expr, stride_b_units: Expr) -> GlobalTensor:
    """B as it is stored: [n, k] or [k, n]."""
    stride_b = script._builder.declare(int32, stride_b_units * script.vector_b)
    shape = [n, k] if script.stored_nk else [k, n]
    return script.global_view(b_ptr, dtype=script.dtype, shape=shape, strides=[stride_b, 1])


def view_of_b_columns(script: tilus.Script, b_ptr: Expr, n: Expr, k: Expr, stride_b_units: Expr) -> GlobalTensor:
    """B as [n, k], however it is stored."""
    stride_b = script._builder.declare(int32, stride_b_units * script.vector_b)
    strides = [stride_b, 1] if script.stored_nk else [1, stride_b]
    return script.global_view(b_ptr, dtype=script.dtype, shape=[n, k], strides=strides)


def settings(problem: Matmul, config: MatmulConfig, vectors: Vectors) -> Build:
    """What a Script has to be compiled for to take this problem on this config, and tensors of these vectors."""
    stored_nk = problem.layout is Layout.NK
    dtypes = TILUS_DTYPE[problem.dtype], TILUS_DTYPE[problem.out_dtype]
    sizes = (config.block_m, config.block_n, config.block_k, config.num_warps, config.num_stages)
    engine = _engine_for(config.engine, vectors, stored_nk) if isinstance(config, BandConfig) else "mma"
    tile = Tile(*sizes, engine)
    return Build(*dtypes, stored_nk, problem.epilogue.value, tile, vectors, is_grouped(problem, config))


def _engine_for(engine: str, vectors: Vectors, stored_nk: bool) -> str:
    """The config's, or the next that takes these tensors."""
    along_b = vectors.k if stored_nk else vectors.n
    if engine.startswith("wgmma") and (vectors.k % wgmma.ALIGNMENT or along_b % wgmma.ALIGNMENT):
        engine = "mma"
    return engine


def arguments(problem: Matmul, vectors: Vectors, placement: Placement) -> tuple[int, ...]:
    """The numbers that every BandScript takes alike, in their order: m, n_units, k_units; stride_am_units,
    stride_b_units; stride_cm_units, stride_cn."""
    stride_am, *strides_b = placement.in_strides
    stride_b = max(strides_b) // (vectors.k if problem.layout is Layout.NK else vectors.n)
    stride_cm, stride_cn = placement.out_strides
    return (
        *(problem.m, problem.n // vectors.n, problem.k // vectors.k),
        *(stride_am // vectors.k, stride_b),
        *(stride_cm // max(vectors.c, 1), stride_cn),
    )


def place(problem: Matmul, config: GroupedConfig) -> tuple[int, int]:
    """group_m and groups, as `pid_m_of` and `split_of` take them."""
    grid = grid_of(problem, config)
    return grid.group_m, grid.groups


def bands(problem: Matmul, config: MatmulConfig) -> tuple[int, int]:
    """split_k and band_steps, as a launch of a split K takes them."""
    return config.split_k, band_steps(problem.k, config.block_k, config.split_k)


def vectors(problem: Matmul, placement: Placement) -> Vectors:
    """What a Script has to be compiled for to take tensors that lie so. Raises ValueError for a tensor that offsets do
    not reach."""
    launching.check_placement(problem, placement)
    itemsize = problem.dtype.itemsize
    stride_am, *strides_b = placement.in_strides
    along_k, along_n = [problem.k], [problem.n]
    along_k += [stride_am, placement.align_a // itemsize]
    beside_b = along_k if problem.layout is Layout.NK else along_n
    beside_b += [max(strides_b), placement.align_b // itemsize]
    along_n.append(placement.align_bias // itemsize)
    of_c = vector_c(problem.n, placement.out_strides, placement.align_c, problem.out_dtype.itemsize)
    return Vectors(_widest(along_k), _widest(along_n), of_c)


def vector_c(n: int, strides: tuple[int, int], align: int, itemsize: int) -> int:
    """Vectors.c for C [M, n] of these strides, at an address that is a multiple of `align` bytes."""
    if strides[1] != 1:
        return 0
    widths = (WIDEST_LOAD // itemsize, 2)
    return next((w for w in widths if align % (w * itemsize) == 0 and n % w == 0 and strides[0] % w == 0), 1)


def _widest(extents: list[int]) -> int:
    return next((width for width in COPY_WIDTHS if all(extent % width == 0 for extent in extents)), 1)
