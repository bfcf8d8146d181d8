"""Split-K with a last arriver: every split writes its partial sum; the last of a tile to arrive sums them all.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]            fp32, one block a tile and band
    last arriver   C[m, n] = epilogue(sum over s of partials[s, m, n])       in split order, one rounding

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid
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

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import splits
from triton_vs_tilus.kernels_tilus import arrival, band, configs, launching
from triton_vs_tilus.kernels_tilus.arrival import ArrivalScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig, band_space
from triton_vs_tilus.kernels_tilus.partials import sums_in_rows


def space(problem: Matmul) -> Space:
    """Every wanted tile with every wanted split."""
    return band_space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """At most 32 splits."""
    return configs.default_config(problem, most_splits=32)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every kernel of arrivals; and offsets reach the partials."""
    return configs.partials_out_of_reach(problem, config) or arrival.supports(problem, config)


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    if config.split_k == 1:
        return 0
    return 4 * tiles_of(problem, config) + 4 * config.split_k * problem.m * problem.n


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
        counters_ptr: void_p,
        partials_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        group_m: int32,
        groups: int32,
        split_k: int32,
        band_steps: int32,
        ticket: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [group_m, cdiv(n_units * self.vector_n, block_n), groups * split_k]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        pid_m: int32 = self.pid_m_of(group_m, groups)
        pid_n: int32 = self.blockIdx.y
        split: int32 = self.split_of(groups)
        offset_m: int32 = pid_m * block_m
        offset_n: int32 = pid_n * block_n
        tiles_m: int32 = cdiv(m, block_m)
        tiles: int32 = tiles_m * cdiv(n, block_n)
        tile: int32 = pid_n * tiles_m + pid_m
        counters = self.global_view(counters_ptr, dtype=int32, shape=[tiles])

        if offset_m < m:  # the last group may have fewer rows
            if self.split:
                self.announce(counters, tile, ticket)

            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.band_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
                offset_m, offset_n, split, band_steps,
            )
            # fmt: on

            if not self.split:
                self.finish_in_rows(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
            else:
                partials = self.global_view(partials_ptr, dtype=float32, shape=[split_k, m, n])
                self.store_global(partials, sums_in_rows(self, acc), offsets=[split, offset_m, offset_n], dims=[1, 2])
                if self.is_last(counters, tile, ticket, split_k):
                    total = self.sum_in_order(partials, 0, offset_m, offset_n)
                    self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                    self.reset(counters, tile)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors):
    return LastArriverMatmul(band.settings(problem, config, vectors), config.split_k > 1)


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    split = config.split_k > 1
    launch = Launch(
        _script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, *((Slot.COUNTERS, Slot.SCRATCH) if split else (None, None))),
            *(*band.arguments(problem, vectors, placement), *band.place(problem, config)),
            *(*band.bands(problem, config), Slot.TICKET),
        ),
    )
    if not split:
        return Plan(problem, placement, (launch,))
    scratch = config.split_k, problem.m, problem.n
    return Plan(problem, placement, (launch,), counters=tiles_of(problem, config), scratch=scratch)


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
    name="last_arriver",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.LAST_ARRIVER,
    launch=matmul,
    config_type=BandConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
