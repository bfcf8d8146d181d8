"""A half-precision activation times a weight of 4 bits, laid out once as the tensor cores take it.

    C[m, n] = sum over groups g of scales[g, n] * sum over k in g of A[m, k] * (q[k, n] - zeros[g, n])

The inner sum is a product of the tensor cores; scale and zero point are applied to it, once per group and element of C,
in fp32:

    sum over k in g of A[m, k] * (q[k, n] - zeros[g, n]) = (A @ q)[m, n] - zeros[g, n] * (sum over k in g of A[m, k])

Grid         (tiles of M, tiles of N, split_k); a split walks a band of K, or every split_k-th step of it. sliced_k:
             (tiles of N, tiles of M)
Who sums     a block its steps; the variants differ in how the splits meet
Variants     data_parallel: one block walks all of K
             atomic: fp32 atomics into one workspace, finished by the last to arrive (as kernels_tilus/atomic.py)
             last_arriver: fp32 partials, summed in split order by the last to arrive (as last_arriver.py)
             semaphore: the splits take turns, adding to an fp32 workspace (as semaphore.py)
             sliced_k: no split; the warps of a block share K, a group each in a step, and meet in shared memory (as
             sliced_k.py)
Deterministic all but atomic
Workspace    none; or 4 bytes an element of C (atomic, semaphore), or that times split_k (last_arriver), and one int32 a
             tile
Launches     1

How a weight costs less than one instruction:
- No arithmetic turns a q into half precision: as an fp16, its 4 bits are q units of 2^-24, exact in every product. One
  shift and 4 ands turn a word into 8 weights. See common.w4a16.Operand.
- The sums of A's rows are a product of the tensor cores too, by a matrix of ones that is 8 columns wide.
- `lay_out` puts each q where its lane takes it: 16 bytes, one load from shared memory without a bank conflict, and one
  cp.async before that. `view` turns the bytes into words, and the pairs made from the words into an operand of an mma.
- Scales and zero points are copied apart, 8 columns a thread, in the order in which a lane holds its columns of C.

Source: tilus' example of quantized products, `examples/quantization/matmul_a16wx.py`, for the layout by tiles and the
view; there symmetric types alone, cast to fp16 in the order of their elements, scales applied to the weights, and turns
taken in fp16. The splits and their protocols: as in the Triton twin.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
from tilus import float16, float32, int32, uint8, void_p
from tilus.hidet.ir.expr import Expr, if_then_else
from tilus.hidet.ir.type import DataType
from tilus.ir.layout.ops import local, reduce, shared_row_major, spatial
from tilus.ir.layout.shared_layout import Swizzle
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common import w4a16 as shared
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, space_of
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import SYMMETRIC_ZERO, GPTQWeight, pack_rows, pack_zeros
from triton_vs_tilus.common.space import too_many_warps
from triton_vs_tilus.common.w4a16 import (
    OPERANDS,
    PROTOCOLS,
    SLICED_K,
    TILE,
    TILE_BYTES,
    W4A16Config,
    W4A16Inputs,
    W4A16Matmul,
    W4A16Places,
    checked,
    contiguous,
    launched,
    meeting,
    meeting_place,
    minus_operands,
    padded,
    q_of,
    sums_shape,
    tiles_of,
    zeros_of,
)
from triton_vs_tilus.kernels_tilus import band, configs, launching
from triton_vs_tilus.kernels_tilus.arrival import Arrivals
from triton_vs_tilus.kernels_tilus.atomics import atomic_add, clear
from triton_vs_tilus.kernels_tilus.epilogue import EpilogueScript
from triton_vs_tilus.kernels_tilus.mma import MmaProduct, layout_of_total
from triton_vs_tilus.kernels_tilus.sliced_dot import sliced_dot

# atomic_in_place in Triton alone: the atomics of tiles that tilus has here are of fp32.
VARIANTS = ("data_parallel", "atomic", "last_arriver", "semaphore", SLICED_K)
VECTOR = 8  # half-precision elements of a 16-byte copy
LEAST_COLUMNS = 64  # 2 warps, 32 columns each
# tilus alone: rows of sliced_k's tiles; fewer than 8 repeat over the 8 columns of an mma.
SLICED_ROWS_ACCEPTED = (1, 2, 4, 8, 16)


def space(problem: W4A16Matmul, *, variant: str) -> Space:
    """The configs of common.w4a16.wanted, or of its wanted_sliced, that are supported."""
    wanted = shared.wanted_sliced(problem) if variant == SLICED_K else shared.wanted(problem, variant)
    return space_of(wanted, partial(supports, problem, variant=variant))


def default_config(problem: W4A16Matmul, *, variant: str) -> W4A16Config:
    """The rule of both languages, common.w4a16.default_config or its default_sliced_config."""
    if variant == SLICED_K:
        return shared.default_sliced_config(problem)
    return shared.default_config(problem, variant, least_columns=LEAST_COLUMNS)


def supports(problem: W4A16Matmul, config: W4A16Config | None = None, *, variant: str) -> str | None:
    """None, or why the problem cannot run on this config, or on the default one; also by common.w4a16.unsupported, or
    its unsupported_sliced.

    tilus' own reasons: offsets reach all tensors; a warp has whole tiles of 32 columns, and in sliced_k rows that
    repeat over the 8 columns of an mma, and a share of the tile; the pipeline has 2 stages.
    """
    config = config or default_config(problem, variant=variant)
    if reason := too_many_warps(config.num_warps):
        return reason
    bytes_of_weight = problem.k * cdiv(problem.n, TILE) * TILE // 2
    elements = {"A": problem.m * problem.k, "the weight": bytes_of_weight, "C": problem.m * problem.n}
    if variant != SLICED_K:
        elements["the workspace"] = prod(sums_shape(problem, config, meeting(variant, config)))
    if reason := launching.out_of_reach(elements):
        return reason
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}; accepted: 2 or more"
    blocks = (config.block_m, config.block_n, config.block_k)
    if variant == SLICED_K:
        if blocks[0] not in SLICED_ROWS_ACCEPTED or blocks[1] % TILE:
            accepted = f"block_m {', '.join(map(str, SLICED_ROWS_ACCEPTED))}, block_n a multiple of {TILE}"
            return f"blocks are {blocks}; accepted: {accepted}"
        if config.num_warps & (config.num_warps - 1):
            return f"num_warps is {config.num_warps}; accepted: powers of two, as warps share a tile"
        return shared.unsupported_sliced(problem, config, configs.SHARED_MEMORY_LIMIT, config.block_m)
    if blocks[0] % 16 or blocks[1] % (TILE * config.num_warps) or blocks[2] % TILE:
        accepted = f"block_m a multiple of 16, block_n of {TILE} for each warp, block_k of {TILE}"
        return f"blocks are {blocks} with {config.num_warps} warps; accepted: {accepted}"
    return shared.unsupported(problem, config, variant, configs.SHARED_MEMORY_LIMIT)


def workspace_bytes(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> int:
    """Bytes of the fp32 sums and of the counters."""
    return 0 if variant == SLICED_K else shared.workspace_bytes(problem, config, variant)


# tilus alone: a Script is compiled for one hashable record; Triton takes each field as a constexpr.
@dataclass(frozen=True)
class Build:
    """What a W4A16Script is compiled for. meet: 'none' or the variant; vector_c as in kernels_tilus/band.py."""

    dtype: DataType
    group_size: int
    symmetric: bool
    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    interleaved: bool
    meet: str
    vector_c: int


# tilus alone: Triton's is a jit function, which the variants share.
def nibbles_of(dtype: DataType, word: Expr, upper: Expr, byte: Expr) -> Expr:
    """Two nibbles of an int32 word that are 16 bits apart, as operands of `dtype`: the lower or upper ones of bytes
    `byte` and byte + 2. See common.w4a16.Operand."""
    if dtype == float16:
        return (word >> (byte * 8)) & (int32(0x000F000F) << (upper * 4))
    return ((word >> (byte * 8 + upper * 4)) & int32(0x000F000F)) | int32(0x43004300)


class TiledWeightScript(EpilogueScript):
    """What the Scripts of all variants have in common. Each has a pair_of, and the layouts in which a lane holds the
    weight: tiles_layout, words_layout, pairs_layout and, as an operand of an mma, weight_layout."""

    def __init__(self, build):
        super().__init__(build.dtype, build.dtype, build.vector_c, Epilogue.NONE.value)
        self.symmetric = build.symmetric
        self.block_m = build.block_m
        self.block_n = build.block_n
        self.num_warps = build.num_warps
        self.num_stages = build.num_stages
        self.n_tiles = self.block_n // TILE
        self.operand = OPERANDS[torch.float16 if self.dtype == float16 else torch.bfloat16]
        mma = self.cuda.atomic_mma_configs
        self.mma = mma.m16n8k16_f16_f32 if self.dtype == float16 else mma.m16n8k16_bf16_f32

    def weight_operand(self, shared: SharedTensor, nibbles: RegisterTensor) -> RegisterTensor:
        """Tiles of the weight, uint8 in shared memory, as an operand of an mma. nibbles: int32, the pairs of a word by
        number, 0 to 3."""
        tiles = self.load_shared(shared)
        self.annotate_layout(tiles, self.tiles_layout)
        words = self.view(tiles, dtype=int32, layout=self.words_layout)
        pairs = self._builder.elementwise_binary(words, nibbles, f_compute=self.pair_of)
        self.annotate_layout(pairs, self.pairs_layout)
        return self.view(pairs, dtype=self.dtype, layout=self.weight_layout)

    def free_stages(self, sa: SharedTensor, sb: SharedTensor, ss: SharedTensor, sz: SharedTensor) -> None:
        """Ends the pipeline, once no copy is under way and all threads have read its stages. sz: ss where symmetric."""
        self.copy_async_wait_group(n=0)
        self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        self.free_shared(ss)
        if not self.symmetric:
            self.free_shared(sz)


class W4A16Script(Arrivals, TiledWeightScript):
    """One block: a tile of C over the steps of one split, and its part in how the splits meet."""

    def __init__(self, build):
        super().__init__(build)
        self.group_size = build.group_size
        self.block_k = build.block_k
        self.interleaved = build.interleaved
        self.meet = build.meet
        self.counted = self.meet == "atomic" or self.meet == "last_arriver"
        self.prepare_arrivals(self.num_stages * self.block_k * (4 * self.block_m + self.block_n) // 2)

        self.k_tiles = self.block_k // TILE
        self.eights = self.block_n // 8
        rows, warps, per_warp, mma = self.block_m // 16, self.num_warps, self.n_tiles // self.num_warps, self.mma
        # The warps share the columns. A lane holds 16 bytes, or 4 words, of each tile of the weight ...
        self.tiles_layout = spatial(warps, 1).local(per_warp, 1) * local(1, 1).spatial(1, 32).local(1, 16)
        self.words_layout = spatial(warps, 1, 1).local(per_warp, 1, 1) * spatial(1, 32, 1).local(1, 4, 1)
        self.pairs_layout = self.words_layout * local(1, 1, 4)
        self.nibbles_layout = reduce(self.pairs_layout, dims=[0, 1], keepdims=True)
        # ... whose pairs are the lane's part of 2 x 4 operands of an mma; `lay_out` put them there.
        self.weight_layout = spatial(1, warps).local(1, per_warp) * local(2, 4) * mma.lb
        self.acc_layout = spatial(1, warps).local(rows, 4 * per_warp) * mma.lc
        all_warps = reduce(spatial(1, warps), dims=[1], keepdims=True)
        self.a_layout = all_warps.local(rows, 2) * mma.la
        self.ones_layout = all_warps.local(2, 1) * mma.lb
        self.row_sums_layout = all_warps.local(rows, 1) * mma.lc
        # Accumulators by groups of 8 columns, for which the sums of rows are the same.
        lc_eights = local(2, 1, 1).spatial(8, 1, 4).local(1, 1, 2)
        self.acc_eights = spatial(1, warps, 1).local(rows, 4 * per_warp, 1) * lc_eights
        self.sums_eights = reduce(self.acc_eights, dims=[1], keepdims=True)
        self.columns_eights = reduce(self.acc_eights, dims=[0], keepdims=True)
        lanes = reduce(spatial(8, 4), dims=[0], keepdims=True)
        self.columns_layout = spatial(1, warps).local(1, per_warp) * lanes.local(1, 8)

    def pair_of(self, word: Expr, pair: Expr) -> Expr:
        """Nibble pair / 2 of bytes pair % 2 and pair % 2 + 2: `nibbles_of`."""
        return nibbles_of(self.dtype, word, pair >> 1, pair & 1)

    def minus_symmetric_zero(self, row: Expr, eight: Expr, column: Expr) -> Expr:
        """Minus what the zero point 8 is as an operand; every other 8 columns have the upper nibbles."""
        zero = SYMMETRIC_ZERO + self.operand.offset
        return if_then_else(eight % 2 == 0, float32(-zero), float32(-zero * self.operand.upper_weight))

    def per_unit(self, row: Expr, eight: Expr, column: Expr) -> Expr:
        """The factor that takes the unit, and the weight of upper nibbles, out of the sum."""
        per = 1 / self.operand.unit
        return if_then_else(eight % 2 == 0, float32(per), float32(per / self.operand.upper_weight))

    def columns(self, shared: SharedTensor) -> RegisterTensor:
        """fp32 [1, eights, 8]: one number a column, from shared memory."""
        values = self.load_shared(shared)
        self.annotate_layout(values, self.columns_layout)
        return self.cast(self.view(values, layout=self.columns_eights), dtype=float32)

    def split_product(
        self,
        acc: RegisterTensor,
        a_ptr: void_p,
        tiles_ptr: void_p,
        scales_ptr: void_p,
        minus_zeros_ptr: void_p,
        m: int32,
        all_k_tiles: int32,
        all_n_tiles: int32,
        groups: int32,
        stride_am: int32,
        offset_m: int32,
        offset_n: int32,
        begin: int32,
        end: int32,
        stride: int32,
    ) -> None:
        """acc fp32 [block_m, block_n / 8, 8] += the tile of A @ weight, in units of Operand, over the steps begin,
        begin + stride, ... before end. cp.async pipeline of num_stages."""
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        columns: int32 = all_n_tiles * TILE
        # Extents are arguments: where the extent of a view is an expression that was moved out of a loop, tilus 0.2.0
        # reads a variable within the loop that it does not declare.
        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[all_k_tiles, m, TILE], strides=[TILE, stride_am, 1])
        gb = self.global_view(tiles_ptr, dtype=uint8, shape=[all_k_tiles, all_n_tiles, TILE_BYTES])
        gs = self.global_view(scales_ptr, dtype=self.dtype, shape=[groups, columns])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, self.k_tiles, block_m, TILE])
        sb = self.shared_tensor(dtype=uint8, shape=[self.num_stages, self.k_tiles, self.n_tiles, TILE_BYTES])
        ss = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, 1, block_n])
        if self.symmetric:
            sz = ss  # never read
        else:
            gz = self.global_view(minus_zeros_ptr, dtype=self.dtype, shape=[groups, columns])
            sz = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, 1, block_n])

        for stage in range(self.num_stages - 1):
            first: int32 = begin + stage * stride
            if first < end:
                first_group: int32 = first * block_k // self.group_size
                self.copy_async(src=gb, dst=sb[stage], offsets=[first * self.k_tiles, offset_n // TILE, 0])
                self.copy_async(src=ga, dst=sa[stage], offsets=[first * self.k_tiles, offset_m, 0])
                self.copy_async(src=gs, dst=ss[stage], offsets=[first_group, offset_n])
                if not self.symmetric:
                    self.copy_async(src=gz, dst=sz[stage], offsets=[first_group, offset_n])
            self.copy_async_commit_group()

        ones = self.register_tensor(dtype=self.dtype, shape=[TILE, 8], init=self.operand.unit)
        self.annotate_layout(ones, self.ones_layout)
        nibbles = self.register_tensor(dtype=int32, shape=[1, 1, 4], init=lambda i, j, pair: pair)
        self.annotate_layout(nibbles, self.nibbles_layout)
        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step in self.range(begin, end, stride):
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()  # all threads see this stage, and have read the one that is loaded next
            ahead: int32 = step + (self.num_stages - 1) * stride
            if ahead < end:
                ahead_group: int32 = ahead * block_k // self.group_size
                self.copy_async(src=gb, dst=sb[preload], offsets=[ahead * self.k_tiles, offset_n // TILE, 0])
                self.copy_async(src=ga, dst=sa[preload], offsets=[ahead * self.k_tiles, offset_m, 0])
                self.copy_async(src=gs, dst=ss[preload], offsets=[ahead_group, offset_n])
                if not self.symmetric:
                    self.copy_async(src=gz, dst=sz[preload], offsets=[ahead_group, offset_n])
            self.copy_async_commit_group()

            product = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            row_sums = self.register_tensor(dtype=float32, shape=[block_m, 8], init=0.0)
            self.annotate_layout(product, self.acc_layout)
            self.annotate_layout(row_sums, self.row_sums_layout)
            for i in self.range(self.k_tiles, unroll="all"):
                a = self.load_shared(sa[current, i])
                self.annotate_layout(a, self.a_layout)
                b = self.weight_operand(sb[current, i], nibbles)
                self.dot(a, b, product, out=product)
                self.dot(a, ones, row_sums, out=row_sums)
            scales = self.columns(ss[current])
            if self.symmetric:
                minus_zeros = self.register_tensor(
                    dtype=float32, shape=[1, self.eights, 8], init=self.minus_symmetric_zero
                )
            else:
                minus_zeros = self.columns(sz[current])
            product_eights = self.view(product, layout=self.acc_eights)
            row_sums_eights = self.view(row_sums, layout=self.sums_eights)
            self.assign(acc, acc + (product_eights + row_sums_eights * minus_zeros) * scales)
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
        self.free_stages(sa, sb, ss, sz)

    def __call__(
        self,
        a_ptr: void_p,
        tiles_ptr: void_p,
        scales_ptr: void_p,
        minus_zeros_ptr: void_p,
        c_ptr: void_p,
        counters_ptr: void_p,
        sums_ptr: void_p,
        m: int32,
        n_units: int32,
        all_k_tiles: int32,
        all_n_tiles: int32,
        groups: int32,
        stride_am_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        split_k: int32,
        band_steps: int32,
        ticket: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        n: int32 = n_units * VECTOR
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * VECTOR, block_n), split_k]
        self.attrs.warps = self.num_warps
        tile: int32 = self.blockIdx.y * tiles_m + self.blockIdx.x
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        counters = self.global_view(counters_ptr, dtype=int32, shape=[tiles_m * tiles_n])
        if self.counted:
            self.announce(counters, tile, ticket)

        steps: int32 = all_k_tiles // self.k_tiles
        begin: int32 = split
        end: int32 = steps
        stride: int32 = split_k
        if not self.interleaved:
            begin = split * band_steps
            end = min(begin + band_steps, steps)
            stride = 1
        by_eights = self.register_tensor(dtype=float32, shape=[block_m, self.eights, 8], init=0.0)
        self.annotate_layout(by_eights, self.acc_eights)
        # fmt: off
        self.split_product(
            by_eights, a_ptr, tiles_ptr, scales_ptr, minus_zeros_ptr, m, all_k_tiles, all_n_tiles, groups,
            stride_am_units * VECTOR, offset_m, offset_n, begin, end, stride,
        )
        # fmt: on
        per_unit = self.register_tensor(dtype=float32, shape=[1, self.eights, 8], init=self.per_unit)
        self.annotate_layout(per_unit, self.columns_eights)
        self.assign(by_eights, by_eights * per_unit)
        acc = self.view(by_eights, layout=self.acc_layout)

        if self.meet == "none":
            self.store(acc, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
        if self.meet == "atomic":
            sums = self.global_view(sums_ptr, dtype=float32, shape=[m, n])
            atomic_add(self, sums, acc, offsets=[offset_m, offset_n])
            if self.is_last(counters, tile, ticket, split_k):
                total = self.load_global(sums, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                self.annotate_layout(total, self.wide_layout)
                self.store(total, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                clear(self, sums, total, offsets=[offset_m, offset_n])
                self.reset(counters, tile)
        if self.meet == "last_arriver":
            partials = self.global_view(sums_ptr, dtype=float32, shape=[split_k, m, n])
            self.store_global(partials, acc, offsets=[split, offset_m, offset_n], dims=[1, 2])
            if self.is_last(counters, tile, ticket, split_k):
                total = self.sum_in_order(partials, 0, offset_m, offset_n)
                self.store(total, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.reset(counters, tile)
        if self.meet == "semaphore":
            running = self.global_view(sums_ptr, dtype=float32, shape=[m, n])
            semaphore: ~int32 = counters[tile].item_ptr()
            if split > 0:
                self.lock_semaphore(semaphore, value=ticket + split)
                self.add(
                    acc, self.load_global(running, offsets=[offset_m, offset_n], shape=[block_m, block_n]), out=acc
                )
            if split + 1 < split_k:
                self.store_global(running, acc, offsets=[offset_m, offset_n])
                self.sync()  # every thread's store comes before the one thread that hands over
                self.release_semaphore(semaphore, value=ticket + split + 1)
            else:
                self.store(acc, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.reset(counters, tile)


class SlicedW4A16(MmaProduct, TiledWeightScript):
    """One block: a tile of C over all of K, whose groups its warps share. The product is that of the transposes, of
    the weight and 8 rows of A, or of fewer rows several times."""

    def __init__(self, build):
        super().__init__(build)
        self.k_tiles = build.group_size // TILE  # of a warp
        self.rows = max(self.block_m, 8)  # of A, that are the columns of an mma
        warps, wide, mma = self.num_warps, self.n_tiles, self.mma
        sixteens, eights = 2 * wide, self.rows // 8
        # A lane holds 16 bytes, or 4 words, of a tile: each word a depth and 16 columns ...
        lanes = spatial(warps, 1, 1, 1, 1, 1).spatial(1, 1, 32, 1, 1, 1)  # warp, n_tile, lane, depth, widths, pair
        self.tiles_layout = spatial(warps, 1, 1).local(1, wide, 1).spatial(1, 1, 32).local(1, 1, 16)
        self.words_layout = lanes.local(1, wide, 1, 2, 2, 1)
        # ... whose pairs are part of 16 columns x 16 of K, the left operand of an mma: there depths run faster.
        self.pairs_layout = lanes * local(1, wide, 1, 2, 2, 4, ranks=[0, 1, 2, 4, 3, 5])
        self.nibbles_layout = reduce(self.pairs_layout, dims=[0, 1, 2, 3, 4])
        self.weight_layout = spatial(1, warps).local(sixteens, 2) * mma.la
        # A's rows are the columns of the right operand; where they are fewer than its 8, each is several.
        of_eight = self.block_m // eights
        # warp, row, eight of K, k
        of_warp = spatial(warps, 1, 1, 1).local(1, 1, 2, 1).local(1, eights, 1, 1).local(1, 1, 2, 1)
        lanes = reduce(spatial(1, 8 // of_eight, of_eight, 1, 4), dims=[1])
        self.a_layout = of_warp * lanes * local(1, 1, 1, 2)
        self.a_operand_layout = spatial(warps, 1).local(2, eights) * mma.lb
        # Neighbouring threads copy neighbours of a row; a lane's eight of K is in other banks in each of 4 rows.
        row, eight = build.group_size.bit_length() - 1, VECTOR.bit_length() - 1  # bits of an offset
        self.a_swizzle = Swizzle(base=eight, bits=min(2, self.block_m.bit_length() - 1), shift=row - eight)
        # Accumulators by 16 columns of C, for which the sums of A's rows are the same.
        self.acc_layout = spatial(warps, 1, 1).local(1, sixteens, eights) * mma.lc
        lc_sixteens = local(1, 1, 2, 1).spatial(1, 1, 8, 4).local(1, 1, 1, 2)
        self.acc_sixteens = spatial(warps, 1, 1, 1).local(1, sixteens, 1, eights) * lc_sixteens
        self.sums_sixteens = reduce(self.acc_sixteens, dims=[1], keepdims=True)
        self.columns_sixteens = reduce(self.acc_sixteens, dims=[3], keepdims=True)
        # Scales as `_by_lane` has them: of 32, a lane here has every 8th.
        own = spatial(warps, 1, 1, 1, 1).local(1, wide, 1, 4, 1) * reduce(spatial(1, 1, 4, 1, 2, 4), dims=[5])
        self.columns_layout = own.with_shape([warps, self.block_n])

    def pair_of(self, word: Expr, pair: Expr) -> Expr:
        """Nibble pair % 2 of bytes pair / 2 and pair / 2 + 2: `nibbles_of`."""
        return nibbles_of(self.dtype, word, pair & 1, pair >> 1)

    def minus_symmetric_zero(self, warp: Expr, sixteen: Expr, column: Expr, row: Expr) -> Expr:
        """As W4A16Script's."""
        zero = SYMMETRIC_ZERO + self.operand.offset
        return if_then_else(column < 8, float32(-zero), float32(-zero * self.operand.upper_weight))

    def per_unit(self, warp: Expr, sixteen: Expr, column: Expr, row: Expr) -> Expr:
        """As W4A16Script's."""
        per = 1 / self.operand.unit
        return if_then_else(column < 8, float32(per), float32(per / self.operand.upper_weight))

    def columns(self, shared: SharedTensor) -> RegisterTensor:
        """fp32 [warps, block_n / 16, 16, 1]: one number a column and warp, from shared memory."""
        values = self.load_shared(shared)
        self.annotate_layout(values, self.columns_layout)
        return self.cast(self.view(values, layout=self.columns_sixteens), dtype=float32)

    def copy_groups(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        gs: GlobalTensor,
        gz: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        ss: SharedTensor,
        sz: SharedTensor,
        stage: int32,
        offset_m: int32,
        offset_n: int32,
        step: int32,
        steps: int32,
    ) -> None:
        """A step's groups of K, one for each warp. Commits a copy group; it is empty from `steps` on."""
        if step < steps:
            group: int32 = step * self.num_warps
            self.copy_async(src=gb, dst=sb[stage], offsets=[group, 0, offset_n // TILE, 0])
            self.copy_async(src=ga, dst=sa[stage], offsets=[group, offset_m, 0, 0, 0])
            self.copy_async(src=gs, dst=ss[stage], offsets=[group, offset_n])
            if not self.symmetric:
                self.copy_async(src=gz, dst=sz[stage], offsets=[group, offset_n])
        self.copy_async_commit_group()

    def __call__(
        self,
        a_ptr: void_p,
        tiles_ptr: void_p,
        scales_ptr: void_p,
        minus_zeros_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        all_n_tiles: int32,
        groups: int32,
        stride_am_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
    ):
        block_m, block_n, k_tiles = self.block_m, self.block_n, self.k_tiles
        self.attrs.blocks = [cdiv(n_units * VECTOR, block_n), cdiv(m, block_m)]
        self.attrs.warps = self.num_warps
        offset_n: int32 = self.blockIdx.x * block_n
        offset_m: int32 = self.blockIdx.y * block_m
        n: int32 = n_units * VECTOR
        # Where A and C end for this block: its rows may be fewer than the columns of an mma.
        m_end: int32 = min(m, offset_m + block_m)
        columns: int32 = all_n_tiles * TILE
        stride_am: int32 = stride_am_units * VECTOR
        steps: int32 = cdiv(groups, self.num_warps)

        a_shape = [groups, m_end, k_tiles, TILE // VECTOR, VECTOR]
        a_strides = [k_tiles * TILE, stride_am, TILE, VECTOR, 1]
        ga = self.global_view(a_ptr, dtype=self.dtype, shape=a_shape, strides=a_strides)
        gb = self.global_view(tiles_ptr, dtype=uint8, shape=[groups, k_tiles, all_n_tiles, TILE_BYTES])
        gs = self.global_view(scales_ptr, dtype=self.dtype, shape=[groups, columns])
        sa_shape = [self.num_stages, self.num_warps, block_m, k_tiles, TILE // VECTOR, VECTOR]
        sa = self.shared_tensor(dtype=self.dtype, shape=sa_shape)
        self.annotate_layout(sa, shared_row_major(*sa_shape).apply_swizzle(self.a_swizzle))
        sb_shape = [self.num_stages, self.num_warps, k_tiles, self.n_tiles, TILE_BYTES]
        sb = self.shared_tensor(dtype=uint8, shape=sb_shape)
        self.annotate_layout(sb, shared_row_major(*sb_shape))
        ss = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, self.num_warps, block_n])
        if self.symmetric:
            gz = gs  # never read
            sz = ss
        else:
            gz = self.global_view(minus_zeros_ptr, dtype=self.dtype, shape=[groups, columns])
            sz = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, self.num_warps, block_n])
        for stage in range(self.num_stages - 1):
            self.copy_groups(ga, gb, gs, gz, sa, sb, ss, sz, stage, offset_m, offset_n, stage, steps)

        acc = self.register_tensor(dtype=float32, shape=[self.num_warps, block_n // 16, 16, self.rows], init=0.0)
        self.annotate_layout(acc, self.acc_sixteens)
        ones = self.register_tensor(dtype=self.dtype, shape=[16, self.num_warps * TILE], init=self.operand.unit)
        nibbles = self.register_tensor(dtype=int32, shape=[4], init=lambda pair: pair)
        self.annotate_layout(nibbles, self.nibbles_layout)
        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step in self.range(0, steps, 1):
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()  # all threads see this stage, and have read the one that is loaded next
            ahead: int32 = step + self.num_stages - 1
            self.copy_groups(ga, gb, gs, gz, sa, sb, ss, sz, preload, offset_m, offset_n, ahead, steps)

            product = self.register_tensor(dtype=float32, shape=[self.num_warps, block_n, self.rows], init=0.0)
            row_sums = self.register_tensor(dtype=float32, shape=[self.num_warps, 16, self.rows], init=0.0)
            for i in self.range(k_tiles, unroll="all"):
                a = self.load_shared(sa[current, :, :, i])
                self.annotate_layout(a, self.a_layout)
                a_operand = self.view(a, layout=self.a_operand_layout)
                weight = self.weight_operand(sb[current, :, i], nibbles)
                sliced_dot(self, weight, a_operand, product)
                sliced_dot(self, ones, a_operand, row_sums)
            if self.symmetric:
                minus_zeros = self.register_tensor(
                    dtype=float32,
                    shape=[self.num_warps, block_n // 16, 16, 1],
                    init=self.minus_symmetric_zero,
                )
            else:
                minus_zeros = self.columns(sz[current])
            scales = self.columns(ss[current])
            product_sixteens = self.view(product, layout=self.acc_sixteens)
            row_sums_sixteens = self.view(row_sums, layout=self.sums_sixteens)
            self.assign(acc, acc + (product_sixteens + row_sums_sixteens * minus_zeros) * scales)
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
        self.free_stages(sa, sb, ss, sz)

        per_unit = self.register_tensor(dtype=float32, shape=[self.num_warps, block_n // 16, 16, 1], init=self.per_unit)
        self.annotate_layout(per_unit, self.columns_sixteens)
        self.assign(acc, acc * per_unit)
        total = self.register_tensor(dtype=float32, shape=[block_n, self.rows], init=0.0)
        self.annotate_layout(total, layout_of_total(block_n, self.rows, self.num_warps))
        self.add_warps(total, self.view(acc, layout=self.acc_layout))
        self.store(self.transpose(total), c_ptr, m_end, n, stride_cm_units, stride_cn, offset_m, offset_n)


@lru_cache(maxsize=4096)
def _script(problem: W4A16Matmul, config: W4A16Config, meet: str, vector_c: int) -> W4A16Script | SlicedW4A16:
    script = SlicedW4A16 if meet == SLICED_K else W4A16Script
    fields = {name: value for name, value in vars(config).items() if name != "split_k"}
    dtype = band.TILUS_DTYPE[problem.dtype]
    return script(Build(dtype, problem.group_size, problem.symmetric, meet=meet, vector_c=vector_c, **fields))


def plan(problem: W4A16Matmul, config: W4A16Config, places: W4A16Places, *, variant: str) -> Plan:
    """What a call launches. Raises ValueError for rows that no offset reaches."""
    m, n = problem.out_shape
    launching.check_rows(
        {"a": (m, places.stride_am), "out": (m, places.stride_cm), "out.T": (n, places.stride_cn)},
    )
    if variant == SLICED_K:
        return _sliced_plan(problem, config, places)
    meet = meeting(variant, config)
    meets = meet != "none"
    sums = Slot.SUMS if meet == "atomic" else Slot.SCRATCH
    vector_c = band.vector_c(n, (places.stride_cm, places.stride_cn), places.align_c, problem.dtype.itemsize)
    launch = Launch(
        _script(problem, config, meet, vector_c),
        (
            *(Slot.A, Slot.TILES, Slot.SCALES, None if problem.symmetric else Slot.MINUS_ZEROS, Slot.C),
            *((Slot.COUNTERS, sums) if meets else (None, None)),
            *(m, n // VECTOR, problem.k // TILE, cdiv(n, TILE), problem.groups),
            *(places.stride_am // VECTOR, places.stride_cm // max(vector_c, 1), places.stride_cn),
            *(config.split_k, band_steps(problem.k, config.block_k, config.split_k), Slot.TICKET if meets else 0),
        ),
    )
    return Plan(problem, places, (launch,), **meeting_place(problem, config, meet))


def _sliced_plan(problem: W4A16Matmul, config: W4A16Config, places: W4A16Places) -> Plan:
    """What a call of sliced_k launches."""
    n = problem.n
    vector_c = band.vector_c(n, (places.stride_cm, places.stride_cn), places.align_c, problem.dtype.itemsize)
    launch = Launch(
        _script(problem, config, SLICED_K, vector_c),
        (
            *(Slot.A, Slot.TILES, Slot.SCALES, None if problem.symmetric else Slot.MINUS_ZEROS, Slot.C),
            *(problem.m, n // VECTOR, cdiv(n, TILE), problem.groups),
            *(places.stride_am // VECTOR, places.stride_cm // max(vector_c, 1), places.stride_cn),
        ),
    )
    return Plan(problem, places, (launch,))


@dataclass(frozen=True, eq=False)
class TiledWeight:
    """A weight as `matmul` takes it; `lay_out` makes one, `restore` turns it back into a GPTQWeight.

    tiles        uint8 [K / 32, ceil(N / 32), 512], see common.w4a16.tiles_of
    scales       fp16 or bf16 [K / g, ceil(N / 32) * 32], in the order of _by_lane
    minus_zeros  the same: minus what the zero point is as an operand; None where symmetric
    """

    tiles: Tensor
    scales: Tensor
    minus_zeros: Tensor | None  # apart from the scales, as a layout says which 16 bytes a thread copies
    n: int

    @property
    def k(self) -> int:
        return self.tiles.shape[0] * TILE

    @property
    def group_size(self) -> int:
        return self.k // self.scales.shape[0]

    @property
    def symmetric(self) -> bool:
        return self.minus_zeros is None

    @property
    def parts(self) -> dict[str, Tensor]:
        """As a launch takes them."""
        zeros = {} if self.minus_zeros is None else {"minus_zeros": self.minus_zeros}
        return {"tiles": self.tiles, "scales": self.scales, **zeros}


def _by_lane(columns: Tensor) -> Tensor:
    """[G, N] with the 8 columns of each 32 that a lane holds of C, 2 of each of 4 products, side by side.

    A permutation that is its own inverse.
    """
    return columns.view(len(columns), -1, 4, 4, 2).transpose(2, 3).reshape(columns.shape)


def lay_out(weight: GPTQWeight) -> TiledWeight:
    """Once per weight, when a model is loaded; see common.w4a16.checked for what is accepted and raised."""
    checked(weight)
    scales, minus_zeros = _by_lane(padded(weight.scales)), None
    if not weight.symmetric:
        minus_zeros = _by_lane(minus_operands(padded(weight.zeros()), weight.scales.dtype))
    return TiledWeight(tiles_of(weight), scales, minus_zeros, weight.n)


def restore(weight: TiledWeight) -> GPTQWeight:
    """The inverse of `lay_out`, bit by bit."""
    scales = _by_lane(weight.scales)[:, : weight.n].contiguous()
    zeros = None if weight.symmetric else pack_zeros(zeros_of(_by_lane(weight.minus_zeros))[:, : weight.n])
    return GPTQWeight(pack_rows(q_of(weight.tiles, weight.n)), scales, zeros)


def matmul(
    a: Tensor,
    weight: TiledWeight,
    *,
    out: Tensor | None = None,
    config: W4A16Config | None = None,
    variant: str = "last_arriver",
) -> Tensor:
    """C [M, N] = a [M, K] @ weight, see common.w4a16.w4a16_problem for what is accepted and raised.

    weight: as `lay_out` returns it. variant: one of VARIANTS. CPU tensors run in the interpreter.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on, and for
    a problem that the variant does not support.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, weight, out, config, TiledWeight)


def build(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache; tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


def arguments(problem: W4A16Matmul, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a benchmark launches `matmul` with: the weight is laid out ahead of the calls."""
    return (inputs.a, lay_out(inputs.weight)), {}


KERNELS = tuple(
    Kernel(
        name="w4a16",
        variant=variant,
        language=Language.TILUS,
        protocol=PROTOCOLS[variant],
        launch=partial(matmul, variant=variant),
        config_type=W4A16Config,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=PROTOCOLS[variant] is not Protocol.ATOMIC,
        roundings=lambda config: 1,
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
        op=W4A16Matmul.op,
        arguments=arguments,
        on_request=variant == SLICED_K,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
