"""What a run reports while it goes on."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton_vs_tilus.bench.rows.row import Row
    from triton_vs_tilus.common.problem import Problem


class Progress:
    """Callbacks of a run; the defaults ignore what they are given."""

    def started(self, journal: Path | None, rows: int) -> None:
        """Before the first problem. rows: how many are to come."""

    def building(self, problems: Sequence["Problem"], built: int, programs: int) -> None:
        """So many of these problems' programs are built; nothing is timed meanwhile."""

    def measuring(self, problem: "Problem") -> None:
        """The problem's contenders are checked and timed from here on."""

    def running(self, contender: str) -> None:
        """It is checked or timed from here on. Called from another thread where several are checked at once."""

    def measured(self, row: "Row") -> None:
        """The row is in the journal."""

    def looked(self, rows: Sequence["Row"]) -> None:
        """Before all others, the rows of what is looked at first; they are in no journal."""

    def finished(self, rows: Sequence["Row"]) -> None:
        """After a problem, with its rows."""
