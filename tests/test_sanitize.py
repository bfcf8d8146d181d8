"""compute-sanitizer, played by a program that prints as it does: whose a finding is, and what follows a crash."""

import stat
import sys
from collections import defaultdict

import pytest
import torch
from matmul_cases import lacks
from said import on_stderr

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders, sanitize
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import sanitizer
from triton_vs_tilus.bench.rows import environment
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.common.kernel import Language, band_steps, tiles_of
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Feed

HERE = EnvironmentRecord(device="NVIDIA Made Up")
EVERY = sanitizer.chosen_tasks([])
FEW = [task for task in EVERY if task.contender in ("triton/atomic", "tilus/atomic")][:5]


@pytest.fixture
def program(tmp_path):
    """A compute-sanitizer that names the tasks and prints what `said` has for each; 'exit 3' ends it, 'wait' hangs."""

    def made(said: dict[int, str], summary: str = "ERROR SUMMARY: 0 errors") -> str:
        path = tmp_path / "compute-sanitizer"
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, pathlib, sys, time\n"
            "asked = json.loads(pathlib.Path(sys.argv[-1]).read_bytes())\n"
            f"said = {said!r}\n"
            "print('========= COMPUTE-SANITIZER')\n"
            "start = 5 - len(asked)\n"
            "for number in range(len(asked)):\n"
            "    print(f'@@ {number}')\n"
            "    words = said.get(start + number, '')\n"
            "    if words.startswith('exit'):\n"
            "        print('RuntimeError: an illegal memory access')\n"
            "        sys.exit(3)\n"
            "    if words == 'wait':\n"
            "        sys.stdout.flush()\n"
            "        time.sleep(60)\n"
            "    print('\\n'.join('========= ' + line for line in words.splitlines()))\n"
            f"print('========= {summary}')\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return made


def test_every_kernel_is_run_whole_and_ragged_in_both_layouts():
    kernels = [*kernels_triton.KERNELS, *kernels_tilus.KERNELS]
    named = {kernel.full_name for kernel in kernels if not lacks(kernel)}
    assert {task.contender for task in EVERY} == named
    for name in ("triton/atomic", "tilus/atomic"):
        own = [task for task in EVERY if task.contender == name]
        problems = [task.solved() for task in own]
        assert {problem.layout for problem in problems} == set(Layout)
        configs = [contenders.find(name).config_from(task.config) for task in own]
        ragged = [
            problem.m % config.block_m or problem.k % config.block_k
            for problem, config in zip(problems, configs, strict=True)
        ]
        assert any(ragged) and not all(ragged)
        instructions = {config.fed.instruction for config in configs}
        assert {"mma", "wgmma"} <= instructions
    assert all(contenders.find(task.contender).supports(task.solved(), None) is None for task in EVERY)


def test_each_way_to_feed_a_tile_is_run_until_its_stages_are_filled_again():
    own = [task for task in EVERY if task.contender in ("tilus/data_parallel", "tilus/atomic", "tilus/cluster")]
    filled_again = defaultdict(set)
    for task in own:
        problem, config = task.solved(), contenders.find(task.contender).config_from(task.config)
        if band_steps(problem.k, config.block_k, config.split_k) > config.num_stages:
            filled_again[task.contender].add(config.fed.feed)
    with_tma = {Feed.TMA, Feed.TMA_PRODUCER, Feed.TMA_PAIRS}
    assert with_tma <= filled_again["tilus/data_parallel"] and with_tma <= filled_again["tilus/atomic"]
    assert with_tma - {Feed.TMA_PAIRS} <= filled_again["tilus/cluster"]


def test_persistent_programs_are_run_on_several_tiles_each():
    for name in ("triton/data_parallel.persistent", "tilus/data_parallel.persistent"):
        feeds = {Feed.COPY, Feed.COPY_SLICED, Feed.TMA} | ({Feed.TMA_PRODUCER} if name.startswith("tilus") else set())
        for task in (task for task in EVERY if task.contender == name):
            config = contenders.find(name).config_from(task.config)
            if tiles_of(task.solved(), config) > config.programs:
                feeds.discard(config.fed.feed)
        assert not feeds


def test_a_finding_is_of_the_task_that_it_came_in(program):
    lines = (
        "Invalid __global__ read of size 4 bytes",
        "    at _kernel+0x1a0",
        "    by thread (0,0,0)",
        "Saved host",
        "more",
    )
    invalid = "\n".join(lines)
    findings, done = sanitizer.run(program({1: invalid}), "memcheck", FEW, 60, print)
    said = "Invalid __global__ read of size 4 bytes | at _kernel+0x1a0 | by thread (0,0,0) | Saved host"
    assert findings == [sanitizer.Finding("memcheck", str(FEW[1]), said)] and done == 5
    assert sanitizer.run(program({}), "racecheck", FEW, 60, print) == ([], 5)


def test_a_summary_is_no_finding_of_the_last_task(program):
    """It counts what was found in all of them; where nothing was told of any, that is a finding."""
    findings, _ = sanitizer.run(program({1: "Invalid read"}, "ERROR SUMMARY: 1 error"), "memcheck", FEW, 60, print)
    assert findings == [sanitizer.Finding("memcheck", str(FEW[1]), "Invalid read")]
    findings, _ = sanitizer.run(program({}, "RACECHECK SUMMARY: 2 hazards displayed"), "racecheck", FEW, 60, print)
    assert findings == [sanitizer.Finding("racecheck", str(FEW[4]), "2 errors of no task")]


def test_what_was_not_printed_is_a_finding(program):
    hidden = "ERROR SUMMARY: 150 errors were not printed. Use --print-limit option to adjust"
    findings, _ = sanitizer.run(program({1: "Invalid read", 4: hidden}), "memcheck", FEW, 60, print)
    assert [finding.task for finding in findings] == [str(FEW[1]), str(FEW[4])]


def test_a_call_that_triton_makes_on_trial_is_none(program):
    """Any other call that fails is, and so is what else is told of the same kernel."""
    refused = 'Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to '
    trial = f"{refused}cuFuncSetAttribute.\n  Saved host backtrace\n    Host Frame: loadBinary [0x4c33]"
    launch = f"{refused}cuLaunchKernelEx.\n  Saved host backtrace\n    Host Frame: launch in lib.so"
    mode = f"{refused}cuFuncSetAttribute.\n  Saved host backtrace\n    Host Frame: launch in lib.so"
    quiet = program({1: trial, 3: trial}, "ERROR SUMMARY: 2 errors")
    assert sanitizer.run(quiet, "memcheck", FEW, 60, print) == ([], 5)
    assert sanitizer.run(program({1: trial}, "ERROR SUMMARY: 3 errors"), "memcheck", FEW, 60, print)[0] == [
        sanitizer.Finding("memcheck", str(FEW[4]), "2 errors of no task")
    ]
    findings, _ = sanitizer.run(
        program({0: launch, 1: f"{trial}\n \nInvalid read", 2: mode, 3: trial}, "ERROR SUMMARY: 5 errors"),
        "memcheck",
        FEW,
        60,
        print,
    )
    assert [finding.task for finding in findings] == [str(task) for task in FEW[:3]]
    assert findings[1].said == "Invalid read"


def test_shares_of_the_tasks_run_side_by_side(program):
    tools = "memcheck", "racecheck"
    quiet = program({})
    assert sorted(sanitizer.run_shared(quiet, tools, FEW, 3, 60, print)) == [(tool, [], 5) for tool in tools]
    assert [*sanitizer.run_shared(quiet, tools[:1], FEW, 9, 60, print)] == [("memcheck", [], 5)]
    ((_, findings, done),) = sanitizer.run_shared(program({3: "Invalid read"}), tools[:1], FEW, 2, 60, print)
    # The program takes the last of each share for FEW[4]: what it says of FEW[3] is said of the one before.
    assert [finding.task for finding in findings] == [str(FEW[2]), str(FEW[1])] and done == 5


def test_a_task_that_does_not_end_is_a_finding_and_the_rest_goes_on(program):
    findings, done = sanitizer.run(program({1: "wait"}), "racecheck", FEW, 3, lambda _: None)
    assert findings == [sanitizer.Finding("racecheck", str(FEW[1]), "no end within 3 s")] and done == 4


def test_what_ends_the_process_is_a_finding_and_the_rest_goes_on(program):
    findings, done = sanitizer.run(
        program({2: "exit 3", 4: "Error: Race reported"}), "racecheck", FEW, 60, lambda _: None
    )
    assert [(finding.task, finding.said) for finding in findings] == [
        (str(FEW[2]), "exit code 3: RuntimeError: an illegal memory access"),
        (str(FEW[4]), "Error: Race reported"),
    ]
    assert done == 4


def test_what_is_kept_replaces_the_same_part_alone(tmp_path):
    path = tmp_path / "h200" / "sanitizer.json"
    bad = sanitizer.Finding("memcheck", str(FEW[0]), "Invalid read")
    sanitizer.keep(path, "memcheck", FEW[:2], [bad], HERE, "2026-11-24")
    sanitizer.keep(path, "racecheck", FEW[:2], [], HERE, "2026-11-24")
    sanitizer.keep(path, "memcheck", FEW[1:3], [], HERE, "2026-11-25")
    kept = sanitizer.kept(path)
    assert kept.findings == [bad]
    checked = {(each.tool, task): each.time for each in kept.checked for task in each.tasks}
    assert checked[("memcheck", str(FEW[0]))] == "2026-11-24" and checked[("memcheck", str(FEW[1]))] == "2026-11-25"
    assert sum(len(each.tasks) for each in kept.checked) == len(checked) == 5
    assert {each.environment for each in kept.checked} == {HERE}
    sanitizer.keep(path, "memcheck", FEW[:1], [], HERE, "2026-11-25")
    assert sanitizer.kept(path).findings == []


@pytest.mark.interpreted
def test_what_runs_under_the_sanitizer(capsys):
    """Every task is named, then launched, here in the interpreters."""
    small = Matmul(5, 7, 129)
    mine = [task for task in EVERY if task.contender == "triton/atomic" and task.solved() == small]
    theirs = [task for task in EVERY if task.contender == "tilus/atomic" and task.solved() == small]
    launched = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "cpu", lambda tensor: launched.append(tensor) or tensor)
        sanitizer.launch_all([*mine[:1], *theirs[:1]], torch.device("cpu"))
    said = capsys.readouterr().out.splitlines()
    assert said == ["@@ 0", "@@ 1"]
    inputs = small.inputs("cpu")
    for out in launched[-2:]:
        torch.testing.assert_close(out.float(), (inputs.a.float() @ inputs.b.float()), rtol=2e-2, atol=2e-2)


def test_what_cannot_be_run_is_told(capsys):
    assert run_command(sanitize.main, ["--tool", "leakcheck"]) == 2
    assert "--tool is leakcheck; accepted: memcheck, racecheck, synccheck, initcheck" in on_stderr(capsys)
    if not torch.cuda.is_available():
        assert run_command(sanitize.main, []) == 2
        assert "there is no CUDA device" in on_stderr(capsys)


@pytest.mark.parametrize("gone", [{}, {Language.TILUS: "kernels_tilus cannot be imported: AttributeError"}])
def test_a_language_that_cannot_be_imported_is_a_failure(gone, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sanitize.cli, "has_gpu", lambda: True)
    monkeypatch.setattr(sanitize.shutil, "which", lambda program: program)
    monkeypatch.setattr(environment, "environment", lambda device: HERE)
    monkeypatch.setattr(contenders, "not_importable", lambda: gone)
    monkeypatch.setattr(sanitizer, "build_all", lambda *given: None)
    monkeypatch.setattr(sanitizer, "run_shared", lambda *given: [("memcheck", [], len(given[2]))])
    assert run_command(sanitize.main, ["--only", "atomic", "--output", str(tmp_path / "kept.json")]) == len(gone)
    assert all(reason in on_stderr(capsys) for reason in gone.values())
    assert sanitizer.kept(tmp_path / "kept.json").checked


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--seconds", "0"), "--seconds is 0; accepted: more than 0"),
        (("--seconds", "nan"), "--seconds is nan; accepted: more than 0"),
        (("--only", "torch/mm"), "--only is torch/mm; accepted: kernels of triton or tilus"),
    ],
)
def test_it_refuses_what_leaves_nothing_to_run(flags, told, monkeypatch, capsys):
    monkeypatch.setattr(sanitize.cli, "has_gpu", lambda: True)
    monkeypatch.setattr(sanitize.shutil, "which", lambda program: program)
    assert run_command(sanitize.main, flags) == 2
    assert told in on_stderr(capsys)
