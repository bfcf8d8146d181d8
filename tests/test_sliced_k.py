"""sliced_k, in both languages: what it computes, what its loads and products are compiled to, which syncs it needs."""

import re
from dataclasses import replace

import compiled
import matmul_cases
import mutants
import pytest
import torch
from tilus.ir.functors import IRRewriter
from tilus.ir.instructions import SyncThreadsInst
from ttgir import ptx, ttgir

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import sliced_k
from triton_vs_tilus.kernels_tilus.interpreter import MissingSync

ROUTER = Matmul(1, 256, 7168, layout=Layout.NK)


class TestSlicedK(matmul_cases.MatmulTests):
    name = "sliced_k"


def fma_task(language: str, rows: int, config: MatmulConfig | None = None) -> Task:
    fma, problem = contenders.find(f"{language}/sliced_k.fma"), replace(ROUTER, m=rows)
    return Task(fma, problem, config or fma.default_config(problem), "heuristic", "sm_90a")


MOST_PRODUCTS = MatmulConfig(16, 4, 1024, split_k=4, num_warps=4, num_stages=1)  # 512 of a thread and step
MOST_WARPS = MatmulConfig(4, 2, 8192, split_k=16, num_warps=16, num_stages=1)  # 128 registers a thread, 48 of loads
FMA = compiled.wanted(
    *(fma_task(language, rows) for language in ("triton", "tilus") for rows in (1, 4, 16)),
    fma_task("tilus", 64, MOST_PRODUCTS),
    *(fma_task(language, 8, MOST_WARPS) for language in ("triton", "tilus")),
)


@compiled.on_one_worker
@pytest.mark.parametrize("task", FMA, ids=lambda task: f"{task.kernel.language.value}-{task.problem.m}")
def test_loads_of_a_step_are_wide_and_have_registers_for_all_of_them(task):
    """ptxas by itself makes do with so few registers that loads wait for those before them; and nvcc keeps in local
    memory what stands in loops that it does not unroll."""
    config = task.config
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    loads = (config.block_m + config.block_n) * config.block_k * 2 // 16 // gpu_kernel.threads
    assert gpu_kernel.instructions["global loads"] == {"16 B": loads}
    assert gpu_kernel.registers >= 0.9 * 4 * loads  # a few are free again before the last load
    assert not gpu_kernel.spills and not gpu_kernel.stack
    if task.kernel.language.value == "tilus":
        assert gpu_kernel.instructions["barriers"] == {"bar.sync": 1}  # warps do not take turns


def mma_task(language: str, block_n: int) -> Task:
    config = MatmulConfig(16, block_n, 512, split_k=4, num_warps=4, num_stages=4)
    return Task(contenders.find(f"{language}/sliced_k.mma"), replace(ROUTER, m=16), config, "space", "sm_90a")


@pytest.mark.parametrize(("layout", "columns", "order_of_b"), [("nk", 4, "1, 2, 0"), ("kn", 16, "2, 1, 0")])
def test_where_threads_cover_a_tile_triton_swizzles_its_rows_all_the_same(layout, columns, order_of_b, tmp_path):
    """By itself it does so up to 3.6 alone; see `batched_product`. Where products come before rows in the order of a
    tile in shared memory, it is products that are swizzled."""
    problem = Matmul(16, 256, 7168, layout=Layout(layout))
    config = MatmulConfig(16, columns, 1024, split_k=8, num_warps=8, num_stages=4)
    (text,) = ttgir("triton/sliced_k.mma", problem, [config], tmp_path)
    for tile, order in (("16x128", "2, 1, 0"), (f"128x{columns}", order_of_b)):
        (found,) = set(re.findall(rf"-> !ttg.memdesc<\d+x8x{tile}xbf16, (#shared\d*),", text))
        assert re.search(rf"{found} = .*order = \[{order}\]", text)


# Where threads have several products each. Rows of an odd number of elements are loaded by the element.
SEVERAL_PRODUCTS = MatmulConfig(16, 16, 512, split_k=4, num_warps=4, num_stages=4)


@pytest.mark.parametrize("layout", Layout)
def test_triton_loads_a_product_s_elements_from_their_own_place(layout, tmp_path):
    """What has Triton deal out products first says that they lie side by side. From 3.9 on an element of the next one
    was loaded from beside this one's; see `batched_product`."""
    problem = Matmul(16, 256, 7175, layout=layout)
    (text,) = ptx("triton/sliced_k.mma", problem, [SEVERAL_PRODUCTS], tmp_path)
    offsets = re.findall(r"ld\.global\S* \{[^}]*\}, \[ %rd\d+ \+ (\d+) \]", text)
    assert len(offsets) >= 64 and set(offsets) == {"0"}


@pytest.mark.parametrize("layout", Layout)
def test_rows_of_an_odd_number_of_elements_in_several_products(layout, device):
    problem = Matmul(17, 40, 1031, layout=layout)
    inputs = problem.inputs(device)
    kernel = contenders.find("triton/sliced_k.mma")
    out = kernel.launch(inputs.a, inputs.b, config=SEVERAL_PRODUCTS)
    assert Judge(problem, inputs).judge(out, kernel.roundings(SEVERAL_PRODUCTS)).ok


@pytest.mark.parametrize("rows", [1, 16, 33, 64])
def test_the_rule_of_thumb_fits_shared_memory_in_fp32(rows):
    """Tensor cores take fp32 in Triton alone, at half the step."""
    kernel, problem = contenders.find("triton/sliced_k.mma"), Matmul(rows, 256, 7168, torch.float32)
    assert kernel.supports(problem, kernel.default_config(problem)) is None


MMA = compiled.wanted(mma_task("triton", 8), mma_task("tilus", 8), mma_task("tilus", 2))


@compiled.on_one_worker
@pytest.mark.parametrize("task", MMA, ids=lambda task: f"{task.kernel.language.value}-{task.config.block_n}")
def test_tensor_cores_share_k_among_the_warps(task):
    language, config = task.kernel.language.value, task.config
    (gpu_kernel,) = compiled.built(task).gpu_kernels
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
    with mutants.launched(mutation), pytest.raises(MissingSync, match=words):
        sliced_k.matmul(inputs.a, inputs.b, config=config, variant="mma")
    assert mutation.seen == 3


@pytest.mark.parametrize("block_n", [2, 4, 8])
def test_tilus_on_tensor_cores_leaves_the_neighbours_columns_alone(block_n, device):
    """Columns of a block below an mma's eight; N that they do not divide; in either layout."""
    for problem in (Matmul(17, 42, 256, layout=Layout.KN), Matmul(17, 43, 256, layout=Layout.NK)):
        inputs = problem.inputs(device)
        base = torch.full((17, problem.n + 8), -7.0, dtype=problem.dtype, device=device)
        config = MatmulConfig(16, block_n, 128, split_k=4, num_warps=4, num_stages=3)
        out = sliced_k.matmul(inputs.a, inputs.b, out=base[:, : problem.n], config=config, variant="mma")
        assert Judge(problem, inputs).judge(out.contiguous(), 1).ok
        assert (base[:, problem.n :] == -7.0).all()


@pytest.mark.parametrize(
    ("problem", "from_column"),
    [(Matmul(3, 10, 64, layout=Layout.NK), 1), (Matmul(3, 10, 65, layout=Layout.NK), 0), (Matmul(3, 15, 130), 0)],
    ids=["begins at an odd element", "odd K", "odd N"],
)
def test_in_tilus_rows_that_cp_async_cannot_copy_pass_through_registers(problem, from_column, device):
    inputs = problem.inputs(device)
    a = torch.empty(3, problem.k + from_column, dtype=problem.dtype, device=device)[:, from_column:]
    a.copy_(inputs.a)
    out = sliced_k.matmul(a, inputs.b, variant="mma")
    assert Judge(problem, inputs).judge(out, 1).ok


ODD = [
    Task(mma, problem, mma.default_config(problem), "heuristic", "sm_90a")
    for mma in (contenders.find("tilus/sliced_k.mma"), contenders.find("tilus/atomic"))
    for problem in (Matmul(16, 256, 7175, layout=Layout.NK), Matmul(16, 255, 7175), Matmul(16, 255, 7168))
]
compiled.wanted(*ODD)


@compiled.on_one_worker
@pytest.mark.parametrize("task", ODD, ids=lambda task: f"{task.kernel.full_name}-{task.problem.name}")
def test_in_tilus_tensor_cores_take_rows_of_an_odd_number_of_elements(task):
    """Of a weight stored [K, N] of odd N; A goes by cp.async where its K is even."""
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    config, instructions = task.config, gpu_kernel.instructions
    assert set(instructions["tensor cores"]) == {"mma.sync"}
    assert instructions["global loads"]["2 B"] >= config.block_n * config.block_k / gpu_kernel.threads
    assert bool(instructions.get("async copies")) == (task.problem.k % 2 == 0)
    assert not gpu_kernel.spills


def test_tilus_leaves_fp32_to_fma():
    problem = Matmul(1, 16, 64, torch.float32)
    kernel = contenders.find("tilus/sliced_k.mma")
    assert "tensor cores round them to TF32; variant fma does not" in kernel.supports(problem, None)
    assert kernel.configs(problem) == ()
    assert contenders.find("tilus/sliced_k.fma").supports(problem, None) is None


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("triton/sliced_k.fma", {"split_k": 2}, "as all warps share K"),
        ("triton/sliced_k.fma", {"block_k": 512}, "1024 or more"),
        ("triton/sliced_k.fma", {"block_m": 16}, "544 registers a thread"),
        ("triton/sliced_k.fma", {"block_m": 16, "split_k": 16, "num_warps": 16}, "136 registers a thread, over 80"),
        ("triton/sliced_k.fma", {"block_n": 3}, "accepted: powers of two"),
        ("triton/sliced_k.mma", {"num_warps": 1}, "as all warps share K"),
        ("triton/sliced_k.mma", {"num_stages": 9}, "bytes of shared memory"),
        ("tilus/sliced_k.fma", {"split_k": 2}, "as all warps share K"),
        ("tilus/sliced_k.fma", {"block_k": 512}, "multiples of 1024"),
        ("tilus/sliced_k.fma", {"block_m": 16}, "544 registers a thread"),
        ("tilus/sliced_k.fma", {"block_m": 16, "split_k": 16, "num_warps": 16}, "136 registers a thread, over 80"),
        ("tilus/sliced_k.mma", {"num_warps": 1}, "as all warps share K"),
        ("tilus/sliced_k.mma", {"block_k": 32}, "multiples of 64"),
        ("tilus/sliced_k.mma", {"block_m": 8}, "for block_m 16 or more"),
        ("tilus/sliced_k.mma", {"block_n": 3}, "powers of two"),
        ("tilus/sliced_k.mma", {"num_stages": 1}, "as the pipeline needs"),
        ("tilus/sliced_k.mma", {"num_stages": 9}, "bytes of shared memory"),
    ],
)
def test_what_a_config_cannot_be(name, changes, reason):
    kernel = contenders.find(name)
    config = MatmulConfig(1, 1, 8192, 4, 4, 1) if kernel.variant == "fma" else MatmulConfig(16, 16, 512, 4, 4, 4)
    assert kernel.supports(ROUTER, config) is None
    assert reason in kernel.supports(ROUTER, replace(config, **changes))


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_columns_have_no_limit_and_rows_have_the_grid_s(language):
    kernel = contenders.find(f"{language}/sliced_k.fma")
    assert kernel.supports(Matmul(1, 200_000, 64, layout=Layout.NK), MatmulConfig(1, 1, 1024, 4, 4, 1)) is None
    assert "65535 or fewer" in kernel.supports(Matmul(70_000, 1, 64), MatmulConfig(1, 1, 1024, 4, 4, 1))
