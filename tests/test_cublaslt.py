"""The binding of cublasLt: what it hands over is taken apart by a library of the same functions that runs on a CPU."""

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.bench.measure.referee import Referee
from triton_vs_tilus.bench.measure.rotation import launcher
from triton_vs_tilus.bench.references import cublaslt
from triton_vs_tilus.bench.references.cublaslt import Algorithm
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul

KERNEL = find("cublaslt/best")
LACKS_LIBRARY, LIBRARY = cublaslt._lacks_library, cublaslt.library
CPU = torch.device("cpu")
SMALL = [
    Matmul(3, 5, 7, torch.float32, layout=layout, epilogue=epilogue)
    for layout in Layout
    for epilogue in (Epilogue.NONE, Epilogue.RELU, Epilogue.BIAS, Epilogue.BIAS_RELU)
]


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    source = Path(__file__).with_name("fake_cublaslt.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(path)], check=True)
    return cublaslt.CublasLt(str(path))


@pytest.fixture
def on_cpu(fake_library, monkeypatch):
    """For one test: those on a GPU may follow in the same process."""
    monkeypatch.setattr(cublaslt, "library", lambda: fake_library)
    monkeypatch.setattr(cublaslt, "_lacks_library", lambda: None)
    cublaslt._handle.cache_clear()
    cublaslt._plan.cache_clear()
    yield
    cublaslt._handle.cache_clear()
    cublaslt._plan.cache_clear()


@pytest.mark.parametrize("config", [None, Algorithm(0, 0), Algorithm(4, 2)], ids=str)
@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_it_passes_the_referee(on_cpu, problem, config):
    Referee(problem, CPU, 0).examine(launcher(KERNEL, problem, config), 1, deterministic=False)


def test_what_is_not_offered_is_told_and_what_is_is_named(on_cpu):
    problem = SMALL[0]
    inputs = problem.inputs("cpu")
    with pytest.raises(NotImplementedError, match=r"offers 1 algorithms for .* and 0 MiB of workspace; there is no #1"):
        launcher(KERNEL, problem, Algorithm(0, 1))(inputs, None)
    launcher(KERNEL, problem, Algorithm(32, 1))(inputs, None)
    said = "cublasLt algorithm id 101, tile 1, split-K 2, reduction 3, stages 6, 1048576 bytes of workspace"
    assert KERNEL.note() == said
    assert {Algorithm(0, 0), Algorithm(64, 15)} <= set(KERNEL.configs(problem))


def test_the_heuristic_is_told_how_far_operands_are_aligned(on_cpu):
    """By the widest that divides the address, 256 bytes at most."""
    storage = torch.zeros(1024)
    first = (-storage.data_ptr() // 4) % 64  # elements to the next multiple of 256 bytes
    whole, odd = storage[first : first + 15], storage[first + 1 : first + 16]
    assert [cublaslt._alignment(tensor) for tensor in (whole, odd, storage[first + 8 :])] == [256, 4, 32]
    a, b = torch.randn(3, 7), torch.randn(7, 5)
    cublaslt.matmul(a, b, out=odd.view(3, 5))
    assert cublaslt._last[0]._algorithm.data[2] == 4


def test_a_status_is_an_error_with_its_function(on_cpu):
    with pytest.raises(RuntimeError, match="cublasLtMatrixLayoutCreate: status 15"):
        cublaslt.library().created("cublasLtMatrixLayoutCreate", 99, 1, 1, 1)


def test_it_sits_out_with_a_reason(monkeypatch):
    monkeypatch.setattr(cublaslt, "_lacks_library", LACKS_LIBRARY.__wrapped__)
    monkeypatch.setattr(cublaslt, "library", LIBRARY.__wrapped__)
    assert "no epilogue silu" in KERNEL.supports(Matmul(3, 5, 8, epilogue=Epilogue.SILU), None)
    wider = Matmul(3, 5, 8, out_dtype=torch.float32, epilogue=Epilogue.BIAS_RELU)
    assert KERNEL.supports(wider, None) == "cublasLt takes a bias of the output's dtype alone"
    monkeypatch.setattr(torch.version, "cuda", None)
    assert KERNEL.supports(SMALL[0], None) == "this torch is built without CUDA, and brings no cublasLt"
    monkeypatch.setattr(torch.version, "cuda", "99.9")
    assert KERNEL.supports(SMALL[0], None).startswith("cublasLt cannot be loaded: libcublasLt.so.99")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(16, 64, 2048, layout=layout, epilogue=epilogue)
        for layout in Layout
        for epilogue in (Epilogue.BIAS, Epilogue.BIAS_RELU)
    ],
)
def test_it_passes_the_referee_on_the_device(problem, device):
    for config in (Algorithm(), Algorithm(4, 1)):
        Referee(problem, device, 0).examine(launcher(KERNEL, problem, config), 1, deterministic=False)
