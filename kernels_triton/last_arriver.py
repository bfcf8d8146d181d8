"""Split-K with a last arriver: every split writes its partial sum; the last of a tile to arrive sums them all.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]            fp32, one program a tile and band
    last arriver   C[m, n] = epilogue(sum over s of partials[s, m, n])       in split order, one rounding

Grid         (tiles of C in group-major order, split_k)
Who sums     a program its band; the last program of a tile the bands, whichever it is, its own read back with the rest
Deterministic yes: split order is summation order, whoever sums
Workspace    4 * split_k * M * N bytes, written and read once; one int32 a tile, zero before a launch and after it
Launches     1

No program waits for another. The partials are those of decompose-K; what differs is who sums them, and when: each tile
by one program as soon as it is complete, instead of all of them by a second launch. The last arriver loads several
partials before it adds the first, as the way to L2 and back would else be made split_k times. One split takes neither
partials nor counter.

Source: CUTLASS' "split-K parallel" reduction moved into the product, as in the fix-up of stream-K (arXiv 2301.03598).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from common import workspace
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, band_steps, splits
from common.problem import Matmul
from common.protocol import Protocol
from kernels_triton import band
from kernels_triton.arrival import announce, is_last, reset, sum_in_order, supports, tiles_in_flight
from kernels_triton.band import BandConfig, band_product, finish, tile_of


def configs(problem: Matmul) -> list[BandConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return band.space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """Two programs on each of Hopper's 132 multiprocessors."""
    return BandConfig(*band.default_tile(problem, most_splits=32))


@triton.jit(do_not_specialize=["m", "split_k", "band_steps", "ticket"])
def _matmul_last_arriver_kernel(
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
    TILES: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    if SPLIT:
        counter_ptr = counters_ptr + tl.program_id(0)
        announce(counter_ptr, ticket)
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
        partial_ptrs = partials_ptr + offs_m[:, None].to(tl.int64) * n + offs_n[None, :]  # of split 0
        elements = tl.cast(m, tl.int64) * n
        tl.store(partial_ptrs + split * elements, acc, mask=mask)
        if is_last(counter_ptr, ticket, split_k):
            acc = sum_in_order(partial_ptrs, elements, split_k, mask, TILES)
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
            reset(counter_ptr)


def _launch(problem: Matmul, config: BandConfig, tensors, in_strides, out_strides, ticket, start):
    """tensors: a, b, bias, out, counters, partials."""
    start(
        _matmul_last_arriver_kernel,
        band.grid(problem, config),
        *band.operands(problem, config, *tensors[:2]),
        *tensors[2:],
        *(problem.m, problem.n, problem.k, *in_strides, *out_strides, config.split_k),
        *(band_steps(problem, config), ticket),
        **band.meta(problem, config),
        SPLIT=config.split_k > 1,
        TILES=tiles_in_flight(config),
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
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem, config, out = band.prepared(KERNEL, a, b, epilogue, bias, out, out_dtype, config)
    counters, partials, ticket = None, None, 0
    if config.split_k > 1:
        counters, ticket = workspace.semaphores(band.grid(problem, config)[0], a.device), workspace.next_ticket()
        partials = torch.empty(config.split_k, problem.m, problem.n, dtype=torch.float32, device=a.device)
    tensors = a, b, bias, out, counters, partials
    strides = band.input_strides(problem, a, b), out.stride()
    _launch(problem, config, tensors, *strides, ticket, band.starter(warmup=False))
    return out


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    bias = problem.dtype if problem.epilogue.has_bias else None
    counters, partials = (torch.int32, torch.float32) if config.split_k > 1 else (None, None)
    tensors = problem.dtype, problem.dtype, bias, problem.out_dtype, counters, partials
    strides = band.input_strides(problem), (problem.n, 1)
    _launch(problem, config, tensors, *strides, 0, band.starter(warmup=True))


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    if config.split_k == 1:
        return 0
    return 4 * band.grid(problem, config)[0] + 4 * config.split_k * problem.m * problem.n


KERNEL = Kernel(
    name="last_arriver",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.LAST_ARRIVER,
    launch=matmul,
    config_type=BandConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    launches=1,
)
