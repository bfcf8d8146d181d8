"""Inputs whose numbers no contender can know: windows, at places drawn by the operating system, of a reservoir whose
seed was drawn so too.

A window's answer is not that of any other, so the answers of earlier calls do not help in the next. Nor do their
numbers: a reservoir larger than the L2 cannot be kept there, and a few numbers that tell a window's place save no
reading.
"""

import secrets
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.common.tensors import flat, mapped, named_tensors

STEP = 8  # elements between the places where a window may begin: copies stay aligned to 16 bytes
SMALL = 1 << 16  # elements, below which it may begin anywhere

# Where the window of each of a set's tensors begins, by name.
Places = dict[str, int]
# What of a set is filled, by name: its tensors' memory. What is written there raises no version counter of a tensor.
Targets = dict[str, Tensor]


class Reservoir:
    """Random numbers for any count of one problem's inputs: of each tensor twice its elements, and `least_bytes` of
    them at least, each drawn anew from those of one draw of the problem."""

    def __init__(self, problem: Problem, device: torch.device, least_bytes: int = 0):
        drawn = problem.inputs(device, secrets.randbits(62))
        generator = torch.Generator(device).manual_seed(secrets.randbits(62))

        def many(tensor: Tensor) -> Tensor:
            count = max(2, -(-least_bytes // tensor.nbytes)) * tensor.numel()
            chosen = torch.randint(tensor.numel(), (count,), generator=generator, device=device)
            return flat(tensor)[chosen]

        self._many = {name: many(tensor) for name, tensor in named_tensors(drawn)}
        self._layout = mapped(lambda tensor: tensor.to("meta"), drawn)
        # Places where a window may begin.
        self._begins = {name: self._many[name].numel() - tensor.numel() for name, tensor in named_tensors(drawn)}
        self._device = device

    def empty(self) -> Any:
        """Inputs laid out as the problem's, that hold anything."""
        return mapped(partial(torch.empty_like, device=self._device), self._layout)

    def fill(self, sets: Sequence[Targets]) -> list[Places]:
        """Enqueues new numbers for each set on the current stream."""
        # One call of the operating system for all: some microseconds each, while the clock waits.
        words = iter(np.frombuffer(secrets.token_bytes(8 * sum(map(len, sets))), np.uint64).tolist())
        drawn = [{name: self._place(name, next(words)) for name in targets} for targets in sets]
        self._copy(sets, drawn)
        return drawn

    def holding(self, places: Places) -> Any:
        """Inputs of their own with the numbers of these places."""
        inputs = self.empty()
        self._copy([targets_of(inputs)], [places])
        return inputs

    def _place(self, name: str, word: int) -> int:
        """word: 64 random bits."""
        count = self._begins[name]
        return word % count if count < SMALL else word % (count // STEP) * STEP

    def _copy(self, sets: Sequence[Targets], drawn: Sequence[Places]) -> None:
        filled: list[Tensor] = []
        windows: list[Tensor] = []
        for targets, places in zip(sets, drawn, strict=True):
            for name, begin in places.items():
                filled.append(targets[name])
                windows.append(self._many[name].narrow(0, begin, targets[name].numel()))
        if filled:
            torch._foreach_copy_(filled, windows)


def targets_of(inputs: Any, keep: Set[str] = frozenset()) -> Targets:
    """All of a set's tensors but those of the inputs named in `keep`."""
    named = ((name, tensor) for name, tensor in named_tensors(inputs) if name.partition(".")[0] not in keep)
    return {name: flat(tensor) for name, tensor in named}


def spoil(flattened: list[Tensor]) -> None:
    """Enqueues a value that is no answer for every element: NaN, or an integer drawn at random."""
    dtype = flattened[0].dtype
    value = float("nan") if dtype.is_floating_point else secrets.randbelow(torch.iinfo(dtype).max)
    torch._foreach_zero_(flattened)
    torch._foreach_add_(flattened, value)
