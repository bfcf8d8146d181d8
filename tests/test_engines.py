"""The engines of tilus' products: each right on shapes that fit no tile, and chosen by what the operands allow."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import compiled
import cuda_source
import pytest
import torch
from matmul_cases import check_config, skip_unless_supported
from tilus.backends.contexts.smem_alloc_ctx import SharedMemoryAllocator

from triton_vs_tilus import kernels_tilus
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.common import call, compilers, tuned
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.plan import Placement, Plan, Slot, contiguous, placement_of
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import band, cluster, configs, data_parallel, decompose_k, stream_k
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_triton.launching import addressable

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
KN, NK = Layout.KN, Layout.NK

RAGGED = Matmul(70, 130, 584, layout=NK, epilogue=Epilogue.RELU)
SLICED = BandConfig(16, 8, 128, 3, 4, 3, engine="mma_sliced")
SLICED_BY_8 = BandConfig(16, 16, 128, 4, 8, 3, engine="mma_sliced")
ON_TENSOR_CORES = [
    BandConfig(16, 32, 64, 3, 4, 3),
    BandConfig(64, 64, 64, 3, 4, 2, engine="wgmma"),
    BandConfig(64, 128, 128, 2, 4, 3, engine="wgmma"),
    BandConfig(128, 64, 64, 1, 4, 5, engine="wgmma"),
    BandConfig(64, 64, 128, 3, 4, 2, engine="wgmma_pairs"),
    BandConfig(64, 128, 128, 2, 4, 3, engine="wgmma_pairs"),
    BandConfig(16, 64, 256, 2, 4, 2, engine="wgmma_swapped"),
    BandConfig(32, 128, 64, 4, 4, 4, engine="wgmma_swapped"),
    # Two warpgroups, which share the rows of a tile, or the columns.
    BandConfig(128, 64, 64, 3, 8, 3, engine="wgmma"),
    BandConfig(64, 64, 64, 3, 8, 2, engine="wgmma"),
    BandConfig(64, 64, 128, 3, 8, 2, engine="wgmma_pairs"),
    BandConfig(32, 128, 64, 4, 8, 4, engine="wgmma_swapped"),
    BandConfig(64, 128, 64, 3, 4, 2, engine="wgmma_specialized"),
    BandConfig(128, 64, 64, 3, 8, 3, engine="wgmma_specialized"),
    BandConfig(64, 64, 128, 3, 8, 2, engine="wgmma_specialized"),
    # Halves of the columns for each block of a pair, in one chunk of K; the fewest columns.
    BandConfig(64, 128, 64, 3, 4, 4, engine="wgmma_pairs"),
    BandConfig(64, 16, 64, 3, 4, 3, engine="wgmma_pairs"),
    SLICED,
    BandConfig(32, 16, 256, 2, 8, 2, engine="mma_sliced"),
]


BAND_KERNELS = [kernel for kernel in kernels_tilus.KERNELS if issubclass(kernel.config_type, BandConfig)]
VECTOR = contenders.find("tilus/decompose_k.vector")
UNSPLIT = [kernel for kernel in BAND_KERNELS if kernel.name in ("data_parallel", "stream_k")]
ON_CUDA_CORES = [BandConfig(32, 32, 32, 3, 2, 2, engine="simt"), BandConfig(128, 64, 64, 1, 4, 2, engine="simt")]


def reducing(config: BandConfig) -> decompose_k.DecomposeKConfig:
    return decompose_k.DecomposeKConfig(**vars(config))


@pytest.mark.parametrize("config", [*ON_TENSOR_CORES, *ON_CUDA_CORES], ids=str)
@pytest.mark.parametrize("problem", [RAGGED, Matmul(3, 24, 40, FP16, FP32, NK)], ids=lambda problem: problem.name)
def test_every_engine_is_right(config, problem, device):
    if config.engine == "wgmma_pairs" and problem is not RAGGED:
        pytest.skip("one tile of rows has no pair")
    check_config(VECTOR, Judge(problem, problem.inputs(device)), reducing(config))


@pytest.mark.parametrize("kernel", BAND_KERNELS, ids=lambda kernel: kernel.full_name)
@pytest.mark.parametrize("num_warps", [4, 8])
def test_warps_that_share_k_meet_by_every_protocol(kernel, num_warps, device):
    """Two tiles of rows and two of columns, both ragged; the last of the bands is short."""
    problem = Matmul(21, 26, 840, layout=NK, epilogue=Epilogue.RELU)
    config = kernel.config_type(16, 16, 128, 1 if kernel in UNSPLIT else 4, num_warps, 3, engine="mma_sliced")
    assert kernel.supports(problem, config) is None
    judge = Judge(problem, problem.inputs(device))
    for _ in range(2):
        check_config(kernel, judge, config)


@pytest.mark.parametrize("name", ["data_parallel", "semaphore.fp32", "semaphore.in_place", "atomic", "last_arriver"])
def test_pairs_meet_by_every_protocol(name, device):
    """Three tiles of columns; an even number of rows, the last of them filled by six; the last band is short."""
    kernel = contenders.find(f"tilus/{name}")
    problem = Matmul(198, 130, 840, layout=NK, epilogue=Epilogue.RELU)
    config = kernel.config_type(64, 64, 128, 1 if name == "data_parallel" else 4, 4, 3, engine="wgmma_pairs")
    judge = Judge(problem, problem.inputs(device))
    for _ in range(2):
        check_config(kernel, judge, config)


@pytest.mark.parametrize("problem", [
    Matmul(33, 65, 77, FP32, layout=NK),
    Matmul(33, 65, 77, FP32, layout=KN, epilogue=Epilogue.BIAS_RELU),
    Matmul(5, 7, 33, BF16, layout=KN),
    Matmul(1, 1, 1, FP16, layout=NK),
], ids=lambda problem: problem.name)  # fmt: skip
def test_cuda_cores_take_every_dtype_and_size(problem, device):
    for config in (configs.default_config(problem, 4), *ON_CUDA_CORES):
        assert configs.supports(problem, config) is None
        check_config(VECTOR, Judge(problem, problem.inputs(device)), reducing(config))


@pytest.mark.parametrize("engine", ["mma", "wgmma", "wgmma_swapped"])
def test_a_program_that_walks_several_tiles_goes_on_counting_phases(engine, device):
    """7 tiles of 5 steps among 4 programs, with 3 stages: every tile begins at another stage."""
    problem = Matmul(64, 7 * 64, 5 * 64, layout=NK)
    config = stream_k.ProgramsConfig(64, 64, 64, 1, 4, 3, engine=engine, programs=4)
    check_config(stream_k.KERNEL, Judge(problem, problem.inputs(device)), config)


def test_a_bias_off_the_alignment_is_read_element_by_element(device):
    problem = Matmul(9, 64, 128, layout=NK, epilogue=Epilogue.BIAS_RELU)
    inputs = problem.inputs(device)
    packed = torch.zeros(65, dtype=BF16, device=device)
    packed[1:] = inputs.bias
    for bias, width in ((inputs.bias, 8), (packed[1:], 1)):
        assert band.vectors(problem, placement_of(problem, inputs.a, inputs.b, bias, None)).n == width
    config = reducing(ON_TENSOR_CORES[1])
    out = decompose_k.matmul(inputs.a, inputs.b, epilogue=problem.epilogue, bias=packed[1:], config=config)
    assert Judge(problem, inputs).judge(out, 1).ok


def test_the_stride_of_a_single_row_or_column_tells_of_no_alignment(device):
    a = torch.ones(128, 1, dtype=BF16, device=device).T
    b = torch.ones(128, 1, dtype=BF16, device=device)
    assert a.stride() == b.stride() == (1, 1)
    problem = matmul_problem(a, b, Epilogue.NONE, None, None, None)
    placement = placement_of(problem, a, b, None, None)
    assert band.vectors(problem, placement).k == 8
    assert addressable(problem, placement)
    assert decompose_k.matmul(a, b).item() == 128


@pytest.mark.parametrize("stride", [(1 << 32) + 8, 1])
def test_the_stride_of_a_single_row_of_out_tells_of_no_alignment_and_no_end(stride, device):
    problem = Matmul(1, 64, 128)
    inputs = problem.inputs(device)
    out = torch.empty_strided((1, 64), (stride, 1), dtype=BF16, device=device)
    placement = placement_of(problem, inputs.a, inputs.b, None, out)
    assert band.vectors(problem, placement).c == 8 and placement.out_is_contiguous(problem)
    assert decompose_k.matmul(inputs.a, inputs.b, out=out) is out
    assert Judge(problem, inputs).judge(out, 1).ok


def test_the_stride_of_a_single_k_tells_of_no_alignment():
    weight = torch.ones(64, 1, dtype=BF16)  # stored [N, 1]
    assert (b := weight.T).stride() == (1, 1)
    problem = Matmul(4, 64, 1)
    assert problem.layout is KN and placement_of(problem, None, b, None, None).stride_bk == 64


def test_a_single_column_is_contiguous_whatever_its_stride():
    column = torch.ones(8, 4, dtype=BF16)[:, :1]
    apart = torch.ones(8, 4, dtype=BF16).T.contiguous().T[:, :1]  # strides (1, 8)
    for out, contiguous_rows in ((apart, True), (column, False)):
        problem = Matmul(8, 1, 64)
        placement = placement_of(problem, None, torch.ones(64, 1, dtype=BF16), None, out)
        assert placement.out_is_contiguous(problem) is contiguous_rows


def test_a_placement_has_the_strides_and_the_alignment_of_each_tensor_and_a_plan_its_dtype():
    problem = Matmul(8, 16, 32, out_dtype=FP32)
    memory = torch.zeros(2048, dtype=BF16)
    lying = {(8, 32): (40, 1), (32, 16): (24, 1), (16,): (1,), (8, 16): (16, 128)}
    tensors = [memory.as_strided(*each, 1 << place) for place, each in enumerate(lying.items())]
    placement = placement_of(problem, *tensors)
    assert placement == Placement(40, 24, 1, 16, 128, 2, 4, 8, 16)
    assert not placement.out_is_contiguous(problem) and contiguous(problem).out_is_contiguous(problem)
    plan = Plan(problem, placement, (), read_as={Slot.A: torch.int32})
    slots = [Slot.A, Slot.B, Slot.BIAS, Slot.C, Slot.SCRATCH, Slot.COUNTERS, Slot.SUMS]
    assert [plan.alignment_of(slot) for slot in slots] == [2, 4, 8, 16, 32, 32, 32]
    assert [plan.dtype_of(slot) for slot in slots] == [torch.int32, BF16, BF16, FP32, FP32, torch.int32, FP32]


@pytest.mark.parametrize("elements", [1, 2, 4])
@pytest.mark.parametrize("config", [ON_TENSOR_CORES[1], ON_TENSOR_CORES[6]], ids=str)
def test_operands_off_the_alignment_go_through_an_engine_that_takes_them(config, elements, device):
    problem = Matmul(9, 64, 128, layout=NK)
    inputs = problem.inputs(device)
    wide_a = torch.zeros(9, 128 + elements, dtype=BF16, device=device)
    wide_a[:, elements:] = inputs.a
    placement = placement_of(problem, wide_a[:, elements:], inputs.b, None, None)
    engine = band.settings(problem, config, band.vectors(problem, placement)).tile.engine
    assert engine == "mma"
    out = decompose_k.matmul(wide_a[:, elements:], inputs.b, config=reducing(config))
    assert Judge(problem, inputs).judge(out, 1).ok


@pytest.mark.parametrize(
    "problem, config, reason",
    [
        (replace(RAGGED, layout=KN), ON_TENSOR_CORES[6], "N = 130: TMA takes rows of 16-byte multiples"),
        (replace(RAGGED, k=580), ON_TENSOR_CORES[1], "K = 580: TMA takes rows of 16-byte multiples"),
        (RAGGED, replace(ON_TENSOR_CORES[1], num_warps=2), "2 warps; accepted: 4 or 8, as wgmma is a warpgroup's"),
        (RAGGED, replace(ON_TENSOR_CORES[1], num_warps=8, block_n=16), "64x16x64: not a multiple of 64x32x64"),
        (RAGGED, replace(ON_TENSOR_CORES[1], block_m=32), "32x64x64: not a multiple of 64x16x64"),
        (RAGGED, replace(ON_TENSOR_CORES[6], block_n=32), "32x16x256: not a multiple of 64x16x64"),
        (RAGGED, replace(ON_TENSOR_CORES[2], block_n=512, block_k=64), "a TMA copies 256 rows at most"),
        (RAGGED, replace(ON_TENSOR_CORES[3], block_n=256, num_stages=2), "more than 128 sums a thread"),
        (RAGGED, replace(ON_TENSOR_CORES[1], num_stages=15), "bytes of shared memory"),
        *((RAGGED, replace(ON_TENSOR_CORES[at], num_stages=1), "num_stages is 1; accepted: 2 or") for at in (1, 4, 6)),
        (RAGGED, replace(ON_TENSOR_CORES[1], engine="wgmma_specialized", num_stages=0), "num_stages is 0; accepted: 2"),
        (RAGGED, BandConfig(64, 64, 256, 1, 16, 2, engine="mma_sliced"), "262144 bytes of shared memory"),
        (replace(RAGGED, m=129), ON_TENSOR_CORES[4], "M = 129 is 3 tiles of 64; accepted: an even number"),
        (RAGGED, replace(ON_TENSOR_CORES[1], engine="cublas"), "engine is 'cublas'; accepted: mma, mma_sliced, wgmma"),
        (RAGGED, replace(ON_TENSOR_CORES[0], num_warps=3), "3 warps do not divide"),
        (RAGGED, replace(SLICED, block_k=32), "4 warps share a block_k of 32; accepted: multiples of 16 a"),
        (RAGGED, replace(SLICED, num_warps=8), "8 warps share a 16x8 tile; accepted: as many elements a"),
        (RAGGED, replace(ON_CUDA_CORES[0], num_stages=3), "num_stages is 3; accepted: 2"),
        (RAGGED, replace(ON_CUDA_CORES[0], block_m=8, block_n=8), "do not divide a 8x8 tile"),
        (Matmul(4, 16, 128, FP32, layout=NK), ON_TENSOR_CORES[1], "fp32 inputs: tensor cores round them to TF32"),
    ],
)
def test_what_an_engine_cannot_take_has_a_reason(problem, config, reason):
    assert reason in configs.supports(problem, config)


@pytest.mark.parametrize("problem", [RAGGED, Matmul(4, 7, 129), Matmul(64, 64, 512, FP32)], ids=lambda p: p.name)
def test_the_space_holds_what_the_problem_can_run_on(problem):
    engines = {config.engine for config in configs.band_space(problem, (1, 2)).configs}
    if problem is RAGGED:
        assert engines == {"mma", "mma_sliced", "wgmma", "wgmma_pairs", "wgmma_specialized", "wgmma_swapped"}
    else:
        assert engines == ({"simt"} if problem.dtype is FP32 else {"mma", "mma_sliced"})


def test_a_tile_that_needs_too_many_registers_is_refused():
    """tilus itself refuses it as it builds the program."""
    problem, tile = Matmul(64, 256, 7168, layout=NK), (64, 128, 128, 4, 4, 3)
    assert "takes 256 registers of 4 warps" in configs.supports(problem, BandConfig(*tile))
    assert configs.supports(problem, BandConfig(64, 128, 64, 4, 4, 3)) is None


@pytest.mark.parametrize("name", ["last_arriver", "atomic", "stream_k", "cluster"])
@pytest.mark.parametrize("blocks, sharing", [((48, 16), "48x16|12x16"), ((16, 48), "16x48|4x48")])
def test_a_tile_of_partial_sums_that_its_threads_share_unevenly_is_refused(name, blocks, sharing):
    """tilus has no layout for it; a kernel that reads no partial sums multiplies such tiles."""
    problem, kernel = Matmul(64, 240, 7168, layout=NK), contenders.find(f"tilus/{name}")
    config = BandConfig(*blocks, 64, 1 if name == "stream_k" else 4, 4, 2, engine="mma_sliced")
    assert contenders.find("tilus/semaphore.in_place").supports(problem, config) is None
    config = kernel.config_type(**vars(config))
    assert re.fullmatch(
        rf"4 warps share ({sharing}) partial sums; accepted: .* a thread", kernel.supports(problem, config)
    )
    assert kernel.supports(problem, replace(config, block_m=16, block_n=32)) is None


@pytest.mark.parametrize("name", ["last_arriver", "atomic", "stream_k"])
def test_a_tile_of_partial_sums_fits_shared_memory(name):
    problem, kernel = Matmul(512, 512, 1024, FP32), contenders.find(f"tilus/{name}")
    config = BandConfig(256, 256, 16, 1 if name == "stream_k" else 2, 16, 2, engine="simt")
    assert configs.supports(problem, config) is None
    reason = kernel.supports(problem, kernel.config_type(**vars(config)))
    assert "a 256x256 tile of partial sums takes 263168 bytes" in reason


@pytest.mark.parametrize(
    "name, extents, dimension",
    [("data_parallel", (1, 1, 2**31 - 8), "K"), ("sliced_k.mma", (1, 2**31 - 8, 1), "N")],
)
def test_tiles_that_end_beyond_int32_are_refused(name, extents, dimension):
    kernel = contenders.find(f"tilus/{name}")
    config = kernel.config_type(16, 16, 512, 8 if name == "sliced_k.mma" else 1, 8, 2)
    assert f"{dimension} in whole tiles has 2147483648 elements" in kernel.supports(Matmul(*extents, layout=NK), config)


def test_what_has_no_pairs_of_tiles_says_so():
    problem, tile = Matmul(256, 64, 1024, layout=NK), (64, 64, 128, 1, 4, 3)
    for name, words in (
        ("cluster", "its pairs are clusters of their own"),
        ("stream_k", "programs walk tiles of their own"),
        ("data_parallel", "group_m is 3; accepted: an even number"),
    ):
        kernel = contenders.find(f"tilus/{name}")
        config = kernel.config_type(*tile, engine="wgmma_pairs", group_m=3 if name == "data_parallel" else 8)
        assert words in kernel.supports(problem, config)
        engines = {config.engine for config in kernel.configs(problem)}
        assert engines - {"wgmma_pairs"} and ("wgmma_pairs" in engines) is (name == "data_parallel")


def test_a_config_survives_json_and_names_its_engine_where_it_is_not_the_usual():
    for config in (*ON_TENSOR_CORES, *ON_CUDA_CORES):
        assert BandConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert str(ON_TENSOR_CORES[0]) == "16x32x64 s3 w4 p3 group_m=8"
    assert str(ON_TENSOR_CORES[1]) == "64x64x64 s3 w4 p2 group_m=8 wgmma"


COMPILED = {
    "mma": (BandConfig(32, 64, 128, 1, 4, 4), {"mma.sync"}, {"cp.async 16 B"}),
    "mma_sliced": (BandConfig(32, 32, 128, 1, 4, 4, engine="mma_sliced"), {"mma.sync"}, {"cp.async 16 B"}),
    "wgmma": (BandConfig(128, 128, 64, 1, 4, 6, engine="wgmma"), {"wgmma.mma_async"}, {"tensor load"}),
    "wgmma_specialized": (
        BandConfig(128, 128, 64, 1, 8, 6, engine="wgmma_specialized"),
        {"wgmma.mma_async"},
        {"tensor load"},
    ),
    "wgmma_pairs": (BandConfig(64, 128, 128, 1, 4, 4, engine="wgmma_pairs"), {"wgmma.mma_async"}, {"tensor load"}),
    "wgmma_swapped": (BandConfig(16, 64, 128, 1, 4, 5, engine="wgmma_swapped"), {"wgmma.mma_async"}, {"tensor load"}),
    "simt": (BandConfig(64, 64, 32, 1, 4, 2, engine="simt"), set(), set()),
}


SPLIT = Matmul(256, 256, 7168, layout=NK)
BAND_FILES = list({kernel.name: kernel for kernel in reversed(BAND_KERNELS)}.values())  # variants share a product
ON_WGMMA = ["wgmma", "wgmma_specialized", "wgmma_pairs", "wgmma_swapped"]
TWO_BARRIERS = {"wgmma_specialized", "wgmma_pairs"}  # a stage


def engine_task(engine: str) -> Task:
    kernel = contenders.find("tilus/data_parallel")
    return Task(kernel, SPLIT, kernel.config_from(vars(COMPILED[engine][0])), "space", "sm_90a")


ENGINE_TASKS = {engine: compiled.wanted(engine_task(engine)) for engine in COMPILED}


@compiled.on_one_worker
@pytest.mark.parametrize("engine", COMPILED)
def test_an_engine_is_compiled_to_its_instructions_without_spills(engine):
    _, products, copies = COMPILED[engine]
    (outcome,) = map(compiled.built, ENGINE_TASKS[engine])
    assert not outcome.error
    (gpu_kernel,) = outcome.gpu_kernels
    assert gpu_kernel.spills == 0 and not gpu_kernel.over("sm_90a")
    assert set(gpu_kernel.instructions.get("tensor cores", {})) == products
    assert set(gpu_kernel.instructions.get("async copies", {})) == copies


def wgmma_config(kernel, engine: str) -> MatmulConfig:
    """The config of COMPILED, split where the kernel splits. Skips the test where the kernel does not support it."""
    config = kernel.config_from(vars(COMPILED[engine][0]))
    if kernel not in UNSPLIT:
        config = replace(config, split_k=4)
    skip_unless_supported(kernel, SPLIT, config)
    return config


def source(full_name: str, engine: str) -> str:
    """The CUDA source of the kernel's GPU kernel that multiplies."""
    kernel = contenders.find(full_name)
    with TemporaryDirectory() as folder:
        sources = cuda_source.cuda_sources(kernel, SPLIT, wgmma_config(kernel, engine), Path(folder))
    (of_product,) = (source for source in sources if cuda_source.barriers(source))
    return of_product


@pytest.mark.parametrize(
    ("kernel", "engine"),
    [
        ("data_parallel", "wgmma_pairs"),
        ("atomic", "wgmma_swapped"),
        ("stream_k", "wgmma"),
        ("last_arriver", "wgmma_specialized"),
    ],
)
def test_a_product_is_started_while_the_one_before_goes_on(kernel, engine, tmp_path):
    """ptxas waits for each where it thinks that somebody reads the sums in between, and says so."""
    if compilers.nvcc() is None:
        pytest.skip("there is no nvcc")
    text = source(f"tilus/{kernel}", engine)
    (tmp_path / "source.cu").write_text(text)
    log = resources.nvcc(tmp_path / "source.cu", "sm_90a")
    assert "Used" in log and "injected" not in log and "serialized" not in log
    assert len(re.findall(r"^\s+tilus_cuda_wgmma_wait_group_[01]\(\);", text, re.MULTILINE)) == 2


def test_two_live_tensors_in_one_place_are_noticed(monkeypatch):
    """By every test that reads CUDA source: tilus 0.2.0 allocates so after two tensors were freed."""
    monkeypatch.setattr(SharedMemoryAllocator, "allocate", cuda_source._allocated_apart)
    allocator = SharedMemoryAllocator()
    for address in [allocator.allocate(1024), allocator.allocate(8192)]:
        allocator.free(address)
    allocator.allocate(16384)
    with pytest.raises(AssertionError, match="two live tensors in the same shared memory"):
        allocator.allocate(4096)


@pytest.mark.parametrize("engine", ON_WGMMA)
@pytest.mark.parametrize("kernel", BAND_FILES, ids=lambda kernel: kernel.full_name)
def test_nothing_is_stored_where_barriers_are(kernel, engine):
    """PTX leaves undefined what comes of it; tilus gives barriers memory of tiles that are freed before the end."""
    text, config = source(kernel.full_name, engine), COMPILED[engine][0]
    barriers = cuda_source.barriers(text)
    tensors = cuda_source.tensors(text)
    for_pushes = "st.async" in text
    assert barriers.end - barriers.begin == 8 * (config.num_stages * (2 if engine in TWO_BARRIERS else 1) + for_pushes)
    assert len(tensors) >= 2
    assert not [tensor for tensor in tensors if tensor.overlaps(barriers)]


@pytest.mark.parametrize("align", [2, 8], ids=lambda align: f"{align} bytes")
def test_every_searched_config_has_an_engine_for_tensors_off_the_alignment(align):
    """With its own tile, or the kernel's default one; and no problem of the tables is left out."""
    found = 0
    for slug in tuned.devices():
        for name, entries in tuned.table(slug).items():
            if not name.startswith("tilus/"):
                continue
            kernel = contenders.find(name)
            for entry in entries if kernel.op == Matmul.op else ():
                problem = Matmul.from_fields(entry["problem"])
                config = kernel.config_from(entry["config"])
                if not isinstance(config, BandConfig) or problem.dtype is FP32 or kernel.supports(problem, config):
                    continue
                placement = contiguous(problem)._replace(align_a=align, align_b=align)
                chosen = kernel.backend.fit(kernel, problem, config, placement)
                assert kernel.supports(problem, chosen) is None, (name, problem.name, chosen)
                vectors = band.vectors(problem, placement)
                assert band.settings(problem, chosen, vectors).tile.engine == chosen.engine, (name, problem.name)
                found += chosen != config
    assert found > 50


def test_a_tile_that_no_engine_takes_off_the_alignment_is_refused():
    a = torch.randn(16 * 256 + 4).bfloat16()[4:].view(16, 256)
    config = BandConfig(64, 128, 128, 1, 4, 2, engine="wgmma_swapped")
    found = r"config is 64x128x128.*a has row stride 256, .*a, b, bias are aligned to 8, "
    with pytest.raises(ValueError, match=rf"{found}.*with engine mma.*256 registers"):
        data_parallel.matmul(a, torch.randn(16, 256).bfloat16().T, config=config)


def test_a_searched_config_off_the_alignment_is_right(monkeypatch, device):
    """Of warps that share k, fed through registers."""
    problem = Matmul(16, 64, 512, layout=NK)
    monkeypatch.setattr(call, "chosen_config", lambda kernel, problem, config, device: config or SLICED_BY_8)
    inputs = problem.inputs(device)
    a = torch.empty(16 * 512 + 1, dtype=BF16, device=device)[1:].view(16, 512).copy_(inputs.a)
    out = cluster.matmul(a, inputs.b)
    assert Judge(problem, inputs).judge(out).ok
