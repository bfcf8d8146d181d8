"""What a document had Nsight Compute count, beside what it counts here of the same kernels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triton_vs_tilus.bench.diagnostics.metrics import rate, shared
from triton_vs_tilus.bench.rows.row import Launch
from triton_vs_tilus.bench.show.claims.beside import NOTHING
from triton_vs_tilus.bench.show.claims.claim import Source
from triton_vs_tilus.bench.show.claims.listed import W4A16
from triton_vs_tilus.bench.show.tables import Table


def _of(name: str, unit: float = 1) -> Callable[[Launch], float | None]:
    def value(launch: Launch) -> float | None:
        counted = launch.metrics.get(name)
        return None if counted is None else counted / unit

    return value


def _kilobytes(launch: Launch) -> float | None:
    block = shared(launch)
    return None if block is None else block / 1e3


@dataclass(frozen=True)
class Count:
    """A line of such a table. there: a figure a column, with the digits that it has there; value: the figure of a
    launch from here, in the unit of the name; form: how Python formats it."""

    name: str
    there: tuple[str, ...]
    value: Callable[[Launch], float | None]
    form: str


@dataclass(frozen=True)
class Counted:
    """A table of a document, of one call of each kernel of its columns. setup: what its figures are of."""

    source: Source
    title: str
    setup: str
    columns: tuple[str, ...]
    counts: tuple[Count, ...]


# By the name that markers of pages use.
COUNTED = {
    # Tables 7 and 8. Its shared memory is what an SM is set to have; here it is what a block takes.
    "w4a16": Counted(
        W4A16,
        "Tables 7 and 8, at 16 x 4096 x 4096",
        "GPU not named, its figures 11 and 12 are of an A100; fp16",
        ("SplitK", "data parallel"),
        (
            Count("time, us", ("27.90", "52.93"), _of("time_us"), ".2f"),
            Count("DRAM, GB/s", ("313", "161"), rate, ".0f"),
            Count("grid, blocks", ("512", "128"), _of("grid_blocks"), ".0f"),
            Count("registers per thread", ("92", "150"), _of("registers_per_thread"), ".0f"),
            Count("shared memory, KB", ("102.40", "167.94"), _kilobytes, ".2f"),
            Count("blocks per SM, by registers", ("5", "3"), _of("register_limit_blocks"), ".0f"),
            Count("blocks per SM, by shared memory", ("5", "2"), _of("shared_limit_blocks"), ".0f"),
            Count("achieved occupancy, %", ("27.75", "7.55"), _of("occupancy_pct"), ".2f"),
            Count("SM utilization, %", ("43.05", "20.75"), _of("sm_pct"), ".2f"),
            Count("active warps per scheduler", ("4.45", "1.21"), _of("active_warps"), ".2f"),
            Count("eligible warps per scheduler", ("0.67", "0.20"), _of("eligible_warps"), ".2f"),
            Count("issued warps per scheduler", ("0.43", "0.19"), _of("issue_pct", 100), ".2f"),
            Count("instructions per cycle", ("1.72", "0.75"), _of("instructions_per_cycle"), ".2f"),
        ),
    ),
}


def counted_beside(name: str, columns: Mapping[str, str], launches: Sequence[Launch]) -> Table:
    """A document's table, each of its columns followed by one per device with what was counted here.

    columns: for each column of the document, the contender shown beside it. Of the launches of its call the longest is
    shown; the others set C to zero, and the last line has their time together.

    Raises ValueError where there is no such table, or a device has counted nothing of one of them.
    """
    if name not in COUNTED:
        raise ValueError(f"counted: no table is named {name}; accepted: {', '.join(COUNTED)}")
    table = COUNTED[name]
    header, filled = ["metric"], [[count.name] for count in table.counts] + [["zeroing C, us"]]
    for place, column in enumerate(table.columns):
        header.append(f"{column}, there")
        for line, cell in zip(filled, [*(count.there[place] for count in table.counts), NOTHING], strict=True):
            line.append(cell)
        for device in dict.fromkeys(launch.environment.device for launch in launches):
            of_device = [launch for launch in launches if launch.environment.device == device]
            header.append(f"{column}, {device.removeprefix('NVIDIA ')}")
            for line, cell in zip(filled, _counts(table, name, columns[column], of_device), strict=True):
                line.append(cell)
    versions = ", ".join(dict.fromkeys(launch.environment.ncu for launch in launches))
    named = "; ".join(f"{column}: `{contender}`" for column, contender in columns.items())
    foot = f"There: {table.setup}. Here: {named}; ncu {versions}, caches flushed, clocks not locked."
    return Table(f"{table.source.name}: {table.title}", header, filled, foot=foot)


def _counts(table: Counted, name: str, contender: str, launches: Sequence[Launch]) -> list[str]:
    """The column of a contender on one device."""
    of_call = [launch for launch in launches if launch.contender == contender]
    if not of_call:
        raise ValueError(f"counted: {name}: nothing of {contender} was counted on {launches[0].environment.device}")
    *others, longest = sorted(of_call, key=_time)
    values = [(count.value(longest), count.form) for count in table.counts]
    told = [NOTHING if value is None else format(value, form) for value, form in values]
    return [*told, f"{sum(map(_time, others)):.2f}" if others else NOTHING]


def _time(launch: Launch) -> float:
    return launch.metrics.get("time_us") or 0.0
