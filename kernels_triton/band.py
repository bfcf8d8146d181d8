"""What every split-K kernel of this package does alike: a program's tile, its band of K, and the product over it.

The kernels differ in how the sums of the bands meet; that is what their files hold.
"""

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.jit import MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from common import call, devices
from common.epilogue import Epilogue
from common.kernel import (
    Kernel,
    MatmulConfig,
    default_splits,
    has_steps,
    rows_fit,
    split_where_possible,
    too_many_blocks,
)
from common.problem import Layout, Matmul
from kernels_triton.epilogue import apply_epilogue, has_bias

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
TMA_ALIGNMENT = 16  # bytes


@dataclass(frozen=True)
class BandConfig(MatmulConfig):
    """group_m: rows of tiles that are walked together.
    swap: a tile is computed as its transpose. Its columns, and not its rows, are then the 64 rows of a wgmma (16 of an
    mma), and 8 rows are enough.
    tma: the tensor memory accelerator copies the operands' tiles, Hopper and later; their rows must begin at multiples
    of 16 bytes. By pointers, otherwise."""

    group_m: int = 8
    swap: bool = False
    tma: bool = False


# (block_m, block_n, block_k, num_warps, num_stages): the 27 of the decompose-K study's optimized kernel ...
TILES = [
    *[(16, 16, 32, 1, 4), (16, 16, 64, 2, 4), (16, 16, 64, 4, 4), (16, 16, 64, 1, 5), (16, 16, 128, 2, 4)],
    *[(16, 16, 128, 4, 4), (16, 16, 128, 1, 4), (16, 16, 128, 1, 5), (16, 32, 64, 1, 5), (16, 32, 128, 1, 4)],
    *[(32, 16, 64, 1, 5), (32, 16, 128, 1, 4), (32, 32, 64, 2, 4), (32, 32, 128, 2, 4)],
    *[(64, 32, 32, 4, 5), (64, 32, 64, 4, 5), (64, 32, 128, 4, 5)],
    *[(32, 64, 32, 4, 5), (32, 64, 64, 4, 5), (32, 64, 128, 4, 5)],
    *[(64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3), (64, 64, 128, 4, 4), (64, 64, 128, 4, 5)],
    *[(64, 64, 64, 8, 5), (64, 64, 128, 8, 4)],
    # ... narrow ones, so that few bands make many programs; deeper ones for few rows, as long bands want many bytes in
    # flight ...
    *[(16, 8, 128, 1, 6), (16, 8, 256, 1, 4), (16, 8, 256, 1, 6), (16, 8, 512, 1, 3)],
    *[(16, 16, 256, 2, 4), (16, 16, 256, 4, 4), (16, 16, 512, 2, 3), (16, 32, 256, 4, 3), (32, 16, 256, 4, 4)],
    # ... and wider ones for many: block_m a multiple of 64 and 4 warps make wgmma.
    *[(16, 64, 128, 4, 4), (16, 64, 256, 4, 3), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (128, 128, 64, 8, 4)],
    *[(128, 64, 64, 4, 5), (128, 64, 128, 4, 4), (128, 128, 64, 8, 6), (128, 128, 128, 8, 3), (128, 256, 64, 8, 4)],
]
# Computed as their transposes, 64 columns for a wgmma beside few rows; ...
SWAPPED = [
    *[(16, 64, 64, 4, 5), (16, 64, 128, 4, 3), (16, 64, 128, 4, 5), (16, 64, 256, 4, 2), (16, 64, 256, 4, 4)],
    *[(32, 64, 64, 4, 5), (32, 64, 128, 4, 4), (32, 64, 256, 4, 2), (32, 128, 64, 4, 4), (32, 128, 128, 8, 3)],
]
# ... or 16 for an mma, which takes its first operand from columns stored along K alone.
SWAPPED_NARROW = [(8, 16, 128, 1, 4), (8, 16, 256, 2, 4), (8, 32, 128, 2, 4), (8, 32, 256, 4, 3)]
# Copied by TMA; computed as their transposes where the rows are too few for a wgmma.
DESCRIBED = [
    *[(8, 16, 256, 1, 4), (16, 16, 256, 1, 4), (16, 32, 256, 2, 3), (16, 64, 64, 4, 6), (16, 64, 128, 4, 4)],
    *[(16, 64, 256, 4, 2), (32, 64, 128, 4, 3), (64, 32, 128, 4, 4), (64, 64, 64, 4, 6), (64, 64, 128, 4, 4)],
    *[(64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 256, 64, 4, 4), (128, 64, 64, 4, 6), (128, 64, 128, 4, 4)],
    *[(128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (128, 128, 64, 8, 6), (128, 128, 128, 8, 3), (128, 256, 64, 8, 4)],
    *[(256, 128, 64, 8, 4)],
    # As many bytes under way as shared memory holds, for one program a multiprocessor.
    *[(16, 64, 128, 4, 10), (32, 64, 128, 4, 8), (64, 32, 128, 4, 8), (64, 64, 64, 4, 12), (64, 64, 128, 4, 6)],
    *[(64, 128, 64, 4, 8), (64, 128, 128, 4, 4), (128, 64, 64, 4, 8)],
]


def tiles(problem: Matmul) -> list[BandConfig]:
    """Every tile whose rows fit the problem's, of one split."""
    every = [
        *[(tile, {}) for tile in TILES],
        *[(tile, {"swap": True}) for tile in SWAPPED + (SWAPPED_NARROW if problem.layout is Layout.NK else [])],
        *[(tile, {"tma": True, "swap": tile[0] < 64}) for tile in DESCRIBED],
    ]
    return [
        BandConfig(*blocks, 1, num_warps, num_stages, **engine)
        for (*blocks, num_warps, num_stages), engine in every
        if rows_fit(blocks[0], problem.m)
    ]


def space(problem: Matmul, splits: tuple[int, ...]) -> list[BandConfig]:
    """Every tile with every split of which each band has a step; of one band only where there is no other."""
    candidates = [replace(tile, split_k=split_k) for tile in tiles(problem) for split_k in splits]
    fitting = [config for config in candidates if has_steps(problem, config) and supports(problem, config) is None]
    return split_where_possible(fitting)


def default_tile(problem: Matmul, most_splits: int) -> tuple[int, int, int, int, int, int]:
    """block_m, block_n, block_k, split_k, num_warps, num_stages: tiles that cover M up to 64 rows, and splits by the
    rule of both languages."""
    block_m = min(64, max(16, triton.next_power_of_2(problem.m)))
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 64 else 64
    tiles = triton.cdiv(problem.m, block_m) * triton.cdiv(problem.n, block_n)
    split_k = default_splits(problem, tiles, most_splits)
    block_k = 128 if problem.dtype.itemsize == 2 else 32
    return block_m, block_n, block_k, split_k, 1 if block_m == 16 else 4, 4


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """Any problem; a config must fit shared memory and Triton's powers of two."""
    if config is None:
        return None
    if reason := too_many_blocks({"K": config.split_k}):
        return reason
    blocks = (config.block_m, config.block_n, config.block_k)
    least = (8, 16, 16) if config.swap else (16, 8, 16)
    if any(block < size or block & (block - 1) for block, size in zip(blocks, least, strict=True)):
        return f"blocks {blocks} are not powers of two, {least} or more"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    rows = (problem.k, problem.k if problem.layout is Layout.NK else problem.n)
    if config.tma and any(row * problem.dtype.itemsize % TMA_ALIGNMENT for row in rows):
        return f"rows of A and B are {rows} elements; accepted: multiples of {TMA_ALIGNMENT} bytes, as TMA copies"
    return None


def grid(problem: Matmul, config: MatmulConfig) -> tuple[int, int]:
    """Programs: the tiles of C by the bands of K."""
    return triton.cdiv(problem.m, config.block_m) * triton.cdiv(problem.n, config.block_n), config.split_k


def meta(problem: Matmul, config: BandConfig) -> dict[str, int | bool]:
    """The compile-time arguments of every band kernel, and its launch options."""
    return {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
        "EVEN_N": problem.n % config.block_n == 0,
        "EVEN_K": problem.k % config.block_k == 0,
        "SWAP": config.swap,
        "TMA": problem.layout.value if config.tma else "",
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def input_strides(problem: Matmul, a: Tensor | None = None, b: Tensor | None = None) -> tuple[int, int, int]:
    """stride_am, stride_bk, stride_bn; without tensors, those of contiguous ones."""
    if a is not None:
        return call.input_strides(problem, a, b)
    return (problem.k, problem.n, 1) if problem.layout.value == "kn" else (problem.k, 1, problem.k)


def operands(problem: Matmul, config: BandConfig, a: Tensor | torch.dtype, b: Tensor | torch.dtype):
    """a, b as a kernel takes them: as they are, or with `config.tma` as descriptors of their tiles; for tensors as the
    problem has them where dtypes are given. Raises ValueError for tensors that TMA cannot address."""
    if not config.tma:
        return a, b
    tensors = (a, b) if isinstance(a, Tensor) else ()
    if tensors and not addressable(problem, *tensors):
        accepted = f"addresses and row strides of {TMA_ALIGNMENT}-byte multiples, as config asks for TMA"
        raise ValueError(f"a has strides {a.stride()}, b {b.stride()}; accepted: {accepted}")
    stride_am, stride_bk, stride_bn = input_strides(problem, *tensors)
    shape_b, strides_b, block_b = [problem.k, problem.n], [stride_bk, stride_bn], [config.block_k, config.block_n]
    if problem.layout is Layout.NK:
        shape_b, strides_b, block_b = shape_b[::-1], strides_b[::-1], block_b[::-1]
    a, b = tensors or (MockTensor(a), MockTensor(b))
    return (
        TensorDescriptor(a, [problem.m, problem.k], [stride_am, 1], [config.block_m, config.block_k]),
        TensorDescriptor(b, shape_b, strides_b, block_b),
    )


def addressable(problem: Matmul, a: Tensor, b: Tensor) -> bool:
    """Whether TMA can address them."""
    rows = [stride * a.itemsize for stride in input_strides(problem, a, b) if stride != 1]
    return all(extent % TMA_ALIGNMENT == 0 for extent in (a.data_ptr(), b.data_ptr(), *rows))


def prepared(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    bias: Tensor | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
    config: BandConfig | None,
) -> tuple[Matmul, BandConfig, Tensor]:
    """common.call.prepared, by pointers where TMA cannot address these tensors, and the config was found for others."""
    problem, chosen, out = call.prepared(kernel, a, b, epilogue, bias, out, out_dtype, config)
    if config is None and not addressable(problem, a, b):
        chosen = replace(chosen, tma=False)
    return problem, chosen, out


def starter(warmup: bool):
    """Launches a kernel, or with `warmup` compiles it alone: tensors may then be given as their dtypes."""

    def start(kernel, grid, *args, **options):
        if warmup:
            kernel.warmup(*args, grid=grid, **options)
        else:
            with devices.on(next(arg.device for arg in args if isinstance(arg, Tensor))):
                kernel[grid](*args, **options)

    return start


@triton.jit
def tile_of(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """pid_m, pid_n in group-major order: programs that run together share rows of A and columns of B in L2."""
    num_pid_m = tl.cdiv(m, BLOCK_M)
    num_pid_n = tl.cdiv(n, BLOCK_N)
    if num_pid_m == 1:  # few rows: the loads need not wait for two divisions
        pid_m = pid * 0
        pid_n = pid
    else:
        first_pid_m = pid // (GROUP_M * num_pid_n) * GROUP_M
        group_rows = min(num_pid_m - first_pid_m, GROUP_M)
        pid_m = first_pid_m + (pid % (GROUP_M * num_pid_n)) % group_rows
        pid_n = (pid % (GROUP_M * num_pid_n)) // group_rows
    return pid_m, pid_n


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
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
):
    """`range_product` over band `split`, of `band_steps` steps of BLOCK_K; zero where there is no more K."""
    k_begin = split * band_steps * BLOCK_K
    k_end = min(k_begin + band_steps * BLOCK_K, k)
    # fmt: off
    return range_product(
        a, b, m, n, k_begin, k_end, stride_am, stride_bk, stride_bn, pid_m, pid_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, SWAP, TMA,
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
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N]: the tile of A[:, k_begin:k_end] @ B[k_begin:k_end, :], in steps of BLOCK_K; k_begin
    is a multiple of it, and k_end where it is not K. a, b: as `operands` gives them."""
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
def step_product(a_tile, b_tile, acc, SWAP: tl.constexpr):
    """acc + a_tile @ b_tile, or with SWAP acc + its transpose, whose rows are the columns of C."""
    if SWAP:
        acc = tl.dot(b_tile.T, a_tile.T, acc, input_precision="ieee")
    else:
        acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee")
    return acc


@triton.jit
def finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE: tl.constexpr):
    """C[offs_m, offs_n] = epilogue(acc), acc fp32 [BLOCK_M, BLOCK_N] the whole sum."""
    if has_bias(EPILOGUE):
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < n, other=0.0).to(tl.float32)[None, :]
    else:
        bias = 0.0
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    tl.store(c_ptrs, apply_epilogue(acc, bias, EPILOGUE).to(c_ptr.dtype.element_ty), mask=mask)
