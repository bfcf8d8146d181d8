"""The Triton side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_triton import interpreter

interpreter.install_if_interpreting()

from kernels_triton import (  # noqa: E402  (the kernels are compiled or interpreted as they are imported)
    atomic,
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
    *or_reduce.KERNELS,
    *w4a16.KERNELS,
)

# Kernel files of the tilus side without a twin here, and why.
NO_TWIN = {
    "cluster": "Triton 3.6 and 3.7 sum within a block alone: nothing they compile reads a peer's shared memory",
}
