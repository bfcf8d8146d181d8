"""Decompose-K: partial products in one launch, their sum in a second.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one program a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (rows of tiles in a group, tiles of N, groups x split_k), common.kernel.Grid; reducer: flat over
             C, or tiles of C
Who sums     a program its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the unfused variant 3, with a bias and an activation 4
Variants     vector, tile: the two reducers; vector_unfused: the epilogue in torch; vector_pdl: programmatic dependent
             launch, the reducer's programs are set up while the partials are still computed; vector_prefetch: so is
             the product's launch, which loads its first step of B before it waits for the kernel before

Two reducers: *vector*, laid out around the split axis (a flat vector of elements of C, one `tl.sum` over the bands,
its own tile size and warps), and *tile*, shaped like the tiles of the product, adding the bands one by one.

Source: "Decompose-K: From torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls"
(shreyansh26.github.io, 2026), whose first and optimized reducers these are; TorchInductor's decompose-K (PyTorch
pull request 150654) for the splits that divide K.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.devices import lacks_dependent_launch
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, cdiv, grid_of, nothing_unfused, space_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import reducers, splits, too_many_warps
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.band import band_product, place_of, prefetched_product
from triton_vs_tilus.kernels_triton.configs import BandConfig, band_space, block_options
from triton_vs_tilus.kernels_triton.epilogue import apply_epilogue, finish, has_bias


@dataclass(frozen=True)
class DecomposeKConfig(BandConfig):
    """reduce_block: elements of C that a program of the vector reducer sums; reduce_warps: its warps. The tile
    reducer takes the tile of the product."""

    reduce_block: int = 32
    reduce_warps: int = 1

    @property
    def reducer(self) -> tuple[int, int]:
        """Elements and warps."""
        return self.reduce_block, self.reduce_warps

    @staticmethod
    def reducer_fields(problem: Matmul, split_k: int, elements: int, warps: int) -> dict[str, int]:
        """Of a config for a reducer of so many elements and warps."""
        return {"reduce_block": elements, "reduce_warps": warps}


def space(problem: Matmul, *, variant: str) -> Space:
    """Every wanted tile with every wanted split and, for the vector reducer, every wanted reducer of so many bands."""
    tiles = band_space(problem, splits(problem))
    wanted = [
        DecomposeKConfig(**vars(config), **DecomposeKConfig.reducer_fields(problem, config.split_k, elements, warps))
        for config in tiles.configs
        for elements, warps in reducers(config.split_k)[: 1 if variant == "tile" else None]
    ]
    supported = space_of(wanted, lambda config: _SUPPORTS[variant](problem, config))
    return Space(supported.configs, {**tiles.dropped, **supported.dropped})


def default_config(problem: Matmul) -> DecomposeKConfig:
    """At most 128 splits; the narrowest reducer."""
    chosen = configs.default_config(problem, most_splits=128)
    narrowest = reducers(chosen.split_k)[0]
    return DecomposeKConfig(**vars(chosen), **DecomposeKConfig.reducer_fields(problem, chosen.split_k, *narrowest))


def supports(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As every band kernel; and a block of the vector reducer is a power of two."""
    if config is not None:
        if config.reduce_block & (config.reduce_block - 1):
            return f"reduce_block is {config.reduce_block}; accepted: powers of two"
        if reason := too_many_warps(config.reduce_warps, "reduce_warps"):
            return reason
    if problem.m * problem.n >= 1 << 31:
        return f"C has {problem.m * problem.n} elements: the vector reducer counts them in int32"
    return supports_tile(problem, config)


def supports_tile(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As every band kernel: the tile reducer takes the tile of the product."""
    return configs.supports(problem, config)


def supports_unfused(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """Where there is an epilogue to leave to torch."""
    return nothing_unfused(problem) or supports(problem, config)


def supports_pdl(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """On a device with programmatic dependent launch."""
    return lacks_dependent_launch() or supports(problem, config)


def supports_prefetch(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As vector_pdl, by pointers, of a product that each warp has a part of."""
    if config is not None and config.tma:
        return "tma is True; accepted: False, as the first step of B is loaded by pointers"
    if config is not None and config.sliced:
        return "sliced is True; accepted: False, as the first step of B is not dealt out to warps"
    return supports_pdl(problem, config)


def workspace_bytes(problem: Matmul, config: DecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


@triton.jit(do_not_specialize=["m", "group_m", "band_steps"], do_not_specialize_on_alignment=["groups"])
def _matmul_partials_kernel(
    a_ptr,
    b_ptr,
    partials_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    group_m,
    groups,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
    PDL: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    pid_m, pid_n, split = place_of(group_m, groups)
    if groups > 1:  # noqa: SIM102 (known to the compiler where it is 1)
        if pid_m * BLOCK_M >= m:  # the last group may have fewer rows
            return
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    if PREFETCH:
        tl.static_assert(TMA == "")
        acc = prefetched_product(
            a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, split, band_steps,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, PDL,
        )
    else:
        acc = band_product(
            a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, split, band_steps,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
        )
    # fmt: on
    partials_ptrs = partials_ptr + (split.to(tl.int64) * m + offs_m[:, None]) * n + offs_n[None, :]
    tl.store(partials_ptrs, acc, mask=(offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit(do_not_specialize=["m"])
def _reduce_vector_kernel(
    partials_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    stride_cm,
    stride_cn,
    SPLIT_K: tl.constexpr,
    SPLIT_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
    CONTIGUOUS: tl.constexpr,
    EPILOGUE: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        tl.extra.cuda.gdc_wait()  # until the partials are whole and visible
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_s = tl.arange(0, SPLIT_BLOCK)
    mask = offs < m * n
    partials = tl.load(
        partials_ptr + offs[:, None] + offs_s[None, :].to(tl.int64) * m * n,
        mask=mask[:, None] & (offs_s < SPLIT_K)[None, :],
        other=0.0,
    )
    acc = tl.sum(partials, axis=1)
    if has_bias(EPILOGUE):
        bias = tl.load(bias_ptr + offs.to(tl.int32) % n, mask=mask, other=0.0).to(tl.float32)
    else:
        bias = 0.0
    acc = apply_epilogue(acc, bias, EPILOGUE)
    if CONTIGUOUS:
        c_ptrs = c_ptr + offs
    else:
        flat = offs.to(tl.int32)
        c_ptrs = c_ptr + (flat // n).to(tl.int64) * stride_cm + (flat % n).to(tl.int64) * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["m"])
def _reduce_tile_kernel(
    partials_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    stride_cm,
    stride_cn,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    offs = offs_m[:, None].to(tl.int64) * n + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for split in range(SPLIT_K):
        acc += tl.load(partials_ptr + tl.cast(split, tl.int64) * m * n + offs, mask=mask, other=0.0)
    finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def plan(problem: Matmul, config: DecomposeKConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    # The interpreter runs one launch after the other, and knows no dependent ones.
    prefetch = variant == "vector_prefetch"
    pdl = variant in _DEPENDENT and not triton.knobs.runtime.interpret
    unfused = Epilogue.NONE
    if variant == "vector_unfused":
        unfused, problem = problem.epilogue, replace(problem, epilogue=Epilogue.NONE)
    m, n, k = problem.m, problem.n, problem.k
    grid = grid_of(problem, config)
    partials = Launch(
        _matmul_partials_kernel,
        (
            *(Slot.A, Slot.B, Slot.SCRATCH, m, n, k, *placement.in_strides, grid.group_m, grid.groups),
            band_steps(k, config.block_k, config.split_k),
        ),
        grid.blocks,
        {**band.meta(problem, config, placement), "PDL": pdl, "PREFETCH": prefetch, "launch_pdl": prefetch and pdl},
        band.described(problem, config, placement),
    )
    arguments = (Slot.SCRATCH, bias_slot(problem), Slot.C, m, n, *placement.out_strides)
    meta = {"SPLIT_K": config.split_k, "EPILOGUE": problem.epilogue.value}
    if variant != "tile":
        meta |= {
            "SPLIT_BLOCK": triton.next_power_of_2(config.split_k),
            "BLOCK": config.reduce_block,
            "CONTIGUOUS": placement.out_is_contiguous(problem),
            "PDL": pdl,
            **block_options(config.reduce_warps),
            "launch_pdl": pdl,
        }
        reduction = Launch(_reduce_vector_kernel, arguments, (cdiv(m * n, config.reduce_block),), meta)
    else:
        meta |= {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, **block_options(min(config.num_warps, 4))}
        tiles = cdiv(m, config.block_m), cdiv(n, config.block_n)
        reduction = Launch(_reduce_tile_kernel, arguments, tiles, meta)
    scratch = config.split_k, m, n
    return Plan(problem, placement, (partials, reduction), scratch=scratch, unfused=unfused)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: DecomposeKConfig | None = None,
    variant: str = "vector",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'vector' or 'tile' names the reducer; 'vector_pdl' launches it dependently (Hopper and later);
    'vector_prefetch' the product, too, which loads b before the kernel before has ended: that one must not write b;
    'vector_unfused' applies the epilogue in torch, afterwards.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: DecomposeKConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


_SUPPORTS = {
    "vector": supports,
    "tile": supports_tile,
    "vector_unfused": supports_unfused,
    "vector_pdl": supports_pdl,
    "vector_prefetch": supports_prefetch,
}
_DEPENDENT = ("vector_pdl", "vector_prefetch")
_TUNED_AS = {"vector_unfused": "triton/decompose_k.vector", "vector_prefetch": "triton/decompose_k.vector_pdl"}
_BY_VARIANT = {
    variant: Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.PARALLEL_PDL if variant in _DEPENDENT else Protocol.PARALLEL,
        launch=partial(matmul, variant=variant),
        config_type=DecomposeKConfig,
        space=partial(space, variant=variant),
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=_SUPPORTS[variant],
        deterministic=True,
        # The unfused epilogue rounds the product, then its own result.
        roundings=lambda config, rounds=2 if variant == "vector_unfused" else 1: rounds,
        workspace_bytes=workspace_bytes,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=3 if variant == "vector_unfused" else 2,  # 4 with a bias and an activation: Epilogue.apply_
        tuned_as=_TUNED_AS.get(variant, ""),
    )
    for variant in _SUPPORTS
}
# No contender: it must not follow a kernel that writes the weight. bench/references/chain.py says what it follows.
PREFETCH = _BY_VARIANT["vector_prefetch"]
KERNELS = tuple(kernel for kernel in _BY_VARIANT.values() if kernel is not PREFETCH)
