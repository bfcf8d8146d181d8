"""The product of a band by wgmma whose warps are specialized: a producer warp for the copies, the others multiply.

    producer warp          per step: wait for `read` of a stage, TMA of both operands into it, which arrives at `full`
    consumer warpgroups    per step: wait for `full`, one wgmma product; then arrive at `read` of the product before

The producer runs as far ahead as there are stages. The warpgroups do not wait for each other, as they do in wgmma.py:
a thread of each warp arrives at `read`. Tiles, stages and accumulators are those of wgmma.py.

The producer warp comes after the num_warps of a Script and ends with its last copy. What follows the product is the
consumers' alone: tilus 0.2.0 has no word for a block of fewer threads than began, so `only_first_threads` makes one.
Its syncs count the threads that are left. `__syncthreads()` waits for all threads that have not ended (CUDA C++
Programming Guide, "Compute Capability 7.x", "Independent Thread Scheduling"): a deadlock where
the producer is still at work and waits for stages that only the consumers free, as in data_parallel.persistent. Under
compute-sanitizer's racecheck it waits, in a cluster, for a producer that has ended, too (notes/referee.md). The barrier
of a cluster counts nobody: it waits for threads that have not ended (PTX ISA, "barrier.cluster").

Source: CUTLASS' sm90_mma_tma_gmma_ss_warpspecialized; tilus' examples/hopper_matmul/matmul_v5, later than 0.2.0.
"""

from dataclasses import dataclass

import tilus
from tilus import int32, uint32
from tilus.backends.emitter import BaseInstEmitter, register_emitter
from tilus.hidet.ir.expr import Expr
from tilus.hidet.ir.primitives.cuda.elect import elect_one_sync, shfl_sync_i32
from tilus.hidet.ir.primitives.cuda.mbarrier import mbarrier_arrive
from tilus.hidet.ir.stmt import ReturnStmt
from tilus.ir.inst import Instruction
from tilus.ir.layout.inference.inference import InstructionCollector
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.rule import register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor
from tilus.ir.utils.thread_group_stack import ThreadGroupStack
from tilus.target import nvgpu_sm90
from tilus.utils import cdiv

from triton_vs_tilus.kernels_tilus import named_barriers  # noqa: F401, it completes the barriers of thread groups
from triton_vs_tilus.kernels_tilus.wgmma import (
    STEP_K,
    WgmmaProduct,
    read_from_here,
    stages,
)

WARP = 32  # threads


@dataclass(frozen=True, eq=False)
class OnlyFirstThreadsInst(Instruction):
    """Ends the threads of the block from `count` on. The rest of the program is that of a block of `count` threads."""

    count: int


register_rule(OnlyFirstThreadsInst)(EmptyRule)
register_rule(OnlyFirstThreadsInst)(AlwaysOkayRule)


def _resize(block: ThreadGroupStack, count: int) -> None:
    """What a pass of the compiler takes for all threads of the block."""
    if block.stack_depth() != 1:
        raise ValueError(f"the block's {count} threads, named by a part of them; accepted: by all")
    block.num_threads[0] = block.thread_end[0] = count


@register_emitter(OnlyFirstThreadsInst, target=nvgpu_sm90)
class OnlyFirstThreadsEmitter(BaseInstEmitter):
    def emit(self, inst: OnlyFirstThreadsInst) -> None:
        # By a shuffle, so that ptxas knows the warps that go on to be whole.
        warp = shfl_sync_i32(uint32(0xFFFFFFFF), self.current_thread // WARP, int32(0))
        with self.if_then(warp >= inst.count // WARP):
            self.append(ReturnStmt())
        # By a remainder, so that nvcc knows it to be less than count: tilus indexes registers by what is beyond.
        self._codegen._current_thread = self.declare_var("tid", int32, self.current_thread % inst.count)
        self.thread_groups.push(0, inst.count)  # a thread group to the program's end, so that its syncs are counted


_collect = InstructionCollector.visit_Instruction


def _collect_by_threads(self: InstructionCollector, inst: Instruction) -> None:
    """Layouts of what follows are inferred for the threads that are left."""
    _collect(self, inst)
    if isinstance(inst, OnlyFirstThreadsInst):
        _resize(self.tg_stack, inst.count)


InstructionCollector.visit_Instruction = _collect_by_threads


def add_producer_warp(script: tilus.Script) -> None:
    """To the warps of the block: from here on its threads are these, too."""
    script.attrs.warps = script.num_warps + 1
    _resize(script._builder.tg_stack, script.attrs.warps * WARP)


def only_first_threads(script: tilus.Script, count: int) -> None:
    """Once in a program, in no loop and in no thread group."""
    script._builder.append(OnlyFirstThreadsInst(None, (), count))
    _resize(script._builder.tg_stack, count)


@dataclass(frozen=True, eq=False)
class ArriveOnceAWarpInst(Instruction):
    """Of the threads of each warp, all of them: one arrives at the barrier, and releases what they have done."""

    barrier: Expr


register_rule(ArriveOnceAWarpInst)(EmptyRule)
register_rule(ArriveOnceAWarpInst)(AlwaysOkayRule)


@register_emitter(ArriveOnceAWarpInst, target=nvgpu_sm90)
class ArriveOnceAWarpEmitter(BaseInstEmitter):
    def emit(self, inst: ArriveOnceAWarpInst) -> None:
        with self.if_then(elect_one_sync()):
            self.append(mbarrier_arrive(inst.barrier, count=1, sem="release", scope="cta", space="cta"))


def arrive_once_a_warp(script: tilus.Script, barrier: RegisterTensor) -> None:
    """tilus 0.2.0 has an arrival by every thread, and one by one thread of all."""
    script._builder.append(ArriveOnceAWarpInst(None, (), script._builder.tensor_item_value(barrier)))


class WgmmaSpecializedProduct(WgmmaProduct):
    """Of a Script as `WgmmaProduct` takes it, not paired."""

    def wgmma_specialized_product(
        self,
        acc: RegisterTensor,
        ga: GlobalTensor,
        gb: GlobalTensor,
        offset_a: int32,
        offset_b: int32,
        k_begin: int32,
        k_end: int32,
    ) -> None:
        """acc fp32 [rows, columns] += A[offset_a:, k_begin:k_end] @ B[offset_b:, k_begin:k_end].T, stored as
        `wgmma_product` says. Once in a program, in no loop. Ends in a sync of the num_warps warps that go on."""
        rows, columns = acc.shape
        consumers = self.num_warps * WARP
        add_producer_warp(self)
        sa = stages(self, rows, not self.a_along_m)
        sb = stages(self, columns, not self.b_along_n)
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.num_stages)])
        read = self.mbarrier.alloc(counts=[self.num_warps for _ in range(self.num_stages)])
        with self.thread_group(consumers, WARP):
            self.produce(ga, gb, sa, sb, full, read, rows + columns, offset_a, offset_b, k_begin, k_end, 0)
        only_first_threads(self, consumers)
        self.consume(acc, sa, sb, full, read, cdiv(k_end - k_begin, self.block_k), 0)
        self.sync()
        self.free_shared(sa)
        self.free_shared(sb)

    def produce(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        full: RegisterTensor,
        read: RegisterTensor,
        extent: int,
        offset_a: int32,
        offset_b: int32,
        k_begin: int32,
        k_end: int32,
        steps_before: int32,
    ) -> None:
        """By the producer warp: the copies of a product. extent: of both operands together. steps_before: of earlier
        products of this block, as barriers go on counting."""
        fill: int32 = steps_before % self.num_stages
        fill_phase: int32 = 1 - steps_before // self.num_stages % 2  # at first nothing is to be waited for
        steps: int32 = cdiv(k_end - k_begin, self.block_k)
        for step in self.range(steps):
            self.mbarrier.wait(read[fill], phase=fill_phase)
            self.fill_stage(ga, gb, sa, sb, full, fill, extent, offset_a, offset_b, k_begin + step * self.block_k)
            fill += 1
            if fill == self.num_stages:
                fill = 0
                fill_phase = 1 - fill_phase

    def consume(
        self,
        acc: RegisterTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        full: RegisterTensor,
        read: RegisterTensor,
        steps: int32,
        steps_before: int32,
    ) -> None:
        """By the other warps: acc += the product of as many steps, whose stages they leave to the next product."""
        chunks = self.block_k // STEP_K
        current: int32 = steps_before % self.num_stages
        phase: int32 = steps_before // self.num_stages % 2
        before: int32 = 0
        if steps > 0:  # around the last wait, too: joined by a path without a product, ptxas serializes every wgmma
            for step in self.range(steps):
                self.mbarrier.wait(full[current], phase=phase)
                self.wgmma.fence()
                for chunk in range(chunks):
                    self.multiply_chunk(acc, sa[current * chunks + chunk], sb[current * chunks + chunk])
                self.wgmma.commit_group()
                self.wgmma.wait_group(1)  # for the product before; the tensor cores have the next one by now
                if step > 0:
                    arrive_once_a_warp(self, read[before])
                before = current
                current += 1
                if current == self.num_stages:
                    current = 0
                    phase = 1 - phase
            self.wgmma.wait_group(0)
            arrive_once_a_warp(self, read[before])
            read_from_here(self, acc)
