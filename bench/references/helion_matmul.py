"""Two Helion kernels of this project (helion_kernels), tuned by Helion's own search.

matmul    C tile = epilogue(sum over K of A tile @ B tile)               one block walks all of K
split_k   partials[s] tile = sum over band s of A tile @ B tile          then a barrier of the whole grid, then
          C tile = epilogue(sum over s of partials[s] tile)              in split order: deterministic. One persistent
                                                                         kernel, and a fill that resets its barrier

The search runs in the first call for a problem, for as many seconds as one kernel may search under --tune quick. These
are seconds of wall clock and include compiling, which this project's search does not count. The variants
default_effort are searched as Helion searches when nothing else is said, for as long as that takes, on SUBSET alone and
ahead of the rows, as no contender has so many minutes for its first call:

    python -m triton_vs_tilus.bench.references.helion_matmul

Helion keeps what it finds in its own cache, and the row says what that was. Versions newer than 1.2 cannot be imported
with torch 2.11. Source: the idiom of Helion's examples/split_k_barrier.py.
"""

from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_path
from torch import Tensor

from triton_vs_tilus.bench.rows.environment import not_installed, version
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.tuned import APP

DEFAULT_EFFORT = "default_effort"


SUBSET = tuple(Matmul(tokens, 256, 7168, layout=Layout.NK) for tokens in (16, 64, 256))  # the router
AHEAD = user_cache_path(APP) / "helion"  # a file for each search at default effort that has ended


class Searched:
    """One of the kernels, with the configs that Helion found for it. name: of helion_kernels."""

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

    def supports(self, problem: Matmul, config: None = None) -> str | None:
        if reason := supports(problem):
            return reason
        if self.name.endswith(DEFAULT_EFFORT):
            if problem not in SUBSET:
                return f"searched at default effort on {', '.join(known.name for known in SUBSET)} alone"
            if not self._ahead(problem).exists():
                return f"not searched at default effort here: python -m {__name__}"
        return None

    def search_ahead(self, problem: Matmul) -> None:
        """Into Helion's cache, which the contender finds it in."""
        inputs = problem.inputs("cuda")
        self.matmul(inputs.a, inputs.b)
        self._ahead(problem).parent.mkdir(parents=True, exist_ok=True)
        self._ahead(problem).write_text(self.note())

    def _ahead(self, problem: Matmul) -> Path:
        versions = f"helion-{version('helion')}-triton-{version('triton')}-torch-{version('torch')}"
        return AHEAD / f"{self.name}-{problem.name}-{versions}"

    def note(self) -> str:
        return f"Helion {version('helion')} found {dict(list(self.found.values())[-1])}"


def _kernels() -> Any:
    try:
        from triton_vs_tilus.bench.references import helion_kernels
    except Exception as error:  # whatever a Helion that does not fit this torch raises
        pair = f"helion {version('helion')} with torch {torch.__version__}"
        raise NotImplementedError(f"{pair} cannot be imported: {type(error).__name__}: {error}") from error
    return helion_kernels


def supports(problem: Matmul, config: None = None) -> str | None:
    if problem.epilogue.has_bias:
        return f"its kernels have no vector for the epilogue {problem.epilogue.value}"
    return not_installed("helion", "helion")


def _kernel(name: str, variant: str, protocol: Protocol) -> Kernel:
    searched = Searched(f"{name}_{variant}" if variant else name)
    return Kernel(
        name=name,
        variant=variant,
        language=Language.HELION,
        protocol=protocol,
        launch=searched.matmul,
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=searched.supports,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=searched.note,
        on_request=True,
    )


# A barrier of the whole grid is none of the protocols.
KERNELS = tuple(
    _kernel(name, variant, protocol)
    for variant in ("", DEFAULT_EFFORT)
    for name, protocol in (("matmul", Protocol.DATA_PARALLEL), ("split_k", Protocol.UNKNOWN))
)

if __name__ == "__main__":
    if not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device; Helion searches on one")
    for known in ("matmul", "split_k"):
        for asked in SUBSET:
            Searched(f"{known}_{DEFAULT_EFFORT}").search_ahead(asked)
            print(f"helion/{known}.{DEFAULT_EFFORT}: {asked.name} searched", flush=True)
