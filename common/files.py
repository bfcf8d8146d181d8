"""Files that others read or write meanwhile: held by one process at a time, refused by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

__all__ = ["InvalidFile", "locked"]


class InvalidFile(Exception):
    """A file is not what it has to be: its name, what is wrong with it. No ValueError: nobody passes over it who means
    something else."""


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
