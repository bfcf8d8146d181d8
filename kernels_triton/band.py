"""What every split-K kernel of this package does alike: a program's tile, its band of K, and the product over it.

The kernels differ in how the sums of the bands meet; that is what their files hold.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from common.kernel import MatmulConfig
from common.problem import Matmul
from kernels_triton.epilogue import apply_epilogue, has_bias

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper


@dataclass(frozen=True)
class BandConfig(MatmulConfig):
    """group_m: rows of tiles that are walked together."""

    group_m: int = 8


# (block_m, block_n, block_k, num_warps, num_stages): the 27 of the decompose-K study's optimized kernel ...
TILES = [
    *[(16, 16, 32, 1, 4), (16, 16, 64, 2, 4), (16, 16, 64, 4, 4), (16, 16, 64, 1, 5), (16, 16, 128, 2, 4)],
    *[(16, 16, 128, 4, 4), (16, 16, 128, 1, 4), (16, 16, 128, 1, 5), (16, 32, 64, 1, 5), (16, 32, 128, 1, 4)],
    *[(32, 16, 64, 1, 5), (32, 16, 128, 1, 4), (32, 32, 64, 2, 4), (32, 32, 128, 2, 4)],
    *[(64, 32, 32, 4, 5), (64, 32, 64, 4, 5), (64, 32, 128, 4, 5)],
    *[(32, 64, 32, 4, 5), (32, 64, 64, 4, 5), (32, 64, 128, 4, 5)],
    *[(64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3), (64, 64, 128, 4, 4), (64, 64, 128, 4, 5)],
    *[(64, 64, 64, 8, 5), (64, 64, 128, 8, 4)],
    # ... deeper ones for few rows, as long bands want many bytes in flight ...
    *[(16, 16, 256, 2, 4), (16, 16, 256, 4, 4), (16, 16, 512, 2, 3), (16, 32, 256, 4, 3), (32, 16, 256, 4, 4)],
    # ... and wider ones for many: block_m a multiple of 64 and 4 warps make wgmma.
    *[(16, 64, 128, 4, 4), (16, 64, 256, 4, 3), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (128, 128, 64, 8, 4)],
]


def splits(problem: Matmul) -> list[int]:
    """Powers of two, then divisors of K that leave bands of 128 and more; none finer than K over the longer side
    of C, as beyond that the partial sums outweigh the inputs."""
    finest = max(2, min(problem.k // problem.m, problem.k // problem.n, 256))
    powers = [1 << i for i in range(1, 9) if 1 << i <= finest and problem.k >> i >= 16]
    divisors = [s for s in range(2, finest + 1) if problem.k % s == 0 and problem.k // s >= 128 and s not in powers]
    return (powers + divisors)[:16] or [1]


def space(problem: Matmul, splits: tuple[int, ...]) -> list[BandConfig]:
    """Every tile with every split that leaves each band two steps of block_k and more."""
    candidates = [
        BandConfig(block_m, block_n, block_k, split_k, num_warps, num_stages)
        for block_m, block_n, block_k, num_warps, num_stages in TILES
        for split_k in splits
        if split_k == 1 or split_k * 2 * block_k <= problem.k
    ]
    return [config for config in candidates if supports(problem, config) is None]


def default_tile(problem: Matmul, programs: int, most_splits: int = 256) -> tuple[int, int, int, int, int, int]:
    """block_m, block_n, block_k, split_k, num_warps, num_stages: tiles that cover M up to 64 rows, and bands enough
    for about `programs` of them, none shorter than 128."""
    block_m = min(64, max(16, triton.next_power_of_2(problem.m)))
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 64 else 64
    tiles = triton.cdiv(problem.m, block_m) * triton.cdiv(problem.n, block_n)
    split_k = 1
    while split_k * 2 <= most_splits and split_k * 2 * tiles <= programs and problem.k // (split_k * 2) >= 128:
        split_k *= 2
    block_k = 128 if problem.dtype.itemsize == 2 else 32
    return block_m, block_n, block_k, split_k, 1 if block_m == 16 else 4, 4


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """Any problem; a config must fit shared memory and Triton's powers of two."""
    if config is None:
        return None
    blocks = (config.block_m, config.block_n, config.block_k)
    if any(block < 16 or block & (block - 1) for block in blocks):
        return f"blocks {blocks} are not powers of two, 16 or more"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
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
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def input_strides(problem: Matmul, a: Tensor | None = None, b: Tensor | None = None) -> tuple[int, int, int]:
    """stride_am, stride_bk, stride_bn; without tensors, those of contiguous ones."""
    if a is not None:
        return a.stride(0), *b.stride()
    return (problem.k, problem.n, 1) if problem.layout.value == "kn" else (problem.k, 1, problem.k)


def starter(warmup: bool):
    """Launches a kernel, or with `warmup` compiles it alone: tensors may then be given as their dtypes."""

    def start(kernel, grid, *args, **options):
        if warmup:
            kernel.warmup(*args, grid=grid, **options)
        else:
            kernel[grid](*args, **options)

    return start


@triton.jit
def tile_of(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """pid_m, pid_n in group-major order: programs that run together share rows of A and columns of B in L2."""
    num_pid_m = tl.cdiv(m, BLOCK_M)
    num_pid_n = tl.cdiv(n, BLOCK_N)
    first_pid_m = pid // (GROUP_M * num_pid_n) * GROUP_M
    group_rows = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % (GROUP_M * num_pid_n)) % group_rows
    pid_n = (pid % (GROUP_M * num_pid_n)) // group_rows
    return pid_m, pid_n


@triton.jit
def band_product(
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
    split,
    split_k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N]: A[offs_m] @ B[:, offs_n] over band `split` of split_k, zero where there is no more K."""
    band = tl.cdiv(tl.cdiv(k, BLOCK_K), split_k) * BLOCK_K
    k_begin = split * band
    k_end = min(k_begin + band, k)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None].to(tl.int64) * stride_am + (k_begin + offs_k)[None, :]
    b_ptrs = b_ptr + (k_begin + offs_k)[:, None].to(tl.int64) * stride_bk + offs_n[None, :].to(tl.int64) * stride_bn
    a_mask = offs_m[:, None] < m
    b_mask = offs_n[None, :] < n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k_start in range(k_begin, k_end, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs) if EVEN_N else tl.load(b_ptrs, mask=b_mask, other=0.0)
        else:
            k_mask = k_start + offs_k < k_end
            a = tl.load(a_ptrs, mask=a_mask & k_mask[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=b_mask & k_mask[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
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
