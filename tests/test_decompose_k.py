"""decompose_k, in every language that has it; and the strips of its vector reducers."""

from dataclasses import replace

import matmul_cases
import pytest
import torch

from bench import contenders
from common.accuracy import Judge
from common.epilogue import Epilogue
from common.problem import Layout, Matmul
from kernels_tilus import decompose_k


class TestDecomposeK(matmul_cases.MatmulTests):
    name = "decompose_k"


STRIPS = [
    *[("triton", {"reduce_block": columns, "reduce_warps": warps}) for columns, warps in ((32, 1), (128, 4), (512, 4))],
    *[
        ("tilus", {"reduce_block": columns, "reduce_warps": warps, "reduce_rows": rows})
        for columns, warps, rows in decompose_k.STRIPS
    ],
]


@pytest.mark.parametrize(("language", "strip"), STRIPS, ids=str)
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(13, 136, 256, torch.float16, epilogue=Epilogue.BIAS_RELU),
        Matmul(3, 7, 132, torch.bfloat16, layout=Layout.NK),
    ],
    ids=lambda problem: problem.name,
)
def test_every_strip_covers_the_output(language, strip, problem, device):
    kernel = contenders.find(f"{language}/decompose_k.vector")
    config = replace(kernel.default_config(problem), split_k=4, **strip)
    assert kernel.supports(problem, config) is None
    inputs = problem.inputs(device)
    out = torch.full(problem.out_shape, float("nan"), dtype=problem.out_dtype, device=device)
    kernel.launch(inputs.a, inputs.b, epilogue=problem.epilogue, bias=inputs.bias, out=out, config=config)
    assert Judge(problem, inputs).judge(out, kernel.roundings(config)).ok


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reduce_block": 48}, "not shared evenly by the threads of 1 warps"),
        ({"reduce_rows": 3, "reduce_warps": 4, "reduce_block": 64}, "not shared evenly by the threads of 4 warps"),
        ({"split_k": 64, "reduce_rows": 4, "reduce_warps": 4, "reduce_block": 128}, "takes 256 registers a thread"),
    ],
)
def test_a_strip_that_the_threads_cannot_share_is_refused(change, reason):
    kernel, problem = contenders.find("tilus/decompose_k.vector"), Matmul(16, 256, 7168, layout=Layout.NK)
    assert reason in kernel.supports(problem, replace(kernel.default_config(problem), **change))
