"""The command that builds ahead, on a machine with or without a GPU, what `linear` will take for a weight:

    python -m triton_vs_tilus.kernels_tilus.prepare 7168x256 --max-tokens 1024 --arch sm_90a

Each kernel package has one. Programs go into the language's own cache on disk, as those that a call builds.
"""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence

import torch

from triton_vs_tilus.common import building, devices, dispatch, tuned
from triton_vs_tilus.common.building import Program
from triton_vs_tilus.common.epilogue import ACTIVATIONS, Epilogue
from triton_vs_tilus.common.files import InvalidFile
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.linear import ways
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import DTYPES, Layout, Matmul

__all__ = ["main"]

RECORDED = {"sm_90a": "h200"}  # the device whose times decide for a target, where none is here
NICENESS = 10  # of a build: the process that asked for it has calls to make


def parser(name: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=f"python -m {name}", description=__doc__.split(":")[0])
    made.add_argument("weight", metavar="KxN", type=_sizes, nargs="*", help="of x [T, K] @ weight [N, K].T; repeatable")
    made.add_argument("--max-tokens", metavar="T", type=int, default=1024, help="1 to T rows (default: %(default)s)")
    made.add_argument("--arch", metavar="sm_NN", help="of the GPU, e.g. sm_90a (default: that of this machine's)")
    made.add_argument("--device", metavar="SLUG", help="whose measured times decide, e.g. h200 (default: by the GPU)")
    made.add_argument("--dtype", choices=DTYPES, default="bf16", help="(default: %(default)s)")
    made.add_argument("--out-dtype", choices=DTYPES, help="(default: that of the inputs)")
    made.add_argument("--bias", action="store_true", help="with a bias")
    made.add_argument("--activation", choices=ACTIVATIONS, help="with an activation")
    made.add_argument("--deterministic", action="store_true", help="bitwise the same result in every run")
    made.add_argument("--program", help=argparse.SUPPRESS)  # -: one program, as building.Program.to_json, on stdin
    return made


def _sizes(text: str) -> tuple[int, int]:
    """'7168x256' -> (7168, 256): K, N."""
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)):
        raise argparse.ArgumentTypeError(f"weight is {text}; accepted: KxN, e.g. 7168x256")
    k, n = map(int, match.groups())
    return k, n


def main(
    name: str,
    kernels: Sequence[Kernel],
    lacks: Callable[[], str | None],
    build: Callable[[Program], None],
    arguments: Sequence[str] | None = None,
) -> int:
    """The exit code: 0 all built, 1 one cannot be, 2 usage. build: compiles for a target that need not be here, into
    the language's cache, in a process that does nothing else."""
    made = parser(name)
    args = made.parse_args(arguments)
    if reason := lacks():
        made.error(reason)
    if args.program:
        program = building.program_from(json.load(sys.stdin), kernels)
        os.nice(NICENESS)
        with devices.compiling_for(building.capability_of(program.target)):
            build(program)
        building.mark_built(program)
        return 0
    if not args.weight:
        made.error("a weight KxN is needed, e.g. 7168x256")
    if args.max_tokens < 1:
        made.error(f"--max-tokens is {args.max_tokens}; accepted: 1 or more")
    if args.out_dtype not in (None, args.dtype, "fp32"):
        made.error(f"--out-dtype is {args.out_dtype}; accepted: that of the inputs, {args.dtype}, or fp32")
    here = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    if args.arch is None and here is None:
        made.error("there is no CUDA device; --arch says what to build for, e.g. sm_90a")
    target_here = building.target_of(torch.cuda.get_device_capability(here)) if here else ""
    target: str = args.arch or target_here
    if not re.fullmatch(r"sm_\d{2,}a?", target) or target in ("sm_90", "sm_100"):  # which no GPU's own target is
        made.error(f"--arch is {target}; accepted: sm_80, sm_89, sm_90a, sm_100a, ...")
    if args.device not in (None, *dispatch.devices()):
        made.error(f"--device is {args.device}; accepted: {', '.join(dispatch.devices())}")
    slug = args.device or (tuned.slug_of(here) if target == target_here else RECORDED.get(target, target))
    if not dispatch.table(slug):
        print(f"no kernel was timed on {slug}: the rule of thumb of common/dispatch.py decides", file=sys.stderr)
    failed = False
    dtype, epilogue = DTYPES[args.dtype], Epilogue.of(args.activation, args.bias)
    for k, n in args.weight:
        problem = Matmul(1, n, k, dtype, DTYPES[args.out_dtype or args.dtype], Layout.NK, epilogue)
        with devices.compiling_for(building.capability_of(target)):
            try:
                found = ways(kernels, problem, args.max_tokens, contiguous(problem), slug, target, args.deterministic)
            except InvalidFile as error:
                made.error(str(error))
        reasons = building.build_now(list(found))
        for program, choice in found.items():
            print(f"{k}x{n} from {program.problem.m} rows on: {choice}")
        for program, reason in reasons.items():
            failed = True
            print(f"{program} cannot be built: {reason}", file=sys.stderr)
        print(f"{k}x{n}: {len(found) - len(reasons)} programs for {target}; torch for the rest")
    return int(failed)
