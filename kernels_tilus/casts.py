"""A cast that tilus 0.2.0 leaves to its generic path: from four-bit integers to bfloat16, eight elements at a time.

The generic path unpacks, converts and rounds element by element. As tilus does it for float16: a nibble put into the
mantissa of 128 is 128 more than it, and a packed multiply-add takes the 128 away. bfloat16 has seven bits of mantissa,
so that unlike in float16 each pair of nibbles has to be shifted to the lowest bits first.

Imported for its effect: the emitter that it registers, of compute capability 8.0 and later, is the more specific one.
"""

from tilus.backends.emitter import register_emitter
from tilus.backends.emitters.cast import NvgpuCastInstEmitter
from tilus.hidet.ir.dtypes import bfloat16, int4b, uint4b, uint32
from tilus.hidet.ir.expr import Expr, Var, cast, tensor_pointer_var
from tilus.hidet.ir.primitives.cuda.lop3 import lop3
from tilus.hidet.ir.primitives.cuda.prmt import prmt
from tilus.hidet.ir.primitives.func import call_primitive_func, register_primitive_function
from tilus.hidet.lang import asm, attrs, script
from tilus.hidet.lang import cast as pointer_cast
from tilus.hidet.lang.types import void_p
from tilus.ir.instructions import CastInst
from tilus.target import nvgpu_sm80

PAIR_128 = 0x43004300  # two bfloat16
PAIR_MINUS_128 = 0xC300C300
PAIR_MINUS_136 = 0xC308C308
PAIR_ONE = 0x3F803F80


@script
def _fma_bf16x2(d: void_p, a: uint32, b: uint32, c: uint32):
    attrs.func_kind = "cuda_internal"
    attrs.func_name = "fma_bf16x2"
    asm("fma.rn.bf16x2 %0, %1, %2, %3;", outputs=[pointer_cast(d, ~uint32)[0]], inputs=[a, b, c], is_volatile=True)


register_primitive_function(name=_fma_bf16x2.name, func_or_type=_fma_bf16x2)


@register_emitter(CastInst, target=nvgpu_sm80)
class CastEmitter(NvgpuCastInstEmitter):
    def __init__(self, codegen):
        super().__init__(codegen)
        self.specialized_cast[uint4b, bfloat16] = self.cast_u4_to_bf16
        self.specialized_cast[int4b, bfloat16] = self.cast_i4_to_bf16

    def cast_u4_to_bf16(self, src: Var, dst: Var) -> None:
        self._cast_to_bf16(src, dst, flip=0, minus_offset=PAIR_MINUS_128)

    def cast_i4_to_bf16(self, src: Var, dst: Var) -> None:
        """With its sign bit flipped, an int4 is 8 more than it."""
        self._cast_to_bf16(src, dst, flip=0x88888888, minus_offset=PAIR_MINUS_136)

    def _cast_to_bf16(self, src: Var, dst: Var, flip: int, minus_offset: int) -> None:
        if self.size % 8:
            self.cast_generic(src, dst)
            return
        words = self._as_words(src, "words", self.size // 8)
        pairs = self._as_words(dst, "pairs", self.size // 2)
        with self.for_range(extent=self.size // 8) as i:
            word = self.declare_var("word", uint32, init=words[i] ^ uint32(flip))
            by_nibble = []  # nibble, in the low half, and nibble + 4
            for nibble in range(4):
                pair = self.declare_var("pair", uint32)
                self.append(
                    lop3(
                        ~pair, word >> (4 * nibble), uint32(0x000F000F), uint32(PAIR_128), imm_lut=(0xF0 & 0xCC) | 0xAA
                    )
                )
                arguments = [~pair, pair, uint32(PAIR_ONE), uint32(minus_offset)]
                self.append(call_primitive_func("fma_bf16x2", args=arguments))
                by_nibble.append(pair)
            for half, selector in enumerate((0x5410, 0x7632)):  # of the low halves, of the high halves
                for first in (0, 2):
                    at = ~pairs[i * 4 + 2 * half + first // 2]
                    self.append(prmt(d=at, a=by_nibble[first], b=by_nibble[first + 1], c=uint32(selector)))

    def _as_words(self, elements: Expr, hint: str, count: int) -> Var:
        pointer = tensor_pointer_var(hint, shape=[count], dtype="uint32")
        return self.declare(pointer, init=cast(elements, ~uint32))
