"""Gluon's kernels: what they compile to, where they sit out; and on a GPU what every matmul kernel is held to."""

from collections import Counter
from dataclasses import replace
from math import prod

import compiled
import matmul_cases
import pytest
import torch
import triton
from packaging.version import Version

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.bench.references import gluon
from triton_vs_tilus.bench.references.gluon import cluster, configs, decompose_k
from triton_vs_tilus.bench.references.gluon.configs import FIRST_TRITON, GluonConfig
from triton_vs_tilus.bench.references.gluon.decompose_k import GluonDecomposeKConfig
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import TMA_PAIRS_TILES, TMA_TILES, TMA_TRANSPOSED_TILES, Feed, Tile
from triton_vs_tilus.kernels_triton.decompose_k import _reduce_vector_kernel

NEW_ENOUGH = Version(triton.__version__) >= Version(FIRST_TRITON)
of_new_triton = pytest.mark.skipif(not NEW_ENOUGH, reason=f"needs Triton {FIRST_TRITON}")
FEW, MANY = (Matmul(m, 256, 7168, layout=Layout.NK) for m in (16, 1024))
STORED_KN = replace(MANY, layout=Layout.KN)


def task(kernel, problem: Matmul, config: GluonConfig) -> Task:
    return Task(kernel, problem, config, "space", "sm_90a")


PUSHED = task(cluster.KERNEL, MANY, GluonConfig(128, 128, 64, 8, 8, 4))
PUSHED_SWAPPED = task(cluster.KERNEL, FEW, GluonConfig(16, 64, 128, 8, 4, 4, swap=True))
PARTIALS = task(decompose_k.KERNEL, MANY, GluonDecomposeKConfig(128, 128, 64, 8, 8, 6))
PARTIALS_KN = task(decompose_k.KERNEL, STORED_KN, GluonDecomposeKConfig(128, 128, 64, 8, 8, 6))
PARTIALS_SWAPPED = task(decompose_k.KERNEL, FEW, GluonDecomposeKConfig(16, 64, 128, 28, 4, 4, swap=True))
PAIRS = task(decompose_k.KERNEL, MANY, GluonDecomposeKConfig(128, 128, 64, 8, 8, 6, pairs=True))
TASKS = [PUSHED, PUSHED_SWAPPED, PARTIALS, PARTIALS_KN, PARTIALS_SWAPPED, PAIRS]
if NEW_ENOUGH:
    compiled.wanted(*TASKS)


def task_id(one: Task) -> str:
    return f"{one.kernel.full_name} {one.problem.name} {one.config}"


@pytest.mark.parametrize("kernel", gluon.KERNELS, ids=lambda kernel: kernel.full_name)
class TestGluon(matmul_cases.MatmulTests):
    """Skipped under an older Triton, and without a GPU, as Gluon has no interpreter."""

    @pytest.mark.gpu
    @pytest.mark.parametrize("stages", [2, 3, 6])
    def test_a_ring_of_any_length_comes_round(self, kernel, stages, device):
        """Bands of fewer steps than stages, of as many, and of more."""
        for k in (64, 1024, 8 * 64 * 7):
            problem = Matmul(70, 72, k, layout=Layout.NK)
            config = replace(kernel.default_config(problem), split_k=2, num_stages=stages)
            check(kernel, problem, config, device)

    @pytest.mark.gpu
    @pytest.mark.parametrize("layout", Layout)
    @pytest.mark.parametrize("swap", [False, True])
    @pytest.mark.parametrize("num_warps", [4, 8])
    def test_either_operand_feeds_the_rows_of_either_layout(self, kernel, layout, swap, num_warps, device):
        problem = Matmul(136, 264, 1032, torch.float16, layout=layout)
        rows = 16 * num_warps
        blocks = (32, rows) if swap else (rows, 32)
        config = replace(
            kernel.default_config(problem),
            **dict(zip(("block_m", "block_n"), blocks, strict=True)),
            **{"swap": swap, "num_warps": num_warps, "split_k": 4},
        )
        check(kernel, problem, config, device)


def check(kernel, problem: Matmul, config: GluonConfig, device: torch.device) -> None:
    inputs = problem.inputs(device)
    out = matmul_cases.run(kernel, problem, inputs, config=config)
    matmul_cases.assert_right(kernel, problem, matmul_cases.Judge(problem, inputs), out, config)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", Layout)
def test_a_pair_of_blocks_shares_a_tile_of_b(layout, device):
    kernel = decompose_k.KERNEL
    for m in (65, 136, 1024):  # a second block without and with few rows
        problem = Matmul(m, 264, 1032, layout=layout)
        matmul_cases.skip_unless_supported(kernel, problem)
        check(kernel, problem, GluonDecomposeKConfig(64, 64, 64, 3, 4, 3, pairs=True), device)


@pytest.mark.gpu
@pytest.mark.parametrize("split_k", cluster.SPLITS)
def test_every_block_of_a_cluster_sums_its_rows(split_k, device):
    problem = Matmul(200, 96, 1000, layout=Layout.NK)
    matmul_cases.skip_unless_supported(cluster.KERNEL, problem)
    check(cluster.KERNEL, problem, GluonConfig(64, 64, 64, split_k, 4, 3), device)


@pytest.mark.parametrize("each", gluon.KERNELS, ids=lambda each: each.full_name)
def test_it_sits_out_with_the_reason(each, monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.8.0")
    assert each.supports(FEW, None).startswith("Triton 3.8.0; accepted: Triton 3.9 and newer")
    monkeypatch.setattr(triton, "__version__", "3.9.0")
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    assert each.supports(FEW, None) == "needs a CUDA device: Gluon has no interpreter"
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(configs.devices, "capability", lambda: (10, 0))
    assert each.supports(FEW, None) == "wgmma needs compute capability 9.0"
    monkeypatch.setattr(configs.devices, "capability", lambda: (9, 0))
    assert each.supports(FEW, None) is None


@pytest.fixture
def on_hopper(monkeypatch):
    """As on a machine that has all that Gluon's kernels take."""
    monkeypatch.setattr(triton, "__version__", FIRST_TRITON)
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    monkeypatch.setattr(configs.devices, "capability", lambda: (9, 0))


@pytest.mark.parametrize(
    ("problem", "changed", "reason"),
    [
        (replace(FEW, dtype=torch.float32), {}, "accepted: bf16 and fp16"),
        (replace(FEW, k=7172), {}, "multiples of 16 bytes, as TMA copies"),
        (replace(STORED_KN, n=260), {}, "multiples of 16 bytes, as TMA copies"),
        (MANY, {"block_m": 32}, "32 rows for 4 warps"),
        (MANY, {"num_warps": 8}, "64 rows for 8 warps"),
        (MANY, {"block_k": 96}, "powers of two"),
        (MANY, {"num_stages": 16}, "of shared memory"),
        (MANY, {"block_m": 128, "block_n": 256}, "more than 128 sums a thread"),
    ],
)
@pytest.mark.parametrize("each", gluon.KERNELS, ids=lambda each: each.full_name)
def test_what_it_cannot_run_is_refused(each, problem, changed, reason, on_hopper):
    config = each.config_from(vars(GluonConfig(64, 64, 64, 8, 4, 4)) | changed)
    assert reason in each.supports(problem, config)


@pytest.mark.parametrize("changed", [{"split_k": 1}, {"split_k": 16}, {"pairs": True}])
def test_a_cluster_has_2_to_8_blocks_that_share_no_tile(changed, on_hopper):
    config = replace(GluonConfig(64, 64, 64, 8, 4, 4), **changed)
    assert "accepted: 2, 4, 8, no pairs" in cluster.KERNEL.supports(MANY, config)


def test_pairs_need_two_tiles_along_m(on_hopper):
    config = GluonDecomposeKConfig(64, 64, 64, 8, 4, 4, pairs=True)
    assert decompose_k.KERNEL.supports(MANY, config) is None
    assert "of two tiles along M" in decompose_k.KERNEL.supports(replace(MANY, m=64), config)


@pytest.mark.parametrize("each", gluon.KERNELS, ids=lambda each: each.full_name)
@pytest.mark.parametrize("problem", [FEW, MANY, STORED_KN], ids=lambda problem: problem.name)
def test_the_space_and_the_default_can_be_run(each, problem, on_hopper):
    assert each.configs(problem)
    for config in (each.default_config(problem), *each.configs(problem)):
        assert each.supports(problem, config) is None, config


@pytest.mark.parametrize("tokens", [16, 64, 128, 256, 512, 1024])
def test_the_default_s_clusters_run_at_once_and_its_reducers_are_few(tokens):
    problem = replace(MANY, m=tokens)
    config = cluster.default_config(problem)
    blocks = prod(configs.blocks_of(problem, config).blocks)
    assert blocks <= cluster.MOST_BLOCKS
    elements = decompose_k.default_config(problem).reduce_block
    assert problem.m * problem.n <= elements * decompose_k.REDUCER_BLOCKS


def test_every_way_of_tmas_has_its_config():
    wanted = [
        *(Tile(*tile, Feed.TMA) for tile in TMA_TILES),
        *(Tile(*tile, Feed.TMA, transposed=True) for tile in TMA_TRANSPOSED_TILES),
        *(Tile(*tile, Feed.TMA_PAIRS) for tile in TMA_PAIRS_TILES),
    ]
    for tile in wanted:
        config = configs.config_of(tile, 8)
        assert (config.fed.feed, config.fed.transposed, config.fed.instruction) == (tile.feed, tile.transposed, "wgmma")
    assert configs.config_of(Tile(64, 64, 64, 4, 4), 8) == "Gluon's kernels copy by TMA alone"


@pytest.mark.parametrize("only", ["gluon", "gluon/cluster"])
def test_it_takes_part_on_request(only):
    known = contenders.all_contenders()
    assert not {kernel.full_name for kernel in contenders.choose(known)} & {k.full_name for k in gluon.KERNELS}
    assert "gluon/cluster" in {kernel.full_name for kernel in contenders.choose(known, only=[only])}


@of_new_triton
def test_the_second_launch_is_triton_s_own():
    made = decompose_k.plan(MANY, GluonDecomposeKConfig(128, 128, 64, 8, 8, 6), contiguous(MANY))
    first, second = made.launches
    assert second.kernel is _reduce_vector_kernel and second.options["SPLIT_K"] == 8
    assert first.grid == (8, 2, 8) and made.scratch == (8, 1024, 256)


@of_new_triton
def test_what_tma_cannot_address_is_refused():
    shifted = contiguous(MANY)._replace(align_a=8)
    with pytest.raises(ValueError, match="accepted: rows that begin at multiples of 16 bytes"):
        cluster.plan(MANY, PUSHED.config, shifted)


def instructions(one: Task) -> dict[str, Counter[str]]:
    return compiled.built(one).gpu_kernels[0].instructions


@of_new_triton
@compiled.on_one_worker
@pytest.mark.parametrize("one", TASKS, ids=task_id)
def test_it_is_wgmma_of_tiles_that_tma_loads_without_spills(one):
    built = compiled.built(one)
    assert not built.error and not built.broken
    first = built.gpu_kernels[0]
    assert first.spills == 0
    assert set(first.instructions["tensor cores"]) == {"wgmma.mma_async"}
    pushed = {"st.async 8 B"} if one.kernel is cluster.KERNEL else set()
    assert set(first.instructions["async copies"]) == {"tensor load"} | pushed


@of_new_triton
@compiled.on_one_worker
def test_a_cluster_waits_for_all_of_it_twice():
    """One as it starts, one as it ends, each said by both roles of warps: partials are awaited at an mbarrier."""
    for one in (PUSHED, PUSHED_SWAPPED):
        assert instructions(one)["barriers"]["barrier.cluster"] == 2 * 2 * 2
    assert instructions(PAIRS)["barriers"]["barrier.cluster"] == 2 * 2 * 2
    assert "barrier.cluster" not in instructions(PARTIALS)["barriers"]
