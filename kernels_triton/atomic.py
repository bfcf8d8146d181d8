"""Split-K with atomic adds: every split adds to one fp32 sum; the last of a tile to arrive finishes it.

    split s        sums[m, n] += sum over k in band s of A[m, k] * B[k, n]       atomically, in fp32
    last arriver   C[m, n] = epilogue(sums[m, n]);  sums[m, n] = 0               one rounding

Grid         (tiles of C in group-major order, split_k)
Who sums     a program its band in fp32 registers; the atomic units of L2 the bands
Deterministic no: the bands are added in the order in which they come
Workspace    one int32 a tile and 4 bytes an element of C, zero before a launch and after it
Launches     1

No program waits for another. Nothing is zeroed per call: the last arriver restores the zeros. One split takes neither
sums nor counter.

Source: the single-launch kernel (TLX) of the decompose-K study, without its descriptors, whose adds a counter does not
follow in Triton 3.6 and 3.7; the split-K kernel of "Accelerating a Triton Fused Kernel for W4A16 Quantized Inference
with SplitK Work Decomposition" (arXiv 2402.00025), which adds in C's dtype and has no epilogue.
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
from kernels_triton.arrival import announce, is_last, reset, supports
from kernels_triton.band import BandConfig, band_product, finish, tile_of


def configs(problem: Matmul) -> list[BandConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return band.space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """Two programs on each of Hopper's 132 multiprocessors."""
    return BandConfig(*band.default_tile(problem, most_splits=128))


@triton.jit(do_not_specialize=["m", "split_k", "band_steps", "ticket"])
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
        sums_ptrs = sums_ptr + offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
        tl.atomic_add(sums_ptrs, acc, mask=mask, sem="relaxed", scope="gpu")
        if is_last(counter_ptr, ticket, split_k):
            acc = tl.load(sums_ptrs, mask=mask, other=0.0, cache_modifier=".cg")
            finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
            tl.debug_barrier()  # an element may be loaded by one thread and zeroed by another
            tl.store(sums_ptrs, tl.zeros_like(acc), mask=mask)
            reset(counter_ptr)


def _launch(problem: Matmul, config: BandConfig, tensors, in_strides, out_strides, ticket, start):
    """tensors: a, b, bias, out, counters, sums."""
    start(
        _matmul_atomic_kernel,
        band.grid(problem, config),
        *band.operands(problem, config, *tensors[:2]),
        *tensors[2:],
        *(problem.m, problem.n, problem.k, *in_strides, *out_strides, config.split_k),
        *(band_steps(problem, config), ticket),
        **band.meta(problem, config),
        SPLIT=config.split_k > 1,
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
    counters, sums, ticket = None, None, 0
    if config.split_k > 1:
        tiles, _ = band.grid(problem, config)
        counters, sums = workspace.counters_and_sums(tiles, problem.m * problem.n, a.device)
        ticket = workspace.next_ticket()
    tensors = a, b, bias, out, counters, sums
    strides = band.input_strides(problem, a, b), out.stride()
    _launch(problem, config, tensors, *strides, ticket, band.starter(warmup=False))
    return out


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    bias = problem.dtype if problem.epilogue.has_bias else None
    counters, sums = (torch.int32, torch.float32) if config.split_k > 1 else (None, None)
    tensors = problem.dtype, problem.dtype, bias, problem.out_dtype, counters, sums
    strides = band.input_strides(problem), (problem.n, 1)
    _launch(problem, config, tensors, *strides, 0, band.starter(warmup=True))


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    return 0 if config.split_k == 1 else 4 * band.grid(problem, config)[0] + 4 * problem.m * problem.n


KERNEL = Kernel(
    name="atomic",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.ATOMIC,
    launch=matmul,
    config_type=BandConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=False,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    launches=1,
)
