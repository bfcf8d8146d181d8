"""NVIDIA's compute-sanitizer over the kernels of both languages, at small shapes.

    memcheck   accesses out of bounds and misaligned        racecheck   races in shared memory
    synccheck  barriers that not all threads reach          initcheck   reads of global memory that nothing wrote

One process runs the tasks of one tool; every task is named on its output first, so a finding has a contender. Programs
are built before, without the sanitizer. A process that ends goes on after the task that it ended in. Memory comes from
cudaMalloc alone, not from torch's blocks, and inputs are copied from the host: what is past a tensor is past an
allocation, and what nothing wrote was never written.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import Any

import msgspec
import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import runnable
from triton_vs_tilus.bench.measure.process import Children
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import Layout, Matmul, Problem
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.w4a16 import W4A16Matmul

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Whole tiles and ragged ones, in both layouts; rows that TMA takes, that cp.async takes, and that neither does. Two
# tiles along M, for pairs of blocks; bands of more steps than there are stages, so that every stage is filled again.
PROBLEMS: tuple[Problem, ...] = (
    *(
        Matmul(m, n, k, dtype, layout=layout)
        for layout in Layout
        for m, n, k, dtype in (
            (128, 64, 2048, torch.bfloat16),
            (101, 72, 328, torch.bfloat16),
            (5, 10, 134, torch.bfloat16),
            (5, 7, 129, torch.bfloat16),
            (19, 40, 200, torch.float32),
        )
    ),
    OrReduce(33, 65, 16),
    OrReduce(5, 130, 7, torch.int32),
    W4A16Matmul(16, 64, 512),
    W4A16Matmul(5, 72, 384, torch.bfloat16),
)
Notify = Callable[[str], None]  # called with what is to be told while it runs
TASK = re.compile(r"^@@ (\d+)$")
REPORT = "========= "
# What every run prints. The summary comes after the last task, but counts what was told of all.
NO_FINDING = re.compile(r"^(COMPUTE-SANITIZER|(ERROR|RACECHECK) SUMMARY: (?!.* not printed))")
COUNTED = re.compile(r"^(?:ERROR|RACECHECK) SUMMARY: (\d+) ")
# From 3.9 on Triton asks the driver for a mode of shared memory, for kernels of more than 48 KiB, and does without it
# where it is refused (loadBinary in its driver.c). All other calls that fail are findings.
TRIAL = re.compile(r"Program hit CUDA_ERROR_INVALID_VALUE .* cuFuncSetAttribute\..*Host Frame: loadBinary", re.DOTALL)


@dataclass(frozen=True)
class Task:
    """One launch of a contender. config: fields."""

    contender: str
    op: str
    problem: dict[str, Any]
    config: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.contender} {self.solved().name} {contenders.find(self.contender).config_from(self.config)}"

    def solved(self) -> Problem:
        from triton_vs_tilus.bench.ops import OPS

        return OPS[self.op].problem.from_fields(self.problem)


class Finding(msgspec.Struct, frozen=True):
    """What a tool said of a task, its first lines; or how the process ended that ran it."""

    tool: str
    task: str
    said: str


class Checked(msgspec.Struct, frozen=True):
    """The tasks that a tool ran, when, and where; less those that it has run again since."""

    tool: str
    time: str
    environment: EnvironmentRecord
    tasks: list[str]


class Kept(msgspec.Struct):
    """The contents of a sanitizer.json."""

    checked: list[Checked] = []
    findings: list[Finding] = []


def kept(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept) if path.exists() else Kept()


def keep(
    path: Path,
    tool: str,
    chosen: Sequence[Task],
    findings: Sequence[Finding],
    environment: EnvironmentRecord,
    time: str,
) -> None:
    """Puts what a tool said of these tasks into the file, in place of what it said of them before."""
    before, now = kept(path), {str(task) for task in chosen}
    checked = [Checked(tool, time, environment, sorted(now))]
    for each in before.checked:
        if left := [task for task in each.tasks if each.tool != tool or task not in now]:
            checked.append(msgspec.structs.replace(each, tasks=left))
    others = [each for each in before.findings if each.tool != tool or each.task not in now]
    replace_text(path, msgspec.json.format(msgspec.json.encode(Kept(checked, [*others, *findings]))).decode())


def chosen_tasks(only: Sequence[str]) -> list[Task]:
    """Of the kernels that `only` names, as contenders.choose takes it, or of all: those on request, too. Raises
    ValueError where it names none of either language."""
    if found := tasks(contenders.choose(contenders.all_contenders(), only, references=True)):
        return found
    raise ValueError(f"--only is {', '.join(only)}; accepted: kernels of {' or '.join(LANGUAGES)}")


def tasks(kernels: Sequence[Kernel]) -> list[Task]:
    """Every kernel of both languages on every problem that it takes: by its own rule, and by the first config of its
    space for each way in which tiles are fed and multiplied; of *cluster* for each number of blocks, too. One program
    walks all tiles of a persistent kernel."""
    found: list[Task] = []
    for kernel in kernels:
        if kernel.language not in LANGUAGES:
            continue
        for problem in filter(None, (runnable(kernel, problem) for problem in PROBLEMS)):
            by_feed: dict[Any, Any] = {}
            for config in [kernel.default_config(problem), *kernel.configs(problem)]:
                blocks = config.split_k if kernel.protocol is Protocol.CLUSTER else None
                by_feed.setdefault((getattr(config, "fed", None), blocks), _by_one_program(kernel, config))
            found += [
                Task(kernel.full_name, problem.op, problem.fields, msgspec.to_builtins(config))
                for config in by_feed.values()
            ]
    return found


def _by_one_program(kernel: Kernel, config: Config) -> Config:
    walks_tiles = kernel.protocol is Protocol.DATA_PARALLEL and hasattr(config, "programs")
    return replace(config, programs=1) if walks_tiles else config


def wanted(chosen: Sequence[Task]) -> list[tuple[Kernel, Problem, Config]]:
    """What the tasks launch, as bench.search.prebuilt takes it."""
    kernels = [contenders.find(task.contender) for task in chosen]
    return [
        (kernel, task.solved(), kernel.config_from(task.config)) for kernel, task in zip(kernels, chosen, strict=True)
    ]


def build_all(chosen: Sequence[Task], device: torch.device, deadline_s: float) -> None:
    """Compiles what the tasks launch. What cannot be compiled is met again by its task."""
    jobs = [(problem, kernel.full_name, [config], device) for kernel, problem, config in wanted(chosen)]
    with Children(len(os.sched_getaffinity(0)), deadline_s) as children:
        children.each(build.compile_configs, jobs)


def run(sanitizer: str, tool: str, chosen: Sequence[Task], seconds: float, report: Notify) -> tuple[list[Finding], int]:
    """The findings of one tool over the tasks, and how many of them came to their end. seconds: for a task."""
    findings: list[Finding] = []
    done, first = 0, 0
    while first < len(chosen):
        output, ended = _start(sanitizer, tool, chosen[first:], seconds)
        blocks = _by_task(output)
        last = max((number for number in blocks if number is not None), default=None)
        if last is None:
            raise RuntimeError(f"{sanitizer} --tool {tool} came to no task: {output[-500:]}")
        findings += _findings(tool, chosen[first : first + last + 1], blocks)
        if not ended:
            done += last + 1
            break
        findings.append(Finding(tool, str(chosen[first + last]), ended))
        done += last
        first += last + 1
        report(f"{tool}: goes on after {chosen[first - 1]}: {ended}")
    return findings, done


def _findings(tool: str, begun: Sequence[Task], blocks: Mapping[int | None, Sequence[str]]) -> list[Finding]:
    """Those of one process, which came to these tasks. Before the first nothing of a kernel runs."""
    found: list[Finding] = []
    unexplained = 0  # of the errors that the summary counts
    for number, lines in blocks.items():
        unexplained += sum(int(match[1]) for line in lines if (match := COUNTED.match(line)))
        said: list[str] = []
        for report in "\n".join(line for line in lines if not NO_FINDING.match(line)).split("\n\n"):
            if TRIAL.match(report):
                unexplained -= 1
            else:
                said += report.splitlines()
        if said and number is not None:
            found.append(Finding(tool, str(begun[number]), " | ".join(said[:4])))
    if unexplained > 0 and not found:
        found.append(Finding(tool, str(begun[-1]), f"{unexplained} errors of no task"))
    return found


def run_shared(
    sanitizer: str, tools: Sequence[str], chosen: Sequence[Task], shares: int, seconds: float, report: Notify
) -> Iterator[tuple[str, list[Finding], int]]:
    """Each tool and what `run` returns for it, in the order in which they end. The tools run side by side, and so do
    shares of the tasks under each."""
    parts = [chosen[first::shares] for first in range(min(shares, len(chosen)))]
    with ThreadPoolExecutor(len(tools)) as by_tool, ThreadPoolExecutor(len(tools) * len(parts)) as by_part:

        def whole(tool: str) -> tuple[str, list[Finding], int]:
            runs = [by_part.submit(run, sanitizer, tool, part, seconds, report) for part in parts]
            ended = [each.result() for each in runs]
            return tool, [finding for findings, _ in ended for finding in findings], sum(done for _, done in ended)

        for each in as_completed([by_tool.submit(whole, tool) for tool in tools]):
            yield each.result()


def _start(sanitizer: str, tool: str, chosen: Sequence[Task], seconds: float) -> tuple[str, str]:
    """What it printed, and how it ended, '' where all tasks came to their end. A task that takes longer than `seconds`
    ends it."""
    lines: list[str] = []
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "tasks.json")
        with open(path, "wb") as file:
            file.write(msgspec.json.encode(chosen))
        every_error = ["--print-limit", "0"]  # else one kernel's could hide the next one's
        options = ["--tool", tool, *every_error, "--error-exitcode", "0"]
        command = [sanitizer, *options, sys.executable, "-m", __name__, path]
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
        # In a group of its own: the tool's process starts the one that launches, and both must end.
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        late = Event()

        def end() -> None:
            late.set()
            os.killpg(process.pid, signal.SIGKILL)

        assert process.stdout is not None
        timer = Timer(seconds, end)
        timer.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if TASK.match(line):
                    timer.cancel()
                    timer = Timer(seconds, end)
                    timer.start()
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if late.is_set():
        return "".join(lines), f"no end within {seconds:g} s"
    last = next((line.rstrip("\n") for line in reversed(lines) if not line.startswith(REPORT)), "")
    return "".join(lines), f"exit code {process.returncode}: {last}" if process.returncode else ""


def _by_task(output: str) -> dict[int | None, list[str]]:
    """The tool's lines, without what they begin with, by the number of the task that they came in; None: before any."""
    blocks: dict[int | None, list[str]] = {}
    current: int | None = None
    for line in output.splitlines():
        if match := TASK.match(line):
            current = int(match[1])
            blocks[current] = []
        elif line.startswith(REPORT):
            blocks.setdefault(current, []).append(line.removeprefix(REPORT).strip())
    return blocks


# What runs under the sanitizer.


def launch_all(chosen: Sequence[Task], device: torch.device) -> None:
    """Each task's kernel once, on inputs from the host, into an output that nothing wrote. Waits for its end, so that
    what the tool says of it comes before the next is named."""
    for number, task in enumerate(chosen):
        print(f"@@ {number}", flush=True)
        kernel, problem = contenders.find(task.contender), task.solved()
        args, kwargs = kernel.arguments(problem, problem.inputs(device))
        out = torch.empty(problem.out_shape, dtype=problem.out_dtype, device=device)
        kernel.launch(*args, **kwargs, out=out, config=kernel.config_from(task.config))
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        out.cpu()


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as asked:
        launch_all(msgspec.json.decode(asked.read(), type=list[Task]), torch.device("cuda", 0))
