"""A product on CUDA cores to which each thread adds what it holds of K, by fused multiply-adds.

tilus 0.2.0 has none. Of `a * b` and `sum` nvcc keeps the products in local memory where it does not unroll the loops
that tilus writes: seen from 256 products a thread on.

Source: `tl.fma` in Triton.
"""

from dataclasses import dataclass

import tilus
from tilus import float32
from tilus.backends.emitter import BaseInstEmitter, register_emitter
from tilus.hidet.ir.expr import Expr, cast
from tilus.hidet.ir.primitives.math import fma
from tilus.ir.inst import Instruction
from tilus.ir.layout import RegisterLayout
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.rule import register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.layout.ops import local, spatial
from tilus.ir.tensor import RegisterTensor
from tilus.target import nvgpu_sm80


@dataclass(frozen=True, eq=False)
class LaneDotInst(Instruction):
    """acc[t, m, n] += the sum of a[m, k] * b[n, k] over the k of thread t: `neighbours` of every threads * neighbours;
    inputs a [m, k], b [n, k], acc [threads, m, n]."""

    neighbours: int


# `lane_dot` annotates every layout.
register_rule(LaneDotInst)(EmptyRule)
register_rule(LaneDotInst)(AlwaysOkayRule)


@register_emitter(LaneDotInst, target=nvgpu_sm80)
class LaneDotEmitter(BaseInstEmitter):
    def emit(self, inst: LaneDotInst) -> None:
        a, b, acc = inst.inputs
        threads, m, n = acc.shape
        step = threads * inst.neighbours
        for first in range(0, a.shape[1], step):
            # Neighbours have a sum of their own: chains of few additions, side by side.
            sums = [[self.declare_var("sum", float32, float32.zero) for _ in range(n)] for _ in range(m)]
            for k in range(first, first + inst.neighbours):
                rows, columns = ([self._value(of, i, k) for i in range(of.shape[0])] for of in (a, b))
                for row, sums_of_row in zip(rows, sums, strict=True):
                    for column, added in zip(columns, sums_of_row, strict=True):
                        self.assign(added, fma(row, column, added))
            buffer = self.tensor2var[acc]
            for i, sums_of_row in enumerate(sums):
                for j, added in enumerate(sums_of_row):
                    place = i * n + j
                    self.buffer_store(buffer, indices=[place], value=buffer[place] + added)

    def _value(self, of: RegisterTensor, row: int, k: int) -> Expr:
        """Of the first thread's k: in the registers of every other it stands at the same place."""
        held = self.tensor2var[of][of.layout.get_local([row, k])]
        return self.declare_var("held", float32, cast(held, float32))


def lane_dot(script: tilus.Script, a: RegisterTensor, b: RegisterTensor, acc: RegisterTensor, neighbours: int) -> None:
    """acc[t] += a @ b.T over the k of thread t; overwrites acc.

    a [m, k], b [n, k] of any dtype that converts to fp32, acc fp32 [threads, m, n]. neighbours: along K, as many as a
    thread loads at once, k a multiple of threads * neighbours; where it is 1, a thread loads along the other dimension.
    """
    threads, m, n = acc.shape
    for tensor in (a, b):
        script._builder.annotate_layout(tensor, _layout_of_lanes(*tensor.shape, threads, neighbours))
    script._builder.annotate_layout(acc, spatial(threads, 1, 1).local(1, m, n))
    script._builder.append(LaneDotInst(output=acc, inputs=(a, b, acc), neighbours=neighbours))


def _layout_of_lanes(rows: int, k: int, threads: int, neighbours: int) -> RegisterLayout:
    pieces = k // (threads * neighbours)
    if neighbours == 1:
        return local(1, pieces).spatial(1, threads).local(rows, 1)
    return local(rows, pieces).spatial(1, threads).local(1, neighbours)
