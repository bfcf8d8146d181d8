"""OR over the last axis of an integer tensor: the problem, the config of its kernels, what launchers accept."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from triton_vs_tilus.common.call import Posed, cached_launch
from triton_vs_tilus.common.checks import check_apart, check_plain, check_tensors
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.plan import WIDEST, Slot, alignment
from triton_vs_tilus.common.problem import Problem, short_dtype
from triton_vs_tilus.common.space import MULTIPROCESSORS

__all__ = [
    "BYTES_PER_THREAD",
    "CONTROLS",
    "DTYPES",
    "LARGEST_K",
    "MOST_WARPS",
    "PROGRAMS",
    "ROWS_PER_THREAD",
    "SMALLEST_BLOCK",
    "THREAD_A_ROW",
    "WARPS",
    "WIDEST_LOAD",
    "OrReduce",
    "OrReduceConfig",
    "OrReduceInputs",
    "OrReducePlaces",
    "contiguous",
    "default_config",
    "launched",
    "or_reduce_problem",
    "padded",
    "row_bytes",
    "row_stride",
    "unsupported",
    "wanted",
]

DTYPES = (torch.int32, torch.int64)
LARGEST_K = 64


class OrReduceInputs(NamedTuple):
    """a [M, N, K], contiguous, of the problem's dtype."""

    a: Tensor


@dataclass(frozen=True)
class OrReduce(Problem):
    """Y[M, N] = OR over k of A[M, N, k], bit by bit; K is 1 to 64.

    constant: every element of A is the same. A kernel may then make A on the chip from one element of it; its time is
    then that of the reduction and the store.
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
        """The number of outputs; the kernels see A as [rows, K]."""
        return self.m * self.n

    @property
    def out_shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def out_dtype(self) -> torch.dtype:
        return self.dtype

    @property
    def flops(self) -> int:
        """The number of ORs of two elements."""
        return self.rows * (self.k - 1)

    @property
    def least_bytes(self) -> int:
        """A is read once (one element of it where it is constant), Y is written once."""
        return ((1 if self.constant else self.rows * self.k) + self.rows) * self.dtype.itemsize

    def inputs(self, device: torch.device | str, seed: int = 0) -> OrReduceInputs:
        """The AND of about log2(K) random tensors, so that half of Y's bits are set, and each k counts.

        The numbers are drawn on the CPU, so that they are the same on every device.
        """
        generator = torch.Generator().manual_seed(seed)
        limits = torch.iinfo(self.dtype)
        shape = (1,) if self.constant else (self.rows * self.k,)
        drawn = torch.randint(limits.min, limits.max, shape, dtype=self.dtype, generator=generator).to(device)
        if self.constant:
            return OrReduceInputs(drawn.expand(self.m, self.n, self.k).contiguous())
        a = drawn.clone()
        for shift in range(1, (self.k - 1).bit_length()):  # one draw, shifted against itself
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


# Variants, of either language, in which a thread reads whole rows of A; in the others the threads of a warp share them.
THREAD_A_ROW = frozenset(("fold", "unrolled", "generated"))
# Variants that make A on the chip from one element of it, and so are right for a constant A alone.
CONTROLS = frozenset(("control_reduce", "control_unrolled"))


@dataclass(frozen=True)
class OrReduceConfig:
    """bytes_per_thread: of A that a thread reads, with rows counted as `row_bytes`; num_warps: of a block.

    Both are powers of two. Bytes and not rows, so that a config found for one K and dtype suits another.
    """

    bytes_per_thread: int
    num_warps: int

    def __str__(self) -> str:
        return f"{self.bytes_per_thread} B a thread w{self.num_warps}"

    def block(self, problem: OrReduce, variant: str) -> int:
        """Outputs that a block of threads computes; 1 a thread or more where a thread reads whole rows."""
        threads = 32 * self.num_warps
        least = threads if variant in THREAD_A_ROW else 1
        return max(least, threads * self.bytes_per_thread // row_bytes(problem))


WARPS = (1, 2, 4, 8)
MOST_WARPS = 32  # of a block
WIDEST_LOAD = 16  # bytes
BYTES_PER_THREAD = (16, 32, 64, 128, 256)
ROWS_PER_THREAD = (1, 2, 4)
SMALLEST_BLOCK = 8
PROGRAMS = 2 * MULTIPROCESSORS


def wanted(problem: OrReduce, variant: str) -> list[OrReduceConfig]:
    """The configs that a search should try, in both languages: 1 to 8 warps, with 1, 2 or 4 rows a thread where a
    thread reads whole rows, else with 16 to 256 bytes a thread."""
    counts: tuple[int, ...] = BYTES_PER_THREAD
    if variant in THREAD_A_ROW:
        counts = tuple(rows * row_bytes(problem) for rows in ROWS_PER_THREAD)
    configs = [OrReduceConfig(count, num_warps) for num_warps in WARPS for count in counts]
    return [config for config in configs if config.block(problem, variant) >= SMALLEST_BLOCK]


def default_config(problem: OrReduce, variant: str) -> OrReduceConfig:
    """4 warps, and up to 128 bytes a thread while every multiprocessor has two blocks.

    Fewer blocks take less time to be handed out; the smallest problems have few.
    """
    by_bytes = [config for config in wanted(problem, variant) if config.num_warps == 4]
    enough = [
        config
        for config in by_bytes
        if config.bytes_per_thread <= 128
        if config.block(problem, variant) * PROGRAMS <= problem.rows
    ]
    return enough[-1] if enough else by_bytes[0]


def unsupported(config: OrReduceConfig, variant: str) -> str | None:
    """None, or why the config is refused in both languages: layouts are made of powers of two, and threads that share
    rows read 16 bytes or more."""
    least = 1 if variant in THREAD_A_ROW else WIDEST_LOAD
    if config.bytes_per_thread < least or config.bytes_per_thread & (config.bytes_per_thread - 1):
        return f"bytes_per_thread is {config.bytes_per_thread}; accepted: a power of two, {least} or more"
    if config.num_warps > MOST_WARPS or config.num_warps & (config.num_warps - 1):
        return f"num_warps is {config.num_warps}; accepted: a power of two, {MOST_WARPS} or less"
    return None


def row_bytes(problem: OrReduce) -> int:
    """Bytes of a row of A, with its elements counted up to a power of two."""
    return padded(problem.k) * problem.dtype.itemsize


def padded(k: int) -> int:
    """The smallest power of two that is k or more."""
    return 1 << (k - 1).bit_length()


def or_reduce_problem(a: Tensor, out: Tensor | None) -> OrReduce:
    """The problem that a launcher's arguments pose.

    Accepted: a [M, N, K] int32 or int64, K 1 to 64, contiguous along K, the rows [M * N] one stride apart (all of a
    contiguous tensor, or its first elements along K); out [M, N], contiguous, of that dtype and device.

    Raises TypeError for what is not a tensor or not of an accepted dtype; ValueError for the rest.
    """
    check_tensors(a=a, out=out)
    check_plain(a=a, out=out)
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
    """Elements from one row [K] of `a` [M, N, K] to the next; None where strides differ or rows overlap."""
    m, n, k = a.shape
    stride_m, stride_n, _ = a.stride()
    stride = stride_n if n > 1 else stride_m if m > 1 else k
    uniform = m == 1 or n == 1 or stride_m == n * stride_n
    return stride if uniform and stride >= k else None


class OrReducePlaces(NamedTuple):
    """stride: of A's rows [K], in elements; alignments of addresses in bytes, WIDEST at most."""

    stride: int
    align_a: int = WIDEST
    align_c: int = WIDEST

    def alignment_of(self, slot: Slot) -> int:
        return {Slot.A: self.align_a, Slot.C: self.align_c}[slot]


def contiguous(problem: OrReduce) -> OrReducePlaces:
    """Of tensors as torch allocates them."""
    return OrReducePlaces(problem.k)


def launched(kernel: Kernel, a: Tensor, out: Tensor | None, config: OrReduceConfig | None) -> Tensor:
    """Y. Raises as `or_reduce_problem` and common.call.cached_launch."""

    def pose() -> Posed:
        problem = replace(or_reduce_problem(a, out), constant=kernel.variant in CONTROLS)
        return problem, OrReducePlaces(row_stride(a) or 0, alignment(a), alignment(out))

    return cached_launch(kernel, pose, {"a": a}, out, config)
