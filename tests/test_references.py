"""The references: right, compiled for one problem at a time, telling what was generated, or sitting out with a reason.

Half precision into an fp32 product, and what searches, need a GPU: on a CPU they are held to their fp32 form, or to
saying so.
"""

import argparse
import sys
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from matmul_cases import skip_unless_supported

from triton_vs_tilus.bench import ROOT, cli, contenders, references
from triton_vs_tilus.bench.measure import worker
from triton_vs_tilus.bench.measure.referee import Referee
from triton_vs_tilus.bench.measure.rotation import launcher
from triton_vs_tilus.bench.references import (
    compiling,
    custom_op,
    cute_dsl,
    decompose_k,
    flashinfer_router,
    helion_matmul,
    humming_w4a16,
    torch_compile,
    torch_int4pack_mm,
)
from triton_vs_tilus.bench.rows import environment
from triton_vs_tilus.bench.rows.row import PASSED, UNSUPPORTED, WRONG
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, problem_arguments
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.quantization import unpack_rows
from triton_vs_tilus.common.w4a16 import W4A16Matmul

# What compiles for a CPU in a process of its own caches also compiles its headers anew: one process does all of it.
pytestmark = pytest.mark.xdist_group("references")

FP32, BF16 = torch.float32, torch.bfloat16
CPU = torch.device("cpu")
SMALL = Matmul(4, 16, 64, FP32, layout=Layout.NK, epilogue=Epilogue.RELU)
# Of them Triton's templates alone know no CPU.
OF_TORCH = [
    kernel
    for kernel in (*torch_compile.KERNELS, *decompose_k.KERNELS, *custom_op.KERNELS[:2])
    if kernel.variant != "triton_templates"
]
ON_REQUEST = [kernel for kernel in contenders.all_contenders() if kernel.on_request]
OF_MATMULS = [kernel for kernel in ON_REQUEST if kernel.op == Matmul.op]
ids = lambda kernel: kernel.full_name  # noqa: E731


@pytest.fixture(autouse=True, scope="module")
def empty_caches(tmp_path_factory):
    """Inductor finds nothing that an earlier run has left. It compiles for the CPU that it is told of, without programs
    that try its instructions."""
    with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        compiling._compiled_for.cache_clear()
        yield
    compiling._compiled_for.cache_clear()
    torch._dynamo.reset()


def named(full_name: str) -> Kernel:
    return contenders.find(full_name)


def run(kernel: Kernel, problem: Matmul, inputs=None, config=None):
    inputs = problem.inputs("cpu") if inputs is None else inputs
    return launcher(kernel, problem, config)(inputs, None)


def checked(full_name: str, problem: Matmul, device=CPU) -> worker.Result:
    """What the worker makes of a contender before it is timed."""
    return worker._check(problem, full_name, None, device, 0, announce=lambda _: None)


# Right.


@pytest.mark.parametrize("kernel", OF_TORCH, ids=ids)
def test_it_is_right(kernel):
    skip_unless_supported(kernel, SMALL)
    inputs = SMALL.inputs("cpu")
    judge = Judge(SMALL, inputs)
    config = kernel.default_config(SMALL)
    for _ in range(2):  # compiled, and then as compiled
        assert judge.judge(run(kernel, SMALL, inputs, config), kernel.roundings(config)).ok
    assert kernel.note() or kernel.full_name == "torch/decompose_k.eager"


@pytest.mark.parametrize("epilogue", [Epilogue.BIAS_RELU, Epilogue.SCALE])
def test_a_vector_goes_through_the_compiler(epilogue):
    problem = Matmul(4, 16, 64, FP32, epilogue=epilogue)
    inputs = problem.inputs("cpu")
    for name in ("torch/compile.default", "torch/decompose_k.compiled"):
        out = run(named(name), problem, inputs)
        assert Judge(problem, inputs).judge(out, 2).ok


def by_itself(what: Any, name: str):
    """A parameter whose tests have a process to themselves."""
    return pytest.param(what, marks=pytest.mark.xdist_group(name), id=name)


# For a GPU it is the search that takes the time.
@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [by_itself(kernel, kernel.full_name) for kernel in OF_MATMULS])
@pytest.mark.parametrize(
    "problem",
    [
        by_itself(problem, problem.name)
        for problem in (
            Matmul(16, 64, 2048, layout=Layout.NK, epilogue=Epilogue.RELU),
            Matmul(4, 256, 7168, layout=Layout.NK),
        )
    ],
)
def test_it_passes_the_referee(kernel, problem, device):
    skip_unless_supported(kernel, problem)
    config = kernel.default_config(problem)
    try:
        Referee(problem, device, 0).examine(
            launcher(kernel, problem, config), kernel.roundings(config), kernel.deterministic
        )
    except NotImplementedError as error:
        pytest.skip(str(error))


OF_A_AND_B = [kernel for kernel in OF_MATMULS if kernel.arguments is problem_arguments]


@pytest.mark.parametrize("kernel", OF_A_AND_B, ids=ids)
def test_bad_input_is_told_before_anything_is_compiled(kernel):
    a, b = torch.zeros(4, 8), torch.zeros(9, 16)
    with pytest.raises(ValueError, match=r"b has shape \(9, 16\); accepted: \(8, N\)"):
        kernel.launch(a, b)


@pytest.mark.parametrize("kernel", [*decompose_k.KERNELS], ids=ids)
def test_half_precision_into_fp32_needs_a_gpu(kernel):
    with pytest.raises(NotImplementedError, match="into fp32 needs a GPU"):
        run(kernel, Matmul(4, 16, 64, BF16))


# One problem at a time.


def test_without_a_reset_dynamo_falls_back_to_eager_and_says_nothing():
    """What the references guard against: after so many shapes the compiled function is the function itself."""
    compiled = 0

    def backend(graph, _):
        nonlocal compiled
        compiled += 1
        return graph.forward

    def function(a, b):
        return torch.mm(a, b)

    def sweep(reset: bool, **options) -> int:
        nonlocal compiled
        torch._dynamo.reset()
        compiled, shapes = 0, range(2, 14)
        fast = torch.compile(function, backend=backend, dynamic=False, **options)
        for m in shapes:
            if reset:
                torch._dynamo.reset()
            fast(torch.ones(m, 4), torch.ones(4, 4))
        return len(shapes) - compiled

    limit = torch._dynamo.config.recompile_limit
    assert sweep(reset=False) == 12 - limit > 0  # so many ran as eager torch, under the name of the compiled one
    assert sweep(reset=True) == 0
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        sweep(reset=False, fullgraph=True)


def test_every_problem_is_compiled_anew(monkeypatch):
    """By a copy of the function, whose graphs Dynamo counts apart."""
    kernel = named("torch/compile.default")
    problems = [Matmul(m, 8, 32, FP32) for m in range(2, 6)]
    with torch._dynamo.config.patch(recompile_limit=2):
        for problem in problems:
            run(kernel, problem)
            assert kernel.note() == "compiled to mm"
        monkeypatch.setattr(compiling, "_copy_of", lambda function: function)
        compiling._compiled_for.cache_clear()
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            for problem in problems:
                run(kernel, problem)


def test_one_program_for_every_m_is_compiled_once(monkeypatch):
    """And an M that it does not take is an error, no program that nobody was told of."""

    def anything(a):
        return a + 1

    def of_few_rows(a):
        return a + 1 if a.shape[0] < 8 else a - 1

    def any_m(a):
        alias = a.detach()
        torch._dynamo.maybe_mark_dynamic(alias, 0)
        return (alias,)

    for function, refused in ((anything, False), (of_few_rows, True)):
        compiled = compiling.Compiled(function, "default", dynamic=None, first=any_m)
        for m in (2, 5):
            assert compiled(Matmul(m, 4, 4, FP32), torch.zeros(m, 4)).tolist() == [[1.0] * 4] * m
        made = compiled.program
        monkeypatch.setattr(torch, "compile", None)
        if refused:
            with pytest.raises(torch._dynamo.exc.RecompileError):
                compiled(Matmul(9, 4, 4, FP32), torch.zeros(9, 4))
        else:
            assert compiled(Matmul(9, 4, 4, FP32), torch.zeros(9, 4)).sum() == 36
        assert compiled.program == made
        monkeypatch.undo()


def test_of_one_problem_nothing_is_compiled_twice():
    kernels = [named("torch/compile.default"), named("torch/compile.max_autotune_no_cudagraphs")]
    problem = Matmul(3, 8, 32, FP32)
    for kernel in kernels:
        run(kernel, problem)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for kernel in kernels:
            run(kernel, problem)


def test_more_programs_than_dynamo_keeps_are_compiled():
    """Of one problem, as many as a search over a router's splits compiles, in a mode that takes no time."""
    configs = named("torch/decompose_k.compiled").configs(Matmul(2, 4, 7168))
    assert [config.split_k for config in configs] == list(decompose_k.SPLITS)
    added = compiling.Compiled(lambda a, *, by: a + by, "default", {})
    with torch._dynamo.config.patch(recompile_limit=1):
        outs = [added(Matmul(1, 1, 1, FP32), torch.zeros(2), by=by) for by in (1.0, 2.0, 3.0)]
    assert [out.tolist() for out in outs] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


def test_a_parameters_address_is_told_before_every_call(monkeypatch):
    """Of B and of the bias, not of A, which is a model's input."""
    told, marked = [], torch._dynamo.mark_static_address
    monkeypatch.setattr(
        torch._dynamo, "mark_static_address", lambda tensor, **k: told.append(tensor) or marked(tensor, **k)
    )
    a, b, bias = torch.zeros(4, 64), torch.zeros(64, 16), torch.zeros(16)
    torch_compile._as_parameters(a, b, bias)
    torch_compile._as_parameters(a, b, None)
    assert [tensor is expected for tensor, expected in zip(told, (b, bias, b), strict=True)] == [True] * 3
    parameter, copied = (named(f"torch/compile.max_autotune{variant}") for variant in ("_parameter", ""))
    assert parameter.launch.args[0].marked is torch_compile._as_parameters and copied.launch.args[0].marked is None


def test_a_program_of_another_contender_is_not_taken():
    def function(a, b):
        return torch.mm(a, b)

    first, second = (compiling.Compiled(function, "default") for _ in range(2))
    a, b = torch.ones(5, 8), torch.ones(8, 8)
    for compiled in (first, second):
        compiled(Matmul(5, 8, 8, FP32), a, b)
        assert compiled.program == "mm"


# What was generated.

PROGRAM = """
triton_poi_fused_relu_1 = async_compile.triton('triton_poi_fused_relu_1', '''
def triton_poi_fused_relu_1(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
''')
def decompose_k_mm_64_split_5(args):
    extern_kernels.bmm_dtype(reinterpret_tensor(arg0_1, (64, 16, 512)), out_dtype=torch.float32, out=buf0)
    triton_per_fused_mm_0.run(buf0, buf2, 256, 64, stream=stream0)
def call(args):
    (buf0,) = decompose_k_mm_64_split_5(decompose_k_mm_64_split_5_args)
    triton_poi_fused_relu_1.run(buf1, 256, stream=stream0)
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (PROGRAM, "decompose-K, split 64: bmm_dtype, triton_per_fused_mm_0, triton_poi_fused_relu_1"),
        ("    triton_tem_fused_mm_relu_0.run(arg0_1, buf0, 1, 1, 1)\n", "triton_tem_fused_mm_relu_0"),
        ("    buf0 = torch.ops.triton_vs_tilus.mm_relu.default(arg0_1, arg1_1)\n", "triton_vs_tilus.mm_relu"),
    ],
)
def test_a_program_in_words(program, words):
    assert compiling.in_words(program) == words


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"mm": 0.0312, "triton_mm_9": 0.02052, "triton_mm_3": 0.03}, ["triton_mm_9 at 20.5 us, mm at 31.2 us, of 3"]),
        ({"triton_mm_9": 0.0205, "mm": 0.0095, "triton_mm_3": 0.0201}, ["mm at 9.5 us, triton_mm_3 at 20.1 us, of 3"]),
        ({"triton_mm_9": 0.02, "triton_mm_3": 0.01}, ["triton_mm_3 at 10.0 us, of 2"]),
        ({}, []),  # one candidate is not timed
    ],
)
def test_a_row_tells_what_inductor_measured_of_its_candidates(times, said):
    from torch._inductor import select_algorithm

    def choice(name):
        kind = select_algorithm.ExternKernelCaller if name == "mm" else select_algorithm.TritonTemplateCaller
        made = kind.__new__(kind)
        made.name = name
        return made

    with compiling._searches() as found:
        for save in select_algorithm.get_algorithm_selector_cache().feedback_saver_fns:
            save({choice(name): ms for name, ms in times.items()}, "mm", [], [], None, {})
    assert found == [f"Inductor timed {each} for mm" for each in said]


def test_a_row_tells_the_program_whether_generated_or_kept():
    kernel = named("torch/compile.default")
    for _ in range(2):
        compiling._compiled_for.cache_clear()
        run(kernel, SMALL)
        assert kernel.note() == "compiled to mm, cpp_fused_relu_0"


def test_decompose_k_is_offered_where_it_is_asked_for_and_nowhere_else(monkeypatch):
    """The router's 7168 is less than 32 * 256. Inductor keeps its answer by (M, N, K): one contender's must not be
    another's."""
    from torch._inductor.kernel import mm
    from torch._inductor.utils import use_decompose_k_choice

    offered = []

    def asked(*_, **__):
        offered.append(use_decompose_k_choice(1, 256, 7168))
        return False

    monkeypatch.setattr(mm, "use_triton_template", asked)
    plain, lowered = named("torch/compile.max_autotune_no_cudagraphs"), named("torch/compile.decompose_k")
    for m, kernel in enumerate([plain, lowered, plain, lowered], start=20):
        count = len(offered)
        run(kernel, Matmul(m, 8, 32, FP32))
        assert set(offered[count:]) == {kernel is lowered}
    assert "wider" in lowered.supports(Matmul(1, 256, 7168, BF16, FP32), None)


def test_the_profiled_search_takes_and_leaves_no_times():
    from torch._inductor.codecache import PersistentCache

    class Cache(PersistentCache):
        def get_local_cache(self):
            raise AssertionError("read")

        def update_local_cache(self, local_cache):
            raise AssertionError("written")

    with torch_compile._timed_by_profiler():
        assert Cache().lookup(["mm"], "mm", "sizes", lambda choices: dict.fromkeys(choices, 0.02)) == {"mm": 0.02}
        assert Cache().lookup(["mm"], "mm", "sizes", None) == {}
    with pytest.raises(AssertionError, match="read"):
        Cache().lookup(["mm"], "mm", "sizes", None)


def test_the_profiled_search_has_every_candidate_timed_by_the_profiler(monkeypatch):
    from torch._inductor import utils
    from torch._inductor.runtime.benchmarking import benchmarker

    asked, timed = [], benchmarker.benchmark_gpu
    monkeypatch.setattr(utils, "do_bench_using_profiling", lambda call: asked.append(call) or 0.5)
    with torch_compile._timed_by_profiler():
        assert benchmarker.benchmark_gpu(asked.clear, rep=1) == 0.5
    assert asked == [asked.clear] and benchmarker.benchmark_gpu == timed


@pytest.mark.gpu
def test_the_profiled_search_times_its_candidates_on_the_gpu(device, monkeypatch):
    """Its times are of the profiler: none of them is asked of the clock that the other searches have."""
    from torch._inductor.runtime.benchmarking import benchmarker

    def refuse(*_, **__):
        raise AssertionError("timed by events")

    monkeypatch.setattr(type(benchmarker), "benchmark_gpu", refuse)
    kernel, problem = named("torch/compile.max_autotune_profiled"), Matmul(16, 256, 1024)
    inputs = problem.inputs(device)
    assert Judge(problem, inputs).judge(run(kernel, problem, inputs)).ok
    assert "Inductor timed" in kernel.note()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["torch/compile.max_autotune", "torch/decompose_k.max_autotune"])
def test_a_graph_of_its_own_is_not_captured_in_another(name, device):
    kernel, problem = named(name), Matmul(16, 64, 2048)
    inputs = problem.inputs(device)
    call = launcher(kernel, problem, kernel.default_config(problem))
    judge = Judge(problem, inputs)
    assert all(judge.judge(call(inputs, None)).ok for _ in range(3))
    with pytest.raises(RuntimeError, match="CUDA graph of its own"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        call(inputs, None)
    assert judge.judge(call(inputs, None)).ok
    assert "copies A and B" in kernel.note()


# Decompose-K in torch.


@pytest.mark.parametrize(
    ("problem", "split"),
    [
        (Matmul(16, 16, 32768), 128),
        (Matmul(1, 256, 7168), 32),
        (Matmul(64, 256, 7168), 32),
        (Matmul(1024, 256, 7168), 2),
        (Matmul(16, 16, 48), 2),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_split_without_a_search(problem, split):
    assert decompose_k.default_config(problem).split_k == split


@pytest.mark.parametrize(("k", "reason"), [(7, "K = 7 has to be a multiple"), (48, "accepted: 2")])
def test_a_split_has_to_cut_k_into_equal_bands(k, reason):
    kernel = named("torch/decompose_k.eager")
    assert reason in kernel.supports(Matmul(4, 4, k, FP32), decompose_k.Split(3))


def test_a_named_split_is_a_contender():
    kernel = named("torch/decompose_k.eager@s4")
    assert kernel.default_config(SMALL) == decompose_k.Split(4)
    assert Judge(SMALL, SMALL.inputs("cpu")).judge(run(kernel, SMALL, config=decompose_k.Split(4))).ok
    assert kernel.workspace_bytes(SMALL, decompose_k.Split(4)) == 4 * 4 * 16 * 4


# Custom operators.


def test_an_operator_is_intercepted_for_its_own_compilation_only():
    kernel, plain = named("torch/custom_op.mm"), named("torch/compile.default")
    skip_unless_supported(kernel, SMALL)
    from torch._inductor.lowering import user_lowerings

    run(kernel, SMALL)
    assert kernel.note().startswith("won by ")
    assert torch.ops.aten.mm.default not in user_lowerings
    run(plain, SMALL)
    assert plain.note() == "compiled to mm, cpp_fused_relu_0"


@pytest.mark.parametrize("kernel", custom_op.KERNELS[2:], ids=ids)
def test_one_graph_serves_every_m(kernel, monkeypatch):
    """Two ranges of M, as each is compiled and timed by itself."""
    skip_unless_supported(kernel, SMALL)
    assert custom_op.SPLIT_POINTS == [1, 8, 32, 128, 512]
    monkeypatch.setattr(custom_op, "SPLIT_POINTS", [8])
    inputs = SMALL.inputs("cpu")
    assert Judge(SMALL, inputs).judge(run(kernel, SMALL, inputs)).ok
    ranges = ["M 1-8", "M 9-inf"]
    said = kernel.note()
    winners, _, program = said.removeprefix("won by ").partition("; compiled to ")
    assert [winner.partition(": ")[0] for winner in winners.split("; ")] == ranges
    assert all(f" for mm_relu_range_{ends}" in program for ends in ("1_8", "9_inf"))
    for m in (2, 20):
        problem = replace(SMALL, m=m)
        assert Judge(problem, problem.inputs("cpu")).judge(run(kernel, problem)).ok
        assert kernel.note() == said
    assert not hasattr(inputs.a, "_dynamo_weak_dynamic_indices")  # the mark is on an alias


def test_a_search_within_the_winner_is_not_the_winner():
    plain, template = Mock(decomposition_kwargs={}), Mock(spec=[])
    autotuned = custom_op.Autotuned(fused=True, dynamic=False)
    autotuned._saw("mm_relu", {plain: 1.0}, "mm_relu")
    autotuned._saw("mm_relu", {template: 0.5}, "mm")
    assert autotuned.note() == "won by no split"


def test_what_the_installed_signature_lacks_is_not_passed(monkeypatch):
    from torch._inductor.kernel import custom_op as of_torch

    passed = {}

    def of_2_10(custom_op, configs=None, config_generator=None, name=None, input_gen_fns=None):
        passed.update(custom_op=custom_op, name=name, config_generator=config_generator)

    monkeypatch.setattr(of_torch, "register_custom_op_autotuning", of_2_10)
    assert "takes no operator of torch itself" in named("torch/custom_op.mm").supports(SMALL, None)
    assert "knows no ranges" in named("torch/custom_op.fused_dynamic").supports(SMALL, None)
    with custom_op.Autotuned(fused=True, dynamic=False)._registered(Epilogue.RELU, on_gpu=False):
        pass
    assert passed["name"] == "mm_relu"
    operands = {"a": torch.zeros(4, 96), "b": torch.zeros(96, 8)}
    candidates = passed["config_generator"](operands)
    assert [candidate.params for candidate in candidates] == [{}, {"split_k": 2}, {"split_k": 4}]
    for candidate in candidates:
        out = candidate.decomposition(torch.full((4, 96), -1.0), torch.ones(96, 8), **candidate.params)
        assert torch.equal(out, torch.zeros(4, 8))


@pytest.mark.parametrize(
    ("name", "problem", "reason"),
    [
        ("fused", Matmul(4, 8, 64, epilogue=Epilogue.BIAS_RELU), "no vector"),
        ("fused", Matmul(4, 8, 64, BF16, FP32), "dtype of the inputs"),
        ("fused", Matmul(4, 8, 7), "has to be a multiple"),
        ("fused_dynamic", Matmul(1, 8, 64), "a size of 1 for a constant"),
    ],
)
def test_a_custom_operator_sits_out_with_a_reason(name, problem, reason):
    assert reason in named(f"torch/custom_op.{name}").supports(problem, None)


# What is installed or not.


@pytest.mark.parametrize(
    ("name", "problem", "package"),
    [
        ("helion/matmul", Matmul(4, 8, 64), "helion"),
        ("flashinfer/router", Matmul(4, 256, 7168, layout=Layout.NK), "flashinfer-python"),
        ("flashinfer/tinygemm", Matmul(4, 256, 7168, layout=Layout.NK), "flashinfer-python"),
        ("humming/w4a16", W4A16Matmul(1, 256, 256), "humming-kernels"),
    ],
)
def test_a_package_that_is_not_there_is_a_reason(monkeypatch, name, problem, package):
    monkeypatch.setattr(environment, "version", lambda _: None)
    kernel = named(name)
    told = f"{package} is not installed: pip install --editable '.["
    assert kernel.supports(problem, None).startswith(told)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert contenders.environment_reason(kernel.language).startswith(told)
    monkeypatch.setattr(environment, "version", lambda _: "1")
    assert kernel.supports(problem, None) is None
    assert contenders.environment_reason(kernel.language) is None


def test_a_helion_that_cannot_be_imported_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton_vs_tilus.bench.references.helion_kernels", None)
    monkeypatch.delattr(references, "helion_kernels", raising=False)
    with pytest.raises(NotImplementedError, match=r"helion .* with torch .* cannot be imported: "):
        helion_matmul._kernels()
    with pytest.raises(NotImplementedError, match="searches on a GPU"):
        run(named("helion/split_k"), SMALL)
    assert "no vector" in named("helion/matmul").supports(Matmul(4, 8, 64, epilogue=Epilogue.BIAS_RELU), None)


@pytest.mark.parametrize("name", ["matmul", "split_k"])
@pytest.mark.parametrize("epilogue", [epilogue for epilogue in Epilogue if not epilogue.has_bias])
def test_a_helion_kernel_as_helion_runs_it_in_torch(monkeypatch, name, epilogue):
    helion = pytest.importorskip("helion")
    from helion.runtime.ref_mode import RefMode

    from triton_vs_tilus.bench.references import helion_kernels

    kernel, problem = getattr(helion_kernels, name), Matmul(24, 40, 500, FP32, layout=Layout.NK, epilogue=epilogue)
    inputs, out = problem.inputs("cpu"), torch.full((24, 40), float("nan"))
    arguments = inputs.a, inputs.b, out, helion_kernels.FINISH[epilogue]
    bound = kernel.bind(arguments)
    config = bound.config_spec.default_config()
    assert "tl.dot" in bound.to_triton_code(config)
    in_torch = helion.kernel(kernel.fn, config=config, static_shapes=True, ref_mode=RefMode.EAGER)
    judge = Judge(problem, inputs)
    monkeypatch.setattr(torch, "mm", lambda a, b, out_dtype: torch.matmul(a, b))  # torch's has no out_dtype on a CPU
    assert judge.judge(in_torch(*arguments)).ok


@contextmanager
def installed_flashinfer(monkeypatch, **functions):
    module = SimpleNamespace(gemm=SimpleNamespace(**functions))
    monkeypatch.setitem(sys.modules, "flashinfer", module)
    monkeypatch.setitem(sys.modules, "flashinfer.gemm", module.gemm)
    monkeypatch.setattr(environment, "version", lambda _: "0.7")
    monkeypatch.setattr(flashinfer_router, "version", lambda _: "0.7")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    yield


def router_kernel(*capabilities: int):
    def function(a, b, out):
        out.copy_(a.float() @ b.float())

    function.is_compute_capability_supported = lambda capability: capability in capabilities
    return function


def test_the_router_kernel_is_taken_by_the_dtype_of_its_output(monkeypatch):
    kernel = named("flashinfer/router")
    with installed_flashinfer(
        monkeypatch, mm_M1_16_K7168_N256=router_kernel(90, 100), mm_M1_16_K7168_N256_bf16=router_kernel(100)
    ):
        problem = Matmul(4, 256, 7168, BF16, FP32, layout=Layout.NK)
        inputs = problem.inputs("cpu")
        assert Judge(problem, inputs).judge(run(kernel, problem, inputs)).ok
        with pytest.raises(
            NotImplementedError, match=r"_bf16 of flashinfer 0.7 does not accept compute capability 9.0"
        ):
            run(kernel, Matmul(4, 256, 7168, BF16, layout=Layout.NK))
    with installed_flashinfer(monkeypatch), pytest.raises(NotImplementedError, match="has no mm_M1_16_K7168_N256"):
        run(kernel, problem, inputs)


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(17, 256, 7168, layout=Layout.NK),
        Matmul(4, 256, 7168),
        Matmul(4, 128, 7168, layout=Layout.NK),
        Matmul(4, 256, 7168, layout=Layout.NK, epilogue=Epilogue.SIGMOID),
        Matmul(4, 256, 7168, torch.float16, layout=Layout.NK),
    ],
    ids=lambda problem: problem.name,
)
def test_the_router_kernel_is_for_the_router_alone(problem):
    kernel = named("flashinfer/router")
    assert "alone" in kernel.supports(problem, None)
    with pytest.raises(NotImplementedError, match="alone"):
        run(kernel, problem)


def test_tinygemm_gets_the_weight_as_it_is_stored(monkeypatch):
    """[N, K], its rows contiguous, and C to write into."""

    def tinygemm_bf16(input, weight, out):
        assert weight.shape == (32, 64) and weight.is_contiguous() and input.is_contiguous()
        out.copy_(input.float() @ weight.float().T)

    kernel, problem = named("flashinfer/tinygemm"), Matmul(3, 32, 64, layout=Layout.NK)
    inputs = problem.inputs("cpu")
    with installed_flashinfer(monkeypatch, tinygemm_bf16=tinygemm_bf16):
        assert Judge(problem, inputs).judge(run(kernel, problem, inputs)).ok
    with installed_flashinfer(monkeypatch), pytest.raises(NotImplementedError, match="has no tinygemm_bf16"):
        run(kernel, problem)


@pytest.mark.parametrize(
    ("name", "problem", "reason"),
    [
        (
            "flashinfer/tinygemm",
            Matmul(3, 32, 65, layout=Layout.NK),
            "K = 65 and N = 32; accepted: multiples of 64 and",
        ),
        ("flashinfer/tinygemm", Matmul(3, 32, 64), "B stored [N, K] alone"),
        ("flashinfer/tinygemm", Matmul(3, 32, 64, BF16, FP32, layout=Layout.NK), "takes and returns bf16 alone"),
        ("flashinfer/cute_dsl", Matmul(3, 32, 64, layout=Layout.NK), "for the SM100 family alone"),
        ("cute_dsl/router", Matmul(17, 32, 64, BF16, FP32, layout=Layout.NK), "it is M <= 16"),
        ("cute_dsl/router", Matmul(3, 32, 64, layout=Layout.NK), "it takes bf16 and returns fp32 alone"),
        ("cute_dsl/router", Matmul(3, 32, 64, BF16, FP32, layout=Layout.NK), "vllm is not installed"),
        ("helion/matmul.default_effort", Matmul(16, 64, 2048), "at default effort on 16x256x7168-bf16-nk, "),
        ("helion/split_k.default_effort", Matmul(16, 256, 7168, layout=Layout.NK), "python -m triton_vs_tilus.bench."),
    ],
)
def test_an_opponent_sits_out_with_a_reason(monkeypatch, tmp_path, name, problem, reason):
    kernel = named(name)
    if name.startswith(("flashinfer", "helion")):
        monkeypatch.setattr(environment, "version", lambda _: "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    monkeypatch.setattr(helion_matmul, "AHEAD", tmp_path)
    assert reason in kernel.supports(problem, None)


def test_vllms_router_product_is_called_with_the_weight_as_it_is_stored(monkeypatch):
    def ll_bf16_gemm(hidden_states, router_weight, output_dtype):
        assert router_weight.is_contiguous() and output_dtype is FP32
        return hidden_states.float() @ router_weight.float().T

    module = SimpleNamespace(is_available=lambda: True, ll_bf16_gemm=ll_bf16_gemm)
    monkeypatch.setattr(cute_dsl, "version", lambda _: "0.26")
    monkeypatch.setitem(sys.modules, cute_dsl.MODULE, module)
    monkeypatch.setattr(cute_dsl.importlib, "import_module", sys.modules.__getitem__)
    problem = Matmul(3, 32, 64, BF16, FP32, layout=Layout.NK)
    inputs = problem.inputs("cpu")
    assert Judge(problem, inputs).judge(run(named("cute_dsl/router"), problem, inputs)).ok
    module.is_available = lambda: False
    with pytest.raises(NotImplementedError, match=r"CuTe DSL .* is not installed"):
        run(named("cute_dsl/router"), problem)
    monkeypatch.delitem(sys.modules, cute_dsl.MODULE)
    with pytest.raises(NotImplementedError, match=r"of vllm 0\.26: KeyError"):
        run(named("cute_dsl/router"), problem)


def test_what_helion_was_given_time_for_takes_part(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "version", lambda _: "1")
    monkeypatch.setattr(helion_matmul, "AHEAD", tmp_path)
    kernel, problem = named("helion/matmul.default_effort"), helion_matmul.SUBSET[0]
    assert kernel.supports(problem, None)
    kernel.supports.__self__._ahead(problem).write_text("found")
    assert kernel.supports(problem, None) is None
    assert kernel.supports(helion_matmul.SUBSET[1], None)


# torch's product by a weight of four bits.

INT4PACK = torch_int4pack_mm.KERNEL
FOUR_BITS = [
    W4A16Matmul(3, 48, 96 if size == 32 else 384, BF16, size, symmetric)
    for size in (32, 64, 128)
    for symmetric in (False, True)
]


@pytest.mark.parametrize("problem", FOUR_BITS, ids=lambda problem: problem.name)
def test_torchs_product_by_four_bits_passes_the_referee(problem, device):
    assert INT4PACK.supports(problem, None) is None
    accuracy, _ = Referee(problem, device, 0).examine(launcher(INT4PACK, problem, None), 1, INT4PACK.deterministic)
    assert accuracy.ok


@pytest.mark.gpu
@pytest.mark.parametrize("m", [1, 16, 128])
def test_torchs_product_by_four_bits_is_right_at_4096(m, device):
    problem = W4A16Matmul(m, 4096, 4096, BF16)
    Referee(problem, device, 0).examine(launcher(INT4PACK, problem, None), 1, INT4PACK.deterministic)


@pytest.mark.parametrize("problem", FOUR_BITS, ids=lambda problem: problem.name)
def test_its_scales_and_shifts_mean_the_same_weight(problem):
    """As a GPU's kernel makes a weight of them, but for roundings: of the shift, of up to 8 scales, and of the sum."""
    weight = problem.inputs("cpu").weight
    _, scales_and_shifts = torch_int4pack_mm.lay_out(weight)
    scales, shifts = scales_and_shifts.double().repeat_interleave(problem.group_size, dim=0).unbind(-1)
    offsets = unpack_rows(weight.qweight) - torch_int4pack_mm.MIDDLE
    error = (offsets * scales + shifts - weight.dequantized()).abs()
    assert (error <= torch.finfo(BF16).eps / 2 * 8 * scales).all()
    assert not problem.symmetric or (error == 0).all()


def test_the_bytes_that_a_gpu_lays_out():
    """Of each pair of rows of K the even one in the upper nibble; of a shape that the operator takes, at every K."""
    q = torch.randint(16, (8, 96), dtype=torch.int32)
    packed = torch_int4pack_mm.bytes_of(q)
    assert torch.equal(packed >> 4, q[:, ::2]) and torch.equal(packed & 0xF, q[:, 1::2])
    for k, tiles in ((96, 2), (192, 4), (384, 8), (4096, 8)):
        assert torch_int4pack_mm.inner_k_tiles(k) == tiles
        laid_out = torch.ops.aten._convert_weight_to_int4pack(
            torch.zeros(8, k // 2, dtype=torch.uint8, device="meta"), tiles
        )
        assert laid_out.shape == (1, k // (16 * tiles), 32, tiles // 2)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (W4A16Matmul(1, 16, 128, torch.float16), "bf16 alone, not torch.float16"),
        (W4A16Matmul(1, 16, 160, BF16, 16), "groups are of 32, 64, 128, 256, not of 16"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_torchs_product_by_four_bits_sits_out_with_a_reason(problem, reason):
    assert reason in INT4PACK.supports(problem, None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch's layout of a CPU")
def test_what_torchs_cpu_layout_does_not_take_is_a_row_with_its_reason():
    result = checked("torch/int4pack_mm", W4A16Matmul(1, 24, 128, BF16))
    assert result.status == UNSUPPORTED and "N is 24; on a CPU it takes multiples of 16" in result.message


def test_it_is_laid_out_once_for_all_calls():
    """In what is launched stands the packed weight, and neither the weight nor its parts."""
    problem = FOUR_BITS[0]
    inputs = problem.inputs("cpu")
    positional, by_keyword = INT4PACK.arguments(problem, inputs)
    assert positional[0] is inputs.a and by_keyword == {"group_size": 32}
    assert positional[1].numel() * positional[1].itemsize == problem.k * problem.n // 2
    assert positional[2].shape == (problem.groups, problem.n, 2)
    judge = Judge(problem, inputs)
    assert all(judge.judge(INT4PACK.launch(*positional, **by_keyword)).ok for _ in range(2))


# Humming's.

HUMMING = humming_w4a16.KERNEL
FP16 = torch.float16
BY_HUMMING = [
    W4A16Matmul(m, n, k, dtype, group_size, symmetric)
    for m, n, k, dtype, group_size, symmetric in (
        (1, 4096, 4096, FP16, 128, False),  # mma.sync, stream-K
        (16, 8192, 4096, FP16, 128, False),
        (16, 4096, 4096, FP16, 128, True),
        (1, 512, 512, FP16, 128, False),  # not split
        (64, 4096, 4096, FP16, 64, False),  # wgmma
        (16, 1024, 2048, BF16, 32, False),
    )
]
CHOSEN = {"block_shape": (8, 128, 128), "mma_type": "mma", "num_stages": 4, "num_ctas_per_sm": 2, "use_stream_k": True}


def dequantized(weight, weight_scale, zero_point=None):
    """The [K, N] weight of parts as Humming takes them, in float64, one nibble after the other."""
    nibbles = torch.stack([weight >> bit & 0xF for bit in range(0, 32, 4)], dim=-1).flatten(1)
    group_size = nibbles.shape[1] // weight_scale.shape[1]
    wide = lambda part: part.double().repeat_interleave(group_size, dim=1)  # noqa: E731
    return ((nibbles - (8 if zero_point is None else wide(zero_point))) * wide(weight_scale)).T


class MadeUpHumming(SimpleNamespace):
    """A package that lays nothing out and multiplies in torch; `called` has the options of each of its functions."""

    def __init__(self):
        self.called: dict[str, Any] = {}
        types = SimpleNamespace(uint4="uint4", DataType=SimpleNamespace(from_torch_dtype=str))
        super().__init__(dtypes=types, Schema=self._kept("schema", lambda **_: "schema"))
        self.transform = self._kept("layer", lambda parts, *_, **__: (SimpleNamespace(to_str=lambda: "layer"), parts))
        self.choose = self._kept("chosen", lambda *_, **__: CHOSEN)
        self.prepare = self._kept("kernel", lambda *_: torch.tensor([0, 1 << 30, 7, 0]))
        self.launch = self._kept("launch", self._multiply)

    def _kept(self, name, function):
        def called(*args, **options):
            self.called[name] = args, options
            return function(*args, **options)

        return called

    def _multiply(self, *, inputs, outputs, configs, locks, **parts):
        return outputs.copy_(inputs.double() @ dequantized(**parts))


@pytest.mark.parametrize("problem", FOUR_BITS, ids=lambda problem: problem.name)
def test_the_parts_that_humming_takes_mean_the_same_weight(problem):
    weight = problem.inputs("cpu").weight
    parts = humming_w4a16.parts_of(weight)
    assert torch.equal(dequantized(**parts), weight.dequantized())
    assert all(part.is_contiguous() for part in parts.values())
    assert {part.dtype for part in parts.values()} == {torch.int32, BF16}


@pytest.mark.parametrize("problem", FOUR_BITS, ids=lambda problem: problem.name)
def test_humming_itself_takes_these_parts(problem):
    schema = pytest.importorskip("humming.schema")
    dtypes = pytest.importorskip("humming.dtypes")
    has_zeros = {"has_zero_point": not problem.symmetric, "is_fp_zero_point": not problem.symmetric}
    made = schema.HummingWeightSchema(b_dtype=dtypes.uint4, weight_scale_group_size=problem.group_size, **has_zeros)
    made.validate_tensors(
        humming_w4a16.parts_of(problem.inputs("cpu").weight), problem.n, problem.k, problem.dtype, None
    )
    assert humming_w4a16._humming().dtypes is dtypes


@pytest.mark.parametrize("symmetric", [False, True])
def test_humming_is_launched_with_what_was_laid_out_ahead(monkeypatch, symmetric):
    humming = MadeUpHumming()
    monkeypatch.setattr(humming_w4a16, "_humming", lambda: humming)
    monkeypatch.setattr(humming_w4a16, "version", lambda _: "0.1.20")
    problem = W4A16Matmul(3, 128, 384, symmetric=symmetric)
    inputs, out = problem.inputs("cpu"), torch.empty(problem.out_shape, dtype=FP16)
    positional, by_keyword = HUMMING.arguments(problem, inputs)
    assert positional[0] is inputs.a and ("zero_point" in by_keyword) is not symmetric
    _, schema = humming.called["schema"]
    assert (schema["has_zero_point"], schema["is_fp_zero_point"]) == (not symmetric, not symmetric)
    assert humming.called["chosen"][1]["shape_m"] == 3
    assert humming.called["kernel"][0][:3] == ("layer", None, CHOSEN)
    assert Judge(problem, inputs).judge(HUMMING.launch(*positional, **by_keyword, out=out)).ok
    _, launched = humming.called["launch"]
    assert launched["outputs"] is out and launched["configs"] is positional[1]
    assert launched["locks"].numel() * 4 == HUMMING.workspace_bytes(problem, None) and not launched["locks"].any()
    assert HUMMING.note() == "humming-kernels 0.1.20: 8x128x128 mma, 4 stages, stream-K, blocks an SM: 2"


def test_humming_sits_out_with_a_reason(monkeypatch):
    monkeypatch.setattr(environment, "version", lambda _: "1")
    reason = HUMMING.supports(W4A16Matmul(1, 192, 128), None)
    assert reason == "N is 192; accepted: multiples of 128, as its tiles are no narrower"
    humming_w4a16._humming.cache_clear()
    monkeypatch.setitem(sys.modules, "humming", None)
    with pytest.raises(NotImplementedError, match=r"^humming-kernels .* cannot be imported: ModuleNotFoundError: "):
        HUMMING.arguments(problem := W4A16Matmul(1, 128, 128), problem.inputs("cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("problem", BY_HUMMING, ids=lambda problem: problem.name)
def test_humming_passes_the_referee(problem, device):
    skip_unless_supported(HUMMING, problem)
    Referee(problem, device, 0).examine(
        launcher(HUMMING, problem, None), HUMMING.roundings(None), HUMMING.deterministic
    )


# Who takes part.


def test_references_take_part_on_request():
    known = contenders.all_contenders()
    chosen = {kernel.full_name for kernel in contenders.choose(known)}
    requested = {kernel.full_name for kernel in ON_REQUEST}
    assert requested == {kernel.full_name for kernel in known} - chosen and "torch/mm" in chosen
    assert set(known) == set(contenders.choose(known, references=True))
    only_tilus = contenders.choose(known, only=["tilus"], references=True)
    of_pairs = {kernel.full_name for kernel in known if kernel.language.value == "triton"}
    assert requested - of_pairs < {kernel.full_name for kernel in only_tilus}
    assert {"triton"}.isdisjoint(kernel.language.value for kernel in only_tilus)
    assert "torch/compile.default" in {kernel.full_name for kernel in contenders.choose(known, only=["torch"])}
    assert (
        len(contenders.choose(known, only=["compile.*"], skip=["*.max*"])) - len(contenders.choose(known, skip=["*"]))
        == 3
    )


def test_the_command_line_asks_for_references():
    flags = argparse.ArgumentParser()
    cli.add_contender_flags(flags)

    def chosen(*words: str) -> set[str]:
        args = flags.parse_args(words)
        return {kernel.full_name for kernel in cli.chosen_contenders(args)}

    assert "helion/matmul" not in chosen() and "torch/mm" in chosen()
    assert chosen("--references") - chosen() == {kernel.full_name for kernel in ON_REQUEST}
    assert "tlx/decompose_k" in chosen("--only", "tilus", "--references")


def test_a_row_says_what_was_compiled():
    result = checked("torch/compile.default", Matmul(4, 8, 32, FP32))
    assert (result.status, result.message) == (PASSED, "compiled to mm")


# What the gate says of kernels as generators write them.

CANDIDATES = "examples/candidates"


@pytest.mark.parametrize(
    ("file", "problem", "status", "message"),
    [
        ("hard_coded", Matmul(16, 64, 2048), PASSED, ""),
        ("hard_coded", Matmul(8, 64, 2048), WRONG, "returns torch.bfloat16 (16, 64) on "),
        ("narrow_sum", Matmul(16, 32, 2048), WRONG, "is over the bound"),
        ("casts_around_cublas", Matmul(5, 33, 130, layout=Layout.NK), PASSED, ""),
        ("masked", Matmul(5, 33, 130, layout=Layout.NK), PASSED, ""),
        ("masked", Matmul(5, 33, 130, epilogue=Epilogue.RELU), PASSED, "timed with the epilogue in torch"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_the_gate_says_of_a_candidate(file, problem, status, message, device):
    result = checked(f"candidate/{ROOT}/{CANDIDATES}/{file}.py:matmul", problem, device)
    assert result.status == status, result.message
    assert result.message == message if status == PASSED else message in result.message


def test_a_tolerance_of_five_percent_lets_the_narrow_sum_pass(device):
    problem = Matmul(16, 32, 2048)
    inputs = problem.inputs(device)
    c = contenders.find(f"candidate/{ROOT}/{CANDIDATES}/narrow_sum.py:matmul").launch(inputs.a, inputs.b)
    torch.testing.assert_close(c, inputs.a @ inputs.b, rtol=5e-2, atol=5e-2)
