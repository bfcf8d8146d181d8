"""OR over the last axis.

    Y[m, n] = OR over k of A[m, n, k]                      int32 or int64, K = 1 to 64, a compile-time constant

Grid         one program for `block` consecutive outputs; A is [M * N, K] to it
Who reduces  a program its outputs, in registers and by shuffles
Deterministic yes: OR is exact in any order
Workspace    none
Launches     1
Variants     reduce: one [block, K] tile, `tl.reduce` with a combine function of its own
             builtin: the same tile, `tl.reduce_or`
             unrolled: K loads of [block], each K elements apart, in `tl.static_range`
             generated: the same K loads, as K lines of generated source
             wide: one tile of the widest words there are, folded by reshape and split; the halves of a word by a shift
             control_reduce, control_unrolled: for a constant A alone; the tile is made on the chip from one element of
             it, so that what is timed is the reduction and the store

Where K is no power of two, the tile is padded with zeros that are not read.

Source: "A mildly cursed 3.5x triton tl.reduce optimization" (notgum.com, 2025): *reduce*, the manual unrolling
(*unrolled*), its code generator (*generated*), and the constant tile as a control.
"""

import linecache
from collections.abc import Callable
from functools import lru_cache, partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.common import or_reduce as shared
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.kernel import Kernel, Language, Space, cdiv, space_of
from triton_vs_tilus.common.or_reduce import (
    CONTROLS,
    OrReduce,
    OrReduceConfig,
    OrReducePlaces,
    contiguous,
    launched,
    padded,
)
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.configs import block_options

VARIANTS = ("reduce", "builtin", "unrolled", "generated", "wide", "control_reduce", "control_unrolled")


def space(problem: OrReduce, *, variant: str) -> Space:
    """The configs of common.or_reduce.wanted that are supported."""
    return space_of(shared.wanted(problem, variant), partial(supports, problem, variant=variant))


def default_config(problem: OrReduce, *, variant: str) -> OrReduceConfig:
    """The rule of both languages, common.or_reduce.default_config."""
    return shared.default_config(problem, variant)


def supports(problem: OrReduce, config: OrReduceConfig | None = None, *, variant: str) -> str | None:
    """None, or why the problem cannot run on this config, or on the default one; also by common.or_reduce.unsupported.

    Triton's own reason: the controls take a constant A alone.
    """
    if variant in CONTROLS and not problem.constant:
        return "a control: makes A on the chip, so it is right for a constant A alone"
    return shared.unsupported(config or default_config(problem, variant=variant), variant)


def workspace_bytes(problem: OrReduce, config: OrReduceConfig, *, variant: str) -> int:
    """0: nothing meets outside of a block."""
    return 0


@triton.jit
def _or(x, y):
    return x | y


@triton.jit
def _row_offsets(STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    """[BLOCK]: where the rows of a block begin, from its first one on; of more than int32 where they lie far apart."""
    rows = tl.arange(0, BLOCK)
    if BLOCK * STRIDE >= 1 << 31:
        rows = rows.to(tl.int64)
    return rows * STRIDE


@triton.jit
def _load_tile(a_ptr, first, mask, K: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """[BLOCK, BLOCK_K], zero beyond K and where a row is masked."""
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + first * STRIDE + _row_offsets(STRIDE, BLOCK)[:, None] + offs_k[None, :]
    return tl.load(a_ptrs, mask=mask[:, None] & (offs_k < K)[None, :], other=0)


@triton.jit(do_not_specialize=["rows"])
def _reduce_kernel(
    a_ptr,
    y_ptr,
    rows,
    K: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BUILTIN: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    mask = first + tl.arange(0, BLOCK) < rows
    tile = _load_tile(a_ptr, first, mask, K, STRIDE, BLOCK, BLOCK_K)
    if BUILTIN:
        y = tl.reduce_or(tile, axis=1)
    else:
        y = tl.reduce(tile, axis=1, combine_fn=_or)
    tl.store(y_ptr + first + tl.arange(0, BLOCK), y, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _unrolled_kernel(a_ptr, y_ptr, rows, K: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    mask = first + tl.arange(0, BLOCK) < rows
    a_ptrs = a_ptr + first * STRIDE + _row_offsets(STRIDE, BLOCK)
    y = tl.load(a_ptrs, mask=mask, other=0)
    for k in tl.static_range(1, K):
        y |= tl.load(a_ptrs + k, mask=mask, other=0)
    tl.store(y_ptr + first + tl.arange(0, BLOCK), y, mask=mask)


# Triton alone: the study's code generator; self.range(k, unroll="all") writes the same lines in tilus.
def generated_source(k: int) -> str:
    """The unrolled kernel for one K, written out."""
    lines = [
        "@triton.jit(do_not_specialize=['rows'])",
        f"def _generated_{k}_kernel(a_ptr, y_ptr, rows, STRIDE: tl.constexpr, BLOCK: tl.constexpr):",
        "    first = tl.program_id(0).to(tl.int64) * BLOCK",
        "    mask = first + tl.arange(0, BLOCK) < rows",
        "    a_ptrs = a_ptr + first * STRIDE + _row_offsets(STRIDE, BLOCK)",
        "    y = tl.load(a_ptrs, mask=mask, other=0)",
        *(f"    y = y | tl.load(a_ptrs + {i}, mask=mask, other=0)" for i in range(1, k)),
        "    tl.store(y_ptr + first + tl.arange(0, BLOCK), y, mask=mask)",
    ]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=shared.LARGEST_K)
def _generated_kernel(k: int) -> Callable:
    """The compiled unrolled kernel for one K.

    triton.jit reads a kernel's source back by its file name, which linecache knows without a file.
    """
    source, file = generated_source(k), f"<or_reduce generated for K = {k}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    namespace = {"triton": triton, "tl": tl, "_row_offsets": _row_offsets, "__name__": __name__}
    exec(compile(source, file, "exec"), namespace)
    return namespace[f"_generated_{k}_kernel"]


@triton.jit(do_not_specialize=["rows"])
def _wide_kernel(
    a_ptr,
    y_ptr,
    rows,
    WORDS: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_WORDS: tl.constexpr,
    FOLDS: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    mask = first + tl.arange(0, BLOCK) < rows
    tile = _load_tile(a_ptr, first, mask, WORDS, STRIDE, BLOCK, BLOCK_WORDS)
    for _ in tl.static_range(FOLDS):
        left, right = tl.split(tile.reshape(BLOCK, tile.shape[1] // 2, 2))
        tile = left | right
    y = tile.reshape(BLOCK)
    if a_ptr.dtype.element_ty != y_ptr.dtype.element_ty:  # two int32 in a word of int64
        y = (y | (y >> 32)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + first + tl.arange(0, BLOCK), y, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _control_kernel(
    a_ptr, y_ptr, rows, K: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, REDUCE: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    mask = first + tl.arange(0, BLOCK) < rows
    element = tl.load(a_ptr)
    if REDUCE:
        y = tl.reduce(tl.zeros((BLOCK, BLOCK_K), a_ptr.dtype.element_ty) | element, axis=1, combine_fn=_or)
    else:
        y = tl.zeros((BLOCK,), a_ptr.dtype.element_ty)
        for _ in tl.static_range(K):
            y |= element
    tl.store(y_ptr + first + tl.arange(0, BLOCK), y, mask=mask)


def plan(problem: OrReduce, config: OrReduceConfig, places: OrReducePlaces, *, variant: str) -> Plan:
    """What a call launches."""
    block = config.block(problem, variant)
    k, block_k, stride = problem.k, padded(problem.k), places.stride
    read_as = {}
    match variant:
        case "reduce" | "builtin":
            kernel = _reduce_kernel
            sizes = {"K": k, "STRIDE": stride, "BLOCK_K": block_k, "BUILTIN": variant == "builtin"}
        case "unrolled":
            kernel, sizes = _unrolled_kernel, {"K": k, "STRIDE": stride}
        case "generated":
            kernel, sizes = _generated_kernel(k), {"STRIDE": stride}
        case "wide":
            words, block_words = k, block_k
            if problem.dtype is torch.int32 and _pairs(problem, places):
                read_as = {Slot.A: torch.int64}
                words, stride, block_words = k // 2, stride // 2, padded(k // 2)
            kernel = _wide_kernel
            folds = block_words.bit_length() - 1
            sizes = {"WORDS": words, "STRIDE": stride, "BLOCK_WORDS": block_words, "FOLDS": folds}
        case _:
            kernel, sizes = _control_kernel, {"K": k, "BLOCK_K": block_k, "REDUCE": variant == "control_reduce"}
    meta = {**sizes, "BLOCK": block, **block_options(config.num_warps)}
    launch = Launch(kernel, (Slot.A, Slot.C, problem.rows), (cdiv(problem.rows, block),), meta)
    return Plan(problem, places, (launch,), read_as=read_as)


def _pairs(problem: OrReduce, places: OrReducePlaces) -> bool:
    """Whether every row of int32 is whole words of 8 bytes."""
    return problem.k % 2 == 0 and places.stride % 2 == 0 and places.align_a % 8 == 0


def or_reduce(
    a: Tensor, *, out: Tensor | None = None, config: OrReduceConfig | None = None, variant: str = VARIANTS[0]
) -> Tensor:
    """Y [M, N] = OR over k of a [M, N, k], see common.or_reduce.or_reduce_problem for what is accepted and raised.

    variant: one of VARIANTS; a control is right where all elements of `a` are equal. CPU tensors run in the
    interpreter. config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run
    on, and for a problem that the variant does not support.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, out, config)


def build(problem: OrReduce, config: OrReduceConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache; tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="or_reduce",
        variant=variant,
        language=Language.TRITON,
        protocol=Protocol.DATA_PARALLEL,
        launch=partial(or_reduce, variant=variant),
        config_type=OrReduceConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 0,
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
        op=OrReduce.op,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
