"""What a launch takes by what is queued behind it, and by how many launches went before.

    python examples/launch_queue.py > bench/results/h200/launch_queue.txt   # on a GPU

The router's product at T = 16, the weight stored [N, K], by an empty launch, kernels of one and of two launches, and
torch.mm; each between two events. First as many calls as a turn of the clock has, behind one delay: by place, the last
one has nothing behind it. L2 is read out before the first, and the sets of operands rotate; workspace and code stay in
L2. Then calls alone behind a delay of their own, after L2 was read out and some empty launches: the second launch of a
call may begin later at one place in four of the queue; by the number of launches between, calls have one place or all.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure.clock import COLD_LAUNCHES, LEADING_LAUNCHES, QUEUE_PLACES, DeviceClock, Timed
from triton_vs_tilus.bench.measure.rotation import clock_of, timed
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.problem import Layout, Matmul

PROBLEM = Matmul(16, 256, 7168, layout=Layout.NK)
CONTENDERS = ("triton/atomic", "triton/decompose_k.vector", "torch/mm")
ROUNDS = 40
DELAY_S = 5e-4  # a call


def between_events(calls: Sequence[Callable[[], object]], leading: int, device: DeviceClock) -> list[float]:
    """Microseconds of each call. All are enqueued behind one delay, after as many empty launches as `leading`. Raises
    RuntimeError where the delay ended before."""
    device.evict_l2()
    device.launch_nothing(leading)
    device.delay(len(calls) * DELAY_S)
    delay_end = device.record()
    pairs = []
    for call in calls:
        start = device.record()
        call()
        pairs.append((start, device.record()))
    if device.done(delay_end):
        raise RuntimeError(f"{len(calls)} calls took the host longer than the delay of {len(calls) * DELAY_S} s")
    times = [device.elapsed_us(*pair) for pair in pairs]
    device.synchronize()
    return times


def queued(called: Timed, device: DeviceClock) -> list[float]:
    """The median microseconds of each of COLD_LAUNCHES calls behind one delay."""
    sets = len(called.argument_sets)
    rounds = []
    for index in range(ROUNDS):
        places = [(index * COLD_LAUNCHES + turn) % sets for turn in range(COLD_LAUNCHES)]
        rounds.append(between_events([partial(called.call, place) for place in places], 0, device))
    return [median(times) for times in zip(*rounds, strict=True)]


def alone(called: Timed, leading: int, device: DeviceClock) -> list[float]:
    """The microseconds of COLD_LAUNCHES calls one after the other, each alone behind a delay."""
    sets = len(called.argument_sets)
    return [between_events([partial(called.call, index % sets)], leading, device)[0] for index in range(COLD_LAUNCHES)]


def lines(together: Sequence[Timed], device: DeviceClock) -> list[str]:
    def line(name: str, times: Sequence[float]) -> str:
        return f"{name:26}" + "".join(f"{us:6.2f}" for us in times)

    for called in together:
        called.call(0)  # the first may compile or allocate
    device.synchronize()
    told = [f"== {COLD_LAUNCHES} calls behind one delay, us by place"]
    told += [line(called.name, queued(called, device)) for called in together]
    for leading in range(LEADING_LAUNCHES, LEADING_LAUNCHES + QUEUE_PLACES):
        told.append(f"== {COLD_LAUNCHES} calls one after the other, each alone after {leading} empty launches, us")
        told += [line(called.name, alone(called, leading, device)) for called in together]
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device; the launches are timed on one")
    device = torch.device("cuda", torch.cuda.current_device())
    clock, slug = clock_of(device), tuned.slug_of(device)
    together = []
    for name in CONTENDERS:
        kernel = contenders.find(name)
        together.append(timed(name, kernel, PROBLEM, contenders.pick(kernel, PROBLEM, slug)[0], device))
    empty = replace(together[0], name="an empty launch", fn=lambda *args, **kwargs: clock.launch_nothing(1))
    print("\n".join(lines([empty, *together], clock)))


if __name__ == "__main__":
    main()
