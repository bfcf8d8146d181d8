"""Split-K in a thread block cluster: the splits of a tile meet in distributed shared memory.

    rank s         partial_s[m, n] = sum over k in band s of A[m, k] * B[k, n]      in the registers of block s
    rank r         C[m, n] = epilogue(sum over s of partial_s[m, n])                for the rows m of its share, from
                                                                                    the shared memory of all blocks

Grid         (rows of tiles in a group, tiles of N, groups) programs of split_k blocks, each program a cluster
Who sums     every block its band in fp32 registers; then every block its share of the tile's rows, over all ranks
Deterministic yes: the compiler fixes the order of the sum
Workspace    none; shared memory for the exchange
Launches     1

A program is a cluster (num_ctas = split_k). Its product has the bands of K as its batch, a band a block, and the sum of
the batch reaches across the blocks: Triton 3.9 and newer compile that, with mma.sync. TMA has the bands as a dimension;
each block loads its own, for itself alone. At least two barriers of the cluster are left: partial sums are stored
before peers read them, and read before their block exits. `sum_of_parts` has 2 for small tiles and more for large ones
of few bands, up to 17 in the space; `tl.sum` over the batch had 4 to 26 where it has 2 to 5. At most 8 blocks: the
largest cluster that every device with clusters runs.

Source: CUTLASS' and quack's cluster reductions over distributed shared memory; triton-lang/triton pull requests 9663
and 11811, which plan the blocks of a batched product.
"""

from dataclasses import replace

import torch
import triton
import triton.language as tl
from packaging.version import Version
from torch import Tensor

from triton_vs_tilus.common import devices
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps, grid_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import CLUSTER_BLOCKS, Feed, Tile, split_tiles
from triton_vs_tilus.kernels_triton import band, configs, launching
from triton_vs_tilus.kernels_triton.band import (
    band_product,
    batched_product,
    described_product,
    place_of,
    sum_of_parts,
)
from triton_vs_tilus.kernels_triton.configs import TMA_ALIGNMENT, BandConfig
from triton_vs_tilus.kernels_triton.epilogue import finish

# Triton alone: an older one plans no batched product over the blocks of a cluster.
FIRST_TRITON = "3.9"
# Triton alone: tilus launches clusters of 3 and 6 blocks, too.
SPLITS = tuple(blocks for blocks in CLUSTER_BLOCKS if blocks.bit_count() == 1)


def space(problem: Matmul) -> Space:
    """Every wanted tile with as many splits as a cluster may have blocks."""
    return split_tiles(problem, CLUSTER_BLOCKS, _config_of, lambda config: _fits(problem, config))


def _config_of(tile: Tile, split_k: int) -> BandConfig | str:
    """As of every band kernel; but tiles of TMA that those transpose for wgmma, which wants 64 rows, are multiplied as
    they are, as mma wants 16."""
    return configs.config_of(replace(tile, transposed=tile.transposed and tile.feed is not Feed.TMA), split_k)


def default_config(problem: Matmul) -> BandConfig:
    """At most 8 splits."""
    return configs.default_config(problem, most_splits=8)


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel, on a device with clusters; split_k a power of two in CLUSTER_BLOCKS; swap where that is 1;
    tma where the bands of K are equal and begin at multiples of 16 bytes."""
    if not triton.knobs.runtime.interpret and Version(triton.__version__) < Version(FIRST_TRITON):
        return f"Triton {triton.__version__} sums within a block alone; accepted: {FIRST_TRITON} and newer"
    return devices.lacks_clusters() or _fits(problem, config)


def _fits(problem: Matmul, config: BandConfig | None) -> str | None:
    """What `supports` says of a machine that has all that it takes."""
    if config is not None and config.split_k not in SPLITS:
        accepted = f"{', '.join(map(str, SPLITS))}, as blocks of a cluster and bands of a batch are powers of two"
        return f"split_k is {config.split_k}; accepted: {accepted}"
    if config is not None and config.split_k > 1:
        if config.swap:
            return "swap; accepted: False, as it is there for wgmma, which a batched product has not"
        if config.tma and problem.k * problem.dtype.itemsize % (TMA_ALIGNMENT * config.split_k):
            accepted = f"equal bands of multiples of {TMA_ALIGNMENT} bytes, as TMA has them as a dimension"
            return f"{config.split_k} bands of K = {problem.k}; accepted: {accepted}"
    return configs.supports(problem, config)


@triton.jit(do_not_specialize=["m", "group_m", "band_steps"], do_not_specialize_on_alignment=["groups"])
def _matmul_cluster_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    group_m,
    groups,
    band_steps,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN_N: tl.constexpr,
    EVEN_K: tl.constexpr,
    UNITS: tl.constexpr,
    SWAP: tl.constexpr,
    TMA: tl.constexpr,
    SLICES: tl.constexpr,
    SPLIT_K: tl.constexpr,
    EPILOGUE: tl.constexpr,
):
    pid_m, pid_n, _ = place_of(group_m, groups)
    if groups > 1:  # noqa: SIM102 (known to the compiler where it is 1)
        if pid_m * BLOCK_M >= m:  # the last group may have fewer rows
            return
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    # fmt: off
    if SPLIT_K == 1:
        acc = band_product(
            a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, pid_m, pid_n, 0, band_steps,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_N, EVEN_K, UNITS, SWAP, TMA, SLICES,
        )
        finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
    else:
        if TMA != "":
            partials = described_product(
                a_ptr, b_ptr, pid_m, pid_n, band_steps, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, TMA,
            )
        else:
            SHARE: tl.constexpr = BLOCK_K // SLICES
            part = tl.arange(0, SPLIT_K * SLICES)  # a band a block, a slice a warp of it
            starts = part // SLICES * (BLOCK_K * band_steps) + part % SLICES * SHARE
            partials = batched_product(
                a_ptr, b_ptr, m, n, k, stride_am, stride_bk, stride_bn, offs_m, offs_n, starts,
                BLOCK_K * band_steps, BLOCK_K, SPLIT_K * SLICES, SHARE, EVEN_N, EVEN_K, UNITS,
            )
        if SLICES > 1:
            slices = partials.reshape(SPLIT_K, SLICES, BLOCK_M, BLOCK_N).permute(0, 2, 3, 1)
            # Within the block first, or all slices would cross. The compiler moves the exchange between blocks up over
            # additions, but not over a tl.sum: here one of a single element, which adds nothing.
            partials = tl.sum(sum_of_parts(slices, SLICES, (SPLIT_K, BLOCK_M, BLOCK_N, 1)), axis=3)
        # Threads that store an element of C read it from all blocks: a block sums its share of the rows.
        total = sum_of_parts(partials.permute(1, 2, 0), SPLIT_K, (BLOCK_M, BLOCK_N))
        finish(total, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)
    # fmt: on


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    grid = grid_of(problem, replace(config, split_k=1))
    steps = band_steps(problem.k, config.block_k, config.split_k)
    launch = Launch(
        _matmul_cluster_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
            *(problem.m, problem.n, problem.k, *placement.in_strides, *placement.out_strides),
            *(grid.group_m, grid.groups, steps),
        ),
        grid.blocks,
        {
            **band.meta(problem, config, placement),
            "EVEN_K": steps * config.block_k * config.split_k == problem.k,  # whole bands
            "SPLIT_K": config.split_k,
            "EPILOGUE": problem.epilogue.value,
            "num_ctas": config.split_k,
        },
        band.described(problem, config, placement, bands=config.split_k),
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
    config: BandConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="cluster",
    variant="",
    language=Language.TRITON,
    protocol=Protocol.CLUSTER,
    launch=matmul,
    config_type=BandConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 0,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
    instruction="mma",  # a batched product has no wgmma
)
