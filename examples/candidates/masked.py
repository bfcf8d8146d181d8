"""A kernel that is right: sizes and strides are arguments, what is outside is masked, the sum is fp32, and the output
is the one that it is given.

    python bench/compare.py --shape 16x256x7168 --shape 5x33x1000 --candidate examples/candidates/masked.py:matmul

The gate: right on every shape; how fast is for the table to say.
"""

import triton
import triton.language as tl


@triton.jit
def _matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_bk,
    stride_bn,
    stride_cm,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    offs_m = tl.program_id(0) * block_m + tl.arange(0, block_m)
    offs_n = tl.program_id(1) * block_n + tl.arange(0, block_n)
    offs_k = tl.arange(0, block_k)
    acc = tl.zeros((block_m, block_n), tl.float32)
    for start in range(0, k, block_k):
        inside = start + offs_k < k
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + start + offs_k[None, :],
            mask=(offs_m < m)[:, None] & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + (start + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=inside[:, None] & (offs_n < n)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m < m)[:, None] & (offs_n < n)[None, :])


def matmul(a, b, out):
    (m, k), n = a.shape, b.shape[1]
    _matmul_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 32))](
        a, b, out, m, n, k, a.stride(0), b.stride(0), b.stride(1), out.stride(0), block_m=16, block_n=32, block_k=128
    )
    return out
