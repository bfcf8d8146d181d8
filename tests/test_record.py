"""Every file of rows has the command that records it, and holds nothing else."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import made_rows
import pytest
from msgspec import structs
from said import on_stderr

from triton_vs_tilus.bench import contenders, record
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.recordings import RECORDINGS
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.journal import Journal, read_rows
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Language

FILES = queries.recorded()


def test_files_are_listed_from_any_folder(monkeypatch, capsys, tmp_path):
    """Candidates are named by their paths below the checkout."""
    monkeypatch.chdir(tmp_path)
    assert run_command(record.main, ["--list", "candidates"]) == 0
    assert "examples/candidates/masked.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_command_is_one_of_compares(name):
    assert record._asked(name)


@pytest.mark.parametrize("suite", ["epilogue-bf16", "matmul-bf16", "matmul-fp16", "matmul-fp32"])
def test_what_torch_compiles_without_a_search_is_recorded_on_every_skinny_shape(suite):
    pairs = record._asked(f"skinny-{suite}-compiled")
    names = {contender for _, contender in pairs}
    assert names == {"torch/mm", "torch/compile.default", "torch/decompose_k.eager", "torch/decompose_k.compiled"}
    assert len(pairs) == 28 * len(names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_holds_rows_of_its_command(path):
    pairs = record._asked(path.stem)
    assert {(row.problem.name, row.contender) for row in FILES[path]} <= pairs.keys()


@pytest.fixture
def two_gpus(monkeypatch, tmp_path, tuned_tables):
    """Two GPUs, and a compare.py that writes a row with its own words in it, and fails where the layout is kn.

    Every recording asks for this row alone."""
    made = tmp_path / "compare.py"
    row = structs.replace(made_rows.row(), environment=EnvironmentRecord(device="NVIDIA Made Up"))
    made.write_text(
        "import json, os, sys\n"
        "from pathlib import Path\n"
        f"row = json.loads({json.dumps(row.to_json())!r})\n"
        "cpus = ','.join(map(str, sorted(os.sched_getaffinity(0))))\n"
        "row['message'] = ' '.join([os.environ['CUDA_VISIBLE_DEVICES'], cpus, *sys.argv[1:]])\n"
        "Path(sys.argv[sys.argv.index('--output') + 1]).write_text(json.dumps(row) + '\\n')\n"
        "sys.exit(2 if 'kn' in sys.argv else 0)\n"
    )
    monkeypatch.setattr(record, "COMPARE", made)
    monkeypatch.setattr(record, "JOURNALS", tmp_path / "journals")
    monkeypatch.setattr(queries, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(record, "_gpus", lambda: ["0", "1"])
    monkeypatch.setattr(record, "_asked", lambda name: {(row.problem.name, row.contender): None})
    return tmp_path


def test_what_came_to_its_end_becomes_the_file_and_the_rest_stays_a_journal(two_gpus, capsys):
    assert run_command(record.main, ["router-nk", "router-kn", "or_reduce-int64"]) == 1
    results, journals = two_gpus / "results" / "made-up", two_gpus / "journals" / "recordings"
    assert {path.stem for path in results.iterdir()} == {"router-nk", "or_reduce-int64"}
    assert [path.stem for path in journals.glob("*.jsonl")] == ["router-kn"]
    (row,) = read_rows(results / "router-nk.jsonl")
    gpu, cpus, *words = row.message.split()
    assert gpu in ("0", "1") and words[:2] == ["--workload", "router"] and "--resume" in words
    every = sorted(os.sched_getaffinity(0))
    half = {"0": every[: len(every) // 2], "1": every[len(every) // 2 :]}[gpu] or every
    assert cpus == ",".join(map(str, half))
    said = capsys.readouterr().out
    assert "router-nk: recorded" in said and "router-kn: exit code 2" in said


def test_a_file_of_several_revisions_tells_them(two_gpus, monkeypatch, capsys):
    made = two_gpus / "compare.py"
    twice = "row['environment']['git'] = 'abc'; lines = json.dumps(row); row['environment']['git'] = 'def+'; "
    writes = "write_text(json.dumps(row) + '\\n')"
    assert writes in made.read_text()
    made.write_text(
        made.read_text()
        .replace(writes, "write_text(lines + '\\n' + json.dumps(row) + '\\n')")
        .replace("row['message'] =", twice + "row['message'] =")
    )
    assert run_command(record.main, ["router-nk"]) == 0
    assert "router-nk: its rows are of 2 revisions: abc, def+\n" in capsys.readouterr().out


def test_a_name_given_twice_is_recorded_once(two_gpus, capsys):
    assert run_command(record.main, ["router-nk", "router-nk"]) == 0
    assert capsys.readouterr().out.count("router-nk: recorded") == 1


def test_a_contender_that_failed_has_its_row_and_one_without_a_row_is_missing(two_gpus, monkeypatch, capsys):
    compare_py = two_gpus / "compare.py"
    compare_py.write_text(compare_py.read_text().replace("else 0", "else 1"))
    assert run_command(record.main, ["router-nk"]) == 0
    assert "router-nk: recorded" in capsys.readouterr().out
    monkeypatch.setattr(record, "_asked", lambda name: dict.fromkeys([("one", "row"), ("another", "row")]))
    assert run_command(record.main, ["router-nk"]) == 1
    assert "router-nk: 2 rows are missing, exit code 1, log " in capsys.readouterr().out


def test_what_was_searched_here_is_shipped_before_the_rows_are_measured(two_gpus, tuned_tables, capsys):
    """So the table that the rows were measured with is a file that can be committed with them."""
    compare_py = two_gpus / "compare.py"
    made = f"row['environment']['tuned'] = sha256({str(tuned_tables / 'made-up.json')!r}); row['message']"
    head = (
        "import hashlib, pathlib\n"
        "sha256 = lambda path: hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:12]\n"
    )
    compare_py.write_text(head + compare_py.read_text().replace("row['message']", made))
    entry = {"problem": {"m": 1}, "config": {"split_k": 2}, "search": {"date": "2026-11-24"}}
    tuned.write("made-up", [("triton/atomic", entry)], shipped=False)
    assert run_command(record.main, ["router-nk"]) == 0
    (row,) = read_rows(two_gpus / "results" / "made-up" / "router-nk.jsonl")
    assert row.environment.tuned == tuned.fingerprint("made-up")
    assert json.loads((tuned_tables / "made-up.json").read_text()) == {"triton/atomic": [entry]}
    assert "made-up.json: the tuned table of the rows" in capsys.readouterr().out


def test_a_terminated_recording_ends_its_commands(two_gpus, monkeypatch):
    compare_py = two_gpus / "compare.py"
    ended = two_gpus / "ended"
    compare_py.write_text(
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(ended)!r}).touch(), sys.exit(143)))\n"
        f"pathlib.Path({str(two_gpus / 'began')!r}).touch()\n"
        "time.sleep(60)\n"
    )

    def terminate():
        while not (two_gpus / "began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    assert run_command(record.main, ["router-nk", "or_reduce-int64", "or_reduce-int32"]) == 143
    assert ended.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_ends_one_that_does_not_end_itself(two_gpus, monkeypatch, capsys, number):
    compare_py = two_gpus / "compare.py"
    writes, _, exits = compare_py.read_text().rpartition("sys.exit(")
    assert exits
    compare_py.write_text(
        "import signal, time\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        f"{writes}"
        f"Path({str(two_gpus / 'began')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(record, "GRACE_S", 0.2)

    def interrupt():
        while not (two_gpus / "began").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt).start()
    assert run_command(record.main, ["router-nk"]) == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int((two_gpus / "began").read_text()), 0)
    journal = two_gpus / "journals" / "recordings" / "router-nk.jsonl"
    assert len(read_rows(journal)) == 1
    said = capsys.readouterr()
    assert f"router-nk: exit code -9, log {journal.with_suffix('.log')}, rows so far in {journal}" in said.out
    assert "Traceback" not in said.err


def test_what_passed_before_has_to_pass_again(two_gpus, capsys):
    assert run_command(record.main, ["router-nk"]) == 0
    file = two_gpus / "results" / "made-up" / "router-nk.jsonl"
    before = file.read_text()
    compare_py = two_gpus / "compare.py"
    compare_py.write_text(compare_py.read_text().replace("row['message']", "row['status'] = 'crashed'; row['message']"))
    assert run_command(record.main, ["router-nk"]) == 1
    assert file.read_text() == before
    said = " ".join(capsys.readouterr().out.split())
    assert "router-nk: not replaced, as these passed there: torch/mm on 1x256x7168-bf16-nk (crashed: " in said
    assert (two_gpus / "journals" / "recordings" / "router-nk.jsonl").exists()


def test_an_old_file_that_cannot_be_read_keeps_no_other_from_being_recorded(two_gpus, capsys):
    old = two_gpus / "results" / "made-up" / "router-nk.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text("[]\n")
    assert run_command(record.main, ["router-nk", "or_reduce-int64", "or_reduce-int32"]) == 1
    said = capsys.readouterr().out
    assert f"router-nk: not replaced, as what passed there cannot be read: {old}:1: Expected `object`" in said
    assert old.read_text() == "[]\n" and (two_gpus / "journals" / "recordings" / "router-nk.jsonl").exists()
    assert "or_reduce-int64: recorded" in said and "or_reduce-int32: recorded" in said


def test_what_cannot_be_recorded_is_said(monkeypatch, capsys):
    assert run_command(record.main, ["nothing"]) == 2
    assert "name is 'nothing'; accepted: names that `python bench/record.py --list` lists" in on_stderr(capsys)
    monkeypatch.setattr(record, "_gpus", lambda: [])
    assert run_command(record.main, []) == 2
    assert "there is no CUDA device" in on_stderr(capsys)


def test_the_list_tells_commands_and_rows(capsys):
    assert run_command(record.main, ["--list", "router-nk"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    held = len(FILES[queries.RESULTS / "h200" / "router-nk.jsonl"])
    assert "router-nk" in said and f"{held} of {len(record._asked('router-nk'))} (h200)" in said
    assert "python bench/compare.py --workload router" in said


def test_the_list_counts_rows_whose_config_the_command_would_not_take(monkeypatch, tmp_path, capsys):
    rows = [made_rows.row(name) for name in ("torch/mm", "triton/decompose_k.vector", "tilus/semaphore.fp32")]
    for row in rows:
        Journal(tmp_path / "made-up" / "router-nk.jsonl").append(row)
    monkeypatch.setattr(queries, "RESULTS", tmp_path)

    def said(split: int) -> str:
        """Where the command takes what the rows have, but for tilus' split."""

        def pick(kernel, problem, slug):
            assert slug == "made-up"
            (row,) = [row for row in rows if row.contender == kernel.full_name]
            config = kernel.config_from(row.config)
            of_tilus = kernel.language is Language.TILUS
            return dataclasses.replace(config, split_k=split) if of_tilus else config, "tuned"

        monkeypatch.setattr(contenders, "pick", pick)
        assert run_command(record.main, ["--list", "router-nk"]) == 0
        return " ".join(capsys.readouterr().out.split())

    asked = len(record._asked("router-nk"))
    assert f"3 of {asked} (made-up), 1 with a former config" in said(split=8)
    assert "(made-up) " in said(split=4) and "(made-up)," not in said(split=4)


def test_the_list_counts_rows_of_the_former_clock(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(queries, "RESULTS", tmp_path)
    file = Journal(tmp_path / "made-up" / "router-nk.jsonl")
    for made in (made_rows.row("torch/mm"), made_rows.by_former_clock(made_rows.row("triton/atomic"))):
        file.append(made)
    assert run_command(record.main, ["--list", "router-nk"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"2 of \d+ \(made-up\)(, \d with a former config)?, 1 by the former clock ", said)


def test_the_list_leaves_out_what_the_command_cannot_ask_for_here(monkeypatch, tmp_path, capsys):
    """As where a language cannot be imported, or a kernel has another name since."""
    rows = [
        made_rows.row(),
        structs.replace(made_rows.row("tilus/semaphore.fp32"), contender="tilus/semaphore.of_before"),
    ]
    for row in rows:
        Journal(tmp_path / "made-up" / "router-nk.jsonl").append(row)
    monkeypatch.setattr(queries, "RESULTS", tmp_path)
    assert run_command(record.main, ["--list", "router-nk"]) == 0
    assert f"2 of {len(record._asked('router-nk'))} (made-up)" in " ".join(capsys.readouterr().out.split())


def test_the_list_does_not_tell_the_config_of_a_kernel_that_cannot_run_here(monkeypatch):
    kernel, problem = contenders.find("triton/atomic"), made_rows.router_problem(1)
    config = vars(kernel.default_config(problem))
    row = structs.replace(made_rows.row("triton/atomic"), config={**config, "split_k": 2 * config["split_k"]})
    assert record._has_former_config(row, problem, kernel, "made-up")
    of_before = {name: value for name, value in config.items() if name != "split_k"}
    assert record._has_former_config(
        structs.replace(row, config={**of_before, "splits": 1}), problem, kernel, "made-up"
    )
    refusing = dataclasses.replace(kernel, supports=lambda problem, config: "not here")
    monkeypatch.setattr(contenders, "find", lambda name: refusing)
    assert not record._has_former_config(row, problem, kernel, "made-up")


def test_it_runs_as_a_script():
    script = queries.ROOT / "bench" / "record.py"
    run = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert run.returncode == 0 and "Records the checked-in rows anew" in run.stdout
