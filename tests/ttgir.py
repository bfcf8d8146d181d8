"""Forms of a program of Triton: TTGIR, the last before LLVM, says where a tensor stands; PTX. Without a GPU."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.kernel import Config
from triton_vs_tilus.common.problem import Problem


def ttgir(name: str, problem: Problem, configs: Sequence[Config], folder: Path, placement: Any = None) -> list[str]:
    """Of a contender's kernel for sm_90a, one text a config; in a process of its own, as this one may interpret. Skips
    the test where this machine cannot compile. placement: of the tensors (None: as torch allocates them)."""
    if reason := compilers.triton_lacks():
        pytest.skip(reason)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    asked = pickle.dumps((name, problem, configs, folder, placement))
    subprocess.run([sys.executable, __file__], env=environment, input=asked, check=True, capture_output=True)
    return _texts("ttgir", len(configs), folder)


def ptx(name: str, problem: Problem, configs: Sequence[Config], folder: Path, placement: Any = None) -> list[str]:
    """As `ttgir`."""
    ttgir(name, problem, configs, folder, placement)
    return _texts("ptx", len(configs), folder)


def _texts(form: str, configs: int, folder: Path) -> list[str]:
    return [path.read_text() for number in range(configs) for path in (folder / str(number)).rglob(f"*.{form}")]


if __name__ == "__main__":
    from triton_vs_tilus.kernels_triton import launching, offline

    name, problem, configs, folder, placement = pickle.load(sys.stdin.buffer)
    kernel = contenders.find(name)
    for number, config in enumerate(configs):
        offline.compile_for("sm_90a", folder / str(number))
        if placement is None:
            offline.build(partial(kernel.build, problem, config))
        else:
            offline.build(partial(launching.build_plan, kernel.plan(problem, config, placement)))
