"""How time is taken: contenders take turns, and each turn is timed in one of 4 modes.

cold   GPU time of one launch with nothing of it in L2, be it data, workspace or code: scratch memory of L2_MULTIPLE
       times the L2 is read before. An event pair stands around the launch, enqueued behind a delay on the GPU, long
       enough that no host gap falls between the events. Nothing follows in the queue but the copy of the result: a
       launch takes longer while the GPU fetches what is queued behind it. LEADING_LAUNCHES empty ones and up to three
       more go before, so that the calls of a turn, 8 or more, have each place in four of the queue: at one of them the
       second launch of a call may begin later (notes/method.md). The argument sets rotate, on from one contender to the
       next.
graph  GPU time of one of the launches that follow one another as in a decode step: captured in a CUDA graph,
       GRAPH_LAUNCHES of them over the argument sets in rotation, which together exceed L2_MULTIPLE times the L2 unless
       each is used once, replayed on an L2 that scratch memory was read through.
warm   GPU time of one launch on data that is in L2 where it fits: launches captured in a CUDA graph, replayed.
host   CPU time of one call that enqueues, with a queue too short for the call to wait.

Each contender has one turn a round, in an order drawn anew for each round from a seed that is kept. Each turn ends with
an empty queue. A round whose SM clock was low against the run's median is measured again.

No contender knows the numbers that it is timed on: a window begins with new numbers in its argument sets and outputs
that hold no answer, and what works before its window shows on the GPU's timeline. What each call returns is copied as
soon as its window ends; the launches of a graph have outputs of their own, as many as there are argument sets. In
JUDGED_ROUNDS rounds at least, drawn for each contender when its turn is over, the copies are judged. So
work that is skipped, kept from earlier, or on its way on another stream or thread when its window ends, is wrong.
"""

import gc
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from cuda.bindings import driver
from torch import Tensor

from triton_vs_tilus.bench.measure import nvml
from triton_vs_tilus.bench.measure.nodes import Nodes, odd_one_out
from triton_vs_tilus.bench.measure.nvml import Reading
from triton_vs_tilus.bench.measure.seals import hooked, seal
from triton_vs_tilus.bench.measure.threads import Threads
from triton_vs_tilus.common.tensors import named_tensors

L2_MULTIPLE = 3
COLD_LAUNCHES = 20
GRAPH_LAUNCHES = 50
WARM_LAUNCHES = 50
HOST_CALLS = 20
LEADING_LAUNCHES = 16
QUEUE_PLACES = 4
LEAST_SETS = 5
WARM_UP_S = 0.3
JUDGED_ROUNDS = 3
ENERGY_S = 0.5
CLOCK_SHARE = 0.95  # of the median SM clock of the run, below which a round is measured again
LEAST_BACKLOG_S = 2e-4
LONGEST_BACKLOG_S = 0.5  # a call that outlasts it waits for the GPU
BACKLOG_SPARE = 1.5  # times what the host took to enqueue the window before

# Called with the name of the contender that runs from here on.
Announce = Callable[[str], None]

# The argument sets of a turn's calls, and copies of what these returned.
Results = list[tuple[int, Any]]

# Whatever a contender puts in their place: a module that is imported later measures nothing by its own clock.
_Event, _record, _query, _wait, _elapsed_ms = (
    torch.cuda.Event,
    torch.cuda.Event.record,
    torch.cuda.Event.query,
    torch.cuda.Event.synchronize,
    torch.cuda.Event.elapsed_time,
)
_synchronize, _sleep, _clone, _now = torch.cuda.synchronize, torch.cuda._sleep, Tensor.clone, time.perf_counter


class Arguments(NamedTuple):
    """What one call is made with: fn(*args, **kwargs)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for _, tensor in named_tensors(self))


@dataclass(frozen=True)
class Timed:
    """One contender as the clock sees it.

    fn             the function that is timed
    argument_sets  what it is called with, in rotation
    fault          of a set's index and a result on it: why it is wrong, or None; None for a function without a result
    refill         enqueues new numbers for the sets of these indices, and outputs that hold no answer
    before         enqueues what goes before a cold launch on the set of this index, once L2 has been read out
    leaves_threads whether its calls may leave threads running, as those of a compiler do
    is_whole       whether the memory that all contenders share is still where it was

    Raises ValueError without argument sets, or for a set without arguments: data in a closure cannot be rotated.
    """

    name: str
    fn: Callable[..., Any]
    argument_sets: Sequence[Arguments]
    fault: Callable[[int, Tensor], str | None] | None = None
    refill: Callable[[Sequence[int]], None] = lambda sets: None
    before: Callable[[int], None] = lambda index: None
    leaves_threads: bool = True
    is_whole: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        if not self.argument_sets or not all(a.args or a.kwargs for a in self.argument_sets):
            raise ValueError(
                f"{self.name}: a timed function takes its data as arguments; a closure over it is not accepted"
            )

    def call(self, index: int) -> Any:
        args, kwargs = self.argument_sets[index]
        return self.fn(*args, **kwargs)

    def watched_call(self, index: int) -> Any:
        """Raises NotTimed where the call leaves something on that runs by itself later."""
        collects = gc.isenabled()
        result = self.call(index)
        reason = hooked()
        if gc.isenabled() and not collects:  # finalizers would run in the clock's own calls
            reason = "leaves Python's garbage collection on"
        if reason:
            raise NotTimed(self.name, reason, wrong=True)
        return result


class Graph(Protocol):
    """A captured series of launches; `results` is what each call returned, `added` what it added to the graph."""

    results: Sequence[Any]
    added: Sequence[Counter[Any]]

    def replay(self) -> None: ...


class DeviceClock(Protocol):
    """What the clock needs of a device. Events and delays go to the current stream."""

    l2_bytes: int
    max_sm_mhz: float | None  # None where there are no readings
    no_reading: str  # why `reading` always returns None; '' where NVML can be asked

    def now(self) -> float:
        """Host seconds."""

    def record(self) -> Any:
        """An event, enqueued."""

    def done(self, event: Any) -> bool:
        """Whether the device has reached an event, without waiting."""

    def elapsed_us(self, start: Any, end: Any) -> float:
        """Microseconds between two events; waits for `end`."""

    def delay(self, seconds: float) -> None:
        """Keeps the device busy, enqueued."""

    def launch_nothing(self, times: int) -> None:
        """Enqueues so many empty launches."""

    def evict_l2(self) -> None:
        """Enqueues a read of scratch memory of L2_MULTIPLE times the L2, which evicts what is in L2."""

    def keep(self, result: Tensor) -> Tensor:
        """A copy, enqueued."""

    def release_l2(self) -> bool:
        """Gives back L2 that was set aside for data that is to stay there; whether any was."""

    def synchronize(self) -> None: ...

    def capture(self, calls: Sequence[Callable[[], Any]]) -> Graph:
        """Raises RuntimeError where a call cannot be captured."""

    def reading(self) -> Reading | None: ...

    def energy_mj(self) -> float | None:
        """Millijoules that the device has used so far; None where it does not count them."""


@dataclass(frozen=True)
class Clocks:
    """SM clock, power and temperature, read before and after each round that is kept."""

    readings: Sequence[Reading]
    repeated_rounds: int
    reason: str  # why there are no readings
    max_sm_mhz: float | None = None


@dataclass(frozen=True)
class Samples:
    """Microseconds of one launch or call; one list a round.

    method      how they were taken, in words
    order_seed  of the order of turns: see `orders`
    energy_uj   microjoules of one launch, of the whole GPU; None where it is not measured
    """

    name: str
    method: str
    rounds: list[list[float]]
    clocks: Clocks
    order_seed: int
    energy_uj: float | None = None


class NotTimed(Exception):
    """A contender that this mode cannot time. wrong: whether that is its fault, as its work runs on another stream, is
    left out, or is incorrect while timed."""

    def __init__(self, contender: str, reason: str, wrong: bool = False):
        super().__init__(f"{contender}: {reason}")
        self.contender, self.reason, self.wrong = contender, reason, wrong


def time_together(
    contenders: Sequence[Timed],
    mode: str,
    rounds: int,
    device: DeviceClock,
    *,
    announce: Announce = lambda name: None,
    energy: bool = False,
) -> list[Samples]:
    """The samples of each contender, in their order. mode: cold, graph, warm or host. energy: of a launch, too, in mode
    graph; it takes ENERGY_S a contender.

    Raises NotTimed for the first contender that this mode cannot time, and ValueError for fewer argument sets than
    `rotation_sets` in mode graph.
    """
    with _no_collection():
        return _time_together(contenders, mode, rounds, device, announce, energy)


def _time_together(
    contenders: Sequence[Timed], mode: str, rounds: int, device: DeviceClock, announce: Announce, energy: bool
) -> list[Samples]:
    modes: dict[str, type[_Cold] | type[_Graph] | type[_Warm] | type[_Host]]
    modes = {"cold": _Cold, "graph": _Graph, "warm": _Warm, "host": _Host}
    seals = seal()
    device.release_l2()
    timer = modes[mode](contenders, device, announce)
    order_seed = secrets.randbits(32)
    drawn = orders(len(contenders), rounds, order_seed)
    due = {contender.name: min(rounds, JUDGED_ROUNDS) for contender in contenders}

    def is_judged(name: str, left: int) -> bool:
        """Drawn after the turn, as a contender could read from this frame what was drawn before. Nor is it ever certain
        that a turn is not judged: that, too, could be read."""
        if not (left and due[name]):
            return secrets.randbelow(rounds) < JUDGED_ROUNDS
        drawn = secrets.randbelow(left) < due[name]
        due[name] -= drawn
        return drawn

    def round_(
        index: int, left: int | None = None, is_first: bool = False
    ) -> tuple[dict[str, list[float]], list[Reading]]:
        """left: the rounds to come, with this one; 0 of a round that is measured again. None: nothing is judged."""
        before = device.reading()
        times = {}
        for position in drawn[index]:
            contender = contenders[position]
            announce(contender.name)
            with threads_counted(contender, native=not is_first):
                times[contender.name], results = timer.turn(contender)
            if left is not None and is_judged(contender.name, left):
                judge(contender, results)
            del results
            if reason := seals.broken():
                raise NotTimed(contender.name, reason, wrong=True)
            if device.release_l2():
                raise NotTimed(contender.name, "sets L2 aside, where its data stays between launches", wrong=True)
        return times, [reading for reading in (before, device.reading()) if reading is not None]

    warm_until = device.now() + WARM_UP_S
    round_(0, is_first=True)
    while device.now() < warm_until:
        round_(0)

    kept = [round_(index, left=rounds - index) for index in range(rounds)]
    repeated = 0
    while repeated < rounds and (low := _low_rounds([readings for _, readings in kept])):
        for index in low[: rounds - repeated]:
            kept[index] = round_(index, left=0)
            repeated += 1

    clocks = Clocks(
        [reading for _, readings in kept for reading in readings], repeated, device.no_reading, device.max_sm_mhz
    )
    energies = timer.energies(contenders, announce) if energy and isinstance(timer, _Graph) else {}
    return [
        Samples(c.name, timer.method, [times[c.name] for times, _ in kept], clocks, order_seed, energies.get(c.name))
        for c in contenders
    ]


def orders(count: int, rounds: int, seed: int) -> list[list[int]]:
    """The order of `count` contenders in each round, drawn independently: no two keep being neighbours."""
    drawing = np.random.default_rng(seed)
    return [drawing.permutation(count).tolist() for _ in range(rounds)]


def _low_rounds(readings: Sequence[Sequence[Reading]]) -> list[int]:
    """The rounds whose lowest SM clock is under CLOCK_SHARE of the median over rounds; of those that have readings."""
    clocks = {index: min(reading.sm_mhz for reading in taken) for index, taken in enumerate(readings) if taken}
    return [index for index, clock in clocks.items() if clock < CLOCK_SHARE * np.median(list(clocks.values()))]


def rotation_sets(bytes_per_set: int, l2_bytes: int) -> int:
    """How many argument sets no launch of a graph finds in L2: those that together exceed L2_MULTIPLE times the L2, but
    no more than each is launched on once; LEAST_SETS or more, as a cold turn has no more samples than sets."""
    return min(GRAPH_LAUNCHES, max(LEAST_SETS, L2_MULTIPLE * l2_bytes // bytes_per_set + 1))


class _Queued:
    """One window at a time, all of whose work is enqueued before the GPU starts any of it."""

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock):
        self.device = device
        self.backlog_s = dict.fromkeys((c.name for c in contenders), LEAST_BACKLOG_S)

    def behind_backlog(
        self, timed: Timed, sets: Sequence[int], before: Callable[[], None], enqueue: Callable[[], tuple[Any, Any]]
    ) -> float:
        """Microseconds between the event pair that `enqueue` returns, on these sets. before: enqueues what comes before
        the delay.

        Where the delay ended before the host had enqueued everything, the delay is doubled and all is repeated; else
        the next one is by what the host took, as a first call takes longest. Raises NotTimed past LONGEST_BACKLOG_S."""
        device, name = self.device, timed.name
        while True:
            timed.refill(sorted(set(sets)))
            before()
            device.delay(self.backlog_s[name])
            delay_end = device.record()
            since = device.now()
            start, end = enqueue()
            took_s = device.now() - since
            covered = not device.done(delay_end)
            elapsed_us = device.elapsed_us(start, end)
            device.synchronize()
            if covered:
                self.backlog_s[name] = max(LEAST_BACKLOG_S, BACKLOG_SPARE * took_s)
                return elapsed_us
            self.backlog_s[name] *= 2
            if self.backlog_s[name] > LONGEST_BACKLOG_S:
                raise NotTimed(name, f"its calls outlast a queue of {LONGEST_BACKLOG_S} s: a call waits for the GPU")


class _Cold(_Queued):
    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, announce: Announce):
        super().__init__(contenders, device)
        self.next_set = 0
        self.sets = len(contenders[0].argument_sets)
        if any(len(c.argument_sets) != self.sets for c in contenders):
            raise ValueError("contenders have argument sets of different counts; accepted: the same rotation for all")
        self.method = (
            f"cold L2: event pair around one launch, alone behind a delay on the GPU; {self.sets} argument sets in "
            f"rotation; before each launch its set filled anew and {L2_MULTIPLE} times the L2 of "
            f"{device.l2_bytes / 2**20:.0f} MiB read"
        )

    def turn(self, timed: Timed) -> tuple[list[float], Results]:
        """COLD_LAUNCHES samples, or as many as there are sets: a set that came back, filled anew, could no longer be
        judged by the numbers before."""
        times: list[float] = []
        results: dict[int, Any] = {}
        for _ in range(min(COLD_LAUNCHES, self.sets)):
            place = self.next_set

            def enqueue(place: int = place) -> tuple[Any, Any]:
                start = self.device.record()
                result = timed.watched_call(place)
                end = self.device.record()
                results[place] = _kept(self.device, result)
                return start, end

            times.append(self.behind_backlog(timed, [place], partial(self._before, timed, place), enqueue))
            self.next_set = (place + 1) % self.sets
        return times, list(results.items())

    def _before(self, timed: Timed, place: int) -> None:
        self.device.evict_l2()
        timed.before(place)
        self.device.launch_nothing(LEADING_LAUNCHES + place % QUEUE_PLACES)


class _Captured(_Queued):
    """Turns that replay a CUDA graph of launches."""

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, announce: Announce):
        super().__init__(contenders, device)
        self.graphs = {}
        for timed in contenders:
            announce(timed.name)
            with threads_counted(timed):
                self.graphs[timed.name] = self._captured(timed)

    def places(self, timed: Timed) -> list[int]:
        """The argument sets of the launches of a graph, in their order."""
        raise NotImplementedError

    def fill_l2(self, graph: Graph) -> None:
        """Enqueues what L2 holds when the window begins."""
        raise NotImplementedError

    def _captured(self, timed: Timed) -> Graph:
        places = self.places(timed)
        timed.refill(sorted(set(places)))
        try:
            graph = self.device.capture([partial(timed.watched_call, place) for place in places])
        except NotTimed:
            raise
        except Exception as error:
            raise NotTimed(timed.name, f"cannot be captured in a CUDA graph: {first_line(error)}") from error
        if reason := odd_one_out(graph.added):
            raise NotTimed(timed.name, reason, wrong=True)
        seen = {places[index] for index, _ in distinct(graph.results)}
        if timed.fault is not None and len(seen) < len(set(places)):
            raise NotTimed(timed.name, "returns one memory for several argument sets: all but the last are unseen")
        # A launch on another stream is not part of the graph: it ran during the capture, and in no replay.
        if not self._is_written(graph):
            raise NotTimed(timed.name, "its work is not in the CUDA graph that captured it: another stream", wrong=True)
        return graph

    def _is_written(self, graph: Graph) -> bool:
        """Whether a replay writes all of every result."""
        graph.replay()  # only now is there a result, where it is in the graph's own memory
        results = [result for _, result in distinct(graph.results) if type(result) is Tensor]
        unwritten = [float("nan") if result.is_floating_point() else ~result for result in results]
        for result, value in zip(results, unwritten, strict=True):
            result.copy_(torch.as_tensor(value))
        graph.replay()
        self.device.synchronize()
        left = [
            result.isnan() if result.is_floating_point() else result == value
            for result, value in zip(results, unwritten, strict=True)
        ]
        return not any(bool(elements.any()) for elements in left)

    def turn(self, timed: Timed) -> tuple[list[float], Results]:
        """One sample. The results stand in the graph's own outputs until its next replay."""
        graph, places = self.graphs[timed.name], self.places(timed)

        def enqueue() -> tuple[Any, Any]:
            start = self.device.record()
            graph.replay()
            return start, self.device.record()

        elapsed_us = self.behind_backlog(timed, places, partial(self.fill_l2, graph), enqueue)
        return [elapsed_us / len(places)], [(places[index], result) for index, result in distinct(graph.results)]


def distinct(results: Sequence[Any]) -> list[tuple[int, Any]]:
    """Those in memory of their own, with their index; of several at one address the last."""
    by_memory = {
        result.data_ptr() if type(result) is Tensor else id(result): (index, result)
        for index, result in enumerate(results)
    }
    return list(by_memory.values())


class _Graph(_Captured):
    method = (
        f"cold L2 in a CUDA graph: event pair around a replay of {GRAPH_LAUNCHES} or more launches, one after the "
        "other, over the argument sets in rotation, filled anew and L2 read out before; per launch"
    )

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, announce: Announce):
        for timed in contenders:
            sets, total = len(timed.argument_sets), sum(arguments.nbytes for arguments in timed.argument_sets)
            if sets < 2 or (sets < GRAPH_LAUNCHES and total <= L2_MULTIPLE * device.l2_bytes):
                raise ValueError(
                    f"{timed.name}: {sets} argument sets hold {total} bytes; accepted: 2 or more sets that exceed "
                    f"{L2_MULTIPLE} times the L2 of {device.l2_bytes} bytes, or {GRAPH_LAUNCHES}"
                )
        super().__init__(contenders, device, announce)

    def places(self, timed: Timed) -> list[int]:
        sets = len(timed.argument_sets)
        return list(range(GRAPH_LAUNCHES)) if sets >= GRAPH_LAUNCHES else [*range(sets)] * -(-GRAPH_LAUNCHES // sets)

    def fill_l2(self, graph: Graph) -> None:
        self.device.evict_l2()

    def energies(self, contenders: Sequence[Timed], announce: Announce) -> dict[str, float]:
        """Microjoules of a launch, by name, over ENERGY_S of replays: NVML renews its sum some 10 times a second. Not
        of one at whose turn NVML does not tell the sum."""
        found = {}
        for timed in contenders:
            announce(timed.name)
            graph, replays, start = self.graphs[timed.name], 0, self.device.now()
            before = self.device.energy_mj()
            if before is None:
                continue
            while self.device.now() - start < ENERGY_S:
                graph.replay()
                self.device.synchronize()
                replays += 1
            after = self.device.energy_mj()
            if after is not None:
                found[timed.name] = (after - before) * 1000 / (replays * len(graph.results))
        return found


class _Warm(_Captured):
    method = (
        f"warm L2: event pair around a replayed CUDA graph of {WARM_LAUNCHES} launches on one argument set, filled "
        "anew before each turn, per launch"
    )

    def places(self, timed: Timed) -> list[int]:
        return [0] * WARM_LAUNCHES

    def fill_l2(self, graph: Graph) -> None:
        graph.replay()


class _Host:
    method = f"host: wall clock around one call that only enqueues; the queue is emptied after {HOST_CALLS} calls"

    def __init__(self, contenders: Sequence[Timed], device: DeviceClock, announce: Announce):
        self.device = device

    def turn(self, timed: Timed) -> tuple[list[float], Results]:
        timed.refill([0])
        self.device.synchronize()
        times = []
        for _ in range(HOST_CALLS):
            start = self.device.now()
            result = timed.call(0)
            times.append((self.device.now() - start) * 1e6)
        results = [(0, _kept(self.device, result))]
        self.device.synchronize()
        return times, results


def _kept(device: DeviceClock, result: Any) -> Any:
    return device.keep(result) if type(result) is Tensor else result


def judge(timed: Timed, results: Results) -> None:
    """Raises NotTimed for the first result that is wrong on its argument set."""
    for place, result in results:
        if timed.fault is None:
            continue
        if type(result) is not Tensor:
            raise NotTimed(timed.name, f"returns {type(result).__name__}; expected torch.Tensor itself", wrong=True)
        if reason := timed.fault(place, result):
            raise NotTimed(timed.name, reason, wrong=True)


@contextmanager
def threads_counted(timed: Timed, native: bool = False) -> Iterator[None]:
    """Raises NotTimed where a contender leaves threads running that it began inside, and may not, or has freed memory
    that others share. native: as Threads has it. Counts before and after, so nothing of it is in a window inside."""
    if timed.leaves_threads:
        yield
        return
    before = Threads(native)
    yield
    if not timed.is_whole():  # the next contender would crash
        raise NotTimed(timed.name, "frees or resizes memory that all contenders share", wrong=True)
    if reason := before.left():
        raise NotTimed(timed.name, reason, wrong=True)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: inside a capture it may unload a kernel, which ends the capture; in a call it is noise."""
    _keep_what_is_loaded()
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def _keep_what_is_loaded() -> None:
    """Collections pass over torch, the compilers and all contenders from here on: a walk through them takes 0.2 s."""
    gc.collect()
    gc.freeze()


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


@dataclass
class _CudaGraph:
    graph: torch.cuda.CUDAGraph
    results: Sequence[Any] = ()
    added: Sequence[Counter[Any]] = ()

    def replay(self) -> None:
        self.graph.replay()


@dataclass
class CudaClock:
    """A CUDA device, with NVML's readings of it where NVML can be asked."""

    device: torch.device
    l2_bytes: int = field(init=False)
    max_sm_mhz: float | None = field(init=False, default=None)
    no_reading: str = field(init=False, default="")
    _least_l2_aside: int = field(init=False, default=0)  # what is left of it where 0 is asked for

    def __post_init__(self) -> None:
        torch.cuda.set_device(self.device)
        properties = torch.cuda.get_device_properties(self.device)
        self.l2_bytes = properties.L2_cache_size
        self._open_nvml(str(properties.uuid))
        _sleep(1000)
        start = self.record()
        _sleep(2_000_000)
        self._cycles_per_s = 2e12 / self.elapsed_us(start, self.record())

    def _open_nvml(self, uuid: str) -> None:
        try:
            self._gpu = nvml.Gpu(uuid)
            self._gpu.reading()
            self.max_sm_mhz = self._gpu.max_sm_mhz()
        except nvml.NVMLError as error:
            self.no_reading = f"NVML: {error}"

    def reading(self) -> Reading | None:
        if self.no_reading:
            return None
        try:
            return self._gpu.reading()
        except nvml.NVMLError:  # now and then: no fault of who runs
            return None

    def energy_mj(self) -> float | None:
        return None if self.no_reading else self._gpu.energy_mj()

    def now(self) -> float:
        return _now()

    def record(self) -> torch.cuda.Event:
        event = _Event(enable_timing=True)
        _record(event)
        return event

    def done(self, event: torch.cuda.Event) -> bool:
        return _query(event)

    def elapsed_us(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        _wait(end)
        return _elapsed_ms(start, end) * 1000

    def delay(self, seconds: float) -> None:
        _sleep(int(seconds * self._cycles_per_s))

    def launch_nothing(self, times: int) -> None:
        for _ in range(times):
            _sleep(0)

    def evict_l2(self) -> None:
        torch.sum(self._scratch, dim=0, out=self._sum)

    @cached_property
    def _scratch(self) -> Tensor:
        return torch.zeros(L2_MULTIPLE * self.l2_bytes // 8, dtype=torch.int64, device=self.device)

    @cached_property
    def _sum(self) -> Tensor:
        return torch.empty((), dtype=torch.int64, device=self.device)

    def keep(self, result: Tensor) -> Tensor:
        return _clone(result)

    def release_l2(self) -> bool:
        limit = driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        error, held = driver.cuCtxGetLimit(limit)
        if error or held <= self._least_l2_aside:  # a GPU without it has none to give
            return False
        driver.cuCtxSetLimit(limit, 0)
        driver.cuCtxResetPersistingL2Cache()
        self._least_l2_aside = driver.cuCtxGetLimit(limit)[1]
        return True

    def synchronize(self) -> None:
        _synchronize(self.device)

    def capture(self, calls: Sequence[Callable[[], Any]]) -> _CudaGraph:
        """Calls once on the capturing stream first, as a first call may compile or allocate."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            calls[0]()
        self.synchronize()
        captured = _CudaGraph(torch.cuda.CUDAGraph())
        with torch.cuda.graph(captured.graph, stream=stream, capture_error_mode="thread_local"):
            nodes = Nodes(stream)
            done = [(call(), nodes.added()) for call in calls]
        captured.results, captured.added = zip(*done, strict=True)
        self.synchronize()
        return captured
