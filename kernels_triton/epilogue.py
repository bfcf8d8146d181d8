"""The epilogues of common/epilogue.py in Triton."""

import triton
import triton.language as tl

from common.epilogue import Epilogue


@triton.constexpr_function
def has_bias(epilogue: str) -> bool:
    return Epilogue(epilogue).has_bias


@triton.jit
def apply_epilogue(x, bias, EPILOGUE: tl.constexpr):
    """x: fp32, any shape; bias: fp32, broadcastable to x, where has_bias(EPILOGUE); EPILOGUE: Epilogue.value."""
    if EPILOGUE == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif EPILOGUE == "bias_relu":
        x = tl.maximum(x + bias, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif EPILOGUE == "scale":
        x = x * bias
    elif EPILOGUE == "silu":
        x = x * tl.sigmoid(x)
    elif EPILOGUE == "sigmoid":
        x = tl.sigmoid(x)
    else:
        tl.static_assert(EPILOGUE == "none")
    return x
