"""Split-K with turns: the splits of a tile add to the same place, in split order, behind a semaphore.

    split 0        running[m, n]  = sum over k in band 0 of A[m, k] * B[k, n]
    split s > 0    wait for turn s;  running[m, n] += sum over k in band s of A[m, k] * B[k, n]
    last split     C[m, n] = epilogue(running[m, n])

Grid         (tiles of M, tiles of N, split_k), z slowest: lower splits start first, which is what the waiting needs
Who sums     every block its band in fp32 registers, then its turn; the hand-over is through L2
Deterministic yes: split order is summation order
Workspace    one int32 a tile; the fp32 variant 4 bytes an element of the padded C more
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

from functools import partial

import torch
from tilus import bfloat16, float16, float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from common import tuned, workspace
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Layout, Matmul
from common.protocol import Protocol
from kernels_tilus import launching
from kernels_tilus.epilogue import EpilogueScript

SHARED_MEMORY_LIMIT = 227 * 1024  # per block, Hopper
TILUS_DTYPE = {torch.bfloat16: bfloat16, torch.float16: float16, torch.float32: float32}

# (block_m, block_n, block_k, num_warps, num_stages): few warps and deep pipelines for few rows, wide tiles for many.
TILES = [
    *[(16, 8, 128, 1, 6), (16, 8, 256, 1, 4), (16, 8, 256, 1, 6), (16, 8, 512, 1, 3), (16, 16, 128, 1, 4)],
    *[(16, 16, 256, 2, 4), (16, 16, 512, 2, 3), (16, 32, 128, 2, 4), (16, 32, 128, 4, 4), (16, 64, 128, 4, 4)],
    *[(32, 16, 128, 2, 4), (32, 32, 64, 4, 6), (32, 32, 128, 4, 4), (32, 64, 128, 4, 4), (64, 16, 128, 4, 4)],
    *[(64, 32, 64, 4, 5), (64, 32, 128, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 3), (128, 64, 64, 4, 4)],
]
# A chain of turns is as long as the split: few and wide bands.
SPLITS = (1, 2, 3, 4, 6, 8)


def configs(problem: Matmul) -> list[MatmulConfig]:
    """Every tile with every split that leaves each band two steps of block_k and more."""
    space = [
        MatmulConfig(block_m, block_n, block_k, split_k, num_warps, num_stages)
        for block_m, block_n, block_k, num_warps, num_stages in TILES
        for split_k in SPLITS
        if split_k == 1 or split_k * 2 * block_k <= problem.k
    ]
    return [config for config in space if supports(problem, config) is None]


def default_config(problem: Matmul) -> MatmulConfig:
    """Small tiles, so that few splits fill Hopper's 132 multiprocessors; at most eight turns."""
    block_m = 16 if problem.m <= 32 else 32 if problem.m <= 256 else 64
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 256 else 64
    tiles = cdiv(problem.m, block_m) * cdiv(problem.n, block_n)
    split_k = 1
    while split_k < 8 and split_k * 2 * tiles <= 264 and problem.k // (split_k * 2) >= 256:
        split_k *= 2
    return MatmulConfig(block_m, block_n, 128, split_k, 2 if block_m * block_n == 256 else 4, 4)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """fp16 and bf16 inputs; the contiguous dimension of A and of B must be even, as cp.async copies 4 bytes or more."""
    if problem.dtype is torch.float32:
        return "fp32 inputs: the mma.sync path of tilus takes fp16 and bf16"
    if problem.k % 2:
        return f"K = {problem.k} is odd: cp.async copies 4 bytes or more"
    if problem.layout is Layout.KN and problem.n % 2:
        return f"N = {problem.n} is odd with B stored [K, N]: cp.async copies 4 bytes or more"
    if config is None:
        return None
    if config.block_m % 16 or config.block_n % 8 or config.block_k % 16:
        return f"blocks {config.block_m}x{config.block_n}x{config.block_k} are not multiples of mma's 16x8x16"
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    if not launching.warps_cover(config.block_m, config.block_n, config.num_warps):
        return f"{config.num_warps} warps do not divide a {config.block_m}x{config.block_n} tile of 16x8 products"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    if config.split_k >= 1 << workspace.TICKET_BITS:
        return f"split_k is {config.split_k}: a ticket has {1 << workspace.TICKET_BITS} turns"
    return None


class SemaphoreMatmul(EpilogueScript):
    """One block: a [block_m, block_n] tile of C over one band of K, then its turn.

    Extents and strides along which copies are wide come in units of that width (vector_k, vector_n, vector_c
    elements): tilus 0.2.0 derives alignment from a product, and takes none from an argument (`assume` included).
    """

    def __init__(
        self,
        dtype,
        out_dtype,
        layout,
        epilogue,
        block_m,
        block_n,
        block_k,
        split_k,
        num_warps,
        num_stages,
        vector_k,
        vector_n,
        vector_c,
        in_place,
        pooled,
    ):
        super().__init__(dtype, epilogue)
        self.out_dtype = out_dtype
        self.stored_nk = layout == "nk"
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.split_k = split_k
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.vector_k = vector_k
        self.vector_n = vector_n
        self.vector_b = vector_k if self.stored_nk else vector_n
        self.vector_c = vector_c
        self.in_place = in_place
        self.pooled = pooled

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        running_ptr: void_p,
        semaphores_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        ticket: int32,
    ):
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n_units * self.vector_n, block_n)
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n), self.split_k]
        self.attrs.warps = self.num_warps

        split: int32 = self.blockIdx.z
        band: int32 = cdiv(cdiv(k, block_k), self.split_k) * block_k
        k_begin: int32 = split * band
        k_end: int32 = min(k_begin + band, k)
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k], strides=[stride_am_units * self.vector_k, 1])
        b_shape = [n, k] if self.stored_nk else [k, n]
        gb = self.global_view(b_ptr, dtype=self.dtype, shape=b_shape, strides=[stride_b_units * self.vector_b, 1])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, block_m, block_k])
        sb_shape = [block_n, block_k] if self.stored_nk else [block_k, block_n]
        sb = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, sb_shape[0], sb_shape[1]])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)

        for stage in range(self.num_stages - 1):
            stage_k: int32 = k_begin + stage * block_k
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, stage_k])
            self.copy_async(
                src=gb, dst=sb[stage], offsets=[offset_n, stage_k] if self.stored_nk else [stage_k, offset_n]
            )
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()

        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step_k in self.range(k_begin, k_end, block_k, unroll=self.num_stages):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.dot(a, b.transpose() if self.stored_nk else b, acc, out=acc)

            preload_k: int32 = step_k + (self.num_stages - 1) * block_k
            if preload_k < k_end:
                self.copy_async(src=ga, dst=sa[preload], offsets=[offset_m, preload_k])
                self.copy_async(
                    src=gb,
                    dst=sb[preload],
                    offsets=[offset_n, preload_k] if self.stored_nk else [preload_k, offset_n],
                )
            self.copy_async_commit_group()
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()
        self.copy_async_wait_group(n=0)
        self.free_shared(sa)
        self.free_shared(sb)

        c_strides = [stride_cm_units * self.vector_c, 1] if self.vector_c > 0 else [stride_cm_units, stride_cn]
        gc = self.global_view(c_ptr, dtype=self.out_dtype, shape=[m, n], strides=c_strides)
        if self.split_k == 1:
            self.apply_epilogue(acc, bias_ptr, n, offset_n)
            self.store_global(gc, self.cast(acc, dtype=self.out_dtype), offsets=[offset_m, offset_n])
        else:
            if self.pooled:
                semaphores = self.global_tensor(dtype=int32, shape=[tiles_m, tiles_n], requires_clean=True)
            else:
                semaphores = self.global_view(semaphores_ptr, dtype=int32, shape=[tiles_m, tiles_n])
            semaphore: ~int32 = semaphores[self.blockIdx.x, self.blockIdx.y].item_ptr()
            if self.in_place:
                running = gc
            else:
                running = self.global_view(running_ptr, dtype=float32, shape=[tiles_m * block_m, tiles_n * block_n])

            if split > 0:
                self.lock_semaphore(semaphore, value=ticket + split)
                partial_sum = self.load_global(running, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                self.add(acc, self.cast(partial_sum, dtype=float32), out=acc)

            if split + 1 < self.split_k:
                if self.in_place:
                    self.store_global(gc, self.cast(acc, dtype=self.out_dtype), offsets=[offset_m, offset_n])
                else:
                    self.store_global(running, acc, offsets=[offset_m, offset_n])
                self.sync()  # every thread's store comes before the one thread that hands over
                self.release_semaphore(semaphore, value=ticket + split + 1)
            else:
                self.apply_epilogue(acc, bias_ptr, n, offset_n)
                self.store_global(gc, self.cast(acc, dtype=self.out_dtype), offsets=[offset_m, offset_n])
                self.sync()
                self.release_semaphore(semaphore, value=0)


def _script(problem: Matmul, config: MatmulConfig, vectors: tuple[int, int, int], in_place: bool, pooled: bool):
    return SemaphoreMatmul(
        TILUS_DTYPE[problem.dtype],
        TILUS_DTYPE[problem.out_dtype],
        problem.layout.value,
        problem.epilogue.value,
        config.block_m,
        config.block_n,
        config.block_k,
        config.split_k,
        config.num_warps,
        config.num_stages,
        *vectors,
        in_place,
        pooled,
    )


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
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on,
    for a problem outside of `supports`, and for data or row strides that are not aligned to 4 bytes.
    """
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    if reason := supports(problem, config):
        raise ValueError(f"config is {config}; {reason}" if config else reason)
    if config is None:
        config, _ = tuned.pick(_BY_VARIANT[variant], problem, tuned.slug_of(a.device))
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)

    stored_b = b.T if problem.layout is Layout.NK else b
    vector_k, vector_n, vector_c = vectors = launching.vectors(problem, a, stored_b, out)
    vector_b = vector_k if problem.layout is Layout.NK else vector_n
    tiles_m, tiles_n = cdiv(problem.m, config.block_m), cdiv(problem.n, config.block_n)
    in_place = variant == "in_place"
    running, semaphores, ticket, pooled = None, None, 0, False
    if config.split_k > 1:
        ticket = workspace.next_ticket()
        pooled = in_place and launching.may_use_pool(a.device)
        if not pooled:
            semaphores = workspace.semaphores(tiles_m * tiles_n, a.device)
        if not in_place:
            shape = tiles_m * config.block_m, tiles_n * config.block_n
            running = torch.empty(shape, dtype=torch.float32, device=a.device)
    launching.launch(
        _script(problem, config, vectors, in_place, pooled),
        *(a, stored_b, bias, out, running, semaphores),
        problem.m,
        problem.n // vector_n,
        problem.k // vector_k,
        a.stride(0) // vector_k,
        stored_b.stride(0) // vector_b,
        out.stride(0) // max(vector_c, 1),
        out.stride(1),
        ticket,
    )
    return out


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    in_place = variant == "in_place"
    script = _script(problem, config, launching.vectors(problem), in_place, pooled=in_place and config.split_k > 1)
    launching.build(script)


def workspace_bytes(problem: Matmul, config: MatmulConfig, *, variant: str) -> int:
    if config.split_k == 1:
        return 0
    tiles = cdiv(problem.m, config.block_m) * cdiv(problem.n, config.block_n)
    running = 0 if variant == "in_place" else 4 * tiles * config.block_m * config.block_n
    return 4 * tiles + running


KERNELS = tuple(
    Kernel(
        name="semaphore",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.SERIAL,
        launch=partial(matmul, variant=variant),
        config_type=MatmulConfig,
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
