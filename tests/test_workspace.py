"""Clean memory for launches: where slices for captures begin, and that it can be zeroed whoever asked first."""

import importlib.util
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from types import SimpleNamespace

import pytest
import torch

from triton_vs_tilus.common import plan, workspace
from triton_vs_tilus.common.problem import Matmul

CPU = torch.device("cpu")


@pytest.fixture
def arena(monkeypatch):
    """One of a device of index 0, with captures numbered as they are asked for."""
    monkeypatch.setattr(workspace, "_arenas", {0: torch.zeros(256, dtype=torch.int32)})
    monkeypatch.setattr(workspace, "_arena_used", {0: 0})
    monkeypatch.setattr(workspace, "_by_capture", {})
    monkeypatch.setattr(workspace, "ARENA_ITEMS", 256)
    monkeypatch.setattr(workspace, "_capture_id", lambda stream: stream)

    def ask(count: int, capture: int) -> torch.Tensor:
        return workspace._of_capture(count, 0, capture)

    return ask


def test_slices_of_captures_are_apart_and_aligned(arena):
    """Sums behind counters are added to four at a time."""
    begin = arena(1, capture=1).data_ptr()
    places = [(arena(count, capture).data_ptr() - begin) // 4 for capture, count in ((2, 33), (3, 1), (1, 1))]
    assert places == [32, 96, 0]


def test_a_capture_without_room_has_memory_of_its_graph(arena, monkeypatch):
    """Zeroed at each launch, and kept by none; what is left is for others."""
    monkeypatch.setattr(workspace, "is_capturing", lambda device: True)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 2, raising=False)
    monkeypatch.setattr(workspace, "_parts", {})
    arena(100, capture=1)
    for _ in range(2):
        counters, sums = workspace.counters_and_sums(3, 200, torch.device("cuda", 0))
        assert (counters.shape, sums.shape, sums.dtype) == ((3,), (200,), torch.float32)
        assert not counters.any() and not sums.any()
        counters.fill_(1)
        assert not workspace._arenas[0].any()
    assert list(workspace._parts) == [workspace._arenas[0].data_ptr()]
    assert arena(100, capture=3).data_ptr() == workspace._arenas[0].data_ptr() + 4 * 128


def test_captures_of_several_threads_get_slices_of_their_own(arena, monkeypatch):
    """Each waits where it has read how much is used until all others have, or nobody else comes."""
    together = threading.Barrier(2)

    def slowly(items: int) -> int:
        with suppress(threading.BrokenBarrierError):
            together.wait(0.05)
        return -(-items // 32) * 32

    monkeypatch.setattr(workspace, "_aligned", slowly)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(arena, (32, 32), (1, 2))
    assert first.data_ptr() != second.data_ptr()


@pytest.fixture
def streams(monkeypatch):
    """The current device and stream, made up, and what is allocated for them. Memory is that of the CPU."""
    now = SimpleNamespace(device=0, stream=1, zeroed=[], waits=[])

    def zeros(count, device):
        now.zeroed.append((count, device.index))
        return torch.zeros(count, dtype=torch.int32)

    for kept in ("_by_stream", "_by_capture", "_parts", "_arenas", "_arena_used"):
        monkeypatch.setattr(workspace, kept, {})
    monkeypatch.setattr(workspace, "_zeros", zeros)
    monkeypatch.setattr(workspace, "ARENA_ITEMS", 256)
    monkeypatch.setattr(workspace, "is_capturing", lambda device: False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: now.stream, raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now.device)
    monkeypatch.setattr(torch.cuda, "synchronize", now.waits.append)
    return now


def test_a_stream_keeps_its_memory_until_it_asks_for_more(streams):
    gpu = torch.device("cuda", 0)
    first = workspace.semaphores(1000, gpu)
    assert workspace.semaphores(1024, gpu) is first
    assert streams.zeroed == [(256, 0), (1024, 0)] and streams.waits == [gpu]  # for captures, and for the stream
    more = workspace.semaphores(2000, gpu)
    assert more.numel() == 2000 and workspace.semaphores(1, gpu) is more
    assert list(workspace._parts) == [more.data_ptr()]  # no views of what is let go
    streams.stream = 2
    other = workspace.semaphores(1, gpu)
    assert other is not more
    streams.stream = 1
    assert workspace.semaphores(1, gpu) is more
    streams.device = 1
    assert workspace.semaphores(1, torch.device("cuda")) is not more  # of the current device
    assert streams.zeroed[3:] == [(1024, 0), (256, 1), (1024, 1)]


def test_sums_begin_behind_their_counters_whatever_was_asked_for_before(streams):
    gpu = torch.device("cuda", 0)
    for tiles, elements in ((3, 64), (3, 96), (33, 64), (3, 64)):
        counters, sums = workspace.counters_and_sums(tiles, elements, gpu)
        assert (counters.shape, sums.shape) == ((tiles,), (elements,))
        assert sums.data_ptr() - counters.data_ptr() == 4 * (32 if tiles <= 32 else 64)


def test_a_slice_is_of_one_capture_on_one_stream_of_one_device(arena, monkeypatch):
    workspace._arenas[1], workspace._arena_used[1] = torch.zeros(256, dtype=torch.int32), 0
    found = []
    for index, stream, capture in ((0, 1, 1), (0, 1, 2), (0, 2, 1), (1, 1, 1), (0, 1, 1)):
        monkeypatch.setattr(workspace, "_capture_id", lambda stream, capture=capture: capture)
        found.append(workspace._of_capture(32, index, stream).data_ptr())
    assert found[0] == found[4] and len(set(found)) == 4


def test_a_capture_that_asks_for_more_gets_another_slice_up_to_the_last_word(arena):
    begin = arena(32, capture=1).data_ptr()
    more = arena(224, capture=1)
    assert (more.data_ptr() - begin, more.numel()) == (4 * 32, 224)


def test_a_capture_that_asks_first_is_told_what_to_do(arena):
    workspace._arenas.clear()
    with pytest.raises(RuntimeError, match="inside a CUDA graph capture; call the kernel once before it"):
        arena(1, capture=1)


def test_threads_that_come_first_share_one_arena(streams, monkeypatch):
    """Each waits where it allocates until the other does, or nobody else comes."""
    together = threading.Barrier(2)

    def slowly(count, device):
        with suppress(threading.BrokenBarrierError):
            together.wait(0.05)
        streams.zeroed.append((count, device.index))
        return torch.zeros(count, dtype=torch.int32)

    monkeypatch.setattr(workspace, "_zeros", slowly)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(workspace.ready_for_capture, [torch.device("cuda", 0)] * 2))
    assert streams.zeroed == [(256, 0)]


def test_a_capture_is_known_by_its_number_and_an_error_is_not_taken_for_one(monkeypatch):
    runtime = pytest.importorskip("cuda.bindings.runtime")
    ends = [runtime.cudaError_t.cudaSuccess, runtime.cudaError_t.cudaErrorStreamCaptureImplicit]
    monkeypatch.setattr(runtime, "cudaStreamGetCaptureInfo", lambda stream: (ends.pop(0), 1, 70 + stream, None))
    assert workspace._capture_id(7) == 77
    with pytest.raises(RuntimeError, match=r"cudaStreamGetCaptureInfo: .*cudaErrorStreamCaptureImplicit"):
        workspace._capture_id(7)


def test_the_device_that_is_meant_is_asked_whether_it_captures(current, monkeypatch):
    """Where another one is the current one."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: current[0] == 1, raising=False)
    assert [workspace.is_capturing(torch.device("cuda", index)) for index in (0, 1)] == [False, True]
    assert not workspace.is_capturing(torch.device("cuda"))


def test_tickets_are_positive_int32_that_leave_room_for_turns(monkeypatch):
    """The last one of an int32, and the first after it."""
    monkeypatch.setattr(workspace, "_tickets", iter([0, 1, 2**21 - 2, 2**21 - 1]))
    assert [workspace.next_ticket() for _ in range(4)] == [1 << 10, 2 << 10, (1 << 31) - (1 << 10), 1 << 10]
    assert workspace.too_many_turns(1023) is None
    assert workspace.too_many_turns(1024) == "split_k is 1024; accepted: 1023 or fewer, as a ticket counts"


def test_an_import_leaves_the_users_random_numbers_as_they_were():
    spec = importlib.util.spec_from_file_location("workspace_anew", workspace.__file__)
    before = random.getstate()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert random.getstate() == before


def test_memory_first_asked_for_in_inference_mode_is_zeroed_outside_of_it():
    with torch.inference_mode():
        held = workspace._zeros(4, CPU)
    held.zero_()


@pytest.mark.gpu
def test_sums_are_aligned_in_every_capture(device):
    workspace.ready_for_capture(device)
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            workspace.semaphores(1, device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            _, sums = workspace.counters_and_sums(5, 64, device)
        assert sums.data_ptr() % 16 == 0


@pytest.mark.gpu
def test_what_a_stream_keeps_is_not_of_the_pool_that_its_caller_allocates_from(device, monkeypatch):
    """As torch.compile's mode="reduce-overhead" has its first run do."""
    for kept in ("_by_stream", "_arenas", "_arena_used"):
        monkeypatch.setattr(workspace, kept, {})
    pool = torch.cuda.MemPool()

    def in_use():
        blocks = [block for segment in pool.snapshot() for block in segment["blocks"]]
        return sum(block["size"] for block in blocks if block["state"] == "active_allocated")

    with torch.cuda.use_mem_pool(pool), torch.cuda.stream(torch.cuda.Stream(device)):
        others = torch.ones(4096, device=device)
        before = in_use()
        held = workspace.semaphores(4096, device)
    assert before == in_use() >= others.nbytes
    assert not held.any()


def test_a_plan_that_counts_finds_its_memory_before_a_capture_begins(monkeypatch):
    """Loaded outside of a capture; within one it is too late, and another error says so."""
    asked = []
    monkeypatch.setattr(workspace, "ready_for_capture", asked.append)
    monkeypatch.setattr(plan, "_allocator", lambda device: torch.empty)
    monkeypatch.setattr(plan, "on", lambda device: nullcontext())
    problem, gpu = Matmul(16, 32, 64), torch.device("cuda", 0)
    for capturing, counters, times in ((False, 4, 1), (False, 0, 0), (True, 4, 0)):
        asked.clear()
        monkeypatch.setattr(workspace, "is_capturing", lambda device, capturing=capturing: capturing)
        plan.Call(plan.Plan(problem, plan.contiguous(problem), (), counters=counters), gpu, backend=None)
        assert asked == [gpu] * times


def test_a_reset_waits_for_every_device_that_has_memory(monkeypatch):
    did = []

    def held(index):
        return SimpleNamespace(device=torch.device("cuda", index), zero_=lambda: did.append(("zero", index)))

    monkeypatch.setattr(workspace, "_by_stream", {(0, 1): held(0), (1, 1): held(1)})
    monkeypatch.setattr(workspace, "_arenas", {1: held(1)})
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: did.append(("wait", device.index)))
    workspace.reset()
    waits = {("wait", 0), ("wait", 1)}
    assert set(did[:2]) == waits and set(did[-2:]) == waits
    assert did[2:-2] == [("zero", 0), ("zero", 1), ("zero", 1)]
