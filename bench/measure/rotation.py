"""What a process keeps for the problem at hand: its referee, the clock, and the argument sets that the cold clock
rotates."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench.measure.clock import L2_MULTIPLE, Arguments, CudaClock, Timed, rotation_sets
from triton_vs_tilus.bench.measure.numbers import Places, Reservoir, spoil, targets_of
from triton_vs_tilus.bench.measure.referee import Call, Referee, misfit
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.kernel import Config, Kernel, Language
from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.common.tensors import flat, mapped, named_tensors


@lru_cache(maxsize=1)
def referee_of(problem: Problem, device: torch.device, seed: int) -> Referee:
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Referee(problem, device, seed)


@lru_cache(maxsize=1)
def clock_of(device: torch.device) -> CudaClock:
    return CudaClock(device)


class Rotation:
    """`count` argument sets shared by all contenders: a problem's inputs with numbers of their own, and an output.

    Each set is filled anew before every turn that uses it, so no contender is timed on numbers that it has seen. An
    answer is computed when a result is judged, from a copy of the numbers: it is nowhere while the contender runs.
    l2_bytes: the numbers are drawn from L2_MULTIPLE times as many, at least.
    """

    def __init__(self, problem: Problem, device: torch.device, count: int, l2_bytes: int = 0):
        self.problem = problem
        self._reservoir = Reservoir(problem, device, L2_MULTIPLE * l2_bytes)
        self._inputs = [self._reservoir.empty() for _ in range(count)]
        self._outs = [torch.empty(problem.out_shape, dtype=problem.out_dtype, device=device) for _ in range(count)]
        self._arguments: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
        self._copies: dict[str, bool] = {}  # whether a kernel's arguments are its own copies of what is refilled
        self._places: list[Places] = self._reservoir.fill([targets_of(inputs) for inputs in self._inputs])
        # What is refilled, flattened once: the clock waits for the host to enqueue it before each turn.
        self._targets = [targets_of(inputs, problem.laid_out) for inputs in self._inputs]
        self._spoiled = [flat(out) for out in self._outs]
        self._judges: dict[int, Judge] = {}
        storages = [tensor.untyped_storage() for _, tensor in named_tensors([self._inputs, self._outs])]
        self._memory = [(storage, storage.data_ptr(), storage.nbytes()) for storage in storages]

    def arguments(self, kernel: Kernel, config: Config | None) -> list[Arguments]:
        """The argument sets of a kernel's launch. What a kernel lays out anew is laid out once for all its configs. A
        candidate has tensors of its own on the same memory: whatever it makes of them, the judge and the other
        contenders have theirs."""
        name = kernel.full_name
        of_its_own = kernel.language is Language.CANDIDATE
        if name not in self._arguments:
            handed = [mapped(Tensor.detach, inputs) for inputs in self._inputs] if of_its_own else self._inputs
            self._arguments[name] = [kernel.arguments(self.problem, inputs) for inputs in handed]
            held = {tensor.data_ptr() for _, tensor in named_tensors(self._arguments[name][0])}
            self._copies[name] = not all(tensor.data_ptr() in held for tensor in self._targets[0].values())
        outs = map(Tensor.detach, self._outs) if of_its_own else self._outs
        pairs = zip(self._arguments[name], outs, strict=True)
        return [Arguments(args, {**kwargs, "out": out, "config": config}) for (args, kwargs), out in pairs]

    def reads(self) -> list[list[Tensor]]:
        """For each set the tensors that every kernel must read, and the output."""
        pairs = zip(self._inputs, self._outs, strict=True)
        return [[*self.problem.operands(inputs), out] for inputs, out in pairs]

    def refill(self, kernel: Kernel, sets: Sequence[int]) -> None:
        """Enqueues new numbers for these sets, and outputs that hold no answer. What the problem calls `laid_out`
        keeps its numbers."""
        filled = self._reservoir.fill([self._targets[index] for index in sets])
        for index, places in zip(sets, filled, strict=True):
            self._places[index] = self._places[index] | places
            self._judges.pop(index, None)
            if self._copies[kernel.full_name]:
                self._lay_out(kernel, index)
        spoil([self._spoiled[index] for index in sets])

    def _lay_out(self, kernel: Kernel, index: int) -> None:
        anew = named_tensors(kernel.arguments(self.problem, self._inputs[index]))
        for (_, old), (_, new) in zip(named_tensors(self._arguments[kernel.full_name][index]), anew, strict=True):
            if old.data_ptr() != new.data_ptr():
                old.data.copy_(new)

    def is_whole(self) -> bool:
        """Whether the memory of all sets is where it was, and as large: tensors on it may have it freed or moved."""
        return all(storage.data_ptr() == at and storage.nbytes() == size for storage, at, size in self._memory)

    def fault(self, index: int, result: Tensor, roundings: int) -> str | None:
        """Why a result on a set, as it was last filled, is wrong."""
        if reason := misfit(result, self._outs[index]):
            return reason
        if index not in self._judges:
            given = self._reservoir.holding(self._places[index])
            pairs = zip(named_tensors(self._inputs[index]), named_tensors(given), strict=True)
            for (name, tensor), (_, own) in pairs:
                if not torch.equal(tensor, own):
                    return f"changes its input {name}"
            self._judges[index] = Judge(self.problem, given)
        accuracy = self._judges[index].judge(result, roundings)
        return None if accuracy.ok else accuracy.excess


@lru_cache(maxsize=1)
def rotation_of(problem: Problem, device: torch.device) -> Rotation:
    l2_bytes = clock_of(device).l2_bytes
    return Rotation(problem, device, rotation_sets(problem.least_bytes, l2_bytes), l2_bytes)


def launcher(kernel: Kernel, problem: Problem, config: Config | None) -> Call:
    """The kernel's launch as a function of (inputs, out)."""

    def call(inputs: Any, out: Tensor) -> Any:
        args, kwargs = kernel.arguments(problem, inputs)
        return kernel.launch(*args, **kwargs, out=out, config=config)

    return call


def timed(name: str, kernel: Kernel, problem: Problem, config: Config | None, device: torch.device) -> Timed:
    """A kernel with the argument sets in rotation, ready for the clock."""
    rotation, roundings = rotation_of(problem, device), kernel.roundings(config)

    def fault(index: int, result: Tensor) -> str | None:
        return rotation.fault(index, result, roundings)

    return Timed(
        name,
        kernel.launch,
        rotation.arguments(kernel, config),
        fault,
        partial(rotation.refill, kernel),
        leaves_threads=kernel.language is not Language.CANDIDATE,
        is_whole=rotation.is_whole,
    )
