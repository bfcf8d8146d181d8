"""A child process that may crash, hang or poison its GPU context, and costs no more than the call it was in.

The child signs what it sends, by a key that it is given before it imports anything. Else whoever runs in it could write
a result of his own into the pipe, or a pickle that runs code in the parent. Who looks for the key in the child's memory
finds it.
"""

import ctypes
import faulthandler
import hmac
import importlib
import os
import pickle
import secrets
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import LifoQueue
from types import UnionType
from typing import IO, Any, get_origin

import msgspec

START_S = 300  # until somebody runs: imports, inputs; a GPU freed from a hung kernel may take a while to come back
TIMED_OUT = "no end within its deadline"
GRACE_S = 5  # after a child should have ended itself
KEY_BYTES = SIGNATURE_BYTES = TOKEN_BYTES = 32
FORGED = "a message came through the worker's pipe that the worker has not signed"
NO_ANSWER = "what came through the worker's pipe is no answer to what it was asked"
FORGERY = "forged", None, False  # in place of a message, of which there are these, and what comes with each
FORMS: Mapping[str, type] = {"ready": type(None), "begun": type(None), "announce": str, "result": object, "raised": str}
MOST_BYTES = 1 << 28  # of a message
MESSAGE_S = 30  # from a message's first byte to its last
PR_SET_PDEATHSIG = 1  # of prctl(2)


class Died(Exception):
    """The child is gone. `running` is the name announced last; `timed_out` is True for a hang, False for a crash;
    `forged`: whether it was ended for a message that it had not signed, or that is no answer; `unheard`: whether what
    ran in it before may be why: it ended, or was ended, before it began with the call; or it ended by itself, within
    its time, before it announced anything."""

    def __init__(self, message: str, running: str | None, timed_out: bool, forged: bool = False, unheard: bool = False):
        super().__init__(message)
        self.message, self.running, self.timed_out = message, running, timed_out
        self.forged, self.unheard = forged, unheard


@dataclass
class _Process:
    """A child process, the pipe to it, what it writes to stdout and stderr, the key that it signs with, what its
    messages to the request that it has must repeat, and whether its parent killed it."""

    popen: "subprocess.Popen[bytes]"
    connection: "Connection[Any, Any]"
    output: IO[bytes]
    key: bytes
    token: bytes = b""
    killed: bool = False

    def receive(self, seconds: float) -> tuple[str, Any, bool] | None:
        """One of FORMS, what comes with it, and whether the child may go on. None where nothing comes in time, or the
        other end is closed, in a message or between two. "forged" for a message without its signature, which is not
        unpickled, as that would run what code it holds; likewise for one that does not end, is longer than any of the
        worker's, is to an earlier request, or of no form that the worker sends."""
        try:
            if not self.connection.poll(seconds):
                return None
            sent = _message(self.connection)
        except TimeoutError:
            return FORGERY
        except (EOFError, OSError):
            return None
        signature, message = sent[:SIGNATURE_BYTES], sent[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, _signature(self.key, message)):
            return FORGERY
        try:
            token, kind, value, healthy = pickle.loads(message)
            of_a_worker = isinstance(value, FORMS[kind]) and (type(token), type(healthy)) == (bytes, bool)
        except Exception:  # by whoever has the key
            return FORGERY
        return (kind, value, healthy) if of_a_worker and token == self.token else FORGERY

    def send(self, *request: Any) -> None:
        token = secrets.token_bytes(TOKEN_BYTES)
        self.connection.send((token, *request))
        self.token = token

    def last_words(self) -> str:
        """How it ended, and the line of its output that says most about why."""
        try:
            code = self.popen.wait(GRACE_S)
            ended = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            ended = "no answer"
        self.output.seek(0)
        lines = [line.strip() for line in self.output.read().decode(errors="replace").splitlines() if line.strip()]
        marks = [index for index, line in enumerate(lines) if line.startswith(("Fatal Python error", "Timeout ("))]
        if not marks:
            return ": ".join([ended, *lines[-1:]])
        # By faulthandler: what happened, then the stacks, innermost call first; after a hang the main thread's is last.
        stacks = [index for index, line in enumerate(lines) if line.endswith("(most recent call first):")]
        current = [index for index in stacks if lines[index].startswith("Current")] or stacks[-1:]
        what = TIMED_OUT if lines[marks[-1]].startswith("Timeout") else f"{ended}: {lines[marks[-1]]}"
        return ", in ".join([what, *(lines[index + 1] for index in current[-1:] if index + 1 < len(lines))])

    def stop(self) -> None:
        """Ends it and waits for its end. Raises RuntimeError where it does not end."""
        self.popen.kill()
        self.connection.close()
        self.output.close()
        try:
            self.popen.wait(START_S)  # one in a hung driver call dies when the driver lets it
        except subprocess.TimeoutExpired as late:
            held = "it may still hold the GPU, and nothing beside it would be timed alone"
            raise RuntimeError(f"process {self.popen.pid} was killed {START_S} s ago and goes on: {held}") from late


class Child:
    """Runs module-level functions in a fresh Python process, one at a time, which keeps its state between calls.

    A function takes a keyword `announce`, to be called with the name of whoever runs from here on and has until the
    deadline. What comes before the first such call is charged to nobody and has START_S. After a death the next call
    starts a new process.
    A child ends with the thread that made its first call, so with its parent, in whatever call it is.
    What it returns may have an attribute `spoiled`: where that is true its process ends, whatever the process itself
    says of its health.
    announced: called with every name that is announced, from the thread of the call. environment: variables of the
    process beside those that it inherits. running: the name announced last, of the request that was
    waited for last; None where it announced none.
    """

    def __init__(
        self,
        deadline_s: float,
        announced: Callable[[str], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ):
        self.deadline_s = deadline_s
        self._environment = environment or {}
        self._announced = announced
        self._process: _Process | None = None
        self._begun = False
        self.running: str | None = None

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self, function: Callable[..., Any], *args: Any) -> None:
        """Has function(*args, announce=...) called while the caller goes on. The next call waits for its end; what it
        returns or raises is nobody's."""
        self._end_begun()
        self._sent(self._request(function, args))
        self._begun = True

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What function(*args, announce=...) returns. Raises Died where the child ends, hangs or raises instead; where
        what ran in it before may be why, a new process is asked first."""
        self._end_begun()
        kept = self._process
        process = self._sent(self._request(function, args))
        try:
            return self._answer(process)
        except Died as death:
            if process is kept and death.unheard and not process.killed:  # by what ran there before
                return self.call(function, *args)
            raise

    def _end_begun(self) -> None:
        begun, self._begun = self._begun, False
        if begun and self._process is not None:
            with suppress(Died):
                self._answer(self._process)

    def _request(self, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        return function.__module__, function.__qualname__, args, self.deadline_s

    def _answer(self, process: _Process) -> Any:
        """To the request that the process has. Raises Died."""
        self.running = None
        begun, limit, since = False, float(START_S), time.monotonic()
        while True:
            answer: tuple[str, Any, bool] = process.receive(limit + GRACE_S) or ("gone", None, False)
            kind, value, healthy = answer
            if kind == "begun":
                begun, since = True, time.monotonic()
            elif kind == "announce":
                self.running, limit, since = value, self.deadline_s, time.monotonic()
                if self._announced is not None:
                    self._announced(value)
            elif kind == "result":
                if not healthy or getattr(value, "spoiled", False):
                    self.stop()
                return value
            elif kind == "raised":
                self.stop()
                raise Died(value, self.running, timed_out=False)
            elif kind == "gone":
                late = time.monotonic() - since >= limit
                message = process.last_words()
                by_itself = process.popen.poll() is not None
                self.stop()
                if late or message.startswith(TIMED_OUT):
                    _, _, place = message.partition(TIMED_OUT)
                    raise Died(f"{TIMED_OUT} of {limit:g} s{place}", self.running, timed_out=True, unheard=not begun)
                unheard = not begun or (by_itself and self.running is None)
                raise Died(message, self.running, timed_out=False, unheard=unheard)
            else:
                self.stop()
                raise Died(FORGED, self.running, timed_out=False, forged=True, unheard=not begun)

    def _sent(self, request: tuple[Any, ...]) -> _Process:
        """The process that has the request: a new one where there is none, or where it ended while it was idle."""
        if self._process is not None and self._process.killed:
            self.stop()
        if self._process is not None:
            try:
                self._process.send(*request)
                return self._process
            except ConnectionError:
                self.stop()
        process = self._started()
        process.send(*request)
        return process

    def kill(self) -> None:
        """Ends the process; a call that waits for it in another thread raises Died."""
        if (process := self._process) is not None:
            process.killed = True
            process.popen.kill()

    def stop(self) -> None:
        """Ends the process and waits for its end. Raises RuntimeError where it does not end."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def _started(self) -> _Process:
        ours, theirs = Pipe()
        key = secrets.token_bytes(KEY_BYTES)
        ours.send_bytes(key)
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        popen = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **self._environment},
        )
        theirs.close()
        self._process = process = _Process(popen, ours, output, key)
        if process.receive(START_S) is None:
            message = f"the worker process did not start: {process.last_words()}"
            self.stop()
            raise RuntimeError(message)
        return process


def answer_of(child: Child, is_answer: Callable[[Any], bool], function: Callable[..., Any], *args: Any) -> Any:
    """What child.call(function, *args) returns. Raises Died, also where that is no answer: a candidate can sign as the
    child does, and would end the whole run."""
    answer = child.call(function, *args)
    if not is_answer(answer):
        child.stop()
        raise no_answer(answer, child.running)
    return answer


def no_answer(answer: Any, running: str | None) -> Died:
    """What stands in the place of an answer."""
    return answer if isinstance(answer, Died) else Died(NO_ANSWER, running, timed_out=False, forged=True)


def holds(answer: Any, kind: Any) -> bool:
    """Whether an answer is of this type down to its last field: a wrong one would end the run where it is read."""
    try:
        msgspec.convert(msgspec.to_builtins(answer), kind)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(kind, UnionType) or type(answer) is (get_origin(kind) or kind)


class Children:
    """`count` children side by side. Each is started by its first call, or by `warm_up`, and kept for the calls that
    follow, as what it imports may take longer than a call."""

    def __init__(self, count: int, deadline_s: float, environment: Mapping[str, str] | None = None):
        self.count = count
        self._children = [Child(deadline_s, environment=environment) for _ in range(count)]
        self._idle: LifoQueue[Child] = LifoQueue()  # one that has imported what it needs before one that has not
        for child in self._children:
            self._idle.put(child)
        # Kept as long as the children, as a child ends with the thread that started it.
        self._threads = futures.ThreadPoolExecutor(count)
        self._calls: list[futures.Future] = []
        self._warming: list[futures.Future] = []

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel([*self._calls, *self._warming])
        for child in self._children:
            child.stop()
        self._threads.shutdown()

    def warm_up(self, function: Callable[..., Any], *args: Any, most: int) -> None:
        """Starts this call in up to `most` children and returns. `each` waits for its end, too; what it raises is met
        again by the calls that follow."""
        for _ in self._children[:most]:
            self._warming.append(self._threads.submit(self._call, function, args))

    def each(
        self,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        finished: Callable[[int], None] | None = None,
    ) -> list[Any | Died]:
        """function(*args, announce=...) for each of `arguments`; Died in the place of a result.

        finished: called with the number of calls that have ended, after each.
        """
        results: dict[int, Any | Died] = {}
        for index, result in self.completed(function, arguments):
            results[index] = result
            if finished is not None:
                finished(len(results))
        futures.wait(self._warming)
        self._warming.clear()
        return [results[index] for index in range(len(arguments))]

    def completed(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], seconds: float | None = None
    ) -> Iterator[tuple[int, Any | Died]]:
        """(index, result) of each call as it ends; Died in the place of a result. What has not ended after `seconds`
        is killed, and has no result."""
        self._calls = [self._threads.submit(self._call, function, args) for args in arguments]
        indices = {call: index for index, call in enumerate(self._calls)}
        try:
            for call in futures.as_completed(indices, seconds):
                yield indices[call], call.result()
        except futures.TimeoutError:
            pass
        finally:
            self._cancel(self._calls)
            self._calls = []

    def _call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any | Died:
        child = self._idle.get()
        try:
            return child.call(function, *args)
        except Died as death:
            return death
        finally:
            self._idle.put(child)

    def _cancel(self, calls: Sequence[futures.Future]) -> None:
        for call in calls:
            call.cancel()
        while running := [call for call in calls if not call.done()]:
            for child in self._children:
                child.kill()
            futures.wait(running, timeout=0.1)


def _serve(connection: Connection) -> None:
    faulthandler.enable()
    key = connection.recv_bytes()
    token = b""

    def send(kind: str, value: Any, healthy: bool = True) -> None:
        message = pickle.dumps((token, kind, value, healthy))
        connection.send_bytes(_signature(key, message) + message)

    send("ready", None)
    while True:
        try:
            token, module, name, args, deadline_s = connection.recv()
        except EOFError:
            return
        send("begun", None)

        def announce(running: str, deadline_s: float = deadline_s) -> None:
            _end_in(deadline_s)
            send("announce", running)

        _end_in(START_S)
        answer: tuple[Any, ...]
        try:
            result = getattr(importlib.import_module(module), name)(*args, announce=announce)
            answer = "result", result, healthy()
        except Exception as error:
            answer = "raised", f"{type(error).__name__}: {error}"
        faulthandler.cancel_dump_traceback_later()
        send(*answer)


def _message(connection: Connection) -> bytes:
    """What Connection.send_bytes has sent, as Connection.recv_bytes would give it, which waits for ever where a message
    stops midway. Raises TimeoutError there, OSError and EOFError where the other end is closed; empty for a message of
    more than MOST_BYTES, which is not read."""
    until = time.monotonic() + MESSAGE_S

    def exactly(count: int) -> bytes:
        read = bytearray()
        while len(read) < count:
            if not connection.poll(max(0.0, until - time.monotonic())):
                raise TimeoutError
            part = os.read(connection.fileno(), count - len(read))
            if not part:
                raise EOFError
            read += part
        return bytes(read)

    (size,) = struct.unpack("!i", exactly(4))
    return exactly(size) if 0 <= size <= MOST_BYTES else b""


def _signature(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _end_in(seconds: float) -> None:
    """Ends this process then, from a thread of C that needs no GIL: a call that never gives it back ends too."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def healthy() -> bool:
    """Whether the GPU context, if there is one, still takes work (an illegal access is the end of it), and whether
    nothing that measures was replaced."""
    seals = sys.modules.get("triton_vs_tilus.bench.measure.seals")
    if seals is not None and seals.seal().broken():
        return False
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def _end_with(parent: int) -> None:
    """Has Linux kill this process when the parent's thread that started it ends: a call that never returns ends too."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before
        sys.exit(1)


if __name__ == "__main__":
    _end_with(int(sys.argv[2]))
    _serve(Connection(int(sys.argv[1])))
