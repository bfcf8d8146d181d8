"""An answer as a screen: who is fastest and by how much, why, and the lines that call it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from triton_vs_tilus.bench.cli import WIDTH
from triton_vs_tilus.bench.ops import BASELINES, MATMUL, OPS, W4A16
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.answers import (
    FAR,
    SIZES,
    Answer,
    Product,
    Question,
    flags_of,
    is_kernel,
    kind_of,
    recorded_with,
    written_in,
)
from triton_vs_tilus.bench.rows.row import LANGUAGES, TEMPERATURES, Row
from triton_vs_tilus.common.distance import WIDEST, bytes_of_copies

MOST_NAMED = 4  # of those that the fastest does not lead
LEAST_WIDTH = 16  # characters of a column that is wrapped
LEAST_FAR = 0.05  # of a size, from where the times of it are told, and not the difference
NOT_NEAR = "No recorded shape is near yours: --measure, on a GPU, times it. The nearest, for orientation only:"
# By whether the very sizes were recorded so, or others near them.
INSTEAD = tuple(
    f"No shape near yours is recorded with {{asked}}. {what} recorded with {{flags}}, and this is its answer. "
    "The call is for that layout, with your epilogue."
    for what in ("One near it is", "Yours is")
)
OTHER_COPIES = "Your rows are copied {yours} bytes at a time, the recorded ones {there} (notes/cliffs.md)."
SAME_COPIES = "Rows are copied {bytes} bytes at a time there, as yours (notes/cliffs.md)."
UNPACKED = (
    "Most tiles unpack the weight once per {rows} rows of A: {yours}x at your M, {there}x at the recorded M "
    "(notes/w4a16.md)."
)
CELLS = ("contender", "us", "x cuBLAS (95 %)", "config")
UNCLAIMED = "{}: determinism not claimed; equal bits seen"
CONFIGS = {
    "search": "searched for that shape",
    "tuned": "searched for that shape",
    "stale": "searched before the kernel changed",
    "nearest": "borrowed from another shape or GPU",
    "heuristic": "by rule",
}
SEARCHED_THEN = "searched for that shape, by the kernel of {day}"
# What each protocol spares or gains. Nothing in a row shows that this is what makes it the fastest.
REASONS = {
    "data_parallel": "no partial sums",
    "sliced_k": "partial sums stay in the shared memory of a block",
    "parallel": "no split waits for another",
    "parallel+pdl": "no split waits, and PDL sets up launch 2 early",
    "serial": "one sum in L2, not one per split",
    "atomic": "splits add to one sum in L2, in any order",
    "last_arriver": "no split waits, and partial sums are read from L2",
    "cluster": "partial sums meet in DSMEM, not in L2",
    "stream_k": "every block has an even share of K",
}
# Of kernels of a matmul, where it is not the file's name: what a row of `linear` lacks, as common.protocol says.
PROTOCOLS = {"decompose_k": "parallel", "semaphore": "serial"}
OF_CONTENDERS = {"torch/int4pack_mm": "int4pack_mm splits K within a block, so no blocks meet (inferred)"}
COMPILED_TO_MM = "compiled to mm"  # says the row of a torch.compile that calls cuBLAS
# What torch calls an activation, where it is not torch.NAME.
IN_TORCH = {"silu": "nn.functional.silu"}
ROWS_UNPACKED = 16  # of A, that a weight of 4 bits is unpacked once for in most tiles
FEW_UNPACK = 64  # rows of A, from where unpacking a weight anew is told to cost (notes/w4a16.md)
MULTIPROCESSORS = 132  # of Hopper: that of common.space, which comes with torch


def screen(problem: Product, answer: Answer, language: str | None, asked: Product | None = None) -> Iterator[str]:
    """Lines of at most WIDTH characters. Of a problem that is far from all rows no more than what the nearest took.
    asked: where another problem is answered instead, as rows.answers.answered chooses it."""
    far = answer.apart >= FAR
    if asked is not None and asked is not problem:
        said = INSTEAD[answer.apart == 0].format(asked=flags_of(asked) or kind_of(asked), flags=flags_of(problem))
        yield from wrap(said, WIDTH, break_on_hyphens=False)
    others = [recorded_with(answer.other_clocks), recorded_with(answer.other_flags)]
    hints = [line for told in others for line in wrap(told, WIDTH, break_on_hyphens=False)]
    if far:
        yield from hints
        yield NOT_NEAR
    yield from narrow_head_lines(problem, answer)
    yield from _where(problem, answer)
    if not far:
        yield from hints
    yield ""
    yield from table_lines(answer, language)
    yield from beside_lines(answer, language)
    yield ""
    if not far:
        for line in why_lines(answer):
            yield from wrap(line, WIDTH, subsequent_indent=" " * len("Why: "), break_on_hyphens=False)
        yield ""
        yield from answer_call_lines(problem if asked is None else called(problem, asked), answer)
        yield ""
    yield from wrap(source_line(answer), WIDTH, break_on_hyphens=False)


def narrow_head_lines(problem: Product, answer: Answer) -> Iterator[str]:
    """`head_lines` of at most WIDTH characters."""
    for line in head_lines(problem, answer):
        yield from wrap(line, WIDTH, break_on_hyphens=False)


def head_lines(problem: Product, answer: Answer) -> Iterator[str]:
    """The fastest, those that it does not lead, and whose bits stay the same: a line each."""
    fastest, baseline = answer.fastest, answer.baseline
    of_torch = _in_torch(problem)
    if is_torch(fastest):
        yield f"{of_torch}: {answer.us(baseline):.1f} us. No kernel asked for is faster."
    else:
        speedup = fastest.timing[answer.timing].speedup
        yield f"{_named(fastest)}: {answer.us(fastest):.1f} us, {speedup:.2f}x {of_torch}."
    others = (row for row in answer.joint if row is not fastest)
    joint = [row for row in others if not (is_torch(row) and is_torch(fastest))]
    if joint:
        more = f" and {len(joint) - MOST_NAMED} more" if len(joint) > MOST_NAMED else ""
        yield f"No lead over {', '.join(map(_named, joint[:MOST_NAMED]))}{more} ({_noise(answer, joint)})."
    if (sure := answer.deterministic) is not None:
        same = f"those of {_named(sure)}, {answer.us(sure):.1f} us, do not"
        yield f"Bits of {_named(fastest)} may differ from run to run; {same}."


def _noise(answer: Answer, joint: Sequence[Row]) -> str:
    """Why the fastest does not lead these: the share that a lead has to exceed, by the larger of what shows that, two
    runs of one config or this run of the baseline under two names; or, where one is behind by more, the intervals."""
    fastest, timing = answer.fastest, answer.timing
    share = queries.noise(fastest, timing)
    behind = sum(answer.us(row) > answer.us(fastest) * (1 + share) for row in joint)
    if behind == len(joint):
        return "intervals overlap"
    if share == fastest.noise.get(timing):
        shown_by = "noise of that run"
    elif timing not in queries.between_runs([fastest]):
        shown_by = "two runs in another timing differ by up to"
    elif queries.was_run_twice(fastest, timing):
        shown_by = "two runs differ by up to"
    else:
        shown_by = "two runs elsewhere: up to"
    return f"{shown_by} {100 * share:.1f} %{', or intervals overlap' if behind else ''}"


def source_line(answer: Answer) -> str:
    fastest = answer.fastest
    rows = f"{answer.file.parent.name}/{answer.file.name}, {fastest.problem.name}"
    clock = ", by the former clock" if answer.by_former_clock else ""
    return f"Rows: {rows}, {fastest.environment.device}, {fastest.time[:10]}{clock}."


def _in_torch(problem: Product) -> str:
    if problem.op == W4A16:
        return "torch.mm on the dequantized weight"
    if problem.op != MATMUL:
        return OPS[problem.op].baseline.replace("/", ".")
    epilogue = problem.fields["epilogue"]
    return "torch.mm" if epilogue == "none" else f"torch.mm, then {epilogue} in torch"


def _where(problem: Product, answer: Answer) -> Iterator[str]:
    record, clock = answer.fastest.problem, TEMPERATURES[answer.timing]
    other = "" if record.dtype == problem.fields["dtype"] else f" in {record.dtype}"
    if answer.apart == 0:
        yield f"Recorded at exactly this shape{other}, {clock}."
        return
    asked = "x".join(str(problem.fields[size]) for size in SIZES)
    yield f"Recorded at {record.m}x{record.n}x{record.k}{other} (you asked {asked}), {clock}."
    yield how_far(problem.fields, record.fields)
    yours, there = bytes_of_copies(problem.fields), bytes_of_copies(record.fields)
    if yours != there:
        yield OTHER_COPIES.format(yours=yours, there=there)
    elif yours < WIDEST:
        yield SAME_COPIES.format(bytes=yours)
    yours, there = (-(-m // ROWS_UNPACKED) for m in (problem.fields["m"], record.m))
    if record.op == W4A16 and yours != there:
        yield from wrap(UNPACKED.format(rows=ROWS_UNPACKED, yours=yours, there=there), WIDTH)


def how_far(yours: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Where the recorded sizes are others: 'Its M is 2x yours. Your K is 1.33x its K.'"""
    told = []
    for size in SIZES:
        name, one, other = size.upper(), yours[size], there[size]
        larger, smaller = max(one, other), min(one, other)
        if 0 < larger - smaller < LEAST_FAR * smaller:
            told.append(f"Its {name} is {larger - smaller} {'more' if other > one else 'less'} than yours.")
        elif one != other:
            times = f"{larger / smaller:.2f}".rstrip("0").rstrip(".")
            told.append(f"Its {name} is {times}x yours." if other > one else f"Your {name} is {times}x its {name}.")
    return " ".join(told)


def table_lines(answer: Answer, language: str | None) -> Iterator[str]:
    """What was timed together with the fastest."""
    table = [CELLS, *cells(answer, language)]
    width = max(len(label) for label, *_ in table)
    for label, us, times, config in table:
        head = f"{label:{width}}  {us:>6}  {times:<16}  "
        first, *others = wrap(config, max(WIDTH - len(head), LEAST_WIDTH), break_long_words=False) or [""]
        yield f"{head}{first}".rstrip()
        yield from (f"{'':{len(head)}}{part}" for part in others)


def beside_lines(answer: Answer, language: str | None) -> Iterator[str]:
    """What was timed elsewhere, each place by itself and behind a blank line."""
    for title, lines in beside(answer, language):
        width = max(len(label) for label, _ in lines)
        yield from ("", title, *(f"{label:{width}}  {times}" for label, times in lines))


def cells(answer: Answer, language: str | None) -> list[tuple[str, str, str, str]]:
    """CELLS of the fastest, the best of each language, of the references and of what torch offers, and of cuBLAS, each
    once, by their times, then of the floor and the languages that were not timed with this clock. All were timed
    together."""
    baseline = answer.baseline
    made: list[tuple[str, str, str, str]] = []
    for label, row in sorted(_labeled(answer, language), key=lambda one: answer.us(one[1])):
        if row in answer.rows:
            times = "1.00" if row is baseline else _times(answer, row)
            made.append((label, f"{answer.us(row):.1f}", times, _config(row)))
    floor = baseline.floor[answer.timing].read_us
    made.append(("floor, reads the least bytes", f"{floor:.1f}", f"{answer.us(baseline) / floor:.2f}", ""))
    asked = [name for name in answer.untimed if language in (None, name)]
    return [*made, *((f"{name}: not timed with this clock", "", "", "") for name in asked)]


def beside(answer: Answer, language: str | None) -> list[tuple[str, list[tuple[str, str]]]]:
    """What was not timed together with the fastest, or may be no answer: by where it was, in a title's words, label and
    times cuBLAS. Of two runs only ratios are compared."""
    fastest = answer.fastest
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    labeled = [(label, row) for label, row in _labeled(answer, language) if row not in answer.rows]
    labeled += [(UNCLAIMED.format(row.contender), row) for row in answer.unclaimed if language is None]
    for label, row in sorted(labeled, key=lambda one: -one[1].timing[answer.timing].speedup):
        if row in answer.unclaimed and row.measurement == fastest.measurement:
            title = "In this run"
        else:
            device = row.environment.device
            title = f"In another run, {row.time[:10]}" if device == fastest.environment.device else f"On {device}"
        found[f"{title} (x its own cuBLAS):"].append((label, _times(answer, row)))
    return list(found.items())


def _labeled(answer: Answer, language: str | None) -> Iterator[tuple[str, Row]]:
    """The rows of the tables, with their labels."""
    baseline, reference = answer.baseline, answer.best_reference or answer.elsewhere
    labels = {row.contender: ("", row) for row in answer.of_torch if language is None}
    labels[answer.fastest.contender] = "fastest", answer.fastest
    if reference is not None:
        labels[reference.contender] = "best reference", reference
    labels[baseline.contender] = "cuBLAS", baseline
    asked = [name for name in LANGUAGES if language in (None, name)]
    labels |= {row.contender: (f"best {name}", row) for name in asked if (row := answer.best_of(name)) is not None}
    for label, row in labels.values():
        yield f"{label}: {_named(row)}".removeprefix(": "), row


def _times(answer: Answer, row: Row) -> str:
    timing = row.timing[answer.timing]
    return f"{timing.speedup:.2f} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f})"


def _config(row: Row) -> str:
    """Where a kernel's config is from, also of one that `linear` took. A row without a record of the search does not
    tell which kernel was searched: it says the day of the row."""
    if is_kernel(row):
        source = row.config_source or ""
    elif _by_linear(row) and not is_torch(row):
        source = "nearest" if borrows(row) else "tuned"
    else:
        return ""
    if source == "tuned" and row.search is None:
        return SEARCHED_THEN.format(day=row.time[:10])
    return "; ".join(filter(None, [CONFIGS.get(source, ""), str(row.search or "")]))


def _named(row: Row) -> str:
    """The contender; of `linear` the one that it took: 'tilus/cluster by linear'."""
    return f"{_taken(row)} by linear" if _by_linear(row) else row.contender


def _by_linear(row: Row) -> bool:
    return written_in(row) in LANGUAGES and not is_kernel(row)


def _taken(row: Row) -> str:
    """The contender; of `linear` the one that it took, by its row's message."""
    return row.message.partition(" ")[0].removesuffix(":") if _by_linear(row) else row.contender


def _measured_at(row: Row) -> str:
    """The problem at which the kernel that `linear` took was timed by name, by its row's message; empty where none is
    told."""
    return row.message.partition("measured at ")[2].partition(" ")[0]


def borrows(row: Row) -> bool:
    """Whether `linear` took a kernel that was not timed by name at this very problem: its config is of another."""
    return _by_linear(row) and not is_torch(row) and _measured_at(row) != row.problem.name


def is_torch(row: Row) -> bool:
    """Whether it timed the baseline, or `linear` where that took it."""
    return _taken(row) in BASELINES


def why_lines(answer: Answer) -> Iterator[str]:
    """The reason, what goes without a split, how far that fills the GPU, how far the floor is, and the note that has
    more."""
    unsplit = answer.unsplit
    yield from reason_lines(answer)
    if unsplit is not None and unsplit.config is not None:
        tiles = _tiles(unsplit)
        yield (
            f"     Without split-K: {answer.us(unsplit):.1f} us, {unsplit.contender}, "
            f"{tiles} {'tile' if tiles == 1 else 'tiles'} of C on {MULTIPROCESSORS} SMs."
        )
    if (over := answer.fastest.timing[answer.timing].times_floor) is not None:
        yield f"     Its time over that of the floor, which only reads the least bytes: {over:.2f}x."
    yield f"     More: notes/{_note(answer)}.md"


def _note(answer: Answer) -> str:
    """Of the kernel that is the fastest, or that `linear` took; of what is known of torch's lead."""
    if is_kernel(answer.fastest) or (_by_linear(answer.fastest) and not is_torch(answer.fastest)):
        return _file(answer.fastest)
    ours = _fastest_of_ours(answer)
    return "linear" if ours is not None and is_torch(ours) else torch_reason(answer)[1]


def _fastest_of_ours(answer: Answer) -> Row | None:
    return next((row for row in answer.rows if written_in(row) in LANGUAGES), None)


def torch_reason(answer: Answer) -> tuple[str, str]:
    """Why the fastest, which is no kernel here, is ahead, as a note has it, and which note."""
    fastest, problem = answer.fastest, answer.fastest.problem
    if fastest.contender in OF_CONTENDERS:
        return OF_CONTENDERS[fastest.contender], "w4a16"
    is_cublas = fastest.contender in (*BASELINES, "cublaslt/best") or fastest.message == COMPILED_TO_MM
    split = re.search(r"split-K (\d+)", next((row.message for row in answer.rows if "cublaslt/" in row.contender), ""))
    if is_cublas and split is not None and int(split[1]) > 1:
        return f"cuBLAS splits K too: cublasLt's fastest has split-K {split[1]} (measured)", "references"
    if is_cublas and problem.op == W4A16 and problem.m >= FEW_UNPACK:
        return "the weight is unpacked once per 16 rows of A (inferred)", "w4a16"
    if is_cublas and answer.file.stem == "crossover":
        return "cuBLAS splits K as well (inferred)", "crossover"
    if is_cublas and problem.op == MATMUL and -(-problem.m // 128) * -(-problem.n // 128) >= MULTIPROCESSORS:
        return "the tiles of C fill every multiprocessor: no split gains (inferred)", "square"
    return "open", "square" if answer.file.stem.startswith("square") else "references"


def reason_lines(answer: Answer) -> Iterator[str]:
    """What the kernel's protocol spares, and how much longer the next takes; or what `linear` took. Each cause says how
    sure it is: measured, inferred or open. Nothing where no kernel was timed."""
    fastest, ours = answer.fastest, _fastest_of_ours(answer)
    if is_kernel(fastest):
        yield f"Why: {_cause(fastest)}."
        yield from (f"     {line}" for line in _next_lines(answer))
    elif ours is not None and is_torch(ours):
        yield "Why: linear knows no kernel that wins at the nearest sizes where kernels were timed."
    elif ours is fastest:
        yield f"Why: {_cause(fastest)}."
        yield f"     The time is that of linear (notes/linear.md). It took this {written_in(fastest)} kernel"
        there = _measured_at(fastest)
        yield f"     by its time at {there}, where every kernel was timed." if there else "     by a rule of thumb."
    elif ours is not None:
        reason = torch_reason(answer)[0]
        yield f"Why: {reason}."
        of_unsplit = ours is answer.unsplit and reason != "open" and ours not in answer.joint
        yield f"     Fastest kernel here, {_named(ours)}: {_lead(answer, ours)}{'; why: open' * of_unsplit}."


def _cause(row: Row) -> str:
    protocol = protocol_of(_kernel(row)) if _by_linear(row) else row.protocol
    reason = f"{REASONS[protocol]} (inferred)" if protocol in REASONS else "open"
    return f"{_kernel(row)}: {_launches(row)}{reason}"


def protocol_of(kernel: str) -> str:
    """Of a matmul's kernel, as both languages name it."""
    file = kernel.partition(".")[0]
    return PROTOCOLS.get(file, file) + "+pdl" * kernel.endswith("_pdl")


def _launches(row: Row) -> str:
    return "" if row.launches is None else f"{row.launches} {'launch' if row.launches == 1 else 'launches'}; "


def _next_lines(answer: Answer) -> Iterator[str]:
    """How much longer the next protocol takes, and this one in the other language."""
    if (other := answer.runner_up) is not None:
        yield f"Next, {other.contender}: {_launches(other)}{_lead(answer, other)}."
    if (twin := answer.twin) is not None:
        why = "" if twin in answer.joint else "; see the note for the reason"
        yield f"Same in {twin.language} ({_kernel(twin)}): {_lead(answer, twin)}{why}."


def _lead(answer: Answer, row: Row) -> str:
    if row in answer.joint:
        return f"a tie ({_noise(answer, [row])})"
    return f"{answer.lead_over(row):.2f}x as long (measured)"


def _tiles(row: Row) -> int:
    assert row.config is not None
    tall, wide = -(-row.problem.m // int(row.config["block_m"])), -(-row.problem.n // int(row.config["block_n"]))
    return tall * wide


def _kernel(row: Row) -> str:
    """As both languages name it: 'decompose_k.vector'; of `linear` the one that it took."""
    return _taken(row).partition("/")[2]


def _file(row: Row) -> str:
    return _kernel(row).partition(".")[0]


def called(answered: Product, asked: Product) -> Product:
    """What the call is of: the problem that is answered, with the epilogue that is asked for: every kernel has all."""
    if answered.op != MATMUL:
        return answered
    return Question(MATMUL, {**answered.fields, "epilogue": asked.fields["epilogue"]})


def answer_call_lines(problem: Product, answer: Answer) -> Iterator[str]:
    """The call of the fastest; where that is a reference, of the first kernel or baseline that it does not lead."""
    fastest = answer.fastest
    ready = (row for row in answer.joint if written_in(row) in LANGUAGES or row.contender in BASELINES)
    row = next(ready, fastest)
    if row is not fastest:
        yield f"    # {fastest.contender} has no lead over this: see notes/references.md"
    yield from call_lines(problem, row)


def call_lines(problem: Product, row: Row) -> Iterator[str]:
    """Of the kernel itself; and of the one call that takes what is known to win."""
    quantized, epilogue = problem.op == W4A16, problem.fields.get("epilogue", "none")
    if is_kernel(row):
        if not quantized:
            yield "    # no backward: call it under torch.no_grad()"
        if epilogue != "none":
            yield "    from triton_vs_tilus.common.epilogue import Epilogue"
        names = "lay_out, matmul" if quantized else "matmul"
        yield f"    from triton_vs_tilus.kernels_{row.language}.{_file(row)} import {names}"
    if is_kernel(row) and quantized:
        yield "    laid_out = lay_out(weight)  # once; of a common.quantization.GPTQWeight"
    if is_kernel(row) or is_torch(row):
        weight = "  # a common.quantization.GPTQWeight" if quantized and is_torch(row) else ""
        yield f"    y = {expression(problem, row)}{weight}"
    elif written_in(row) not in LANGUAGES:
        yield f"    {row.contender}: see notes/references.md"
    if quantized or problem.fields["layout"] != "nk" or epilogue == "scale" or is_torch(row):
        return
    if written_in(row) in LANGUAGES:
        if is_kernel(row):
            yield ""
        taken = "this kernel, another" if is_kernel(row) else "a kernel"
        yield f"    from triton_vs_tilus.kernels_{written_in(row)} import linear   # picks {taken} or torch.mm"
        yield f"    y = {_linear_call(problem)}"


def expression(problem: Product, row: Row) -> str:
    """The call of what a row timed, a kernel of either language, `linear` of one or the baseline, which is also what
    `linear` took where it took torch."""
    variant = f', variant="{row.variant}"' if row.variant else ""
    if problem.op == W4A16:
        if row.language in LANGUAGES:
            return f"matmul(x, laid_out{variant})"
        return "torch.mm(x, weight.dequantized().to(x.dtype))"
    weight = "weight.T" if problem.fields["layout"] == "nk" else "weight"
    epilogue = problem.fields["epilogue"]
    has_bias, activation = steps(epilogue)
    wider = _wider(problem)
    if row.language in LANGUAGES:
        bias = ", bias=bias" if has_bias else ""
        fused = f", epilogue=Epilogue.{epilogue.upper()}" if epilogue != "none" else ""
        return f"matmul(x, {weight}{bias}{fused}{wider}{variant})"
    if written_in(row) in LANGUAGES and not is_torch(row):
        return _linear_call(problem)
    product = f"torch.addmm(bias, x, {weight}{wider})" if has_bias else f"torch.mm(x, {weight}{wider})"
    return f"torch.{IN_TORCH.get(activation, activation)}({product})" if activation else product


def _linear_call(problem: Product) -> str:
    weight = "weight" if problem.fields["layout"] == "nk" else "weight.T"
    has_bias, activation = steps(problem.fields["epilogue"])
    bias = ", bias" if has_bias else ""
    activated = f', activation="{activation}"' if activation else ""
    return f"linear(x, {weight}{bias}{activated}{_wider(problem)})"


def _wider(problem: Product) -> str:
    fields = problem.fields
    return ", out_dtype=torch.float32" if fields["out_dtype"] == "fp32" != fields["dtype"] else ""


def steps(epilogue: str) -> tuple[bool, str]:
    """Whether a vector goes with an epilogue, and its activation, as common.epilogue says, which comes with torch."""
    words = {*epilogue.split("_")} - {"none"}
    return bool(words & {"bias", "scale"}), "".join(words - {"bias", "scale"})
