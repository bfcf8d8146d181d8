"""Routing as a decode step has it, RMSNorm, router, scores and top-k, with the product by torch or by `linear`.

The baseline is torch's: 5 or more launches, the product is cuBLAS'. In the others the product alone is another, so that
a difference in time is what of the kernel's gain arrives in a model.

prefetch: the product is launched dependently (PDL) on the norm, and loads its first steps of the weight before it waits
for it (decompose_k.vector_prefetch). The norm does not write the weight; `linear` cannot know what runs before it.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common.chain import Chain, ChainInputs, Scoring, routed
from triton_vs_tilus.common.kernel import LANGUAGES, Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol


class _Routing:
    """A contender's launcher. language: whose `linear`, or with prefetch whose kernel, multiplies; None: torch's."""

    def __init__(self, language: Language | None, prefetch: bool):
        self.language, self.prefetch = language, prefetch
        self.taken = ""
        self._prepared: set[Any] = set()

    def note(self) -> str:
        return self.taken

    def __call__(
        self,
        hidden: Tensor,
        norm: Tensor,
        weight: Tensor,
        *,
        scoring: Scoring,
        top_k: int,
        out: Tensor | None = None,
        config: None = None,
    ) -> Tensor:
        """The scores, in new memory. Only torch checks the input."""
        return routed(ChainInputs(hidden, norm, weight), scoring, top_k, self._product(hidden, weight))

    def _product(self, x: Tensor, weight: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Built at the first call of a kind, which is not timed."""
        if self.language is None:
            return torch.nn.functional.linear
        if self.prefetch:
            kernel = prefetching(self.language)
            return lambda x, weight: kernel.launch(x, weight.t())
        package = importlib.import_module(f"triton_vs_tilus.kernels_{self.language.value}")
        kind = x.shape, weight.shape, x.dtype
        if x.is_cuda and kind not in self._prepared:
            self._prepared.add(kind)
            package.prepare(weight, max_tokens=x.shape[0])
            self.taken = str(package.explain(x, weight))
        return package.linear


def prefetching(language: Language) -> Kernel:
    """The language's kernel that loads the weight first."""
    return importlib.import_module(f"triton_vs_tilus.kernels_{language.value}.decompose_k").PREFETCH


def _kernel(language: Language | None, prefetch: bool = False) -> Kernel:
    launch = _Routing(language, prefetch)

    def supports(problem: Chain, config: None) -> str | None:
        if language is None or not prefetch:
            return None
        product = Matmul(problem.m, problem.n, problem.k, problem.dtype, layout=Layout.NK)
        return prefetching(language).supports(product, None)

    return Kernel(
        name="chain",
        variant="_".join([language.value, *["prefetch"] * prefetch]) if language else "",
        language=Language.TORCH,
        protocol=Protocol.LIBRARY,
        launch=launch,
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=supports,
        deterministic=False,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=launch.note,
        op=Chain.op,
    )


KERNELS = (
    _kernel(None),
    *(_kernel(language, prefetch) for prefetch in (False, True) for language in LANGUAGES),
)
