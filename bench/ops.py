"""The operations that are compared, and what each is compared with: torch's own answer.

What only reads rows needs no torch, which takes seconds to import: an operation's problem is imported when asked for.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton_vs_tilus.common.problem import Problem


@dataclass(frozen=True)
class Op:
    """baseline  the contender that the others are held against
    defined_in   the module and the class of its problem, in common
    fields       of that class, beside m, n, k and dtype
    """

    baseline: str
    defined_in: tuple[str, str]
    fields: frozenset[str] = frozenset()

    @property
    def problem(self) -> "type[Problem]":
        module, name = self.defined_in
        return getattr(import_module(f"triton_vs_tilus.common.{module}"), name)


MATMUL, W4A16 = "matmul", "w4a16"
OPS = {
    MATMUL: Op("torch/mm", ("problem", "Matmul"), frozenset(("out_dtype", "layout", "epilogue"))),
    "or_reduce": Op("torch/bitwise_or", ("or_reduce", "OrReduce"), frozenset(("constant",))),
    "chain": Op("torch/chain", ("chain", "Chain"), frozenset(("scoring", "top_k"))),
    W4A16: Op("torch/dequantized_mm", ("w4a16", "W4A16Matmul"), frozenset(("group_size", "symmetric"))),
}
BASELINES = frozenset(op.baseline for op in OPS.values())
