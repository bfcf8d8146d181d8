"""Language x protocol, from made rows."""

import pandas as pd
import pytest
from made_rows import FP32, VECTOR, router_rows, row
from msgspec.structs import replace

from triton_vs_tilus.bench import report
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.row import BASELINE, AgainstRecord, Row
from triton_vs_tilus.bench.show import matrix, tables
from triton_vs_tilus.kernels_triton import or_reduce


def made(contender: str, protocol: str, tokens: int, us: float | None, **more):
    """more: fields of the row."""
    status = {"status": "unsupported", "message": "no clusters"} if us is None else {}
    return replace(row(contender, tokens, us, **status), protocol=protocol, **more)


def rows():
    """Two problems. Triton: separate 1.25x and 2x, of which a slower variant takes nothing; tilus: separate 1x and 1x,
    serial on the first alone, cluster on none."""
    return [
        row(BASELINE, 1),
        made(VECTOR, "parallel", 1, 8.0, launches=2, workspace_bytes=1024),
        made("triton/decompose_k.tile", "parallel", 1, 9.0, launches=2, workspace_bytes=10**9),
        made("tilus/decompose_k.vector", "parallel", 1, 10.0, launches=2, workspace_bytes=1024),
        made(FP32, "serial", 1, 20.0, launches=1, deterministic=False),
        made("tilus/cluster", "cluster", 1, None),
        row(BASELINE, 16),
        made(VECTOR, "parallel", 16, 5.0, launches=2, workspace_bytes=4 * 2**20),
        made("tilus/decompose_k.vector", "parallel", 16, 10.0, launches=2, workspace_bytes=2048),
        made("tilus/cluster", "cluster", 16, None),
    ]


def lines(table: tables.Table, *keys: str) -> dict:
    """By the cells under these headings, the line as a dict of its heading's last words."""
    named = [dict(zip((head.replace("\n", " ") for head in table.header), line, strict=True)) for line in table.lines]
    return {tuple(line[key] for key in keys): line for line in named}


def test_the_language_is_told_apart_from_the_protocol():
    table = matrix.effect_table(rows(), "cold")
    assert table.header == ["protocol", "triton", "tilus", "tilus over\ntriton"]
    assert table.lines == [
        ["parallel", "1.581", "1.000", "0.632"],  # sqrt(1.25 * 2), and its inverse
        ["serial", "", "0.500 (1 of 2)", ""],
        ["cluster", "", "unsupported", ""],
    ]
    assert "the languages are up to 1.58x apart (decompose_k.vector), on one problem up to 2.00x" in table.foot
    assert "in tilus the protocols" not in table.foot  # only one has both problems


def of_another_run(of: Row) -> Row:
    return replace(of, clocks=replace(of.clocks, sm_mhz=[1950, 1980]))


def against(contender: str, ratio: float, spread: float = 0.01) -> dict:
    found = AgainstRecord(contender=contender, ratio=ratio, low=ratio * (1 - spread), high=ratio * (1 + spread))
    return {"against": {"cold": found}}


def matched_rows():
    """At T = 1 tilus is 1.25x at Triton's config, a tie at its own; at T = 16 slower at Triton's, and its own config is
    one that Triton cannot run. Each with its own: 1.1x, 0.5x by a config of tilus' that was not searched, and at T = 64
    1.2x against one of Triton's."""
    here, there, serial = VECTOR, "tilus/decompose_k.vector", "parallel"
    return [
        row(BASELINE, 1),
        made(here, serial, 1, 8.0, **against(there, 1 / 1.1)),
        made(there, serial, 1, 7.3, config_source="tuned", **against(here, 1.1)),
        made(f"{there}@triton", serial, 1, 6.4, **against(here, 1.25)),
        made(f"{here}@tilus", serial, 1, 7.3, **against(there, 1.002)),
        row(BASELINE, 16),
        made(here, serial, 16, 5.0, config_source="tuned"),
        made(there, serial, 16, 10.0, config_source="nearest", **against(here, 0.5)),
        made(f"{there}@triton", serial, 16, 10.0, **against(here, 0.8)),
        made(f"{here}@tilus", serial, 16, None),
        row(BASELINE, 64),
        made(here, serial, 64, 6.0, config_source="nearest"),
        made(there, serial, 64, 5.0, config_source="tuned", **against(here, 1.2)),
    ]


def test_languages_are_compared_at_the_same_config_by_paired_rounds():
    first, second, *_ = matrix.tables(matched_rows())
    assert first.title == "language at the same config: tilus over triton"
    (line,) = first.lines
    triton, tilus = "1.000, 1 / 0 / 1", "0.998, 0 / 1 / 0"  # sqrt(1.25 * 0.8)
    assert line == ["decompose_k.vector", "parallel", triton, tilus, "0.999, 1 / 1 / 1", "1.100, 1 / 0 / 0"]
    assert second.header == ["T", "decompose_k.vector\n@triton", "decompose_k.vector\n@tilus"]
    assert second.lines == [["1", "1.25 (1.24-1.26)", "1.00 (0.99-1.01) ="], ["16", "0.80 (0.79-0.81)", ""]]
    cells = matrix.effect_table(matched_rows(), "cold").lines
    assert cells == matrix.effect_table([of for of in matched_rows() if not of.is_matched], "cold").lines


def borrowing_rows():
    """Of Triton's kernel at 3 T: 0.9x and 1.02x by borrowed configs, and its own. Of tilus' 0.96x; at T = 16 its own
    config was not timed."""
    own, tilus = {"block_m": 16}, "tilus/decompose_k.vector"
    found = {1: (0.9, {"block_m": 32}, "tuned"), 16: (1.02, {"block_m": 64}, "stale"), 64: (0.99, own, "tuned")}
    made_ones = []
    for tokens, (ratio, config, source) in found.items():
        nearest = {"config": config, "config_source": "nearest", **against(VECTOR, ratio)}
        made_ones += [
            row(BASELINE, tokens),
            made(VECTOR, "parallel", tokens, 8.0, config=own, config_source=source),
            made(f"{VECTOR}@borrowed", "parallel", tokens, 8.0 / ratio, **nearest),
        ]
    nearest = {"config": {"block_m": 64}, "config_source": "nearest", **against(tilus, 0.96)}
    return [
        *made_ones,
        made(tilus, "parallel", 1, 8.0, config=own, config_source="tuned"),
        made(f"{tilus}@borrowed", "parallel", 1, 8.3, **nearest),
        made(f"{tilus}@borrowed", "parallel", 16, 8.3, **nearest),
    ]


def test_a_borrowed_config_is_held_against_the_own_one_and_what_is_one_config_is_level():
    table = matrix.borrowed_table(borrowing_rows(), "cold")
    triton = ["decompose_k.vector", "triton", "3", "1", "2", "0.972°", "0.90 (0.89-0.91), T = 1"]
    tilus = ["decompose_k.vector", "tilus", "1", "0", "1", "0.960", "0.96 (0.95-0.97), T = 1"]
    assert table.lines == [triton, tilus]
    assert "at least 0.95x" in table.markdown()
    alone = [of_another_run(of) if of.contender == VECTOR else of for of in borrowing_rows()]
    assert matrix.borrowed_table(alone, "cold").lines == [tilus]


def test_borrowed_configs_are_no_rivals_and_no_comparison_of_languages():
    rows = borrowing_rows()
    first, *others = matrix.tables(rows)
    assert first.title == "speed kept with a borrowed config"
    own = [of for of in rows if not of.is_held_out]
    assert [table.lines for table in others] == [table.lines for table in matrix.tables(own)]
    assert matrix.matched([of for of in rows if of.is_held_out], "cold").empty


def test_a_difference_within_the_noise_floor_is_a_tie():
    one = made("tilus/decompose_k.vector@triton", "parallel", 1, 8.0, **against(VECTOR, 1.02, 0.001))
    other = made(VECTOR, "parallel", 1, 8.16)

    def matched(row: Row, other: Row = other) -> pd.DataFrame:
        return matrix.matched([row, replace(other, noise=row.noise)], "cold")

    assert list(matched(one).tie) == [False]
    assert list(matched(replace(one, noise={"cold": 0.021})).tie) == [True]
    assert list(matched(replace(one, **against(VECTOR, 1.02, 0.03))).tie) == [True]  # its interval spans 1
    assert matched(replace(one, status="wrong")).empty and matched(one, replace(other, status="wrong")).empty
    assert matched(one, of_another_run(other)).empty


@pytest.mark.parametrize(
    ("stale", "marked"),
    [(VECTOR, {"own"}), ("tilus/decompose_k.vector", {"own"}), ("tilus/decompose_k.vector@triton", {"triton"})],
)
def test_a_comparison_with_a_config_of_a_former_kernel_is_marked(stale, marked):
    """Of the own configs either's; at one language's config that one, whatever the other's own is."""
    there, beside = "tilus/decompose_k.vector", against(VECTOR, 1.1)
    both = [made(there, "parallel", 1, 7.3, **beside), made(f"{there}@triton", "parallel", 1, 7.3, **beside)]
    sources = {False: "tuned", True: "stale"}
    both = [replace(of, config_source=sources[of.contender == stale]) for of in (row(VECTOR, 1, 8.0), *both)]
    found = matrix.matched(both, "cold")
    assert set(found.config) == {"own", "triton"} and set(found.config[found.former]) == marked


def test_how_far_protocols_are_apart_is_told_of_cells_with_all_problems():
    more = [*rows(), made(FP32, "serial", 16, 40.0)]
    assert (
        "in tilus the protocols are up to 2.83x apart" in matrix.effect_table(more, "cold").foot
    )  # 1 over sqrt(0.5 * 0.25)


def test_a_spread_over_problems_is_told_of_three_and_more():
    three = [
        *rows(),
        row(BASELINE, 64),
        *(made(f"{of}/decompose_k.vector", "parallel", 64, 10.0) for of in matrix.PAIR),
    ]
    assert matrix.effect_table(three, "cold").lines[0][-1] == "0.737 (0.50-1.00)"
    rare = [*three, made("tilus/decompose_k.tile", "parallel", 1, 3.0)]  # its kernel's mean is of one problem of three
    told = "the languages are up to 1.36x apart (decompose_k.vector), on one problem up to 3.00x"
    assert told in matrix.effect_table(rare, "cold").foot


def test_a_kernel_is_held_against_the_same_one_in_the_other_language():
    """Not against another variant that is the fastest there; and each kernel has a line of its own."""
    unlike = [
        *rows(),
        made("tilus/decompose_k.tile", "parallel", 1, 4.5),  # the fastest of its cell, twice as fast as its twin
        made("triton/atomic", "atomic", 1, 10.0),
    ]
    assert matrix.twins_table(unlike, "cold").lines == [
        ["decompose_k.tile", "parallel", "2.000", "1 / 0 / 0"],
        ["decompose_k.vector", "parallel", "0.632", "0 / 0 / 2"],
    ]
    table = matrix.effect_table(unlike, "cold")
    assert table.lines[0][-1] == "0.928 (0.50-2.00)"  # the cube root of 2 * 0.8 * 0.5
    assert "up to 2.00x apart (decompose_k.tile)" in table.foot
    assert matrix.tables([of for of in unlike if of.language != "tilus"])[1].title == "the cells"


def from_elsewhere(of, contenders: set[str], tokens: int):
    """With configs of another shape on one problem."""
    return [
        replace(one, config_source="nearest") if one.contender in contenders and one.problem.m == tokens else one
        for one in of
    ]


def test_a_pair_of_which_a_config_was_not_searched_is_no_comparison_of_languages():
    table = matrix.effect_table(from_elsewhere(rows(), {"tilus/decompose_k.vector"}, 16), "cold")
    assert table.lines[0] == ["parallel", "1.581", "1.000", "0.800, 1 of 2"]  # 1 over 1.25
    assert "the languages are up to 1.25x apart" in table.foot
    assert (
        ". Not compared: 1 of 2 pairs (kernel and problem), where not both languages ran a config searched"
        in table.foot
    )
    one = from_elsewhere(rows(), {"tilus/decompose_k.vector"}, 16)
    assert matrix.twins_table(one, "cold").lines == [["decompose_k.vector", "parallel", "0.800, 1 of 2", "0 / 0 / 1"]]
    none = from_elsewhere(from_elsewhere(rows(), {VECTOR}, 16), {VECTOR}, 1)
    table = matrix.effect_table(none, "cold")
    assert table.lines[0][-1] == "0 of 2"
    assert "the languages are up to" not in table.foot

    neither = from_elsewhere(rows(), {VECTOR, "tilus/decompose_k.vector"}, 16)
    assert matrix.effect_table(neither, "cold").lines[0][-1] == "0.800, 1 of 2"


def test_a_pair_of_which_one_was_suspicious_is_no_comparison():
    """It has times, and nobody believes them."""
    found = [replace(of, status="suspicious") if of.contender == VECTOR and of.problem.m == 16 else of for of in rows()]
    assert matrix.twins_table(found, "cold").lines == [["decompose_k.vector", "parallel", "0.800", "0 / 0 / 1"]]


@pytest.mark.parametrize("name", [VECTOR, "tilus/decompose_k.vector"])
def test_a_pair_with_a_config_of_a_former_kernel_counts_and_is_marked(name):
    stale = [replace(of, config_source="stale") if of.contender == name else of for of in rows()]
    assert matrix.effect_table(stale, "cold").lines[0][-1] == matrix.effect_table(rows(), "cold").lines[0][-1] + "°"
    assert matrix.twins_table(stale, "cold").lines[0][2].endswith("°")
    assert not matrix.twins_table(rows(), "cold").lines[0][2].endswith("°")


def test_a_control_is_in_no_cell():
    """It leaves out what the others do: its speed would be its language's gain."""
    assert {of.variant for of in or_reduce.KERNELS if row(of.full_name).is_control} == or_reduce.CONTROLS
    plain = rows()
    controls = [made("triton/or_reduce.control_unrolled", "parallel", tokens, 1.0) for tokens in (1, 16)]
    mixed = [*plain, *controls]
    assert matrix.tables(mixed) == matrix.tables(plain)
    assert tables.summary_table(mixed) == tables.summary_table(plain)
    baseline = [of for of in plain if of.contender == BASELINE]
    assert matrix.effect_table([*baseline, *controls], "cold").lines == []


def test_a_cell_is_told_in_full():
    found = lines(matrix.cells_table(rows(), "cold"), "protocol", "language")
    assert found["parallel", "triton"] == {
        "protocol": "parallel",
        "language": "triton",
        "times torch.mm (geometric mean)": "1.581",
        "share of floor": "79%",  # of 5 us to read: 8.0 and 5.0
        "faster / tie / slower": "2 / 0 / 0",
        "fastest of all": "2",
        "error / torch's": "1.00",
        "deterministic": "yes",
        "launches": "2",
        "workspace": "1 KiB to 4.0 MiB",  # of what was fastest, not of the other variant
        "problems": "2 of 2",
    }
    assert found["serial", "tilus"]["faster / tie / slower"] == "0 / 0 / 1"
    assert found["serial", "tilus"]["deterministic"] == "no"
    assert found["serial", "tilus"]["problems"] == "1 of 2"
    assert found["cluster", "tilus"]["problems"] == "unsupported"
    assert "tilus cluster: no clusters" in matrix.cells_table(rows(), "cold").details


def test_what_differs_over_problems_is_told():
    tilus = "tilus/decompose_k.vector"
    wide = replace(row().accuracy, times_torch=2.0)
    varied = [
        replace(of, accuracy=wide, deterministic=False) if (of.contender, of.problem.m) == (tilus, 1) else of
        for of in (*rows(), made("tilus/atomic", "atomic", 16, 5.01))
    ]
    found = lines(matrix.cells_table(varied, "cold"), "protocol", "language")
    cell = found["parallel", "tilus"]
    assert (cell["error / torch's"], cell["deterministic"]) == ("2.00", "some")
    assert [found["parallel", "triton"][of] for of in ("error / torch's", "fastest of all")] == ["1.00", "1 +1 †"]
    assert found["atomic", "tilus"]["fastest of all"] == "0 +1 †"


def test_where_the_baseline_is_fastest_no_cell_is():
    table = matrix.problems_table([row(BASELINE, 1), made(FP32, "serial", 1, 20.0)], "cold")
    assert table.lines == [["1", "0.50"]]


def test_each_problem_has_its_best_of_every_cell():
    table = matrix.problems_table(rows(), "cold")
    assert table.header == ["T", "triton\nparallel", "tilus\nparallel", "tilus\nserial"]
    assert table.lines == [["1", "1.25 *", "1.00 =", "0.50"], ["16", "2.00 *", "1.00 =", ""]]


def test_a_config_that_was_not_searched_is_marked():
    changed = [replace(of, config_source="nearest") if of.contender == VECTOR else of for of in rows()]
    assert matrix.problems_table(changed, "cold").lines[0][1] == "1.25° *"


def test_the_order_is_that_of_the_protocols_whatever_the_order_of_rows():
    cells = [tuple(line[:2]) for line in matrix.cells_table(rows()[::-1], "cold").lines]
    assert cells == [("parallel", "triton"), ("parallel", "tilus"), ("serial", "tilus"), ("cluster", "tilus")]


def test_a_protocol_and_a_language_of_the_future_stand_last():
    more = [*rows(), made("new/matmul", "telepathy", 1, 1.0), made("new/matmul", "telepathy", 16, 1.0)]
    assert matrix.cells_table(more, "cold").lines[-1][:2] == ["telepathy", "new"]
    assert matrix.effect_table(more, "cold").header == ["protocol", "triton", "tilus", "new", "tilus over\ntriton"]


def test_rows_that_were_not_timed_have_no_matrix():
    with pytest.raises(ValueError, match="rows that were timed"):
        matrix.tables([row(VECTOR, 1, None)])


def test_the_command_prints_it_from_a_file(tmp_path, capsys):
    tables.write_json(router_rows(), tmp_path / "rows.json")
    assert report.main([str(tmp_path / "rows.json"), "--matrix"]) == 0
    shown = capsys.readouterr().out
    assert "language x protocol: [T, 7168] @ [7168, 256], bf16, weight stored [N, K]" in shown
    assert "the cells by T" in shown
    assert report.main([str(tmp_path / "rows.json"), "--matrix", "--markdown"]) == 0
    assert "| protocol | triton | tilus | tilus over triton |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("over", "noise", "between", "standing"),
    [
        ((1.02, 1.01, 1.03), 0.004, 0.004, "ahead"),
        ((1.02, 1.01, 1.03), 0.03, 0.004, "tie"),
        ((1.02, 1.01, 1.03), 0.004, 0.03, "tie"),
        ((1.02, 0.99, 1.05), 0.004, 0.004, "tie"),
        ((0.97, 0.96, 0.98), 0.004, 0.004, "behind"),
    ],
)
def test_languages_are_held_against_each_other_by_paired_rounds(over, noise, between, standing, monkeypatch):
    """Their speed-ups' intervals, 1 % to either side, would overlap in all of these."""
    monkeypatch.setattr(queries, "between_runs", lambda rows: {"cold": between})
    tilus = made("tilus/decompose_k.vector", "parallel", 1, 8.0, noise={"cold": noise, "warm": noise})
    value, low, high = over
    twin = VECTOR
    tilus = replace(tilus, against={"cold": AgainstRecord(contender=twin, ratio=value, low=low, high=high)})
    both = [row(), made(twin, "parallel", 1, 8.0), tilus]
    (pair,) = matrix.twins(matrix.lines_of(both, "cold")).itertuples()
    assert (pair.ratio, pair.standing) == (value, standing)


@pytest.mark.parametrize(("us", "standing"), [(7.7, "ahead"), (7.88, "tie"), (8.12, "tie"), (8.3, "behind")])
def test_where_rounds_were_not_paired_the_intervals_of_both_speed_ups_decide(us, standing, monkeypatch):
    monkeypatch.setattr(queries, "between_runs", lambda rows: {"cold": 0.004})
    both = [row(), made(VECTOR, "parallel", 1, 8.0), made("tilus/decompose_k.vector", "parallel", 1, us)]
    (pair,) = matrix.twins(matrix.lines_of(both, "cold")).itertuples()
    assert (pair.ratio, pair.standing) == (pytest.approx(8.0 / us), standing)
