"""Claims against made rows: each rule says confirmed of what confirms it, contradicted of what does not."""

import dataclasses
import fnmatch
import io
import re
import sys
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from made_rows import one_launch, router_rows, row
from msgspec.structs import replace
from rich.console import Console
from said import on_stderr

from triton_vs_tilus.bench import claims as command
from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.journal import Journal
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    AccuracyRecord,
    LaunchEnvironment,
    Stage,
)
from triton_vs_tilus.bench.show import tables
from triton_vs_tilus.bench.show.claims import figures, listed, rules
from triton_vs_tilus.bench.show.claims.claim import FEW_ROWS, NOT_RECORDED, VERDICTS, Claim
from triton_vs_tilus.bench.show.claims.evidence import NO_ROWS, NOT_TESTABLE, Untested, evidence, named
from triton_vs_tilus.bench.show.claims.listed import CLAIMS
from triton_vs_tilus.bench.show.claims.published import missing, recorded_by
from triton_vs_tilus.bench.show.claims.rules import CONFIRMED, CONTRADICTED, Finding
from triton_vs_tilus.bench.show.claims.rules import tile_of as tile_of_program
from triton_vs_tilus.bench.show.claims.tables import blocks, recorded, screen, table
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul
from triton_vs_tilus.kernels_triton.band import tile_of

VECTOR, TILE = listed.OPTIMIZED, listed.FIRST


@pytest.fixture(autouse=True)
def no_second_runs(monkeypatch):
    """Made-up rows are held against the noise that they have themselves, not against what was recorded twice."""
    monkeypatch.setattr(queries, "between_runs", lambda rows: {})


def claim(beginning: str) -> Claim:
    (found,) = [claim for claim in CLAIMS if claim.text.startswith(beginning)]
    return found


def judged(beginning: str, rows, launches=(), stages=()) -> Finding:
    return claim(beginning).finding(evidence(rows, launches, stages))


def by_rule(beginning: str, rows) -> Finding:
    """Of a claim that rows from here give no verdict on, what its rule says of them."""
    return dataclasses.replace(claim(beginning), unlike="").finding(evidence(rows))


def replace_rule(beginning: str, **fields) -> Finding:
    """Of a rule that needs no rows, with other limits."""
    return dataclasses.replace(claim(beginning).rule, **fields).finding(evidence([]).rows)


def on_suite(workload: str, times: dict[str, float | None], **fields):
    """torch.mm at 10 us and each contender so many times as fast, on every problem of a suite; None: unsupported.

    Of torch 2.12, the decompose-K study's."""
    made = []
    for name, problem in workloads.problems(workload):
        made.append(row(BASELINE, problem=problem, workload=name))
        for contender, speedup in times.items():
            status = {"status": "unsupported", "message": "not here"} if speedup is None else {}
            us = None if speedup is None else 10.0 / speedup
            made.append(replace(row(contender, us=us, problem=problem, workload=name, **status), **fields))
    return made_with(made, torch="2.12.0")


def studied_rows():
    """The router's rows, with the study's kernel in the place of ours."""
    return [
        replace(made, contender=VECTOR if made.contender == listed.VECTOR else made.contender) for made in router_rows()
    ]


def in_another_run(rows):
    """The same rows, of a run of its own: its launches took another time."""
    return [
        replace(made, floor={timing: replace(floor, launch_us=2.5) for timing, floor in made.floor.items()})
        for made in rows
    ]


def made_with(rows, **environment):
    """The same rows, of other versions or of another device."""
    return [replace(made, environment=replace(made.environment, **environment)) for made in rows]


def made_on(device: str, rows):
    return made_with(rows, device=device)


def later(rows):
    """The same rows, of a run of its own, a day later."""
    return [replace(made, time="2026-11-22T08:00:00+00:00") for made in in_another_run(rows)]


def of_another_search(rows):
    """The same rows, with configs of their own."""
    return [replace(made, config=made.config and {**made.config, "split_k": 16}) for made in rows]


def of_problem(name: str, contender: str, us: float, *, workload: str, protocol: str = "data_parallel", **problem):
    """A row of another operation, torch's at 10 us."""
    made = row(contender, us=us, workload=workload)
    return replace(made, protocol=protocol, problem=replace(made.problem, name=name, **problem))


OP, ATOMIC = "torch/custom_op.fused", "triton/atomic"
KERNELLLM, MAKORA = (f"{listed.TRITON_TUTORIAL}.{name}" for name in ("kernelllm", "makora"))


@pytest.mark.parametrize(
    ("beginning", "workload", "times", "verdict", "measured"),
    [
        ("With ReLU, the tile-shaped", "skinny-epilogue-bf16", {TILE: 1.2, OP: 1.3}, CONFIRMED, "ahead on 0 of 28"),
        ("With ReLU, the tile-shaped", "skinny-epilogue-bf16", {TILE: 1.3, OP: 1.2}, CONTRADICTED, "ahead on 28 of 28"),
        ("Without an epilogue, the tile", "skinny-matmul-bf16", {TILE: 1, OP: 1}, CONFIRMED, "28 ties"),
        ("With ReLU, the vector", "skinny-epilogue-bf16", {VECTOR: 1.4, OP: 1.3}, CONFIRMED, "median 1.077x"),
        ("With ReLU, the vector", "skinny-epilogue-bf16", {VECTOR: 1.3, OP: 1.3}, CONTRADICTED, "28 ties"),
        (
            "Without an epilogue, the vector reducer beats",
            "skinny-matmul-bf16",
            {VECTOR: 1.4, OP: 1.3},
            CONFIRMED,
            "28 of 28",
        ),
        ("With ReLU, the median of the tile", "skinny-epilogue-bf16", {TILE: 1.2, OP: 1.3}, CONFIRMED, "median 0.923x"),
        ("With ReLU, the median of the tile", "skinny-epilogue-bf16", {TILE: 1.3, OP: 1.3}, CONTRADICTED, "1.000x"),
        ("Without an epilogue, the median of the tile", listed.PLAIN, {TILE: 1.2, OP: 1.3}, CONFIRMED, "median 0.923x"),
        ("Without an epilogue, the median of the tile", listed.PLAIN, {TILE: 1, OP: 1.3}, CONTRADICTED, "0.769x"),
        ("With ReLU, the median of the vector", "skinny-epilogue-bf16", {VECTOR: 1.3, OP: 1.3}, CONFIRMED, "1.000x"),
        ("With ReLU, the median of the vector", "skinny-epilogue-bf16", {VECTOR: 1.5, OP: 1.3}, CONTRADICTED, "1.154x"),
        ("Without an epilogue, the median of the vector", listed.PLAIN, {VECTOR: 1.33, OP: 1.3}, CONFIRMED, "1.023x"),
        ("Without an epilogue, the median of the vector", listed.PLAIN, {VECTOR: 1.5, OP: 1.3}, CONTRADICTED, "1.154x"),
        ("With ReLU the vector", listed.EPILOGUE, {VECTOR: 1.3, TILE: 1.2}, CONFIRMED, "median 1.083x"),
        ("With ReLU the vector", listed.EPILOGUE, {VECTOR: 1.3, TILE: 1.0}, CONTRADICTED, "median 1.300x"),
        ("Without an epilogue the vector", listed.PLAIN, {VECTOR: 1.3, TILE: 1.2}, CONFIRMED, "median 1.083x"),
        ("Without an epilogue the vector", listed.PLAIN, {VECTOR: 1.3, TILE: 1.3}, CONTRADICTED, "median 1.000x"),
        ("Without an epilogue, the vector reducer is ahead", listed.PLAIN, {VECTOR: 1.1}, CONFIRMED, "28 of 28"),
        ("Without an epilogue, the vector reducer is ahead", listed.PLAIN, {VECTOR: 1.0}, CONTRADICTED, "28 ties"),
        ("In fp32 the vector", "skinny-matmul-fp32", {VECTOR: 1.3, TILE: 1.15}, CONFIRMED, "median 1.130x"),
        ("In fp32 the vector", "skinny-matmul-fp32", {VECTOR: 1.3, TILE: 1.25}, CONTRADICTED, "median 1.040x"),
        ("The reducer's shape", "skinny-epilogue-bf16", {VECTOR: 1.12, TILE: 1}, CONFIRMED, "median 1.120x"),
        ("The reducer's shape", "skinny-epilogue-bf16", {VECTOR: 1.05, TILE: 1}, CONTRADICTED, "median 1.050x"),
        ("ReLU fused", "skinny-epilogue-bf16", {VECTOR: 1.3, listed.UNFUSED: 1}, CONFIRMED, "median 1.300x"),
        ("ReLU fused", "skinny-epilogue-bf16", {VECTOR: 1.9, listed.UNFUSED: 1}, CONTRADICTED, "median 1.900x"),
        ("Fused decompose-K is 1.5x", "skinny-epilogue-bf16", {VECTOR: 1.6}, CONFIRMED, "median 1.600x"),
        ("Fused decompose-K is 1.5x", "skinny-epilogue-bf16", {VECTOR: 1.26}, CONFIRMED, "median 1.260x"),
        ("Fused decompose-K is 1.5x", "skinny-epilogue-bf16", {VECTOR: 1.2}, CONTRADICTED, "median 1.200x"),
        ("With ReLU, the vector", "skinny-epilogue-bf16", {VECTOR: 1, OP: None}, NOT_TESTABLE, "unsupported: not here"),
        ("Triton's tutorial", "square-generated", {listed.TRITON_TUTORIAL: 0.85}, CONFIRMED, "geometric mean 0.850x"),
        ("Triton's tutorial", "square-generated", {listed.TRITON_TUTORIAL: 0.6}, CONTRADICTED, "geometric mean 0.600x"),
        ("KernelLLM's", "square-generated", {KERNELLLM: 0.4}, CONFIRMED, "geometric mean 0.400x"),
        ("KernelLLM's", "square-generated", {KERNELLLM: 0.6}, CONTRADICTED, "geometric mean 0.600x"),
        ("KernelLLM's", "square-generated", {KERNELLLM: 0.8}, CONTRADICTED, "geometric mean 0.800x"),
        ("KernelLLM's", "square-generated", {MAKORA: 0.3}, NO_ROWS, f"no rows of {KERNELLLM}"),
        ("Makora's kernel", "square-generated", {MAKORA: 0.3}, CONFIRMED, "geometric mean 0.300x"),
        ("Makora's kernel", "square-generated", {MAKORA: 0.7}, CONTRADICTED, "geometric mean 0.700x"),
        ("Makora's kernel", "square-generated", {MAKORA: 0.1}, CONTRADICTED, "geometric mean 0.100x"),
        ("Makora's kernel", "square-generated", {KERNELLLM: 0.4}, NO_ROWS, f"no rows of {MAKORA}"),
        ("torch.compile has", "square-generated", {"torch/compile.default": 1.0}, CONFIRMED, "1.000x"),
        ("torch.compile has", "square-generated", {"torch/compile.default": 1.1}, CONTRADICTED, "1.100x"),
        ("torch.compile with", "square-generated", {"torch/compile.triton_templates": 1.0}, CONTRADICTED, "1.000x"),
        ("Helion has", "square-generated", {"helion/matmul": 0.93}, NOT_TESTABLE, "quick effort here, which"),
    ],
)
def test_what_is_compared(beginning, workload, times, verdict, measured):
    finding = judged(beginning, on_suite(workload, times))
    assert (finding.verdict, measured in finding.measured) == (verdict, True), finding


@pytest.mark.parametrize(
    ("beginning", "workload", "times", "verdict", "measured"),
    [
        ("Fused decompose-K is 1.2x", "skinny-epilogue-bf16", {VECTOR: 1.6, listed.COMPILED: 1.3}, CONFIRMED, "1.231x"),
        (
            "Fused decompose-K is 1.2x",
            "skinny-epilogue-bf16",
            {VECTOR: 2.6, listed.COMPILED: 1},
            CONTRADICTED,
            "2.600x",
        ),
        ("torch.compile's max", "square-generated", {listed.COMPILED: 1.0}, CONFIRMED, "ahead on 0 of 30, 30 ties"),
        ("torch.compile's max", "square-generated", {listed.COMPILED: 0.9}, CONTRADICTED, "ahead on 30 of 30"),
        ("In fp16 the vector", "skinny-matmul-fp16", {VECTOR: 1.3, TILE: 1.2}, CONFIRMED, "median 1.083x"),
        ("In fp16 the vector", "skinny-matmul-fp16", {VECTOR: 1.3, TILE: 1.0}, CONTRADICTED, "median 1.300x"),
    ],
)
def test_where_another_program_ran_the_figures_are_told_and_no_verdict(beginning, workload, times, verdict, measured):
    rows = on_suite(workload, times)
    assert by_rule(beginning, rows).verdict == verdict
    finding = judged(beginning, rows)
    assert finding.verdict == NOT_TESTABLE and finding.measured.startswith(claim(beginning).unlike)
    assert measured in finding.measured


@pytest.mark.parametrize(("relu", "verdict"), [(1.4, CONFIRMED), (1.2, CONTRADICTED)])
def test_the_margin_of_two_suites(relu, verdict):
    plain, with_relu = on_suite(listed.PLAIN, {VECTOR: 1.3}), on_suite(listed.EPILOGUE, {VECTOR: relu})
    finding = judged("Without an epilogue, the margin", [*plain, *with_relu])
    assert (finding.verdict, finding.problems) == (verdict, 56)
    assert judged("Without an epilogue, the margin", plain).verdict == NO_ROWS


@pytest.mark.parametrize(
    ("beginning", "workload", "program", "other"),
    [
        ("Compiled, decompose-K written", "router", "bmm_dtype, triton_per_fused__to_copy_sum_0", "mm"),
        ("With ReLU, it is", listed.EPILOGUE, "bmm_dtype, triton_red_fused__to_copy_relu_sum_0", "bmm_dtype, triton_x"),
        (
            "Plain torch.compile(decomposeK)",
            listed.EPILOGUE,
            "bmm_dtype, triton_per_fused_sum_0, triton_poi_fused_relu_1",
            "bmm_dtype, triton_red_fused__to_copy_relu_sum_0",
        ),
    ],
)
def test_what_a_decomposition_written_in_torch_is_compiled_to(beginning, workload, program, other):
    suite = {made.problem.name: made for made in on_suite(workload, {listed.COMPILED_SPLITS: 1.2})}
    rows = [
        replace(made, contender=listed.COMPILED_SPLITS, message=f"compiled to {program}; each call copies")
        for made in suite.values()
    ]
    finding = judged(beginning, rows)
    assert (finding.verdict, finding.figure) == (CONFIRMED, f"{len(rows)} of {len(rows)}")
    for made in rows[: len(rows) // 5 + 1]:
        made.message = f"compiled to {other}"
    assert judged(beginning, rows).verdict == CONTRADICTED
    untold = [replace(made, message="") for made in rows]
    assert judged(beginning, untold).measured == f"no row of {listed.COMPILED_SPLITS} names its program"


@pytest.mark.parametrize(
    ("beginning", "workload", "one", "other", "figure"),
    [
        ("One launch that adds atomically beats", listed.PLAIN, ATOMIC, listed.VECTOR, "28 of 28"),
        ("One launch that adds atomically is", listed.PLAIN, ATOMIC, listed.VECTOR, "1.15x"),
        ("In fp16, one launch that adds atomically beats", "skinny-matmul-fp16", ATOMIC, listed.VECTOR, "28 of 28"),
        ("In fp16, one launch that adds atomically is", "skinny-matmul-fp16", ATOMIC, listed.VECTOR, "1.15x"),
        ("With ReLU, one launch that adds", listed.EPILOGUE, ATOMIC, OP, "28 of 28"),
        ("With ReLU, one launch in TLX beats", listed.EPILOGUE, listed.TLX, listed.VECTOR, "28 of 28"),
        ("With ReLU, one launch in TLX is", listed.EPILOGUE, listed.TLX, listed.VECTOR, "1.15x"),
    ],
)
def test_times_of_another_kernel_than_the_studys_tell_figures_and_no_verdict(beginning, workload, one, other, figure):
    finding = judged(beginning, on_suite(workload, {one: 1.495, other: 1.3}))
    assert (finding.verdict, finding.figure) == (NOT_TESTABLE, figure)
    assert finding.measured.startswith("the kernels here are not its own: ")


@pytest.mark.parametrize(("share", "verdict"), [(0.5, CONFIRMED), (0.51, CONTRADICTED)])
def test_a_share_is_reached_by_just_as_many(share, verdict):
    ahead, behind = (on_suite("skinny-epilogue-bf16", {ATOMIC: speedup, OP: 1.3}) for speedup in (1.4, 1.2))
    half = len(ahead) // 2
    found = rules.Ahead(ATOMIC, OP, share).finding(evidence([*ahead[:half], *behind[half:]]).rows)
    assert found == Finding("median 1.000x (0.92-1.08), ahead on 14 of 28", verdict, 28, "14 of 28")


def test_fewer_shapes_than_the_claim_is_about_are_told():
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.12, TILE: 1})
    told = "ahead on 16 of 16; 16 of the 28 shapes recorded"
    assert judged("The reducer's shape", rows[:48]).measured.endswith(told)
    assert "recorded" not in judged("The reducer's shape", rows).measured


@pytest.mark.parametrize("torch", ["2.11.0+cu130", None])
def test_custom_op_autotuning_of_an_older_torch_tells_figures_and_no_verdict(torch):
    """Its candidates were not timed in CUDA graphs, as the study's were."""
    rows = on_suite("skinny-epilogue-bf16", {TILE: 1.3, VECTOR: 1.4, OP: 1.2}, message="won by split 2; compiled to mm")
    older, of_the_study = made_with(rows, torch=torch), made_with(rows, torch="2.12.0.dev20260601+cu130")
    for beginning in ("With ReLU, the tile-shaped", "With ReLU, the median of the vector", "What custom-op"):
        finding = judged(beginning, older)
        why = f"no rows with torch 2.12 or newer: {listed.STUDY.not_here}; NVIDIA H200, torch {torch}: "
        assert finding.verdict == NOT_TESTABLE and finding.measured.startswith(why)
        assert judged(beginning, of_the_study).verdict == CONTRADICTED
        assert claim(beginning).condition.startswith("with torch 2.12 or newer: ")


def test_a_version_that_the_baseline_alone_ran_under_is_not_told():
    rows = made_with(on_suite("square-generated", {"helion/matmul": 0.93}), triton="3.6.0")
    baseline = [made for made in made_with(later(rows), triton="3.9.0") if made.contender == BASELINE]
    assert baseline and "; NVIDIA H200, Triton 3.6.0: " in judged("Helion has", [*rows, *baseline]).measured
    assert "; NVIDIA H200, Triton 3.6.0, NVIDIA H200, Triton 3.9.0: " in (
        judged("Helion has", [*rows, *made_with(later(rows), triton="3.9.0")]).measured
    )


def test_a_reason_that_both_kernels_have_is_told_once():
    ours = {"triton/decompose_k.tile": 1.25}
    rows = made_with(on_suite("skinny-epilogue-bf16", {TILE: 1.3, OP: 1.2, **ours}), torch="2.11.0")
    measured = judged("With ReLU, the tile-shaped", rows).measured
    assert measured.count("no rows with torch") == 1
    assert "; ours: NVIDIA H200, torch 2.11.0: median 1.042x" in measured


@pytest.mark.parametrize(("speedup", "verdict"), [(1.34, CONFIRMED), (1.45, CONTRADICTED)])
def test_whether_the_study_wins_by_a_few_percent_alone(speedup, verdict):
    rows = [made for suite in (listed.EPILOGUE, listed.PLAIN) for made in on_suite(suite, {VECTOR: speedup, OP: 1.3})]
    finding = judged("The hand-written kernel wins", rows)
    assert (finding.verdict, finding.problems) == (verdict, 56)


@pytest.mark.parametrize("launches", [1, 2])
def test_whether_atomics_need_a_pass_for_the_epilogue(launches):
    rows = on_suite(listed.EPILOGUE, {ATOMIC: 1.5}, launches=launches)
    finding = judged("Splits that add atomically", rows)
    assert finding.verdict == NOT_TESTABLE  # of atomics into a workspace
    assert finding.measured.endswith(f": {launches} launch{'es' * (launches > 1)} in 28 rows")


def test_one_row_that_differs_contradicts_what_is_said_of_all():
    whole = {"block_k": 1 << 20}
    rows = on_suite(listed.EPILOGUE, {ATOMIC: 1.5}, launches=2, bitwise_equal=True, config=whole)
    other = replace(rows[-1], launches=1, bitwise_equal=False, config={"block_k": 16})
    for rule in (rules.SeveralLaunches(ATOMIC), rules.UntiledK(ATOMIC), rules.RepeatsEqual((ATOMIC,))):
        found = [rule.finding(named(evidence(made).rows, ATOMIC)).verdict for made in (rows, [*rows[:-1], other])]
        assert found == [CONFIRMED, CONTRADICTED]


def test_a_sources_own_kernel_decides_and_ours_is_told_beside_it():
    theirs, our_tile = {TILE: 1.2, OP: 1.3}, "triton/decompose_k.tile"
    finding = judged("With ReLU, the tile-shaped", on_suite("skinny-epilogue-bf16", {**theirs, our_tile: 1.4}))
    assert finding.verdict == CONFIRMED and "ahead on 0 of 28; ours: median 1.077x" in finding.measured
    assert finding.measured.endswith(f"({CONTRADICTED})")
    assert "ours" not in judged("With ReLU, the tile-shaped", on_suite("skinny-epilogue-bf16", theirs)).measured


def test_a_sources_own_kernel_without_rows_is_told_with_the_command_that_records_it():
    finding = judged(
        "With ReLU, the tile-shaped", on_suite("skinny-epilogue-bf16", {"triton/decompose_k.tile": 1.2, OP: 1.3})
    )
    assert finding.verdict == NOT_RECORDED
    assert finding.measured.startswith("`python bench/record.py skinny-epilogue-bf16-published`; ours: median 0.923x")
    both = judged("fp32 has less", on_suite("skinny-matmul-bf16", {OP: 1.3})).measured
    assert {"skinny-matmul-bf16-published", "skinny-matmul-fp32-published"} <= set(re.split(r"[ `]", both))


def test_every_published_contender_of_a_rule_is_recorded_by_a_command():
    known = {kernel.full_name for kernel in contenders.all_contenders()}
    for one in CLAIMS:
        if names := missing(evidence([]).rows, one.rule.contenders):
            assert all(fnmatch.filter(known, re.split("[ @]", name)[0]) for name in names)
            by = recorded_by(names, one.workload)
            assert one.rule.frame != "rows" or by.count("-published") >= 1, one.text


def test_the_fastest_of_several_counts_on_each_problem():
    rows = on_suite("skinny-matmul-bf16", {VECTOR: 1.3, "torch/custom_op.mm": 1.1, "torch/custom_op.fused": 1.5})
    assert judged("Without an epilogue, the vector reducer beats", rows).verdict == CONTRADICTED


def test_rows_of_two_runs_are_not_divided_by_each_other():
    kernels = on_suite("skinny-epilogue-bf16", {VECTOR: 1.4})
    references = in_another_run(on_suite("skinny-epilogue-bf16", {OP: 1.3}))
    finding = judged("With ReLU, the vector reducer", [*kernels, *references])
    told = f"{VECTOR} and {OP} have no problem in common that was measured together"
    assert finding == Finding(told, NO_ROWS)
    assert judged("Fused decompose-K is 1.5x", [*kernels, *references]).problems == 28


def test_the_fastest_of_another_run_does_not_stand_in():
    """The faster op was measured beside no kernel; beside the kernel stood the slower one."""
    together = on_suite("skinny-matmul-bf16", {VECTOR: 1.4, "torch/custom_op.mm": 1.3})
    apart = in_another_run(on_suite("skinny-matmul-bf16", {"torch/custom_op.fused": 2.0}))
    for rows in ([*together, *apart], [*apart, *together]):
        finding = judged("Without an epilogue, the vector reducer beats", rows)
        assert (finding.verdict, "median 1.077x" in finding.measured) == (CONFIRMED, True)


def test_an_epilogue_taken_out_is_held_against_the_same_config_alone():
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.3, listed.UNFUSED: 1})
    for made in rows:
        made.config = {"split_k": 16 if made.contender == VECTOR else 64}
    finding = judged("ReLU fused", rows)
    assert (finding.verdict, "no problem and config in common that" in finding.measured) == (NO_ROWS, True)


@pytest.mark.parametrize(("problems", "verdict"), [(14, CONFIRMED), (13, FEW_ROWS)])
def test_less_than_half_of_a_suite_is_no_verdict(problems, verdict):
    rows = on_suite("skinny-epilogue-bf16", {TILE: 1.2, OP: 1.3})
    finding = judged("With ReLU, the tile-shaped", rows[: 3 * problems])
    assert (finding.verdict, finding.problems) == (verdict, problems)
    assert f"ahead on 0 of {problems}" in finding.measured


@pytest.mark.parametrize(("searched", "verdict"), [(14, CONFIRMED), (13, FEW_ROWS)])
@pytest.mark.parametrize("borrower", [VECTOR, TILE])
def test_a_problem_counts_where_both_configs_were_searched_for_it(borrower, searched, verdict):
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.12, TILE: 1})
    for made in [made for made in rows if made.contender == borrower][searched:]:
        made.config_source = "nearest"
    finding = judged("The reducer's shape", rows)
    assert (finding.verdict, finding.problems) == (verdict, searched)
    assert f"ahead on 28 of 28; {28 - searched} with a config not searched" in finding.measured


def test_configs_that_were_not_searched_are_told():
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.6})
    assert "not searched" not in judged("Fused decompose-K is 1.5x", rows).measured
    for made in rows[::2]:
        made.config_source = "nearest"
    told = judged("Fused decompose-K is 1.5x", rows).measured
    assert re.search(r"; \d+ with a config not searched for the shape$", told)


def test_rows_of_another_workload_are_no_test():
    rows = on_suite("skinny-matmul-bf16", {VECTOR: 1.3, TILE: 1.0})
    assert judged("The reducer's shape", rows).verdict == NOT_RECORDED


@pytest.mark.parametrize(
    ("message", "winner", "verdict"),
    [
        ("won by split 128; compiled to bmm_dtype, triton_red_fused_mm_relu_0", "split 128", CONFIRMED),
        ("won by split 16; compiled to bmm_dtype, triton_per_fused_mm_relu_0", "split 16", CONTRADICTED),
        ("won by no split; compiled to decompose-K, split 64: bmm_dtype, triton_poi_0", "no split", CONTRADICTED),
        ("won by no split, not inlined; compiled to mm", "no split, not inlined", CONTRADICTED),
    ],
)
def test_the_splits_that_won(message, winner, verdict):
    made = on_suite("skinny-epilogue-bf16", {OP: 1.3}, message="won by split 64; compiled to bmm_dtype, triton_poi_0")
    rows = [of for of in made if of.contender == OP]
    for of in rows[:10]:
        of.message = message
    finding = judged("What custom-op", rows)
    assert finding == Finding(f"split 64 on 18, {winner} on 10", verdict, 28)
    assert judged("What custom-op", [*later(rows), *rows]) == finding  # each problem once
    silent = [replace(of, message="") for of in rows]
    assert judged("What custom-op", silent).verdict == NO_ROWS


@pytest.mark.parametrize(
    ("beginning", "bf16", "other", "verdict"),
    [
        ("fp16 matches", 1.30, 1.28, CONFIRMED),
        ("fp16 matches", 1.30, 1.10, CONTRADICTED),
        ("fp16 matches", 1.10, 1.30, CONTRADICTED),
        ("fp16 matches", 2.08, 2.00, CONFIRMED),
        ("fp32 has less", 1.30, 1.10, CONFIRMED),
        ("fp32 has less", 1.30, 1.37, CONTRADICTED),
    ],
)
def test_dtypes_side_by_side(beginning, bf16, other, verdict):
    dtype = beginning[:4]
    rows = on_suite("skinny-matmul-bf16", {VECTOR: bf16})
    dtypes = ("fp32", "bf16") if dtype == "fp32" else ("bf16", dtype)
    assert judged(beginning, rows) == Finding(f"no shape in common in {' and '.join(dtypes)}", NO_ROWS)
    others = of_another_search(on_suite(f"skinny-matmul-{dtype}", {VECTOR: other}))
    medians = {"bf16": bf16, dtype: other}
    told = f"median over torch/mm: {', '.join(f'{name} {medians[name]:.3f}x' for name in dtypes)}, on"
    assert judged(beginning, [*rows, *others]) == Finding(f"{told} 28 shapes", verdict, 56)
    few = Finding(f"{told} 13 shapes", FEW_ROWS, 26)  # 13 of each
    assert judged(beginning, [*rows, *others[:26]]) == few


def test_two_dtypes_are_told_of_the_shapes_that_both_have():
    """Where fp16 was not measured, bf16 gained twice as much."""
    rows = on_suite("skinny-matmul-bf16", {VECTOR: 1.3})
    apart = on_suite("skinny-matmul-bf16", {VECTOR: 2.6})
    others = of_another_search(on_suite("skinny-matmul-fp16", {VECTOR: 1.3}))
    told = "median over torch/mm: bf16 1.300x, fp16 1.300x, on 14 shapes"
    assert judged("fp16 matches", [*rows[:28], *apart[28:], *others[:28]]) == Finding(told, CONFIRMED, 28)
    assert judged("fp16 matches", [*rows[:28], *others[28:]]) == Finding("no shape in common in bf16 and fp16", NO_ROWS)
    for made in others[:4]:
        made.config_source = made.config and "nearest"
    told += "; 2 with a config not searched for the shape"
    assert judged("fp16 matches", [*rows[:28], *others[:28]]) == Finding(told, FEW_ROWS, 24)


def test_two_dtypes_of_one_search_are_not_compared():
    rows = on_suite("skinny-matmul-bf16", {VECTOR: 1.3})
    others = on_suite("skinny-matmul-fp16", {VECTOR: 1.3})
    finding = judged("fp16 matches", [*rows, *others])
    assert finding == Finding("both dtypes run one config: one search serves both", NOT_TESTABLE)


@pytest.mark.parametrize(("autotuned", "verdict"), [(1.2, CONFIRMED), (1.05, CONTRADICTED)])
def test_the_order_in_two_dtypes(autotuned, verdict):
    bf16 = on_suite("skinny-matmul-bf16", {VECTOR: 1.3, OP: 1.2, listed.COMPILED: 1.1})
    fp32 = on_suite("skinny-matmul-fp32", {VECTOR: 1.4, OP: autotuned, listed.COMPILED: 1.1})
    finding = judged("In fp32 eager", [*bf16, *fp32])
    assert (finding.verdict, finding.problems) == (verdict, 56)
    assert f"; fp32: {VECTOR} 1.400x, {listed.ANY_OP if autotuned > 1.1 else listed.COMPILED} " in finding.measured
    assert finding.measured.endswith("; on 28 shapes")
    assert "torch/mm 1.000x, 0 of 3 within 0.1% of torch.mm; fp32: " in finding.measured
    assert judged("In fp32 eager", bf16) == Finding("no shape in common in bf16 and fp32", NO_ROWS)


SUITES = [f"skinny-{suite}" for suite in ("epilogue-bf16", "matmul-bf16", "matmul-fp16", "matmul-fp32")]
MODES = "Of torch.compile's modes"


@pytest.mark.parametrize(("as_graph", "verdict"), [(1.2, CONFIRMED), (1.4, CONTRADICTED)])
def test_modes_of_a_compiler(as_graph, verdict):
    """Of the three shapes and three suites that the study compared them on."""
    times = {listed.COMPILED_SPLITS: 1.3, listed.SPLITS_AS_GRAPH: as_graph}
    rows = [made for suite in SUITES for made in on_suite(suite, times)]
    finding = by_rule(MODES, rows)
    assert (claim(MODES).asked, finding.problems, finding.verdict) == (9, 9, verdict)
    assert judged(MODES, rows).verdict == NOT_TESTABLE


def test_modes_of_a_compiler_are_compared_at_one_config():
    """Which nobody need have searched: a search would not part the two."""
    times = {listed.COMPILED_SPLITS: 1.3, listed.SPLITS_AS_GRAPH: 1.2}
    rows = [made for suite in SUITES for made in on_suite(suite, times)]
    alike = [replace(made, config={"split_k": 8}, config_source="heuristic") for made in rows]
    assert (by_rule(MODES, alike).problems, by_rule(MODES, alike).verdict) == (9, CONFIRMED)
    assert "not searched" not in by_rule(MODES, alike).measured
    others = [replace(made, config={"split_k": 2 + (made.contender == listed.COMPILED_SPLITS)}) for made in alike]
    assert by_rule(MODES, others).verdict == NO_ROWS


@pytest.mark.parametrize(
    ("error", "library_error", "verdict"),
    [(1.0, 1.0, CONFIRMED), (2.4, 1.0, CONTRADICTED), (2.4, 14.0, CONFIRMED)],
)
def test_what_the_split_costs_in_accuracy(error, library_error, verdict):
    rows = studied_rows()
    rows[0].accuracy.times_torch, rows[1].accuracy.times_torch = library_error, error
    assert judged("With fp32 partials", rows).verdict == verdict
    fp32 = [replace(made, problem=replace(made.problem, dtype="fp32")) for made in rows]
    assert judged("With fp32 partials", fp32).verdict == NOT_RECORDED  # the source is of bf16
    assert judged("With fp32 partials", router_rows()).verdict == NOT_RECORDED  # ours does not decide


def test_tiles_are_told_of_searched_configs_alone():
    rows = on_suite("skinny-matmul-bf16", {VECTOR: 1.3})
    small, large = ({"block_m": size, "block_n": size} for size in (16, 64))
    for made in rows:
        made.config = made.config and made.config | (large if made.problem.m == 64 else small)
    assert judged("Small M = N", rows).verdict == CONFIRMED
    for source in ("nearest", "stale"):
        others = [replace(made, config_source=source) for made in rows]
        assert judged("Small M = N", others).verdict == NO_ROWS
        assert judged("Small M = N", [*others[:8], *rows[8:]]).verdict == FEW_ROWS
    at_64 = [made for made in rows if made.problem.m == 64 and made.config]
    for count, verdict in ((1, CONFIRMED), (4, CONTRADICTED)):
        for made in at_64[:count]:
            made.config |= small
        finding = judged("Small M = N", rows)
        counts = sorted([f"64x64 on {7 - count}", f"16x16 on {count}"], key=lambda told: told[-1], reverse=True)
        assert finding == Finding(f"M = N = 16: 16x16 on 7; M = N = 64: {', '.join(counts)}", verdict, 14)


@pytest.mark.parametrize(("warps", "verdict"), [((1, 2), CONFIRMED), ((2, 4), CONFIRMED), ((4, 2), CONTRADICTED)])
def test_the_warps_of_a_tile(warps, verdict):
    """One kind of warps on 15 of 28 shapes, the other on 13; larger tiles and borrowed configs do not count."""
    rows = on_suite(listed.PLAIN, {VECTOR: 1.3})
    searched = [made for made in rows if made.config]
    for number, made in enumerate(searched):
        made.config = made.config | {"block_m": 16, "block_n": 16, "num_warps": warps[number >= 15]}
    told = f"16x16, warps: {warps[0]} on 15, {warps[1]} on 13"
    assert judged("A tile of 16x16", rows) == Finding(told, verdict, 28)
    for made in searched[:2]:
        made.config = made.config | {"block_m": 64, "num_warps": 4}
    assert judged("A tile of 16x16", rows).measured == f"16x16, warps: {warps[0]} on 13, {warps[1]} on 13"
    nearest = [replace(made, config_source="nearest") for made in rows]
    assert judged("A tile of 16x16", nearest).verdict == NO_ROWS


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("decompose-K, split 64: bmm_dtype, triton_per_fused_mm_0, triton_poi_fused_relu_1", CONFIRMED),
        ("decompose-K, split 64: bmm_dtype, triton_per_fused_mm_relu_0", CONTRADICTED),
        ("triton_tem_fused_mm_relu_0", NOT_TESTABLE),
    ],
)
def test_whether_inductor_leaves_relu_apart(program, verdict):
    rows = on_suite("skinny-epilogue-bf16", {"torch/compile.max_autotune": 1.2}, message=f"compiled to {program}")
    assert judged("Where Inductor", rows).verdict == verdict
    few = NOT_TESTABLE if verdict == NOT_TESTABLE else FEW_ROWS
    assert judged("Where Inductor", rows[:26]).verdict == few  # of 13 problems


def test_one_problem_of_two_contradicts_what_is_said_of_all():
    """Of programs with a kernel for ReLU, of splits that pay, and of K that divide worse."""
    programs = ("triton_per_fused_mm_0, triton_poi_fused_relu_1", "triton_per_fused_mm_relu_0")
    relu = on_suite("skinny-epilogue-bf16", {"torch/compile.max_autotune": 1.2}, message="")
    for index, made in enumerate(relu):
        made.message = f"compiled to decompose-K, split 64: {programs[index % 4 == 1]}"
    assert judged("Where Inductor", relu).verdict == CONTRADICTED
    splits = {1: (8.0, 5.0), 16: (8.0, 9.0)}  # us of 1 split and of 4
    paying = [row(f"{listed.V5}@s{split}", m, us) for m in splits for split, us in zip((1, 4), splits[m], strict=True)]
    assert judged("Splitting K pays", [row(BASELINE), row(BASELINE, 16), *paying]).verdict == CONTRADICTED
    poor = [
        row(contender, us=us, problem=Matmul(16, 16, k), workload="shape")
        for k, ours in ((8192, 7.0), (8200, 8.0), (10248, 11.0))
        for contender, us in ((BASELINE, 10.0), (VECTOR, ours))
    ]
    assert by_rule("Where K divides poorly", poor).verdict == CONTRADICTED


@pytest.mark.parametrize(
    ("within", "between", "told"),
    [
        (0.0, {}, "ahead on 1 of 1"),
        (0.06, {}, "ahead on 0 of 1, 1 tie"),
        (0.0, {"cold": 0.06}, "ahead on 0 of 1, 1 tie"),
        (0.04, {"cold": 0.04}, "ahead on 1 of 1"),
        (0.0, {"warm": 0.04, "graph": 0.06}, "ahead on 0 of 1, 1 tie"),  # cold was not run twice
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_a_lead_exceeds_the_noise_of_its_run_and_what_two_runs_differ_by(within, between, told, behind, monkeypatch):
    """Times 5 % apart, whose intervals do not overlap."""
    monkeypatch.setattr(queries, "between_runs", lambda rows: between)
    rows = [replace(row(name, us=us), noise={"cold": within}) for name, us in ((OP, 8.4), (ATOMIC, 8.0))]
    pair = (OP, ATOMIC) if behind else (ATOMIC, OP)
    measured = rules.Ahead(*pair).finding(evidence(rows).rows).measured
    assert measured.partition("), ")[2] == (told.replace("ahead on 1", "ahead on 0") if behind else told)


def test_a_suspicious_row_is_no_evidence():
    rows = on_suite(listed.EPILOGUE, {VECTOR: 1.4, OP: 1.3})
    assert judged("With ReLU, the vector", rows).verdict == CONFIRMED
    for made in rows:
        made.status = "suspicious" if made.contender == VECTOR else made.status
    assert judged("With ReLU, the vector", rows).verdict == NOT_TESTABLE


def test_a_given_split_is_named_by_a_pattern_that_asks_for_one():
    frame = evidence([row(ATOMIC), row(f"{ATOMIC}@s4")]).rows
    found = {pattern: set(named(frame, pattern)["contender"]) for pattern in ("triton/*", "triton/*@s*")}
    assert found == {"triton/*": {ATOMIC}, "triton/*@s*": {f"{ATOMIC}@s4"}}


def over_baseline(speedup: float):
    """The figures of a contender that is so many times as fast as torch.mm, which takes 10 us."""
    interval = {"speedup_low": speedup - 0.01, "speedup_high": speedup + 0.01}
    return {"speedup": speedup, "median_us": 10.0 / speedup, **interval}


def test_where_splitting_stops_paying():
    rows = on_suite("crossover", {listed.VECTOR: 1.0})
    assert by_rule("Decompose-K does not pay", rows).verdict == CONTRADICTED
    for made in rows:
        if made.contender == listed.VECTOR:
            speedup = 1.3 if made.problem.m <= 256 and made.problem.k >= 2048 else 0.8
            made.timing["cold"] = replace(made.timing["cold"], **over_baseline(speedup))
    finding = by_rule("Decompose-K does not pay", rows)
    told = "at K = 8192 ahead of torch.mm up to M = N = 256, at M = N = 64 from K = 2048"
    assert finding == Finding(told, CONFIRMED, 19)
    for made in [made for made in rows if made.contender == listed.VECTOR][9:]:
        made.config_source = "nearest"
    told += "; 10 with a config not searched for the shape"
    assert by_rule("Decompose-K does not pay", rows) == Finding(told, FEW_ROWS, 9)
    assert judged("Decompose-K does not pay", rows).verdict == NOT_TESTABLE


@pytest.mark.parametrize("end", ["m", "k"])
def test_a_split_that_pays_at_an_end_contradicts_the_crossover(end):
    rows = on_suite("crossover", {listed.VECTOR: 1.3})
    for made in rows:
        problem = made.problem
        if made.contender == listed.VECTOR and (problem.k < 2048 if end == "m" else problem.m > 256):
            made.timing["cold"] = replace(made.timing["cold"], **over_baseline(0.8))
    assert by_rule("Decompose-K does not pay", rows).verdict == CONTRADICTED


@pytest.mark.parametrize("ahead", [(32, 8192), (64, 16384)], ids=["at no K", "at no M = N"])
def test_splitting_pays_between_the_ends_in_size_and_in_depth(ahead):
    rows = on_suite("crossover", {listed.VECTOR: 0.8})
    assert ahead in {(made.problem.m, made.problem.k) for made in rows}
    for made in rows:
        if made.contender == listed.VECTOR and (made.problem.m, made.problem.k) == ahead:
            made.timing["cold"] = replace(made.timing["cold"], **over_baseline(1.3))
    finding = by_rule("Decompose-K does not pay", rows)
    assert finding.verdict == CONTRADICTED and len(re.findall("ahead at no", finding.measured)) == 1


@pytest.mark.parametrize(
    ("even", "uneven", "verdict"),
    [(1.3, 0.9, CONFIRMED), (1.3, 1.0, CONFIRMED), (1.3, 1.2, CONTRADICTED), (0.9, 0.8, NOT_TESTABLE)],
)
def test_whether_a_k_that_divides_poorly_pays(even, uneven, verdict):
    rows = []
    for k in (8192, 8200, 10248):
        problem = Matmul(16, 16, k, torch.bfloat16)
        us = 10.0 / (even if k == 8192 else uneven)
        rows += [
            row(contender, us=at, problem=problem, workload="shape")
            for contender, at in ((BASELINE, 10.0), (VECTOR, us))
        ]
    assert by_rule("Where K divides poorly", rows).verdict == verdict
    assert judged("Where K divides poorly", rows).verdict == NOT_TESTABLE


def test_a_k_that_divides_poorly_is_told_with_the_command_that_records_it():
    assert judged("Where K divides poorly", []) == Finding("`python bench/record.py uneven-k-published`", NOT_RECORDED)


def stages_of(whole: float, product: float, problem: Matmul) -> list[Stage]:
    """Of the study's kernel at 64 splits, microseconds; torch.mm takes 10."""
    made, name = [], f"{VECTOR}@s64"
    for stage, contender, us in (("whole", BASELINE, 10.0), ("whole", name, whole), ("product", name, product)):
        timed = row(contender, us=us, workload="shape", problem=problem)
        shared = {field: getattr(timed, field) for field in Stage.__struct_fields__ if hasattr(timed, field)}
        made.append(Stage(**shared, stage=stage, launch=contender))
    return made


@pytest.mark.parametrize(
    ("whole", "product", "verdict"),
    [
        (12.0, 8.0, CONFIRMED),  # the buffer takes 8 of 12 us, without it 4
        (9.0, 6.0, CONTRADICTED),  # 6 of 9 us, and ahead of torch.mm all the same
        (12.0, 10.0, NOT_TESTABLE),  # 4 of 12 us
        (40.0, 28.0, NOT_TESTABLE),  # 24 of 40 us, without it behind, too
    ],
)
def test_whether_a_dominating_buffer_pays(whole, product, verdict):
    found = judged("Where its buffer", [], stages=stages_of(whole, product, Matmul(16, 256, 7168)))
    assert found.verdict == verdict
    assert f"the buffer {2 * (whole - product):.1f} of {whole:.1f} us, torch/mm 10.0" in found.measured


def test_a_dominating_buffer_has_to_cost_the_lead_wherever_it_is():
    rows = [*stages_of(12.0, 8.0, Matmul(1, 256, 7168)), *stages_of(9.0, 6.0, Matmul(2, 256, 7168))]
    assert judged("Where its buffer", [], stages=rows).verdict == CONTRADICTED


def test_splits_one_against_another():
    rows = [
        row(BASELINE),
        *(row(f"{listed.V5}@s{split}", us=us) for split, us in ((1, 8.0), (4, 5.0), (8, 6.0))),
    ]
    finding = judged("Splitting K pays", rows)
    assert finding == Finding("1x256x7168-bf16-nk: 4 splits, 1.60x one", CONFIRMED)
    assert judged("Splitting K pays", rows[:2]).verdict == CONTRADICTED
    assert judged("Splitting K pays", [rows[0], *rows[2:]]).verdict == NO_ROWS
    within_noise = row(f"{listed.V5}@s4", us=7.9)
    assert judged("Splitting K pays", [*rows[:2], within_noise]).verdict == CONTRADICTED


def test_of_two_kernels_of_one_split_the_faster_counts():
    rows = [
        row(f"tilus/semaphore.{variant}@s{split}", us=us)
        for variant, split, us in (("fp32", 1, 6.0), ("fp32", 4, 5.0), ("in_place", 1, 8.0), ("in_place", 4, 9.0))
    ]
    assert "4 splits, 1.20x one" in judged("Splitting K pays", rows).measured


@pytest.mark.parametrize(("equal", "verdict"), [(True, CONFIRMED), (False, CONTRADICTED)])
def test_whether_repeats_are_equal(equal, verdict):
    rows = router_rows()
    rows[2] = replace(rows[2], contender=f"{listed.V5}@s4", bitwise_equal=equal)
    rows[3] = replace(rows[3], contender=f"{listed.V5}@s12", bitwise_equal=True)
    rows[4] = replace(rows[4], contender=f"{listed.V5}@s1", bitwise_equal=not equal)  # nothing waits there
    assert judged("The semaphore makes", rows).verdict == verdict


@pytest.mark.parametrize(
    ("ratio", "verdicts"),
    [
        (2.5, (CONFIRMED, CONFIRMED, CONTRADICTED)),
        (1.0, (CONTRADICTED, CONTRADICTED, CONFIRMED)),
    ],
)
def test_the_or_reduction(ratio, verdicts):
    rows = []
    for k in (4, 8, 16):
        for variant, us in (("reduce", 10.0 * ratio), ("unrolled", 10.0)):
            more = {"workload": "or_reduce-int64", "m": 64, "n": 64, "k": k}
            rows.append(of_problem(f"or-64x64x{k}-int64", f"{listed.OR_STUDY}.{variant}", us, **more))
    beginnings = ("tl.reduce is about", "tl.reduce is up to", "At K = 4")
    there = [replace(made, environment=replace(made.environment, triton="3.4.0")) for made in rows]
    assert tuple(judged(beginning, there).verdict for beginning in beginnings) == verdicts
    told = "`python bench/record.py or_reduce-control-published`"
    assert judged("A constant tile", there) == Finding(told, NOT_RECORDED)
    here = judged("tl.reduce is about", rows)
    assert here.verdict == NOT_TESTABLE
    why = "no rows with Triton 3.4"
    assert here.measured.startswith(f"{why}; NVIDIA H200, Triton 3.6.0: median {ratio:.3f}x")


def test_splitk_against_data_parallel():
    rows = []
    gains = {512: 2.0, 1024: 2.0, 2048: 2.5, 4096: 2.5, 8192: 4.0, 16384: 4.0}
    for size, gain in gains.items():
        more = {"workload": "w4a16-square", "m": 16, "n": size, "k": size}
        name = f"w4a16-16x{size}x{size}-fp16-g128"
        rows.append(of_problem(name, "published_triton/w4a16.data_parallel", 40.0, **more))
        for split, us in ((1, 60.0), (4, 50.0 / gain), (8, 40.0 / gain)):
            rows.append(of_problem(name, f"published_triton/w4a16.splitk@s{split}", us, protocol="atomic", **more))
    assert judged("SplitK is 124%", rows).verdict == NOT_TESTABLE  # of an H200
    elsewhere, rows = rows, made_on("NVIDIA H100 PCIe", rows)
    assert judged("SplitK is 124%", rows).measured.startswith("mean 2.833x, ")
    assert judged("SplitK is 124%", rows).verdict == CONFIRMED
    sxm = judged("SplitK is 124%", [*elsewhere, *made_on("NVIDIA H100 80GB HBM3", rows)])
    assert sxm.verdict == NOT_TESTABLE  # of another bandwidth; told before what an H200 has
    assert sxm.measured.startswith("no rows on an H100 PCIe; NVIDIA H100 80GB HBM3, Triton 3.6.0: mean 2.833x, ")
    assert judged("SplitK is 295%", rows).measured.startswith("largest 4.000x, ")
    assert judged("The best split on an H100", rows) == Finding(
        "fastest or joint fastest of 6: split 8 on 6", CONFIRMED, 6
    )


@pytest.mark.parametrize(
    ("at_16_splits", "verdict"),
    [
        ((8.0, 8.5, 8.0, 9.0, 10.0, 12.0), CONFIRMED),
        ((8.0, 8.0, 8.0, 8.0, 8.0, 8.0), CONTRADICTED),  # no loss
        ((12.0, 11.0, 10.0, 9.0, 9.0, 9.0), CONTRADICTED),  # less and less of one
        ((4.0, 4.5, 5.0, 5.5, 6.0, 7.0), CONTRADICTED),  # less and less of a gain
    ],
)
def test_whether_more_splits_lose(at_16_splits, verdict):
    rows = []
    for size, us_of_16 in zip((512, 1024, 2048, 4096, 8192, 16384), at_16_splits, strict=True):
        for m in (1, 16):
            more = {"workload": "w4a16-square", "m": m, "n": size, "k": size, "protocol": "atomic"}
            for split, us in ((1, 9.0), (4, 8.0), (16, us_of_16)):
                rows.append(of_problem(f"w4a16-{m}x{size}", f"published_triton/w4a16.splitk@s{split}", us, **more))
    assert judged("From 4 splits to 16", rows).verdict == NOT_TESTABLE  # of an H200
    rows = made_on("NVIDIA A100-SXM4-80GB", rows)
    finding = judged("From 4 splits to 16", rows)
    assert (finding.verdict, finding.problems) == (verdict, 12)
    assert f"; M = 16: {8 / at_16_splits[0]:.2f}x, " in finding.measured
    assert judged("From 4 splits to 16", rows[:10]).verdict == FEW_ROWS
    without = [made for made in rows if not made.contender.endswith("@s16")]
    assert judged("From 4 splits to 16", without) == Finding("no rows of 4 and 16 splits", NO_ROWS)


def test_figures_of_a_gpu_take_rows_of_one():
    rows = []
    for size in (512, 1024, 2048, 4096, 8192, 16384):
        more = {"workload": "w4a16-square", "m": 16, "n": size, "k": size}
        rows.append(of_problem(f"w4a16-{size}", "published_triton/w4a16.data_parallel", 16.5, **more))
        rows.append(of_problem(f"w4a16-{size}", "published_triton/w4a16.splitk@s4", 10.0, protocol="atomic", **more))
    faster = "SplitK is 65% faster"
    elsewhere = judged(faster, rows)
    assert (elsewhere.verdict, elsewhere.figure) == (NOT_TESTABLE, "1.65x")
    assert elsewhere.measured.startswith("no rows on an A100; NVIDIA H200, Triton 3.6.0: mean 1.650x")
    assert judged(faster, []) == Finding("`python bench/record.py w4a16-square-published`", NOT_RECORDED)
    there = made_on("NVIDIA A100-SXM4-80GB", rows)
    assert (judged(faster, there).verdict, judged(faster, there).problems) == (CONFIRMED, 6)
    assert claim(faster).condition.startswith("on an A100: mean ")


@pytest.mark.parametrize(
    ("best", "other_us", "told", "verdict"),
    [
        ((8, 4, 8, 4, 8, 4), 6.0, "split 8 on 3, split 4 on 3", CONFIRMED),  # as many as any other
        ((8, 4, 8, 4, 4, 4), 6.0, "split 4 on 4, split 8 on 2", CONTRADICTED),
        ((4, 4, 4, 4, 4, 4), 5.08, "split 4 on 6, split 8 on 6", CONFIRMED),  # 1.6 %: the intervals overlap
    ],
)
def test_a_best_split_is_the_fastest_or_joint_fastest_as_often_as_any_other(best, other_us, told, verdict):
    rows = []
    for size, first in zip((512, 1024, 2048, 4096, 8192, 16384), best, strict=True):
        more = {"workload": "w4a16-square", "m": 16, "n": size, "k": size, "protocol": "atomic"}
        for split, us in ((1, 9.0), (first, 5.0), (12 - first, other_us)):  # 4 and 8
            name = f"w4a16-16x{size}x{size}-fp16-g128"
            rows.append(of_problem(name, f"published_triton/w4a16.splitk@s{split}", us, **more))
    finding = judged("The best split on an H100", made_on("NVIDIA H100 PCIe", rows))
    assert (finding.verdict, finding.problems) == (verdict, 6)
    assert sorted(finding.measured.partition(": ")[2].split(", ")) == sorted(told.split(", "))


@pytest.mark.parametrize(
    ("sm", "occupancy", "verdict", "measured"),
    [
        (40.0, 30.0, CONFIRMED, "sm 2.00x, occupancy 3.75x"),
        (40.0, 8.0, CONTRADICTED, "sm 2.00x, occupancy 1.00x"),
        (None, 8.0, NOT_TESTABLE, "ncu could not count sm_pct"),
    ],
)
def test_what_ncu_counted_tests_a_claim(sm, occupancy, verdict, measured):
    counted = {"published_triton/w4a16.splitk": (sm, occupancy), "published_triton/w4a16.data_parallel": (20.0, 8.0)}
    metrics = {name: {"sm_pct": of_sm, "occupancy_pct": of_warps} for name, (of_sm, of_warps) in counted.items()}
    launches = counted_launches(metrics)
    finding = judged("SplitK doubles", [], launches)
    assert (finding.verdict, measured in finding.measured) == (verdict, True)
    asked = "--problem w4a16-16x4096x4096-fp16-g128 --only published_triton/w4a16.data_parallel"
    assert judged("SplitK doubles", [], launches[:1]) == Finding(f"`python bench/counters.py {asked}`", NOT_RECORDED)
    elsewhere = judged("SplitK doubles", [], counted_launches(metrics, device="NVIDIA H200"))
    assert elsewhere.verdict == NOT_TESTABLE


@pytest.mark.parametrize(("blocks", "verdict"), [(512, CONFIRMED), (256, CONTRADICTED)])
def test_blocks_are_counted_of_one_tile(blocks, verdict):
    metrics = {
        "published_triton/w4a16.splitk": {"grid_blocks": blocks},
        "published_triton/w4a16.data_parallel": {"grid_blocks": 128},
    }
    tile = {"block_m": 16, "block_n": 32}
    assert judged("SplitK launches four", [], counted_launches(metrics, configs=[tile, tile])).verdict == verdict
    wider = {"block_m": 16, "block_n": 64}
    told = "block_n is 32 and 64: not only the split differs"
    assert judged("SplitK launches four", [], counted_launches(metrics, configs=[tile, wider])) == Finding(
        told, NOT_TESTABLE
    )


def counted_launches(metrics, device="NVIDIA A100-PCIE-40GB", configs=(None, None)):
    """What ncu counted of the two kernels of the W4A16 study, by contender."""
    return [
        one_launch(
            name,
            W4A16Matmul(16, 4096, 4096),
            of_name,
            workload="w4a16-square",
            config=config,
            environment=LaunchEnvironment(device=device, ncu="2025.3"),
            time=f"2026-11-21T08:00:0{place}+00:00",
        )
        for place, ((name, of_name), config) in enumerate(zip(metrics.items(), configs, strict=True))
    ]


@pytest.mark.parametrize(
    ("beginning", "metrics", "measured"),
    [
        ("SplitK takes 0.61", {"registers_per_thread": (92, 150)}, "registers_per_thread 0.61x"),
        (
            "Registers let",
            {"register_limit_blocks": (5, 3), "shared_limit_blocks": (5, 2)},
            "register_limit_blocks 1.67x, shared_limit_blocks 2.50x",
        ),
        (
            "SplitK has 3.7",
            {"active_warps": (4.45, 1.21), "eligible_warps": (0.67, 0.20)},
            "active_warps 3.68x, eligible_warps 3.35x",
        ),
        ("SplitK has 2 times the issued", {"issue_pct": (43.0, 19.0)}, "issue 2.26x"),
        ("SplitK issues 2.3", {"instructions_per_cycle": (1.72, 0.75)}, "instructions_per_cycle 2.29x"),
    ],
)
def test_the_papers_tables_confirm_what_they_say(beginning, metrics, measured):
    def counted(of_data_parallel, device="NVIDIA H100 PCIe"):
        return counted_launches(
            {
                "published_triton/w4a16.splitk": {name: split for name, (split, _) in metrics.items()},
                "published_triton/w4a16.data_parallel": {
                    name: of_data_parallel(pair) for name, pair in metrics.items()
                },
            },
            device,
        )

    assert judged(beginning, [], counted(lambda pair: pair[1])).measured == measured
    assert judged(beginning, [], counted(lambda pair: pair[1])).verdict == CONFIRMED
    assert judged(beginning, [], counted(lambda pair: pair[0])).verdict == CONTRADICTED  # both alike
    of_the_board = beginning.startswith(("SplitK has", "SplitK issues"))
    told = judged(beginning, [], counted(lambda pair: pair[1], "NVIDIA H200")).verdict
    assert told == (NOT_TESTABLE if of_the_board else CONFIRMED)


@pytest.mark.parametrize(("by_shared", "verdict"), [(2, CONFIRMED), (3, CONTRADICTED)])
def test_what_limits_a_kernel(by_shared, verdict):
    metrics = {"register_limit_blocks": 3, "shared_limit_blocks": by_shared}
    told = f"by shared memory {by_shared}, by registers 3"
    for device in ("NVIDIA A100-PCIE-40GB", "NVIDIA H200"):
        launches = counted_launches({"published_triton/w4a16.data_parallel": metrics}, device, configs=[None])
        assert judged("The data-parallel kernel", [], launches) == Finding(told, verdict)


@pytest.mark.parametrize(("of_fp32", "verdict"), [(1.2, CONFIRMED), (1.1, CONTRADICTED)])
def test_the_dtype_that_gains_more(of_fp32, verdict):
    bf16 = on_suite("skinny-matmul-bf16", {VECTOR: 1.3 * 1.12, TILE: 1.3})
    fp32 = on_suite("skinny-matmul-fp32", {VECTOR: of_fp32, TILE: 1.0})
    finding = judged("From the tile-shaped", [*bf16, *fp32])
    told = f"median over {TILE}: bf16 1.120x, fp32 {of_fp32:.3f}x, on 28 shapes"
    assert finding == Finding(told, verdict, 56)
    for made in fp32[:45]:
        made.config_source = made.config and "nearest"
    assert judged("From the tile-shaped", [*bf16, *fp32]).verdict == FEW_ROWS
    assert judged("From the tile-shaped", bf16) == Finding("no shape in common in bf16 and fp32", NO_ROWS)


@pytest.mark.parametrize(
    ("deep", "verdict"),
    [
        ("decompose-K, split 64: bmm_dtype, triton_per_fused_mm_0, triton_poi_fused_relu_1", CONFIRMED),
        ("decompose-K, split 32: bmm_dtype, triton_per_fused_mm_0, triton_poi_fused_relu_1", CONTRADICTED),
        ("mm, triton_poi_fused_relu_0", CONTRADICTED),
    ],
)
def test_what_inductor_generates_at_a_small_and_a_deep_k(deep, verdict):
    def made(k, program):
        problem = Matmul(16, 16, k, layout=Layout.KN, epilogue=Epilogue.RELU)
        return row(
            listed.AS_GRAPH, problem=problem, workload="shape", message=f"compiled to {program}; each call copies"
        )

    small, large = made(256, "triton_tem_fused_mm_relu_0"), made(32768, deep)
    told = "K = 256: triton_tem_fused_mm_relu_0"
    assert judged("At M = N = 16, K = 256", [small, large]) == Finding(told, CONFIRMED)
    assert judged("At M = N = 16, K = 256", [made(256, "mm, triton_poi_fused_relu_0")]).verdict == CONTRADICTED
    assert by_rule("At M = N = 16, K = 32768", [small, large]) == Finding(f"K = 32768: {deep}", verdict)
    assert judged("At M = N = 16, K = 32768", [small, large]).verdict == NOT_TESTABLE
    lacking = f"no row of {listed.AS_GRAPH} at K = 32768 names its program"
    assert by_rule("At M = N = 16, K = 32768", [small]).measured == lacking


@pytest.mark.parametrize(
    ("program", "verdict"),
    [("triton_tem_fused_mm_0", CONFIRMED), ("decompose-K, split 28: bmm_dtype, triton_per_fused_mm_0", CONTRADICTED)],
)
def test_whether_inductor_ever_splits_the_routers_product(program, verdict):
    made = [row("torch/compile.default", tokens, message="compiled to mm") for tokens in (1, 16, 64)]
    made += [row("torch/compile.max_autotune", 64, message=f"compiled to {program}; each call copies")]
    made += [row("torch/compile.decompose_k", 64, message="compiled to decompose-K, split 28: bmm_dtype")]  # is told to
    assert judged("Plain torch.compile never", made).verdict == verdict
    assert judged("Plain torch.compile never", made[-1:]).verdict == NO_ROWS
    assert judged("Plain torch.compile never", made[:2]).verdict == FEW_ROWS


@pytest.mark.parametrize(("share", "verdict"), [(1.0, CONFIRMED), (2.0, CONTRADICTED)])
def test_the_workspace_of_one_launch(share, verdict):
    rows = on_suite(listed.EPILOGUE, {listed.TLX: 1.5, listed.VECTOR: 1.4})
    for made in rows:
        size = 4 * made.problem.m * made.problem.n
        made.workspace_bytes = {listed.TLX: round(share * size), listed.VECTOR: 8 * size}.get(made.contender)
    told = f"{share:.3f} to {share:.3f} times 1 / split, on 28 problems"
    assert judged("One launch in TLX needs", rows) == Finding(told, verdict, 28)
    next(made for made in rows if made.contender == listed.TLX).workspace_bytes *= 3
    assert judged("One launch in TLX needs", rows).verdict == CONTRADICTED  # by one


@pytest.mark.parametrize(("equal", "verdict"), [(False, CONFIRMED), (True, CONTRADICTED)])
def test_whether_atomics_come_in_one_order(equal, verdict):
    rows = on_suite(listed.EPILOGUE, {listed.TLX: 1.5})
    rows[1].bitwise_equal = equal
    finding = judged("The order in which splits", rows)
    assert (finding.verdict, finding.figure) == (verdict, f"{27 + equal} of 28")


@pytest.mark.parametrize(("unsplit", "verdict"), [(0, CONFIRMED), (64, CONTRADICTED)])
def test_whether_one_split_has_a_semaphore(unsplit, verdict):
    rows = [
        replace(
            row(f"{listed.V5}@s{split}", us=8.0, problem=Matmul(m, 256, 7168)),
            config={"split_k": split},
            workspace_bytes=size,
        )
        for m, split, size in ((1, 1, unsplit), (2, 1, 0), (1, 4, 64))
    ]
    assert judged("Only where there is more", rows) == Finding(f"up to {unsplit} bytes, on 2 rows", verdict)
    assert judged("Only where there is more", rows[2:]) == Finding("no rows of one split", NO_ROWS)


@pytest.mark.parametrize(("block_k", "verdict"), [(64, CONTRADICTED), (8192, CONFIRMED)])
def test_whether_the_tutorials_kernel_tiles(block_k, verdict):
    rows = on_suite(listed.SWEEP, {listed.TRITON_TUTORIAL: 0.85})
    for made in rows:
        made.config = {"block_k": block_k} if made.contender == listed.TRITON_TUTORIAL else None
    finding = judged("The kernel of Triton's tutorial", rows)
    assert (finding.verdict, finding.problems) == (verdict, 30)


def at_share_of_the_peak(rows, share: float):
    """Rows of an H200 that takes the time in which it does so much of the arithmetic that it could."""
    for made in rows:
        us = made.problem.flops / rules.PEAK_TFLOPS["H200"] / share * 1e-6
        made.timing["cold"] = replace(made.timing["cold"], median_us=us)
    return rows


@pytest.mark.parametrize(("share", "verdict"), [(0.49, CONTRADICTED), (0.51, CONFIRMED)])
def test_what_is_bound_by_computing(share, verdict):
    """The slower of two does not count, nor do rows of a workload on which the source says nothing."""
    for beginning, workload, count in (
        ("Skinny matrix", listed.PLAIN, 28),
        ("Matrix multiplication", listed.SWEEP, 30),
    ):
        rows = at_share_of_the_peak(on_suite(workload, {VECTOR: 1.3}), share)
        slower = [made for made in rows if made.contender == BASELINE]
        finding = judged(beginning, [*rows, *at_share_of_the_peak(slower, 0.1), *router_rows()])
        assert (finding.verdict, finding.problems) == (verdict, count)
        assert finding.measured.startswith(f"median {share:.1%} of the peak ({share:.1%}-{share:.1%}), ")


def test_a_mean_of_the_sweep_is_of_the_shapes_that_the_source_has():
    rows = on_suite(listed.SWEEP, {listed.TRITON_TUTORIAL: 0.85})
    for made in rows:
        if made.problem.m > 3840 and made.contender == listed.TRITON_TUTORIAL:
            made.timing["cold"] = replace(made.timing["cold"], speedup=8.5, speedup_low=8.5, speedup_high=8.5)
    finding = judged("Triton's tutorial kernel has", rows)
    assert finding.measured.startswith("geometric mean 0.850x, ") and finding.problems == 28


def test_where_torch_alone_was_timed_nothing_is_the_fastest():
    rows = on_suite(listed.PLAIN, {VECTOR: 1.3})
    alone = {made.problem.name for made in rows[:4]}
    rows = [made for made in rows if made.contender == BASELINE or made.problem.name not in alone]
    at_share_of_the_peak(rows, 0.2)
    at_share_of_the_peak([made for made in rows if made.problem.name in alone], 0.9)
    finding = judged("Skinny matrix", rows)
    assert (finding.verdict, finding.problems) == (CONTRADICTED, 28 - len(alone))
    assert "(20.0%-20.0%)" in finding.measured


def test_a_gpu_whose_peak_is_not_known_says_nothing_of_what_bounds():
    finding = judged("Skinny matrix", made_on("NVIDIA L4", on_suite(listed.PLAIN, {VECTOR: 1.3})))
    assert finding == Finding("no rows of a kernel on a GPU whose peak is known", NO_ROWS)


@pytest.mark.parametrize(("times", "verdict"), [(1.9, CONFIRMED), (2.1, CONTRADICTED)])
def test_what_is_bound_by_memory(times, verdict):
    """The fastest of a problem counts, and a problem on which torch alone was timed does not."""
    rows = []
    for size in (512, 1024, 2048, 4096, 8192, 16384):
        for m in (1, 16):
            more = {"workload": "w4a16-square", "m": m, "n": size, "k": size}
            for contender, us in (("torch/dequantized_mm", 3 * times), ("triton/w4a16.atomic", times)):
                made = of_problem(f"w4a16-{m}x{size}", contender, us, **more)
                made.timing["cold"] = replace(made.timing["cold"], times_floor=us)
                rows.append(made)
    finding = judged("Products of inference", rows)
    told = f"median {times:.2f}x the time of reading ({times:.2f}-{times:.2f}), the fastest of all, on 12 problems"
    assert finding == Finding(told, verdict, 12)
    assert judged("Products of inference", rows[::2]).verdict == NO_ROWS


def test_the_papers_counted_time_is_not_that_of_its_tables():
    there = claim("SplitK is 1.90 times").there
    counted = Matmul(16, 4096, 4096).flops / 27.90e-6 * 1e-12
    cells = figures.PUBLISHED["w4a16"].figures["w4a16-16x4096x4096-fp16-g128"]
    of_tables = sorted(cell.split(",")[0] for cell in cells)
    assert there.startswith(
        f"27.90 us are {counted:.1f} TFLOPS, and its Tables 4 to 6 have {of_tables[0]} to {of_tables[-1]}"
    )


def test_what_needs_no_rows():
    told = "81 programs compute 81 tiles, in groups of 3 rows"
    assert judged("With groups of 3 rows", []) == Finding(told, CONTRADICTED)
    reducers = judged("At M = N = 16 the vector", [])
    assert reducers.verdict == CONFIRMED and reducers.measured.startswith(
        "8 of 32 elements at 2, 4, 8, 16, 32, 64 splits;"
    )
    assert replace_rule("At M = N = 16 the vector", claimed=4).verdict == CONTRADICTED
    assert replace_rule("With groups of 3 rows", claimed=1).verdict == CONFIRMED
    told = "row by row 9 + 81, in groups of 3 rows 27 + 27, 36 fewer"
    assert judged("Grouped", []) == Finding(told, CONFIRMED)
    assert judged("do_bench", []).verdict == CONTRADICTED
    told = "tilus documents that it is zero at first and that the kernel has to reset it"
    assert judged("A tensor of requires_clean", []) == Finding(told, CONFIRMED)
    assert judged("On an A100 SplitK has 61%", []) == Finding("102.4 and 64 blocks per slot of an SM, 1.60x", CONFIRMED)
    assert replace_rule("On an A100 SplitK has 61%", claimed=2.5).verdict == CONTRADICTED
    told = "speed 1.90x; memory throughput 1.94x, occupancy 3.68x"
    assert judged("Occupancy and memory", []) == Finding(told, CONTRADICTED)
    assert replace_rule("Occupancy and memory", increases={"memory throughput": (313, 161)}).verdict == CONFIRMED


@triton.jit
def order_kernel(tiles_ptr, rows, columns, GROUP_M: tl.constexpr):
    row, column = tile_of(tl.program_id(0), rows, columns, 1, 1, GROUP_M)
    tl.store(tiles_ptr + 2 * tl.program_id(0), row)
    tl.store(tiles_ptr + 2 * tl.program_id(0) + 1, column)


@pytest.mark.parametrize("group", [1, 3, 4])
def test_the_order_of_programs_that_is_counted_is_the_kernels(device, group):
    rows, columns = 6, 5
    tiles = torch.empty(rows * columns, 2, dtype=torch.int32, device=device)
    order_kernel[(rows * columns,)](tiles, rows, columns, GROUP_M=group)
    counted = [tile_of_program(program, rows, columns, group) for program in range(rows * columns)]
    assert [tuple(tile) for tile in tiles.tolist()] == counted


@pytest.mark.parametrize(
    ("document", "verdict"),
    [
        (None, NOT_TESTABLE),
        ("`requires_clean`: initialized to all zeros before every launch.", CONTRADICTED),
        ("`requires_clean`: We require the kernel to reset\n the global tensor to all zeros.", CONTRADICTED),
        ("Initialized to all zeros: initialized to all zeros.", NOT_TESTABLE),
        (
            "`requires_clean`: initialized to all zeros. We require the kernel to reset the global tensor.",
            CONFIRMED,
        ),
    ],
)
def test_what_tilus_documents(monkeypatch, document, verdict):
    script = SimpleNamespace(global_tensor=SimpleNamespace(__doc__=document))
    monkeypatch.setitem(sys.modules, "tilus", SimpleNamespace(Script=script))
    assert judged("A tensor of requires_clean", []).verdict == verdict


def test_a_tilus_that_cannot_be_imported_leaves_its_claim_untested(monkeypatch):
    monkeypatch.setitem(sys.modules, "tilus", None)
    finding = judged("A tensor of requires_clean", [])
    assert (finding.verdict, finding.measured.startswith("tilus cannot be imported: ")) == (NOT_TESTABLE, True)


def test_a_claim_that_a_test_shows_takes_that_test():
    rule = claim("Past Dynamo's").rule
    assert judged("Past Dynamo's", []) == Finding(f"{rule.file}, {rule.test}", CONFIRMED)
    assert replace_rule("Past Dynamo's", holds=False).verdict == CONTRADICTED
    for gone in ({"test": "test_none"}, {"file": "tests/none.py"}):
        with pytest.raises(Untested) as untested:
            replace_rule("Past Dynamo's", **gone)
        assert untested.value.verdict == NOT_TESTABLE


def test_of_two_measurements_of_one_problem_the_last_counts():
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.45, TILE: 1.3})
    again = in_another_run(on_suite("skinny-epilogue-bf16", {VECTOR: 1.3, TILE: 1.3}))
    finding = judged("The reducer's shape", [*rows, *again])
    assert (finding.verdict, finding.problems) == (CONTRADICTED, 28)
    assert "median 1.000x" in finding.measured
    assert judged("The reducer's shape", [*later(again), *rows]) == finding  # by time, not by file
    alone = in_another_run(on_suite("skinny-epilogue-bf16", {VECTOR: 1.2}))  # no tile to compare it with
    assert "median 1.115x" in judged("The reducer's shape", [*rows, *alone]).measured


def test_of_two_rows_of_one_contender_on_one_problem_the_last_counts():
    rows = studied_rows()
    rows[1].accuracy.times_torch = 2.4
    again = in_another_run([replace(rows[1], accuracy=AccuracyRecord(times_torch=1.0))])
    assert judged("With fp32 partials", rows).verdict == CONTRADICTED
    assert judged("With fp32 partials", [*rows, *again]).verdict == CONFIRMED
    assert judged("With fp32 partials", [*later(again), *rows]).verdict == CONFIRMED


def test_splits_of_two_runs_are_not_held_against_each_other():
    one, four = (row(f"{listed.V5}@s{split}", us=us) for split, us in ((1, 8.0), (4, 5.0)))
    assert judged("Splitting K pays", [one, four]).verdict == CONFIRMED
    assert judged("Splitting K pays", [one, *in_another_run([four])]).verdict == CONTRADICTED


def test_every_claim_is_in_the_table_and_counted():
    made = table([*router_rows(), *on_suite("skinny-epilogue-bf16", {TILE: 1.2, OP: 1.3})[:6]])
    assert len(made.lines) == len(CLAIMS)
    assert len({of.text for of in CLAIMS}) == len(CLAIMS)
    verdicts = [line[-1] for line in made.lines]
    assert set(verdicts) == set(VERDICTS)
    assert made.title.startswith(
        f"{len(CLAIMS)} claims: {verdicts.count(CONFIRMED)} confirmed, {verdicts.count(CONTRADICTED)} contradicted"
    )
    assert all(line[1] and line[4] for line in made.lines)
    for source in {of.source for of in CLAIMS}:
        assert source.url in made.foot and source.not_here in made.foot


def printed(shown, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100])
def test_a_line_or_two_a_claim_show_every_verdict(width):
    rows = [*router_rows(), *on_suite("skinny-epilogue-bf16", {VECTOR: 1.6, TILE: 1.2, OP: 1.3})]
    shown = printed(screen(rows), width)
    assert len(shown) <= 2.3 * len(CLAIMS) and max(map(len, shown)) <= width
    words = " ".join(" ".join(line.split()) for line in shown)
    assert all(name in words for claim in CLAIMS for name in claim.text.split())
    assert "confirmed 28 of 28 With ReLU, the vector reducer" in words
    assert "confirmed 1.60x Fused decompose-K is 1.5x" in words
    assert "from half to twice the claimed one" in words and "1.5x to 1.7x from 1.25x to 2.4x." in words
    verdicts = [line.split("  ")[0].strip() for line in shown]
    found = table(rows)
    assert {verdict: verdicts.count(verdict) for verdict in VERDICTS} == {
        verdict: sum(line[-1] == verdict for line in found.lines) for verdict in VERDICTS
    }


@pytest.mark.parametrize("width", [80, 100])
def test_all_that_is_known_of_a_claim_keeps_names_whole(width):
    rows = on_suite("skinny-epilogue-bf16", {VECTOR: 1.6, TILE: 1.2, OP: 1.3})
    shown = printed(blocks(rows), width)
    assert max(map(len, shown)) <= max(width, 2 + len("source") + 2 + max(len(one.source.url) for one in CLAIMS))
    words = set(" ".join(shown).replace(",", " ").split())
    assert {name for one in CLAIMS for name in one.rule.contenders if " " not in name} <= words
    assert {one.rule.text.split()[0] for one in CLAIMS if one.rule.text} <= words


def test_of_two_devices_the_sources_decides_and_the_other_is_told():
    there = made_on("NVIDIA H100 80GB HBM3", on_suite("skinny-epilogue-bf16", {VECTOR: 1.3, OP: 1.4}))
    here = on_suite("skinny-epilogue-bf16", {VECTOR: 1.4, OP: 1.3})
    found = judged("With ReLU, the vector reducer", [*there, *here])
    assert found.verdict == CONTRADICTED and found.figure == "0 of 28"
    of_there, of_here = found.measured.split("; ")
    assert of_there.startswith("H100 80GB HBM3: median 0.929x") and of_here.startswith("H200: median 1.077x")
    assert of_here.endswith("(confirmed)")


def test_the_device_that_has_the_rows_decides():
    elsewhere = made_on("NVIDIA H100 80GB HBM3", on_suite("skinny-matmul-bf16", {VECTOR: 1.3, OP: 1.4}))
    here = on_suite("skinny-epilogue-bf16", {VECTOR: 1.4, OP: 1.3})
    found = judged("With ReLU, the vector reducer", [*elsewhere, *here])
    assert (found.verdict, found.measured) == (CONFIRMED, "H200: median 1.077x (1.08-1.08), ahead on 28 of 28")


def test_one_table_of_what_is_recorded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(queries, "RESULTS", tmp_path)
    assert run_command(command.main, []) == 2
    assert "no rows are checked in" in on_stderr(capsys)
    for device in ("h200", "a100"):
        for made in router_rows():
            Journal(tmp_path / device / "router-nk.jsonl").append(made)
    assert run_command(command.main, ["--markdown"]) == 0
    assert capsys.readouterr().out.count(f"**{len(CLAIMS)} claims: ") == 1


def test_what_another_triton_recorded_is_told_of_too(monkeypatch, tmp_path):
    monkeypatch.setattr(queries, "RESULTS", tmp_path)
    for folder, version in (("h200", "3.6.0"), ("h200/triton-3.4", "3.4.0")):
        for made in made_with(router_rows(), triton=version):
            Journal(tmp_path / folder / "router-nk.jsonl").append(made)
    rows, *_ = recorded()
    assert {made.environment.triton for made in rows} == {"3.6.0", "3.4.0"}


def test_the_command_reads_files(tmp_path, capsys):
    tables.write_json(router_rows(), tmp_path / "rows.json")
    assert run_command(command.main, [str(tmp_path / "rows.json")]) == 0
    assert "Matrix multiplication is bound by computing" in capsys.readouterr().out
    (tmp_path / "empty.json").touch()
    (tmp_path / "corrupt.json").write_text("not a row\n")
    for file, told in (
        ("corrupt.json", "corrupt.json:1: "),
        ("empty.json", "empty.json: holds no row"),
        ("none.json", "No such file"),
    ):
        assert run_command(command.main, [str(tmp_path / file)]) == 2
        assert told in on_stderr(capsys)


def test_what_a_test_shows_stands_in_a_wheel_too_and_falls_with_the_test(monkeypatch, tmp_path):
    """A wheel has no tests; a checkout without this one shows nothing."""
    rule = rules.ShownByTest("tests/test_a.py", "test_b", holds=False)
    monkeypatch.setattr(rules, "ROOT", tmp_path)
    assert rule.finding(None) == Finding("tests/test_a.py, test_b, in a checkout", CONTRADICTED)
    (tmp_path / "tests").mkdir()
    with pytest.raises(Untested, match=r"tests/test_a\.py has no test_b"):
        rule.finding(None)
    (tmp_path / "tests" / "test_a.py").write_text("def test_b():\n")
    assert rule.finding(None) == Finding("tests/test_a.py, test_b", CONTRADICTED)
