"""Plots from made rows: what is drawn, in which colours and with which markers, and where names stand."""

from itertools import groupby, pairwise
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import FP32, VECTOR, router_problem, router_rows, row
from msgspec.structs import replace

from triton_vs_tilus.bench import report, workloads
from triton_vs_tilus.bench.rows.row import BASELINE
from triton_vs_tilus.bench.show import plots, tables
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.protocol import Protocol

NAMED = [
    "data_parallel",
    "sliced_k",
    "parallel",
    "parallel+pdl",
    "serial",
    "atomic",
    "last_arriver",
    "cluster",
    "stream_k",
]


def suite_rows(workload: str, **asked):
    """torch.mm, a fused kernel in both languages and its unfused variant, on every problem."""
    made = []
    for name, problem in workloads.problems(workload, **asked):
        more = {"problem": problem, "workload": name}
        made.append(row(BASELINE, us=10.0, **more))
        for language, us in (("triton", 8.0), ("tilus", 9.0)):
            fused = row(f"{language}/decompose_k.vector", us=us, **more)
            apart = row(f"{language}/decompose_k.vector_unfused", us=us * 1.25, **more)
            made += [replace(of, protocol="parallel", config=fused.config) for of in (fused, apart)]
    return made


def of_library(contender: str, problem, us: float, **more):
    return replace(row(f"torch/{contender}", us=us, problem=problem, **more), protocol="library")


def front(axes) -> list[tuple[float, float]]:
    """Its corners, from where it comes in at the top to where it goes out at the right."""
    (line,) = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    return [tuple(point) for point in line.get_xydata()]


def texts(figure) -> set[str]:
    found = {text.get_text() for axes in figure.axes for text in axes.texts}
    return found | {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_every_language_has_a_colour_and_every_protocol_a_marker_of_its_own():
    assert {language.value for language in Language} <= plots.COLOURS.keys()
    assert {protocol.value for protocol in Protocol} <= plots.MARKERS.keys()
    assert len(set(plots.COLOURS.values())) == len(plots.COLOURS)
    assert len(set(plots.MARKERS.values())) == len(plots.MARKERS)


def test_colour_tells_the_language_and_marker_the_protocol_in_every_plot():
    rows = suite_rows("skinny-epilogue-bf16")
    for name, plot in plots.PLOTS.items():
        # Along whose lines protocols differ; or of kernels that these rows have not.
        if name in ("best", "published", "original", "smallest", "throughput", "splits"):
            continue
        drawn = {
            (line.get_color(), line.get_marker())
            for axes in plot(rows).axes
            for line in axes.lines
            if line.get_marker() not in ("None", "")
        }
        expected = {(plots.COLOURS[language], plots.MARKERS["parallel"]) for language in ("triton", "tilus")}
        baseline = (plots.COLOURS["torch"], plots.MARKERS["library"])
        assert expected <= drawn <= {*expected, baseline}, name


def test_latency_has_a_panel_for_every_size_of_c_and_a_line_for_every_contender():
    rows = suite_rows("skinny-epilogue-bf16")
    figure = plots.latency(rows)
    titles = [axes.get_title(loc="left").split(",")[0] for axes in figure.axes]
    assert titles == ["M = N = 16", "M = N = 32", "M = N = 48", "M = N = 64"]
    assert {of.contender for of in rows} | {"library", "parallel"} == texts(figure)
    assert all(len(axes.containers) == 5 for axes in figure.axes)
    deepest = [made for made in rows if made.problem.k in (8192, 32768)]
    assert [len(panel.places) for panel in plots._panels(deepest)] == [2, 2, 2, 2]


def test_a_legend_is_in_the_order_in_which_lines_end():
    legend = plots.latency(suite_rows("skinny-epilogue-bf16")).legends[-1]
    slowest, *_, fastest = [text.get_text() for text in legend.get_texts()]
    assert (slowest, fastest) == ("tilus/decompose_k.vector_unfused", VECTOR)


def test_a_crossover_is_seen_along_both_axes():
    panels = plots._panels(suite_rows("crossover"))
    assert [(panel.axis, panel.log, len(panel.places)) for panel in panels] == [("K", True, 8), ("M = N", True, 12)]


def test_each_m_of_a_square_weight_has_a_panel_by_its_size():
    squares, llama = (plots._panels(suite_rows(name)) for name in ("w4a16-square", "w4a16-llama"))
    assert [(panel.title, panel.axis, panel.log) for panel in squares] == [
        ("M = 1, fp16", "N = K", True),
        ("M = 16, fp16", "N = K", True),
    ]
    assert list(squares[1].places.values()) == [512, 1024, 2048, 4096, 8192, 16384]
    assert [panel.title for panel in llama] == ["M = 1, fp16", "M = 16, fp16"]
    assert next(iter(llama[0].ticks.values())) == "1x4096x11008"


def test_sizes_that_do_not_fit_side_by_side_are_turned():
    for workload, turned in (("w4a16-llama", True), ("or_reduce-int64", False)):
        axes, *_ = plots.latency(suite_rows(workload)).axes
        assert {label.get_rotation() for label in axes.get_xticklabels()} == {90 if turned else 0}


def test_the_grid_has_all_shapes_side_by_side():
    (axes,) = plots.grid(suite_rows("skinny-epilogue-bf16")).axes
    assert len(axes.get_xticklabels()) == 28
    assert axes.get_xticklabels()[0].get_text() == "16x16x8192"


def test_side_by_side_lines_end_where_a_sequence_does():
    def lengths(workload):
        (axes,) = plots.grid(suite_rows(workload)).axes
        drawn = axes.containers[0].lines[0].get_ydata()
        return [len(list(of)) for joined, of in groupby(drawn, lambda value: value == value) if joined]

    assert lengths("skinny-epilogue-bf16") == [7, 7, 7, 7]  # M = N
    assert lengths("crossover") == [3, 8, 8]  # M = N below 64, K at 64, and M = N above
    assert lengths("or_reduce-int64") == [3, 3]
    assert lengths("square-generated") == [30]


def test_no_line_crosses_shapes_that_were_not_measured():
    rows = suite_rows("skinny-epilogue-bf16")
    known = list({made.problem.name: made for made in rows}.values())
    problems = [problem for _, problem in workloads.problems("skinny-epilogue-bf16")]
    rows += [of_library("compile.default", problems[at], 7.0, workload=known[at].workload) for at in (0, 1, 5, 27)]
    (axes,) = plots.grid(rows).axes
    (drawn,) = [bar.lines[0] for bar in axes.containers if 7.0 in bar.lines[0].get_ydata()]
    assert list(drawn.get_ydata()) == pytest.approx([7, 7, nan, 7, nan, 7], nan_ok=True)


def test_points_without_a_line_are_named():
    workload = "skinny-epilogue-bf16"
    first, *_, last = [problem for _, problem in workloads.problems(workload)]
    alone = [
        of_library(name, at, us, workload=workload) for name, us in (("a", 7.0), ("b", 6.0)) for at in (first, last)
    ]
    (axes,) = plots.latency(alone).axes
    assert [text.get_text() for text in axes.texts].count("torch/a") == 2
    figure = plots.latency(suite_rows(workload) + alone)
    assert [{text.get_text() for text in axes.texts} for axes in figure.axes] == [
        {"#1", "#2"},
        set(),
        set(),
        {"#1", "#2"},
    ]
    assert {"torch/a #1", "torch/b #2", BASELINE} <= texts(figure)


def test_points_whose_config_was_not_searched_are_hollow():
    made = [row(name, tokens, 8.0) for tokens in (1, 16, 64) for name in (BASELINE, VECTOR)]
    assert not hollow_points(plots.latency(made))
    for of in made:
        of.config_source = {16: "nearest", 64: "stale"}.get(of.problem.m, "tuned") if of.config else None
    for plot in (plots.latency, plots.speedup):
        figure = plot(made)
        (line,) = hollow_points(figure)
        assert list(line.get_xdata()) == [16, 64] and line.get_color() == plots.COLOURS["triton"]
        (legend,) = figure.legends
        assert plots.EMPTY.get_label() in [text.get_text() for text in legend.get_texts()]


def hollow_points(figure):
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    return [line for line in lines if line.get_markerfacecolor() == "white" and line.get_linestyle() == "None"]


def test_variants_differ_in_dashes_and_filling():
    rows = [of_library(f"compile.{name}", router_problem(1), 9.0) for name in "abcdefghij"]
    drawn = plots._contenders(rows, "cold", lambda of: (of.speedup,) * 3)
    assert len({series.dashes for series in drawn}) == 10
    assert len({(series.language, series.protocol) for series in drawn}) == 1
    markers = [bar.lines[0] for bar in plots.latency(rows).axes[0].containers]
    assert [line.get_fillstyle() for line in markers] == 2 * list(plots.FILLINGS)
    assert {line.get_marker() for line in markers} == {plots.MARKERS["library"]}


def test_microseconds_are_of_one_measurement_a_problem():
    old = [row(BASELINE, t, 10.0) for t in (1, 16)] + [row(VECTOR, t, 8.0) for t in (1, 16)]
    new = [replace(row(BASELINE, 16, 20.0), noise={"cold": 0.01}, time="2026-11-22T08:00:00+00:00")]
    for rows in (old + new, new + old):  # whichever file comes first
        (axes,) = plots.latency(rows).axes
        drawn = {tuple(bar.lines[0].get_ydata()) for bar in axes.containers}
        assert drawn == {(10.0, 20.0), (8.0,)}
        assert "each problem's last measurement" in axes.get_ylabel()
        assert [made.timing["cold"].median_us for made in plots.kinds(rows)["router-bf16-nk"]] == [10, 8, 20, 8]
    assert "measurement" not in plots.latency(old).axes[0].get_ylabel()


def test_the_speedup_by_t_is_on_a_log_axis_with_intervals():
    rows = router_rows()
    (axes,) = plots.speedup(rows).axes
    assert axes.get_xscale() == "log"
    assert texts(axes.figure) == {"triton parallel", "tilus serial", "parallel", "serial"}
    (triton,) = [bar for bar in axes.containers if len(bar.lines[0].get_xdata()) == 3]
    figures = rows[1].timing["cold"]
    (_, low), (_, high) = triton.lines[2][0].get_segments()[0]
    assert triton.lines[0].get_ydata()[0] == figures.speedup
    assert (low, high) == pytest.approx((figures.speedup_low, figures.speedup_high))


def test_the_share_of_the_floor_is_in_percent():
    (axes,) = plots.floor(router_rows()).axes
    assert list(axes.containers[0].lines[0].get_ydata()) == [50.0, 50.0, 50.0]  # 5 us of torch.mm's 10


def test_fused_is_held_against_unfused():
    figure = plots.fused(suite_rows("skinny-epilogue-bf16"))
    assert all(len(axes.containers) == 2 for axes in figure.axes)
    drawn = [value for axes in figure.axes for bar in axes.containers for value in bar.lines[0].get_ydata()]
    assert drawn == pytest.approx([1.25] * 28 * 2)
    assert plots.fused(router_rows()) is None


def test_fused_is_held_against_the_same_config_alone():
    rows = suite_rows("skinny-epilogue-bf16")
    for made in rows:
        if made.contender.endswith("_unfused"):
            made.config = {"split_k": 64}
    assert plots.fused(rows) is None


def test_the_pareto_front_joins_those_that_none_beats_in_both():
    assert plots._front([(1.0, 3.0), (2.0, 1.0), (1.5, 2.0), (2.0, 2.5), (3.0, 1.0)]) == [(1, 3), (1.5, 2), (2, 1)]
    rows = router_rows()
    (axes,) = plots.pareto(rows).axes
    hollow = {bar.lines[0].get_color() for bar in axes.containers if bar.lines[0].get_markerfacecolor() == "white"}
    assert hollow == {plots.COLOURS["tilus"]}  # which passed on one problem of three
    assert "not on every problem" in texts(axes.figure)


def test_the_pareto_front_is_of_those_that_have_figures_on_every_problem():
    rows = [row(BASELINE, t, 10.0) for t in (1, 16)] + [row(VECTOR, t, 8.0) for t in (1, 16)]
    once = row(FP32, 1, 2.0)
    once.accuracy.times_torch = 0.5
    (axes,) = plots.pareto([*rows, once]).axes
    _, *corners, _ = front(axes)
    assert corners == [(1.0, 0.8)]
    twice = row(FP32, 16, 2.0)
    (axes,) = plots.pareto([*rows, once, twice]).axes
    _, *corners, _ = front(axes)
    assert corners == [(1.0, pytest.approx(0.2))]


def test_errors_are_held_against_the_baselines_own():
    errors = {(BASELINE, 1): 14.0, (VECTOR, 1): 7.0, (BASELINE, 16): 5.0, (VECTOR, 16): 4.0}
    rows = [row(name, t, 10.0 if name == BASELINE else 8.0) for name, t in errors]
    for made, error in zip(rows, errors.values(), strict=True):
        made.accuracy.times_torch = error
    (axes,) = plots.pareto(rows).axes
    drawn = {bar.lines[0].get_color(): bar.lines[0].get_xdata()[0] for bar in axes.containers}
    assert drawn == pytest.approx({plots.COLOURS["torch"]: 1.0, plots.COLOURS["triton"]: 0.8})


@pytest.mark.parametrize("us", [7.0, 9.7, 12.3, 13.1, 17.9])
def test_of_one_problem_the_least_is_the_typical_and_the_most(us):
    figure = plots.pareto([row(BASELINE, 1, 10.0), row(VECTOR, 1, us)])
    (axes,) = figure.axes
    drawn = [bar.lines[0].get_ydata()[0] for bar in axes.containers]
    assert drawn == pytest.approx([1.0, us / 10])


def test_names_stand_where_lines_end():
    rows = [row(BASELINE, t, 10.0) for t in (1, 16, 256)] + [row(VECTOR, t, 8.0) for t in (1, 16, 256)]
    rows.append(row("tilus/atomic", 1, 9.0))
    (axes,) = plots.latency(rows).axes
    beside = {text.get_text(): text.xyann[0] for text in axes.texts}
    assert beside[VECTOR] == beside[BASELINE] > 1
    assert beside["tilus/atomic"] < 0.2


# No subnormals: a kernel of tilus' that an older g++ linked has the CPU flush them, and hypothesis then draws none.
@given(st.lists(st.floats(0, 1, allow_subnormal=False), max_size=40), st.floats(0.01, 0.1))
def test_names_are_kept_apart_and_within(heights, gap):
    placed = plots._apart(sorted(heights), gap)
    assert len(placed) == len(heights)
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)
    least = min(gap, 1 / max(1, len(heights)))
    assert all(above - below >= least - 1e-9 for below, above in pairwise(placed))


def test_names_that_are_apart_stay_where_they_are():
    assert plots._apart([0.1, 0.5, 0.9], 0.05) == pytest.approx([0.1, 0.5, 0.9])
    assert plots._apart([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])


def test_files_are_written_once_a_kind_and_say_which_rows_they_show(tmp_path):
    rows = [*router_rows(), *suite_rows("square-tutorial")]
    written = {path.name for path in plots.write(rows, tmp_path / "new")}
    assert "router-bf16-nk-speedup.svg" in written
    assert "square-tutorial-fp16-kn-fused.svg" in written
    assert "router-bf16-nk-fused.svg" not in written
    assert written == {path.name for path in (tmp_path / "new").iterdir()}
    once = tmp_path / "new" / "router-bf16-nk-speedup.svg"
    assert plots.stamped(once) == plots.stamp(router_rows()) != plots.stamp(router_rows()[1:])
    before = once.read_bytes()
    plots.save("speedup", router_rows(), once)
    assert once.read_bytes() == before
    assert plots.stamped(tmp_path / "none.svg") is None


@pytest.mark.parametrize("protocol", [*NAMED, "telepathy"])
def test_a_protocol_of_any_name_can_be_drawn(protocol):
    rows = [row(BASELINE, 1), replace(row(VECTOR, 1, 8.0), protocol=protocol)]
    assert texts(plots.speedup(rows)) == {f"triton {protocol}", protocol}


def test_rows_that_were_not_timed_have_no_plots(tmp_path):
    with pytest.raises(ValueError, match="rows that were timed"):
        plots.write([row(VECTOR, 1, None)], tmp_path)


def test_the_best_of_each_language_is_drawn_beside_the_baseline():
    figure = plots.best(suite_rows("router"))
    (axes,) = figure.axes
    drawn = [set(lines.lines[0].get_ydata()) for lines in axes.containers if len(lines.lines[0].get_ydata())]
    assert {10.0} in drawn and {8.0} in drawn and {9.0} in drawn
    assert {"torch.mm", "best triton", "best tilus"} <= texts(figure)
    assert not {"parallel", "library"} & texts(figure)


def studied_rows(workload: str):
    """Every curve of the study, and a faster kernel in both languages."""
    us = {f"{plots.STUDYS_OWN}.{variant}": at for variant, at in (("optimized", 7.0), ("first", 8.0))}
    us |= {f"{contender}{plots.UNFUSED}": at + 0.2 for contender, at in us.items()} | {"triton/atomic": 6.5}
    of_torch = {"compile.max_autotune_no_cudagraphs": 9.5, "custom_op.fused": 8.5, "custom_op.fused_dynamic": 9.0}
    made = []
    for name, problem in workloads.problems(workload):
        more = {"problem": problem, "workload": name}
        made.append(row(BASELINE, us=10.0, **more))
        made += [of_library(contender, problem, at, workload=name) for contender, at in of_torch.items()]
        made += [replace(row(contender, us=at, **more), protocol="parallel") for contender, at in us.items()]
        made += [row(f"{language}/cluster", us=at, **more) for language, at in (("triton", 5.0), ("tilus", 5.5))]
        made += [row("tilus/atomic@triton", us=1.0, **more)]  # with the other language's config
    return made


@pytest.mark.parametrize(
    ("plot", "variant", "us"), [(plots.published, "optimized", 7.0), (plots.original, "first", 8.0)]
)
def test_the_studys_plots_have_their_five_curves_and_ours(plot, variant, us):
    rows = studied_rows("skinny-epilogue-bf16")
    figure = plot(rows)
    titles = [axes.get_title(loc="left").split(",")[0] for axes in figure.axes]
    assert titles == ["M = N = 16", "M = N = 32", "M = N = 48", "M = N = 64"]
    axes = figure.axes[0]
    drawn = [(bar.lines[0].get_ydata()[0], bar.lines[0].get_linestyle()) for bar in axes.containers]
    assert drawn[:5] == [(10.0, "-"), (9.5, "-."), (8.5, ":"), (us, "-"), (us + 0.2, ":")]
    assert drawn[5:] == [(6.5, "-"), (5.0, "--"), (5.5, "--")]
    colours = [bar.lines[0].get_color() for bar in axes.containers]
    assert colours[3:] == [plots.COLOURS[name] for name in (*["published_triton"] * 2, "triton", "triton", "tilus")]
    assert {*plots.STUDYS_CURVES, *plots.ONE_LAUNCH, "best triton", "best tilus"} <= texts(figure)
    assert {f"{variant}, as published", f"{variant}, as published, ReLU apart"} <= texts(figure)
    assert list(axes.containers[0].lines[0].get_xdata()) == [8192, 12288, 16384, 20480, 24576, 28672, 32768]


def test_the_studys_smallest_slice_stands_alone():
    rows = studied_rows("skinny-matmul-bf16")
    (axes,) = plots.smallest(rows).axes
    assert axes.get_title(loc="left").startswith("M = N = 16") and len(axes.containers) == 8
    assert plots.smallest([made for made in rows if made.problem.m == 16]) is None  # `published` is that
    assert plots.smallest(studied_rows("router")) is None


def test_without_the_studys_kernel_there_is_no_plot_of_it():
    rows = [made for made in studied_rows("skinny-matmul-bf16") if made.language != "published_triton"]
    assert plots.published(rows) is None and plots.original(rows) is None and plots.smallest(rows) is None
    without_torch = [made for made in studied_rows("skinny-matmul-bf16") if "torch/c" not in made.contender]
    assert len(plots.published(without_torch).axes[0].containers) == 6


def papers_rows():
    """The W4A16 paper's kernels, the former by two splits, and a faster kernel of ours."""
    us = {"published_triton/w4a16.splitk@s2": 8.0, "published_triton/w4a16.splitk@s4": 4.0, "triton/w4a16.atomic": 2.0}
    us |= {"published_triton/w4a16.data_parallel": 10.0}
    more = {"workload": "w4a16-square"}
    return [
        row(contender, us=at, problem=problem, **more)
        for _, problem in workloads.problems("w4a16-square")
        for contender, at in ({"torch/dequantized_mm": 10.0} | us).items()
    ]


def test_the_papers_plots_are_of_throughput_over_the_size():
    rows = papers_rows()
    figure = plots.throughput(rows)
    assert [axes.get_title(loc="left").split(",")[0] for axes in figure.axes] == ["M = 1", "M = 16"]
    axes = figure.axes[1]
    tera = 2 * 16 * 4096 * 4096 / 1e6
    at_4096 = [bar.lines[0].get_ydata()[list(bar.lines[0].get_xdata()).index(4096)] for bar in axes.containers]
    assert at_4096 == pytest.approx([tera / us for us in (4.0, 10.0, 2.0)])
    assert {*plots.PAPERS_CURVES, "best triton"} <= texts(figure)
    assert figure.axes[0].get_ylabel().startswith("TFLOPS (cold")
    assert plots.throughput([made for made in rows if "splitk" not in made.contender]) is None


def test_the_papers_split_factors_are_a_curve_each():
    figure = plots.splits(papers_rows())
    axes = figure.axes[0]
    tera = 2 * 512 * 512 / 1e6
    assert [bar.lines[0].get_ydata()[0] for bar in axes.containers] == pytest.approx([tera / 8.0, tera / 4.0])
    assert {"split factor 2", "split factor 4"} <= texts(figure)
    assert plots.splits([made for made in papers_rows() if "@s" not in made.contender]) is None


def test_the_command_writes_them(tmp_path, capsys):
    tables.write_json(router_rows(), tmp_path / "rows.json")
    assert report.main([str(tmp_path / "rows.json"), "--plot", str(tmp_path / "plots")]) == 0
    assert "router-bf16-nk-latency.svg" in capsys.readouterr().out.replace("\n", "")
    assert len(list((tmp_path / "plots").iterdir())) == 6


def test_what_is_slower_by_far_is_left_out_of_the_speedups_and_the_axis_says_so():
    rows = [made for t, us in ((1, 8.0), (16, 100.0)) for made in (row(BASELINE, t, 10.0), row(VECTOR, t, us))]
    (axes,) = plots.speedup(rows).axes
    (drawn,) = [lines for lines in axes.containers if len(lines.lines[0].get_ydata())]
    assert list(drawn.lines[0].get_ydata()) == [1.25]
    assert "from 0.4 on" in axes.get_ylabel()
    (axes,) = plots.speedup(rows[:2] + router_rows()).axes
    assert "from" not in axes.get_ylabel()
