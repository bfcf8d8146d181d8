"""The fastest for a matmul, from rows only: those of the nearest problem that was recorded."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

from triton_vs_tilus.bench.cli import CLOCKS
from triton_vs_tilus.bench.ops import BASELINES, MATMUL, W4A16
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.row import LANGUAGES, ProblemRecord, Row, TimingName
from triton_vs_tilus.common.distance import SIZES, gap
from triton_vs_tilus.common.protocol import Protocol

Files = Mapping[Path, Sequence[Row]]
Candidate = tuple[Path, list[Row]]  # a file, and rows of one problem there that were timed together, the fastest first

PRODUCTS = (MATMUL, W4A16)
FAR = 2.0  # apart, from where a time says little
# Of a weight of 4 bits in groups of 128: those that common.quantization packs, which comes with torch.
MULTIPLES = {"n": 8, "k": 128}
# What torch offers without writing a kernel: every answer shows the best of each.
OF_TORCH = ("torch/compile.max_autotune", "torch/custom_op.")


class Product(Interface):
    """What is asked about: a problem of PRODUCTS, the record of one, or a Question. fields: by name, as JSON values."""

    @property
    def op(self) -> str: ...

    @property
    def fields(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Question:
    """A product that nothing but its fields is known of: common's problems have the same ones, and come with torch."""

    op: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the nearest recorded problem says.

    rows       of its measurement, all that passed and may answer, the fastest first; the baseline among them
    file       that holds them
    timing     that ranks them
    apart      its gap from the problem (common/distance.py): 0 where that very problem was recorded
    elsewhere  the reference with the largest speed-up in other measurements of that problem, where `rows` has none
    of_torch   of each of OF_TORCH the row with the largest speed-up at that problem: in `rows`, else in other
               measurements on the device, else on another
    unclaimed  where what is deterministic is asked for, references that do not claim to be and gave equal bits: the
               fastest that was timed with `rows`, and of each of OF_TORCH as above
    untimed    the languages that have kernels at that problem, and none that was timed so on the device
    other_flags   what asks for rows at the problem's very sizes, where `rows` are of other sizes
    other_clocks  likewise, of the problem's very kind
    """

    rows: tuple[Row, ...]
    file: Path
    timing: TimingName
    apart: float
    elsewhere: Row | None = None
    of_torch: tuple[Row, ...] = ()
    unclaimed: tuple[Row, ...] = ()
    untimed: tuple[str, ...] = ()
    other_flags: tuple[str, ...] = ()
    other_clocks: tuple[str, ...] = ()

    @property
    def fastest(self) -> Row:
        """The one with the least median; the baseline where that one has no speed-up by paired rounds."""
        first = self.rows[0]
        return self.baseline if first.timing[self.timing].speedup < 1 else first

    @property
    def baseline(self) -> Row:
        return next(row for row in self.rows if row.contender in BASELINES)

    @property
    def unsplit(self) -> Row | None:
        """The fastest kernel whose blocks walk all of K; None where it is the fastest, or none was timed."""
        kernels = (row for row in self.rows if is_kernel(row))
        found = next((row for row in kernels if row.protocol == Protocol.DATA_PARALLEL.value), None)
        return None if found is self.fastest else found

    @property
    def joint(self) -> tuple[Row, ...]:
        """The fastest, and then those that it does not lead."""
        lead = self.fastest
        others = (row for row in self.rows if row is not lead and not queries.leads(lead, row, self.timing))
        return lead, *others

    @property
    def runner_up(self) -> Row | None:
        """The next kernel whose splits meet otherwise than those of the fastest; None where that is no kernel."""
        lead = self.fastest
        others = (row for row in self.rows if is_kernel(row) and row.protocol != lead.protocol)
        return next(others, None) if is_kernel(lead) else None

    @property
    def twin(self) -> Row | None:
        """The fastest kernel of the other language whose splits meet as those of the fastest; None likewise."""
        lead = self.fastest
        others = (row for row in self.rows if row.protocol == lead.protocol and row.language != lead.language)
        return next(filter(is_kernel, others), None) if is_kernel(lead) else None

    @property
    def by_former_clock(self) -> bool:
        return self.fastest.timing[self.timing].by_former_clock

    @property
    def deterministic(self) -> Row | None:
        """The fastest kernel whose bits are the same in every run; None where the fastest is it, or is no kernel."""
        lead = self.fastest
        if not is_kernel(lead) or lead.deterministic:
            return None
        return next((row for row in self.rows if is_kernel(row) and row.deterministic), None)

    def best_of(self, language: str) -> Row | None:
        return next((row for row in self.rows if written_in(row) == language), None)

    @property
    def best_reference(self) -> Row | None:
        """Of what is neither the baseline nor a kernel of this project."""
        return next(filter(_is_reference, self.rows), None)

    def us(self, row: Row) -> float:
        return row.timing[self.timing].median_us

    def lead_over(self, row: Row) -> float:
        """How many times as long as the fastest it takes."""
        return self.us(row) / self.us(self.fastest)


def answer(
    problem: Product,
    timing: TimingName = "cold",
    languages: Sequence[str] = LANGUAGES,
    deterministic: bool = False,
    device: str | None = None,
    files: Files | None = None,
) -> Answer:
    """The rows of the nearest recorded problem of the same kind: operation, epilogue, dtype, layout, groups. `linear`,
    which takes one of this project's kernels, answers where none of them was timed by name.

    Of two measurements of one problem that of its own dtype (fp16 and bf16 are of one kind), then the one with more of
    this project's kernels, with more of their configs searched, with more contenders; of two alike the later.
    languages: of the kernels; what is written in another takes part where both are asked for. device: its slug; None
    takes the one with the most rows. files: None takes all that are checked in.

    Raises ValueError where no row is of this kind, timing and device, with the recorded ones.
    """
    files = queries.recorded() if files is None else files
    of_one = of_device(files, device)
    found = candidates(problem, timing, languages, deterministic, of_one)
    if not answering(found):
        asked = [flags_of(problem) or kind_of(problem), f"--clock {timing}"]
        asked += [f"--language {name}" for name in languages if len(languages) < len(LANGUAGES)]
        asked += ["--deterministic"] * deterministic
        accepted = f"accepted, with the clocks: {kinds_of(of_one, problem.op)}"
        clocks = other_clocks(problem, timing, languages, deterministic, of_one)
        hints = map(recorded_with, (clocks, other_flags(problem, products_by_shape(of_one))))
        told = " ".join(filter(None, hints))
        accepted += f". {told}" if told else ""
        raise ValueError(f"no row is of {' '.join(asked)}; {accepted}")
    made = nearest(problem, timing, found, files, deterministic)
    if made.apart == 0:
        return made
    clocks = other_clocks(problem, timing, languages, deterministic, of_one)
    return replace(made, other_flags=other_flags(problem, products_by_shape(of_one)), other_clocks=clocks)


def answered(
    problem: Product,
    timing: TimingName = "cold",
    languages: Sequence[str] = LANGUAGES,
    deterministic: bool = False,
    device: str | None = None,
    files: Files | None = None,
) -> tuple[Product, Answer]:
    """The problem itself and its `answer`; or, where nothing near it was recorded, the nearest that was with another
    layout or epilogue and that these arguments have rows of, if that is near, and the answer to that one. Raises
    ValueError as `answer` does."""
    files = queries.recorded() if files is None else files
    of_one = of_device(files, device)

    asked = timing, languages, deterministic, device, files

    def nearest_of(one: Product) -> Answer | None:
        try:
            return answer(one, *asked)
        except ValueError:
            return None

    made = nearest_of(problem)
    if made is None or made.apart >= FAR:
        by_shape = products_by_shape(of_one)
        others = ((other, nearest_of(other)) for other in with_other_flags(problem, by_shape))
        near = [(other, there) for other, there in others if there is not None and there.apart < FAR]
        if near:
            other, there = min(near, key=lambda one: one[1].apart)  # of equally near ones the first
            clocks = other_clocks(problem, timing, languages, deterministic, of_one)
            return other, replace(there, other_flags=other_flags(problem, by_shape), other_clocks=clocks)
    return problem, made or answer(problem, *asked)  # where there is none, it says why


def of_device(files: Files, device: str | None = None) -> dict[Path, Sequence[Row]]:
    """The files of a device, by its slug; None takes the one with the most rows. Raises ValueError for one without."""
    counts: Counter[str] = Counter()
    for path, rows in files.items():
        counts[path.parent.name] += len(rows)
    if device is not None and device not in counts:
        raise ValueError(f"device is {device}; accepted: {', '.join(counts)}, of which there are rows")
    chosen = device or max(counts, key=counts.__getitem__, default="")
    return {path: of_file for path, of_file in files.items() if path.parent.name == chosen}


def candidates(
    problem: Product,
    timing: TimingName,
    languages: Sequence[str],
    deterministic: bool,
    files: Files,
) -> list[Candidate]:
    """The measurements of this kind, whatever their sizes, with what of them may answer."""
    return [
        (path, sorted(together, key=lambda row: row.timing[timing].median_us))
        for path, rows in files.items()
        for together in _measurements(rows, problem, timing, languages, deterministic)
    ]


def answering(found: Iterable[Candidate]) -> list[Candidate]:
    """Those that have a kernel of this project: measurements of only references are shown beside an answer."""
    return [candidate for candidate in found if any(written_in(row) in LANGUAGES for row in candidate[1])]


def nearest(
    problem: Product, timing: TimingName, found: Sequence[Candidate], files: Files, deterministic: bool
) -> Answer:
    """The answer of the candidate whose sizes are nearest. found: one of them `answering`. files: of all devices, where
    what stands beside the answer is from."""

    asked = problem.fields

    def rank(candidate: Candidate) -> tuple[bool, bool, int, int, int, int, str]:
        return candidate[1][0].problem.dtype == asked["dtype"], *weight(candidate, timing)

    apart = [(gap(candidate[1][0].problem.fields, asked), candidate) for candidate in answering(found)]
    least = min(gap_of_one for gap_of_one, _ in apart)
    path, together = max((candidate for gap_of_one, candidate in apart if gap_of_one == least), key=rank)
    record = together[0].problem
    made = Answer(tuple(together), path, timing, least)
    there = {file: [row for row in rows if row.problem == record] for file, rows in files.items()}
    if deterministic:
        made = replace(made, unclaimed=_unclaimed(made, there))
        there = {file: [row for row in rows if row.deterministic] for file, rows in there.items()}
    made = replace(made, of_torch=_of_torch(made, there), untimed=_untimed(made, there))
    if made.best_reference is not None:
        return made
    others = [row for _, rows in found for row in rows if row.problem == record and _is_reference(row)]
    return replace(made, elsewhere=max(others, key=lambda row: row.timing[timing].speedup, default=None))


def _of_torch(made: Answer, there: Files) -> tuple[Row, ...]:
    def rank(candidate: tuple[Path, Row]) -> tuple[bool, bool, float]:
        file, row = candidate
        return row in made.rows, file.parent == made.file.parent, row.timing[made.timing].speedup

    timed = [(file, row) for file, rows in there.items() for row in queries.passed(rows, made.timing)]
    kinds = [[one for one in timed if one[1].contender.startswith(kind)] for kind in OF_TORCH]
    return tuple(max(of_kind, key=rank)[1] for of_kind in kinds if of_kind)


def _unclaimed(made: Answer, there: Files) -> tuple[Row, ...]:
    equal = {
        file: [row for row in rows if _is_reference(row) and row.bitwise_equal and not row.deterministic]
        for file, rows in there.items()
    }
    beside = [
        row
        for row in queries.contending(queries.passed(equal[made.file], made.timing))
        if row.measurement == made.fastest.measurement and "@" not in row.contender
    ]
    best = sorted(beside, key=made.us)[:1]
    return tuple({row.contender: row for row in (*_of_torch(made, equal), *best)}.values())


def _untimed(made: Answer, there: Files) -> tuple[str, ...]:
    here = [row for file, rows in there.items() if file.parent == made.file.parent for row in rows if is_kernel(row)]
    timed = {row.language for row in here if made.timing in row.timing}
    return tuple(name for name in LANGUAGES if name in {row.language for row in here} - timed)


def products_by_shape(files: Files) -> dict[tuple[int, ...], set[ProblemRecord]]:
    """By (m, n, k) the products that kernels of this project were timed at."""
    found: dict[tuple[int, ...], set[ProblemRecord]] = defaultdict(set)
    for row in (row for rows in files.values() for row in rows if is_kernel(row) and row.problem.op in PRODUCTS):
        found[row.problem.shape].add(row.problem)
    return found


def other_flags(problem: Product, recorded: Mapping[tuple[int, ...], Iterable[ProblemRecord]]) -> tuple[str, ...]:
    """What asks for the products of the very sizes that were recorded, and are of another kind. recorded: as
    products_by_shape gives them."""
    here = recorded.get(tuple(problem.fields[size] for size in SIZES), ())
    found = set()
    for record in here:
        flags = _flags_of_record(record)
        if flags is None or _kind_of_record(record) == kind_of(problem):
            continue
        # What is left out because it is the default has to be said to who asked for another.
        if record.op == MATMUL != problem.op:
            flags = f"--op {MATMUL} {flags}"
        if problem.fields["dtype"] == "fp32" and "--dtype" not in flags:
            flags += f" --dtype {record.dtype}"
        found.add(flags)
    return tuple(sorted(found))


def other_clocks(
    problem: Product, timing: TimingName, languages: Sequence[str], deterministic: bool, files: Files
) -> tuple[str, ...]:
    """What asks for the times of the very sizes by the other clocks that kernels were timed with there."""

    def is_recorded(clock: TimingName) -> bool:
        found = answering(candidates(problem, clock, languages, deterministic, files))
        return any(gap(together[0].problem.fields, problem.fields) == 0 for _, together in found)

    return tuple(f"--clock {clock}" for clock in CLOCKS if clock != timing and is_recorded(clock))


def with_other_flags(
    problem: Product, recorded: Mapping[tuple[int, ...], Iterable[ProblemRecord]]
) -> tuple[Product, ...]:
    """Matmuls of the same sizes and precision with another layout or epilogue that was recorded, at whichever sizes.
    Those come first that have an epilogue as the problem has, whichever, or as it have none: cuBLAS takes a second
    launch for any. Then what differs in one of both, then by the flags that ask for them. recorded: as
    products_by_shape gives them."""
    if problem.op != MATMUL:
        return ()
    found: dict[str, tuple[bool, int, str, Product]] = {}
    for record in (record for of_shape in recorded.values() for record in of_shape):
        if record.op != MATMUL or _flags_of_record(record) is None:
            continue
        changed = {name: record.fields[name] for name in ("layout", "epilogue")}
        other = Question(MATMUL, {**problem.fields, **changed})
        kind, flags = kind_of(other), flags_of(other)
        if flags is not None and kind == _kind_of_record(record) != kind_of(problem):
            is_other_end = (changed["epilogue"] == "none") != (problem.fields["epilogue"] == "none")
            count = sum(problem.fields[name] != value for name, value in changed.items())
            found[kind] = is_other_end, count, flags, other
    return tuple(other for *_, other in sorted(found.values(), key=lambda one: one[:3]))


def recorded_with(flags: Iterable[str]) -> str:
    """That what these flags ask for was recorded, where what was asked for was not. Nothing without flags."""
    listed = ", ".join(flags)
    return f"Recorded at this shape with {listed}." if listed else ""


@cache
def _flags_of_record(record: ProblemRecord) -> str | None:
    return flags_of(record) if record.op in PRODUCTS else None


def flags_of(problem: Product) -> str | None:
    """What asks bench/answer.py for a product of this kind, its sizes aside; None where only a name does."""
    fields = problem.fields
    if problem.op == W4A16:
        named = (fields["group_size"], fields["symmetric"]) != (MULTIPLES["k"], False)
        return None if named else f"--op {W4A16}" + f" --dtype {fields['dtype']}" * (fields["dtype"] != "fp16")
    if fields.get("out_dtype", fields["dtype"]) != fields["dtype"]:
        return None
    flags = [f"--layout {fields['layout']}"]
    flags += [] if fields["epilogue"] == "none" else [f"--epilogue {fields['epilogue']}"]
    return " ".join([*flags, *["--dtype fp32"] * (fields["dtype"] == "fp32")])


def weight(candidate: Candidate, timing: TimingName) -> tuple[bool, int, int, int, int, str]:
    """What decides between two candidates that are equally near: whether their times are by the present clock; then the
    numbers of kernels, of those whose configs were searched, of contenders, and of rounds; then the time."""
    kernels = list(filter(is_kernel, candidate[1]))
    searched = sum(not row.not_searched for row in kernels)
    timings = candidate[1][0].timing
    present = not timings[timing].by_former_clock
    rounds = max(of.rounds for of in timings.values())
    return present, len(kernels), searched, len(candidate[1]), rounds, max(row.time for row in candidate[1])


def files_by_problem(files: Files) -> dict[str, Path]:
    """By the names of all problems of these files, of any operation, the file that answers: of the device with the most
    rows, and of several measurements the one that `answer` takes; one with a cold L2 before all others."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for path, rows in of_device(files).items():
        alone = [row for row in queries.contending(rows) if "@" not in row.contender]
        for name, together in queries.by_problem(queries.timed_together(alone, queries.leading_timing(alone))).items():
            found[name].append((path, together))

    def rank(candidate: Candidate) -> tuple[bool, bool, int, int, int, int, str]:
        timing = queries.leading_timing(candidate[1][:1])
        assert timing is not None  # what answers was timed
        return timing == "cold", *weight(candidate, timing)

    return {name: max(of_name, key=rank)[0] for name, of_name in found.items()}


def is_kernel(row: Row) -> bool:
    """Whether it timed a kernel by name."""
    return row.language in LANGUAGES


def written_in(row: Row) -> str:
    """The language of what a row timed: of `linear` that of the kernels which it chooses from."""
    return row.variant if _is_linear(row) else row.language


def _is_linear(row: Row) -> bool:
    """Whether it timed the `linear` of a kernel package; the variant names its language."""
    return row.contender == f"torch/linear.{row.variant}"


def _is_reference(row: Row) -> bool:
    return written_in(row) not in LANGUAGES and row.contender not in BASELINES


def _measurements(
    rows: Iterable[Row],
    problem: Product,
    timing: TimingName,
    languages: Sequence[str],
    deterministic: bool,
) -> Iterator[list[Row]]:
    """Of each problem of this kind the rows that were timed together and may answer, the baseline among them."""
    alike = queries.contending(of_kind(rows, kind_of(problem)))
    for group in queries.by_problem(queries.timed_together(alike, timing)).values():
        if any(map(is_kernel, group)):
            group = [row for row in group if not _is_linear(row)]
        if any(row.contender in BASELINES for row in group):
            yield [row for row in group if row.contender in BASELINES or _may_answer(row, languages, deterministic)]


def of_kind(rows: Iterable[Row], kind: str) -> list[Row]:
    return [row for row in rows if _kind_of_record(row.problem) == kind]


def kind_of(problem: Product) -> str:
    """What a time depends on beside the sizes, in words. Of products of two halves both half precisions are one kind:
    the same bytes, the same tensor cores."""
    kind = {name: value for name, value in problem.fields.items() if name not in SIZES}
    dtype, out_dtype = kind["dtype"], kind.pop("out_dtype", kind["dtype"])
    if problem.op == MATMUL and dtype == "fp16":
        kind["dtype"] = "bf16"
    words = [problem.op, *(f"{name} {value}" for name, value in kind.items())]
    return ", ".join([*words, *([f"into {out_dtype}"] if out_dtype != dtype else [])])


@cache
def _kind_of_record(record: ProblemRecord) -> str | None:
    """None of what is no product."""
    return kind_of(record) if record.op in PRODUCTS else None


def kinds_of(files: Files, op: str) -> str:
    """The kinds of an operation that were recorded, by the flags that ask for them, with their clocks:
    '--layout kn (cold, graph); --layout nk (cold)'."""
    clocks: dict[str, set[TimingName]] = defaultdict(set)
    for rows in files.values():
        for row in rows:
            if row.problem.op == op and written_in(row) in LANGUAGES and (flags := _flags_of_record(row.problem)):
                clocks[flags] |= row.timing.keys() & set(CLOCKS)
    return "; ".join(f"{flags} ({', '.join(sorted(clocks[flags]))})" for flags in sorted(clocks)) or "none"


def _may_answer(row: Row, languages: Sequence[str], deterministic: bool) -> bool:
    language = written_in(row)
    written = language in languages or (language not in LANGUAGES and all(each in languages for each in LANGUAGES))
    return written and "@" not in row.contender and bool(row.deterministic or not deterministic)
