"""wgmma on a weight stored [K, N], and by two warpgroups: the descriptors and transpose bits in tilus' source, by a
model of PTX' layouts, which one warpgroup on a weight stored [N, K] holds."""

import re
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import cuda_source
import pytest
from matmul_cases import check_config
from tilus.backends.emitter import BaseInstEmitter
from tilus.backends.emitters.cuda.wgmma import WgmmaMmaSSEmitter
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.target import nvgpu_sm90a

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Feed
from triton_vs_tilus.kernels_tilus import band, configs, wgmma
from triton_vs_tilus.kernels_tilus.configs import BandConfig

KN = Matmul(256, 256, 1024, layout=Layout.KN)
NK = replace(KN, layout=Layout.NK)
WGMMA = BandConfig(128, 64, 128, 1, 4, 3, engine="wgmma")
ROW_BYTES, ROWS_OF_PATTERN, ELEMENT_BYTES, STEP = 128, 8, 2, 16
UNIT = 16  # bytes, of a descriptor's numbers


class Descriptor(NamedTuple):
    """In bytes, but for the mode. start: in the tile."""

    start: int
    leading: int
    stride: int
    base: int
    swizzle: int


class Instruction(NamedTuple):
    a: Descriptor
    b: Descriptor
    transposed: tuple[bool, bool]


OURS = r"\(uint64_t\((?P<fixed>\d+)ull\) \| \(\(uint64_t\)\(\(*place_of_\w+(?: \+ uint32_t\((?P<further>\d+)u\))?\)+"
THEIRS = (
    r"tilus_cuda_wgmma_encode_smem_descriptor\(\(\(uint32_t\)\(\(*shared_addr\w*(?: \+ (?P<start>\d+)\))? >> 4\)+, "
    r"uint32_t\((?P<leading>\d+)u\), uint32_t\((?P<stride>\d+)u\), "
    r"uint8_t\((?P<base>\d)\), uint8_t\((?P<swizzle>\d)\)\)"
)
CALL = re.compile(r"_shared_1_1_1_(\d)_(\d)\((.*?), \(+&.*?\), (\(uint64.*|tilus_.*)\);")


def source_of(config: BandConfig, problem: Matmul, folder) -> str:
    cuda_source._SOURCES.clear()
    (text,) = cuda_source.cuda_sources(contenders.find("tilus/data_parallel"), problem, config, folder)
    return text


def descriptor(text: str) -> Descriptor:
    """Of an argument of a wgmma, as ours or tilus' own emitter writes it. PTX ISA, "Matrix Descriptor Format"."""
    if ours := re.fullmatch(OURS, text):
        fixed, further = int(ours["fixed"]), int(ours["further"] or 0)
        leading, stride, base = (fixed >> bit & mask for bit, mask in [(16, 0x3FFF), (32, 0x3FFF), (49, 7)])
        return Descriptor(UNIT * (fixed + further & 0x3FFF), UNIT * leading, UNIT * stride, base, fixed >> 62)
    theirs = re.fullmatch(THEIRS, text)
    assert theirs, text
    start, leading, stride, base, swizzle = (int(number or 0) for number in theirs.groups())
    return Descriptor(start, UNIT * leading, UNIT * stride, base, swizzle)


def instructions(text: str) -> list[Instruction]:
    """In the order of K, then of the tile's rows."""
    return [
        Instruction(descriptor(a), descriptor(b), (trans_a == "1", trans_b == "1"))
        for trans_a, trans_b, a, b in CALL.findall(text)
    ]


def swizzled(address: int) -> int:
    """128-byte swizzling: PTX ISA, "Tensor Swizzling Modes"; the 16 bytes of a row by its place among eight."""
    return address ^ (address // ROW_BYTES % 8 * 16)


def placed(row: int, element: int) -> int:
    """Where TMA puts an element of a box whose rows are 128 bytes."""
    return swizzled(row * ROW_BYTES + element * ELEMENT_BYTES)


def read(at: Descriptor, outer: int, k: int, *, transposed: bool) -> int:
    """Where wgmma reads element (outer, k) of an operand of 128-byte swizzle. outer: along M or N.

    A pattern is 8 rows of 128 bytes, the next one a stride away. Rows are of M or N; transposed, of K, and the next 64
    of M or N are a leading offset away (PTX ISA, "Strides" of wgmma).
    """
    assert at.swizzle == 1 and at.base == 0
    if transposed:
        far, row, element = outer // 64 * at.leading, k, outer % 64
    else:
        assert k < 64
        far, row, element = 0, outer, k
    pattern = row // ROWS_OF_PATTERN * at.stride + row % ROWS_OF_PATTERN * ROW_BYTES
    return swizzled(at.start + far + pattern + element * ELEMENT_BYTES)


def place_of(outer: int, k: int, transposed: bool) -> int:
    """Where TMA puts an element of a chunk. Transposed: in tiles of 64 along M or N, one after the other."""
    tile, element = divmod(outer, 64)
    return tile * 64 * ROW_BYTES + placed(k, element) if transposed else placed(outer, k)


def check_places(found: list[Instruction], rows: int, columns: int = 64) -> None:
    """Of an operand that is stored along M or N the instruction says that it is transposed."""
    assert len(found) == 64 // STEP * rows // 64
    for i, one in enumerate(found):
        step, part = divmod(i, rows // 64)
        for k in range(STEP):
            along_k, (a, b) = step * STEP + k, one.transposed
            for row in range(64):
                assert read(one.a, row, k, transposed=a) == place_of(part * 64 + row, along_k, a)
            for column in range(columns):
                assert read(one.b, column, k, transposed=b) == place_of(column, along_k, b)


def test_the_model_holds_for_what_runs_on_a_gpu(tmp_path):
    found = instructions(source_of(WGMMA, NK, tmp_path))
    assert {one.transposed for one in found} == {(False, False)}
    check_places(found, WGMMA.block_m)


@pytest.mark.parametrize("columns", [128, 256])
def test_tiles_of_a_weight_stored_kn_lie_side_by_side(columns, tmp_path):
    """One instruction for all of them: the next 64 columns are 8192 bytes away."""
    text = source_of(replace(WGMMA, block_m=64, block_n=columns, num_stages=2), KN, tmp_path)
    found = instructions(text)
    assert f"wgmma.mma_async.sync.aligned.m64n{columns}k16" in text and text.count("TENSOR_MAP_SWIZZLE_128B") == 2
    assert {one.b.leading for one in found} == {64 * ROW_BYTES}
    check_places(found, 64, columns)


@pytest.mark.parametrize("columns", [64, 128])
def test_swapped_a_weight_stored_kn_is_the_first_operand(columns, tmp_path):
    """columns: of the weight, the rows of a tile's transpose; each 64 of them are an instruction."""
    text = source_of(replace(WGMMA, block_m=32, block_n=columns, engine="wgmma_swapped"), KN, tmp_path)
    found = instructions(text)
    assert {one.transposed for one in found} == {(True, False)}
    check_places(found, columns, 32)


def test_a_weight_stored_kn_is_read_where_tma_puts_it(tmp_path):
    """Of a chunk of 64 of K: rows of K, 128 bytes of N each; an instruction takes 16 of them, 2048 bytes."""
    text = source_of(WGMMA, KN, tmp_path)
    assert re.search(r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.bf16\.bf16 [^;]*%32, %33, 1, 1, 1, 0, 1;", text)
    found = instructions(text)
    assert {one.transposed for one in found} == {(False, True)}
    check_places(found, WGMMA.block_m)
    assert [one.b.start for one in found[::2]] == [0, 2048, 4096, 6144] and {one.b.stride for one in found} == {1024}
    boxes = re.findall(r"tma_box_shape\w*\[\d\] = uint32_t\((\d+)u\)", text)
    assert sorted(boxes) == sorted(["64", "128", "64", "64"]) and text.count("TENSOR_MAP_SWIZZLE_128B") == 2


@pytest.mark.parametrize("block_m, shared, rows", [(128, "a", 64), (64, "b", 64)], ids=["rows", "columns"])
def test_two_warpgroups_read_a_part_of_an_operand_each(block_m, shared, rows, tmp_path):
    """The tile is 128 columns wide; of 64 rows, the warpgroups share the columns."""
    config = replace(WGMMA, block_m=block_m, block_n=128, block_k=64, num_warps=8)
    text = source_of(config, NK, tmp_path)
    of_warpgroup = rf"\(\(\(warp_of_block / 4\) \* {placed(rows, 0)}\) \+ shared_addr\w*\)"
    places = dict(re.findall(r"(place_of_\w+) = (.*);", text))
    arguments = re.findall(r"_m64n(\d+)k16_\w*\(.*?(place_of_rows\w*)\W.*?(place_of_columns\w*)\W", text)
    assert len(arguments) == 64 // STEP
    for n, a, b in arguments:
        assert n == ("128" if shared == "a" else "64")
        own = [bool(re.search(of_warpgroup, places[operand])) for operand in (a, b)]
        assert own == [shared == "a", shared == "b"] and text.count("warp_of_block / ") == 1
    check_places(instructions(text), 64)


def test_the_rank_of_a_clusters_block_is_kept_out_of_its_descriptors(tmp_path):
    """An address has it above the bits of shared memory: in a descriptor those of the leading offset, by which the next
    64 columns of a weight stored [K, N] are found."""
    config = replace(WGMMA, block_m=64, block_n=128, block_k=64, split_k=2)
    (text,) = cuda_source.cuda_sources(contenders.find("tilus/cluster"), KN, config, tmp_path)
    places = re.findall(r"place_of_\w+ = (.*);", text)
    assert len(places) == 2 and all(place.endswith("& uint32_t(16383u))") for place in places), places


@pytest.mark.parametrize(("columns", "block_k"), [(128, 64), (64, 128)])
def test_each_block_of_a_pair_loads_half_of_the_columns_for_both(columns, block_k, tmp_path):
    """One chunk of K or more: the halves lie one after the other, where the product reads one operand."""
    config = replace(WGMMA, block_m=64, block_n=columns, block_k=block_k, engine="wgmma_pairs")
    text = source_of(config, NK, tmp_path)
    (place,) = re.findall(
        r"global_multicast\(\(\(uint32_t\)\(\w+\)\), [^;]*, \((v_\d+) \+ \((v_\d+) \* (\d+)\)\), ", text
    )
    _, part, half = place
    assert int(half) == columns // 2 and re.search(rf"{part} = \(\(int\)blockIdx\.x % 2\);", text)
    boxes = re.findall(r"tma_box_shape\w*\[1\] = uint32_t\((\d+)u\)", text)
    assert sorted(boxes) == sorted(["64", half])
    check_places(instructions(text), 64, columns)


def test_no_block_of_a_pair_waits_for_its_stores_at_the_others_barriers(tmp_path):
    """notes/tilus_hopper.md, 22."""
    text = source_of(replace(WGMMA, block_m=64, engine="wgmma_pairs"), NK, tmp_path)
    assert re.findall(r"mbarrier\.arrive\S*shared::cluster\S*", text) == [
        "mbarrier.arrive.expect_tx.release.cta.shared::cluster.b64"
    ]
    barriers = {"barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait.aligned"}
    assert set(re.findall(r"barrier\.cluster\.[\w.]+", text)) == barriers


@pytest.mark.parametrize("rows, columns", [(64, 64), (64, 128), (128, 64), (256, 128), (192, 64)])
def test_two_warpgroups_hold_each_sum_once(rows, columns):
    """As one warpgroup holds its part: PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"."""
    layout = wgmma.layout_of_sums(rows, columns, 2)
    along_m, along_n = wgmma.warpgroups_along(rows, 2)
    part = wgmma.layout_of_sums(rows // along_m, columns // along_n, 1)
    assert layout.local_size == part.local_size == rows * columns // 256
    held = {}
    for thread, i in product(range(256), range(layout.local_size)):
        group, lane = divmod(thread, 128)
        row, column = part.get_global(spatial_index=lane, local_index=i)
        begin = (group * part.shape[0], 0) if along_m > 1 else (0, group * part.shape[1])
        at = tuple(map(int, layout.get_global(spatial_index=thread, local_index=i)))
        assert at == (begin[0] + row, begin[1] + column)
        held[at] = thread
    assert len(held) == rows * columns
    row, column = map(int, layout.get_global(spatial_index=37, local_index=0))  # warp 1, lane 5
    assert (row, column) == (16 + 5 // 4, 5 % 4 * 2)


def test_without_the_bit_another_element_would_be_read(tmp_path):
    """As tilus 0.2.0 issues it, of the same tile: what the model is for."""
    found = [one._replace(transposed=(False, False)) for one in instructions(source_of(WGMMA, KN, tmp_path))]
    with pytest.raises(AssertionError):
        check_places(found, WGMMA.block_m)


def test_the_emitter_of_tilus_drops_the_bit_and_ours_changes_nothing_else(tmp_path, monkeypatch):
    """notes/tilus_hopper.md, 18. Where this fails, tilus is mended, and its emitter can stand again."""
    ours = {problem: instructions(source_of(WGMMA, problem, tmp_path)) for problem in (NK, KN)}
    monkeypatch.setitem(BaseInstEmitter.REGISTRY[WgmmaMmaSSInst], nvgpu_sm90a, WgmmaMmaSSEmitter)
    theirs = {problem: instructions(source_of(WGMMA, problem, tmp_path)) for problem in (NK, KN)}
    assert theirs[NK] == ours[NK]
    assert theirs[KN] == [one._replace(transposed=(False, False)) for one in ours[KN]]


@pytest.mark.parametrize(
    "config",
    [
        WGMMA,
        replace(WGMMA, block_m=64, block_n=128, block_k=64, num_stages=8),
        replace(WGMMA, block_m=128, block_n=256, block_k=64, num_warps=8, num_stages=4),
        replace(WGMMA, block_m=16, engine="wgmma_swapped"),
        replace(WGMMA, block_m=128, block_n=128, block_k=64, num_warps=8, num_stages=6, engine="wgmma_specialized"),
    ],
    ids=str,
)
def test_it_is_compiled_without_waits_for_each_product(config, tmp_path):
    if compilers.nvcc() is None:
        pytest.skip("there is no nvcc")
    text = source_of(config, KN, tmp_path)
    (tmp_path / "source.cu").write_text(text)
    log = resources.nvcc(tmp_path / "source.cu", "sm_90a")
    assert "Used" in log and "0 bytes spill stores" in log and "serialized" not in log
    barriers = cuda_source.barriers(text)
    assert not [tensor for tensor in cuda_source.tensors(text) if tensor.overlaps(barriers)]


@pytest.mark.parametrize("problem", [NK, KN], ids=["nk", "kn"])
@pytest.mark.parametrize("block_k, num_warps", [(256, 4), (128, 4), (256, 8)])
def test_the_loads_of_a_step_are_shared_by_the_warps(problem, block_k, num_warps, tmp_path):
    """Each warp has a chunk of 64 along K, or, where there are fewer than warps, may have none."""
    text = source_of(BandConfig(64, 64, block_k, 1, num_warps, 2, engine="wgmma"), problem, tmp_path)
    before, loop = text.split("for (int32_t step")
    assert before.count("int32_t warp_of_block = tilus_cuda_shfl_sync_i32(") == 1
    assert loop.count("cp_async_bulk_tensor_2d_shared_global(") == 2
    guards = 2 if block_k // STEP < num_warps else 0
    assert loop.count(f"if (warp_of_block < {block_k // STEP})") == guards
    assert "shfl_sync" not in loop


@pytest.mark.parametrize("name", ["data_parallel", "last_arriver", "cluster", "stream_k"])
@pytest.mark.parametrize(
    ("tile", "num_warps", "engine"),
    [
        ((64, 64), 4, "wgmma"),
        ((64, 128), 4, "wgmma"),
        ((64, 256), 8, "wgmma"),
        ((32, 64), 4, "wgmma_swapped"),
        ((16, 128), 8, "wgmma_swapped"),
        ((128, 128), 8, "wgmma_specialized"),
    ],
    ids=str,
)
def test_it_is_right_on_shapes_that_fit_no_tile(name, tile, num_warps, engine, device):
    kernel = contenders.find(f"tilus/{name}")
    problem = Matmul(70, 136, 584, layout=Layout.KN, epilogue=Epilogue.RELU)
    settings = {"programs": 5} if name == "stream_k" else {}
    split_k = 1 if name in ("data_parallel", "stream_k") else 2
    config = kernel.config_type(*tile, 64, split_k, num_warps, 2, engine=engine, **settings)
    if reason := kernel.supports(problem, config):
        assert name == "stream_k" and engine == "wgmma_specialized", reason
        return
    check_config(kernel, Judge(problem, problem.inputs(device)), config)


@pytest.mark.parametrize(
    ("problem", "config", "reason"),
    [
        (KN, replace(WGMMA, engine="wgmma_pairs"), "read the weight along K: it must be stored [N, K]"),
        (replace(KN, n=260), WGMMA, "N = 260: TMA takes rows of 16-byte multiples"),
        (KN, replace(WGMMA, block_n=96), "128x96x128: not a multiple of 64x64x64"),
        (KN, replace(WGMMA, block_m=64, num_warps=8), "64x64x128: not a multiple of 64x128x64"),
    ],
)
def test_what_it_cannot_take_has_a_reason(problem, config, reason):
    assert configs.supports(KN, WGMMA) is None
    assert reason in configs.supports(problem, config)


def test_a_search_tries_it_on_either_weight():
    tried = {(config.block_n, config.engine) for config in configs.band_space(KN, (1, 2)).configs}
    assert {block_n for block_n, engine in tried if engine == "wgmma"} == {64, 128, 256}
    assert WGMMA.fed == (Feed.TMA, False, "wgmma")


def test_rows_of_the_weight_off_the_alignment_go_through_mma():
    vectors = band.Vectors(k=8, n=4, c=2)
    assert band.settings(KN, WGMMA, vectors).tile.engine == "mma"
    assert band.settings(KN, WGMMA, vectors._replace(n=8)).tile.engine == "wgmma"
