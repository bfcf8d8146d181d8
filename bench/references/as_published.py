"""What several of the sources' kernels cannot take, as published: each function returns the reason, or None."""

import torch

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Config
from triton_vs_tilus.common.problem import Layout, Matmul


def fp32_as_tf32(problem: Matmul) -> str | None:
    return "as published, it multiplies fp32 as tf32" if problem.dtype is torch.float32 else None


def kn_alone(problem: Matmul) -> str | None:
    return "as published, it takes B stored [K, N] alone" if problem.layout is not Layout.KN else None


def no_epilogue(problem: Matmul) -> str | None:
    if problem.epilogue is Epilogue.NONE:
        return None
    return f"as published, it has no epilogue; asked for: {problem.epilogue.value}"


def offsets_of_32_bits(*elements: int) -> str | None:
    """elements: of each tensor that it reaches by offsets."""
    return "as published, its offsets have 32 bits" if max(elements) >= 1 << 31 else None


def one_config(config: Config | None, only: Config) -> str | None:
    return None if config in (None, only) else f"config is {config}; accepted: {only}, as published"
