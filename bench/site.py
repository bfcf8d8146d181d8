"""The page of the recorded rows, notes/index.html: the answer for a shape, heat map, plots, pairs, ladder, claims,
mechanisms, all rows.

    python bench/site.py            # writes it
    python bench/site.py --check    # exits 1 where the rows give another

It shows the mechanisms and drawings of the notes: `python bench/report.py --update-docs` comes before it.
Needs no GPU, and the page needs no network: one file, to be opened from a checkout or served.
"""

import sys
from collections.abc import Sequence

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.bench.cli import ExitCode, Parser, UsageError, check_checkout, run_command


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 where the page is not up to date")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    check_checkout("notes")
    from triton_vs_tilus.bench.show import page

    name = page.PATH.relative_to(ROOT)
    try:
        if page.update(write=not args.check):
            print(f"{name}: not what the rows give" if args.check else f"renewed {name}")
            return ExitCode.FAILED if args.check else ExitCode.OK
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
