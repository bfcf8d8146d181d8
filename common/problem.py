"""A problem: sizes, dtypes, layout and epilogue, with its inputs from a seed and its exact answer."""

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_type_hints

import torch
from torch import Tensor

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.tensors import named_tensors

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on; this project runs on 3.10

__all__ = ["DTYPES", "SHORT_DTYPE", "Inputs", "Layout", "Matmul", "Problem", "short_dtype"]

SHORT_DTYPE = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
DTYPES = {short: dtype for dtype, short in SHORT_DTYPE.items()}


class Layout(str, Enum):
    """How the weight stands in memory. Either way it is handed over as a [K, N] view, without a copy."""

    KN = "kn"  # [K, N] row-major: N is contiguous
    NK = "nk"  # [N, K] row-major, as nn.Linear stores it: K is contiguous


@dataclass(frozen=True)
class Problem(ABC):
    """What the benchmark asks of a problem of any operation. Each is a frozen dataclass of sizes, dtypes and choices.

    op            the operation; the kernels that solve it say the same
    not_tuned_for fields that do not change which config is best by enough to search for
    laid_out      inputs that a kernel may lay out anew ahead of its calls, and that stay as they are while it is timed
    run_time      sizes that a kernel takes as it runs: what is compiled does not depend on them, but for their
                  divisibility
    """

    op: ClassVar[str]
    not_tuned_for: ClassVar[frozenset[str]] = frozenset()
    laid_out: ClassVar[frozenset[str]] = frozenset()
    run_time: ClassVar[frozenset[str]] = frozenset(("m", "n", "k"))

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """Of the inputs."""

    @property
    @abstractmethod
    def out_dtype(self) -> torch.dtype: ...

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique among problems of all operations."""

    @property
    @abstractmethod
    def out_shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def flops(self) -> int:
        """The operations on elements that it takes."""

    @property
    @abstractmethod
    def least_bytes(self) -> int:
        """Every input read once and the output written once."""

    @abstractmethod
    def inputs(self, device: torch.device | str, seed: int = 0) -> Any:
        """Tensors in named tuples and dataclasses, the same numbers on every device."""

    @abstractmethod
    def arguments(self, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What a launcher is called with, beside `out` and `config`: positional, and by keyword."""

    @abstractmethod
    def reference(self, inputs: Any) -> Tensor:
        """The answer: exact for integers, else in float64, unrounded."""

    @abstractmethod
    def torch_answer(self, inputs: Any) -> Tensor:
        """torch's own answer in out_dtype, whose error is the measure of every kernel's."""

    def operands(self, inputs: Any) -> list[Tensor]:
        """What no kernel can do without reading: all of the inputs."""
        return [tensor for _, tensor in named_tensors(inputs)]

    def reordering(self, inputs: Any) -> float:
        """What another order of the fp32 sums may move an element of the answer by, where that is not hidden by its
        rounding."""
        return 0.0

    @property
    def fields(self) -> dict[str, Any]:
        """By name, as JSON values: dtypes and choices by their short names."""
        return {field.name: _json_value(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @classmethod
    def from_fields(cls, values: dict[str, Any]) -> "Self":
        """The problem whose `fields` these are; what they lack is as by default, what else they hold is ignored."""
        types = get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls) if field.name in values]
        return cls(**{name: _from_json(types[name], values[name]) for name in names})

    @property
    def key(self) -> dict[str, Any]:
        """The fields by which a tuned table tells problems apart, except for a library's kernel (tuned.key_of)."""
        return {name: value for name, value in self.fields.items() if name not in self.not_tuned_for}

    @property
    def compiled_for(self) -> tuple[Any, ...]:
        """What a kernel is compiled for, beside its config."""
        return self.op, *(value for name, value in self.fields.items() if name not in self.run_time)


def short_dtype(dtype: torch.dtype) -> str:
    """'bf16', 'int64': as names and tables have it."""
    return SHORT_DTYPE.get(dtype) or str(dtype).removeprefix("torch.")


def _json_value(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return short_dtype(value)
    return value.value if isinstance(value, Enum) else value


def _from_json(kind: Any, value: Any) -> Any:
    if kind in (torch.dtype, torch.dtype | None):
        return DTYPES.get(value) or getattr(torch, value)
    return kind(value) if isinstance(kind, type) and issubclass(kind, Enum) else value


class Inputs(NamedTuple):
    """a [M, K] row-major, b [K, N] in the problem's layout, bias [N] or None; all of the problem's dtype."""

    a: Tensor
    b: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Matmul(Problem):
    """C[M, N] = epilogue(A[M, K] @ B[K, N]), the sum over K in fp32.

    dtype is that of A, B and bias; out_dtype, that of C, is dtype unless given.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype = None  # type: ignore[assignment]  # dtype, from __post_init__ on
    layout: Layout = Layout.KN
    epilogue: Epilogue = Epilogue.NONE

    op: ClassVar[str] = "matmul"
    not_tuned_for: ClassVar[frozenset[str]] = frozenset(("out_dtype", "epilogue"))

    def __post_init__(self) -> None:
        if self.out_dtype is None:
            object.__setattr__(self, "out_dtype", self.dtype)

    @property
    def name(self) -> str:
        """Unique among problems, e.g. '64x256x7168-bf16-nk' or '16x16x8192-fp16-kn-relu-fp32out'."""
        parts = [f"{self.m}x{self.n}x{self.k}", SHORT_DTYPE[self.dtype], self.layout.value]
        if self.epilogue is not Epilogue.NONE:
            parts.append(self.epilogue.value)
        if self.out_dtype is not self.dtype:
            parts.append(f"{SHORT_DTYPE[self.out_dtype]}out")
        return "-".join(parts)

    @property
    def key(self) -> dict[str, Any]:
        """What is searched in one half precision holds in the other: the same bytes, the same tensor cores."""
        return {**super().key, "dtype": SHORT_DTYPE[torch.bfloat16 if self.dtype is torch.float16 else self.dtype]}

    @property
    def out_shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def flops(self) -> int:
        """Multiply-adds, counted as two; the epilogue is not counted."""
        return 2 * self.m * self.n * self.k

    @property
    def least_bytes(self) -> int:
        """Every input read once and the output written once."""
        inputs = self.m * self.k + self.k * self.n + (self.n if self.epilogue.has_bias else 0)
        return inputs * self.dtype.itemsize + self.m * self.n * self.out_dtype.itemsize

    def inputs(self, device: torch.device | str, seed: int = 0) -> Inputs:
        """Standard normal A and bias; B scaled by 1/sqrt(K), so that C is of order one at every K and an
        output of zeros is far from right. Drawn on the CPU: the same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        a = normal(self.m, self.k)
        if self.layout is Layout.KN:
            b = normal(self.k, self.n)
        else:
            b = normal(self.n, self.k).T
        bias = normal(self.n).to(device, self.dtype) if self.epilogue.has_bias else None
        # .to() keeps the strides of a transposed view.
        return Inputs(a.to(device, self.dtype), (b / self.k**0.5).to(device, self.dtype), bias)

    def arguments(self, inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        return (inputs.a, inputs.b), {"bias": inputs.bias, "epilogue": self.epilogue, "out_dtype": self.out_dtype}

    def reordering(self, inputs: Inputs) -> float:
        """sqrt(K) * 2^-24 * 5 * max(sqrt(A^2 @ B^2)): each of K additions rounds a sum that is at most as large as the
        largest elements of a normal C, 5 standard deviations, and these errors have random signs."""
        deviation = (inputs.a.double().square() @ inputs.b.double().square()).max().sqrt().item()
        return self.k**0.5 * 2.0**-24 * 5 * deviation

    def reference(self, inputs: Inputs) -> Tensor:
        """The answer in float64, unrounded, on the inputs' device. [M, N]."""
        bias = None if inputs.bias is None else inputs.bias.double()
        return self.epilogue.apply(inputs.a.double() @ inputs.b.double(), bias)

    def torch_answer(self, inputs: Inputs) -> Tensor:
        """torch.mm and the epilogue in torch, all in out_dtype: whose error is the measure of every kernel's."""
        product = torch.mm(inputs.a.to(self.out_dtype), inputs.b.to(self.out_dtype))
        return self.epilogue.apply(product, inputs.bias)
