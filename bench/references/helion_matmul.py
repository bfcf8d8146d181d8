"""Two Helion kernels of our own (helion_kernels), each found by Helion's own search.

matmul    C tile = epilogue(sum over K of A tile @ B tile)               one block walks all of K
split_k   partials[s] tile = sum over band s of A tile @ B tile          then a barrier of the whole grid, then
          C tile = epilogue(sum over s of partials[s] tile)              in split order: deterministic. One persistent
                                                                         kernel, and a fill that resets its barrier

The search runs in the first call for a problem, for as many seconds as one kernel may search under --tune quick. They
are by the clock on the wall, compiling included, which ours does ahead of its seconds; what Helion finds it keeps in a
cache of its own, and the row says what that was. Newer than 1.2 cannot be imported with torch 2.11. Source: the idiom
of Helion's examples/split_k_barrier.py.
"""

from typing import Any

import torch
from torch import Tensor

from bench.environment import not_installed, version
from common.checks import matmul_problem
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, MatmulConfig
from common.problem import Matmul
from common.protocol import Protocol


class Searched:
    """One of the kernels, with what Helion found for it."""

    def __init__(self, name: str):
        self.name = name
        self.found: dict[Matmul, Any] = {}

    def matmul(
        self,
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: None = None,
    ) -> Tensor:
        """C [M, N] = epilogue(a [M, K] @ b [K, N]); see common.checks.matmul_problem for what is accepted and raised.
        Raises NotImplementedError without a GPU, or where Helion cannot be imported."""
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        if not a.is_cuda:
            raise NotImplementedError("Helion searches on a GPU")
        if out is None:
            out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
        kernels = _kernels()
        kernel, arguments = getattr(kernels, self.name), (a, b, out, kernels.FINISH[epilogue])
        if problem not in self.found:
            self.found[problem] = kernel.autotune(arguments, force=False)
        return kernel(*arguments)

    def note(self) -> str:
        return f"Helion {version('helion')} found {dict(list(self.found.values())[-1])}"


def _kernels() -> Any:
    try:
        from bench.references import helion_kernels
    except Exception as error:  # whatever a Helion that does not fit this torch raises
        pair = f"helion {version('helion')} with torch {torch.__version__}"
        raise NotImplementedError(f"{pair} cannot be imported: {type(error).__name__}: {error}") from error
    return helion_kernels


def supports(problem: Matmul, config: None = None) -> str | None:
    if problem.epilogue.has_bias:
        return f"its kernels have no vector for the epilogue {problem.epilogue.value}"
    return not_installed("helion", "helion")


def _kernel(name: str, protocol: Protocol) -> Kernel:
    searched = Searched(name)
    return Kernel(
        name=name,
        variant="",
        language=Language.HELION,
        protocol=protocol,
        launch=searched.matmul,
        config_type=MatmulConfig,
        configs=lambda problem: [],
        default_config=lambda problem: None,
        build=None,
        supports=supports,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=searched.note,
        on_request=True,
    )


# A barrier of the whole grid is none of the protocols.
KERNELS = (_kernel("matmul", Protocol.NONE), _kernel("split_k", Protocol.UNKNOWN))
