"""Triton's CPU interpreter (TRITON_INTERPRET=1) with correct bf16 and masks, and with its programs in any order.

Not a kernel file. tilus has no interpreter of its own, so that kernels_tilus/interpreter/ is a whole one.

Triton 3.6 to 3.9 hold bf16 as its bits in uint16. They multiply these bits as integers in `tl.dot` and in arithmetic,
and truncate fp32 instead of rounding it (github.com/triton-lang/triton issue 11584). Here bf16 operands are computed in
fp32, which holds them exactly, and results are rounded to nearest even, as on the hardware.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import product

import numpy as np
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def _bf16_to_fp32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _fp32_to_bf16(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _is_bf16(handle: TensorHandle) -> bool:
    return handle.dtype.scalar == tl.bfloat16


def _widened(handle: TensorHandle) -> TensorHandle:
    return TensorHandle(_bf16_to_fp32(handle.data), tl.float32) if _is_bf16(handle) else handle


def install_if_interpreting() -> None:
    """Patches Triton's interpreter once; does nothing where kernels are compiled."""
    if not triton.knobs.runtime.interpret or getattr(InterpreterBuilder, "_bf16_is_right", False):
        return
    original_cast = InterpreterBuilder.cast_impl
    original_fp_to_fp = InterpreterBuilder.create_fp_to_fp
    original_dot = InterpreterBuilder.create_dot
    original_binary = InterpreterBuilder.binary_op

    def cast(self, src, dst_type):
        if _is_bf16(src):
            return cast(self, _widened(src), dst_type) if dst_type.scalar != tl.bfloat16 else src
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(_fp32_to_bf16(src.data.astype(np.float32)), tl.bfloat16)
        return original_cast(self, src, dst_type)

    def fp_to_fp(self, src, dst_type, rounding_mode):
        if tl.bfloat16 in (src.dtype.scalar, dst_type.scalar):
            return cast(self, src, dst_type)
        return original_fp_to_fp(self, src, dst_type, rounding_mode)

    def dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        return original_dot(self, _widened(a), _widened(b), d, input_precision, max_num_imprecise_acc)

    def binary(self, lhs, rhs, op):
        if not (_is_bf16(lhs) and _is_bf16(rhs)):
            result = original_binary(self, lhs, rhs, op)
            # A comparison has the dtype of its operands there, by which 3.9 makes a mask of a scalar one: of int32.
            return TensorHandle(result.data, tl.int1) if result.data.dtype == np.bool_ else result
        result = op(_widened(lhs).data, _widened(rhs).data)
        if result.dtype == np.bool_:
            return TensorHandle(result, tl.int1)
        return TensorHandle(_fp32_to_bf16(result), tl.bfloat16)

    InterpreterBuilder.cast_impl = cast
    InterpreterBuilder.create_fp_to_fp = fp_to_fp
    InterpreterBuilder.create_dot = dot
    InterpreterBuilder.binary_op = binary
    InterpreterBuilder._bf16_is_right = True


Point = tuple[int, int, int]


@contextmanager
def programs_in(order: Callable[[list[Point]], list[Point]]) -> Iterator[None]:
    """A context in which the programs of a launch run in the order that `order` makes of their indices.

    Triton's own order is x slowest, z fastest. Programs run one after the other: one that waits for a later one hangs.
    """
    original = InterpreterBuilder.set_grid_idx

    @lru_cache(maxsize=16)
    def ordered(grid: Point) -> dict[Point, Point]:
        natural = list(product(*map(range, grid)))
        return dict(zip(natural, order(list(natural)), strict=True))

    def set_grid_idx(self, x: int, y: int, z: int) -> None:
        original(self, *ordered(tuple(self.grid_dim))[x, y, z])

    InterpreterBuilder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        InterpreterBuilder.set_grid_idx = original
