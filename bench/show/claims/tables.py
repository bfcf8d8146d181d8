"""Claims and their findings: a table for a page; for a screen only the verdicts, or a block per claim."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.row import Launch, Row, Stage
from triton_vs_tilus.bench.show.claims.claim import VERDICTS, Claim
from triton_vs_tilus.bench.show.claims.evidence import evidence
from triton_vs_tilus.bench.show.claims.listed import CLAIMS
from triton_vs_tilus.bench.show.claims.rules import Finding, around
from triton_vs_tilus.bench.show.tables import Table, source_of


def findings(
    rows: Sequence[Row], launches: Sequence[Launch] = (), stages: Sequence[Stage] = ()
) -> list[tuple[Claim, Finding]]:
    """Every claim with its finding in these rows, in what Nsight Compute counted in these launches, and in stages that
    were timed alone."""
    found = evidence(rows, launches, stages)
    return [(claim, claim.finding(found)) for claim in CLAIMS]


def table(rows: Sequence[Row], launches: Sequence[Launch] = (), stages: Sequence[Stage] = ()) -> Table:
    """Every claim: its rows, its rule, the figures and the verdict."""
    found = findings(rows, launches, stages)
    lines = [
        [claim.text, claim.made_of, claim.selection, claim.condition, finding.measured, finding.verdict]
        for claim, finding in found
    ]
    sources = dict.fromkeys(claim.source for claim in CLAIMS)
    told = [
        " ".join(filter(None, [source.name, source.url, source.not_here and f"({source.not_here})"]))
        for source in sources
    ]
    foot = f"Sources: {', '.join(told)}. "
    foot += "There: what the source ran, and on what. Rows: what tests it here. Figures that depend on a GPU or a "
    foot += "version without rows here get no verdict. "
    foot += f"{source_of(rows)}."
    header = ["claim", "there", "rows", "confirmed where", "measured", "verdict"]
    return Table(f"{len(found)} claims: {counts(found)}", header, lines, foot=foot)


def screen(rows: Sequence[Row], launches: Sequence[Launch] = (), stages: Sequence[Stage] = ()) -> Table:
    """Every claim with its verdict and, where one figure decides it, that figure; by source."""
    found = findings(rows, launches, stages)
    lines = []
    for source, of_source in groupby(found, key=lambda pair: pair[0].source):
        lines.append(["", "", f"{source.name}:"])
        lines += [[finding.verdict, finding.figure, claim.text] for claim, finding in of_source]
    rule = "A gain (x - 1) is confirmed from half to twice the claimed one, a range from half its lower end to "
    rule += f"twice its upper: 1.5x to 1.7x from {around(1.5)[0]:.3g}x to {around(1.7)[1]:.3g}x. -v shows each rule."
    foot = f"{counts(found)}. {source_of(rows)}. -v adds the rows of each claim, all figures, the sources."
    return Table("claims", ["verdict", "measured", "claim"], lines, details=[rule], foot=foot)


def blocks(rows: Sequence[Row], launches: Sequence[Launch] = (), stages: Sequence[Stage] = ()) -> Group:
    """The same as `table`, a block per claim, for a terminal that is too narrow for its columns."""
    found = findings(rows, launches, stages)
    parts: list[Text | RichTable] = []
    for claim, finding in found:
        names = claim.selection.replace("`", "")
        cells = [("verdict", finding.verdict), ("measured", finding.measured), ("confirmed", claim.condition)]
        cells += [("rows", names), ("there", claim.made_of), ("source", f"{claim.source.name} {claim.source.url}")]
        grid = RichTable.grid(padding=(0, 2, 0, 0))
        for label, cell in cells:
            if cell:
                grid.add_row(Text(f"  {label}"), Text(cell))
        parts += [Text(claim.text, style="bold"), grid]
    return Group(*parts, Text(f"{counts(found)}. {source_of(rows)}."))


def counts(found: Sequence[tuple[Claim, Finding]]) -> str:
    """'20 confirmed, 16 contradicted, 6 not testable here'."""
    verdicts = Counter(finding.verdict for _, finding in found)
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS if verdicts[verdict])


def recorded() -> tuple[list[Row], list[Launch], list[Stage]]:
    """The rows of every device and every Triton, the launches and the stages that are checked in. Raises
    InvalidRows."""
    launches = [launch for of_file in queries.recorded_launches().values() for launch in of_file]
    return queries.of_all_tritons(), launches, [each for of in queries.recorded_stages().values() for each in of]


def recorded_table() -> Table:
    """Every claim, by the rows that are checked in. Raises InvalidRows."""
    return table(*recorded())
