"""The reader of the floor: that it reads all there is, and what it is compiled to."""

import re
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import pytest
import torch
import ttgir

from triton_vs_tilus.bench.measure import floor

STORED = floor.STORED.value
BLOCK = floor.LOAD_BYTES * 32  # bytes of a block of one warp whose threads load once


def sizes_around_a_block(dtype: torch.dtype) -> list[int]:
    """In elements: less than a block, two of them, and one and some elements."""
    block = BLOCK // dtype.itemsize
    return [2 * block, block + 3, 5, 1]


@pytest.mark.parametrize("loads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int16], ids=str)
def test_every_element_is_read(dtype, loads, device):
    """The XOR of a thread is what stands in one element, all others being zero: only where it is read is it stored."""
    sizes = sizes_around_a_block(dtype)
    tensors = [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
    sink = torch.zeros(1, dtype=torch.int32, device=device)
    floor._read(tensors, sink, loads=loads, warps=1)
    assert sink.item() == 0
    for tensor in tensors:
        for index in {*range(0, tensor.numel(), 61), tensor.numel() - 1}:
            tensor[index] = STORED
            floor._read(tensors, sink, loads=loads, warps=1)
            assert sink.item() == STORED, (tensor.numel(), index)
            tensor[index] = 0
            sink.zero_()


def test_nothing_is_read_beyond_a_tensor(device):
    whole = torch.full((BLOCK // 4 * 2,), STORED, dtype=torch.int32, device=device)
    sink = torch.zeros(1, dtype=torch.int32, device=device)
    inside = whole[: BLOCK // 4 - 30]
    inside.zero_()
    floor._read([inside], sink, loads=2, warps=1)
    assert sink.item() == 0


def test_tensors_are_flat_integers_the_largest_first():
    a, b = torch.randn(4, 6, dtype=torch.bfloat16), torch.randn(8, 6).T
    flat = floor._flat([a, b])
    assert [(part.dtype, part.numel()) for part in flat] == [(torch.int32, 48), (torch.int32, 12)]
    assert torch.equal(flat[0], b.T.contiguous().view(torch.int32).flatten())
    odd = floor._flat([a[:1, :3], b])
    assert [(part.dtype, part.numel()) for part in odd] == [(torch.int16, 96), (torch.int16, 3)]


def compiled(
    cases: Sequence[tuple[tuple[int, ...], int, int]], folder: Path, *, announce: Callable[[str], None]
) -> list[str]:
    """The PTX for Hopper, of each (numels, loads, warps)."""
    from triton.runtime.jit import MockTensor

    from triton_vs_tilus.kernels_triton import offline

    announce("floor")
    offline.compile_for("sm_90a", folder)

    def ptx(numels: tuple[int, ...], loads: int, warps: int) -> str:
        x_ptrs, sink = (MockTensor(torch.int32),) * len(numels), MockTensor(torch.int32)
        constants = {"LOADS": loads, "THREADS": 32 * warps, "WIDTH": floor.LOAD_BYTES // 4}
        return floor._read_kernel.warmup(x_ptrs, numels, sink, **constants, num_warps=warps, grid=(1,)).asm["ptx"]

    return [ptx(*case) for case in cases]


def test_it_is_wide_loads_and_nothing_between_threads(tmp_path):
    shapes = [(4096, 1024, 64), (1001, 50, 1)]
    cases = list(product(shapes, (floor.LOADS[0], floor.LOADS[-1]), (floor.WARPS[0], floor.WARPS[-1])))
    ptx_of = dict(zip(cases, ttgir.call(compiled, cases, tmp_path), strict=True))
    for (numels, loads, _), ptx in ptx_of.items():
        assert not re.search(r"shfl|bar\.sync|barrier|\.shared|atom|\.local", ptx)
        whole, masked = ptx_loads(ptx)
        assert whole == ["v4"] * loads
        assert masked == (["v4"] * loads if numels[0] % 16 == 0 else ["b32"] * 4 * loads)
        assert len(re.findall(r"@%p\d+ st\.global", ptx)) == len(re.findall(r"st\.global", ptx)) == 1
        assert ptx.rindex("ld.global") < ptx.index("xor.b32")  # every load before the first use of one


def ptx_loads(ptx: str) -> tuple[list[str], list[str]]:
    """The widths of the loads of a full block, and of those under a mask."""
    found = re.findall(r"(@%p\d+ )?ld\.global\.(v4|b32)", ptx)
    return [width for mask, width in found if not mask], [width for mask, width in found if mask]
