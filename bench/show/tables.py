"""Tables, CSV, JSON and Markdown from rows only: needs no GPU, and no kernel."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from triton_vs_tilus.bench.rows.answers import Answer
from triton_vs_tilus.bench.rows.frame import frame, geometric_mean
from triton_vs_tilus.bench.rows.journal import to_line
from triton_vs_tilus.bench.rows.queries import (
    between_runs,
    by_problem,
    contending,
    launch_costs,
    leading_timing,
    passed,
)
from triton_vs_tilus.bench.rows.regression import TIMED_OTHERWISE, Change, changes, refuse_other_devices, regressions
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    PASSED,
    TEMPERATURES,
    TIMINGS,
    Launch,
    ProblemRecord,
    Row,
    SearchRecord,
    Stage,
    TimingName,
    TimingRecord,
    Verdict,
)
from triton_vs_tilus.bench.show.answer import narrow_head_lines, reason_lines
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.problem import Matmul

UNSEARCHED = "config from a search for another shape or GPU, of a former kernel or space, or that ran out of time"
NOT_SEARCHED = f"° {UNSEARCHED}"

JOINT = "† joint fastest: no lead beyond intervals and run-to-run noise"
FASTEST = f"* fastest, {JOINT}"
MARKS = f"= a tie; {FASTEST}; {NOT_SEARCHED}"  # of speedup_cell

NUMBER = re.compile(r"[+-]?\d[\d.]*[%°]?( .*)?")  # what a column to be set flush right begins with
UNLIMITED = 1_000_000  # characters
CLOCK_SHARE = 0.95  # of what the SM clock may reach, below which it fell
GAP = 2  # characters that a column of a terminal's table takes beside its cells
TEXT_WIDTH = 24  # cells that are longer are text, which may be wrapped between words

# Of the README's table: the baseline, and the kernel that each language began with.
README_CONTENDERS = (BASELINE, "triton/decompose_k.vector", "tilus/semaphore.in_place", "tilus/semaphore.fp32")

CONFIG = "config"


class Terminal(Console):
    """verbose: tables that are too wide are continued below, instead of being shown without some columns."""

    def __init__(self, *, verbose: bool = False, **options: Any):
        super().__init__(highlight=False, **options)
        self.verbose = verbose

    def on_broken_pipe(self) -> None:
        """Called while one is handled. Raises it, which ends a command as cli.run_command says."""
        raise


def console(*, stderr: bool = False, verbose: bool = False) -> Terminal:
    """As wide as the terminal; where output is piped, as wide as the widest table."""
    made = Terminal(stderr=stderr, verbose=verbose)
    return made if made.is_terminal else Terminal(stderr=stderr, verbose=verbose, width=UNLIMITED)


@dataclass(frozen=True)
class Table:
    """A table for a terminal, by rich's print, or for Markdown.

    A line break in a header is a space in Markdown. best: indices of lines that are marked. head, details: lines above
    it, and below it; notes: likewise below, and not in a terminal that is not verbose.

    In a terminal no word is broken. Where the table is too wide, columns are left out, and named below it: those headed
    as in `optional`, in that order, then the last ones. A verbose Terminal shows them in a table below, after the first
    column again.
    """

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    best: frozenset[int] = frozenset()
    details: Sequence[str] = ()
    foot: str = ""
    optional: Sequence[str] = (CONFIG,)
    head: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        verbose = getattr(console, "verbose", False)
        parts, left_out = self._parts(options.max_width, verbose)
        if self.title:
            yield Text(self.title, style="bold")
        yield from map(Text, self.head)
        for part in parts:
            yield self._rich(part, options.max_width)
        if left_out:
            names = ", ".join(self.header[index].replace("\n", " ") for index in left_out)
            yield Text(f"Left out in {options.max_width} columns: {names}; -v shows all.")
        if self.notes and not verbose:
            yield Text(f"Notes left out for {len(self.notes)} of the contenders; -v shows all.")
        for line in (*self.details, *(self.notes if verbose else ()), self.foot):
            if line:
                yield Text(line)

    def _parts(self, width: int, verbose: bool) -> tuple[list[list[int]], list[int]]:
        """The columns of each table to show, and those left out."""
        least = [self._least(index) + GAP for index in range(len(self.header))]
        kept = list(range(len(self.header)))
        if verbose:
            parts = [[0]]
            for index in kept[1:]:
                if sum(least[column] for column in parts[-1]) + least[index] > width and len(parts[-1]) > 1:
                    parts.append([0])
                parts[-1].append(index)
            return parts, []
        order = [self.header.index(name) for name in self.optional if name in self.header]
        order += [index for index in reversed(kept[1:]) if index not in order]
        while order and sum(least[index] for index in kept) > width:
            kept.remove(order.pop(0))
        return [kept], [index for index in range(len(self.header)) if index not in kept]

    def _cells(self, index: int) -> list[str]:
        return [*self.header[index].split("\n"), *(part for line in self.lines for part in line[index].split("\n"))]

    def _natural(self, index: int) -> int:
        """The width of a column that is not wrapped."""
        return max(map(cell_len, self._cells(index)))

    def _least(self, index: int) -> int:
        """The width of a column whose text is wrapped, no word broken."""
        longest_word = max((cell_len(word) for cell in self._cells(index) for word in cell.split()), default=0)
        return min(self._natural(index), max(longest_word, TEXT_WIDTH))

    def _rich(self, columns: Sequence[int], width: int) -> RichTable:
        widths = {index: self._natural(index) for index in columns}
        for index in sorted(columns, key=widths.__getitem__, reverse=True):
            excess = sum(widths.values()) + GAP * len(columns) - width
            widths[index] = max(self._least(index), widths[index] - max(0, excess))
        table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for index in columns:
            table.add_column(
                self.header[index],
                justify="right" if self.is_number(index) else "left",
                overflow="fold",
                vertical="top",
                width=widths[index],
            )
        for index, line in enumerate(self.lines):
            style = "bold green" if index in self.best else None
            table.add_row(*(Text(line[column]) for column in columns), style=style)
        return table

    def markdown(self) -> str:
        def line(cells: Iterable[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

        rule = ["---:" if self.is_number(index) else "---" for index in range(len(self.header))]
        body = [
            [f"**{cell}**" if index in self.best and cell else cell for cell in cells]
            for index, cells in enumerate(self.lines)
        ]
        parts = [f"**{self.title}**", ""] if self.title else []
        parts += [*(f"- {line.strip()}" for line in self.head), ""] if self.head else []
        parts += [line(name.replace("\n", " ") for name in self.header), line(rule), *map(line, body)]
        details = [*self.details, *self.notes]
        parts += ["", *(f"- {detail}" for detail in details)] if details else []
        parts += ["", self.foot] if self.foot else []
        return "\n".join(parts) + "\n"

    def is_number(self, index: int) -> bool:
        """Whether a column is set flush right."""
        return any(NUMBER.fullmatch(line[index]) for line in self.lines)


def baseline_name(rows: Iterable[Row] | Iterable[Stage]) -> str:
    """What these rows' speed-ups are over: 'torch.mm'."""
    names = {row.problem.baseline.replace("/", ".") for row in rows}
    return names.pop() if len(names) == 1 else "the baseline"


def config_text(config: Mapping[str, Any] | None) -> str:
    """As MatmulConfig prints: the fields that all have, then a kernel's own by name."""
    if config is None:
        return ""
    common = [field.name for field in fields(MatmulConfig)]
    if not set(common) <= config.keys():
        return " ".join(f"{name}={value}" for name, value in config.items())
    own = [f"{name}={value}" for name, value in config.items() if name not in common]
    return " ".join([str(MatmulConfig(**{name: config[name] for name in common})), *own])


def _searched_text(row: Row) -> str:
    """Its config, and how far the search came that found it."""
    return config_text(row.config) + (f"; {row.search}" if row.search else "")


def reasons(rows: Sequence[Row]) -> list[str]:
    """Why contenders failed, and whose error is larger than is tolerated."""
    found = [f"{row.contender}: {row.status}: {row.message}" for row in rows if row.message and row.status != PASSED]
    for row in rows:
        if (times := row.accuracy.times_study or 0) > 1:
            found.append(f"{row.contender}: its error is {times:.1f} times the decompose-K study's tolerance")
    return found


def notes_on(rows: Iterable[Row]) -> list[str]:
    """What those that passed say of themselves: what was compiled, or found."""
    return [f"{row.contender}: {row.message}" for row in rows if row.message and row.status == PASSED]


def speedup_text(timing: TimingRecord) -> str:
    """'1.31 (1.29-1.33)', with 'tie' where it is one; '1' for the baseline."""
    if timing.verdict == "baseline":
        return "1"
    text = f"{timing.speedup:.2f} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f})"
    return f"{text} tie" if timing.verdict == "tie" else text


def problem_table(rows: Sequence[Row]) -> Table:
    """One problem's contenders, the fastest first and those that did not pass last; above them who is the fastest, and
    why. The fastest, or the joint fastest, is marked."""
    problem = rows[0].problem
    lead = leading_timing(rows)

    def standing(row: Row) -> tuple[bool, float]:
        return row.status != PASSED, row.timing[lead].median_us if lead in row.timing else inf

    rows = sorted(rows, key=standing)
    measured = [timing for timing in TIMINGS if any(timing in row.timing for row in rows)]
    header = ["contender", "protocol", *(f"{timing} us" for timing in measured)]
    header += ["less\nlaunch", _rate(problem), "GB/s", f"x {baseline_name(rows)}", "x floor"] if lead else []
    energy = any(timing.energy_uj is not None for row in rows for timing in row.timing.values())
    header += ["uJ"] * energy
    header += ["error /\ntorch's", "status", CONFIG]
    marked = mark_fastest(frame(rows, lead), ["problem"]).itertuples() if lead else ()
    marks = {(line.contender, line.time): fastest_mark(line) for line in marked}
    lines, best = [], set()
    for index, row in enumerate(rows):
        cells = [_latency(row.timing.get(timing), quartiles=timing == lead) for timing in measured]
        if lead and (figures := row.timing.get(lead)):
            us = figures.median_us
            cells += [f"{us - row.floor[lead].launch_us:.2f}" if lead in row.floor else ""]
            cells += [f"{problem.flops / us / 1e6:.2f}", f"{problem.least_bytes / us / 1e3:.0f}"]
            cells += [speedup_text(figures), f"{figures.times_floor:.2f}" if figures.times_floor else ""]
        elif lead:
            cells += [""] * 5
        if energy:
            spent = next((timing.energy_uj for timing in row.timing.values() if timing.energy_uj is not None), None)
            cells += ["" if spent is None else f"{spent:.0f}"]
        name = row.contender
        if mark := marks.get((name, row.time)):
            best.add(index)
            name += mark
        lines.append([name, row.protocol, *cells, _times_torch(row), row.status, _searched_text(row)])
    title = f"{rows[0].workload} {problem.name}"
    others = [f"{timing} us" for timing in measured if timing != lead]
    return Table(
        title,
        header,
        lines,
        frozenset(best),
        reasons(rows),
        _conditions(rows, lead),
        head=_winner_lines(rows, lead),
        notes=notes_on(rows),
        optional=[
            CONFIG,
            "less\nlaunch",
            "GB/s",
            _rate(problem),
            "x floor",
            "uJ",
            "error /\ntorch's",
            "protocol",
            *others,
        ],
    )


def _winner_lines(rows: Sequence[Row], lead: TimingName | None) -> list[str]:
    """Of one problem, the fastest first; none where the baseline has no time."""
    rivals = tuple(contending(passed(rows, lead)))
    if lead is None or not any(row.is_baseline for row in rivals):
        return []
    answer = Answer(rivals, Path(), lead, 0)
    return [*narrow_head_lines(rows[0].problem, answer), *reason_lines(answer)]


def _rate(problem: ProblemRecord) -> str:
    """What its operations in a second are counted in, by 10^12."""
    return "TOPS" if problem.dtype.startswith("int") else "TFLOPS"


def _times_torch(row: Row) -> str:
    error = row.accuracy.times_torch
    return "" if error is None else f"{error:.2f}"


def _latency(timing: TimingRecord | None, quartiles: bool) -> str:
    if timing is None:
        return ""
    text = f"{timing.median_us:.2f}"
    return f"{text} ({timing.q1_us:.2f}-{timing.q3_us:.2f})" if quartiles else text


def _conditions(rows: Sequence[Row], lead: TimingName | None) -> str:
    """What the figures of one problem have to be read with."""
    row = next(iter(passed(rows, lead)), None)
    if row is None:
        return ""
    parts = [f"{FASTEST}; quartiles, less launch, {_rate(row.problem)}, GB/s, speed-up and floor: {lead}"]
    if lead in row.noise:
        parts.append(f"{baseline_name(rows)} against itself: {row.noise[lead]:.2%}")
    if lead in row.floor:
        floor = row.floor[lead]
        parts.append(f"empty launch {floor.launch_us:.2f} us, reading the least bytes {floor.read_us:.2f} us")
    if row.clocks.available:
        low, high = row.clocks.sm_mhz
        fell = ", fell" if clock_fell(row) else ""
        of = f" of {row.clocks.max_sm_mhz:.0f}" if row.clocks.max_sm_mhz else ""
        parts.append(f"SM clock {low:.0f}-{high:.0f}{of} MHz{fell}, {row.clocks.repeated_rounds} rounds repeated")
    elif row.clocks.reason:
        parts.append(f"SM clock not read: {row.clocks.reason}")
    return "; ".join(parts)


def checks_table(rows: Sequence[Row]) -> Table:
    """Rows that were checked and not timed, of any problems."""
    header = ["problem", "contender", "protocol", "error /\ntorch's", "bitwise\nequal", "status", CONFIG]
    lines = []
    for row in rows:
        equal = {True: "yes", False: "no", None: ""}[row.bitwise_equal]
        cells = [row.protocol, _times_torch(row), equal, row.status, config_text(row.config)]
        lines.append([row.problem.name, row.contender, *cells])
    details = list(dict.fromkeys([*reasons(rows), *notes_on(rows)]))
    optional = [CONFIG, "bitwise\nequal", "protocol", "error /\ntorch's"]
    return Table("checked on the CPU, not timed", header, lines, details=details, optional=optional)


def summary_table(rows: Sequence[Row]) -> Table:
    """By timing, language and protocol: on each problem the group's fastest contender, against the baseline.

    Controls are in no group, nor is the baseline alone.
    """
    rows = contending(rows)
    lines = frame(rows)
    problems = lines.problem.nunique()
    by = ["timing", "language", "protocol"]
    groups = list(dict.fromkeys((row.language, row.protocol) for row in rows if not row.is_baseline))
    timed = mark_fastest(lines, ["timing", "problem"])
    bests = timed.loc[timed.groupby([*by, "problem"], observed=True).median_us.idxmin()]
    verdicts = [bests.verdict.eq(verdict).rename(verdict) for verdict in ("faster", "tie", "slower")]
    counts = pd.concat([*verdicts, bests.fastest, bests.joint], axis="columns").groupby(
        [bests[name] for name in by], observed=True
    )
    found = bests.groupby(by, observed=True).speedup.agg([geometric_mean, "size"]).join(counts.sum())
    of_groups = {line.Index: line for line in found.itertuples()}
    shown = []
    for timing in TIMINGS:
        for group in groups:
            if (line := of_groups.get((timing, *group))) is not None:
                figures = [f"{line.geometric_mean:.3f}", *map(str, (line.faster, line.tie, line.slower))]
                figures.append(count_text(line.fastest, line.joint))
                shown.append([*group, timing, *figures, f"{line.size} of {problems}"])
    times = f"x {baseline_name(rows)}\n(geometric mean)"
    header = ["language", "protocol", "timing", times, "faster", "tie", "slower", "fastest\nof all", "problems"]
    foot = "The group's fastest contender counts on each problem, losses like wins. +n †: joint fastest on n more."
    return Table(
        "summary",
        header,
        shown,
        foot=foot if shown else "nothing was timed",
        optional=["fastest\nof all", "problems", *(["timing"] if timed.timing.nunique() == 1 else [])],
    )


def searches_of(rows: Iterable[Row]) -> dict[str, list[SearchRecord]]:
    """By the contender that was searched in this run."""
    found: dict[str, list[SearchRecord]] = {}
    for row in rows:
        if row.config_source == "search" and row.search is not None:
            found.setdefault(row.contender, []).append(row.search)
    return found


def searches_table(found: Mapping[str, Sequence[SearchRecord]]) -> Table:
    """A line per kernel that was searched: over its problems, what was tried of the space, and the time."""
    lines = []
    for name, searches in found.items():
        count, tried, space = len(searches), sum(of.tried for of in searches), sum(of.space for of in searches)
        build_s, seconds = sum(of.build_seconds for of in searches), sum(of.seconds for of in searches)
        cells = [f"{tried} of {space}", f"{build_s / tried:.1f}" if tried else "", f"{seconds / count:.0f}"]
        lines.append([name, str(count), *cells, str(sum(of.out_of_time for of in searches))])
    header = ["kernel", "problems", "configs tried", "build s\nper config", "search s\nper problem", "out of\ntime"]
    foot = "Build s: summed over processes; a cached program takes almost none. Search s: checks and timing."
    return Table("searches", header, lines, foot=foot)


def mark_fastest(lines: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The lines that passed and were timed, with two columns. fastest: whether it leads its group alone, as of
    queries.leads. joint: whether it is one of several of which none does. Of those that contend, and were timed
    together with the baseline where it was timed."""
    timed = lines[(lines.status == PASSED) & lines.median_us.notna()]
    groups = [timed[name] for name in by]
    beside = timed.measurement.where(timed.is_baseline).groupby(groups, observed=True).transform("last")
    rivals = timed[timed.contends & (timed.measurement == beside.fillna(timed.measurement))]
    leaders = rivals.loc[rivals.groupby(list(by), observed=True).median_us.idxmin()]
    columns = [*by, "median_us", "speedup_low", "least_lead"]
    held = rivals.reset_index().merge(leaders[columns], on=list(by), suffixes=("", "_lead")).set_index("index")
    near = (held.speedup_high >= held.speedup_low_lead) | (
        held.median_us <= held.median_us_lead * (1 + held.least_lead_lead)
    )
    near = near.reindex(timed.index, fill_value=False).astype(bool)
    alone = near.groupby(groups, observed=True).transform("sum") == 1
    return timed.assign(fastest=near & alone, joint=near & ~alone)


def fastest_mark(line: Any) -> str:
    """Of a line of `mark_fastest`."""
    return " *" if line.fastest else " †" if line.joint else ""


def count_text(fastest: int, joint: int) -> str:
    """On how many problems something is the fastest, and the joint fastest: '5 +2 †'."""
    return f"{fastest}{f' +{joint} †' * bool(joint)}"


def extent(values: Sequence[float], form: str) -> str:
    """From the least to the most: '0.84 to 1.05', or '1.00'."""
    return " to ".join(dict.fromkeys(format(value, form) for value in (min(values), max(values))))


def clock_fell(row: Row) -> bool:
    """Whether the SM clock was at some time under CLOCK_SHARE of what it may reach; where that was not recorded, of the
    most that was read."""
    readings = row.clocks.sm_mhz
    return bool(readings) and readings[0] < CLOCK_SHARE * (row.clocks.max_sm_mhz or readings[1])


def overview_table(rows: Sequence[Row], contenders: Sequence[str] = ("*",), timing: TimingName | None = None) -> Table:
    """A line per problem, a column per contender that any pattern of `contenders` names: us, and times the baseline; a
    line per contender where there is only one problem. timing: by default the leading one."""
    lead = timing or leading_timing(rows)
    names = list(dict.fromkeys(row.contender for row in rows))
    names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in contenders)]
    title, what, labels = naming(rows)
    lines = frame(rows, lead)
    marked = mark_fastest(lines, ["problem"])[["fastest", "joint"]].reindex(lines.index, fill_value=False)
    lines = lines.join(marked.astype(bool))
    lines = lines.assign(cell=[_overview_cell(line) for line in lines.itertuples()])
    cells = _pivoted(lines, "problem", "contender").reindex(columns=names, fill_value="")
    shown = [[labels[name], *line] for name, line in zip(cells.index, cells.to_numpy().tolist(), strict=True)]
    header = [what, *names]
    if len(shown) == 1:
        header = ["contender", f"{what} = {shown[0][0]}"]
        shown = [[name, cell] for name, cell in zip(names, shown[0][1:], strict=True)]
    return Table(title, header, shown, foot=f"{source_of(rows, lead)}. {_legend(rows, lead)}")


def speedups_table(rows: Sequence[Row]) -> Table:
    """A line per contender that was timed, a column per problem: times the baseline, itself in us."""
    lead = leading_timing(rows)
    title, what, labels = naming(rows)
    lines = frame(rows, lead)
    timed = mark_fastest(lines, ["problem"])
    timed = timed.assign(cell=[speedup_cell(line) for line in timed.itertuples()])
    names = list(dict.fromkeys(row.contender for row in passed(rows, lead)))
    cells = _pivoted(timed, "contender", "problem").reindex(
        index=names, columns=lines.problem.cat.categories, fill_value=""
    )
    units = {rows[0].problem.baseline: ", us"}
    shown = [
        [f"{name}{units.get(name, '')}", *line] for name, line in zip(names, cells.to_numpy().tolist(), strict=True)
    ]
    foot = f"{source_of(rows, lead)}. {_legend(rows, lead)}; = a tie"
    return Table(title, [f"{what} =", *(labels[name] for name in cells.columns)], shown, foot=foot)


def _pivoted(lines: pd.DataFrame, index: str, columns: str) -> pd.DataFrame:
    """The column `cell`, "" where there is no line; of two lines of one contender on one problem the last."""
    latest = lines.drop_duplicates(["problem", "contender"], keep="last")
    return latest.pivot(index=index, columns=columns, values="cell").fillna("")


def speedup_cell(line: Any) -> str:
    """Times the baseline, of a line of `mark_fastest` as a tuple; of the baseline its microseconds.

    Marked: ° NOT_SEARCHED, = a tie, * the fastest, † joint fastest.
    """
    text = f"{line.median_us:.1f}" if line.is_baseline else f"{line.speedup:.2f}{'°' * line.not_searched}"
    return text + " =" * (line.verdict == "tie") + fastest_mark(line)


def kind_of(problem: ProblemRecord) -> str:
    """What a problem is, without its sizes: 'bf16, weight stored [N, K], relu'."""
    stored = {"nk": "weight stored [N, K]", "kn": "weight stored [K, N]"}.get(problem.layout or "")
    epilogue = None if problem.epilogue == "none" else problem.epilogue
    out = f"{problem.out_dtype} out" if problem.out_dtype not in (None, problem.dtype) else None
    return ", ".join(filter(None, [problem.dtype, stored, epilogue, out]))


_shared = attrgetter("op", "n", "k", "dtype", "out_dtype", "layout", "epilogue")


def naming(rows: Sequence[Row] | Sequence[Stage]) -> tuple[str, str, dict[str, str]]:
    """How to speak of problems: what they have in common, what tells them apart, and that of each by its name.
    ('[T, 7168] @ [7168, 256], bf16, weight stored [N, K]', 'T', {...: '16'}) where only M differs; of one problem
    ('[16, 7168] @ ...', 'M', {...: '16'}); else ('', 'problem', their names)."""
    problems = {row.problem.name: row.problem for row in rows}
    problem = rows[0].problem
    if problem.op != Matmul.op or len({_shared(other) for other in problems.values()}) > 1:
        return "", "problem", {name: name for name in problems}
    rows_of_a, what = ("T", "T") if len(problems) > 1 else (problem.m, "M")
    title = f"[{rows_of_a}, {problem.k}] @ [{problem.k}, {problem.n}], {kind_of(problem)}"
    return title, what, {name: str(problem.m) for name, problem in problems.items()}


def _overview_cell(line: Any) -> str:
    if line.status != PASSED or pd.isna(line.median_us):
        return line.status
    text = f"{line.median_us:.1f}{'°' * line.not_searched}"
    if line.verdict != "baseline":
        text += f" ({line.speedup:.2f}x{', tie' if line.verdict == 'tie' else ''})"
    return text + fastest_mark(line)


def _legend(rows: Sequence[Row], lead: TimingName | None) -> str:
    temperature = "not timed" if lead is None else TEMPERATURES[lead]
    marks = f"{FASTEST}; {NOT_SEARCHED}"
    return f"Microseconds ({temperature}, median), x: times as fast as {baseline_name(rows)}; {marks}"


def source_of(
    rows: Sequence[Row] | Sequence[Launch] | Sequence[Stage] | Sequence[Verdict], timing: TimingName | None = None
) -> str:
    """Device, versions and dates that the rows were recorded with. timing: the only one that is shown."""
    devices = []
    for environment in dict.fromkeys(row.environment for row in rows):
        versions = [(what, getattr(environment, what)) for what in _SOURCES]
        parts = [environment.device, *(f"{what} {version}" for what, version in versions if version)]
        devices.append(", ".join(parts))
    days = sorted({row.time[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    clock = clock_text(rows) if timing in (None, "cold") else ""
    return f"Recorded on {'; '.join(dict.fromkeys(devices))}, {when}{clock}{_hosts_text(rows)}"


def clock_text(rows: Sequence[Row] | Sequence[Launch] | Sequence[Stage] | Sequence[Verdict]) -> str:
    """Whether cold times are of the former clock, where there are any."""
    timings = [row.timing["cold"] for row in rows if isinstance(row, Row | Stage) and "cold" in row.timing]
    former = sum(timing.by_former_clock for timing in timings)
    if former in (0, len(timings)):
        return ", cold by the former clock" if former else ""
    return f", cold by the former clock in {former} of {len(timings)} rows"


def _hosts_text(rows: Sequence[Row] | Sequence[Launch] | Sequence[Stage] | Sequence[Verdict]) -> str:
    """What a reader has to know where a device's rows are from hosts of different launch cost."""
    timed = [row for row in rows if isinstance(row, Row)]
    devices = dict.fromkeys(row.environment.device for row in timed)
    told = ""
    for device in devices:
        costs = launch_costs(row for row in timed if row.environment.device == device)
        if len(costs) > 1:
            whose = f"{device} " if len(devices) > 1 else ""
            takes = f"an empty launch takes {' and '.join(f'{us:.1f}' for us in costs)} us: do not mix them"
            told += f", {whose}on hosts where {takes}"
    return told


_SOURCES = ("gpus", "driver", "cuda", "torch", "triton", "tilus")


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    """One line a row; nested fields by their path, e.g. 'timing_cold_median_us'."""
    flat = []
    for row in rows:
        values = row.to_json() | {"config": config_text(row.config)}
        for timing, figures in row.timing.items():
            us = figures.median_us
            values["timing"][timing] |= {
                "tflops": row.problem.flops / us / 1e6,
                "gb_per_s": row.problem.least_bytes / us / 1e3,
            }
        flat.append(values)
    replace_text(Path(path), pd.json_normalize(flat, sep="_").to_csv(index=False))


def write_json(rows: Sequence[Row], path: str | Path) -> None:
    """JSON lines, as a journal holds them."""
    replace_text(Path(path), "".join(map(to_line, rows)))


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table per problem, then all together, and the summary."""
    problems = by_problem(rows)
    # Only by T are they few enough for the width of a screen.
    together = [speedups_table(rows)] if naming(rows)[1] == "T" else []
    searched = searches_table(searches_of(rows))
    return [
        *map(problem_table, problems.values()),
        *together,
        *([searched] if searched.lines else []),
        summary_table(rows),
    ]


def markdown(rows: Sequence[Row]) -> str:
    return "\n".join([f"{source_of(rows)}.\n", *(table.markdown() for table in tables(rows))])


def changes_table(
    found: Sequence[Change], new: Sequence[Row], old: Sequence[Row], known: Mapping[TimingName, float]
) -> Table:
    """known: how far two runs of one config lie apart, the most over the problems of `new`."""
    lines = []
    for change in found:
        times = ["", "", ""]
        if change.old_us is not None:
            times = [f"{change.old_us:.2f}", f"{change.new_us:.2f}", f"{change.speedup:.3f}x"]
        verdict = f"{change.verdict}: {change.message}" if change.message else change.verdict
        lines.append([change.problem, change.contender, change.timing, *times, verdict])
    verdicts = [change.verdict for change in found]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in ("faster", "tie", "slower", "broken")]
    if TIMED_OTHERWISE in verdicts:
        counts.append(f"{verdicts.count(TIMED_OTHERWISE)} {TIMED_OTHERWISE}")
    alone = len({(r.problem.name, r.contender) for r in new} ^ {(r.problem.name, r.contender) for r in old})
    foot = f"{', '.join(counts)}; {alone} rows are in only one of the files. Speed and verdict: "
    foot += f"speed-ups over {baseline_name([*new, *old])}, each within its own run, and their intervals. "
    apart = ", ".join(f"{timing} {share:.1%}" for timing, share in known.items())
    foot += (
        f"Two runs of one config differ by up to {apart}, by problem. Less than at the problem is a tie; where it was "
        "not run twice, less than the most at any; for another timing, less than the largest. "
        if known
        else ("Nothing was run twice on this device: less than the noise within the runs is a tie. ")
    )
    foot += f"Old: {source_of(old) if old else 'no rows'}"
    header = ["problem", "contender", "timing", "old us", "new us", "speed", "verdict"]
    return Table("against the old file", header, lines, foot=foot, optional=["old us", "new us", "timing"])


def readme_table(
    rows: Sequence[Row], contenders: Sequence[str] = README_CONTENDERS, timing: TimingName | None = None
) -> str:
    """The Markdown of one recorded file: a line per problem, us and times the baseline by contender, and the source; by
    only this timing, or on cold L2, and, where that was measured, on cold L2 in a CUDA graph."""
    graph = timing is None and any("graph" in row.timing for row in rows)
    made = [overview_table(rows, contenders, timing), *([overview_table(rows, contenders, "graph")] if graph else [])]
    return "\n".join(table.markdown() for table in made)


def show_changes(out: Console, new: Sequence[Row], old: Sequence[Row], fail_over: float | None) -> bool:
    """Prints two files row by row; returns whether any row is slower by more than `fail_over` percent, or broken.

    Raises ValueError where the rows are not of one device, and where a limit is given and the files have no row in
    common timed alike but the baseline's.
    """
    refuse_other_devices(new, old)
    found = changes(new, old, between_runs)
    if fail_over is not None and all(change.verdict in ("baseline", TIMED_OTHERWISE) for change in found):
        raise ValueError(
            "--fail-over: the two files have no row in common that was timed alike, except those of "
            f"{baseline_name([*new, *old])}"
        )
    out.print(changes_table(found, new, old, between_runs(new)))
    failed = [] if fail_over is None else regressions(found, fail_over)
    if failed:
        out.print(f"{len(failed)} slower by more than {fail_over:g}%, or broken", style="bold red")
    return bool(failed)


def show(out: Console, rows: Sequence[Row]) -> None:
    """Prints a table per problem, then all together, and the summary."""
    out.print(source_of(rows))
    for table in tables(rows):
        out.print(table)
