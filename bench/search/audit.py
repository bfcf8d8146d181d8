"""What is wrong with the tuned tables and the recorded rows, as far as they tell by themselves."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product

from triton_vs_tilus.bench import ROOT, contenders
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.rows.environment import git
from triton_vs_tilus.bench.rows.queries import leading_timing, passed
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.bench.sources import is_stale
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.kernel import Kernel
from triton_vs_tilus.common.problem import Matmul, Problem
from triton_vs_tilus.common.w4a16 import W4A16Matmul

TOLERATED = 0.03  # that a latency may be under that of fewer tokens

Product = Matmul | W4A16Matmul  # what has tokens

# (contender, problem, microseconds)
Latency = tuple[str, Problem, float]


@dataclass(frozen=True)
class Fall:
    """A kernel that is faster with more tokens than with fewer: what was found for the fewer is not its best."""

    contender: str
    fewer: Product
    fewer_us: float
    more: Product
    more_us: float

    def __str__(self) -> str:
        share = 1 - self.more_us / self.fewer_us
        more = f"{self.contender}: {self.more_us:.2f} us on {self.more.name}"
        fewer = f"{share:.1%} under the {self.fewer_us:.2f} us on {self.fewer.name}"
        return f"{more}, {fewer}; search {self.fewer.name} again"


def falls(latencies: Iterable[Latency]) -> list[Fall]:
    """For each contender and problem of a product, the problem of more tokens, else the same, that is faster by the
    most, where it is by more than TOLERATED."""
    by_kind: dict[tuple[str, Product], list[tuple[Product, float]]] = {}
    for contender, problem, us in latencies:
        if isinstance(problem, Product):
            by_kind.setdefault((contender, replace(problem, m=1)), []).append((problem, us))
    found = []
    for (contender, _), timed in by_kind.items():
        for fewer, us in timed:
            later = [(more_us, more) for more, more_us in timed if more.m > fewer.m]
            least_us, more = min(later, key=lambda pair: pair[0], default=(us, fewer))
            if least_us < us * (1 - TOLERATED):
                found.append(Fall(contender, fewer, us, more, least_us))
    return sorted(found, key=lambda fall: (fall.contender, fall.fewer.name))


def searches(of: Iterable[Fall]) -> list[str]:
    """The commands that search their fewer tokens again, one a kernel, and with it its twin in the other language: a
    longer search of one alone would favour it. Without a config that a name gives itself (`@s4`), or takes from another
    kernel (`@tilus`): those are not searched."""
    names: dict[str, set[str]] = {}
    for fall in of:
        if "@" not in fall.contender:
            twin = _twin(fall.contender)
            twins = sorted({fall.contender, twin.full_name if twin else fall.contender})
            names.setdefault(" ".join(f"--only {name}" for name in twins), set()).add(fall.fewer.name)
    return [
        f"python bench/compare.py {only} {' '.join(f'--problem {name}' for name in sorted(problems))} --tune full"
        for only, problems in sorted(names.items())
    ]


def _twin(full_name: str) -> Kernel | None:
    """The kernel's twin in the other language, where there is one: not every kernel is written in both."""
    other = contenders.counterpart(full_name)
    return None if other is None else contenders.find_or_none(other)


def of_table(slug: str) -> list[Latency]:
    """Those of the entries whose searches took one."""
    return [
        (name, OPS[kernel.op].problem.from_fields(entry["problem"]), entry["search"]["us"])
        for name, entries in tuned.table(slug).items()
        if (kernel := contenders.find_or_none(name)) is not None
        for entry in entries
        if "us" in entry.get("search", {})
    ]


def of_rows(rows: Iterable[Row]) -> list[Latency]:
    """Those of rows that passed with a config of their kernel, by the leading timing. Without a config that is given
    (`@s4`) or taken from another kernel or problem, and without controls: no search would find them another."""
    rows = [row for row in rows if row.config is not None and row.contends and "@" not in row.contender]
    timing = leading_timing(rows)
    timed = passed(rows, timing) if timing else []
    return [(row.contender, row.problem.to_problem(), row.timing[timing].median_us) for row in timed if timing]


@dataclass
class Searched:
    """How a kernel's entries were found: `whole` of the space, a `part` of it, of a former kernel or space (`stale`),
    or nobody knows (`unknown`); out_of_time: of all of these; alone: of problems that its twin in the other language
    has no entry for, where there is a twin. seconds: of checking and timing, of all whose searches told; build_seconds:
    of building, likewise.
    """

    entries: int = 0
    whole: int = 0
    part: int = 0
    stale: int = 0
    unknown: int = 0
    out_of_time: int = 0
    alone: int = 0
    seconds: float = 0.0
    build_seconds: float = 0.0

    def add(self, kernel: Kernel | None, entry: tuned.Entry) -> None:
        """kernel: None where its language cannot be imported, or the table is a user's from another version."""
        search = entry.get("search", {})
        self.entries += 1
        self.out_of_time += search.get("out_of_time", False)
        self.seconds += search.get("seconds", 0.0)
        self.build_seconds += search.get("build_seconds", 0.0)
        if "source" not in search or kernel is None:
            self.unknown += 1
        elif is_stale(kernel, entry):
            self.stale += 1
        elif search["tried"] == search["space"]:
            self.whole += 1
        else:
            self.part += 1


def searched(slug: str) -> dict[str, Searched]:
    """By kernel."""
    table = tuned.table(slug)
    found: dict[str, Searched] = {}
    for name, entries in table.items():
        counts, kernel = Searched(), contenders.find_or_none(name)
        for entry in entries:
            counts.add(kernel, entry)
        if (twin := _twin(name)) is not None:
            of_twin = [entry["problem"] for entry in table.get(twin.full_name, [])]
            counts.alone = sum(entry["problem"] not in of_twin for entry in entries)
        found[name] = counts
    return found


def tables_in_git(slug: str) -> set[str]:
    """The fingerprints of all tables of this device that were ever committed, each with all of its stand-in's. Raises
    RuntimeError outside of git."""
    of_each = [[b"", *_committed(each)] for each in tuned.looked_in(slug)]
    return {hashlib.sha256(b"".join(texts)).hexdigest()[:12] for texts in product(*of_each) if any(texts)}


def _committed(slug: str) -> list[bytes]:
    path = tuned.path_of(slug, shipped=True).resolve().relative_to(ROOT)
    listed = git("rev-list", "--objects", "--all", "--", str(path)).decode().splitlines()
    return [git("cat-file", "blob", line.split()[0]) for line in listed if line.endswith(f" {path}")]


def not_in_git(rows: Iterable[Row], committed: set[str]) -> list[Row]:
    """The rows with a config whose table nobody can look up: of uncommitted changes, or of a fingerprint that no
    committed table has."""
    return [
        row
        for row in rows
        if row.config is not None
        and row.environment.tuned is not None
        and (row.environment.tuned not in committed or (row.environment.git or "").endswith("+"))
    ]
