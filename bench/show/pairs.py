"""The two files of a pair side by side, each line with the step of a block that it takes part in."""

import ast
import re
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
    "finish": ("finish*", "apply_epilogue", "epilogue*"),
    "meet": (
        *("announce", "is_last", "reset", "sum_in_order", "atomic_*", "*_semaphore", "push_rows"),
        *("cluster_*", "mapa_*", "cvta_*", "gdc_*", "start_dependents", "after_kernel_before", "prepare_arrivals"),
        *("arrive_and_expect_tx", "wait"),
    ),
    "multiply": ("*_product", "*_products", "mma*", "*dot", "fma", "multiply", "reduce", "*_or"),
    "load": ("load", "load_*", "copy_*", "*_load_tile"),
    "store": ("store", "store_*"),
    "sum": ("sum",),
    "add": ("add",),
}
# A load, store or sum of these is of the step.
OF = {
    "multiply": ("row_sums",),
    "meet": ("partial", "sums", "counter", "semaphore", "cluster", "theirs", "running", "so_far", "received", "addend"),
    "finish": ("bias",),
}
OTHERWISE = {"load": "load", "store": "finish", "sum": "meet", "add": ""}
BARRIERS = ("sync", "debug_barrier")  # of the meeting beside what meets
# Where the products are that kernels call.
SHARED = {
    "triton": ("kernels_triton/band.py",),
    "tilus": ("kernels_tilus/band.py", "kernels_tilus/mma.py"),
}
FORMATTING = ("# fmt: off", "# fmt: on")
CALL = re.compile(r"\b(\w+)\(")


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

    @property
    def steps(self) -> set[str]:
        """Those that lines of either language are of."""
        return {step for parts in self.parts.values() for part in parts for _, step in part.lines} - {""}


def pairs() -> Iterator[Pair]:
    """The kernels that both languages have, each with the product that it calls."""
    kernels = [kernel for kernel in contenders.all_contenders() if kernel.language in LANGUAGES]
    first, second = ([kernel.name for kernel in kernels if kernel.language == language] for language in LANGUAGES)
    for name in dict.fromkeys(name for name in first if name in second):
        protocols = dict.fromkeys(kernel.protocol.value for kernel in kernels if kernel.name == name)
        yield Pair(name, tuple(protocols), {language.value: _parts(language.value, name) for language in LANGUAGES})


def _parts(language: str, name: str) -> tuple[Part, ...]:
    """The functions of a kernel's file that run on the GPU, then the shared ones that they call, and that those do."""
    shared = {part.name.rpartition(".")[2]: part for path in SHARED[language] for part in _functions(path)}
    parts = list(_functions(f"kernels_{language}/{name}.py"))
    for part in parts:  # which grows
        called = CALL.findall("\n".join(line for line, _ in part.lines))
        parts += [shared.pop(each) for each in dict.fromkeys(called) if each in shared]
    return tuple(part for part in parts if any(step for _, step in part.lines))


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
    for before, barrier, behind in _barriers(function):
        if "meet" in (steps.get(before), steps.get(behind)):
            steps[barrier] = "meet"
    text = textwrap.dedent("\n".join(source.splitlines()[first - 1 : last])).splitlines()
    lines = zip(text, (steps[number] for number in range(first, last + 1)), strict=True)
    return Part(path, name, tuple((line, step) for line, step in lines if line.strip() not in FORMATTING))


def _barriers(function: ast.FunctionDef) -> Iterator[tuple[int, int, int]]:
    """Of each statement that is a barrier the last line before it, its line, and the first behind it; 0 for none."""
    for node in ast.walk(function):
        for body in (getattr(node, "body", []), getattr(node, "orelse", [])):
            for i, statement in enumerate(body if isinstance(body, list) else []):
                if isinstance(statement, ast.Expr) and _called([statement]) & set(BARRIERS):
                    before = body[i - 1].end_lineno if i else 0
                    behind = body[i + 1].lineno if i + 1 < len(body) else 0
                    yield before, statement.lineno, behind


def _step(nodes: list[ast.AST], said: str) -> str:
    called = _called(nodes)
    for step, patterns in CALLS.items():
        if any(fnmatchcase(name, pattern) for name in called for pattern in patterns):
            if step not in OTHERWISE:
                return step
            return next((of for of, words in OF.items() if any(word in said for word in words)), OTHERWISE[step])
    return ""


def _called(nodes: list[ast.AST]) -> set[str]:
    """The names of what is called, and 'elementwise_or' for an OR of elements, which Triton writes as an operator."""
    walked = [node for tree in nodes for node in ast.walk(tree)]
    calls = (node.func for node in walked if isinstance(node, ast.Call))
    names = {getattr(function, "attr", getattr(function, "id", "")) for function in calls}
    ors = (node for node in walked if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.BitOr))
    if any(not isinstance(getattr(node, "left", None), ast.Compare) for node in ors):  # else of conditions
        names.add("elementwise_or")
    return names
