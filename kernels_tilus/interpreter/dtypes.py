"""What tiles and memory hold of each tilus type, as torch has it.

A tile holds values: integers of less than a byte in a byte each, floats of less than a byte in fp32, unsigned integers
that torch hardly computes with in the next wider signed type. Memory holds bits, packed as on the GPU.
"""

from dataclasses import dataclass
from functools import cache

import torch
from tilus.hidet.ir.dtypes.floats_subbyte import FloatSubbyteType
from tilus.hidet.ir.type import DataType, data_type
from torch import Tensor

from triton_vs_tilus.kernels_tilus.interpreter.errors import Unsupported

# By tilus' name: the dtype of a tile, and of memory.
WHOLE_BYTES = {
    "float16": (torch.float16, torch.float16),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float32": (torch.float32, torch.float32),
    "tfloat32": (torch.float32, torch.float32),
    "float64": (torch.float64, torch.float64),
    "float8_e4m3": (torch.float8_e4m3fn, torch.float8_e4m3fn),
    "float8_e5m2": (torch.float8_e5m2, torch.float8_e5m2),
    "int8": (torch.int8, torch.int8),
    "int16": (torch.int16, torch.int16),
    "int32": (torch.int32, torch.int32),
    "int64": (torch.int64, torch.int64),
    "uint8": (torch.uint8, torch.uint8),
    "uint16": (torch.int32, torch.int16),
    "uint32": (torch.int64, torch.int32),
    "bool": (torch.bool, torch.bool),
}
# The torch dtypes of an argument that a pointer to the type takes, besides the one of memory.
_ARGUMENTS = {"uint16": torch.uint16, "uint32": torch.uint32}
_SATURATING = (torch.float8_e4m3fn, torch.float8_e5m2)


@dataclass(frozen=True)
class Form:
    """How a type is held.

    tile    torch dtype of a tile
    stored  torch dtype of memory; None where elements are no whole bytes
    nbits   of an element in memory
    mask    of an unsigned integer that a tile holds in a wider type, all ones; else 0
    codes   of a float of less than a byte: the values of its codes from 0 on, without the sign's bit, ascending
    fraction, bias  of such a float: bits of its fraction, and what its exponents count from
    signed  of an integer of less than a byte
    """

    name: str
    tile: torch.dtype
    stored: torch.dtype | None
    nbits: int
    mask: int = 0
    codes: Tensor | None = None
    fraction: int = 0
    bias: int = 0
    signed: bool = False

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether a tensor of this dtype is memory that holds the type."""
        if self.stored is None:
            return dtype is torch.uint8
        return dtype is _ARGUMENTS.get(self.name, self.stored)

    def wrapped(self, tile: Tensor) -> Tensor:
        """The tile with each value brought into the type's range, as C does for unsigned integers."""
        return tile & self.mask if self.mask else tile

    def from_memory(self, stored: Tensor) -> Tensor:
        """A tile of what typed memory holds; a copy."""
        return stored.to(self.tile) & self.mask if self.mask else stored.clone()

    def to_memory(self, tile: Tensor) -> Tensor:
        return tile.to(self.stored)

    def bits(self, tile: Tensor) -> Tensor:
        """int64: the bits of each value of less than a byte, as an unsigned number."""
        if self.codes is None:
            return tile.to(torch.int64) & ((1 << self.nbits) - 1)
        code = torch.searchsorted(self.codes, tile.abs().contiguous().float())
        return code | (torch.signbit(tile).to(torch.int64) << (self.nbits - 1))

    def values(self, bits: Tensor) -> Tensor:
        """The inverse of `bits`."""
        top = 1 << (self.nbits - 1)
        if self.codes is None:
            return ((bits ^ top) - top).to(self.tile) if self.signed else bits.to(self.tile)
        magnitude = self.codes[bits & (top - 1)]
        return torch.where(bits >= top, -magnitude, magnitude)

    def rounded(self, values: Tensor) -> Tensor:
        """fp32 values as tilus casts them to a float of less than a byte: to its bits of fraction, ties to even, and
        then cut off, not rounded, where it has fewer, below its smallest normal number. What is too large saturates."""
        raw = values.float().contiguous().view(torch.int32).to(torch.int64)
        exponent, significand = raw >> 23 & 0xFF, raw & 0x7FFFFF | 0x800000
        cut = 23 - self.fraction
        half, rest, odd = significand >> cut - 1 & 1, significand & (1 << cut - 1) - 1, significand >> cut & 1
        significand = (significand >> cut) + (half & ((rest != 0) | odd))
        carry = significand >> self.fraction + 1
        exponent, significand = exponent + carry + self.bias - 127, significand >> carry
        top = (1 << self.nbits - 1) - 1
        normal = (exponent << self.fraction) + significand - (1 << self.fraction)
        code = torch.where(exponent > 0, normal.clamp(max=top), significand >> (1 - exponent).clamp(0, 62))
        return torch.copysign(self.codes[code], values.float())


@cache
def form(dtype: DataType) -> Form:
    """Raises Unsupported for types that neither torch nor this module computes with."""
    if dtype.name in WHOLE_BYTES:
        tile, stored = WHOLE_BYTES[dtype.name]
        bits = dtype.nbytes * 8
        return Form(dtype.name, tile, stored, bits, (1 << bits) - 1 if dtype.name in _ARGUMENTS else 0)
    if isinstance(dtype, FloatSubbyteType):
        codes = torch.arange(1 << (dtype.nbits - 1))
        exponent, fraction = codes >> dtype.mantissa_nbits, codes & ((1 << dtype.mantissa_nbits) - 1)
        bias, unit = (1 << (dtype.exponent_nbits - 1)) - 1, 2.0**-dtype.mantissa_nbits
        # Exponent 0 is that of the subnormals; no code stands for an infinity.
        values = (fraction * unit + (exponent > 0)) * 2.0 ** (exponent.clamp(min=1) - bias).float()
        return Form(
            dtype.name,
            torch.float32,
            None,
            dtype.nbits,
            codes=values.float(),
            fraction=dtype.mantissa_nbits,
            bias=bias,
        )
    if dtype.is_integer() and dtype.nbits < 8:
        signed = int(dtype.min_value) < 0
        return Form(dtype.name, torch.int8 if signed else torch.uint8, None, dtype.nbits, signed=signed)
    raise Unsupported(f"tiles of {dtype.name}")


def named(name: str) -> DataType:
    """tilus' type of this name."""
    return data_type(name)


def torch_dtype(dtype: DataType) -> torch.dtype:
    """The torch dtype of a tile. Raises Unsupported as `form` does."""
    return form(dtype).tile


def cast_tile(tile: Tensor, dtype: DataType) -> Tensor:
    """The tile in this type, as a GPU casts: floats round to nearest even, and saturate in eight bits; to an integer
    they are truncated, and saturate; integers wrap."""
    to = form(dtype)
    if to.codes is not None:
        return to.rounded(tile)
    if to.tile in _SATURATING:
        largest = torch.finfo(to.tile).max
        return (tile if tile.dtype.is_floating_point else tile.float()).clamp(-largest, largest).to(to.tile)
    if tile.dtype.is_floating_point and dtype.is_integer() and to.tile is not torch.bool:
        tile = _truncated(tile, to.nbits, signed=int(dtype.min_value) < 0)
    if to.stored is None:
        return to.values(to.bits(tile))
    return to.wrapped(tile.to(to.tile)) if to.mask else tile.to(to.tile)


def _truncated(tile: Tensor, nbits: int, signed: bool) -> Tensor:
    """int64: floats as integers of a type. What it does not hold saturates: that of fp32 and fp64 in no less than 32
    bits, of which a narrower type takes the lowest. NaN is 0, in 64 bits the least."""
    bits = max(nbits, 32) if tile.dtype in (torch.float32, torch.float64) else nbits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    values = tile.double()
    inside = values.nan_to_num(low if bits == 64 else 0).to(torch.int64)
    return torch.where(values >= high, high, torch.where(values <= low, low, inside))
