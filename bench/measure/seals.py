"""What measures and judges, as it was before any contender's code was imported: what has changed since is told.

A contender shares the process with its judge, and may replace a function of it, or of torch, for everybody, or a
constant, or set how torch computes. The clock and the judge hold their own references; this finds who changed the
others.
"""

import builtins
import collections
import contextlib
import copyreg
import gc
import hmac
import os
import pickle
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from operator import is_not
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# Classes whose functions are held, those of their bases too, and functions of modules, beside those of the project's
# own modules.
CLASSES = (
    *(torch.Tensor, torch.cuda.Event, torch.cuda.Stream, torch.cuda.StreamContext, torch.cuda.CUDAGraph),
    *(torch.cuda.graph, torch.profiler.profile, torch.autograd.profiler.profile),
    *(torch.autograd.profiler_util.EventList, torch.autograd.profiler_util.FunctionEvent),
    *(random.SystemRandom, collections.Counter, cached_property, contextlib._GeneratorContextManager),
)
FUNCTIONS = {
    torch: "equal mm addmm matmul empty empty_like zeros full full_like clone sum stack where maximum relu sigmoid "
    "tensor as_tensor arange isnan rand randn randint bitwise_or finfo iinfo _foreach_copy_ _foreach_zero_ "
    "_foreach_add_",
    torch.nn.functional: "silu pad",
    torch.cuda: "synchronize current_stream stream graph set_device get_device_properties _sleep Event Stream "
    "CUDAGraph",
    torch.profiler: "profile",
    np: "frombuffer array asarray concatenate median percentile",
    np.random: "default_rng",
    time: "perf_counter monotonic",
    sys: "_current_frames",
    gc: "collect enable disable isenabled freeze",
    threading: "enumerate",
    os: "listdir waitid getpid",
    random: "_urandom",
    builtins: " ".join(name for name, value in vars(builtins).items() if callable(value)),
    pickle: "dumps",
    hmac: "digest",
    secrets: "token_bytes randbits randbelow SystemRandom",
    driver: "cuStreamGetCaptureInfo cuGraphGetNodes cuGraphNodeGetType cuGraphKernelNodeGetParams "
    "cuGraphChildGraphNodeGetGraph cuCtxGetLimit cuCtxSetLimit cuCtxResetPersistingL2Cache",
}
OWN = (
    *("triton_vs_tilus.bench.measure.", "triton_vs_tilus.bench.search.", "triton_vs_tilus.common."),
    *("triton_vs_tilus.bench.candidate", "triton_vs_tilus.bench.contenders", "triton_vs_tilus.bench.ops"),
    "triton_vs_tilus.bench.references.torch_",
)
# Of these the names in the modules alone: a compiler may add to the classes of its kernels.
KERNELS = "triton_vs_tilus.kernels_", "triton_vs_tilus.bench.references"
# What the gate's judge and the clock compute by, as torch's dispatcher names it; aten's.
OPERATORS = (
    "_foreach_add_.Scalar _foreach_copy_ _foreach_zero_ _local_scalar_dense _to_copy abs add.Tensor as_strided clone "
    "copy_ count_nonzero detach div.Tensor empty.memory_format empty_like equal fill_.Scalar index.Tensor max mean mm "
    "mm.out mul.Tensor ne.Scalar permute pow.Tensor_Scalar randint.generator randn.generator slice.Tensor sqrt "
    "sub.Tensor sum view view.dtype"
)
CONSTANTS = (bool, int, float, str, tuple, frozenset, torch.dtype)

# How torch multiplies and pickle writes, which a contender may set for whoever comes after it, the judge among them.
SETTINGS: dict[str, Callable[[], Any]] = {
    "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision,
    **{
        f"torch.backends.cuda.matmul.allow_{name}": partial(getattr, torch.backends.cuda.matmul, f"allow_{name}")
        for name in (
            "tf32",
            "fp16_accumulation",
            "fp16_reduced_precision_reduction",
            "bf16_reduced_precision_reduction",
        )
    },
    "torch.is_autocast_enabled": torch.is_autocast_enabled,
    "torch.get_default_dtype": torch.get_default_dtype,
    "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "torch.backends.cuda.preferred_blas_library": torch.backends.cuda.preferred_blas_library,
    # Python runs it in whatever is called next, once anybody has sent the signal.
    "a handler of signals": lambda: [_get_handler(number) for number in _signals],
    "how pickle writes a result": lambda: [kind for kind in copyreg.dispatch_table if kind.__module__.startswith(OWN)],
    "a mode of torch's functions": lambda: [id(mode) for mode in _get_current_function_mode_stack()],
    "a mode of torch's dispatcher": lambda: [id(mode) for mode in _get_current_dispatch_mode_stack()],
}


_loaded = sys.modules
_get_hooks = sys.getprofile, sys.gettrace
_monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
_get_monitors = (
    [partial(get, tool) for tool in range(6) for get in (_monitoring.get_tool, _monitoring.get_events)]
    if _monitoring
    else []
)
_get_timers = [
    partial(signal.getitimer, timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
]
_signals: list[int] = sorted(signal.valid_signals())
_get_handler: Callable[[int], Any] = signal.getsignal
_get_kernels = torch._C._dispatch_dump_table
_count_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_get_keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set

# What runs by itself later where it is left on, in words, and how it stands.
LATER: dict[str, Callable[[], tuple[Any, ...]]] = {
    "Python's trace or profile hook": lambda: tuple(get() for get in _get_hooks),
    "a hook of Python's monitoring": lambda: tuple(get() for get in _get_monitors),
    "a timer": lambda: tuple(get() != (0.0, 0.0) for get in _get_timers),  # whose signal Python may handle
    "a mode of torch": lambda: tuple(count() for count in _count_modes),
    "another dispatch of torch's operators": lambda: tuple(get().raw_repr() for get in _get_keys),
}


def hooked() -> str | None:
    """What a call has left on that runs by itself later, in words; asked right after a call, while it cannot yet have
    undone it."""
    later = seal().later
    return next((f"leaves {what} on" for what, get in LATER.items() if get() != later[what]), None)


class Seals:
    """Holds what is loaded as it is made; make it before a contender's file is imported."""

    def __init__(self) -> None:
        self._held: list[tuple[str, Any, list[str], list[Any]]] = []
        self._names: list[tuple[str, Any, frozenset[str], frozenset[str] | None]] = []
        self._codes: list[tuple[FunctionType, CodeType]] = []
        self._modules: dict[str, ModuleType] = {}  # of the project, as Python looks them up
        self._records: dict[int, Any] = {}  # and modules and classes: what is held, by identity
        self._hold_loaded()
        self.later = {what: get() for what, get in LATER.items()}
        self._settings = _settings()
        self._operators = _operators()

    def hold(self, records: Mapping[str, Any]) -> None:
        """Contenders' records, too, by name, as they are now, and what of the project was imported since; call it
        before the contenders' code is imported. By a record's functions and constants all are called, and the bounds
        of its errors are."""
        self._hold_loaded()
        for name, record in records.items():
            self._hold(name, record, list(vars(record)))

    def _hold_loaded(self) -> None:
        for name, owner, keys in _owned():
            if self._hold(name, owner, keys):
                self._names.append((name, owner, frozenset(vars(owner)), _shadowed(owner)))
                if isinstance(owner, ModuleType) and _imported_as(name, owner).startswith((*OWN, *KERNELS)):
                    self._modules[name] = owner

    def _hold(self, name: str, owner: Any, keys: list[str]) -> bool:
        """Whether it was not held yet."""
        if id(owner) in self._records:
            return False
        self._records[id(owner)] = owner
        self._held.append(_held(name, owner, keys))
        self._codes += _codes(self._held[-1][-1])
        return True

    def broken(self) -> str | None:
        """What was replaced since, in words; None where nothing was."""
        changed = []
        for name, owner, keys, values in self._held:
            now = vars(owner)
            if any(map(is_not, map(now.get, keys), values)):
                changed += [
                    f"{name}.{key}" for key, value in zip(keys, values, strict=True) if now.get(key) is not value
                ]
        for name, owner, names, shadowed in self._names:
            if names.issuperset(vars(owner)):  # as nearly always, and sooner known than the difference
                continue
            added = vars(owner).keys() - names
            if shadowed is not None:
                added &= shadowed
            changed += [f"{name}.{key}" for key in added if _is_held(vars(owner)[key])]
        changed += [f"sys.modules.{name}" for name, module in self._modules.items() if _loaded.get(name) is not module]
        changed += [function.__qualname__ for function, code in self._codes if function.__code__ is not code]
        changed += [name for name, value in _settings().items() if value != self._settings[name]]
        if not changed:  # a mode that was changed above is a mode, too, and changes torch's dispatch
            changed += [what for what, get in LATER.items() if get() != self.later[what]]
        return f"replaces what it is measured by: {', '.join(changed[:3])}" if changed else None

    def overridden(self) -> str | None:
        """Which operators of torch compute by other kernels since, in words, as those of `torch.library`; None where
        none does. It takes half a millisecond, so it is asked at the gate alone."""
        now = _operators()
        changed = [f"aten::{name}" for name, kernels in self._operators.items() if now[name] != kernels]
        return f"replaces what it is measured by: {', '.join(changed[:3])}" if changed else None


def _owned() -> Iterator[tuple[str, Any, list[str]]]:
    """Modules and classes by name, with the names in them that are held where they are functions, classes or
    constants."""
    for owner in dict.fromkeys(base for kind in CLASSES for base in kind.__mro__ if base is not object):
        yield f"{owner.__module__}.{owner.__qualname__}", owner, list(vars(owner))
    for module, names in FUNCTIONS.items():
        yield module.__name__, module, names.split()
    for name, module in list(sys.modules.items()):
        if module is None:
            continue
        imported_as = _imported_as(name, module)
        if imported_as.startswith(KERNELS):
            yield name, module, [key for key in vars(module) if not key.startswith("__")]
        if imported_as.startswith(OWN):
            # torch.compile keeps what it compiled in the module of the function, as __compiled_fn_...
            yield name, module, [key for key in vars(module) if not key.startswith("__")]
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield f"{name}.{value.__qualname__}", value, list(vars(value))


def _imported_as(name: str, module: ModuleType) -> str:
    """Its name, and that of the module which Python runs as __main__: in a worker, of the project."""
    spec = getattr(module, "__spec__", None)
    return spec.name if name == "__main__" and spec is not None else name


def _shadowed(owner: Any) -> frozenset[str] | None:
    """The names that nobody may add to a module or a class, as another is found by them now; None for whatever name.
    torch.compile adds what it compiled to our modules, and torch methods to its own classes."""
    if isinstance(owner, ModuleType):
        of_the_project = _imported_as(owner.__name__, owner).startswith((*OWN, *KERNELS))
        return frozenset(vars(builtins)) if of_the_project else frozenset()
    if owner.__module__.startswith(OWN):
        return None
    return frozenset(name for base in owner.__mro__[1:] for name in vars(base))


def _is_held(value: Any) -> bool:
    return callable(value) or isinstance(value, (property, staticmethod, classmethod, cached_property, *CONSTANTS))


def _held(name: str, owner: Any, keys: list[str]) -> tuple[str, Any, list[str], list[Any]]:
    held = {key: vars(owner)[key] for key in keys if _is_held(vars(owner).get(key))}
    return name, owner, list(held), list(held.values())


def _settings() -> dict[str, Any]:
    def value(setting: Callable[[], Any]) -> Any:
        try:
            return setting()
        except RuntimeError as error:  # torch refuses what was set by both of its ways
            return str(error)

    return {name: value(setting) for name, setting in SETTINGS.items()}


def _operators() -> dict[str, str]:
    """The kernel of each dispatch key, by operator."""
    return {name: _get_kernels(f"aten::{name}") for name in OPERATORS.split()}


def _codes(values: Sequence[Any]) -> list[tuple[FunctionType, CodeType]]:
    return [(function, function.__code__) for value in values for function in _functions(value)]


def _functions(value: Any) -> list[FunctionType]:
    """Whose code runs where a held value is called or read."""
    parts = [value, getattr(value, "__func__", None), getattr(value, "__wrapped__", None), getattr(value, "func", None)]
    parts += [getattr(value, name, None) for name in ("fget", "fset", "fdel")] if isinstance(value, property) else []
    return [part for part in parts if isinstance(part, FunctionType)]


@lru_cache(maxsize=1)
def seal() -> Seals:
    """This process' seals, made by the first call."""
    return Seals()
