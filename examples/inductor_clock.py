"""What the clock of Inductor's searches says of each candidate, beside three other clocks; microseconds, on a GPU.

    python examples/inductor_clock.py 1 16

For each T the router's product, [T, 7168] @ [7168, 256] in bf16: torch.mm by itself, then all that a compilation with
max-autotune-no-cudagraphs times, in the order of the search.

inductor  what the search was told: the least of many events around a call behind a clear of L2; twice, and the median
host      of the call alone, after which the GPU is waited for
queued    events around a call that waits behind 300 us of the GPU's work, so that no host time counts
timeline  of the GPU, by torch.profiler
"""

import argparse
import functools
import time
from collections.abc import Callable
from statistics import median

import torch
from torch._inductor.codecache import PersistentCache
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.utils import do_bench_using_profiling

WAIT = 600_000  # cycles
L2_WORDS = 50 << 18

benchmark_gpu = benchmarker.benchmark_gpu


def host_us(call: Callable[[], object], count: int = 50) -> float:
    torch.cuda.synchronize()
    found = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e6)
        torch.cuda.synchronize()
    return median(found)


def queued_us(call: Callable[[], object], count: int = 30) -> tuple[float, float]:
    """The least and the median."""
    cleared = torch.empty(L2_WORDS, dtype=torch.int, device="cuda")
    found = []
    for _ in range(count):
        torch.cuda._sleep(WAIT)
        cleared.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return min(found), median(found)


def told(call: Callable[[], object], *args: object, **options: object) -> float:
    """Inductor's own clock, which is told what the others say, too."""
    found = benchmark_gpu(call, *args, **options)
    middle = median(benchmark_gpu(call, return_mode="all"))
    again = benchmark_gpu(call)
    name = getattr(getattr(call, "func", call), "__qualname__", str(call))
    timeline = do_bench_using_profiling(call)
    least, queued = queued_us(call)
    own = f"inductor {found * 1e3:6.1f} again {again * 1e3:6.1f} median {middle * 1e3:6.1f}"
    others = f"host {host_us(call):6.1f} queued least {least:6.1f} median {queued:6.1f} timeline {timeline * 1e3:6.1f}"
    print(f"{name:45.45} {own} {others}", flush=True)
    return found


def uncached(cache: object, choices: object, op: object, inputs: object, benchmark: Callable, *_, **__) -> dict:
    """In place of the times that an earlier search has kept."""
    return benchmark(choices) if benchmark else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", metavar="T", type=int, nargs="+", help="rows of A, 1 or more")
    tokens_asked = parser.parse_args().tokens
    if min(tokens_asked) < 1:
        parser.error(f"T is {min(tokens_asked)}; accepted: 1 or more")
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device; the clocks are of one")
    PersistentCache.lookup = uncached
    benchmarker.benchmark_gpu = told
    cleared = torch.empty(L2_WORDS, dtype=torch.int, device="cuda")
    for tokens in tokens_asked:
        a = torch.randn(tokens, 7168, device="cuda", dtype=torch.bfloat16)
        weight = torch.randn(256, 7168, device="cuda", dtype=torch.bfloat16)
        out = torch.empty(tokens, 256, device="cuda", dtype=torch.bfloat16)
        print(f"== T={tokens}: outside a compilation")
        told(functools.partial(torch.mm, a, weight.t(), out=out))
        event = torch.cuda.Event(enable_timing=True)
        clear = f"host {host_us(cleared.zero_):.1f} us, timeline {do_bench_using_profiling(cleared.zero_) * 1e3:.1f} us"
        print(f"zero_ of 50 MB: {clear}; event.record host {host_us(event.record):.1f}")
        print("== within")
        torch._dynamo.reset()
        torch.compile(lambda left, right: left @ right, mode="max-autotune-no-cudagraphs")(a, weight.t())
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
