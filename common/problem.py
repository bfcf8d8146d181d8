"""A problem: sizes, dtypes, layout and epilogue, with its inputs from a seed and its float64 answer."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from common.epilogue import Epilogue

SHORT_DTYPE = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}
DTYPES = {short: dtype for dtype, short in SHORT_DTYPE.items()}


class Layout(str, Enum):
    """How the weight stands in memory. Either way it is handed over as a [K, N] view, without a copy."""

    KN = "kn"  # [K, N] row-major: N is contiguous
    NK = "nk"  # [N, K] row-major, as nn.Linear stores it: K is contiguous


class Inputs(NamedTuple):
    """a [M, K] row-major, b [K, N] in the problem's layout, bias [N] or None; all of the problem's dtype."""

    a: Tensor
    b: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Matmul:
    """C[M, N] = epilogue(A[M, K] @ B[K, N]), the sum over K in fp32.

    dtype is that of A, B and bias; out_dtype, that of C, is dtype unless given.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.bfloat16
    out_dtype: torch.dtype | None = None
    layout: Layout = Layout.KN
    epilogue: Epilogue = Epilogue.NONE

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

    def reference(self, inputs: Inputs) -> Tensor:
        """The answer in float64, unrounded, on the inputs' device. [M, N]."""
        bias = None if inputs.bias is None else inputs.bias.double()
        return self.epilogue.apply(inputs.a.double() @ inputs.b.double(), bias)

    def torch_answer(self, inputs: Inputs) -> Tensor:
        """torch.mm and the epilogue in torch, all in out_dtype: whose error is the measure of every kernel's."""
        product = torch.mm(inputs.a.to(self.out_dtype), inputs.b.to(self.out_dtype))
        return self.epilogue.apply(product, inputs.bias)
