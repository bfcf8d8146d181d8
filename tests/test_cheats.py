"""Cheats that behave for as long as they are looked at one by one: what the clock and its judge say of them on a
made-up device, where a product takes 8 us and calling nothing 1 us."""

import ast
import collections
import contextlib
import copyreg
import dataclasses
import gc
import inspect
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from inspect import signature

import adversaries
import numpy
import pytest
import torch
from cuda.bindings import driver
from fake_device import FakeDevice
from torch.utils._python_dispatch import TorchDispatchMode

from triton_vs_tilus import kernels_triton
from triton_vs_tilus.bench import ROOT, candidate, ops
from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.bench.measure import (
    clock,
    nodes,
    numbers,
    referee,
    rotation,
    stats,
    threads,
    timeline,
    worker,
)
from triton_vs_tilus.bench.measure.clock import NotTimed, Timed, time_together
from triton_vs_tilus.bench.measure.process import healthy
from triton_vs_tilus.bench.measure.rotation import Rotation
from triton_vs_tilus.bench.measure.seals import FUNCTIONS, OPERATORS, SETTINGS, Seals
from triton_vs_tilus.bench.measure.suspicion import suspicion
from triton_vs_tilus.bench.measure.threads import Threads
from triton_vs_tilus.bench.measure.worker import Failure, Timing
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.references import linear
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.row import BASELINE, PASSED, WRONG, FloorRecord
from triton_vs_tilus.bench.search import search
from triton_vs_tilus.common import accuracy, epilogue, problem
from triton_vs_tilus.common.accuracy import Accuracy, Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language
from triton_vs_tilus.common.problem import Inputs, Layout, Matmul, Problem
from triton_vs_tilus.common.w4a16 import W4A16Matmul
from triton_vs_tilus.kernels_triton import semaphore

PROBLEM = Matmul(8, 16, 64, layout=Layout.NK)
CPU = torch.device("cpu")
FLOOR = {"cold": FloorRecord(launch_us=0.9, read_us=1.1), "warm": FloorRecord(launch_us=0.7, read_us=1.7)}
PRODUCT_US, CALL_US = 8.0, 1.0


@pytest.fixture(autouse=True)
def undone():
    """What a test's cheat has changed, the tests after it would run by."""
    before, copying = Seals(), torch.ops.aten.clone.default
    kernels = dict(copying.py_kernels)
    yield
    assert (before.broken(), before.overridden(), copying.py_kernels) == (None, None, kernels)


def entered(fn: Callable, held: Rotation, kernel: Kernel) -> Timed:
    """fn in the kernel's place, as `rotation.timed` has it."""
    return Timed(
        "cheat",
        fn,
        held.arguments(kernel, None),
        lambda index, result: held.fault(index, result, 1),
        partial(held.refill, kernel),
        leaves_threads=False,
        is_whole=held.is_whole,
    )


def outcome(monkeypatch, function: Callable, mode: str) -> tuple[str, str]:
    """(status, why) as the worker has it: of the clock's judge, else of the figures. function: of a, b and out."""
    monkeypatch.setattr(clock, "WARM_UP_S", 0.002)
    at_once = (
        "batch",
        "skips",
        "threads",
        "stays",
        "hook",
        "mode",
        "sums",
        "garbage",
        "signal",
        "monitor",
        "operator",
        "expected",
        "asked",
    )
    counted = dict.fromkeys(at_once, adversaries.LOOKED_AT)
    monkeypatch.setattr(adversaries, "_answers", counted)
    device, sets = FakeDevice(), Rotation(PROBLEM, CPU, 40)
    kernel = dataclasses.replace(find("torch/mm"), language=Language.CANDIDATE)

    def call(*args, bias, epilogue, out_dtype, config, out):
        result = function(*args, out) if takes_out else function(*args)
        if device.capturing is None:
            device.launch(CALL_US)
        return result

    takes_out = "out" in signature(function).parameters
    monkeypatch.setattr(adversaries, "launch", lambda work, us=PRODUCT_US: device.launch(us, work))
    monkeypatch.setattr(adversaries, "capturing", lambda: device.capturing is not None)
    cheat = entered(call, sets, kernel)
    before, modes = sys.getprofile(), torch._C._len_torch_function_stack()
    thresholds = gc.get_threshold()
    copying = torch.ops.aten.clone.default
    kernels = dict(copying.py_kernels)
    try:
        (samples,) = time_together([cheat], mode, 4, device)
    except NotTimed as not_timed:
        return "wrong" if not_timed.wrong else "not timed", not_timed.reason
    finally:
        sys.setprofile(before)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        gc.set_threshold(*thresholds)
        adversaries._answers.pop("guard", None)
        copying.py_kernels = kernels
        copying._dispatch_cache.clear()
        for process in adversaries._answers.pop("left", []):
            process.kill()
            process.wait()
        if (monitoring := getattr(sys, "monitoring", None)) and monitoring.get_tool(3) is not None:
            monitoring.set_events(3, 0)
            monitoring.free_tool_id(3)
        while torch._C._len_torch_function_stack() > modes:
            torch._C._pop_torch_function_stack()
    summary = stats.summary(samples.rounds)
    reason = suspicion(summary, FLOOR[mode], 0.0, None) if mode in FLOOR else ""  # the host's time has no floor
    return ("suspicious", reason) if reason else ("passed", f"{summary.median_us:.2f} us")


@pytest.mark.parametrize(
    ("function", "mode", "status", "why"),
    [
        ("cached_but_for_the_first", "cold", "wrong", "over the bound"),
        ("cached_by_version", "cold", "wrong", "over the bound"),
        ("cached_by_a_sample", "cold", "passed", "9.00 us"),  # every number is new: it gains nothing
        ("batches_and_skips", "cold", "wrong", "error nan"),
        ("skips_while_timed", "cold", "wrong", "error nan"),
        ("one_memory_for_all", "cold", "passed", ""),
        ("one_memory_for_all", "graph", "not timed", "one memory for several argument sets"),
        ("one_memory_for_all", "warm", "passed", ""),
        ("cached_by_id", "cold", "wrong", "over the bound"),
        ("threads_while_timed", "cold", "wrong", "leaves 20 threads running when its call returns: Thread-"),
        ("thread_left_while_timed", "cold", "wrong", "leaves 1 threads running when its call returns: Thread-"),
        ("thread_left_while_timed", "graph", "wrong", "leaves 1 threads running"),
        ("thread_left_while_timed", "warm", "wrong", "leaves 1 threads running"),
        ("thread_left_while_timed", "host", "wrong", "leaves 1 threads running"),
        ("native_thread_while_timed", "cold", "wrong", "leaves 1 threads running when its call returns, none of them"),
        ("frees_what_others_use", "cold", "wrong", "frees or resizes memory that all contenders share"),
        ("process_left_while_timed", "cold", "wrong", "leaves a process that it began when its call returns"),
        ("process_left_while_timed", "host", "wrong", "leaves a process that it began"),
        ("process_ended_while_timed", "cold", "passed", ""),
        ("once_a_capture", "warm", "wrong", "call 2 of 50 in a CUDA graph adds 0 nodes to it, and the first 1"),
        ("leaves_out_a_fifth", "warm", "wrong", "call 41 of 50 in a CUDA graph adds 0 nodes to it, and the first 1"),
        ("leaves_out_a_fifth", "graph", "wrong", "call 41 of 80"),
        ("idles_in_a_fifth", "warm", "wrong", "call 41 of 50 in a CUDA graph adds other nodes to it than the first"),
        ("idles_in_a_fifth", "cold", "passed", ""),
        ("once_a_capture", "host", "passed", ""),
        ("computes_in_a_hook", "cold", "wrong", "leaves Python's trace or profile hook on"),
        ("computes_in_a_hook", "graph", "wrong", "leaves Python's trace or profile hook on"),
        ("computes_in_a_mode", "cold", "wrong", "leaves a mode of torch on"),
        ("computes_in_a_collection", "cold", "wrong", "leaves Python's garbage collection on"),
        ("computes_in_a_collection", "graph", "wrong", "leaves Python's garbage collection on"),
        ("computes_on_a_signal", "cold", "wrong", "leaves a timer on"),
        pytest.param(
            *("computes_in_a_monitor", "cold", "wrong", "leaves a hook of Python's monitoring on"),
            marks=pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python has it since 3.12"),
        ),
        ("computes_in_an_operator", "cold", "wrong", "leaves another dispatch of torch's operators on"),
        ("changes_what_is_expected", "cold", "wrong", "returns torch.float32 (8, 16) on cpu; expected torch.bfloat16"),
        ("answers_when_it_is_asked", "cold", "wrong", "error nan"),
        ("returns_its_sums", "cold", "wrong", "returns torch.float32 (8, 16) on cpu; expected torch.bfloat16 (8, 16)"),
    ],
)
def test_who_cheats_while_timed_is_found(monkeypatch, function, mode, status, why):
    found, reason = outcome(monkeypatch, getattr(adversaries, function), mode)
    assert found == status and why in reason, (found, reason)


class _Driver:
    """CUDA's, of graphs that are lists of (kind, what the node holds); nodes are told apart by their place in `all`."""

    def __init__(self, graph):
        self.graph, self.all = graph, []
        self.CUstream, self.CUgraphNodeType = driver.CUstream, driver.CUgraphNodeType

    def cuStreamGetCaptureInfo(self, stream):
        return 0, None, None, self.graph

    def cuGraphGetNodes(self, graph, count=0):
        self.all += [node for node in graph if not any(node is known for known in self.all)]
        places = [next(place for place, known in enumerate(self.all) if known is node) for node in graph]
        return 0, places if count else [], len(graph)

    def cuGraphNodeGetType(self, place):
        return 0, self.all[place][0]

    def cuGraphChildGraphNodeGetGraph(self, place):
        return 0, self.all[place][1]


def test_what_a_child_graph_holds_is_compared(monkeypatch):
    """A call may launch a graph of its own, which does the work, and another one like it, which does nothing."""
    child, empty = (getattr(driver.CUgraphNodeType, f"CU_GRAPH_NODE_TYPE_{kind}") for kind in ("GRAPH", "EMPTY"))
    fill = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
    graph, added = [], []
    monkeypatch.setattr(nodes, "driver", _Driver(graph))
    captured = nodes.Nodes(types.SimpleNamespace(cuda_stream=0))
    for work in (fill, fill, empty):
        graph.append((child, [(child, [(work, None)])]))
        added.append(captured.added())
    assert nodes.odd_one_out(added) == "call 3 of 3 in a CUDA graph adds other nodes to it than the first"


def test_a_library_may_begin_threads_in_the_first_turn(monkeypatch):
    calls = iter(range(10_000))

    def first_call_begins_one(a, b, out):
        if next(calls) > 0:
            return adversaries._product(a, b, out)
        adversaries._answers["native"] = adversaries.LOOKED_AT - 1
        return adversaries.native_thread_while_timed(a, b, out)

    assert outcome(monkeypatch, first_call_begins_one, "cold")[0] == "passed"


@pytest.mark.parametrize(("mode", "when"), [("cold", "timed"), ("host", "judged")])
def test_a_worker_counts_the_threads_of_candidates(monkeypatch, mode, when):
    """The 41st call begins one: in the 3rd turn, or after 2 of the host's. torch's own functions may begin some."""
    device, name = FakeDevice(), f"candidate/{ADVERSARIES}:thread_left_while_timed"
    held = Rotation(PROBLEM, CPU, 40)
    for module in (rotation, worker):
        monkeypatch.setattr(module, "clock_of", lambda device_: device)
        monkeypatch.setattr(module, "rotation_of", lambda problem, device_: held)
    monkeypatch.setattr(candidate._module(ADVERSARIES), "_answers", {})
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    monkeypatch.setattr(clock, "seal", Seals)  # what this test replaces is not for the referee
    options = worker.Options(rounds=2 if when == "timed" else 1, device="cpu")
    entrants = [rotation.timed(each, find(each), PROBLEM, None, CPU) for each in (BASELINE, name)]
    assert [entrant.leaves_threads for entrant in entrants] == [True, False]
    configs = {entrant.name: None for entrant in entrants}
    found = worker._time(PROBLEM, configs, mode, False, options, announce=lambda running: None)
    assert isinstance(found, Failure) and (found.name, found.status) == (name, WRONG), found
    assert "leaves 1 threads running when its call returns: Thread-" in found.message


def test_a_thread_that_has_ended_is_none_that_is_left():
    before, ended = Threads(native=True), threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert "leaves 1 threads running when its call returns: Thread-" in before.left()
    ended.set()
    thread.join()
    assert before.left() is None


def test_a_process_that_was_waited_for_is_none_that_is_left():
    """In a process of its own, as tests begin some."""
    lines = [
        "import subprocess",
        "from triton_vs_tilus.bench.measure.threads import Threads",
        "before, late = Threads(native=True), Threads()",
        "subprocess.run(['true'])",
        "assert before.left() is None",
        "process = subprocess.Popen(['sleep', '60'])",
        "assert before.left() == 'leaves a process that it began when its call returns' and late.left() is None",
        "process.kill()",
        "assert before.left() is None",  # it has ended, though nobody has waited for it
        "process.wait()",
        "assert before.left() is None",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)


def test_a_process_beside_an_earlier_one_is_seen():
    """Compilers keep some, which may hide none that a candidate begins later."""
    with subprocess.Popen(["sleep", "60"]) as of_a_compiler:
        before = Threads(native=True)
        assert before.left() is None
        with subprocess.Popen(["sleep", "60"]) as of_a_candidate:
            left = before.left()
            of_a_candidate.kill()
        of_a_compiler.kill()
    assert left == "leaves a process that it began when its call returns" and before.left() is None


ADVERSARIES, CHEATS = f"{ROOT}/tests/adversaries.py", f"{ROOT}/examples/candidates/cheats"
UNWRITTEN = "128 of 128 elements are NaN"


@pytest.mark.parametrize(
    ("place", "status", "why", "lives"),
    [
        (f"{CHEATS}/lazy_tensor.py:matmul", WRONG, "returns LazyTensor", True),
        (f"{CHEATS}/background_thread.py:matmul", WRONG, UNWRITTEN, False),
        (f"{CHEATS}/patched_clock.py:matmul", WRONG, "measured by: torch.cuda.streams.Event.elapsed_time", False),
        (f"{CHEATS}/kept_answers.py:matmul", PASSED, "", True),  # until it is timed
        (f"{ADVERSARIES}:background_thread", WRONG, UNWRITTEN, False),
        (f"{ADVERSARIES}:thread_left_waiting", WRONG, "leaves 1 threads running when its call returns: Thread-", False),
        (f"{ADVERSARIES}:patches_the_clock", WRONG, "measured by: torch.cuda.streams.Event.elapsed_time", False),
        (f"{ADVERSARIES}:patches_the_judge", WRONG, "measured by: Judge.largest_error", False),
        (f"{ADVERSARIES}:pickles_its_verdict", WRONG, "measured by: how pickle writes a result", False),
    ],
    ids=lambda value: value.rpartition("/")[2] if isinstance(value, str) and "/" in value else None,
)
def test_what_the_gate_says_of_a_cheat(monkeypatch, place, status, why, lives):
    """lives: whether the process goes on to the next contender."""
    monkeypatch.setattr(copyreg, "dispatch_table", dict(copyreg.dispatch_table))
    monkeypatch.setattr(torch.cuda.Event, "elapsed_time", torch.cuda.Event.elapsed_time)  # restored afterwards
    monkeypatch.setattr(Judge.largest_error, "__code__", Judge.largest_error.__code__)
    others, checked = threading.enumerate(), threading.Event()
    monkeypatch.setattr(time, "sleep", lambda seconds: checked.wait())  # however long the check takes here
    found = worker._check(PROBLEM, f"candidate/{place}", None, CPU, 0, announce=lambda name: None)
    lived = healthy() and not found.spoiled
    assert (found.status, lived) == (status, lives) and why in found.message, found.message
    checked.set()
    for thread in threading.enumerate():
        if thread not in others and not thread.daemon:
            thread.join()  # before the next test uses what it writes to


def test_an_operator_that_is_overridden_is_found_at_the_gate():
    seals, name = Seals(), f"candidate/{ADVERSARIES}:overrides_an_operator"
    try:
        found = worker._check(PROBLEM, name, None, CPU, 0, announce=lambda name: None)
    finally:
        candidate._module(ADVERSARIES)._answers.pop("library")._destroy()
    assert found.status == WRONG and found.message == "replaces what it is measured by: aten::clone"
    assert found.spoiled and seals.overridden() is None


class _Noting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(function.name().removeprefix("aten::"))
        return function(*args, **(kwargs or {}))


def test_every_operator_that_judges_is_held():
    kernel = find(BASELINE)
    with _Noting() as noting:
        judge = referee.Referee(PROBLEM, CPU, 0)
        judge.examine(lambda inputs, out: torch.mm(inputs.a, inputs.b, out=out), 1, False)
        held = Rotation(PROBLEM, CPU, 2)
        args, kwargs = held.arguments(kernel, None)[1]
        held.refill(kernel, [1])
        assert held.fault(1, kernel.launch(*args, **kwargs), 1) is None
    assert noting.names <= set(OPERATORS.split())


def test_answers_that_are_kept_are_found_while_timed(monkeypatch):
    launch = find(f"candidate/{CHEATS}/kept_answers.py:matmul").launch
    found, why = outcome(monkeypatch, lambda a, b, out: launch(a, b, out=out), "cold")
    assert found == "wrong" and "over the bound" in why


def test_what_a_kernel_copies_ahead_is_copied_anew_with_the_numbers():
    held, kernel = Rotation(PROBLEM, CPU, 2), find("torch/mm")
    copies = dataclasses.replace(
        kernel, name="copies", arguments=lambda problem, inputs: copied(kernel, problem, inputs)
    )
    args, kwargs = held.arguments(copies, None)[1]
    held.refill(copies, [1])
    assert held.fault(1, copies.launch(*args, **kwargs), 1) is None


def copied(kernel: Kernel, problem: Matmul, inputs: Inputs) -> tuple[tuple, dict]:
    return kernel.arguments(problem, inputs._replace(a=inputs.a.clone()))


def test_a_weight_that_kernels_lay_out_keeps_its_numbers():
    problem, kernel = W4A16Matmul(8, 32, 128), find(OPS[W4A16Matmul.op].baseline)
    held = Rotation(problem, CPU, 2)
    held.arguments(kernel, None)
    before = [tensor.clone() for tensor in held.reads()[1]]
    held.refill(kernel, [1])
    kept = [torch.equal(tensor, was) for tensor, was in zip(held.reads()[1], before, strict=True)]
    assert kept == [False, True, True, True, False]  # a, the parts of the weight, out


def test_a_candidates_tensors_are_no_others():
    """Else it would have others fail: by a class of its own, a gradient, other memory."""
    held, name = Rotation(PROBLEM, CPU, 2), f"candidate/{ADVERSARIES}:honest"
    lent, others = held.arguments(find(name), None)[1], held.arguments(find(BASELINE), None)[1]
    for mine, theirs in zip(lent.args, others.args, strict=True):
        assert mine is not theirs and mine.data_ptr() == theirs.data_ptr()
    assert lent.kwargs["out"] is not others.kwargs["out"] and held.refill(find(name), [1]) is None
    lent.args[0].requires_grad_(True)
    lent.kwargs["out"].data = torch.empty(0)
    others = held.arguments(find(BASELINE), None)[1]
    assert held.fault(1, find(BASELINE).launch(*others.args, **others.kwargs), 1) is None


@pytest.mark.parametrize("size", [0, 1 << 16])
def test_memory_that_a_candidate_frees_or_moves_is_missed(size):
    held, name = Rotation(PROBLEM, CPU, 2), f"candidate/{ADVERSARIES}:honest"
    lent = held.arguments(find(name), None)[1]
    assert held.is_whole()
    lent.kwargs["out"].untyped_storage().resize_(size)
    assert not held.is_whole()


def test_the_gate_lends_each_contender_tensors_of_its_own():
    referee = rotation.Referee(PROBLEM, CPU, 0)

    def meddles(inputs, out):
        result = torch.mm(inputs.a, inputs.b, out=out).clone()
        inputs.a.requires_grad_(True)
        out.data = torch.empty(0)
        return result

    with contextlib.suppress(Exception):
        referee.examine(meddles, 1, False)
    assert referee.examine(lambda inputs, out: torch.mm(inputs.a, inputs.b, out=out), 1, False)[1]


def test_who_changes_an_input_while_timed_is_wrong():
    held, kernel = Rotation(PROBLEM, CPU, 2), find("torch/mm")
    args, kwargs = held.arguments(kernel, None)[1]
    held.refill(kernel, [1])
    result = kernel.launch(*args, **kwargs)
    args[1][0, 0] += 1
    assert held.fault(1, result, 1) == "changes its input b"


@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [(Accuracy, "ok", property(lambda self: True)), (Problem, "from_fields", classmethod(lambda cls, values: None))],
)
def test_whatever_is_replaced_is_found(monkeypatch, owner, name, other):
    seals = Seals()
    assert seals.broken() is None
    monkeypatch.setattr(owner, name, other)
    assert f"{owner.__name__}.{name}" in seals.broken()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (torch, "equal"),
        (torch.cuda, "synchronize"),
        (time, "perf_counter"),
        (driver, "cuGraphGetNodes"),
        (worker, "suspicion"),
        (search, "tune"),
        (accuracy, "Judge"),
        (secrets, "token_bytes"),
        (torch, "finfo"),
        (torch.profiler, "profile"),
        (torch, "relu"),
        (numpy, "frombuffer"),
        (random, "_urandom"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_function_that_is_replaced_in_its_module_is_found(monkeypatch, module, name):
    seals = Seals()
    monkeypatch.setattr(module, name, partial(getattr(module, name)))
    assert seals.broken() == f"replaces what it is measured by: {module.__name__}.{name}"


@pytest.mark.parametrize(
    ("owner", "name", "told"),
    [
        (torch.Tensor, "abs", "torch.Tensor.abs"),  # which its base has
        (torch.Tensor, "__getattribute__", "torch.Tensor.__getattribute__"),
        (random.SystemRandom, "randbytes", "random.SystemRandom.randbytes"),
        (random.Random, "sample", "random.Random.sample"),
        (collections.Counter, "__ne__", "collections.Counter.__ne__"),
        (contextlib._GeneratorContextManager, "__exit__", "contextlib._GeneratorContextManager.__exit__"),
        (torch.profiler.profile, "events", "torch.profiler.profiler.profile.events"),
        (torch.profiler.profiler._KinetoProfile, "events", "torch.profiler.profiler._KinetoProfile.events"),
    ],
)
def test_a_method_of_a_class_that_is_no_own_is_held(monkeypatch, owner, name, told):
    """Whether it is the class's own, or one that it has of a base: what is added there is found first."""
    seals, found = Seals(), getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: found(*args), raising=False)
    broken = seals.broken()
    monkeypatch.undo()
    assert broken == f"replaces what it is measured by: {told}"
    assert seals.broken() is None


MEASURING = (clock, numbers, referee, rotation, threads, timeline, nodes, stats, accuracy, problem, epilogue)


@pytest.mark.parametrize("module", MEASURING, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_function_that_measures_or_judges_is_held(module):
    """Of other modules, as the source calls them: who replaces one decides what is measured."""
    seals = Seals()
    held = {id(value) for *_, values in seals._held for value in values}
    for chain, value in called(module):
        if callable(value) and not isinstance(value, type):
            assert id(value) in held, f"{module.__name__} calls {chain}"


def called(module):
    """(name, what it is) of each attribute of a module that a source reads."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        names, at = [], node
        while isinstance(at, ast.Attribute):
            names.append(at.attr)
            at = at.value
        owner = vars(module).get(at.id) if names and isinstance(at, ast.Name) else None
        if isinstance(owner, types.ModuleType):
            for name in reversed(names):
                if not isinstance(owner, types.ModuleType):
                    break
                owner = getattr(owner, name)
            yield ".".join([at.id, *reversed(names)]), owner


@pytest.mark.parametrize(("module", "name"), [(ops, "Op"), (semaphore, "matmul"), (linear, "_functional_linear")])
def test_a_function_of_another_contender_is_held(monkeypatch, module, name):
    """What a contender calls is none of its record, and who slows it is faster than it."""
    seals = Seals()
    monkeypatch.setattr(module, name, partial(getattr(module, name)))
    assert seals.broken() == f"replaces what it is measured by: {module.__name__}.{name}"


def test_what_is_imported_later_is_held_with_the_next_contender(monkeypatch):
    name = f"{kernels_triton.__name__}.imported_later"
    seals, module = Seals(), types.ModuleType(name)
    module.launch = lambda: None
    monkeypatch.setitem(sys.modules, name, module)
    seals.hold({BASELINE: find(BASELINE)})
    module.launch = None
    assert seals.broken() == f"replaces what it is measured by: {name}.launch"


@pytest.mark.parametrize("name", [BASELINE, f"candidate/{ROOT}/tests/adversaries.py:honest"])
@pytest.mark.parametrize("field", ["roundings", "launch"])
def test_a_contenders_record_is_held(name, field):
    """A baseline that is launched by other code makes all others faster; a candidate's roundings are its bounds."""
    seals, kernel = Seals(), find(name)
    before = getattr(kernel, field)
    seals.hold({name: kernel})
    object.__setattr__(kernel, field, lambda *args, **kwargs: 10**9)
    try:
        assert seals.broken() == f"replaces what it is measured by: {name}.{field}"
    finally:
        object.__setattr__(kernel, field, before)
    assert seals.broken() is None


def test_a_constant_that_is_changed_is_found(monkeypatch):
    seals = Seals()
    monkeypatch.setattr(accuracy, "SLACK", 1e9)
    assert seals.broken() == f"replaces what it is measured by: {accuracy.__name__}.SLACK"


def test_a_method_that_is_added_is_found(monkeypatch):
    """A class without one inherits it, so nothing is replaced."""
    seals = Seals()
    monkeypatch.setattr(Accuracy, "__annotations__", {})  # which Python adds on its own
    assert seals.broken() is None
    monkeypatch.setattr(Accuracy, "__reduce__", lambda self: (Accuracy, (0.0, 0.0, 0.0)))
    assert seals.broken() == f"replaces what it is measured by: {accuracy.__name__}.Accuracy.__reduce__"


def test_what_torch_compiles_is_no_change(monkeypatch):
    """Dynamo adds names to the module of a function that it compiles, and removes them when it starts anew."""
    monkeypatch.setattr(accuracy, "__compiled_fn_1", print, raising=False)
    seals = Seals()
    monkeypatch.delattr(accuracy, "__compiled_fn_1")
    assert seals.broken() is None


def test_the_code_of_a_property_is_held(monkeypatch):
    seals, getter = Seals(), Accuracy.ok.fget
    monkeypatch.setattr(getter, "__code__", (lambda self: True).__code__)
    assert seals.broken() == "replaces what it is measured by: Accuracy.ok"


@pytest.mark.parametrize("name", ["allow_tf32", "allow_fp16_accumulation", "allow_bf16_reduced_precision_reduction"])
def test_how_torch_multiplies_is_held(monkeypatch, name):
    seals, before = Seals(), getattr(torch.backends.cuda.matmul, name)
    setattr(torch.backends.cuda.matmul, name, not before)
    try:
        broken = seals.broken()
    finally:
        setattr(torch.backends.cuda.matmul, name, before)
    assert f"torch.backends.cuda.matmul.{name}" in broken
    assert seals.broken() is None


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "set_", "value"),
    [
        ("torch.are_deterministic_algorithms_enabled", torch.use_deterministic_algorithms, True),
        pytest.param(
            "torch.backends.cuda.preferred_blas_library",
            torch.backends.cuda.preferred_blas_library,
            "cublaslt",
            marks=pytest.mark.gpu,  # a torch for CPUs has no library to prefer
        ),
        ("torch.get_default_dtype", torch.set_default_dtype, torch.float64),
    ],
)
def test_a_setting_that_others_compute_by_is_held(name, set_, value):
    seals, before = Seals(), SETTINGS[name]()
    set_(value)
    try:
        assert seals.broken() == f"replaces what it is measured by: {name}"
    finally:
        set_(before)
    assert seals.broken() is None


def test_a_mode_that_is_left_on_is_found():
    seals = Seals()
    with _Mode():
        assert seals.broken() == "replaces what it is measured by: a mode of torch's dispatcher"
    assert seals.broken() is None


def test_a_handler_of_signals_is_found():
    """A process of a contender's own could send one at any time."""
    seals, before = Seals(), signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        broken = seals.broken()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert broken == "replaces what it is measured by: a handler of signals"
    assert seals.broken() is None


def test_every_name_that_is_to_be_sealed_is_there():
    """One that a new version renames would be left out without a word."""
    for module, names in FUNCTIONS.items():
        assert [name for name in names.split() if not callable(vars(module).get(name))] == []


@pytest.mark.parametrize(("get", "hook"), [(sys.gettrace, sys.settrace), (sys.getprofile, sys.setprofile)])
def test_a_hook_of_pythons_is_found(get, hook):
    seals, before = Seals(), get()
    hook(lambda *args: None)
    try:
        broken = seals.broken()
    finally:
        hook(before)
    assert broken == "replaces what it is measured by: Python's trace or profile hook"


def figures(us: float, mean_us: float | None = None) -> stats.Summary:
    return stats.Summary(us, us, us, samples=1, rounds=1, mean_us=mean_us or us)


@pytest.mark.parametrize(
    ("summary", "timeline_us", "why"),
    [
        (figures(8.0), 7.0, ""),
        (figures(8.0), None, ""),
        (figures(8.0), 7.1, ""),  # within a fifth of what is left without a launch, and 1.2 us
        (figures(8.0), 7.3, "by the GPU's timeline"),
        (figures(100.0), 110.4, ""),  # of a long kernel within a tenth, and half a microsecond
        (figures(100.0), 110.6, "by the GPU's timeline"),
        (figures(8.0, 9.5), None, ""),
        (figures(8.0, 9.7), None, "the mean, 9.70 us"),
        (figures(3.9), None, "faster than the bytes allow"),
        (figures(4.1), None, ""),
        (figures(2.9), None, "faster than an empty launch"),
    ],
)
def test_figures_that_are_too_good_are_suspicious(summary, timeline_us, why):
    found = suspicion(summary, FloorRecord(launch_us=3.0, read_us=5.0), 0.02, timeline_us)
    assert why in found if why else found == ""


@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0])
def test_a_noisy_run_allows_no_time_far_below_an_empty_launch(noise):
    """A contender may see to the noise: by a process of its own that takes turns with the baseline's."""
    floor = FloorRecord(launch_us=3.0, read_us=1.0)
    assert "faster than an empty launch" in suspicion(figures(2.6), floor, noise, None)
    assert suspicion(figures(2.8), floor, noise, None) == ""


def test_an_empty_launch_is_as_sure_as_the_noise():
    """Of so few bytes that a launch alone bounds the time."""
    floor = FloorRecord(launch_us=3.0, read_us=1.0)
    assert suspicion(figures(2.95), floor, 0.02, None) == ""
    assert "faster than an empty launch" in suspicion(figures(2.93), floor, 0.02, None)


def test_without_a_floor_the_timeline_and_the_mean_are_asked():
    assert suspicion(figures(8.0), None, 0.0, 9.2) == ""
    assert "by the GPU's timeline" in suspicion(figures(8.0), None, 0.0, 9.4)
    assert "the mean" in suspicion(figures(8.0, 9.7), None, 0.0, None)


@pytest.mark.parametrize("file", ["router-nk", "crossover", "skinny-epilogue-bf16", "square-generated", "w4a16-grid"])
def test_no_recorded_time_is_near_what_is_too_good(file):
    """The limits are for cheats: no honest kernel may come near them."""
    rows = [row for found in queries.recorded(file).values() for row in found if row.status == PASSED and row.timing]
    assert rows
    for row in rows:
        for mode, cold in row.timing.items():
            if mode == "host":
                continue
            summary = figures(cold.median_us, cold.mean_us)
            nearer_us = None if mode != "cold" or row.timeline_us is None else row.timeline_us + 0.3
            assert suspicion(summary, row.floor.get(mode), row.noise[mode], nearer_us) == "", (
                row.problem.name,
                row.contender,
            )


def test_of_times_that_overlap_the_gpu_is_busy_once():
    assert timeline.busy_us([(5, 7), (0, 2), (1, 3), (1, 1.5), (7, 8)]) == 6
    assert timeline.busy_us([]) == 0


def test_the_timeline_is_of_calls_on_refilled_sets():
    held, kernel = Rotation(PROBLEM, CPU, 4), find("torch/mm")
    sets = held.arguments(kernel, None)
    playing = Timed("mm", kernel.launch, sets, None, lambda places: held.refill(kernel, places))
    seen, evicted, announced = [], [], []

    def profile(work):
        work()
        seen.append((announced[-1:], [of.kwargs["out"].isnan().any().item() for of in sets]))
        return [(0.0, 30.0), (20.0, 40.0)]

    assert timeline.timelines([playing], profile, lambda: evicted.append(True), announced.append) == {"mm": 4.0}
    assert [names for names, _ in seen] == [[], ["mm"]], "whether the profiler sees anything is asked for nobody"
    assert seen[1][1] == [False] * 4 and evicted == [True, True]


@pytest.mark.parametrize(
    ("under", "why"),
    [
        ("idle", "error nan"),
        ("patched", "replaces what it is measured by"),
        ("thread", "leaves 1 threads running when its call returns"),
        ("stop", None),
    ],
)
def test_what_is_done_under_the_profiler_is_judged(monkeypatch, under, why):
    """Whoever notices it may idle there, and be as busy as its events say."""
    held, kernel, watched = Rotation(PROBLEM, CPU, 12), find("torch/mm"), []
    monkeypatch.setattr(timeline, "seal", Seals)

    def fn(*args, out, **options):
        if watched and under == "idle":
            return out
        if watched and under == "stop":
            raise StopIteration  # which a loop over calls may take for its end: busy for fewer calls than it is told of
        if watched and under == "patched":
            monkeypatch.setattr(accuracy, "SLACK", 1e9)
        if watched == [True] and under == "thread":
            watched.append(threading.Thread(target=time.sleep, args=(60,), daemon=True).start())
        return kernel.launch(*args, out=out, **options)

    def profile(work):
        if work is not evict:
            watched.append(True)
            work()
        return [(0.0, 30.0)]

    def evict():
        pass

    playing = entered(fn, held, kernel)
    with pytest.raises(StopIteration if under == "stop" else NotTimed, match=why) as caught:
        timeline.timelines([playing], profile, evict, lambda name: None)
    assert under == "stop" or caught.value.wrong


@pytest.mark.parametrize("by_a_contender", [True, False])
def test_what_fails_under_the_profiler_is_its_contenders_fault(monkeypatch, by_a_contender):
    """Else one who raises there would have nobody's timeline seen."""

    def timelines(entrants, profile, evict, announce):
        if by_a_contender:
            announce("triton/atomic")
        raise RuntimeError("torch.profiler saw no kernel")

    monkeypatch.setattr(worker, "timelines", timelines)
    monkeypatch.setattr(worker, "clock_of", lambda device: FakeDevice())
    found = worker._timelines(PROBLEM, {}, CPU, announce=lambda name: None)
    failed = Failure("triton/atomic", "crashed", "RuntimeError: torch.profiler saw no kernel")
    assert found == (failed if by_a_contender else "RuntimeError: torch.profiler saw no kernel")


@pytest.mark.parametrize("l2_bytes", [0, 1 << 16, 70_001])
def test_the_numbers_are_drawn_from_more_than_l2_holds(l2_bytes):
    held = Rotation(PROBLEM, CPU, 2, l2_bytes)
    for inputs in (targets["b"] for targets in held._targets):
        drawn = held._reservoir._many["b"]
        assert drawn.nbytes >= max(2 * inputs.nbytes, clock.L2_MULTIPLE * l2_bytes)
        assert any(torch.equal(inputs, window) for window in drawn.unfold(0, inputs.numel(), 1))
        assert not torch.equal(drawn[: inputs.numel()], drawn[inputs.numel() : 2 * inputs.numel()])


@pytest.mark.interpreted
def test_a_workers_whole_timing_on_a_made_up_device(monkeypatch):
    """Kernels in their interpreter: refilled, called, judged, and timed in every mode."""
    device, problem = FakeDevice(l2_bytes=1 << 10), Matmul(4, 16, 64, layout=Layout.NK, epilogue=Epilogue.BIAS_RELU)
    device.watts = 300.0
    called = Timed.call

    def call(timed: Timed, index: int) -> torch.Tensor:
        device.launch(PRODUCT_US, lambda: called(timed, index))
        return timed.argument_sets[index].kwargs["out"]

    monkeypatch.setattr(Timed, "call", call)
    for module in (rotation, worker):
        monkeypatch.setattr(module, "clock_of", lambda device_: device)
    for name, value in {"WARM_UP_S": 0.0, "ENERGY_S": 1e-6, "COLD_LAUNCHES": 2, "HOST_CALLS": 1}.items():
        monkeypatch.setattr(clock, name, value)
    for name in ("GRAPH_LAUNCHES", "WARM_LAUNCHES"):
        monkeypatch.setattr(clock, name, 2)
    for module in (clock, timeline):
        monkeypatch.setattr(module, "seal", Seals)  # what this test replaces is not for the referee
    monkeypatch.setattr(worker, "profiled", lambda work: (work(), [(0.0, 50.0)])[1])
    configs = {BASELINE: None}
    for name in ("triton/atomic", "triton/decompose_k.vector"):
        kernel = find(name)
        configs[name] = asdict(kernel.default_config(problem))
    timing, options = Timing(), worker.Options(rounds=1, energy=True, device="cpu")
    for mode in ("cold", "graph", "warm", "host"):
        answer = worker._time(problem, configs, mode, False, options, announce=lambda name: None)
        assert not isinstance(answer, Failure), answer
        timing.samples[mode], errors = answer
        assert errors.keys() == configs.keys()
    timing.timeline_us = worker._timelines(problem, configs, CPU, announce=lambda name: None)
    assert timing.timeline_us == dict.fromkeys(configs, 5.0)
    records = timing.records("triton/atomic", seed=0)
    assert [records[mode].median_us for mode in ("cold", "graph", "warm")] == pytest.approx([PRODUCT_US] * 3)
    assert records["graph"].energy_uj is not None and records["cold"].energy_uj is None
    assert records["cold"].mean_us == pytest.approx(PRODUCT_US)
    assert timing.order_seeds().keys() == records.keys() and timing.suspicion("triton/atomic") == ""
