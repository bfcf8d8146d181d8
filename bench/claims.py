"""What the studies that this project started from claim, each held against the rows that test it.

    python bench/claims.py [--markdown] [FILE ...]

Without FILE: the rows recorded under bench/results, a table a device. Needs no GPU. A claim of one figure is confirmed
where the gain measured is from half to twice the gain claimed, a claim of a range where the median lies in it; other
rules say what they ask. Of contenders that a claim compares, the fastest on each problem counts, and only rows that
were measured together are compared.

A verdict on a suite needs at least half of its problems, each with a config searched for that very problem in every
contender that has configs: where there are fewer, the figures stand and the verdict is 'too few rows'.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

from bench import counters, workloads
from bench.counters import Launch
from bench.journal import BASELINE, PASSED, Row, problem_fields, read_rows
from bench.tables import Table, console, leading_timing, passed, recorded, source_of

CONFIRMED = "confirmed"
CONTRADICTED = "contradicted"
NOT_TESTABLE = "not testable here"
NO_ROWS = "no rows"
FEW_ROWS = "too few rows"  # with searched configs, of less than half of the suite that the claim is about
VERDICTS = (CONFIRMED, CONTRADICTED, NOT_TESTABLE, FEW_ROWS, NO_ROWS)

TILE = "triton/decompose_k.tile"
VECTOR = "triton/decompose_k.vector"
UNFUSED = "triton/decompose_k.vector_unfused"
FUSED_OP = "torch/custom_op.fused"
ANY_OP = "torch/custom_op.*"
COMPILED = "torch/compile.max_autotune_no_cudagraphs"
AS_GRAPH = "torch/compile.max_autotune"
ATOMIC = "triton/atomic*"


@dataclass(frozen=True)
class Source:
    name: str
    url: str


STUDY = Source("decompose-K", "https://shreyansh26.github.io/post/2026-06-21_decompose-k-triton/")
TUTORIAL = Source("tilus split-K tutorial", "https://github.com/NVIDIA/tilus/blob/v0.2.0/examples/matmul/matmul_v5.py")
OR_REDUCE = Source("OR reduction", "https://notgum.com/post/manual-unrolling-beats-tl.reduce-for-small-k/")
W4A16 = Source("W4A16 SplitK", "https://arxiv.org/abs/2402.00025")
GENERATED = Source(
    "generated kernels",
    "https://next.redhat.com/2026/02/12/from-hand-tuned-to-generated-a-reproducible-triton-gpu-kernel-benchmark-across-different-vendors",
)


@dataclass(frozen=True)
class Finding:
    """problems: of how many it is with configs searched for them, where it tells something of a suite."""

    measured: str
    verdict: str
    problems: int | None = None


class Untested(Exception):
    """Why rows do not test a claim. verdict: NO_ROWS, or NOT_TESTABLE where there are rows, but without figures."""

    def __init__(self, message: str, verdict: str = NO_ROWS):
        super().__init__(message)
        self.verdict = verdict


@dataclass(frozen=True)
class Rule:
    """text: what is asked, for a reader. contenders: patterns of those it is asked of. of: their rows, or what ncu
    counted of their launches, in the order of their times -> Finding; raises Untested."""

    text: str
    of: Callable[[Sequence[Row]], Finding] | Callable[[Sequence[Launch]], Finding]
    contenders: tuple[str, ...] = ()
    of_launches: bool = False


@dataclass(frozen=True)
class Claim:
    """rule, and the rows that test it: those of the rule's contenders, of this workload (a pattern), and of such a
    problem."""

    text: str
    source: Source
    rule: Rule
    workload: str = "*"
    problem: Callable[[Mapping[str, Any]], bool] = lambda problem: True

    def rows(self, rows: Sequence[Row] | Sequence[Launch]) -> list[Row] | list[Launch]:
        """Those that test it, in the order of their times: a file that is read later need not be a later one."""
        testing = (
            row
            for row in rows
            if fnmatchcase(row.workload, self.workload)
            and any(_matches(row, pattern) for pattern in self.rule.contenders)
            and self.problem(row.problem)
        )
        return sorted(testing, key=lambda row: row.time)

    @property
    def selection(self) -> str:
        """The rows that test it, for a reader."""
        if not self.rule.contenders:
            return ""
        names = ", ".join(f"`{pattern}`" for pattern in self.rule.contenders)
        counted = ", counters" if self.rule.of_launches else ""
        return f"{'any' if self.workload == '*' else self.workload}{counted}: {names}"

    def finding(self, rows: Sequence[Row], launches: Sequence[Launch] = ()) -> Finding:
        try:
            finding = self.rule.of(self.rows(launches if self.rule.of_launches else rows))
        except Untested as untested:
            return Finding(str(untested), untested.verdict)
        few = finding.problems is not None and 2 * finding.problems < self.asked
        return replace(finding, verdict=FEW_ROWS) if few else finding

    @property
    def asked(self) -> int:
        """How many problems of its suites it is about; 0 of a workload that is none."""
        return sum(
            self.problem(problem_fields(problem))
            for suite in workloads.SUITES
            if fnmatchcase(suite.name, self.workload)
            for _, problem in workloads.problems(suite.name)
        )


# Parts of rules.

Figures = Mapping[str, Any]  # of one timing of a row


@dataclass(frozen=True)
class Compared:
    """One problem: how many times as fast the one was as the other; verdict 'tie' where the intervals of their
    speed-ups over torch.mm overlap, else 'ahead' or 'behind'; searched: what either ran, where it has configs, was
    searched for this problem."""

    problem: str
    ratio: float
    verdict: str
    searched: bool


def compared(rows: Sequence[Row], one: str, other: str, one_config: bool = False) -> list[Compared]:
    """The fastest of `one` against the fastest of `other` on each problem, in the last measurement where both passed;
    with `one_config`, with the same config. Raises Untested."""
    firsts, seconds = fastest(rows, one), fastest(rows, other)
    found = {}
    for measured in [measured for measured in firsts if measured in seconds]:
        (one_row, first), (other_row, second) = firsts[measured], seconds[measured]
        if one_config and one_row.config != other_row.config:
            continue
        searched = not (one_row.not_searched or other_row.not_searched)
        problem = one_row.problem["name"]
        found[problem] = Compared(problem, first["speedup"] / second["speedup"], _standing(first, second), searched)
    if not found:
        shared = f"no problem{' and config' * one_config} in common that was measured together"
        raise Untested(f"{one} and {other} have {shared}")
    return list(found.values())


def _standing(first: Figures, second: Figures) -> str:
    if first["speedup_low"] > second["speedup_high"]:
        return "ahead"
    return "behind" if first["speedup_high"] < second["speedup_low"] else "tie"


def latest(rows: Sequence[Row]) -> list[Row]:
    """Of two rows of one contender on one problem the last."""
    return list({(row.problem["name"], row.contender): row for row in rows}.values())


def _matches(row: Row, pattern: str) -> bool:
    """'name', or 'name protocol'. Of a split that was asked for, 'name@s4', only where the pattern says so too."""
    name, _, protocol = pattern.partition(" ")
    meant = "@" in name or "@" not in row.contender
    return meant and fnmatchcase(row.contender, name) and protocol in ("", row.protocol)


def fastest(rows: Sequence[Row], pattern: str) -> dict[tuple[str, str], tuple[Row, Figures]]:
    """By measurement, the row of the fastest contender of this pattern, and its figures. Raises Untested."""
    of = [row for row in rows if _matches(row, pattern)]
    if not of:
        raise Untested(f"no rows of {pattern}")
    timing = leading_timing(of)
    best: dict[tuple[str, str], tuple[Row, Figures]] = {}
    for row in passed(of, timing):
        figures, measurement = row.timing[timing], row.measurement
        if measurement not in best or _us(figures) < _us(best[measurement][1]):
            best[measurement] = row, figures
    if not best:
        raise Untested(f"{of[-1].contender} {of[-1].status}: {of[-1].message}", NOT_TESTABLE)
    return best


def spread(found: Sequence[Compared]) -> str:
    """'median 1.03x (0.99-1.08), ahead on 26 of 28, 1 tie; 3 with a config not searched for the shape'."""
    ratios, verdicts = [one.ratio for one in found], [one.verdict for one in found]
    text = f"median {median(ratios):.3f}x ({min(ratios):.2f}-{max(ratios):.2f}), ahead on {verdicts.count('ahead')}"
    ties = verdicts.count("tie")
    text = f"{text} of {len(found)}" + (f", {ties} tie{'s' * (ties > 1)}" if ties else "")
    return text + borrowed(len(found) - searched(found))


def borrowed(count: int) -> str:
    return f"; {count} with a config not searched for the shape" if count else ""


def searched(found: Sequence[Compared]) -> int:
    return sum(one.searched for one in found)


def verdict_of(holds: bool) -> str:
    return CONFIRMED if holds else CONTRADICTED


def never_ahead(one: str, other: str) -> Rule:
    def of(rows: Sequence[Row]) -> Finding:
        found = compared(rows, one, other)
        return Finding(spread(found), verdict_of(all(on.verdict != "ahead" for on in found)), searched(found))

    return Rule("ahead on none", of, (one, other))


def ahead(one: str, other: str, share: float = 0.85) -> Rule:
    def of(rows: Sequence[Row]) -> Finding:
        found = compared(rows, one, other)
        holds = sum(on.verdict == "ahead" for on in found) >= share * len(found)
        return Finding(spread(found), verdict_of(holds), searched(found))

    return Rule(f"ahead on {share:.0%} of the problems or more", of, (one, other))


def within(
    one: str,
    other: str,
    low: float,
    high: float,
    statistic: Callable[[Sequence[float]], float] = median,
    one_config: bool = False,
) -> Rule:
    def of(rows: Sequence[Row]) -> Finding:
        found = compared(rows, one, other, one_config)
        value = statistic([on.ratio for on in found])
        told = "" if statistic is median else f"{_NAMES[statistic]} {value:.3f}x, "
        return Finding(told + spread(found), verdict_of(low <= value <= high), searched(found))

    asked = f"{_NAMES[statistic]} {low:.3g}x to {high:.3g}x{', of one config' * one_config}"
    return Rule(asked, of, (one, other))


def _by_quick_effort(rule: Rule) -> Rule:
    """Of Helion's rows: what its search may spend decides more than the language does."""
    return replace(rule, text=f"{rule.text}, by Helion's quick effort")


_NAMES = {median: "median", mean: "mean", geometric_mean: "geometric mean", max: "largest"}


def about(one: str, other: str, claimed: float, statistic: Callable[[Sequence[float]], float] = median) -> Rule:
    return within(one, other, *_around(claimed), statistic)


def _around(claimed: float) -> tuple[float, float]:
    """From half to twice the claimed gain over 1, or loss under it."""
    half, twice = 1 + (claimed - 1) / 2, 1 + (claimed - 1) * 2
    return min(half, twice), max(half, twice)


def counted_about(one: str, other: str, claimed: Mapping[str, float]) -> Rule:
    """claimed: by metric of bench.counters, how many times the other's it is, in one launch of one kernel each."""

    def of(launches: Sequence[Launch]) -> Finding:
        values = {launch.contender: launch.metrics for launch in launches if launch.status == PASSED}
        if missing := {one, other} - values.keys():
            raise Untested(f"no counters of {', '.join(sorted(missing))}")
        ratios = {}
        for metric in claimed:
            pair = [values[name].get(metric) for name in (one, other)]
            if None in pair:
                raise Untested(f"ncu could not count {metric}", NOT_TESTABLE)
            ratios[metric] = pair[0] / pair[1]
        within_reach = [_around(claimed[metric]) for metric in claimed]
        holds = [low <= ratio <= high for ratio, (low, high) in zip(ratios.values(), within_reach, strict=True)]
        told = ", ".join(f"{metric.removesuffix('_pct')} {ratio:.2f}x" for metric, ratio in ratios.items())
        return Finding(told, verdict_of(all(holds)))

    asked = ", ".join(
        f"{metric.removesuffix('_pct')} {low:.3g}x to {high:.3g}x"
        for metric, (low, high) in ((metric, _around(times)) for metric, times in claimed.items())
    )
    return Rule(asked, of, (one, other), of_launches=True)


def only_on(gpu: str, rule: Rule) -> Rule:
    """The same of rows from such a GPU, and of no others."""

    def of(rows: Sequence[Row] | Sequence[Launch]) -> Finding:
        there = [row for row in rows if gpu in row.environment["device"]]
        if not there:
            raise Untested(f"no rows from an {gpu}", NOT_TESTABLE)
        return rule.of(there)

    return replace(rule, text=f"on an {gpu}: {rule.text}", of=of)


def not_testable(why: str) -> Rule:
    def of(rows: Sequence[Row]) -> Finding:
        raise Untested(why, NOT_TESTABLE)

    return Rule("", of)


# Rules of one claim.


def _winning_splits(rows: Sequence[Row]) -> Finding:
    """Of 'won by no split; compiled to ...' the winner alone: what it was compiled to may tell of a split too."""
    told = [re.match(r"won by ([^;]+)", row.message) for row in latest(rows) if row.status == PASSED]
    won = Counter(match[1] for match in told if match)
    if not won:
        raise Untested(f"no row of {FUSED_OP} tells its winner")
    text = ", ".join(f"{winner} on {count}" for winner, count in won.most_common())
    return Finding(text, verdict_of(won.keys() <= {"split 64", "split 128"}), won.total())


def _over_torch(
    rows: Sequence[Row], contenders: Sequence[str], dtypes: Sequence[str]
) -> dict[tuple[str, str], list[Compared]]:
    """By dtype and contender, against torch.mm: of the shapes that all of them were measured on, in all dtypes."""
    by_dtype = {dtype: [row for row in rows if row.problem["dtype"] == dtype] for dtype in dtypes}
    if missing := [dtype for dtype, of_dtype in by_dtype.items() if not of_dtype]:
        raise Untested(f"no rows in {' and '.join(missing)}")
    shapes = {row.problem["name"]: tuple(row.problem[size] for size in ("m", "n", "k")) for row in rows}
    found = {
        (dtype, contender): {shapes[on.problem]: on for on in compared(of_dtype, contender, BASELINE)}
        for dtype, of_dtype in by_dtype.items()
        for contender in contenders
    }
    common = set.intersection(*(set(by_shape) for by_shape in found.values()))
    if not common:
        raise Untested(f"no shape in common in {' and '.join(dtypes)}")
    return {which: [by_shape[shape] for shape in sorted(common)] for which, by_shape in found.items()}


def _on_shapes(found: Mapping[tuple[str, str], Sequence[Compared]]) -> tuple[str, int]:
    """'on 11 shapes; 5 with ...', and the problems, over all dtypes, of those that were searched for in each."""
    shapes = list(zip(*found.values(), strict=True))
    in_all = sum(searched(of_shape) == len(of_shape) for of_shape in shapes)
    dtypes = {dtype for dtype, _ in found}
    return f"on {len(shapes)} shapes{borrowed(len(shapes) - in_all)}", len(dtypes) * in_all


def _medians(found: Mapping[Any, Sequence[Compared]]) -> dict[Any, float]:
    return {which: median(on.ratio for on in of) for which, of in found.items()}


def _two_dtypes(first: str, second: str, holds: Callable[[float, float], bool]) -> Callable[[Sequence[Row]], Finding]:
    """Of the medians of VECTOR over torch.mm in each dtype."""

    def of(rows: Sequence[Row]) -> Finding:
        found = _over_torch(rows, (VECTOR,), (first, second))
        medians = _medians(found)
        told = ", ".join(f"{dtype} {middle:.3f}x" for (dtype, _), middle in medians.items())
        on_shapes, problems = _on_shapes(found)
        return Finding(f"median over torch.mm: {told}, {on_shapes}", verdict_of(holds(*medians.values())), problems)

    return of


def _same_order(rows: Sequence[Row]) -> Finding:
    """Of STUDIED by their medians over torch.mm, in bf16 and in fp32."""
    dtypes = "bf16", "fp32"
    found = _over_torch(rows, STUDIED, dtypes)
    medians = _medians(found)
    orders = [sorted(STUDIED, key=lambda contender: -medians[dtype, contender]) for dtype in dtypes]
    told = [
        f"{dtype}: {', '.join(f'{contender} {medians[dtype, contender]:.3f}x' for contender in order)}"
        for dtype, order in zip(dtypes, orders, strict=True)
    ]
    on_shapes, problems = _on_shapes(found)
    return Finding(f"{'; '.join(told)}; {on_shapes}", verdict_of(orders[0] == orders[1]), problems)


def _errors(rows: Sequence[Row]) -> Finding:
    """Against the row of torch.mm, which multiplies in the same dtypes: the measure in the rows, torch's own answer, is
    for an fp32 output that of inputs made fp32."""
    found: dict[str, dict[str, float]] = {VECTOR: {}, BASELINE: {}}
    for row in latest(rows):
        if row.accuracy.get("times_torch") is not None:
            found[row.contender][row.problem["name"]] = row.accuracy["times_torch"]
    vector, library = found[VECTOR], found[BASELINE]
    errors = [error / library[name] for name, error in vector.items() if name in library]
    if not errors:
        raise Untested(f"no rows of {VECTOR} beside {BASELINE}")
    text = f"error {max(errors):.2f} times torch.mm's at most, median {median(errors):.2f}, on {len(errors)} problems"
    return Finding(text, verdict_of(max(errors) <= 1.1))


def _tiles(rows: Sequence[Row]) -> Finding:
    of_search = [row for row in latest(rows) if row.config and row.config_source in ("tuned", "search")]
    tiles = {
        size: Counter(
            f"{row.config['block_m']}x{row.config['block_n']}" for row in of_search if row.problem["m"] == size
        )
        for size in (16, 64)
    }
    if not all(tiles.values()):
        raise Untested(f"no rows of {VECTOR} with a config searched for M = N = 16 and 64")
    text = "; ".join(
        f"M = N = {size}: {', '.join(f'{tile} on {count}' for tile, count in of.most_common())}"
        for size, of in tiles.items()
    )
    holds = set(tiles[16]) == {"16x16"} and set(tiles[64]) <= {"64x32", "64x64"}
    return Finding(text, verdict_of(holds), sum(of.total() for of in tiles.values()))


def _relu_apart(rows: Sequence[Row]) -> Finding:
    if not rows:
        raise Untested("no rows of torch/compile")
    ran = [row for row in latest(rows) if row.status == PASSED]
    chose = [row for row in ran if "decompose-K" in row.message]
    if not chose:
        raise Untested("Inductor chose decompose-K on none of the problems", NOT_TESTABLE)
    apart = sum(bool(re.search(r"triton_poi_\w*relu", row.message)) for row in chose)
    text = f"of {len(chose)} programs with decompose-K {apart} have a kernel of their own for ReLU"
    return Finding(text, verdict_of(apart == len(chose)), len({row.problem["name"] for row in ran}))


def _atomic_fuses(rows: Sequence[Row]) -> Finding:
    if not rows:
        raise Untested(f"no rows of {ATOMIC}")
    asked = latest(rows)
    fused = [row for row in asked if row.status == PASSED and row.launches == 1]
    text = f"right with ReLU in its one launch: {len(fused)} of {len(asked)} rows"
    return Finding(text, verdict_of(not fused))


def _crossover(rows: Sequence[Row]) -> Finding:
    """VECTOR is behind torch.mm at the largest M = N and at the smallest K, and ahead in between."""
    sizes = {row.problem["name"]: row.problem for row in rows}
    found = compared(rows, VECTOR, BASELINE)
    by_size = sorted((sizes[on.problem]["m"], on.verdict) for on in found if sizes[on.problem]["k"] == 8192)
    by_depth = sorted((sizes[on.problem]["k"], on.verdict) for on in found if sizes[on.problem]["m"] == 64)
    if not by_size or not by_depth:
        raise Untested(f"no rows of {VECTOR} at K = 8192 and at M = N = 64")
    ahead_sizes = [size for size, verdict in by_size if verdict == "ahead"]
    ahead_depths = [depth for depth, verdict in by_depth if verdict == "ahead"]
    told = [
        f"at K = 8192 ahead of torch.mm up to M = N = {max(ahead_sizes)}" if ahead_sizes else "ahead at no M = N",
        f"at M = N = 64 from K = {min(ahead_depths)}" if ahead_depths else "ahead at no K",
    ]
    holds = by_size[-1][1] == by_depth[0][1] == "behind" and ahead_sizes and ahead_depths
    return Finding(", ".join(told) + borrowed(len(found) - searched(found)), verdict_of(bool(holds)), searched(found))


def _do_bench(rows: Sequence[Row]) -> Finding:
    import triton.testing

    document = triton.testing.do_bench.__doc__ or ""
    told = re.findall(r":param (warmup|rep): (.*)", document)
    if not told:
        raise Untested("this Triton does not document do_bench", NOT_TESTABLE)
    timed = [name for name, meaning in told if re.search(r"\bms\b|milliseconds", meaning)]
    text = f"Triton documents {' and '.join(timed)} as times in milliseconds" if timed else "not said to be times"
    return Finding(text, verdict_of(not timed))


def _clean(rows: Sequence[Row]) -> Finding:
    try:
        from tilus import Script
    except ImportError as error:
        raise Untested(f"tilus cannot be imported: {error}", NOT_TESTABLE) from None
    document = " ".join((Script.global_tensor.__doc__ or "").split())
    if "requires_clean" not in document:
        raise Untested("this tilus does not document requires_clean", NOT_TESTABLE)
    left_to_kernel = "require the kernel to reset the global tensor" in document
    text = "tilus documents that the kernel has to reset it" if left_to_kernel else "not said to be left to the kernel"
    return Finding(text, verdict_of(not left_to_kernel))


def _by_split(rows: Sequence[Row]) -> dict[str, dict[int, Figures]]:
    """By problem and split, the figures of the fastest of the contenders '...@sN', in the last measurement that has one
    split."""
    timing = leading_timing(rows)
    together: dict[tuple[str, str], dict[int, Figures]] = {}
    for row in passed(rows, timing):
        split, figures = int(row.contender.rpartition("@s")[2]), row.timing[timing]
        of = together.setdefault(row.measurement, {})
        of[split] = min(of.get(split, figures), figures, key=_us)
    found = {problem: of for (problem, _), of in together.items() if 1 in of}
    if not found:
        raise Untested("no rows of several splits, one among them")
    return found


def _us(figures: Figures) -> float:
    return figures["median_us"]


def _best_of(of: Mapping[int, Figures]) -> int:
    return min(of, key=lambda split: _us(of[split]))


def _splitting_pays(rows: Sequence[Row]) -> Finding:
    found, told, holds = _by_split(rows), [], True
    for problem, of in found.items():
        best = _best_of(of)
        told.append(f"{problem}: {best} splits, {of[best]['speedup'] / of[1]['speedup']:.2f}x one")
        holds = holds and _standing(of[best], of[1]) == "ahead"
    return Finding("; ".join(told), verdict_of(holds))


def _best_split_is(expected: int) -> Callable[[Sequence[Row]], Finding]:
    def of(rows: Sequence[Row]) -> Finding:
        splits = Counter(map(_best_of, _by_split(rows).values()))
        text = ", ".join(f"split {split} on {count}" for split, count in splits.most_common())
        holds = all(splits[expected] > splits[split] for split in splits if split != expected)
        return Finding(text, verdict_of(holds), splits.total())

    return of


def _more_splits_lose(rows: Sequence[Row]) -> Finding:
    """At each M, 16 splits against 4, from the smallest N = K to the largest."""
    sizes = {row.problem["name"]: (row.problem["m"], row.problem["n"]) for row in rows}
    found = {sizes[problem]: of for problem, of in _by_split(rows).items() if {4, 16} <= of.keys()}
    told, holds = [], True
    for m in sorted({m for m, _ in found}):
        of_m = [found[size] for size in sorted(found) if size[0] == m]
        ratios = [of[16]["speedup"] / of[4]["speedup"] for of in of_m]
        told.append(f"M = {m}: {', '.join(f'{ratio:.2f}x' for ratio in ratios)}")
        holds = holds and ratios[-1] < ratios[0] and _standing(of_m[-1][16], of_m[-1][4]) == "behind"
    if not told:
        raise Untested("no rows of 4 and 16 splits")
    return Finding(f"by N = K, 16 splits over 4: {'; '.join(told)}", verdict_of(holds), len(found))


def _repeats_equal(rows: Sequence[Row]) -> Finding:
    ran = [row for row in latest(rows) if row.status == PASSED and row.bitwise_equal is not None]
    if not ran:
        raise Untested("no rows of tilus/semaphore")
    equal = sum(row.bitwise_equal for row in ran)
    return Finding(f"repeats bitwise equal on {equal} of {len(ran)} rows", verdict_of(equal == len(ran)))


def tile_of(program: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """The tile that a program computes, of rows x columns of them: in groups of so many rows, each column by column."""
    first, place = program // (group * columns) * group, program % (group * columns)
    height = min(rows - first, group)
    return first + place % height, place // height


def _blocks_loaded(rows: Sequence[Row]) -> Finding:
    """Of matrices of 9 x 9 blocks, what the first 9 programs read: of A each row, of B each column that they are in."""

    def loaded(group: int) -> tuple[int, int]:
        tiles = [tile_of(program, 9, 9, group) for program in range(9)]
        return 9 * len({row for row, _ in tiles}), 9 * len({column for _, column in tiles})

    by_row, grouped = loaded(1), loaded(3)
    fewer = sum(by_row) - sum(grouped)
    text = f"row by row {by_row[0]} + {by_row[1]}, in groups of 3 rows {grouped[0]} + {grouped[1]}, {fewer} fewer"
    return Finding(text, verdict_of((by_row, grouped) == ((9, 81), (27, 27))))


def _compute_bound(rows: Sequence[Row]) -> Finding:
    """A kernel that is bound by computing reaches about the same TFLOPS at any T."""
    timing = leading_timing(rows)
    best: dict[int, float] = {}
    for row in passed(rows, timing):
        tflops = row.problem["flops"] / row.timing[timing]["median_us"] / 1e6
        best[row.problem["m"]] = max(tflops, best.get(row.problem["m"], 0.0))
    if len(best) < 2:
        raise Untested("no rows of the router at several T")
    few, many = min(best), max(best)
    text = f"router: {best[few]:.2g} TFLOPS at T = {few}, {best[many]:.3g} at T = {many}, the fastest of all"
    return Finding(text, verdict_of(best[few] > best[many] / 2))


EPILOGUE = "skinny-epilogue-bf16"
PLAIN = "skinny-matmul-bf16"
SWEEP = "square-generated"
REDUCED, UNROLLED = "triton/or_reduce.reduce", "triton/or_reduce.unrolled"
SPLIT_K, DATA_PARALLEL = "triton/w4a16* atomic", "triton/w4a16* none"
VECTOR_AND_MM = (VECTOR, BASELINE)
STUDIED = (VECTOR, ANY_OP, COMPILED, BASELINE)
NSIGHT = "M = 16, N = K = 4096"
COUNTED = "triton/w4a16.atomic", "triton/w4a16.data_parallel"


def _nsight_case(problem: Mapping[str, Any]) -> bool:
    """The one that the W4A16 study counted."""
    return (problem["m"], problem["n"], problem["k"]) == (16, 4096, 4096)


def _of_modes(problem: Mapping[str, Any]) -> bool:
    """Those on which the decompose-K study compared modes: three shapes, of all its suites but fp16's."""
    corners = ((16, 8192), (32, 16384), (64, 32768))
    return problem["dtype"] != "fp16" and (problem["m"], problem["k"]) in corners


CLAIMS = (
    Claim(
        "With ReLU, the tile-shaped reducer loses to custom-op autotuning on every shape (0 of 28, median 0.917x)",
        STUDY,
        never_ahead(TILE, FUSED_OP),
        EPILOGUE,
    ),
    Claim(
        "Without an epilogue, the tile-shaped reducer loses on every shape too (0 of 28, median 0.920x)",
        STUDY,
        never_ahead(TILE, ANY_OP),
        PLAIN,
    ),
    Claim(
        "With ReLU, the vector reducer beats custom-op autotuning (26 of 28 and a tie, median 1.026x)",
        STUDY,
        ahead(VECTOR, FUSED_OP),
        EPILOGUE,
    ),
    Claim(
        "Without an epilogue, the vector reducer beats it too (24 of 28 and 2 ties, median 1.022x)",
        STUDY,
        ahead(VECTOR, ANY_OP),
        PLAIN,
    ),
    Claim(
        "The reducer's shape, each with a config of its own, moves the median by roughly 11% (0.917x to 1.026x)",
        STUDY,
        about(VECTOR, TILE, 1.026 / 0.917),
        EPILOGUE,
    ),
    Claim(
        "ReLU fused into the reducer's store is worth 1.19x to 1.4x",
        STUDY,
        within(VECTOR, UNFUSED, 1.19, 1.4, one_config=True),
        EPILOGUE,
    ),
    Claim(
        "Fused decompose-K is 1.5x to 1.7x as fast as eager torch.mm and ReLU",
        STUDY,
        within(VECTOR, BASELINE, 1.5, 1.7),
        EPILOGUE,
    ),
    Claim(
        "Fused decompose-K is 1.2x to 1.4x as fast as torch.mm and ReLU compiled",
        STUDY,
        within(VECTOR, COMPILED, 1.2, 1.4),
        EPILOGUE,
    ),
    Claim(
        "Of torch.compile's modes max-autotune-no-cudagraphs is the best, edging out max-autotune",
        STUDY,
        ahead(COMPILED, AS_GRAPH, 0.5),
        "skinny-*",
        _of_modes,
    ),
    Claim(
        "What custom-op autotuning chooses has 64 or 128 splits on the whole grid",
        STUDY,
        Rule("every winner has 64 or 128 splits", _winning_splits, (FUSED_OP,)),
        EPILOGUE,
    ),
    Claim(
        "fp16 matches bf16 closely",
        STUDY,
        Rule(
            "medians within 5%",
            _two_dtypes("bf16", "fp16", lambda bf16, fp16: abs(bf16 / fp16 - 1) <= 0.05),
            VECTOR_AND_MM,
        ),
        "skinny-matmul-*",
        lambda problem: problem["dtype"] in ("bf16", "fp16"),
    ),
    Claim(
        "fp32 has less to gain than bf16",
        STUDY,
        Rule("a smaller median", _two_dtypes("bf16", "fp32", lambda bf16, fp32: fp32 < bf16), VECTOR_AND_MM),
        "skinny-matmul-*",
        lambda problem: problem["dtype"] in ("bf16", "fp32"),
    ),
    Claim(
        "In fp32 eager, compiled, autotuned and hand-written stand in the same order as in bf16",
        STUDY,
        Rule("medians over torch.mm in one order", _same_order, STUDIED),
        "skinny-matmul-*",
        lambda problem: problem["dtype"] in ("bf16", "fp32"),
    ),
    Claim(
        "With fp32 partials the split costs no accuracy",
        STUDY,
        Rule("error at most 1.1 times torch.mm's", _errors, VECTOR_AND_MM),
    ),
    Claim(
        "Small M = N take 16x16 tiles, M = N = 64 takes 64x32 or 64x64",
        STUDY,
        Rule("all of the searched configs", _tiles, (VECTOR,)),
        "skinny-*-bf16",
        lambda problem: problem["m"] in (16, 64),
    ),
    Claim(
        "Where Inductor chooses decompose-K it leaves ReLU a kernel of its own",
        STUDY,
        Rule(
            "in every program with decompose-K",
            _relu_apart,
            ("torch/compile.max_autotune*", "torch/compile.decompose_k"),
        ),
        EPILOGUE,
    ),
    Claim(
        "Splits that add atomically cannot take an epilogue along",
        STUDY,
        Rule("no row is right in one launch", _atomic_fuses, (ATOMIC,)),
        EPILOGUE,
    ),
    Claim(
        "Decompose-K does not pay where M and N are large, or K is small",
        STUDY,
        Rule("behind torch.mm at both ends, ahead between", _crossover, VECTOR_AND_MM),
        "crossover",
    ),
    Claim(
        "One launch that adds atomically beats the two launches (28 of 28, median 1.045x; there in TLX)",
        STUDY,
        ahead(ATOMIC, VECTOR),
        PLAIN,
    ),
    Claim(
        "do_bench(warmup=10, rep=50) runs 10 times to warm up, and 50 times to measure",
        STUDY,
        Rule("by Triton's own documentation", _do_bench),
    ),
    Claim(
        "Past Dynamo's recompile limit of 8, later shapes are timed eagerly under a compiled name",
        STUDY,
        not_testable(
            "every row is made after a reset of Dynamo; shown by a test: "
            "tests/test_references.py, test_without_a_reset_dynamo_falls_back_to_eager_and_says_nothing"
        ),
    ),
    Claim(
        "Splitting K pays where M and N are small and K is deep",
        TUTORIAL,
        Rule("the fastest split is ahead of one split", _splitting_pays, ("tilus/semaphore.*@s*",)),
    ),
    Claim(
        "The semaphore makes the blocks of a tile add in order",
        TUTORIAL,
        Rule("every repeat bitwise equal", _repeats_equal, ("tilus/semaphore.*", "tilus/semaphore.*@s*")),
    ),
    Claim(
        "requires_clean zeroes a global tensor before each launch",
        TUTORIAL,
        Rule("by tilus' own documentation", _clean),
    ),
    Claim(
        "tl.reduce is about 2.5x slower than unrolled loads",
        OR_REDUCE,
        about(UNROLLED, REDUCED, 2.5),
        "or_reduce-int64",
    ),
    Claim(
        "tl.reduce is up to 3.5x slower for a small K known when compiling",
        OR_REDUCE,
        about(UNROLLED, REDUCED, 3.5, max),
        "or_reduce-int64",
    ),
    Claim(
        "At K = 4 there is little or nothing to gain (1.01x and 1.19x)",
        OR_REDUCE,
        within(UNROLLED, REDUCED, 0.8, 1.19),
        "or_reduce-int64",
        lambda problem: problem["k"] == 4,
    ),
    Claim(
        "A constant tile shows the same slowdown: it is the reduction, not the loads",
        OR_REDUCE,
        about("triton/or_reduce.control_unrolled", "triton/or_reduce.control_reduce", 2.5),
        "or_reduce-control",
    ),
    Claim(
        "SplitK is 124% faster than data parallel on average on an H100",
        W4A16,
        about(SPLIT_K, DATA_PARALLEL, 2.24, mean),
        "w4a16-square",
    ),
    Claim(
        "SplitK is 295% faster than data parallel at its peak",
        W4A16,
        about(SPLIT_K, DATA_PARALLEL, 3.95, max),
        "w4a16-square",
    ),
    Claim(
        "The best split on an H100 is 8",
        W4A16,
        Rule("on more problems than any other", _best_split_is(8), ("triton/w4a16*@s*",)),
        "w4a16-square",
    ),
    Claim(
        "SplitK is 65% faster than data parallel on average on an A100",
        W4A16,
        only_on("A100", about(SPLIT_K, DATA_PARALLEL, 1.65, mean)),
        "w4a16-square",
    ),
    Claim(
        "The best split on an A100 is 4",
        W4A16,
        only_on("A100", Rule("on more problems than any other", _best_split_is(4), ("triton/w4a16*@s*",))),
        "w4a16-square",
    ),
    Claim(
        "On an A100 SplitK has 61% more waves per SM",
        W4A16,
        only_on("A100", counted_about(*COUNTED, {"waves": 1.61})),
        "w4a16*",
        _nsight_case,
    ),
    Claim(
        "From 4 splits to 16 more is lost the larger N = K (seen on an A100)",
        W4A16,
        Rule(
            "at each M 16 are behind 4 at the largest N = K, and further than at the smallest",
            _more_splits_lose,
            ("triton/w4a16*@s*",),
        ),
        "w4a16-square",
    ),
    Claim("An A100 of less bandwidth gains more", W4A16, not_testable("takes rows of two models of A100")),
    Claim(
        "SplitK gains more on a GPU of more SMs", W4A16, not_testable("takes rows of two models of GPU, side by side")
    ),
    Claim(
        f"SplitK is 1.90 times as fast as data parallel (27.90 and 52.93 us; {NSIGHT})",
        W4A16,
        about(SPLIT_K, DATA_PARALLEL, 52.93 / 27.90),
        "w4a16-square",
        _nsight_case,
    ),
    Claim(
        f"SplitK has 1.94 times the memory throughput (313 and 161 GB/s; {NSIGHT})",
        W4A16,
        counted_about(*COUNTED, {"dram_pct": 313 / 161}),
        "w4a16*",
        _nsight_case,
    ),
    Claim(
        f"SplitK doubles the SMs' utilization and has nearly four times the occupancy ({NSIGHT})",
        W4A16,
        counted_about(*COUNTED, {"sm_pct": 43.05 / 20.75, "occupancy_pct": 27.75 / 7.55}),
        "w4a16*",
        _nsight_case,
    ),
    Claim(
        f"SplitK launches four times as many blocks ({NSIGHT})",
        W4A16,
        counted_about(*COUNTED, {"grid_blocks": 4.0}),
        "w4a16*",
        _nsight_case,
    ),
    Claim(
        "Grouped program order loads 27 + 27 blocks instead of 9 + 81, 36 fewer",
        GENERATED,
        Rule("by counting", _blocks_loaded),
    ),
    Claim(
        "Matrix multiplication is bound by computing",
        GENERATED,
        Rule("at few T at least half the TFLOPS of many T", _compute_bound, ("*",)),
        "router",
    ),
    Claim(
        "Triton's tutorial kernel has 0.85x of eager's speed over the sweep on an H100",
        GENERATED,
        within("triton/tiled*", BASELINE, 0.765, 0.935, geometric_mean),
        SWEEP,
    ),
    Claim(
        "torch.compile has 0.998x of eager's speed over the sweep on an H100",
        GENERATED,
        within("torch/compile.default", BASELINE, 0.9, 1.1, geometric_mean),
        SWEEP,
    ),
    Claim(
        "torch.compile with max-autotune, of Triton's templates alone, has 0.884x",
        GENERATED,
        within("torch/compile.triton_templates", BASELINE, 0.796, 0.972, geometric_mean),
        SWEEP,
    ),
    Claim(
        "Helion has 0.93x of eager's speed over the sweep on an H100",
        GENERATED,
        _by_quick_effort(within("helion/*", BASELINE, 0.837, 1.023, geometric_mean)),
        SWEEP,
    ),
)


def table(rows: Sequence[Row], launches: Sequence[Launch] = ()) -> Table:
    """Every claim with its finding in these rows, and in what ncu counted of these launches."""
    lines, verdicts = [], []
    for claim in CLAIMS:
        finding = claim.finding(rows, launches)
        verdicts.append(finding.verdict)
        asked = [claim.source.name, claim.selection, claim.rule.text]
        lines.append([claim.text, *asked, finding.measured, finding.verdict])
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts]
    sources = dict.fromkeys(claim.source for claim in CLAIMS)
    foot = f"{', '.join(counts)}. Sources: {', '.join(f'{source.name} {source.url}' for source in sources)}. "
    foot += "Claims of an H100 are held against rows of this device; figures of an A100 take rows of one. "
    foot += f"{source_of(rows)}."
    return Table("claims", ["claim", "source", "rows", "confirmed where", "measured", "verdict"], lines, foot=foot)


def recorded_tables() -> list[Table]:
    """A table a device of which rows are checked in."""
    devices: dict[str, list[Row]] = {}
    for path, rows in recorded().items():
        devices.setdefault(path.parent.name, []).extend(rows)
    launches: dict[str, list[Launch]] = {}
    for path, of_file in counters.recorded("*").items():
        launches.setdefault(path.parent.parent.name, []).extend(of_file)
    return [table(rows, launches.get(device, [])) for device, rows in devices.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", help="rows that bench/compare.py wrote")
    parser.add_argument("--markdown", action="store_true", help="for a page instead of a terminal")
    args = parser.parse_args(arguments)
    try:
        rows = [row for file in args.file for row in read_rows(file)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if args.file and not rows:
        parser.error(f"no rows in {', '.join(args.file)}")
    shown = [table(rows)] if rows else recorded_tables()
    if not shown:
        parser.error("no rows are checked in under bench/results")
    for made in shown:
        print(made.markdown()) if args.markdown else console().print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
