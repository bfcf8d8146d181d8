"""Rows as a DataFrame: a line a row and timing, whatever the order of rows."""

import pandas as pd
import pytest
from made_rows import FP32, VECTOR, router_rows, row
from msgspec.structs import replace

from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.frame import frame, geometric_mean
from triton_vs_tilus.bench.rows.queries import passed, timed_together
from triton_vs_tilus.bench.rows.row import BASELINE, AgainstRecord, FloorRecord


def test_a_line_is_a_row_and_a_timing():
    rows = router_rows()
    lines = frame(rows)
    assert len(lines) == sum(len(made.timing) or 1 for made in rows)
    (line,) = lines[(lines.contender == VECTOR) & (lines.m == 1) & (lines.timing == "warm")].itertuples()
    assert (line.median_us, line.speedup, line.verdict) == (4.0, 1.25, "faster")
    assert line.gb_per_s == pytest.approx(line.least_bytes / 4.0 / 1e3)
    assert line.tera_per_s == pytest.approx(2 * 256 * 7168 / 4.0 / 1e6)
    untimed = lines[lines.status == "wrong"]
    assert len(untimed) == 1 and untimed.median_us.isna().all() and untimed.timing.isna().all()


def test_of_one_timing_a_row_is_a_line():
    rows = [*router_rows(), row("torch/other", 1, 9.0, timings=("host",))]
    lines = frame(rows, "warm")
    assert len(lines) == len(rows) and set(lines.timing.dropna()) == {"warm"}
    assert lines[lines.contender == "torch/other"].median_us.isna().all()


def test_of_two_rows_that_measure_the_same_the_last_counts():
    assert frame([row(VECTOR, 1, 8.0), row(VECTOR, 1, 9.0)], "cold").median_us.tolist() == [9.0]


def test_categories_are_in_the_projects_order():
    rows = [*router_rows()[::-1], replace(row("new/matmul", 1, 9.0), protocol="telepathy")]
    lines = frame(rows)
    assert lines.m.is_monotonic_increasing
    assert [name.split("x")[0] for name in lines.problem.cat.categories] == ["1", "16", "1024"]
    assert lines.protocol.cat.categories.tolist() == ["parallel", "serial", "library", "telepathy"]
    assert lines.language.cat.categories[-1] == "new"
    assert lines.timing.cat.categories.tolist() == ["cold", "graph", "warm", "host"]


def test_columns_are_the_same_without_rows_and_without_figures():
    lines, none, untimed = frame(router_rows()), frame([]), frame([row(BASELINE, 1, None)])
    assert list(lines) == list(none) == list(untimed)
    numbers = lines.select_dtypes("number").columns
    assert (untimed.dtypes[numbers] == lines.dtypes[numbers]).all()


def test_figures_of_the_run_stand_beside_a_timing(monkeypatch):
    """The noise is of the baseline in that run; the least lead is of two runs where those lie further apart."""
    monkeypatch.setattr(queries, "between_runs", lambda rows: {"cold": 0.05, "host": 0.001})
    made = row(VECTOR, 1, 8.0, timings=("cold", "host"))
    del made.floor["host"]
    made = replace(made, against={"cold": AgainstRecord(contender=FP32, ratio=1.10, low=1.05, high=1.15)})
    cold, host = frame([made]).itertuples()
    assert (cold.net_us, cold.noise, cold.least_lead) == (6.0, 0.004, 0.05)
    assert (cold.against, cold.against_low, cold.against_high) == (1.10, 1.05, 1.15)
    assert (host.noise, host.least_lead) == (0.004, 0.004) and pd.isna([host.net_us, host.against]).all()


@pytest.mark.parametrize(
    "readings",
    [
        {"noise": {"cold": 0.5}},
        {"floor": {"cold": FloorRecord(launch_us=2.1, read_us=5.0)}},
        {"clocks": replace(row().clocks, sm_mhz=[1965, 1975])},
    ],
    ids=lambda readings: next(iter(readings)),
)
def test_rows_that_were_timed_together_share_a_measurement(readings):
    apart = replace(row(VECTOR, 1, 8.0), **readings)
    lines = frame([row(BASELINE, 1), row(FP32, 1, 9.0), apart, row(BASELINE, 16)], "cold")
    assert lines.measurement.tolist() == [0, 0, 1, 2]


def test_of_a_problem_the_last_run_with_its_baseline_is_asked():
    """By the time of rows, whatever their order. One that was resumed for a contender alone has no row of the
    baseline."""
    first = [row(BASELINE, 1), row(FP32, 1, 9.0)]
    second = [replace(made, noise={"cold": 0.1}, time="2026-11-22T08:00:00+00:00") for made in first]
    resumed = replace(row(VECTOR, 1, 8.0), noise={"cold": 0.5}, time="2026-11-23T08:00:00+00:00")
    assert timed_together([*first, *second, resumed], "cold") == second
    assert timed_together([resumed, *second, *first], "cold") == second
    assert timed_together([first[1], resumed], "cold") == timed_together([resumed, first[1]], "cold") == [resumed]


def test_a_time_that_nobody_believes_is_no_result():
    right, suspicious = row(VECTOR, 1, 8.0), replace(row(FP32, 1, 0.1), status="suspicious")
    assert passed([right, suspicious], "cold") == timed_together([right, suspicious], "cold") == [right]
    assert passed([right], "host") == []


def test_of_two_devices_no_row_is_lost():
    other = replace(row(), environment=replace(row().environment, device="NVIDIA H100"))
    assert len(frame([row(), other, row()], "cold")) == 2


def test_the_geometric_mean():
    assert geometric_mean(pd.Series([1.0, 4.0])) == pytest.approx(2.0)
