"""stream_k, in every language that has it; and how each shares its work out."""

import random

import matmul_cases as cases
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus import stream_k as tilus_stream_k
from triton_vs_tilus.kernels_triton.interpreter import programs_in
from triton_vs_tilus.kernels_triton.stream_k import ProgramsConfig, matmul, program_of, share_begin


class TestStreamK(cases.ArrivalTests):
    name = "stream_k"


@triton.jit
def _shares_kernel(begin_ptr, program_ptr, work, programs):
    for program in range(programs + 1):
        tl.store(begin_ptr + program, share_begin(program, work // programs, work % programs))
    for step in range(work):
        tl.store(program_ptr + step, program_of(step, work // programs, work % programs))


@pytest.mark.parametrize(("work", "programs"), [(1, 1), (7, 7), (8, 7), (13, 7), (14, 7), (50, 1), (896, 264)])
def test_shares_are_even_and_every_step_has_its_program(work, programs, device):
    begins = torch.empty(programs + 1, dtype=torch.int32, device=device)
    owners = torch.empty(work, dtype=torch.int32, device=device)
    _shares_kernel[(1,)](begins, owners, work, programs)
    assert begins[0] == 0 and begins[-1] == work
    shares = begins.diff()
    assert shares.min() >= 1 and shares.max() - shares.min() <= 1
    assert owners.tolist() == torch.repeat_interleave(torch.arange(programs), shares.cpu()).tolist()


def problems(**given) -> st.SearchStrategy[Matmul]:
    """Of up to 40 x 40, in fp16."""
    return st.builds(Matmul, m=st.integers(1, 40), n=st.integers(1, 40), dtype=st.just(torch.float16), **given)


def _shuffled(points):
    return random.Random(0).sample(points, len(points))


@pytest.mark.skipif(not triton.knobs.runtime.interpret, reason="kernels are compiled here, not interpreted")
@settings(max_examples=40, deadline=None)
@given(
    problem=problems(k=st.integers(1, 160), layout=st.sampled_from(Layout)),
    programs=st.integers(1, 40),
    group_m=st.integers(1, 3),
    order=st.sampled_from([_shuffled, lambda points: points[::-1]]),
)
def test_any_number_of_programs_in_any_order(problem, programs, group_m, order):
    a, b, _ = problem.inputs("cpu")
    config = ProgramsConfig(16, 16, 32, 1, 1, 2, group_m=group_m, programs=programs)
    natural = matmul(a, b, config=config)
    assert Judge(problem, problem.inputs("cpu")).judge(natural, 1).ok
    with programs_in(order):
        assert torch.equal(matmul(a, b, config=config), natural)


@pytest.mark.parametrize(("changed", "words"), [({"split_k": 2}, "split_k is 2"), ({"programs": 0}, "programs is 0")])
def test_configs_that_are_none_are_refused(changed, words):
    problem = Matmul(16, 32, 256)
    a, b, _ = problem.inputs("cpu")
    with pytest.raises(ValueError, match=words):
        matmul(a, b, config=cases.replace(ProgramsConfig(16, 16, 32, 1, 1, 2), **changed))


@settings(max_examples=40, deadline=None)
@given(
    problem=problems(k=st.integers(1, 100).map(lambda pairs: 2 * pairs), layout=st.just(Layout.NK)),
    block_k=st.sampled_from([16, 32, 128]),
    num_stages=st.integers(2, 5),
    programs=st.integers(1, 60),
    schedule=st.builds(
        interpreter.Schedule,
        order=st.sampled_from(["natural", "reversed", "random"]),
        resident=st.none() | st.integers(1, 8),
        launch=st.sampled_from(["natural", "reversed", "random"]),
        seed=st.integers(0, 99),
    ),
)
def test_any_number_of_blocks_in_any_order(problem, block_k, num_stages, programs, schedule):
    """Tiles shorter than the pipeline, shared tiles, whole ones: the interpreter finds no race between them."""
    a, b, _ = problem.inputs("cpu")
    config = tilus_stream_k.ProgramsConfig(16, 16, block_k, 1, 2, num_stages, programs=programs)
    natural = tilus_stream_k.matmul(a, b, config=config)
    assert Judge(problem, problem.inputs("cpu")).judge(natural, 1).ok
    with interpreter.using(schedule):
        assert torch.equal(tilus_stream_k.matmul(a, b, config=config), natural)
