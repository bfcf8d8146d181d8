"""What runs under ncu: each contender is launched to warm up, then once between the profiler's start and stop.

    ncu ... python -m bench.profiled TASKS.json OUTCOMES.jsonl

One process for all of them, as its start takes longer than all their launches. An NVTX range tells whose a launch is.
The outcomes are written as they come, a line before a task and a line after it, so that a process that dies has told
in whose launch it did.
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

import torch

from bench import contenders as listed
from bench.environment import environment
from bench.journal import PASSED, UNSUPPORTED, WRONG, problem_fields
from bench.ops import op_of
from bench.process import healthy
from bench.worker import status_of
from common import tuned
from common.problem import Problem

WARM_UPS = 2
DEADLINE_S = 120  # of one task
RUNNING = "running"
RANGE = "contender"  # what an NVTX range is named by, before the task's number


@dataclass(frozen=True)
class Task:
    """One contender on one problem. number: what tells it from the others of a run."""

    number: int
    contender: str
    problem: Problem

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "contender": self.contender, "problem": problem_fields(self.problem)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Task":
        problem = op_of(values["problem"]).problem.from_fields(values["problem"])
        return cls(values["number"], values["contender"], problem)


@dataclass(frozen=True)
class Outcome:
    """How a task went. status: RUNNING, or as of a row; config: the fields of the one that the launcher takes."""

    number: int
    status: str
    message: str = ""
    config: dict[str, Any] | None = None


@contextmanager
def recorded(name: str) -> Iterator[None]:
    """What is launched within is what ncu records, in an NVTX range of this name."""
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


def launch(task: Task, device: torch.device) -> Outcome:
    """Warms the contender up, then launches it once to be recorded; what it raises is the outcome."""
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
    # That it is right is the referee's to say; counters of a kernel that is plainly broken tell nothing.
    if not result.isfinite().all():
        return Outcome(task.number, WRONG, "its output is not finite")
    with recorded(f"{RANGE} {task.number}"):
        call()
    return Outcome(task.number, PASSED, kernel.note(), None if config is None else asdict(config))


def launch_all(tasks: Iterable[Task], device: torch.device, tell: Callable[[dict[str, Any]], None]) -> None:
    """Tells the environment, then of each task that it begins and how it went, until a context is beyond use."""
    tell({"environment": environment(device)})
    for task in tasks:
        tell(asdict(Outcome(task.number, RUNNING)))
        faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
        tell(asdict(launch(task, device)))
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
