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

from dataclasses import replace
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig, Space, cdiv, space_of, too_many_blocks
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import (
    WIDEST_LOAD,
    default_sliced_fma_config,
    default_sliced_mma_config,
    fma_step,
    sliced_fma_configs,
    sliced_mma_configs,
    too_many_loaded,
    too_many_warps,
)
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.band import batched_product, in_units, sum_of_parts
from triton_vs_tilus.kernels_triton.configs import bands_too_long, block_options
from triton_vs_tilus.kernels_triton.epilogue import finish


def space(problem: Matmul, *, variant: str) -> Space:
    """Every wanted tile of the variant."""
    wanted = sliced_mma_configs() if variant == "mma" else sliced_fma_configs(problem)
    return space_of(wanted, lambda config: supports(problem, config, variant=variant))


def default_config(problem: Matmul, *, variant: str) -> MatmulConfig:
    """The rule of both languages; in fp32, which tilus has on CUDA cores alone, *mma* has half the step."""
    if variant == "fma":
        return default_sliced_fma_config(problem)
    config = default_sliced_mma_config(problem)
    return replace(config, block_k=config.block_k * 2 // problem.dtype.itemsize)


def supports(problem: Matmul, config: MatmulConfig | None = None, *, variant: str) -> str | None:
    """Any problem whose grid can be launched; all warps of a config share K, and its step fits registers (fma) or
    shared memory (mma)."""
    chosen = default_config(problem, variant=variant) if config is None else config
    if reason := too_many_blocks({"M": cdiv(problem.m, chosen.block_m)}):
        return reason
    if config is None:
        return None
    if reason := too_many_warps(config.num_warps) or bands_too_long(problem, replace(config, split_k=1)):
        return reason  # of all warps together
    block_m, block_n, block_k = blocks = config.block_m, config.block_n, config.block_k
    if any(number & (number - 1) for number in (*blocks, config.num_warps)):
        return f"blocks {blocks}, {config.num_warps} warps; accepted: powers of two, as Triton's tiles are"
    least = config.num_warps * (16 if variant == "mma" else fma_step(problem, block_n))
    if config.split_k != config.num_warps or block_k < least:
        return (
            f"split_k is {config.split_k}, block_k {block_k}; accepted: num_warps, {config.num_warps}, as all warps "
            f"share K, and {least} or more"
        )
    if variant == "fma":
        return too_many_loaded(problem, config)
    buffers = max(1, config.num_stages - 1)
    shared = (block_m + block_n) * block_k * problem.dtype.itemsize * buffers
    if shared > configs.SHARED_MEMORY_LIMIT:
        return f"{buffers} buffers take {shared} bytes of shared memory, over {configs.SHARED_MEMORY_LIMIT}"
    return None


@triton.jit
def add_products(sums, a, b, OWN: tl.constexpr):
    """sums [M, N, K / OWN] + the products of a [M, 1, K] and b [1, N, K], OWN neighbours along K into one sum.

    Neighbours that a thread holds are added by fused multiply-adds, one after the other: `tl.sum` would add products,
    from Triton 3.9 on as a tree, of which the compiler fuses half, and from 3.10 on none by itself.
    """
    if a.shape[2] == OWN:  # B is stored [K, N]: neighbours along K are in other threads
        return sums + tl.sum(a * b, axis=2, keep_dims=True)
    a_parts, b_parts = (a,), (b,)
    for _ in tl.static_range(OWN.bit_length() - 1):
        a_halves, b_halves = (), ()
        for i in tl.static_range(len(a_parts)):
            part = a_parts[i]
            a_halves += tl.split(part.reshape(part.shape[0], part.shape[1], part.shape[2] // 2, 2))
            part = b_parts[i]
            b_halves += tl.split(part.reshape(part.shape[0], part.shape[1], part.shape[2] // 2, 2))
        a_parts, b_parts = a_halves, b_halves
    for i in tl.static_range(len(a_parts)):
        sums = tl.fma(a_parts[i], b_parts[i], sums)
    return sums


@triton.jit(do_not_specialize=["m"])
def _matmul_sliced_k_fma_kernel(
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
    UNITS: tl.constexpr,
    OWN: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    n, k, stride_am, stride_bk, stride_bn = in_units(n, k, stride_am, stride_bk, stride_bn, UNITS)
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
        # A first, as in tilus, whose loads would wait for each other; what that costs here, notes/pairs.md says.
        a = tl.load(a_ptrs, mask=a_mask & k_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask & k_mask, other=0.0)
        sums = add_products(sums, a.to(tl.float32), b.to(tl.float32), OWN)
        a_ptrs += BLOCK_K
        b_ptrs += b_step
    acc = tl.sum(sums, axis=2)
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


@triton.jit(do_not_specialize=["m"])
def _matmul_sliced_k_mma_kernel(
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
    UNITS: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    SHARE: tl.constexpr = BLOCK_K // SPLIT_K
    offs_m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    sums = batched_product(
        a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, offs_m, offs_n, SHARE * tl.arange(0, SPLIT_K),
        k, BLOCK_K, SPLIT_K, SHARE, EVEN_N, EVEN_K, UNITS,
    )
    # fmt: on
    acc = sum_of_parts(sums.permute(1, 2, 0), SPLIT_K, (BLOCK_M, BLOCK_N))
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def plan(problem: Matmul, config: MatmulConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    block_m, block_n, block_k = config.block_m, config.block_n, config.block_k
    grid = cdiv(problem.n, block_n), cdiv(problem.m, block_m)
    arguments = (
        *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
        *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
    )
    meta = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "EPILOGUE": problem.epilogue.value}
    meta |= {"UNITS": band.units_of(problem, placement)}
    if variant == "mma":
        even = {"EVEN_N": problem.n % block_n == 0, "EVEN_K": problem.k % block_k == 0}
        options = {**block_options(config.num_warps), "num_stages": config.num_stages}
        meta |= {**even, "SPLIT_K": config.split_k, **options}
        launch = Launch(_matmul_sliced_k_mma_kernel, arguments, grid, meta)
    else:
        # Stored [K, N], a thread's neighbours stand along N: all of K meets in each step.
        own = WIDEST_LOAD // problem.dtype.itemsize if problem.layout is Layout.NK else block_k
        meta |= {"OWN": own, **block_options(config.num_warps)}
        launch = Launch(_matmul_sliced_k_fma_kernel, arguments, grid, meta)
    return Plan(problem, placement, (launch,))


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'fma' or 'mma', what multiplies.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="sliced_k",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.SLICED_K,
        launch=partial(matmul, variant=variant),
        config_type=MatmulConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
    )
    for variant in ("fma", "mma")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
