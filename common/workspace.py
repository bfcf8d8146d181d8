"""Zeroed memory that a launch may own: semaphores, counters and sums, one set per device and stream, and one per graph
capture. A launch leaves it zeroed again.

Why not the memory that a language hands out: tilus' `global_tensor` is one pool per device, shared by every
kernel and every stream, and it grows by cudaFree and cudaMalloc, which a capture forbids.

Scratch memory that need not be zero is allocated at each call (common/plan.py): torch's allocator has one pool per
stream already, and one per graph during a capture.
"""

import itertools
import random
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from triton_vs_tilus.common import devices

__all__ = [
    "ALIGNED_ITEMS",
    "ARENA_ITEMS",
    "TICKET_BITS",
    "counters_and_sums",
    "is_capturing",
    "next_ticket",
    "ready_for_capture",
    "reset",
    "semaphores",
    "too_many_turns",
]

# Words of an arena. Captures get slices that are never taken back: a graph may be replayed much later, on any stream.
ARENA_ITEMS = 1 << 22
ALIGNED_ITEMS = 32  # alignment of slices, and of the sums behind counters: kernels access these in vectors

_by_stream: dict[tuple[int, int], Tensor] = {}  # by device and the stream's handle
_by_capture: dict[tuple[int, int, int], Tensor] = {}
_parts: dict[int, dict[tuple[int, int], tuple[Tensor, Tensor]]] = {}  # by address
_arenas: dict[int, Tensor] = {}
_arena_used: dict[int, int] = {}

# A ticket's low TICKET_BITS count turns; no kernel takes more.
TICKET_BITS = 10
_tickets = itertools.count(random.getrandbits(20))


def next_ticket() -> int:
    """A positive int32 unique to one launch, its low TICKET_BITS zero. Tickets increase until they wrap around to the
    smallest.

    A launch that takes turns 1, 2, ... writes ticket + turn to its semaphores and waits for the same, so that no value
    left by an earlier launch is a turn of this one. A launch that counts arrivals raises its counter to the ticket by
    an atomic maximum before it adds 1, so that a count left by an earlier launch does not matter until tickets wrap
    around, some 2^21 launches on. Only a launch that is stopped half-way leaves one: the last arriver sets it to zero.
    """
    return (next(_tickets) % ((1 << (31 - TICKET_BITS)) - 1) + 1) << TICKET_BITS


def too_many_turns(split_k: int) -> str | None:
    """Why a ticket has no room for the turns, or the arrivals, of so many splits; None where it has."""
    most = (1 << TICKET_BITS) - 1
    return f"split_k is {split_k}; accepted: {most} or fewer, as a ticket counts" if split_k > most else None


def semaphores(count: int, device: torch.device) -> Tensor:
    """int32 [count or more], zero before the first launch that uses them, owned by the current stream; during a graph
    capture, by that capture.

    Raises RuntimeError where a capture is the first to ask on this device, as memory that is zeroed inside a capture is
    zeroed at every replay.
    """
    if device.type == "cpu":  # launches in the interpreter follow one another
        return torch.zeros(count, dtype=torch.int32)
    index = device.index if device.index is not None else torch.cuda.current_device()
    stream = torch._C._cuda_getCurrentRawStream(index)
    if is_capturing(device):
        return _of_capture(count, index, stream)
    held = _by_stream.get((index, stream))
    if held is None or held.numel() < count:
        if held is not None:
            _parts.pop(held.data_ptr(), None)
        ready_for_capture(device)
        held = _zeros(max(count, 1024), torch.device("cuda", index))
        _by_stream[index, stream] = held
    return held


def counters_and_sums(tiles: int, elements: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Zeroed int32 [tiles] and fp32 [elements], both in the memory of `semaphores`; raises as it does.

    A launch that was stopped half-way leaves sums that a ticket does not guard against: `reset` zeroes them.
    """
    aligned = _aligned(tiles)
    held = semaphores(aligned + elements, device)
    if device.type == "cpu":
        return held[:tiles], held[aligned:].view(torch.float32)
    # The parts of memory that a stream or a capture keeps, as taking them anew would cost more than a launch.
    parts = _parts.setdefault(held.data_ptr(), {})
    if (tiles, elements) not in parts:
        parts[tiles, elements] = held[:tiles], held[aligned : aligned + elements].view(torch.float32)
    return parts[tiles, elements]


def ready_for_capture(device: torch.device) -> None:
    """Allocates the arena of a device, once. A launcher whose eager calls use no semaphores calls this, so that its
    first captured call finds some."""
    if device.type == "cpu":
        return
    index = device.index if device.index is not None else torch.cuda.current_device()
    if index not in _arenas:
        _arenas[index] = _zeros(ARENA_ITEMS, torch.device("cuda", index))
        _arena_used[index] = 0
        torch.cuda.synchronize(device)  # every stream may use it from here on


def _of_capture(count: int, index: int, stream: int) -> Tensor:
    key = (index, stream, _capture_id(stream))
    held = _by_capture.get(key)
    if held is not None and held.numel() >= count:
        return held
    if index not in _arenas:
        raise RuntimeError("semaphores are first asked for inside a CUDA graph capture; call the kernel once before it")
    start = _aligned(_arena_used[index])
    if start + count > ARENA_ITEMS:
        left = f"{max(0, ARENA_ITEMS - start)} of {ARENA_ITEMS} words are left"
        raise RuntimeError(f"{count} words are asked for in a CUDA graph capture; set aside on device {index}: {left}")
    _arena_used[index] = start + count
    _by_capture[key] = _arenas[index][start : start + count]
    return _by_capture[key]


def is_capturing(device: torch.device) -> bool:
    """Whether the device's current stream is being captured."""
    if device.index in (None, torch._C._cuda_getDevice()):  # as in every launch; the context takes longer than asking
        return torch._C._cuda_isCurrentStreamCapturing()
    with devices.on(device):
        return torch._C._cuda_isCurrentStreamCapturing()


def _zeros(count: int, device: torch.device) -> Tensor:
    """Zeroed int32 [count], allocated by a thread of its own, whatever the modes of the calling one. device: with an
    index, as another thread has another current one.

    A tensor made in inference mode cannot be zeroed outside of it. And the first run of torch.compile's
    mode="reduce-overhead" has its thread allocate from the pool of its graphs, where what is kept counts as lost
    (torch/_inductor/cudagraph_trees.py, `check_memory_pool`).
    """
    with ThreadPoolExecutor(1) as apart:
        held = apart.submit(_zeros_here, count, device).result()
    if held.is_cuda:  # of the default stream, as that thread's is
        held.record_stream(torch.cuda.current_stream(device))
    return held


def _zeros_here(count: int, device: torch.device) -> Tensor:
    held = torch.zeros(count, dtype=torch.int32, device=device)
    if held.is_cuda:
        torch.cuda.current_stream(device).synchronize()
    return held


def _aligned(items: int) -> int:
    return -(-items // ALIGNED_ITEMS) * ALIGNED_ITEMS


def _capture_id(stream: int) -> int:
    from cuda.bindings import runtime

    error, _status, capture_id, *_ = runtime.cudaStreamGetCaptureInfo(stream)
    if error != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaStreamGetCaptureInfo: {error}")
    return int(capture_id)


def reset() -> None:
    """Zeroes every semaphore of every device and stream, after a kernel that was stopped half-way. No launch that uses
    them may be running."""
    torch.cuda.synchronize()
    for held in (*_by_stream.values(), *_arenas.values()):
        held.zero_()
    torch.cuda.synchronize()
