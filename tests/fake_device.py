"""A made-up device for the clock, whose host and GPU each have a time of their own."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from triton_vs_tilus.bench.measure.nvml import Reading

HOST_CALL_US = 12.0


class FakeDevice:
    """Seconds of the host and of the GPU; a launch starts where both are free, and waits for one that is `depth`
    before it. `readings` are given out in turn, and the last one from then on."""

    def __init__(self, l2_bytes: int = 0, readings: list[Reading] | None = None, depth: int | None = None):
        self.l2_bytes = l2_bytes
        self.no_reading = "" if readings else "no NVML on a made-up device"
        self.readings = list(readings or [])
        self.host = self.gpu = 0.0
        self.capturing: list[tuple[float, Callable[[], None]]] | None = None
        self.evictions = 0
        self.leading: list[int] = []  # how many empty launches, each time
        self.ends: deque[float] = deque(maxlen=depth)
        self.delays: list[float] = []
        self.held_l2 = False
        self.max_sm_mhz = 1980.0 if readings else None
        self.watts: float | None = None

    def launch(self, microseconds: float, work: Callable[[], None] = lambda: None) -> None:
        if self.capturing is not None:
            self.capturing.append((microseconds, work))
            return
        self.host += HOST_CALL_US * 1e-6
        if len(self.ends) == self.ends.maxlen:
            self.host = max(self.host, self.ends[0])
        self._run(microseconds, work)

    def _run(self, microseconds: float, work: Callable[[], None]) -> None:
        self.gpu = max(self.gpu, self.host) + microseconds * 1e-6
        self.ends.append(self.gpu)
        work()

    def now(self) -> float:
        self.host += 1e-9
        return self.host

    def record(self) -> float:
        self.gpu = max(self.gpu, self.host)
        return self.gpu

    def done(self, event: float) -> bool:
        return event <= self.host

    def elapsed_us(self, start: float, end: float) -> float:
        self.host = max(self.host, end)
        return (end - start) * 1e6

    def delay(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.gpu = max(self.gpu, self.host) + seconds

    def launch_nothing(self, times: int) -> None:
        self.leading.append(times)
        for _ in range(times):
            self.launch(0.0)

    def evict_l2(self) -> None:
        def count() -> None:
            self.evictions += 1

        self.launch(3.0, count)

    def synchronize(self) -> None:
        self.host = max(self.host, self.gpu)

    def keep(self, result: torch.Tensor) -> torch.Tensor:
        copy = torch.empty_like(result)
        self.launch(1.0, lambda: copy.copy_(result))
        return copy

    def release_l2(self) -> bool:
        held, self.held_l2 = self.held_l2, False
        return held

    def capture(self, calls):
        self.capturing, results, added = [], [], []
        for call in calls:
            before = len(self.capturing)
            results.append(call())
            added.append(Counter(microseconds for microseconds, _ in self.capturing[before:]))
        captured, self.capturing = self.capturing, None

        @dataclass
        class Graph:
            results: list[object]
            added: list[Counter[float]]
            device: FakeDevice = field(default=self)

            def replay(self):
                self.device.host += 1e-6  # one launch of a whole graph
                for launch in captured:
                    self.device._run(*launch)

        return Graph(results, added)

    def energy_mj(self) -> float | None:
        return None if self.watts is None else self.watts * min(self.gpu, self.host) * 1000

    def reading(self) -> Reading | None:
        if not self.readings:
            return None
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
