"""What ncu counts: the command, its CSV, contenders that fail and metrics that it does not know, the tables."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise

import msgspec
import pytest
import torch
from made_rows import FP32, MADE, VECTOR, one_launch, router_problem, row
from msgspec.structs import replace
from said import on_stderr

from triton_vs_tilus.bench import counters as command
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import counters, profiled
from triton_vs_tilus.bench.diagnostics.counters import NcuFailed
from triton_vs_tilus.bench.diagnostics.metrics import METRICS, STALLS
from triton_vs_tilus.bench.diagnostics.profiled import RUNNING, Outcome, Task
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.journal import read_launches, to_line
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    CRASHED,
    PASSED,
    UNSUPPORTED,
    WRONG,
    Launch,
    ProblemRecord,
)
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.bench.show import counters as show_counters
from triton_vs_tilus.bench.show import docs
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul

ROUTER = ["--problem", "16x256x7168-bf16-nk", "--only", VECTOR, "--only", FP32]

# As ncu writes it, between its other lines; of the metrics a few.
LOG = """\
==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "nvjet_tst_64x8_64x16_4x1_v_bz_TNN" - 0: 0%....50%....100% - 14 passes
"ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","launch__grid_size","lts__t_bytes.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"
"","","","","","","","","","","","","","byte","ns","","byte","%","inst"
"0","4711","python3.12","127.0.0.1","4711  ""<default domain>:contender 0:none:none:none:none:none:none"" ","","void nvjet_tst_64x8_64x16_4x1_v_bz_TNN(T1::Params)","1","7","(384, 1, 1)","(132, 1, 1)","0","9.0","3,899,392","9,024","132","n/a","12.34","0.5"
"1","4711","python3.12","127.0.0.1","4711  ""<default domain>:contender 12:none:none:none:none:none:none"" ","","_matmul_partials_kernel","1","7","(128, 1, 1)","(16, 8, 1)","0","9.0","3899392","5056","128","(!) nan","12.34",""
==PROF== Disconnected from process 4711
"""  # noqa: E501


def test_a_log_is_read_among_its_other_lines():
    first, second = counters.parse(LOG)
    assert (first.number, first.gpu_kernel) == (0, "nvjet_tst_64x8_64x16_4x1_v_bz_TNN")
    assert (second.number, second.gpu_kernel) == (12, "_matmul_partials_kernel")
    told = {name: value for name, value in first.metrics.items() if value is not None}
    assert told == {
        "dram_read_bytes": 3899392.0,
        "time_us": 9.024,
        "grid_blocks": 132.0,
        "sm_pct": 12.34,
        "stall_gmma_cycles": 0.5,
    }
    assert first.metrics.keys() == METRICS.keys()
    assert second.metrics["l2_bytes"] is None and second.metrics["stall_gmma_cycles"] is None


def test_a_log_without_kernels_holds_nothing():
    assert counters.parse("") == counters.parse("==ERROR== No kernels were profiled.\n") == []


def test_a_kernel_that_is_nobodys_is_an_error():
    with pytest.raises(NcuFailed, match=r"_matmul_partials_kernel is in no contender's NVTX range: .*other 12"):
        counters.parse(LOG.replace("contender 12", "other 12"))


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("_matmul_atomic_kernel", "_matmul_atomic_kernel"),
        ("void cutlass::Kernel2<cutlass_80_wmma_16x16>(T1::Params)", "cutlass::Kernel2<cutlass_80_wmma_16x16>"),
        ("void gemvx::kernel<int, int, float, (bool)1>(T1)", "gemvx::kernel"),
        ("void at::native::(anonymous namespace)::copy<4, T>(T)", "at::native::copy"),
        ("(anonymous)", "(anonymous)"),
    ],
)
def test_names_are_short(signature, name):
    assert counters.short_name(signature) == name


def test_clocks_are_left_alone(tmp_path):
    words = counters.ncu_command("ncu", ["a", "b"], tmp_path / "log", tmp_path / "tasks", tmp_path / "outcomes")
    pairs = list(pairwise(words))
    assert ("--clock-control", "none") in pairs
    assert ("--cache-control", "all") in pairs
    assert ("--profile-from-start", "off") in pairs
    assert ("--metrics", "a,b") in pairs
    profiled = "triton_vs_tilus.bench.diagnostics.profiled"
    assert words[-5:] == [sys.executable, "-m", profiled, str(tmp_path / "tasks"), str(tmp_path / "outcomes")]


# Stands for ncu and the process under it. The plan: {contender: [its GPU kernels], or how it fails}.
FAKE = """\
import csv, json, os, sys

words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)")
    sys.exit()
with open(os.environ["PLAN"]) as file:
    plan = json.load(file)
metrics = words[words.index("--metrics") + 1].split(",")
log, tasks, outcomes = words[words.index("--log-file") + 1], *words[-2:]
with open(tasks) as file:
    tasks = json.load(file)
with open(os.environ["PLAN"] + ".starts", "a") as file:
    print(json.dumps([[task["contender"] for task in tasks], metrics]), file=file)
told, kernels, errors = [{"environment": plan["environment"]}], [], []
for task in tasks:
    what, number = plan[task["contender"]], task["number"]
    told.append({"number": number, "status": "running"})
    unknown = [metric for metric in metrics if metric in plan.get("unknown", [])]
    if unknown:
        errors.append("Failed to find metric regex:^" + unknown[0].replace(".", "\\\\.") + "$")
        break
    if what == "denied":
        errors.append("ERR_NVGPUCTRPERM - The user does not have permission")
        break
    if what == "dies":
        print("Fatal Python error: Segmentation fault")
        errors.append("The application returned an error code (11).")
        kernels = [] if plan.get("loses") else kernels
        break
    if what == "is wrong":
        told.append({"number": number, "status": "wrong", "message": "its output is not finite"})
        continue
    told.append({"number": number, "status": "passed", "config": plan.get("config")})
    kernels += [(number, name) for name in what]
with open(outcomes, "a") as file:
    file.writelines(json.dumps(line) + "\\n" for line in told)
with open(log, "w") as file:
    file.writelines(f"==ERROR== {error}\\n" for error in errors)
    if kernels:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["ID", "thread Domain:Push/Pop_Range:PL_Type", "Kernel Name", *metrics])
        writer.writerow(["", "", "", *(["%"] * len(metrics))])
        for index, (number, name) in enumerate(kernels):
            cell = f'1  "<default domain>:contender {number}:none:none"'
            writer.writerow([index, cell, name, *range(1000, 1000 + len(metrics))])
sys.exit(9 if errors else 0)
"""


class Ncu:
    def __init__(self, plan):
        self.path = plan
        self.plan(**{BASELINE: ["nvjet"], VECTOR: ["_partials", "_sum"], FP32: ["semaphore"]})

    def plan(self, **plan):
        self.path.write_text(json.dumps({"environment": msgspec.to_builtins(row().environment), **plan}))

    def also(self, **plan):
        self.path.write_text(json.dumps({**json.loads(self.path.read_text()), **plan}))

    @property
    def starts(self) -> list[tuple[list[str], list[str]]]:
        lines = self.path.with_name("plan.json.starts").read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines]


@pytest.fixture
def ncu(monkeypatch, tmp_path):
    """A machine with a GPU and an ncu, as far as the command can tell."""
    script = tmp_path / "bin" / "ncu"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n{FAKE}")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLAN", str(tmp_path / "plan.json"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(build, "build_ahead", lambda problems, **how: None)
    monkeypatch.setattr(command, "FOLDER", tmp_path / "counters")
    return Ncu(tmp_path / "plan.json")


def counted(tmp_path, code: int = 0) -> list[Launch]:
    output = tmp_path / "launches.jsonl"
    assert run_command(command.main, [*ROUTER, "--output", str(output)]) == code
    return read_launches(output)


def of(launches: list[Launch]) -> list[tuple]:
    return [(launch.contender, launch.status, launch.gpu_kernel, launch.launch) for launch in launches]


ALL = [
    (BASELINE, PASSED, "nvjet", 0),
    (VECTOR, PASSED, "_partials", 0),
    (VECTOR, PASSED, "_sum", 1),
    (FP32, PASSED, "semaphore", 0),
]


def test_each_gpu_kernel_is_a_line_and_one_start_does_for_all(ncu, tmp_path, capsys):
    ncu.also(config=MADE[VECTOR][2])
    launches = counted(tmp_path)
    assert of(launches) == ALL
    assert ncu.starts == [([BASELINE, VECTOR, FP32], list(METRICS.values()))]
    first = launches[0]
    assert first.problem == ProblemRecord.from_problem(router_problem(16))
    assert first.environment == made(VECTOR).environment
    assert first.config == MADE[VECTOR][2]
    assert first.metrics["time_us"] == 1.0 and first.metrics["dram_read_bytes"] == 1001.0
    assert launches[1].command == command_of(router_problem(16), VECTOR, (), {}, "bench/counters.py")
    printed, told = capsys.readouterr()
    assert "router 16x256x7168-bf16-nk, ncu 2025.3.1.0" in printed and "_partials" in printed
    assert "ncu: 3 contenders in" in told


def test_without_output_a_new_file_holds_the_lines(ncu, tmp_path):
    assert run_command(command.main, ROUTER) == 0
    (made,) = (tmp_path / "counters").glob("*.jsonl")
    assert of(read_launches(made)) == ALL


@pytest.mark.parametrize("loses", [False, True], ids=["what was counted is written", "and is lost"])
def test_one_that_dies_is_told_and_the_rest_are_counted(ncu, tmp_path, loses):
    ncu.also(**{VECTOR: "dies", "loses": loses})
    launches = counted(tmp_path, code=1)
    assert sorted(of(launches), key=str) == sorted([ALL[0], (VECTOR, CRASHED, None, None), ALL[3]], key=str)
    (crashed,) = (launch for launch in launches if launch.status == CRASHED)
    assert crashed.message == "Fatal Python error: Segmentation fault; The application returned an error code (11)."
    assert [names for names, _ in ncu.starts] == [
        [BASELINE, VECTOR, FP32],
        [BASELINE, FP32] if loses else [FP32],
    ]


def test_one_that_is_wrong_or_launches_nothing_is_told(ncu, tmp_path):
    ncu.also(**{VECTOR: "is wrong", FP32: []})
    launches = counted(tmp_path, code=1)
    assert of(launches) == [ALL[0], (VECTOR, WRONG, None, None), (FP32, UNSUPPORTED, None, None)]
    assert [launch.message for launch in launches[1:]] == ["its output is not finite", "ncu saw no launch"]


def test_a_metric_that_ncu_does_not_know_is_none_and_told(ncu, tmp_path, capsys):
    unknown = [METRICS["l2_to_sm_bytes"], METRICS["stall_gmma_cycles"]]
    ncu.also(unknown=unknown)
    launches = counted(tmp_path)
    assert of(launches) == ALL
    assert {name for name, value in launches[2].metrics.items() if value is None} == {
        "l2_to_sm_bytes",
        "stall_gmma_cycles",
    }
    printed, told = capsys.readouterr()
    assert f"not counted by this ncu: {', '.join(unknown)}" in printed.replace("\n", " ")
    assert all(f"ncu 2025.3.1.0 knows no {metric} on this GPU" in told for metric in unknown)


def test_an_ncu_that_may_not_count_is_an_error_in_its_words(ncu, tmp_path, capsys):
    ncu.also(**{BASELINE: "denied"})
    assert run_command(command.main, [*ROUTER, "--output", str(tmp_path / "none.jsonl")]) == 2
    assert "error: ERR_NVGPUCTRPERM - The user does not have permission" in on_stderr(capsys)
    assert len(ncu.starts) == 1


def test_an_ncu_that_counts_nothing_is_an_error(ncu, tmp_path, capsys):
    ncu.also(**{BASELINE: [], VECTOR: "is wrong", FP32: []})
    assert run_command(command.main, ROUTER) == 2
    assert "error: ncu printed nothing" in on_stderr(capsys)
    assert len(ncu.starts) == 1


def test_it_needs_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run_command(command.main, ROUTER) == 2
    assert capsys.readouterr().err == (
        "counters.py: error: there is no CUDA device; what ncu counts is counted on one\n"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (ROUTER, "ncu is not on PATH; it comes with"),
        (["--only", VECTOR], "--problem NAME or --shape MxNxK is needed"),
        ([*ROUTER, "--only", "nobody"], "--only is 'nobody'; accepted: names and parts of"),
        ([*ROUTER, "--output", __file__], "exists already"),
    ],
)
def test_what_it_refuses(ncu, monkeypatch, capsys, arguments, told):
    if arguments is ROUTER:
        monkeypatch.setenv("PATH", "/nowhere")
    assert run_command(command.main, arguments) == 2
    error = on_stderr(capsys)
    assert told in error and "Traceback" not in error


def made(contender: str = VECTOR, gpu_kernel: str | None = "_partials", launch: int | None = 0, **metrics) -> Launch:
    metrics = {**dict.fromkeys(METRICS), **metrics}
    return one_launch(contender, router_problem(16), metrics, gpu_kernel=gpu_kernel, launch=launch)


FIGURES = {
    "time_us": 5.0,
    "dram_read_bytes": 4e6,
    "dram_write_bytes": 1e6,
    "grid_blocks": 128.0,
    "static_shared_bytes": 1024.0,
    "dynamic_shared_bytes": 2048.0,
    "l2_to_sm_bytes": 3.25e6,
    "l2_bytes": 4.5e6,
    "stall_barrier_cycles": 1.0,
    "stall_long_scoreboard_cycles": 6.0,
    "stall_wait_cycles": 3.0,
}


def test_a_table_says_what_the_counters_mean():
    failed = replace(made(FP32, None, None), status=CRASHED, message="why", config=None)
    launches = [made(**FIGURES), made(gpu_kernel="_sum", launch=1), failed]
    (table,) = show_counters.tables(launches)
    first, second, third = (dict(zip(table.header, line, strict=True)) for line in table.lines)
    assert first["us"] == "5.00" and first["DRAM\nGB/s"] == "1000" and first["L2 to SM\nMB"] == "3.25"
    assert first["L2\nMB"] == "4.50"
    assert first["grid"] == "128" and first["shared\nKiB"] == "3.0"
    assert first["stalls"] == "long_scoreboard 60%, wait 30%"
    assert first["config"].startswith("16x16x128 s8")
    assert (second["contender"], second["GPU kernel"], second["us"], second["config"]) == ("", "_sum", "", "")
    assert (third["contender"], third["GPU kernel"]) == (FP32, CRASHED)
    assert table.details[0] == f"{FP32}: crashed: why"
    assert "not counted by this ncu: dram__throughput" in table.details[1]
    assert "not the referee's" in table.foot.replace("\n", " ") and "NVIDIA H200" in table.foot
    assert [line[0] for line in show_counters.tables(launches, ["tilus/*"])[0].lines] == [FP32]


def test_every_stall_is_asked_for_once():
    assert len(set(METRICS.values())) == len(METRICS)
    assert {f"stall_{name}_cycles" for name in STALLS} <= METRICS.keys()


def test_a_page_shows_what_was_counted(results, tmp_path):
    file = results / "h200" / "counters" / "router.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(map(to_line, (made(BASELINE, "nvjet"), made(**FIGURES)))))
    assert queries.recorded() == {}  # these are no rows

    page = tmp_path / "page.md"
    begin = "<!-- counters:router triton/* -->\n"
    page.write_text(f"{begin}old\n<!-- /counters -->\n")
    assert docs.update([page], write=False) == [page]
    assert docs.update([page]) == [page]
    assert f"| {VECTOR} | parallel | _partials | 5.00 | 1000 |" in page.read_text()
    assert "nvjet" not in page.read_text() and "\nold\n" not in page.read_text()
    assert docs.update([page]) == []

    page.write_text("<!-- counters:square -->\n<!-- /counters -->\n")
    with pytest.raises(ValueError, match=r"page\.md: counters:square: no device has counters/square\.jsonl"):
        docs.update([page])
    page.write_text("<!-- counters:router tilus/* -->\n<!-- /counters -->\n")
    with pytest.raises(ValueError, match=r"counters:router: nothing of tilus/\* was counted"):
        docs.update([page])


def test_a_line_that_is_no_launch_is_refused(tmp_path):
    file = tmp_path / "launches.jsonl"
    file.write_text('{"contender": "torch/mm"}\n')
    with pytest.raises(ValueError, match=r"launches\.jsonl:1: .*missing required field `workload`.*of a Launch"):
        read_launches(file)


# What runs under ncu.

CANDIDATES = """
import torch

calls = 0

def product(a, b):
    global calls
    calls += 1
    return a @ b

def not_finite(a, b):
    return torch.full((a.shape[0], b.shape[1]), torch.nan, dtype=a.dtype)

def half(a, b):
    k = a.shape[1] // 2
    return a[:, :k] @ b[:k]

def raises(a, b):
    raise RuntimeError("it cannot")
"""


@pytest.mark.parametrize("problem", [Matmul(4, 16, 32), W4A16Matmul(2, 64, 128)], ids=lambda problem: problem.op)
def test_a_task_travels_as_json(problem):
    task = Task(3, BASELINE, problem)
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_each_task_tells_that_it_begins_and_how_it_went(monkeypatch, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(CANDIDATES)
    within = []
    monkeypatch.setattr(profiled, "recorded", lambda name: within.append(name) or nullcontext())
    names = [f"candidate/{file}:{function}" for function in ("product", "not_finite", "half", "raises")]
    tasks = [Task(number, name, Matmul(4, 16, 32, torch.float32)) for number, name in enumerate(names, 5)]
    told = []
    profiled.launch_all(tasks, torch.device("cpu"), told.append)
    assert told[0]["environment"]["torch"] == torch.__version__
    outcomes = [Outcome(**line) for line in told[1:]]
    assert [(outcome.number, outcome.status) for outcome in outcomes] == [
        *[(5, RUNNING), (5, PASSED)],
        *[(6, RUNNING), (6, WRONG)],
        *[(7, RUNNING), (7, WRONG)],
        *[(8, RUNNING), (8, CRASHED)],
    ]
    assert outcomes[3].message == "its output is not finite" and "over the bound" in outcomes[5].message
    assert "it cannot" in outcomes[7].message
    assert within == ["contender 5"]


def test_the_config_is_the_one_that_the_launcher_takes(monkeypatch, device):
    monkeypatch.setattr(profiled, "recorded", lambda name: nullcontext())
    outcome = profiled.launch(Task(0, "triton/decompose_k.vector", Matmul(4, 16, 64, torch.float32)), device)
    assert outcome.status == PASSED and outcome.config["split_k"] >= 1


def test_what_a_contender_does_not_support_is_not_launched(monkeypatch):
    monkeypatch.setattr(profiled, "recorded", None)
    outcome = profiled.launch(Task(0, "triton/or_reduce.control_reduce", OrReduce(4, 4, 2)), torch.device("cpu"))
    assert outcome.status == UNSUPPORTED and "constant" in outcome.message


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("ncu") is None, reason="ncu is not on PATH")
def test_ncu_counts_both_kernels_of_a_contender(tmp_path):
    output = tmp_path / "launches.jsonl"
    script = queries.ROOT / "bench" / "counters.py"
    arguments = ["--shape", "16x256x7168", "--only", VECTOR, "--output", output]
    ran = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
    if "ERR_NVGPUCTRPERM" in ran.stderr:
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    launches = [launch for launch in read_launches(output) if launch.contender == VECTOR]
    assert [(launch.status, launch.launch) for launch in launches] == [(PASSED, 0), (PASSED, 1)]
    for launch in launches:
        assert launch.gpu_kernel.startswith("_")
        assert all(launch.metrics[name] > 0 for name in ("time_us", "grid_blocks", "registers_per_thread"))
    assert launches[0].metrics["dram_read_bytes"] > 0.9 * launches[0].problem.least_bytes
