"""What the kernels of both languages are compiled to, side by side: registers, shared memory, spills, instructions.

    python bench/resources.py
    python bench/resources.py --target sm_90a --only semaphore --shape 16x256x7168 --markdown
    python bench/resources.py --matched --target sm_90a --json bench/results/resources.json

Needs no GPU. Without --shape: every config of the tuned tables; and for 2 router shapes, and 1 problem of each other
operation, the configs that launchers take and a few more of the search space. Triton's kernels are compiled by the
ptxas that comes with Triton, tilus' by nvcc. Triton's *cluster* compiles from 3.9 on: the file of the notes is of that.
Exits 1 where a config that launchers take does not compile, or exceeds a limit, for the last target; where a language
cannot be imported; and with --json where any config is not compiled: no file is written then.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench.cli import (
    LAYOUTS,
    ExitCode,
    Parser,
    UsageError,
    lacks_a_language,
    report,
    run_command,
    try_file,
)
from triton_vs_tilus.bench.diagnostics.ptx import SHARED_LIMIT

TARGETS = ("sm_80", "sm_90a")  # where nothing is asked for


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--target", choices=SHARED_LIMIT, help=f"of the GPU (default: {' and '.join(TARGETS)})")
    made.add_argument("--only", metavar="NAME", action="append", default=[], help="as in compare.py; repeatable")
    made.add_argument("--shape", metavar="MxNxK", action="append", default=[], help="one problem; repeatable")
    made.add_argument("--layout", choices=LAYOUTS, default="nk", help="of the weight (default: %(default)s)")
    matched = "each kernel of both languages with one config, which tilus' launcher takes at 16x256x7168"
    made.add_argument("--matched", action="store_true", help=matched)
    shown = made.add_mutually_exclusive_group()
    shown.add_argument("--json", metavar="FILE", type=Path, help="what the notes show, in place of tables")
    shown.add_argument("--markdown", action="store_true", help="for a page instead of a terminal")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    if args.matched:
        made.refuse_unread(args, "--matched", ("--target", "--only", "--json", "--markdown"))
    from triton_vs_tilus.bench import contenders, workloads
    from triton_vs_tilus.bench.diagnostics import resources
    from triton_vs_tilus.bench.show.resources import tables, write
    from triton_vs_tilus.bench.show.tables import console

    targets = [args.target] if args.target else TARGETS
    if args.json is not None:
        try_file("--json", args.json)
    try:
        kernels = [kernel for kernel in contenders.choose(contenders.all_contenders(), args.only) if kernel.build]
        shapes = [workloads.parse_shape(text) for text in args.shape]
    except ValueError as error:
        raise UsageError(str(error)) from error
    gone = lacks_a_language()  # tables without it would look complete
    if args.json and gone:
        report(f"{args.json} is not written: it would lack what cannot be imported")
        return ExitCode.FAILED
    if args.matched:
        tasks = [task for target in targets for task in resources.matched_tasks(kernels, target)]
    else:
        tasks = resources.chosen_tasks(kernels, shapes, args.layout, targets)
    print(f"{len(tasks)} configs, except those compiled before", file=sys.stderr)
    built = resources.compile_all(tasks)
    if args.json:
        if failed := [outcome for outcome in built if outcome.error or outcome.skipped]:
            reason = (failed[0].error or failed[0].skipped).strip().splitlines()[-1]
            first = f"{failed[0].task.kernel.full_name}: {reason}"
            report(f"{args.json} is not written: {len(failed)} of {len(built)} did not compile; {first}")
            return ExitCode.FAILED
        write(built, args.json)
        return ExitCode.OK
    for table in tables(built):
        print(table.markdown()) if args.markdown else console(verbose=True).print(table)
    shipped = [outcome for outcome in built if outcome.task.origin != "space" and outcome.task.target == targets[-1]]
    return ExitCode.FAILED if gone or any(outcome.broken for outcome in shipped) else ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
