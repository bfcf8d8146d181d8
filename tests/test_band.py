"""How Triton's band kernels multiply beside the plain way, tiles computed as their transposes, tiles copied by TMA and
steps whose K the warps share, under every protocol that multiplies so."""

import os
from dataclasses import replace
from functools import cache
from itertools import product

import compiled
import matmul_cases as cases
import pytest
import row_widths
import torch
import ttgir

from triton_vs_tilus import kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.bench.measure.process import Children, Died
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import tiles
from triton_vs_tilus.kernels_triton import configs, launching

KERNELS = [kernel for kernel in kernels_triton.KERNELS if issubclass(kernel.config_type, configs.BandConfig)]
PLAIN = {"swap": False, "tma": False, "sliced": False}
ENGINES = {
    "swap": PLAIN | {"swap": True},
    "tma": PLAIN | {"tma": True},
    "both": PLAIN | {"swap": True, "tma": True},
    "sliced": PLAIN | {"sliced": True, "num_warps": 4},
}
PROBLEMS = [
    Matmul(5, 48, 328, layout=Layout.NK, epilogue=Epilogue.RELU),  # ragged everywhere
    Matmul(17, 40, 208, torch.float16, layout=Layout.KN, epilogue=Epilogue.BIAS_RELU),
    Matmul(3, 20, 132, torch.float32, layout=Layout.NK, epilogue=Epilogue.RELU),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_protocol_takes_every_engine(kernel, engine, problem, device):
    config = replace(cases.split_config(kernel, problem, 2), block_m=16, block_n=16, block_k=64, **ENGINES[engine])
    if kernel.name == "cluster" and (config.swap or config.tma):
        reason = kernel.supports(problem, config)
        if cases.lacks(kernel):
            pytest.skip(reason)
        if config.swap:
            assert "wgmma, which a batched product has not" in reason
            return
        if problem.k * problem.dtype.itemsize % (config.split_k * configs.TMA_ALIGNMENT):
            assert "equal bands" in reason
            return
        assert reason is None
    cases.check_config(kernel, Judge(problem, problem.inputs(device)), config)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "problem", [Matmul(m, 256, 7168, layout=layout) for m in (1, 200) for layout in Layout], ids=str
)
def test_every_tile_is_right(problem, device):
    kernel = contenders.find("triton/decompose_k.vector")
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    fed = set()
    for tile in tiles(problem):
        made = configs.config_of(tile, split_k=7)
        if isinstance(made, str):
            continue
        config = kernel.config_type(**vars(made))
        if kernel.supports(problem, config) is None:
            cases.assert_right(kernel, problem, judge, cases.run(kernel, problem, inputs, config=config), config)
            fed.add((config.swap, config.tma))
    assert len(fed) == (3 if problem.m == 1 else 4)  # plain, swap, by TMA, both; TMA of 1 row only with swap


def test_eight_rows_are_enough_for_a_transpose(device):
    problem = Matmul(3, 32, 256, layout=Layout.NK)
    kernel = contenders.find("triton/decompose_k.vector")
    config = replace(kernel.default_config(problem), block_m=8, split_k=2)
    assert "powers of two" in kernel.supports(problem, config)
    swapped = replace(config, swap=True)
    inputs = problem.inputs(device)
    out = cases.run(kernel, problem, inputs, config=swapped)
    cases.assert_right(kernel, problem, Judge(problem, inputs), out, swapped)


def test_what_tma_cannot_address_is_refused_or_loaded_by_pointers(device, monkeypatch):
    problem = Matmul(4, 32, 160, layout=Layout.KN)
    kernel = contenders.find("triton/decompose_k.vector")
    config = replace(kernel.default_config(problem), tma=True)
    assert "rows of A and B" in kernel.supports(replace(problem, k=161), config)
    inputs = problem.inputs(device)
    wide = torch.zeros(4, 161, dtype=torch.bfloat16, device=device)
    wide[:, :160] = inputs.a
    with pytest.raises(ValueError, match="as config asks for TMA"):
        kernel.launch(wide[:, :160], inputs.b, config=config)
    # A config that was found for operands that TMA can address.
    monkeypatch.setattr("triton_vs_tilus.common.tuned.pick", lambda *_: (config, "tuned"))
    out = kernel.launch(wide[:, :160], inputs.b)
    cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)


@pytest.mark.parametrize("layout", Layout)
def test_tma_addresses_what_has_every_row_at_a_multiple_of_16_bytes(layout):
    """A config of the tables does without it where either operand lies otherwise."""
    problem = Matmul(4, 32, 160, layout=layout)
    config = configs.BandConfig(16, 32, 64, 1, 4, 3, tma=True)
    kernel = contenders.find("triton/decompose_k.vector")
    row_of_b = "stride_bn" if layout is Layout.NK else "stride_bk"
    for name, right, wrong in (
        ("stride_am", 168, 164),
        (row_of_b, 168, 164),
        ("align_a", 16, 8),
        ("align_b", 16, 8),
    ):
        lying, lying_off = (contiguous(problem)._replace(**{name: value}) for value in (right, wrong))
        assert launching.by_pointers(kernel, problem, config, lying) == config, name
        assert launching.by_pointers(kernel, problem, config, lying_off) == replace(config, tma=False), name
    fp32 = Matmul(4, 32, 160, torch.float32, layout=layout)
    assert launching.addressable(fp32, contiguous(fp32)._replace(stride_am=164))


def test_tma_reads_what_is_allocated_where_other_operands_were(device):
    """Descriptors are kept by address: operands of other numbers follow at the same addresses, and at others."""
    problem = Matmul(16, 64, 256, layout=Layout.NK)
    kernel = contenders.find("triton/decompose_k.vector")
    config = replace(kernel.default_config(problem), block_m=16, block_n=16, block_k=64, split_k=2, tma=True)
    held = []
    for seed in range(4):
        inputs = problem.inputs(device, seed)
        out = cases.run(kernel, problem, inputs, config=config)
        cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)
        held += [inputs] * (seed % 2)


def few_rows(layout: Layout) -> list[Task]:
    """A tile of 16 rows, its transpose, and the transpose copied by TMA."""
    problem = Matmul(16, 256, 7168, layout=layout)
    kernel = contenders.find("triton/decompose_k.tile")
    tile = kernel.config_type(16, 64, 128, split_k=28, num_warps=4, num_stages=4)
    engines = [tile, replace(tile, swap=True), replace(tile, swap=True, tma=True)]
    return [Task(kernel, problem, config, "space", "sm_90a") for config in engines]


SLICED = [
    Task(
        contenders.find("triton/decompose_k.tile"),
        Matmul(16, 256, 7168, layout=layout),
        contenders.find("triton/decompose_k.tile").config_type(16, 16, 256, 28, 4, 4, sliced=True),
        "space",
        "sm_90a",
    )
    for layout in Layout
]
compiled.wanted(*SLICED)
FEW_ROWS = {layout: compiled.wanted(*few_rows(layout)) for layout in Layout}


def rows_of(k: int, layout: Layout) -> Task:
    """K and N are no multiples of 16, which is all that Triton looks for by itself."""
    problem = Matmul(16, 200, k, layout=layout)
    kernel = contenders.find("triton/data_parallel")
    return Task(kernel, problem, kernel.default_config(problem), "heuristic", "sm_90a")


NARROW_ROWS = {
    rows_of(7176, Layout.NK): "cp.async 16 B",
    rows_of(7176, Layout.KN): "cp.async 16 B",
    rows_of(7180, Layout.NK): "cp.async 8 B",
}
compiled.wanted(*NARROW_ROWS)


@compiled.on_one_worker
@pytest.mark.parametrize("task", NARROW_ROWS, ids=lambda task: task.problem.name)
def test_rows_are_copied_as_wide_as_they_are_aligned(task):
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    assert set(gpu_kernel.instructions["async copies"]) == {NARROW_ROWS[task]}


PRODUCTS = [kernel.full_name for kernel in kernels_triton.KERNELS if kernel.op == "matmul"]
# K and how much longer rows are: of a width that Triton knows by itself, and of two that it is told (band.units_of).
ROWS = {"dense": (7168, 0), "k_of_8": (7176, 0), "padded_by_8": (7168, 8)}


@cache
def widths() -> dict[tuple[str, Layout, str], list[dict[str, list[str]]] | str | Died]:
    """Of every product with every layout and ROWS, compiled together."""
    wanted = {}
    for name, layout, (rows, (k, padding)) in product(PRODUCTS, Layout, ROWS.items()):
        few = name == "triton/sliced_k.fma"  # which is for few rows, and takes long to compile for many
        problem = resources.runnable(contenders.find(name), Matmul(4 if few else 16, 256, k, layout=layout))
        wanted[name, layout, rows] = name, problem, padding
    with Children(len(os.sched_getaffinity(0)), resources.DEADLINE_S, ttgir.environment()) as children:
        return dict(zip(wanted, children.each(row_widths.compiled_widths, list(wanted.values())), strict=True))


@compiled.on_one_worker
@pytest.mark.parametrize("rows", [rows for rows in ROWS if rows != "dense"])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", PRODUCTS)
def test_rows_of_8_are_moved_as_rows_of_16_are(name, layout, rows):
    """By instructions as wide, of which those that read operands are as wide as there are."""
    found, dense = widths()[name, layout, rows], widths()[name, layout, "dense"]
    if isinstance(found, str):
        pytest.skip(found)
    assert not isinstance(found, Died), found
    assert found == dense
    assert set(found[0]["async copies"] or found[0]["global loads"]) <= {"cp.async 16 B", "16 B"}


@compiled.on_one_worker
@pytest.mark.parametrize("task", SLICED, ids=lambda task: task.problem.layout.value)
def test_warps_that_share_k_have_a_part_of_the_chain(task):
    """Of two tiles of 16x8 each, a quarter of the step, 16 of K at a time."""
    gpu_kernel = compiled.built(task).gpu_kernels[0]
    assert gpu_kernel.instructions["tensor cores"] == {"mma.sync": 2 * 256 // 4 // 16}
    assert set(gpu_kernel.instructions["async copies"]) == {"cp.async 16 B"}
    assert not gpu_kernel.spills


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"swap": True, "block_n": 16}, "swap or tma with sliced"),
        ({"tma": True}, "swap or tma with sliced"),
        ({"block_k": 32}, "4 warps share a block_k of 32; accepted: 16 or more a warp"),
        ({"num_warps": 8}, "8 warps share a 16x8 tile"),
    ],
)
def test_what_warps_cannot_share_is_refused(changes, reason):
    problem, config = Matmul(16, 64, 512, layout=Layout.NK), configs.BandConfig(16, 8, 128, 4, 4, 3, sliced=True)
    assert configs.supports(problem, config) is None
    assert reason in configs.supports(problem, replace(config, **changes))


@compiled.on_one_worker
@pytest.mark.parametrize("layout", Layout)
def test_few_rows_reach_wgmma_as_the_columns_of_a_transpose(layout):
    found = [compiled.built(task).gpu_kernels[0].instructions for task in FEW_ROWS[layout]]
    assert [set(instructions["tensor cores"]) for instructions in found] == [{"mma.sync"}, *[{"wgmma.mma_async"}] * 2]
    assert [set(instructions["async copies"]) for instructions in found] == [
        {"cp.async 16 B"},
        {"cp.async 16 B"},
        {"tensor load"},
    ]
