"""No split over blocks: the warps of one block share K and meet at its end.

    thread t     acc[m, n, t] = sum over the k that t walks of A[m, k] * B[k, n]      fp32, on CUDA cores
    block        C[m, n] = epilogue(sum over t of acc[m, n, t])

Grid         (tiles of M, tiles of N); a block walks all of K in steps of block_k
Who sums     every thread its own k, then the block by shuffles within warps and through shared memory between them
Deterministic yes: one tree of sums
Workspace    none
Launches     1

For few rows, where a tensor core's 16 stand empty: A and B go from global memory to registers, and no shared memory is
filled or waited for. The loads of a step, 16 bytes each, are under way together: ptxas does not move those of the next
one before the sums of this, so that a step is long, and a thread keeps a sum for each of its k in it. B is read once
for every block_m rows, A once for every block_n columns.

The variant is *fma* alone: tilus 0.2.0 spreads the warps of a `dot` over M and N, not over K, so that the sums of a
tensor-core product cannot stand in several warps.

Source: the router kernel of the serving engines (one block an expert, `router_gemm` of vLLM, SGLang and TensorRT-LLM).
"""

from functools import lru_cache

import torch
from tilus import float32, int32, void_p
from tilus.ir.layout.ops import local
from tilus.utils import cdiv
from torch import Tensor

from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching
from kernels_tilus.band import BandScript

PER_THREAD = 8  # of K: 16 bytes of a half-precision row
MOST_SUMS = 128  # a thread's registers for acc

# (block_m, block_n, loads of B that a thread has under way a column, num_warps)
TILES = [
    *[(1, 1, 7, 4), (1, 1, 4, 8), (1, 1, 2, 8), (1, 1, 4, 4), (1, 2, 7, 4), (1, 2, 4, 8), (1, 4, 4, 4), (1, 4, 2, 8)],
    *[(1, 8, 1, 4), (1, 8, 2, 4), (1, 8, 2, 8), (1, 16, 1, 8), (2, 1, 7, 4), (2, 1, 4, 8), (2, 2, 4, 4), (2, 8, 1, 8)],
    *[(4, 1, 4, 4), (4, 1, 2, 8), (4, 2, 2, 8), (4, 4, 1, 8), (8, 1, 2, 4), (8, 1, 2, 8), (8, 2, 1, 8), (16, 1, 1, 8)],
]


def _config(block_m: int, block_n: int, loads: int, num_warps: int) -> MatmulConfig:
    return MatmulConfig(block_m, block_n, 32 * num_warps * PER_THREAD * loads, num_warps, num_warps, num_stages=1)


def configs(problem: Matmul) -> list[MatmulConfig]:
    """Every tile that has no more rows than the next power of two of M."""
    space = [_config(*tile) for tile in TILES if tile[0] < 2 * problem.m]
    return [config for config in space if supports(problem, config) is None]


def default_config(problem: Matmul) -> MatmulConfig:
    """Up to 8 rows, so that B is read once; one column, so that there are blocks enough."""
    block_m = next(rows for rows in (1, 2, 4, 8) if rows >= problem.m or rows == 8)
    return _config(block_m, 1, 16 // max(4, 2 * block_m), 4)


def supports(problem: Matmul, config: MatmulConfig | None = None) -> str | None:
    """As the band kernels' operands; split_k is the number of warps, which share K."""
    if reason := band.supports(problem, None):
        return reason
    if config is None:
        return None
    threads = 32 * config.num_warps
    if config.split_k != config.num_warps or config.block_k % (threads * PER_THREAD):
        return (
            f"split_k is {config.split_k}, block_k {config.block_k}; accepted: num_warps, as the warps share K, and a "
            f"multiple of {PER_THREAD} a thread, {threads * PER_THREAD}"
        )
    if (sums := config.block_m * config.block_n * config.block_k // threads) > MOST_SUMS:
        return f"a {config.block_m}x{config.block_n}x{config.block_k} step takes {sums} sums a thread, over {MOST_SUMS}"
    return None


class InBlockMatmul(BandScript):
    """One block: a tile of C over all of K."""

    def __init__(self, build):
        super().__init__(build)
        threads = 32 * self.num_warps
        steps = self.block_k // threads
        # What a thread loads at once stands along the dimension along which B is contiguous.
        if self.stored_nk:
            loads = steps // PER_THREAD
            self.sums = local(self.block_m, self.block_n, loads).spatial(1, 1, threads).local(1, 1, PER_THREAD)
        else:
            self.sums = local(1, 1, steps).spatial(1, 1, threads).local(self.block_m, self.block_n, 1)

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

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n, block_k], init=0.0)
        self.annotate_layout(acc, self.sums)
        for step_k in self.range(0, k, block_k):
            a = self.cast(self.load_global(ga, offsets=[offset_m, step_k], shape=[block_m, block_k]), dtype=float32)
            b = self.cast(self.load_global(gb, offsets=[offset_n, step_k], shape=[block_n, block_k]), dtype=float32)
            self.add(acc, self.unsqueeze(a, dim=1) * self.unsqueeze(b, dim=0), out=acc)
        total = self.sum(acc, dim=2)
        self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: MatmulConfig, vectors: band.Vectors):
    return InBlockMatmul(band.settings(problem, config, vectors))


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
    name="in_block",
    variant="fma",
    language=Language.TILUS,
    protocol=Protocol.IN_BLOCK,
    launch=matmul,
    config_type=MatmulConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    launches=1,
)
