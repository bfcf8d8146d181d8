"""The answers of several regimes in one table."""

from collections.abc import Sequence

from triton_vs_tilus.bench.ops import W4A16
from triton_vs_tilus.bench.rows.answers import Answer, written_in
from triton_vs_tilus.bench.rows.row import LANGUAGES, TEMPERATURES, Row
from triton_vs_tilus.bench.show.answer import expression
from triton_vs_tilus.bench.show.tables import JOINT, Table


def regimes_table(found: Sequence[Answer]) -> Table:
    """A line an answer: the fastest of all that are as fast, with cold L2 inside a graph too where that was timed, the
    best of the other language, and the call."""
    lines = []
    captured = any("graph" in answer.fastest.timing for answer in found)
    for answer in found:
        fastest, problem = answer.fastest, answer.fastest.problem
        other = next(name for name in LANGUAGES if name != written_in(fastest))
        second = answer.best_of(other)
        mark = "°" * fastest.not_searched + " †" * (len(answer.joint) > 1)
        lines.append(
            [
                problem.name,
                fastest.contender + mark,
                f"{answer.us(fastest):.1f}",
                f"{fastest.timing[answer.timing].speedup:.2f}",
                *([_captured(fastest)] if captured else []),
                f"{answer.us(second):.1f}, {second.contender}{'°' * second.not_searched}" if second else "",
                f"`{expression(problem, fastest)}`",
            ]
        )
    of_graph = ["in a graph: us, x cuBLAS"] if captured else []
    header = ["M x N x K", "fastest", "us", "x cuBLAS", *of_graph, "best of the other language, us", "call"]
    foot = f"{TEMPERATURES[found[0].timing]}, median. {_baselines(found)} {JOINT}."
    return Table("the fastest by regime", header, lines, foot=foot)


def _baselines(found: Sequence[Answer]) -> str:
    """What the speed-ups are over, where problems have several baselines."""
    records = [answer.fastest.problem for answer in found]
    told = ["x cuBLAS: speed over torch.mm."]
    if any(record.epilogue not in (None, "none") for record in records):
        told.append("With an epilogue the base is torch.mm plus a launch of the epilogue.")
    if any(record.op == W4A16 for record in records):
        told.append("For w4a16 it is torch.mm on the dequantized weight, which reads 4x the bytes.")
        told.append("Marlin and Machete: not measured.")
    return " ".join(told)


def _captured(row: Row) -> str:
    timing = row.timing.get("graph")
    return "not timed" if timing is None else f"{timing.median_us:.1f}, {timing.speedup:.2f}"
