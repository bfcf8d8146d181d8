"""Writes the tables that `linear` and `matmul` choose kernels by, common/measured/<device>.json, from recorded rows.

    python bench/dispatch.py

A test fails where a table is not what the rows give.
"""

import sys
from collections.abc import Sequence

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench.cli import ExitCode, Parser, check_checkout, run_command


def parser() -> Parser:
    return Parser(__doc__)


def main(arguments: Sequence[str] | None = None) -> int:
    parser().parse_args(arguments)
    check_checkout("notes")  # an installed package is not rewritten
    from triton_vs_tilus.bench.rows import times
    from triton_vs_tilus.common import dispatch, files

    for slug, entries in times.tables().items():
        path = dispatch.path_of(slug)
        files.replace_text(path, times.text(entries))  # `linear` reads it in processes that run
        print(f"{path}: {len(entries)} problems")
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(run_command(main))
