"""What every statement and instruction does to the threads that execute it.

Each is compiled once, for a Program, to a function of the threads: a generator function where others may run first,
which yields None, or a `Wait` that has to be over. Both are dispatched by class: a new instruction is one more function
registered with `instruction`, which returns that function.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce, singledispatch, singledispatchmethod
from math import prod
from typing import Any, NamedTuple

import torch
from tilus.hidet.ir import expr as ir
from tilus.hidet.ir.expr import Call, Constant, Expr, Var
from tilus.hidet.ir.tools import collect
from tilus.ir import instructions as inst
from tilus.ir import stmt as st
from tilus.ir.inst import Instruction
from tilus.ir.instructions.generic import ElementwiseBinaryBaseInst, ElementwiseUnaryBaseInst, NopInst
from tilus.ir.tensor import GlobalTensor, RegisterTensor
from tilus.ir.tools import collect as collect_nodes
from torch import Tensor as Tile

from triton_vs_tilus.kernels_tilus.atomics import AtomicAddGlobalInst
from triton_vs_tilus.kernels_tilus.bitwise import BitwiseOrInst
from triton_vs_tilus.kernels_tilus.interpreter.cluster import BARRIER, address_of
from triton_vs_tilus.kernels_tilus.interpreter.dtypes import cast_tile, form, torch_dtype
from triton_vs_tilus.kernels_tilus.interpreter.errors import KernelError, Unsupported
from triton_vs_tilus.kernels_tilus.interpreter.expressions import (
    Compiler,
    Partial,
    cast,
    check_compared,
    touches_memory,
)
from triton_vs_tilus.kernels_tilus.interpreter.memory import (
    Buffer,
    Cells,
    Pointer,
    Region,
    SharedBuffer,
    SharedTile,
    add,
    element_name,
    load,
    load_scalar,
    scalar_region,
    store,
    store_scalar,
)
from triton_vs_tilus.kernels_tilus.interpreter.threads import (
    Code,
    Return,
    Spawn,
    Steps,
    Threads,
    converter,
    poison,
)
from triton_vs_tilus.kernels_tilus.interpreter.views import viewed
from triton_vs_tilus.kernels_tilus.lane_dot import LaneDotInst
from triton_vs_tilus.kernels_tilus.sliced_dot import SlicedDotInst
from triton_vs_tilus.kernels_tilus.wgmma_specialized import OnlyFirstThreadsInst

Run = Callable[[Threads], Any]


@dataclass(frozen=True)
class TurnWait:
    """A wait until a semaphore holds a value."""

    pointer: Pointer
    value: int

    def over(self) -> bool:
        return self._held() == self.value

    def _held(self) -> int:
        return int(self.pointer.buffer.read(scalar_region(self.pointer)))

    def __str__(self) -> str:
        name = element_name(self.pointer, self.pointer.offset)
        last = self.pointer.buffer.left.get(self.pointer.bit)
        since = f" since block {last.who.block.index} at {last.who.launch.describe(last.place)}" if last else ""
        return f"{name} == {self.value}, which is {self._held()}{since}"


@dataclass(frozen=True)
class PollWait:
    """A wait until anything in global memory changes, in a loop that polls: until then each round is the same."""

    launch: Any
    version: int

    def over(self) -> bool:
        return self.launch.version != self.version

    def __str__(self) -> str:
        return "a change of global memory, in a loop that polls"


@dataclass(frozen=True)
class Step:
    """The argument of `debug`, after every instruction.

    block   blockIdx, (x, y, z)
    name    the instruction, e.g. 'Dot'
    source  the line of the Script, stripped; '' for a Program that was not transpiled here
    where   file, line and source, or the instruction's text in the printed Program
    tile    the register tile that the instruction made or stored; None where it has none
    """

    block: tuple[int, int, int]
    name: str
    source: str
    where: str
    tile: Tile | None


class _Break(Exception):
    pass


# What does not meet other threads, or memory: it may go on beside a group that is behind.
_ALONE = (
    inst.AllocateRegisterInst,
    inst.AssignInst,
    inst.CastInst,
    inst.WhereInst,
    inst.SliceRegisterInst,
    inst.AnnotateLayoutInst,
    inst.GlobalViewInst,
    inst.SliceSharedInst,
    inst.PermuteSharedInst,
    inst.ReshapeSharedInst,
    ElementwiseUnaryBaseInst,
    ElementwiseBinaryBaseInst,
    NopInst,
    OnlyFirstThreadsInst,
)
_MAY_WAIT = (inst.WaitBarrierInst, inst.LockSemaphoreInst)


class Program:
    """A function of a Program, compiled. debug: whether launches are watched."""

    def __init__(self, function: Any, debug: bool) -> None:
        self.function, self.debug = function, debug
        self.expression = Compiler()
        nodes = collect_nodes(function, [inst.AnnotateLayoutInst, st.ThreadGroupStmt])
        # A layout holds wherever its tensor is, and may be annotated after a use.
        self.layouts = {i.inputs[0]: i.layout for i in nodes if isinstance(i, inst.AnnotateLayoutInst)}
        self.has_groups_beside = any(_may_wait(i.body) for i in nodes if isinstance(i, st.ThreadGroupStmt))
        self.body = self.statement(function.body)

    # Statements

    def value(self, expr: Expr | int | float) -> Callable[[Threads], Any]:
        """What evaluates the expression."""
        return self.expression(expr) if isinstance(expr, Expr) else lambda t: expr

    def statement(self, stmt: st.Stmt) -> Code:
        try:
            run = self._statement(stmt)
        except KernelError as error:
            run = _refusing(stmt, error)
        if self.has_groups_beside and (alone := self._alone(stmt)) is not None:
            run = _after_groups(run, alone)
        return inspect.isgeneratorfunction(run), run

    def _alone(self, stmt: st.Stmt) -> Any:
        """Whether groups that are behind need not come first: the names it uses, () where they must, None where the
        statement's parts see to it."""
        match stmt:
            case st.SeqStmt() | st.ThreadGroupStmt():
                return None
            case st.DeclareStmt(init=None):
                return {stmt.var}
            case st.DeclareStmt() if not touches_memory(stmt.init):
                return {stmt.var, *collect(stmt.init, Var)}
            case st.AssignStmt() if not touches_memory(stmt.value):
                return {stmt.var, *collect(stmt.value, Var)}
            case st.InstStmt() if isinstance(stmt.inst, _ALONE):
                return {stmt.inst.output, *stmt.inst.inputs, *collect_nodes(stmt.inst, [Var])}
            case st.TensorItemValueStmt() if isinstance(stmt.tensor, RegisterTensor):
                return {stmt.var, stmt.tensor}
            case st.TensorItemPtrStmt():
                return {stmt.ptr_var, stmt.tensor}
            case st.IfStmt() | st.ForStmt():
                condition = stmt.cond if isinstance(stmt, st.IfStmt) else stmt.extent
                return () if touches_memory(condition) else {*collect(condition, Var)}
        return ()

    @singledispatchmethod
    def _statement(self, stmt: st.Stmt) -> Run:
        raise Unsupported(f"statement {type(stmt).__name__}")

    @_statement.register
    def _(self, stmt: st.InstStmt) -> Run:
        i = stmt.inst
        run = instruction(i, self)
        waits = inspect.isgeneratorfunction(run)
        if self.debug:
            return _watched(i, run)
        if waits:

            def run_waiting(t: Threads) -> Steps:
                t.place = i
                yield from run(t)

            return run_waiting

        def run_placed(t: Threads) -> None:
            t.place = i
            run(t)

        return run_placed

    @_statement.register
    def _(self, stmt: st.SeqStmt) -> Run:
        parts = [self.statement(part) for part in stmt.seq]
        if not any(waits for waits, _ in parts):
            runs = [run for _, run in parts]

            def run_all(t: Threads) -> None:
                for run in runs:
                    run(t)

            return run_all

        def run_waiting(t: Threads) -> Steps:
            for waits, run in parts:
                if waits:
                    yield from run(t)
                else:
                    run(t)

        return run_waiting

    def _evaluated(self, stmt: st.Stmt, expr: Expr, then: Callable[[Threads, Any], None]) -> Run:
        """Does `then` with the expression's value; other blocks may run first where it touches memory."""
        value = self.value(expr)
        if isinstance(expr, Expr) and touches_memory(expr):

            def run_waiting(t: Threads) -> Steps:
                t.place = stmt
                yield
                then(t, value(t))

            return run_waiting

        def run(t: Threads) -> None:
            t.place = stmt
            then(t, value(t))

        return run

    @_statement.register
    def _(self, stmt: st.DeclareStmt) -> Run:
        var = stmt.var
        if stmt.init is None:
            return lambda t: t.values.pop(var, None)
        return self._assign(stmt, var, stmt.init)

    @_statement.register
    def _(self, stmt: st.AssignStmt) -> Run:
        return self._assign(stmt, stmt.var, stmt.value)

    def _assign(self, stmt: st.Stmt, var: Var, expr: Expr) -> Run:
        value, convert = self.value(expr), converter(var)
        if touches_memory(expr):
            return self._evaluated(stmt, expr, lambda t, found: t.assign(var, convert(found)))

        def run(t: Threads) -> None:
            t.place = stmt
            t.assign(var, convert(value(t)))

        return run

    @_statement.register
    def _(self, stmt: st.LetStmt) -> Run:
        bindings = [self._assign(stmt, var, value) for var, value in zip(stmt.bind_vars, stmt.bind_values, strict=True)]
        return _sequence([*((inspect.isgeneratorfunction(run), run) for run in bindings), self.statement(stmt.body)])

    @_statement.register
    def _(self, stmt: st.EvaluateStmt) -> Run:
        if isinstance(stmt.expr, Call) and (barrier := BARRIER.get(stmt.expr.func_var.name)):
            holds = self.value(True if stmt.pred is None else stmt.pred)

            def run_barrier(t: Threads) -> Steps:
                t.place = stmt
                if holds(t):
                    yield from barrier(t.block.cluster, t)

            return run_barrier
        if stmt.pred is None:
            return self._evaluated(stmt, stmt.expr, lambda t, value: None)
        holds, value = self.value(stmt.pred), self.value(stmt.expr)

        def run(t: Threads) -> Steps:
            t.place = stmt
            yield
            if holds(t):
                value(t)

        return run

    @_statement.register
    def _(self, stmt: st.IfStmt) -> Run:
        condition = self.value(stmt.cond)
        waits, then = self.statement(stmt.then_body)
        waits_else, otherwise = (False, None) if stmt.else_body is None else self.statement(stmt.else_body)
        if not (touches_memory(stmt.cond) or waits or waits_else):

            def run(t: Threads) -> None:
                t.place = stmt
                if condition(t):
                    then(t)
                elif otherwise is not None:
                    otherwise(t)

            return run
        first = touches_memory(stmt.cond)

        def run_waiting(t: Threads) -> Steps:
            t.place = stmt
            if first:
                yield
            if condition(t):
                chosen, waits_chosen = then, waits
            elif otherwise is not None:
                chosen, waits_chosen = otherwise, waits_else
            else:
                return
            if waits_chosen:
                yield from chosen(t)
            else:
                chosen(t)

        return run_waiting

    @_statement.register
    def _(self, stmt: st.ForStmt) -> Run:
        extent, var = self.value(stmt.extent), stmt.iter_var
        convert = converter(var)
        waits, body = self.statement(stmt.body)
        if not waits:

            def run(t: Threads) -> None:
                t.place = stmt
                for i in range(extent(t)):
                    t.assign(var, convert(i))
                    try:
                        body(t)
                    except _Break:
                        break

            return run

        def run_waiting(t: Threads) -> Steps:
            t.place = stmt
            for i in range(extent(t)):
                t.assign(var, convert(i))
                try:
                    yield from body(t)
                except _Break:
                    break

        return run_waiting

    @_statement.register
    def _(self, stmt: st.WhileStmt) -> Run:
        condition, first = self.value(stmt.cond), touches_memory(stmt.cond)
        waits, body = self.statement(stmt.body)

        def run(t: Threads) -> Steps:
            while True:
                version, t.polled = t.launch.version, False
                t.place = stmt
                if first:
                    yield
                if not condition(t):
                    break
                try:
                    if waits:
                        yield from body(t)
                    else:
                        body(t)
                except _Break:
                    break
                t.place = stmt
                if t.polled and t.launch.version == version:
                    yield PollWait(t.launch, version)

        return run

    @_statement.register
    def _(self, stmt: st.BreakStmt) -> Run:
        def run(t: Threads) -> None:
            raise _Break

        return run

    @_statement.register
    def _(self, stmt: st.ReturnStmt) -> Run:
        def run(t: Threads) -> None:
            raise Return

        return run

    @_statement.register
    def _(self, stmt: st.ThreadGroupStmt) -> Run:
        """A group that may have to wait runs beside the other threads; any other one before them."""
        begin, count, beside = stmt.thread_begin, stmt.num_threads, self.has_groups_beside and _may_wait(stmt.body)
        assigns = _assigned(stmt.body) if beside else set()
        waits, body = code = self.statement(stmt.body)

        def check_alone(t: Threads, group: Threads) -> bool:
            """Whether it runs beside those that already do."""
            return not any(group.overlaps(other) for other in t.children)

        def departed(t: Threads) -> Threads:
            group = t.group(begin, count)
            if group is not t:
                t.depart(group)
            return group

        if not waits:

            def run(t: Threads) -> None:
                t.place = stmt
                group = departed(t)
                try:
                    body(group)
                except KernelError as error:
                    raise error.at(group.where()) from error
                except _Break:
                    raise Unsupported("a break by a part of the threads").at(group.where()) from None
                if group is not t:
                    t.rejoin(group)

            return run

        def run_waiting(t: Threads) -> Steps:
            t.place = stmt
            group = t.group(begin, count)
            if t.children and not check_alone(t, group):
                yield from t.join()
            group = departed(t)
            if group is t:
                yield from body(t)
            elif beside:
                group.assigns = assigns
                t.children.append(group)
                yield Spawn(group, t.spawned(group, code))
            else:
                try:
                    yield from body(group)
                except KernelError as error:
                    raise error.at(group.where()) from error
                t.rejoin(group)

        return run_waiting

    @_statement.register
    def _(self, stmt: st.TensorItemPtrStmt) -> Run:
        tensor, var = stmt.tensor, stmt.ptr_var

        def run(t: Threads) -> None:
            t.place = stmt
            held = t.values[tensor]
            if isinstance(held, View):
                t.assign(var, held.pointer)
            else:
                t.assign(var, address_of(held.buffer, held.data.storage_offset()))

        return run

    @_statement.register
    def _(self, stmt: st.TensorItemValueStmt) -> Run:
        tensor, var = stmt.tensor, stmt.var
        convert = converter(var)

        if isinstance(tensor, GlobalTensor):

            def value(t: Threads) -> Any:
                return load_scalar(t, t.values[tensor].pointer)
        elif isinstance(tensor, RegisterTensor):

            def value(t: Threads) -> Any:
                return t.tile(tensor).item()
        else:

            def value(t: Threads) -> Any:
                return t.values[tensor].load(t).item()

        def run(t: Threads) -> None:
            t.place = stmt
            t.assign(var, convert(value(t)))

        return run


def _refusing(stmt: st.Stmt, error: KernelError) -> Run:
    """What raises the error where the statement is reached."""

    def run(t: Threads) -> None:
        t.place = stmt.inst if isinstance(stmt, st.InstStmt) else stmt
        raise type(error)(str(error))

    return run


def _sequence(parts: list[Code]) -> Run:
    def run(t: Threads) -> Steps:
        for waits, part in parts:
            if waits:
                yield from part(t)
            else:
                part(t)

    return run


def _after_groups(run: Run, names: Any) -> Run:
    """The statement, after the groups that run beside these threads, but where it has no name with them in common."""
    waits = inspect.isgeneratorfunction(run)

    def run_waiting(t: Threads) -> Steps:
        if t.children and (not names or any(not names.isdisjoint(group.assigns) for group in t.children)):
            yield from t.join()
        if waits:
            yield from run(t)
        else:
            run(t)

    return run_waiting


def _may_wait(stmt: st.Stmt) -> bool:
    """Whether it may have to wait for other threads."""
    for node in collect_nodes(stmt, [st.WhileStmt, st.EvaluateStmt, Instruction]):
        if isinstance(node, st.EvaluateStmt):
            if isinstance(node.expr, Call) and node.expr.func_var.name in BARRIER:
                return True
        elif isinstance(node, (st.WhileStmt, *_MAY_WAIT)):
            return True
    return False


def _assigned(stmt: st.Stmt) -> set[Any]:
    """The variables and register tensors that the statement may assign."""
    names: set[Any] = set()
    for node in collect_nodes(stmt, [st.Stmt, Instruction]):
        match node:
            case st.DeclareStmt() | st.AssignStmt() | st.TensorItemValueStmt():
                names.add(node.var)
            case st.ForStmt():
                names.add(node.iter_var)
            case st.TensorItemPtrStmt():
                names.add(node.ptr_var)
            case Instruction():
                names.update(node.inputs if node.output is None else (node.output,))
    return names


def _watched(i: Instruction, run: Run) -> Run:
    """The instruction, and then what a launch is watched by."""
    waits = inspect.isgeneratorfunction(run)

    def run_watched(t: Threads) -> Steps:
        t.place = i
        if waits:
            yield from run(t)
        else:
            run(t)
        tensors = [i.output, *reversed(i.inputs)]
        tile = next((t.values.get(tensor) for tensor in tensors if isinstance(tensor, RegisterTensor)), None)
        if tile.__class__ is Partial:
            tile = tile.outside
        name = type(i).__name__.removesuffix("Inst")
        launch = t.launch
        launch.debug(Step(t.block.index, name, launch.source(i), launch.describe(i), tile))

    return run_watched


# Instructions


@singledispatch
def instruction(i: Instruction, program: Program) -> Run:
    """What executes an instruction. Raises Unsupported for a class that has no function here."""
    name = type(i).__name__
    if name.startswith("Tcgen05"):
        raise Unsupported(f"tcgen05, the tensor cores and tensor memory of Blackwell: instruction {name}")
    raise Unsupported(f"instruction {name}")


@instruction.register(NopInst)
@instruction.register(inst.AnnotateLayoutInst)
def _(i: Instruction, program: Program) -> Run:
    return lambda t: None


@instruction.register(inst.AssumeInst)
def _(i: inst.AssumeInst, program: Program) -> Run:
    condition = program.value(i.condition)

    def run(t: Threads) -> None:
        if not condition(t):
            raise KernelError(f"what the Script assumes does not hold: {i.condition}")

    return run


@instruction.register(inst.ExitInst)
def _(i: inst.ExitInst, program: Program) -> Run:
    def run(t: Threads) -> None:
        raise Return

    return run


@instruction.register(OnlyFirstThreadsInst)
def _(i: OnlyFirstThreadsInst, program: Program) -> Run:
    return lambda t: t.shrink(i.count)


@instruction.register(inst.SyncThreadsInst)
def _(i: inst.SyncThreadsInst, program: Program) -> Run:
    return Threads.sync


@instruction.register(inst.SyncReduceThreadsInst)
def _(i: inst.SyncReduceThreadsInst, program: Program) -> Run:
    value, convert = program.value(i.reduce_value), converter(i.var)
    variables = collect(i.reduce_value, Var)

    def run(t: Threads) -> None:
        if not t.whole:
            raise Unsupported("a reduction over a part of the block's threads; tilus 0.2.0 has none")
        sides = {side for var in variables if (held := t.values.get(var)).__class__ is Partial for side in held.parts}
        found = []
        for t.side in (*sides, "the rest"):
            found.append(bool(value(t)))
        t.side = None
        t.assign(i.var, convert(all(found) if i.reduce_op == i.AND else any(found)))
        t.sync()

    return run


@instruction.register(inst.FormatPrintInst)
def _(i: inst.FormatPrintInst, program: Program) -> Run:
    condition, values = program.value(i.cond), [program.value(e) for e in i.expressions]
    text = i.fstring.replace("%p", "0x%x")

    def run(t: Threads) -> None:
        if condition(t):
            print(f"block {t.block.index}:", text % tuple(value(t) for value in values), end="")

    return run


@instruction.register(inst.PrintTensorInst)
def _(i: inst.PrintTensorInst, program: Program) -> Run:
    condition, tensor = program.value(i.cond), i.inputs[0]

    def run(t: Threads) -> None:
        if condition(t):
            tile = t.tile(tensor) if isinstance(tensor, RegisterTensor) else t.values[tensor].data
            print(f"block {t.block.index}: {i.msg}\n{tile}")

    return run


# Registers


@lru_cache(maxsize=1024)
def _axis(extent: int, dim: int, dims: int) -> Tile:
    """A tile 0, 1, ... extent - 1 along dimension `dim` of `dims`."""
    return torch.arange(extent).view([extent if d == dim else 1 for d in range(dims)])


def _axes(axes: Iterable[Var], shape: tuple[int, ...]) -> dict[Var, Tile]:
    return {axis: _axis(shape[dim], dim, len(shape)) for dim, axis in enumerate(axes)}


def setter(tensor: RegisterTensor) -> Callable[[Threads, Tile], None]:
    """What stores a tile, converted and broadcast to the tensor's dtype and shape."""
    dtype, shape = torch_dtype(tensor.dtype), torch.Size(tensor.shape)
    wrapped = form(tensor.dtype).wrapped if form(tensor.dtype).mask else None

    def put(t: Threads, tile: Tile) -> None:
        if tile.dtype is not dtype:
            tile = tile.to(dtype)
        if wrapped is not None:
            tile = wrapped(tile)
        if tile.shape != shape:
            tile = tile.expand(shape)
        t.set_tile(tensor, tile)

    return put


@instruction.register(inst.AllocateRegisterInst)
def _(i: inst.AllocateRegisterInst, program: Program) -> Run:
    output = i.register_output
    shape, dtype = output.shape, torch_dtype(output.dtype)
    if i.init is None or isinstance(i.init, Constant):
        value = poison(output.dtype) if i.init is None else cast(i.init.value, output.dtype)

        def run_constant(t: Threads) -> None:
            tile = torch.full(shape, value, dtype=dtype)
            if i.init is None:
                t.values[output] = tile  # holds nothing yet: no wgmma.fence need follow
            else:
                t.set_tile(output, tile)

        return run_constant
    axes, value, put = _axes(i.axes, shape), program.value(i.init), setter(output)

    def run(t: Threads) -> None:
        t.values.update(axes)
        put(t, torch.as_tensor(cast(value(t), output.dtype)))

    return run


@instruction.register(inst.AssignInst)
def _(i: inst.AssignInst, program: Program) -> Run:
    target, source = i.inputs
    put = setter(target)
    return lambda t: put(t, t.tile(source))


Window = Callable[[Threads], tuple[slice | int, ...]]


def _window(
    program: Program, offsets: Sequence[Expr], dims: Iterable[int], sizes: Iterable[int], shape: Sequence[int]
) -> Window:
    """What gives the index of a slice of a tensor of `shape`: from the offsets, `sizes` elements along `dims`."""
    lengths = dict(zip(dims, sizes, strict=True))
    parts = [
        (dim, program.value(offset), extent, lengths.get(dim))
        for dim, (offset, extent) in enumerate(zip(offsets, shape, strict=True))
    ]

    def window(t: Threads) -> tuple[slice | int, ...]:
        index = []
        for dim, offset, extent, length in parts:
            start = offset(t)
            if not 0 <= start <= extent - (length or 1):
                raise KernelError(
                    f"the slice {start}:{start + (length or 1)} of dimension {dim} leaves its extent {extent}"
                )
            index.append(start if length is None else slice(start, start + length))
        return tuple(index)

    return window


@instruction.register(inst.SliceRegisterInst)
def _(i: inst.SliceRegisterInst, program: Program) -> Run:
    source, output = i.inputs[0], i.register_output
    dims = range(len(source.shape)) if i.dims is None else i.dims
    window, put = _window(program, i.offsets, dims, output.shape, source.shape), setter(output)
    return lambda t: put(t, t.tile(source)[window(t)])


@instruction.register(inst.SliceAssignInst)
def _(i: inst.SliceAssignInst, program: Program) -> Run:
    target, source = i.inputs
    window, put = _window(program, i.offsets, i.dims, source.shape, target.shape), setter(target)

    def run(t: Threads) -> None:
        tile = t.tile(target).clone()
        tile[window(t)] = t.tile(source)
        put(t, tile)

    return run


@instruction.register(inst.CastInst)
def _(i: inst.CastInst, program: Program) -> Run:
    source, output = i.inputs[0], i.register_output
    put = setter(output)
    return lambda t: put(t, cast_tile(t.tile(source), output.dtype))


@instruction.register(ElementwiseUnaryBaseInst)
@instruction.register(ElementwiseBinaryBaseInst)
def _(i: Instruction, program: Program) -> Run:
    operands = tuple(Var("x", tensor.dtype) for tensor in i.inputs)
    value, put = program.value(i.f_compute(*operands)), setter(i.register_output)
    pairs = tuple(zip(operands, i.inputs, strict=True))

    def run(t: Threads) -> None:
        for var, tensor in pairs:
            t.values[var] = t.tile(tensor)
        result = value(t)
        put(t, result if result.__class__ is Tile else torch.as_tensor(result))

    return run


@instruction.register(inst.WhereInst)
def _(i: inst.WhereInst, program: Program) -> Run:
    condition, x, y = i.inputs
    put = setter(i.register_output)
    return lambda t: put(t, torch.where(t.tile(condition), t.tile(x), t.tile(y)))


@instruction.register(inst.ReduceInst)
def _(i: inst.ReduceInst, program: Program) -> Run:
    combine = {"sum": torch.sum, "max": torch.amax, "min": torch.amin, "any": torch.any, "all": torch.all}[i.op]
    source, put = i.inputs[0], setter(i.register_output)
    if i.op not in ("max", "min") or not source.dtype.is_float():
        return lambda t: put(t, combine(t.tile(source), dim=i.dim, keepdim=i.keepdim))
    check_compared(source.dtype)
    # tilus begins with the type's least, finite number, and each step takes the other operand where one is NaN.
    pick, first = (torch.fmax, source.dtype.min_value) if i.op == "max" else (torch.fmin, source.dtype.max_value)
    least = torch.tensor(float(first.value), dtype=torch_dtype(source.dtype))
    return lambda t: put(t, combine(pick(t.tile(source), least), dim=i.dim, keepdim=i.keepdim))


@instruction.register(BitwiseOrInst)
def _(i: BitwiseOrInst, program: Program) -> Run:
    source, put = i.inputs[0], setter(i.register_output)
    return lambda t: put(t, reduce(torch.bitwise_or, t.tile(source).unbind(i.dim)))


@instruction.register(inst.TransposeInst)
def _(i: inst.TransposeInst, program: Program) -> Run:
    source, put = i.inputs[0], setter(i.register_output)
    return lambda t: put(t, t.tile(source).T)


@instruction.register(inst.SqueezeInst)
@instruction.register(inst.UnsqueezeInst)
def _(i: Instruction, program: Program) -> Run:
    source, shape, put = i.inputs[0], i.register_output.shape, setter(i.register_output)
    return lambda t: put(t, t.tile(source).reshape(shape))


@instruction.register(inst.RepeatInst)
@instruction.register(inst.RepeatInterleaveInst)
def _(i: Instruction, program: Program) -> Run:
    source, shape, put = i.inputs[0], i.register_output.shape, setter(i.register_output)
    aligned = (1,) * (len(shape) - len(source.shape)) + tuple(source.shape)
    if any(extent not in (1, size) for extent, size in zip(aligned, shape, strict=True)):
        raise Unsupported("repeat of a dimension longer than 1: tilus 0.2.0 documents one order and emits the other")
    return lambda t: put(t, t.tile(source).reshape(aligned))


@instruction.register(inst.ViewInst)
def _(i: inst.ViewInst, program: Program) -> Run:
    source, output = i.inputs[0], i.register_output
    offset, put = program.value(i.local_offset), setter(output)
    if source.dtype == output.dtype and source.shape == output.shape and _is_zero(i.local_offset):
        return lambda t: put(t, t.tile(source))
    layouts = [program.layouts.get(tensor, tensor.optional_layout) for tensor in (source, output)]

    def run(t: Threads) -> None:
        if None in layouts:
            raise Unsupported(
                "view of a register tensor in another dtype or shape: what it holds depends on the layouts; annotate "
                "both"
            )
        put(t, viewed(t.tile(source), source.dtype, layouts[0], output.dtype, layouts[1], offset(t)))

    return run


def _is_zero(offset: Expr | int) -> bool:
    return (offset.value if isinstance(offset, Constant) else offset) == 0


@instruction.register(inst.DotInst)
@instruction.register(inst.SimtDotInst)
def _(i: Instruction, program: Program) -> Run:
    """Products of half precision are exact in fp32; the order of the sum is torch's, not the tensor core's."""
    a, b, c = i.inputs
    floats = torch_dtype(a.dtype).is_floating_point
    wide = torch.promote_types(torch.float32 if floats else torch.int32, torch_dtype(c.dtype))
    put = setter(i.register_output)
    return lambda t: put(t, torch.addmm(t.tile(c).to(wide), t.tile(a).to(wide), t.tile(b).to(wide)))


@instruction.register(SlicedDotInst)
def _(i: SlicedDotInst, program: Program) -> Run:
    """A dot for each warp."""
    put = setter(i.register_output)

    def run(t: Threads) -> None:
        a, b, acc = (t.tile(tensor).float() for tensor in i.inputs)
        slices = acc.shape[0]
        a, b = a.unflatten(1, (slices, -1)).transpose(0, 1), b.unflatten(0, (slices, -1))
        put(t, torch.baddbmm(acc, a, b))

    return run


@instruction.register(LaneDotInst)
def _(i: LaneDotInst, program: Program) -> Run:
    put = setter(i.register_output)

    def run(t: Threads) -> None:
        a, b, acc = (t.tile(tensor).float() for tensor in i.inputs)
        of_lanes = (-1, acc.shape[0], i.neighbours)
        put(t, acc + torch.einsum("mjte,njte->tmn", a.unflatten(1, of_lanes), b.unflatten(1, of_lanes)))

    return run


# Shared memory


@instruction.register(inst.AllocateSharedInst)
def _(i: inst.AllocateSharedInst, program: Program) -> Run:
    output, held = i.shared_output, form(i.shared_output.dtype)
    latest: Cells | None = None

    def run(t: Threads) -> None:
        nonlocal latest
        name = t.launch.name_of(i) or "shared tensor"
        buffer = SharedBuffer(t.block, name, output.shape, held, latest)
        latest = buffer.cells
        t.values[output] = buffer.tile()

    return run


@instruction.register(inst.FreeSharedInst)
def _(i: inst.FreeSharedInst, program: Program) -> Run:
    return lambda t: t.values[i.inputs[0]].buffer.free(t)


@instruction.register(inst.SliceSharedInst)
def _(i: inst.SliceSharedInst, program: Program) -> Run:
    source, output = i.inputs[0], i.shared_output
    window = _window(program, i.offsets, i.dims, output.shape, source.shape)

    def run(t: Threads) -> None:
        part = window(t)
        key = tuple(p if p.__class__ is int else (p.start, p.stop) for p in part)
        t.values[output] = t.values[source].view(key, lambda data: data[part])

    return run


@instruction.register(inst.PermuteSharedInst)
def _(i: inst.PermuteSharedInst, program: Program) -> Run:
    source, output, key = i.inputs[0], i.shared_output, ("permute", *i.dims)

    def run(t: Threads) -> None:
        t.values[output] = t.values[source].view(key, lambda data: data.permute(i.dims))

    return run


@instruction.register(inst.ReshapeSharedInst)
def _(i: inst.ReshapeSharedInst, program: Program) -> Run:
    source, output = i.inputs[0], i.shared_output

    def run(t: Threads) -> None:
        t.values[output] = t.values[source].reshaped(output.shape)

    return run


@instruction.register(inst.LoadSharedInst)
def _(i: inst.LoadSharedInst, program: Program) -> Run:
    source, put = i.inputs[0], setter(i.register_output)
    return lambda t: put(t, t.values[source].load(t))


@instruction.register(inst.StoreSharedInst)
def _(i: inst.StoreSharedInst, program: Program) -> Run:
    target, source = i.inputs
    return lambda t: t.values[target].store(t, t.tile(source))


# Global memory


class View(NamedTuple):
    """A global tensor: where it begins, its extents and strides, in elements; no strides where it is not strided."""

    pointer: Pointer
    extents: tuple[int, ...]
    strides: tuple[int, ...] | None


def _degree(expr: Any, axes: Sequence[Var]) -> int:
    """In the axes: 0 where it has none of them, 1 where it is linear, else 2."""
    match expr:
        case ir.Var():
            return int(expr in axes)
        case ir.Add() | ir.Sub():
            return max(_degree(expr.a, axes), _degree(expr.b, axes))
        case ir.Multiply():
            return min(2, _degree(expr.a, axes) + _degree(expr.b, axes))
        case ir.Cast():
            return _degree(expr.expr, axes)
        case ir.Constant() | int():
            return 0
    return 2 if isinstance(expr, Expr) and any(var in axes for var in collect(expr, Var)) else 0


def _viewer(program: Program, tensor: GlobalTensor) -> Callable[[Threads, Pointer], View]:
    """What makes the View of the tensor from a pointer to its first element."""
    layout = tensor.layout
    extents, offset = [program.value(extent) for extent in layout.shape], program.value(layout.offset)
    strided = _degree(layout.offset, layout.axes) < 2
    at = [{axis: int(axis is one) for axis in layout.axes} for one in (None, *layout.axes)]

    def view(t: Threads, pointer: Pointer) -> View:
        shape = tuple(int(extent(t)) for extent in extents)
        if not strided:
            return View(pointer, shape, None)
        offsets = []
        for axes in at:
            t.values.update(axes)
            offsets.append(offset(t))
        first, *others = offsets
        return View(pointer + first, shape, tuple(other - first for other in others))

    return view


def check_type(pointer: Pointer, dtype: Any) -> None:
    """Raises KernelError where memory of one type is surely not meant as another: a float as any other type."""
    if not isinstance(pointer.buffer, Buffer):
        return
    held, seen = pointer.form, form(dtype)
    raw = held.name in ("uint8", "int8") or seen.name in ("uint8", "int8")
    whole = not held.tile.is_floating_point and not seen.tile.is_floating_point and seen.codes is None
    if not (held.stored is seen.stored or raw or whole):
        raise KernelError(f"{pointer.name} holds {held.stored} and is viewed as {seen.stored or seen.name}")


@instruction.register(inst.GlobalViewInst)
def _(i: inst.GlobalViewInst, program: Program) -> Run:
    output = i.global_output
    pointer, view, held = program.value(i.ptr), _viewer(program, output), form(output.dtype)

    def run(t: Threads) -> None:
        address = pointer(t)
        check_type(address, output.dtype)
        t.values[output] = view(t, address.viewed(held))

    return run


@instruction.register(inst.AllocateGlobalInst)
def _(i: inst.AllocateGlobalInst, program: Program) -> Run:
    output = i.global_output
    view = _viewer(program, output)

    def run(t: Threads) -> None:
        t.values[output] = view(t, t.launch.global_tensor(i, t))

    return run


@instruction.register(inst.SliceGlobalInst)
def _(i: inst.SliceGlobalInst, program: Program) -> Run:
    source, output = i.inputs[0], i.global_output
    offsets, view, place = [program.value(o) for o in i.offsets], _viewer(program, output), _placer(program, source)

    def run(t: Threads) -> None:
        pointer = t.values[source].pointer
        t.values[output] = view(t, pointer._replace(offset=place(t, [offset(t) for offset in offsets])))

    return run


def _placer(program: Program, tensor: GlobalTensor) -> Callable[[Threads, Sequence[int | Tile]], int | Tile]:
    """What gives the element of the tensor's memory for indices."""
    axes, offset = tensor.layout.axes, program.value(tensor.layout.offset)

    def place(t: Threads, indices: Sequence[int | Tile]) -> int | Tile:
        t.values.update(zip(axes, indices, strict=True))
        return offset(t) + t.values[tensor].pointer.offset

    return place


def region_of(
    program: Program,
    tensor: GlobalTensor,
    offsets: Sequence[Expr],
    dims: Iterable[int] | None,
    shape: tuple[int, ...],
    check_bounds: bool = True,
) -> Callable[[Threads], Region]:
    """What gives the region of a tile of the tensor: within its extents, or, unchecked, all of it."""
    starts = [program.value(offset) for offset in offsets]
    along = sorted(range(len(starts)) if dims is None else dims)
    axis_of = [along.index(dim) if dim in along else None for dim in range(len(starts))]
    place = _placer(program, tensor)
    dimensions = tuple(along)

    def region(t: Threads) -> Region:
        view = t.values[tensor]
        pointer, extents, strides = view
        index = [start(t) for start in starts]
        if strides is None:
            return scattered(t, view, index)
        offset, sizes, steps, window = pointer.offset, [], [], []
        inside, empty = True, False
        for dim, axis in enumerate(axis_of):
            start, stride = index[dim], strides[dim]
            if axis is None:
                empty = empty or (check_bounds and not 0 <= start < extents[dim])
            else:
                low, high = 0, shape[axis]
                if check_bounds and not 0 <= start <= extents[dim] - high:
                    inside = False
                    low = min(max(0, -start), high)
                    high = max(low, min(high, extents[dim] - start))
                window.append(slice(low, high))
                sizes.append(high - low)
                steps.append(stride)
                index[dim] = start = start + low
            offset += start * stride
        if empty:
            sizes, window, inside = [0] * len(sizes), [slice(0, 0)] * len(sizes), False
        part = None if inside else tuple(window)
        return Region(pointer, shape, offset, tuple(sizes), tuple(steps), part, index=(index, dimensions))

    def scattered(t: Threads, view: View, index: list[int]) -> Region:
        tiles: list[int | Tile] = list(index)
        for axis, dim in enumerate(along):
            tiles[dim] = index[dim] + _axis(shape[axis], axis, len(shape))
        mask = None
        if check_bounds:
            for at, extent in zip(tiles, view.extents, strict=True):
                within = torch.as_tensor(at)
                within = (within >= 0) & (within < extent)
                if not within.all():
                    mask = within if mask is None else mask & within
        flat = torch.as_tensor(place(t, tiles)).expand(shape)
        if mask is not None:
            mask = mask.expand(shape)
            flat = flat[mask]
        return Region(view.pointer, shape, flat=flat.contiguous(), mask=mask, index=(index, dimensions))

    return region


def _generic_region(program: Program, i: Any, shape: tuple[int, ...], dtype: Any) -> Callable[[Threads], Region]:
    """As `region_of`, for an instruction that holds a pointer and expressions for offset and mask."""
    axes, pointer, offset = _axes(i.axes, shape), program.value(i.ptr), program.value(i.offset)
    holds = program.value(True if i.mask is None else i.mask)
    held = form(dtype)

    def region(t: Threads) -> Region:
        t.values.update(axes)
        first = pointer(t).viewed(held)
        flat = (torch.as_tensor(offset(t)) + first.offset).expand(shape)
        mask = torch.as_tensor(holds(t), dtype=torch.bool)
        mask = None if mask.all() else mask.expand(shape)
        return Region(first, shape, flat=(flat if mask is None else flat[mask]).contiguous(), mask=mask)

    return region


def check_same_bits(source: Any, target: Any) -> None:
    """Raises KernelError where tilus 0.2.0 copies the bytes of elements of one type as elements of another."""
    of, to = source.dtype, target.dtype
    if of != to and not (of.is_integer() and to.is_integer() and of.nbits == to.nbits):
        raise KernelError(
            f"{of.name} is copied to {to.name}, and tilus 0.2.0 converts nothing where it copies several elements at "
            "once; cast it before"
        )


@instruction.register(inst.LoadGlobalInst)
def _(i: inst.LoadGlobalInst, program: Program) -> Run:
    output = i.register_output
    region, put = region_of(program, i.inputs[0], i.offsets, i.dims, output.shape), setter(output)
    held = program.layouts[output].local_size if output in program.layouts else 0  # by a thread; 0: not said
    elements = prod(output.shape)

    def run(t: Threads) -> None:
        put(t, load(t, region(t), t.now()._replace(several=True) if held * t.count > elements else None))

    return run


@instruction.register(inst.LoadGlobalGenericInst)
def _(i: inst.LoadGlobalGenericInst, program: Program) -> Run:
    output = i.register_output
    region, put = _generic_region(program, i, output.shape, output.dtype), setter(output)
    return lambda t: put(t, load(t, region(t)))


@instruction.register(inst.StoreGlobalInst)
def _(i: inst.StoreGlobalInst, program: Program) -> Run:
    target, source = i.inputs
    check_same_bits(source, target)
    region = region_of(program, target, i.offsets, i.dims, source.shape)
    return lambda t: store(t, region(t), t.tile(source))


@instruction.register(inst.StoreGlobalGenericInst)
def _(i: inst.StoreGlobalGenericInst, program: Program) -> Run:
    source = i.inputs[0]
    region = _generic_region(program, i, source.shape, source.dtype)
    return lambda t: store(t, region(t), t.tile(source))


@instruction.register(AtomicAddGlobalInst)
def _(i: AtomicAddGlobalInst, program: Program) -> Run:
    source = i.inputs[0]
    region = _generic_region(program, i, source.shape, source.dtype)

    def run(t: Threads) -> Steps:
        yield
        add(t, region(t), t.tile(source))

    return run


# Copies from global to shared memory


class Copy:
    """A cp.async, which may read global memory until it lands."""

    kind = ""  # of a copy that an mbarrier counts

    def __init__(self, t: Threads, target: SharedTile, region: Region) -> None:
        self.target, self.region = target, region
        target.begin_copy(t, self, by_tma=False)
        load(t, region)
        t.open_copies.append(self)

    def land(self, t: Threads) -> None:
        """Until the next sync only its own thread sees the data."""
        self.target.land(self, load(t, self.region), t.now(), by_tma=False)


def _land(t: Threads, keep: int) -> None:
    """Lands every committed group of copies but the last `keep`."""
    while len(t.copy_groups) > keep:
        for copy in t.copy_groups.pop(0):
            copy.land(t)


def _commit(t: Threads) -> None:
    t.copy_groups.append(t.open_copies)
    t.open_copies = []


@instruction.register(inst.CopyAsyncInst)
def _(i: inst.CopyAsyncInst, program: Program) -> Run:
    target, source = i.inputs
    check_same_bits(source, target)
    region = region_of(program, source, i.offsets, i.dims, target.shape, i.check_bounds)

    def run(t: Threads) -> None:
        Copy(t, t.values[target], region(t))

    return run


@instruction.register(inst.CopyAsyncGenericInst)
def _(i: inst.CopyAsyncGenericInst, program: Program) -> Run:
    target = i.inputs[0]
    region = _generic_region(program, i, target.shape, target.dtype)

    def run(t: Threads) -> None:
        Copy(t, t.values[target], region(t))

    return run


@instruction.register(inst.CopyAsyncCommitGroupInst)
def _(i: inst.CopyAsyncCommitGroupInst, program: Program) -> Run:
    return _commit


@instruction.register(inst.CopyAsyncWaitGroupInst)
def _(i: inst.CopyAsyncWaitGroupInst, program: Program) -> Run:
    keep = program.value(i.n)
    return lambda t: _land(t, keep(t))


@instruction.register(inst.CopyAsyncWaitAllInst)
def _(i: inst.CopyAsyncWaitAllInst, program: Program) -> Run:
    def run(t: Threads) -> None:
        _commit(t)
        _land(t, keep=0)

    return run


# Semaphores


@instruction.register(inst.LockSemaphoreInst)
def _(i: inst.LockSemaphoreInst, program: Program) -> Run:
    """One thread polls; a sync follows for the others."""
    semaphore, wanted = program.value(i.semaphore), program.value(i.value)

    def run(t: Threads) -> Steps:
        pointer = semaphore(t)
        yield TurnWait(pointer, wanted(t))
        load_scalar(t, pointer, "acquire")
        t.sync()

    return run


@instruction.register(inst.ReleaseSemaphoreInst)
def _(i: inst.ReleaseSemaphoreInst, program: Program) -> Run:
    """A release by one thread, with no sync before it."""
    semaphore, value = program.value(i.semaphore), program.value(i.value)

    def run(t: Threads) -> Steps:
        yield
        store_scalar(t, semaphore(t), value(t), "release")

    return run
