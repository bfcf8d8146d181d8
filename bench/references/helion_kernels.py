"""The Helion kernels of helion_matmul, in a file of their own: Helion wants a module's globals around a kernel, and
only whoever runs them needs Helion.

finish(x) is the epilogue of the whole sum, in fp32, one of FINISH.
"""

import logging
from collections.abc import Callable

import helion
import helion.language as hl
import torch
from helion.autotuner import PowerOfTwoFragment
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bench.tuning import BUDGETS
from common.epilogue import Epilogue

logging.getLogger("helion").setLevel(logging.WARNING)

# As functions, which Helion traces into the kernel.
FINISH = {
    Epilogue.NONE: lambda x: x,
    Epilogue.RELU: lambda x: torch.relu(x),
    Epilogue.SILU: lambda x: torch.nn.functional.silu(x),
    Epilogue.SIGMOID: lambda x: torch.sigmoid(x),
}


def close(actual: object, expected: object) -> None:
    """What Helion asks of every config before it times it, of what a kernel returns and of its arguments; its own
    check does not take a function among them. Raises AssertionError."""
    for ours, theirs in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        if isinstance(ours, Tensor):
            torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)


searched = helion.kernel(
    static_shapes=True,
    dot_precision="ieee",
    autotune_baseline_accuracy_check_fn=close,
    autotune_effort="quick",
    autotune_budget_seconds=int(BUDGETS["quick"].seconds),
    autotune_progress_bar=False,
)


@searched
def matmul(a: Tensor, b: Tensor, out: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
    m, k = a.size()
    n = b.size(1)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
        out[tile_m, tile_n] = finish(acc).to(out.dtype)
    return out


@searched
def split_k(a: Tensor, b: Tensor, out: Tensor, finish: Callable[[Tensor], Tensor]) -> Tensor:
    m, k = a.size()
    n = b.size(1)
    splits = hl.register_tunable("split_k", PowerOfTwoFragment(2, 256, 16))
    band = helion.next_power_of_2(helion.cdiv(k, splits))
    bands = helion.cdiv(k, band)
    partials = torch.empty([bands, m, n], dtype=torch.float32, device=a.device)
    for tile_m, tile_n, tile_band in hl.tile([m, n, k], block_size=[None, None, band]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(tile_band.begin, tile_band.end):
            acc = torch.addmm(acc, a[tile_m, tile_k], b[tile_k, tile_n])
        partials[tile_band.id, tile_m, tile_n] = acc
    hl.barrier()
    for tile_m, tile_n in hl.tile([m, n]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_s in hl.tile(bands):
            total += torch.sum(partials[tile_s, tile_m, tile_n], 0)
        out[tile_m, tile_n] = finish(total).to(out.dtype)
    return out
