"""A tile of fp32 partial sums on its way from the registers of a wgmma to memory.

A thread of a wgmma holds pairs of a row. A warp that stores them writes 32 bytes of each of 8 rows, which are as many
requests of L2 as whole lines of 128 would be. Through shared memory, which the product has freed, a warp stores lines.
"""

import tilus
from tilus import float32
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.layout.shared_layout import SharedLayout, Swizzle
from tilus.ir.tensor import RegisterTensor

from triton_vs_tilus.kernels_tilus.mma import layout_of_total
from triton_vs_tilus.kernels_tilus.wgmma import shared_beside_barriers

BANKS = 32  # fp32 that one access of a warp can reach at once


def holds_pairs_of_a_row(engine: str) -> bool:
    """Of a tile by wgmma, 64 rows or more. A transposed one, of fewer, has pairs of a column; it is stored as it is."""
    return engine.startswith("wgmma") and engine != "wgmma_swapped"


def in_rows(script: tilus.Script, acc: RegisterTensor) -> RegisterTensor:
    """The same tile, fp32 [rows, columns], with 16 bytes of a row a thread. To be called after the product, by all of
    its warps; script has num_warps."""
    rows, columns = acc.shape
    tile = shared_beside_barriers(script, dtype=float32, shape=[rows, columns])
    script.annotate_layout(tile, _tile_layout(rows, columns))
    script.store_shared(tile, acc)
    script.sync()
    wide = script.load_shared(tile)
    script.annotate_layout(wide, layout_of_total(rows, columns, script.num_warps))
    script.free_shared(tile)
    return wide


def _tile_layout(rows: int, columns: int) -> SharedLayout:
    """Row-major, but for this: what 4 neighbouring rows have in the same 32 bytes lies in different banks. So half a
    warp stores its pairs at once."""
    tile = shared_row_major(rows, columns)
    if columns < BANKS:
        return tile
    return tile.apply_swizzle(Swizzle(base=3, bits=2, shift=columns.bit_length() - 4))
