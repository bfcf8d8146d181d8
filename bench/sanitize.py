"""compute-sanitizer's four tools over every kernel of both languages, at small shapes, ragged too, in both layouts.

    python bench/sanitize.py                                # all; builds what is not adopted
    python bench/sanitize.py --tool racecheck --only tilus  # a part: replaces its findings

Needs a GPU, and compute-sanitizer on PATH; it comes with the CUDA toolkit. What was found is kept in
bench/results/<gpu>/sanitizer.json. Exits 1 where anything was, and where a language cannot be imported.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser, UsageError

SECONDS = 120.0  # for one launch under a tool, and for the start of its process
BUILD_SECONDS = 600.0  # for one program


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--tool", action="append", default=[], help="memcheck, racecheck, synccheck or initcheck")
    made.add_argument("--only", metavar="NAME", action="append", default=[], help="as in compare.py; repeatable")
    made.add_argument("--seconds", type=float, default=SECONDS, help="for one launch under a tool (%(default)g)")
    made.add_argument("--output", metavar="F", type=Path, help="in place of the device's sanitizer.json")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    import torch

    from triton_vs_tilus.bench.diagnostics import sanitizer
    from triton_vs_tilus.bench.rows import queries
    from triton_vs_tilus.bench.rows.environment import environment
    from triton_vs_tilus.bench.rows.journal import now
    from triton_vs_tilus.common import tuned

    if unknown := [tool for tool in args.tool if tool not in sanitizer.TOOLS]:
        raise UsageError(f"--tool is {', '.join(unknown)}; accepted: {', '.join(sanitizer.TOOLS)}")
    if not args.seconds > 0:
        raise UsageError(f"--seconds is {args.seconds:g}; accepted: more than 0")
    if not cli.has_gpu():
        raise UsageError("there is no CUDA device; compute-sanitizer runs kernels on one")
    if (program := shutil.which("compute-sanitizer")) is None:
        raise UsageError("compute-sanitizer is not on PATH; it comes with the CUDA toolkit")
    try:
        chosen = sanitizer.chosen_tasks(args.only)
    except ValueError as error:
        raise UsageError(str(error)) from error
    gone = cli.lacks_a_language()  # kernels that no tool sees have no findings
    device = torch.device("cuda", 0)
    cli.report(f"{len(chosen)} launches are built first")
    sanitizer.build_all(chosen, device, BUILD_SECONDS)
    path = args.output or queries.RESULTS / tuned.slug_of(device) / "sanitizer.json"
    tools = list(dict.fromkeys(args.tool or sanitizer.TOOLS))
    shares = max(1, len(os.sched_getaffinity(0)) // len(tools))  # most of the time is a tool's on the CPU
    for tool, findings, done in sanitizer.run_shared(program, tools, chosen, shares, args.seconds, cli.report):
        for finding in findings:
            print(f"{finding.tool}: {finding.task}: {finding.said}")
        sanitizer.keep(path, tool, chosen, findings, environment(device), now())
        cli.report(f"{tool}: {done} of {len(chosen)} launches came to their end, {len(findings)} findings")
    print(path)
    return ExitCode.FAILED if gone or sanitizer.kept(path).findings else ExitCode.OK


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
