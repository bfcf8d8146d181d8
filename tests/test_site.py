"""The page of the recorded rows: that it is what the rows give, its structure, and in Chromium what its controls do."""

import itertools
import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import msgspec
import pytest
from made_rows import by_former_clock

from triton_vs_tilus.bench import answer as command
from triton_vs_tilus.bench import site
from triton_vs_tilus.bench.cli import ExitCode, run_command
from triton_vs_tilus.bench.rows import answers, queries
from triton_vs_tilus.bench.show import answer, matrix, mechanisms, page, pairs
from triton_vs_tilus.bench.show.ladder import ladder_table
from triton_vs_tilus.bench.show.tables import Table

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
    if made != text:  # pytest takes minutes to tell how megabytes differ
        at = next((at for at, pair in enumerate(zip(made, text, strict=False)) if len(set(pair)) > 1), 0)
        pytest.fail(f"not up to date, run python bench/site.py: {text[at : at + 80]!r} is now {made[at : at + 80]!r}")
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
    found = [step for line, step in steps.items() if any(word in line for word in words)]
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
    shown = browser.new_page()
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
    """The page as it opens, in a window for a desk."""
    opened.told.clear()
    opened.set_viewport_size({"width": 1280, "height": 900})
    opened.goto("about:blank")  # what an address keeps, a reload would show again
    opened.goto(page.PATH.as_uri())
    if page.PATH.as_uri() in opened.told:
        opened.told.remove(page.PATH.as_uri())
    yield opened
    assert opened.told == []


@pytest.fixture
def form(opened):
    """The page with its form as it opens, and the rest as it was left: opening takes longer than asking."""
    opened.told.clear()
    opened.evaluate("document.getElementById('ask').reset()")
    yield opened
    assert opened.told == []


def ask(shown, shape, flags):
    """Fills in the form. flags: of bench/answer.py."""
    for name, value in zip("mnk", shape.split("x"), strict=True):
        shown.fill(f"#{name}", value)
    for name, value in flags.items():
        shown.check(f"#{name}") if value is True else shown.select_option(f"#{name}", value)


@pytest.mark.parametrize(
    ("shape", "flags"),
    [
        ("32x256x7168", {}),
        ("1x256x7168", {"clock": "warm"}),
        ("24x160x5120", {"language": "tilus", "deterministic": True}),
        ("128x32x8192", {"layout": "kn", "epilogue": "relu"}),
        ("3000x17x100", {"layout": "kn", "dtype": "fp16"}),
        ("16x8192x8192", {"op": "w4a16"}),
        ("32x256x7170", {}),
        ("32x160x5120", {}),
        ("33x257x2048", {"deterministic": True}),
        ("4x4096x11008", {"op": "w4a16", "language": "triton"}),
        ("64x64x16384", {}),
        ("64x64x16384", {"layout": "kn", "epilogue": "relu"}),
        ("64x64x16384", {"layout": "kn", "epilogue": "silu"}),
        ("32x32x8192", {"epilogue": "bias_relu"}),
        ("64x64x16384", {"dtype": "fp32"}),
        ("64x64x16384", {"layout": "kn", "epilogue": "relu", "deterministic": True}),
        ("64x64x16384", {"dtype": "fp16", "epilogue": "bias"}),
        ("64x64x16384", {"clock": "warm", "language": "tilus"}),
        ("4096x4096x4096", {"epilogue": "relu"}),
        ("32x256x7168", {"layout": "kn", "dtype": "fp32"}),
        ("16x8192x8192", {}),
        ("16x256x8192", {"op": "w4a16"}),
        ("32x4096x4096", {"op": "w4a16", "clock": "graph"}),
        ("40x4096x4096", {"op": "w4a16"}),
        ("32x256x7168", {"device": "h100-80gb-hbm3"}),
        ("64x64x16384", {"device": "h100-80gb-hbm3", "clock": "graph"}),
        ("16x8192x8192", {"device": "h100-80gb-hbm3"}),
        ("32x256x7168", {"device": "h100-80gb-hbm3", "clock": "warm"}),
        ("4096x4096x14336", {"layout": "kn", "dtype": "fp16", "clock": "graph"}),
        ("33x256x7168", {"epilogue": "sigmoid"}),
        ("32x160x5120", {"epilogue": "relu"}),
        ("64x64x9000", {"epilogue": "bias"}),
    ],
)
def test_the_box_says_what_the_command_says(form, capsys, shape, flags):
    words = [
        word for name, value in flags.items() for word in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]
    assert run_command(command.main, [shape, *words]) == ExitCode.OK
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    ask(form, shape, flags)
    box = [form.locator(f"#answered {part}").all_inner_texts() for part in ("> p", "caption", "th", "td", "code")]
    parts = [re.sub(r"\s+", " ", part).strip() for of in box for part in of]
    words_of = lambda texts: Counter(" ".join(texts).split())  # noqa: E731
    assert words_of(parts) == words_of([said])
    for part in parts:
        assert part in said


def test_what_was_not_recorded_is_said_as_the_command_says_it(shown, capsys):
    shown.select_option("#dtype", "fp32")
    assert run_command(command.main, ["32x256x7168", "--dtype", "fp32"]) == ExitCode.USAGE
    said = " ".join(capsys.readouterr().err.split())
    none, kinds, beside = shown.locator("#answered > p").all_inner_texts()
    assert none == "Nothing recorded." and kinds.startswith(
        "No row is of this kind and clock; there are: --layout kn ("
    )
    assert kinds.partition("there are: ")[2] in said and beside.startswith("Recorded at this shape with ")
    assert said.endswith(beside)
    ask(shown, "64x64x16384", {"dtype": "bf16", "layout": "kn", "epilogue": "relu", "clock": "warm"})
    words = ["64x64x16384", "--layout", "kn", "--epilogue", "relu", "--clock", "warm"]
    assert run_command(command.main, words) == ExitCode.USAGE
    _, _, *hints = shown.locator("#answered > p").all_inner_texts()
    assert hints[0] == "Recorded at this shape with --clock cold, --clock graph."
    assert " ".join(capsys.readouterr().err.split()).endswith(" ".join(hints))


def test_sizes_that_nothing_can_be_said_of_are_told(shown):
    shown.fill("#m", "0")
    assert shown.inner_text("#answered") == "M, N and K are positive integers."
    assert shown.get_attribute("#m", "aria-invalid") == "true" and not shown.is_visible("#measure")
    shown.fill("#m", "")
    assert shown.inner_text("#answered") == "M is empty."
    for many in ("12345678901", "1e300"):
        shown.fill("#m", many)
        assert shown.inner_text("#answered") == f"M is {many}; accepted: at most 10 digits."
    shown.fill("#m", "16")
    assert shown.get_attribute("#m", "aria-invalid") == "false" and shown.is_visible("#measure")


def test_what_was_recorded_beside_is_asked_for_by_a_click(shown):
    ask(shown, "64x64x16384", {})
    shown.get_by_role("button", name="--layout kn --epilogue relu", exact=True).click()
    assert [shown.input_value(f"#{name}") for name in ("op", "dtype", "layout", "epilogue")] == [
        *("matmul", "bf16", "kn", "relu")
    ]
    assert "Recorded at exactly this shape" in shown.inner_text("#where")
    ask(shown, "64x64x16384", {"layout": "nk", "epilogue": "none"})
    assert shown.locator("#answered .not-near").count() == 0  # below which all is pale
    shown.locator("#answered .instead button").click()
    assert (shown.input_value("#layout"), shown.input_value("#epilogue")) == ("kn", "none")
    assert shown.locator("#answered .instead").count() == 0
    ask(shown, "16x8192x8192", {"layout": "nk", "epilogue": "none"})
    shown.get_by_role("button", name="--op w4a16", exact=True).click()
    assert (shown.input_value("#op"), shown.input_value("#dtype")) == ("w4a16", "fp16")
    assert "w4a16" in shown.locator("#answered p").first.inner_text()
    shown.select_option("#dtype", "bf16")
    assert "exactly this shape" in shown.inner_text("#where")


def test_a_row_is_of_the_language_whose_kernel_it_timed(shown):
    shown_as = """(name) => Object.fromEntries(D.files.find((file) => file.name === name).rows.map((row) =>
        [`${row.file.problems[row.problem][0]}, ${row.contender}`, [row.language, row.hollow]]))"""
    templates = shown.evaluate(shown_as, "h200/router-references")
    assert templates["1x256x7168-bf16-nk, torch/compile.triton_templates"][0] == "torch"
    chains = shown.evaluate(shown_as, "h200/chain")
    languages = {where.partition("torch/chain.")[2]: language for where, (language, _) in chains.items()}
    assert languages.items() >= {"tilus": "tilus", "triton_prefetch": "triton"}.items()
    (rows,) = queries.recorded("h200:models").values()
    found, hollow = shown.evaluate(shown_as, "h200/models"), Counter()
    for row in (row for row in rows if row.contender.startswith("torch/linear.")):
        fell_back = row.message.startswith("torch/mm")
        borrowed = not fell_back and f"measured at {row.problem.name} " not in row.message
        where = f"{row.problem.name}, {row.contender}"
        assert found[where] == ["torch" if fell_back else row.variant, borrowed], row.message
        hollow[borrowed] += 1
    assert min(hollow.values()) > 20


def test_what_is_ranked_was_timed_together_and_the_first_is_the_fastest(shown):
    ask(shown, "64x64x16384", {"layout": "kn", "epilogue": "relu"})
    ranked, *others = shown.locator("#answered table").all()
    name = shown.locator("#answered .winner").inner_text().partition(":")[0]
    assert name in ranked.locator("tbody tr").first.inner_text() and others
    ask(shown, "32x256x7168", {"layout": "nk", "epilogue": "none"})
    ranked, *others = shown.locator("#answered table").all()
    assert all(ranked.locator("tbody td:nth-child(2)").all_inner_texts()) and "H100" not in ranked.inner_text()
    assert any("H100" in other.locator("caption").inner_text() for other in others)


def test_the_first_click_in_the_box_after_typing_is_heard(shown):
    shown.evaluate("""() => document.addEventListener("click", (event) => {
        window.clicked = event.target.closest("a")?.getAttribute("href");
        event.preventDefault();
    })""")
    shown.locator("#m").select_text()
    shown.keyboard.type("512")
    link = shown.locator("#answered a")
    link.click()
    assert shown.evaluate("window.clicked") == link.get_attribute("href")


def kept(shown, said=None):
    """Waits until the address has what was chosen, and is that which is said."""
    shown.wait_for_function("address() === location.hash")
    assert said is None or shown.evaluate("location.hash") == said


def test_back_on_the_page_all_is_as_it_was(shown):
    ask(shown, "512x256x7168", {"clock": "graph", "deterministic": True})
    shown.select_option("#file", "h200/router-kn")
    shown.select_option("#heat-clock", "graph")
    shown.check("[name=view][value=triton]")
    shown.locator("#map tbody button").nth(3).click()
    shown.select_option("#pair", "semaphore")
    shown.select_option("#rung", "64")
    shown.select_option("#claims select", "contradicted")
    shown.fill("#search", "torch")
    parts = ["#measure", "#answered", "#heat-title", "#map", "#filter", "#chart", ".pair:visible h3", ".ladder:visible"]
    parts += [".matrix:visible h3", "#claims .shown", "#mechanisms .shown", "#count"]
    before = {part: shown.inner_text(part) for part in parts}
    kept(shown)
    shown.goto("data:text/html,elsewhere")
    shown.told.clear()
    shown.go_back()
    shown.wait_for_load_state()
    shown.told.clear()
    assert {part: shown.inner_text(part) for part in parts} == before
    shown.reload()
    shown.told.clear()
    assert {part: shown.inner_text(part) for part in parts} == before


def test_the_gpu_that_was_chosen_is_kept(shown):
    shown.select_option("#device", "h100-80gb-hbm3")
    kept(shown, "#device=h100-80gb-hbm3")
    said = shown.inner_text("#answered")
    assert "H100" in said
    shown.goto("data:text/html,elsewhere")
    shown.go_back()
    shown.wait_for_load_state()
    assert shown.inner_text("#answered") == said and shown.input_value("#device") == "h100-80gb-hbm3"
    linked(shown, "device=h100-80gb-hbm3")
    assert shown.inner_text("#answered") == said
    shown.evaluate("location.hash = '#m=32&device=h200'")
    shown.wait_for_function("$('device').value === 'h200'")
    assert shown.inner_text("#answered") != said


def test_what_a_browser_puts_back_into_controls_does_not_part_them_from_what_they_show(shown):
    shown.evaluate("""() => {
        $("m").value = "512";
        $("file").value = "h200/crossover";
        $("pair").value = "semaphore";
        window.dispatchEvent(new PageTransitionEvent("pageshow"));
    }""")
    assert f" {shown.input_value('#m')}x256x7168 " in shown.inner_text("#measure")
    assert f"({shown.input_value('#file').split('/')[1]})" in shown.inner_text("#heat-title")
    assert shown.inner_text(".pair:visible h3").split()[0] == shown.input_value("#pair")


def linked(shown, said):
    shown.goto("about:blank")
    shown.goto(f"{page.PATH.as_uri()}#{said}")
    shown.told.clear()


def top(shown, section):
    return shown.evaluate("(id) => document.getElementById(id).getBoundingClientRect().top", section)


def test_a_link_shows_what_it_says(shown):
    linked(shown, "m=16&n=8192&k=8192&op=w4a16")
    assert shown.inner_text("#measure") == "python bench/answer.py 16x8192x8192 --op w4a16 --measure"
    assert "exactly this shape" in shown.inner_text("#where")
    said = "rows&m=512&file=h200/crossover&view=tilus&protocol=data_parallel&pair=atomic"
    linked(shown, said)
    assert shown.input_value("#file") == "h200/crossover" and shown.is_checked("[name=view][value=tilus]")
    assert shown.inner_text("#filter").startswith("Chosen: ") and ", data_parallel. " in shown.inner_text("#filter")
    assert shown.inner_text(".pair:visible h3").startswith("atomic") and abs(top(shown, "rows")) < 2
    linked(shown, "m=77&file=none&pair=none&heat-clock=none&view=none&problem=none&protocol=none")
    assert "77x256x7168" in shown.inner_text("#measure") and "(router-nk), all" in shown.inner_text("#filter")


def test_sections_are_linked_to_without_losing_what_was_chosen(shown):
    linked(shown, "matrix")
    assert abs(top(shown, "matrix")) < 2 and shown.evaluate("location.hash") == "#matrix"
    shown.fill("#m", "77")
    kept(shown, "#matrix&m=77")
    shown.click("nav a[href='#claims']")
    shown.wait_for_function("location.hash === '#claims&m=77'")
    assert abs(top(shown, "claims")) < 2 and shown.input_value("#m") == "77"
    shown.evaluate("location.hash = '#rows&m=5'; keep()")
    shown.wait_for_function("$('m').value === '5'")
    assert abs(top(shown, "rows")) < 2 and "5x256x7168" in shown.inner_text("#measure")
    shown.fill("#m", "32")
    kept(shown, "#rows")


def test_a_weight_of_4_bits_that_kernels_refuse_is_told(shown):
    shown.select_option("#op", "w4a16")
    shown.fill("#k", "7170")
    assert shown.inner_text("#answered") == "K is 7170; accepted with a weight of 4 bits: multiples of 128."
    shown.fill("#k", "8192")
    assert "Rows: " in shown.inner_text("#answered")


@pytest.mark.parametrize(
    ("file", "protocol", "pair"),
    [
        ("h200/or_reduce-int64", "data_parallel", "or_reduce"),
        ("h200/w4a16-square", "atomic", "w4a16"),
        ("h200/router-nk", "atomic", "atomic"),
    ],
)
def test_the_pair_below_the_heat_map_is_of_the_operation_that_it_shows(shown, file, protocol, pair):
    shown.select_option("#file", file)
    shown.click(f'#map button[data-key="{protocol}"]')
    assert shown.input_value("#pair") == pair


def test_the_heat_map_is_the_matrix_and_filters_what_is_below(shown):
    (rows,) = queries.recorded(page.FIRST).values()
    best = matrix.bests(matrix.lines_of(rows, "cold")).set_index(["protocol", "language", "problem"])
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
    assert "(crossover)" in shown.inner_text("#filter")
    assert shown.locator(".matrix:visible").count() == 1


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("router-nk", {"sliced_k", "decompose_k", "decompose_k.vector_pdl", "semaphore", "stream_k", "cluster"}),
        ("w4a16-square", {"w4a16.semaphore", "w4a16.atomic"}),
        ("or_reduce-int64", {"or_reduce"}),
        ("models", {"linear"}),
    ],
)
def test_columns_of_the_heat_map_are_named_by_their_kernels(shown, file, names):
    (rows,) = queries.recorded(f"h200:{file}").values()
    shown.select_option("#file", f"h200/{file}")
    for head in shown.locator("#map thead button").all():
        protocol, name = head.get_attribute("data-key"), head.inner_text()
        of_column = {
            row.contender.partition("/")[2] for row in rows if row.protocol == protocol and row.language != "torch"
        }
        assert all(kernel.startswith(name) for kernel in of_column) and f"protocol {protocol}" in head.get_attribute(
            "title"
        )
    assert names <= set(shown.locator("#map thead button").all_inner_texts())
    head = shown.locator("#map thead button").first
    head.click()
    assert f", {shown.locator('#map thead button').first.inner_text()}. " in shown.inner_text("#filter")


@pytest.mark.parametrize("view", ["ratio", "triton"])
def test_what_is_within_noise_has_no_shade(shown, view):
    (rows,) = queries.recorded(page.FIRST).values()
    latest = [row for group in queries.by_problem(rows).values() for row in group]
    timed = sorted(queries.passed(queries.contending(latest), "cold"), key=lambda row: row.timing["cold"].median_us)
    shown.check(f"[name=view][value={view}]")
    ties = 0
    cells = shown.locator("#map td button").evaluate_all(
        "(all) => all.map((of) => ['data-key', 'aria-label', 'style', 'title'].map((name) => of.getAttribute(name)))"
    )
    for key, label, style, title in cells:
        problem, protocol = key.split(", ")
        here = [row for row in timed if row.problem.name == problem]
        best = {row.language: row for row in reversed(here) if row.protocol == protocol}
        baseline = next(row for row in here if row.is_baseline)
        pair = [best["triton"], best["tilus"] if view == "ratio" else baseline]
        tie = not any(queries.leads(one, other, "cold") for one, other in (pair, pair[::-1]))
        assert ("no lead" in label) is tie, title
        assert (style is None) is tie
        ties += tie
    assert 0 < ties < len(cells)
    share = f"{queries.between_runs(rows)['cold']:.1%}".replace("%", " %")
    assert f"at most {share} between runs (cold L2), by problem." in shown.inner_text("#heat")
    assert f"NVIDIA H200: cold {share}, graph " in shown.inner_text("#method")
    (elsewhere,) = queries.recorded("h100-80gb-hbm3:router-other-gpu").values()
    known = queries.between_runs(elsewhere)
    assert "warm" not in known
    shown.select_option("#file", "h100-80gb-hbm3/router-other-gpu")
    shown.select_option("#heat-clock", "warm")
    share = f"{max(known.values()):.1%}".replace("%", " %")
    assert (
        f"at most {share} between runs in another timing (warm L2 was not run twice), by problem."
        in shown.inner_text("#heat")
    )


def test_each_section_says_what_it_follows_and_does_so(shown):
    shown.click('#map button[data-key="serial"]')
    follows = {
        section.get_attribute("id"): section.locator(".follows").inner_text()
        for section in shown.locator("main > section:not(#answer):not(#heat):not(#method)").all()
    }
    unfiltered = {name for name, said in follows.items() if said == "Not filtered by the heat map."}
    assert unfiltered == {"claims", "languages"}
    notes = set(shown.locator("#mechanisms tbody tr:visible td:first-child").all_inner_texts())
    assert notes == {"semaphore"} and shown.input_value("#pair") == "semaphore"
    assert "best tilus, only semaphore" in shown.inner_text("#chart .legend")
    assert set(shown.locator(".matrix:visible td:first-child:visible").all_inner_texts()) >= {"serial"}
    assert shown.inner_text("#claims .shown").startswith(f"{shown.locator('#claims tbody tr').count()} of ")
    shown.select_option("#note", "atomic")
    shown.select_option("#heat-clock", "graph")  # leaves a choice of the reader's alone
    assert shown.input_value("#note") == "atomic"
    shown.click("#clear")
    assert shown.input_value("#note") == "" and "only" not in shown.inner_text("#chart .legend")
    rung = shown.input_value("#rung")
    shown.select_option("#file", "h200/crossover")
    shown.locator("#map tbody th button").first.click()
    assert shown.input_value("#rung") == rung and f"Only data set {page.FIRST}" in follows["ladder"]


def test_the_keyboard_goes_on_where_it_was(shown):
    shown.locator('#map button[data-key="serial"]').press("Enter")
    assert shown.evaluate("document.activeElement.dataset.key") == "serial"
    shown.locator("#clear").press("Enter")
    assert shown.evaluate("$('map').contains(document.activeElement)")
    while shown.locator("#further").is_visible():
        shown.locator("#further").press("Enter")
    assert shown.evaluate("document.activeElement.contains($('all'))") is True
    assert shown.evaluate("document.activeElement !== document.body")


@pytest.mark.parametrize("section", ["claims", "mechanisms", "rows"])
def test_heads_of_long_tables_stay(shown, section):
    wide = shown.locator(f"#{section} .wide").last
    wide.evaluate("(each) => { each.scrollTop = 2000; }")
    assert wide.evaluate("(each) => each.scrollTop") > 1000
    assert abs(wide.locator("th").first.bounding_box()["y"] - wide.bounding_box()["y"]) < 2
    assert shown.evaluate("document.documentElement.scrollHeight") < 14_000


def test_the_rows_of_an_answer_are_chosen_in_the_heat_map(shown):
    ask(shown, "16x8192x8192", {"op": "w4a16"})
    source = shown.locator("#answered > p").last.inner_text()
    shown.click("#answered > button")
    assert source.startswith(f"Rows: {shown.input_value('#file')}.jsonl, w4a16-16x8192x8192-fp16-g128, ")
    assert "w4a16-16x8192x8192-fp16-g128" in shown.inner_text("#filter") and abs(top(shown, "heat")) < 2


def test_data_sets_are_grouped_and_named_first_and_their_problems_stand_by_size(shown):
    groups = shown.locator("#file optgroup")
    assert groups.first.get_attribute("label") == "H200, matmul" and groups.last.get_attribute("label")[:4] == "H100"
    for path in queries.recorded():
        name = f"{path.parent.name}/{path.stem}"
        assert shown.locator(f"#file option[value='{name}']").inner_text().startswith(f"{path.stem}: ")
    assert shown.evaluate("""() => D.files.every((file) => file.problems.every(([, ...sizes], i) => {
        const before = file.problems[Math.max(0, i - 1)].slice(1);
        const differs = [0, 1, 2].find((j) => sizes[j] !== before[j]);
        return differs === undefined || before[differs] < sizes[differs];
    }))""")


def test_a_floor_of_one_size_is_drawn(shown):
    shown.select_option("#file", "h200/semaphore-splits")
    assert shown.locator("#sweep option").all_inner_texts()[0].startswith("only ")
    dashed = shown.locator("#chart svg[role=group] polyline[stroke-dasharray='6 4']")
    first, last = [point.split(",") for point in dashed.get_attribute("points").split()]
    assert float(last[0]) > float(first[0]) and first[1] == last[1]


def test_a_tab_is_kept_from_pair_to_pair_and_keys_go_round(shown):
    shown.select_option("#pair", "semaphore")
    shown.get_by_role("tab", name="Code").press("ArrowLeft")
    assert "registers" in shown.inner_text(".pair:visible [role=tabpanel]:visible")
    shown.select_option("#pair", "atomic")
    assert "registers" in shown.inner_text(".pair:visible [role=tabpanel]:visible")
    shown.locator(".pair:visible [role=tab][aria-selected=true]").press("Home")
    assert shown.locator(".pair:visible [role=tab]").first.get_attribute("aria-selected") == "true"


def test_a_screen_reader_hears_one_line_of_an_answer(shown):
    shown.locator("#m").select_text()
    shown.keyboard.type("1024")
    shown.wait_for_function("$('heard').textContent === $('answered').querySelector('p').textContent")
    assert shown.get_attribute("#answered", "aria-live") == "off"
    shown.evaluate("""() => new MutationObserver(() => { window.times = (window.times ?? 0) + 1; })
        .observe($("heard"), { childList: true })""")
    shown.locator("#m").select_text()
    shown.keyboard.type("512")
    shown.wait_for_timeout(600)
    assert shown.evaluate("window.times") == 1


def test_without_scripts_nothing_stands_that_needs_them(browser):
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(page.PATH.as_uri())
    assert plain.is_visible("#claims") and not plain.is_visible("#ask") and not plain.is_visible("#rows")
    context.close()


def test_a_file_without_kernels_of_this_project_shows_its_contenders(shown):
    shown.select_option("#file", "h100-80gb-hbm3/square-generated-models-published")
    on = shown.locator("#lines input:checked").evaluate_all("(inputs) => inputs.map((input) => input.value)")
    assert {"published_triton/matmul.makora", "published_triton/matmul.kernelllm", "torch/mm", "floor"} == set(on)


def test_lines_are_toggled_and_a_marker_tells_its_row(shown):
    assert shown.locator("#chart svg[role=group] polyline").count() == 4
    shown.click("#latency summary")
    shown.check('#lines input[value="triton/atomic"]')
    assert shown.locator("#chart svg[role=group] polyline").count() == 5
    shown.uncheck('#lines input[value="torch/mm"]')
    assert shown.locator("#chart svg[role=group] polyline").count() == 4
    mark = shown.locator('#chart .mark[aria-label^="best tilus"]').first
    mark.focus()
    shown.keyboard.press("ArrowRight")
    (rows,) = queries.recorded(page.FIRST).values()
    best = matrix.bests(matrix.lines_of(rows, "cold"))
    best = best[(best.language == "tilus") & (best.m == 2)].sort_values("median_us").iloc[0]
    row = next(row for row in rows if (row.contender, row.problem.m) == (best.contender, 2))
    told = shown.inner_text("#point")
    assert row.command in told and f"{best.median_us:.2f} us" in told and best.contender in told
    hollow = shown.locator('#chart .mark[aria-label*="a former kernel"] [fill="var(--bg)"]').count()
    assert hollow == shown.locator('#chart .mark[aria-label*="a former kernel"]').count() > 0
    cold = shown.inner_text("#chart .legend") + shown.locator("#chart svg[role=group] polyline").first.get_attribute(
        "points"
    )
    shown.select_option("#heat-clock", "warm")
    assert (
        shown.inner_text("#chart .legend")
        + shown.locator("#chart svg[role=group] polyline").first.get_attribute("points")
        != cold
    )


def test_pointing_at_the_plot_tells_all_lines_at_the_nearest_size(shown):
    """Also those whose markers others cover, at every size."""
    (rows,) = queries.recorded(page.FIRST).values()
    best = matrix.bests(matrix.lines_of(rows, "cold"))
    chart = shown.locator("#chart svg[role=group]")
    covered = 0
    for name in dict.fromkeys(row.problem.name for row in rows):
        marks = shown.locator(f'#chart .mark[aria-label*=" {name}: "]')
        assert marks.count() == 3  # torch.mm, and the best of each language; the floor has none
        chart.scroll_into_view_if_needed()
        box, frame = marks.first.bounding_box(), chart.bounding_box()
        middle = box["x"] + box["width"] / 2
        shown.mouse.move(middle + 3, frame["y"] + 0.4 * frame["height"])
        told = shown.inner_text("#point")
        for language in ("triton", "tilus"):
            of_language = best[(best.language == language) & (best.problem == name)].sort_values("median_us").iloc[0]
            row = next(row for row in rows if (row.contender, row.problem.name) == (of_language.contender, name))
            assert f"best {language}, {row.contender} {name}: {of_language.median_us:.2f} us" in told
            assert row.command in told
        assert f"torch/mm {name}: " in told and f"floor {name}: " in told and told.count(" us") == 4
        covered += marks.evaluate_all("""(marks) => marks.some((mark) => {
            const { x, y, width, height } = mark.getBoundingClientRect();
            return !mark.contains(document.elementFromPoint(x + width / 2, y + height / 2));
        })""")
    assert covered
    marks.first.focus()
    assert shown.inner_text("#point").count("python bench/compare.py") == 1


def test_rows_are_sorted_searched_and_downloaded(shown, tmp_path):
    shown.click("#all th:nth-child(4) button")
    times = [float(text) for text in shown.locator("#all tbody td:nth-child(4)").all_inner_texts() if text]
    assert times == sorted(times) and shown.get_attribute("#all th:nth-child(4)", "aria-sort") == "ascending"
    shown.fill("#search", "cluster")
    assert "cluster" in shown.inner_text("#all tbody tr")
    shown.fill("#search", "no such row")
    assert shown.inner_text("#count") == "No row contains 'no such row'."
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
    assert download.value.suggested_filename == "rows.csv"
    head, *lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == count and " " not in head and {"speedup", "config_from"} <= set(head.split(","))


def test_a_step_shows_its_lines_in_both_languages_and_tabs_turn(shown):
    shown.select_option("#pair", "semaphore")
    article = shown.locator(".pair:visible")
    article.locator("button[data-step=meet]").click()
    for column in (0, 1):
        lines = article.locator(".column").nth(column).locator(".shown")
        assert lines.count() and lines.first.get_attribute("data-step") == "meet"
    article.get_by_role("tab", name="Code").focus()
    shown.keyboard.press("ArrowRight")
    assert "semaphore[tile], in L2" in article.locator("[role=tabpanel]:visible").inner_text()
    for loop, said in (("PTX", "mma."), ("SASS", "MMA.")):
        shown.keyboard.press("ArrowRight")
        panel = article.locator("[role=tabpanel]:visible")
        assert [said in panel.locator(".column").nth(column).inner_text() for column in (0, 1)] == [True, True], loop
    shown.keyboard.press("ArrowRight")
    compiled = article.locator("[role=tabpanel]:visible").inner_text()
    assert "registers" in compiled and "cp.async" in compiled
    shown.select_option("#pair", "or_reduce")
    assert shown.locator(".pair:visible button[data-step=meet]").is_disabled()


def test_rows_at_matched_configs_are_drawn_or_named(shown):
    recorded = any(row.is_matched for rows in queries.recorded().values() for row in rows)
    assert shown.is_visible("#unmatched") is not recorded
    shown.evaluate("""() => {
        const place = (said) => D.strings.push(said) - 1;
        D.files[0].matched.cold = [[0, place("atomic"), place("atomic"), place("tilus"), 1.1, 0.9]];
        filtered();
    }""")
    assert shown.locator("#scatter .mark").count() >= 1 and not shown.is_visible("#unmatched")


def test_the_scatter_has_a_legend_and_dims_what_is_filtered_out(shown):
    marks = shown.locator("#scatter .mark").count()
    assert marks and shown.locator("#scatter .mark.dim").count() == 0
    assert shown.locator("#scatter .legend").inner_text().split("\n") == [
        "Triton's config in both",
        "tilus' config in both",
    ]
    assert "router-matched-nk" in shown.inner_text("#matched-of")
    shown.locator('#map button[aria-label^="32x256x7168-bf16-nk, cluster"]').click()
    assert shown.locator("#scatter .mark").count() == marks == shown.locator("#scatter .mark.dim").count()
    assert "None of these" in shown.inner_text("#matched-point")
    shown.locator("#scatter .mark").first.press("Enter")
    assert "at one config" in shown.inner_text("#matched-point")
    shown.select_option("#file", "h200/router-matched-nk")
    assert 0 < shown.locator("#scatter .mark").count() < marks
    assert "router-matched-kn" not in shown.inner_text("#matched-of")


def test_all_texts_round_as_python_does(shown):
    """The box has Python's text of a figure, the plots and the table that of page.js."""
    made = shown.evaluate("""() => Object.fromEntries(D.files.flatMap((file) => file.rows.flatMap((row) =>
        Object.entries(row.timing).map(([clock, t]) => [
            [file.name, file.problems[row.problem][0], row.contender, clock],
            [t.us, t.speedup, t.low, t.high].map((value) => fixed(value, 2))]))))""")
    checked = 0
    for path, rows in queries.recorded().items():
        for row in (row for group in queries.by_problem(rows).values() for row in group):
            for clock, t in row.timing.items():
                said = [f"{value:.2f}" for value in (t.median_us, t.speedup, t.speedup_low, t.speedup_high)]
                assert made[f"{path.parent.name}/{path.stem},{row.problem.name},{row.contender},{clock}"] == said
                checked += 1
    assert checked > 1000


def test_the_ladder_is_that_of_its_rows_and_follows_the_heat_map(shown):
    (rows,) = queries.recorded(page.FIRST).values()
    groups = {group[0].problem.m: group for group in queries.by_problem(rows).values()}

    def cells(m):
        return [cell.replace("`", "") for line in ladder_table(groups[m]).lines for cell in line]

    assert shown.locator(".ladder:visible td").all_inner_texts() == cells(16)
    shown.select_option("#rung", "1024")
    assert shown.locator(".ladder:visible td").all_inner_texts() == cells(1024)
    shown.click('#map button[title="64x256x7168-bf16-nk"]')
    assert shown.locator(".ladder:visible td").all_inner_texts() == cells(64)


def test_what_each_language_lacks_is_that_of_its_note(shown):
    told, header, lines = mechanisms.needs()
    assert header[0] == "need" and len(lines) > 10 and told.startswith(f"Of these {len(lines)} things ")
    assert shown.locator("#languages th").all_inner_texts() == header
    assert shown.locator("#languages tbody tr").count() == len(lines)
    assert {cell.split(",")[0].split(" ")[0].strip(":;") for _, *cells in lines for cell in cells} == {
        "native",
        "added",
        "no",
    }
    shown.click("nav a[href='#languages']")


@pytest.mark.parametrize(
    ("said", "shown_as"),
    [
        ("**tilus 0.2.0 lacks** a sum, *native*, `a*b*c`", "tilus 0.2.0 lacks a sum, native, a*b*c"),
        ("bits of 0 ([18](tilus_hopper.md))", "bits of 0 (tilus_hopper.md, 18)"),
        ("in both ([19](a.md), [history](history.md#x))", "in both (a.md, 19, history.md)"),
        ("one block ([measured](counters.md#plain)); [`f.py`](../f.py)", "one block (measured, counters.md); f.py"),
        ("barriers ([cluster.md](cluster.md)), ([`copy`](../mma.py))", "barriers (cluster.md), (copy)"),
        ("2 * 3 * 4 of [atomic](atomic.md)", "2 * 3 * 4 of atomic"),
    ],
)
def test_a_note_is_shown_without_markdown_and_its_references_name_their_files(said, shown_as):
    assert mechanisms.plain(said) == shown_as


def test_the_page_has_no_markdown_and_no_reference_to_a_number():
    told, header, lines = mechanisms.needs()
    cells = [told, *header, *(cell for line in lines for cell in line)]
    for one in mechanisms.mechanisms():
        cells += [one.difference, one.explanation, one.sure, one.shown_by]
    for cell in cells:
        assert not re.search(r"\*\*|\*[a-zA-Z]|`|\]\(|\(\d+\)", cell), cell


def test_claims_and_mechanisms_are_filtered(shown):
    of_notes = list(mechanisms.mechanisms())
    assert shown.locator("#mechanisms tbody tr").count() == len(of_notes) > 50
    shown.select_option("#mechanisms select[data-column='3']", "open")
    note = next(one.note for one in of_notes if "open" in one.sure)
    shown.select_option("#mechanisms select[data-column='0']", note)
    left = [one for one in of_notes if "open" in one.sure and one.note == note]
    assert shown.locator("#mechanisms tbody tr:visible").count() == len(left) > 0
    assert shown.inner_text("#mechanisms .shown") == f"{len(left)} of {len(of_notes)} shown."
    shown.select_option("#claims select", "contradicted")
    verdicts = shown.locator("#claims tbody tr:visible td:last-child").all_inner_texts()
    assert set(verdicts) == {"contradicted"}


def test_mechanisms_and_drawings_are_read_from_notes(tmp_path):
    (tmp_path / "one.md").write_text(
        "# one\n\n## Who moves what\n\n```\n A --> B\n```\n\n## Mechanism\n\ntext\n\n"
        "| difference | explanation | | by |\n|-|-|-|-|\n"
        "| <!-- us:x -->7.1<!-- /us --> us, *vector* | [atomic](a.md): `2*S*M` of \\| | measured | PTX |\n\n"
        "## Limits\n\n| a | b |\n"
    )
    (found,) = mechanisms.mechanisms(tmp_path)
    assert found == mechanisms.Mechanism("one", "7.1 us, vector", "atomic: 2*S*M of |", "measured", "PTX")
    assert mechanisms.drawing("one", tmp_path) == " A --> B" and mechanisms.drawing("two", tmp_path) == ""
    (tmp_path / "two.md").write_text("## Mechanisms\n\n| a | b | c | d |\n|-|-|-|-|\n| a | b | perhaps | d |\n")
    with pytest.raises(ValueError, match=r"two\.md"):
        list(mechanisms.mechanisms(tmp_path))


def test_no_heat_map_is_empty_without_a_word(shown):
    empty = shown.evaluate(
        """() => {
          const chosen = (id, value) => {
            $(id).value = value;
            if ($(id).value !== value) throw new Error(`${id} has no ${value}`);
            $(id).dispatchEvent(new Event("change", { bubbles: true }));
          };
          const matrices = [...document.querySelectorAll(".matrix, #no-matrix")];
          const empty = [];
          for (const file of D.files) for (const clock of file.clocks) {
            chosen("file", file.name);
            chosen("heat-clock", clock);
            const told = $("map").querySelector("td button") || $("map").innerText.includes("No kernel");
            if (!told || matrices.filter((found) => found.checkVisibility()).length !== 1)
              empty.push([file.name, clock]);
          }
          return empty;
        }"""
    )
    assert empty == []
    shown.select_option("#file", "h200/models")
    (rows,) = queries.recorded("h200:models").values()
    of_torch = {row.problem.name for row in rows if answer.is_torch(row) and not row.is_baseline}
    shown.check("[name=view][value=ratio]")
    assert shown.locator("#map td button").count() == len({row.problem.name for row in rows} - of_torch) > 60
    shown.check("[name=view][value=triton]")
    took = {row.problem.name for row in rows if answers.written_in(row) == "triton" and not answer.is_torch(row)}
    assert shown.locator("#map td button").count() == len(took) > 60


def test_the_heat_map_and_the_scatter_are_one_tab_stop_each(shown):
    for where, marks in (("#map", "button"), ("#scatter", ".mark")):
        assert shown.locator(f"{where} {marks}").count() > 20
        assert shown.locator(f"{where} {marks}[tabindex='0']").count() == 1
    shown.locator("#map button[tabindex='0']").focus()
    titles = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowUp"):
        shown.keyboard.press(key)
        titles.append(shown.evaluate("document.activeElement.title"))
    assert titles[2].startswith("2x256x7168-bf16-nk, ") and titles[3].startswith("1x256x7168-bf16-nk, ")
    assert shown.locator("svg [role=img]").count() == 0


def test_the_clocks_of_heat_map_and_plot_are_one(shown):
    shown.select_option("#latency-clock", "graph")
    assert shown.input_value("#heat-clock") == "graph"
    assert page.TEMPERATURES["graph"] in shown.inner_text(".matrix:visible h3")
    assert "(graph)" in shown.inner_text(".matrix:visible")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_axes_have_a_last_label_and_enough_ticks(shown, width):
    shown.set_viewport_size({"width": width, "height": 800})
    shown.reload()
    shown.told.clear()
    texts = shown.locator("#chart svg[role=group] text").all_text_contents()
    assert "1024" in texts and {"10", "12", "14"} <= set(texts)
    boxes = [text.bounding_box() for text in shown.locator("#chart svg[role=group] text").all()]
    lowest = sorted(
        (box for box in boxes if abs(box["y"] - boxes[texts.index("1024")]["y"]) < 2), key=lambda box: box["x"]
    )
    assert all(one["x"] + one["width"] < other["x"] for one, other in itertools.pairwise(lowest))


@pytest.mark.parametrize("width", [360, 1280])
def test_keys_of_lines_differ_and_labels_do_not_overlap(shown, width):
    shown.set_viewport_size({"width": width, "height": 800})
    shown.click("#latency summary")
    keys = [key.inner_html() for key in shown.locator("#lines svg.key").all()]
    assert len(set(keys)) == len(keys) > 20
    boxes = [label.bounding_box() for label in shown.locator("#lines label").all()]
    for one, other in itertools.combinations(boxes, 2):
        apart_x = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        apart_y = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
        assert apart_x or apart_y
    for label in shown.locator("#lines label").all():
        assert label.evaluate("(each) => each.scrollWidth <= each.clientWidth + 1")


def test_rows_that_failed_stand_last_and_each_row_shows_its_command(shown):
    shown.select_option("#file", "h200/router-matched-nk")
    while shown.locator("#further").is_visible():
        shown.click("#further")
    times = [bool(text) for text in shown.locator("#all tbody td:nth-child(4)").all_inner_texts()]
    assert times == sorted(times, reverse=True) and not times[-1]
    shown.locator("#all summary").first.press("Enter")
    assert "python bench/compare.py" in shown.locator("#all details[open] code").inner_text()


def test_columns_of_figures_are_told_from_text():
    made = Table(
        "", ["a", "b", "c", "d"], [["1.2°", "12 rows, last", "1.05 (1.01-1.10) tie", ""], ["38%", "7", "1", "x4"]]
    )
    assert [page.is_figure(made, index) for index in range(4)] == [True, False, True, False]


def test_a_file_is_named_by_what_it_holds():
    ((path, rows),) = queries.recorded("router-nk").items()
    assert page.title(path, rows) == "[T, 7168] @ [7168, 256], bf16, weight stored [N, K], H200 (router-nk)"
    assert page.labels(rows) == ("T", [str(m) for m in sorted({row.problem.m for row in rows})])
    former = [by_former_clock(row) for row in rows if "cold" in row.timing]
    assert page.title(path, former).endswith("H200 (router-nk, cold by the former clock)")
    ((path, rows),) = queries.recorded("w4a16-llama").items()
    present = [msgspec.structs.replace(row, timing={}) for row in rows]
    assert page.title(path, present) == "[M, K] @ [K, N] of 4 bits, fp16, H200 (w4a16-llama)"
    assert "1x4096x11008" in page.labels(rows)[1]


def test_the_whole_command_that_measures_is_shown(shown):
    shown.fill("#m", "3000")
    shown.select_option("#layout", "kn")
    shown.check("#deterministic")
    said = shown.inner_text("#measure")
    assert said == "python bench/answer.py 3000x256x7168 --layout kn --deterministic --measure"
    command.parser().parse_args(said.split()[2:])


WATCHED = """() => {
    window.changes = 0;
    new MutationObserver((found) => { window.changes += found.length; }).observe(document.body,
        { subtree: true, childList: true, attributes: true, characterData: true });
    document.querySelectorAll("details").forEach((each) => { each.open = true; });
}"""
CONTROLS = {
    "select": "select:visible:enabled",
    "number": "input[type=number]:visible",
    "radio": "input[type=radio]:visible:enabled",
    "checkbox": "input[type=checkbox]:visible",
    "heat map": "#map button",
    "tab": "[role=tab][aria-selected=false]:visible",
    "step": ".steps button:visible:enabled",
    "column": "#all th button",
    "button": "#further, #clear",
    "row's command": "#all summary",
    "mark": "svg [role=button]",
}


@pytest.mark.parametrize("kind", CONTROLS)
def test_every_control_changes_the_page_without_an_error(shown, kind):
    shown.evaluate(WATCHED)
    controls = shown.locator(CONTROLS[kind])
    assert controls.count()
    for place in range(min(16, controls.count())):
        control = controls.nth(place)
        if control.count() == 0:  # as of tabs, where one less is not selected
            break
        before = shown.evaluate("changes")
        if kind == "select":
            values = control.evaluate("(each) => [...each.options].map((option) => option.value)")
            others = [value for value in values if value != control.input_value()]
            if not others:
                continue
            control.select_option(others[-1])
        elif kind == "number":
            control.fill("77")
        elif kind == "mark":
            control.press("Enter")
        else:
            already = kind == "radio" and control.is_checked()
            control.click()
            if already:
                continue
        assert shown.evaluate("changes") > before, control.evaluate("(each) => each.outerHTML")


@pytest.mark.parametrize(
    ("shape", "flags"), [("32x256x7168", {}), ("16x8192x8192", {"op": "w4a16"}), ("64x64x16384", {"layout": "kn"})]
)
def test_names_in_the_box_fit_a_phone_unbroken(shown, shape, flags):
    shown.set_viewport_size({"width": 360, "height": 800})
    ask(shown, shape, flags)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    assert shown.evaluate("(() => { const box = $('answered'); return box.scrollWidth <= box.clientWidth; })()")
    call = shown.locator("#answered pre")
    assert (
        call.evaluate("(each) => each.scrollWidth <= each.clientWidth && getComputedStyle(each).overflowWrap")
        == "normal"
    )


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_scrolls_sideways(shown, width):
    shown.set_viewport_size({"width": width, "height": 800})
    shown.reload()
    shown.told.clear()
    assert shown.evaluate("document.documentElement.scrollWidth") <= width


OF_GITHUB = """<meta charset=utf-8><style>main { width: 830px; font: 16px/1.5 "Liberation Sans", Arial, sans-serif }
table { display: block; width: max-content; max-width: 100%; overflow: auto; border-collapse: collapse }
td, th { padding: 6px 13px; border: 1px solid }
code { font: 85% "Liberation Mono", monospace; padding: .2em .4em; white-space: break-spaces }</style><main>"""


def test_readmes_table_fits_the_column_of_a_repositorys_page(browser):
    """As GitHub lays a table out; what does not fit is scrolled there."""
    markdown = pytest.importorskip("markdown_it", reason="markdown-it-py, which rich brings, is not installed")
    read = markdown.MarkdownIt().enable("table").render((site.ROOT / "README.md").read_text())
    made = browser.new_page()
    made.set_content(OF_GITHUB + read)
    widths = "[...document.querySelectorAll('table')].map(one => [one.scrollWidth, one.clientWidth])"
    assert [needed - given for needed, given in made.evaluate(widths)] == [0]
    made.close()
