"""The page: what the recorded rows say, as one HTML file that asks for nothing from anywhere.

The answers of bench/answer.py are worked out here for every recorded problem, and the page takes the nearest, so that
both say the same. Plots are SVG that page.js draws: a marker can be reached by keyboard, has a name for a screen reader
and follows the colours of the page, which plotting libraries that embed themselves in 1 to 5 MB do not offer.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from triton_vs_tilus.bench.cli import CLOCKS, DTYPES, EPILOGUES, LAYOUTS
from triton_vs_tilus.bench.recordings import RECORDINGS
from triton_vs_tilus.bench.rows import answers, queries
from triton_vs_tilus.bench.rows.row import PASSED, TEMPERATURES, TIMINGS, Row, TimingName
from triton_vs_tilus.bench.shapes import MOST_DIGITS
from triton_vs_tilus.bench.show import answer, ladder, matrix, resources
from triton_vs_tilus.bench.show.claims.claim import VERDICTS
from triton_vs_tilus.bench.show.claims.tables import recorded_table
from triton_vs_tilus.bench.show.mechanisms import SURE, drawing, mechanisms, needs
from triton_vs_tilus.bench.show.pairs import STEPS, Pair, pairs
from triton_vs_tilus.bench.show.tables import JOINT, UNSEARCHED, Table, clock_text, config_text, kind_of, naming
from triton_vs_tilus.bench.show.versions import versions_table
from triton_vs_tilus.common.chain import Chain
from triton_vs_tilus.common.distance import OTHER_ROWS, WIDEST
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.kernel import LANGUAGES, Language
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import DTYPES as TORCH_DTYPES
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.w4a16 import W4A16Matmul

# Beside the notes, which it links to.
PATH = queries.ROOT / "notes" / "index.html"
FIRST = "router-nk"
# Of bench/references/chain.py: the variant names the language of the product in them.
CHAINS = tuple(f"torch/chain.{language.value}" for language in LANGUAGES)
# As common.kernel.MatmulConfig prints.
CONFIG = "Config: block M x N x K, s split of K, w warps, p pipeline stages."
DIGITS = 9  # behind the point: page.js rounds once more, to what Python shows of the row itself
SIZES = re.compile(r"(?:\w+-)?(\d+x\d+x\d+)-?")  # what a problem's name begins with
NAME_PART = re.compile(r"(?<=[/.])(?=[a-z_])")
FIGURE = re.compile(r"[+-]?\d[\d.]*[%x°†]*( \([^)]*\))?( tie)?")
Files = Mapping[Path, Sequence[Row]]


def update(*, write: bool = True) -> bool:
    """Whether the page was not up to date; renews it then. Raises InvalidRows, OSError."""
    made = html()
    if PATH.exists() and PATH.read_text() == made:
        return False
    if write:
        replace_text(PATH, made)
    return True


def html() -> str:
    """Of the rows that are checked in: the same rows and sources give the same text. Raises InvalidRows."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    files, compiled = queries.recorded(), resources.read()
    devices = {path.parent.name: rows[0].environment.device for path, rows in files.items()}
    usual = next(iter(answers.of_device(files))).parent.name
    first = next(rows for path, rows in files.items() if path.stem == FIRST)
    cold = [rows for rows in files.values() if any("cold" in row.timing for row in rows)]
    by_time = sorted(cold, key=lambda rows: max(row.time for row in rows if "cold" in row.timing))
    newest = {rows[0].environment.device: rows for rows in by_time}
    languages, header, lines = needs()
    environment.globals["is_figure"] = is_figure
    environment.filters["breakable"] = breakable
    return environment.get_template("page.html").render(
        data=_script(data(files)),
        clocks={clock: TEMPERATURES[clock] for clock in CLOCKS},
        dtypes=DTYPES,
        layouts=LAYOUTS,
        epilogues=EPILOGUES,
        devices=dict(sorted(devices.items(), key=lambda device: device[0] != usual)),
        ladders=[(group[0].problem.m, ladder.ladder_table(group)) for group in queries.by_problem(first).values()],
        matrices=[(_name(path), title(path, rows), _matrices(rows)) for path, rows in files.items()],
        languages=languages,
        needs=Table("", header, lines),
        mechanisms=list(mechanisms()),
        sure=SURE,
        verdicts=VERDICTS,
        claims=recorded_table(),
        versions=versions_table(),
        pairs=[(pair, drawing(pair.name), _compiled(pair, compiled), _variants(pair, compiled)) for pair in pairs()],
        steps=STEPS,
        unsearched=UNSEARCHED,
        first=FIRST,
        noise={device: found for device, rows in newest.items() if (found := queries.between_runs(rows))},
        matched=[name for name in RECORDINGS if "matched" in name],
        joint=JOINT,
        config=CONFIG,
    )


def data(files: Files) -> dict[str, Any]:
    """What page.js reads. strings: every text once, and elsewhere its index."""
    strings = _Strings()
    made = {
        "protocols": [protocol.value for protocol in Protocol],
        "clocks": {clock: TEMPERATURES[clock] for clock in CLOCKS},
        "first": FIRST,
        "unsearched": UNSEARCHED,
        "columns": _columns(files),
        "changes": ladder.STEPS,
        "cells": answer.CELLS,
        "far": answers.FAR,
        "leastFar": answer.LEAST_FAR,
        "notNear": answer.NOT_NEAR,
        "insteadOf": answer.INSTEAD,
        "otherCopies": answer.OTHER_COPIES,
        "unpacked": answer.UNPACKED,
        "rowsUnpacked": answer.ROWS_UNPACKED,
        "otherRows": OTHER_ROWS,
        "widest": WIDEST,
        "multiples": answers.MULTIPLES,
        "mostDigits": MOST_DIGITS,
        "files": [_file(path, rows, strings) for path, rows in files.items()],
        "asked": _asked(),
        "flags": [answers.flags_of(problem) for problem in _kinds().values()],
        "devices": {
            slug: _device_answers(answers.of_device(files, slug), files, strings)
            for slug in dict.fromkeys(path.parent.name for path in files)
        },
    }
    return {"strings": list(strings), **made}


def _rounded(value: float) -> float:
    """To DIGITS, but where its text of 2 would become another by being rounded twice."""
    short = round(value, DIGITS)
    return short if f"{short:.2f}" == f"{value:.2f}" else value


class _Strings(dict[str, int]):
    """Texts, and their places in the order in which they came."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _script(values: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element; a line per file and kind, so that one change alters few."""
    parts = []
    for name, value in values.items():
        if isinstance(value, list):
            text = "[\n" + ",\n".join(map(_json, value)) + "\n]"
        elif isinstance(value, dict):
            text = "{\n" + ",\n".join(f"{_json(key)}:{_json(part)}" for key, part in value.items()) + "\n}"
        else:
            text = _json(value)
        parts.append(f"{_json(name)}:{text}")
    return "{\n" + ",\n".join(parts) + "\n}"


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def title(path: Path, rows: Sequence[Row]) -> str:
    """What a file holds: '[T, 7168] @ [7168, 256], bf16, weight stored [N, K], H200 (router-nk)'. Sizes that its
    problems do not share are letters. Also how many of its rows are cold by the former clock."""
    problems = {row.problem.name: row.problem for row in rows}.values()
    sizes = {name: {getattr(problem, name) for problem in problems} for name in "mnk"}
    m, n, k = (str(next(iter(values))) if len(values) == 1 else name.upper() for name, values in sizes.items())
    of_op = {
        Matmul.op: f"[{m}, {k}] @ [{k}, {n}]",
        W4A16Matmul.op: f"[{m}, {k}] @ [{k}, {n}] of 4 bits",
        OrReduce.op: f"OR over K of [{m}, {n}, {k}]",
        Chain.op: f"router, [{m}, {k}] @ [{k}, {n}] and what follows",
    }
    kinds = dict.fromkeys(kind_of(problem) for problem in problems)
    what = naming(rows)[0] or ", ".join([of_op[rows[0].problem.op], *(kinds if len(kinds) == 1 else ())])
    return f"{what}, {_device(rows)} ({path.stem}{clock_text(rows)})"


def _device(rows: Sequence[Row]) -> str:
    return rows[0].environment.device.removeprefix("NVIDIA ")


def labels(rows: Sequence[Row]) -> tuple[str, list[str]]:
    """What tells the problems of a file apart, by the order in which they come, and what that is: 'T' where they share
    all but M, else their sizes and what else they do not share."""
    common, what, named = naming(rows)
    if common:
        return what, list(named.values())
    rests = {name: SIZES.sub("", name).split("-") for name in named}
    shared = set.intersection(*map(set, rests.values()))
    own = {name: [part for part in rest if part not in shared] for name, rest in rests.items()}
    return "M x N x K", ["-".join([*SIZES.findall(name), *rest]) for name, rest in own.items()]


def _file(path: Path, rows: Sequence[Row], strings: _Strings) -> dict[str, Any]:
    latest = [row for group in queries.by_problem(rows).values() for row in group]
    problems = list({row.problem.name: row.problem for row in latest}.values())
    head, told = labels(latest)
    label_of = {problem.name: label for problem, label in zip(problems, told, strict=True)}
    problems.sort(key=lambda problem: problem.shape)
    places = {problem.name: index for index, problem in enumerate(problems)}
    noises = list(dict.fromkeys(queries.noise(row, clock) for row in latest for clock in row.timing))
    between = queries.between_runs(latest)
    return {
        "name": _name(path),
        "title": title(path, rows),
        "device": _device(rows),
        "head": head,
        "problems": [[problem.name, *problem.shape, label_of[problem.name]] for problem in problems],
        "op": rows[0].problem.op,
        "clocks": [clock for clock in CLOCKS if any(clock in row.timing for row in latest)],
        "noise": [round(noise, DIGITS) for noise in noises],
        "betweenRuns": {clock: [queries.run_to_run(between, clock), int(clock in between)] for clock in CLOCKS},
        "sweeps": [
            [sweep.axis, [places[problem.name] for problem in sweep.problems]] for sweep in queries.sweeps(latest)
        ],
        "matched": {clock: _matched(latest, clock, places, strings) for clock in CLOCKS},
        "rows": [_row(row, places[row.problem.name], noises, strings) for row in latest],
    }


def _matched(rows: Sequence[Row], clock: TimingName, places: Mapping[str, int], strings: _Strings) -> list[list[Any]]:
    """[problem, kernel, protocol, whose config, ratio at it, ratio at own configs], of those that have both."""
    found = matrix.matched(rows, clock)
    own = {(line.kernel, line.problem): line.ratio for line in found[found.config == "own"].itertuples()}
    return [
        [
            *(places[line.problem], strings[line.kernel], strings[line.protocol], strings[line.config]),
            *(round(line.ratio, DIGITS), round(own[line.kernel, line.problem], DIGITS)),
        ]
        for line in found[found.config != "own"].itertuples()
        if (line.kernel, line.problem) in own
    ]


def _row(row: Row, problem: int, noises: Sequence[float], strings: _Strings) -> list[Any]:
    """[problem, contender, language, protocol, config, its source and search, status, command except for the
    contender, whether it contends, whether its config was not searched for it, {clock: figures}]. noises: of the
    file."""
    status = row.status if row.status == PASSED or not row.message else f"{row.status}: {row.message}"
    contends = row in queries.contending([row]) and row.status == PASSED
    origin = "; ".join(filter(None, [row.config_source, str(row.search or "")]))
    texts = (row.contender, _language(row), row.protocol, config_text(row.config), origin, status)
    figures: dict[str, list[float | None]] = {}
    for clock in TIMINGS:
        if (timing := row.timing.get(clock)) is not None:
            times = (
                timing.median_us,
                timing.q1_us,
                timing.q3_us,
                timing.speedup,
                timing.speedup_low,
                timing.speedup_high,
            )
            floor = round(row.floor[clock].read_us, DIGITS) if clock in row.floor else None
            noise = noises.index(queries.noise(row, clock))
            figures[clock] = [*map(_rounded, times), strings[timing.verdict], floor, noise]
    command = strings[row.command.replace(row.contender, "{}")]
    flags = (int(contends), int(row.not_searched or answer.borrows(row)))
    return [problem, *(strings[text] for text in texts), command, *flags, figures]


def _language(row: Row) -> str:
    """Of a module of torch that runs kernels of one language, 'torch/linear.tilus' or 'torch/chain.tilus_prefetch',
    that language; torch where `linear` took torch, whose time tells nothing of a language."""
    if answer.is_torch(row):
        return Language.TORCH.value
    if row.contender.startswith(CHAINS):
        return row.variant.removesuffix("_prefetch")
    return answers.written_in(row)


def _device_answers(answering: Files, files: Files, strings: _Strings) -> dict[str, Any]:
    """What the box says by the rows of one device. files: of all devices."""
    return {
        "kinds": {op: answers.kinds_of(answering, op) for op in (Matmul.op, W4A16Matmul.op)},
        "instead": dict(_instead(answering)),
        "recordedWith": dict(_recorded_with(answering, strings)),
        "answers": dict(_answers(answering, files, strings)),
    }


def _answers(answering: Files, files: Files, strings: _Strings) -> Iterator[tuple[str, list[Any]]]:
    """By 'kind/clock/language/deterministic', for all recorded sizes and dtypes [m, n, k, dtype, answer]; of
    equally near ones, of one dtype, the first is that which bench/answer.py takes. files: of all devices."""
    for index, (kind, problem) in enumerate(_kinds().items()):
        beside = {path: of_kind for path, rows in files.items() if (of_kind := answers.of_kind(rows, kind))}
        alike = {path: rows for path, rows in beside.items() if path in answering}
        for clock in CLOCKS if alike else ():
            for language in (None, *LANGUAGES):
                for deterministic in (False, True):
                    languages = LANGUAGES if language is None else (language,)
                    found = answers.candidates(problem, clock, languages, deterministic, alike)
                    found.sort(key=partial(answers.weight, timing=clock), reverse=True)
                    records = [together[0].problem for _, together in answers.answering(found)]
                    made = []
                    for *sizes, dtype in dict.fromkeys((*record.shape, record.dtype) for record in records):
                        m, n, k = sizes
                        asked = replace(problem, m=m, n=n, k=k, dtype=TORCH_DTYPES[dtype])
                        taken = answers.nearest(asked, clock, found, beside, deterministic)
                        made.append([*sizes, dtype, _answer(asked, taken, language, strings)])
                    if made:
                        yield f"{index}/{clock}/{language.value if language else ''}/{int(deterministic)}", made


def _recorded_with(answering: Files, strings: _Strings) -> Iterator[tuple[str, list[int]]]:
    """By 'MxNxK' of what was recorded, for each of _kinds what rows.answers.recorded_with says to who asks for it."""
    by_shape = answers.products_by_shape(answering)
    for shape in sorted(by_shape):
        m, n, k = shape
        asked = (replace(problem, m=m, n=n, k=k) for problem in _kinds().values())
        lines = [answers.recorded_with(answers.other_flags(problem, by_shape)) for problem in asked]
        yield "x".join(map(str, shape)), [strings[line] for line in lines]


def _instead(answering: Files) -> Iterator[tuple[int, list[int]]]:
    """By the place in _kinds of what is asked for, the places of what rows.answers.answered may answer instead, in its
    order."""
    by_shape, places = answers.products_by_shape(answering), {kind: index for index, kind in enumerate(_kinds())}
    for index, problem in enumerate(_kinds().values()):
        others = answers.with_other_flags(problem, by_shape)
        if others:
            yield index, [places[answers.kind_of(other)] for other in others]


def _columns(files: Files) -> dict[str, dict[str, str]]:
    """By operation and protocol what its kernels are called: 'semaphore' of semaphore.fp32 and semaphore.in_place."""
    kernels: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in (row for rows in files.values() for row in rows):
        if answers.written_in(row) in LANGUAGES:
            name = row.contender.partition("/")[2].partition("@")[0]
            kernels[row.problem.op][row.protocol].add(name if answers.is_kernel(row) else "linear")
    return {op: {protocol: _shared_start(names) for protocol, names in of_op.items()} for op, of_op in kernels.items()}


def _shared_start(names: Iterable[str]) -> str:
    same = takewhile(lambda characters: len(set(characters)) == 1, zip(*names, strict=False))
    return "".join(characters[0] for characters in same).rstrip(".")


def _answer(
    problem: Matmul | W4A16Matmul, found: answers.Answer, language: Language | None, strings: _Strings
) -> list[Any]:
    """The parts of show.answer.screen: head, table, what stands beside it, why, the call by epilogue in the order of
    EPILOGUES, source."""
    ends: Sequence[Matmul | W4A16Matmul] = [problem]
    if isinstance(problem, Matmul):
        ends = [replace(problem, epilogue=Epilogue(name)) for name in EPILOGUES]
    calls = ["\n".join(line.removeprefix("    ") for line in answer.answer_call_lines(end, found)) for end in ends]
    return [
        [strings[line] for line in answer.head_lines(problem, found)],
        [[strings[cell] for cell in line] for line in answer.cells(found, language)],
        [
            [strings[title], [[strings[cell] for cell in line] for line in lines]]
            for title, lines in answer.beside(found, language)
        ],
        [strings[line.removeprefix("Why:").strip()] for line in answer.why_lines(found)],
        [strings[call] for call in calls],
        strings[answer.source_line(found)],
    ]


def _asked() -> dict[str, int]:
    """The place in _kinds of what may be asked, as page.html names it."""
    places = {kind: index for index, kind in enumerate(_kinds())}
    return {asked: places[answers.kind_of(problem)] for asked, problem in _askable()}


def _kinds() -> dict[str, Matmul | W4A16Matmul]:
    """A problem of each kind: both half precisions are one."""
    return {answers.kind_of(problem): problem for _, problem in _askable()}


def _askable() -> Iterator[tuple[str, Matmul | W4A16Matmul]]:
    """Everything but the sizes."""
    for dtype, layout, epilogue in product(DTYPES, LAYOUTS, EPILOGUES):
        problem = Matmul(1, 1, 1, TORCH_DTYPES[dtype], layout=Layout(layout), epilogue=Epilogue(epilogue))
        yield f"matmul {dtype} {layout} {epilogue}", problem
    for dtype in ("fp16", "bf16"):
        yield f"w4a16 {dtype}", W4A16Matmul(16, 512, 512, TORCH_DTYPES[dtype])


def _matrices(rows: Sequence[Row]) -> list[tuple[TimingName, list[Table]]]:
    """By clock, of all that matrix.tables has what the heat map does not show. Nothing where nothing was timed so, or
    only controls."""
    made = []
    for clock in CLOCKS:
        if queries.passed(queries.contending(rows), clock):
            tables = [matrix.effect_table(rows, clock), matrix.cells_table(rows, clock)]
            made.append((clock, [table for table in tables if table.lines]))
    return made


def breakable(text: str) -> Markup:
    """HTML whose names may break behind a slash and a dot."""
    return Markup(NAME_PART.sub("<wbr>", str(escape(text))))


def is_figure(table: Table, index: int) -> bool:
    """Whether a column holds only figures."""
    cells = [line[index] for line in table.lines if line[index]]
    return bool(cells) and all(FIGURE.fullmatch(cell) for cell in cells)


def _compiled(pair: Pair, recorded: Sequence[resources.Recorded]) -> Table | None:
    """What both languages compile a pair to; None where that is not recorded."""
    try:
        return resources.side_by_side(recorded, f"{pair.name}*")
    except ValueError:
        return None


def _variants(pair: Pair, recorded: Sequence[resources.Recorded]) -> dict[str, list[resources.Recorded]]:
    """What is recorded of each of the pair's kernels, by its name without the language; Triton first."""
    variants: dict[str, list[resources.Recorded]] = {}
    for one in resources.named(recorded, f"{pair.name}*"):
        variants.setdefault(one.kernel.partition("/")[2], []).append(one)
    return dict(sorted(variants.items()))
