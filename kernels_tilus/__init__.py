"""The tilus side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_tilus import (
    atomic,
    cluster,
    decompose_k,
    in_block,
    last_arriver,
    or_reduce,
    semaphore,
    stream_k,
    tiled,
    w4a16,
)

KERNELS = (
    tiled.KERNEL,
    *in_block.KERNELS,
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
# stands the package interpreter, as tilus brings none to mend.
NO_TWIN: dict[str, str] = {}
