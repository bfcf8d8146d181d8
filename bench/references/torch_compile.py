"""torch.compile of the product and its epilogue, for every problem anew.

    C = epilogue(torch.mm(A, B), bias)

default                      Inductor's choice without a search: a library's product, a generated epilogue
max_autotune                 Inductor's search over library, Triton templates and decompose-K; replayed as a CUDA graph
max_autotune_parameter       the same with the weight as a module's parameter: its address is the graph's, and it is
                             not copied; a graph is recorded for each weight
max_autotune_no_cudagraphs   the same search, launched call by call
max_autotune_profiled        likewise, but candidates are timed on the GPU's own timeline. By default events around a
                             call time them, which count the host's part, too, where a call takes the host longer than
                             clearing L2 before it takes the GPU
decompose_k                  like max_autotune_no_cudagraphs, with decompose-K in place of Triton's templates at every
                             K: Inductor offers it only where K >= 32 M and K >= 32 N, so never for a router of 256
                             experts and K = 7168
triton_templates             the same search over Triton's templates alone, as in the kernel-generation study: without
                             library, and without decompose-K, which replaces them where K is deep

A row says what was generated: the calls in their order, and decompose-K's split where it was chosen.

C is returned in the compiler's own memory, as a user of torch.compile gets it: a copy into a given output would charge
the compiler with a launch that nobody asked for. max_autotune's CUDA graph reads its operands from the graph's memory.
Each call copies A and B there, A alone where B is a parameter, and the copies are timed, as they are a part of such a
call. It cannot be captured in
another graph, so it has no warm time.

The ratio of 32 is Inductor's `triton.decompose_k_threshold`, which TORCHINDUCTOR_DECOMPOSE_K_THRESHOLD sets for a whole
process. Here it must hold for one contender only, so it is an option of that compilation. Inductor also caches by
(M, N, K) whether it offers decompose-K: these caches are cleared before and after.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from triton_vs_tilus.bench.references.compiling import AS_GRAPH, NO_CUDAGRAPHS, Compiled
from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, MatmulConfig
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol


def product(a: Tensor, b: Tensor, bias: Tensor | None, *, epilogue: Epilogue, out_dtype: torch.dtype) -> Tensor:
    wider: dict[str, Any] = {} if out_dtype is a.dtype else {"out_dtype": out_dtype}
    return epilogue.apply(torch.mm(a, b, **wider), bias)


@contextmanager
def _offers_forgotten() -> Iterator[None]:
    from torch._inductor.utils import get_k_splits, use_decompose_k_choice

    def forget() -> None:
        use_decompose_k_choice.cache_clear()
        get_k_splits.cache_clear()

    forget()
    try:
        yield
    finally:
        forget()


@contextmanager
def _timed_by_profiler() -> Iterator[None]:
    """Every candidate is timed by torch.profiler. Inductor's own option for it leaves a library's product to events.

    Inductor keeps the times of candidates, whichever clock they are of: none is taken from there, and none left.
    """
    from torch._inductor.codecache import PersistentCache
    from torch._inductor.runtime.benchmarking import benchmarker
    from torch._inductor.utils import do_bench_using_profiling

    def lookup(cache: Any, choices: Any, operator: Any, inputs: Any, benchmark: Any, *_: Any, **__: Any) -> Any:
        return benchmark(choices) if benchmark else {}

    def benchmark_gpu(call: Callable[[], Any], *_: Any, **__: Any) -> float:
        return do_bench_using_profiling(call)

    with patch.object(PersistentCache, "lookup", lookup), patch.object(benchmarker, "benchmark_gpu", benchmark_gpu):
        yield


def matmul(
    compiled: Compiled,
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), newly allocated. Accepts and raises what
    common.checks.matmul_problem does. Raises RuntimeError where its own CUDA graph would be captured in another."""
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    return compiled(problem, a, b, bias, epilogue=epilogue, out_dtype=problem.out_dtype)


def _as_parameters(a: Tensor, b: Tensor, bias: Tensor | None) -> None:
    """Tells the compiler that the addresses of B and bias stay, as those of a module's parameters do."""
    for tensor in (b, bias):
        if tensor is not None:
            torch._dynamo.mark_static_address(tensor, guard=False)


def _kernel(
    variant: str,
    mode: str,
    options: dict[str, Any] | None = None,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    supports: Callable[[Any, None], str | None] = lambda problem, config: None,
    parameter: bool = False,
) -> Kernel:
    function, marked = (product, _as_parameters) if parameter else (product, None)
    compiled = Compiled(function, mode, options, around, marked=marked)

    return Kernel(
        name="compile",
        variant=variant,
        language=Language.TORCH,
        protocol=Protocol.LIBRARY,
        launch=partial(matmul, compiled),
        config_type=MatmulConfig,
        default_config=lambda problem: None,
        build=None,
        supports=supports,
        deterministic=False,  # not claimed
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: None,
        launches=None,
        note=partial(compiled.note, "A") if parameter else compiled.note,
        on_request=True,
    )


def _offered(problem: Matmul, config: None = None) -> str | None:
    if problem.out_dtype is not problem.dtype:
        return "Inductor has no decompose-K for an output wider than the inputs"
    return None


def _on_a_gpu(problem: Matmul, config: None = None) -> str | None:
    return None if torch.cuda.is_available() else "Triton's templates need a CUDA device"


KERNELS = (
    _kernel("default", "default"),
    _kernel("max_autotune", AS_GRAPH),
    _kernel("max_autotune_parameter", AS_GRAPH, parameter=True),
    _kernel("max_autotune_no_cudagraphs", NO_CUDAGRAPHS),
    _kernel("max_autotune_profiled", NO_CUDAGRAPHS, around=_timed_by_profiler),
    _kernel("decompose_k", NO_CUDAGRAPHS, {"triton.decompose_k_threshold": 0}, _offers_forgotten, _offered),
    _kernel(
        "triton_templates",
        NO_CUDAGRAPHS,
        {"max_autotune_gemm_backends": "TRITON", "triton.num_decompose_k_splits": 0},
        _offers_forgotten,
        _on_a_gpu,
    ),
)
