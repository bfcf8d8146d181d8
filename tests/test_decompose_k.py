"""decompose_k, in every language that has it; and the strips of its vector reducers."""

import re
from dataclasses import replace

import matmul_cases
import pytest
import torch
from cuda_source import cuda_sources

from bench import contenders
from common.accuracy import Judge
from common.epilogue import Epilogue
from common.kernel import Language
from common.problem import Layout, Matmul
from kernels_tilus import decompose_k


class TestDecomposeK(matmul_cases.MatmulTests):
    name = "decompose_k"


STRIPS = [
    *[("triton", {"reduce_block": columns, "reduce_warps": warps}) for columns, warps in ((32, 1), (128, 4), (512, 4))],
    *[
        ("tilus", {"reduce_block": columns, "reduce_warps": warps, "reduce_rows": rows, "reduce_threads": threads})
        for columns, warps, rows, threads in decompose_k.STRIPS + decompose_k.SHARED_STRIPS
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
    config = replace(kernel.default_config(problem), split_k=5, **strip)  # threads share them unevenly
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
        ({"reduce_threads": 3}, "3 threads an element do not divide 1 warps"),
        ({"split_k": 64, "reduce_rows": 4, "reduce_warps": 4, "reduce_block": 128}, "takes 256 registers a thread"),
    ],
)
def test_a_strip_that_the_threads_cannot_share_is_refused(change, reason):
    kernel, problem = contenders.find("tilus/decompose_k.vector"), Matmul(16, 256, 7168, layout=Layout.NK)
    assert reason in kernel.supports(problem, replace(kernel.default_config(problem), **change))


def test_the_second_kernel_is_launched_dependently_and_reads_after_its_wait(tmp_path):
    """By all of its loads' address: it comes out of the wait. The first one lets it start, and nobody else does."""
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    kernels = {of.variant: of for of in matmul_cases.kernels_named("decompose_k") if of.language is Language.TILUS}
    config = kernels["vector"].default_config(problem)
    product, reduction = cuda_sources(kernels["vector_pdl"], problem, config, tmp_path)
    assert "griddepcontrol.launch_dependents;" in product and "cudaLaunchKernelEx" not in product
    assert "cudaLaunchKernelEx(&config, " in reduction and "<<<" not in reduction
    (waited,) = re.findall(r"\*(\w+) = \(\(void\*\)\(tilus_cuda_after_kernel_before\(partials_ptr\)\)\);", reduction)
    assert len(re.findall(r"\bpartials_ptr\b", reduction.partition("__global__")[2].partition("DLL void")[0])) == 2
    assert re.search(rf"gmem = \(\(float\*\)\({waited}\)\);", reduction)
    for plain in cuda_sources(kernels["vector"], problem, config, tmp_path):
        assert "griddepcontrol" not in plain and "cudaLaunchKernelEx" not in plain
