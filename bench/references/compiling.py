"""How torch.compile's references are compiled: for one problem, or for every M, each by a function of its own.

Dynamo keeps `torch._dynamo.config.recompile_limit` (8) graphs of a function. From the next shape on it runs the
function uncompiled, and a benchmark over many shapes then times eager torch under the name of a compiled one. Hence a
copy of the function for each program, and fullgraph=True, which makes that fallback an error. The first call compiles,
and is not timed.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from triton_vs_tilus.common.problem import Matmul

AS_GRAPH = "max-autotune"  # the mode of torch.compile that replays a CUDA graph
NO_CUDAGRAPHS = "max-autotune-no-cudagraphs"

# The calls in a generated program: of a library, of a generated kernel (on a CPU: C++), of an operator not lowered.
_CALLS = re.compile(
    r"extern_kernels\.(\w+)\(|(triton_\w+)\.run\(|^ +(cpp_\w+)\(|torch\.ops\.(\w+\.\w+)\.\w+\(", re.MULTILINE
)
_DECOMPOSED = re.compile(r"def decompose_k_mm_(\d+)_split")


@lru_cache(maxsize=1)
def _compiled_for(but_for_m: Matmul) -> dict[tuple[Any, ...], Callable[..., Tensor]]:
    """The functions compiled for problems that differ from this one in M alone. For the first of others it is empty
    again, and Dynamo reset."""
    torch._dynamo.reset()
    # A timer ends idle compilers: a thread that starts at any time, as if the contender of that time had left it.
    torch._inductor.config.quiesce_async_compile_pool = False
    return {}


def _copy_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same function with a code object of its own, by which Dynamo keeps and counts graphs."""
    of = function
    copy = FunctionType(of.__code__.replace(), of.__globals__, of.__name__, of.__defaults__, of.__closure__)
    copy.__kwdefaults__ = of.__kwdefaults__
    return copy


class Compiled:
    """function(*tensors, **constants), compiled for each problem that it is called for, or once for every M.

    mode     of torch.compile
    options  of Inductor, on top of the mode's
    around   the context that it is compiled in
    dynamic  False to compile for each problem's sizes alone; None to compile once, at the first M that comes, for every
             size that `first` marks
    first    turns the first call's tensors into those that it is compiled with
    marked   tells the compiler what it has to know of the tensors of every call
    """

    def __init__(
        self,
        function: Callable[..., Tensor],
        mode: str,
        options: dict[str, Any] | None = None,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        dynamic: bool | None = False,
        first: Callable[..., tuple[Tensor | None, ...]] = lambda *tensors: tensors,
        marked: Callable[..., None] | None = None,
    ):
        self.function, self.mode, self.options = function, mode, options or {}
        self.around, self.dynamic, self.first, self.marked = around, dynamic, first, marked
        self.program = ""  # the calls of the program generated last; see in_words
        self.searches: list[str] = []  # what Inductor's own clock said of the candidates for it; see _searches

    def __call__(self, problem: Matmul, *tensors: Tensor | None, **constants: Any) -> Tensor:
        """The function's result. The first call for a problem and these constants compiles, and raises what
        torch.compile raises. RuntimeError where nothing was compiled, and where a CUDA graph of its own would be
        captured in another; RecompileError where one program is not enough for another M."""
        on_gpu = tensors[0] is not None and tensors[0].is_cuda
        if self.mode == AS_GRAPH and on_gpu and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("it replays a CUDA graph of its own")
        compiled_for, constant = _compiled_for(replace(problem, m=1)), tuple(constants.values())
        key, program = (self, problem, *constant), (self, problem if self.dynamic is False else None, *constant)
        if self.marked is not None:
            self.marked(*tensors)
        if key in compiled_for:
            return compiled_for[key](*tensors, **constants)
        if program in compiled_for:
            with torch._dynamo.config.patch(error_on_recompile=True):
                result = compiled_for[program](*tensors, **constants)
            compiled_for[key] = compiled_for[program]
            return result
        options = {**torch._inductor.list_mode_options(self.mode), **self.options}
        compiled = torch.compile(_copy_of(self.function), fullgraph=True, dynamic=self.dynamic, options=options)
        with self.around(), _generated() as code, _searches() as searches:
            result = compiled(*self.first(*tensors), **constants)
        if not code:
            raise RuntimeError(f"nothing was compiled for {problem.name}")
        self.program, self.searches = in_words(code[-1]), searches
        compiled_for[key] = compiled_for[program] = compiled
        return result

    def note(self, copied: str = "A and B") -> str:
        """What a reader of rows has to know: what was generated last, what Inductor's search measured of it and of its
        rivals, and what a CUDA graph of its own has copied."""
        as_graph = self.mode == AS_GRAPH and torch.cuda.is_available()
        copies = f"; each call copies {copied} into its CUDA graph's memory" if as_graph else ""
        return "; ".join([f"compiled to {self.program}", *self.searches]) + copies


@contextmanager
def _generated() -> Iterator[list[str]]:
    """Collects the programs that Inductor generates or takes from its cache: first those of choices that it times, last
    the one that is run."""
    from torch._inductor.graph import GraphLowering

    code: list[str] = []
    with patch.object(GraphLowering, "save_output_code", code.append):
        yield code


@contextmanager
def _searches() -> Iterator[list[str]]:
    """Collects what Inductor's searches measured, each by its own clock: 'Inductor timed triton_mm_9 at 20.5 us, mm at
    31.0 us, of 19 for mm'. Beside the fastest candidate it names the fastest of the other kind, a library's or
    generated: the time of either is in the rows, too, by this project's clock."""
    from torch._inductor.select_algorithm import ExternKernelCaller

    found: list[str] = []

    def save(timings: dict[Any, float], operator: str, *_: Any) -> None:
        fastest: dict[bool, Any] = {}
        for choice in sorted(timings, key=timings.__getitem__):
            fastest.setdefault(isinstance(choice, ExternKernelCaller), choice)
        if fastest:
            times = ", ".join(f"{choice.name} at {1e3 * timings[choice]:.1f} us" for choice in fastest.values())
            found.append(f"Inductor timed {times}, of {len(timings)} for {operator}")

    with told_of_searches(save):
        yield found


@contextmanager
def told_of_searches(save: Callable[..., None]) -> Iterator[None]:
    """A context in which save is called with what each search of Inductor timed: the milliseconds by candidate, the
    operator's name, and more."""
    from torch._inductor.select_algorithm import add_feedback_saver, get_algorithm_selector_cache

    add_feedback_saver(save)
    try:
        yield
    finally:
        get_algorithm_selector_cache().feedback_saver_fns.remove(save)  # and not another's, around this


def in_words(program: str) -> str:
    """The calls of a generated program in the order of its text, after the split where Inductor chose decompose-K:
    'decompose-K, split 64: bmm_dtype, triton_per_fused_mm_0, triton_poi_fused_relu_1'."""
    calls = [next(filter(None, groups)) for groups in _CALLS.findall(program)]
    splits = [f"decompose-K, split {split}: " for split in dict.fromkeys(_DECOMPOSED.findall(program))]
    return "".join(splits) + ", ".join(calls)
