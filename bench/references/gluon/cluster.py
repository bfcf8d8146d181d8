"""Split-K in a thread block cluster in Gluon: the splits of a tile push their partials into each other's shared memory.

    block s        partial_s[m, n] = sum over block s's part of every step of K of A[m, k] * B[k, n]     in registers
    all blocks     C[m, n] = epilogue(sum over r of partial_r[m, n])          each block its own rows of the tile

Grid         (rows of tiles in a group, tiles of N, groups) programs of split_k blocks, each program a cluster
Who sums     every block its part of K in fp32 registers; then its share of the tile's rows, of all blocks, in a fixed
             order
Deterministic yes
Workspace    none; 4 * block_m * block_n bytes of shared memory for what the blocks push
Launches     1

A step is split_k * block_k wide, and block s multiplies the s-th block_k of it: the splits interleave along K, and any
K can be split. Gluon names no block within a cluster; what differs between blocks is said by the bases of layouts. The
bytes that a block awaits complete an mbarrier of its own: no barrier of the cluster stands between product and sum.

Source: the cluster reductions of CUTLASS and quack; TMA and wgmma as in Triton's Gluon tutorials
(python/tutorials/gluon, 08, 14); st.async of the PTX ISA.
"""

from dataclasses import replace

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from triton_vs_tilus.bench.references.gluon import configs
from triton_vs_tilus.bench.references.gluon.configs import SHARED_BYTES, GluonConfig
from triton_vs_tilus.bench.references.gluon.product import ring_product, spread
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, band_steps
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import CLUSTER_BLOCKS, MULTIPROCESSORS, split_tiles
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.band import place_of
from triton_vs_tilus.kernels_triton.epilogue import finish

# Nothing is pushed in a cluster of one; Gluon's layouts are of powers of two.
SPLITS = tuple(blocks for blocks in CLUSTER_BLOCKS if blocks > 1 and blocks.bit_count() == 1)
# Blocks that surely run at once, each on a multiprocessor of its own: a cluster lies within one GPC, and what a GPC has
# beyond a multiple of its blocks stays idle.
MOST_BLOCKS = 7 * MULTIPROCESSORS // 8


def space(problem: Matmul) -> Space:
    """Every wanted tile of TMA's with as many splits as a cluster may have blocks."""
    return split_tiles(problem, SPLITS, configs.config_of, lambda config: supports(problem, config))


def default_config(problem: Matmul) -> GluonConfig:
    """2 to 8 splits, of clusters that all run at once: one that waits for another takes as long again."""
    return configs.default_config(problem, SPLITS, MOST_BLOCKS, beside=4)


def supports(problem: Matmul, config: GluonConfig | None = None) -> str | None:
    """As both of Gluon's kernels; split_k in SPLITS, without pairs."""
    if config is not None and (config.split_k not in SPLITS or config.pairs):
        return f"split_k is {config.split_k}, pairs {config.pairs}; accepted: {', '.join(map(str, SPLITS))}, no pairs"
    if reason := configs.supports(problem, config):
        return reason
    if config is not None:
        stages = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * config.num_stages
        if (shared := stages + 4 * config.block_m * config.block_n) > SHARED_BYTES:
            return f"stages and partials take {shared} bytes of shared memory, over {SHARED_BYTES}"
    return None


@gluon.constexpr_function
def pushed_layout(columns: int, splits: int) -> gl.SwizzledSharedLayout:
    """Of all splits' partials [splits, rows, columns] in shared memory, a block's rows of each. 8 sums, the columns of
    4 neighbouring threads, stay together; 8 rows that a warp stores at once lie in different banks."""
    together = 8
    rotated = max(1, min(4, columns // together))
    return gl.SwizzledSharedLayout(
        together, max(1, 32 // columns), rotated, order=[2, 1, 0], cga_layout=spread(splits, 0, 1, 0)
    )


@gluon.constexpr_function
def summed_layout(rows: int, columns: int, splits: int, along_rows: bool, num_warps: int) -> gl.BlockedLayout:
    """Of the same in registers: a thread has every split's partial of its elements; neighbouring threads those that are
    neighbours in C, along the rows with `along_rows`, else along the columns."""
    bases = spread(splits, 0, 1, 0)
    own_rows = rows // splits
    if along_rows:
        lanes = min(32, own_rows)
        return gl.BlockedLayout([splits, 1, 1], [1, lanes, 32 // lanes], [1, 1, num_warps], [1, 2, 0], bases)
    each = max(1, min(4, own_rows * columns // (32 * num_warps)))
    lanes = min(32, columns // each)
    return gl.BlockedLayout([splits, 1, each], [1, 32 // lanes, lanes], [1, num_warps, 1], [2, 1, 0], bases)


@gluon.jit(do_not_specialize=["m", "group_m", "steps"], do_not_specialize_on_alignment=["groups"])
def _matmul_cluster_kernel(
    a,
    b,
    bias_ptr,
    c_ptr,
    m,
    n,
    stride_cm,
    stride_cn,
    group_m,
    groups,
    steps,
    STAGES: gl.constexpr,
    NK: gl.constexpr,
    SWAP: gl.constexpr,
    SPLITS: gl.constexpr,
    EPILOGUE: gl.constexpr,
):
    BLOCK_M: gl.constexpr = a.block_shape[0]
    BLOCK_N: gl.constexpr = b.block_shape[0] if NK else b.block_shape[1]
    ROWS: gl.constexpr = BLOCK_N if SWAP else BLOCK_M
    COLUMNS: gl.constexpr = BLOCK_M if SWAP else BLOCK_N
    pid_m, pid_n, _ = place_of(group_m, groups)
    row_m, row_n = pid_m * BLOCK_M, pid_n * BLOCK_N
    pushed = gl.allocate_shared_memory(gl.float32, [SPLITS, ROWS, COLUMNS], pushed_layout(COLUMNS, SPLITS))
    arrived = mbarrier.allocate_mbarrier()
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, pushed.nbytes_per_cta)
    steps = gl.where(row_m < m, steps, 0)  # the last group may have fewer rows
    sums = ring_product(a, b, row_m, row_n, 0, steps, STAGES, NK, SWAP, SPLITS, False)
    hopper.async_store(pushed, sums.reshape([SPLITS, ROWS, COLUMNS]), arrived)
    mbarrier.wait(arrived, 0)
    total = gl.sum(pushed.load(summed_layout(ROWS, COLUMNS, SPLITS, SWAP, gl.num_warps())), axis=0)
    total = total.permute([1, 0]) if SWAP else total
    LAYOUT: gl.constexpr = total.type.layout
    offs_m = row_m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, LAYOUT))
    offs_n = row_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))
    finish(total, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE)


def plan(problem: Matmul, config: GluonConfig, placement: Placement) -> Plan:
    """What a call launches."""
    splits = config.split_k
    grid = configs.blocks_of(problem, replace(config, split_k=1))
    step = splits * config.block_k
    launch = Launch(
        _matmul_cluster_kernel,
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, problem.m, problem.n, *placement.out_strides),
            *(grid.group_m, grid.groups, band_steps(problem.k, step, 1)),
        ),
        grid.blocks,
        {
            "STAGES": config.num_stages,
            "NK": problem.layout is Layout.NK,
            "SWAP": config.swap,
            "SPLITS": splits,
            "EPILOGUE": problem.epilogue.value,
            "num_warps": config.num_warps,
            "num_ctas": splits,
            "maxnreg": configs.registers(config),
        },
        configs.described(
            *(problem, placement, (config.block_m, step), (config.block_n, step)),
            *(spread(splits, 0, 1), spread(splits, 0, 1)),
        ),
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
    config: GluonConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on, and for
    tensors that TMA cannot address.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: GluonConfig) -> None:
    """Compiles for the current device into Triton's cache; operands as the problem and the launcher allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="cluster",
    variant="",
    language=Language.GLUON,
    protocol=Protocol.CLUSTER,
    launch=matmul,
    config_type=GluonConfig,
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
    on_request=True,
)
