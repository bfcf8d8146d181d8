"""Tables, files and verdicts from rows alone."""

import re
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pandas
import pytest
from made_rows import FP32, VECTOR, by_former_clock, router_rows, row, timed
from msgspec.structs import replace
from said import on_stderr

from triton_vs_tilus.bench import report
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.rows import queries, regression
from triton_vs_tilus.bench.rows.journal import Journal, read_rows
from triton_vs_tilus.bench.rows.row import BASELINE, ONE_CONFIG, FloorRecord, SearchRecord
from triton_vs_tilus.bench.show import matrix, tables
from triton_vs_tilus.bench.show.winners import winners_table


def text_of(*printed: tables.Table) -> str:
    console = tables.console()
    with console.capture() as capture:
        for table in printed:
            console.print(table)
    return capture.get()


def test_a_problems_table_has_a_line_for_every_contender_and_marks_the_fastest():
    table = tables.problem_table(router_rows()[:3])
    lines = {line[0]: dict(zip(table.header, line, strict=True)) for line in table.lines}
    assert table.best == {0}
    assert list(lines) == [f"{VECTOR} *", BASELINE, FP32]
    vector = lines[f"{VECTOR} *"]
    assert vector["cold us"] == "8.00 (7.92-8.08)"
    assert vector["warm us"] == "4.00"
    assert vector["TFLOPS"] == f"{2 * 256 * 7168 / 8e-6 / 1e12:.2f}"
    assert vector["GB/s"] == f"{2 * (7168 + 256 * 7168 + 256) / 8e-6 / 1e9:.0f}"
    assert vector["x torch.mm"] == "1.25 (1.24-1.26)"
    assert vector["x floor"] == "1.60"
    assert vector["config"] == "16x16x128 s8 w1 p4 group_m=8"
    assert lines[BASELINE]["x torch.mm"] == "1"
    assert "torch.mm against itself: 0.40%" in table.foot
    assert "1965-1980 MHz" in table.foot


def test_the_winner_and_its_reason_come_first_and_failures_last():
    failed = [
        row("triton/cluster", 1, None, status="unsupported", message="no clusters here"),
        row("tilus/cluster", 1, None, status="wrong", message="error 1 is over the bound 0.1"),
    ]
    last = replace(row("triton/stream_k", 1, 20.0), protocol="stream_k", launches=1)
    first = replace(row(VECTOR, 1, 8.0), launches=2)
    table = tables.problem_table([*failed, last, row(FP32, 1, 12.5), row(), first])
    names = [f"{VECTOR} *", BASELINE, FP32, "triton/stream_k", "triton/cluster", "tilus/cluster"]
    assert [line[0] for line in table.lines] == names
    winner, why, after = table.head
    assert winner == f"{VECTOR}: 8.0 us, 1.25x torch.mm."
    assert why == "Why: decompose_k.vector: 2 launches; no split waits for another (inferred)."
    assert after.strip() == f"Next, {FP32}: 1.56x as long (measured)."
    title, *shown = shown_in(100, table).splitlines()
    assert title == "router 1x256x7168-bf16-nk" and tuple(shown[:3]) == tuple(table.head)
    assert max(map(len, shown)) <= 100
    assert f"- {winner}" in table.markdown().splitlines()


def test_who_ties_with_the_winner_stands_above_the_table():
    tied = tables.problem_table([row(), row(VECTOR, 1, 8.0), row(FP32, 1, 8.01)])
    assert re.fullmatch(rf"No lead over {FP32} \(two runs differ by up to \d+\.\d %\)\.", tied.head[1])
    assert tables.problem_table([row(VECTOR, 1, 8.0)]).head == []  # nothing to hold it against


def test_every_operation_has_its_winner_above_its_table():
    for name in ("or_reduce-int64", "chain", "w4a16-square", "router-references", "square-generated"):
        for rows in queries.recorded(name).values():
            for of_problem in queries.by_problem(rows).values():
                assert tables.problem_table(of_problem).head
                assert max(map(len, tables.problem_table(of_problem).head)) <= 100


def test_what_was_compiled_is_said_where_more_is_asked_for():
    table = tables.problem_table([row(), row(VECTOR, 1, 8.0, message="compiled to mm")])
    plain, verbose = shown_in(100, table), shown_in(100, table, verbose=True)
    assert "Notes left out for 1 of the contenders; -v shows all." in plain and "compiled to mm" not in plain
    assert f"{VECTOR}: compiled to mm" in verbose and "Notes left out" not in verbose
    assert f"- {VECTOR}: compiled to mm" in table.markdown().splitlines()


def test_contenders_without_figures_say_why():
    wrong, unsupported = (tables.problem_table(router_rows()[i : i + 3]) for i in (3, 6))
    assert wrong.lines[2][-2] == "wrong"
    assert wrong.details == [f"{FP32}: wrong: error 1 is over the bound 0.1"]
    assert unsupported.details == [f"{FP32}: unsupported: M is [odd]"]
    assert "M is [odd]" in text_of(tables.problem_table(router_rows()[6:]))


def test_an_error_beyond_the_studys_tolerance_is_told():
    rows = router_rows()[:3]
    rows[1].accuracy.times_study, rows[2].accuracy.times_study = 2.96, 0.9
    told = tables.problem_table(rows).details
    assert told == [f"{VECTOR}: its error is 3.0 times the decompose-K study's tolerance"]


def test_ties_are_shown():
    assert tables.problem_table(router_rows()[3:6]).lines[1][7] == "1.00 (0.99-1.01) tie"


def test_without_the_baseline_or_any_time_there_is_still_a_table():
    failed = row(VECTOR, 1, None, status="crashed", message="illegal access")
    assert tables.problem_table([failed]).lines == [
        [VECTOR, "parallel", "1.00", "crashed", "16x16x128 s8 w1 p4 group_m=8"]
    ]
    assert "nothing was timed" in text_of(tables.summary_table([failed]))


def test_warm_leads_where_cold_was_not_asked_for():
    table = tables.problem_table([row(timings=("warm", "host"))])
    assert table.header[2:4] == ["warm us", "host us"]
    assert "quartiles, less launch, TFLOPS, GB/s, speed-up and floor: warm" in table.foot


def shown_in(width: int, *printed: tables.Table, verbose: bool = False) -> str:
    terminal = tables.Terminal(width=width, file=StringIO(), verbose=verbose)
    for table in printed:
        terminal.print(table)
    return terminal.file.getvalue()


def words(table: tables.Table, columns: Sequence[int]) -> set[str]:
    """Of the headers and cells."""
    cells = [cells[index] for cells in (table.header, *table.lines) for index in columns]
    return {word for cell in cells for word in cell.split()}


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("name", ["router-references", "w4a16-square", "or_reduce-int64", "crossover"])
def test_no_word_is_broken_in_a_narrow_terminal(name, width):
    (rows,) = queries.recorded(name).values()
    for table in [*tables.tables(rows), *matrix.tables(rows), tables.overview_table(rows)]:
        plain, verbose = shown_in(width, table), shown_in(width, table, verbose=True)
        assert all(len(line) <= width for line in (plain + verbose).splitlines())
        assert words(table, range(len(table.header))) <= set(verbose.split())
        left_out = re.search(rf"Left out in {width} columns: (.*?); -v shows all\.", " ".join(plain.split()))
        names = left_out[1].split(", ") if left_out else []
        kept = [index for index, name in enumerate(table.header) if " ".join(name.split()) not in names]
        assert len(kept) + len(names) == len(table.header) and kept[0] == 0
        assert words(table, kept) <= set(plain.split())


def test_a_narrow_terminal_says_which_columns_it_leaves_out():
    table = tables.problem_table(router_rows()[:3])
    wide, narrow, verbose = shown_in(240, table), shown_in(100, table), shown_in(100, table, verbose=True)
    assert "16x16x128 s8 w1 p4 group_m=8" in wide and "Left out" not in wide
    assert "16x16x128" not in narrow and "8.00 (7.92-8.08)" in narrow
    left_out = "less launch, TFLOPS, GB/s, x floor, error / torch's, config"
    assert f"Left out in 100 columns: {left_out}; -v shows all." in narrow
    assert "16x16x128 s8 w1 p4" in verbose and "Left out" not in verbose


def test_piped_tables_are_whole(capsys):
    table = tables.Table("", ["a" * 200, "b" * 300], [["c" * 200, "d" * 300]])
    tables.console().print(table)
    assert {"a" * 200, "b" * 300, "c" * 200, "d" * 300} <= set(capsys.readouterr().out.split())


def test_the_summary_counts_each_groups_best_on_each_problem():
    rows = [*router_rows(), replace(row("triton/decompose_k.tile", 1, 9.0), protocol="parallel")]
    table = tables.summary_table(rows)
    lines = {(line[0], line[2]): line for line in table.lines}
    # 1.25, 1.00 and 0.50 of torch.mm: the slower variant of the first problem does not count.
    assert lines["triton", "cold"] == ["triton", "parallel", "cold", "0.855", "1", "1", "1", "1 +1 †", "3 of 3"]
    assert lines["tilus", "cold"] == ["tilus", "serial", "cold", "0.800", "0", "0", "1", "0", "1 of 3"]
    assert set(lines) == {(language, timing) for language in ("triton", "tilus") for timing in ("cold", "warm")}


def test_of_two_rows_that_measure_the_same_the_last_counts():
    first, second = row(VECTOR, 1, 8.0), row(VECTOR, 1, 9.0)
    assert queries.by_problem([first, second]) == {second.problem.name: [second]}


def test_the_source_names_the_former_clock():
    now, former = row(VECTOR, 1, 8.0), by_former_clock(row(FP32, 1, 9.0))
    assert "clock" not in tables.source_of([now])
    assert tables.source_of([former]).endswith(", cold by the former clock")
    assert tables.source_of([now, former]).endswith(", cold by the former clock in 1 of 2 rows")


def test_the_overview_has_a_line_for_every_problem():
    table = tables.overview_table(router_rows())
    assert table.title == "[T, 7168] @ [7168, 256], bf16, weight stored [N, K]"
    assert table.header == ["T", BASELINE, VECTOR, FP32]
    assert table.lines[0] == ["1", "10.0", "8.0 (1.25x) *", "12.5 (0.80x)"]
    assert table.lines[1] == ["16", "10.0 †", "10.0 (1.00x, tie) †", "wrong"]
    assert "Recorded on NVIDIA H200, gpus 1, driver 580.1, cuda 13.0" in table.foot
    assert "2026-11-21" in table.foot


def test_all_speedups_fit_in_one_table():
    table = tables.speedups_table(router_rows())
    assert table.title == "[T, 7168] @ [7168, 256], bf16, weight stored [N, K]"
    assert table.header == ["T =", "1", "16", "1024"]
    lines = {line[0]: line[1:] for line in table.lines}
    assert lines[f"{BASELINE}, us"][0] == "10.0"
    assert lines[VECTOR][0] == "1.25 *"
    assert lines[FP32][0] == "0.80"
    assert table.title in [of.title for of in tables.tables(router_rows())]


def test_problems_of_different_shapes_are_named_in_full():
    other = row()
    other.problem = replace(other.problem, n=128, name="other")
    assert [line[0] for line in tables.overview_table([row(), other]).lines] == ["other", row().problem.name]


def test_csv_has_a_line_for_every_row(tmp_path):
    tables.write_csv(router_rows(), tmp_path / "rows.csv")
    frame = pandas.read_csv(tmp_path / "rows.csv")
    assert len(frame) == len(router_rows())
    assert frame.timing_cold_median_us[1] == 8.0
    assert frame.timing_cold_gb_per_s[0] == pytest.approx(router_rows()[0].problem.least_bytes / 10.0 / 1e3)
    assert frame.config[1] == "16x16x128 s8 w1 p4 group_m=8"
    assert frame.problem_m.tolist() == [1, 1, 1, 16, 16, 16, 1024, 1024, 1024]


def test_json_is_read_back_as_the_same_rows(tmp_path):
    tables.write_json(router_rows(), tmp_path / "rows.json")
    assert read_rows(tmp_path / "rows.json") == router_rows()


def test_markdown_is_made_of_well_formed_tables():
    text = tables.markdown([*router_rows(), row("candidate/a.py:f", 1, None, status="crashed", message="a | b")])
    made = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(made) == 5  # of three problems, of all together, and the summary
    for table in made:
        assert len({line.replace(r"\|", "").count("|") for line in table.splitlines()}) == 1
    assert "- candidate/a.py:f: crashed: a | b" in text
    assert f"**{VECTOR} ***" in text


def test_changes_are_told_by_the_intervals_of_speed_ups():
    old = router_rows()
    new = [
        row(BASELINE, 1, 10.1),
        row(VECTOR, 1, 8.5),
        row(FP32, 1, 11.0),
        row(VECTOR, 16, None, status="crashed", message="illegal access"),
        row(FP32, 16, 12.0),
        row(VECTOR, 999, 1.0),
    ]
    found = {(change.problem[:2], change.contender, change.timing): change for change in regression.changes(new, old)}
    assert found["1x", BASELINE, "cold"].verdict == "baseline"
    assert found["1x", VECTOR, "cold"].verdict == "slower"
    assert found["1x", FP32, "warm"].verdict == "faster"
    assert found["16", VECTOR, ""].verdict == "broken"
    assert found["16", FP32, ""].verdict == "repaired"
    assert found["16", BASELINE, ""].verdict == "broken"  # no row any more, of a problem that has others
    assert len(found) == 9
    table = tables.changes_table(list(found.values()), new, old, {})
    assert "2 faster, 0 tie, 2 slower, 2 broken" in table.foot
    assert "5 rows are in only one of the files" in table.foot


@pytest.mark.parametrize(("fail_over", "count"), [(0, 2), (5, 2), (6, 2), (7, 0)])
def test_a_regression_is_slower_by_more_than_was_set(fail_over, count):
    found = regression.changes([row(VECTOR, 1, 8.5)], [row(VECTOR, 1, 8.0)])
    assert len(regression.regressions(found, fail_over)) == count


def test_what_moves_the_whole_machine_is_no_change():
    """All of a run 6% slower, torch.mm too, is a tie; all but torch.mm is a regression, however wide the quartiles."""
    old = [row(BASELINE, 1, 10.0), row(VECTOR, 1, 8.0)]
    drifted = [row(BASELINE, 1, 10.6), row(VECTOR, 1, 8.48, baseline_us=10.6)]
    assert {change.verdict for change in regression.changes(drifted, old)} == {"baseline", "tie"}
    assert not regression.regressions(regression.changes(drifted, old), 0)
    slower = [row(BASELINE, 1, 10.0), row(VECTOR, 1, 8.48)]
    for rows in (old, slower):
        for figures in rows[1].timing.values():
            figures.q1_us, figures.q3_us = figures.median_us * 0.9, figures.median_us * 1.1
    assert len(regression.regressions(regression.changes(slower, old), 5)) == 2


def test_hosts_whose_launches_lie_within_15_percent_of_the_next_are_of_one_kind():
    floors = [FloorRecord(launch_us=us, read_us=9.0) for us in (1.6, 1.2, 1.0, 1.1, 1.3)]
    assert queries.launch_costs([replace(row(), floor={"cold": floor}) for floor in floors]) == [1.15, 1.6]


def test_launches_by_two_clocks_are_of_one_host():
    def timed(made, us):
        return replace(made, floor={"cold": FloorRecord(launch_us=us, read_us=9.0)})

    former = timed(by_former_clock(row()), 3.4)
    assert queries.launch_costs([timed(row(), 2.8), former]) == [2.8]
    assert queries.launch_costs([timed(row(), 2.8), former, timed(former, 4.4)]) == [3.4, 4.4]


def test_what_broke_is_always_a_regression():
    broken = row(VECTOR, 1, None, status="wrong", message="NaN")
    assert regression.regressions(regression.changes([broken], [row(VECTOR, 1, 8.0)]), 1000)


def test_what_is_gone_is_broken():
    """A row, or a time that was asked for; not a problem that was left out, nor a time that nobody asked for."""
    old = [row(BASELINE, 1), row(VECTOR, 1, 8.0), row(BASELINE, 16), row(VECTOR, 16, 8.0)]
    (gone,) = regression.regressions(regression.changes([row(BASELINE, 1)], old), 1000)
    assert (gone.contender, gone.message) == (VECTOR, "no row any more")

    untimed = row(VECTOR, 1, 8.0, message="not timed warm: its calls outlast a queue")
    del untimed.timing["warm"]
    (gone,) = regression.regressions(regression.changes([row(BASELINE, 1), untimed], old), 1000)
    assert (gone.contender, gone.timing) == (VECTOR, "warm")

    cold = [row(BASELINE, 1, timings=("cold",)), row(VECTOR, 1, 8.0, timings=("cold",))]
    assert not regression.regressions(regression.changes(cold, old), 1000)


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "router-nk.jsonl")
    for made in router_rows():
        journal.append(made)
    return journal.path


def test_the_command_shows_writes_and_compares(journal, tmp_path, capsys):
    assert run_command(report.main, [str(journal)]) == 0
    shown = capsys.readouterr().out
    assert "Recorded on NVIDIA H200" in shown
    assert "summary" in shown
    assert "wrong: error 1 is over the bound" in shown

    files = ["--csv", str(tmp_path / "rows.csv"), "--json", str(tmp_path / "rows.json")]
    assert run_command(report.main, [str(journal), *files]) == 0
    assert read_rows(tmp_path / "rows.json") == read_rows(journal)

    tables.write_json([row(VECTOR, 1, 6.0)], tmp_path / "old.json")
    assert run_command(report.main, [str(journal), "--against", str(tmp_path / "old.json")]) == 0
    assert run_command(report.main, [str(journal), "--against", str(tmp_path / "old.json"), "--fail-over", "5"]) == 3
    assert (
        run_command(
            report.main, [str(journal), "--against", str(tmp_path / "old.json"), "--fail-over", "5", "--markdown"]
        )
        == 3
    )
    assert run_command(report.main, [str(journal), "--against", str(journal), "--fail-over", "0"]) == 0


def test_all_but_the_baseline_slower_is_exit_code_3(journal, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(queries, "RESULTS", tmp_path)  # no file was run twice there: no noise
    slower = router_rows()
    for made in slower:
        for figures in made.timing.values() if made.contender != BASELINE else ():
            for name in ("median_us", "q1_us", "q3_us"):
                setattr(figures, name, getattr(figures, name) * 1.06)
            for name in ("speedup", "speedup_low", "speedup_high"):
                setattr(figures, name, getattr(figures, name) / 1.06)
    tables.write_json(slower, tmp_path / "slower.json")
    assert run_command(report.main, [str(tmp_path / "slower.json"), "--against", str(journal), "--fail-over", "5"]) == 3
    shown = capsys.readouterr().out
    assert "0 faster, 0 tie, 8 slower, 0 broken" in shown
    assert "speed-ups over torch.mm" in shown
    assert run_command(report.main, [str(tmp_path / "slower.json"), "--against", str(journal), "--fail-over", "7"]) == 0


def test_files_without_rows_and_folders_that_are_missing(journal, tmp_path, capsys):
    (tmp_path / "empty.json").touch()
    for arguments in ([str(journal), "--against", str(tmp_path / "empty.json")], [str(tmp_path / "empty.json")]):
        assert run_command(report.main, arguments) == 2
        assert "empty.json: holds no row" in on_stderr(capsys)
    assert run_command(report.main, [str(journal), "--csv", str(tmp_path / "missing" / "rows.csv")]) == 2


def test_a_limit_with_nothing_to_hold_against_it_is_an_error(journal, tmp_path, capsys):
    tables.write_json([row(BASELINE, 1), row("triton/other", 2, 6.0)], tmp_path / "other.json")
    assert run_command(report.main, [str(journal), "--against", str(tmp_path / "other.json"), "--fail-over", "5"]) == 2
    assert "no row in common" in on_stderr(capsys)


def test_cold_times_of_two_clocks_are_not_held_against_each_other(journal, tmp_path, capsys):
    """The other timings are, and a limit needs one."""
    made = [row(BASELINE, 1), row(VECTOR, 1, 8.0)]
    both, cold = tmp_path / "both.json", tmp_path / "cold.json"
    tables.write_json(list(map(by_former_clock, made)), both)
    tables.write_json([by_former_clock(row(of.contender, 1, 8.0, timings=("cold",))) for of in made], cold)
    assert run_command(report.main, [str(journal), "--against", str(both), "--fail-over", "5"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "0 faster, 1 tie, 0 slower, 0 broken, 1 timed otherwise" in shown
    assert run_command(report.main, [str(journal), "--against", str(cold), "--fail-over", "5"]) == 2
    assert "no row in common that was timed alike, except those of torch.mm" in on_stderr(capsys)


def test_files_of_two_gpus_are_not_held_against_each_other(journal, tmp_path, capsys):
    away = row(VECTOR, 1, 6.0)
    away.environment = replace(away.environment, device="NVIDIA H100")
    for name, rows in (("away", [away]), ("both", [row(VECTOR, 1, 6.0), away])):
        tables.write_json(rows, tmp_path / f"{name}.json")
    files = [str(tmp_path / "away.json"), str(tmp_path / "both.json")]
    for new, old in ((str(journal), files[0]), (files[1], str(journal)), (str(journal), files[1])):
        written = tmp_path / "rows.csv"
        assert run_command(report.main, [new, "--against", old, "--csv", str(written)]) == 2
        assert "--against: rows are of NVIDIA H" in on_stderr(capsys) and not written.exists()
    assert run_command(report.main, [files[0], "--against", files[0]]) == 0


@pytest.mark.parametrize("percent", ["nan", "inf", "-1", "five"])
def test_a_limit_is_a_finite_number(journal, percent, capsys):
    assert run_command(report.main, [str(journal), "--against", str(journal), f"--fail-over={percent}"]) == 2
    assert "--fail-over" in on_stderr(capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "rows.jsonl: holds no row"),
        ("{\n", "rows.jsonl:1: "),
        ("[" * 100_000 + "\n", "rows.jsonl:1: "),
        ("PNG\n", "rows.jsonl:1: "),
    ],
)
def test_a_file_of_no_rows_is_named_with_its_line(journal, tmp_path, capsys, text, said):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    for arguments in ([str(file)], [str(journal), "--against", str(file)]):
        assert run_command(report.main, arguments) == 2
        error = on_stderr(capsys)
        assert error.startswith("report.py: error: ") and said in error and "Traceback" not in error


@pytest.mark.parametrize(("flag", "said"), [("--json", "is not a regular file"), ("--plot", "File exists")])
def test_files_are_tried_before_anything_is_shown(journal, capsys, flag, said):
    assert run_command(report.main, [str(journal), flag, "/dev/full"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and f"{flag} /dev/full: {said}" in shown.err


@pytest.mark.parametrize("arguments", [["no_such_file"], ["FILE", "--against", "no_such_file"]])
def test_a_command_that_is_refused_leaves_no_folder(journal, tmp_path, capsys, arguments):
    words = [str(journal) if word == "FILE" else word for word in arguments]
    assert run_command(report.main, [*words, "--plot", str(tmp_path / "plots")]) == 2
    assert "no_such_file: No such file" in on_stderr(capsys)
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(
    "flags",
    [
        ["--csv", "rows.jsonl"],
        ["--json", "link.jsonl"],
        ["--against", "old.json", "--json", "old.json"],
        ["--csv", "made", "--json", "./made"],
    ],
)
def test_what_it_reads_or_writes_is_not_written_over(journal, tmp_path, capsys, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    for name in ("rows.jsonl", "old.json"):
        (tmp_path / name).write_text(journal.read_text())
    (tmp_path / "link.jsonl").symlink_to("rows.jsonl")
    assert run_command(report.main, ["rows.jsonl", *flags]) == 2
    refused = f"{flags[-2]} is {Path(flags[-1])}; accepted: a file that this command neither reads nor writes otherwise"
    assert refused in on_stderr(capsys)
    assert (tmp_path / "rows.jsonl").read_text() == (tmp_path / "old.json").read_text() == journal.read_text()
    assert not (tmp_path / "made").exists()


def test_what_is_read_with_a_file_alone_is_refused_without_one(journal, tmp_path, capsys):
    flags = ["--csv", str(tmp_path / "rows.csv"), "--against", str(journal), "--fail-over", "1", "--matrix"]
    assert run_command(report.main, ["--update-docs", *flags]) == 2
    told = "--csv, --matrix, --against, --fail-over: no FILE; accepted beside --update-docs with a FILE"
    assert told in on_stderr(capsys)


def test_without_a_file_it_says_what_is_accepted(capsys):
    assert run_command(report.main, []) == 2
    accepted = "accepted: files of rows that bench/compare.py wrote, or --update-docs"
    assert on_stderr(capsys) == f"report.py: error: no FILE; {accepted}"


@pytest.mark.parametrize("arguments", [[], ["no_such_file"], ["F", "--fail-over", "5"]])
def test_the_command_refuses_what_it_cannot_do(arguments, capsys):
    assert run_command(report.main, arguments) == 2
    assert "error:" in on_stderr(capsys)


@pytest.mark.parametrize("flags", [[], ["--markdown"], ["--matrix"], ["--matrix", "--markdown"]])
def test_an_encoding_without_its_marks_is_one_error_that_says_what_writes_them(journal, flags, monkeypatch, capsys):
    stale = [replace(of, config_source="stale") for of in router_rows()]
    journal.write_text("")
    for of in stale:
        Journal(journal).append(of)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding="ascii"))
    assert run_command(report.main, [str(journal), *flags]) == 2
    assert re.fullmatch(
        r"report.py: error: '\\\S+' is not in ascii; accepted: UTF-8, e.g. by PYTHONUTF8=1", on_stderr(capsys)
    )


def test_it_runs_as_a_script(journal):
    made = subprocess.run(
        [sys.executable, str(queries.ROOT / "bench" / "report.py"), str(journal), "--markdown"],
        capture_output=True,
        text=True,
        cwd=journal.parent,
    )
    assert made.returncode == 0, made.stderr
    assert "| contender |" in made.stdout


@pytest.mark.parametrize("source", ["stale", "nearest", "heuristic"])
def test_a_config_that_was_not_searched_is_marked(source):
    rows = router_rows()
    for of in rows:
        of.config_source = source if of.contender == "triton/decompose_k.vector" else of.config_source
    made = tables.readme_table(rows)
    assert "| 8.0° (1.25x) * |" in made
    assert "| ---: | ---: | ---: |" in made  # figures still, to be set flush right


@pytest.mark.parametrize(
    ("contender", "marked"),
    [(name, False) for name in (*ONE_CONFIG[:-1], f"{ONE_CONFIG[-1]}4")] + [("published_triton/w4a16.splitk", True)],
)
def test_a_config_beside_which_there_is_no_other_is_not_marked(contender, marked):
    rows = router_rows()
    rows[1].contender, rows[1].config_source = contender, "heuristic"
    assert rows[1].not_searched == marked


def test_a_search_that_ran_out_of_time_is_marked_and_told():
    took = SearchRecord(tried=4, space=238, out_of_time=True, us=7.5, seconds=30.0, build_seconds=144.0)
    rows = router_rows()
    for of in rows:
        of.search = took if of.contender == VECTOR else None
    assert "| 8.0° (1.25x) * |" in tables.readme_table(rows)
    cells = {line[0].split()[0]: line[-1] for line in tables.problem_table(rows[:3]).lines}
    assert cells[VECTOR].endswith("; tried 4 of 238 configs, out of time") and "tried" not in cells[BASELINE]
    for of in rows:
        of.search = of.search and replace(of.search, out_of_time=False)
    assert "| 8.0 (1.25x) * |" in tables.readme_table(rows)
    assert tables.searches_of(rows) == {}  # of another run


@pytest.mark.parametrize(
    ("leader", "noise", "marks"),
    [
        ((1.25, 1.24, 1.26), 0.01, ["", " *", ""]),
        ((1.25, 1.17, 1.33), 0.01, ["", " †", " †"]),  # intervals overlap
        ((1.25, 1.24, 1.26), 0.20, ["", " †", " †"]),  # no more than the noise
        ((1.21, 1.205, 1.215), 0.30, [" †", " †", " †"]),
    ],
)
def test_a_star_is_for_a_lead_beyond_interval_and_noise(leader, noise, marks):
    other = replace(timed(1.15, 1.13, 1.18, noise), contender=FP32)
    baseline = replace(row(timings=("cold",)), noise={"cold": noise})
    baseline.timing["cold"] = replace(baseline.timing["cold"], speedup=1.0, speedup_low=1.0, speedup_high=1.0)
    made = [baseline, timed(*leader, noise), other]
    shown = [line[0] for line in tables.problem_table(made).lines]
    assert sorted(shown) == sorted(f"{each.contender}{mark}" for each, mark in zip(made, marks, strict=True))
    assert shown[-1] == f"{BASELINE}{marks[0]}"


def test_the_winners_are_the_fastest_of_each_language_beside_the_baseline():
    """Not of another run, no control, and none on another kernel's config."""
    resumed = replace(row("triton/cluster", 1, 5.0), noise={"cold": 0.5})
    control = replace(row("triton/or.control_fold", 1, 5.0), variant="control_fold")
    matched = replace(row(f"{FP32}@triton", 1, 5.0), variant="fp32@triton")
    first = [row(VECTOR, 1, 8.0), row("triton/atomic", 1, 7.0), row(FP32, 1, 9.0), row(), resumed, control, matched]
    second = [row(VECTOR, 16, 12.0), row(FP32, 16, None, status="wrong"), row(BASELINE, 16)]
    table = winners_table([*first, *second], "winners")
    assert table.lines == [
        ["1", BASELINE, "10.0", ""],
        ["", "triton/atomic", "7.0", "1.43 *"],
        ["", FP32, "9.0", "1.11"],
        ["16", BASELINE, "10.0", ""],
        ["", VECTOR, "12.0", "0.83"],
    ]
    assert table.best == {1, 3} and table.header[:3] == ["T", "fastest of its language", "us (cold)"]


def test_a_mark_is_for_those_that_contend_beside_the_baseline():
    resumed = replace(row("triton/cluster", 1, 6.0), noise={"cold": 0.5})
    rows = [row(), row(VECTOR, 1, 8.0), row(f"{FP32}@triton", 1, 7.0), row("triton/or.control_fold", 1, 7.5), resumed]
    rows[3] = replace(rows[3], variant="control_fold")
    names = ["triton/cluster", f"{FP32}@triton", "triton/or.control_fold", f"{VECTOR} *", BASELINE]
    assert [line[0] for line in tables.problem_table(rows).lines] == names
    first, *others = tables.overview_table(rows).lines
    assert [line[0] for line in [first, *others] if line[1].endswith("*")] == [VECTOR]


def test_a_contender_that_was_timed_by_two_commands_is_two_lines():
    again = replace(row(VECTOR, 1, 8.2, timings=("cold", "host")), time="2026-11-22T08:00:00+00:00")
    lines = tables.problem_table([row(), row(VECTOR, 1, 8.0), again]).lines
    assert [line[0] for line in lines] == [f"{VECTOR} *", VECTOR, BASELINE]


def test_rows_of_two_devices_are_written_and_not_ranked(tmp_path, capsys):
    other = replace(row(), environment=replace(row().environment, device="NVIDIA H100"))
    for name, made in (("a.jsonl", row()), ("b.jsonl", other)):
        tables.write_json([made], tmp_path / name)
    files = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert run_command(report.main, files) == 2
    assert "FILE is of NVIDIA H200 and of NVIDIA H100; accepted: of one GPU" in on_stderr(capsys)
    assert run_command(report.main, [*files, "--csv", str(tmp_path / "both.csv")]) == 0
    assert len(pandas.read_csv(tmp_path / "both.csv")) == 2


def test_a_page_shows_cold_in_a_graph_beside_cold():
    cold, both = (
        row(timings=("cold",)),
        [row(timings=("cold", "graph")), row(VECTOR, 1, 8.0, timings=("cold", "graph"))],
    )
    assert "in a CUDA graph" not in tables.readme_table([cold])
    first, second = tables.readme_table(both).split("in a CUDA graph")[0].split("**[1, 7168]")[1:]
    assert "8.0 (1.25x) *" in first
    assert "5.6 (1.25x) *" in second  # 0.7 of it
    assert tables.readme_table(both, timing="cold").count("**[1, 7168]") == 1


def test_what_an_empty_launch_takes_is_subtracted_in_a_column_of_its_own():
    table = tables.problem_table(router_rows()[:3])
    assert [line[table.header.index("less\nlaunch")] for line in table.lines] == ["6.00", "8.00", "10.50"]


def test_energy_is_a_column_where_it_was_measured():
    rows = [row(timings=("cold", "graph")), row(VECTOR, 1, 8.0, timings=("cold", "graph"))]
    assert "uJ" not in tables.problem_table(rows).header
    rows[1].timing["graph"] = replace(rows[1].timing["graph"], energy_uj=2345.6)
    table = tables.problem_table(rows)
    assert [line[table.header.index("uJ")] for line in table.lines] == ["2346", ""]


@pytest.mark.parametrize(
    ("read", "most", "told"),
    [
        ([1965, 1980], None, ""),
        ([1425, 1770], None, ", fell"),
        ([1700, 1700], 1980.0, ", fell"),
        ([1980, 1980], 1980.0, ""),
    ],
)
def test_where_the_sm_clock_fell_is_told(read, most, told):
    made = row()
    made.clocks = replace(made.clocks, sm_mhz=read, max_sm_mhz=most)
    of = f" of {most:.0f}" if most else ""
    assert f"SM clock {read[0]}-{read[1]}{of} MHz{told}, 0 rounds" in tables.problem_table([made]).foot


def test_hosts_of_different_launch_cost_are_told():
    def at(launch_us: float, tokens: int):
        made = row(tokens=tokens)
        made.floor["cold"] = replace(made.floor["cold"], launch_us=launch_us)
        return made

    assert "do not mix them" not in tables.source_of([at(3.1, 1), at(3.3, 2)])
    assert "an empty launch takes 3.2 and 4.4 us: do not mix them" in tables.source_of(
        [at(3.1, 1), at(4.4, 2), at(3.3, 4)]
    )


def test_hosts_are_told_of_each_device_by_itself():
    def at(launch_us: float, device: str):
        made = row()
        made.floor["cold"] = replace(made.floor["cold"], launch_us=launch_us)
        return replace(made, environment=replace(made.environment, device=device))

    one_kind = [at(3.1, "NVIDIA H200"), at(4.4, "NVIDIA H100")]
    assert "hosts" not in tables.source_of(one_kind)
    told = tables.source_of([*one_kind, at(4.4, "NVIDIA H200")])
    assert told.endswith(", NVIDIA H200 on hosts where an empty launch takes 3.1 and 4.4 us: do not mix them")


def test_what_searches_took_is_a_line_a_kernel():
    took = SearchRecord(tried=24, space=100, out_of_time=False, us=7.5, seconds=30.0, build_seconds=144.0)
    rows = [replace(row(VECTOR, tokens, 8.0), search=took, config_source="search") for tokens in (1, 16)]
    shown = tables.searches_table(tables.searches_of([*rows, row(FP32, 1, 9.0)]))
    assert shown.lines == [[VECTOR, "2", "48 of 200", "6.0", "30", "0"]]
    assert [table.title for table in tables.tables(rows)][-2:] == ["searches", "summary"]
    assert "searches" not in [table.title for table in tables.tables(router_rows())]


def test_a_suspicious_row_keeps_its_figures_and_is_in_no_ranking():
    cheat = replace(row("candidate/mine.py:matmul", 1, 1.0), status="suspicious", message="cold: 1.00 us is too fast")
    made = [row(), row(VECTOR, 1, 8.0), cheat]
    table = tables.problem_table(made)
    assert [line[0] for line in table.lines] == [f"{VECTOR} *", BASELINE, cheat.contender]
    assert table.lines[2][2].startswith("1.00 (") and "suspicious" in table.lines[2]
    assert f"{cheat.contender}: suspicious: cold: 1.00 us is too fast" in table.details
    assert tables.overview_table(made).lines[-1][1] == "suspicious"
    assert all(line[0] != "candidate" for line in tables.summary_table(made).lines)
