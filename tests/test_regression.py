"""Old rows against new: when the intervals of speed-ups overlap, nothing became faster or slower."""

import pytest
from made_rows import by_former_clock, timed
from msgspec.structs import replace

from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.journal import read_rows, to_line
from triton_vs_tilus.bench.rows.regression import TIMED_OTHERWISE, changes, regressions
from triton_vs_tilus.bench.rows.row import Row


def on(row: Row, device: str) -> Row:
    return replace(row, environment=replace(row.environment, device=device))


def at(row: Row, m: int) -> Row:
    return replace(row, problem=replace(row.problem, name=f"{m}x256x7168", m=m))


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((1.20, 1.15, 1.25), (1.40, 1.30, 1.50), "faster"),
        ((1.20, 1.15, 1.25), (1.40, 1.26, 1.50), "faster"),
        ((1.20, 1.15, 1.25), (1.40, 1.25, 1.50), "tie"),
        ((1.20, 1.15, 1.25), (1.40, 1.24, 1.50), "tie"),
        ((1.20, 1.00, 1.45), (1.40, 1.35, 1.46), "tie"),
        ((1.40, 1.26, 1.50), (1.20, 1.15, 1.25), "slower"),
        ((1.40, 1.25, 1.50), (1.20, 1.15, 1.25), "tie"),
        ((1.40, 1.20, 1.50), (1.20, 1.15, 1.25), "tie"),
        ((1.40, 1.35, 1.46), (1.20, 1.00, 1.45), "tie"),
    ],
)
def test_overlapping_intervals_are_a_tie(old, new, verdict):
    (change,) = changes([timed(*new)], [timed(*old)])
    assert change.verdict == verdict
    assert change.speedup == pytest.approx(new[0] / old[0])
    assert bool(regressions([change], 5)) == (verdict == "slower")


@pytest.mark.parametrize(
    ("within", "between", "verdict"),
    [
        (0.0, {}, "slower"),
        (0.06, {}, "tie"),
        (0.0, {"cold": 0.06}, "tie"),
        (0.04, {"cold": 0.04}, "slower"),
        (0.0, {"cold": 0.04, "graph": 0.06}, "slower"),
        (0.0, {"warm": 0.04, "graph": 0.06}, "tie"),  # cold was not run twice
    ],
)
def test_what_two_runs_differ_by_anyway_is_a_tie(within, between, verdict):
    """Speed-ups 5 % apart, whose intervals do not overlap."""
    (change,) = changes([timed(1.14, 1.13, 1.15, within)], [timed(1.20, 1.19, 1.21)], lambda rows: between)
    assert change.verdict == verdict


def test_how_far_two_runs_lie_apart_is_that_of_the_files_that_were_recorded_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "RESULTS", tmp_path)
    names = [replace(timed(1.2, 1.19, 1.21), contender=f"triton/{index}") for index in range(40)]
    again = [replace(timed(1.2 * (1 + index / 1000), 1.19, 1.21), contender=f"triton/{index}") for index in range(40)]
    for path, rows in (
        (tmp_path / "h200" / "router.jsonl", names),
        (tmp_path / "h200" / "again" / "router.jsonl", again),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(map(to_line, rows)))
    row = timed(1.2, 1.19, 1.21)
    assert queries.between_runs([row]) == {"cold": pytest.approx(0.039)}
    assert queries.between_runs([on(row, "NVIDIA H100")]) == {}


def test_of_several_second_runs_the_one_that_lies_furthest_apart_counts(results):
    for name, speedup in (("a", 1.08), ("b", 1.212), ("c", 1.3)):
        for folder, row in (
            (results / "h200", timed(1.2, 1.19, 1.21)),
            (results / "h200" / "again", timed(speedup, 1, 2)),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.jsonl").write_text(to_line(on(row, "NVIDIA H100") if name == "c" else row))
    assert queries.between_runs([timed(1.2, 1.19, 1.21)]) == {"cold": pytest.approx(0.1)}


def test_the_noise_between_runs_is_that_of_the_problem_or_else_of_all(results, monkeypatch):
    """Run twice at T = 1, 2 % apart, and at T = 1024, 8 %; T = 16 was run once."""
    by_tokens = {m: at(timed(1.2, 1.19, 1.21), m) for m in (1, 16, 1024)}
    again = [at(timed(1.224, 1, 2), 1), at(timed(1.296, 1, 2), 1024)]
    for folder, rows in ((results / "h200", by_tokens.values()), (results / "h200" / "again", again)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "router.jsonl").write_text("".join(map(to_line, rows)))
    monkeypatch.setattr(queries, "FEWEST_PAIRS", 1)
    for tokens, share in ((1, 0.02), (16, 0.08), (1024, 0.08)):
        assert queries.between_runs([by_tokens[tokens]]) == {"cold": pytest.approx(share)}
    assert [queries.was_run_twice(row, "cold") for row in by_tokens.values()] == [True, False, True]
    assert queries.between_runs([replace(by_tokens[1], timing={}), by_tokens[1]]) == {"cold": pytest.approx(0.02)}
    slower = [at(timed(1.14, 1.13, 1.15), m) for m in (1, 1024)]
    found = changes(slower, list(by_tokens.values()), queries.between_runs)
    assert [change.verdict for change in found if change.problem != by_tokens[16].problem.name] == ["slower", "tie"]


@pytest.mark.parametrize(("pairs", "share"), [(19, 0.08), (20, 0.02)])
def test_few_pairs_of_a_problem_do_not_say_how_far_its_runs_lie_apart(results, pairs, share):
    """2 % apart at T = 1, and one pair 8 % at T = 1024."""
    many = [replace(at(timed(1.2, 1.19, 1.21), 1), contender=f"triton/{index}") for index in range(pairs)]
    one = at(timed(1.2, 1.19, 1.21), 1024)
    again = [
        *(replace(at(timed(1.224, 1, 2), 1), contender=row.contender) for row in many),
        at(timed(1.296, 1, 2), 1024),
    ]
    for folder, rows in ((results / "h200", [*many, one]), (results / "h200" / "again", again)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "router.jsonl").write_text("".join(map(to_line, rows)))
    assert queries.between_runs(many) == {"cold": pytest.approx(share)}


def test_two_runs_count_where_the_procedure_is_one_and_that_of_the_row(results):
    """Of two procedures the one has runs 2 % apart, the other 8 %; runs of different ones are no second runs."""
    one, other = timed(1.2, 1.19, 1.21), by_former_clock(timed(1.2, 1.19, 1.21))
    for name, first, second in (
        ("a", one, timed(1.224, 1, 2)),
        ("b", other, by_former_clock(timed(1.296, 1, 2))),
        ("c", one, by_former_clock(timed(2.0, 1, 3))),
    ):
        for folder, row in ((results / "h200", first), (results / "h200" / "again", second)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.jsonl").write_text(to_line(row))
    assert queries.between_runs([one]) == {"cold": pytest.approx(0.02)}
    assert queries.between_runs([other]) == {"cold": pytest.approx(0.08)}
    assert queries.between_runs([replace(one, timing={})]) == {"cold": pytest.approx(0.08)}
    assert queries.noise(one, "cold") == pytest.approx(0.02) and queries.noise(other, "cold") == pytest.approx(0.08)


def test_times_of_two_procedures_are_not_compared():
    old, new = by_former_clock(timed(1.2, 1.19, 1.21)), timed(2.4, 2.3, 2.5)
    (change,) = changes([new], [old])
    assert (change.verdict, change.old_us, change.new_us, change.speedup) == (TIMED_OTHERWISE, None, None, None)
    assert not regressions([change], 1.0)


def test_only_what_passed_in_both_runs_is_a_second_run():
    one, other = timed(1.2, 1.19, 1.21), timed(1.8, 1.79, 1.81)
    assert list(queries.apart([one], [other]).values()) == [[pytest.approx(0.5)]]
    failed = replace(other, status="wrong")
    assert queries.apart([one], [failed]) == queries.apart([failed], [one]) == {}


def test_a_config_that_changed_is_no_second_run():
    one, other = timed(1.2, 1.19, 1.21), replace(timed(1.3, 1.29, 1.31), config={"split_k": 99})
    assert list(queries.apart([one], [one]).values()) == [[0.0]] and queries.apart([one], [other]) == {}


def test_every_second_run_has_a_first_of_its_configs():
    seconds = list(queries.RESULTS.glob("*/**/again/*.jsonl"))
    assert seconds
    for path in seconds:
        assert queries.apart(read_rows(path.parents[1] / path.name), read_rows(path)), path


def test_what_had_failed_before_and_has_no_row_now_is_not_broken():
    gone, there = timed(1.2, 1.1, 1.3), timed(1.2, 1.1, 1.3)
    gone = replace(gone, contender="triton/gone")
    failed = replace(gone, status="wrong", timing={})
    assert [change.verdict for change in changes([there], [there, gone])] == ["tie", "broken"]
    assert [change.verdict for change in changes([there], [there, failed])] == ["tie"]


def test_a_contenders_timings_of_two_commands_are_all_held_against():
    """Else the row that came last would hide that the other became slower."""
    old, new = timed(1.4, 1.39, 1.41), timed(1.2, 1.19, 1.21)
    elsewhere = replace(new, asked=["host"], timing={"host": new.timing["cold"]})
    assert [(change.timing, change.verdict) for change in changes([new, elsewhere], [old])] == [("cold", "slower")]


def test_of_two_commands_the_row_that_has_the_timing_is_asked_for_its_noise():
    old, new = timed(1.4, 1.39, 1.41), timed(1.2, 1.19, 1.21)
    elsewhere = replace(new, asked=["host"], timing={"host": new.timing["cold"]})
    (change,) = changes([new, elsewhere], [old], lambda rows: {"cold": 0.2} if "cold" in rows[0].timing else {})
    assert change.verdict == "tie"
