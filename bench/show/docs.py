"""What README.md and notes/*.md show of the checked-in rows and of the code, filled in between markers, so that no
figure is typed and no quotation goes stale.

    <!-- results:router-nk -->                       a line per problem; or with patterns of contenders:
    <!-- results:router-nk torch/mm triton/* -->
    <!-- results:router-nk@cold -->                  by this timing only
    <!-- ladder:router-nk 16x* -->                  the steps to the fastest kernel, a table per problem
    <!-- matrix:router-nk -->                        language x protocol; or only at one config:
    <!-- matrix:router-matched-nk same -->
    <!-- borrowed:router-borrowed -->                what the config of the nearest other problem keeps of a kernel's
                                                     speed
    <!-- map:h200 router-nk:1x*,2x* router-nk:8x* -->
                                                     which kernel to take: a line per rule, problems of a file
                                                     by patterns
    <!-- searches:h200 -->                           what the searches behind the shipped configs took
    <!-- plots:router-nk speedup floor -->           these of bench.plots, drawn into notes/plots
    <!-- counters:router -->                         what ncu counted; or of these contenders:
    <!-- counters:router torch/mm triton/* -->
    <!-- stages:router -->                          where the time of each language's fastest goes, cold; by another
                                                     timing, or of these contenders:
    <!-- stages:router@warm torch/mm triton/* -->
    <!-- printed:clusters_of_one -->                 what a program printed, NAME.txt, as it stands
    <!-- spaces:router 1 64 1024 -->                how many configs a search may try, at these T
    <!-- moved:router-nk former pairs 3 -->         whose cold time moved by more than 3 % from one folder's file
                                                     of this name to the other's, or by another timing, NAME@graph;
                                                     the folder '.' holds the file itself
    <!-- regimes:h200 router-nk:16x* a_deep_K=crossover:64x64x8192* -->
                                                     the fastest at problems of these files, and how to call it; before
                                                     a '=' what the regime is called, with _ for a space
    <!-- beside:h200 router-nk:16x* -->              the fastest there, and the other language's best
    <!-- verdicts -->                                whom the referee judged as expected, on each GPU; nothing where no
                                                     device has any
    <!-- versions -->                                which versions were run, on what
    <!-- across:router-nk router-tlx -->             Triton's kernels under each Triton that recorded it, or these files
    <!-- claims -->                                  every claim and its verdict
    <!-- published:or_reduce-int64* or_reduce unrolled=triton/or_reduce.unrolled best_tilus=tilus/* -->
                                                     a document's own table of this name beside rows, of all files that
                                                     the pattern names: in each of its columns, and in further ones,
                                                     the fastest that a pattern names (several: with commas);
                                                     'ONE:OTHER': how many times as fast one is as the other
    <!-- counted:w4a16-published w4a16 SplitK=published_triton/w4a16.splitk -->
                                                     a document's own table of this name of what ncu counted, beside
                                                     what it counted here: for each of its columns, of a contender
    <!-- code:kernels_tilus/atomic.py AtomicMatmul.__call__ self.band_product -->
                                                     a function, from the first line that holds the last words

    <!-- resources:semaphore.fp32 -->               what both languages compile it to, at one config

and within a line, over the problems that a pattern names (several: with commas); of contenders that one pattern names,
the fastest on each problem:

    <!-- launch:router-nk -->                        what an empty launch took beside these rows, in us
    <!-- us:router-nk 32x* tilus/cluster -->         the cold time, from the least to the most
    <!-- beyond:router-nk@warm 32x* tilus/cluster --> its time less that of floor/read, in us
    <!-- beyond:router-nk 32x* 1.4 -->               likewise of a kernel 1.4 times as fast as the baseline
    <!-- floors:router-nk 32x* tilus/cluster -->     how many times as long as floor/read it takes
    <!-- times:router-nk 32x* tilus/* torch/mm -->   how many times as fast the first is as the second
    <!-- mean:models 16x* torch/linear.* torch/mm --> the geometric mean of these
    <!-- us:linear-costs@host 1x* torch/mm -->       by another timing than cold
    <!-- uj:router-costs@graph * torch/mm -->        microjoules of a launch
    <!-- ahead:router-nk * tilus/* triton/* -->      on how many of these problems the first takes less time
    <!-- longer:cliffs 16x256x7176* 16x256x7168* triton/* -->
                                                     how many times as long each of these takes on one problem as on
                                                     another
    <!-- same:router-matched-nk * *@tilus -->       tilus' speed over Triton's, of these kernels at this one's configs
    <!-- lines:kernels_tilus/wgmma.py stages WgmmaProduct -->
                                                     lines of code of these functions and classes together
    <!-- reran:router-nk * again/router-nk -->  how far speed-ups of the same configs lie apart in two files
    <!-- interval:router-nk@graph * */atomic -->    half the width of the intervals of speed-ups, of all that is named

each up to its end, <!-- /results --> and so on. The name is that of a file under bench/results, of every device, or
DEVICE:FILE of one; of counters and stages, in folders of these names there; of code and lines, its path.
"""

import ast
import io
import json
import os
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.answers import Answer, answer
from triton_vs_tilus.bench.rows.regression import changes
from triton_vs_tilus.bench.rows.row import BASELINE, TIMINGS, Launch, Row, SearchRecord, TimingName
from triton_vs_tilus.bench.show import counters, matrix, plots, resources, tables
from triton_vs_tilus.bench.show.claims.beside import beside
from triton_vs_tilus.bench.show.claims.counted import counted_beside
from triton_vs_tilus.bench.show.claims.tables import recorded_table
from triton_vs_tilus.bench.show.ladder import ladder_table
from triton_vs_tilus.bench.show.regimes import beside_table, regimes_table
from triton_vs_tilus.bench.show.spaces import sizes_table
from triton_vs_tilus.bench.show.stages import budget_table
from triton_vs_tilus.bench.show.versions import across_versions, versions_table
from triton_vs_tilus.bench.show.winners import rules_table
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.w4a16 import W4A16Matmul

MARKED = re.compile(
    r"(<!-- (results|ladder|matrix|plots|printed|claims|counters|stages|code|spaces|moved|regimes|beside|map|"
    r"searches|verdicts|versions|across|resources|published|counted|borrowed)(?::(\S+))?((?: \S+)*) -->\n)"
    r".*?(<!-- /\2 -->)",
    re.DOTALL,
)
WITHIN_A_LINE = re.compile(
    r"(<!-- (launch|us|beyond|floors|uj|times|mean|ahead|reran|interval|longer|same|lines):(\S+)((?: (?!-->)\S+)*) -->)"
    r"[^\n]*?(<!-- /\2 -->)"
)
FORMATTING = ("# fmt: off", "# fmt: on")
LAYOUT_TOKENS = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def update(paths: Iterable[Path] | None = None, *, write: bool = True) -> list[Path]:
    """Renews what stands between the markers, and the plots shown there; returns the files that were not up to date.

    Raises ValueError for a marker whose file no device has, for an unknown plot, and without paths where there
    is no file of its own.
    """
    if paths is None:
        paths = [queries.ROOT / "README.md", *sorted((queries.ROOT / "notes").glob("*.md"))]
        if not any(path.exists() for path in paths):
            raise ValueError(
                f"there is no README.md and no note in {queries.ROOT}; accepted: a checkout of the project"
            )
    stale: list[Path] = []
    for path in (path for path in paths if path.exists()):
        shown = _Page(path)
        old = path.read_text()
        try:
            new = WITHIN_A_LINE.sub(_figure, MARKED.sub(shown.fresh, old))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        if new != old:
            stale.append(path)
            if write:
                replace_text(path, new)
        for drawn, rows in shown.plots.items():
            if plots.stamped(drawn) != plots.stamp(rows):
                stale.append(drawn)
                if write and plots.save(drawn.stem.rpartition("-")[2], rows, drawn) is None:
                    raise ValueError(f"{path.name}: {drawn.name}: its rows have nothing to draw")
    return stale


def quoted(path: str, name: str, start: str = "") -> str:
    """A function or a class's method ('Class.method') of a file of this project, as Markdown, without its docstring and
    from the first line that contains `start`.

    Raises ValueError where there is no such file, function or line.
    """
    source, node = _definition(path, name)
    body = node.body[1:] if ast.get_docstring(node) else node.body
    lines = source.splitlines()[body[0].lineno - 1 : node.end_lineno]
    first = next((i for i, line in enumerate(lines) if start in line), None)
    if first is None:
        raise ValueError(f"code:{path}: no line of {name} contains {start!r}")
    shown = textwrap.dedent("\n".join(line for line in lines[first:] if line.strip() not in FORMATTING))
    return f"`{path}`, `{name}`:\n\n```python\n{shown}\n```\n"


def code_lines(path: str, *names: str) -> int:
    """Of functions, classes or methods of a file of this project: their lines of code together, without blank lines,
    comments and docstrings. Raises ValueError as `quoted`."""
    count = 0
    for name in names:
        source, node = _definition(path, name)
        first = min(each.lineno for each in (node, *node.decorator_list))
        of_code = {
            line
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in (*LAYOUT_TOKENS, tokenize.COMMENT)
            for line in range(token.start[0], token.end[0] + 1)
        }
        for each in ast.walk(node):
            if isinstance(each, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(each) is not None:
                of_code -= {*range(each.body[0].lineno, (each.body[0].end_lineno or 0) + 1)}
        count += len(of_code & {*range(first, node.end_lineno + 1)})
    return count


def _definition(path: str, name: str) -> tuple[str, Any]:
    """The text of a file of this project, and its function, class or method of this name. Raises ValueError."""
    if not (queries.ROOT / path).is_file():
        raise ValueError(f"code:{path}: no such file")
    source = (queries.ROOT / path).read_text()
    node: Any = ast.parse(source)
    for part in name.split("."):
        within = [child for child in getattr(node, "body", []) if getattr(child, "name", None) == part]
        if not within:
            raise ValueError(f"code:{path}: no {name}")
        node = within[0]
    return source, node


def printed(name: str) -> list[str]:
    """What a program printed, of every device, as Markdown. Raises ValueError where no device has it."""
    files = sorted(queries.RESULTS.glob(f"*/{name}.txt"))
    if not files:
        raise ValueError(f"printed:{name}: no device has {name}.txt under bench/results")
    return [f"On {file.parent.name}:\n\n```\n{file.read_text().rstrip()}\n```\n" for file in files]


def verdicts(folder: Path) -> list[str]:
    """How many adversaries got the expected verdict, and who got another, of every device, as Markdown for a page in
    this folder."""
    made = []
    for path, found in queries.recorded_verdicts("adversaries").items():
        others = [f"; `{each.adversary}`: {each.status}" for each in found if not each.as_expected]
        told = f"{len(found) - len(others)} of {len(found)} got the expected verdict{''.join(others)}"
        file = f"[`{path.name}`]({Path(os.path.relpath(path, folder)).as_posix()})"
        revisions = ", ".join(sorted({f"`{each.environment.git}`" for each in found}))
        made.append(f"{told} ({file}, {revisions}). {tables.source_of(found)}.\n")
    return made


def moved(name: str, before: str, after: str, percent: str) -> list[str]:
    """The contenders but the baseline whose speed-up, cold or by the timing that is named, differs by more than so many
    percent between the files of this name in two folders beside it, of every device, as Markdown; '.' is the recorded
    file itself. Raises ValueError where no device has both."""
    made = []
    file, timing = _file_and_timing(name)
    for path in _recorded("moved", file):
        older, newer = (path.parent / folder / path.name for folder in (before, after))
        if not (older.exists() and newer.exists()):
            continue
        old = queries.rows_of(older)
        new = queries.rows_of(newer)
        timed = [change for change in changes(new, old) if change.timing == timing and change.verdict != "baseline"]
        found = [(change.speedup, change) for change in timed if change.speedup is not None]
        far = [(speed, change) for speed, change in found if abs(speed - 1) > float(percent) / 100]
        lines = [
            [change.problem, change.contender, f"{change.old_us:.2f}", f"{change.new_us:.2f}", f"{speed:.3f}x"]
            for speed, change in sorted(far, key=lambda pair: pair[0])
        ]
        foot = f"{len(far)} of {len(found)} moved by more than {percent} %. New: {tables.source_of(new)}"
        header = ["problem", "contender", "old us", "new us", "speed"]
        title = f"{timing}, {file}: {_rows_of(after)} against {_rows_of(before)}"
        made.append(tables.Table(title, header, lines, foot=foot).markdown())
    if not made:
        raise ValueError(f"moved:{name}: no device has {file}.jsonl in both {before} and {after}")
    return made


def _rows_of(folder: str) -> str:
    return "the recorded rows" if folder == "." else folder


def regimes(device: str, asked: Sequence[str]) -> tables.Table:
    """The fastest on each problem that 'FILE:PATTERN' names, of the rows of one device; 'WHAT_IT_IS=FILE:PATTERN' says
    what the regime is called. Raises ValueError where there is no such problem, or it is no matmul."""
    named = [word.rpartition("=") for word in asked]
    return regimes_table(
        [(label.replace("_", " "), found) for label, _, rule in named for found in _answers("regimes", device, rule)]
    )


def beside_fastest(device: str, asked: Sequence[str]) -> tables.Table:
    """The fastest, and the other language's best on each problem that 'FILE:PATTERN' names, of the rows of one device.
    Raises ValueError as `regimes` does."""
    return beside_table([found for word in asked for found in _answers("beside", device, word)])


def which_kernel(device: str, rules: Sequence[str]) -> tables.Table:
    """Which kernel to take, a line per rule 'FILE:PATTERNS', of the rows of one device. Raises ValueError where a
    problem of a file is in no rule, or in two."""
    found = [_answers("map", device, rule) for rule in rules]
    times = Counter(of.fastest.problem.name for answers in found for of in answers)
    files = dict.fromkeys(rule.partition(":")[0] for rule in rules)
    recorded = [of for file in files for of in _answers("map", device, f"{file}:*")]
    for name in sorted({of.fastest.problem.name for of in recorded}):
        if times[name] != 1:
            raise ValueError(f"map:{device}: {name} is in {times[name]} rules; accepted: 1")
    return rules_table(found, recorded)


def _answers(what: str, device: str, rule: str) -> list[Answer]:
    """The answer at each matmul that 'FILE:PATTERNS' names, patterns separated by commas. Raises ValueError where there
    is none."""
    file, patterns = rule.split(":")
    path = queries.RESULTS / device / f"{file}.jsonl"
    rows = queries.rows_of(path)
    problems = [group[0].problem.to_problem() for group in queries.by_problem(rows).values()]
    named = [
        problem
        for problem in problems
        if isinstance(problem, Matmul | W4A16Matmul) and _is_named(problem.name, patterns)
    ]
    if not named:
        raise ValueError(f"{what}:{device}: no matmul of {file} is {patterns}")
    return [answer(problem, files={path: rows}) for problem in named]


def searches(device: str) -> tables.Table:
    """What the searches took whose configs are shipped for a device, of each kernel whose searches told."""
    told: dict[str, list[SearchRecord]] = {}
    for name, entries in json.loads(tuned.path_of(device, shipped=True).read_text()).items():
        for search in (entry.get("search", {}) for entry in entries):
            if search.get("build_seconds"):
                record = SearchRecord(**{field: search[field] for field in SearchRecord.__struct_fields__})
                told.setdefault(name, []).append(record)
    return tables.searches_table(told)


def published(name: str, table: str, *columns: str) -> tables.Table:
    """A document's own table beside the rows of the files that a pattern names, of every device. columns: each a name,
    with _ for a space, and patterns of contenders: 'best_Triton=triton/*'. Raises ValueError."""
    patterns = {column: named.split(",") for column, named in _columns(columns).items()}
    return beside(table, patterns, [row for rows in _recorded("published", name).values() for row in rows])


def counted_there(name: str, table: str, *columns: str) -> tables.Table:
    """A document's own table of what ncu counted beside the launches of this name, of every device. columns: each the
    name of one of its columns, with _ for a space, and a contender. Raises ValueError."""
    return counted_beside(table, _columns(columns), [one for of_file in _launches("counted", name) for one in of_file])


def _columns(words: Sequence[str]) -> dict[str, str]:
    """The pattern of each column, by its name: of 'best_Triton=triton/*'."""
    return {column.replace("_", " "): named for column, named in (word.split("=") for word in words)}


def searched(workload: str, tokens: Sequence[int]) -> str:
    """How many configs a search may try of each kernel of both languages, as Markdown. Raises ValueError where the
    workload has no such T, or a language cannot be imported."""
    if reasons := contenders.not_importable():
        raise ValueError(f"spaces:{workload}: {'; '.join(reasons.values())}")
    chosen = [problem for _, problem in workloads.problems(workload, [], tokens=tokens)]
    return sizes_table(contenders.all_contenders(), chosen).markdown()


def counted(name: str, contenders: Sequence[str]) -> list[tables.Table]:
    """What ncu counted of these contenders (patterns; none: of all), a table per problem, of every device.

    Raises ValueError where no device has it, or there is nothing of these contenders.
    """
    files = _launches("counters", name)
    made = [table for launches in files for table in counters.tables(launches, contenders or ("*",))]
    if not made:
        raise ValueError(f"counters:{name}: nothing of {', '.join(contenders)} was counted")
    return made


def budgets(name: str, contenders: Sequence[str]) -> list[tables.Table]:
    """Where the time of these contenders goes (patterns; none: of each language's fastest), of every device.

    name: of a file, by its cold times; FILE@warm by those. Raises ValueError where no device has it, or nothing of
    these contenders is in it.
    """
    file, timing = _file_and_timing(name)
    files = queries.recorded_stages(file)
    if not files:
        raise ValueError(f"stages:{name}: no device has stages/{file}.jsonl under bench/results")
    return [budget_table(stages, timing, contenders) for stages in files.values()]


def _launches(what: str, name: str) -> list[list[Launch]]:
    """What ncu counted, of every device. Raises ValueError, with the marker's name, where no device has any."""
    files = queries.recorded_launches(name)
    if not files:
        raise ValueError(f"{what}:{name}: no device has counters/{name}.jsonl under bench/results")
    return list(files.values())


def _recorded(what: str, name: str) -> dict[Path, list[Row]]:
    """The rows of this name, of every device. Raises ValueError, with the marker's name, where no device has any."""
    files = queries.recorded(name)
    if not files:
        raise ValueError(f"{what}:{name}: no device has {name}.jsonl under bench/results")
    return files


def _named(rows: list[Row], patterns: list[str], file: Path) -> list[list[Row]]:
    """The rows of each problem that a ladder's pattern names; without patterns, of every one. Raises ValueError where
    there is none."""
    groups = queries.by_problem(rows).items()
    chosen = [group for name, group in groups if any(fnmatchcase(name, pattern) for pattern in patterns or ["*"])]
    if not chosen:
        raise ValueError(f"ladder:{file.stem}: none is {', '.join(patterns)}")
    return chosen


def _figure(match: re.Match[str]) -> str:
    begin, what, name, words, end = match.groups()
    if what == "launch":
        return begin + " or ".join(launched(name)) + end
    if what == "lines":
        return begin + str(code_lines(name, *words.split())) + end
    problems, *named = words.split()
    return begin + " or ".join(FIGURES[what](name, problems, *named)) + end


def timed(name: str, problems: str, contender: str, other: str) -> list[str]:
    """How many times as fast the contender was as the other on the problems that the patterns name (separated by
    commas): '0.84 to 1.05', of every device. Of contenders that one pattern names, the fastest on each problem. Of the
    baseline what its row says, which is taken round by round.

    name: of a file, by its cold times; FILE@host or FILE@graph by those. Raises ValueError where there is no such
    problem, or a contender has no time on one."""
    return [tables.extent(ratios, ".2f") for ratios in _ratios(name, problems, contender, other)]


def averaged(name: str, problems: str, contender: str, other: str) -> list[str]:
    """The geometric mean over problems of what `timed` tells: '1.36'."""
    return [f"{geometric_mean(ratios):.2f}" for ratios in _ratios(name, problems, contender, other)]


def taken(name: str, problems: str, contender: str) -> list[str]:
    """The time of the contender, in microseconds: '7.0 to 7.3'; otherwise as `timed`."""
    file, timing = _file_and_timing(name)
    found = _rows(file, timing, problems, contender)
    return [tables.extent([row.timing[timing].median_us for (row,) in each], ".1f") for each in found]


def beyond(name: str, problems: str, contender: str) -> list[str]:
    """The time of the contender less that of floor/read, in microseconds: '1.60 to 2.11'; otherwise as `taken`. In its
    place a number: of whoever were so many times as fast as the baseline."""
    file, timing = _file_and_timing(name)
    speed = float(contender) if re.fullmatch(r"[\d.]+", contender) else None
    found = _rows(file, timing, problems, contender if speed is None else BASELINE)
    return [
        tables.extent(
            [row.timing[timing].median_us / (speed or 1) - row.floor[timing].read_us for (row,) in each], ".2f"
        )
        for each in found
    ]


def floors(name: str, problems: str, contender: str) -> list[str]:
    """How many times as long as floor/read the contender takes: '1.20 to 1.36'; otherwise as `taken`."""
    file, timing = _file_and_timing(name)
    found = _rows(file, timing, problems, contender)
    return [
        tables.extent([row.timing[timing].median_us / row.floor[timing].read_us for (row,) in each], ".2f")
        for each in found
    ]


def spent(name: str, problems: str, contender: str) -> list[str]:
    """The energy of a launch, in microjoules of the whole GPU: '1178'; otherwise as `taken`. Raises ValueError where it
    was not measured."""
    file, timing = _file_and_timing(name)
    joules = [[row.timing[timing].energy_uj for (row,) in each] for each in _rows(file, timing, problems, contender)]
    if any(energy is None for each in joules for energy in each):
        raise ValueError(f"uj:{name}: the energy of {contender} was not measured")
    return [tables.extent([energy for energy in each if energy is not None], ".0f") for each in joules]


def ahead(name: str, problems: str, contender: str, other: str) -> list[str]:
    """On how many of the problems the contender takes less time than the other: '8 of 12'; otherwise as `timed`."""
    file, timing = _file_and_timing(name)
    pairs = _rows(file, timing, problems, contender, other)
    return [
        f"{sum(one.timing[timing].median_us < two.timing[timing].median_us for one, two in found)} of {len(found)}"
        for found in pairs
    ]


def reran(name: str, problems: str, other: str) -> list[str]:
    """How far the cold speed-ups of contenders lie apart in two files, where both ran one config: '0.6 % in the median,
    6.1 % at most, of 252', of every device. Raises ValueError where there are none."""
    told = []
    for path, rows in _recorded("figures", name).items():
        asked = [row for row in rows if _is_named(row.problem.name, problems)]
        found = queries.apart(asked, queries.rows_of(path.parent / f"{other}.jsonl"))
        shares = [share for (timing, _), apart in found.items() if timing == "cold" for share in apart]
        if not shares:
            raise ValueError(f"reran:{name}: no contender was timed at one config in it and in {other}")
        text = f"{median(shares):.1%} in the median, {max(shares):.1%} at most, of {len(shares)}"
        told.append(text.replace("%", " %"))
    return told


def half_interval(name: str, problems: str, contender: str) -> list[str]:
    """Half the width of the intervals of speed-ups, as a share of them, of all contenders that the patterns name
    (separated by commas): '0.22 % in the median, of 275', of every device. Raises ValueError where none was timed."""
    file, timing = _file_and_timing(name)
    told = []
    for rows in _recorded("figures", file).values():
        named = [
            row.timing[timing]
            for row in queries.contending(queries.passed(rows, timing))
            if not row.is_baseline and _is_named(row.problem.name, problems) and _is_named(row.contender, contender)
        ]
        if not named:
            raise ValueError(f"interval:{name}: nothing of {contender} was timed on {problems}")
        halves = [(each.speedup_high - each.speedup_low) / 2 / each.speedup for each in named]
        told.append(f"{median(halves):.2%} in the median, of {len(halves)}".replace("%", " %"))
    return told


def longer(name: str, problem: str, other: str, contender: str) -> list[str]:
    """How many times as long each contender that the patterns name (separated by commas) takes on one problem as on
    another: '1.00 to 1.58, 1.04 in the median, of 12', of every device. Raises ValueError where none was timed on
    both, or a pattern names several problems."""
    file, timing = _file_and_timing(name)
    told = []
    for rows in _recorded("figures", file).values():
        us: dict[str, dict[str, float]] = {problem: {}, other: {}}
        for row, pattern in product(queries.contending(queries.passed(rows, timing)), us):
            if fnmatchcase(row.problem.name, pattern) and _is_named(row.contender, contender):
                if row.contender in us[pattern]:
                    raise ValueError(f"longer:{name}: {pattern} names several problems")
                us[pattern][row.contender] = row.timing[timing].median_us
        ratios = [us[problem][each] / us[other][each] for each in us[problem] if each in us[other]]
        if not ratios:
            raise ValueError(f"longer:{name}: nothing of {contender} was timed on {problem} and on {other}")
        among = f", {median(ratios):.2f} in the median, of {len(ratios)}" if len(ratios) > 1 else ""
        told.append(tables.extent(ratios, ".2f") + among)
    return told


def at_one_config(name: str, problems: str, kernels: str) -> list[str]:
    """The second language's speed over the first's where both ran one config, of the problems and kernels that patterns
    name: '1.02 (0.78 to 1.29, 59 comparisons)', of every device. A kernel is named with the language whose config it
    was, 'atomic@tilus'. Raises ValueError where there are none."""
    file, timing = _file_and_timing(name)
    told = []
    for rows in _recorded("figures", file).values():
        found = matrix.matched(rows, timing)
        found = found[found.config != "own"]
        named = [
            fnmatchcase(f"{line.kernel}@{line.config}", kernels) and _is_named(line.problem, problems)
            for line in found.itertuples()
        ]
        ratios = found.ratio[named]
        if ratios.empty:
            raise ValueError(f"same:{name}: nothing of {kernels} on {problems} ran at one config")
        extent = f" ({ratios.min():.2f} to {ratios.max():.2f}, {len(ratios)} comparisons)" if len(ratios) > 1 else ""
        told.append(f"{geometric_mean(ratios):.2f}{extent}")
    return told


FIGURES: dict[str, Callable[..., list[str]]] = {
    "us": taken,
    "beyond": beyond,
    "floors": floors,
    "uj": spent,
    "times": timed,
    "mean": averaged,
    "ahead": ahead,
    "reran": reran,
    "interval": half_interval,
    "longer": longer,
    "same": at_one_config,
}


def _ratios(name: str, problems: str, contender: str, other: str) -> list[list[float]]:
    file, timing = _file_and_timing(name)

    def ratio(one: Row, two: Row) -> float:
        speedup = one.timing[timing].speedup
        if two.contender in BASELINES and speedup is not None:
            return speedup
        return two.timing[timing].median_us / one.timing[timing].median_us

    return [[ratio(*pair) for pair in pairs] for pairs in _rows(file, timing, problems, contender, other)]


def _is_named(name: str, patterns: str) -> bool:
    """Whether one of the patterns, separated by commas, names it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))


def _file_and_timing(name: str) -> tuple[str, TimingName]:
    file, _, named = name.partition("@")
    for timing in TIMINGS:
        if timing == (named or "cold"):
            return file, timing
    raise ValueError(f"{name}: timing is {named}; accepted: {', '.join(TIMINGS)}")


def _rows(name: str, timing: TimingName, problems: str, *contenders: str) -> list[list[tuple[Row, ...]]]:
    """Of every device, for each problem the fastest row that each pattern names, of the last measurement that has all
    of them. A control, or a kernel with the other language's config, counts only where its own name is given."""

    def of(group: Sequence[Row], named: str) -> list[Row]:
        others = [row for row in queries.contending(group) if fnmatchcase(row.contender, named)]
        return [row for row in group if row.contender == named] or others

    found = []
    for rows in _recorded("figures", name).values():
        measured: dict[str, dict[tuple[str, str], list[Row]]] = {}
        for row in sorted(queries.passed(rows, timing), key=lambda row: row.time):
            if _is_named(row.problem.name, problems):
                measured.setdefault(row.problem.name, {}).setdefault(row.measurement, []).append(row)
        if not measured:
            raise ValueError(f"{name}: no problem is {problems}")
        named = {
            problem: [[of(group, one) for one in contenders] for group in groups.values()]
            for problem, groups in measured.items()
        }
        whole = {problem: [groups for groups in each if all(groups)] for problem, each in named.items()}
        if lacking := [problem for problem, each in whole.items() if not each]:
            raise ValueError(f"{name}: {', '.join(lacking)}: not all of {', '.join(contenders)} were timed")
        fastest = [
            tuple(min(rows, key=lambda row: row.timing[timing].median_us) for rows in each[-1])
            for each in whole.values()
        ]
        found.append(fastest)
    return found


def launched(name: str) -> list[str]:
    """The cold time of an empty launch beside the rows of a file, from its least to its most, of every device:
    '3.1 to 3.3', in microseconds. Raises ValueError where no device has it."""
    extents = []
    for rows in _recorded("launch", name).values():
        times = [row.floor["cold"].launch_us for row in rows if "cold" in row.floor]
        extents.append(tables.extent(times, ".1f"))
    return extents


class _Page:
    """One page's markers. plots: the files that it shows, with the rows that they are drawn from."""

    def __init__(self, path: Path):
        self.path = path
        self.plots: dict[Path, list[Row]] = {}

    def fresh(self, match: re.Match[str]) -> str:
        begin, what, name, words, end = match.groups()
        if what == "verdicts":
            made = verdicts(self.path.parent)
        elif what == "versions":
            made = [versions_table().markdown()]
        elif what == "claims":
            made = [recorded_table().markdown()]
        elif what == "code":
            made = [quoted(name, *words.split(maxsplit=1))]
        elif what == "printed":
            made = printed(name)
        elif what == "regimes":
            made = [regimes(name, words.split()).markdown()]
        elif what == "beside":
            made = [beside_fastest(name, words.split()).markdown()]
        elif what == "map":
            made = [which_kernel(name, words.split()).markdown()]
        elif what == "searches":
            made = [searches(name).markdown()]
        elif what == "moved":
            made = moved(name, *words.split())
        elif what == "published":
            made = [published(name, *words.split()).markdown()]
        elif what == "counted":
            made = [counted_there(name, *words.split()).markdown()]
        elif what == "resources":
            made = [resources.side_by_side(resources.read(), name).markdown()]
        elif what == "spaces":
            made = [searched(name, [int(word) for word in words.split()])]
        elif what == "results":
            file, timing = _file_and_timing(name) if "@" in name else (name, None)
            shown = words.split() or tables.README_CONTENDERS
            made = [tables.readme_table(rows, shown, timing) for rows in _recorded(what, file).values()]
        elif what == "counters":
            made = [table.markdown() for table in counted(name, words.split())]
        elif what == "stages":
            made = [table.markdown() for table in budgets(name, words.split())]
        else:
            files = _recorded(what, name)
            made = [getattr(self, f"_{what}")(rows, words.split(), file) for file, rows in files.items()]
        return begin + "\n".join(made) + end

    def _ladder(self, rows: list[Row], words: list[str], file: Path) -> str:
        return "\n".join(ladder_table(group).markdown() for group in _named(rows, words, file))

    def _across(self, rows: list[Row], words: list[str], file: Path) -> str:
        return across_versions(file, rows, words).markdown()

    def _matrix(self, rows: list[Row], words: list[str], file: Path) -> str:
        made = matrix.tables(rows) if not words else [matrix.matched_table(rows, "cold")]
        return "\n".join(table.markdown() for table in made)

    def _borrowed(self, rows: list[Row], words: list[str], file: Path) -> str:
        table = matrix.borrowed_table(rows, "cold")
        if words:
            raise ValueError(f"borrowed:{file.stem}: {' '.join(words)} asked for; it takes only a file")
        if not table.lines:
            raise ValueError(f"borrowed:{file.stem}: no kernel ran a borrowed config beside its own")
        return table.markdown()

    def _plots(self, rows: list[Row], words: list[str], file: Path) -> str:
        unknown = set(words) - plots.PLOTS.keys()
        if unknown or not words:
            asked = ", ".join(sorted(unknown)) or "none"
            raise ValueError(f"plots:{file.stem}: {asked} asked for; there are {', '.join(plots.PLOTS)}")
        kinds, lines = plots.kinds(rows), []
        for kind, of_kind in kinds.items():
            for word in words:
                name = f"{file.stem if len(kinds) == 1 else kind}-{word}"
                drawn = queries.ROOT / "notes" / "plots" / file.parent.name / f"{name}.svg"
                self.plots[drawn] = of_kind
                lines.append(f"![{name}]({Path(os.path.relpath(drawn, self.path.parent)).as_posix()})\n")
        return "\n".join(lines)
