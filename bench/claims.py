"""What the studies that this project started from claim, each held against the rows that test it.

    python bench/claims.py [-v | --markdown] [FILE ...]

Without FILE: the rows recorded under bench/results, of every device. Needs no GPU. A claim of one figure is confirmed
where the gain measured is from half to twice the gain claimed (of a loss: of its reciprocal), a claim of a range from
half the gain of its lower end to twice that of its upper one; other rules say what they ask (-v). Of contenders that a
claim compares, the fastest on each problem counts, and only rows that were measured together are compared.

A verdict on a suite needs at least half of its problems, each with a config searched for that very problem in every
contender that has configs: where there are fewer, the figures stand and the verdict is 'too few rows'.
"""

import sys
from collections.abc import Sequence

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench import cli
from triton_vs_tilus.bench.cli import ExitCode, Parser, UsageError, run_command


def parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("file", nargs="*", help="rows that bench/compare.py wrote")
    more = made.add_mutually_exclusive_group()
    more.add_argument("-v", "--verbose", action="store_true", help="also the rows, the rule and all figures of a claim")
    more.add_argument("--markdown", action="store_true", help="the same as a table for a page")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    from triton_vs_tilus.bench.show.claims.tables import blocks, recorded, screen, table
    from triton_vs_tilus.bench.show.tables import console

    try:
        rows, launches, stages = (cli.read_files("", args.file), [], []) if args.file else recorded()
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if not rows:
        raise UsageError("no rows are checked in under bench/results")
    if args.markdown:
        print(table(rows, launches, stages).markdown())
    else:
        console().print(blocks(rows, launches, stages) if args.verbose else screen(rows, launches, stages))
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
