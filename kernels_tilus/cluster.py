"""Split-K in a thread block cluster: the splits of a tile meet in distributed shared memory.

    rank s         partial_s[m, n] = sum over k in band s of A[m, k] * B[k, n]      in the registers of block s
    rank s         the rows of rank r's share of the tile, for every r              to the shared memory of block r
    rank r         C[m, n] = epilogue(sum over s of partial_s[m, n])                for the rows m of its share
                                                                                    r < 2, 4 or 8: not all of 3 or 6

Grid         (rows of tiles in a group, tiles of N, groups x split_k), the blocks of a tile one cluster along z
Who sums     every block its band in fp32 registers; then the first `summing_blocks` an equal share of the tile's rows,
             over all ranks
Deterministic yes: rank order is summation order
Workspace    none; 4 * split_k * rows of a share * row_stride bytes of shared memory a block, beside the pipeline's
Launches     1

Partial sums are pushed: no block reads a peer's memory, and none waits for others to have read its own. The bytes of
all ranks count themselves in at an mbarrier of the block that gets them (push.py). A barrier of the cluster tells only
that peers have started, as their memory may be written from then on: blocks arrive as they start, and wait once they
have a partial sum. At most 8 blocks: the largest cluster that every device with clusters runs. 16 tiles by 8 blocks, or
32 by 4, take a second wave on an H200 (examples/cluster_barriers.cu); by 6 or 3 they should not.

Source: CUTLASS' and quack's cluster reductions over distributed shared memory; vLLM's split-K kernel for few rows,
which pushes; PTX ISA, `st.async`.
"""

from functools import lru_cache

import torch
from tilus import float32, int32, uint8, void_p
from tilus.hidet.ir.primitives.cuda.cluster import cluster_arrive_relaxed, cluster_wait
from tilus.ir.layout.shared_layout import SharedLayout
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
from triton_vs_tilus.kernels_tilus.push import push_rows
from triton_vs_tilus.kernels_tilus.wgmma import BARRIERS_BYTES


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
    if reason := configs.supports(problem, config):
        return reason
    if config is not None and config.split_k > 1:
        share = config.block_m // summing_blocks(config.split_k)
        received = 4 * config.split_k * share * row_stride(config.block_n, config.engine)
        shared = configs.shared_bytes(problem, config) + received + BARRIERS_BYTES
        if shared > configs.SHARED_MEMORY_LIMIT:
            return (
                f"{config.num_stages} stages and the partial sums of peers take {shared} bytes of shared memory, over "
                f"{configs.SHARED_MEMORY_LIMIT}"
            )
        return configs.shared_unevenly(share, config.block_n, config.num_warps)
    return None


# tilus alone: Triton's clusters are powers of two.
def summing_blocks(split_k: int) -> int:
    """Of split_k blocks those that sum: the largest power of two, as the rows of every tile are a multiple of it."""
    return 1 << split_k.bit_length() - 1


# tilus alone: its layouts are the program's.
def row_stride(block_n: int, engine: str) -> int:
    """fp32 from a received row to the next. A warp stores 32 bytes of 4 rows at once: neighbours, or, of a transposed
    tile, every other. So long, rows put them into different banks."""
    if engine == "wgmma_swapped":
        return block_n + 4
    return block_n + 8 * (block_n % 16 == 0)


class ClusterMatmul(BandScript):
    """One block: a tile of C over one band of K, then its share of the tile's rows over all bands."""

    def __init__(self, build, split_k):
        super().__init__(build)
        self.split_k = split_k
        self.summing = summing_blocks(split_k)
        self.rows = self.block_m // self.summing
        stride = row_stride(self.block_n, self.engine)
        shape = [split_k, self.rows, self.block_n]
        self.received_layout = SharedLayout.create(shape, shape, [self.rows * stride, stride, 1], None)

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
            if self.split_k > 1:
                # Beside the pipeline's memory: peers write it while this block multiplies.
                place_of_barriers = self.shared_tensor(dtype=uint8, shape=[BARRIERS_BYTES])
                received = self.shared_tensor(dtype=float32, shape=[self.split_k, self.rows, block_n])
                self.annotate_layout(received, self.received_layout)
                arrived = self.mbarrier.alloc(counts=[1])
                cluster_arrive_relaxed()
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.band_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
                offset_m, offset_n, split, band_steps,
            )
            # fmt: on

            if self.split_k == 1:
                self.finish_in_rows(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
            else:
                cluster_wait()  # for peers to have started
                push_rows(self, acc, received[split], arrived[0])
                if split < self.summing:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(arrived[0], 4 * self.split_k * self.rows * block_n)
                    self.mbarrier.wait(arrived[0], phase=0, scope="cluster")
                    total = self.register_tensor(dtype=float32, shape=[self.rows, block_n], init=0.0)
                    for rank in self.range(self.split_k, unroll="all"):
                        self.add(total, self.load_shared(received[rank]), out=total)
                    share: int32 = split * self.rows
                    self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m + share, offset_n)
                self.free_shared(received)
                self.free_shared(place_of_barriers)


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
