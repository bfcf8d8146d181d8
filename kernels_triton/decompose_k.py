"""Decompose-K: partial products in one launch, their sum in a second.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one program a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (tiles of C in group-major order, split_k); reducer: flat over C, or tiles of C
Who sums     a program its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the unfused variant 3, with bias_relu 4
Variants     vector, tile: the two reducers; vector_unfused: the epilogue in torch; vector_pdl: programmatic dependent
             launch, the reducer's programs are set up while the partials are still computed

Two reducers: *vector*, laid out around the split axis (a flat vector of elements of C, one `tl.sum` over the bands,
its own tile size and warps), and *tile*, shaped like the tiles of the product, adding the bands one by one.

Source: "Decompose-K: From torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls"
(shreyansh26.github.io, 2026), whose first and optimized reducers these are; TorchInductor's decompose-K (PyTorch
pull request 150654) for the splits that divide K.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.devices import lacks_dependent_launch
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, band_steps, nothing_unfused, splits
from common.problem import Matmul
from common.protocol import Protocol
from kernels_triton import band
from kernels_triton.band import BandConfig, band_product, finish, tile_of
from kernels_triton.epilogue import apply_epilogue, has_bias


@dataclass(frozen=True)
class DecomposeKConfig(BandConfig):
    """reduce_block: elements of C that a program of the vector reducer sums; reduce_warps: its warps. The tile
    reducer takes the tile of the product."""

    reduce_block: int = 32
    reduce_warps: int = 1


def configs(problem: Matmul, *, variant: str) -> list[DecomposeKConfig]:
    """Every tile with every split of which each band has a step, as band.space has them; for the vector reducer a
    block by the number of bands, as in the source, one with a warp for every 32 elements, and, of few bands, one of 16
    bytes a thread."""
    space = [
        DecomposeKConfig(**vars(config), reduce_block=reduce_block, reduce_warps=reduce_warps)
        for config in band.space(problem, splits(problem))
        for reduce_block, reduce_warps in _reducers(config.split_k)[: 1 if variant == "tile" else None]
    ]
    return [config for config in space if supports(problem, config) is None]


def _reducers(split_k: int) -> list[tuple[int, int]]:
    """reduce_block, reduce_warps."""
    narrow = 32 if split_k <= 64 else 16 if split_k <= 128 else 8
    return [(narrow, 1), (128, 4), *([(512, 4)] if split_k <= 16 else [])]


def default_config(problem: Matmul) -> DecomposeKConfig:
    """Two programs on each of Hopper's 132 multiprocessors."""
    return DecomposeKConfig(*band.default_tile(problem, most_splits=128))


def supports(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """Any problem; a config must fit shared memory and Triton's powers of two."""
    if config is not None and config.reduce_block & (config.reduce_block - 1):
        return f"reduce_block {config.reduce_block} is not a power of two"
    return band.supports(problem, config)


def workspace_bytes(problem: Matmul, config: DecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


@triton.jit(do_not_specialize=["m", "band_steps"])
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
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    split = tl.program_id(1)
    pid_m, pid_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    acc = band_product(
        a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, split, band_steps,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, SWAP, TMA,
    )
    # fmt: on
    partials_ptrs = partials_ptr + (split.to(tl.int64) * m + offs_m[:, None]) * n + offs_n[None, :]
    tl.store(partials_ptrs, acc, mask=(offs_m[:, None] < m) & (offs_n[None, :] < n))


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
    PDL: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_wait()  # until the partials are whole and visible
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_s = tl.arange(0, SPLIT_BLOCK)
    mask = offs < m * n
    partials = tl.load(
        partials_ptr + offs[:, None] + offs_s[None, :].to(tl.int64) * m * n,
        mask=mask[:, None] & (offs_s < SPLIT_K)[None, :],
        other=0.0,
    )
    acc = tl.sum(partials, axis=1)
    if has_bias(EPILOGUE):
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
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def _launch(
    problem: Matmul, config: DecomposeKConfig, variant: str, tensors, in_strides, out_strides, contiguous, start
):
    """Both launches by `start`. tensors: a, b, bias, partials, out."""
    # The interpreter runs one launch after the other, and knows no dependent ones.
    pdl = variant == "vector_pdl" and not triton.knobs.runtime.interpret
    a, b, bias, partials, out = tensors
    m, n, k, steps = problem.m, problem.n, problem.k, band_steps(problem, config)
    start(
        _matmul_partials_kernel,
        band.grid(problem, config),
        *(*band.operands(problem, config, a, b), partials, m, n, k, *in_strides, steps),
        **band.meta(problem, config),
        PDL=pdl,
    )
    reduction = (partials, bias, out, m, n, *out_strides)
    if variant != "tile":
        start(
            _reduce_vector_kernel,
            (triton.cdiv(m * n, config.reduce_block),),
            *reduction,
            SPLIT_K=config.split_k,
            SPLIT_BLOCK=triton.next_power_of_2(config.split_k),
            BLOCK=config.reduce_block,
            CONTIGUOUS=contiguous,
            EPILOGUE=problem.epilogue.value,
            PDL=pdl,
            num_warps=config.reduce_warps,
            launch_pdl=pdl,
        )
    else:
        start(
            _reduce_tile_kernel,
            band.grid(problem, config)[:1],
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

    variant: 'vector' or 'tile' names the reducer; 'vector_pdl' launches it dependently (Hopper and later);
    'vector_unfused' applies the epilogue in torch, afterwards.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem, config, out = band.prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)
    partials = torch.empty(config.split_k, problem.m, problem.n, dtype=torch.float32, device=a.device)
    strides = band.input_strides(problem, a, b), out.stride(), out.is_contiguous()
    start = band.starter(warmup=False)
    if variant == "vector_unfused":
        plain = replace(problem, epilogue=Epilogue.NONE)
        _launch(plain, config, "vector", (a, b, None, partials, out), *strides, start)
        return epilogue.apply_(out, bias)
    _launch(problem, config, variant, (a, b, bias, partials, out), *strides, start)
    return out


def build(problem: Matmul, config: DecomposeKConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    if variant == "vector_unfused":
        problem, variant = replace(problem, epilogue=Epilogue.NONE), "vector"
    bias = problem.dtype if problem.epilogue.has_bias else None
    tensors = problem.dtype, problem.dtype, bias, torch.float32, problem.out_dtype
    strides = band.input_strides(problem), (problem.n, 1), True
    _launch(problem, config, variant, tensors, *strides, band.starter(warmup=True))


def _supports_vector(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    if problem.m * problem.n >= 1 << 31:
        return f"C has {problem.m * problem.n} elements: the vector reducer counts them in int32"
    return supports(problem, config)


def _supports_unfused(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    return nothing_unfused(problem) or _supports_vector(problem, config)


def _supports_pdl(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    return lacks_dependent_launch() or _supports_vector(problem, config)


_SUPPORTS = {
    "vector": _supports_vector,
    "tile": supports,
    "vector_unfused": _supports_unfused,
    "vector_pdl": _supports_pdl,
}
KERNELS = tuple(
    Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.SEPARATE_PDL if variant == "vector_pdl" else Protocol.SEPARATE,
        launch=partial(matmul, variant=variant),
        config_type=DecomposeKConfig,
        configs=partial(configs, variant=variant),
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=_SUPPORTS[variant],
        deterministic=True,
        # The unfused epilogue rounds the product, then its own result.
        roundings=lambda config, rounds=2 if variant == "vector_unfused" else 1: rounds,
        workspace_bytes=workspace_bytes,
        launches=3 if variant == "vector_unfused" else 2,
        tuned_as="triton/decompose_k.vector" if variant == "vector_unfused" else "",
    )
    for variant in _SUPPORTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
