"""The sizes of search spaces, side by side."""

from dataclasses import replace

from triton_vs_tilus.bench import compare, contenders
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.show.spaces import dropped_table, sizes_table
from triton_vs_tilus.common.kernel import MatmulConfig, Space
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import matched, point_of
from triton_vs_tilus.kernels_triton import cluster
from triton_vs_tilus.kernels_triton.configs import BandConfig

PROBLEMS = [Matmul(m, 256, 1024, layout=Layout.NK) for m in (1, 64)]
CONFIGS = (MatmulConfig(16, 16, 64, 2, 1, 3), MatmulConfig(16, 16, 64, 4, 1, 3))


def test_both_languages_stand_side_by_side():
    kernels = [contenders.find(name) for name in ("triton/atomic", "tilus/atomic", "tilus/cluster", "torch/mm")]
    table = sizes_table(kernels, PROBLEMS)
    assert table.header == ["kernel", *(problem.name for problem in PROBLEMS)]
    sizes = [[len(kernel.configs(problem)) for problem in PROBLEMS] for kernel in kernels]
    assert table.lines == [
        ["atomic", *(f"{mine} / {theirs}" for mine, theirs in zip(sizes[0], sizes[1], strict=True))],
        ["cluster", *(f"- / {size}" for size in sizes[2])],
    ]


def test_reasons_are_counted_without_their_numbers_but_with_versions():
    reason = "{} stages take {} bytes, as tilus 0.2.0 has 16x8 tiles (1, {})"
    dropped = {reason.format(3, 9, 2): 2, reason.format(4, 10, 4): 3}
    kernel = replace(contenders.find("tilus/atomic"), space=lambda problem: Space(CONFIGS, dropped))
    assert dropped_table([kernel], PROBLEMS).lines == [
        ["atomic", "tilus", "10", "N stages take N bytes, as tilus 0.2.0 has N tiles N"]
    ]


def test_the_command_prints_them(capsys):
    assert run_command(compare.main, ["--shape", "16x64x256", "--only", "atomic", "--spaces", "-v"]) == 0
    said = capsys.readouterr().out
    assert "configs of Triton / of tilus" in said and "wanted and not there" in said


def test_a_config_of_one_language_is_found_in_the_other():
    """Equal in what both have, or a reason; there and back again."""
    problem = Matmul(64, 256, 7168, layout=Layout.NK)
    for name in ("decompose_k.vector", "stream_k", "sliced_k.fma"):
        triton, tilus = (contenders.find(f"{language}/{name}") for language in ("triton", "tilus"))
        for kernel, other in ((triton, tilus), (tilus, triton)):
            found = {config: matched(other, problem, kernel, config) for config in kernel.configs(problem)[::97]}
            taken = {config: same for config, same in found.items() if not isinstance(same, str)}
            assert taken and all(other.supports(problem, same) is None for same in taken.values())
            for config, same in taken.items():
                here, there = point_of(config), point_of(same)
                shared = here.keys() & there.keys()
                assert {"block_m", "split_k", "num_warps", "num_stages"} <= shared
                assert all(here[field] == there[field] for field in shared)


def test_a_reducer_of_as_many_elements_and_warps_is_found_in_the_other():
    """Triton's go over row ends, tilus' have rows and columns; whether the space holds the config or not."""
    problem = Matmul(256, 256, 7168, layout=Layout.NK)
    triton, tilus = (contenders.find(f"{language}/decompose_k.vector") for language in ("triton", "tilus"))
    for split_k in (4, 9):
        theirs = triton.config_type(64, 64, 64, split_k, 4, 4, reduce_block=512, reduce_warps=4, tma=True)
        ours = matched(tilus, problem, triton, theirs)
        assert (ours.reduce_rows, ours.reduce_block, ours.reduce_warps, ours.reduce_threads) == (2, 256, 4, 1)
        back = matched(triton, problem, tilus, replace(ours, reduce_block=64, reduce_rows=8))
        assert (back.reduce_block, back.reduce_warps) == (512, 4)


def test_another_instruction_is_another_config():
    """Triton's compiler takes wgmma for tiles that were copied; tilus has it for those that TMA brought."""
    problem = Matmul(64, 256, 7168, layout=Layout.NK)
    triton, tilus = (contenders.find(f"{language}/atomic") for language in ("triton", "tilus"))
    copied = triton.config_type(64, 64, 64, 4, 4, 4)
    same = matched(tilus, problem, triton, copied)
    assert same == "the tile is multiplied by mma here, by wgmma there"
    by_tma = replace(copied, tma=True)
    assert matched(tilus, problem, triton, by_tma).engine == "wgmma"
    triton, tilus = (contenders.find(f"{language}/cluster") for language in ("triton", "tilus"))
    assert matched(tilus, problem, triton, copied).engine == "mma"  # its product is batched, and has no wgmma
    same = matched(tilus, problem, triton, by_tma)
    assert same == "the tile is multiplied by wgmma here, by mma there"


def test_triton_cluster_has_the_wanted_tiles_of_tma_as_they_are():
    """Also those of 16 rows and more that other kernels transpose."""
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    found = [config for config in cluster.space(problem).configs if config.tma]
    assert BandConfig(16, 64, 128, split_k=8, num_warps=4, num_stages=4, tma=True) in found
    assert not any(config.swap for config in found)
