"""No split: one program walks all of K.

    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])        fp32, then one rounding

Grid         (rows of tiles in a group, tiles of N, groups), x fastest: blocks that run together share rows of A and
             columns of B in L2: common.kernel.Grid
Who sums     a program its tile, in steps of block_k
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

What every split is held against: a skinny product has fewer tiles than the GPU has multiprocessors, and most of them
stand idle here.

Source: Triton tutorial "Matrix Multiplication" (03-matrix-multiplication), with masks instead of wrapped offsets.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, grid_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.band import place_of, range_product
from triton_vs_tilus.kernels_triton.configs import BandConfig, band_space
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul) -> Space:
    """Every wanted tile."""
    return band_space(problem, (1,))


def default_config(problem: Matmul) -> BandConfig:
    """One split."""
    return configs.default_config(problem, most_splits=1)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and there is one band."""
    if config is not None and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1, as nothing is split"
    return configs.supports(problem, config)


@triton.jit(do_not_specialize=["m", "group_m"], do_not_specialize_on_alignment=["groups"])
def _matmul_data_parallel_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    group_m,
    groups,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    pid_m, pid_n, _ = place_of(group_m, groups)
    if groups > 1:  # noqa: SIM102 (known to the compiler where it is 1)
        if pid_m * BLOCK_M >= m:  # the last group may have fewer rows
            return
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    acc = range_product(
        a_ptr, b_ptr, m, n, 0, k, stride_am, stride_bk, stride_bn, pid_m, pid_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
    )
    # fmt: on
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    grid = grid_of(problem, config)
    launch = Launch(
        _matmul_data_parallel_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid.group_m, grid.groups),
        ),
        grid.blocks,
        {**band.meta(problem, config, placement), "EPILOGUE": problem.epilogue.value},
        band.described(problem, config, placement),
    )
    return Plan(problem, placement, (launch,))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: BandConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="data_parallel",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.DATA_PARALLEL,
    launch=matmul,
    config_type=BandConfig,
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
)
