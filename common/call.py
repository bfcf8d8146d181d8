"""What every matmul launcher does before it launches: checks its arguments, picks a config, allocates C."""

import torch
from torch import Tensor

from common import tuned
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import Kernel, MatmulConfig
from common.problem import Matmul


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
