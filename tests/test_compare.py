"""The command line: what it refuses, what it measures, what it writes, how it goes on; without a GPU, too."""

import dataclasses
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from made_rows import FP32, VECTOR, by_former_clock, row
from msgspec.structs import replace
from said import on_stderr

from triton_vs_tilus.bench import compare, workloads
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.contenders import all_contenders, find
from triton_vs_tilus.bench.measure import run as measuring_run
from triton_vs_tilus.bench.measure import worker
from triton_vs_tilus.bench.progress import Progress
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.journal import Journal, read_rows, to_line
from triton_vs_tilus.bench.rows.row import BASELINE
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.bench.show import tables
from triton_vs_tilus.common.files import locked
from triton_vs_tilus.common.problem import Layout, Matmul

ENVIRONMENT = "triton_vs_tilus.bench.measure.run.environment"
SCRIPT = str(queries.ROOT / "bench" / "compare.py")
US = {BASELINE: 10.0, VECTOR: 8.0, FP32: 12.5}
ROUTER = ["--workload", "router", "--tokens", "1,16", "--only", VECTOR, "--only", FP32]


class Measuring:
    """Stands for bench.worker: makes up rows, and notes what was asked of it, and when what was built."""

    def __init__(self):
        self.asked = []
        self.built = []
        self.begun = []
        self.order = []
        self.us = dict(US)
        self.status = "passed"  # of all but the baseline
        self.stop_after = None

    def build_ahead(self, problems, *, built, begin, **how):
        self.begun.append((begin.func, begin.args[1]))
        self.built += problems
        self.order += [("built", problem.m) for problem, _ in problems]
        for count in range(2):
            built(count, 1)

    def __call__(self, workload, problem, kernels, options, child, searching, builders):
        self.order.append(("measured", problem.m))
        for kernel in kernels:
            if self.stop_after is not None and len(self.asked) == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append((problem.m, kernel.full_name, options))
            status = "passed" if kernel.full_name == BASELINE else self.status
            us = self.us[kernel.full_name] if status == "passed" else None
            made = row(kernel.full_name, problem.m, us, timings=options.timings, status=status)
            for figures in made.timing.values():
                figures.rounds = options.rounds
            yield replace(made, command=command_of(problem, kernel.full_name, options.timings, options.changed))

    @property
    def contenders(self) -> list[tuple[int, str]]:
        return [(m, name) for m, name, _ in self.asked]


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """A machine with a GPU, as far as the command can tell."""
    measuring = Measuring()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(ENVIRONMENT, lambda device: row().environment)
    monkeypatch.setattr(worker, "measure", measuring)
    monkeypatch.setattr(build, "build_ahead", measuring.build_ahead)
    monkeypatch.setattr(compare, "JOURNALS", tmp_path / "journals")
    return measuring


class Checking:
    """Stands for worker.check: `left_over` contenders do not fit into the time."""

    def __init__(self):
        self.asked = []
        self.left_over = 0
        self.status = {}

    def __call__(self, workload, problem, kernels, options, children, seconds):
        assert options == worker.Options(timings=(), device="cpu") and 0 < seconds <= compare.CHECK_S
        for kernel in kernels[: len(kernels) - self.left_over]:
            self.asked.append((problem.name, kernel.full_name))
            status = self.status.get(kernel.full_name, "passed")
            if status == "interrupted":
                raise KeyboardInterrupt
            yield row(kernel.full_name, us=None, status=status, timings=(), problem=problem, workload=workload)


@pytest.fixture
def no_gpu(monkeypatch, tmp_path, results):
    """A machine without one, and without recorded rows."""
    checking = Checking()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(worker, "check", checking)
    monkeypatch.setattr(compare, "JOURNALS", tmp_path / "journals")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return checking


def run(*arguments: str, progress: Progress | None = None):
    args = compare.parser().parse_args(arguments)
    plan = compare._plan(args, compare._options(args, 0))
    return measuring_run.measure(plan, compare.JOURNALS, args.output, args.resume, progress)


def script(*arguments: str, cwd=queries.ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, cwd=cwd)


def test_commands_begun_in_the_same_second_have_journals_of_their_own(gpu):
    for _ in range(3):
        run(*ROUTER)
    assert len(list(compare.JOURNALS.glob("*.jsonl"))) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--workload NAME, --problem NAME or --shape MxNxK is needed"),
        (["--problem", "or-1x1x1-int8"], "problem is 'or-1x1x1-int8'"),
        (["--workload", "or_reduce", "--layout", "nk"], "or_reduce has no problem of layout nk"),
        (["--workload", "rooter"], "lists, the nearest: router"),
        (["--shape", "16x256"], "accepted: MxNxK"),
        (["--shape", "1x16x16", "--tokens", "1"], "--tokens needs --workload"),
        (["--workload", "router", "--tokens", "none"], "accepted: positive integers"),
        (
            ["--workload", "router", "--only", "tritn"],
            "--only is 'tritn'; accepted: names and parts of names that `python bench/compare.py --list -v` lists, "
            "the nearest: triton",
        ),
        (["--workload", "router", "--candidate", "x"], "accepted: FILE.py:FUNCTION"),
        (["--workload", "router", "--candidate", "no_such.py:f"], "there is no file no_such.py"),
        (["--workload", "router", "--timing", "tepid"], "accepted: of cold, graph, warm, host"),
        (["--workload", "router", "--rounds", "0"], "--rounds is 0"),
        (["--workload", "router", "--timing", "cold", "--energy"], "--energy needs graph in --timing, which is 'cold'"),
        (
            ["--problem", "16x256x7168-bf16-nk", "--out-dtype", "fp32"],
            "--out-dtype is fp32; accepted: none with --problem NAME alone",
        ),
        (["--workload", "router", "--fail-over", "5"], "--fail-over needs --against"),
        (["--workload", "router", "--against", "no_such.json"], "--against no_such.json"),
        (["--workload", "router", "--resume"], "there is no journal of this command in"),
        (["--workload", "router", "--only", "atomic", "--skip", "atomic"], "--skip is 'atomic'; accepted: what leaves"),
        (["--list", "--doctor"], "--doctor: not allowed with argument --list"),
        (["--doctor", "--verbose"], "--doctor does not use --verbose; accepted beside it: nothing"),
        (["--list", "--csv", "rows.csv", "--tune", "full"], "--list does not use --tune, --csv; accepted beside it: "),
        (["--spaces", "--shape", "1x16x16", "--output", "rows.jsonl"], "--spaces does not use --output"),
        (["--workload", "router", "--tokens", ""], "tokens are ''; accepted: positive integers"),
    ],
)
def test_what_it_cannot_do_is_told(gpu, capsys, arguments, told):
    assert run_command(compare.main, arguments) == 2
    error = on_stderr(capsys)
    assert told in error
    assert error.startswith("compare.py: error: ") and "Traceback" not in error
    assert not gpu.asked


def test_every_contender_is_measured_on_every_problem(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    rows = run(*ROUTER, "--output", str(output), "--timing", "cold,host", "--rounds", "7", "--tune", "quick")
    assert gpu.contenders == [(m, name) for m in (1, 16) for name in US]
    assert {options for *_, options in gpu.asked} == {
        worker.Options(timings=("cold", "host"), rounds=7, tune="quick", device=0)
    }
    assert [(r.problem.m, r.contender) for r in rows] == gpu.contenders
    assert read_rows(output) == rows


def test_what_is_looked_at_is_timed_before_all_others_and_goes_to_no_journal(gpu):
    args = compare.parser().parse_args([*ROUTER, "--rounds", "7"])
    plan = dataclasses.replace(
        compare._plan(args, compare._options(args, 0)), looked_at={BASELINE, VECTOR, "not/asked"}
    )
    progress, looks = Progress(), []
    progress.looked = looks.append
    rows = measuring_run.measure(plan, compare.JOURNALS, progress=progress)
    assert [[(r.problem.m, r.contender, list(r.timing)) for r in look] for look in looks] == [
        [(1, BASELINE, ["cold"]), (1, VECTOR, ["cold"])]
    ]
    looked = (measuring_run.LOOK_ROUNDS, False)
    assert [(options.rounds, options.timeline) for *_, options in gpu.asked] == [looked] * 2 + [(7, True)] * 6
    assert gpu.order == [("built", 1), ("measured", 1), *[(what, m) for m in (1, 16) for what in ("built", "measured")]]
    assert [(r.problem.m, r.contender) for r in rows] == [(m, name) for m in (1, 16) for name in US]


def looked_at(*arguments: str) -> set[str]:
    args = compare.parser().parse_args(arguments)
    return compare._looked_at(compare._plan(args, compare._options(args, 0)))


def test_looked_at_are_the_baseline_and_the_fastest_recorded_of_each_language(gpu, results, tmp_path):
    router = ["--workload", "router", "--layout", "nk"]
    assert looked_at(*router) == set()
    tilus = "tilus/sliced_k.fma"
    recorded(tmp_path, row(BASELINE), row(VECTOR, us=8.0), row(FP32, us=9.0), row(tilus, us=8.5))
    assert looked_at(*router) == {BASELINE, VECTOR, tilus}
    assert looked_at(*router, "--skip", "tilus") == {BASELINE, VECTOR}
    assert looked_at(*router, "--skip", "sliced_k", "--skip", VECTOR) == set()
    assert looked_at("--shape", "3000x3000x3000", "--layout", "nk") == set()  # far from what was recorded
    for without in (["--only", VECTOR], ["--tune", "quick"], ["--timing", "graph,host"]):
        assert looked_at(*router[:-2], *without) == set()
    assert looked_at("--workload", "or_reduce") == set()


def test_a_look_is_shown_where_someone_watches(gpu, results, monkeypatch, capsys, tmp_path):
    recorded(tmp_path, row(BASELINE), row(VECTOR, us=8.0))
    monkeypatch.setattr(compare, "FEW", 2)
    assert run_command(compare.main, ROUTER) == 0
    assert "A first look" not in "".join(capsys.readouterr())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run_command(compare.main, ROUTER) == 0
    shown = capsys.readouterr()
    assert "A first look" in shown.out
    assert shown.out.count("router 1x256x7168-bf16-nk") == 2 and shown.out.count("router 16x256x7168-bf16-nk") == 1


def test_rows_are_on_disk_as_they_are_made(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    seen = []

    class Watching(Progress):
        def measured(self, row):
            seen.append(len(read_rows(output)))

    run(*ROUTER, "--output", str(output), progress=Watching())
    assert seen == [1, 2, 3, 4, 5, 6]


def test_rows_outlast_a_crash_of_the_machine(gpu, monkeypatch, tmp_path):
    """Each is synced to the disk, whole, before the next contender runs."""
    output = tmp_path / "rows.jsonl"
    synced = []
    sync = os.fsync

    def fsync(number):
        sync(number)
        if os.path.samestat(os.fstat(number), output.stat()):
            synced.append((len(output.read_text().splitlines()), output.read_text().endswith("\n")))

    monkeypatch.setattr(os, "fsync", fsync)
    run(*ROUTER, "--output", str(output))
    assert synced == [(lines, True) for lines in range(1, 1 + 1 + 6)]  # the command, then the rows


@pytest.mark.parametrize("stop_after", range(6))
def test_an_interrupted_run_goes_on_where_it_was(gpu, capsys, tmp_path, stop_after):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = stop_after
    assert run_command(compare.main, [*ROUTER, *output]) == 130
    assert "--resume" in on_stderr(capsys)
    gpu.stop_after = None
    rows = run(*ROUTER, *output, "--resume")
    assert gpu.contenders == [(m, name) for m in (1, 16) for name in US]
    assert [(r.problem.m, r.contender) for r in rows] == gpu.contenders


def test_a_journal_that_another_command_writes_is_left_alone(gpu, capsys, tmp_path):
    """In mid-line, too: opening it would cut the line off."""
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = 2
    assert run_command(compare.main, [*ROUTER, *output]) == 130
    path = tmp_path / "rows.jsonl"
    with open(path, "a") as written:
        written.write('{"half a row')
    before = path.read_text()
    with locked(path):
        assert run_command(compare.main, [*ROUTER, *output, "--resume"]) == 2
    assert f"{path}: another command is writing this journal" in on_stderr(capsys)
    assert path.read_text() == before and len(gpu.asked) == 2
    gpu.stop_after = None
    assert run_command(compare.main, [*ROUTER, *output, "--resume"]) == 0
    assert [left.name for left in tmp_path.iterdir()] == ["rows.jsonl"]


def test_resume_takes_the_newest_journal_of_the_same_command(gpu):
    gpu.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        run(*ROUTER)
    gpu.stop_after = None
    run("--shape", "5x16x64", "--only", VECTOR)
    assert len(run(*ROUTER, "--resume")) == 6
    assert len(gpu.asked) == 6 + 2


def test_the_interruption_names_the_journal_and_how_to_go_on(gpu, capsys, tmp_path):
    gpu.stop_after = 2
    assert run_command(compare.main, ROUTER) == 130
    (journal,) = compare.JOURNALS.iterdir()
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"compare.py: interrupted: the journal is {journal}; --resume continues it"
    output = tmp_path / "rows.jsonl"
    assert run_command(compare.main, [*ROUTER, "--output", str(output)]) == 130
    assert f"--output {output} --resume continues it" in on_stderr(capsys)


def test_an_interruption_before_there_is_a_journal_names_none(gpu, monkeypatch, capsys):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring_run, "_opened", interrupted)
    assert run_command(compare.main, ROUTER) == 130
    assert on_stderr(capsys) == "compare.py: interrupted"


@pytest.mark.parametrize(
    "flags",
    [["--rounds", "7"], ["--tune", "quick"], ["--timing", "warm"], ["--only", "atomic"], ["--layout", "kn"]],
)
def test_a_journal_of_another_command_is_not_resumed(gpu, capsys, tmp_path, flags):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = 2
    assert run_command(compare.main, [*ROUTER, *output]) == 130
    capsys.readouterr()
    assert run_command(compare.main, [*ROUTER, *output, *flags, "--resume"]) == 2
    error = on_stderr(capsys)
    ours = " ".join(flags)
    assert f"--timing {'warm' if 'warm' in flags else 'cold,graph'}" in error
    assert "is of the command '--workload router --tokens 1,16 " in error and ours in error.partition("; this is")[2]
    assert len(gpu.asked) == 2


def test_the_order_of_names_makes_no_other_command(gpu, tmp_path):
    output = ["--output", str(tmp_path / "rows.jsonl"), "--workload", "router", "--tokens", "1"]
    run(*output, "--only", VECTOR, "--only", FP32, "--rounds", str(worker.Options.rounds))
    assert len(run(*output, "--only", FP32, "--only", VECTOR, "--timing", "cold,graph", "--resume")) == 3
    assert len(gpu.asked) == 3


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"device": "NVIDIA H100"}, "device: NVIDIA H200 there, NVIDIA H100 here"),
        ({"triton": "3.7.1", "tilus": None}, "triton: 3.6.0 there, 3.7.1 here; tilus: 0.2.0 there, None here"),
        ({"gpus": 2}, "gpus: 1 there, 2 here"),
        ({"torch": "2.12.0"}, f"torch: {row().environment.torch} there, 2.12.0 here"),
        ({"driver": "590.1", "cuda": "13.1"}, "driver: 580.1 there, 590.1 here; cuda: 13.0 there, 13.1 here"),
    ],
)
def test_rows_measured_otherwise_are_not_mixed(gpu, monkeypatch, capsys, tmp_path, environment, told):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = 2
    assert run_command(compare.main, [*ROUTER, *output]) == 130
    capsys.readouterr()
    monkeypatch.setattr(ENVIRONMENT, lambda device: replace(row().environment, **environment))
    assert run_command(compare.main, [*ROUTER, *output, "--resume"]) == 2
    assert on_stderr(capsys).endswith(f"were measured otherwise: {told}")
    assert len(gpu.asked) == 2


def test_hosts_of_different_launch_cost_are_not_mixed():
    held, other = [row(tokens=1)], row(tokens=16)
    measuring_run._check_host(held, other)
    other.floor["cold"] = replace(other.floor["cold"], launch_us=2.6)
    measuring_run._check_host([], other)
    with pytest.raises(measuring_run.JournalError, match=r"an empty launch takes 2\.0 and 2\.6 us"):
        measuring_run._check_host(held, other)
    measuring_run._check_host([], by_former_clock(other))
    with pytest.raises(measuring_run.JournalError, match="the journal's rows are of another clock: "):
        measuring_run._check_host(held, by_former_clock(other))


@pytest.mark.parametrize(("ranks", "code"), [(1, 2), (2, 1)])
def test_a_host_of_another_launch_cost_adds_no_row_to_a_journal(gpu, monkeypatch, capsys, tmp_path, ranks, code):
    path = tmp_path / "rows.jsonl"
    gpu.stop_after = 2
    assert run_command(compare.main, [*ROUTER, "--output", str(path)]) == 130
    gpu.stop_after = None
    if ranks == 2:
        as_rank_0(monkeypatch, {"stopped": "", "rows": []})

    def slower(*given):
        for made in gpu(*given):
            made.floor["cold"] = replace(made.floor["cold"], launch_us=2.6)
            yield made

    monkeypatch.setattr(worker, "measure", slower)
    assert run_command(compare.main, [*ROUTER, "--output", str(path), "--resume"]) == code
    assert "an empty launch takes 2.0 and 2.6 us" in on_stderr(capsys)
    assert len(read_rows(path)) == 2


def test_every_row_that_is_held_must_be_alike(gpu):
    other = replace(row(tokens=16), environment=replace(row().environment, triton="3.7.1"))
    with pytest.raises(measuring_run.JournalError, match=r"triton: 3\.7\.1 there, 3\.6\.0 here"):
        measuring_run._check_alike([row(), other], worker.Options())


def test_of_two_journals_of_a_command_the_newer_is_first(tmp_path):
    for name, seconds in (("b", 300), ("a", 200), ("c", 100)):
        Journal(tmp_path / f"{name}.jsonl").begin("of another command" if name == "b" else "the command")
        os.utime(tmp_path / f"{name}.jsonl", (seconds, seconds))
    assert [path.stem for path in measuring_run._same_command("the command", tmp_path)] == ["a", "c"]


def test_problems_share_the_time_to_check(monkeypatch):
    clock, handed = iter(range(0, 100, 10)), []
    monkeypatch.setattr(measuring_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(worker, "check", lambda *given: handed.append(given[-1]) or [])
    problems = [("made", problem) for _, problem in workloads.problems("router")[:3]]
    plan = measuring_run.Plan("made", problems, [], worker.Options(timings=(), device="cpu"))
    assert measuring_run.check(plan, 15.0, None) == [] and handed == [5.0, 0.0, 0.0]


def test_without_a_search_the_devices_table_stays_as_it_is(gpu, monkeypatch):
    monkeypatch.setattr(measuring_run, "write_table", lambda *given: pytest.fail("a table was written"))
    assert len(run(*ROUTER)) == 6


def test_rows_of_another_revision_are_told_and_kept(gpu, monkeypatch, capsys, tmp_path):
    output = ["--output", str(tmp_path / "rows.jsonl"), "--tune", "off", "--rounds", "7"]
    gpu.stop_after = 2
    assert run_command(compare.main, [*ROUTER, *output]) == 130
    gpu.stop_after = None
    monkeypatch.setattr(ENVIRONMENT, lambda device: replace(row().environment, git="fedcba987654"))
    assert run_command(compare.main, [*ROUTER, *output, "--resume"]) == 0
    assert "rows of revision 0123456789ab; this is fedcba987654" in on_stderr(capsys)
    assert len(gpu.asked) == 6


def test_a_journal_is_not_written_over(gpu, capsys, tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    assert run_command(compare.main, [*ROUTER, "--output", str(tmp_path / "rows.jsonl")]) == 2
    assert "--resume continues it" in on_stderr(capsys)


@pytest.mark.parametrize("flags", [["--output", "own"], ["--workload", "own.json"], ["--candidate", "own.py:f"]])
def test_what_it_reads_or_writes_is_not_written_over(gpu, capsys, monkeypatch, tmp_path, flags):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.json").write_text('[{"m": 3, "n": 16, "k": 64}]')
    (tmp_path / "own.py").write_text("def f(a, b): return a @ b")
    name = flags[1].partition(":")[0]
    assert run_command(compare.main, ["--shape", "3x16x64", "--only", VECTOR, *flags, "--csv", name]) == 2
    assert f"--csv is {name}; accepted: a file that this command neither reads" in on_stderr(capsys)
    assert not gpu.asked


def test_it_shows_a_table_a_problem_and_the_summary(gpu, capsys, tmp_path):
    files = ["--csv", str(tmp_path / "rows.csv"), "--json", str(tmp_path / "rows.json")]
    assert run_command(compare.main, [*ROUTER, *files]) == 0
    shown = capsys.readouterr()
    assert "router 1x256x7168-bf16-nk" in shown.out
    assert "router 16x256x7168-bf16-nk" in shown.out
    title, winner, why, *_ = shown.out.splitlines()
    assert (title, winner) == ("router 1x256x7168-bf16-nk", f"{VECTOR}: 8.0 us, 1.25x torch.mm.")
    assert why.startswith("Why: decompose_k.vector: ")
    assert f"{VECTOR} *" in shown.out
    assert "summary" in shown.out
    assert "Recorded on NVIDIA H200" in shown.out
    assert str(tmp_path / "journals") in shown.err.replace("\n", "")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 7
    assert len(read_rows(tmp_path / "rows.json")) == 6


def test_the_matrix_and_the_plots_come_beside_the_tables(gpu, capsys, tmp_path):
    assert run_command(compare.main, [*ROUTER, "--matrix", "--plot", str(tmp_path / "plots")]) == 0
    shown = capsys.readouterr().out
    assert "summary" in shown and "language x protocol" in shown
    assert (tmp_path / "plots" / "router-bf16-nk-speedup.svg").exists()


def recorded(tmp_path, *rows, name: str = "router-nk", device: str = "h200") -> None:
    journal = Journal(tmp_path / "results" / device / f"{name}.jsonl")
    for made in rows:
        journal.append(made)


def test_without_a_gpu_the_matrix_and_the_plots_are_those_of_what_was_recorded(no_gpu, capsys, tmp_path):
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 8.0))
    arguments = ["--workload", "router", "--only", VECTOR, "--matrix", "--plot", str(tmp_path / "plots")]
    assert run_command(compare.main, arguments) == 0
    assert "language x protocol" in capsys.readouterr().out
    assert (tmp_path / "plots" / "router-nk" / "router-bf16-nk-latency.svg").exists()


def test_a_suite_and_a_list_of_ones_own_are_measured(gpu, tmp_path):
    (tmp_path / "mine.json").write_text('[{"m": 3, "n": 16, "k": 64, "epilogue": "relu"}]')
    run("--workload", str(tmp_path / "mine.json"), "--only", VECTOR)
    run("--workload", "crossover", "--only", VECTOR, "--output", str(tmp_path / "rows.jsonl"))
    assert gpu.contenders[:2] == [(3, BASELINE), (3, VECTOR)]
    assert len(gpu.contenders) == 2 + 19 * 2


def test_a_regression_is_exit_code_3(gpu, capsys, tmp_path):
    old = str(tmp_path / "old.json")
    assert run_command(compare.main, [*ROUTER, "--json", old]) == 0
    against = ["--against", old, "--fail-over", "5"]
    assert run_command(compare.main, [*ROUTER, *against, "--output", str(tmp_path / "same.jsonl")]) == 0
    gpu.us[FP32] *= 1.2
    assert run_command(compare.main, [*ROUTER, *against, "--output", str(tmp_path / "slower.jsonl")]) == 3
    assert "4 slower by more than 5%" in capsys.readouterr().out


def test_what_a_search_found_goes_to_the_devices_table(gpu, capsys, monkeypatch, tmp_path):
    written = []
    monkeypatch.setattr(
        measuring_run, "write_table", lambda slug, rows: written.append((slug, len(rows))) or tmp_path / slug
    )
    assert run_command(compare.main, [*ROUTER, "--tune", "quick", "--output", str(tmp_path / "rows.jsonl")]) == 0
    assert written == [("h200", 3), ("h200", 3)]  # after each problem: the next search begins with it
    assert "tuned configs are in" in capsys.readouterr().out


def test_a_rank_without_a_gpu_of_its_own_is_told(gpu, monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert run_command(compare.main, ROUTER) == 2
    assert "local rank 1 has no GPU" in on_stderr(capsys)


@pytest.mark.parametrize(
    "flags",
    [
        ["--require-gpu"],
        ["--tune", "quick"],
        ["--timing", "cold"],
        ["--rounds", "7"],
        ["--resume"],
        ["--against", SCRIPT, "--fail-over", "5"],
        ["--against", SCRIPT],
    ],
)
def test_without_a_gpu_flags_about_timing_are_refused_at_once(no_gpu, capsys, flags):
    assert run_command(compare.main, [*ROUTER, *flags]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and no_gpu.asked == []
    error = " ".join(shown.err.split())
    assert error.startswith(f"compare.py: error: {flags[0]}: there is no CUDA device")
    assert ("python bench/report.py NEW --against OLD" in error) == (flags[0] == "--against")


def test_without_a_gpu_rows_are_not_added_to_a_file(no_gpu, capsys, tmp_path):
    output = tmp_path / "rows.jsonl"
    assert run_command(compare.main, [*ROUTER, "--output", str(output)]) == 0
    assert [made.contender for made in read_rows(output)] == [BASELINE, VECTOR, FP32] * 2
    before = output.read_text()
    assert run_command(compare.main, [*ROUTER, "--output", str(output)]) == 2
    assert "exists already" in on_stderr(capsys)
    assert output.read_text() == before


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--csv", "no/such/folder/rows.csv"], "--csv no/such/folder/rows.csv: No such file or directory"),
        (["--csv", "/dev/full"], "--csv /dev/full: is not a regular file"),
        (["--json", "/"], "--json /: is not a regular file"),
        (["--output", "/"], "--output /: is not a regular file"),
        (["--plot", SCRIPT], "File exists; accepted: a folder"),
        (["--out-dtype", "fp16"], "out_dtype is fp16; accepted: that of the inputs, bf16, or fp32"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_measured(gpu, capsys, flags, said):
    assert run_command(compare.main, [*ROUTER, *flags]) == 2
    assert said in on_stderr(capsys)
    assert gpu.asked == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"schema": 99}\n', "rows.jsonl:1: a row of schema 99"),
        ("no\nrow", "rows.jsonl:1: Input data was truncated"),
        ("3\n", "rows.jsonl:1: Expected `object`, got `int`"),
    ],
)
def test_a_journal_that_is_none_is_not_resumed(gpu, capsys, tmp_path, text, told):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    assert run_command(compare.main, [*ROUTER, "--resume", "--output", str(file)]) == 2
    error = on_stderr(capsys)
    assert told in error and "Traceback" not in error
    assert file.read_text() == text


def test_without_a_gpu_a_small_problem_of_the_workload_is_checked(no_gpu):
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == 0
    assert no_gpu.asked == [("1x64x1024-bf16-nk", name) for name in (BASELINE, VECTOR)]


def test_without_a_gpu_the_problems_that_are_named_are_checked(no_gpu):
    assert (
        run_command(compare.main, ["--shape", "300x200x100", "--only", VECTOR, "--problem", "64x64x8192-bf16-kn"]) == 0
    )
    assert {problem for problem, _ in no_gpu.asked} == {"300x200x100-bf16-nk", "64x64x8192-bf16-kn"}


def test_without_a_gpu_the_interruption_names_the_journal(no_gpu, capsys, tmp_path):
    output = tmp_path / "rows.jsonl"
    no_gpu.status[VECTOR] = "interrupted"
    assert run_command(compare.main, [*ROUTER, "--output", str(output)]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"compare.py: interrupted: the journal is {output}; a check cannot be resumed"
    assert len(read_rows(output)) == 1
    no_gpu.status[BASELINE] = "interrupted"
    assert run_command(compare.main, [*ROUTER, "--output", str(tmp_path / "none.jsonl")]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "compare.py: interrupted"


def test_without_a_gpu_a_journal_that_another_command_writes_is_left_alone(no_gpu, capsys, tmp_path):
    with locked(tmp_path / "rows.jsonl"):
        assert run_command(compare.main, [*ROUTER, "--output", str(tmp_path / "rows.jsonl")]) == 2
    assert "rows.jsonl: another command is writing this journal" in on_stderr(capsys)
    assert no_gpu.asked == []


def test_without_a_gpu_what_was_recorded_comes_first(no_gpu, capsys, tmp_path):
    arguments = ["--workload", "router", "--only", VECTOR]
    assert run_command(compare.main, arguments) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("There is no CUDA device: ")
    assert "Nothing is recorded for these problems and contenders, except perhaps the baseline." in shown

    other = replace(row(), problem=replace(row().problem, name="1x2x3-bf16-nk"))
    recorded(tmp_path, row(BASELINE, 64), row(FP32, 64, 6.0), row(VECTOR, 64, 8.0), other)
    assert run_command(compare.main, arguments) == 0
    shown = capsys.readouterr().out
    first, _, checked = shown.partition("Checking 2 contenders on 1x64x1024-bf16-nk, small for a CPU")
    assert "recorded in results/h200/router-nk.jsonl" in first and "checked on the CPU, not timed" in checked
    assert "Recorded on NVIDIA H200" in first and "2026-11-21" in first and "1x2x3" not in first
    (line,) = [line.split() for line in first.splitlines() if VECTOR in line]
    assert line == [VECTOR, "8.0", "1.25", "*"]
    assert FP32 not in first  # --only is kept to
    assert "Checked 2 of 2" in checked


def test_without_a_gpu_the_file_that_answers_is_shown_and_the_others_are_named(no_gpu, capsys, tmp_path):
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 8.0), row("triton/atomic", 64, 8.5))  # with more kernels
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 7.0), row("torch/compile.default", 64, 9.0), name="former")
    assert run_command(compare.main, ["--workload", "router"]) == 0
    shown = capsys.readouterr().out
    assert "recorded in results/h200/router-nk.jsonl" in shown and "recorded in results/h200/former" not in shown
    assert "  h200/former.jsonl: 3 rows, Triton 3.6.0, 2026-11-21\n" in shown


def test_without_a_gpu_the_device_with_the_most_rows_is_shown_wherever_it_has_these_problems(no_gpu, capsys, tmp_path):
    elsewhere = [replace(row(), problem=replace(row().problem, name=f"{m}x2x3-bf16-nk")) for m in range(4)]
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 8.0), *elsewhere)
    kernels = [row("triton/atomic", 64, 8.5), row("triton/data_parallel", 64, 20.0)]
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 7.0), *kernels, device="other")
    recorded(tmp_path, row(BASELINE, 128), row(VECTOR, 128, 7.0), device="other", name="more")
    assert run_command(compare.main, ["--workload", "router", "--tokens", "64,128"]) == 0
    shown = capsys.readouterr().out
    assert "recorded in results/h200/router-nk.jsonl" in shown and "recorded in results/other" not in shown
    assert run_command(compare.main, ["--workload", "router", "--tokens", "128"]) == 0
    assert "recorded in results/other/more.jsonl" in capsys.readouterr().out


def test_without_a_gpu_a_file_answers_only_where_one_who_was_asked_for_passed(no_gpu, capsys, tmp_path):
    others = [row("triton/atomic", 64, 8.5), row("triton/data_parallel", 64, 20.0)]  # with more kernels
    recorded(tmp_path, row(BASELINE, 64), *others, replace(row(VECTOR, 64), status="crashed", timing={}))
    recorded(tmp_path, row(BASELINE, 64), row(VECTOR, 64, 7.0), name="former")
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == 0
    shown = capsys.readouterr().out
    assert "recorded in results/h200/former.jsonl" in shown and "recorded in results/h200/router-nk" not in shown
    assert "  h200/router-nk.jsonl: 2 rows, " in shown


def test_without_a_gpu_the_table_of_winners_has_at_most_100_columns(no_gpu, capsys, monkeypatch):
    monkeypatch.undo()  # the rows that are recorded
    monkeypatch.setattr(worker, "check", no_gpu)
    for workload in ("router", "skinny", "w4a16", "or_reduce", "square"):
        assert run_command(compare.main, ["--workload", workload]) == 0
        table = capsys.readouterr().out.partition("Checking")[0].splitlines()
        tables_lines = [line.rstrip() for line in table if line.startswith(" ")]
        assert len(tables_lines) > 5 and max(map(len, tables_lines)) <= 100


def test_without_a_gpu_progress_is_lines_where_it_is_piped(no_gpu, capsys):
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == 0
    lines = capsys.readouterr().err.splitlines()
    names = [f"{count} of 2: 1x64x1024-bf16-nk: {name}: passed" for count, name in ((1, BASELINE), (2, VECTOR))]
    assert lines == ["1x64x1024-bf16-nk", *names]


def test_without_a_gpu_what_does_not_fit_is_said_and_is_a_failure_where_nothing_else_was_seen(no_gpu, capsys):
    no_gpu.left_over = 1
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR, "--only", FP32]) == 0
    assert re.search(r"Not checked within 50 s, --only NAME checks just one: \S+\n", capsys.readouterr().out)
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == 1
    said = capsys.readouterr()
    assert f"Not checked within 50 s: {VECTOR}\n" in said.out
    assert said.err.endswith("\ncompare.py: no contender but the baseline was checked within 50 s\n")


def test_at_80_columns_the_table_of_checks_has_names_and_status():
    out = tables.Terminal(width=80, file=io.StringIO())
    out.print(tables.checks_table([row("triton/decompose_k.vector_unfused", 1024, None, timings=())]))
    shown = out.file.getvalue()
    assert "1024x256x7168-bf16-nk" in shown and "triton/decompose_k.vector_unfused" in shown and "passed" in shown
    assert "-v shows all" in shown


def test_where_nothing_could_be_checked_it_fails(no_gpu, capsys):
    no_gpu.left_over = 2
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == 1
    assert "compare.py: no contender was checked within 50 s" in on_stderr(capsys)


@pytest.mark.parametrize(("status", "code"), [("passed", 0), ("unsupported", 0), ("wrong", 1), ("crashed", 1)])
def test_without_a_gpu_a_contender_that_should_have_worked_is_exit_code_1(no_gpu, capsys, status, code):
    no_gpu.status[VECTOR] = status
    assert run_command(compare.main, ["--workload", "router", "--only", VECTOR]) == code
    named = f"compare.py: 1 of 2 rows failed: {VECTOR} on 1x64x1024-bf16-nk: {status}"
    assert (named in on_stderr(capsys)) == (code == 1)


@pytest.mark.parametrize("status", ["timed out", "out of memory", "compile error"])
def test_a_contender_that_should_have_worked_is_exit_code_1(gpu, status):
    gpu.status = status
    assert run_command(compare.main, ROUTER) == 1


CANDIDATES = """
import os
def right(a, b): return a @ b
def wrong(a, b): return 0 * (a @ b)
def wide(a, b): return a.float() @ b.float()
def dies(a, b): os._exit(7)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU nothing is interpreted")
def test_without_a_gpu_a_candidate_of_triton_is_interpreted_as_the_kernels_here_are(tmp_path):
    """In a process that has imported none of these: its interpreter alone adds up bf16 as integers."""
    place = f"{queries.ROOT}/examples/candidates/masked.py:matmul"
    flags = ["--shape", "16x32x64", "--only", "candidate", "--candidate", place, "--output", "rows.jsonl"]
    made = script(*flags, cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the same is tested with time taken")
def test_without_a_gpu_candidates_are_checked_for_real(tmp_path):
    (tmp_path / "brought.py").write_text(CANDIDATES)
    names = ("right", "wrong", "wide", "dies")
    candidates = [word for name in names for word in ("--candidate", f"brought.py:{name}")]
    shapes = ["--shape", "3x16x64", "--only", "candidate", "--epilogue", "relu"]
    made = script(*shapes, *candidates, "--output", "rows.jsonl", "--csv", "rows.csv", cwd=tmp_path)
    assert made.returncode == 1, made.stderr
    assert "2 of 5 rows failed" not in made.stderr and "3 of 5 rows failed" in made.stderr
    rows = {made_row.contender: made_row for made_row in read_rows(tmp_path / "rows.jsonl")}
    right, wrong, wide, dies = (rows[f"candidate/brought.py:{name}"] for name in names)
    assert rows[BASELINE].status == right.status == "passed"
    assert right.message == "timed with the epilogue in torch"
    assert (wrong.status, wide.status, dies.status) == ("wrong", "wrong", "crashed")
    assert "returns torch.float32 (3, 16) on cpu; expected torch.bfloat16" in wide.message
    assert "exit code 7" in dies.message
    assert all(name in made.stdout for name in rows)


@pytest.mark.gpu
def test_on_a_gpu_candidates_are_timed_for_real(tmp_path):
    (tmp_path / "brought.py").write_text(CANDIDATES)
    candidates = [word for name in ("right", "wrong", "dies") for word in ("--candidate", f"brought.py:{name}")]
    shapes = ["--shape", "16x64x512", "--only", "candidate", "--only", VECTOR, "--rounds", "6"]
    made = script(*shapes, *candidates, "--timing", "cold,graph,warm,host", "--output", "rows.jsonl", cwd=tmp_path)
    assert made.returncode == 1, made.stderr
    rows = {made_row.contender.rpartition(":")[2]: made_row for made_row in read_rows(tmp_path / "rows.jsonl")}
    ended = {name: made_row.status for name, made_row in rows.items()}
    assert (ended.pop("wrong"), ended.pop("dies")) == ("wrong", "crashed")
    assert set(ended) == {BASELINE, VECTOR, "right"}
    for name in ended:
        assert ended[name] in ("passed", "suspicious")  # other tests on the same GPU disturb its clock
        assert set(rows[name].timing) == {"cold", "graph", "warm", "host"}
    again = script(
        *shapes, *candidates, "--timing", "cold,graph,warm,host", "--output", "rows.jsonl", "--resume", cwd=tmp_path
    )
    assert again.returncode == 1, again.stderr
    assert len(read_rows(tmp_path / "rows.jsonl")) == 5


RANK = """
import sys
import torch
from made_rows import row
from triton_vs_tilus.bench import compare
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.contenders import all_contenders
from triton_vs_tilus.bench.measure import run, worker
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.bench.show import tables

def measure(workload, problem, kernels, *_):
    for kernel in kernels:
        yield row(kernel.full_name, problem=problem, workload=workload)

torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
run.environment = lambda device: row().environment
worker.measure = measure
build.build_ahead = lambda problems, **how: None
sys.exit(run_command(compare.main))
"""


def test_ranks_share_the_problems(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    (tmp_path / "out").mkdir()
    shapes = [word for m in range(1, 6) for word in ("--shape", f"{m}x16x64")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, "../rank.py", *shapes, "--only", BASELINE, "--output", "rows.jsonl", "--json", "rows.json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(queries.ROOT / "tests"), *sys.path])}
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "out", timeout=300, env=environment)
    assert made.returncode == 0, made.stderr
    assert sorted(made_row.problem.m for made_row in read_rows(tmp_path / "out" / "rows.jsonl")) == [1, 2, 3, 4, 5]
    assert len(read_rows(tmp_path / "out" / "rows.json")) == 5
    assert made.stdout.count("summary") == 1
    assert "journal: rows.jsonl\n" in made.stderr  # the one that stays
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rows.json", "rows.jsonl"]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"torch": "2.12.0"}, "torch: 2.11.0 and 2.12.0"),
        ({"gpus": 8}, "gpus: 1 and 8"),
        ({"driver": "590.1"}, "driver: 580.1 and 590.1"),
        ({}, "empty launch, us: 2.0 and 2.6"),
    ],
)
def test_ranks_on_hosts_of_several_kinds_are_not_merged(gpu, monkeypatch, capsys, tmp_path, other, told):
    path = tmp_path / "rows.jsonl"
    theirs = replace(row(tokens=16), environment=replace(row().environment, **other))
    if not other:
        theirs.floor["cold"] = replace(theirs.floor["cold"], launch_us=2.6)
    as_rank_0(monkeypatch, {"stopped": "", "rows": [to_line(theirs)]})
    assert run_command(compare.main, [*ROUTER, "--output", str(path)]) == 2
    assert f"the ranks' rows are from hosts of several kinds: {told}" in on_stderr(capsys)
    assert Journal(path).rows() == [] and len(read_rows(path.with_suffix(".rank0.jsonl"))) == len(gpu.asked)


SLOW = """
import time
def sleeps(a, b):
    open("began", "w").write(f"{__import__('os').getpid()}\\n")
    time.sleep(60)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the candidate waits for those before it")
def test_sigterm_ends_the_command_and_its_workers(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, SCRIPT, "--shape", "3x16x64", "--candidate", "slow.py:sleeps", "--only", BASELINE]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=tmp_path) as made:
        began = tmp_path / "began"
        while made.poll() is None and not (began.exists() and began.read_text().endswith("\n")):
            time.sleep(0.05)
        made.terminate()
        assert made.communicate(timeout=20)[1].splitlines()[-1] == "compare.py: terminated"
    assert made.returncode == 143
    assert not Path(f"/proc/{began.read_text().strip()}").exists()


class TwoRanks:
    """This process is rank 0; what rank 1 has to tell is made up."""

    def __init__(self, told):
        self.rank, self.count, self.local, self.told = 0, 2, 0, told

    def take_cpus(self):
        pass

    def agree(self, make):
        return make()

    def gather(self, value):
        return [value, self.told]


def as_rank_0(monkeypatch, told) -> None:
    for place in ("triton_vs_tilus.bench.measure.ranks.Ranks", "triton_vs_tilus.bench.measure.run.Ranks"):
        monkeypatch.setattr(place, lambda: TwoRanks(told))


def test_ranks_that_stop_before_their_first_row_are_told(gpu, monkeypatch, capsys):
    as_rank_0(monkeypatch, {"stopped": "rank 1 stopped: RuntimeError: no GPU", "rows": []})
    monkeypatch.setattr(worker, "measure", lambda *given: 1 / 0)
    assert run_command(compare.main, ROUTER) == 1
    stopped = "rank 0 stopped: ZeroDivisionError: division by zero; rank 1 stopped: RuntimeError: no GPU"
    assert on_stderr(capsys).endswith(f"compare.py: incomplete: {stopped}; --resume measures the rest")


def test_a_rank_that_stopped_is_told_and_costs_no_rows(gpu, monkeypatch, capsys, tmp_path):
    as_rank_0(monkeypatch, {"stopped": "rank 1 stopped: RuntimeError: no GPU", "rows": [to_line(row(VECTOR, 16, 8.0))]})
    output = tmp_path / "rows.jsonl"
    assert run_command(compare.main, [*ROUTER, "--output", str(output)]) == 1
    assert "rank 1 stopped: RuntimeError: no GPU" in on_stderr(capsys)
    assert gpu.contenders == [(1, name) for name in US]
    assert [(r.problem.m, r.contender) for r in read_rows(output)] == [*gpu.contenders, (16, VECTOR)]


def test_what_interrupted_ranks_left_is_taken_up(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    gpu.stop_after = 1
    with pytest.raises(KeyboardInterrupt):
        run(*ROUTER, "--output", str(output))
    gpu.stop_after = None
    gpu.asked.clear()
    Journal(tmp_path / "rows.rank1.jsonl").append(row(VECTOR, 16, 8.0, timings=("cold", "graph")))
    rows = run(*ROUTER, "--output", str(output), "--resume")
    assert len(rows) == 6
    assert gpu.contenders == [(1, VECTOR), (1, FP32), (16, BASELINE), (16, FP32)]
    assert list(tmp_path.glob("*.rank*")) == []


def test_what_is_not_of_its_own_ranks_stays(gpu, tmp_path):
    """Whatever characters the journal's name has."""
    output = tmp_path / "x[1].jsonl"
    others = [tmp_path / name for name in ("x[1].ranking.jsonl", "x[1].rank1b.jsonl", "x1.rank1.jsonl")]
    for path in (*others, tmp_path / "x[1].rank1.jsonl"):
        Journal(path).append(row(VECTOR, 16, 8.0, timings=("cold", "graph")))
    assert len(run(*ROUTER, "--output", str(output), "--resume")) == 6
    assert len(gpu.contenders) == 5 and sorted(tmp_path.iterdir()) == sorted([output, *others])


def test_list_fits_two_screens(capsys):
    assert run_command(compare.main, ["--list"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 84
    for name in (*workloads.WORKLOADS, *(f"{kernel.language.value}/{kernel.name}" for kernel in all_contenders())):
        assert name in shown
    assert "vector, tile, vector_unfused, vector_pdl" in shown


def test_verbose_list_names_problems_and_contenders(capsys):
    assert run_command(compare.main, ["--list", "--verbose", "--layout", "kn"]) == 0
    shown = capsys.readouterr().out
    for name in ("1024x256x7168-bf16-kn", *(kernel.full_name for kernel in all_contenders())):
        assert name in shown


def test_list_does_not_say_that_what_the_cpu_checks_sits_out(no_gpu, capsys):
    assert run_command(compare.main, ["--list"]) == 0
    shown = capsys.readouterr().out
    assert "There is no CUDA device: contenders are checked on the CPU" in shown
    assert "triton: runs in Triton's interpreter" in shown


def test_programs_are_built_before_their_problem_is_measured_and_never_while_one_is(gpu, capsys, tmp_path):
    """Of one problem, then of twice as many at once."""
    router = ["--workload", "router", "--tokens", "1,16,32,64", "--only", VECTOR]
    assert run_command(compare.main, router) == 0
    built, measured = [[(what, m) for m in (1, 16, 32, 64)] for what in ("built", "measured")]
    assert gpu.order == [built[0], measured[0], *built[1:3], *measured[1:3], built[3], measured[3]]
    named = [(problem.m, [kernel.full_name for kernel in kernels]) for problem, kernels in gpu.built]
    assert named == [(m, [BASELINE, VECTOR]) for m in (1, 16, 32, 64)]
    told = on_stderr(capsys)
    assert "1x256x7168-bf16-nk: 0 of 1 programs built" in told
    assert "16x256x7168-bf16-nk and 1 more: 0 of 1 programs built" in told


def test_what_nvcc_compiles_is_built_first(monkeypatch):
    """It takes longest: begun last, it would hold up a problem's table while other CPUs have nothing to do."""
    begun, asked = [], []

    class Builders:
        def warm_up(self, function, packages, *, most):
            asked.append((packages, most))

        def each(self, function, jobs, finished):
            begun.extend(name for _, name, *_ in jobs)

    class Named:
        def call(self, function, device):
            asked.append("name")
            return "some-gpu"

    monkeypatch.setattr(build.contenders, "sits_out", lambda *asked: None)
    by_nvcc = ["tilus/atomic", "tilus/stream_k", "published_tilus/matmul.v0"]
    kernels = [find(name) for name in ("triton/atomic", *by_nvcc[:2], BASELINE, "triton/stream_k", by_nvcc[2])]
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    how = {"builders": Builders(), "child": Named(), "device": torch.device("cuda")}
    build.build_ahead([(problem, kernels)], **how, begin=lambda: asked.append("begin"))
    assert begun == [*by_nvcc, "triton/atomic", "triton/stream_k"]
    assert asked == [(["tilus", "triton"], 5), "name", "begin"]  # the builders import before the name is known


def test_what_times_them_warms_up_while_programs_are_built(gpu):
    run(*ROUTER)
    assert gpu.begun == [(worker.warm_up, problem) for problem, _ in gpu.built]


def test_a_search_builds_its_own(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(measuring_run, "write_table", lambda slug, rows: None)
    run("--workload", "router", "--tokens", "1", "--only", VECTOR, "--tune", "quick", "--output", str(tmp_path / "b"))
    assert gpu.built == []


def test_on_a_cpu_candidates_come_first_then_a_kernel_of_each_language_in_turn():
    names = (
        "triton/atomic",
        "triton/cluster",
        "tilus/atomic",
        f"candidate/{queries.ROOT}/examples/candidates/masked.py:matmul",
    )
    in_turn = measuring_run._in_turns([find(name) for name in names], "matmul")
    assert [kernel.full_name for kernel in in_turn] == [names[3], "triton/atomic", "tilus/atomic", "triton/cluster"]
