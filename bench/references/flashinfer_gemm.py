"""FlashInfer's other products of few rows in bf16, launched with FlashInfer's defaults.

tinygemm  C = A @ B, fed by TMA, mma.sync; made for 1 to 8 rows, Hopper and later. CUDA C++ after TensorRT-LLM's
          tinygemm2, compiled with nvcc at the first call
cute_dsl  C = A @ B in CuTe DSL, direct or split along K; for GPUs of the SM100 family alone

Source: flashinfer.gemm.tinygemm_bf16, and flashinfer.gemm.mm_bf16 with the backend 'cute-dsl'.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench.rows.environment import not_installed, version
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol

UNITS = (64, 16)  # K and N are multiples of, for tinygemm
CUTE_DSL_CAPABILITY = 10  # major


def _function(name: str) -> Any:
    import flashinfer.gemm

    function = getattr(flashinfer.gemm, name, None)
    if function is None:
        raise NotImplementedError(f"flashinfer {version('flashinfer-python')} has no {name}")
    return function


def _tinygemm(a: Tensor, b: Tensor, out: Tensor) -> None:
    _function("tinygemm_bf16")(a, b.T, out)


def _cute_dsl(a: Tensor, b: Tensor, out: Tensor) -> None:
    _function("mm_bf16")(a, b, out=out, out_dtype=out.dtype, backend="cute-dsl")


def _refused_by_both(problem: Matmul) -> str | None:
    if problem.layout is not Layout.NK or problem.epilogue is not Epilogue.NONE:
        return "it takes B stored [N, K] alone, without an epilogue"
    if {problem.dtype, problem.out_dtype} != {torch.bfloat16}:
        return f"it takes and returns bf16 alone, not {problem.dtype} and {problem.out_dtype}"
    return None


def _not_installed() -> str | None:
    return not_installed("flashinfer-python", "flashinfer")


def supports_tinygemm(problem: Matmul, config: None = None) -> str | None:
    if problem.k % UNITS[0] or problem.n % UNITS[1]:
        return f"K = {problem.k} and N = {problem.n}; accepted: multiples of {UNITS[0]} and of {UNITS[1]}"
    return _refused_by_both(problem) or _not_installed()


def supports_cute_dsl(problem: Matmul, config: None = None) -> str | None:
    """Where no package would help, it says so first."""
    if reason := _refused_by_both(problem):
        return reason
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else ()
    if capability[:1] != (CUTE_DSL_CAPABILITY,):
        here = ".".join(map(str, capability)) or "none, as there is no CUDA device"
        return (
            f"FlashInfer's product of bf16 in CuTe DSL is for the SM100 family alone; compute capability here: {here}"
        )
    return _not_installed()


def _launcher(
    run: Callable[[Tensor, Tensor, Tensor], None], supports: Callable[[Matmul], str | None]
) -> Callable[..., Tensor]:
    def matmul(
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: None = None,
    ) -> Tensor:
        """C [M, N] = a [M, K] @ b [K, N]; see common.checks.matmul_problem for what is accepted and raised. Raises
        NotImplementedError for what `supports` refuses, or where the installed FlashInfer has no such function."""
        problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
        if reason := supports(problem):
            raise NotImplementedError(reason)
        if out is None:
            out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
        run(a, b, out)
        return out

    return matmul


def _kernel(
    name: str, run: Callable[[Tensor, Tensor, Tensor], None], supports: Callable[..., str | None], protocol: Protocol
) -> Kernel:
    return Kernel(
        name=name,
        variant="",
        language=Language.FLASHINFER,
        protocol=protocol,
        launch=_launcher(run, supports),
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=supports,
        deterministic=False,  # not claimed
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=lambda: f"flashinfer {version('flashinfer-python')}",
        on_request=True,
    )


# The warps of a block of tinygemm share K.
KERNELS = (
    _kernel("tinygemm", _tinygemm, supports_tinygemm, Protocol.SLICED_K),
    _kernel("cute_dsl", _cute_dsl, supports_cute_dsl, Protocol.UNKNOWN),
)
