"""Atomic adds of a whole tile, which tilus 0.2.0 does not have: its atomics are of one thread and one number.

An instruction adds them here, in the form of tilus' store: whatever a thread holds of the tile it adds, two or four
neighbours at once where Hopper's `red.global.add.v2.f32` and `.v4` can.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import tilus
from tilus.backends.emitter import register_emitter
from tilus.backends.emitters.ldst import LoadStoreInstBaseEmitter
from tilus.hidet.ir.dtypes import float32
from tilus.hidet.ir.expr import Expr, Var, as_expr, index_vars
from tilus.hidet.ir.primitives.cuda.atomic import reduce_add
from tilus.hidet.ir.tools import rewrite
from tilus.ir.inst import Instruction, InstructionError
from tilus.ir.instructions import StoreGlobalGenericInst
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.rule import register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.tensor import GlobalTensor, RegisterTensor
from tilus.target import get_current_target, nvgpu_sm90
from tilus.transforms.lower_load_store import LowerLoadStoreRewriter


@dataclass(frozen=True, eq=False)
class AtomicAddGlobalInst(Instruction):
    """ptr[offset] += x where mask holds, offset and mask in terms of the tile's `axes`. The fields are those of tilus'
    StoreGlobalGenericInst; a subclass it cannot be, as tilus takes the emitter of the base class first."""

    ptr: Var
    axes: tuple[Var, ...]
    offset: Expr
    mask: Expr


# Any layout will do: the tile has that of the instruction that made it.
register_rule(AtomicAddGlobalInst)(EmptyRule)
register_rule(AtomicAddGlobalInst)(AlwaysOkayRule)


@register_emitter(AtomicAddGlobalInst)
class AtomicAddGlobalEmitter(LoadStoreInstBaseEmitter):
    def emit(self, inst: AtomicAddGlobalInst) -> None:
        tile = inst.register_input
        if tile.layout.local_size * self.current_num_threads != prod(tile.shape):
            raise ValueError(f"atomic_add of a tile that several threads hold alike, and would each add: {tile.layout}")
        held = self.get_or_allocate_var(tile)
        width = self._width(inst)
        with self.for_range(tile.local_size // width, attr="u") as vector:
            first = vector * width
            indices = tile.layout.get_global(local_index=first, spatial_index=self.current_thread)
            at = {axis: as_expr(index) for axis, index in zip(inst.axes, indices, strict=True)}
            with self.if_then(rewrite(inst.mask, at)):
                address = ~inst.ptr[rewrite(inst.offset, at)]
                self.append(reduce_add(float32, address, [held[first + i] for i in range(width)]))

    def _width(self, inst: AtomicAddGlobalInst) -> int:
        """Elements of one instruction: neighbours in memory that are neighbours in a thread."""
        as_store = StoreGlobalGenericInst(None, inst.inputs, inst.ptr, inst.axes, inst.offset, inst.mask)
        vectorization = self.analyze_vectorization(as_store)
        if vectorization is None or not get_current_target().supports(nvgpu_sm90):
            return 1
        _dimension, nbytes = vectorization
        return next(width for width in (4, 2, 1) if nbytes // float32.nbytes % width == 0)


def atomic_add(script: tilus.Script, dst: GlobalTensor, x: RegisterTensor, offsets: Sequence[Expr | int]) -> None:
    """dst[offsets:] += x, both fp32 and of as many dimensions; what is outside of dst is left out.

    Relaxed, at the scope of the GPU: something else has to order the adds before whoever reads the sums.
    """
    if dst.dtype != float32 or x.dtype != float32:
        raise InstructionError(f"atomic_add of {x.dtype.name} to {dst.dtype.name}; accepted: float32 to float32")
    axes = tuple(index_vars(len(x.shape)))
    f_offset, f_mask = LowerLoadStoreRewriter.get_funcs(
        tuple(as_expr(offset) for offset in offsets), tuple(range(len(axes))), dst.layout
    )
    ptr = script._builder.tensor_ptr(dst)
    offset, mask = as_expr(f_offset(axes)), as_expr(f_mask(axes))
    script._builder.append(AtomicAddGlobalInst(None, (x,), ptr, axes, offset, mask))


def clear(script: tilus.Script, sums: GlobalTensor, total: RegisterTensor, offsets: Sequence[Expr | int]) -> None:
    """Zeroes the fp32 sums that `total`, of the script's wide_layout, was loaded from: in the same registers, so that
    every element is zeroed by the threads that have loaded it."""
    if script.wide_layout.local_size * 32 * script.num_warps > prod(total.shape):
        script.sync()  # several warps load an element: none zeroes it before all have
    script.assign(total, script.register_tensor(dtype=float32, shape=total.shape, init=0.0))
    script.store_global(sums, total, offsets=offsets)
