"""Of the sources' own kernels in a rule: our counterpart of each, and what records them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar, cast

import pandas as pd

from triton_vs_tilus.bench.recordings import PUBLISHED, RECORDINGS
from triton_vs_tilus.bench.show.claims.evidence import named

# What is of the same algorithm here, by the published contender that a rule names.
OURS = {
    "published_triton/decompose_k.first": "triton/decompose_k.tile",
    "published_triton/decompose_k.optimized": "triton/decompose_k.vector",
    "published_triton/decompose_k.optimized_unfused": "triton/decompose_k.vector_unfused",
    "published_triton/matmul": "triton/data_parallel*",
    **{
        f"published_triton/or_reduce.{variant}": f"triton/or_reduce.{variant}"
        for variant in ("reduce", "unrolled", "control_reduce", "control_unrolled")
    },
    "published_triton/w4a16.splitk": "triton/w4a16.atomic",
    "published_triton/w4a16.splitk@s4": "triton/w4a16.atomic",
    "published_triton/w4a16.splitk@s*": "triton/w4a16*@s*",
    "published_triton/w4a16.data_parallel": "triton/w4a16.data_parallel",
    "published_tilus/matmul.v5": "tilus/semaphore.*",
    **{f"published_tilus/matmul.v5@s{splits}": f"tilus/semaphore.*@s{splits}" for splits in ("*", "[2-9]*", "1?")},
}

AnyRule = TypeVar("AnyRule")


def ours(rule: AnyRule) -> AnyRule:
    """The rule with our kernels in the place of published ones; equal to `rule` where it names none of them."""
    if not is_dataclass(rule):
        return rule
    swapped = {field.name: _swapped(getattr(rule, field.name)) for field in fields(rule)}
    return cast(AnyRule, replace(cast(Any, rule), **swapped))


def _swapped(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_swapped, value))
    return OURS.get(value, value) if isinstance(value, str) else value


def missing(rows: pd.DataFrame, contenders: Sequence[str]) -> list[str]:
    """The published contenders, of those that a rule names, that no row is of."""
    return [name for name in contenders if name in OURS and named(rows, name).empty]


def recorded_by(contenders: Sequence[str], workload: str) -> str:
    """The command that records these on a claim's workload (a pattern)."""
    return f"python bench/record.py {' '.join(dict.fromkeys(_recordings(contenders, workload)))}"


def counted_by(contenders: Sequence[str], problems: Iterable[str]) -> str:
    """The command that counts these on problems, given by their names."""
    asked = [f"--problem {name}" for name in problems] + [f"--only {name}" for name in contenders]
    return f"python bench/counters.py {' '.join(asked)}"


def _recordings(contenders: Sequence[str], workload: str) -> Iterator[str]:
    for name, command in RECORDINGS.items():
        # Problems that are given one by one are of no suite.
        suite = "shape" if command.startswith("--shape") else name.removesuffix(PUBLISHED)
        names = any(contender.partition(".")[0] in command for contender in contenders)
        if name.endswith(PUBLISHED) and fnmatchcase(suite, workload) and names:
            yield name
