"""How wide Triton's kernels load and store operands whose rows are a number of elements apart, compiled in a process of
its own, with ttgir.environment."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from triton_vs_tilus.bench.diagnostics import ptx
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul

MEMORY = ("async copies", "global loads", "global stores")


def compiled_widths(
    full_name: str, problem: Matmul, padding: int, *, announce: Callable[[str], None]
) -> list[dict[str, list[str]]] | str:
    """Of each GPU kernel {group: classes} of MEMORY, for the default config and rows of A and B that are
    `padding` elements longer than the problem's; or why this Triton does not compile the kernel."""
    announce(full_name)
    from triton import knobs

    from triton_vs_tilus.bench import contenders
    from triton_vs_tilus.kernels_triton import launching, offline

    kernel = contenders.find(full_name)
    if reason := kernel.supports(problem, None):
        return reason
    dense = contiguous(problem)
    row_of_b = "stride_bn" if problem.layout is Layout.NK else "stride_bk"
    padded = {name: getattr(dense, name) + padding for name in ("stride_am", row_of_b)}
    plan = kernel.plan(problem, kernel.default_config(problem), dense._replace(**padded))
    found: list[dict[str, list[str]]] = []

    def compiled(*, metadata_group: dict[str, str], **_: object) -> None:
        (text,) = (Path(path).read_text() for path in metadata_group.values() if path.endswith(".ptx"))
        classes = set(ptx.listing(text))
        found.append({group: sorted(of for within, of in classes if within == group) for group in MEMORY})

    with TemporaryDirectory() as folder:
        offline.compile_for("sm_90a", Path(folder))
        knobs.compilation.listener = compiled  # PTX is enough, and disassembling takes as long as compiling
        launching.build_plan(plan)
    return found
