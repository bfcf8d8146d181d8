"""The interpreter of tilus as a tool: any Script, called as on a GPU, from a file, in many orders, in others' tests."""

import re
import textwrap
from pathlib import Path

import pytest
import tilus
import torch
from said import the_error
from tilus import float32, int32, void_p
from tilus.utils import cdiv

from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus.interpreter import Schedule, upstream
from triton_vs_tilus.kernels_tilus.interpreter.__main__ import main

ROOT = Path(__file__).parent.parent
pytest_plugins = ["pytester", "triton_vs_tilus.kernels_tilus.interpreter.plugin"]

SCRIPT = """
import tilus
from tilus import float32, int32


class RunningSum(tilus.Script):
    def __init__(self, sync=True):
        super().__init__()
        self.sync_before = sync

    def __call__(self, n: int32, x_ptr: ~float32, sums_ptr: ~float32, turn_ptr: ~int32):
        self.attrs.blocks = n
        self.attrs.warps = 2
        x = self.global_view(x_ptr, dtype=float32, shape=[n])
        sums = self.global_view(sums_ptr, dtype=float32, shape=[n])
        turn: ~int32 = self.global_view(turn_ptr, dtype=int32, shape=[1])[0].item_ptr()
        block: int32 = self.blockIdx.x
        total = self.load_global(x, offsets=[block], shape=[1])
        self.lock_semaphore(turn, value=block)
        if block > 0:
            total = total + self.load_global(sums, offsets=[block - 1], shape=[1])
        self.store_global(sums, total, offsets=[block])
        if self.sync_before:
            self.sync()
        self.release_semaphore(turn, value=block + 1)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "running_sum.py"
    path.write_text(SCRIPT)
    return f"{path}:RunningSum"


ARGS = ["--args", "6", "arange(6)", "zeros(6)", "turn_ptr=zeros(1)"]


def test_a_script_from_a_file(file, capsys):
    assert main([file, *ARGS, "--expect", "sums_ptr=x_ptr.cumsum(0)"]) == 0
    said = capsys.readouterr().out
    assert "sums_ptr: float32 [6] = [0, 1, 3, 6, ...]" in said
    assert "x_ptr:" not in said
    assert main([file, *ARGS, "--expect", "sums_ptr=x_ptr"]) == 1
    assert "sums_ptr is not x_ptr: Tensor-likes are not close!" in capsys.readouterr().out


def test_the_note_shows_the_lines_that_its_example_prints(tmp_path, capsys):
    note = (ROOT / "notes" / "interpreter.md").read_text()
    path = tmp_path / "running_sum.py"
    path.write_text(note.partition("```python\n")[2].partition("```")[0])
    shown = [line for line in note.splitlines() if re.search(r"running_sum\.py:\d", line)]
    arguments = ["--args", "8", "arange(8)", "zeros(8)", "zeros(1)", "--schedules", "2"]
    assert main([f"{path}:RunningSum", "--init", "sync=False", *arguments]) == 1
    assert len(shown) == 2 and set(shown) <= set(capsys.readouterr().out.splitlines())


def test_its_mistake_is_told_and_can_be_let_pass(file, capsys):
    wrong = [file, "--init", "sync=False", *ARGS]
    assert main(wrong) == 1
    assert "Race: reads sums_ptr[0], which block (0, 0, 0) wrote at running_sum.py" in capsys.readouterr().out
    assert main([*wrong, "--warn", "Race"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("warning: Race: reads sums_ptr[0]")
    assert "sums_ptr: float32 [6] = [0, 1, 3, 6, ...]" in said


def test_orders_are_explored_and_a_seed_repeats_one(file, capsys):
    assert main([file, *ARGS, "--schedules", "5"]) == 0
    assert capsys.readouterr().out == "5 orders ran, with bitwise the same results\n"
    assert main([file, "--init", "sync=False", *ARGS, "--schedules", "3", "--seed", "7"]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("--seed 7 (Schedule(order='random'")
    assert last == "3 of 3 orders fail"


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--args", "6"], "RunningSum is called without x_ptr, sums_ptr, turn_ptr; accepted: n, x_ptr"),
        (["--args", *"123456"], "6 arguments; accepted: n, x_ptr, sums_ptr, turn_ptr"),
        ([*ARGS, "--warn", "Rice"], "--warn Rice; accepted: KernelError, Unsupported"),
        ([*ARGS, "--candidate", "3"], "candidate is 3; accepted: 0 to 0"),
        (["--args", "6.5", "arange(6)", "zeros(6)", "zeros(1)"], "n is 6.5; accepted: an int"),
    ],
)
def test_a_wrong_call_is_one_error(file, arguments, words, capsys):
    with pytest.raises(SystemExit):
        main([file, *arguments])
    assert words in the_error(capsys)


@pytest.mark.parametrize(
    "name, words",
    [
        ("running_sum.py", "accepted: FILE.py:CLASS"),
        ("no_such.py:RunningSum", "no such Python file"),
        ("running_sum.py:Sum", "has no Script 'Sum'; accepted: RunningSum"),
    ],
)
def test_a_script_that_is_not_there_is_one_error(file, name, words, capsys, tmp_path):
    with pytest.raises(SystemExit):
        main([str(tmp_path / name)])
    assert words in the_error(capsys)


@tilus.autotune("block", [48, 64, 128])
class Doubled(tilus.Script):
    """Of the candidates the first does not transpile, as tilus' tiles are of a power of two."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: void_p):
        self.static_assert(self.block % 64 == 0, "block is not a multiple of 64")
        self.attrs.blocks = cdiv(n, self.block)
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[n])
        y = self.global_view(y_ptr, dtype=float32, shape=[n])
        begin: int32 = self.blockIdx.x * self.block
        self.store_global(y, self.load_global(x, offsets=[begin], shape=[self.block]) * 2.0, offsets=[begin])


def test_a_script_is_called_as_on_a_gpu():
    x, y, z = torch.randn(100), torch.zeros(100), torch.zeros(100)
    with interpreter.on_cpu():
        Doubled()(100, x, y.data_ptr())
        Doubled()(y_ptr=z, n=50, x_ptr=x.data_ptr())
    assert torch.equal(y, 2 * x)
    assert torch.equal(z[:50], 2 * x[:50]) and (z[50:] == 0).all()


def test_a_candidate_is_chosen_by_its_number():
    blocks = []
    with interpreter.on_cpu(candidate=2, debug=lambda step: blocks.append(step.block)):
        Doubled()(100, torch.zeros(100), torch.zeros(100))
    assert set(blocks) == {(0, 0, 0)}
    with pytest.raises(Exception, match="multiple of 64"), interpreter.on_cpu(candidate=0):
        Doubled()(100, torch.zeros(100), torch.zeros(100))


@pytest.mark.parametrize(
    "args, words",
    [
        (
            (100, torch.zeros(100)),
            "missing a required argument: 'y_ptr'; accepted: n: int32, x_ptr: ~float32, y_ptr: void_p",
        ),
        ((100, torch.zeros(100).half(), torch.zeros(100)), "x_ptr has dtype torch.float16; accepted: torch.float32"),
        ((100, torch.zeros(100), 64), "y_ptr is 0x40; accepted: a CPU tensor, its data_ptr"),
    ],
)
def test_a_wrong_call_of_a_script_is_one_error(args, words):
    with pytest.raises(TypeError, match=words), interpreter.on_cpu():
        Doubled()(*args)


class Meeting(tilus.Script):
    """Two blocks store to one element."""

    def __call__(self, x_ptr: ~float32):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[1])
        block: int32 = self.blockIdx.x
        ramp = self.register_tensor(dtype=int32, shape=[1], init=lambda i: block)
        self.store_global(x, self.cast(ramp, dtype=float32), offsets=[0])


def test_explored_orders_say_which_failed_and_what_differs():
    explored = interpreter.explore(Meeting(), torch.zeros(1), seeds=range(4))
    assert explored.runs == len(explored.failures) == 4
    assert isinstance(explored.failures[1], interpreter.Race)
    assert explored.schedule(1) == Schedule("reversed")
    with (
        interpreter.using(warn=[interpreter.Race]),
        pytest.warns(interpreter.KernelWarning, match="Race: writes x_ptr"),
    ):
        explored = interpreter.explore(Meeting(), torch.zeros(1), seeds=range(2))
    assert not explored.failures
    assert explored.differs == {1: 1.0}


def test_a_fixture_puts_scripts_and_cuda_on_the_cpu(tilus_on_cpu):
    x = torch.ones(64, device="cuda")
    y = torch.zeros(64).cuda()
    Doubled()(64, x, y)
    torch.cuda.synchronize()
    assert y.sum().item() == 128


def test_tests_for_a_gpu_run_as_they_stand(pytester):
    pytester.makepyfile(
        textwrap.dedent(SCRIPT)
        + """

import torch


def test_sums():
    x = torch.arange(4.0, device="cuda")
    sums, turn = torch.zeros(4).cuda(), torch.zeros(1, dtype=torch.int32, device="cuda:0")
    RunningSum()(4, x, sums, turn)
    torch.cuda.synchronize()
    assert sums.tolist() == [0, 1, 3, 6]
"""
    )
    result = pytester.inline_run("--tilus-on-cpu", "-p", "triton_vs_tilus.kernels_tilus.interpreter.plugin")
    result.assertoutcome(passed=1)


def test_upstreams_results_are_told_apart():
    results = [
        upstream.judged("vector_add", None),
        upstream.judged("hopper_matmul_v0", interpreter.WrongThreads("a TMA load by 1 threads; tilus 0.2.0 takes")),
        upstream.judged("matmul_v0", interpreter.Unsupported("instruction NopInst")),
        upstream.judged("test_a[1]", None, "triton_vs_tilus.errors.Unsupported: tcgen05, the tensor cores: Tcgen05"),
        upstream.judged("matmul_v1", AssertionError("not close")),
    ]
    verdicts = [upstream.RIGHT, upstream.FAULT, upstream.REFUSED, upstream.REFUSED, upstream.WRONG]
    assert [result.verdict for result in results] == verdicts
    assert upstream.share(results).startswith("1 of 4 that need no tcgen05 are right (25%), 1 have a fault")
