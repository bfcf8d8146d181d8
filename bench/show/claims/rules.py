"""The kinds of rules by which rows confirm or contradict a claim.

A rule is data: contenders (patterns, see `evidence.named`) and limits. Its `text` says for a reader where a claim is
confirmed. `finding` computes the figures and the verdict from the rows of its contenders, or raises Untested.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import itemgetter
from statistics import geometric_mean, mean, median
from typing import Protocol

import pandas as pd

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.bench.rows.row import BASELINE, PASSED
from triton_vs_tilus.bench.show.claims.evidence import (
    NOT_TESTABLE,
    Untested,
    by_split,
    compared,
    latest,
    named,
    standing,
    timed,
)
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Matmul

CONFIRMED = "confirmed"
CONTRADICTED = "contradicted"

LEAST_TOLERANCE = 0.05
PEAK_TFLOPS = {"H100 80GB HBM3": 989.4, "H200": 989.4}  # bf16 and fp16, dense, of NVIDIA's data sheets
CLOSE = 0.001  # medians that are told to be close; they keep their order

Statistic = Callable[[Sequence[float]], float]
STATISTICS: Mapping[str, Statistic] = {"median": median, "mean": mean, "geometric mean": geometric_mean, "largest": max}


@dataclass(frozen=True)
class Finding:
    """What rows say of a claim.

    measured  the figures, for a reader
    problems  for a claim about a suite, how many of its problems have configs that were searched for them
    figure    the one figure that decides, e.g. '1.36x'; empty where there is not one
    compared  for two contenders, on how many problems
    why       why there is no verdict, with which the figures begin; empty where there is one
    """

    measured: str
    verdict: str
    problems: int | None = None
    figure: str = field(default="", compare=False)
    compared: int | None = field(default=None, compare=False)
    why: str = field(default="", compare=False)


class Rule(Protocol):
    """frame: which of Evidence's it asks: 'rows', 'launches' that Nsight Compute counted, or 'stages' timed alone."""

    frame: str

    @property
    def text(self) -> str: ...

    @property
    def contenders(self) -> Sequence[str]: ...

    def finding(self, rows: pd.DataFrame) -> Finding: ...


def verdict(holds: bool) -> str:
    return CONFIRMED if holds else CONTRADICTED


@dataclass(frozen=True)
class OfOne:
    """What rules share that look at one contender's rows, or at those of several by a pattern."""

    contender: str

    frame = "rows"

    @property
    def contenders(self) -> Sequence[str]:
        return (self.contender,)


@dataclass(frozen=True)
class OfSeveral:
    """What rules share that look at the rows of several contenders alike."""

    contenders: Sequence[str]

    frame = "rows"


class WithoutRows:
    """What rules share that no row tests."""

    frame = "rows"
    text = "by counting"
    contenders = ()


# One contender against another.


@dataclass(frozen=True)
class OfTwo:
    """What rules share that compare the fastest of `one` with the fastest of `other` on each problem."""

    one: str
    other: str

    frame = "rows"

    @property
    def contenders(self) -> Sequence[str]:
        return self.one, self.other


@dataclass(frozen=True)
class Ahead(OfTwo):
    """share: of the problems on which `one` has to be ahead. one_config: only where both have the same config."""

    share: float = 0.85
    one_config: bool = False

    @property
    def text(self) -> str:
        return f"ahead on {self.share:.0%} of the problems or more{', of one config' * self.one_config}"

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other, self.one_config)
        ahead = _ahead(pairs)
        return _of_pairs(pairs, ahead >= self.share * len(pairs), f"{ahead} of {len(pairs)}")


@dataclass(frozen=True)
class NeverAhead(OfTwo):
    text = "ahead on none"

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other)
        ahead = _ahead(pairs)
        return _of_pairs(pairs, not ahead, f"{ahead} of {len(pairs)}")


@dataclass(frozen=True)
class Ratio(OfTwo):
    """low, high: how many times as fast `one` has to be. one_config: only where both have the same config."""

    low: float
    high: float
    statistic: str = "median"
    one_config: bool = False

    @property
    def text(self) -> str:
        return f"{self.statistic} {self.low:.3g}x to {self.high:.3g}x{', of one config' * self.one_config}"

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other, self.one_config)
        value = STATISTICS[self.statistic](pairs["ratio"].tolist())
        found = _of_pairs(pairs, self.low <= value <= self.high, f"{value:.2f}x")
        other = f"{self.statistic} {value:.3f}x, " if self.statistic != "median" else ""
        return replace(found, measured=other + found.measured)


def _ahead(pairs: pd.DataFrame) -> int:
    return int((pairs["standing"] == "ahead").sum())


def _of_pairs(pairs: pd.DataFrame, holds: bool, figure: str) -> Finding:
    return Finding(spread(pairs), verdict(holds), int(pairs["searched"].sum()), figure, len(pairs))


def about(one: str, other: str, claimed: float, statistic: str = "median") -> Ratio:
    """From half to twice the claimed gain."""
    return Ratio(one, other, *around(claimed), statistic)


def between(one: str, other: str, low: float, high: float, one_config: bool = False) -> Ratio:
    """A median from half the least to twice the most that is claimed: a range has the tolerance of a figure."""
    return Ratio(one, other, around(low)[0], around(high)[1], one_config=one_config)


def around(claimed: float) -> tuple[float, float]:
    """From half to twice the claimed gain over 1 (of a loss: of its reciprocal), and by LEAST_TOLERANCE at least."""
    gain = max(claimed, 1 / claimed) - 1
    half, twice = 1 + gain / 2, 1 + gain * 2
    if claimed < 1:
        half, twice = 1 / half, 1 / twice
    least, most = claimed * (1 - LEAST_TOLERANCE), claimed * (1 + LEAST_TOLERANCE)
    return min(half, twice, least), max(half, twice, most)


def spread(pairs: pd.DataFrame) -> str:
    """'median 1.030x (0.99-1.08), ahead on 26 of 28, 1 tie; 3 with a config not searched for the shape'."""
    ratios, standings = pairs["ratio"], pairs["standing"].tolist()
    low, high, ties = ratios.min(), ratios.max(), standings.count("tie")
    text = f"median {ratios.median():.3f}x ({low:.2f}-{high:.2f}), ahead on {standings.count('ahead')} of {len(pairs)}"
    text += f", {ties} tie{'s' * (ties > 1)}" if ties else ""
    return text + borrowed(int((~pairs["searched"]).sum()))


def borrowed(count: int) -> str:
    return f"; {count} with a config not searched for the shape" if count else ""


# Several dtypes or workloads, on the shapes that were measured in each.


@dataclass(frozen=True)
class InTwoKinds(OfTwo):
    """What rules share that hold the medians of `one` over `other` in two kinds of problem against each other."""

    kinds: tuple[str, str]

    by = "dtype"  # the column that tells the kinds apart

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other)
        found = pairs.pivot(index=["m", "n", "k"], columns=self.by, values=["ratio", "searched"])
        both = found.reindex(columns=pd.MultiIndex.from_product([["ratio", "searched"], self.kinds])).dropna()
        if both.empty:
            raise Untested(f"no shape in common in {' and '.join(self.kinds)}")
        first, second = (both["ratio", kind].median() for kind in self.kinds)
        searched = both["searched"].astype(bool).all(axis=1)
        medians = f"{self.kinds[0]} {first:.3f}x, {self.kinds[1]} {second:.3f}x"
        text = f"median over {self.other}: {medians}, {on_shapes(searched)}"
        return Finding(text, verdict(self.holds(first, second)), 2 * int(searched.sum()))

    def holds(self, first: float, second: float) -> bool:
        raise NotImplementedError


def on_shapes(searched: pd.Series) -> str:
    """'on 11 shapes; 5 with a config not searched for the shape'."""
    return f"on {len(searched)} shapes{borrowed(int((~searched).sum()))}"


@dataclass(frozen=True)
class CloseMedians(InTwoKinds):
    """within: by what share the median of the first dtype may differ from the second's."""

    within: float

    @property
    def text(self) -> str:
        return f"medians within {self.within:.0%}"

    def finding(self, rows: pd.DataFrame) -> Finding:
        found = super().finding(rows)
        own = latest(named(rows, self.one))
        first, second = (own[own["dtype"] == dtype].set_index(["m", "n", "k"])["config"] for dtype in self.kinds)
        if all(first[shape] == second[shape] for shape in first.index.intersection(second.index)):
            raise Untested("both dtypes run one config: one search serves both", NOT_TESTABLE)
        return found

    def holds(self, first: float, second: float) -> bool:
        return abs(first / second - 1) <= self.within


@dataclass(frozen=True)
class LargerGain(InTwoKinds):
    """`one` gains more over `other` in the second kind than in the first."""

    @property
    def text(self) -> str:
        return f"a larger median in {self.kinds[1]} than in {self.kinds[0]}"

    def holds(self, first: float, second: float) -> bool:
        return second > first


class LargerMargin(LargerGain):
    """As LargerGain, of two workloads."""

    by = "workload"


@dataclass(frozen=True)
class SameOrder:
    """The medians of contenders over torch.mm are in one order in two dtypes."""

    against_torch: Sequence[str]
    dtypes: tuple[str, str]

    frame = "rows"
    text = "medians over torch.mm in one order"

    @property
    def contenders(self) -> Sequence[str]:
        return *self.against_torch, *({BASELINE} - set(self.against_torch))

    def finding(self, rows: pd.DataFrame) -> Finding:
        medians, searched = self._medians(rows)
        orders, parts = [], []
        for dtype in self.dtypes:
            fastest_first = sorted((-medians[dtype, name], place) for place, name in enumerate(self.against_torch))
            order = [self.against_torch[place] for _, place in fastest_first]
            orders.append(order)
            others = [name for name in order if name != BASELINE]
            close = sum(abs(medians[dtype, name] - 1) <= CLOSE for name in others)
            near = f", {close} of {len(others)} within {CLOSE:.1%} of torch.mm"
            parts.append(f"{dtype}: {', '.join(f'{name} {medians[dtype, name]:.3f}x' for name in order)}{near}")
        measured = f"{'; '.join(parts)}; {on_shapes(searched)}"
        return Finding(measured, verdict(orders[0] == orders[1]), 2 * int(searched.sum()))

    def _medians(self, rows: pd.DataFrame) -> tuple[dict[tuple[str, str], float], pd.Series]:
        """{(dtype, contender): median over torch.mm}, of the shapes that have all of them; and for each shape whether
        all configs were searched for it. Raises Untested."""
        pairs = pd.concat(
            compared(rows, contender, BASELINE).assign(against_torch=contender) for contender in self.against_torch
        )
        cell, shape = ["dtype", "against_torch"], ["m", "n", "k"]
        last = pairs[pairs["dtype"].isin(self.dtypes)].drop_duplicates([*shape, *cell], keep="last")
        ratios = last.pivot(index=shape, columns=cell, values="ratio").dropna()
        if ratios.empty or ratios.shape[1] < len(self.dtypes) * len(self.against_torch):
            raise Untested(f"no shape in common in {' and '.join(self.dtypes)}")
        searched = last.groupby(shape)["searched"].all().loc[ratios.index]
        return dict(ratios.median().items()), searched


# Accuracy, configs and messages of rows.


@dataclass(frozen=True)
class Errors(OfTwo):
    """most: the error of `one` over that of `other`, both multiples of torch's on the same inputs.

    The error of torch.mm is not always 1 there: for an fp32 output, torch's own answer is that of inputs made fp32.
    """

    most: float

    @property
    def text(self) -> str:
        return f"error at most {self.most} times torch.mm's"

    def finding(self, rows: pd.DataFrame) -> Finding:
        errors = (
            latest(rows).dropna(subset="times_torch").pivot(index="problem", columns="contender", values="times_torch")
        )
        both = errors.reindex(columns=[self.one, self.other]).dropna()
        if both.empty:
            raise Untested(f"no rows of {self.one} beside {self.other}")
        ratios = both[self.one] / both[self.other]
        most = ratios.max()
        text = f"error {most:.2f} times torch.mm's at most, median {ratios.median():.2f}, on {len(ratios)} problems"
        return Finding(text, verdict(most <= self.most), figure=f"{most:.2f}x")


@dataclass(frozen=True)
class Tiles(OfOne):
    """tiles: those among which the most frequent of the searched configs have to be, by M = N."""

    tiles: Mapping[int, Sequence[str]]

    text = "the most frequent of the searched configs"

    def finding(self, rows: pd.DataFrame) -> Finding:
        own = _searched(rows)
        found = {size: Counter(map(_tile, own[own["m"] == size]["config"])) for size in self.tiles}
        if not all(found.values()):
            sizes = " and ".join(map(str, self.tiles))
            raise Untested(f"no rows of {self.contender} with a config searched for M = N = {sizes}")
        text = "; ".join(f"M = N = {size}: {_counts(tiles)}" for size, tiles in found.items())
        holds = all(_most_frequent(counts) <= set(self.tiles[size]) for size, counts in found.items())
        return Finding(text, verdict(holds), sum(tiles.total() for tiles in found.values()))


@dataclass(frozen=True)
class Warps(OfOne):
    """warps: those among which the most frequent of the searched configs with this tile have to be."""

    tile: str
    warps: Sequence[int]

    text = "the most frequent of the searched configs"

    def finding(self, rows: pd.DataFrame) -> Finding:
        configs = _searched(rows)["config"]
        found = Counter(config["num_warps"] for config in configs if _tile(config) == self.tile)
        if not found:
            raise Untested(f"no rows of {self.contender} with a searched config of {self.tile}")
        most = max(found.values())
        holds = all(warps in self.warps for warps, count in found.items() if count == most)
        told = ", ".join(f"{warps} on {count}" for warps, count in found.most_common())
        return Finding(f"{self.tile}, warps: {told}", verdict(holds), len(configs))


def _searched(rows: pd.DataFrame) -> pd.DataFrame:
    """Of each problem the last row, where its config was searched for it."""
    last = latest(rows)
    return last[last["config_source"].isin(["tuned", "search"])]


def _tile(config: Mapping[str, object]) -> str:
    return f"{config['block_m']}x{config['block_n']}"


def _most_frequent(found: Counter[str]) -> set[str]:
    """Several where they are as frequent."""
    return {what for what, count in found.items() if count == max(found.values())}


def _counts(found: Counter[str]) -> str:
    """'64x64 on 6, 16x16 on 1', the most frequent first."""
    return ", ".join(f"{what} on {count}" for what, count in found.most_common())


@dataclass(frozen=True)
class Winners(OfOne):
    """splits: those that an autotuner may choose, by its message 'won by split 64; compiled to ...'."""

    splits: Sequence[int]

    @property
    def text(self) -> str:
        return f"every winner has {' or '.join(map(str, self.splits))} splits"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        # Only up to the ';': what the winner was compiled to may name a split too.
        won = Counter(last[last["status"] == PASSED]["message"].str.extract(r"^won by ([^;]+)")[0].dropna())
        if not won:
            raise Untested(f"no row of {self.contender} names its winner")
        holds = won.keys() <= {f"split {split}" for split in self.splits}
        return Finding(_counts(won), verdict(holds), won.total())


@dataclass(frozen=True)
class ReluApart(OfSeveral):
    """Every program of Inductor's with decompose-K has a kernel of its own for ReLU, by the row's message."""

    text = "in every program with decompose-K"

    def finding(self, rows: pd.DataFrame) -> Finding:
        if rows.empty:
            raise Untested("no rows of torch/compile")
        last = latest(rows)
        ran = last[last["status"] == PASSED]
        chose = ran[ran["message"].str.contains("decompose-K")]
        if chose.empty:
            raise Untested("Inductor chose decompose-K on none of the problems", NOT_TESTABLE)
        apart = chose["message"].str.contains(r"triton_poi_\w*relu").sum()
        text = f"of {len(chose)} programs with decompose-K {apart} have a kernel of their own for ReLU"
        return Finding(text, verdict(apart == len(chose)), ran["problem"].nunique())


@dataclass(frozen=True)
class RepeatsEqual(OfSeveral):
    """Repeats of a call give bitwise the same result; or, with `always` False, not on every problem."""

    always: bool = True

    @property
    def text(self) -> str:
        return "every repeat bitwise equal" if self.always else "a repeat that is not bitwise equal"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        ran = last[last["status"] == PASSED].dropna(subset="bitwise_equal")
        if ran.empty:
            raise Untested(f"no rows of {', '.join(self.contenders)}")
        equal = int(ran["bitwise_equal"].sum())
        share = f"{equal} of {len(ran)}"
        holds = (equal == len(ran)) is self.always
        return Finding(f"repeats bitwise equal on {share} rows", verdict(holds), figure=share)


@dataclass(frozen=True)
class SeveralLaunches(OfOne):
    """Every call launches more than one kernel."""

    text = "two launches or more"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        ran = last[last["status"] == PASSED].dropna(subset="launches")
        if ran.empty:
            raise Untested(f"no rows of {self.contender} that passed")
        launches = Counter(ran["launches"].astype(int))
        text = ", ".join(f"{count} launch{'es' * (count > 1)} in {times} rows" for count, times in launches.items())
        return Finding(text, verdict(min(launches) > 1), ran["problem"].nunique())


@dataclass(frozen=True)
class WorkspaceShare(OfTwo):
    """The workspace of `one`, times the splits of `other`, is that of `other`."""

    text = "the workspace times the other's splits is the other's, within 5%"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows).dropna(subset="workspace_bytes").set_index("problem")
        one, other = (named(last, name) for name in self.contenders)
        both = one.index.intersection(other.index)
        if both.empty:
            raise Untested(f"no rows of {self.one} beside {self.other}")
        splits = other.loc[both, "config"].map(itemgetter("split_k"))
        shares = (one.loc[both, "workspace_bytes"] * splits / other.loc[both, "workspace_bytes"]).astype(float)
        low, high = around(1.0)
        text = f"{shares.min():.3f} to {shares.max():.3f} times 1 / split, on {len(both)} problems"
        return Finding(text, verdict(bool(shares.between(low, high).all())), len(both))


@dataclass(frozen=True)
class NoWorkspaceUnsplit(OfSeveral):
    """At one split the kernel has no workspace, and so no semaphore."""

    text = "no workspace at one split"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows[rows["config"].notna() & rows["workspace_bytes"].notna()])
        unsplit = last[[config["split_k"] == 1 for config in last["config"]]]
        if unsplit.empty:
            raise Untested("no rows of one split")
        most = int(unsplit["workspace_bytes"].max())
        return Finding(f"up to {most} bytes, on {len(unsplit)} rows", verdict(most == 0))


@dataclass(frozen=True)
class CompiledTo(OfOne):
    """programs: what torch.compile makes of the problems of each K, by the beginning of the row's message."""

    programs: Mapping[int, str]

    @property
    def text(self) -> str:
        return "; ".join(f"K = {k}: {program}" for k, program in self.programs.items())

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        found = last.assign(program=last["message"].astype(str).str.extract(r"^compiled to ([^;]+)")[0])
        found = found[found["k"].isin(self.programs)].dropna(subset="program")
        if lacking := self.programs.keys() - set(found["k"]):
            raise Untested(
                f"no row of {self.contender} at K = {', '.join(map(str, sorted(lacking)))} names its program"
            )
        pairs = list(zip(found["k"], found["program"], strict=True))
        holds = all(program.startswith(self.programs[k]) for k, program in pairs)
        return Finding("; ".join(f"K = {k}: {program}" for k, program in pairs), verdict(holds))


@dataclass(frozen=True)
class Programs(OfOne):
    """share: of the programs that messages tell, how many have kernels that `kernels`, a pattern, matches whole."""

    kernels: str
    share: float = 0.85

    @property
    def text(self) -> str:
        return f"by {self.share:.0%} of the programs or more"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        programs = last["message"].astype(str).str.extract(r"^compiled to ([^;]+)")[0].dropna()
        if programs.empty:
            raise Untested(f"no row of {self.contender} names its program")
        alike = int(programs.str.fullmatch(self.kernels).sum())
        most, count = Counter(programs).most_common(1)[0]
        text = f"{alike} of {len(programs)} programs; {most} on {count}"
        return Finding(text, verdict(alike >= self.share * len(programs)), len(programs), f"{alike} of {len(programs)}")


@dataclass(frozen=True)
class NeverDecomposes(OfSeveral):
    """No program of these has decompose-K, by the row's message."""

    text = "in no program"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        ran = last[(last["status"] == PASSED) & last["message"].astype(str).str.startswith("compiled to")]
        if ran.empty:
            raise Untested("no rows of torch/compile")
        chose = int(ran["message"].str.contains("decompose-K").sum())
        return Finding(f"decompose-K in {chose} of {len(ran)} programs", verdict(not chose), ran["problem"].nunique())


@dataclass(frozen=True)
class UntiledK(OfOne):
    """A step of the kernel is all of K: it does not tile K."""

    text = "a step is all of K"

    def finding(self, rows: pd.DataFrame) -> Finding:
        last = latest(rows)
        ran = last[last["config"].notna()]
        if ran.empty:
            raise Untested(f"no rows of {self.contender}")
        steps = [ceil(k / config["block_k"]) for k, config in zip(ran["k"], ran["config"], strict=True)]
        problems = ran["problem"].nunique()
        text = f"{min(steps)} to {max(steps)} steps along K, on {problems} problems"
        return Finding(text, verdict(max(steps) == 1), problems)


# Where splitting K pays, and how many splits are best.


@dataclass(frozen=True)
class Crossover(OfTwo):
    """`one` is behind at the largest M = N (where K = `k`) and at the smallest K (where M = N = `m`), else ahead."""

    k: int
    m: int

    text = "behind torch.mm at both ends, ahead between"

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other)
        by_size = pairs[pairs["k"] == self.k].sort_values("m")
        by_depth = pairs[pairs["m"] == self.m].sort_values("k")
        if by_size.empty or by_depth.empty:
            raise Untested(f"no rows of {self.one} at K = {self.k} and at M = N = {self.m}")
        sizes = by_size[by_size["standing"] == "ahead"]["m"]
        depths = by_depth[by_depth["standing"] == "ahead"]["k"]
        up_to = f"at K = {self.k} ahead of torch.mm up to M = N = {sizes.max()}"
        parts = [
            "ahead at no M = N" if sizes.empty else up_to,
            "ahead at no K" if depths.empty else f"at M = N = {self.m} from K = {depths.min()}",
        ]
        ends = [by_size["standing"].iloc[-1], by_depth["standing"].iloc[0]]
        holds = ends == ["behind", "behind"] and not sizes.empty and not depths.empty
        searched = int(pairs["searched"].sum())
        figure = "nowhere" if sizes.empty else f"up to {sizes.max()}"
        return Finding(", ".join(parts) + borrowed(len(pairs) - searched), verdict(holds), searched, figure)


@dataclass(frozen=True)
class DividesPoorly(OfTwo):
    """Of the M = N where `one` is ahead at K = `even`, it is ahead at no other K."""

    even: int

    @property
    def text(self) -> str:
        return f"ahead of {self.other} at K = {self.even}, and for the same M and N at no K that divides worse"

    def finding(self, rows: pd.DataFrame) -> Finding:
        pairs = compared(rows, self.one, self.other)
        is_even = pairs["k"] == self.even
        pays = pairs[is_even & (pairs["standing"] == "ahead")]["m"]
        even, others = (pairs[of & pairs["m"].isin(pays)] for of in (is_even, ~is_even))
        if others.empty:
            raise Untested(f"not ahead at K = {self.even} where another K was measured", NOT_TESTABLE)
        text = f"at K = {self.even} {spread(even)}; at the others {spread(others)}"
        ahead = _ahead(others)
        return Finding(text, verdict(not ahead), figure=f"{ahead} of {len(others)}")


@dataclass(frozen=True)
class BufferDominates(OfTwo):
    """Where the buffer of partial sums takes `share` of the time of `one` or more, and without it `one` would be ahead
    of `other`, it is not.

    The meeting takes what the whole takes and the product alone does not. It reads the buffer that the product has
    written, so that the buffer takes twice that; cold.
    """

    share: float

    frame = "stages"

    @property
    def text(self) -> str:
        which = f"where the buffer, written and read, takes {self.share:.0%} of the time or more, and it alone decides"
        return f"not ahead of {self.other} {which}"

    def finding(self, rows: pd.DataFrame) -> Finding:
        if named(rows, self.one).empty:
            raise Untested(f"no stages of {self.one}")
        cold = rows[rows["timing"] == "cold"]
        by_stage = {name: of_stage.set_index("problem") for name, of_stage in named(cold, self.one).groupby("stage")}
        theirs = named(cold, self.other).set_index("problem")["median_us"]
        whole, product = by_stage["whole"], by_stage["product"]["median_us"]
        decided, parts = [], []
        for problem, us, low in zip(whole.index, whole["median_us"], whole["speedup_low"], strict=True):
            buffer = 2 * (us - product[problem])
            parts.append(f"{problem}: the buffer {buffer:.1f} of {us:.1f} us, {self.other} {theirs[problem]:.1f}")
            if buffer >= self.share * us and us - buffer < theirs[problem]:
                decided.append(low <= 1)
        if not decided:
            raise Untested(f"the buffer alone decides nowhere; {'; '.join(parts)}", NOT_TESTABLE)
        return Finding("; ".join(parts), verdict(all(decided)))


@dataclass(frozen=True)
class SplittingPays(OfSeveral):
    """On every problem the fastest split is ahead of one split."""

    text = "the fastest split is ahead of one split"

    def finding(self, rows: pd.DataFrame) -> Finding:
        splits = by_split(rows)
        one = splits[splits["split"] == 1].set_index("problem")
        best = _best_splits(splits).set_index("problem").loc[one.index]
        gains = best["speedup"] / one["speedup"]
        parts = [
            f"{problem}: {split} splits, {gain:.2f}x one"
            for problem, split, gain in zip(best.index, best["split"], gains, strict=True)
        ]
        return Finding("; ".join(parts), verdict(bool((standing(best, one) == "ahead").all())))


def _best_splits(splits: pd.DataFrame) -> pd.DataFrame:
    return splits.loc[splits.groupby("problem", sort=False)["median_us"].idxmin()]


@dataclass(frozen=True)
class BestSplit(OfSeveral):
    """split: the one that is the fastest, alone or jointly, on as many problems as any other or more. Two are joint
    where their intervals overlap."""

    split: int

    text = "fastest or joint fastest on as many problems as any other"

    def finding(self, rows: pd.DataFrame) -> Finding:
        splits = by_split(rows)
        leaders = _best_splits(splits).set_index("problem")["speedup_low"]
        joint = splits[splits["speedup_high"] >= splits["problem"].map(leaders)]
        best = Counter(joint["split"])
        text = ", ".join(f"split {split} on {count}" for split, count in best.most_common())
        text = f"fastest or joint fastest of {len(leaders)}: {text}"
        return Finding(text, verdict(best[self.split] == max(best.values())), len(leaders))


@dataclass(frozen=True)
class MoreSplitsLose(OfSeveral):
    """At each M, `more` splits are behind `few` at the largest N = K, and further than at the smallest."""

    few: int
    more: int

    @property
    def text(self) -> str:
        return f"at each M {self.more} are behind {self.few} at the largest N = K, and further than at the smallest"

    def finding(self, rows: pd.DataFrame) -> Finding:
        splits = by_split(rows)
        few, more = (splits[splits["split"] == split].set_index(["m", "n"]) for split in (self.few, self.more))
        both = few.index.intersection(more.index).sort_values()
        if both.empty:
            raise Untested(f"no rows of {self.few} and {self.more} splits")
        few, more = few.loc[both], more.loc[both]
        found = pd.DataFrame({"ratio": more["speedup"] / few["speedup"], "standing": standing(more, few)}, index=both)
        parts, holds = [], True
        for m, of_m in found.groupby(level="m"):
            ratios = of_m["ratio"].tolist()
            parts.append(f"M = {m}: {', '.join(f'{ratio:.2f}x' for ratio in ratios)}")
            holds = holds and ratios[-1] < ratios[0] and of_m["standing"].iloc[-1] == "behind"
        text = f"by N = K, {self.more} splits over {self.few}: {'; '.join(parts)}"
        return Finding(text, verdict(holds), len(found))


@dataclass(frozen=True)
class ComputeBound(OfSeveral):
    """On half of the problems the fastest contender has at least half of the tensor cores' peak, in TFLOPS, as the
    document measures it. A problem where only torch was timed says nothing of the fastest."""

    text = "median at least half of the tensor cores' peak"

    def finding(self, rows: pd.DataFrame) -> Finding:
        beside = timed(rows)
        peaks = beside["device"].map(
            lambda device: next((peak for of, peak in PEAK_TFLOPS.items() if of in device), None)
        )
        beside = beside.assign(share=2e-6 * beside["m"] * beside["n"] * beside["k"] / beside["median_us"] / peaks)
        shares = _beside_kernels(beside).groupby("problem")["share"].max().dropna()
        if shares.empty:
            raise Untested("no rows of a kernel on a GPU whose peak is known")
        middle = shares.median()
        text = f"median {middle:.1%} of the peak ({shares.min():.1%}-{shares.max():.1%}), the fastest of all"
        return Finding(f"{text}, on {len(shares)} problems", verdict(bool(middle >= 0.5)), len(shares))


@dataclass(frozen=True)
class MemoryBound(OfSeveral):
    """On half of the problems the fastest contender takes at most twice the time in which the least bytes are read."""

    text = "median at most twice the time of reading the least bytes"

    def finding(self, rows: pd.DataFrame) -> Finding:
        times = _beside_kernels(timed(rows)).groupby("problem")["times_floor"].min().dropna()
        if times.empty:
            raise Untested("no rows of a kernel beside the time of reading")
        middle = times.median()
        text = f"median {middle:.2f}x the time of reading ({times.min():.2f}-{times.max():.2f}), the fastest of all"
        return Finding(f"{text}, on {len(times)} problems", verdict(bool(middle <= 2)), len(times))


def _beside_kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of problems on which more than torch was timed."""
    written = ~rows["contender"].str.startswith("torch/")
    return rows[written.groupby(rows["problem"]).transform("any")]


# What Nsight Compute counted.


@dataclass(frozen=True)
class Counted:
    """claimed: how many times the metric of `other` that of `one` is, in one launch of one kernel each, by metric.

    alike: fields of the configs that are equal in both, where the claim is only of the split.
    """

    one: str
    other: str
    claimed: Mapping[str, float]
    alike: Sequence[str] = ()

    frame = "launches"

    @property
    def contenders(self) -> Sequence[str]:
        return self.one, self.other

    @property
    def text(self) -> str:
        limits = {metric: around(times) for metric, times in self.claimed.items()}
        return ", ".join(f"{_short(metric)} {low:.3g}x to {high:.3g}x" for metric, (low, high) in limits.items())

    def finding(self, rows: pd.DataFrame) -> Finding:
        passed = rows[rows["status"] == PASSED].drop_duplicates("contender", keep="last").set_index("contender")
        if missing := {self.one, self.other} - set(passed.index):
            raise Untested(f"no counters of {', '.join(sorted(missing))}")
        for name in self.alike:
            values = [(passed["config"].get(of) or {}).get(name) for of in (self.one, self.other)]
            if values[0] != values[1]:
                raise Untested(f"{name} is {values[0]} and {values[1]}: not only the split differs", NOT_TESTABLE)
        ratios = {}
        for metric in self.claimed:
            one, other = (passed[metric].get(name) if metric in passed else None for name in (self.one, self.other))
            if pd.isna(one) or pd.isna(other):
                raise Untested(f"ncu could not count {metric}", NOT_TESTABLE)
            ratios[metric] = one / other
        limits = {metric: around(times) for metric, times in self.claimed.items()}
        holds = all(low <= ratios[metric] <= high for metric, (low, high) in limits.items())
        text = ", ".join(f"{_short(metric)} {ratio:.2f}x" for metric, ratio in ratios.items())
        return Finding(text, verdict(holds), figure=", ".join(f"{ratio:.2f}x" for ratio in ratios.values()))


@dataclass(frozen=True)
class LimitedBySharedMemory(OfOne):
    """Shared memory lets fewer blocks onto an SM than registers do."""

    frame = "launches"
    text = "fewer blocks by shared memory than by registers"

    def finding(self, rows: pd.DataFrame) -> Finding:
        passed = rows[rows["status"] == PASSED]
        if passed.empty:
            raise Untested(f"no counters of {self.contender}")
        by_shared, by_registers = (int(passed[f"{of}_limit_blocks"].iloc[-1]) for of in ("shared", "register"))
        text = f"by shared memory {by_shared}, by registers {by_registers}"
        return Finding(text, verdict(by_shared < by_registers))


def _short(metric: str) -> str:
    return metric.removesuffix("_pct")


# Without rows.


@dataclass(frozen=True)
class Untestable(WithoutRows):
    why: str

    text = ""

    def finding(self, rows: pd.DataFrame) -> Finding:
        raise Untested(self.why, NOT_TESTABLE)


@dataclass(frozen=True)
class ShownByTest(WithoutRows):
    """A test of this project shows what is claimed, or, where `holds` is not so, its opposite: with the test gone there
    is no verdict. A wheel has no tests: its verdict is that of the checkout which it was built from."""

    file: str
    test: str
    holds: bool = True

    text = "by a test"

    def finding(self, rows: pd.DataFrame) -> Finding:
        file = ROOT / self.file
        if not file.parent.is_dir():
            return Finding(f"{self.file}, {self.test}, in a checkout", verdict(self.holds))
        if not file.exists() or f"def {self.test}(" not in file.read_text():
            raise Untested(f"{self.file} has no {self.test}", NOT_TESTABLE)
        return Finding(f"{self.file}, {self.test}", verdict(self.holds))


@dataclass(frozen=True)
class DoBenchCounts(WithoutRows):
    """Triton documents warmup and rep of do_bench as counts of calls, and not as times."""

    text = "by Triton's own documentation"

    def finding(self, rows: pd.DataFrame) -> Finding:
        import triton.testing

        meanings = re.findall(r":param (warmup|rep): (.*)", triton.testing.do_bench.__doc__ or "")
        if not meanings:
            raise Untested("this Triton does not document do_bench", NOT_TESTABLE)
        times = [name for name, meaning in meanings if re.search(r"\bms\b|milliseconds", meaning)]
        text = f"Triton documents {' and '.join(times)} as times in milliseconds" if times else "not said to be times"
        return Finding(text, verdict(not times))


@dataclass(frozen=True)
class RequiresCleanResets(WithoutRows):
    """tilus documents that such a tensor is zero at first, and that the kernel has to reset it."""

    text = "by tilus' own documentation"

    def finding(self, rows: pd.DataFrame) -> Finding:
        try:
            from tilus import Script
        except ImportError as error:
            raise Untested(f"tilus cannot be imported: {error}", NOT_TESTABLE) from None
        document = " ".join((Script.global_tensor.__doc__ or "").split())
        if "requires_clean" not in document:
            raise Untested("this tilus does not document requires_clean", NOT_TESTABLE)
        said = {
            "initialized to all zeros": "that it is zero at first",
            "require the kernel to reset the global tensor": "that the kernel has to reset it",
        }
        told = [what for words, what in said.items() if words in document]
        return Finding(f"tilus documents {' and '.join(told) or 'neither'}", verdict(len(told) == len(said)))


@dataclass(frozen=True)
class BlocksLoaded(WithoutRows):
    """Of matrices of `blocks` x `blocks` blocks, what as many programs read of A (rows) and of B (columns).

    by_row, grouped: the blocks claimed for programs row by row, and in groups of `group` rows.
    """

    blocks: int
    group: int
    by_row: tuple[int, int]
    grouped: tuple[int, int]

    def finding(self, rows: pd.DataFrame) -> Finding:
        by_row, grouped = self._loaded(1), self._loaded(self.group)
        fewer = sum(by_row) - sum(grouped)
        text = f"row by row {by_row[0]} + {by_row[1]}"
        text += f", in groups of {self.group} rows {grouped[0]} + {grouped[1]}, {fewer} fewer"
        return Finding(text, verdict((by_row, grouped) == (self.by_row, self.grouped)))

    def _loaded(self, group: int) -> tuple[int, int]:
        tiles = [tile_of(program, self.blocks, self.blocks, group) for program in range(self.blocks)]
        rows, columns = {row for row, _ in tiles}, {column for _, column in tiles}
        return self.blocks * len(rows), self.blocks * len(columns)


@dataclass(frozen=True)
class TilesOfAProgram(WithoutRows):
    """Of `blocks` x `blocks` tiles, how many each program of a grouped order computes."""

    blocks: int
    group: int
    claimed: int

    def finding(self, rows: pd.DataFrame) -> Finding:
        programs = self.blocks * self.blocks
        tiles = {tile_of(program, self.blocks, self.blocks, self.group) for program in range(programs)}
        text = f"{programs} programs compute {len(tiles)} tiles, in groups of {self.group} rows"
        return Finding(text, verdict(len(tiles) == self.claimed * programs))


@dataclass(frozen=True)
class Waves(WithoutRows):
    """Of two kernels on one GPU, how many times the waves of the second the first takes: blocks over the blocks that an
    SM holds."""

    blocks: tuple[int, int]
    blocks_per_sm: tuple[int, int]
    claimed: float

    def finding(self, rows: pd.DataFrame) -> Finding:
        one, other = (blocks / held for blocks, held in zip(self.blocks, self.blocks_per_sm, strict=True))
        low, high = around(self.claimed)
        text = f"{one:g} and {other:g} blocks per slot of an SM, {one / other:.2f}x"
        return Finding(text, verdict(low <= one / other <= high), figure=f"{one / other:.2f}x")


@dataclass(frozen=True)
class Proportional(WithoutRows):
    """Of two kernels in the source's own table, whether each of `increases` is about that in `speed`; pairs of figures,
    the first kernel's over the second's."""

    speed: tuple[float, float]
    increases: Mapping[str, tuple[float, float]]

    text = "by the source's own table"

    def finding(self, rows: pd.DataFrame) -> Finding:
        gain = self.speed[0] / self.speed[1]
        low, high = around(gain)
        ratios = {name: one / other for name, (one, other) in self.increases.items()}
        told = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
        holds = all(low <= ratio <= high for ratio in ratios.values())
        return Finding(f"speed {gain:.2f}x; {told}", verdict(holds))


@dataclass(frozen=True)
class ReducerPrograms(WithoutRows):
    """The decompose-K study's vector reducer at M = N = `size`: programs that sum `elements` elements of C each."""

    size: int
    elements: int
    claimed: int

    def finding(self, rows: pd.DataFrame) -> Finding:
        from triton_vs_tilus.bench.references.published_triton import decompose_k

        problem = Matmul(self.size, self.size, 32768)
        found: dict[tuple[int, int], list[int]] = {}
        for split in decompose_k.POWERS:
            config = decompose_k.StudyConfig(16, 16, 128, split, 1, 4, 8)
            planned = decompose_k.plan(problem, config, contiguous(problem), variant="optimized", unfused=False)
            reducer = planned.launches[-1]
            found.setdefault((reducer.options["XBLOCK"], reducer.grid[0]), []).append(split)
        parts = [
            f"{programs} of {elements} elements at {', '.join(map(str, splits))} splits"
            for (elements, programs), splits in found.items()
        ]
        return Finding("; ".join(parts), verdict((self.elements, self.claimed) in found))


def tile_of(program: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """(row, column) of the tile that a program computes: in groups of so many rows, each column by column."""
    first, place = program // (group * columns) * group, program % (group * columns)
    height = min(rows - first, group)
    return first + place % height, place // height
