"""Rows, counted launches and timed stages as data frames, and the comparisons that rules make on them.

A frame of rows has a line for each row and timing, or one line for a row that was not timed; it is in the order of the
rows' times, whatever the order of the files. A frame of launches has a line for each launch, and a column for each
metric; a frame of stages one for each stage and timing.

Unlike rows.frame, it holds every measurement of a contender and not only the last: two contenders are compared in the
last measurement that they share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import pandas as pd

from triton_vs_tilus.bench.rows.queries import noise
from triton_vs_tilus.bench.rows.row import PASSED, TIMINGS, Launch, Row, Stage, TimingName, TimingRecord

NO_ROWS = "no rows"
NOT_TESTABLE = "not testable here"


class Untested(Exception):
    """Why rows do not test a claim. verdict: NO_ROWS, or NOT_TESTABLE where there are rows without figures."""

    def __init__(self, message: str, verdict: str = NO_ROWS):
        super().__init__(message)
        self.verdict = verdict


@dataclass(frozen=True)
class Evidence:
    """What claims are held against."""

    rows: pd.DataFrame
    launches: pd.DataFrame
    stages: pd.DataFrame

    def asked(self, frame: str) -> pd.DataFrame:
        """'rows', 'launches' or 'stages'."""
        return {"rows": self.rows, "launches": self.launches, "stages": self.stages}[frame]

    @cached_property
    def by_device(self) -> dict[str, "Evidence"]:
        """What was measured on each device, by its name."""
        frames = self.rows, self.launches, self.stages
        devices = pd.concat([frame["device"] for frame in frames]).unique()
        return {device: Evidence(*(frame[frame["device"] == device] for frame in frames)) for device in devices}


def evidence(rows: Sequence[Row], launches: Sequence[Launch] = (), stages: Sequence[Stage] = ()) -> Evidence:
    lines = [line for number, row in enumerate(rows) for line in _lines_of_row(number, row)]
    counted = [_shared(launch) | launch.metrics for launch in launches]
    alone = [line for stage in stages for line in _lines_of_stage(stage)]
    return Evidence(_by_time(lines), _by_time(counted), _by_time(alone))


def _by_time(lines: list[dict[str, object]]) -> pd.DataFrame:
    frame = pd.DataFrame(lines) if lines else pd.DataFrame(columns=[*SHARED, *OF_ROWS], dtype=object)
    return frame.sort_values("time", kind="stable", ignore_index=True)


SHARED = ["workload", "problem", "m", "n", "k", "dtype", "contender", "protocol", "config", "status", "message"]
SHARED += ["device", "torch", "triton", "time"]
OF_ROWS = ["row", "config_source", "not_searched", "bitwise_equal", "times_torch", "workspace_bytes", "launches"]
OF_ROWS += ["measurement", "timing", "median_us", "speedup", "speedup_low", "speedup_high", "times_floor", "noise"]
FIGURES = ("median_us", "speedup", "speedup_low", "speedup_high", "times_floor")


def _shared(record: Row | Launch | Stage) -> dict[str, object]:
    problem = record.problem
    sizes = {"m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.dtype}
    own = ["workload", "contender", "protocol", "config", "time"]
    own += [] if isinstance(record, Stage) else ["status", "message"]  # a stage is not judged
    made_with = {name: getattr(record.environment, name) for name in ("device", "torch", "triton")}
    return {"problem": problem.name, **made_with, **sizes, **{name: getattr(record, name) for name in own}}


def _lines_of_row(number: int, row: Row) -> list[dict[str, object]]:
    whole = _shared(row) | {
        "row": number,
        "config_source": row.config_source,
        "not_searched": row.not_searched,
        "bitwise_equal": row.bitwise_equal,
        "times_torch": row.accuracy.times_torch,
        "workspace_bytes": row.workspace_bytes,
        "launches": row.launches,
        "measurement": row.measurement[1],
    }
    lines = [line | {"noise": noise(row, timing)} for timing, line in _by_timing(whole, row.timing).items()]
    return lines or [whole | dict.fromkeys(["timing", *FIGURES, "noise"])]


def _lines_of_stage(stage: Stage) -> list[dict[str, object]]:
    return list(_by_timing(_shared(stage) | {"stage": stage.stage}, stage.timing).values())


def _by_timing(
    whole: dict[str, object], timings: Mapping[TimingName, TimingRecord]
) -> dict[TimingName, dict[str, object]]:
    return {
        timing: whole | {"timing": timing} | {name: getattr(record, name) for name in FIGURES}
        for timing, record in timings.items()
    }


def named(frame: pd.DataFrame, *patterns: str) -> pd.DataFrame:
    """The lines of contenders that any pattern names: 'contender', or 'contender protocol'.

    A contender with a given split, 'name@s4', is named only by a pattern with '@'.
    """

    def names(contender: str, protocol: str) -> bool:
        return any(
            ("@" in name or "@" not in contender) and fnmatchcase(contender, name) and wanted in ("", protocol)
            for name, _, wanted in (pattern.partition(" ") for pattern in patterns)
        )

    pairs = list(zip(frame["contender"], frame["protocol"], strict=True))
    chosen = {pair: names(*pair) for pair in set(pairs)}  # a pair has hundreds of lines
    return frame[np.array([chosen[pair] for pair in pairs], dtype=bool)]


def each_row(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a row."""
    return rows.drop_duplicates("row")


def latest(rows: pd.DataFrame) -> pd.DataFrame:
    """One line a row; of several rows of one contender on one problem the last."""
    once = each_row(rows)
    first = once.index.to_series().groupby([once["problem"], once["contender"]]).transform("min")
    return once.assign(first=first).drop_duplicates(["problem", "contender"], keep="last").sort_values("first")


def timed(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that passed, by the leading timing: the first of TIMINGS that any row has."""
    passed = rows[rows["status"] == PASSED]
    lead = next((timing for timing in TIMINGS if (rows["timing"] == timing).any()), None)
    return passed[passed["timing"] == lead]


def fastest(rows: pd.DataFrame, pattern: str) -> pd.DataFrame:
    """For each measurement, the fastest contender of the pattern. Raises Untested."""
    of_pattern = named(rows, pattern)
    if of_pattern.empty:
        raise Untested(f"no rows of {pattern}")
    found = timed(of_pattern)
    if found.empty:
        last = of_pattern.iloc[-1]
        raise Untested(f"{last['contender']} {last['status']}: {last['message']}", NOT_TESTABLE)
    return found.loc[found.groupby(["problem", "measurement"], sort=False)["median_us"].idxmin()]


def compared(rows: pd.DataFrame, one: str, other: str, one_config: bool = False) -> pd.DataFrame:
    """The fastest contender of `one` against the fastest of `other`: a line per problem, from the last measurement
    where both passed; with `one_config`, where both had the same config.

    Adds the columns ratio (how many times as fast `one` was), standing (see `standing`), and searched (whether both
    configs, where there are any, were searched for this problem; True with `one_config`, as no search parts the two).
    Raises Untested.
    """
    pairs = fastest(rows, one).merge(
        fastest(rows, other), on=["problem", "measurement"], suffixes=("", "_other"), validate="one_to_one"
    )
    if one_config:
        same = [config == theirs for config, theirs in zip(pairs["config"], pairs["config_other"], strict=True)]
        pairs = pairs[np.array(same, dtype=bool)]
    if pairs.empty:
        shared = f"no problem{' and config' * one_config} in common that was measured together"
        raise Untested(f"{one} and {other} have {shared}")
    last = pairs.drop_duplicates("problem", keep="last")
    return last.assign(
        ratio=last["speedup"] / last["speedup_other"],
        standing=standing(last, last.filter(like="_other").rename(columns=lambda name: name.removesuffix("_other"))),
        searched=one_config | ~(last["not_searched"] | last["not_searched_other"]).astype(bool),
    )


def standing(one: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Line by line where `one` is: 'ahead' or 'behind', where the one leads the other as rows.queries.leads has it, by
    more than the intervals of both and by more than the noise; else 'tie'."""
    return np.select([_leads(one, other), _leads(other, one)], ["ahead", "behind"], "tie")


def _leads(one: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    beyond = other["median_us"] > one["median_us"] * (1 + one["noise"])
    return (other["speedup_high"] < one["speedup_low"]) & beyond


def by_split(rows: pd.DataFrame) -> pd.DataFrame:
    """For each problem and each given split ('...@s4'), the fastest contender; with a column split.

    Of each problem the last measurement that has split 1. Raises Untested.
    """
    splits = rows.assign(split=rows["contender"].astype(str).str.extract(r"@s(\d+)$")[0])
    found = timed(splits).astype({"split": int})
    best = found.loc[found.groupby(["problem", "measurement", "split"], sort=False)["median_us"].idxmin()]
    with_one = best[best.groupby(["problem", "measurement"])["split"].transform("min") == 1]
    if with_one.empty:
        raise Untested("no rows of several splits, one among them")
    last = with_one.groupby("problem")["measurement"].transform("last")
    return with_one[with_one["measurement"] == last]
