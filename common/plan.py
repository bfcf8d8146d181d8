"""A call of a kernel, worked out once for all calls of the same shapes, strides, dtypes and alignments.

A kernel file's `plan` says what is launched: with which grid and numbers, and which arguments are another tensor at
each call. `Call` launches it: it takes what a call needs anew (scratch memory, the stream's semaphores, a ticket) and
hands everything over to the compiled kernels. Nothing is checked there.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from math import prod
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
    "filling",
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
    A dimension of size 1 has the stride that it would have if it were larger."""

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
        return self.out_strides == (problem.n, 1)


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

# Launches a kernel on a stream, given by its handle, with what stands for each Slot, by its number.
Run = Callable[[int, tuple[Any, ...]], None]
# Compiles and loads a launch of a plan for the current device, or prepares its run in an interpreter for a CPU.
Load = Callable[[Launch, Plan, torch.device], Run]


@dataclass(frozen=True)
class Backend:
    """How a language launches.

    load  compiles what is in no cache, and loads it
    build compiles what is in no cache, and loads nothing that has to be on the GPU
    fit   a config of a matmul's tables, or the nearest to it with which the kernel can take tensors that lie so
    check raises ValueError for a config of the caller's with which the kernel cannot take tensors that lie so
    lacks why no kernel takes a matmul's tensors that lie so, on whatever config; None where some do
    cache where it keeps what is built on disk
    """

    load: Load
    build: Callable[[Plan], None]
    cache: Callable[[], str]
    fit: Callable[[Any, Any, Any, Any], Any] = lambda kernel, problem, config, placement: config
    check: Callable[[Any, Any, Any, Any], None] = lambda kernel, problem, config, placement: None
    lacks: Callable[[Any, Any], str | None] = lambda problem, placement: None


def filling(arguments: tuple[Any, ...], null: Any = None) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What makes a launch's arguments of what stands for each Slot. null: in the place of a tensor that is not read."""
    numbers = tuple(null if argument is None else argument for argument in arguments if not isinstance(argument, Slot))
    behind = count(len(Slot))
    places = [argument if isinstance(argument, Slot) else next(behind) for argument in arguments]
    if len(places) == 1:  # of one alone itemgetter makes no tuple
        return lambda slots: ((slots + numbers)[places[0]],)
    pick = itemgetter(*places)
    return lambda slots: pick(slots + numbers)


def bias_slot(problem: Matmul) -> Slot | None:
    """The argument of kernels that take a bias where the epilogue has one."""
    return Slot.BIAS if problem.epilogue.has_bias else None


def contiguous(problem: Matmul) -> Placement:
    """Of tensors as torch allocates them."""
    nk = problem.layout is Layout.NK
    return Placement(problem.k, 1 if nk else problem.n, problem.k if nk else 1, problem.n, 1)


def placement_of(problem: Matmul, a: Tensor | None, b: Tensor, bias: Tensor | None, out: Tensor | None) -> Placement:
    """b: [K, N]. None: contiguous, as it is allocated; of a bias, none.

    torch leaves the stride of a dimension of size 1 open, and one that is not aligned would cost wide loads and stores,
    as one beyond int32 would an overflow: it is given as if the dimension were larger.
    """
    own = contiguous(problem)
    stride_am = own.stride_am if problem.m == 1 or a is None else a.stride(0)
    if problem.layout is Layout.NK:
        stride_bk, stride_bn = 1, own.stride_bn if problem.n == 1 else b.stride(1)
    else:
        stride_bk, stride_bn = own.stride_bk if problem.k == 1 else b.stride(0), 1
    stride_cm = own.stride_cm if problem.m == 1 or out is None else out.stride(0)
    stride_cn = own.stride_cn if problem.n == 1 or out is None else out.stride(1)
    return Placement(stride_am, stride_bk, stride_bn, stride_cm, stride_cn, *map(alignment, (a, b, bias, out)))


def alignment(tensor: Tensor | None) -> int:
    """Of its address, in bytes, WIDEST at most; WIDEST of one that is yet to be allocated."""
    return WIDEST if tensor is None else min(tensor.data_ptr() & -tensor.data_ptr() or WIDEST, WIDEST)


class Call:
    """A loaded plan. It may be called from several threads and on any stream of its device."""

    def __init__(self, plan: Plan, device: torch.device, backend: Backend, shape: tuple[int, ...] | None = None):
        """Compiles what is in no cache, and loads; the first captured call finds its semaphores. shape: of the outputs
        that a call allocates, by default the problem's."""
        if plan.counters and not (device.type == "cuda" and workspace.is_capturing(device)):
            workspace.ready_for_capture(device)
        self.plan = plan
        self.device = device
        self._index = -1 if device.type == "cpu" else device.index
        self._empty = _allocator(device)
        self._out = _contiguous(plan.problem.out_shape if shape is None else shape, plan.problem.out_dtype)
        self._scratch = _contiguous(plan.scratch, torch.float32)
        with on(device):
            self._runs = [backend.load(launch, plan, device) for launch in plan.launches]

    def __call__(
        self,
        out: Tensor | None,
        a: Tensor,
        b: Tensor | None = None,
        bias: Tensor | None = None,
        tiles: Tensor | None = None,
        scales: Tensor | None = None,
        minus_zeros: Tensor | None = None,
    ) -> Tensor:
        """Enqueues on the current stream, and returns the output; out: None allocates it. The tensors are as the plan
        has them, None where it has none."""
        inputs = a, b, bias, tiles, scales, minus_zeros
        if self._index < 0:
            return self._enqueue(0, inputs, out)
        if self._index == torch._C._cuda_getDevice():
            return self._enqueue(torch._C._cuda_getCurrentRawStream(self._index), inputs, out)
        with torch.cuda.device(self._index):
            return self._enqueue(torch._C._cuda_getCurrentRawStream(self._index), inputs, out)

    def _enqueue(self, stream: int, inputs: tuple[Tensor | None, ...], out: Tensor | None) -> Tensor:
        plan = self.plan
        if out is None:
            out = self._empty(*self._out)
        elif not out.is_inference():  # which has no version; autograd may keep any other, whatever the mode is now
            torch.autograd.graph.increment_version(out)
        scratch = counters = sums = None
        ticket = 0
        if plan.scratch:
            scratch = self._empty(*self._scratch)
        if plan.sums:
            counters, sums = workspace.counters_and_sums(plan.counters, plan.sums, self.device)
        elif plan.counters:
            counters = workspace.semaphores(plan.counters, self.device)
        if plan.counters:
            ticket = workspace.next_ticket()
        if plan.zeroed:
            with _own_mode(out):
                out.zero_()
        slots = (*inputs, out, scratch, counters, sums, ticket)
        for run in self._runs:
            run(stream, slots)
        if plan.unfused is not Epilogue.NONE:
            with _own_mode(out):
                plan.unfused.apply_(out, inputs[Slot.BIAS])
        return out


def _own_mode(out: Tensor) -> AbstractContextManager[Any]:
    """Where torch writes to it: outside of inference mode it refuses what was made in it."""
    return torch.inference_mode() if out.is_inference() else nullcontext()


_Shaped = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # shape, strides, dtype


def _contiguous(shape: tuple[int, ...], dtype: torch.dtype) -> _Shaped:
    strides = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple(shape), tuple(strides), dtype


def _allocator(device: torch.device) -> Callable[..., Tensor]:
    """What allocates memory of any content on the device, which must be the current one.

    Inductor's generated code calls the same function. It is private to torch: it asks torch's allocator, past the
    dispatcher, which takes longer than the allocator. A torch without it takes `torch.empty_strided`.
    """

    def dispatched(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", dispatched)
