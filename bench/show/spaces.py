"""How many configs a search may try of each kernel, in each language, and what a language has none of, and why."""

import re
from collections import Counter
from collections.abc import Sequence

from triton_vs_tilus.bench.show.tables import Table
from triton_vs_tilus.common.kernel import LANGUAGES, Kernel, Language, Space
from triton_vs_tilus.common.problem import Problem

NUMBERS = re.compile(r"(?<![\w.])\d+(?:x\d+)*(?!\.?\w)|\(\d[\d, ]*\)")


def sizes_table(kernels: Sequence[Kernel], problems: Sequence[Problem]) -> Table:
    """A line per kernel that has a space somewhere, a column per problem: configs of Triton / of tilus, '-' for a
    language without the kernel."""
    lines = []
    for name, pair in _pairs(kernels).items():
        cells = [[_size(pair.get(language), problem) for language in LANGUAGES] for problem in problems]
        if any(cell not in ("-", "0") for sizes in cells for cell in sizes):
            lines.append([name, *(" / ".join(sizes) for sizes in cells)])
    return Table("configs of Triton / of tilus", ["kernel", *(problem.name for problem in problems)], lines)


def dropped_table(kernels: Sequence[Kernel], problems: Sequence[Problem]) -> Table:
    """What both languages want and one has not: a line per kernel, language and reason, with the number of configs over
    all problems. Numbers in a reason are one N."""
    lines = []
    for name, pair in _pairs(kernels).items():
        for language in LANGUAGES:
            counted: Counter[str] = Counter()
            for problem in problems:
                for reason, count in _space(pair.get(language), problem).dropped.items():
                    counted[NUMBERS.sub("N", reason)] += count
            lines += [[name, language.value, str(count), reason] for reason, count in counted.most_common()]
    return Table("wanted and not there", ["kernel", "language", "configs", "reason"], lines)


def _pairs(kernels: Sequence[Kernel]) -> dict[str, dict[Language, Kernel]]:
    """By the name that both languages have; without those that take another's searched configs."""
    pairs: dict[str, dict[Language, Kernel]] = {}
    for kernel in kernels:
        if kernel.language in LANGUAGES and not kernel.tuned_as:
            pairs.setdefault(kernel.full_name.partition("/")[2], {})[kernel.language] = kernel
    return pairs


def _space(kernel: Kernel | None, problem: Problem) -> Space:
    if kernel is None or kernel.op != problem.op:
        return Space()
    return kernel.space(problem)


def _size(kernel: Kernel | None, problem: Problem) -> str:
    return "-" if kernel is None else str(len(_space(kernel, problem).configs))
