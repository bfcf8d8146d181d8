"""Rows as one pandas.DataFrame, a line per row and timing, to group and pivot."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from triton_vs_tilus.bench.rows.queries import by_problem, noise
from triton_vs_tilus.bench.rows.row import TIMINGS, Row, TimingName
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.protocol import Protocol

# Columns of a row, and where it has them.
OF_ROW = {
    "workload": "workload",
    "problem": "problem.name",
    **{name: f"problem.{name}" for name in ("op", "dtype", "m", "n", "k", "flops", "least_bytes")},
    **{name: name for name in ("contender", "language", "protocol", "variant", "status", "message")},
    **{name: name for name in ("config", "config_source", "not_searched", "borrowed")},
    **{name: name for name in ("is_baseline", "is_control", "contends", "measurement")},
    "error": "accuracy.times_torch",
    **{name: name for name in ("bitwise_equal", "deterministic", "launches", "workspace_bytes", "time")},
}
OF_TIMING = ("median_us", "q1_us", "q3_us", "speedup", "speedup_low", "speedup_high", "times_floor", "verdict")
AGAINST = ("against", "against_low", "against_high")
FIGURES = (*OF_TIMING, "net_us", "noise", "least_lead", *AGAINST)
_of_row, _of_timing = attrgetter(*OF_ROW.values()), attrgetter(*OF_TIMING)


def frame(rows: Iterable[Row], timing: TimingName | None = None) -> pd.DataFrame:
    """One line a row and timing, or one of a row that was not timed; with `timing` one line a row, of that timing.

    Of two rows that measure the same the last counts. The lines stand in the order of queries.by_problem. Columns:

    workload, contender, variant, message, time    text
    problem           ordered category of names, in the order of the lines
    op, dtype         text
    m, n, k           int64
    flops             int64, of the problem
    least_bytes       int64, bytes, of the problem
    language          ordered category, as in common.kernel, others after them
    protocol          ordered category, as in common.protocol, others after them
    status            text
    config            mapping or None
    config_source     text or None
    not_searched      bool: the config is not from a search of the kernel as it is, for this problem, within its time
    borrowed          bool: the config is from a search for another problem, or from none
    is_baseline       bool
    is_control        bool
    contends          bool: a rival of the others, as of Row.contends
    measurement       int64: equal for rows that were timed together
    error             float64: times torch's own error; NaN where not checked
    bitwise_equal     bool or None
    deterministic     bool
    launches          Int64, missing where unknown
    workspace_bytes   Int64, bytes, missing where unknown
    timing            ordered category as TIMINGS; missing where the row was not timed, as are all that follow
    median_us, q1_us, q3_us                        float64, microseconds
    speedup, speedup_low, speedup_high             float64, times the baseline, with its 95 % interval
    verdict           text: baseline, faster, slower or tie
    times_floor       float64, the median as a multiple of reading the least bytes; missing for host
    net_us            float64, microseconds, the median less that of an empty launch of the same run; missing for host
    noise             float64, |1 - ratio| of the baseline against itself
    least_lead        float64, the share that its lead over another has to exceed, by queries.noise
    against, against_low, against_high             float64, times as fast as the same kernel in the other language,
                      paired over rounds, with its 95 % interval; missing where that was not recorded
    tera_per_s        float64, 10^12 operations a second
    gb_per_s          float64, 10^9 least bytes a second
    """
    lines = []
    for row in (row for of_problem in by_problem(rows).values() for row in of_problem):
        names = [name for name in row.timing if timing in (None, name)]
        figures = [_figures(row, name) for name in names] or [(None,) * (1 + len(FIGURES))]
        lines += [(*_of_row(row), *of_timing) for of_timing in figures]
    made = pd.DataFrame(lines, columns=[*OF_ROW, "timing", *FIGURES])
    made["problem"] = _category(made.problem)
    made["language"] = _category(made.language, [language.value for language in Language])
    made["protocol"] = _category(made.protocol, [protocol.value for protocol in Protocol])
    made["timing"] = pd.Categorical(made.timing, TIMINGS, ordered=True)
    made["measurement"] = pd.factorize(made.measurement)[0]
    made = made.astype({name: "float64" for name in ("error", *FIGURES) if name != "verdict"})
    made = made.astype({"launches": "Int64", "workspace_bytes": "Int64"})
    made["tera_per_s"] = made.flops / made.median_us / 1e6
    made["gb_per_s"] = made.least_bytes / made.median_us / 1e3
    return made


def _figures(row: Row, name: TimingName) -> tuple[Any, ...]:
    """The name of a timing, and its FIGURES."""
    record = row.timing[name]
    net_us = record.median_us - row.floor[name].launch_us if name in row.floor else None
    other = row.against.get(name)
    against = (None, None, None) if other is None else (other.ratio, other.low, other.high)
    return name, *_of_timing(record), net_us, row.noise.get(name), noise(row, name), *against


def _category(names: pd.Series, first: Sequence[str] = ()) -> pd.Categorical:
    """Ordered: those of `first` that occur, then the others in the order in which they occur."""
    found = list(dict.fromkeys(names))
    others = [name for name in found if name not in first]
    return pd.Categorical(names, [*(name for name in first if name in found), *others], ordered=True)


def geometric_mean(values: pd.Series) -> float:
    """NaN of none."""
    return float(np.exp(np.log(values).mean()))
