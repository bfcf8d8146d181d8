"""Tables, CSV, JSON and Markdown from rows alone: needs no GPU, and no kernel."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from bench.journal import BASELINE, PASSED, Row, read_rows
from bench.ops import op_of
from common.kernel import MatmulConfig

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
TIMINGS = ("cold", "warm", "host")
REGRESSED = 3  # the exit code
NOT_SEARCHED = "° config not searched for this shape"
FAIL_OVER_HELP = f"exit {REGRESSED} where a contender is slower by more percent than this, or is broken"

NUMBER = re.compile(r"[+-]?\d[\d.]*%?( .*)?")  # what a column to be set flush right begins with

# Of the README's table: the baseline, and the kernel that each language began with.
README_CONTENDERS = (BASELINE, "triton/decompose_k.vector", "tilus/semaphore.in_place", "tilus/semaphore.fp32")

CONFIG = "config"


@dataclass(frozen=True)
class Table:
    """A table for a terminal, by rich's print, or for Markdown.

    A line break in a header is a space in Markdown. best: indices of lines that are marked. details: lines
    below it, where a column headed CONFIG goes too in a terminal that is too narrow for it.
    """

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    best: frozenset[int] = frozenset()
    details: Sequence[str] = ()
    foot: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, details = list(range(len(self.header))), list(self.details)
        if CONFIG in self.header:
            natural = console.measure(self._rich(columns), options=options.update(max_width=10_000)).maximum
            if natural > options.max_width:
                aside, named = self.header.index(CONFIG), self.header.index("protocol")
                columns.remove(aside)
                configs = [f"{' '.join(line[:named])}: {line[aside]}" for line in self.lines if line[aside]]
                details = configs + details
        if self.title:
            yield Text(self.title, style="bold")
        yield self._rich(columns)
        for line in (*details, self.foot):
            if line:
                yield Text(line)

    def _rich(self, columns: Sequence[int]) -> RichTable:
        table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for index in columns:
            justify = "right" if self._is_number(index) else "left"
            table.add_column(self.header[index], justify=justify, overflow="fold", vertical="top")
        for index, line in enumerate(self.lines):
            style = "bold green" if index in self.best else None
            table.add_row(*(Text(line[column]) for column in columns), style=style)
        return table

    def markdown(self) -> str:
        def line(cells: Iterable[str]) -> str:
            return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

        rule = ["---:" if self._is_number(index) else "---" for index in range(len(self.header))]
        body = [
            [f"**{cell}**" if index in self.best and cell else cell for cell in cells]
            for index, cells in enumerate(self.lines)
        ]
        parts = [f"**{self.title}**", ""] if self.title else []
        parts += [line(name.replace("\n", " ") for name in self.header), line(rule), *map(line, body)]
        parts += ["", *(f"- {detail}" for detail in self.details)] if self.details else []
        parts += ["", self.foot] if self.foot else []
        return "\n".join(parts) + "\n"

    def _is_number(self, index: int) -> bool:
        return any(NUMBER.fullmatch(line[index]) for line in self.lines)


def by_problem(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each problem, of two that measure the same thing the last. Workloads and contenders in the order in
    which they first came, a workload's problems by size: with several GPUs they come as each is done."""
    latest = {row.key: row for row in rows}
    workloads = list(dict.fromkeys(row.workload for row in latest.values()))

    def place(row: Row) -> tuple[int, ...]:
        return workloads.index(row.workload), *(row.problem[size] for size in ("m", "n", "k"))

    grouped: dict[str, list[Row]] = {}
    for row in sorted(latest.values(), key=place):
        grouped.setdefault(row.problem["name"], []).append(row)
    return grouped


def contending(rows: Iterable[Row]) -> list[Row]:
    """All but controls."""
    return [row for row in rows if not row.is_control]


def leading_timing(rows: Iterable[Row]) -> str | None:
    """What speed-ups and the fastest are told by: cold where it was measured, else warm, else host."""
    measured = {timing for row in rows for timing in row.timing}
    return next((timing for timing in TIMINGS if timing in measured), None)


def baseline_name(rows: Iterable[Row]) -> str:
    """What these rows' speed-ups are over: 'torch.mm'."""
    names = {op_of(row.problem).baseline.replace("/", ".") for row in rows}
    return names.pop() if len(names) == 1 else "the baseline"


def passed(rows: Iterable[Row], timing: str | None) -> list[Row]:
    return [row for row in rows if row.status == PASSED and timing in row.timing]


def config_text(config: Mapping[str, object] | None) -> str:
    """As MatmulConfig prints: the fields that all have, then a kernel's own by name."""
    if config is None:
        return ""
    common = [field.name for field in fields(MatmulConfig)]
    if not set(common) <= config.keys():
        return " ".join(f"{name}={value}" for name, value in config.items())
    own = [f"{name}={value}" for name, value in config.items() if name not in common]
    return " ".join([str(MatmulConfig(**{name: config[name] for name in common})), *own])


def reasons(rows: Iterable[Row]) -> list[str]:
    """What contenders tell beside their status: why they failed, or what their figures have to be read with."""
    told = [f"{row.contender}: {row.status}: {row.message}" for row in rows if row.message]
    for row in rows:
        if (times := row.accuracy.get("times_study") or 0) > 1:
            told.append(f"{row.contender}: its error is {times:.1f} times what the decompose-K study tolerates")
    return told


def speedup_text(timing: Mapping[str, object]) -> str:
    """'1.31 (1.29-1.33)', with 'tie' where it is one; '1' for the baseline."""
    if timing["verdict"] == "baseline":
        return "1"
    text = f"{timing['speedup']:.2f} ({timing['speedup_low']:.2f}-{timing['speedup_high']:.2f})"
    return f"{text} tie" if timing["verdict"] == "tie" else text


def problem_table(rows: Sequence[Row]) -> Table:
    """One problem's contenders, in the order of its rows; the fastest marked."""
    problem = rows[0].problem
    lead = leading_timing(rows)
    measured = [timing for timing in TIMINGS if any(timing in row.timing for row in rows)]
    header = ["contender", "protocol", *(f"{timing} us" for timing in measured)]
    header += [_rate(problem), "GB/s", f"times\n{baseline_name(rows)}", "x floor"] if lead else []
    header += ["error /\ntorch's", "status", CONFIG]
    fastest = min((row.timing[lead]["median_us"] for row in passed(rows, lead)), default=None)
    lines, best = [], set()
    for index, row in enumerate(rows):
        cells = [_latency(row.timing.get(timing), quartiles=timing == lead) for timing in measured]
        if lead in row.timing:
            figures, us = row.timing[lead], row.timing[lead]["median_us"]
            cells += [f"{problem['flops'] / us / 1e6:.2f}", f"{problem['least_bytes'] / us / 1e3:.0f}"]
            cells += [speedup_text(figures), f"{figures['times_floor']:.2f}" if figures["times_floor"] else ""]
            if row.status == PASSED and us == fastest:
                best.add(index)
        elif lead:
            cells += [""] * 4
        name = row.contender + " *" * (index in best)
        lines.append([name, row.protocol, *cells, _times_torch(row), row.status, config_text(row.config)])
    title = f"{rows[0].workload} {problem['name']}"
    return Table(title, header, lines, frozenset(best), reasons(rows), _conditions(rows, lead))


def _rate(problem: Mapping[str, Any]) -> str:
    """What its operations in a second are counted in, by 10^12."""
    return "TOPS" if problem["dtype"].startswith("int") else "TFLOPS"


def _times_torch(row: Row) -> str:
    error = row.accuracy.get("times_torch")
    return "" if error is None else f"{error:.2f}"


def _latency(timing: Mapping[str, float] | None, quartiles: bool) -> str:
    if timing is None:
        return ""
    text = f"{timing['median_us']:.2f}"
    return f"{text} ({timing['q1_us']:.2f}-{timing['q3_us']:.2f})" if quartiles else text


def _conditions(rows: Sequence[Row], lead: str | None) -> str:
    """What the figures of one problem have to be read with."""
    row = next(iter(passed(rows, lead)), None)
    if row is None:
        return ""
    parts = [f"* fastest; quartiles, {_rate(row.problem)}, GB/s, speed-up and floor: {lead}"]
    if lead in row.noise:
        parts.append(f"{baseline_name(rows)} against itself: {row.noise[lead]:.2%}")
    if lead in row.floor:
        floor = row.floor[lead]
        parts.append(f"empty launch {floor['launch_us']:.2f} us, reading the least bytes {floor['read_us']:.2f} us")
    if row.clocks.get("available"):
        low, high = row.clocks["sm_mhz"]
        parts.append(f"SM clock {low:.0f}-{high:.0f} MHz, {row.clocks['repeated_rounds']} rounds repeated")
    elif row.clocks.get("reason"):
        parts.append(f"SM clock not read: {row.clocks['reason']}")
    return "; ".join(parts)


def checks_table(rows: Sequence[Row]) -> Table:
    """Rows that were checked and not timed, of any problems."""
    header = ["problem", "contender", "protocol", "error /\ntorch's", "bitwise\nequal", "status", CONFIG]
    lines = []
    for row in rows:
        equal = {True: "yes", False: "no", None: ""}[row.bitwise_equal]
        cells = [row.protocol, _times_torch(row), equal, row.status, config_text(row.config)]
        lines.append([row.problem["name"], row.contender, *cells])
    return Table("checked on the CPU, not timed", header, lines, details=list(dict.fromkeys(reasons(rows))))


def summary_table(rows: Sequence[Row]) -> Table:
    """By language and protocol: on each problem the group's fastest contender, against the baseline, per timing.
    Controls are in no group."""
    rows = contending(rows)
    problems = list(by_problem(rows).values())
    groups = list(dict.fromkeys((row.language, row.protocol) for row in rows if not row.is_baseline))
    lines = []
    for timing in TIMINGS:
        orders = [ranked(of_problem, timing) for of_problem in problems]
        for group in groups:
            bests = [row for of_problem in orders if (row := _first_of(group, of_problem))]
            compared = [row.timing[timing] for row in bests if row.timing[timing]["speedup"]]
            if not compared:
                continue
            verdicts = [figures["verdict"] for figures in compared]
            lines.append(
                [
                    *group,
                    timing,
                    f"{geometric_mean(figures['speedup'] for figures in compared):.3f}",
                    *(str(verdicts.count(verdict)) for verdict in ("faster", "tie", "slower")),
                    str(sum(of_problem[0] in bests for of_problem in orders if of_problem)),
                    f"{len(bests)} of {len(problems)}",
                ]
            )
    times = f"times {baseline_name(rows)}\n(geometric mean)"
    header = ["language", "protocol", "timing", times, "faster", "tie", "slower"]
    foot = "On each problem the group's fastest contender counts; a loss stands in the mean like a win."
    return Table(
        "summary", [*header, "fastest\nof all", "problems"], lines, foot=foot if lines else "nothing was timed"
    )


def _first_of(group: tuple[str, str], rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if (row.language, row.protocol) == group), None)


def ranked(rows: Iterable[Row], timing: str | None) -> list[Row]:
    """Those that passed and were timed so, the fastest first."""
    return sorted(passed(rows, timing), key=lambda row: row.timing[timing]["median_us"])


def overview_table(rows: Sequence[Row], contenders: Sequence[str] = ("*",)) -> Table:
    """A line a problem, a column a contender that any pattern of `contenders` names: us, and times the baseline; a line
    a contender where there is but one problem."""
    lead = leading_timing(rows)
    problems = by_problem(rows)
    names = list(dict.fromkeys(row.contender for row in rows))
    names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in contenders)]
    title, what, labels = naming(rows)
    lines = []
    for name, of_problem in problems.items():
        by_name = {row.contender: row for row in of_problem}
        fastest = min((row.timing[lead]["median_us"] for row in passed(of_problem, lead)), default=None)
        cells = [_overview_cell(by_name.get(contender), lead, fastest) for contender in names]
        lines.append([labels[name], *cells])
    header = [what, *names]
    if len(lines) == 1:
        header, lines = ["contender", f"{what} = {lines[0][0]}"], list(zip(names, lines[0][1:], strict=True))
    return Table(title, header, lines, foot=f"{source_of(rows)}. {_legend(rows, lead)}")


def speedups_table(rows: Sequence[Row]) -> Table:
    """A line a contender that was timed, a column a problem: times the baseline, of which the microseconds are told."""
    lead, problems = leading_timing(rows), by_problem(rows)
    title, what, labels = naming(rows)
    ranks = {name: ranked(of_problem, lead) for name, of_problem in problems.items()}
    names = dict.fromkeys(row.contender for row in passed(rows, lead))
    baseline = op_of(rows[0].problem).baseline
    lines = []
    for contender in names:
        unit = ", us" if contender == baseline else ""
        cells = []
        for rank in ranks.values():
            row = next((row for row in rank if row.contender == contender), None)
            cells.append(speedup_cell(row, lead, rank[0].contender if rank else None))
        lines.append([f"{contender}{unit}", *cells])
    foot = f"{source_of(rows)}. {_legend(rows, lead)}; = a tie"
    return Table(title, [f"{what} =", *(labels[name] for name in problems)], lines, foot=foot)


def speedup_cell(row: Row | None, timing: str, fastest: str | None) -> str:
    """Times the baseline, marked: ° the config was not searched for this shape, = a tie, * it is the `fastest`. Of the
    baseline its microseconds."""
    if row is None:
        return ""
    figures = row.timing[timing]
    if row.is_baseline:
        text = f"{figures['median_us']:.1f}"
    else:
        text = f"{figures['speedup']:.2f}{'°' * row.not_searched}"
    return text + " =" * (figures["verdict"] == "tie") + " *" * (row.contender == fastest)


def kind_of(problem: Mapping[str, Any]) -> str:
    """What a problem is but for its sizes: 'bf16, weight stored [N, K], relu'."""
    stored = {"nk": "weight stored [N, K]", "kn": "weight stored [K, N]"}.get(problem.get("layout"))
    epilogue = problem.get("epilogue", "none")
    out = f"{problem['out_dtype']} out" if problem.get("out_dtype", problem["dtype"]) != problem["dtype"] else None
    return ", ".join(filter(None, [problem["dtype"], stored, None if epilogue == "none" else epilogue, out]))


_SHARED = ("n", "k", "dtype", "out_dtype", "layout", "epilogue")


def naming(rows: Sequence[Row]) -> tuple[str, str, dict[str, str]]:
    """How to speak of problems: what they have in common, what tells them apart, and that of each by its name.
    ('[T, 7168] @ [7168, 256], bf16, weight stored [N, K]', 'T', {...: '16'}) where M alone differs; of one problem
    ('[16, 7168] @ ...', 'M', {...: '16'}); else ('', 'problem', their names)."""
    problems = {row.problem["name"]: row.problem for row in rows}
    problem = rows[0].problem
    if not set(_SHARED) <= problem.keys() or any(
        other.get(field) != problem[field] for other in problems.values() for field in _SHARED
    ):
        return "", "problem", {name: name for name in problems}
    rows_of_a, what = ("T", "T") if len(problems) > 1 else (problem["m"], "M")
    title = f"[{rows_of_a}, {problem['k']}] @ [{problem['k']}, {problem['n']}], {kind_of(problem)}"
    return title, what, {name: str(of["m"]) for name, of in problems.items()}


def _overview_cell(row: Row | None, lead: str | None, fastest: float | None) -> str:
    if row is None:
        return ""
    if row.status != PASSED or lead not in row.timing:
        return row.status
    figures = row.timing[lead]
    text = f"{figures['median_us']:.1f}{'°' * row.not_searched}"
    if figures["verdict"] != "baseline":
        text += f" ({figures['speedup']:.2f}x{', tie' if figures['verdict'] == 'tie' else ''})"
    return text + " *" * (figures["median_us"] == fastest)


def _legend(rows: Sequence[Row], lead: str | None) -> str:
    temperature = {"cold": "cold L2", "warm": "warm L2", "host": "host time of a call"}.get(lead, "not timed")
    marks = f"* fastest; {NOT_SEARCHED}"
    return f"Microseconds ({temperature}, median), times faster than {baseline_name(rows)}; {marks}"


def source_of(rows: Sequence[Row]) -> str:
    """Device, versions and dates that the rows were recorded with."""
    devices = []
    for environment in {json.dumps(row.environment, sort_keys=True): row.environment for row in rows}.values():
        parts = [environment["device"], *(f"{what} {environment[what]}" for what in _SOURCES if environment.get(what))]
        devices.append(", ".join(parts))
    days = sorted({row.time[:10] for row in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Recorded on {'; '.join(dict.fromkeys(devices))}, {when}"


_SOURCES = ("gpus", "driver", "cuda", "torch", "triton", "tilus")


def frame(rows: Sequence[Row]):
    """A pandas.DataFrame, one line a row; nested fields by their path, e.g. 'timing_cold_median_us'."""
    import pandas

    flat = []
    for row in rows:
        values = row.to_json() | {"config": config_text(row.config)}
        for timing, figures in row.timing.items():
            us = figures["median_us"]
            rates = {"tflops": row.problem["flops"] / us / 1e6, "gb_per_s": row.problem["least_bytes"] / us / 1e3}
            values["timing"] = values["timing"] | {timing: figures | rates}
        flat.append(values)
    return pandas.json_normalize(flat, sep="_")


def write_csv(rows: Sequence[Row], path: str | Path) -> None:
    frame(rows).to_csv(path, index=False)


def write_json(rows: Sequence[Row], path: str | Path) -> None:
    """A JSON list, which `read_rows` and --against read."""
    Path(path).write_text(json.dumps([row.to_json() for row in rows], indent=1) + "\n")


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table a problem, then all together, and the summary."""
    problems = by_problem(rows)
    # By T alone they are few enough for the width of a screen.
    together = [speedups_table(rows)] if naming(rows)[1] == "T" else []
    return [*map(problem_table, problems.values()), *together, summary_table(rows)]


def markdown(rows: Sequence[Row]) -> str:
    return "\n".join([f"{source_of(rows)}.\n", *(table.markdown() for table in tables(rows))])


@dataclass(frozen=True)
class Change:
    """One contender on one problem in two files.

    speedup: the new speed-up over the old, each against the baseline of its own run, so that what moved the whole
    machine cancels. verdict: 'faster' or 'slower' where the two speed-ups' 95% intervals lie apart, else 'tie';
    'baseline' for that itself; 'broken' and 'repaired' where only one of the two passed; 'failed' where neither. Broken
    is, too, what passed and has no row any more on a problem that has others, or no time that was asked for.
    """

    problem: str
    contender: str
    timing: str
    old_us: float | None
    new_us: float | None
    speedup: float | None
    verdict: str
    message: str = ""


def changes(new: Sequence[Row], old: Sequence[Row]) -> list[Change]:
    """Row by row, what both files hold, a change for each timing that both have; and what the new one lacks of the
    problems that it has."""
    before = {(row.problem["name"], row.contender): row for row in old}
    after = {(row.problem["name"], row.contender): row for row in new}
    found = []
    for where, row in after.items():
        if (was := before.get(where)) is None:
            continue
        if row.status == was.status == PASSED:
            for timing in TIMINGS:
                if timing in row.timing and timing in was.timing:
                    found.append(_change(*where, timing, was.timing[timing], row.timing[timing]))
                elif timing in row.asked and timing in was.timing:
                    found.append(Change(*where, timing, None, None, None, "broken", f"not timed: {row.message}"))
        else:
            verdict = "broken" if was.status == PASSED else "repaired" if row.status == PASSED else "failed"
            found.append(Change(*where, "", None, None, None, verdict, f"{row.status}: {row.message}"))
    problems = {problem for problem, _ in after}
    for where, was in before.items():
        if was.status == PASSED and where[0] in problems and where not in after:
            found.append(Change(*where, "", None, None, None, "broken", "no row any more"))
    return found


def _change(problem: str, contender: str, timing: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Change:
    if "baseline" in (was["verdict"], now["verdict"]):
        verdict = "baseline"
    elif now["speedup_high"] < was["speedup_low"]:
        verdict = "slower"
    else:
        verdict = "faster" if now["speedup_low"] > was["speedup_high"] else "tie"
    ratio = now["speedup"] / was["speedup"]
    return Change(problem, contender, timing, was["median_us"], now["median_us"], ratio, verdict)


def regressions(found: Iterable[Change], fail_over: float) -> list[Change]:
    """Those that are broken, or slower by more than `fail_over` percent."""
    return [
        change
        for change in found
        if change.verdict == "broken" or (change.verdict == "slower" and change.speedup * (1 + fail_over / 100) < 1)
    ]


def changes_table(found: Sequence[Change], new: Sequence[Row], old: Sequence[Row]) -> Table:
    lines = []
    for change in found:
        times = ["", "", ""]
        if change.old_us is not None:
            times = [f"{change.old_us:.2f}", f"{change.new_us:.2f}", f"{change.speedup:.3f}x"]
        verdict = f"{change.verdict}: {change.message}" if change.message else change.verdict
        lines.append([change.problem, change.contender, change.timing, *times, verdict])
    verdicts = [change.verdict for change in found]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in ("faster", "tie", "slower", "broken")]
    alone = len({(r.problem["name"], r.contender) for r in new} ^ {(r.problem["name"], r.contender) for r in old})
    foot = f"{', '.join(counts)}; {alone} rows stand in one of the files only. Speed and verdict: "
    foot += f"speed-ups over {baseline_name([*new, *old])}, each of its own run, and their intervals. "
    foot += f"Old: {source_of(old) if old else 'no rows'}"
    header = ["problem", "contender", "timing", "old us", "new us", "speed", "verdict"]
    return Table("against the old file", header, lines, foot=foot)


def readme_table(rows: Sequence[Row], contenders: Sequence[str] = README_CONTENDERS) -> str:
    """The Markdown of one recorded file: a line a problem, us and times the baseline by contender, and the source."""
    return overview_table(rows, contenders).markdown()


def recorded(name: str = "*") -> dict[Path, list[Row]]:
    """The checked-in files of this name (a pattern), of every device, that hold rows."""
    files = {path: read_rows(path) for path in sorted(RESULTS.glob(f"*/{name}.jsonl"))}
    return {path: rows for path, rows in files.items() if rows}


def console(*, stderr: bool = False) -> Console:
    """As wide as the terminal, or as the widest line of a table where there is none."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=240)


def show_changes(out: Console, new: Sequence[Row], old: Sequence[Row], fail_over: float | None) -> int:
    """Prints two files row by row; returns the exit code. Raises ValueError where a limit is given and there is
    nothing to hold against it."""
    found = changes(new, old)
    if fail_over is not None and all(change.verdict == "baseline" for change in found):
        raise ValueError(f"--fail-over: the two files have no row in common but those of {baseline_name([*new, *old])}")
    out.print(changes_table(found, new, old))
    failed = [] if fail_over is None else regressions(found, fail_over)
    if failed:
        out.print(f"{len(failed)} slower by more than {fail_over:g}%, or broken", style="bold red")
    return REGRESSED if failed else 0


def show(out: Console, rows: Sequence[Row]) -> None:
    out.print(source_of(rows))
    for table in tables(rows):
        out.print(table)
