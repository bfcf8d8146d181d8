"""The yardstick itself: what must pass does, and what must not, does not."""

import matmul_cases as cases
import pytest
import torch

from triton_vs_tilus.common.accuracy import Accuracy, Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Matmul


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


@pytest.mark.parametrize("split", [1, 2, 4, 8, 16, 32, 64])
def test_a_serial_sum_in_place_may_round_and_may_not_leave_out_8_of_7168_products(split):
    """Rounded `split` times, as `semaphore.in_place` does: right with all products, wrong without the last 8."""
    problem = Matmul(8, 64, 7168)
    inputs = problem.inputs("cpu")
    judge = Judge(problem, inputs)

    def summed(k: int) -> torch.Tensor:
        out = torch.zeros(problem.m, problem.n, dtype=problem.out_dtype)
        for a, b in zip(inputs.a[:, :k].chunk(split, 1), inputs.b[:k].chunk(split), strict=True):
            out = (out.float() + a.float() @ b.float()).to(problem.out_dtype)
        return out

    assert judge.judge(summed(7168), roundings=split).ok
    assert not judge.judge(summed(7168 - 8), roundings=split).ok


def test_one_wrong_element_of_many_fails_though_the_rms_hides_it():
    """Each bound holds by itself, and what is told is the one that is broken."""
    problem = Matmul(64, 256, 64)
    judge = Judge(problem, problem.inputs("cpu"))
    bounds = judge.judge(judge.torch_answer)
    wrong, shifted, unwritten = (judge.reference.clone() for _ in range(3))
    wrong[5, 7] += 1.1 * bounds.bound
    shifted += 1.1 * bounds.rms_bound
    unwritten[5, 7] = float("nan")
    one, all_of_them, none = map(judge.judge, (wrong, shifted, unwritten))
    assert not one.ok and one.rms < one.rms_bound and one.excess.startswith("error ")
    assert not all_of_them.ok and all_of_them.error < all_of_them.bound and all_of_them.excess.startswith("rms error ")
    assert not none.ok and none.excess.startswith("error nan is over the bound")


@pytest.mark.parametrize("m, holds", [(2, False), (256, True)])
def test_the_rms_of_few_elements_is_not_held_against_them(m, holds):
    """Every element at 0.9 of the bound for the largest error, as no more than one of many is by chance."""
    problem = Matmul(m, 4, 64, epilogue=Epilogue.RELU)
    judge = Judge(problem, problem.inputs("cpu"))
    bound = judge.judge(judge.reference.to(problem.out_dtype), roundings=2).bound
    off = torch.where(judge.reference > 0, judge.reference + 0.9 * bound, judge.reference)
    assert judge.judge(off, roundings=2).ok is not holds


@pytest.mark.parametrize("out_dtype, ulp", [(torch.bfloat16, 2.0**-7), (torch.float32, 2.0**-23)])
@pytest.mark.parametrize("roundings", [1, 9])
def test_the_bounds_are_twice_the_errors_that_rounding_and_order_explain(out_dtype, ulp, roundings):
    problem = Matmul(16, 32, 64, out_dtype=out_dtype)
    inputs = problem.inputs("cpu")
    a, b = inputs.a.double(), inputs.b.double()
    exact, torchs = a @ b, torch.mm(inputs.a.to(out_dtype), inputs.b.to(out_dtype))
    order = 64**0.5 * 2.0**-24 * 5 * (a.square() @ b.square()).max().sqrt().item()
    largest = max((torchs - exact).abs().max().item(), ulp / 2 * exact.abs().max().item())
    rms = max((torchs - exact).square().mean().sqrt().item(), ulp * exact.square().mean().sqrt().item() / 12**0.5)
    found = Judge(problem, inputs).judge(torchs, roundings)
    assert found.bound == pytest.approx(2 * roundings * largest + order)
    assert found.rms_bound == pytest.approx(2 * ((roundings + 1) / 2) ** 0.5 * rms + order)


@pytest.mark.parametrize("k", [256, 32768])
def test_in_fp32_the_order_of_a_sum_is_free_and_tf32_is_wrong(k):
    """The order that rounds most: one product after the other. 10 bits of each factor are TF32's."""
    problem = Matmul(8, 8, k, torch.float32)
    inputs = problem.inputs("cpu")
    judge = Judge(problem, inputs)
    serial = torch.zeros(8, 8)
    for a, b in zip(inputs.a.unbind(1), inputs.b.unbind(0), strict=True):
        serial += a[:, None] * b
    assert judge.judge(serial).ok

    def short(tensor: torch.Tensor) -> torch.Tensor:
        return ((tensor.view(torch.int32) + (1 << 12)) & ~0x1FFF).view(torch.float32)

    assert not judge.judge(short(inputs.a) @ short(inputs.b)).ok


@pytest.mark.parametrize("m, n, rows, few", [(1, 16, 1, True), (1, 17, 1, False), (8, 8, 2, True), (16, 16, 1, False)])
def test_16_elements_that_are_not_zero_are_few_among_less_than_256(m, n, rows, few):
    problem = Matmul(m, n, 64)
    inputs = problem.inputs("cpu")
    inputs.a[rows:] = 0
    judge = Judge(problem, inputs)
    found = judge.judge(judge.torch_answer)
    assert (found.rms_bound == found.bound) is few


def test_an_error_is_told_as_a_multiple_of_torchs():
    assert [Accuracy(*errors, bound=1).times_torch for errors in ((0.2, 0.1), (0, 0.1), (0, 0))] == [2, 0, 1]
    assert Accuracy(1, 0, bound=1).times_torch == float("inf")


def test_the_studys_tolerances_are_told_beside_the_bound():
    """2e-2 of each element and 1e-2 more, on A and B that are both standard normal: 32 times ours at K = 1024."""
    problem = Matmul(8, 8, 1024, torch.bfloat16)
    judge = Judge(problem, problem.inputs("cpu"))
    out = judge.torch_answer.clone()
    assert judge.judge(out).times_study == 0
    element = out[3, 4].item()
    out[3, 4] += 0.5 * (2e-2 * abs(element) + 1e-2 / 32)
    assert judge.judge(out).times_study == pytest.approx(0.5)
    out[:] = float("nan")
    assert judge.judge(out).times_study != judge.judge(out).times_study
    fp32 = Matmul(8, 8, 1024, torch.float32)
    judge = Judge(fp32, fp32.inputs("cpu"))
    element = judge.torch_answer[0, 0].item()
    judge.torch_answer[0, 0] += 3 * (1e-4 * abs(element) + 1e-3 / 32)
    assert 2.9 < judge.judge(judge.reference).times_study < 3.1


@pytest.mark.parametrize("problem", cases.PROBLEMS, ids=lambda problem: problem.name)
def test_inputs_are_the_same_every_time_and_laid_out_as_asked(problem):
    once, again = problem.inputs("cpu", seed=3), problem.inputs("cpu", seed=3)
    assert torch.equal(once.a, again.a) and torch.equal(once.b, again.b)
    stored = once.b if problem.layout.value == "kn" else once.b.T
    assert stored.is_contiguous() and once.b.shape == (problem.k, problem.n)
    if problem.m * problem.k > 8:
        assert not torch.equal(once.a, problem.inputs("cpu", seed=4).a)


def test_work_and_bytes_of_a_product_are_counted_by_hand():
    """[2, 5] by [5, 3]: 30 multiply-adds; 10, 15 and 6 elements, and 3 of a bias."""
    problem = Matmul(2, 3, 5)
    assert (problem.flops, problem.least_bytes) == (60, 2 * (10 + 15 + 6))
    fused = Matmul(2, 3, 5, out_dtype=torch.float32, epilogue=Epilogue.BIAS_RELU)
    assert (fused.flops, fused.least_bytes) == (60, 2 * (10 + 15 + 3) + 4 * 6)
    assert Matmul(2, 3, 5, torch.float32).least_bytes == 4 * (10 + 15 + 6)
