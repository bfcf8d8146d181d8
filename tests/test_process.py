"""A child process that dies, hangs or raises costs its call, and the next call has a new one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from triton_vs_tilus.bench.measure import process
from triton_vs_tilus.bench.measure.process import FORGED, Child, Children, Died

FUNCTIONS = """
import ctypes, os, pickle, signal, struct, sys, threading, time
from multiprocessing.connection import Connection
from triton_vs_tilus.bench.measure import process

calls = 0

def count(*, announce):
    global calls
    calls += 1
    return calls

def double(x, *, announce):
    print("on stdout, which is nobody's")
    return 2 * x

def dies(how, *, announce):
    announce("somebody")
    if how == "abort":
        os.abort()
    if how == "exit":
        sys.stderr.write("last words\\n")
        sys.stderr.flush()
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise KeyError("nothing there")
    time.sleep(60)

def patient(pauses, *, announce):
    for index in range(pauses):
        announce(str(index))
        time.sleep(0.6)
    return "done"

def writes(what, path, *, announce):
    announce("somebody")
    tries(path)
    pipe = int(sys.argv[1])
    if what == "a result":
        Connection(os.dup(pipe)).send(("result", (42, True)))
    if what == "a few bytes":
        Connection(os.dup(pipe)).send_bytes(b"few")
    if what == "half a message":
        os.write(pipe, struct.pack("!i", 1000) + b"half")
        os._exit(7)
    if what == "half a message, and no more":
        os.write(pipe, struct.pack("!i", 1000) + b"half")
        time.sleep(60)
    if what == "what is no tuple":
        signs(42)
    if what == "an answer to another call":
        signs((b"of another call", "result", 42, True))
    if what == "a name that is none":
        signs((serving()["token"], "announce", 42, True))
    if what == "an error without words":
        signs((serving()["token"], "raised", None, True))
    if what == "a health that is none":
        signs((serving()["token"], "result", 42, "well"))
    if what == "a size without an end":
        os.write(pipe, struct.pack("!iQ", -1, 1 << 62))

def serving():
    frame = sys._getframe()
    while frame.f_code.co_name != "_serve":
        frame = frame.f_back
    return frame.f_locals

def signs(message):
    sent = pickle.dumps(message)
    Connection(os.dup(int(sys.argv[1]))).send_bytes(process._signature(serving()["key"], sent) + sent)

def tries(path):
    with open(path, "a") as file:
        print("tried", file=file)

def tries_before_it_announces(path, *, announce):
    tries(path)
    time.sleep(60)

def is_killed_once(path, *, announce):
    if not os.path.exists(path):
        tries(path)
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

def answers_twice(how, *, announce):
    announce("somebody")
    serving()["send"]("result", "first")
    if how == "return":
        return "second"
    if how == "announce":
        announce("somebody")
    elif how == "write":
        Connection(os.dup(int(sys.argv[1]))).send_bytes(b"few")
    elif how == "sign":
        signs((b"of another call", "result", 42, True))
    else:
        dies(how, announce=str)
    return "second"

def ends_later(*, announce):
    global calls
    calls += 1
    threading.Timer(0.3, os._exit, (0,)).start()

def waits_if_called_before(*, announce):
    if calls:
        time.sleep(60)
    return "new"

def write_id(path):
    with open(f"{path}.part", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.replace(f"{path}.part", path)  # who reads it while this process is killed finds all of it, or no file

def sleeps(path, *, announce):
    announce("somebody")
    write_id(path)
    time.sleep(60)

def mixed(how, value, *, announce):
    return globals()[how](value, announce=announce)

def keeps_the_gil(path, *, announce):
    announce("somebody")
    write_id(path)
    ctypes.PyDLL(None).sleep(60)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "functions_of_a_child.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    import functions_of_a_child

    yield functions_of_a_child
    del sys.modules["functions_of_a_child"]


@pytest.fixture
def child():
    with Child(deadline_s=1.0) as child:
        yield child


def test_state_stays_between_calls(child, functions):
    assert [child.call(functions.count) for _ in range(3)] == [1, 2, 3]
    child.stop()
    assert child.call(functions.count) == 1


@pytest.mark.parametrize(
    "how, message, timed_out",
    [
        ("abort", r"SIGABRT: Fatal Python error: Aborted, in File .*functions_of_a_child.py.* in dies", False),
        ("exit", "exit code 7: last words", False),
        ("kill", "SIGKILL", False),
        ("raise", "KeyError: 'nothing there'", False),
        ("hang", r"deadline of 1 s, in File .*functions_of_a_child.py.* in dies", True),
    ],
)
def test_a_death_is_told_and_survived(child, functions, how, message, timed_out):
    with pytest.raises(Died, match=message) as caught:
        child.call(functions.dies, how)
    assert caught.value.running == "somebody" and caught.value.timed_out is timed_out
    assert child.call(functions.double, 21) == 42


def test_what_is_begun_goes_on_meanwhile_and_ends_before_the_next_call(child, functions):
    start = time.monotonic()
    child.begin(functions.patient, 2)
    assert time.monotonic() - start < 1
    child.begin(functions.count)
    assert child.call(functions.count) == 2 and time.monotonic() - start > 1.2


@pytest.mark.parametrize("how", ["abort", "exit", "kill", "raise", "hang"])
def test_what_is_begun_dies_for_nobody(child, functions, how):
    child.begin(functions.dies, how)
    assert child.call(functions.double, 21) == 42
    child.begin(functions.dies, how)
    child.stop()
    assert child.call(functions.double, 21) == 42


@pytest.mark.parametrize(
    ("what", "message", "forged"),
    [
        ("a result", FORGED, True),
        ("a few bytes", FORGED, True),
        ("half a message", "exit code 7", False),
        ("half a message, and no more", FORGED, True),
        ("a size without an end", FORGED, True),
        ("what is no tuple", FORGED, True),
        ("an answer to another call", FORGED, True),
        ("a name that is none", FORGED, True),
        ("an error without words", FORGED, True),
        ("a health that is none", FORGED, True),
    ],
)
def test_what_is_no_answer_of_the_child_costs_its_call(child, functions, monkeypatch, tmp_path, what, message, forged):
    monkeypatch.setattr(process, "MESSAGE_S", 0.5)
    assert child.call(functions.count) == 1
    with pytest.raises(Died, match=message) as caught:
        child.call(functions.writes, what, str(tmp_path / "tries"))
    assert caught.value.running == "somebody" and caught.value.forged is forged
    assert (tmp_path / "tries").read_text() == "tried\n"  # who is found is not asked again
    assert child.call(functions.double, 21) == 42


def test_a_child_that_others_kill_before_anyone_runs_is_followed_by_another(child, functions, tmp_path):
    with pytest.raises(Died, match="SIGKILL"):  # of its first call: nothing ran in it before
        child.call(functions.is_killed_once, str(tmp_path / "first"))
    assert child.call(functions.count) == 1
    assert child.call(functions.is_killed_once, str(tmp_path / "tries")) == "done"


@pytest.mark.parametrize("how", ["return", "announce", "write", "sign", "raise", "abort", "exit", "kill", "hang"])
def test_who_has_answered_costs_the_next_call_nothing_whatever_he_does_then(child, functions, how):
    assert child.call(functions.answers_twice, how) == "first"
    assert child.call(functions.double, 21) == 42
    assert child.call(functions.answers_twice, how) == "first"
    child.begin(functions.double, 21)
    assert child.call(functions.count) == 1


def test_who_hangs_in_his_own_call_is_not_called_again(child, functions, tmp_path, monkeypatch):
    assert child.call(functions.count) == 1
    monkeypatch.setattr(process, "START_S", 1)
    monkeypatch.setattr(process, "GRACE_S", 0.5)
    with pytest.raises(Died, match="no end within its deadline of 1 s") as caught:
        child.call(functions.tries_before_it_announces, str(tmp_path / "tries"))
    assert caught.value.running is None and (tmp_path / "tries").read_text() == "tried\n"


def test_a_call_to_a_child_that_was_killed_has_a_new_one(child, functions):
    assert child.call(functions.count) == 1
    child.kill()
    assert child.call(functions.count) == 1


def test_a_call_that_cannot_be_sent_costs_the_next_nothing(child, functions):
    assert child.call(functions.count) == 1
    with pytest.raises(AttributeError):
        child.call(functions.double, lambda: 21)
    assert child.call(functions.count) == 2


def test_who_ends_the_child_after_his_own_call_costs_the_next_nothing(child, functions):
    child.call(functions.ends_later)
    assert child.call(functions.waits_if_called_before) == "new"


def test_telling_starts_the_deadline_anew(child, functions):
    assert child.call(functions.patient, 4) == "done"


def test_children_keep_order_and_record_deaths(functions):
    with Children(2, deadline_s=5) as children:
        assert children.each(functions.double, [(i,) for i in range(5)]) == [0, 2, 4, 6, 8]
        deaths = children.each(functions.dies, [("exit",), ("raise",)])
        assert [type(death) for death in deaths] == [Died, Died]
        assert children.each(functions.double, []) == []
        assert children.each(functions.double, [(21,)]) == [42]


def test_children_are_kept_from_one_lot_of_calls_to_the_next(functions):
    with Children(1, deadline_s=5) as children:
        assert children.each(functions.count, [(), ()]) == [1, 2]
        assert children.each(functions.count, [()]) == [3]


def test_children_that_warm_up_have_made_that_call_before_the_next(functions):
    with Children(1, deadline_s=5) as children:
        children.warm_up(functions.count, most=2)  # of which there is one
        assert children.each(functions.count, [()]) == [2]
        children.warm_up(functions.dies, "exit", most=1)
        assert children.each(functions.count, [()]) == [1]  # by a new process


def test_calls_wait_for_what_warms_up(functions):
    """Nothing may be timed beside it."""
    with Children(2, deadline_s=5) as children:
        children.warm_up(functions.patient, 4, most=2)
        children.warm_up(functions.patient, 4, most=2)
        warming = list(children._warming)
        children.each(functions.double, [])
        assert len(warming) == 4 and all(call.done() for call in warming)


def test_what_warms_up_ends_with_the_children(functions, tmp_path):
    began = time.monotonic()
    with Children(2, deadline_s=60) as children:
        for _ in range(2):
            children.warm_up(functions.sleeps, str(tmp_path / "id"), most=2)
    assert time.monotonic() - began < 20
    assert all(call.done() for call in children._warming)
    assert all(child._process is None for child in children._children)


PARENT = """
import sys
import functions_of_a_child as functions
from triton_vs_tilus.bench.measure.process import Child, Children

how, *paths = sys.argv[1:]
if len(paths) == 1:
    Child(deadline_s=60).call(getattr(functions, how), paths[0])
with Children(len(paths), deadline_s=60) as children:
    children.each(functions.count, [()] * len(paths))
    children.each(getattr(functions, how), [(path,) for path in paths])
"""


@pytest.mark.parametrize(("how", "count"), [("sleeps", 1), ("keeps_the_gil", 1), ("keeps_the_gil", 2)])
def test_a_child_ends_with_a_parent_that_was_killed(functions, tmp_path, how, count):
    """In a call that does not return either."""
    paths = [tmp_path / str(index) for index in range(count)]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, how, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    within(30, lambda: all(path.exists() and path.read_text().endswith("\n") for path in paths))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    within(10, lambda: not any(is_alive(int(path.read_text())) for path in paths))


def within(seconds: float, happens: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, "not in time"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_calls_that_do_not_end_in_time_have_no_result(functions, tmp_path):
    with Children(2, deadline_s=60) as children:
        children.each(functions.count, [(), ()])
        began = time.monotonic()
        paths = [str(tmp_path / "one"), str(tmp_path / "two"), str(tmp_path / "three")]
        assert list(children.completed(functions.sleeps, [(path,) for path in paths], seconds=1)) == []
        assert time.monotonic() - began < 10
        assert not (tmp_path / "three").exists()  # it waited for a child
        assert children.each(functions.double, [(21,)]) == [42]


def test_an_interrupted_wait_kills_the_calls(functions, tmp_path):
    def interrupt(count):
        raise KeyboardInterrupt

    path = tmp_path / "id"
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Children(2, deadline_s=60) as children:
        children.each(functions.mixed, [("double", "1"), ("sleeps", str(path))], finished=interrupt)
    assert time.monotonic() - began < 20
    assert not path.exists() or not is_alive(int(path.read_text()))


def test_the_number_of_ended_calls_is_reported(functions):
    counts = []
    with Children(2, deadline_s=5) as children:
        children.each(functions.double, [(i,) for i in range(4)], finished=counts.append)
    assert counts == [1, 2, 3, 4]


def test_announced_names_are_passed_on(functions):
    names = []
    with Child(deadline_s=5, announced=names.append) as child:
        child.call(functions.patient, 2)
    assert names == ["0", "1"]


def test_a_child_that_ends_while_it_is_idle_is_nobodys_death(functions):
    with Child(10) as child:
        assert child.call(functions.count) == 1
        child._process.popen.kill()
        child._process.popen.wait()
        assert child.call(functions.count) == 1  # in a new process
