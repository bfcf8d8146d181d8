"""Split-K with a last arriver: every split writes its partial sum; the last of a tile to arrive sums them all.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]            fp32, one block a tile and band
    last arriver   C[m, n] = epilogue(sum over s of partials[s, m, n])       in split order, one rounding

Grid         (tiles of M, tiles of N, split_k)
Who sums     a block its band; the last block of a tile the bands, whichever it is, its own read back with the rest
Deterministic yes: split order is summation order, whoever sums
Workspace    4 * split_k * M * N bytes, written and read once; one int32 a tile, zero before a launch and after it
Launches     1

No block waits for another. The partials are those of decompose-K; what differs is who sums them, and when: each tile by
one block as soon as it is complete, instead of all of them by a second launch. The last arriver loads several partials
before it adds the first, as the way to L2 and back would else be made split_k times. One split takes neither partials
nor counter.

Source: CUTLASS' "split-K parallel" reduction moved into the product, as in the fix-up of stream-K (arXiv 2301.03598).
"""

from functools import lru_cache

import torch
from tilus import float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from common import workspace
from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, splits
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import arrival, band, launching
from kernels_tilus.arrival import ArrivalScript
from kernels_tilus.band import BandConfig


def configs(problem: Matmul) -> list[BandConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return band.space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """A block or two on each of Hopper's 132 multiprocessors; one block reads what all splits of its tile wrote."""
    return band.default_config(problem, most_splits=32)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every kernel of arrivals; and offsets reach the partials."""
    return band.partials_out_of_reach(problem, config) or arrival.supports(problem, config)


class LastArriverMatmul(ArrivalScript):
    """One block: a tile of C over one band of K, and, if it comes last, the sum over all bands."""

    def __init__(self, build, split):
        super().__init__(build)
        self.split = split

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
        partials_ptr: void_p,
        counters_ptr: void_p,
        ticket: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n), split_k]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        tile: int32 = self.blockIdx.y * tiles_m + self.blockIdx.x
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        counters = self.global_view(counters_ptr, dtype=int32, shape=[tiles_m * tiles_n])
        if self.split:
            self.announce(counters, tile, ticket)

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        # fmt: off
        self.band_product(
            acc, a_ptr, b_ptr, m, n_units, k_units, split_k, stride_am_units, stride_b_units, offset_m, offset_n, split
        )
        # fmt: on

        if not self.split:
            self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
        else:
            partials = self.global_view(partials_ptr, dtype=float32, shape=[split_k, m, n])
            self.store_global(partials, acc, offsets=[split, offset_m, offset_n], dims=[1, 2])
            if self.is_last(counters, tile, ticket, split_k):
                total = self.sum_in_order(partials, 0, offset_m, offset_n)
                self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.reset(counters, tile)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors):
    return LastArriverMatmul(band.settings(problem, config, vectors), config.split_k > 1)


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    problem, config, out = prepared(KERNEL, a, b, epilogue, bias, out, out_dtype, config)

    partials, counters, ticket = None, None, 0
    if config.split_k > 1:
        ticket = workspace.next_ticket()
        counters = workspace.semaphores(band.count_tiles(problem, config.block_m, config.block_n), a.device)
        partials = torch.empty(config.split_k, problem.m, problem.n, dtype=torch.float32, device=a.device)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    launching.launch(_script(problem, config, vectors), *operands, partials, counters, ticket)
    return out


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(problem, config, band.vectors(problem)))


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    if config.split_k == 1:
        return 0
    tiles = band.count_tiles(problem, config.block_m, config.block_n)
    return 4 * tiles + 4 * config.split_k * problem.m * problem.n


KERNEL = Kernel(
    name="last_arriver",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.LAST_ARRIVER,
    launch=matmul,
    config_type=BandConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    launches=1,
)
