"""How time is taken: contenders take turns, and what a turn measures is one of three.

cold   GPU time of one launch on data that is not in L2: an event pair around it, on argument sets in rotation
       that together exceed three times the L2, enqueued behind a delay on the GPU long enough that no host gap
       can fall between the events. The rotation goes on from one contender to the next: a set comes back only after all
       others. Where MOST_SETS of them are less than that, as much memory that is nobody's is read in turn with them, in
       no window. Scratch memory of the contender's own is not rotated.
warm   GPU time of one launch on data that is in L2 where it fits: launches captured in a CUDA graph, replayed.
host   CPU time of one call, with a queue too short for the call to wait.

In a round everyone has one turn. The order rotates from round to round and is run once forward, once backward. Each
turn ends with an empty queue. A round in which the SM clock was low against the run's median is measured again. After
the rounds everyone has one more turn, of which no time is kept: on outputs that hold no answer, and judged.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from bench.referee import no_answer
from common.tensors import named_tensors

L2_MULTIPLE = 3
MOST_SETS = 4096
COLD_LAUNCHES = 20
WARM_LAUNCHES = 50
HOST_CALLS = 20
WARM_UP_S = 0.3
CLOCK_SHARE = 0.95  # of the median SM clock of the run, below which a round is measured again
FIRST_BACKLOG_S = 1e-3
LONGEST_BACKLOG_S = 0.5

Tell = Callable[[str], None]


class Arguments(NamedTuple):
    """What one call is made with: fn(*args, **kwargs)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for _, tensor in named_tensors(self))


@dataclass(frozen=True)
class Timed:
    """One contender as the clock sees it: a function, and the argument sets it is called with. judge: says why what it
    returned for one of them is wrong, or None; there is none of what has no result.

    Raises ValueError where no set, or one without arguments, is given: what a closure hides cannot be rotated.
    """

    name: str
    fn: Callable[..., Any]
    argument_sets: Sequence[Arguments]
    judge: Callable[[Tensor], str | None] | None = None

    def __post_init__(self) -> None:
        if not self.argument_sets or not all(a.args or a.kwargs for a in self.argument_sets):
            raise ValueError(
                f"{self.name}: a timed function takes its data as arguments; a closure over it is not accepted"
            )

    def call(self, index: int) -> Any:
        args, kwargs = self.argument_sets[index]
        return self.fn(*args, **kwargs)


class Reading(NamedTuple):
    sm_mhz: float
    power_w: float
    temperature_c: float


class Graph(Protocol):
    """A captured series of launches; `result` is what the last call returned."""

    result: Any

    def replay(self) -> None: ...


class DeviceClock(Protocol):
    """All that the clock asks of a device. Events and delays go to the current stream."""

    l2_bytes: int
    no_reading: str  # why `reading` is None; '' where it is not

    def now(self) -> float:
        """Host seconds."""

    def record(self) -> Any:
        """An event, enqueued."""

    def done(self, event: Any) -> bool:
        """Whether the device has come past an event, without waiting."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Waits for `end`."""

    def delay(self, seconds: float) -> None:
        """Keeps the device busy, enqueued."""

    def read(self, part: int, parts: int) -> None:
        """Reads that part of three times the L2, of memory that is nobody's, enqueued."""

    def synchronize(self) -> None: ...

    def capture(self, call: Callable[[], Any], launches: int) -> Graph:
        """Raises RuntimeError where the call cannot be captured."""

    def reading(self) -> Reading | None: ...


@dataclass(frozen=True)
class Clocks:
    """SM clock, power and temperature, read before and after each round that counts."""

    readings: Sequence[Reading]
    repeated_rounds: int
    reason: str  # why there are no readings


@dataclass(frozen=True)
class Samples:
    """Microseconds of one launch or call; one list a round. `method` says in words how they were taken."""

    name: str
    method: str
    rounds: list[list[float]]
    clocks: Clocks


class NotTimed(Exception):
    """A contender that this way of timing cannot time. `wrong`: because what it does when it is timed is not its work:
    that is on another stream, left out, or not right."""

    def __init__(self, contender: str, reason: str, wrong: bool = False):
        super().__init__(f"{contender}: {reason}")
        self.contender, self.reason, self.wrong = contender, reason, wrong


def time_together(
    contenders: Sequence[Timed], mode: str, rounds: int, device: DeviceClock, *, tell: Tell = lambda name: None
) -> list[Samples]:
    """The samples of each contender, in their order. `tell` is called with the name of whoever runs next.

    Raises NotTimed for the first contender that cannot be timed this way, ValueError for fewer cold argument sets than
    `cold_sets`.
    """
    with _no_collection():
        return _time_together(contenders, mode, rounds, device, tell)


def _time_together(
    contenders: Sequence[Timed], mode: str, rounds: int, device: DeviceClock, tell: Tell
) -> list[Samples]:
    taker = {"cold": _Cold, "warm": _Warm, "host": _Host}[mode](contenders, device, tell)

    def round_(index: int) -> tuple[dict[str, list[float]], list[Reading]]:
        before = device.reading()
        taken = {}
        for position in turns(len(contenders), index):
            tell(contenders[position].name)
            taken[contenders[position].name] = taker.turn(contenders[position])
        return taken, [reading for reading in (before, device.reading()) if reading is not None]

    warm_until = device.now() + WARM_UP_S
    round_(0)
    while device.now() < warm_until:
        round_(0)

    kept = [round_(index) for index in range(rounds)]
    repeated = 0
    while repeated < rounds and (low := _low_rounds([readings for _, readings in kept])):
        for index in low[: rounds - repeated]:
            kept[index] = round_(index)
            repeated += 1

    for contender in contenders:
        if contender.judge is not None:
            tell(contender.name)
            taker.check(contender)
    readings = [reading for _, of_round in kept for reading in of_round]
    clocks = Clocks(readings, repeated, device.no_reading)
    return [Samples(c.name, taker.method, [taken[c.name] for taken, _ in kept], clocks) for c in contenders]


def turns(count: int, round_index: int) -> list[int]:
    """The order of a round: rotated by one every other round, and every other round reversed."""
    order = [(round_index // 2 + position) % count for position in range(count)]
    return order[::-1] if round_index % 2 else order


def _low_rounds(readings: Sequence[Sequence[Reading]]) -> list[int]:
    """The rounds whose lowest SM clock is under CLOCK_SHARE of the median over rounds."""
    clocks = [min(reading.sm_mhz for reading in of_round) for of_round in readings if of_round]
    if len(clocks) < len(readings):
        return []
    return [index for index, clock in enumerate(clocks) if clock < CLOCK_SHARE * np.median(clocks)]


def cold_sets(bytes_per_set: int, l2_bytes: int) -> int:
    """How many argument sets together exceed three times the L2; two or more, and MOST_SETS at most."""
    return min(MOST_SETS, max(2, L2_MULTIPLE * l2_bytes // bytes_per_set + 1))


class _Queued:
    """A turn whose work is all enqueued before the GPU comes to any of it."""

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock):
        self.device = device
        self.backlog_s = dict.fromkeys((c.name for c in contenders), FIRST_BACKLOG_S)

    def behind_backlog(self, name: str, enqueue: Callable[[], list[tuple[Any, Any]]]) -> list[float]:
        """Times between the event pairs that `enqueue` made. A delay that the host outlasted is doubled and
        everything done again. Raises NotTimed where no delay is long enough."""
        device = self.device
        while True:
            device.delay(self.backlog_s[name])
            delay_end = device.record()
            pairs = enqueue()
            covered = not device.done(delay_end)
            times = [device.elapsed_us(*pair) for pair in pairs]
            device.synchronize()
            if covered:
                return times
            self.backlog_s[name] *= 2
            if self.backlog_s[name] > LONGEST_BACKLOG_S:
                raise NotTimed(name, f"its calls outlast a queue of {LONGEST_BACKLOG_S} s: a call waits for the GPU")


class _Cold(_Queued):
    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, tell: Tell):
        super().__init__(contenders, device)
        self.next_set = 0
        self.at_a_time = dict.fromkeys((c.name for c in contenders), COLD_LAUNCHES)
        self.sets = len(contenders[0].argument_sets)
        if any(len(c.argument_sets) != self.sets for c in contenders):
            raise ValueError("contenders have argument sets of different counts; accepted: the same rotation for all")
        total = min(sum(arguments.nbytes for arguments in c.argument_sets) for c in contenders)
        self.small = total <= L2_MULTIPLE * device.l2_bytes
        if self.sets < (MOST_SETS if self.small else 2):
            raise ValueError(
                f"{self.sets} argument sets hold {total} bytes; accepted: 2 or more sets that exceed "
                f"{L2_MULTIPLE} times the L2 of {device.l2_bytes} bytes, or {MOST_SETS}"
            )
        others = f"and other memory of {L2_MULTIPLE} times the L2 read in turn with them, " if self.small else ""
        self.method = (
            f"cold L2: event pair per launch, all enqueued behind a delay on the GPU; {self.sets} argument sets of "
            f"together {total / 2**20:.0f} MiB in rotation, {others}L2 {device.l2_bytes / 2**20:.0f} MiB; "
            "scratch memory of the contender's own is not rotated"
        )

    def turn(self, timed: Timed) -> list[float]:
        """COLD_LAUNCHES samples. Of a call of so many launches that the device's queue does not hold them all behind a
        delay, fewer are enqueued at a time."""
        times: list[float] = []
        while len(times) < COLD_LAUNCHES:
            count = min(self.at_a_time[timed.name], COLD_LAUNCHES - len(times))
            try:
                times += self.behind_backlog(timed.name, partial(self._enqueue, timed, count))
            except NotTimed:
                if count == 1:
                    raise
                self.at_a_time[timed.name] = count // 2
                self.backlog_s[timed.name] = FIRST_BACKLOG_S
        return times

    def _enqueue(self, timed: Timed, count: int) -> list[tuple[Any, Any]]:
        pairs = []
        for _ in range(count):
            if self.small:
                self.device.read(self.next_set, self.sets)
            start = self.device.record()
            timed.call(self.next_set)
            pairs.append((start, self.device.record()))
            self.next_set = (self.next_set + 1) % self.sets
        return pairs

    def check(self, timed: Timed) -> None:
        count = min(self.at_a_time[timed.name], self.sets)
        places = [(self.next_set + turn) % self.sets for turn in range(count)]
        for place in places:
            _unwrite(timed.call(place))
        results: list[Any] = []

        def enqueue() -> list[tuple[Any, Any]]:
            results.clear()
            for place in places:
                result = timed.call(place)
                if result is not timed.argument_sets[place].kwargs.get("out"):
                    results.clear()  # those before are in memory of its own, which it may have used again
                results.append(result)
            return []

        self.behind_backlog(timed.name, enqueue)
        for result in results:
            _judge(timed, result)


class _Warm(_Queued):
    method = (
        f"warm L2: event pair around a replayed CUDA graph of {WARM_LAUNCHES} launches on one argument set, per launch"
    )

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, tell: Tell):
        super().__init__(contenders, device)
        self.graphs = {}
        for timed in contenders:
            tell(timed.name)
            self.graphs[timed.name] = self._captured(timed)

    def _captured(self, timed: Timed) -> Graph:
        try:
            graph = self.device.capture(lambda: timed.call(0), WARM_LAUNCHES)
        except Exception as error:
            raise NotTimed(timed.name, f"cannot be captured in a CUDA graph: {first_line(error)}") from error
        # A launch on another stream is not part of the graph: it ran while the graph was captured, and never again.
        if isinstance(graph.result, Tensor) and not self._is_written(graph):
            raise NotTimed(timed.name, "its work is not in the CUDA graph that captured it: another stream", wrong=True)
        return graph

    def _is_written(self, graph: Graph) -> bool:
        """Whether a replay writes all of the result."""
        graph.replay()  # a result in memory of the graph's own is none before
        unwritten = _unwrite(graph.result)
        graph.replay()
        self.device.synchronize()
        left = graph.result.isnan() if graph.result.is_floating_point() else graph.result == unwritten
        return not left.any()

    def check(self, timed: Timed) -> None:
        graph = self.graphs[timed.name]
        _unwrite(graph.result)
        graph.replay()
        self.device.synchronize()
        _judge(timed, graph.result)

    def turn(self, timed: Timed) -> list[float]:
        """One sample, from the second of two replays: the first brings the data back into L2."""
        graph = self.graphs[timed.name]

        def enqueue() -> list[tuple[Any, Any]]:
            graph.replay()
            start = self.device.record()
            graph.replay()
            return [(start, self.device.record())]

        return [elapsed / WARM_LAUNCHES for elapsed in self.behind_backlog(timed.name, enqueue)]


class _Host:
    method = f"host: wall clock around one call that only enqueues; the queue is emptied after {HOST_CALLS} calls"

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, tell: Tell):
        self.device = device

    def turn(self, timed: Timed) -> list[float]:
        times = []
        for _ in range(HOST_CALLS):
            start = self.device.now()
            timed.call(0)
            times.append((self.device.now() - start) * 1e6)
        self.device.synchronize()
        return times

    def check(self, timed: Timed) -> None:
        _unwrite(timed.call(0))
        result = timed.call(0)
        self.device.synchronize()
        _judge(timed, result)


def _unwrite(result: Any) -> Tensor | None:
    """Puts no answer in the place of a right one; returns it."""
    if not isinstance(result, Tensor):
        return None
    unwritten = no_answer(result)
    result.copy_(unwritten)
    return unwritten


def _judge(timed: Timed, result: Any) -> None:
    if isinstance(result, Tensor) and (reason := timed.judge(result)):
        raise NotTimed(timed.name, reason, wrong=True)


@contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection inside a capture may unload a kernel and so end the capture; inside a call it is noise."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


@dataclass
class _CudaGraph:
    graph: torch.cuda.CUDAGraph
    result: Any = None

    def replay(self) -> None:
        self.graph.replay()


@dataclass
class CudaClock:
    """A CUDA device, with NVML's readings of it where NVML can be asked."""

    device: torch.device
    l2_bytes: int = field(init=False)
    no_reading: str = field(init=False, default="")

    def __post_init__(self) -> None:
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = properties.L2_cache_size
        self._open_nvml(str(properties.uuid))
        torch.cuda._sleep(1000)
        start = self.record()
        torch.cuda._sleep(2_000_000)
        self._cycles_per_s = 2e12 / self.elapsed_us(start, self.record())

    def _open_nvml(self, uuid: str) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self._read()
        except pynvml.NVMLError as error:
            self.no_reading = f"NVML: {error}"

    def _read(self) -> Reading:
        nvml, handle = self._nvml, self._handle
        return Reading(
            nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        )

    def reading(self) -> Reading | None:
        return None if self.no_reading else self._read()

    def now(self) -> float:
        return time.perf_counter()

    def record(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def done(self, event: torch.cuda.Event) -> bool:
        return event.query()

    def elapsed_us(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return start.elapsed_time(end) * 1000

    def delay(self, seconds: float) -> None:
        torch.cuda._sleep(int(seconds * self._cycles_per_s))

    def read(self, part: int, parts: int) -> None:
        words = self._others.numel() // parts
        torch.sum(self._others[part * words : (part + 1) * words], dim=0, out=self._sum)

    @cached_property
    def _others(self) -> Tensor:
        return torch.zeros(L2_MULTIPLE * self.l2_bytes // 8, dtype=torch.int64, device=self.device)

    @cached_property
    def _sum(self) -> Tensor:
        return torch.empty((), dtype=torch.int64, device=self.device)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    def capture(self, call: Callable[[], Any], launches: int) -> _CudaGraph:
        """Called once on the capturing stream before, as a first call may compile or allocate what lasts."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            call()
        self.synchronize()
        captured = _CudaGraph(torch.cuda.CUDAGraph())
        with torch.cuda.graph(captured.graph, stream=stream, capture_error_mode="thread_local"):
            for _ in range(launches):
                captured.result = call()
        self.synchronize()
        return captured
