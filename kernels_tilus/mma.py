"""The product of a band on the tensor cores of every GPU since Ampere: mma.sync on registers, from tiles in shared
memory that cp.async fills, or plain loads and stores where rows are aligned to less than its 4 bytes. The warps of a
block share the tile or, sliced, each step of K."""

from functools import lru_cache
from math import gcd

import tilus
from tilus import float32, int32
from tilus.ir.layout import RegisterLayout
from tilus.ir.layout.ops import auto_local_spatial, shared_row_major
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor

from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.kernels_tilus.sliced_dot import sliced_dot

MMA = 16, 8, 16  # rows, columns and K of one mma.sync in half precision
MOST_REGISTERS = 223  # of a thread, for a step's operands and sums: tilus 0.2.0 refuses more
WIDEST_SUMS = 4  # fp32 of a 16-byte access


def supports(config: MatmulConfig, sliced: bool) -> str | None:
    """Why tilus cannot multiply this tile by mma.sync; None where it can. sliced: the warps share block_k."""
    if any(block % of_mma for block, of_mma in zip((config.block_m, config.block_n, config.block_k), MMA, strict=True)):
        return f"blocks {config.block_m}x{config.block_n}x{config.block_k} are not multiples of mma's 16x8x16"
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    if sliced:
        if config.block_k % (config.num_warps * MMA[2]):
            accepted = f"multiples of {MMA[2]} a warp, as mma takes"
            return f"{config.num_warps} warps share a block_k of {config.block_k}; accepted: {accepted}"
        if (config.block_m * config.block_n) % (32 * config.num_warps):
            tile = f"a {config.block_m}x{config.block_n} tile"
            return f"{config.num_warps} warps share {tile}; accepted: as many elements a thread"
    slices = config.num_warps if sliced else 1
    registers = _least_registers(config.block_m, config.block_n, config.block_k // slices, config.num_warps // slices)
    if registers is None:
        return f"{config.num_warps} warps do not divide a {config.block_m}x{config.block_n} tile of 16x8 products"
    if registers > MOST_REGISTERS:
        tile = f"{config.block_m}x{config.block_n}x{config.block_k}"
        return f"a {tile} step takes {registers} registers of {config.num_warps} warps, over {MOST_REGISTERS}"
    return None


@lru_cache(maxsize=1024)
def _least_registers(block_m: int, block_n: int, block_k: int, num_warps: int) -> int | None:
    """Of a thread, for the operands of a step and its sums, in the best layout of the warps over the 16x8 products of a
    tile; None where none gives each warp as many."""
    rows, columns, steps = (block // of_mma for block, of_mma in zip((block_m, block_n, block_k), MMA, strict=True))
    layouts = [
        (rows // warps_m, columns // (num_warps // warps_m))
        for warps_m in range(1, num_warps + 1)
        if num_warps % warps_m == 0 and rows % warps_m == 0 and columns % (num_warps // warps_m) == 0
    ]
    of_warp = [4 * m * steps + 2 * n * steps + 4 * m * n for m, n in layouts]
    return min(of_warp, default=None)


def layout_of_total(rows: int, columns: int, num_warps: int, widest: int = WIDEST_SUMS) -> RegisterLayout:
    """A tile in which the sums of warps meet: up to `widest` neighbours in a row of each thread. No element is in two
    threads but where the threads are more than the elements."""
    width = gcd(widest, max(1, rows * columns // (32 * num_warps)))
    return auto_local_spatial(32 * num_warps, [rows, columns // width]).local(1, width)


class MmaProduct(tilus.Script):
    """Of a Script with block_k, num_stages, num_warps, dtype, fp16 or bf16, stored_nk, vector_k and vector_b."""

    def sliced_mma_product(
        self,
        acc: RegisterTensor,
        ga: GlobalTensor,
        gb: GlobalTensor,
        offset_m: int32,
        offset_n: int32,
        k_begin: int32,
        k_end: int32,
    ) -> None:
        """mma_product by warps that share K: each multiplies the whole tile over its slice of every step."""
        block_m, block_n = acc.shape
        sums = self.register_tensor(dtype=float32, shape=[self.num_warps, block_m, block_n], init=0.0)
        self.mma_product(sums, ga, gb, offset_m, offset_n, k_begin, k_end)
        self.annotate_layout(acc, layout_of_total(block_m, block_n, self.num_warps))
        self.add_warps(acc, sums)

    def add_warps(self, total: RegisterTensor, sums: RegisterTensor) -> None:
        """total [rows, columns] += the sums of all warps, in their order; sums [warps, rows, columns], both fp32."""
        partials = self.shared_tensor(dtype=float32, shape=sums.shape)
        self.annotate_layout(partials, shared_row_major(*sums.shape))
        self.store_shared(partials, sums)
        self.sync()
        for warp in self.range(self.num_warps, unroll="all"):
            self.add(total, self.load_shared(partials[warp]), out=total)
        self.free_shared(partials)

    def mma_product(
        self,
        acc: RegisterTensor,
        ga: GlobalTensor,
        gb: GlobalTensor,
        offset_m: int32,
        offset_n: int32,
        k_begin: int32,
        k_end: int32,
    ) -> None:
        """acc fp32 [block_m, block_n] += A[offset_m:, k_begin:k_end] @ B[k_begin:k_end, offset_n:], or, stored_nk,
        @ B[offset_n:, k_begin:k_end].T. cp.async pipeline of num_stages.

        acc fp32 [warps, block_m, block_n]: a sum for the slice of each warp. Ends in a sync, after which no copy is
        under way."""
        block_m, block_n = acc.shape[-2], acc.shape[-1]
        block_k = self.block_k
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, block_m, block_k])
        sb_shape = [block_n, block_k] if self.stored_nk else [block_k, block_n]
        sb = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, sb_shape[0], sb_shape[1]])

        for stage in range(self.num_stages - 1):
            stage_k: int32 = k_begin + stage * block_k
            self.copy_step(ga, gb, sa, sb, stage, offset_m, offset_n, stage_k, k_end)
        self.mma_steps(acc, ga, gb, sa, sb, offset_m, offset_n, k_begin, k_end)
        self.free_shared(sa)
        self.free_shared(sb)

    def mma_steps(
        self,
        acc: RegisterTensor,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        offset_m: int32,
        offset_n: int32,
        k_begin: int32,
        k_end: int32,
    ) -> None:
        """The rest of mma_product, once the copies of the first num_stages - 1 steps are under way, a group each."""
        block_k = self.block_k
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()

        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step_k in self.range(k_begin, k_end, block_k, unroll=self.num_stages):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.multiply(a, b.transpose() if self.stored_nk else b, acc)

            preload_k: int32 = step_k + (self.num_stages - 1) * block_k
            self.copy_step(ga, gb, sa, sb, preload, offset_m, offset_n, preload_k, k_end)
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()

    def copy_step(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        stage: int32,
        offset_m: int32,
        offset_n: int32,
        offset_k: int32,
        k_end: int32,
    ) -> None:
        """A group of its own, empty from k_end on: what is not the band's is not waited for."""
        if offset_k < k_end:
            # B first: few rows of A, which all tiles share, are soon in L2.
            self.copy_b(gb, sb, stage, offset_n, offset_k)
            self.copy_a(ga, sa, stage, offset_m, offset_k)
        self.copy_async_commit_group()

    def copy_tile(self, source: GlobalTensor, tile: SharedTensor, row: int32, column: int32, vector: int) -> None:
        """tile = what begins at [row, column] of the source, where rows begin at multiples of `vector` elements. By
        registers where that is 1: cp.async takes 4 bytes or more."""
        if vector > 1:
            self.copy_async(src=source, dst=tile, offsets=[row, column])
        else:
            self.store_shared(tile, self.load_global(source, offsets=[row, column], shape=tile.shape))

    def copy_a(self, ga: GlobalTensor, sa: SharedTensor, stage: int32, offset_m: int32, offset_k: int32) -> None:
        self.copy_tile(ga, sa[stage], offset_m, offset_k, self.vector_k)

    def copy_b(self, gb: GlobalTensor, sb: SharedTensor, stage: int32, offset_n: int32, offset_k: int32) -> None:
        if self.stored_nk:
            self.copy_tile(gb, sb[stage], offset_n, offset_k, self.vector_b)
        else:
            self.copy_tile(gb, sb[stage], offset_k, offset_n, self.vector_b)

    def multiply(self, a: RegisterTensor, b: RegisterTensor, acc: RegisterTensor) -> None:
        """acc += a [block_m, block_k] @ b [block_k, block_n]: one step of mma_product."""
        if len(acc.shape) == 3:
            sliced_dot(self, a, b, acc)
        else:
            self.dot(a, b, acc, out=acc)
