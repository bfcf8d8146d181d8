"""The Triton side. `KERNELS` is the explicit list of every variant of every kernel file."""

from triton_vs_tilus.kernels_triton import interpreter

interpreter.install_if_interpreting()

from triton_vs_tilus.common import compilers  # noqa: E402
from triton_vs_tilus.common.kernel import Language  # noqa: E402
from triton_vs_tilus.common.linear import operators  # noqa: E402
from triton_vs_tilus.kernels_triton import (  # noqa: E402  (the kernels are compiled or interpreted as they are imported)
    atomic,
    cluster,
    data_parallel,
    decompose_k,
    last_arriver,
    or_reduce,
    semaphore,
    sliced_k,
    stream_k,
    w4a16,
)

__all__ = ["KERNELS", "NO_TWIN", "explain", "linear", "matmul", "prepare"]

KERNELS = (
    *data_parallel.KERNELS,
    *sliced_k.KERNELS,
    *decompose_k.KERNELS,
    *semaphore.KERNELS,
    atomic.KERNEL,
    last_arriver.KERNEL,
    stream_k.KERNEL,
    cluster.KERNEL,
    *or_reduce.KERNELS,
    *w4a16.KERNELS,
)

# Kernel files of the tilus side without a twin here, and why.
NO_TWIN: dict[str, str] = {}

linear, matmul, explain, prepare = operators(Language.TRITON, KERNELS, compilers.triton_lacks)
