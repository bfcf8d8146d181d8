"""The threads and processes that a contender's calls leave behind, which may write a result late, or meddle with
whoever comes next.

Python's own threads are seen at any time. Others, of a C library or of `pthread_create`, are seen by what Linux lists;
CUDA, CUPTI, OpenMP and compilers begin such threads too when they are first used, and compilers processes.
"""

import os
import sys
import threading
from time import sleep
from types import FrameType

ENDING_S = 0.05  # in which Linux takes a thread off its list that was joined


class Threads:
    """The threads of this process as it is made. native: whether those count too that run no Python, and processes that
    this one began. Ask for them only after a call that has used every library."""

    def __init__(self, native: bool = False):
        self._frames = _outermost_frames()
        self._tasks = _tasks() if native else None
        self._processes = _processes() if native else None

    def left(self) -> str | None:
        """What was begun since and still runs, in words; None where nothing is."""
        if begun := self._begun():
            names = [str(thread.name) for thread in threading.enumerate() if thread.ident in begun]
            return f"leaves {len(begun)} threads running when its call returns: {', '.join(names)}"
        if native := self._native():
            return f"leaves {len(native)} threads running when its call returns, none of them Python's"
        if self._processes is not None and _processes() - self._processes:
            return "leaves a process that it began when its call returns"
        return None

    def _begun(self) -> set[int]:
        """The identifiers of Python's. A thread may have the identifier of one that has ended, but not its frame."""
        now = _outermost_frames()
        return {identifier for identifier, frame in now.items() if self._frames.get(identifier) is not frame}

    def _native(self) -> set[str]:
        if self._tasks is None:
            return set()
        begun = _tasks() - self._tasks
        if begun:
            sleep(ENDING_S)
            begun &= _tasks()
        return begun


def _outermost_frames() -> dict[int, FrameType]:
    """By the identifier of each of Python's threads."""
    outermost = dict(sys._current_frames())
    for identifier, frame in outermost.items():
        while frame.f_back is not None:
            frame = frame.f_back
        outermost[identifier] = frame
    return outermost


def _tasks() -> set[str]:
    """The identifiers that Linux has for the threads of this process."""
    return set(os.listdir("/proc/self/task"))


def _processes() -> set[str]:
    """The identifiers of the processes that this one began, that run, and that are still its own."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # none, as most of the time: Linux is not asked for all that run
        return set()
    parent = str(os.getpid())
    return {found for found in os.listdir("/proc") if found.isdecimal() and _runs_under(parent, found)}


def _runs_under(parent: str, process: str) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            state, of_process = file.read().rpartition(")")[2].split()[:2]  # its name may hold any character
    except (OSError, ValueError):  # it has ended meanwhile
        return False
    return of_process == parent and state not in ("Z", "X")
