"""What each launch of a kernel takes without the others, beside the whole kernel and the floors, on one GPU.

    python bench/stages.py --problem 16x256x7168-bf16-nk --only decompose_k.vector_pdl

Of decompose_k `#1` is the product without the meeting of its partial sums, `#2` the meeting alone. A launch alone is no
product: it is not judged, and nothing is recorded. Cold, what `#2` reads is not in L2, where `#1` would leave it; warm
it is. A kernel of one launch is timed whole: what it takes beyond floor/read is its product, its meeting and its start.
Exits 1 where a kernel is wrong.
"""

import argparse
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, UsageError

ROUNDS = 40


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_problem_flags(made)
    cli.add_contender_flags(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if not cli.has_gpu():
        raise UsageError("there is no CUDA device; launches are timed on one")
    import torch

    from triton_vs_tilus.bench import contenders
    from triton_vs_tilus.bench.diagnostics import stages
    from triton_vs_tilus.bench.measure.clock import NotTimed
    from triton_vs_tilus.bench.show.tables import Table, console
    from triton_vs_tilus.common.problem import Matmul

    device = torch.device("cuda", 0)
    problems = [problem for _, problem in cli.chosen_problems(args) if isinstance(problem, Matmul)]
    kernels = [kernel for kernel in cli.chosen_contenders(args, {Matmul.op}) if kernel.plan]
    for problem in problems:
        able = [kernel for kernel in kernels if contenders.sits_out(kernel, problem, device) is None]
        try:
            times = stages.measure(problem, able, ROUNDS, device, announce=report)
        except NotTimed as error:
            report(f"{problem.name}: {error}")
            return ExitCode.FAILED
        lines = [[name, *(f"{times[mode][name]:.2f}" for mode in stages.MODES)] for name in times[stages.MODES[0]]]
        header = ["launches", *(f"{mode} us" for mode in stages.MODES)]
        console(verbose=True).print(Table(problem.name, header, lines, foot="#: a launch alone, no product"))
    return ExitCode.OK


def report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
