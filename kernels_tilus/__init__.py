"""The tilus side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_tilus import semaphore

KERNELS = (*semaphore.KERNELS,)

# Kernel files of the Triton side without a twin here, and why.
NO_TWIN = {"decompose_k": "not yet written in tilus"}
