"""Decompose-K: partial products in one launch, their sum in a second.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one program a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (tiles of C in group-major order, split_k); reducer: flat over C, or tiles of C
Who sums     a program its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the unfused variant 3

Two reducers: *vector*, laid out around the split axis (a flat vector of elements of C, one `tl.sum` over the bands,
its own tile size and warps), and *tile*, shaped like the tiles of the product, adding the bands one by one.

Source: "Decompose-K: From torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls"
(shreyansh26.github.io, 2026), whose first and optimized reducers these are; TorchInductor's decompose-K (PyTorch
pull request 150654) for the splits that divide K.
"""

from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from common import tuned
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Matmul
from common.protocol import Protocol
from kernels_triton.epilogue import apply_epilogue

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper


@dataclass(frozen=True)
class DecomposeKConfig(MatmulConfig):
    """group_m: rows of tiles that are walked together; reduce_block: elements of C a reducing program sums
    (tile: the side of its square tile is block_m by block_n instead); reduce_warps: its warps."""

    group_m: int = 8
    reduce_block: int = 32
    reduce_warps: int = 1


# (block_m, block_n, block_k, num_warps, num_stages): the 27 of the source's optimized kernel ...
TILES = [
    *[(16, 16, 32, 1, 4), (16, 16, 64, 2, 4), (16, 16, 64, 4, 4), (16, 16, 64, 1, 5), (16, 16, 128, 2, 4)],
    *[(16, 16, 128, 4, 4), (16, 16, 128, 1, 4), (16, 16, 128, 1, 5), (16, 32, 64, 1, 5), (16, 32, 128, 1, 4)],
    *[(32, 16, 64, 1, 5), (32, 16, 128, 1, 4), (32, 32, 64, 2, 4), (32, 32, 128, 2, 4)],
    *[(64, 32, 32, 4, 5), (64, 32, 64, 4, 5), (64, 32, 128, 4, 5)],
    *[(32, 64, 32, 4, 5), (32, 64, 64, 4, 5), (32, 64, 128, 4, 5)],
    *[(64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3), (64, 64, 128, 4, 4), (64, 64, 128, 4, 5)],
    *[(64, 64, 64, 8, 5), (64, 64, 128, 8, 4)],
    # ... and wider ones for many rows: block_m a multiple of 64 and 4 warps make wgmma.
    *[
        (16, 64, 128, 4, 4),
        (16, 64, 256, 4, 3),
        (64, 128, 64, 4, 4),
        (64, 128, 128, 4, 3),
        (128, 128, 64, 8, 4),
    ],
]


def splits(problem: Matmul) -> list[int]:
    """Powers of two, then divisors of K that leave bands of 128 and more, none finer than K over the longer
    side of C: beyond that the partials outweigh the inputs."""
    finest = max(2, min(problem.k // problem.m, problem.k // problem.n, 256))
    powers = [1 << i for i in range(1, 9) if 1 << i <= finest and problem.k >> i >= 16]
    divisors = [s for s in range(2, finest + 1) if problem.k % s == 0 and problem.k // s >= 128 and s not in powers]
    return (powers + divisors)[:16] or [1]


def configs(problem: Matmul) -> list[DecomposeKConfig]:
    """Every tile with every split; the reducer's block by the number of bands, as in the source, and a wider one
    with a warp for every 32 elements."""
    space = []
    for block_m, block_n, block_k, num_warps, num_stages in TILES:
        for split_k in splits(problem):
            for reduce_block, reduce_warps in (
                (32 if split_k <= 64 else 16 if split_k <= 128 else 8, 1),
                (128, 4),
            ):
                config = DecomposeKConfig(
                    block_m,
                    block_n,
                    block_k,
                    split_k,
                    num_warps,
                    num_stages,
                    reduce_block=reduce_block,
                    reduce_warps=reduce_warps,
                )
                if supports(problem, config) is None:
                    space.append(config)
    return space


def default_config(problem: Matmul) -> DecomposeKConfig:
    """Tiles that cover M up to 64 rows, and bands enough for two programs on each of Hopper's 132 multiprocessors,
    none shorter than 128."""
    block_m = min(64, max(16, triton.next_power_of_2(problem.m)))
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 64 else 64
    tiles = triton.cdiv(problem.m, block_m) * triton.cdiv(problem.n, block_n)
    split_k = 1
    while split_k * 2 * tiles <= 264 and problem.k // (split_k * 2) >= 128:
        split_k *= 2
    block_k = 128 if problem.dtype.itemsize == 2 else 32
    return DecomposeKConfig(block_m, block_n, block_k, split_k, 1 if block_m == 16 else 4, 4)


def supports(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """Any problem; a config must fit shared memory and Triton's powers of two."""
    if config is None:
        return None
    blocks = (config.block_m, config.block_n, config.block_k)
    if any(block < 16 or block & (block - 1) for block in (*blocks, max(16, config.reduce_block))):
        return f"blocks {blocks}, reduce_block {config.reduce_block} are not all powers of two, 16 or more"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    return None


def workspace_bytes(problem: Matmul, config: DecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


@triton.jit(do_not_specialize=["m"])
def _matmul_partials_kernel(
    a_ptr,
    b_ptr,
    partials_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    # Group-major order: programs that run together share rows of A and columns of B in L2.
    pid = tl.program_id(0)
    split = tl.program_id(1)
    num_pid_m = tl.cdiv(m, BLOCK_M)
    num_pid_n = tl.cdiv(n, BLOCK_N)
    group = pid // (GROUP_M * num_pid_n)
    first_pid_m = group * GROUP_M
    group_rows = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % (GROUP_M * num_pid_n)) % group_rows
    pid_n = (pid % (GROUP_M * num_pid_n)) // group_rows

    band = tl.cdiv(tl.cdiv(k, BLOCK_K), SPLIT_K) * BLOCK_K
    k_begin = split * band
    k_end = min(k_begin + band, k)

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
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

    partials_ptrs = partials_ptr + (split.to(tl.int64) * m + offs_m[:, None]) * n + offs_n[None, :]
    tl.store(partials_ptrs, acc, mask=a_mask & b_mask)


@triton.jit(do_not_specialize=["m"])
def _reduce_vector_kernel(
    partials_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    stride_cm,
    stride_cn,
    SPLIT_K: tl.constexpr,
    SPLIT_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    CONTIGUOUS: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_s = tl.arange(0, SPLIT_BLOCK)
    mask = offs < m * n
    partials = tl.load(
        partials_ptr + offs[:, None] + offs_s[None, :].to(tl.int64) * m * n,
        mask=mask[:, None] & (offs_s < SPLIT_K)[None, :],
        other=0.0,
    )
    acc = tl.sum(partials, axis=1)
    if EPILOGUE == "bias_relu":
        bias = tl.load(bias_ptr + offs % n, mask=mask, other=0.0).to(tl.float32)
    else:
        bias = 0.0
    acc = apply_epilogue(acc, bias, EPILOGUE)
    if CONTIGUOUS:
        c_ptrs = c_ptr + offs
    else:
        c_ptrs = c_ptr + offs // n * stride_cm + offs % n * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["m"])
def _reduce_tile_kernel(
    partials_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    stride_cm,
    stride_cn,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    num_pid_n = tl.cdiv(n, BLOCK_N)
    offs_m = tl.program_id(0) // num_pid_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) % num_pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    offs = offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for split in range(SPLIT_K):
        acc += tl.load(partials_ptr + tl.cast(split, tl.int64) * m * n + offs, mask=mask, other=0.0)
    if EPILOGUE == "bias_relu":
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < n, other=0.0).to(tl.float32)[None, :]
    else:
        bias = 0.0
    acc = apply_epilogue(acc, bias, EPILOGUE)
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _launch(
    problem: Matmul,
    config: DecomposeKConfig,
    reducer: str,
    a,
    b,
    bias,
    partials,
    out,
    strides,
    *,
    warmup=False,
):
    """Both launches, or with `warmup` their compilation alone: tensors may then be given as their dtypes."""
    (stride_am, stride_bk, stride_bn), (stride_cm, stride_cn), contiguous = strides
    m, n, k = problem.m, problem.n, problem.k

    def launch(kernel, grid, *args, **options):
        if warmup:
            kernel.warmup(*args, grid=grid, **options)
        else:
            kernel[grid](*args, **options)

    launch(
        _matmul_partials_kernel,
        (triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n), config.split_k),
        *(a, b, partials, m, n, k, stride_am, stride_bk, stride_bn),
        BLOCK_M=config.block_m,
        BLOCK_N=config.block_n,
        BLOCK_K=config.block_k,
        SPLIT_K=config.split_k,
        GROUP_M=config.group_m,
        EVEN_N=n % config.block_n == 0,
        EVEN_K=k % config.block_k == 0,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    reduction = (partials, bias, out, m, n, stride_cm, stride_cn)
    if reducer == "vector":
        launch(
            _reduce_vector_kernel,
            (triton.cdiv(m * n, config.reduce_block),),
            *reduction,
            SPLIT_K=config.split_k,
            SPLIT_BLOCK=triton.next_power_of_2(config.split_k),
            BLOCK=config.reduce_block,
            CONTIGUOUS=contiguous,
            EPILOGUE=problem.epilogue.value,
            num_warps=config.reduce_warps,
        )
    else:
        launch(
            _reduce_tile_kernel,
            (triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n),),
            *reduction,
            SPLIT_K=config.split_k,
            BLOCK_M=config.block_m,
            BLOCK_N=config.block_n,
            EPILOGUE=problem.epilogue.value,
            num_warps=min(config.num_warps, 4),
        )


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: DecomposeKConfig | None = None,
    variant: str = "vector",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'vector' or 'tile' names the reducer; 'vector_unfused' applies the epilogue in torch, afterwards.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    if config is None:
        config, _ = tuned.pick(_BY_VARIANT[variant], problem, tuned.slug_of(a.device))
    elif reason := supports(problem, config):
        raise ValueError(f"config is {config}; {reason}")
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
    partials = torch.empty(config.split_k, problem.m, problem.n, dtype=torch.float32, device=a.device)
    strides = (a.stride(0), *b.stride()), out.stride(), out.is_contiguous()
    if variant == "vector_unfused":
        plain = Matmul(problem.m, problem.n, problem.k, problem.dtype, problem.out_dtype, problem.layout)
        _launch(plain, config, "vector", a, b, None, partials, out, strides)
        return out.copy_(epilogue.apply(out, bias))
    _launch(problem, config, variant, a, b, bias, partials, out, strides)
    return out


def build(problem: Matmul, config: DecomposeKConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; `out` as the launcher allocates it."""
    strides_b = (problem.n, 1) if problem.layout.value == "kn" else (1, problem.k)
    strides = (problem.k, *strides_b), (problem.n, 1), True
    bias = problem.dtype if problem.epilogue.has_bias else None
    tensors = problem.dtype, problem.dtype, bias, torch.float32, problem.out_dtype
    _launch(problem, config, variant.removesuffix("_unfused"), *tensors, strides, warmup=True)


def _supports_unfused(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    if problem.epilogue is Epilogue.NONE:
        return "no epilogue to leave unfused"
    return supports(problem, config)


KERNELS = tuple(
    Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.SEPARATE,
        launch=partial(matmul, variant=variant),
        config_type=DecomposeKConfig,
        configs=configs,
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=_supports_unfused if variant == "vector_unfused" else supports,
        deterministic=True,
        # The unfused epilogue rounds the product, then its own result.
        roundings=lambda config, rounds=2 if variant == "vector_unfused" else 1: rounds,
        workspace_bytes=workspace_bytes,
        launches=3 if variant == "vector_unfused" else 2,
    )
    for variant in ("vector", "tile", "vector_unfused")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
