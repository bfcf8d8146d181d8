"""The tuned tables: found by shape, the nearest where the shape is not there, the heuristic where nothing is.

The user's layer lies over the shipped one.
"""

import hashlib
import json
from dataclasses import replace
from functools import partial

import pytest
import torch
from matmul_cases import lacks

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.references import cublaslt
from triton_vs_tilus.bench.rows.environment import environment
from triton_vs_tilus.common import call, tuned
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul

KERNEL = contenders.find("triton/decompose_k.vector")


def entry(problem: Matmul, split_k: int) -> dict:
    config = dict(block_m=16, block_n=16, block_k=64, split_k=split_k, num_warps=1, num_stages=4)
    return {"problem": problem.key, "config": config}


def picked(problem: Matmul, slug: str = "some-gpu") -> tuple[int, str]:
    """The split of the config that a lookup finds, and how it was found."""
    config, source = tuned.pick(KERNEL, problem, slug)
    return config.split_k, source


BY_RULE = [
    *(Matmul(7, n, k, layout=layout) for n in (1, 2, 3) for k in (1, 1024, 4096) for layout in Layout),
    *(Matmul(m, 32, 256, torch.float32) for m in (1, 64)),
    Matmul(7, 1, 4096, epilogue=Epilogue.RELU),
    W4A16Matmul(1, 64, 256),
    W4A16Matmul(65, 512, 8192),
]


@pytest.mark.parametrize("name", [kernel.full_name for kernel in (*kernels_triton.KERNELS, *kernels_tilus.KERNELS)])
def test_without_a_table_a_config_that_runs_is_found(name, tuned_tables):
    """The rule of thumb's, or another where that one cannot run."""
    kernel = contenders.find(name)
    tuned.refresh()
    for problem in (problem for problem in BY_RULE if problem.op == kernel.op):
        if kernel.supports(problem, None) is None:
            config, source = tuned.pick(kernel, problem, "some-gpu")
            assert source == "heuristic" and kernel.supports(problem, config) is None, problem


def test_a_problem_for_which_no_config_runs_is_refused(tuned_tables):
    kernel = contenders.find("tilus/decompose_k.vector")
    problem = Matmul(1, 1, 2**31 - 1)
    assert kernel.supports(problem, None) is None and not kernel.configs(problem)
    with pytest.raises(ValueError, match=r"no config runs; the rule of thumb's, .*: a strip of 8 rows and 1 columns"):
        call.chosen_config(kernel, problem, None, torch.device("cpu"))


def test_exact_nearest_and_heuristic(tuned_tables):
    near, far = Matmul(16, 256, 7168), Matmul(512, 256, 7168)
    other_layout = Matmul(32, 256, 7168, layout=Layout.NK)
    entries = [entry(near, 8), entry(far, 2), entry(other_layout, 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))
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


def test_what_a_library_offers_for_one_problem_is_lent_to_no_other(tuned_tables, monkeypatch):
    kernel, searched = contenders.find("cublaslt/best"), Matmul(16, 256, 7168)
    assert {contenders.find(name).full_name for name in tuned.OF_ONE_PROBLEM} == tuned.OF_ONE_PROBLEM
    offered = {"problem": searched.fields, "config": {"workspace_mib": 4, "index": 7}}
    tuned.write("some-gpu", [(kernel.full_name, offered)], shipped=True)
    monkeypatch.setattr(cublaslt, "_lacks_library", lambda: None)
    assert tuned.pick(kernel, searched, "some-gpu") == (kernel.config_from(offered["config"]), "tuned")
    halves = torch.bfloat16, torch.float16
    others = [replace(searched, epilogue=Epilogue.RELU), replace(searched, out_dtype=torch.float32)]
    others += [replace(searched, dtype=half, out_dtype=half) for half in halves if half is not searched.dtype]
    for other in (Matmul(32, 256, 7168), replace(searched, layout=Layout.NK), *others):
        assert tuned.pick(kernel, other, "some-gpu") == (kernel.default_config(other), "heuristic")
    monkeypatch.setitem(tuned.STAND_INS, "its-sister", "some-gpu")
    assert tuned.pick(kernel, searched, "its-sister") == (kernel.default_config(searched), "heuristic")


def test_a_device_takes_what_was_searched_on_its_stand_in(tuned_tables, monkeypatch):
    monkeypatch.setitem(tuned.STAND_INS, "its-sister", "some-gpu")
    near, far = Matmul(16, 256, 7168), Matmul(64, 256, 7168)
    tuned.write("some-gpu", [(KERNEL.full_name, entry(problem, 8)) for problem in (near, far)], shipped=True)
    of_stand_in = tuned.fingerprint("its-sister")
    sisters = partial(picked, slug="its-sister")
    assert sisters(near) == sisters(far) == (8, "nearest") and tuned.entry_of(KERNEL, near, "its-sister") is None
    tuned.write("its-sister", [(KERNEL.full_name, entry(near, 4))], shipped=False)
    assert sisters(near) == (4, "tuned") and sisters(far) == (8, "nearest")
    assert sisters(Matmul(32, 256, 7168)) == (4, "nearest")  # as near to both: its own
    assert picked(near) == (8, "tuned")
    assert of_stand_in == tuned.fingerprint("some-gpu") != tuned.fingerprint("its-sister")


def test_without_its_own_entry_a_problem_borrows_as_one_that_was_not_searched(tuned_tables, monkeypatch):
    """By the same rule: the nearest, of those that run; a stand-in's of this very problem is not taken either."""
    near, own, far = (Matmul(m, 256, 7168) for m in (8, 16, 64))
    tuned.write("some-gpu", [(KERNEL.full_name, entry(of, of.m)) for of in (near, own, far)], shipped=True)
    before = tuned.borrowed(KERNEL, own, "some-gpu")
    assert (before[0].split_k, before[1]) == (8, "nearest") and picked(own) == (16, "tuned")
    monkeypatch.setitem(tuned.STAND_INS, "its-sister", "some-gpu")
    tuned.write("its-sister", [(KERNEL.full_name, entry(own, 4))], shipped=True)
    assert tuned.borrowed(KERNEL, own, "its-sister")[0].split_k == 8
    of_few = replace(KERNEL, supports=lambda problem, config: "no" if config and config.split_k == 8 else None)
    assert tuned.borrowed(of_few, own, "some-gpu")[0].split_k == 64
    tuned.path_of("some-gpu", shipped=True).write_text("{}")
    tuned.write("some-gpu", [(KERNEL.full_name, entry(of, of.m)) for of in (near, far)], shipped=True)
    assert tuned.pick(KERNEL, own, "some-gpu") == before  # as where it is not there
    tuned.path_of("some-gpu", shipped=True).write_text("{}")
    tuned.write("some-gpu", [(KERNEL.full_name, entry(own, 16))], shipped=True)
    assert tuned.borrowed(KERNEL, own, "some-gpu") == (KERNEL.default_config(own), "heuristic")


def test_what_is_far_gives_way_to_another_layout_that_is_not(tuned_tables):
    entries = [entry(Matmul(1, 4, 256), 8), entry(Matmul(16, 256, 7168, layout=Layout.NK), 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))
    assert picked(Matmul(16, 256, 7168)) == (4, "nearest")


def test_another_dtype_comes_after_all_of_this_one(tuned_tables):
    """CUDA cores multiply fp32, tensor cores the rest: what is best for the one says little of the other."""
    half, single = Matmul(16, 16, 8192), Matmul(16, 16, 32768, torch.float32)
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: [entry(half, 8), entry(single, 4)]}))
    for problem, split_k in ((replace(half, dtype=torch.float32, out_dtype=None), 4), (replace(half, k=32768), 8)):
        assert picked(problem) == (split_k, "nearest")


def test_of_configs_that_cannot_run_the_next_nearest_is_taken(tuned_tables):
    by_tma = entry(Matmul(16, 256, 7168), 8)
    by_tma["config"]["tma"] = True
    entries = [by_tma, entry(Matmul(64, 256, 7168), 4)]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({KERNEL.full_name: entries}))
    assert picked(Matmul(16, 256, 7170)) == (4, "nearest")
    (tuned_tables / "other-gpu.json").write_text(json.dumps({KERNEL.full_name: [by_tma]}))
    assert tuned.pick(KERNEL, Matmul(16, 256, 7170), "other-gpu")[1] == "heuristic"


@pytest.mark.parametrize("path", sorted(tuned.SHIPPED.glob("*.json")), ids=lambda path: path.stem)
def test_checked_in_tables_hold_configs_that_their_kernels_take(path):
    for name, entries in json.loads(path.read_text()).items():
        for item in entries:
            kernel = contenders.find(name)
            problem, config = OPS[kernel.op].problem.from_fields(item["problem"]), kernel.config_from(item["config"])
            # Where the kernel itself is not run, by an older Triton or GPU, nothing is said of its configs.
            assert kernel.supports(problem, config) in (None, lacks(kernel))


def splits(slug: str) -> dict[int, int]:
    """By M, the split that lookups find searched for a problem."""
    tuned.refresh()
    found = {m: picked(Matmul(m, 256, 7168), slug) for m in (16, 32, 64)}
    return {m: split_k for m, (split_k, source) in found.items() if source == "tuned"}


def test_the_users_entries_lie_over_the_shipped_ones(tuned_tables):
    """Those of the same problem replace, others stand beside; each layer is written alone."""
    problems = {m: Matmul(m, 256, 7168) for m in (16, 32, 64)}
    tuned.write("a-gpu", [(KERNEL.full_name, entry(problems[m], 2)) for m in (16, 32)], shipped=True)
    shipped = (tuned_tables / "a-gpu.json").read_bytes()
    assert tuned.devices() == ["a-gpu"]
    assert splits("a-gpu") == {16: 2, 32: 2}
    path = tuned.write("a-gpu", [(KERNEL.full_name, entry(problems[m], 8)) for m in (32, 64)], shipped=False)
    assert splits("a-gpu") == {16: 2, 32: 8, 64: 8}
    assert (tuned_tables / "a-gpu.json").read_bytes() == shipped and not path.is_relative_to(tuned_tables)
    assert [kept["problem"]["m"] for kept in json.loads(path.read_text())[KERNEL.full_name]] == [32, 64]
    tuned.write("a-gpu", [(KERNEL.full_name, entry(problems[32], 4))], shipped=True)
    assert splits("a-gpu") == {16: 2, 32: 8, 64: 8}
    tuned.write("a-gpu", [("tilus/atomic", entry(problems[32], 4))], shipped=False)
    tuned.write("another-gpu", [("tilus/atomic", entry(problems[32], 4))], shipped=False)
    assert tuned.devices() == ["a-gpu", "another-gpu"]
    assert splits("a-gpu") == {16: 2, 32: 8, 64: 8}


def test_entries_stand_by_layout_and_dtype_then_by_n_k_and_m_however_they_came(tuned_tables):
    in_order = [Matmul(32, 16, 64), Matmul(8, 64, 32), Matmul(16, 64, 32)]
    in_order += [Matmul(1, 1, 1, torch.float32), Matmul(1, 1, 1, layout=Layout.NK)]
    for problem in reversed(in_order):
        path = tuned.write("a-gpu", [(KERNEL.full_name, entry(problem, 2))], shipped=True)
    listed = json.loads(path.read_text())[KERNEL.full_name]
    assert [each["problem"] for each in listed] == [problem.key for problem in in_order]


def test_where_the_users_table_is(monkeypatch, tmp_path):
    monkeypatch.setenv(tuned.DATA_VARIABLE, str(tmp_path))
    assert tuned.path_of("a-gpu", shipped=False) == tmp_path / "tuned" / "a-gpu.json"
    monkeypatch.delenv(tuned.DATA_VARIABLE)
    monkeypatch.setattr(tuned, "user_data_path", lambda app: tmp_path / "share" / app)
    assert tuned.path_of("a-gpu", shipped=False) == tmp_path / "share" / "triton-vs-tilus" / "tuned" / "a-gpu.json"


def test_the_fingerprint_covers_both_layers(tuned_tables):
    near, far = ((KERNEL.full_name, entry(Matmul(m, 256, 7168), 2)) for m in (16, 512))
    assert tuned.fingerprint("a-gpu") is None
    tuned.write("a-gpu", [near], shipped=True)
    of_shipped = tuned.fingerprint("a-gpu")
    assert of_shipped == hashlib.sha256((tuned_tables / "a-gpu.json").read_bytes()).hexdigest()[:12]
    tuned.write("a-gpu", [near], shipped=False)
    assert tuned.fingerprint("a-gpu") == of_shipped
    tuned.write("a-gpu", [far], shipped=False)
    of_both = tuned.fingerprint("a-gpu")
    assert of_both != of_shipped
    tuned.write("a-gpu", [far], shipped=True)  # the same entries, in another layer
    assert tuned.fingerprint("a-gpu") == of_both


def test_a_row_has_the_fingerprint_of_both_layers(tuned_tables):
    device = torch.device("cpu")
    slug = tuned.slug_of(device)
    tuned.write(slug, [(KERNEL.full_name, entry(Matmul(16, 256, 7168), 2))], shipped=True)
    before = environment(device).tuned
    tuned.write(slug, [(KERNEL.full_name, entry(Matmul(16, 256, 7168), 4))], shipped=False)
    assert None not in (before, environment(device).tuned) and before != environment(device).tuned


def test_group_sizes_are_a_choice_and_no_size(tuned_tables):
    """The same groups at a farther size go before other groups at this one."""
    kernel = contenders.find("triton/w4a16.atomic")
    config = {"block_m": 16, "block_n": 32, "block_k": 128, "num_warps": 4, "num_stages": 3}
    searched = ((W4A16Matmul(16, 4096, 4096, group_size=32), 2), (W4A16Matmul(16, 8192, 8192, group_size=128), 8))
    entries = [{"problem": problem.key, "config": {**config, "split_k": split_k}} for problem, split_k in searched]
    (tuned_tables / "some-gpu.json").write_text(json.dumps({kernel.full_name: entries}))
    assert tuned.pick(kernel, W4A16Matmul(16, 4096, 4096, group_size=128), "some-gpu")[0].split_k == 8


def test_entries_of_another_version_are_passed_over(tuned_tables):
    """Of fields that the kernel or the problem no longer has, or has had since; of sizes that no problem has, and of
    values that no config has."""
    good = entry(Matmul(64, 256, 7168), 4)
    problem, config = entry(Matmul(16, 256, 7168), 8).values()
    fewer = {name: value for name, value in problem.items() if name != "layout"}
    broken = [
        {"problem": problem, "config": {**config, "waves": 2}},
        *({"problem": problem, "config": {**config, **wrong}} for wrong in ({"block_m": "16"}, {"split_k": 0})),
        {"problem": {**problem, "batch": 1}, "config": config},
        {"problem": fewer, "config": config},
        *({"problem": {**problem, "m": m}, "config": config} for m in (0, -4, "16", 16.0)),
    ]
    tuned.write("a-gpu", [(KERNEL.full_name, good)], shipped=True)
    for stale in broken:
        tuned.write("a-gpu", [(KERNEL.full_name, stale)], shipped=False)
        assert picked(Matmul(16, 256, 7168), "a-gpu") == (4, "nearest")


@pytest.mark.parametrize("text", ["{", "[]", '{"triton/atomic": [{}]}', '{"triton/atomic": [{"problem": 1}]}'])
def test_a_file_that_is_no_table_is_named(text, tuned_tables):
    (tuned_tables / "a-gpu.json").write_text(text)
    with pytest.raises(tuned.InvalidTable, match=r"a-gpu\.json is not a table"):
        tuned.pick(KERNEL, Matmul(16, 256, 7168), "a-gpu")


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
