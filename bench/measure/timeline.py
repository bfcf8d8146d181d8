"""The GPU's own timeline beside the events: how long each contender keeps the GPU busy, on whatever stream.

Events say when a window began and ended, the timeline (CUPTI, by torch.profiler) what ran. What runs outside of its
window stands in the timeline all the same; and a contender that notices the profiler and does all its work while it is
watched no longer agrees with its events. What it does while it is watched is judged, too.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from triton_vs_tilus.bench.measure.clock import Announce, NotTimed, Timed, distinct, judge, threads_counted
from triton_vs_tilus.bench.measure.seals import seal

CALLS = 10
JUDGED_CALLS = 2  # drawn in secret
WAITS = {"Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event"}  # as Kineto names them; no kernel's names


def busy_us(intervals: Iterable[tuple[float, float]]) -> float:
    """Microseconds that intervals (start, end) in microseconds cover together."""
    covered, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return covered


def timelines(
    contenders: Sequence[Timed],
    profile: Callable[[Callable[[], Any]], list[tuple[float, float]]],
    evict: Callable[[], None],
    announce: Announce,
) -> dict[str, float]:
    """Microseconds that the GPU is busy in one call of each contender, by name: the mean over CALLS calls, each on an
    argument set of its own where there are as many.

    profile: as `profiled`. evict: enqueues a read of more memory than L2 holds. Raises NotTimed for the first contender
    whose result is wrong, that leaves threads running, or that replaces what it is measured by; what `profile` and the
    calls raise. Before a contender is announced that is the profiler's fault, and else that of the contender, who may
    notice that it is watched.
    """
    found, seals = {}, seal()
    profile(evict)
    for timed in contenders:
        announce(timed.name)
        places = [index % len(timed.argument_sets) for index in range(CALLS)]
        returned: list[Any] = []

        def calls(timed: Timed = timed, places: list[int] = places, returned: list[Any] = returned) -> None:
            for place in places:  # a map would take a contender's StopIteration for its end
                returned.append(timed.watched_call(place))

        with threads_counted(timed):  # without those that are not Python's: CUPTI begins some
            timed.watched_call(places[0])
            timed.refill(sorted(set(places)))  # after the call that no profiler sees
            evict()
            found[timed.name] = busy_us(profile(calls)) / CALLS
        results = [(places[index], result) for index, result in distinct(returned)]
        judge(timed, secrets.SystemRandom().sample(results, min(JUDGED_CALLS, len(results))))
        if reason := seals.broken():
            raise NotTimed(timed.name, reason, wrong=True)
    return found


def profiled(work: Callable[[], Any]) -> list[tuple[float, float]]:
    """What the GPU did while `work` ran, in microseconds from any one moment. Raises RuntimeError where the profiler
    saw nothing: CUPTI is missing, or another profiler has it."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    intervals = [
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and event.name not in WAITS
    ]
    if not intervals:
        raise RuntimeError("torch.profiler saw no kernel: CUPTI is missing, or another profiler has it")
    return intervals
