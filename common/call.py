"""What every matmul launcher does before it launches: checks its arguments, picks a config, allocates C."""

import torch
from torch import Tensor

from common import tuned
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import Kernel, MatmulConfig
from common.problem import Layout, Matmul


def input_strides(problem: Matmul, a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """stride_am, stride_bk, stride_bn. That of a dimension of size one may be anything in torch, and would tell
    of a misalignment that is none: it is given as if there were more."""
    stride_am = a.stride(0) if problem.m > 1 else problem.k
    if problem.layout is Layout.NK:
        return stride_am, 1, b.stride(1) if problem.n > 1 else problem.k
    return stride_am, b.stride(0) if problem.k > 1 else problem.n, 1


def prepared(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    bias: Tensor | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
    config: MatmulConfig | None,
) -> tuple[Matmul, MatmulConfig, Tensor]:
    """The problem that the arguments pose; the config, for None the tuned one of this device; and C, for None new.

    Raises as common.checks.matmul_problem, and ValueError for a problem that the kernel cannot run, or cannot on this
    config. Nothing is allocated before.
    """
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    if reason := kernel.supports(problem, config):
        raise ValueError(f"config is {config}; {reason}" if config else reason)
    if config is None:
        config, _ = tuned.pick(kernel, problem, tuned.slug_of(a.device))
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
    return problem, config, out
