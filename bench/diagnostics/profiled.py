"""The process under ncu: launches each contender to warm up, then once between the profiler's start and stop.

    ncu ... python -m triton_vs_tilus.bench.diagnostics.profiled TASKS.json OUTCOMES.jsonl

One process runs all contenders, as its start takes longer than all their launches. The name of an NVTX range holds the
number of the task that launched a kernel. A task is written to the outcomes before it starts and after it ends: where
the process dies, the last line names the task that it died in.
"""

import faulthandler
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from triton_vs_tilus.bench import contenders as listed
from triton_vs_tilus.bench.measure.process import healthy
from triton_vs_tilus.bench.measure.worker import status_of
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.bench.rows.row import PASSED, UNSUPPORTED, WRONG, ProblemRecord
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.problem import Problem

WARM_UPS = 2
DEADLINE_S = 120  # of one task
RUNNING = "running"
RANGE = "contender"  # an NVTX range is named by this and the task's number


@dataclass(frozen=True)
class Task:
    """One contender on one problem. number: unique within a run."""

    number: int
    contender: str
    problem: Problem

    def to_json(self) -> dict[str, Any]:
        problem = ProblemRecord.from_problem(self.problem)
        return {"number": self.number, "contender": self.contender, "problem": msgspec.to_builtins(problem)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Task":
        problem = msgspec.convert(values["problem"], ProblemRecord)
        return cls(values["number"], values["contender"], problem.to_problem())


@dataclass(frozen=True)
class Outcome:
    """The state of a task. status: RUNNING, or a row's status. config: the fields of the config launched with."""

    number: int
    status: str
    message: str = ""
    config: dict[str, Any] | None = None


@contextmanager
def recorded(name: str) -> Iterator[None]:
    """ncu records what is launched within, in an NVTX range of this name."""
    torch.cuda.nvtx.range_push(name)
    torch.cuda.profiler.start()
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()
        torch.cuda.nvtx.range_pop()


@lru_cache(maxsize=1)
def _inputs(problem: Problem, device: torch.device) -> Any:
    return problem.inputs(device)


@lru_cache(maxsize=1)
def _judge(problem: Problem, device: torch.device) -> Judge:
    return Judge(problem, _inputs(problem, device))


def launch(task: Task, device: torch.device) -> Outcome:
    """Launches the contender to warm up, then once recorded. An exception becomes the outcome."""
    try:
        return _launch(task, device)
    except Exception as error:
        return Outcome(task.number, *status_of(error))


def _launch(task: Task, device: torch.device) -> Outcome:
    kernel, problem = listed.find(task.contender), task.problem
    if reason := listed.sits_out(kernel, problem, device):
        return Outcome(task.number, UNSUPPORTED, reason)
    config, _ = tuned.pick(kernel, problem, tuned.slug_of(device))
    args, kwargs = kernel.arguments(problem, _inputs(problem, device))
    out = torch.empty(problem.out_shape, dtype=problem.out_dtype, device=device)
    if out.is_floating_point():
        out.fill_(torch.nan)
    call = partial(kernel.launch, *args, **kwargs, out=out, config=config)
    for _ in range(WARM_UPS):
        result = call()
    # A kernel that leaves work out moves fewer bytes: its counters mean nothing.
    if not result.isfinite().all():
        return Outcome(task.number, WRONG, "its output is not finite")
    accuracy = _judge(problem, device).judge(result, kernel.roundings(config))
    if not accuracy.ok:
        return Outcome(task.number, WRONG, accuracy.excess)
    with recorded(f"{RANGE} {task.number}"):
        call()
    return Outcome(task.number, PASSED, kernel.note(), None if config is None else asdict(config))


def launch_all(tasks: Iterable[Task], device: torch.device, write: Callable[[dict[str, Any]], None]) -> None:
    """Writes the environment, then each task as it starts and as it ends; stops where the GPU's context is lost."""
    write({"environment": msgspec.to_builtins(environment(device))})
    for task in tasks:
        write(asdict(Outcome(task.number, RUNNING)))
        faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
        write(asdict(launch(task, device)))
        faulthandler.cancel_dump_traceback_later()
        if not healthy():
            return


def main() -> None:
    asked, outcomes = map(Path, sys.argv[1:])
    faulthandler.enable()
    tasks = map(Task.from_json, json.loads(asked.read_text()))
    with outcomes.open("a") as file:
        launch_all(tasks, torch.device("cuda", 0), lambda values: print(json.dumps(values), file=file, flush=True))


if __name__ == "__main__":
    main()
