"""in_block, in both languages: what it computes, what its loads and products are compiled to, which syncs it needs."""

from dataclasses import replace
from unittest import mock

import matmul_cases
import pytest
import torch
from tilus.ir.functors import IRRewriter
from tilus.ir.instructions import SyncThreadsInst

from bench import contenders
from bench.resources import Task, compile_all
from common.accuracy import Judge
from common.kernel import MatmulConfig
from common.problem import Layout, Matmul
from kernels_tilus import in_block, interpreter, launching
from kernels_tilus.interpreter import MissingSync

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


@pytest.mark.parametrize(("language", "block_n"), [("triton", 8), ("tilus", 8), ("tilus", 2)])
def test_tensor_cores_share_k_among_the_warps(language, block_n, tmp_path):
    mma = contenders.find(f"{language}/in_block.mma")
    config = MatmulConfig(16, block_n, 512, split_k=4, num_warps=4, num_stages=4)
    (outcome,) = compile_all([Task(mma, replace(ROUTER, m=16), config, "space", "sm_90a")], tmp_path)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    (gpu_kernel,) = outcome.gpu_kernels
    # tilus unrolls the loop by the stages; what remains is a loop of its own.
    bodies = 1 if language == "triton" else config.num_stages + 1
    # One tile of 16x8 a warp: its quarter of the step, 16 of K at a time.
    assert gpu_kernel.instructions["tensor cores"] == {"mma.sync": bodies * 512 // 4 // 16}
    assert set(gpu_kernel.instructions["async copies"]) == {"cp.async 16 B"}
    if language == "tilus":
        # Before the loop, in each step, and where the warps' sums meet.
        assert gpu_kernel.instructions["barriers"] == {"bar.sync": bodies + 2}
    assert not gpu_kernel.spills


class WithoutSync(IRRewriter):
    """Without the one sync that stands at this place among them."""

    def __init__(self, which):
        super().__init__()
        self.which, self.seen = which, 0

    def visit_SyncThreadsInst(self, inst: SyncThreadsInst):
        self.seen += 1
        return None if self.seen == self.which else inst


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (1, r"sa\[0, 0, 0\] is read, and no sync"),
        (2, r"sa\[1, 0, 0\] is read, and no sync"),
        (3, r"partials\[0, 0, 0\] is read, and no sync"),
    ],
)
def test_tilus_on_tensor_cores_needs_each_sync(which, words):
    problem = Matmul(4, 24, 640, layout=Layout.NK)
    inputs = problem.inputs("cpu")
    config = MatmulConfig(16, 2, 64, split_k=2, num_warps=2, num_stages=4)
    mutation = WithoutSync(which)

    def launch(script, *args):
        interpreter.run_program(mutation(interpreter.transpile(script, *args)), *args)

    with mock.patch.object(launching, "launch", launch), pytest.raises(MissingSync, match=words):
        in_block.matmul(inputs.a, inputs.b, config=config, variant="mma")
    assert mutation.seen == 3


@pytest.mark.parametrize("block_n", [2, 4, 8])
def test_tilus_on_tensor_cores_leaves_the_neighbours_columns_alone(block_n, device):
    """Columns of a block below an mma's eight; N that they do not divide; in either layout."""
    for problem in (Matmul(17, 42, 256, layout=Layout.KN), Matmul(17, 43, 256, layout=Layout.NK)):
        inputs = problem.inputs(device)
        base = torch.full((17, problem.n + 8), -7.0, dtype=problem.dtype, device=device)
        config = MatmulConfig(16, block_n, 128, split_k=4, num_warps=4, num_stages=3)
        out = in_block.matmul(inputs.a, inputs.b, out=base[:, : problem.n], config=config, variant="mma")
        assert Judge(problem, inputs).judge(out.contiguous(), 1).ok
        assert (base[:, problem.n :] == -7.0).all()


def test_tilus_takes_rows_that_cp_async_cannot_copy_through_fma(device):
    problem = Matmul(3, 10, 64, layout=Layout.NK)
    inputs = problem.inputs(device)
    unaligned = torch.empty(3, 65, dtype=problem.dtype, device=device)[:, 1:]
    unaligned.copy_(inputs.a)
    out = in_block.matmul(unaligned, inputs.b, variant="mma")
    assert Judge(problem, inputs).judge(out, 1).ok


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Matmul(1, 16, 64, torch.float32), "tensor cores round them to TF32; variant fma does not"),
        (Matmul(1, 16, 65), "K = 65 is odd: cp.async copies 4 bytes or more; variant fma takes it"),
        (Matmul(1, 15, 64, layout=Layout.KN), "N = 15 is odd with B stored [K, N]"),
    ],
)
def test_what_tilus_leaves_to_fma(problem, reason):
    assert reason in contenders.find("tilus/in_block.mma").supports(problem, None)
    assert contenders.find("tilus/in_block.mma").configs(problem) == []
    assert contenders.find("tilus/in_block.fma").supports(problem, None) is None


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("triton/in_block.fma", {"split_k": 2}, "as all warps share K"),
        ("triton/in_block.fma", {"block_k": 512}, "1024 or more"),
        ("triton/in_block.fma", {"block_m": 16}, "544 registers a thread"),
        ("triton/in_block.fma", {"block_n": 3}, "not powers of two"),
        ("triton/in_block.mma", {"num_warps": 1}, "as all warps share K"),
        ("triton/in_block.mma", {"num_stages": 9}, "bytes of shared memory"),
        ("tilus/in_block.fma", {"split_k": 2}, "as all warps share K"),
        ("tilus/in_block.fma", {"block_k": 512}, "multiples of 1024"),
        ("tilus/in_block.fma", {"block_m": 16}, "1024 products a thread"),
        ("tilus/in_block.mma", {"num_warps": 1}, "as all warps share K"),
        ("tilus/in_block.mma", {"block_k": 32}, "multiples of 64"),
        ("tilus/in_block.mma", {"block_m": 8}, "for block_m 16 or more"),
        ("tilus/in_block.mma", {"block_n": 3}, "powers of two"),
        ("tilus/in_block.mma", {"num_stages": 1}, "the pipeline needs two"),
        ("tilus/in_block.mma", {"num_stages": 9}, "bytes of shared memory"),
    ],
)
def test_what_a_config_cannot_be(name, changes, reason):
    kernel = contenders.find(name)
    config = MatmulConfig(1, 1, 8192, 4, 4, 1) if kernel.variant == "fma" else MatmulConfig(16, 16, 512, 4, 4, 4)
    assert kernel.supports(ROUTER, config) is None
    assert reason in kernel.supports(ROUTER, replace(config, **changes))


@pytest.mark.parametrize(("most_blocks", "columns"), [(64, 1), (32, 2), (16, 4), (8, 8), (4, 16)])
@pytest.mark.parametrize("m", [1, 3, 9])
def test_the_rule_takes_wider_tiles_where_a_grid_has_no_room(monkeypatch, device, most_blocks, columns, m):
    monkeypatch.setattr("kernels_tilus.in_block.GRID_LIMIT", most_blocks)
    problem = Matmul(m, 64, 520, layout=Layout.NK)
    kernel = contenders.find("tilus/in_block.fma")
    config = kernel.default_config(problem)
    assert config.block_n == columns and kernel.supports(problem, config) is None
    inputs = problem.inputs(device)
    out = matmul_cases.run(kernel, problem, inputs, config=config)
    matmul_cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)
