"""The baseline of or_reduce: torch.bitwise_or of one k after the other, in place, as torch has no such reduction.

Y = A[..., 0] | A[..., 1];  Y |= A[..., 2];  ...          K - 1 launches, each of which reads one k in K of A's rows
"""

import torch
from torch import Tensor

from common.kernel import Kernel, Language
from common.or_reduce import OrReduce, OrReduceConfig, or_reduce_problem
from common.protocol import Protocol


def or_reduce(a: Tensor, *, out: Tensor | None = None, config: None = None) -> Tensor:
    """Y [M, N] = OR over k of a [M, N, k], see common.or_reduce.or_reduce_problem for what is accepted and raised."""
    problem = or_reduce_problem(a, out)
    if out is None:
        out = torch.empty(problem.out_shape, dtype=problem.dtype, device=a.device)
    first, *rest = a.unbind(dim=-1)
    out.copy_(first) if not rest else torch.bitwise_or(first, rest[0], out=out)
    for column in rest[1:]:
        out.bitwise_or_(column)
    return out


KERNEL = Kernel(
    name="bitwise_or",
    variant="",
    language=Language.TORCH,
    protocol=Protocol.LIBRARY,
    launch=or_reduce,
    config_type=OrReduceConfig,
    configs=lambda problem: [],
    default_config=lambda problem: None,
    build=None,
    supports=lambda problem, config=None: None,
    deterministic=True,
    roundings=lambda config: 0,
    workspace_bytes=lambda problem, config: 0,
    launches=None,  # one for K up to 2, else K - 1
    op=OrReduce.op,
)
