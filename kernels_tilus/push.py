"""Stores of a tile to the shared memory of the blocks of a cluster, which tilus 0.2.0 does not have: its instructions
store to a block's own alone.

An instruction adds them here: a thread stores what it holds of the tile, up to 16 bytes at once, wherever that belongs.

Source: CUDA C++ Programming Guide, "Distributed Shared Memory"; the partial sums of vLLM's split-K kernel for few rows.
"""

from dataclasses import dataclass

import tilus
from tilus.backends.emitter import register_emitter
from tilus.backends.emitters.ldst import LoadStoreInstBaseEmitter
from tilus.hidet.ir.dtypes import boolean, float32, uint32
from tilus.hidet.ir.dtypes.vector import uint32x2, uint32x4
from tilus.hidet.ir.expr import Expr, as_expr, cast, index_vars
from tilus.hidet.ir.primitives.cuda.cvta import cvta_cluster_shared_to_generic
from tilus.hidet.ir.primitives.cuda.mapa import mapa_shared
from tilus.ir.inst import Instruction, InstructionError
from tilus.ir.instructions import StoreGlobalGenericInst
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.rule import register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.tensor import RegisterTensor

_WORDS = {1: uint32, 2: uint32x2, 4: uint32x4}  # of one store


@dataclass(frozen=True, eq=False)
class PushRowsInst(Instruction):
    """Rows r * rows to (r + 1) * rows of x to the block of rank r; `address`: where they begin in the shared memory of
    every block, as this one has it."""

    address: Expr
    rows: int


# Any layout will do: the tile has that of the instruction that made it.
register_rule(PushRowsInst)(EmptyRule)
register_rule(PushRowsInst)(AlwaysOkayRule)


@register_emitter(PushRowsInst)
class PushRowsEmitter(LoadStoreInstBaseEmitter):
    def emit(self, inst: PushRowsInst) -> None:
        tile = inst.register_input
        held, columns = self.get_or_allocate_var(tile), tile.shape[1]
        width = self._width(tile)
        own = self.declare_var("own", uint32, inst.address)
        with self.for_range(tile.local_size // width, attr="u") as vector:
            first = vector * width
            row, column = tile.layout.get_global(local_index=first, spatial_index=self.current_thread)
            place = (row % inst.rows * columns + column) * float32.nbytes
            theirs = cvta_cluster_shared_to_generic(mapa_shared(own + place, row // inst.rows))
            target = self.declare_var("target", ~_WORDS[width], cast(theirs, ~_WORDS[width]))
            source = self.declare_var("source", ~_WORDS[width], cast(~held[first], ~_WORDS[width]))
            self.buffer_store(target, indices=[0], value=source[0])

    def _width(self, tile: RegisterTensor) -> int:
        """Elements of one store: neighbours in a row that are neighbours in a thread."""
        axes = tuple(index_vars(2))
        offset = as_expr(axes[0] * tile.shape[1] + axes[1])
        as_store = StoreGlobalGenericInst(None, (tile,), self.tensor2var[tile], axes, offset, boolean.true)
        vectorization = self.analyze_vectorization(as_store)
        elements = 1 if vectorization is None else vectorization[1] // float32.nbytes
        return next(width for width in (4, 2, 1) if elements % width == 0)


def push_rows(script: tilus.Script, x: RegisterTensor, address: Expr, rows: int) -> None:
    """Rows r * rows to (r + 1) * rows of x, fp32, one row after the other, to the block of rank r of the cluster.

    address: of the place for them in shared memory (`shared::cta`), the same in every block. Every block must have
    started. A barrier of the cluster has to lie between this and whoever reads the rows.
    """
    if x.dtype != float32 or x.shape[0] % rows:
        raise InstructionError(f"push_rows of {x.dtype.name}{x.shape} by {rows} rows; accepted: float32, whole shares")
    script._builder.append(PushRowsInst(None, (x,), address, rows))
