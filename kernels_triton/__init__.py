"""The Triton side. `KERNELS` is the explicit list of every variant of every kernel file."""

from kernels_triton import interpreter

interpreter.install_if_interpreting()

from kernels_triton import decompose_k, semaphore  # noqa: E402  (the kernels are compiled or interpreted as they are imported)

KERNELS = (*decompose_k.KERNELS, *semaphore.KERNELS)

# Kernel files of the tilus side without a twin here, and why.
NO_TWIN: dict[str, str] = {}
