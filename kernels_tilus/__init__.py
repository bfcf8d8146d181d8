"""The tilus side. `KERNELS` is the explicit list of every variant of every kernel file."""

try:
    import tilus  # noqa: F401 - before the kernels, which import it, too
except FileNotFoundError as error:
    reason = f"tilus runs {error.filename} as it is imported: not found on PATH"
    raise ImportError(reason, name=__name__) from error  # by this name `python -m` makes it one line

from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.linear import operators
from triton_vs_tilus.kernels_tilus import (
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

# Kernel files of the triton side without a twin here, and why. Its interpreter.py is no kernel file; in its place
# stands the package interpreter, as tilus brings none to mend. Nor is its starting.py, which calls Triton's launcher
# with descriptors that it keeps: a program of tilus has a launch function that takes tensors, and encodes its own.
NO_TWIN: dict[str, str] = {}

linear, matmul, explain, prepare = operators(Language.TILUS, KERNELS, compilers.tilus_lacks)
