"""The tilus tutorial's products of matrices, V0 to V5, as published.

    C[m, n] = fp16(sum over k of A[m, k] * B[k, n])         fp16 in and out, fp32 inside

v0  1 warp, 64 x 64 x 16; operands from global memory into registers
v1  4 warps, 64 x 64 x 16; operands through shared memory
v2  the same, searched: 4 or 8 warps, 3 tiles, 16 or 32 of K a step
v3  cp.async into shared memory in the place of registers
v4  a pipeline of 3 to 5 stages
v5  split-K: the same over a band of K; the splits of a tile add to C in fp16, in split order, behind a semaphore

Grid         (tiles of M, tiles of N), v5 (tiles of M, tiles of N, splits)
Deterministic yes: v5's order of splits is the order of its sum
Workspace    none; v5 one int32 a tile, of tilus' pool
Launches     1

As there, N and K are compile-time constants, v5 takes the semaphore for one split too, and its partial sums are rounded
to fp16 before and after every addition. Source: tilus' tutorial "Matmul", examples/matmul/matmul_v0.py to matmul_v5.py
at v0.2.0. What was decided here: notes/as_published.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import ClassVar

import tilus
import torch
from tilus import float16, float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig, Space, space_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_tilus import launching


@dataclass(frozen=True)
class TutorialConfig(MatmulConfig):
    """Each is compiled for itself."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ()


def _configs(num_warps, tiles, block_ks, num_stages=(1,), splits=(1,)) -> tuple[TutorialConfig, ...]:
    return tuple(
        TutorialConfig(block_m, block_n, block_k, split_k, warps, stages)
        for warps, (block_m, block_n), block_k, stages, split_k in product(
            num_warps, tiles, block_ks, num_stages, splits
        )
    )


WIDE = ((128, 128), (128, 64), (64, 128))
SPACES = {
    "v0": _configs((1,), ((64, 64),), (16,)),
    "v1": _configs((4,), ((64, 64),), (16,)),
    "v2": _configs((4, 8), WIDE, (16, 32)),
    "v3": _configs((4, 8), WIDE, (16, 32)),
    "v4": _configs((4, 8), WIDE, (16, 32), (3, 4, 5)),
    "v5": _configs((4, 8), (*WIDE, (32, 256)), (16, 32), (3, 4, 5), (1, 4, 12, 16)),
}


def space(problem: Matmul, *, variant: str) -> Space:
    """The tutorial's, without what v5 cannot run."""
    return space_of(SPACES[variant], partial(supports, problem, variant=variant))


def default_config(problem: Matmul, *, variant: str) -> TutorialConfig:
    """The first of the tutorial's lists, as it names no other where it searches."""
    return SPACES[variant][0]


def supports(problem: Matmul, config: TutorialConfig | None = None, *, variant: str) -> str | None:
    """fp16 in and out, B stored [K, N], no epilogue; of configs the tutorial's."""
    if problem.dtype is not torch.float16 or problem.out_dtype is not torch.float16:
        return f"as published, it takes and returns fp16 alone, not {problem.dtype} and {problem.out_dtype}"
    if reason := as_published.kn_alone(problem) or as_published.no_epilogue(problem):
        return reason
    elements = {"A": problem.m * problem.k, "B": problem.k * problem.n, "C": problem.m * problem.n}
    if reason := launching.out_of_reach(elements):
        return reason
    if config is not None and config not in SPACES[variant]:
        return f"none of the {len(SPACES[variant])} configs of the tutorial's {variant}"
    return short_band(problem, config or SPACES[variant][0]) if variant == "v5" else None


def short_band(problem: Matmul, config: TutorialConfig) -> str | None:
    """Why v5 sits out where a band, the last for one, has fewer steps than its pipeline has copies ahead: it frees
    their memory for C's tile while they are under way."""
    band = cdiv(cdiv(problem.k, config.split_k), config.block_k)
    fewest = min(band, cdiv(problem.k, config.block_k) - (config.split_k - 1) * band)
    least = config.num_stages - 1
    if fewest < least:
        return f"as published, a band of {max(fewest, 0)} steps leaves copies under way; {least} or more"
    return None


class TutorialScript(tilus.Script):
    """What the six have in common: the tile of a block, the operands, and N and K as constants."""

    def __init__(self, n: int, k: int, config: TutorialConfig):
        super().__init__()
        self.n = n
        self.k = k
        self.block_m = config.block_m
        self.block_n = config.block_n
        self.block_k = config.block_k
        self.num_warps = config.num_warps
        self.num_stages = config.num_stages
        self.split_k = config.split_k


class MatmulV0(TutorialScript):
    """Operands from global memory into registers."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, m: int32):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(self.n, self.block_n)]
        self.attrs.warps = self.num_warps
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, self.k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[self.k, self.n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for step in range(cdiv(self.k, self.block_k)):
            offset_k = step * self.block_k
            a = self.load_global(ga, offsets=[offset_m, offset_k], shape=[self.block_m, self.block_k])
            b = self.load_global(gb, offsets=[offset_k, offset_n], shape=[self.block_k, self.block_n])
            self.dot(a, b, acc, out=acc)
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, self.n])
        self.store_global(gc, self.cast(acc, dtype=float16), offsets=[offset_m, offset_n])


class MatmulV1(TutorialScript):
    """Operands through registers into shared memory; V2 is the same, searched."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, m: int32):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(self.n, self.block_n)]
        self.attrs.warps = self.num_warps
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, self.k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[self.k, self.n])
        sa = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for offset_k in range(0, self.k, self.block_k):
            self.store_shared(
                sa, self.load_global(ga, offsets=[offset_m, offset_k], shape=[self.block_m, self.block_k])
            )
            self.store_shared(
                sb, self.load_global(gb, offsets=[offset_k, offset_n], shape=[self.block_k, self.block_n])
            )
            self.sync()
            a = self.load_shared(sa)
            b = self.load_shared(sb)
            self.dot(a, b, acc, out=acc)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, self.n])
        self.store_global(gc, self.cast(acc, dtype=float16), offsets=[offset_m, offset_n])


class MatmulV3(TutorialScript):
    """Operands by cp.async into shared memory."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, m: int32):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(self.n, self.block_n)]
        self.attrs.warps = self.num_warps
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, self.k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[self.k, self.n])
        sa = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for offset_k in range(0, self.k, self.block_k):
            self.copy_async(src=ga, dst=sa, offsets=[offset_m, offset_k])
            self.copy_async(src=gb, dst=sb, offsets=[offset_k, offset_n])
            self.copy_async_wait_all()
            self.sync()
            a = self.load_shared(sa)
            b = self.load_shared(sb)
            self.dot(a, b, acc, out=acc)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, self.n])
        self.store_global(gc, self.cast(acc, dtype=float16), offsets=[offset_m, offset_n])


class MatmulV4(TutorialScript):
    """A pipeline of cp.async groups; it copies past the end of K too, zeros."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, m: int32):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(self.n, self.block_n)]
        self.attrs.warps = self.num_warps
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, self.k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[self.k, self.n])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for stage in range(self.num_stages - 1):
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, stage * self.block_k])
            self.copy_async(src=gb, dst=sb[stage], offsets=[stage * self.block_k, offset_n])
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()
        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for offset_k in self.range(0, self.k, self.block_k, unroll=self.num_stages):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.dot(a, b, acc, out=acc)
            ahead = offset_k + (self.num_stages - 1) * self.block_k
            self.copy_async(src=ga, dst=sa[preload], offsets=[offset_m, ahead])
            self.copy_async(src=gb, dst=sb[preload], offsets=[ahead, offset_n])
            self.copy_async_commit_group()
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        gc = self.global_view(c_ptr, dtype=float16, shape=[m, self.n])
        self.store_global(gc, self.cast(acc, dtype=float16), offsets=[offset_m, offset_n])


class MatmulV5(TutorialScript):
    """The pipeline over a band of K, then turns at C. pooled: the semaphores are of tilus' pool, as published; they are
    an argument where the pool may not be used (kernels_tilus/launching.py)."""

    def __init__(self, n: int, k: int, config: TutorialConfig, pooled: bool):
        super().__init__(n, k, config)
        self.pooled = pooled

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, semaphores_ptr: void_p, m: int32):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(self.n, self.block_n), self.split_k]
        self.attrs.warps = self.num_warps
        band = cdiv(cdiv(self.k, self.split_k), self.block_k) * self.block_k
        begin = self.blockIdx.z * band
        end = min(begin + band, self.k)
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m, self.k])
        gb = self.global_view(b_ptr, dtype=float16, shape=[self.k, self.n])
        sa = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_m, self.block_k])
        sb = self.shared_tensor(dtype=float16, shape=[self.num_stages, self.block_k, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        for stage in range(self.num_stages - 1):
            first = begin + stage * self.block_k
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, first])
            self.copy_async(src=gb, dst=sb[stage], offsets=[first, offset_n])
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()
        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for offset_k in self.range(begin, end, self.block_k, unroll=self.num_stages):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.dot(a, b, acc, out=acc)
            ahead = offset_k + (self.num_stages - 1) * self.block_k
            if ahead < end:
                self.copy_async(src=ga, dst=sa[preload], offsets=[offset_m, ahead])
                self.copy_async(src=gb, dst=sb[preload], offsets=[ahead, offset_n])
            self.copy_async_commit_group()
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)

        # Through shared memory into a layout for the store.
        sc = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_n])
        self.store_shared(sc, self.cast(acc, dtype=float16))
        self.sync()
        tile = self.load_shared(sc)
        self.free_shared(sc)

        gc = self.global_view(c_ptr, dtype=float16, shape=[m, self.n])
        tiles_m, tiles_n = cdiv(m, self.block_m), cdiv(self.n, self.block_n)
        if self.pooled:
            semaphores = self.global_tensor(dtype=int32, shape=[tiles_m, tiles_n], requires_clean=True)
        else:
            semaphores = self.global_view(semaphores_ptr, dtype=int32, shape=[tiles_m, tiles_n])
        semaphore: ~int32 = semaphores[self.blockIdx.x, self.blockIdx.y].item_ptr()  # type: ignore[valid-type]
        if self.blockIdx.z > 0:
            self.lock_semaphore(semaphore, value=self.blockIdx.z)
            so_far = self.load_global(gc, offsets=[offset_m, offset_n], shape=[self.block_m, self.block_n])
            self.add(tile, so_far, out=tile)
        self.store_global(gc, tile, offsets=[offset_m, offset_n])
        self.sync()  # every thread's store comes before the hand-over
        self.release_semaphore(semaphore, value=(self.blockIdx.z + 1) % self.split_k)


SCRIPTS: dict[str, Callable[..., TutorialScript]] = {
    "v0": MatmulV0,
    "v1": MatmulV1,
    "v2": MatmulV1,
    "v3": MatmulV3,
    "v4": MatmulV4,
    "v5": MatmulV5,
}
ALIGNMENT = 16  # bytes, of tensors that are copied by 16


@lru_cache(maxsize=4096)
def _script(variant: str, n: int, k: int, config: TutorialConfig, **options: bool) -> TutorialScript:
    return SCRIPTS[variant](n, k, config, **options)


def plan(problem: Matmul, config: TutorialConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches. Raises ValueError for tensors that are not contiguous, or not aligned to 16 bytes."""
    own = contiguous(problem)
    if (placement.in_strides, placement.out_strides) != (own.in_strides, own.out_strides):
        raise ValueError(f"strides are {placement}; accepted: contiguous tensors, as published")
    if any(placement.alignment_of(slot) < ALIGNMENT for slot in (Slot.A, Slot.B, Slot.C)):
        raise ValueError(f"alignments are {placement}; accepted: {ALIGNMENT} bytes, as published")
    made = partial(_script, variant, problem.n, problem.k, config)
    if variant != "v5":
        return Plan(problem, placement, (Launch(made(), (Slot.A, Slot.B, Slot.C, problem.m)),))
    script = launching.Pooled(made(pooled=True), made(pooled=False))
    launch = Launch(script, (Slot.A, Slot.B, Slot.C, Slot.COUNTERS, problem.m))
    return Plan(problem, placement, (launch,), counters=tiles_of(problem, config))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: TutorialConfig | None = None,
    variant: str = "v5",
) -> Tensor:
    """C [M, N] = a [M, K] @ b [K, N], fp16; common.checks.matmul_problem says what is accepted and raised.

    variant: 'v0' to 'v5'. Raises ValueError for what `supports` and `plan` refuse.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: TutorialConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


def workspace_bytes(problem: Matmul, config: TutorialConfig, *, variant: str) -> int:
    """A tensor of the pool takes eight times its bytes in tilus 0.2.0, which multiplies bits by eight."""
    return 8 * 4 * tiles_of(problem, config) if variant == "v5" else 0


KERNELS = tuple(
    Kernel(
        name="matmul",
        variant=variant,
        language=Language.PUBLISHED_TILUS,
        protocol=Protocol.SERIAL if variant == "v5" else Protocol.DATA_PARALLEL,
        launch=partial(matmul, variant=variant),
        config_type=TutorialConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        # Every partial sum, and every sum with what stands in C.
        roundings=lambda config: 2 * config.split_k - 1,
        workspace_bytes=partial(workspace_bytes, variant=variant),
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
        on_request=True,
    )
    for variant in SCRIPTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
