"""The documents' own figures beside rows of the same problems."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase

import pandas as pd

from triton_vs_tilus.bench.rows.queries import contending
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.bench.show.claims.evidence import Untested, compared, evidence, fastest
from triton_vs_tilus.bench.show.claims.figures import PUBLISHED, Published
from triton_vs_tilus.bench.show.claims.rules import STATISTICS
from triton_vs_tilus.bench.show.tables import Table

NOTHING = "-"


def beside(name: str, columns: Mapping[str, Sequence[str]], rows: Sequence[Row]) -> Table:
    """A document's table, and in each cell after a stroke what the rows have, of the contenders that stand for it.

    columns: by the name of a column the patterns of these, one for each figure of a cell; columns of the document that
    are not among them stand alone, others are of the rows alone. Of contenders that one pattern names the fastest, of
    several measurements the last. Milliseconds are shown as microseconds.

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
            if any(value is not None for values in here.values() for value in values):
                where = [device.removeprefix("NVIDIA ")] * (len(devices) > 1)
                told = [_cell(table, there.get(column, ""), here[column]) for column in header]
                lines.append([", ".join([_label(problem), *where]), *told])
    if not lines:
        raise ValueError(f"published: {name}: the rows have none of its problems")
    return Table(_title(table, list(devices)), ["problem", *header], lines, foot=_foot(table, columns))


def _label(problem: str) -> str:
    return f"all {problem[1:].removeprefix('-')}".rstrip() if problem.startswith("*") else problem


def _recorded(table: Published, rows: pd.DataFrame, pattern: str) -> float | None:
    """In the unit in which the table is shown; None where the rows have no figure."""
    statistic, over, reference = table.unit.partition(" over ")
    try:
        if over:
            return STATISTICS[statistic](compared(rows, pattern, reference)["ratio"].tolist())
        last = fastest(rows, pattern).iloc[-1]
    except Untested:
        return None
    us = float(last["median_us"])
    return us if table.unit == "ms" else 2 * last["m"] * last["n"] * last["k"] / us / 1e6


def _cell(table: Published, there: str, here: Sequence[float | None]) -> str:
    """'15.6 / 11.4'; there: empty where the document has no such column"""
    form = ".1f" if table.unit == "ms" else ".2f" if table.unit == "TFLOPS" else ".3f"
    recorded = ", ".join(NOTHING if value is None else format(value, form) for value in here)
    shown = f"{Decimal(there).scaleb(3):f}" if there and table.unit == "ms" else there
    return " / ".join(filter(None, [shown, recorded]))


def _title(table: Published, devices: Sequence[str]) -> str:
    unit = "us" if table.unit == "ms" else table.unit
    cell = f", {table.cell}" if table.cell else ""
    here = " or ".join(device.removeprefix("NVIDIA ") for device in devices)
    return f"{table.source.name}: {unit}{cell}, there / here on an {here}, cold"


def _foot(table: Published, columns: Mapping[str, Sequence[str]]) -> str:
    named = "; ".join(f"{column}: {', '.join(f'`{each}`' for each in each_of)}" for column, each_of in columns.items())
    return f"There: {table.source.setup}. Here: {named}."
