"""A call of a kernel, worked out once for all calls of the same shapes, strides, dtypes and alignments.

A kernel file's `plan` says what is launched: with which grid and numbers, and which arguments are another tensor at
each call. `Call` launches it: it takes what a call needs anew (scratch memory, the stream's semaphores, a ticket) and
hands everything over to the compiled kernels. Nothing is checked there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.devices import on
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul, Problem

__all__ = [
    "WIDEST",
    "Backend",
    "Call",
    "Launch",
    "Load",
    "Placement",
    "Places",
    "Plan",
    "Run",
    "Slot",
    "alignment",
    "bias_slot",
    "contiguous",
    "placement_of",
]

WIDEST = 32  # bytes: 8 elements of fp32; no kernel is compiled for a larger alignment


class Slot(IntEnum):
    """An argument that is another one at each call."""

    A = 0
    B = 1  # [K, N] or [N, K], as it was given
    BIAS = 2
    TILES = 3  # the parts of a weight of 4 bits
    SCALES = 4
    MINUS_ZEROS = 5
    C = 6  # the output of any operation
    SCRATCH = 7  # fp32, of any content
    COUNTERS = 8  # int32, zero, the stream's own
    SUMS = 9  # fp32, zero, the stream's own
    TICKET = 10  # of workspace.next_ticket


class Places(Protocol):
    """How the tensors of a call of any operation lie in memory."""

    def alignment_of(self, slot: Slot) -> int:
        """Of a tensor's address, in bytes, WIDEST at most."""


class Placement(NamedTuple):
    """How the tensors of a call lie in memory: strides in elements, alignments of addresses in bytes, WIDEST at most.
    A dimension of size 1 of A or B has the stride that it would have if it were larger."""

    stride_am: int
    stride_bk: int
    stride_bn: int
    stride_cm: int
    stride_cn: int
    align_a: int = WIDEST
    align_b: int = WIDEST
    align_bias: int = WIDEST
    align_c: int = WIDEST

    def alignment_of(self, slot: Slot) -> int:
        return {Slot.A: self.align_a, Slot.B: self.align_b, Slot.BIAS: self.align_bias, Slot.C: self.align_c}[slot]

    @property
    def in_strides(self) -> tuple[int, int, int]:
        return self.stride_am, self.stride_bk, self.stride_bn

    @property
    def out_strides(self) -> tuple[int, int]:
        return self.stride_cm, self.stride_cn

    def out_is_contiguous(self, problem: Matmul) -> bool:
        return (problem.n == 1 or self.stride_cn == 1) and (problem.m == 1 or self.stride_cm == problem.n)


class Launch(NamedTuple):
    """One launch of a GPU kernel.

    kernel     a jit function of Triton, or an instantiated Script of tilus
    arguments  numbers, Slots, None for a tensor that this build does not read
    grid       of Triton; tilus' programs have their own
    options    of Triton: compile-time arguments and launch options
    described  of Triton: what makes the descriptor that stands for a Slot's tensor
    """

    kernel: Any
    arguments: tuple[Any, ...]
    grid: tuple[int, ...] = ()
    options: Mapping[str, Any] = {}
    described: Mapping[Slot, Callable[[Any], Any]] = {}


@dataclass(frozen=True)
class Plan:
    """What one call of a kernel launches.

    scratch   the shape of Slot.SCRATCH
    counters  of Slot.COUNTERS; sums: elements of Slot.SUMS
    unfused   the epilogue that torch applies in place afterwards
    read_as   of inputs that are read as another dtype than the problem's
    zeroed    the output is zeroed first
    """

    problem: Problem
    placement: Places
    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()
    counters: int = 0
    sums: int = 0
    unfused: Epilogue = Epilogue.NONE
    read_as: Mapping[Slot, torch.dtype] = field(default_factory=dict)
    zeroed: bool = False

    def dtype_of(self, slot: Slot) -> torch.dtype:
        """Of a tensor's slot."""
        if slot < Slot.C:
            return self.read_as.get(slot, self.problem.dtype)
        return self.problem.out_dtype if slot is Slot.C else _SCRATCH_DTYPE[slot]

    def alignment_of(self, slot: Slot) -> int:
        """Of a tensor's slot, in bytes. Memory of the project's own is aligned to WIDEST."""
        return self.placement.alignment_of(slot) if slot <= Slot.C else WIDEST


_SCRATCH_DTYPE = {Slot.SCRATCH: torch.float32, Slot.COUNTERS: torch.int32, Slot.SUMS: torch.float32}

# Launches a kernel on a stream, given by its handle, with the arguments of a Launch, Slots filled in.
Run = Callable[[int, tuple[Any, ...]], None]
# Compiles and loads a launch of a plan for the current device, or prepares its run in an interpreter for a CPU.
Load = Callable[[Launch, Plan, torch.device], Run]


@dataclass(frozen=True)
class Backend:
    """How a language launches.

    load  compiles what is in no cache, and loads it
    build compiles what is in no cache, and loads nothing that has to be on the GPU
    fit   a config of a matmul's tables, or the nearest to it that can take tensors that lie so
    cache where it keeps what is built on disk
    null  what stands for a tensor that a build does not read, on a GPU
    """

    load: Load
    build: Callable[[Plan], None]
    cache: Callable[[], str]
    fit: Callable[[Any, Any, Any], Any] = lambda problem, config, placement: config
    null: Any = None


def bias_slot(problem: Matmul) -> Slot | None:
    """The argument of kernels that take a bias where the epilogue has one."""
    return Slot.BIAS if problem.epilogue.has_bias else None


def contiguous(problem: Matmul) -> Placement:
    """Of tensors as torch allocates them."""
    nk = problem.layout is Layout.NK
    return Placement(problem.k, 1 if nk else problem.n, problem.k if nk else 1, problem.n, 1)


def placement_of(problem: Matmul, a: Tensor | None, b: Tensor, bias: Tensor | None, out: Tensor | None) -> Placement:
    """b: [K, N]. None: contiguous, as it is allocated; of a bias, none.

    torch leaves the stride of a dimension of size 1 open, and one that is not aligned would cost wide loads: it is
    given as if the dimension were larger.
    """
    own = contiguous(problem)
    stride_am = own.stride_am if problem.m == 1 or a is None else a.stride(0)
    if problem.layout is Layout.NK:
        stride_bk, stride_bn = 1, own.stride_bn if problem.n == 1 else b.stride(1)
    else:
        stride_bk, stride_bn = own.stride_bk if problem.k == 1 else b.stride(0), 1
    out_strides = own.out_strides if out is None else out.stride()
    return Placement(stride_am, stride_bk, stride_bn, *out_strides, *map(alignment, (a, b, bias, out)))


def alignment(tensor: Tensor | None) -> int:
    """Of its address, in bytes, WIDEST at most; WIDEST of one that is yet to be allocated."""
    return WIDEST if tensor is None else min(tensor.data_ptr() & -tensor.data_ptr() or WIDEST, WIDEST)


class Call:
    """A loaded plan. It may be called from several threads and on any stream of its device."""

    def __init__(self, plan: Plan, device: torch.device, backend: Backend):
        """Compiles what is in no cache, and loads; the first captured call finds its semaphores."""
        if plan.counters and not (device.type == "cuda" and workspace.is_capturing(device)):
            workspace.ready_for_capture(device)
        self.plan = plan
        self.shape = plan.problem.out_shape
        self.dtype = plan.problem.out_dtype
        self.device = device
        self._index = -1 if device.type == "cpu" else device.index
        null = None if device.type == "cpu" else backend.null
        # What launches are given: the slots, then all numbers.
        numbers: list[Any] = []
        self._launches: list[tuple[Run, Callable[[tuple[Any, ...]], tuple[Any, ...]]]] = []
        with on(device):
            for launch in plan.launches:
                places = []
                for argument in launch.arguments:
                    if not isinstance(argument, Slot):
                        numbers.append(null if argument is None else argument)
                        argument = len(Slot) + len(numbers) - 1
                    places.append(int(argument))
                self._launches.append((backend.load(launch, plan, device), itemgetter(*places)))
        self._numbers = tuple(numbers)

    def __call__(
        self,
        out: Tensor,
        a: Tensor,
        b: Tensor | None = None,
        bias: Tensor | None = None,
        tiles: Tensor | None = None,
        scales: Tensor | None = None,
        minus_zeros: Tensor | None = None,
    ) -> None:
        """Enqueues on the current stream. The tensors are as the plan has them, None where it has none."""
        tensors = a, b, bias, tiles, scales, minus_zeros, out
        if self._index < 0:
            self._enqueue(0, tensors)
        elif self._index == torch._C._cuda_getDevice():
            self._enqueue(torch._C._cuda_getCurrentRawStream(self._index), tensors)
        else:
            with torch.cuda.device(self._index):
                self._enqueue(torch._C._cuda_getCurrentRawStream(self._index), tensors)

    def _enqueue(self, stream: int, tensors: tuple[Any, ...]) -> None:
        plan = self.plan
        scratch = counters = sums = None
        ticket = 0
        if plan.scratch:
            scratch = torch.empty(plan.scratch, dtype=torch.float32, device=self.device)
        if plan.sums:
            counters, sums = workspace.counters_and_sums(plan.counters, plan.sums, self.device)
        elif plan.counters:
            counters = workspace.semaphores(plan.counters, self.device)
        if plan.counters:
            ticket = workspace.next_ticket()
        if plan.zeroed:
            tensors[Slot.C].zero_()
        values = (*tensors, scratch, counters, sums, ticket, *self._numbers)
        for run, arguments in self._launches:
            run(stream, arguments(values))
        if plan.unfused is not Epilogue.NONE:
            plan.unfused.apply_(tensors[Slot.C], tensors[Slot.BIAS])
