"""What the hardware counts in one launch of each of several contenders on one problem, by Nsight Compute.

    python bench/counters.py --problem 16x256x7168-bf16-nk --only atomic --only decompose_k.vector
    python bench/counters.py --workload router --tokens 16,1024 --only tilus --output counters.jsonl

Needs ncu on PATH, and leave to read the GPU's counters (https://developer.nvidia.com/ERR_NVGPUCTRPERM). Clocks are
left as they are; caches are flushed before every pass over a kernel. What is recorded for a page stands in
bench/results/<gpu>/counters/.
"""

import argparse
import csv
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

from bench import compare, tables
from bench.journal import CRASHED, PASSED, UNSUPPORTED, command_of, new_path, problem_fields
from bench.process import ROOT
from bench.profiled import DEADLINE_S, RANGE, RUNNING, Outcome, Task
from bench.tables import CONFIG, Table, by_problem, config_text, console, source_of
from common.kernel import Kernel
from common.problem import Problem

FOLDER = compare.JOURNALS.parent / "counters"

# All that a warp of this generation can wait for, so that the first of them is the first of all. Of the cycles between
# two instructions that a scheduler issues, those that its warps wait for this: as the sum over warps.
STALLS = (
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
)
# By ncu's name, in its base units (nanoseconds, bytes): pct of the peak that the unit could sustain; warps are those of
# a scheduler, occupancy those of an SM, of the most that it holds; limits are blocks of an SM.
METRICS = {
    "time_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_pct": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_bytes": "lts__t_bytes.sum",
    "l2_pct": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_to_sm_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "sm_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "grid_blocks": "launch__grid_size",
    "block_threads": "launch__block_size",
    "waves": "launch__waves_per_multiprocessor",
    "registers_per_thread": "launch__registers_per_thread",
    "static_shared_bytes": "launch__shared_mem_per_block_static",
    "dynamic_shared_bytes": "launch__shared_mem_per_block_dynamic",
    "register_limit_blocks": "launch__occupancy_limit_registers",
    "shared_limit_blocks": "launch__occupancy_limit_shared_mem",
    "instructions": "smsp__inst_executed.sum",
    "instructions_per_cycle": "sm__inst_executed.avg.per_cycle_active",
    "issue_pct": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "active_warps": "smsp__warps_active.avg.per_cycle_active",
    "eligible_warps": "smsp__warps_eligible.avg.per_cycle_active",
    **{f"stall_{name}_cycles": f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in STALLS},
}
SHOWN_STALLS = 2

OF_TASK = re.compile(rf":{RANGE} (\d+):")
UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([\w.]+)")
ERROR = "==ERROR=="
TELLING = (ERROR, "Fatal Python error", "Timeout (")  # lines of ncu, and of a process at its end


class NcuFailed(Exception):
    """ncu could not count, in its own words."""


@dataclass
class Launch:
    """What was counted in one launch of one GPU kernel. Every value is a JSON value.

    problem      as of a row of the journal; so are workload, contender, language, protocol, config, environment
    status       as of a row; of a contender that failed there is one Launch, with the reason for a message
    gpu_kernel   its name without parameters; None where the contender failed
    launch       its place among the GPU kernels of one call of the contender, from 0; None likewise
    metrics      by the names of METRICS; None for what this ncu, or this GPU, cannot tell
    environment  and the version of ncu
    command      counts this contender, beside the baseline
    """

    workload: str
    problem: dict[str, Any]
    contender: str
    language: str
    protocol: str
    config: dict[str, Any] | None
    status: str
    message: str
    gpu_kernel: str | None
    launch: int | None
    metrics: dict[str, float | None]
    environment: dict[str, str | None]
    command: str
    time: str

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Two of one key tell the same thing."""
        return self.problem["name"], self.contender, self.launch

    def rate(self) -> float | None:
        """Bytes of DRAM in a second, by 10^9."""
        counts = [self.metrics.get(name) for name in ("dram_read_bytes", "dram_write_bytes", "time_us")]
        return None if None in counts else (counts[0] + counts[1]) / counts[2] / 1e3

    def shared(self) -> float | None:
        """Bytes of shared memory of a block."""
        counts = [self.metrics.get(name) for name in ("static_shared_bytes", "dynamic_shared_bytes")]
        return None if None in counts else sum(counts)

    def stalls(self) -> dict[str, float]:
        """What warps waited for, the most first, by its share of all their waiting."""
        counts = {name: self.metrics.get(f"stall_{name}_cycles") or 0.0 for name in STALLS}
        whole = sum(counts.values())
        return {name: counts[name] / whole for name in sorted(counts, key=counts.get, reverse=True) if counts[name]}


# Running ncu.


@dataclass(frozen=True)
class Counted:
    """One line of what ncu wrote: a GPU kernel, by the number of its task."""

    number: int
    gpu_kernel: str
    metrics: dict[str, float | None]


@dataclass(frozen=True)
class Start:
    """What came of one start of ncu: how each task went as far as it got to it, and what was counted."""

    environment: dict[str, str | None]
    outcomes: dict[int, Outcome]
    counted: list[Counted]
    said: str

    @property
    def last_words(self) -> str:
        """The lines that tell an error, or where there is none the last ones."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        errors = [line.removeprefix(ERROR).strip() for line in lines if line.startswith(TELLING)]
        return "; ".join(dict.fromkeys(errors or lines[-3:])) or "no word"


def ncu_command(ncu: str, metrics: Sequence[str], log: Path, tasks: Path, outcomes: Path) -> list[str]:
    return [
        *(ncu, "--target-processes", "application-only", "--profile-from-start", "off", "--nvtx"),
        *("--clock-control", "none", "--cache-control", "all"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log)),
        *("--metrics", ",".join(metrics)),
        *(sys.executable, "-m", "bench.profiled", str(tasks), str(outcomes)),
    ]


def start(ncu: str, tasks: Sequence[Task], metrics: Sequence[str]) -> Start:
    """Runs ncu once over all the tasks. Raises NcuFailed where it does not end."""
    with TemporaryDirectory() as folder:
        log, asked, outcomes = (Path(folder) / name for name in ("log.csv", "tasks.json", "outcomes.jsonl"))
        asked.write_text(json.dumps([task.to_json() for task in tasks]))
        outcomes.touch()
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            ran = subprocess.run(
                ncu_command(ncu, metrics, log, asked, outcomes),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, "PYTHONPATH": path, "LC_ALL": "C"},  # figures as in C, 1.5 and not 1,5
                timeout=DEADLINE_S * (len(tasks) + 1),
            )
        except subprocess.TimeoutExpired as late:
            raise NcuFailed(f"ncu did not end in {late.timeout:.0f} s") from None
        written = log.read_text(errors="replace") if log.exists() else ""
        told = [json.loads(line) for line in outcomes.read_text().splitlines()]
    environment = next((line["environment"] for line in told if "environment" in line), {})
    each = [Outcome(**line) for line in told if "environment" not in line]
    said = "\n".join(line for line in [*ran.stdout.splitlines(), *written.splitlines()] if not line.startswith('"'))
    return Start(environment, {outcome.number: outcome for outcome in each}, parse(written), said)


def parse(log: str) -> list[Counted]:
    """The GPU kernels of ncu's raw page as CSV, among its other lines, in the order of their launches.

    Raises NcuFailed for a kernel that is in no contender's range.
    """
    lines = [line for line in log.splitlines() if not line.startswith("==")]
    first = next((index for index, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    counted = []
    for row in csv.DictReader(lines[first:]):
        if not row["ID"]:  # the line of units
            continue
        ranges = "".join(row[column] or "" for column in row if "Push/Pop_Range" in (column or ""))
        if not (of_task := OF_TASK.search(ranges)):
            raise NcuFailed(f"{row['Kernel Name']} is in no contender's NVTX range: {ranges!r}")
        metrics = {name: _value(name, row.get(metric)) for name, metric in METRICS.items()}
        counted.append(Counted(int(of_task[1]), short_name(row["Kernel Name"]), metrics))
    return counted


def _value(name: str, cell: str | None) -> float | None:
    """None for a cell that is not there, or 'n/a' in any of ncu's ways."""
    try:
        value = float((cell or "").replace(",", ""))
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return value / 1e3 if name == "time_us" else value


def short_name(signature: str) -> str:
    """Without return type and parameters, and of template arguments only one that stands alone, as in
    'cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x64>'."""
    name = signature.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.match(r"[\w:~]*(?:<\w+>)?", name)[0] or signature


def count(ncu: str, chosen: Sequence[tuple[str, Problem, Kernel]]) -> Iterator[list[Launch]]:
    """The launches of each contender on each problem (workload, problem, contender), a list after each start of ncu.

    A contender that costs the process its life is told to have crashed, and the rest are counted in another start; so
    are those before it, where ncu did not write what it had counted. Tells what each start cost, and what metrics ncu
    does not know: these are None. Raises NcuFailed where it is ncu that cannot go on.
    """
    version = _version(ncu)
    metrics = list(METRICS.values())
    left = [Task(number, kernel.full_name, problem) for number, (_, problem, kernel) in enumerate(chosen)]
    able = False  # whether any launch has gone through under ncu
    while left:
        since = time.monotonic()
        ran = start(ncu, left, metrics)
        tell(f"ncu: {len(ran.outcomes)} contenders in {time.monotonic() - since:.0f} s")
        if unknown := UNKNOWN_METRIC.search(ran.said.replace("\\", "")):
            base = unknown[1].rstrip(".")
            known = [metric for metric in metrics if metric != base and not metric.startswith(f"{base}.")]
            if len(known) == len(metrics):
                raise NcuFailed(ran.last_words)
            tell(f"ncu {version} knows no {base} on this GPU")
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


Told = tuple[Outcome, int | None, Counted | None]


def _settled(tasks: Sequence[Task], ran: Start, able: bool) -> dict[int, list[Told]]:
    """Of the tasks that need no other start: what there is to tell. Raises NcuFailed where another start would be no
    better."""
    settled: dict[int, list[Told]] = {}
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
            settled[number] = [(Outcome(number, UNSUPPORTED, "ncu saw no launch of it"), None, None)]
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
    environment: dict[str, str | None],
    version: str,
) -> Launch:
    return Launch(
        workload=workload,
        problem=problem_fields(problem),
        contender=kernel.full_name,
        language=kernel.language.value,
        protocol=kernel.protocol.value,
        config=outcome.config,
        status=outcome.status,
        message=outcome.message,
        gpu_kernel=counted and counted.gpu_kernel,
        launch=place,
        metrics=counted.metrics if counted else {},
        environment={**environment, "ncu": version},
        command=command_of(problem, kernel.full_name, (), {}, "bench/counters.py"),
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _version(ncu: str) -> str:
    said = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"Version ([\d.]+)", said)
    if found is None:
        raise NcuFailed(f"{ncu} --version tells none: {said.strip()!r}")
    return found[1]


# Files and tables.


def read(path: Path) -> list[Launch]:
    """Raises ValueError for a line that is no Launch."""
    try:
        return [Launch(**json.loads(line)) for line in path.read_text().splitlines()]
    except TypeError as error:
        raise ValueError(f"{path}: not a launch: {error}") from error


def recorded(name: str) -> dict[Path, list[Launch]]:
    """The checked-in files of this name, of every device."""
    return {path: read(path) for path in sorted(tables.RESULTS.glob(f"*/counters/{name}.jsonl"))}


def shown(launches: Sequence[Launch], contenders: Sequence[str] = ("*",)) -> list[Table]:
    """A table a problem, of the contenders that any pattern names."""
    named = [launch for launch in launches if any(fnmatchcase(launch.contender, pattern) for pattern in contenders)]
    return [problem_table(of_problem) for of_problem in by_problem(named).values()]


HEADER = ["contender", "protocol", "GPU kernel", "us", "DRAM\nGB/s", "DRAM %", "L2 to SM\nMB", "L2 %", "grid", "block"]
HEADER += ["registers", "shared\nKiB", "occupancy\n%", "SM %", "issue\n%", "stalls", CONFIG]
FOOT = (
    "Single launches under ncu, caches flushed before each GPU kernel, clocks as they were: their times are not the "
    "referee's. DRAM, L2, SM: of the peak throughput; grid in blocks, block in threads, registers of a thread; "
    "occupancy: warps of those that an SM holds; issue: cycles in which a scheduler issues; stalls: what most warps "
    "wait for, by its share of all waiting."
)


def problem_table(launches: Sequence[Launch]) -> Table:
    """A line for each GPU kernel of each contender, in the order of the launches."""
    lines, details = [], []
    for launch in launches:
        first = [launch.contender, launch.protocol] if not launch.launch else ["", ""]
        if launch.gpu_kernel is None:
            lines.append([*first, launch.status, *[""] * (len(HEADER) - 3)])
            details.append(f"{launch.contender}: {launch.status}: {launch.message}")
        else:
            config = config_text(launch.config) if launch.launch == 0 else ""
            lines.append([*first, launch.gpu_kernel, *_figures(launch), config])
    counted = [launch for launch in launches if launch.gpu_kernel is not None]
    lacking = [metric for name, metric in METRICS.items() if all(one.metrics.get(name) is None for one in counted)]
    if counted and lacking:
        details.append(f"not told by this ncu: {', '.join(lacking)}")
    versions = ", ".join(sorted({launch.environment["ncu"] for launch in launches}))
    title = f"{launches[0].workload} {launches[0].problem['name']}, ncu {versions}"
    return Table(title, HEADER, lines, details=details, foot=f"{FOOT} {source_of(launches)}")


def _figures(launch: Launch) -> list[str]:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    def of(name: str, form: str, unit: float = 1) -> str:
        value = launch.metrics.get(name)
        return text(None if value is None else value / unit, form)

    stalls = [f"{name} {share:.0%}" for name, share in list(launch.stalls().items())[:SHOWN_STALLS]]
    shared = launch.shared()
    return [
        of("time_us", ".2f"),
        text(launch.rate(), ".0f"),
        of("dram_pct", ".0f"),
        of("l2_to_sm_bytes", ".2f", 1e6),
        of("l2_pct", ".0f"),
        of("grid_blocks", ".0f"),
        of("block_threads", ".0f"),
        of("registers_per_thread", ".0f"),
        text(None if shared is None else shared / 1024, ".1f"),
        of("occupancy_pct", ".0f"),
        of("sm_pct", ".0f"),
        of("issue_pct", ".0f"),
        ", ".join(stalls),
    ]


# The command line.


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    compare.add_problem_flags(made)
    compare.add_contender_flags(made)
    made.add_argument("--output", metavar="F", type=Path, help=f"a line a launch (default: a new file in {FOLDER})")
    return made


def run(args: argparse.Namespace) -> list[Launch]:
    """Counts, and writes what was counted after each start of ncu. Raises compare.UsageError and NcuFailed."""
    import torch

    from bench import tuning

    if not compare.has_gpu():
        raise compare.UsageError("there is no CUDA device; what ncu counts is counted on one")
    if (ncu := shutil.which("ncu")) is None:
        raise compare.UsageError("ncu is not on PATH; it comes with Nsight Compute, and with the CUDA toolkit")
    output = args.output or new_path(FOLDER)
    if output.exists():
        raise compare.UsageError(f"--output {output} is there already")
    problems = compare.chosen_problems(args)
    kernels = compare.chosen_contenders(args, {problem.op for _, problem in problems})
    own = [(name, problem, [kernel for kernel in kernels if kernel.op == problem.op]) for name, problem in problems]
    output.parent.mkdir(parents=True, exist_ok=True)
    tell(f"counters: {output}")
    # Compiled beforehand, in parallel and not under ncu.
    device = torch.device("cuda", 0)
    tuning.build_ahead([(problem, of) for _, problem, of in own], deadline_s=DEADLINE_S, device=device)
    launches = []
    for more in count(ncu, [(name, problem, kernel) for name, problem, of in own for kernel in of]):
        with output.open("a") as file:
            file.writelines(json.dumps(asdict(launch)) + "\n" for launch in more)
        launches += more
    return launches


def tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        launches = run(args)
    except (compare.UsageError, NcuFailed) as error:
        tell(f"counters.py: error: {error}")
        return 2
    for table in shown(launches):
        console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
