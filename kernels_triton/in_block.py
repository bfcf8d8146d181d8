"""No split over programs: the warps of one share K, and their sums meet in shared memory.

    warp w    sums[w, m, n] = sum over the k that w walks of A[m, k] * B[k, n]
    program   C[m, n] = epilogue(sum over w of sums[w, m, n])        fp32, one rounding

Grid         (tiles of N, tiles of M); a program walks all of K in steps of block_k, shared out evenly to its warps
Who sums     a warp its share in fp32 registers; one reduction at the end the lanes and the warps, and, of fma with B
             stored [K, N], one after each step
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

Operands and C alone pass through L2, and nobody waits for anybody. But a tile is one program's: only small tiles are
many, and every tile reads its rows of A and its columns of B again. Two variants:

fma     on CUDA cores, for few rows, where most of a tensor core's would stand empty. A thread loads its 16-byte pieces
        of a step into registers, all of them before the first product; products of half-precision operands are exact
        in fp32. For B stored [N, K]: stored [K, N], columns enough for 16 bytes leave few programs.
mma     on tensor cores: a `tl.dot` batched over the warps, fed through cp.async.

Source: fma: the router kernels of serving engines (one block an expert, `router_gemm` of vLLM, SGLang and
TensorRT-LLM), here with tiles of any rows and columns. mma: CUTLASS' sliced-K.
"""

from functools import partial
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig, too_many_blocks
from common.problem import Layout, Matmul
from common.protocol import Protocol
from kernels_triton import band
from kernels_triton.band import finish

WIDEST_LOAD = 16  # bytes
REGISTERS_OF_THREAD = 255
REGISTERS_OF_BLOCK = 65536
MOST_ROWS = {"fma": 16, "mma": 64}  # of default_config's tiles
MOST_LOADED = 160  # fma: registers of a thread that hold what it loads for a step, beside those that it needs to sum

# mma: (block_m, block_n, block_k, num_warps, num_stages). Few columns make many programs ...
MMA_TILES = [
    *[(16, 2, 512, 4, 4), (16, 2, 512, 4, 8), (16, 2, 1024, 8, 4), (16, 2, 512, 8, 6), (16, 2, 1024, 4, 4)],
    *[(16, 4, 512, 4, 4), (16, 4, 512, 4, 8), (16, 4, 1024, 8, 4), (16, 4, 512, 8, 6), (16, 4, 1024, 4, 4)],
    *[(16, 8, 512, 4, 4), (16, 8, 512, 4, 8), (16, 8, 1024, 8, 4), (16, 8, 512, 8, 6), (16, 8, 1024, 4, 4)],
    # ... and more rows and columns reread less.
    *[(16, 16, 256, 2, 4), (16, 16, 128, 4, 6), (16, 16, 256, 4, 4), (16, 16, 512, 4, 4), (16, 16, 512, 8, 4)],
    *[(32, 8, 256, 4, 6), (32, 8, 512, 4, 4), (32, 16, 256, 4, 4), (32, 16, 512, 8, 4), (32, 32, 128, 2, 4)],
    *[(32, 32, 256, 4, 4), (64, 8, 256, 4, 4), (64, 16, 128, 2, 4), (64, 16, 256, 4, 4), (64, 32, 128, 4, 4)],
    *[(64, 32, 256, 4, 3), (16, 64, 256, 4, 4), (64, 64, 128, 2, 3), (64, 64, 128, 4, 3)],
]


def _step(problem: Matmul, block_n: int) -> int:
    """Along K, what one load of 16 bytes by every lane of a warp covers of `block_n` columns."""
    return 32 * 16 // problem.dtype.itemsize // (1 if problem.layout is Layout.NK else block_n)


def configs(problem: Matmul, *, variant: str) -> list[MatmulConfig]:
    """mma: every tile. fma: up to 16 rows; few columns, or as many as 16 bytes hold; up to 8 loads a thread and step (4
    of B stored [K, N], whose A is spread through shared memory and takes more registers), no more than K takes."""
    if variant == "mma":
        space = [MatmulConfig(*blocks, num_warps, num_warps, stages) for *blocks, num_warps, stages in MMA_TILES]
    else:
        narrow = problem.layout is Layout.NK
        columns = (1, 2, 4) if narrow else (16 // problem.dtype.itemsize, 16)
        space = [
            _fma_config(problem, block_m, block_n, loads, num_warps)
            for block_m, block_n in product((1, 2, 4, 8, 16), columns)
            for loads, num_warps in product((8, 4, 2, 1) if narrow else (4, 2, 1), (4, 8, 2))
            if block_m < 2 * problem.m and (loads == 1 or loads * num_warps * _step(problem, block_n) < 2 * problem.k)
        ]
    return [config for config in space if supports(problem, config, variant=variant) is None]


def _fma_config(problem: Matmul, block_m: int, block_n: int, loads: int, num_warps: int) -> MatmulConfig:
    block_k = loads * num_warps * _step(problem, block_n)
    return MatmulConfig(block_m, block_n, block_k, num_warps, num_warps, num_stages=1)


def default_config(problem: Matmul, *, variant: str) -> MatmulConfig:
    """fma: rows for which B is read once, up to 16, one column, and as much of K at once as registers take. mma: tiles
    that cover M up to 64 rows."""
    rows = triton.next_power_of_2(problem.m)
    if variant == "mma":
        return MatmulConfig(min(MOST_ROWS["mma"], max(16, rows)), 16, 512 // problem.dtype.itemsize, 4, 4, 4)
    block_n = 1 if problem.layout is Layout.NK else 16 // problem.dtype.itemsize
    rows, warps = min(MOST_ROWS["fma"], rows), 4 if rows == 1 else 8
    tiles = [_fma_config(problem, rows, block_n, loads, warps) for loads in (8, 4, 2, 1)]
    space = configs(problem, variant=variant)
    return next(tile for tile in tiles if tile in space)


def supports(problem: Matmul, config: MatmulConfig | None = None, *, variant: str) -> str | None:
    """Any problem whose tiles a grid holds; all warps of a config share K, and its step fits registers (fma) or shared
    memory (mma)."""
    rows = MOST_ROWS[variant] if config is None else config.block_m
    if reason := too_many_blocks({"M": -(-problem.m // rows)}):  # triton.cdiv is slow on the host
        return reason
    if config is None:
        return None
    block_m, block_n, block_k = blocks = config.block_m, config.block_n, config.block_k
    if any(block < 1 or block & (block - 1) for block in blocks):
        return f"blocks {blocks} are not powers of two"
    least = config.num_warps * (16 if variant == "mma" else _step(problem, block_n))
    if config.split_k != config.num_warps or block_k < least:
        return f"split_k is {config.split_k}, block_k {block_k}; accepted: num_warps, {config.num_warps}, as all warps \
share K, and {least} or more"
    if variant == "mma":
        buffers = max(1, config.num_stages - 1)
        shared = (block_m + block_n) * block_k * problem.dtype.itemsize * buffers
        if shared > band.SHARED_MEMORY_LIMIT:
            return f"{buffers} buffers take {shared} bytes of shared memory, over {band.SHARED_MEMORY_LIMIT}"
        return None
    loaded = (block_m + block_n) * block_k * problem.dtype.itemsize // (4 * 32 * config.num_warps)
    if loaded > MOST_LOADED:
        return f"a step of {block_m} rows and {block_n} columns loads {loaded} registers a thread, over {MOST_LOADED}"
    return None


@triton.jit(do_not_specialize=["m"])
def _matmul_in_block_fma_kernel(
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
    OWN: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # Loaded in the three dimensions of the products: what is loaded in two and expanded goes through shared memory.
    a_ptrs = a_ptr + offs_m[:, None, None].to(tl.int64) * stride_am + offs_k[None, None, :]
    b_ptrs = b_ptr + offs_n[None, :, None].to(tl.int64) * stride_bn + offs_k[None, None, :].to(tl.int64) * stride_bk
    b_step = tl.full([], BLOCK_K, tl.int64) * stride_bk  # more than int32 holds, where rows of B are far apart
    a_mask = (offs_m < m)[:, None, None]
    b_mask = (offs_n < n)[None, :, None]
    # Of OWN neighbours along K, which a thread loads at once, it keeps one sum; those of threads meet at the end.
    sums = tl.zeros((BLOCK_M, BLOCK_N, BLOCK_K // OWN), dtype=tl.float32)
    for k_start in range(0, k, BLOCK_K):
        k_mask = (k_start + offs_k < k)[None, None, :]
        b = tl.load(b_ptrs, mask=b_mask & k_mask, other=0.0)
        a = tl.load(a_ptrs, mask=a_mask & k_mask, other=0.0)
        products = a.to(tl.float32) * b.to(tl.float32)
        sums += tl.sum(products.reshape(BLOCK_M, BLOCK_N, BLOCK_K // OWN, OWN), axis=3)
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    acc = tl.sum(sums, axis=2)
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


@triton.jit(do_not_specialize=["m"])
def _matmul_in_block_mma_kernel(
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
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    SHARE: tl.constexpr = BLOCK_K // SPLIT_K
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, SPLIT_K)[:, None] * SHARE + tl.arange(0, SHARE)[None, :]
    a_ptrs = a_ptr + offs_m[None, :, None].to(tl.int64) * stride_am + offs_k[:, None, :]
    b_ptrs = b_ptr + offs_n[None, None, :].to(tl.int64) * stride_bn + offs_k[:, :, None].to(tl.int64) * stride_bk
    b_step = tl.full([], BLOCK_K, tl.int64) * stride_bk  # more than int32 holds, where rows of B are far apart
    a_mask = (offs_m < m)[None, :, None]
    b_mask = (offs_n < n)[None, None, :]
    sums = tl.zeros((SPLIT_K, BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k_start in range(0, k, BLOCK_K):
        if EVEN_K:
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs) if EVEN_N else tl.load(b_ptrs, mask=b_mask, other=0.0)
        else:
            k_mask = k_start + offs_k < k
            a = tl.load(a_ptrs, mask=a_mask & k_mask[:, None, :], other=0.0)
            b = tl.load(b_ptrs, mask=b_mask & k_mask[:, :, None], other=0.0)
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    acc = tl.sum(sums, axis=0)
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def _launch(problem: Matmul, config: MatmulConfig, variant: str, tensors, in_strides, out_strides, start):
    """tensors: a, b, bias, out."""
    block_m, block_n, block_k = config.block_m, config.block_n, config.block_k
    grid = triton.cdiv(problem.n, block_n), triton.cdiv(problem.m, block_m)
    arguments = *tensors, problem.m, problem.n, problem.k, *in_strides, *out_strides
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "EPILOGUE": problem.epilogue.value}
    if variant == "mma":
        even = {"EVEN_N": problem.n % block_n == 0, "EVEN_K": problem.k % block_k == 0}
        pipeline = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        start(_matmul_in_block_mma_kernel, grid, *arguments, **meta, **even, SPLIT_K=config.split_k, **pipeline)
    else:
        # ptxas is told how many registers there are: by itself it spares them, so that many warps fit, and for that
        # delays the loads until those before them are used.
        registers = min(REGISTERS_OF_THREAD, REGISTERS_OF_BLOCK // (32 * config.num_warps))
        # Stored [K, N], a thread's neighbours stand along N: all of K meets in each step.
        own = WIDEST_LOAD // problem.dtype.itemsize if problem.layout is Layout.NK else block_k
        options = {"OWN": own, "num_warps": config.num_warps, "maxnreg": registers}
        start(_matmul_in_block_fma_kernel, grid, *arguments, **meta, **options)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: MatmulConfig | None = None,
    variant: str = "fma",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'fma' or 'mma', what multiplies.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem, config, out = prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)
    strides = band.input_strides(problem, a, b), out.stride()
    _launch(problem, config, variant, (a, b, bias, out), *strides, band.starter(warmup=False))
    return out


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    bias = problem.dtype if problem.epilogue.has_bias else None
    tensors = problem.dtype, problem.dtype, bias, problem.out_dtype
    strides = band.input_strides(problem), (problem.n, 1)
    _launch(problem, config, variant, tensors, *strides, band.starter(warmup=True))


KERNELS = tuple(
    Kernel(
        name="in_block",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.IN_BLOCK,
        launch=partial(matmul, variant=variant),
        config_type=MatmulConfig,
        configs=partial(configs, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        launches=1,
    )
    for variant in ("fma", "mma")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
