"""When is a result right? Its largest error against float64 is held against torch's own on the same inputs; integers
must be right to the bit.

Beside it, and deciding nothing, stands how a result fares by the tolerances of the decompose-K study
(https://shreyansh26.github.io/post/2026-06-21_decompose-k-triton/), element by element.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from common.problem import Matmul, Problem

# Another order of summation moves the last bit of an element that torch.mm rounded the other way.
SLACK = 2.0

# (rtol, atol) against torch.mm, by dtype of the inputs, for standard normal A and B.
STUDY_TOLERANCES = {torch.bfloat16: (2e-2, 1e-2), torch.float16: (2e-2, 1e-2), torch.float32: (1e-4, 1e-3)}


@dataclass(frozen=True)
class Accuracy:
    """Errors are the largest |out - reference| over all elements, the reference being the float64 answer; of integers,
    how many elements differ.

    times_study: the largest |out - torch.mm's| as a multiple of the study's tolerance for that element: it passes
    there up to 1. None where it was not held against it.
    """

    error: float
    torch_error: float
    bound: float
    times_study: float | None = None

    @property
    def ok(self) -> bool:
        return self.error <= self.bound  # False for NaN

    @property
    def times_torch(self) -> float:
        """The error as a multiple of torch's own; infinite where torch is exact and this is not."""
        if self.torch_error:
            return self.error / self.torch_error
        return 1.0 if self.error == 0 else float("inf")


class Judge:
    """Holds one problem's reference, so that many results can be judged against it.

    The bound, for a kernel that rounds its running sum `roundings` times to the output's dtype (once, unless it
    sums in place), is

        SLACK * roundings * max(torch's error, half an ulp of the largest element) + problem.reordering

    The second term is what reordering an fp32 sum of K products may move by (errors of random sign); beside
    a half-precision output it is nothing, for an fp32 output it is what keeps the bound from being luck.

    For integers it is 0.
    """

    def __init__(self, problem: Problem, inputs: Any):
        self.problem = problem
        self.inputs = inputs
        self.reference = problem.reference(inputs)
        self.torch_answer = problem.torch_answer(inputs).to(self.reference.dtype)
        self.torch_error = self.largest_error(self.torch_answer)
        self.reordering = problem.reordering(inputs)
        self.rounding = self.torch_error
        if self.reference.is_floating_point():
            half_ulp = torch.finfo(problem.out_dtype).eps / 2 * self.reference.abs().max().item()
            self.rounding = max(self.torch_error, half_ulp)

    def largest_error(self, out: Tensor) -> float:
        """NaN where any element of `out` is NaN."""
        if not self.reference.is_floating_point():
            return float((out != self.reference).sum())
        return (out.double() - self.reference).abs().max().item()

    def judge(self, out: Tensor, roundings: int = 1) -> Accuracy:
        """`out` [M, N] in the problem's out_dtype, on the device of the inputs."""
        bound = SLACK * roundings * self.rounding + self.reordering
        return Accuracy(self.largest_error(out), self.torch_error, bound, self.times_study(out))

    def times_study(self, out: Tensor) -> float | None:
        """As in Accuracy, of a Matmul. B is scaled by 1/sqrt(K) here and was not there: atol is scaled with it."""
        if not isinstance(self.problem, Matmul):
            return None
        rtol, atol = STUDY_TOLERANCES[self.problem.dtype]
        tolerance = atol / self.problem.k**0.5 + rtol * self.torch_answer.abs()
        return ((out.double() - self.torch_answer).abs() / tolerance).max().item()
