"""The journal: nothing is lost by being cut off, and what is no row is an error that names file and line."""

import dataclasses
import json
import logging
import re

import made_rows
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from said import on_stderr

from triton_vs_tilus.bench import answer, dispatch, record, tuned
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.journal import InvalidRows, Journal, done_keys, read_launches, read_rows, to_line
from triton_vs_tilus.bench.rows.row import SCHEMA, ProblemRecord, Row
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul

PROBLEM = Matmul(64, 256, 7168, layout=Layout.NK)


def row(contender: str = "triton/decompose_k.vector", problem: Matmul = PROBLEM, **values) -> Row:
    made = made_rows.row(contender, problem=problem, message="µs, “quoted”\nand a second line")
    return replace(made, **values)


def test_what_is_appended_is_read(tmp_path):
    journal = Journal(tmp_path / "made" / "on" / "the" / "way.jsonl")
    assert journal.rows() == []
    rows = [row("torch/mm"), row("triton/a"), row("tilus/a")]
    for each in rows:
        journal.append(each)
    assert journal.rows() == rows == read_rows(journal.path)
    assert len(journal.path.read_text().splitlines()) == len(rows)


def test_cut_off_anywhere_and_resumed(tmp_path, caplog):
    whole = Journal(tmp_path / "whole.jsonl")
    rows = [row("torch/mm"), row("triton/a"), row("tilus/a")]
    for each in rows:
        whole.append(each)
    content = whole.path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for length in {*range(0, len(content), 37), *ends, *(end - 1 for end in ends), len(content)}:
        cut = tmp_path / f"{length}.jsonl"
        cut.write_bytes(content[:length])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            resumed = Journal(cut)
        within = length not in (0, *ends)
        assert caplog.messages == ([f"{cut}: the last line is cut off and is dropped"] if within else [])
        assert resumed.rows() == rows[: sum(end <= length for end in ends)]
        for each in rows:
            if each.key not in done_keys(resumed.rows()):
                resumed.append(each)
        assert resumed.rows() == rows


def test_key_is_problem_contender_and_timings():
    assert row(asked=["cold", "warm"]).key == row(asked=["warm", "cold"], status="wrong").key
    others = [
        row("triton/other"),
        row(asked=["cold"]),
        row(problem=Matmul(64, 256, 7168)),
        row(problem=Matmul(64, 256, 7168, layout=Layout.NK, epilogue=Epilogue.RELU)),
    ]
    assert len(done_keys([row(), *others])) == 5


def changed(*path: str, to: object) -> dict:
    """A row's JSON values with another value at this path; without it, where that is `missing`."""
    values = inner = json.loads(to_line(row()))
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    if to is missing:
        del inner[path[-1]]
    return values


missing = object()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (3, "Expected `object`, got `int`"),
        (["row"], "Expected `object`, got `array`"),
        (changed("schema", to=SCHEMA - 1), f"a row of schema {SCHEMA - 1}; accepted: {SCHEMA}"),
        (changed("schema", to=SCHEMA + 1), f"a row of schema {SCHEMA + 1}; accepted: {SCHEMA}"),
        (changed("schema", to=missing), "missing required field `schema`"),
        (changed("status", to=missing), "missing required field `status`"),
        (changed("status", to="unheard of"), "Invalid enum value 'unheard of' - at `$.status`"),
        (changed("shade", to=1), "unknown field `shade`"),
        (changed("timing", "cold", "median_us", to="9"), "Expected `float`, got `str` - at `$.timing[...].median_us`"),
        (changed("timing", "tepid", to={}), "Invalid enum value 'tepid'"),
        (changed("problem", "op", to="conv"), "unknown operation 'conv'; accepted: matmul"),
        (changed("problem", "layout", to=missing), "fields ['layout'] differ from those of operation matmul"),
        (changed("problem", "group_size", to=64), "fields ['group_size'] differ from those of operation matmul"),
    ],
)
def test_what_is_no_row_is_refused_by_file_and_line(tmp_path, values, told):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_line(row()) + json.dumps(values) + "\n" + to_line(row()))
    with pytest.raises(InvalidRows) as refused:
        read_rows(path)
    assert str(refused.value).startswith(f"{path}:2: ") and told in str(refused.value)
    assert str(refused.value).endswith("; expected: a JSON object with the fields of a Row")


@pytest.mark.parametrize("content", [b"", b"\n\n", b"[]\n", b"PK\x03\x04\xff\n", b'{"workload": "ro', b"[" * 100_000])
def test_what_holds_no_rows_is_refused(tmp_path, content):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidRows, match=r"rows\.jsonl:.* expected: "):
        read_rows(path)


def test_a_last_line_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(to_line(row()) + to_line(row())[:-20])
    with pytest.raises(InvalidRows, match=r"rows\.jsonl:2: Input data was truncated"):
        read_rows(path)


@pytest.mark.parametrize(
    ("command", "words"),
    [(answer, ["16x256x7168"]), (dispatch, []), (record, ["--list"]), (tuned, [])],
    ids=["answer", "dispatch", "record", "tuned"],
)
def test_a_recorded_file_that_is_none_is_one_error_of_every_command(command, words, results, capsys):
    file = results / "made-up" / "router-nk.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("[]\n")
    assert run_command(command.main, words) == 2
    assert f"{command.__name__.rpartition('.')[2]}.py: error: {file}:1: Expected `object`" in on_stderr(capsys)


LINE = to_line(made_rows.row()).encode()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mangled_lines(draw: st.DrawFn) -> bytes:
    """A row's line with bytes cut out, replaced or put in; or with any JSON value in place of one of its own."""
    if draw(st.booleans()):
        values = inner = json.loads(LINE)
        while True:
            name = draw(st.sampled_from(sorted(inner)))
            if not (isinstance(inner[name], dict) and inner[name] and draw(st.booleans())):
                break
            inner = inner[name]
        inner[name] = draw(JSON)
        return json.dumps(values).encode() + b"\n"
    start, end = sorted(draw(st.lists(st.integers(0, len(LINE)), min_size=2, max_size=2)))
    return LINE[:start] + draw(st.binary(max_size=6)) * draw(st.integers(0, 3)) + LINE[end:]


def test_a_problem_travels_whole():
    assert ProblemRecord.from_problem(PROBLEM).to_problem() == PROBLEM


@pytest.mark.parametrize(
    ("problem", "is_plain"),
    [
        (PROBLEM, True),
        (dataclasses.replace(PROBLEM, epilogue=Epilogue.RELU), False),
        (dataclasses.replace(PROBLEM, out_dtype=torch.float32), False),
        (W4A16Matmul(16, 512, 512), False),
    ],
)
def test_a_plain_product_is_what_torch_mm_computes(problem, is_plain):
    assert ProblemRecord.from_problem(problem).is_plain_product is is_plain


def test_command_names_everything_that_was_chosen():
    assert command_of(PROBLEM, "triton/decompose_k.vector", ["cold"], {}) == (
        "python bench/compare.py --shape 64x256x7168 --dtype bf16 --layout nk "
        "--only triton/decompose_k.vector --timing cold"
    )
    problem = Matmul(1, 2, 3, torch.float16, torch.float32, epilogue=Epilogue.SILU)
    assert command_of(problem, "candidate/my kernel.py:f", ["cold", "host"], {"rounds": 5}) == (
        "python bench/compare.py --shape 1x2x3 --dtype fp16 --layout kn --epilogue silu --out-dtype fp32 "
        "--candidate 'my kernel.py:f' --only 'candidate/my kernel.py:f' --timing cold,host --rounds 5"
    )


# The first draw builds tables of characters; and a machine may be busy.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mangled=mangled_lines())
def test_a_mangled_line_is_read_or_refused_by_file_and_line(mangled, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_bytes(LINE + mangled)
    try:
        rows = read_rows(path)
    except InvalidRows as refused:
        assert re.match(rf"{re.escape(str(path))}:\d+: .+; expected: ", str(refused), re.DOTALL)
    else:
        assert "".join(map(to_line, rows)).encode().startswith(LINE)
        assert all(isinstance(read, Row) for read in rows)


@pytest.mark.parametrize("path", [*queries.recorded()], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_rows_are_written_as_they_were_read(path):
    assert "".join(map(to_line, read_rows(path))) == path.read_text()


@pytest.mark.parametrize("path", [*queries.recorded_launches()], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_launches_are_written_as_they_were_read(path):
    assert "".join(map(to_line, read_launches(path))) == path.read_text()


def test_a_file_is_parsed_again_once_it_has_changed(tmp_path, monkeypatch):
    parsed = []
    monkeypatch.setattr(queries, "read_rows", lambda path: parsed.append(path) or read_rows(path))
    journal = Journal(tmp_path / "rows.jsonl")
    journal.append(row("torch/mm"))
    first = queries.rows_of(journal.path)
    first.clear()  # is the caller's own
    assert [each.contender for each in queries.rows_of(journal.path)] == ["torch/mm"] and len(parsed) == 1
    journal.append(row("triton/a"))
    assert [each.contender for each in queries.rows_of(journal.path)] == ["torch/mm", "triton/a"] and len(parsed) == 2
