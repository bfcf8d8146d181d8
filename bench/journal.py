"""Rows as they are made: one JSON line each, on disk before the next contender runs.

A run that was cut off at any moment, by SIGKILL too, loses at most the line it was writing; what `done_keys` does
not hold is what is left to measure.
"""

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.ops import OPS, op_of
from common.problem import SHORT_DTYPE, Matmul, Problem

SCHEMA = 4

PASSED = "passed"
WRONG = "wrong"
UNSUPPORTED = "unsupported"
COMPILE_ERROR = "compile error"
CRASHED = "crashed"
TIMED_OUT = "timed out"
OUT_OF_MEMORY = "out of memory"
STATUSES = (PASSED, WRONG, UNSUPPORTED, COMPILE_ERROR, CRASHED, TIMED_OUT, OUT_OF_MEMORY)

BASELINE = OPS[Matmul.op].baseline

Key = tuple[str, str, tuple[str, ...]]


@dataclass
class Row:
    """What one contender did on one problem. Every value is a JSON value; times are in microseconds.

    problem      {name, op, flops, least_bytes, and the problem's own: of a matmul m, n, k, dtype, out_dtype, layout,
                 epilogue}
    asked        the timings asked for, out of cold, warm, host
    config       the fields of the config, or None where the contender has none
    timing       {cold|warm|host: {method, median_us, q1_us, q3_us, samples, rounds, speedup, speedup_low,
                 speedup_high, verdict, times_floor}}: speedup is the baseline's time over this one's, paired over
                 rounds, with its 95% bootstrap interval; verdict is baseline, faster, slower or tie; times_floor
                 is a multiple of the floor's read_us (None for host)
    accuracy     {error_before, error_after, torch_error, bound, times_torch, times_study}, as in common.accuracy;
                 error_after is None if not timed, times_study is not in rows made before it was
    floor        {cold|warm: {launch_us, read_us}}
    noise        {cold|warm|host: |1 - ratio| of the baseline to itself under a second name}
    clocks       {available, reason, sm_mhz, power_w, temperature_c (each [least, most]), repeated_rounds}
    environment  {device, gpus, driver, cuda, torch, triton, tilus, python, git, tuned}
    command      measures this row alone
    """

    workload: str
    problem: dict[str, Any]
    asked: list[str]
    contender: str
    language: str
    protocol: str
    variant: str
    config: dict[str, Any] | None
    config_source: str | None
    status: str
    message: str
    timing: dict[str, dict[str, Any]]
    accuracy: dict[str, float | None]
    bitwise_equal: bool | None
    deterministic: bool
    workspace_bytes: int | None
    launches: int | None
    floor: dict[str, dict[str, float]]
    noise: dict[str, float]
    clocks: dict[str, Any]
    environment: dict[str, Any]
    command: str
    time: str
    schema: int = field(default=SCHEMA)

    @property
    def key(self) -> Key:
        """(problem name, contender, timings asked): two rows of one key measure the same thing."""
        return self.problem["name"], self.contender, tuple(sorted(self.asked))

    @property
    def measurement(self) -> tuple[str, str]:
        """The problem, and what rows share that were timed together, and no others: their run's own readings."""
        return self.problem["name"], json.dumps([self.floor, self.noise, self.clocks], sort_keys=True)

    @property
    def is_baseline(self) -> bool:
        """Whether it is what the other contenders of its problem are held against."""
        return self.contender == op_of(self.problem).baseline

    @property
    def not_searched(self) -> bool:
        """Whether its config was found for another shape, or by no search: the kernel's own rule."""
        return self.config_source in ("nearest", "heuristic")

    @property
    def is_control(self) -> bool:
        """Whether it leaves a part of the operation out, to tell what that part costs: no rival of the others."""
        return self.variant.startswith("control_")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Row":
        """Rows of this schema and of older ones. Raises ValueError for a newer schema or a field that is missing."""
        if not isinstance(values, dict):
            raise ValueError(f"not a row: {values!r}")
        try:
            values = _upgraded(values)
        except KeyError as missing:
            raise ValueError(f"not a row: missing {missing}") from missing
        known = {f.name for f in fields(cls)}
        if values.keys() != known:
            raise ValueError(
                f"not a row: missing {sorted(known - values.keys())}, unknown {sorted(values.keys() - known)}"
            )
        return cls(**values)


def _upgraded(values: dict[str, Any]) -> dict[str, Any]:
    schema = values.get("schema")
    if schema not in range(1, SCHEMA + 1):
        raise ValueError(f"row of schema {schema}; this reader knows 1 to {SCHEMA}")
    if schema == 1:  # did not hold what was asked for: what was timed stands for it
        values = {**values, "asked": list(values["timing"]), "schema": 2}
    if schema <= 2:  # did not tell dependent launches apart by protocol
        pdl = values["protocol"] == "separate" and values["variant"].endswith("_pdl")
        values = {**values, "protocol": "separate+pdl" if pdl else values["protocol"], "schema": 3}
        if "@s" in values["variant"]:  # nor a config by its split from a kernel's own rule
            values["config_source"] = "split"
    if schema <= 3:  # knew one operation
        values = {**values, "problem": {**values["problem"], "op": Matmul.op}, "schema": 4}
    return values


class Journal:
    """A file of rows that only grows. Opening one that was cut off in the middle of a line drops that line."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if whole != content:
                with open(self.path, "r+b") as file:
                    file.truncate(len(whole))

    def append(self, row: Row) -> None:
        """Returns once the row is on disk."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> list[Row]:
        return read_rows(self.path) if self.path.exists() else []


def new_path(folder: Path) -> Path:
    """A file of no other command's there, by the time: two may begin within the same second."""
    return folder / f"{datetime.now():%Y-%m-%dT%H%M%S.%f}.jsonl"


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a JSON-lines file, whose last line may be cut off, or of a JSON list.

    Raises ValueError for a line, other than a last one without its end, that is no row.
    """
    text = Path(path).read_bytes().decode("utf-8", errors="replace")
    if text.lstrip().startswith("["):
        return [Row.from_json(values) for values in json.loads(text)]
    *lines, _cut_off = text.split("\n")
    return [Row.from_json(json.loads(line)) for line in lines if line]


def done_keys(rows: Iterable[Row]) -> set[Key]:
    return {row.key for row in rows}


def problem_fields(problem: Problem) -> dict[str, Any]:
    """A problem as a row holds it."""
    sizes = {"flops": problem.flops, "least_bytes": problem.least_bytes}
    return {"name": problem.name, "op": problem.op, **problem.fields, **sizes}


def command_of(
    problem: Problem,
    contender: str,
    asked: Sequence[str],
    more: Mapping[str, Any],
    script: str = "bench/compare.py",
) -> str:
    """The command that measures one contender on one problem, beside the baseline. more: flags that are not at
    their defaults, by name."""
    words = ["python", script]
    words += _shape_words(problem) if isinstance(problem, Matmul) else ["--problem", problem.name]
    kind, _, place = contender.partition("/")
    if kind == "candidate":
        words += ["--candidate", place]
    words += ["--only", contender, *(["--timing", ",".join(asked)] if asked else [])]
    return shlex.join([*words, *(str(word) for name, value in more.items() for word in (f"--{name}", value))])


def _shape_words(problem: Matmul) -> list[str]:
    words = ["--shape", f"{problem.m}x{problem.n}x{problem.k}"]
    words += ["--dtype", SHORT_DTYPE[problem.dtype], "--layout", problem.layout.value]
    if problem.epilogue.value != "none":
        words += ["--epilogue", problem.epilogue.value]
    if problem.out_dtype is not problem.dtype:
        words += ["--out-dtype", SHORT_DTYPE[problem.out_dtype]]
    return words
