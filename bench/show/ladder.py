"""From the plain kernel to the fastest: what each step changes, and what it takes in each language."""

from collections.abc import Mapping, Sequence

from triton_vs_tilus.bench.rows.queries import contending, leading_timing, timed_together
from triton_vs_tilus.bench.rows.row import Row, TimingName
from triton_vs_tilus.bench.show.tables import NOT_SEARCHED, Table, baseline_name, source_of
from triton_vs_tilus.common.kernel import LANGUAGES

# By the kernel that each adds to the one before; both languages have them.
STEPS: Mapping[str, str] = {
    "data_parallel": "one block per tile of C, all of K",
    "sliced_k.mma": "K is split among the warps of a block, whose sums meet in its shared memory",
    "semaphore.fp32": "K is split among blocks, which add to a tile's sum in turns",
    "decompose_k.vector": "no turns: every split writes its partial, a second launch sums them",
    "last_arriver": "one launch: the last block of a tile sums its partials",
    "atomic": "no partials: blocks add to one sum in L2, in any order",
    "decompose_k.vector_pdl": "two launches again, the second set up while the first runs",
    "cluster": "one launch, nothing in global memory: the splits of a tile sum in a cluster's shared memory",
}


def ladder_table(group: Sequence[Row]) -> Table:
    """The steps on one problem, of rows that were timed together; the step with the least time is marked.

    Raises ValueError where no step was timed.
    """
    lead = leading_timing(group)
    if lead is None:
        raise ValueError(f"nothing was timed on {group[0].problem.name}")
    rows = {row.contender: row for row in timed_together(contending(group), lead)}
    lines, least = [], []
    for step, change in STEPS.items():
        of_step = [rows.get(f"{language.value}/{step}") for language in LANGUAGES]
        times = [row.timing[lead].median_us for row in of_step if row]
        if times:
            lines.append([step, change, *(cell for row in of_step for cell in _cells(row, lead))])
            least.append(min(times))
    if not lines:
        raise ValueError(f"no step of the ladder was timed on {group[0].problem.name}")
    header = ["step", "what it changes"]
    for language in LANGUAGES:
        header += [f"{language.value}\nus", f"x {baseline_name(group)}", "x floor"]
    title = f"{group[0].problem.name}, {lead}"
    foot = f"{source_of(list(rows.values()))}. {NOT_SEARCHED}."
    return Table(title, header, lines, frozenset({least.index(min(least))}), foot=foot)


def _cells(row: Row | None, lead: TimingName) -> list[str]:
    if row is None:
        return ["", "", ""]
    timing = row.timing[lead]
    floor = "" if timing.times_floor is None else f"{timing.times_floor:.2f}"
    return [f"{timing.median_us:.1f}", f"{timing.speedup:.2f}{'°' * row.not_searched}", floor]
