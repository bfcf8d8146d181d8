"""`--doctor`: what is installed, found and missing here, and how each language's contenders run, on one screen."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

import torch
from packaging.requirements import Requirement
from rich.console import Group
from rich.table import Table
from rich.text import Text

from triton_vs_tilus.bench.contenders import PACKAGES, all_contenders, availability, environment_reason
from triton_vs_tilus.bench.measure import nvml
from triton_vs_tilus.bench.rows.environment import version
from triton_vs_tilus.common.compilers import nvcc

PROJECT = "triton-vs-tilus"
LEAST_DRIVER_OF_BINDINGS_13 = 580


class Line(NamedTuple):
    """what was looked for, what was found, its state for a reader, and whether all is well with it."""

    what: str
    found: str
    state: str = "ok"
    fine: bool = True


def requirements() -> dict[str, list[Requirement]]:
    """The installed package's requirements that hold on this platform, by extra; '' for those of every install."""
    extras = metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    found: dict[str, list[Requirement]] = {extra: [] for extra in ("", *extras)}
    for requirement in map(Requirement, metadata.requires(PROJECT) or []):
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}):
            found[""].append(requirement)
        else:
            for extra in extras:
                if marker.evaluate({"extra": extra}):
                    found[extra].append(requirement)
    return found


def packages() -> Iterator[Line]:
    """Every required package, and an extra's package where it is installed in a version that the extra refuses."""
    for extra, required in requirements().items():
        for requirement in required:
            name, found, wanted = requirement.name, version(requirement.name), str(requirement.specifier)
            if found is None:
                if not extra:
                    yield Line(name, "", f"missing: wants {wanted or 'any version'}", fine=False)
            elif not requirement.specifier.contains(found, prereleases=True):
                yield Line(name, found, f"wants {wanted}{f' (extra {extra})' if extra else ''}", fine=False)
            elif not extra:
                yield Line(name, found)


def machine() -> Iterator[Line]:
    """Python, the GPUs and the tools around them."""
    yield Line("python", platform.python_version())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = f"{properties.total_memory / 2**30:.0f} GiB, {properties.multi_processor_count} SMs"
            yield Line(f"GPU {index}", f"{properties.name}, sm_{properties.major}{properties.minor}, {memory}")
    else:
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
        yield Line("GPU", built, "missing: no CUDA device", fine=False)
    yield _nvml()
    yield _tool("nvcc", nvcc(), r"release ([\d.]+)", "tilus compiles with it")
    yield _tool("g++", shutil.which("g++"), r"([\d.]+)$", "nvcc compiles with it")
    yield _tool("git", shutil.which("git"), r"version ([\d.]+)", "tilus runs it as it is imported")
    c_compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    use = "Triton compiles launchers with it"
    yield _tool("C compiler", c_compiler and shutil.which(c_compiler), r"([\d.]+)$", use)


def _nvml() -> Line:
    try:
        driver = nvml.host().driver
    except nvml.NVMLError as error:
        return Line("NVML", "", f"rows hold no clocks: {error}", fine=False)
    bindings = version("cuda-bindings") or ""
    if int(driver.split(".")[0]) < LEAST_DRIVER_OF_BINDINGS_13 and bindings.startswith("13."):
        wanted = f"driver {LEAST_DRIVER_OF_BINDINGS_13} or later; else cuda-bindings<13"
        return Line("NVML", f"driver {driver}", f"cuda-bindings {bindings} wants {wanted}", fine=False)
    return Line("NVML", f"driver {driver}")


def _tool(name: str, path: str | None, pattern: str, use: str) -> Line:
    if path is None:
        return Line(name, "", f"missing: {use}", fine=False)
    printed = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    number = re.search(pattern, printed, re.MULTILINE)
    return Line(name, f"{number.group(1) if number else ''} {path}".strip())


def languages() -> Iterator[Line]:
    """Each language: how many contenders it has, and how they run on this machine or why they cannot."""
    contenders = all_contenders()
    for language in dict.fromkeys([*PACKAGES, *(kernel.language for kernel in contenders)]):
        count = sum(kernel.language is language for kernel in contenders)
        yield Line(language.value, str(count), availability(language), fine=environment_reason(language) is None)


def screen() -> Group:
    """The whole report, to be printed by rich."""
    flags = {"bf16 reduction": "allow_bf16_reduced_precision_reduction"}
    flags |= {"fp16 reduction": "allow_fp16_reduced_precision_reduction", "tf32": "allow_tf32"}
    settings = ", ".join(f"{what} {getattr(torch.backends.cuda.matmul, flag)}" for what, flag in flags.items())
    return Group(
        _table(("package", "installed", ""), packages()),
        _table(("machine", "found", ""), machine()),
        _table(("language", "contenders", "on this machine; --list names each"), languages()),
        Text(f"torch.mm may reduce precision: {settings}"),
    )


def _table(header: tuple[str, str, str], lines: Iterable[Line]) -> Table:
    table = Table(*header, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line[:3]), style=None if line.fine else "yellow")
    return table
