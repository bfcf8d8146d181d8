"""Weights of 4 bits: round-to-nearest quantization by groups of K, and GPTQ's packing of the result.

    weight[k, n] = scales[k // g, n] * (q[k, n] - zeros[k // g, n])          q 0 to 15, zeros 1 to 16

GPTQ packs 8 consecutive q of a column into an int32: q[8 r + i, n] starts at bit 4 i of qweight[r, n]. The zero points
of 8 neighbouring columns, minus 1, are packed likewise: zeros[g, 8 c + j] - 1 starts at bit 4 j of qzeros[g, c].

Source: GPTQ (arXiv 2210.17323) and the format of its implementations (AutoGPTQ, vLLM, the kernels of arXiv 2402.00025).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "DTYPES",
    "PACKED",
    "SYMMETRIC_ZERO",
    "GPTQWeight",
    "pack_rows",
    "pack_zeros",
    "quantize",
    "unpack_rows",
    "unpack_zeros",
]

PACKED = 8  # values in an int32
SYMMETRIC_ZERO = 8
DTYPES = (torch.float16, torch.bfloat16)  # of scales


@dataclass(frozen=True, eq=False)
class GPTQWeight:
    """A [K, N] weight as GPTQ stores it.

    qweight  int32 [K / 8, N], contiguous
    scales   fp16 or bf16 [K / g, N], contiguous; g is the group size
    qzeros   int32 [K / g, N / 8], contiguous; None for symmetric quantization, whose zero points are all 8
    """

    qweight: Tensor
    scales: Tensor
    qzeros: Tensor | None

    @property
    def k(self) -> int:
        return self.qweight.shape[0] * PACKED

    @property
    def n(self) -> int:
        return self.qweight.shape[1]

    @property
    def group_size(self) -> int:
        return self.k // self.scales.shape[0]

    @property
    def symmetric(self) -> bool:
        return self.qzeros is None

    def zeros(self) -> Tensor:
        """The zero points, int32 [K / g, N]."""
        if self.qzeros is None:
            return torch.full(self.scales.shape, SYMMETRIC_ZERO, dtype=torch.int32, device=self.scales.device)
        return unpack_zeros(self.qzeros)

    def dequantized(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The weight [K, N]: exact in float64 and float32, rounded once in a shorter dtype."""
        wide = torch.float64 if dtype is torch.float64 else torch.float32  # 11 bits of scale times 5
        g = self.group_size
        offset = unpack_rows(self.qweight).view(-1, g, self.n) - self.zeros()[:, None, :]
        return (offset.to(wide) * self.scales.to(wide)[:, None, :]).to(dtype).view(self.k, self.n)


def quantize(
    weight: Tensor, group_size: int, *, symmetric: bool = False, dtype: torch.dtype = torch.float16
) -> GPTQWeight:
    """The nearest weight of 4 bits to a floating-point weight [K, N], by column and group of `group_size` rows.

    Asymmetric: the 16 values reach from the smallest to the largest weight of the group, and include 0.
    Symmetric: they reach from -8 to 7 scales; a scale is the largest magnitude / 7.5.
    No element moves by more than 0.5 scales, plus the rounding of the scale to `dtype`.

    A weight that learns is taken as it is now.

    Raises TypeError for a weight that is not floating-point, and for a dtype other than fp16 and bf16; ValueError for a
    weight that is not [K, N] with K a multiple of group_size and N of 8, on meta, or whose scales are beyond `dtype`
    (so where it is not finite), and for a group_size that is not a multiple of 8.
    """
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        found = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight has dtype {found}; accepted: a floating-point dtype")
    if dtype not in DTYPES:
        raise TypeError(f"dtype is {dtype}; accepted: {', '.join(map(str, DTYPES))}")
    if not isinstance(group_size, int) or group_size < 1 or group_size % PACKED:
        raise ValueError(f"group_size is {group_size}; accepted: multiples of {PACKED}")
    if weight.dim() != 2 or weight.shape[0] % group_size or weight.shape[1] % PACKED or 0 in weight.shape:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; accepted: (K, N), K a multiple of group_size, {group_size}, "
            f"N of {PACKED}"
        )
    if weight.is_meta:
        raise ValueError("weight is on meta; accepted: a device that holds numbers")
    k, n = weight.shape
    groups = weight.detach().float().view(k // group_size, group_size, n)
    if symmetric:
        scales = groups.abs().amax(dim=1) / 7.5
    else:
        low, high = groups.amin(dim=1).clamp(max=0.0), groups.amax(dim=1).clamp(min=0.0)
        # The format has no zero point 0. Where no weight is negative the zero point is 1, which leaves 14 steps.
        scales = torch.maximum((high - low) / 15, high / 14)
    largest = scales.max().item()  # NaN, where one is
    scales = scales.to(dtype)
    if not scales.isfinite().all():
        raise ValueError(f"weight has a scale of {largest:g}; accepted: finite ones, in {dtype} too")
    scales = torch.where(scales > 0, scales, 1.0)  # 0 where all of a group is smaller than dtype tells from it
    steps = scales.float()
    zeros = torch.full_like(steps, SYMMETRIC_ZERO) if symmetric else (-low / steps).round().clamp(1, 16)
    q = ((groups / steps[:, None, :]).round() + zeros[:, None, :]).clamp(0, 15).view(k, n)
    return GPTQWeight(pack_rows(q), scales, None if symmetric else pack_zeros(zeros))


def pack_rows(q: Tensor) -> Tensor:
    """GPTQ's qweight, int32 [K / 8, N], of q [K, N], values 0 to 15."""
    k, n = q.shape
    return _pack(q.view(k // PACKED, PACKED, n).transpose(1, 2))


def unpack_rows(qweight: Tensor) -> Tensor:
    """The q, int32 [K, N], that GPTQ's qweight, int32 [K / 8, N], holds."""
    return _unpack(qweight).transpose(1, 2).reshape(-1, qweight.shape[1])


def pack_zeros(zeros: Tensor) -> Tensor:
    """GPTQ's qzeros, int32 [groups, N / 8], of zero points [groups, N], values 1 to 16."""
    groups, n = zeros.shape
    return _pack(zeros.view(groups, n // PACKED, PACKED) - 1)


def unpack_zeros(qzeros: Tensor) -> Tensor:
    """The zero points, int32 [groups, N], that GPTQ's qzeros, int32 [groups, N / 8], holds."""
    return _unpack(qzeros).reshape(qzeros.shape[0], -1) + 1


def _pack(nibbles: Tensor) -> Tensor:
    """int32 [...] of nibbles [..., 8], values 0 to 15, the first in the lowest bits."""
    shifted = nibbles.to(torch.int32) << _shifts(nibbles)
    return shifted.sum(dim=-1, dtype=torch.int32).contiguous()


def _unpack(words: Tensor) -> Tensor:
    """The inverse of `_pack`: int32 [..., 8]."""
    return (words[..., None] >> _shifts(words)) & 0xF


def _shifts(like: Tensor) -> Tensor:
    return torch.arange(0, 4 * PACKED, 4, dtype=torch.int32, device=like.device)
