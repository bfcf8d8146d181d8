"""A result is right if its largest error against float64, and the root of its mean squared error (rms), are within a
small multiple of torch's own on the same inputs; integers must be equal bit for bit.

The largest error finds one wrong element, the rms what is a little wrong in all: a kernel that leaves out 8 of 7168
products of each element moves them by 0.03 each, which the largest error of a sum that is rounded 8 times hides.

The error by the tolerances of the decompose-K study (https://shreyansh26.github.io/post/2026-06-21_decompose-k-triton/)
is reported beside it, and decides nothing: no sum that is rounded to bf16 on its way can meet them. Where it stands at
64 or more, one rounding moves it by up to 0.25, and what is added later may leave an element of C near 0, for which the
study accepts 0.01.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common.problem import Matmul, Problem

__all__ = ["SLACK", "STUDY_TOLERANCES", "Accuracy", "Judge"]

# Another order of summation may round an element the other way than torch.mm did.
SLACK = 2.0
FEW = 16  # elements that are not zero, whose rms is a matter of chance

# (rtol, atol) against torch.mm, by dtype of the inputs, for standard normal A and B.
STUDY_TOLERANCES = {torch.bfloat16: (2e-2, 1e-2), torch.float16: (2e-2, 1e-2), torch.float32: (1e-4, 1e-3)}


@dataclass(frozen=True)
class Accuracy:
    """One result's errors: the largest |out - reference| over all elements against the float64 reference; for integers
    the number of elements that differ.

    error        of the result
    torch_error  of torch's own answer
    bound        the largest error that is accepted
    rms, rms_bound  the root of the mean squared error of the result, and the largest that is accepted; 0 for integers
    times_study  the largest |out - torch.mm's| as a multiple of the study's tolerance for that element, which accepts
                 1 and less; None for problems that the study has no tolerance for
    """

    error: float
    torch_error: float
    bound: float
    rms: float = 0.0
    rms_bound: float = 0.0
    times_study: float | None = None

    @property
    def ok(self) -> bool:
        return self.error <= self.bound and self.rms <= self.rms_bound  # False for NaN

    @property
    def excess(self) -> str:
        """Which bound is broken, and by what: 'error 0.12 is over the bound 0.05'."""
        if self.error <= self.bound:
            return f"rms error {self.rms:.3g} is over the bound {self.rms_bound:.3g}"
        return f"error {self.error:.3g} is over the bound {self.bound:.3g}"

    @property
    def times_torch(self) -> float:
        """The error as a multiple of torch's own; infinite where only torch is exact."""
        if self.torch_error:
            return self.error / self.torch_error
        return 1.0 if self.error == 0 else float("inf")


class Judge:
    """One problem's reference and torch's answer, for judging many results.

    A kernel that rounds its running sum `roundings` times to the output's dtype (once, unless it sums in place) has the
    bound

        SLACK * roundings * max(torch's error, half an ulp of the largest element) + problem.reordering

    for its largest error, and for its rms

        SLACK * sqrt((roundings + 1) / 2) * max(torch's rms, an ulp of the elements' rms / sqrt(12))
            + problem.reordering

    as the errors of many elements, unlike the worst of them, have random signs, and a sum that grows like the root of
    the number of its terms is rounded to finer steps at first. Of FEW elements and less the first bound holds for both.

    The last term is what another order of an fp32 sum of K products may change (errors of random sign). It is
    negligible for a half-precision output; for an fp32 output torch's error alone would be a bound by chance.

    For integers the bound is 0.
    """

    def __init__(self, problem: Problem, inputs: Any):
        self.problem = problem
        self.inputs = inputs
        self.reference = problem.reference(inputs)
        self.torch_answer = problem.torch_answer(inputs).to(self.reference.dtype)
        self.torch_error = self.largest_error(self.torch_answer)
        self.reordering = problem.reordering(inputs)
        self.rounding, self.rms_rounding = self.torch_error, 0.0
        # Not counted where there are many in all: that is time on the GPU.
        self.are_few = self.reference.numel() < FEW**2 and int(self.reference.count_nonzero()) <= FEW
        if self.reference.is_floating_point():
            eps = torch.finfo(problem.out_dtype).eps
            self.rounding = max(self.torch_error, eps / 2 * self.reference.abs().max().item())
            rms = self.reference.square().mean().sqrt().item()
            self.rms_rounding = max(self.rms_error(self.torch_answer), eps * rms / 12**0.5)

    def largest_error(self, out: Tensor) -> float:
        """NaN where any element of `out` is NaN."""
        if not self.reference.is_floating_point():
            return float((out != self.reference).sum())
        return (out.double() - self.reference).abs().max().item()

    def rms_error(self, out: Tensor) -> float:
        """0 for integers, NaN where any element of `out` is NaN."""
        if not self.reference.is_floating_point():
            return 0.0
        return (out.double() - self.reference).square().mean().sqrt().item()

    def judge(self, out: Tensor, roundings: int = 1) -> Accuracy:
        """`out` [M, N] in the problem's out_dtype, on the device of the inputs."""
        bound = SLACK * roundings * self.rounding + self.reordering
        rms_bound = SLACK * ((roundings + 1) / 2) ** 0.5 * self.rms_rounding + self.reordering
        if self.are_few:
            rms_bound = bound
        error, rms = self.largest_error(out), self.rms_error(out)
        return Accuracy(error, self.torch_error, bound, rms, rms_bound, self.times_study(out))

    def times_study(self, out: Tensor) -> float | None:
        """Accuracy.times_study of a result; None unless the problem is a Matmul. B is scaled by 1/sqrt(K) here and was
        not in the study, so atol is scaled likewise."""
        if not isinstance(self.problem, Matmul):
            return None
        rtol, atol = STUDY_TOLERANCES[self.problem.dtype]
        tolerance = atol / self.problem.k**0.5 + rtol * self.torch_answer.abs()
        return ((out.double() - self.torch_answer).abs() / tolerance).max().item()
