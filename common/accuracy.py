"""When is a result right? Its largest error against float64 is held against torch.mm's own on the same inputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from common.problem import Inputs, Matmul

# Another order of summation moves the last bit of an element that torch.mm rounded the other way.
SLACK = 2.0


@dataclass(frozen=True)
class Accuracy:
    """Errors are the largest |out - reference| over all elements; reference is the float64 product."""

    error: float
    torch_error: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.error <= self.bound  # False for NaN

    @property
    def times_torch(self) -> float:
        """The error as a multiple of torch.mm's own; infinite where torch.mm is exact and this is not."""
        if self.torch_error:
            return self.error / self.torch_error
        return 1.0 if self.error == 0 else float("inf")


class Judge:
    """Holds one problem's reference, so that many results can be judged against it.

    The bound, for a kernel that rounds its running sum `roundings` times to the output's dtype (once, unless it
    sums in place), is

        SLACK * roundings * max(torch.mm's error, half an ulp of the largest element)
        + sqrt(K) * 2^-24 * max(|A| @ |B|)

    The second term is what reordering an fp32 sum of K products may move by (errors of random sign); beside
    a half-precision output it is nothing, for an fp32 output it is what keeps the bound from being luck.
    """

    def __init__(self, problem: Matmul, inputs: Inputs):
        self.problem = problem
        self.inputs = inputs
        self.reference = problem.reference(inputs)
        self.torch_error = self.largest_error(problem.torch_answer(inputs))
        magnitude = (inputs.a.double().abs() @ inputs.b.double().abs()).max().item()
        self.reordering = problem.k**0.5 * 2.0**-24 * magnitude
        half_ulp = torch.finfo(problem.out_dtype).eps / 2 * self.reference.abs().max().item()
        self.rounding = max(self.torch_error, half_ulp)

    def largest_error(self, out: Tensor) -> float:
        """NaN where any element of `out` is NaN."""
        return (out.double() - self.reference).abs().max().item()

    def judge(self, out: Tensor, roundings: int = 1) -> Accuracy:
        """`out` [M, N] in the problem's out_dtype, on the device of the inputs."""
        bound = SLACK * roundings * self.rounding + self.reordering
        return Accuracy(self.largest_error(out), self.torch_error, bound)
