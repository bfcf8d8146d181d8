"""What the commands share: flags, the problems and contenders that they name, exit codes, how a command ends.

Modules that import torch are imported by the functions that need them: --help waits for none of them, and whether
Triton compiles its kernels or interprets them is settled when Triton is first imported.
"""

import argparse
import difflib
import math
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import IntEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NoReturn

from platformdirs import user_cache_path

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.common.files import InvalidFile

if TYPE_CHECKING:
    from triton_vs_tilus.bench.measure.worker import Options
    from triton_vs_tilus.bench.rows.row import Row, TimingName
    from triton_vs_tilus.common.kernel import Kernel
    from triton_vs_tilus.common.problem import Problem

CACHE = user_cache_path("triton-vs-tilus")
JOURNALS = CACHE / "journals"

# The names of common/ and bench/, which come with torch there.
LAYOUTS = ("nk", "kn")
DTYPES = ("bf16", "fp16", "fp32")
EPILOGUES = ("none", "relu", "silu", "sigmoid", "bias", "bias_relu", "bias_silu", "bias_sigmoid", "scale")
TUNE = ("off", "quick", "full")
CLOCKS: "tuple[TimingName, ...]" = ("cold", "graph", "warm")  # that an answer may be asked by

PROBLEM_FLAGS = ("--workload", "--shape", "--problem", "--tokens", "--layout", "--dtype", "--out-dtype", "--epilogue")
CONTENDER_FLAGS = ("--only", "--skip", "--references", "--matched", "--borrowed", "--candidate")

WIDTH = 100  # characters of a line
AGAIN_S = 1.0  # within which a signal is the one before


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REGRESSED = 3
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


EXIT_CODES = """\
exit codes:
  0    all right
  1    a contender that should have worked did not: it crashed, was wrong, suspicious or timed out
  2    usage: a flag, a name or a file that cannot be used
  3    regression: --fail-over was exceeded
  130  interrupted by Ctrl-C
  141  the reader of the output has closed it
  143  terminated by SIGTERM"""


class UsageError(Exception):
    """What was asked for cannot be done: the argument, its value and what is accepted."""


class Terminated(KeyboardInterrupt):
    """SIGTERM was received: everything ends as it does on Ctrl-C."""


class _Once(argparse._StoreAction):
    """A flag's value. A second one would replace the first without a word."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        if option_string and getattr(namespace, self.dest, self.default) is not self.default:
            parser.error(f"{option_string} is given twice; accepted: once")
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """A command's flags. description: its docstring, whose paragraphs are wrapped; indented lines stand as they are."""

    def __init__(self, description: str | None, epilog: str | None = None):
        width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
        lines: list[str] = []
        for stands, group in groupby(as_run_here(description or "").splitlines(), lambda line: line[:1] in ("", " ")):
            part = list(group)
            lines += part if stands else textwrap.wrap(" ".join(part), width, break_on_hyphens=False)
        formatter = partial(argparse.RawDescriptionHelpFormatter, width=width)
        super().__init__(description="\n".join(lines), epilog=epilog, formatter_class=formatter)
        self._negative_number_matcher = re.compile(r"-\d")  # '-1x2x3' is a value that is wrong, and no flag
        for name in (None, "store"):
            self.register("action", name, _Once)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def given(self, args: argparse.Namespace) -> list[str]:
        """The flags whose values differ from their defaults."""
        flags = [action for action in self._actions if action.option_strings and action.dest in args]
        return [action.option_strings[-1] for action in flags if getattr(args, action.dest) != action.default]

    def refuse_unread(self, args: argparse.Namespace, flag: str, read: Collection[str] = ()) -> None:
        """Raises UsageError where others are given beside this flag than those that are read then."""
        if unread := [given for given in self.given(args) if given not in (flag, *read)]:
            accepted = ", ".join(read) or "nothing"
            raise UsageError(f"{flag} does not use {', '.join(unread)}; accepted beside it: {accepted}")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            named = "/".join(action.option_strings) or action.dest
            raise UsageError(f"{named} is {value}; accepted: {', '.join(map(str, action.choices))}")


def as_run_here(text: str) -> str:
    """A text that names commands by their paths in a checkout, `python bench/compare.py`, for this installation: in a
    wheel they are modules, `python -m triton_vs_tilus.bench.compare`."""
    if (ROOT / "pyproject.toml").is_file():
        return text
    return re.sub(r"\b(python|torchrun \S+) bench/(\w+)\.py", r"\1 -m triton_vs_tilus.bench.\2", text)


def named_by(command: str, name: str, known: Iterable[str]) -> str:
    """What is accepted in place of an unknown name, where many are known: the command that lists them, the nearest."""
    near = difflib.get_close_matches(name, known)
    return f"names that `python {command}` lists" + (f", the nearest: {', '.join(near)}" if near else "")


def run_command(main: Callable[[Sequence[str] | None], int], arguments: Sequence[str] | None = None) -> int:
    """The exit code of main(arguments); arguments default to those of the process.

    UsageError, InvalidFile and UnicodeEncodeError, in lines of WIDTH, Ctrl-C and SIGTERM are told on stderr and become
    their exit code. A reader of the output that has seen enough, as `head`, ends the command without a word.
    """
    name = Path(main.__code__.co_filename).name
    before = {}
    if threading.current_thread() is threading.main_thread():
        end = _End()
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = main(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes as it ends
        return ExitCode.OUTPUT_CLOSED
    except (UsageError, InvalidFile, UnicodeEncodeError) as error:
        told = as_run_here(f"{name}: error: {_said_by(error)}")
        print(textwrap.fill(told, WIDTH, break_long_words=False, break_on_hyphens=False), file=sys.stderr)
        return ExitCode.USAGE
    except KeyboardInterrupt as interrupt:
        terminated = isinstance(interrupt, Terminated)
        ended = "terminated" if terminated else "interrupted"
        print(": ".join([name, ended, *filter(None, map(str, interrupt.args))]), file=sys.stderr)
        return ExitCode.TERMINATED if terminated else ExitCode.INTERRUPTED
    except SystemExit as ended:  # by argparse
        return ended.code if isinstance(ended.code, int) else ExitCode.USAGE
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _said_by(error: Exception) -> str:
    """What an error says; of a character that the output's encoding lacks, also what writes it."""
    cause = error.__cause__ or error  # a command may take it for one of its own ValueErrors
    if not isinstance(cause, UnicodeEncodeError):
        return str(error)
    return f"{cause.object[cause.start]!a} is not in {cause.encoding}; accepted: UTF-8, e.g. by PYTHONUTF8=1"


class _End:
    """Ends the command at a signal. One that comes soon after is the same: `timeout` sends each to the command and then
    to its group, and an exception amid what the first one ends could leave a lock taken that the rest waits for."""

    def __init__(self) -> None:
        self._begun = -math.inf

    def __call__(self, number: int, frame: object) -> None:
        now = time.monotonic()
        if now - self._begun >= AGAIN_S:
            self._begun = now
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def check_checkout(folder: str) -> None:
    """Raises UsageError where the project has no such folder, as it is in a wheel."""
    if not (ROOT / folder).is_dir():
        raise UsageError(f"there is no {folder} in {ROOT}; accepted: a checkout of the project")


def lacks_a_language() -> bool:
    """Whether a language's package cannot be imported; stderr is told which, and why."""
    from triton_vs_tilus.bench import contenders

    reasons = list(contenders.not_importable().values())
    for reason in reasons:
        report(reason)
    return bool(reasons)


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def report(message: str) -> None:
    """What a command does meanwhile, on stderr: stdout is for what it found."""
    print(message, file=sys.stderr, flush=True)


def add_problem_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that chosen_problems reads."""
    group = parser.add_argument_group("problems")
    workload = "a named list of problems, e.g. router (see compare.py --list), or your own list (bench/workloads.py)"
    group.add_argument("--workload", metavar="NAME|FILE.json", help=workload)
    group.add_argument("--shape", metavar="MxNxK", action="append", default=[], help="one problem; repeatable")
    problem = "a problem of any workload by its name; repeatable"
    group.add_argument("--problem", metavar="NAME", action="append", default=[], help=problem)
    group.add_argument("--tokens", metavar="T,T,...", help="these T of the workload (default: all of its T)")
    layout = "how the weight is stored (default: the workload's, else nk)"
    group.add_argument("--layout", choices=LAYOUTS, help=layout)
    group.add_argument("--dtype", choices=DTYPES, help="of the inputs (default: the workload's, else bf16)")
    group.add_argument("--out-dtype", choices=DTYPES, help="of the output (default: that of the inputs)")
    epilogue = f"fused pointwise end: {', '.join(EPILOGUES)} (default: the workload's, else none)"
    group.add_argument("--epilogue", metavar="NAME", choices=EPILOGUES, help=epilogue)


def add_contender_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that chosen_contenders reads."""
    group = parser.add_argument_group("contenders", "the baseline, of a product torch/mm, always takes part")
    pattern = "full name, language/file, file.variant, file, language, or a pattern of these; repeatable"
    group.add_argument("--only", metavar="NAME", action="append", default=[], help=pattern)
    group.add_argument("--skip", metavar="NAME", action="append", default=[], help="leave these out; repeatable")
    references = "also torch.compile, custom ops, Helion: those that compile or search for seconds at every problem"
    group.add_argument("--references", action="store_true", help=references)
    matched = "also each kernel of a language with the config of the other's: what only the language changes"
    group.add_argument("--matched", action="store_true", help=matched)
    borrowed = "also each kernel searched for the problem with the config that it would borrow without that search"
    group.add_argument("--borrowed", action="store_true", help=borrowed)
    candidate = "a kernel of your own (bench/candidate.py); repeatable"
    group.add_argument("--candidate", metavar="FILE.py:FUNCTION", action="append", default=[], help=candidate)


def add_measuring_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that chosen_options reads."""
    group = parser.add_argument_group("measuring")
    timing = "out of cold, graph, warm, host, with commas between (default: cold,graph)"
    group.add_argument("--timing", metavar="T,T,...", help=timing)
    group.add_argument("--rounds", type=int, help="in each, every contender takes a turn (default: 80)")
    group.add_argument("--tune", choices=TUNE, default="off", help="search configs (default: %(default)s)")
    energy = "also the microjoules of a launch, with --timing graph: takes half a second more per contender"
    group.add_argument("--energy", action="store_true", help=energy)


def add_row_flags(parser: argparse.ArgumentParser) -> None:
    """What becomes of rows beside the tables: the flags that check_files reads, and --matrix and --fail-over."""
    group = parser.add_argument_group("rows")
    group.add_argument("--csv", metavar="F", type=Path, help="write the rows as CSV")
    group.add_argument("--json", metavar="F", type=Path, help="write the rows as JSON lines")
    group.add_argument("--matrix", action="store_true", help="print language x protocol")
    group.add_argument("--plot", metavar="DIR", type=Path, help="write plots of the rows there, as SVG")
    group.add_argument("--against", metavar="OLD", type=Path, help="compare the rows with those of an older file")
    fail_over = f"exit {ExitCode.REGRESSED:d} where a contender is slower by more percent than this, or is broken"
    group.add_argument("--fail-over", metavar="PCT", type=_percent, help=fail_over)
    verbose = "print all columns, and every contender"
    parser.add_argument("-v", "--verbose", action="store_true", help=verbose)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least 0")
    return value


def check_files(args: argparse.Namespace) -> list["Row"]:
    """The rows of --against; tries the files that are to be written, before anything is measured. Raises UsageError,
    and leaves no folder behind then."""
    if args.fail_over is not None and args.against is None:
        raise UsageError("--fail-over needs --against OLD")
    taken = {path.resolve() for path in _other_files(args)}
    for flag, path in (("--csv", args.csv), ("--json", args.json)):
        if path is not None:
            if path.resolve() in taken:
                raise UsageError(
                    f"{flag} is {path}; accepted: a file that this command neither reads nor writes otherwise"
                )
            taken.add(path.resolve())
            try_file(flag, path)
    rows = read_files("--against", [args.against] if args.against else [])
    if args.plot is not None:
        try_folder("--plot", args.plot)
    return rows


def _other_files(args: argparse.Namespace) -> list[Path]:
    """What a command with row flags reads, and its journal."""
    given = vars(args)
    workload = given.get("workload") or ""
    named = [*given.get("file", []), args.against, given.get("output")]
    named += [Path(candidate.rpartition(":")[0]) for candidate in given.get("candidate", [])]
    named += [Path(workload)] if workload.endswith(".json") else []
    return [path for path in named if path is not None]


def try_file(flag: str, path: Path) -> None:
    """Raises UsageError where no regular file can be written at this path, or beside it, where it is written first."""
    if path.exists() and not path.is_file():
        raise UsageError(f"{flag} {path}: is not a regular file")
    there = path.exists()
    try:
        with path.open("a"), TemporaryFile(dir=path.resolve().parent):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from error


def try_folder(flag: str, path: Path) -> None:
    """Makes the folder. Raises UsageError where it cannot be made, or no file can be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}; accepted: a folder that can be written into") from error


def read_files(flag: str, paths: Sequence[Path]) -> list["Row"]:
    """The rows of all files. Raises UsageError with the file's name."""
    from triton_vs_tilus.bench.rows.journal import read_rows

    try:
        return [row for path in paths for row in read_rows(path)]
    except OSError as error:
        raise UsageError(f"{flag} {error.filename}: {error.strerror}".strip()) from error
    except ValueError as error:
        raise UsageError(f"{flag} {error}".strip()) from error


def write_files(args: argparse.Namespace, rows: Sequence["Row"]) -> None:
    """Writes the rows where --csv and --json say. Raises UsageError."""
    from triton_vs_tilus.bench.show import tables

    for flag, path, write in (("--csv", args.csv, tables.write_csv), ("--json", args.json, tables.write_json)):
        if path is not None:
            try:
                write(rows, path)
            except OSError as error:
                raise UsageError(f"{flag} {path}: {error.strerror}") from error


def words_of(args: argparse.Namespace, options: "Options") -> str:
    """The words of a command that decide what is measured, in one order; defaults are left out."""
    from triton_vs_tilus.bench.rows.command import flags

    words = []
    for name in ("workload", "shape", "problem", "tokens", "layout", "dtype", "out_dtype", "epilogue"):
        words += _flag_words(name, getattr(args, name))
    for name in ("only", "skip", "candidate"):
        words += _flag_words(name, sorted(set(getattr(args, name))))
    words += [f"--{name}" for name in ("references", "matched", "borrowed") if getattr(args, name)]
    words += _flag_words("timing", ",".join(options.timings))
    words += flags(options.changed)
    return shlex.join(words)


def _flag_words(name: str, values: str | Sequence[str] | None) -> list[str]:
    given = [values] if isinstance(values, str) else values or []
    return [word for value in given for word in (f"--{name.replace('_', '-')}", value)]


def new_output(args: argparse.Namespace, folder: Path) -> Path:
    """--output, or a file of the folder that no other command has. Raises UsageError where --output is there."""
    from triton_vs_tilus.bench.rows.journal import new_path

    output = args.output or new_path(folder)
    if output.exists():
        raise UsageError(f"--output {output} exists already")
    return output


def chosen_problems(args: argparse.Namespace, for_cpu: bool = False) -> list[tuple[str, "Problem"]]:
    """(workload, problem) pairs. for_cpu: in place of a workload's problems one that a CPU checks in seconds, unless
    --tokens says which.

    Raises UsageError.
    """
    from triton_vs_tilus.bench import workloads

    if args.workload is None and not args.shape and not args.problem:
        raise UsageError(
            "--workload NAME, --problem NAME or --shape MxNxK is needed; "
            "`python bench/compare.py --list` shows the workloads"
        )
    if args.tokens is not None and args.workload is None:
        raise UsageError("--tokens needs --workload NAME")
    for flag in ("layout", "dtype", "out_dtype", "epilogue"):
        if args.workload is None and not args.shape and (given := getattr(args, flag)) is not None:
            named = f"--{flag.replace('_', '-')} is {given}"
            raise UsageError(f"{named}; accepted: none with --problem NAME alone, whose name says it")
    try:
        return workloads.problems(
            args.workload,
            [workloads.parse_shape(text) for text in args.shape],
            names=args.problem,
            tokens=None if args.tokens is None else workloads.parse_tokens(args.tokens),
            layout=args.layout,
            dtype=args.dtype,
            out_dtype=args.out_dtype,
            epilogue=args.epilogue,
            for_cpu=for_cpu,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def chosen_contenders(args: argparse.Namespace, ops: Collection[str] | None = None) -> list["Kernel"]:
    """Contenders of these operations (None: of all). Raises UsageError."""
    from triton_vs_tilus.bench import contenders

    for flag in ("matched", "borrowed") if getattr(args, "tune", "off") != "off" else ():
        if getattr(args, flag):
            raise UsageError(
                f"--{flag} takes its configs from the tuned tables: search with --tune first, and without it then"
            )
    try:
        known = contenders.all_contenders(args.candidate)
        others = {kernel.op for kernel in known if kernel.language.value == "candidate"} - set(ops or ())
        if ops is not None and others:
            raise UsageError(f"--candidate solves {', '.join(others)}; the problems are of {', '.join(sorted(ops))}")
        known = [kernel for kernel in known if ops is None or kernel.op in ops]
        return contenders.choose(known, args.only, args.skip, args.references, args.matched, args.borrowed)
    except (ValueError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error


def chosen_options(args: argparse.Namespace, device: int = 0) -> "Options":
    """How to measure on the CUDA device of this index. Raises UsageError."""
    from triton_vs_tilus.bench.measure.stats import LEAST_ROUNDS
    from triton_vs_tilus.bench.measure.worker import Options
    from triton_vs_tilus.bench.rows.row import TIMINGS

    timings = tuple(dict.fromkeys((args.timing or "cold,graph").split(",")))
    if not set(timings) <= set(TIMINGS):
        raise UsageError(f"--timing is {args.timing!r}; accepted: of {', '.join(TIMINGS)}, with commas between")
    if args.rounds is not None and args.rounds < LEAST_ROUNDS:
        raise UsageError(
            f"--rounds is {args.rounds}; accepted: {LEAST_ROUNDS} and more, else there is no 95 % interval"
        )
    if args.energy and "graph" not in timings:
        raise UsageError(f"--energy needs graph in --timing, which is {args.timing!r}")
    rounds = Options.rounds if args.rounds is None else args.rounds
    return Options(timings=timings, rounds=rounds, tune=args.tune, energy=args.energy, device=device)
