"""The product of a band on the tensor cores of every GPU since Ampere: mma.sync on registers, from tiles in shared
memory that cp.async fills."""

from functools import lru_cache

import tilus
from tilus import int32
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor

from triton_vs_tilus.common.kernel import MatmulConfig

MMA = 16, 8, 16  # rows, columns and K of one mma.sync in half precision
MOST_REGISTERS = 223  # of a thread, for a step's operands and sums: tilus 0.2.0 refuses more


def supports(config: MatmulConfig) -> str | None:
    """Why tilus cannot multiply this tile by mma.sync; None where it can."""
    if any(block % of_mma for block, of_mma in zip((config.block_m, config.block_n, config.block_k), MMA, strict=True)):
        return f"blocks {config.block_m}x{config.block_n}x{config.block_k} are not multiples of mma's 16x8x16"
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    registers = _least_registers(config.block_m, config.block_n, config.block_k, config.num_warps)
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


class MmaProduct(tilus.Script):
    """Of a Script with block_k, num_stages, dtype, fp16 or bf16, and stored_nk."""

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

        A dimension of acc before these two is `multiply`'s. Ends in a sync, after which no copy is under way."""
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
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, offset_k])
            self.copy_b(gb, sb, stage, offset_n, offset_k)
        self.copy_async_commit_group()

    def copy_b(self, gb: GlobalTensor, sb: SharedTensor, stage: int32, offset_n: int32, offset_k: int32) -> None:
        self.copy_async(src=gb, dst=sb[stage], offsets=[offset_n, offset_k] if self.stored_nk else [offset_k, offset_n])

    def multiply(self, a: RegisterTensor, b: RegisterTensor, acc: RegisterTensor) -> None:
        """acc += a [block_m, block_k] @ b [block_k, block_n]: one step of mma_product."""
        self.dot(a, b, acc, out=acc)
