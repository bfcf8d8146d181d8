"""No split: one program walks all of K.

    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])        fp32, then one rounding

Grid         tiles of C in group-major order: programs that run together share rows of A and columns of B in L2
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

from common.epilogue import Epilogue
from common.kernel import Kernel, Language
from common.problem import Matmul
from common.protocol import Protocol
from kernels_triton import band
from kernels_triton.band import BandConfig, finish, range_product, tile_of


def configs(problem: Matmul) -> list[BandConfig]:
    """Every tile."""
    return band.space(problem, (1,))


def default_config(problem: Matmul) -> BandConfig:
    """Tiles that cover M up to 64 rows."""
    return BandConfig(*band.default_tile(problem, most_splits=1))


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and there is one band."""
    if config is not None and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1, as nothing is split"
    return band.supports(problem, config)


@triton.jit(do_not_specialize=["m"])
def _matmul_tiled_kernel(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    acc = range_product(
        a_ptr, b_ptr, m, n, 0, k, stride_am, stride_bk, stride_bn, pid_m, pid_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, SWAP, TMA,
    )
    # fmt: on
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def _launch(problem: Matmul, config: BandConfig, tensors, in_strides, out_strides, start):
    """tensors: a, b, bias, out."""
    start(
        _matmul_tiled_kernel,
        band.grid(problem, config)[:1],
        *band.operands(problem, config, *tensors[:2]),
        *tensors[2:],
        *(problem.m, problem.n, problem.k, *in_strides, *out_strides),
        **band.meta(problem, config),
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
    strides = band.input_strides(problem, a, b), out.stride()
    _launch(problem, config, (a, b, bias, out), *strides, band.starter(warmup=False))
    return out


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    bias = problem.dtype if problem.epilogue.has_bias else None
    tensors = problem.dtype, problem.dtype, bias, problem.out_dtype
    strides = band.input_strides(problem), (problem.n, 1)
    _launch(problem, config, tensors, *strides, band.starter(warmup=True))


KERNEL = Kernel(
    name="tiled",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.NONE,
    launch=matmul,
    config_type=BandConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    launches=1,
)
