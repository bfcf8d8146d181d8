"""What tilus 0.2.0 makes of casts to 16 bits (notes/tilus_compiler.md, 25); cuda_source.py finds none in kernels."""

import re

import pytest
import tilus
import torch
from cuda_source import source_of
from tilus import bfloat16, float8_e4m3, float16, int4b, int8

NUMBERS = 256


class Cast(tilus.Script):
    """Stores the tile cast, then the tile itself."""

    def __init__(self, source, target):
        super().__init__()
        self.source, self.target = source, target

    def __call__(self, x_ptr: tilus.void_p, cast_ptr: tilus.void_p, kept_ptr: tilus.void_p):
        self.attrs.blocks, self.attrs.warps = 1, 1
        gx = self.global_view(x_ptr, dtype=self.source, shape=[NUMBERS])
        x = self.load_global(gx, offsets=[0], shape=[NUMBERS])
        self.store_global(
            self.global_view(cast_ptr, dtype=self.target, shape=[NUMBERS]), self.cast(x, dtype=self.target), offsets=[0]
        )
        self.store_global(self.global_view(kept_ptr, dtype=self.source, shape=[NUMBERS]), x, offsets=[0])


def source_of_cast(source, target, folder) -> str:
    anything = torch.zeros(2 * NUMBERS, dtype=torch.uint8)
    return source_of(Cast(source, target), anything, anything, anything, folder=folder)


@pytest.mark.parametrize(("source", "sign_bits"), [(int8, 0x80808080), (int4b, 0x88888888)], ids=str)
def test_a_cast_flips_the_signs_of_its_source(source, sign_bits, tmp_path):
    """In the registers that are stored after the cast."""
    text = source_of_cast(source, float16, tmp_path)
    before, after = re.split(rf"src_uint32\[\w+\] = \(src_uint32\[\w+\] \^ uint32_t\({sign_bits}u\)\);", text)
    (cast,) = re.findall(r"src_uint32 = \(\(uint32_t\*\)\((\w+)\)\);", before)
    assert cast == "regs" or f"{cast} = ((uint8_t*)(regs));" in before
    assert "*)(regs))" in after or "&regs[" in after  # stored


@pytest.mark.parametrize(("target", "nan", "power"), [(float16, 0x3F80, 0x5C00), (bfloat16, 0x07F0, 0x7B80)], ids=str)
def test_nan_of_8_bits_becomes_480(target, nan, power, tmp_path):
    """It moves the 7 bits of a NaN, all 1, to where they are 1.875 times a power of 2, and multiplies by another."""
    text = source_of_cast(float8_e4m3, target, tmp_path)
    (shift,) = set(re.findall(r"\(a >> (\d+)\)", text))
    (mask,) = set(re.findall(r'"n"\(uint32_t\((\d+)u\)\)', text))
    assert (0x7F00 >> int(shift)) & int(mask) == nan and f", a, uint32_t({power << 16 | power}u)" in text
    dtype = torch.float16 if target is float16 else torch.bfloat16
    product = torch.tensor([nan, power], dtype=torch.int16).view(dtype).prod()
    assert product == 480
