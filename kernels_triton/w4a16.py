"""A half-precision activation times a weight of four bits, packed as GPTQ packs it, dequantized on the way.

    C[m, n] = sum over groups g of scales[g, n] * sum over k in g of A[m, k] * (q[k, n] - zeros[g, n])

q - zeros is a small integer, exact in half precision, so that the inner sum is a product of the tensor cores; the scale
is applied to it, once per group and element of C, in fp32.

Grid         (tiles of C in group-major order, split_k); a split walks a band of K, or every split_k-th step of it
Who sums     a program its steps; the variants differ in how the splits meet
Variants     data_parallel: one program walks all of K
             atomic: fp32 atomics into one workspace, finished by the last to arrive (as kernels_triton/atomic.py)
             atomic_in_place: atomics in C's dtype into C, which is zeroed first: as in the source
             last_arriver: fp32 partials, summed in split order by the last to arrive (as last_arriver.py)
             semaphore: the splits take turns, adding to an fp32 workspace (as semaphore.py)
Deterministic data_parallel, last_arriver and semaphore, yes; the atomics, no
Workspace    none; or 4 bytes an element of C (atomic, semaphore), or that times split_k (last_arriver), and one int32 a
             tile
Launches     1; atomic_in_place 2, the first of them zeroes C

How a weight costs little more than one instruction:
- A pair of nibbles becomes a pair of half-precision numbers in the mantissa of 1024 (fp16) or 128 (bf16): and, or, in
  one `lop3`; a packed add takes that offset away, and the zero point with it.
- That pair is nibbles j and j + 4 of a word, the two that lie 16 bits apart. So the product walks K in another order
  than memory, j slowest; A's tile is permuted the same way, by a choice of registers.
- It walks N in another order too: a thread holds eight neighbouring columns, so that the word with their zero points
  is one register, and its loads are 16 bytes wide. C's tile is permuted back at the end.
Words, zero points, A and scales reach registers in these layouts from shared memory, as nothing between their loads and
the product moves data between threads; Triton takes the conversion back over all of it. It takes tiles at least
64 columns wide for each warp.

Source: "Accelerating a Triton Fused Kernel for W4A16 Quantized Inference with SplitK Work Decomposition" (arXiv
2402.00025), for the packing, the splits and the atomics; there weights are dequantized one by one, scales applied to
each, and nothing is masked. The mantissa trick: "Who Says Elephants Can't Run" (arXiv 2211.10017), as in Marlin.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from common import tuned, workspace
from common.kernel import Kernel, Language
from common.protocol import Protocol
from common.quantization import PACKED, GPTQWeight
from common.w4a16 import (
    W4A16Config,
    W4A16Matmul,
    checked,
    meeting,
    space,
    sums_shape,
    supports_config,
    w4a16_problem,
    with_default_split,
)
from kernels_triton.arrival import announce, is_last, reset, sum_in_order, tiles_in_flight
from kernels_triton.band import SHARED_MEMORY_LIMIT, grid, starter, tile_of

VARIANTS = ("data_parallel", "atomic", "atomic_in_place", "last_arriver", "semaphore")
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
GROUP_M = 8

# (block_m, block_n, block_k, num_warps, num_stages); the last is that of the source.
TILES = [
    *[(16, 64, 128, 1, stages) for stages in (3, 4, 6)],
    *[(16, 128, 128, 2, stages) for stages in (3, 4, 5)],
    *[(16, 256, 128, 4, stages) for stages in (3, 4)],
    *[(16, 64, 64, 1, 6), (16, 128, 64, 2, 6), (16, 64, 32, 1, 8), (16, 128, 32, 2, 8)],
    *[(32, 128, 64, 2, 4), (32, 128, 64, 2, 5), (32, 256, 64, 4, 4), (32, 128, 32, 2, 6)],
    *[(64, 128, 64, 4, 4), (64, 128, 64, 4, 6), (64, 128, 32, 4, 6)],
    (16, 32, 128, 4, 3),
]


def configs(problem: W4A16Matmul, *, variant: str) -> list[W4A16Config]:
    return space(TILES, problem, partial(supports, variant=variant))


def default_config(problem: W4A16Matmul, *, variant: str) -> W4A16Config:
    """A warp for every 64 columns; see common.w4a16.with_default_split."""
    if problem.m <= 16:
        block_m, block_n, num_warps = (16, 64, 1) if problem.n <= 4096 else (16, 128, 2)
    else:
        block_m, block_n, num_warps = (32, 128, 2) if problem.m <= 32 else (64, 128, 4)
    block_k = min(128 if block_m == 16 else 64, problem.group_size)
    return with_default_split((block_m, block_n, block_k, num_warps, 4), problem, variant)


def supports(problem: W4A16Matmul, config: W4A16Config | None = None, *, variant: str) -> str | None:
    """Any problem, but for atomic_in_place, which is of fp16; a config must fit shared memory and Triton's powers of
    two, and block_k divide the group size."""
    if variant == "atomic_in_place" and problem.dtype is not torch.float16:
        return "adds in C's dtype as the source does, in fp16"
    if config is None:
        return None
    blocks = (config.block_m, config.block_n, config.block_k)
    if any(block < 16 or block & (block - 1) for block in blocks) or config.block_k < 32:
        return f"blocks {blocks} are not powers of two, 16 or more, block_k 32 or more"
    return supports_config(problem, config, variant, SHARED_MEMORY_LIMIT)


_CONSTRAINTS = tl.constexpr("=h,=h,r,r")
# A pair of nibbles of a word, $2, to ($0, $1), minus the zero point: $3 holds, twice, minus the offset and the zero
# point. fp16 reaches the upper nibble of a byte as 1024 + 16 q, without a shift.
_FP16_LOWER = tl.constexpr(
    "{ .reg .b32 q; lop3.b32 q, $2, 0x000F000F, 0x64006400, 0xEA; add.rn.f16x2 q, q, $3; mov.b32 {$0, $1}, q; }"
)
_FP16_UPPER = tl.constexpr(
    "{ .reg .b32 q, by; mov.b32 by, 0x2C002C00; lop3.b32 q, $2, 0x00F000F0, 0x64006400, 0xEA; "
    "fma.rn.f16x2 q, q, by, $3; mov.b32 {$0, $1}, q; }"
)
_BF16_LOWER = tl.constexpr(
    "{ .reg .b32 q, one; mov.b32 one, 0x3F803F80; lop3.b32 q, $2, 0x000F000F, 0x43004300, 0xEA; "
    "fma.rn.bf16x2 q, q, one, $3; mov.b32 {$0, $1}, q; }"
)


@triton.jit
def _minus_zero(words, zeros, J: tl.constexpr, DTYPE: tl.constexpr):
    """DTYPE [..., 2], exact: nibbles J and J + 4 of int32 words, less int32 zeros, which broadcast to them."""
    if INTERPRETED:  # has no inline assembly
        low = (((words >> (4 * J)) & 0xF) - zeros).to(DTYPE)
        high = (((words >> (4 * J + 16)) & 0xF) - zeros).to(DTYPE)
    elif DTYPE.is_bf16():
        minus = zeros * 0x00010001 - 0x3CFF3D00  # the bits of -(128 + zero), twice
        pairs = [words >> (4 * J), minus]
        low, high = tl.inline_asm_elementwise(_BF16_LOWER, _CONSTRAINTS, pairs, (tl.bfloat16, tl.bfloat16), True, 1)
    elif J % 2 == 0:
        minus = zeros * 0x00010001 - 0x1BFF1C00  # of -(1024 + zero)
        pairs = [words >> (4 * J), minus]
        low, high = tl.inline_asm_elementwise(_FP16_LOWER, _CONSTRAINTS, pairs, (tl.float16, tl.float16), True, 1)
    else:
        minus = zeros * 0x00100010 - 0x2BFF2C00  # of -(64 + zero)
        pairs = [words >> (4 * J - 4), minus]
        low, high = tl.inline_asm_elementwise(_FP16_UPPER, _CONSTRAINTS, pairs, (tl.float16, tl.float16), True, 1)
    return tl.join(low, high)


@triton.jit
def _neighbours_last(x):
    """[R, N] with eight neighbouring columns N / 8 apart: column 8 c + i comes to i * N / 8 + c."""
    return x.reshape(x.shape[0], x.shape[1] // 8, 8).permute(0, 2, 1).reshape(x.shape[0], x.shape[1])


@triton.jit
def _neighbours_back(x):
    """What _neighbours_last does, undone."""
    return x.reshape(x.shape[0], 8, x.shape[1] // 8).permute(0, 2, 1).reshape(x.shape[0], x.shape[1])


@triton.jit
def _nibbles_last(words):
    """[N / 8] int32 to its nibbles [N], in the order of _neighbours_last."""
    by_16 = tl.join(words, words >> 16)
    by_8 = tl.join(by_16, by_16 >> 8)
    by_4 = tl.join(by_8, by_8 >> 4)  # [N / 8, 2, 2, 2]: nibble 4 i + 2 j + l at [:, i, j, l]
    return by_4.permute(1, 2, 3, 0).reshape(8 * words.shape[0]) & 0xF


@triton.jit
def _split_product(
    a_ptr,
    qweight_ptr,
    scales_ptr,
    qzeros_ptr,
    m,
    n,
    k,
    stride_am,
    pid_m,
    pid_n,
    split,
    split_k,
    GROUP_SIZE: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N] over the steps of `split`, its columns as _neighbours_last orders them."""
    WORDS: tl.constexpr = BLOCK_K // 8
    DTYPE: tl.constexpr = a_ptr.dtype.element_ty
    steps = k // BLOCK_K
    if INTERLEAVED:
        begin, end, stride = split, steps, split_k
    else:
        band = tl.cdiv(steps, split_k)
        begin, end, stride = split * band, min(split * band + band, steps), 1
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_z = pid_n * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + tl.arange(0, BLOCK_K)[None, :]
    word_ptrs = qweight_ptr + tl.arange(0, WORDS)[:, None].to(tl.int64) * n + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # With num_stages told here, loads that the product does not depend on are pipelined too.
    for step in tl.range(begin, end, stride, num_stages=NUM_STAGES):
        group = tl.cast(step * BLOCK_K // GROUP_SIZE, tl.int64)
        a = tl.load(a_ptrs + step * BLOCK_K, mask=offs_m[:, None] < m, other=0.0)
        words = tl.load(word_ptrs + tl.cast(step, tl.int64) * WORDS * n, mask=offs_n[None, :] < n, other=0)
        scales = tl.load(scales_ptr + group * n + offs_n[None, :], mask=offs_n[None, :] < n, other=0.0)
        words = _neighbours_last(words)
        if SYMMETRIC:
            zeros = tl.full((1, BLOCK_N), 8, tl.int32)
        else:
            zero_words = tl.load(qzeros_ptr + group * (n // 8) + offs_z, mask=offs_z < n // 8, other=0)
            zeros = (_nibbles_last(zero_words) + 1)[None, :]
        # k = 8 w + 4 h + 2 i + j  ->  [i, j, w, h]
        by_i_0 = tl.join(_minus_zero(words, zeros, 0, DTYPE), _minus_zero(words, zeros, 2, DTYPE))
        by_i_1 = tl.join(_minus_zero(words, zeros, 1, DTYPE), _minus_zero(words, zeros, 3, DTYPE))
        b = tl.join(by_i_0, by_i_1).permute(3, 4, 0, 2, 1).reshape(BLOCK_K, BLOCK_N)
        a = a.reshape(BLOCK_M, WORDS, 2, 2, 2).permute(0, 3, 4, 1, 2).reshape(BLOCK_M, BLOCK_K)
        acc += tl.dot(a, b) * _neighbours_last(scales).to(tl.float32)
    return acc


@triton.jit(do_not_specialize=["m", "split_k", "ticket"])
def _w4a16_kernel(
    a_ptr,
    qweight_ptr,
    scales_ptr,
    qzeros_ptr,
    c_ptr,
    counters_ptr,
    sums_ptr,
    m,
    n_words,
    k,
    stride_am,
    stride_cm,
    stride_cn,
    split_k,
    ticket,
    GROUP_SIZE: tl.constexpr,
    SYMMETRIC: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    MEET: tl.constexpr,
    TILES: tl.constexpr,
):
    COUNTED: tl.constexpr = MEET == "atomic" or MEET == "last_arriver"
    if COUNTED:
        counter_ptr = counters_ptr + tl.program_id(0)
        announce(counter_ptr, ticket)
    n = n_words * 8  # so that rows are known to be aligned
    split = tl.program_id(1)
    pid_m, pid_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    # fmt: off
    acc = _split_product(
        a_ptr, qweight_ptr, scales_ptr, qzeros_ptr, m, n, k, stride_am, pid_m, pid_n, split, split_k,
        GROUP_SIZE, SYMMETRIC, INTERLEAVED, BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES,
    )
    # fmt: on
    acc = _neighbours_back(acc)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    offs_sums = offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
    if MEET == "none":
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
    elif MEET == "atomic_in_place":
        tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask, sem="relaxed", scope="gpu")
    elif MEET == "atomic":
        sums_ptrs = sums_ptr + offs_sums
        tl.atomic_add(sums_ptrs, acc, mask=mask, sem="relaxed", scope="gpu")
        if is_last(counter_ptr, ticket, split_k):
            acc = tl.load(sums_ptrs, mask=mask, other=0.0, cache_modifier=".cg")
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
            tl.debug_barrier()  # an element may be loaded by one thread and zeroed by another
            tl.store(sums_ptrs, tl.zeros_like(acc), mask=mask)
            reset(counter_ptr)
    elif MEET == "last_arriver":
        partial_ptrs = sums_ptr + offs_sums  # of split 0
        elements = tl.cast(m, tl.int64) * n
        tl.store(partial_ptrs + split * elements, acc, mask=mask)
        if is_last(counter_ptr, ticket, split_k):
            acc = sum_in_order(partial_ptrs, elements, split_k, mask, TILES)
            tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
            reset(counter_ptr)
    else:
        tl.static_assert(MEET == "semaphore")
        running_ptrs = sums_ptr + offs_sums
        semaphore_ptr = counters_ptr + tl.program_id(0)
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
            tl.debug_barrier()
            tl.atomic_xchg(semaphore_ptr, 0, sem="release", scope="gpu")


def lay_out(weight: GPTQWeight) -> GPTQWeight:
    """The weight as `matmul` takes it: as GPTQ packs it, checked by common.w4a16.checked, which says what it raises."""
    return checked(weight)


def _launch(
    problem: W4A16Matmul,
    config: W4A16Config,
    meet: str,
    tensors: tuple[Any, ...],
    strides,
    ticket: int,
    start: Callable,
) -> None:
    """tensors: a, qweight, scales, qzeros, out, counters, sums; strides: of a's rows, and of out."""
    start(
        _w4a16_kernel,
        grid(problem, config),
        *tensors,
        *(problem.m, problem.n // PACKED, problem.k, *strides, config.split_k, ticket),
        GROUP_SIZE=problem.group_size,
        SYMMETRIC=problem.symmetric,
        INTERLEAVED=config.interleaved,
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        GROUP_M=GROUP_M,
        NUM_STAGES=config.num_stages,
        MEET=meet,
        TILES=tiles_in_flight(config),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )


def matmul(
    a: Tensor,
    weight: GPTQWeight,
    *,
    out: Tensor | None = None,
    config: W4A16Config | None = None,
    variant: str = "last_arriver",
) -> Tensor:
    """C [M, N] = a [M, K] @ weight, see common.w4a16.w4a16_problem for what is accepted and raised.

    weight: as `lay_out` gives it. variant: one of VARIANTS.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on, and for
    a problem outside of `supports`.
    """
    problem = w4a16_problem(a, weight, out, GPTQWeight)
    if reason := supports(problem, config, variant=variant):
        raise ValueError(f"config is {config}; {reason}" if config else reason)
    if config is None:
        config, _ = tuned.pick(_BY_VARIANT[variant], problem, tuned.slug_of(a.device))
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.dtype, device=a.device)
    meet = meeting(variant, config)
    counters, sums, ticket = None, None, 0
    if meet == "atomic_in_place":
        out.zero_()
    elif meet != "none":
        tiles, _ = grid(problem, config)
        ticket = workspace.next_ticket()
        if meet == "atomic":
            counters, sums = workspace.counters_and_sums(tiles, problem.m * problem.n, a.device)
        else:
            counters = workspace.semaphores(tiles, a.device)
            sums = torch.empty(sums_shape(problem, config, meet), dtype=torch.float32, device=a.device)
    tensors = a, weight.qweight, weight.scales, weight.qzeros, out, counters, sums
    _launch(problem, config, meet, tensors, (a.stride(0), *out.stride()), ticket, starter(warmup=False))
    return out


def build(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    meet = meeting(variant, config)
    counters, sums = (None, None) if meet in ("none", "atomic_in_place") else (torch.int32, torch.float32)
    qzeros = None if problem.symmetric else torch.int32
    tensors = problem.dtype, torch.int32, problem.dtype, qzeros, problem.dtype, counters, sums
    _launch(problem, config, meet, tensors, (problem.k, problem.n, 1), 0, starter(warmup=True))


def workspace_bytes(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> int:
    meet = meeting(variant, config)
    if meet in ("none", "atomic_in_place"):
        return 0
    return 4 * grid(problem, config)[0] + 4 * prod(sums_shape(problem, config, meet))


PROTOCOLS = {
    "data_parallel": Protocol.NONE,
    "atomic": Protocol.ATOMIC,
    "atomic_in_place": Protocol.ATOMIC,
    "last_arriver": Protocol.LAST_ARRIVER,
    "semaphore": Protocol.SERIAL,
}

KERNELS = tuple(
    Kernel(
        name="w4a16",
        variant=variant,
        language=Language.TRITON,
        protocol=PROTOCOLS[variant],
        launch=partial(matmul, variant=variant),
        config_type=W4A16Config,
        configs=partial(configs, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=PROTOCOLS[variant] is not Protocol.ATOMIC,
        roundings=(lambda config: config.split_k) if variant == "atomic_in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        launches=2 if variant == "atomic_in_place" else 1,
        op=W4A16Matmul.op,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
