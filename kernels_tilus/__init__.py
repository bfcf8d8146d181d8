"""The tilus side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_tilus import cluster, decompose_k, or_reduce, semaphore

KERNELS = (*decompose_k.KERNELS, *semaphore.KERNELS, *cluster.KERNELS)
OR_REDUCE_KERNELS = or_reduce.KERNELS

# Kernel files of the triton side without a twin here, and why.
NO_TWIN: dict[str, str] = {}
