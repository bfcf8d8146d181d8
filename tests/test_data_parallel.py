"""data_parallel, in every language that has it; and how its persistent programs go from tile to tile."""

import matmul_cases as cases
import pytest
import torch
from ttgir import ttgir

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.kernel import GroupedConfig, grid_of, is_grouped
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus.configs import ENGINES


class TestDataParallel(cases.MatmulTests):
    name = "data_parallel"


@pytest.mark.parametrize("kernel", cases.kernels_named("data_parallel"), ids=lambda kernel: kernel.full_name)
def test_a_split_is_refused(kernel):
    problem = Matmul(16, 32, 256)
    config = cases.replace(kernel.default_config(problem), split_k=2)
    a, b, _ = problem.inputs("cpu")
    with pytest.raises(ValueError, match="split_k is 2; accepted: 1"):
        kernel.launch(a, b, config=config)


@pytest.mark.parametrize("group_m", [1, 2, 3, 8])
@pytest.mark.parametrize("kernel", cases.kernels_named("data_parallel"), ids=lambda kernel: kernel.full_name)
def test_every_group_of_rows_covers_all_tiles(kernel, group_m, device):
    """Five rows of tiles: in whole groups, and in groups of which the last has fewer."""
    problem = Matmul(70, 40, 64, layout=Layout.NK)
    inputs = problem.inputs(device)
    config = cases.replace(kernel.default_config(problem), block_m=16, block_n=16, num_warps=1, group_m=group_m)
    out = cases.run(kernel, problem, inputs, config=config)
    cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)


@pytest.mark.parametrize("group_m, blocks", [(1, (1, 3, 10)), (2, (2, 3, 6)), (3, (3, 3, 4)), (8, (5, 3, 2))])
def test_a_grid_has_a_block_a_tile_and_split_and_a_group_no_more_rows_than_there_are(group_m, blocks):
    problem, config = Matmul(70, 40, 64), GroupedConfig(16, 16, 32, 2, 1, 3, group_m)
    assert grid_of(problem, config).blocks == blocks
    assert is_grouped(problem, config) is (group_m < 5)


# Programs that walk tiles

PERSISTENT = [kernel for kernel in cases.kernels_named("data_parallel") if kernel.variant == "persistent"]
WALKED = Matmul(150, 200, 584, layout=Layout.NK)  # 12 tiles of 64 x 64; 10 steps of 64 a tile, in 3 stages
FED = {
    "triton": [{"tma": False}, {"tma": True}, {"swap": True, "tma": True}],
    "tilus": [{"engine": engine} for engine in ENGINES.values() if engine not in ("wgmma_pairs", "mma_sliced")],
}


@pytest.mark.parametrize("programs", [1, 5, 12, 40])
@pytest.mark.parametrize(
    ("kernel", "fed"),
    [(kernel, fed) for kernel in PERSISTENT for fed in FED[kernel.language.value]],
    ids=lambda value: value.full_name if hasattr(value, "full_name") else "-".join(map(str, value.values())),
)
def test_any_number_of_programs_walks_all_tiles(kernel, fed, programs, device):
    """Bitwise as a program a tile has them: each element's sum has one order. 1 program walks 12 tiles and 5 walk 2 or
    3: while C is stored, a producer warp waits for stages that the next tile's steps free."""
    inputs = WALKED.inputs(device)
    alone = contenders.find(f"{kernel.language.value}/data_parallel")
    of_tile = {"block_m": 64, "block_n": 64, "block_k": 64, "num_warps": 4, "num_stages": 3, "group_m": 2, **fed}
    config = cases.replace(kernel.default_config(WALKED), **of_tile, programs=programs)
    assert kernel.supports(WALKED, config) is None
    out = cases.run(kernel, WALKED, inputs, config=config)
    cases.assert_right(kernel, WALKED, Judge(WALKED, inputs), out, config)
    expected = cases.run(alone, WALKED, inputs, config=cases.replace(alone.default_config(WALKED), **of_tile))
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("changed", "words"), [({"programs": 0}, "programs is 0; accepted: 1 or more"), ({"split_k": 2}, "split_k is 2")]
)
@pytest.mark.parametrize("kernel", PERSISTENT, ids=lambda kernel: kernel.full_name)
def test_configs_that_are_none_are_refused(kernel, changed, words):
    a, b, _ = WALKED.inputs("cpu")
    with pytest.raises(ValueError, match=words):
        kernel.launch(a, b, config=cases.replace(kernel.default_config(WALKED), **changed))


def test_it_is_asked_for_by_name():
    known = contenders.all_contenders()
    name = "triton/data_parallel.persistent"
    assert name not in {kernel.full_name for kernel in contenders.choose(known)}
    assert name in {kernel.full_name for kernel in contenders.choose(known, only=["data_parallel"])}


def loops(text: str) -> list[list[str]]:
    """The lines within each loop of a printed program, those of loops within it, too."""
    lines = text.splitlines()
    found = []
    for start, line in enumerate(lines):
        if "scf.for" in line:
            end = line[: len(line) - len(line.lstrip())] + "}"
            found.append(lines[start + 1 : next(i for i in range(start, len(lines)) if lines[i].startswith(end))])
    return found


def test_triton_copies_the_next_tile_during_this_one(tmp_path):
    """The loop of products is one over all tiles, in which tiles are stored: what is copied ahead ends with no tile."""
    problem, name = Matmul(4096, 4096, 4096, layout=Layout.NK), "triton/data_parallel.persistent"
    tile = dict(block_m=128, block_n=256, block_k=64, num_warps=8, num_stages=3)
    default = contenders.find(name).default_config(problem)
    configs = [cases.replace(default, **tile, tma=tma) for tma in (False, True)]
    for program in ttgir(name, problem, configs, tmp_path):
        (within,) = (lines for lines in loops(program) if any("warp_group_dot " in line for line in lines))
        assert any("tt.store" in line for line in within)
