"""Zeroed memory that a launch may own: semaphores, counters and sums, one set per device and stream, and one per graph
capture. A launch leaves it zeroed again.

Why not the memory that a language hands out: tilus' `global_tensor` is one pool per device, shared by every
kernel and every stream, and it grows by cudaFree and cudaMalloc, which a capture forbids.

Scratch memory that need not be zero is allocated at each call (common/plan.py): torch's allocator has one pool per
stream already, and one per graph during a capture.
"""

import itertools
import random
import threading
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
# What has no room there is zeroed within its graph, by a node more at every replay.
ARENA_ITEMS = 1 << 22
ALIGNED_ITEMS = 32  # alignment of slices, and of the sums behind counters: kernels access these in vectors

_by_stream: dict[tuple[int, int], Tensor] = {}  # by device and the stream's handle
_by_capture: dict[tuple[int, int, int], Tensor] = {}
_parts: dict[int, dict[tuple[int, int], tuple[Tensor, Tensor]]] = {}  # by address, of what is kept
_arenas: dict[int, Tensor] = {}
_arena_used: dict[int, int] = {}
_lock = threading.Lock()  # of the arenas

# A ticket's low TICKET_BITS count turns; no kernel takes more.
TICKET_BITS = 10
_tickets = itertools.count(random.SystemRandom().getrandbits(20))  # the user's own seed gives what it gave


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
    capture, by that capture, or by the launch alone where the device has no room left for captures.

    Raises RuntimeError where a capture is the first to ask on this device: nothing is set aside yet, and zeroing within
    the graph would cost every replay a node.
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
        _parts[held.data_ptr()] = {}
        _by_stream[index, stream] = held
    return held


def counters_and_sums(tiles: int, elements: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Zeroed int32 [tiles] and fp32 [elements], both in the memory of `semaphores`; raises as it does.

    A launch that was stopped half-way leaves sums that a ticket does not guard against: `reset` zeroes them.
    """
    aligned = _aligned(tiles)
    held = semaphores(aligned + elements, device)
    parts = _parts.get(held.data_ptr())
    if parts is None:  # of this launch alone: a view that is kept would keep the memory
        return _split(held, tiles, elements)
    # The parts of memory that a stream or a capture keeps, as taking them anew would cost more than a launch.
    if (tiles, elements) not in parts:
        parts[tiles, elements] = _split(held, tiles, elements)
    return parts[tiles, elements]


def _split(held: Tensor, tiles: int, elements: int) -> tuple[Tensor, Tensor]:
    aligned = _aligned(tiles)
    return held[:tiles], held[aligned : aligned + elements].view(torch.float32)


def ready_for_capture(device: torch.device) -> None:
    """Allocates the arena of a device, once. A launcher whose eager calls use no semaphores calls this, so that its
    first captured call finds some."""
    if device.type == "cpu":
        return
    index = device.index if device.index is not None else torch.cuda.current_device()
    with _lock:
        if index not in _arenas:
            _arena_used[index] = 0
            _arenas[index] = _zeros(ARENA_ITEMS, torch.device("cuda", index))
            torch.cuda.synchronize(device)  # every stream may use it from here on


def _of_capture(count: int, index: int, stream: int) -> Tensor:
    """A slice of the device's arena; where that is short, memory of the graph's own, zeroed whenever this launch is
    replayed, and kept by no one: the graph may use it for what comes after the launch."""
    key = (index, stream, _capture_id(stream))
    with _lock:
        held = _by_capture.get(key)
        if held is not None and held.numel() >= count:
            return held
        if index not in _arenas:
            asked = "semaphores are first asked for inside a CUDA graph capture"
            raise RuntimeError(f"{asked}; call the kernel once before it")
        start = _aligned(_arena_used[index])
        if start + count <= ARENA_ITEMS:
            _arena_used[index] = start + count
            held = _by_capture[key] = _arenas[index][start : start + count]
            _parts[held.data_ptr()] = {}
            return held
    return _arenas[index].new_zeros(count)


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
    memory = (*_by_stream.values(), *_arenas.values())
    devices = {held.device for held in memory}
    for device in devices:
        torch.cuda.synchronize(device)
    for held in memory:
        held.zero_()
    for device in devices:
        torch.cuda.synchronize(device)
