"""cluster, in both languages; what of it the installed Triton compiles; what keeps tilus' pushes apart."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import compiled
import matmul_cases
import mutants
import pytest
import torch
import triton
from packaging.version import Version
from tilus.hidet.ir.expr import Call
from tilus.ir.functors import IRRewriter
from tilus.ir.instructions.cuda.mbarrier import ArriveExpectTxBarrierInst, WaitBarrierInst
from tilus.ir.stmt import EvaluateStmt, SeqStmt

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import cluster, interpreter
from triton_vs_tilus.kernels_tilus.configs import BandConfig as TilusConfig
from triton_vs_tilus.kernels_tilus.push import PushRowsInst
from triton_vs_tilus.kernels_triton.cluster import FIRST_TRITON
from triton_vs_tilus.kernels_triton.configs import BandConfig


def eight_blocks() -> Task:
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    kernel = contenders.find("triton/cluster")
    return Task(kernel, problem, BandConfig(16, 16, 128, split_k=8, num_warps=4, num_stages=4), "space", "sm_90a")


def eight_blocks_by_tma() -> list[Task]:
    config = BandConfig(16, 16, 128, split_k=8, num_warps=2, num_stages=4, tma=True)
    kernel = contenders.find("triton/cluster")
    return [Task(kernel, Matmul(16, 256, 7168, layout=each), config, "space", "sm_90a") for each in Layout]


def slices_of_four_bands() -> Task:
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    config = BandConfig(16, 16, 256, split_k=4, num_warps=4, num_stages=5, sliced=True)
    return Task(contenders.find("triton/cluster"), problem, config, "space", "sm_90a")


BY_TMA = []
if Version(triton.__version__) >= Version(FIRST_TRITON):
    (EIGHT_BLOCKS,) = compiled.wanted(eight_blocks())
    (SLICES,) = compiled.wanted(slices_of_four_bands())
    BY_TMA = compiled.wanted(*eight_blocks_by_tma())


class TestCluster(matmul_cases.MatmulTests):
    name = "cluster"


SUMS = ("tl.sum", "sums of halves")


def test_triton_sums_a_batched_product_across_blocks_from_3_9_on():
    script = Path(__file__).with_name("triton_across_blocks.py")
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert "tl.sum: reads 0 times" in said
    tiles = r"tl.dot of tiles that TMA loads: reads 0 times, multicasts 0 times, meets \d+ times, has [1-9]\d* wgmma"
    assert re.search(tiles, said)
    assert said.count("reads") + said.count("error: ") + said.count("Assertion ") == 6
    compiles = Version(triton.__version__) >= Version(FIRST_TRITON)
    sums = [re.search(rf"batched tl.dot, {how}: reads [1-9].* meets (\d+) times", said) for how in SUMS]
    assert [found is not None for found in sums] == [compiles, compiles]
    if compiles:
        assert [int(found[1]) for found in sums if found] == [5, 2]


@pytest.mark.skipif(Version(triton.__version__) < Version(FIRST_TRITON), reason=f"needs Triton {FIRST_TRITON}")
@compiled.on_one_worker
def test_bands_meet_in_the_shared_memory_of_peers():
    """Two barriers of the cluster, each an arrival and a wait: partial sums stored, and read. The operands come by
    16-byte copies that run ahead."""
    (gpu_kernel,) = compiled.built(EIGHT_BLOCKS).gpu_kernels
    assert gpu_kernel.spills == 0 and not gpu_kernel.over("sm_90a")
    assert gpu_kernel.instructions["barriers"]["barrier.cluster"] == 2 * 2
    assert set(gpu_kernel.instructions["tensor cores"]) == {"mma.sync"}
    assert set(gpu_kernel.instructions["async copies"]) == {"cp.async 16 B"}


@pytest.mark.skipif(Version(triton.__version__) < Version(FIRST_TRITON), reason=f"needs Triton {FIRST_TRITON}")
@compiled.on_one_worker
def test_slices_meet_within_their_block_before_bands_do():
    """2 barriers of the block a step, and 3 for what its warps bring together; 1 for that if all slices crossed."""
    (gpu_kernel,) = compiled.built(SLICES).gpu_kernels
    assert gpu_kernel.spills == 0
    assert gpu_kernel.instructions["barriers"] == {"bar.sync": 2 + 3, "barrier.cluster": 2 * 2}


@compiled.on_one_worker
@pytest.mark.parametrize("task", BY_TMA, ids=lambda task: task.problem.layout.value)
def test_bands_that_tma_loads_meet_in_the_shared_memory_of_peers(task):
    """Two loads a step, 3 steps before the loop and one in it; a step's loads have one mbarrier, and no peer's."""
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    assert gpu_kernel.spills == 0 and not gpu_kernel.over("sm_90a")
    assert gpu_kernel.instructions["barriers"]["barrier.cluster"] == 2 * 2
    assert set(gpu_kernel.instructions["tensor cores"]) == {"mma.sync"}
    assert gpu_kernel.instructions["async copies"] == {"tensor load": 2 * (3 + 1)}
    assert gpu_kernel.instructions["barriers"]["mbarrier.try_wait"] == 1


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("m", "n", "split_k"), [(1, 40, 2), (5, 16, 4), (37, 72, 8)])
def test_tma_has_zeros_beyond_a_band(m, n, split_k, layout, device):
    """The second step of 64 has 8 elements of a band of 72; the next band follows in memory. Ragged in M and N."""
    problem = Matmul(m, n, 72 * split_k, layout=layout, epilogue=Epilogue.BIAS_RELU)
    kernel, config = contenders.find("triton/cluster"), BandConfig(16, 32, 64, split_k, 4, 3, tma=True)
    if lacking := matmul_cases.lacks(kernel):
        pytest.skip(lacking)
    matmul_cases.check_config(kernel, Judge(problem, problem.inputs(device)), config)


@pytest.mark.parametrize("changed", [{"tma": True}, {"swap": True}, {"split_k": 3}])
def test_what_a_batched_product_has_not_is_refused(changed, device):
    """A band of 132 begins at no multiple of 16 bytes."""
    problem = Matmul(16, 32, 264, layout=Layout.NK)
    kernel = contenders.find("triton/cluster")
    with pytest.raises(ValueError, match="accepted"):
        inputs = problem.inputs(device)
        kernel.launch(inputs.a, inputs.b, config=replace(BandConfig(16, 16, 64, 2, 1, 2), **changed))


PUSHED = Matmul(16, 256, 7168, layout=Layout.NK)
PUSHING = (
    TilusConfig(16, 8, 128, split_k=8, num_warps=1, num_stages=6),
    TilusConfig(16, 16, 256, split_k=8, num_warps=4, num_stages=4, engine="mma_sliced"),
    TilusConfig(16, 16, 256, split_k=6, num_warps=4, num_stages=4, engine="mma_sliced"),
)
PUSHES = compiled.wanted(*(Task(contenders.find("tilus/cluster"), PUSHED, each, "space", "sm_90a") for each in PUSHING))


@compiled.on_one_worker
@pytest.mark.parametrize("task", PUSHES, ids=lambda task: f"{task.config.engine}-{task.config.split_k}")
def test_a_thread_pushes_what_it_holds_and_no_fence_waits_for_it(task):
    """Two columns at once, each once; of the cluster's barrier an arrival and a wait."""
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    assert gpu_kernel.spills == 0 and not gpu_kernel.over("sm_90a")
    pushes = task.config.block_m * task.config.block_n // gpu_kernel.threads // 2
    assert gpu_kernel.instructions["async copies"]["st.async 8 B"] == pushes
    assert gpu_kernel.instructions["barriers"]["barrier.cluster"] == 2
    assert set(gpu_kernel.instructions["atomics and order"]) == {"fence.mbarrier_init.release.cluster"}


@pytest.mark.parametrize("engine", ["mma", "wgmma_swapped"])
@pytest.mark.parametrize("split_k", [3, 6])
def test_of_3_or_6_blocks_the_first_2_or_4_sum(split_k, engine, device):
    """Ragged in M, N and K, with a band that is shorter than the others; twice, bitwise the same."""
    problem, kernel = (
        Matmul(70, 88, 2000, layout=Layout.NK, epilogue=Epilogue.BIAS_RELU),
        contenders.find("tilus/cluster"),
    )
    config = TilusConfig(32, 64, 64, split_k=split_k, num_warps=4, num_stages=3, engine=engine)
    assert cluster.summing_blocks(split_k) == {3: 2, 6: 4}[split_k]
    inputs = problem.inputs(device)
    out = matmul_cases.run(kernel, problem, inputs, config=config)
    matmul_cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)
    assert torch.equal(out, matmul_cases.run(kernel, problem, inputs, config=config))


class Without(IRRewriter):
    """Without one kind of step."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def visit_EvaluateStmt(self, stmt: EvaluateStmt):
        called = stmt.expr.func_var.name if isinstance(stmt.expr, Call) else ""
        return SeqStmt(()) if called == self.what else super().visit_EvaluateStmt(stmt)

    def visit_Instruction(self, inst):
        return None if self.what == type(inst).__name__ else super().visit_Instruction(inst)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("cuda_cluster_wait", "block .* is used, which may not have started"),
        ("cuda_cluster_arrive_relaxed", "waits at the cluster's barrier, where it has not arrived"),
        (WaitBarrierInst.__name__, r"received\[\d, 0, 0\] is read"),
        (ArriveExpectTxBarrierInst.__name__, "misses 1 arrivals"),
        (PushRowsInst.__name__, r"misses 0 arrivals and \d+ bytes"),
    ],
)
def test_tilus_needs_each_step_around_a_push(what, words):
    problem = Matmul(16, 16, 256, layout=Layout.NK)
    inputs = problem.inputs("cpu")
    with mutants.launched(Without(what)), pytest.raises(interpreter.KernelError, match=words):
        cluster.matmul(inputs.a, inputs.b, config=TilusConfig(16, 16, 32, split_k=4, num_warps=1, num_stages=2))


def test_memory_for_the_pushes_of_peers_is_beside_the_stages():
    problem, kernel = Matmul(512, 256, 7168, layout=Layout.NK), contenders.find("tilus/cluster")
    config = TilusConfig(128, 128, 64, split_k=4, num_warps=4, num_stages=6, engine="wgmma")
    assert contenders.find("tilus/atomic").supports(problem, config) is None
    assert "6 stages and the partial sums of peers take" in kernel.supports(problem, config)
    assert kernel.supports(problem, replace(config, num_stages=4)) is None
