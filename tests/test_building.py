"""Programs built ahead, in processes of their own: what names one, what is built once, and a cache that heals."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import compiled
import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.bench.diagnostics.resources import Task
from triton_vs_tilus.common import building, dispatch, prepare
from triton_vs_tilus.common.building import Program
from triton_vs_tilus.common.plan import Launch, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import launching as tilus_launching
from triton_vs_tilus.kernels_triton import launching as triton_launching

PACKAGES = {"triton": kernels_triton, "tilus": kernels_tilus}
each_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
PROBLEM = Matmul(16, 256, 7168, layout=Layout.NK)


def program(name: str = "triton/atomic", problem: Matmul = PROBLEM, **config) -> Program:
    kernel = contenders.find(name)
    chosen = replace(kernel.default_config(problem), **config)
    return Program(kernel, problem, chosen, contiguous(problem), "sm_90a")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "user_cache_path", lambda app: tmp_path)
    return tmp_path


def test_numbers_of_tokens_share_a_program_and_groups_of_tiles_do_not():
    shared = {program(problem=replace(PROBLEM, m=tokens)).compiled_for for tokens in (2, 16)}
    assert len(shared) == 1
    many = program(problem=replace(PROBLEM, m=1024), group_m=2)
    assert many.compiled_for != program(problem=PROBLEM, group_m=2).compiled_for
    assert program(split_k=2).compiled_for != program(split_k=4).compiled_for
    moved = replace(program(), placement=contiguous(PROBLEM)._replace(align_a=2))
    assert moved.compiled_for != program().compiled_for


def test_a_target_is_named_by_its_capability():
    for capability, target in {(8, 0): "sm_80", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a"}.items():
        assert building.target_of(capability) == target and building.capability_of(target) == capability


def test_what_is_built_is_not_built_again(cache, monkeypatch):
    started = []
    monkeypatch.setattr(building, "_build_apart", lambda each: (started.append(each), building.mark_built(each), "")[2])
    both = [program(), program("tilus/atomic")]
    assert building.build_now(both) == {} and building.build_now(both) == {}
    assert set(started) == set(both)
    job = building.Job(replace(both[0], kernel=replace(both[0].kernel, backend=SimpleNamespace(cache=str))), None)
    assert not job.done


def test_a_build_that_fails_says_why_and_is_tried_again(cache, monkeypatch):
    ended = SimpleNamespace(returncode=1, stderr="Traceback ...\nRuntimeError: nvcc fatal\n")
    monkeypatch.setattr(building.subprocess, "run", lambda command, **options: ended)
    assert building.build_now([program()]) == {program(): "RuntimeError: nvcc fatal"}
    assert not building.is_built(program())


def test_a_build_has_a_process_of_its_own_that_sees_no_gpu(cache, monkeypatch):
    asked = {}

    def run(command, **options):
        asked.update(options, command=command)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(building.subprocess, "run", run)
    assert building.build_now([program("tilus/cluster")]) == {}
    assert asked["command"][:3] == [sys.executable, "-m", "triton_vs_tilus.kernels_tilus.prepare"]
    assert asked["env"]["CUDA_VISIBLE_DEVICES"] == "" and "TRITON_INTERPRET" not in asked["env"]
    assert building.program_from(json.loads(asked["input"]), kernels_tilus.KERNELS) == program("tilus/cluster")


def test_a_job_in_the_background_ends_whatever_the_compiler_raises(cache, monkeypatch):
    def fail(each):
        raise MemoryError("no room")

    monkeypatch.setattr(building, "_build_apart", fail)
    job = building.build_in_background(program(), torch.device("cpu"))
    for _ in range(500):
        if job.done:
            break
        building.threading.Event().wait(0.01)
    assert job.done and job.reason == "MemoryError: no room"


@each_package
def test_the_command_builds_what_a_weight_needs_and_says_what(package, monkeypatch, capsys):
    wanted = []
    monkeypatch.setattr(building, "build_now", lambda programs: wanted.extend(programs) or {})
    arguments = ["7168x256", "--max-tokens", "64", "--arch", "sm_90a", "--activation", "sigmoid"]
    assert prepare.main("made", package.KERNELS, lambda: None, lambda program: None, arguments) == 0
    assert wanted and all(each.target == "sm_90a" and each.problem.epilogue == "sigmoid" for each in wanted)
    said = capsys.readouterr().out
    assert f"7168x256: {len(wanted)} programs for sm_90a; torch for the rest" in said
    assert f"1 rows on: {package.__name__.rpartition('_')[2]}/sliced_k.fma [" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--arch", "sm_90a"], "a weight KxN is needed"),
        (["7168", "--arch", "sm_90a"], "weight is 7168; accepted: KxN, e.g. 7168x256"),
        (["7168x256", "--arch", "hopper"], "--arch is hopper; accepted: sm_80"),
        pytest.param(
            ["7168x256"],
            "there is no CUDA device; --arch says",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it builds for the GPU that is here"),
        ),
    ],
    ids=str,
)
def test_what_the_command_cannot_do_is_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        prepare.main("made", kernels_triton.KERNELS, lambda: None, lambda program: None, arguments)
    assert words in capsys.readouterr().err


def test_a_target_without_dependent_launch_takes_another_kernel(monkeypatch, capsys):
    wanted = []
    monkeypatch.setattr(building, "build_now", lambda programs: wanted.extend(programs) or {})
    for target in ("sm_80", "sm_120a"):
        arguments = ["7168x256", "--max-tokens", "4", "--arch", target]
        prepare.main("made", kernels_triton.KERNELS, lambda: None, lambda program: None, arguments)
        assert f"no kernel was timed on {target}" in capsys.readouterr().err
    assert [each.kernel.full_name.partition("/")[2] for each in wanted] == list(dispatch.THUMB_KERNELS[::-1])


# What a GPU without a table takes, compiled for it. bench/resources.py has the other targets.
UNTIMED = {
    f"{name}-{target}": Task(kernel, PROBLEM, kernel.default_config(PROBLEM), "heuristic", target)
    for name, target in (
        ("triton/last_arriver", "sm_89"),
        ("triton/decompose_k.vector_pdl", "sm_100a"),
        ("tilus/decompose_k.vector_pdl", "sm_120a"),
    )
    for kernel in [contenders.find(name)]
}
compiled.wanted(*UNTIMED.values())


@compiled.on_one_worker
@pytest.mark.parametrize("name", UNTIMED)
def test_a_gpu_without_a_table_can_take_what_the_rule_of_thumb_gives(name):
    outcome = compiled.built(UNTIMED[name])
    assert not outcome.error and not outcome.broken
    assert all("tensor cores" in each.instructions for each in outcome.gpu_kernels[:1])


# A cache that heals


def test_triton_compiles_anew_what_its_cache_has_lost():
    tries = []

    def warmup(*arguments, grid, **options):
        tries.append(triton.knobs.compilation.always_compile)
        if not tries[-1]:
            raise FileNotFoundError("kernel.cubin")
        return "compiled"

    launch = Launch(SimpleNamespace(warmup=warmup), (Slot.A, Slot.TICKET, 3), (1,))
    assert triton_launching._compiled(launch, Plan(PROBLEM, contiguous(PROBLEM), (launch,))) == "compiled"
    assert tries == [False, True] and not triton.knobs.compilation.always_compile


def test_tilus_builds_anew_what_a_stopped_build_has_left(tmp_path, monkeypatch):
    """A text that is cut off, so that tilus believes in a collision, and a library likewise."""
    folder = tmp_path / "programs" / "0123456789ab"
    (folder / "module").mkdir(parents=True)
    for name in ("program.txt", "options.txt", "module/lib.so"):
        (folder / name).write_text("half")

    def get_cache_dir(program, options):
        if (folder / "program.txt").exists():
            raise ValueError(f"The program text is different from the cached one: {folder / 'program.txt'}")
        return folder

    get_cache_dir.cache_clear = lambda: None

    class Instance(SimpleNamespace):
        def _build_programs(self):
            get_cache_dir(None, None)
            assert not (folder / "module" / "lib.so").exists()
            self.compiled_programs.append("built")

    made = Instance(
        transpiled_programs=["program"],
        build_options=None,
        compiled_programs=[],
        valid_programs=[],
        valid_schedules=[],
    )
    monkeypatch.setattr(tilus_launching, "get_cache_dir", get_cache_dir)
    monkeypatch.setattr(tilus_launching, "_instance", lambda script: made)
    monkeypatch.setattr(tilus_launching.time, "sleep", lambda seconds: None)
    tilus_launching.build("script")
    assert made.compiled_programs == ["built"]


class Kernel(SimpleNamespace):
    """A jit function of which it is known how it is called."""

    def __getitem__(self, grid):
        return lambda *args, **options: self.called.append((grid, args, options))


@pytest.mark.parametrize("profiled", [False, True])
def test_a_compiled_kernel_of_triton_is_started_with_all_that_it_takes(profiled, monkeypatch):
    """As JITFunction.run would: grid, stream, handles, no hooks, arguments, then the compile-time ones in order. Where
    a profiler has hooks, JITFunction.run itself."""
    started: list[tuple] = []
    compiled = SimpleNamespace(run=lambda *args: started.append(args), function="function", packed_metadata="packed")
    params = [SimpleNamespace(name=name) for name in ("a_ptr", "n", "ticket", "BLOCK", "EVEN")]
    kernel = Kernel(params=params, called=[])
    options = {"EVEN": True, "BLOCK": 64, "num_warps": 4}

    def described(base: object) -> TensorDescriptor:
        return TensorDescriptor(base, [16, 7168], [7168, 1], [16, 64])

    launch = Launch(kernel, (Slot.A, 256, Slot.TICKET), (3, 2), options, {Slot.A: described})
    made = Plan(PROBLEM, contiguous(PROBLEM), (launch,), counters=4)
    monkeypatch.setattr(triton_launching, "_compiled", lambda step, plan: compiled)
    monkeypatch.setattr(triton_launching, "_check_device", lambda device: None)
    monkeypatch.setattr(triton_launching.triton.knobs.runtime, "interpret", False)
    run = triton_launching.load(launch, made, torch.device("cpu"))
    if profiled:
        monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", SimpleNamespace(calls=["hook"]))
    a = torch.empty(16, 7168, dtype=torch.bfloat16)
    run(7, (a, 256, 1024))
    direct = [(3, 2, 1, 7, "function", "packed", None, None, None, described(a), 256, 1024, 64, True)]
    assert started == ([] if profiled else direct)
    assert kernel.called == ([((3, 2), (described(a), 256, 1024), options)] if profiled else [])
