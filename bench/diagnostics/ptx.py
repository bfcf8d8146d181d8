"""Compiled GPU kernels, read from their PTX, SASS and what `ptxas -v` printed: resources, instructions by class."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from triton_vs_tilus.bench.diagnostics import loops
from triton_vs_tilus.bench.diagnostics.sass import functions, trips_of

# Bytes of a block, by target.
SHARED_LIMIT = {
    "sm_80": 163 * 1024,
    "sm_89": 99 * 1024,
    "sm_90a": 227 * 1024,
    "sm_100a": 227 * 1024,
    "sm_120a": 99 * 1024,
}
REGISTERS_OF_THREAD = 255
REGISTERS_OF_BLOCK = 65536  # allocated to threads in multiples of 8, on every target

GROUPS = ("tensor cores", "async copies", "global loads", "global stores", "atomics and order", "barriers")


@dataclass(frozen=True)
class GpuKernel:
    """One compiled GPU kernel.

    threads, static_shared, dynamic_shared   of a block; shared memory in bytes
    registers, spill_*, stack                of a thread; spills and stack in bytes
    trips                                    to memory, of global loads one after the other, see `sass`
    listing                                  (group, class) of its instructions in the order of the PTX, see `classify`
    ptx_loop, sass_loop                      the lines of the loop that does most of its work, see `loops`
    """

    name: str
    threads: int
    registers: int
    static_shared: int
    dynamic_shared: int
    spill_stores: int
    spill_loads: int
    stack: int
    trips: int
    listing: tuple[tuple[str, str], ...]
    ptx_loop: tuple[str, ...]
    sass_loop: tuple[str, ...]

    @property
    def instructions(self) -> dict[str, Counter[str]]:
        """{group: {class: how often it stands in the PTX}}; the body of a loop counts once."""
        counts: dict[str, Counter[str]] = {}
        for group, name in self.listing:
            counts.setdefault(group, Counter())[name] += 1
        return counts

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads

    def over(self, target: str) -> str:
        """Why a GPU of this target cannot launch it; empty where it can."""
        of_block = math.ceil(self.registers / 8) * 8 * self.threads
        reasons = (
            (self.shared > SHARED_LIMIT[target], f"{self.shared} bytes of shared memory, over {SHARED_LIMIT[target]}"),
            (self.registers > REGISTERS_OF_THREAD, f"{self.registers} registers, over {REGISTERS_OF_THREAD}"),
            (of_block > REGISTERS_OF_BLOCK, f"{of_block} registers in a block, over {REGISTERS_OF_BLOCK}"),
        )
        return "; ".join(reason for holds, reason in reasons if holds)


ENTRY_LOG = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<spill_stores>\d+) bytes spill stores, "
    r"(?P<spill_loads>\d+) bytes spill loads\s*\n"
    r"[^\n]*Used (?P<registers>\d+) registers(?:[^\n]*?(?P<static_shared>\d+) bytes smem)?",
    re.DOTALL,
)
FUNCTION = re.compile(r"^(?:\.\w+ )*\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)
THREADS = re.compile(r"^\s*\.(?:maxntid|reqntid)\s+([\d, ]+)", re.MULTILINE)


def read(ptx: str, log: str, sass: str, dynamic_shared: dict[str, int]) -> Iterator[GpuKernel]:
    """The GPU kernels of a PTX text.

    log: what `ptxas -v` printed for it. sass: what it made. dynamic_shared: bytes of each launch, by a part of the
    kernel's name in PTX.
    """
    machine_code = functions(sass)
    logged = {match["name"]: match for match in ENTRY_LOG.finditer(log)}
    starts = [*FUNCTION.finditer(ptx)]
    ends = [match.start() for match in starts[1:]] + [len(ptx)]
    for match, end in zip(starts, ends, strict=True):
        kind, entry = match.groups()
        if kind != "entry":
            continue
        text = ptx[match.end() : end]
        name = max((name for name in dynamic_shared if name in entry), key=len)
        figures = {key: int(value or 0) for key, value in logged[entry].groupdict().items() if key != "name"}
        if (block := THREADS.search(text)) is None:
            raise ValueError(f"{entry} has no .maxntid and no .reqntid")
        threads = math.prod(int(size) for size in block[1].split(","))
        figures |= {"dynamic_shared": dynamic_shared[name], "trips": trips_of(machine_code[entry]).trips}
        yield GpuKernel(
            name,
            threads,
            listing=tuple(listing(text)),
            ptx_loop=loops.of_ptx(NOT_CODE.sub("", text)),
            sass_loop=loops.of_sass(machine_code[entry]),
            **figures,
        )


# A statement of PTX or of inline assembly: braces, labels and a predicate, then the opcode and its operands.
STATEMENT = re.compile(r"(?:[\s{}]|[$\w]+:(?!:))*(?:@!?%?[$\w]+\s+)?([a-z][\w.:]*)(.*)", re.DOTALL)
NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file|section)\b[^\n]*", re.DOTALL | re.MULTILINE)


def listing(text: str) -> Iterator[tuple[str, str]]:
    """(group, class) of the instructions of a PTX function that `classify` knows, in their order."""
    for statement in NOT_CODE.sub("", text).split(";"):
        if (match := STATEMENT.fullmatch(statement)) and (found := classify(match[1], match[2])):
            yield found


SPACES = ("global", "shared", "local", "param", "const")
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")


def classify(opcode: str, operands: str) -> tuple[str, str] | None:
    """(group, class) of a PTX instruction; None for one that is not counted.

    >>> classify("ld.global.nc.v4.b32", "{%r1, %r2, %r3, %r4}, [%rd1]")
    ('global loads', '16 B')
    """
    parts = opcode.split(".")
    space = next((part.partition("::")[0] for part in parts if part.partition("::")[0] in SPACES), "generic")
    order = next((part for part in parts if part in ORDERS), None)
    scope = next((part for part in parts if part in SCOPES), None)
    if parts[0] == "mma" or opcode.startswith("wgmma.mma_async"):
        return "tensor cores", ".".join(parts[:2])
    if parts[0] == "cp":
        return _classify_copy(parts, operands)
    if parts[:2] == ["st", "async"]:
        return "async copies", f"st.async {_access_bytes(parts)} B"
    if parts[0] in ("ld", "st") and space in ("global", "generic"):
        if order:
            return "atomics and order", ".".join(filter(None, (parts[0], order, scope)))
        group = "global loads" if parts[0] == "ld" else "global stores"
        size = f"{_access_bytes(parts)} B"
        return group, size if space == "global" else f"{size} generic"
    if parts[0] in ("atom", "red", "multimem"):
        operation = next(part for part in parts[1:] if part not in (*SPACES, *ORDERS, *SCOPES))
        where = None if space in ("global", "generic") else space
        return "atomics and order", ".".join(filter(None, (parts[0], where, order or "relaxed", scope, operation)))
    if parts[0] in ("fence", "membar", "griddepcontrol"):
        return "atomics and order", opcode
    if parts[0] in ("bar", "barrier", "mbarrier"):
        # bar.sync is barrier.cta.sync, and barrier.sync as well.
        name = opcode.replace("barrier.cta", "bar").replace("barrier.sync", "bar.sync")
        return "barriers", ".".join(name.split(".")[:2])
    return None


def _classify_copy(parts: list[str], operands: str) -> tuple[str, str] | None:
    """cp.async by its bytes; cp(.reduce).async.bulk(.tensor) by its direction; None for commit_group and wait_group."""
    if "bulk" in parts:
        spaces = [part.partition("::")[0] for part in parts if part.partition("::")[0] in ("global", "shared")]
        if len(spaces) < 2:
            return None
        unit = "tensor" if "tensor" in parts else "bulk"
        verb = "reduce" if "reduce" in parts else "load" if spaces[0] == "shared" else "store"
        return "async copies", f"{unit} {verb}"
    if parts[2] in ("ca", "cg"):
        return "async copies", f"cp.async {int(operands.split(',')[2], 0)} B"
    return None


def _access_bytes(parts: list[str]) -> int:
    vector = next((int(part[1:]) for part in parts if re.fullmatch(r"v\d", part)), 1)
    if (element := re.fullmatch(r"[a-z]+(\d+)(x2)?", parts[-1])) is None:
        raise ValueError(f"{'.'.join(parts)} has no type")
    bits, pair = element.groups()
    return vector * int(bits) * (2 if pair else 1) // 8
