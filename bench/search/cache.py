"""Search results kept in the user's cache, until device, versions, the kernel's source or the search's own change."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
from platformdirs import user_cache_path

from triton_vs_tilus.bench.measure import clock, numbers, referee, rotation, stats
from triton_vs_tilus.bench.rows.row import EnvironmentRecord
from triton_vs_tilus.bench.search.race import BUDGETS, Budget, SearchResult
from triton_vs_tilus.bench.search.space import tries
from triton_vs_tilus.bench.sources import source_hash
from triton_vs_tilus.common import accuracy
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.common.tuned import APP

# The files that decide which config wins.
_SEARCH = [
    *(Path(__file__).with_name(f"{name}.py") for name in ("build", "race", "search", "space")),
    *(Path(module.__file__) for module in (accuracy, clock, numbers, referee, rotation, stats) if module.__file__),
]


def path_of(kernel: Kernel, problem: Problem, budget: str, versions: EnvironmentRecord) -> Path:
    """The file of one search. versions: the environment that it runs in."""
    everything = msgspec.to_builtins(versions)
    key = {
        "kernel": kernel.full_name,
        "problem": problem.name,
        "budget": asdict(BUDGETS[budget]),
        "tries": tries(kernel, problem, BUDGETS[budget]),  # the twin's space decides it too
        "versions": {name: value for name, value in everything.items() if name not in ("git", "python", "tuned")},
        "source": source_hash(kernel),
        "search": hashlib.sha256(b"".join(path.read_bytes() for path in _SEARCH)).hexdigest(),
    }
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    return user_cache_path(APP) / "search" / f"{name}.json"


def store(result: SearchResult, path: Path) -> None:
    values = {**asdict(result), "config": asdict(result.config) if result.config else None}
    replace_text(path, json.dumps(values, indent=1))


def load(kernel: Kernel, path: Path) -> SearchResult:
    values: dict[str, Any] = json.loads(path.read_text())
    config = kernel.config_from(values["config"]) if values["config"] else None
    return replace(SearchResult(**values), budget=Budget(**values["budget"]), config=config)
