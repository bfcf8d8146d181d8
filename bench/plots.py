"""Plots from rows alone, by matplotlib: colour tells the language, marker the protocol, everywhere the same."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from operator import itemgetter
from pathlib import Path
from statistics import geometric_mean, mean

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, NullLocator

from bench import matrix
from bench.journal import Row
from bench.ops import BASELINES
from bench.tables import baseline_name, by_problem, kind_of, leading_timing, naming, passed, source_of

# Okabe and Ito's, which the colour-blind tell apart.
COLOURS = {
    "triton": "#0072B2",
    "tilus": "#D55E00",
    "torch": "#000000",
    "helion": "#CC79A7",
    "flashinfer": "#E69F00",
    "tlx": "#56B4E9",
    "candidate": "#009E73",
}
OTHER_COLOUR = "#999999"
MARKERS = {
    "library": "o",
    "none": "s",
    "in_block": "D",
    "separate": "^",
    "separate+pdl": "v",
    "serial": ">",
    "atomic": "*",
    "last_arriver": "P",
    "cluster": "h",
    "stream_k": "X",
    "unknown": ".",
}
# Of the variants of one language and protocol, in turn; torch alone has ten that are libraries.
DASHES = (
    *("-", "--", ":", "-."),
    *((0, dashes) for dashes in ((8, 2), (8, 2, 2, 2, 2, 2), (4, 4), (1, 4), (8, 2, 1, 2, 1, 2), (2, 1))),
)
SIZES = re.compile(r"\d+(x\d+)+")  # of a problem's name
UNFUSED = "_unfused"
LABEL_GAP = 0.047  # of the height of the axes, between names one above the other
LABEL_INDENT = 0.07  # of the width of the axes, from the end of a line to its name
COLUMN_WIDTH = 0.3  # of the width of the axes, between the first and the last end whose names stand in a column
TICK_GAP = 0.09  # of the width of the axes, between the middles of numbers below it
WIDE = 8.0  # a scale that goes over more than this factor is logarithmic
SLOWEST_SHOWN = 0.4  # times the baseline
STYLE = {
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


class _PlainLogFormatter(LogFormatter):
    """Without exponents."""

    def __call__(self, value: float, place: int | None = None) -> str:
        return f"{value:g}" if super().__call__(value, place) else ""


@dataclass(frozen=True)
class Series:
    """What is drawn of one contender, or of one cell. points: (value, low, high) by problem."""

    label: str
    language: str
    protocol: str
    points: Mapping[str, tuple[float, float, float]]
    dashes: str | tuple[int, tuple[int, ...]] = "-"

    @property
    def colour(self) -> str:
        return COLOURS.get(self.language, OTHER_COLOUR)

    @property
    def marker(self) -> str:
        return MARKERS.get(self.protocol, MARKERS["unknown"])


@dataclass(frozen=True)
class Panel:
    """Problems along one axis. places: where each stands, by name; ticks: what is written there; log: of the axis."""

    title: str
    axis: str
    places: Mapping[str, float]
    ticks: Mapping[float, str]
    log: bool = False


def kinds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of what may share a plot, by a name for its file: one workload, dtype, layout and epilogue; in the order
    of `by_problem`."""
    grouped: dict[str, list[Row]] = {}
    for row in (row for of in by_problem(rows).values() for row in of):
        parts, known = row.problem["name"].split("-"), row.workload.split("-")
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
    """Every contender's time; a panel a size of C where that differs. The bar is from the first to the third
    quartile."""
    timing = leading_timing(rows)
    drawn = _contenders(rows, timing, lambda figures: (figures["median_us"], figures["q1_us"], figures["q3_us"]))
    return _figure(rows, drawn, _panels(rows), f"us ({timing}, median and quartiles)")


def grid(rows: Sequence[Row]) -> Figure | None:
    """All shapes side by side: the baseline, and the fastest contender of each language and protocol."""
    timing = leading_timing(rows)

    def times(figures: Mapping) -> tuple[float, float, float]:
        return figures["median_us"], figures["q1_us"], figures["q3_us"]

    if len(by_problem(rows)) < 2:
        return None
    drawn = [*_contenders(_baseline(rows), timing, times), *_cells(rows, timing, times)]
    return _figure(rows, drawn, [_side_by_side(rows)], f"us ({timing}, median and quartiles)")


def speedup(rows: Sequence[Row]) -> Figure | None:
    """Times the baseline of the fastest contender of each language and protocol, with its 95% interval. What is slower
    by far is left out, as it would press the others into a line."""
    timing = leading_timing(rows)
    drawn = _cells(rows, timing, lambda figures: (figures["speedup"], figures["speedup_low"], figures["speedup_high"]))
    shown = [
        replace(series, points={name: of for name, of in series.points.items() if of[0] >= SLOWEST_SHOWN})
        for series in drawn
    ]
    what = f"times {baseline_name(rows)} ({timing}, 95% interval"
    left_out = "" if shown == drawn else f"; from {SLOWEST_SHOWN} on"
    return _figure(rows, shown, _panels(rows), f"{what}{left_out})", level=1)


def floor(rows: Sequence[Row]) -> Figure | None:
    """How much of a contender's time reading the least bytes would take, in percent. The bar: its quartiles."""
    timing = leading_timing(rows)

    def share(figures: Mapping) -> tuple[float, float, float] | None:
        if not figures["times_floor"]:
            return None
        least = 100 * figures["median_us"] / figures["times_floor"]
        return tuple(least / figures[name] for name in ("median_us", "q3_us", "q1_us"))

    drawn = [*_contenders(_baseline(rows), timing, share), *_cells(rows, timing, share)]
    return _figure(rows, drawn, _panels(rows), f"share of the floor, % ({timing}, median and quartiles)", level=100)


def fused(rows: Sequence[Row]) -> Figure | None:
    """How many times faster a kernel is with the epilogue fused than with the epilogue as a launch of its own and the
    same config. The bar spans the ratios of the ends of both 95% intervals."""
    timing = leading_timing(rows)
    ran = {(row.contender, row.problem["name"]): row.config for row in rows}
    times = {
        of.label: of
        for of in _contenders(rows, timing, lambda of: (of["speedup"], of["speedup_low"], of["speedup_high"]))
    }
    drawn = []
    for label, alone in times.items():
        if label.endswith(UNFUSED) and (whole := times.get(label.removesuffix(UNFUSED))):
            points = {
                name: (whole.points[name][0] / apart, whole.points[name][1] / high, whole.points[name][2] / low)
                for name, (apart, low, high) in alone.points.items()
                if name in whole.points and ran[whole.label, name] == ran[label, name]
            }
            drawn.append(replace(whole, points=points))
    return _figure(rows, drawn, _panels(rows), f"times as fast as unfused ({timing})", level=1)


def pareto(rows: Sequence[Row]) -> Figure | None:
    """Every contender's time, as a multiple of the baseline's (geometric mean over problems), against its error, as a
    multiple of the baseline's (the largest over problems). The bars go from the least to the most over problems, the
    line joins those that no other beats in both. Contenders that did not pass on every problem are hollow."""
    timing = leading_timing(rows)
    count = len(by_problem(rows))
    placed = []
    for series in _contenders(rows, timing, lambda of: (1 / of["speedup"],) * 3):
        errors = [
            row.accuracy["times_torch"]
            for row in passed(rows, timing)
            if row.contender == series.label and row.accuracy.get("times_torch") is not None
        ]
        if errors:
            placed.append((series, max(errors), min(errors), [ratio for ratio, *_ in series.points.values()]))
    if not placed:
        return None
    figure, (axes,) = _canvas(rows, 1, names=len(placed))
    ends = []
    for series, error, least, ratios in placed:
        typical = min(max(geometric_mean(ratios), min(ratios)), max(ratios))  # rounding may put it outside
        axes.errorbar(
            error,
            typical,
            xerr=[[error - least], [0]],
            yerr=[[typical - min(ratios)], [max(ratios) - typical]],
            color=series.colour,
            elinewidth=0.5,
            marker=series.marker,
            markersize=8,
            markerfacecolor=series.colour if len(ratios) == count else "white",
            zorder=3,
        )
        ends.append((series, error, typical))
    front = _front([(error, typical) for _, error, typical in ends])
    _explain_markers(figure, [series for series, *_ in ends], "outside upper left")
    axes.set_title(naming(rows)[0] or kind_of(rows[0].problem), loc="left", fontsize=9.5)
    axes.step(*zip(*front, strict=True), where="post", color="#999999", linewidth=1, zorder=1)
    axes.set_xlabel(f"largest error, times {baseline_name(rows)}'s")
    axes.set_ylabel(f"time, times {baseline_name(rows)}'s ({timing}, geometric mean)")
    _set_scale(axes, [ratio for *_, ratios in placed for ratio in ratios])
    _label(axes, ends)
    return figure


# By the name that files and markers of pages use.
PLOTS: dict[str, Callable[[Sequence[Row]], Figure | None]] = {
    plot.__name__: plot for plot in (latency, grid, speedup, floor, fused, pareto)
}


def _front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other is at most as large as in both, from left to right."""
    kept: list[tuple[float, float]] = []
    for point in sorted(set(points)):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


Values = Callable[[Mapping], tuple[float, float, float] | None]


def _baseline(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.contender in BASELINES]


def _contenders(rows: Sequence[Row], timing: str | None, values: Values) -> list[Series]:
    """A series a contender that was timed at all."""
    made: dict[str, Series] = {}
    seen: dict[tuple[str, str], int] = {}
    for row in passed((row for of in by_problem(rows).values() for row in of), timing):
        if row.contender not in made:
            turn = seen.setdefault((row.language, row.protocol), 0)
            seen[row.language, row.protocol] += 1
            made[row.contender] = Series(row.contender, row.language, row.protocol, {}, DASHES[turn % len(DASHES)])
        if (value := values(row.timing[timing])) is not None:
            made[row.contender].points[row.problem["name"]] = value
    return list(made.values())


def _cells(rows: Sequence[Row], timing: str | None, values: Values) -> list[Series]:
    """A series a language and protocol, of its fastest contender on each problem."""
    made = []
    for cell in matrix.cells(rows, timing):
        points = {name: value for name, row in cell.bests.items() if (value := values(row.timing[timing])) is not None}
        made.append(Series(cell.name, cell.language, cell.protocol, points))
    return made


def _panels(rows: Sequence[Row]) -> list[Panel]:
    """By T where M alone differs; else by K, a panel for each M = N, and by M = N, where they have one K; else a panel
    for each M that has several problems, by N = K if they are squares; else all side by side."""
    problems = {row.problem["name"]: row.problem for row in rows}
    title, what, _ = naming(rows)
    if what == "T":
        return [_along(problems, title, "T", lambda of: of["m"])]
    if all(of.get("m") == of.get("n") and of.get("k") for of in problems.values()):
        panels, left = [], dict(problems)
        for fixed, axis, free in (("m", "K", "k"), ("k", "M = N", "m")):
            for size in sorted({of[fixed] for of in left.values()}):
                among = {name: of for name, of in problems.items() if of[fixed] == size}
                if len(among) > 2:
                    name = f"M = N = {size}" if fixed == "m" else f"K = {size}"
                    name += f", {kind_of(rows[0].problem)}"
                    panels.append(_along(among, name, axis, lambda of, free=free: of[free]))
                    left = {name: of for name, of in left.items() if name not in among}
        if not left:
            return panels
    by_m: dict[int, list[Row]] = {}
    for row in rows:
        by_m.setdefault(row.problem["m"], []).append(row)
    if len(by_m) > 1 and all(len(by_problem(of_m)) > 2 for of_m in by_m.values()):
        return [_of_one_m(m, of_m) for m, of_m in sorted(by_m.items())]
    return [_side_by_side(rows)]


def _of_one_m(m: int, rows: Sequence[Row]) -> Panel:
    problems = {row.problem["name"]: row.problem for row in rows}
    title = f"M = {m}, {kind_of(rows[0].problem)}"
    if all(of["n"] == of["k"] for of in problems.values()):
        return _along(problems, title, "N = K", lambda of: of["n"])
    return replace(_side_by_side(rows), title=title)


def _along(problems: Mapping[str, Mapping], title: str, axis: str, place: Callable[[Mapping], int]) -> Panel:
    places = {name: place(of) for name, of in problems.items()}
    log = max(places.values()) >= WIDE * min(places.values())
    scale = log2 if log else float
    kept = sorted(set(places.values()))
    apart = TICK_GAP * (scale(kept[-1]) - scale(kept[0]))
    for at in kept[-2::-1]:  # from the right, as it is there that numbers are wide
        if scale(kept[kept.index(at) + 1]) - scale(at) < apart:
            kept.remove(at)
    return Panel(title, axis, places, {at: f"{at}" for at in kept}, log)


def _side_by_side(rows: Sequence[Row]) -> Panel:
    title, _, names = naming(rows)
    ticks = {at: SIZES.search(name).group() for at, name in enumerate(names)}
    title = title or kind_of(rows[0].problem)
    return Panel(title, "M x N x K", {name: at for at, name in enumerate(names)}, ticks)


def _canvas(rows: Sequence[Row], panels: int, names: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes, high enough for the names, which says what its rows are and where they come from."""
    columns = 1 if panels == 1 else 2
    lines = ceil(panels / columns)
    size = (9, max(4.8, 1.6 + 0.2 * names)) if panels == 1 else (11, max(3.4 * lines, 1.4 + 0.22 * names))
    figure = Figure(figsize=size, layout="constrained")
    made = figure.subplots(lines, columns, squeeze=False, sharey=True).flatten().tolist()
    for axes in made[panels:]:
        axes.set_visible(False)
    said = ", ".join(dict.fromkeys(row.workload for row in rows))
    figure.supxlabel(f"{said}. {source_of(rows)}", fontsize=6.5, color="#666666", x=0.01, ha="left")
    return figure, made[:panels]


def _explain_markers(figure: Figure, drawn: Sequence[Series], where: str) -> None:
    markers = {series.protocol: series.marker for series in drawn}
    handles = [
        Line2D([], [], color="#666666", marker=markers[protocol], linestyle="", label=protocol)
        for protocol in sorted(markers, key=matrix.place_of_protocol)
    ]
    figure.legend(
        handles=handles,
        loc=where,
        ncols=len(handles) if "upper" in where else 1,
        frameon=False,
        fontsize=7.5,
        handletextpad=0.1,
    )


def _figure(
    rows: Sequence[Row], drawn: Sequence[Series], panels: Sequence[Panel], what: str, level: float | None = None
) -> Figure | None:
    """Lines over panels; level: where a line is drawn that they are held against. None where there is no line."""
    drawn = [series for series in drawn if series.points]
    if not drawn:
        return None
    figure, all_axes = _canvas(rows, len(panels), names=len(drawn))
    for axes, panel in zip(all_axes, panels, strict=True):
        if level is not None:
            axes.axhline(level, color="#888888", linewidth=1, zorder=1)
        ends = [end for series in drawn if (end := _draw(axes, series, panel))]
        _set_axes(axes, panel, what, drawn)
        if len(panels) == 1:
            _label(axes, ends)
    _explain_markers(figure, drawn, "outside upper left" if len(panels) == 1 else "outside right lower")
    if len(panels) > 1:
        handles = [
            Line2D([], [], color=series.colour, marker=series.marker, linestyle=series.dashes, label=series.label)
            for series in drawn
        ]
        figure.legend(handles=handles, loc="outside right upper", frameon=False, handlelength=3.5)
    return figure


def _draw(axes: Axes, series: Series, panel: Panel) -> tuple[Series, float, float] | None:
    """Draws what of the series lies on the panel; returns it with its right end."""
    found = sorted((place, series.points[name]) for name, place in panel.places.items() if name in series.points)
    if not found:
        return None
    places = [place for place, _ in found]
    values, lows, highs = zip(*(value for _, value in found), strict=True)
    axes.errorbar(
        places,
        values,
        yerr=[
            [value - low for value, low in zip(values, lows, strict=True)],
            [high - value for value, high in zip(values, highs, strict=True)],
        ],
        color=series.colour,
        marker=series.marker,
        linestyle=series.dashes,
        elinewidth=0.8,
        markeredgecolor="white",
        markeredgewidth=0.4,
        zorder=3 if series.language == "torch" else 2,
    )
    return series, places[-1], values[-1]


def _set_axes(axes: Axes, panel: Panel, what: str, drawn: Sequence[Series]) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9.5)
    axes.set_xlabel(panel.axis)
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel(what)
    if panel.log:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
    turned = sum(len(text) for text in panel.ticks.values()) > 75
    axes.set_xticks(list(panel.ticks), list(panel.ticks.values()), rotation=90 if turned else 0)
    _set_scale(axes, [value for series in drawn for name, (value, *_) in series.points.items() if name in panel.places])


def _set_scale(axes: Axes, values: Sequence[float]) -> None:
    if values and max(values) > WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(_PlainLogFormatter(minor_thresholds=(2, 0.4)))


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
        for (series, *end), height in zip(placed, heights, strict=True):
            axes.annotate(
                series.label,
                xy=end,
                xytext=(beside, height),
                xycoords="axes fraction",
                textcoords="axes fraction",
                color=series.colour,
                fontsize=8,
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.6, "pad": 0.3},
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
