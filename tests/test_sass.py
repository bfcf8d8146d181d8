"""Read off machine code: how many trips to memory loads take, one after the other, and the loop that works most."""

import pytest

from triton_vs_tilus.bench.diagnostics import loops
from triton_vs_tilus.bench.diagnostics.ptx import NOT_CODE
from triton_vs_tilus.bench.diagnostics.sass import Trips, functions, trips_of

ADDRESS = "        /*{at:04x}*/                   {instruction} ;      /* 0x0000000000007919 */"


def sass(*instructions: str, name: str = "kernel") -> str:
    """As cuobjdump prints a kernel."""
    lines = [ADDRESS.format(at=16 * place, instruction=each) for place, each in enumerate(instructions)]
    return "\n".join(["        code for sm_90a", f"                Function : {name}", *lines, ""])


FIRST = "LDG.E R4, desc[UR4][R2.64]"
SECOND = "LDG.E R5, desc[UR4][R2.64+0x10]"


@pytest.mark.parametrize(
    ("instructions", "trips", "loads"),
    [
        (["MOV R1, R2", "EXIT"], 0, 0),
        ([FIRST, SECOND, "FADD R6, R4, R5", "EXIT"], 1, 2),
        ([FIRST, "FADD R6, R6, R4", SECOND, "FADD R6, R6, R5", "EXIT"], 2, 2),
        (["@P0 " + FIRST, "@!P0 FADD R6, R6, R4", "@P1 " + SECOND, "FADD R6, R6, R5"], 2, 2),
        # an address that was loaded, in either of its two registers
        (["LDG.E.64 R2, desc[UR4][R8.64]", FIRST, "EXIT"], 2, 2),
        (["LDG.E R3, desc[UR4][R8.64]", FIRST, "EXIT"], 2, 2),
        (["LDG.E R9, desc[UR4][R8.64]", FIRST, "EXIT"], 1, 2),
        # the last of four registers, and the one behind them
        (["LDG.E.128 R4, desc[UR4][R2.64]", "FADD R9, R7, R9", "LDG.E R8, desc[UR4][R2.64]"], 2, 2),
        (["LDG.E.128 R4, desc[UR4][R2.64]", "FADD R9, R8, R9", "LDG.E R8, desc[UR4][R2.64]"], 1, 2),
        # stores wait for what they store, of all its registers
        (["LDG.E R7, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R10.64], R4", SECOND], 2, 2),
        (["LDG.E R7, desc[UR4][R2.64]", "STG.E.64 desc[UR4][R10.64], R4", SECOND], 1, 2),
        # a register is not written before its load has brought it
        ([FIRST, "MOV R4, R20", SECOND], 2, 2),
        # uniform registers are others
        (["LDG.E R4, desc[UR6][R2.64]", "IADD R9, R10, UR4", SECOND], 1, 2),
        # a barrier and a branch end what is straight: the longest counts
        ([FIRST, "FADD R6, R6, R4", SECOND, "BAR.SYNC.DEFER_BLOCKING 0x0", FIRST, "EXIT"], 2, 2),
        ([FIRST, "FADD R6, R6, R4", "@P0 BRA 0x40", SECOND, "EXIT"], 1, 1),
        # other memories
        (["LDS.128 R4, [R2]", "FADD R6, R6, R4", "LDS R5, [R2+0x10]"], 0, 0),
        (["LDGSTS.E.128 [R4], desc[UR4][R2.64]", "LDGDEPBAR", SECOND], 1, 1),
        # a copy to shared memory waits for its addresses, and for no register beside them
        (["LDG.E R7, desc[UR4][R2.64]", "LDGSTS.E.128 [R4], desc[UR4][R10.64]", SECOND], 1, 2),
        (["LDG.E R4, desc[UR4][R2.64]", "LDGSTS.E.128 [R4], desc[UR4][R10.64]", SECOND], 2, 2),
        (["LDG.E R11, desc[UR4][R2.64]", "LDGSTS.E.128 [R4], desc[UR4][R10.64]", SECOND], 2, 2),
        # so does a spill, which waits for all that it stores
        (["LDG.E R7, desc[UR4][R2.64]", "STL.128 [R1], R4", SECOND], 2, 2),
        (["LDG.E R7, desc[UR4][R2.64]", "STL.64 [R1], R4", SECOND], 1, 2),
        (["LDG.E R7, desc[UR4][R2.64]", "STL.128 [R6], R10", SECOND], 1, 2),
        (["LDG.E R12, desc[UR4][R2.64]", "STG.E.128 desc[UR4][R10.64], R4", SECOND], 1, 2),
    ],
)
def test_a_load_behind_a_use_of_another_takes_a_trip_of_its_own(instructions, trips, loads):
    assert trips_of(functions(sass(*instructions))["kernel"]) == Trips(trips, loads)


def test_each_kernel_of_a_cubin_has_its_own():
    two = sass(FIRST, "EXIT", name="one") + sass(FIRST, "FADD R6, R6, R4", SECOND, "EXIT", name="other")
    assert {name: trips_of(text) for name, text in functions(two).items()} == {"one": Trips(1, 1), "other": Trips(2, 2)}


SPIN = ["LDS R1, [R2]", "@P0 BRA 0x0000"]


@pytest.mark.parametrize(
    ("instructions", "loop"),
    [
        (["MOV R1, R2", "HMMA.16816.F32 R4, R8, R12, R4", "@!P0 BRA 0x10", "EXIT"], (1, 2)),
        # of loops in a loop the inner one of more products, whatever stands between, and of memory where there are none
        (["MOV R1, R2", "FFMA R4, R8, R12, R4", "@P1 BRA 0x10", "@P2 BRA 0x0", "EXIT"], (1, 2)),
        ([*SPIN, "FFMA R4, R5, R6, R4", "FFMA R4, R5, R6, R4", "BRA 0x20", "FFMA R4, R5, R6, R4", "BRA 0x50"], (2, 4)),
        (["FFMA", "BRA 0x0", *["FFMA", "FFMA", "BRA 0x20"], "FFMA", "FFMA", "FFMA", "@P1 BRA 0x0", "EXIT"], (2, 4)),
        ([*SPIN, "EXIT"], (0, 1)),
        # forwards is no loop, nor is what ends a kernel
        (["FFMA R4, R5, R6, R4", "@P0 BRA 0x20", "EXIT"], None),
        (["MOV R1, R2", "EXIT", "BRA 0x20"], None),
    ],
)
def test_the_loop_of_most_products_is_cut_out(instructions, loop):
    lines = tuple(f"{16 * place:04x} {each}" for place, each in enumerate(instructions))
    wanted = () if loop is None else lines[loop[0] : loop[1] + 1]
    assert loops.of_sass(functions(sass(*instructions))["kernel"]) == wanted


def test_the_loop_of_ptx_is_without_what_nobody_reads():
    text = """
    .reg .b32 %r<9>;
    ld.param.u64 %rd1, [in];
$L__BB0_1:
    .loc 1 20 3
    // begin inline asm
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2};  // acc
    @%p1 bra $L__BB0_1;
    ret;
    """
    product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2};"
    assert loops.of_ptx(NOT_CODE.sub("", text)) == ("$L__BB0_1:", product, "@%p1 bra $L__BB0_1;")
