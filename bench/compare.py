"""Compares kernels with torch's own and with each other, on the GPU of this machine.

    python bench/compare.py --workload router
    python bench/compare.py --shape 16x256x7168 --layout kn --only triton --csv rows.csv
    torchrun --nproc-per-node=4 bench/compare.py --workload router

Without a GPU it prints what was recorded elsewhere, and checks the kernels on the CPU for at most a minute.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench.cli import (
    CONTENDER_FLAGS,
    EXIT_CODES,
    JOURNALS,
    PROBLEM_FLAGS,
    ExitCode,
    Parser,
    UsageError,
    add_contender_flags,
    add_measuring_flags,
    add_problem_flags,
    add_row_flags,
    as_run_here,
    check_files,
    chosen_contenders,
    chosen_options,
    chosen_problems,
    has_gpu,
    run_command,
    try_file,
    words_of,
    write_files,
)

if TYPE_CHECKING:
    from rich.console import Console

    from triton_vs_tilus.bench.measure.run import Plan
    from triton_vs_tilus.bench.measure.worker import Options
    from triton_vs_tilus.bench.rows.row import Row

CHECK_S = 50.0  # for the whole check on the CPU
NAMED = 5  # contenders in one message
FEW = 8  # contenders, whose own table comes soon
# What only asks, and the flags that it reads.
READ_BESIDE = {
    "--list": ("--layout", "--dtype", "--out-dtype", "--epilogue", *CONTENDER_FLAGS, "--verbose"),
    "--spaces": (*PROBLEM_FLAGS, *CONTENDER_FLAGS, "--verbose"),
    "--doctor": (),
}


def parser() -> Parser:
    parser = Parser(__doc__, EXIT_CODES)
    add_problem_flags(parser)
    add_contender_flags(parser)
    add_measuring_flags(parser)
    parser.add_argument("--require-gpu", action="store_true", help="exit 2 where there is no GPU")

    group = parser.add_argument_group("the journal")
    output = f"a file with a line per row, written as it is measured (default: a new file in {JOURNALS})"
    group.add_argument("--output", metavar="F", type=Path, help=output)
    resume = "continue --output, or the newest journal of this command"
    group.add_argument("--resume", action="store_true", help=resume)
    add_row_flags(parser)

    group = parser.add_argument_group("asking").add_mutually_exclusive_group()
    group.add_argument("--list", action="store_true", help="list workloads and contenders")
    spaces = "how many configs --tune may try of each kernel, in each language; -v: what a language lacks, and why"
    group.add_argument("--spaces", action="store_true", help=spaces)
    doctor = "what is installed, found, missing; which contenders can run here"
    group.add_argument("--doctor", action="store_true", help=doctor)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    for flag, read in READ_BESIDE.items():
        if flag in made.given(args):
            made.refuse_unread(args, flag, read)
    if not has_gpu():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    if args.doctor:
        return show_doctor()
    if args.list:
        return show_list(args)
    if args.spaces:
        return show_spaces(args)
    return compare(args) if has_gpu() else check_on_cpu(args)


def compare(args: argparse.Namespace) -> int:
    """Measures on the GPU and shows. Returns the exit code."""
    from triton_vs_tilus.bench.measure import run
    from triton_vs_tilus.bench.measure.ranks import Ranks
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.bench.show.progress import shown
    from triton_vs_tilus.common.tuned import device_slug, path_of

    ranks = Ranks()
    plan = _plan(args, _options(args, ranks.local))
    if ranks.rank:
        run.measure(plan, JOURNALS, args.output, args.resume)
        return ExitCode.OK
    if args.output is not None:
        try_file("--output", args.output)
    old = check_files(args)
    out, code = tables.console(verbose=args.verbose), ExitCode.OK
    live = ranks.count == 1 and not args.resume
    if live and sys.stdout.isatty():
        plan = replace(plan, looked_at=_looked_at(plan))
    with shown((lambda rows: out.print(tables.problem_table(rows))) if live else None) as progress:
        try:
            rows = run.measure(plan, JOURNALS, args.output, args.resume, progress)
        except run.JournalError as error:
            raise UsageError(str(error)) from error
        except run.Incomplete as incomplete:
            rows, code = incomplete.rows, ExitCode.FAILED
            print(f"compare.py: incomplete: {incomplete}; --resume measures the rest", file=sys.stderr)
            if not rows:
                return code
        except KeyboardInterrupt as interrupt:
            if progress.journal is None:
                raise
            same = "--resume" if args.output is None else f"--output {args.output} --resume"
            raise type(interrupt)(f"the journal is {progress.journal}; {same} continues it") from None

    out.print(tables.source_of(rows), markup=False)
    for table in [tables.summary_table(rows)] if live else tables.tables(rows):
        out.print(table)
    show_matrix_and_plots(args, rows, out, args.plot)
    if args.tune != "off":
        for slug in sorted({device_slug(row.environment.device) for row in rows}):
            out.print(f"tuned configs are in {path_of(slug, shipped=False)}", markup=False)
    _show_not_importable()
    write_files(args, rows)
    code = max(code, _failed(rows))
    if args.against:
        try:
            if tables.show_changes(out, rows, _asked_again(old, args), args.fail_over):
                code = ExitCode.REGRESSED
        except ValueError as error:
            raise UsageError(str(error)) from None
    return code


def check_on_cpu(args: argparse.Namespace) -> int:
    """Prints what was recorded elsewhere, then checks the contenders. Returns the exit code."""
    from triton_vs_tilus.bench.measure import run
    from triton_vs_tilus.bench.measure.ranks import Ranks
    from triton_vs_tilus.bench.measure.worker import Options
    from triton_vs_tilus.bench.ops import BASELINES
    from triton_vs_tilus.bench.rows.journal import Journal
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.bench.show.progress import shown

    _refuse_what_needs_a_gpu(args)
    if Ranks().rank:
        return ExitCode.OK  # rank 0 checks
    if args.output is not None and args.output.exists():
        raise UsageError(f"--output {args.output} exists already; rows of a CPU are not added to others")
    if args.output is not None:
        try_file("--output", args.output)
    plan = _plan(args, Options(timings=(), device="cpu"), for_cpu=True)
    check_files(args)
    out = tables.console(verbose=args.verbose)
    print("There is no CUDA device: rows recorded elsewhere, then a check on the CPU; nothing is timed.", flush=True)
    show_recorded(args, out)

    problems = dict.fromkeys(problem.name for _, problem in plan.problems)
    small = "" if problems.keys() <= {problem.name for _, problem in chosen_problems(args)} else ", small for a CPU"
    what = f"{len(plan.kernels)} contenders on {', '.join(problems)}{small}"
    print(f"\nChecking {what}, {CHECK_S:.0f} s at most", flush=True)
    began = time.monotonic()
    with shown() as progress:
        try:
            rows = run.check(plan, CHECK_S, Journal(args.output) if args.output else None, progress)
        except run.JournalError as error:
            raise UsageError(str(error)) from error
        except KeyboardInterrupt as interrupt:
            if args.output is None or not args.output.exists():
                raise
            raise type(interrupt)(f"the journal is {args.output}; a check cannot be resumed") from None
    if rows:
        out.print(tables.checks_table(rows))
    _show_unchecked(plan, rows, time.monotonic() - began)
    _show_not_importable()
    write_files(args, rows)
    others = any(kernel.full_name not in BASELINES for kernel in plan.kernels)
    if not rows or (others and all(row.is_baseline for row in rows)):
        asked = "contender but the baseline" if rows else "contender"
        print(f"compare.py: no {asked} was checked within {CHECK_S:.0f} s", file=sys.stderr)
        return ExitCode.FAILED
    return _failed(rows)


def _refuse_what_needs_a_gpu(args: argparse.Namespace) -> None:
    """Raises UsageError for a flag that is about timing, or about rows that were timed."""
    timed = {
        "--require-gpu": args.require_gpu,
        "--tune": args.tune != "off",
        "--timing": args.timing is not None,
        "--energy": args.energy,
        "--rounds": args.rounds is not None,
        "--resume": args.resume,
    }
    for flag, given in timed.items():
        if given:
            raise UsageError(f"{flag}: there is no CUDA device, and nothing is timed without one")
    if args.against is not None:
        files = "two files: python bench/report.py NEW --against OLD"
        raise UsageError(f"--against: there is no CUDA device, and nothing is timed without one; {files}")


def _plan(args: argparse.Namespace, options: "Options", for_cpu: bool = False) -> "Plan":
    """Raises UsageError."""
    from triton_vs_tilus.bench.measure.run import Plan

    problems = chosen_problems(args, for_cpu)
    kernels = chosen_contenders(args, {problem.op for _, problem in problems})
    return Plan(words_of(args, options), problems, kernels, options)


def _looked_at(plan: "Plan") -> set[str]:
    """The baseline, and of each language the fastest at the recorded problem nearest to the first. Nothing where that
    is far, few are timed anyway, or a search or another clock is asked for."""
    from triton_vs_tilus.bench.measure.run import LOOK
    from triton_vs_tilus.bench.ops import OPS
    from triton_vs_tilus.bench.rows.answers import FAR, PRODUCTS, answer

    _, problem = plan.problems[0]
    asked = {kernel.full_name for kernel in plan.kernels if kernel.op == problem.op}
    if (
        problem.op not in PRODUCTS
        or len(asked) <= FEW
        or plan.options.tune != "off"
        or LOOK not in plan.options.timings
    ):
        return set()
    try:
        recorded = answer(problem, LOOK)
    except ValueError:  # nothing of its kind
        return set()
    if recorded.apart >= FAR:
        return set()
    fastest = {row.contender for row in map(recorded.best_of, ("triton", "tilus")) if row} & asked
    return {OPS[problem.op].baseline, *fastest} if fastest else set()


def _options(args: argparse.Namespace, local_rank: int) -> "Options":
    """Raises UsageError, also where this rank has no GPU of its own."""
    import torch

    if local_rank >= torch.cuda.device_count():
        raise UsageError(f"local rank {local_rank} has no GPU of its own: there are {torch.cuda.device_count()}")
    return chosen_options(args, local_rank)


def _failed(rows: Sequence["Row"]) -> ExitCode:
    """FAILED where a contender that should have worked did not; names some of them on stderr."""
    from triton_vs_tilus.bench.rows.row import PASSED, UNSUPPORTED

    failed = [row for row in rows if row.status not in (PASSED, UNSUPPORTED)]
    if not failed:
        return ExitCode.OK
    named = "; ".join(f"{row.contender} on {row.problem.name}: {row.status}" for row in failed[:NAMED])
    more = "; ..." if len(failed) > NAMED else ""
    print(f"compare.py: {len(failed)} of {len(rows)} rows failed: {named}{more}", file=sys.stderr)
    return ExitCode.FAILED


def _show_unchecked(plan: "Plan", rows: Sequence["Row"], seconds: float) -> None:
    checked = {(row.problem.name, row.contender) for row in rows}
    pairs = [(problem, kernel) for _, problem in plan.problems for kernel in plan.kernels if kernel.op == problem.op]
    left = [kernel.full_name for problem, kernel in pairs if (problem.name, kernel.full_name) not in checked]
    print(f"Checked {len(rows)} of {len(pairs)} in {seconds:.0f} s.")
    if left:
        just_one = ", --only NAME checks just one" * (len(plan.kernels) > 2)  # the baseline is among them
        print(f"Not checked within {CHECK_S:.0f} s{just_one}: {', '.join(dict.fromkeys(left))}")


def _show_not_importable() -> None:
    from triton_vs_tilus.bench import contenders

    for reason in contenders.not_importable().values():
        print(reason)


def _asked_again(old: Sequence["Row"], args: argparse.Namespace) -> list["Row"]:
    """The old rows whose contenders take part now, or would if their language could be imported."""
    from triton_vs_tilus.bench import contenders

    asked = {kernel.full_name for kernel in chosen_contenders(args)}
    known = {kernel.full_name for kernel in contenders.all_contenders(args.candidate)}
    gone = {language.value for language in contenders.not_importable()}

    def again(row: "Row") -> bool:
        return row.contender in asked or (not args.only and row.contender not in known and row.language in gone)

    return [row for row in old if again(row)]


def show_recorded(args: argparse.Namespace, out: "Console") -> None:
    """The checked-in rows of the problems and contenders asked for, of each problem those of the file that answers, of
    those in which one of these contenders passed: the fastest of each language, or with -v all. Then the other files
    that have some."""
    from triton_vs_tilus.bench.rows import answers, queries
    from triton_vs_tilus.bench.rows.row import PASSED
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.bench.show.winners import winners_table

    problems = {problem.name for _, problem in chosen_problems(args)}
    names = {kernel.full_name for kernel in chosen_contenders(_with_references(args))}
    files = queries.recorded()
    recorded = {path: [row for row in every if row.problem.name in problems] for path, every in files.items()}
    asked = {path: [row for row in rows if row.contender in names] for path, rows in recorded.items()}
    found = {path: rows for path, rows in asked.items() if not all(row.is_baseline for row in rows)}
    timed = {
        path: {row.problem.name for row in rows if row.status == PASSED and not row.is_baseline}
        for path, rows in found.items()
    }
    of_device = answers.of_device(files)  # that bench/answer.py takes, too
    here = {path: there for path, there in timed.items() if there and path in of_device} or timed
    answering = answers.files_by_problem(
        {path: [row for row in recorded[path] if row.problem.name in there] for path, there in here.items()}
    )
    for path in dict.fromkeys(answering.values()):
        rows = [row for row in found[path] if answering.get(row.problem.name) == path]
        title = f"recorded in {path.relative_to(queries.ROOT)}"
        out.print(winners_table(rows, title))
        if args.verbose:
            out.print(tables.overview_table(rows))
            out.print(tables.summary_table(rows))
        show_matrix_and_plots(args, rows, out, args.plot and args.plot / path.stem)
    if others := [path for path in found if path not in answering.values()]:
        print(as_run_here(f"Also recorded, in other runs; `python bench/report.py {queries.RESULTS}/FILE` prints one:"))
    for path in others:
        tritons = sorted({row.environment.triton for row in found[path] if row.environment.triton})
        days = sorted({row.time[:10] for row in found[path]})
        of = f"{len(found[path])} rows, Triton {', '.join(tritons)}, {days[-1]}"
        print(f"  {path.relative_to(queries.RESULTS)}: {of}")
    if not found:
        print("Nothing is recorded for these problems and contenders, except perhaps the baseline.")
        if unread := [flag for flag, asked in (("--matrix", args.matrix), ("--plot", args.plot)) if asked]:
            print(f"{', '.join(unread)}: nothing to show: a check on the CPU times nothing.")


def show_matrix_and_plots(args: argparse.Namespace, rows: Sequence["Row"], out: "Console", folder: Path | None) -> None:
    """Where they are asked for."""
    from triton_vs_tilus.bench.show import matrix, plots

    try:
        for table in matrix.tables(rows) if args.matrix else []:
            out.print(table)
        for path in plots.write(rows, folder) if folder else []:
            out.print(str(path), markup=False)
    except ValueError as error:  # nothing was timed
        out.print(str(error), style="bold red", markup=False)


def show_list(args: argparse.Namespace) -> int:
    from triton_vs_tilus.bench.show import listing, tables
    from triton_vs_tilus.bench.workloads import Asked

    asked = Asked(args.layout, args.dtype, args.out_dtype, args.epilogue)
    kernels = chosen_contenders(_with_references(args))
    out = tables.console(verbose=args.verbose)
    out.print(listing.workloads_table(asked, args.verbose))
    table = listing.every_contender_table if args.verbose else listing.contenders_table
    out.print(table(kernels, has_gpu()))
    return ExitCode.OK


def _with_references(args: argparse.Namespace) -> argparse.Namespace:
    """As if --references were given, unless --only names who takes part."""
    return argparse.Namespace(**{**vars(args), "references": args.references or not args.only})


def show_spaces(args: argparse.Namespace) -> int:
    from triton_vs_tilus.bench.show import spaces, tables

    problems = [problem for _, problem in chosen_problems(args)]
    kernels = chosen_contenders(args, {problem.op for problem in problems})
    out = tables.console(verbose=args.verbose)
    out.print(spaces.sizes_table(kernels, problems))
    if args.verbose:
        out.print(spaces.dropped_table(kernels, problems))
    return ExitCode.OK


def show_doctor() -> int:
    from triton_vs_tilus.bench.diagnostics import doctor
    from triton_vs_tilus.bench.show import tables

    tables.console().print(doctor.screen())
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
