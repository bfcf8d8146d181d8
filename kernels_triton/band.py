"""What Triton's band kernels do alike: a program's tile of C, its band of K, the product over it, the end of the tile.

The kernels differ in how the sums of the bands meet; that is what their files hold. Configs are in configs.py. Device
code first, in the order in which a program runs it; then what the host passes to a launch.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_vs_tilus.common.plan import Placement, Slot
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.configs import TMA_ALIGNMENT, BandConfig, block_options


@triton.jit
def place_of(group_m, groups):
    """pid_m, pid_n and split of this program, in the grid of common.kernel.Grid."""
    pid_m = tl.program_id(0)
    split = tl.program_id(2)
    if groups > 1:
        pid_m += split % groups * group_m
        split = split // groups
    return pid_m, tl.program_id(1), split


@triton.jit
def tile_of(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, group_m):
    """pid_m, pid_n of tile `pid` in the order of common.kernel.Grid, without gaps."""
    num_pid_m = tl.cdiv(m, BLOCK_M)
    num_pid_n = tl.cdiv(n, BLOCK_N)
    pid_m, pid_n = pid * 0, pid
    if num_pid_m > 1:  # few rows need no divisions
        first_pid_m = pid // (group_m * num_pid_n) * group_m
        group_rows = min(num_pid_m - first_pid_m, group_m)
        within = pid % (group_m * num_pid_n)
        pid_m = first_pid_m + within % group_rows
        pid_n = within // group_rows
    return pid_m, pid_n


@triton.jit
def in_units(n, k, stride_am, stride_bk, stride_bn, UNITS: tl.constexpr):
    """The five as they are, each a multiple of its unit (`units_of`), as the compiler now sees."""
    n, k = n // UNITS[0] * UNITS[0], k // UNITS[1] * UNITS[1]
    stride_am = stride_am // UNITS[2] * UNITS[2]
    stride_bk, stride_bn = stride_bk // UNITS[3] * UNITS[3], stride_bn // UNITS[4] * UNITS[4]
    return n, k, stride_am, stride_bk, stride_bn


@triton.jit
def band_product(
    a,
    b,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    pid_m,
    pid_n,
    split,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
):
    """`range_product` over band `split`, of `band_steps` steps of BLOCK_K; zero where there is no more K."""
    k_begin = split * band_steps * BLOCK_K
    k_end = min(k_begin + band_steps * BLOCK_K, k)
    # fmt: off
    return range_product(
        a, b, m, n, k_begin, k_end, stride_am, stride_bk, stride_bn, pid_m, pid_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
    )
    # fmt: on


@triton.jit
def range_product(
    a,
    b,
    m,
    n,
    k_begin,
    k_end,
    stride_am,
    stride_bk,
    stride_bn,
    pid_m,
    pid_n,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N]: the tile of A[:, k_begin:k_end] @ B[k_begin:k_end, :], in steps of BLOCK_K; k_begin
    is a multiple of it, and k_end where it is not K. a, b: pointers, or the descriptors of `described`. SLICES: of
    BLOCK_K, one a warp, whose sums meet at the end; 1 where warps share the tile."""
    if SLICES > 1:
        SHARE: tl.constexpr = BLOCK_K // SLICES
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        starts = k_begin + SHARE * tl.arange(0, SLICES)
        # fmt: off
        sums = batched_product(
            a, b, m, n, k_end, stride_am, stride_bk, stride_bn, offs_m, offs_n, starts,
            k_end - k_begin, BLOCK_K, SLICES, SHARE, EVEN_N, EVEN_K, UNITS,
        )
        # fmt: on
        return sum_of_parts(sums.permute(1, 2, 0), SLICES, (BLOCK_M, BLOCK_N))
    n, k_end, stride_am, stride_bk, stride_bn = in_units(n, k_end, stride_am, stride_bk, stride_bn, UNITS)
    if SWAP:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if TMA != "":  # zero beyond the matrix
        for k_start in range(k_begin, k_end, BLOCK_K):
            if TMA == "nk":
                b_stored = b.load([pid_n * BLOCK_N, k_start])
            else:
                b_stored = b.load([k_start, pid_n * BLOCK_N])
            a_tile = a.load([pid_m * BLOCK_M, k_start])
            b_tile = b_stored.T if TMA == "nk" else b_stored
            acc = step_product(a_tile, b_tile, acc, SWAP)
    else:
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        offs_k = tl.arange(0, BLOCK_K)
        a_ptrs = a + offs_m[:, None].to(tl.int64) * stride_am + (k_begin + offs_k)[None, :]
        b_ptrs = b + (k_begin + offs_k)[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
        b_step = tl.full([], BLOCK_K, tl.int64) * stride_bk  # more than int32 holds, where rows of B are far apart
        a_mask = offs_m[:, None] < m
        b_mask = offs_n[None, :] < n
        for k_start in range(k_begin, k_end, BLOCK_K):
            # B first: few rows of A, which all tiles share, are soon in L2.
            if EVEN_K:
                b_tile = tl.load(b_ptrs) if EVEN_N else tl.load(b_ptrs, mask=b_mask, other=0.0)
                a_tile = tl.load(a_ptrs, mask=a_mask, other=0.0)
            else:
                k_mask = k_start + offs_k < k_end
                b_tile = tl.load(b_ptrs, mask=b_mask & k_mask[:, None], other=0.0)
                a_tile = tl.load(a_ptrs, mask=a_mask & k_mask[None, :], other=0.0)
            acc = step_product(a_tile, b_tile, acc, SWAP)
            a_ptrs += BLOCK_K
            b_ptrs += b_step
    return acc.T if SWAP else acc


@triton.jit
def prefetched_product(
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    pid_m,
    pid_n,
    split,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    PDL: tl.constexpr,
):
    """`band_product` by pointers; the first step of B is loaded before the wait for the kernel before, which has
    written A and not B. That step's product comes last, so that the other steps are not loaded after it."""
    k_begin = split * band_steps * BLOCK_K
    k_end = min(k_begin + band_steps * BLOCK_K, k)
    cols, _, row_am, row_bk, row_bn = in_units(n, k_end, stride_am, stride_bk, stride_bn, UNITS)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = k_begin + tl.arange(0, BLOCK_K)
    k_mask = offs_k < k_end
    b_ptrs = b_ptr + offs_k[:, None].to(tl.int64) * row_bk + offs_n[None, :].to(tl.int64) * row_bn
    b_first = tl.load(b_ptrs, mask=k_mask[:, None] & (offs_n[None, :] < cols), other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * row_am + offs_k[None, :]
    a_first = tl.load(a_ptrs, mask=(offs_m[:, None] < m) & k_mask[None, :], other=0.0)
    # fmt: off
    acc = range_product(
        a_ptr, b_ptr, m, n, k_begin + BLOCK_K, k_end, stride_am, stride_bk, stride_bn, pid_m, pid_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, "", 1,
    )
    # fmt: on
    return step_product(a_first, b_first, acc.T, SWAP).T if SWAP else step_product(a_first, b_first, acc, SWAP)


@triton.jit
def batched_product(
    a_ptr,
    b_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    offs_m,
    offs_n,
    starts,
    length,
    STEP: tl.constexpr,
    SPLIT_K: tl.constexpr,
    SHARE: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
):
    """fp32 [SPLIT_K, BLOCK_M, BLOCK_N]: SPLIT_K products of one tile of C, whose sum is the tile. Product s multiplies,
    at k_start = 0, STEP, ... below length, the SHARE rows of B from k_start + starts[s] on, as far as K goes."""
    n, k, stride_am, stride_bk, stride_bn = in_units(n, k, stride_am, stride_bk, stride_bn, UNITS)
    # `max_contiguous` says more than is so of the products, which lie apart: it has Triton deal them out to threads
    # before rows of A and columns of B. From 3.7 on it would take these first. Where threads then cover all rows, A's
    # tile has a row's products side by side in shared memory, the swizzle is over products, and the 8 rows of an
    # ldmatrix lie in the same banks; B's likewise. Loads are no wider for it where they run along a longer contiguity.
    # Where a thread loads single elements, as of a single column of B stored [K, N], 3.9 would take one of the next
    # product from beside it: nothing is said.
    NEAR: tl.constexpr = min(SPLIT_K, UNITS[5]) if offs_n.shape[0] > 1 else 1
    of_a = tl.max_contiguous(starts[:, None, None], (NEAR, 1, 1))
    of_b = tl.max_contiguous(of_a.to(tl.int64) * stride_bk, (NEAR, 1, 1))
    offs_k = tl.arange(0, SHARE)
    a_ptrs = a_ptr + offs_m[None, :, None].to(tl.int64) * stride_am + of_a + offs_k[None, None, :]
    b_ptrs = b_ptr + offs_n[None, None, :].to(tl.int64) * stride_bn + of_b
    b_ptrs += offs_k[None, :, None].to(tl.int64) * stride_bk
    b_step = tl.full([], STEP, tl.int64) * stride_bk  # more than int32 holds, where rows of B are far apart
    a_mask = (offs_m < m)[None, :, None]
    b_mask = (offs_n < n)[None, None, :]
    sums = tl.zeros((SPLIT_K, offs_m.shape[0], offs_n.shape[0]), dtype=tl.float32)
    for k_start in range(0, length, STEP):
        if EVEN_K:
            b = tl.load(b_ptrs) if EVEN_N else tl.load(b_ptrs, mask=b_mask, other=0.0)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        else:
            k_mask = k_start + starts[:, None] + offs_k[None, :] < k
            b = tl.load(b_ptrs, mask=b_mask & k_mask[:, :, None], other=0.0)
            a = tl.load(a_ptrs, mask=a_mask & k_mask[:, None, :], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += STEP
        b_ptrs += b_step
    return sums


@triton.jit
def described_product(
    a,
    b,
    pid_m,
    pid_n,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    TMA: tl.constexpr,
):
    """fp32 [SPLIT_K, BLOCK_M, BLOCK_N]: the tile's products of all bands of K, a step of each at a time, whose sum is
    the tile. a, b: the descriptors of `described`, of SPLIT_K bands; zero beyond the band and beyond the matrix."""
    sums = tl.zeros((SPLIT_K, BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k_start in range(0, band_steps * BLOCK_K, BLOCK_K):
        # B last: the compiler puts its transposition right behind it, and gives loads that follow each other one
        # mbarrier, but two that have something between them one each.
        a_tiles = a.load([0, pid_m * BLOCK_M, k_start])
        if TMA == "nk":
            b_tiles = b.load([0, pid_n * BLOCK_N, k_start]).permute(0, 2, 1)
        else:
            b_tiles = b.load([0, k_start, pid_n * BLOCK_N])
        sums = tl.dot(a_tiles, b_tiles, sums, input_precision="ieee")
    return sums


@triton.jit
def sum_of_parts(parts, PARTS: tl.constexpr, SHAPE: tl.constexpr):
    """The sum of parts [..., PARTS], a power of two, over their last axis, by halves; as a tensor of SHAPE.

    `tl.split` wants both halves in one thread. So the compiler moves all parts of an element to one thread, once, and
    the sum is additions of registers. `tl.sum` would leave the parts of a batched product in their warps and blocks,
    and go from these to lanes, to the sum and to the store, through shared memory each time, by a few registers a time.
    """
    LEVELS: tl.constexpr = PARTS.bit_length() - 1
    parts = parts.reshape(SHAPE + (2,) * LEVELS)
    for _ in tl.static_range(LEVELS):
        low, high = tl.split(parts)
        parts = low + high
    return parts


@triton.jit
def step_product(a_tile, b_tile, acc, SWAP: tl.constexpr):
    """acc + a_tile @ b_tile, or with SWAP acc + its transpose, whose rows are the columns of C."""
    if SWAP:
        acc = tl.dot(b_tile.T, a_tile.T, acc, input_precision="ieee")
    else:
        acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee")
    return acc


def described(
    problem: Matmul, config: BandConfig, placement: Placement, bands: int = 1
) -> dict[Slot, Callable[[Any], TensorDescriptor]]:
    """What makes TMA descriptors of A and B, of the tiles of `config.tma`; nothing where they are read by pointers.
    bands: equal ones of K; more than 1 are the first dimension, and a tile has a step of each.

    Raises ValueError for tensors that TMA cannot address.
    """
    if not config.tma:
        return {}
    if not launching.addressable(problem, placement):
        accepted = f"addresses and row strides of {TMA_ALIGNMENT}-byte multiples, as config asks for TMA"
        found = f"a has row stride {placement.stride_am}, alignment {placement.align_a}; b strides "
        found += f"{placement.in_strides[1:]}, alignment {placement.align_b}"
        raise ValueError(f"{found}; accepted: {accepted}")
    band = problem.k // bands
    shape_b, strides_b, block_b = (
        [band, problem.n],
        [*placement.in_strides[1:]],
        [config.block_k, config.block_n],
    )
    if problem.layout is Layout.NK:
        shape_b, strides_b, block_b = shape_b[::-1], strides_b[::-1], block_b[::-1]
    of_a = [[problem.m, band], [placement.stride_am, 1], [config.block_m, config.block_k]]
    of_b = [shape_b, strides_b, block_b]
    if bands > 1:
        of_a = [[bands, *of_a[0]], [band, *of_a[1]], [bands, *of_a[2]]]
        of_b = [[bands, *of_b[0]], [band * placement.stride_bk, *of_b[1]], [bands, *of_b[2]]]
    return {
        Slot.A: lambda a: TensorDescriptor(a, *of_a),
        Slot.B: lambda b: TensorDescriptor(b, *of_b),
    }


def units_of(problem: Matmul, placement: Placement) -> tuple[int, ...]:
    """For N, K and the strides of A and B, the power of two up to 8 that divides each; 1 for multiples of 16. Last, 2
    where Triton sees that all rows of A, and of B as stored, begin at a multiple of two elements; 1 elsewhere.

    Triton knows by itself what is a multiple of 16, of bytes in addresses, and takes anything else for odd: without
    these units a row of 7176 elements would be copied by the element.
    """
    extents = problem.n, problem.k, *placement.in_strides
    row_of_b = placement.stride_bn if problem.layout is Layout.NK else placement.stride_bk
    aligned = placement.align_a % 16 == placement.align_b % 16 == 0
    pairs = 2 if aligned and placement.stride_am % 2 == row_of_b % 2 == 0 else 1
    return *(1 if extent % 16 == 0 else extent & -extent for extent in extents), pairs


def meta(problem: Matmul, config: BandConfig, placement: Placement) -> dict[str, int | bool | str]:
    """The compile-time arguments of every band kernel, and its launch options."""
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "EVEN_N": problem.n % config.block_n == 0,
        "EVEN_K": problem.k % config.block_k == 0,
        "UNITS": units_of(problem, placement),
        "SWAP": config.swap,
        "TMA": problem.layout.value if config.tma else "",
        "SLICES": config.slices,
        **block_options(config.num_warps),
        "num_stages": config.num_stages,
    }
