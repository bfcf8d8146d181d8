"""w4a16, every variant of both languages; and the layout that tilus takes the weight in, to and fro."""

import random
import re
from dataclasses import replace

import compiled
import pytest
import torch
import triton
from cuda_source import cuda_sources
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_cases import (
    assert_right,
    check_any_leftovers,
    check_at_once,
    check_config,
    check_replays,
    check_turns,
    run,
    skip_unless_supported,
)
from ttgir import ptx, ttgir

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.bench.references import torch_dequantized_mm
from triton_vs_tilus.common import compilers, tuned
from triton_vs_tilus.common import w4a16 as shared
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.quantization import GPTQWeight, pack_rows, pack_zeros, quantize
from triton_vs_tilus.common.w4a16 import W4A16Config, W4A16Inputs, W4A16Matmul, checked, tiles_of
from triton_vs_tilus.kernels_tilus.interpreter import Schedule, using
from triton_vs_tilus.kernels_triton.interpreter import programs_in

NAME = "w4a16"
FP16, BF16 = torch.float16, torch.bfloat16
KERNELS = [kernel for kernel in (*kernels_triton.KERNELS, *kernels_tilus.KERNELS) if kernel.op == W4A16Matmul.op]
BY_NAME = {kernel.full_name: kernel for kernel in KERNELS}
TRITON, TILUS = BY_NAME["triton/w4a16.last_arriver"], BY_NAME["tilus/w4a16.last_arriver"]
SLICED = [kernel for kernel in KERNELS if kernel.variant == shared.SLICED_K]

PROBLEMS = [
    W4A16Matmul(1, 64, 256),
    W4A16Matmul(3, 72, 256, symmetric=True),  # N no multiple of a tile
    W4A16Matmul(17, 40, 384, BF16, group_size=64),  # ragged everywhere
    W4A16Matmul(16, 8, 128, BF16, symmetric=True),
    W4A16Matmul(5, 72, 96, group_size=32),
    W4A16Matmul(33, 24, 64, BF16, group_size=32, symmetric=True),
]
LARGE_PROBLEMS = [
    *[W4A16Matmul(m, 4096, 4096) for m in (1, 32, 64, 128)],
    *[
        W4A16Matmul(16, 4096, 4096, dtype, size, symmetric)
        for dtype in (FP16, BF16)
        for size in shared.GROUP_SIZES
        for symmetric in (False, True)
    ],
    W4A16Matmul(7, 4104, 8192, BF16),
    W4A16Matmul(100, 1000, 11008, FP16, 64),
    W4A16Matmul(16, 16384, 16384),
]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)
each_sliced = pytest.mark.parametrize("kernel", SLICED, ids=lambda kernel: kernel.full_name)
each_counting_kernel = pytest.mark.parametrize(
    "kernel", [k for k in KERNELS if k.variant in ("atomic", "last_arriver", "semaphore")], ids=lambda k: k.full_name
)


def small_config(kernel: Kernel, problem: W4A16Matmul, split_k: int, interleaved: bool = False) -> W4A16Config:
    """Small tiles; one split where the variant has no other; of sliced_k as many warps, or up to a power of two."""
    if kernel in SLICED:
        return shared.sliced_config(problem, 32, num_warps=1 << (split_k - 1).bit_length(), num_stages=3)
    splits = 1 if kernel.variant == "data_parallel" else split_k
    return W4A16Config(16, 32, min(64, problem.group_size), splits, 1, 3, interleaved)


def few_configs(kernel: Kernel, problem: W4A16Matmul) -> list[W4A16Config]:
    return [
        kernel.default_config(problem),
        small_config(kernel, problem, 2, interleaved=True),
        small_config(kernel, problem, 8),  # more than there are steps
    ]


@each_kernel
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_matches_float64(kernel, problem, device):
    skip_unless_supported(kernel, problem)
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    for config in few_configs(kernel, problem):
        assert kernel.supports(problem, config) is None
        check_config(kernel, judge, config)


@pytest.mark.gpu
@each_kernel
@pytest.mark.parametrize("problem", LARGE_PROBLEMS, ids=lambda problem: problem.name)
def test_large_problems_match(kernel, problem, device):
    skip_unless_supported(kernel, problem)
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    # Another one of the space for each problem: every config takes seconds to compile.
    for config in [kernel.default_config(problem), random.Random(problem.name).choice(kernel.configs(problem))]:
        check_config(kernel, judge, config)


@st.composite
def cases(draw):
    """A problem, and a config that fits both languages."""
    group_size = draw(st.sampled_from(shared.GROUP_SIZES))
    problem = W4A16Matmul(
        m=draw(st.integers(1, 20)),
        n=8 * draw(st.integers(1, 9)),
        k=group_size * draw(st.integers(1, 320 // group_size)),
        dtype=draw(st.sampled_from([FP16, BF16])),
        group_size=group_size,
        symmetric=draw(st.booleans()),
    )
    warps = draw(st.sampled_from([1, 2]))
    config = W4A16Config(
        block_m=16,
        block_n=32 * warps,
        block_k=draw(st.sampled_from([size for size in (32, 64, 128) if size <= group_size])),
        split_k=draw(st.integers(1, 5)),
        num_warps=warps,
        num_stages=draw(st.integers(2, 4)),
        interleaved=draw(st.booleans()),
    )
    return problem, config, draw(st.integers(0, 1000))


@pytest.mark.parametrize("kernel", [TRITON, TILUS], ids=lambda kernel: kernel.full_name)
@settings(max_examples=10, deadline=None)
@given(case=cases())
def test_drawn_problems_match(kernel, device, case):
    problem, config, seed = case
    inputs = problem.inputs(device, seed)
    check_config(kernel, Judge(problem, inputs), config)


@each_kernel
def test_a_weight_that_was_quantized(kernel, device):
    """A weight of floats, quantized: the answer is near that of the floats, as near as four bits come."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(256, 40, generator=generator).to(device) / 16
    a = torch.randn(4, 256, generator=generator).to(device, FP16)
    problem = W4A16Matmul(4, 40, 256, group_size=64)
    inputs = W4A16Inputs(a, quantize(weight, 64))
    config = small_config(kernel, problem, 2)
    out = run(kernel, problem, inputs, config=config)
    assert_right(kernel, problem, Judge(problem, inputs), out, config)
    exact = a.double() @ weight.double()
    assert ((out - exact).norm() / exact.norm()).item() < 0.15


@each_kernel
def test_strided_operands(kernel, device):
    """A as a slice of a wider matrix of NaN, C as every other column of one: what lies between stays untouched."""
    problem = W4A16Matmul(9, 40, 128)
    inputs = problem.inputs(device)
    wide_a = torch.full((9, 152), float("nan"), dtype=FP16, device=device)
    wide_a[:, 16:144] = inputs.a
    base = torch.full((11, 80), -7.0, dtype=FP16, device=device)
    config = small_config(kernel, problem, 2)
    run(kernel, problem, inputs._replace(a=wide_a[:, 16:144]), out=base[1:-1, ::2], config=config)
    assert_right(kernel, problem, Judge(problem, inputs), base[1:-1, ::2].contiguous(), config)
    assert (base[:, 1::2] == -7.0).all() and (base[[0, -1]] == -7.0).all()


@each_kernel
def test_a_single_row_of_the_output_may_have_any_row_stride(kernel, device):
    """As nothing lies a row further: here that would be beyond what tilus' offsets reach."""
    problem = W4A16Matmul(1, 40, 128)
    inputs, out = problem.inputs(device), torch.empty(1, 40, dtype=FP16, device=device)
    config = small_config(kernel, problem, 2)
    run(kernel, problem, inputs, out=out.as_strided((1, 40), (1 << 31, 1)), config=config)
    assert_right(kernel, problem, Judge(problem, inputs), out, config)


@each_kernel
def test_nothing_beside_the_weight_is_read(kernel, device):
    """All parts of the weight, between parts that are as bad as can be, give the same bits."""
    problem = W4A16Matmul(5, 24, 64, group_size=32)
    inputs = problem.inputs(device)
    config = small_config(kernel, problem, 1)
    expected = run(kernel, problem, inputs, config=config)
    (a, weight), by_keyword = kernel.arguments(problem, inputs)

    def fenced(part: torch.Tensor | int | None) -> torch.Tensor | int | None:
        if not isinstance(part, torch.Tensor):
            return part
        bad = float("nan") if part.is_floating_point() else torch.iinfo(part.dtype).max
        held = torch.full((part.numel() + 4096,), bad, dtype=part.dtype, device=device)
        inside = held[2048:-2048].view(part.shape)
        return inside.copy_(part)

    inside = type(weight)(*map(fenced, vars(weight).values()))
    assert torch.equal(kernel.launch(a, inside, config=config, **by_keyword), expected)


@each_kernel
def test_repeats_on_a_dirty_workspace(kernel, device):
    problems = (W4A16Matmul(4, 32, 256), W4A16Matmul(20, 40, 128))
    check_turns(kernel, [(problem, small_config(kernel, problem, 3)) for problem in problems], device)


@each_counting_kernel
def test_leftovers_count_for_nothing(kernel, device, monkeypatch):
    problem = W4A16Matmul(20, 40, 192, group_size=64)
    check_any_leftovers(kernel, problem, small_config(kernel, problem, 3), device, monkeypatch)


@each_kernel
def test_what_offsets_do_not_reach_is_refused(kernel):
    refused = {
        W4A16Matmul(16, 65536, 65536): "the weight has 2147483648 elements",
        W4A16Matmul(65536, 1024, 32768): "A has 2147483648 elements",
        W4A16Matmul(65536, 32768, 1024): "C has 2147483648 elements",
    }
    for problem, reason in refused.items():
        refusal = kernel.supports(problem, None)
        assert refusal == (f"{reason}: tilus' offsets are int32" if kernel.language is Language.TILUS else None)


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.language is Language.TILUS], ids=lambda k: k.full_name)
@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_tilus_blocks_in_any_order(kernel, order):
    problem = W4A16Matmul(17, 40, 256, group_size=64)
    inputs = problem.inputs("cpu")
    config = small_config(kernel, problem, 3)
    with using(schedule=Schedule(order=order, seed=1)):
        check_config(kernel, Judge(problem, inputs), config)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the order of programs is the interpreter's")
@pytest.mark.parametrize("variant", ["atomic", "atomic_in_place", "last_arriver"])
def test_triton_programs_in_reverse(variant):
    kernel = BY_NAME[f"triton/w4a16.{variant}"]
    problem = W4A16Matmul(17, 40, 256, group_size=64)
    inputs = problem.inputs("cpu")
    config = small_config(kernel, problem, 3)
    with programs_in(lambda points: points[::-1]):
        check_config(kernel, Judge(problem, inputs), config)


@pytest.mark.gpu
@each_kernel
def test_graph_capture_and_replay(kernel, device):
    problem = W4A16Matmul(16, 512, 2048)
    check_replays(kernel, problem, small_config(kernel, problem, 4), device)


@pytest.mark.gpu
@each_kernel
def test_two_streams(kernel, device):
    problems = [W4A16Matmul(16, 512, 2048), W4A16Matmul(48, 256, 2048)]
    check_at_once(kernel, [(problem, small_config(kernel, problem, 4)) for problem in problems], device)


# sliced_k


@each_sliced
@pytest.mark.parametrize("block_m", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("symmetric", [False, True])
def test_any_rows_a_tile(kernel, block_m, symmetric, device):
    """Of 5 rows, tiles of fewer leave each other's alone, and the last has rows beyond; 3 groups for 2 or 4 warps."""
    problem = W4A16Matmul(5, 72, 96, group_size=32, symmetric=symmetric)
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    for block_n, num_warps in ((32, 2), (64, 4)):
        config = replace(shared.sliced_config(problem, block_n, num_warps, 2), block_m=block_m)
        check_config(kernel, judge, config)


@st.composite
def sliced_cases(draw):
    """A problem, and a config that fits both languages."""
    problem, _, seed = draw(cases())
    tile = [draw(st.sampled_from(values)) for values in ([32, 64], [1, 2, 4], [2, 3, 4])]
    return problem, shared.sliced_config(problem, *tile), seed


@each_sliced
@settings(max_examples=10, deadline=None)
@given(case=sliced_cases())
def test_drawn_problems_of_warps_that_share_k_match(kernel, device, case):
    problem, config, seed = case
    inputs = problem.inputs(device, seed)
    out = run(kernel, problem, inputs, config=config)
    assert_right(kernel, problem, Judge(problem, inputs), out, config)
    assert torch.equal(run(kernel, problem, inputs, config=config), out)


def test_it_is_asked_for_by_name():
    known = contenders.all_contenders()
    for name in (kernel.full_name for kernel in SLICED):
        assert name not in {kernel.full_name for kernel in contenders.choose(known)}
        assert name in {kernel.full_name for kernel in contenders.choose(known, only=["w4a16"])}


# The layout that the kernels take


@pytest.mark.parametrize("file", [kernels_triton.w4a16, kernels_tilus.w4a16], ids=lambda file: file.__name__)
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.sampled_from([FP16, BF16]), st.booleans(), st.integers(0, 1000))
def test_a_laid_out_weight_comes_back_bit_by_bit(file, groups, words, dtype, symmetric, seed):
    weight = W4A16Matmul(1, 8 * words, 32 * groups, dtype, 32, symmetric).inputs("cpu", seed).weight
    tiled = file.lay_out(weight)
    assert (tiled.k, tiled.n, tiled.group_size, tiled.symmetric) == (weight.k, weight.n, 32, symmetric)
    back = file.restore(tiled)
    assert torch.equal(back.qweight, weight.qweight) and torch.equal(back.scales, weight.scales)
    assert (back.qzeros is None) if symmetric else torch.equal(back.qzeros, weight.qzeros)
    again = file.lay_out(back)
    assert torch.equal(again.tiles, tiled.tiles)


def test_where_an_element_comes_to():
    """Of the first tile lane 5 holds rows 2, 3, 10, 11 of column 1, of both products and all four columns of eight."""
    q = torch.zeros(32, 32, dtype=torch.int32)
    q[[2, 3, 10, 11], 1] = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    q[[18, 27], [9, 25]] = torch.tensor([5, 6], dtype=torch.int32)
    one = torch.ones(1, 32, dtype=FP16)
    tiles = tiles_of(GPTQWeight(pack_rows(q), one, pack_zeros(one.int())))
    held = tiles[0, 0].view(32, 16)[5].tolist()
    assert held[:4] == [0x01, 0x03, 0x02, 0x04]  # neighbouring rows 16 bits apart
    assert held[8] == 0x50 and held[12 + 3] == 0x60
    assert sum(tiles[0, 0].tolist()) == sum(held)


# What is compiled, for a GPU that need not be here


def hopper_task(kernel: Kernel, dtype: torch.dtype) -> Task:
    problem = W4A16Matmul(16, 4096, 4096, dtype)
    return Task(kernel, problem, kernel.default_config(problem), "heuristic", "sm_90a")


def sliced_task(kernel: Kernel, m: int, block_n: int, num_warps: int, dtype: torch.dtype = FP16) -> Task:
    problem = W4A16Matmul(m, 4096, 4096, dtype)
    return Task(kernel, problem, shared.sliced_config(problem, block_n, num_warps, 3), "space", "sm_90a")


HOPPER = compiled.wanted(*(hopper_task(kernel, dtype) for kernel in (TRITON, TILUS) for dtype in (FP16, BF16)))
SLICED_HOPPER = compiled.wanted(
    *(sliced_task(kernel, m, 32, num_warps) for kernel in SLICED for m, num_warps in ((1, 16), (4, 4))),
    *(sliced_task(kernel, 1, 32, 8, BF16) for kernel in SLICED),
)


@compiled.on_one_worker
@pytest.mark.parametrize("task", HOPPER, ids=lambda task: f"{task.kernel.full_name}-{task.problem.dtype}")
def test_compiles_for_hopper_without_spills(task):
    """On the tensor cores; and shared memory holds the pipeline and nothing else, for a weight that went back there to
    change its layout would take more."""
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    config = task.config
    assert gpu_kernel.spills == 0
    assert not gpu_kernel.over("sm_90a")
    assert gpu_kernel.instructions["tensor cores"] and gpu_kernel.instructions["async copies"]
    stages = config.num_stages - (task.kernel.language is Language.TRITON)  # Triton keeps one less
    a, weight = 2 * config.block_m * config.block_k, config.block_n * config.block_k // 2
    assert gpu_kernel.shared <= stages * (a + weight + 4 * config.block_n) + 1024


@compiled.on_one_worker
@pytest.mark.parametrize("task", SLICED_HOPPER, ids=lambda t: f"{t.kernel.full_name}-{t.problem.name}-{t.config}")
def test_warps_that_share_k_keep_the_weight_in_registers(task):
    """As above, with a scale and a zero point a warp and column; no stack, 16 bytes a copy of the weight, one store.
    Triton has 8 rows of A for 4."""
    (gpu_kernel,) = compiled.built(task).gpu_kernels
    config = task.config
    assert gpu_kernel.spills == gpu_kernel.stack == 0
    assert not gpu_kernel.over("sm_90a")
    products = 4 * (2 * config.block_n // 32 + 1) * task.problem.group_size // 64  # and one of ones, each 16 of K
    assert gpu_kernel.instructions["tensor cores"]["mma.sync"] == products
    copies = gpu_kernel.instructions["async copies"]["cp.async 16 B"]
    assert copies >= config.num_stages * config.block_n * config.block_k // 2 // (16 * gpu_kernel.threads)
    in_triton = task.kernel.language is Language.TRITON
    stages, rows = config.num_stages - in_triton, 8 if in_triton and config.block_m == 4 else config.block_m
    a, weight = 2 * rows * config.block_k, config.block_n * config.block_k // 2
    assert gpu_kernel.shared <= stages * (a + weight + 4 * config.block_n * config.num_warps) + 1024


@pytest.mark.parametrize(("m", "dtype"), [(4, FP16), (8, BF16), (16, FP16)])
def test_triton_swizzles_the_rows_of_a_that_warps_share(m, dtype, tmp_path):
    """16 bytes change places with those of 7 other rows: without, 8 rows of 128 numbers begin in one bank. Triton
    chooses so of itself, from 8 rows on; 4 are filled up. Nor does an operand change its layout on the way to mma."""
    problem = W4A16Matmul(m, 4096, 4096, dtype)
    configs = [config for config in shared.wanted_sliced(problem) if config.num_stages == 3]
    assert {config.num_warps for config in configs} == {4, 8, 16}
    for config, text in zip(configs, ttgir("triton/w4a16.sliced_k", problem, configs, tmp_path), strict=True):
        tile = rf"{config.num_warps}x128x{max(m, 8)}x[bf]+16"
        (layout,) = set(re.findall(rf"-> !ttg.memdesc<\d+x{tile}, (#shared\d*),", text))
        (swizzle,) = re.findall(rf"^{layout} = #ttg.swizzled_shared<{{(.*)}}>$", text, re.MULTILINE)
        assert swizzle == "vec = 8, perPhase = 1, maxPhase = 8, order = [1, 2, 0]", config
        assert not re.search(r"convert_layout.* : tensor<\d+x\d+x128x[bf]+16,", text), config


@pytest.mark.parametrize("variant", ["sliced_k", "atomic"])
def test_triton_copies_rows_of_8_as_rows_of_16(variant, tmp_path):
    """Rows of A are a multiple of 8 elements apart, and Triton looks for 16 by itself. From 3.9 on it loaded the next
    group's element from beside this one's in sliced_k, by 4 warps."""
    problem, kernel = W4A16Matmul(16, 256, 7168), contenders.find(f"triton/w4a16.{variant}")
    config = replace(kernel.default_config(problem), num_warps=4)
    if variant == "sliced_k":
        config = replace(config, block_k=512, split_k=4)
    padded = shared.contiguous(problem)._replace(stride_am=7176)
    (text,) = ptx(kernel.full_name, problem, [config], tmp_path, padded)
    assert "cp.async.cg.shared.global" in text and "ld.global.b16" not in text


def test_four_bits_are_an_operand_as_they_stand(tmp_path):
    """In fp16 no instruction converts the weight."""
    if compilers.nvcc() is None:
        pytest.skip("tilus compiles with nvcc, which is not found")
    problem = W4A16Matmul(16, 4096, 4096, FP16)
    (source,) = cuda_sources(TILUS, problem, TILUS.default_config(problem), tmp_path)
    (tmp_path / "source.cu").write_text(source)
    resources.nvcc(tmp_path / "source.cu", "sm_90a")
    ptx = (tmp_path / "source.ptx").read_text()
    assert "and.b32" in ptx and not re.search(r"prmt|(?:add|sub|mul|fma)\.\S*f16", ptx)


# The baseline


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_baseline_has_the_weight_as_a_linear_layer_stores_it(problem, device):
    inputs, baseline = problem.inputs(device), torch_dequantized_mm.KERNEL
    (a, b), by_keyword = baseline.arguments(problem, inputs)
    assert a is inputs.a and not by_keyword
    assert b.T.is_contiguous() and torch.equal(b, inputs.weight.dequantized(problem.dtype))
    out = run(baseline, problem, inputs)
    assert Judge(problem, inputs).judge(out, 1).ok


# Bad input


def bad_weights():
    good = W4A16Matmul(1, 16, 64, group_size=32).inputs("cpu").weight
    yield replace(good, qweight=good.qweight.long()), TypeError, "qweight has dtype torch.int64; accepted: torch.int32"
    yield replace(good, scales=good.scales.float()), TypeError, "scales has dtype torch.float32"
    yield replace(good, qweight=good.qweight.T.contiguous().T), ValueError, "qweight has shape .* strides"
    yield replace(good, qweight=good.qweight[0]), ValueError, "qweight has shape"
    yield replace(good, qweight=good.qweight[:, :0], scales=good.scales[:, :0], qzeros=None), ValueError, "has shape"
    yield replace(good, scales=good.scales[:, :8].contiguous()), ValueError, "scales has 8 columns, qweight 16"
    yield replace(good, scales=good.scales[:1].repeat(3, 1)), ValueError, "K = 64, scales 3 groups"
    yield replace(good, scales=good.scales.repeat(2, 1)), ValueError, "accepted: groups of 32, 64, 128"
    ragged = GPTQWeight(good.qweight[:1].repeat(41, 1), good.scales[:1].repeat(10, 1), None)
    yield ragged, ValueError, "K = 328, scales 10 groups"  # of 32 rows, and 8 more
    shifted = good.scales.new_empty(36)[4:].view(2, 16)
    yield replace(good, scales=shifted), ValueError, "scales has shape .* address .*8; accepted: .* 16-byte aligned"
    yield (
        replace(good, qzeros=good.qzeros[:1].contiguous()),
        ValueError,
        r"qzeros has shape \(1, 2\); accepted: \(2, 2\)",
    )
    yield replace(good, scales=torch._neg_view(good.scales)), ValueError, "scales is a view that negates"
    yield replace(good, qweight=torch._neg_view(good.qweight)), ValueError, "qweight is a view that negates"
    yield replace(good, qweight=[1]), TypeError, "qweight is list; accepted: torch.Tensor"
    yield good.qweight, TypeError, "weight is Tensor; accepted: GPTQWeight"


@pytest.mark.parametrize(
    "weight, error, words", list(bad_weights()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_bad_weights_are_named(weight, error, words):
    with pytest.raises(error, match=words):
        checked(weight)


@each_kernel
def test_bad_operands_are_named(kernel, device):
    problem = W4A16Matmul(4, 16, 64, group_size=32)
    inputs = problem.inputs(device)
    (a, weight), _ = kernel.arguments(problem, inputs)
    for operands, options, error, words in [
        ((a.cpu().numpy(), weight), {}, TypeError, "a is ndarray; accepted: torch.Tensor"),
        ((a, a), {}, TypeError, r"weight is torch\.Tensor; accepted: .*\.w4a16\.\w+Weight"),
        ((a.float(), weight), {}, TypeError, "a has dtype torch.float32; accepted: torch.float16, torch.bfloat16"),
        ((a[:, :32], weight), {}, ValueError, r"a has shape \(4, 32\); accepted: \(M, 64\)"),
        ((a[:0], weight), {}, ValueError, r"a has shape \(0, 64\); accepted: \(M, 64\)"),
        ((a[None], weight), {}, ValueError, r"a has shape \(1, 4, 64\)"),
        ((a.T.contiguous().T, weight), {}, ValueError, "a has strides"),
        ((a.new_empty(4, 68)[:, :64], weight), {}, ValueError, r"a has strides \(68, 1\).*multiples of 16 bytes"),
        ((a.new_empty(260)[4:].view(4, 64), weight), {}, ValueError, "a has strides .* address .*8; accepted"),
        ((a.new_empty(256).as_strided((4, 64), (56, 1)), weight), {}, ValueError, r"a has strides \(56, 1\)"),
        ((a.bfloat16(), weight), {}, TypeError, "weight has scales of dtype torch.float16"),
        ((a, weight), {"out": a.new_empty(4, 15)}, ValueError, r"out has shape \(4, 15\); accepted: \(4, 16\)"),
        ((a, weight), {"out": a.new_empty(4, 16).float()}, TypeError, "out has dtype torch.float32"),
        ((a, weight), {"out": a.new_empty(1, 16).expand(4, 16)}, ValueError, "out has strides"),
        ((torch._neg_view(a), weight), {}, ValueError, "a is a view that negates .* accepted: a.resolve_neg"),
        ((a, weight), {"out": torch._neg_view(a.new_empty(4, 16))}, ValueError, "out is a view that negates"),
    ]:
        with pytest.raises(error, match=words):
            kernel.launch(*operands, **options)


@each_kernel
def test_a_kind_of_call_is_planned_once_and_its_output_checked_at_each(kernel, device, plans):
    problem = W4A16Matmul(4, 32, 64, group_size=32)
    config = small_config(kernel, problem, 2)
    first, second = (problem.inputs(device, seed) for seed in range(2))
    for inputs in (first, second, first):
        check_config(kernel, Judge(problem, inputs), config)
    assert len(plans) == 1
    (a, weight), _ = kernel.arguments(problem, first)
    memory = a.new_zeros(2, 4, 64)
    memory[0] = a
    for part, held in (("a", memory[0]), ("tiles", weight.tiles.view(-1)[:256].view(a.dtype).view(2, 64))):
        inside = held.flatten()[:128].view(4, 32)
        with pytest.raises(ValueError, match=f"out at .* shares memory with {part} at"):
            kernel.launch(memory[0], weight, out=inside, config=config)
    assert len(plans) == 1
    narrow = W4A16Matmul(4, 24, 64, group_size=32)  # of tiles of the same shape
    inputs = narrow.inputs(device)
    check_config(kernel, Judge(narrow, inputs), config)
    assert len(plans) == 2


@each_kernel
def test_input_is_checked_before_anything_is_allocated(kernel, monkeypatch):
    problem = W4A16Matmul(4, 16, 64, group_size=32)
    (a, weight), _ = kernel.arguments(problem, problem.inputs("cpu"))
    apart = replace(weight, tiles=weight.tiles.to("meta"))
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("allocated before the input was checked"))
    with pytest.raises(ValueError, match="weight's tiles is on meta; accepted: the device of a, cpu"):
        kernel.launch(a, apart)
    with pytest.raises(ValueError, match="a requires a gradient"):
        kernel.launch(a.requires_grad_(), weight)


@each_kernel
def test_configs_that_do_not_fit_are_refused(kernel, device):
    problem = W4A16Matmul(4, 32, 64, group_size=32)
    inputs = problem.inputs(device)
    good = small_config(kernel, problem, 2)
    own: list[tuple[dict[str, int | bool], str]] = [
        ({"block_k": 64}, "block_k is 64; accepted: divisors of the group size, 32"),
        ({"split_k": 1024}, "split_k is 1024; accepted: 1 to"),
        ({"num_stages": 1000}, "1000 stages take .* bytes of shared memory"),
        ({"block_m": 8}, "blocks .*8"),
    ]
    if kernel in SLICED:
        own = [
            ({"block_k": 128}, "block_k 128; accepted: num_warps, 2, as all warps share K, and 64, as each takes a"),
            ({"split_k": 4}, "split_k is 4, block_k 64; accepted: num_warps, 2"),
            ({"num_stages": 1000}, "1000 stages, or the sums of the warps, take .* bytes of shared memory"),
            ({"block_m": 3}, "blocks .*3"),
            ({"interleaved": True}, "interleaved is True; accepted: False"),
            ({"num_warps": 3, "split_k": 3, "block_k": 96}, "(num_warps is 3; accepted: |not )powers of two"),
        ]
    for fields, words in [*own, ({"block_n": 32 * 64, "num_warps": 64}, "num_warps is 64; accepted: 1 to 32")]:
        with pytest.raises(ValueError, match=rf"config is .*{words}"):
            run(kernel, problem, inputs, config=replace(good, **fields))


@each_kernel
def test_configs_and_variants_are_checked_like_arguments(kernel, device):
    problem = W4A16Matmul(4, 32, 64, group_size=32)
    inputs = problem.inputs(device)
    good = small_config(kernel, problem, 2)
    for config, error, words in [
        (replace(good, split_k=0), ValueError, "config.split_k is 0; accepted: 1 or more"),
        (replace(good, num_stages=-1), ValueError, "config.num_stages is -1; accepted: 1 or more"),
        (replace(good, block_k=32.0), TypeError, "config.block_k is 32.0, float; accepted: int"),
        (replace(good, interleaved=1), TypeError, "config.interleaved is 1, int; accepted: bool"),
        (MatmulConfig(16, 32, 32, 1, 1, 3), TypeError, "accepted: W4A16Config or None"),
        ((16, 32, 32, 1, 1, 3), TypeError, "accepted: W4A16Config or None"),
    ]:
        with pytest.raises(error, match=words):
            run(kernel, problem, inputs, config=config)
    file = kernels_triton.w4a16 if kernel.language is Language.TRITON else kernels_tilus.w4a16
    (a, weight), _ = kernel.arguments(problem, inputs)
    with pytest.raises(ValueError, match="variant is 'split_k'; accepted: data_parallel, atomic, "):
        file.matmul(a, weight, variant="split_k")


@pytest.mark.usefixtures("plans")
def test_triton_names_the_switch_of_its_interpreter(monkeypatch):
    problem = W4A16Matmul(4, 32, 64, group_size=32)
    operands, _ = TRITON.arguments(problem, problem.inputs("cpu"))
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(ValueError, match=r"a is on cpu; accepted: .* TRITON_INTERPRET=1"):
        TRITON.launch(*operands)


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_how_many_splits_a_variant_takes(language):
    problem = W4A16Matmul(4, 32, 4096)
    two = W4A16Config(16, 64, 128, 2, 1, 3)
    many = replace(two, split_k=shared.MOST_TURNS + 1)
    kernels = {variant: BY_NAME[f"{language}/w4a16.{variant}"] for variant in ("data_parallel", "semaphore", "atomic")}
    assert "accepted: 1 to 1 for data_parallel" in kernels["data_parallel"].supports(problem, two)
    assert f"accepted: 1 to {shared.MOST_TURNS} for semaphore" in kernels["semaphore"].supports(problem, many)
    assert kernels["atomic"].supports(problem, many) is None


@pytest.mark.parametrize("split_k", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_the_papers_splits_are_contenders(language, split_k, device):
    """By name, with the config that is taken otherwise; at the smallest K of its tables."""
    small = W4A16Matmul(2, 16, 512)
    inputs = small.inputs(device)
    kernel = contenders.find(f"{language}/w4a16.atomic@s{split_k}")
    for problem in (small, W4A16Matmul(16, 16384, 16384)):
        config = kernel.default_config(problem)
        assert config.split_k == split_k and kernel.supports(problem, None) is None
    config = kernel.default_config(small)
    check_config(kernel, Judge(small, inputs), config)


def test_in_place_is_of_fp16(device):
    kernel = BY_NAME["triton/w4a16.atomic_in_place"]
    assert "fp16" in kernel.supports(W4A16Matmul(1, 64, 128, BF16), None)
    problem = W4A16Matmul(1, 64, 128, BF16)
    operands, _ = kernel.arguments(problem, problem.inputs(device))
    with pytest.raises(ValueError, match="in fp16"):
        kernel.launch(*operands)


@pytest.mark.parametrize(
    ("n", "k", "variant", "split_k"),
    [
        (4096, 4096, "atomic", 8),  # 64 tiles of 2 warps: 4 splits make 512 of the 528 wanted
        (4096, 4096, "semaphore", 4),
        (4096, 4096, "data_parallel", 1),
        (4096, 512, "atomic", 2),  # of 2 steps of 128
        (65536, 4096, "atomic", 1),
    ],
)
def test_by_default_k_is_split_until_warps_are_enough_or_steps_are_two(n, k, variant, split_k):
    assert shared.default_config(W4A16Matmul(1, n, k), variant, least_columns=16).split_k == split_k


def test_a_pipeline_may_take_all_of_shared_memory():
    problem = W4A16Matmul(1, 4096, 4096)
    config = shared.default_config(problem, "atomic", least_columns=16)
    limit = shared.shared_bytes(config)
    assert limit == 4 * (16 * 128 * 2 + 64 * 128 // 2 + 64 * 4)
    assert shared.unsupported(problem, config, "atomic", limit) is None
    assert f"take {limit} bytes of shared memory" in shared.unsupported(problem, config, "atomic", limit - 1)


@each_kernel
@pytest.mark.parametrize(
    "problem", [W4A16Matmul(16, 4096, 4096), W4A16Matmul(1, 512, 512, BF16, 32, True)], ids=lambda p: p.name
)
def test_the_space_is_supported(kernel, problem):
    skip_unless_supported(kernel, problem)
    space = kernel.configs(problem)
    assert len(space) == len(set(space)) >= 2
    assert all(kernel.supports(problem, config) is None for config in [*space, kernel.default_config(problem)])
    if kernel.variant not in ("data_parallel", shared.SLICED_K):
        assert {config.interleaved for config in space} == {False, True}


@each_kernel
def test_the_space_is_what_both_languages_want_and_this_one_can_run(kernel):
    """Triton drops nothing; tilus, tiles of which a warp would have fewer than 32 columns; both, of sliced_k, stages
    that shared memory does not hold."""
    problem = W4A16Matmul(16, 4096, 4096)
    wanted, space = shared.wanted(problem, kernel.variant), kernel.space(problem)
    if kernel in SLICED:
        wanted = shared.wanted_sliced(problem)
    dropped = [config for config in wanted if config not in space.configs]
    assert space.configs == tuple(config for config in wanted if config not in dropped)
    assert sum(space.dropped.values()) == len(dropped)
    if kernel in SLICED:
        assert dropped and all("of shared memory" in reason for reason in space.dropped)
        return
    assert all(config.block_n < 32 * config.num_warps for config in dropped)
    if kernel.language is Language.TILUS:
        assert dropped and all("block_n of 32 for each warp" in reason for reason in space.dropped)
    else:
        assert not dropped


@pytest.mark.parametrize("kernel", [k for k in KERNELS if not k.on_request], ids=lambda kernel: kernel.full_name)
def test_tuned_configs_are_still_supported(kernel):
    entries = tuned.table("h200")[kernel.full_name]
    assert len(entries) >= 9
    for entry in entries:
        problem = W4A16Matmul.from_fields(entry["problem"])
        assert kernel.supports(problem, kernel.config_from(entry["config"])) is None


# The problem


def test_the_problems_name_and_figures():
    problem = W4A16Matmul(16, 4096, 4096)
    assert problem.name == "w4a16-16x4096x4096-fp16-g128"
    assert W4A16Matmul(1, 512, 512, BF16, 32, True).name == "w4a16-1x512x512-bf16-g32-symmetric"
    assert problem.flops == 2 * 16 * 4096 * 4096
    parts = [*vars(problem.inputs("cpu").weight).values(), problem.inputs("cpu").a]
    assert problem.least_bytes == sum(part.numel() * part.itemsize for part in parts) + 2 * 16 * 4096


@pytest.mark.parametrize("symmetric", [False, True])
def test_outputs_are_of_order_one(symmetric):
    """At any K; so that an output of zeros is far from right."""
    for k in (128, 4096):
        problem = W4A16Matmul(8, 64, k, symmetric=symmetric)
        inputs = problem.inputs("cpu")
        judge = Judge(problem, inputs)
        assert 0.5 < judge.reference.std() < 2
        assert not judge.judge(torch.zeros(problem.out_shape, dtype=FP16)).ok
