"""Plots from rows only, by matplotlib: colour tells the language, marker the protocol, everywhere the same."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, pairwise
from math import ceil, log2, nan
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, NullLocator

from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows.frame import frame
from triton_vs_tilus.bench.rows.queries import by_problem, contending, leading_timing, passed, timed_together
from triton_vs_tilus.bench.rows.row import ProblemRecord, Row, TimingName
from triton_vs_tilus.bench.show import matrix
from triton_vs_tilus.bench.show.tables import UNSEARCHED, baseline_name, kind_of, naming, source_of
from triton_vs_tilus.common.kernel import LANGUAGES
from triton_vs_tilus.common.protocol import Protocol

# Okabe and Ito's, which the colour-blind tell apart.
COLOURS = {
    "triton": "#0072B2",
    "tilus": "#D55E00",
    "torch": "#000000",
    "cublaslt": "#7F7F00",
    "helion": "#CC79A7",
    "flashinfer": "#E69F00",
    "cute_dsl": "#8C510A",
    "humming": "#80499C",
    "tlx": "#56B4E9",
    "gluon": "#F0E442",
    "candidate": "#009E73",
    "published_triton": "#6A9FC4",
    "published_tilus": "#E8A27C",
}
OTHER_COLOUR = "#999999"
MARKERS = {
    "library": "o",
    "data_parallel": "s",
    "sliced_k": "D",
    "parallel": "^",
    "parallel+pdl": "v",
    "serial": ">",
    "atomic": "*",
    "last_arriver": "P",
    "cluster": "h",
    "stream_k": "X",
    "unknown": "<",
}
# Of the variants of one language and protocol, in turn; only torch has ten that are libraries. A point without a line
# is distinguished by its filling; an empty one has a meaning of its own.
DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    *("-", "--", ":", "-."),
    *((0, dashes) for dashes in ((8, 2), (8, 2, 2, 2, 2, 2), (4, 4), (1, 4), (8, 2, 1, 2, 1, 2), (2, 1))),
)
FILLINGS = ("full", "left", "bottom", "right", "top")
SIZES = re.compile(r"\d+(x\d+)+")  # of a problem's name
UNFUSED = "_unfused"
# What the decompose-K study's plots show, by the contenders that stand for it here, each with its dashes: three curves
# of torch, two of a kernel of its own; and one launch, which is ours.
STUDYS_OWN = "published_triton/decompose_k"
STUDYS_CURVES = {
    "torch.mm": ("torch/mm", "-"),
    "torch.compile, max-autotune-no-cudagraphs": ("torch/compile.max_autotune_no_cudagraphs", "-."),
    "custom op": ("torch/custom_op.*", ":"),
}
ONE_LAUNCH = {"ours, one launch": ("triton/atomic", "-")}
# Likewise, the two curves of the W4A16 paper's plots.
PAPERS_OWN = "published_triton/w4a16"
PAPERS_CURVES = {
    "SplitK, as published": (f"{PAPERS_OWN}.splitk*", "-"),
    "data parallel, as published": (f"{PAPERS_OWN}.data_parallel", ":"),
}
LABEL_GAP = 0.047  # of the height of the axes, between names one above the other
LABEL_INDENT = 0.07  # of the width of the axes, from the end of a line to its name
COLUMN_WIDTH = 0.3  # of the width of the axes, between the first and the last end whose names stand in a column
TICK_GAP = 0.09  # of the width of the axes, between the middles of numbers below it
MOST_ABREAST = 11  # markers that the width of a figure explains
TICK_LETTERS = 85  # in a row below a figure's axes
SEQUENCE_GAP = 1.5  # from the last place of one sequence to the first of the next, where within one they are 1 apart
WIDE = 8.0  # a scale that goes over more than this factor is logarithmic
SLOWEST_SHOWN = 0.4  # times the baseline
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 6.5,
    "errorbar.capsize": 0,
    "svg.fonttype": "none",
    "svg.hashsalt": "triton-vs-tilus",  # the same rows, the same file
}


HOLLOW: dict[str, Any] = {"linestyle": "", "fillstyle": "full", "markerfacecolor": "white", "markeredgewidth": 0.9}
EMPTY = Line2D([], [], color="#666666", marker="o", **HOLLOW, label=UNSEARCHED)


class _PlainLogFormatter(LogFormatter):
    """Without exponents."""

    def __call__(self, value: float, place: int | None = None) -> str:
        return f"{value:g}" if super().__call__(value, place) else ""


@dataclass(frozen=True)
class Series:
    """What is drawn of one contender, or of one cell; protocol is empty where it differs along the line.

    points: (value, low, high) by problem. hollow: the problems whose config was not searched for them.
    """

    label: str
    language: str
    protocol: str
    points: Mapping[str, tuple[float, float, float]]
    dashes: str | tuple[int, tuple[int, ...]] = "-"
    filling: str = "full"
    hollow: frozenset[str] = frozenset()

    @property
    def colour(self) -> str:
        return COLOURS.get(self.language, OTHER_COLOUR)

    @property
    def marker(self) -> str:
        return MARKERS.get(self.protocol, MARKERS["unknown"]) if self.protocol else "o"

    @property
    def style(self) -> dict[str, Any]:
        """Of its line, on the axes and in a legend."""
        return {
            "color": self.colour,
            "linestyle": self.dashes,
            "marker": self.marker,
            "fillstyle": self.filling,
            "markerfacecoloralt": "white",
            "markeredgecolor": "white" if self.filling == "full" else self.colour,
            "markeredgewidth": 0.4 if self.filling == "full" else 0.8,
        }


@dataclass(frozen=True)
class Panel:
    """Problems along one axis. places: where each stands, by name; ticks: what is written there; log: of the axis;
    adjoining: whether lines join only those that stand one apart, as where places are no quantity."""

    title: str
    axis: str
    places: Mapping[str, float]
    ticks: Mapping[float, str]
    log: bool = False
    adjoining: bool = False


def kinds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of what may share a plot, by a name for its file: one workload, dtype, layout and epilogue; in the order
    of `by_problem`, of two that measure the same thing the one made last."""
    grouped: dict[str, list[Row]] = {}
    for row in chain.from_iterable(by_problem(sorted(rows, key=lambda row: row.time)).values()):
        parts, known = row.problem.name.split("-"), row.workload.split("-")
        kind = [part for part in parts if part not in known and not SIZES.fullmatch(part)]
        grouped.setdefault("-".join([row.workload, *kind]), []).append(row)
    return grouped


def write(rows: Sequence[Row], folder: str | Path) -> list[Path]:
    """Every plot that the rows have something for, as SVG; returns the files. Raises ValueError where they have
    something for none."""
    paths = []
    for kind, of_kind in kinds(rows).items():
        for name in PLOTS:
            if (path := save(name, of_kind, Path(folder) / f"{kind}-{name}.svg")) is not None:
                paths.append(path)
    if not paths:
        raise ValueError("plots need rows that were timed; there are none")
    return paths


def save(name: str, rows: Sequence[Row], path: Path) -> Path | None:
    """One of PLOTS, of rows of one kind, as the suffix says; None, where the rows have nothing for it."""
    with matplotlib.rc_context(STYLE):
        figure = PLOTS[name](rows)
        if figure is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Description": stamp(rows), "Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=110, bbox_inches="tight", facecolor="white", metadata=metadata)
    return path


def stamp(rows: Sequence[Row]) -> str:
    """Tells which rows an SVG was drawn from."""
    content = json.dumps([row.to_json() for row in rows], sort_keys=True)
    return f"rows {hashlib.sha256(content.encode()).hexdigest()[:16]}"


def stamped(path: Path) -> str | None:
    """The stamp of an SVG written here; None where there is none."""
    found = re.search(r"rows [0-9a-f]{16}", path.read_text()) if path.exists() else None
    return found and found.group()


def latency(rows: Sequence[Row]) -> Figure | None:
    """Every contender's time; a panel per size of C where that differs. The bar is from the first to the third
    quartile."""
    if (timing := leading_timing(rows)) is None:
        return None
    comparable, what = _timed_together(rows, timing)
    return _figure(rows, _contenders(comparable, timing, _times), _panels(rows), what)


def best(rows: Sequence[Row]) -> Figure | None:
    """Four lines: the baseline, the fastest kernel of each language on each problem, and the time of reading the least
    bytes."""
    if (timing := leading_timing(rows)) is None:
        return None
    comparable, what = _timed_together(contending(rows), timing)
    lines = frame(comparable, timing).sort_values("median_us", kind="stable")
    first = lines[lines.is_baseline]
    drawn = [Series(baseline_name(rows), "torch", "", _points(first, _times)), *_best_of_each(lines)]
    drawn.append(Series("floor", "floor", "", _points(first, _floors), dashes="--"))
    return _figure(rows, drawn, _panels(rows), what)


def published(rows: Sequence[Row]) -> Figure | None:
    """The five curves of the decompose-K study's plots of its optimized kernel, our kernel of one launch, and dashed
    the fastest kernel of each language here; a panel per size of C. Of contenders that one curve is of the fastest on
    each problem."""
    return _studied(rows, "optimized")


def original(rows: Sequence[Row]) -> Figure | None:
    """As `published`, of the study's first kernel."""
    return _studied(rows, "first")


def smallest(rows: Sequence[Row]) -> Figure | None:
    """As `published`, only the smallest of several M = N."""
    sizes = sorted({row.problem.m for row in rows})
    if len(sizes) < 2 or any(row.problem.m != row.problem.n for row in rows):
        return None
    return published([row for row in rows if row.problem.m == sizes[0]])


def _studied(rows: Sequence[Row], variant: str) -> Figure | None:
    own = {
        f"{variant}, as published": (f"{STUDYS_OWN}.{variant}", "-"),
        f"{variant}, as published, ReLU apart": (f"{STUDYS_OWN}.{variant}{UNFUSED}", ":"),
    }
    if (timing := leading_timing(rows)) is None:
        return None
    comparable, what = _timed_together(contending(rows), timing)
    lines = frame(comparable, timing).sort_values("median_us", kind="stable")
    if f"{STUDYS_OWN}.{variant}" not in set(lines.contender):
        return None
    drawn = _curves(lines, STUDYS_CURVES | own | ONE_LAUNCH, _times)
    return _figure(rows, [*drawn, *_best_of_each(lines, "--")], _panels(rows), what)


def throughput(rows: Sequence[Row]) -> Figure | None:
    """The two curves of the W4A16 paper's plots, SplitK by its fastest split, and dashed the fastest kernel of each
    language here, in TFLOPS over N = K; a panel each M."""
    if (timing := leading_timing(rows)) is None:
        return None
    comparable, what = _timed_together(contending(rows), timing, "TFLOPS")
    lines = frame(comparable, timing).sort_values("median_us", kind="stable")
    drawn = _curves(lines, PAPERS_CURVES, _tflops)
    if len(drawn) < len(PAPERS_CURVES):
        return None
    return _figure(rows, [*drawn, *_best_of_each(lines, "--", _tflops)], _panels(rows), what)


def splits(rows: Sequence[Row]) -> Figure | None:
    """As the W4A16 paper plots its split factors: its SplitK kernel in TFLOPS over N = K, a curve each; a panel each
    M."""
    if (timing := leading_timing(rows)) is None:
        return None
    own = [row for row in rows if fnmatchcase(row.contender, f"{PAPERS_OWN}.splitk@s*")]
    comparable, what = _timed_together(own, timing, "TFLOPS")
    factors = {int(series.label.partition("@s")[2]): series for series in _contenders(comparable, timing, _tflops)}
    drawn = [
        replace(factors[factor], label=f"split factor {factor}", dashes=dashes, filling=filling)
        for factor, dashes, filling in zip(sorted(factors), DASHES, FILLINGS, strict=False)
    ]
    return _figure(rows, drawn, _panels(rows), what)


def grid(rows: Sequence[Row]) -> Figure | None:
    """All shapes side by side: the baseline, and the fastest contender of each language and protocol."""
    if (timing := leading_timing(rows)) is None:
        return None
    if len(by_problem(rows)) < 2:
        return None
    comparable, what = _timed_together(rows, timing)
    drawn = [*_contenders(_baseline(comparable), timing, _times), *_cells(comparable, timing, _times)]
    return _figure(rows, drawn, [_side_by_side(rows)], what)


def speedup(rows: Sequence[Row]) -> Figure | None:
    """Times the baseline of the fastest contender of each language and protocol, with its 95% interval. What is slower
    by far is left out, as it would press the others into a line."""
    if (timing := leading_timing(rows)) is None:
        return None
    drawn = _cells(rows, timing, _speedups)
    shown = [
        replace(series, points={name: point for name, point in series.points.items() if point[0] >= SLOWEST_SHOWN})
        for series in drawn
    ]
    left_out = "" if shown == drawn else f"; from {SLOWEST_SHOWN} on"
    what = f"times {baseline_name(rows)}\n({timing}, 95% interval{left_out})"
    return _figure(rows, shown, _panels(rows), what, level=1)


def floor(rows: Sequence[Row]) -> Figure | None:
    """How much of a contender's time reading the least bytes would take, in percent. The bar: its quartiles."""
    if (timing := leading_timing(rows)) is None:
        return None

    def share(figures: Any) -> tuple[float, float, float] | None:
        if pd.isna(figures.times_floor):
            return None
        least = 100 * figures.median_us / figures.times_floor
        return least / figures.median_us, least / figures.q3_us, least / figures.q1_us

    drawn = [*_contenders(_baseline(rows), timing, share), *_cells(rows, timing, share)]
    return _figure(rows, drawn, _panels(rows), f"share of the floor, %\n({timing}, median and quartiles)", level=100)


def fused(rows: Sequence[Row]) -> Figure | None:
    """How many times faster a kernel is with the epilogue fused than with the epilogue as a launch of its own and the
    same config. The bar spans the ratios of the ends of both 95% intervals."""
    if (timing := leading_timing(rows)) is None:
        return None
    ran = {(row.contender, row.problem.name): row.config for row in rows}
    times = {series.label: series for series in _contenders(rows, timing, _speedups)}
    drawn = []
    for label, alone in times.items():
        if label.endswith(UNFUSED) and (whole := times.get(label.removesuffix(UNFUSED))):
            points = {
                name: (whole.points[name][0] / apart, whole.points[name][1] / high, whole.points[name][2] / low)
                for name, (apart, low, high) in alone.points.items()
                if name in whole.points and ran[whole.label, name] == ran[label, name]
            }
            drawn.append(replace(whole, points=points))
    return _figure(rows, drawn, _panels(rows), f"times as fast as unfused\n({timing}, 95% intervals)", level=1)


def pareto(rows: Sequence[Row]) -> Figure | None:
    """Every contender's time, as a multiple of the baseline's (geometric mean over problems), against its error, as a
    multiple of the baseline's (the largest over problems). The bars go from the least to the most over problems, the
    line is the front: what no other beats in both. Contenders without a figure on every problem are hollow, and not
    on the front, as theirs are figures of other problems."""
    if (timing := leading_timing(rows)) is None:
        return None
    count = len(by_problem(rows))
    errors = _errors(rows, timing)
    drawn = [
        replace(series, points=points)
        for series in _contenders(rows, timing, lambda line: (1 / line.speedup,) * 3)
        if (points := {name: point for name, point in series.points.items() if name in errors[series.label]})
    ]
    if not drawn:
        return None
    figure, (axes,) = _canvas(rows, 1, names=len(drawn))
    ends = []
    for series in drawn:
        ratios = [ratio for ratio, *_ in series.points.values()]
        found = [errors[series.label][name] for name in series.points]
        error, least = max(found), min(found)
        typical = min(max(geometric_mean(ratios), min(ratios)), max(ratios))  # rounding may put it outside
        axes.errorbar(
            error,
            typical,
            xerr=[[error - least], [0.0]],
            yerr=[[typical - min(ratios)], [max(ratios) - typical]],
            color=series.colour,
            elinewidth=0.5,
            marker=series.marker,
            markersize=8,
            markerfacecolor=series.colour if len(ratios) == count else "white",
            zorder=3,
        )
        ends.append((series, error, typical))
    _set_scale(axes.xaxis, [error for series in drawn for error in errors[series.label].values()])
    _set_scale(axes.yaxis, [ratio for series in drawn for ratio, *_ in series.points.values()])
    _label(axes, ends)
    keys = []
    if front := _front([(error, typical) for series, error, typical in ends if len(series.points) == count]):
        (_, right), (_, top) = axes.get_xlim(), axes.get_ylim()
        corners = [(front[0][0], top), *front, (right, front[-1][1])]
        style: dict[str, Any] = {"color": "#999999", "linewidth": 1}
        axes.step(*zip(*corners, strict=True), where="post", zorder=1, scalex=False, scaley=False, **style)
        keys.append(Line2D([], [], label="front", **style))
    if any(len(series.points) < count for series in drawn):
        empty: dict[str, Any] = {"marker": "o", "markerfacecolor": "white", "linestyle": ""}
        keys.append(Line2D([], [], color="#666666", label="not on every problem", **empty))
    _explain_markers(figure, drawn, keys)
    axes.set_title(naming(rows)[0] or kind_of(rows[0].problem), loc="left", fontsize=9.5)
    axes.set_xlabel(f"largest error, times {baseline_name(rows)}'s")
    axes.set_ylabel(f"time, times {baseline_name(rows)}'s\n({timing}, geometric mean)")
    return figure


# By the name that files and markers of pages use.
PLOTS: dict[str, Callable[[Sequence[Row]], Figure | None]] = {
    plot.__name__: plot
    for plot in (best, latency, grid, speedup, floor, fused, pareto, published, original, smallest, throughput, splits)
}


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other is at most as large as in both, from left to right."""
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


Values = Callable[[Any], tuple[float, float, float] | None]  # of a line of rows.frame, as a tuple


def _times(line: Any) -> tuple[float, float, float]:
    return line.median_us, line.q1_us, line.q3_us


def _tflops(line: Any) -> tuple[float, float, float]:
    median, low, high = (line.flops / us / 1e6 for us in (line.median_us, line.q3_us, line.q1_us))
    return median, low, high


def _floors(line: Any) -> tuple[float, float, float] | None:
    if pd.isna(line.times_floor):
        return None
    least = line.median_us / line.times_floor
    return least, least, least


def _speedups(line: Any) -> tuple[float, float, float]:
    return line.speedup, line.speedup_low, line.speedup_high


def _timed_together(rows: Sequence[Row], timing: TimingName, unit: str = "us") -> tuple[list[Row], str]:
    """Of each problem the rows of its last measurement, and what an axis of their times, in this unit, is to say."""
    kept = timed_together(rows, timing)
    what = f"{unit} ({timing}, median and quartiles)"
    return kept, what if len(kept) == len(passed(rows, timing)) else f"{what},\nof each problem's last measurement"


def _errors(rows: Sequence[Row], timing: TimingName) -> dict[str, dict[str, float]]:
    """By contender and problem, the error as a multiple of that of the baseline's row.

    The baseline multiplies in the same dtypes. A row's own measure, torch's answer, is for an fp32 output that of
    inputs made fp32.
    """
    lines = frame(passed(rows, timing), timing)
    own = lines[lines.contender.isin(BASELINES)].set_index("problem").error
    own = own[(own > 0) & ~own.index.duplicated(keep="last")]
    lines = lines.assign(error=lines.error / lines.problem.astype(str).map(own.rename(str)))
    groups = lines.groupby("contender", sort=False)
    return {str(name): group.dropna(subset="error").set_index("problem").error.to_dict() for name, group in groups}


def _curves(lines: pd.DataFrame, curves: Mapping[str, tuple[str, str]], values: Values) -> list[Series]:
    """A series a curve, (a pattern of contenders, dashes) by its label, of the fastest on each problem; none where
    nobody was timed. lines: of rows.frame, the fastest first."""
    drawn = []
    for label, (pattern, dashes) in curves.items():
        of_curve = lines[[fnmatchcase(name, pattern) for name in lines.contender]].drop_duplicates("problem")
        if not of_curve.empty:
            language, protocol = str(of_curve.language.iloc[0]), str(of_curve.protocol.iloc[0])
            points, hollow = _points(of_curve, values), _hollow(of_curve)
            drawn.append(Series(label, language, protocol, points, dashes, hollow=hollow))
    return drawn


def _best_of_each(lines: pd.DataFrame, dashes: str = "-", values: Values = _times) -> list[Series]:
    """The fastest kernel of each language on each problem; lines: of rows.frame, the fastest first."""
    drawn = []
    for language in LANGUAGES:
        fastest = lines[lines.language == language].drop_duplicates("problem")
        points, hollow = _points(fastest, values), _hollow(fastest)
        drawn.append(Series(f"best {language.value}", language, "", points, dashes, hollow=hollow))
    return drawn


def _baseline(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.contender in BASELINES]


def _contenders(rows: Sequence[Row], timing: TimingName, values: Values) -> list[Series]:
    """A series a contender that was timed at all."""
    made, seen = [], Counter[tuple[str, str]]()
    for name, lines in frame(passed(rows, timing), timing).groupby("contender", sort=False):
        language, protocol = lines.language.iloc[0], lines.protocol.iloc[0]
        turn = seen[language, protocol]
        seen[language, protocol] += 1
        looks: dict[str, Any] = {"dashes": DASHES[turn % len(DASHES)], "filling": FILLINGS[turn % len(FILLINGS)]}
        made.append(Series(str(name), language, protocol, _points(lines, values), **looks, hollow=_hollow(lines)))
    return made


def _cells(rows: Sequence[Row], timing: TimingName, values: Values) -> list[Series]:
    """A series a language and protocol, of its fastest contender on each problem."""
    best = matrix.bests(matrix.lines_of(rows, timing))
    return [
        Series(f"{language} {protocol}", str(language), str(protocol), _points(lines, values), hollow=_hollow(lines))
        for (protocol, language), lines in best.groupby(matrix.CELL, observed=True)
    ]


def _points(lines: pd.DataFrame, values: Values) -> dict[str, tuple[float, float, float]]:
    found = ((str(line.problem), values(line)) for line in lines.itertuples())
    return {problem: value for problem, value in found if value is not None}


def _hollow(lines: pd.DataFrame) -> frozenset[str]:
    return frozenset(lines.problem[lines.not_searched].astype(str))


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """By T where only M differs; else by K, a panel for each M = N of several K, and by M = N those left that have one
    K; else a panel for each M that has several problems, by N = K if they are squares; else all side by side."""
    problems = {row.problem.name: row.problem for row in rows}
    title, what, _ = naming(rows)
    if what == "T":
        return [_along(problems, title, "T", lambda problem: problem.m)]
    if all(problem.m == problem.n for problem in problems.values()):
        panels, left = [], dict(problems)
        for fixed, axis, free in (("m", "K", "k"), ("k", "M = N", "m")):
            for size in sorted({getattr(problem, fixed) for problem in left.values()}):
                among = {name: problem for name, problem in problems.items() if getattr(problem, fixed) == size}
                if len(among) > 1:
                    name = f"M = N = {size}" if fixed == "m" else f"K = {size}"
                    name += f", {kind_of(rows[0].problem)}"
                    panels.append(_along(among, name, axis, attrgetter(free)))
                    left = {name: problem for name, problem in left.items() if name not in among}
        if not left:
            return panels
    by_m: dict[int, list[Row]] = {}
    for row in rows:
        by_m.setdefault(row.problem.m, []).append(row)
    if len(by_m) > 1 and all(len(by_problem(of_m)) > 2 for of_m in by_m.values()):
        return [_of_one_m(m, of_m) for m, of_m in sorted(by_m.items())]
    return [_side_by_side(rows)]


def _of_one_m(m: int, rows: Sequence[Row]) -> Panel:
    problems = {row.problem.name: row.problem for row in rows}
    title = f"M = {m}, {kind_of(rows[0].problem)}"
    if all(problem.n == problem.k for problem in problems.values()):
        return _along(problems, title, "N = K", lambda problem: problem.n)
    return replace(_side_by_side(rows), title=title)


def _along(
    problems: Mapping[str, ProblemRecord], title: str, axis: str, place: Callable[[ProblemRecord], int]
) -> Panel:
    places = {name: place(problem) for name, problem in problems.items()}
    log = max(places.values()) >= WIDE * min(places.values())
    scale = log2 if log else float
    kept = sorted(set(places.values()))
    apart = TICK_GAP * (scale(kept[-1]) - scale(kept[0]))
    for at in kept[-2::-1]:  # from the right, as it is there that numbers are wide
        if scale(kept[kept.index(at) + 1]) - scale(at) < apart:
            kept.remove(at)
    return Panel(title, axis, places, {at: f"{at}" for at in kept}, log)


def _side_by_side(rows: Sequence[Row]) -> Panel:
    """One after the other, with a gap where no sequence goes on."""
    problems = {name: group[0].problem for name, group in by_problem(rows).items()}
    places = dict.fromkeys(problems, 0.0)
    for before, name in pairwise(problems):
        places[name] = places[before] + (1 if _goes_on(problems[before], problems[name]) else SEQUENCE_GAP)
    ticks = {at: match[0] if (match := SIZES.search(name)) else name for name, at in places.items()}
    return Panel(naming(rows)[0] or kind_of(rows[0].problem), "M x N x K", places, ticks, adjoining=True)


def _goes_on(before: ProblemRecord, after: ProblemRecord) -> bool:
    """Whether no size falls, and where M = N only that changes, or only K."""
    squares = all(problem.m == problem.n != problem.k for problem in (before, after))
    falls = any(now < was for now, was in zip(after.shape, before.shape, strict=True))
    return not falls and (not squares or before.m == after.m or before.k == after.k)


def _canvas(rows: Sequence[Row], panels: int, names: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes, high enough for the names, which says what its rows are and where they come from."""
    columns = 1 if panels == 1 else 2
    lines = ceil(panels / columns)
    of_names = 1.6 + 0.2 * names
    size = (9, max(4.8, of_names)) if panels == 1 else (11, max((3 + 0.06 * names) * lines, of_names + 1.5))
    figure = Figure(figsize=size, layout="constrained")
    made = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten().tolist()
    for axes in made[panels:]:
        axes.set_visible(False)
    said = ", ".join(dict.fromkeys(row.workload for row in rows))
    figure.supxlabel(f"{said}. {source_of(rows)}", fontsize=6.5, color="#666666", x=0.01, ha="left")
    return figure, made[:panels]


def _place(protocol: str) -> int:
    """Where it stands among those of common.protocol; after them, where it is not among them."""
    names = [known.value for known in Protocol]
    return names.index(protocol) if protocol in names else len(names)


def _explain_markers(figure: Figure, drawn: Sequence[Series], more: Sequence[Line2D] = ()) -> None:
    markers = {series.protocol: series.marker for series in drawn}
    handles = [
        Line2D([], [], color="#666666", marker=markers[protocol], linestyle="", label=protocol)
        for protocol in sorted(markers, key=_place)
        if protocol
    ]
    handles += more
    if not handles:
        return
    figure.legend(  # type: ignore[call-overload]  # its stub lacks "outside ..."
        handles=handles,
        loc="outside upper left",
        ncols=min(len(handles), MOST_ABREAST),
        frameon=False,
        fontsize=7.5,
        handletextpad=0.1,
    )


def _figure(
    rows: Sequence[Row], drawn: Sequence[Series], panels: Sequence[Panel], what: str, level: float | None = None
) -> Figure | None:
    """Lines over panels; level: where a line is drawn that they are held against. None where there is nothing to draw.

    Names stand beside the ends of the lines of one panel; of several in a legend, in the order in which lines end in
    the last. What has points there but no line, whose dashes would tell it from others, has beside each of them its
    name, or a sign that the legend explains.
    """
    drawn = [series for series in drawn if series.points]
    if not drawn:
        return None
    figure, all_axes = _canvas(rows, len(panels), names=len(drawn))
    levels: dict[str, float] = {}
    signs: dict[str, str] = {}
    for axes, panel in zip(all_axes, panels, strict=True):
        if level is not None:
            axes.axhline(level, color="#888888", linewidth=1, zorder=1)
        ends = []
        for series in drawn:
            if not (runs := _runs(series, panel)):
                continue
            _draw(axes, series, runs)
            _empty(axes, series, panel)
            place, (levels[series.label], *_) = runs[-1][-1]
            if all(len(run) == 1 for run in runs):
                sign = signs.setdefault(series.label, f"#{len(signs) + 1}") if len(panels) > 1 else series.label
                ends += [(replace(series, label=sign), at, value) for ((at, (value, *_)),) in runs]
            elif len(panels) == 1:
                ends.append((series, place, levels[series.label]))
        _set_axes(axes, panel, what, drawn)
        _label(axes, ends)
    keys = [EMPTY] if any(series.hollow & series.points.keys() for series in drawn) else []
    _explain_markers(figure, drawn, keys)
    if len(panels) > 1:
        handles = [
            Line2D([], [], label=f"{series.label} {signs.get(series.label, '')}".rstrip(), **series.style)
            for series in sorted(drawn, key=lambda series: levels[series.label], reverse=True)
        ]
        figure.legend(handles=handles, loc="outside right center", frameon=False, handlelength=3.5)
    return figure


Point = tuple[float, tuple[float, float, float]]  # a place, and (value, low, high) there


def _runs(series: Series, panel: Panel) -> list[list[Point]]:
    """The points of the series on the panel, from left to right, each run of them being joined by a line."""
    runs: list[list[Point]] = []
    for place, name in sorted((place, name) for name, place in panel.places.items() if name in series.points):
        if not runs or (panel.adjoining and place > runs[-1][-1][0] + 1):
            runs.append([])
        runs[-1].append((place, series.points[name]))
    return runs


def _draw(axes: Axes, series: Series, runs: Sequence[Sequence[Point]]) -> None:
    points = [point for run in runs for point in (*run, (nan, (nan, nan, nan)))]  # which ends a line
    places, figures = zip(*points[:-1], strict=True)
    values, lows, highs = zip(*figures, strict=True)
    axes.errorbar(
        places,
        values,
        yerr=[
            [value - low for value, low in zip(values, lows, strict=True)],
            [high - value for value, high in zip(values, highs, strict=True)],
        ],
        elinewidth=0.8,
        zorder=3 if series.language == "torch" else 2,
        **series.style,
    )


def _empty(axes: Axes, series: Series, panel: Panel) -> None:
    """Makes hollow the points whose config was not searched for their problem."""
    names = sorted(series.hollow & series.points.keys() & panel.places.keys())
    if names:
        places, values = [panel.places[name] for name in names], [series.points[name][0] for name in names]
        axes.plot(places, values, zorder=4, **{**series.style, **HOLLOW, "markeredgecolor": series.colour})


def _set_axes(axes: Axes, panel: Panel, what: str, drawn: Sequence[Series]) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.set_xlabel(panel.axis)
    spec = axes.get_subplotspec()
    assert spec is not None  # every panel is one of a grid
    if spec.is_first_col():
        axes.set_ylabel(what)
    if panel.log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    room = TICK_LETTERS / spec.get_gridspec().ncols / (1 + max(panel.places.values()))
    turned = panel.adjoining and max(map(len, panel.ticks.values())) > room
    axes.set_xticks(list(panel.ticks), list(panel.ticks.values()), rotation=90 if turned else 0)
    _set_scale(axes.yaxis, [value for series in drawn for value, *_ in series.points.values()])


def _set_scale(axis: XAxis | YAxis, values: Sequence[float]) -> None:
    if 0 < WIDE * min(values) < max(values):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(_PlainLogFormatter(minor_thresholds=(2, 0.4)))


def _label(axes: Axes, ends: Sequence[tuple[Series, float, float]]) -> None:
    """Names to the right of where their lines end, level with that but for what keeps them apart; those of lines that
    end near each other stand in a column."""
    axes.autoscale_view()
    to_axes = axes.transScale + axes.transLimits
    columns: list[list[tuple[Series, float, float]]] = []
    for series, *end in sorted(ends, key=itemgetter(1)):
        place, level = to_axes.transform(end)
        if not columns or place > columns[-1][0][1] + COLUMN_WIDTH:
            columns.append([])
        columns[-1].append((series, place, level))
    for column in columns:
        beside = max(place for _, place, _ in column) + LABEL_INDENT
        placed = sorted(column, key=itemgetter(2))
        heights = _apart([level for *_, level in placed], gap=LABEL_GAP)
        for (series, place, level), height in zip(placed, heights, strict=True):
            axes.annotate(
                series.label,
                xy=(place, level),
                xytext=(beside, height),
                xycoords="axes fraction",
                textcoords="axes fraction",
                color=series.colour,
                fontsize=8,
                va="center",
                zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.3},
                arrowprops={
                    "arrowstyle": "-",
                    "color": series.colour,
                    "linewidth": 0.4,
                    "alpha": 0.6,
                    "shrinkA": 0,
                    "relpos": (0, 0.5),
                },
            )


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved as little as possible (least squares) so that neighbours are a gap apart and all lie
    from 0 to 1, half a gap within: the isotonic regression of height minus place times gap, by pooling adjacent
    violators."""
    gap = min(gap, 1 / max(1, len(heights)))
    pools: list[list[float]] = []
    for place, height in enumerate(heights):
        pools.append([height - place * gap])
        while len(pools) > 1 and mean(pools[-2]) > mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    lowest, highest = gap / 2, 1 - (len(heights) - 0.5) * gap
    level = [min(max(mean(pool), lowest), highest) for pool in pools for _ in pool]
    return [at + place * gap for place, at in enumerate(level)]
