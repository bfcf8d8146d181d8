"""The tuned tables: found by shape, the nearest where the shape is not there, the heuristic where nothing is."""

import json
from dataclasses import replace

import pytest
import torch

from bench import contenders
from bench.ops import OPS
from common import tuned
from common.epilogue import Epilogue
from common.problem import Layout, Matmul

KERNEL = contenders.find("triton/decompose_k.vector")


def entry(problem: Matmul, split_k: int) -> dict:
    config = dict(block_m=16, block_n=16, block_k=64, split_k=split_k, num_warps=1, num_stages=4)
    return {"problem": problem.key, "config": config}


def test_exact_nearest_and_heuristic(tuned_tables):
    near, far = Matmul(16, 256, 7168), Matmul(512, 256, 7168)
    other_layout = Matmul(32, 256, 7168, layout=Layout.NK)
    entries = [entry(near, 8), entry(far, 2), entry(other_layout, 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))

    def picked(problem):
        config, source = tuned.pick(KERNEL, problem, "some-gpu")
        return config.split_k, source

    assert picked(near) == (8, "tuned")
    assert picked(replace(near, dtype=torch.float16, out_dtype=None)) == (8, "tuned")
    assert picked(replace(near, dtype=torch.float32, out_dtype=None)) == (8, "nearest")
    assert picked(Matmul(32, 256, 7168)) == (8, "nearest")
    assert picked(Matmul(300, 256, 7168)) == (2, "nearest")
    assert picked(Matmul(512, 256, 7168, layout=Layout.NK)) == (4, "nearest")
    assert picked(Matmul(1024, 1024, 28672)) == (2, "nearest")  # 2, 4 and 4 times as large: 32
    assert picked(Matmul(1024, 1024, 57344)) == (2, "nearest")  # 64
    for farther in (Matmul(1024, 1024, 57345), Matmul(512, 3, 7168), Matmul(1024, 1024, 57345, layout=Layout.NK)):
        assert tuned.pick(KERNEL, farther, "some-gpu") == (KERNEL.default_config(farther), "heuristic")
    assert tuned.pick(KERNEL, near, "unknown-gpu") == (KERNEL.default_config(near), "heuristic")


def test_what_is_far_gives_way_to_another_layout_that_is_not(tuned_tables):
    entries = [entry(Matmul(1, 4, 256), 8), entry(Matmul(16, 256, 7168, layout=Layout.NK), 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))
    config, source = tuned.pick(KERNEL, Matmul(16, 256, 7168), "some-gpu")
    assert (config.split_k, source) == (4, "nearest")


def test_another_dtype_comes_after_all_of_this_one(tuned_tables):
    """CUDA cores multiply fp32, tensor cores the rest: what is best for the one says little of the other."""
    half, single = Matmul(16, 16, 8192), Matmul(16, 16, 32768, torch.float32)
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: [entry(half, 8), entry(single, 4)]}))
    for problem, split_k in ((replace(half, dtype=torch.float32, out_dtype=None), 4), (replace(half, k=32768), 8)):
        config, source = tuned.pick(KERNEL, problem, "some-gpu")
        assert (config.split_k, source) == (split_k, "nearest")


def test_of_configs_that_cannot_run_the_next_nearest_is_taken(tuned_tables):
    by_tma = entry(Matmul(16, 256, 7168), 8)
    by_tma["config"]["tma"] = True
    entries = [by_tma, entry(Matmul(64, 256, 7168), 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))
    config, source = tuned.pick(KERNEL, Matmul(16, 256, 7170), "some-gpu")
    assert (config.split_k, source) == (4, "nearest")
    (tuned_tables / "other-gpu.json").write_text(json.dumps({KERNEL.full_name: [by_tma]}))
    assert tuned.pick(KERNEL, Matmul(16, 256, 7170), "other-gpu")[1] == "heuristic"


@pytest.mark.parametrize("path", sorted(tuned.TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_checked_in_tables_hold_configs_that_their_kernels_take(path):
    for name, entries in json.loads(path.read_text()).items():
        for item in entries:
            kernel = contenders.find(name)
            problem = OPS[kernel.op].problem.from_fields(item["problem"])
            assert kernel.supports(problem, kernel.config_from(item["config"])) is None


def test_device_slug():
    assert tuned.device_slug("NVIDIA H200") == "h200"
    assert tuned.device_slug("NVIDIA GeForce RTX 5090") == "rtx-5090"


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_what_an_epilogue_is_taken_out_of_keeps_its_config(language):
    whole, apart = (contenders.find(f"{language}/decompose_k.{variant}") for variant in ("vector", "vector_unfused"))
    for tokens in (1, 16, 100):
        problem = Matmul(tokens, 256, 7168, layout=Layout.NK, epilogue=Epilogue.RELU)
        config, source = tuned.pick(apart, problem, "h200")
        assert (config, source) == tuned.pick(whole, problem, "h200") and source != "heuristic"
