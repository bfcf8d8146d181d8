"""Split-K with atomic adds: every split adds to one fp32 sum; the last of a tile to arrive finishes it.

    split s        sums[m, n] += sum over k in band s of A[m, k] * B[k, n]       atomically, in fp32
    last arriver   C[m, n] = epilogue(sums[m, n]);  sums[m, n] = 0               one rounding

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid
Who sums     a program its band in fp32 registers; the atomic units of L2 the bands
Deterministic no: the bands are added in the order in which they come
Workspace    one int32 a tile and 4 bytes an element of C, zero before a launch and after it
Launches     1

No program waits for another. Nothing is zeroed per call: the last arriver restores the zeros. One split takes neither
sums nor counter.

Source: the single-launch kernel (TLX) of the decompose-K study, without its descriptors, whose adds a counter does not
follow before Triton 3.8; the split-K kernel of "Accelerating a Triton Fused Kernel for W4A16 Quantized Inference
with SplitK Work Decomposition" (arXiv 2402.00025), which adds in C's dtype and has no epilogue.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import splits
from triton_vs_tilus.kernels_triton import arrival, band, configs, launching
from triton_vs_tilus.kernels_triton.arrival import announce, is_last, reset
from triton_vs_tilus.kernels_triton.band import band_product, place_of
from triton_vs_tilus.kernels_triton.configs import BandConfig, band_space
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul) -> Space:
    """Every wanted tile with every wanted split."""
    return band_space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """At most 128 splits."""
    return configs.default_config(problem, most_splits=128)


supports = arrival.supports


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    return 0 if config.split_k == 1 else 4 * tiles_of(problem, config) + 4 * problem.m * problem.n


@triton.jit(
    do_not_specialize=["m", "group_m", "split_k", "band_steps", "ticket"], do_not_specialize_on_alignment=["groups"]
)
def _matmul_atomic_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    counters_ptr,
    sums_ptr,
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
    EPILOGUE: tl.constexpr,
):
    pid_m, pid_n, split = place_of(group_m, groups)
    if groups > 1:  # noqa: SIM102 (known to the compiler where it is 1)
        if pid_m * BLOCK_M >= m:  # the last group may have fewer rows
            return
    if SPLIT:
        counter_ptr = counters_ptr + pid_n * tl.cdiv(m, BLOCK_M) + pid_m
        announce(counter_ptr, ticket)
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
        sums_ptrs = sums_ptr + offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
        tl.atomic_add(sums_ptrs, acc, mask=mask, sem="relaxed", scope="gpu")
        if is_last(counter_ptr, ticket, split_k):
            acc = tl.load(sums_ptrs, mask=mask, other=0.0, cache_modifier=".cg")
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
            tl.debug_barrier()  # an element may be loaded by one thread and zeroed by another
            tl.store(sums_ptrs, tl.zeros_like(acc), mask=mask)
            reset(counter_ptr)


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    grid = grid_of(problem, config)
    split = config.split_k > 1
    launch = Launch(
        _matmul_atomic_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, *((Slot.COUNTERS, Slot.SUMS) if split else (None, None))),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid.group_m, grid.groups, config.split_k),
            *(band_steps(problem.k, config.block_k, config.split_k), Slot.TICKET),
        ),
        grid.blocks,
        {**band.meta(problem, config, placement), "SPLIT": split, "EPILOGUE": problem.epilogue.value},
        band.described(problem, config, placement),
    )
    if not split:
        return Plan(problem, placement, (launch,))
    return Plan(problem, placement, (launch,), counters=tiles_of(problem, config), sums=problem.m * problem.n)


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
    name="atomic",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.ATOMIC,
    launch=matmul,
    config_type=BandConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=False,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
