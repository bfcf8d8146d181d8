"""The baseline: torch.mm into a given output, and the epilogue in torch, in place, as a launch of its own.

    C = torch.mm(A, B);  C = epilogue(C + bias)          one rounding to C's dtype after each operation

What cuBLAS runs, how it splits K and how it sums the splits is its own choice per shape. For half-precision inputs
that choice depends on `torch.backends.cuda.matmul.allow_{bf16,fp16}_reduced_precision_reduction`: as torch sets them,
the splits may meet in half precision. It is left so, being what a user of torch.mm gets.

With BIAS_RELU the product is torch.addmm, as nn.Linear computes it: the bias costs no launch.

No checks but torch's own: the user of torch.mm pays for no others, and they would be in the host time of a call.
"""

import torch
from torch import Tensor

from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.protocol import Protocol


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), of out_dtype: unless given that of out, or of a.

    Raises NotImplementedError for an out_dtype other than that of a on a device where torch.mm has none.
    """
    if out_dtype is None:
        out_dtype = a.dtype if out is None else out.dtype
    if out is None:
        out = torch.empty(a.shape[0], b.shape[1], dtype=out_dtype, device=a.device)
    wider = {} if out_dtype is a.dtype else {"out_dtype": out_dtype}
    if epilogue is Epilogue.BIAS_RELU and not wider:
        return torch.addmm(bias, a, b, out=out).relu_()
    return epilogue.apply_(torch.mm(a, b, out=out, **wider), bias)


KERNEL = Kernel(
    name="mm",
    variant="",
    language=Language.TORCH,
    protocol=Protocol.LIBRARY,
    launch=matmul,
    config_type=MatmulConfig,
    configs=lambda problem: [],
    default_config=lambda problem: None,
    build=None,
    supports=lambda problem, config=None: None,
    deterministic=True,  # cuBLAS: the same bits in every run on one stream of one GPU
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: None,
    launches=None,
)
