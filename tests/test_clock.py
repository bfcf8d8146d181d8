"""The clock on a made-up device, whose host and GPU each have a time of their own."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from math import comb

import numpy as np
import pytest
import torch
from fake_device import HOST_CALL_US, FakeDevice

from triton_vs_tilus.bench.measure import clock, stats
from triton_vs_tilus.bench.measure.clock import Arguments, NotTimed, Timed, orders, time_together
from triton_vs_tilus.bench.measure.nvml import Reading
from triton_vs_tilus.bench.measure.seals import seal

pytestmark = pytest.mark.xdist_group("clock")  # its fixtures are long: once, not once a process


@pytest.fixture(autouse=True)
def a_short_warm_up(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.002)
    monkeypatch.setattr(clock, "ENERGY_S", 0.01)


def contender(device: FakeDevice, microseconds, name: str = "some", sets: int = 3, calls: list | None = None) -> Timed:
    """microseconds: a number, or a function of how often it was called."""
    made = 0

    def fn(x, *, out):
        nonlocal made
        made += 1
        if calls is not None:
            calls.append((name, int(x[0])))
        duration = microseconds(made) if callable(microseconds) else microseconds
        device.launch(duration, lambda: out.copy_(x))
        return out

    return Timed(name, fn, [Arguments((torch.full((4,), float(i)),), {"out": torch.empty(4)}) for i in range(sets)])


@pytest.mark.parametrize("sets", [[], [Arguments((), {})]])
def test_a_closure_is_refused(sets):
    with pytest.raises(ValueError, match="closure"):
        Timed("closure", lambda: None, sets)


def test_orders_are_drawn_anew_for_each_round_and_are_those_of_their_seed():
    drawn = orders(7, 400, seed=5)
    assert drawn == orders(7, 400, seed=5) != orders(7, 400, seed=6)
    assert all(sorted(order) == list(range(7)) for order in drawn)
    followers = Counter(pair for order in drawn for pair in pairwise(order))
    assert len(followers) == 7 * 6 and max(followers.values()) < 2 * min(followers.values())  # 57 each, on average


def test_turns_are_taken_in_the_order_of_the_seed_that_is_told():
    device, told = FakeDevice(), []
    playing = [contender(device, 5, name) for name in "abc"]
    samples = time_together(playing, "host", 6, device, announce=told.append)
    (seed,) = {each.order_seed for each in samples}
    assert told[-6 * 3 :] == ["abc"[i] for order in orders(3, 6, seed) for i in order]


def test_cold_times_the_launch_and_no_host_gap():
    device = FakeDevice()
    (samples,) = time_together([contender(device, 5.0, sets=23)], "cold", 4, device)
    assert np.allclose(samples.rounds, 5.0)
    assert len(samples.rounds) == 4 and len(samples.rounds[0]) == clock.COLD_LAUNCHES
    assert "cold" in samples.method and "23 argument sets" in samples.method


def test_cold_lengthens_a_backlog_that_the_host_outlasts(monkeypatch):
    monkeypatch.setattr(clock, "LEAST_BACKLOG_S", 10e-6)
    device = FakeDevice()
    (samples,) = time_together([contender(device, 5.0)], "cold", 3, device)
    assert np.allclose(samples.rounds, 5.0)


def test_cold_enqueues_no_more_than_the_queue_holds():
    device = FakeDevice(depth=12)

    def fn(x, *, out):  # twenty of these are more launches than that
        for _ in range(10):
            device.launch(0.5)

    (samples,) = time_together([Timed("many", fn, contender(device, 5.0, sets=30).argument_sets)], "cold", 3, device)
    assert np.allclose(samples.rounds, 5.0)
    assert all(len(of_round) == clock.COLD_LAUNCHES for of_round in samples.rounds)


@pytest.mark.parametrize("depth", [None, 12])  # the queue holds a turn, or one of its calls
@pytest.mark.parametrize("sets", [3, 30])
def test_all_results_of_a_turn_are_judged(depth, sets):
    device, seen = FakeDevice(depth=depth), []

    def fn(x, *, out):
        for _ in range(10):
            device.launch(0.5)
        return out

    arguments = contender(device, 5.0, sets=sets).argument_sets
    made = Timed("many", fn, arguments, lambda index, result: seen.append(index))
    (samples,) = time_together([made], "cold", 3, device)
    assert len(seen) == sum(map(len, samples.rounds)) == 3 * min(clock.COLD_LAUNCHES, sets)


def test_a_call_that_waits_for_the_gpu_cannot_be_timed():
    device = FakeDevice()

    def fn(x, *, out):
        device.launch(5.0)
        device.synchronize()

    sets = contender(device, 5.0).argument_sets
    with pytest.raises(NotTimed, match="waits") as caught:
        time_together([Timed("waiting", fn, sets)], "cold", 3, device)
    assert caught.value.contender == "waiting" and not caught.value.wrong


def test_no_delay_is_longer_than_half_a_second():
    """Doubled from 0.2 ms, the last is of 410 ms: a call that waits for the GPU is found within 1 s of its time."""
    device = FakeDevice()

    def fn(x, *, out):
        device.launch(5.0)
        device.synchronize()

    with pytest.raises(NotTimed, match=r"outlast a queue of 0\.5 s"):
        time_together([Timed("waiting", fn, contender(device, 5.0).argument_sets)], "cold", 3, device)
    assert max(device.delays) == pytest.approx(0.4096) and sum(device.delays) < 1


def test_a_slow_host_is_covered_by_a_longer_delay():
    """A call that takes the host 10 ms."""
    device = FakeDevice()

    def fn(x, *, out):
        device.host += 10e-3
        device.launch(5.0)

    (samples,) = time_together([Timed("slow", fn, contender(device, 5.0).argument_sets)], "cold", 3, device)
    assert np.allclose(samples.rounds, 5.0)
    assert max(device.delays) == pytest.approx(15e-3, rel=0.01)  # by what a call took, once a delay had covered it


def test_slow_first_calls_lengthen_no_later_delay():
    """The first 3 calls take the host 1 ms each, as they load what they launch."""
    device, calls = FakeDevice(), 0

    def fn(x, *, out):
        nonlocal calls
        calls += 1
        device.host += 1e-3 if calls <= 3 else 0
        device.launch(5.0)

    (samples,) = time_together([Timed("loading", fn, contender(device, 5.0).argument_sets)], "cold", 3, device)
    assert np.allclose(samples.rounds, 5.0)
    assert device.delays == pytest.approx([2e-4, 4e-4, 8e-4, 16e-4, *[2e-4] * (len(device.delays) - 4)])


def test_cold_goes_on_rotating_from_one_contender_to_the_next():
    device, calls = FakeDevice(), []
    time_together([contender(device, 5, name, sets=7, calls=calls) for name in "ab"], "cold", 4, device)
    assert {name for name, _ in calls} == {"a", "b"}
    assert all((before + 1) % 7 == after for (_, before), (_, after) in pairwise(calls))


@pytest.mark.parametrize("l2_bytes, sets", [(32, 3), (1, 1)])
def test_a_graph_on_cold_l2_refuses_sets_that_stay_in_l2(l2_bytes, sets):
    device = FakeDevice(l2_bytes)
    with pytest.raises(ValueError, match="L2"):
        time_together([contender(device, 5, sets=sets)], "graph", 2, device)


def test_a_graph_on_cold_l2_refuses_where_the_sets_of_one_contender_stay_in_l2():
    device = FakeDevice(l2_bytes=32)
    large = Timed("large", lambda x: x, [Arguments((torch.ones(100),), {})] * 3)
    with pytest.raises(ValueError, match="3 argument sets hold 96 bytes"):
        time_together([large, contender(device, 5)], "graph", 2, device)


def test_cold_refuses_contenders_of_different_rotations():
    device = FakeDevice()
    with pytest.raises(ValueError, match="different counts"):
        time_together([contender(device, 5, sets=3), contender(device, 5, "other", sets=4)], "cold", 2, device)


@pytest.mark.parametrize("bytes_per_set", [1, 1000, 60_000, 20_000_000, 60_000_000, 10**12])
def test_enough_sets_are_made_for_cold(bytes_per_set):
    count = clock.rotation_sets(bytes_per_set, 60_000_000)
    assert clock.LEAST_SETS <= count <= clock.GRAPH_LAUNCHES
    assert count == clock.GRAPH_LAUNCHES or count * bytes_per_set > 3 * 60_000_000


def test_l2_is_read_out_before_each_cold_launch():
    device, calls = FakeDevice(l2_bytes=10_000), []
    (samples,) = time_together([contender(device, 5.0, sets=7, calls=calls)], "cold", 4, device)
    assert np.allclose(samples.rounds, 5.0)  # the reading is in no window
    assert device.evictions == len(calls) == len(device.delays)
    assert "3 times the L2" in samples.method


@pytest.mark.parametrize("mode", ["cold", "graph", "warm"])
def test_what_a_window_is_enqueued_in(mode, monkeypatch):
    """Numbers, what L2 is to hold, and the delay; between the events the call alone, and behind them its copy alone."""
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    device, done = FakeDevice(), []

    def told(name):
        real = getattr(device, name)

        def call(*args):
            done.append(name)
            return real(*args)

        return call

    for name in ("evict_l2", "launch_nothing", "delay", "record", "keep"):
        monkeypatch.setattr(device, name, told(name))

    def fn(x, *, out):
        device.launch(5.0, lambda: (done.append("call"), out.copy_(x)))
        return out

    made = replace(
        contender(device, 5.0, sets=2),
        fn=fn,
        refill=lambda sets: done.append(("numbers", *sets)),
        before=lambda index: done.append(f"before {index}"),
    )
    time_together([made], mode, 1, device)
    graph = ["delay", "record", "record", *["call"] * 50, "record"]
    window = {
        "cold": ["evict_l2", "before {}", "launch_nothing", "delay", "record", "record", "call", "record", "keep"],
        "graph": ["evict_l2", *graph],
        "warm": [*["call"] * 50, *graph],
    }[mode]
    windows = {"cold": [0, 1] * 2, "graph": [(0, 1)] * 2, "warm": [0] * 2}[mode]  # a round before the one that counts
    taken = [
        step
        for sets in windows
        for step in [("numbers", *np.atleast_1d(sets).tolist()), *(step.format(sets) for step in window)]
    ]
    assert done[-len(taken) :] == taken


@pytest.mark.parametrize("launches_beside", [1, 2, 3, 4])
@pytest.mark.parametrize("sets", [8, 20])
def test_a_cold_turn_has_calls_at_each_place_of_four_in_the_queue(launches_beside, sets):
    device, calls = FakeDevice(), []
    (samples,) = time_together([contender(device, 5.0, calls=calls, sets=sets)], "cold", 4, device)
    assert len(device.leading) == len(calls) and set(device.leading) == {16, 17, 18, 19}
    assert np.allclose(samples.rounds, 5.0)
    before = np.cumsum(device.leading) + launches_beside * np.arange(len(calls))  # each call
    for turn in before.reshape(-1, sets):
        counts = np.bincount(turn % 4, minlength=4)
        assert sets // 4 - 1 <= counts.min() and counts.max() <= sets // 4 + 1


@pytest.mark.parametrize("mode", ["graph", "warm"])
def test_a_replay_is_counted_per_launch(mode):
    device = FakeDevice()
    (samples,) = time_together([contender(device, 5.0)], mode, 4, device)
    assert np.allclose(samples.rounds, 5.0) and "CUDA graph" in samples.method


def test_energy_is_that_of_a_launch_in_a_graph():
    device = FakeDevice()
    assert time_together([contender(device, 5.0)], "graph", 2, device, energy=True)[0].energy_uj is None
    device.watts = 400.0
    playing = [contender(device, us, str(us)) for us in (50.0, 500.0)]
    assert [samples.energy_uj for samples in time_together(playing, "graph", 2, device)] == [None, None]
    one, other = time_together(playing, "graph", 2, device, energy=True)
    assert (one.energy_uj, other.energy_uj) == pytest.approx((20_000, 200_000), rel=0.01)  # 400 W
    readings = iter([1000, None, 2000, 3000])
    device.energy_mj = lambda: next(readings)
    one, other = time_together(playing, "graph", 2, device, energy=True)
    assert one.energy_uj is None and other.energy_uj > 0
    readings = iter([1000, 2000, None])
    one, other = time_together(playing, "graph", 2, device, energy=True)
    assert one.energy_uj > 0 and other.energy_uj is None


@pytest.mark.parametrize("sets, launches", [(3, 51), (60, 50)])
def test_a_graph_on_cold_l2_goes_through_the_sets_and_begins_after_a_read_of_other_memory(sets, launches):
    device, calls = FakeDevice(), []
    time_together([contender(device, 5, sets=sets, calls=calls)], "graph", 2, device)
    assert [index for _, index in calls] == [launch % sets for launch in range(launches)]  # captured once
    assert device.evictions


@pytest.mark.parametrize("mode, replays", [("graph", 1), ("warm", 2)])
def test_a_warm_replay_follows_another_in_each_turn(monkeypatch, mode, replays):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    device, ran = FakeDevice(), []

    def fn(x, *, out):
        device.launch(5.0, lambda: (ran.append(x), out.copy_(x)))
        return out

    time_together([replace(contender(device, 5, sets=2), fn=fn)], mode, 4, device)
    assert len(ran) == 50 * (2 + 5 * replays)  # 2 see what was captured; 4 rounds and one before


RESULTS = [torch.bfloat16, torch.float32, torch.int32, torch.int64]


def warm(device: FakeDevice, name: str, fn: Callable, dtype: torch.dtype, before: float) -> None:
    """Times fn(x, *, out), x being 1 everywhere and `out` at first something else."""
    sets = [Arguments((torch.ones(4, dtype=dtype),), {"out": torch.full((4,), before, dtype=dtype)})]
    time_together([Timed(name, fn, sets)], "warm", 2, device)


@pytest.mark.parametrize("dtype", RESULTS, ids=str)
@pytest.mark.parametrize("captured", [0, 3])
def test_warm_notices_work_that_was_not_captured(captured, dtype):
    device = FakeDevice()

    def fn(x, *, out):
        device.launch(5.0, lambda: out[:captured].copy_(x[:captured]))
        out[captured:].copy_(x[captured:])  # now, and not when the graph is replayed
        return out

    with pytest.raises(NotTimed, match="not in the CUDA graph") as caught:
        warm(device, "elsewhere", fn, dtype, before=7)
    assert caught.value.wrong


@pytest.mark.parametrize("dtype", RESULTS, ids=str)
@pytest.mark.parametrize("before", [1, -2])  # the right result, and of integers its complement
def test_warm_takes_a_result_that_is_written_in_replays_alone(before, dtype):
    """As in memory of the graph's own, which holds anything until then."""
    device = FakeDevice()

    def fn(x, *, out):
        device.launch(5.0, lambda: out.copy_(x))
        return out

    warm(device, "whole", fn, dtype, before)


def test_warm_says_what_cannot_be_captured():
    device = FakeDevice()

    def capture(calls):
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    device.capture = capture
    with pytest.raises(NotTimed, match=r"cannot be captured.*not permitted") as caught:
        time_together([contender(device, 5)], "warm", 2, device)
    assert not caught.value.wrong


def test_host_times_the_call_alone():
    device = FakeDevice()
    (samples,) = time_together([contender(device, 500.0)], "host", 3, device)
    assert np.allclose(samples.rounds, HOST_CALL_US, rtol=1e-2)


def test_no_call_waits_for_the_numbers_of_its_turn():
    """They are on their way for 1 ms, and the queue is as long as the calls of a turn."""
    device = FakeDevice(depth=clock.HOST_CALLS)
    playing = replace(contender(device, 5.0), refill=lambda sets: device.launch(1000.0))
    (samples,) = time_together([playing], "host", 3, device)
    assert np.allclose(samples.rounds, HOST_CALL_US, rtol=1e-2)


def test_turns_warm_the_device_up_before_the_first_that_counts():
    device, told = FakeDevice(), []
    time_together([contender(device, 5.0)], "host", 3, device, announce=lambda name: told.append(device.host))
    assert told[-3] - told[0] > clock.WARM_UP_S


def reading(sm_mhz: float) -> Reading:
    return Reading(sm_mhz, 300.0, 40.0)


def test_a_round_of_low_clock_is_measured_again(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    monkeypatch.setattr(clock, "JUDGED_ROUNDS", 5)
    high, low, judged = reading(1980), reading(1400), []
    device = FakeDevice(readings=[high, high, *[high] * 4, high, low, *[high] * 8])
    playing = replace(contender(device, 5), fault=lambda index, result: judged.append(index))
    (samples,) = time_together([playing], "host", 5, device)
    assert samples.clocks.repeated_rounds == 1 and len(judged) == 6
    assert len(samples.rounds) == 5 and [r.sm_mhz for r in samples.clocks.readings] == [1980] * 2 * 5


def test_a_low_clock_is_one_under_95_percent_of_the_median():
    rounds = [[reading(1010), reading(mhz)] for mhz in (1040, 1000, 1000, 951, 949)]
    assert clock._low_rounds(rounds) == [4]
    assert clock._low_rounds([[], *rounds, []]) == [5], "a round without readings hides no other"
    assert clock._low_rounds([[], []]) == []


def test_repeating_ends(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    unsteady = [reading(mhz) for mhz in [1980] * 8 + [1000, 1000] * 100]
    device = FakeDevice(readings=unsteady)
    (samples,) = time_together([contender(device, 5)], "host", 5, device)
    assert 0 < samples.clocks.repeated_rounds <= 5


def test_a_device_without_readings_says_why():
    device = FakeDevice()
    (samples,) = time_together([contender(device, 5)], "host", 2, device)
    assert samples.clocks.readings == [] and samples.clocks.reason == device.no_reading


def test_where_nvml_does_not_answer_once_there_is_no_reading():
    """Raised there it would be the fault of the contender whose turn it is."""

    class Silent:
        def reading(self):
            raise clock.nvml.NVMLError(clock.nvml.pynvml.NVML_ERROR_UNKNOWN)

    device = object.__new__(clock.CudaClock)
    device._gpu = Silent()
    assert device.no_reading == "" and device.reading() is None


def test_the_same_contender_twice_is_a_tie():
    device = FakeDevice()
    drift = np.random.default_rng(0).normal(10, 0.2, size=100_000)
    a, b = (contender(device, lambda call, at=at: drift[at + call], str(at)) for at in (0, 40_000))
    first, again = time_together([a, b], "cold", 30, device)
    noise = stats.noise(first.rounds, again.rounds)
    ratio = stats.paired_ratio(first.rounds, again.rounds)
    assert noise < 0.01 and ratio.verdict(noise) == "tie"
    assert ratio.low <= ratio.value <= ratio.high


def test_pairing_takes_a_drift_out():
    drift = np.linspace(1, 3, 40)[:, None]
    jitter = np.random.default_rng(0).normal(1, 0.005, size=(2, 40, 20))
    ratio = stats.paired_ratio((10 * drift * jitter[0]).tolist(), (9 * drift * jitter[1]).tolist())
    assert 1.10 < ratio.low < ratio.value < ratio.high < 1.12
    assert ratio.verdict(noise=0.01) == "faster"
    assert ratio.verdict(noise=0.2) == "tie"


def test_round_is_paired_with_round():
    assert stats.paired_ratio([[1.0], [2.0], [3.0]], [[3.0], [1.0], [2.0]]).value == 1.5


def test_a_tie_is_an_interval_around_1_or_a_lead_within_the_noise():
    verdicts = {0.04: [], 0.06: []}
    for value in (1.05, 0.95):
        for noise, found in verdicts.items():
            found.append(stats.Ratio(value, value - 0.01, value + 0.01).verdict(noise))
    assert verdicts == {0.04: ["faster", "slower"], 0.06: ["tie", "tie"]}
    for low, value, high in ((1.0, 1.05, 1.1), (0.99, 1.05, 1.11), (0.9, 0.95, 1.0), (0.89, 0.95, 1.01)):
        assert stats.Ratio(value, low, high).verdict(0.0) == "tie"
    assert stats.Ratio(0.75, 0.7, 0.8).verdict(0.25) == "tie"


def test_slower_is_said_too_and_the_interval_is_the_same_every_time():
    rng = np.random.default_rng(1)
    baseline, other = rng.normal(9, 0.1, (30, 20)).tolist(), rng.normal(10, 0.1, (30, 20)).tolist()
    assert stats.paired_ratio(baseline, other).verdict(0.0) == "slower"
    assert stats.paired_ratio(baseline, other, seed=3) == stats.paired_ratio(baseline, other, seed=3)


def test_the_interval_is_the_middle_95_percent_of_the_bootstrap():
    """Held against its exact distribution. Of n values n are drawn with replacement; their median, for an odd n, is at
    most the k-th smallest value where more than half of the draws are among the k smallest: a binomial's tail."""
    n = 27
    ratios = np.random.default_rng(5).permutation(np.arange(1.0, n + 1))

    def chance(k: int) -> float:
        return sum(comb(n, i) * (k / n) ** i * (1 - k / n) ** (n - i) for i in range(n // 2 + 1, n + 1))

    low, high = (next(k for k in range(1, n + 1) if chance(k) >= share) for share in (0.025, 0.975))
    assert (low, high) == (9, 19)  # of 90 % it is 10 to 18, of 99 % 8 to 20
    ratio = stats.paired_ratio([[value] for value in ratios], [[1.0]] * n)
    assert (ratio.low, ratio.value, ratio.high) == (low, 14, high)


def test_one_bad_round_makes_no_noise():
    """Else one disturbed round would make a tie of every lead."""
    baseline, again = [[10.0]] * 6 + [[90.0]], [[10.0]] * 4 + [[9.0], [11.0], [10.0]]
    assert stats.noise(baseline, again) == 0.0
    assert stats.noise([[9.0]] * 7, again) == pytest.approx(0.1)


def test_fewer_rounds_than_the_least_have_no_95_percent_interval():
    """The median lies outside of the range of n values where all are above it, or all below."""
    assert 2 * 0.5**stats.LEAST_ROUNDS <= 0.05 < 2 * 0.5 ** (stats.LEAST_ROUNDS - 1)


def test_rounds_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="rounds"):
        stats.paired_ratio([[1.0]], [[1.0], [1.0]])


def test_summary_is_the_median_of_round_medians():
    rounds = [[1.0, 1.0, 50.0], [1.0, 5.0, 60.0], [40.0, 50.0, 50.0]]
    summary = stats.summary(rounds)
    assert (summary.median_us, summary.samples, summary.rounds) == (5.0, 9, 3)
    # Of 1, 1, 1, 5, 40, 50, 50, 50, 60, whose own median is 40.
    assert (summary.q1_us, summary.q3_us, summary.mean_us) == (1.0, 50.0, pytest.approx(258 / 9))
    percent = stats.summary([list(range(101))])
    assert (percent.q1_us, percent.q3_us) == (25.0, 75.0)


@pytest.mark.gpu
class TestOnTheDevice:
    @pytest.fixture(scope="class")
    def device(self):
        return clock.CudaClock(torch.device("cuda", torch.cuda.current_device()))

    def playing(self, device, n: int = 4):
        def fn(a, b, *, out):
            return torch.mm(a, b, out=out)

        count = clock.rotation_sets(3 * 2048 * 2048 * 2, device.l2_bytes)
        tensors = [
            [torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(3)] for _ in range(count)
        ]
        sets = [Arguments((a, b), {"out": out}) for a, b, out in tensors]
        return [Timed(str(i), fn, sets) for i in range(n)]

    # The other processes of this suite share its CPUs and its GPU: what differs is timed again, twice at most.
    @pytest.mark.parametrize("mode, apart", [("cold", 1.05), ("warm", 1.05), ("host", 1.25)])
    def test_equals_are_equal(self, device, mode, apart):
        for _ in range(3):
            samples = time_together(self.playing(device), mode, 20, device)
            medians = [stats.summary(each.rounds).median_us for each in samples]
            if max(medians) / min(medians) < apart:
                break
        assert max(medians) / min(medians) < apart
        assert samples[0].clocks.readings or samples[0].clocks.reason

    def test_the_other_memory_is_read_whole(self, device):
        device._scratch.random_(1000)
        device.evict_l2()
        assert device._scratch.nbytes > (clock.L2_MULTIPLE - 0.01) * device.l2_bytes
        assert device._sum.item() == device._scratch.sum().item()

    def test_a_waiting_call_cannot_be_timed_cold(self, device):
        def fn(a, b, *, out):
            torch.mm(a, b, out=out)
            torch.cuda.synchronize()

        with pytest.raises(NotTimed, match="waits"):
            time_together([Timed("waits", fn, self.playing(device)[0].argument_sets)], "cold", 2, device)

    def test_another_stream_is_noticed_warm(self, device):
        side = torch.cuda.Stream()

        def fn(a, b, *, out):
            with torch.cuda.stream(side):
                torch.mm(a, b, out=out)
            return out

        with pytest.raises(NotTimed) as caught:
            time_together([Timed("aside", fn, self.playing(device)[0].argument_sets)], "warm", 2, device)
        assert caught.value.contender == "aside"


def judged(device: FakeDevice, fn: Callable, mode: str) -> None:
    """A contender whose right answer is x, which the clock fills with other numbers before each turn."""
    numbers = count(1)
    sets = [Arguments((torch.zeros(4),), {"out": torch.empty(4)}) for _ in range(30)]

    def refill(indices):
        for index in indices:
            (x,), out = sets[index].args, sets[index].kwargs["out"]
            device.launch(1.0, lambda x=x, out=out: (x.data.fill_(float(next(numbers))), out.fill_(float("nan"))))

    def fault(index: int, result: torch.Tensor) -> str | None:
        right = sets[index].args[0]
        return None if torch.equal(result, right) else f"its result is {result[0] / right[0]:g} of what it should be"

    time_together([Timed("some", fn, sets, fault, refill)], mode, 4, device)


def writes(device: FakeDevice, times: float = 1.0) -> Callable:
    def fn(x, *, out):
        device.launch(5.0, lambda: out.copy_(x * times))
        return out

    return fn


MODES = ["cold", "graph", "warm", "host"]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_timed_is_judged(mode):
    device = FakeDevice()
    judged(device, writes(device), mode)
    with pytest.raises(NotTimed, match="its result is 3 of") as caught:
        judged(device, writes(device, times=3), mode)
    assert caught.value.wrong


def test_the_rounds_that_are_judged_are_drawn_anew():
    def judged() -> tuple[int, ...]:
        """Each as the number of calls that come after it."""
        device, calls, places = FakeDevice(), [], []
        playing = contender(device, 5, calls=calls)
        playing = replace(playing, fault=lambda index, result: places.append(len(calls)))
        time_together([playing], "host", 6, device)
        return tuple(len(calls) - place for place in places)

    drawn = [judged() for _ in range(40)]
    assert len(set(drawn)) > 1
    # Who has been judged often enough may be judged again: else its frames would tell that the rest is not.
    assert min(map(len, drawn)) == clock.JUDGED_ROUNDS < max(map(len, drawn))


@pytest.mark.parametrize("mode", ["cold", "host"])
def test_an_answer_that_is_remembered_is_no_answer(mode):
    """Of address and version of its inputs: nothing is launched for what was seen before."""
    device, seen = FakeDevice(), set()

    def remembers(x, *, out):
        if (key := (x.data_ptr(), x._version)) not in seen:
            seen.add(key)
            writes(device)(x, out=out)
        device.host += HOST_CALL_US * 1e-6  # without time a call would be made for ever
        return out

    with pytest.raises(NotTimed, match="its result is nan") as caught:
        judged(device, remembers, mode)
    assert caught.value.wrong


def test_results_in_one_memory_of_its_own_are_each_judged():
    """Whoever replays a graph of its own writes its next answer over the one before: each is copied as it comes."""
    device, own = FakeDevice(), torch.empty(4)

    def fn(x, *, out):
        device.launch(5.0, lambda: own.copy_(x))
        return own

    judged(device, fn, "cold")


def test_what_a_turn_returned_that_is_repeated_is_not_judged():
    """The delay is too short for every other call: it is made anew, on a set that was filled anew."""
    device, calls = FakeDevice(), count()

    def fn(x, *, out):
        device.host += 1e-3 * (next(calls) % 2)
        return writes(device)(x, out=out)

    judged(device, fn, "cold")
    assert next(calls) > 2 * 4 * clock.COLD_LAUNCHES


def test_work_that_comes_after_its_window_is_too_late():
    device, late = FakeDevice(), []

    def fn(x, *, out):
        for work in late:
            work()
        late[:] = [lambda: device.launch(5.0, lambda: out.copy_(x))]
        device.launch(1.0)
        return out

    with pytest.raises(NotTimed, match="its result is nan"):
        judged(device, fn, "cold")


class Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize("mode", ["cold", "host"])
def test_a_subclass_of_tensor_is_no_result(mode):
    device = FakeDevice()

    def fn(x, *, out):
        writes(device)(x, out=out)
        return out.as_subclass(Lazy)

    with pytest.raises(NotTimed, match=r"returns Lazy; expected torch\.Tensor itself"):
        judged(device, fn, mode)


def test_whoever_sets_l2_aside_is_wrong():
    device = FakeDevice()

    def fn(x, *, out):
        device.held_l2 = True
        return writes(device)(x, out=out)

    with pytest.raises(NotTimed, match="sets L2 aside") as caught:
        judged(device, fn, "cold")
    assert caught.value.wrong
    device.held_l2 = True  # by whoever came before
    judged(device, writes(device), "cold")


def test_whoever_replaces_the_clock_while_timed_is_wrong(monkeypatch):
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", torch.cuda.Event.elapsed_time)  # restored afterwards
    seal()
    device = FakeDevice()

    def fn(x, *, out):
        torch.cuda.Event.elapsed_time = lambda *events: 0.001
        return writes(device)(x, out=out)

    with pytest.raises(NotTimed, match=r"replaces what it is measured by: torch.*Event\.elapsed_time") as caught:
        judged(device, fn, "cold")
    assert caught.value.wrong
