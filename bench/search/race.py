"""The race between one kernel's configs on one problem: checked one by one, then timed in stages.

All configs are timed for FIRST_ROUNDS, the fastest third for twice as many rounds, and so on until FINALISTS are left.
The winner's time is taken again with samples that it was not chosen by.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_vs_tilus.bench.rows.row import SearchRecord
from triton_vs_tilus.common.kernel import Config

FIRST_ROUNDS = 3
FINALISTS = 4
CONFIRMING_ROUNDS = 20


@dataclass(frozen=True)
class Budget:
    """What one kernel may use on one problem.

    configs  of a space that is tried whole, as its twin's is; known configs that are not of the space come on top.
             Where either space is larger, of all that are tried, the same number in both languages
    seconds  of checking and timing
    """

    configs: int
    seconds: float


BUDGETS = {"quick": Budget(64, 30.0), "full": Budget(768, 600.0)}


@dataclass
class SearchResult:
    """What a search did.

    space         configs that the kernel's space holds for the problem
    untried       those of them that did not enter; 0: it was searched whole
    tried         configs that were checked, or had failed to build, of the space and of those known from elsewhere
    failed        the reason why a config is out, by config in words
    seconds       spent on checking and timing; building is not counted, as it says nothing about the kernel
    build_seconds of the processes that built, together; near 0 for what was in a cache
    out_of_time   whether the budget's seconds ended it before all was checked, timed and refined
    config        the winner; None where no config passed
    confirmed_us  the winner's cold time in microseconds, from samples that it was not chosen by
    """

    budget: Budget
    space: int = 0
    untried: int = 0
    tried: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    build_seconds: float = 0.0
    out_of_time: bool = False
    config: Config | None = None
    confirmed_us: float | None = None

    def __str__(self) -> str:
        part = "the whole space" if not self.untried else f"{self.space - self.untried} of the space"
        used = (
            f"{part} of {self.space} and {self.tried - self.space + self.untried} others tried, "
            f"{self.seconds:.0f} of {self.budget.seconds:.0f} s"
            f"{', stopped by time' if self.out_of_time else ''}, {len(self.failed)} failed"
        )
        if self.failed:
            config, reason = next(iter(self.failed.items()))
            used += f" (the first: {config}: {reason})"
        return f"{used}; {self.config} {self.confirmed_us:.2f} us" if self.config else f"{used}; none passed"

    def record(self) -> SearchRecord:
        """Of a search that found a config."""
        assert self.confirmed_us is not None
        return SearchRecord(
            tried=self.space - self.untried,
            space=self.space,
            out_of_time=self.out_of_time,
            us=self.confirmed_us,
            seconds=round(self.seconds, 1),
            build_seconds=round(self.build_seconds, 1),
        )


class Lost(Exception):
    """A config that did not survive being timed."""

    def __init__(self, config: Config, reason: str):
        super().__init__(f"{config}: {reason}")
        self.config, self.reason = config, reason


@dataclass
class Race:
    """One kernel's configs, against each other on one problem.

    check    None for a config that is right, else the reason why it is out
    timing   the median times of configs in microseconds, all taken together in so many rounds; raises Lost for one
             that is out
    space    all configs for the problem
    now      host seconds
    leaders  the finalists so far, the fastest first
    entered  all configs so far, those that failed to build too
    """

    budget: Budget
    check: Callable[[Config], str | None]
    timing: Callable[[Sequence[Config], int], list[float]]
    space: Sequence[Config] = ()
    now: Callable[[], float] = time.monotonic
    leaders: list[Config] = field(default_factory=list)
    entered: set[Config] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._untried = set(self.space)
        self.result = SearchResult(self.budget, space=len(self._untried), untried=len(self._untried))

    def enter(self, configs: Sequence[Config], not_built: dict[Config, str]) -> None:
        """Checks configs, and times the right ones together with the leaders so far. not_built: why one could not be
        built."""
        result, start, before = self.result, self.now(), self.result.seconds
        result.failed |= {str(config): reason for config, reason in not_built.items()}
        self.entered |= set(configs)

        def spend() -> None:
            result.seconds = before + self.now() - start

        def late() -> bool:
            spend()
            return self.late()

        right = []
        for config in configs:
            if late():
                break
            result.tried += 1
            self._untried.discard(config)
            if config in not_built:
                continue
            if reason := self.check(config):
                result.failed[str(config)] = reason
            else:
                right.append(config)
        if right:
            rounds = FIRST_ROUNDS
            ranking = self._ranked([*self.leaders, *right], rounds)
            while len(ranking) > FINALISTS and not late():
                rounds *= 2
                ranking = self._ranked([config for _, config in ranking[: max(FINALISTS, len(ranking) // 3)]], rounds)
            self.leaders = [config for _, config in ranking]
        result.untried = len(self._untried)
        spend()

    def late(self) -> bool:
        """Whether the budget's seconds are used up. To be asked where something is left to do: the result then says
        that they ended it."""
        self.result.out_of_time = self.result.out_of_time or self.result.seconds > self.budget.seconds
        return self.result.out_of_time

    def confirmed(self) -> SearchResult:
        """The result, with the fastest leader that survives being timed alone."""
        start = self.now()
        for config in self.leaders:
            if alone := self._ranked([config], CONFIRMING_ROUNDS):
                self.result.confirmed_us, self.result.config = alone[0]
                break
        self.result.seconds += self.now() - start
        return self.result

    def _ranked(self, configs: list[Config], rounds: int) -> list[tuple[float, Config]]:
        """The survivors with their times, the fastest first."""
        while configs:
            try:
                return sorted(zip(self.timing(configs, rounds), configs, strict=True), key=lambda pair: pair[0])
            except Lost as lost:
                self.result.failed[str(lost.config)] = lost.reason
                configs = [config for config in configs if config != lost.config]
        return []
