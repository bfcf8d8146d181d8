"""Machine code of GPU kernels: how many trips to memory loads take where they could take one.

A warp issues its instructions in order, and waits at the first that needs what a load has not brought yet. Loads that
stand before all uses make one trip together; a load behind a use makes another one. ptxas decides the order, by the
registers that it grants: PTX does not show it.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FUNCTION = re.compile(r"^\s*Function : (\S+)", re.MULTILINE)
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P(?:\d+|T) )?([A-Z][\w.]*)([^;]*);", re.MULTILINE)
REGISTER = re.compile(r"\bR(\d+)(\.64\b)?")
ENDS = {"BRA", "BRX", "BSYNC", "CALL", "EXIT", "RET", "BAR", "WARPSYNC"}  # of straight code
ADDRESS = re.compile(r"\[[^\]]*\]")
NO_RESULT = {"ST", "STG", "STL", "STS", "LDGSTS", "RED", "REDG", "REDS", "ATOMS"}


@dataclass(frozen=True)
class Trips:
    """The longest way of a kernel's straight code through its loads from global memory: trips one after the other, and
    how many loads take part."""

    trips: int
    loads: int


def disassembled(cubin: Path) -> str:
    """The SASS of a cubin, by the cuobjdump that comes with Triton. Raises RuntimeError where there is none."""
    from triton import knobs

    command = [knobs.nvidia.cuobjdump.path, "-sass", str(cubin)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def functions(sass: str) -> dict[str, str]:
    """The text of each function, by its name in SASS."""
    _, *parts = FUNCTION.split(sass)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def trips_of(function: str) -> Trips:
    return max(_straight(function), key=lambda found: (found.trips, found.loads))


def _straight(text: str) -> Iterator[Trips]:
    """Of each piece of straight code. A load takes one trip, all else no time; addresses count as uses."""
    now, loads = 0, 0
    arrives: dict[int, int] = {}  # by register, after how many trips
    for opcode, operands in INSTRUCTION.findall(text):
        kind, *modifiers = opcode.split(".")
        if kind in ENDS:
            yield Trips(max([now, *arrives.values()]), loads)
            now, loads = 0, 0
            arrives.clear()
            continue
        named = [(int(number), 2 if pair else 1) for number, pair in REGISTER.findall(operands)]
        width = 4 if "128" in modifiers else 2 if "64" in modifiers or "WIDE" in modifiers else 1
        if kind in NO_RESULT:  # what is stored is as wide as the store, its address is not
            stored = REGISTER.findall(ADDRESS.sub("", operands))
            named += [(int(number), width) for number, _ in stored]
            result, needed = [], [one for first, wide in named for one in range(first, first + wide)]
        else:
            result = [first + more for first, _ in named[:1] for more in range(width)]
            needed = [one for first, wide in named[1:] for one in range(first, first + wide)] + result
        now = max([now, *(arrives.pop(one, 0) for one in needed)])
        if kind == "LDG":
            arrives |= dict.fromkeys(result, now + 1)
            loads += 1
    yield Trips(max([now, *arrives.values()]), loads)
