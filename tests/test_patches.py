"""The patches for tilus: they apply to the sources that are installed, pass their own tests, and make the code that
this project's replacements make."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cuda_source
import pytest
import tilus
from test_kernel_attributes import PROBLEMS, lines
from test_wgmma import KN, NK, WGMMA, instructions
from test_wgmma_specialized import SPECIALIZED

from triton_vs_tilus.bench import contenders

pytestmark = pytest.mark.xdist_group("patches")  # its fixtures are long: once, not once a process

ROOT = Path(__file__).parent.parent
PATCHES = sorted((ROOT / "patches").glob("*.patch"))
KERNELS = {
    "plain": ("tilus/or_reduce.shuffle", PROBLEMS["or_reduce"], None),
    "dependent": ("tilus/decompose_k.vector_pdl", PROBLEMS["matmul"], None),
    "kn": ("tilus/data_parallel", KN, WGMMA),
    "nk": ("tilus/data_parallel", NK, WGMMA),
    "warpgroups": ("tilus/data_parallel", NK, replace(WGMMA, block_n=128, block_k=64, num_warps=8)),
    "warpgroups_of_columns": (
        "tilus/data_parallel",
        KN,
        replace(WGMMA, block_m=64, block_n=128, block_k=64, num_warps=8),
    ),
    "group": ("tilus/data_parallel", NK, replace(SPECIALIZED, split_k=1)),
}
REPLACED = """
import json, sys
from pathlib import Path

from tilus.backends import codegen
from tilus.backends.contexts import sync_ctx
from tilus.backends.emitter import BaseInstEmitter
from tilus.backends.emitters.cuda import wgmma as theirs
from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.builders import FunctionBuilder
from tilus.hidet.ir.primitives.cuda.sync import bar_sync_aligned
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.layout.inference.inference_rules.wgmma import WgmmaMmaSSRule
from tilus.target import nvgpu_sm90a

check, infer = theirs.WgmmaBaseEmitter.check_warp_group, WgmmaMmaSSRule.inference

import test_patches as tests
from triton_vs_tilus.kernels_tilus import dependent_launch, kernel_attributes

# What the package has replaced is tilus' own again.
codegen.FunctionBuilder = FunctionBuilder
sync_ctx.bar_sync_aligned = bar_sync_aligned
UpdatedCUDACodeGen.visit_Function = kernel_attributes._function
UpdatedCUDACodeGen.visit_LaunchKernelStmt = dependent_launch._launch
theirs.WgmmaBaseEmitter.check_warp_group = check
WgmmaMmaSSRule.inference = staticmethod(infer)
BaseInstEmitter.REGISTRY[WgmmaMmaSSInst][nvgpu_sm90a] = theirs.WgmmaMmaSSEmitter
print(json.dumps({name: tests.sources(name, Path(sys.argv[1])) for name in tests.KERNELS}))
"""


def sources(name: str, folder: Path) -> list[str]:
    full_name, problem, config = KERNELS[name]
    kernel = contenders.find(full_name)
    cuda_source._SOURCES.clear()
    return cuda_source.cuda_sources(kernel, problem, config or kernel.default_config(problem), folder)


def checkout(folder: Path) -> Path:
    """tilus' installed sources, where its repository has them."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(tilus.__file__).parent, folder / "python" / "tilus", ignore=ignored)
    return folder


def git_apply(folder: Path, patch: Path, *options: str) -> None:
    subprocess.run(["git", "apply", *options, str(patch)], cwd=folder, check=True)


@pytest.fixture(scope="module")
def patched(tmp_path_factory) -> Path:
    folder = checkout(tmp_path_factory.mktemp("tilus"))
    for patch in PATCHES:
        git_apply(folder, patch, "--check")
        git_apply(folder, patch)
    return folder


def run(folder: Path, *command: str, status: int = 0) -> str:
    """Of a Python that has the tilus of this folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder / "python"), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "--continue-on-collection-errors", "tests")


def test_each_patch_brings_a_test():
    for patch in PATCHES:
        assert "\n+++ b/tests/" in patch.read_text(), patch.name
    assert all(f"({patch.name})" in (ROOT / "patches" / "README.md").read_text() for patch in PATCHES)


def test_the_patched_tilus_passes_the_tests_of_the_patches(patched):
    found = run(patched, *PYTEST)
    assert "passed" in found and "failed" not in found


def test_without_its_patch_a_test_fails(tmp_path):
    """Patch 1, which the tests of the others call, and of those the tests alone."""
    first, *others = PATCHES
    git_apply(checkout(tmp_path), first)
    for patch in others:
        git_apply(tmp_path, patch, "--include=tests/*")
    found = run(tmp_path, *PYTEST, status=1)
    failed = set(re.findall(r"^(?:FAILED|ERROR) (tests/\S+\.py)", found, re.MULTILINE))
    assert failed == {name for patch in others for name in re.findall(r"\+\+\+ b/(tests/\S+)", patch.read_text())}


@pytest.fixture(scope="module")
def theirs(patched, tmp_path_factory) -> dict[str, list[str]]:
    """The sources of KERNELS as the patched tilus makes them, without this project's replacements."""
    return json.loads(run(patched, "-c", REPLACED, str(tmp_path_factory.mktemp("sources"))).splitlines()[-1])


def without_unrolling(text: str) -> list[str]:
    return [line for line in lines(text) if line.strip() != "#pragma unroll"]


@pytest.mark.parametrize("name", ["plain", "dependent"])
def test_the_patched_tilus_writes_what_the_replacements_write(name, theirs, tmp_path):
    ours = sources(name, tmp_path)
    assert [without_unrolling(text) for text in ours] == [without_unrolling(text) for text in theirs[name]]
    assert any("cudaLaunchKernelEx" in text for text in ours) == (name == "dependent")


@pytest.mark.parametrize("name", ["kn", "nk", "warpgroups", "warpgroups_of_columns"])
def test_the_patched_tilus_issues_the_products_of_the_replacements(name, theirs, tmp_path):
    (our,), (their,) = sources(name, tmp_path), theirs[name]
    of_the_model = re.sub(r"[ab]_warpgroup_addr", "shared_addr", their)
    assert instructions(our) == instructions(of_the_model) != []


def test_the_patched_tilus_syncs_a_group_as_the_replacement_does(theirs, tmp_path):
    (our,), (their,) = sources("group", tmp_path), theirs["group"]
    issued = re.findall(r"asm .*bar\.sync.*;", our)
    assert issued == re.findall(r"asm .*bar\.sync.*;", their.replace("bar.cta.sync", "bar.sync")) != []
