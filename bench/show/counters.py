"""Tables of what Nsight Compute counted."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from triton_vs_tilus.bench.diagnostics.metrics import METRICS, rate, shared, stalls
from triton_vs_tilus.bench.rows.queries import by_problem
from triton_vs_tilus.bench.rows.row import Launch
from triton_vs_tilus.bench.show.tables import CONFIG, Table, config_text, source_of

SHOWN_STALLS = 2
HEADER = ["contender", "protocol", "GPU kernel", "us", "DRAM\nGB/s", "DRAM %", "L2 to SM\nMB", "L2\nMB", "L2 %", "grid"]
HEADER += ["block", "registers", "shared\nKiB", "occupancy\n%", "SM %", "issue\n%", "stalls", CONFIG]
FOOT = (
    "Single launches under ncu, caches flushed before each GPU kernel, clocks not locked: the times are not the "
    "referee's. DRAM, L2, SM: share of the peak throughput; L2 MB: bytes that L2 moved, fills from DRAM included; grid "
    "in blocks, block in threads, registers per thread; occupancy: active warps, of those that an SM can hold; issue: "
    "cycles in which a scheduler issues; stalls: the most frequent causes, by share of all stalls."
)


def tables(launches: Sequence[Launch], contenders: Sequence[str] = ("*",)) -> list[Table]:
    """A table per problem, of the contenders that any pattern names."""
    named = [launch for launch in launches if any(fnmatchcase(launch.contender, pattern) for pattern in contenders)]
    return [problem_table(of_problem) for of_problem in by_problem(named).values()]


def problem_table(launches: Sequence[Launch]) -> Table:
    """A line for each GPU kernel of each contender, in the order of the launches."""
    lines, details = [], []
    for launch in launches:
        first = [launch.contender, launch.protocol] if not launch.launch else ["", ""]
        if launch.gpu_kernel is None:
            lines.append([*first, launch.status, *[""] * (len(HEADER) - 3)])
            details.append(f"{launch.contender}: {launch.status}: {launch.message}")
        else:
            config = config_text(launch.config) if launch.launch == 0 else ""
            lines.append([*first, launch.gpu_kernel, *_figures(launch), config])
    counted = [launch for launch in launches if launch.gpu_kernel is not None]
    lacking = [metric for name, metric in METRICS.items() if all(one.metrics.get(name) is None for one in counted)]
    if counted and lacking:
        details.append(f"not counted by this ncu: {', '.join(lacking)}")
    versions = ", ".join(sorted({launch.environment.ncu for launch in launches}))
    title = f"{launches[0].workload} {launches[0].problem.name}, ncu {versions}"
    return Table(title, HEADER, lines, details=details, foot=f"{FOOT} {source_of(launches)}")


def _figures(launch: Launch) -> list[str]:
    def text(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    def of(name: str, form: str, unit: float = 1) -> str:
        value = launch.metrics.get(name)
        return text(None if value is None else value / unit, form)

    waits = [f"{name} {share:.0%}" for name, share in list(stalls(launch).items())[:SHOWN_STALLS]]
    block_bytes = shared(launch)
    return [
        of("time_us", ".2f"),
        text(rate(launch), ".0f"),
        of("dram_pct", ".0f"),
        of("l2_to_sm_bytes", ".2f", 1e6),
        of("l2_bytes", ".2f", 1e6),
        of("l2_pct", ".0f"),
        of("grid_blocks", ".0f"),
        of("block_threads", ".0f"),
        of("registers_per_thread", ".0f"),
        text(None if block_bytes is None else block_bytes / 1024, ".1f"),
        of("occupancy_pct", ".0f"),
        of("sm_pct", ".0f"),
        of("issue_pct", ".0f"),
        ", ".join(waits),
    ]
