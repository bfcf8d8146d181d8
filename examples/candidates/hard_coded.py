"""A kernel as generators write it for one task: every size is a constant of that task, and nothing is masked.

    python bench/compare.py --shape 16x64x2048 --shape 8x64x2048 --candidate examples/candidates/hard_coded.py:matmul

The gate: right on the shape that it was written for; on another it returns what it always returns, and that is told.
"""

import torch
import triton
import triton.language as tl

M, N, K = 16, 64, 2048


@triton.jit
def _matmul_kernel(a_ptr, b_ptr, c_ptr, stride_bk, stride_bn):
    offs_m = tl.arange(0, 16)
    offs_n = tl.program_id(0) * 32 + tl.arange(0, 32)
    offs_k = tl.arange(0, 128)
    acc = tl.zeros((16, 32), tl.float32)
    for k in range(0, 2048, 128):
        a = tl.load(a_ptr + offs_m[:, None] * 2048 + k + offs_k[None, :])
        b = tl.load(b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn)
        acc += tl.dot(a, b)
    tl.store(c_ptr + offs_m[:, None] * 64 + offs_n[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul(a, b):
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    _matmul_kernel[(N // 32,)](a, b, c, b.stride(0), b.stride(1))
    return c
