"""OR over the last axis of an integer tensor: the problem, the config of its kernels, what launchers accept."""

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from common.checks import check_apart
from common.problem import Problem, short_dtype

DTYPES = (torch.int32, torch.int64)
LARGEST_K = 64


class OrReduceInputs(NamedTuple):
    """a [M, N, K], contiguous, of the problem's dtype."""

    a: Tensor


@dataclass(frozen=True)
class OrReduce(Problem):
    """Y[M, N] = OR over k of A[M, N, k], bit by bit; K is 1 to 64.

    constant: every element of A is the same. A kernel may then make A on the chip from one element of it, and what
    is left of its time is the reduction and the store.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.int64
    constant: bool = False

    op: ClassVar[str] = "or_reduce"
    run_time: ClassVar[frozenset[str]] = frozenset(("m", "n"))

    @property
    def name(self) -> str:
        """Unique among problems, e.g. 'or-2048x4096x16-int64'."""
        return "-".join(["or", f"{self.m}x{self.n}x{self.k}", short_dtype(self.dtype), *["constant"] * self.constant])

    @property
    def rows(self) -> int:
        """The outputs: A is [rows, K] to the kernels."""
        return self.m * self.n

    @property
    def out_shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def out_dtype(self) -> torch.dtype:
        return self.dtype

    @property
    def flops(self) -> int:
        """ORs of two elements."""
        return self.rows * (self.k - 1)

    @property
    def least_bytes(self) -> int:
        """A read once (of a constant one a single element) and Y written once."""
        return ((1 if self.constant else self.rows * self.k) + self.rows) * self.dtype.itemsize

    def inputs(self, device: torch.device | str, seed: int = 0) -> OrReduceInputs:
        """Bits set so rarely that an element of Y has about as many set as not, and each k counts: the AND of
        about log2(K) random tensors. Drawn on the CPU: the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        limits = torch.iinfo(self.dtype)
        shape = (1,) if self.constant else (self.rows * self.k,)
        drawn = torch.randint(limits.min, limits.max, shape, dtype=self.dtype, generator=generator).to(device)
        if self.constant:
            return OrReduceInputs(drawn.expand(self.m, self.n, self.k).contiguous())
        a = drawn.clone()
        for shift in range(1, (self.k - 1).bit_length()):  # shifted against itself: one draw serves for all
            a &= drawn.roll(shift)
        return OrReduceInputs(a.view(self.m, self.n, self.k))

    def arguments(self, inputs: OrReduceInputs) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        return (inputs.a,), {}

    def operands(self, inputs: OrReduceInputs) -> list[Tensor]:
        return [inputs.a[0, 0, :1] if self.constant else inputs.a]

    def reference(self, inputs: OrReduceInputs) -> Tensor:
        """[M, N], exact: a loop of bitwise_or, as torch has no such reduction."""
        return reduce(torch.bitwise_or, inputs.a.unbind(dim=-1))

    def torch_answer(self, inputs: OrReduceInputs) -> Tensor:
        return self.reference(inputs)


@dataclass(frozen=True)
class OrReduceConfig:
    """bytes_per_thread: of A that a thread reads, a power of two, rows counted as `row_bytes`; num_warps: of a block.

    Bytes rather than rows, so that what was found for one K and dtype suits another.
    """

    bytes_per_thread: int
    num_warps: int

    def __str__(self) -> str:
        return f"{self.bytes_per_thread} B a thread w{self.num_warps}"

    def block(self, problem: OrReduce, *, thread_a_row: bool) -> int:
        """Outputs that a block of threads computes. thread_a_row: a thread reads whole rows of A, one at least."""
        threads = 32 * self.num_warps
        return max(threads if thread_a_row else 1, threads * self.bytes_per_thread // row_bytes(problem))


WARPS = (1, 2, 4, 8)
WIDEST_LOAD = 16  # bytes
BYTES_PER_THREAD = (16, 32, 64, 128, 256)
SMALLEST_BLOCK = 8
PROGRAMS = 264  # two on each of Hopper's 132 multiprocessors


def space(problem: OrReduce, *, thread_a_row: bool) -> list[OrReduceConfig]:
    """thread_a_row: a thread reads whole rows of A, one, two or four; else the threads of a warp share them, and each
    reads 16 to 256 bytes."""
    counts = [rows * row_bytes(problem) for rows in (1, 2, 4)] if thread_a_row else BYTES_PER_THREAD
    configs = [OrReduceConfig(count, num_warps) for num_warps in WARPS for count in counts]
    return [config for config in configs if config.block(problem, thread_a_row=thread_a_row) >= SMALLEST_BLOCK]


def default_config(problem: OrReduce, *, thread_a_row: bool) -> OrReduceConfig:
    """Four warps, and of 128 bytes a thread as many as leave two blocks for every multiprocessor: blocks cost time to
    be handed out, and the smallest problems have few."""
    by_bytes = [config for config in space(problem, thread_a_row=thread_a_row) if config.num_warps == 4]
    enough = [
        config
        for config in by_bytes
        if config.bytes_per_thread <= 128
        if config.block(problem, thread_a_row=thread_a_row) * PROGRAMS <= problem.rows
    ]
    return enough[-1] if enough else by_bytes[0]


def supports_config(config: OrReduceConfig, *, thread_a_row: bool) -> str | None:
    """Powers of two, which is what blocks and layouts are made of; a load at least, where rows are shared."""
    least = 1 if thread_a_row else WIDEST_LOAD
    if config.bytes_per_thread < least or config.bytes_per_thread & (config.bytes_per_thread - 1):
        return f"bytes_per_thread is {config.bytes_per_thread}; accepted: a power of two, {least} or more"
    return None


def row_bytes(problem: OrReduce) -> int:
    """Of a row of A, filled up to a power of two elements."""
    return padded(problem.k) * problem.dtype.itemsize


def padded(k: int) -> int:
    """The least power of two that is not below k."""
    return 1 << (k - 1).bit_length()


def or_reduce_problem(a: Tensor, out: Tensor | None) -> OrReduce:
    """The problem that a launcher's arguments pose.

    Accepted: a [M, N, K] int32 or int64, K 1 to 64, contiguous along K, the rows [M * N] one stride apart (all of a
    contiguous tensor, or its first elements along K); out [M, N], contiguous, of that dtype and device.

    Raises TypeError for what is not a tensor or not of an accepted dtype; ValueError for the rest.
    """
    for name, tensor in (("a", a), ("out", out)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "out"):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: torch.Tensor")
    if a.dtype not in DTYPES:
        raise TypeError(f"a has dtype {a.dtype}; accepted: {', '.join(map(str, DTYPES))}")
    if a.dim() != 3 or 0 in a.shape or a.shape[2] > LARGEST_K:
        raise ValueError(f"a has shape {tuple(a.shape)}; accepted: (M, N, K), none of them 0, K up to {LARGEST_K}")
    m, n, k = a.shape
    if (k > 1 and a.stride(2) != 1) or row_stride(a) is None:
        raise ValueError(
            f"a has strides {a.stride()}; accepted: (N * row, row, 1), rows of {k} elements that do not overlap"
        )
    if out is not None:
        if tuple(out.shape) != (m, n) or not out.is_contiguous():
            raise ValueError(
                f"out has shape {tuple(out.shape)}, strides {out.stride()}; accepted: ({m}, {n}), contiguous"
            )
        if out.dtype is not a.dtype:
            raise TypeError(f"out has dtype {out.dtype}; accepted: that of a, {a.dtype}")
        if out.device != a.device:
            raise ValueError(f"out is on {out.device}; accepted: the device of a, {a.device}")
    check_apart(out, a=a)
    return OrReduce(m, n, k, a.dtype)


def row_stride(a: Tensor) -> int | None:
    """Elements from one row [K] of `a` [M, N, K] to the next, or None where it is not one for all, or rows overlap."""
    m, n, k = a.shape
    stride_m, stride_n, _ = a.stride()
    stride = stride_n if n > 1 else stride_m if m > 1 else k
    uniform = m == 1 or n == 1 or stride_m == n * stride_n
    return stride if uniform and stride >= k else None
