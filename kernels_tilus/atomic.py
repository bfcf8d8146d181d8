"""Split-K with atomic adds: every split adds to one fp32 sum; the last of a tile to arrive finishes it.

    split s        sums[m, n] += sum over k in band s of A[m, k] * B[k, n]       atomically, in fp32
    last arriver   C[m, n] = epilogue(sums[m, n]);  sums[m, n] = 0               one rounding

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid
Who sums     a block its band in fp32 registers; the atomic units of L2 the bands
Deterministic no: the bands are added in the order in which they come
Workspace    one int32 a tile and 4 bytes an element of C, zero before a launch and after it
Launches     1

No block waits for another. Nothing is zeroed per call: the last arriver restores the zeros. One split takes neither
sums nor counter. tilus 0.2.0 has no atomics of tiles; kernels_tilus/atomics.py adds the one that this takes.

Source: the single-launch kernel (TLX) of the decompose-K study, without its descriptors; the split-K kernel of
"Accelerating a Triton Fused Kernel for W4A16 Quantized Inference with SplitK Work Decomposition" (arXiv 2402.00025),
which adds in C's dtype and has no epilogue.
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
from triton_vs_tilus.kernels_tilus.atomics import atomic_add, clear
from triton_vs_tilus.kernels_tilus.configs import BandConfig, band_space


def space(problem: Matmul) -> Space:
    """Every wanted tile with every wanted split."""
    return band_space(problem, splits(problem))


def default_config(problem: Matmul) -> BandConfig:
    """At most 128 splits."""
    return configs.default_config(problem, most_splits=128)


supports = arrival.supports


def workspace_bytes(problem: Matmul, config: BandConfig) -> int:
    return 0 if config.split_k == 1 else 4 * tiles_of(problem, config) + 4 * problem.m * problem.n


class AtomicMatmul(ArrivalScript):
    """One block: a tile of C over one band of K, added to the sums; if it comes last, the end of the tile."""

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
        sums_ptr: void_p,
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
                sums = self.global_view(sums_ptr, dtype=float32, shape=[m, n])
                atomic_add(self, sums, acc, offsets=[offset_m, offset_n])
                if self.is_last(counters, tile, ticket, split_k):
                    total = self.load_global(sums, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                    self.annotate_layout(total, self.wide_layout)
                    self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                    clear(self, sums, total, offsets=[offset_m, offset_n])
                    self.reset(counters, tile)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors):
    return AtomicMatmul(band.settings(problem, config, vectors), config.split_k > 1)


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    split = config.split_k > 1
    launch = Launch(
        _script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, *((Slot.COUNTERS, Slot.SUMS) if split else (None, None))),
            *(*band.arguments(problem, vectors, placement), *band.place(problem, config)),
            *(*band.bands(problem, config), Slot.TICKET),
        ),
    )
    if not split:
        return Plan(problem, placement, (launch,))
    return Plan(problem, placement, (launch,), counters=tiles_of(problem, config), sums=problem.m * problem.n)


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
    name="atomic",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.ATOMIC,
    launch=matmul,
    config_type=BandConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=False,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
