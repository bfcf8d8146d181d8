"""What recorded rows say, without a GPU: tables, the matrix, plots, CSV, JSON, Markdown; and the pages that show them.

    python bench/report.py FILE [--matrix] [--markdown] [--csv F] [--json F] [--plot DIR]
    python bench/report.py NEW --against OLD [--fail-over PCT]
    python bench/report.py --update-docs

Rows are what bench/compare.py writes; the pages are README.md and those of notes/.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench.cli import (
    EXIT_CODES,
    ExitCode,
    Parser,
    UsageError,
    add_row_flags,
    check_files,
    read_files,
    run_command,
    write_files,
)

if TYPE_CHECKING:
    from triton_vs_tilus.bench.rows.row import Row


def parser() -> Parser:
    parser = Parser(__doc__, EXIT_CODES)
    parser.add_argument("file", nargs="*", type=Path, help="rows that bench/compare.py wrote")
    parser.add_argument("--markdown", action="store_true", help="print Markdown instead of tables")
    add_row_flags(parser)
    docs = "fill in anew what README.md and notes/ show of the recorded rows"
    parser.add_argument("--update-docs", action="store_true", help=docs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    if not args.file:
        if not args.update_docs:
            raise UsageError("no FILE; accepted: files of rows that bench/compare.py wrote, or --update-docs")
        if unread := [flag for flag in made.given(args) if flag != "--update-docs"]:
            raise UsageError(f"{', '.join(unread)}: no FILE; accepted beside --update-docs with a FILE")
    rows = read_files("", args.file)
    old = check_files(args)
    if args.update_docs:
        update_docs()
    return show(args, rows, old) if rows else ExitCode.OK


def update_docs() -> None:
    """Raises UsageError."""
    from triton_vs_tilus.bench import ROOT
    from triton_vs_tilus.bench.show import docs

    try:
        for path in docs.update():
            print(f"renewed {path.relative_to(ROOT)}")
    except (OSError, ValueError) as error:
        raise UsageError(f"--update-docs: {error}") from error


def show(args: argparse.Namespace, rows: Sequence["Row"], old: Sequence["Row"]) -> ExitCode:
    """Writes and prints what is asked for. Raises UsageError."""
    from triton_vs_tilus.bench.rows import regression
    from triton_vs_tilus.bench.show import matrix, plots, tables

    devices = dict.fromkeys(row.environment.device for row in rows)
    is_shown = args.matrix or args.plot or args.markdown or not (args.csv or args.json or args.against)
    if len(devices) > 1 and is_shown:
        raise UsageError(f"FILE is of {' and of '.join(devices)}; accepted: of one GPU, as times of two do not compare")
    out = tables.console(verbose=args.verbose)
    try:
        if args.against:
            regression.refuse_other_devices(rows, old)
        write_files(args, rows)
        if args.plot:
            for path in plots.write(rows, args.plot):
                out.print(str(path), markup=False)
        if args.matrix:
            for table in matrix.tables(rows):
                print(table.markdown()) if args.markdown else out.print(table)
        elif args.markdown:
            print(tables.markdown(rows))
        elif not (args.csv or args.json or args.plot or args.against):
            tables.show(out, rows)
        if args.against and tables.show_changes(out, rows, old, args.fail_over):
            return ExitCode.REGRESSED
    except ValueError as error:
        raise UsageError(str(error)) from error
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
