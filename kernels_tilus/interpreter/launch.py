"""Runs a Script: transpiles it, binds its arguments, and runs all of its blocks."""

import ast
import contextlib
import gc
import inspect
import itertools
import linecache
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from tilus.hidet.ir.dtypes import uint8
from tilus.hidet.ir.expr import Var
from tilus.hidet.ir.type import DataType, PointerType
from tilus.ir.func import Function
from tilus.ir.inst import Instruction
from tilus.ir.instructions import AllocateGlobalInst
from tilus.ir.prog import Program
from tilus.ir.stmt import DeclareStmt, SeqStmt, Stmt
from tilus.ir.tools.printer import IRPrinter
from tilus.lang.instantiated_script import InstantiatedScript, extract_keys
from tilus.lang.transpiler import transpiler

from triton_vs_tilus.kernels_tilus.interpreter import dtypes, hopper  # noqa: F401, its instructions
from triton_vs_tilus.kernels_tilus.interpreter import machine as compiled
from triton_vs_tilus.kernels_tilus.interpreter.cluster import Cluster
from triton_vs_tilus.kernels_tilus.interpreter.dtypes import Form, form
from triton_vs_tilus.kernels_tilus.interpreter.errors import KernelError, KernelWarning, NotClean, Unsupported
from triton_vs_tilus.kernels_tilus.interpreter.expressions import touches_memory
from triton_vs_tilus.kernels_tilus.interpreter.machine import Step
from triton_vs_tilus.kernels_tilus.interpreter.memory import Agent, Buffer, Pointer, Region
from triton_vs_tilus.kernels_tilus.interpreter.schedule import Machine, Schedule
from triton_vs_tilus.kernels_tilus.interpreter.threads import Block, Threads, converter
from triton_vs_tilus.kernels_tilus.launching import transpiling

Debug = Callable[[Step], None]


@dataclass(frozen=True)
class Using:
    """How launches run: see `using`."""

    schedule: Schedule = field(default_factory=Schedule)
    debug: Debug | None = None
    warn: tuple[type[KernelError], ...] = ()
    candidate: int | None = None


_DEFAULT = Using()
_using: ContextVar[Using] = ContextVar("using", default=_DEFAULT)


@contextlib.contextmanager
def using(
    schedule: Schedule | None = None,
    debug: Debug | None = None,
    warn: Sequence[type[KernelError]] | None = None,
    candidate: int | None = None,
) -> Iterator[None]:
    """A context for every launch in it, such as a launcher's.

    schedule: the order of blocks, where a launch names none.
    debug: called after every instruction of every block, with its Step.
    warn: kinds of errors of which a launch warns, once a place, and goes on: those that say that something is not
    ordered, not waited for or not written.
    candidate: of an autotuned Script the number of the schedule that it runs with; None for the first that transpiles.
    """
    given = {
        "schedule": schedule,
        "debug": debug,
        "warn": None if warn is None else tuple(warn),
        "candidate": candidate,
    }
    token = _using.set(replace(_using.get(), **{name: value for name, value in given.items() if value is not None}))
    try:
        yield
    finally:
        _using.reset(token)


def run(
    script: InstantiatedScript,
    *args: Any,
    schedule: Schedule | None = None,
    debug: Debug | None = None,
    **kwargs: Any,
) -> None:
    """Runs an instantiated Script on CPU tensors, which it changes as the GPU would.

    args, kwargs: those of its __call__: numbers, and CPU tensors, or their `data_ptr()`; None for a tensor that is
    never read.
    schedule, debug: as `using`.

    Raises a KernelError (kernels_tilus/interpreter/errors.py) where the Script makes a mistake, and TypeError where the
    call does.
    """
    args = bound(script, args, kwargs)
    run_program(transpile(script, *args), *(args[i] for i in script.kernel_params), schedule=schedule, debug=debug)


def bound(script: InstantiatedScript, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arguments in the order of the Script's parameters. Raises TypeError where they are not those."""
    try:
        found = script.params.signature.bind(None, *args, **kwargs)  # None for self
    except TypeError as error:
        raise TypeError(f"{script.script_cls.__name__}: {error}; accepted: {_accepted(script)}") from None
    found.apply_defaults()
    return found.args[1:]


def _accepted(script: InstantiatedScript) -> str:
    pairs = zip(script.params.param_names, script.params.param_types, strict=True)
    return ", ".join(f"{name}: {_type_name(kind)}" for name, kind in pairs)


def _type_name(kind: Any) -> str:
    """As it is written in a Script."""
    if isinstance(kind, PointerType):
        return f"~{kind.base_type.name}" if isinstance(kind.base_type, DataType) else "void_p"
    return kind.name if isinstance(kind, DataType) else kind.__name__


def run_program(program: Program, *args: Any, schedule: Schedule | None = None, debug: Debug | None = None) -> None:
    """As `run`, for a Program from `transpile`; args without the Script's compile-time constants."""
    with using(schedule, debug):
        _Launch(program, args, _using.get()).run(_using.get().schedule)


def transpile(script: InstantiatedScript, *args: Any) -> Program:
    """The Program of a Script for these arguments, before any pass of the compiler. Needs no GPU."""
    args = bound(script, args, {})
    for i in script.tuning_params:
        if not isinstance(args[i], int):
            raise TypeError(f"{script.params.param_names[i]} is {args[i]!r}; accepted: an int")
    jit_key, _ = extract_keys(args, script.const_params, script.tuning_params)
    return _transpile(script, jit_key, _using.get().candidate)


@lru_cache(maxsize=1024)
def _transpile(script: InstantiatedScript, jit_key: tuple, candidate: int | None) -> Program:
    if candidate is not None:
        if not 0 <= candidate < len(script.schedules):
            raise ValueError(f"candidate is {candidate}; accepted: 0 to {len(script.schedules) - 1}")
        return _transpiled(script, jit_key, script.schedules[candidate])
    first: Exception | None = None
    for schedule in script.schedules:
        try:
            return _transpiled(script, jit_key, schedule)
        except Exception as error:  # tilus, too, leaves a schedule out that does not transpile, for whatever reason
            first = first or error
    raise first


def _transpiled(script: InstantiatedScript, jit_key: tuple, schedule: Mapping[str, Any]) -> Program:
    instance = object.__new__(script.script_cls)  # Script.__new__ makes an InstantiatedScript
    instance.__init__(**schedule)
    names = [script.params.param_names[i] for i in (*script.const_params, *script.tuning_params)]
    values = dict(zip(names, jit_key, strict=True))
    constants = {names[i]: values.pop(names[i]) for i in range(len(script.const_params))}
    with transpiling, _sources_read_once():
        function = _LineKeeper().transpile(instance, name2consts=constants, name2divisibility=values)
    return Program.create({function.name: function})


class _Memo:
    """A module with functions of it in the place of its own."""

    def __init__(self, module: Any, **functions: Callable) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@lru_cache(maxsize=4096)
def _source_lines(function: Any) -> tuple[list[str], int]:
    return inspect.getsourcelines(function)


_INSPECT = _Memo(inspect, getsourcelines=lambda method: _source_lines(getattr(method, "__func__", method)))
_AST = _Memo(ast, parse=lru_cache(maxsize=4096)(ast.parse))


@contextlib.contextmanager
def _sources_read_once() -> Iterator[None]:
    """tilus reads and parses a method at each of its calls in a Script, which is most of what transpiling takes."""
    transpiler.inspect, transpiler.ast = _INSPECT, _AST
    try:
        yield
    finally:
        transpiler.inspect, transpiler.ast = inspect, ast


_lines: WeakKeyDictionary[Stmt | Instruction, tuple[str, int]] = WeakKeyDictionary()


class _LineKeeper(transpiler.Transpiler):
    """A transpiler that records the line of the Script of every statement and instruction."""

    def __init__(self) -> None:
        super().__init__()
        self._line: tuple[str, int] | None = None

    def visit(self, node: Any) -> Any:
        outer = self._line
        if hasattr(node, "lineno"):
            self._line = self.file, self.start_lineno + node.lineno - 1
        try:
            return super().visit(node)
        finally:
            self._line = outer

    def append(self, inst_or_stmt: Stmt | Instruction) -> None:
        super().append(inst_or_stmt)
        if self._line is not None:
            _lines[inst_or_stmt] = self._line


class _Texts(IRPrinter):
    """The text of every statement and instruction, with the names of the printed Program."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[int, str] = {}

    def visit(self, node: Any) -> Any:
        doc = super().visit(node)
        if isinstance(node, (Stmt, Instruction)):
            self.texts[id(node)] = str(doc).strip().split("\n")[0].split("  #")[0]
        return doc


class _Compiled:
    """The parts of a Program's run that are computed once, however often it runs."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self._programs: dict[bool, compiled.Program] = {}

    def program(self, debug: bool) -> compiled.Program:
        if debug not in self._programs:
            self._programs[debug] = compiled.Program(self.function, debug)
        return self._programs[debug]

    @cached_property
    def texts(self) -> dict[int, str]:
        printer = _Texts()
        printer(self.function)
        return printer.texts


_compiled: WeakKeyDictionary[Program, _Compiled] = WeakKeyDictionary()


class _Launch:
    """One run of a Program: what its blocks share."""

    def __init__(self, program: Program, args: Sequence[Any], using: "Using") -> None:
        if program not in _compiled:
            (function,) = program.functions.values()
            _compiled[program] = _Compiled(function)
        self.compiled, self.debug, self.tolerated = _compiled[program], using.debug, using.warn
        self.function = self.compiled.function
        code = self.compiled.program(debug=using.debug is not None)
        self.body, self.compile = code.body, code.expression
        self.version = 0  # grows with every write, so that a block that polls can sleep until the next
        self._agents = itertools.count()
        self._units: dict[Threads, Agent] = {}
        self._warned: set[tuple[type, Any]] = set()
        self.arguments = _arguments(self.function.params, args)
        self._allocated: dict[int, tuple[Pointer, AllocateGlobalInst]] = {}
        self.blocks: list[Block] = []

    def run(self, schedule: Schedule) -> None:
        grid = self._grid()
        indices = [(x, y, z) for z, y, x in itertools.product(*map(range, reversed(grid)))]
        self.blocks = [Block(self, number, index, grid) for number, index in enumerate(indices)]
        machine = Machine(self._clusters(grid), schedule)
        self.cancel = machine.cancel
        with _undisturbed():
            machine.run()
        for pointer, instruction in self._allocated.values():
            held = pointer.buffer.read(Region(pointer, (pointer.high,), 0, (pointer.high,), (1,)))
            left = held.nonzero() if instruction.require_clean else []
            if len(left):
                element = int(left[0])
                self._fail(
                    NotClean(
                        f"{pointer.name} requires_clean, and the launch leaves {held[element].item()} in "
                        f"element {element} ({len(left)} of {pointer.high} are not zero)"
                    ).at(self.describe(instruction)),
                    instruction,
                )

    def next_agent(self) -> int:
        return next(self._agents)

    def unit(self, threads: Threads) -> Agent:
        """What does the TMA stores of these threads."""
        if threads not in self._units:
            self._units[threads] = Agent(self, threads.block, single=False)
        return self._units[threads]

    def fail(self, agent: Agent, error: KernelError) -> None:
        """Raises the error, or warns of it, once a place, where its check is made a warning."""
        self._fail(error.at(agent.where()) if isinstance(error, self.tolerated) else error, agent.place)

    def _fail(self, error: KernelError, place: Any) -> None:
        if not isinstance(error, self.tolerated):
            raise error
        if (type(error), id(place)) not in self._warned:
            self._warned.add((type(error), id(place)))
            warnings.warn(f"{type(error).__name__}: {error}", KernelWarning, stacklevel=2)

    def _clusters(self, grid: tuple[int, int, int]) -> list[list[Block]]:
        """The blocks by cluster, in the order of their ranks: x fastest."""
        extents = self.function.metadata.cluster_blocks
        if any(size % extent for size, extent in zip(grid, extents, strict=True)):
            raise KernelError(f"a grid of {grid} blocks, in clusters of {tuple(extents)}: not a multiple")
        clusters: dict[tuple[int, ...], Cluster] = {}
        for block in self.blocks:
            place = tuple(index // extent for index, extent in zip(block.index, extents, strict=True))
            block.cluster = clusters.setdefault(place, Cluster())
            block.cluster.blocks.append(block)
        return [cluster.blocks for cluster in clusters.values()]

    def _grid(self) -> tuple[int, int, int]:
        """The extents, which may depend on scalars that the Script declares from its arguments."""
        host = Block(self, -1, None, None).threads()
        body = self.function.body
        for stmt in body.seq if isinstance(body, SeqStmt) else ():
            if isinstance(stmt, DeclareStmt) and stmt.init is not None and not touches_memory(stmt.init):
                with contextlib.suppress(KernelError):  # raised by what depends on blockIdx
                    host.assign(stmt.var, converter(stmt.var)(host.value(stmt.init)))
        return tuple(host.value(extent) for extent in self.function.metadata.grid_blocks)

    def global_tensor(self, instruction: AllocateGlobalInst, threads: Threads) -> Pointer:
        """A pointer to the tensor of an AllocateGlobalInst, which all blocks of this launch share."""
        if id(instruction) not in self._allocated:
            tensor = instruction.global_output
            size, held = threads.value(tensor.size), form(tensor.dtype)
            if held.stored is None:
                raise Unsupported(f"a global tensor of {tensor.dtype.name}")
            poison = float("nan") if held.stored.is_floating_point else torch.iinfo(held.stored).min
            data = torch.full((size,), 0 if instruction.require_clean else poison, dtype=held.stored)
            name = self.name_of(instruction) or "global tensor"
            buffer = Buffer(name, data, held, uninitialized=not instruction.require_clean)
            self._allocated[id(instruction)] = Pointer(buffer, 0, 0, size, name, held), instruction
        return self._allocated[id(instruction)][0]

    # Places in the Script

    def source(self, place: Stmt | Instruction) -> str:
        line = _lines.get(place)
        return linecache.getline(*line).strip() if line else ""

    def describe(self, place: Stmt | Instruction) -> str:
        if place in _lines:
            file, number = _lines[place]
            return f"{Path(file).name}:{number} `{self.source(place)}`"
        return f"`{self.compiled.texts.get(id(place), type(place).__name__)}`"

    def name_of(self, instruction: Instruction) -> str | None:
        """The name in the Script of the instruction's result; None where it has none."""
        match = re.match(r"(\w+)\s*=[^=]", self.source(instruction))
        return match.group(1) if match else None


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A context with one thread for torch, as tiles are so small that more threads cost more than they save; with no
    collector of garbage, which would walk through all of tilus' trees for what a launch makes and keeps; and with none
    of the functions that contexts put in the place of torch's."""
    threads, collects = torch.get_num_threads(), gc.isenabled()
    torch.set_num_threads(1)
    gc.disable()
    try:
        with torch._C.DisableTorchFunction():
            yield
    finally:
        torch.set_num_threads(threads)
        if collects:
            gc.enable()


def _arguments(params: Sequence[Var], args: Sequence[Any]) -> dict[Var, Any]:
    if len(args) != len(params):
        raise TypeError(f"{len(args)} arguments; accepted: {', '.join(param.hint for param in params)}")
    values: dict[Var, Any] = {}
    buffers: dict[tuple[int, torch.dtype], Buffer] = {}
    for param, arg in zip(params, args, strict=True):
        if isinstance(param.type, DataType):
            values[param] = _number(param, arg)
            continue
        pointed = param.type.base_type if isinstance(param.type, PointerType) else None
        held = form(pointed) if isinstance(pointed, DataType) else None
        raw = isinstance(arg, int) and not isinstance(arg, bool)
        if raw:
            arg = _at(param.hint, arg)
        if arg is None:
            values[param] = Pointer(None, 0, 0, 0, param.hint, held or form(uint8))
        elif isinstance(arg, torch.Tensor) and arg.device.type == "cpu":
            if held is not None and not (held.takes(arg.dtype) or (raw and arg.dtype is torch.uint8)):
                raise TypeError(f"{param.hint} has dtype {arg.dtype}; accepted: {held.stored or torch.uint8}")
            values[param] = _pointer(param.hint, arg, held, buffers)
        else:
            raise TypeError(f"{param.hint} is {type(arg).__name__}; accepted: a CPU tensor or None")
    return values


addresses: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()  # that `data_ptr()` has told of late


def _at(name: str, address: int) -> torch.Tensor | None:
    """The CPU tensor that begins at an address, or else one that contains it, from there on; None at 0."""
    if address == 0:
        return None
    told = addresses.get(address)
    if told is not None and told.data_ptr() == address:
        return told.detach()
    found = None
    for held in gc.get_objects():
        if type(held) not in (torch.Tensor, torch.nn.Parameter):  # others may have no memory, as torch.compile's
            continue
        if held.device.type != "cpu" or held.layout is not torch.strided or not held.numel():
            continue
        if (offset := address - held.data_ptr()) == 0:
            return held.detach()
        if 0 < offset < held.nbytes and offset % held.itemsize == 0 and held.is_contiguous():
            found = held.detach().view(-1)[offset // held.itemsize :]
    if found is None:
        raise TypeError(f"{name} is {address:#x}; accepted: a CPU tensor, its data_ptr(), or None")
    return found


def _number(param: Var, arg: Any) -> Any:
    if param.type.is_integer():
        low, high = int(param.type.min_value), int(param.type.max_value)
        if not (isinstance(arg, int) and low <= arg <= high):
            raise TypeError(f"{param.hint} is {arg!r}; accepted: {param.type.name}")
    elif not isinstance(arg, (int, float)):
        raise TypeError(f"{param.hint} is {arg!r}; accepted: {param.type.name}")
    return arg


def _pointer(name: str, tensor: torch.Tensor, held: Form | None, buffers: dict) -> Pointer:
    """A pointer to the tensor's first element. Tensors that share memory share a buffer."""
    storage = tensor.untyped_storage()
    found = _of_torch(tensor.dtype)
    key = storage.data_ptr()
    if key not in buffers:
        elements = storage.nbytes() // tensor.itemsize
        data = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (elements,), (1,))
        buffers[key] = Buffer(name, data if data.dtype is found.stored else data.view(found.stored), found)
    low = tensor.storage_offset()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    span = span if tensor.numel() else 0
    valid = None
    if span > tensor.numel():
        valid = torch.zeros(span, dtype=torch.bool)
        valid.as_strided(tensor.shape, tensor.stride()).fill_(True)
    pointer = Pointer(buffers[key], low, low, low + span, name, found, valid)
    return pointer if held is None else pointer.viewed(held)


@lru_cache(maxsize=64)
def _of_torch(dtype: torch.dtype) -> Form:
    """The form of the type that a tensor of this dtype holds."""
    for name in dtypes.WHOLE_BYTES:
        held = form(dtypes.named(name))
        if held.takes(dtype):
            return held
    raise TypeError(f"a tensor of {dtype}; accepted: {', '.join(dtypes.WHOLE_BYTES)}")
