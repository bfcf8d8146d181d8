"""A "Triton kernel" whose product is the library's: two kernels that cast, and torch.mm between them.

    python bench/compare.py --shape 16x256x7168 --candidate examples/candidates/casts_around_cublas.py:matmul

The gate: right, and the table says what it costs: four launches, and a product in fp32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _cast_kernel(x_ptr, y_ptr, rows, columns, stride_row, stride_column, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < rows * columns
    x = tl.load(x_ptr + at // columns * stride_row + at % columns * stride_column, mask=inside)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=inside)


def cast(x, dtype):
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    _cast_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, *x.shape, *x.stride(), block=4096)
    return y


def matmul(a, b):
    return cast(torch.mm(cast(a, torch.float32), cast(b, torch.float32)), a.dtype)
