"""Records the checked-in rows anew, each file under bench/results by its own command of compare.py.

    python bench/record.py                            # all of them, one at a time on each GPU of this machine
    python bench/record.py router-nk or_reduce-int64  # these
    python bench/record.py --list                     # the commands, and how many of their rows are recorded

A file is replaced when its command has come to its end, and everything that passed before passes again. Until then
the rows stand in a journal beside those of compare.py, and the next call goes on there. Each GPU's commands have CPUs
of their own, so that what one compiles does not hold up what another times.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

from bench import compare, contenders, tables
from bench.compare import JOURNALS
from bench.journal import Row, read_rows
from bench.workloads import GENERATED
from common import tuned
from common.kernel import Kernel
from common.problem import Problem

COMPARE = Path(__file__).with_name("compare.py")


def _only(*contenders: str) -> str:
    return " ".join(f"--only {name}" for name in contenders)


def _splits(name: str, splits: Sequence[int]) -> str:
    return _only(*(f"{language}/{name}@s{split}" for language in ("triton", "tilus") for split in splits))


# What is held against references is timed with them: two runs are not compared.
_REDUCED = _only("decompose_k.vector", "decompose_k.tile", "decompose_k.vector_pdl", "atomic")
_REFERENCES = f"{_only('torch', 'helion', 'flashinfer', 'tlx')} {_REDUCED}"
_SQUARE = f"{_only('tiled', 'semaphore')} --timing cold --rounds 20"
_CORNERS = ((16, 8192), (64, 32768))
_EVERY_OTHER = tuple((m, k) for m in (16, 32, 48, 64) for k in (8192, 16384, 24576, 32768))


def _skinny(sizes: Sequence[tuple[int, int]], kind: str) -> str:
    return " ".join(f"--problem {m}x{m}x{k}-{kind}" for m, k in sizes)


# By the name of the file: what compare.py is called with.
RECORDINGS = {
    "router-nk": "--workload router",
    "router-kn": "--workload router --layout kn --timing cold",
    "skinny-epilogue-bf16": "--workload skinny-epilogue-bf16 --timing cold --rounds 20",
    **{
        f"skinny-matmul-{dtype}": f"--workload skinny-matmul-{dtype} {_REDUCED} --timing cold --rounds 20"
        for dtype in ("bf16", "fp16", "fp32")
    },
    "crossover": f"--workload crossover {_REDUCED} {_only('tiled')} --timing cold --rounds 20",
    "square-tutorial": f"--workload square-tutorial {_SQUARE}",
    "square-tutorial-nk": f"--workload square-tutorial --layout nk {_SQUARE}",
    "semaphore-splits": f"--shape 16x256x7168 {_splits('semaphore.fp32', (1, 2, 3, 4, 6, 8))}",
    **{
        name: f"--workload {name} --timing cold --rounds 40"
        for name in (
            *("or_reduce-int64", "or_reduce-int32", "or_reduce-ragged", "or_reduce-control"),
            *("w4a16-square", "w4a16-llama", "w4a16-tokens", "w4a16-kinds", "w4a16-bf16"),
        )
    },
    "w4a16-splits": f"--workload w4a16-square {_splits('w4a16.atomic', (1, 2, 4, 8, 16))} --timing cold --rounds 40",
    "router-references": " ".join(
        [
            f"--workload router --tokens 1,16,64,256,1024 {_REFERENCES}",
            _only("in_block.fma"),
            "--timing cold --rounds 40",
        ]
    ),
    # FlashInfer's other kernel, and torch.mm's other output.
    "router-fp32": " ".join(
        [
            "--workload router --tokens 1,4,16 --out-dtype fp32",
            _only("flashinfer", "in_block", "decompose_k.vector", "atomic"),
            "--timing cold --rounds 40",
        ]
    ),
    **{
        f"skinny-{suite}-references": f"{_skinny(_CORNERS, kind)} {_REFERENCES} --timing cold --rounds 40"
        for suite, kind in (
            ("epilogue-bf16", "bf16-kn-relu"),
            *((f"matmul-{dtype}", f"{dtype}-kn") for dtype in ("bf16", "fp16", "fp32")),
        )
    },
    # Those that are tuned by Inductor, on more of the shapes than all of the references.
    **{
        f"skinny-{suite}-autotuned": " ".join(
            [
                _skinny(_EVERY_OTHER, kind),
                _only("torch/compile.max_autotune_no_cudagraphs", "torch/custom_op.fused"),
                _REDUCED,
                "--timing cold --rounds 20",
            ]
        )
        for suite, kind in (("epilogue-bf16", "bf16-kn-relu"), ("matmul-bf16", "bf16-kn"))
    },
    "square-generated": " ".join(
        [
            "--workload square-generated",
            _only("tiled", "torch/compile.default", "torch/compile.max_autotune_no_cudagraphs"),
            _only("torch/compile.triton_templates"),
            "--timing cold --rounds 20",
        ]
    ),
    # Helion's search, on every other one of them.
    "square-generated-helion": " ".join(
        [
            *(f"--problem {m}x{n}x{k}-bf16-kn" for m, n, k in GENERATED[::2]),
            _only("helion/matmul", "tiled"),
            "--timing cold --rounds 20",
        ]
    ),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("name", nargs="*", help="of a file under bench/results, without its ending (default: all)")
    made.add_argument(
        "--list",
        action="store_true",
        help="the commands, how many of their rows are recorded, and how many of these have a former config",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    args = made.parse_args(arguments)
    if unknown := [name for name in args.name if name not in RECORDINGS]:
        made.error(f"no recording is named {', '.join(unknown)}; accepted: {', '.join(RECORDINGS)}")
    names = args.name or list(RECORDINGS)
    out = tables.console()
    if args.list:
        out.print(_list(names))
        return 0
    gpus = _gpus()
    if not gpus:
        made.error("there is no CUDA device; what is recorded elsewhere: --list")
    cpus = sorted(os.sched_getaffinity(0))
    free: SimpleQueue[tuple[str, list[int]]] = SimpleQueue()
    for index, gpu in enumerate(gpus):
        free.put((gpu, cpus[index * len(cpus) // len(gpus) : (index + 1) * len(cpus) // len(gpus)] or cpus))

    def one(name: str) -> int:
        gpu, own = free.get()
        try:
            os.sched_setaffinity(0, own)  # of this thread; the command inherits it
            code = _record(name, gpu)
        finally:
            free.put((gpu, own))
        failed = f"exit code {code}, log {_journal(name).with_suffix('.log')}" if code else _replaced(name)
        out.print(f"{name}: {failed or 'recorded'}", markup=False)
        return 1 if failed else 0

    with ThreadPoolExecutor(len(gpus)) as pool:
        codes = list(pool.map(one, names))
    return 1 if any(codes) else 0


def _record(name: str, gpu: str) -> int:
    """The command's exit code."""
    journal = _journal(name)
    journal.parent.mkdir(parents=True, exist_ok=True)
    words = [*shlex.split(RECORDINGS[name]), "--require-gpu", "--output", str(journal), "--resume"]
    with journal.with_suffix(".log").open("a") as log:
        done = subprocess.run(
            [sys.executable, str(COMPARE), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
        )
    return done.returncode


def _replaced(name: str) -> str:
    """Makes the journal the file, unless something of the file has broken: then says what, else ''."""
    journal = _journal(name)
    rows = read_rows(journal)
    target = tables.RESULTS / tuned.device_slug(rows[0].environment["device"]) / f"{name}.jsonl"
    found = tables.changes(rows, read_rows(target)) if target.exists() else []
    if broken := [f"{of.contender} on {of.problem} ({of.message})" for of in found if of.verdict == "broken"]:
        return f"not replaced, as these passed there: {', '.join(broken)}; the new rows are in {journal}"
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(journal, target)
    return ""


def _journal(name: str) -> Path:
    return JOURNALS / "recordings" / f"{name}.jsonl"


def _gpus() -> list[str]:
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    every = [str(index) for index in range(torch.cuda.device_count())]
    return visible.split(",")[: len(every)] if visible else every


def _asked(name: str) -> dict[tuple[str, str], tuple[Problem, Kernel]]:
    """What a recording's command has rows for, by the names of problem and contender."""
    args = compare.parser().parse_args(shlex.split(RECORDINGS[name]))
    compare.chosen_options(args, 0)
    problems = compare.chosen_problems(args)
    kernels = compare.chosen_contenders(args, {problem.op for _, problem in problems})
    own = ((problem, kernel) for _, problem in problems for kernel in kernels if kernel.op == problem.op)
    return {(problem.name, kernel.full_name): (problem, kernel) for problem, kernel in own}


def _has_former_config(row: Row, problem: Problem, kernel: Kernel, slug: str) -> bool:
    """Whether the command would take another config now, as the tuned table has changed since."""
    return row.config is not None and contenders.pick(kernel, problem, slug)[0] != kernel.config_from(row.config)


def _list(names: Sequence[str]) -> tables.Table:
    lines = []
    for name in names:
        asked = _asked(name)
        of_devices = []
        for path, rows in tables.recorded(name).items():
            slug = path.parent.name
            before = sum(_has_former_config(row, *asked[row.problem["name"], row.contender], slug) for row in rows)
            told = f"{len(rows)} of {len(asked)} ({slug})"
            of_devices.append(f"{told}, {before} with a former config" if before else told)
        lines.append([name, "; ".join(of_devices) or "none", f"python bench/compare.py {RECORDINGS[name]}"])
    foot = "A former config: the tuned table has changed since, and the command would take another."
    return tables.Table("recordings", ["file", "rows", "command"], lines, foot=foot)


if __name__ == "__main__":
    sys.exit(main())
