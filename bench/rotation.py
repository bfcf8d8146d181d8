"""What a process keeps of a problem that contenders are checked and timed on: the referee, the clock, and the argument
sets that the cold clock rotates."""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from bench.clock import Arguments, CudaClock, Timed, cold_sets
from bench.referee import Call, Referee
from common.kernel import Config, Kernel
from common.problem import Problem
from common.tensors import mapped


@lru_cache(maxsize=1)
def referee_of(problem: Problem, device: torch.device, seed: int) -> Referee:
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Referee(problem, device, seed)


@lru_cache(maxsize=1)
def clock_of(device: torch.device) -> CudaClock:
    return CudaClock(device)


class Rotation:
    """Copies of a problem's inputs and an output each, shared by all contenders: as many as the cold clock wants."""

    def __init__(self, problem: Problem, device: torch.device, seed: int):
        self.problem = problem
        inputs = referee_of(problem, device, seed).inputs[0]
        count = cold_sets(problem.least_bytes, clock_of(device).l2_bytes)
        self._inputs = [mapped(torch.clone, inputs) for _ in range(count)]
        self._outs = [torch.empty(problem.out_shape, dtype=problem.out_dtype, device=device) for _ in range(count)]
        self._arguments: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}

    def arguments(self, kernel: Kernel, config: Config | None) -> list[Arguments]:
        """Of a kernel's launch. What it lays out anew is laid out once, whatever its config."""
        if kernel.full_name not in self._arguments:
            self._arguments[kernel.full_name] = [kernel.arguments(self.problem, inputs) for inputs in self._inputs]
        held = zip(self._arguments[kernel.full_name], self._outs, strict=True)
        return [Arguments(args, {**kwargs, "out": out, "config": config}) for (args, kwargs), out in held]

    def reads(self) -> list[list[Tensor]]:
        """Of each set what no kernel can do without reading, and the output."""
        held = zip(self._inputs, self._outs, strict=True)
        return [[*self.problem.operands(inputs), out] for inputs, out in held]


@lru_cache(maxsize=1)
def rotation_of(problem: Problem, device: torch.device, seed: int) -> Rotation:
    return Rotation(problem, device, seed)


def launcher(kernel: Kernel, problem: Problem, config: Config | None) -> Call:
    """The kernel's launch of (inputs, out), everything else bound."""

    def call(inputs: Any, out: Tensor) -> Any:
        args, kwargs = kernel.arguments(problem, inputs)
        return kernel.launch(*args, **kwargs, out=out, config=config)

    return call


def timed(name: str, kernel: Kernel, problem: Problem, config: Config | None, device: torch.device, seed: int) -> Timed:
    """A kernel on the rotation of argument sets, as the clock takes it."""
    judge = referee_of(problem, device, seed).judges[0]  # of the inputs that the rotation copies

    def fault(result: Tensor) -> str | None:
        accuracy = judge.judge(result, kernel.roundings(config))
        return None if accuracy.ok else f"error {accuracy.error:.3g} is over the bound {accuracy.bound:.3g}"

    return Timed(name, kernel.launch, rotation_of(problem, device, seed).arguments(kernel, config), fault)
