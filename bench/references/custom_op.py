"""Custom-op autotuning: Inductor times decompositions of an operator while it compiles, and inlines the best.

    aten.mm is intercepted        every torch.mm of the graph; the epilogue stays outside, for Inductor to fuse
    fused, an operator of ours    the product and its epilogue; every decomposition ends with the epilogue

    candidates: the plain product, and decompose-K (bench.references.decompose_k) at each of its splits

mm, fused                     for this problem's shape alone
mm_dynamic, fused_dynamic     for every M: timed at the end of each of the ranges [1, 1], [2, 8], [9, 32], [33, 128],
                              [129, 512], [513, ...]; one graph, which branches on M when called. Problems that
                              differ in M alone and are timed one after the other share it, and its winners

A row names the winner, by range where there are several. C is returned in newly allocated memory, as in torch_compile.
Programs are compiled in mode max-autotune-no-cudagraphs, without Inductor's cache of graphs: the cache does not
distinguish a graph with an intercepted operator from one without. Features of `register_custom_op_autotuning` are used
as the installed torch has them: from 2.12 on it accepts operators of torch itself, and times candidates in CUDA graphs.
Source: the decompose-K study of shreyansh26 (github.com/shreyansh26/MLSys-Experiments,
decompose-k/custom_op_autotune_relu_dispatch.py).
"""

import inspect
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench.references import decompose_k
from triton_vs_tilus.bench.references.compiling import NO_CUDAGRAPHS, Compiled, told_of_searches
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol

SPLIT_POINTS = [1, 8, 32, 128, 512]  # of M: the study's
LARGEST = 1024  # the M at which the last, open range is timed
UNCACHED = {"fx_graph_cache": False}


def _parameters() -> Mapping[str, inspect.Parameter]:
    """The parameters of the installed torch's `register_custom_op_autotuning`."""
    from torch._inductor.kernel.custom_op import register_custom_op_autotuning

    return inspect.signature(register_custom_op_autotuning).parameters


@lru_cache(maxsize=len(Epilogue))
def _fused_operator(epilogue: Epilogue) -> Any:
    """The operator (a [M, K], b [K, N]) -> C [M, N] in a's dtype."""

    @torch.library.custom_op(f"triton_vs_tilus::mm_{epilogue.value}", mutates_args=())
    def operator(a: Tensor, b: Tensor) -> Tensor:
        return epilogue.apply(torch.mm(a, b))

    @operator.register_fake
    def _(a: Tensor, b: Tensor) -> Tensor:
        return a.new_empty(a.shape[0], b.shape[1])

    return operator


class Autotuned:
    """One contender: an operator, with or without ranges of M, and the decompositions that won."""

    def __init__(self, fused: bool, dynamic: bool):
        self.fused, self.dynamic = fused, dynamic
        self.winners: dict[str, str] = {}  # by range; '' for the one shape
        self._compiled: dict[tuple[Epilogue, bool], Compiled] = {}
        self._last: Compiled | None = None  # the one called last

    def matmul(
        self,
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: None = None,
    ) -> Tensor:
        """C [M, N] = epilogue(a [M, K] @ b [K, N]), newly allocated. Accepts and raises what
        common.checks.matmul_problem does."""
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        key = epilogue, a.is_cuda
        if key not in self._compiled:
            self._compiled[key] = self._made(*key)
        self._last = self._compiled[key]
        return self._last(problem, a, b)

    def _made(self, epilogue: Epilogue, on_gpu: bool) -> Compiled:
        operator = _fused_operator(epilogue)

        def fused(a: Tensor, b: Tensor) -> Tensor:
            return operator(a, b)

        def intercepted(a: Tensor, b: Tensor) -> Tensor:
            return epilogue.apply(torch.mm(a, b))

        function = fused if self.fused else intercepted
        registered = partial(self._registered, epilogue, on_gpu)
        if self.dynamic:
            return Compiled(function, NO_CUDAGRAPHS, UNCACHED, registered, dynamic=None, first=_with_any_m)
        return Compiled(function, NO_CUDAGRAPHS, UNCACHED, registered)

    @contextmanager
    def _registered(self, epilogue: Epilogue, on_gpu: bool) -> Iterator[None]:
        """A context in which Inductor times the candidates and their winners are noted."""
        from torch._inductor import lowering
        from torch._inductor.kernel.custom_op import register_custom_op_autotuning

        operator = _fused_operator(epilogue) if self.fused else torch.ops.aten.mm.default
        name = f"mm_{epilogue.value}"
        tensor = "a" if self.fused else "self"
        options: dict[str, Any] = {}
        if "benchmark_with_cudagraphs" in _parameters():
            options["benchmark_with_cudagraphs"] = on_gpu
        if self.dynamic:
            options["dispatch_on"] = {"tensor_name": tensor, "dim": 0, "range_upper_bound": LARGEST}
            options["split_points"] = SPLIT_POINTS
        register_custom_op_autotuning(
            operator, config_generator=partial(_candidates, epilogue, self.fused), name=name, **options
        )
        self.winners = {}
        try:
            with told_of_searches(partial(self._saw, name)):
                yield
        finally:
            if not self.fused:
                lowering.user_lowerings.pop(operator)

    def _saw(self, operator: str, times: dict[Any, float], name: str, *_: Any) -> None:
        """Notes the winner after Inductor timed the candidates of the operator or of one of its ranges. Under another
        name it timed templates for a plain product that had won; these are ignored."""
        if not name.startswith(operator):
            return
        _operator, is_range, ends = name.partition("_range_")
        best = min(times, key=times.__getitem__)
        decomposition = getattr(best, "decomposition", None)
        split = getattr(best, "decomposition_kwargs", {}).get("split_k")
        won = f"split {split}" if split else "no split" if decomposition else "no split, not inlined"
        self.winners[f"M {ends.replace('_', '-')}: " if is_range else ""] = won

    def note(self) -> str:
        winners = "; ".join(f"{place}{winner}" for place, winner in self.winners.items())
        return f"won by {winners}" + (f"; {self._last.note()}" if self._last else "")

    def supports(self, problem: Matmul, config: None = None) -> str | None:
        if problem.epilogue.has_bias:
            return f"its operator has no vector for the epilogue {problem.epilogue.value}"
        if problem.out_dtype is not problem.dtype:
            return "its operator's output has the dtype of the inputs"
        found = f"register_custom_op_autotuning of torch {torch.__version__}"
        if not self.fused and torch._ops.OpOverload not in typing.get_args(_parameters()["custom_op"].annotation):
            return f"{found} takes no operator of torch itself"
        if self.dynamic and not {"dispatch_on", "split_points"} <= _parameters().keys():
            return f"{found} knows no ranges of a size"
        if self.dynamic and problem.m == 1:
            return "torch takes a size of 1 for a constant: no one graph serves M = 1 and others"
        return decompose_k.supports(problem)


def _with_any_m(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The operands with M marked as dynamic, on an alias: other contenders get the same tensor, and a mark stays."""
    alias = a.detach()
    torch._dynamo.maybe_mark_dynamic(alias, 0)
    return alias, b


def _candidates(epilogue: Epilogue, fused: bool, operands: dict[str, Tensor]) -> list[Any]:
    """The decompositions that Inductor times for operands of these shapes; with the epilogue where it is fused."""
    from torch._inductor.kernel.custom_op import CustomOpConfig

    own = epilogue if fused else Epilogue.NONE

    def plain(a: Tensor, b: Tensor) -> Tensor:
        return own.apply(torch.mm(a, b))

    def split(a: Tensor, b: Tensor, split_k: int) -> Tensor:
        return decompose_k.product(a, b, epilogue=own, out_dtype=a.dtype, split_k=split_k)

    k = next(iter(operands.values())).shape[1]
    return [CustomOpConfig(plain), *(CustomOpConfig(split, split_k=s) for s in decompose_k.splits_of(k))]


def _kernel(variant: str, fused: bool, dynamic: bool) -> Kernel:
    autotuned = Autotuned(fused, dynamic)
    return Kernel(
        name="custom_op",
        variant=variant,
        language=Language.TORCH,
        protocol=Protocol.LIBRARY,
        launch=autotuned.matmul,
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=autotuned.supports,
        deterministic=False,  # not claimed
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=autotuned.note,
        on_request=True,
    )


KERNELS = (
    _kernel("mm", fused=False, dynamic=False),
    _kernel("fused", fused=True, dynamic=False),
    _kernel("mm_dynamic", fused=False, dynamic=True),
    _kernel("fused_dynamic", fused=True, dynamic=True),
)
