"""Stages of a kernel alone: what is launched, how they are timed and recorded, the budget that a page shows."""

from types import SimpleNamespace

import pytest
import torch
from cuda_source import source_of
from fake_device import FakeDevice
from made_rows import BASELINE
from said import on_stderr
from tilus.utils import cdiv

from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench import stages as command
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.diagnostics import boundary, stages
from triton_vs_tilus.bench.measure import floor
from triton_vs_tilus.bench.measure.clock import Arguments, Clocks, NotTimed, Samples, Timed, time_together
from triton_vs_tilus.bench.measure.worker import AGAIN
from triton_vs_tilus.bench.rows import queries
from triton_vs_tilus.bench.rows.journal import read_stages, to_line
from triton_vs_tilus.bench.rows.row import ProblemRecord
from triton_vs_tilus.bench.search import build
from triton_vs_tilus.bench.show import docs
from triton_vs_tilus.bench.show.stages import budget_table
from triton_vs_tilus.common import call, plan
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul

CPU = torch.device("cpu")
PROBLEM = Matmul(4, 32, 512, layout=Layout.NK, epilogue=Epilogue.RELU)
NAMES = ["triton/decompose_k.vector_pdl", "tilus/decompose_k.vector_pdl", "triton/decompose_k.vector_unfused"]
VECTOR, CLUSTER, SLICED = "tilus/decompose_k.vector", "tilus/cluster", "triton/sliced_k.mma"


def parts(name, problem=PROBLEM):
    return stages.parts(contenders.find(name), problem, CPU)


@pytest.mark.parametrize("name", NAMES)
def test_the_stages_of_two_launches_are_the_kernels_own(name):
    kernel = contenders.find(name)
    config = kernel.default_config(PROBLEM)
    launches = kernel.plan(PROBLEM, config, contiguous(PROBLEM)).launches
    whole, *alone = (part for part in parts(name) if part.stage != "boundary")
    assert (whole.stage, whole.kernel) == ("whole", kernel)
    assert [part.stage for part in alone] == ["product", "meeting"]
    plans = [part.kernel.plan(PROBLEM, part.config, contiguous(PROBLEM)) for part in alone]
    assert [each.launches for each in plans] == [(launch,) for launch in launches]
    assert {each.unfused for each in plans} == {Epilogue.NONE}
    # By their names calls are kept apart.
    assert [part.kernel.full_name for part in alone] == [f"{name}#1", f"{name}#2"]


@pytest.mark.parametrize("name", NAMES[:2])
def test_at_the_boundary_as_many_blocks_do_nothing(name, tmp_path):
    kernel = contenders.find(name)
    config = kernel.default_config(PROBLEM)
    product, meeting = kernel.plan(PROBLEM, config, contiguous(PROBLEM)).launches
    (part,) = [part for part in parts(name) if part.stage == "boundary"]
    assert part.kernel.full_name == f"{name}#1+nothing"
    first, nothing = part.kernel.plan(PROBLEM, part.config, contiguous(PROBLEM)).launches
    assert first == product
    if name.startswith("triton"):
        same = ("num_warps", "PDL", "launch_pdl")
        assert nothing.kernel is boundary._nothing_kernel and nothing.grid == meeting.grid
        assert {option: nothing.options[option] for option in same} == {
            option: meeting.options[option] for option in same
        }
    else:
        blocks = cdiv(PROBLEM.m, config.reduce_rows), cdiv(PROBLEM.n, config.reduce_block)
        assert nothing.arguments[1:] == blocks
        dependent = kernel.full_name.endswith("pdl")
        launch = source_of(nothing.kernel, 1, *blocks, folder=tmp_path)
        assert ("griddepcontrol.wait" in launch) == ("ProgrammaticStreamSerialization" in launch) == dependent
        assert f"dim3({32 * config.reduce_warps}, 1, 1)" in launch


@pytest.mark.parametrize("name", ["triton/decompose_k.tile", "tilus/decompose_k.vector_unfused"])
def test_of_other_variants_the_boundary_is_not_timed(name):
    assert [part.stage for part in parts(name)] == ["whole", "product", "meeting"]


@pytest.mark.parametrize("name", ["tilus/cluster", "tilus/atomic", "triton/last_arriver", "triton/semaphore.fp32"])
def test_the_product_of_one_launch_is_decompose_ks_on_its_config(name):
    whole, product = parts(name)
    language, _, kernel = name.partition("/")
    assert (product.stage, product.kernel.full_name) == ("product", f"{language}/decompose_k.vector@{kernel}#1")
    of_one = vars(whole.config)
    assert of_one == {field: value for field, value in vars(product.config).items() if field in of_one}
    planned = product.kernel.plan(PROBLEM, product.config, contiguous(PROBLEM))
    splits = contenders.find(f"{language}/decompose_k.vector")
    assert planned.launches == splits.plan(PROBLEM, product.config, contiguous(PROBLEM)).launches[:1]


@pytest.mark.parametrize("name", ["triton/sliced_k.mma", "tilus/sliced_k.mma", "tilus/stream_k", "torch/mm"])
def test_other_kernels_of_one_launch_are_whole(name):
    assert [part.stage for part in parts(name)] == ["whole"]


def test_a_config_that_decompose_k_cannot_run_has_no_product(monkeypatch):
    monkeypatch.setattr(stages.contenders, "sits_out", lambda *_: "its config: why")
    assert [part.stage for part in parts(CLUSTER)] == ["whole"]


@pytest.mark.parametrize("name", NAMES[:2])
def test_one_after_the_other_they_are_the_product(name, device, monkeypatch):
    """Where both have the same scratch. The first alone leaves C as it is."""
    problem, kernel = PROBLEM, contenders.find(name)
    inputs, config = problem.inputs(device), kernel.default_config(problem)
    held = torch.empty(config.split_k, problem.m, problem.n, device=device)
    monkeypatch.setattr(plan, "_allocator", lambda device: lambda *shaped: held)
    monkeypatch.setattr(call, "_calls", {})
    out = torch.full((problem.m, problem.n), 7.0, dtype=problem.out_dtype, device=device)
    _, first, behind, second = stages.parts(kernel, problem, device)
    args, kwargs = kernel.arguments(problem, inputs)
    for part in (first, behind):
        part.kernel.launch(*args, **kwargs, out=out, config=config)
        assert (out == 7.0).all()
    second.kernel.launch(*args, **kwargs, out=out, config=config)
    assert Judge(problem, inputs).judge(out, kernel.roundings(config)).ok


def test_a_stage_that_leaves_c_as_it_was_can_be_captured(monkeypatch):
    """The clock refuses a call whose result no replay of its graph writes: a stage returns none."""
    gpu = FakeDevice()

    def launch(out):
        gpu.launch(5.0)
        return out

    made = Timed("made", launch, [Arguments((torch.empty(4),), {})], fault=lambda index, result: None)
    monkeypatch.setattr(stages, "timed", lambda *_: made)
    whole, product, *_ = (stages._entrant(part, PROBLEM, CPU) for part in parts(VECTOR))
    (samples,) = time_together([product], "warm", 3, gpu)
    assert samples.rounds == [[pytest.approx(5.0)]] * 3 and product.fault is None
    with pytest.raises(NotTimed, match="another stream"):
        time_together([whole], "warm", 3, gpu)


def test_the_meeting_alone_follows_the_product_on_the_same_set(monkeypatch):
    called = []

    def timed(name, *_):
        def launch(out):
            called.append((name, int(out[0])))

        return Timed(name, launch, [Arguments((torch.full((1,), index),), {}) for index in range(3)])

    monkeypatch.setattr(stages, "timed", timed)
    entrants = {part.stage: stages._entrant(part, PROBLEM, CPU) for part in parts(VECTOR)}
    for stage, told in (("whole", []), ("product", []), ("boundary", []), ("meeting", [(f"{VECTOR}#1", 2)])):
        entrants[stage].before(2)
        assert called == told, stage


TIMES = {
    BASELINE: 10.0,
    AGAIN: 10.0,
    VECTOR: 8.0,
    f"{VECTOR}#1": 5.5,
    f"{VECTOR}#1+nothing": 7.1,
    f"{VECTOR}#2": 3.2,
    CLUSTER: 7.0,
    f"{VECTOR}@cluster#1": 6.0,
    SLICED: 6.5,
    floor.LAUNCH: 3.0,
    floor.READ: 5.0,
}  # microseconds, cold; warm takes half


@pytest.fixture
def clock(monkeypatch):
    """Of made-up times. Holds what was timed together, by mode: whether it is judged, by name."""
    seen = {}

    def timed(name, kernel, *_):
        return Timed(name, kernel.launch, [Arguments((torch.empty(1),), {})], fault=lambda index, result: "wrong")

    def time_together(entrants, mode, rounds, clock, *, announce):
        seen[mode] = {one.name: one.fault is not None for one in entrants}
        share = {"cold": 1.0, "warm": 0.5}[mode]
        clocks = Clocks([], 0, "made up")
        return [
            Samples(one.name, mode, [[TIMES[one.name] * share] * 20] * rounds, clocks, order_seed=0) for one in entrants
        ]

    def floors(*_, **__):
        arguments = [Arguments((torch.empty(1),), {})]
        return [Timed(name, lambda tensor: None, arguments) for name in (floor.LAUNCH, floor.READ)]

    monkeypatch.setattr(stages, "timed", timed)
    monkeypatch.setattr(stages, "time_together", time_together)
    monkeypatch.setattr(stages.floor, "floors", floors)
    for name in ("clock_of", "rotation_of"):
        monkeypatch.setattr(stages, name, lambda *_: SimpleNamespace(reads=list))
    return seen


def measured(problem=PROBLEM):
    return stages.measure(
        "router", problem, [contenders.find(name) for name in (BASELINE, VECTOR, CLUSTER, SLICED)], 3, CPU
    )


def test_the_whole_is_judged_and_its_stages_are_timed_beside_it(clock):
    made = measured()
    assert {(stage.contender, stage.stage): stage.launch for stage in made} == {
        (BASELINE, "whole"): BASELINE,
        (VECTOR, "whole"): VECTOR,
        (VECTOR, "product"): f"{VECTOR}#1",
        (VECTOR, "boundary"): f"{VECTOR}#1+nothing",
        (VECTOR, "meeting"): f"{VECTOR}#2",
        (CLUSTER, "whole"): CLUSTER,
        (CLUSTER, "product"): f"{VECTOR}@cluster#1",
        (SLICED, "whole"): SLICED,
    }
    assert clock["cold"] == clock["warm"] and clock["cold"].keys() == TIMES.keys()
    assert {name for name, judged in clock["cold"].items() if judged} == {BASELINE, AGAIN, VECTOR, CLUSTER, SLICED}
    for stage in made:
        assert stage.timing["cold"].median_us == TIMES[stage.launch] == 2 * stage.timing["warm"].median_us
        assert stage.timing["cold"].speedup == pytest.approx(10.0 / TIMES[stage.launch])
        assert (stage.floor["warm"].launch_us, stage.floor["warm"].read_us) == (1.5, 2.5)
    assert made[0].timing["cold"].verdict == "baseline"
    assert made[2].command.startswith("python bench/stages.py --shape 4x32x512")
    assert made[2].config["split_k"] and made[2].problem == ProblemRecord.from_problem(PROBLEM)


def test_a_budget_is_the_differences_of_what_was_timed(clock):
    table = budget_table(measured(), "cold", ["*"])
    floor_line, torch_line, vector, cluster, sliced = (
        dict(zip([name.replace("\n", " ") for name in table.header], line, strict=True)) for line in table.lines
    )
    assert floor_line == {
        **dict.fromkeys(floor_line, ""),
        **{"M": "4", "contender": "floor/read", "us": "5.00", "launch": "3.00", "read": "2.00", "x torch.mm": "2.00"},
    }
    assert (vector["us"], vector["product"], vector["meeting"]) == ("8.00", "0.50", "2.50")
    assert (vector["boundary"], vector["alone"]) == ("1.60", "0.20")
    assert (vector["x torch.mm"], vector["without meeting"]) == ("1.25", "1.82")
    parts_us = [float(vector[name]) for name in ("launch", "read", "product", "meeting")]
    assert sum(parts_us) == float(vector["us"])
    assert (cluster["product"], cluster["meeting"], cluster["alone"]) == ("1.00", "1.00", "")
    assert (sliced["product"], sliced["meeting"], sliced["without meeting"]) == ("1.50†", "", "")
    assert torch_line["product"] == "5.00†"
    assert table.title.endswith("cold L2") and "an empty kernel" in table.foot and "torch.mm. Recorded on" in table.foot
    warm = budget_table(measured(), "warm", [CLUSTER])
    assert [line[1] for line in warm.lines] == ["floor/read", CLUSTER] and warm.lines[1][2] == "3.50"


def test_without_names_each_languages_fastest_is_shown(clock):
    two = [*measured(), *measured(Matmul(8, 32, 512, layout=Layout.NK, epilogue=Epilogue.RELU))]
    shown = [line[:2] for line in budget_table(two, "cold").lines]
    each = ["floor/read", BASELINE, CLUSTER, SLICED]
    assert shown == [*([tokens, name] for tokens in ("4", "8") for name in each)]
    with pytest.raises(ValueError, match=r"nothing of tilus/none was timed by its stages"):
        budget_table(two, "cold", ["tilus/none"])


def test_a_page_shows_where_the_time_goes(clock, results, tmp_path):
    file = results / "h200" / "stages" / "router.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(map(to_line, measured())))
    assert queries.recorded() == {}  # these are no rows
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- stages:router -->\nold\n<!-- /stages -->\n<!-- stages:router@warm triton/* -->\n<!-- /stages -->\n"
    )
    assert docs.update([page]) == [page]
    assert f"| 4 | {CLUSTER} | 7.00 | 3.00 | 2.00 | 1.00 | 1.00 |  |  | 1.43 | 1.67 |" in page.read_text()
    assert f"| 4 | {SLICED} | 3.25 | 1.50 | 1.00 | 0.75† |  |  |  | 1.54 |  |" in page.read_text()
    assert "\nold\n" not in page.read_text() and docs.update([page]) == []
    page.write_text("<!-- stages:square -->\n<!-- /stages -->\n")
    with pytest.raises(ValueError, match=r"page\.md: stages:square: no device has stages/square\.jsonl"):
        docs.update([page])


ASKED = ["--problem", "16x256x7168-bf16-nk", "--problem", "64x256x7168-bf16-nk", "--only", VECTOR, "--only", SLICED]


@pytest.fixture
def gpu(monkeypatch, tmp_path, clock):
    """A machine with a GPU, as far as the command can tell. Holds the programs that were built ahead."""
    built = {}

    def build_ahead(problems, **how):
        built.update({problem.name: [kernel.full_name for kernel in kernels] for problem, kernels in problems})

    monkeypatch.setattr("triton_vs_tilus.bench.cli.has_gpu", lambda: True)
    record = stages.record
    on_cpu = lambda chosen, rounds, output, _, report: record(chosen, rounds, output, CPU, report)  # noqa: E731
    monkeypatch.setattr(stages, "record", on_cpu)
    monkeypatch.setattr(build, "build_ahead", build_ahead)
    monkeypatch.setattr(command, "FOLDER", tmp_path / "stages")
    return built


def test_the_command_records_every_problem(gpu, tmp_path, capsys):
    output = tmp_path / "made" / "router.jsonl"
    assert run_command(command.main, [*ASKED, "--only", CLUSTER, "--output", str(output)]) == 0
    made = read_stages(output)
    of_each = {(BASELINE, "whole"), (SLICED, "whole"), (CLUSTER, "whole"), (CLUSTER, "product")}
    of_each |= {(VECTOR, stage) for stage in ("whole", "product", "boundary", "meeting")}
    for tokens in (16, 64):
        assert {(stage.contender, stage.stage) for stage in made if stage.problem.m == tokens} == of_each
    assert set(gpu["16x256x7168-bf16-nk"]) == {BASELINE, VECTOR, SLICED, CLUSTER, f"{VECTOR}@cluster"}
    printed, told = capsys.readouterr()
    assert "cold L2" in printed and "warm L2" in printed and CLUSTER in printed
    assert f"stages: {output}" in told and "64x256x7168-bf16-nk: 8 launches in" in told
    assert run_command(command.main, [*ASKED, "--output", str(output)]) == 2
    assert "exists already" in on_stderr(capsys)


def test_a_problem_whose_kernel_is_wrong_is_told_and_left_out(gpu, monkeypatch, tmp_path, capsys):
    together = stages.time_together

    def one_wrong(entrants, *rest, **more):
        if one_wrong.left:
            one_wrong.left -= 1
            raise NotTimed(VECTOR, "error 1 is over the bound 0.1", wrong=True)
        return together(entrants, *rest, **more)

    one_wrong.left = 1
    monkeypatch.setattr(stages, "time_together", one_wrong)
    assert run_command(command.main, ASKED) == 1
    (output,) = (tmp_path / "stages").glob("*.jsonl")
    assert {stage.problem.m for stage in read_stages(output)} == {64}
    assert f"16x256x7168-bf16-nk: {VECTOR}: error 1 is over the bound 0.1" in on_stderr(capsys)


def test_stages_are_of_products_of_two_matrices(monkeypatch, capsys):
    monkeypatch.setattr("triton_vs_tilus.bench.cli.has_gpu", lambda: True)
    assert run_command(command.main, ["--problem", "w4a16-16x4096x4096-fp16-g128"]) == 2
    assert "no problem is a product of two matrices" in on_stderr(capsys)


def test_stages_of_one_device_are_found_by_its_name():
    for slug in ("h100-80gb-hbm3", "h200"):
        (file,) = queries.recorded_stages(f"{slug}:router")
        assert (file.parent.parent.name, file.parent.name) == (slug, "stages")
    assert queries.recorded_stages("h200:study") == {}


def test_without_a_gpu_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setattr("triton_vs_tilus.bench.cli.has_gpu", lambda: False)
    assert run_command(command.main, ["--problem", "16x256x7168-bf16-nk"]) == 2
    assert "there is no CUDA device" in on_stderr(capsys)
