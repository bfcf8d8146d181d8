"""Nsight Compute: starts it over tasks, reads what it counted, starts it again after a crash.

ncu runs once for many contenders, as its start takes longer than their launches. Under it runs `profiled`. Clocks are
left as they are; caches are flushed before every pass over a kernel.
"""

import csv
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import torch

from triton_vs_tilus.bench.diagnostics.metrics import METRICS
from triton_vs_tilus.bench.diagnostics.profiled import DEADLINE_S, RANGE, RUNNING, Outcome, Task
from triton_vs_tilus.bench.measure.process import Child
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.journal import now, to_line
from triton_vs_tilus.bench.rows.row import CRASHED, PASSED, UNSUPPORTED, Launch, LaunchEnvironment, ProblemRecord
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.problem import Problem

TASK_RANGE = re.compile(rf":{RANGE} (\d+):")
UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([\w.]+)")
ERROR = "==ERROR=="
ERROR_LINES = (ERROR, "Fatal Python error", "Timeout (")  # how lines of ncu, and of a dying process, begin


class NcuFailed(Exception):
    """ncu could not count; the message is what ncu printed."""


@dataclass(frozen=True)
class Counted:
    """One GPU kernel in ncu's output. number: of the task that launched it."""

    number: int
    gpu_kernel: str
    metrics: dict[str, float | None]


@dataclass(frozen=True)
class Start:
    """The outcome of one start of ncu.

    outcomes  by the number of the task; of the tasks that it came to
    counted   in the order of the launches
    output    what ncu and the process under it printed
    """

    environment: Mapping[str, Any]
    outcomes: dict[int, Outcome]
    counted: list[Counted]
    output: str

    @property
    def last_words(self) -> str:
        """The lines that report an error; the last 3 lines where none does."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        errors = [line.removeprefix(ERROR).strip() for line in lines if line.startswith(ERROR_LINES)]
        return "; ".join(dict.fromkeys(errors or lines[-3:])) or "ncu printed nothing"


def ncu_command(ncu: str, metrics: Sequence[str], log: Path, tasks: Path, outcomes: Path) -> list[str]:
    return [
        *(ncu, "--target-processes", "application-only", "--profile-from-start", "off", "--nvtx"),
        *("--clock-control", "none", "--cache-control", "all"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "triton_vs_tilus.bench.diagnostics.profiled", str(tasks), str(outcomes)),
    ]


def start(ncu: str, tasks: Sequence[Task], metrics: Sequence[str]) -> Start:
    """Runs ncu once over all tasks. Raises NcuFailed where ncu does not end in time."""
    with TemporaryDirectory() as folder:
        log, asked, outcomes = (Path(folder) / name for name in ("log.csv", "tasks.json", "outcomes.jsonl"))
        asked.write_text(json.dumps([task.to_json() for task in tasks]))
        outcomes.touch()
        try:
            ran = subprocess.run(
                ncu_command(ncu, metrics, log, asked, outcomes),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},  # figures as in C, 1.5 and not 1,5
                timeout=DEADLINE_S * (len(tasks) + 1),
            )
        except subprocess.TimeoutExpired as late:
            raise NcuFailed(f"ncu did not end in {late.timeout:.0f} s") from None
        written = log.read_text(errors="replace") if log.exists() else ""
        reported = [json.loads(line) for line in outcomes.read_text().splitlines()]
    environment = next((line["environment"] for line in reported if "environment" in line), {"device": "unknown"})
    each = [Outcome(**line) for line in reported if "environment" not in line]
    output = "\n".join(line for line in [*ran.stdout.splitlines(), *written.splitlines()] if not line.startswith('"'))
    return Start(environment, {outcome.number: outcome for outcome in each}, parse(written), output)


def parse(log: str) -> list[Counted]:
    """The GPU kernels in ncu's log, whose raw page is CSV between other lines, in the order of the launches.

    Raises NcuFailed for a kernel outside of every contender's NVTX range.
    """
    lines = [line for line in log.splitlines() if not line.startswith("==")]
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    counted = []
    for row in csv.DictReader(lines[first:]):
        if not row["ID"]:  # the line of units
            continue
        ranges = "".join(row[column] or "" for column in row if "Push/Pop_Range" in (column or ""))
        if not (task_range := TASK_RANGE.search(ranges)):
            raise NcuFailed(f"{row['Kernel Name']} is in no contender's NVTX range: {ranges!r}")
        metrics = {name: _value(name, row.get(metric)) for name, metric in METRICS.items()}
        counted.append(Counted(int(task_range[1]), short_name(row["Kernel Name"]), metrics))
    return counted


def _value(name: str, cell: str | None) -> float | None:
    """None for a cell that is missing, or that holds no finite number, as 'n/a'."""
    try:
        value = float((cell or "").replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return value / 1e3 if name == "time_us" else value


def short_name(signature: str) -> str:
    """The name without return type and parameters; with a template argument only where there is exactly one, as in
    'cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64>'."""
    name = re.match(r"[\w:~]*(?:<\w+>)?", signature.replace("(anonymous namespace)::", "").removeprefix("void "))
    return name[0] if name and name[0] else signature


def count(
    ncu: str, chosen: Sequence[tuple[str, Problem, Kernel]], report: Callable[[str], None]
) -> Iterator[list[Launch]]:
    """The launches of each (workload, problem, contender), a list after each start of ncu.

    A contender during which the process dies is CRASHED. The contenders after it are counted in another start, as are
    those before it where ncu wrote nothing. report: gets a line on each start, and on each metric that this ncu does
    not know, which is None in the launches. Raises NcuFailed where ncu itself cannot go on.
    """
    version = _version(ncu)
    metrics = list(METRICS.values())
    left = [Task(number, kernel.full_name, problem) for number, (_, problem, kernel) in enumerate(chosen)]
    able = False  # whether any launch has succeeded under ncu
    while left:
        since = time.monotonic()
        ran = start(ncu, left, metrics)
        report(f"ncu: {len(ran.outcomes)} contenders in {time.monotonic() - since:.0f} s")
        if unknown := UNKNOWN_METRIC.search(ran.output.replace("\\", "")):
            base = unknown[1].rstrip(".")
            known = [metric for metric in metrics if metric != base and not metric.startswith(f"{base}.")]
            if len(known) == len(metrics):
                raise NcuFailed(ran.last_words)
            report(f"ncu {version} knows no {base} on this GPU")
            metrics = known
            continue
        able |= any(outcome.status == PASSED for outcome in ran.outcomes.values())
        settled = _settled(left, ran, able)
        launches = []
        for task in left:
            workload, problem, kernel = chosen[task.number]
            for outcome, place, counted in settled.get(task.number, []):
                launches.append(_launch(workload, problem, kernel, outcome, place, counted, ran.environment, version))
        yield launches
        left = [task for task in left if task.number not in settled]


Settled = tuple[Outcome, int | None, Counted | None]  # the place among the contender's launches, and the counts


def _settled(tasks: Sequence[Task], ran: Start, able: bool) -> dict[int, list[Settled]]:
    """The tasks that need no other start, by number. Raises NcuFailed where another start would not help."""
    settled: dict[int, list[Settled]] = {}
    ended = len(ran.outcomes) == len(tasks) and all(one.status != RUNNING for one in ran.outcomes.values())
    for number, outcome in ran.outcomes.items():
        own = [counted for counted in ran.counted if counted.number == number]
        if outcome.status == RUNNING:
            if not able:
                raise NcuFailed(ran.last_words)
            settled[number] = [(Outcome(number, CRASHED, ran.last_words), None, None)]
        elif outcome.status != PASSED:
            settled[number] = [(outcome, None, None)]
        elif own:
            settled[number] = [(outcome, place, counted) for place, counted in enumerate(own)]
        elif ended and ran.counted:
            settled[number] = [(Outcome(number, UNSUPPORTED, "ncu saw no launch"), None, None)]
    if len(settled) < len(tasks) and (ended or not settled):
        raise NcuFailed(ran.last_words)
    return settled


def _launch(
    workload: str,
    problem: Problem,
    kernel: Kernel,
    outcome: Outcome,
    place: int | None,
    counted: Counted | None,
    environment: Mapping[str, Any],
    version: str,
) -> Launch:
    return Launch(
        workload=workload,
        problem=ProblemRecord.from_problem(problem),
        contender=kernel.full_name,
        language=kernel.language.value,
        protocol=kernel.protocol.value,
        config=outcome.config,
        status=outcome.status,
        message=outcome.message,
        gpu_kernel=counted.gpu_kernel if counted else None,
        launch=place,
        metrics=counted.metrics if counted else {},
        environment=msgspec.convert({**environment, "ncu": version}, LaunchEnvironment),
        command=command_of(problem, kernel.full_name, (), {}, "bench/counters.py"),
        time=now(),
    )


def _version(ncu: str) -> str:
    printed = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Version ([\d.]+)", printed)
    if found is None:
        raise NcuFailed(f"{ncu} --version prints no version: {printed.strip()!r}")
    return found[1]


def record(
    ncu: str, chosen: Sequence[tuple[str, Problem, Kernel]], output: Path, report: Callable[[str], None]
) -> list[Launch]:
    """Counts on the first GPU, and appends the launches to `output` after each start of ncu.

    Kernels are compiled beforehand: in parallel, and not under ncu. Raises NcuFailed.
    """
    problems: dict[Problem, list[Kernel]] = {}
    for _, problem, kernel in chosen:
        problems.setdefault(problem, []).append(kernel)
    with Child(DEADLINE_S) as child, build.builders(DEADLINE_S) as builders:
        build.build_ahead(list(problems.items()), builders=builders, child=child, device=torch.device("cuda", 0))
    output.parent.mkdir(parents=True, exist_ok=True)
    launches = []
    for more in count(ncu, chosen, report):
        with output.open("a") as file:
            file.writelines(map(to_line, more))
        launches += more
    return launches
