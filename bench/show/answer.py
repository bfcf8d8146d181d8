"""An answer as a screen: who is fastest and by how much, why, and the lines that call it."""

from collections.abc import Iterator, Sequence

from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows.answers import Answer, is_kernel, written_in
from triton_vs_tilus.bench.rows.row import TEMPERATURES, Row
from triton_vs_tilus.bench.show.tables import Table
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import LANGUAGES, cdiv
from triton_vs_tilus.common.problem import Layout, Matmul, short_dtype
from triton_vs_tilus.common.space import MULTIPROCESSORS
from triton_vs_tilus.common.w4a16 import W4A16Matmul

FAR = 2.0  # apart, from where a time says little
NOT_NEAR = "Nothing was recorded near this shape: --measure, on a GPU, times it. The nearest:"
CONFIGS = {
    "search": "searched for that shape",
    "tuned": "searched for that shape",
    "stale": "searched for a former kernel",
    "nearest": "searched for another shape or GPU",
    "heuristic": "by rule",
}
# What the splits of each protocol cost or spare, beside the product.
REASONS = {
    "data_parallel": "each block walks all of K, and nothing is left to sum",
    "sliced_k": "the warps of a block share K and sum in its shared memory, without another block",
    "parallel": "K is split over blocks, and a second launch sums what they leave",
    "parallel+pdl": "K is split over blocks; the launch that sums is on its way before the product ends",
    "serial": "K is split over blocks that add in turns",
    "atomic": "K is split over blocks that add to one sum; the last to come finishes it in the same launch",
    "last_arriver": "K is split over blocks; the last to come sums in the same launch",
    "cluster": "K is split over a cluster of blocks, which sum in each other's shared memory",
    "stream_k": "blocks share out K evenly, whatever the number of tiles",
}


def screen(problem: Matmul | W4A16Matmul, answer: Answer, language: str | None) -> Iterator[str]:
    """Lines of at most 100 characters. Of a problem that is far from all rows no more than what the nearest took."""
    far = answer.apart >= FAR
    if far:
        yield NOT_NEAR
    yield from head_lines(problem, answer)
    yield _where(problem, answer)
    yield ""
    yield from table_lines(answer, language)
    yield ""
    if not far:
        yield from why_lines(answer)
        yield ""
        yield from call_lines(problem, answer.fastest)
        yield ""
    yield source_line(answer)


def head_lines(problem: Matmul | W4A16Matmul, answer: Answer) -> Iterator[str]:
    """The fastest, and who is as fast."""
    fastest, baseline = answer.fastest, answer.baseline
    of_torch = _in_torch(problem)
    if fastest is baseline:
        yield f"{of_torch}: {answer.us(baseline):.1f} us. Nothing here is faster."
    else:
        speedup = fastest.timing[answer.timing].speedup
        yield f"{fastest.contender}: {answer.us(fastest):.1f} us, {speedup:.2f}x {of_torch}."
    as_fast = [row.contender for row in answer.joint if row is not fastest]
    if as_fast:
        others = f" and {len(as_fast) - 1} more" if len(as_fast) > 1 else ""
        yield f"As fast, within intervals and noise: {as_fast[0]}{others}."


def source_line(answer: Answer) -> str:
    fastest = answer.fastest
    rows = f"{answer.file.parent.name}/{answer.file.name}, {fastest.problem.name}"
    return f"Rows: {rows}, {fastest.environment.device}, {fastest.time[:10]}."


def _in_torch(problem: Matmul | W4A16Matmul) -> str:
    if isinstance(problem, W4A16Matmul):
        return "torch.mm on the dequantized weight"
    return "torch.mm" if problem.epilogue is Epilogue.NONE else f"torch.mm, then {problem.epilogue.value} in torch"


def _where(problem: Matmul | W4A16Matmul, answer: Answer) -> str:
    record, clock = answer.fastest.problem, TEMPERATURES[answer.timing]
    other = "" if record.dtype == short_dtype(problem.dtype) else f" in {record.dtype}"
    if answer.apart == 0:
        return f"Recorded at this very problem, {clock}." if not other else f"Recorded at these sizes{other}, {clock}."
    pairs = {"M": (problem.m, record.m), "N": (problem.n, record.n), "K": (problem.k, record.k)}
    ratios = ", ".join(
        f"{name} {there / here:.2g} times yours" for name, (here, there) in pairs.items() if here != there
    )
    return f"Recorded at {record.m}x{record.n}x{record.k}{other} ({ratios}), {clock}."


def table_lines(answer: Answer, language: str | None) -> Iterator[str]:
    table = cells(answer, language)
    width = max(len(label) for label, *_ in table)
    yield f"{'':{width}}  {'us':>6}  {'x cuBLAS (95 %)':<18}  config"
    for label, us, times, config in table:
        yield f"{label:{width}}  {us:>6}  {times:<18}  {config}".rstrip()


def cells(answer: Answer, language: str | None) -> list[tuple[str, str, str, str]]:
    """Label, microseconds, times cuBLAS with the 95 % interval, origin of the config; of the fastest, the best of each
    language, of the references and cuBLAS, each once, and the floor."""
    baseline = answer.baseline
    named = {"fastest": answer.fastest, "cuBLAS": baseline}
    if (reference := answer.best_reference) is not None:
        named["best reference"] = reference
    if answer.elsewhere is not None:
        named["other run"] = answer.elsewhere
    named |= {
        f"best {name.value}": row for name in LANGUAGES if language in (None, name) and (row := answer.best_of(name))
    }
    labels = {row.contender: f"{label}: {row.contender}" for label, row in named.items()}
    shown = sorted({row.contender: row for row in named.values()}.values(), key=answer.us)
    made = []
    for row in shown:
        timing = row.timing[answer.timing]
        times = f"{timing.speedup:.2f} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f})"
        us = "" if row is answer.elsewhere else f"{timing.median_us:.1f}"  # of another run: ratios alone are compared
        made.append((labels[row.contender], us, "" if row is baseline else times, _config(row)))
    floor = baseline.floor[answer.timing].read_us
    return [*made, ("floor, reads the least bytes", f"{floor:.1f}", "", "")]


def _config(row: Row) -> str:
    """Where a kernel's config is from; of `linear` what it took."""
    if is_kernel(row):
        return CONFIGS.get(row.config_source or "", "")
    return f"takes {_taken(row)}" if written_in(row) in LANGUAGES else ""


def _taken(row: Row) -> str:
    """The contender that `linear` took, by its row's message."""
    return row.message.partition(" ")[0].removesuffix(":")


def why_lines(answer: Answer) -> Iterator[str]:
    """The protocol in a sentence, how far the kernel fills the GPU, and what goes without a split; or what `linear`
    took."""
    fastest, unsplit = answer.fastest, answer.unsplit
    if is_kernel(fastest):
        note = f"notes/{_file(fastest)}.md"
        yield f"Why: {REASONS.get(fastest.protocol, 'the row names no protocol')}."
    elif written_in(fastest) in LANGUAGES:
        note = "notes/linear.md"
        yield f"Why: linear takes {_taken(fastest)}, by the nearest sizes where kernels were timed by name."
    else:
        note = "notes/references.md"
        ours = next(row for row in answer.rows if written_in(row) in LANGUAGES)
        if not is_kernel(ours) and _taken(ours) in BASELINES:
            yield "Why: linear knows no kernel that wins, by the nearest sizes where kernels were timed by name."
        else:
            times = answer.us(ours) / answer.us(fastest)
            yield f"Why: the fastest kernel here, {ours.contender}, takes {times:.2f} times as long."
    if unsplit is not None and unsplit.config is not None:
        blocks = _tiles(unsplit)
        yield (
            f"     Without a split: {answer.us(unsplit):.1f} us, {unsplit.contender}, "
            f"{blocks} {'block' if blocks == 1 else 'blocks'} for {MULTIPROCESSORS} multiprocessors."
        )
    yield f"     More: {note}"


def _tiles(row: Row) -> int:
    assert row.config is not None
    return cdiv(row.problem.m, int(row.config["block_m"])) * cdiv(row.problem.n, int(row.config["block_n"]))


def _file(row: Row) -> str:
    return row.contender.partition("/")[2].partition(".")[0]


def call_lines(problem: Matmul | W4A16Matmul, row: Row) -> Iterator[str]:
    """Of the kernel itself; and of the one call that takes what is known to win."""
    epilogue = Epilogue.NONE if isinstance(problem, W4A16Matmul) else problem.epilogue
    if is_kernel(row):
        if epilogue is not Epilogue.NONE:
            yield "    from triton_vs_tilus.common.epilogue import Epilogue"
        names = "lay_out, matmul" if isinstance(problem, W4A16Matmul) else "matmul"
        yield f"    from triton_vs_tilus.kernels_{row.language}.{_file(row)} import {names}"
    if is_kernel(row) or row.contender in BASELINES:
        weight = "   # weight: common.quantization.GPTQWeight" if isinstance(problem, W4A16Matmul) else ""
        yield f"    y = {expression(problem, row)}{weight}"
    elif written_in(row) not in LANGUAGES:
        yield f"    {row.contender}: see notes/references.md"
    if isinstance(problem, W4A16Matmul) or problem.layout is not Layout.NK or epilogue is Epilogue.SCALE:
        return
    if written_in(row) in LANGUAGES:
        if is_kernel(row):
            yield ""
        taken = "that or another" if is_kernel(row) else "a kernel"
        yield f"    from triton_vs_tilus.kernels_{written_in(row)} import linear   # {taken} or torch, by the rows"
        yield f"    y = {_linear_call(problem)}"


def expression(problem: Matmul | W4A16Matmul, row: Row) -> str:
    """The call of what a row timed, a kernel of either language, `linear` of one or the baseline."""
    variant = f', variant="{row.variant}"' if row.variant else ""
    if isinstance(problem, W4A16Matmul):
        if row.language in LANGUAGES:
            return f"matmul(x, lay_out(weight){variant})"
        return "torch.mm(x, weight.dequantized().to(x.dtype))"
    weight = "weight.T" if problem.layout is Layout.NK else "weight"
    has_bias, activation = problem.epilogue.has_bias, problem.epilogue.activation
    if row.language in LANGUAGES:
        bias = ", bias=bias" if has_bias else ""
        fused = f", epilogue=Epilogue.{problem.epilogue.name}" if problem.epilogue is not Epilogue.NONE else ""
        return f"matmul(x, {weight}{bias}{fused}{variant})"
    if written_in(row) in LANGUAGES:
        return _linear_call(problem)
    product = f"torch.addmm(bias, x, {weight})" if has_bias else f"torch.mm(x, {weight})"
    return f"torch.{activation}({product})" if activation else product


def _linear_call(problem: Matmul) -> str:
    weight = "weight" if problem.layout is Layout.NK else "weight.T"
    bias = ", bias" if problem.epilogue.has_bias else ""
    activation = f', activation="{problem.epilogue.activation}"' if problem.epilogue.activation else ""
    return f"linear(x, {weight}{bias}{activation})"


def regimes_table(found: Sequence[Answer]) -> Table:
    """A line an answer: the fastest of all that are as fast, with cold L2 inside a graph too where that was timed, the
    best of the other language, and the call."""
    lines = []
    captured = any("graph" in answer.fastest.timing for answer in found)
    for answer in found:
        fastest, problem = answer.fastest, answer.fastest.problem.to_problem()
        assert isinstance(problem, Matmul | W4A16Matmul)
        other = next(name.value for name in LANGUAGES if name.value != written_in(fastest))
        second = answer.best_of(other)
        mark = " †" if len(answer.joint) > 1 else ""
        lines.append(
            [
                problem.name,
                fastest.contender + mark,
                f"{answer.us(fastest):.1f}",
                f"{fastest.timing[answer.timing].speedup:.2f}",
                *([_captured(fastest)] if captured else []),
                f"{answer.us(second):.1f}, {second.contender}" if second else "",
                f"`{expression(problem, fastest)}`",
            ]
        )
    of_graph = ["in a graph: us, x cuBLAS"] if captured else []
    header = ["M x N x K", "fastest", "us", "x cuBLAS", *of_graph, "best of the other language, us", "call"]
    foot = f"{TEMPERATURES[found[0].timing]}, median. {_baselines(found)} † joint fastest."
    return Table("the fastest by regime", header, lines, foot=foot)


def _baselines(found: Sequence[Answer]) -> str:
    """What the speed-ups are over, where problems have several baselines."""
    records = [answer.fastest.problem for answer in found]
    told = ["x cuBLAS: speed over torch.mm."]
    if any(record.epilogue not in (None, Epilogue.NONE.value) for record in records):
        told.append("With an epilogue the base is torch.mm plus a launch of the epilogue.")
    if any(record.op == W4A16Matmul.op for record in records):
        told.append("For w4a16 it is torch.mm on the dequantized weight, which reads 4x the bytes.")
        told.append("Marlin and Machete: not measured.")
    return " ".join(told)


def _captured(row: Row) -> str:
    timing = row.timing.get("graph")
    return "not timed" if timing is None else f"{timing.median_us:.1f}, {timing.speedup:.2f}"
