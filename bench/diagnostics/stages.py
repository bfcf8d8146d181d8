"""What each stage of a kernel takes without the others: the product without the meeting of its partial sums, the same
followed by a launch that does nothing, and the meeting alone.

A stage alone is no product. It is not judged; the whole kernel beside it is judged as everywhere.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import boundary
from triton_vs_tilus.bench.measure import floor
from triton_vs_tilus.bench.measure.clock import Announce, NotTimed, Timed, time_together
from triton_vs_tilus.bench.measure.process import Child
from triton_vs_tilus.bench.measure.rotation import clock_of, rotation_of, timed
from triton_vs_tilus.bench.measure.worker import AGAIN, Options, Timing
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.bench.rows.journal import now, to_line
from triton_vs_tilus.bench.rows.row import ProblemRecord, Stage, StageName, TimingName
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import LANGUAGES, Config, Kernel
from triton_vs_tilus.common.plan import Launch, Placement, Plan, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol

MODES: tuple[TimingName, ...] = ("cold", "warm")
WITH_BOUNDARY = ("vector", "vector_pdl")  # variants whose boundary is timed
SPLITS_K = "decompose_k.vector"  # the kernel whose first launch is a product that meets nowhere
# One launch, each of whose blocks multiplies a tile of one band of K, as the first launch of SPLITS_K does.
LIKE_IT = (Protocol.SERIAL, Protocol.ATOMIC, Protocol.LAST_ARRIVER, Protocol.CLUSTER)


@dataclass(frozen=True)
class Part:
    """A stage of a kernel, and what launches it. after: the launch whose partial sums it reads."""

    stage: StageName
    kernel: Kernel
    config: Config
    after: Kernel | None = None


def parts(kernel: Kernel, problem: Matmul, device: torch.device) -> list[Part]:
    """The kernel whole, then those of its stages that can be launched alone, on the config that its launcher takes.

    Of decompose_k each launch, and, of those with the vector reducer, the product with the boundary behind it. Of a
    kernel of one launch whose blocks do what decompose_k's do, the product of decompose_k on its config, where that can
    run it: it differs in that partial sums are stored.
    """
    slug = tuned.slug_of(device)
    config = contenders.pick(kernel, problem, slug)[0]
    whole = Part("whole", kernel, config)
    if kernel.plan is None:
        return [whole]
    if len(kernel.plan(problem, config, contiguous(problem)).launches) == 2:
        first, second = _alone(kernel, 0), _alone(kernel, 1)
        alone = [Part("product", first, config), Part("meeting", second, config, after=first)]
        if kernel.variant in WITH_BOUNDARY and kernel.language in LANGUAGES:
            alone.insert(1, Part("boundary", _to_the_boundary(kernel), config))
        return [whole, *alone]
    product = product_of(kernel)
    if product is None or contenders.sits_out(product, problem, device):
        return [whole]
    return [whole, Part("product", _alone(product, 0), contenders.pick(product, problem, slug)[0])]


def product_of(kernel: Kernel) -> Kernel | None:
    """decompose_k on the kernel's config, whose first launch is the kernel's product; None where it is not."""
    if kernel.language not in LANGUAGES or kernel.op != Matmul.op or kernel.protocol not in LIKE_IT:
        return None
    language, _, name = kernel.full_name.partition("/")
    return contenders.find(f"{language}/{SPLITS_K}@{name}")


def _alone(kernel: Kernel, index: int) -> Kernel:
    """One launch of the kernel, named as the kernel and its place, `#1` the first."""
    return _launching(kernel, f"#{index + 1}", 1, lambda problem, config, launches: (launches[index],))


def _to_the_boundary(kernel: Kernel) -> Kernel:
    """Its product, and in place of its meeting a launch that does nothing; named `#1+nothing`."""

    def launches_of(problem: Matmul, config: Config, launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
        product, meeting = launches
        return product, boundary.in_place_of(meeting, kernel, problem, config)

    return _launching(kernel, "#1+nothing", 2, launches_of)


def _launching(
    kernel: Kernel,
    named: str,
    launches: int,
    launches_of: Callable[[Matmul, Config, tuple[Launch, ...]], tuple[Launch, ...]],
) -> Kernel:
    """A kernel whose plan has `launches_of(...)` in place of its launches."""
    planned = kernel.plan
    assert planned is not None

    def plan_of(problem: Matmul, config: Config, placement: Placement) -> Plan:
        whole = planned(problem, config, placement)
        return replace(whole, launches=launches_of(problem, config, whole.launches), unfused=Epilogue.NONE)

    def launch(
        a: Tensor,
        b: Tensor,
        *,
        epilogue: Epilogue = Epilogue.NONE,
        bias: Tensor | None = None,
        out: Tensor | None = None,
        out_dtype: torch.dtype | None = None,
        config: Config | None = None,
    ) -> Tensor:
        return launched(made, a, b, epilogue, bias, out, out_dtype, config)

    made = replace(kernel, variant=f"{kernel.variant}{named}", plan=plan_of, launch=launch, launches=launches)
    return made


def _entrant(part: Part, problem: Matmul, device: torch.device) -> Timed:
    """For the clock, which judges a whole kernel. A stage returns nothing: the first leaves C as it was, which the
    clock would take for work that is not captured."""
    made = timed(part.kernel.full_name, part.kernel, problem, part.config, device)
    if part.stage == "whole":
        return made

    def launch(*args: Any, **kwargs: Any) -> None:
        made.fn(*args, **kwargs)

    if part.after is None:
        return replace(made, fn=launch, fault=None)
    first = timed(part.after.full_name, part.after, problem, part.config, device)
    return replace(made, fn=launch, fault=None, before=first.call)


def measure(
    workload: str,
    problem: Matmul,
    kernels: Sequence[Kernel],
    rounds: int,
    device: torch.device,
    *,
    announce: Announce = lambda name: None,
) -> list[Stage]:
    """The stages of the kernels, timed together. kernels: with the baseline, all of which can take the problem.

    Cold, the meeting alone follows the product, outside of its window: it reads partial sums from L2, as in the whole
    kernel, since its scratch memory is what the product's call has freed. Raises NotTimed for a kernel that is wrong.
    """
    clock, baseline = clock_of(device), OPS[problem.op].baseline
    found = [(kernel, part) for kernel in kernels for part in parts(kernel, problem, device)]
    entrants = {part.kernel.full_name: _entrant(part, problem, device) for _, part in found}
    again = replace(entrants[baseline], name=AGAIN)
    timing = Timing(baseline)
    for mode in MODES:
        floors = floor.floors(rotation_of(problem, device).reads(), clock, mode, announce=announce)
        together = [*entrants.values(), again, *floors]
        samples = time_together(together, mode, rounds, clock, announce=announce)
        timing.samples[mode] = {one.name: taken for one, taken in zip(together, samples, strict=True)}
    return [
        Stage(
            workload=workload,
            problem=ProblemRecord.from_problem(problem),
            contender=kernel.full_name,
            language=kernel.language.value,
            protocol=kernel.protocol.value,
            stage=part.stage,
            launch=part.kernel.full_name,
            config=None if part.config is None else asdict(part.config),
            timing=timing.records(part.kernel.full_name, Options.seed),
            floor=timing.floor(),
            noise=timing.noise(),
            clocks=timing.clocks(),
            environment=environment(device),
            command=command_of(problem, kernel.full_name, (), {}, "bench/stages.py"),
            time=now(),
        )
        for kernel, part in found
    ]


def record(
    chosen: Sequence[tuple[str, Matmul, Sequence[Kernel]]],
    rounds: int,
    output: Path,
    device: torch.device,
    report: Callable[[str], None],
) -> list[Stage]:
    """The stages of (workload, problem, kernels), appended to `output` after each problem.

    Programs are compiled beforehand, in parallel. report: gets a line on each problem. One whose kernel is wrong has no
    stages, and a line that says so.
    """
    able = [
        (workload, problem, [kernel for kernel in kernels if contenders.sits_out(kernel, problem, device) is None])
        for workload, problem, kernels in chosen
    ]
    with Child(Options.deadline_s) as child, build.builders(Options.deadline_s) as builders:
        programs = [(problem, [*kernels, *filter(None, map(product_of, kernels))]) for _, problem, kernels in able]
        build.build_ahead(programs, builders=builders, child=child, device=device)
    output.parent.mkdir(parents=True, exist_ok=True)
    found: list[Stage] = []
    for workload, problem, kernels in able:
        since = time.monotonic()
        try:
            stages = measure(workload, problem, kernels, rounds, device)
        except NotTimed as error:
            report(f"{problem.name}: {error}")
            continue
        with output.open("a") as file:
            file.writelines(map(to_line, stages))
        report(f"{problem.name}: {len(stages)} launches in {time.monotonic() - since:.0f} s")
        found += stages
    return found
