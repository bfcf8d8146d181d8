"""Compiles the tilus programs that tests launch on a GPU, on a machine that has nvcc and no GPU: most of the time that
the suite takes on a GPU's machine goes there. A plugin; no kernel is run, and every test is skipped.

    python -m pytest tests/ -p ahead --ahead built     # here
    python bench/prebuild.py --adopt built             # there, then pytest tests/
"""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

# Triton's kernels cannot be imported for the interpreter and compiled; theirs are compiled in seconds anyway.
os.environ["TRITON_INTERPRET"] = "1"

import matmul_cases
import pytest
import torch

from triton_vs_tilus.bench.search import prebuilt
from triton_vs_tilus.kernels_tilus import launching, offline

TARGET = "sm_90a"


def pytest_addoption(parser):
    parser.addoption("--ahead", metavar="DIR", type=Path, required=True, help="a folder for bench/prebuild.py --adopt")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    folder = config.getoption("ahead").resolve()
    if not hasattr(config, "workerinput"):
        prebuilt.claim(folder, "tilus", {**offline.identity(), "target": TARGET})
    offline.compile_for(TARGET, folder / "tilus")
    scripts = set()  # held, so that each is another object

    def launch(script, *args):
        if script not in scripts:
            scripts.add(script)
            offline.build(partial(launching.build, script))

    launching.launch = launch
    # What was launched has no result; the other configs of a test are built as well.
    matmul_cases.assert_right = torch.testing.assert_close = lambda *args, **options: None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.own_markers[:] = [marker for marker in item.own_markers if marker.name != "skip"]
    items[:] = [item for item in items if "tilus" in item.nodeid.rpartition("[")[2]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    with suppress(Exception):  # of a test whose results are not there
        yield
    pytest.skip("its programs are built, and nothing is run")
