"""Blocks that work on one tile and count themselves in as they finish, so that the last one knows that it is.

No block waits for another: any order of blocks, and any number of them at a time, ends.

    self.announce(counters, tile, ticket)     as it begins
    ...                                       stores or atomics of its own
    self.is_last(counters, tile, ticket, n)   as it ends: whether all n have come, so that what they wrote can be read
    self.reset(counters, tile)                by the last one

What an earlier launch left in a counter counts for nothing until tickets wrap (common/workspace.py, `next_ticket`).

The order, in terms of PTX' memory model: the stores of all threads of a block come before `bar.sync`, which comes
before the release of the one thread that counts; that one is acquired by the one thread of the last block, whose result
reaches its other threads through `bar.red`, and only then do they load. Causality passes through all of it, as releases
are cumulative. The loads and copies are plain: an acquire leaves nothing stale in the level 1 cache.
"""

from tilus import float32, int32
from tilus.hidet.ir.primitives.cuda.atomic import atomic_add, atomic_max
from tilus.ir.layout.ops import auto_local_spatial
from tilus.ir.tensor import GlobalTensor, RegisterTensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.kernels_tilus import configs, simt, wgmma
from triton_vs_tilus.kernels_tilus.band import BandScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig

TILES_IN_FLIGHT = 32  # partial sums that are on their way at once, as shared memory allows


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; a ticket must have room for as many arrivals as there are splits; and as
    `supports_partials`."""
    reason = workspace.too_many_turns(config.split_k if config else 1) or configs.supports(problem, config)
    return reason or (supports_partials(config) if config else None)


def supports_partials(config: BandConfig) -> str | None:
    """Why a tile of partial sums cannot be read back; None where it can: from shared memory, by all threads alike."""
    shared = 4 * config.block_m * config.block_n + wgmma.BARRIERS_BYTES
    if shared > configs.SHARED_MEMORY_LIMIT:
        tile = f"a {config.block_m}x{config.block_n} tile of partial sums"
        return f"{tile} takes {shared} bytes of shared memory, over {configs.SHARED_MEMORY_LIMIT}"
    return configs.shared_unevenly(config.block_m, config.block_n, config.num_warps)


class Arrivals:
    """What a Script with a block_m, block_n and num_warps inherits, too, for its blocks to meet at counters: int32, one
    a tile."""

    def prepare_arrivals(self, shared_bytes: int) -> None:
        """shared_bytes: of shared memory, which the product has freed when partial sums come."""
        # Of a tile that comes back from memory. A thread of an mma holds pairs; these are 16 bytes of a row.
        vectors = auto_local_spatial(32 * self.num_warps, [self.block_m, self.block_n // configs.VECTOR])
        self.wide_layout = vectors.local(1, configs.VECTOR)
        free_tiles = (shared_bytes - wgmma.BARRIERS_BYTES) // (4 * self.block_m * self.block_n)
        self.tiles_in_flight = min(TILES_IN_FLIGHT, max(1, free_tiles))

    def announce(self, counters: GlobalTensor, tile: int32, ticket: int32) -> None:
        """Raises the counter to the ticket, once per launch in effect. Nobody waits for it: its result is not asked
        for."""
        counter: ~int32 = counters[tile].item_ptr()
        with self.single_thread():
            atomic_max(counter, ticket)

    def is_last(self, counters: GlobalTensor, tile: int32, ticket: int32, arrivals: int32) -> bool:
        """Whether `arrivals` blocks have come with this one, for all of its threads. Everything that they wrote before
        can then be loaded."""
        counter: ~int32 = counters[tile].item_ptr()
        before: int32 = 0  # of the threads that do not count; no ticket is zero
        self.sync()  # every thread's stores come before the one thread that counts
        with self.single_thread():
            before = atomic_add(counter, 1, sem="acq_rel")
        return self._builder.syncthreads_or(before == ticket + arrivals - 1)

    def reset(self, counters: GlobalTensor, tile: int32) -> None:
        with self.single_thread():
            self.store_global(counters, self.register_tensor(dtype=int32, shape=[1], init=0), offsets=[tile])

    def sum_in_order(self, partials: GlobalTensor, first: int32, offset_m: int32, offset_n: int32) -> RegisterTensor:
        """fp32 [block_m, block_n]: the sum of partials[i, offset_m:, offset_n:] over i = first, first + 1, ... to the
        end, in this order. Ends in a sync.

        Terms are copied to shared memory, tiles_in_flight at once. Loads into registers would be fewer at once: ptxas
        gives them the registers that the product happens to need, which for wgmma is one load after the other.
        """
        block_m, block_n = self.block_m, self.block_n
        terms = wgmma.shared_beside_barriers(self, dtype=float32, shape=[self.tiles_in_flight, block_m, block_n])
        total = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        self.annotate_layout(total, self.wide_layout)
        for begin in self.range(first, partials.shape[0], self.tiles_in_flight):
            count: int32 = min(partials.shape[0] - begin, self.tiles_in_flight)
            for i in self.range(count, unroll=4):
                self.copy_async(partials, terms[i], offsets=[begin + i, offset_m, offset_n], dims=[1, 2])
            self.copy_async_wait_all()
            self.sync()
            for i in self.range(count, unroll=4):
                self.add(total, self.load_shared(terms[i]), out=total)
            self.sync()
        self.free_shared(terms)
        return total


class ArrivalScript(Arrivals, BandScript):
    """A BandScript whose blocks meet at counters."""

    def __init__(self, build):
        super().__init__(build)
        tile = build.tile
        if tile.engine == "simt":
            self.prepare_arrivals(simt.shared_bytes(tile))
        else:
            stage_bytes = (tile.block_m + tile.block_n) * tile.block_k * self.dtype.nbytes
            self.prepare_arrivals(tile.num_stages * stage_bytes)
