"""Tables of what kernels are compiled to: of an outcome of compiling, and, side by side, of a file that holds some."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import compress, groupby
from pathlib import Path

import msgspec

from triton_vs_tilus.bench.diagnostics.ptx import GROUPS
from triton_vs_tilus.bench.diagnostics.resources import Built, compilers_of
from triton_vs_tilus.bench.rows.queries import RESULTS
from triton_vs_tilus.bench.show.tables import Table
from triton_vs_tilus.common.files import replace_text

FIGURES = ["threads", "registers", "shared", "spills", "stack", "trips"]
HEADER = ["kernel", "configuration", "from", "GPU kernel", *FIGURES, *GROUPS, "note"]
FOOT = (
    "Shared memory in bytes per block; spills, stack in bytes per thread; trips: global loads that wait for one "
    "another, by SASS; instructions as written in PTX, each loop once."
)


def tables(built: Sequence[Built]) -> Iterator[Table]:
    """A table for each problem and target, by the names of both."""

    def place(outcome: Built) -> tuple[str, str]:
        return outcome.task.problem.name, outcome.task.target

    for _, group in groupby(sorted(built, key=place), key=place):
        yield table(list(group))


def table(built: Sequence[Built]) -> Table:
    """One problem on one target: a line for each GPU kernel of each config; columns that are empty are left out."""
    problem, target = built[0].task.problem, built[0].task.target
    lines = []
    for outcome in built:
        task = outcome.task
        first = [task.kernel.full_name, str(task.config), task.origin]
        for gpu_kernel in outcome.gpu_kernels:
            figures = [str(getattr(gpu_kernel, name)) for name in FIGURES]
            counts = [_counts_text(gpu_kernel.instructions.get(group, {})) for group in GROUPS]
            lines.append([*first, gpu_kernel.name, *figures, *counts, gpu_kernel.over(target)])
            first = ["", "", ""]
        if why := outcome.error or outcome.skipped:
            lines.append([*first, *[""] * (len(HEADER) - len(first) - 1), why])
    used = [any(cells) for cells in zip(*lines, strict=True)]
    header, *lines = (list(compress(cells, used)) for cells in (HEADER, *lines))
    return Table(f"{problem.name}, {target}", header, lines, foot=FOOT)


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{counts[name]}" for name in sorted(counts))


@dataclass(frozen=True)
class Compiled:
    """A GPU kernel's figures, as in FIGURES, and its instructions: {group: {class: count}}. loops: under 'PTX' and
    'SASS' the lines of the loop that does most of its work, none where it has no loop."""

    name: str
    figures: dict[str, int]
    instructions: dict[str, dict[str, int]]
    loops: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Recorded:
    """A kernel at one config, as a file holds it. gpu_kernels: in the order of their launches."""

    kernel: str
    problem: str
    target: str
    config: str
    compiler: str
    gpu_kernels: tuple[Compiled, ...]


RECORDED = RESULTS / "resources.json"


def write(built: Sequence[Built], path: Path) -> None:
    """What compiled, as JSON."""
    records = []
    for outcome in built:
        task = outcome.task
        gpu_kernels = tuple(
            Compiled(
                gpu_kernel.name,
                {name: getattr(gpu_kernel, name) for name in FIGURES},
                {group: dict(sorted(counts.items())) for group, counts in sorted(gpu_kernel.instructions.items())},
                {"PTX": gpu_kernel.ptx_loop, "SASS": gpu_kernel.sass_loop},
            )
            for gpu_kernel in outcome.gpu_kernels
        )
        if gpu_kernels:
            compiler = compilers_of(task.kernel.language.compiler)[0]
            place = task.kernel.full_name, task.problem.name, task.target
            records.append(Recorded(*place, str(task.config), compiler, gpu_kernels))
    text = msgspec.json.format(msgspec.json.encode([asdict(record) for record in records]), indent=1)
    replace_text(path, f"{text.decode()}\n")


def read(path: Path = RECORDED) -> list[Recorded]:
    """Raises OSError, msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=list[Recorded])


def named(records: Sequence[Recorded], name: str) -> list[Recorded]:
    """Of this name, 'semaphore.fp32' (a pattern), in either language; Triton's first."""
    return sorted((one for one in records if fnmatchcase(one.kernel, f"*/{name}")), key=lambda one: one.kernel)[::-1]


def side_by_side(records: Sequence[Recorded], name: str) -> Table:
    """A column for each recorded kernel of this name, 'semaphore.fp32' (a pattern), in either language. Figures of
    several launches are joined by '+'. Raises ValueError where there is none."""
    chosen = named(records, name)
    if not chosen:
        raise ValueError(f"resources:{name}: {RECORDED.name} has no such kernel")
    lines = [["config", *(one.config for one in chosen)]]
    for figure in FIGURES:
        cells = [" + ".join(str(gpu_kernel.figures[figure]) for gpu_kernel in one.gpu_kernels) for one in chosen]
        lines.append([figure, *cells])
    for group in GROUPS:
        of_group = [[gpu_kernel.instructions.get(group, {}) for gpu_kernel in one.gpu_kernels] for one in chosen]
        cells = [" + ".join(filter(None, map(_counts_text, counts))) for counts in of_group]
        lines.append([group, *cells])
    lines = [line for line in lines if any(cell.strip("0 +") for cell in line[1:])]
    where = ", ".join(sorted({f"{one.problem}, {one.target}" for one in chosen}))
    compilers = ", ".join(sorted({one.compiler for one in chosen}))
    return Table(f"{where}", ["", *(one.kernel for one in chosen)], lines, foot=f"{FOOT} {compilers}.")
