"""Launches of a kernel alone: each is one of the kernel's own, and together they are the product."""

from types import SimpleNamespace

import pytest
import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import stages
from triton_vs_tilus.bench.measure.clock import Arguments, Clocks, Samples, Timed
from triton_vs_tilus.bench.stages import main
from triton_vs_tilus.common import call, plan
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul

PROBLEM = Matmul(4, 32, 512, layout=Layout.NK, epilogue=Epilogue.RELU)
NAMES = ["triton/decompose_k.vector_pdl", "tilus/decompose_k.vector_pdl", "triton/decompose_k.vector_unfused"]


@pytest.mark.parametrize("name", NAMES)
def test_the_launches_are_the_kernels_own(name):
    kernel = contenders.find(name)
    config = kernel.default_config(PROBLEM)
    whole = kernel.plan(PROBLEM, config, contiguous(PROBLEM))
    alone = [stage.plan(PROBLEM, config, contiguous(PROBLEM)) for stage in stages.stages(kernel, PROBLEM, config)]
    assert [each.launches for each in alone] == [(launch,) for launch in whole.launches] and len(alone) == 2
    assert {each.unfused for each in alone} == {Epilogue.NONE}
    names = {stage.full_name for stage in stages.stages(kernel, PROBLEM, config)}
    assert names == {f"{name}#1", f"{name}#2"}  # by which calls are kept apart


@pytest.mark.parametrize("name", ["triton/sliced_k.mma", "tilus/sliced_k.mma", "torch/mm"])
def test_a_kernel_of_one_launch_has_no_stage(name):
    kernel = contenders.find(name)
    assert stages.stages(kernel, PROBLEM, kernel.default_config(PROBLEM)) == []


@pytest.mark.parametrize("name", NAMES[:2])
def test_one_after_the_other_they_are_the_product(name, device, monkeypatch):
    """Where both have the same scratch. The first alone leaves C as it is."""
    kernel, inputs = contenders.find(name), PROBLEM.inputs(device)
    config = kernel.default_config(PROBLEM)
    held = torch.empty(config.split_k, PROBLEM.m, PROBLEM.n, device=device)
    monkeypatch.setattr(plan, "_allocator", lambda device: lambda *shaped: held)
    monkeypatch.setattr(call, "_calls", {})
    out = torch.full((PROBLEM.m, PROBLEM.n), 7.0, dtype=PROBLEM.out_dtype, device=device)
    first, second = stages.stages(kernel, PROBLEM, config)
    args, kwargs = kernel.arguments(PROBLEM, inputs)
    first.launch(*args, **kwargs, out=out, config=config)
    assert (out == 7.0).all()
    second.launch(*args, **kwargs, out=out, config=config)
    assert Judge(PROBLEM, inputs).judge(out, kernel.roundings(config)).ok


def test_the_whole_is_judged_and_its_launches_are_timed_beside_it(monkeypatch):
    """Of made-up times: of each contender its place among those that are timed together."""
    seen = {}

    def timed(name, kernel, *_):
        return Timed(name, kernel.launch, [Arguments((torch.empty(1),), {})], fault=lambda index, result: "wrong")

    def time_together(entrants, mode, rounds, clock, *, announce):
        seen[mode] = {one.name: one.fault for one in entrants}
        clocks = Clocks([], 0, "made up")
        return [Samples(one.name, mode, [[float(i)] * 20] * rounds, clocks, 0) for i, one in enumerate(entrants)]

    monkeypatch.setattr(stages, "timed", timed)
    monkeypatch.setattr(stages, "time_together", time_together)
    for name in ("clock_of", "rotation_of"):
        monkeypatch.setattr(stages, name, lambda *_: SimpleNamespace(reads=list))
    monkeypatch.setattr(stages.floor, "floors", lambda *_, **__: [timed("floor/read", contenders.find("torch/mm"))])
    kernels = [contenders.find(name) for name in ("tilus/decompose_k.vector", "triton/sliced_k.mma")]
    times = stages.measure(PROBLEM, kernels, 2, torch.device("cpu"), announce=lambda name: None)
    vector = "tilus/decompose_k.vector"
    names = [vector, f"{vector}#1", f"{vector}#2", "triton/sliced_k.mma", "floor/read"]
    assert times == {mode: {name: float(i) for i, name in enumerate(names)} for mode in ("cold", "warm")}
    assert [name for name, fault in seen["cold"].items() if fault is None] == names[1:3]


def test_without_a_gpu_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr("triton_vs_tilus.bench.cli.has_gpu", lambda: False)
    assert run_command(main, ["--problem", "16x256x7168-bf16-nk"]) == 2
    assert "there is no CUDA device" in capsys.readouterr().err
