"""The epilogues of common/epilogue.py in Triton."""

import triton
import triton.language as tl

from triton_vs_tilus.common.epilogue import Epilogue

try:
    from triton import constexpr_function
except ImportError:  # Triton 3.4 has it in its language
    from triton.language import constexpr_function


@constexpr_function
def has_bias(epilogue: str) -> bool:
    return Epilogue(epilogue).has_bias


@constexpr_function
def activation(epilogue: str) -> str:
    return Epilogue(epilogue).activation


@triton.jit
def apply_epilogue(x, bias, EPILOGUE: tl.constexpr):
    """x: fp32, any shape; bias: fp32, broadcastable to x, where has_bias(EPILOGUE); EPILOGUE: Epilogue.value."""
    if EPILOGUE == "scale":
        x = x * bias
    elif has_bias(EPILOGUE):
        x = x + bias
    if activation(EPILOGUE) == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif activation(EPILOGUE) == "silu":
        x = x * tl.sigmoid(x)
    elif activation(EPILOGUE) == "sigmoid":
        x = tl.sigmoid(x)
    else:
        tl.static_assert(activation(EPILOGUE) == "")
    return x


@triton.jit
def finish(acc, bias_ptr, c_ptr, m, n, stride_cm, stride_cn, offs_m, offs_n, EPILOGUE: tl.constexpr):
    """C[offs_m, offs_n] = epilogue(acc), acc fp32 [BLOCK_M, BLOCK_N] the whole sum."""
    if has_bias(EPILOGUE):
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < n, other=0.0).to(tl.float32)[None, :]
    else:
        bias = 0.0
    c_ptrs = c_ptr + offs_m[:, None].to(tl.int64) * stride_cm + offs_n[None, :].to(tl.int64) * stride_cn
    mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    tl.store(c_ptrs, apply_epilogue(acc, bias, EPILOGUE).to(c_ptr.dtype.element_ty), mask=mask)
