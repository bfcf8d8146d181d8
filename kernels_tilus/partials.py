"""A tile on its way from the registers of a wgmma to memory.

A thread of a wgmma holds pairs of a row. A warp that stores them writes a part of a line of each of 8 rows, 32 bytes of
fp32 or 16 of a half-precision C, which are as many requests of L2 as whole lines of 128 would be. Through shared
memory, which the product has freed, a warp stores lines.
"""

import tilus
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.layout.shared_layout import SharedLayout, Swizzle
from tilus.ir.tensor import RegisterTensor

from triton_vs_tilus.common.space import WIDEST_LOAD
from triton_vs_tilus.kernels_tilus.mma import layout_of_total
from triton_vs_tilus.kernels_tilus.wgmma import shared_beside_barriers

BANKS = 32  # words of 4 bytes that one access of a warp can reach at once


def holds_pairs_of_a_row(engine: str) -> bool:
    """Of a tile by wgmma, 64 rows or more. A transposed one, of fewer, has pairs of a column; it is stored as it is."""
    return engine.startswith("wgmma") and engine != "wgmma_swapped"


def in_rows(script: tilus.Script, tile: RegisterTensor) -> RegisterTensor:
    """The same tile, [rows, columns] of 2 or 4 bytes an element, with 16 bytes of a row a thread. To be called after
    the product, by all of its warps; script has num_warps."""
    rows, columns = tile.shape
    shared = shared_beside_barriers(script, dtype=tile.dtype, shape=[rows, columns])
    script.annotate_layout(shared, tile_layout(rows, columns, tile.dtype.nbytes))
    script.store_shared(shared, tile)
    script.sync()
    wide = script.load_shared(shared)
    script.annotate_layout(wide, layout_of_total(rows, columns, script.num_warps, WIDEST_LOAD // tile.dtype.nbytes))
    script.free_shared(shared)
    return wide


def sums_in_rows(script: tilus.Script, sums: RegisterTensor) -> RegisterTensor:
    """The sums of a BandScript's product, `in_rows` where its threads hold pairs, else as they are."""
    return in_rows(script, sums) if holds_pairs_of_a_row(script.engine) else sums


def tile_layout(rows: int, columns: int, nbytes: int) -> SharedLayout:
    """Row-major, but for this: what neighbouring rows have at the same place lies in different banks. Of fp32 that is
    32 bytes of 4 rows, so that half a warp stores its pairs at once; of half precision 16 bytes of 8, for a warp."""
    tile = shared_row_major(rows, columns)
    pairs = 3 if nbytes == 2 else 2  # bits of the rows that are told apart
    bits = min(pairs, columns.bit_length() - 4)
    if bits < 1 or (nbytes == 4 and columns < BANKS):
        return tile
    return tile.apply_swizzle(Swizzle(base=3, bits=bits, shift=columns.bit_length() - 4))
