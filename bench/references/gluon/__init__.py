"""The split-K product in Gluon, the explicit language within Triton: roles of warps, stages, barriers, layouts.

    gluon/decompose_k   fp32 partials, summed by the second launch of triton/decompose_k.vector_pdl
    gluon/cluster       the splits of a tile push their partials into each other's shared memory

They take part on request, beside the kernels of both languages, under the same search and clock: explicit against
explicit. notes/explicit.md holds them beside tilus, Triton and TLX, step by step.
"""

from triton_vs_tilus import kernels_triton  # noqa: F401 - settles first whether kernels are compiled or interpreted
from triton_vs_tilus.bench.references.gluon import cluster, decompose_k

__all__ = ["KERNELS"]

KERNELS = (decompose_k.KERNEL, cluster.KERNEL)
