"""The manual-unrolling study's kernels, as published: an OR over the last axis of a tile of 3 dimensions.

    Y[m, n] = OR over k of A[m, n, k]

reduce             one masked load of a tile [BLOCK_M, BLOCK_N, BLOCK_K], then one `tl.reduce` over its last axis
unrolled           K loads of tiles [BLOCK_M, BLOCK_N], each K elements apart, written out one by one
reduce_64x64,      the same in tiles of 64 x 64 outputs: where the values of `tl.reduce` exceed the registers
unrolled_64x64
control_reduce,    the same on a constant tile that is made on the chip, from one element of A: the reduction and the
control_unrolled   store alone, for a constant A

Grid         (tiles of M, tiles of N)
Deterministic yes
Workspace    none
Launches     1

Source: "A mildly cursed 3.5x triton tl.reduce optimization" (notgum.com, 2025). What was decided here:
notes/as_published.md.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.kernel import Kernel, Language, Space, cdiv, space_of
from triton_vs_tilus.common.or_reduce import CONTROLS, OrReduce, OrReducePlaces, contiguous, launched, padded
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching

VARIANTS = ("reduce", "unrolled", "control_reduce", "control_unrolled", "reduce_64x64", "unrolled_64x64")


@dataclass(frozen=True)
class TileConfig:
    """Outputs of a program, and its warps."""

    block_m: int
    block_n: int
    num_warps: int

    def __str__(self) -> str:
        return f"{self.block_m}x{self.block_n} w{self.num_warps}"


# The study names none: squares of outputs, by the warps that Triton takes unless told otherwise.
CONFIGS = tuple(TileConfig(size, size, 4) for size in (8, 16, 32))
LARGE = "_64x64"  # ends the variants of one tile, which no search for the fastest would choose
LARGE_CONFIG = TileConfig(64, 64, 4)


def space(problem: OrReduce, *, variant: str) -> Space:
    """The same for every problem."""
    configs = (LARGE_CONFIG,) if variant.endswith(LARGE) else CONFIGS
    return space_of(configs, partial(supports, problem, variant=variant))


def default_config(problem: OrReduce, *, variant: str) -> TileConfig:
    """16 x 16; of a variant of one tile, that."""
    return LARGE_CONFIG if variant.endswith(LARGE) else CONFIGS[1]


def supports(problem: OrReduce, config: TileConfig | None = None, *, variant: str) -> str | None:
    """A of fewer than 2^31 elements; a control takes a constant A alone."""
    if variant in CONTROLS and not problem.constant:
        return "a control: makes A on the chip, so it is right for a constant A alone"
    return as_published.offsets_of_32_bits(problem.rows * problem.k)


@triton.jit
def _or(x, y):
    return x | y


@triton.jit
def _reduce_kernel(
    a_ptr,
    y_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CONSTANT: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if CONSTANT:
        tile = tl.zeros((BLOCK_M, BLOCK_N, BLOCK_K), a_ptr.dtype.element_ty) | tl.load(a_ptr)
    else:
        offs_k = tl.arange(0, BLOCK_K)
        offs = offs_m[:, None, None] * (n * k) + offs_n[None, :, None] * k + offs_k[None, None, :]
        mask = (offs_m[:, None, None] < m) & (offs_n[None, :, None] < n) & (offs_k[None, None, :] < k)
        tile = tl.load(a_ptr + offs, mask=mask, other=0)
    y = tl.reduce(tile, axis=2, combine_fn=_or)
    y_ptrs = y_ptr + offs_m[:, None] * n + offs_n[None, :]
    tl.store(y_ptrs, y, mask=(offs_m[:, None] < m) & (offs_n[None, :] < n))


@triton.jit
def _unrolled_kernel(
    a_ptr,
    y_ptr,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOADS: tl.constexpr,
    CONSTANT: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    if CONSTANT:
        element = tl.load(a_ptr)
        y = tl.zeros((BLOCK_M, BLOCK_N), a_ptr.dtype.element_ty)
        for _ in tl.static_range(LOADS):
            y = y | element
    else:
        a_ptrs = a_ptr + offs_m[:, None] * (n * k) + offs_n[None, :] * k
        y = tl.load(a_ptrs, mask=mask, other=0)
        for i in tl.static_range(1, LOADS):
            y = y | tl.load(a_ptrs + i, mask=mask, other=0)
    tl.store(y_ptr + offs_m[:, None] * n + offs_n[None, :], y, mask=mask)


def plan(problem: OrReduce, config: TileConfig, places: OrReducePlaces, *, variant: str) -> Plan:
    """What a call launches. Raises ValueError for rows that are not K elements apart."""
    if places.stride != problem.k:
        raise ValueError(f"rows of a are {places.stride} elements apart; accepted: {problem.k}, as published")
    meta = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "CONSTANT": variant in CONTROLS}
    if variant.removesuffix(LARGE).endswith("reduce"):
        kernel, meta = _reduce_kernel, meta | {"BLOCK_K": padded(problem.k)}
    else:
        kernel, meta = _unrolled_kernel, meta | {"LOADS": problem.k}
    grid = cdiv(problem.m, config.block_m), cdiv(problem.n, config.block_n)
    sizes = problem.m, problem.n, problem.k
    launch = Launch(kernel, (Slot.A, Slot.C, *sizes), grid, meta | {"num_warps": config.num_warps})
    return Plan(problem, places, (launch,))


def or_reduce(
    a: Tensor, *, out: Tensor | None = None, config: TileConfig | None = None, variant: str = VARIANTS[0]
) -> Tensor:
    """Y [M, N] = OR over k of a [M, N, k], see common.or_reduce.or_reduce_problem for what is accepted and raised.

    variant: one of VARIANTS. Raises ValueError for what `supports` and `plan` refuse.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, out, cast(Any, config))  # of a type of its own


def build(problem: OrReduce, config: TileConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="or_reduce",
        variant=variant,
        language=Language.PUBLISHED_TRITON,
        protocol=Protocol.DATA_PARALLEL,
        launch=partial(or_reduce, variant=variant),
        config_type=TileConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 0,
        workspace_bytes=lambda problem, config: 0,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
        op=OrReduce.op,
        on_request=True,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
