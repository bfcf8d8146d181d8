"""One search for both languages: the same budget of configs and time, the same checks, the same clock.

    choose    the default config, configs tuned for other problems or on other GPUs, and the kernel's whole space, where
              the spaces of both languages fit the budget: their numbers may differ then, and known configs that are
              not of the space come on top of the budget. Else a part of the space, with the known ones of the same
              number in both languages, and the same in every run. Each language's ways to feed a tile take turns, so
              that the parts share most of what both have, and not all
    build     all of them in parallel, in processes; an error is recorded
    check     each against float64
    time      in stages: all for a few rounds, the fastest third for twice as many, ...
    refine    where a part was chosen: build, check and time the leader of its twin in the other language, where both
              can run it, and the neighbours of the leaders: of this kernel's own, of its twin's and of its siblings',
              the other kernels of its language
    confirm   the winner again, with fresh samples: that is the time reported

A part holds most tiles with one split only, one that fills the GPU where there is one; refining is where a tile's
splits are compared. Checking and timing run in a process that may die; the config it died of is out, the rest go on in
a new one. A kernel's time covers checking and timing. Building is not counted, nor is the start of a process, as they
say nothing about the kernel; but the CUDA is that tilus writes again, to find what was built: less than 0.1 s a config.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure.clock import Announce, NotTimed, first_line, time_together
from triton_vs_tilus.bench.measure.process import Child, Children, Died, answer_of, holds
from triton_vs_tilus.bench.measure.rotation import clock_of, launcher, referee_of, timed
from triton_vs_tilus.bench.measure.stats import summary
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.bench.search import cache
from triton_vs_tilus.bench.search.build import build_all
from triton_vs_tilus.bench.search.race import BUDGETS, Lost, Race, SearchResult
from triton_vs_tilus.bench.search.space import REFINING, first_tries, neighbours, siblings_of, tries, twin_of
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.problem import Problem

log = logging.getLogger(__name__)


def tune(
    problem: Problem,
    kernels: Sequence[Kernel],
    budget: str,
    *,
    child: Child,
    builders: Children,
    device: torch.device,
    versions: EnvironmentRecord,
    seed: int = 0,
) -> dict[str, SearchResult]:
    """A search per kernel that has configs of its own for this problem, by full name.

    budget    a key of BUDGETS
    child     checks and times; its deadline is at most the budget's seconds from here on
    builders  compile
    versions  the environment of the device

    Of a search whose processes cannot be prepared no config passes. A kernel's result with a config is kept in the
    user's cache (search.cache) as soon as it is found, and taken from there. Raises ValueError on a device without a
    clock.
    """
    if device.type != "cuda":
        raise ValueError(f"device is {device}; accepted: a CUDA device, as configs are compared by their time")
    limit = BUDGETS[budget]
    slug = tuned.device_slug(versions.device)
    results: dict[str, SearchResult] = {}
    paths = {
        kernel.full_name: cache.path_of(kernel, problem, budget, versions)
        for kernel in kernels
        if not kernel.tuned_as and kernel.supports(problem, None) is None and kernel.configs(problem)
    }
    racing: list[Kernel] = []
    for kernel in kernels:
        name = kernel.full_name
        if name in paths and paths[name].exists():
            results[name] = cache.load(kernel, paths[name])
            log.info("%s %s: kept from an earlier run: %s", problem.name, name, results[name])
        elif name in paths:
            racing.append(kernel)
    trials = [_Trial(child, problem, kernel.full_name, device, seed) for kernel in racing]
    spaces = {kernel.full_name: kernel.configs(problem) for kernel in racing}
    races = {trial.name: Race(limit, trial.check, trial.time, spaces[trial.name], trial.now) for trial in trials}
    child.deadline_s = min(child.deadline_s, limit.seconds)

    def built(chosen: dict[str, list[Config]]) -> dict[str, dict[Config, str]]:
        """What of a kernel's configs was not, and why."""
        not_built, seconds = build_all(problem, chosen, builders, device)
        for name in chosen:
            races[name].result.build_seconds += seconds[name]
        return not_built

    def leader(name: str) -> list[Config]:
        """At most one config: the leader of a kernel in this search, in a kept one, or in the device's table."""
        if name in races:
            return races[name].leaders[:1]
        if name in results:
            config = results[name].config
            return [] if config is None else [config]
        if (known := contenders.find_or_none(name)) is None:
            return []
        config, source = tuned.pick(known, problem, slug)
        return [config] if source == "tuned" else []

    def refined(kernel: Kernel) -> list[Config]:
        race = races[kernel.full_name]
        allowed = tries(kernel, problem, limit)
        left = 0 if allowed is None else max(0, allowed - len(race.entered))
        near: list[Config] = []
        siblings = [config for name in siblings_of(kernel) for config in leader(name)]
        for leaders in (leader(twin_of(kernel)), siblings):
            near += neighbours(kernel, problem, leaders, race.entered.union(near), left // REFINING)
        near += neighbours(kernel, problem, race.leaders, race.entered.union(near), left - len(near))
        return [] if near and race.late() else near

    first = {kernel.full_name: first_tries(kernel, problem, limit, slug) for kernel in racing}
    not_built = built(first)
    for name, configs in first.items():
        races[name].enter(configs, not_built[name])
    near = {kernel.full_name: refined(kernel) for kernel in racing}
    not_built = built(near)
    for name, configs in near.items():
        races[name].enter(configs, not_built[name])
        results[name] = races[name].confirmed()
        log.info("%s %s: %s", problem.name, name, results[name])
        if results[name].config is not None:  # why none passed may be over by the next run
            cache.store(results[name], paths[name])
    return results


@dataclass
class _Trial:
    """Checks and times one kernel's configs in a child process that they may end.

    prepare_s   spent on what each process makes anew for all kernels alike
    unprepared  how the child died of that, once it did: the configs left are out, as each would take a process as long
    """

    child: Child
    problem: Problem
    name: str
    device: torch.device
    seed: int
    prepare_s: float = 0.0
    unprepared: Died | None = None

    def now(self) -> float:
        """Host seconds without those that preparing took."""
        return monotonic() - self.prepare_s

    def check(self, config: Config) -> str | None:
        try:
            return self._answer(partial(holds, kind=str | None), _check, config)
        except Died as death:
            return death.message

    def time(self, configs: Sequence[Config], rounds: int) -> list[float]:
        try:
            answer = self._answer(partial(_is_timing, count=len(configs)), _time, list(configs), rounds)
        except Died as death:
            indices = [str(index) for index in range(len(configs))]
            answer = indices.index(death.running) if death.running in indices else 0, death.message
        if isinstance(answer, tuple):
            index, reason = answer
            raise Lost(configs[index], reason)
        return answer

    def _answer(self, is_answer: Callable[[Any], bool], function: Callable[..., Any], *given: Any) -> Any:
        """The child's, once it is prepared. Raises Died."""
        self._make_ready()
        return answer_of(self.child, is_answer, function, self.problem, self.name, *given, self.device, self.seed)

    def _make_ready(self) -> None:
        """Prepares the child where it is a new process. Raises Died."""
        if self.unprepared is not None:
            raise self.unprepared
        began = monotonic()
        try:
            self.child.call(_prepare, self.problem, self.device, self.seed)
        except Died as death:
            self.unprepared = death
            raise
        finally:
            self.prepare_s += monotonic() - began


def _is_timing(answer: Any, count: int) -> bool:
    """Whether `_time` may return it of so many configs."""
    if holds(answer, list[float]):
        return len(answer) == count and all(0 < us < inf for us in answer)
    return holds(answer, tuple[int, str]) and 0 <= answer[0] < count


# What runs in children.


def _prepare(problem: Problem, device: torch.device, seed: int, *, announce: Announce) -> None:
    """Makes inputs, reference and clock, so that no kernel's time is charged with them."""
    referee_of(problem, device, seed)
    clock_of(device)


def _check(
    problem: Problem, name: str, config: Config, device: torch.device, seed: int, *, announce: Announce
) -> str | None:
    kernel, referee = contenders.find(name), referee_of(problem, device, seed)
    announce(name)
    try:
        referee.judged(launcher(kernel, problem, config), kernel.roundings(config))
    except Exception as error:
        return first_line(error)
    return None


def _time(
    problem: Problem,
    name: str,
    configs: list[Config],
    rounds: int,
    device: torch.device,
    seed: int,
    *,
    announce: Announce,
) -> list[float] | tuple[int, str]:
    """Their median cold times in microseconds; or the index of the one that failed, and why.

    What is timed beside others is not judged anew: it was checked, and the winner is judged where it is timed alone.
    """
    kernel, running = contenders.find(name), 0

    def track(index: str) -> None:
        nonlocal running
        running = int(index)
        announce(index)

    try:
        entrants = [timed(str(i), kernel, problem, config, device) for i, config in enumerate(configs)]
        if len(entrants) > 1:
            entrants = [replace(each, fault=None) for each in entrants]
        samples = time_together(entrants, "cold", rounds, clock_of(device), announce=track)
    except NotTimed as not_timed:
        return int(not_timed.contender), not_timed.reason
    except Exception as error:
        return running, first_line(error)
    return [summary(each.rounds).median_us for each in samples]
