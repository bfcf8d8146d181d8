"""A child process that dies, hangs or raises costs its call, and the next call has a new one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.process import Child, Children, Died

FUNCTIONS = """
import os, signal, sys, time

calls = 0

def count(*, tell):
    global calls
    calls += 1
    return calls

def double(x, *, tell):
    print("on stdout, which is nobody's")
    return 2 * x

def dies(how, *, tell):
    tell("somebody")
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

def patient(pauses, *, tell):
    for index in range(pauses):
        tell(str(index))
        time.sleep(0.6)
    return "done"

def own_id(path, *, tell):
    tell("somebody")
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    (tmp_path / "functions_of_a_child.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
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


def test_a_child_ends_with_a_parent_that_was_killed(functions, tmp_path):
    started = tmp_path / "id"
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import functions_of_a_child as f; from bench.process import Child; "
            f"Child(deadline_s=2).call(f.own_id, {str(started)!r})",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    until = time.monotonic() + 30
    while not (started.exists() and started.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    child_id = int(started.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while time.monotonic() < until:
        try:
            os.kill(child_id, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{child_id}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child outlived its parent")


def test_a_child_that_ends_while_it_is_idle_is_nobodys_death(functions):
    with Child(10) as child:
        assert child.call(functions.count) == 1
        child._process.kill()
        child._process.wait()
        assert child.call(functions.count) == 1  # in a new process
