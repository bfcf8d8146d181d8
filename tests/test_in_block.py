"""in_block, in every language that has it; and what Triton's loads on CUDA cores are compiled to."""

from dataclasses import replace

import matmul_cases
import pytest

from bench import contenders
from bench.resources import Task, compile_all
from common.kernel import MatmulConfig
from common.problem import Layout, Matmul

ROUTER = Matmul(1, 256, 7168, layout=Layout.NK)


class TestInBlock(matmul_cases.MatmulTests):
    name = "in_block"


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_loads_of_a_step_are_wide_and_have_registers_for_all_of_them(rows, tmp_path):
    """ptxas by itself makes do with so few registers that loads wait for those before them."""
    fma = contenders.find("triton/in_block.fma")
    problem = replace(ROUTER, m=rows)
    config = fma.default_config(problem)
    (outcome,) = compile_all([Task(fma, problem, config, "heuristic", "sm_90a")], tmp_path)
    (gpu_kernel,) = outcome.gpu_kernels
    loads = (config.block_m + config.block_n) * config.block_k * 2 // 16 // gpu_kernel.threads
    assert gpu_kernel.instructions["global loads"] == {"16 B": loads}
    of_weights = config.block_n * config.block_k * 2 // 4 // gpu_kernel.threads
    wanted = of_weights + min(4 * loads, 64)
    assert gpu_kernel.registers >= 0.9 * wanted  # a few are free again before the last load
    assert not gpu_kernel.spills


def test_tensor_cores_share_k_among_the_warps(tmp_path):
    mma = contenders.find("triton/in_block.mma")
    config = MatmulConfig(16, 8, 512, split_k=4, num_warps=4, num_stages=4)
    (outcome,) = compile_all([Task(mma, replace(ROUTER, m=16), config, "space", "sm_90a")], tmp_path)
    (gpu_kernel,) = outcome.gpu_kernels
    # One tile of 16x8 a warp: its quarter of the step, 16 of K at a time.
    assert gpu_kernel.instructions["tensor cores"] == {"mma.sync": 512 // 4 // 16}
    assert set(gpu_kernel.instructions["async copies"]) == {"cp.async 16 B"}


@pytest.mark.parametrize(
    ("variant", "changes", "reason"),
    [
        ("fma", {"split_k": 2}, "as all warps share K"),
        ("fma", {"block_k": 512}, "1024 or more"),
        ("fma", {"block_m": 16}, "544 registers a thread"),
        ("fma", {"block_n": 3}, "not powers of two"),
        ("mma", {"num_warps": 1}, "as all warps share K"),
        ("mma", {"num_stages": 9}, "bytes of shared memory"),
    ],
)
def test_what_a_config_cannot_be(variant, changes, reason):
    kernel = contenders.find(f"triton/in_block.{variant}")
    config = MatmulConfig(1, 1, 8192, 4, 4, 1) if variant == "fma" else MatmulConfig(16, 16, 512, 4, 4, 4)
    assert kernel.supports(ROUTER, config) is None
    assert reason in kernel.supports(ROUTER, replace(config, **changes))
