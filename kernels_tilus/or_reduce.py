"""OR over the last axis.

    Y[m, n] = OR over k of A[m, n, k]                      int32 or int64, K = 1 to 64, a compile-time constant

Grid         one block of threads for `block` consecutive outputs; A is [M * N, K] to it
Who reduces  a block its outputs, in registers and by shuffles
Deterministic yes: OR is exact in any order
Workspace    none
Launches     1
Variants     shuffle: a [block, K] tile whose rows lie across the lanes of a warp, 16 bytes a lane where K allows:
             neighbours read neighbouring bytes; folded in each lane, then by shuffles between lanes
             fold: the same tile and the same reduction, with a whole row in each thread: nothing is left to shuffle
             unrolled: K loads of [block], each K elements apart

tilus 0.2.0 has no OR, neither as a reduction nor as an operator of tiles; kernels_tilus/bitwise.py adds both. *shuffle*
and *fold* differ in the layout of the tile that is loaded, and in nothing else.

Where K is no power of two, the tile of *shuffle* is padded, with zeros that are not read.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import tilus
import torch
from tilus import RegisterLayout, int32, int64, void_p
from tilus.hidet.ir.type import DataType
from tilus.ir.layout.ops import local
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common import or_reduce as shared
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.kernel import Kernel, Language, Space, space_of
from triton_vs_tilus.common.or_reduce import (
    THREAD_A_ROW,
    WIDEST_LOAD,
    OrReduce,
    OrReduceConfig,
    OrReducePlaces,
    contiguous,
    launched,
    padded,
)
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_tilus import launching
from triton_vs_tilus.kernels_tilus.bitwise import elementwise_or, reduce_or

VARIANTS = ("shuffle", "fold", "unrolled")


def space(problem: OrReduce, *, variant: str) -> Space:
    """The configs of common.or_reduce.wanted that are supported."""
    return space_of(shared.wanted(problem, variant), partial(supports, problem, variant=variant))


def default_config(problem: OrReduce, *, variant: str) -> OrReduceConfig:
    """The rule of both languages, common.or_reduce.default_config."""
    return shared.default_config(problem, variant)


def supports(problem: OrReduce, config: OrReduceConfig | None = None, *, variant: str) -> str | None:
    """None, or why the problem cannot run on this config, or on the default one; also by common.or_reduce.unsupported.

    tilus' own reasons: offsets reach all of A; and so does int32 to the end of the last block, as the size of a grid is
    counted in it.
    """
    config = config or default_config(problem, variant=variant)
    if reason := launching.out_of_reach({"A": problem.rows * problem.k}) or shared.unsupported(config, variant):
        return reason
    block = config.block(problem, variant)
    return launching.out_of_reach({"Y, in whole blocks,": cdiv(problem.rows, block) * block})


def workspace_bytes(problem: OrReduce, config: OrReduceConfig, *, variant: str) -> int:
    """0: nothing meets outside of a block."""
    return 0


_TILUS_DTYPE = {torch.int32: int32, torch.int64: int64}


# tilus alone: a Script is compiled for one hashable record; Triton takes each field as a constexpr.
@dataclass(frozen=True)
class Build:
    """What a Script is compiled for.

    vector   elements that one load may move; a row's stride is a multiple of it
    block    outputs of a block of threads
    """

    dtype: DataType
    k: int
    vector: int
    block: int
    num_warps: int


# tilus alone: widths of loads are derived here; Triton derives them from the specialised arguments.
def settings(problem: OrReduce, config: OrReduceConfig, places: OrReducePlaces, variant: str) -> Build:
    itemsize = problem.dtype.itemsize
    vector = WIDEST_LOAD // itemsize
    while problem.k % vector or places.stride % vector or places.align_a % (vector * itemsize):
        vector //= 2
    block = config.block(problem, variant)
    dtype = _TILUS_DTYPE[problem.dtype]
    return Build(dtype, problem.k, vector, block, config.num_warps)


# tilus alone: layouts are written down; Triton's compiler chooses them.
def tile_layout(build: Build, thread_a_row: bool) -> RegisterLayout:
    """Which thread holds which elements of the [block, K] tile.

    Both layouts fill registers in the order of memory, `vector` elements at a time.
    """
    threads = 32 * build.num_warps
    if thread_a_row:
        return local(build.block // threads, 1).spatial(threads, 1).local(1, build.k)
    row_vectors, lanes = padded(build.k // build.vector), _lanes_of_row(build)
    rows = threads // lanes  # at a time
    return local(build.block // rows, row_vectors // lanes).spatial(rows, lanes).local(1, build.vector)


def _lanes_of_row(build: Build) -> int:
    """The number of lanes of a warp that share a row in *shuffle*."""
    return min(padded(build.k // build.vector), 32)


class OrReduceTile(tilus.Script):
    """One block: a [block, K] tile of A, reduced.

    The stride comes in vectors: from a number that it knows tilus would derive loads wider than A is aligned to.
    """

    def __init__(self, build, thread_a_row):
        super().__init__()
        self.build = build
        self.layout = tile_layout(build, thread_a_row)

    def __call__(self, a_ptr: void_p, y_ptr: void_p, rows: int32, stride_vectors: int32):
        block, stride = self.build.block, stride_vectors * self.build.vector
        self.attrs.blocks = cdiv(rows, block)
        self.attrs.warps = self.build.num_warps
        offset: int32 = self.blockIdx.x * block

        ga = self.global_view(a_ptr, dtype=self.build.dtype, shape=[rows, self.build.k], strides=[stride, 1])
        gy = self.global_view(y_ptr, dtype=self.build.dtype, shape=[rows])
        tile = self.load_global(ga, offsets=[offset, 0], shape=self.layout.shape)
        self.annotate_layout(tile, self.layout)
        self.store_global(gy, reduce_or(self, tile, dim=1), offsets=[offset])


class OrReduceUnrolled(tilus.Script):
    """One block: K loads of [block], each a column of A's rows."""

    def __init__(self, build):
        super().__init__()
        self.build = build
        self.layout = local(build.block // (32 * build.num_warps)).spatial(32 * build.num_warps)

    def __call__(self, a_ptr: void_p, y_ptr: void_p, rows: int32, stride_vectors: int32):
        block, k, stride = self.build.block, self.build.k, stride_vectors * self.build.vector
        self.attrs.blocks = cdiv(rows, block)
        self.attrs.warps = self.build.num_warps
        offset: int32 = self.blockIdx.x * block

        ga = self.global_view(a_ptr, dtype=self.build.dtype, shape=[rows, k], strides=[stride, 1])
        gy = self.global_view(y_ptr, dtype=self.build.dtype, shape=[rows])
        y = self.register_tensor(dtype=self.build.dtype, shape=[block], init=0)
        self.annotate_layout(y, self.layout)
        for i in self.range(k, unroll="all"):
            elementwise_or(self, y, self.load_global(ga, offsets=[offset, i], shape=[block], dims=[0]))
        self.store_global(gy, y, offsets=[offset])


@lru_cache(maxsize=4096)
def _script(build: Build, variant: str) -> tilus.Script:
    return OrReduceUnrolled(build) if variant == "unrolled" else OrReduceTile(build, variant in THREAD_A_ROW)


def plan(problem: OrReduce, config: OrReduceConfig, places: OrReducePlaces, *, variant: str) -> Plan:
    """What a call launches. Raises ValueError for rows that no offset reaches."""
    launching.check_rows({"a": (problem.rows, places.stride)})
    build = settings(problem, config, places, variant)
    arguments = Slot.A, Slot.C, problem.rows, places.stride // build.vector
    return Plan(problem, places, (Launch(_script(build, variant), arguments),))


def or_reduce(
    a: Tensor, *, out: Tensor | None = None, config: OrReduceConfig | None = None, variant: str = VARIANTS[0]
) -> Tensor:
    """Y [M, N] = OR over k of a [M, N, k], see common.or_reduce.or_reduce_problem for what is accepted and raised.

    variant: one of VARIANTS. CPU tensors run in the interpreter. config: None takes the tuned one of this device.
    Raises ValueError for one that the problem cannot run on, and for a problem that the variant does not support.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, out, config)


def build(problem: OrReduce, config: OrReduceConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache; tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="or_reduce",
        variant=variant,
        language=Language.TILUS,
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
