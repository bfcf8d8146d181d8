"""A launch that does nothing. Behind a product it takes at least the time of the boundary between two launches; one
that needs more registers, shared memory or code may start later.

In each language, of as many blocks and warps as the launch whose place it takes, and dependent where that is.
"""

from functools import lru_cache

import tilus
import triton
import triton.language as tl
from tilus import int32, void_p
from tilus.utils import cdiv

from triton_vs_tilus.common.kernel import Config, Kernel, Language
from triton_vs_tilus.common.plan import Launch, Slot
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.kernels_tilus.dependent_launch import after_kernel_before


@triton.jit
def _nothing_kernel(partials_ptr, PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_wait()


class Nothing(tilus.Script):
    def __init__(self, num_warps: int, pdl: bool):
        super().__init__()
        self.num_warps = num_warps
        self.pdl = pdl

    def __call__(self, partials_ptr: void_p, blocks_m: int32, blocks_n: int32):
        self.attrs.blocks = [blocks_m, blocks_n]
        self.attrs.warps = self.num_warps
        if self.pdl:
            written: void_p = after_kernel_before(partials_ptr)  # noqa: F841 - the wait is what is wanted


@lru_cache(maxsize=64)
def _script(num_warps: int, pdl: bool) -> Nothing:
    return Nothing(num_warps, pdl)


def in_place_of(meeting: Launch, kernel: Kernel, problem: Matmul, config: Config) -> Launch:
    """Of the second launch of a decompose_k that has the vector reducer."""
    if kernel.language is Language.TRITON:
        options = {name: meeting.options[name] for name in ("PDL", "num_warps", "launch_pdl")}
        return Launch(_nothing_kernel, (Slot.SCRATCH,), meeting.grid, options)
    blocks = cdiv(problem.m, config.reduce_rows), cdiv(problem.n, config.reduce_block)
    return Launch(_script(config.reduce_warps, kernel.variant == "vector_pdl"), (Slot.SCRATCH, *blocks))
