"""The order of programs in Triton's tutorial, which the sources take over."""

import triton
import triton.language as tl


@triton.jit
def tile_of(pid, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """(pid_m, pid_n): in groups of GROUP_M rows of tiles, each column by column."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(n, BLOCK_N)
    first = pid // in_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + pid % in_group % rows, pid % in_group // rows
