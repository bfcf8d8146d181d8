"""Language x protocol, from rows only: what the language changes at one protocol, and the protocol in one language.

A cell holds the contenders of one language and one protocol; controls and baselines are in none. On each problem the
fastest contender of a cell counts. The two languages of a pair are compared kernel by kernel, the same kernel in both,
where both ran a config searched for the problem: otherwise the searches would be compared. A config from a
search of a former kernel, or that ran out of time, counts, and is marked: both languages' were searched by one method.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows.frame import frame, geometric_mean
from triton_vs_tilus.bench.rows.queries import contending, leading_timing, passed
from triton_vs_tilus.bench.rows.row import PASSED, Row, TimingName
from triton_vs_tilus.bench.show.tables import (
    FASTEST,
    NOT_SEARCHED,
    Table,
    baseline_name,
    count_text,
    mark_fastest,
    naming,
    source_of,
    speedup_cell,
)
from triton_vs_tilus.common.kernel import Language

PAIR = (Language.TRITON.value, Language.TILUS.value)
OVER_HEADING = f"{PAIR[1]} over\n{PAIR[0]}"
OVER = OVER_HEADING.replace("\n", " ")
FORMER = "°: with configs from searches of a former kernel, or that ran out of time"
LEAST = 3  # problems from which on extremes are shown
NEARLY = 0.95  # of the speed with the config searched for the problem
CELL = ["protocol", "language"]


def lines_of(rows: Sequence[Row], timing: TimingName) -> pd.DataFrame:
    """A line of rows.frame for each row that contends, timed or not."""
    return frame(contending(rows), timing)


def contenders(lines: pd.DataFrame) -> pd.DataFrame:
    """Of `lines` as of `lines_of`, those of cells: all but the baselines'."""
    return lines[~lines.contender.isin(BASELINES)]


def bests(lines: pd.DataFrame) -> pd.DataFrame:
    """The fastest contender of each cell on each problem, by protocol, language and problem. lines: as of `lines_of`.

    Columns `fastest` and `joint`: as of tables.mark_fastest, among the contenders of all cells and the baseline.
    """
    timed = contenders(mark_fastest(lines, ["problem"]))
    return timed.loc[timed.groupby([*CELL, "problem"], observed=True).median_us.idxmin()]


def tables(rows: Sequence[Row]) -> list[Table]:
    """Language at the same config, and what a borrowed config costs, where they were measured; language against
    protocol, kernel by kernel in both languages, the cells in full, and every problem's speed-ups.

    Raises ValueError where nothing was timed.
    """
    timing = leading_timing(rows)
    if timing is None:
        raise ValueError("the matrix needs rows that were timed; there are none")
    both, same, borrowed = (make(rows, timing) for make in (twins_table, matched_table, borrowed_table))
    shown = [
        *([same, matched_problems_table(rows, timing)] if same.lines else []),
        *([borrowed] if borrowed.lines else []),
        effect_table(rows, timing),
        *([both] if both.lines else []),
    ]
    return [*shown, cells_table(rows, timing), problems_table(rows, timing)]


def matched(rows: Sequence[Row], timing: TimingName) -> pd.DataFrame:
    """A line for each comparison of the languages in one run, paired over rounds.

    kernel, protocol, problem
    config            whose config both ran, of PAIR, or 'own' where each ran its own
    ratio, low, high  the second language's speed over the first's, with its 95 % interval
    tie               whether the interval spans 1, or the ratio lies within the noise floor of 1
    former            whether a config is of a search of a former kernel, or that ran out of time; of 'own', either's
    """
    beside = {(row.measurement, row.contender): row for row in rows if row.status == PASSED}
    lines = []
    for row in rows:
        if row.status != PASSED or (found := row.against.get(timing)) is None:
            continue
        other = beside.get((row.measurement, found.contender))
        if other is None or (not row.is_matched and (row.language != PAIR[1] or row.borrowed or other.borrowed)):
            continue  # against one that failed, the same comparison from the other side, or one of searches
        former = row.not_searched or (not row.is_matched and other.not_searched)
        second = row.language == PAIR[1]
        ratio, low, high = (
            (found.ratio, found.low, found.high) if second else (1 / found.ratio, 1 / found.high, 1 / found.low)
        )
        name, _, config = row.contender.partition("/")[2].partition("@")
        tie = low <= 1 <= high or abs(1 - ratio) <= row.noise.get(timing, 0.0)
        lines.append([name, row.protocol, row.problem.name, config or "own", ratio, low, high, tie, former])
    columns = ["kernel", "protocol", "problem", "config", "ratio", "low", "high", "tie", "former"]
    return pd.DataFrame(lines, columns=columns)


def matched_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per kernel: what only the language changes; and best against best."""
    found = matched(rows, timing)
    lines = []
    for (protocol, kernel), of_kernel in found.groupby(["protocol", "kernel"], sort=False):
        same = of_kernel[of_kernel.config != "own"]
        parts = [same[same.config == language] for language in PAIR] + [same, of_kernel[of_kernel.config == "own"]]
        if len(same):
            lines.append([str(kernel), str(protocol), *map(_outcomes, parts)])
    foot = (
        f"{timing}. {OVER}: the geometric mean of ratios paired over the rounds of one run, and on how many problems "
    )
    foot += (
        f"{PAIR[1]} is faster / tied / slower, by 95 % intervals and the noise floor. Same config: tile, split, warps, "
    )
    foot += f"stages and instruction. Own configs: each language's, searched for the problem; {FORMER}. "
    foot += f"{source_of(rows, timing)}."
    header = [
        "kernel",
        "protocol",
        *(f"at {language}'s\nconfig" for language in PAIR),
        "at either\nconfig",
        "own\nconfigs",
    ]
    return Table(f"language at the same config: {OVER}", header, lines, foot=foot, optional=["protocol"])


def matched_problems_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per problem, a column per kernel and config: the ratio with its interval."""
    _, what, labels = naming(rows)
    found = matched(rows, timing)
    found = found[found.config != "own"]
    text = "{0.ratio:.2f} ({0.low:.2f}-{0.high:.2f}){1}"
    found = found.assign(cell=[text.format(line, " =" * line.tie) for line in found.itertuples()])
    cells = found.pivot(index="problem", columns=["kernel", "config"], values="cell").fillna("")
    cells = cells.reindex([name for name in labels if name in cells.index])
    lines = [[labels[name], *line] for name, line in zip(cells.index, cells.to_numpy().tolist(), strict=True)]
    header = [what, *(f"{kernel}\n@{config}" for kernel, config in cells.columns)]
    foot = f"{OVER}, {timing}, with the 95 % interval; = a tie. @: the language whose config both ran."
    return Table(f"language at the same config, by {what}", header, lines, foot=foot)


def _outcomes(lines: pd.DataFrame) -> str:
    """'1.043, 3 / 1 / 8'"""
    if lines.empty:
        return ""
    counts = [(~lines.tie & (lines.ratio > 1)).sum(), lines.tie.sum(), (~lines.tie & (lines.ratio < 1)).sum()]
    return f"{geometric_mean(lines.ratio):.3f}{'°' * bool(lines.former.any())}, {' / '.join(map(str, counts))}"


def held_out(rows: Sequence[Row], timing: TimingName) -> pd.DataFrame:
    """A line for each kernel and problem that ran the config searched for it and, in the same run, the one that it
    would take without that.

    kernel, language, problem
    same              whether both are one config
    ratio, low, high  the speed with the borrowed config over that with its own, paired over rounds, with its 95 %
                      interval; 1 where both are one config
    former            whether its own config is of a search of a former kernel, or that ran out of time
    """
    timed = passed(rows, timing)
    by_run = {(row.measurement, row.contender): row for row in timed}
    lines = []
    for row in timed:
        found = row.against.get(timing)
        if not row.is_held_out or found is None or (own := by_run.get((row.measurement, found.contender))) is None:
            continue
        same = row.config == own.config
        figures = (1.0, 1.0, 1.0) if same else (found.ratio, found.low, found.high)
        name = own.contender.partition("/")[2]
        lines.append([name, row.language, row.problem.name, same, *figures, own.not_searched])
    columns = ["kernel", "language", "problem", "same", "ratio", "low", "high", "former"]
    return pd.DataFrame(lines, columns=columns)


def borrowed_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per kernel and language: how much of its speed a borrowed config keeps."""
    _, what, labels = naming(rows)
    lines = []
    for (kernel, language), of_kernel in held_out(rows, timing).groupby(["kernel", "language"], sort=False):
        worst = of_kernel.iloc[int(of_kernel.ratio.argmin())]
        label = labels[worst.problem] if what == "problem" else f"{what} = {labels[worst.problem]}"
        lines.append(
            [
                str(kernel),
                str(language),
                str(len(of_kernel)),
                str(of_kernel.same.sum()),
                str((of_kernel.ratio >= NEARLY).sum()),
                f"{geometric_mean(of_kernel.ratio):.3f}{'°' * bool(of_kernel.former.any())}",
                f"{worst.ratio:.2f} ({worst.low:.2f}-{worst.high:.2f}), {label}",
            ]
        )
    foot = f"{timing}. Speed with the config of the nearest other problem in the tuned table, over the speed with "
    foot += "the config searched for the problem, paired over the rounds of one run; 1 where the two are the same. "
    foot += f"Mean: geometric. Worst: with its 95 % interval. {FORMER}. {source_of(rows)}."
    header = ["kernel", "language", "problems", "same\nconfig", f"at least\n{NEARLY}x", "mean", "worst"]
    return Table("speed kept with a borrowed config", header, lines, foot=foot)


def effect_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per protocol, a column per language; and one language's speed over the other's.

    The latter is of the protocol's kernels that both have, each with a config searched for the problem.
    """
    of_all = lines_of(rows, timing)
    count, pairs = of_all.problem.nunique(), twins(of_all)
    found = bests(of_all).groupby(CELL, observed=True).speedup.agg([geometric_mean, "size"])
    cells = contenders(of_all).groupby(CELL, observed=True)
    texts = pd.Series([_outcome(lines) for _, lines in cells], index=cells.size().index)
    some = [f" ({size} of {count})" if size < count else "" for size in found["size"]]
    timed = found.geometric_mean.map("{:.3f}".format) + some
    texts = timed.reindex(texts.index).fillna(texts)
    by_language = texts.unstack("language", fill_value="").sort_index(axis="columns")
    lines = [[*map(str, line), _spread_text(pairs[pairs.protocol == line.Index])] for line in by_language.itertuples()]
    foot = f"Times {baseline_name(rows)} ({timing}), the geometric mean over problems of a cell's fastest contender; "
    foot += f"{OVER}: the speed of a kernel in the one language over that of the same kernel in the other, mean and "
    foot += f"extremes over the protocol's kernels and the problems; {FORMER}. "
    foot += f"{_effects(found, pairs, count)}{source_of(rows, timing)}."
    header = ["protocol", *by_language.columns, OVER_HEADING]
    title = " ".join(filter(None, ["language x protocol", naming(rows)[0]]))
    return Table(title.replace("protocol [", "protocol: ["), header, lines, foot=foot)


def _outcome(lines: pd.DataFrame) -> str:
    """How contenders ended that have no figures."""
    return ", ".join(lines.status.where(lines.status != PASSED, "not timed").unique())


def twins_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per kernel that both languages have: one's speed over the other's, and on how many problems it leads."""
    lines = [
        [str(kernel), str(protocol), _spread_text(pairs), _standings(pairs)]
        for (protocol, kernel), pairs in twins(lines_of(rows, timing)).groupby(["protocol", "kernel"], observed=True)
    ]
    foot = f"{timing}. Mean and extremes over the problems on which both ran a config searched for the problem; "
    foot += f"{FORMER}. "
    foot += "Ahead, behind: by more than the noise within and between runs, and the 95 % interval, paired over rounds, "
    foot += "excludes 1; where rounds were not paired, the intervals of the two speed-ups do not overlap."
    header = ["kernel", "protocol", OVER_HEADING, "ahead / tie /\nbehind"]
    return Table("the same kernel in both languages", header, lines, foot=foot)


def _standings(pairs: pd.DataFrame) -> str:
    """'3 / 8 / 1', of the pairs that can be compared."""
    known = pairs[pairs.ratio.notna()]
    ahead, behind = int((known.standing == "ahead").sum()), int((known.standing == "behind").sum())
    return f"{ahead} / {len(known) - ahead - behind} / {behind}"


def twins(lines: pd.DataFrame) -> pd.DataFrame:
    """A line for each kernel and problem on which both languages of PAIR passed. lines: as of `lines_of`.

    kernel, problem, protocol; ratio: the second language's speed over the first's, paired over the rounds of their run;
    where that was not recorded by speed-ups, each of its own run; NaN where not both ran a config searched for the
    problem; standing: 'ahead', 'behind' or 'tie', of the second, by the noise of queries.leads; former: whether a
    config is of a search of a former kernel, or that ran out of time.
    """
    lines = contenders(lines)
    lines = lines[(lines.status == PASSED) & lines.speedup.notna()]
    # Not by `str.partition`, which makes no columns of no rows.
    lines = lines.assign(kernel=[name.partition("/")[2] for name in lines.contender])
    first, second = (lines[lines.language == language] for language in PAIR)
    both = first.merge(second, on=["kernel", "problem"], suffixes=("", "_of_other"))
    ratio = both.against_of_other.fillna(both.speedup_of_other / both.speedup)
    low = both.against_low_of_other.fillna(both.speedup_low_of_other / both.speedup_high)
    high = both.against_high_of_other.fillna(both.speedup_high_of_other / both.speedup_low)
    beyond = np.maximum(ratio, 1 / ratio) > 1 + both.least_lead_of_other.fillna(0)
    standing = np.select([beyond & (low > 1), beyond & (high < 1)], ["ahead", "behind"], "tie")
    ratio = ratio.mask(both.borrowed | both.borrowed_of_other)
    made = both.assign(ratio=ratio, standing=standing, former=both.not_searched | both.not_searched_of_other)
    return made[["kernel", "problem", "protocol", "ratio", "standing", "former"]]


def _spread_text(pairs: pd.DataFrame) -> str:
    """'0.915° (0.80-1.10), 4 of 12', of the pairs that can be compared among these; °: with some of a former kernel."""
    ratios = pairs.ratio.dropna()
    text = f"{geometric_mean(ratios):.3f}{'°' * bool(pairs.former[ratios.index].any())}" if len(ratios) else ""
    text += f" ({ratios.min():.2f}-{ratios.max():.2f})" if len(ratios) >= LEAST else ""
    return text if len(ratios) == len(pairs) else ", ".join(filter(None, [text, f"{len(ratios)} of {len(pairs)}"]))


def _effects(found: pd.DataFrame, pairs: pd.DataFrame, count: int) -> str:
    """How far apart the languages are at one kernel, and the protocols in one language.

    The former of kernels compared on half of the problems or more, the latter of cells that have all problems; and how
    many of `pairs` are left out of the former.
    """
    apart_texts = []
    ratios = pairs.groupby("kernel", sort=False).ratio.agg([geometric_mean, "count"])
    means = ratios.geometric_mean[2 * ratios["count"] >= count].dropna()
    if len(means):
        apart = means.where(means >= 1, 1 / means)
        of_one = pairs.ratio.where(pairs.ratio >= 1, 1 / pairs.ratio).max()
        told = (
            f"at the same kernel the languages are up to {apart.max():.2f}x apart ({apart.idxmax()}), on one problem "
        )
        apart_texts.append(f"{told}up to {of_one:.2f}x")
    whole = found.geometric_mean[found["size"] == count]
    for language in PAIR:
        of_language = whole[whole.index.get_level_values("language") == language]
        if len(of_language) > 1:
            apart_texts.append(
                f"in {language} the protocols are up to {of_language.max() / of_language.min():.2f}x apart"
            )
    text = "; ".join(apart_texts)
    text = f"Over all problems: {text}. " if text else ""
    if left_out := int(pairs.ratio.isna().sum()):
        text += f"Not compared: {left_out} of {len(pairs)} pairs (kernel and problem), where not both languages ran a "
        text += "config searched for the problem. "
    return text


def cells_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per cell."""
    of_all = lines_of(rows, timing)
    count = of_all.problem.nunique()
    timed = dict(iter(bests(of_all).groupby(CELL, observed=True)))
    lines: list[list[str]] = []
    details: list[str] = []
    for cell, of_cell in contenders(of_all).groupby(CELL, observed=True):
        protocol, language = map(str, cell)
        if (best := timed.get((protocol, language))) is None:
            lines.append([protocol, language, "", "", "", "", "", *_properties(of_cell), _outcome(of_cell)])
            messages = of_cell.message[of_cell.message != ""].unique()
            details += [f"{language} {protocol}: {message}" for message in messages]
            continue
        verdicts = [str((best.verdict == verdict).sum()) for verdict in ("faster", "tie", "slower")]
        lines.append(
            [
                protocol,
                language,
                f"{geometric_mean(best.speedup):.3f}",
                f"{1 / geometric_mean(best.times_floor):.0%}" if best.times_floor.notna().any() else "",
                " / ".join(verdicts),
                count_text(int(best.fastest.sum()), int(best.joint.sum())),
                f"{best.error.max():.2f}" if best.error.notna().any() else "",
                *_properties(best),
                f"{len(best)} of {count}",
            ]
        )
    header = [
        "protocol",
        "language",
        f"times\n{baseline_name(rows)}\n(geometric mean)",
        "share of\nfloor",
        "faster / tie / slower",
    ]
    header += ["fastest\nof all", "error /\ntorch's", "deterministic", "launches", "workspace", "problems"]
    foot = f"{timing}. Share of floor: the time to read the least bytes, over the contender's (geometric mean). Error: "
    foot += f"the largest over problems, as a multiple of {baseline_name(rows)}'s. Workspace: the least to the most "
    foot += "over problems."
    optional = ["workspace", "launches", "error /\ntorch's", "deterministic", "fastest\nof all", "share of\nfloor"]
    return Table("the cells", header, lines, details=details, foot=foot, optional=optional)


def _properties(lines: pd.DataFrame) -> list[str]:
    """Deterministic, launches, workspace."""
    deterministic = "some" if lines.deterministic.nunique() > 1 else "yes" if lines.deterministic.any() else "no"
    launches = "-".join(map(str, sorted(lines.launches.dropna().unique())))
    sizes = lines.workspace_bytes.dropna()
    workspace = " to ".join(dict.fromkeys(_size(size) for size in (sizes.min(), sizes.max()))) if len(sizes) else ""
    return [deterministic, launches, workspace]


def _size(count: float) -> str:
    for unit in ("B", "KiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} MiB"


def problems_table(rows: Sequence[Row], timing: TimingName) -> Table:
    """A line per problem, a column per cell that was timed at all: times the baseline of its fastest contender."""
    _, what, labels = naming(rows)
    of_all = lines_of(rows, timing)
    found = bests(of_all)
    found = found.assign(cell=[speedup_cell(line) for line in found.itertuples()])
    cells = found.pivot(index="problem", columns=CELL, values="cell").sort_index(axis="columns")
    names = of_all.problem.cat.categories
    cells = cells.reindex(names).fillna("")
    lines = [[labels[name], *line] for name, line in zip(names, cells.to_numpy().tolist(), strict=True)]
    baseline = baseline_name(rows)
    header = [what, *(f"{language}\n{protocol}" for protocol, language in cells.columns)]
    foot = f"Times {baseline} ({timing}) of the cell's fastest contender; = a tie with {baseline}; {FASTEST}; "
    foot += f"{NOT_SEARCHED}."
    return Table(f"the cells by {what}", header, lines, foot=foot)
