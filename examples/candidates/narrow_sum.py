"""A kernel that is wrong in its dtype: the running sum is kept in that of the inputs, as an eager translation of
`c += a @ b` would have it.

    python bench/compare.py --shape 16x32x2048 --candidate examples/candidates/narrow_sum.py:matmul

The gate: its error is over the bound. A tolerance of five percent lets it pass on this shape.
"""

import torch
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
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_k: tl.constexpr,
):
    offs_m = tl.program_id(0) * block_m + tl.arange(0, block_m)
    offs_n = tl.program_id(1) * block_n + tl.arange(0, block_n)
    offs_k = tl.arange(0, block_k)
    acc = tl.zeros((block_m, block_n), c_ptr.dtype.element_ty)
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
        acc = (acc + tl.dot(a, b)).to(acc.dtype)
    tl.store(c_ptr + offs_m[:, None] * n + offs_n[None, :], acc, mask=(offs_m < m)[:, None] & (offs_n < n)[None, :])


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    _matmul_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 32))](
        a, b, c, m, n, k, a.stride(0), b.stride(0), b.stride(1), block_m=16, block_n=32, block_k=32
    )
    return c
