"""Where a Triton kernel runs: on a GPU, in Triton's interpreter, or nowhere, being compiled alone."""

from dataclasses import replace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import MockTensor

from triton_vs_tilus.common.plan import Backend, Launch, Placement, Plan, Run, Slot
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_triton.configs import TMA_ALIGNMENT


def build_plan(plan: Plan) -> None:
    """Compiles what a plan launches for the current device into Triton's cache."""
    for each in plan.launches:
        _compiled(each, plan)


def load(step: Launch, plan: Plan, device: torch.device) -> Run:
    """common.plan.Load. Raises ValueError for a CPU where kernels are compiled."""
    _check_device(device)
    slots = [(place, slot) for place, slot in enumerate(step.arguments) if isinstance(slot, Slot)]
    described = [(place, slot) for place, slot in slots if slot in step.described]
    read_as = [(place, plan.read_as[slot]) for place, slot in slots if slot in plan.read_as]

    def run_anew(stream: int, args: tuple[Any, ...]) -> None:
        given = list(args)
        for place, slot in described:
            given[place] = step.described[slot](given[place])
        for place, dtype in read_as:  # what is compiled takes an address, and does not ask for the dtype
            given[place] = _first_word(given[place], dtype)
        step.kernel[step.grid](*given, **step.options)

    if triton.knobs.runtime.interpret:
        return run_anew
    # As JITFunction.run launches, from what it has found out by then: it takes longer to find out than to launch.
    compiled = _compiled(step, plan)
    start, function, packed = compiled.run, compiled.function, compiled.packed_metadata
    x, y, z = (*step.grid, 1, 1)[:3]
    constants = tuple(step.options[param.name] for param in step.kernel.params[len(step.arguments) :])
    hooks = triton.knobs.runtime
    checked = [(place, step.described[slot](_address(slot, plan))) for place, slot in described]

    def with_descriptors(args: tuple[Any, ...]) -> list[Any]:
        """A descriptor checks what it is made of, for longer than a launch takes: that is done once."""
        given = list(args)
        for place, known in checked:
            descriptor = object.__new__(type(known))
            vars(descriptor).update(vars(known), base=given[place])
            given[place] = descriptor
        return given

    def run(stream: int, args: tuple[Any, ...]) -> None:
        if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:  # a profiler asks for more than is known here
            return run_anew(stream, args)
        given = with_descriptors(args) if described else args
        start(x, y, z, stream, function, packed, None, None, None, *given, *constants)

    return run


def by_pointers(problem: Matmul, config: Any, placement: Placement) -> Any:
    """A config of the tables, without TMA where that cannot address tensors that lie so."""
    tma = getattr(config, "tma", False)
    return replace(config, tma=False) if tma and not addressable(problem, placement) else config


def addressable(problem: Matmul, placement: Placement) -> bool:
    """Whether TMA can address A and B."""
    rows = (placement.stride_am, placement.stride_bn if problem.layout is Layout.NK else placement.stride_bk)
    extents = (placement.align_a, placement.align_b, *(row * problem.dtype.itemsize for row in rows))
    return all(extent % TMA_ALIGNMENT == 0 for extent in extents)


def _first_word(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor's memory from its first element on, as elements of a wider dtype."""
    return tensor.as_strided((dtype.itemsize // tensor.itemsize,), (1,)).view(dtype)


class _Address(MockTensor):
    """A tensor of which the compiler is told the dtype and the alignment alone."""

    def __init__(self, dtype: torch.dtype, alignment: int):
        super().__init__(dtype)
        self.alignment = alignment

    def data_ptr(self) -> int:
        return self.alignment


def _address(slot: Slot, plan: Plan) -> _Address:
    return _Address(plan.dtype_of(slot), plan.alignment_of(slot))


def _compiled(step: Launch, plan: Plan) -> Any:
    """The kernel, compiled for the current device, or found in Triton's cache."""

    def argument_of(argument: Any) -> Any:
        if not isinstance(argument, Slot):
            return argument
        if argument is Slot.TICKET:
            return 0  # no kernel is compiled for one
        address = _address(argument, plan)
        return step.described[argument](address) if argument in step.described else address

    def compiled() -> Any:
        return step.kernel.warmup(*map(argument_of, step.arguments), grid=step.grid, **step.options)

    try:
        return compiled()
    except (OSError, ValueError, KeyError):  # a cached file is gone, or cut off; else the compiler says so again
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.always_compile = True
            return compiled()


def _check_device(device: torch.device) -> None:
    if device.type == "cpu" and not triton.knobs.runtime.interpret:
        raise ValueError(
            "a is on cpu; accepted: a CUDA device, or a CPU with TRITON_INTERPRET=1 set before triton is imported"
        )


BACKEND = Backend(load, build_plan, lambda: triton.knobs.cache.dir, fit=by_pointers)
