"""Split-K with turns: the splits of a tile add to the same place, in split order, behind a semaphore.

    split 0        running[m, n]  = sum over k in band 0 of A[m, k] * B[k, n]
    split s > 0    wait for turn s;  running[m, n] += sum over k in band s of A[m, k] * B[k, n]
    last split     C[m, n] = epilogue(running[m, n])

Grid         (tiles of M, tiles of N, split_k), z slowest: lower splits start first, which is what the waiting needs
Who sums     every block its band in fp32 registers, then its turn; the hand-over is through L2
Deterministic yes: split order is summation order
Workspace    one int32 a tile; the fp32 variant 4 bytes an element of C more
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

from common import workspace
from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching
from kernels_tilus.band import BandConfig, BandScript

# A chain of turns is as long as the split: few and wide bands.
SPLITS = (1, 2, 3, 4, 6, 8)


def configs(problem: Matmul) -> list[MatmulConfig]:
    """Every tile with every split of which each band has a step, as band.space has them."""
    return band.space(problem, SPLITS)


def default_config(problem: Matmul) -> MatmulConfig:
    """Small tiles, so that few splits fill the multiprocessors; at most four turns."""
    return band.default_config(problem, most_splits=4)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """As every band kernel; and a ticket must have as many turns as there are splits."""
    if config is not None and config.split_k >= 1 << workspace.TICKET_BITS:
        return f"split_k is {config.split_k}: a ticket has {1 << workspace.TICKET_BITS} turns"
    return band.supports(problem, config)


class SemaphoreMatmul(BandScript):
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
        m: int32,
        n_units: int32,
        k_units: int32,
        split_k: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        running_ptr: void_p,
        semaphores_ptr: void_p,
        ticket: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n), split_k]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        # fmt: off
        self.band_product(
            acc, a_ptr, b_ptr, m, n_units, k_units, split_k, stride_am_units, stride_b_units, offset_m, offset_n, split
        )
        # fmt: on

        if not self.split:
            self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
        else:
            if self.pooled:
                semaphores = self.global_tensor(dtype=int32, shape=[tiles_m, tiles_n], requires_clean=True)
            else:
                semaphores = self.global_view(semaphores_ptr, dtype=int32, shape=[tiles_m, tiles_n])
            semaphore: ~int32 = semaphores[self.blockIdx.x, self.blockIdx.y].item_ptr()
            if self.in_place:
                strides = [stride_cm_units * self.vector_c, 1] if self.vector_c > 0 else [stride_cm_units, stride_cn]
                running = self.global_view(c_ptr, dtype=self.out_dtype, shape=[m, n], strides=strides)
            else:
                running = self.global_view(running_ptr, dtype=float32, shape=[m, n])

            if split > 0:
                self.lock_semaphore(semaphore, value=ticket + split)
                so_far = self.load_global(running, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                self.add(acc, self.cast(so_far, dtype=float32), out=acc)

            if split + 1 < split_k:
                if self.in_place:
                    self.store_global(running, self.cast(acc, dtype=self.out_dtype), offsets=[offset_m, offset_n])
                else:
                    self.store_global(running, acc, offsets=[offset_m, offset_n])
                self.sync()  # every thread's store comes before the one thread that hands over
                self.release_semaphore(semaphore, value=ticket + split + 1)
            else:
                self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.sync()
                self.release_semaphore(semaphore, value=0)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: MatmulConfig, vectors: band.Vectors, in_place: bool, pooled: bool):
    return SemaphoreMatmul(band.settings(problem, config, vectors), config.split_k > 1, in_place, pooled)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: MatmulConfig | None = None,
    variant: str = "in_place",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'in_place' or 'fp32', where the running sum stands. CPU tensors run in the interpreter.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem, config, out = prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)

    tiles_m, tiles_n = cdiv(problem.m, config.block_m), cdiv(problem.n, config.block_n)
    in_place = variant == "in_place"
    running, semaphores, ticket, pooled = None, None, 0, False
    if config.split_k > 1:
        ticket = workspace.next_ticket()
        pooled = in_place and launching.may_use_pool(a.device)
        if pooled:
            workspace.ready_for_capture(a.device)
        else:
            semaphores = workspace.semaphores(tiles_m * tiles_n, a.device)
        if not in_place:
            running = torch.empty(problem.m, problem.n, dtype=torch.float32, device=a.device)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    script = _script(problem, config, vectors, in_place, pooled)
    launching.launch(script, *operands, running, semaphores, ticket)
    return out


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    in_place = variant == "in_place"
    pooled = in_place and config.split_k > 1
    launching.build(_script(problem, config, band.vectors(problem), in_place, pooled))


def workspace_bytes(problem: Matmul, config: MatmulConfig, *, variant: str) -> int:
    if config.split_k == 1:
        return 0
    tiles = cdiv(problem.m, config.block_m) * cdiv(problem.n, config.block_n)
    if variant == "in_place":
        return 8 * 4 * tiles  # in tilus 0.2.0 a pool's tensor takes eight times its bytes: it multiplies bits by eight
    return 4 * tiles + 4 * problem.m * problem.n


KERNELS = tuple(
    Kernel(
        name="semaphore",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.SERIAL,
        launch=partial(matmul, variant=variant),
        config_type=BandConfig,
        configs=configs,
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=supports,
        deterministic=True,
        roundings=(lambda config: config.split_k) if variant == "in_place" else (lambda config: 1),
        workspace_bytes=partial(workspace_bytes, variant=variant),
        launches=1,
    )
    for variant in ("in_place", "fp32")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
