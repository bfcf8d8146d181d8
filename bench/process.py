"""A child process that may crash, hang or poison its GPU context, and costs no more than the call it was in."""

import faulthandler
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
START_S = 300  # until somebody runs: imports, inputs; a GPU freed from a hung kernel may take a while to come back
TIMED_OUT = "no end within its deadline"
GRACE_S = 5  # after a child should have ended itself


class Died(Exception):
    """The child is gone. `running` is what it told last; `timed_out` tells a hang from a crash."""

    def __init__(self, message: str, running: str | None, timed_out: bool):
        super().__init__(message)
        self.message, self.running, self.timed_out = message, running, timed_out


class Child:
    """Runs module-level functions in a fresh Python process, one at a time, which keeps its state between calls.

    A function takes a keyword `tell`, to be called with a name: who runs from here on, and has until the deadline.
    What comes before the first `tell` is nobody's, and has START_S. After a death the next call starts a new process.
    A child whose parent is gone ends: at once when idle, by the deadline when not.
    """

    def __init__(self, deadline_s: float):
        self.deadline_s = deadline_s
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._output: IO[bytes] | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What function(*args, tell=...) returns. Raises Died where the child ends, hangs or raises instead."""
        self._send((function.__module__, function.__qualname__, args, self.deadline_s))
        running, limit, since = None, START_S, time.monotonic()
        while True:
            kind, value = self._receive(limit + GRACE_S) or ("gone", None)
            if kind == "tell":
                running, limit, since = value, self.deadline_s, time.monotonic()
            elif kind == "result":
                value, healthy = value
                if not healthy:
                    self.stop()
                return value
            elif kind == "raised":
                self.stop()
                raise Died(value, running, timed_out=False)
            else:
                late = time.monotonic() - since >= limit
                message = self._last_words()
                self.stop()
                if late or message.startswith(TIMED_OUT):
                    _, _, place = message.partition(TIMED_OUT)
                    raise Died(f"{TIMED_OUT} of {limit:g} s{place}", running, timed_out=True)
                raise Died(message, running, timed_out=False)

    def _send(self, request: tuple[Any, ...]) -> None:
        """To a new process where there is none, or where it ended while it was idle, which is nobody's fault."""
        if self._process is not None:
            try:
                return self._connection.send(request)
            except ConnectionError:
                self.stop()
        self._start()
        self._connection.send(request)

    def stop(self) -> None:
        """Raises RuntimeError where it does not end."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            self._connection.close()
            self._output.close()
            try:
                process.wait(START_S)  # one in a hung driver call dies when the driver lets it
            except subprocess.TimeoutExpired as late:
                held = "it may still hold the GPU, and nothing beside it would be timed alone"
                raise RuntimeError(f"process {process.pid} was killed {START_S} s ago and goes on: {held}") from late

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        if self._receive(START_S) is None:
            message = f"the worker process did not start: {self._last_words()}"
            self.stop()
            raise RuntimeError(message)

    def _receive(self, seconds: float) -> tuple[str, Any] | None:
        """None where nothing comes in time, or the other end is closed."""
        try:
            return self._connection.recv() if self._connection.poll(seconds) else None
        except (EOFError, ConnectionError):
            return None

    def _last_words(self) -> str:
        """How the process ended, and the line of its output that tells most about it."""
        try:
            code = self._process.wait(GRACE_S)
            ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = "no answer"
        self._output.seek(0)
        lines = [line.strip() for line in self._output.read().decode(errors="replace").splitlines() if line.strip()]
        marks = [index for index, line in enumerate(lines) if line.startswith(("Fatal Python error", "Timeout ("))]
        if not marks:
            return ": ".join([ended, *lines[-1:]])
        # faulthandler's words: what, then the stacks, innermost first; of one that hung the main thread's is last.
        stacks = [index for index, line in enumerate(lines) if line.endswith("(most recent call first):")]
        current = [index for index in stacks if lines[index].startswith("Current")] or stacks[-1:]
        what = TIMED_OUT if lines[marks[-1]].startswith("Timeout") else f"{ended}: {lines[marks[-1]]}"
        return ", in ".join([what, *(lines[index + 1] for index in current[-1:] if index + 1 < len(lines))])


class Children:
    """That many children side by side. Each is started by its first call and kept for the calls that follow, as what it
    imports may take longer than a call."""

    def __init__(self, count: int, deadline_s: float):
        self._children = [Child(deadline_s) for _ in range(count)]

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.stop()

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any | Died]:
        """function(*args, tell=...) for each of `arguments`; Died in the place of a result."""
        idle = list(self._children)

        def one(args: tuple[Any, ...]) -> Any | Died:
            child = idle.pop()
            try:
                return child.call(function, *args)
            except Died as death:
                return death
            finally:
                idle.append(child)

        with ThreadPoolExecutor(len(idle)) as pool:
            return list(pool.map(one, arguments))


def _serve(connection: Connection) -> None:
    faulthandler.enable()

    connection.send(("ready", None))
    while True:
        try:
            module, name, args, deadline_s = connection.recv()
        except EOFError:
            return

        def tell(running: str, deadline_s: float = deadline_s) -> None:
            _end_in(deadline_s)
            connection.send(("tell", running))

        _end_in(START_S)
        try:
            answer = "result", (getattr(importlib.import_module(module), name)(*args, tell=tell), healthy())
        except Exception as error:
            answer = "raised", f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        connection.send(answer)


def _end_in(seconds: float) -> None:
    """Ends this process then, from a thread of C that needs no GIL: a call that never gives it back ends too."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def healthy() -> bool:
    """Whether the GPU context, if there is one, still takes work: an illegal access is the end of it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
