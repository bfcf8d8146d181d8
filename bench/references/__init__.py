"""What the kernels are compared with: libraries and compilers, each registered by the same record as a kernel.

References that compile or search for seconds at every problem take part on request only.
"""

from triton_vs_tilus.bench.references import (
    chain,
    cublaslt,
    custom_op,
    cute_dsl,
    decompose_k,
    flashinfer_gemm,
    flashinfer_router,
    helion_matmul,
    humming_w4a16,
    linear,
    torch_bitwise_or,
    torch_compile,
    torch_dequantized_mm,
    torch_int4pack_mm,
    torch_mm,
)

__all__ = ["KERNELS"]

KERNELS = (
    torch_mm.KERNEL,
    cublaslt.KERNEL,
    torch_bitwise_or.KERNEL,
    torch_dequantized_mm.KERNEL,
    torch_int4pack_mm.KERNEL,
    *decompose_k.KERNELS,
    *torch_compile.KERNELS,
    *custom_op.KERNELS,
    *helion_matmul.KERNELS,
    *flashinfer_router.KERNELS,
    *flashinfer_gemm.KERNELS,
    cute_dsl.KERNEL,
    humming_w4a16.KERNEL,
    *linear.KERNELS,
    *chain.KERNELS,
)
