"""The answers of several regimes: who is fastest and how to call it, and the other language's best."""

from collections.abc import Sequence

from triton_vs_tilus.bench.ops import W4A16
from triton_vs_tilus.bench.rows.answers import Answer, written_in
from triton_vs_tilus.bench.rows.row import LANGUAGES, TEMPERATURES, Row
from triton_vs_tilus.bench.show.answer import expression
from triton_vs_tilus.bench.show.tables import JOINT, NOT_SEARCHED, Table


def regimes_table(found: Sequence[tuple[str, Answer]]) -> Table:
    """A line per answer: the fastest, marked where others are joint; its time, with cold L2 inside a graph too where
    that was timed; and the call. Where a regime has a name ('' for none), it and the sizes replace the problem's name:
    the call has the layout and the epilogue, the foot the dtype. So the table fits the page of a repository."""
    lines = []
    for regime, answer in found:
        fastest, problem = answer.fastest, answer.fastest.problem
        graph = fastest.timing.get("graph")
        lines.append(
            [
                f"{regime}, {problem.m}x{problem.n}x{problem.k}" if regime else problem.name,
                _marked(answer, fastest),
                f"{answer.us(fastest):.1f}{f' ({graph.median_us:.1f})' if graph else ''}",
                f"{fastest.timing[answer.timing].speedup:.2f}{f' ({graph.speedup:.2f})' if graph else ''}",
                f"`{expression(problem, fastest)}`",
            ]
        )
    dtypes: dict[str, list[str]] = {}
    for regime, dtype in dict.fromkeys((regime, answer.fastest.problem.dtype) for regime, answer in found if regime):
        dtypes.setdefault(dtype, []).append(regime)
    told = "; ".join(f"{dtype}: {', '.join(regimes)}" for dtype, regimes in dtypes.items())
    captured = any("graph" in answer.fastest.timing for _, answer in found)
    in_brackets = "; in brackets: cold in a CUDA graph" if captured else ""
    answers = [answer for _, answer in found]
    foot = _foot(answers, in_brackets, _baselines(answers)) + (f" {told}." if told else "") + _former(found)
    return Table("", ["regime, M x N x K", "fastest", "us", "x cuBLAS", "call"], lines, foot=foot)


def beside_table(found: Sequence[Answer]) -> Table:
    """A line an answer: the fastest, and the best of the other language."""
    lines = []
    for answer in found:
        fastest = answer.fastest
        others = [row for name in LANGUAGES if name != written_in(fastest) and (row := answer.best_of(name))]
        second = min(others, key=answer.us, default=None)
        lines.append(
            [
                fastest.problem.name,
                _marked(answer, fastest),
                f"{answer.us(fastest):.1f}",
                f"{_marked(answer, second)}, {answer.us(second):.1f}" if second else "",
            ]
        )
    header = ["M x N x K", "fastest", "us", "best of the other\nlanguage, us"]
    return Table("the fastest by regime, and the other language", header, lines, foot=_foot(found))


def _marked(answer: Answer, row: Row) -> str:
    joint = row in answer.joint and len(answer.joint) > 1
    return row.contender + "°" * row.not_searched + " †" * joint


def _former(found: Sequence[tuple[str, Answer]]) -> str:
    """Which were timed by the former clock: their times do not compare with the others'."""
    names = dict.fromkeys(regime or answer.fastest.problem.name for regime, answer in found if answer.by_former_clock)
    return f" By the former clock, whose cold times are longer (notes/method.md): {', '.join(names)}." if names else ""


def _foot(found: Sequence[Answer], in_brackets: str = "", baselines: str = "") -> str:
    sentences = f"{TEMPERATURES[found[0].timing]}, median{in_brackets}.", baselines, f"{JOINT}; {NOT_SEARCHED}."
    return " ".join(filter(None, sentences))


def _baselines(found: Sequence[Answer]) -> str:
    """What the speed-ups are over, where problems have several baselines."""
    records = [answer.fastest.problem for answer in found]
    told = ["x cuBLAS: speed over torch.mm."]
    if any(record.epilogue not in (None, "none") for record in records):
        told.append("With an epilogue the base is torch.mm plus a launch of the epilogue.")
    if any(record.op == W4A16 for record in records):
        told.append("For W4A16 it is torch.mm on the dequantized weight, which reads 4x the bytes;")
        told.append("Marlin and Machete are not measured.")
    return " ".join(told)
