"""The documents' own figures beside rows of the same problems."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from statistics import median

import pandas as pd

from triton_vs_tilus.bench.rows.queries import contending
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.bench.show.claims.evidence import Untested, compared, evidence, fastest
from triton_vs_tilus.bench.show.claims.figures import PUBLISHED, SPREAD, Published
from triton_vs_tilus.bench.show.claims.rules import STATISTICS
from triton_vs_tilus.bench.show.tables import Table

NOTHING = "-"
NOT_SEARCHED = "° config not searched for this problem, or for one of these"
TIES = "There the larger median wins; here a win also needs intervals that do not overlap and a lead beyond the noise"


def beside(name: str, columns: Mapping[str, Sequence[str]], rows: Sequence[Row]) -> Table:
    """A document's table, and in each cell after a stroke what the rows have, of the contenders that stand for it.

    columns: by the name of a column the patterns of these, one for each figure of a cell; columns of the document that
    are not among them stand alone, others are only of the rows. Of contenders that one pattern names the fastest, of
    several measurements the last; 'ONE:OTHER' is how many times as fast one is as the other at the same config.
    Milliseconds are shown as microseconds.

    Raises ValueError where there is no such table, or the rows have none of its problems.
    """
    if name not in PUBLISHED:
        raise ValueError(f"published: no table is named {name}; accepted: {', '.join(PUBLISHED)}")
    table = PUBLISHED[name]
    header = list(dict.fromkeys([*table.columns, *columns]))
    found = evidence(contending(rows))
    devices = {device: of.rows for device, of in found.by_device.items()}
    lines = []
    for problem, cells in table.figures.items():
        there = dict(zip(table.columns, cells, strict=True))
        for device, of_device in devices.items():
            chosen = of_device[[fnmatchcase(each, problem) for each in of_device["problem"]]]
            here = {column: [_recorded(table, chosen, each) for each in columns.get(column, ())] for column in header}
            if any(text != NOTHING for texts in here.values() for text in texts):
                where = [device.removeprefix("NVIDIA ")] * (len(devices) > 1)
                told = [_cell(table, there.get(column, ""), here[column]) for column in header]
                lines.append([", ".join([_label(problem), *where]), *told])
    if not lines:
        raise ValueError(f"published: {name}: the rows have none of its problems")
    marked = any("°" in cell for line in lines for cell in line)
    return Table(_title(table, list(devices)), ["problem", *header], lines, foot=_foot(table, columns, marked))


def _label(problem: str) -> str:
    return f"all {problem[1:].removeprefix('-')}".rstrip() if problem.startswith("*") else problem


def _recorded(table: Published, rows: pd.DataFrame, pattern: str) -> str:
    """In the unit in which the table is shown; NOTHING where the rows have no figure."""
    statistic, over, reference = table.unit.partition(" over ")
    one, versus, other = pattern.partition(":")
    try:
        if over or versus:
            pairs = compared(rows, one, other or reference, one_config=bool(versus))
            text = f"{pairs['ratio'].iloc[-1]:.2f}x" if versus else _statistic(statistic, pairs)
            return text + "°" * bool((~pairs["searched"]).any())
        last = fastest(rows, pattern).iloc[-1]
    except Untested:
        return NOTHING
    us = float(last["median_us"])
    value = us if table.unit == "ms" else 2 * last["m"] * last["n"] * last["k"] / us / 1e6
    return format(value, table.form) + "°" * bool(last["not_searched"])


def _statistic(name: str, pairs: pd.DataFrame) -> str:
    """'0.855'; of SPREAD '14 of 16 (+2 ties); 0.990, 1.026, 1.080'"""
    ratios = pairs["ratio"].tolist()
    if name != SPREAD:
        return f"{STATISTICS[name](ratios):.3f}"
    wins, ties = (int((pairs["standing"] == standing).sum()) for standing in ("ahead", "tie"))
    tied = f" (+{ties} tie{'s' * (ties > 1)})" if ties else ""
    return f"{wins} of {len(pairs)}{tied}; {min(ratios):.3f}, {median(ratios):.3f}, {max(ratios):.3f}"


def _cell(table: Published, there: str, here: Sequence[str]) -> str:
    """'15.6 / 11.4'; there: empty where the document has no such column"""
    scaled = there and table.unit == "ms" and not there.endswith("x")
    shown = f"{Decimal(there).scaleb(3):f}" if scaled else there
    return " / ".join(filter(None, [shown, ", ".join(here)]))


def _title(table: Published, devices: Sequence[str]) -> str:
    unit = "us" if table.unit == "ms" else table.unit
    cell = f", {table.cell}" if table.cell else ""
    here = " or ".join(device.removeprefix("NVIDIA ") for device in devices)
    return f"{table.source.name}: {unit}{cell}, {'there / ' if table.columns else ''}here on an {here}, cold"


def _foot(table: Published, columns: Mapping[str, Sequence[str]], marked: bool) -> str:
    there = f"There: {table.setup or table.source.setup}. " if table.columns else ""
    named = "; ".join(f"{column}: {', '.join(f'`{each}`' for each in each_of)}" for column, each_of in columns.items())
    more = [TIES] * table.unit.startswith(SPREAD) + [NOT_SEARCHED] * marked
    return ". ".join([f"{there}Here: {named}", *more]) + "."
