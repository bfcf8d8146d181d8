"""Which kernel a product takes on a device, or torch: one rule for both languages, from measured times.

A device's table, `common/measured/<device>.json`, has the medians of the checked-in rows: cold L2, microseconds, by
problem and contender. bench/dispatch.py writes it. The rule:

1.  A problem that was measured speaks for itself, any other by the two nearest measured ones of the same layout and
    dtype (fp16 counts as bf16). Distance: |log2| of the ratio of each size, summed.
2.  A kernel is taken where it was faster than torch.mm at each of them by more than MARGIN, and by MARGIN_APART more
    for each unit of distance, in which columns beyond those measured count MORE_COLUMNS times: they are blocks that may
    not fit beside the others. Fewer columns and a shorter K count as one unit at most up to FEW_TOKENS. Where the
    nearest is beyond NEAR, or the weight more than MOST_GROWTH times its size, nothing is known, and torch is taken.
3.  Numbers of tokens share programs, so that a weight needs few of them: T takes kernel and config of the power of 4
    next to it, and groups of rows where that has some. Of the kernels that won there, that is the one which gains most
    over half, as many and twice as many tokens. It must have won at both.

What a device has no times of, its stand-in's table tells (common/tuned.py). Without a table a rule of thumb is taken.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, log2, prod
from pathlib import Path
from typing import Any, TypedDict

import torch

from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.distance import WIDEST, bytes_of_copies, gap
from triton_vs_tilus.common.kernel import Config, GroupedConfig, Kernel, is_grouped
from triton_vs_tilus.common.problem import SHORT_DTYPE, Matmul

__all__ = [
    "BASELINE",
    "CAPABILITIES",
    "Choice",
    "Measured",
    "choose",
    "devices",
    "path_of",
    "rounds_to_tf32",
    "shared_tokens",
    "table",
]

FOLDER = Path(__file__).parent / "measured"
CAPABILITIES = {"h100-80gb-hbm3": (9, 0), "h200": (9, 0)}  # compute capabilities of the devices that have a table
BASELINE = "torch/mm"
# Held against the rows by tests/test_dispatch.py: each measured problem is asked for without its own rows.
MARGIN = 0.03
MARGIN_APART = 0.04
# On an H200 tilus' cluster took 1.4 times as long for 64x512x2048, 16 clusters of 8 blocks, as for 8 to 12 clusters.
MORE_COLUMNS = 4.0
# In models' routers smaller than the measured one, 235 rows, a kernel's gain was 0.93 of what it was there at least, as
# far as two runs of one problem lie apart, and 1.06 in the median.
FEW_TOKENS = 64
NEAR = 6.0
# Of rows that are copied by fewer bytes than 16: what won with 16 tokens at K = 7175 lost to torch.mm with 256, in both
# languages.
NEAR_BY_ELEMENTS = 1.0
MOST_GROWTH = 2.0
# The rule of thumb: at most so many rows and columns of C, at least so deep a K; the kernels, the preferred one first.
THUMB_TOKENS, THUMB_COLUMNS, THUMB_DEPTH = 32, 256, 4096
THUMB_KERNELS = ("decompose_k.vector_pdl", "last_arriver")


class Measured(TypedDict):
    """problem: its `key`. rows: the file under bench/results/<device> that they are in. us: by contender's name."""

    problem: dict[str, Any]
    rows: str
    us: dict[str, float]


@dataclass(frozen=True)
class Choice:
    """What computes a problem, and why.

    kernel    None: torch
    config    of the kernel; None for torch
    why       in words
    us        expected, as at the measured problem; None where nothing is measured near. torch_us: torch.mm's
    measured  the measured problem's key; None without one. rows: the file of rows that it is in
    apart     its gap from the problem (common/distance.py)
    """

    kernel: Kernel | None
    config: Config | None
    why: str
    us: float | None = None
    torch_us: float | None = None
    measured: Mapping[str, Any] | None = None
    rows: str | None = None
    apart: float = 0.0

    def __str__(self) -> str:
        taken = BASELINE if self.kernel is None else f"{self.kernel.full_name} [{self.config}]"
        if self.kernel is None or self.us is None or self.torch_us is None:
            return f"{taken}: {self.why}"
        times = f"{self.us:.1f} us against {self.torch_us:.1f} of torch.mm, {self.torch_us / self.us:.2f}x"
        return f"{taken}: {times}; {self.why}"


def path_of(slug: str) -> Path:
    """The table of a device."""
    return FOLDER / f"{slug}.json"


def devices() -> list[str]:
    """The slugs of the devices that have a table."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@lru_cache(maxsize=8)
def table(slug: str) -> tuple[Measured, ...]:
    """Of a device; of its stand-in (common/tuned.py) the problems that it has no times of itself, whose `rows` begin
    with the stand-in's slug. Empty where neither has a table."""
    found: dict[str, Measured] = {}
    for each in reversed(tuned.looked_in(slug)):
        for entry in json.loads(path_of(each).read_text()) if path_of(each).exists() else ():
            rows = entry["rows"] if each == slug else f"{each}/{entry['rows']}"
            found[json.dumps(entry["problem"])] = Measured(problem=entry["problem"], rows=rows, us=entry["us"])
    return tuple(found.values())


def shared_tokens(tokens: int) -> int:
    """The power of 4 next to it, the larger of two: what config T tokens take."""
    return 4 ** int((log2(tokens) + 1) // 2)


def rounds_to_tf32() -> bool:
    """Whether torch's products of fp32 on a GPU may, by whichever of its settings; `get_float32_matmul_precision` knows
    the older ones, and raises once the others were used. Asked as torch.backends.cuda.matmul.fp32_precision does, which
    takes several times as long."""
    return torch._C._get_fp32_precision_getter("cuda", "matmul") not in ("none", "ieee")


def choose(
    kernels: Sequence[Kernel],
    problem: Matmul,
    slug: str,
    deterministic: bool = False,
    measured: Sequence[Measured] | None = None,
) -> Choice:
    """What computes the problem on this device, out of one language's kernels.

    measured: None takes the device's table.
    """
    known = _by_kind(table(slug)) if measured is None else _by_kind(tuple(measured))
    if problem.dtype not in SHORT_DTYPE:
        return Choice(None, None, f"kernels take {', '.join(map(str, SHORT_DTYPE))}, not {problem.dtype}")
    if problem.dtype is torch.float32 and rounds_to_tf32():
        return Choice(None, None, "torch may round fp32 to TF32 here; the kernels do not, and take longer")
    if not known:
        return _rule_of_thumb(kernels, problem, slug, deterministic)
    shared = replace(problem, m=shared_tokens(problem.m))
    kind = _kind(problem.key)
    if kind not in known:
        return Choice(None, None, f"{' '.join(kind)} was measured nowhere on {slug}")
    neighbours, shared_neighbours = _nearest(known[kind], problem), _nearest(known[kind], shared)
    here = neighbours[0]
    apart = gap(here["problem"], problem.key)
    where = f"measured at {_name(here['problem'])} ({here['rows']})"
    of_torch = Choice(None, None, where, None, here["us"][BASELINE], here["problem"], here["rows"], apart)
    if _is_far(here, problem) or _is_far(shared_neighbours[0], shared):
        return replace(of_torch, why=f"nothing near is known: nearest {where}")
    by_name = {kernel.full_name: kernel for kernel in kernels}
    range_ends = (max(1, shared.m // 2), shared.m, 2 * shared.m)
    in_range = [_nearest(known[kind], replace(problem, m=tokens))[0] for tokens in range_ends]
    for name in sorted(by_name, key=lambda name: -prod(_times(name, entry) for entry in in_range)):
        kernel = by_name[name]
        if _wins(name, shared_neighbours, shared) and _is_eligible(kernel, problem, deterministic):
            config = _config(kernel, problem, shared, slug)
            if kernel.roundings(config) > 1:  # less exact than torch.mm
                continue
            if _wins(name, neighbours, problem):
                return replace(of_torch, kernel=kernel, config=config, us=here["us"][name])
            break
    return replace(of_torch, why=f"no kernel is known to win: {where}")


def _rule_of_thumb(kernels: Iterable[Kernel], problem: Matmul, slug: str, deterministic: bool) -> Choice:
    """Without a table: few tokens by few columns over a deep K, in half precision, take a split K, which won at every
    such problem of the H200's rows, on the kernel's own default config; else torch."""
    why = f"{slug} has no table of measured times: the rule of thumb"
    skinny = problem.m <= THUMB_TOKENS and problem.n <= THUMB_COLUMNS and problem.k >= THUMB_DEPTH
    if skinny and problem.dtype is not torch.float32:
        by_name = {kernel.full_name.partition("/")[2]: kernel for kernel in kernels}
        for kernel in map(by_name.__getitem__, THUMB_KERNELS):
            if _is_eligible(kernel, problem, deterministic):
                return Choice(kernel, kernel.default_config(problem), why)
    return Choice(None, None, why)


def _is_eligible(kernel: Kernel, problem: Matmul, deterministic: bool) -> bool:
    """Not what is there only to be compared with another kernel."""
    return (
        kernel.op == problem.op
        and not kernel.tuned_as
        and (kernel.deterministic or not deterministic)
        and kernel.supports(problem, None) is None
    )


def _config(kernel: Kernel, problem: Matmul, shared: Matmul, slug: str) -> Config:
    """The tuned one of the shared number of tokens where the problem can run on it, grouped where that is."""
    config = tuned.pick(kernel, shared, slug)[0]
    if kernel.supports(problem, config) is not None:
        return tuned.pick(kernel, problem, slug)[0]
    if is_grouped(shared, config) and isinstance(config, GroupedConfig):
        while config.group_m % 4 == 0 and not is_grouped(problem, config):  # tilus' wgmma walks pairs
            config = replace(config, group_m=config.group_m // 2)
    return config


def _by_kind(entries: Iterable[Measured]) -> dict[tuple[str, str], list[Measured]]:
    kinds: dict[tuple[str, str], list[Measured]] = {}
    for entry in entries:
        kinds.setdefault(_kind(entry["problem"]), []).append(entry)
    return kinds


def _nearest(alike: Iterable[Measured], problem: Matmul) -> list[Measured]:
    """The problem itself, or the two nearest; fewer where there are no more."""
    nearest = sorted(alike, key=lambda entry: gap(entry["problem"], problem.key))[:2]
    return nearest[:1] if nearest and gap(nearest[0]["problem"], problem.key) == 0 else nearest


def _is_far(entry: Measured, problem: Matmul) -> bool:
    growth = problem.n * problem.k / (entry["problem"]["n"] * entry["problem"]["k"])
    near = NEAR if bytes_of_copies(problem.key) == WIDEST else NEAR_BY_ELEMENTS
    return gap(entry["problem"], problem.key) > near or growth > MOST_GROWTH


def _times(name: str, entry: Measured) -> float:
    """How much faster than torch.mm it was; 0 where it was not measured."""
    return entry["us"][BASELINE] / entry["us"].get(name, inf)


def _wins(name: str, entries: Iterable[Measured], problem: Matmul) -> bool:
    return all(_times(name, entry) > 1 + MARGIN + MARGIN_APART * _risk(entry["problem"], problem) for entry in entries)


def _risk(measured: Mapping[str, Any], problem: Matmul) -> float:
    """The distance, in which columns beyond those measured count MORE_COLUMNS times, and what is smaller than measured,
    for few tokens, as one at most."""
    wider, deeper = log2(problem.n / measured["n"]), log2(problem.k / measured["k"])
    larger = MORE_COLUMNS * max(0.0, wider) + max(0.0, deeper)
    smaller = max(0.0, -wider) + max(0.0, -deeper)
    if problem.m <= FEW_TOKENS:
        smaller = min(1.0, smaller)
    return abs(log2(problem.m / measured["m"])) + larger + smaller


def _kind(key: Mapping[str, Any]) -> tuple[str, str]:
    return key["dtype"], key["layout"]


def _name(key: Mapping[str, Any]) -> str:
    return f"{key['m']}x{key['n']}x{key['k']}-{key['dtype']}-{key['layout']}"
