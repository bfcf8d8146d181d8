"""What every tilus launcher needs around its Script: copy widths, the pool's conditions, the interpreter, a build."""

from functools import lru_cache

import torch
from torch import Tensor

from common.problem import Layout, Matmul

COPY_WIDTHS = (8, 4, 2)  # elements of a half-precision cp.async: 16, 8 or 4 bytes


@lru_cache(maxsize=1024)
def warps_cover(block_m: int, block_n: int, num_warps: int) -> bool:
    """Whether the warps can be laid out over the 16x8 products of a tile, each with as many."""
    rows, columns = block_m // 16, block_n // 8
    return any(
        num_warps % w == 0 and rows % w == 0 and columns % (num_warps // w) == 0 for w in range(1, num_warps + 1)
    )


def vectors(
    problem: Matmul, a: Tensor | None = None, stored_b: Tensor | None = None, out: Tensor | None = None
) -> tuple[int, int, int]:
    """Elements that one access may move: along K (of A, and of B stored [N, K]), along N, and of C.

    The last is 2 or 1, what a thread of an mma holds side by side, or 0 for an `out` without unit stride along N.
    Without tensors, those of contiguous ones are meant. Raises ValueError where an operand's rows are not aligned
    to the 4 bytes that cp.async copies at least.
    """
    along_k, along_n = [problem.k], [problem.n]
    beside_b = along_k if problem.layout is Layout.NK else along_n
    if a is not None:
        along_k += [a.stride(0), a.data_ptr() // a.itemsize]
        beside_b += [stored_b.stride(0), stored_b.data_ptr() // stored_b.itemsize]
    vector_k = _widest(along_k)
    if vector_k == 1:
        raise ValueError(
            f"a or b: extent, row stride and address along K in elements are {along_k}; accepted: even ones"
        )
    vector_n = _widest(along_n)
    if vector_n == 1 and problem.layout is Layout.KN:
        raise ValueError(f"b: extent, row stride and address along N in elements are {along_n}; accepted: even ones")
    if out is None:
        return vector_k, vector_n, 2 if problem.n % 2 == 0 else 1
    if out.stride(1) != 1:
        return vector_k, vector_n, 0
    pairs = problem.n % 2 == 0 and out.stride(0) % 2 == 0 and out.data_ptr() % (2 * out.itemsize) == 0
    return vector_k, vector_n, 2 if pairs else 1


def _widest(extents: list[int]) -> int:
    return next((width for width in COPY_WIDTHS if all(extent % width == 0 for extent in extents)), 1)


def may_use_pool(device: torch.device) -> bool:
    """Whether a launch may take memory from tilus' pool of global tensors: it is shared by all streams, so only on
    the default one, and it may have to grow, so not while a graph is captured."""
    if device.type == "cpu":
        return True
    stream = torch.cuda.current_stream(device)
    return stream == torch.cuda.default_stream(device) and not torch.cuda.is_current_stream_capturing()


def launch(script, *args) -> None:
    """Runs an instantiated Script on the device of its first tensor: on a GPU, or in the interpreter.

    args: what its __call__ takes; None for a tensor that this build does not read.
    """
    if args[0].device.type == "cpu":
        from kernels_tilus import interpreter

        interpreter.run(script, *args)
    else:
        with torch.cuda.device(args[0].device):
            script(*(0 if arg is None else arg for arg in args))


def build(script) -> None:
    """Compiles an instantiated Script for the current target into tilus' cache, without launching it.

    Raises RuntimeError with the compiler's words.
    """
    arguments = [1] * len(script.params.param_names)
    script._jit_instance_for(*arguments)._build_programs()
