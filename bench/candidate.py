"""A kernel that somebody brings, as a contender: `--candidate FILE.py:FUNCTION`.

    def FUNCTION(a, b):          # a [M, K] and b [K, N], any strides that a problem's layout makes
        return c                 # [M, N]

A keyword of these names is passed where the signature has it: `out` [M, N] to write to; `epilogue`, its name as a
string, with `bias` [N] or None; without it the epilogue is applied in torch, inside the timed call, and the row says
so. C may come back in memory of the function's own, as its user gets it, in the dtype that the problem asks for.

The file is first imported by the first call, so that what its import does, it does in the worker.
"""

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.protocol import Protocol


@lru_cache(maxsize=64)
def candidate(place: str) -> Kernel:
    """The record of 'FILE.py:FUNCTION', named 'candidate/FILE.py:FUNCTION'.

    Raises ValueError where `place` is not of this form, FileNotFoundError where there is no such file.
    """
    path, _, function = place.rpartition(":")
    if not (path.endswith(".py") and function.isidentifier()):
        raise ValueError(f"candidate is {place!r}; accepted: FILE.py:FUNCTION")
    if not Path(path).is_file():
        raise FileNotFoundError(f"candidate {place}: there is no file {path}")
    caller = _Caller(path, function)
    return Kernel(
        name=place,
        variant="",
        language=Language.CANDIDATE,
        protocol=Protocol.UNKNOWN,
        launch=caller,
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=lambda problem, config: None,
        deterministic=False,  # not claimed
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=caller.note,
    )


class _Caller:
    """The launcher around a candidate's function."""

    def __init__(self, path: str, function: str):
        self.path = path
        self.function = function
        self._loaded: tuple[Callable[..., Tensor], frozenset[str]] | None = None
        self._epilogue_in_torch = False

    def note(self) -> str:
        """What the timed calls did beside the candidate's own function."""
        return "timed with the epilogue in torch" if self._epilogue_in_torch else ""

    def __call__(
        self,
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: Tensor | None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: None = None,
    ) -> Tensor:
        """What the function returns; whether that is C is for the referee to say. Raises whatever the file or the
        function raises."""
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        function, accepted = self._load()
        if out is None:
            out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
        offered: dict[str, Any] = {"out": out, "epilogue": epilogue.value}
        if "epilogue" in accepted:
            offered["bias"] = bias
        c = function(a, b, **{name: value for name, value in offered.items() if name in accepted})
        self._epilogue_in_torch = epilogue is not Epilogue.NONE and "epilogue" not in accepted
        if not self._epilogue_in_torch or type(c) is not Tensor:
            return c
        return epilogue.apply_(c, bias) if c.data_ptr() == out.data_ptr() else epilogue.apply(c, bias)

    def _load(self) -> tuple[Callable[..., Tensor], frozenset[str]]:
        if self._loaded is None:
            function = getattr(_module(self.path), self.function, None)
            if not callable(function):
                raise AttributeError(f"{self.path} has no function {self.function}")
            self._loaded = function, frozenset(inspect.signature(function).parameters)
        return self._loaded


@lru_cache(maxsize=64)
def _module(path: str) -> ModuleType:
    """The file as a module of its own name, its folder importable after everything else."""
    name = f"candidate_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # triton.jit and dataclasses look their module up
    sys.path.append(str(Path(path).resolve().parent))
    if os.environ.get("TRITON_INTERPRET") == "1":
        import triton_vs_tilus.kernels_triton  # noqa: F401 - mends the interpreter, for candidates too
    spec.loader.exec_module(module)
    return module
