"""Programs built outside of the process that will run them, by `python -m triton_vs_tilus.kernels_<language>.prepare`,
into the language's own cache on disk: a build takes seconds, and no call waits for one.

What is built is a Program: a kernel for a problem on a config, and how the tensors lie. A marker in the user's cache
folder says that this machine has built it, of the same sources and by the same versions, so that no process is started
for it again. A marker whose build has been lost from the language's cache costs a build in the process that loads it.
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from platformdirs import user_cache_path

from triton_vs_tilus.common import devices
from triton_vs_tilus.common.kernel import Config, Kernel, is_grouped
from triton_vs_tilus.common.plan import Backend, Placement, Plan
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.tuned import APP

__all__ = [
    "Program",
    "build_in_background",
    "build_now",
    "capability_of",
    "is_built",
    "mark_built",
    "program_from",
    "target_of",
]

ROOT = Path(__file__).parent.parent
BUILDS_AT_ONCE = 6
DEADLINE_S = 600  # of a build


@dataclass(frozen=True)
class Program:
    """What is built of a kernel. target: 'sm_90a'."""

    kernel: Kernel
    problem: Matmul
    config: Config
    placement: Placement
    target: str

    def __str__(self) -> str:
        return f"{self.kernel.full_name} [{self.config}] for {self.target}"

    @property
    def backend(self) -> Backend:
        assert self.kernel.backend is not None
        return self.kernel.backend

    @property
    def plan(self) -> Plan:
        assert self.kernel.plan is not None
        return self.kernel.plan(self.problem, self.config, self.placement)

    @property
    def compiled_for(self) -> tuple[Any, ...]:
        """Two programs that share it share what is compiled: M and the rows of a group are arguments, but for whether
        there are more tiles than a group has (common.kernel.Grid)."""
        problem = [item for item in self.problem.fields.items() if item[0] != "m"]
        config = [item for item in asdict(self.config).items() if item[0] != "group_m"]
        grouped = is_grouped(self.problem, self.config)
        return (self.kernel.full_name, *problem, *config, grouped, self.placement, self.target)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel.full_name,
            "problem": self.problem.fields,
            "config": asdict(self.config),
            "placement": self.placement,
            "target": self.target,
        }


def program_from(values: Mapping[str, Any], kernels: Sequence[Kernel]) -> Program:
    """The Program whose `to_json` these are, of one of the kernels."""
    kernel = next(kernel for kernel in kernels if kernel.full_name == values["kernel"])
    problem = Matmul.from_fields(dict(values["problem"]))
    config = kernel.config_from(dict(values["config"]))
    return Program(kernel, problem, config, Placement(*values["placement"]), values["target"])


def target_of(capability: tuple[int, int]) -> str:
    """(9, 0) -> 'sm_90a': from 9.0 on with what this generation alone has."""
    return f"sm_{capability[0]}{capability[1]}" + ("a" if capability >= (9, 0) else "")


def capability_of(target: str) -> tuple[int, int]:
    """'sm_90a' -> (9, 0)."""
    number = target.removeprefix("sm_").rstrip("a")
    return int(number[:-1]), int(number[-1])


def is_built(program: Program) -> bool:
    return _marker(program).exists()


def mark_built(program: Program) -> None:
    """A folder that cannot be written to keeps no marker: the build is there all the same."""
    marker = _marker(program)
    with suppress(OSError):
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def build_now(programs: Sequence[Program]) -> dict[Program, str]:
    """Builds those that are not, side by side, each in a process of its own. Returns the compiler's words by those that
    failed."""
    todo = [program for program in programs if not is_built(program)]
    failed: dict[Program, str] = {}
    slots = threading.BoundedSemaphore(min(BUILDS_AT_ONCE, len(os.sched_getaffinity(0))))

    def build(program: Program) -> None:
        with slots:
            try:
                reason = _build_apart(program)
            except Exception as error:  # of the system: no process, no memory
                reason = f"{type(error).__name__}: {error}"
            if reason:
                failed[program] = reason

    threads = [threading.Thread(target=build, args=(program,)) for program in todo]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def build_in_background(program: Program, device: torch.device) -> "Job":
    """Builds on a thread of its own, one program after the other, and brings it into this process."""
    job = Job(program, device)
    _queue().put(job)
    return job


class Job:
    """A build in the background. reason: why it failed, once it is done."""

    def __init__(self, program: Program, device: torch.device):
        self.program, self.device = program, device
        self.reason = ""
        self.done = False

    def run(self) -> None:
        try:
            self.reason = "" if is_built(self.program) else _build_apart(self.program)
            if not self.reason:
                with devices.on(self.device):
                    self.program.backend.build(self.program.plan)
        except BaseException as error:  # a compiler may raise anything, and the thread goes on; calls stay on torch
            self.reason = f"{type(error).__name__}: {error}"
        self.done = True


@cache
def _queue() -> "SimpleQueue[Job]":
    queue: SimpleQueue[Job] = SimpleQueue()

    def work() -> None:
        while True:
            queue.get().run()

    threading.Thread(target=work, name="triton_vs_tilus builds", daemon=True).start()
    return queue


os.register_at_fork(after_in_child=_queue.cache_clear)  # whose thread is the parent's alone


def _build_apart(program: Program) -> str:
    """Why it cannot be built, or ''. The process sees no GPU, so that it takes no memory of one."""
    language = program.kernel.language.value
    command = [sys.executable, "-m", f"triton_vs_tilus.kernels_{language}.prepare", "--program", "-"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("TRITON_INTERPRET", None)
    given = json.dumps(program.to_json())
    ended = subprocess.run(
        command, input=given, capture_output=True, text=True, env=environment, check=False, timeout=DEADLINE_S
    )
    if not ended.returncode:
        return ""
    return next((line for line in reversed(ended.stderr.splitlines()) if line.strip()), f"exit {ended.returncode}")


def _marker(program: Program) -> Path:
    what = repr(program.compiled_for) + program.backend.cache() + _sources(program.kernel.language.value)
    return user_cache_path(APP) / "built" / hashlib.sha256(what.encode()).hexdigest()[:24]


@cache
def _sources(language: str) -> str:
    """Of the kernels, and their compiler's version."""
    texts = [path.read_text() for folder in ("common", f"kernels_{language}") for path in ROOT.glob(f"{folder}/*.py")]
    return "\0".join([version(language), *sorted(texts)])
