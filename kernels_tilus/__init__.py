"""The tilus side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_tilus import decompose_k, semaphore

KERNELS = (*decompose_k.KERNELS, *semaphore.KERNELS)

# Kernel files of the triton side without a twin here, and why.
NO_TWIN: dict[str, str] = {}
