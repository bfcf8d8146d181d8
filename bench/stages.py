"""Where the time of a kernel goes: its stages, each alone, beside the whole kernel, torch.mm and floors, on one GPU.

    python bench/stages.py --problem 16x256x7168-bf16-nk --only decompose_k --only tilus/cluster
    python bench/stages.py --workload router --tokens 16,1024 --only tilus --output stages.jsonl

Of decompose_k the first launch is the product without the meeting of its partial sums, the second the meeting alone;
the first with a launch behind it that does nothing tells what the boundary between the two takes.
Of another kernel that splits K over blocks the product is decompose_k's on its config: the first launch of the
contender decompose_k.vector@cluster, say. By that name prebuild.py builds it, and counters.py counts it. Other kernels
are timed whole. A stage alone is no product, and is not judged. What is recorded for a page stands in
bench/results/<gpu>/stages/. Exits 1 where a kernel is wrong: its problem has no lines then.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser, UsageError

FOLDER = cli.CACHE / "stages"
ROUNDS = 40


def parser() -> Parser:
    made = Parser(__doc__)
    cli.add_problem_flags(made)
    cli.add_contender_flags(made)
    made.add_argument("--output", metavar="F", type=Path, help=f"a line per stage (default: a new file in {FOLDER})")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if not cli.has_gpu():
        raise UsageError("there is no CUDA device; stages are timed on one")
    import torch

    from triton_vs_tilus.bench.diagnostics import stages
    from triton_vs_tilus.bench.show.stages import budget_table
    from triton_vs_tilus.bench.show.tables import console
    from triton_vs_tilus.common.problem import Matmul

    output = cli.new_output(args, FOLDER)
    kernels = cli.chosen_contenders(args, {Matmul.op})
    problems = [(name, problem) for name, problem in cli.chosen_problems(args) if isinstance(problem, Matmul)]
    if not problems:
        raise UsageError("no problem is a product of two matrices; accepted: those of matmul")
    chosen = [(name, problem, kernels) for name, problem in problems]
    cli.report(f"stages: {output}")
    found = stages.record(chosen, ROUNDS, output, torch.device("cuda", 0), cli.report)
    for mode in stages.MODES if found else ():
        console(verbose=True).print(budget_table(found, mode, ("*",)))
    return ExitCode.OK if len({stage.problem.name for stage in found}) == len(problems) else ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
