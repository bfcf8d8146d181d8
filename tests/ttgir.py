"""Forms of a program of Triton: TTGIR, the last before LLVM, says where a tensor stands; PTX. Without a GPU.

Where tests run, Triton interprets, which is settled as it is imported. Here it compiles, in another process, which the
tests of a process share: importing takes longer than compiling.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.measure.process import Child
from triton_vs_tilus.common import compilers
from triton_vs_tilus.common.kernel import Config
from triton_vs_tilus.common.problem import Problem

DEADLINE_S = 120


def ttgir(name: str, problem: Problem, configs: Sequence[Config], folder: Path, placement: Any = None) -> list[str]:
    """Of a contender's kernel for sm_90a, one text a config. Skips the test where this machine cannot compile.
    placement: of the tensors (None: as torch allocates them). folder: for this program alone."""
    call(_compile, name, problem, configs, folder, placement)
    return _texts("ttgir", len(configs), folder)


def ptx(name: str, problem: Problem, configs: Sequence[Config], folder: Path, placement: Any = None) -> list[str]:
    """As `ttgir`."""
    ttgir(name, problem, configs, folder, placement)
    return _texts("ptx", len(configs), folder)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """What function(*args, announce=...) of a test's module returns where Triton compiles. Skips the test where this
    machine cannot."""
    if reason := compilers.triton_lacks():
        pytest.skip(reason)
    return _compiler().call(function, *args)


def environment() -> Mapping[str, str]:
    """Variables of a process that compiles, and finds the modules beside this one."""
    here = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(here), "TRITON_INTERPRET": "0"}


@cache
def _compiler() -> Child:
    """It ends with this process."""
    return Child(DEADLINE_S, environment=environment())


def _texts(form: str, configs: int, folder: Path) -> list[str]:
    found = [list((folder / str(number)).rglob(f"*.{form}")) for number in range(configs)]
    assert all(found), f"no {form} in {folder}"
    return [path.read_text() for paths in found for path in paths]


def _compile(
    name: str,
    problem: Problem,
    configs: Sequence[Config],
    folder: Path,
    placement: Any,
    *,
    announce: Callable[[str], None],
) -> None:
    from triton_vs_tilus.kernels_triton import launching, offline

    announce(name)
    kernel = contenders.find(name)
    for number, config in enumerate(configs):
        offline.compile_for("sm_90a", folder / str(number))
        if placement is None:
            offline.build(partial(kernel.build, problem, config))
        else:
            offline.build(partial(launching.build_plan, kernel.plan(problem, config, placement)))
