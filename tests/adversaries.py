"""Candidates of bad faith or bad luck, for test_worker.py: each `FUNCTION(a, b, out)` must cost itself and no other.

Those of bad faith are of public lists of what was tried on benchmarks of kernels: KernelBench's adversarial tests, GPU
MODE's (kernelbot, reference-kernels, pygpubench), the reports on CUDA-L1 and CUDA-L2, Sakana's on its AI CUDA Engineer,
Wafer's and Makora's field guides, AMD's AgentKernelArena. notes/referee.md says which is whose.
"""

import copyreg
import ctypes
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import types
from multiprocessing.connection import Connection

import torch
from torch.overrides import TorchFunctionMode

_answers = {}
LOOKED_AT = 40  # calls: no fewer than the gate makes before the clock does; whole turns
PAUSE_S = 5e-4  # more than between the calls of a capture, less than between turns


def launch(work, us=None):
    """In whose place a made-up device puts its own, which takes `us`, or as long as a product."""
    work()


def capturing():
    """Likewise."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _product(a, b, out):
    launch(lambda: torch.mm(a, b, out=out))
    return out


def honest(a, b, out):
    """The product, written to `out`."""
    return torch.mm(a, b, out=out)


def honest_without_out(a, b):
    """The product, in memory of its own."""
    return a @ b


def writes_nothing(a, b, out):
    """Nothing is computed."""
    return out


def writes_half(a, b, out):
    """The upper half of the rows."""
    out[: a.shape[0] // 2] = a[: a.shape[0] // 2] @ b
    return out


def all_zeros(a, b, out):
    """Zeros."""
    return out.zero_()


def first_answer(a, b, out):
    """What it returned on its first call."""
    return out.copy_(_answers.setdefault("first", a @ b))


def cached_by_address(a, b, out):
    """What it returned the first time for these addresses."""
    return out.copy_(_answers.setdefault((a.data_ptr(), b.data_ptr()), a @ b))


def uninitialized(a, b):
    """Memory that nothing wrote."""
    return torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)


def writes_after(a, b, out):
    """The product, and 3 numbers after its end."""
    torch.mm(a, b, out=out)
    out.as_strided((3,), (1,), out.storage_offset() + out.numel()).fill_(1.0)
    return out


def writes_before(a, b, out):
    """The product, and 3 numbers before its beginning."""
    torch.mm(a, b, out=out)
    out.as_strided((3,), (1,), out.storage_offset() - 3).fill_(1.0)
    return out


def mutates_a(a, b, out):
    """The product, and doubles A."""
    torch.mm(a, b, out=out)
    a.mul_(2)
    return out


def mutates_b(a, b, out):
    """The product, and one number of B more."""
    torch.mm(a, b, out=out)
    b[-1, -1] += 1
    return out


def differs_now_and_then(a, b, out):
    torch.mm(a, b, out=out)
    _answers["calls"] = _answers.get("calls", 0) + 1
    if _answers["calls"] > 3:
        out[0, 0] *= 1 + torch.finfo(out.dtype).eps
    return out


def aborts(a, b, out):
    """Ends its process by a signal."""
    os.abort()


def exits(a, b, out):
    """Ends its process."""
    os._exit(3)


def hangs(a, b, out):
    """Never returns."""
    while True:
        time.sleep(1)


def raises(a, b, out):
    """Raises an error."""
    raise ValueError("not today")


def raises_at_length(a, b, out):
    raise ValueError("a" * 10_000_000)


def out_of_memory(a, b, out):
    """Asks for more memory than there is."""
    if a.is_cuda:
        torch.empty(1 << 60, dtype=torch.uint8, device=a.device)
    raise MemoryError("none left")


def wrong_shape(a, b):
    """The product, transposed."""
    return (a @ b).T


def no_tensor(a, b):
    """Returns nothing."""
    return None


def _call_number(name):
    _answers[name] = _answers.get(name, 0) + 1
    return _answers[name]


# By the public lists: what the gate finds.


class _Lazy(torch.Tensor):
    """Computes when it is looked at."""


def lazy_subclass(a, b, out):
    """A tensor of a class that computes when it is looked at."""
    return out.as_subclass(_Lazy)


def lazy_instance(a, b):
    """A tensor itself, whose own `clone` computes."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    c.clone = lambda **options: a @ b
    return c


def background_thread(a, b, out):
    """A thread writes the product once the call has returned."""

    def later():
        time.sleep(0.2)
        torch.mm(a, b, out=out)

    threading.Thread(target=later).start()
    return out


def thread_left_waiting(a, b, out):
    """The product is there in time, the thread stays for the calls that follow."""
    if "thread" not in _answers:
        _answers["thread"] = threading.Thread(target=threading.Event().wait, daemon=True)
        _answers["thread"].start()
    return torch.mm(a, b, out=out)


def patches_the_clock(a, b, out):
    """Has events report a time of its own."""
    torch.cuda.Event.elapsed_time = lambda start, end: 0.001
    return torch.mm(a, b, out=out)


def patches_the_judge(a, b, out):
    """Every error is 0 by the judge's own code."""
    from triton_vs_tilus.common.accuracy import Judge

    Judge.largest_error.__code__ = (lambda self, out: 0.0).__code__
    return out


def has_the_judge_forget(a, b, out):
    """All are right by the judge's own code, and who asks later what it was before is told what it is now."""
    from triton_vs_tilus.bench.measure.seals import seal
    from triton_vs_tilus.common.accuracy import Accuracy

    Accuracy.ok.fget.__code__ = (lambda self: True).__code__
    seal.cache_clear()
    return out


def keeps_its_process(a, b, out):
    """All are right by the judge's own code, and the worker is told that nothing is amiss."""
    from triton_vs_tilus.common.accuracy import Accuracy

    Accuracy.ok.fget.__code__ = (lambda self: True).__code__
    sys.modules["__main__"].healthy = lambda: True
    return out


def replaces_what_the_worker_calls(a, b, out):
    """Nothing of the judge is replaced: a function of the process that it runs in."""
    sys.modules["__main__"].healthy = lambda: True
    return torch.mm(a, b, out=out)


def stands_in_for_the_worker(a, b, out):
    """Nothing is replaced in any module: where Python looks the worker's up stands another, which calls all right."""
    name = "triton_vs_tilus.bench.measure.worker"
    stands_in = types.ModuleType(name)
    vars(stands_in).update(vars(sys.modules[name]), _check=lambda *given, announce: _passed())
    sys.modules[name] = stands_in
    return torch.mm(a, b, out=out)


def replaces_a_kernel_first(a, b, out):
    """What another contender runs by, before anybody has imported it."""
    from triton_vs_tilus.kernels_triton import semaphore

    semaphore.matmul = lambda *args, **kwargs: time.sleep(1)
    return torch.mm(a, b, out=out)


def overrides_an_operator(a, b, out):
    """Computes as its result is copied: nothing of Python's is replaced, but the kernel of the operator that copies."""

    def clone(tensor, *, memory_format=torch.contiguous_format):
        _answers.pop("work", lambda: None)()
        return torch.empty_like(tensor, memory_format=memory_format).copy_(tensor)

    if "library" not in _answers:
        _answers["library"] = torch.library.Library("aten", "IMPL")
        _answers["library"].impl("clone", clone, a.device.type.upper())
    _answers["work"] = lambda: torch.mm(a, b, out=out)
    return out


def adds_to_the_judge(a, b, out):
    """Nothing of the judge is replaced: what it says goes through a method that it did not have."""
    from triton_vs_tilus.common.accuracy import Accuracy

    Accuracy.__getattribute__ = lambda self, name: name == "ok" or object.__getattribute__(self, name)
    return out.zero_()


def shadows_a_builtin(a, b, out):
    """Nothing of the judge is replaced, and no class has more than it had: its module has a `max` of its own."""
    from triton_vs_tilus.common import accuracy

    accuracy.max = lambda *values: 1e9
    return out.zero_()


def replaces_a_builtin(a, b, out):
    """What all modules, the judge's among them, compare by."""
    import builtins

    builtins.max = lambda *values, **how: 1e9
    return out.zero_()


def _passed():
    """What the worker says of who is right."""
    from triton_vs_tilus.bench.measure.worker import Result
    from triton_vs_tilus.common.accuracy import Accuracy

    return Result("passed", accuracy=Accuracy(0.0, 1.0, 1.0), bitwise_equal=True)


def _silence():
    """What the worker says from here on reaches nobody, and its parent starts another."""
    os.dup2(os.open(os.devnull, os.O_RDWR), int(sys.argv[1]))


def writes_its_verdict(a, b, out):
    """Into the worker's pipe, whose file descriptor the command line has."""
    Connection(os.dup(int(sys.argv[1]))).send(("result", _passed()))
    _silence()
    return out


class _Code:
    def __reduce__(self):
        return exec, ("import os; os.environ['A_CANDIDATE_RAN'] = 'in the parent'",)


def has_the_parent_run_code(a, b, out):
    """Into the worker's pipe goes a pickle that runs code where it is loaded."""
    Connection(os.dup(int(sys.argv[1]))).send(("announce", _Code()))
    return torch.mm(a, b, out=out)


def cuts_a_message_short(a, b, out):
    """Ends within a message."""
    os.write(int(sys.argv[1]), struct.pack("!i", 1000) + b"short")
    os._exit(3)


def signs_its_verdict(a, b, out):
    """As the worker does, by what stands in the frames of its callers."""
    frame = sys._getframe()
    while frame.f_code.co_name != "_serve":
        frame = frame.f_back
    frame.f_locals["send"]("result", _passed())
    _silence()
    return out


def pickles_its_verdict(a, b, out):
    """Has pickle write another result than the worker's."""
    verdict = _passed()
    values = [getattr(verdict, name) for name in vars(verdict)]
    copyreg.pickle(type(verdict), lambda result: (type(verdict), tuple(values)))
    return out


def finds_the_answer(a, b, out):
    """In the judge's own memory."""
    from triton_vs_tilus.common.accuracy import Judge

    judges = [held for held in gc.get_objects() if type(held) is Judge and held.reference.shape == out.shape]
    return out.copy_(judges[-1].reference) if judges else torch.mm(a, b, out=out)


def spoils_the_answer(a, b, out):
    """A comparison with NaN that counts as equal would pass everything."""
    for held in gc.get_objects():
        if type(held) is torch.Tensor and held.dtype is torch.float64 and held.shape == out.shape:
            held.fill_(float("nan"))
    return out


def knows_the_seed(a, b, out):
    """The answer to the inputs of seed 0, computed beforehand."""
    if "known" not in _answers:
        from triton_vs_tilus.common.problem import Layout, Matmul

        problem = Matmul(a.shape[0], b.shape[1], a.shape[1], layout=Layout.NK)
        _answers["known"] = problem.torch_answer(problem.inputs(a.device, 0))
    return out.copy_(_answers["known"])


def zeroes_the_inputs(a, b, out):
    """A reference that is computed from the inputs afterwards agrees with it."""
    a.zero_()
    return out.zero_()


def narrower(a, b, out):
    """The product of fp8."""
    eighth = torch.float8_e4m3fn
    return out.copy_(a.to(eighth).float() @ b.to(eighth).float())


def skips_some_of_k(a, b, out):
    """The product less 2 of K."""
    return torch.mm(a[:, 2:], b[2:], out=out)


def one_row_for_all(a, b, out):
    """The first row of the product in every row."""
    return out.copy_((a[:1] @ b).expand_as(out))


def copies_an_input(a, b, out):
    """Numbers of A."""
    return out.copy_(a.flatten()[: out.numel()].view_as(out))


# By the public lists: what only shows while it is timed, on numbers that nobody has seen.


def cached_but_for_the_first(a, b, out):
    """By address. The one set that a gate is likely to use is computed."""
    key = a.data_ptr()
    if key == _answers.setdefault("first set", key) or key not in _answers:
        _answers[key] = _product(a, b, out).clone()
    return out.copy_(_answers[key])


def cached_by_id(a, b, out):
    """By the tensors themselves, which are the same in every turn."""
    key = id(a), id(b)
    if key not in _answers:
        _answers[key] = _product(a, b, out).clone()
    return out.copy_(_answers[key])


def cached_by_a_sample(a, b, out):
    """By address and some of the numbers, as a kernel could compare them on the GPU."""
    key = a.data_ptr(), *a.flatten()[:16].tolist(), *b.flatten()[:16].tolist()
    if key not in _answers:
        _answers[key] = _product(a, b, out).clone()
    return out.copy_(_answers[key])


def cached_by_version(a, b, out):
    """By address and the versions that torch counts: new numbers in place would raise them."""
    key = a.data_ptr(), a._version, b._version
    if key not in _answers:
        _answers[key] = _product(a, b, out).clone()
    return out.copy_(_answers[key])


def batches_and_skips(a, b, out):
    """The first call of a turn of 20, which a pause tells, does the work of all, once it knows their addresses and was
    looked at: no number of them is kept, the median is that of a call that does nothing."""
    known = _answers.setdefault("sets", {})
    paused = time.perf_counter() - _answers.get("returned", float("inf")) > PAUSE_S
    if _call_number("batch") <= LOOKED_AT or out.data_ptr() not in known:
        known[out.data_ptr()] = a, b, out
        _product(a, b, out)
    elif paused or _answers["batch"] % 20 == 1:
        for of_set in known.values():
            _product(*of_set)
    _answers["returned"] = time.perf_counter()  # not when it was called: a batch takes the host as long as a pause
    return out


def skips_while_timed(a, b, out):
    """Well behaved for as long as it is looked at one by one."""
    return out if _call_number("skips") > LOOKED_AT and _answers["skips"] % 20 else _product(a, b, out)


def one_memory_for_all(a, b):
    """An answer in one memory, whatever the inputs: of the launches of a graph only the last one's can be seen."""
    memory = _answers.setdefault("memory", torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device))
    return _product(a, b, memory)


def threads_while_timed(a, b, out):
    """Well behaved for as long as it is looked at one by one, then a thread writes late."""
    if _call_number("threads") <= LOOKED_AT:
        return _product(a, b, out)
    threading.Timer(0.2, torch.mm, (a, b), {"out": out}).start()
    return out


def thread_left_while_timed(a, b, out):
    """Well behaved for as long as it is looked at one by one, then a thread is begun, and stays for who comes next."""
    if _call_number("stays") == LOOKED_AT + 1:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return _product(a, b, out)


def native_thread_while_timed(a, b, out):
    """Every 40th call begins a thread that is none of Python's, and stays."""
    if _call_number("native") % LOOKED_AT == 0:
        c = ctypes.CDLL(None)
        c.pthread_create(ctypes.byref(ctypes.c_void_p()), None, c.sleep, ctypes.c_void_p(60))
    return _product(a, b, out)


def frees_what_others_use(a, b, out):
    """Well behaved for as long as it is looked at one by one, then who comes next has no memory for its inputs."""
    _product(a, b, out)
    if _call_number("frees") == LOOKED_AT + 1:
        b.untyped_storage().resize_(0)
    return out


def process_left_while_timed(a, b, out):
    """Every 40th call begins a process, which stays for who comes next."""
    if _call_number("process") % LOOKED_AT == 0:
        _answers.setdefault("left", []).append(subprocess.Popen(["sleep", "60"]))
    return _product(a, b, out)


def process_ended_while_timed(a, b, out):
    """As a compiler does: it waits for the process that it begins."""
    if _call_number("ended process") == LOOKED_AT + 1:
        subprocess.run(["true"], check=True)
    return _product(a, b, out)


def computes_in_a_hook(a, b, out):
    """Well behaved for as long as it is looked at one by one, then the clock's own call that keeps the result computes
    it: after the window."""
    if _call_number("hook") <= LOOKED_AT:
        return _product(a, b, out)

    def hook(frame, event, argument):
        if event == "call" and frame.f_code.co_name == "_kept":
            sys.setprofile(None)
            torch.mm(a, b, out=out)

    sys.setprofile(hook)
    return out


class _Computing(TorchFunctionMode):
    """Computes once, in whatever is called of torch next."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def __torch_function__(self, function, types, args=(), kwargs=None):
        work, self.work = self.work, lambda: None
        work()
        return function(*args, **(kwargs or {}))


def computes_in_a_mode(a, b, out):
    """Well behaved for as long as it is looked at one by one, then whatever is called of torch next computes."""
    if _call_number("mode") > LOOKED_AT:
        _Computing(lambda: torch.mm(a, b, out=out)).__enter__()
        return out
    return _product(a, b, out)


def computes_in_a_collection(a, b, out):
    """Well behaved for as long as it is looked at one by one, then garbage of its own computes as it is collected, in
    the clock's own call that keeps the result."""
    if _call_number("garbage") <= LOOKED_AT:
        return _product(a, b, out)

    class Garbage:
        def __init__(self):
            self.itself = self

        def __del__(self):
            caller = sys._getframe().f_back
            if caller is not None and caller.f_code.co_name in ("_kept", "keep"):
                gc.disable()
                torch.mm(a, b, out=out)
            elif caller is not None:
                Garbage()

    Garbage()
    gc.set_threshold(1)
    gc.enable()
    return out


def computes_on_a_signal(a, b, out):
    """Well behaved for as long as it is looked at one by one, then a timer's signal computes, after the call."""
    if _call_number("signal") <= LOOKED_AT:
        return _product(a, b, out)
    signal.signal(signal.SIGVTALRM, lambda number, frame: torch.mm(a, b, out=out))
    signal.setitimer(signal.ITIMER_VIRTUAL, 60.0)  # a cheat would not wait for so long
    return out


def computes_in_a_monitor(a, b, out):
    """Well behaved for as long as it is looked at one by one, then a tool of Python's monitoring computes."""
    if _call_number("monitor") <= LOOKED_AT:
        return _product(a, b, out)
    monitoring = sys.monitoring

    def begins(code, offset):
        if code.co_name == "_kept":
            monitoring.set_events(3, 0)
            torch.mm(a, b, out=out)

    if monitoring.get_tool(3) is None:
        monitoring.use_tool_id(3, "a cheat")
    monitoring.register_callback(3, monitoring.events.PY_START, begins)
    monitoring.set_events(3, monitoring.events.PY_START)
    return out


def computes_in_an_operator(a, b, out):
    """Well behaved for as long as it is looked at one by one, then the copy of the result computes it: by torch's
    dispatcher in Python, which is no mode."""
    if _call_number("operator") <= LOOKED_AT:
        return _product(a, b, out)

    def clone(tensor, **options):
        guard = torch._C._DisablePythonDispatcher()
        torch.mm(a, b, out=out)
        copy = tensor.clone()
        del guard
        return copy

    operator = torch.ops.aten.clone.default
    for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA):
        operator.py_kernels.pop(key, None)
        operator.py_impl(key)(clone)
    operator._dispatch_cache.clear()
    _answers["guard"] = torch._C._EnablePythonDispatcher()
    return out


def returns_its_sums(a, b, out):
    """Well behaved for as long as it is looked at one by one, then it leaves out the cast to the output's dtype."""
    return a.float() @ b.float() if _call_number("sums") > LOOKED_AT else _product(a, b, out)


def changes_what_is_expected(a, b, out):
    """Well behaved for as long as it is looked at one by one, then it makes the output one of another dtype, that it
    need not cast."""
    if _call_number("expected") <= LOOKED_AT:
        return _product(a, b, out)
    out.data = a.float() @ b.float()
    return out


class _Agreeing(torch.Tensor):
    """Equal to all, and computes the result in the judge's own frame when it is asked."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "fault":
            frame = frame.f_back
        if frame is not None:
            given = frame.f_locals["given"]
            torch.mm(given.a, given.b, out=frame.f_locals["result"])
        return function is torch.equal or super().__torch_function__(function, types, args, kwargs or {})


def answers_when_it_is_asked(a, b, out):
    """Well behaved for as long as it is looked at one by one, then its inputs are of a class that the judge calls."""
    if _call_number("asked") <= LOOKED_AT:
        return _product(a, b, out)
    a.__class__ = _Agreeing
    return out


def once_a_capture(a, b, out):
    """Of calls with the same arguments, as a graph on warm L2 captures, one of the graph's own does the work. Outside
    of a capture all do, so whoever looks at single calls sees nothing."""
    captured = a.data_ptr() if capturing() else None
    if captured and _answers.get("captured") == captured:
        return out
    _answers["captured"] = captured
    return _product(a, b, out)


def leaves_out_a_fifth(a, b, out):
    """The last calls of a capture do nothing: on warm L2 the first ones have written the answer."""
    _answers["captured calls"] = _answers.get("captured calls", 0) + 1 if capturing() else 0
    return out if _answers["captured calls"] > 40 else _product(a, b, out)


def idles_in_a_fifth(a, b, out):
    """Likewise, but for a launch that changes nothing."""
    _answers["captured calls"] = _answers.get("captured calls", 0) + 1 if capturing() else 0
    if _answers["captured calls"] > 40:
        launch(lambda: out[0, :1].add_(0), us=0.5)
        return out
    return _product(a, b, out)


# On a GPU.


def illegal_access(a, b, out):
    """Writes where no memory is."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(out_ptr, offset):
        tl.store(out_ptr + offset, 1.0)

    kernel[(1,)](out, 1 << 45)
    return out


def spins(a, b, out):
    """A GPU kernel that does not end."""
    torch.cuda._sleep(1 << 60)
    return out


def other_stream(a, b, out):
    """On a stream that does not wait for the caller's."""
    stream = _answers.setdefault("stream", torch.cuda.Stream())
    with torch.cuda.stream(stream):
        torch.mm(a, b, out=out)
    return out


def other_stream_in_order(a, b, out):
    """Not in the order of the caller's stream is what is wrong, not the stream."""
    stream = _answers.setdefault("stream", torch.cuda.Stream())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.mm(a, b, out=out)
    torch.cuda.current_stream().wait_stream(stream)
    return out


def waits(a, b, out):
    """Waits for the GPU before it returns."""
    torch.mm(a, b, out=out)
    torch.cuda.synchronize()
    return out


def spins_while_timed(a, b, out):
    """Well behaved for as long as it is looked at one by one."""
    return spins(a, b, out) if _call_number("spins") > LOOKED_AT else torch.mm(a, b, out=out)


def illegal_access_while_timed(a, b, out):
    """Well behaved for as long as it is looked at one by one, then writes where no memory is."""
    return illegal_access(a, b, out) if _call_number("illegal") > LOOKED_AT else torch.mm(a, b, out=out)


def wrong_after_a_while(a, b, out):
    """Zeros, from a number of calls on."""
    return out.zero_() if _call_number("wrong") > LOOKED_AT else torch.mm(a, b, out=out)


def other_stream_while_timed(a, b, out):
    """A side stream in order for as long as calls come one by one, and out of it when they come quickly."""
    now, before = time.perf_counter(), _answers.get("last call", 0.0)
    _answers["last call"] = now
    return other_stream(a, b, out) if now - before < 2e-4 else other_stream_in_order(a, b, out)


def lingers_on_a_stream(a, b, out):
    """The side stream waits for the caller's and is not waited for: its work runs after the window."""
    stream = _answers.setdefault("stream", torch.cuda.Stream())
    if _call_number("lingers") <= LOOKED_AT:
        return torch.mm(a, b, out=out)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.mm(a, b, out=out)
    return out


def runs_ahead(a, b, out):
    """A side stream, waited for by nobody, computes what a call asks for while the caller's stream waits behind a
    delay; there a launch idles for as long as a fast kernel takes. Well behaved at the gate, in a capture, under the
    profiler, and on an idle GPU."""
    stream, gate = _answers.setdefault("ahead", torch.cuda.Stream()), _answers.setdefault("gate", out.data_ptr())
    if out.data_ptr() == gate or capturing() or torch.autograd._profiler_enabled():
        return torch.mm(a, b, out=out)
    if torch.cuda.current_stream().query():
        return torch.mm(a, b, out=out)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000)  # until what is filled anew before the call is there
        torch.mm(a, b, out=out)
    torch.cuda._sleep(5000)
    return out


def sets_l2_aside(a, b, out):
    """Sets a part of L2 aside for itself."""
    from cuda.bindings import driver

    driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 16 << 20)
    return torch.mm(a, b, out=out)


def keeps_b_in_l2(a, b, out):
    """Sets a part of L2 aside, and by an attribute of the stream has B stay in it."""
    from cuda.bindings import driver

    driver.cuCtxSetLimit(driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, b.nbytes)
    window = driver.CUaccessPolicyWindow()
    window.base_ptr, window.num_bytes, window.hitRatio = b.data_ptr(), b.nbytes, 1.0
    window.hitProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_PERSISTING
    window.missProp = driver.CUaccessProperty.CU_ACCESS_PROPERTY_STREAMING
    value = driver.CUstreamAttrValue()
    value.accessPolicyWindow = window
    attribute = driver.CUstreamAttrID.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW
    driver.cuStreamSetAttribute(torch.cuda.current_stream().cuda_stream, attribute, value)
    return torch.mm(a, b, out=out)
