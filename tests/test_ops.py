"""Every operation through the same referee, rotation, journal, tables and tuned tables."""

import dataclasses
from dataclasses import replace
from itertools import pairwise

import made_rows
import msgspec
import pytest
import torch
from msgspec import structs

from triton_vs_tilus.bench import workloads
from triton_vs_tilus.bench.contenders import all_contenders, find
from triton_vs_tilus.bench.measure import rotation
from triton_vs_tilus.bench.measure.clock import rotation_sets
from triton_vs_tilus.bench.measure.referee import Fault, Referee
from triton_vs_tilus.bench.ops import BASELINES, OPS
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.row import ProblemRecord, Row, SearchRecord
from triton_vs_tilus.bench.search.table import write_table
from triton_vs_tilus.bench.show import tables
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.chain import Chain
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.or_reduce import OrReduce, OrReduceConfig
from triton_vs_tilus.common.problem import Layout, Matmul, Problem
from triton_vs_tilus.common.tensors import mapped, named_tensors
from triton_vs_tilus.common.w4a16 import W4A16Matmul

CPU = torch.device("cpu")
LISTED = [problem for suite in workloads.SUITES for problem in suite.problems(None, workloads.Asked())]
SMALL = [Matmul(3, 16, 64, layout=Layout.NK), OrReduce(5, 7, 3), W4A16Matmul(2, 32, 128), Chain(3, 16, 64, top_k=2)]
OR = SMALL[1]

each_small = pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.op)


def test_every_contender_solves_a_known_operation_and_every_operation_has_its_baseline():
    known = all_contenders()
    assert {kernel.op for kernel in known} <= set(OPS)
    for name, op in OPS.items():
        assert find(op.baseline).op == name == op.problem.op


def test_every_listed_problem_has_a_name_of_its_own_and_comes_back_from_its_fields():
    distinct = set(LISTED)
    assert len({problem.name for problem in distinct}) == len(distinct)
    for problem in distinct:
        record = msgspec.json.encode(ProblemRecord.from_problem(problem))
        assert msgspec.json.decode(record, type=ProblemRecord).to_problem() == problem
        assert problem.key.keys() <= problem.fields.keys()
    assert {problem.op for problem in distinct} == set(OPS)


@each_small
def test_the_referee_passes_the_baseline_and_fails_what_writes_nothing(problem):
    referee = Referee(problem, CPU, seed=0)
    baseline = find(OPS[problem.op].baseline)
    accuracy, equal = referee.examine(rotation.launcher(baseline, problem, None), 1, deterministic=True)
    assert accuracy.ok and equal
    with pytest.raises(Fault, match="elements are"):
        referee.judged(lambda inputs, out: out, roundings=1)


def test_one_wrong_bit_of_an_integer_is_wrong():
    referee = Referee(OR, CPU, seed=0)
    honest = rotation.launcher(find("torch/bitwise_or"), OR, None)

    def flips_one(inputs, out):
        honest(inputs, out)
        out[1, 2] ^= 1 << 40
        return out

    with pytest.raises(Fault, match="1 of 35 elements are not right to the bit"):
        referee.judged(flips_one, roundings=1)


def test_a_changed_part_of_the_inputs_is_named():
    problem = SMALL[2]

    def spoils_scales(inputs, out):
        inputs.weight.scales.mul_(2)
        return out.copy_(problem.torch_answer(inputs))

    with pytest.raises(Fault, match=r"changes its input weight\.scales"):
        Referee(problem, CPU, seed=0).judged(spoils_scales, roundings=1)


class SmallCache:
    l2_bytes = 1 << 12


@each_small
def test_the_rotation_shares_inputs_and_lays_out_once(problem):
    held = rotation.Rotation(problem, CPU, rotation_sets(problem.least_bytes, SmallCache.l2_bytes))
    laid_out = []

    def arguments(problem: Problem, inputs):
        laid_out.append(inputs)
        return problem.arguments(inputs)

    kernel = replace(find(OPS[problem.op].baseline), variant="laid_out", arguments=arguments)
    sets = [held.arguments(kernel, config) for config in (None, "another")][1]
    assert len(laid_out) == len(sets) >= 2  # once for both configs
    assert sum(of.nbytes for of in sets) > 3 * SmallCache.l2_bytes
    assert all(of.kwargs["config"] == "another" for of in sets)
    addresses = [{tensor.data_ptr() for _, tensor in named_tensors(of)} for of in sets]
    assert all(not one & other for one, other in pairwise(addresses))
    for of, read in zip(sets, held.reads(), strict=True):
        assert {tensor.data_ptr() for tensor in read} == {tensor.data_ptr() for _, tensor in named_tensors(of)}


@each_small
def test_calls_of_the_rotation_are_right(problem, monkeypatch):
    monkeypatch.setattr(rotation, "clock_of", lambda device: SmallCache)
    baseline = find(OPS[problem.op].baseline)
    timed = rotation.timed("baseline", baseline, problem, None, CPU)
    rotation.rotation_of.cache_clear()
    before = [timed.call(index).clone() for index in range(2)]
    assert not torch.equal(*before)  # each set has its own numbers
    assert [timed.fault(index, result) for index, result in enumerate(before)] == [None, None]
    versions = [tensor._version for _, tensor in named_tensors(timed.argument_sets[1].args)]
    for _ in range(5):  # a window of a small reservoir may come again
        timed.refill([1])
        if timed.fault(1, before[1]):
            break
    assert versions == [tensor._version for _, tensor in named_tensors(timed.argument_sets[1].args)]
    assert timed.fault(0, before[0]) is None and timed.fault(1, before[1])
    assert timed.fault(1, timed.argument_sets[1].kwargs["out"])  # it holds no answer
    assert timed.fault(1, timed.call(1)) is None


def test_what_a_constant_needs_read_is_one_element():
    problem = replace(OR, constant=True)
    inputs = problem.inputs(CPU)
    assert [tensor.numel() for tensor in problem.operands(inputs)] == [1]
    assert len(inputs.a.unique()) == 1


def row_of(kernel: Kernel, problem: Problem, us: float, **values) -> Row:
    """A made-up row of any operation, told by one of a product."""
    made = made_rows.row(us=us, baseline_us=10.0)
    own = {"contender": kernel.full_name, "language": kernel.language.value, "protocol": kernel.protocol.value}
    timing = made.timing
    if kernel.full_name in BASELINES:
        timing = {mode: msgspec.structs.replace(figures, verdict="baseline") for mode, figures in timing.items()}
    return msgspec.structs.replace(made, problem=ProblemRecord.from_problem(problem), timing=timing, **own, **values)


@each_small
def test_tables_tell_times_the_baseline_of_the_operation(problem):
    baseline = find(OPS[problem.op].baseline)
    rows = [row_of(baseline, problem, 10.0), row_of(find("triton/or_reduce.reduce"), problem, 5.0)]
    name = baseline.full_name.replace("/", ".")
    assert f"x {name}" in tables.problem_table(rows).header
    assert f"x: times as fast as {name};" in tables.overview_table(rows).foot
    (line,) = tables.summary_table(rows).lines[:1]
    assert line[:2] == ["triton", "data_parallel"]  # the baseline is in no group


def test_rows_of_two_operations_stand_in_one_table():
    rows = [row_of(find(OPS[problem.op].baseline), problem, 10.0) for problem in SMALL]
    assert "x: times as fast as the baseline;" in tables.overview_table(rows).foot


def test_a_command_names_the_problem():
    command = command_of(OR, "triton/or_reduce.reduce", ["cold"], {})
    assert command == ("python bench/compare.py --problem or-5x7x3-int64 --only triton/or_reduce.reduce --timing cold")


def test_listed_problems_are_found_by_name_and_picked_by_what_is_asked():
    name = "or-2048x4096x16-int64"
    ((suite, problem),) = workloads.problems(None, names=[name])
    assert (suite, problem.name) == ("or_reduce-int64", name)
    picked = workloads.problems("w4a16", dtype="bf16")
    assert picked and all(problem.dtype is torch.bfloat16 for _, problem in picked)
    with pytest.raises(ValueError, match="accepted with --workload"):
        workloads.problems("or_reduce", epilogue="relu")
    with pytest.raises(ValueError, match="no problem of layout nk"):
        workloads.problems("or_reduce", layout="nk")
    with pytest.raises(ValueError, match="problem is 'or-1x1x1-int8'"):
        workloads.problems(None, names=["or-1x1x1-int8"])


def test_what_a_search_found_is_taken_for_the_nearest_problem(tuned_tables):
    kernel = find("triton/or_reduce.reduce")
    found = {OrReduce(64, 128, 4): OrReduceConfig(32, 1), OrReduce(64, 128, 16): OrReduceConfig(64, 2)}
    searched = [
        structs.replace(
            row_of(kernel, problem, 5.0, config=dataclasses.asdict(config), config_source="search"),
            search=SearchRecord(tried=1, space=2, out_of_time=False, us=5.0, seconds=1.0, build_seconds=2.0),
        )
        for problem, config in found.items()
    ]
    write_table("gpu", searched)
    for problem, config in found.items():
        assert tuned.pick(kernel, problem, "gpu") == (config, "tuned")
    assert tuned.pick(kernel, OrReduce(128, 128, 5), "gpu") == (OrReduceConfig(32, 1), "nearest")
    assert tuned.pick(kernel, OrReduce(64, 128, 16, torch.int32), "gpu") == (OrReduceConfig(64, 2), "nearest")


def test_tensors_are_found_and_changed_wherever_they_are():
    inputs = SMALL[2].inputs(CPU)
    assert [name for name, _ in named_tensors(inputs)] == ["a", "weight.qweight", "weight.scales", "weight.qzeros"]
    copied = mapped(torch.clone, inputs)
    pairs = list(zip(named_tensors(inputs), named_tensors(copied), strict=True))
    assert all(torch.equal(one, other) and one.data_ptr() != other.data_ptr() for (_, one), (_, other) in pairs)
    assert [name for name, _ in named_tensors({"x": [inputs.a], "y": (None, 3)})] == ["x.0"]
