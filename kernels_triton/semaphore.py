"""Split-K with turns: the splits of a tile add to the same place, in split order, behind a semaphore.

    split 0        running[m, n]  = sum over k in band 0 of A[m, k] * B[k, n]
    split s > 0    wait for turn s;  running[m, n] += sum over k in band s of A[m, k] * B[k, n]
    last split     C[m, n] = epilogue(running[m, n])

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid,
             the split slowest: waiting relies on lower splits starting first, which CUDA does not promise
Who sums     every program its band in fp32 registers, then its turn; the hand-over is through L2
Deterministic yes: split order is summation order
Workspace    one int32 a tile; the fp32 variant 4 bytes an element of C more
Launches     1

Two variants: *in_place*, the running sum stands in C and is rounded to C's dtype at every turn; *fp32*, it stands in
an fp32 workspace and is rounded once. One split takes no semaphore.

Triton before 3.9 has no load or store with an order: a program waits by an atomic compare-and-swap that acquires, and
hands over by an exchange that releases. Turns are numbered from a ticket of the launch's own (common/workspace.py).

Source: tilus tutorial "Split-K" (matmul_v5), whose protocol this is; CUTLASS' semaphore.h before it.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import TURNS
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.arrival import reset
from triton_vs_tilus.kernels_triton.band import band_product, place_of
from triton_vs_tilus.kernels_triton.configs import BandConfig, band_space
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul) -> Space:
    """Every wanted tile, with few splits: they form a chain."""
    return band_space(problem, TURNS)


def default_config(problem: Matmul) -> BandConfig:
    """At most 4 splits."""
    return configs.default_config(problem, most_splits=4)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and a ticket must have as many turns as there are splits."""
    return workspace.too_many_turns(config.split_k if config else 1) or configs.supports(problem, config)


def workspace_bytes(problem: Matmul, config: BandConfig, *, variant: str) -> int:
    if config.split_k == 1:
        return 0
    running = 0 if variant == "in_place" else 4 * problem.m * problem.n
    return 4 * tiles_of(problem, config) + running


@triton.jit(
    do_not_specialize=["m", "group_m", "split_k", "band_steps", "ticket"], do_not_specialize_on_alignment=["groups"]
)
def _matmul_semaphore_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    semaphores_ptr,
    running_ptr,
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
    split_k,
    band_steps,
    ticket,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
    SPLIT: tl.constexpr,
    IN_PLACE: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    pid_m, pid_n, split = place_of(group_m, groups)
    if groups > 1:  # noqa: SIM102 (known to the compiler where it is 1)
        if pid_m * BLOCK_M >= m:  # the last group may have fewer rows
            return
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    acc = band_product(
        a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, split, band_steps,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
    )
    # fmt: on
    if not SPLIT:
        finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
    else:
        mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
        if IN_PLACE:
            running_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
        else:
            running_ptrs = running_ptr + offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
        semaphore_ptr = semaphores_ptr + pid_n * tl.cdiv(m, BLOCK_M) + pid_m

        if split > 0:
            turn = ticket + split
            while tl.atomic_cas(semaphore_ptr, turn, turn, sem="acquire", scope="gpu") != turn:
                pass
            # .cg as it is read once; the acquire alone orders it (notes/semaphore.md).
            acc += tl.load(running_ptrs, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)

        if split + 1 < split_k:
            tl.store(running_ptrs, acc.to(running_ptrs.dtype.element_ty), mask=mask)
            tl.debug_barrier()  # every thread's store comes before the one thread that hands over
            tl.atomic_xchg(semaphore_ptr, ticket + split + 1, sem="release", scope="gpu")
        else:
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
            reset(semaphore_ptr)  # for the next launch, which waits for the end of this one: no release


def plan(problem: Matmul, config: BandConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    grid = grid_of(problem, config)
    split, in_place = config.split_k > 1, variant == "in_place"
    running = Slot.SCRATCH if split and not in_place else None
    launch = Launch(
        _matmul_semaphore_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, Slot.COUNTERS if split else None, running),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid.group_m, grid.groups, config.split_k),
            *(band_steps(problem.k, config.block_k, config.split_k), Slot.TICKET),
        ),
        grid.blocks,
        {
            **band.meta(problem, config, placement),
            "SPLIT": split,
            "IN_PLACE": in_place,
            "EPILOGUE": problem.epilogue.value,
        },
        band.described(problem, config, placement),
    )
    if not split:
        return Plan(problem, placement, (launch,))
    scratch = () if in_place else (problem.m, problem.n)
    return Plan(problem, placement, (launch,), counters=tiles_of(problem, config), scratch=scratch)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: BandConfig | None = None,
    variant: str = "in_place",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'in_place' or 'fp32', where the running sum stands.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="semaphore",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.SERIAL,
        launch=partial(matmul, variant=variant),
        config_type=BandConfig,
        space=space,
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=supports,
        deterministic=True,
        roundings=(lambda config: config.split_k) if variant == "in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
    )
    for variant in ("in_place", "fp32")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
