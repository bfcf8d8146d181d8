"""All workloads and contenders, on a screen or two."""

from collections.abc import Iterator, Sequence

from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.rows.environment import not_installed
from triton_vs_tilus.bench.show.tables import Table
from triton_vs_tilus.bench.workloads import Asked
from triton_vs_tilus.common.kernel import Kernel


def workloads_table(asked: Asked, verbose: bool) -> Table:
    """A line per workload that has what is asked for; with `verbose` its ends, by size and by work."""
    without_layout = Asked(dtype=asked.dtype, epilogue=asked.epilogue)  # for problems that have no layout
    lines = []
    for suite in workloads.SUITES:
        if suite.agrees(asked.dtype, asked.epilogue):
            problems = suite.problems(None, asked) or suite.problems(None, without_layout)
            work = sorted(problem.flops / 1e9 for problem in problems)
            ends = [problems[0].name, problems[-1].name, f"{work[0]:.3g} to {work[-1]:.3g}"] if verbose else []
            lines.append([suite.name, str(len(problems)), *ends, suite.about])
    groups = [name for name, suites in workloads.WORKLOADS.items() if len(suites) > 1]
    foot = f"{', '.join(groups)}: all whose names begin so. A list of your own: --workload FILE.json"
    header = ["workload", "problems", *(["first", "last", "GFLOP"] if verbose else []), "what it is"]
    return Table("workloads", header, lines, foot=foot)


def contenders_table(kernels: Sequence[Kernel], has_gpu: bool) -> Table:
    """A line per file of each language, with its variants. has_gpu: whether this machine has one."""
    files: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        files.setdefault((kernel.op, f"{kernel.language.value}/{kernel.name}"), []).append(kernel)
    lines = []
    for (op, file), of_file in sorted(files.items()):
        on_request = " (--references)" if all(kernel.on_request for kernel in of_file) else ""
        by_name = "" if on_request else " (--references)"
        variants = [f"{kernel.variant}{by_name if kernel.on_request else ''}" for kernel in of_file if kernel.variant]
        lines.append([op, f"{file}{on_request}", ", ".join(variants)])
    return Table("contenders", ["operation", "contender", "variants"], lines, foot="\n".join(_where(kernels, has_gpu)))


def every_contender_table(kernels: Sequence[Kernel], has_gpu: bool) -> Table:
    """A line per contender. has_gpu: whether this machine has one."""
    lines = []
    for kernel in kernels:
        deterministic, asked = "yes" if kernel.deterministic else "", "--references" if kernel.on_request else ""
        lines.append([kernel.full_name, kernel.op, kernel.protocol.value, deterministic, asked])
    header = ["contender", "operation", "protocol", "deterministic", "takes part with"]
    return Table("contenders", header, lines, foot="\n".join(_where(kernels, has_gpu)))


def _where(kernels: Sequence[Kernel], has_gpu: bool) -> Iterator[str]:
    """How each language runs on this machine, or why it cannot; a source's own design as what it is written in."""
    if not has_gpu:
        yield "There is no CUDA device: contenders are checked on the CPU, and nothing is timed."
    alike: dict[str, list[str]] = {}
    missing = []
    for language in dict.fromkeys(kernel.language.compiler for kernel in kernels):
        availability = contenders.availability(language)
        package = contenders.OPTIONAL.get(language)
        if package is not None and availability == not_installed(package, language.value):
            missing.append(language.value)
        else:
            alike.setdefault(availability, []).append(language.value)
    if missing:
        yield f"{', '.join(missing)}: not installed: pip install --editable '.[{','.join(missing)}]'"
    for availability, languages in alike.items():
        if availability != "runs on the CPU":  # as all that are not named
            yield f"{', '.join(languages)}: {availability}"
    yield from contenders.not_importable().values()
