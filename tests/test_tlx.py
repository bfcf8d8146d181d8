"""Decompose-K in TLX: sits out with the reason where TLX is not, compiles where it is, and is right on a GPU."""

import importlib.util
import re
import sys
from dataclasses import asdict, replace

import pytest
import torch
from matmul_cases import skip_unless_supported

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import compile_one
from triton_vs_tilus.bench.measure.process import Children
from triton_vs_tilus.bench.measure.referee import Referee
from triton_vs_tilus.bench.measure.rotation import launcher
from triton_vs_tilus.bench.references import tlx
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Feed

KERNEL = tlx.KERNEL
FP16 = torch.float16
ROUTER = Matmul(64, 256, 7168, layout=Layout.NK)
PROBLEMS = [
    *(replace(ROUTER, m=m) for m in (1, 16, 64, 256)),
    replace(ROUTER, layout=Layout.KN),
    *(Matmul(m, m, k, epilogue=Epilogue.RELU) for m, k in ((16, 4096), (48, 8192), (64, 32768))),
    *(Matmul(33, 200, 7176, FP16, layout=layout, epilogue=Epilogue.BIAS_RELU) for layout in Layout),
    *(Matmul(5, 66, 1002, FP16, layout=layout) for layout in Layout),  # rows of 4-byte multiples alone
    *(Matmul(130, 264, 1032, layout=layout) for layout in Layout),  # ragged in all, by TMA too
    Matmul(3, 64, 512, out_dtype=torch.float32),
]
WAYS = {  # by name: (block_m, block_n, block_k, split_k, num_warps, num_stages) and what feeds the product
    "mma": (tlx.TLXConfig(16, 16, 128, 4, 1, 4), {"mma.sync", "cp.async 16 B"}),
    "mma, transposed": (tlx.TLXConfig(8, 32, 128, 4, 2, 3, swap=True), {"mma.sync", "cp.async 16 B"}),
    "mma, TMA": (tlx.TLXConfig(16, 32, 128, 4, 2, 3, swap=True, tma=True), {"mma.sync", "tensor load"}),
    "wgmma": (tlx.TLXConfig(64, 32, 128, 4, 4, 3), {"wgmma.mma_async", "cp.async 16 B"}),
    "wgmma, 2 stages": (tlx.TLXConfig(64, 64, 64, 4, 4, 2), {"wgmma.mma_async", "cp.async 16 B"}),
    "wgmma, transposed": (tlx.TLXConfig(32, 64, 128, 4, 4, 3, swap=True), {"wgmma.mma_async", "cp.async 16 B"}),
    "wgmma, TMA": (tlx.TLXConfig(64, 128, 64, 4, 4, 4, tma=True), {"wgmma.mma_async", "tensor load"}),
    "wgmma, TMA, transposed": (
        tlx.TLXConfig(32, 64, 128, 4, 4, 3, swap=True, tma=True),
        {"wgmma.mma_async", "tensor load"},
    ),
    "one split": (tlx.TLXConfig(64, 64, 64, 1, 8, 3), {"wgmma.mma_async", "cp.async 16 B"}),
}
needs_tlx = pytest.mark.skipif(tlx.tlx is None, reason=str(KERNEL.supports(ROUTER, None)))


def without_tlx(monkeypatch):
    """The module as it is imported where there is no TLX."""
    monkeypatch.setitem(sys.modules, "utlx_plugin", None)
    spec = importlib.util.spec_from_file_location("tlx_without_tlx", tlx.__file__)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_it_is_a_contender_on_request():
    found = contenders.find("tlx/decompose_k")
    assert found.language is Language.TLX and found.on_request
    assert "tlx/decompose_k" not in [kernel.full_name for kernel in contenders.choose(contenders.all_contenders())]


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        (None, r"triton-utlx is not installed: pip install triton-utlx"),
        ("3.8.0", r"triton-utlx 3\.8\.0 cannot be imported with Triton \d\S+: ModuleNotFoundError: .*utlx_plugin"),
    ],
)
def test_without_tlx_it_sits_out_with_the_reason(monkeypatch, installed, told):
    module = without_tlx(monkeypatch)
    monkeypatch.setattr(module, "version", lambda package: installed)
    assert re.match(told, module.supports(ROUTER))
    assert not module.space(ROUTER).configs
    a, b = torch.zeros(2, 8), torch.zeros(8, 4)
    with pytest.raises(ValueError, match=told):
        module.matmul(a, b)


@pytest.mark.parametrize(
    ("problem", "config", "told"),
    [
        (replace(ROUTER, dtype=torch.float32), None, "accepted: bf16 and fp16"),
        (replace(ROUTER, k=7167), None, r"rows of A and B are \(7167, 7167\) elements; accepted: even numbers"),
        (replace(ROUTER, n=255, layout=Layout.KN), None, r"\(7168, 255\)"),
        (ROUTER, tlx.TLXConfig(64, 32, 128, 4, 4, 1), "num_stages is 1; accepted: 2 or more"),
        (ROUTER, tlx.TLXConfig(16, 64, 128, 4, 4, 3, swap=True), "16 columns; accepted: 32 or more"),
    ],
)
def test_it_says_what_it_cannot_run(monkeypatch, problem, config, told):
    monkeypatch.setattr(tlx, "tlx", sys)  # whatever is imported
    assert re.search(told, tlx.supports(problem, config))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_its_space_is_atomics_but_for_what_it_says(monkeypatch, problem):
    monkeypatch.setattr(tlx, "tlx", sys)
    theirs = contenders.find("triton/atomic").configs(problem)
    narrow = [
        config
        for config in theirs
        if config.fed.instruction == "wgmma" and (config.block_m if config.swap else config.block_n) < 32
    ]
    assert {str(config) for config in tlx.space(problem).configs} == {
        str(config) for config in theirs if config not in narrow
    }
    assert tlx.supports(problem, tlx.default_config(problem)) is None


def test_tiles_shared_by_blocks_are_not_taken():
    assert "addresses no barrier of another block" in tlx.TLXConfig.own_fields(Feed.TMA_PAIRS, False)


@needs_tlx
def test_every_way_compiles_for_hopper_to_what_it_says(tmp_path):
    cases = [(layout, name) for layout in Layout for name in WAYS]
    jobs = [
        (KERNEL.full_name, replace(ROUTER, layout=layout), asdict(WAYS[name][0]), "sm_90a", str(tmp_path / f"{i}"))
        for i, (layout, name) in enumerate(cases)
    ]
    with Children(2, 600) as children:
        outcomes = children.each(compile_one, jobs)
    for (gpu_kernel,), (_, name) in zip(outcomes, cases, strict=True):
        found = {kind for group in ("tensor cores", "async copies") for kind in gpu_kernel.instructions[group]}
        assert found == WAYS[name][1]
        assert not gpu_kernel.over("sm_90a") and not gpu_kernel.spills


@pytest.mark.gpu
@needs_tlx
@pytest.mark.parametrize("way", [None, *WAYS])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_it_is_right(problem, way, device):
    config = KERNEL.default_config(problem) if way is None else WAYS[way][0]
    skip_unless_supported(KERNEL, problem, config)
    Referee(problem, device, 0).examine(launcher(KERNEL, problem, config), KERNEL.roundings(config), False)
