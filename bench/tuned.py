"""Whether the tuned tables can be believed: how they were searched, and what in them or in the rows contradicts itself.

    python bench/tuned.py                 # every device's table, and the recorded rows
    python bench/tuned.py NEW.jsonl       # these rows in place of the recorded ones

Exits 1 where a kernel is faster with more tokens than with fewer by more than 3 %, so that the fewer have to be
searched again, and where rows have a table that is in no commit. Printed last: the commands that search again, by
device. A search whose result is in the cache (<user cache>/triton-vs-tilus/search) is not repeated: empty that first.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser

if TYPE_CHECKING:
    from triton_vs_tilus.bench.rows.row import Row
    from triton_vs_tilus.bench.search.audit import Fall
    from triton_vs_tilus.bench.show.tables import Table

Measured = dict[str, dict[Path, list["Row"]]]  # rows by the slug of their device and their file


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("file", nargs="*", type=Path, help="of rows (default: the recorded ones)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    from triton_vs_tilus.bench.rows import queries
    from triton_vs_tilus.bench.search import audit
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.common import tuned

    out = tables.console(verbose=True)
    files = {path: cli.read_files("FILE", [path]) for path in args.file} or queries.recorded()
    by_device = _by_device(files)
    for slug in tuned.devices():
        out.print(_table(slug))
    falls = _falls(by_device)
    found = [f"{name}: {fall}" for (_, name), fallen in falls.items() for fall in fallen]
    try:
        found += _not_in_git(by_device)
    except RuntimeError as error:
        print(f"rows are not held against committed tables: {error}", file=sys.stderr)
    again = []
    for slug in dict.fromkeys(slug for slug, _ in falls):
        of_device = [fall for (of, _), fallen in falls.items() if of == slug for fall in fallen]
        again += [f"{slug}: {command}" for command in audit.searches(of_device)]
    for line in found + again:
        out.print(cli.as_run_here(line), markup=False)
    return ExitCode.FAILED if found else ExitCode.OK


def _by_device(files: Mapping[Path, Sequence["Row"]]) -> Measured:
    from triton_vs_tilus.common import tuned

    found: Measured = {}
    for path, rows in files.items():
        for row in rows:
            found.setdefault(tuned.device_slug(row.environment.device), {}).setdefault(path, []).append(row)
    return found


def _table(slug: str) -> "Table":
    """How a device's entries were searched, a line per kernel."""
    from triton_vs_tilus.bench.search import audit
    from triton_vs_tilus.bench.show import tables

    lines = [[name, *(f"{count:g}" for count in astuple(counts))] for name, counts in audit.searched(slug).items()]
    header = ["kernel", *(field.name.replace("_", " ") for field in fields(audit.Searched))]
    foot = "whole, part: of the space; stale: for a former kernel or space; unknown: not recorded; "
    foot += "alone: searched only in this language"
    return tables.Table(f"tuned on {slug}", header, lines, foot=foot)


def _falls(by_device: Measured) -> dict[tuple[str, str], list["Fall"]]:
    """By device and where they stand: in its table, by its slug, or in a file of rows. Times of two files, which may
    have one name, are of two runs and do not compare."""
    from triton_vs_tilus.bench.search import audit
    from triton_vs_tilus.common import tuned

    found = {(slug, slug): audit.falls(audit.of_table(slug)) for slug in tuned.devices()}
    for slug, by_file in by_device.items():
        for path, rows in by_file.items():
            found[slug, _told(path)] = audit.falls(audit.of_rows(rows))
    return found


def _not_in_git(by_device: Measured) -> list[str]:
    """The files with rows whose table is in no commit. Raises RuntimeError where git cannot list the committed
    tables."""
    from triton_vs_tilus.bench.search import audit

    found = []
    for slug, by_file in sorted(by_device.items()):
        committed = audit.tables_in_git(slug)
        for path, rows in by_file.items():
            if missing := audit.not_in_git(rows, committed):
                found.append(f"{_told(path)}: {len(missing)} of {len(rows)} rows have a table that is in no commit")
    return found


def _told(path: Path) -> str:
    """As it was given; of a recorded file where it is under bench/results."""
    from triton_vs_tilus.bench.rows import queries

    return str(path.relative_to(queries.RESULTS) if path.is_relative_to(queries.RESULTS) else path)


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
