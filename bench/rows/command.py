"""The command that a row is measured by."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from triton_vs_tilus.bench.ops import MATMUL

if TYPE_CHECKING:
    from triton_vs_tilus.common.problem import Problem


def command_of(
    problem: "Problem",
    contender: str,
    asked: Sequence[str],
    more: Mapping[str, Any],
    script: str = "bench/compare.py",
) -> str:
    """The command that measures one contender on one problem, beside the baseline.

    more: flags that are not at their defaults, by name.
    """
    words = ["python", script, *problem_words(problem)]
    kind, _, place = contender.partition("/")
    if kind == "candidate":
        words += ["--candidate", place]
    words += ["--only", contender, *(["--timing", ",".join(asked)] if asked else [])]
    return shlex.join([*words, *flags(more)])


def flags(more: Mapping[str, Any]) -> list[str]:
    """The words for flags by name; one that is True has no value."""
    return [word for name, value in more.items() for word in (f"--{name}", *([] if value is True else [str(value)]))]


def problem_words(problem: "Problem") -> list[str]:
    """The words that ask for one problem."""
    if problem.op != MATMUL:
        return ["--problem", problem.name]
    fields = problem.fields
    words = [
        "--shape",
        "{m}x{n}x{k}".format_map(fields),
        "--dtype",
        fields["dtype"],
        "--layout",
        fields["layout"],
    ]
    if fields["epilogue"] != "none":
        words += ["--epilogue", fields["epilogue"]]
    if fields["out_dtype"] != fields["dtype"]:
        words += ["--out-dtype", fields["out_dtype"]]
    return words
