"""The project's own rules: a kernel file has its record, twin or reason, test and note; who may import whom."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.common.kernel import Kernel

ROOT = Path(__file__).parent.parent
PACKAGES = {"triton": kernels_triton, "tilus": kernels_tilus}
# What serves every kernel file of a package, and is none itself.
SHARED = {
    "__init__",
    "arrival",
    "atomics",
    "band",
    "bitwise",
    "build_options",
    "configs",
    "dependent_launch",
    "epilogue",
    "interpreter",
    "kernel_attributes",
    "lane_dot",
    "launching",
    "mma",
    "named_barriers",
    "offline",
    "partials",
    "prepare",
    "push",
    "simt",
    "sliced_dot",
    "starting",
    "wgmma",
    "wgmma_specialized",
}


def kernel_files(package) -> set[str]:
    return {path.stem for path in Path(package.__file__).parent.glob("*.py")} - SHARED


ALL_NAMES = sorted(set.union(*(kernel_files(package) for package in PACKAGES.values())))


@pytest.mark.parametrize("language", PACKAGES)
def test_every_kernel_file_is_registered(language):
    package = PACKAGES[language]
    assert {kernel.name for kernel in package.KERNELS} == kernel_files(package)
    assert all(isinstance(kernel, Kernel) and kernel.language.value == language for kernel in package.KERNELS)


def test_names_are_unique():
    names = [kernel.full_name for package in PACKAGES.values() for kernel in package.KERNELS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("language", PACKAGES)
def test_every_kernel_has_its_twin_or_a_reason(language):
    own = kernel_files(PACKAGES[language])
    others = set.union(*(kernel_files(package) for name, package in PACKAGES.items() if name != language))
    assert set(PACKAGES[language].NO_TWIN) == others - own
    assert all(PACKAGES[language].NO_TWIN.values())


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_kernel_is_tested_and_noted(name):
    assert f'"{name}"' in (ROOT / "tests" / f"test_{name}.py").read_text()
    assert name in (ROOT / "notes" / f"{name}.md").read_text()


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that a file imports, wherever in it: those of `from package import module` as package.module too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level and node.module, f"{path}: imports are absolute"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def within(modules: frozenset[str], *packages: str) -> set[str]:
    """Those of the modules that are one of the packages, or lie in one."""
    return {module for module in modules if module.startswith(tuple(f"{package}." for package in packages))} | (
        modules & set(packages)
    )


NAME = "triton_vs_tilus"
KERNELS = (f"{NAME}.kernels_triton", f"{NAME}.kernels_tilus")
# What the files of a folder may not import.
FORBIDDEN = {
    "common": ("triton", "tilus", *KERNELS, f"{NAME}.bench"),
    "kernels_triton": ("tilus", KERNELS[1], f"{NAME}.bench"),
    "kernels_tilus": ("triton", KERNELS[0], f"{NAME}.bench"),
    "bench/rows": (f"{NAME}.bench.search", f"{NAME}.bench.show"),
    "bench/measure": (f"{NAME}.bench.show",),
    "bench/search": (f"{NAME}.bench.show",),
    "bench/references": (f"{NAME}.bench.show",),
    "bench/show": ("torch", f"{NAME}.bench.measure", f"{NAME}.bench.search", *KERNELS),
}
COMMANDS = (
    "answer",
    "compare",
    "report",
    "record",
    "claims",
    "resources",
    "counters",
    "dispatch",
    "prebuild",
    "tuned",
    "sanitize",
    "site",
    "stages",
)


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_a_room_imports_nothing_that_it_must_not_know(folder):
    files = python_files(folder)
    assert files
    assert {path.name: found for path in files if (found := within(imported(path), *FORBIDDEN[folder], "tests"))} == {}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_imported_by_nothing(command):
    own = ROOT / "bench" / f"{command}.py"
    others = [path for path in python_files("common", "kernels_triton", "kernels_tilus", "bench") if path != own]
    assert own.exists()
    assert [path.name for path in others if within(imported(path), f"{NAME}.bench.{command}")] == []


def python_in(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_readmes_examples_run(capsys):
    """On the CPU, in the interpreters; and those of the page of the commands."""
    (in_model,) = python_in("README.md")
    call, _, look = python_in("notes/usage.md")
    exec(look, {})
    assert "self.dot(" in capsys.readouterr().out
    linear = torch.nn.Linear(64, 16, dtype=torch.bfloat16).requires_grad_(False)
    given = {"a": torch.randn(4, 64).bfloat16(), "b": torch.randn(64, 16).bfloat16(), "linear": linear}
    if torch.cuda.is_available():
        given = {name: value.cuda() for name, value in given.items()}
    calls = {call.func.id: call for call in ast.walk(ast.parse(in_model)) if isinstance(call, ast.Call)}
    options = [{each.arg: ast.dump(each.value) for each in calls[name].keywords} for name in ("prepare", "linear")]
    assert options[0].pop("max_tokens") and options[0] == options[1]  # else other programs are built than called
    if not torch.cuda.is_available():  # where `prepare` has nothing to build for
        in_model = "\n".join(line for line in in_model.splitlines() if not line.startswith("prepare("))
    exec(in_model, given | {"router": given["linear"], "x": given["a"]})
    exec(call, given)
    assert given["c"].shape == (4, 16) and (given["c"] >= 0).all()
