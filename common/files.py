"""Files that others read meanwhile: written whole, held by one process at a time, refused by name."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

__all__ = ["InvalidFile", "locked", "replace_text"]


class InvalidFile(Exception):
    """A file is not what it has to be: its name, what is wrong with it. No ValueError: nobody passes over it who means
    something else."""


def replace_text(path: Path, text: str) -> None:
    """Writes the file, and its folder where there is none: a reader sees the old text or the new one, and so does who
    comes after an interruption at any moment. Of a link what it leads to is replaced."""
    whole = path.resolve()
    whole.parent.mkdir(parents=True, exist_ok=True)
    partial = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(whole)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def locked(path: Path, timeout: float = -1) -> Iterator[None]:
    """Holds the file, which need not be there, against other processes: by PATH.lock, which is gone afterwards.

    Raises filelock.Timeout where another one holds it for `timeout` seconds; without it waits.
    """
    beside = Path(f"{path}.lock")
    with FileLock(beside, timeout=timeout):
        try:
            yield
        finally:
            beside.unlink(missing_ok=True)  # while it is held: who has opened this one finds it gone and tries again
