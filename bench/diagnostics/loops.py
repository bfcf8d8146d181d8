"""The loop of a GPU kernel that does most of its work, cut out of its PTX or its SASS, to be read."""

import re
from collections.abc import Sequence

# What a loop is chosen by: products, else loads of memory.
PRODUCTS = re.compile(r"\b(?:(?:mma|wgmma|fma)\.\S|[HIQ]?G?MMA\b|[FH]FMA2?\b)")
LOADS = re.compile(r"\b(?:ld\.(?:global|shared)|LDGS?|LDS)\b")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+([^;]+?)\s*;", re.MULTILINE)
SASS_BRANCH = re.compile(r"\bBRA\b.*0x([0-9a-f]+)")
PTX_LABEL = re.compile(r"(\$\w+):")
PTX_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$\w+)")
PTX_UNREAD = re.compile(r"\s*(?:\.(?:reg|pragma)\b.*|[{}]?)")


def of_sass(function: str) -> tuple[str, ...]:
    """Each line an address in hex and an instruction. Empty where no loop has products or loads."""
    instructions = INSTRUCTION.findall(function)
    starts = {int(address, 16): place for place, (address, _) in enumerate(instructions)}
    targets = [
        starts.get(int(branch[1], 16)) if (branch := SASS_BRANCH.search(text)) else None for _, text in instructions
    ]
    return _busiest([f"{address} {' '.join(text.split())}" for address, text in instructions], targets)


def of_ptx(function: str) -> tuple[str, ...]:
    """Its lines without blank ones, of code without comments. Empty as of_sass."""
    lines = [" ".join(line.split()) for line in function.splitlines() if not PTX_UNREAD.fullmatch(line)]
    starts = {label[1]: place for place, line in enumerate(lines) if (label := PTX_LABEL.match(line))}
    targets = [starts.get(branch[1]) if (branch := PTX_BRANCH.search(line)) else None for line in lines]
    return _busiest(lines, targets)


def _busiest(lines: Sequence[str], targets: Sequence[int | None]) -> tuple[str, ...]:
    """Of the innermost loops that have products the one with most. targets: the place that each line branches to."""
    loops = [range(first, last + 1) for last, first in enumerate(targets) if first is not None and first <= last]
    for work in (PRODUCTS, LOADS):
        counts = {loop: sum(work.search(lines[place]) is not None for place in loop) for loop in loops}
        working = [loop for loop in counts if counts[loop]]
        innermost = [loop for loop in working if not any(_within(other, loop) for other in working)]
        if innermost:
            busiest = max(innermost, key=lambda loop: counts[loop])
            return tuple(lines[place] for place in busiest)
    return ()


def _within(loop: range, other: range) -> bool:
    return loop != other and other.start <= loop.start and loop.stop <= other.stop
