"""What the kernels are held against: the same record, with a library's or a compiler's product behind it.

Those that compile or search for seconds at every problem take part where they are asked for.
"""

from bench.references import (
    custom_op,
    decompose_k,
    flashinfer_router,
    helion_matmul,
    tlx,
    torch_bitwise_or,
    torch_compile,
    torch_dequantized_mm,
    torch_int4pack_mm,
    torch_mm,
)

KERNELS = (
    torch_mm.KERNEL,
    torch_bitwise_or.KERNEL,
    torch_dequantized_mm.KERNEL,
    torch_int4pack_mm.KERNEL,
    *decompose_k.KERNELS,
    *torch_compile.KERNELS,
    *custom_op.KERNELS,
    *helion_matmul.KERNELS,
    *flashinfer_router.KERNELS,
    *tlx.KERNELS,
)
