"""No split over blocks: the warps of one block share K, and their sums meet in shared memory.

    warp w    sums[w, m, n] = sum over the k that w walks of A[m, k] * B[k, n]
    block     C[m, n] = epilogue(sum over w of sums[w, m, n])        fp32, one rounding

Grid         (tiles of N, tiles of M); a block walks all of K in steps of block_k, shared out evenly to its warps
Who sums     a warp its share in fp32 registers; at the end, of fma, its lanes, and then the warps in their order
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

fma     on CUDA cores, for few rows, where a tensor core's 16 stand empty: A and B go from global memory to registers,
        and no shared memory is filled or waited for. The loads of a step, 16 bytes each, are under way together
        (kernel_attributes.py): ptxas does not move those of the next one before the sums of this, so that a step is
        long. B is read once for every block_m rows, A once for every block_n columns.
mma     on tensor cores: each warp multiplies a slice of the step (sliced_dot.py), fed by the pipeline of mma.py. Of
        a block_n below an mma's eight columns, those of the neighbours are filled with zeros, not read.

Source: fma: the router kernel of the serving engines (one block an expert, `router_gemm` of vLLM, SGLang and
TensorRT-LLM). mma: CUTLASS' sliced-K.
"""

from functools import lru_cache, partial

import torch
from tilus import float32, int32, void_p
from tilus.ir.layout import RegisterLayout
from tilus.ir.layout.ops import replicated, spatial
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig, Space, space_of, too_many_blocks
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import (
    WIDEST_LOAD,
    default_sliced_fma_config,
    default_sliced_mma_config,
    sliced_fma_configs,
    sliced_mma_configs,
    too_many_loaded,
    too_many_warps,
)
from triton_vs_tilus.kernels_tilus import band, configs, launching
from triton_vs_tilus.kernels_tilus.band import BandScript, view_of_a, view_of_b, view_of_b_columns
from triton_vs_tilus.kernels_tilus.lane_dot import lane_dot

MMA_ROWS, MMA_COLUMNS, MMA_K = 16, 8, 16  # tilus alone: its layouts are the program's


def space(problem: Matmul, *, variant: str) -> Space:
    """Every wanted tile of the variant."""
    wanted = sliced_mma_configs() if variant == "mma" else sliced_fma_configs(problem)
    return space_of(wanted, lambda config: supports(problem, config, variant=variant))


def default_config(problem: Matmul, *, variant: str) -> MatmulConfig:
    """The rule of both languages."""
    return default_sliced_mma_config(problem) if variant == "mma" else default_sliced_fma_config(problem)


def supports(problem: Matmul, config: MatmulConfig | None = None, *, variant: str) -> str | None:
    """Any problem that offsets reach and whose grid can be launched, for mma what tensor cores take; all warps of a
    config share K, and its step fits registers (fma) or shared memory (mma)."""
    chosen = default_config(problem, variant=variant) if config is None else config
    if reason := configs.out_of_reach(problem) or too_many_blocks({"M": cdiv(problem.m, chosen.block_m)}):
        return reason
    if variant == "mma" and (reason := configs.needs_simt(problem, instead="variant fma")):
        return reason
    if config is None:
        return None
    if reason := too_many_warps(config.num_warps) or configs.tiles_out_of_reach(problem, config):
        return reason
    block_m, block_n, block_k = blocks = config.block_m, config.block_n, config.block_k
    if variant == "mma":
        if any(number & (number - 1) for number in (*blocks, config.num_warps)) or block_m % MMA_ROWS:
            found = f"blocks {blocks}, {config.num_warps} warps"
            return f"{found}; accepted: powers of two, and for block_m {MMA_ROWS} or more"
        least = config.num_warps * MMA_K
    else:
        least = 32 * config.num_warps * own_of_load(problem)
    if config.split_k != config.num_warps or block_k % least:
        return (
            f"split_k is {config.split_k}, block_k {block_k}; accepted: num_warps, {config.num_warps}, as all warps "
            f"share K, and multiples of {least}"
        )
    if variant == "fma":
        return too_many_loaded(problem, config)
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}; accepted: 2 or more, as the pipeline needs"
    columns = max(block_n, MMA_COLUMNS)
    stages = (block_m + columns) * block_k * problem.dtype.itemsize * config.num_stages
    if (shared := max(stages, 4 * config.num_warps * block_m * columns)) > configs.SHARED_MEMORY_LIMIT:
        return (
            f"{config.num_stages} stages and the warps' sums take {shared} bytes of shared memory, over "
            f"{configs.SHARED_MEMORY_LIMIT}"
        )
    return None


# tilus alone: its layouts are the program's, not the compiler's.
def own_of_load(problem: Matmul) -> int:
    """Of K, neighbours that a thread of fma loads at once: 16 bytes with the weight stored [N, K]; stored [K, N],
    neighbours stand along N."""
    return WIDEST_LOAD // problem.dtype.itemsize if problem.layout is Layout.NK else 1


def _spread(rows: int, columns: int, threads: int) -> RegisterLayout:
    """A tile an element a thread, as often over as there are threads for; or all of it in every thread."""
    times, left = divmod(threads, rows * columns)
    if left:
        return replicated(rows, columns, num_workers=threads)
    tile = spatial(rows, columns)
    return tile if times == 1 else replicated(1, 1, num_workers=times) * tile


class SlicedKFma(BandScript):
    """One block: a tile of C over all of K, on CUDA cores."""

    def __init__(self, build, own_of_load):
        super().__init__(build)
        block_m, block_n, num_warps = build.tile.block_m, build.tile.block_n, build.tile.num_warps
        self.total_layout = _spread(block_m, block_n, 32 * num_warps)
        self.own_of_load = own_of_load
        self.threads = 32 * num_warps
        self.by_warp = spatial(num_warps, 32, 1, 1).local(1, 1, block_m, block_n)

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
    ):
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        self.attrs.blocks = [cdiv(n_units * self.vector_n, block_n), cdiv(m, block_m)]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        offset_m: int32 = self.blockIdx.y * block_m
        offset_n: int32 = self.blockIdx.x * block_n

        ga = view_of_a(self, a_ptr, m, k, stride_am_units)
        gb = view_of_b_columns(self, b_ptr, n, k, stride_b_units)

        acc = self.register_tensor(dtype=float32, shape=[self.threads, block_m, block_n], init=0.0)
        for step_k in self.range(0, k, block_k):
            # A first: with B first ptxas grants too few registers to issue all loads of 16 rows before any product.
            a = self.load_global(ga, offsets=[offset_m, step_k], shape=[block_m, block_k])
            b = self.load_global(gb, offsets=[offset_n, step_k], shape=[block_n, block_k])
            lane_dot(self, a, b, acc, self.own_of_load)
        total = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        self.annotate_layout(total, self.total_layout)
        self.add_warps(total, self.sum(self.view(acc, layout=self.by_warp), dim=1))
        self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


class SlicedKMma(BandScript):
    """One block: a tile of C over all of K, on tensor cores."""

    def __init__(self, build):
        super().__init__(build)
        self.columns = max(build.tile.block_n, MMA_COLUMNS)

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
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(n_units * self.vector_n, block_n), cdiv(m, block_m)]
        self.attrs.warps = self.num_warps
        k: int32 = k_units * self.vector_k
        offset_m: int32 = self.blockIdx.y * block_m
        offset_n: int32 = self.blockIdx.x * block_n
        # Where B and C end for this block: of eight columns, it may have fewer.
        n: int32 = min(n_units * self.vector_n, offset_n + block_n)

        ga = view_of_a(self, a_ptr, m, k, stride_am_units)
        gb = view_of_b(self, b_ptr, n, k, stride_b_units)
        total = self.register_tensor(dtype=float32, shape=[block_m, self.columns], init=0.0)
        self.sliced_mma_product(total, ga, gb, offset_m, offset_n, 0, k)
        self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: MatmulConfig, vectors: band.Vectors, variant: str):
    build = band.settings(problem, config, vectors)
    return SlicedKMma(build) if variant == "mma" else SlicedKFma(build, own_of_load(problem))


def plan(problem: Matmul, config: MatmulConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    launch = Launch(
        _script(problem, config, vectors, variant),
        (*(Slot.A, Slot.B, bias_slot(problem), Slot.C), *band.arguments(problem, vectors, placement)),
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
    config: MatmulConfig | None = None,
    variant: str = "fma",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'fma' or 'mma', what multiplies.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


KERNELS = tuple(
    Kernel(
        name="sliced_k",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.SLICED_K,
        launch=partial(matmul, variant=variant),
        config_type=MatmulConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=1,
    )
    for variant in ("fma", "mma")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
