"""Stream-K: a fixed number of programs, each with an even share of all steps of K of all tiles.

    steps = ceil(K / block_k) a tile;  the tiles' steps one after the other;  program p walks the p-th share of them
    a tile of one program    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])
    a tile of several        partials[p + tile, m, n] = sum over p's steps of the tile of A[m, k] * B[k, n]
                             last arriver: C[m, n] = epilogue(sum over p of partials[p + tile, m, n])

Grid         (programs,), no more than there are steps
Who sums     a program its steps, tile after tile; the last program of a shared tile the partial sums, in their order
             along K, whichever it is
Deterministic yes: shares are settled by sizes and config, and their order along K is summation order
Workspace    4 * (programs + tiles - 1) * block_m * block_n bytes, those of shared tiles written and read once; one
             int32 a tile, zero before a launch and after it
Launches     1

Shares differ by one step at most, so that programs end together however many tiles there are: the split of a tile need
not be a whole number, nor the same for all. `programs` takes the place of `split_k`. No program waits for another.

A segment of the walk begins where a program does and where a tile does: p + tile numbers them one after the other, so
that the partials of a tile stand next to each other.

Source: "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU" (Osama et al.,
arXiv 2301.03598); there the owner of a tile's first step waits for the others, here the last to arrive sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, cdiv, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import DEFAULT_PROGRAMS, programs_space, too_many_steps
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.arrival import announce, is_last, reset, sum_in_order, tiles_in_flight
from triton_vs_tilus.kernels_triton.band import range_product, tile_of
from triton_vs_tilus.kernels_triton.configs import BandConfig, ProgramsConfig, band_space
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul) -> Space:
    """Every wanted tile, with 1 to 4 programs on each multiprocessor where each then has 2 steps or more."""
    return programs_space(
        band_space(problem, (1,)),
        ProgramsConfig,
        lambda config: supports(problem, config),
        most=lambda tile: _work(problem, tile) // 2,
    )


def default_config(problem: Matmul) -> ProgramsConfig:
    """Two programs on each of Hopper's 132 multiprocessors."""
    return ProgramsConfig(**vars(configs.default_config(problem, most_splits=1)), programs=DEFAULT_PROGRAMS)


def supports(problem: Matmul, config: ProgramsConfig | None = None) -> str | None:
    """As the product of every band kernel; and a ticket must have room for as many arrivals as a tile has programs."""
    if config is not None and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1, as K is shared out by programs"
    if config is not None and not 1 <= config.programs < 1 << workspace.TICKET_BITS:
        return f"programs is {config.programs}; accepted: 1 to {(1 << workspace.TICKET_BITS) - 1}, as a ticket counts"
    return too_many_steps(problem, config or default_config(problem)) or configs.supports_product(problem, config)


def workspace_bytes(problem: Matmul, config: ProgramsConfig) -> int:
    tiles = tiles_of(problem, config)
    return 4 * tiles + 4 * (_programs(problem, config) + tiles - 1) * config.block_m * config.block_n


def _work(problem: Matmul, config: BandConfig) -> int:
    """Steps of all tiles."""
    return tiles_of(problem, config) * cdiv(problem.k, config.block_k)


def _programs(problem: Matmul, config: ProgramsConfig) -> int:
    """Each has a step at least."""
    return min(config.programs, _work(problem, config))


@triton.jit
def share_begin(program, share, longer):
    """The first step of a program's share: `share` steps, and one more for the first `longer` programs."""
    return program * share + min(program, longer)


@triton.jit
def program_of(step, share, longer):
    """The program whose share `step` lies in: the first term counts the longer shares, and is the larger one until
    they end."""
    return max(step // (share + 1), (step - longer) // share)


# steps: K in steps of BLOCK_K, as an argument, since K = 1 is a constant of the compiler, and on what folds from it
# Triton 3.6 stops in TritonGPUCoalesce.
@triton.jit(do_not_specialize=["m", "group_m", "steps", "share", "longer", "ticket"])
def _matmul_stream_k_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    counters_ptr,
    partials_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    group_m,
    steps,
    share,
    longer,
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
    TILES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    program = tl.program_id(0)
    begin = share_begin(program, share, longer)
    end = share_begin(program + 1, share, longer)
    for tile in range(begin // steps, tl.cdiv(end, steps)):
        shared = (begin > tile * steps) | (end < (tile + 1) * steps)
        if shared:
            announce(counters_ptr + tile, ticket)
        pid_m, pid_n = tile_of(tile, m, n, BLOCK_M, BLOCK_N, group_m)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        k_begin = (max(begin, tile * steps) - tile * steps) * BLOCK_K
        k_end = min((min(end, (tile + 1) * steps) - tile * steps) * BLOCK_K, k)
        # fmt: off
        acc = range_product(
            a_ptr, b_ptr, m, n, k_begin, k_end, stride_am, stride_bk, stride_bn, pid_m, pid_n,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
        )
        # fmt: on
        if not shared:
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
        else:
            # Who shares the tile is worked out behind the product: loads would wait for the divisions.
            first_program = program_of(tile * steps, share, longer)
            sharers = program_of((tile + 1) * steps - 1, share, longer) - first_program + 1
            mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
            elements = tl.cast(BLOCK_M * BLOCK_N, tl.int64)
            offs = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            tl.store(partials_ptr + (program + tile) * elements + offs, acc, mask=mask)
            if is_last(counters_ptr + tile, ticket, sharers):
                first_ptrs = partials_ptr + (first_program + tile) * elements + offs
                acc = sum_in_order(first_ptrs, elements, sharers, mask, TILES)
                finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
                reset(counters_ptr + tile)


def plan(problem: Matmul, config: ProgramsConfig, placement: Placement) -> Plan:
    """What a call launches."""
    programs, tiles = _programs(problem, config), tiles_of(problem, config)
    share, longer = divmod(_work(problem, config), programs)
    launch = Launch(
        _matmul_stream_k_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, Slot.COUNTERS, Slot.SCRATCH),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid_of(problem, config).group_m, cdiv(problem.k, config.block_k), share, longer, Slot.TICKET),
        ),
        (programs,),
        {
            **band.meta(problem, config, placement),
            "TILES": tiles_in_flight(config),
            "EPILOGUE": problem.epilogue.value,
        },
        band.described(problem, config, placement),
    )
    segments = programs + tiles - 1
    scratch = segments, config.block_m, config.block_n
    return Plan(problem, placement, (launch,), scratch=scratch, counters=tiles)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: ProgramsConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: ProgramsConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="stream_k",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.STREAM_K,
    launch=matmul,
    config_type=ProgramsConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
