"""How every launcher goes from its arguments to a launch: checked and planned at the first call of a kind, then
launched as planned."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.checks import (
    check_apart,
    check_config,
    check_no_gradient,
    matmul_problem,
)
from triton_vs_tilus.common.devices import on
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.plan import WIDEST, Call, Places, placement_of
from triton_vs_tilus.common.problem import Problem

__all__ = ["Posed", "cached_launch", "chosen_config", "launched"]

# The problem that a launcher's arguments pose, and how its tensors lie.
Posed = tuple[Problem, Places]

MOST_CALLS = 4096  # kept; a server meets as many kinds as it has batch sizes
_calls: dict[tuple[Any, ...], Call] = {}


def chosen_config(kernel: Kernel, problem: Problem, config: Config | None, device: torch.device) -> Config:
    """The config given, or for None that of `tuned.pick` for this device.

    Raises as common.checks.check_config, and ValueError for a problem that the kernel cannot run, or cannot on this
    config.
    """
    if config is not None:
        check_config(kernel, config)
    with on(device):  # which may be of another capability than the current one
        if reason := kernel.supports(problem, config):
            raise ValueError(f"config is {config}; {reason}" if config else reason)
        if config is not None:
            return config
        picked = tuned.pick(kernel, problem, tuned.slug_of(device))[0]
        if reason := kernel.supports(problem, picked):
            raise ValueError(f"no config runs; the rule of thumb's, {picked}: {reason}")
        return picked


def cached_launch(
    kernel: Kernel,
    pose: Callable[[], Posed],
    inputs: Mapping[str, Any],
    out: Tensor | None,
    config: Config | None,
    *asked: Any,
) -> Tensor:
    """The output, computed by this kernel. config: None takes the tuned one of this device.

    pose: called at the first call of a kind alone; raises for bad input. inputs: tensors, or None, named as Call takes
    them. asked: what else tells kinds of calls apart.

    Raises as `pose`, and ValueError for a problem that the kernel cannot run, or cannot on this config. Nothing is
    allocated before. What is checked once for all calls of a kind is what its key holds.
    """
    try:
        key = kernel.full_name, *map(_kind, inputs.values()), _kind(out), config, *asked
        call = _calls.get(key)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):  # of what is no plain tensor, or no config
        key, call = None, None
    if call is None:
        call = _planned(kernel, pose, config, inputs["a"])
        if len(_calls) >= MOST_CALLS:
            _calls.clear()
        if key is not None:
            _calls[key] = call
    else:
        check_no_gradient(**inputs, out=out)
        if out is not None:
            check_apart(out, **inputs)
    return call(out, **inputs)


def launched(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    bias: Tensor | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
    config: Config | None,
) -> Tensor:
    """C. Raises as common.checks.matmul_problem and `cached_launch`."""

    def pose() -> Posed:
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        return problem, placement_of(problem, a, b, bias, out)

    # Its type, too, as an epilogue's name is equal to it.
    return cached_launch(kernel, pose, {"a": a, "b": b, "bias": bias}, out, config, type(epilogue), epilogue, out_dtype)


def _kind(tensor: Tensor | None) -> tuple[Any, ...] | None:
    if tensor is None:
        return None
    address = tensor.data_ptr()
    place = address % WIDEST if address else None  # without memory it is none that was checked
    return tensor.shape, tensor.stride(), place, tensor.dtype, tensor.device, tensor.is_neg()


def _planned(kernel: Kernel, pose: Callable[[], Posed], config: Config | None, a: Tensor) -> Call:
    assert kernel.plan is not None and kernel.backend is not None, f"{kernel.full_name} plans nothing"
    problem, placement = pose()
    chosen = chosen_config(kernel, problem, config, a.device)
    if config is None:
        chosen = kernel.backend.fit(kernel, problem, chosen, placement)
    else:
        kernel.backend.check(kernel, problem, chosen, placement)
    return Call(kernel.plan(problem, chosen, placement), a.device, kernel.backend)
