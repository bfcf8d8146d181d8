"""The fastest contender of each language: on each problem, in at most 100 columns; and which kernel to take where."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean

from triton_vs_tilus.bench.rows.answers import Answer, is_kernel
from triton_vs_tilus.bench.rows.frame import frame
from triton_vs_tilus.bench.rows.queries import between_runs, contending, leading_timing, leads, timed_together
from triton_vs_tilus.bench.rows.row import ProblemRecord, Row
from triton_vs_tilus.bench.show.tables import MARKS, Table, extent, mark_fastest, naming, source_of, speedup_cell
from triton_vs_tilus.common.kernel import LANGUAGES

FORMER = "‡"  # after a problem that was timed by the former clock


def winners_table(rows: Sequence[Row], title: str) -> Table:
    """A line per problem and language, of what was timed together, the fastest of all marked; the baseline has only its
    microseconds."""
    lead = leading_timing(rows)
    what, labels = naming(rows)[1:]
    rivals = timed_together(contending(rows), lead)
    timed = mark_fastest(frame(rivals, lead), ["problem"]).sort_values("median_us", kind="stable")
    timed["language"] = timed.language.astype(str).mask(timed.is_baseline, "")
    winners = timed.drop_duplicates(["problem", "language"]).sort_values(
        ["problem", "is_baseline"], ascending=[True, False], kind="stable"
    )
    lines: list[list[str]] = []
    for line in winners.itertuples():
        times = "" if line.is_baseline else speedup_cell(line)
        lines.append([labels[line.problem] if line.is_baseline else "", line.contender, f"{line.median_us:.1f}", times])
    best = frozenset(index for index, fastest in enumerate(winners.fastest | winners.joint) if fastest)
    header = [what, "fastest of its language", f"us ({lead})", "times the\nbaseline"]
    return Table(title, header, lines, best, foot=f"{source_of(rows, lead)}; {MARKS}")


def rules_table(rules: Sequence[Sequence[Answer]], recorded: Sequence[Answer]) -> Table:
    """A line per rule, the answers at the problems that it is for: the kernel to take, which is the fastest over all of
    them by the geometric mean, and the best of each language. recorded: at all problems of their files.

    Raises ValueError where one of these problems is of another rule: the other language leads the kernel to take, or
    what is named is not among the answer's joint fastest.
    """
    bests = [f"best of {language.value}, x cuBLAS" for language in LANGUAGES]
    header = ["M x N x K", "where", "take", *bests, "tilus over\ntriton, x"]
    foot = "Cold L2, median. x cuBLAS: speed over torch.mm; with ReLU over torch.mm plus a launch of ReLU; for w4a16 "
    foot += "over torch.mm on the dequantized weight. tilus over triton: speed of tilus' fastest kernel over "
    foot += "Triton's at each problem; above 1 tilus is faster. "
    foot += "*Either*: no lead beyond intervals and run-to-run noise"
    timing = recorded[0].timing
    known = [between_runs([answer.fastest]).get(timing) for answer in recorded]
    if apart := sorted(share for share in known if share is not None):
        least, most = f"{100 * apart[0]:.1f}", f"{100 * apart[-1]:.1f}"
        foot += ": two runs of one config differ by "
        foot += (
            f"up to {most} %" if least == most else f"at most {least} to {most} %, by problem and how they were timed"
        )
    foot += ". torch.mm: no kernel is faster in the geometric mean."
    if any(answer.by_former_clock for answers in rules for answer in answers):
        foot += f" {FORMER}: in part or whole by the former clock, whose cold times are longer (method.md)."
    of_files: dict[Path, list[ProblemRecord]] = defaultdict(list)
    for answer in recorded:
        of_files[answer.file].append(answer.fastest.problem)
    lines = []
    for answers in rules:
        name, where = _where(answers, of_files[answers[0].file])
        mark = f" {FORMER}" if any(answer.by_former_clock for answer in answers) else ""
        lines.append([name + mark, where, *_rule(answers)])
    return Table("which kernel, when", header, lines, foot=foot)


def _rule(answers: Sequence[Answer]) -> list[str]:
    """What to take, the best of each language, and the speed of tilus' fastest over Triton's at each problem."""
    bests = {language: _best(answers, language.value) for language in LANGUAGES}
    first, second = sorted(bests.values(), key=lambda rows: -_mean(answers, rows))
    others = [answer.best_of(second[0].language) for answer in answers]
    faced = [(answer, row, other) for answer, row, other in zip(answers, first, others, strict=True) if other]
    names = list(dict.fromkeys(rows[0].contender.partition("/")[2] for rows in (first, second)))
    ties = sum(not leads(row, other, answer.timing) for answer, row, other in faced)
    if _mean(answers, first) <= 1:
        take = "torch.mm"
    elif behind := [answer.fastest.problem.name for answer, row, other in faced if leads(other, row, answer.timing)]:
        raise ValueError(f"{second[0].language} leads {first[0].contender} at {', '.join(behind)}: another rule's")
    elif ties == len(faced):
        take = f"either: {names[0]}" if len(names) == 1 else f"{first[0].contender} or {second[0].contender}"
    else:
        take = first[0].contender + f"; either on {ties} of {len(faced)}" * (ties > 0)
    named = first + second if ties == len(faced) else first
    _refuse_slower(answers, [answer.baseline for answer in answers] if take == "torch.mm" else named)
    cells = [
        f"{rows[0].contender.partition('/')[2]}, {extent(_speeds(answers, rows), '.2f')}" for rows in bests.values()
    ]
    both = [(answer, answer.best_of("tilus"), answer.best_of("triton")) for answer in answers]
    over = [answer.us(triton) / answer.us(tilus) for answer, tilus, triton in both if tilus and triton]
    return [take, *cells, extent(over, ".2f")]


def _refuse_slower(answers: Sequence[Answer], named: Sequence[Row]) -> None:
    """Raises ValueError for a row, of those that a rule names, that is not among the joint fastest at its problem."""
    joint = {answer.fastest.problem.name: answer.joint for answer in answers}
    if slower := [row for row in named if row not in joint[row.problem.name]]:
        where = ", ".join(f"{row.contender} at {row.problem.name}" for row in slower)
        raise ValueError(f"not among the joint fastest: {where}: another rule's")


def _best(answers: Sequence[Answer], language: str) -> list[Row]:
    """The rows of the kernel of a language that is the fastest over all problems, of those that have all."""
    timed = [
        {row.contender: row for row in answer.rows if is_kernel(row) and row.language == language} for answer in answers
    ]
    common = [name for name in timed[0] if all(name in rows for rows in timed)]
    return max(([rows[name] for rows in timed] for name in common), key=lambda rows: _mean(answers, rows))


def _speeds(answers: Sequence[Answer], rows: Sequence[Row]) -> list[float]:
    return [row.timing[answer.timing].speedup for answer, row in zip(answers, rows, strict=True)]


def _mean(answers: Sequence[Answer], rows: Sequence[Row]) -> float:
    return geometric_mean(_speeds(answers, rows))


def _where(answers: Sequence[Answer], alike: Sequence[ProblemRecord]) -> tuple[str, str]:
    """The name that all problems alike share, with a letter for each size that differs among them, and the sizes of
    those answered."""
    problems = [answer.fastest.problem for answer in answers]
    shape = _shape(problems[0])
    letters: dict[tuple[int, ...], list[str]] = {}
    for letter, _ in shape:
        if len(set(_sizes(alike, letter))) > 1:
            letters.setdefault(_sizes(problems, letter), []).append(letter)
    told = [
        " = ".join([*named, _range(sorted(set(sizes)), sorted(set(_sizes(alike, named[0]))))])
        for sizes, named in letters.items()
    ]
    varied = {letter for named in letters.values() for letter in named}
    sizes_text = "x".join(str(size) for _, size in shape)
    letters_text = "x".join(letter if letter in varied else str(size) for letter, size in shape)
    return problems[0].name.replace(sizes_text, letters_text), ", ".join(told)


def _shape(problem: ProblemRecord) -> list[tuple[str, int]]:
    return [("M", problem.m), ("N", problem.n), ("K", problem.k)]


def _sizes(problems: Sequence[ProblemRecord], letter: str) -> tuple[int, ...]:
    return tuple(dict(_shape(problem))[letter] for problem in problems)


def _range(sizes: Sequence[int], known: Sequence[int]) -> str:
    """'8, 128'; '16 to 64' where all known sizes between are among them, '16 to 128 without 64' where most are."""
    missing = [size for size in known if sizes[0] <= size <= sizes[-1] and size not in sizes]
    if len(sizes) > max(2, 4 * len(missing)):
        return f"{sizes[0]} to {sizes[-1]}" + " without " * bool(missing) + ", ".join(map(str, missing))
    return ", ".join(map(str, sizes))
