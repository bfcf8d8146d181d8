"""Lists of problems: named ones, a user's own, and problems by their sizes."""

import json
import os

import pytest
import torch

from triton_vs_tilus.bench import workloads
from triton_vs_tilus.bench.models import ROUTERS
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout
from triton_vs_tilus.common.w4a16 import W4A16Matmul

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def test_the_router_at_all_its_tokens():
    chosen = workloads.problems("router")
    assert [problem.m for _, problem in chosen] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024]
    assert {(name, problem.n, problem.k, problem.dtype, problem.layout) for name, problem in chosen} == {
        ("router", 256, 7168, BF16, Layout.NK)
    }


@pytest.mark.parametrize(
    ("suite", "dtype", "epilogue"),
    [
        ("skinny-epilogue-bf16", BF16, Epilogue.RELU),
        ("skinny-matmul-bf16", BF16, Epilogue.NONE),
        ("skinny-matmul-fp16", FP16, Epilogue.NONE),
        ("skinny-matmul-fp32", FP32, Epilogue.NONE),
    ],
)
def test_a_skinny_suite_is_the_studys(suite, dtype, epilogue):
    chosen = [problem for _, problem in workloads.problems(suite)]
    assert len(chosen) == 28
    assert {(problem.m, problem.n) for problem in chosen} == {(size, size) for size in (16, 32, 48, 64)}
    assert {problem.k for problem in chosen} == {8192, 12288, 16384, 20480, 24576, 28672, 32768}
    assert {(problem.dtype, problem.epilogue, problem.layout) for problem in chosen} == {(dtype, epilogue, Layout.KN)}


def test_skinny_is_all_four_suites_and_square_both():
    assert len(workloads.problems("skinny")) == 4 * 28
    assert {name for name, _ in workloads.problems("square")} == {"square-tutorial", "square-generated"}
    tutorial = [problem for _, problem in workloads.problems("square-tutorial")]
    assert [(of.m, of.n, of.k, of.dtype) for of in tutorial] == [(4096, 4096, k, FP16) for k in (4096, 14336)]


def test_the_generated_sweep_is_the_studys():
    """It gives (M, K, N), from (256, 384, 512) to (4096, 4224, 4352), in steps of 128, without (1920, 2048, 2176)."""
    chosen = [(of.m, of.k, of.n) for _, of in workloads.problems("square-generated")]
    assert len(chosen) == 30
    assert (chosen[0], chosen[-1]) == ((256, 384, 512), (4096, 4224, 4352))
    assert (1792, 1920, 2048) in chosen and (1920, 2048, 2176) not in chosen


def test_the_crossover_goes_along_both_axes_and_has_each_problem_once():
    chosen = [(of.m, of.n, of.k) for _, of in workloads.problems("crossover")]
    assert len(set(chosen)) == len(chosen) == 19
    assert {(16, 16, 8192), (1024, 1024, 8192), (64, 64, 8192), (64, 64, 256), (64, 64, 32768)} <= set(chosen)


def test_each_cliff_stands_beside_what_it_is_measured_against():
    """K = 7232, 7176 and 7175 beside 7168, of few and of many tokens; and the routers of 384 tokens."""
    chosen = workloads.problems("cliffs")
    assert {(name, of.dtype, of.layout, of.epilogue) for name, of in chosen} == {
        ("cliffs", BF16, Layout.NK, Epilogue.NONE)
    }
    names = [of.name for _, of in chosen]
    assert len(set(names)) == len(names) == 14
    depths = {f"{tokens}x256x{k}-bf16-nk" for tokens in (16, 256) for k in (7168, 7175, 7176, 7232)}
    assert depths | {f"384x{n}x{k}-bf16-nk" for n in (128, 256, 512) for k in (2048, 7168)} == set(names)


def test_the_squares_of_w4a16_are_the_papers():
    """Its tables: M = 1 and 16, N = K = 512 to 16384, groups of 128, asymmetric; and again in bf16."""
    squares = [(m, size, size) for m in (1, 16) for size in (512, 1024, 2048, 4096, 8192, 16384)]
    for suite, dtype in (("w4a16-square", FP16), ("w4a16-bf16", BF16)):
        chosen = [problem for _, problem in workloads.problems(suite)]
        assert chosen == [W4A16Matmul(*square, dtype, 128, symmetric=False) for square in squares]


def test_w4a16_has_every_number_of_rows_at_every_square_and_the_llama_projections():
    chosen = [problem for _, problem in workloads.problems("w4a16")]
    assert len(set(chosen)) == len(chosen)
    rows = (1, 2, 4, 8, 16, 32, 64, 128)
    assert {W4A16Matmul(m, 1 << i, 1 << i) for m in rows for i in range(9, 15)} <= set(chosen)
    llama = ((4096, 11008), (11008, 4096), (8192, 28672), (28672, 8192))
    assert {W4A16Matmul(m, n, k) for m in (1, 16) for n, k in llama} <= set(chosen)
    assert {problem.group_size for problem in chosen} == {32, 64, 128}
    assert {problem.symmetric for problem in chosen} == {False, True}


def test_what_is_asked_for_is_in_the_problem():
    ((_, problem),) = workloads.problems(
        "router", tokens=[3], layout="kn", dtype="fp16", out_dtype="fp32", epilogue="relu"
    )
    assert (problem.m, problem.layout, problem.epilogue) == (3, Layout.KN, Epilogue.RELU)
    assert (problem.dtype, problem.out_dtype) == (FP16, FP32)
    assert {problem.layout for _, problem in workloads.problems("skinny-matmul-bf16", layout="nk")} == {Layout.NK}


def test_of_several_suites_those_that_agree_are_taken():
    assert {name for name, _ in workloads.problems("skinny", dtype="fp16")} == {"skinny-matmul-fp16"}
    assert {name for name, _ in workloads.problems("skinny", epilogue="relu")} == {"skinny-epilogue-bf16"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"workload": "rooter"}, r"'rooter'; accepted: a FILE\.json, or names .* lists, the nearest: router"),
        (
            {"workload": "skinny-matmul-fp16", "dtype": "bf16"},
            r"--dtype is bf16; accepted with .*: what its problems have, skinny-matmul-fp16 \(fp16, none\)",
        ),
        ({"workload": "skinny", "epilogue": "silu"}, "--epilogue is silu; accepted with --workload skinny: what its "),
        (
            {"workload": "skinny", "tokens": [1]},
            "tokens are asked for; of the workloads router, models have some, skinny has not",
        ),
        ({"workload": "router", "out_dtype": "fp16"}, "out_dtype is fp16; accepted: that of the inputs, bf16, or fp32"),
    ],
)
def test_what_a_workload_does_not_have_is_told(asked, told):
    with pytest.raises(ValueError, match=told):
        workloads.problems(**asked)


def test_shapes_come_after_the_workload_and_each_problem_once():
    chosen = workloads.problems("router", [(1, 256, 7168), (5, 6, 7), (5, 6, 7)], tokens=[1, 2])
    assert [(name, problem.m) for name, problem in chosen] == [("router", 1), ("router", 2), ("shape", 5)]


def test_a_problem_is_found_by_the_name_that_its_rows_have():
    recorded = {row.problem.name for rows in queries.recorded().values() for row in rows}
    found = {problem.name for _, problem in workloads.problems(None, names=sorted(recorded))}
    assert found == recorded
    assert {"1x256x7168-bf16-nk", "1x256x7168-bf16-kn", "1x256x7168-bf16-nk-fp32out"} <= recorded


@pytest.mark.parametrize("name", ["7x9x11-fp32-nk-bias_relu", "7x9x11-bf16-nk-fp32out", "7x9x11-fp16-kn-relu-fp32out"])
def test_a_name_says_a_product_that_no_workload_has(name):
    workload, problem = workloads.named(name)
    assert (workload, problem.name) == (workloads.SHAPE, name)


@pytest.mark.parametrize(
    "name", ["7x9x11", "7x9x11-bf18-nk", "0x9x11-bf16-nk", "7x9x11-bf16-nk-sum", "7x9x11-bf16-nk-fp16out"]
)
def test_a_name_that_says_no_product_is_refused(name):
    with pytest.raises(ValueError, match="accepted: "):
        workloads.named(name)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("router", "1x64x1024-bf16-nk"),
        ("skinny-matmul-fp16", "16x16x1024-fp16-kn"),
        ("square", "16x64x384-bf16-kn"),
        ("or_reduce-ragged", "or-7x9x3-int64"),
        ("w4a16-square", "w4a16-1x64x512-fp16-g128"),
    ],
)
def test_for_a_cpu_a_small_problem_stands_for_the_workload(workload, name):
    ((_, problem),) = workloads.problems(workload, for_cpu=True)
    assert problem.name == name


def test_for_a_cpu_what_is_named_stays():
    assert [problem.m for _, problem in workloads.problems("router", [(9, 9, 9)], for_cpu=True)] == [1, 9]
    chosen = workloads.problems("router", tokens=[4, 8, 16], for_cpu=True)
    assert [(problem.m, problem.k) for _, problem in chosen] == [(4, 7168), (8, 7168), (16, 7168)]


def test_a_users_own_list(tmp_path):
    entries = [
        {"m": 16, "n": 4096, "k": 14336},
        {"m": 1, "n": 8, "k": 9, "dtype": "fp32", "layout": "kn", "epilogue": "relu"},
        {"m": 1, "n": 8, "k": 9, "out_dtype": "fp32"},
    ]
    (tmp_path / "decode.json").write_text(json.dumps(entries))
    chosen = workloads.problems(str(tmp_path / "decode.json"), dtype="fp16")
    assert [(name, problem.name) for name, problem in chosen] == [
        ("decode", "16x4096x14336-fp16-nk"),
        ("decode", "1x8x9-fp32-kn-relu"),
        ("decode", "1x8x9-fp16-nk-fp32out"),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("{}", "is not a list of problems; accepted: "),
        ("[]", "is not a list of problems; accepted: "),
        ("[3]", "problem 1: it is 3; accepted: an object"),
        ('[{"m": 1, "n": 2, "k": 3}, {"m": 1, "n": 2}]', "problem 2: k is None; accepted: a positive integer"),
        ('[{"m": 0, "n": 2, "k": 3}]', "problem 1: m is 0; accepted: a positive integer"),
        ('[{"m": true, "n": 2, "k": 3}]', "m is True; accepted: a positive integer"),
        ('[{"m": 1, "n": 2, "k": 3, "dtype": "int4"}]', "dtype is 'int4'; accepted: bf16, fp16, fp32"),
        ('[{"m": 1, "n": 2, "k": 3, "layout": []}]', r"layout is \[\]; accepted: kn, nk"),
        ('[{"m": 1, "n": 2, "k": 3, "kay": 3}]', "unknown kay; accepted: m, n, k"),
        (
            '[{"m": 1, "n": 2, "k": 3, "out_dtype": "fp16"}]',
            "problem 1: out_dtype is fp16; accepted: that of the inputs",
        ),
    ],
)
def test_a_list_that_is_none_is_told_where(tmp_path, text, told):
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.json.*{told}"):
        workloads.problems(str(file))


def test_a_list_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mine.json")
    with pytest.raises(ValueError, match=r"mine\.json is not a regular file"):
        workloads.problems(str(tmp_path / "mine.json"))


def test_a_list_of_lists_without_end_is_told(tmp_path):
    (tmp_path / "mine.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"mine\.json is not JSON"):
        workloads.problems(str(tmp_path / "mine.json"))


def test_a_list_has_no_tokens(tmp_path):
    with pytest.raises(ValueError, match="tokens are asked for; mine"):
        workloads.problems("mine.json", tokens=[1])


def test_a_shape_is_three_positive_integers():
    assert workloads.parse_shape("16x256x7168") == (16, 256, 7168)
    for text in ("16x256", "0x1x1", "1x1x1x1", "axbxc", "", "-1x2x3"):
        with pytest.raises(ValueError, match="accepted: MxNxK"):
            workloads.parse_shape(text)


def test_a_size_has_at_most_ten_digits():
    assert workloads.parse_shape(f"{'9' * 10}x1x1") == (10**10 - 1, 1, 1)
    many = "1" * 5000
    for text, told in (("16x12345678901x64", "N is 12345678901"), (f"{many}x1x1", r"M is 1{10}\.\.\. of 5000 digits")):
        with pytest.raises(ValueError, match=f"^{told}; accepted: at most 10 digits$"):
            workloads.parse_shape(text)


def test_tokens_are_positive_integers():
    assert workloads.parse_tokens("1,16,64") == [1, 16, 64]
    for text in ("", "0", "1,,2", "1;2", "x"):
        with pytest.raises(ValueError, match="accepted: positive integers"):
            workloads.parse_tokens(text)


def test_the_models_are_sixteen_or_more_routers_each_of_another_size_and_with_its_source():
    sizes = {(router.experts, router.hidden) for router in ROUTERS}
    assert len(sizes) == len(ROUTERS) >= 16
    assert all(router.source.startswith("https://") and 0 < router.top_k <= router.experts for router in ROUTERS)
    problems = [problem for _, problem in workloads.problems("models", tokens=[1, 1024])]
    assert {(problem.n, problem.k) for problem in problems} == sizes and len(problems) == 2 * len(sizes)
    assert all(problem.layout is Layout.NK for problem in problems)
