"""No split: one program walks all of K.

    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])        fp32, then one rounding

Grid         (rows of tiles in a group, tiles of N, groups), x fastest: blocks that run together share rows of A and
             columns of B in L2: common.kernel.Grid; persistent: (programs,), which take the tiles in that order
Who sums     a program its tile, or its tiles one after the other, in steps of block_k
Variants     "": a program a tile; persistent: as many programs as run at once, each with every programs-th tile. Both
             loops are one to the compiler (`flatten`), so that the next tile's first steps are copied during this one
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

What every split is held against: a skinny product has fewer tiles than the GPU has multiprocessors, and most of them
stand idle here.

Source: Triton tutorials "Matrix Multiplication" (03-matrix-multiplication), with masks instead of wrapped offsets, and
"Persistent Matmul" (09-persistent-matmul).
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import programs_space
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.band import place_of, range_product, tile_of
from triton_vs_tilus.kernels_triton.configs import BandConfig, ProgramsConfig, band_space
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul) -> Space:
    """Every wanted tile."""
    return band_space(problem, (1,))


def persistent_space(problem: Matmul) -> Space:
    """Every wanted tile, with 1 to 4 programs on each multiprocessor where there are more tiles."""
    return programs_space(
        space(problem),
        ProgramsConfig,
        lambda config: supports_persistent(problem, config),
        most=lambda tile: tiles_of(problem, tile) - 1,
    )


def default_config(problem: Matmul) -> BandConfig:
    """One split."""
    return configs.default_config(problem, most_splits=1)


def persistent_default_config(problem: Matmul) -> ProgramsConfig:
    """The same, and a program on each of Hopper's 132 multiprocessors."""
    return ProgramsConfig(**vars(default_config(problem)))


def _splits(config: BandConfig | None) -> str | None:
    """Why a config that splits is none."""
    if config is None or config.split_k == 1:
        return None
    return f"split_k is {config.split_k}; accepted: 1, as nothing is split"


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and there is one band."""
    return _splits(config) or configs.supports(problem, config)


def supports_persistent(problem: Matmul, config: ProgramsConfig | None = None) -> str | None:
    """As the product of every band kernel; and a program walks tiles of its own."""
    if reason := _splits(config):
        return reason
    if config is not None and config.programs < 1:
        return f"programs is {config.programs}; accepted: 1 or more"
    return configs.supports_product(problem, config)


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


@triton.jit(do_not_specialize=["m", "group_m", "tiles"])
def _matmul_persistent_kernel(
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
    tiles,
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
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        pid_m, pid_n = tile_of(tile, m, n, BLOCK_M, BLOCK_N, group_m)
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


def persistent_plan(problem: Matmul, config: ProgramsConfig, placement: Placement) -> Plan:
    """What a call of the persistent variant launches."""
    tiles = tiles_of(problem, config)
    launch = Launch(
        _matmul_persistent_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid_of(problem, config).group_m, tiles),
        ),
        (min(config.programs, tiles),),
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
    variant: str = "",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: "", a block a tile, or 'persistent', whose blocks walk tiles, with a ProgramsConfig.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig, *, variant: str = "") -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(_BY_VARIANT[variant].plan(problem, config, contiguous(problem)))


KERNELS = tuple(
    Kernel(
        name="data_parallel",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.DATA_PARALLEL,
        launch=partial(matmul, variant=variant),
        config_type=config_type,
        space=of_problem,
        default_config=default,
        build=partial(build, variant=variant),
        supports=supported,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        plan=planned,
        backend=launching.BACKEND,
        launches=1,
        on_request=variant == "persistent",  # it differs where there are more tiles than blocks run at once
    )
    for variant, config_type, of_problem, default, supported, planned in (
        ("", BandConfig, space, default_config, supports, plan),
        (
            *("persistent", ProgramsConfig, persistent_space, persistent_default_config),
            *(supports_persistent, persistent_plan),
        ),
    )
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
