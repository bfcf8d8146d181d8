"""The sources' own kernels, as published: right in the interpreters, compiled for Hopper, with the space they had."""

import re
from dataclasses import replace

import compiled
import pytest
import torch
import triton
from matmul_cases import assert_right, run
from ttgir import ptx

from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.bench.references.published_tilus import matmul
from triton_vs_tilus.bench.references.published_triton import decompose_k, kernelllm, makora, or_reduce, template, w4a16
from triton_vs_tilus.bench.references.published_triton import matmul as triton_tutorial
from triton_vs_tilus.bench.rows.row import ONE_CONFIG
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.plan import Call, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.w4a16 import W4A16Matmul
from triton_vs_tilus.kernels_tilus.interpreter.errors import PendingCopy

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
named = contenders.find
ids = lambda value: getattr(value, "full_name", None) or getattr(value, "name", None)  # noqa: E731


def check_a_strided_c(kernel: Kernel, problem: Matmul, device: torch.device) -> None:
    """Of its one config: C as every other column of a wider matrix, and nothing written between."""
    (config,) = kernel.configs(problem)
    inputs = problem.inputs(device)
    wide = torch.full((problem.m, 2 * problem.n), float("nan"), dtype=problem.out_dtype, device=device)
    out = run(kernel, problem, inputs, out=wide[:, ::2], out_dtype=problem.out_dtype)
    assert_right(kernel, problem, Judge(problem, inputs), out, config)
    assert wide[:, 1::2].isnan().all()


# The decompose-K study.

STUDY = decompose_k.KERNELS


@pytest.mark.parametrize("design", STUDY, ids=ids)
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(16, 16, 1024, BF16, epilogue=Epilogue.RELU),
        Matmul(17, 33, 1536, FP16, layout=Layout.NK, epilogue=Epilogue.RELU),  # ragged tiles, bands of 48
        Matmul(3, 40, 768, FP32, epilogue=Epilogue.RELU),
        Matmul(16, 48, 512, BF16),
    ],
    ids=ids,
)
def test_the_studys_kernels_are_right(design, problem, device):
    if reason := design.supports(problem, None):
        assert (reason, design.variant[-8:]) == ("no epilogue to leave unfused", "_unfused")
        return
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    space = design.configs(problem)
    for config in (design.default_config(problem), space[0], space[-1]):
        assert_right(design, problem, judge, run(design, problem, inputs, config=config), config)


def test_the_studys_reducers_write_a_strided_c(device):
    problem = Matmul(16, 24, 512, FP32, epilogue=Epilogue.RELU)
    inputs, wide = problem.inputs(device), torch.full((16, 48), float("nan"), device=device)
    for kernel in STUDY:
        kernel.launch(inputs.a, inputs.b, epilogue=problem.epilogue, out=wide[:, ::2])
        assert Judge(problem, inputs).judge(wide[:, ::2]).ok
        assert wide[:, 1::2].isnan().all()
        wide.fill_(float("nan"))


def test_the_studys_spaces():
    """As its repository has them at M = N = 16: 12 tiles by 8 splits, 27 by 8; and at K = 24576 and the router."""
    first, optimized = STUDY[0], STUDY[2]
    deep = Matmul(16, 16, 32768)
    assert len(first.configs(deep)) == 96 and len(optimized.configs(deep)) == 216
    assert decompose_k.splits_of(deep, "optimized") == [2, 4, 8, 16, 32, 64, 128, 256]
    assert decompose_k.splits_of(Matmul(16, 16, 24576), "first") == [3, 6, 12, 24, 48, 96, 192, 2, 4, 8]
    assert decompose_k.splits_of(Matmul(1, 256, 7168), "optimized") == [2, 4, 8, 16, 7, 14, 28]
    assert STUDY[3].configs(deep) == STUDY[2].configs(deep)


def test_the_study_fuses_relu_alone_and_splits_evenly():
    kernel = STUDY[2]
    assert "ReLU alone" in kernel.supports(Matmul(16, 16, 1024, epilogue=Epilogue.SILU), None)
    assert "there are none" in kernel.supports(Matmul(16, 16, 131), None)
    assert "divisors of K" in kernel.supports(Matmul(16, 16, 1000), kernel.default_config(Matmul(16, 16, 1024)))


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(16, 16, 256, BF16, epilogue=Epilogue.RELU),
        Matmul(17, 40, 64, FP16, layout=Layout.NK, epilogue=Epilogue.RELU),
        Matmul(3, 8, 128, BF16, FP32, epilogue=Epilogue.RELU),
    ],
    ids=ids,
)
def test_the_template_is_right(problem, device):
    """Also where rows and columns wrap around; a strided C."""
    check_a_strided_c(template.KERNEL, problem, device)


def test_the_template_fuses_relu_and_walks_whole_steps():
    assert "fuses ReLU, not none" in template.KERNEL.supports(Matmul(16, 16, 256), None)
    assert "multiples of 64" in template.KERNEL.supports(Matmul(16, 16, 96, epilogue=Epilogue.RELU), None)


# The tilus tutorial.

TUTORIAL = matmul.KERNELS


@pytest.mark.parametrize("design", TUTORIAL, ids=ids)
@pytest.mark.parametrize("problem", [Matmul(130, 72, 200, FP16), Matmul(64, 128, 1536, FP16)], ids=ids)
def test_the_tutorials_kernels_are_right(design, problem, device):
    """Of v5 also 4 and 12 splits."""
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    space = design.configs(problem)
    for config in dict.fromkeys([*space[: 3 if design.variant == "v5" else 1], space[-1]]):
        assert_right(design, problem, judge, run(design, problem, inputs, config=config), config)


def test_the_tutorials_spaces_and_turns():
    sizes = {kernel.variant: len(kernel.configs(Matmul(64, 64, 4096, FP16))) for kernel in TUTORIAL}
    assert sizes == {"v0": 1, "v1": 1, "v2": 12, "v3": 12, "v4": 36, "v5": 192}
    assert [kernel.variant for kernel in TUTORIAL if kernel.protocol is Protocol.SERIAL] == ["v5"]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Matmul(64, 64, 64, BF16), "fp16 alone"),
        (Matmul(64, 64, 64, FP16, FP32), "fp16 alone"),
        (Matmul(64, 64, 64, FP16, layout=Layout.NK), r"\[K, N\] alone"),
        (Matmul(64, 64, 64, FP16, epilogue=Epilogue.RELU), "no epilogue; asked for: relu"),
    ],
    ids=ids,
)
def test_the_tutorial_sits_out_with_a_reason(problem, reason):
    inputs = problem.inputs("cpu")
    for kernel in TUTORIAL:
        with pytest.raises(ValueError, match=reason):
            run(kernel, problem, inputs, out_dtype=problem.out_dtype)


def test_a_band_shorter_than_the_pipeline_is_refused():
    """The published kernel frees what its prologue still copies into: the interpreter tells."""
    v5, problem = TUTORIAL[-1], Matmul(64, 64, 256, FP16)
    config = replace(v5.default_config(problem), split_k=12)
    assert "a band of 0 steps leaves copies under way; 2 or more" in v5.supports(problem, config)
    inputs = problem.inputs("cpu")
    out = torch.empty(64, 64, dtype=FP16)
    with pytest.raises(PendingCopy, match="while a copy into it may be under way"):
        Call(v5.plan(problem, config, contiguous(problem)), out.device, v5.backend)(out, inputs.a, inputs.b)


def test_the_tutorial_takes_contiguous_tensors_alone():
    a, b = torch.zeros(64, 128, dtype=FP16), torch.zeros(64, 64, dtype=FP16)
    with pytest.raises(ValueError, match="contiguous tensors, as published"):
        TUTORIAL[0].launch(a[:, :64], b)


# Triton's tutorial.


@pytest.mark.parametrize(
    "problem",
    [Matmul(130, 72, 200, FP16), Matmul(65, 264, 96, BF16, layout=Layout.NK), Matmul(3, 40, 50, BF16, FP32)],
    ids=ids,
)
def test_tritons_tutorial_is_right(problem, device):
    """Tiles that wrap around, ragged K, and several groups of rows where tiles are small."""
    kernel, inputs = triton_tutorial.KERNEL, problem.inputs(device)
    judge = Judge(problem, inputs)
    for config in (kernel.default_config(problem), triton_tutorial.CONFIGS[7]):
        out = run(kernel, problem, inputs, config=config, out_dtype=problem.out_dtype)
        assert_right(kernel, problem, judge, out, config)


def test_tritons_tutorial_has_the_configs_that_fit():
    """On Hopper 5 of the 8 that are meant for fp8 take more shared memory than there is."""
    space = triton_tutorial.KERNEL.space(Matmul(4096, 4096, 4096))
    assert (len(space.configs), sum(space.dropped.values())) == (11, 5)
    assert space.configs[:8] == triton_tutorial.CONFIGS[:8]


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Matmul(64, 64, 64, FP32), "as tf32"),
        (Matmul(64, 64, 64, epilogue=Epilogue.RELU), "not relu"),
        (Matmul(1 << 16, 16, 1 << 15), "32 bits"),
    ],
    ids=ids,
)
def test_tritons_tutorial_sits_out_with_a_reason(problem, reason):
    assert reason in triton_tutorial.KERNEL.supports(problem, None)


# What generators wrote, of the kernel-generation study.


@pytest.mark.parametrize(
    "problem",
    [Matmul(130, 72, 200, FP16), Matmul(65, 264, 50, BF16), Matmul(3, 40, 50, BF16, FP32)],
    ids=ids,
)
def test_makoras_product_is_right(problem, device):
    """Ragged in all three sizes; a strided C."""
    check_a_strided_c(makora.KERNEL, problem, device)


@pytest.mark.parametrize("problem", [Matmul(64, 48, 32, BF16), Matmul(3, 5, 32, BF16)], ids=ids)
def test_kernelllms_product_is_right(problem, device):
    kernel, inputs = kernelllm.KERNEL, problem.inputs(device)
    judge = Judge(problem, inputs)
    for config in (None, *kernel.configs(problem)):
        assert_right(kernel, problem, judge, run(kernel, problem, inputs, config=config), config)


def test_kernelllms_configs_divide_the_operands():
    """A of 64 x 32, B of 32 x 3: 96 elements, which blocks of 32 alone divide."""
    assert kernelllm.KERNEL.configs(Matmul(4096, 4352, 4224)) == kernelllm.CONFIGS
    space = kernelllm.KERNEL.configs(Matmul(64, 3, 32))
    assert space == (kernelllm.CONFIGS[1], kernelllm.CONFIGS[4])
    assert "multiples of 128 and 64" in kernelllm.KERNEL.supports(Matmul(64, 3, 32), kernelllm.CONFIGS[0])


def test_kernelllm_takes_contiguous_tensors_alone():
    a, b = torch.zeros(64, 128, dtype=BF16), torch.zeros(64, 64, dtype=BF16)
    with pytest.raises(ValueError, match="contiguous tensors, as published"):
        kernelllm.KERNEL.launch(a[:, :64], b)


@pytest.mark.parametrize(
    ("design", "problem", "reason"),
    [
        (makora.KERNEL, Matmul(64, 64, 64, FP32), "as tf32"),
        (makora.KERNEL, Matmul(64, 64, 64, epilogue=Epilogue.RELU), "no epilogue; asked for: relu"),
        (makora.KERNEL, Matmul(64, 64, 64, layout=Layout.NK), r"[K, N] alone"),
        (makora.KERNEL, Matmul(1 << 16, 16, 1 << 15), "32 bits"),
        (makora.KERNEL, Matmul(16, 1 << 23, 16), "65536 blocks along N"),
        (kernelllm.KERNEL, Matmul(64, 64, 64, FP16), "are bf16"),
        (kernelllm.KERNEL, Matmul(64, 64, 64, epilogue=Epilogue.RELU), "no epilogue; asked for: relu"),
        (kernelllm.KERNEL, Matmul(64, 64, 64, layout=Layout.NK), r"[K, N] alone"),
        (kernelllm.KERNEL, Matmul(1 << 16, 16, 1 << 15), "32 bits"),
        (kernelllm.KERNEL, Matmul(3, 5, 7), "A has 21 elements and B 35; accepted: multiples of any of its blocks"),
    ],
    ids=ids,
)
def test_what_generators_wrote_sits_out_with_a_reason(design, problem, reason):
    assert reason in design.supports(problem, None)


# The W4A16 SplitK paper.


@pytest.mark.parametrize("design", w4a16.KERNELS, ids=ids)
@pytest.mark.parametrize(
    "problem", [W4A16Matmul(1, 64, 512), W4A16Matmul(17, 96, 768, group_size=64)], ids=lambda problem: problem.name
)
def test_the_papers_kernels_are_right(design, problem, device):
    """Ragged M; two and four groups in a step; 6 steps over 4 and 16 splits; a strided C."""
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    positional, by_keyword = design.arguments(problem, inputs)
    for config in dict.fromkeys((design.default_config(problem), design.configs(problem)[-1])):
        wide = torch.full((problem.m, 2 * problem.n), float("nan"), dtype=FP16, device=device)
        design.launch(*positional, **by_keyword, out=wide[:, ::2], config=config)
        accuracy = judge.judge(wide[:, ::2], design.roundings(config))
        assert accuracy.ok, f"{design.full_name} with {config}: {accuracy}"
        assert wide[:, 1::2].isnan().all()


def test_the_papers_splits_and_what_it_does_not_take():
    data_parallel, splitk = w4a16.KERNELS
    assert [config.split_k for config in splitk.configs(W4A16Matmul(16, 4096, 4096))] == [2, 4, 8, 16]
    assert len(data_parallel.configs(W4A16Matmul(16, 4096, 4096))) == 1
    for kernel in w4a16.KERNELS:
        assert "fp16 with zero points" in kernel.supports(W4A16Matmul(16, 64, 512, BF16), None)
        assert "fp16 with zero points" in kernel.supports(W4A16Matmul(16, 64, 512, symmetric=True), None)
        assert "multiples of 32" in kernel.supports(W4A16Matmul(16, 72, 512), None)
    assert splitk.supports(W4A16Matmul(16, 64, 384), None) is None
    assert "32, 256, unmasked" in data_parallel.supports(W4A16Matmul(16, 64, 384), None)


# The manual-unrolling study.


@pytest.mark.parametrize("design", or_reduce.KERNELS, ids=ids)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(3, 17, 5), (9, 8, 4), (1, 2, 1)], ids=str)
def test_the_ors_are_right(design, dtype, shape, device):
    """Several programs, ragged in all three dimensions."""
    problem = OrReduce(*shape, dtype, constant=design.variant.startswith("control"))
    inputs = problem.inputs(device)
    held = torch.full((shape[0] + 2, shape[1]), 77, dtype=dtype, device=device)
    for config in design.configs(problem)[:2]:
        assert torch.equal(design.launch(inputs.a, out=held[1:-1], config=config), problem.reference(inputs))
        assert (held[[0, -1]] == 77).all()


def test_an_or_takes_contiguous_rows_and_a_control_a_constant():
    controls = [kernel for kernel in or_reduce.KERNELS if kernel.variant.startswith("control")]
    assert len(controls) == 2
    for kernel in set(or_reduce.KERNELS).difference(controls):
        with pytest.raises(ValueError, match="4 elements apart; accepted: 3, as published"):
            kernel.launch(torch.zeros(2, 3, 4, dtype=torch.int64)[:, :, :3])
        assert "32 bits" in kernel.supports(OrReduce(1 << 14, 1 << 13, 16), None)
    assert all("a control" in control.supports(OrReduce(2, 3, 4), None) for control in controls)


def test_a_large_tile_is_a_contender_of_its_own():
    """A search for the fastest tile would not take it; it is the same kernel, in one program for 64 x 64 outputs."""
    problem = OrReduce(128, 256, 8)
    for kind in ("reduce", "unrolled"):
        small, large = (named(f"published_triton/or_reduce.{kind}{end}") for end in ("", "_64x64"))
        (config,) = large.configs(problem)
        assert large.default_config(problem) == config == or_reduce.TileConfig(64, 64, 4)
        assert config not in small.configs(problem)
        launched, expected = (
            kernel.plan(problem, config, or_reduce.contiguous(problem)).launches[0] for kernel in (large, small)
        )
        assert launched == expected
        assert launched.grid == (2, 4)


@pytest.mark.parametrize("k", [4, 8, 16])
def test_triton_unrolls_the_or_reduce_of_a_known_length(k, tmp_path):
    """No branch leads back; lanes that share a K exchange by shuffles, two of 32 bits for an int64."""
    kernel = named("published_triton/or_reduce.reduce")
    problem = OrReduce(128, 256, k)
    config = kernel.default_config(problem)
    (text,) = ptx(kernel.full_name, problem, [config], tmp_path)
    seen: set[str] = set()
    for line in text.splitlines():
        seen.update(re.findall(r"^\s*(\$\w+):", line))
        assert not seen & set(re.findall(r"\bbra(?:\.uni)?\s+(\$\w+)", line))
    values = config.block_m * config.block_n * k // (32 * config.num_warps)  # of a thread
    lane = max(1, k // 8)  # values of K that it loads at once
    steps = (k // lane).bit_length() - 1
    assert text.count("shfl.sync") == 2 * steps * values // lane


# Compiled for Hopper, as they would run: of each document the last of its designs, which has all that the others have.


def tasks():
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = False
        for kernel in PUBLISHED:
            if kernel.variant in ("optimized", "v5", "", "makora", "splitk", "reduce"):
                problem = OF_ITS_DOCUMENT[kernel.full_name.partition(".")[0]]
                yield Task(kernel, problem, kernel.default_config(problem), "space", "sm_90a")


PUBLISHED = [kernel for kernel in contenders.all_contenders() if kernel.language.value.startswith("published")]
OF_ITS_DOCUMENT = {
    "published_triton/decompose_k": Matmul(16, 16, 32768, epilogue=Epilogue.RELU),
    "published_tilus/matmul": Matmul(4096, 4096, 4096, FP16),
    "published_triton/template": Matmul(16, 16, 256, epilogue=Epilogue.RELU),
    "published_triton/matmul": Matmul(4096, 4096, 4096, BF16),
    "published_triton/w4a16": W4A16Matmul(16, 4096, 4096),
    "published_triton/or_reduce": OrReduce(2048, 4096, 16),
}
TASKS = compiled.wanted(*tasks())


@compiled.on_one_worker
@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kernel.full_name}-{task.config}")
def test_it_compiles_for_hopper(task):
    outcome = compiled.built(task)
    assert not outcome.error
    assert not any(gpu_kernel.over("sm_90a") for gpu_kernel in outcome.gpu_kernels)
    multiplies = any("tensor cores" in gpu_kernel.instructions for gpu_kernel in outcome.gpu_kernels)
    assert multiplies == (task.problem.op != OrReduce.op)


def or_tasks():
    for kernel in or_reduce.KERNELS[:2]:
        for size in (32, 64):
            for k in (4, 8, 16):
                yield Task(kernel, OrReduce(128, 256, k), or_reduce.TileConfig(size, size, 4), "space", "sm_90a")


OR_TASKS = compiled.wanted(*or_tasks())


@compiled.on_one_worker
@pytest.mark.parametrize("task", OR_TASKS, ids=lambda task: f"{task.kernel.full_name}-{task.config}-k{task.problem.k}")
def test_a_large_tile_spills_on_hopper_where_it_is_reduced(task):
    """Hardly at K = 4, where the study's gap is least."""
    outcome = compiled.built(task)
    assert not outcome.error
    (gpu_kernel,) = outcome.gpu_kernels
    if task.kernel.variant != "reduce" or task.config.block_m < 64:
        assert not gpu_kernel.spills
    elif task.problem.k == 4:
        assert 0 < gpu_kernel.spill_stores < 500
    else:
        assert gpu_kernel.spill_stores > 10_000


# Who takes part.


@pytest.mark.parametrize("design", PUBLISHED, ids=ids)
def test_it_takes_part_in_its_document_on_request(design):
    problems = [problem for _, problem in workloads.problems(workload_of(design))]
    assert design.on_request
    assert all(design.supports(problem, None) is None for problem in problems)
    for problem in problems:
        config = design.default_config(problem)
        assert design.supports(problem, config) is None
        assert config in design.configs(problem)


def workload_of(design):
    if design.op == OrReduce.op:
        return "or_reduce-control" if design.variant.startswith("control") else "or_reduce-int64"
    return WORKLOAD_OF[design.full_name.partition(".")[0]]


WORKLOAD_OF = {
    "published_triton/decompose_k": "skinny-epilogue-bf16",
    "published_tilus/matmul": "square-tutorial",
    "published_triton/template": "skinny-epilogue-bf16",
    "published_triton/matmul": "square-generated",
    "published_triton/w4a16": "w4a16-llama",
}


# What any of them is.


def test_what_is_said_to_have_one_config_has_no_other():
    problems = [problem for suite in workloads.SUITES for _, problem in workloads.problems(suite.name)]

    def most_configs(kernel):
        taken = [problem for problem in problems if problem.op == kernel.op and kernel.supports(problem, None) is None]
        return max(len(kernel.space(problem).configs) for problem in taken)

    published = [kernel for kernel in contenders.all_contenders() if kernel.full_name.startswith("published_")]
    alone = [kernel.full_name for kernel in published if most_configs(kernel) == 1]
    assert alone == [kernel.full_name for kernel in published if kernel.full_name.startswith(ONE_CONFIG)]
    split = w4a16.KERNELS[1]
    assert f"{split.full_name}@s4".startswith(ONE_CONFIG)
    spaces = [split.space(problem).configs for problem in problems if problem.op == split.op]
    assert all(len({config.split_k for config in space}) == len(space) for space in spaces)
