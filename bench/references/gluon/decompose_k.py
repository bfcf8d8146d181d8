"""Decompose-K in Gluon: partial products by TMA and wgmma in one launch, their sum in a second, a dependent one.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one program a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (rows of tiles in a group, tiles of N, groups x split_k), common.kernel.Grid; with pairs a
             program is a cluster of 2 blocks and 2 tiles along M; reducer: flat over C
Who sums     a program its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the second is triton/decompose_k.vector_pdl's own

Source: the persistent and warp-specialized products of Triton's Gluon tutorials (python/tutorials/gluon, 05, 08, 14).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_launch_dependents

from triton_vs_tilus.bench.references.gluon import configs
from triton_vs_tilus.bench.references.gluon.configs import GluonConfig
from triton_vs_tilus.bench.references.gluon.product import ring_product, spread
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, cdiv, space_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import MULTIPROCESSORS, reducers, split_tiles, splits
from triton_vs_tilus.kernels_triton import decompose_k, launching
from triton_vs_tilus.kernels_triton.band import place_of

REDUCER_BLOCKS = 4 * MULTIPROCESSORS  # of many more the start of each is what takes time


@dataclass(frozen=True)
class GluonDecomposeKConfig(GluonConfig):
    """reduce_block: elements of C that a program of the reducer sums; reduce_warps: its warps."""

    reduce_block: int = 32
    reduce_warps: int = 1

    @property
    def reducer(self) -> tuple[int, int]:
        """Elements and warps."""
        return self.reduce_block, self.reduce_warps


def space(problem: Matmul) -> Space:
    """Every wanted tile of TMA's with every wanted split and every wanted reducer of so many bands."""
    tiles = split_tiles(problem, splits(problem), configs.config_of, lambda config: configs.supports(problem, config))
    wanted = [
        GluonDecomposeKConfig(**vars(config), reduce_block=elements, reduce_warps=warps)
        for config in tiles.configs
        for elements, warps in reducers(config.split_k)
    ]
    supported = space_of(wanted, lambda config: supports(problem, config))
    return Space(supported.configs, {**tiles.dropped, **supported.dropped})


def default_config(problem: Matmul) -> GluonDecomposeKConfig:
    """Any of the wanted splits; the narrowest reducer of at most REDUCER_BLOCKS."""
    chosen = configs.default_config(problem, splits(problem))
    wanted = reducers(chosen.split_k)
    few = (each for each in wanted if cdiv(problem.m * problem.n, each[0]) <= REDUCER_BLOCKS)
    elements, warps = next(few, wanted[-1])
    return GluonDecomposeKConfig(**vars(chosen), reduce_block=elements, reduce_warps=warps)


def supports(problem: Matmul, config: GluonDecomposeKConfig | None = None) -> str | None:
    """As both of Gluon's kernels, and as the reducer."""
    reduced = None if config is None else _reduced(config)
    return configs.supports(problem, config) or decompose_k.supports_pdl(problem, reduced)


def workspace_bytes(problem: Matmul, config: GluonDecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


def _reduced(config: GluonDecomposeKConfig) -> decompose_k.DecomposeKConfig:
    """A config of Triton's kernel with the same reducer."""
    return decompose_k.DecomposeKConfig(
        *(16, 16, 16, config.split_k, 1, 1), reduce_block=config.reduce_block, reduce_warps=config.reduce_warps
    )


@gluon.jit(do_not_specialize=["m", "group_m", "band_steps"], do_not_specialize_on_alignment=["groups"])
def _matmul_partials_kernel(
    a,
    b,
    partials_ptr,
    m,
    n,
    k,
    group_m,
    groups,
    band_steps,
    STAGES: gl.constexpr,
    EVEN_N: gl.constexpr,
    NK: gl.constexpr,
    SWAP: gl.constexpr,
    PAIRS: gl.constexpr,
):
    gdc_launch_dependents()
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_N: gl.constexpr = b.block_shape[0] if NK else b.block_shape[1]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    pid_m, pid_n, split = place_of(group_m, groups)
    row_m, row_n, k_begin = pid_m * BLOCK_M, pid_n * BLOCK_N, split * band_steps * BLOCK_K
    steps = gl.minimum(band_steps, gl.cdiv(k - k_begin, BLOCK_K))
    steps = gl.where(row_m < m, steps, 0)  # the last group may have fewer rows
    sums = ring_product(a, b, row_m, row_n, k_begin, steps, STAGES, NK, SWAP, 1, PAIRS)
    sums = sums.permute([1, 0]) if SWAP else sums
    LAYOUT: gl.constexpr = sums.type.layout
    offs_m = row_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, LAYOUT))
    offs_n = row_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))
    mask = (offs_m < m)[:, None]
    if not EVEN_N:
        mask = mask & (offs_n < n)[None, :]
    partials_ptrs = partials_ptr + (split.to(gl.int64) * m + offs_m[:, None]) * n + offs_n[None, :]
    gl.store(partials_ptrs, sums, mask=mask)


def plan(problem: Matmul, config: GluonDecomposeKConfig, placement: Placement) -> Plan:
    """What a call launches."""
    m, n, k = problem.m, problem.n, problem.k
    blocks = 2 if config.pairs else 1
    grid = configs.blocks_of(problem, config)
    partials = Launch(
        _matmul_partials_kernel,
        (
            *(Slot.A, Slot.B, Slot.SCRATCH, m, n, k, grid.group_m, grid.groups),
            band_steps(k, config.block_k, config.split_k),
        ),
        grid.blocks,
        {
            "STAGES": config.num_stages,
            "EVEN_N": n % config.block_n == 0,
            "NK": problem.layout is Layout.NK,
            "SWAP": config.swap,
            "PAIRS": config.pairs,
            "num_warps": config.num_warps,
            "num_ctas": blocks,
            "maxnreg": configs.registers(config),
        },
        configs.described(
            *(problem, placement, (blocks * config.block_m, config.block_k), (config.block_n, config.block_k)),
            *(spread(blocks, 1, 0), spread(blocks, 0, 0)),
        ),
    )
    summed = decompose_k.plan(problem, _reduced(config), placement, variant="vector_pdl")
    return Plan(problem, placement, (partials, summed.launches[1]), scratch=summed.scratch)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: GluonDecomposeKConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on, and for
    tensors that TMA cannot address.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: GluonDecomposeKConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="decompose_k",
    variant="",
    language=Language.GLUON,
    protocol=Protocol.PARALLEL_PDL,
    launch=matmul,
    config_type=GluonDecomposeKConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=2,
    on_request=True,
)
