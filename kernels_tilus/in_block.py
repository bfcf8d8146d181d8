"""No split over blocks: the warps of one block share K, and their sums meet in shared memory.

    warp w    sums[w, m, n] = sum over the k that w walks of A[m, k] * B[k, n]
    block     C[m, n] = epilogue(sum over w of sums[w, m, n])        fp32, one rounding

Grid         (tiles of M, tiles of N); a block walks all of K in steps of block_k, shared out evenly to its warps
Who sums     a warp its share in fp32 registers; at the end fma lanes and warps, mma the warps in their order
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

fma     on CUDA cores, for few rows, where a tensor core's 16 stand empty: A and B go from global memory to registers,
        and no shared memory is filled or waited for. The loads of a step, 16 bytes each, are under way together: ptxas
        does not move those of the next one before the sums of this, so that a step is long. B is read once for every
        block_m rows, A once for every block_n columns.
mma     on tensor cores: each warp multiplies a slice of the step (sliced_k.py), fed by the cp.async pipeline of mma.py.
        Of a block_n below an mma's eight columns, those of the neighbours are filled with zeros, not read.

Source: fma: the router kernel of the serving engines (one block an expert, `router_gemm` of vLLM, SGLang and
TensorRT-LLM). mma: CUTLASS' sliced-K.
"""

from functools import lru_cache, partial

import torch
from tilus import float32, int32, void_p
from tilus.ir.layout.ops import auto_local_spatial, local, shared_row_major
from tilus.ir.tensor import RegisterTensor
from tilus.utils import cdiv
from torch import Tensor

from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import GRID_LIMIT, Kernel, Language, MatmulConfig, too_many_blocks
from common.problem import Layout, Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching
from kernels_tilus.band import BandScript
from kernels_tilus.sliced_k import sliced_dot

PER_THREAD = 8  # fma: of K, 16 bytes of a half-precision row
MOST_PRODUCTS = 128  # fma: of a thread in a step
MMA_ROWS, MMA_COLUMNS, MMA_K = 16, 8, 16
WIDEST_DEFAULT = 16  # columns of default_config's tiles

# fma: (block_m, block_n, loads of B that a thread has under way a column, num_warps)
FMA_TILES = [
    *[(1, 1, 7, 4), (1, 1, 4, 8), (1, 1, 2, 8), (1, 1, 4, 4), (1, 2, 7, 4), (1, 2, 4, 8), (1, 4, 4, 4), (1, 4, 2, 8)],
    *[(1, 8, 1, 4), (1, 8, 2, 4), (1, 8, 2, 8), (1, 16, 1, 8), (2, 1, 7, 4), (2, 1, 4, 8), (2, 2, 4, 4), (2, 8, 1, 8)],
    *[(4, 1, 4, 4), (4, 1, 2, 8), (4, 2, 2, 8), (4, 4, 1, 8), (8, 1, 2, 4), (8, 1, 2, 8), (8, 2, 1, 8), (16, 1, 1, 8)],
]


# mma: (block_m, block_n, block_k, num_warps, num_stages). Few columns make many blocks ...
MMA_TILES = [
    *[(16, 2, 512, 4, 4), (16, 2, 512, 4, 8), (16, 2, 1024, 8, 4), (16, 2, 512, 8, 6), (16, 2, 1024, 4, 4)],
    *[(16, 4, 512, 4, 4), (16, 4, 512, 4, 8), (16, 4, 1024, 8, 4), (16, 4, 512, 8, 6), (16, 4, 1024, 4, 4)],
    *[(16, 8, 512, 4, 4), (16, 8, 512, 4, 8), (16, 8, 1024, 8, 4), (16, 8, 512, 8, 6), (16, 8, 1024, 4, 4)],
    # ... and more rows and columns reread less.
    *[(16, 16, 256, 2, 4), (16, 16, 128, 4, 6), (16, 16, 256, 4, 4), (16, 16, 512, 4, 4), (16, 16, 512, 8, 4)],
    *[(32, 8, 256, 4, 6), (32, 8, 512, 4, 4), (32, 16, 256, 4, 4), (32, 16, 512, 8, 4), (32, 32, 128, 2, 4)],
    *[(32, 32, 256, 4, 4), (64, 8, 256, 4, 4), (64, 16, 128, 2, 4), (64, 16, 256, 4, 4), (64, 32, 128, 4, 4)],
    *[(64, 32, 256, 4, 3), (16, 64, 256, 4, 4), (64, 64, 64, 2, 4), (64, 64, 128, 4, 3)],
]


def configs(problem: Matmul, *, variant: str) -> list[MatmulConfig]:
    """mma: every tile. fma: every tile that has no more rows than the next power of two of M."""
    if variant == "mma":
        space = [MatmulConfig(*blocks, num_warps, num_warps, stages) for *blocks, num_warps, stages in MMA_TILES]
    else:
        space = [_fma_config(*tile) for tile in FMA_TILES if tile[0] < 2 * problem.m]
    return [config for config in space if supports(problem, config, variant=variant) is None]


def _fma_config(block_m: int, block_n: int, loads: int, num_warps: int) -> MatmulConfig:
    return MatmulConfig(block_m, block_n, 32 * num_warps * PER_THREAD * loads, num_warps, num_warps, num_stages=1)


def default_config(problem: Matmul, *, variant: str) -> MatmulConfig:
    """fma: up to 8 rows, so that B is read once; one column, so that there are blocks enough, or as many columns as a
    grid has no room for more blocks, of fewer rows. mma: tiles that cover M up to 64 rows."""
    if variant == "mma":
        block_m = next(rows for rows in (16, 32, 64) if rows >= problem.m or rows == 64)
        return MatmulConfig(block_m, WIDEST_DEFAULT, 256, 4, 4, 4)
    block_n = 1
    while block_n < WIDEST_DEFAULT and cdiv(problem.n, block_n) > GRID_LIMIT:
        block_n *= 2
    room = MOST_PRODUCTS // PER_THREAD  # for rows, times columns, times loads
    most_rows = min(8, room // block_n)
    block_m = next(rows for rows in (1, 2, 4, 8) if rows >= problem.m or rows == most_rows)
    return _fma_config(block_m, block_n, max(1, room // (block_n * max(4, 2 * block_m))), 4)


def supports(problem: Matmul, config: MatmulConfig | None = None, *, variant: str) -> str | None:
    """fma: any problem that offsets reach. mma: what tensor cores and cp.async take. All warps of a config share K."""
    if reason := band.out_of_reach(problem):
        return reason
    columns = WIDEST_DEFAULT if config is None else config.block_n
    if reason := too_many_blocks({"N": cdiv(problem.n, columns)}):
        return reason
    if variant == "mma":
        reason = band.needs_simt(problem, instead="variant fma")
        return reason or (None if config is None else _mma_cannot(problem, config))
    return None if config is None else _fma_cannot(config)


def _fma_cannot(config: MatmulConfig) -> str | None:
    threads = 32 * config.num_warps
    if reason := _not_shared(config, threads * PER_THREAD):
        return reason
    if (products := config.block_m * config.block_n * config.block_k // threads) > MOST_PRODUCTS:
        step = f"a {config.block_m}x{config.block_n}x{config.block_k} step"
        return f"{step} is {products} products a thread, over {MOST_PRODUCTS}"
    return None


def _mma_cannot(problem: Matmul, config: MatmulConfig) -> str | None:
    powers = block_m, block_n, block_k, num_warps = config.block_m, config.block_n, config.block_k, config.num_warps
    if any(power < 1 or power & (power - 1) for power in powers) or block_m % MMA_ROWS:
        return (
            f"blocks {block_m}x{block_n}x{block_k} with {num_warps} warps; accepted: powers of two, and for block_m "
            f"{MMA_ROWS} or more"
        )
    if reason := _not_shared(config, num_warps * MMA_K):
        return reason
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    columns = max(block_n, MMA_COLUMNS)
    stages = (block_m + columns) * block_k * problem.dtype.itemsize * config.num_stages
    if (shared := max(stages, 4 * num_warps * block_m * columns)) > band.SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages and the warps' sums take {shared} bytes of shared memory, over \
{band.SHARED_MEMORY_LIMIT}"
    return None


def _not_shared(config: MatmulConfig, step: int) -> str | None:
    """Why the warps of a config do not share K; step: of it, what they take at least."""
    if config.split_k == config.num_warps and config.block_k >= step and config.block_k % step == 0:
        return None
    return (
        f"split_k is {config.split_k}, block_k {config.block_k}; accepted: num_warps, {config.num_warps}, as all warps "
        f"share K, and multiples of {step}"
    )


class InBlockFma(BandScript):
    """One block: a tile of C over all of K, on CUDA cores."""

    def __init__(self, build):
        super().__init__(build)
        self.threads = threads = 32 * self.num_warps
        own = self.block_k // threads
        # What a thread loads at once stands along the dimension along which B is contiguous. By thread its own k are a
        # dimension of their own.
        if self.stored_nk:
            each = local(self.block_m, self.block_n, own // PER_THREAD)
            self.products = each.spatial(1, 1, threads).local(1, 1, PER_THREAD)
            self.by_thread = local(self.block_m, self.block_n, 1, 1).spatial(1, 1, threads, 1).local(1, 1, 1, own)
        else:
            self.products = local(1, 1, own).spatial(1, 1, threads).local(self.block_m, self.block_n, 1)
            self.by_thread = local(1, 1, 1, own).spatial(1, 1, threads, 1).local(self.block_m, self.block_n, 1, 1)
        self.sums = local(self.block_m, self.block_n, 1).spatial(1, 1, threads)

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
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n)]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k], strides=[stride_am_units * self.vector_k, 1])
        stride_b: int32 = stride_b_units * self.vector_b
        b_strides = [stride_b, 1] if self.stored_nk else [1, stride_b]
        gb = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k], strides=b_strides)

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n, self.threads], init=0.0)
        self.annotate_layout(acc, self.sums)
        for step_k in self.range(0, k, block_k):
            a = self.cast(self.load_global(ga, offsets=[offset_m, step_k], shape=[block_m, block_k]), dtype=float32)
            b = self.cast(self.load_global(gb, offsets=[offset_n, step_k], shape=[block_n, block_k]), dtype=float32)
            products = self.unsqueeze(a, dim=1) * self.unsqueeze(b, dim=0)
            self.annotate_layout(products, self.products)
            self.add(acc, self.sum(self.view(products, layout=self.by_thread), dim=3), out=acc)
        total = self.sum(acc, dim=2)
        self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


class InBlockMma(BandScript):
    """One block: a tile of C over all of K, on tensor cores."""

    def __init__(self, build):
        super().__init__(build)
        self.columns = max(self.block_n, MMA_COLUMNS)
        self.partials_layout = shared_row_major(self.num_warps, self.block_m, self.columns)
        pairs = auto_local_spatial(32 * self.num_warps, [self.block_m, self.columns // 2])
        self.total_layout = pairs.local(1, 2)

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
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n)]
        self.attrs.warps = self.num_warps
        k: int32 = k_units * self.vector_k
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        # Where B and C end for this block: of eight columns, it may have fewer.
        n: int32 = min(n_units * self.vector_n, offset_n + block_n)

        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k], strides=[stride_am_units * self.vector_k, 1])
        b_shape = [n, k] if self.stored_nk else [k, n]
        gb = self.global_view(b_ptr, dtype=self.dtype, shape=b_shape, strides=[stride_b_units * self.vector_b, 1])
        sums = self.register_tensor(dtype=float32, shape=[self.num_warps, block_m, self.columns], init=0.0)
        self.mma_product(sums, ga, gb, offset_m, offset_n, 0, k)

        partials = self.shared_tensor(dtype=float32, shape=[self.num_warps, block_m, self.columns])
        self.annotate_layout(partials, self.partials_layout)
        self.store_shared(partials, sums)
        self.sync()
        total = self.register_tensor(dtype=float32, shape=[block_m, self.columns], init=0.0)
        self.annotate_layout(total, self.total_layout)
        for warp in self.range(self.num_warps, unroll="all"):
            self.add(total, self.load_shared(partials[warp]), out=total)
        self.free_shared(partials)
        self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)

    def multiply(self, a: RegisterTensor, b: RegisterTensor, acc: RegisterTensor) -> None:
        sliced_dot(self, a, b, acc)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: MatmulConfig, vectors: band.Vectors, variant: str):
    script = InBlockMma if variant == "mma" else InBlockFma
    return script(band.settings(problem, config, vectors))


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'fma' or 'mma', what multiplies. Tensors whose rows are not aligned to the 4 bytes that cp.async takes go
    through fma.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    problem, config, out = prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    if variant == "mma" and band.unaligned(vectors, problem.layout is Layout.NK):
        variant, config = "fma", default_config(problem, variant="fma")
    launching.launch(_script(problem, config, vectors, variant), *operands)
    return out


def build(problem: Matmul, config: MatmulConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(problem, config, band.vectors(problem), variant))


KERNELS = tuple(
    Kernel(
        name="in_block",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.IN_BLOCK,
        launch=partial(matmul, variant=variant),
        config_type=MatmulConfig,
        configs=partial(configs, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        launches=1,
    )
    for variant in ("fma", "mma")
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
