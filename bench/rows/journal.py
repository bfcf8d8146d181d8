"""Files of rows: one JSON line a row, on disk before the next contender runs.

A run that is cut off at any moment, by SIGKILL too, loses at most the line that it was writing.
"""

import json
import logging
import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

import msgspec

from triton_vs_tilus.bench.rows.row import SCHEMA, Key, Launch, Record, Row, Stage, Verdict
from triton_vs_tilus.common.files import InvalidFile

LOG = logging.getLogger(__name__)
R = TypeVar("R", Row, Launch, Stage, Verdict)


class InvalidRows(InvalidFile, ValueError):
    """A file, or a line of it, that is not what was expected; names both. A ValueError too, as what is wrong with a
    journal is told beside what is wrong with what was asked."""


class Journal:
    """A file of rows that only grows.

    Opening one whose last line has no end, as its writer was killed, drops that line and logs so. Raises InvalidRows
    for any other line that is no row, and leaves the file as it is.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            _parse(whole, self.path, Row)
            if whole != content:
                LOG.warning("%s: the last line is cut off and is dropped", self.path)
                with open(self.path, "r+b") as file:
                    file.truncate(len(whole))

    def begin(self, command: str) -> None:
        """Writes the first line: the command that the rows are of."""
        self._write(json.dumps({"command": command}) + "\n")

    def append(self, row: Row) -> None:
        """Returns once the row is on disk."""
        self._write(to_line(row))

    def _write(self, line: str) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def rows(self) -> list[Row]:
        """Raises InvalidRows."""
        return _parse(self.path.read_bytes(), self.path, Row) if self.path.exists() else []


def now() -> str:
    """When a row, a launch or a stage was measured: UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def new_path(folder: Path) -> Path:
    """A file of no other command's there, by the time: two may begin within the same second."""
    return folder / f"{datetime.now():%Y-%m-%dT%H%M%S.%f}.jsonl"


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a JSON-lines file. Raises InvalidRows, also where it holds none; OSError."""
    return _read_some(path, Row)


def read_launches(path: str | Path) -> list[Launch]:
    """The launches of a JSON-lines file. Raises InvalidRows, also where it holds none; OSError."""
    return _read_some(path, Launch)


def read_stages(path: str | Path) -> list[Stage]:
    """The stages of a JSON-lines file. Raises InvalidRows, also where it holds none; OSError."""
    return _read_some(path, Stage)


def read_verdicts(path: str | Path) -> list[Verdict]:
    """The verdicts of a JSON-lines file. Raises InvalidRows, also where it holds none; OSError."""
    return _read_some(path, Verdict)


def to_line(record: Record) -> str:
    return json.dumps(record.to_json(), allow_nan=False) + "\n"


def from_line(line: str) -> Row:
    """The row that `to_line` wrote. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=Row)


def command_in(path: str | Path) -> str | None:
    """The command that a journal was begun with; None where its first line names none."""
    with open(path, "rb") as file:
        return _command(file.readline())


class _Begun(msgspec.Struct, forbid_unknown_fields=True):
    """A journal's first line."""

    command: str


def _command(line: bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Begun).command
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def done_keys(rows: Iterable[Row]) -> set[Key]:
    return {row.key for row in rows}


def _read_some(path: str | Path, kind: type[R]) -> list[R]:
    records = _parse(Path(path).read_bytes(), path, kind)
    if not records:
        raise InvalidRows(f"{path}: holds no {kind.__name__.lower()}; expected: JSON lines, a {kind.__name__} each")
    return records


def _parse(content: bytes, path: str | Path, kind: type[R]) -> list[R]:
    decoder = msgspec.json.Decoder(kind)
    records = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip() or (number == 1 and _command(line) is not None):
            continue
        try:
            records.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            expected = f"expected: a JSON object with the fields of a {kind.__name__}"
            raise InvalidRows(f"{path}:{number}: {_other_schema(line) or error}; {expected}") from None
    return records


class _Schema(msgspec.Struct):
    schema: int


def _other_schema(line: bytes) -> str | None:
    """What is wrong with a row of another schema, before what differs in its fields."""
    try:
        found = msgspec.json.decode(line, type=_Schema).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if found == SCHEMA else f"a row of schema {found}; accepted: {SCHEMA}"
