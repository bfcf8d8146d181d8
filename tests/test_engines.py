"""The engines of tilus' products: each right on shapes that fit no tile, and chosen by what the operands allow."""

import json
import re
from dataclasses import asdict, replace

import cuda_source
import pytest
import torch

import kernels_tilus
from bench import contenders, resources
from bench.resources import Task, compile_all
from common.accuracy import Judge
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import MatmulConfig
from common.problem import Layout, Matmul
from kernels_tilus import band, decompose_k, stream_k
from kernels_tilus.band import BandConfig
from kernels_triton.band import addressable

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
KN, NK = Layout.KN, Layout.NK

RAGGED = Matmul(70, 130, 1096, layout=NK, epilogue=Epilogue.RELU)
ON_TENSOR_CORES = [
    BandConfig(16, 32, 64, 3, 4, 3),
    BandConfig(64, 64, 64, 3, 4, 2, "wgmma"),
    BandConfig(64, 128, 128, 2, 4, 3, "wgmma"),
    BandConfig(128, 64, 64, 1, 4, 5, "wgmma"),
    BandConfig(64, 64, 128, 3, 4, 2, "wgmma_pairs"),
    BandConfig(64, 128, 128, 2, 4, 3, "wgmma_pairs"),
    BandConfig(16, 64, 256, 2, 4, 2, "wgmma_swapped"),
    BandConfig(32, 128, 64, 4, 4, 4, "wgmma_swapped"),
]
ON_CUDA_CORES = [BandConfig(32, 32, 32, 3, 2, 2, "simt"), BandConfig(128, 64, 64, 1, 4, 2, "simt")]


def check(kernel_file, problem: Matmul, config: MatmulConfig, device: torch.device) -> None:
    inputs = problem.inputs(device)
    out = torch.full((problem.m, problem.n), float("nan"), dtype=problem.out_dtype, device=device)
    kernel_file.matmul(
        inputs.a,
        inputs.b,
        bias=inputs.bias,
        epilogue=problem.epilogue,
        out=out,
        out_dtype=problem.out_dtype,
        config=config,
    )
    accuracy = Judge(problem, inputs).judge(out, 1)
    assert accuracy.ok, accuracy


def reducing(config: BandConfig) -> decompose_k.DecomposeKConfig:
    return decompose_k.DecomposeKConfig(**vars(config))


@pytest.mark.parametrize("config", [*ON_TENSOR_CORES, *ON_CUDA_CORES], ids=str)
@pytest.mark.parametrize("problem", [RAGGED, Matmul(3, 24, 40, FP16, FP32, NK)], ids=lambda problem: problem.name)
def test_every_engine_is_right(config, problem, device):
    if config.engine == "wgmma_pairs" and problem is not RAGGED:
        pytest.skip("one tile of rows has no pair")
    check(decompose_k, problem, reducing(config), device)


@pytest.mark.parametrize("name", ["tiled", "semaphore.fp32", "semaphore.in_place", "atomic", "last_arriver"])
def test_pairs_meet_by_every_protocol(name, device):
    """Three tiles of columns; an even number of rows, the last of them filled by six; the last band is short."""
    kernel = contenders.find(f"tilus/{name}")
    problem = Matmul(198, 130, 1096, layout=NK, epilogue=Epilogue.RELU)
    config = kernel.config_type(64, 64, 128, 1 if name == "tiled" else 4, 4, 3, "wgmma_pairs")
    inputs = problem.inputs(device)
    out = torch.full((problem.m, problem.n), float("nan"), dtype=problem.out_dtype, device=device)
    for _ in range(2):
        kernel.launch(inputs.a, inputs.b, epilogue=problem.epilogue, out=out, config=config)
        assert Judge(problem, inputs).judge(out, kernel.roundings(config)).ok


@pytest.mark.parametrize("problem", [
    Matmul(33, 65, 77, FP32, layout=NK),
    Matmul(33, 65, 77, FP32, layout=KN, epilogue=Epilogue.BIAS_RELU),
    Matmul(5, 7, 33, BF16, layout=KN),
    Matmul(1, 1, 1, FP16, layout=NK),
], ids=lambda problem: problem.name)  # fmt: skip
def test_cuda_cores_take_every_dtype_and_size(problem, device):
    for config in (band.default_config(problem, 4), *ON_CUDA_CORES):
        assert band.supports(problem, config) is None
        check(decompose_k, problem, reducing(config), device)


@pytest.mark.parametrize("engine", ["mma", "wgmma", "wgmma_swapped"])
def test_a_program_that_walks_several_tiles_goes_on_counting_phases(engine, device):
    """7 tiles of 5 steps among 4 programs, with 3 stages: every tile begins at another stage."""
    config = stream_k.StreamKConfig(64, 64, 64, 1, 4, 3, engine, programs=4)
    check(stream_k, Matmul(64, 7 * 64, 5 * 64, layout=NK), config, device)


def test_a_bias_off_the_alignment_is_read_element_by_element(device):
    problem = Matmul(9, 64, 128, layout=NK, epilogue=Epilogue.BIAS_RELU)
    inputs = problem.inputs(device)
    packed = torch.zeros(65, dtype=BF16, device=device)
    packed[1:] = inputs.bias
    assert band.vectors(problem, inputs.a, inputs.b, inputs.bias).n == 8
    assert band.vectors(problem, inputs.a, inputs.b, packed[1:]).n == 1
    config = reducing(ON_TENSOR_CORES[1])
    out = decompose_k.matmul(inputs.a, inputs.b, epilogue=problem.epilogue, bias=packed[1:], config=config)
    assert Judge(problem, inputs).judge(out, 1).ok


def test_the_stride_of_a_single_row_or_column_tells_of_no_alignment(device):
    a = torch.ones(128, 1, dtype=BF16, device=device).T
    b = torch.ones(128, 1, dtype=BF16, device=device)
    assert a.stride() == b.stride() == (1, 1)
    problem = matmul_problem(a, b, Epilogue.NONE, None, None, None)
    assert band.vectors(problem, a, b).k == 8
    assert addressable(problem, a, b)
    assert decompose_k.matmul(a, b).item() == 128


@pytest.mark.parametrize("elements", [1, 2, 4])
@pytest.mark.parametrize("config", [ON_TENSOR_CORES[1], ON_TENSOR_CORES[6]], ids=str)
def test_operands_off_the_alignment_go_through_an_engine_that_takes_them(config, elements, device):
    problem = Matmul(9, 64, 128, layout=NK)
    inputs = problem.inputs(device)
    wide_a = torch.zeros(9, 128 + elements, dtype=BF16, device=device)
    wide_a[:, elements:] = inputs.a
    engine = band.settings(problem, config, band.vectors(problem, wide_a[:, elements:], inputs.b)).tile.engine
    assert engine == ("simt" if elements == 1 else "mma")
    out = decompose_k.matmul(wide_a[:, elements:], inputs.b, config=reducing(config))
    assert Judge(problem, inputs).judge(out, 1).ok


@pytest.mark.parametrize(
    "problem, config, reason",
    [
        (replace(RAGGED, layout=KN), ON_TENSOR_CORES[1], "must be stored [N, K]"),
        (replace(RAGGED, k=1092), ON_TENSOR_CORES[1], "K = 1092: TMA takes rows of 16-byte multiples"),
        (RAGGED, replace(ON_TENSOR_CORES[1], num_warps=8), "8 warps: wgmma of tilus 0.2.0 is one warpgroup's"),
        (RAGGED, replace(ON_TENSOR_CORES[1], block_m=32), "32x64x64: not a multiple of 64x16x64"),
        (RAGGED, replace(ON_TENSOR_CORES[6], block_n=32), "32x16x256: not a multiple of 64x16x64"),
        (RAGGED, replace(ON_TENSOR_CORES[2], block_n=512, block_k=64), "a TMA copies 256 rows at most"),
        (RAGGED, replace(ON_TENSOR_CORES[3], block_n=256, num_stages=2), "more than 128 sums a thread"),
        (RAGGED, replace(ON_TENSOR_CORES[1], num_stages=15), "bytes of shared memory"),
        (RAGGED, replace(ON_TENSOR_CORES[4], block_k=64), "block_k is 64; accepted: a multiple of 128, half of it"),
        (replace(RAGGED, m=129), ON_TENSOR_CORES[4], "M = 129 is 3 tiles of 64; accepted: an even number"),
        (RAGGED, replace(ON_TENSOR_CORES[1], engine="cublas"), "engine is 'cublas'; accepted: mma, wgmma"),
        (RAGGED, replace(ON_TENSOR_CORES[0], num_warps=3), "3 warps do not divide"),
        (RAGGED, replace(ON_CUDA_CORES[0], num_stages=3), "num_stages is 3; accepted: 2"),
        (RAGGED, replace(ON_CUDA_CORES[0], block_m=8, block_n=8), "do not divide a 8x8 tile"),
        (Matmul(4, 16, 129), ON_TENSOR_CORES[0], "K = 129 is odd"),
        (Matmul(4, 7, 128), ON_TENSOR_CORES[0], "N = 7 is odd"),
        (Matmul(4, 16, 128, FP32, layout=NK), ON_TENSOR_CORES[1], "fp32 inputs: tensor cores round them to TF32"),
    ],
)
def test_what_an_engine_cannot_take_has_a_reason(problem, config, reason):
    assert reason in band.supports(problem, config)


@pytest.mark.parametrize("problem", [RAGGED, Matmul(4, 7, 129), Matmul(64, 64, 512, FP32)], ids=lambda p: p.name)
def test_the_space_holds_what_the_problem_can_run_on(problem):
    engines = {config.engine for config in band.space(problem, (1, 2))}
    assert engines == ({"mma", "wgmma", "wgmma_pairs", "wgmma_swapped"} if problem is RAGGED else {"simt"})


def test_what_has_no_pairs_of_tiles_says_so():
    problem, tile = Matmul(256, 64, 1024, layout=NK), (64, 64, 128, 1, 4, 3, "wgmma_pairs")
    for name, words in (
        ("cluster", "has clusters of its own"),
        ("stream_k", "programs walk tiles of their own"),
        ("tiled", "group_m is 3; accepted: an even number"),
    ):
        kernel = contenders.find(f"tilus/{name}")
        config = kernel.config_type(*tile, **({"group_m": 3} if name == "tiled" else {}))
        assert words in kernel.supports(problem, config)
        engines = {config.engine for config in kernel.configs(problem)}
        assert engines - {"wgmma_pairs"} and ("wgmma_pairs" in engines) is (name == "tiled")


def test_a_config_survives_json_and_names_its_engine_where_it_is_not_the_usual():
    for config in (*ON_TENSOR_CORES, *ON_CUDA_CORES):
        assert BandConfig(**json.loads(json.dumps(asdict(config)))) == config
    assert str(ON_TENSOR_CORES[0]) == "16x32x64 s3 w4 p3"
    assert str(ON_TENSOR_CORES[1]) == "64x64x64 s3 w4 p2 wgmma"


COMPILED = {
    "mma": (BandConfig(32, 64, 128, 1, 4, 4), {"mma.sync"}, {"cp.async 16 B"}),
    "wgmma": (BandConfig(128, 128, 64, 1, 4, 6, "wgmma"), {"wgmma.mma_async"}, {"tensor load"}),
    "wgmma_pairs": (BandConfig(64, 128, 128, 1, 4, 4, "wgmma_pairs"), {"wgmma.mma_async"}, {"tensor load"}),
    "wgmma_swapped": (BandConfig(16, 64, 128, 1, 4, 5, "wgmma_swapped"), {"wgmma.mma_async"}, {"tensor load"}),
    "simt": (BandConfig(64, 64, 32, 1, 4, 2, "simt"), set(), set()),
}


@pytest.mark.parametrize("engine", COMPILED)
def test_an_engine_is_compiled_to_its_instructions_without_spills(engine, tmp_path):
    config, products, copies = COMPILED[engine]
    kernel = contenders.find("tilus/tiled")
    (built,) = compile_all(
        [Task(kernel, Matmul(256, 256, 7168, layout=NK), kernel.config_from(vars(config)), "space", "sm_90a")], tmp_path
    )
    if built.skipped:
        pytest.skip(built.skipped)
    assert not built.error
    (gpu_kernel,) = built.gpu_kernels
    assert gpu_kernel.spills == 0 and not gpu_kernel.over("sm_90a")
    assert set(gpu_kernel.instructions.get("tensor cores", {})) == products
    assert set(gpu_kernel.instructions.get("async copies", {})) == copies


@pytest.mark.parametrize("engine", ["wgmma", "wgmma_pairs", "wgmma_swapped"])
@pytest.mark.parametrize("name", ["tiled", "atomic", "stream_k"])
def test_a_product_is_started_while_the_one_before_goes_on(name, engine, tmp_path):
    """ptxas waits for each where it thinks that somebody reads the sums in between, and says so."""
    kernel, (config, *_) = contenders.find(f"tilus/{name}"), COMPILED[engine]
    if reason := kernel.supports(SPLIT, own := kernel.config_from(vars(config))):
        pytest.skip(reason)
    if contenders.nvcc() is None:
        pytest.skip("there is no nvcc")
    (source,) = cuda_source.cuda_sources(kernel, SPLIT, own, tmp_path)
    (tmp_path / "source.cu").write_text(source)
    log = resources.nvcc(tmp_path / "source.cu", "sm_90a")
    assert "Used" in log and "injected" not in log and "serialized" not in log
    assert len(re.findall(r"^\s+tilus_cuda_wgmma_wait_group_[01]\(\);", source, re.MULTILINE)) == 2


SPLIT = Matmul(256, 256, 7168, layout=NK)
BAND_KERNELS = [kernel for kernel in kernels_tilus.KERNELS if issubclass(kernel.config_type, BandConfig)]


@pytest.mark.parametrize("engine", ["wgmma", "wgmma_pairs", "wgmma_swapped"])
@pytest.mark.parametrize("kernel", BAND_KERNELS, ids=lambda kernel: kernel.full_name)
def test_nothing_is_stored_where_barriers_are(kernel, engine, tmp_path):
    """PTX leaves undefined what comes of it; tilus gives barriers memory of tiles that are freed before the end."""
    configs = [config for config in kernel.configs(SPLIT) if config.engine == engine]
    if not configs:
        pytest.skip(kernel.supports(SPLIT, replace(kernel.default_config(SPLIT), engine=engine)))
    config = max(configs, key=lambda config: (config.split_k > 1, config.num_stages))
    sources = cuda_source.cuda_sources(kernel, SPLIT, config, tmp_path)
    (source,) = (source for source in sources if cuda_source.barriers(source))
    barriers = cuda_source.barriers(source)
    tensors = cuda_source.tensors(source)
    assert barriers.end - barriers.begin == 8 * config.num_stages * (2 if engine == "wgmma_pairs" else 1)
    assert len(tensors) >= 2
    assert not [tensor for tensor in tensors if tensor.overlaps(barriers)]
