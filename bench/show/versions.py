"""Which versions of torch, Triton and tilus were run, on what."""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from packaging.version import Version

from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.frame import frame, geometric_mean
from triton_vs_tilus.bench.rows.row import Row
from triton_vs_tilus.bench.show.tables import Table, baseline_name, source_of
from triton_vs_tilus.common.kernel import Language

CI = queries.ROOT / ".ci" / "run"
CONSTRAINTS = queries.ROOT / "constraints.txt"
BY = ["device", "torch", "triton", "tilus"]


def versions_table() -> Table:
    """A line for each set of versions: of the recorded rows by device, with their number and last day; and of CI, where
    nothing is timed. Raises ValueError where the files of CI name no version."""
    rows = pd.DataFrame(
        {**{name: getattr(row.environment, name) or "-" for name in BY}, "time": row.time}
        for row in queries.of_all_tritons()
    )
    timed = rows.groupby(BY)["time"].agg(rows="size", last="max").reset_index().sort_values("last", ascending=False)
    lines = [
        [device.removeprefix("NVIDIA "), torch, triton, tilus, f"{count} rows, last {last[:10]}"]
        for device, torch, triton, tilus, count, last in timed.itertuples(index=False)
    ]
    torch, triton = (_pinned(CONSTRAINTS.read_text(), name) for name in ("torch", "triton"))
    tilus = _pinned((queries.ROOT / "pyproject.toml").read_text(), "tilus")
    newest = _pinned(CI.read_text(), "triton")
    lines += [
        ["CPU", torch, triton, tilus, "the suite in CI: interpreters, and programs compiled for GPUs"],
        ["CPU", torch, newest, "-", "Triton's kernels in CI: interpreted, and compiled for GPUs"],
    ]
    return Table("versions", ["device", "torch", "Triton", "tilus", "what ran"], lines)


def across_versions(path: Path, rows: Sequence[Row], others: Sequence[str] = ()) -> Table:
    """A line for each kernel of Triton: how fast each version of Triton makes it, cold, over the problems that all
    versions which have the kernel ran on one config; and how far the newest lies from the oldest on one problem.

    path: of the rows' file. others: files that another Triton recorded, named from the device's folder. Raises
    ValueError where no other Triton has a file of this name, nor there are others; OSError.
    """
    device = path.relative_to(queries.RESULTS).parts[0]
    beside = [queries.RESULTS / device / f"{name}.jsonl" for name in others]
    files = [rows, *map(queries.rows_of, [*queries.with_other_tritons(path), *beside])]
    if len(files) < 2:
        raise ValueError(f"across:{path.stem}: no other Triton has {path.name}")
    by_version = {
        Version(str(each[0].environment.triton)): frame(queries.passed(queries.contending(each), "cold"), "cold")
        for each in files
    }
    cold = pd.concat(by_version, names=["version"]).reset_index("version").astype({"problem": str})
    own = cold[cold.language == Language.TRITON.value]
    # With fields that came later.
    own = own.assign(
        config=[str(find(name).config_from(config)) for name, config in zip(own.contender, own.config, strict=True)]
    )
    speeds = own.pivot(index=["contender", "problem", "config"], columns="version", values="speedup")
    lines = []
    for name, found in speeds.groupby("contender", sort=False):
        same = found.dropna(axis="columns", how="all").dropna()  # versions that have the kernel; all of them have these
        if same.empty:
            continue
        means = same.apply(geometric_mean).reindex(speeds.columns)
        ratios = same.iloc[:, -1] / same.iloc[:, 0]
        apart = f"{ratios.min():.2f} to {ratios.max():.2f}" if len(same.columns) > 1 else ""
        shown = ["" if pd.isna(mean) else f"{mean:.3f}" for mean in means]
        lines.append([str(name).removeprefix("triton/"), str(len(same)), *shown, apart])
    header = ["kernel", "problems", *(f"Triton {version}" for version in speeds.columns), "newest over oldest"]
    foot = f"cold. Times {baseline_name(rows)} of each run, the geometric mean; newest over oldest: the extremes. "
    return Table(f"{path.stem}: one config under each Triton", header, lines, foot=foot + source_of(rows))


def _pinned(text: str, name: str) -> str:
    if (match := re.search(rf"\b{name}==([\d.]+)", text)) is None:
        raise ValueError(f"no version of {name} is named")
    return match[1]
