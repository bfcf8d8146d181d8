"""Language x protocol, from rows alone: what the language changes at one protocol, and the protocol in one language.

A cell holds all contenders of one language and one protocol but controls; on each problem its fastest counts, so that
a cell is not punished for a variant that it has beside a better one. The two languages are held against each other
kernel by kernel, the same one in both, where both ran a config searched for the problem, and nowhere else: that would
tell of the search.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bench.journal import PASSED, Row
from bench.ops import BASELINES
from bench.tables import (
    NOT_SEARCHED,
    Table,
    baseline_name,
    by_problem,
    contending,
    leading_timing,
    naming,
    ranked,
    source_of,
    speedup_cell,
    speedup_text,
)
from common.kernel import Language
from common.protocol import Protocol

PAIR = (Language.TRITON.value, Language.TILUS.value)
OVER_HEADING = f"{PAIR[1]} over\n{PAIR[0]}"
OVER = OVER_HEADING.replace("\n", " ")
LEAST = 3  # problems that a spread is told of


@dataclass(frozen=True)
class Cell:
    """One language and one protocol. bests: by problem, its fastest contender that passed; rows: all."""

    language: str
    protocol: str
    rows: Sequence[Row]
    bests: Mapping[str, Row]

    @property
    def name(self) -> str:
        return f"{self.language} {self.protocol}"


def cells(rows: Iterable[Row], timing: str | None) -> list[Cell]:
    """By protocol, in the order of common.protocol, then by language; the baseline, being 1, is in none."""
    problems = by_problem(row for row in contending(rows) if row.contender not in BASELINES)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in (row for of_problem in problems.values() for row in of_problem):
        groups.setdefault((row.language, row.protocol), []).append(row)
    made = []
    for (language, protocol), group in groups.items():
        bests: dict[str, Row] = {}
        for row in ranked(group, timing):
            if row.timing[timing]["speedup"]:
                bests.setdefault(row.problem["name"], row)
        made.append(Cell(language, protocol, group, bests))
    languages = [language.value for language in Language]
    return sorted(made, key=lambda cell: (place_of_protocol(cell.protocol), _place(cell.language, languages)))


def place_of_protocol(name: str) -> int:
    """Where it stands among those of common.protocol; after them, where it is none."""
    return _place(name, [protocol.value for protocol in Protocol])


def _place(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else len(order)


def tables(rows: Sequence[Row]) -> list[Table]:
    """What pages show, then a line for every problem and cell. Raises ValueError where nothing was timed."""
    return [*page_tables(rows), lines_table(rows)]


def page_tables(rows: Sequence[Row]) -> list[Table]:
    """Language against protocol, kernel by kernel in both languages, the cells in full, and every problem's speed-ups.
    Raises ValueError where nothing was timed."""
    if leading_timing(rows) is None:
        raise ValueError("the matrix needs rows that were timed; there are none")
    both = twins_table(rows)
    return [effect_table(rows), *([both] if both.lines else []), cells_table(rows), problems_table(rows)]


def effect_table(rows: Sequence[Row]) -> Table:
    """A line a protocol, a column a language; and one language's speed over the other's, of the protocol's kernels that
    both have, each with a config searched for the problem."""
    timing = leading_timing(rows)
    problems = by_problem(contending(rows))
    made = {(cell.language, cell.protocol): cell for cell in cells(rows, timing)}
    languages = list(dict.fromkeys(cell.language for cell in sorted(made.values(), key=_by_language)))
    lines, of_kernels = [], twins(rows, timing)
    for protocol in dict.fromkeys(protocol for _, protocol in made):
        line = [_mean_text(made.get((language, protocol)), timing, len(problems)) for language in languages]
        pairs = [pair for of in of_kernels.values() for pair in of if pair[0].protocol == protocol]
        lines.append([protocol, *line, _spread_text(_ratios(pairs, timing), len(pairs))])
    foot = f"Times {baseline_name(rows)} ({timing}), the geometric mean over problems of a cell's fastest contender; "
    foot += (
        f"{OVER}: the speed of a kernel in the one language over that of the same kernel in the other, the mean and "
    )
    foot += "the extremes over the protocol's kernels and the problems. "
    foot += f"{_effects(made.values(), of_kernels, timing, len(problems))}{source_of(rows)}."
    header = ["protocol", *languages, OVER_HEADING]
    title = " ".join(filter(None, ["language x protocol", naming(rows)[0]]))
    return Table(title.replace("protocol [", "protocol: ["), header, lines, foot=foot)


def _by_language(cell: Cell) -> int:
    return _place(cell.language, [language.value for language in Language])


def _mean(cell: Cell, timing: str) -> float:
    return geometric_mean(row.timing[timing]["speedup"] for row in cell.bests.values())


def _mean_text(cell: Cell | None, timing: str, count: int) -> str:
    if cell is None:
        return ""
    if not cell.bests:
        return _outcome(cell)
    return f"{_mean(cell, timing):.3f}" + (f" ({len(cell.bests)} of {count})" if len(cell.bests) < count else "")


def _outcome(cell: Cell) -> str:
    """Of a cell without figures: how its contenders ended."""
    return ", ".join(dict.fromkeys(row.status if row.status != PASSED else "not timed" for row in cell.rows))


def twins_table(rows: Sequence[Row]) -> Table:
    """A line a kernel that both languages have: one's speed over the other's."""
    timing = leading_timing(rows)
    lines = [
        [name, of[0][0].protocol, _spread_text(_ratios(of, timing), len(of))]
        for name, of in twins(rows, timing).items()
    ]
    foot = f"{timing}. The mean and the extremes over problems on which both ran a config searched for the problem."
    return Table("the same kernel in both languages", ["kernel", "protocol", OVER_HEADING], lines, foot=foot)


Pairs = Sequence[tuple[Row, Row]]  # of one kernel in each language of PAIR, on one problem


def twins(rows: Iterable[Row], timing: str) -> dict[str, Pairs]:
    """By the kernel's name, on each problem on which both languages passed; in the order of the protocols."""
    speeds = [row for row in ranked(contending(rows), timing) if row.timing[timing]["speedup"]]
    found = {(row.language, _kernel(row), row.problem["name"]): row for row in speeds}
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for (language, kernel, problem), row in found.items():
        if language == PAIR[0] and (other := found.get((PAIR[1], kernel, problem))):
            pairs.setdefault(kernel, []).append((row, other))
    return dict(sorted(pairs.items(), key=lambda item: (place_of_protocol(item[1][0][0].protocol), item[0])))


def _kernel(row: Row) -> str:
    return row.contender.partition("/")[2]


def _ratios(pairs: Pairs, timing: str) -> list[float]:
    """The second's speed over the first's, by speed-ups, each of its own run; of pairs that both ran a config searched
    for the problem."""
    return [
        second.timing[timing]["speedup"] / first.timing[timing]["speedup"]
        for first, second in pairs
        if not (first.not_searched or second.not_searched)
    ]


def _spread_text(ratios: Sequence[float], count: int) -> str:
    """'0.915 (0.80-1.10), 4 of 12', of so many pairs."""
    text = f"{geometric_mean(ratios):.3f}" if ratios else ""
    text += f" ({min(ratios):.2f}-{max(ratios):.2f})" if len(ratios) >= LEAST else ""
    return text if len(ratios) == count else ", ".join(filter(None, [text, f"{len(ratios)} of {count}"]))


def _effects(made: Iterable[Cell], pairs: Mapping[str, Pairs], timing: str, count: int) -> str:
    """How far apart the languages are at one kernel, of those compared on half of the problems or more, and the
    protocols in one language, of cells that have all problems; and what of `pairs`, by kernel, is left out of the
    first."""
    means = {(cell.language, cell.protocol): _mean(cell, timing) for cell in made if len(cell.bests) == count}
    ratios = {kernel: _ratios(of, timing) for kernel, of in pairs.items()}
    told = []
    apart = {kernel: _times_apart(geometric_mean(of)) for kernel, of in ratios.items() if 2 * len(of) >= count}
    if apart:
        most = max(apart, key=apart.__getitem__)
        told.append(f"at the same kernel the languages are up to {apart[most]:.2f}x apart ({most})")
    for language in PAIR:
        of = [mean for (speaks, _), mean in means.items() if speaks == language]
        if len(of) > 1:
            told.append(f"in {language} the protocols are up to {max(of) / min(of):.2f}x apart")
    text = "; ".join(told)
    text = f"{text[0].upper()}{text[1:]}. " if text else ""
    every = sum(map(len, pairs.values()))
    if left_out := every - sum(map(len, ratios.values())):
        text += f"Left out of {OVER}, and of how far the languages are apart: {left_out} of {every} pairs (kernel and "
        text += "problem), which did not both run a config searched for the problem. "
    return text


def _times_apart(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def cells_table(rows: Sequence[Row]) -> Table:
    """A line a cell."""
    timing = leading_timing(rows)
    problems = by_problem(contending(rows))
    fastest = {name: _fastest(of_problem, timing) for name, of_problem in problems.items()}
    lines, details = [], []
    for cell in cells(rows, timing):
        bests = list(cell.bests.values())
        if not bests:
            lines.append([cell.protocol, cell.language, "", "", "", "", "", *_properties(cell.rows), _outcome(cell)])
            told = dict.fromkeys(row.message for row in cell.rows if row.message)
            details += [f"{cell.name}: {message}" for message in told]
            continue
        verdicts = [row.timing[timing]["verdict"] for row in bests]
        lines.append(
            [
                cell.protocol,
                cell.language,
                f"{_mean(cell, timing):.3f}",
                _share_text([row.timing[timing]["times_floor"] for row in bests]),
                f"{verdicts.count('faster')} / {verdicts.count('tie')} / {verdicts.count('slower')}",
                str(sum(row.contender == fastest[row.problem["name"]] for row in bests)),
                _error_text(bests),
                *_properties(bests),
                f"{len(bests)} of {len(problems)}",
            ]
        )
    header = [
        "protocol",
        "language",
        f"times {baseline_name(rows)}\n(geometric mean)",
        "share of\nfloor",
        "faster / tie / slower",
    ]
    header += ["fastest\nof all", "error /\ntorch's", "deterministic", "launches", "workspace", "problems"]
    foot = f"{timing}. Share of floor: the time that reading the least bytes takes, over the contender's (geometric "
    foot += f"mean). Error: the largest over problems, as a multiple of {baseline_name(rows)}'s own. Workspace: from "
    foot += "the least to the most over problems."
    return Table("the cells", header, lines, details=details, foot=foot)


def _fastest(rows: Iterable[Row], timing: str) -> str | None:
    return next((row.contender for row in ranked(rows, timing)), None)


def _share_text(times_floor: Iterable[float | None]) -> str:
    known = [times for times in times_floor if times]
    return f"{1 / geometric_mean(known):.0%}" if known else ""


def _error_text(rows: Iterable[Row]) -> str:
    errors = [row.accuracy["times_torch"] for row in rows if row.accuracy.get("times_torch") is not None]
    return f"{max(errors):.2f}" if errors else ""


def _properties(rows: Iterable[Row]) -> list[str]:
    """Deterministic, launches, workspace."""
    rows = list(rows)
    return [
        _one_of({"yes" if row.deterministic else "no" for row in rows}, "some"),
        "-".join(str(count) for count in sorted({row.launches for row in rows if row.launches is not None})),
        _bytes_text([row.workspace_bytes for row in rows if row.workspace_bytes is not None]),
    ]


def _one_of(found: set[str], mixed: str) -> str:
    return found.pop() if len(found) == 1 else mixed


def _bytes_text(sizes: Sequence[int]) -> str:
    if not sizes:
        return ""
    return " to ".join(dict.fromkeys([_size(min(sizes)), _size(max(sizes))]))


def _size(count: float) -> str:
    for unit in ("B", "KiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} MiB"


def problems_table(rows: Sequence[Row]) -> Table:
    """A line a problem, a column a cell that was timed at all: times torch.mm of its fastest contender."""
    timing = leading_timing(rows)
    made = [cell for cell in cells(rows, timing) if cell.bests]
    _, what, labels = naming(rows)
    lines = []
    for name, of_problem in by_problem(contending(rows)).items():
        best = _fastest(of_problem, timing)
        lines.append([labels[name], *(speedup_cell(cell.bests.get(name), timing, best) for cell in made)])
    baseline = baseline_name(rows)
    header = [what, *(f"{cell.language}\n{cell.protocol}" for cell in made)]
    foot = f"Times {baseline} ({timing}) of the cell's fastest contender; = a tie with {baseline}; * fastest of all; "
    foot += f"{NOT_SEARCHED}."
    return Table(f"the cells by {what}", header, lines, foot=foot)


def lines_table(rows: Sequence[Row]) -> Table:
    """A line for every problem and cell: its fastest contender, in full."""
    timing = leading_timing(rows)
    made = cells(rows, timing)
    _, what, labels = naming(rows)
    lines, best = [], set()
    for name, of_problem in by_problem(contending(rows)).items():
        fastest = _fastest(of_problem, timing)
        for cell in made:
            if (row := cell.bests.get(name)) is None:
                continue
            if row.contender == fastest:
                best.add(len(lines))
            figures = row.timing[timing]
            lines.append(
                [
                    labels[name],
                    cell.protocol,
                    cell.language,
                    _kernel(row),
                    f"{figures['median_us']:.2f}",
                    speedup_text(figures),
                    _share_text([figures["times_floor"]]),
                    _error_text([row]),
                    *_properties([row]),
                ]
            )
    header = [
        what,
        "protocol",
        "language",
        "fastest contender",
        f"{timing} us",
        f"times\n{baseline_name(rows)}",
        "share of\nfloor",
    ]
    header += ["error /\ntorch's", "deterministic", "launches", "workspace"]
    return Table(f"the cells by {what}, in full", header, lines, best=frozenset(best))
