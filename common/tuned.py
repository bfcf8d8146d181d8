"""Tuned configs per device: written by the benchmark's search, read by the launchers.

A device's table is laid out in 2 layers, each a file `<device>.json`:

    shipped   common/tuned/           comes with the project; bench/record.py writes it
    user's    <user data>/tuned/      what searches on this machine found; <user data> is
              platformdirs.user_data_dir("triton-vs-tilus"), or the folder that TRITON_VS_TILUS_DATA names

The user's entry for a kernel and problem replaces the shipped one; all others stay.

A table maps a kernel's full name to entries {"problem": {...}, "config": {...}, "search": {...}}. A problem without an
entry takes the config of the nearest problem: smallest |log2| distance summed over m, n and k, first among entries of
the same layout, dtype and other choices, then among the rest. Beyond FAR the kernel's own heuristic is taken, by the
kernels OF_ONE_PROBLEM for every problem without an entry. A problem's key leaves out what does not change the best
config by enough to search for, an epilogue for example; that of the kernels OF_ONE_PROBLEM nothing.

A device that is named in STAND_INS looks in the table of its stand-in, too; its own entry goes before one as near.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import torch
from filelock import FileLock
from platformdirs import user_cache_path, user_data_path

from triton_vs_tilus.common.checks import check_config
from triton_vs_tilus.common.distance import SIZES, distance
from triton_vs_tilus.common.files import InvalidFile, replace_text
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.problem import Problem

__all__ = [
    "APP",
    "DATA_VARIABLE",
    "FAR",
    "SHIPPED",
    "STAND_INS",
    "Entry",
    "InvalidTable",
    "Known",
    "Search",
    "Source",
    "Table",
    "borrowed",
    "device_slug",
    "devices",
    "entry_of",
    "fingerprint",
    "key_of",
    "looked_in",
    "nearest",
    "path_of",
    "pick",
    "refresh",
    "ship",
    "slug_of",
    "table",
    "write",
]

APP = "triton-vs-tilus"
SHIPPED = Path(__file__).parent / "tuned"
DATA_VARIABLE = "TRITON_VS_TILUS_DATA"
# The largest summed |log2| distance: a factor of 64 over all sizes together. In the rows recorded on an H200, configs
# from nearer problems mostly kept 0.9x of the searched speed; configs from farther ones did no better than the
# heuristic.
# All sizes count alike. Twice M, N or K, half of K, or the ratio of the numbers of blocks beside them chose another
# config at 3 to 10 of the 118 searched entries for which several borrowed configs were timed; none was better by more
# than the noise. Those are configs that some search or run has tried. To choose a rule takes the config of each rule on
# problems kept apart from the tables (routers of `models`, T between the recorded ones), timed beside the searched one.
FAR = 6.0
# Devices with the multiprocessors, shared memory and L2 of another one, by slug; what differs is the memory's speed.
STAND_INS = {"h100-80gb-hbm3": "h200"}
# Their config is a place in the list that a library offers for the problem: it says nothing of another problem.
OF_ONE_PROBLEM = {"cublaslt/best"}


class Search(TypedDict, total=False):
    """What is known of the search that found an entry's config: of some only the day and the commit that brought it.

    date          of its end, ISO 8601
    device, gpus, driver, cuda, torch, triton, tilus, git   where it ran, as in a row's environment
    tried, space  configs of the space that it tried, and that there were
    out_of_time   whether its seconds ended it
    us            the config's cold time
    seconds       of checking and timing; build_seconds: of building, all processes together
    source        hash of the kernel's source and its space's
    """

    date: str
    device: str
    gpus: int
    driver: str
    cuda: str
    torch: str
    triton: str
    tilus: str
    git: str
    tried: int
    space: int
    out_of_time: bool
    us: float
    seconds: float
    build_seconds: float
    source: str


class _Found(TypedDict):
    problem: dict[str, Any]
    config: dict[str, Any]


class Entry(_Found, total=False):
    """problem: as of `key_of`. config: the fields of the kernel's config. search: not there where nobody knows."""

    search: Search


class InvalidTable(InvalidFile):
    """A device's file is not a table."""


Table = dict[str, list[Entry]]
Source = Literal["tuned", "nearest", "heuristic"]  # of a config; see pick


class Known(NamedTuple):
    """An entry that the kernel can read: the key of the problem it was searched for, its config, and the slug of the
    device it was searched on."""

    problem: dict[str, Any]
    config: Config
    device: str


def device_slug(device_name: str) -> str:
    """'NVIDIA H200' -> 'h200': the name of a device's table and of its results' folder."""
    return "-".join(word for word in device_name.lower().split() if word not in ("nvidia", "geforce"))


@lru_cache(maxsize=8)
def slug_of(device: torch.device) -> str:
    return device_slug(torch.cuda.get_device_name(device)) if device.type == "cuda" else device.type


def path_of(slug: str, *, shipped: bool) -> Path:
    """The file of one layer of a device's table."""
    if shipped:
        return SHIPPED / f"{slug}.json"
    return _user_folder() / f"{slug}.json"


def _user_folder() -> Path:
    chosen = os.environ.get(DATA_VARIABLE)
    return (Path(chosen) if chosen else user_data_path(APP)) / "tuned"


def devices() -> list[str]:
    """The slugs of all devices that have a table, in either layer."""
    return sorted({path.stem for folder in (SHIPPED, _user_folder()) for path in folder.glob("*.json")})


@lru_cache(maxsize=8)
def table(slug: str) -> Table:
    """Both layers of a device's table, sorted; empty where there is neither. Raises InvalidTable."""
    return _laid_over(_read(path_of(slug, shipped=True)), _read(path_of(slug, shipped=False)))


def refresh() -> None:
    """Lookups read the tables anew, as another process may have written them."""
    table.cache_clear()
    pick.cache_clear()


def fingerprint(slug: str) -> str | None:
    """12 hex digits that change with the entries that lookups use, whichever layer they are in; None without entries.
    Equal to the start of the shipped file's SHA-256 where neither the user's layer nor a stand-in adds to it."""
    texts = [_text(entries) for each in looked_in(slug) if (entries := table(each))]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:12] if texts else None


def write(slug: str, found: Iterable[tuple[str, Entry]], *, shipped: bool) -> Path:
    """Puts entries, each with its kernel's full name, into one layer of a device's table. An entry replaces the one of
    the same kernel and problem. Several processes may write at once, while others read. Returns the file."""
    path = path_of(slug, shipped=shipped)
    added: Table = {}
    for name, entry in found:
        added = _laid_over(added, {name: [entry]})
    with FileLock(user_cache_path(APP, ensure_exists=True) / f"{slug}.lock"):
        replace_text(path, _text(_laid_over(_read(path), added)))
    refresh()
    return path


def ship(slug: str) -> Path:
    """Puts the user's layer of a device's table into the shipped one, which lookups use as before. Returns its file."""
    layer = _read(path_of(slug, shipped=False))
    return write(slug, [(name, entry) for name, entries in layer.items() for entry in entries], shipped=True)


def key_of(kernel: Kernel, problem: Problem) -> dict[str, Any]:
    """By which the kernel's entries tell problems apart."""
    return problem.fields if _name(kernel) in OF_ONE_PROBLEM else problem.key


def _name(kernel: Kernel) -> str:
    """Whose entries it takes."""
    return kernel.tuned_as or kernel.full_name


def entry_of(kernel: Kernel, problem: Problem, slug: str) -> Entry | None:
    """The entry of this very problem."""
    entries, key = table(slug).get(_name(kernel), []), key_of(kernel, problem)
    return next((entry for entry in entries if entry["problem"] == key), None)


def nearest(kernel: Kernel, problem: Problem, slug: str) -> list[Known]:
    """The kernel's entries in the tables of this device and its stand-in, the nearest problem's first, of two as near
    this device's. Entries that the kernel cannot read, as a user's may be from another version, are passed over."""

    key = key_of(kernel, problem)

    def far(known: Known) -> tuple[int, float]:
        unlike = sum(known.problem[name] != value for name, value in key.items() if name not in SIZES)
        return unlike, distance(key, known.problem)

    entries = [(entry, each) for each in looked_in(slug) for entry in table(each).get(_name(kernel), [])]
    readable = [known for entry, each in entries if (known := _known(kernel, key, entry, each)) is not None]
    return sorted(readable, key=far)  # stable: this device's stay before its stand-in's


def looked_in(slug: str) -> list[str]:
    """The device, and its stand-in where it has one."""
    return [slug, STAND_INS[slug]] if slug in STAND_INS else [slug]


@lru_cache(maxsize=4096)
def pick(kernel: Kernel, problem: Problem, slug: str) -> tuple[Config, Source]:
    """The config that a launcher uses where none is given, and its source.

    'tuned'      searched for this very problem on this device
    'nearest'    searched for the nearest problem that is not FAR and whose config this one can run on, or on a stand-in
    'heuristic'  the kernel's own rule, where neither exists; the first config of its space where that one cannot run
    """
    return _first_that_runs(kernel, problem, slug, nearest(kernel, problem, slug))


def borrowed(kernel: Kernel, problem: Problem, slug: str) -> tuple[Config, Source]:
    """As `pick` would be if no GPU had an entry of this very problem: 'nearest' or 'heuristic'."""
    key = key_of(kernel, problem)
    others = [known for known in nearest(kernel, problem, slug) if known.problem != key]
    return _first_that_runs(kernel, problem, slug, others)


def _first_that_runs(kernel: Kernel, problem: Problem, slug: str, known: Iterable[Known]) -> tuple[Config, Source]:
    key, of_one = key_of(kernel, problem), _name(kernel) in OF_ONE_PROBLEM
    for entry in known:
        own = entry.problem == key and entry.device == slug
        if of_one and not own:
            continue
        if distance(key, entry.problem) <= FAR and kernel.supports(problem, entry.config) is None:
            return entry.config, "tuned" if own else "nearest"
    rule = kernel.default_config(problem)
    if kernel.supports(problem, None) is None and kernel.supports(problem, rule) is not None:
        rule = next(iter(kernel.configs(problem)), rule)  # all of them are supported
    return rule, "heuristic"


def _known(kernel: Kernel, key: dict[str, Any], entry: Entry, slug: str) -> Known | None:
    problem = entry["problem"]
    if problem.keys() != key.keys() or any(type(problem[name]) is not type(value) for name, value in key.items()):
        return None
    if any(problem[name] < 1 for name in SIZES):
        return None
    try:
        config = kernel.config_from(entry["config"])
        if _name(kernel) not in OF_ONE_PROBLEM:  # whose places count from 0
            check_config(kernel, config)
        return Known(entry["problem"], config, slug)
    except (TypeError, ValueError):
        return None


def _read(path: Path) -> Table:
    try:
        entries = json.loads(path.read_text()) if path.exists() else {}
        msgspec.convert(entries, dict[str, list[_Found]])
        return entries
    except (OSError, ValueError) as error:
        raise InvalidTable(f"{path} is not a table of tuned configs: {error}") from error


def _laid_over(below: Table, above: Table) -> Table:
    """Kernels and entries sorted, so that a table's text and the order among equals do not depend on how it came to
    be."""
    both: Table = {}
    for name in sorted({*below, *above}):
        replaced = [entry["problem"] for entry in above.get(name, [])]
        kept = [entry for entry in below.get(name, []) if entry["problem"] not in replaced]
        both[name] = sorted([*kept, *above.get(name, [])], key=_place)
    return both


def _place(entry: Entry) -> tuple[list[str], list[int]]:
    """By its choices, last ones first, then by its sizes, M last."""
    values = list(entry["problem"].values())
    sizes = [value for value in values if type(value) is int]
    return [str(value) for value in reversed(values) if type(value) is not int], sizes[1:] + sizes[:1]


def _text(entries: Table) -> str:
    """One entry a line."""
    kernels = []
    for name, listed in entries.items():
        lines = ",\n".join(f"  {json.dumps(entry)}" for entry in listed)
        kernels.append(f"{json.dumps(name)}: [\n{lines}\n ]")
    return "{\n " + ",\n ".join(kernels) + "\n}\n"
