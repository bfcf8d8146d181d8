"""Split-K in a thread block cluster: the splits of a tile meet in distributed shared memory.

    rank s         partial_s[m, n] = sum over k in band s of A[m, k] * B[k, n]      in the shared memory of block s
    all ranks      barrier of the cluster
    rank s         C[m, n] = epilogue(sum over r of partial_r[m, n])                for rows m of its share of the tile

Grid         (rows of tiles in a group, tiles of N, groups x split_k), the blocks of a tile one cluster along z
Who sums     every block its band in fp32 registers; then each block block_m / split_k rows of the tile, over all ranks
Deterministic yes: rank order is summation order
Workspace    none; 4 * block_m * (block_n + PADDING) bytes of shared memory a block
Launches     1

A second barrier keeps every block alive until the others have read it. At most 8 blocks: the largest cluster that every
device with clusters runs.

A peer's shared memory is an address that `mapa` gives, made generic as a global one is: it is read through a
`global_view`, as tilus 0.2.0 has instructions for reading its own shared memory only.

Source: CUTLASS' and quack's cluster reductions over distributed shared memory; CUDA C++ Programming Guide, "Distributed
Shared Memory".
"""

from functools import lru_cache

import tilus
import torch
from tilus import float32, int32, uint32, void_p
from tilus.hidet.ir.primitives.cuda.cluster import cluster_arrive, cluster_wait
from tilus.hidet.ir.primitives.cuda.cvta import cvta_cluster_shared_to_generic, cvta_generic_to_cta_shared
from tilus.hidet.ir.primitives.cuda.mapa import mapa_shared
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.layout.shared_layout import SharedLayout
from tilus.ir.tensor import SharedTensor
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common import devices
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, space_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import CLUSTER_BLOCKS
from triton_vs_tilus.kernels_tilus import band, configs, launching
from triton_vs_tilus.kernels_tilus.band import BandScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig, band_space
from triton_vs_tilus.kernels_tilus.wgmma import shared_beside_barriers

# tilus alone: its layouts are the program's. A warp stores 8 rows of 32 bytes at once, to different banks by this.
PADDING = 8  # fp32 of a row


def space(problem: Matmul) -> Space:
    """Every wanted tile with as many splits as a cluster may have blocks."""
    tiles = band_space(problem, CLUSTER_BLOCKS)
    supported = space_of(tiles.configs, lambda config: supports(problem, config))
    return Space(supported.configs, {**tiles.dropped, **supported.dropped})


def default_config(problem: Matmul) -> BandConfig:
    """At most 8 splits."""
    return configs.default_config(problem, most_splits=8)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel, on a device with clusters; split_k in CLUSTER_BLOCKS."""
    if reason := devices.lacks_clusters():
        return reason
    if config is not None and config.split_k not in CLUSTER_BLOCKS:
        return f"split_k is {config.split_k}; accepted: {', '.join(map(str, CLUSTER_BLOCKS))}, the blocks of a cluster"
    if config is not None and config.engine == "wgmma_pairs":
        return "engine is wgmma_pairs; accepted: others, as its pairs are clusters of their own"
    return configs.supports(problem, config)


class ClusterMatmul(BandScript):
    """One block: a tile of C over one band of K, then its share of the tile's rows over all bands."""

    def __init__(self, build, split_k):
        super().__init__(build)
        self.split_k = split_k
        self.rows = self.block_m // split_k
        self.row_stride = self.block_n + PADDING
        self.partial_layout = shared_row_major(self.block_m, self.row_stride)

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        group_m: int32,
        groups: int32,
        band_steps: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [group_m, cdiv(n_units * self.vector_n, block_n), groups * self.split_k]
        self.attrs.cluster_blocks = [1, 1, self.split_k]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        # The blocks of a cluster are neighbours: of z the split runs fastest here.
        split: int32 = self.blockIdx.z % self.split_k
        offset_m: int32 = (self.blockIdx.x + self.blockIdx.z // self.split_k * group_m) * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        if offset_m < m:  # the last group may have fewer rows
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.band_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
                offset_m, offset_n, split, band_steps,
            )
            # fmt: on

            if self.split_k == 1:
                self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
            else:
                partial = shared_beside_barriers(self, dtype=float32, shape=[block_m, self.row_stride])
                self.annotate_layout(partial, self.partial_layout)
                self.store_shared(without_padding(self, partial), acc)
                self.cluster.sync()
                share: int32 = split * self.rows
                total = self.register_tensor(dtype=float32, shape=[self.rows, block_n], init=0.0)
                own: uint32 = cvta_generic_to_cta_shared(partial[0, 0].item_ptr())
                for rank in self.range(self.split_k, unroll="all"):
                    peer: void_p = cvta_cluster_shared_to_generic(mapa_shared(own, rank))
                    theirs = self.global_view(
                        peer, dtype=float32, shape=[block_m, block_n], strides=[self.row_stride, 1]
                    )
                    self.add(total, self.load_global(theirs, offsets=[share, 0], shape=[self.rows, block_n]), out=total)
                # No block ends while a peer reads its partial. One that has read all says so before it stores C, as an
                # arrival waits for the stores before it.
                cluster_arrive()
                self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m + share, offset_n)
                cluster_wait()
                self.free_shared(partial)


# tilus alone: as PADDING. A function, and not a method: what a method of a Script returns lies outside of its scope.
def without_padding(script: tilus.Script, partial: SharedTensor) -> SharedTensor:
    """[block_m, block_n]; tilus 0.2.0 infers no layout for a part of a row."""
    rows, row_stride = partial.shape
    shape = [rows, row_stride - PADDING]
    part = script._builder.slice_shared(partial, offsets=[0, 0], slice_dims=[0, 1], slice_shape=shape)
    script.annotate_layout(part, SharedLayout.create(shape, shape, [row_stride, 1], None))
    return part


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors):
    return ClusterMatmul(band.settings(problem, config, vectors), config.split_k)


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    _, steps = band.bands(problem, config)
    launch = Launch(
        _script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
            *(*band.arguments(problem, vectors, placement), *band.place(problem, config), steps),
        ),
    )
    return Plan(problem, placement, (launch,))


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="cluster",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.CLUSTER,
    launch=matmul,
    config_type=BandConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
