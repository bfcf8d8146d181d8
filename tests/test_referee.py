"""The referee alone, on CPU tensors: what it does on a GPU, too, with a function in place of what a GPU would do."""

from contextlib import nullcontext

import pytest
import torch

from triton_vs_tilus.bench.measure.referee import KNOWN, REPEATS, SECRET, Fault, Referee
from triton_vs_tilus.common.problem import Layout, Matmul

PROBLEM = Matmul(8, 16, 64, layout=Layout.NK)
CPU = torch.device("cpu")


def product(inputs, out):
    return torch.mm(inputs.a, inputs.b, out=out)


@pytest.fixture
def referee() -> Referee:
    return Referee(PROBLEM, CPU, seed=0)


@pytest.fixture
def on_a_gpu(referee, monkeypatch) -> Referee:
    """One whose device is a GPU by its name; nothing is late there."""
    monkeypatch.setattr(referee, "device", torch.device("cuda"))
    monkeypatch.setattr(referee, "_synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    return referee


def test_each_contender_has_secret_inputs_of_its_own_and_known_ones_of_the_seed(referee):
    seen = []

    def call(inputs, out):
        seen.append(inputs.a.clone())
        return product(inputs, out)

    examined = []
    for _ in range(2):
        seen.clear()
        referee.examine(call, roundings=1, deterministic=True)
        examined.append(list(seen))
    known = PROBLEM.inputs(CPU, 0).a
    for tensors in examined:
        assert [torch.equal(tensor, known) for tensor in tensors] == [True, False, True, True]
    assert not torch.equal(examined[0][1], examined[1][1])


def test_the_error_that_is_told_is_that_on_the_known_inputs(referee):
    accuracy, _ = referee.examine(product, roundings=1, deterministic=True)
    assert accuracy == Referee(PROBLEM, CPU, seed=0).judged(product, 1, KNOWN)
    assert accuracy != referee.judged(product, 1, SECRET)


def test_who_changes_the_answers_costs_those_who_follow_nothing(referee):
    def spoils(inputs, out):
        for which in (KNOWN, SECRET):
            referee._judge(which).reference.fill_(0.0)
        return out.zero_().add_(1.0)

    with pytest.raises(Fault):
        referee.examine(spoils, roundings=1, deterministic=True)
    assert referee.examine(product, roundings=1, deterministic=True)[0].ok


def test_what_is_written_once_the_gpu_is_waited_for_is_too_late(referee, monkeypatch):
    pending = []

    def wait():
        while pending:
            pending.pop()()

    def call(inputs, out):
        pending.append(lambda: product(inputs, out))
        return out

    monkeypatch.setattr(referee, "_synchronize", wait)
    with pytest.raises(Fault, match="128 of 128 elements are NaN"):
        referee.judged(call, 1)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda out: out.float(), r"returns torch.float32 \(8, 16\) on cpu; expected torch.bfloat16"),
        (lambda out: out.t(), r"returns torch.bfloat16 \(16, 8\) on cpu"),
        (lambda out: torch.empty_like(out, device="meta"), r"\(8, 16\) on meta; expected"),
    ],
    ids=["dtype", "shape", "device"],
)
def test_a_result_of_another_kind_is_told(referee, result, told):
    with pytest.raises(Fault, match=told):
        referee.judged(lambda inputs, out: result(product(inputs, out)), 1)


def test_one_byte_outside_of_the_output_is_told(referee):
    def call(inputs, out):
        after = torch.empty(0, dtype=torch.uint8).set_(out.untyped_storage())
        after[(out.storage_offset() + out.numel()) * out.itemsize] = 0
        return product(inputs, out)

    with pytest.raises(Fault, match="1 bytes after it"):
        referee.judged(call, 1)


def test_what_is_returned_unwritten_is_no_answer_of_before(referee, monkeypatch):
    """Whatever the output or an allocation of its size held."""
    spoiled = []
    monkeypatch.setattr(
        torch, "empty_like", lambda like, real=torch.empty_like: spoiled.append(real(like)) or spoiled[-1]
    )
    referee.judged(product, 1)
    assert len(spoiled) == 8 and all(tensor.isnan().all() for tensor in spoiled)
    with pytest.raises(Fault, match="128 of 128 elements are NaN"):
        referee.judged(lambda inputs, out: out, 1)


@pytest.mark.parametrize("different", range(REPEATS))
def test_on_a_gpu_one_repeat_that_differs_is_enough(on_a_gpu, monkeypatch, different):
    monkeypatch.setattr(on_a_gpu, "_on_a_late_stream", lambda call, roundings: None)
    calls = []

    def call(inputs, out):
        calls.append(None)
        product(inputs, out)
        if len(calls) == 3 + 1 + different:  # after both inputs and the first of the repeats
            out.view(torch.int16)[0, 0] ^= 1
        return out

    assert on_a_gpu.examine(call, roundings=2, deterministic=False)[1] is False and len(calls) == 3 + REPEATS
    calls.clear()
    with pytest.raises(Fault, match=f"claims to be deterministic; 1 of {REPEATS} repeats differ"):
        on_a_gpu.examine(call, roundings=2, deterministic=True)


def test_on_a_gpu_work_that_begins_before_the_streams_is_out_of_order(on_a_gpu, monkeypatch):
    before = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: before.append(on_a_gpu._handed.a.clone()))

    def early(inputs, out):
        return torch.mm(before.pop() if before else inputs.a, inputs.b, out=out)

    with pytest.raises(Fault, match="its work is not in the order of the current stream"):
        on_a_gpu.examine(early, roundings=1, deterministic=True)
    assert on_a_gpu.examine(product, roundings=1, deterministic=True)[1] is True and len(before) == 1
    assert torch.equal(before[0], on_a_gpu.inputs[KNOWN].a)
