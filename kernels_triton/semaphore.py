"""Split-K with turns: the splits of a tile add to the same place, in split order, behind a semaphore.

    split 0        running[m, n]  = sum over k in band 0 of A[m, k] * B[k, n]
    split s > 0    wait for turn s;  running[m, n] += sum over k in band s of A[m, k] * B[k, n]
    last split     C[m, n] = epilogue(running[m, n])

Grid         (tiles of C in group-major order, split_k), split slowest: lower splits start first, as waiting needs
Who sums     every program its band in fp32 registers, then its turn; the hand-over is through L2
Deterministic yes: split order is summation order
Workspace    one int32 a tile; the fp32 variant 4 bytes an element of C more
Launches     1

Two variants: *in_place*, the running sum stands in C and is rounded to C's dtype at every turn; *fp32*, it stands in
an fp32 workspace and is rounded once. One split takes no semaphore.

Triton 3.6 and 3.7 have no loads with an order: a program waits by an atomic compare-and-swap that acquires, and hands
over by an atomic exchange that releases. Turns are numbered from a ticket of the launch's own (common/workspace.py).

Source: tilus tutorial "Split-K" (matmul_v5), whose protocol this is; CUTLASS' semaphore.h before it.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from common import workspace
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, band_steps
from common.problem import Matmul
from common.protocol import Protocol
from kernels_triton import band
from kernels_triton.band import BandConfig, band_product, finish, tile_of

# A chain of turns is as long as the split: few and wide bands.
SPLITS = (1, 2, 3, 4, 6, 8)


def configs(problem: Matmul) -> list[BandConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return band.space(problem, SPLITS)


def default_config(problem: Matmul) -> BandConfig:
    """At most four turns."""
    return BandConfig(*band.default_tile(problem, most_splits=4))


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and a ticket must have as many turns as there are splits."""
    if config is not None and config.split_k >= 1 << workspace.TICKET_BITS:
        return f"split_k is {config.split_k}: a ticket has {1 << workspace.TICKET_BITS} turns"
    return band.supports(problem, config)


@triton.jit(do_not_specialize=["m", "split_k", "band_steps", "ticket"])
def _matmul_semaphore_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    running_ptr,
    semaphores_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    split_k,
    band_steps,
    ticket,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SPLIT: tl.constexpr,
    IN_PLACE: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
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
    if not SPLIT:
        finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
    else:
        mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
        if IN_PLACE:
            running_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
        else:
            running_ptrs = running_ptr + offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
        semaphore_ptr = semaphores_ptr + tl.program_id(0)

        if split > 0:
            turn = ticket + split
            while tl.atomic_cas(semaphore_ptr, turn, turn, sem="acquire", scope="gpu") != turn:
                pass
            # Past the level 1 cache, which no other multiprocessor's stores reach.
            acc += tl.load(running_ptrs, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)

        if split + 1 < split_k:
            tl.store(running_ptrs, acc.to(running_ptrs.dtype.element_ty), mask=mask)
            tl.debug_barrier()  # every thread's store comes before the one thread that hands over
            tl.atomic_xchg(semaphore_ptr, ticket + split + 1, sem="release", scope="gpu")
        else:
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
            tl.debug_barrier()
            tl.atomic_xchg(semaphore_ptr, 0, sem="release", scope="gpu")


def _launch(problem: Matmul, config: BandConfig, in_place: bool, tensors, in_strides, out_strides, ticket, start):
    """tensors: a, b, bias, out, running, semaphores."""
    start(
        _matmul_semaphore_kernel,
        band.grid(problem, config),
        *band.operands(problem, config, *tensors[:2]),
        *tensors[2:],
        *(problem.m, problem.n, problem.k, *in_strides, *out_strides, config.split_k),
        *(band_steps(problem, config), ticket),
        **band.meta(problem, config),
        SPLIT=config.split_k > 1,
        IN_PLACE=in_place,
        EPILOGUE=problem.epilogue.value,
    )


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'in_place' or 'fp32', where the running sum stands.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem, config, out = band.prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)
    running, semaphores, ticket = None, None, 0
    if config.split_k > 1:
        semaphores, ticket = workspace.semaphores(band.grid(problem, config)[0], a.device), workspace.next_ticket()
        if variant == "fp32":
            running = torch.empty(problem.m, problem.n, dtype=torch.float32, device=a.device)
    tensors = a, b, bias, out, running, semaphores
    strides = band.input_strides(problem, a, b), out.stride()
    _launch(problem, config, variant == "in_place", tensors, *strides, ticket, band.starter(warmup=False))
    return out


def build(problem: Matmul, config: BandConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    bias = problem.dtype if problem.epilogue.has_bias else None
    semaphores = torch.int32 if config.split_k > 1 else None
    running = torch.float32 if variant == "fp32" and config.split_k > 1 else None
    tensors = problem.dtype, problem.dtype, bias, problem.out_dtype, running, semaphores
    strides = band.input_strides(problem), (problem.n, 1)
    _launch(problem, config, variant == "in_place", tensors, *strides, 0, band.starter(warmup=True))


def workspace_bytes(problem: Matmul, config: BandConfig, *, variant: str) -> int:
    if config.split_k == 1:
        return 0
    running = 0 if variant == "in_place" else 4 * problem.m * problem.n
    return 4 * band.grid(problem, config)[0] + running


KERNELS = tuple(
    Kernel(
        name="semaphore",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.SERIAL,
        launch=partial(matmul, variant=variant),
        config_type=BandConfig,
        configs=configs,
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=supports,
        deterministic=True,
        roundings=(lambda config: config.split_k) if variant == "in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        launches=1,
    )
    for variant in ("in_place", "fp32")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
