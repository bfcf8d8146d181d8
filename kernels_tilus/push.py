"""Stores of a tile to the shared memory of the blocks of a cluster, which tilus 0.2.0 does not have: its instructions
store to a block's own alone.

An instruction adds them here, by PTX' `st.async`: a thread stores what it holds of the tile, up to 16 bytes at once,
wherever that belongs, and the bytes count themselves in at a barrier of the block that gets them. Who waits there sees
them: no fence, which would wait for all stores of a block, and no barrier of the cluster lies between.

Source: PTX ISA, `st.async`; CUDA C++ Programming Guide, "Distributed Shared Memory"; the partial sums of vLLM's split-K
kernel for few rows, which are pushed, too.
"""

from dataclasses import dataclass
from typing import no_type_check

import tilus
from tilus.backends.emitter import register_emitter
from tilus.backends.emitters.ldst import LoadStoreInstBaseEmitter
from tilus.hidet.ir.dtypes import boolean, float32, uint32
from tilus.hidet.ir.expr import Expr, as_expr, index_vars
from tilus.hidet.ir.primitives.cuda.funcs import call_cuda
from tilus.hidet.ir.primitives.cuda.mapa import mapa_shared
from tilus.hidet.ir.primitives.func import register_primitive_function
from tilus.hidet.ir.stmt import asm
from tilus.hidet.lang import attrs, script
from tilus.ir.inst import Instruction, InstructionError
from tilus.ir.instructions import StoreGlobalGenericInst
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.rule import register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.tensor import RegisterTensor, SharedTensor
from tilus.target import nvgpu_sm90

STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes"


@no_type_check
def _register() -> None:
    @script
    def push_1(address: uint32, barrier: uint32, x: float32):
        attrs.func_name = "cuda_push_1"
        attrs.func_kind = "cuda_internal"
        asm(template=STORE + ".f32 [%0], %2, [%1];", inputs=[address, barrier, x], is_volatile=True, memory_fence=True)

    @script
    def push_2(address: uint32, barrier: uint32, x: float32, y: float32):
        attrs.func_name = "cuda_push_2"
        attrs.func_kind = "cuda_internal"
        asm(
            template=STORE + ".v2.f32 [%0], {%2, %3}, [%1];",
            inputs=[address, barrier, x, y],
            is_volatile=True,
            memory_fence=True,
        )

    @script
    def push_4(address: uint32, barrier: uint32, x: float32, y: float32, z: float32, w: float32):
        attrs.func_name = "cuda_push_4"
        attrs.func_kind = "cuda_internal"
        asm(
            template=STORE + ".v4.f32 [%0], {%2, %3, %4, %5}, [%1];",
            inputs=[address, barrier, x, y, z, w],
            is_volatile=True,
            memory_fence=True,
        )

    for function in (push_1, push_2, push_4):
        register_primitive_function(name=function.name, func_or_type=function)


_register()


@dataclass(frozen=True, eq=False)
class PushRowsInst(Instruction):
    """Rows r * rows to (r + 1) * rows of x to the block of rank r; inputs: x, and the place [rows, columns] for them,
    the same in every block. mbarrier: the barrier that counts their bytes, likewise."""

    mbarrier: Expr


# Any layout of x will do, it has that of the instruction that made it; that of the place is annotated.
register_rule(PushRowsInst)(EmptyRule)
register_rule(PushRowsInst)(AlwaysOkayRule)


@register_emitter(PushRowsInst, target=nvgpu_sm90)
class PushRowsEmitter(LoadStoreInstBaseEmitter):
    def emit(self, inst: PushRowsInst) -> None:
        tile, target = inst.inputs
        if tile.layout.local_size * self.current_num_threads != tile.shape[0] * tile.shape[1]:
            raise ValueError(f"push_rows of a tile that several threads hold alike, and would each push: {tile.layout}")
        held, own, rows = self.get_or_allocate_var(tile), self.shared_tensor_shared_space_addr[target], target.shape[0]
        width = self._width(tile, target)
        for first in range(0, tile.layout.local_size, width):
            row, column = tile.layout.get_global(local_index=first, spatial_index=self.current_thread)
            rank = self.declare_var("rank", uint32, row // rows)
            place = target.layout(row % rows, column) * float32.nbytes
            address, barrier = mapa_shared(own + place, rank), mapa_shared(inst.mbarrier, rank)
            values = [held[first + i] for i in range(width)]
            self.append(call_cuda(f"push_{width}", args=[address, barrier, *values]))

    def _width(self, tile: RegisterTensor, target: SharedTensor) -> int:
        """Elements of one store: neighbours at their place that are neighbours in a thread."""
        axes = tuple(index_vars(2))
        offset = as_expr(target.layout(axes[0] % target.shape[0], axes[1]))
        as_store = StoreGlobalGenericInst(None, (tile,), self.tensor2var[tile], axes, offset, boolean.true)
        vectorization = self.analyze_vectorization(as_store)
        elements = 1 if vectorization is None else vectorization[1] // float32.nbytes
        return next(width for width in (4, 2, 1) if elements % width == 0)


def push_rows(script: tilus.Script, x: RegisterTensor, place: SharedTensor, barrier: RegisterTensor) -> None:
    """Rows r * rows to (r + 1) * rows of x to the block of rank r of the cluster.

    x fp32 [ranks * rows, columns]; place fp32 [rows, columns] and barrier, an mbarrier: this block's own, the same in
    every block's shared memory. Every block must have started. Rows can be read by whoever has waited, with a scope of
    the cluster, for a phase of the barrier that expects their bytes.
    """
    if (x.dtype, place.dtype) != (float32, float32) or x.shape[1] != place.shape[1] or x.shape[0] % place.shape[0]:
        raise InstructionError(f"push_rows of {x.dtype.name}{x.shape} to {place.dtype.name}{place.shape}")
    script._builder.append(PushRowsInst(None, (x, place), script._builder.tensor_item_value(barrier)))
