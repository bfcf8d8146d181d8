"""Decompose-K in TLX, Triton's low-level extensions: this project's `atomic` with buffers and copies of its own.

    split s        sums[m, n] += sum over k in band s of A[m, k] * B[k, n]       atomically, in fp32
    last arriver   C[m, n] = epilogue(sums[m, n]);  sums[m, n] = 0               one rounding

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid
Who sums     a program its band in fp32 registers; the atomic units of L2 the bands
Deterministic no: the bands are added in the order in which they come
Workspace    one int32 a tile and 4 bytes an element of C, zero before a launch and after it
Launches     1

All but `ring_product` is that of kernels_triton/atomic.py. What Triton's compiler does there to a loop of loads and
dots is written here: a ring of num_stages tiles of A and of B in shared memory, cp.async groups or TMA with an mbarrier
a stage, num_stages - 1 steps ahead, and wgmma from shared memory, which `async_dot` has from 64 x 32 on. Smaller tiles
are loaded from the ring and multiplied by `tl.dot`.

triton-utlx adds TLX to a stock Triton of its own release line. Its wheel brings a .pth file that has Triton load the
plugin; on PYTHONPATH, where no .pth file is read, a sitecustomize.py has to import `_utlx_autoregister`.

Source: github.com/shreyansh26/MLSys-Experiments, decompose-k/kernels/decompose_k_tlx_kernel.py, whose tiles are 64 x 32
alone, and which adds by a descriptor. Published, on an H100 (bench_results_v3 there): median over 28 shapes 1.036
(bf16, ReLU), 1.045 (bf16), 1.027 (fp16) times as fast as that study's Triton kernel with two launches.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.rows.environment import version
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import Feed, Tile, split_tiles, splits
from triton_vs_tilus.kernels_triton import arrival, atomic, band, launching
from triton_vs_tilus.kernels_triton.arrival import announce, is_last, reset
from triton_vs_tilus.kernels_triton.band import in_units, place_of
from triton_vs_tilus.kernels_triton.configs import BandConfig
from triton_vs_tilus.kernels_triton.epilogue import finish

try:
    import utlx_plugin as tlx
except Exception as error:  # whatever a plugin raises that does not fit this Triton: the row says so
    tlx, NOT_IMPORTED = None, f"{type(error).__name__}: {error}"

PACKAGE = "triton-utlx"
LEAST_COLUMNS = 32  # of async_dot


@triton.jit
def copy_by_pointers(
    a,
    b,
    a_stage,
    b_stage,
    m,
    n,
    k_start,
    k_end,
    stride_am,
    stride_bk,
    stride_bn,
    pid_m,
    pid_n,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    NK: tl.constexpr,
):
    """Starts to copy a step of BLOCK_K from k_start on, B's tile as it is stored; zeros from k_end on. Returns the
    token of its group."""
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = k_start + tl.arange(0, BLOCK_K)
    k_mask = tl.full((BLOCK_K,), k_start < k_end, tl.int1) if EVEN_K else offs_k < k_end
    a_ptrs = a + offs_m[:, None].to(tl.int64) * stride_am + offs_k[None, :]
    if NK:
        b_ptrs = b + offs_n[:, None].to(tl.int64) * stride_bn + offs_k[None, :]
        b_mask = (offs_n < n)[:, None] & k_mask[None, :]
    else:
        b_ptrs = b + offs_k[:, None].to(tl.int64) * stride_bk + offs_n[None, :]
        b_mask = k_mask[:, None] & (offs_n < n)[None, :]
    of_b = tlx.async_load(b_ptrs, b_stage, b_mask)  # first: few rows of A, which all tiles share, are soon in L2
    of_a = tlx.async_load(a_ptrs, a_stage, (offs_m < m)[:, None] & k_mask[None, :])
    return tlx.async_load_commit_group([of_b, of_a])


@triton.jit
def copy_by_tma(
    a,
    b,
    a_stage,
    b_stage,
    arrived,
    k_start,
    k_end,
    pid_m,
    pid_n,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    NK: tl.constexpr,
):
    """Likewise by descriptors: zeros beyond the matrix, nothing from k_end on. arrived: the stage's mbarrier."""
    needed = k_start < k_end
    b_place = [pid_n * BLOCK_N, k_start] if NK else [k_start, pid_n * BLOCK_N]
    tlx.barrier_expect_bytes(arrived, (BLOCK_M + BLOCK_N) * BLOCK_K * tlx.size_of(tlx.dtype_of(a)), needed)
    tlx.async_descriptor_load(b, b_stage, b_place, arrived, needed)
    tlx.async_descriptor_load(a, a_stage, [pid_m * BLOCK_M, k_start], arrived, needed)


@triton.jit
def ring_product(
    a,
    b,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    pid_m,
    pid_n,
    split,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    NK: tl.constexpr,
    TMA: tl.constexpr,
    WGMMA: tl.constexpr,
    STAGES: tl.constexpr,
):
    """fp32 [BLOCK_M, BLOCK_N]: the tile of A @ B over band `split`, as `band_product` of kernels_triton/band.py."""
    k_begin = split * band_steps * BLOCK_K
    k_end = min(k_begin + band_steps * BLOCK_K, k)
    n, k_end, stride_am, stride_bk, stride_bn = in_units(n, k_end, stride_am, stride_bk, stride_bn, UNITS)
    a_ring = tlx.local_alloc((BLOCK_M, BLOCK_K), tlx.dtype_of(a), STAGES)
    b_ring = tlx.local_alloc((BLOCK_N, BLOCK_K) if NK else (BLOCK_K, BLOCK_N), tlx.dtype_of(b), STAGES)
    if TMA:
        arrived = tlx.alloc_barriers(STAGES)
    else:
        groups = ()  # on their way, the oldest first
    # fmt: off
    for step in tl.static_range(STAGES - 1):
        if TMA:
            copy_by_tma(
                a, b, a_ring[step], b_ring[step], arrived[step], k_begin + step * BLOCK_K, k_end,
                pid_m, pid_n, BLOCK_M, BLOCK_N, BLOCK_K, NK,
            )
        else:
            group = copy_by_pointers(
                a, b, a_ring[step], b_ring[step], m, n, k_begin + step * BLOCK_K, k_end,
                stride_am, stride_bk, stride_bn, pid_m, pid_n, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, NK,
            )
            groups += (group,)  # type: ignore[assignment]
    # fmt: on
    acc = tl.zeros((BLOCK_N, BLOCK_M) if SWAP else (BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(k_end - k_begin, BLOCK_K), num_stages=0):  # pipelined here
        stage = step % STAGES
        if TMA:
            tlx.barrier_wait(arrived[stage], step // STAGES & 1)
        else:
            # Without the token of the group the compiler makes it a wait for all.
            tlx.async_load_wait_group(STAGES - 2, [groups[0]])  # type: ignore[misc]
        a_tile = a_ring[stage]
        b_tile = tlx.local_trans(b_ring[stage]) if NK else b_ring[stage]
        if SWAP:
            rows, columns = tlx.local_trans(b_tile), tlx.local_trans(a_tile)
        else:
            rows, columns = a_tile, b_tile
        if WGMMA:
            acc = tlx.async_dot_wait(1, tlx.async_dot(rows, columns, acc))  # the step before is multiplied
        else:
            acc = tl.dot(tlx.local_load(rows), tlx.local_load(columns), acc)
        ahead = step + STAGES - 1  # into the stage of the step before
        a_next, b_next = a_ring[ahead % STAGES], b_ring[ahead % STAGES]
        # fmt: off
        if TMA:
            copy_by_tma(
                a, b, a_next, b_next, arrived[ahead % STAGES], k_begin + ahead * BLOCK_K, k_end,
                pid_m, pid_n, BLOCK_M, BLOCK_N, BLOCK_K, NK,
            )
        else:
            group = copy_by_pointers(
                a, b, a_next, b_next, m, n, k_begin + ahead * BLOCK_K, k_end,
                stride_am, stride_bk, stride_bn, pid_m, pid_n, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, NK,
            )
            groups = groups[1:] + (group,)  # type: ignore[assignment] # noqa: RUF005 (Triton knows no unpacking)
        # fmt: on
    if WGMMA:
        acc = tlx.async_dot_wait(0, acc)
    if not TMA:
        tlx.async_load_wait_group(0)  # of zeros past k_end: what follows may take the ring's memory
    return acc.T if SWAP else acc


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
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    NK: tl.constexpr,
    TMA: tl.constexpr,
    WGMMA: tl.constexpr,
    STAGES: tl.constexpr,
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
    acc = ring_product(
        a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, split, band_steps,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, UNITS, SWAP, NK, TMA, WGMMA, STAGES,
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


@dataclass(frozen=True)
class TLXConfig(BandConfig):
    """As BandConfig."""

    @staticmethod
    def own_fields(feed: Feed, transposed: bool) -> dict[str, bool] | str:
        if feed is Feed.TMA_PAIRS:
            return "triton-utlx addresses no barrier of another block: a stock Triton has no operation for it"
        return BandConfig.own_fields(feed, transposed)


def config_of(tile: Tile, split_k: int) -> TLXConfig | str:
    """The config of a wanted tile, or why there is none."""
    own = TLXConfig.own_fields(tile.feed, tile.transposed)
    if isinstance(own, str):
        return own
    return TLXConfig(*(tile.block_m, tile.block_n, tile.block_k, split_k, tile.num_warps, tile.num_stages), **own)


def space(problem: Matmul) -> Space:
    """Every wanted tile with every wanted split, as of `atomic`."""
    return split_tiles(problem, splits(problem), config_of, lambda config: supports(problem, config))


def default_config(problem: Matmul) -> TLXConfig:
    """That of `atomic`."""
    return TLXConfig(**vars(atomic.default_config(problem)))


def supports(problem: Matmul, config: TLXConfig | None = None) -> str | None:
    """Products of half precision whose rows are words, where TLX can be imported."""
    if tlx is None:
        return _lacks()
    if problem.dtype.itemsize != 2:
        return f"dtype is {problem.dtype}; accepted: bf16 and fp16, which async_dot multiplies in fp32"
    if any(row % 2 for row in _rows(problem)):
        return f"rows of A and B are {_rows(problem)} elements; accepted: even numbers, as cp.async copies 4 bytes"
    if config is not None and config.num_stages < 2:
        return f"num_stages is {config.num_stages}; accepted: 2 or more, of which one is multiplied from"
    if config is not None and config.fed.instruction == "wgmma":
        columns = config.block_m if config.swap else config.block_n
        if columns < LEAST_COLUMNS:
            return f"wgmma has {columns} columns; accepted: {LEAST_COLUMNS} or more, as async_dot takes no fewer"
    return arrival.supports(problem, config)


def _lacks() -> str:
    """Why TLX cannot be imported."""
    if (found := version(PACKAGE)) is None:
        return f"{PACKAGE} is not installed: pip install {PACKAGE}, of the release line of a stock Triton from 3.8 on"
    return f"{PACKAGE} {found} cannot be imported with Triton {triton.__version__}: {NOT_IMPORTED}"


def _rows(problem: Matmul) -> tuple[int, int]:
    """The elements of a row of A, and of one of B as it is stored."""
    return problem.k, problem.k if problem.layout is Layout.NK else problem.n


def workspace_bytes(problem: Matmul, config: TLXConfig) -> int:
    return atomic.workspace_bytes(problem, config)


def plan(problem: Matmul, config: TLXConfig, placement: Placement) -> Plan:
    """What a call launches. Raises ValueError for tensors whose rows are no words."""
    rows = placement.stride_am, max(placement.in_strides[1:])
    if placement.align_a % 4 or placement.align_b % 4 or any(row % 2 for row in rows):
        raise ValueError(
            f"tensors lie as {placement}; accepted: rows that begin at words of 4 bytes, as cp.async copies"
        )
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
        {
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "EVEN_K": problem.k % config.block_k == 0,
            "UNITS": band.units_of(problem, placement),
            "SWAP": config.swap,
            "NK": problem.layout is Layout.NK,
            "TMA": config.tma,
            "WGMMA": config.fed.instruction == "wgmma",
            "STAGES": config.num_stages,
            "SPLIT": split,
            "EPILOGUE": problem.epilogue.value,
            "num_warps": config.num_warps,
        },
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
    config: TLXConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: TLXConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="decompose_k",
    variant="",
    language=Language.TLX,
    protocol=Protocol.ATOMIC,
    launch=matmul,
    config_type=TLXConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=False,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    launches=1,
    note=lambda: f"{PACKAGE} {version(PACKAGE)}",
    on_request=True,
    plan=plan,
    backend=launching.BACKEND,
)
KERNELS = (KERNEL,)
