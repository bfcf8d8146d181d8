"""One set of cases for every matmul kernel of both languages, and the tests that each pair's file runs on them.

class TestSemaphore(matmul_cases.MatmulTests):
    name = "semaphore"

What takes a problem, or cases, is for any kernel with an A: tests/test_w4a16.py has its own of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from cuda.bindings import driver
from torch import Tensor

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Config, Kernel, MatmulConfig, tiles_of
from triton_vs_tilus.common.problem import Layout, Matmul, Problem
from triton_vs_tilus.common.protocol import Protocol

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
KN, NK = Layout.KN, Layout.NK
Cases = Sequence[tuple[Problem, Config]]

PROBLEMS = [
    Matmul(1, 32, 256, BF16, layout=NK),  # one row
    Matmul(1, 16, 128, FP16, layout=KN),
    Matmul(16, 48, 320, BF16, layout=KN),  # N not a multiple of wider tiles
    Matmul(17, 40, 200, FP16, layout=NK, epilogue=Epilogue.RELU),  # ragged everywhere
    Matmul(33, 24, 520, BF16, layout=KN, epilogue=Epilogue.BIAS_RELU),
    Matmul(5, 18, 130, FP16, layout=KN),  # copies of 4 bytes
    Matmul(5, 7, 132, BF16, layout=NK),  # odd N
    Matmul(3, 8, 64, BF16, layout=NK, epilogue=Epilogue.SILU),
    Matmul(3, 8, 64, FP16, layout=KN, epilogue=Epilogue.SIGMOID),
    Matmul(3, 8, 64, FP16, layout=NK, epilogue=Epilogue.SCALE),
    Matmul(9, 32, 192, BF16, out_dtype=FP32, layout=NK),
    Matmul(7, 24, 161, FP32, layout=KN, epilogue=Epilogue.RELU),  # ragged K
    Matmul(2, 3, 1, BF16, layout=KN),
    Matmul(1, 1, 2, BF16, layout=NK),
]
LARGE_PROBLEMS = [
    *[Matmul(m, 256, 7168, BF16, layout=layout) for m in (1, 16, 64, 200) for layout in Layout],
    Matmul(64, 64, 32768, FP16, layout=KN, epilogue=Epilogue.RELU),
    Matmul(1000, 264, 1032, BF16, layout=NK),
    Matmul(1, 152064, 512, BF16, layout=NK),  # more columns than a grid has blocks along them
]


def few_configs(kernel: Kernel, problem: Matmul, count: int):
    """The default config, and `count` spread over the space."""
    space = list(kernel.configs(problem))
    return [kernel.default_config(problem), *space[len(space) // 2 :: max(1, len(space) // count)][:count]]


def split_config(kernel: Kernel, problem: Matmul, split_k: int) -> MatmulConfig:
    """The first of the space with so many splits or more; its last, where the kernel has none or shares K otherwise.

    Tiles of fewer than 16 elements are left out: an interpreter is slow at many programs.
    """
    space = [config for config in kernel.configs(problem) if config.block_m * config.block_n >= 16]
    return next((config for config in space if config.split_k >= split_k), space[-1])


def own_config(kernel: Kernel, config: MatmulConfig) -> MatmulConfig:
    """The same for a kernel that shares K out otherwise than by split_k: not at all, or over an odd lot of programs."""
    own = kernel.config_from(vars(config))
    if kernel.protocol is Protocol.STREAM_K:
        return replace(own, split_k=1, programs=3 * config.split_k - 1)
    if kernel.variant == "persistent":
        return replace(own, split_k=1, programs=2)
    return replace(own, split_k=1) if kernel.protocol is Protocol.DATA_PARALLEL else own


def lacks(kernel: Kernel) -> str | None:
    """Why no matmul of this kernel can be run on this machine; None where one can, and for kernels of other ops."""
    if kernel.op != Matmul.op:
        return None
    return kernel.supports(Matmul(16, 32, 256, layout=NK, epilogue=_any_epilogue(kernel)), None)


def skip_unless_supported(kernel: Kernel, problem: Problem, config: Config | None = None) -> None:
    if reason := kernel.supports(problem, config):
        pytest.skip(reason)


def unwritten(problem: Problem, device: torch.device) -> Tensor:
    """An output of NaN: freed memory may hold the right answer of another run."""
    return torch.full(problem.out_shape, float("nan"), dtype=problem.out_dtype, device=device)


def launch_of(kernel: Kernel, problem: Problem, inputs) -> Callable[..., Tensor]:
    """What launches with these inputs, laid out once, and with the options that it is called with."""
    positional, by_keyword = kernel.arguments(problem, inputs)
    by_keyword.pop("out_dtype", None)  # which an output says as well
    return partial(kernel.launch, *positional, **by_keyword)


def run(kernel: Kernel, problem: Problem, inputs, **options) -> Tensor:
    """Into an output of NaN unless another is given; it is what is returned."""
    if "out" not in options:
        options["out"] = unwritten(problem, inputs.a.device)
    returned = launch_of(kernel, problem, inputs)(**options)
    assert returned is options["out"]
    return returned


def assert_right(kernel: Kernel, problem: Problem, judge: Judge, out: Tensor, config) -> None:
    accuracy = judge.judge(out, kernel.roundings(config))
    assert accuracy.ok, f"{kernel.full_name} on {problem.name} with {config}: {accuracy}"
    if isinstance(problem, Matmul):  # for others torch rounds more than the output
        torch.testing.assert_close(out, problem.torch_answer(judge.inputs), rtol=2e-2, atol=2e-2)


def check_config(kernel: Kernel, judge: Judge, config) -> None:
    """One launch writes all of an output of NaN, rightly, and returns it."""
    problem, inputs = judge.problem, judge.inputs
    out_dtype = {"out_dtype": problem.out_dtype} if isinstance(problem, Matmul) else {}
    assert_right(kernel, problem, judge, run(kernel, problem, inputs, config=config, **out_dtype), config)


def check_matches_torch_and_float64(kernel: Kernel, problem: Matmul, device: torch.device, configs: int) -> None:
    skip_unless_supported(kernel, problem)
    judge = Judge(problem, problem.inputs(device))
    for config in few_configs(kernel, problem, configs):
        check_config(kernel, judge, config)


def check_strided_operands(kernel: Kernel, device: torch.device) -> None:
    """A and B as slices of wider matrices, C as every other column of one; what lies between stays untouched."""
    problem = Matmul(9, 24, 160, BF16, layout=KN, epilogue=_any_epilogue(kernel))
    inputs = problem.inputs(device)
    wide_a = torch.full((9, 192), float("nan"), dtype=BF16, device=device)
    wide_b = torch.full((160, 40), float("nan"), dtype=BF16, device=device)
    wide_a[:, 16:176], wide_b[:, 8:32] = inputs.a, inputs.b
    base = torch.full((9, 48), -7.0, dtype=BF16, device=device)
    sliced = inputs._replace(a=wide_a[:, 16:176], b=wide_b[:, 8:32])
    config = kernel.default_config(problem)
    run(kernel, problem, sliced, out=base[:, ::2], config=config)
    assert_right(kernel, problem, Judge(problem, inputs), base[:, ::2].contiguous(), config)
    assert (base[:, 1::2] == -7.0).all()


def check_turns(kernel: Kernel, cases: Cases, device: torch.device) -> None:
    """Problems of different sizes take turns on the same scratch memory: every run is right, and of a deterministic
    kernel bitwise the same.

    On a CPU two runs: an interpreter is deterministic, and its second run finds what the first left.
    """
    first: dict[str, Tensor] = {}
    for _ in range(100 if device.type == "cuda" else 2):
        for problem, config in cases:
            inputs = problem.inputs(device)
            out = run(kernel, problem, inputs, config=config)
            if problem.name not in first:
                assert_right(kernel, problem, Judge(problem, inputs), out, config)
                first[problem.name] = out
            elif kernel.deterministic:
                assert torch.equal(out, first[problem.name])


def check_repeats_on_a_dirty_workspace(kernel: Kernel, device: torch.device) -> None:
    """Of few tiles on a CPU, where an interpreter is slow."""
    epilogue = _any_epilogue(kernel)
    problems = [Matmul(4, 32, 256, BF16, layout=NK, epilogue=epilogue), Matmul(20, 24, 128, BF16, epilogue=epilogue)]
    if device.type == "cuda":
        problems = [replace(problem, m=2 * problem.m, n=2 * problem.n, k=2 * problem.k) for problem in problems]
    check_turns(kernel, [(problem, split_config(kernel, problem, 2)) for problem in problems], device)


def nodes_in(graph: torch.cuda.CUDAGraph) -> int:
    """Of a graph that is kept."""
    _, _, nodes = driver.cuGraphGetNodes(driver.CUgraph(graph.raw_cuda_graph()))
    return nodes


def check_replays(kernel: Kernel, problem: Problem, config: Config, device: torch.device) -> None:
    """Two calls in one graph, replayed on new inputs, beside eager calls on another stream; the graph holds the
    launches that the kernel says a call has, and nothing else."""
    inputs, fresh = (problem.inputs(device, seed) for seed in range(2))
    fresh = fresh._replace(**{name: getattr(inputs, name) for name in problem.laid_out})  # they stay as they are
    captured, eager = (launch_of(kernel, problem, each) for each in (inputs, fresh))
    outs = [torch.empty(problem.out_shape, dtype=problem.out_dtype, device=device) for _ in range(2)]
    captured(out=outs[0], config=config)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        for out in outs:
            captured(out=out, config=config)
    assert nodes_in(graph) == len(outs) * kernel.launches
    for old, new in zip(problem.operands(inputs), problem.operands(fresh), strict=True):
        old.copy_(new)
    judge = Judge(problem, fresh)
    beside = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(20):
        for out in outs:
            out.fill_(float("nan"))
        beside.wait_stream(torch.cuda.current_stream())
        graph.replay()
        with torch.cuda.stream(beside):
            others = [eager(config=config), eager(out=unwritten(problem, device), config=config)]
        torch.cuda.synchronize()
        for out in (*outs, *others):
            assert_right(kernel, problem, judge, out, config)


def check_graph(kernel: Kernel, device: torch.device) -> None:
    problem = Matmul(16, 256, 2048, BF16, layout=NK, epilogue=_any_epilogue(kernel))
    check_replays(kernel, problem, split_config(kernel, problem, 4), device)


def on_two_streams(calls: Sequence[Callable[[], Tensor]]) -> list[list[Tensor]]:
    """What two calls return, each on a stream of its own, 50 times, without waiting between."""
    streams = [torch.cuda.default_stream(), torch.cuda.Stream()]
    for call in calls:
        call()
    torch.cuda.synchronize()
    outs: list[list[Tensor]] = [[], []]
    for _ in range(50):
        for call, stream, own in zip(calls, streams, outs, strict=True):
            with torch.cuda.stream(stream):
                own.append(call())
    torch.cuda.synchronize()
    return outs


def check_at_once(kernel: Kernel, cases: Cases, device: torch.device) -> None:
    """Two problems on two streams at once, many times, without waiting between."""
    inputs = [problem.inputs(device) for problem, _ in cases]
    calls = [
        partial(run, kernel, problem, given, config=config)
        for (problem, config), given in zip(cases, inputs, strict=True)
    ]
    for (problem, config), given, results in zip(cases, inputs, on_two_streams(calls), strict=True):
        judge = Judge(problem, given)
        for out in results:
            assert_right(kernel, problem, judge, out, config)


def check_two_streams(kernel: Kernel, device: torch.device) -> None:
    epilogue = _any_epilogue(kernel)
    problems = [
        Matmul(16, 256, 4096, BF16, layout=NK, epilogue=epilogue),
        Matmul(48, 128, 4096, BF16, epilogue=epilogue),
    ]
    check_at_once(kernel, [(problem, split_config(kernel, problem, 4)) for problem in problems], device)


def check_any_leftovers(
    kernel: Kernel, problem: Problem, config: Config, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in the counters as a launch begins counts for nothing, and zero stands there as it ends."""
    judge = Judge(problem, problem.inputs(device))
    tiles = tiles_of(problem, config)
    for left in (1, 3, -1, -(2**31), workspace.next_ticket(), workspace.next_ticket() + 2):
        held = torch.full((tiles,), left, dtype=torch.int32, device=device)
        sums = torch.zeros(problem.m * problem.n, device=device)
        monkeypatch.setattr(workspace, "semaphores", lambda *_, held=held: held)
        monkeypatch.setattr(workspace, "counters_and_sums", lambda *_, held=held, sums=sums: (held, sums))
        assert_right(kernel, problem, judge, run(kernel, problem, judge.inputs, config=config), config)
        assert (held == 0).all()
        assert (sums == 0).all()


def check_leftovers(kernel: Kernel, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Matmul(20, 40, 512, BF16, layout=NK, epilogue=_any_epilogue(kernel))
    check_any_leftovers(kernel, problem, split_config(kernel, problem, 4), device, monkeypatch)


def check_more_bands_than_steps(kernel: Kernel, device: torch.device) -> None:
    """Some bands, or shares, are empty."""
    problem = Matmul(3, 24, 130, FP16, layout=NK, epilogue=_any_epilogue(kernel))
    inputs = problem.inputs(device)
    small = replace(kernel.default_config(problem), block_k=32)
    config = replace(small, programs=50) if hasattr(small, "programs") else replace(small, split_k=7)
    assert kernel.supports(problem, config) is None
    assert_right(kernel, problem, Judge(problem, inputs), run(kernel, problem, inputs, config=config), config)


def matmul_kernels(package) -> list[Kernel]:
    """Those of a language's package that multiply matrices."""
    return [kernel for kernel in package.KERNELS if kernel.op == Matmul.op]


def kernels_named(name: str) -> list[Kernel]:
    """All variants of a kernel file, in every language that has it."""
    return [kernel for kernel in (*kernels_triton.KERNELS, *kernels_tilus.KERNELS) if kernel.name == name]


class MatmulTests:
    """What every matmul kernel is held to. `kernel` is each of `kernels_named(name)` in turn (conftest.py)."""

    name: str

    @pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
    def test_matches_torch_and_float64(self, kernel, problem, device):
        check_matches_torch_and_float64(kernel, problem, device, configs=1)

    @pytest.mark.gpu
    @pytest.mark.parametrize("problem", LARGE_PROBLEMS, ids=lambda problem: problem.name)
    def test_large_problems_match(self, kernel, problem, device):
        check_matches_torch_and_float64(kernel, problem, device, configs=1)

    def test_strided_operands(self, kernel, device):
        check_strided_operands(kernel, device)

    def test_repeats_on_a_dirty_workspace(self, kernel, device):
        check_repeats_on_a_dirty_workspace(kernel, device)

    @pytest.mark.gpu
    def test_graph_capture_and_replay(self, kernel, device):
        check_graph(kernel, device)

    @pytest.mark.gpu
    def test_two_streams(self, kernel, device):
        check_two_streams(kernel, device)


class ArrivalTests(MatmulTests):
    """And what those are held to whose blocks count themselves in."""

    def test_leftovers_count_for_nothing(self, kernel, device, monkeypatch):
        check_leftovers(kernel, device, monkeypatch)

    def test_more_bands_than_steps(self, kernel, device):
        check_more_bands_than_steps(kernel, device)


def _any_epilogue(kernel: Kernel) -> Epilogue:
    """NONE, or for the unfused variants, which need one, RELU."""
    return Epilogue.RELU if kernel.supports(Matmul(16, 16, 64), None) else Epilogue.NONE
