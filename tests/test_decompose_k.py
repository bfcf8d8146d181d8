"""decompose_k, in every language that has it; and the strips of its vector reducers."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matmul_cases
import pytest
import tilus
import torch
import triton
import ttgir
from cuda_source import cuda_sources
from tilus import float32, int32, void_p

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import REDUCERS, reducers
from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus.decompose_k import DecomposeKConfig
from triton_vs_tilus.kernels_tilus.dependent_launch import after_kernel_before
from triton_vs_tilus.kernels_triton import launching, starting


class TestDecomposeK(matmul_cases.MatmulTests):
    name = "decompose_k"


# Columns, warps, rows, threads an element: by hand, beside those that the space makes of a reducer.
BY_HAND = ((32, 1, 1, 1), (128, 4, 4, 1), (64, 4, 8, 1), (32, 1, 1, 4), (16, 1, 1, 8), (32, 4, 1, 16))
STRIPS = [
    *[("triton", {"reduce_block": elements, "reduce_warps": warps}) for elements, warps in REDUCERS],
    *[
        ("tilus", DecomposeKConfig.reducer_fields(Matmul(13, 136, 256), 5, elements, warps))
        for elements, warps in REDUCERS
    ],
    *[
        ("tilus", {"reduce_block": columns, "reduce_warps": warps, "reduce_rows": rows, "reduce_threads": threads})
        for columns, warps, rows, threads in BY_HAND
    ],
]


@pytest.mark.parametrize("n", [1, 7, 16, 256])
@pytest.mark.parametrize("split_k", [2, 3, 16, 256])
def test_a_strip_has_the_elements_of_its_reducer(n, split_k):
    for elements, warps in reducers(split_k):
        strip = DecomposeKConfig.reducer_fields(Matmul(16, n, 8192), split_k, elements, warps)
        assert strip["reduce_block"] * strip["reduce_rows"] == elements
        assert strip["reduce_threads"] <= split_k and 32 * warps % strip["reduce_threads"] == 0


@pytest.mark.parametrize(("language", "strip"), STRIPS, ids=str)
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(13, 136, 256, torch.float16, epilogue=Epilogue.BIAS_RELU),
        Matmul(3, 7, 132, torch.bfloat16, layout=Layout.NK),
    ],
    ids=lambda problem: problem.name,
)
def test_every_strip_covers_the_output(language, strip, problem, device):
    kernel = contenders.find(f"{language}/decompose_k.vector")
    config = replace(kernel.default_config(problem), split_k=5, **strip)  # threads share them unevenly
    assert kernel.supports(problem, config) is None
    matmul_cases.check_config(kernel, Judge(problem, problem.inputs(device)), config)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"reduce_block": 48}, "not shared evenly by the threads of 1 warps"),
        ({"reduce_rows": 3, "reduce_warps": 4, "reduce_block": 64}, "not shared evenly by the threads of 4 warps"),
        ({"reduce_threads": 3}, "3 threads an element do not divide 1 warps"),
        ({"split_k": 64, "reduce_rows": 4, "reduce_warps": 4, "reduce_block": 128}, "takes 256 registers a thread"),
    ],
)
def test_a_strip_that_the_threads_cannot_share_is_refused(change, reason):
    kernel, problem = contenders.find("tilus/decompose_k.vector"), Matmul(16, 256, 7168, layout=Layout.NK)
    plain = replace(kernel.default_config(problem), reduce_block=32, reduce_warps=1, reduce_rows=1, reduce_threads=1)
    assert kernel.supports(problem, plain) is None
    assert reason in kernel.supports(problem, replace(plain, **change))


def test_the_second_kernel_is_launched_dependently_and_reads_after_its_wait(tmp_path):
    """By all of its loads' address: it comes out of the wait. The first one lets it start, and nobody else does."""
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    kernels = {of.variant: of for of in matmul_cases.kernels_named("decompose_k") if of.language is Language.TILUS}
    config = kernels["vector"].default_config(problem)
    product, reduction = cuda_sources(kernels["vector_pdl"], problem, config, tmp_path)
    assert "griddepcontrol.launch_dependents;" in product and "cudaLaunchKernelEx" not in product
    room = r"PreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared\);\s*tilus_decompose_k_partials_kernel<<<"
    assert re.search(room, product) and "Carveout" not in reduction  # the second's blocks find shared memory, too
    assert "cudaLaunchKernelEx(&config, " in reduction and "<<<" not in reduction
    (waited,) = re.findall(r"\*(\w+) = \(\(void\*\)\(tilus_cuda_after_kernel_before\(partials_ptr\)\)\);", reduction)
    assert len(re.findall(r"\bpartials_ptr\b", reduction.partition("__global__")[2].partition("DLL void")[0])) == 2
    assert re.search(rf"gmem = \(\(float\*\)\({waited}\)\);", reduction)
    for plain in cuda_sources(kernels["vector"], problem, config, tmp_path):
        assert not re.search("griddepcontrol|cudaLaunchKernelEx|Carveout", plain)


@pytest.mark.parametrize(("variant", "wanted"), [("vector_pdl", [True, False]), ("vector", [False, False])])
def test_triton_asks_for_the_same_room_before_a_dependent_launch(variant, wanted, monkeypatch):
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    kernel, problem = contenders.find(f"triton/decompose_k.{variant}"), Matmul(16, 256, 7168)
    plan = kernel.plan(problem, kernel.default_config(problem), contiguous(problem))
    assert [launching._lets_next_start(step, plan) for step in plan.launches] == wanted


def test_the_driver_is_asked_for_all_shared_memory_and_its_error_told(monkeypatch):
    asked, errors = [], iter([0, 400])

    def set_attribute(function, attribute, percent):
        asked.append((function.value, attribute, percent))
        return next(errors)

    monkeypatch.setattr(starting.ctypes, "CDLL", lambda name: SimpleNamespace(cuFuncSetAttribute=set_attribute))
    starting._prefer_shared_memory(7)
    assert asked == [(7, 9, 100)]
    with pytest.raises(RuntimeError, match="carveout of shared memory: CUDA error 400"):
        starting._prefer_shared_memory(7)


# The weight before the wait

PREFETCH = {"triton": kernels_triton.decompose_k.PREFETCH, "tilus": kernels_tilus.decompose_k.PREFETCH}


def prefetch_configs(kernel, problem):
    """One step a band and many, more bands than steps."""
    base = contenders.find(f"{kernel.language.value}/decompose_k.vector").default_config(problem)
    tile = {"block_m": 16, "block_n": 16, "block_k": 32, "num_warps": 1, "num_stages": 3}
    swaps = [{"swap": True, "num_warps": 4, "block_n": 64}] if kernel.language is Language.TRITON else []
    for changes in ({"split_k": 2}, {"split_k": 16}, *({"split_k": 3, **swap} for swap in swaps)):
        yield replace(base, **{**tile, **changes})


@pytest.mark.parametrize("kernel", PREFETCH.values(), ids=PREFETCH)
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(16, 32, 256, layout=Layout.NK),
        Matmul(3, 40, 264, layout=Layout.NK, epilogue=Epilogue.BIAS_RELU),
        Matmul(33, 24, 72, torch.float16, torch.float32),
    ],
    ids=lambda problem: problem.name,
)
def test_a_product_that_loads_its_weight_first_is_the_same_product(kernel, problem, device):
    judge = Judge(problem, problem.inputs(device))
    for config in prefetch_configs(kernel, problem):
        matmul_cases.check_config(kernel, judge, config)


@pytest.mark.parametrize(
    ("language", "changes", "reason"),
    [
        ("triton", {"sliced": True, "block_k": 128, "num_warps": 4}, "sliced is True; accepted: False"),
        ("triton", {"tma": True}, "tma is True; accepted: False"),
        ("tilus", {"engine": "mma_sliced", "block_k": 128, "num_warps": 4}, "engine is mma_sliced; accepted: mma"),
    ],
)
def test_what_cannot_load_its_weight_first_is_refused(language, changes, reason):
    kernel, problem = PREFETCH[language], Matmul(16, 256, 7168, layout=Layout.NK)
    config = replace(kernel.default_config(problem), **changes)
    assert kernel.supports(problem, config).startswith(reason)


def test_what_loads_the_weight_first_is_no_contender_and_not_what_linear_takes():
    for kernel, package in zip(PREFETCH.values(), (kernels_triton, kernels_tilus), strict=True):
        assert kernel not in package.KERNELS
        assert kernel.launch.func is package.decompose_k.matmul


def test_tilus_reads_the_weight_alone_before_it_waits(tmp_path):
    """By the source, every copy of B's first stages; by the address, which comes out of the wait, all of A."""
    problem, kernel = Matmul(16, 256, 7168, layout=Layout.NK), PREFETCH["tilus"]
    config = replace(kernel.default_config(problem), num_stages=4)
    product, reduction = cuda_sources(kernel, problem, config, tmp_path)
    assert all("cudaLaunchKernelEx(&config, " in source and "<<<" not in source for source in (product, reduction))
    code = re.sub(r"/\*.*?\*/", "", product[product.index("__global__") :], flags=re.DOTALL).partition("DLL void")[0]
    before, wait, after = code.partition("tilus_cuda_after_kernel_before(a_ptr)")
    assert wait and before.count("a_ptr") == 1  # it is an argument
    assert before.count("b_ptr") == 2 and "cp_async" in before and before.count("partials_ptr") == 1
    assert "a_ptr" not in after and "partials_ptr" in after


def prefetching_ptx(problem: Matmul, folder: Path, *, announce: Callable[[str], None]) -> str:
    """Of the product on its tuned config."""
    from triton_vs_tilus.kernels_triton import launching, offline

    kernel = kernels_triton.decompose_k.PREFETCH
    announce(kernel.full_name)
    offline.compile_for("sm_90a", folder)
    made = kernel.plan(problem, tuned.pick(kernel, problem, "h200")[0], contiguous(problem))
    return launching._compiled(made.launches[0], made).asm["ptx"]


@pytest.mark.parametrize("layout", Layout)
def test_triton_loads_the_weight_alone_before_it_waits(layout, tmp_path):
    """As many loads as a step of B takes, of which A has fewer rows: the compiler moves none over the wait."""
    ptx = ttgir.call(prefetching_ptx, Matmul(16, 256, 7168, layout=layout), tmp_path)
    before, wait, after = ptx.partition("griddepcontrol.wait")
    assert wait and "griddepcontrol.wait" not in after and "griddepcontrol.launch_dependents" in before
    config = tuned.pick(PREFETCH["triton"], Matmul(16, 256, 7168, layout=layout), "h200")[0]
    loads = config.block_k * config.block_n * 2 // (config.num_warps * 32 * 16)
    assert len(re.findall(r"ld\.global\.v4", before)) == loads  # 16 bytes a thread
    assert not re.search(r"st\.global|cp\.async", before) and "cp.async" in after and "st.global" in after


def test_the_interpreter_finds_what_is_read_before_the_wait():
    class Early(tilus.Script):
        def __call__(self, x_ptr: void_p, y_ptr: void_p, early: int32):
            self.attrs.blocks = 1
            self.attrs.warps = 1
            x = self.global_view(x_ptr, dtype=float32, shape=[32])
            y = self.global_view(y_ptr, dtype=float32, shape=[32])
            total = self.register_tensor(dtype=float32, shape=[32], init=0.0)
            if early > 0:
                self.assign(total, self.load_global(x, offsets=[0], shape=[32]))
            written: void_p = after_kernel_before(x_ptr)
            late = self.global_view(written, dtype=float32, shape=[32])
            self.add(total, self.load_global(late, offsets=[0], shape=[32]), out=total)
            self.store_global(y, total, offsets=[0])

    x, y = torch.ones(32), torch.zeros(32)
    interpreter.run(Early(), x, y, 0)
    assert torch.equal(y, x)
    with pytest.raises(interpreter.Race, match=r"accesses x_ptr at .*before the wait for the kernel that writes it"):
        interpreter.run(Early(), x, y, 1)
