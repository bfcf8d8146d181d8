"""How a run goes on, on stderr: a bar on a terminal, plain lines where the output is piped."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import progress as rich_progress
from rich.console import Console
from rich.logging import RichHandler

from triton_vs_tilus.bench.progress import Progress
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.bench.show.tables import console
from triton_vs_tilus.common.problem import Problem

EVERY_S = 5.0  # between two plain lines that report no row
LOOKED = "A first look: each language's fastest by the nearest recorded rows. Now all contenders are timed."
LOG = logging.getLogger("triton_vs_tilus.bench")  # the parent of its modules' loggers: a search logs what it used


class Shown(Progress):
    """What a terminal and a pipe have in common. show: called with each problem's rows as soon as they are complete.

    journal: that of the run, once it is open.
    """

    def __init__(self, show: Callable[[Sequence[Row]], None] | None = None):
        self.show = show
        self.journal: Path | None = None
        self.console: Console = console(stderr=True)
        self._problem = ""

    def __enter__(self) -> "Shown":
        LOG.setLevel(logging.INFO)
        self._handler = RichHandler(console=self.console, show_time=False, show_level=False, show_path=False)
        LOG.addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        LOG.removeHandler(self._handler)

    def started(self, journal: Path | None, rows: int) -> None:
        self.journal = journal
        if journal is not None:
            self.console.print(f"journal: {journal}", markup=False, soft_wrap=True)

    def measuring(self, problem: Problem) -> None:
        self._problem = problem.name

    def looked(self, rows: Sequence[Row]) -> None:
        if self.show is not None:
            self.show(rows)
            print(LOOKED, flush=True)

    def finished(self, rows: Sequence[Row]) -> None:
        if self.show is not None:
            self.show(rows)


class Bar(Shown):
    """A progress bar that is erased at the end."""

    def __enter__(self) -> "Bar":
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=self.console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        super().__enter__()
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        super().__exit__()

    def started(self, journal: Path | None, rows: int) -> None:
        super().started(journal, rows)
        self._task = self._bar.add_task("", total=rows)

    def building(self, problems: Sequence[Problem], built: int, programs: int) -> None:
        self._bar.update(self._task, description=_built(problems, built, programs))

    def measuring(self, problem: Problem) -> None:
        super().measuring(problem)
        self._bar.update(self._task, description=problem.name)

    def running(self, contender: str) -> None:
        self._bar.update(self._task, description=f"{self._problem} {contender}")

    def measured(self, row: Row) -> None:
        self._bar.advance(self._task)

    def looked(self, rows: Sequence[Row]) -> None:
        with self._erased():
            super().looked(rows)

    def finished(self, rows: Sequence[Row]) -> None:
        with self._erased():
            super().finished(rows)

    @contextmanager
    def _erased(self) -> Iterator[None]:
        """So that bar and table do not mix on one terminal."""
        self._bar.stop()
        yield
        self._bar.start()


class Lines(Shown):
    """A line per row, and in between one at most every EVERY_S."""

    _rows = _done = 0
    _start_s = _last_s = 0.0

    def started(self, journal: Path | None, rows: int) -> None:
        super().started(journal, rows)
        self._rows, self._start_s = rows, time.monotonic()

    def building(self, problems: Sequence[Problem], built: int, programs: int) -> None:
        self._sometimes(_built(problems, built, programs), now=built == 0)

    def measuring(self, problem: Problem) -> None:
        super().measuring(problem)
        self._print(f"{problem.name}{self._left()}")

    def running(self, contender: str) -> None:
        self._sometimes(f"{self._problem}: {contender}")

    def measured(self, row: Row) -> None:
        self._done += 1
        self._print(f"{self._done} of {self._rows}: {self._problem}: {row.contender}: {row.status}")

    def _left(self) -> str:
        """How long the rest will take, at the pace of the rows so far."""
        if not self._done:
            return ""
        left_s = (time.monotonic() - self._start_s) / self._done * (self._rows - self._done)
        return f": about {max(1, round(left_s / 60))} min left"

    def _sometimes(self, text: str, now: bool = False) -> None:
        if now or time.monotonic() - self._last_s >= EVERY_S:
            self._print(text)

    def _print(self, text: str) -> None:
        self._last_s = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def _built(problems: Sequence[Problem], built: int, programs: int) -> str:
    first, *others = problems
    more = f" and {len(others)} more" if others else ""
    return f"{first.name}{more}: {built} of {programs} programs built"


def shown(show: Callable[[Sequence[Row]], None] | None = None) -> Shown:
    """By what stderr is."""
    return Bar(show) if console(stderr=True).is_terminal else Lines(show)
