"""What each launch of a kernel takes without the others: of decompose_k the product without the meeting of its partial
sums, and the meeting alone.

A launch alone is no product. It is not judged, and has no row; the whole kernel beside it is judged as everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from triton_vs_tilus.bench.measure import floor, stats
from triton_vs_tilus.bench.measure.clock import Announce, time_together
from triton_vs_tilus.bench.measure.rotation import clock_of, rotation_of, timed
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.plan import Placement, Plan, contiguous
from triton_vs_tilus.common.problem import Matmul

MODES = ("cold", "warm")
Times = dict[str, dict[str, float]]  # microseconds, by mode and name


def stages(kernel: Kernel, problem: Matmul, config: Config) -> list[Kernel]:
    """The kernel's launches, each alone, named as the kernel and its place, `#1` the first; none of a kernel that has
    one launch. Scratch is as its allocator has it: what the launch before would have written is not there."""
    if kernel.plan is None:
        return []
    count = len(kernel.plan(problem, config, contiguous(problem)).launches)
    return [_alone(kernel, kernel.plan, index) for index in range(count)] if count > 1 else []


def _alone(kernel: Kernel, plan: Callable[..., Plan], index: int) -> Kernel:
    def launch_of(problem: Matmul, config: Config, placement: Placement) -> Plan:
        whole = plan(problem, config, placement)
        return replace(whole, launches=(whole.launches[index],), unfused=Epilogue.NONE)

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
        return launched(alone, a, b, epilogue, bias, out, out_dtype, config)

    variant = f"{kernel.variant}#{index + 1}"
    alone = replace(kernel, variant=variant, plan=launch_of, launch=launch, launches=1)
    return alone


def measure(
    problem: Matmul, kernels: Sequence[Kernel], rounds: int, device: torch.device, *, announce: Announce
) -> Times:
    """The medians of each kernel on its tuned config, of its launches alone, and of the floors.

    cold: what a second launch alone reads is not in L2, where the first one would leave it; warm: it is there.
    Raises NotTimed for a kernel that is wrong.
    """
    clock, slug, entrants = clock_of(device), tuned.slug_of(device), []
    for kernel in kernels:
        config = tuned.pick(kernel, problem, slug)[0]
        entrants.append(timed(kernel.full_name, kernel, problem, config, device))
        for stage in stages(kernel, problem, config):
            entrants.append(replace(timed(stage.full_name, stage, problem, config, device), fault=None))
    found: Times = {}
    for mode in MODES:
        floors = floor.floors(rotation_of(problem, device).reads(), clock, mode, announce=announce)
        together = [*entrants, *floors]
        samples = time_together(together, mode, rounds, clock, announce=announce)
        medians = [stats.summary(of_one.rounds).median_us for of_one in samples]
        found[mode] = dict(zip([one.name for one in together], medians, strict=True))
    return found
