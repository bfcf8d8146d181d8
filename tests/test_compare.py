"""The command line: what it refuses, what it measures, what it writes, how it goes on; without a GPU, too."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from made_rows import row

from bench import compare, doctor, tables, tuning, worker, workloads
from bench.journal import BASELINE, Journal, command_of, read_rows
from common.epilogue import Epilogue
from common.problem import DTYPES, Layout

SCRIPT = str(tables.ROOT / "bench" / "compare.py")
VECTOR = "triton/decompose_k.vector"
FP32 = "tilus/semaphore.fp32"
US = {BASELINE: 10.0, VECTOR: 8.0, FP32: 12.5}
ROUTER = ["--workload", "router", "--tokens", "1,16", "--only", VECTOR, "--only", FP32]


class Measuring:
    """Stands for bench.worker: makes up rows, and notes what was asked of it."""

    def __init__(self):
        self.asked = []
        self.built = []
        self.us = dict(US)
        self.stop_after = None

    def __call__(self, workload, problem, kernels, options, child, builders):
        for kernel in kernels:
            if self.stop_after is not None and len(self.asked) == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append((problem.m, kernel.full_name, options))
            made = row(kernel.full_name, problem.m, self.us[kernel.full_name], timings=options.timings)
            for figures in made.timing.values():
                figures["rounds"] = options.rounds
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
    monkeypatch.setattr("bench.environment.environment", lambda device: row().environment)
    monkeypatch.setattr(worker, "measure", measuring)
    monkeypatch.setattr(tuning, "build_ahead", lambda problems, **how: measuring.built.extend(problems))
    monkeypatch.setattr(compare, "JOURNALS", tmp_path / "journals")
    return measuring


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(compare, "JOURNALS", tmp_path / "journals")
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def run(*arguments: str):
    return compare.run(compare.parser().parse_args(arguments))


def script(*arguments: str, cwd=tables.ROOT, **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, cwd=cwd, env=environment
    )


def test_commands_begun_in_the_same_second_have_journals_of_their_own(gpu):
    for _ in range(3):
        run(*ROUTER)
    assert len(list(compare.JOURNALS.glob("*.jsonl"))) == 3


def test_its_names_are_those_of_the_project():
    assert set(compare.LAYOUTS) == {layout.value for layout in Layout}
    assert set(compare.DTYPES) == set(DTYPES)
    assert set(compare.EPILOGUES) == {epilogue.value for epilogue in Epilogue}
    assert set(compare.TUNE) == {"off", *tuning.BUDGETS}


def test_help_waits_for_neither_torch_nor_a_kernel(tmp_path):
    made = script("--help", cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    assert made.returncode == 0
    assert "--candidate FILE.py:FUNCTION" in made.stdout
    assert not any(f" {package}\n" in made.stderr for package in ("torch", "triton", "tilus", "rich"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--workload NAME, --problem NAME or --shape MxNxK is needed"),
        (["--problem", "or-1x1x1-int8"], "problem is 'or-1x1x1-int8'"),
        (["--workload", "or_reduce", "--layout", "nk"], "or_reduce has no problem of layout nk"),
        (["--workload", "rooter"], "accepted: router"),
        (["--shape", "16x256"], "accepted: MxNxK"),
        (["--shape", "1x16x16", "--tokens", "1"], "--tokens needs --workload"),
        (["--workload", "router", "--tokens", "none"], "accepted: positive integers"),
        (["--workload", "router", "--only", "tritn"], "no contender is named 'tritn'"),
        (["--workload", "router", "--candidate", "x"], "accepted: FILE.py:FUNCTION"),
        (["--workload", "router", "--candidate", "no_such.py:f"], "there is no file no_such.py"),
        (["--workload", "router", "--timing", "tepid"], "accepted: of cold, warm, host"),
        (["--workload", "router", "--rounds", "0"], "--rounds is 0"),
        (["--workload", "router", "--fail-over", "5"], "--fail-over needs --against"),
        (["--workload", "router", "--against", "no_such.json"], "--against no_such.json"),
        (["--workload", "router", "--resume"], "there is no journal"),
    ],
)
def test_what_it_cannot_do_is_told_in_one_line(gpu, capsys, arguments, told):
    assert compare.main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert told in error
    assert error.startswith("compare.py: error: ")
    assert "\n" not in error
    assert not gpu.asked


def test_every_contender_is_measured_on_every_problem(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    rows = run(*ROUTER, "--output", str(output), "--timing", "cold,host", "--rounds", "7", "--tune", "quick")
    assert gpu.contenders == [(m, name) for m in (1, 16) for name in US]
    assert {options for *_, options in gpu.asked} == {
        worker.Options(timings=("cold", "host"), rounds=7, tune="quick", device=0)
    }
    assert [(r.problem["m"], r.contender) for r in rows] == gpu.contenders
    assert read_rows(output) == rows


def test_rows_are_on_disk_as_they_are_made(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    seen = []

    class Watching(compare.Watcher):
        def has(self, row):
            seen.append(len(read_rows(output)))

    compare.run(compare.parser().parse_args([*ROUTER, "--output", str(output)]), Watching())
    assert seen == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("stop_after", range(6))
def test_an_interrupted_run_goes_on_where_it_was(gpu, capsys, tmp_path, stop_after):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = stop_after
    assert compare.main([*ROUTER, *output]) == 130
    assert "--resume" in capsys.readouterr().err
    gpu.stop_after = None
    rows = run(*ROUTER, *output, "--resume")
    assert gpu.contenders == [(m, name) for m in (1, 16) for name in US]
    assert [(r.problem["m"], r.contender) for r in rows] == gpu.contenders


def test_resume_takes_the_latest_journal(gpu):
    gpu.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        run(*ROUTER)
    gpu.stop_after = None
    assert len(run(*ROUTER, "--resume")) == len(gpu.asked) == 6


@pytest.mark.parametrize(
    ("flags", "environment", "told"),
    [
        ([], {"device": "NVIDIA H100"}, "device: NVIDIA H200 there, NVIDIA H100 here"),
        ([], {"triton": "3.7.1", "tilus": None}, "triton: 3.6.0 there, 3.7.1 here; tilus: 0.2.0 there, None here"),
        ([], {"gpus": "2"}, "gpus: 1 there, 2 here"),
        (["--rounds", "7"], {}, f"--rounds: {worker.Options.rounds} there, 7 here"),
        (["--tune", "quick"], {}, "--tune: off there, quick here"),
    ],
)
def test_rows_measured_otherwise_are_not_mixed(gpu, monkeypatch, capsys, tmp_path, flags, environment, told):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    gpu.stop_after = 2
    assert compare.main([*ROUTER, *output]) == 130
    capsys.readouterr()
    monkeypatch.setattr("bench.environment.environment", lambda device: row().environment | environment)
    assert compare.main([*ROUTER, *output, *flags, "--resume"]) == 2
    assert capsys.readouterr().err.strip().endswith(f"were measured otherwise: {told}")
    assert len(gpu.asked) == 2


def test_rows_of_another_revision_are_told_and_kept(gpu, monkeypatch, capsys, tmp_path):
    output = ["--output", str(tmp_path / "rows.jsonl"), "--tune", "off", "--rounds", "7"]
    gpu.stop_after = 2
    assert compare.main([*ROUTER, *output]) == 130
    gpu.stop_after = None
    monkeypatch.setattr("bench.environment.environment", lambda device: row().environment | {"git": "fedcba987654"})
    assert compare.main([*ROUTER, *output, "--resume"]) == 0
    assert "rows of revision 0123456789ab; this is fedcba987654" in capsys.readouterr().err
    assert len(gpu.asked) == 6


def test_other_timings_are_measured_anew(gpu, tmp_path):
    output = ["--output", str(tmp_path / "rows.jsonl")]
    run(*ROUTER, *output, "--timing", "cold")
    assert len(run(*ROUTER, *output, "--resume", "--timing", "warm")) == len(gpu.asked) == 12


def test_a_journal_is_not_written_over(gpu, capsys, tmp_path):
    (tmp_path / "rows.jsonl").write_text("")
    assert compare.main([*ROUTER, "--output", str(tmp_path / "rows.jsonl")]) == 2
    assert "--resume goes on with it" in capsys.readouterr().err


def test_it_shows_a_table_a_problem_and_the_summary(gpu, capsys, tmp_path):
    files = ["--csv", str(tmp_path / "rows.csv"), "--json", str(tmp_path / "rows.json")]
    assert compare.main([*ROUTER, *files]) == 0
    shown = capsys.readouterr()
    assert "router 1x256x7168-bf16-nk" in shown.out
    assert "router 16x256x7168-bf16-nk" in shown.out
    assert f"{VECTOR} *" in shown.out
    assert "summary" in shown.out
    assert "Recorded on NVIDIA H200" in shown.out
    assert str(tmp_path / "journals") in shown.err.replace("\n", "")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 7
    assert len(read_rows(tmp_path / "rows.json")) == 6


def test_the_matrix_and_the_plots_come_beside_the_tables(gpu, capsys, tmp_path):
    assert compare.main([*ROUTER, "--matrix", "--plot", str(tmp_path / "plots")]) == 0
    shown = capsys.readouterr().out
    assert "summary" in shown and "language x protocol" in shown
    assert (tmp_path / "plots" / "router-bf16-nk-speedup.svg").exists()


def test_without_a_gpu_the_matrix_and_the_plots_are_those_of_what_was_recorded(no_gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(worker, "measure", Measuring())
    for made in (row(BASELINE, 64), row(VECTOR, 64, 8.0)):
        Journal(tmp_path / "results" / "h200" / "router-nk.jsonl").append(made)
    arguments = ["--workload", "router", "--only", VECTOR, "--matrix", "--plot", str(tmp_path / "plots")]
    assert compare.main(arguments) == 0
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
    assert compare.main([*ROUTER, "--json", old]) == 0
    against = ["--against", old, "--fail-over", "5"]
    assert compare.main([*ROUTER, *against, "--output", str(tmp_path / "same.jsonl")]) == 0
    gpu.us[FP32] *= 1.2
    assert compare.main([*ROUTER, *against, "--output", str(tmp_path / "slower.jsonl")]) == 3
    assert "4 slower by more than 5%" in capsys.readouterr().out


def test_what_a_search_found_goes_to_the_devices_table(gpu, capsys, monkeypatch, tmp_path):
    written = []
    monkeypatch.setattr(tuning, "write_table", lambda slug, rows: written.append((slug, len(rows))) or tmp_path / slug)
    assert compare.main([*ROUTER, "--tune", "quick", "--output", str(tmp_path / "rows.jsonl")]) == 0
    assert written == [("h200", 3), ("h200", 3)]  # after each problem: the next search begins with it
    assert "tuned configs are in" in capsys.readouterr().out


def test_a_rank_without_a_gpu_of_its_own_is_told(gpu, monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert compare.main(ROUTER) == 2
    assert "local rank 1 has no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--require-gpu"], ["--against", SCRIPT, "--fail-over", "5"]])
def test_where_a_gpu_is_required_and_none_is_there(no_gpu, capsys, flags):
    assert compare.main([*ROUTER, *flags]) == 2
    assert f"{flags[0]}: there is no CUDA device" in capsys.readouterr().err


def test_files_are_held_against_each_other_without_a_gpu_elsewhere(no_gpu, capsys):
    assert compare.main([*ROUTER, "--against", SCRIPT]) == 2
    error = capsys.readouterr().err.strip()
    assert "python bench/report.py NEW --against OLD" in error and "\n" not in error


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--csv", "no/such/folder/rows.csv"], "--csv no/such/folder/rows.csv: there is no such folder"),
        (["--plot", SCRIPT], "there is a file of that name; accepted: a folder"),
        (["--out-dtype", "fp16"], "out_dtype is fp16; accepted: that of the inputs, bf16, or fp32"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_measured(gpu, capsys, flags, said):
    assert compare.main([*ROUTER, *flags]) == 2
    assert said in capsys.readouterr().err
    assert gpu.asked == []


@pytest.mark.parametrize(
    ("text", "told"),
    [('{"schema": 99}\n', "row of schema 99"), ("no\nrow", "Expecting value"), ("3\n", "not a row: 3")],
)
def test_a_journal_that_is_none_is_not_resumed(gpu, capsys, tmp_path, text, told):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    assert compare.main([*ROUTER, "--resume", "--output", str(file)]) == 2
    error = capsys.readouterr().err.strip()
    assert told in error and "\n" not in error
    assert file.read_text() == text


def test_without_a_gpu_few_tokens_are_checked(no_gpu, monkeypatch):
    measuring = Measuring()
    monkeypatch.setattr(worker, "measure", measuring)
    run("--workload", "router", "--only", VECTOR)
    assert measuring.contenders == [(1, name) for name in (BASELINE, VECTOR)]
    assert {options for *_, options in measuring.asked} == {worker.Options(timings=(), device="cpu")}


def test_without_a_gpu_what_was_recorded_is_shown(no_gpu, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    measuring = Measuring()
    monkeypatch.setattr(worker, "measure", measuring)
    arguments = ["--workload", "router", "--only", VECTOR]

    assert compare.main([*arguments, "--output", str(tmp_path / "first.jsonl")]) == 0
    assert "No rows are recorded for these problems." in capsys.readouterr().out

    recorded = Journal(tmp_path / "results" / "h200" / "router-nk.jsonl")
    for made in (row(BASELINE, 64), row(VECTOR, 64, 8.0), replace(row(), problem=row().problem | {"name": "other"})):
        recorded.append(made)
    assert compare.main([*arguments, "--output", str(tmp_path / "second.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "checked on the CPU, not timed" in shown
    assert "Not measured here, but recorded: results/h200/router-nk.jsonl" in shown
    assert "Recorded on NVIDIA H200" in shown
    assert "2026-11-21" in shown
    assert "8.0 (1.25x) *" in shown
    assert "other" not in shown
    assert "There is no CUDA device: timing" in shown


CANDIDATES = """
import os
def right(a, b): return a @ b
def wrong(a, b): return 0 * (a @ b)
def wide(a, b): return a.float() @ b.float()
def dies(a, b): os._exit(7)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the same is tested with time taken")
def test_without_a_gpu_candidates_are_checked_for_real(tmp_path):
    (tmp_path / "brought.py").write_text(CANDIDATES)
    names = ("right", "wrong", "wide", "dies")
    candidates = [word for name in names for word in ("--candidate", f"brought.py:{name}")]
    shapes = ["--shape", "3x16x64", "--only", "candidate", "--epilogue", "relu"]
    made = script(*shapes, *candidates, "--output", "rows.jsonl", "--csv", "rows.csv", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
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
    shapes = ["--shape", "16x64x512", "--only", "candidate", "--only", VECTOR, "--rounds", "4"]
    made = script(*shapes, *candidates, "--timing", "cold,warm,host", "--output", "rows.jsonl", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    rows = {made_row.contender.rpartition(":")[2]: made_row for made_row in read_rows(tmp_path / "rows.jsonl")}
    assert {name: made_row.status for name, made_row in rows.items()} == {
        BASELINE: "passed",
        VECTOR: "passed",
        "right": "passed",
        "wrong": "wrong",
        "dies": "crashed",
    }
    for name in (BASELINE, VECTOR, "right"):
        assert set(rows[name].timing) == {"cold", "warm", "host"}
    again = script(
        *shapes, *candidates, "--timing", "cold,warm,host", "--output", "rows.jsonl", "--resume", cwd=tmp_path
    )
    assert again.returncode == 0, again.stderr
    assert len(read_rows(tmp_path / "rows.jsonl")) == 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU every rank needs one of its own")
def test_ranks_share_the_problems(tmp_path):
    shapes = [word for m in range(1, 6) for word in ("--shape", f"{m}x16x64")]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, SCRIPT, *shapes, "--only", "torch/mm", "--output", "rows.jsonl", "--json", "rows.json"]
    made = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert made.returncode == 0, made.stderr
    assert sorted(made_row.problem["m"] for made_row in read_rows(tmp_path / "rows.jsonl")) == [1, 2, 3, 4, 5]
    assert len(json.loads((tmp_path / "rows.json").read_text())) == 5
    assert made.stdout.count("checked on the CPU") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.json", "rows.jsonl"]


class TwoRanks:
    """This process is rank 0; what rank 1 has to tell is made up."""

    def __init__(self, told):
        self.rank, self.count, self.local, self.told = 0, 2, 0, told

    def agree(self, make):
        return make()

    def gather(self, value):
        return [value, self.told]


def test_a_rank_that_stopped_is_told_and_costs_no_rows(gpu, monkeypatch, capsys, tmp_path):
    told = {"stopped": "rank 1 stopped: RuntimeError: no GPU", "rows": [row(VECTOR, 16, 8.0).to_json()]}
    monkeypatch.setattr("bench.ranks.Ranks", lambda: TwoRanks(told))
    output = tmp_path / "rows.jsonl"
    assert compare.main([*ROUTER, "--output", str(output)]) == 1
    assert "rank 1 stopped: RuntimeError: no GPU" in capsys.readouterr().err
    assert gpu.contenders == [(1, name) for name in US]
    assert [(r.problem["m"], r.contender) for r in read_rows(output)] == [*gpu.contenders, (16, VECTOR)]


def test_what_interrupted_ranks_left_is_taken_up(gpu, tmp_path):
    output = tmp_path / "rows.jsonl"
    Journal(output).append(row(BASELINE, 1))
    Journal(tmp_path / "rows.rank1.jsonl").append(row(VECTOR, 16, 8.0))
    rows = run(*ROUTER, "--output", str(output), "--resume", "--rounds", "30")
    assert len(rows) == 6
    assert gpu.contenders == [(1, VECTOR), (1, FP32), (16, BASELINE), (16, FP32)]
    assert list(tmp_path.glob("*.rank*")) == []


def test_list_names_workloads_and_contenders(capsys):
    assert compare.main(["--list", "--layout", "kn"]) == 0
    shown = capsys.readouterr().out
    for name in (*workloads.WORKLOADS, "1024x256x7168-bf16-kn", *US):
        assert name in shown


def test_the_doctor_tells_what_is_there_and_what_is_not(no_gpu, capsys, monkeypatch):
    versions = {"tilus": None, "apache-tvm-ffi": "0.1.13", "torch": "2.12.0", "cuda-bindings": "13.1.0"}
    monkeypatch.setattr(doctor, "version", lambda package: versions.get(package, "1.0"))
    monkeypatch.setattr(doctor.shutil, "which", lambda tool: None)
    assert compare.main(["--doctor"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["torch"].split() == ["torch", "2.12.0", "ok"]
    assert "missing: wants ==0.2.0" in lines["tilus"]
    assert "0.1.13" in lines["apache-tvm-ffi"] and "wants <0.1.13,>=0.1.9" in lines["apache-tvm-ffi"]
    assert "missing: no CUDA device" in lines["GPU"]
    assert "missing: nvcc compiles with it" in lines["g++"]
    for name in (BASELINE, VECTOR, "tilus/semaphore.in_place"):
        assert name in lines


def test_the_doctor_reads_every_requirement_of_the_project():
    names = [requirement.name for requirement in doctor.requirements()]
    assert {"torch", "triton", "tilus", "apache-tvm-ffi", "cuda-bindings", "rich", "pandas"} <= set(names)


def test_what_is_measured_is_built_ahead_unless_a_search_builds_it(gpu, tmp_path):
    run("--workload", "router", "--tokens", "1,4", "--only", VECTOR)
    assert [(problem.m, [kernel.full_name for kernel in kernels]) for problem, kernels in gpu.built] == [
        (m, [BASELINE, VECTOR]) for m in (1, 4)
    ]
    gpu.built.clear()
    run("--workload", "router", "--tokens", "1", "--only", VECTOR, "--tune", "quick", "--output", str(tmp_path / "b"))
    assert gpu.built == []
