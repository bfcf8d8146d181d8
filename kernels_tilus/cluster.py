"""Split-K in a thread block cluster: the splits of a tile meet in distributed shared memory.

    rank s         partial_s[m, n] = sum over k in band s of A[m, k] * B[k, n]      in the shared memory of block s
    all ranks      barrier of the cluster
    rank s         C[m, n] = epilogue(sum over r of partial_r[m, n])                for rows m of its share of the tile

Grid         (tiles of M, tiles of N, split_k), the blocks of a tile one cluster along z
Who sums     every block its band in fp32 registers; then each block block_m / split_k rows of the tile, over all ranks
Deterministic yes: rank order is summation order
Workspace    none; 4 * block_m * block_n bytes of shared memory a block
Launches     1

A second barrier keeps every block alive until the others have read it. At most 8 blocks: the largest cluster that every
device with clusters runs.

A peer's shared memory is an address that `mapa` gives, made generic as a global one is: it is read through a
`global_view`, as tilus 0.2.0 has instructions for reading its own shared memory only.

Source: CUTLASS' and quack's cluster reductions over distributed shared memory; CUDA C++ Programming Guide, "Distributed
Shared Memory".
"""

from functools import lru_cache

import torch
from tilus import float32, int32, uint32, void_p
from tilus.hidet.ir.primitives.cuda.cluster import cluster_arrive, cluster_wait
from tilus.hidet.ir.primitives.cuda.cvta import cvta_cluster_shared_to_generic, cvta_generic_to_cta_shared
from tilus.hidet.ir.primitives.cuda.mapa import mapa_shared
from tilus.ir.layout.ops import shared_row_major
from tilus.utils import cdiv
from torch import Tensor

from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching
from kernels_tilus.band import BandConfig, BandScript
from kernels_tilus.wgmma import shared_beside_barriers

SPLITS = (1, 2, 4, 8)


def configs(problem: Matmul) -> list[MatmulConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return [config for config in band.space(problem, SPLITS) if supports(problem, config) is None]


def default_config(problem: Matmul) -> MatmulConfig:
    """Small tiles, so that few splits fill the multiprocessors."""
    return band.default_config(problem, most_splits=8)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """As every band kernel, on a device with clusters; split_k in SPLITS."""
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0):
        return "thread block clusters need compute capability 9.0"
    if config is not None and config.split_k not in SPLITS:
        return f"split_k is {config.split_k}; accepted: {', '.join(map(str, SPLITS))}, the blocks of a cluster"
    if config is not None and config.engine == "wgmma_pairs":
        return "engine wgmma_pairs has clusters of its own"
    return band.supports(problem, config)


class ClusterMatmul(BandScript):
    """One block: a tile of C over one band of K, then its share of the tile's rows over all bands."""

    def __init__(self, build, split_k):
        super().__init__(build)
        self.split_k = split_k
        self.rows = self.block_m // split_k
        self.partial_layout = shared_row_major(self.block_m, self.block_n)

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        split_k: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n), self.split_k]
        self.attrs.cluster_blocks = [1, 1, self.split_k]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        # fmt: off
        self.band_product(
            acc, a_ptr, b_ptr, m, n_units, k_units, split_k, stride_am_units, stride_b_units, offset_m, offset_n, split
        )
        # fmt: on

        if self.split_k == 1:
            self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
        else:
            partial = shared_beside_barriers(self, dtype=float32, shape=[block_m, block_n])
            self.annotate_layout(partial, self.partial_layout)
            self.store_shared(partial, acc)
            self.cluster.sync()
            share: int32 = split * self.rows
            total = self.register_tensor(dtype=float32, shape=[self.rows, block_n], init=0.0)
            own: uint32 = cvta_generic_to_cta_shared(partial[0, 0].item_ptr())
            for rank in self.range(self.split_k, unroll="all"):
                peer: void_p = cvta_cluster_shared_to_generic(mapa_shared(own, rank))
                theirs = self.global_view(peer, dtype=float32, shape=[block_m, block_n])
                self.add(total, self.load_global(theirs, offsets=[share, 0], shape=[self.rows, block_n]), out=total)
            # No block ends while a peer reads its partial. One that has read all says so before it stores C, as an
            # arrival waits for the stores before it.
            cluster_arrive()
            self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m + share, offset_n)
            cluster_wait()
            self.free_shared(partial)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: MatmulConfig, vectors: band.Vectors):
    return ClusterMatmul(band.settings(problem, config, vectors), config.split_k)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: MatmulConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    problem, config, out = prepared(KERNEL, a, b, epilogue, bias, out, out_dtype, config)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    launching.launch(_script(problem, config, vectors), *operands)
    return out


def build(problem: Matmul, config: MatmulConfig) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(problem, config, band.vectors(problem)))


KERNEL = Kernel(
    name="cluster",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.CLUSTER,
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
