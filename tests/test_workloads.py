"""Lists of problems, and problems by their sizes."""

import pytest
import torch

from bench import workloads
from common.epilogue import Epilogue
from common.problem import Layout


def test_the_router_at_all_its_tokens():
    chosen = workloads.problems("router")
    assert [problem.m for _, problem in chosen] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024]
    assert {(name, problem.n, problem.k, problem.dtype, problem.layout) for name, problem in chosen} == {
        ("router", 256, 7168, torch.bfloat16, Layout.NK)
    }


def test_what_is_asked_for_is_in_the_problem():
    ((_, problem),) = workloads.problems(
        "router", tokens=[3], layout="kn", dtype="fp16", out_dtype="fp32", epilogue="relu"
    )
    assert (problem.m, problem.layout, problem.epilogue) == (3, Layout.KN, Epilogue.RELU)
    assert (problem.dtype, problem.out_dtype) == (torch.float16, torch.float32)


def test_shapes_come_after_the_workload_and_each_problem_once():
    chosen = workloads.problems("router", [(1, 256, 7168), (5, 6, 7), (5, 6, 7)], tokens=[1, 2])
    assert [(name, problem.m) for name, problem in chosen] == [("router", 1), ("router", 2), ("shape", 5)]


def test_an_unknown_workload_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"'rooter'; accepted: router"):
        workloads.problems("rooter")


def test_a_shape_is_three_positive_integers():
    assert workloads.parse_shape("16x256x7168") == (16, 256, 7168)
    for text in ("16x256", "0x1x1", "1x1x1x1", "axbxc", "", "-1x2x3"):
        with pytest.raises(ValueError, match="accepted: MxNxK"):
            workloads.parse_shape(text)


def test_tokens_are_positive_integers():
    assert workloads.parse_tokens("1,16,64") == [1, 16, 64]
    for text in ("", "0", "1,,2", "1;2", "x"):
        with pytest.raises(ValueError, match="accepted: positive integers"):
            workloads.parse_tokens(text)
