"""Where a Script runs: on a GPU, in the interpreter, or nowhere, being built alone."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tilus
import torch
from filelock import FileLock
from tilus.drivers import get_cache_dir
from tilus.ir.prog import Program

from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.plan import Backend, Launch, Placement, Plan, Run, filling
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import build_options, kernel_attributes  # noqa: F401, they change tilus

OFFSET_LIMIT = 1 << 31  # elements: tilus 0.2.0 adds up offsets in global memory in int32
BUILD_ATTEMPTS = 5
# tilus 0.2.0 looks into its cache of programs without a lock: beside a process that builds the same one it may find
# the text half-written, and believe in a collision, or the library, and fail to load it.
HALF_WRITTEN = ("different from the cached one", "lib_handle_ != nullptr")


def out_of_reach(elements: Mapping[str, int]) -> str | None:
    """Why to refuse a problem whose tensors, by name, have so many elements; None where offsets reach them all."""
    for name, count in elements.items():
        if count >= OFFSET_LIMIT:
            return f"{name} has {count} elements: tilus' offsets are int32"
    return None


def check_placement(problem: Matmul, placement: Placement) -> None:
    """Raises ValueError for A, B or C of a matmul, its rows apart, of which no offset reaches the end."""
    m, n, k = problem.m, problem.n, problem.k
    nk = problem.layout is Layout.NK
    check_rows(
        {
            "a": (m, placement.stride_am),
            "b.T" if nk else "b": (n, placement.stride_bn) if nk else (k, placement.stride_bk),
            "out": (m, placement.stride_cm),
            "out.T": (n, placement.stride_cn),
        }
    )


def beyond_offsets(problem: Matmul, placement: Placement) -> str | None:
    """What `check_placement` raises, in words."""
    try:
        check_placement(problem, placement)
    except ValueError as error:
        return str(error)
    return None


def check_rows(rows: Mapping[str, tuple[int, int]]) -> None:
    """Raises ValueError for a tensor of so many rows, so many elements apart, of which no offset reaches the end;
    the gap behind the last row counts as well."""
    for name, (count, stride) in rows.items():
        if count > 1 and count * stride >= OFFSET_LIMIT:
            found = f"{name} has {count} rows, {stride} elements apart"
            raise ValueError(f"{found}; accepted: fewer than {OFFSET_LIMIT} elements, gaps included")


class Pooled(NamedTuple):
    """A Script whose semaphores are of tilus' pool of global tensors, and its twin that is given some, for where the
    pool may not be used: all streams share it, and it may have to grow, which no capture of a graph allows. So it is
    used on the default stream alone, which is never captured."""

    on_pool: Any
    given: Any


def launch(script: Any, *args: Any) -> None:
    """Runs an instantiated Script on CPU tensors, in the interpreter."""
    from triton_vs_tilus.kernels_tilus import interpreter

    interpreter.run(script, *args)


def load(step: Launch, plan: Plan, device: torch.device) -> Run:
    """common.plan.Load."""
    if isinstance(step.kernel, Pooled):
        on_pool, given = (load(step._replace(kernel=script), plan, device) for script in step.kernel)

        def run_either(stream: int, slots: tuple[Any, ...]) -> None:
            (given if stream else on_pool)(stream, slots)  # the default stream's handle is 0

        return run_either
    if device.type == "cpu":
        filled = filling(step.arguments)
        return lambda stream, slots: launch(step.kernel, *filled(slots))
    start, filled = _launch_function(step.kernel), filling(step.arguments, null=0)

    def run(stream: int, slots: tuple[Any, ...]) -> None:
        start(*filled(slots))  # on torch's current stream, as it finds tensors of torch among the arguments

    return run


@lru_cache(maxsize=4096)
def _launch_function(script: Any) -> Callable[..., None]:
    """What a Script's call arrives at in the end, after it has looked up the program and how it was tuned."""
    build(script)
    return _instance(script).compiled_programs[0].get_launch_func()


def _instance(script: Any) -> Any:
    """Of a Script for any arguments, as this project's take none that is compiled in."""
    return script._jit_instance_for(*[1] * len(script.params.param_names))


# tilus' transpiler is one thread's at a time. Builds go on in the background, and the interpreter transpiles as well.
transpiling = threading.RLock()
_gathered: ContextVar[list[Program] | None] = ContextVar("gathered", default=None)


@contextmanager
def programs_only() -> Iterator[list[Program]]:
    """Within it, `build` stops at the tile-level Program, which takes no GPU, and adds it to the list given here."""
    programs: list[Program] = []
    token = _gathered.set(programs)
    try:
        yield programs
    finally:
        _gathered.reset(token)


def one_a_launch(programs: Sequence[Program]) -> list[Program]:
    """What `programs_only` gave without the second of a Pooled: the two have one name."""
    first: dict[tuple[str, ...], Program] = {}
    for program in programs:
        first.setdefault(tuple(program.functions), program)
    return list(first.values())


def scripts_of(plan: Plan) -> Iterator[Any]:
    """What a plan may launch, both of a Pooled."""
    for each in plan.launches:
        yield from each.kernel if isinstance(each.kernel, Pooled) else (each.kernel,)


def build_plan(plan: Plan) -> None:
    """Compiles what a plan launches, on whatever stream, for the current target into tilus' cache."""
    for script in scripts_of(plan):
        build(script)


def _forget(instance: Any) -> None:
    """Removes what the cache has of an instance's programs, as a build that was stopped may have left it."""
    for program in instance.transpiled_programs:
        try:
            folder = get_cache_dir(program, options=instance.build_options)
        except ValueError as error:  # its text is cut off; the message ends in its place
            folder = Path(str(error).rpartition(": ")[2]).parent
        with FileLock(folder / ".lock"):  # of tilus' builds
            shutil.rmtree(folder / "module", ignore_errors=True)
            for text in ("program.txt", "options.txt"):
                (folder / text).unlink(missing_ok=True)
    get_cache_dir.cache_clear()  # which would not write the texts again


def build(script) -> None:
    """Compiles an instantiated Script for the current target into tilus' cache and loads it, without launching it.

    Raises RuntimeError with the compiler's words.
    """
    with transpiling:
        _build(_instance(script))


def _build(instance: Any) -> None:
    programs = _gathered.get()
    if programs is not None:
        programs += instance.transpiled_programs
        return
    if instance.compiled_programs:
        return
    for attempt in range(BUILD_ATTEMPTS):
        try:
            return instance._build_programs()
        except (ValueError, RuntimeError) as error:
            if not any(words in str(error) for words in HALF_WRITTEN) or attempt == BUILD_ATTEMPTS - 1:
                raise
            # What was compiled and not loaded would count twice.
            instance.valid_programs.clear()
            instance.valid_schedules.clear()
            time.sleep(0.2)
            if attempt == BUILD_ATTEMPTS - 2:  # nobody is writing it any more
                _forget(instance)


def by_another_engine(kernel: Kernel, problem: Matmul, config: Any, placement: Placement) -> Any:
    """A config of the tables; where its engine does not take tensors that lie so, with the next one, and the kernel's
    default tile and split if it needs another tile."""
    changed = _changed(problem, config, placement)
    if changed == config or not kernel.supports(problem, changed):
        return changed
    return _changed(problem, kernel.default_config(problem), placement)


def check_engine(kernel: Kernel, problem: Matmul, config: Any, placement: Placement) -> None:
    """Raises ValueError for a config whose engine does not take tensors that lie so, and whose tile the next does not
    take."""
    changed = _changed(problem, config, placement)
    if changed != config and (reason := kernel.supports(problem, changed)):
        strides = f"a has row stride {placement.stride_am}, b strides {placement.in_strides[1:]}"
        aligned = f"a, b, bias are aligned to {placement.align_a}, {placement.align_b}, {placement.align_bias} bytes"
        found = f"config is {config}, {strides}, and {aligned}"
        raise ValueError(f"{found}: with engine {changed.engine}, which takes these, {reason}")


def _changed(problem: Matmul, config: Any, placement: Placement) -> Any:
    """The config with the engine that takes tensors that lie so."""
    from triton_vs_tilus.kernels_tilus import band
    from triton_vs_tilus.kernels_tilus.configs import BandConfig

    if not isinstance(config, BandConfig):
        return config
    return replace(config, engine=band.settings(problem, config, band.vectors(problem, placement)).tile.engine)


BACKEND = Backend(
    load,
    build_plan,
    lambda: str(tilus.option.get_option("cache_dir")),
    fit=by_another_engine,
    check=check_engine,
    lacks=beyond_offsets,
)
