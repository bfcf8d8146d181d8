"""Compiles what a search will try, for a GPU that is not here: the time on the GPU then goes only to timing.

    python bench/prebuild.py --workload router --target sm_90a --device h200 --into built  # here
    python bench/prebuild.py --adopt built                   # there, once
    python bench/compare.py --workload router --tune full    # there
    python bench/prebuild.py --sanitizer --into built        # what sanitize.py launches

The folder is carried by whatever copies files. It is made by the Triton, the Python and the nvcc of this process, and
--adopt takes nothing of a language whose programs another Triton, tilus, nvcc or GPU would look for. Building goes on
where an earlier call was interrupted. Exits 1 where there is nothing to build or to adopt, or a language is refused.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import CACHE, ExitCode, Parser, UsageError
from triton_vs_tilus.bench.diagnostics.ptx import SHARED_LIMIT

if TYPE_CHECKING:
    from triton_vs_tilus.bench.search.prebuilt import Built

NAMED = 5  # failures in one message


def parser() -> Parser:
    made = Parser(__doc__)
    cli.add_problem_flags(made)
    cli.add_contender_flags(made)
    group = made.add_argument_group("building")
    target = "of the GPU, as nvcc names it (default: %(default)s)"
    group.add_argument("--target", choices=SHARED_LIMIT, default="sm_90a", help=target)
    device = "of the GPU's tuned table, whose configs a search tries too, if there is one (default: %(default)s)"
    group.add_argument("--device", metavar="SLUG", default="h200", help=device)
    tune = "what runs under compare.py's --tune of this name (default: %(default)s)"
    group.add_argument("--tune", choices=cli.TUNE, default="full", help=tune)
    launches = "build what sanitize.py launches, in place of what a search tries"
    group.add_argument("--sanitizer", action="store_true", help=launches)
    group.add_argument("--into", metavar="DIR", type=Path, default=CACHE / "prebuilt", help="(default: %(default)s)")
    group.add_argument("--adopt", metavar="DIR", type=Path, help="put a folder into this machine's caches")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    if args.adopt is not None:
        made.refuse_unread(args, "--adopt")
    if args.sanitizer:
        made.refuse_unread(args, "--sanitizer", ("--only", "--target", "--into"))
    from triton_vs_tilus.bench.search import prebuilt

    try:
        if args.adopt is not None:
            try:
                taken, refused = prebuilt.adopt(args.adopt)
            except OSError as error:
                raise UsageError(f"--adopt {args.adopt}: {error}") from error
            for language, count in taken.items():
                print(f"{language}: {count} programs adopted")
            for language, differing in refused.items():
                print(f"{language}: none adopted, as {differing}", file=sys.stderr)
            return ExitCode.FAILED if refused or not any(taken.values()) else ExitCode.OK
        built = _built(args)
    except prebuilt.Mismatch as mismatch:
        raise UsageError(str(mismatch)) from None
    if not built.configs:
        cli.report("nothing to build: no contender of these has a config for these problems that is compiled")
        return ExitCode.FAILED
    for language, count in built.programs.items():
        print(f"{language}: {prebuilt.programs(args.into, language)} programs, {count} of them new")
    print(f"{built.configs} configs in {built.seconds / 60:.1f} minutes, in {args.into}; {len(built.failed)} failed")
    for config, reason in list(built.failed.items())[:NAMED]:
        print(f"  {config}: {reason}", file=sys.stderr)
    return ExitCode.OK


def _built(args: argparse.Namespace) -> "Built":
    from triton_vs_tilus.bench.search import prebuilt
    from triton_vs_tilus.bench.search.race import BUDGETS
    from triton_vs_tilus.common import tuned

    folder = args.into.resolve()
    if args.sanitizer:
        from triton_vs_tilus.bench.diagnostics import sanitizer

        try:
            wanted = sanitizer.wanted(sanitizer.chosen_tasks(args.only))
        except ValueError as error:
            raise UsageError(str(error)) from None
        cli.try_folder("--into", args.into)
        return prebuilt.build_these(folder, wanted, target=args.target, finished=_progress)
    problems = [problem for _, problem in cli.chosen_problems(args)]
    kernels = cli.chosen_contenders(args, {problem.op for problem in problems})
    cli.try_folder("--into", args.into)
    if not any(tuned.table(slug) for slug in tuned.looked_in(args.device)):
        known = ", ".join(sorted({*tuned.devices(), *tuned.STAND_INS}))
        cli.report(
            f"--device {args.device}: has no tuned table, so no searched config is built; those that have: {known}"
        )
    budget = None if args.tune == "off" else BUDGETS[args.tune]
    return prebuilt.build(
        folder, problems, kernels, target=args.target, slug=args.device, budget=budget, finished=_progress
    )


def _progress(done: int, jobs: int) -> None:
    if done % 50 == 0 or done == jobs:
        print(f"{done} of {jobs} jobs", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
