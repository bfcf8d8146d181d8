"""The yardstick itself: what must pass does, and what must not, does not."""

import matmul_cases as cases
import pytest
import torch

from common.accuracy import Judge


@pytest.mark.parametrize("problem", cases.PROBLEMS, ids=lambda problem: problem.name)
def test_zeros_and_unwritten_elements_fail(problem):
    judge = Judge(problem, problem.inputs("cpu"))
    right = judge.reference.to(problem.out_dtype)
    assert judge.judge(right).ok
    assert judge.judge(problem.torch_answer(judge.inputs)).ok
    assert not judge.judge(torch.zeros_like(right), roundings=1).ok
    unwritten = right.clone()
    unwritten[-1, -1] = float("nan")
    assert not judge.judge(unwritten, roundings=100).ok


@pytest.mark.parametrize("problem", [p for p in cases.PROBLEMS if p.k >= 64], ids=lambda problem: problem.name)
def test_a_missing_step_of_k_fails(problem):
    """One sixteenth of K left out, as a split that starts late would; the bound is not so loose that it passes."""
    inputs = problem.inputs("cpu")
    judge = Judge(problem, inputs)
    step = problem.k // 16
    short = problem.reference(inputs._replace(a=inputs.a[:, step:], b=inputs.b[step:]))
    assert not judge.judge(short.to(problem.out_dtype), roundings=4).ok


@pytest.mark.parametrize("problem", cases.PROBLEMS, ids=lambda problem: problem.name)
def test_inputs_are_the_same_every_time_and_laid_out_as_asked(problem):
    once, again = problem.inputs("cpu", seed=3), problem.inputs("cpu", seed=3)
    assert torch.equal(once.a, again.a) and torch.equal(once.b, again.b)
    stored = once.b if problem.layout.value == "kn" else once.b.T
    assert stored.is_contiguous() and once.b.shape == (problem.k, problem.n)
    if problem.m * problem.k > 8:
        assert not torch.equal(once.a, problem.inputs("cpu", seed=4).a)
