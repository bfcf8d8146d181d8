"""Decompose-K in torch: a batched product of the splits, and their sum.

    partials[s] = A[:, band s] @ B[band s, :]     torch.bmm, fp32 out, S bands of K / S
    C = epilogue(sum over s of partials[s])       in fp32, one rounding to C's dtype

eager          bmm, sum, the epilogue and the rounding are launches of their own
compiled       torch.compile in its mode max-autotune-no-cudagraphs: the sum and all that follows it are one kernel
max_autotune   the same in its mode max-autotune: replayed as a CUDA graph, which A and B are copied for at each call

The split is the config: `--tune` searches it like a kernel's, and without a search the heuristic gives every SM about
one 64x64 block of the bmm. C is newly allocated by torch, as in torch_compile. Source: the decompose-K study
of shreyansh26 (github.com/shreyansh26/MLSys-Experiments, decompose-k/gemm.py), and Inductor's lowering of the same
name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench.references.compiling import AS_GRAPH, NO_CUDAGRAPHS, Compiled
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, cdiv
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol

# The study's powers of two, and their multiples of 7 for a router's K of 7168; a search compiles one each.
SPLITS = (2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224, 256)
SHORTEST_BAND = 16  # of K: one step of a tensor core
BLOCKS = 128  # of 64x64; the heuristic's target, about one an SM


@dataclass(frozen=True)
class Split:
    """split_k: into how many bands K is cut."""

    split_k: int

    def __str__(self) -> str:
        return f"s{self.split_k}"


def splits_of(k: int) -> list[int]:
    """The SPLITS that cut K into equal bands of SHORTEST_BAND or more."""
    return [split for split in SPLITS if k % split == 0 and k // split >= SHORTEST_BAND]


def product(
    a: Tensor, b: Tensor, bias: Tensor | None = None, *, epilogue: Epilogue, out_dtype: torch.dtype, split_k: int
) -> Tensor:
    """C [M, N] of a [M, K], b [K, N]. K has to be a multiple of split_k."""
    (m, k), n = a.shape, b.shape[1]
    band = k // split_k
    bands_of_a, bands_of_b = a.reshape(m, split_k, band).permute(1, 0, 2), b.reshape(split_k, band, n)
    wider: dict[str, Any] = {} if a.dtype is torch.float32 else {"out_dtype": torch.float32}
    partials = torch.bmm(bands_of_a, bands_of_b, **wider)
    return epilogue.apply(partials.sum(0), bias).to(out_dtype)


def _launcher(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def matmul(
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: Tensor | None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: Split | None = None,
    ) -> Tensor:
        """C [M, N] = epilogue(a [M, K] @ b [K, N]), newly allocated. Accepts and raises what
        common.checks.matmul_problem does. Raises NotImplementedError for half precision on a CPU, and as Compiled."""
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        if problem.dtype is not torch.float32 and not a.is_cuda:
            raise NotImplementedError(f"torch.bmm of {problem.dtype} into fp32 needs a GPU")
        split_k = (config or default_config(problem)).split_k
        return run(problem, a, b, bias, epilogue=epilogue, out_dtype=problem.out_dtype, split_k=split_k)

    return matmul


def space(problem: Matmul) -> Space:
    return Space(tuple(Split(split) for split in splits_of(problem.k)))


def default_config(problem: Matmul) -> Split:
    """The largest split whose bmm has no more than BLOCKS blocks of 64x64; else the smallest split."""
    tiles = cdiv(problem.m, 64) * cdiv(problem.n, 64)
    fitting = [split for split in splits_of(problem.k) if split * tiles <= BLOCKS]
    return Split(fitting[-1] if fitting else splits_of(problem.k)[0])


def supports(problem: Matmul, config: Split | None = None) -> str | None:
    possible = splits_of(problem.k)
    if not possible or (config is not None and config.split_k not in possible):
        accepted = f"accepted: {', '.join(map(str, possible))}" if possible else f"none of {SPLITS} is"
        return f"K = {problem.k} has to be a multiple of the split, in bands of {SHORTEST_BAND} or more; {accepted}"
    return None


def _workspace_bytes(problem: Matmul, config: Split) -> int:
    return config.split_k * problem.m * problem.n * torch.float32.itemsize


def _kernel(variant: str, run: Callable[..., Tensor], note: Callable[[], str]) -> Kernel:
    return Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TORCH,
        protocol=Protocol.LIBRARY,
        launch=_launcher(run),
        config_type=Split,
        space=space,
        default_config=default_config,
        build=None,
        supports=supports,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=_workspace_bytes,
        launches=None,
        note=note,
        on_request=True,
    )


_COMPILED = Compiled(product, NO_CUDAGRAPHS)
_REPLAYED = Compiled(product, AS_GRAPH)

KERNELS = (
    _kernel("eager", lambda problem, *tensors, **constants: product(*tensors, **constants), lambda: ""),
    _kernel("compiled", _COMPILED, _COMPILED.note),
    _kernel("max_autotune", _REPLAYED, _REPLAYED.note),
)
