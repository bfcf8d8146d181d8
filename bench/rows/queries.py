"""Which rows: those of a problem, those that passed, those timed together, and the files that are checked in."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from statistics import median
from typing import TypeVar

from msgspec.structs import asdict

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.bench.rows.journal import read_launches, read_rows, read_stages, read_verdicts
from triton_vs_tilus.bench.rows.row import PASSED, TIMINGS, Launch, ProblemRecord, Row, Stage, TimingName, Verdict

LAUNCH_SPREAD = 1.15  # between the empty launches of hosts of one kind; of two kinds seen they lay 1.3 apart
RESULTS = ROOT / "bench" / "results"
FEWEST_PAIRS = 20  # of two runs of a problem, for the largest difference to say how far its runs lie apart
ALL = ""  # the key of all problems

R = TypeVar("R", Row, Launch, Stage)


def by_problem(rows: Iterable[R]) -> dict[str, list[R]]:
    """The rows of each problem, of two that measure the same thing on one device the last.

    Workloads and contenders stand in the order in which they first came; the problems of a workload by size, as several
    GPUs finish them in any order.
    """
    latest = {(row.environment.device, row.key): row for row in rows}
    workloads = list(dict.fromkeys(row.workload for row in latest.values()))
    grouped: dict[str, list[R]] = {}
    for row in sorted(latest.values(), key=lambda row: (workloads.index(row.workload), row.problem.shape)):
        grouped.setdefault(row.problem.name, []).append(row)
    return grouped


@dataclass(frozen=True)
class Sweep:
    """Problems that differ only in the sizes of `axis` ('m', 'k', 'm = n', ...), by that size."""

    axis: str
    problems: tuple[ProblemRecord, ...]


AXES = ("m", "k", "n", "m = n", "n = k", "m = n = k")


def sweeps(rows: Iterable[Row]) -> list[Sweep]:
    """The longest first; of only one problem where no two differ in one axis."""
    problems = list({row.problem.name: row.problem for row in rows}.values())
    found = []
    for axis in AXES:
        sizes = axis.split(" = ")
        groups: dict[tuple[object, ...], list[ProblemRecord]] = {}
        for problem in problems:
            if len({getattr(problem, size) for size in sizes}) == 1:
                rest = {**asdict(problem), **dict.fromkeys([*sizes, "name", "flops", "least_bytes"])}
                groups.setdefault(tuple(rest.values()), []).append(problem)
        found += [
            Sweep(axis, tuple(sorted(group, key=lambda problem: problem.shape)))
            for group in groups.values()
            if len(group) > 1
        ]
    found.sort(key=lambda sweep: -len(sweep.problems))
    return found or [Sweep("m", (problem,)) for problem in problems]


def contending(rows: Iterable[Row]) -> list[Row]:
    """All but controls, those that run another kernel's config, and those that borrow one although they have one."""
    return [row for row in rows if row.contends]


def leading_timing(rows: Iterable[Row]) -> TimingName | None:
    """The timing that speed-ups and the fastest are taken from: the first of TIMINGS that was measured."""
    measured = {timing for row in rows for timing in row.timing}
    return next((timing for timing in TIMINGS if timing in measured), None)


def launch_costs(rows: Iterable[Row]) -> list[float]:
    """Microseconds that an empty launch takes, one figure a kind of host: the medians of groups that lie further apart
    than LAUNCH_SPREAD. By another clock the same host has another time, so hosts are compared within a clock: of
    several clocks that with the most kinds."""
    by_clock: dict[str, list[float]] = {}
    for row in rows:
        if "cold" in row.floor:
            procedure = row.timing["cold"].procedure if "cold" in row.timing else ""
            by_clock.setdefault(procedure, []).append(row.floor["cold"].launch_us)
    return max((_grouped(sorted(costs)) for costs in by_clock.values()), key=len, default=[])


def _grouped(costs: Sequence[float]) -> list[float]:
    """The medians of groups that lie further apart than LAUNCH_SPREAD."""
    groups: list[list[float]] = []
    for cost in costs:
        if groups and cost <= groups[-1][-1] * LAUNCH_SPREAD:
            groups[-1].append(cost)
        else:
            groups.append([cost])
    return [median(group) for group in groups]


def passed(rows: Iterable[Row], timing: TimingName | None) -> list[Row]:
    """Those that passed and were timed so."""
    return [row for row in rows if row.status == PASSED and timing in row.timing]


def timed_together(rows: Sequence[Row], timing: TimingName | None) -> list[Row]:
    """Of each problem the rows of its last measurement that passed, and has a row of the baseline where any has one:
    times of another run, or host, do not compare, and a run that was resumed for one contender says little."""
    timed = passed(rows, timing)
    by_time = sorted(timed, key=lambda row: row.time)
    last = {row.problem.name: row.measurement for row in by_time}
    last |= {row.problem.name: row.measurement for row in by_time if row.is_baseline}
    return [row for row in timed if row.measurement == last[row.problem.name]]


def recorded(name: str = "*") -> dict[Path, list[Row]]:
    """The checked-in files of rows of this name (a pattern), of every device; of DEVICE:NAME of one. Raises
    InvalidRows."""
    return {path: rows_of(path) for path in _files(name)}


def rows_of(path: Path) -> list[Row]:
    """The rows of a file, which is parsed once while it stays as it is: the documents ask for it hundreds of times.
    Raises InvalidRows; OSError."""
    now = path.stat()
    return list(_rows_of(path, now.st_mtime_ns, now.st_size))


@lru_cache(maxsize=256)
def _rows_of(path: Path, *_state: int) -> tuple[Row, ...]:
    return tuple(read_rows(path))


def of_all_tritons() -> list[Row]:
    """The rows of every checked-in file, and of the files of its name that other versions of Triton have. Raises
    InvalidRows."""
    files = recorded()
    return [
        row
        for path, rows in files.items()
        for row in (*rows, *(row for other in with_other_tritons(path) for row in rows_of(other)))
    ]


def with_other_tritons(path: Path) -> list[Path]:
    """The files of a recorded file's name in the folders beside it that are called by another Triton, triton-3.6."""
    return sorted(path.parent.glob(f"triton-*/{path.name}"))


def _files(name: str, folder: str = "") -> list[Path]:
    device, _, file = name.rpartition(":")
    return sorted(RESULTS.glob(str(Path(device or "*", folder, f"{file}.jsonl"))))


def between_runs(rows: Sequence[Row]) -> Mapping[TimingName, float]:
    """By timing, how far the speed-up of one contender lies from that of another run of its config, on the device of
    these rows and by their procedures: the largest |1 - ratio| over the files of the folders `again`, each another run
    of the file of its name in the folder above. At the problems of these rows; for one of which less than FEWEST_PAIRS
    were run twice, at all problems. Of a timing that no row has, by any procedure. Empty without rows, and where
    nothing was run twice."""
    timed = {timing for row in rows for timing in row.timing}
    found: dict[TimingName, float] = {}
    for row in rows:
        for (timing, procedure), shares in _between_runs(RESULTS, row.environment.device).items():
            if timing not in timed or (timing in row.timing and row.timing[timing].procedure == procedure):
                share = shares.get(row.problem.name, shares[ALL])
                found[timing] = max(share, found.get(timing, 0.0))
    return found


@cache
def _between_runs(results: Path, device: str) -> Mapping[tuple[TimingName, str], Mapping[str, float]]:
    """By timing and procedure, then by problem; at ALL of them."""
    found: dict[tuple[TimingName, str], dict[str, float]] = defaultdict(dict)
    for path in sorted(results.glob("*/**/again/*.jsonl")):
        again = [row for row in rows_of(path) if row.environment.device == device]
        for name, rows in by_problem(rows_of(path.parents[1] / path.name)).items() if again else ():
            for by, shares in apart(rows, again).items():
                found[by][ALL] = max([*shares, found[by].get(ALL, 0.0)])
                if len(shares) >= FEWEST_PAIRS:
                    found[by][name] = max([*shares, found[by].get(name, 0.0)])
    return found


def was_run_twice(row: Row, timing: TimingName) -> bool:
    """Whether `between_runs` is of the row's own problem."""
    by = timing, row.timing[timing].procedure
    return row.problem.name in _between_runs(RESULTS, row.environment.device).get(by, {})


def apart(rows: Iterable[Row], again: Iterable[Row]) -> dict[tuple[TimingName, str], list[float]]:
    """By timing and procedure, |1 - ratio| of the speed-ups of two runs of one contender, problem and config; the
    baseline's are 1 by definition."""
    first, second = (
        {(row.problem.name, row.contender): row for row in run if row.status == PASSED and not row.is_baseline}
        for run in (rows, again)
    )
    found: dict[tuple[TimingName, str], list[float]] = {}
    for where in first.keys() & second.keys():
        one, two = first[where], second[where]
        for timing in one.timing.keys() & two.timing.keys() if one.config == two.config else ():
            then, now = one.timing[timing], two.timing[timing]
            if then.procedure == now.procedure:
                found.setdefault((timing, now.procedure), []).append(abs(1 - now.speedup / then.speedup))
    return found


def run_to_run(known: Mapping[TimingName, float], timing: TimingName) -> float:
    """How far two runs lie apart, of what `between_runs` gives; of a timing that was not run twice the largest share
    that is known, 0 where none is."""
    return known.get(timing, max(known.values(), default=0.0))


def noise(row: Row, timing: TimingName) -> float:
    """The share that a lead has to exceed: the baseline's noise against itself in that run or, where it is more, how
    far two runs of that problem lie apart on that device, or of any where it was not run twice."""
    return max(row.noise.get(timing, 0.0), run_to_run(between_runs([row]), timing))


def leads(one: Row, other: Row, timing: TimingName) -> bool:
    """Whether the time of one is shorter by more than the intervals of both, and by more than the noise."""
    lead, behind = one.timing[timing], other.timing[timing]
    return behind.speedup_high < lead.speedup_low and behind.median_us > lead.median_us * (1 + noise(one, timing))


def recorded_launches(name: str = "*") -> dict[Path, list[Launch]]:
    """The checked-in files of launches that ncu counted, named as in `recorded`. Raises InvalidRows."""
    return {path: read_launches(path) for path in _files(name, "counters")}


def recorded_stages(name: str = "*") -> dict[Path, list[Stage]]:
    """The checked-in files of stages that were timed alone, named as in `recorded`. Raises InvalidRows."""
    return {path: read_stages(path) for path in _files(name, "stages")}


def recorded_verdicts(name: str = "*") -> dict[Path, list[Verdict]]:
    """The checked-in files of what the referee said of adversaries, named as in `recorded`. Raises InvalidRows."""
    return {path: read_verdicts(path) for path in _files(name, "referee")}
