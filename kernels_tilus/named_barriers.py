"""Barriers of a part of a block's warps: tilus' own with what it lacks.

tilus 0.2.0 syncs a thread group of several warps at a named barrier that counts them (ids 1 to 4; 0 is the block's).
It issues that without a word on memory, so that nvcc may move loads and stores across it; `bar_sync` forbids that, as
`__syncthreads()` does. A reduction at a barrier it has of the whole block alone; `bar_red` is one of a group.

Importing this module changes tilus for the process.

Source: PTX ISA, "bar" and "barrier"; CUDA's "Inline PTX Assembly", on memory.
"""

from typing import no_type_check

from tilus.backends.contexts import sync_ctx
from tilus.backends.emitter import BaseInstEmitter
from tilus.backends.emitters.sync import SyncReduceThreadsEmitter
from tilus.hidet.ir.dtypes import uint32
from tilus.hidet.ir.expr import Expr, cast
from tilus.hidet.ir.primitives.func import call_primitive_func, is_primitive_function, register_primitive_function
from tilus.hidet.ir.stmt import asm
from tilus.hidet.lang import attrs, script
from tilus.ir.instructions import SyncReduceThreadsInst
from tilus.target import nvgpu_sm90


@no_type_check
def bar_sync(barrier_id: int, thread_count: int) -> Expr:
    """As tilus' `bar_sync_aligned`, and nvcc moves no load or store across it."""
    name = f"cuda_bar_sync_{barrier_id}_{thread_count}"
    if not is_primitive_function(name):
        template = f"bar.sync {barrier_id}, {thread_count};"

        @script
        def sync():
            attrs.func_name = name
            attrs.func_kind = "cuda_internal"
            asm(template=template, is_volatile=True, memory_fence=True)

        register_primitive_function(name=name, func_or_type=sync)
    return call_primitive_func(name, [])


@no_type_check
def bar_red(op: str, barrier_id: int, thread_count: int, condition: Expr) -> Expr:
    """bar_sync, and uint32: 1 where the condition holds for all ('and') or for any ('or') of the threads, else 0."""
    name = f"cuda_bar_red_{op}_{barrier_id}_{thread_count}"
    if not is_primitive_function(name):
        reduced = f"bar.red.{op}.pred found, {barrier_id}, {thread_count}, holds;"
        template = "{ .reg .pred holds, found; setp.ne.u32 holds, %1, 0; " + reduced + " selp.u32 %0, 1, 0, found; }"

        @script
        def red(condition: uint32) -> uint32:
            attrs.func_name = name
            attrs.func_kind = "cuda_internal"
            found: uint32 = 0
            asm(template=template, outputs=[found], inputs=[condition], is_volatile=True, memory_fence=True)
            return found

        register_primitive_function(name=name, func_or_type=red)
    return call_primitive_func(name, [cast(condition, uint32)])


class _SyncReduceOfGroup(SyncReduceThreadsEmitter):
    """Of a group of whole warps, too, at the barrier of its syncs."""

    def sync_reduce(self, value: Expr, op: str) -> Expr:
        begin, end = self.thread_groups.current_thread_begin, self.thread_groups.current_thread_end
        if self.thread_groups.stack_depth() == 1 or begin % 32 or end % 32:
            return super().sync_reduce(value, op)  # of the whole block, or says that there is none
        barrier = self.contexts.sync_ctx._try_allocate_named_barrier(begin, end)
        if barrier is None:
            raise NotImplementedError(f"a reduction of threads {begin} to {end}, beyond the 4 groups with a barrier")
        return bar_red(op, barrier, end - begin, value)


sync_ctx.bar_sync_aligned = bar_sync
BaseInstEmitter.REGISTRY[SyncReduceThreadsInst][nvgpu_sm90] = _SyncReduceOfGroup
