"""The fastest for one matmul, from the recorded rows: which, how fast, why, and how to call it.

    python bench/answer.py 32x160x5120 [--dtype fp16] [--layout kn] [--deterministic] [--clock warm]
    python bench/answer.py 64x64x16384 --layout kn --epilogue relu
    python bench/answer.py 16x8192x8192 --op w4a16
    python bench/answer.py 16x256x7168-bf16-nk

Times are those of the nearest problem that was recorded, and the answer says how far that is. Where none is near, and
these sizes or near ones were recorded with another layout or epilogue, the answer is of that, and says so. Needs no
GPU. With one, --measure times the few that the answer names at the very problem, by bench/compare.py.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run by its path, not as a module
    import script  # noqa: F401 - before all that takes long to import, or is not there
from triton_vs_tilus.bench.cli import (
    CLOCKS,
    DTYPES,
    EPILOGUES,
    EXIT_CODES,
    LAYOUTS,
    ExitCode,
    Parser,
    UsageError,
    has_gpu,
    run_command,
)

if TYPE_CHECKING:
    from triton_vs_tilus.bench.rows.answers import Answer, Files, Product


def parser() -> Parser:
    made = Parser(__doc__, EXIT_CODES)
    shape = "a [M, K] times a weight of N columns, K deep; or a problem's name, as tables have it"
    made.add_argument("shape", metavar="MxNxK", help=shape)
    op = "the weight as it is, or of 4 bits in groups of 128 (default: matmul)"
    made.add_argument("--op", choices=("matmul", "w4a16"), help=op)
    dtype = "of inputs and output (default: bf16; of w4a16 fp16)"
    made.add_argument("--dtype", choices=DTYPES, help=dtype)
    made.add_argument("--layout", choices=LAYOUTS, help="how the weight is stored (default: nk)")
    epilogue = f"fused pointwise end: {', '.join(EPILOGUES)} (default: none)"
    made.add_argument("--epilogue", metavar="NAME", choices=EPILOGUES, help=epilogue)
    made.add_argument("--deterministic", action="store_true", help="only what gives the same bits in every run")
    made.add_argument("--language", choices=("triton", "tilus"), help="only kernels of this language")
    clock = "cold L2; cold L2 in a CUDA graph; warm L2 in a CUDA graph (default: cold)"
    made.add_argument("--clock", choices=CLOCKS, default="cold", help=clock)
    device = "whose rows answer: a folder of bench/results (default: the one with the most rows)"
    made.add_argument("--device", metavar="SLUG", help=device)
    made.add_argument("--measure", action="store_true", help="time what the answer names, now, on this GPU")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    if args.measure and not has_gpu():
        raise UsageError("--measure: there is no CUDA device, and nothing is timed without one")
    from triton_vs_tilus.bench.rows import answers, queries
    from triton_vs_tilus.bench.rows.row import LANGUAGES
    from triton_vs_tilus.bench.show.answer import screen

    languages = LANGUAGES if args.language is None else (args.language,)
    files = queries.recorded()
    try:
        problem = problem_of(args, files)
        taken, found = answers.answered(problem, args.clock, languages, args.deterministic, args.device, files)
    except ValueError as error:
        raise UsageError(str(error)) from error
    for line in screen(taken, found, args.language, problem):
        print(line)
    return measured(problem, found, args.clock) if args.measure else ExitCode.OK


def problem_of(args: argparse.Namespace, files: "Files") -> "Product":
    """Raises ValueError for what is no shape and no name of a product, for flags that a name leaves nothing to say to,
    and for flags and sizes that a weight of 4 bits does not have."""
    from triton_vs_tilus.bench.ops import MATMUL, W4A16
    from triton_vs_tilus.bench.rows.answers import MULTIPLES, Question
    from triton_vs_tilus.bench.shapes import parse_shape

    def refuse(flags: Sequence[str], beside: str) -> None:
        for flag in flags:
            if given := getattr(args, flag):
                raise ValueError(f"--{flag} is {given}; accepted: none with {beside}")

    if re.search(r"-.*[^-x\d]", args.shape):
        refuse(("op", "dtype", "layout", "epilogue"), "a problem's name")
        return _named(args.shape, files)
    m, n, k = parse_shape(args.shape)
    if args.op == W4A16:
        refuse(("layout", "epilogue"), "--op w4a16")
        for size, value in (("n", n), ("k", k)):
            if value % MULTIPLES[size]:
                raise ValueError(f"{size.upper()} is {value}; accepted with --op w4a16: multiples of {MULTIPLES[size]}")
        dtype = args.dtype or "fp16"
        return Question(W4A16, {"m": m, "n": n, "k": k, "dtype": dtype, "group_size": 128, "symmetric": False})
    dtype, layout, epilogue = args.dtype or "bf16", args.layout or "nk", args.epilogue or "none"
    kind = {"dtype": dtype, "out_dtype": dtype, "layout": layout, "epilogue": epilogue}
    return Question(MATMUL, {"m": m, "n": n, "k": k, **kind})


def _named(name: str, files: "Files") -> "Product":
    """Of the rows; what has no row is of workloads, which come with torch. Raises ValueError."""
    from triton_vs_tilus.bench.rows.answers import PRODUCTS

    recorded = (row.problem for rows in files.values() for row in rows)
    problem: Product | None = next((record for record in recorded if record.name == name), None)
    if problem is None:
        from triton_vs_tilus.bench import workloads

        _, problem = workloads.named(name)
    if problem.op not in PRODUCTS:
        raise ValueError(f"problem is {name}, of {problem.op}; accepted: a product")
    return problem


def measured(problem: "Product", found: "Answer", clock: str) -> int:
    """Runs bench/compare.py over the contenders that the answer names. Returns its exit code."""
    from triton_vs_tilus.bench.ops import OPS
    from triton_vs_tilus.bench.rows.command import problem_words

    named = {row.contender for row in (found.fastest, found.best_of("triton"), found.best_of("tilus")) if row}
    words = problem_words(OPS[problem.op].problem.from_fields(dict(problem.fields)))
    words += ["--timing", clock, *(word for name in sorted(named) for word in ("--only", name))]
    return subprocess.run([sys.executable, Path(__file__).with_name("compare.py"), *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(run_command(main))
