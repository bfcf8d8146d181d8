"""What pages show of the rows: filled in between markers, plots drawn beside them."""

import json
import re
import textwrap
from collections import Counter
from dataclasses import replace as replace_table
from fnmatch import fnmatchcase

import pytest
from made_rows import FP32, VECTOR, by_former_clock, one_launch, router_rows, row
from msgspec.structs import replace

from triton_vs_tilus.bench import contenders, workloads
from triton_vs_tilus.bench.ops import BASELINES
from triton_vs_tilus.bench.rows import answers, queries
from triton_vs_tilus.bench.rows.journal import Journal, read_verdicts, to_line
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    PASSED,
    WRONG,
    AgainstRecord,
    EnvironmentRecord,
    FloorRecord,
    Launch,
    Verdict,
)
from triton_vs_tilus.bench.show import docs, plots, resources, winners
from triton_vs_tilus.bench.show.claims import counted, figures, listed
from triton_vs_tilus.bench.show.ladder import STEPS
from triton_vs_tilus.common import tuned
from triton_vs_tilus.common.w4a16 import W4A16Matmul


@pytest.fixture
def results(results):
    """Of one device, with router-nk.jsonl."""
    file = Journal(results / "h200" / "router-nk.jsonl")
    for made in router_rows():
        file.append(made)
    return results


def test_pages_are_renewed_between_their_markers(results, tmp_path):
    doc = tmp_path / "README.md"
    begin, end = "<!-- results:router-nk -->\n", "<!-- /results -->\nafter\n"
    begin_one = f"<!-- results:router-nk {BASELINE} triton/* -->\n"
    doc.write_text(f"before\n{begin}old figures\n{end}{begin_one}{end}")
    assert docs.update([doc], write=False) == [doc]
    assert "old figures" in doc.read_text()
    assert docs.update([doc]) == [doc]
    first, second = doc.read_text().split(begin_one)
    assert first.startswith(f"before\n{begin}**[T, 7168] @ [7168, 256], bf16, weight stored [N, K]**\n\n| T |")
    assert f"| T | {BASELINE} | {VECTOR} | {FP32} |" in first
    assert "| 1 | 10.0 | 8.0 (1.25x) * | 12.5 (0.80x) |" in first
    assert f"| T | {BASELINE} | {VECTOR} |\n" in second
    assert docs.update([doc]) == []


def test_verdicts_of_adversaries_are_counted_by_device(results, tmp_path):
    doc = page(tmp_path, "verdicts")
    docs.update([doc])
    assert doc.read_text() == "<!-- verdicts -->\n<!-- /verdicts -->\n"
    environment = EnvironmentRecord(device="NVIDIA H200", git="0123abc")
    told = {"does": "", "expected": WRONG, "expected_message": "stale", "time": "2026-11-26T00:00:00+00:00"}
    made = [
        Verdict(adversary="cached", status=WRONG, message="it is stale", environment=environment, **told),
        Verdict(adversary="hangs", status=PASSED, message="", environment=environment, **told),
    ]
    file = tmp_path / "results" / "h200" / "referee" / "adversaries.jsonl"
    file.parent.mkdir()
    file.write_text("".join(map(to_line, made)))
    docs.update([doc])
    assert "1 of 2 got the expected verdict; `hangs`: passed" in doc.read_text()
    assert "[`adversaries.jsonl`](../results/h200/referee/adversaries.jsonl), `0123abc`)" in doc.read_text()
    assert "Recorded on NVIDIA H200, 2026-11-26." in doc.read_text()
    assert [path.stem for path in queries.recorded()] == ["router-nk"]  # verdicts are no rows


def test_a_name_with_a_device_takes_its_file_alone(results, tmp_path):
    other = Journal(tmp_path / "results" / "a100" / "router-nk.jsonl")
    for made in router_rows():
        slower = {name: replace(time, median_us=2 * time.median_us) for name, time in made.timing.items()}
        other.append(replace(made, timing=slower))
    assert docs.taken("router-nk", "1x*", VECTOR) == ["16.0", "8.0"]
    assert docs.taken("h200:router-nk", "1x*", VECTOR) == ["8.0"] and docs.taken("a100:router-nk", "1x*", VECTOR) == [
        "16.0"
    ]


def test_what_moved_between_two_files_is_listed_from_the_slowest_on(results, tmp_path):
    beside = Journal(tmp_path / "results" / "h200" / "again" / "router-nk.jsonl")
    for made in router_rows():
        speed = {VECTOR: 0.9, FP32: 1.02}.get(made.contender, 1.0)
        timing = {name: replace(time, speedup=time.speedup * speed) for name, time in made.timing.items()}
        beside.append(replace(made, timing=timing))
    (page,) = docs.moved("router-nk", ".", "again", "3")
    assert f"| {VECTOR} |" in page and FP32 not in page and BASELINE not in page
    assert "| 0.900x |" in page and "3 of 4 moved by more than 3 %" in page
    with pytest.raises(ValueError, match=r"no device has router-nk.jsonl in both . and elsewhere"):
        docs.moved("router-nk", ".", "elsewhere", "3")


def test_kernels_are_held_against_themselves_under_another_triton_where_the_config_is_one(results, tmp_path):
    results_of = tmp_path / "results" / "h200"
    newer = Journal(results_of / "triton-3.9" / "router-nk.jsonl")
    for made in router_rows():
        speed, config = {1: (0.9, made.config), 16: (1.2, made.config)}.get(
            made.problem.m, (5.0, {**(made.config or {}), "num_warps": 2})
        )
        timing = {name: replace(time, speedup=time.speedup * speed) for name, time in made.timing.items()}
        environment = replace(made.environment, triton="3.9.0")
        newer.append(replace(made, timing=timing, config=config, environment=environment))
        if made.contender == VECTOR:
            newer.append(replace(made, contender="triton/cluster", environment=environment))
    doc = tmp_path / "README.md"
    doc.write_text("<!-- across:router-nk -->\n<!-- /across -->\n")
    docs.update([doc])
    page = doc.read_text()
    # At T = 1 and 16 1.25x and 1x of the baseline; at T = 1024 another config.
    assert "| decompose_k.vector | 2 | 1.118 | 1.162 | 0.90 to 1.20 |" in page
    assert "| cluster | 3 |  | 0.855 |  |" in page and "semaphore" not in page
    between = Journal(results_of / "router-beside.jsonl")
    for made in router_rows():
        if made.contender == VECTOR and made.problem.m == 1:
            between.append(replace(made, environment=replace(made.environment, triton="3.8.0")))
    doc.write_text("<!-- across:router-nk router-beside -->\n<!-- /across -->\n")
    docs.update([doc])
    assert "| decompose_k.vector | 1 | 1.250 | 1.250 | 1.125 | 0.90 to 0.90 |" in doc.read_text()
    doc.write_text("<!-- across:router-nk -->\n<!-- /across -->\n")
    (results_of / "triton-3.9" / "router-nk.jsonl").unlink()
    with pytest.raises(ValueError, match=r"across:router-nk: no other Triton has router-nk\.jsonl"):
        docs.update([doc])


def test_a_line_tells_what_an_empty_launch_took(results, tmp_path):
    doc = tmp_path / "README.md"
    doc.write_text("It took <!-- launch:router-nk -->?<!-- /launch --> us.\n")
    docs.update([doc])
    us = {row.floor["cold"].launch_us for row in router_rows() if "cold" in row.floor}
    assert doc.read_text() == f"It took <!-- launch:router-nk -->{min(us):.1f}<!-- /launch --> us.\n"
    longer = replace(router_rows()[0], floor={"cold": FloorRecord(launch_us=max(us) + 1, read_us=9.0)})
    Journal(tmp_path / "results" / "h200" / "router-nk.jsonl").append(longer)
    docs.update([doc])
    assert f"{min(us):.1f} to {max(us) + 1:.1f}<" in doc.read_text()
    doc.write_text("<!-- launch:square --><!-- /launch -->\n")
    with pytest.raises(ValueError, match=r"README\.md: launch:square: no device has square"):
        docs.update([doc])


@pytest.mark.parametrize(
    ("marker", "shown"),
    [
        (f"us:router-nk 1x* {VECTOR}", "8.0"),
        (f"us:router-nk * {VECTOR}", "8.0 to 12.0"),
        (f"times:router-nk 1x* {VECTOR} {BASELINE}", "1.25"),
        (f"times:router-nk 1x*,64x* {VECTOR} {BASELINE}", "0.83 to 1.25"),
        (f"times:router-nk 1x* t*/* {BASELINE}", "1.25"),  # the fastest of those that the pattern names
        (f"us:router-nk 1x* {VECTOR}@tilus", "4.0"),  # with tilus' config: by its own name alone
        (f"mean:router-nk * {VECTOR} {BASELINE}", "1.02"),
        (f"us:router-nk@warm 64x* {VECTOR}", "6.0"),
        (f"beyond:router-nk * {VECTOR}", "3.00 to 7.00"),  # floor/read takes 5 us
        (f"beyond:router-nk@warm 64x* {VECTOR}", "1.00"),
        (f"floors:router-nk * {VECTOR}", "1.60 to 2.40"),
        ("beyond:router-nk 64x* 1.25", "3.00"),  # torch.mm takes 10 us
        (f"times:router-nk@warm 64x* {VECTOR} {BASELINE}", "0.83"),
        (f"uj:router-nk 64x* {VECTOR}", "120"),
        (f"ahead:router-nk@warm 64x* {VECTOR} {BASELINE}", "0 of 1"),
        (f"ahead:router-nk * {VECTOR} {BASELINE}", "1 of 2"),
        (f"ahead:router-nk * {BASELINE} {VECTOR}", "1 of 2"),
        (f"longer:router-nk 64x* 1x* {VECTOR}", "1.50"),
        (f"longer:router-nk@warm 64x* 1x* {VECTOR},{BASELINE}", "1.00 to 1.50, 1.25 in the median, of 2"),
    ],
)
def test_a_line_has_single_figures_of_the_rows(results, tmp_path, marker, shown):
    (tmp_path / "results" / "h200" / "router-nk.jsonl").unlink()
    file = Journal(tmp_path / "results" / "h200" / "router-nk.jsonl")
    for tokens, us in ((1, 8.0), (64, 12.0)):
        file.append(row(BASELINE, tokens, 10.0))
        made = row(VECTOR, tokens, us)
        timing = {name: replace(time, energy_uj=10 * us) for name, time in made.timing.items()}
        file.append(replace(made, timing=timing))
    file.append(row(f"{VECTOR}@tilus", 1, 4.0))
    doc = tmp_path / "README.md"
    what = marker.partition(":")[0]
    doc.write_text(f"It is <!-- {marker} -->?<!-- /{what} --> here, <!-- {marker} --><!-- /{what} --> there.\n")
    docs.update([doc])
    assert doc.read_text().count(f"<!-- {marker} -->{shown}<!-- /{what} -->") == 2


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("us:router-nk 3x* torch/mm", r"no problem is 3x\*"),
        ("us:router-nk * tilus/none", "not all of tilus/none were"),
        ("us:router-nk@tepid 1x* torch/mm", "timing is tepid; accepted: cold"),
        ("uj:router-nk 1x* torch/mm", "the energy of torch/mm was not measured"),
        ("longer:router-nk * 1x* torch/mm", r"\* names several problems"),
        ("longer:router-nk 3x* 1x* torch/mm", r"nothing of torch/mm was timed on 3x\* and on 1x\*"),
    ],
)
def test_a_figure_that_no_row_has_is_an_error(results, tmp_path, marker, told):
    doc = tmp_path / "README.md"
    doc.write_text(f"<!-- {marker} --><!-- /{marker.partition(':')[0]} -->\n")
    with pytest.raises(ValueError, match=rf"README\.md: .*{told}"):
        docs.update([doc])


LINK = re.compile(r"\[`([^`]+)`\]\(([^)#]+\.py)\)")
CODE = re.compile(r"(?<!\[)`([^`]+)`")


def step_cells() -> list:
    """The cells of the tables of steps, with the page that each is of."""
    cells = []
    for page in sorted((queries.ROOT / "notes").glob("*.md")):
        for table in re.findall(
            r"^\| step \| Triton \|.* tilus \|\n\|.*\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE
        ):
            found = [cell.strip() for line in table.splitlines() for cell in line.strip("|").split(" | ")[1:]]
            cells += [pytest.param(page, cell, id=f"{page.stem}-{i}") for i, cell in enumerate(found) if cell]
    return cells


@pytest.mark.parametrize(("page", "cell"), step_cells())
def test_steps_quote_the_functions_that_they_link_to(page, cell):
    """Each name is defined in its file; each piece of code, '...' aside, stands in one of the cell's files."""
    linked = [(name, (page.parent / path).resolve().read_text()) for name, path in LINK.findall(cell)]
    for name, source in linked:
        assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", source), name
    joined = [" ".join(source.split()) for _, source in linked]
    for code in CODE.findall(LINK.sub("", cell)):
        pieces = [piece.strip() for piece in code.split("...")]
        assert any(all(piece in source for piece in pieces) for source in joined), code


PAGES = [queries.ROOT / "README.md", queries.ROOT / "CONTRIBUTING.md", *sorted((queries.ROOT / "notes").glob("*.md"))]
FOLDERS = "bench|common|examples|kernels_tilus|kernels_triton|notes|patches|tests"
OWN_FILE = re.compile(rf"(?<![\w/.-])(?:\.\./)?((?:{FOLDERS})/[\w/.-]*\.(?:json|md|patch|py))\b")
TARGET = re.compile(r"\]\((?!https?:)([^)#\s]+)")
NAMED_IN = re.compile(r"`([\w.]+)` in \[`[^`]+`\]\(([^)#]+\.py)\)")
# Files of tilus 0.2.0, whose folders have the same names.
OF_TILUS = {
    "examples/attention/flash_attention_v2.py",
    "examples/matmul/matmul_v5.py",
    "tests/instructions/test_shared_memory_addressing.py",
    "tests/lang/test_thread_group.py",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_names_that_a_page_mentions_are_there(page):
    """A path that begins with a folder of this project, a link's target, and what is said to be in a linked file."""
    text = page.read_text()
    mentioned = {queries.ROOT / path for path in set(OWN_FILE.findall(text)) - OF_TILUS}
    mentioned |= {page.parent / path for path in TARGET.findall(text)}
    assert [str(path) for path in mentioned if not path.exists()] == []
    for name, path in NAMED_IN.findall(text) + [pair for pair in LINK.findall(text) if not pair[0].endswith(".py")]:
        last = re.escape(name.rpartition(".")[2])
        assert re.search(rf"\b{last}\b", (page.parent / path).read_text()), f"{name} in {path}"


def test_resources_are_told_side_by_side():
    def kernel(language: str, *registers: int) -> resources.Recorded:
        made = [
            resources.Compiled(
                "k", dict.fromkeys(resources.FIGURES, 0) | {"registers": count}, {"barriers": {"bar.sync": 2}}, {}
            )
            for count in registers
        ]
        return resources.Recorded(f"{language}/atomic", "16x256x7168", "sm_90a", "16x16", f"{language} 1", tuple(made))

    records = [kernel("tilus", 40), kernel("triton", 30, 20)]
    shown = resources.side_by_side(records, "atomic").markdown()
    assert "|  | triton/atomic | tilus/atomic |" in shown
    assert "| registers | 30 + 20 | 40 |" in shown
    assert "| barriers | bar.sync x2 + bar.sync x2 | bar.sync x2 |" in shown
    assert "spills" not in shown.partition("Shared memory")[0]
    with pytest.raises(ValueError, match=r"resources:cluster: resources\.json has no such kernel"):
        resources.side_by_side(records, "cluster")


def test_a_marker_of_a_file_that_is_not_there_is_an_error(results, tmp_path):
    doc = tmp_path / "README.md"
    doc.write_text("<!-- results:square -->\n<!-- /results -->\n")
    with pytest.raises(ValueError, match=r"README\.md: results:square"):
        docs.update([doc])


def page(tmp_path, *markers: str):
    doc = tmp_path / "notes" / "page.md"
    doc.parent.mkdir(exist_ok=True)
    ends = [f"<!-- {marker} -->\nold\n<!-- /{marker.split(':')[0].split()[0]} -->\n" for marker in markers]
    doc.write_text("\n".join(ends))
    return doc


def test_a_page_has_the_matrix_and_the_claims(results, tmp_path):
    doc = page(tmp_path, "matrix:router-nk", "claims")
    assert docs.update([doc]) == [doc]
    text = doc.read_text()
    assert "\nold\n" not in text
    assert "| protocol | triton | tilus | tilus over triton |" in text
    assert "| claim | there | rows | confirmed where | measured | verdict |" in text
    assert docs.update([doc]) == []


def test_a_page_has_what_borrowed_configs_keep(results, tmp_path):
    file = Journal(results / "h200" / "router-borrowed.jsonl")
    held = {"cold": AgainstRecord(contender=VECTOR, ratio=0.9, low=0.89, high=0.91)}
    for made in (row(VECTOR, 1, 8.0), replace(row(f"{VECTOR}@borrowed", 1, 8.9), against=held)):
        file.append(made)
    doc = page(tmp_path, "borrowed:router-borrowed")
    assert docs.update([doc]) == [doc]
    assert "| decompose_k.vector | triton | 1 | 0 | 0 | 0.900 | 0.90 (0.89-0.91), M = 1 |" in doc.read_text()
    assert docs.update([doc]) == []


def test_the_ladder_has_the_steps_that_were_timed_and_marks_the_fastest(results, tmp_path):
    """16x*: torch.mm 10 us, Triton's two launches level, tilus' wrong; the floor 5 us."""
    doc = page(tmp_path, "ladder:router-nk 16x*")
    docs.update([doc])
    change = STEPS["decompose_k.vector"]
    assert f"| **decompose_k.vector** | **{change}** | **10.0** | **1.00** | **2.00** |  |  |  |" in doc.read_text()
    assert "semaphore" not in doc.read_text() and docs.update([doc], write=False) == []
    doc = page(tmp_path, "ladder:router-nk 1x*")
    docs.update([doc])
    assert "| semaphore.fp32 |" in doc.read_text() and "| 12.5 | 0.80 | 2.50 |" in doc.read_text()
    assert "| **decompose_k.vector** |" in doc.read_text()


def test_every_step_of_the_ladder_is_a_contender():
    known = {contender.full_name for contender in contenders.all_contenders()}
    assert {f"tilus/{step}" for step in STEPS} <= known
    assert {f"triton/{step}" for step in STEPS} <= known


def test_a_pages_plots_are_drawn_anew_when_their_rows_change(results, tmp_path):
    doc = page(tmp_path, "plots:router-nk speedup pareto")
    drawn = [tmp_path / "notes" / "plots" / "h200" / f"router-nk-{name}.svg" for name in ("speedup", "pareto")]
    assert docs.update([doc], write=False) == [doc, *drawn]
    assert not any(file.exists() for file in drawn)
    docs.update([doc])
    assert "![router-nk-speedup](plots/h200/router-nk-speedup.svg)" in doc.read_text()
    assert [plots.stamped(file) for file in drawn] == [plots.stamp(router_rows())] * 2
    assert docs.update([doc], write=False) == []
    row = router_rows()[0]
    slower = replace(row.timing["cold"], median_us=2 * row.timing["cold"].median_us)
    Journal(tmp_path / "results" / "h200" / "router-nk.jsonl").append(replace(row, timing={"cold": slower}))
    assert docs.update([doc], write=False) == drawn


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("plots:router-nk", "none asked for; there are best"),
        ("plots:router-nk speed", "speed asked for; there are best"),
        ("plots:router-nk fused", "router-nk-fused.svg: its rows have nothing to draw"),
        ("ladder:router-nk 3x*", r"ladder:router-nk: none is 3x\*"),
        ("borrowed:router-nk", "borrowed:router-nk: no kernel ran a borrowed config beside its own"),
        ("matrix:square", "matrix:square: no device has square.jsonl"),
        ("regimes:h200 router-nk:3x*", r"regimes:h200: no matmul of router-nk is 3x\*"),
        ("regimes:h200 three_rows=router-nk:3x*", r"regimes:h200: no matmul of router-nk is 3x\*"),
        ("beside:h200 router-nk:3x*", r"beside:h200: no matmul of router-nk is 3x\*"),
    ],
)
def test_a_marker_that_cannot_be_filled_is_an_error(results, tmp_path, marker, told):
    with pytest.raises(ValueError, match=rf"page\.md: .*{told}"):
        docs.update([page(tmp_path, marker)])


@pytest.mark.skipif(not queries.recorded(), reason="no rows are checked in yet")
def test_the_documents_hold_what_was_recorded():
    stale = docs.update(write=False)
    assert not stale, f"run python bench/report.py --update-docs: {stale}"


FIGURE = re.compile(
    r"\d[\d.,]*(?: (?:us|ns|ms|uJ|TFLOPS|GB/s|%|times (?:as|slower|faster|longer))|x(?! (?:the|as) ))(?![\w/])"
)
# Figures with a unit that come from no row, by page: rules of this project, what a source claims, what was counted.
TYPED = {
    # The W4A16 paper's own tables, and what its text says of them; the test below works the former out.
    "as_published_rows.md": [
        "by 21 % (M = 1) and 125 % (16) on the\nA100 of 40 GB in the mean, by 43 % and 65 % on that",
        "by 114 % and 165 % on the H100",
        "So the 114 % that its text gives",
        "no row has the 295 % of its peak: the largest are 198 % and 600 %",
    ],
    "claims.md": ["5 % to either side"],
    "interpreter.md": ["93 % run right as they stand; the other 7 %"],
    "linear.md": ["by 3 %, and by 4 % more for each unit", "by more than 3 %"],
    "or_reduce.md": ["3.5x triton tl.reduce optimization"],
    "referee.md": ["and 0.5 us more", "and 1.2 us more", "in 4 % of the runs; and is worth 1 %"],
    "stream_k.md": ["stream-K can gain 3 %"],
    "w4a16.md": ["Published for Marlin: 20.3 us"],
    "tilus_compiler.md": ["takes 4 % more of this machine", "more\nthan 8 %"],
}


def test_no_figure_is_typed_by_hand():
    """But for those above, and in history.md, whose rows are gone."""
    pages = [queries.ROOT / "README.md", *sorted((queries.ROOT / "notes").glob("*.md"))]
    for page in pages:
        text = re.sub(r"<!-- (\w+)[^>]*-->.*?<!-- /\1 -->|```.*?```", "", page.read_text(), flags=re.DOTALL)
        for typed in TYPED.get(page.name, []):
            assert typed in text, f"{page.name} has no longer {typed!r}"
            text = text.replace(typed, "")
        found = [] if page.name == "history.md" else FIGURE.findall(text)
        assert not found, f"{page.name}: {found}, outside of markers that bench/report.py --update-docs fills"


def test_a_page_is_no_longer_than_its_readers_patience():
    """README at most 80 lines, a note at most 150 without those that are filled in between markers."""
    assert len((queries.ROOT / "README.md").read_text().splitlines()) <= 80
    for note in sorted((queries.ROOT / "notes").glob("*.md")):
        by_hand = re.sub(r"<!-- (\w+)[^>]*-->.*?<!-- /\1 -->", "", note.read_text(), flags=re.DOTALL)
        assert len(by_hand.splitlines()) <= 150, note.name


def test_what_the_papers_own_tables_say_on_average():
    gains: dict[tuple[str, str], list[float]] = {}
    table = figures.PUBLISHED["w4a16"]
    for problem, cells in table.figures.items():
        for gpu, cell in zip(table.columns, cells, strict=True):
            split, alone = map(float, cell.split(", "))
            gains.setdefault((gpu, problem.partition("x")[0]), []).append(100 * (split / alone - 1))
    means = {key: round(sum(values) / len(values)) for key, values in gains.items()}
    assert means == {
        ("A100 40 GB", "w4a16-1"): 21,
        ("A100 40 GB", "w4a16-16"): 125,
        ("A100 80 GB", "w4a16-1"): 43,
        ("A100 80 GB", "w4a16-16"): 65,
        ("H100", "w4a16-1"): 114,
        ("H100", "w4a16-16"): 165,
    }
    assert [round(max(gains["H100", f"w4a16-{m}"])) for m in (1, 16)] == [198, 600]


@pytest.mark.parametrize(
    "typed, whole",
    [("takes 7.2 us", 1), ("1.08x Triton", 1), ("3 %, or 400 GB/s", 2), ("9 to 36 times slower", 1), ("64x64", 0)],
)
def test_what_counts_as_a_figure(typed, whole):
    assert len(FIGURE.findall(typed)) == whole
    assert not FIGURE.findall("64 x 64 tiles, 4x the bytes, 2x as long, 1024x256x7168, 30 s")


def test_the_page_of_languages_counts_its_table():
    text = (queries.ROOT / "notes" / "languages.md").read_text().partition("## ")[0]
    lines = re.findall(r"^\| .+ \| (native|added|no)\b.* \| (native|added|no)\b.* \|$", text, re.MULTILINE)
    triton, tilus = (Counter(column) for column in zip(*lines, strict=True))
    told = f"Of these {len(lines)} things Triton has {triton['native']}, this project adds {triton['added']}, and "
    told += f"{triton['no']} are missing. tilus 0.2.0 has {tilus['native']}, this project adds {tilus['added']}, and "
    assert f"{told}{tilus['no']} is missing." in text
    assert len(lines) == len(re.findall(r"^\| ", text, re.MULTILINE)) - 1


def test_the_page_of_versions_has_the_triton_of_each_file():
    """Of each line that names files: the Triton of their rows, and each revision that it names."""
    text = (queries.ROOT / "notes" / "versions.md").read_text()
    lines = re.findall(r"^\| (H100: )?((?:`[\w*-]+`(?:, )?)+)[^|]*\| ([^|]*) \| ([\d.]+) \|", text, re.MULTILINE)
    assert len(lines) > 5
    for h100, names, revisions, triton in lines:
        for name in re.findall(r"`(.+?)`", names):
            files = [path for path in queries.recorded(name) if path.parent.name.startswith("h100") == bool(h100)]
            rows = [row for path in files for row in queries.recorded(name)[path]]
            assert {row.environment.triton for row in rows} == {triton}, name
            known = {(row.environment.git or "")[:7] for row in rows}
            assert set(re.findall(r"`(.+?)`", revisions)) <= known, name


def test_the_page_of_versions_counts_the_verdicts_of_each_revision():
    text = (queries.ROOT / "notes" / "versions.md").read_text()
    verdicts = read_verdicts(queries.RESULTS / "h200" / "referee" / "adversaries.jsonl")
    revisions = Counter((verdict.environment.git or "")[:7] for verdict in verdicts)
    told = re.findall(r"(\d+) of (\d+) adversaries \| `(\w+)` \|", text)
    assert {revision: int(count) for count, _, revision in told} == revisions
    assert {int(total) for _, total, _ in told} == {len(verdicts)}


def test_code_is_quoted_from_its_file():
    shown = docs.quoted("bench/show/docs.py", "_definition", "source =")
    assert shown.startswith(
        "`bench/show/docs.py`, `_definition`:\n\n```python\nsource = (queries.ROOT / path).read_text()\n"
    )
    assert '"""' not in docs.quoted("bench/show/docs.py", "quoted")
    method = docs.quoted("bench/show/docs.py", "_Page.fresh")
    assert method.startswith("`bench/show/docs.py`, `_Page.fresh`:\n\n```python\nbegin, ")


@pytest.mark.parametrize(
    "marker, words",
    [
        (("nowhere.py", "f"), "no such file"),
        (("bench/show/docs.py", "nothing"), "no nothing"),
        (("bench/show/docs.py", "quoted", "not in it"), "no line of quoted contains 'not in it'"),
    ],
)
def test_code_that_is_not_there_is_refused(marker, words):
    with pytest.raises(ValueError, match=words):
        docs.quoted(*marker)


def test_lines_of_code_are_those_that_say_something(tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "ROOT", tmp_path)
    text = '''
        @cache
        def first(a,
                  b):
            """Two

            lines."""
            # a comment

            return [
                a,  # and another
            ]


        class Second:
            """One."""

            x = """of

            three"""

            def method(self):
                """None."""
                return 1
        '''
    (tmp_path / "made.py").write_text(textwrap.dedent(text))
    assert docs.code_lines("made.py", "first") == 6
    assert docs.code_lines("made.py", "Second.method") == 2
    assert docs.code_lines("made.py", "first", "Second") == 6 + 6
    page = tmp_path / "page.md"
    page.write_text("<!-- lines:made.py first Second.method -->?<!-- /lines -->\n")
    assert docs.update([page]) == [page] and "-->8<!--" in page.read_text()
    for path, name in (("other.py", "first"), ("made.py", "third")):
        with pytest.raises(ValueError, match=f"code:{path}: no "):
            docs.code_lines(path, name)


def test_what_a_program_printed_is_quoted_as_it_stands(results, tmp_path):
    (tmp_path / "results" / "h200" / "blocks.txt").write_text("132 blocks: 3.48 us\nno error\n")
    doc = page(tmp_path, "printed:blocks")
    docs.update([doc])
    assert "On h200:\n\n```\n132 blocks: 3.48 us\nno error\n```\n" in doc.read_text()
    with pytest.raises(ValueError, match="printed:threads: no device has threads"):
        docs.update([page(tmp_path, "printed:threads")])


def test_the_fastest_by_regime_is_the_answers_and_its_call():
    words = ["router-nk:16x256x7168*", "w4a16-square:w4a16-16x8192x8192*"]
    table = docs.regimes("h200", words)
    for line, word in zip(table.lines, words, strict=True):
        file, pattern = word.split(":")
        (path,) = queries.recorded(file)
        problem = next(row.problem for row in queries.recorded(file)[path] if fnmatchcase(row.problem.name, pattern))
        found = answers.answer(problem.to_problem(), files=queries.recorded(file))
        cold, graph = (found.fastest.timing.get(clock) for clock in ("cold", "graph"))
        assert line[0] == problem.name
        assert line[2] == f"{cold.median_us:.1f}" + (f" ({graph.median_us:.1f})" if graph else "")
        assert line[3] == f"{cold.speedup:.2f}" + (f" ({graph.speedup:.2f})" if graph else "")
        assert line[1].removesuffix(" †") == found.fastest.contender + "°" * found.fastest.not_searched
        assert line[1].endswith("†") is (len(found.joint) > 1)
    assert table.lines[1][-1].startswith("`matmul(x, laid_out, ")
    named = docs.regimes("h200", [f"few_rows={words[0]}"])
    assert named.lines == [["few rows, 16x256x7168", *table.lines[0][1:]]] and named.foot.endswith(". bf16: few rows.")
    beside = docs.beside_fastest("h200", words).lines
    assert [line[:3] for line in beside] == [[*line[:2], line[2].split()[0]] for line in table.lines]


TABLE = figures.Published(listed.STUDY, "ms", ("eager", "ours", "his"), {"1x*": ("0.0123", "0.009", "0.5")})


@pytest.mark.parametrize(
    ("table", "columns", "line"),
    [
        (
            TABLE,
            f"eager={BASELINE} ours={VECTOR} best_tilus=tilus/*",
            "| 1x* | 12.3 / 10.0 | 9 / 8.0 | 500 | 12.5 |",
        ),
        (TABLE, "eager=torch/none best_tilus=tilus/*", "| 1x* | 12.3 / - | 9 | 500 | 12.5 |"),
        (
            replace_table(TABLE, unit="TFLOPS", figures={"1x*": ("0.4, 0.30", "", "")}, cell="mm, ours", form=".2f"),
            f"eager={BASELINE},{VECTOR}",
            "| 1x* | 0.4, 0.30 / 0.37, 0.46 |  |  |",
        ),
        (
            replace_table(TABLE, unit=f"geometric mean over {BASELINE}", figures={"*": ("1.0", "0.9", "0.8")}),
            f"ours={VECTOR}",
            "| all | 1.0 | 0.9 / 0.855 | 0.8 |",
        ),
        (
            replace_table(TABLE, unit=f"{figures.SPREAD} over {BASELINE}", figures={"*": ("", "0 of 28", "")}),
            f"ours={VECTOR}",
            "| all |  | 0 of 28 / 1 of 3 (+1 tie); 0.500, 1.000, 1.250 |  |",
        ),
        (
            replace_table(TABLE, figures={"1x*": ("0.0123", "1.30x", "")}),
            f"ours={BASELINE}:{BASELINE}",
            "12.3 | 1.30x / 1.00x |",
        ),
    ],
)
def test_a_documents_own_figures_stand_beside_rows(results, tmp_path, monkeypatch, table, columns, line):
    """At T = 1, 16 and 1024 ours takes 8, 10 and 20 us, torch.mm 10."""
    monkeypatch.setitem(figures.PUBLISHED, "made", table)
    doc = page(tmp_path, f"published:router-n* made {columns}")
    docs.update([doc])
    text = doc.read_text()
    assert line in text
    assert f"There: {listed.STUDY.setup}. Here: " in text and docs.update([doc]) == []


def test_rows_stand_alone_where_the_document_has_no_figures(results, tmp_path, monkeypatch):
    monkeypatch.setitem(figures.PUBLISHED, "made", replace_table(TABLE, unit="TFLOPS", columns=(), figures={"1x*": ()}))
    doc = page(tmp_path, f"published:router-nk made eager={BASELINE}")
    docs.update([doc])
    assert "TFLOPS, here on an" in doc.read_text() and "| 1x* | 0.4 |" in doc.read_text()
    assert "There: " not in doc.read_text()


def test_a_config_that_was_not_searched_is_marked_beside_a_documents_figure(results, tmp_path, monkeypatch):
    monkeypatch.setitem(figures.PUBLISHED, "made", TABLE)
    file = Journal(tmp_path / "results" / "h200" / "router-nk.jsonl")
    file.append(replace(row(VECTOR, 1, 7.0), config_source="heuristic", time="2026-11-23T08:00:00+00:00"))
    doc = page(tmp_path, f"published:router-nk made ours={VECTOR}")
    docs.update([doc])
    assert "| 9 / 7.0° |" in doc.read_text() and "° config not searched" in doc.read_text()


def counted_launch(contender: str, place: int, us: float, registers: float) -> Launch:
    metrics = {"time_us": us, "registers_per_thread": registers}
    return one_launch(contender, W4A16Matmul(16, 4096, 4096), metrics, workload="w4a16-square", launch=place)


def test_what_a_document_counted_stands_beside_the_longest_launch_here():
    split, whole = "published_triton/w4a16.splitk", "published_triton/w4a16.data_parallel"
    launches = [
        counted_launch(split, 0, 1.76, 16),
        counted_launch(split, 1, 16.06, 116),
        counted_launch(whole, 0, 20.8, 181),
    ]
    table = counted.counted_beside("w4a16", {"SplitK": split, "data parallel": whole}, launches)
    lines = {line[0]: line[1:] for line in table.lines}
    assert table.header[1:] == ["SplitK, there", "SplitK, H200", "data parallel, there", "data parallel, H200"]
    assert lines["time, us"] == ["27.90", "16.06", "52.93", "20.80"]
    assert lines["registers per thread"] == ["92", "116", "150", "181"]
    assert lines["grid, blocks"] == ["512", "-", "128", "-"]  # not counted
    assert lines["zeroing C, us"] == ["-", "1.76", "-", "-"]
    with pytest.raises(ValueError, match="nothing of published_triton"):
        counted.counted_beside("w4a16", {"SplitK": split, "data parallel": whole}, launches[:2])
    with pytest.raises(ValueError, match="no table is named nowhere"):
        counted.counted_beside("nowhere", {}, launches)


def test_every_document_is_told_by_its_problems_and_columns():
    known = {problem.name for suite in workloads.SUITES for _, problem in workloads.problems(suite.name)}
    for table in counted.COUNTED.values():
        assert all(len(count.there) == len(table.columns) for count in table.counts)
    for table in figures.PUBLISHED.values():
        assert all(len(cells) == len(table.columns) for cells in table.figures.values())
        assert all(any(fnmatchcase(name, problem) for name in known) for problem in table.figures)


@pytest.mark.parametrize(
    ("words", "told"),
    [("nowhere eager=torch/mm", "no table is named nowhere"), ("or_reduce eager=torch/mm", "none of its problems")],
)
def test_a_table_that_is_not_there_is_an_error(results, tmp_path, words, told):
    with pytest.raises(ValueError, match=rf"page\.md: published: .*{told}"):
        docs.update([page(tmp_path, f"published:router-nk {words}")])


def two_runs(tmp_path, *problems: tuple[int, float, float]) -> None:
    """Of each T: torch.mm in 10 us, and what Triton's and tilus' kernels took; in another run 4 % less, Triton's."""
    (tmp_path / "results" / "h200" / "router-nk.jsonl").unlink()
    for name, speed in (("router-nk.jsonl", 1.0), ("again/router-nk.jsonl", 0.96)):
        file = Journal(tmp_path / "results" / "h200" / name)
        for tokens, triton, tilus in problems:
            file.append(row(BASELINE, tokens, 10.0))
            file.append(row(VECTOR, tokens, triton * speed))
            file.append(row(FP32, tokens, tilus))


def test_the_map_names_a_kernel_where_its_language_leads_by_more_than_two_runs_differ(results, tmp_path):
    two_runs(tmp_path, (1, 8.0, 8.32), (8, 8.0, 9.0), (16, 8.0, 8.1), (64, 11.0, 12.0))
    rules = ["router-nk:1x*", "router-nk:8x*,16x*", "router-nk:64x*"]
    table = docs.which_kernel("h200", rules)
    assert [line[0] for line in table.lines] == ["Mx256x7168-bf16-nk"] * 3
    both = f"{VECTOR} or {FP32}", f"{VECTOR}; either on 1 of 2"
    assert [line[1:] for line in table.lines] == [
        ["M = 1", both[0], "decompose_k.vector, 1.25", "semaphore.fp32, 1.20", "0.96"],
        ["M = 8, 16", both[1], "decompose_k.vector, 1.25", "semaphore.fp32, 1.11 to 1.23", "0.89 to 0.99"],
        ["M = 64", "torch.mm", "decompose_k.vector, 0.91", "semaphore.fp32, 0.83", "0.92"],
    ]
    assert "two runs of one config differ by up to 4.2 %" in table.foot and winners.FORMER not in table.foot


def test_the_map_marks_what_was_timed_by_the_former_clock(results, tmp_path):
    folder = tmp_path / "results" / "h200"
    folder.mkdir(parents=True, exist_ok=True)
    for name, tokens, change in (("router-nk", 1, by_former_clock), ("router-kn", 16, lambda row: row)):
        rows = [change(row(name, tokens, us)) for name, us in ((BASELINE, 10.0), (VECTOR, 8.0), (FP32, 9.0))]
        (folder / f"{name}.jsonl").write_text("".join(map(to_line, rows)))
    table = docs.which_kernel("h200", ["router-nk:1x*", "router-kn:16x*"])
    assert [line[0] for line in table.lines] == ["1x256x7168-bf16-nk ‡", "16x256x7168-bf16-nk"]
    assert table.foot.endswith("‡: in part or whole by the former clock, whose cold times are longer (method.md).")


def test_the_map_says_how_far_two_runs_differ_at_its_problems(results, tmp_path, monkeypatch):
    two_runs(tmp_path, (1, 8.0, 9.0), (64, 8.0, 9.0))
    monkeypatch.setattr(winners, "between_runs", lambda rows: {"cold": 0.02 if rows[0].problem.m == 1 else 0.08})
    table = docs.which_kernel("h200", ["router-nk:1x*", "router-nk:64x*"])
    assert "two runs of one config differ by at most 2.0 to 8.0 %, by problem and how they were timed." in table.foot


def test_the_map_holds_a_kernel_against_the_other_languages_fastest_at_each_problem(results, tmp_path):
    """Of tilus' two kernels FP32 is the faster over both problems, and at T = 8 the other one is."""
    two_runs(tmp_path, (1, 8.0, 9.0), (8, 8.0, 9.0))
    file = Journal(tmp_path / "results" / "h200" / "router-nk.jsonl")
    file.append(row("tilus/cluster", 1, 12.0))
    file.append(row("tilus/cluster", 8, 8.2))
    (line,) = docs.which_kernel("h200", ["router-nk:*"]).lines
    assert line[2:] == [
        f"{VECTOR}; either on 1 of 2",
        "decompose_k.vector, 1.25",
        "semaphore.fp32, 1.11",
        "0.89 to 0.98",
    ]


def test_a_problem_at_which_the_other_language_leads_is_of_another_rule(results, tmp_path):
    two_runs(tmp_path, (1, 6.0, 9.0), (8, 9.0, 8.0))
    with pytest.raises(ValueError, match=f"tilus leads {VECTOR} at 8x256x7168-bf16-nk"):
        docs.which_kernel("h200", ["router-nk:*"])


def test_a_problem_at_which_the_kernel_to_take_is_not_as_fast_as_the_fastest_is_of_another_rule(results, tmp_path):
    """At T = 8 tilus is level by another kernel than the one that the rule would name."""
    two_runs(tmp_path, (1, 8.0, 8.1), (8, 8.0, 8.7))
    file = Journal(tmp_path / "results" / "h200" / "router-nk.jsonl")
    file.append(row("tilus/cluster", 1, 9.0))
    file.append(row("tilus/cluster", 8, 8.2))
    with pytest.raises(ValueError, match=rf"not among the joint fastest: {FP32} at 8x256x7168-bf16-nk: another rule's"):
        docs.which_kernel("h200", ["router-nk:*"])
    assert [line[2] for line in docs.which_kernel("h200", ["router-nk:1x*", "router-nk:8x*"]).lines] == [
        f"{VECTOR} or {FP32}",
        f"{VECTOR} or tilus/cluster",
    ]


def test_torch_is_not_named_where_a_kernel_is_faster(results, tmp_path):
    """In the mean torch.mm is faster; at T = 8 the kernel is."""
    two_runs(tmp_path, (1, 16.0, 20.0), (8, 8.0, 9.0))
    with pytest.raises(ValueError, match=r"not among the joint fastest: torch/mm at 8x256x7168-bf16-nk"):
        docs.which_kernel("h200", ["router-nk:*"])


def test_each_name_that_the_map_gives_is_among_the_joint_fastest_of_the_answer():
    (rules,) = re.findall(r"<!-- map:h200 (.*?) -->", (queries.ROOT / "notes" / "README.md").read_text())
    files, named = queries.recorded("h200:*"), 0
    for rule, line in zip(rules.split(), docs.which_kernel("h200", rules.split()).lines, strict=True):
        take = line[2].partition(";")[0]
        either = take.removeprefix("either: ")
        names = [f"{language}/{either}" for language in ("triton", "tilus")] if either != take else take.split(" or ")
        for of_rule in docs._answers("map", "h200", rule):
            joint = {row.contender for row in answers.answer(of_rule.fastest.problem, files=files).joint}
            wanted = [joint & BASELINES if name == "torch.mm" else name in joint for name in names]
            assert all(wanted), (of_rule.fastest.problem.name, take, joint)
            named += 1
    assert named > 100


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([8, 128], "8, 128"),
        ([16, 32, 64], "16 to 64"),
        ([8, 16, 64], "8, 16, 64"),
        ([8, 16, 64, 128, 256], "8 to 256 without 32"),
    ],
)
def test_sizes_of_a_rule_are_a_range_where_most_of_those_known_are_among_them(sizes, told):
    assert winners._range(sizes, [1, 8, 16, 32, 64, 128, 256]) == told


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (["router-nk:1x*"], "64x256x7168-bf16-nk is in 0 rules"),
        (["router-nk:*", "router-nk:1x*"], "1x256x7168-bf16-nk is in 2 rules"),
        (["router-nk:3x*"], r"map:h200: no matmul of router-nk is 3x\*"),
    ],
)
def test_every_problem_of_the_map_is_in_one_rule(results, tmp_path, rules, told):
    two_runs(tmp_path, (1, 8.0, 8.1), (64, 11.0, 12.0))
    with pytest.raises(ValueError, match=told):
        docs.which_kernel("h200", rules)


def test_searches_are_told_of_the_shipped_table(monkeypatch, tmp_path):
    search = {
        "tried": 4,
        "space": 9,
        "out_of_time": False,
        "us": 7.0,
        "seconds": 6.0,
        "build_seconds": 10.0,
        "git": "a",
    }
    entries = [{"search": search}, {"search": {**search, "seconds": 8.0}}, {"search": {**search, "build_seconds": 0.0}}]
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path)
    (tmp_path / "h200.json").write_text(json.dumps({VECTOR: [*entries, {}], FP32: [{}]}))
    assert docs.searches("h200").lines == [[VECTOR, "2", "8 of 18", "2.5", "7", "0"]]


def test_half_the_width_of_intervals_is_a_share_of_the_speed_up_and_leaves_the_baseline_out(results, tmp_path):
    beside = Journal(tmp_path / "results" / "h200" / "router-wide.jsonl")
    for made in (row(BASELINE, 1, 10.0), row(VECTOR, 1, 5.0), row(FP32, 1, 5.0)):
        low, high = {VECTOR: (1.8, 2.2), FP32: (1.98, 2.04)}.get(made.contender, (0.5, 1.5))
        cold = replace(made.timing["cold"], speedup_low=low, speedup_high=high)
        beside.append(replace(made, timing={**made.timing, "cold": cold}))
    assert docs.half_interval("router-wide", "*", VECTOR) == ["10.00 % in the median, of 1"]
    assert docs.half_interval("router-wide", "1x*", f"{VECTOR},tilus/*") == ["5.75 % in the median, of 2"]
    with pytest.raises(ValueError, match="nothing of torch/mm was timed on"):
        docs.half_interval("router-wide", "*", BASELINE)


def test_how_far_two_files_lie_apart_counts_equal_configs_alone(results, tmp_path):
    beside = Journal(tmp_path / "results" / "h200" / "router-again.jsonl")
    for made in router_rows():
        speed = {VECTOR: 0.9 if made.problem.m == 1 else 0.95, FP32: 0.5}.get(made.contender, 1.0)
        timing = {name: replace(time, speedup=time.speedup * speed) for name, time in made.timing.items()}
        beside.append(replace(made, timing=timing, config={"split_k": 99} if made.contender == FP32 else made.config))
    (told,) = docs.reran("router-nk", "*", "router-again")
    assert told == "5.0 % in the median, 10.0 % at most, of 3"
    with pytest.raises(ValueError, match="no contender was timed at one config"):
        docs.reran("router-nk", "nothing*", "router-again")
