"""A run: problems and contenders in, rows out, each in a journal as soon as it is known.

A run that was cut off is resumed: its journal holds the command's words in its first line, and what it has rows for
is not measured again.
"""

import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from filelock import Timeout

from triton_vs_tilus.bench.measure import worker
from triton_vs_tilus.bench.measure.process import Child, Children
from triton_vs_tilus.bench.measure.ranks import Ranks
from triton_vs_tilus.bench.measure.worker import Options
from triton_vs_tilus.bench.progress import Progress
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.bench.rows.journal import (
    Journal,
    command_in,
    done_keys,
    from_line,
    new_path,
    to_line,
)
from triton_vs_tilus.bench.rows.queries import launch_costs
from triton_vs_tilus.bench.rows.row import Key, Row, TimingName
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.bench.search.table import write_table
from triton_vs_tilus.common.files import locked
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.common.tuned import device_slug

LOG = logging.getLogger(__name__)
MOST_BUILT = 16  # problems whose programs are built at once
CHECKERS = 8  # processes at most that check on the CPU: each has imported torch and all kernels, some 1 GB
LOOK: TimingName = "cold"  # the timing of what is looked at
LOOK_ROUNDS = 20
# Of the environment, the same in all rows of a journal: what a kept search depends on, too.
ALIKE = ("device", "gpus", "driver", "cuda", "torch", "triton", "tilus")

Left = tuple[str, Problem, list[Kernel]]  # what is left to measure of a workload's problem


class JournalError(ValueError):
    """A journal cannot be begun or resumed, in one line."""


class Incomplete(Exception):
    """A rank stopped before it had measured its share. rows: all so far."""

    def __init__(self, message: str, rows: list[Row]):
        super().__init__(message)
        self.rows = rows


@dataclass(frozen=True)
class Plan:
    """What a run measures. command: the words that decide it, in one order; problems: (workload, problem) pairs;
    kernels: each takes part in the problems of its operation; looked_at: names of those that are timed alone on the
    first problem beforehand, so that there is something to see before all others are built."""

    command: str
    problems: Sequence[tuple[str, Problem]]
    kernels: Sequence[Kernel]
    options: Options
    looked_at: Collection[str] = ()


def measure(
    plan: Plan, folder: Path, output: Path | None = None, resume: bool = False, progress: Progress | None = None
) -> list[Row]:
    """Measures on a GPU what the journal has no rows for, and returns the journal's rows.

    Under torchrun each rank measures its share of the problems, all contenders of one on the same GPU; rank 0 returns
    the rows of all ranks, the others none.

    output: the journal; without it a new one in `folder`, or with `resume` the newest there of the same command.
    Raises JournalError, also where ranks are on hosts of several kinds; on rank 0 Incomplete, where another rank
    stopped.
    """
    ranks = Ranks()
    ranks.take_cpus()
    with ExitStack() as to_the_end:
        path = Path(ranks.agree(lambda: str(_opened(plan, folder, output, resume, to_the_end))))
        return _run(plan, path, ranks, progress or Progress())


def _run(plan: Plan, path: Path, ranks: Ranks, progress: Progress) -> list[Row]:
    """As `measure`, into the journal at this path."""
    held = Journal(path).rows()
    _check_alike(held, plan.options)
    own = Journal(path if ranks.count == 1 else path.with_suffix(f".rank{ranks.rank}{path.suffix}"))
    left = _left(plan, plan.problems[ranks.rank :: ranks.count], done_keys(held))
    progress.started(path, sum(len(missing) for *_, missing in left))
    stopped = ""
    try:
        _measure(left, plan, held, own, progress)
    except Exception as error:
        if ranks.count == 1:
            raise
        stopped = f"rank {ranks.rank} stopped: {type(error).__name__}: {error}"

    gathered = ranks.gather({"stopped": stopped, "rows": [to_line(row) for row in own.rows()]})
    if gathered is None:
        return []
    journal = Journal(path)
    found = [from_line(line) for share in gathered for line in share["rows"]]
    if ranks.count > 1:
        _check_ranks([*held, *found])
    _append_new(journal, found)
    for leftover in _journals_of_ranks(path):
        leftover.unlink()
    rows = journal.rows()
    if stops := [share["stopped"] for share in gathered if share["stopped"]]:
        raise Incomplete("; ".join(stops), rows)
    return rows


def check(plan: Plan, seconds: float, journal: Journal | None, progress: Progress | None = None) -> list[Row]:
    """Checks the contenders on the CPU, nothing is timed, and returns a row for each that ended within `seconds`.

    Languages take turns, so that each has been seen where not all fit; candidates come first. Raises JournalError.
    """
    progress = progress or Progress()
    until = time.monotonic() + seconds
    rows = []
    pairs = [(workload, problem, _in_turns(plan.kernels, problem.op)) for workload, problem in plan.problems]
    progress.started(journal.path if journal else None, sum(len(kernels) for *_, kernels in pairs))
    cpus = len(os.sched_getaffinity(0))
    count = min(cpus, CHECKERS)
    with (
        _alone(journal.path) if journal else nullcontext(),
        Children(count, seconds, {"OMP_NUM_THREADS": str(cpus // count)}) as children,
    ):
        for workload, problem, kernels in pairs:
            progress.measuring(problem)
            left_s = max(0.0, until - time.monotonic())
            for row in worker.check(workload, problem, kernels, plan.options, children, left_s):
                if journal is not None:
                    journal.append(row)
                rows.append(row)
                progress.measured(row)
    return rows


def _in_turns(kernels: Sequence[Kernel], op: str) -> list[Kernel]:
    """Candidates, then one of each language, a second of each, and so on."""
    turns: dict[str, int] = {}
    placed = []
    for kernel in kernels:
        if kernel.op == op:
            language = kernel.language.value
            placed.append((0 if language == "candidate" else turns.get(language, 0) + 1, kernel))
            turns[language] = turns.get(language, 0) + 1
    return [kernel for _, kernel in sorted(placed, key=lambda pair: pair[0])]


def _opened(plan: Plan, folder: Path, output: Path | None, resume: bool, to_the_end: ExitStack) -> Path:
    """The journal, there from now on, with what the ranks of an interrupted run left; no other command writes it until
    the stack is closed. Raises JournalError."""
    path = output
    if path is None and resume:
        path = next(_same_command(plan.command, folder), None)
        if path is None:
            raise JournalError(f"--resume: there is no journal of this command in {folder}: {plan.command}")
    elif path is None:
        path = new_path(folder)
    elif path.exists() and not resume:
        raise JournalError(f"--output {path} exists already; --resume continues it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        to_the_end.enter_context(_alone(path))
        journal = Journal(path)
        if not path.exists() or path.stat().st_size == 0:
            journal.begin(plan.command)
        elif (other := command_in(path)) != plan.command:
            raise JournalError(f"--resume: {path} is of the command {other!r}; this is {plan.command!r}")
        for leftover in _journals_of_ranks(path):
            _append_new(journal, Journal(leftover).rows())
            leftover.unlink()
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
    except JournalError:
        raise
    except ValueError as error:
        raise JournalError(str(error)) from error
    return path


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a journal: opening it cuts off what another command is writing. Raises JournalError where one does."""
    try:
        with locked(path, timeout=0):
            yield
    except Timeout:
        raise JournalError(f"{path}: another command is writing this journal") from None


def _same_command(command: str, folder: Path) -> Iterator[Path]:
    """The journals in `folder` of this command, the newest first."""
    journals = [path for path in folder.glob("*.jsonl") if ".rank" not in path.name]
    for path in sorted(journals, key=lambda path: path.stat().st_mtime, reverse=True):
        if command_in(path) == command:
            yield path


def _check_alike(rows: Sequence[Row], options: Options) -> None:
    """Raises JournalError where rows of a journal were measured on another device or with other versions; logs where
    they were measured at another git revision."""
    if not rows:
        return
    here = environment(options.torch_device)
    pairs = [(what, getattr(row.environment, what), getattr(here, what)) for row in rows for what in ALIKE]
    differing = dict.fromkeys(f"{what}: {theirs} there, {ours} here" for what, theirs, ours in pairs if theirs != ours)
    if differing:
        raise JournalError(f"--resume: the journal's rows were measured otherwise: {'; '.join(differing)}")
    for revision in dict.fromkeys(row.environment.git for row in rows):
        if revision != here.git:
            LOG.info("the journal holds rows of revision %s; this is %s", revision, here.git)


def _check_host(held: Sequence[Row], row: Row) -> None:
    """Raises JournalError for a row of another clock, or of a host whose empty launch takes otherwise than where the
    others were measured: every figure holds one."""
    clocks = {each.timing["cold"].procedure for each in (*held, row) if "cold" in each.timing}
    if held and len(clocks) > 1:
        raise JournalError(f"--resume: the journal's rows are of another clock: {' and '.join(sorted(clocks))}")
    costs = launch_costs([*held, row])
    if held and len(costs) > 1:
        both = " and ".join(f"{us:.1f}" for us in costs)
        raise JournalError(
            f"--resume: the journal's rows are from another kind of host: an empty launch takes {both} us"
        )


def _check_ranks(rows: Sequence[Row]) -> None:
    """Raises JournalError where the ranks' hosts are not of one kind; the ranks' own journals stay."""
    found = {what: dict.fromkeys(str(getattr(row.environment, what)) for row in rows) for what in ALIKE}
    found["empty launch, us"] = dict.fromkeys(f"{us:.1f}" for us in launch_costs(rows))
    if differing := [f"{what}: {' and '.join(values)}" for what, values in found.items() if len(values) > 1]:
        raise JournalError(f"the ranks' rows are from hosts of several kinds: {'; '.join(differing)}")


def _journals_of_ranks(path: Path) -> list[Path]:
    name = re.compile(rf"{re.escape(path.stem)}\.rank\d+{re.escape(path.suffix)}")
    return sorted(beside for beside in path.parent.iterdir() if name.fullmatch(beside.name))


def _append_new(journal: Journal, rows: Sequence[Row]) -> None:
    done = done_keys(journal.rows())
    for row in rows:
        if row.key not in done:
            journal.append(row)


def _left(plan: Plan, problems: Sequence[tuple[str, Problem]], done: set[Key]) -> list[Left]:
    """The problems with the contenders that have no rows."""
    asked = tuple(sorted(plan.options.timings))
    left = []
    for workload, problem in problems:
        own = [kernel for kernel in plan.kernels if kernel.op == problem.op]
        missing = [kernel for kernel in own if (problem.name, kernel.full_name, asked) not in done]
        if missing:
            left.append((workload, problem, missing))
    return left


def _measure(left: Sequence[Left], plan: Plan, held: Sequence[Row], journal: Journal, progress: Progress) -> None:
    """Some problems at a time: builds what their contenders will launch, with nothing timed meanwhile; then times them.

    What a search finds goes into the device's table after each problem, as the next search begins with it. Raises
    JournalError on a host whose launches cost otherwise than those of `held`, the rows of the journal from before.
    """
    options = plan.options
    with (
        Child(options.deadline_s, progress.running) as child,
        Child(options.deadline_s) as searching,
        build.builders(options.deadline_s) as builders,
    ):

        def build_ahead(together: Sequence[Left]) -> None:
            first = together[0][1]
            build.build_ahead(
                [(problem, missing) for _, problem, missing in together],
                builders=builders,
                child=child,
                device=options.torch_device,
                built=partial(progress.building, [problem for _, problem, _ in together]),
                begin=partial(worker.warm_up, child, first, options),
            )

        def measured(one: Left, options: Options) -> Iterator[Row]:
            workload, problem, missing = one
            progress.measuring(problem)
            return worker.measure(workload, problem, missing, options, child, searching, builders)

        for look in _looks(left[:1], plan):
            build_ahead([look])
            progress.looked(list(measured(look, replace(options, timings=(LOOK,), rounds=LOOK_ROUNDS, timeline=False))))
        for together in _batches(left):
            if options.tune == "off":  # a search builds its own
                build_ahead(together)
            for one in together:
                rows = []
                for row in measured(one, options):
                    _check_host(held, row)
                    journal.append(row)
                    rows.append(row)
                    progress.measured(row)
                if options.tune != "off":
                    write_table(device_slug(rows[0].environment.device), rows)
                progress.finished(rows)


def _looks(left: Sequence[Left], plan: Plan) -> Iterator[Left]:
    """What is looked at of these problems."""
    for workload, problem, missing in left:
        if few := [kernel for kernel in missing if kernel.full_name in plan.looked_at]:
            yield workload, problem, few


def _batches(left: Sequence[Left]) -> Iterator[Sequence[Left]]:
    """What is built at once, so that no CPU waits for the last program of each problem: one problem, so that its table
    comes soon, then twice as many each time, up to MOST_BUILT."""
    begin, count = 0, 1
    while begin < len(left):
        yield left[begin : begin + count]
        begin, count = begin + count, min(2 * count, MOST_BUILT)
