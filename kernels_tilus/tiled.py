"""No split: one block walks all of K.

    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])        fp32, then one rounding

Grid         (rows of tiles in a group, tiles of N, groups), x fastest: blocks that run together share rows of A and
             columns of B in L2
Who sums     a block its tile, in steps of block_k
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

What every split is held against: a skinny product has fewer tiles than the GPU has multiprocessors, and most of them
stand idle here.

Source: tilus tutorial "Matrix multiplication" (matmul_v4); the order of tiles is that of Triton's tutorial.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from tilus import float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from common.call import prepared
from common.epilogue import Epilogue
from common.kernel import GRID_LIMIT, Kernel, Language, too_many_blocks
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching, wgmma
from kernels_tilus.band import BandConfig, BandScript


@dataclass(frozen=True)
class TiledConfig(BandConfig):
    """group_m: rows of tiles that are walked together."""

    group_m: int = 8


def configs(problem: Matmul) -> list[TiledConfig]:
    """Every tile."""
    space = [TiledConfig(**vars(config)) for config in band.space(problem, (1,))]
    return [config for config in space if supports(problem, config) is None]


def default_config(problem: Matmul) -> TiledConfig:
    """Small tiles, so that as many multiprocessors as possible have one; larger groups where a grid has no room for so
    many."""
    chosen = band.default_config(problem, most_splits=1)
    rows = cdiv(problem.m, chosen.block_m)
    return TiledConfig(**vars(chosen), group_m=max(TiledConfig.group_m, cdiv(rows, GRID_LIMIT)))


def supports(problem: Matmul, config: TiledConfig | None = None) -> str | None:
    """As every band kernel; and there is one band."""
    if config is not None and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1, as nothing is split"
    if config is not None and config.engine == "wgmma_pairs" and config.group_m % wgmma.PAIR:
        return f"group_m is {config.group_m}; accepted: an even number, as blocks come in pairs"
    if config is not None:
        groups = cdiv(cdiv(problem.m, config.block_m), config.group_m)
        if reason := too_many_blocks({"groups of rows": groups}):
            return reason
    return band.supports(problem, config)


class TiledMatmul(BandScript):
    """One block: a tile of C."""

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
        group_m: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [group_m, cdiv(n_units * self.vector_n, block_n), cdiv(cdiv(m, block_m), group_m)]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        offset_m: int32 = (self.blockIdx.z * group_m + self.blockIdx.x) * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        if offset_m < m:  # the last group may have fewer rows
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.band_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, split_k, stride_am_units, stride_b_units, offset_m, offset_n, 0
            )
            # fmt: on
            self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: TiledConfig, vectors: band.Vectors):
    return TiledMatmul(band.settings(problem, config, vectors))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: TiledConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    problem, config, out = prepared(KERNEL, a, b, epilogue, bias, out, out_dtype, config)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    group_m = min(config.group_m, cdiv(problem.m, config.block_m))
    launching.launch(_script(problem, config, vectors), *operands, group_m)
    return out


def build(problem: Matmul, config: TiledConfig) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(problem, config, band.vectors(problem)))


KERNEL = Kernel(
    name="tiled",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.NONE,
    launch=matmul,
    config_type=TiledConfig,
    configs=configs,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    launches=1,
)
