"""The referee against adversaries: each gets its own row with the right status, and costs no other its row."""

import os
import sys
import threading
from dataclasses import asdict, replace
from functools import partial
from math import inf
from typing import Any

import adversaries
import pytest
import torch
import verdicts
from msgspec import structs
from verdicts import name_of, rows_of

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.bench.measure import floor, suspicion, threads, worker
from triton_vs_tilus.bench.measure.clock import Arguments, Clocks, NotTimed, Samples, Timed
from triton_vs_tilus.bench.measure.nvml import Reading
from triton_vs_tilus.bench.measure.process import NO_ANSWER, Child, Died
from triton_vs_tilus.bench.measure.worker import AGAIN, Failure, Options, Result, Timing
from triton_vs_tilus.bench.rows.journal import read_verdicts
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    CRASHED,
    OUT_OF_MEMORY,
    PASSED,
    SUSPICIOUS,
    TIMED_OUT,
    WRONG,
    AccuracyRecord,
    EnvironmentRecord,
)
from triton_vs_tilus.bench.search.race import BUDGETS, SearchResult
from triton_vs_tilus.common.accuracy import Accuracy
from triton_vs_tilus.common.problem import Layout, Matmul

pytestmark = pytest.mark.xdist_group("worker")  # its fixtures are long: once, not once a process

PROBLEM = Matmul(8, 16, 64, layout=Layout.NK)

EXPECTED = verdicts.ANYWHERE | {
    "writes_nothing": (WRONG, "128 of 128 elements are NaN"),
    "writes_half": (WRONG, "64 of 128 elements are NaN, which the output was filled with; 0 of the others"),
    "spoils_the_answer": (WRONG, "128 of 128 elements are NaN"),
    "wrong_shape": (WRONG, "(16, 8)"),
    "no_such_function": (CRASHED, "no_such_function"),
}


@pytest.fixture(scope="module")
def checked():
    """An abort takes a while on a busy machine, and a hang its whole deadline: it has another, and one who follows."""
    others = [name for name in EXPECTED if name not in ("hangs", "honest")]
    rows = rows_of(others, Options(device="cpu", deadline_s=30.0), PROBLEM)
    return rows_of(["hangs", "honest"], Options(device="cpu", deadline_s=5.0), PROBLEM) | rows


@pytest.mark.parametrize("function", EXPECTED)
def test_everyone_gets_the_right_row(checked, function):
    row = checked[function]
    status, message = EXPECTED[function]
    assert row.status == status and message in row.message, row.message
    assert (row.accuracy != AccuracyRecord()) == (status == PASSED)
    assert row.command.endswith(f"--only {name_of(function)} --timing cold,graph,warm,host")


def test_the_baseline_is_judged_like_anyone(checked):
    row = checked[BASELINE]
    assert row.status == PASSED and row.accuracy.times_torch == 1.0 and row.bitwise_equal


def test_without_a_gpu_nothing_is_timed(checked):
    assert all(row.timing == {} and not row.clocks.available and row.clocks.reason for row in checked.values())


def test_verdicts_are_kept_as_lines(checked, tmp_path):
    path = tmp_path / "referee" / "adversaries.jsonl"
    expected = {"honest": (PASSED, ""), "writes_nothing": (WRONG, "stale")}
    kept = [verdicts.verdict(checked[function], expected[function]) for function in expected]
    verdicts.keep(path, kept)
    assert kept == read_verdicts(path) and [each.as_expected for each in kept] == [True, False]
    assert not structs.replace(kept[0], status=WRONG).as_expected
    assert [(each.adversary, each.status) for each in kept] == [("honest", PASSED), ("writes_nothing", WRONG)]
    assert kept[1].message == checked["writes_nothing"].message and kept[1].environment.torch


def test_a_run_on_a_gpu_that_was_cut_off_goes_on(checked, tmp_path, monkeypatch):
    asked, path = [], tmp_path / "adversaries.jsonl"
    monkeypatch.setattr(verdicts, "rows_on_a_gpu", lambda group: asked.append(group) or rows_of_all(group))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sys, "argv", ["verdicts.py", str(path), "--resume"])

    def rows_of_all(group):
        return {function: structs.replace(checked["honest"], contender=name_of(function)) for function in group}

    first, *others = verdicts.GROUPS
    rows = rows_of_all(first)
    verdicts.keep(path, [verdicts.verdict(rows[function], verdicts.ON_A_GPU[function]) for function in first])
    assert verdicts.main() == 1 and asked == others
    assert [each.adversary for each in read_verdicts(path)] == list(verdicts.ON_A_GPU)


def test_no_candidate_runs_code_in_the_parent(checked):
    assert "A_CANDIDATE_RAN" not in os.environ


HELPERS = "has_the_judge_forget", "keeps_its_process", "replaces_what_the_worker_calls", "stands_in_for_the_worker"


def test_who_keeps_a_spoiled_process_alive_helps_nobody(checked):
    """The parent ends it by the answer of the one who spoiled it."""
    in_turn = list(EXPECTED)
    for helper in HELPERS:
        accomplice = in_turn[in_turn.index(helper) + 1]
        assert checked[helper].status == checked[accomplice].status == WRONG
        assert "over the bound" in checked[accomplice].message


@pytest.mark.parametrize("function", verdicts.ON_A_GPU)
def test_every_adversary_of_a_gpu_says_what_it_does(function):
    assert getattr(adversaries, function).__doc__


def checked_here(function: str) -> Result:
    return worker._check(PROBLEM, name_of(function), None, torch.device("cpu"), 0, announce=lambda name: None)


def test_repeats_that_differ_are_told():
    found = checked_here("differs_now_and_then")
    assert found.status == PASSED and found.bitwise_equal is False


def test_a_false_claim_of_determinism_is_wrong():
    from triton_vs_tilus.bench.measure.referee import Fault, Referee

    referee = Referee(PROBLEM, torch.device("cpu"), seed=0)
    calls = iter(range(100))

    def call(inputs, out):
        torch.mm(inputs.a, inputs.b, out=out)
        out[0, 0] *= 1 + next(calls) % 2 * torch.finfo(out.dtype).eps
        return out

    assert referee.examine(call, roundings=2, deterministic=False)[1] is False
    with pytest.raises(Fault, match="deterministic"):
        referee.examine(call, roundings=2, deterministic=True)


class ScriptedChild:
    """Answers a timing with what the script says of whoever takes part; else with made-up samples."""

    def __init__(self, script: dict[tuple[str, str], Failure | Died]):
        self.script = script
        self.took_part: list[tuple[str, tuple[str, ...]]] = []
        self.stopped = 0

    def call(self, function, problem, configs, mode, with_floor, options):
        assert function is worker._time
        self.took_part.append((mode, tuple(configs)))
        for name in [*configs, *(["floor/read"] if with_floor else [])]:
            answer = self.script.get((mode, name))
            if isinstance(answer, Died):
                raise answer
            if answer is not None:
                return answer
        clocks = Clocks([Reading(1980, 300, 40), Reading(1965, 310, 45)], 1, "")
        names = [*configs, AGAIN, *(["floor/launch", "floor/read"] if with_floor else [])]
        samples = {name: Samples(name, mode, [[10.0]] * options.rounds, clocks, order_seed=7) for name in names}
        return samples, dict.fromkeys(configs, 0.5)

    def stop(self):
        self.stopped += 1


def timed(script, names=(BASELINE, "a", "b", "c"), timings=("cold", "warm")):
    child, timing = ScriptedChild(script), Timing()
    results = {name: Result(PASSED, accuracy=Accuracy(0.1, 0.1, 1.0)) for name in names}
    playing = list(names)
    failed = list(worker._timed(child, PROBLEM, playing, results, timing, Options(timings=timings, rounds=4)))
    assert set(failed) | set(playing) == set(names) and not set(failed) & set(playing)
    return child, results, timing, failed


def test_all_are_timed_together_in_every_mode():
    child, results, timing, failed = timed({})
    assert child.took_part == [("cold", (BASELINE, "a", "b", "c")), ("warm", (BASELINE, "a", "b", "c"))]
    assert not failed and all(result.error_after == 0.5 for result in results.values())
    cold = timing.records("a", seed=0)["cold"]
    assert (cold.speedup, cold.verdict, cold.times_floor, cold.rounds) == (1.0, "tie", 1.0, 4)
    assert timing.records(BASELINE, seed=0)["warm"].verdict == "baseline"
    assert timing.noise() == {"cold": 0.0, "warm": 0.0}
    assert timing.clocks().sm_mhz == [1965, 1980] and timing.clocks().repeated_rounds == 2


def test_who_is_faster_than_an_empty_launch_is_suspicious():
    _, _, timing, _ = timed({})
    assert timing.suspicion("a") == ""
    samples = timing.samples["warm"]["b"]
    timing.samples["warm"]["b"] = replace(samples, rounds=[[1.0]] * 4)
    assert timing.suspicion("b") == "warm: 1.00 us is faster than an empty launch, 10.00 us"
    timing.timeline_us["c"] = 12.0
    assert timing.suspicion("c").startswith("cold: 10.00 us by events, 12.00 us by the GPU's timeline")
    timing.samples["cold"]["c"] = replace(samples, rounds=[[20.0]] * 4)  # warm it is faster than on the cold timeline
    assert timing.suspicion("c") == ""


def test_who_is_faster_than_an_empty_launch_within_the_noise_is_not_suspicious():
    _, _, timing, _ = timed({})
    for name, us in ((AGAIN, 9.5), ("b", 9.6)):
        timing.samples["warm"][name] = replace(timing.samples["warm"][name], rounds=[[us]] * 4)
    assert timing.suspicion("b") == ""


@pytest.mark.parametrize(
    "answer, status",
    [
        (Died("killed by SIGSEGV", "b", timed_out=False), CRASHED),
        (Died("no end", "b", timed_out=True), TIMED_OUT),
        (Failure("b", OUT_OF_MEMORY, "none left"), OUT_OF_MEMORY),
        (Failure("b", WRONG, "its work is not in the CUDA graph"), WRONG),
    ],
)
def test_who_was_running_is_out_and_the_rest_are_timed_again(answer, status):
    child, results, timing, failed = timed({("warm", "b"): answer})
    assert failed == ["b"] and results["b"].status == status and "while timed warm" in results["b"].message
    assert child.took_part[1:] == [("warm", (BASELINE, "a", "b", "c")), ("warm", (BASELINE, "a", "c"))]
    assert set(timing.samples["warm"]) >= {BASELINE, "a", "c"} and child.stopped == 1


def test_who_cannot_be_timed_one_way_is_timed_the_others():
    child, results, timing, failed = timed(
        {("warm", "b"): Failure("b", PASSED, "cannot be captured")}, timings=("warm", "cold")
    )
    assert not failed and results["b"].message == "not timed warm: cannot be captured"
    assert set(timing.records("b", seed=0)) == {"cold"} and set(timing.records("a", seed=0)) == {"warm", "cold"}
    assert child.took_part[-1] == ("cold", (BASELINE, "a", "b", "c"))


def test_a_floor_that_fails_is_left_out_and_told():
    _, results, timing, failed = timed(
        {("cold", "floor/read"): Failure("floor/read", CRASHED, "no")}, timings=("cold",)
    )
    assert not failed and timing.floor() == {} and "no floor" in results["a"].message
    assert timing.records("a", seed=0)["cold"].times_floor is None


@pytest.mark.parametrize("name", [BASELINE, AGAIN])
def test_without_the_baseline_nothing_is_compared(name):
    answer = Failure(name, CRASHED, "no")
    child, results, _, failed = timed({("warm", BASELINE): answer}, timings=("cold", "warm", "host"))
    assert failed == [BASELINE] and "not timed warm" in results["a"].message and results["a"].status == PASSED
    assert [mode for mode, _ in child.took_part] == ["cold", "warm"]


def test_a_death_that_is_nobodys_is_everybodys():
    _, results, _, failed = timed({("cold", BASELINE): Died("OutOfMemoryError: sets", None, timed_out=False)})
    assert set(failed) == {BASELINE, "a", "b", "c"}
    assert all(result.status == OUT_OF_MEMORY for result in results.values())


@pytest.mark.parametrize("announced", ["bogus", "floor/read"])
def test_a_death_under_a_name_that_takes_no_part_is_everybodys(announced):
    """The name of a floor where none is timed, and one of nobody."""
    death = Died("exit code 3", announced, timed_out=False)
    child, results, _, failed = timed({("host", BASELINE): death}, timings=("host",))
    assert set(failed) == {BASELINE, "a", "b", "c"} and len(child.took_part) == 1
    assert all(announced in result.message and result.status == CRASHED for result in results.values())


@pytest.mark.gpu
@pytest.mark.xdist_group("on_the_device")  # beside the others, whose hangs take as long
class TestOnTheDevice:
    @pytest.fixture(scope="class")
    def rows(self, request):
        return verdicts.rows_on_a_gpu(request.param)

    @pytest.mark.parametrize("rows", [verdicts.GROUPS[0]], ids=["honest"], indirect=True)
    @pytest.mark.parametrize("function", [BASELINE, "honest", "honest_without_out"])
    def test_the_honest_are_timed_every_way(self, rows, function):
        row = rows[function]
        assert set(row.timing) == {"cold", "graph", "warm", "host"}
        assert row.timing["cold"].median_us > row.timing["graph"].median_us > row.timing["warm"].median_us > 0
        assert 0 < row.timeline_us < suspicion.BUSIER * row.timing["cold"].median_us
        assert row.timing["cold"].times_floor > 1 > row.noise["cold"]
        assert row.floor["cold"].read_us > row.floor["cold"].launch_us > 0
        assert row.accuracy.error_after <= row.accuracy.bound

    # The other processes of this suite share its CPUs and its GPU: what differs is timed again, twice at most.
    @pytest.mark.parametrize("rows", [verdicts.GROUPS[0]], ids=["honest"], indirect=True)
    def test_the_same_work_is_a_tie_or_nearly(self, rows):
        def apart():
            return abs(rows["honest"].timing["cold"].speedup - 1), rows[BASELINE].noise["cold"]

        for _ in range(2):
            if max(apart()) > 0.02:
                rows = rows_of(["honest"], Options(deadline_s=20.0, timings=("cold",)), verdicts.PROBLEM)
        speedup, noise = apart()
        assert speedup < 0.05 and noise < 0.02

    @pytest.mark.parametrize(
        ("rows", "function"),
        [pytest.param(group, function, id=function) for group in verdicts.GROUPS for function in group],
        indirect=["rows"],
    )
    def test_everyone_gets_the_right_row(self, rows, function):
        verdict = verdicts.verdict(rows[function], verdicts.ON_A_GPU[function])
        assert verdict.as_expected, (verdict.status, verdict.message)


def test_a_long_message_is_cut():
    found = checked_here("raises_at_length")
    message = worker._shortened(found.message)
    assert found.status == CRASHED and message.startswith("ValueError: aaa")
    assert message.endswith("aaa ... (10000012 characters, the rest is cut)") and len(message) < 1100


class Checkers:
    """Stands for Children that find everyone right."""

    count = 8

    def completed(self, function, calls, seconds):
        return [(index, Result(PASSED)) for index in range(len(calls))]


def checked_beside_each_other(problem: Matmul, *names: str) -> list[tuple[str, str]]:
    options, kernels = Options(timings=(), device="cpu"), [find(name) for name in names]
    return [(row.status, row.message) for row in worker.check("made", problem, kernels, options, Checkers(), 1.0)]


def test_a_problem_beyond_the_memory_is_not_tried():
    ((status, message),) = checked_beside_each_other(Matmul(100_000, 100_000, 100_000), BASELINE)
    assert status == OUT_OF_MEMORY and message.startswith("the check needs 670.6 GiB; ")


def test_checks_that_run_at_once_share_the_memory(monkeypatch):
    problem, names = Matmul(4096, 4096, 4096), (BASELINE, TRITON, TILUS)
    needed = 12 * problem.least_bytes
    monkeypatch.setattr(worker, "_available_bytes", lambda: 3 * needed)
    assert checked_beside_each_other(problem, *names) == [(PASSED, "")] * 3
    monkeypatch.setattr(worker, "_available_bytes", lambda: 3 * needed - 1)
    told = "the check needs 1.1 GiB, and 3 run at once; 3.4 GiB are available"
    assert checked_beside_each_other(problem, *names) == [(OUT_OF_MEMORY, told)] * 3
    assert checked_beside_each_other(problem, BASELINE) == [(PASSED, "")]


def test_languages_are_held_against_each_other_round_by_round():
    """A drift over rounds that both have cancels; who was not timed beside it is held against nobody."""
    drift = [1.0, 1.5, 2.0, 3.0, 5.0]
    clocks = Clocks([], 0, "none")
    triton, tilus = ([[us * by] for by in drift] for us in (10.0, 8.0))
    both = (("triton/x", triton), ("b", tilus))
    samples = {name: Samples(name, "made up", rounds, clocks, order_seed=0) for name, rounds in both}
    timing = Timing(samples={"cold": samples})
    (found,) = timing.against("b", "triton/x", seed=0).values()
    assert (found.contender, found.ratio, found.low, found.high) == ("triton/x", 1.25, 1.25, 1.25)
    assert timing.against("b", "tilus/x", seed=0) == timing.against("b", None, seed=0) == {}


TRITON, TILUS = "triton/atomic", "tilus/atomic"
US = {BASELINE: 10.0, AGAIN: 10.1, floor.LAUNCH: 2.0, floor.READ: 5.0, TRITON: 8.0, TILUS: 12.5}


class MadeUpChild:
    """Answers all that `measure` asks, with times in microseconds by name."""

    def __init__(self, us=(), timelines=(), checks=(), failures=()):
        self.us, self.timelines, self.checks, self.failures = US | dict(us), dict(timelines), dict(checks), failures
        self.asked: list[tuple[str, Any]] = []
        self.running = None

    def call(self, function, *given):
        if function is worker._environment:
            return EnvironmentRecord(device="none")
        if function is worker._check:
            self.asked.append((given[1], given[2]))
            right = Result(PASSED, accuracy=Accuracy(0.1, 0.2, 1.0), bitwise_equal=True)
            return replace(self.checks.get(given[1], right))
        if function is worker._timelines:
            return self.timelines
        _, configs, mode, with_floor, options = given
        if mode in self.failures and self.failures[mode].name in configs:
            return self.failures[mode]
        names = [*configs, AGAIN, *([floor.LAUNCH, floor.READ] if with_floor else [])]
        clocks = Clocks([], 0, "none")
        samples = {name: Samples(name, mode, [[self.us[name]]] * options.rounds, clocks, 7) for name in names}
        return samples, dict.fromkeys(configs, 0.5)

    def stop(self):
        pass


def measured(child: MadeUpChild, names=(BASELINE, TRITON, TILUS), timings=("cold", "warm"), searched=None, **options):
    kernels, options = [find(name) for name in names], Options(timings=timings, rounds=4, **options)
    rows = list(worker.measure("made", PROBLEM, kernels, options, child, child, None))
    assert sorted(row.contender for row in rows) == sorted(names)
    return {row.contender: row for row in rows}


def test_a_worker_warms_up_on_what_it_checks_next():
    announced = []
    with Child(60.0, announced.append) as child:
        worker.warm_up(child, PROBLEM, Options(timings=(), device="cpu"))
        assert child.call(worker._check, PROBLEM, BASELINE, None, torch.device("cpu"), 0).status == PASSED
        assert announced == [BASELINE]


class Forged(MadeUpChild):
    """One whose TRITON answers `asked` by what it likes, as it has found out how the worker signs."""

    def __init__(self, asked, forged):
        super().__init__()
        self.forging, self.forged, self.stops = asked, forged, 0

    def call(self, function, *given):
        if function is self.forging and (given[1] == TRITON or TRITON in given[1]):
            self.running = TRITON
            return self.forged
        return super().call(function, *given)

    def stop(self):
        self.stops += 1


RESULT = Result(PASSED, accuracy=Accuracy(0.0, 1.0, 1.0), bitwise_equal=True)


def sampled(rounds):
    """What `_time` answers, with these of TRITON's."""
    clocks, names = Clocks([], 0, "none"), (BASELINE, AGAIN, floor.LAUNCH, floor.READ, TRITON, TILUS)
    samples = {name: Samples(name, "cold", [[1.0]] * 4, clocks, 7) for name in names}
    return samples | {TRITON: replace(samples[TRITON], rounds=rounds)}, dict.fromkeys((BASELINE, TRITON, TILUS), 0.5)


@pytest.mark.parametrize(
    ("asked", "forged"),
    [
        (worker._check, ({}, {})),
        (worker._check, None),
        (worker._check, replace(RESULT, status="best")),
        (worker._check, replace(RESULT, message=None)),
        (worker._check, replace(RESULT, config={1: {}})),
        (worker._check, replace(RESULT, accuracy=Accuracy("none", 1.0, 1.0))),
        (worker._time, RESULT),
        (worker._time, ({}, {})),
        (worker._time, {}),
        (worker._time, ({BASELINE: 1.0, AGAIN: 1.0, TRITON: 1.0, TILUS: 1.0}, dict.fromkeys(US, 0.0))),
        (worker._time, Failure("nobody", WRONG, "")),
        (worker._time, Failure(BASELINE, "lost", "")),
        *((worker._time, sampled(rounds)) for rounds in ([], [[]], [[1.0]], [[0.0]] * 4, [["fast"]] * 4, [[inf]] * 4)),
    ],
)
def test_who_forges_what_is_no_answer_costs_itself_alone(asked, forged):
    child = Forged(asked, forged)
    rows = measured(child)
    assert rows[TRITON].status == WRONG and NO_ANSWER in rows[TRITON].message and child.stops
    assert rows[BASELINE].status == rows[TILUS].status == PASSED and set(rows[TILUS].timing) == {"cold", "warm"}


@pytest.mark.parametrize("forged", [RESULT, {"nobody": 1.0}, {TRITON: "fast"}, Failure("nobody", WRONG, "")])
def test_who_forges_the_timeline_is_wrong_and_the_others_are_seen(forged):
    child = Forged(worker._timelines, forged)
    child.timelines = {BASELINE: 9.0, TILUS: 12.0}
    rows = measured(child)
    assert rows[TRITON].status == WRONG and NO_ANSWER in rows[TRITON].message
    assert (rows[BASELINE].timeline_us, rows[TILUS].timeline_us) == (9.0, 12.0)


def test_what_ran_before_does_not_take_a_workers_environment_along():
    answers = [EnvironmentRecord(device=5), EnvironmentRecord(device="none")]

    class Left(Forged):
        def call(self, function, *given):
            return answers.pop(0) if function is worker._environment else MadeUpChild.call(self, function, *given)

    rows = measured(child := Left(None, None))
    assert not answers and child.stops == 1 and rows[TRITON].environment.device == "none"


@pytest.mark.parametrize("answer", [None, EnvironmentRecord(device=5)])
def test_a_new_worker_without_an_environment_ends_the_run(answer):
    child = MadeUpChild()
    child.call = lambda *_: answer
    with pytest.raises(RuntimeError, match="does not tell its environment"):
        measured(child)


@pytest.mark.parametrize("timings", [("host",), ("cold",)])
def test_a_floor_that_fails_again_and_again_is_forged(timings):
    rows = measured(Forged(worker._time, Failure("floor/read", CRASHED, "no")), timings=timings)
    assert rows[TRITON].status == WRONG and rows[BASELINE].status == rows[TILUS].status == PASSED


def test_a_row_holds_the_figures_of_its_own_contender():
    rows = measured(MadeUpChild(timelines={TRITON: 6.0}))
    cold, warm = (rows[TRITON].timing[mode] for mode in ("cold", "warm"))
    assert (cold.median_us, cold.speedup, cold.verdict, cold.times_floor) == (8.0, 1.25, "faster", 1.6)
    assert (warm.median_us, rows[TILUS].timing["warm"].speedup) == (8.0, 0.8)
    assert rows[TILUS].timing["cold"].verdict == "slower" and rows[BASELINE].timing["cold"].verdict == "baseline"
    row = rows[TRITON]
    assert (row.floor["cold"].launch_us, row.floor["cold"].read_us) == (2.0, 5.0)
    assert row.noise == pytest.approx(dict.fromkeys(("cold", "warm"), 1 - 10.0 / 10.1))
    assert (row.timeline_us, rows[TILUS].timeline_us, row.status) == (6.0, None, PASSED)
    accuracy = row.accuracy
    told = accuracy.error_before, accuracy.error_after, accuracy.torch_error, accuracy.bound, accuracy.times_torch
    assert told == (0.1, 0.5, 0.2, 1.0, 0.5)


@pytest.mark.parametrize(
    ("us", "timelines", "told"),
    [
        ({TRITON: 1.5}, {}, "cold: 1.50 us is faster than an empty launch, 2.00 us"),
        ({TRITON: 3.5}, {}, "cold: 3.50 us is faster than the bytes allow: reading them alone takes 5.00 us"),
        ({}, {TRITON: 20.0}, "cold: 8.00 us by events, 20.00 us by the GPU's timeline"),
    ],
)
def test_a_row_of_times_that_are_too_good_is_suspicious_and_keeps_them(us, timelines, told):
    rows = measured(MadeUpChild(us, timelines))
    assert rows[TRITON].status == SUSPICIOUS and told in rows[TRITON].message and rows[TRITON].timing
    assert rows[TILUS].status == rows[BASELINE].status == PASSED


CANDIDATE = verdicts.name_of("honest")


def test_a_candidate_that_nothing_can_be_held_against_is_suspicious():
    """It shares the process with what times the floor and sees the timeline."""
    made = MadeUpChild({CANDIDATE: 8.0}, {CANDIDATE: 6.0}), MadeUpChild({CANDIDATE: 8.0})
    seen, unseen = (measured(child, (BASELINE, CANDIDATE))[CANDIDATE] for child in made)
    assert seen.status == PASSED
    assert (unseen.status, unseen.message) == (SUSPICIOUS, "cold: there is no timeline of the GPU to hold it against")
    assert measured(MadeUpChild({CANDIDATE: 8.0}), (BASELINE, CANDIDATE), timeline=False)[CANDIDATE].status == PASSED
    _, _, timing, _ = timed({})
    timing.samples["warm"] = {name: timing.samples["warm"][name] for name in (BASELINE, AGAIN, "a")}
    assert timing.suspicion("a", needs_floor=True) == "warm: there is no floor to hold it against"


def test_a_timeline_that_is_not_seen_is_asked_for_once_more_in_a_new_process(monkeypatch):
    child, answers = MadeUpChild(), iter(["another profiler has it", {TRITON: 6.0}])
    monkeypatch.setattr(worker, "answer_of", partial(_from, answers, worker.answer_of))
    rows = measured(child)
    assert rows[TRITON].timeline_us == 6.0 and "not seen" not in rows[TRITON].message
    answers = iter(["another profiler has it"] * 2)
    monkeypatch.setattr(worker, "answer_of", partial(_from, answers, worker.answer_of.args[1]))
    rows = measured(child)
    assert rows[TRITON].timeline_us is None and "timeline was not seen: another" in rows[TRITON].message


def _from(answers, answer_of, child, is_answer, function, *given):
    return next(answers) if function is worker._timelines else answer_of(child, is_answer, function, *given)


@pytest.mark.parametrize("mode", ["cold", "graph", "warm"])
def test_times_of_the_gpu_are_suspected_in_every_mode(mode):
    rows = measured(MadeUpChild({TRITON: 1.5}), timings=(mode,))
    assert rows[TRITON].status == SUSPICIOUS and rows[TRITON].message.startswith(f"{mode}: 1.50 us")


def test_the_hosts_times_are_not_those_of_work_of_the_gpu():
    child = MadeUpChild()
    _, _, timing, _ = timed({}, timings=("host",))
    timing.samples["host"]["a"] = replace(timing.samples["host"]["a"], rounds=[[1.0, 1.0, 100.0]] * 4)
    assert timing.suspicion("a") == "" and measured(child, timings=("host",))[TRITON].status == PASSED


def test_who_failed_while_timed_has_no_times_from_before():
    rows = measured(MadeUpChild(failures={"warm": Failure(TRITON, WRONG, "over the bound")}))
    assert rows[TRITON].status == WRONG and rows[TRITON].message == "while timed warm: over the bound"
    held = rows[TRITON]
    assert held.timing == held.against == held.floor == held.noise == held.order_seeds == {}
    assert rows[TILUS].timing.keys() == {"cold", "warm"}


def test_without_a_right_baseline_nothing_is_timed_and_every_row_says_so():
    rows = measured(MadeUpChild(checks={BASELINE: Result(WRONG, "error")}), names=(TRITON, TILUS))
    for row in rows.values():
        assert row.status == PASSED and row.timing == {}
        assert row.message == f"not timed: {BASELINE} wrong: error"


def test_what_a_search_found_is_what_is_checked_and_its_failure_is_told(monkeypatch):
    names = ["triton/decompose_k.vector", "triton/decompose_k.vector_unfused", TILUS]
    assert find(names[1]).tuned_as == names[0]
    config = find(names[0]).default_config(PROBLEM)
    budget = BUDGETS["quick"]
    found = {names[0]: SearchResult(budget, config=config, confirmed_us=7.0), TILUS: SearchResult(budget)}
    monkeypatch.setattr(worker.search, "tune", lambda *given, **options: found)
    child = MadeUpChild(dict.fromkeys(names, 9.0))
    rows = measured(child, names=names, tune="quick")
    assert child.asked == [(BASELINE, None), (names[0], config), (names[1], config), (TILUS, None)]
    assert [rows[name].search.us if rows[name].search else None for name in names] == [7.0, 7.0, None]
    assert "its search found no config" in rows[TILUS].message


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (NotTimed(TRITON, "is left out", wrong=True), WRONG),
        (NotTimed(TRITON, "cannot be captured"), PASSED),
        (NotTimed(BASELINE, "is wrong, as another says", wrong=True), WRONG),
    ],
)
def test_whose_fault_it_is_that_one_is_not_timed_is_kept(monkeypatch, raised, status):
    def time_together(*given, announce, **options):
        announce(TRITON)
        raise raised

    monkeypatch.setattr(worker, "healthy", lambda: True)
    monkeypatch.setattr(worker, "clock_of", lambda device: None)
    monkeypatch.setattr(worker, "timed", lambda name, *given: Timed(name, None, [Arguments((torch.empty(1),), {})]))
    monkeypatch.setattr(worker, "time_together", time_together)
    configs, options = {BASELINE: None, TRITON: None}, Options(device="cpu")
    found = worker._time(PROBLEM, configs, "cold", False, options, announce=lambda name: None)
    assert found == Failure(TRITON, status, raised.reason)


def test_configs_are_timed_and_judged_as_they_were_checked(monkeypatch):
    """And the baseline again is the baseline, whoever else is timed."""
    timed_with, judged_with, played = [], [], []

    def timed(name, kernel, problem, config, device):
        timed_with.append((name, config))
        return Timed(name, kernel.launch, [Arguments((torch.empty(1),), {})])

    def time_together(entrants, mode, rounds, clock, *, announce, energy):
        played.extend((one.name, one.fn) for one in entrants)
        return [Samples(one.name, mode, [[1.0]], Clocks([], 0, ""), 0) for one in entrants]

    class Judging:
        def judged(self, call, roundings):
            judged_with.append((call, roundings))
            return Accuracy(0.25 * len(judged_with), 0.1, 1.0)

    monkeypatch.setattr(worker, "clock_of", lambda device: None)
    monkeypatch.setattr(worker, "timed", timed)
    monkeypatch.setattr(worker, "time_together", time_together)
    monkeypatch.setattr(worker, "referee_of", lambda *given: Judging())
    monkeypatch.setattr(worker, "launcher", lambda kernel, problem, config: (kernel.full_name, config))
    kernel = find(TRITON)
    config = replace(kernel.default_config(PROBLEM), split_k=2, block_k=32)
    assert config != kernel.default_config(PROBLEM)
    configs = {BASELINE: None, TRITON: asdict(config)}
    samples, errors = worker._time(PROBLEM, configs, "cold", False, Options(device="cpu"), announce=lambda name: None)
    assert timed_with == [(BASELINE, None), (TRITON, config)]
    calls = {BASELINE: find(BASELINE).launch, TRITON: kernel.launch, AGAIN: find(BASELINE).launch}
    assert dict(played) == calls and samples.keys() == calls.keys()
    assert judged_with == [((BASELINE, None), 1), ((TRITON, config), kernel.roundings(config))]
    assert errors == {BASELINE: 0.25, TRITON: 0.5}


@pytest.mark.parametrize(("claims", "status"), [(True, WRONG), (False, PASSED)])
def test_a_kernels_claim_of_determinism_is_held_against_its_repeats(monkeypatch, claims, status):
    kernel, calls = find(BASELINE), []

    def differs(a, b, *, out, **others):
        calls.append(None)
        torch.mm(a, b, out=out)
        out.view(torch.int16)[0, 0] ^= len(calls) % 2
        return out

    claiming = replace(kernel, launch=differs, deterministic=claims, roundings=lambda config: 2)
    monkeypatch.setattr(contenders, "find", lambda name: claiming)
    found = worker._check(PROBLEM, BASELINE, None, torch.device("cpu"), 0, announce=lambda name: None)
    assert found.status == status, found.message
    assert ("claims to be deterministic" in found.message) == claims and found.bitwise_equal is (
        None if claims else False
    )


def test_a_thread_with_the_identifier_of_one_that_ended_is_a_new_one(monkeypatch):
    """Python hands an identifier on: here it has, as in about half of all runs."""
    ends = [threading.Event(), threading.Event()]
    first, second = (threading.Thread(target=end.wait, daemon=True) for end in ends)
    first.start()
    before = threads.Threads()
    assert before.left() is None
    ends[0].set()
    first.join()
    second.start()
    try:
        handed_on = {first.ident: threads._outermost_frames()[second.ident]}
        monkeypatch.setattr(threads, "_outermost_frames", lambda: handed_on)
        assert before.left().startswith("leaves 1 threads running")
    finally:
        ends[1].set()
        second.join()
