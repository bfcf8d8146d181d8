"""The interpreter itself: what instructions calculate, and that every kind of mistake is caught and named."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import tilus
import torch
from matmul_cases import matmul_kernels, own_config
from tilus import (
    bfloat16,
    boolean,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint32,
    void_p,
)
from tilus.hidet.ir.primitives.cuda.atomic import atomic_add
from tilus.hidet.ir.primitives.cuda.ldst import load, store
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor
from tilus.lang.transpiler.common import TilusProgramError
from tilus.utils import cdiv
from torch._subclasses import FakeTensorMode

from triton_vs_tilus import kernels_tilus
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import atomics, interpreter, semaphore
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_tilus.interpreter import dtypes
from triton_vs_tilus.kernels_tilus.wgmma import copy_chunks

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
        self.store_global(
            out, self.cast(self.cast(x * 9.0, dtype=int32), dtype=float32), offsets=[5, 0, 0], dims=[1, 2]
        )
        row = self.sum(x, dim=1, keepdim=True) + self.max(y, dim=0, keepdim=True)
        self.store_global(out, row, offsets=[6, 0, 0], dims=[1, 2])
        self.store_global(out, self.clip(self.square(x), 0.25, 1.0), offsets=[7, 0, 0], dims=[1, 2])


def test_elementwise_casts_and_reductions():
    x, y = torch.randn(2, 4, 8).unbind()
    out = torch.full((8, 4, 8), float("nan"))
    interpreter.run(Elementwise(), x, y, out)
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


class OfOne(tilus.Script):
    """One instruction on a row of 8 elements of `dtype`; its result has 8 of `to`."""

    def __init__(self, what, dtype, to=None):
        super().__init__()
        self.what, self.dtype, self.to = what, dtype, to or dtype

    def __call__(self, x_ptr: void_p, out_ptr: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        x = self.load_global(self.global_view(x_ptr, dtype=self.dtype, shape=[8]), offsets=[0], shape=[8])
        out = self.global_view(out_ptr, dtype=self.to, shape=[8])
        if self.what == "cast":
            self.store_global(out, self.cast(x, dtype=self.to), offsets=[0])
        if self.what == "round":
            self.store_global(out, self.round(x), offsets=[0])
        if self.what == "max":
            self.store_global(out, self.max(x, dim=0, keepdim=True), offsets=[0])
        if self.what == "min":
            self.store_global(out, self.min(x, dim=0, keepdim=True), offsets=[0])
        if self.what == "clip":
            self.store_global(out, self.clip(x, 0, 1), offsets=[0])


def of_one(what, x, dtype, to=None):
    out = torch.empty(8, dtype=dtypes.torch_dtype(to or dtype))
    interpreter.run(OfOne(what, dtype, to), x, out)
    return out


BEYOND = torch.tensor([1e9, -1e9, 7e4, float("nan"), 300.7, -5.7, float("inf"), 3e9])
LEAST = -(1 << 63)


@pytest.mark.parametrize(
    "dtype, to, wanted",
    [
        # The PTX of nvcc 13: cvt.rzi.s32.f32 and its low byte, but cvt.rzi.s8.f16.
        (float32, int8, [0, 0, 112, 0, 44, -5, -1, -1]),
        (float16, int8, [127, -128, 127, 0, 127, -5, 127, 127]),
        (bfloat16, uint8, [255, 0, 255, 0, 255, 0, 255, 255]),
        (float32, int32, [10**9, -(10**9), 70000, 0, 300, -5, 2**31 - 1, 2**31 - 1]),
        (float32, int64, [10**9, -(10**9), 70000, LEAST, 300, -5, 2**63 - 1, 3 * 10**9]),
        # The conversions of cuda_fp8.h, compiled for the host.
        (float32, float8_e4m3, [448, -448, 448, None, 288, -5.5, 448, 448]),
        (float32, float8_e5m2, [57344, -57344, 57344, None, 320, -6, 57344, 57344]),
        (float16, float8_e5m2, [57344, -57344, 57344, None, 320, -6, 57344, 57344]),
    ],
    ids=str,
)
def test_a_cast_saturates_as_cuda_does(dtype, to, wanted):
    found = of_one("cast", BEYOND.to(dtypes.torch_dtype(dtype)), dtype, to)
    assert [None if v != v else v for v in found.to(torch.float64 if to.is_float() else found.dtype).tolist()] == wanted


def test_an_unsigned_cast_saturates():
    memory = torch.empty(8, dtype=torch.uint32)
    interpreter.run(OfOne("cast", float32, uint32), BEYOND, memory)
    assert memory.tolist() == [10**9, 0, 70000, 0, 300, 0, 2**32 - 1, 3 * 10**9]


@pytest.mark.parametrize(
    "dtype, wanted",
    [(float32, [1, 2, 3, -1, -2, -3]), (float16, [0, 2, 2, 0, -2, -2]), (bfloat16, [0, 2, 2, 0, -2, -2])],
)
def test_halves_round_as_cuda_rounds_them(dtype, wanted):
    """roundf: away from zero; hrint: to even."""
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0, 0], dtype=dtypes.torch_dtype(dtype))
    assert of_one("round", x, dtype)[:6].tolist() == wanted


def test_a_maximum_passes_nan_over_and_starts_finite():
    """fmaxf, from -FLT_MAX on."""
    nan, inf, largest = float("nan"), float("inf"), torch.finfo(torch.float32).max
    x = torch.tensor([nan, 2, -3, nan, 1, 0, 0, 0])
    assert of_one("max", x, float32)[0] == 2
    assert of_one("min", x, float32)[0] == -3
    assert of_one("max", torch.full((8,), -inf), float32)[0] == -largest
    assert of_one("min", torch.full((8,), nan), float32)[0] == largest
    assert of_one("max", torch.arange(-9, -1, dtype=torch.int32), int32)[0] == -2


@pytest.mark.parametrize("what", ["max", "min", "clip"])
def test_what_tilus_has_no_larger_of_is_refused(what):
    """tilus 0.2.0: NameError: name 'hidet' is not defined, in primitives/cuda/math/float16.py."""
    with pytest.raises(interpreter.Unsupported, match="max or min of float16"):
        of_one(what, torch.zeros(8).half(), float16)


class OfTwo(tilus.Script):
    """What two rows of 8 elements give, as tilus promotes them."""

    def __init__(self, what, a, b, to):
        super().__init__()
        self.what, self.a, self.b, self.to = what, a, b, to

    def __call__(self, a_ptr: void_p, b_ptr: void_p, out_ptr: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        a = self.load_global(self.global_view(a_ptr, dtype=self.a, shape=[8]), offsets=[0], shape=[8])
        b = self.load_global(self.global_view(b_ptr, dtype=self.b, shape=[8]), offsets=[0], shape=[8])
        out = self.global_view(out_ptr, dtype=self.to, shape=[8])
        if self.what == "product":
            self.store_global(out, a * b, offsets=[0])
        if self.what == "less":
            self.store_global(out, a < b, offsets=[0])


@pytest.mark.parametrize(
    "what, a, b, to, wanted",
    [
        ("product", uint8, int32, int64, 200 * 30_000_000),  # (int64)a * (int64)b
        ("product", int8, uint8, int16, -56 * 200),
        ("less", uint32, int8, boolean, True),  # (int32)a < (int32)b
        ("less", uint8, int8, boolean, False),
    ],
)
def test_operands_are_promoted_first(what, a, b, to, wanted):
    numbers = {uint8: 200, int32: 30_000_000, int8: -56, uint32: 4_000_000_000}
    x, y = (torch.full((8,), numbers[t], dtype=getattr(torch, t.name)) for t in (a, b))
    out = torch.empty(8, dtype=getattr(torch, to.name))
    interpreter.run(OfTwo(what, a, b, to), x, y, out)
    assert out.tolist() == [wanted] * 8


class Unconverted(tilus.Script):
    """A tile of fp32 goes to fp16 memory, as no cast says."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def __call__(self, x_ptr: ~float32, out_ptr: ~float16):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[32, 8])
        out = self.global_view(out_ptr, dtype=float16, shape=[32, 8])
        if self.by == "store":
            self.store_global(out, self.load_global(x, offsets=[0, 0], shape=[32, 8]), offsets=[0, 0])
        shared = self.shared_tensor(dtype=float16, shape=[32, 8])
        if self.by == "copy_async":
            self.copy_async(x, shared, offsets=[0, 0])
        full = self.mbarrier.alloc(counts=[1])
        if self.by == "TMA load":
            self.tma.global_to_shared(src=x, dst=shared, offsets=[0, 0], mbarrier=full[0])


@pytest.mark.parametrize("by", ["store", "copy_async", "TMA load"])
def test_what_tilus_copies_without_a_cast_is_refused(by):
    """tilus stores a thread's four fp32 as one uint4, over eight fp16."""
    with pytest.raises(interpreter.KernelError, match="float32 is copied to float16, and tilus"):
        interpreter.run(Unconverted(by), torch.zeros(32, 8), torch.zeros(32, 8).half())


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


class InTwos(tilus.Script):
    """Blocks that come in clusters of two."""

    def __call__(self, out_ptr: ~int32, blocks: int32):
        self.attrs.blocks = [blocks]
        self.attrs.cluster_blocks = [2]
        self.attrs.warps = 1
        out = self.global_view(out_ptr, dtype=int32, shape=[blocks])
        block: int32 = self.blockIdx.x
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: block), offsets=[block])


def test_a_grid_is_whole_clusters():
    """As a launch on a GPU has it."""
    out = torch.full((4,), -1, dtype=torch.int32)
    interpreter.run(InTwos(), out, 4)
    assert out.tolist() == [0, 1, 2, 3]
    with pytest.raises(interpreter.KernelError, match=r"a grid of \(3, 1, 1\) blocks, in clusters of \(2, 1, 1\)"):
        interpreter.run(InTwos(), out, 3)


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
    interpreter.run(Scalars(), out, a, b)
    quotient = int(a / b)
    assert out.tolist() == [quotient, a - quotient * b, min(a, b), max(a, b), a * b]


class Negated(tilus.Script):
    """Whether -a is larger than b."""

    def __call__(self, out_ptr: ~int32, a: uint32, b: uint32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        larger: int32 = 0
        if -a > b:
            larger = 1
        out = self.global_view(out_ptr, dtype=int32, shape=[1])
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: larger), offsets=[0])


def test_an_unsigned_number_negated_is_unsigned():
    out = torch.zeros(1, dtype=torch.int32)
    interpreter.run(Negated(), out, 2, 5)
    assert out.item() == 1


def test_a_signed_overflow_is_an_error():
    with pytest.raises(interpreter.Overflow, match="does not fit int32"):
        interpreter.run(Scalars(), torch.zeros(5, dtype=torch.int32), 1 << 20, 1 << 20)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_ragged_strided_slices(rows):
    wide = torch.randn(rows, 10).half()
    out = torch.full((rows, 6), float("nan")).half()
    interpreter.run(Slices(), wide[:, 2:8], out, rows, 10)
    assert torch.equal(out, wide[:, 2:8] * 3)  # count is 1 + 4 + 7, less 2 until 3 or less: 2


# How threads meet in shared memory


class Staged(tilus.Script):
    """A [2, 8] tile through shared memory; `mistake` leaves something out, or puts something in."""

    def __init__(self, mistake):
        super().__init__()
        self.mistake = mistake

    def __call__(self, a_ptr: ~float16, out_ptr: ~float16, rows: int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        a = self.global_view(a_ptr, dtype=float16, shape=[rows, 8])
        out = self.global_view(out_ptr, dtype=float16, shape=[2, 8])
        stage = self.shared_tensor(dtype=float16, shape=[2, 2, 8])
        self.copy_async(a, stage[0], offsets=[0, 0], check_bounds=self.mistake != "unchecked")
        if self.mistake == "a second copy over the first":
            self.copy_async(a, stage[0], offsets=[0, 0])
        if self.mistake != "no commit":
            self.copy_async_commit_group()
        if self.mistake == "freed under way":
            self.free_shared(stage)
            self.store_shared(
                self.shared_tensor(dtype=float16, shape=[2, 8]), self.load_global(a, offsets=[0, 0], shape=[2, 8])
            )
        if self.mistake == "no wait":
            self.copy_async_wait_group(1)
        else:
            self.copy_async_wait_group(0)
        if self.mistake != "no sync after the wait":
            self.sync()
        tile = self.load_shared(stage[0])
        if self.mistake == "never written":
            tile = self.load_shared(stage[1])
        if self.mistake == "slice beyond":
            tile = self.load_shared(stage[rows])
        if self.mistake == "written over a read":
            self.store_shared(stage[0], tile)
        if self.mistake == "written twice":
            self.store_shared(stage[1], tile)
            self.store_shared(stage[1], tile)
        if self.mistake == "read after a write":
            self.store_shared(stage[1], tile)
            tile = self.load_shared(stage[1])
        if self.mistake != "freed under way":
            self.free_shared(stage)
        if self.mistake == "used after free":
            tile = self.load_shared(stage[0])
        if self.mistake == "freed memory taken while read":
            self.store_shared(self.shared_tensor(dtype=float16, shape=[2, 8]), tile)
        self.store_global(out, tile, offsets=[0, 0])


@pytest.mark.parametrize("rows", [2, 1])
def test_a_copy_lands_and_what_is_out_of_bounds_is_zero(rows):
    a, out = torch.randn(rows, 8).half(), torch.full((2, 8), float("nan")).half()
    interpreter.run(Staged("nothing"), a, out, rows)
    assert torch.equal(out[:rows], a)
    assert (out[rows:] == 0).all()


@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("no wait", interpreter.PendingCopy, r"stage\[0, 0, 0\] is read while a copy into it"),
        ("no commit", interpreter.PendingCopy, r"stage\[0, 0, 0\] is read while a copy into it"),
        ("freed under way", interpreter.PendingCopy, "takes memory that stage had, freed at .* while a copy"),
        ("a second copy over the first", interpreter.PendingCopy, "is written over a copy that"),
        ("no sync after the wait", interpreter.MissingSync, "is read, and no sync lies between"),
        ("never written", interpreter.Uninitialized, r"stage\[1, 0, 0\] is read, and nothing has written it"),
        ("written over a read", interpreter.MissingSync, r"stage\[0, 0, 0\] is written over a read"),
        ("written twice", interpreter.MissingSync, r"stage\[1, 0, 0\] is written over another write"),
        ("read after a write", interpreter.MissingSync, r"stage\[1, 0, 0\] is read, and no sync"),
        ("used after free", interpreter.UseAfterFree, "stage is used, and was freed at .*free_shared"),
        ("freed memory taken while read", interpreter.MissingSync, "is written over a read"),
        ("slice beyond", interpreter.KernelError, "the slice 2:3 of dimension 0 leaves its extent 2"),
    ],
)
def test_mistakes_in_shared_memory_are_named(mistake, error, words):
    with pytest.raises(error, match=words) as caught:
        interpreter.run(Staged(mistake), torch.zeros(2, 8).half(), torch.zeros(2, 8).half(), 2)
    assert "in block (0, 0, 0), test_interpreter.py:" in str(caught.value)


def test_an_unchecked_access_beyond_the_tensor_is_named():
    with pytest.raises(
        interpreter.OutOfBounds, match=r"a_ptr\[1, 0\] .* element 8 of memory that holds 8\n.*block \(0"
    ):
        interpreter.run(Staged("unchecked"), torch.zeros(1, 8).half(), torch.zeros(2, 8).half(), 1)


def test_a_view_larger_than_its_tensor_is_named():
    with pytest.raises(interpreter.OutOfBounds, match=r"a_ptr\[1, 0\] is outside of its tensor"):
        interpreter.run(Staged("nothing"), torch.zeros(1, 8).half(), torch.zeros(2, 8).half(), 2)


def test_what_lies_between_the_rows_of_a_slice_is_not_the_tensor():
    wide = torch.zeros(4, 16).half()
    with pytest.raises(interpreter.OutOfBounds, match=r"a_ptr\[0, 4\] is outside of its tensor"):
        interpreter.run(Slices(), wide[:, :4], torch.zeros(4, 6).half(), 4, 16)


def test_a_tensor_that_is_not_given_must_not_be_read():
    with pytest.raises(interpreter.OutOfBounds, match="no tensor was given for a_ptr"):
        interpreter.run(Staged("nothing"), None, torch.zeros(2, 8).half(), 2)


@pytest.mark.parametrize(
    "args, words",
    [
        ((torch.zeros(2, 8), torch.zeros(2, 8).half(), 2), "a_ptr has dtype torch.float32"),
        ((torch.zeros(2, 8).half(), torch.zeros(2, 8).half(), 2.0), "rows is 2.0; accepted: an int"),
        ((torch.zeros(2, 8).half(), 3, 2), "out_ptr is 0x3; accepted: a CPU tensor, its data_ptr"),
    ],
)
def test_wrong_arguments_are_named(args, words):
    with pytest.raises(TypeError, match=words):
        interpreter.run(Staged("nothing"), *args)


def test_tensors_that_have_no_memory_are_passed_over():
    """As a compiler leaves them about: they cannot be what an address names."""
    kept = FakeTensorMode().from_tensor(torch.zeros(3)), torch.zeros(2, 2).to_sparse()
    with pytest.raises(TypeError, match="out_ptr is 0x3"):
        interpreter.run(Staged("nothing"), torch.zeros(2, 8).half(), 3, 2)
    assert len(kept) == 2


# Hopper: barriers, TMA, wgmma


class Pipeline(tilus.Script):
    """out = a [64, 128] @ b [64, 128].T in two steps through one stage."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake

    def __call__(self, a_ptr: ~float16, b_ptr: ~float16, out_ptr: ~float32, stride: int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 128], strides=[stride, 1])
        gb = self.global_view(b_ptr, dtype=float16, shape=[64, 128], strides=[stride, 1])
        out = self.global_view(out_ptr, dtype=float32, shape=[64, 64])
        sa = self.shared_tensor(dtype=float16, shape=[64, 64])
        sb = self.shared_tensor(dtype=float16, shape=[64, 64])
        full = self.mbarrier.alloc(counts=[1])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        self.fill(ga, gb, sa, sb, full, 0)
        if self.mistake == "stage filled twice":
            self.fill(ga, gb, sa, sb, full, 0)
        if self.mistake == "written by threads":
            self.mbarrier.wait(full[0], phase=0)
            self.store_shared(sa, self.load_shared(sb))
            self.sync()
        for step in self.range(2):
            if self.mistake == "wrong phase":
                self.mbarrier.wait(full[0], phase=1 - step)
            if self.mistake != "wrong phase" and self.mistake != "no wait":
                self.mbarrier.wait(full[0], phase=step)
            if self.mistake != "no fence":
                self.wgmma.fence()
            self.wgmma.mma(sa, sb.transpose(), acc)
            if self.mistake != "no commit":
                self.wgmma.commit_group()
            if self.mistake == "freed under way":
                self.free_shared(sa)
                zeros = self.register_tensor(dtype=float16, shape=[64, 64], init=0.0)
                self.store_shared(self.shared_tensor(dtype=float16, shape=[64, 64]), zeros)
            if self.mistake != "stage filled under way":
                self.wgmma.wait_group(1 if self.mistake == "no wait for wgmma" and step == 1 else 0)
            if self.mistake != "stage filled without a sync":
                self.sync()
            if step == 0:
                self.fill(ga, gb, sa, sb, full, 64)
        self.store_global(out, acc, offsets=[0, 0])

    def fill(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        full: RegisterTensor,
        k: int32,
    ):
        with self.single_warp():
            if self.mistake != "nobody arrives":
                with self.single_thread():
                    nbytes = 3 * 64 * 64 * 2 if self.mistake == "too many bytes" else 2 * 64 * 64 * 2
                    self.mbarrier.arrive_and_expect_tx(full[0], transaction_bytes=nbytes)
            self.tma.global_to_shared(src=ga, dst=sa, offsets=[0, k], mbarrier=full[0])
            if self.mistake != "whole block copies":
                self.tma.global_to_shared(src=gb, dst=sb, offsets=[0, k], mbarrier=full[0])
        if self.mistake == "whole block copies":
            self.tma.global_to_shared(src=gb, dst=sb, offsets=[0, k], mbarrier=full[0])


def test_a_pipeline_of_tma_and_wgmma():
    # Whole numbers, whose sums are exact in whatever order.
    a, b = (torch.randint(-8, 9, (64, 136)).half()[:, :128] for _ in range(2))
    out = torch.zeros(64, 64)
    interpreter.run(Pipeline(), a, b, out, 136)
    assert torch.equal(out, a.float() @ b.float().T)


@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("no wait", interpreter.PendingCopy, r"sa\[0, 0\] is read while a copy into it"),
        ("wrong phase", interpreter.PendingCopy, r"sa\[0, 0\] is read while a copy into it"),
        (
            "nobody arrives",
            interpreter.Deadlock,
            r"phase 0 of full\[0\], which misses 1 arrivals and -16384 bytes",
        ),
        (
            "too many bytes",
            interpreter.Deadlock,
            r"phase 0 of full\[0\], which misses 0 arrivals and 8192 bytes",
        ),
        ("stage filled twice", interpreter.KernelError, r"1 arrive at full\[0\], where phase 0 misses 0"),
        ("written by threads", interpreter.MissingFence, "a wgmma reads sa, which threads have written"),
        ("no fence", interpreter.MissingFence, "registers that were written after the last wgmma.fence"),
        ("no commit", interpreter.PendingProduct, r"sa\[0, 0\] is written over while a wgmma"),
        ("no wait for wgmma", interpreter.PendingProduct, "an accumulator is read while a wgmma"),
        ("freed under way", interpreter.PendingProduct, "takes memory that sa had, freed at .* while a wgmma"),
        ("stage filled under way", interpreter.PendingProduct, r"sa\[0, 0\] is written over while a wgmma"),
        ("stage filled without a sync", interpreter.MissingSync, r"sa\[0, 0\] is written over a read"),
        ("whole block copies", interpreter.KernelError, "a TMA load by 128 threads"),
    ],
)
def test_mistakes_of_a_pipeline_are_named(mistake, error, words):
    operand = torch.ones(64, 128).half()
    with pytest.raises(error, match=words):
        interpreter.run(Pipeline(mistake), operand, operand.clone(), torch.zeros(64, 64), 128)


class LoadsOfWarps(tilus.Script):
    """out = the sum of the two chunks of a [64, 128], loaded by a block of 4 warps."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake, self.block_k = mistake, 128

    def __call__(self, a_ptr: ~float16, out_ptr: ~float16):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 128])
        out = self.global_view(out_ptr, dtype=float16, shape=[64, 64])
        sa = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
        full = self.mbarrier.alloc(counts=[1])
        with self.thread_group(thread_begin=0, num_threads=1):
            self.mbarrier.arrive_and_expect_tx(full[0], transaction_bytes=2 * 64 * 64 * 2)
        if self.mistake == "half a warp":
            with self.thread_group(thread_begin=0, num_threads=16):
                copy_chunks(self, ga, sa[0], full[0], 0, 0)
        else:
            copy_chunks(self, ga, sa[0], full[0], 0, 0)
        if self.mistake != "no wait":
            self.mbarrier.wait(full[0], phase=0)
        total = self.load_shared(sa[0]) + self.load_shared(sa[1])
        if self.mistake == "filled again without a sync":
            copy_chunks(self, ga, sa[0], full[0], 0, 0)
        self.store_global(out, total, offsets=[0, 0])


def test_warps_load_chunks_of_their_own():
    a, out = torch.randint(-8, 9, (64, 128)).half(), torch.zeros(64, 64).half()
    interpreter.run(LoadsOfWarps(), a, out)
    assert torch.equal(out, a[:, :64] + a[:, 64:])


@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("half a warp", interpreter.KernelError, "TMA loads by 16 threads from 0 on; accepted: whole warps"),
        ("no wait", interpreter.PendingCopy, r"sa\[0, 0, 0\] is read while a copy into it"),
        ("filled again without a sync", interpreter.MissingSync, r"sa\[0, 0, 0\] is written over a read"),
    ],
)
def test_mistakes_in_loads_of_warps_are_named(mistake, error, words):
    with pytest.raises(error, match=words):
        interpreter.run(LoadsOfWarps(mistake), torch.ones(64, 128).half(), torch.zeros(64, 64).half())


def test_what_tma_cannot_address_is_named():
    operand = torch.ones(64, 132).half()[:, :128]
    with pytest.raises(interpreter.KernelError, match=r"a TMA load from a_ptr, .* strides \[132, 1\]; accepted: unit"):
        interpreter.run(Pipeline(), operand, operand, torch.zeros(64, 64), 132)


# How blocks meet in global memory


class FromRegisters(tilus.Script):
    """out = a [64, 64] @ b [64, 64].T, a in registers, which are overwritten before the wait where `early`."""

    def __init__(self, early):
        super().__init__()
        self.early = early

    def __call__(self, a_ptr: ~float16, b_ptr: ~float16, out_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        ga = self.global_view(a_ptr, dtype=float16, shape=[64, 64])
        gb = self.global_view(b_ptr, dtype=float16, shape=[64, 64])
        out = self.global_view(out_ptr, dtype=float32, shape=[64, 64])
        sb = self.shared_tensor(dtype=float16, shape=[64, 64])
        self.store_shared(sb, self.load_global(gb, offsets=[0, 0], shape=[64, 64]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        a = self.load_global(ga, offsets=[0, 0], shape=[64, 64])
        self.wgmma.fence()
        self.wgmma.mma(a, sb.transpose(), acc)
        self.wgmma.commit_group()
        if self.early:
            a = self.load_global(gb, offsets=[0, 0], shape=[64, 64])
        self.wgmma.wait_group(0)
        if not self.early:
            a = self.load_global(gb, offsets=[0, 0], shape=[64, 64])
        self.store_global(out, acc, offsets=[0, 0])


def test_an_operand_in_registers_is_kept_until_the_wait():
    a, b, out = torch.randn(64, 64).half(), torch.randn(64, 64).half(), torch.empty(64, 64)
    interpreter.run(FromRegisters(early=False), a, b, out)
    torch.testing.assert_close(out, a.float() @ b.float().T)
    with pytest.raises(interpreter.PendingProduct, match="an operand in registers is written while a wgmma"):
        interpreter.run(FromRegisters(early=True), a, b, out)


class LastArriver(tilus.Script):
    """Every block stores a partial; the last one adds them up. Four warps, so that a sync is more than a form."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake

    def __call__(self, x_ptr: ~float32, out_ptr: ~float32, counter_ptr: ~int32, splits: int32):
        self.attrs.blocks = [splits]
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float32, shape=[splits, 32])
        out = self.global_view(out_ptr, dtype=float32, shape=[32])
        partials = self.global_tensor(dtype=float32, shape=[splits, 32], requires_clean=False)
        counter: ~int32 = self.global_view(counter_ptr, dtype=int32, shape=[1])[0].item_ptr()
        split: int32 = self.blockIdx.x
        rank_of_all = self.shared_tensor(dtype=int32, shape=[1])

        partial = self.load_global(x, offsets=[split, 0], shape=[32], dims=[1]) * 2.0
        self.store_global(partials, partial, offsets=[split, 0], dims=[1])
        if self.mistake != "no sync":
            self.sync()
        arrived: int32 = 0
        with self.single_thread():
            if self.mistake == "relaxed":
                rank: int32 = atomic_add(counter, 1)
            else:
                rank: int32 = atomic_add(counter, 1, sem="acq_rel")
            arrived = rank
            self.store_shared(rank_of_all, self.register_tensor(dtype=int32, shape=[1], init=lambda i: rank))
        if self.mistake == "not broadcast" and arrived == splits - 1:
            self.sync()
        if self.mistake == "everyone counts":
            arrived = atomic_add(counter, 1)
        self.sync()
        if self.load_shared(rank_of_all).item() == splits - 1:
            total = self.register_tensor(dtype=float32, shape=[32], init=0.0)
            for i in self.range(splits):
                total = total + self.load_global(partials, offsets=[i, 0], shape=[32], dims=[1])
            self.store_global(out, total, offsets=[0])
            with self.single_thread():
                store(counter, 0, space="generic", sync="release", scope="gpu")


@pytest.mark.parametrize("seed", range(5))
def test_the_last_arriver_sees_every_partial(seed):
    x, out, counter = torch.randn(6, 32), torch.zeros(32), torch.zeros(1, dtype=torch.int32)
    schedule = interpreter.Schedule("random", resident=3, launch="random", seed=seed)
    for _ in range(2):
        interpreter.run(LastArriver(), x, out, counter, 6, schedule=schedule)
        torch.testing.assert_close(out, x.sum(0) * 2)
        assert counter.item() == 0


@pytest.mark.parametrize(
    "mistake, error, words",
    [
        ("no sync", interpreter.Race, r"reads partials\[0, 0\], which block \(0, 0, 0\) wrote at .*store_global"),
        ("relaxed", interpreter.Race, r"reads partials\[0, 0\], which block \(0, 0, 0\) wrote at .*store_global"),
        ("not broadcast", interpreter.Divergent, "arrived was assigned by a part of the threads"),
        ("everyone counts", interpreter.Divergent, "an atomic by all 128 threads"),
    ],
)
def test_mistakes_of_a_last_arriver_are_named(mistake, error, words):
    with pytest.raises(error, match=words):
        interpreter.run(LastArriver(mistake), torch.randn(4, 32), torch.zeros(32), torch.zeros(1, dtype=torch.int32), 4)


class AtomicSum(tilus.Script):
    """Every block adds [split, split + 1, ...] to the same row of sums; the last one copies the sums."""

    def __init__(self, mistake="nothing"):
        super().__init__()
        self.mistake = mistake

    def __call__(self, sums_ptr: ~float32, out_ptr: ~float32, counter_ptr: ~int32, splits: int32, columns: int32):
        self.attrs.blocks = [splits]
        self.attrs.warps = 4
        sums = self.global_view(sums_ptr, dtype=float32, shape=[1, columns])
        out = self.global_view(out_ptr, dtype=float32, shape=[1, columns])
        counter: ~int32 = self.global_view(counter_ptr, dtype=int32, shape=[1])[0].item_ptr()
        split: int32 = self.blockIdx.x
        ramp = self.register_tensor(dtype=int32, shape=[2, 128], init=lambda i, j: i * 1000 + split + j)
        share = self.cast(ramp, dtype=float32)

        if self.mistake == "added after a read":
            self.store_global(out, self.load_global(sums, offsets=[0, 0], shape=[2, 128]), offsets=[0, 0])
        if self.mistake == "one stores" and split == 0:
            self.store_global(sums, share, offsets=[0, 0])
        else:
            atomics.atomic_add(self, sums, share, offsets=[0, 0])
        if self.mistake != "no sync":
            self.sync()
        arrived: int32 = -1
        with self.single_thread():
            if self.mistake == "relaxed":
                arrived = atomic_add(counter, 1)
            else:
                arrived = atomic_add(counter, 1, sem="acq_rel")
        if self._builder.syncthreads_or(arrived == splits - 1):
            self.store_global(out, self.load_global(sums, offsets=[0, 0], shape=[2, 128]), offsets=[0, 0])


@pytest.mark.parametrize("columns", [128, 100])
@pytest.mark.parametrize("seed", range(3))
def test_atomic_adds_of_tiles_meet_in_any_order(columns, seed):
    sums, out, counter = torch.ones(1, columns), torch.zeros(1, columns), torch.zeros(1, dtype=torch.int32)
    schedule = interpreter.Schedule("random", resident=3, launch="random", seed=seed)
    interpreter.run(AtomicSum(), sums, out, counter, 5, columns, schedule=schedule)
    assert out.flatten().tolist() == [1 + 5 * j + 10 for j in range(columns)]


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
@pytest.mark.parametrize(
    "mistake, words",
    [
        ("no sync", r"reads sums_ptr\[0, 0\], which (it|block .*) adds to at .*atomic_add"),
        ("relaxed", r"reads sums_ptr\[0, 0\], which block .* adds to at .*atomic_add"),
        ("added after a read", r"sums_ptr\[0(, 0)?\], which block .* (reads|adds to) at"),
        ("one stores", r"sums_ptr\[0(, 0)?\], which block .* (wrote|adds to) at"),
    ],
)
def test_what_atomic_adds_leave_unordered_is_a_race(mistake, words, order):
    memory = torch.zeros(1, 128), torch.zeros(1, 128), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(interpreter.Race, match=words):
        interpreter.run(AtomicSum(mistake), *memory, 4, 128, schedule=interpreter.Schedule(order))


class AddOfIntegers(tilus.Script):
    def __call__(self, sums_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        sums = self.global_view(sums_ptr, dtype=float32, shape=[4])
        atomics.atomic_add(self, sums, self.register_tensor(dtype=int32, shape=[4], init=1), offsets=[0])


def test_only_fp32_tiles_are_added():
    with pytest.raises(TilusProgramError, match="atomic_add of int32 to float32; accepted: float32 to float32"):
        interpreter.run(AddOfIntegers(), torch.zeros(4))


class Handover(tilus.Script):
    """Block 0 writes a number, block 1 polls a flag and copies it; without `flag`, it just copies."""

    def __init__(self, flag, raised=1):
        super().__init__()
        self.flag, self.raised = flag, raised

    def __call__(self, memory_ptr: ~float32, flag_ptr: ~int32):
        self.attrs.blocks = [2]
        self.attrs.warps = 1
        memory = self.global_view(memory_ptr, dtype=float32, shape=[2])
        flag: ~int32 = self.global_view(flag_ptr, dtype=int32, shape=[1])[0].item_ptr()
        if self.blockIdx.x == 0:
            self.store_global(memory, self.register_tensor(dtype=float32, shape=[1], init=5.0), offsets=[0])
            self.sync()
            store(flag, self.raised, space="generic", sync="release", scope="gpu")
        else:
            if self.flag:
                while load(flag, space="generic", sync="acquire", scope="gpu") != 1:
                    pass
            self.store_global(memory, self.load_global(memory, offsets=[0], shape=[1]), offsets=[1])


@pytest.mark.parametrize("order", ["natural", "reversed", "random"])
def test_a_flag_hands_over(order):
    memory = torch.zeros(2)
    interpreter.run(Handover(True), memory, torch.zeros(1, dtype=torch.int32), schedule=interpreter.Schedule(order))
    assert memory.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_without_a_flag_it_is_a_race_in_every_order(order):
    with pytest.raises(interpreter.Race, match=r"memory_ptr\[0\]"):
        interpreter.run(
            Handover(False), torch.zeros(2), torch.zeros(1, dtype=torch.int32), schedule=interpreter.Schedule(order)
        )


class OneAddsAllAccess(tilus.Script):
    """One thread adds to an element atomically, and all threads read or write it plainly, after a sync or without."""

    def __init__(self, access, sync):
        super().__init__()
        self.access, self.sync_between = access, sync

    def __call__(self, memory_ptr: ~int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        memory = self.global_view(memory_ptr, dtype=int32, shape=[128])
        counter: ~int32 = memory[5].item_ptr()
        with self.single_thread():
            atomic_add(counter, 3)
        if self.sync_between:
            self.sync()
        if self.access == "writes":
            self.store_global(memory, self.register_tensor(dtype=int32, shape=[128], init=1), offsets=[0])
        else:
            self.load_global(memory, offsets=[0], shape=[128])


@pytest.mark.parametrize("access", ["reads", "writes"])
def test_an_atomic_of_one_thread_is_ordered_for_its_block_by_a_sync(access):
    memory = torch.zeros(128, dtype=torch.int32)
    interpreter.run(OneAddsAllAccess(access, sync=True), memory)
    words = rf"{access} memory_ptr\[5\] plainly, which a part of the block's threads accesses atomically at .*: no sync"
    with pytest.raises(interpreter.Race, match=words):
        interpreter.run(OneAddsAllAccess(access, sync=False), memory)


class TwoRead(tilus.Script):
    """Block 0 reads a number with acquire, block 1 plainly."""

    def __call__(self, memory_ptr: ~int32, out_ptr: ~int32):
        self.attrs.blocks = [2]
        self.attrs.warps = 1
        memory = self.global_view(memory_ptr, dtype=int32, shape=[1])
        out = self.global_view(out_ptr, dtype=int32, shape=[2])
        pointer: ~int32 = memory[0].item_ptr()
        block: int32 = self.blockIdx.x
        value: int32 = 0
        if block == 0:
            value = load(pointer, space="generic", sync="acquire", scope="gpu")
        else:
            value = memory[0].item()
        self.store_global(out, self.register_tensor(dtype=int32, shape=[1], init=lambda i: value), offsets=[block])


@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_two_reads_need_no_order(order):
    memory, out = torch.tensor([7], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    interpreter.run(TwoRead(), memory, out, schedule=interpreter.Schedule(order))
    assert out.tolist() == [7, 7]


def test_a_poll_that_nothing_ends_is_a_deadlock():
    with pytest.raises(interpreter.Deadlock, match=r"block \(1, 0, 0\) waits for a change of global memory"):
        interpreter.run(Handover(True, raised=2), torch.zeros(2), torch.zeros(1, dtype=torch.int32))


class Unclean(tilus.Script):
    def __init__(self, clean, reads):
        super().__init__()
        self.clean, self.reads = clean, reads

    def __call__(self, out_ptr: ~int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        scratch = self.global_tensor(dtype=int32, shape=[8], requires_clean=self.clean)
        if self.reads:
            out = self.global_view(out_ptr, dtype=int32, shape=[8])
            self.store_global(out, self.load_global(scratch, offsets=[0], shape=[8]), offsets=[0])
        else:
            self.store_global(scratch, self.register_tensor(dtype=int32, shape=[2], init=3), offsets=[4])


def test_global_tensors():
    out = torch.ones(8, dtype=torch.int32)
    interpreter.run(Unclean(clean=True, reads=True), out)
    assert (out == 0).all()
    interpreter.run(Unclean(clean=False, reads=False), out)
    with pytest.raises(interpreter.Uninitialized, match=r"scratch\[0\] is read"):
        interpreter.run(Unclean(clean=False, reads=True), out)
    with pytest.raises(interpreter.NotClean, match="leaves 3 in element 4 \\(2 of 8 are not zero\\)"):
        interpreter.run(Unclean(clean=True, reads=False), out)


def test_one_tensor_given_twice_is_one_memory():
    memory = torch.zeros(10, 6).half()
    with pytest.raises(interpreter.Race, match=r"(a_ptr|out_ptr)\[\d, 0\]"):
        interpreter.run(Slices(), memory[:9], memory[1:], 9, 6)


# What it does not know, and how to look inside


class Exotic(tilus.Script):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def __call__(self, out_ptr: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        tile = self.register_tensor(dtype=int32, shape=[2, 2], init=lambda i, j: i * 2 + j)
        if self.what == "instruction":
            self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        if self.what == "reduction of a part":
            with self.single_warp():
                self._builder.syncthreads_or(self.blockIdx.x == 0)
        if self.what == "function":
            self._builder.evaluate(pred=None, expr=load(out_ptr, space="shared"))
        if self.what == "print":
            self.printf("%d tiles\n", 1)
            self.print_tensor("tile", tile)


@pytest.mark.parametrize(
    "what, words",
    [
        ("instruction", "tcgen05, .* of Blackwell: instruction Tcgen05AllocInst"),
        ("reduction of a part", "a reduction over a part of the block's threads"),
    ],
)
def test_what_is_unknown_is_named(what, words):
    with pytest.raises(interpreter.Unsupported, match=words):
        interpreter.run(Exotic(what), None)


def test_prints_of_a_script(capsys):
    interpreter.run(Exotic("print"), None)
    assert capsys.readouterr().out == "block (0, 0, 0): 1 tiles\nblock (0, 0, 0): tile\n" + (
        "tensor([[0, 1],\n        [2, 3]], dtype=torch.int32)\n"
    )


def test_debug_shows_any_tile_of_a_chosen_block():
    problem = Matmul(4, 16, 256)
    inputs = problem.inputs("cpu")
    seen = []

    def look(step: interpreter.Step) -> None:
        if step.block == (0, 0, 1) and "self.dot" in step.source:
            seen.append(step.tile)

    with interpreter.using(debug=look):
        semaphore.matmul(inputs.a, inputs.b, config=BandConfig(16, 16, 64, 2, 1, 2))
    assert [tuple(tile.shape) for tile in seen] == [(16, 16)] * 2
    torch.testing.assert_close(seen[-1][:4], inputs.a[:, 128:].float() @ inputs.b[128:].float())


def test_threads_transpile_in_turn():
    """tilus' transpiler keeps its place in a global of its module."""
    problem = Matmul(4, 16, 256)
    inputs = problem.inputs("cpu")

    def product(block_k: int) -> torch.Tensor:
        return semaphore.matmul(inputs.a, inputs.b, config=BandConfig(16, 16, block_k, 2, 1, 2))

    with ThreadPoolExecutor(3) as pool:
        for c in pool.map(product, (16, 32, 64, 128)):
            torch.testing.assert_close(c.float(), inputs.a.float() @ inputs.b.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", matmul_kernels(kernels_tilus), ids=lambda kernel: kernel.full_name)
@pytest.mark.parametrize(
    "problem",
    [
        Matmul(17, 48, 1024, torch.bfloat16, torch.float32, Layout.NK, Epilogue.SILU),
        Matmul(17, 48, 1024, torch.float16, torch.float16, Layout.KN, Epilogue.BIAS_RELU),
    ],
    ids=lambda problem: problem.name,
)
def test_the_gpu_agrees(kernel, problem):
    """Up to the order of the fp32 sums, and what that does to the roundings after it: where the output is fp32 nothing
    else may differ; where it is half precision, an element may land on the other side of each rounding."""
    config = own_config(kernel, MatmulConfig(16, 16, 128, 4, 2, 4))
    if kernel.supports(problem, config):  # warps that share K step otherwise
        config = kernel.default_config(problem)

    def result(device):
        inputs = problem.inputs(device)
        options = {"epilogue": problem.epilogue, "out_dtype": problem.out_dtype, "config": config}
        return kernel.launch(inputs.a, inputs.b, bias=inputs.bias, **options).cpu()

    ulp = torch.finfo(problem.out_dtype).eps
    tolerance = 1e-5 if problem.out_dtype is torch.float32 else kernel.roundings(config) * ulp
    torch.testing.assert_close(result("cuda"), result("cpu"), rtol=tolerance, atol=max(tolerance, 1e-5))
