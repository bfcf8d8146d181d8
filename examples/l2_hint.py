"""What tilus' hint to L2 is worth: it writes each copy by cp.async as `.L2::256B`, which asks L2 for 256 bytes of
memory around the 16 that are copied, and gives no way to leave that out. Triton's copies have no hint.

    python examples/l2_hint.py > bench/results/h200/l2_hint.txt   # on a GPU

The same kernels by the same configs, with the hint and without it, timed together. The router's product with the weight
stored [N, K], by the configs that the device has, and W4A16.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from typing import Any
from unittest import mock

import tilus.backends.emitters.cuda.cp_async as emitter
import torch
from torch import Tensor

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure import stats
from triton_vs_tilus.bench.measure.clock import Timed, time_together
from triton_vs_tilus.bench.measure.rotation import clock_of, timed
from triton_vs_tilus.common import plan, tuned, w4a16
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.plan import Call, Plan
from triton_vs_tilus.common.problem import Layout, Matmul, Problem
from triton_vs_tilus.common.w4a16 import W4A16Matmul
from triton_vs_tilus.kernels_tilus import launching

PRODUCTS = ("sliced_k.mma", "decompose_k.vector_pdl", "last_arriver", "cluster", "semaphore.fp32")
QUANTIZED = ("w4a16.last_arriver", "w4a16.sliced_k")
PROBLEMS: list[tuple[Problem, Sequence[str]]] = [
    *((Matmul(tokens, 256, 7168, layout=Layout.NK), PRODUCTS) for tokens in (1, 4, 16, 64, 128)),
    *((W4A16Matmul(tokens, 8192, 8192), QUANTIZED) for tokens in (1, 16)),
]
MODES = ("cold", "graph")
ROUNDS = 15

hinting_copy = emitter.cp_async


def copy_without_hint(*args: Any, prefetch_bytes: int, **settings: Any) -> Any:
    return hinting_copy(*args, **settings)


def planned(kernel: Kernel, problem: Problem, config: Config) -> Plan:
    assert kernel.plan is not None
    placement = w4a16.contiguous(problem) if isinstance(problem, W4A16Matmul) else plan.contiguous(problem)
    return kernel.plan(problem, config, placement)


@contextmanager
def without_hint(launched: Plan) -> Iterator[None]:
    """Within it, the plan's programs are built without the hint, under names of their own in tilus' cache."""
    scripts = list(launching.scripts_of(launched))
    options = [script.build_options for script in scripts]

    def build_anew_by(settings: list[Any]) -> None:
        launching._launch_function.cache_clear()
        for script, setting in zip(scripts, settings, strict=True):
            script.build_options = setting
            script.jit_instances.clear()

    build_anew_by([replace(one, compiler_changes=f"{one.compiler_changes}, no hint") for one in options])
    with mock.patch.object(emitter, "cp_async", copy_without_hint):
        yield
    build_anew_by(options)


def build(name: str, problem: Problem, config: Config) -> None:
    """A contender's programs, with and without the hint, into tilus' cache."""
    launched = planned(contenders.find(name), problem, config)
    launching.build_plan(launched)
    with without_hint(launched):
        launching.build_plan(launched)


def entrants(kernel: Kernel, problem: Problem, config: Config, device: torch.device) -> list[Timed]:
    """With the hint, without it, and with it again."""
    launched = planned(kernel, problem, config)
    with without_hint(launched):
        call = Call(launched, device, kernel.backend)

    def launch(a: Tensor, weight: Any, *, out: Tensor, **given: Any) -> Tensor:
        return call(out, a, weight) if isinstance(weight, Tensor) else call(out, a, **weight.parts)

    hinting = timed("hint", kernel, problem, config, device)
    bare = replace(kernel, variant=f"{kernel.variant}, no hint", launch=launch)
    return [hinting, timed("no hint", bare, problem, config, device), replace(hinting, name="again")]


def compare(name: str, problem: Problem, config: Config, device: torch.device) -> str:
    """A line for each clock."""
    timed_together = entrants(contenders.find(name), problem, config, device)
    lines = []
    for mode in MODES:
        hint, bare, again = time_together(timed_together, mode, ROUNDS, clock_of(device))
        gain = stats.paired_ratio(bare.rounds, hint.rounds)
        lines.append(
            f"{problem.name:22} {name:30} {mode:5} {stats.summary(hint.rounds).median_us:6.2f} us, without "
            f"{stats.summary(bare.rounds).median_us:6.2f}: {gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}], "
            f"noise {stats.noise(hint.rounds, again.rounds):.3f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device; the hint is timed on one")
    device = torch.device("cuda", torch.cuda.current_device())
    slug = tuned.slug_of(device)
    tasks = []
    for problem, names in PROBLEMS:
        for name in (f"tilus/{name}" for name in names):
            config, _ = tuned.pick(contenders.find(name), problem, slug)
            if getattr(config, "engine", "mma").startswith("mma"):  # others copy by TMA
                tasks.append((name, problem, config))
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(build, *zip(*tasks, strict=True)))
    print(torch.cuda.get_device_name(device))
    for task in tasks:
        print(compare(*task, device), flush=True)


if __name__ == "__main__":
    main()
