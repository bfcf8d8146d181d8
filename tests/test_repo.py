"""The project's own rules: a kernel file is registered, has its twin or a reason, a test and a note."""

from pathlib import Path

import pytest

import kernels_tilus
import kernels_triton
from common.kernel import Kernel

ROOT = Path(__file__).parent.parent
PACKAGES = {"triton": kernels_triton, "tilus": kernels_tilus}
# What serves every kernel file of a package, and is none itself.
SHARED = {
    "__init__",
    "arrival",
    "atomics",
    "band",
    "bitwise",
    "dependent_launch",
    "epilogue",
    "interpreter",
    "launching",
    "mma",
    "simt",
    "sliced_k",
    "wgmma",
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


@pytest.mark.parametrize("path", sorted((ROOT / "common").glob("*.py")), ids=lambda path: path.stem)
def test_common_knows_neither_language_nor_benchmark(path):
    words = {
        line.split()[1].split(".")[0] for line in path.read_text().splitlines() if line.startswith(("import", "from"))
    }
    assert not words & {"triton", "tilus", "kernels_triton", "kernels_tilus", "bench", "tests"}
