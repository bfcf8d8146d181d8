"""Which configs of a kernel's space a search tries: a sample first, then neighbours of the leaders."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import log2
from typing import Any

from triton_vs_tilus.bench.contenders import all_contenders, find_or_none
from triton_vs_tilus.bench.search.race import Budget
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Config, GroupedConfig, Kernel, Language, tiles_of
from triton_vs_tilus.common.problem import Matmul, Problem
from triton_vs_tilus.common.space import MULTIPROCESSORS, point_of

# 1/REFINING of the configs allowed is kept for refining. 1/REFINING of those go to the neighbours of the twin's leader,
# as many to the neighbours of the siblings' leaders, the rest to the neighbours of the kernel's own.
REFINING = 4
LEAST_FILLED = 0.75  # of the multiprocessors


def tries(kernel: Kernel, problem: Problem, budget: Budget) -> int | None:
    """How many configs a search may try: None for all, where the spaces of both languages fit the budget; else the same
    number in both, at most the smaller space."""
    sizes = [len(kernel.configs(problem))]
    twin = find_or_none(twin_of(kernel))
    if twin is not None and twin.supports(problem, None) is None and (size := len(twin.configs(problem))):
        sizes.append(size)
    return None if max(sizes) <= budget.configs else min(budget.configs, *sizes)


def first_tries(kernel: Kernel, problem: Problem, budget: Budget, slug: str) -> list[Config]:
    """What a search tries before it knows a leader: the known configs and the whole space, or `sample`'s part of it,
    with 1/REFINING of the tries kept for the leaders' neighbours."""
    count = tries(kernel, problem, budget)
    if count is None:
        return list(dict.fromkeys([*_known(kernel, problem, slug), *kernel.configs(problem)]))
    return sample(kernel, problem, count - count // REFINING, slug)


def sample(kernel: Kernel, problem: Problem, count: int, slug: str) -> list[Config]:
    """At most `count` different configs: the heuristic's, the tuned ones of this problem, on other GPUs too, and of the
    nearest problems, and a random part of the rest of the space. The known ones are at most half. The part holds as
    many configs of one way to feed a tile as of another, and of each as many different compilations as it has room for,
    first those whose blocks fill the GPU. Which of one way come first depends on the problem alone and not on the
    language; how many do, on what the language knows and how many ways it has."""
    first = _known(kernel, problem, slug)[: max(1, count // 2)]
    rest = [config for config in kernel.configs(problem) if config not in first]
    return first + _spread(rest, problem)[: count - len(first)]


def _known(kernel: Kernel, problem: Problem, slug: str) -> list[Config]:
    elsewhere = [device for device in tuned.devices() if device not in tuned.looked_in(slug)]
    leaders = [entry for each in elsewhere for entry in tuned.nearest(kernel, problem, each)[:1]]
    key = tuned.key_of(kernel, problem)
    known = [entry.config for entry in leaders if entry.problem == key]
    known += [entry.config for entry in tuned.nearest(kernel, problem, slug)]
    known = [config for config in known if kernel.supports(problem, config) is None]
    return list(dict.fromkeys([kernel.default_config(problem), *known]))


def _spread(configs: Sequence[Config], problem: Problem) -> list[Config]:
    """In random order, those that fill the GPU first, but one config of each compilation before a second one of any,
    and one of each way to feed a tile likewise."""
    drawn = sorted(configs, key=lambda config: (not _fills(config, problem), _drawn(config, problem.name)))
    return _in_turn(_in_turn(drawn, compiled_fields), _way)


def _fills(config: Config, problem: Problem) -> bool:
    """Whether tile and split make as many blocks as there are multiprocessors, or up to a quarter fewer: more than half
    of the winners of decompose_k, atomic and last_arriver on an H200, and less than a fifth of their spaces."""
    if not isinstance(problem, Matmul) or not isinstance(config, GroupedConfig):
        return False
    blocks = tiles_of(problem, config) * config.split_k
    return LEAST_FILLED * MULTIPROCESSORS <= blocks <= MULTIPROCESSORS


def _in_turn(configs: Sequence[Config], kind: Callable[[Config], Any]) -> list[Config]:
    """The first of each kind, then the second of each, ..."""
    seen: Counter[Any] = Counter()
    ranked = []
    for config in configs:
        ranked.append((seen[kind(config)], config))
        seen[kind(config)] += 1
    return [config for _, config in sorted(ranked, key=lambda pair: pair[0])]


def _way(config: Config) -> tuple[Any, ...]:
    point = point_of(config)
    return point.get("feed"), point.get("transposed")


def _drawn(config: Config, seed: str) -> str:
    """A random place, the same for what is the same config in both languages."""
    return hashlib.sha256(f"{seed} {sorted(point_of(config).items())}".encode()).hexdigest()


def compiled_fields(config: Config) -> tuple[Any, ...]:
    """The (name, value) pairs that a kernel is compiled for: all but those passed at launch."""
    at_launch = getattr(config, "AT_LAUNCH", ())
    return tuple(item for item in vars(config).items() if item[0] not in at_launch)


def neighbours(
    kernel: Kernel, problem: Problem, leaders: Sequence[Config], entered: Collection[Config], count: int
) -> list[Config]:
    """At most `count` configs of the space that have not entered, the closest to a leader first: by the number of
    differing fields, then by the leader's rank, then by the factors that fields differ by. A leader may be of another
    kernel or language; then what both have is compared."""
    points = [point_of(leader) for leader in leaders]

    def distance(config: Config) -> tuple[int, int, float]:
        found, own = [], point_of(config)
        for rank, leader in enumerate(points):
            pairs = [(value, leader[name]) for name, value in own.items() if name in leader]
            factors = [_factor(one, other) for one, other in pairs if one != other]
            found.append((len(factors), rank, sum(factors)))
        return min(found)

    untried = [config for config in kernel.configs(problem) if config not in entered] if leaders else []
    return sorted(untried, key=distance)[:count]


def _factor(one: Any, other: Any) -> float:
    """The |log2| of the ratio of two numbers, of all of two reducers'; 0 for what has no ratio."""
    if isinstance(one, tuple):
        return sum(map(_factor, one, other))
    return abs(log2(one / other)) if type(one) is int and one * other > 0 else 0.0


def twin_of(kernel: Kernel) -> str:
    """The full name of this kernel in the other language."""
    other = Language.TILUS if kernel.language is Language.TRITON else Language.TRITON
    return replace(kernel, language=other).full_name


def siblings_of(kernel: Kernel) -> list[str]:
    """Full names of the other kernels of its language and operation with compatible configs: a tile that is fast under
    one protocol mostly is under another."""
    return [
        known.full_name
        for known in all_contenders()
        if (known.language, known.op) == (kernel.language, kernel.op)
        and known.full_name != kernel.full_name
        and not known.tuned_as
        and (issubclass(known.config_type, kernel.config_type) or issubclass(kernel.config_type, known.config_type))
    ]
