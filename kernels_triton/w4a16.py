"""A half-precision activation times a weight of 4 bits, laid out once as the tensor cores take it.

    C[m, n] = sum over groups g of scales[g, n] * sum over k in g of A[m, k] * (q[k, n] - zeros[g, n])

The inner sum is a product of the tensor cores; scale and zero point are applied to it, once per group and element of C,
in fp32:

    sum over k in g of A[m, k] * (q[k, n] - zeros[g, n]) = (A @ q)[m, n] - zeros[g, n] * (sum over k in g of A[m, k])

Grid         (tiles of M, tiles of N, split_k); a split walks a band of K, or every split_k-th step of it. sliced_k:
             (tiles of N, tiles of M)
Who sums     a program its steps; the variants differ in how the splits meet
Variants     data_parallel: one program walks all of K
             atomic: fp32 atomics into one workspace, finished by the last to arrive (as kernels_triton/atomic.py)
             atomic_in_place: atomics in C's dtype into C, which is zeroed first: as in the source
             last_arriver: fp32 partials, summed in split order by the last to arrive (as last_arriver.py)
             semaphore: the splits take turns, adding to an fp32 workspace (as semaphore.py)
             sliced_k: no split; the warps of a program share K, a group each in a step, and meet in shared memory (as
             sliced_k.py)
Deterministic all but the atomics
Workspace    none; or 4 bytes an element of C (atomic, semaphore), or that times split_k (last_arriver), and one int32 a
             tile
Launches     1; atomic_in_place 2, the first of them zeroes C

How a weight costs less than one instruction:
- No arithmetic turns a q into half precision: as an fp16, its 4 bits are q units of 2^-24, exact in every product. One
  shift and 4 ands turn a word into 8 weights. See common.w4a16.Operand.
- The product is that of the transposes, C^T = weight^T @ A^T. The weight is then the operand that wgmma takes from
  registers, 64 columns of it at a time, and 16 rows of A are the width of a product.
- `lay_out` puts each q where its lane takes it: 16 bytes, one load from shared memory. The reshape and the permute
  that follow move nothing. A test checks that Triton sees this, by the shared memory that the kernel takes.
- Scale and zero point of a column are one int32, as a thread cannot copy fewer than 4 bytes asynchronously.
This takes Hopper, and multiples of 4 warps and of 128 columns. Otherwise Triton multiplies by mma, whose operand it
wants in another order: right, and slow. sliced_k multiplies by mma, and joins the weight in that order.

Source: "Accelerating a Triton Fused Kernel for W4A16 Quantized Inference with SplitK Work Decomposition" (arXiv
2402.00025), for the packing, the splits and the atomics; there weights are dequantized one by one, scales applied to
each, and nothing is masked.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from packaging.version import Version
from torch import Tensor

from triton_vs_tilus.common import w4a16 as shared
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, cdiv, space_of
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import GPTQWeight, pack_rows, pack_zeros
from triton_vs_tilus.common.space import too_many_warps
from triton_vs_tilus.common.w4a16 import (
    PROTOCOLS,
    SLICED_K,
    TILE,
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
    tiles_of,
    zeros_of,
)
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.arrival import announce, is_last, reset, sum_in_order, tiles_in_flight
from triton_vs_tilus.kernels_triton.band import sum_of_parts
from triton_vs_tilus.kernels_triton.configs import SHARED_MEMORY_LIMIT, block_options

# atomic_in_place in Triton alone: the atomics of tiles that tilus has here are of fp32.
VARIANTS = ("data_parallel", "atomic", "atomic_in_place", "last_arriver", "semaphore", SLICED_K)
VECTOR = 8  # half-precision elements of a 16-byte copy
LEAST_COLUMNS = 128  # a wgmma takes the weight from the registers of 4 warps, 32 columns each


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

    Triton's own reasons: atomic_in_place takes fp16 alone; blocks and warps are powers of two.
    """
    config = config or default_config(problem, variant=variant)
    if reason := too_many_warps(config.num_warps):
        return reason
    if variant == "atomic_in_place" and problem.dtype is not torch.float16:
        return "adds in C's dtype as the source does, in fp16"
    blocks = (config.block_m, config.block_n, config.block_k)
    least_m = 1 if variant == SLICED_K else 16
    if any(block & (block - 1) for block in blocks) or blocks[0] < least_m or min(blocks[1:]) < TILE:
        return f"blocks {blocks} are not powers of two, {least_m} or more, block_n and block_k {TILE} or more"
    if config.num_warps & (config.num_warps - 1):
        return f"num_warps is {config.num_warps}; accepted: powers of two"
    if variant == SLICED_K:
        return shared.unsupported_sliced(problem, config, SHARED_MEMORY_LIMIT, _sliced_rows(config.block_m))
    return shared.unsupported(problem, config, variant, SHARED_MEMORY_LIMIT)


def _sliced_rows(block_m: int) -> int:
    """Of A in shared memory, in sliced_k. Triton swizzles 8 rows or more; 4 would lie in the same banks, so 4 rows of
    zeros, which are not read, fill up 8. 2 rows cost no more as they are than filled up."""
    return 8 if block_m == 4 else block_m


def workspace_bytes(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> int:
    """Bytes of the fp32 sums and of the counters."""
    return 0 if variant == SLICED_K else shared.workspace_bytes(problem, config, variant)


# Triton alone: words, and a column's scale and zero point, are loaded as one number.
READ_AS = {Slot.TILES: torch.int32, Slot.SCALES: torch.int32}
_INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
# Along K, of an operand of mma: as many as fill a register, and twice as many in a Triton before 3.8, which has a lane
# hold so many of whatever is joined from parts (triton-lang/triton#10645).
_NEIGHBOURS = tl.constexpr(4 if Version(triton.__version__) < Version("3.8") else 2)
# Two nibbles of a word, $2, that are 16 bits apart, to ($0, $1), as operands; see common.w4a16.Operand.
_LOWER = tl.constexpr("{ .reg .b32 q; and.b32 q, $2, 0x000F000F; mov.b32 {$0, $1}, q; }")
_UPPER = tl.constexpr("{ .reg .b32 q; and.b32 q, $2, 0x00F000F0; mov.b32 {$0, $1}, q; }")
_BF16 = tl.constexpr("{ .reg .b32 q; lop3.b32 q, $2, 0x000F000F, 0x43004300, 0xEA; mov.b32 {$0, $1}, q; }")


@triton.jit
def _pair_of(words, BYTE: tl.constexpr, UPPER: tl.constexpr, DTYPE: tl.constexpr):
    """DTYPE [..., 2]: the lower or UPPER nibbles of bytes BYTE and BYTE + 2 of int32 words, as operands."""
    if _INTERPRETED:  # has no inline assembly
        shift: tl.constexpr = 8 * BYTE + 4 * UPPER
        unit: tl.constexpr = 1.0 if DTYPE.is_bf16() else 2.0 ** (4 * UPPER - 24)
        offset: tl.constexpr = 128.0 if DTYPE.is_bf16() else 0.0
        low = (((words >> shift) & 0xF).to(tl.float32) * unit + offset).to(DTYPE)
        high = (((words >> (shift + 16)) & 0xF).to(tl.float32) * unit + offset).to(DTYPE)
    elif DTYPE.is_bf16():
        shifted = [words >> (8 * BYTE + 4 * UPPER)]
        low, high = tl.inline_asm_elementwise(_BF16, "=h,=h,r", shifted, (tl.bfloat16, tl.bfloat16), True, 1)
    else:
        shifted = [words >> (8 * BYTE)]
        MASK: tl.constexpr = _UPPER if UPPER else _LOWER
        low, high = tl.inline_asm_elementwise(MASK, "=h,=h,r", shifted, (tl.float16, tl.float16), True, 1)
    return tl.join(low, high)


@triton.jit
def _operands_of(words, DTYPE: tl.constexpr):
    """DTYPE [..., 2, 2, 2]: the nibbles of int32 words, as operands, by row, half and width."""
    lower = tl.join(_pair_of(words, 0, 0, DTYPE), _pair_of(words, 1, 0, DTYPE))
    upper = tl.join(_pair_of(words, 0, 1, DTYPE), _pair_of(words, 1, 1, DTYPE))
    return tl.join(lower, upper)


@triton.jit
def _scales_and_minus_zeros(columns, DTYPE: tl.constexpr):
    """fp32, of columns that hold both in an int32 each."""
    scales = columns.to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    minus_zeros = (columns >> 16).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    return scales, minus_zeros


@triton.jit
def _per_unit(BLOCK_N: tl.constexpr, DTYPE: tl.constexpr):
    """[BLOCK_N, 1]: the factor that takes the unit, and the weight of upper nibbles, out of the sum."""
    UNIT: tl.constexpr = 1.0 if DTYPE.is_bf16() else 2.0**-24
    UPPER_WEIGHT: tl.constexpr = 1.0 if DTYPE.is_bf16() else 16.0
    upper = (tl.arange(0, BLOCK_N)[:, None] // 8) % 2 == 1
    return tl.where(upper, 1 / (UNIT * UPPER_WEIGHT), 1 / UNIT)


@triton.jit
def _sixteens_apart(x):
    """[N, M] with the two sixteens of each 32 rows N / 2 apart."""
    return x.reshape(x.shape[0] // 32, 2, 16, x.shape[1]).permute(1, 0, 2, 3).reshape(x.shape[0], x.shape[1])


@triton.jit
def _sixteens_back(x):
    """The inverse of _sixteens_apart."""
    return x.reshape(2, x.shape[0] // 32, 16, x.shape[1]).permute(1, 0, 2, 3).reshape(x.shape[0], x.shape[1])


@triton.jit
def _split_product(
    a_ptr,
    tiles_ptr,
    columns_ptr,
    m,
    n,
    stride_am,
    pid_m,
    pid_n,
    begin,
    end,
    stride,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N]: the tile of A @ weight over the steps begin, begin + stride, ... before end."""
    DTYPE: tl.constexpr = a_ptr.dtype.element_ty
    K_TILES: tl.constexpr = BLOCK_K // 32
    N_TILES: tl.constexpr = BLOCK_N // 32
    UNIT: tl.constexpr = 1.0 if DTYPE.is_bf16() else 2.0**-24
    columns = tl.cdiv(n, 32) * 32
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_w = pid_n * BLOCK_N * 4 + tl.arange(0, BLOCK_N * 4)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + tl.arange(0, BLOCK_K)[None, :]
    word_ptrs = tiles_ptr + tl.arange(0, K_TILES)[:, None].to(tl.int64) * (columns * 4) + offs_w[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    # With num_stages named here, Triton also pipelines loads that the product does not depend on.
    for step in tl.range(begin, end, stride, num_stages=NUM_STAGES):
        group = tl.cast(step * BLOCK_K // GROUP_SIZE, tl.int64)
        step_words = word_ptrs + tl.cast(step, tl.int64) * (K_TILES * 4) * columns
        words = tl.load(step_words, mask=offs_w[None, :] < columns * 4, other=0)
        a = tl.load(a_ptrs + step * BLOCK_K, mask=offs_m[:, None] < m, other=0.0)
        column = tl.load(columns_ptr + group * columns + offs_n[:, None], mask=offs_n[:, None] < columns, other=0)
        words = words.reshape(K_TILES, N_TILES, 8, 4, 2, 2)  # k_tile, n_tile, lane_n, lane_k, depth, widths
        b = _operands_of(words, DTYPE)  # and row, half, width
        b = b.permute(5, 1, 8, 2, 0, 4, 7, 3, 6).reshape(BLOCK_N, BLOCK_K)
        column = _sixteens_apart(column)
        scales, minus_zeros = _scales_and_minus_zeros(column, DTYPE)
        row_sums = tl.sum(a.to(tl.float32), axis=1) * UNIT
        acc += (tl.dot(b, tl.trans(a)) + row_sums[None, :] * minus_zeros) * scales
    return tl.trans(_sixteens_back(acc * _per_unit(BLOCK_N, DTYPE)))


@triton.jit(do_not_specialize=["m", "split_k", "band_steps", "ticket"])
def _w4a16_kernel(
    a_ptr,
    tiles_ptr,
    columns_ptr,
    c_ptr,
    counters_ptr,
    sums_ptr,
    m,
    n_units,
    k,
    stride_am_units,
    stride_cm,
    stride_cn,
    split_k,
    band_steps,
    ticket,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    MEET: tl.constexpr,
    TILES: tl.constexpr,
):
    n, stride_am = n_units * 8, stride_am_units * 8  # so that rows are known to be aligned
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    split = tl.program_id(2)
    tile = pid_n * tl.num_programs(0) + pid_m
    COUNTED: tl.constexpr = MEET == "atomic" or MEET == "last_arriver"
    if COUNTED:
        announce(counters_ptr + tile, ticket)

    steps = k // BLOCK_K
    if INTERLEAVED:
        begin, end, stride = split, steps, split_k
    else:
        begin, end, stride = split * band_steps, min(split * band_steps + band_steps, steps), 1
    # fmt: off
    acc = _split_product(
        a_ptr, tiles_ptr, columns_ptr, m, n, stride_am, pid_m, pid_n, begin, end, stride,
        GROUP_SIZE, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )
    # fmt: on
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    offs_sums = offs_m[:, None].to(tl.int64) * n + offs_n[None, :]

    if MEET == "none":
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
    elif MEET == "atomic":
        sums_ptrs = sums_ptr + offs_sums
        tl.atomic_add(sums_ptrs, acc, mask=mask, sem="relaxed", scope="gpu")
        if is_last(counters_ptr + tile, ticket, split_k):
            total = tl.load(sums_ptrs, mask=mask, other=0.0, cache_modifier=".cg")
            tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=mask)
            tl.debug_barrier()  # an element may be loaded by one thread and zeroed by another
            tl.store(sums_ptrs, tl.zeros_like(total), mask=mask)
            reset(counters_ptr + tile)
    elif MEET == "atomic_in_place":
        tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask, sem="relaxed", scope="gpu")
    elif MEET == "last_arriver":
        partial_ptrs = sums_ptr + offs_sums  # of split 0
        elements = tl.cast(m, tl.int64) * n
        tl.store(partial_ptrs + split * elements, acc, mask=mask)
        if is_last(counters_ptr + tile, ticket, split_k):
            total = sum_in_order(partial_ptrs, elements, split_k, mask, TILES)
            tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=mask)
            reset(counters_ptr + tile)
    else:
        tl.static_assert(MEET == "semaphore")
        running_ptrs = sums_ptr + offs_sums
        semaphore_ptr = counters_ptr + tile
        if split > 0:
            turn = ticket + split
            while tl.atomic_cas(semaphore_ptr, turn, turn, sem="acquire", scope="gpu") != turn:
                pass
            acc += tl.load(running_ptrs, mask=mask, other=0.0, cache_modifier=".cg")
        if split + 1 < split_k:
            tl.store(running_ptrs, acc, mask=mask)
            tl.debug_barrier()  # every thread's store comes before the one thread that hands over
            tl.atomic_xchg(semaphore_ptr, ticket + split + 1, sem="release", scope="gpu")
        else:
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
            reset(semaphore_ptr)


@triton.jit(do_not_specialize=["m"])
def _w4a16_sliced_k_kernel(
    a_ptr,
    tiles_ptr,
    columns_ptr,
    c_ptr,
    m,
    n_units,
    k,
    stride_am_units,
    stride_cm,
    stride_cn,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    DTYPE: tl.constexpr = a_ptr.dtype.element_ty
    K_TILES: tl.constexpr = GROUP_SIZE // 32
    N_TILES: tl.constexpr = BLOCK_N // 32
    SIXTEENS: tl.constexpr = BLOCK_N // 16
    UNIT: tl.constexpr = 1.0 if DTYPE.is_bf16() else 2.0**-24
    n, stride_am = n_units * 8, stride_am_units * 8  # so that rows are known to be aligned
    columns = tl.cdiv(n, 32) * 32
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, ROWS)
    m_end = min(m, tl.program_id(1) * BLOCK_M + BLOCK_M)  # of this program: its tile may have fewer than ROWS
    offs_w = tl.program_id(0) * BLOCK_N * 4 + tl.arange(0, BLOCK_N * 4)
    warps = tl.arange(0, SPLIT_K)  # each with a group of the step
    # As in band.batched_product: a row's groups are not to lie side by side in shared memory.
    of_warp = tl.max_contiguous(warps[:, None, None] * GROUP_SIZE, (min(SPLIT_K, 2), 1, 1))
    # As [warp, K, row], not transposed later: Triton 3.8 would do that in shared memory, for one of the two products.
    a_ptrs = a_ptr + offs_m[None, None, :].to(tl.int64) * stride_am + of_warp + tl.arange(0, GROUP_SIZE)[None, :, None]
    k_tiles = tl.arange(0, K_TILES)[:, None, None] + warps[None, :, None] * K_TILES
    word_ptrs = tiles_ptr + k_tiles.to(tl.int64) * (columns * 4) + offs_w[None, None, :]
    column_ptrs = columns_ptr + warps[:, None, None].to(tl.int64) * columns + offs_n[None, :, None]
    a_mask = (offs_m < m_end)[None, None, :]
    word_mask = (offs_w < columns * 4)[None, None, :]
    column_mask = (offs_n < columns)[None, :, None]
    ones = tl.full((SPLIT_K, 16, GROUP_SIZE), UNIT, tl.float32).to(DTYPE)
    acc = tl.zeros((SPLIT_K, SIXTEENS, 16, ROWS), dtype=tl.float32)
    for group in tl.range(0, k // GROUP_SIZE, SPLIT_K, num_stages=NUM_STAGES):
        step = tl.cast(group, tl.int64)
        if EVEN_K:
            words = tl.load(word_ptrs + step * K_TILES * columns * 4, mask=word_mask, other=0)
            a = tl.load(a_ptrs + group * GROUP_SIZE, mask=a_mask, other=0.0)
            column = tl.load(column_ptrs + step * columns, mask=column_mask, other=0)
        else:
            in_k = group + warps < k // GROUP_SIZE
            words = tl.load(word_ptrs + step * K_TILES * columns * 4, mask=word_mask & in_k[None, :, None], other=0)
            a = tl.load(a_ptrs + group * GROUP_SIZE, mask=a_mask & in_k[:, None, None], other=0.0)
            column = tl.load(column_ptrs + step * columns, mask=column_mask & in_k[:, None, None], other=0)
        # k_tile, warp, n_tile, lane_n, lane_k, depth, widths; and row, half, width
        words = words.reshape(K_TILES, SPLIT_K, N_TILES, 8, 4, 2, 2)
        b = _operands_of(words, DTYPE)
        if _NEIGHBOURS == 4:  # those of both halves of a depth, which a lane has here; in A too
            b = b.permute(1, 2, 6, 9, 3, 0, 5, 4, 8, 7)
            a_halves = a.reshape(SPLIT_K, 2 * K_TILES, 2, 4, 2, ROWS).permute(0, 1, 3, 2, 4, 5)
            a_of_b = a_halves.reshape(SPLIT_K, GROUP_SIZE, ROWS)
        else:
            b = b.permute(1, 2, 6, 9, 3, 0, 5, 8, 4, 7)
            a_of_b = a
        b = b.reshape(SPLIT_K, BLOCK_N, GROUP_SIZE)
        product = tl.dot(b, a_of_b)
        row_sums = tl.dot(ones, a)  # 16 times over, which is what a lane wants
        column = column.reshape(SPLIT_K, SIXTEENS, 16, 1)
        scales, minus_zeros = _scales_and_minus_zeros(column, DTYPE)
        acc += (product.reshape(SPLIT_K, SIXTEENS, 16, ROWS) + row_sums[:, None, :, :] * minus_zeros) * scales
    total = sum_of_parts(acc.permute(1, 2, 3, 0), SPLIT_K, (SIXTEENS, 16, ROWS)).reshape(BLOCK_N, ROWS)
    total *= _per_unit(BLOCK_N, DTYPE)
    c_ptrs = c_ptr + offs_m[None, :].to(tl.int64) * stride_cm + offs_n[:, None].to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(offs_m[None, :] < m_end) & (offs_n[:, None] < n))


def plan(problem: W4A16Matmul, config: W4A16Config, places: W4A16Places, *, variant: str) -> Plan:
    """What a call launches."""
    if variant == SLICED_K:
        return _sliced_plan(problem, config, places)
    meet = meeting(variant, config)
    meets = meet not in ("none", "atomic_in_place")
    sums = Slot.SUMS if meet == "atomic" else Slot.SCRATCH
    tiles = cdiv(problem.m, config.block_m), cdiv(problem.n, config.block_n)
    launch = Launch(
        _w4a16_kernel,
        (
            *(Slot.A, Slot.TILES, Slot.SCALES, Slot.C, *((Slot.COUNTERS, sums) if meets else (None, None))),
            *(problem.m, problem.n // VECTOR, problem.k),
            *(places.stride_am // VECTOR, places.stride_cm, places.stride_cn),
            *(config.split_k, band_steps(problem.k, config.block_k, config.split_k), Slot.TICKET if meets else 0),
        ),
        (*tiles, config.split_k),
        {
            "GROUP_SIZE": problem.group_size,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "NUM_STAGES": config.num_stages,
            "INTERLEAVED": config.interleaved,
            "MEET": meet,
            "TILES": tiles_in_flight(config),
            **block_options(config.num_warps),
            "num_stages": config.num_stages,
        },
    )
    zeroed = meet == "atomic_in_place"
    return Plan(problem, places, (launch,), **meeting_place(problem, config, meet), read_as=READ_AS, zeroed=zeroed)


def _sliced_plan(problem: W4A16Matmul, config: W4A16Config, places: W4A16Places) -> Plan:
    """What a call of sliced_k launches."""
    launch = Launch(
        _w4a16_sliced_k_kernel,
        (
            *(Slot.A, Slot.TILES, Slot.SCALES, Slot.C),
            *(problem.m, problem.n // VECTOR, problem.k),
            *(places.stride_am // VECTOR, places.stride_cm, places.stride_cn),
        ),
        (cdiv(problem.n, config.block_n), cdiv(problem.m, config.block_m)),
        {
            "GROUP_SIZE": problem.group_size,
            "BLOCK_M": config.block_m,
            "ROWS": _sliced_rows(config.block_m),
            "BLOCK_N": config.block_n,
            "NUM_STAGES": config.num_stages,
            "SPLIT_K": config.split_k,
            "EVEN_K": problem.k % config.block_k == 0,
            **block_options(config.num_warps),
            "num_stages": config.num_stages,
        },
    )
    return Plan(problem, places, (launch,), read_as=READ_AS)


@dataclass(frozen=True, eq=False)
class TiledWeight:
    """A weight as `matmul` takes it; `lay_out` makes one, `restore` turns it back into a GPTQWeight.

    tiles    uint8 [K / 32, ceil(N / 32), 512], see common.w4a16.tiles_of
    columns  fp16 or bf16 [K / g, ceil(N / 32) * 32, 2]: the scale, and minus what the zero point is as an operand
    """

    tiles: Tensor
    columns: Tensor  # both in one, as fewer than 4 bytes a thread cannot be copied asynchronously
    n: int
    symmetric: bool

    @property
    def k(self) -> int:
        return self.tiles.shape[0] * TILE

    @property
    def group_size(self) -> int:
        return self.k // self.columns.shape[0]

    @property
    def scales(self) -> Tensor:
        return self.columns[..., 0]

    @property
    def parts(self) -> dict[str, Tensor]:
        """As a launch takes them; the zero points are with the scales."""
        return {"tiles": self.tiles, "scales": self.columns}


def lay_out(weight: GPTQWeight) -> TiledWeight:
    """Once per weight, when a model is loaded; see common.w4a16.checked for what is accepted and raised."""
    checked(weight)
    scales, minus_zeros = padded(weight.scales), minus_operands(padded(weight.zeros()), weight.scales.dtype)
    return TiledWeight(tiles_of(weight), torch.stack((scales, minus_zeros), dim=-1), weight.n, weight.symmetric)


def restore(weight: TiledWeight) -> GPTQWeight:
    """The inverse of `lay_out`, bit by bit."""
    scales = weight.scales[:, : weight.n].contiguous()
    zeros = None if weight.symmetric else pack_zeros(zeros_of(weight.columns[..., 1].contiguous())[:, : weight.n])
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
    """Compiles for the current device into Triton's cache; tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


def arguments(problem: W4A16Matmul, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a benchmark launches `matmul` with: the weight is laid out ahead of the calls."""
    return (inputs.a, lay_out(inputs.weight)), {}


KERNELS = tuple(
    Kernel(
        name="w4a16",
        variant=variant,
        language=Language.TRITON,
        protocol=PROTOCOLS[variant],
        launch=partial(matmul, variant=variant),
        config_type=W4A16Config,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=PROTOCOLS[variant] is not Protocol.ATOMIC,
        roundings=(lambda config: config.split_k) if variant == "atomic_in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=2 if variant == "atomic_in_place" else 1,
        op=W4A16Matmul.op,
        arguments=arguments,
        on_request=variant == SLICED_K,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
