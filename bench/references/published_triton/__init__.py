"""Kernels of the sources that this project grew from, in Triton: their tile, their space, their schedule.

Written anew from what their documents say; notes/as_published.md has what was decided where they are silent. They take
part on request, beside the kernels of this project, under the same clock.
"""

from triton_vs_tilus import kernels_triton  # noqa: F401 - settles first whether kernels are compiled or interpreted
from triton_vs_tilus.bench.references.published_triton import (
    decompose_k,
    kernelllm,
    makora,
    matmul,
    or_reduce,
    template,
    w4a16,
)

__all__ = ["KERNELS"]

KERNELS = (
    *decompose_k.KERNELS,
    matmul.KERNEL,
    makora.KERNEL,
    kernelllm.KERNEL,
    *or_reduce.KERNELS,
    template.KERNEL,
    *w4a16.KERNELS,
)
