"""One search for both languages: the same number of configs, the same time, the same checks, the same clock.

    choose    the default config, those tuned for other shapes, then a sample of the kernel's space: the same
              sample in every run, and for equal spaces in every language
    build     all of them in parallel, in processes; an error is recorded
    check     each against float64
    time      in stages: all for a few rounds, the fastest third for twice as many, ...
    refine    build, check and time what lies next to the leaders in the space, of which the sample holds most tiles
              with one split only, and what is likest to the best of the kernel's twin in the other language and of
              its kin, the other kernels of its own
    confirm   the winner again, with fresh samples: that is the time reported

Checking and timing happen in a process that may die; the config it died of is out, the rest go on in a new one. A
kernel's time covers checking and timing. Building is outside of it, as it says nothing about the kernel.
"""

import hashlib
import inspect
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from bench import clock, referee, rotation, stats
from bench import contenders as listed
from bench.clock import NotTimed, Tell, first_line, time_together
from bench.environment import environment
from bench.journal import PASSED, Row
from bench.ops import OPS
from bench.process import ROOT, Child, Children, Died
from bench.rotation import clock_of, launcher, referee_of, timed
from bench.stats import summary
from common import tuned
from common.kernel import Config, Kernel, Language
from common.problem import Problem

log = logging.getLogger(__name__)

SEARCH = (__file__, clock.__file__, referee.__file__, rotation.__file__, stats.__file__)  # what decides who wins

FIRST_ROUNDS = 3
FINALISTS = 4
CONFIRMING_ROUNDS = 20
# One in so many of the configs allowed is kept for neighbours of the leaders, and one in so many of these for those of
# the leader in the other language, and as many for those of other kernels in its own.
REFINING = 4


@dataclass(frozen=True)
class Budget:
    """What one kernel may use on one problem."""

    configs: int
    seconds: float


BUDGETS = {"quick": Budget(32, 30.0), "full": Budget(256, 300.0)}


@dataclass
class Search:
    """What a search did. failed: configs that are out, with the reason. confirmed_us: the winner's cold time
    from samples that it was not chosen by. config is None where none passed."""

    budget: Budget
    tried: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    out_of_time: bool = False
    config: Config | None = None
    confirmed_us: float | None = None

    def __str__(self) -> str:
        used = (
            f"{self.tried} of {self.budget.configs} configs allowed, {self.seconds:.0f} of {self.budget.seconds:.0f} s"
            f"{', stopped by time' if self.out_of_time else ''}, {len(self.failed)} failed"
        )
        if self.failed:
            config, reason = next(iter(self.failed.items()))
            used += f" (the first: {config}: {reason})"
        return f"{used}; {self.config} {self.confirmed_us:.2f} us" if self.config else f"{used}; none passed"


class Lost(Exception):
    """A config that did not survive being timed."""

    def __init__(self, config: Config, reason: str):
        super().__init__(f"{config}: {reason}")
        self.config, self.reason = config, reason


def tune(
    problem: Problem,
    kernels: Sequence[Kernel],
    budget: str,
    *,
    builders: Children,
    deadline_s: float,
    device: torch.device,
    seed: int = 0,
) -> dict[str, Search]:
    """A search per kernel that has configs of its own for this problem, by full name. `budget` is a key of BUDGETS.

    Found searches are kept in the user's cache, until device, versions or the source change, the kernel's or this
    one. Raises ValueError on a device without a clock.
    """
    if device.type != "cuda":
        raise ValueError(f"device is {device}; accepted: a CUDA device, as configs are told apart by their time")
    limit = BUDGETS[budget]
    with Child(deadline_s) as child:
        versions, slug = child.call(_identity, device)
        searches, kept_at = {}, {}
        contests: dict[str, Contest] = {}
        chosen: dict[str, list[Config]] = {}
        for kernel in kernels:
            if kernel.tuned_as or kernel.supports(problem, None) is not None or not kernel.configs(problem):
                continue
            name = kernel.full_name
            kept_at[name] = _cache_path(kernel, problem, budget, versions)
            if kept_at[name].exists():
                searches[name] = _from_cache(kernel, kept_at[name])
                log.info("%s %s: kept from an earlier run: %s", problem.name, name, searches[name])
            else:
                trial = _Trial(child, problem, name, device, seed)
                contests[name] = Contest(limit, trial.check, trial.time)
                chosen[name] = choose(kernel, problem, limit.configs - limit.configs // REFINING, slug)

        child.deadline_s = min(deadline_s, limit.seconds)

        def compete() -> None:
            failed = _built(problem, chosen, builders, device)
            for name, configs in chosen.items():
                child.call(_prepare, problem, device, seed)
                contests[name].enter(configs, failed[name])

        compete()
        for kernel in kernels:
            if contest := contests.get(kernel.full_name):
                left = 0 if contest.found.out_of_time else limit.configs - len(contest.entered)
                led = partial(_leader, problem, slug, contests, searches)
                likest: list[Config] = []
                for others in ([led(twin_of(kernel))], [led(name) for name in kin_of(kernel)]):
                    leaders = [leader for leader in others if leader is not None]
                    entered = contest.entered.union(likest)
                    likest += neighbours(kernel, problem, leaders, entered, left // REFINING)
                entered = contest.entered.union(likest)
                near = neighbours(kernel, problem, contest.leaders, entered, left - len(likest))
                chosen[kernel.full_name] = likest + near
        compete()
        for name, contest in contests.items():
            child.call(_prepare, problem, device, seed)
            searches[name] = contest.confirmed()
            log.info("%s %s: %s", problem.name, name, searches[name])
            _to_cache(searches[name], kept_at[name])
        return searches


def build_ahead(
    problems: Sequence[tuple[Problem, Sequence[Kernel]]], *, deadline_s: float, device: torch.device
) -> None:
    """Compiles, in parallel, what these kernels' launchers will take on these problems. An error is left for the
    contender's own row to meet."""
    with Child(deadline_s) as child:
        _, slug = child.call(_identity, device)
    jobs: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for problem, kernels in problems:
        for kernel in kernels:
            if kernel.build is None or listed.sits_out(kernel, problem, device):
                continue
            config, _ = listed.pick(kernel, problem, slug)
            # One job for all sizes: what is compiled does not depend on them, but for their divisibility.
            build = kernel.full_name, config, problem.compiled_for
            jobs.setdefault(build, (problem, kernel.full_name, [config], device))
    with builders(deadline_s) as children:
        children.each(_build, list(jobs.values()))


def choose(kernel: Kernel, problem: Problem, count: int, slug: str) -> list[Config]:
    """At most `count` different configs: the heuristic's, the tuned ones of this and the nearest shapes (these at most
    half of all), and a sample of the rest of the space, drawn by the problem's name alone, of as many different tiles
    as there is room for."""
    known = [kernel.config_from(entry["config"]) for entry in tuned.nearest(kernel, problem, slug)]
    known = [config for config in known if kernel.supports(problem, config) is None]
    first = list(dict.fromkeys([kernel.default_config(problem), *known]))[: max(1, count // 2)]
    rest = [config for config in kernel.configs(problem) if config not in first]
    return first + _spread(rest, random.Random(problem.name))[: count - len(first)]


def _spread(configs: Sequence[Config], order: random.Random) -> list[Config]:
    """In a random order in which one config of everything that is compiled comes before a second of any."""
    turns: Counter[tuple[Any, ...]] = Counter()
    in_turns = []
    for config in order.sample(configs, len(configs)):
        in_turns.append((turns[_compiled(config)], config))
        turns[_compiled(config)] += 1
    return [config for _, config in sorted(in_turns, key=lambda pair: pair[0])]


def _compiled(config: Config) -> tuple[Any, ...]:
    """What of a config is compiled, and not told at a launch."""
    at_launch = getattr(config, "AT_LAUNCH", ())
    return tuple(item for item in vars(config).items() if item[0] not in at_launch)


def neighbours(
    kernel: Kernel, problem: Problem, leaders: Sequence[Config], entered: Collection[Config], count: int
) -> list[Config]:
    """At most `count` configs of the space that have not entered: those that differ least from a leader, in the fewest
    fields and of these by the least factors, the first leader's first. A leader may be another kernel's: only the
    fields that both have are looked at."""

    def apart(config: Config) -> tuple[int, int, float]:
        found = []
        for place, leader in enumerate(leaders):
            pairs = [(value, vars(leader)[name]) for name, value in vars(config).items() if name in vars(leader)]
            differing = [(one, other) for one, other in pairs if one != other]
            factors = [abs(log2(one / other)) for one, other in differing if type(one) is int and one * other > 0]
            found.append((len(differing), place, sum(factors)))
        return min(found)

    untried = [config for config in kernel.configs(problem) if config not in entered] if leaders else []
    return sorted(untried, key=apart)[:count]


def twin_of(kernel: Kernel) -> str:
    """The full name that this kernel has in the other language."""
    other = Language.TILUS if kernel.language is Language.TRITON else Language.TRITON
    return replace(kernel, language=other).full_name


def kin_of(kernel: Kernel) -> list[str]:
    """Full names of the other kernels of its language whose configs have what its own have: a product that is fast
    under one protocol mostly is under another."""
    return [
        known.full_name
        for known in listed.all_contenders()
        if (known.language, known.op) == (kernel.language, kernel.op)
        and known.full_name != kernel.full_name
        and not known.tuned_as
        and (issubclass(known.config_type, kernel.config_type) or issubclass(kernel.config_type, known.config_type))
    ]


def _leader(
    problem: Problem, slug: str, contests: dict[str, "Contest"], searches: dict[str, Search], name: str
) -> Config | None:
    """What leads of the kernel of this name: here, in a search that was kept, or in the device's table."""
    if name in contests:
        return next(iter(contests[name].leaders), None)
    if name in searches:
        return searches[name].config
    for known in listed.all_contenders():
        if known.full_name == name:
            config, source = tuned.pick(known, problem, slug)
            return config if source == "tuned" else None
    return None


@dataclass
class Contest:
    """One kernel's configs, against each other on one problem.

    check(config): None, or why it is out. timing(configs, rounds): their median times in microseconds, all taken
    together; raises Lost for one that is out. leaders: of those that entered, the fastest first.
    """

    budget: Budget
    check: Callable[[Config], str | None]
    timing: Callable[[Sequence[Config], int], list[float]]
    now: Callable[[], float] = time.monotonic
    leaders: list[Config] = field(default_factory=list)
    entered: set[Config] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.found = Search(self.budget)

    def enter(self, configs: Sequence[Config], not_built: dict[Config, str]) -> None:
        """Checks them, and times those that are right, with the leaders until now."""
        found, start, before = self.found, self.now(), self.found.seconds
        found.failed |= {str(config): reason for config, reason in not_built.items()}
        self.entered |= set(configs)

        def late() -> bool:
            found.seconds = before + self.now() - start
            found.out_of_time = found.out_of_time or found.seconds > self.budget.seconds
            return found.out_of_time

        right = []
        for config in configs:
            if late():
                break
            found.tried += 1
            if config in not_built:
                continue
            if reason := self.check(config):
                found.failed[str(config)] = reason
            else:
                right.append(config)
        if right:
            rounds = FIRST_ROUNDS
            ranking = self._ranked([*self.leaders, *right], rounds)
            while len(ranking) > FINALISTS and not late():
                rounds *= 2
                ranking = self._ranked([config for _, config in ranking[: max(FINALISTS, len(ranking) // 3)]], rounds)
            self.leaders = [config for _, config in ranking]
        late()

    def confirmed(self) -> Search:
        """What was found: the fastest of those that hold when timed alone."""
        start = self.now()
        for config in self.leaders:
            if alone := self._ranked([config], CONFIRMING_ROUNDS):
                self.found.confirmed_us, self.found.config = alone[0]
                break
        self.found.seconds += self.now() - start
        return self.found

    def _ranked(self, configs: list[Config], rounds: int) -> list[tuple[float, Config]]:
        """Those that survive it, with their times, fastest first."""
        while configs:
            try:
                return sorted(zip(self.timing(configs, rounds), configs, strict=True), key=lambda pair: pair[0])
            except Lost as lost:
                self.found.failed[str(lost.config)] = lost.reason
                configs = [config for config in configs if config != lost.config]
        return []


def _built(
    problem: Problem, chosen: dict[str, list[Config]], builders: Children, device: torch.device
) -> dict[str, dict[Config, str]]:
    """Compiles all configs of all kernels; the ones that failed, by kernel, with the reason."""
    # Configs that share what is compiled go to one process, which builds it once.
    together: dict[tuple[Any, ...], list[Config]] = {}
    for name, configs in chosen.items():
        for config in configs:
            together.setdefault((name, *_compiled(config)), []).append(config)
    start = time.monotonic()
    jobs = [(problem, name, configs, device) for (name, *_), configs in together.items()]
    # Ranks build much the same, each for a problem of its own: in another order they wait less for each other.
    random.Random(problem.name).shuffle(jobs)
    answers = builders.each(_build, jobs)
    failed: dict[str, dict[Config, str]] = {name: {} for name in chosen}
    for (_, name, configs, _), answer in zip(jobs, answers, strict=True):
        reasons = [answer.message] * len(configs) if isinstance(answer, Died) else answer
        failed[name] |= {config: reason for config, reason in zip(configs, reasons, strict=True) if reason is not None}
    built = sum(len(configs) for configs in together.values())
    log.info("%s: %d configs built in %.0f s", problem.name, built, time.monotonic() - start)
    return failed


def builders(deadline_s: float) -> Children:
    """Processes that compile at once, on this rank's share of the CPUs that it may run on. Between two problems of a
    search they wait."""
    return Children(max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))), deadline_s)


@dataclass
class _Trial:
    """Checks and times one kernel's configs in a child that they may be the end of."""

    child: Child
    problem: Problem
    name: str
    device: torch.device
    seed: int

    def check(self, config: Config) -> str | None:
        try:
            return self.child.call(_check, self.problem, self.name, config, self.device, self.seed)
        except Died as death:
            return death.message

    def time(self, configs: Sequence[Config], rounds: int) -> list[float]:
        try:
            answer = self.child.call(_time, self.problem, self.name, list(configs), rounds, self.device, self.seed)
        except Died as death:
            answer = int(death.running or 0), death.message
        if isinstance(answer, tuple):
            index, reason = answer
            raise Lost(configs[index], reason)
        return answer


# What runs in children.


def _identity(device: torch.device, *, tell: Tell) -> tuple[dict[str, str | None], str]:
    return environment(device), tuned.slug_of(device)


def _prepare(problem: Problem, device: torch.device, seed: int, *, tell: Tell) -> None:
    """What no kernel's time should be charged with."""
    referee_of(problem, device, seed)
    clock_of(device)


def _build(problem: Problem, name: str, configs: list[Config], device: torch.device, *, tell: Tell) -> list[str | None]:
    """For each config None, or why it cannot be built."""
    torch.cuda.set_device(device)
    kernel = listed.find(name)
    reasons: list[str | None] = []
    for config in configs:
        tell(f"{name} {config}")
        try:
            if kernel.build is not None:
                kernel.build(problem, config)
            reasons.append(None)
        except Exception as error:
            reasons.append(first_line(error))
    return reasons


def _check(problem: Problem, name: str, config: Config, device: torch.device, seed: int, *, tell: Tell) -> str | None:
    kernel, referee = listed.find(name), referee_of(problem, device, seed)
    tell(name)
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
    tell: Tell,
) -> list[float] | tuple[int, str]:
    """Their median cold times in microseconds, or which of them failed, and why."""
    kernel, running = listed.find(name), 0

    def track(index: str) -> None:
        nonlocal running
        running = int(index)
        tell(index)

    try:
        playing = [timed(str(i), kernel, problem, config, device, seed) for i, config in enumerate(configs)]
        samples = time_together(playing, "cold", rounds, clock_of(device), tell=track)
    except NotTimed as not_timed:
        return int(not_timed.contender), not_timed.reason
    except Exception as error:
        return running, first_line(error)
    return [summary(of.rounds).median_us for of in samples]


# Searches kept, and tables.


def _cache_path(kernel: Kernel, problem: Problem, budget: str, versions: dict[str, str | None]) -> Path:
    key = {
        "kernel": kernel.full_name,
        "problem": problem.name,
        "budget": asdict(BUDGETS[budget]),
        "versions": {name: value for name, value in versions.items() if name not in ("git", "python", "tuned")},
        "source": source_hash(kernel),
        "search": hashlib.sha256(b"".join(Path(file).read_bytes() for file in SEARCH)).hexdigest(),
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "triton-vs-tilus" / "search" / f"{name}.json"


def source_hash(kernel: Kernel) -> str:
    """Of the kernel's file and of every file of this project that it takes something from."""
    launch = kernel.launch
    while isinstance(launch, partial):
        launch = launch.func
    pending, sources = [sys.modules[launch.__module__]], {}
    while pending:
        module = pending.pop()
        file = getattr(module, "__file__", None)
        if file is None or file in sources or not Path(file).is_relative_to(ROOT):
            continue
        sources[file] = Path(file).read_bytes()
        for value in vars(module).values():
            used = value if inspect.ismodule(value) else sys.modules.get(getattr(value, "__module__", None) or "")
            pending += [used] if used is not None else []
    return hashlib.sha256(b"\0".join(sources[file] for file in sorted(sources))).hexdigest()


def _to_cache(found: Search, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {**asdict(found), "config": asdict(found.config) if found.config else None}
    _replace(path, json.dumps(values, indent=1))


def _replace(path: Path, text: str) -> None:
    """At once, for whoever reads it."""
    half_written = path.with_suffix(f".{os.getpid()}")
    half_written.write_text(text)
    half_written.replace(path)


def _from_cache(kernel: Kernel, path: Path) -> Search:
    values: dict[str, Any] = json.loads(path.read_text())
    config = kernel.config_from(values["config"]) if values["config"] else None
    return replace(Search(**values), budget=Budget(**values["budget"]), config=config)


def write_table(slug: str, rows: Iterable[Row]) -> Path:
    """Puts what the rows' searches found into a device's table, over what it held for the same problem. Other processes
    may do so at the same time, and read it.

    Only rows that passed with a config of a search count. Kernels and problems are sorted, an entry a line.
    """
    path = tuned.TABLES / f"{slug}.json"
    with FileLock(Path(tempfile.gettempdir()) / f"triton-vs-tilus-{slug}.lock"):
        table = json.loads(path.read_text()) if path.exists() else {}
        _put(table, rows)
        path.parent.mkdir(exist_ok=True)
        _replace(path, _table_text(table))
    tuned.table.cache_clear()
    tuned.pick.cache_clear()
    return path


def _put(table: dict[str, list[dict[str, Any]]], rows: Iterable[Row]) -> None:
    for row in rows:
        if row.status != PASSED or row.config_source != "search":
            continue
        problem = OPS[row.problem["op"]].problem.from_fields(row.problem).key
        others = [entry for entry in table.get(row.contender, []) if entry["problem"] != problem]
        table[row.contender] = [*others, {"problem": problem, "config": row.config}]


def _table_text(table: dict[str, list[dict[str, Any]]]) -> str:
    def place(entry: dict[str, Any]) -> tuple[list[str], list[int]]:
        """By its choices, last ones first, then by its sizes, M last."""
        values = list(entry["problem"].values())
        sizes = [value for value in values if type(value) is int]
        return [str(value) for value in reversed(values) if type(value) is not int], sizes[1:] + sizes[:1]

    kernels = []
    for name in sorted(table):
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in sorted(table[name], key=place))
        kernels.append(f"{json.dumps(name)}: [\n{lines}\n ]")
    return "{\n " + ",\n ".join(kernels) + "\n}\n"
