"""Where a Triton kernel runs: on a GPU, in Triton's interpreter, or nowhere, being compiled alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime.jit import MockTensor

from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.plan import Backend, Launch, Placement, Plan, Run, Slot, filling
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_triton import starting
from triton_vs_tilus.kernels_triton.configs import TMA_ALIGNMENT


def build_plan(plan: Plan) -> None:
    """Compiles what a plan launches for the current device into Triton's cache."""
    for each in plan.launches:
        _compiled(each, plan)


def load(step: Launch, plan: Plan, device: torch.device) -> Run:
    """common.plan.Load. Raises ValueError for a CPU where kernels are compiled."""
    _check_device(device)
    filled = filling(step.arguments)
    slots = [(place, slot) for place, slot in enumerate(step.arguments) if isinstance(slot, Slot)]
    described = [(place, step.described[slot]) for place, slot in slots if slot in step.described]
    read_as = [(place, plan.read_as[slot]) for place, slot in slots if slot in plan.read_as]

    def run_anew(stream: int, given: tuple[Any, ...]) -> None:
        args = list(filled(given))
        for place, descriptor_of in described:
            args[place] = descriptor_of(args[place])
        for place, dtype in read_as:  # what is compiled takes an address, and does not ask for the dtype
            args[place] = _first_word(args[place], dtype)
        step.kernel[step.grid](*args, **step.options)

    hooks = triton.knobs.runtime
    # In Triton 3.4 a hook is a function or None, and the launcher is another.
    if hooks.interpret or not hasattr(hooks.launch_enter_hook, "calls"):
        return run_anew
    # As JITFunction.run launches, from what it has found out by then: it takes longer to find out than to launch.
    compiled = _compiled(step, plan)
    if step.described and not compiled.metadata.tensordesc_meta:  # before Hopper a descriptor is a pointer and numbers
        return run_anew
    constants = [step.options[param.name] for param in step.kernel.params[len(step.arguments) :]]
    start = starting.start_of(compiled, step.grid, lets_next_start=_lets_next_start(step, plan))
    encoders = iter(starting.encoders_of(compiled))
    all_args: list[Any] = []  # as the launcher takes them: a descriptor's shape and strides follow it
    addresses: list[tuple[int, Slot]] = []
    encoded: list[tuple[int, Slot, Callable[[int], Any]]] = []
    tickets: list[int] = []
    for argument in step.arguments:
        place = len(all_args)
        all_args.append(argument)
        if not isinstance(argument, Slot):  # of numbers some are equal to a Slot
            continue
        if argument in step.described:
            descriptor = step.described[argument](_address(argument, plan))
            encoded.append((place, argument, next(encoders)(descriptor)))
            all_args += [*descriptor.shape, *descriptor.strides]
        elif argument is Slot.TICKET:
            tickets.append(place)
        else:
            addresses.append((place, argument))
    all_args += constants

    def run(stream: int, given: tuple[Any, ...]) -> None:
        if hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:  # a profiler asks for more than is known here
            return run_anew(stream, given)
        args = all_args.copy()
        for place, slot in addresses:  # of a tensor Triton would ask the driver for the address
            args[place] = given[slot].data_ptr()
        for place, slot, encode in encoded:
            args[place] = encode(given[slot].data_ptr())
        for place in tickets:
            args[place] = given[Slot.TICKET]
        start(stream, args)

    return run


def _lets_next_start(step: Launch, plan: Plan) -> bool:
    """Whether the launch after this one is a dependent one."""
    after = plan.launches[plan.launches.index(step) + 1 :]
    return bool(after) and bool(after[0].options.get("launch_pdl"))


def by_pointers(kernel: Kernel, problem: Matmul, config: Any, placement: Placement) -> Any:
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
