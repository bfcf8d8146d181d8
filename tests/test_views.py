"""Views of register tiles in the interpreter of tilus: each thread's bits, taken for something else."""

import pytest
import tilus
import torch
from tilus import float16, float32, int4b, int8, int32, uint4b, uint8, void_p
from tilus.ir.layout.ops import local, spatial

from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus.interpreter.errors import KernelError, Unsupported
from triton_vs_tilus.kernels_tilus.interpreter.views import viewed

BYTES = torch.arange(64, dtype=torch.uint8)
TWO_A_THREAD = spatial(32).local(2)


def test_two_nibbles_of_a_byte_the_lower_first():
    assert viewed(BYTES[:32], uint8, spatial(32), uint4b, TWO_A_THREAD)[[0, 1, 62, 63]].tolist() == [0, 0, 15, 1]
    signed = viewed(BYTES[:32] * 8, uint8, spatial(32), int4b, TWO_A_THREAD)
    assert signed.dtype is torch.int8 and signed[[2, 3, 62, 63]].tolist() == [-8, 0, -8, -1]


def test_the_layouts_say_what_a_thread_holds():
    """Columns of two rows each, taken for rows of two columns."""
    tile = torch.arange(64, dtype=torch.int32).view(2, 32)
    assert torch.equal(viewed(tile, int32, local(2, 1).spatial(1, 32), int32, spatial(32, 1).local(1, 2)), tile.T)


@pytest.mark.parametrize("dtype, torch_dtype", [(int4b, torch.int8), (uint4b, torch.uint8), (float16, torch.float16)])
def test_a_view_of_a_view_is_the_tile(dtype, torch_dtype):
    layout = spatial(32).local(16 // dtype.nbits)
    there = viewed(BYTES, uint8, TWO_A_THREAD, dtype, layout)
    assert there.dtype is torch_dtype and there.numel() == 64 * 8 // dtype.nbits
    assert torch.equal(viewed(there, dtype, layout, uint8, TWO_A_THREAD), BYTES)


def test_a_thread_keeps_its_bits():
    with pytest.raises(KernelError, match="32 threads' 16 bits each as 32 threads' 1 elements of int8"):
        viewed(BYTES, uint8, TWO_A_THREAD, int8, spatial(32))


class Unpack(tilus.Script):
    def __init__(self, annotated):
        super().__init__()
        self.annotated = annotated
        self.bytes_layout = spatial(32)
        self.nibbles_layout = TWO_A_THREAD

    def __call__(self, src_ptr: void_p, dst_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        src = self.global_view(src_ptr, dtype=uint8, shape=[32])
        dst = self.global_view(dst_ptr, dtype=float32, shape=[64])
        packed = self.load_global(src, offsets=[0], shape=[32])
        if self.annotated:
            self.annotate_layout(packed, self.bytes_layout)
        nibbles = self.view(packed, dtype=int4b, layout=self.nibbles_layout)
        self.store_global(dst, self.cast(nibbles, dtype=float32), offsets=[0])


def test_a_script_views_and_casts():
    src, dst = BYTES[:32] * 7, torch.empty(64)
    interpreter.run(Unpack(True), src, dst)
    expected = torch.stack((src & 0xF, src >> 4), dim=1).flatten().int()
    assert torch.equal(dst.int(), (expected ^ 8) - 8)


def test_a_view_without_annotated_layouts_is_unsupported():
    with pytest.raises(Unsupported, match="depends on the layouts"):
        interpreter.run(Unpack(False), BYTES[:32].clone(), torch.empty(64))


@pytest.mark.gpu
def test_the_gpu_agrees():
    src = BYTES[:32] * 7
    here, there = torch.empty(64), torch.empty(64, device="cuda")
    interpreter.run(Unpack(True), src, here)
    Unpack(True)(src.cuda(), there)
    assert torch.equal(here, there.cpu())


class SideBySide(tilus.Script):
    """Two tiles of shared memory as one, which no strides are: read, written, or viewed again."""

    def __init__(self, use):
        super().__init__()
        self.use = use

    def __call__(self, src_ptr: void_p, dst_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        src = self.global_view(src_ptr, dtype=float32, shape=[2, 4, 8])
        dst = self.global_view(dst_ptr, dtype=float32, shape=[4, 16])
        tiles = self.shared_tensor(dtype=float32, shape=[2, 4, 8])
        self.store_shared(tiles, self.load_global(src, offsets=[0, 0, 0], shape=[2, 4, 8]))
        self.sync()
        row = self.reshape_shared(tiles.permute([1, 0, 2]), [4, 16])
        if self.use == "written":
            self.store_shared(row, self.register_tensor(dtype=float32, shape=[4, 16], init=0.0))
        if self.use == "viewed again":
            self.load_shared(row.permute([1, 0]))
        self.store_global(dst, self.load_shared(row), offsets=[0, 0])
        self.free_shared(tiles)


def test_tiles_side_by_side_are_read_as_one():
    src, dst = torch.arange(64.0).view(2, 4, 8), torch.empty(4, 16)
    interpreter.run(SideBySide("read"), src, dst)
    assert torch.equal(dst, torch.cat((src[0], src[1]), dim=1))


@pytest.mark.parametrize("use", ["written", "viewed again"])
def test_tiles_side_by_side_are_read_alone(use):
    with pytest.raises(Unsupported, match=rf"tiles is {use} in a shape \(4, 16\) that no strides give"):
        interpreter.run(SideBySide(use), torch.zeros(2, 4, 8), torch.empty(4, 16))
