"""Records the checked-in rows anew, each file under bench/results by its own command of compare.py.

    python bench/record.py                            # all of them, one at a time on each GPU here
    python bench/record.py router-nk or_reduce-int64  # these
    python bench/record.py --list                     # the files, how many of their rows there are
    python bench/record.py --list router-nk           # with their commands

The configs that were searched on this machine go into the shipped tables first, so that the table which the rows were
measured with can be committed beside them. A file is replaced when its command has measured all, and everything that
passed before passes again. Until then the rows stand in a journal beside those of compare.py, and the next call resumes
it. An interrupted recording ends within seconds and names its journal. Each GPU's commands have CPUs of their own, so
that what one compiles does not slow what another times.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import ROOT, cli
from triton_vs_tilus.bench.cli import JOURNALS, ExitCode, Parser, UsageError
from triton_vs_tilus.bench.measure.process import GRACE_S

if TYPE_CHECKING:
    from triton_vs_tilus.bench.rows.row import Row
    from triton_vs_tilus.bench.show.tables import Table
    from triton_vs_tilus.common.kernel import Kernel
    from triton_vs_tilus.common.problem import Problem

COMPARE = Path(__file__).with_name("compare.py")

Asked = dict[tuple[str, str], tuple["Problem", "Kernel"]]  # by the names of problem and contender


def parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("name", nargs="*", help="of a file under bench/results, without its ending (default: all)")
    listed = "the files (with their commands, if named), how many rows are recorded, and how many have a former config "
    listed += "or are by the former clock"
    parser.add_argument("--list", action="store_true", help=listed)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    cli.check_checkout("examples")
    os.chdir(ROOT)  # where the recordings' candidates lie
    from triton_vs_tilus.bench.recordings import RECORDINGS
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.common import tuned

    for name in args.name:
        if name not in RECORDINGS:
            raise UsageError(f"name is {name!r}; accepted: {cli.named_by('bench/record.py --list', name, RECORDINGS)}")
    named = list(dict.fromkeys(args.name))  # two at once would write one journal
    names = named or list(RECORDINGS)
    if args.list:
        tables.console(verbose=True).print(_list(names))
        for name in named:
            print(f"{name}: python bench/compare.py {RECORDINGS[name]}")
        return ExitCode.OK
    gpus = _gpus()
    if not gpus:
        raise UsageError("there is no CUDA device; what is recorded elsewhere: --list")
    for slug in tuned.devices():
        print(f"{tuned.ship(slug)}: the tuned table of the rows, to be committed with them")
    return ExitCode.OK if _record_all(names, gpus) else ExitCode.FAILED


def _record_all(names: Sequence[str], gpus: Sequence[str]) -> bool:
    """Records side by side, one at a time on each GPU. Returns whether every file was replaced."""
    from triton_vs_tilus.bench.measure.ranks import share_of_cpus

    free: SimpleQueue[tuple[str, list[int]]] = SimpleQueue()
    for index, gpu in enumerate(gpus):
        free.put((gpu, share_of_cpus(index, len(gpus))))
    commands = _Commands()

    def record(name: str) -> bool:
        gpu, cpus = free.get()
        try:
            os.sched_setaffinity(0, cpus)  # of this thread; the command inherits it
            code = _record(name, gpu, commands)
        finally:
            free.put((gpu, cpus))
        problem = _incomplete(name, code) or _replaced(name)
        print(f"{name}: {problem or 'recorded'}", flush=True)
        return not problem

    with ThreadPoolExecutor(len(gpus)) as pool:
        results = [pool.submit(record, name) for name in names]
        try:
            return all([result.result() for result in results])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            commands.end()
            raise


class _Commands:
    """The commands that run, which threads start and wait for."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen] = []
        self._ended = Event()

    def run(self, words: Sequence[str], **options: Any) -> int:
        """The command's exit code. options: of Popen."""
        command = subprocess.Popen(words, **options)
        self._running.append(command)
        if self._ended.is_set():  # end() may have come before the command was in the list
            command.kill()
        try:
            return command.wait()
        finally:
            self._running.remove(command)

    def end(self) -> None:
        """Ends all: what has not ended GRACE_S after SIGTERM is killed, as compare.py waits for a worker that hangs in
        the driver. Its journal is whole all the same, and its workers end with it."""
        self._ended.set()
        running = list(self._running)
        until = time.monotonic() + GRACE_S
        try:
            for command in running:
                command.terminate()
            for command in running:
                with suppress(subprocess.TimeoutExpired):
                    command.wait(max(0.0, until - time.monotonic()))
        finally:  # at once on a second interrupt
            for command in running:
                command.kill()


def _record(name: str, gpu: str, commands: _Commands) -> int:
    """The command's exit code."""
    from triton_vs_tilus.bench.recordings import RECORDINGS

    journal = _journal(name)
    journal.parent.mkdir(parents=True, exist_ok=True)
    words = [*shlex.split(RECORDINGS[name]), "--require-gpu", "--output", str(journal), "--resume"]
    with journal.with_suffix(".log").open("a") as log:
        return commands.run(
            [sys.executable, str(COMPARE), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
        )


def _incomplete(name: str, code: int) -> str:
    """Why the command has not measured all, or ''. A contender that failed has its row, and is no reason."""
    from triton_vs_tilus.bench.rows.journal import Journal

    journal = _journal(name)
    failed = f"exit code {code}, log {journal.with_suffix('.log')}, rows so far in {journal}"
    if code not in (ExitCode.OK, ExitCode.FAILED):
        return failed
    measured = {(row.problem.name, row.contender) for row in Journal(journal).rows()}
    missing = len(_asked(name).keys() - measured)
    return f"{missing} rows are missing, {failed}" if missing else ""


def _replaced(name: str) -> str:
    """Makes the journal's rows the file; or returns why not: something of the file passed and does not any more, or
    nobody can read it."""
    from triton_vs_tilus.bench.rows import queries, regression
    from triton_vs_tilus.bench.rows.journal import InvalidRows, read_rows
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.common import tuned

    journal = _journal(name)
    rows = read_rows(journal)
    target = queries.RESULTS / tuned.device_slug(rows[0].environment.device) / f"{name}.jsonl"
    try:
        before = read_rows(target) if target.exists() else []
    except (InvalidRows, OSError) as error:  # only of this file: the other recordings go on
        return f"not replaced, as what passed there cannot be read: {error}; the new rows are in {journal}"
    changes = regression.changes(rows, before) if before else []
    broken = [change for change in changes if change.verdict == "broken"]
    if broken:
        named = ", ".join(f"{change.contender} on {change.problem} ({change.message})" for change in broken)
        return f"not replaced, as these passed there: {named}; the new rows are in {journal}"
    tables.write_json(rows, target)
    journal.unlink()
    revisions = list(dict.fromkeys(str(row.environment.git) for row in rows))
    if len(revisions) > 1:  # a recording that was interrupted may be resumed by other code
        print(f"{name}: its rows are of {len(revisions)} revisions: {', '.join(revisions)}", flush=True)
    return ""


def _journal(name: str) -> Path:
    return JOURNALS / "recordings" / f"{name}.jsonl"


def _gpus() -> list[str]:
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    every = [str(index) for index in range(torch.cuda.device_count())]
    return visible.split(",")[: len(every)] if visible else every


def _asked(name: str) -> Asked:
    """What a recording's command has rows for."""
    from triton_vs_tilus.bench.recordings import RECORDINGS

    flags = argparse.ArgumentParser()
    cli.add_problem_flags(flags)
    cli.add_contender_flags(flags)
    cli.add_measuring_flags(flags)
    args = flags.parse_args(shlex.split(RECORDINGS[name]))
    cli.chosen_options(args)
    problems = cli.chosen_problems(args)
    kernels = cli.chosen_contenders(args, {problem.op for _, problem in problems})
    own = ((problem, kernel) for _, problem in problems for kernel in kernels if kernel.op == problem.op)
    return {(problem.name, kernel.full_name): (problem, kernel) for problem, kernel in own}


def _has_former_config(row: "Row", problem: "Problem", kernel: "Kernel", slug: str) -> bool:
    """Whether the command would take another config now, as the tuned table or the type of the kernel's configs has
    changed since. Not told of a kernel that cannot run here, as under another Triton."""
    from triton_vs_tilus.bench import contenders

    if row.config is None:
        return False
    now = contenders.launched(kernel, problem, slug)
    if now is None:
        return False
    try:
        return now != kernel.config_from(row.config)
    except (TypeError, ValueError):  # the kernel's configs have other fields since
        return True


def _list(names: Sequence[str]) -> "Table":
    from triton_vs_tilus.bench.rows import queries
    from triton_vs_tilus.bench.show import tables

    lines = []
    for name in names:
        asked = _asked(name)
        by_device = []
        for path, rows in queries.recorded(name).items():
            slug = path.parent.name
            known = [(row, asked[key]) for row in rows if (key := (row.problem.name, row.contender)) in asked]
            told = [f"{len(rows)} of {len(asked)} ({slug})"]
            if former := sum(_has_former_config(row, *launched, slug) for row, launched in known):
                told.append(f"{former} with a former config")
            if former := sum("cold" in row.timing and row.timing["cold"].by_former_clock for row in rows):
                told.append(f"{former} by the former clock")
            by_device.append(", ".join(told))
        lines.append([name, "; ".join(by_device) or "none"])
    foot = "former config: table or kernel changed since, the command would take another; former clock: cold times "
    foot += "that do not compare with those of now. Commands: --list FILE"
    return tables.Table("recordings", ["file", "rows"], lines, foot=foot)


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
