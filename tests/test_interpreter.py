"""The interpreter itself: what instructions calculate, and that every kind of mistake is caught and named."""

import pytest
import tilus
import torch
from tilus import bfloat16, boolean, float16, float32, int32, void_p
from tilus.hidet.ir.primitives.cuda.atomic import atomic_add
from tilus.hidet.ir.primitives.cuda.ldst import load, store
from tilus.utils import cdiv

from common.epilogue import Epilogue
from common.kernel import MatmulConfig
from common.problem import Layout, Matmul
from kernels_tilus import interpreter, semaphore


def launch(script, *args, **options) -> None:
    interpreter.run(script, *args, **options)


# What instructions calculate


class Elementwise(tilus.Script):
    """One [4, 8] tile of every kind of elementwise result, for a row of outputs each."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, out_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        gx = self.global_view(x_ptr, dtype=float32, shape=[4, 8])
        gy = self.global_view(y_ptr, dtype=float32, shape=[4, 8])
        out = self.global_view(out_ptr, dtype=float32, shape=[8, 4, 8])
        x = self.load_global(gx, offsets=[0, 0], shape=[4, 8])
        y = self.load_global(gy, offsets=[0, 0], shape=[4, 8])
        ramp = self.register_tensor(dtype=float32, shape=[4, 8], init=lambda i, j: i * 8 + j)
        self.store_global(out, x / y - ramp, offsets=[0, 0, 0], dims=[1, 2])
        self.store_global(out, self.maximum(x, y), offsets=[1, 0, 0], dims=[1, 2])
        self.store_global(out, self.exp(-x) + 1.0, offsets=[2, 0, 0], dims=[1, 2])
        self.store_global(out, self.where(x < y, x=self.abs(x), y=self.sqrt(ramp)), offsets=[3, 0, 0], dims=[1, 2])
        self.store_global(out, self.cast(self.cast(x, dtype=bfloat16), dtype=float32), offsets=[4, 0, 0], dims=[1, 2])
        self.store_global(out, self.cast(self.cast(x * 9.0, dtype=int32), dtype=float32), offsets=[5, 0, 0], dims=[1, 2])
        row = self.sum(x, dim=1, keepdim=True) + self.max(y, dim=0, keepdim=True)
        self.store_global(out, row, offsets=[6, 0, 0], dims=[1, 2])
        self.store_global(out, self.clip(self.square(x), 0.25, 1.0), offsets=[7, 0, 0], dims=[1, 2])


def test_elementwise_casts_and_reductions():
    x, y = torch.randn(2, 4, 8).unbind()
    out = torch.full((8, 4, 8), float("nan"))
    launch(Elementwise(), x, y, out)
    ramp = torch.arange(32.0).view(4, 8)
    wanted = [
        x / y - ramp,
        torch.maximum(x, y),
        torch.exp(-x) + 1,
        torch.where(x < y, x.abs(), ramp.sqrt()),
        x.bfloat16().float(),
        (x * 9).trunc(),
        x.sum(1, keepdim=True) + y.amax(0, keepdim=True),
        x.square().clamp(0.25, 1),
    ]
    for got, want in zip(out, wanted, strict=True):
        torch.testing.assert_close(got, want)


class Slices(tilus.Script):
    """Views of global, shared and register tensors, and control flow between."""

    def __call__(self, a_ptr: ~float16, out_ptr: ~float16, rows: int32, stride: int32):
        self.attrs.blocks = [cdiv(rows, 4)]
        self.attrs.warps = 1
        a = self.global_view(a_ptr, dtype=float16, shape=[rows, 6], strides=[stride, 1])
        out = self.global_view(out_ptr, dtype=float16, shape=[rows, 6])
        row: int32 = self.blockIdx.x * 4
        shared = self.shared_tensor(dtype=float16, shape=[2, 4, 8])
        self.store_shared(shared[1], self.load_global(a, offsets=[row, 0], shape=[4, 8]))
        self.sync()
        tile = self.load_shared(shared[1])
        turned = self.load_shared(shared[1].transpose()).transpose()
        count: int32 = 0
        for i in self.range(10):
            if i == 8:
                break
            if i % 3 == 1:
                count += i
        while count > 3:
            count -= 2
        factor = self.register_tensor(dtype=int32, shape=[1, 1], init=lambda i, j: count)
        self.store_global(out, tile + turned * self.cast(factor, dtype=float16), offsets=[row, 0])


class Scalars(tilus.Script):
    """C's arithmetic: division truncates."""

    def __call__(self, out_ptr: ~int32, a: int32, b: int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=int32, shape=[5])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: a / b), offsets=[0])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: a % b), offsets=[1])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: min(a, b)), offsets=[2])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: max(a, b)), offsets=[3])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: a * b + i), offsets=[4])


@pytest.mark.parametrize("a, b", [(7, 2), (-7, 2), (7, -2), (-7, -2)])
def test_scalars_are_those_of_c(a, b):
    out = torch.zeros(5, dtype=torch.int32)
    launch(Scalars(), out, a, b)
    quotient = int(a / b)
    assert out.tolist() == [quotient, a - quotient * b, min(a, b), max(a, b), a * b]


def test_a_signed_overflow_is_an_error():
    with pytest.raises(interpreter.Overflow, match="does not fit int32"):
        launch(Scalars(), torch.zeros(5, dtype=torch.int32), 1 << 20, 1 << 20)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_ragged_strided_slices(rows):
    wide = torch.randn(rows, 10).half()
    out = torch.full((rows, 6), float("nan")).half()
    launch(Slices(), wide[:, 2:8], out, rows, 10)
    assert torch.equal(out, wide[:, 2:8] * 3)  # count is 1 + 4 + 7, less 2 until 3 or less: 2
