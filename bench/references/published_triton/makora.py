"""Makora's product of matrices, as published: written by a generator of kernels, one config.

    C[m, n] = sum over k of A[m, k] * B[k, n]           fp32 inside, one rounding

Grid         (tiles of C along M, tiles along N): rows of tiles run fastest
Deterministic yes
Workspace    none
Launches     1

As there: 128 x 128 x 32, Triton's default warps and stages, a mask on all three sizes, and a `while` loop over K that
works out its pointers anew at each step. Triton pipelines `for` loops alone. Left out: the copies of operands that are
not contiguous; B stored [N, K], which is always copied there, sits out. Source: operators/bf16_matmul/mako_kernel.py
in the repository of the kernel-generation study (LironKesem/KernelGeneration), whose document does not show it. What
was decided here: notes/as_published.md.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig, Space, cdiv, too_many_blocks
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching

CONFIG = MatmulConfig(block_m=128, block_n=128, block_k=32, split_k=1, num_warps=4, num_stages=3)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """Half precision, B stored [K, N], no epilogue, offsets of 32 bits."""
    return (
        as_published.fp32_as_tf32(problem)
        or as_published.kn_alone(problem)
        or as_published.no_epilogue(problem)
        or as_published.offsets_of_32_bits(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n)
        or as_published.one_config(config, CONFIG)
        or too_many_blocks({"N": cdiv(problem.n, CONFIG.block_n)})
    )


@triton.jit
def _matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m, in_n = offs_m[:, None] < m, offs_n[None, :] < n
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    start = 0
    while start < k:
        offs_k = start + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=in_m & (offs_k[None, :] < k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < k) & in_n, other=0.0)
        acc += tl.dot(a, b, out_dtype=tl.float32)
        start += BLOCK_K

    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def plan(problem: Matmul, config: MatmulConfig, placement: Placement) -> Plan:
    """What a call launches."""
    sizes = problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides
    meta = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    meta |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    grid = cdiv(problem.m, config.block_m), cdiv(problem.n, config.block_n)
    launch = Launch(_matmul_kernel, (Slot.A, Slot.B, Slot.C, *sizes), grid, meta)
    return Plan(problem, placement, (launch,))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: MatmulConfig | None = None,
) -> Tensor:
    """C [M, N] = a [M, K] @ b [K, N]; common.checks.matmul_problem says what is accepted and raised.

    Raises ValueError for what `supports` refuses.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: MatmulConfig) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="matmul",
    variant="makora",
    language=Language.PUBLISHED_TRITON,
    protocol=Protocol.DATA_PARALLEL,
    launch=matmul,
    config_type=MatmulConfig,
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
