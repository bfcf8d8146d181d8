"""What the referee says of each adversary on a GPU, a JSON line each.

    python tests/verdicts.py [FILE] [--resume]

It takes some ten minutes. FILE, in place of bench/results/<gpu>/referee/adversaries.jsonl, grows by a group of
adversaries at a time. Exits 1 where a verdict is another than expected.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import adversaries
import torch

from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.bench.measure.process import Child
from triton_vs_tilus.bench.measure.worker import Options, measure
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.journal import read_verdicts, to_line
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    CRASHED,
    OUT_OF_MEMORY,
    PASSED,
    SUSPICIOUS,
    TIMED_OUT,
    WRONG,
    Row,
    Status,
    Verdict,
)
from triton_vs_tilus.bench.search.build import builders
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.problem import Layout, Matmul

ADVERSARIES = Path(__file__).with_name("adversaries.py")
PROBLEM = Matmul(64, 256, 7168, layout=Layout.NK)
Expected = tuple[Status, str]  # and what the message contains
# On whatever device. Two pass the check by a forged result; ON_A_GPU says what they get while they are timed.
ANYWHERE: dict[str, Expected] = {
    "honest": (PASSED, ""),
    "honest_without_out": (PASSED, ""),
    "writes_nothing": (WRONG, "elements are NaN"),
    "writes_half": (WRONG, "elements are NaN, which the output was filled with; 0 of the others"),
    "all_zeros": (WRONG, "over the bound"),
    "first_answer": (WRONG, "stale"),
    "cached_by_address": (WRONG, "stale"),
    "cached_by_id": (WRONG, "stale"),
    "uninitialized": (WRONG, ""),
    "writes_after": (WRONG, "outside of its output: 6 bytes after"),
    "writes_before": (WRONG, "outside of its output: 6 bytes before"),
    "mutates_a": (WRONG, "changes its input a"),
    "mutates_b": (WRONG, "changes its input b"),
    "aborts": (CRASHED, "SIGABRT"),
    "exits": (CRASHED, "exit code 3"),
    "hangs": (TIMED_OUT, "deadline"),
    "raises": (CRASHED, "ValueError: not today"),
    "out_of_memory": (OUT_OF_MEMORY, ""),
    "wrong_shape": (WRONG, "expected torch.bfloat16 ("),
    "no_tensor": (WRONG, "returns NoneType; expected torch.Tensor itself"),
    "lazy_subclass": (WRONG, "returns _Lazy; expected torch.Tensor itself"),
    "lazy_instance": (WRONG, ""),
    "thread_left_waiting": (WRONG, "leaves 1 threads running when its call returns"),
    "patches_the_judge": (WRONG, "replaces what it is measured by: Judge.largest_error"),
    "adds_to_the_judge": (WRONG, "replaces what it is measured by: triton_vs_tilus.common.accuracy.Accuracy.__getattr"),
    "shadows_a_builtin": (WRONG, "replaces what it is measured by: triton_vs_tilus.common.accuracy.max"),
    "replaces_a_builtin": (WRONG, "replaces what it is measured by: builtins.max"),
    "writes_its_verdict": (WRONG, "pipe that the worker has not signed"),
    "has_the_parent_run_code": (WRONG, "pipe that the worker has not signed"),
    "cuts_a_message_short": (CRASHED, "exit code 3"),
    "signs_its_verdict": (PASSED, ""),
    "pickles_its_verdict": (PASSED, ""),
    "finds_the_answer": (WRONG, "stale"),
    "spoils_the_answer": (WRONG, "elements are NaN"),
    "knows_the_seed": (WRONG, "stale"),
    "zeroes_the_inputs": (WRONG, "changes its input a"),
    "replaces_a_kernel_first": (WRONG, "replaces what it is measured by: triton_vs_tilus.kernels_triton.semaphore"),
    # After each that spoils its process comes one that a spoiled process could call right.
    "has_the_judge_forget": (WRONG, "replaces what it is measured by: Accuracy.ok"),
    "narrower": (WRONG, "over the bound"),
    "keeps_its_process": (WRONG, "replaces what it is measured by: __main__.healthy, Accuracy.ok"),
    "skips_some_of_k": (WRONG, "over the bound"),
    "replaces_what_the_worker_calls": (WRONG, "replaces what it is measured by: __main__.healthy"),
    "one_row_for_all": (WRONG, "over the bound"),
    "overrides_an_operator": (WRONG, "replaces what it is measured by: aten::clone"),
    "stands_in_for_the_worker": (WRONG, "replaces what it is measured by: sys.modules.triton_vs_tilus.bench"),
    "copies_an_input": (WRONG, "over the bound"),
}
ON_A_GPU: dict[str, Expected] = ANYWHERE | {
    "signs_its_verdict": (WRONG, "while timed cold: what came through the worker's pipe is no answer"),
    "pickles_its_verdict": (WRONG, "while timed cold"),
    "illegal_access": (CRASHED, "illegal memory access"),
    "spins": (TIMED_OUT, "deadline"),
    "other_stream": (WRONG, "current stream"),
    "other_stream_in_order": (PASSED, ""),
    "waits": (PASSED, "a call waits for the GPU"),
    "spins_while_timed": (TIMED_OUT, "while timed"),
    "illegal_access_while_timed": (CRASHED, "while timed"),
    "wrong_after_a_while": (WRONG, "while timed"),
    "background_thread": (WRONG, ""),
    "patches_the_clock": (WRONG, "replaces what it is measured by"),
    "cached_but_for_the_first": (WRONG, "while timed cold"),
    "skips_while_timed": (WRONG, "while timed cold"),
    "threads_while_timed": (WRONG, "while timed cold"),
    "thread_left_while_timed": (WRONG, "while timed cold: leaves 1 threads running when its call returns"),
    "native_thread_while_timed": (WRONG, "while timed cold: leaves 1 threads running when its call returns"),
    "other_stream_while_timed": (WRONG, "while timed cold"),
    "lingers_on_a_stream": (WRONG, "while timed cold"),
    "sets_l2_aside": (WRONG, "sets L2 aside"),
    "keeps_b_in_l2": (WRONG, "sets L2 aside"),
    "batches_and_skips": (WRONG, "while timed "),  # cold or in a graph: by when its host takes a pause
    "once_a_capture": (WRONG, "call 2 of "),
    "leaves_out_a_fifth": (WRONG, "call 41 of "),
    "idles_in_a_fifth": (WRONG, "call 41 of "),
    "one_memory_for_all": (PASSED, "not timed graph: returns one memory for several argument sets"),
    "cached_by_version": (WRONG, "while timed cold"),
    "cached_by_a_sample": (PASSED, "a call waits for the GPU"),
    "computes_in_a_hook": (WRONG, "while timed cold: leaves Python's trace or profile hook on"),
    "computes_in_a_mode": (WRONG, "while timed cold: leaves a mode of torch on"),
    "returns_its_sums": (WRONG, "while timed cold: returns torch.float32"),
    "runs_ahead": (SUSPICIOUS, "by the GPU's timeline"),
    "computes_in_a_collection": (WRONG, "while timed cold: leaves Python's garbage collection on"),
    "computes_on_a_signal": (WRONG, "while timed cold: leaves a timer on"),
    "computes_in_an_operator": (WRONG, "while timed cold: leaves another dispatch of torch's operators on"),
    "changes_what_is_expected": (CRASHED, "while timed cold: TypeError: out has dtype torch.float32"),
    "answers_when_it_is_asked": (WRONG, "while timed cold: error nan"),
    "frees_what_others_use": (WRONG, "while timed cold: frees or resizes memory that all contenders share"),
    "process_left_while_timed": (WRONG, "while timed cold: leaves a process that it began when its call returns"),
    "process_ended_while_timed": (PASSED, ""),
}
if hasattr(sys, "monitoring"):  # since Python 3.12
    ON_A_GPU["computes_in_a_monitor"] = WRONG, "while timed cold: leaves a hook of Python's monitoring on"


def name_of(function: str) -> str:
    return f"candidate/{ADVERSARIES}:{function}"


def rows_of(functions: Iterable[str], options: Options, problem: Matmul) -> dict[str, Row]:
    """The rows of these adversaries, and that of the baseline by its own name."""
    contenders = [find(BASELINE), *(find(name_of(function)) for function in functions)]
    with Child(options.deadline_s) as child, builders(options.deadline_s) as children:
        rows = list(measure("test", problem, contenders, options, child, child, children))
    assert sorted(row.contender for row in rows) == sorted(kernel.full_name for kernel in contenders)
    return {row.contender.rpartition(":")[2]: row for row in rows}


# Who fails while it is timed has the others of its group timed again.
GROUPS = [tuple(ON_A_GPU)[first : first + 8] for first in range(0, len(ON_A_GPU), 8)]


def rows_on_a_gpu(group: tuple[str, ...]) -> dict[str, Row]:
    return rows_of(group, Options(deadline_s=20.0, rounds=10), PROBLEM)


def verdict(row: Row, expected: Expected) -> Verdict:
    """Of an adversary's row."""
    function = row.contender.rpartition(":")[2]
    status, message = expected
    return Verdict(
        adversary=function,
        does=" ".join((getattr(adversaries, function).__doc__ or "").split()),
        expected=status,
        expected_message=message,
        status=row.status,
        message=row.message.replace(str(ADVERSARIES), "tests/adversaries.py"),
        environment=row.environment,
        time=row.time,
    )


def keep(path: Path, found: Iterable[Verdict]) -> None:
    replace_text(path, "".join(map(to_line, found)))


def kept(path: Path) -> dict[str, Verdict]:
    """By adversary, those of which is expected now what was expected then."""
    found = {each.adversary: each for each in read_verdicts(path)} if path.exists() else {}
    return {name: each for name, each in found.items() if ON_A_GPU.get(name) == (each.expected, each.expected_message)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="(default: in bench/results of this GPU)")
    parser.add_argument("--resume", action="store_true", help="keep what FILE has, of whatever revision")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device; without one tests/test_worker.py runs what it can")
    path = asked.file or queries.RESULTS / tuned.slug_of(torch.device("cuda", 0)) / "referee" / "adversaries.jsonl"
    held = kept(path) if asked.resume else {}
    for group in GROUPS:
        if not held.keys() >= set(group):
            rows = rows_on_a_gpu(group)
            held |= {function: verdict(rows[function], ON_A_GPU[function]) for function in group}
            keep(path, held.values())
    for each in held.values():
        if not each.as_expected:
            print(f"{each.adversary}: {each.status}, expected {each.expected}: {each.message}")
    right = sum(each.as_expected for each in held.values())
    print(f"{path}: {right} of {len(held)} as expected")
    return 0 if right == len(held) else 1


if __name__ == "__main__":
    sys.exit(main())
