"""What Triton does across the blocks of a cluster, compiled for Hopper, which need not be here: splits that would meet
in distributed shared memory, and a tile that TMA would load for several blocks at once.

    python tests/triton_across_blocks.py

Prints, for each way to it, how often its PTX names a peer's shared memory, a multicast, or a barrier of the cluster; or
what the compiler said.
Each is compiled in a fork of this process, as the compiler may end the process that it runs in.
"""

import os
import re
from multiprocessing import get_context
from tempfile import TemporaryDirectory, TemporaryFile

if __name__ == "__main__":  # settled when triton is imported
    os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver
from triton.runtime.jit import MockTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_vs_tilus.kernels_triton.offline import Elsewhere

BLOCKS = 4
ONE_EACH = [[1, 0], [2, 0]]  # block b of a cluster holds row b
ALL_EACH = [[0, 0], [0, 0]]  # every block holds all rows
ROW_EACH = gl.BlockedLayout([1, 4], [1, 32], [1, 4], [1, 0], cga_layout=ONE_EACH)
ROWS_EACH = gl.BlockedLayout([BLOCKS, 1], [1, 32], [1, 4], [0, 1], cga_layout=ALL_EACH)
N = 512


@triton.jit
def _sum_kernel(x_ptr, out_ptr, S: tl.constexpr, N: tl.constexpr):
    offs_n = tl.arange(0, N)
    x = tl.load(x_ptr + tl.arange(0, S)[:, None] * N + offs_n[None, :])
    tl.store(out_ptr + offs_n, tl.sum(x, axis=0))


@triton.jit
def _batched_dot_kernel(a_ptr, b_ptr, out_ptr, S: tl.constexpr, HALVES: tl.constexpr):
    """A dot for each of S = 4 bands of K, then their sum; with HALVES of halves, whose elements are in one thread."""
    bands = tl.arange(0, S)[:, None, None] * 256
    rows, columns = tl.arange(0, 16)[None, :, None] * 16, tl.arange(0, 16)[None, None, :]
    acc = tl.dot(tl.load(a_ptr + bands + rows + columns), tl.load(b_ptr + bands + rows + columns))
    out_ptrs = out_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    if HALVES:
        low, high = tl.split(acc.permute(1, 2, 0).reshape(16, 16, 2, 2))
        low, high = tl.split(low + high)
        tl.store(out_ptrs, low + high)
    else:
        tl.store(out_ptrs, tl.sum(acc, axis=0))


@triton.jit
def _described_dot_kernel(a, b, out_ptr, k, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """A tile of [BLOCK, k] @ [BLOCK, k].T, whose halves, spread over two blocks, need one of the operands whole."""
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, STEP):
        acc = tl.dot(a.load([0, start]), b.load([0, start]).T, acc)
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs[:, None] * BLOCK + offs[None, :], acc)


@gluon.jit
def _gluon_sum_kernel(x_ptr, out_ptr, S: gl.constexpr, N: gl.constexpr, LOADED: gl.constexpr, SUMMED: gl.constexpr):
    offs_s = gl.arange(0, S, layout=gl.SliceLayout(1, LOADED))
    offs_n = gl.arange(0, N, layout=gl.SliceLayout(0, LOADED))
    x = gl.load(x_ptr + offs_s[:, None] * N + offs_n[None, :])
    total = gl.sum(gl.convert_layout(x, SUMMED), axis=0)
    gl.store(out_ptr + gl.arange(0, N, layout=gl.SliceLayout(0, SUMMED)), total)


FP32, BF16 = torch.float32, torch.bfloat16
TILE = TensorDescriptor(MockTensor(BF16), [128, 8192], [8192, 1], [128, 64])
WAYS = {
    "tl.sum": lambda options: _sum_kernel.warmup(FP32, FP32, S=BLOCKS, N=N, **options),
    "batched tl.dot, tl.sum": lambda options: _batched_dot_kernel.warmup(
        BF16, BF16, FP32, S=BLOCKS, HALVES=False, **options
    ),
    "batched tl.dot, sums of halves": lambda options: _batched_dot_kernel.warmup(
        BF16, BF16, FP32, S=BLOCKS, HALVES=True, **options
    ),
    "tl.dot of tiles that TMA loads": lambda options: _described_dot_kernel.warmup(
        TILE, TILE, FP32, 8192, BLOCK=128, STEP=64, **options | {"num_ctas": 2}
    ),
    "gluon sum over blocks": lambda options: _gluon_sum_kernel.warmup(
        FP32, FP32, S=BLOCKS, N=N, LOADED=ROW_EACH, SUMMED=ROW_EACH, **options
    ),
    "gluon convert_layout between blocks": lambda options: _gluon_sum_kernel.warmup(
        FP32, FP32, S=BLOCKS, N=N, LOADED=ROW_EACH, SUMMED=ROWS_EACH, **options
    ),
}


def compile_for_hopper(way: str) -> None:
    driver.set_active(Elsewhere("sm_90a"))
    with TemporaryDirectory() as knobs.cache.dir:
        ptx = WAYS[way](dict(grid=(1,), num_ctas=BLOCKS)).asm["ptx"]
    # A TMA load's destination is so named in 3.6 where it is the block's own.
    loads = re.findall(r"cp\.async\.bulk\.tensor\S*shared::cluster", ptx)
    reads = ptx.count("mapa") + ptx.count("shared::cluster") - len(loads)
    multicasts = ptx.count("multicast::cluster")
    meetings, products = ptx.count("barrier.cluster.arrive"), ptx.count("wgmma.mma_async")
    print(f"reads {reads} times, multicasts {multicasts} times, meets {meetings} times, has {products} wgmma")


def _compile_into(file: int, way: str) -> None:
    os.dup2(file, 1)
    os.dup2(file, 2)
    compile_for_hopper(way)


def outcome(way: str) -> str:
    """'reads ... times, ...', or the compiler's first complaint."""
    with TemporaryFile("w+") as output:
        process = get_context("fork").Process(target=_compile_into, args=(output.fileno(), way))
        process.start()
        process.join()
        output.seek(0)
        lines = output.read().splitlines()
    reported = [line for line in lines if re.search("^reads |Assertion|error:", line)]
    return (reported or lines)[0]


if __name__ == "__main__":
    print(f"Triton {triton.__version__}", flush=True)
    for way in WAYS:
        print(f"{way}: {outcome(way)}", flush=True)
