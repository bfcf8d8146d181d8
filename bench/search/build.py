"""Kernels compiled ahead of their use, in parallel, in child processes that a compiler may take down."""

import importlib
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure.clock import Announce, first_line
from triton_vs_tilus.bench.measure.process import Child, Children, Died
from triton_vs_tilus.bench.search.space import compiled_fields
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel, Language
from triton_vs_tilus.common.problem import Problem

log = logging.getLogger(__name__)


def builders(deadline_s: float) -> Children:
    """Processes that compile at once, one on each CPU that this process may run on. They stay for the next problem."""
    return Children(len(os.sched_getaffinity(0)), deadline_s)


def build_ahead(
    problems: Sequence[tuple[Problem, Sequence[Kernel]]],
    *,
    builders: Children,
    child: Child,
    device: torch.device,
    built: Callable[[int, int], None] = lambda built, programs: None,
    begin: Callable[[], None] = lambda: None,
) -> None:
    """Compiles the configs that these kernels' launchers will pick on these problems. Errors are ignored here: the
    contender's own row meets them again.

    child: asked for the device's name. built: called with the number of programs that are built, and of all.
    begin: called before they are built, for what may go on in the child meanwhile.
    """
    compilers = [kernel.language.compiler for _, kernels in problems for kernel in kernels if kernel.build is not None]
    packages = sorted(language.value for language in set(compilers) & set(LANGUAGES))
    # Imports take seconds, and so does the start of the child that knows the device's name.
    builders.warm_up(_import, packages, most=len(compilers))
    slug = child.call(_slug, device)
    jobs: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for problem, kernels in problems:
        for kernel in kernels:
            if kernel.build is None or contenders.sits_out(kernel, problem, device):
                continue
            config, _ = contenders.pick(kernel, problem, slug)
            # One job for all sizes: what is compiled depends on their divisibility alone.
            program = kernel.full_name, config, problem.compiled_for
            jobs.setdefault(program, (problem, kernel.full_name, [config], device))
    built(0, len(jobs))

    def is_quick(job: tuple[Any, ...]) -> bool:
        _, full_name, *_ = job
        return contenders.find(full_name).language.compiler is not Language.TILUS

    # nvcc takes longest: what it compiles begins first, so that no CPU waits for the last of it.
    longest_first = sorted(jobs.values(), key=is_quick)
    begin()
    builders.each(compile_configs, longest_first, lambda count: built(count, len(jobs)))


def build_all(
    problem: Problem, chosen: dict[str, list[Config]], children: Children, device: torch.device
) -> tuple[dict[str, dict[Config, str]], dict[str, float]]:
    """Compiles all configs of all kernels. Returns the reasons of those that failed, by kernel and config; and the
    seconds of all processes together, by kernel, near 0 for what was in a cache."""
    # Configs that share a compilation go to one process, which does it once.
    together: dict[tuple[Any, ...], list[Config]] = {}
    for name, configs in chosen.items():
        for config in configs:
            together.setdefault((name, *compiled_fields(config)), []).append(config)
    start = time.monotonic()
    jobs = [(problem, name, configs, device) for (name, *_), configs in together.items()]
    # Ranks build much the same, each for a problem of its own: in another order they wait less for each other.
    random.Random(problem.name).shuffle(jobs)
    answers = children.each(compile_configs, jobs)
    failed: dict[str, dict[Config, str]] = {name: {} for name in chosen}
    seconds = dict.fromkeys(chosen, 0.0)
    for (_, name, configs, _), answer in zip(jobs, answers, strict=True):
        reasons, taken = ([answer.message] * len(configs), 0.0) if isinstance(answer, Died) else answer
        seconds[name] += taken
        failed[name] |= {config: reason for config, reason in zip(configs, reasons, strict=True) if reason is not None}
    count = sum(len(configs) for configs in together.values())
    log.info("%s: %d configs built in %.0f s", problem.name, count, time.monotonic() - start)
    return failed, seconds


# What runs in children.


def _slug(device: torch.device, *, announce: Announce) -> str:
    return tuned.slug_of(device)


def _import(packages: list[str], *, announce: Announce) -> None:
    for package in packages:
        importlib.import_module(package)


def compile_configs(
    problem: Problem, name: str, configs: list[Config], device: torch.device, *, announce: Announce
) -> tuple[list[str | None], float]:
    """For each config None, or why it cannot be built; and the seconds of all."""
    torch.cuda.set_device(device)
    kernel = contenders.find(name)
    start, reasons = time.monotonic(), list[str | None]()
    for config in configs:
        announce(f"{name} {config}")
        try:
            if kernel.build is not None:
                kernel.build(problem, config)
            reasons.append(None)
        except Exception as error:
            reasons.append(first_line(error))
    return reasons, time.monotonic() - start
