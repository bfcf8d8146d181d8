"""OR over the last axis.

    Y[m, n] = OR over k of A[m, n, k]                      int32 or int64, K = 1 to 64, a compile-time constant

Grid         one block of threads for `block` consecutive outputs; A is [M * N, K] to it
Who sums     a block its outputs, in registers and by shuffles
Deterministic yes: OR is exact in any order
Workspace    none
Launches     1
Variants     shuffle: a [block, K] tile whose rows lie across the lanes of a warp, 16 bytes a lane where K allows:
             neighbours read neighbouring bytes; folded in each lane, then by shuffles between lanes
             fold: the same tile and the same reduction, with a whole row in each thread: nothing is left to shuffle
             unrolled: K loads of [block], each K elements apart

tilus 0.2.0 has no OR, neither as a reduction nor as an operator of tiles; kernels_tilus/bitwise.py adds both. What
tells *shuffle* from *fold* is the layout of the tile that is loaded, and nothing else.

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

from common import or_reduce as shared
from common import tuned
from common.kernel import Kernel, Language
from common.or_reduce import WIDEST_LOAD, OrReduce, OrReduceConfig, or_reduce_problem, padded, row_stride
from common.protocol import Protocol
from kernels_tilus import launching
from kernels_tilus.bitwise import elementwise_or, reduce_or

TILUS_DTYPE = {torch.int32: int32, torch.int64: int64}
THREAD_A_ROW = {"fold", "unrolled"}
VARIANTS = ("shuffle", "fold", "unrolled")


@dataclass(frozen=True)
class Build:
    """What a Script is compiled for. stride: of A's rows, in elements; vector: elements that one load may move; block:
    outputs of a block of threads; cluster: blocks that are handed out together."""

    dtype: DataType
    k: int
    stride: int
    vector: int
    block: int
    num_warps: int
    cluster: int


def settings(problem: OrReduce, config: OrReduceConfig, variant: str, stride: int, aligned_to: int) -> Build:
    """aligned_to: bytes that divide the address of A."""
    itemsize = problem.dtype.itemsize
    vector = WIDEST_LOAD // itemsize
    while problem.k % vector or stride % vector or aligned_to % (vector * itemsize):
        vector //= 2
    block = config.block(problem, thread_a_row=variant in THREAD_A_ROW)
    return Build(
        TILUS_DTYPE[problem.dtype], problem.k, stride, vector, block, config.num_warps, launching.cluster_size()
    )


def tile_layout(build: Build, thread_a_row: bool) -> RegisterLayout:
    """Which thread holds which elements of the [block, K] tile. Both fill registers in the order of memory, `vector`
    elements at a time."""
    threads = 32 * build.num_warps
    if thread_a_row:
        return local(build.block // threads, 1).spatial(threads, 1).local(1, build.k)
    row_vectors, lanes = padded(build.k // build.vector), lanes_of_row(build)
    rows = threads // lanes  # at a time
    return local(build.block // rows, row_vectors // lanes).spatial(rows, lanes).local(1, build.vector)


def lanes_of_row(build: Build) -> int:
    """How many lanes of a warp share a row in *shuffle*."""
    return min(padded(build.k // build.vector), 32)


class OrReduceTile(tilus.Script):
    """One block: a [block, K] tile of A, reduced."""

    def __init__(self, build, thread_a_row):
        super().__init__()
        self.build = build
        self.layout = tile_layout(build, thread_a_row)

    def __call__(self, a_ptr: void_p, y_ptr: void_p, rows: int32):
        block = self.build.block
        self.attrs.blocks = cdiv(cdiv(rows, block), self.build.cluster) * self.build.cluster
        self.attrs.cluster_blocks = self.build.cluster
        self.attrs.warps = self.build.num_warps
        offset: int32 = self.blockIdx.x * block

        ga = self.global_view(a_ptr, dtype=self.build.dtype, shape=[rows, self.build.k], strides=[self.build.stride, 1])
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

    def __call__(self, a_ptr: void_p, y_ptr: void_p, rows: int32):
        block, k = self.build.block, self.build.k
        self.attrs.blocks = cdiv(cdiv(rows, block), self.build.cluster) * self.build.cluster
        self.attrs.cluster_blocks = self.build.cluster
        self.attrs.warps = self.build.num_warps
        offset: int32 = self.blockIdx.x * block

        ga = self.global_view(a_ptr, dtype=self.build.dtype, shape=[rows, k], strides=[self.build.stride, 1])
        gy = self.global_view(y_ptr, dtype=self.build.dtype, shape=[rows])
        y = self.register_tensor(dtype=self.build.dtype, shape=[block], init=0)
        self.annotate_layout(y, self.layout)
        for i in self.range(k, unroll="all"):
            elementwise_or(self, y, self.load_global(ga, offsets=[offset, i], shape=[block], dims=[0]))
        self.store_global(gy, y, offsets=[offset])


@lru_cache(maxsize=4096)
def _script(build: Build, variant: str) -> tilus.Script:
    return OrReduceUnrolled(build) if variant == "unrolled" else OrReduceTile(build, variant in THREAD_A_ROW)


def supports(problem: OrReduce, config: OrReduceConfig | None = None, *, variant: str) -> str | None:
    """What int32 offsets reach."""
    if reason := launching.out_of_reach({"A": problem.rows * problem.k}):
        return reason
    return None if config is None else shared.supports_config(config, thread_a_row=variant in THREAD_A_ROW)


def or_reduce(
    a: Tensor, *, out: Tensor | None = None, config: OrReduceConfig | None = None, variant: str = "shuffle"
) -> Tensor:
    """Y [M, N] = OR over k of a [M, N, k], see common.or_reduce.or_reduce_problem for what is accepted and raised.

    variant: one of VARIANTS. CPU tensors run in the interpreter.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on, and for
    a problem outside of `supports`.
    """
    problem = or_reduce_problem(a, out)
    if reason := supports(problem, config, variant=variant):
        raise ValueError(f"config is {config}; {reason}" if config else reason)
    if config is None:
        config, _ = tuned.pick(_BY_VARIANT[variant], problem, tuned.slug_of(a.device))
    launching.check_reach(a=a)
    if out is None:
        out = torch.empty(problem.out_shape, dtype=problem.dtype, device=a.device)
    build = settings(problem, config, variant, row_stride(a), a.data_ptr())
    launching.launch(_script(build, variant), a, out, problem.rows)
    return out


def build(problem: OrReduce, config: OrReduceConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(settings(problem, config, variant, problem.k, WIDEST_LOAD), variant))


KERNELS = tuple(
    Kernel(
        name="or_reduce",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.NONE,
        launch=partial(or_reduce, variant=variant),
        config_type=OrReduceConfig,
        configs=partial(shared.space, thread_a_row=variant in THREAD_A_ROW),
        default_config=partial(shared.default_config, thread_a_row=variant in THREAD_A_ROW),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 0,
        workspace_bytes=lambda problem, config: 0,
        launches=1,
        op=OrReduce.op,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
