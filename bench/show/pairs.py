"""The two files of a pair side by side, each line with the step of a block that it takes part in."""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.rows.queries import ROOT
from triton_vs_tilus.common.kernel import LANGUAGES

STEPS = ("load", "multiply", "meet", "finish")
# What a line calls, and the step that it is by that; of two that match the first counts.
CALLS = {
    "finish": ("finish", "apply_epilogue", "epilogue*"),
    "meet": (
        *("announce", "is_last", "reset", "sum_in_order", "sum", "reduce", "add_products", "atomic_*", "*_semaphore"),
        *("cluster_*", "mapa_*", "cvta_*", "gdc_*", "start_dependents", "after_kernel_before", "prepare_arrivals"),
    ),
    "multiply": ("*_product", "mma*", "dot", "fma", "multiply", "sliced_dot", "elementwise_or"),
    "load": ("load", "load_*", "copy_*", "*_load_tile"),
    "store": ("store", "store_*"),
}
MEETING = ("partial", "sums", "counter", "semaphore", "cluster", "theirs")  # a load or store of these is of the meeting
# The product of the pairs whose kernels call it.
SHARED = {
    "triton": ("kernels_triton/band.py", ("range_product", "step_product")),
    "tilus": ("kernels_tilus/mma.py", ("mma_product", "copy_step", "multiply")),
}
SHARED_NAME = "the product that most of them call"
FORMATTING = ("# fmt: off", "# fmt: on")


@dataclass(frozen=True)
class Part:
    """A function. lines: (text, step or '')."""

    file: str
    name: str
    lines: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Pair:
    """parts: by language. protocols: of the pair's kernels."""

    name: str
    protocols: tuple[str, ...]
    parts: dict[str, tuple[Part, ...]]


def pairs() -> Iterator[Pair]:
    """The kernels that both languages have, then the product that they share."""
    kernels = [kernel for kernel in contenders.all_contenders() if kernel.language in LANGUAGES]
    first, second = ([kernel.name for kernel in kernels if kernel.language == language] for language in LANGUAGES)
    for name in dict.fromkeys(name for name in first if name in second):
        protocols = dict.fromkeys(kernel.protocol.value for kernel in kernels if kernel.name == name)
        yield Pair(name, tuple(protocols), {language.value: _parts(language.value, name) for language in LANGUAGES})
    shared = {
        language: tuple(part for part in _functions(path) if part.name.rpartition(".")[2] in wanted)
        for language, (path, wanted) in SHARED.items()
    }
    yield Pair(SHARED_NAME, (), shared)


def _parts(language: str, name: str) -> tuple[Part, ...]:
    """The functions of a kernel's file that run on the GPU."""
    return tuple(part for part in _functions(f"kernels_{language}/{name}.py") if any(step for _, step in part.lines))


def _functions(path: str) -> Iterator[Part]:
    source = (ROOT / path).read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list):
            yield _part(path, node.name, node, source)
        elif isinstance(node, ast.ClassDef) and any(
            word in ast.unparse(base) for base in node.bases for word in ("Script", "Arrivals")
        ):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                    yield _part(path, f"{node.name}.{method.name}", method, source)


def _part(path: str, name: str, function: ast.FunctionDef, source: str) -> Part:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if not body:
        return Part(path, name, ())
    first, last = body[0].lineno, function.end_lineno or body[0].lineno
    steps = dict.fromkeys(range(first, last + 1), "")
    for node in ast.walk(function):
        if not isinstance(node, ast.stmt) or node is function or isinstance(node, ast.FunctionDef):
            continue
        calls: list[ast.AST] = [node]
        inner = getattr(node, "body", None)
        if inner is None:
            extent, said = range(node.lineno, (node.end_lineno or node.lineno) + 1), ast.unparse(node)
        else:  # of a compound statement the lines above its body
            extent = range(node.lineno, max(inner[0].lineno, node.lineno + 1))
            calls = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
            said = " ".join(map(ast.unparse, calls))
        if step := _step(calls, said):
            steps.update(dict.fromkeys(extent, step))
    text = textwrap.dedent("\n".join(source.splitlines()[first - 1 : last])).splitlines()
    lines = zip(text, (steps[number] for number in range(first, last + 1)), strict=True)
    return Part(path, name, tuple((line, step) for line, step in lines if line.strip() not in FORMATTING))


def _step(nodes: list[ast.AST], said: str) -> str:
    called = {
        getattr(call.func, "attr", getattr(call.func, "id", ""))
        for node in nodes
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
    }
    for step, patterns in CALLS.items():
        if any(fnmatchcase(name, pattern) for name in called for pattern in patterns):
            if step in ("load", "store") and any(word in said for word in MEETING):
                return "meet"
            return "finish" if step == "store" else step
    return ""
