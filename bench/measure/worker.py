"""One problem's contenders, checked one by one and then timed together, in a child process that they may end.

Checking comes first, so that contenders that crash, hang or are wrong are out before the timing. A contender that ends
the process gets a row that says so; the rest, and the problems after it, go on in a new process.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Any, TypeGuard

import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure import floor, stats
from triton_vs_tilus.bench.measure.clock import (
    Announce,
    Clocks,
    NotTimed,
    Samples,
    first_line,
    threads_counted,
    time_together,
)
from triton_vs_tilus.bench.measure.process import Child, Children, Died, answer_of, healthy, holds, no_answer
from triton_vs_tilus.bench.measure.referee import Fault, Referee
from triton_vs_tilus.bench.measure.rotation import clock_of, launcher, referee_of, rotation_of, timed
from triton_vs_tilus.bench.measure.seals import seal
from triton_vs_tilus.bench.measure.suspicion import suspicion
from triton_vs_tilus.bench.measure.threads import Threads
from triton_vs_tilus.bench.measure.timeline import profiled, timelines
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.bench.rows.journal import now
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    COMPILE_ERROR,
    CRASHED,
    OUT_OF_MEMORY,
    PASSED,
    SCHEMA,
    SUSPICIOUS,
    TIMED_OUT,
    UNSUPPORTED,
    WRONG,
    AccuracyRecord,
    AgainstRecord,
    ClocksRecord,
    ConfigSource,
    EnvironmentRecord,
    FloorRecord,
    ProblemRecord,
    Row,
    SearchRecord,
    Status,
    TimingName,
    TimingRecord,
)
from triton_vs_tilus.bench.search import search
from triton_vs_tilus.bench.search.race import SearchResult
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.accuracy import Accuracy
from triton_vs_tilus.common.kernel import Config, Kernel, Language
from triton_vs_tilus.common.problem import Problem

AGAIN = "the baseline again"
LONGEST_MESSAGE = 1000  # characters of a row's message


@dataclass(frozen=True)
class Options:
    """How to measure.

    timings     out of cold, graph, warm, host
    rounds      in which each contender has one turn
    tune        'off', 'quick' or 'full'
    energy      whether to measure that of a launch, too, where the timings include graph
    deadline_s  seconds for one contender to be built and checked, and for each of its turns
    seed        of inputs and bootstrap
    device      a CUDA device's index, or 'cpu', where nothing is timed
    timeline    whether to read the GPU's own timeline, too, once they are timed cold
    """

    timings: tuple[TimingName, ...] = ("cold", "graph", "warm", "host")
    rounds: int = 80
    tune: str = "off"
    energy: bool = False
    deadline_s: float = 120.0
    seed: int = 0
    device: int | str = 0
    timeline: bool = True

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda", self.device) if isinstance(self.device, int) else torch.device(self.device)

    @property
    def changed(self) -> dict[str, Any]:
        """rounds, tune and energy, where they are not at their defaults."""
        chosen = {"rounds": self.rounds, "tune": self.tune, "energy": self.energy}
        return {name: value for name, value in chosen.items() if value != getattr(Options, name)}


@dataclass
class Result:
    """One contender's row so far. spoiled: whether what it has replaced, or left running, is still in its process."""

    status: Status
    message: str = ""
    config: dict[str, Any] | None = None
    config_source: ConfigSource | None = None
    search: SearchRecord | None = None
    accuracy: Accuracy | None = None
    error_after: float | None = None
    bitwise_equal: bool | None = None
    workspace_bytes: int | None = None
    spoiled: bool = False

    def fail(self, status: Status, message: str) -> None:
        self.status, self.message = status, message

    def add_message(self, message: str) -> None:
        self.message = "; ".join(filter(None, [self.message, message]))


@dataclass(frozen=True)
class Failure:
    """A contender that failed in a timing; None where no single one did. Status PASSED: it is right, but this mode
    cannot time it."""

    name: str | None
    status: Status
    message: str


@dataclass
class Timing:
    """The samples of every mode that was run, and the microseconds of the GPU's timeline, by contender."""

    baseline: str = BASELINE
    samples: dict[TimingName, dict[str, Samples]] = field(default_factory=dict)
    timeline_us: dict[str, float] = field(default_factory=dict)

    def clocks(self) -> ClocksRecord:
        runs: list[Clocks] = [next(iter(by_name.values())).clocks for by_name in self.samples.values()]
        readings = [reading for run in runs for reading in run.readings]
        reason = next((run.reason for run in runs if run.reason), "" if runs else "nothing was timed")

        def extent(name: str) -> list[float]:
            values = [getattr(reading, name) for reading in readings]
            return [min(values), max(values)] if values else []

        return ClocksRecord(
            available=bool(readings),
            reason=reason,
            sm_mhz=extent("sm_mhz"),
            power_w=extent("power_w"),
            temperature_c=extent("temperature_c"),
            repeated_rounds=sum(run.repeated_rounds for run in runs),
            max_sm_mhz=next((run.max_sm_mhz for run in runs), None),
        )

    def floor(self) -> dict[TimingName, FloorRecord]:
        return {
            mode: FloorRecord(
                launch_us=stats.summary(by_name[floor.LAUNCH].rounds).median_us,
                read_us=stats.summary(by_name[floor.READ].rounds).median_us,
            )
            for mode, by_name in self.samples.items()
            if floor.READ in by_name
        }

    def noise(self) -> dict[TimingName, float]:
        return {
            mode: stats.noise(by_name[self.baseline].rounds, by_name[AGAIN].rounds)
            for mode, by_name in self.samples.items()
        }

    def order_seeds(self) -> dict[TimingName, int]:
        return {mode: next(iter(by_name.values())).order_seed for mode, by_name in self.samples.items()}

    def suspicion(self, name: str, *, needs_floor: bool = False, needs_timeline: bool = False) -> str:
        """Why a contender's figures cannot be believed; '' where they can. What it needs is to be there: a candidate
        may itself have seen to it that there is nothing to hold its figures against."""
        floors, noises = self.floor(), self.noise()
        for mode, by_name in self.samples.items():
            if name in by_name and mode != "host":
                timeline_us = self.timeline_us.get(name) if mode == "cold" else None
                summary = stats.summary(by_name[name].rounds)
                if reason := suspicion(summary, floors.get(mode), noises[mode], timeline_us):
                    return f"{mode}: {reason}"
                if needs_floor and mode not in floors:
                    return f"{mode}: there is no floor to hold it against"
                if needs_timeline and mode == "cold" and timeline_us is None:
                    return f"{mode}: there is no timeline of the GPU to hold it against"
        return ""

    def against(self, name: str, other: str | None, seed: int) -> dict[TimingName, AgainstRecord]:
        """The `against` of a contender's row; other: whom it is held against."""
        found: dict[TimingName, AgainstRecord] = {}
        for mode, by_name in self.samples.items():
            if other is not None and {name, other} <= by_name.keys():
                ratio = stats.paired_ratio(by_name[other].rounds, by_name[name].rounds, seed)
                found[mode] = AgainstRecord(contender=other, ratio=ratio.value, low=ratio.low, high=ratio.high)
        return found

    def records(self, name: str, seed: int) -> dict[TimingName, TimingRecord]:
        """The `timing` of a contender's row."""
        floors, noises = self.floor(), self.noise()
        timing: dict[TimingName, TimingRecord] = {}
        for mode, by_name in self.samples.items():
            if name not in by_name:
                continue
            rounds = by_name[name].rounds
            summary = stats.summary(rounds)
            ratio = stats.paired_ratio(by_name[self.baseline].rounds, rounds, seed)
            timing[mode] = TimingRecord(
                method=by_name[name].method,
                **asdict(summary),
                speedup=ratio.value,
                speedup_low=ratio.low,
                speedup_high=ratio.high,
                verdict="baseline" if name == self.baseline else ratio.verdict(noises[mode]),
                times_floor=summary.median_us / floors[mode].read_us if mode in floors else None,
                energy_uj=by_name[name].energy_uj,
            )
        return timing


def measure(
    workload: str,
    problem: Problem,
    kernels: Sequence[Kernel],
    options: Options,
    child: Child,
    searching: Child,
    builders: Children,
) -> Iterator[Row]:
    """One row per kernel as soon as it is known: failures at once, timed ones together at the end.

    kernels    all of the problem's operation. The baseline is timed even where it is not among them, without a row
    child      checks and times
    searching  does so in a search
    builders   compile what a search tries

    Raises RuntimeError where no worker process can be started, or a new one does not tell its environment.
    """
    versions = _versions(child, options.torch_device)
    baseline = OPS[problem.op].baseline
    timing = Timing(baseline)

    def row(kernel: Kernel, result: Result) -> Row:
        beside = contenders.counterpart(kernel.full_name)
        if beside not in results or results[beside].status != PASSED:
            beside = None  # its samples are there still, where it failed in another mode
        return _row(workload, problem, kernel, result, timing, beside, versions, options)

    asked = {kernel.full_name: kernel for kernel in kernels}
    is_timed = options.torch_device.type == "cuda" and bool(options.timings)
    searched = _searched(problem, kernels, options, searching, builders, versions)
    results: dict[str, Result] = {}
    for name in dict.fromkeys([baseline, *asked] if is_timed else asked):
        found = searched.get(asked[name].tuned_as or name) if name in asked else None
        results[name] = _checked(child, problem, name, found.config if found else None, options)
        if found and found.config is None:
            results[name].add_message(f"its search found no config: {found}")
        elif found:
            results[name].search = found.record()
        if name in asked and not (is_timed and results[name].status == PASSED):
            yield row(asked[name], results[name])
    if not is_timed:
        return

    running = [name for name, result in results.items() if result.status == PASSED]
    if baseline in running:
        for name in _timed(child, problem, running, results, timing, options):
            if name in asked:
                yield row(asked[name], results[name])
        if running and "cold" in timing.samples and options.timeline:
            for name in _see_timelines(child, problem, running, results, timing, options):
                if name in asked:
                    yield row(asked[name], results[name])
        for name in running:
            is_candidate = name in asked and asked[name].language is Language.CANDIDATE
            reason = timing.suspicion(name, needs_floor=is_candidate, needs_timeline=is_candidate and options.timeline)
            if reason:
                results[name].status = SUSPICIOUS
                results[name].add_message(reason)
    else:
        for name in running:
            results[name].add_message(f"not timed: {baseline} {results[baseline].status}: {results[baseline].message}")
    for name in running:
        if name in asked:
            yield row(asked[name], results[name])


def warm_up(child: Child, problem: Problem, options: Options) -> None:
    """Has the child check the baseline meanwhile, for nobody: it makes the problem's inputs, and a new process loads
    libraries for seconds before its first product."""
    child.begin(_warm_up, problem, options.torch_device, options.seed)


def check(
    workload: str,
    problem: Problem,
    kernels: Sequence[Kernel],
    options: Options,
    children: Children,
    seconds: float,
) -> Iterator[Row]:
    """One row per contender that is checked within `seconds`, as soon as it is known, side by side in `children`.
    Nothing is timed. None is checked where the memory does not suffice for all that would run at once."""
    versions = environment(options.torch_device)
    timing = Timing(OPS[problem.op].baseline)
    if lack := _lack_of_memory(problem, min(children.count, len(kernels))):
        for kernel in kernels:
            yield _row(workload, problem, kernel, Result(OUT_OF_MEMORY, lack), timing, None, versions, options)
        return
    calls = [(problem, kernel.full_name, None, options.torch_device, options.seed) for kernel in kernels]
    for index, answer in children.completed(_check, calls, seconds):
        kernel = kernels[index]
        result = answer if _is_result(answer) else _result_of(no_answer(answer, kernel.full_name))
        yield _row(workload, problem, kernel, result, timing, None, versions, options)


def _lack_of_memory(problem: Problem, checks: int) -> str | None:
    """Why so many checks at once would not fit on the CPU, or None: an allocation beyond the memory ends other
    processes.

    Inputs known and secret, a copy, the numbers of others, and float64 of all: at most 12 times what the problem reads
    and writes.
    """
    needed, available = 12 * problem.least_bytes, _available_bytes()
    if checks * needed <= available:
        return None
    of_several = f", and {checks} run at once" if checks > 1 else ""
    return f"the check needs {needed / 2**30:.1f} GiB{of_several}; {available / 2**30:.1f} GiB are available"


def _available_bytes() -> float:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * 1024 if match else inf


def _environment(device: torch.device, *, announce: Announce) -> EnvironmentRecord:
    tuned.refresh()  # another process may have searched since the problem before
    return environment(device)


def _versions(child: Child, device: torch.device) -> EnvironmentRecord:
    """The child's environment; a new process's, where what ran before has left the child without an answer."""
    is_environment = partial(holds, kind=EnvironmentRecord)
    with suppress(Died):
        return answer_of(child, is_environment, _environment, device)
    try:
        return answer_of(child, is_environment, _environment, device)
    except Died as death:
        raise RuntimeError(f"a new worker process does not tell its environment: {death.message}") from death


def _searched(
    problem: Problem,
    kernels: Sequence[Kernel],
    options: Options,
    searching: Child,
    builders: Children,
    versions: EnvironmentRecord,
) -> dict[str, SearchResult]:
    if options.tune == "off":
        return {}
    return search.tune(
        problem,
        kernels,
        options.tune,
        child=searching,
        builders=builders,
        device=options.torch_device,
        versions=versions,
    )


def _checked(child: Child, problem: Problem, name: str, config: Config | None, options: Options) -> Result:
    try:
        return answer_of(child, _is_result, _check, problem, name, config, options.torch_device, options.seed)
    except Died as death:
        return _result_of(death)


def _is_result(answer: Any) -> TypeGuard[Result]:
    return holds(answer, Result)


def _is_timing(answer: Any, names: Sequence[str], with_floor: bool) -> bool:
    """Whether `_time` may return it of these contenders."""
    if holds(answer, Failure):
        of_floor = with_floor and str(answer.name).startswith("floor/")
        return of_floor or answer.name in [None, AGAIN, *names]
    if not holds(answer, tuple[dict[str, Samples], dict[str, float]]):
        return False
    samples, errors = answer
    if not samples.keys() >= {*names, AGAIN} or errors.keys() != set(names):
        return False
    counts = {len(each.rounds) for each in samples.values()}
    if not all(type(each) is Samples for each in samples.values()) or len(counts) != 1:
        return False
    rounds = [times for each in samples.values() for times in each.rounds]
    return bool(rounds) and all(times and all(0 < us < inf for us in times) for times in rounds)


def _is_timelines(answer: Any, names: Sequence[str]) -> bool:
    """Whether `_timelines` may return it of these contenders."""
    if holds(answer, Failure):
        return answer.name in [None, *names]
    return holds(answer, str) or (holds(answer, dict[str, float]) and answer.keys() <= set(names))


def _result_of(death: Died) -> Result:
    failure = _failure(death)
    return Result(failure.status, failure.message)


def _failure(death: Died) -> Failure:
    status: Status = CRASHED
    if death.forged:
        status = WRONG
    elif death.timed_out:
        status = TIMED_OUT
    elif "OutOfMemoryError" in death.message:
        status = OUT_OF_MEMORY
    if death.running is None:
        return Failure(None, status, f"before any contender ran: {death.message}")
    return Failure(death.running, status, death.message)


def _timed(
    child: Child,
    problem: Problem,
    running: list[str],
    results: dict[str, Result],
    timing: Timing,
    options: Options,
) -> Iterator[str]:
    """Times the contenders named by `running`, mode by mode, into `timing`. Removes those that fail, and yields
    them."""
    baseline = OPS[problem.op].baseline
    for mode in options.timings:
        left, with_floor = list(running), mode != "host"
        while baseline in left:
            configs = {name: results[name].config for name in left}
            try:
                is_timing = partial(_is_timing, names=left, with_floor=with_floor)
                answer = answer_of(child, is_timing, _time, problem, configs, mode, with_floor, options)
            except Died as death:
                answer = _failure(death)
                if not is_timing(answer):
                    answer = Failure(None, answer.status, f"{answer.name} ran, who takes no part: {answer.message}")
            if not isinstance(answer, Failure):
                timing.samples[mode], errors_after = answer
                for name, error in errors_after.items():
                    results[name].error_after = error
                break
            child.stop()  # a failed capture leaves the allocator in an undefined state
            if answer.name is None:
                for name in running:
                    results[name].fail(answer.status, answer.message)
                    yield name
                running.clear()
                return
            if answer.name.startswith("floor/"):
                with_floor = False
                for name in left:
                    results[name].add_message(f"{mode}: no floor, as {answer.name} failed: {answer.message}")
                continue
            name = baseline if answer.name == AGAIN else answer.name
            left.remove(name)
            if answer.status == PASSED:
                results[name].add_message(f"not timed {mode}: {answer.message}")
            else:
                results[name].fail(answer.status, f"while timed {mode}: {answer.message}")
                running.remove(name)
                yield name
        if baseline not in left:
            for name in left:
                results[name].add_message(f"not timed {mode}: {baseline} failed there")
            if baseline not in running:
                return


def _see_timelines(
    child: Child, problem: Problem, running: list[str], results: dict[str, Result], timing: Timing, options: Options
) -> Iterator[str]:
    """Into `timing`; where it cannot be seen, in a new process neither, every row says why. Removes the contenders of
    `running` that are wrong there, and yields them."""
    unseen = 0
    while running:
        configs = {name: results[name].config for name in running}
        try:
            answer = answer_of(
                child, partial(_is_timelines, names=running), _timelines, problem, configs, options.torch_device
            )
        except Died as death:
            answer = _failure(death) if death.running in running else death.message
        if isinstance(answer, dict):
            timing.timeline_us = answer
            return
        child.stop()
        if isinstance(answer, str) or answer.name is None:
            unseen += 1
            if unseen == 1:  # a contender may have left a profiler on in the process that has ended now
                continue
            for name in running:
                results[name].add_message(f"the GPU's timeline was not seen: {answer}")
            return
        results[answer.name].fail(answer.status, f"while the GPU's timeline was seen: {answer.message}")
        running.remove(answer.name)
        yield answer.name


def _row(
    workload: str,
    problem: Problem,
    kernel: Kernel,
    result: Result,
    timing: Timing,
    beside: str | None,
    versions: EnvironmentRecord,
    options: Options,
) -> Row:
    """beside: the contender that it is held against."""
    passed = result.status in (PASSED, SUSPICIOUS)
    accuracy = AccuracyRecord()
    if result.accuracy is not None:
        accuracy = AccuracyRecord(
            error_before=_finite(result.accuracy.error),
            error_after=_finite(result.error_after),
            torch_error=_finite(result.accuracy.torch_error),
            bound=_finite(result.accuracy.bound),
            times_torch=_finite(result.accuracy.times_torch),
            times_study=_finite(result.accuracy.times_study),
        )
    return Row(
        workload=workload,
        problem=ProblemRecord.from_problem(problem),
        asked=list(options.timings),
        contender=kernel.full_name,
        language=kernel.language.value,
        protocol=kernel.protocol.value,
        variant=kernel.variant,
        config=result.config,
        config_source=result.config_source,
        search=result.search,
        status=result.status,
        message=_shortened(result.message),
        timing=timing.records(kernel.full_name, options.seed) if passed else {},
        accuracy=accuracy,
        bitwise_equal=result.bitwise_equal,
        deterministic=kernel.deterministic,
        workspace_bytes=result.workspace_bytes,
        launches=kernel.launches,
        against=timing.against(kernel.full_name, beside, options.seed) if passed else {},
        floor=timing.floor() if passed else {},
        noise=timing.noise() if passed else {},
        order_seeds=timing.order_seeds() if passed else {},
        timeline_us=timing.timeline_us.get(kernel.full_name) if passed else None,
        clocks=timing.clocks(),
        environment=versions,
        command=command_of(problem, kernel.full_name, options.timings, options.changed),
        time=now(),
        schema=SCHEMA,
    )


def _finite(value: float | None) -> float | None:
    """None for what JSON has no number for."""
    return value if value is not None and isfinite(value) else None


def _shortened(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[:LONGEST_MESSAGE]} ... ({len(message)} characters, the rest is cut)"


# What runs in the worker.


def _check(
    problem: Problem, name: str, config: Config | None, device: torch.device, seed: int, *, announce: Announce
) -> Result:
    seals, referee = seal(), referee_of(problem, device, seed)
    kernel = _held([name])[name]  # imported before the deadline starts
    announce(name)
    result = Result(PASSED)
    try:
        _examine(referee, name, config, result)
    except Exception as error:
        result.fail(*status_of(error))
    reason = seals.broken()
    if reason is None and kernel.language is Language.CANDIDATE:
        reason = seals.overridden()
    if reason:
        result = Result(WRONG, reason, result.config, result.config_source, spoiled=True)
    elif not result.spoiled and not healthy():
        result.status = CRASHED
    return result


def _warm_up(problem: Problem, device: torch.device, seed: int, *, announce: Announce) -> None:
    seal()
    _examine(referee_of(problem, device, seed), OPS[problem.op].baseline, None, Result(PASSED))


def _examine(referee: Referee, name: str, config: Config | None, result: Result) -> None:
    problem, device = referee.problem, referee.device
    kernel = contenders.find(name)
    if reason := contenders.sits_out(kernel, problem, device):
        return result.fail(UNSUPPORTED, reason)
    source: ConfigSource = "search"
    if config is None:
        slug = tuned.slug_of(device)
        config, source = contenders.pick(kernel, problem, slug)
        result.search = contenders.search_of(kernel, problem, slug) if source == "tuned" else None
    if config is not None:
        result.config, result.config_source = asdict(config), source
    if kernel.build is not None and device.type == "cuda":
        try:
            kernel.build(problem, config)
        except Exception as error:
            return result.fail(COMPILE_ERROR, _compile_message(error))
    result.workspace_bytes = kernel.workspace_bytes(problem, config)
    call, before = launcher(kernel, problem, config), Threads()
    try:
        accuracy, equal = referee.examine(call, kernel.roundings(config), kernel.deterministic)
    finally:
        left = before.left() if kernel.language is Language.CANDIDATE else None
        result.spoiled = left is not None  # what they do later, they would do to the contenders that follow
    if left:
        return result.fail(WRONG, left)
    result.accuracy, result.bitwise_equal = accuracy, equal
    result.add_message(kernel.note())


@dataclass
class _Tracked:
    """Announces who runs, and keeps the name: an error is the fault of the current one."""

    announce: Announce
    current: str | None = None

    def __call__(self, name: str) -> None:
        self.current = name
        self.announce(name)


def _held(names: Iterable[str]) -> dict[str, Kernel]:
    """The contenders of these names, held by the seals as they are now; and, where a candidate is among them, all
    others, which it could import before anybody has held them."""
    kernels = {name: contenders.find(name) for name in names}
    if any(kernel.language is Language.CANDIDATE for kernel in kernels.values()):
        contenders.all_contenders()
    seal().hold(kernels)
    return kernels


def _time(
    problem: Problem,
    configs: dict[str, dict[str, Any] | None],
    mode: str,
    with_floor: bool,
    options: Options,
    *,
    announce: Announce,
) -> tuple[dict[str, Samples], dict[str, float]] | Failure:
    """The samples of all contenders, of the baseline again and of the floors, by name; and each contender's error on a
    fresh output after the timing, by name."""
    device, track = options.torch_device, _Tracked(announce)
    try:
        clock = clock_of(device)
        kernels = _held(configs)
        bound = {
            name: None if fields is None else kernels[name].config_from(fields) for name, fields in configs.items()
        }
        entrants = [timed(name, kernels[name], problem, bound[name], device) for name in configs]
        baseline = OPS[problem.op].baseline
        entrants.append(replace(next(entrant for entrant in entrants if entrant.name == baseline), name=AGAIN))
        if with_floor:
            entrants += floor.floors(rotation_of(problem, device).reads(), clock, mode, announce=track)
        samples = time_together(entrants, mode, options.rounds, clock, announce=track, energy=options.energy)
        referee, errors = referee_of(problem, device, options.seed), {}
        for entrant, (name, kernel) in zip(entrants, kernels.items(), strict=False):
            track(name)
            call, roundings = launcher(kernel, problem, bound[name]), kernel.roundings(bound[name])
            with threads_counted(entrant):
                errors[name] = referee.judged(call, roundings).error
    except NotTimed as not_timed:
        status: Status = WRONG if not_timed.wrong else PASSED if healthy() else CRASHED
        return Failure(track.current, status, not_timed.reason)  # a contender could raise it in another's name
    except Exception as error:
        return Failure(track.current, *status_of(error))
    return {entrant.name: taken for entrant, taken in zip(entrants, samples, strict=True)}, errors


def _timelines(
    problem: Problem, configs: dict[str, dict[str, Any] | None], device: torch.device, *, announce: Announce
) -> dict[str, float] | Failure | str:
    """Microseconds that the GPU is busy in one call, by contender; the first that fails; or why none can be seen."""
    clock, entrants, track = clock_of(device), [], _Tracked(announce)
    for (name, kernel), fields in zip(_held(configs).items(), configs.values(), strict=True):
        entrants.append(timed(name, kernel, problem, None if fields is None else kernel.config_from(fields), device))
    try:
        return timelines(entrants, profiled, clock.evict_l2, track)
    except NotTimed as wrong:
        return Failure(track.current, WRONG, wrong.reason)
    except Exception as error:
        return first_line(error) if track.current is None else Failure(track.current, *status_of(error))


def status_of(error: Exception) -> tuple[Status, str]:
    """The status and message of a row whose contender raised this."""
    if isinstance(error, Fault):
        return WRONG, str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        torch.cuda.empty_cache()
        return OUT_OF_MEMORY, first_line(error)
    if isinstance(error, NotImplementedError):
        return UNSUPPORTED, first_line(error)
    if isinstance(error, SyntaxError) or type(error).__module__.startswith(
        ("triton.compiler", "triton.runtime.errors")
    ):
        return COMPILE_ERROR, _compile_message(error)
    return CRASHED, first_line(error)


def _compile_message(error: Exception) -> str:
    """The error's first and last line: where, and what."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' ... '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}"
