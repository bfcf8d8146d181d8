"""Tuned configs per device: `tuned/<device>.json`, written by the benchmark's search, read by the launchers.

A table maps a kernel's full name to a list of entries {"problem": {...}, "config": {...}}. A problem that is
not in it takes the config of the nearest that is: smallest |log2| distance summed over its sizes, among entries
of the same layout and dtype (and what other choices it has), then of others. One that is FAR is none: the kernel's own
rule is taken. What else a problem is, an epilogue for one, does not change which config is best by enough to search
for.
"""

import json
from functools import lru_cache
from math import log2
from pathlib import Path
from typing import Any

import torch

from common.kernel import Config, Kernel
from common.problem import Problem

TABLES = Path(__file__).parent / "tuned"
# A factor of 64, over all sizes together. Of the rows recorded on an H200, those with a config from nearer by mostly
# kept nine tenths of the speed that a search then found; from further away, no more than the kernel's own rule did.
FAR = 6.0


def device_slug(device_name: str) -> str:
    """'NVIDIA H200' -> 'h200': the name of a device's table and of its results' folder."""
    return "-".join(word for word in device_name.lower().split() if word not in ("nvidia", "geforce"))


@lru_cache(maxsize=8)
def table(slug: str) -> dict[str, list[dict[str, Any]]]:
    """The table of a device, empty where none was ever written."""
    path = TABLES / f"{slug}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@lru_cache(maxsize=8)
def slug_of(device: torch.device) -> str:
    return device_slug(torch.cuda.get_device_name(device)) if device.type == "cuda" else device.type


def nearest(kernel: Kernel, problem: Problem, slug: str) -> list[dict[str, Any]]:
    """The kernel's entries in the table of this device, that of the nearest problem first."""

    def distance(entry: dict[str, Any]) -> tuple[int, float]:
        pairs = ((value, entry["problem"][name]) for name, value in problem.key.items())
        unlike = sum(mine != theirs for mine, theirs in pairs if type(mine) is not int)
        return unlike, _apart(problem, entry["problem"])

    return sorted(table(slug).get(kernel.tuned_as or kernel.full_name, []), key=distance)


def _apart(problem: Problem, key: dict[str, Any]) -> float:
    """|log2| of how the sizes of two problems differ, summed."""
    return sum(abs(log2(key[name] / size)) for name, size in problem.key.items() if type(size) is int)


@lru_cache(maxsize=4096)
def pick(kernel: Kernel, problem: Problem, slug: str) -> tuple[Config, str]:
    """The config that a launcher uses where none is given, and where it is from: 'tuned' (searched for this very
    problem), 'nearest' (for another, the nearest whose config this one can run on), or 'heuristic' (the kernel's own,
    where there is none that is not FAR)."""
    for entry in nearest(kernel, problem, slug):
        config = kernel.config_from(entry["config"])
        if _apart(problem, entry["problem"]) <= FAR and kernel.supports(problem, config) is None:
            return config, "tuned" if entry["problem"] == problem.key else "nearest"
    return kernel.default_config(problem), "heuristic"
