"""From the checked-in rows to a device's table of measured times, which common/dispatch.py decides by."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.common.dispatch import BASELINE, Measured
from triton_vs_tilus.common.kernel import LANGUAGES


def tables() -> dict[str, list[Measured]]:
    """By the slugs of the devices that have rows. Raises InvalidRows."""
    by_device: dict[str, dict[Path, list[Row]]] = {}
    for path, rows in queries.recorded().items():
        by_device.setdefault(path.parent.name, {})[path] = rows
    return {slug: measured(files) for slug, files in by_device.items()}


def measured(files: Mapping[Path, Sequence[Row]]) -> list[Measured]:
    """Of each problem the measurement with the most kernels; of two alike that in the dtype which the problem's key
    names, then that without lent configs, then that of more rounds, then the later. Products without an
    epilogue and in the dtype of their inputs, as torch.mm computes them. Sorted by layout, dtype, N, K, M."""
    best: dict[str, tuple[tuple[int, bool, bool, int, str], Measured]] = {}
    for path, rows in files.items():
        plain = queries.timed_together([row for row in rows if row.problem.is_plain_product], "cold")
        for together in queries.by_problem(plain).values():
            problem = together[0].problem.to_problem()
            choices = _choices({row.contender for row in together if _takes_part(row)})
            us = {row.contender: round(row.timing["cold"].median_us, 3) for row in together if row.contender in choices}
            if BASELINE not in us or len(us) == 1:
                continue
            found = Measured(problem=problem.key, rows=path.stem, us=dict(sorted(us.items())))
            own_dtype = problem.key["dtype"] == together[0].problem.dtype
            alone = not any(row.is_matched or row.is_held_out for row in together)
            rounds = together[0].timing["cold"].rounds
            rank = len(us), own_dtype, alone, rounds, max(row.time for row in together)
            name = json.dumps(problem.key)
            if name not in best or rank > best[name][0]:
                best[name] = rank, found
    entries = [entry for _, entry in best.values()]
    return sorted(entries, key=lambda entry: [entry["problem"][field] for field in ("layout", "dtype", "n", "k", "m")])


def text(entries: Iterable[Measured]) -> str:
    """One entry a line."""
    lines = ",\n".join(f" {json.dumps(entry)}" for entry in entries)
    return f"[\n{lines}\n]\n"


def _choices(names: Collection[str]) -> set[str]:
    """torch.mm, and the kernels of each language that has several, or at least the unsplit one. One kernel that splits
    K, the only one of its language, does not say which to take."""
    of_language = Counter(name.partition("/")[0] for name in names)
    chosen = {language for language, count in of_language.items() if count > 1 or f"{language}/data_parallel" in names}
    return {name for name in names if name == BASELINE or name.partition("/")[0] in chosen}


def _takes_part(row: Row) -> bool:
    """torch.mm, and the kernels of both languages on configs that launchers take."""
    return row.contender == BASELINE or (row.language in LANGUAGES and "@" not in row.contender)
