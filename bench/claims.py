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
import json
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
    counted of their launches -> Finding; raises Untested."""

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
        """Those that test it."""
        return [
            row
            for row in rows
            if fnmatchcase(row.workload, self.workload)
            and any(_matches(row, pattern) for pattern in self.rule.contenders)
            and self.problem(row.problem)
        ]

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
        verdict = "tie"
        if first["speedup_low"] > second["speedup_high"]:
            verdict = "ahead"
        elif first["speedup_high"] < second["speedup_low"]:
            verdict = "behind"
        problem = one_row.problem["name"]
        found[problem] = Compared(problem, first["speedup"] / second["speedup"], verdict, searched)
    if not found:
        shared = f"no problem{' and config' * one_config} in common that was measured together"
        raise Untested(f"{one} and {other} have {shared}")
    return list(found.values())


def measurement(row: Row) -> tuple[str, str]:
    """The problem, and what rows share that were timed together, and no others: their run's own readings."""
    return row.problem["name"], json.dumps([row.floor, row.noise, row.clocks], sort_keys=True)


def latest(rows: Sequence[Row]) -> list[Row]:
    """Of two rows of one contender on one problem the one that was recorded last."""
    in_turn = sorted(rows, key=lambda row: row.time)
    return list({(row.problem["name"], row.contender): row for row in in_turn}.values())


def _matches(row: Row, pattern: str) -> bool:
    """'name', or 'name protocol'. Of a split that was asked for, 'name@s4', only where the pattern says so too."""
    name, _, protocol = pattern.partition(" ")
    meant = "@" in name or "@" not in row.contender
    return meant and fnmatchcase(row.contender, name) and protocol in ("", row.protocol)


def fastest(rows: Sequence[Row], pattern: str) -> dict[tuple[str, str], tuple[Row, Mapping[str, Any]]]:
    """By measurement, the row of the fastest contender of this pattern, and its figures. Raises Untested."""
    of = [row for row in rows if _matches(row, pattern)]
    if not of:
        raise Untested(f"no rows of {pattern}")
    timing = leading_timing(of)
    best: dict[tuple[str, str], tuple[Row, Mapping[str, Any]]] = {}
    for row in passed(of, timing):
        figures, known = row.timing[timing], best.get(measurement(row))
        if known is None or figures["median_us"] < known[1]["median_us"]:
            best[measurement(row)] = row, figures
    if not best:
        raise Untested(f"{of[-1].contender} {of[-1].status}: {of[-1].message}", NOT_TESTABLE)
    return best


def spread(found: Sequence[Compared]) -> str:
    """'median 1.03x (0.99-1.08), ahead on 26 of 28, 1 tie; 3 with a config not searched for the shape'."""
    ratios, verdicts = [one.ratio for one in found], [one.verdict for one in found]
    text = f"median {median(ratios):.3f}x ({min(ratios):.2f}-{max(ratios):.2f}), ahead on {verdicts.count('ahead')}"
    ties = verdicts.count("tie")
    text = f"{text} of {len(found)}" + (f", {ties} tie{'s' * (ties > 1)}" if ties else "")
    borrowed = len(found) - searched(found)
    return text + (f"; {borrowed} with a config not searched for the shape" if borrowed else "")


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


def not_testable(why: str) -> Rule:
    def of(rows: Sequence[Row]) -> Finding:
        raise Untested(why, NOT_TESTABLE)

    return Rule("", of)


# Rules of one claim.


def _winning_splits(rows: Sequence[Row]) -> Finding:
    won = Counter(
        int(split) for row in latest(rows) if row.status == PASSED for split in re.findall(r"split (\d+)", row.message)
    )
    if not won:
        raise Untested(f"no row of {FUSED_OP} tells its winner")
    text = ", ".join(f"split {split} on {count}" for split, count in won.most_common())
    return Finding(text, verdict_of(set(won) <= {64, 128}), won.total())


def _two_dtypes(first: str, second: str, holds: Callable[[float, float], bool]) -> Callable[[Sequence[Row]], Finding]:
    """Of the medians of VECTOR over torch.mm, over the problems of each dtype."""

    def of(rows: Sequence[Row]) -> Finding:
        by_dtype = {dtype: [row for row in rows if row.problem["dtype"] == dtype] for dtype in (first, second)}
        if missing := [dtype for dtype, of_dtype in by_dtype.items() if not of_dtype]:
            raise Untested(f"no rows in {' and '.join(missing)}")
        found = {dtype: compared(of_dtype, VECTOR, BASELINE) for dtype, of_dtype in by_dtype.items()}
        medians = {dtype: median(on.ratio for on in of_dtype) for dtype, of_dtype in found.items()}
        text = "median over torch.mm: " + ", ".join(f"{dtype} {middle:.3f}x" for dtype, middle in medians.items())
        problems = 2 * min(map(searched, found.values()))  # half of each suite is asked, not of the two together
        return Finding(text, verdict_of(holds(*medians.values())), problems)

    return of


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
    return Finding(", ".join(told), verdict_of(bool(holds)), searched(found))


def _do_bench(rows: Sequence[Row]) -> Finding:
    import triton.testing

    document = triton.testing.do_bench.__doc__ or ""
    told = re.findall(r":param (warmup|rep): (.*)", document)
    if not told:
        raise Untested("this Triton does not document do_bench", NOT_TESTABLE)
    timed = [name for name, meaning in told if re.search(r"\bms\b|milliseconds", meaning)]
    text = f"Triton documents {' and '.join(timed)} as times in milliseconds" if timed else "not said to be times"
    return Finding(text, verdict_of(not timed))


def _best_split(rows: Sequence[Row]) -> dict[str, tuple[int, float]]:
    """By problem, the split of the fastest of the contenders '...@sN', and its speed over that of one split, in the
    last measurement that has both."""
    timing = leading_timing(rows)
    together: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for row in passed(rows, timing):
        split = int(row.contender.rpartition("@s")[2])
        together.setdefault(measurement(row), {})[split] = row.timing[timing]
    found = {}
    for (problem, _), of in together.items():
        best = min(of, key=lambda split: of[split]["median_us"])
        if 1 in of:
            found[problem] = best, of[best]["speedup"] / of[1]["speedup"]
    if not found:
        raise Untested("no rows of several splits, one among them")
    return found


def _splitting_pays(rows: Sequence[Row]) -> Finding:
    found = _best_split(rows)
    text = "; ".join(f"{problem}: {split} splits, {ratio:.2f}x one" for problem, (split, ratio) in found.items())
    return Finding(text, verdict_of(all(split > 1 and ratio > 1 for split, ratio in found.values())))


def _best_split_is(expected: int) -> Callable[[Sequence[Row]], Finding]:
    def of(rows: Sequence[Row]) -> Finding:
        splits = Counter(split for split, _ in _best_split(rows).values())
        text = ", ".join(f"split {split} on {count}" for split, count in splits.most_common())
        holds = all(splits[expected] > splits[split] for split in splits if split != expected)
        return Finding(text, verdict_of(holds), splits.total())

    return of


def _repeats_equal(rows: Sequence[Row]) -> Finding:
    ran = [row for row in latest(rows) if row.status == PASSED and row.bitwise_equal is not None]
    if not ran:
        raise Untested("no rows of tilus/semaphore")
    equal = sum(row.bitwise_equal for row in ran)
    return Finding(f"repeats bitwise equal on {equal} of {len(ran)} rows", verdict_of(equal == len(ran)))


def _blocks_loaded(rows: Sequence[Row]) -> Finding:
    """Of matrices of 9 x 9 blocks, for 9 blocks of C: a row of them, or 3 x 3."""

    def loaded(height: int, width: int) -> int:
        return 9 * height + 9 * width

    row, group = loaded(1, 9), loaded(3, 3)
    return Finding(f"counted: a row {row}, 3 x 3 {group}, {row - group} fewer", verdict_of(row - group == 36))


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
NO_A100 = not_testable("no rows from an A100")


VECTOR_AND_MM = (VECTOR, BASELINE)


def _nsight_case(problem: Mapping[str, Any]) -> bool:
    """The one that the W4A16 study counted."""
    return (problem["m"], problem["n"], problem["k"]) == (16, 4096, 4096)


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
        "The reducer's shape alone moves the median by 12% (0.917x to 1.026x)",
        STUDY,
        about(VECTOR, TILE, 1.12),
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
        Rule("in every program with decompose-K", _relu_apart, ("torch/compile.max_autotune*",)),
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
        not_testable("every row of torch.compile is made after a reset of Dynamo; a test shows what is without"),
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
        not_testable("a matter of what a launch finds, not of how long it takes"),
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
    Claim("SplitK is 65% faster on average on an A100, its best split 4, its waves per SM 61% more", W4A16, NO_A100),
    Claim("An A100 of less bandwidth gains more", W4A16, NO_A100),
    Claim("SplitK gains more on a GPU of more SMs", W4A16, not_testable("rows from one model of GPU only")),
    Claim(
        "SplitK doubles the SMs' utilization and has nearly four times the occupancy (M = 16, N = K = 4096)",
        W4A16,
        counted_about(
            "triton/w4a16.atomic",
            "triton/w4a16.data_parallel",
            {"sm_pct": 43.05 / 20.75, "occupancy_pct": 27.75 / 7.55},
        ),
        "w4a16*",
        _nsight_case,
    ),
    Claim(
        "SplitK launches four times as many blocks (M = 16, N = K = 4096)",
        W4A16,
        counted_about("triton/w4a16.atomic", "triton/w4a16.data_parallel", {"grid_blocks": 4.0}),
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
        within("helion/*", BASELINE, 0.837, 1.023, geometric_mean),
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
