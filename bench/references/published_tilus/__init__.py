"""Kernels of the sources that this project grew from, in tilus; see published_triton."""

from triton_vs_tilus.bench.references.published_tilus import matmul

__all__ = ["KERNELS"]

KERNELS = (*matmul.KERNELS,)
