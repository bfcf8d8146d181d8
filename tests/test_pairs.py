"""A pair differs by its language alone: names, order, signatures, arguments of kernels, helpers, wanted spaces.

A definition or an argument that only one language has says why: `# tilus alone: ...` or `# Triton alone: ...`, on the
line above it or behind it.
"""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from cuda_source import cuda_sources
from ttgir import ttgir

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import Feed, Tile
from triton_vs_tilus.common.w4a16 import W4A16Matmul
from triton_vs_tilus.kernels_tilus import configs as tilus_configs
from triton_vs_tilus.kernels_triton import configs as triton_configs

FOLDERS = {"triton": Path(kernels_triton.__file__).parent, "tilus": Path(kernels_tilus.__file__).parent}
PAIRS = sorted({kernel.name for kernel in kernels_triton.KERNELS} & {kernel.name for kernel in kernels_tilus.KERNELS})
BANDS = ["atomic", "cluster", "data_parallel", "decompose_k", "last_arriver", "semaphore", "stream_k"]
SHARED = ["arrival", "band", "configs", "epilogue"]  # what the kernel files of both call alike
ALONE = re.compile(r"# (Triton|tilus) alone: \S+")
# What both languages call the steps of a block, in the order in which a kernel takes them.
STEPS = {"announce", "band_product", "range_product", "finish", "is_last", "reset", "sum_in_order"}


@cache
def source(language: str, name: str) -> str:
    return (FOLDERS[language] / f"{name}.py").read_text()


def stated_alone(language: str, name: str, line: int, above: int = 1) -> bool:
    """Whether a line, from 1, or so many above it, say that only this language has what stands there."""
    lines = source(language, name).splitlines()
    return any(ALONE.search(text) for text in lines[max(0, line - 1 - above) : line])


def is_kernel(node: ast.stmt) -> bool:
    """A jit function of Triton, or a Script class of tilus."""
    if isinstance(node, ast.ClassDef):
        return any("Script" in ast.unparse(base) or "Arrivals" in ast.unparse(base) for base in node.bases)
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list)


def public(language: str, name: str) -> dict[str, ast.stmt]:
    """The public definitions of a file, in their order, but for kernels and what is stated to be one language's."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(source(language, name)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names, line = [node.name], min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
        elif isinstance(node, ast.Assign):
            names, line = [target.id for target in node.targets if isinstance(target, ast.Name)], node.lineno
        else:
            continue
        if not is_kernel(node) and not stated_alone(language, name, line):
            found |= {each: node for each in names if not each.startswith("_")}
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_both_files_define_the_same_in_the_same_order(name):
    assert list(public("triton", name)) == list(public("tilus", name))


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_both_files_have_the_same_signature(name):
    mine, theirs = public("triton", name), public("tilus", name)
    for each in mine.keys() & theirs.keys():
        one, other = mine[each], theirs[each]
        assert type(one) is type(other), each
        if isinstance(one, ast.FunctionDef):
            assert ast.unparse(one.args) == ast.unparse(other.args), each
            assert ast.unparse(one.returns) == ast.unparse(other.returns), each


def triton_kernels(name: str) -> list[ast.FunctionDef]:
    nodes = ast.parse(source("triton", name)).body
    return [node for node in nodes if is_kernel(node) and node.name.startswith("_") and node.name.endswith("_kernel")]


def tilus_kernels(name: str) -> list[ast.FunctionDef]:
    classes = [node for node in ast.parse(source("tilus", name)).body if is_kernel(node)]
    return [part for node in classes for part in node.body if getattr(part, "name", "") == "__call__"]


def arguments(language: str, name: str, kernel: ast.FunctionDef) -> list[str]:
    """The run-time arguments of a kernel, by what they are: n_units is n, and one stride of B is both."""
    found = []
    for argument in kernel.args.args:
        compile_time = argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
        if argument.arg != "self" and not compile_time and not stated_alone(language, name, argument.lineno, above=0):
            found.append(re.sub(r"^stride_b[kn]$", "stride_b", argument.arg.removesuffix("_units")))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", ["sliced_k", *BANDS])
def test_kernels_of_both_languages_take_the_same_arguments_in_the_same_order(name):
    mine = [arguments("triton", name, kernel) for kernel in triton_kernels(name)]
    theirs = [arguments("tilus", name, kernel) for kernel in tilus_kernels(name)]
    unique = {tuple(each) for each in theirs}  # one Script may be what two of Triton's kernels are
    assert {tuple(each) for each in mine} == unique


def steps(kernel: ast.FunctionDef) -> list[str]:
    """tilus' finish_in_rows does by hand what Triton's compiler does in finish."""
    calls = [node for node in ast.walk(kernel) if isinstance(node, ast.Call)]
    names = [(call.lineno, getattr(call.func, "attr", getattr(call.func, "id", ""))) for call in calls]
    return [step for _, name in sorted(names) if (step := name.removesuffix("_in_rows")) in STEPS]


@pytest.mark.parametrize("name", BANDS)
def test_a_block_takes_the_same_steps_in_both_languages(name):
    mine, theirs = triton_kernels(name)[0], tilus_kernels(name)[0]
    assert steps(mine) == steps(theirs) != []


@pytest.mark.parametrize("name", PAIRS)
def test_records_say_the_same(name):
    """Of each variant that both have: protocol, determinism, launches, roundings of any config."""
    mine = {kernel.variant: kernel for kernel in kernels_triton.KERNELS if kernel.name == name}
    theirs = {kernel.variant: kernel for kernel in kernels_tilus.KERNELS if kernel.name == name}
    for variant in mine.keys() & theirs.keys():
        one, other = mine[variant], theirs[variant]
        for what in ("protocol", "deterministic", "launches", "op", "on_request"):
            assert getattr(one, what) == getattr(other, what), (variant, what)
        if one.op == Matmul.op:
            config = MatmulConfig(16, 16, 128, 4, 4, 3)
            assert one.roundings(config) == other.roundings(config)


PROBLEMS = [
    Matmul(1, 256, 7168, layout=Layout.NK),
    Matmul(64, 256, 7168, layout=Layout.NK),
    Matmul(1024, 256, 7168, layout=Layout.KN),
    Matmul(16, 16, 8192, torch.float32),
    Matmul(5, 18, 130, torch.float16),
]


def twins() -> list[tuple]:
    theirs = {kernel.full_name.partition("/")[2]: kernel for kernel in kernels_tilus.KERNELS}
    pairs = [(kernel, theirs.get(kernel.full_name.partition("/")[2])) for kernel in kernels_triton.KERNELS]
    return [(one, other) for one, other in pairs if other is not None and one.op == Matmul.op]


def point(config) -> tuple:
    """What a config is in no language: sizes, how tiles come, whether they are transposed, the reducer's block."""
    feed, transposed = config.fed[:2] if hasattr(config, "fed") else (Feed.COPY, False)
    own = (getattr(config, "programs", None), getattr(config, "reduce_warps", None))
    elements = getattr(config, "reduce_block", 0) * getattr(config, "reduce_rows", 1)
    sizes = tuple(getattr(config, field) for field in MatmulConfig.__annotations__ if field != "AT_LAUNCH")
    return (*sizes, feed, transposed, *own, elements)


def reason_against(kernel, package, at: tuple, problem: Matmul) -> str | None:
    """Why this kernel has no config at the point of another language's."""
    *sizes, feed, transposed, programs, warps, elements = at
    block_m, block_n, block_k, split_k, num_warps, num_stages = sizes
    if kernel.config_type is MatmulConfig:
        return kernel.supports(problem, MatmulConfig(*sizes))
    tile = Tile(block_m, block_n, block_k, num_warps, num_stages, feed, transposed)
    if package is tilus_configs:
        simt = package.needs_simt(problem) is not None
        made = package.config_of(tile, split_k, on_cuda_cores=simt)
    else:
        made = package.config_of(tile, split_k)
    if isinstance(made, str):
        return made
    extra = {"programs": programs} if programs else {}
    if warps:
        extra = kernel.config_type.reducer_fields(problem, split_k, elements, warps)
    return kernel.supports(problem, kernel.config_type(**vars(made), **extra))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_what_one_language_searches_the_other_searches_or_says_why_not(problem):
    for one, other in twins():
        if one.supports(problem, None) or other.supports(problem, None):
            continue
        mine, theirs = ({point(config): config for config in kernel.configs(problem)} for kernel in (one, other))
        for at in mine.keys() - theirs.keys():
            assert reason_against(other, tilus_configs, at, problem), f"{other.full_name} has no {mine[at]}"
        for at in theirs.keys() - mine.keys():
            assert reason_against(one, triton_configs, at, problem), f"{one.full_name} has no {theirs[at]}"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_the_rule_for_problems_that_were_not_searched_is_one(problem):
    for one, other in twins():
        if one.supports(problem, None) or other.supports(problem, None):
            continue
        mine, theirs = one.default_config(problem), other.default_config(problem)
        if getattr(theirs, "engine", "") == "simt":  # whose pipeline has two stages of 32, see kernels_tilus/simt.py
            assert (mine.block_m, mine.block_n, mine.split_k) == (theirs.block_m, theirs.block_n, theirs.split_k)
        else:
            assert point(mine) == point(theirs), one.full_name


def functions(language: str, name: str) -> set[str]:
    """The functions and methods of a file."""
    return {node.name for node in ast.walk(ast.parse(source(language, name))) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", SHARED)
def test_a_step_is_in_the_file_of_the_same_name_in_both(name):
    mine, theirs = functions("triton", name), functions("tilus", name)
    assert mine & STEPS == theirs & STEPS
    assert (mine & STEPS) or name == "configs"


def test_every_step_is_in_one_of_the_shared_files():
    assert set().union(*(functions("triton", name) for name in SHARED)) >= STEPS


def test_the_signature_of_a_launcher_is_the_same_everywhere():
    signatures = {
        str(inspect.signature(kernel.launch)).split(", config")[0]
        for package in (kernels_triton, kernels_tilus)
        for kernel in package.KERNELS
        if kernel.op == Matmul.op
    }
    assert len(signatures) == 1, signatures


@pytest.mark.parametrize(
    ("name", "problem", "weight", "activations"),
    [
        ("triton/sliced_k.mma", Matmul(16, 256, 7168), "4x64x16xbf16", "4x16x64xbf16"),
        ("triton/decompose_k.vector", Matmul(16, 256, 7168), "128x16xbf16", "16x128xbf16"),
        ("triton/w4a16.last_arriver", W4A16Matmul(16, 4096, 4096), "4x512xi32", "16x128xf16"),
    ],
)
def test_triton_copies_the_weight_first(name, problem, weight, activations, tmp_path):
    """Of the config that is a problem's default, these are the tiles."""
    text = "".join(ttgir(name, problem, [contenders.find(name).default_config(problem)], tmp_path))
    copied = re.findall(r"async_copy_global_to_local .* -> <(\w+),", text)
    assert [tile for tile in copied if tile in (weight, activations)][:2] == [weight, activations]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("engine", ["wgmma", "wgmma_swapped", "wgmma_specialized"])
def test_tilus_copies_the_weight_first_by_tma(engine, layout, tmp_path):
    """Which tensor a map is of, its row stride says."""
    problem = Matmul(256, 256, 1024, layout=layout)
    config = tilus_configs.BandConfig(128, 64, 128, 1, 4, 3, engine=engine)
    (text,) = cuda_sources(contenders.find("tilus/data_parallel"), problem, config, tmp_path)
    strides = dict(re.findall(r"CUtensorMap (\w+);.*?tma_strides\w*\[0\] = .*?(stride_\w+)_units", text, re.DOTALL))
    copied = re.findall(r"cp_async_bulk_tensor\w+\(.*\(&(tma_tensor_map\w*)\)", text)
    assert [strides[tensor_map] for tensor_map in copied[:2]] == ["stride_b", "stride_am"]
