"""Whether a tuned config was found for the present kernel, and in its present space."""

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from triton_vs_tilus.bench import ROOT
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Kernel

PACKAGE = "triton_vs_tilus"
# What a launcher does on the host before a launch. It decides neither what is launched nor what is searched.
ON_THE_HOST = {"accuracy", "building", "call", "checks", "compilers", "devices", "files", "launching", "offline"}
ON_THE_HOST |= {"plan", "prepare", "problem", "starting", "tensors", "tuned", "workspace"}


def is_stale(kernel: Kernel, entry: tuned.Entry) -> bool:
    """Whether the kernel or its space has changed since the entry was searched for, or nobody knows."""
    return entry.get("search", {}).get("source") != source_hash(kernel)


def source_hash(kernel: Kernel) -> str:
    """12 hex digits of the code of the kernel's file, and of every file of this project that it imports to compute, be
    configured and be searched; comments, docstrings and layout aside."""
    launch = kernel.launch
    while isinstance(launch, partial):
        launch = launch.func
    file = sys.modules[launch.__module__].__file__
    return _hash_of(Path(file).resolve()) if file else ""


@lru_cache(maxsize=256)
def _hash_of(path: Path) -> str:
    codes = [_code(used)[0] for used in sorted(_used_by(path))]
    return hashlib.sha256("\0".join(codes).encode()).hexdigest()[:12]


def _used_by(path: Path) -> set[Path]:
    """The file, and those that it imports, directly or not."""
    pending, found = [path], set()
    while pending:
        if (used := pending.pop()) not in found:
            found.add(used)
            pending += _code(used)[1]
    return found


@lru_cache(maxsize=256)
def _code(path: Path) -> tuple[str, tuple[Path, ...]]:
    """What a file says to Python, without docstrings; and the files of this project that it imports."""
    tree = ast.parse(path.read_text())
    imported = tuple(dict.fromkeys(_imported(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return _dump(tree), imported


def _dump(node: object) -> str:
    """ast.dump of Python 3.12, under every Python: 3.11 has no type parameters, 3.13 leaves empty lists out."""
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        fields.setdefault("type_params", [])
    absent = [name for name, value in fields.items() if value is None and getattr(type(node), name, ...) is None]
    told = [f"{name}={_dump(value)}" for name, value in fields.items() if name not in absent]
    return f"{type(node).__name__}({', '.join(told)})"


def _imported(tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                folder, _, stem = str(name).removeprefix(PACKAGE).replace(".", "/").rpartition("/")
                path = ROOT / folder.lstrip("/") / f"{stem}.py"
                if stem not in ON_THE_HOST and path.is_file():
                    yield path.resolve()
