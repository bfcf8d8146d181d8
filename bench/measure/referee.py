"""What a contender must pass before it is timed: right on changing inputs, and no write outside of its output."""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench.measure.numbers import Reservoir, spoil, targets_of
from triton_vs_tilus.bench.measure.seals import hooked
from triton_vs_tilus.common.accuracy import Accuracy, Judge
from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.common.tensors import flat, mapped, named_tensors

GUARD_BYTES = 1 << 20
GUARD_PATTERN = 0x5A
KNOWN, SECRET = 0, 1  # the two inputs that a contender is judged on
REPEATS = 5
DELAY_CYCLES = 40_000_000  # of the GPU: some 20 milliseconds, far more than the host needs to enqueue a call

_clone = Tensor.clone  # whatever a contender puts in its place, on the class or on its result

# call(inputs, out) -> C: a contender with everything else bound.
Call = Callable[[Any, Tensor], Any]


class Fault(Exception):
    """A contender is wrong; the message says in what."""


class GuardedOutput:
    """An output between two guard bands of a known pattern."""

    def __init__(self, problem: Problem, device: torch.device):
        size = prod(problem.out_shape) * problem.out_dtype.itemsize
        self._bytes = torch.empty(GUARD_BYTES + size + GUARD_BYTES, dtype=torch.uint8, device=device)
        self._bands = self._bytes[:GUARD_BYTES], self._bytes[GUARD_BYTES + size :]
        body = self._bytes[GUARD_BYTES : GUARD_BYTES + size]
        self.tensor = body.view(problem.out_dtype).view(problem.out_shape)

    def reset(self) -> None:
        """Fills the output with what is no answer and the guard bands with the pattern, on the current stream."""
        self._bytes.fill_(GUARD_PATTERN)
        spoil([flat(self.tensor)])

    def check(self) -> None:
        """Raises Fault where a guard band has changed."""
        for place, band in zip(("before", "after"), self._bands, strict=True):
            if touched := int((band != GUARD_PATTERN).sum()):
                raise Fault(f"writes outside of its output: {touched} bytes {place} it")


class Referee:
    """One problem's inputs: those of a seed that anybody may know, whose error is reported, and secret ones, other ones
    for each contender. Contenders get copies of both at the same addresses, so that one that returns a kept answer is
    found. An answer is computed once there is a result to judge."""

    def __init__(self, problem: Problem, device: torch.device, seed: int):
        self.problem = problem
        self.device = device
        self.seed = seed
        self._draw()
        self._handed = mapped(torch.clone, self.inputs[KNOWN])
        self._out = GuardedOutput(problem, device)
        self._lent_to: Call | None = None

    def _draw(self) -> None:
        self._reservoir = Reservoir(self.problem, self.device)
        self.inputs = self.problem.inputs(self.device, self.seed), self._reservoir.empty()
        self._reservoir.fill([targets_of(self.inputs[SECRET])])
        self._judges: dict[int, Judge] = {}

    def examine(self, call: Call, roundings: int, deterministic: bool) -> tuple[Accuracy, bool]:
        """The accuracy on the first inputs, and whether repeats are bitwise equal.

        call           the contender
        roundings      how often it rounds a running sum to the output's dtype
        deterministic  whether it claims to be

        Raises Fault for a wrong result, a write outside of the output, a changed input, work that is not in the order
        of the current stream, and repeats that differ against its claim.
        """
        self._reservoir.fill([targets_of(self.inputs[SECRET])])
        self._judges.pop(SECRET, None)
        try:
            accuracy = self.judged(call, roundings)
            self.judged(call, roundings, SECRET)
        except Fault:
            self._draw()  # it may have reached for the answers, and changed them for those who follow
            raise
        if self.device.type == "cuda":
            self._on_a_late_stream(call, roundings)
        # An interpreter is sequential: a workspace left dirty, the one source of difference there, shows at once.
        count = REPEATS if self.device.type == "cuda" else 1
        first, *repeats = [_bits(self._run(call, KNOWN)) for _ in range(1 + count)]
        equal = sum(torch.equal(first, again) for again in repeats)
        if deterministic and equal < count:
            raise Fault(f"claims to be deterministic; {count - equal} of {count} repeats differ")
        return accuracy, equal == count

    def judged(self, call: Call, roundings: int, which: int = KNOWN) -> Accuracy:
        """The accuracy of one call. Raises Fault past the bound, for a write outside of the output, and for a changed
        input."""
        result = self._run(call, which)
        accuracy = self._judge(which).judge(result, roundings)
        if not accuracy.ok:
            raise Fault(self._diagnosis(result, which, accuracy, roundings))
        return accuracy

    def _judge(self, which: int) -> Judge:
        if which not in self._judges:
            self._judges[which] = Judge(self.problem, self.inputs[which])
        return self._judges[which]

    def _run(self, call: Call, which: int) -> Tensor:
        self._hand_out(which)
        self._out.reset()
        self._spoil_free_memory()
        self._synchronize()
        result = self._kept(self._called(call))  # at once: what comes later is too late
        self._synchronize()
        self._out.check()
        for (name, tensor), (_, given) in self._handed_and_given(which):
            if not torch.equal(tensor, given):
                raise Fault(f"changes its input {name}")
        return result

    def _called(self, call: Call) -> Any:
        """On tensors of the contender's own, the same in all its calls: whatever it makes of them, those that are
        judged, and lent to the next contender, stay what they are."""
        if self._lent_to is not call:
            self._lent = mapped(Tensor.detach, self._handed), self._out.tensor.detach()
            self._lent_to = call
        return call(*self._lent)

    def _on_a_late_stream(self, call: Call, roundings: int) -> None:
        """One call on a stream that first waits, then makes the inputs. Raises Fault for work on another stream: it
        starts with the wrong inputs, or it ends after the output was copied."""
        stream = torch.cuda.Stream(self.device)
        with torch.cuda.stream(stream):
            self._called(call)  # compiles and allocates for this stream
            self._hand_out(KNOWN)
            self._synchronize()
            torch.cuda._sleep(DELAY_CYCLES)
            self._hand_out(SECRET)
            self._out.reset()
            result = self._kept(self._called(call))
        self._synchronize()
        accuracy = self._judge(SECRET).judge(result, roundings)
        if not accuracy.ok:
            raise Fault("its work is not in the order of the current stream")

    def _hand_out(self, which: int) -> None:
        for (_, tensor), (_, given) in self._handed_and_given(which):
            tensor.copy_(given)

    def _handed_and_given(self, which: int) -> Iterator[tuple[tuple[str, Tensor], tuple[str, Tensor]]]:
        return zip(named_tensors(self._handed), named_tensors(self.inputs[which]), strict=True)

    def _spoil_free_memory(self) -> None:
        """Fills free memory, which an allocation of the output's size is likely to get, with no answer."""
        spoil([flat(torch.empty_like(self._out.tensor)) for _ in range(8)])

    def _kept(self, result: Any) -> Tensor:
        if reason := hooked():
            raise Fault(reason)
        if type(result) is not Tensor:  # a subclass may compute later, when nobody times it
            raise Fault(f"returns {type(result).__name__}; expected torch.Tensor itself")
        if reason := misfit(result, self._out.tensor):
            raise Fault(reason)
        return _clone(result, memory_format=torch.contiguous_format)

    def _diagnosis(self, result: Tensor, which: int, accuracy: Accuracy, roundings: int) -> str:
        if result.is_floating_point() and (nans := int(result.isnan().sum())):
            # Where the rest is right these were not written; NaN that was computed leaves wrong elements beside it.
            off = int(((result.double() - self._judge(which).reference).abs() > accuracy.bound).sum())
            filled = f"{nans} of {result.numel()} elements are NaN, which the output was filled with"
            return f"{filled}; {off} of the others are off by more than {accuracy.bound:.3g}"
        if 1 - which in self._judges and self._judge(1 - which).judge(result, roundings).ok:
            return "stale: its result is that of earlier inputs at the same addresses"
        if not result.is_floating_point():
            return f"{accuracy.error:.0f} of {result.numel()} elements are not right to the bit"
        return f"{accuracy.excess} (torch: {accuracy.torch_error:.3g})"

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def misfit(result: Tensor, expected: Tensor) -> str | None:
    """What a result is that should be as `expected` is; None where shape, dtype and device are the same."""
    if (result.shape, result.dtype, result.device) == (expected.shape, expected.dtype, expected.device):
        return None
    return (
        f"returns {result.dtype} {tuple(result.shape)} on {result.device}; "
        f"expected {expected.dtype} {tuple(expected.shape)} on {expected.device}"
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])
