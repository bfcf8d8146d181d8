"""Who there is, who is chosen, who sits out; the baseline and candidates as contenders."""

import argparse
import importlib
import json
import shutil
from dataclasses import replace

import pytest
import torch
from made_rows import VECTOR, row

from triton_vs_tilus.bench import candidate, cli, contenders
from triton_vs_tilus.bench.references import torch_mm
from triton_vs_tilus.bench.rows import environment, queries
from triton_vs_tilus.bench.rows.row import BASELINE
from triton_vs_tilus.bench.sources import source_hash
from triton_vs_tilus.common import compilers, tuned
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language
from triton_vs_tilus.common.problem import Layout, Matmul


@pytest.fixture
def fresh():
    """The list of packages is made anew, before and after."""
    contenders._imported.cache_clear()
    yield
    contenders._imported.cache_clear()


@pytest.fixture
def no_tilus(fresh, monkeypatch):
    real = importlib.import_module

    def broken(name, *rest):
        if name.endswith("_tilus"):
            raise AttributeError("module 'tvm_ffi' has no attribute 'x'")
        return real(name, *rest)

    monkeypatch.setattr(contenders.importlib, "import_module", broken)


def names(kernels) -> list[str]:
    return [kernel.full_name for kernel in kernels]


def products() -> list[Kernel]:
    """Those that multiply matrices."""
    return [kernel for kernel in contenders.all_contenders() if kernel.op == Matmul.op]


def test_references_and_both_languages_are_listed_once_each():
    known = contenders.all_contenders()
    assert {kernel.language for kernel in known} == set(Language) - {Language.CANDIDATE}
    assert names(known)[0] == BASELINE
    assert len(set(names(known))) == len(known)
    assert all(contenders.find(kernel.full_name) is kernel for kernel in known)


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(KeyError, match=BASELINE):
        contenders.find("triton/no_such_kernel")


def test_a_package_that_cannot_be_imported_costs_only_its_own(no_tilus):
    lost = set(Language) - {kernel.language for kernel in contenders.all_contenders()}
    assert lost == {Language.TILUS, Language.PUBLISHED_TILUS, Language.CANDIDATE}
    reason = contenders.not_importable()[Language.TILUS]
    assert "kernels_tilus cannot be imported: AttributeError: module 'tvm_ffi'" in reason
    with pytest.raises(KeyError, match="cannot be imported"):
        contenders.find("tilus/semaphore.fp32")
    with pytest.raises(ValueError, match="cannot be imported"):
        contenders.choose(contenders.all_contenders(), only=["tilus"])


@pytest.mark.parametrize(
    "pattern", [VECTOR, "*k.vector", "triton/*.vector", "tri*/decompose_k.vector", "triton/decompose_k.vecto[r]"]
)
def test_a_contender_is_named_in_many_ways(pattern):
    known = [kernel for kernel in products() if kernel.language is not Language.TILUS]
    assert names(contenders.choose(known, only=[pattern])) == [BASELINE, VECTOR]


def test_files_and_languages_name_all_of_theirs():
    known = products()
    assert {k.name for k in contenders.choose(known, only=["decompose_k"])} == {"mm", "decompose_k"}
    in_triton = contenders.choose(known, only=["triton/decompose_k"], skip=["torch"])
    assert {(k.language.value, k.name) for k in in_triton} == {("torch", "mm"), ("triton", "decompose_k")}
    assert {k.language.value for k in contenders.choose(known, only=["triton", "tilus"])} == {
        "torch",
        "triton",
        "tilus",
    }
    assert {k.language.value for k in contenders.choose(known, skip=["triton"])} == {"torch", "cublaslt", "tilus"}
    assert contenders.choose(known, only=["triton"], skip=["*.tile"]) == [
        kernel
        for kernel in known
        if kernel.full_name == BASELINE or (kernel.language is Language.TRITON and kernel.variant != "tile")
    ]


def test_the_baseline_stays_whatever_is_skipped():
    assert names(contenders.choose(products(), skip=["*"])) == [BASELINE]
    assert names(contenders.choose(products(), only=[BASELINE], skip=["triton"])) == [BASELINE]


def test_who_is_named_and_skipped_is_told():
    told = "--skip is 'triton'; accepted: what leaves one of --only 'triton/atomic'"
    with pytest.raises(ValueError, match=f"^{told}$"):
        contenders.choose(products(), only=["triton/atomic"], skip=["triton"])


@pytest.mark.parametrize("flag", ["only", "skip"])
def test_a_name_of_nothing_is_an_error(flag):
    with pytest.raises(
        ValueError, match=rf"--{flag} is 'tritn'; accepted: names and parts of names that .* lists, the nearest: triton"
    ):
        contenders.choose(contenders.all_contenders(), **{flag: ["tritn"]})


def test_without_a_gpu_each_language_says_where_it_is_checked(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(environment, "version", lambda _: "1")
    assert {language: contenders.availability(language) for language in Language} == {
        Language.TORCH: "runs on the CPU",
        Language.TRITON: "runs in Triton's interpreter",
        Language.TILUS: "runs in tilus' interpreter",
        Language.PUBLISHED_TRITON: "runs in Triton's interpreter",
        Language.PUBLISHED_TILUS: "runs in tilus' interpreter",
        Language.CANDIDATE: "runs on the CPU",
        Language.HELION: "needs a CUDA device",
        Language.FLASHINFER: "needs a CUDA device",
        Language.TLX: "needs a CUDA device",
        Language.GLUON: "needs a CUDA device",
        Language.CUBLASLT: "needs a CUDA device",
        Language.CUTE_DSL: "needs a CUDA device",
        Language.HUMMING: "needs a CUDA device",
    }
    monkeypatch.setattr(environment, "version", lambda _: None)
    assert "helion is not installed" in contenders.availability(Language.HELION)


def test_with_a_gpu_all_that_is_installed_runs_on_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compilers.shutil, "which", lambda tool: f"/{tool}")
    monkeypatch.setattr(compilers, "version", lambda package: "0.1.12")
    assert contenders.availability(Language.TRITON) == contenders.availability(Language.TILUS) == "runs on the GPU"
    monkeypatch.setattr(compilers, "version", lambda package: "0.1.13")
    assert "install apache-tvm-ffi<0.1.13" in contenders.availability(Language.TILUS)


@pytest.mark.parametrize(
    ("missing", "told"), [(("nvcc",), "nvcc not found"), (("nvcc", "g++"), "nvcc and g++ not found")]
)
def test_without_its_compilers_only_tilus_sits_out(monkeypatch, missing, told):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    real = shutil.which
    monkeypatch.setattr(compilers.shutil, "which", lambda tool: None if tool in missing else real(tool) or f"/{tool}")
    monkeypatch.setattr(compilers.Path, "exists", lambda path: False)
    assert told in contenders.environment_reason(Language.TILUS)
    assert contenders.environment_reason(Language.TORCH) is None
    assert contenders.environment_reason(Language.TRITON) is None


def test_triton_needs_a_c_compiler(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compilers.shutil, "which", lambda tool: None)
    monkeypatch.delenv("CC", raising=False)
    assert "neither gcc nor clang" in contenders.environment_reason(Language.TRITON)
    monkeypatch.setenv("CC", "/opt/cc")
    assert contenders.environment_reason(Language.TRITON) is None


@pytest.mark.parametrize(("found", "sits_out"), [("0.1.12", False), ("0.1.13", True), ("0.1.13.post1", True)])
def test_tilus_sits_out_where_its_code_cannot_compile(monkeypatch, found, sits_out):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compilers.shutil, "which", lambda tool: f"/{tool}")
    monkeypatch.setattr(compilers, "version", lambda package: found)
    assert bool(contenders.environment_reason(Language.TILUS)) is sits_out


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("epilogue", Epilogue)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_baseline_is_right(dtype, epilogue, layout, device):
    problem = Matmul(5, 33, 71, dtype, layout=layout, epilogue=epilogue)
    inputs = problem.inputs(device)
    out = torch.full((5, 33), float("nan"), dtype=dtype, device=device)
    result = torch_mm.matmul(inputs.a, inputs.b, epilogue=epilogue, bias=inputs.bias, out=out)
    assert result.data_ptr() == out.data_ptr()
    judge = Judge(problem, inputs)
    assert judge.judge(out).ok
    assert not judge.judge(torch.zeros_like(out)).ok
    fresh = torch_mm.matmul(inputs.a, inputs.b, epilogue=epilogue, bias=inputs.bias)
    assert torch.equal(fresh, out)


@pytest.mark.gpu
@pytest.mark.parametrize("epilogue", Epilogue)
def test_the_baseline_writes_a_wider_output(epilogue, device):
    problem = Matmul(5, 33, 71, torch.bfloat16, torch.float32, epilogue=epilogue)
    inputs = problem.inputs(device)
    out = torch_mm.matmul(inputs.a, inputs.b, epilogue=epilogue, bias=inputs.bias, out_dtype=torch.float32)
    assert out.dtype is torch.float32
    assert Judge(problem, inputs).judge(out).ok


PLAIN = "def f(a, b):\n    return a @ b\n"
INTO_OUT = "def f(a, b, out):\n    import torch\n    return torch.mm(a, b, out=out)\n"
WITH_EPILOGUE = (
    "import torch\n"
    "def f(a, b, *, out, epilogue, bias):\n"
    "    torch.mm(a, b, out=out)\n"
    "    if bias is not None:\n"
    "        out += bias\n"
    "    if 'relu' in epilogue:\n"
    "        out.relu_()\n"
    "    return out\n"
)
IN_TORCH = "timed with the epilogue in torch"


def made(tmp_path, source: str):
    file = tmp_path / "brought.py"
    file.write_text(source)
    candidate._module.cache_clear()
    candidate.candidate.cache_clear()
    return contenders.find(f"candidate/{file}:f")


@pytest.mark.parametrize(
    ("source", "epilogue", "note"),
    [
        (PLAIN, Epilogue.NONE, ""),
        (PLAIN, Epilogue.BIAS_RELU, IN_TORCH),
        (INTO_OUT, Epilogue.NONE, ""),
        (INTO_OUT, Epilogue.BIAS_RELU, IN_TORCH),
        (WITH_EPILOGUE, Epilogue.BIAS_RELU, ""),
    ],
)
def test_a_candidate_is_right_and_says_what_is_timed_with_it(tmp_path, source, epilogue, note, device):
    kernel = made(tmp_path, source)
    assert kernel.full_name == f"candidate/{tmp_path}/brought.py:f"
    problem = Matmul(5, 33, 71, epilogue=epilogue)
    inputs = problem.inputs(device)
    out = torch.full((5, 33), float("nan"), dtype=torch.bfloat16, device=device)
    result = kernel.launch(inputs.a, inputs.b, epilogue=epilogue, bias=inputs.bias, out=out, config=None)
    assert (result.data_ptr() == out.data_ptr()) == (source is not PLAIN)  # no launch is added to move C
    assert Judge(problem, inputs).judge(result, 3).ok  # the epilogue in torch rounds twice more
    assert kernel.note() == note


@pytest.mark.parametrize(
    ("source", "error", "told"),
    [
        ("def g(a, b): return a", AttributeError, "has no function f"),
        ("f = 3", AttributeError, "has no function f"),
        ("import no_such_module", ModuleNotFoundError, "no_such_module"),
        ("def f(a, b:", SyntaxError, "never closed"),
    ],
)
def test_a_candidate_fails_when_called_and_not_before(tmp_path, source, error, told, device):
    kernel = made(tmp_path, source)
    inputs = Matmul(5, 33, 71).inputs(device)
    with pytest.raises(error, match=told):
        kernel.launch(inputs.a, inputs.b)


def test_a_candidate_imports_what_lies_beside_it(tmp_path, device):
    (tmp_path / "its_helper.py").write_text("def product(a, b): return a @ b")
    kernel = made(tmp_path, "from its_helper import product as f")
    inputs = Matmul(5, 33, 71).inputs(device)
    assert kernel.launch(inputs.a, inputs.b).shape == (5, 33)


@pytest.mark.parametrize("place", ["brought.py", "brought:f", "brought.py:", "brought.py:a b"])
def test_a_candidate_is_a_file_and_a_function(place):
    with pytest.raises(ValueError, match=r"accepted: FILE\.py:FUNCTION"):
        candidate.candidate(place)


def test_a_candidates_file_is_there():
    with pytest.raises(FileNotFoundError, match=r"there is no file no_such_file\.py"):
        candidate.candidate("no_such_file.py:f")


def test_a_name_with_a_split_is_the_kernel_with_that_split(device):
    problem = Matmul(4, 32, 1024)
    base, split = contenders.find("tilus/semaphore.fp32"), contenders.find("tilus/semaphore.fp32@s3")
    assert split.full_name == "tilus/semaphore.fp32@s3"
    config = split.default_config(problem)
    assert config.split_k == 3
    taken, _ = tuned.pick(base, problem, tuned.slug_of(device))
    assert replace(config, split_k=taken.split_k) == taken
    inputs = problem.inputs("cpu")
    out = split.launch(inputs.a, inputs.b, config=config)
    torch.testing.assert_close(out, inputs.a @ inputs.b, rtol=2e-2, atol=2e-2)
    chosen = contenders.choose(products(), only=2 * ["tilus/semaphore.fp32@s3"])
    assert [kernel.full_name for kernel in chosen] == ["torch/mm", "tilus/semaphore.fp32@s3"]


def test_a_candidate_takes_part_whoever_else_is_named(tmp_path):
    place = tmp_path / "mine.py"
    place.write_text("def f(a, b):\n    return a @ b\n")
    kernels = contenders.all_contenders([f"{place}:f"])
    chosen = {kernel.language for kernel in contenders.choose(kernels, only=["triton"])}
    assert chosen == {Language.TORCH, Language.TRITON, Language.CANDIDATE}


@pytest.mark.parametrize(("tokens", "source"), [(16, "split"), (32, "nearest"), (16 << 8, "heuristic")])
def test_a_given_split_takes_the_rest_of_what_the_kernel_would_take(tuned_tables, tokens, source):
    base, split = contenders.find("tilus/semaphore.fp32"), contenders.find("tilus/semaphore.fp32@s3")
    searched = dict(block_m=16, block_n=32, block_k=128, split_k=4, num_warps=2, num_stages=5, engine="mma")
    entry = {"problem": Matmul(16, 256, 7168).key, "config": searched, "search": {"source": source_hash(base)}}
    (tuned_tables / "made-up.json").write_text(json.dumps({base.full_name: [entry]}))
    problem = Matmul(tokens, 256, 7168)
    expected = base.default_config(problem) if source == "heuristic" else base.config_from(searched)
    assert contenders.pick(split, problem, "made-up") == (replace(expected, split_k=3), source)
    assert contenders.pick(base, problem, "made-up")[0] == expected


def test_a_matched_contender_takes_what_the_other_languages_kernel_would(tuned_tables, monkeypatch):
    """Told apart: searched for this very shape, for the nearest one, and what the language cannot run."""
    base = contenders.find("triton/atomic")
    monkeypatch.setattr(contenders, "_slug", lambda: "made-up")
    tiles = {16: dict(block_m=16, engine="mma"), 256: dict(block_m=64, engine="wgmma_pairs")}
    shared = dict(block_n=64, block_k=128, split_k=7, num_warps=4, num_stages=4)
    entries = [
        {
            "problem": Matmul(m, 256, 7168, layout=Layout.NK).key,
            "config": {**shared, **tile},
            "search": {"source": source_hash(contenders.find("tilus/atomic"))},
        }
        for m, tile in tiles.items()
    ]
    (tuned_tables / "made-up.json").write_text(json.dumps({"tilus/atomic": entries}))
    matched = contenders.find("triton/atomic@tilus")
    assert (matched.full_name, matched.language, matched.protocol) == (
        "triton/atomic@tilus",
        base.language,
        base.protocol,
    )
    same = base.config_type(block_m=16, **shared)
    for tokens, source in ((16, "matched"), (17, "nearest")):
        problem = Matmul(tokens, 256, 7168, layout=Layout.NK)
        assert matched.supports(problem, None) is None
        assert contenders.pick(matched, problem, "made-up") == (same, source)
    reason = matched.supports(Matmul(256, 256, 7168, layout=Layout.NK), None)
    assert reason == "tilus/atomic's config: Triton has no multicast between the blocks of a cluster"


@pytest.mark.parametrize("name", ["tilus/cluster", "triton/atomic", "tilus/last_arriver"])
def test_a_contender_takes_the_config_of_another_kernel_of_its_language(name):
    """What splits K over blocks has the fields of one config; what meets in them differs."""
    language, _, lender = name.partition("/")
    named = f"{language}/decompose_k.vector@{lender}"
    (matched,) = contenders.choose(products(), [named])[1:]
    problem = Matmul(64, 256, 7168, layout=Layout.NK)
    assert matched.full_name == named and matched.supports(problem, None) is None
    lent, source = contenders.pick(contenders.find(name), problem, "h200")
    config, matched_source = contenders.pick(matched, problem, "h200")
    assert {field: value for field, value in vars(config).items() if field in vars(lent)} == vars(lent)
    assert matched_source == ("matched" if source == "tuned" else source)
    assert contenders.launched(matched, problem, "h200") == config  # by which it is built ahead
    assert contenders.counterpart(named) is None
    assert row(named).is_matched and not row(f"{language}/decompose_k.vector@s4").is_matched


def test_matched_contenders_come_in_pairs():
    names = ["triton/atomic", "tilus/atomic", "tilus/cluster", "decompose_k.vector_unfused"]
    chosen = {kernel.full_name for kernel in contenders.choose(products(), names, matched=True)}
    assert {name for name in chosen if "@" in name} == {"triton/atomic@tilus", "tilus/atomic@triton"}
    (alone,) = contenders.choose(products(), ["tilus/atomic@triton"])[1:]
    assert alone.full_name == "tilus/atomic@triton"
    for wrong in ("tilus/atomic@tilus", "torch/mm@tilus", "tilus/atomic@none", "tilus/atomic@w4a16.atomic"):
        with pytest.raises(ValueError, match=f"no contender '{wrong}': "):
            contenders.choose(products(), [wrong])


def test_a_borrowing_contender_takes_the_config_of_the_nearest_other_problem(tuned_tables, monkeypatch):
    """Of problems that were searched, by this kernel or a former one; of others it says that there is nothing to leave
    out."""
    monkeypatch.setattr(contenders, "_slug", lambda: "made-up")
    base, problems = contenders.find("tilus/atomic"), [Matmul(m, 256, 7168, layout=Layout.NK) for m in (8, 16, 64)]
    shared = dict(block_m=16, block_n=64, block_k=128, num_warps=4, num_stages=4, engine="mma")
    entries = [
        {"problem": problem.key, "config": {**shared, "split_k": split_k}}
        for problem, split_k in zip(problems, (7, 14, 4), strict=True)
    ]
    entries[1]["search"] = {"source": source_hash(base)}
    (tuned_tables / "made-up.json").write_text(json.dumps({"tilus/atomic": entries}))
    borrowing = contenders.find("tilus/atomic@borrowed")
    assert (borrowing.full_name, borrowing.variant) == ("tilus/atomic@borrowed", "@borrowed")
    for problem, source, split_k in zip(problems, ("stale", "tuned", "stale"), (14, 7, 14), strict=True):
        assert contenders.pick(base, problem, "made-up")[1] == source
        config, borrowed_source = contenders.pick(borrowing, problem, "made-up")
        assert (config.split_k, borrowed_source) == (split_k, "nearest")
        assert borrowing.supports(problem, None) is None and borrowing.default_config(problem) == config
        assert contenders.launched(borrowing, problem, "made-up") == config  # by which it is built ahead
    unsearched = Matmul(17, 256, 7168, layout=Layout.NK)
    assert base.supports(unsearched, None) is None
    assert borrowing.supports(unsearched, None) == contenders.NOT_SEARCHED
    assert contenders.launched(borrowing, unsearched, "made-up") is None
    with pytest.raises(ValueError, match="no config was searched for this very problem"):
        contenders.pick(borrowing, unsearched, "made-up")
    refused = base.config_type(**{**shared, "block_k": 100}, split_k=7)
    reason = base.supports(problems[0], refused)
    assert reason and borrowing.supports(problems[0], refused) == reason


def test_borrowing_contenders_stand_beside_all_that_are_searched():
    names = ["triton/atomic", "tilus/atomic@s4", "tilus/cluster", "decompose_k.vector_unfused"]
    chosen = [kernel.full_name for kernel in contenders.choose(products(), names, matched=True, borrowed=True)]
    assert [name for name in chosen if "@" in name and not name.endswith("@s4")] == [
        "triton/atomic@borrowed",
        "tilus/cluster@borrowed",
    ]
    (alone,) = contenders.choose(products(), ["tilus/atomic@borrowed"])[1:]
    assert alone.full_name == "tilus/atomic@borrowed"
    for wrong in ("torch/mm@borrowed", "tilus/decompose_k.vector_unfused@borrowed", "tilus/none@borrowed"):
        with pytest.raises(ValueError, match=f"no contender '{wrong}': |no contender 'tilus/none': "):
            contenders.choose(products(), [wrong])
    held_out = row("tilus/atomic@borrowed")
    assert held_out.is_held_out and not held_out.is_matched and queries.contending([held_out]) == []


@pytest.mark.parametrize("flag", ["--matched", "--borrowed"])
def test_lent_configs_are_those_that_were_searched_before(flag):
    flags = argparse.ArgumentParser()
    cli.add_contender_flags(flags)
    cli.add_measuring_flags(flags)
    asked = ["--only", "triton/atomic", "--only", "tilus/atomic", flag]
    assert len(cli.chosen_contenders(flags.parse_args(asked), {"matmul"})) == 5
    with pytest.raises(cli.UsageError, match=f"{flag} takes its configs .* search with --tune first"):
        cli.chosen_contenders(flags.parse_args([*asked, "--tune", "full"]), {"matmul"})


def test_whom_a_contender_is_held_against():
    pairs = {
        "tilus/atomic": "triton/atomic",
        "triton/semaphore.fp32": "tilus/semaphore.fp32",
        "tilus/atomic@triton": "triton/atomic",
        "triton/atomic@tilus": "tilus/atomic",
        "tilus/atomic@borrowed": "tilus/atomic",
        "tilus/atomic@s4": None,
        "torch/mm": None,
    }
    assert {name: contenders.counterpart(name) for name in pairs} == pairs


@pytest.mark.parametrize(
    "name", ["tilus/nothing@s3", "tilus/or_reduce.fold@s2", "tilus/semaphore.fp32@s0", "tilus/semaphore.fp32@sx"]
)
def test_a_split_of_nothing_is_an_error(name):
    with pytest.raises(ValueError, match=rf"no contender|--only is {name!r}"):
        contenders.choose(contenders.all_contenders(), only=[name])
