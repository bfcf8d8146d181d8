"""Inductor's fused template of a product and ReLU, as the decompose-K study shows it for a small K.

    C[m, n] = relu(sum over k of A[m, k] * B[k, n])         fp32 inside, one rounding

Grid         one program a tile of C, 8 rows of tiles at a time, column by column
Deterministic yes
Workspace    none
Launches     1

One config and no search: what Inductor's own search had left at M = N = 16, K = 256. Sizes and strides are compile-time
constants, rows of A and columns of B past the end wrap around, and K is not masked. Source: "Decompose-K: From
torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls" (shreyansh26.github.io, 2026), and the log of
that compilation in its repository (shreyansh26/MLSys-Experiments, decompose-k). What was decided here:
notes/as_published.md.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.bench.references.published_triton.decompose_k import StudyConfig
from triton_vs_tilus.bench.references.published_triton.grouping import tile_of
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching

CONFIG = StudyConfig(block_m=16, block_n=16, block_k=64, split_k=1, num_warps=1, num_stages=5)


def supports(problem: Matmul, config: StudyConfig | None = None) -> str | None:
    """Half precision with ReLU, K in whole steps, offsets of 32 bits."""
    if problem.epilogue is not Epilogue.RELU:
        return f"as published, it fuses ReLU, not {problem.epilogue.value}"
    if reason := as_published.fp32_as_tf32(problem):
        return reason
    if problem.k % CONFIG.block_k:
        return f"K is {problem.k}; accepted: multiples of {CONFIG.block_k}, as published"
    too_wide = as_published.offsets_of_32_bits(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n)
    return too_wide or as_published.one_config(config, CONFIG)


@triton.jit
def _template_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    STRIDE_AM: tl.constexpr,
    STRIDE_BK: tl.constexpr,
    STRIDE_BN: tl.constexpr,
    STRIDE_CM: tl.constexpr,
    STRIDE_CN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    wrapped_m = offs_m % M
    wrapped_n = offs_n % N
    if STRIDE_AM == K and M >= BLOCK_M:
        wrapped_m = tl.max_contiguous(tl.multiple_of(wrapped_m, BLOCK_M), BLOCK_M)
    if (STRIDE_BK == N or STRIDE_BN == K) and N >= BLOCK_N:
        wrapped_n = tl.max_contiguous(tl.multiple_of(wrapped_n, BLOCK_N), BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, K // BLOCK_K):
        in_k = step * BLOCK_K + offs_k
        a = tl.load(a_ptr + wrapped_m[:, None] * STRIDE_AM + in_k[None, :])
        b = tl.load(b_ptr + in_k[:, None] * STRIDE_BK + wrapped_n[None, :] * STRIDE_BN)
        acc += tl.dot(a, b, out_dtype=tl.float32)
    acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + offs_m[:, None] * STRIDE_CM + offs_n[None, :] * STRIDE_CN
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def plan(problem: Matmul, config: StudyConfig, placement: Placement) -> Plan:
    """What a call launches."""
    names = "STRIDE_AM", "STRIDE_BK", "STRIDE_BN", "STRIDE_CM", "STRIDE_CN"
    strides = dict(zip(names, (*placement.in_strides, *placement.out_strides), strict=True))
    meta: dict[str, Any] = {"M": problem.m, "N": problem.n, "K": problem.k, **strides}
    meta |= {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    meta |= {"GROUP_M": config.group_m, "num_warps": config.num_warps, "num_stages": config.num_stages}
    launch = Launch(_template_kernel, (Slot.A, Slot.B, Slot.C), (tiles_of(problem, config),), meta)
    return Plan(problem, placement, (launch,))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: StudyConfig | None = None,
) -> Tensor:
    """C [M, N] = relu(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    Raises ValueError for what `supports` refuses, an epilogue other than ReLU for one.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: StudyConfig) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="template",
    variant="",
    language=Language.PUBLISHED_TRITON,
    protocol=Protocol.DATA_PARALLEL,
    launch=matmul,
    config_type=StudyConfig,
    space=lambda problem: Space((CONFIG,)),
    default_config=lambda problem: CONFIG,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
    on_request=True,
)
