"""An answer as a screen: who is fastest and by how much, why, and the lines that call it."""

from collections.abc import Iterator

from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows.answers import Answer
from triton_vs_tilus.bench.rows.row import TEMPERATURES, Row
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import LANGUAGES, cdiv
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.space import MULTIPROCESSORS
from triton_vs_tilus.common.w4a16 import W4A16Matmul

FAR = 2.0  # apart, from where a time says little
CONFIGS = {
    "search": "searched for that shape",
    "tuned": "searched for that shape",
    "stale": "searched for a former kernel",
    "nearest": "searched for another shape",
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
    """Lines of at most 100 characters."""
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
    yield _where(problem, answer)
    yield ""
    yield from _table(answer, language)
    yield ""
    yield from _why(answer)
    yield ""
    yield from _call(problem, fastest)
    yield ""
    rows = f"{answer.file.parent.name}/{answer.file.name}, {fastest.problem.name}"
    yield f"Rows: {rows}, {fastest.environment.device}, {fastest.time[:10]}."


def _in_torch(problem: Matmul | W4A16Matmul) -> str:
    if isinstance(problem, W4A16Matmul):
        return "torch.mm on the dequantized weight"
    return "torch.mm" if problem.epilogue is Epilogue.NONE else f"torch.mm, then {problem.epilogue.value} in torch"


def _where(problem: Matmul | W4A16Matmul, answer: Answer) -> str:
    record, clock = answer.fastest.problem, TEMPERATURES[answer.timing]
    if answer.apart == 0:
        return f"Recorded at this very problem, {clock}."
    pairs = {"M": (problem.m, record.m), "N": (problem.n, record.n), "K": (problem.k, record.k)}
    ratios = ", ".join(f"{name} x{there / here:.2g}" for name, (here, there) in pairs.items() if here != there)
    said = f"Recorded at {record.m}x{record.n}x{record.k} ({ratios or 'in the other half precision'}), {clock}."
    return said if answer.apart < FAR else f"{said} That is far: --measure, on a GPU, times it."


def _table(answer: Answer, language: str | None) -> Iterator[str]:
    """The fastest, the best of each language, of the references and cuBLAS, each once, and the floor."""
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
    floor = "floor, reads the least bytes"
    width = max(map(len, [*labels.values(), floor]))
    yield f"{'':{width}}  {'us':>6}  {'x cuBLAS (95 %)':<18}  config"
    for row in shown:
        timing = row.timing[answer.timing]
        times = f"{timing.speedup:.2f} ({timing.speedup_low:.2f}-{timing.speedup_high:.2f})"
        config = CONFIGS.get(row.config_source or "", "")
        if row.language not in LANGUAGES:
            config = ""
        figures = f"{timing.median_us:>6.1f}  {'' if row is baseline else times:<18}  {config}"
        yield f"{labels[row.contender]:{width}}  {figures}".rstrip()
    yield f"{floor:{width}}  {baseline.floor[answer.timing].read_us:>6.1f}"


def _why(answer: Answer) -> Iterator[str]:
    """The protocol in a sentence, how far the kernel fills the GPU, and what goes without a split."""
    fastest, unsplit = answer.fastest, answer.unsplit
    note = f"notes/{_file(fastest)}.md" if fastest.language in LANGUAGES else "notes/references.md"
    reason = REASONS.get(fastest.protocol, f"{fastest.contender} is no kernel of this project")
    yield f"Why: {reason}."
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


def _call(problem: Matmul | W4A16Matmul, row: Row) -> Iterator[str]:
    """Of the kernel itself; and of the one call that takes what is known to win."""
    variant = f', variant="{row.variant}"' if row.variant else ""
    if isinstance(problem, W4A16Matmul):
        yield from _call_w4a16(row, variant)
        return
    weight = "weight.T" if problem.layout is Layout.NK else "weight"
    has_bias, activation = problem.epilogue.has_bias, problem.epilogue.activation
    if row.language in LANGUAGES:
        options = ", bias=bias" if has_bias else ""
        if problem.epilogue is not Epilogue.NONE:
            yield "    from triton_vs_tilus.common.epilogue import Epilogue"
            options += f", epilogue=Epilogue.{problem.epilogue.name}"
        yield f"    from triton_vs_tilus.kernels_{row.language}.{_file(row)} import matmul"
        yield f"    y = matmul(x, {weight}{options}{variant})"
    elif row.contender in BASELINES:
        product = f"torch.addmm(bias, x, {weight})" if has_bias else f"torch.mm(x, {weight})"
        yield f"    y = {f'torch.{activation}({product})' if activation else product}"
    else:
        yield f"    {row.contender}: see notes/references.md"
    if problem.layout is Layout.NK and row.language in LANGUAGES and problem.epilogue is not Epilogue.SCALE:
        options = (", bias" if has_bias else "") + (f', activation="{activation}"' if activation else "")
        yield ""
        yield f"    from triton_vs_tilus.kernels_{row.language} import linear   # that or another or torch, by the rows"
        yield f"    y = linear(x, weight{options})"


def _call_w4a16(row: Row, variant: str) -> Iterator[str]:
    if row.language in LANGUAGES:
        yield f"    from triton_vs_tilus.kernels_{row.language}.w4a16 import lay_out, matmul"
        yield f"    y = matmul(x, lay_out(weight){variant})   # weight: common.quantization.GPTQWeight"
    else:
        yield "    y = torch.mm(x, weight.dequantized().to(x.dtype))   # weight: common.quantization.GPTQWeight"
