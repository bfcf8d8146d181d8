"""The referee's desk: one problem's contenders, checked one by one and then timed together, in a process that may die.

Checking comes first, so that by the time of the timing those that crash, hang or are wrong are out. Whoever costs
the process its life gets its row, and the rest, and the problems after it, go on in a new one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from math import isfinite
from typing import Any

import torch

from bench import contenders as listed
from bench import floor, stats, tuning
from bench.clock import (
    Clocks,
    NotTimed,
    Samples,
    Tell,
    first_line,
    time_together,
)
from bench.environment import environment
from bench.journal import (
    BASELINE,
    COMPILE_ERROR,
    CRASHED,
    OUT_OF_MEMORY,
    PASSED,
    TIMED_OUT,
    UNSUPPORTED,
    WRONG,
    Row,
    command_of,
    problem_fields,
)
from bench.ops import OPS
from bench.process import Child, Children, Died, healthy
from bench.referee import Fault, Referee
from bench.rotation import clock_of, launcher, referee_of, rotation_of, timed
from common import tuned
from common.accuracy import Accuracy
from common.kernel import Config, Kernel
from common.problem import Problem

AGAIN = "the baseline again"


@dataclass(frozen=True)
class Options:
    """timings: out of cold, warm, host. tune: 'off', 'quick' or 'full'. deadline_s: for one contender to be built and
    checked, and again for each of its turns. device: a CUDA device's index, or 'cpu', where nothing is timed."""

    timings: tuple[str, ...] = ("cold", "warm", "host")
    rounds: int = 80
    tune: str = "off"
    deadline_s: float = 120.0
    seed: int = 0
    device: int | str = 0

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda", self.device) if isinstance(self.device, int) else torch.device(self.device)

    @property
    def changed(self) -> dict[str, Any]:
        """Those of rounds and tune that are not at their defaults."""
        chosen = {"rounds": self.rounds, "tune": self.tune}
        return {name: value for name, value in chosen.items() if value != getattr(Options, name)}


@dataclass
class Result:
    """What is known of one contender so far. Fields as in a row."""

    status: str
    message: str = ""
    config: dict[str, Any] | None = None
    config_source: str | None = None
    accuracy: Accuracy | None = None
    error_after: float | None = None
    bitwise_equal: bool | None = None
    workspace_bytes: int | None = None

    def fails(self, status: str, message: str) -> None:
        self.status, self.message = status, message

    def adds(self, message: str) -> None:
        self.message = "; ".join(filter(None, [self.message, message]))


@dataclass(frozen=True)
class Failure:
    """Who failed in a timing (None: nobody in particular), how, and why. Status PASSED: right, but not timed so."""

    name: str | None
    status: str
    message: str


@dataclass
class Timing:
    """The samples of every mode that was run, by contender."""

    baseline: str = BASELINE
    samples: dict[str, dict[str, Samples]] = field(default_factory=dict)

    def clocks(self) -> dict[str, Any]:
        runs: list[Clocks] = [next(iter(of_mode.values())).clocks for of_mode in self.samples.values()]
        readings = [reading for run in runs for reading in run.readings]
        reason = next((run.reason for run in runs if run.reason), "" if runs else "nothing was timed")

        def extent(name: str) -> list[float]:
            values = [getattr(reading, name) for reading in readings]
            return [min(values), max(values)] if values else []

        return {
            "available": bool(readings),
            "reason": reason,
            "sm_mhz": extent("sm_mhz"),
            "power_w": extent("power_w"),
            "temperature_c": extent("temperature_c"),
            "repeated_rounds": sum(run.repeated_rounds for run in runs),
        }

    def floor(self) -> dict[str, dict[str, float]]:
        return {
            mode: {
                "launch_us": stats.summary(of_mode[floor.LAUNCH].rounds).median_us,
                "read_us": stats.summary(of_mode[floor.READ].rounds).median_us,
            }
            for mode, of_mode in self.samples.items()
            if floor.READ in of_mode
        }

    def noise(self) -> dict[str, float]:
        return {mode: stats.noise(of[self.baseline].rounds, of[AGAIN].rounds) for mode, of in self.samples.items()}

    def of(self, name: str, seed: int) -> dict[str, dict[str, Any]]:
        """A row's `timing`."""
        floors, noises, timing = self.floor(), self.noise(), {}
        for mode, of_mode in self.samples.items():
            if name not in of_mode:
                continue
            rounds = of_mode[name].rounds
            summary = stats.summary(rounds)
            ratio = stats.paired_ratio(of_mode[self.baseline].rounds, rounds, seed)
            timing[mode] = {
                "method": of_mode[name].method,
                **asdict(summary),
                "speedup": ratio.value,
                "speedup_low": ratio.low,
                "speedup_high": ratio.high,
                "verdict": "baseline" if name == self.baseline else ratio.verdict(noises[mode]),
                "times_floor": summary.median_us / floors[mode]["read_us"] if mode in floors else None,
            }
        return timing


def measure(
    workload: str,
    problem: Problem,
    contenders: Sequence[Kernel],
    options: Options,
    child: Child,
    builders: Children,
) -> Iterator[Row]:
    """One row per contender, all of the problem's operation, as soon as it is known: failures at once, the timed ones
    together at the end. `builders` compile what a search tries.

    The baseline is timed even where it is not among the contenders, but then has no row. Raises RuntimeError where
    no worker process can be started.
    """
    versions = child.call(_environment, options.torch_device)
    baseline = OPS[problem.op].baseline
    timing = Timing(baseline)

    def row(kernel: Kernel, result: Result) -> Row:
        return _row(workload, problem, kernel, result, timing, versions, options)

    asked = {kernel.full_name: kernel for kernel in contenders}
    is_timed = options.torch_device.type == "cuda" and bool(options.timings)
    searched = _searched(problem, contenders, options, builders)
    results: dict[str, Result] = {}
    for name in dict.fromkeys([baseline, *asked] if is_timed else asked):
        found = searched.get(asked[name].tuned_as or name) if name in asked else None
        results[name] = _checked(child, problem, name, found.config if found else None, options)
        if found and found.config is None:
            results[name].adds(f"its search found no config: {found}")
        if name in asked and not (is_timed and results[name].status == PASSED):
            yield row(asked[name], results[name])
    if not is_timed:
        return

    playing = [name for name, result in results.items() if result.status == PASSED]
    if baseline in playing:
        for name in _timed(child, problem, playing, results, timing, options):
            if name in asked:
                yield row(asked[name], results[name])
    else:
        for name in playing:
            results[name].adds(f"not timed: {baseline} {results[baseline].status}: {results[baseline].message}")
    for name in playing:
        if name in asked:
            yield row(asked[name], results[name])


def _environment(device: torch.device, *, tell: Tell) -> dict[str, str | None]:
    return environment(device)


def _searched(
    problem: Problem, contenders: Sequence[Kernel], options: Options, builders: Children
) -> dict[str, tuning.Search]:
    if options.tune == "off":
        return {}
    return tuning.tune(
        problem,
        contenders,
        options.tune,
        builders=builders,
        deadline_s=options.deadline_s,
        device=options.torch_device,
    )


def _checked(child: Child, problem: Problem, name: str, config: Config | None, options: Options) -> Result:
    try:
        return child.call(_check, problem, name, config, options.torch_device, options.seed)
    except Died as death:
        failure = _blamed(death)
        return Result(failure.status, failure.message)


def _blamed(death: Died) -> Failure:
    status = TIMED_OUT if death.timed_out else OUT_OF_MEMORY if "OutOfMemoryError" in death.message else CRASHED
    if death.running is None:
        return Failure(None, status, f"before any contender ran: {death.message}")
    return Failure(death.running, status, death.message)


def _timed(
    child: Child,
    problem: Problem,
    playing: list[str],
    results: dict[str, Result],
    timing: Timing,
    options: Options,
) -> Iterator[str]:
    """Times `playing`, mode by mode, into `timing`; takes those that fail out of it, and yields them."""
    baseline = OPS[problem.op].baseline
    for mode in options.timings:
        left, with_floor = list(playing), mode != "host"
        while baseline in left:
            configs = {name: results[name].config for name in left}
            try:
                answer = child.call(
                    _time, problem, configs, mode, with_floor, options.rounds, options.torch_device, options.seed
                )
            except Died as death:
                answer = _blamed(death)
            if not isinstance(answer, Failure):
                timing.samples[mode], errors_after = answer
                for name, error in errors_after.items():
                    results[name].error_after = error
                break
            child.stop()  # a capture that failed leaves the allocator in a state of its own
            if answer.name is None:
                for name in playing:
                    results[name].fails(answer.status, answer.message)
                    yield name
                playing.clear()
                return
            if answer.name.startswith("floor/"):
                with_floor = False
                for name in left:
                    results[name].adds(f"{mode}: no floor, as {answer.name} failed: {answer.message}")
                continue
            name = baseline if answer.name == AGAIN else answer.name
            left.remove(name)
            if answer.status == PASSED:
                results[name].adds(f"not timed {mode}: {answer.message}")
            else:
                results[name].fails(answer.status, f"while timed {mode}: {answer.message}")
                playing.remove(name)
                yield name
        if baseline not in left:
            for name in left:
                results[name].adds(f"not timed {mode}: {baseline} failed there")
            if baseline not in playing:
                return


def _row(
    workload: str,
    problem: Problem,
    kernel: Kernel,
    result: Result,
    timing: Timing,
    versions: dict[str, str | None],
    options: Options,
) -> Row:
    passed = result.status == PASSED
    accuracy = {}
    if result.accuracy is not None:
        accuracy = {
            "error_before": result.accuracy.error,
            "error_after": result.error_after,
            "torch_error": result.accuracy.torch_error,
            "bound": result.accuracy.bound,
            "times_torch": result.accuracy.times_torch,
            "times_study": result.accuracy.times_study,
        }
    return Row(
        workload=workload,
        problem=problem_fields(problem),
        asked=list(options.timings),
        contender=kernel.full_name,
        language=kernel.language.value,
        protocol=kernel.protocol.value,
        variant=kernel.variant,
        config=result.config,
        config_source=result.config_source,
        status=result.status,
        message=result.message,
        timing=timing.of(kernel.full_name, options.seed) if passed else {},
        accuracy={name: value if value is None or isfinite(value) else None for name, value in accuracy.items()},
        bitwise_equal=result.bitwise_equal,
        deterministic=kernel.deterministic,
        workspace_bytes=result.workspace_bytes,
        launches=kernel.launches,
        floor=timing.floor() if passed else {},
        noise=timing.noise() if passed else {},
        clocks=timing.clocks(),
        environment=versions,
        command=command_of(problem, kernel.full_name, options.timings, options.changed),
        time=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


# What runs in the worker.


def _check(
    problem: Problem, name: str, config: Config | None, device: torch.device, seed: int, *, tell: Tell
) -> Result:
    referee = referee_of(problem, device, seed)
    listed.all_contenders()  # imported on nobody's time
    tell(name)
    result = Result(PASSED)
    try:
        _examine(referee, name, config, result)
    except Exception as error:
        result.fails(*status_of(error))
    if not healthy():
        result.status = CRASHED
    return result


def _examine(referee: Referee, name: str, config: Config | None, result: Result) -> None:
    problem, device = referee.problem, referee.device
    kernel = listed.find(name)
    if reason := listed.sits_out(kernel, problem, device):
        return result.fails(UNSUPPORTED, reason)
    source = "search"
    if config is None:
        config, source = listed.pick(kernel, problem, tuned.slug_of(device))
    if config is not None:
        result.config, result.config_source = asdict(config), source
    if kernel.build is not None and device.type == "cuda":
        try:
            kernel.build(problem, config)
        except Exception as error:
            return result.fails(COMPILE_ERROR, _compiler_says(error))
    result.workspace_bytes = kernel.workspace_bytes(problem, config)
    call = launcher(kernel, problem, config)
    result.accuracy, result.bitwise_equal = referee.examine(call, kernel.roundings(config), kernel.deterministic)
    result.adds(kernel.note())


def _time(
    problem: Problem,
    configs: dict[str, dict[str, Any] | None],
    mode: str,
    with_floor: bool,
    rounds: int,
    device: torch.device,
    seed: int,
    *,
    tell: Tell,
) -> tuple[dict[str, Samples], dict[str, float]] | Failure:
    """The samples of all of them, of the baseline again and of the floors; then each one's error on a fresh output."""
    running = None

    def track(name: str) -> None:
        nonlocal running
        running = name
        tell(name)

    try:
        clock = clock_of(device)
        kernels = {name: listed.find(name) for name in configs}
        bound = {name: None if of is None else kernels[name].config_from(of) for name, of in configs.items()}
        playing = [timed(name, kernels[name], problem, bound[name], device, seed) for name in configs]
        baseline = OPS[problem.op].baseline
        playing.append(replace(next(player for player in playing if player.name == baseline), name=AGAIN))
        if with_floor:
            playing += floor.floors(rotation_of(problem, device, seed).reads(), clock, mode, tell=track)
        samples = time_together(playing, mode, rounds, clock, tell=track)
        referee, errors = referee_of(problem, device, seed), {}
        for name, kernel in kernels.items():
            track(name)
            call, roundings = launcher(kernel, problem, bound[name]), kernel.roundings(bound[name])
            errors[name] = referee.judged(call, roundings).error
    except NotTimed as not_timed:
        status = WRONG if not_timed.wrong else PASSED if healthy() else CRASHED
        return Failure(not_timed.contender, status, not_timed.reason)
    except Exception as error:
        return Failure(running, *status_of(error))
    return {player.name: of for player, of in zip(playing, samples, strict=True)}, errors


def status_of(error: Exception) -> tuple[str, str]:
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
        return COMPILE_ERROR, _compiler_says(error)
    return CRASHED, first_line(error)


def _compiler_says(error: Exception) -> str:
    """First and last line: where, and what."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' ... '.join(dict.fromkeys([*lines[:1], *lines[-1:]]))}"
