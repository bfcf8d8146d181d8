"""The answer for one product, from made-up rows and from those that are checked in."""

import re
import subprocess
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import torch
from made_rows import FP32, VECTOR, by_former_clock, row

from triton_vs_tilus.bench import answer as command
from triton_vs_tilus.bench import cli, compare, contenders
from triton_vs_tilus.bench.cli import WIDTH, ExitCode, run_command
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.rows import answers, queries
from triton_vs_tilus.bench.rows.frame import frame
from triton_vs_tilus.bench.rows.row import BASELINE, SearchRecord
from triton_vs_tilus.bench.rows.row import LANGUAGES as ROW_LANGUAGES
from triton_vs_tilus.bench.rows.times import measured
from triton_vs_tilus.bench.show.answer import (
    MULTIPROCESSORS,
    NOT_NEAR,
    REASONS,
    beside,
    call_lines,
    how_far,
    protocol_of,
    screen,
    source_line,
    steps,
    table_lines,
    why_lines,
)
from triton_vs_tilus.bench.show.answer import cells as table
from triton_vs_tilus.bench.show.mechanisms import plain
from triton_vs_tilus.bench.show.regimes import beside_table, regimes_table
from triton_vs_tilus.bench.show.tables import mark_fastest
from triton_vs_tilus.common import space
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import LANGUAGES
from triton_vs_tilus.common.problem import Layout, Matmul, short_dtype
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import PACKED
from triton_vs_tilus.common.w4a16 import W4A16Matmul

ROUTER = Matmul(32, 256, 7168, layout=Layout.NK)


@cache
def recorded():
    return queries.recorded("router-nk")


def test_a_recorded_problem_is_answered_by_its_own_rows():
    found = answers.answer(ROUTER, files=recorded())
    (path,) = recorded()
    rows = [row for row in queries.timed_together(recorded()[path], "cold") if row.problem.name == ROUTER.name]
    mine = [row for row in rows if not row.is_control and "@" not in row.contender]
    assert found.apart == 0 and found.file == path
    assert found.fastest.timing["cold"].median_us == min(row.timing["cold"].median_us for row in mine)
    for language in ("triton", "tilus"):
        times = [row.timing["cold"].median_us for row in mine if row.language == language]
        assert found.us(found.best_of(language)) == min(times)


def test_the_file_that_answers_a_problem_is_that_of_its_answer():
    files = queries.recorded()
    by_problem = answers.files_by_problem(files)
    for name in ("32x256x7168-bf16-nk", "64x64x16384-bf16-kn-relu", "w4a16-16x8192x8192-fp16-g128"):
        problem = next(each.problem for rows in files.values() for each in rows if each.problem.name == name)
        assert by_problem[name] == answers.answer(problem, files=files).file


@pytest.mark.parametrize("tokens", [1, 8, 16, 128, 256, 1024])
def test_the_joint_fastest_are_those_of_the_tables(tokens):
    found = answers.answer(replace(ROUTER, m=tokens), files=recorded())
    marked = mark_fastest(frame(found.rows, "cold"), ["problem"])
    assert {row.contender for row in found.joint} == set(marked.contender[marked.fastest | marked.joint])


@pytest.mark.parametrize(
    ("other_us", "within", "between", "leads"),
    [
        (8.1, 0.0, 0.0, False),  # the intervals, of 1 % to either side, overlap
        (8.4, 0.0, 0.0, True),
        (8.4, 0.06, 0.0, False),
        (8.4, 0.0, 0.06, False),
        (8.4, 0.04, 0.04, True),
    ],
)
def test_a_lead_is_beyond_intervals_the_noise_of_its_run_and_what_two_runs_lie_apart(
    other_us, within, between, leads, monkeypatch
):
    monkeypatch.setattr(
        queries, "between_runs", lambda rows: {"cold": between} if rows[0].environment.device == "NVIDIA H200" else {}
    )
    rows = [msgspec.structs.replace(made(VECTOR, us), noise={"cold": within}) for us in (8.0, other_us)]
    assert queries.leads(*rows, "cold") is leads


def test_the_nearest_problem_answers_for_others():
    found = answers.answer(Matmul(30, 250, 7000, layout=Layout.NK), files=recorded())
    assert found.fastest.problem.name == ROUTER.name and 0 < found.apart < 0.2


@pytest.mark.parametrize("k", [7168 // 2, 7170])
def test_other_sizes_than_those_asked_for_are_told(k):
    asked = replace(ROUTER, k=k)
    said = "\n".join(screen(asked, answers.answer(asked, files=recorded()), None))
    assert f"Recorded at 32x256x7168 (you asked 32x256x{k}), cold L2." in said


def test_the_device_with_the_most_rows_answers_where_none_is_named():
    every = {**recorded(), **queries.recorded("router-other-gpu")}
    assert {path.parent.name for path in every} == {"h200", "h100-80gb-hbm3"}
    assert answers.answer(ROUTER, files=every).file.parent.name == "h200"
    named = answers.answer(ROUTER, device="h100-80gb-hbm3", files=every)
    assert named.fastest.environment.device == "NVIDIA H100 80GB HBM3"


def test_a_language_and_determinism_are_kept():
    mine = answers.answer(ROUTER, languages=("tilus",), deterministic=True, files=recorded())
    assert {row.language for row in mine.rows} == {"tilus", "torch"} and all(row.deterministic for row in mine.rows)
    assert mine.best_of("triton") is None


def test_what_was_never_recorded_is_told_with_what_was():
    told = r"no row is of --layout nk --dtype fp32 --clock cold; accepted, .*: --layout nk \(cold, graph, warm\)\. "
    with pytest.raises(ValueError, match=told):
        answers.answer(replace(ROUTER, dtype=torch.float32, out_dtype=torch.float32), files=recorded())
    with pytest.raises(ValueError, match=r"--layout nk --clock graph; accepted, .*: none$"):
        answers.answer(ROUTER, "graph", files={Path("made/rows.jsonl"): [row(us=5.0)]})


def test_where_torch_is_fastest_the_screen_says_so():
    rows = [row(us=5.0, baseline_us=5.0), row(VECTOR, us=9.0, baseline_us=5.0)]
    problem = rows[0].problem.to_problem()
    found = answers.answer(problem, files={Path("made/rows.jsonl"): rows})
    said = "\n".join(screen(problem, found, None))
    assert found.fastest is found.baseline
    assert said.startswith("torch.mm: 5.0 us. No kernel asked for is faster.") and "torch.mm(x, " in said


def made(contender: str, us: float, problem=ROUTER, **values):
    return row(contender, us=us, baseline_us=12.0, problem=problem, **values)


def test_an_epilogue_is_another_kind_and_a_reference_of_another_run_is_named():
    relu = replace(ROUTER, epilogue=Epilogue.RELU)
    here = [made(BASELINE, 12.0, relu), made(VECTOR, 8.0, relu)]
    there = [made(BASELINE, 12.0, relu), made("torch/compile.default", 10.0, relu)]
    plain = [made(BASELINE, 9.0), made(VECTOR, 7.0), made("triton/atomic", 6.0)]
    files = {Path("made/here.jsonl"): here, Path("made/there.jsonl"): there, Path("made/plain.jsonl"): plain}
    found = answers.answer(relu, files=files)
    assert found.file.name == "here.jsonl" and found.fastest.contender == VECTOR and found.best_reference is None
    assert found.elsewhere.contender == "torch/compile.default"
    said = "\n".join(screen(relu, found, None))
    assert "8.0 us, 1.50x torch.mm, then relu in torch." in said and "epilogue=Epilogue.RELU" in said
    title = rf"\n\nIn another run, {there[0].time[:10]} \(.*\):\n"
    assert re.search(rf"{title}best reference: torch/compile.default +1.20 \(", said)
    assert answers.answer(ROUTER, files=files).elsewhere is None


def test_the_fastest_of_a_regime_has_its_time_in_a_graph_and_the_other_languages_best_beside_it():
    def found(timings: tuple[str, ...], **us: float) -> answers.Answer:
        rows = [made(name, time, timings=timings) for name, time in {BASELINE: 12.0, VECTOR: 8.0, **us}.items()]
        return answers.answer(ROUTER, files={Path("made/rows.jsonl"): rows})

    captured, plain = found(("cold", "graph")), found(("cold",), **{FP32: 9.0, "tilus/atomic": 10.0})
    table = regimes_table([("router", captured), ("router", plain)])
    assert [line[2:4] for line in table.lines] == [["8.0 (5.6)", "1.50 (1.50)"], ["8.0", "1.50"]]
    assert "in a CUDA graph" in table.foot and "in a CUDA graph" not in regimes_table([("router", plain)]).foot
    beside = beside_table([captured, plain])
    assert [line[3:] for line in beside.lines] == [[""], [f"{FP32}, 9.0"]]
    assert beside.foot.startswith("cold L2, median. † joint fastest") and "cuBLAS" not in beside.foot


def of_rows(*rows, problem=ROUTER) -> answers.Answer:
    return answers.answer(problem, files={Path("made/rows.jsonl"): [made(BASELINE, 12.0, problem), *rows]})


def test_beside_the_fastest_stands_the_best_of_the_other_language_marked_like_it():
    """Joint are those that nothing leads; where the fastest is of no language, the best of both stands there."""
    nearest = msgspec.structs.replace(made(FP32, 9.0), config_source="nearest")
    alone = of_rows(made(VECTOR, 8.0), nearest)
    joint = of_rows(made(VECTOR, 8.0), made("triton/atomic", 8.0), nearest)
    torch_is = of_rows(made(VECTOR, 14.0), made(FP32, 13.0))
    by_linear = of_rows(made("torch/linear.triton", 8.0), made("torch/linear.tilus", 9.0))
    assert [line[1:] for line in beside_table([alone, joint, torch_is, by_linear]).lines] == [
        [VECTOR, "8.0", f"{FP32}°, 9.0"],
        [f"{VECTOR} †", "8.0", f"{FP32}°, 9.0"],
        [BASELINE, "12.0", f"{FP32}, 13.0"],
        ["torch/linear.triton", "8.0", "torch/linear.tilus, 9.0"],
    ]


def test_the_foot_tells_what_the_speed_ups_of_any_regime_are_over():
    relu, weight = replace(ROUTER, epilogue=Epilogue.RELU), W4A16Matmul(16, 512, 512)
    of_each = [of_rows(made(VECTOR, 8.0, problem), problem=problem) for problem in (ROUTER, relu)]
    of_weight = [made("torch/dequantized_mm", 12.0, weight), made("triton/w4a16.atomic", 8.0, weight)]
    of_each.append(answers.answer(weight, files={Path("made/rows.jsonl"): of_weight}))
    for some, said in ((of_each[:1], (False, False)), (of_each[:2], (True, False)), (of_each[::2], (False, True))):
        foot = regimes_table([("", each) for each in some]).foot
        assert ("With an epilogue" in foot, "For W4A16" in foot) == said
    named = regimes_table([("router", of_each[0]), ("any", of_each[0]), ("weight", of_each[2])])
    assert named.foot.endswith(". bf16: router, any; fp16: weight.")


def test_a_regimes_name_and_sizes_stand_for_the_problem():
    rows = [made(BASELINE, 12.0), made(VECTOR, 8.0), made(FP32, 8.0)]
    found = answers.answer(ROUTER, files={Path("made/rows.jsonl"): rows})
    named, plain = regimes_table([("router", found), ("", found)]).lines
    assert named[0] == "router, 32x256x7168" and plain[0] == ROUTER.name
    assert named[1:] == plain[1:] == [f"{VECTOR} †", "8.0", "1.50", '`matmul(x, weight.T, variant="vector")`']


def test_regimes_of_the_former_clock_are_named():
    other = replace(ROUTER, m=64)
    now, before = ([made(BASELINE, 12.0, problem), made(VECTOR, 8.0, problem)] for problem in (ROUTER, other))
    former = list(map(by_former_clock, before))
    by_it = " By the former clock, whose cold times are longer (notes/method.md): old."
    for there, told in ((before, ""), (former, by_it)):
        files = {Path("made/now.jsonl"): now, Path("made/before.jsonl"): there}
        found = [(name, answers.answer(problem, files=files)) for name, problem in (("new", ROUTER), ("old", other))]
        assert regimes_table(found).foot.endswith(f"bf16: new, old.{told}")
        assert [source_line(each).endswith(", by the former clock.") for _, each in found] == [False, bool(told)]


def test_linear_answers_where_no_kernel_was_timed_by_name():
    nearer = replace(ROUTER, m=ROUTER.m + 1)
    said_by_it = {"message": f"{VECTOR} [16x16x64]: 7.1 us; measured at {ROUTER.name} (router)", "deterministic": False}
    took = msgspec.structs.replace(made("torch/linear.triton", 7.0, nearer), **said_by_it)
    models = [made(BASELINE, 12.0, nearer), took]
    both = [made(BASELINE, 12.0), made("torch/linear.triton", 7.0), made(VECTOR, 8.0)]
    files = {Path("made/models.jsonl"): models, Path("made/both.jsonl"): both}
    found = answers.answer(nearer, files=files)
    assert found.file.name == "models.jsonl" and found.fastest is found.best_of("triton") is took
    assert found.best_of("tilus") is None and found.best_reference is None
    said = "\n".join(screen(nearer, found, None))
    assert said.startswith(f"{VECTOR} by linear: 7.0 us, ")
    assert re.search(rf"best triton: {VECTOR} by linear +7.0 .* borrowed from another", said)
    assert "Why: decompose_k.vector: no split waits for another (inferred).\n" in said and "import matmul" not in said
    assert f"this triton kernel\n     by its time at {ROUTER.name}, where every kernel was timed.\n" in said
    assert "More: notes/decompose_k.md" in said
    assert "    from triton_vs_tilus.kernels_triton import linear   # picks a kernel or torch.mm" in said
    assert answers.answer(ROUTER, files=files).fastest.contender == VECTOR
    there = msgspec.structs.replace(took, problem=models[0].problem, message=took.message.replace("32x", "33x"))
    (line,) = [line for line in table(replace(found, rows=(there, models[0])), None) if "linear" in line[0]]
    assert line[3] == f"searched for that shape, by the kernel of {there.time[:10]}"
    with pytest.raises(ValueError, match="no row is of"):  # it is not deterministic where it chooses by itself
        answers.answer(nearer, deterministic=True, files={Path("made/models.jsonl"): models})


def test_why_torch_wins_where_linear_took_it():
    took = msgspec.structs.replace(made("torch/linear.triton", 12.1), message=f"{BASELINE}: no kernel is known to win")
    found = answers.answer(ROUTER, files={Path("made/models.jsonl"): [made(BASELINE, 12.0), took]})
    said = "\n".join(screen(ROUTER, found, None))
    assert "Why: linear knows no kernel that wins" in said and "y = torch.mm(x, weight.T)" in said


def said_of(*rows, file="made/rows.jsonl", asked=None):
    asked = rows[0].problem.to_problem() if asked is None else asked
    return "\n".join(screen(asked, answers.answer(asked, files={Path(file): list(rows)}), None))


def test_up_to_four_that_are_as_fast_are_named():
    names = ["triton/atomic", "triton/cluster", "tilus/atomic", "tilus/cluster", "tilus/stream_k"]
    rows = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    for us, name in enumerate(names[:4], 1):
        rows.append(made(name, 8.0 + us / 1000))
    head = " ".join(said_of(*rows).split("\n\n")[0].split())
    assert re.search(rf"\. No lead over {', '.join(names[:4])} \([^()]*\)\. Recorded ", head)
    said = said_of(*rows, made(names[4], 8.01))
    told = " ".join(said.split())
    assert re.search(rf"\. No lead over {', '.join(names[:4])} and 1 more \([^()]*\)\. Recorded ", told)
    assert max(map(len, said.splitlines())) <= WIDTH


def test_a_tie_is_no_measured_equality_and_says_what_shows_the_noise(monkeypatch):
    rows = [made(BASELINE, 12.0), made("triton/atomic", 8.1), made(VECTOR, 8.0)]
    for within, between, own, told in [
        (0.01, 0.077, True, "two runs differ by up to 7.7 %"),
        (0.01, 0.077, False, "two runs elsewhere: up to 7.7 %"),
        (0.09, 0.077, True, "noise of that run 9.0 %"),
    ]:
        monkeypatch.setattr(queries, "between_runs", lambda rows, between=between: {"cold": between})
        monkeypatch.setattr(queries, "was_run_twice", lambda row, timing, own=own: own)
        said = said_of(*(msgspec.structs.replace(row, noise={"cold": within}) for row in rows))
        head, why = said.split("\n\n")[0], said.partition("Why: ")[2]
        assert re.search(rf"\nNo lead over triton/atomic \({told}\)\.\n", head)
        assert "as fast" not in said and "(measured)" not in why.partition("More: ")[0]


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"triton/atomic": 8.4}, "No lead over triton/atomic (two runs differ by up to 10.0 %)."),
        ({"triton/atomic": 9.0}, "No lead over triton/atomic (intervals overlap)."),
        (
            {"triton/atomic": 8.4, "triton/cluster": 9.0},
            "No lead over triton/atomic, triton/cluster (two runs differ by up to 10.0 %, or intervals overlap).",
        ),
    ],
)
def test_who_is_behind_by_more_than_the_noise_is_not_told_apart_by_intervals(others, told, monkeypatch):
    monkeypatch.setattr(queries, "between_runs", lambda rows: {"cold": 0.1})
    monkeypatch.setattr(queries, "was_run_twice", lambda row, timing: True)
    rows = [made(BASELINE, 12.0), made(VECTOR, 8.0), *(made(name, us) for name, us in others.items())]
    for one in rows[2:]:
        one.timing["cold"] = msgspec.structs.replace(one.timing["cold"], speedup_high=1.6)
    said = " ".join(said_of(*rows).split())
    assert f"{told} Recorded " in said
    assert ("a tie (intervals overlap)." in said) is (len(others) == 1 and "8.4" not in str(others))


def test_how_far_runs_by_another_clock_lie_apart_is_not_said_of_this_one(monkeypatch):
    monkeypatch.setattr(queries, "between_runs", lambda rows: {"graph": 0.05})
    said = said_of(made(BASELINE, 12.0), made(VECTOR, 8.0), made("triton/atomic", 8.1))
    assert "No lead over triton/atomic (two runs in another timing differ by up to 5.0 %)." in said


def test_the_baseline_heads_where_the_least_median_is_no_speed_up():
    first = made(VECTOR, 11.9)
    first.timing["cold"] = msgspec.structs.replace(first.timing["cold"], speedup=0.97, speedup_low=0.94)
    said = said_of(made(BASELINE, 12.0), first, made("triton/atomic", 12.05))
    head, _, rest = said.partition("\n")
    assert head == "torch.mm: 12.0 us. No kernel asked for is faster."
    assert re.match(rf"No lead over {VECTOR}, triton/atomic \(.*\)\.", rest)
    assert "    y = torch.mm(x, weight.T)\n" in said and "import matmul" not in said


def test_where_torch_wins_the_call_is_torchs():
    took = msgspec.structs.replace(made("torch/linear.triton", 11.99), message=f"{BASELINE}: no kernel is known to win")
    said = said_of(made(BASELINE, 12.0), took)
    assert said.startswith("torch.mm: ") and "    y = torch.mm(x, weight.T)\n" in said and "linear(" not in said


def test_where_a_reference_wins_the_call_is_of_what_is_as_fast():
    compiled = made("torch/compile.default", 11.9)
    said = said_of(made(BASELINE, 12.0), compiled, made(VECTOR, 16.0))
    told = "    # torch/compile.default has no lead over this: see notes/references.md\n"
    assert f"{told}    y = torch.mm(x, weight.T)\n" in said and "import matmul" not in said
    said = said_of(made(BASELINE, 16.0), compiled, made(VECTOR, 11.95))
    assert "# torch/compile.default has no lead over this" in said and "decompose_k import matmul" in said
    assert "    torch/compile.default: see notes/references.md\n" in said_of(
        made(BASELINE, 16.0), compiled, made(VECTOR, 16.0)
    )


def test_a_call_says_that_the_output_is_fp32_where_it_is_wider():
    wider = replace(ROUTER, out_dtype=torch.float32)
    for name in (BASELINE, VECTOR):
        calls = [line for line in call_lines(wider, made(name, 9.0, wider)) if line.startswith("    y = ")]
        assert calls and all("out_dtype=torch.float32" in call for call in calls)
    assert not any("out_dtype" in line for line in call_lines(ROUTER, made(VECTOR, 9.0)))


TORCH_WINS = [
    ("square.jsonl", Matmul(4096, 4096, 4096), {}, "the tiles of C fill every multiprocessor", "square"),
    ("rows.jsonl", Matmul(640, 896, 768), {}, "open", "references"),
    ("square-generated.jsonl", Matmul(640, 896, 768), {}, "open", "square"),
    ("crossover.jsonl", Matmul(512, 512, 8192), {}, "cuBLAS splits K as well", "crossover"),
    ("w4a16.jsonl", W4A16Matmul(64, 4096, 4096), {}, "the weight is unpacked once per 16 rows of A", "w4a16"),
    ("w4a16.jsonl", W4A16Matmul(16, 512, 512), {}, "open", "references"),
    ("router.jsonl", ROUTER, {"cublaslt/best": "algorithm id 66, split-K 4, x"}, "cuBLAS splits K too", "references"),
    ("router.jsonl", ROUTER, {"cublaslt/best": "algorithm id 66, split-K 1, x"}, "open", "references"),
]


@pytest.mark.parametrize(("file", "problem", "messages", "reason", "note"), TORCH_WINS)
def test_torchs_win_has_the_reason_that_the_notes_have(file, problem, messages, reason, note):
    baseline = OPS[problem.op].baseline
    ours = "triton/w4a16.atomic" if problem.op != Matmul.op else VECTOR
    rows = [made(baseline, 12.0, problem), made(ours, 20.0, problem)]
    rows += [msgspec.structs.replace(made(name, 12.5, problem), message=said) for name, said in messages.items()]
    said = said_of(*rows, file=f"made/{file}", asked=problem)
    why = re.search(r"^Why: (.*)\.$", said, re.MULTILINE)[1]
    assert why.startswith(reason) and (reason == "open" or why.endswith(("(inferred)", "(measured)")))
    assert f"More: notes/{note}.md" in said and "1.67x as long (measured)" in said
    if why.endswith("(inferred)"):
        assert reason in plain((queries.ROOT / "notes" / f"{note}.md").read_text())


def test_of_two_measurements_the_one_with_more_that_may_answer_is_taken():
    splits = [made(BASELINE, 12.0), *(made(f"{VECTOR}@s{split}", 8.0) for split in (1, 2, 4))]
    both = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    found = answers.answer(ROUTER, files={Path("made/splits.jsonl"): splits, Path("made/both.jsonl"): both})
    assert found.file.name == "both.jsonl"


def test_a_weight_of_four_bits_is_answered_by_its_own_rows(capsys):
    assert run_command(command.main, ["16x8192x8192", "--op", "w4a16"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert re.match(r"(triton|tilus)/w4a16\.\w+: [\d.]+ us, [\d.]+x torch.mm on the dequantized weight\.", said)
    assert "w4a16 import lay_out, matmul\n    laid_out = lay_out(weight)  # once" in said
    assert "y = matmul(x, laid_out" in said and max(map(len, said.splitlines())) <= 100


def test_every_call_of_a_weight_of_four_bits_is_narrow():
    problem = W4A16Matmul(16, 8192, 8192)
    for name in (kernel.full_name for kernel in contenders.all_contenders() if kernel.op == problem.op):
        assert max(map(len, call_lines(problem, made(name, 9.0, problem)))) <= 100


def test_every_protocol_has_its_reason():
    assert set(REASONS) == {protocol.value for protocol in Protocol} - {"library", "unknown"}


def test_a_kernels_name_tells_its_protocol():
    kernels = [each for each in contenders.all_contenders() if each.op == Matmul.op and each.language in LANGUAGES]
    assert len(kernels) > 20
    for each in kernels:
        assert protocol_of(each.full_name.partition("/")[2]) == each.protocol.value, each.full_name


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((16, 256, 7168), "Its M is 2x yours."),
        ((48, 256, 7168), "Your M is 1.5x its M."),
        ((24, 256, 7170), "Its M is 1.33x yours. Its K is 2 less than yours."),
        ((32, 250, 716800), "Its N is 6 more than yours. Your K is 100x its K."),
        ((32, 256, 7168), ""),
    ],
)
def test_how_far_the_recorded_shape_is_is_told_size_by_size(asked, told):
    yours, there = (dict(zip("mnk", sizes, strict=True)) for sizes in (asked, (32, 256, 7168)))
    assert how_far(yours, there) == told


def test_the_documented_example_has_a_cause_a_note_and_its_distance(capsys):
    assert "answer.py 32x160x5120 " in command.__doc__
    assert run_command(command.main, ["32x160x5120"]) == ExitCode.OK
    said = capsys.readouterr().out
    kernel = re.match(r"(?:triton|tilus)/(\S+) by linear: ", said)[1]
    assert f"Why: {kernel}: {REASONS[protocol_of(kernel)]} (inferred)." in said
    assert "Its M is 2x yours.\n" in said
    note = re.search(r"More: (notes/\S+)", said)[1]
    assert note == f"notes/{kernel.partition('.')[0]}.md" and (queries.ROOT / note).exists()


def kernel(contender: str, us: float, protocol: str, launches: int, problem=ROUTER):
    told = {"protocol": protocol, "launches": launches, "config_source": "stale"}
    return msgspec.structs.replace(made(contender, us, problem), **told)


def test_why_names_the_next_protocol_and_how_sure_each_cause_is():
    lead = kernel("tilus/cluster", 6.0, "cluster", 1)
    twin, other = kernel("triton/cluster", 6.6, "cluster", 1), kernel("triton/atomic", 7.2, "atomic", 2)
    found = answers.answer(ROUTER, files={Path("made/rows.jsonl"): [made(BASELINE, 12.0), lead, twin, other]})
    why, after, same, *_ = why_lines(found)
    assert why == "Why: cluster: 1 launch; partial sums meet in DSMEM, not in L2 (inferred)."
    assert after.strip() == "Next, triton/atomic: 2 launches; 1.20x as long (measured)."
    assert same.strip() == "Same in triton (cluster): 1.10x as long (measured); see the note for the reason."
    near = [made(BASELINE, 12.0), lead, kernel("triton/atomic", 6.05, "atomic", 1)]
    after = list(why_lines(answers.answer(ROUTER, files={Path("made/rows.jsonl"): near})))[1]
    assert re.search(r"1 launch; a tie \(two runs differ by up to \d\.\d %\)\.$", after)


@pytest.mark.parametrize(("m", "n", "tiles"), [(16, 256, "4 tiles"), (17, 250, "8 tiles"), (16, 64, "1 tile")])
def test_why_counts_the_tiles_of_what_does_not_split(m, n, tiles):
    problem = replace(ROUTER, m=m, n=n)
    unsplit = kernel("triton/data_parallel", 9.0, "data_parallel", 1, problem)
    unsplit.config = {"block_m": 16, "block_n": 64, "block_k": 64, "split_k": 1, "num_warps": 4, "num_stages": 3}
    rows = [made(BASELINE, 12.0, problem), kernel("triton/atomic", 6.0, "atomic", 1, problem), unsplit]
    said = list(why_lines(answers.answer(problem, files={Path("made/rows.jsonl"): rows})))
    assert f"     Without split-K: 9.0 us, triton/data_parallel, {tiles} of C on 132 SMs." in said


def test_whose_bits_stay_the_same_is_told_where_those_of_the_fastest_may_not():
    atomic = msgspec.structs.replace(made("triton/atomic", 7.0), deterministic=False)
    rows = [made(BASELINE, 12.0), atomic, made("cublaslt/best", 7.5), made(VECTOR, 8.0), made("tilus/cluster", 9.0)]
    told = "Bits of triton/atomic may differ from run to run; those of triton/decompose_k.vector, 8.0 us, do not."
    assert told in " ".join(said_of(*rows).split())
    assert "Bits" not in said_of(*rows[:1], *rows[2:]) and "Bits" not in said_of(*rows[:3])


def test_every_line_of_the_table_has_its_times_cublas():
    rows = [made(BASELINE, 12.0), kernel(VECTOR, 8.0, "parallel", 2), made("published_triton/decompose_k.first", 30.0)]
    found = answers.answer(ROUTER, files={Path("made/rows.jsonl"): rows})
    cells = {label: (us, times, config) for label, us, times, config in table(found, None)}
    assert cells["cuBLAS: torch/mm"] == ("12.0", "1.00", "")
    floor = rows[0].floor["cold"].read_us
    assert cells["floor, reads the least bytes"] == (f"{floor:.1f}", f"{12.0 / floor:.2f}", "")
    assert cells[f"best triton: {VECTOR}"][2] == "searched before the kernel changed"
    took = SearchRecord(tried=4, space=238, out_of_time=True, us=7.5, seconds=30.0, build_seconds=144.0)
    lead = msgspec.structs.replace(rows[1], config_source="tuned", search=took)
    cut_off = answers.answer(ROUTER, files={Path("made/rows.jsonl"): [rows[0], lead]})
    told = {label: config for label, *_, config in table(cut_off, None)}
    assert told[f"best triton: {VECTOR}"] == "searched for that shape; tried 4 of 238 configs, out of time"
    old = msgspec.structs.replace(lead, search=None, time="2026-11-22T10:00:00+00:00")
    before = answers.answer(ROUTER, files={Path("made/rows.jsonl"): [rows[0], old]})
    told = {label: config for label, *_, config in table(before, None)}
    assert told[f"best triton: {VECTOR}"] == "searched for that shape, by the kernel of 2026-11-22"
    assert all(times for _, times, _ in cells.values())
    assert max(map(len, table_lines(found, None))) <= 100


def test_what_torch_offers_stands_beside_the_answer_wherever_it_was_timed():
    compiled, other = "torch/compile.max_autotune_no_cudagraphs", "torch/compile.max_autotune"
    here = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    there = [made(BASELINE, 12.0), made(compiled, 16.0), made("torch/compile.default", 10.0)]
    away = [made(BASELINE, 12.0), made(other, 11.0), made("torch/custom_op.fused", 9.0)]
    for each in away:
        each.environment = msgspec.structs.replace(each.environment, device="NVIDIA H100")
    files = {Path("h200/here.jsonl"): here, Path("h200/there.jsonl"): there, Path("h100/away.jsonl"): away}
    found = answers.answer(ROUTER, device="h200", files=files)
    assert dict(beside(found, None)) == {
        f"In another run, {there[0].time[:10]} (x its own cuBLAS):": [
            ("best reference: torch/compile.default", "1.20 (1.19-1.21)"),
            (compiled, "0.75 (0.74-0.76)"),  # the device's own goes before a faster one
        ],
        "On NVIDIA H100 (x its own cuBLAS):": [("torch/custom_op.fused", "1.33 (1.32-1.35)")],
    }
    of_triton = answers.answer(ROUTER, languages=("triton",), device="h200", files=files)
    assert beside(of_triton, "triton") == []


def test_references_that_do_not_claim_determinism_and_gave_equal_bits_stand_beside_the_answer():
    def unclaimed(name, us, equal=True):
        return msgspec.structs.replace(made(name, us), deterministic=False, bitwise_equal=equal)

    here = [made(BASELINE, 12.0), made(VECTOR, 8.0), unclaimed("cublaslt/best", 6.0), unclaimed("torch/bmm", 7.0)]
    here.append(unclaimed("tlx/decompose_k", 5.0, equal=False))
    here.append(unclaimed("triton/atomic", 5.0))  # adds in any order, whatever its bits were
    there = [made(BASELINE, 12.0), unclaimed("torch/custom_op.fused", 10.0)]
    there = [msgspec.structs.replace(one, noise={"cold": 0.01}) for one in there]  # of another run
    files = {Path("made/here.jsonl"): here, Path("made/there.jsonl"): there}
    found = answers.answer(ROUTER, deterministic=True, files=files)
    assert found.fastest.contender == VECTOR and found.best_reference is None
    said = "determinism not claimed; equal bits seen"
    elsewhere = f"In another run, {there[0].time[:10]} (x its own cuBLAS):"
    assert dict(beside(found, None)) == {
        "In this run (x its own cuBLAS):": [(f"cublaslt/best: {said}", "2.00 (1.98-2.02)")],
        elsewhere: [(f"torch/custom_op.fused: {said}", "1.20 (1.19-1.21)")],
    }
    assert beside(found, "triton") == []
    assert answers.answer(ROUTER, files=files).unclaimed == ()


def test_nothing_that_the_answer_is_ranked_with_is_faster_than_it():
    here = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    faster = [made(BASELINE, 12.0), made("torch/compile.default", 6.0)]
    found = answers.answer(ROUTER, files={Path("made/here.jsonl"): here, Path("made/faster.jsonl"): faster})
    assert next(label for label, *_ in table(found, None)) == f"best triton: {VECTOR}"
    assert [label for _, lines in beside(found, None) for label, _ in lines] == [
        "best reference: torch/compile.default"
    ]


def test_the_first_of_those_ranked_is_the_one_named_though_another_has_the_larger_ratio():
    close = made("triton/atomic", 8.01)
    close.timing["cold"] = msgspec.structs.replace(close.timing["cold"], speedup=1.6)
    found = answers.answer(
        ROUTER, files={Path("made/rows.jsonl"): [made(BASELINE, 12.0), close, made("tilus/atomic", 8.0)]}
    )
    assert table(found, None)[0][0] == f"best tilus: {found.fastest.contender}" == "best tilus: tilus/atomic"


def test_a_language_that_was_not_timed_with_this_clock_is_named():
    captured = [made(BASELINE, 12.0, timings=("graph",)), made(VECTOR, 8.0, timings=("graph",))]
    plain = [made(BASELINE, 12.0), made(VECTOR, 8.0), made(FP32, 7.0)]
    files = {Path("made/captured.jsonl"): captured, Path("made/plain.jsonl"): plain}
    said = "tilus: not timed with this clock"
    found = answers.answer(ROUTER, "graph", files=files)
    assert said in list(table_lines(found, None)) and said not in list(table_lines(found, "triton"))
    assert said not in list(table_lines(answers.answer(ROUTER, files=files), None))
    assert answers.answer(ROUTER, "graph", files={Path("made/captured.jsonl"): captured}).untimed == ()


def test_rows_at_these_sizes_of_another_kind_are_named_by_their_flags():
    kn = Matmul(64, 64, 16384, layout=Layout.KN)
    kinds = [kn, replace(kn, epilogue=Epilogue.RELU), replace(kn, dtype=torch.float16)]
    files = {Path("made/rows.jsonl"): [made(name, 9.0, of) for of in (*kinds, ROUTER) for name in (BASELINE, VECTOR)]}
    asked = replace(kn, layout=Layout.NK)
    library = replace(kn, epilogue=Epilogue.BIAS)  # of which no kernel was timed
    files[Path("made/others.jsonl")] = [made(name, 9.0, library) for name in (BASELINE, "torch/compile.default")]
    found = answers.answer(asked, files=files)
    assert found.other_flags == ("--layout kn", "--layout kn --epilogue relu")
    assert next(screen(asked, found, None)) == "Recorded at this shape with --layout kn, --layout kn --epilogue relu."
    with pytest.raises(ValueError, match=r"\. Recorded at this shape with --layout kn, --layout kn --epilogue relu\.$"):
        answers.answer(replace(asked, epilogue=Epilogue.RELU), files=files)
    assert answers.answer(kn, files=files).other_flags == ()


@pytest.mark.parametrize(("m", "told"), [(4, None), (17, (2, 1)), (32, (2, 1)), (60, (4, 1))])
def test_rows_that_take_more_unpacking_of_a_weight_are_told(m, told):
    there = W4A16Matmul(16, 4096, 4096)
    names = (OPS[there.op].baseline, "tilus/w4a16.atomic")
    files = {Path("made/rows.jsonl"): [made(name, us, there) for name, us in zip(names, (12.0, 6.0), strict=True)]}
    asked = replace(there, m=m)
    said = " ".join(" ".join(screen(asked, answers.answer(asked, files=files), None)).split())
    found = re.search(r"once per 16 rows of A: (\d+)x at your M, (\d+)x at the recorded M ", said)
    assert (tuple(map(int, found.groups())) if found else None) == told


def test_other_clocks_that_the_very_problem_was_timed_with_are_named():
    def both(problem, clock):
        return [made(name, us, problem, timings=(clock,)) for name, us in ((BASELINE, 12.0), (VECTOR, 8.0))]

    near = replace(ROUTER, m=16)
    files = {Path("made/captured.jsonl"): both(near, "graph"), Path("made/cold.jsonl"): both(ROUTER, "cold")}
    found = answers.answer(ROUTER, "graph", files=files)
    assert found.other_clocks == ("--clock cold",)
    assert "Recorded at this shape with --clock cold." in list(screen(ROUTER, found, None))
    assert answers.answer(near, "graph", files=files).other_clocks == ()
    with pytest.raises(ValueError, match=r"--clock warm; .*\. Recorded at this shape with --clock cold\.$"):
        answers.answer(ROUTER, "warm", files=files)
    kn, relu = (replace(ROUTER, layout=Layout.KN, epilogue=end) for end in (Epilogue.NONE, Epilogue.RELU))
    of_kn = {Path("made/rows.jsonl"): [*both(kn, "cold"), *both(relu, "graph")]}
    taken, instead = answers.answered(kn, "graph", files=of_kn)
    assert taken.fields["epilogue"] == "relu" and instead.other_clocks == ("--clock cold",)


def test_the_very_sizes_with_other_flags_answer_where_nothing_near_was_recorded():
    kn = Matmul(64, 64, 16384, layout=Layout.KN)
    relu, single = replace(kn, epilogue=Epilogue.RELU), replace(kn, dtype=torch.float32, out_dtype=torch.float32)
    files = {Path("made/rows.jsonl"): [made(name, 9.0, of) for of in (relu, ROUTER) for name in (BASELINE, VECTOR)]}
    asked = replace(kn, layout=Layout.NK)
    assert answers.answer(asked, files=files).fastest.problem.name == ROUTER.name
    taken, found = answers.answered(asked, files=files)
    said = " ".join(" ".join(screen(taken, found, None, asked)).split())
    assert found.apart == 0 and found.fastest.problem.name == relu.name
    assert said.startswith("No shape near yours is recorded with --layout nk. Yours is recorded with --layout kn ")
    assert "--epilogue relu, and this is its answer." in said and NOT_NEAR not in said
    assert "Recorded at exactly this shape, cold L2." in said and "y = torch.mm(x, weight) Rows: " in said
    files[Path("made/plain.jsonl")] = [made(name, 9.0, kn) for name in (BASELINE, VECTOR)]
    assert answers.answered(asked, files=files)[1].fastest.problem.name == kn.name  # differs by the layout alone
    for layout in Layout:
        silu = replace(asked, layout=layout, epilogue=Epilogue.SILU)  # of which there is no row of any sizes
        taken, found = answers.answered(silu, files=files)
        assert found.fastest.problem.name == relu.name  # fused as well, so that cuBLAS takes a second launch
        said = "\n".join(screen(taken, found, None, silu))
        assert "The call is for that layout, with your epilogue." in " ".join(said.split())
        assert "    y = torch.nn.functional.silu(torch.mm(x, weight))\n" in said and "then relu in torch" in said
    files[Path("made/near.jsonl")] = [made(name, 9.0, replace(asked, m=32)) for name in (BASELINE, VECTOR)]
    assert answers.answered(asked, files=files)[0] is asked
    with pytest.raises(ValueError, match="no row is of"):  # another precision is no answer
        answers.answered(single, files=files)
    with pytest.raises(ValueError, match="no row is of"):
        answers.answered(replace(asked, n=8, epilogue=Epilogue.SILU), files=files)


def test_near_sizes_with_other_flags_answer_where_nothing_near_was_recorded_with_those_asked_for():
    kinds = [ROUTER, Matmul(32, 512, 7168, layout=Layout.KN), Matmul(64, 256, 7168, layout=Layout.KN)]
    files = {Path("made/rows.jsonl"): [made(name, 9.0, of) for of in kinds for name in (BASELINE, VECTOR)]}
    asked = replace(ROUTER, m=64, epilogue=Epilogue.RELU)
    taken, found = answers.answered(asked, files=files)
    assert found.fastest.problem.name == kinds[2].name and found.apart == 0  # the very sizes go before near ones
    asked = replace(ROUTER, m=31, epilogue=Epilogue.RELU)
    taken, found = answers.answered(asked, files=files)
    assert found.fastest.problem.name == ROUTER.name and 0 < found.apart < answers.FAR
    said = " ".join(" ".join(screen(taken, found, None, asked)).split())
    assert said.startswith("No shape near yours is recorded with --layout nk --epilogue relu. One near it is ")
    assert "near it is recorded with --layout nk, and this is its answer." in said and NOT_NEAR not in said
    assert "Recorded at 32x256x7168 (you asked 31x256x7168), cold L2. Its M is 1 more than yours." in said
    assert "torch.relu(" in said
    with pytest.raises(ValueError, match="no row is of"):
        answers.answered(replace(asked, m=4), files=files)


def test_the_shape_without_flags_is_answered_by_the_rows_that_it_has(capsys):
    assert run_command(command.main, ["64x64x16384"]) == ExitCode.OK
    said = capsys.readouterr().out
    assert said.startswith("No shape near yours is recorded with --layout nk. Yours is recorded with --layout kn,")
    assert "64x64x16384-bf16-kn, " in said and "matmul(x, weight" in said
    assert run_command(command.main, ["64x64x16384", "--layout", "kn"]) == ExitCode.OK
    same = capsys.readouterr().out
    assert same.splitlines()[0] in said and same[same.index("contender ") :] in said


def test_flags_of_what_was_recorded_undo_those_that_were_given():
    half = Matmul(64, 512, 1024, torch.bfloat16, layout=Layout.KN)
    packed = W4A16Matmul(64, 512, 1024)
    rows = [made(name, 9.0, of) for of in (half, packed, ROUTER) for name in (OPS[of.op].baseline, VECTOR)]
    recorded = answers.products_by_shape({Path("made/rows.jsonl"): rows})
    single = replace(half, dtype=torch.float32, out_dtype=torch.float32)
    assert answers.other_flags(single, recorded) == ("--layout kn --dtype bf16", "--op w4a16 --dtype fp16")
    assert answers.other_flags(packed, recorded) == ("--op matmul --layout kn",)
    assert answers.other_flags(replace(half, layout=Layout.NK), recorded) == ("--layout kn", "--op w4a16")


def test_the_screen_is_narrow_and_its_call_is_the_kernels(capsys):
    for shape in ("1x256x7168", "16x256x7168", "32x250x7000", "1024x256x7168"):
        assert run_command(command.main, [shape]) == ExitCode.OK
        said = capsys.readouterr().out
        assert max(map(len, said.splitlines())) <= 100
        module, variant = re.search(
            r"from triton_vs_tilus.kernels_(\S+) import matmul\n.*?(?:variant=\"(\w+)\")?\)", said
        ).groups()
        name = module.replace(".", "/") + (f".{variant}" if variant else "")
        assert said.startswith(f"{name}: ") and contenders.find(name).full_name == name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["3x0x4"], "shape is '3x0x4'; accepted: MxNxK"),
        (["16x16x64", "--dtype", "fp32", "--clock", "graph"], "no row is of"),
        (["16x16x64", "--measure"], "there is no CUDA device"),
        (["16x16x64", "--device", "b200"], "device is b200; accepted: "),
        (["16x8192x8200", "--op", "w4a16"], "K is 8200; accepted with --op w4a16: multiples of 128"),
        (["16x512x512", "--op", "w4a16", "--dtype", "fp32"], "no row is of --op w4a16 --dtype fp32 --clock cold;"),
        (["16x8196x8192", "--op", "w4a16"], "N is 8196; accepted with --op w4a16: multiples of 8"),
        (["16x512x512", "--op", "w4a16", "--layout", "kn"], "--layout is kn; accepted: none with --op w4a16"),
        (["16x256x7168-bf16-nk", "--layout", "kn"], "--layout is kn; accepted: none with a problem's name"),
        (["-1x2x3"], "shape is '-1x2x3'; accepted: MxNxK"),
        ([f"16x256x1{'0' * 400}"], "K is 1000000000... of 401 digits; accepted: at most 10 digits"),
        (["--op", "w4a15", "16x512x512"], "--op is w4a15; accepted: matmul, w4a16"),
        (["16x256x7168-bf18"], "problem is '16x256x7168-bf18', its dtype 'bf18'; accepted: bf16, fp16, fp32"),
        (["16x256x7168-bf16"], "problem is '16x256x7168-bf16', without a layout; accepted: kn, nk"),
        (["16x256x7168-bf16-nk-rel"], "problem is '16x256x7168-bf16-nk-rel', its end 'rel'; accepted: none, relu, "),
        (["w4a16-16x512x512-fp16-g65"], "'w4a16-16x512x512-fp16-g65', its group 'g65'; accepted: g32, g64, g128"),
        (["w4a16-16x512x500-fp16-g32"], "'w4a16-16x512x500-fp16-g32'; accepted: K a multiple of 32, N of 8"),
        (["router-bf16-nk"], "problem is 'router-bf16-nk'; accepted: a name as rows have it"),
        (["or-256x512x16-int64"], "problem is or-256x512x16-int64, of or_reduce; accepted: a product"),
    ],
)
def test_what_cannot_be_answered_is_told(words, told, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run_command(command.main, words) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert told in " ".join(lines) and max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("32x256x7168-bf16-nk", ["32x256x7168"]),
        ("64x64x16384-bf16-kn-relu", ["64x64x16384", "--layout", "kn", "--epilogue", "relu"]),
        ("w4a16-16x8192x8192-fp16-g128", ["16x8192x8192", "--op", "w4a16"]),
    ],
)
def test_a_name_that_tables_have_is_answered_like_its_sizes(name, words, capsys):
    assert run_command(command.main, [name]) == ExitCode.OK
    said = capsys.readouterr().out
    assert run_command(command.main, words) == ExitCode.OK
    assert said == capsys.readouterr().out


def test_of_equally_near_rows_those_of_the_same_dtype_answer_and_another_is_named():
    halves = {dtype: Matmul(64, 64, 8192, dtype) for dtype in (torch.float16, torch.bfloat16)}
    rows = {dtype: [made(BASELINE, 12.0, problem), made(VECTOR, 8.0, problem)] for dtype, problem in halves.items()}
    rows[torch.float16].append(made("triton/atomic", 7.0, halves[torch.float16]))  # more contenders, and later files
    files = {Path(f"made/{short_dtype(dtype)}.jsonl"): found for dtype, found in rows.items()}
    asked = halves[torch.bfloat16]
    assert answers.answer(asked, files=files).file.name == "bf16.jsonl"
    files.pop(Path("made/bf16.jsonl"))
    said = "\n".join(screen(asked, answers.answer(asked, files=files), None))
    assert "Recorded at exactly this shape in fp16, cold L2." in said


def test_of_two_measurements_the_one_with_more_searched_configs_answers():
    searched = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    of_another_shape = msgspec.structs.replace(made(VECTOR, 8.0), config_source="nearest")
    borrowed = [made(BASELINE, 12.0), of_another_shape, made("torch/bmm", 20.0)]
    files = {Path("made/borrowed.jsonl"): borrowed, Path("made/searched.jsonl"): searched}
    assert answers.answer(ROUTER, files=files).file.name == "searched.jsonl"
    borrowed.append(made("triton/atomic", 9.0))  # more kernels
    assert answers.answer(ROUTER, files=files).file.name == "borrowed.jsonl"


def test_of_two_measurements_the_one_of_the_present_clock_answers_if_it_is_asked_by_it():
    present = [made(BASELINE, 12.0), made(VECTOR, 8.0)]
    former = [by_former_clock(of) for of in (made(BASELINE, 12.0), made(VECTOR, 9.0), made("triton/atomic", 10.0))]
    files = {Path("made/former.jsonl"): former, Path("made/present.jsonl"): present}
    assert answers.answer(ROUTER, files=files).file.name == "present.jsonl"
    assert answers.files_by_problem(files)[ROUTER.name].name == "present.jsonl"
    assert answers.answer(ROUTER, files=files, timing="warm").file.name == "former.jsonl"  # warm both clocks are alike


def test_of_two_measurements_alike_the_one_of_more_rounds_answers_and_is_chosen_by():
    many, few = ([made(BASELINE, 12.0), made(VECTOR, us), made("triton/atomic", 9.0)] for us in (8.0, 7.0))
    for one in few:
        one.timing.update({name: msgspec.structs.replace(of, rounds=of.rounds // 2) for name, of in one.timing.items()})
    few[1] = msgspec.structs.replace(few[1], time="2099" + few[1].time[4:])
    files = {Path("made/many.jsonl"): many, Path("made/few.jsonl"): few}
    assert answers.answer(ROUTER, files=files).file.name == "many.jsonl"
    (entry,) = measured(files)
    assert entry["rows"] == "many"


def test_far_from_all_rows_no_call_is_given():
    files = {Path("made/rows.jsonl"): [made(BASELINE, 12.0), made(VECTOR, 8.0)]}
    for times, near in ((2, True), (4, False), (64, False)):
        problem = replace(ROUTER, m=times * ROUTER.m)
        said = "\n".join(screen(problem, answers.answer(problem, files=files), None))
        assert ("import matmul" in said) is near and said.startswith(NOT_NEAR) is not near


def test_next_to_rows_that_are_copied_by_other_bytes_no_call_is_given():
    files = {Path("made/rows.jsonl"): [made(BASELINE, 12.0), made(VECTOR, 8.0)]}
    for deeper, copied in ((1, 2), (4, 8), (8, 16)):
        problem = replace(ROUTER, k=ROUTER.k + deeper)
        said = "\n".join(screen(problem, answers.answer(problem, files=files), None))
        assert said.startswith(NOT_NEAR) is (copied < 16)
        assert (f"Your rows are copied {copied} bytes at a time, the recorded ones 16" in said) is (copied < 16)


def test_of_two_problems_the_one_that_is_copied_by_as_many_bytes_answers():
    odd = replace(ROUTER, m=4 * ROUTER.m, k=ROUTER.k + 7)
    files = {
        Path("made/rows.jsonl"): [
            row for of in (ROUTER, odd) for row in (made(BASELINE, 12.0, of), made(VECTOR, 8.0, of))
        ]
    }
    asked = replace(ROUTER, k=ROUTER.k + 1)
    found = answers.answer(asked, files=files)
    assert found.fastest.problem.name == odd.name
    reason = "Rows are copied 2 bytes at a time there, as yours (notes/cliffs.md)."
    assert reason in screen(asked, found, None)
    even = replace(ROUTER, m=2 * ROUTER.m)
    assert not any("copied" in line for line in screen(even, answers.answer(even, files=files), None))


@pytest.mark.parametrize("words", [["24x160x5120"], ["16x8192x8192", "--op", "w4a16"], ["64x64x16384-bf16-kn-relu"]])
def test_an_answer_does_not_wait_for_torch(words):
    """Whose import takes longer than the rest."""
    script = f"import sys; sys.argv = {['answer.py', *words]}; from triton_vs_tilus.bench import answer\n"
    script += "assert answer.main() == 0; assert not {'torch', 'pandas'} & sys.modules.keys()"
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


def test_what_is_said_without_torch_is_what_common_says():
    assert MULTIPROCESSORS == space.MULTIPROCESSORS and ROW_LANGUAGES == LANGUAGES
    assert {"n": PACKED, "k": W4A16Matmul(16, 512, 512).group_size} == answers.MULTIPLES
    for epilogue in Epilogue:
        assert steps(epilogue.value) == (epilogue.has_bias, epilogue.activation)
    for op in OPS.values():
        assert {field.name for field in fields(op.problem)} == {"m", "n", "k", "dtype", *op.fields}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["3x16x64"], Matmul(3, 16, 64, layout=Layout.NK)),
        (
            ["3x16x64", "--dtype", "fp16", "--layout", "kn", "--epilogue", "bias_relu"],
            Matmul(3, 16, 64, torch.float16, epilogue=Epilogue.BIAS_RELU),
        ),
        (["3x16x128", "--op", "w4a16"], W4A16Matmul(3, 16, 128)),
        (["3x16x128", "--op", "w4a16", "--dtype", "bf16"], W4A16Matmul(3, 16, 128, torch.bfloat16)),
        (["w4a16-2x512x512-fp16-g128"], W4A16Matmul(2, 512, 512)),
    ],
)
def test_a_question_has_the_fields_of_its_problem(words, problem):
    asked = command.problem_of(command.parser().parse_args(words), {})
    assert asked.op == problem.op and dict(asked.fields) == problem.fields


def test_what_the_answer_names_is_timed_by_compare(monkeypatch, capsys):
    ran = []

    def run(words, *, check):
        ran.append(words[2:])
        return SimpleNamespace(returncode=7)

    monkeypatch.setattr(command, "has_gpu", lambda: True)
    monkeypatch.setattr(command.subprocess, "run", run)
    asked = ["16x256x7168-bf16-nk", "--clock", "graph", "--measure"]
    assert run_command(command.main, asked) == 7  # as compare.py exits
    said = capsys.readouterr().out
    (words,) = ran
    args = compare.parser().parse_args(words)
    ((_, problem),) = cli.chosen_problems(args)
    assert problem.name == "16x256x7168-bf16-nk" and args.timing == "graph"
    assert 1 <= len(args.only) <= 3 and said.partition(": ")[0] in args.only
    assert {name.partition("/")[0] for name in args.only} >= {"triton", "tilus"}
    assert {kernel.full_name for kernel in cli.chosen_contenders(args, {problem.op})} >= set(args.only)
