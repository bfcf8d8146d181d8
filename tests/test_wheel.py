"""The wheel installs one top-level package, beside an application that has a common/ and a bench/ of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("common", "kernels_triton", "kernels_tilus", "bench")
BUILT_FROM = (*PACKAGES, "pyproject.toml", "README.md", "LICENSE")
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


def files_of(folder: Path) -> set[str]:
    """The files of the packages in a folder, by their paths below it."""
    paths = (path for package in PACKAGES for path in (folder / package).rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder in which the wheel is installed, without its dependencies."""
    source = tmp_path_factory.mktemp("source")  # a build in the checkout would take up what an earlier one left there
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
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
