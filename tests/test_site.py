"""The page of the recorded rows: that it is what the rows give, its structure, and in Chromium what its controls do."""

import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import pytest

from triton_vs_tilus.bench import answer as command
from triton_vs_tilus.bench import site
from triton_vs_tilus.bench.cli import ExitCode, run_command
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.show import matrix, page, pairs

# Beside a browser: the tests of one worker share it.
pytestmark = pytest.mark.xdist_group("site")


class Elements(HTMLParser):
    """(tag, attributes) of all elements."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


@pytest.fixture(scope="module")
def text():
    return page.PATH.read_text()


@pytest.fixture(scope="module")
def elements(text):
    return Elements(text).found


def test_the_page_is_what_the_rows_give(tmp_path, monkeypatch, text):
    made = page.html()
    assert made == text, "not up to date: python bench/site.py"
    monkeypatch.setattr(page, "html", lambda: made)
    monkeypatch.setattr(page, "PATH", site.ROOT / "notes" / "index.html")
    assert run_command(site.main, ["--check"]) == ExitCode.OK
    monkeypatch.setattr(page, "html", lambda: made + "\n")
    assert run_command(site.main, ["--check"]) == ExitCode.FAILED and page.PATH.read_text() == text


def test_it_is_small_and_asks_for_nothing(text, elements):
    assert len(text.encode()) < 6_000_000
    for tag, attributes in elements:
        assert tag not in ("img", "iframe", "link", "object") or attributes.get("href") == "data:,"
        assert not (tag == "script" and "src" in attributes)
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", text)


def test_its_links_and_labels_resolve(elements):
    ids = Counter(attributes["id"] for _, attributes in elements if "id" in attributes)
    assert max(ids.values()) == 1
    for _, attributes in elements:
        href = attributes.get("href") or ""
        if href.startswith("#"):
            assert href[1:] in ids
        elif href and not href.startswith("data:"):
            assert (page.PATH.parent / href).exists(), href
        for name in ("for", "aria-controls", "aria-labelledby"):
            assert set((attributes.get(name) or "").split()) <= ids.keys()


@pytest.fixture(scope="module")
def of_all():
    return {pair.name: pair for pair in pairs.pairs()}


def steps_of(pair, language, file=""):
    """{line: step} of the functions of a file."""
    parts = [part for part in pair.parts[language] if file in part.file]
    return {line.strip(): step for part in parts for line, step in part.lines}


def test_lines_of_a_pair_know_their_steps(of_all):
    for language in ("triton", "tilus"):
        steps = steps_of(of_all["atomic"], language, "atomic.py")
        (product,) = {step for line, step in steps.items() if "band_product(" in line}
        (added,) = {step for line, step in steps.items() if "atomic_add(" in line}
        (last,) = {step for line, step in steps.items() if "is_last(" in line}
        assert (product, added, last) == ("multiply", "meet", "meet"), language
        assert any(step == "" for step in steps.values())


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_a_pair_has_all_steps_with_the_loop_that_it_calls(of_all, language):
    for pair in of_all.values():
        steps = set(steps_of(pair, language).values())
        meets = {"data_parallel"} != set(pair.protocols)
        assert steps >= {"load", "multiply", "finish"} | ({"meet"} if meets else set()), pair.name
    for name in ("data_parallel", "atomic", "stream_k"):
        loop = {"triton": "acc = step_product(a_tile, b_tile, acc, SWAP)", "tilus": "self.multiply(a, "}[language]
        assert any(line.startswith(loop) for line in steps_of(of_all[name], language)), name


@pytest.mark.parametrize("language", ["triton", "tilus"])
@pytest.mark.parametrize("name", ["semaphore", "w4a16"])
def test_the_running_sum_and_the_barrier_before_the_hand_over_are_of_the_meeting(of_all, name, language):
    steps = steps_of(of_all[name], language, f"{name}.py")
    words = ("load(running", "load_global(running", "store(running", "store_global(running", "so_far, ", "hands over")
    found = [step for line, step in steps.items() if any(word in line for word in words) and "=" != line[-1]]
    assert len(found) >= 3 and set(found) == {"meet"}


def test_an_or_is_the_product_of_or_reduce_in_both_languages(of_all):
    for language in ("triton", "tilus"):
        steps = steps_of(of_all["or_reduce"], language)
        assert set(steps.values()) == {"", "load", "multiply", "finish"}, language
        ors = {step for line, step in steps.items() if "|=" in line or "reduce(" in line or "_or(" in line}
        assert ors == {"multiply"}, language


def test_problems_that_differ_in_one_size_are_a_sweep():
    (rows,) = queries.recorded("skinny-matmul-bf16").values()
    found = queries.sweeps(rows)
    assert {sweep.axis for sweep in found} == {"k", "m = n"}
    for sweep in found:
        held = {(problem.k if sweep.axis == "m = n" else problem.m, problem.dtype) for problem in sweep.problems}
        assert len(held) == 1 and len(sweep.problems) > 1


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_api.sync_playwright() as playwright:
        try:
            launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def opened(browser):
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.told = []
    shown.on("console", lambda message: shown.told.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: shown.told.append(str(error)))
    shown.on("request", lambda request: shown.told.append(request.url) if "://" in request.url[:8] else None)
    shown.goto(page.PATH.as_uri())
    shown.told.remove(page.PATH.as_uri())
    yield shown
    assert shown.told == []


@pytest.fixture
def shown(opened):
    """The page as it opens."""
    opened.told.clear()
    opened.reload()
    if page.PATH.as_uri() in opened.told:
        opened.told.remove(page.PATH.as_uri())
    yield opened
    assert opened.told == []


@pytest.mark.parametrize(
    ("shape", "flags"),
    [
        ("32x256x7168", {}),
        ("1x256x7168", {"clock": "warm"}),
        ("24x160x5120", {"language": "tilus", "deterministic": True}),
        ("128x32x8192", {"layout": "kn", "epilogue": "relu"}),
        ("3000x17x100", {"layout": "kn", "dtype": "fp16"}),
        ("16x8192x8192", {"op": "w4a16"}),
        ("4x4096x11008", {"op": "w4a16", "language": "triton"}),
    ],
)
def test_the_box_says_what_the_command_says(shown, capsys, shape, flags):
    words = [
        word for name, value in flags.items() for word in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]
    assert run_command(command.main, [shape, *words]) == ExitCode.OK
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    for name, value in zip("mnk", shape.split("x"), strict=True):
        shown.fill(f"#{name}", value)
    for name, value in flags.items():
        shown.check(f"#{name}") if value is True else shown.select_option(f"#{name}", value)
    box = [shown.locator("#answered > p").all_inner_texts(), shown.locator("#answered td").all_inner_texts()]
    box += [shown.locator(f"#answered {tag}").all_inner_texts() for tag in ("th", "code")]
    parts = [re.sub(r"\s+", " ", part).strip() for of in box for part in of]
    words_of = lambda texts: Counter(" ".join(texts).split())  # noqa: E731
    assert words_of(parts) == words_of([said])
    for part in parts:
        assert part in said


def test_what_was_not_recorded_is_said(shown):
    shown.select_option("#dtype", "fp32")
    assert "No row is of this kind, timed cold: there are dtype bf16" in shown.inner_text("#answered")
    shown.fill("#m", "0")
    assert shown.inner_text("#answered") == "M, N and K are positive integers."


def test_the_heat_map_is_the_matrix_and_filters_what_is_below(shown):
    (rows,) = queries.recorded(page.FIRST).values()
    best = matrix.bests(rows, "cold").set_index(["protocol", "language", "problem"])
    name = "32x256x7168-bf16-nk"
    both = [best.loc[("cluster", "tilus", name)], best.loc[("atomic", "triton", name)]]
    shown.check("[name=view][value=tilus]")
    cell = shown.locator(f'#map button[aria-label^="{name}, cluster"]')
    assert cell.inner_text().rstrip("°") == f"{both[0].speedup:.2f}"
    shown.check("[name=view][value=triton]")
    cell = shown.locator(f'#map button[aria-label^="{name}, atomic"]')
    assert cell.inner_text().rstrip("°") == f"{both[1].speedup:.2f}"
    before = shown.inner_text("#count")
    cell.focus()
    shown.keyboard.press("Enter")
    assert name in shown.inner_text("#filter") and shown.inner_text("#count") != before
    assert shown.input_value("#pair") == "atomic"
    contenders = set(shown.locator("#all tbody td:nth-child(2)").all_inner_texts())
    assert {"torch/mm", "triton/atomic", "tilus/atomic"} <= contenders and "tilus/cluster" not in contenders
    assert set(shown.locator("#all tbody td:nth-child(1)").all_inner_texts()) == {name}
    shown.click("#clear")
    assert shown.inner_text("#count") == before
    shown.select_option("#file", "h200/crossover")
    assert "h200/crossover" in shown.inner_text("#filter")
    assert shown.locator(".matrix:visible").count() == 1


def test_lines_are_toggled_and_a_marker_tells_its_row(shown):
    assert shown.locator("#chart polyline").count() == 4
    shown.click("#latency summary")
    shown.check('#lines input[value="triton/atomic"]')
    assert shown.locator("#chart polyline").count() == 5
    shown.uncheck('#lines input[value="torch/mm"]')
    assert shown.locator("#chart polyline").count() == 4
    mark = shown.locator('#chart .mark[aria-label^="best tilus"]').first
    mark.focus()
    shown.keyboard.press("ArrowRight")
    (rows,) = queries.recorded(page.FIRST).values()
    best = matrix.bests(rows, "cold")
    best = best[(best.language == "tilus") & (best.m == 2)].sort_values("median_us").iloc[0]
    row = next(row for row in rows if (row.contender, row.problem.m) == (best.contender, 2))
    told = shown.inner_text("#point")
    assert row.command in told and f"{best.median_us:.2f} us" in told and best.contender in told
    hollow = shown.locator('#chart .mark[aria-label*="not searched"] [fill="var(--bg)"]').count()
    assert hollow == shown.locator('#chart .mark[aria-label*="not searched"]').count()
    cold = shown.inner_text("#chart .small") + shown.locator("#chart polyline").first.get_attribute("points")
    shown.select_option("#heat-clock", "warm")
    assert shown.inner_text("#chart .small") + shown.locator("#chart polyline").first.get_attribute("points") != cold


def test_rows_are_sorted_searched_and_downloaded(shown, tmp_path):
    shown.click("#all th:nth-child(4) button")
    times = [float(text) for text in shown.locator("#all tbody td:nth-child(4)").all_inner_texts() if text]
    assert times == sorted(times) and shown.get_attribute("#all th:nth-child(4)", "aria-sort") == "ascending"
    shown.fill("#search", "cluster")
    assert "cluster" in shown.inner_text("#all tbody tr")
    shown.fill("#search", "")
    shown.check("#every")
    count = sum(len(row.timing) or 1 for rows in queries.recorded().values() for row in rows)
    assert shown.inner_text("#count").startswith(f"{count} rows")
    assert shown.locator("#all tbody tr").count() == 200
    shown.click("#further")
    assert shown.locator("#all tbody tr").count() == 400
    with shown.expect_download() as download:
        shown.click("#download")
    download.value.save_as(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == count + 1


def test_a_step_shows_its_lines_in_both_languages_and_tabs_turn(shown):
    shown.select_option("#pair", "semaphore")
    article = shown.locator(".pair:visible")
    article.locator("button[data-step=meet]").click()
    for column in (0, 1):
        lines = article.locator(".column").nth(column).locator(".shown")
        assert lines.count() and lines.first.get_attribute("data-step") == "meet"
    article.get_by_role("tab", name="Code").focus()
    shown.keyboard.press("ArrowRight")
    assert "registers" in article.locator("[role=tabpanel]:visible").inner_text()


def test_rows_at_matched_configs_are_drawn_or_named(shown):
    recorded = any(row.is_matched for rows in queries.recorded().values() for row in rows)
    assert shown.is_visible("#unmatched") is not recorded
    shown.evaluate("""() => {
        const place = (said) => D.strings.push(said) - 1;
        D.files[0].matched.cold = [[0, place("atomic"), place("atomic"), place("tilus"), 1.1, 0.9]];
        filtered();
    }""")
    assert shown.locator("#scatter .mark").count() >= 1 and not shown.is_visible("#unmatched")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_scrolls_sideways(shown, width):
    shown.set_viewport_size({"width": width, "height": 800})
    shown.reload()
    shown.told.clear()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    shown.set_viewport_size({"width": 1280, "height": 900})
