"""From the rows of a run to the entries of a tuned table."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.rows.row import PASSED, Row
from triton_vs_tilus.bench.sources import source_hash
from triton_vs_tilus.common import tuned

NOT_OF_A_SEARCH = ("python", "tuned")  # of an environment


def write_table(slug: str, rows: Iterable[Row]) -> Path:
    """Puts the configs of rows that passed, and that their own searches found, into the user's layer of a device's
    table, and returns its file; see common.tuned."""
    found: list[tuple[str, tuned.Entry]] = []
    for row in rows:
        kernel = contenders.find(row.contender)
        own = row.config_source == "search" and not kernel.tuned_as
        if row.status == PASSED and own and row.config is not None:
            key = tuned.key_of(kernel, row.problem.to_problem())
            entry: tuned.Entry = {"problem": key, "config": row.config, "search": _search(row)}
            found.append((row.contender, entry))
    return tuned.write(slug, found, shipped=False)


def _search(row: Row) -> tuned.Search:
    environment = msgspec.to_builtins(row.environment)
    known = {name: value for name, value in environment.items() if name not in NOT_OF_A_SEARCH}
    found = {**known, **msgspec.to_builtins(row.search), "date": row.time[:10]}
    return msgspec.convert({**found, "source": source_hash(contenders.find(row.contender))}, tuned.Search)
