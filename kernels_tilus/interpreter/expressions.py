"""Compiles hidet expressions to closures over the threads that evaluate them.

Scalars are Python numbers, tiles are torch tensors, pointers are `Pointer`s.
"""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch
from tilus.hidet.ir import expr as ir
from tilus.hidet.ir.dtypes import uint8
from tilus.hidet.ir.dtypes.promotion import promote_type
from tilus.hidet.ir.tools import collect, infer_type
from tilus.hidet.ir.type import DataType, PointerType, VoidType
from torch import Tensor

from triton_vs_tilus.kernels_tilus.interpreter.cluster import mapped
from triton_vs_tilus.kernels_tilus.interpreter.dtypes import cast_tile, form, torch_dtype
from triton_vs_tilus.kernels_tilus.interpreter.errors import Divergent, KernelError, Overflow, Unsupported
from triton_vs_tilus.kernels_tilus.interpreter.memory import (
    Pointer,
    load_scalar,
    read_modify_write,
    store_scalar,
    wait_for_kernel_before,
)

Evaluate = Callable[[Any], Any]


def touches_memory(expr: ir.Expr) -> bool:
    """Whether evaluating the expression may read or write global memory, or print."""
    if isinstance(expr, (ir.Constant, ir.Var)):
        return False
    found = collect(expr, (ir.Dereference, ir.TensorElement, ir.Call))
    return any(not (isinstance(e, ir.Call) and e.func_var.name.startswith("generic_")) for e in found)


class Partial:
    """What groups of threads have assigned, to a variable or register tensor that others have as well.

    parts: by the first thread and the number of threads of the group, what it holds; the last assigned comes last.
    """

    def __init__(self, parts: dict[tuple[int, int], Any], outside: Any) -> None:
        self.parts, self.outside = parts, outside

    def assigned(self, group: tuple[int, int], value: Any) -> "Partial":
        parts = {other: held for other, held in self.parts.items() if other != group}
        return Partial({**parts, group: value}, self.outside)

    def read(self, t: Any, name: str) -> Any:
        if t.side is not None:  # of a reduction over all threads, each of which has its own
            value = self.parts.get(t.side, self.outside)
        else:
            value = self.outside
            for (begin, count), held in reversed(self.parts.items()):
                if begin <= t.begin and t.begin + t.count <= begin + count:
                    value = held
                    break
                if begin < t.begin + t.count and t.begin < begin + count:
                    raise Divergent(f"{name} was assigned by a part of the threads and is read by others too")
        if value is UNASSIGNED:
            raise KernelError(f"{name} is read before it is assigned")
        return value


UNASSIGNED: Any = object()


def _quotient(a, b):
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        floats = any(isinstance(x, float) or (isinstance(x, Tensor) and x.dtype.is_floating_point) for x in (a, b))
        return torch.div(a, b, rounding_mode=None if floats else "trunc")
    if isinstance(a, float) or isinstance(b, float):
        return a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan
    if b == 0:
        raise KernelError("integer division by zero")
    return abs(a) // abs(b) * (1 if (a >= 0) == (b >= 0) else -1)  # C truncates


def _remainder(a, b):
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.fmod(torch.as_tensor(a), torch.as_tensor(b))
    return math.fmod(a, b) if isinstance(a, float) or isinstance(b, float) else a - _quotient(a, b) * b


def _rounded(a: Tensor) -> Tensor:
    """Halves away from zero, by C's roundf; those of half precision to even, by CUDA's hrint."""
    if a.dtype.itemsize < 4:
        return a.round()
    return a.trunc() + a.sign() * ((a - a.trunc()).abs() >= 0.5)


_ARITHMETIC = {
    ir.Add: operator.add,
    ir.Sub: operator.sub,
    ir.Multiply: operator.mul,
    ir.Div: _quotient,
    ir.Mod: _remainder,
    ir.BitwiseAnd: operator.and_,
    ir.BitwiseOr: operator.or_,
    ir.BitwiseXor: operator.xor,
    ir.LeftShift: operator.lshift,
    ir.RightShift: operator.rshift,
}
_COMPARISONS = {
    ir.LessThan: operator.lt,
    ir.LessEqual: operator.le,
    ir.Equal: operator.eq,
    ir.NotEqual: operator.ne,
}
_UNARY = """sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh exp exp2 expm1 erf sqrt rsqrt log log2 log10
log1p abs ceil floor trunc isfinite isinf isnan"""
_MATH = {
    **{name: getattr(torch, name) for name in _UNARY.split()},
    "pow": torch.pow,
    "atan2": torch.atan2,
    "round": _rounded,
    "min": torch.fmin,  # as CUDA's fminf and fmaxf: the other operand where one is NaN
    "max": torch.fmax,
    "mod": torch.fmod,
    # A product of two fp32 is exact in fp64.
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),
}
_ATOMIC = re.compile(r"cuda_atomic_(add|sub|min|max|exchange|cas)(?:_(acq_rel|acquire|release)_(global|shared))?")
_REDUCE = re.compile(r"cuda_red_(?:cta|gpu|sys)_global_(add|min|max)(?:_noftz)?_[a-z]+\d+")
_LOAD = re.compile(r"cuda_ld(?:_(acquire|relaxed)_(?:cta|gpu|sys))?(?:_global)?_b\d+_\w+")
_STORE = re.compile(r"cuda_st(?:_(release|relaxed)_(?:cta|gpu|sys))?(?:_global)?_b\d+_\w+")
# An address and a pointer are both a Pointer here. Kernels run one after the other, so that none waits for another.
_ADDRESS = re.compile(r"cuda_cvta_(generic_to_|(cta|cluster)_shared_to_).*")
_RMW: dict[str, Callable] = {
    "add": operator.add,
    "sub": operator.sub,
    "min": min,
    "max": max,
    "exchange": lambda old, new: new,
    "cas": lambda old, compare, new: new if old == compare else old,
}


class Compiler:
    """Compiles the expressions of one program, each once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[ir.Expr, Evaluate]] = {}  # holds the expression, so that its id is not reused

    def __call__(self, expr: ir.Expr) -> Evaluate:
        if id(expr) not in self._made:
            self._made[id(expr)] = expr, self._compile(expr)
        return self._made[id(expr)][1]

    def _compile(self, expr: ir.Expr) -> Evaluate:
        match expr:
            case ir.Constant():
                value = float(expr.value) if isinstance(expr.type, DataType) and expr.type.is_float() else expr.value
                return lambda t: value
            case ir.Var():
                return self._variable(expr)
            case ir.LogicalAnd() | ir.LogicalOr():
                return self._logical(expr)
            case ir.BinaryExpr():
                return self._binary(expr)
            case ir.LogicalNot():
                a = self(expr.a)
                return lambda t: _logical_not(a(t))
            case ir.Neg():
                return self._negative(expr)
            case ir.BitwiseNot():
                a = self(expr.a)
                return lambda t: ~a(t)
            case ir.IfThenElse():
                return self._if_then_else(expr)
            case ir.Cast():
                return self._cast(expr)
            case ir.Let():
                return self._let(expr)
            case ir.Call():
                return self._call(expr)
            case ir.Address(expr=ir.TensorElement() as element):
                base, index = self(element.base), self(element.indices[0])
                return lambda t: base(t) + index(t)
            case ir.Dereference():
                pointer = self(expr.expr)
                return lambda t: load_scalar(t, pointer(t))
            case ir.TensorElement():
                base, index = self(expr.base), self(expr.indices[0])
                return lambda t: load_scalar(t, base(t) + index(t))
        raise Unsupported(f"expression {type(expr).__name__}: {expr}")

    def _variable(self, var: ir.Var) -> Evaluate:
        name = var.name or var.hint or "a variable"

        def evaluate(t):
            try:
                value = t.values[var]
            except KeyError:
                if name.startswith("threadIdx"):
                    raise Unsupported(f"{name}: a tile-level program has no threads") from None
                raise KernelError(f"{name} is read before it is assigned") from None
            return value.read(t, name) if value.__class__ is Partial else value

        return evaluate

    def _binary(self, expr: ir.BinaryExpr) -> Evaluate:
        kind, types = type(expr), (infer_type(expr.a), infer_type(expr.b))
        if any(not isinstance(t, DataType) for t in types):
            a, b, calculate = self(expr.a), self(expr.b), _COMPARISONS.get(kind) or _ARITHMETIC[kind]
            if isinstance(types[0], PointerType) and isinstance(types[0].base_type, VoidType):
                return lambda t: calculate(a(t).viewed(form(uint8)), b(t))
            return lambda t: calculate(a(t), b(t))
        dtype = types[0] if types[0] == types[1] else promote_type(*types)
        a, b = self._operand(expr.a, dtype), self._operand(expr.b, dtype)
        if kind in _COMPARISONS:
            compare = _COMPARISONS[kind]
            return lambda t: compare(a(t), b(t))
        calculate = _ARITHMETIC[kind]
        if dtype.is_float():
            rounded = torch_dtype(dtype)

            def evaluate(t):
                x, y = a(t), b(t)
                if x.__class__ is Tensor or y.__class__ is Tensor:
                    return calculate(_in_dtype(x, rounded), _in_dtype(y, rounded))
                return torch.tensor(calculate(x, y), dtype=rounded).item()

            return evaluate

        low, high = int(dtype.min_value), int(dtype.max_value)
        wide = bool(dtype.name in ("uint16", "uint32"))

        def evaluate(t):
            value = calculate(a(t), b(t))
            if value.__class__ is int:
                if not low <= value <= high:
                    if low < 0:
                        raise Overflow(f"{value} does not fit {dtype.name}: {expr}")
                    value &= high
            elif wide:
                value = value & high
            return value

        return evaluate

    def _operand(self, expr: ir.Expr, dtype: DataType) -> Evaluate:
        """The expression in the type that both operands of an operation are converted to."""
        value = self(expr)
        return value if infer_type(expr) == dtype else lambda t: cast(value(t), dtype)

    def _negative(self, expr: ir.Neg) -> Evaluate:
        a, dtype = self(expr.a), infer_type(expr.a)
        if isinstance(dtype, DataType) and dtype.name in ("uint32", "uint64"):
            high = int(dtype.max_value)
            return lambda t: -a(t) & high
        return lambda t: -a(t)

    def _logical(self, expr: ir.BinaryExpr) -> Evaluate:
        a, b = self(expr.a), self(expr.b)
        conjunction = isinstance(expr, ir.LogicalAnd)

        def evaluate(t):
            x = a(t)
            if x.__class__ is not Tensor:
                return b(t) if bool(x) is conjunction else x
            y = torch.as_tensor(b(t))
            return torch.logical_and(x, y) if conjunction else torch.logical_or(x, y)

        return evaluate

    def _if_then_else(self, expr: ir.IfThenElse) -> Evaluate:
        condition, x, y = self(expr.cond), self(expr.then_expr), self(expr.else_expr)

        def evaluate(t):
            chosen = condition(t)
            if chosen.__class__ is Tensor:
                return torch.where(chosen, x(t), y(t))
            return x(t) if chosen else y(t)

        return evaluate

    def _cast(self, expr: ir.Cast) -> Evaluate:
        value, target = self(expr.expr), expr.target_type
        if isinstance(target, PointerType) and isinstance(target.base_type, DataType):
            to = form(target.base_type)
            return lambda t: value(t).viewed(to)
        if not isinstance(target, DataType):
            return value
        return lambda t: cast(value(t), target)

    def _let(self, expr: ir.Let) -> Evaluate:
        value, body = self(expr.value), self(expr.body)

        def evaluate(t):
            t.values[expr.var] = value(t)
            return body(t)

        return evaluate

    def _call(self, expr: ir.Call) -> Evaluate:
        name, args = expr.func_var.name, [self(arg) for arg in expr.args]
        if name.startswith("generic_") and name.removeprefix("generic_") in _MATH:
            function, dtypes = _MATH[name.removeprefix("generic_")], [infer_type(arg) for arg in expr.args]
            if function in (torch.fmin, torch.fmax):
                check_compared(promote_type(*dtypes))
            return lambda t: _math(function, [arg(t) for arg in args], dtypes)
        if _ADDRESS.fullmatch(name):
            return args[0]
        if name == "cuda_fastdiv":
            return lambda t: _quotient(args[0](t), args[1](t))
        if name == "cuda_start_dependents":
            return lambda t: None
        if name == "cuda_after_kernel_before":
            return lambda t: wait_for_kernel_before(t, args[0](t))
        if name == "cuda_mapa_shared":
            return lambda t: mapped(args[0](t), args[1](t))
        if match := _ATOMIC.fullmatch(name):
            operation, order, space = match.groups()
            if space == "shared":
                raise Unsupported(f"{name}: atomics on shared memory")
            order = order or "relaxed"
        elif match := _REDUCE.fullmatch(name):
            operation, order = match.group(1), "relaxed"
        elif match := _LOAD.fullmatch(name):
            order = match.group(1)
            return lambda t: load_scalar(t, args[0](t), order)
        elif match := _STORE.fullmatch(name):
            order = match.group(1)
            return lambda t: store_scalar(t, args[0](t), args[1](t), order)
        else:
            raise Unsupported(f"function {name}")
        combine = _RMW[operation]

        def evaluate(t):
            pointer, *operands = (arg(t) for arg in args)
            return read_modify_write(t, pointer, lambda old: combine(old, *operands), order)

        return evaluate


def cast(value: Any, dtype: DataType) -> Any:
    """The scalar or tile in this type, as `cast_tile` has it."""
    if isinstance(value, Tensor):
        return cast_tile(value, dtype)
    if isinstance(value, Pointer):
        if dtype.name in ("uint32", "uint64", "int64"):
            return value  # an address: it may become a pointer again
        raise Unsupported(f"a pointer cast to {dtype.name}")
    if dtype.is_float():
        return cast_tile(torch.tensor(float(value), dtype=torch.float64), dtype).item()
    if dtype.name == "bool":
        return bool(value)
    if isinstance(value, float):
        return cast_tile(torch.tensor(value, dtype=torch.float64), dtype).item()
    value, bits = int(value), dtype.nbits if dtype.nbits < 8 else dtype.nbytes * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if int(dtype.min_value) < 0 and value >> (bits - 1) else value


def check_compared(dtype: DataType) -> None:
    """Raises Unsupported for a type of which tilus has no larger or smaller of two."""
    if dtype.name == "float16":
        raise Unsupported("max or min of float16: tilus 0.2.0 does not compile it (NameError: hidet); cast to float32")


def _in_dtype(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if value.__class__ is Tensor and value.dtype is not dtype else value


def _logical_not(value: Any) -> Any:
    return torch.logical_not(value) if isinstance(value, Tensor) else not value


def _math(function: Callable, values: list, dtypes: list[DataType]) -> Any:
    if any(isinstance(value, Tensor) for value in values):
        return function(*(torch.as_tensor(v, dtype=torch_dtype(t)) for v, t in zip(values, dtypes, strict=True)))
    if function in (torch.fmin, torch.fmax) and all(isinstance(value, int) for value in values):
        return min(values) if function is torch.fmin else max(values)
    return function(*(torch.tensor(v, dtype=torch_dtype(t)) for v, t in zip(values, dtypes, strict=True))).item()
