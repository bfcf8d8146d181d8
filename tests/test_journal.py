"""The journal: nothing is lost by being cut off, older rows are read, newer ones refused."""

import json

import pytest
import torch

from bench.journal import SCHEMA, Journal, Row, command_of, done_keys, problem_fields, read_rows
from common.epilogue import Epilogue
from common.problem import Layout, Matmul

PROBLEM = Matmul(64, 256, 7168, layout=Layout.NK)


def row(contender: str = "triton/decompose_k.vector", problem: Matmul = PROBLEM, **values) -> Row:
    return Row(
        **{
            "workload": "router",
            "problem": problem_fields(problem),
            "asked": ["cold", "warm"],
            "contender": contender,
            "language": contender.partition("/")[0],
            "protocol": "separate",
            "variant": "vector",
            "config": {"block_m": 16},
            "config_source": "tuned",
            "status": "passed",
            "message": "µs, “quoted”\nand a second line",
            "timing": {"cold": {"median_us": 9.25}},
            "accuracy": {"error_before": 0.01, "error_after": None},
            "bitwise_equal": True,
            "deterministic": True,
            "workspace_bytes": 4096,
            "launches": 2,
            "floor": {},
            "noise": {},
            "clocks": {"available": False},
            "environment": {"device": "NVIDIA H200"},
            "command": "python bench/compare.py",
            "time": "2026-01-01T00:00:00+00:00",
            **values,
        }
    )


def test_what_is_appended_is_read(tmp_path):
    journal = Journal(tmp_path / "made" / "on" / "the" / "way.jsonl")
    assert journal.rows() == []
    rows = [row("torch/mm"), row("triton/a"), row("tilus/a")]
    for each in rows:
        journal.append(each)
    assert journal.rows() == rows == read_rows(journal.path)
    assert len(journal.path.read_text().splitlines()) == len(rows)


def test_cut_off_anywhere_and_resumed(tmp_path):
    whole = Journal(tmp_path / "whole.jsonl")
    rows = [row("torch/mm"), row("triton/a"), row("tilus/a")]
    for each in rows:
        whole.append(each)
    content = whole.path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for length in {*range(0, len(content), 37), *ends, *(end - 1 for end in ends), len(content)}:
        cut = tmp_path / f"{length}.jsonl"
        cut.write_bytes(content[:length])
        expected = rows[: sum(end <= length for end in ends)]
        assert read_rows(cut) == expected
        resumed = Journal(cut)
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


def test_rows_of_the_first_schema_are_read(tmp_path):
    values = row(timing={"warm": {}, "host": {}}).to_json()
    del values["asked"]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps({**values, "schema": 1}) + "\n")
    (read,) = read_rows(path)
    assert read.asked == ["warm", "host"] and read.schema == SCHEMA


@pytest.mark.parametrize(("variant", "protocol"), [("vector", "separate"), ("vector_pdl", "separate+pdl")])
def test_rows_of_the_second_schema_tell_dependent_launches_apart(tmp_path, variant, protocol):
    values = {**row().to_json(), "variant": variant, "protocol": "separate", "schema": 2}
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(values) + "\n")
    (read,) = read_rows(path)
    assert read.protocol == protocol and read.schema == SCHEMA


def test_a_json_list_is_read(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row().to_json(), row("torch/mm").to_json()], indent=1))
    assert read_rows(path) == [row(), row("torch/mm")]


@pytest.mark.parametrize("change", [{"schema": SCHEMA + 1}, {"schema": None}, {"unknown": 1}])
def test_rows_of_another_making_are_refused(change):
    with pytest.raises(ValueError, match="row"):
        Row.from_json({**row().to_json(), **change})


@pytest.mark.parametrize("values", [3, None, ["row"], {"schema": 1}, {"schema": 2}, {"schema": SCHEMA}, {}])
def test_what_is_no_row_is_refused(values):
    with pytest.raises(ValueError, match="row"):
        Row.from_json(values)


def test_a_missing_field_is_named():
    values = row().to_json()
    del values["status"]
    with pytest.raises(ValueError, match="status"):
        Row.from_json(values)


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
