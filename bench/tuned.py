"""Whether the tuned tables can be believed: how they were searched, and what in them or in the rows contradicts itself.

    python bench/tuned.py                 # every device's table, and the recorded rows
    python bench/tuned.py NEW.jsonl       # these rows in place of the recorded ones

Exits 1 where a kernel is faster with more tokens than with fewer by more than 3 %, so that the fewer have to be
searched again, and where rows have a table that is in no commit. Printed last: the commands that search again, by
device. A search whose result is in the cache (<user cache>/triton-vs-tilus/search) is not repeated: empty that first.
"""

import sys
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

if __name__ == "__main__":
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("file", nargs="*", type=Path, help="of rows (default: the recorded ones)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    from triton_vs_tilus.bench.rows import queries
    from triton_vs_tilus.bench.rows.row import Row
    from triton_vs_tilus.bench.search import audit
    from triton_vs_tilus.bench.show import tables
    from triton_vs_tilus.common import tuned

    out = tables.console(verbose=True)
    files = {path: cli.read_files("FILE", [path]) for path in args.file} or queries.recorded()
    of_device: dict[str, dict[str, list[Row]]] = {}
    for path, rows in files.items():
        for row in rows:
            of_device.setdefault(tuned.device_slug(row.environment.device), {}).setdefault(path.name, []).append(row)
    found: list[str] = []
    falls: dict[str, list[audit.Fall]] = {}

    def add_falls(name: str, slug: str, latencies: list[audit.Latency]) -> None:
        fallen = audit.falls(latencies)
        falls.setdefault(slug, []).extend(fallen)
        found.extend(f"{name}: {fall}" for fall in fallen)

    for slug in tuned.devices():
        lines = [[name, *(f"{count:g}" for count in astuple(counts))] for name, counts in audit.searched(slug).items()]
        header = ["kernel", *(field.name.replace("_", " ") for field in fields(audit.Searched))]
        foot = "whole, part: of the space; stale: of a former kernel or space; unknown: nobody knows"
        out.print(tables.Table(f"tuned on {slug}", header, lines, foot=foot))
        add_falls(slug, slug, audit.of_table(slug))
    for slug, by_file in of_device.items():
        for name, rows in by_file.items():
            add_falls(name, slug, audit.of_rows(rows))
    for slug, by_file in sorted(of_device.items()):
        try:
            committed = audit.tables_in_git(slug)
        except RuntimeError as error:
            print(f"rows are not held against committed tables: {error}", file=sys.stderr)
            break
        for name, rows in by_file.items():
            if missing := audit.not_in_git(rows, committed):
                found.append(f"{name}: {len(missing)} of {len(rows)} rows have a table that is in no commit")
    again = [f"{slug}: {command}" for slug, fallen in falls.items() for command in audit.searches(fallen)]
    for line in found + again:
        out.print(line, markup=False)
    return ExitCode.FAILED if found else ExitCode.OK


if __name__ == "__main__":
    sys.exit(cli.run_command(main))
