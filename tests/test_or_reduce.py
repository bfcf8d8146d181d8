"""or_reduce, every variant of both languages: bit for bit what a loop of torch.bitwise_or gives."""

import random
import re
import weakref
from dataclasses import replace
from functools import reduce

import pytest
import torch
import triton
import ttgir
from cuda_source import plan_sources
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_cases import nodes_in
from torch.utils._python_dispatch import TorchDispatchMode

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.references import torch_bitwise_or
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Kernel, Language, Space
from triton_vs_tilus.common.or_reduce import (
    LARGEST_K,
    OrReduce,
    OrReduceConfig,
    OrReducePlaces,
    contiguous,
    or_reduce_problem,
    row_stride,
    wanted,
)
from triton_vs_tilus.kernels_tilus import launching
from triton_vs_tilus.kernels_triton.or_reduce import generated_source

INT32, INT64 = torch.int32, torch.int64
ALL = [kernel for kernel in (*kernels_triton.KERNELS, *kernels_tilus.KERNELS) if kernel.name == "or_reduce"]
CONTROLS = [kernel for kernel in ALL if kernel.supports(OrReduce(1, 1, 1), None)]
KERNELS = [kernel for kernel in ALL if kernel not in CONTROLS]
SEED_SHAPES = [(64, 128, 4), (128, 256, 8), (256, 512, 16), (512, 1024, 4), (1024, 2048, 8), (2048, 4096, 16)]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)


def answer(a: torch.Tensor) -> torch.Tensor:
    """Element by element, in Python's own integers."""
    m, n, _ = a.shape
    rows = [reduce(int.__or__, row) for row in a.reshape(m * n, -1).tolist()]
    return torch.tensor(rows, dtype=a.dtype, device=a.device).view(m, n)


def run(kernel: Kernel, a: torch.Tensor, config: OrReduceConfig | None = None) -> torch.Tensor:
    """Into an output that holds the complement of the right answer, between two rows that stay as they are."""
    m, n, _ = a.shape
    held = torch.full((m + 2, n), 77, dtype=a.dtype, device=a.device)
    out = held[1:-1]
    out.copy_(~answer(a))
    assert kernel.launch(a, out=out, config=config) is out
    assert (held[[0, -1]] == 77).all()
    return out


def small_config(kernel: Kernel, problem: OrReduce) -> OrReduceConfig:
    """The least threads and rows: more than one block for few rows."""
    return min(kernel.configs(problem), key=lambda config: (config.num_warps, config.bytes_per_thread))


@each_kernel
@pytest.mark.parametrize("dtype", [INT32, INT64], ids=str)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 12, 16, 33, LARGEST_K])
def test_matches_torch_bit_for_bit(kernel, k, dtype, device):
    problem = OrReduce(3, 15, k, dtype)
    inputs = problem.inputs(device)
    assert torch.equal(run(kernel, inputs.a, small_config(kernel, problem)), answer(inputs.a))


@each_kernel
@settings(max_examples=8, deadline=None)
@given(
    m=st.integers(1, 5),
    n=st.integers(1, 17),
    k=st.integers(1, LARGEST_K),
    dtype=st.sampled_from([INT32, INT64]),
    spare=st.integers(0, 3),
    seed=st.integers(0, 1 << 30),
)
def test_ragged_shapes_and_row_strides(kernel, m, n, k, dtype, spare, seed, device):
    """A's rows stand `spare` elements apart, which are not read: all of their bits are set."""
    problem = OrReduce(m, n, k, dtype)
    wide = torch.full((m, n, k + spare), -1, dtype=dtype, device=device)
    a = wide[:, :, :k]
    a.copy_(problem.inputs(device, seed).a)
    assert torch.equal(run(kernel, a, small_config(kernel, problem)), answer(a))


@each_kernel
@pytest.mark.parametrize("shape", [(1, 1, 2), (1, 4, 2), (4, 1, 2)])
def test_a_size_of_one_may_have_any_stride(kernel, shape, device):
    strides = [3 if size == 1 else 4 for size in shape[:2]]
    a = torch.arange(24, dtype=INT32, device=device).as_strided(shape, [*strides, 1])
    problem = OrReduce(*shape, INT32)
    assert torch.equal(run(kernel, a, small_config(kernel, problem)), answer(a))


@pytest.mark.gpu
@each_kernel
@pytest.mark.parametrize("k", sorted({k for *_, k in SEED_SHAPES}))
def test_configs_on_the_seeds_shapes(kernel, k, device):
    """Some of the space, each compiled once, for K, and run on all shapes of it: a search checks what it times."""
    for problem in [OrReduce(*shape) for shape in SEED_SHAPES if shape[-1] == k]:
        inputs = problem.inputs(device)
        expected = problem.reference(inputs)
        space = kernel.configs(problem)
        for config in {kernel.default_config(problem), *random.Random(0).sample(space, min(4, len(space)))}:
            out = ~expected
            kernel.launch(inputs.a, out=out, config=config)
            assert torch.equal(out, expected), config


@each_kernel
def test_allocates_and_takes_its_own_config(kernel, device):
    problem = OrReduce(2, 3, 5, INT32)
    inputs = problem.inputs(device)
    y = kernel.launch(inputs.a)
    assert y.dtype is INT32 and torch.equal(y, answer(inputs.a))


@each_kernel
def test_every_config_of_the_space_is_supported(kernel):
    for k in range(1, LARGEST_K + 1):
        for dtype in (INT32, INT64):
            problem = OrReduce(7, 9, k, dtype)
            configs = [kernel.default_config(problem), *kernel.configs(problem)]
            assert len(configs) > 3
            assert not [config for config in configs if kernel.supports(problem, config)]


@pytest.mark.parametrize("kernel", CONTROLS, ids=lambda kernel: kernel.full_name)
def test_controls_are_right_for_a_constant_and_sit_out_otherwise(kernel, device):
    problem = OrReduce(3, 5, 6, constant=True)
    inputs = problem.inputs(device)
    assert kernel.supports(problem, None) is None
    assert "constant" in kernel.supports(replace(problem, constant=False), None)
    assert torch.equal(run(kernel, inputs.a), answer(inputs.a))


@pytest.mark.parametrize("variant", ["reduce", "builtin", "unrolled", "generated", "wide"])
def test_rows_that_lie_far_apart_are_reached_by_offsets_of_64_bits(variant, tmp_path):
    """As the last row of a block begins 2^31 elements behind the first, and nowhere else."""
    problem, name = OrReduce(2048, 4, 2, torch.int64), f"triton/or_reduce.{variant}"
    config = contenders.find(name).default_config(problem)
    stride = (1 << 31) // config.block(problem, variant)

    def text(apart: int) -> str:
        return ttgir.ttgir(name, problem, [config], tmp_path / str(apart), OrReducePlaces(apart))[0]

    of_rows = re.compile(r"arith\.muli .*tensor<\d+xi(\d+)")
    assert (of_rows.findall(text(stride - 2)), of_rows.findall(text(stride))) == (["32"], ["64"])


def test_generated_source_has_a_line_for_every_k():
    assert generated_source(5).count("tl.load") == 5
    assert "for " not in generated_source(5)


def test_every_k_counts():
    """An answer that leaves any one k out is not the answer."""
    problem = OrReduce(16, 16, 16)
    inputs = problem.inputs("cpu")
    whole = problem.reference(inputs)
    for k in range(16):
        left = torch.cat([inputs.a[:, :, :k], inputs.a[:, :, k + 1 :]], dim=-1)
        assert not torch.equal(answer(left), whole)
    assert torch.equal(answer(inputs.a), whole)


@each_kernel
def test_an_impossible_config_is_one_clear_error(kernel):
    a = torch.zeros(2, 3, 4, dtype=INT64)
    config = OrReduceConfig(bytes_per_thread=48, num_warps=8)
    with pytest.raises(ValueError, match=f"config is {config}; bytes_per_thread is 48; accepted: a power of two"):
        kernel.launch(a, config=config)


@each_kernel
def test_configs_and_variants_are_checked_like_arguments(kernel):
    a = torch.zeros(2, 3, 4, dtype=INT64)
    for config, error, words in [
        (OrReduceConfig(32, 0), ValueError, "config.num_warps is 0; accepted: 1 or more"),
        (OrReduceConfig(-32, 4), ValueError, "config.bytes_per_thread is -32; accepted: 1 or more"),
        (OrReduceConfig(32.0, 4), TypeError, "config.bytes_per_thread is 32.0, float; accepted: int"),
        (OrReduceConfig(32, 3), ValueError, "num_warps is 3; accepted: a power of two, 32 or less"),
        (OrReduceConfig(32, 64), ValueError, "num_warps is 64; accepted: a power of two, 32 or less"),
        ((32, 4), TypeError, "accepted: OrReduceConfig or None"),
    ]:
        with pytest.raises(error, match=words):
            kernel.launch(a, config=config)
    file = kernels_triton.or_reduce if kernel.language is Language.TRITON else kernels_tilus.or_reduce
    with pytest.raises(ValueError, match=f"variant is 'fast'; accepted: {', '.join(file.VARIANTS)}"):
        file.or_reduce(a, variant="fast")


@each_kernel
def test_a_kind_of_call_is_planned_once_and_its_output_checked_at_each(kernel, device, plans):
    problem = OrReduce(4, 8, 6, INT32)
    config = small_config(kernel, problem)
    for seed in (0, 1, 0):
        inputs = problem.inputs(device, seed)
        assert torch.equal(run(kernel, inputs.a, config), answer(inputs.a))
    assert len(plans) == 1
    memory = torch.zeros(5 * 8 * 6, dtype=INT32, device=device)
    a = memory[: 4 * 8 * 6].view(4, 8, 6)
    kernel.launch(a, out=memory[-32:].view(4, 8), config=config)
    with pytest.raises(ValueError, match=r"out at .* shares memory with a at"):
        kernel.launch(a, out=memory[32:64].view(4, 8), config=config)
    assert len(plans) == 1
    held = torch.empty(4 * 8 * 6 + 1, dtype=INT32, device=device)  # rows of int32 that are no whole words of 8 bytes
    odd = held[1:].view(4, 8, 6).copy_(inputs.a)
    assert torch.equal(run(kernel, odd, config), answer(inputs.a))
    assert len(plans) == 2


@pytest.mark.parametrize("variant", kernels_tilus.or_reduce.VARIANTS)
@pytest.mark.parametrize("align_a", [4, 8, 16])
def test_tilus_loads_are_no_wider_than_a_is_aligned(variant, align_a, tmp_path):
    """tilus takes the alignment of a row for that of its address: 8 bytes for six int32."""
    (kernel,) = [kernel for kernel in KERNELS if kernel.full_name == f"tilus/or_reduce.{variant}"]
    problem = OrReduce(64, 128, 6, INT32)
    made = kernel.plan(problem, kernel.default_config(problem), contiguous(problem)._replace(align_a=align_a))
    (source,) = plan_sources(made, tmp_path)
    widest = {4: set(), 8: {"uint2"}, 16: {"uint2"}}[align_a]
    assert set(re.findall(r"(uint\d)\s*\*\s*mem_ptr", source)) == (set() if variant == "unrolled" else widest)


@pytest.mark.usefixtures("plans")
def test_triton_names_the_switch_of_its_interpreter(monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    with pytest.raises(ValueError, match=r"a is on cpu; accepted: .* TRITON_INTERPRET=1"):
        kernels_triton.or_reduce.or_reduce(torch.zeros(2, 3, 4, dtype=INT64))


@each_kernel
def test_the_space_is_what_both_languages_want(kernel):
    for problem in (OrReduce(7, 9, 5), OrReduce(2048, 4096, 16, INT32)):
        assert kernel.space(problem) == Space(tuple(wanted(problem, kernel.variant)), {})


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.full_name)
def test_tuned_configs_are_still_supported(kernel):
    entries = tuned.table("h200")[kernel.full_name]
    searched = [OrReduce.from_fields(entry["problem"]) for entry in entries]
    study = [problem for _, problem in workloads.problems("or_reduce-int64")]
    assert len(study) == 6 and len(set(searched)) == len(entries)
    assert {replace(problem, constant=searched[0].constant) for problem in study} <= set(searched)
    for entry in entries:
        problem = OrReduce.from_fields(entry["problem"])
        assert kernel.supports(problem, kernel.config_from(entry["config"])) is None


@each_kernel
@pytest.mark.parametrize("dtype", [INT32, INT64], ids=str)
def test_what_suits_one_k_runs_at_another(kernel, dtype, device):
    """The config of the nearest problem is taken: it must be one for every K, and of a block as large in bytes."""
    small, large = OrReduce(512, 512, 4, dtype), OrReduce(512, 512, LARGEST_K, dtype)
    for config in {*kernel.configs(small), *kernel.configs(large)}:
        for problem in (small, large):
            assert kernel.supports(problem, config) is None
    for found_for, k in ((small, LARGEST_K), (large, 4)):
        found = sorted(kernel.configs(found_for), key=lambda config: (config.num_warps, config.bytes_per_thread))
        inputs = OrReduce(2, 9, k, dtype).inputs(device)
        for config in (found[0], found[-1]):
            assert torch.equal(run(kernel, inputs.a, config), answer(inputs.a))


class Launches(TorchDispatchMode):
    """Counts what is computed, views being no launch, and the most bytes of results that were held at once."""

    def __init__(self, out: torch.Tensor):
        super().__init__()
        self.names: list[str] = []
        self.most_bytes = 0
        self._out, self._made = out.data_ptr(), weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.names.append(func.overloadpacket.__name__)
            if result.data_ptr() != self._out:
                self._made.add(result)
            self.most_bytes = max(self.most_bytes, sum(made.nbytes for made in self._made))
        return result


@pytest.mark.parametrize("dtype", [INT32, INT64], ids=str)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 7, 16, 33, LARGEST_K])
def test_the_baseline_halves_k(k, dtype, device):
    problem = OrReduce(3, 15, k, dtype)
    inputs = problem.inputs(device)
    given = inputs.a.clone()
    out = ~answer(given)
    with Launches(out) as launches:
        assert torch_bitwise_or.or_reduce(inputs.a, out=out) is out
    assert torch.equal(out, answer(given)) and torch.equal(inputs.a, given)
    assert launches.names == (["bitwise_or"] * (k - 1).bit_length() or ["copy_"])
    assert launches.most_bytes == torch_bitwise_or.KERNEL.workspace_bytes(problem, None)
    fresh = torch_bitwise_or.or_reduce(inputs.a)
    assert torch.equal(fresh, out) and fresh.data_ptr() != inputs.a.data_ptr()


A = torch.zeros(4, 6, 8, dtype=INT64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(a=[1]), TypeError, "a is list"),
        (dict(a=A.float()), TypeError, "a has dtype torch.float32"),
        (dict(a=A[0]), ValueError, "a has shape"),
        (dict(a=A[:, :0]), ValueError, "a has shape"),
        (dict(a=torch.zeros(1, 1, LARGEST_K + 1, dtype=INT64)), ValueError, "K up to 64"),
        (dict(a=A.transpose(1, 2)), ValueError, "a has strides"),
        (dict(a=A[::2]), ValueError, "a has strides"),
        (dict(a=A[:, ::2, ::2]), ValueError, "a has strides"),
        (dict(a=torch.zeros(8, dtype=INT64).expand(4, 6, 8)), ValueError, "do not overlap"),
        (dict(a=torch._neg_view(A)), ValueError, "a is a view that negates .* accepted: a.resolve_neg"),
        (dict(a=A, out=torch._neg_view(A[:, :, 0])), ValueError, "out is a view that negates"),
        (dict(a=A, out=A[0]), ValueError, "out has shape"),
        (dict(a=A, out=torch.zeros(6, 4, dtype=INT64).T), ValueError, "out has shape"),
        (dict(a=A, out=torch.zeros(4, 6, dtype=INT32)), TypeError, "out has dtype"),
        (dict(a=A, out=torch.zeros(4, 6, dtype=INT64, device="meta")), ValueError, "out is on meta"),
        (dict(a=A, out=3), TypeError, "out is int"),
    ],
)
def test_bad_input_is_one_clear_error(arguments, error, message):
    with pytest.raises(error, match=message):
        or_reduce_problem(**{"out": None, **arguments})


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.full_name)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(a=A.float()), TypeError, "a has dtype torch.float32"),
        (dict(a=A[:, :0]), ValueError, "a has shape"),
        (dict(a=A.transpose(1, 2)), ValueError, "a has strides"),
        (dict(a=A, out=A[0]), ValueError, "out has shape"),
        (dict(a=A, out=torch.zeros(4, 6, dtype=INT32)), TypeError, "out has dtype"),
    ],
)
def test_a_launcher_refuses_what_the_problem_refuses(kernel, arguments, error, message):
    with pytest.raises(error, match=message):
        kernel.launch(**arguments)


@pytest.mark.gpu
@each_kernel
def test_captured_it_follows_new_numbers(kernel, device):
    problem = OrReduce(64, 128, 8)
    inputs, fresh = problem.inputs(device), problem.inputs(device, seed=1)
    out = torch.empty(problem.out_shape, dtype=problem.dtype, device=device)
    kernel.launch(inputs.a, out=out)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        kernel.launch(inputs.a, out=out)
    assert nodes_in(graph) == kernel.launches
    inputs.a.copy_(fresh.a)
    out.copy_(~answer(fresh.a))
    graph.replay()
    assert torch.equal(out, answer(fresh.a))


def test_rows_of_what_is_sliced_or_single():
    assert row_stride(A) == 8
    assert row_stride(A[:, :, :5]) == 8
    assert row_stride(A[:, ::2]) == 16
    assert row_stride(A[:, :3]) is None
    assert row_stride(A[:1, :3]) == 8
    assert row_stride(A[:, 2:3]) == 48
    assert row_stride(A[:1, :1]) == 8


def test_the_problems_bytes_and_operations():
    problem = OrReduce(2048, 4096, 16)
    assert problem.name == "or-2048x4096x16-int64"
    assert problem.least_bytes == 2048 * 4096 * 17 * 8
    assert problem.flops == 2048 * 4096 * 15
    assert replace(problem, constant=True).least_bytes == (2048 * 4096 + 1) * 8
    assert replace(problem, constant=True, dtype=INT32).name == "or-2048x4096x16-int32-constant"


def test_what_offsets_do_not_reach_is_refused(monkeypatch):
    for kernel in KERNELS:
        refused = kernel.supports(OrReduce(1 << 15, 1 << 14, 4), None)
        tilus = kernel.full_name.startswith("tilus/")
        assert refused == ("A has 2147483648 elements: tilus' offsets are int32" if tilus else None)
        last = OrReduce(1, (1 << 31) - 1, 1)  # a grid counted beyond int32 has a negative size
        whole = (1 << 31) - kernel.default_config(last).block(last, kernel.variant) if tilus else last.n
        refused = kernel.supports(last, None)
        assert refused == ("Y, in whole blocks, has 2147483648 elements: tilus' offsets are int32" if tilus else None)
        assert kernel.supports(OrReduce(1, whole, 1), None) is None
        if tilus:
            apart = torch.empty_strided((2, 1, 4), (500, 500, 1), dtype=torch.int64)
            with monkeypatch.context() as patch:
                patch.setattr(launching, "OFFSET_LIMIT", 1000)
                with pytest.raises(ValueError, match="a has 2 rows, 500 elements apart; accepted: fewer than 1000 e"):
                    kernel.launch(apart)
