"""What recorded rows say, without a GPU: tables, the matrix, plots, CSV, JSON, Markdown; and the pages that show them.

python bench/report.py FILE [--matrix] [--markdown | --csv F | --json F] [--plot DIR] [--against OLD [--fail-over PCT]]
python bench/report.py --update-docs
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

from bench import docs, matrix, plots, tables
from bench.journal import read_rows


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("file", nargs="*", help="rows that bench/compare.py wrote (JSON lines, or a list)")
    made.add_argument("--markdown", action="store_true", help="print Markdown instead of tables")
    made.add_argument("--matrix", action="store_true", help="language x protocol, instead of a table a problem")
    made.add_argument("--csv", metavar="F", help="write the rows as CSV")
    made.add_argument("--json", metavar="F", help="write the rows as a JSON list")
    made.add_argument("--plot", metavar="DIR", help="write plots of the rows there, as SVG")
    made.add_argument("--against", metavar="OLD", help="hold the rows against those of an older file")
    made.add_argument("--fail-over", metavar="PCT", type=float, help=tables.FAIL_OVER_HELP)
    made.add_argument("--update-docs", action="store_true", help="renew what README.md and notes/ show of the rows")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    if args.fail_over is not None and not args.against:
        made.error("--fail-over needs --against OLD")
    out = tables.console()
    if not (args.update_docs or args.file):
        made.error("no FILE; see --help")
    try:
        if args.update_docs:
            for path in docs.update():
                out.print(f"renewed {path.relative_to(tables.ROOT)}", markup=False)
        rows = [row for file in args.file for row in read_rows(file)]
        old = read_rows(args.against) if args.against else []
    except (OSError, ValueError) as error:
        made.error(str(error))
    try:
        if args.csv and rows:
            tables.write_csv(rows, args.csv)
        if args.json and rows:
            tables.write_json(rows, args.json)
        if args.plot and rows:
            for path in plots.write(rows, args.plot):
                out.print(str(path), markup=False)
        if args.matrix and rows:
            for table in matrix.tables(rows):
                print(table.markdown()) if args.markdown else out.print(table)
        elif args.markdown and rows:
            print(tables.markdown(rows))
        elif rows and not (args.csv or args.json or args.plot or args.against):
            tables.show(out, rows)
        return tables.show_changes(out, rows, old, args.fail_over) if args.against else 0
    except (OSError, ValueError) as error:
        made.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
