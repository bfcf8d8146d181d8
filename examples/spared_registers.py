"""What ptxas makes of kernels that say nothing of registers, and of the same kernels as they are: registers of a
thread, and how many trips to memory its loads take one after the other. Needs nvcc and no GPU, and minutes.

    python examples/spared_registers.py > spared_registers.txt

The router's product with the weight stored [N, K], by the H200's configs; each launch whose trips differ.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import tilus.backends.codegen as codegen

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics import resources
from triton_vs_tilus.bench.diagnostics.ptx import GpuKernel
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.problem import Layout, Matmul

TOKENS = (1, 16, 64, 256, 512, 1024)
TARGET, TABLE = "sm_90a", "h200"

with_all_registers = codegen.FunctionBuilder


def sparing_builder(*args: Any, **settings: Any) -> Any:
    """As tilus builds a kernel: its launch bounds name threads alone."""
    builder = with_all_registers(*args, **settings)
    builder.attrs.pop("cuda.min_blocks", None)
    return builder


def sparing_options(num_warps: int) -> dict[str, int]:
    """Of a block in Triton, in place of configs.block_options."""
    return {"num_warps": num_warps}


def compiled(build: Callable[[], None], language: Language) -> list[GpuKernel]:
    with TemporaryDirectory() as folder:
        return resources.COMPILE[language](build, TARGET, Path(folder))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(", ".join(resources.compilers_of(language)[0] for language in (Language.TRITON, Language.TILUS)))
    kernels = [one for one in contenders.all_contenders() if one.language in (Language.TRITON, Language.TILUS)]
    for tokens in TOKENS:
        problem = Matmul(tokens, 256, 7168, layout=Layout.NK)
        for kernel in (one for one in kernels if one.op == problem.op and not one.supports(problem, None)):
            config, _ = tuned.pick(kernel, problem, TABLE)
            build = partial(kernel.build, problem, config)
            with ExitStack() as patches:
                patches.enter_context(mock.patch.object(codegen, "FunctionBuilder", sparing_builder))
                for module in (one for one in list(sys.modules.values()) if hasattr(one, "block_options")):
                    patches.enter_context(mock.patch.object(module, "block_options", sparing_options))
                before = compiled(build, kernel.language)
            for old, new in zip(before, compiled(build, kernel.language), strict=True):
                if old.trips != new.trips:
                    print(
                        f"T = {tokens:4}  {kernel.full_name:30} {old.name:30} registers {old.registers:3} -> "
                        f"{new.registers:3}, trips {old.trips:2} -> {new.trips}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
