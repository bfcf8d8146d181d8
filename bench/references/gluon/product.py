"""What Gluon's kernels do alike: a warp that loads, warpgroups that multiply, and the ring of stages between them.

    producer, 1 warp           wait until a stage is empty; say how many bytes it will get; TMA loads of A and B
    consumers, 4 or 8 warps    wait until it is full; wgmma; give the stage before back

A stage has two mbarriers. `full` completes when its bytes have landed, `empty` when the consumers arrive. A pair of
blocks has a third, the leader's, at which the consumers of both arrive: the leader alone loads B, for both.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

PRODUCER_REGISTERS = gl.constexpr(24)  # the least that setmaxnreg gives; the consumers get what is left


@gluon.constexpr_function
def spread(blocks: int, *dimensions: int) -> list[list[int]]:
    """The bases (`cga_layout`) that share a tile out over a cluster of so many blocks, a power of two: along the
    dimension that is 1; where all are 0, every block has the whole tile."""
    return [[each << bit for each in dimensions] for bit in range(blocks.bit_length() - 1)]


@gluon.constexpr_function
def sums_layout(columns: int, blocks: int, num_warps: int) -> gl.NVMMADistributedLayout:
    """Of a wgmma's sums; the blocks of a cluster are one below the other."""
    return gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, columns, 16], spread(blocks, 1, 0))


@gluon.constexpr_function
def spread_anew(layout: gl.NVMMASharedLayout, bases: list[list[int]]) -> gl.NVMMASharedLayout:
    """The same bytes in each block, said to be shared out otherwise."""
    swizzle, bits = layout.swizzle_byte_width, layout.element_bitwidth
    return gl.NVMMASharedLayout(swizzle, bits, transposed=layout.transposed, cga_layout=bases)


@gluon.jit
def ring_product(
    a,
    b,
    row_m,
    row_n,
    k_begin,
    steps,
    STAGES: gl.constexpr,
    NK: gl.constexpr,
    SWAP: gl.constexpr,
    SPLITS: gl.constexpr,
    PAIRS: gl.constexpr,
):
    """fp32 sums of A[row_m:, k_begin:] @ B[k_begin:, row_n:] over so many steps of the descriptors' tiles; zero beyond
    the matrices. [rows, columns] of the tile, transposed with SWAP.

    SPLITS: blocks of the cluster, each of which multiplies its own part of a step's K; their sums stand one below the
    other, [SPLITS * rows, columns]. PAIRS: the two blocks have tiles of A one below the other, and share B.
    """
    # Gluon has no [STAGES, *shape].
    ring_a = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)  # noqa: RUF005
    ring_b = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)  # noqa: RUF005
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    if PAIRS:
        both_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout(spread(2, 0)))
    else:
        both_empty = empty
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
        if PAIRS:
            mbarrier.init(both_empty.index(stage), count=1)  # of each block
    return gl.warp_specialize(
        [
            (_multiply, (ring_a, ring_b, full, empty, both_empty, steps, NK, SWAP, SPLITS, PAIRS)),
            (_load, (a, b, ring_a, ring_b, full, empty, both_empty, row_m, row_n, k_begin, steps, NK, PAIRS)),
        ],
        [1],
        [PRODUCER_REGISTERS],
    )


@gluon.jit
def _load(
    a,
    b,
    ring_a,
    ring_b,
    full,
    empty,
    both_empty,
    row_m,
    row_n,
    k_begin,
    steps,
    NK: gl.constexpr,
    PAIRS: gl.constexpr,
):
    STAGES: gl.constexpr = ring_a.shape[0]
    for step in range(steps):
        stage = step % STAGES
        emptied = step // STAGES & 1 ^ 1  # the phase before a barrier's first counts as complete
        k = k_begin + step * a.block_shape[1]
        mbarrier.wait(empty.index(stage), emptied)
        mbarrier.expect(full.index(stage), a.nbytes_per_cta + b.nbytes_per_cta)
        if PAIRS:
            mbarrier.wait(both_empty.index(stage), emptied)  # the leader alone waits, and loads B
        if NK:
            tma.async_load(b, [row_n, k], full.index(stage), ring_b.index(stage), multicast=PAIRS)
        else:
            tma.async_load(b, [k, row_n], full.index(stage), ring_b.index(stage), multicast=PAIRS)
        tma.async_load(a, [row_m, k], full.index(stage), ring_a.index(stage))


@gluon.jit
def _multiply(
    ring_a,
    ring_b,
    full,
    empty,
    both_empty,
    steps,
    NK: gl.constexpr,
    SWAP: gl.constexpr,
    SPLITS: gl.constexpr,
    PAIRS: gl.constexpr,
):
    STAGES: gl.constexpr = ring_a.shape[0]
    rows, columns = _operands(ring_a.index(0), ring_b.index(0), NK, SWAP, SPLITS)
    LAYOUT: gl.constexpr = sums_layout(columns.shape[1], gl.num_ctas(), gl.num_warps())
    sums = gl.zeros([rows.shape[0], columns.shape[1]], gl.float32, LAYOUT)
    for step in range(steps):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        rows, columns = _operands(ring_a.index(stage), ring_b.index(stage), NK, SWAP, SPLITS)
        sums = warpgroup_mma_wait(1, deps=(warpgroup_mma(rows, columns, sums, is_async=True),))
        # The step before is multiplied.
        before = (step + STAGES - 1) % STAGES
        mbarrier.arrive(empty.index(before), pred=step > 0)
        if PAIRS:
            mbarrier.arrive(both_empty.index(before), pred=step > 0)
    return warpgroup_mma_wait(0, deps=(sums,))


@gluon.jit
def _operands(a, b, NK: gl.constexpr, SWAP: gl.constexpr, SPLITS: gl.constexpr):
    """[rows, K] and [K, columns] of a wgmma, views of a stage."""
    stored = b.permute([1, 0]) if NK else b  # [K, N]
    if SWAP:
        rows, columns = stored.permute([1, 0]), a.permute([1, 0])
    else:
        rows, columns = a, stored
    if SPLITS > 1:
        # wgmma adds over all of K; so each block's part of K is said to be rows of its own, and columns that all have.
        K: gl.constexpr = rows.shape[1] // SPLITS
        rows = rows.reinterpret(
            shape=[SPLITS * rows.shape[0], K], layout=spread_anew(rows.layout, spread(SPLITS, 1, 0))
        )
        columns = columns.reinterpret(
            shape=[K, columns.shape[1]], layout=spread_anew(columns.layout, spread(SPLITS, 0, 0))
        )
    return rows, columns
