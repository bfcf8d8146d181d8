"""The wheel installs one top-level package, beside an application that has a common/ and a bench/ of its own."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("common", "kernels_triton", "kernels_tilus", "bench")
BUILT_FROM = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")
OF_A_CHECKOUT = (".ci", "tests", "notes", "examples", "patches", "constraints.txt", "CHANGELOG.md", "CONTRIBUTING.md")
APPLICATION = """
import bench
import common
import torch

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.kernels_tilus import semaphore
from triton_vs_tilus.kernels_triton import decompose_k

assert common.NAME == bench.NAME == "the application's own"
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
a, weight = (torch.randn(rows, 130, device=device).bfloat16() for rows in (3, 24))
expected = torch.relu(a.double() @ weight.T.double())
for kernel in (decompose_k, semaphore):
    c = kernel.matmul(a, weight.T, epilogue=Epilogue.RELU)
    torch.testing.assert_close(c.double(), expected, rtol=2e-2, atol=2e-2)
    print(kernel.__file__)
"""


def pip(*arguments: str | Path) -> None:
    """Runs pip without a network; where pip fails the assertion shows its output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    environment = {**os.environ, "PIP_NO_INDEX": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert done.returncode == 0, done.stdout


def files_of(folder: Path, parts: Sequence[str] = PACKAGES) -> set[str]:
    """The files of a folder's parts, by their paths below it."""
    of_each = ([folder / part, *(folder / part).rglob("*")] for part in parts)
    paths = (path for paths in of_each for path in paths if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths if "__pycache__" not in path.parts}


def copied(names: Sequence[str], folder: Path) -> Path:
    """The folder, with copies: a build in the checkout would take up what an earlier one left there."""
    for name in names:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder in which the wheel is installed, without its dependencies."""
    source = copied(BUILT_FROM, tmp_path_factory.mktemp("source"))
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source)
    (wheel,) = wheels.iterdir()
    pip("install", "--no-deps", "--no-compile", "--target", site, wheel)
    return site


def test_one_package_is_installed_with_every_file_of_the_checkout(site):
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"triton_vs_tilus"}
    installed = files_of(site / "triton_vs_tilus")
    assert installed == files_of(ROOT)
    assert installed >= {f"{package}/py.typed" for package in PACKAGES}
    assert {path.name for path in (site / "triton_vs_tilus").iterdir()} == set(PACKAGES)
    (licence,) = site.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()


def test_a_source_distribution_is_a_checkout(tmp_path):
    """With all that the tests and the documents' commands read."""
    source = copied((*BUILT_FROM, *OF_A_CHECKOUT, "MANIFEST.in"), tmp_path)
    build = "from setuptools.build_meta import build_sdist; build_sdist('.')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = source.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {member.name.partition("/")[2] for member in packed if member.isfile()}
    assert files_of(ROOT, (*BUILT_FROM, *OF_A_CHECKOUT)) <= names


def test_an_application_with_packages_of_the_same_names_calls_both_languages(site, tmp_path):
    for name in ("common", "bench"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('NAME = "the application\'s own"\n')
    (tmp_path / "main.py").write_text(APPLICATION)
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])  # tilus may lie there
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kernels = site / "triton_vs_tilus"
    assert done.stdout.split() == [
        str(kernels / language / name)
        for language, name in (("kernels_triton", "decompose_k.py"), ("kernels_tilus", "semaphore.py"))
    ]
