"""How a tile gets from a wgmma to memory, of partial sums or of C: which banks of shared memory, which lines of L2."""

from dataclasses import replace

import cuda_source
import pytest

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import WIDEST_LOAD
from triton_vs_tilus.kernels_tilus import partials, wgmma
from triton_vs_tilus.kernels_tilus.mma import layout_of_total

PROBLEM = Matmul(256, 256, 4096, layout=Layout.NK)
LINE = 128  # bytes of L2
WARP = 32  # threads
TILES = [(64, 64, 1), (64, 128, 1), (128, 128, 2), (64, 256, 2)]  # rows, columns, warpgroups


@pytest.mark.parametrize(("rows", "columns", "warpgroups"), TILES)
def test_half_a_warp_stores_its_pairs_to_all_banks_at_once(rows, columns, warpgroups):
    held = wgmma.layout_of_sums(rows, columns, warpgroups)
    places_of = partials.tile_layout(rows, columns, 4).as_numpy_grid()
    for lane, pair in [(0, 0), (16, 0), (48, 2), (0, held.local_size - 2)]:
        places = [
            places_of[tuple(map(int, held.get_global(spatial_index=lane + thread, local_index=pair + one)))]
            for thread in range(16)
            for one in range(2)
        ]
        assert {place % partials.BANKS for place in places} == set(range(partials.BANKS))


@pytest.mark.parametrize(("rows", "columns", "warpgroups"), TILES)
def test_a_warp_stores_its_pairs_of_half_precision_to_all_banks_at_once(rows, columns, warpgroups):
    held = wgmma.layout_of_sums(rows, columns, warpgroups)
    places_of = partials.tile_layout(rows, columns, 2).as_numpy_grid()
    for first, pair in [(0, 0), (32, 0), (0, held.local_size - 2)]:
        words = {
            int(places_of[tuple(map(int, held.get_global(spatial_index=first + lane, local_index=pair)))]) // 2
            for lane in range(WARP)
        }
        assert {word % partials.BANKS for word in words} == set(range(partials.BANKS))


@pytest.mark.parametrize("nbytes", [2, 4])
@pytest.mark.parametrize(("rows", "columns"), [(64, 16), (64, 32), *((rows, columns) for rows, columns, _ in TILES)])
def test_a_place_holds_one_element(rows, columns, nbytes):
    places = partials.tile_layout(rows, columns, nbytes).as_numpy_grid()
    assert sorted(places.flat) == list(range(rows * columns))


@pytest.mark.parametrize("nbytes", [2, 4])
@pytest.mark.parametrize(("rows", "columns", "warpgroups"), TILES)
def test_a_warp_stores_whole_lines(rows, columns, warpgroups, nbytes):
    vector = WIDEST_LOAD // nbytes
    wide = layout_of_total(rows, columns, 4 * warpgroups, vector)
    for first in range(0, wide.local_size, vector):
        stored = {
            tuple(map(int, wide.get_global(spatial_index=lane, local_index=first + one)))
            for lane in range(WARP)
            for one in range(vector)
        }
        lines = {(row, column * nbytes // LINE) for row, column in stored}
        assert len(stored) * nbytes == len(lines) * LINE


@pytest.mark.parametrize(
    ("engine", "tile", "nbytes"),
    [("wgmma", (64, 128), 16), ("wgmma_specialized", (64, 64), 16), ("wgmma_swapped", (32, 64), 4)],
)
def test_what_a_thread_stores_of_partial_sums(engine, tile, nbytes, tmp_path):
    kernel = contenders.find("tilus/decompose_k.vector_pdl")
    config = replace(kernel.configs(PROBLEM)[0], block_m=tile[0], block_n=tile[1], block_k=64, split_k=4)
    config = replace(config, num_warps=4, num_stages=4, engine=engine)
    assert kernel.supports(PROBLEM, config) is None
    partial_sums, _ = cuda_source.cuda_sources(kernel, PROBLEM, config, tmp_path)
    stored = partial_sums[partial_sums.index("StoreGlobal") :]
    assert ("uint4 *mem_ptr" in stored) == (nbytes == 16) and "uint2" not in stored
    assert ("StoreShared" in partial_sums) == (nbytes == 16)


@pytest.mark.parametrize("name", ["data_parallel", "data_parallel.persistent"])
@pytest.mark.parametrize(
    ("engine", "n", "wide"),
    [("wgmma", 256, True), ("wgmma_specialized", 256, True), ("wgmma_swapped", 256, False), ("wgmma", 252, False)],
)
def test_what_a_thread_stores_of_c(name, engine, n, wide, tmp_path):
    """Whole lines by wgmma, where C's rows of 16 bytes are aligned; else pairs of a row, or of a column."""
    kernel, problem = contenders.find(f"tilus/{name}"), replace(PROBLEM, n=n)
    tile = {"block_m": 64, "block_n": 64, "block_k": 64, "split_k": 1, "num_warps": 4, "num_stages": 4}
    config = replace(kernel.default_config(problem), **tile, engine=engine)
    (text,) = cuda_source.cuda_sources(kernel, problem, config, tmp_path)
    stored = text[text.index("StoreGlobal") :]
    assert ("uint4 *mem_ptr" in stored) == ("StoreShared" in text) == wide
