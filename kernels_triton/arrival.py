"""Programs that work on one tile and count themselves in as they finish, so that the last one knows that it is.

No program waits for another: any order of programs, and any number of them at a time, ends.

    announce(counter_ptr, ticket)       as it begins
    ...                                 stores or atomics of its own
    is_last(counter_ptr, ticket, n)     as it ends: whether all n have come, so that what they wrote can be read
    reset(counter_ptr)                  by the last one

What an earlier launch left in a counter counts for nothing until tickets wrap (common/workspace.py, `next_ticket`).

The order, in terms of PTX' memory model: the stores of all threads of a program come before `bar.sync`, which comes
before the release of the one thread that counts; that one is acquired by the one thread of the last program, whose
result Triton hands to its other threads through shared memory and a further `bar.sync`, and only then do they load.
Causality passes through all of it, as releases are cumulative; that loads are `.cg` is no part (notes/semaphore.md).
"""

import triton
import triton.language as tl

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.kernels_triton import configs
from triton_vs_tilus.kernels_triton.configs import BandConfig

# fp32 registers of a thread that hold partial sums still on their way, and the most tiles of them at once.
REGISTERS_IN_FLIGHT = 128
TILES_IN_FLIGHT = 32


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and a ticket must have room for as many arrivals as there are splits."""
    return workspace.too_many_turns(config.split_k if config else 1) or configs.supports(problem, config)


def tiles_in_flight(config: BandConfig) -> int:
    """How many partial tiles the last program loads before it adds the first, as registers allow."""
    registers = max(1, config.block_m * config.block_n // (32 * config.num_warps))
    return min(TILES_IN_FLIGHT, max(1, REGISTERS_IN_FLIGHT // registers))


@triton.jit
def announce(counter_ptr, ticket):
    """Raises the counter to the ticket, once per launch in effect. Nobody waits for it: its result is not asked for."""
    tl.atomic_max(counter_ptr, ticket, sem="relaxed", scope="gpu")


@triton.jit
def is_last(counter_ptr, ticket, arrivals):
    """Whether `arrivals` programs have come with this one. Everything that they wrote before can then be loaded."""
    tl.debug_barrier()  # every thread's stores come before the one thread that counts
    return tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu") == ticket + arrivals - 1


@triton.jit
def reset(counter_ptr):
    tl.store(counter_ptr, 0)


@triton.jit
def sum_in_order(ptrs, stride, count, mask, TILES: tl.constexpr):
    """fp32, in the shape of `ptrs`: the sum of what stands at ptrs + i * stride over i = 0, 1, ..., count - 1, in this
    order. The loads of TILES terms are in flight together."""
    total = tl.zeros(ptrs.shape, dtype=tl.float32)
    for first in range(0, count, TILES):
        terms = ()
        for i in tl.static_range(TILES):
            there = mask & (first + i < count)
            terms += (tl.load(ptrs + (first + i) * stride, mask=there, other=0.0, cache_modifier=".cg"),)
        for i in tl.static_range(TILES):
            total += terms[i]
    return total
