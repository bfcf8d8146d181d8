"""A producer warp beside the warpgroups that multiply: right under every protocol, its own warp to the last copy, and
gone after it."""

import re
from dataclasses import replace

import cuda_source
import pytest
import tilus
import torch
from matmul_cases import check_config
from tilus import int32
from tilus.lang.transpiler.common import TilusProgramError

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Feed
from triton_vs_tilus.kernels_tilus import configs, interpreter, wgmma_specialized
from triton_vs_tilus.kernels_tilus.configs import BandConfig

RAGGED = Matmul(198, 130, 840, layout=Layout.NK, epilogue=Epilogue.RELU)  # several tiles, the last of them short
SPECIALIZED = BandConfig(128, 64, 64, 4, 8, 3, engine="wgmma_specialized")
KERNELS = [
    *["decompose_k.vector", "decompose_k.tile", "semaphore.fp32", "semaphore.in_place"],
    *["atomic", "last_arriver", "cluster", "data_parallel", "data_parallel.persistent"],
]


SYNC = re.compile(r"\w*(?:syncthreads|bar_sync|bar_red)\w*(?=\()")


def around_the_end_of_the_producer(text: str) -> list[str]:
    """Of a kernel's CUDA: what all warps run, the producer's part in it, and what those run that are left."""
    return re.split(r"\n\s+return;", text.split("<<<")[0].partition("__global__")[2])


def of(name: str, config: BandConfig):
    kernel = contenders.find(f"tilus/{name}")
    return kernel, kernel.config_from(vars(replace(config, split_k=1) if name.startswith("data_parallel") else config))


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("name", KERNELS)
def test_every_protocol_takes_it(name, num_warps, device):
    kernel, config = of(name, replace(SPECIALIZED, num_warps=num_warps))
    assert kernel.supports(RAGGED, config) is None
    judge = Judge(RAGGED, RAGGED.inputs(device))
    for _ in range(2):
        check_config(kernel, judge, config)


@pytest.mark.parametrize("k", [8, 64, 3 * 64, 4 * 64, 9 * 64 + 8])
def test_bands_of_any_length(k, device):
    """k: of a band, with 3 stages of 64: fewer steps than stages, as many, and more; a step that K does not fill."""
    problem = Matmul(70, 64, 4 * k, layout=Layout.NK)
    kernel, config = of("last_arriver", SPECIALIZED)
    inputs = problem.inputs(device)
    out = kernel.launch(inputs.a, inputs.b, config=config)
    assert Judge(problem, inputs).judge(out, 1).ok


def test_all_after_the_product_is_of_the_warps_that_are_left(tmp_path):
    """tilus' own loops over threads, copies of partial sums among them, count 256 of the 288 that began."""
    kernel, config = of("last_arriver", SPECIALIZED)
    (text,) = cuda_source.cuda_sources(kernel, RAGGED, config, tmp_path)
    assert "<<<" in text and ", dim3(288, 1, 1)" in text
    assert len(re.findall(r"^\s+return;", text, re.MULTILINE)) == 1
    before, after = around_the_end_of_the_producer(text)
    assert "cp_async_bulk_tensor" in before and "cp_async_bulk_tensor" not in after
    assert "wgmma_mma_async" in after and "wgmma_mma_async" not in before
    assert re.search(r"int32_t tid = \(\(int\)threadIdx\.x % 256\);", after)


@pytest.mark.parametrize("name", KERNELS)
def test_every_sync_after_the_product_counts_the_warps_that_are_left(name, tmp_path):
    """One that counts nobody waits for the producer, which may wait for stages that only the consumers free."""
    kernel, config = of(name, SPECIALIZED)
    text = cuda_source.cuda_sources(kernel, replace(RAGGED, n=136), config, tmp_path)[0]  # C goes out in whole lines
    before, after = around_the_end_of_the_producer(text)
    assert SYNC.findall(before) == ["__syncthreads"]  # barriers in shared memory are there
    reduced = {"tilus_cuda_bar_red_or_1_256"} if name in ("atomic", "last_arriver") else set()
    assert set(SYNC.findall(after)) == {"tilus_cuda_bar_sync_1_256", *reduced}


def test_a_sync_of_a_group_orders_memory(tmp_path):
    """tilus 0.2.0 issues a named barrier as an asm that nvcc may move loads and stores across."""
    kernel, config = of("atomic", SPECIALIZED)
    (text,) = cuda_source.cuda_sources(kernel, RAGGED, config, tmp_path)
    issued = re.findall(r"asm (.*\bbar\..*);", text)
    assert len(issued) == 2 and all(asm.startswith("volatile") and asm.endswith('"memory")') for asm in issued)


def test_products_follow_each_other_and_nothing_is_in_local_memory(tmp_path):
    if compilers.nvcc() is None:
        pytest.skip("there is no nvcc")
    kernel, config = of("cluster", replace(SPECIALIZED, block_n=128))
    problem = Matmul(256, 256, 7168, layout=Layout.NK)
    (text,) = cuda_source.cuda_sources(kernel, problem, config, tmp_path)
    (tmp_path / "source.cu").write_text(text)
    log = resources.nvcc(tmp_path / "source.cu", "sm_90a")
    assert "Used" in log and "serialized" not in log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log


class Halves(tilus.Script):
    """x[i] = i by the threads that are left. by_all: whether all threads of the block come to that."""

    def __init__(self, by_all):
        super().__init__()
        self.by_all = by_all

    def __call__(self, x_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        x = self.global_view(x_ptr, dtype=int32, shape=[128])
        if self.by_all:
            wgmma_specialized.only_first_threads(self, 128)
        else:
            with self.thread_group(0, 128):
                wgmma_specialized.only_first_threads(self, 128)
        self.store_global(x, self.register_tensor(dtype=int32, shape=[128], init=lambda i: i), offsets=[0])


def test_a_block_goes_on_with_its_first_threads(tmp_path):
    x = torch.zeros(128, dtype=torch.int32)
    with interpreter.on_cpu():
        Halves(True)(x)
    assert x.tolist() == list(range(128))
    text = cuda_source.source_of(Halves(True), x, folder=tmp_path)
    assert "RegisterLayout(shape=[128], mode_shape=[128], spatial_modes=[0], local_modes=[])" in text


def test_a_part_of_a_block_does_not_end_the_rest():
    with interpreter.on_cpu(), pytest.raises(TilusProgramError) as failed:
        Halves(False)(torch.zeros(128, dtype=torch.int32))
    assert "named by a part of them; accepted: by all" in str(failed.value.__cause__)


def test_what_it_cannot_take_has_a_reason():
    kernel = contenders.find("tilus/stream_k")
    config = kernel.config_type(128, 64, 64, 1, 8, 3, engine="wgmma_specialized")
    assert "its producer warp ends with the first product" in kernel.supports(RAGGED, config)
    assert "2 warps; accepted: 4 or 8" in configs.supports(RAGGED, replace(SPECIALIZED, num_warps=2))
    assert "N = 130: TMA takes rows" in configs.supports(replace(RAGGED, layout=Layout.KN), SPECIALIZED)


def test_a_search_tries_it_where_it_can_run():
    def tried(name: str) -> set[str]:
        return {config.engine for config in contenders.find(f"tilus/{name}").configs(RAGGED)}

    assert SPECIALIZED.fed == (Feed.TMA_PRODUCER, False, "wgmma")
    assert "wgmma_specialized" in tried("atomic") and "wgmma_specialized" not in tried("stream_k")
