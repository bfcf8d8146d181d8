"""Where the time of a kernel goes: tables of stages that were timed alone."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from triton_vs_tilus.bench.rows.queries import by_problem
from triton_vs_tilus.bench.rows.row import TEMPERATURES, Stage, StageName, TimingName
from triton_vs_tilus.bench.show.tables import Table, baseline_name, naming, source_of

PARTS = ("product", "meeting", "boundary", "alone")
FOOT = (
    "Medians in us. launch: an empty kernel. read: floor/read less launch. product: the kernel without its meeting, "
    "less floor/read. meeting: the whole kernel less the kernel without its meeting. boundary: what an empty launch "
    "adds in place of the meeting. alone: only the launch of the meeting, less an empty kernel. †: product and meeting "
    "together, where no kernel leaves the meeting out. For a kernel of one launch, the kernel without its meeting is "
    "decompose_k's product at the same config. x: times as fast as"
)


def budget_table(stages: Sequence[Stage], timing: TimingName, contenders: Sequence[str] = ()) -> Table:
    """Microseconds of each part of each contender's time: those that any pattern names, without patterns the fastest of
    each language. Of each problem a line of the floor stands first.

    Raises ValueError where there is nothing of these contenders.
    """
    title, what, labels = naming(stages)
    lines = []
    for group in by_problem(stages).values():
        wholes = {stage.contender: stage for stage in group if stage.stage == "whole"}
        shown = _named(list(wholes.values()), contenders) if contenders else _fastest(list(wholes.values()), timing)
        if not shown:
            continue
        launch, read = group[0].floor[timing].launch_us, group[0].floor[timing].read_us
        baseline_us = wholes[group[0].problem.baseline].timing[timing].median_us
        label = labels[group[0].problem.name]
        read_cells = [f"{us:.2f}" for us in (read, launch, read - launch)]
        lines.append([label, "floor/read", *read_cells, *[""] * len(PARTS), f"{baseline_us / read:.2f}", ""])
        for whole in shown:
            own = {stage.stage: stage for stage in group if stage.contender == whole.contender}
            lines.append([label, whole.contender, *_cells(own, timing)])
    if not lines:
        raise ValueError(f"nothing of {', '.join(contenders)} was timed by its stages")
    over = f"x {baseline_name(stages)}"
    header = [what, "contender", "us", "launch", "read", *PARTS, over, "without\nmeeting"]
    foot = f"{FOOT} {baseline_name(stages)}. {source_of(stages)}."
    return Table(f"{title or 'by stage'}, {TEMPERATURES[timing]}", header, lines, foot=foot)


def _named(wholes: Sequence[Stage], contenders: Sequence[str]) -> list[Stage]:
    return [whole for whole in wholes if any(fnmatchcase(whole.contender, pattern) for pattern in contenders)]


def _fastest(wholes: Sequence[Stage], timing: TimingName) -> list[Stage]:
    """Of each language, in the order in which they came."""
    best: dict[str, Stage] = {}
    for whole in wholes:
        known = best.get(whole.language, whole)
        best[whole.language] = min(known, whole, key=lambda stage: stage.timing[timing].median_us)
    return list(best.values())


def _cells(own: dict[StageName, Stage], timing: TimingName) -> list[str]:
    us = {name: stage.timing[timing].median_us for name, stage in own.items()}
    whole, floor = us["whole"], own["whole"].floor[timing]
    speedup = f"{own['whole'].timing[timing].speedup:.2f}"
    cells = [f"{part:.2f}" for part in (whole, floor.launch_us, floor.read_us - floor.launch_us)]
    if "product" not in us:
        return [*cells, f"{whole - floor.read_us:.2f}†", "", "", "", speedup, ""]
    alone = f"{us['meeting'] - floor.launch_us:.2f}" if "meeting" in us else ""
    without = f"{own['product'].timing[timing].speedup:.2f}"
    product, meeting = us["product"] - floor.read_us, whole - us["product"]
    boundary = f"{us['boundary'] - us['product']:.2f}" if "boundary" in us else ""
    return [*cells, f"{product:.2f}", f"{meeting:.2f}", boundary, alone, speedup, without]
