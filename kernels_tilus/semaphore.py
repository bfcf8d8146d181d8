"""Split-K with turns: the splits of a tile add to the same place, in split order, behind a semaphore.

    split 0        running[m, n]  = sum over k in band 0 of A[m, k] * B[k, n]
    split s > 0    wait for turn s;  running[m, n] += sum over k in band s of A[m, k] * B[k, n]
    last split     C[m, n] = epilogue(running[m, n])

Grid         (rows of tiles in a group, tiles of N, groups x split_k): common.kernel.Grid,
             the split slowest: waiting relies on lower splits starting first, which CUDA does not promise
Who sums     every block its band in fp32 registers, then its turn; the hand-over is through L2
Deterministic yes: split order is summation order
Workspace    one int32 a tile, of tilus' pool 32 bytes; the fp32 variant 4 bytes an element of C more
Launches     1

Two variants: *in_place*, the running sum stands in C and is rounded to C's dtype at every turn, with semaphores from
`global_tensor(requires_clean=True)`; *fp32*, it stands in an fp32 workspace and is rounded once. One split takes no
semaphore.

Turns are numbered from a ticket of the launch's own (common/workspace.py), so that whatever an earlier launch
left in a semaphore is nobody's turn; the last split restores zero all the same, as `requires_clean` demands.
tilus' pool of global tensors is one for all streams, and may not grow while a graph is captured: beside the default
stream, and in a capture, the semaphores are a tensor of the stream's or graph's own.

Source: tilus tutorial "Split-K" (matmul_v5). Differences: turn 0 is not taken for one split (the tutorial's test for
that never holds), the sum is added in fp32 before it is rounded (there: in fp16), dtypes, layouts and sizes are free.
"""

from functools import lru_cache, partial

import torch
from tilus import float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import TURNS
from triton_vs_tilus.kernels_tilus import band, configs, launching
from triton_vs_tilus.kernels_tilus.arrival import Arrivals
from triton_vs_tilus.kernels_tilus.band import BandScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig, band_space
from triton_vs_tilus.kernels_tilus.epilogue import view_of_c
from triton_vs_tilus.kernels_tilus.partials import sums_in_rows


def space(problem: Matmul) -> Space:
    """Every wanted tile, with few splits: they form a chain."""
    return band_space(problem, TURNS)


def default_config(problem: Matmul) -> BandConfig:
    """At most 4 splits."""
    return configs.default_config(problem, most_splits=4)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and a ticket must have as many turns as there are splits."""
    return workspace.too_many_turns(config.split_k if config else 1) or configs.supports(problem, config)


def workspace_bytes(problem: Matmul, config: BandConfig, *, variant: str) -> int:
    if config.split_k == 1:
        return 0
    if variant == "in_place":
        # tilus alone: a tensor of the pool takes eight times its bytes in 0.2.0, which multiplies bits by eight.
        return 8 * 4 * tiles_of(problem, config)
    return 4 * tiles_of(problem, config) + 4 * problem.m * problem.n


class SemaphoreMatmul(Arrivals, BandScript):
    """One block: a tile of C over one band of K, then its turn."""

    def __init__(self, build, split, in_place, pooled):
        super().__init__(build)
        self.split = split
        self.in_place = in_place
        self.pooled = pooled

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        semaphores_ptr: void_p,
        running_ptr: void_p,
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
        tile: int32 = pid_n * tiles_m + pid_m

        if offset_m < m:  # the last group may have fewer rows
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
                tiles: int32 = tiles_m * cdiv(n, block_n)
                if self.pooled:
                    # tilus alone: its pool of clean memory, as in the tutorial.
                    semaphores = self.global_tensor(dtype=int32, shape=[tiles], requires_clean=True)
                else:
                    semaphores = self.global_view(semaphores_ptr, dtype=int32, shape=[tiles])
                semaphore: ~int32 = semaphores[tile].item_ptr()
                if self.in_place:
                    running = view_of_c(self, c_ptr, m, n, stride_cm_units, stride_cn)
                else:
                    running = self.global_view(running_ptr, dtype=float32, shape=[m, n])

                sums = sums_in_rows(self, acc)  # before the wait, so that the chain pays for it in split 0 alone
                if split > 0:
                    self.lock_semaphore(semaphore, value=ticket + split)
                    so_far = self.load_global(running, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                    self.add(sums, self.cast(so_far, dtype=float32), out=sums)

                if split + 1 < split_k:
                    if self.in_place:
                        self.store_global(running, self.cast(sums, dtype=self.out_dtype), offsets=[offset_m, offset_n])
                    else:
                        self.store_global(running, sums, offsets=[offset_m, offset_n])
                    self.sync()  # every thread's store comes before the one thread that hands over
                    self.release_semaphore(semaphore, value=ticket + split + 1)
                else:
                    self.finish(sums, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                    self.reset(semaphores, tile)  # for the next launch, which waits for the end of this one: no release


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors, variant: str, pooled: bool):
    return SemaphoreMatmul(band.settings(problem, config, vectors), config.split_k > 1, variant == "in_place", pooled)


def plan(problem: Matmul, config: BandConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    split, in_place = config.split_k > 1, variant == "in_place"
    running = Slot.SCRATCH if split and not in_place else None
    script = _script(problem, config, vectors, variant, pooled=False)
    if split and in_place:
        script = launching.Pooled(_script(problem, config, vectors, variant, pooled=True), script)
    launch = Launch(
        script,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, Slot.COUNTERS if split else None, running),
            *(*band.arguments(problem, vectors, placement), *band.place(problem, config)),
            *(*band.bands(problem, config), Slot.TICKET),
        ),
    )
    if not split:
        return Plan(problem, placement, (launch,))
    scratch = () if in_place else (problem.m, problem.n)
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
    variant: str = "in_place",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'in_place' or 'fp32', where the running sum stands.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="semaphore",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.SERIAL,
        launch=partial(matmul, variant=variant),
        config_type=BandConfig,
        space=space,
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=supports,
        deterministic=True,
        roundings=(lambda config: config.split_k) if variant == "in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
    )
    for variant in ("in_place", "fp32")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
