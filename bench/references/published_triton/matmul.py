"""Triton's tutorial product of matrices, as published: programs in groups of rows of tiles, 16 configs.

    C[m, n] = sum over k of A[m, k] * B[k, n]           fp32 inside, one rounding

Grid         one program a tile of C, GROUP_SIZE_M rows of tiles at a time, column by column
Deterministic yes
Workspace    none
Launches     1

As there, rows of A and columns of B past the end wrap around in the place of masks, and only K is masked. Source:
Triton's tutorial "Matrix Multiplication" (03-matrix-multiplication), the kernel that the kernel-generation study holds
against eager torch. What was decided here: notes/as_published.md.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.bench.references.published_triton.grouping import tile_of
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import GroupedConfig, Kernel, Language, Space, space_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.configs import SHARED_MEMORY_LIMIT


@dataclass(frozen=True)
class TutorialConfig(GroupedConfig):
    """Each is compiled for itself."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ()


# (block_m, block_n, block_k, num_warps, num_stages), in groups of 8 rows; the last 8 are those meant for fp8.
TILES = (
    (128, 256, 64, 8, 3),
    (64, 256, 32, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 64, 32, 4, 4),
    (64, 128, 32, 4, 4),
    (128, 32, 32, 4, 4),
    (64, 32, 32, 2, 5),
    (32, 64, 32, 2, 5),
    (128, 256, 128, 8, 3),
    (256, 128, 128, 8, 3),
    (256, 64, 128, 4, 4),
    (64, 256, 128, 4, 4),
    (128, 128, 128, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 32, 64, 4, 4),
)
CONFIGS = tuple(TutorialConfig(m, n, k, 1, warps, stages) for m, n, k, warps, stages in TILES)


def space(problem: Matmul) -> Space:
    """The tutorial's configs that fit; its autotuner passes over the others."""
    return space_of(CONFIGS, partial(supports, problem))


def default_config(problem: Matmul) -> TutorialConfig:
    """The first of the tutorial's list, as it searches."""
    return CONFIGS[0]


def supports(problem: Matmul, config: TutorialConfig | None = None) -> str | None:
    """Half precision, no epilogue, offsets of 32 bits; of configs the tutorial's that fit shared memory."""
    if reason := as_published.fp32_as_tf32(problem):
        return reason
    if problem.epilogue is not Epilogue.NONE:
        return f"as published, it fuses a leaky ReLU or nothing, not {problem.epilogue.value}"
    if reason := as_published.offsets_of_32_bits(problem.m * problem.k, problem.k * problem.n, problem.m * problem.n):
        return reason
    if config is None:
        return None
    if config not in CONFIGS:
        return f"none of the {len(CONFIGS)} configs of the tutorial"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    return None


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
    GROUP_M: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    offs_k = tl.arange(0, BLOCK_K)
    wrapped_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % m
    wrapped_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % n
    a_ptrs = a_ptr + wrapped_m[:, None] * stride_am + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + wrapped_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        left = k - step * BLOCK_K
        a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < m) & (offs_n[None, :] < n))


def plan(problem: Matmul, config: TutorialConfig, placement: Placement) -> Plan:
    """What a call launches."""
    sizes = problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides
    meta = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "BLOCK_K": config.block_k}
    meta |= {"GROUP_M": config.group_m, "num_warps": config.num_warps, "num_stages": config.num_stages}
    launch = Launch(_matmul_kernel, (Slot.A, Slot.B, Slot.C, *sizes), (tiles_of(problem, config),), meta)
    return Plan(problem, placement, (launch,))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: TutorialConfig | None = None,
) -> Tensor:
    """C [M, N] = a [M, K] @ b [K, N]; common.checks.matmul_problem says what is accepted and raised.

    Raises ValueError for what `supports` refuses.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: TutorialConfig) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="matmul",
    variant="",
    language=Language.PUBLISHED_TRITON,
    protocol=Protocol.DATA_PARALLEL,
    launch=matmul,
    config_type=TutorialConfig,
    space=space,
    default_config=default_config,
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
