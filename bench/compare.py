"""Compares kernels with torch's own and with each other, on the GPU of this machine.

    python bench/compare.py --workload router
    python bench/compare.py --shape 16x256x7168 --layout kn --only triton --csv rows.csv
    torchrun --nproc-per-node=4 bench/compare.py --workload router

Without a GPU it checks what runs on a CPU, and shows what was recorded elsewhere.
"""

import argparse
import logging
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

# All else is imported where it is used: --help need not wait for torch, and whether Triton compiles its kernels
# or interprets them is settled when it is first imported.
if TYPE_CHECKING:
    from rich.console import Console

    from bench.journal import Journal, Key, Row
    from bench.worker import Options
    from common.kernel import Kernel
    from common.problem import Problem

JOURNALS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton-vs-tilus" / "journals"
# Named here too, as those of common/ come with torch.
LAYOUTS = ("nk", "kn")
DTYPES = ("bf16", "fp16", "fp32")
TUNE = ("off", "quick", "full")
EPILOGUES = ("none", "relu", "bias_relu", "silu", "sigmoid", "scale")

NEEDS_GPU = "There is no CUDA device: timing and --tune need one."
ALIKE = ("device", "gpus", "torch", "triton", "tilus")  # of the environment, in all rows of a journal
CHECKED = 1  # problems of a workload on the CPU, those of the least work, where --tokens does not say which


class UsageError(Exception):
    """What was asked for cannot be done, in one line."""


class Incomplete(Exception):
    """Some rank stopped before it had done its share. `rows`: all that there are."""

    def __init__(self, message: str, rows: list["Row"]):
        super().__init__(message)
        self.rows = rows


class Watcher:
    """Is told how a run goes on. This one does not mind."""

    def starts(self, journal: Path, rows: int) -> None:
        """Before the first problem, with the number of rows to come."""

    def turns_to(self, problem: "Problem") -> None: ...

    def has(self, row: "Row") -> None: ...

    def leaves(self, rows: Sequence["Row"]) -> None:
        """After a problem, with its rows."""


def add_problem_flags(made: argparse.ArgumentParser) -> None:
    """What chosen_problems reads."""
    what = made.add_argument_group("problems")
    named = "a named list of problems, e.g. router (see --list), or a list of your own, see bench/workloads.py"
    what.add_argument("--workload", metavar="NAME|FILE.json", help=named)
    what.add_argument("--shape", metavar="MxNxK", action="append", default=[], help="one problem; repeatable")
    known = "one of a workload's problems, by its name; repeatable"
    what.add_argument("--problem", metavar="NAME", action="append", default=[], help=known)
    what.add_argument("--tokens", metavar="T,T,...", help="the workload's T, where not all of them")
    what.add_argument("--layout", choices=LAYOUTS, help="how the weight is stored (default: the workload's, else nk)")
    what.add_argument("--dtype", choices=DTYPES, help="of the inputs (default: the workload's, else bf16)")
    what.add_argument("--out-dtype", choices=DTYPES, help="of the output (default: that of the inputs)")
    what.add_argument("--epilogue", choices=EPILOGUES, help="fused pointwise end (default: the workload's, else none)")


def add_contender_flags(made: argparse.ArgumentParser) -> None:
    """What chosen_contenders reads."""
    who = made.add_argument_group("contenders", "the baseline, of a product torch/mm, always takes part")
    pattern = "full name, language/file, file.variant, file, language, or a pattern of these; repeatable"
    who.add_argument("--only", metavar="NAME", action="append", default=[], help=pattern)
    who.add_argument("--skip", metavar="NAME", action="append", default=[], help="likewise")
    asked = "also torch.compile, custom ops, Helion and what else compiles or searches for seconds at every problem"
    who.add_argument("--references", action="store_true", help=asked)
    who.add_argument(
        "--candidate", metavar="FILE.py:FUNCTION", action="append", default=[], help="a kernel of your own; repeatable"
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_problem_flags(made)
    add_contender_flags(made)

    how = made.add_argument_group("measuring")
    how.add_argument(
        "--timing", default="cold,warm", help="of cold, warm, host, with commas between (default: %(default)s)"
    )
    how.add_argument("--rounds", type=int, help="in which each contender has its turn")
    how.add_argument("--tune", choices=TUNE, default="off", help="search configs (default: %(default)s)")
    how.add_argument("--require-gpu", action="store_true", help="exit 2 where there is no GPU")

    where = made.add_argument_group("rows")
    journal = f"the journal, a line a row as it is made (default: a new file in {JOURNALS})"
    where.add_argument("--output", metavar="F", type=Path, help=journal)
    where.add_argument("--resume", action="store_true", help="go on with --output, or with the latest journal there")
    where.add_argument("--csv", metavar="F", help="write the rows as CSV")
    where.add_argument("--json", metavar="F", help="write the rows as a JSON list")
    where.add_argument("--matrix", action="store_true", help="print language x protocol as well")
    where.add_argument("--plot", metavar="DIR", help="write plots of the rows there, as SVG")
    where.add_argument("--against", metavar="OLD", help="hold the rows against those of an older file")
    where.add_argument(
        "--fail-over",
        metavar="PCT",
        type=float,
        help="exit 3 where a contender is slower by more percent than this, or is broken",
    )

    ask = made.add_argument_group("asking")
    ask.add_argument("--list", action="store_true", help="list workloads and contenders")
    ask.add_argument("--doctor", action="store_true", help="what is installed, found, missing; who sits out, and why")
    return made


def chosen_problems(args: argparse.Namespace, few: int | None = None) -> list[tuple[str, "Problem"]]:
    """(workload, problem) pairs; of a workload so many (None: all), where --tokens does not say which.

    Raises UsageError.
    """
    from bench import workloads

    if args.workload is None and not args.shape and not args.problem:
        raise UsageError("--workload NAME, --problem NAME or --shape MxNxK is needed; --list shows the workloads")
    if args.tokens and args.workload is None:
        raise UsageError("--tokens needs --workload NAME")
    try:
        return workloads.problems(
            args.workload,
            [workloads.parse_shape(text) for text in args.shape],
            names=args.problem,
            tokens=workloads.parse_tokens(args.tokens) if args.tokens else None,
            layout=args.layout,
            dtype=args.dtype,
            out_dtype=args.out_dtype,
            epilogue=args.epilogue,
            few=few,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def chosen_contenders(args: argparse.Namespace, ops: Collection[str] | None = None) -> list["Kernel"]:
    """Of these operations (None: of all). Raises UsageError."""
    from bench import contenders

    try:
        known = contenders.all_contenders(args.candidate)
        others = {kernel.op for kernel in known if kernel.language.value == "candidate"} - set(ops or ())
        if ops is not None and others:
            raise UsageError(f"--candidate solves {', '.join(others)}; the problems are of {', '.join(sorted(ops))}")
        known = [kernel for kernel in known if ops is None or kernel.op in ops]
        return contenders.choose(known, args.only, args.skip, args.references)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


def chosen_options(args: argparse.Namespace, local_rank: int) -> "Options":
    """Raises UsageError."""
    import torch

    from bench.tables import TIMINGS
    from bench.worker import Options

    timings = tuple(dict.fromkeys(args.timing.split(",")))
    if not set(timings) <= set(TIMINGS):
        raise UsageError(f"--timing is {args.timing!r}; accepted: of {', '.join(TIMINGS)}, with commas between")
    if args.rounds is not None and args.rounds < 1:
        raise UsageError(f"--rounds is {args.rounds}; accepted: 1 and more")
    if not has_gpu():
        return Options(timings=(), device="cpu")
    if local_rank >= torch.cuda.device_count():
        raise UsageError(f"local rank {local_rank} has no GPU of its own: there are {torch.cuda.device_count()}")
    rounds = Options.rounds if args.rounds is None else args.rounds
    return Options(timings=timings, rounds=rounds, tune=args.tune, device=local_rank)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def run(args: argparse.Namespace, watcher: Watcher | None = None) -> list["Row"]:
    """Measures, and returns the rows of the journal: the new ones, and with --resume those that it held.

    Without a GPU contenders are checked and not timed. Under torchrun each rank does its share of the problems,
    all contenders of one on the same GPU; rank 0 returns the rows of all, the others none.

    Raises UsageError; on rank 0 Incomplete, where another rank could not go on.
    """
    from bench.journal import Journal, Row, done_keys
    from bench.ranks import Ranks

    ranks = Ranks()
    options = chosen_options(args, ranks.local)
    problems = chosen_problems(args, None if has_gpu() else CHECKED)
    kernels = chosen_contenders(args, {problem.op for _, problem in problems})
    path = Path(ranks.agree(lambda: str(_opened(args))))
    held = Journal(path).rows()
    if has_gpu():
        _check_alike(held, options)
    done = done_keys(held)
    own = Journal(path if ranks.count == 1 else path.with_suffix(f".rank{ranks.rank}{path.suffix}"))
    stopped = ""
    try:
        _measure(problems[ranks.rank :: ranks.count], kernels, options, own, done, watcher or Watcher())
    except Exception as error:
        if ranks.count == 1:
            raise
        stopped = f"rank {ranks.rank} stopped: {type(error).__name__}: {error}"

    told = ranks.gather({"stopped": stopped, "rows": [row.to_json() for row in own.rows()]})
    if told is None:
        return []
    journal = Journal(path)
    _append_new(journal, [Row.from_json(values) for of_rank in told for values in of_rank["rows"]])
    for leftover in _of_ranks(path):
        leftover.unlink()
    rows = journal.rows()
    if stops := [of_rank["stopped"] for of_rank in told if of_rank["stopped"]]:
        raise Incomplete("; ".join(stops), rows)
    return rows


def _opened(args: argparse.Namespace) -> Path:
    """The journal, there from now on, with what the ranks of an interrupted run left. Raises UsageError."""
    from bench.journal import Journal, new_path, read_rows

    path = args.output
    if path is None and args.resume:
        journals = [found for found in JOURNALS.glob("*.jsonl") if ".rank" not in found.name]
        if not journals:
            raise UsageError(f"--resume: there is no journal in {JOURNALS}")
        path = max(journals, key=lambda found: found.stat().st_mtime)
    elif path is None:
        path = new_path(JOURNALS)
    if path.exists() and not args.resume:
        raise UsageError(f"--output {path} is there already; --resume goes on with it")
    try:
        if path.exists():
            read_rows(path)  # before it is opened as a journal, which drops a last line without its end
        journal = Journal(path)
        path.touch()
        for leftover in _of_ranks(path):
            _append_new(journal, read_rows(leftover))
            leftover.unlink()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    return path


def _check_alike(rows: Sequence["Row"], options: "Options") -> None:
    """Tells where rows of a journal were made at another git revision. Raises UsageError where they were measured on
    another device, with other versions, rounds or search than this run would."""
    from bench.environment import environment

    if not rows:
        return
    here = environment(options.torch_device)
    pairs = [(what, row.environment.get(what), here[what]) for row in rows for what in ALIKE]
    pairs += [("--rounds", figures["rounds"], options.rounds) for row in rows for figures in row.timing.values()]
    pairs += [("--tune", _tune_of(row), options.tune) for row in rows]
    differing = dict.fromkeys(f"{what}: {theirs} there, {ours} here" for what, theirs, ours in pairs if theirs != ours)
    if differing:
        raise UsageError(f"--resume: the journal's rows were measured otherwise: {'; '.join(differing)}")
    for revision in dict.fromkeys(row.environment.get("git") for row in rows):
        if revision != here["git"]:
            logging.getLogger("bench").info("the journal holds rows of revision %s; this is %s", revision, here["git"])


def _tune_of(row: "Row") -> str:
    words = shlex.split(row.command)
    return words[words.index("--tune") + 1] if "--tune" in words else "off"


def _of_ranks(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.rank*{path.suffix}"))


def _append_new(journal: "Journal", rows: Sequence["Row"]) -> None:
    from bench.journal import done_keys

    done = done_keys(journal.rows())
    for row in rows:
        if row.key not in done:
            journal.append(row)


def _measure(
    problems: Sequence[tuple[str, "Problem"]],
    kernels: Sequence["Kernel"],
    options: "Options",
    journal: "Journal",
    done: set["Key"],
    watcher: Watcher,
) -> None:
    """Appends a row to the journal for each contender and problem that is not `done`. What a search finds goes into the
    device's table after each problem, as the next search begins with it."""
    from bench import tuning, worker
    from bench.process import Child
    from common.tuned import device_slug

    asked = tuple(sorted(options.timings))
    left = []
    for workload, problem in problems:
        own = [kernel for kernel in kernels if kernel.op == problem.op]
        missing = [kernel for kernel in own if (problem.name, kernel.full_name, asked) not in done]
        if missing:
            left.append((workload, problem, missing))
    watcher.starts(journal.path, sum(len(missing) for *_, missing in left))
    if has_gpu() and options.tune == "off":  # a search builds its own
        tuning.build_ahead(
            [(problem, missing) for _, problem, missing in left],
            deadline_s=options.deadline_s,
            device=options.torch_device,
        )
    with Child(options.deadline_s) as child, tuning.builders(options.deadline_s) as builders:
        for workload, problem, missing in left:
            watcher.turns_to(problem)
            rows = []
            for row in worker.measure(workload, problem, missing, options, child, builders):
                journal.append(row)
                rows.append(row)
                watcher.has(row)
            if options.tune != "off":
                tuning.write_table(device_slug(rows[0].environment["device"]), rows)
            watcher.leaves(rows)


class Screen(Watcher):
    """A progress bar on stderr; with `out`, each problem's table there as soon as it is complete."""

    def __init__(self, out: "Console | None"):
        from rich import progress

        from bench.tables import console

        self.out = out
        self.progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Screen":
        # What a search used, told by bench.tuning as it ends.
        from rich.logging import RichHandler

        log = logging.getLogger("bench")
        log.setLevel(logging.INFO)
        log.addHandler(RichHandler(console=self.progress.console, show_time=False, show_level=False, show_path=False))
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def starts(self, journal: Path, rows: int) -> None:
        self.progress.console.print(f"journal: {journal}", markup=False)
        self.task = self.progress.add_task("", total=rows)

    def turns_to(self, problem: "Problem") -> None:
        self.progress.update(self.task, description=problem.name)

    def has(self, row: "Row") -> None:
        self.progress.advance(self.task)

    def leaves(self, rows: Sequence["Row"]) -> None:
        from bench.tables import problem_table

        if self.out is not None:
            self.progress.stop()  # erased, so that the two do not run into each other on one terminal
            self.out.print(problem_table(rows))
            self.progress.start()


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if not has_gpu():
        os.environ.setdefault("TRITON_INTERPRET", "1")
    try:
        if args.fail_over is not None and not args.against:
            raise UsageError("--fail-over needs --against OLD")
        if not has_gpu() and args.require_gpu:
            raise UsageError("--require-gpu: there is no CUDA device")
        if not has_gpu() and args.against:
            raise UsageError(
                "--against: there is no CUDA device to measure on; two files: python bench/report.py NEW --against OLD"
            )
        for flag, file in (("--csv", args.csv), ("--json", args.json)):
            if file and not Path(file).resolve().parent.is_dir():
                raise UsageError(f"{flag} {file}: there is no such folder")
        if args.plot and Path(args.plot).is_file():
            raise UsageError(f"--plot {args.plot}: there is a file of that name; accepted: a folder")
        if args.doctor:
            return show_doctor()
        if args.list:
            return show_list(args)
        return compare(args)
    except KeyboardInterrupt:
        print("compare.py: interrupted; --resume measures the rest", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"compare.py: error: {error}", file=sys.stderr)
        return 2


def compare(args: argparse.Namespace) -> int:
    """Measures and shows. Returns the exit code."""
    from bench import contenders, tables
    from bench.ranks import Ranks
    from common.tuned import TABLES, device_slug

    old = _old_rows(args)
    ranks = Ranks()
    out, errors = tables.console(), tables.console(stderr=True)
    live = out if has_gpu() and ranks.count == 1 and not args.resume else None
    code = 0
    if ranks.rank:
        run(args)
        return 0
    try:
        with Screen(live) as screen:
            rows = run(args, screen)
    except Incomplete as incomplete:
        rows, code = incomplete.rows, 1
        errors.print(f"incomplete: {incomplete}; --resume measures the rest", style="bold red", markup=False)

    if has_gpu():
        out.print(tables.source_of(rows), markup=False)
        for table in [tables.summary_table(rows)] if live else tables.tables(rows):
            out.print(table)
        show_matrix_and_plots(args, rows, out, args.plot)
    else:
        out.print(tables.checks_table(rows))
        if args.candidate:  # of which nothing is recorded
            out.print(NEEDS_GPU, markup=False)
        else:
            show_recorded(args, out)
    if args.tune != "off" and has_gpu():
        for slug in sorted({device_slug(row.environment["device"]) for row in rows}):
            out.print(f"tuned configs are in {TABLES / f'{slug}.json'}", markup=False)
    for reason in contenders.not_importable().values():
        out.print(reason, markup=False)
    if args.csv:
        tables.write_csv(rows, args.csv)
    if args.json:
        tables.write_json(rows, args.json)
    if args.against:
        try:
            code = tables.show_changes(out, rows, _asked_again(old, args), args.fail_over) or code
        except ValueError as error:
            raise UsageError(str(error)) from None
    return code


def _asked_again(old: Sequence["Row"], args: argparse.Namespace) -> list["Row"]:
    """Those whose contenders take part now, or would if their language could be imported."""
    from bench import contenders

    asked = {kernel.full_name for kernel in chosen_contenders(args)}
    known = {kernel.full_name for kernel in contenders.all_contenders(args.candidate)}
    gone = {language.value for language in contenders.not_importable()}

    def again(row: "Row") -> bool:
        return row.contender in asked or (not args.only and row.contender not in known and row.language in gone)

    return [row for row in old if again(row)]


def _old_rows(args: argparse.Namespace) -> list["Row"]:
    """Read before anything is measured, so that a wrong name costs no time. Raises UsageError."""
    from bench.journal import read_rows

    try:
        return read_rows(args.against) if args.against else []
    except (OSError, ValueError) as error:
        raise UsageError(f"--against {args.against}: {error}") from error


def show_recorded(args: argparse.Namespace, out: "Console") -> None:
    """Without a GPU: the checked-in rows of the problems asked for, and what is left to a GPU."""
    from bench import tables

    asked = {problem.name for _, problem in chosen_problems(args)}
    if (checked := {problem.name for _, problem in chosen_problems(args, CHECKED)}) < asked:
        named = "that of the least work; --problem, --shape and --tokens choose"
        out.print(f"Checked here: {len(checked)} of {len(asked)} problems, {named}", markup=False)
    files = {path: [row for row in rows if row.problem["name"] in asked] for path, rows in tables.recorded().items()}
    for path, rows in files.items():
        if rows:
            out.print(f"Not measured here, but recorded: {path.relative_to(tables.ROOT)}", style="bold", markup=False)
            # By T alone they are few enough for a screen's width; contenders are not.
            by_tokens = tables.naming(rows)[1] == "T"
            out.print(tables.speedups_table(rows) if by_tokens else tables.overview_table(rows))
            out.print(tables.summary_table(rows))
            show_matrix_and_plots(args, rows, out, args.plot and Path(args.plot) / path.stem)
    if not any(files.values()):
        out.print("No rows are recorded for these problems.")
    out.print(NEEDS_GPU, markup=False)


def show_matrix_and_plots(
    args: argparse.Namespace, rows: Sequence["Row"], out: "Console", folder: str | Path | None
) -> None:
    """Where they are asked for."""
    from bench import matrix, plots

    try:
        for table in matrix.tables(rows) if args.matrix else []:
            out.print(table)
        for path in plots.write(rows, folder) if folder else []:
            out.print(str(path), markup=False)
    except ValueError as error:  # nothing was timed
        out.print(str(error), style="bold red", markup=False)


def show_list(args: argparse.Namespace) -> int:
    from bench import contenders, tables, workloads

    out = tables.console()
    lines = []
    asked = workloads.Asked(args.layout, args.dtype, args.out_dtype, args.epilogue)
    anyhow = workloads.Asked(dtype=args.dtype, epilogue=args.epilogue)  # where nothing has a layout
    for suite in workloads.SUITES:
        if suite.agrees(args.dtype, args.epilogue):
            problems = suite.problems(None, asked) or suite.problems(None, anyhow)
            ends = (min(problem.flops for problem in problems), max(problem.flops for problem in problems))
            gflop = " to ".join(f"{flops / 1e9:.3g}" for flops in ends)
            lines.append([suite.name, str(len(problems)), problems[0].name, problems[-1].name, gflop, suite.about])
    header = ["workload", "problems", "first", "last", "GFLOP", "what it is"]
    groups = [f"{name}: all that begin so" for name, suites in workloads.WORKLOADS.items() if len(suites) > 1]
    out.print(tables.Table("workloads", header, lines, foot="; ".join(groups)))
    lines = []
    args.references = args.references or not args.only
    for kernel in chosen_contenders(args):
        deterministic, asked = "yes" if kernel.deterministic else "", "--references" if kernel.on_request else ""
        reason = contenders.environment_reason(kernel.language) or ""
        lines.append([kernel.full_name, kernel.op, kernel.protocol.value, deterministic, asked, reason])
    header = ["contender", "operation", "protocol", "deterministic", "takes part with", "sits out on this machine"]
    out.print(tables.Table("contenders", header, lines, foot="\n".join(contenders.not_importable().values())))
    return 0


def show_doctor() -> int:
    from bench import doctor, tables

    tables.console().print(doctor.screen())
    return 0


if __name__ == "__main__":
    sys.exit(main())
