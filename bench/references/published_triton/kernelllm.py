"""KernelLLM's product of matrices, as published: two copies in Triton, and the product by a library.

    A' = bf16(fp32(A));  B' = bf16(fp32(B))             one launch each, element by element
    C = torch.mm(A', B')                                one rounding

Grid         a program for each block of elements
Deterministic yes
Workspace    2 * K * (M + N) bytes, of the copies
Launches     2 and those of torch.mm

As there: copies without masks, 5 configs, and Inductor's name for torch.mm into a given output. On bf16 the casts are
copies. Not as there: where blocks divide the elements its grid has 1 or 2 programs too many, whose stores lie past the
end of A' and B'; here it covers the elements, and sits out where no block divides them. Its autotuner times each copy
alone, and once a process, as its key names no argument; here one line of its list stands for both, and is searched for
each shape. Source: operators/bf16_matmul/kernelllm.py in the repository of the kernel-generation study
(LironKesem/KernelGeneration); the document shows a few lines of it. What was decided here: notes/as_published.md.
"""

from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references import as_published
from triton_vs_tilus.common.call import chosen_config
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.devices import on
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, space_of
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol


@dataclass(frozen=True)
class CopyConfig:
    """block_a, block_b: elements of A and of B that a program copies; num_warps and num_stages: of both copies."""

    block_a: int
    block_b: int
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        return f"a{self.block_a} b{self.block_b} w{self.num_warps} p{self.num_stages}"


CONFIGS = (
    CopyConfig(128, 64, 8, 3),
    CopyConfig(64, 32, 4, 4),
    CopyConfig(256, 128, 4, 4),
    CopyConfig(64, 64, 2, 5),
    CopyConfig(32, 32, 2, 5),
)


def space(problem: Matmul) -> Space:
    """The configs whose blocks divide the operands."""
    return space_of(CONFIGS, partial(supports, problem))


def default_config(problem: Matmul) -> CopyConfig:
    """The first of its list that divides the operands."""
    return space(problem).configs[0]


def supports(problem: Matmul, config: CopyConfig | None = None) -> str | None:
    """bf16 in and out, B stored [K, N], no epilogue, operands of whole blocks, offsets of 32 bits."""
    if (problem.dtype, problem.out_dtype) != (torch.bfloat16, torch.bfloat16):
        return "as published, its copies and its C are bf16"
    of_a, of_b = problem.m * problem.k, problem.k * problem.n
    refused = as_published.no_epilogue(problem) or as_published.kn_alone(problem)
    if reason := refused or as_published.offsets_of_32_bits(of_a, of_b):
        return reason
    if config not in (None, *CONFIGS):
        return f"none of its {len(CONFIGS)} configs"
    if not any(of_a % fit.block_a == 0 and of_b % fit.block_b == 0 for fit in ([config] if config else CONFIGS)):
        blocks = f"{config.block_a} and {config.block_b}" if config else "any of its blocks"
        return f"A has {of_a} elements and B {of_b}; accepted: multiples of {blocks}, as published without masks"
    return None


@triton.jit
def _copy_kernel(source_ptr, copy_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wide = tl.load(source_ptr + at).to(tl.float32)
    tl.store(copy_ptr + at, wide.to(copy_ptr.dtype.element_ty))


def _copied(source: Tensor, block: int, config: CopyConfig) -> Tensor:
    copy = torch.empty_like(source)
    grid = (source.numel() // block,)
    _copy_kernel[grid](source, copy, BLOCK=block, num_warps=config.num_warps, num_stages=config.num_stages)
    return copy


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: CopyConfig | None = None,
) -> Tensor:
    """C [M, N] = a [M, K] @ b [K, N]; common.checks.matmul_problem says what is accepted and raised.

    Raises ValueError for what `supports` refuses, and for operands that are not contiguous.
    """
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    chosen = chosen_config(KERNEL, problem, config, a.device)
    for name, tensor in (("a", a), ("b", b)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()}; accepted: contiguous tensors, as published")
    with on(a.device):
        return torch.mm(_copied(a, chosen.block_a, chosen), _copied(b, chosen.block_b, chosen), out=out)


KERNEL = Kernel(
    name="matmul",
    variant="kernelllm",
    language=Language.PUBLISHED_TRITON,
    protocol=Protocol.LIBRARY,
    launch=matmul,
    config_type=CopyConfig,
    space=space,
    default_config=default_config,
    build=None,
    supports=supports,
    deterministic=True,  # torch.mm: the same bits in every run on one stream of one GPU
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: 2 * problem.k * (problem.m + problem.n),
    launches=None,
    on_request=True,
)
