"""What the hardware counts in one launch of each of several contenders on one problem, by Nsight Compute.

    python bench/counters.py --problem 16x256x7168-bf16-nk --only atomic --only decompose_k.vector
    python bench/counters.py --workload router --tokens 16,1024 --only tilus --output counters.jsonl

Needs ncu on PATH, and leave to read the GPU's counters (https://developer.nvidia.com/ERR_NVGPUCTRPERM). Clocks are
left as they are; caches are flushed before every pass over a kernel. What is recorded for a page stands in
bench/results/<gpu>/counters/. Exits 1 where a contender crashed or its output was not finite.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser, UsageError

FOLDER = cli.CACHE / "counters"


def parser() -> Parser:
    made = Parser(__doc__)
    cli.add_problem_flags(made)
    cli.add_contender_flags(made)
    made.add_argument("--output", metavar="F", type=Path, help=f"a line per launch (default: a new file in {FOLDER})")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    from triton_vs_tilus.bench.diagnostics import counters
    from triton_vs_tilus.bench.rows.row import PASSED, UNSUPPORTED
    from triton_vs_tilus.bench.show.counters import tables
    from triton_vs_tilus.bench.show.tables import console

    if not cli.has_gpu():
        raise UsageError("there is no CUDA device; what ncu counts is counted on one")
    if (ncu := shutil.which("ncu")) is None:
        raise UsageError("ncu is not on PATH; it comes with Nsight Compute, and with the CUDA toolkit")
    output = cli.new_output(args, FOLDER)
    problems = cli.chosen_problems(args)
    kernels = cli.chosen_contenders(args, {problem.op for _, problem in problems})
    chosen = [(name, problem, kernel) for name, problem in problems for kernel in kernels if kernel.op == problem.op]
    cli.report(f"counters: {output}")
    try:
        launches = counters.record(ncu, chosen, output, cli.report)
    except counters.NcuFailed as error:
        raise UsageError(str(error)) from error
    for table in tables(launches):
        console(verbose=True).print(table)
    worked = all(launch.status in (PASSED, UNSUPPORTED) for launch in launches)
    return ExitCode.OK if worked else ExitCode.FAILED


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
