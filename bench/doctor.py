"""`--doctor`: what is installed, found and missing here, and who sits out for it, on one screen."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch
from packaging.requirements import Requirement
from rich.console import Group
from rich.table import Table
from rich.text import Text

from bench.contenders import PACKAGES, all_contenders, environment_reason, not_importable, nvcc
from bench.environment import version

PROJECT = "triton-vs-tilus"
PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
FINE, BAD = "ok", "missing"


def requirements() -> list[Requirement]:
    """The constraints of pyproject.toml, of the checkout this runs from, or else of the installed package."""
    if PYPROJECT.exists():
        block = re.search(r"^dependencies = \[$(.*?)^\]", PYPROJECT.read_text(), re.DOTALL | re.MULTILINE).group(1)
        return [Requirement(text) for text in re.findall(r'^\s*"([^"]+)"', block, re.MULTILINE)]
    texts = metadata.requires(PROJECT) or []
    return [Requirement(text) for text in texts if "extra ==" not in text]


def packages() -> Iterator[tuple[str, str, str]]:
    """(package, version found, 'ok' or what is wrong with it) for each of pyproject.toml's."""
    for requirement in requirements():
        found = version(requirement.name)
        wanted = str(requirement.specifier) or "any version"
        if found is None:
            yield requirement.name, "", f"{BAD}: wants {wanted}"
        elif requirement.specifier.contains(found, prereleases=True):
            yield requirement.name, found, FINE
        else:
            yield requirement.name, found, f"wants {wanted}"


def machine() -> Iterator[tuple[str, str, str]]:
    """(what, what was found, 'ok' or what is wrong with it): the GPU and the tools around it."""
    yield "python", platform.python_version(), FINE
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = f"{properties.total_memory / 2**30:.0f} GiB, {properties.multi_processor_count} SMs"
            yield f"GPU {index}", f"{properties.name}, sm_{properties.major}{properties.minor}, {memory}", FINE
    else:
        built = f"torch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "torch is built without CUDA"
        yield "GPU", built, f"{BAD}: no CUDA device"
    yield "NVML", *_nvml()
    yield "nvcc", *_tool(nvcc(), r"release ([\d.]+)", "tilus compiles with it")
    yield "g++", *_tool(shutil.which("g++"), r"([\d.]+)$", "nvcc compiles with it")
    c_compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    yield (
        "C compiler",
        *_tool(c_compiler and shutil.which(c_compiler), r"([\d.]+)$", "Triton compiles launchers with it"),
    )


def _nvml() -> tuple[str, str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        driver, bindings = pynvml.nvmlSystemGetDriverVersion(), version("cuda-bindings") or ""
        if int(driver.split(".")[0]) < 580 and bindings.startswith("13."):
            return f"driver {driver}", f"cuda-bindings {bindings} wants driver 580 or later; else cuda-bindings<13"
        return f"driver {driver}", FINE
    except (ImportError, pynvml.NVMLError) as error:
        return "", f"{BAD}: rows will hold no clocks, power or temperature ({error})"


def _tool(path: str | None, pattern: str, use: str) -> tuple[str, str]:
    if path is None:
        return "", f"{BAD}: {use}"
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    number = re.search(pattern, said, re.MULTILINE)
    return f"{number.group(1) if number else ''} {path}".strip(), FINE


def sitting_out() -> Iterator[tuple[str, str]]:
    """(contenders, the reason, or 'takes part') by language."""
    for language in dict.fromkeys([*PACKAGES, *(kernel.language for kernel in all_contenders())]):
        names = [kernel.full_name for kernel in all_contenders() if kernel.language is language]
        reason = not_importable().get(language) or environment_reason(language)
        yield "\n".join(names) or f"{language.value}/*", reason or "takes part"


def screen() -> Group:
    """The whole report, to be printed by rich."""
    installed = _table("installed", ("package", "found", ""), packages())
    found = _table("found", ("what", "found", ""), machine())
    contenders = _table("contenders", ("contender", "on this machine"), sitting_out())
    precise = torch.backends.cuda.matmul
    settings = (
        f"torch.mm: allow_bf16_reduced_precision_reduction={precise.allow_bf16_reduced_precision_reduction}, "
        f"allow_fp16_reduced_precision_reduction={precise.allow_fp16_reduced_precision_reduction}, "
        f"allow_tf32={precise.allow_tf32}"
    )
    return Group(installed, found, contenders, Text(settings))


def _table(title: str, header: tuple[str, ...], lines: Iterator[tuple[str, ...]]) -> Table:
    table = Table(*header, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for line in lines:
        style = None if line[-1] in (FINE, "takes part") else "yellow"
        table.add_row(*(Text(cell) for cell in line), style=style)
    return table
