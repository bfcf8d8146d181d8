"""`linear` of each kernel package, as a model calls it: held against torch.mm wherever it takes a kernel, or torch.

torch/functional_linear is torch.nn.functional.linear. What a call costs the host (--timing host) is compared with it:
torch.mm is given its output, and these allocate one.

What a package's `linear` takes is built and loaded at the first call of a kind, which is not timed.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol


class _Linear:
    """A contender's launcher. language: whose `linear`."""

    def __init__(self, language: Language):
        self.language = language
        self.taken = ""
        self._calls: dict[Any, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {}

    def note(self) -> str:
        return self.taken

    def __call__(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: Tensor | None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: None = None,
    ) -> Tensor:
        """C, in new memory. weight: [N, K]."""
        kind = x.shape, weight.shape, x.dtype, epilogue, out_dtype
        call = self._calls.get(kind)
        if call is None:
            call = self._calls[kind] = self._prepared(x, weight, bias, epilogue, out_dtype)
        return call(x, weight, bias)

    def _prepared(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: Epilogue, out_dtype: torch.dtype | None
    ) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
        package = importlib.import_module(f"triton_vs_tilus.kernels_{self.language.value}")
        activation, linear = epilogue.activation or None, package.linear
        if x.is_cuda:
            options = {"bias": bias, "activation": activation, "out_dtype": out_dtype}
            package.prepare(weight, max_tokens=x.shape[0], **options)
            self.taken = str(package.explain(x, weight, **options))
        if epilogue is Epilogue.NONE and out_dtype in (None, x.dtype):
            return linear  # as a model calls it: no argument is passed on
        return lambda x, weight, bias: linear(x, weight, bias, activation, out_dtype=out_dtype)


def _functional_linear(
    x: Tensor,
    weight: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: None = None,
) -> Tensor:
    """C, in new memory. weight: [N, K]."""
    return torch.nn.functional.linear(x, weight, bias)


def supports(problem: Matmul, config: Config | None) -> str | None:
    """Every problem but for an epilogue that a model's layer does not have."""
    return "linear adds a bias, and does not scale" if problem.epilogue is Epilogue.SCALE else None


def _torch_supports(problem: Matmul, config: Config | None) -> str | None:
    if problem.epilogue.activation or problem.epilogue is Epilogue.SCALE:
        return f"torch's linear has a bias alone, not {problem.epilogue.value}"
    return None if problem.out_dtype is problem.dtype else "torch's linear has an output of its inputs' dtype"


def _arguments(problem: Matmul, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With the weight as nn.Linear has it, [N, K]."""
    (a, b), options = problem.arguments(inputs)
    return (a, b.t()), options


def _kernel(
    name: str,
    variant: str,
    launch: Callable[..., Tensor],
    supports: Callable[[Matmul, Config | None], str | None],
    note: Callable[[], str] = lambda: "",
) -> Kernel:
    return Kernel(
        name=name,
        variant=variant,
        language=Language.TORCH,
        protocol=Protocol.LIBRARY,
        launch=launch,
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=supports,
        deterministic=False,
        roundings=lambda config: 2,  # torch rounds before the activation
        workspace_bytes=lambda problem, config: None,
        launches=None,
        arguments=_arguments,
        note=note,
        on_request=True,
    )


_LINEAR = {language.value: _Linear(language) for language in LANGUAGES}
KERNELS = (
    _kernel("functional_linear", "", _functional_linear, _torch_supports),
    *(_kernel("linear", variant, launch, supports, launch.note) for variant, launch in _LINEAR.items()),
)
