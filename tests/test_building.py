"""Programs built ahead, in processes of their own: what names one, what is built once, and a cache that heals."""

import json
import os
import subprocess
import sys
import threading
import time
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import compiled
import pytest
import tilus
import torch
import triton
from said import on_stderr, the_error
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
from triton_vs_tilus.kernels_triton import starting

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
    few = program(group_m=2)
    assert program(group_m=4).compiled_for == few.compiled_for
    assert replace(few, problem=replace(PROBLEM, m=1024)).compiled_for != few.compiled_for
    assert replace(few, problem=replace(PROBLEM, n=512)).compiled_for != few.compiled_for
    assert replace(few, kernel=replace(few.kernel, name="other")).compiled_for != few.compiled_for
    assert replace(few, target="sm_100a").compiled_for != few.compiled_for
    assert program(split_k=2).compiled_for != program(split_k=4).compiled_for
    moved = replace(program(), placement=contiguous(PROBLEM)._replace(align_a=2))
    assert moved.compiled_for != program().compiled_for


def test_a_target_is_named_by_its_capability():
    for capability, target in {(8, 0): "sm_80", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100a"}.items():
        assert building.target_of(capability) == target and building.capability_of(target) == capability


def test_what_is_built_is_not_built_again(cache, monkeypatch):
    started, loaded = [], []
    monkeypatch.setattr(building, "user_cache_path", lambda app: cache / "not made yet")
    monkeypatch.setattr(building, "_build_apart", lambda each: (started.append(each), building.mark_built(each), "")[2])
    both = [program(), program("tilus/atomic")]
    assert building.build_now(both) == {} and building.build_now(both) == {}
    assert len(started) == 2 and set(started) == set(both)
    backend = SimpleNamespace(cache=both[0].backend.cache, build=loaded.append)
    job = building.Job(replace(both[0], kernel=replace(both[0].kernel, backend=backend)), torch.device("cpu"))
    job.run()
    assert job.done and not job.reason and loaded == [both[0].plan] and len(started) == 2


def test_what_a_marker_is_of(cache, monkeypatch):
    """The language's cache, its version, and the sources of the kernels and of what they share."""
    there = program()

    def marker():
        building._sources.cache_clear()
        return building._marker(there)

    monkeypatch.setattr(building, "ROOT", cache)
    for folder in ("common", "kernels_triton", "kernels_tilus"):
        (cache / folder).mkdir()
    markers = [marker()]
    for changed in ("common", "kernels_triton"):
        (cache / changed / "changed.py").touch()
        markers.append(marker())
    (cache / "kernels_tilus" / "changed.py").touch()
    assert marker() == markers[-1]
    monkeypatch.setattr(building, "version", lambda language: f"{language} of tomorrow")
    markers.append(marker())
    backend = SimpleNamespace(cache=lambda: "elsewhere")
    there = replace(there, kernel=replace(there.kernel, backend=backend))
    markers.append(marker())
    monkeypatch.undo()
    building._sources.cache_clear()
    assert len(set(markers)) == 5


def test_no_more_builds_run_at_once_than_there_are_cpus(cache, monkeypatch):
    two_at_once, running, most, ended = threading.Barrier(2), [], [], []

    def build(each):
        running.append(each)
        two_at_once.wait(20)
        time.sleep(0.02)  # in which others would start
        most.append(len(running))
        running.remove(each)
        ended.append(each)
        return ""

    monkeypatch.setattr(building, "_build_apart", build)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    programs = [program(split_k=split_k) for split_k in (1, 2, 4, 8)]
    assert building.build_now(programs) == {}
    assert len(ended) == 4 and max(most) == 2


def test_a_build_that_cannot_be_started_is_one_that_fails(cache, monkeypatch):
    def no_process(*_, **__):
        raise OSError("no process")

    monkeypatch.setattr(building.subprocess, "run", no_process)
    assert building.build_now([program()]) == {program(): "OSError: no process"}


def test_a_compiler_that_exits_ends_its_own_build_alone(cache, monkeypatch):
    def exits(plan):
        raise SystemExit(1)

    monkeypatch.setattr(building, "_build_apart", lambda each: "")
    kernels = [replace(program().kernel, backend=SimpleNamespace(cache=str, build=build)) for build in (exits, print)]
    programs = [replace(program(), kernel=kernel) for kernel in kernels]
    failing, other = (building.build_in_background(each, torch.device("cpu")) for each in programs)
    until = time.monotonic() + 20
    while not other.done and time.monotonic() < until:
        time.sleep(0.01)
    assert failing.done and "SystemExit" in failing.reason
    assert other.done


def test_a_forked_process_has_a_thread_of_its_own_that_builds(cache, monkeypatch):
    monkeypatch.setattr(building, "_build_apart", lambda each: "")
    builds = replace(program(), kernel=replace(program().kernel, backend=SimpleNamespace(cache=str, build=print)))

    def is_done() -> bool:
        job, until = building.build_in_background(builds, torch.device("cpu")), time.monotonic() + 20
        while not job.done and time.monotonic() < until:
            time.sleep(0.01)
        return job.done

    assert is_done()
    if not (child := os.fork()):
        os._exit(0 if is_done() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_build_without_a_marker_is_a_build_all_the_same(cache, monkeypatch):
    (cache / "file").touch()
    monkeypatch.setattr(building, "user_cache_path", lambda app: cache / "file")  # where no folder can be made
    building.mark_built(program())
    assert not building.is_built(program())


@pytest.mark.parametrize(
    ("ended", "reason"), [("Traceback ...\nRuntimeError: nvcc fatal\n\n", "RuntimeError: nvcc fatal"), ("", "exit -9")]
)
def test_a_build_that_fails_says_why_and_is_tried_again(ended, reason, cache, monkeypatch):
    ended = SimpleNamespace(returncode=-9, stderr=ended)
    monkeypatch.setattr(building.subprocess, "run", lambda command, **options: ended)
    assert building.build_now([program()]) == {program(): reason}
    loaded = []
    backend = SimpleNamespace(cache=str, build=loaded.append)
    job = building.Job(replace(program(), kernel=replace(program().kernel, backend=backend)), torch.device("cpu"))
    job.run()
    assert job.done and job.reason == reason and not loaded
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
    assert asked["env"]["PYTHONPATH"].split(os.pathsep) == list(filter(None, sys.path))
    assert asked["timeout"] == building.DEADLINE_S  # a compiler that hangs
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
    assert [thread.daemon for thread in threading.enumerate() if thread.name == "triton_vs_tilus builds"] == [True]


@each_package
def test_the_command_builds_what_a_weight_needs_and_says_what(package, monkeypatch, capsys):
    wanted = []
    monkeypatch.setattr(building, "build_now", lambda programs: wanted.extend(programs) or {})
    arguments = ["7168x256", "--max-tokens", "64", "--arch", "sm_90a", "--device", "h200", "--activation", "sigmoid"]
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
        (["7168x256", "7168", "--arch", "sm_90a"], "weight is 7168; accepted: KxN, e.g. 7168x256"),
        (["7168x256", "--arch", "hopper"], "--arch is hopper; accepted: sm_80"),
        (["7168x256", "--arch", "sm_9"], "--arch is sm_9; accepted: sm_80"),
        (["7168x256", "--arch", "sm_90a", "--max-tokens", "0"], "--max-tokens is 0; accepted: 1 or more"),
        (
            ["7168x256", "--arch", "sm_90a", "--out-dtype", "fp16"],
            "--out-dtype is fp16; accepted: that of the inputs, bf16, or fp32",
        ),
        (["7168x256", "--arch", "sm_90"], "--arch is sm_90; accepted: sm_80, sm_89, sm_90a"),
        (["7168x256", "--arch", "sm_90a", "--device", "H200"], "--device is H200; accepted: h100-80gb-hbm3, h200"),
        pytest.param(
            ["7168x256"],
            "there is no CUDA device; --arch says",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it builds for the GPU that is here"),
        ),
    ],
    ids=str,
)
def test_what_the_command_cannot_do_is_one_error(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        prepare.main("made", kernels_triton.KERNELS, lambda: None, lambda program: None, arguments)
    assert words in the_error(capsys)


def test_without_git_the_command_of_tilus_is_one_line(tmp_path):
    """tilus 0.2.0 runs git as it is imported."""
    command = [sys.executable, "-m", "triton_vs_tilus.kernels_tilus.prepare", "7168x256", "--arch", "sm_90a"]
    made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": str(tmp_path)})
    assert made.returncode != 0 and made.stderr.count("\n") == 1
    assert "ImportError: tilus runs git as it is imported: not found on PATH" in made.stderr


def test_tilus_keeps_programs_where_the_notes_say(monkeypatch, tmp_path):
    """notes/trouble.md: in a virtual environment that lies in a git checkout, else at home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    packages = tmp_path / "checkout" / ".venv" / "lib" / "python3.12" / "site-packages" / "tilus"
    packages.mkdir(parents=True)
    monkeypatch.setattr(tilus.option, "__file__", str(packages / "option.py"))
    assert tilus.option._get_default_cache_dir() == str(tmp_path / "home" / ".cache" / "tilus")
    subprocess.run(["git", "init", "--quiet", tmp_path / "checkout"], check=True)
    assert tilus.option._get_default_cache_dir() == str(packages.parents[1] / ".cache")


def test_a_broken_tuned_table_is_one_error(tuned_tables, capsys):
    (tuned_tables / "h200.json").write_text("[]")
    with pytest.raises(SystemExit, match="2"):
        arguments = ["7168x256", "--arch", "sm_90a", "--device", "h200"]
        prepare.main("made", kernels_triton.KERNELS, lambda: None, lambda program: None, arguments)
    assert "h200.json is not a table of tuned configs" in the_error(capsys)


def test_a_target_without_dependent_launch_takes_another_kernel(monkeypatch, capsys):
    wanted = []
    monkeypatch.setattr(building, "build_now", lambda programs: wanted.extend(programs) or {})
    for target in ("sm_80", "sm_120a"):
        arguments = ["7168x256", "--max-tokens", "4", "--arch", target]
        prepare.main("made", kernels_triton.KERNELS, lambda: None, lambda program: None, arguments)
        assert f"no kernel was timed on {target}" in on_stderr(capsys)
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


DESCRIBED = {"swizzle": 3}
LAUNCHERS = {  # what Triton's launcher in C is given, by version, before the kernel's arguments; else Triton's own call
    "3.6.0": [3, 2, 1, 7, "function", False, True, None, None, "packed", None, None, None],
    "3.7.1": [3, 2, 1, 7, "function", False, True, "packed", *[None] * 5, "annotations", "signature"],
    "3.9.0": [3, 2, 1, 7, "function", False, True, "packed", *[None] * 5, "annotations", "signature"],
    "none that is known": [3, 2, 1, 7, "function", "packed", None, None, None],
}


class Launcher:
    """Of a kernel of Triton; what it is called with, itself or its launcher in C."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid, launch_pdl = False, True
    arg_annotations, kernel_signature = "annotations", "signature"

    def __init__(self, source=None, metadata=None):
        self.source, self.metadata = source, metadata

    def __call__(self, *args):
        self.started.append(list(args))

    def launch(self, *args):
        *head, last = args
        self.started.append([*head, *last] if isinstance(last, list) else list(args))


@pytest.fixture
def started(monkeypatch):
    """What made-up launchers were called with."""
    monkeypatch.setattr(Launcher, "started", [], raising=False)
    monkeypatch.setattr(triton_launching, "_check_device", lambda device: None)
    monkeypatch.setattr(triton_launching.triton.knobs.runtime, "interpret", False)
    return Launcher.started


def loaded(monkeypatch, arguments, described, **metadata):
    """The run of a made-up kernel, and the kernel."""
    params = [SimpleNamespace(name=name) for name in [*map(str, range(len(arguments))), "BLOCK", "EVEN"]]
    kernel = Kernel(params=params, called=[])
    launch = Launch(kernel, arguments, (3, 2), {"EVEN": True, "BLOCK": 64, "num_warps": 4}, described)
    types = {Slot.A: "tensordesc<bf16[16, 64]>"} if described else {}
    compiled = SimpleNamespace(
        run=Launcher(),
        function="function",
        packed_metadata="packed",
        metadata=namedtuple("Metadata", metadata)(**metadata),
        src=SimpleNamespace(signature={place: types.get(slot, "i32") for place, slot in enumerate(arguments)}),
    )
    monkeypatch.setattr(triton_launching, "_compiled", lambda step, plan: compiled)
    made = Plan(PROBLEM, contiguous(PROBLEM), (launch,), counters=4)
    return triton_launching.load(launch, made, torch.device("cpu")), kernel


def slots_of(a: torch.Tensor, ticket: int = 0) -> tuple[object, ...]:
    return (a, *[None] * (Slot.TICKET - 1), ticket)


@pytest.mark.parametrize("version", LAUNCHERS)
def test_a_compiled_kernel_of_triton_is_started_with_all_that_it_takes(version, started, monkeypatch):
    """Grid, stream, handles, no hooks; of a tensor its address; then the compile-time arguments in order. A number that
    is equal to a Slot is a number."""
    monkeypatch.setattr(triton, "__version__", version)
    run, _ = loaded(monkeypatch, (Slot.A, 256, Slot.TICKET, 1, None), {})
    a = torch.empty(16, 7168, dtype=torch.bfloat16)
    run(7, slots_of(a, 1024))
    assert started == [[*LAUNCHERS[version], a.data_ptr(), 256, 1024, 1, None, 64, True]]


def test_triton_3_4_launches_itself(started, monkeypatch):
    """Its hooks are functions or None. Nothing is compiled ahead for a launcher that is not called."""
    monkeypatch.setattr(triton_launching.triton.knobs.runtime, "launch_enter_hook", None)
    run, kernel = loaded(monkeypatch, (Slot.A, 256), {})
    a = torch.empty(16, 7168, dtype=torch.bfloat16)
    run(7, slots_of(a))
    assert not started and len(kernel.called) == 1


def test_a_kernel_of_triton_that_takes_scratch_memory_is_left_to_tritons_call(started, monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    monkeypatch.setattr(Launcher, "global_scratch_size", 128)
    run, _ = loaded(monkeypatch, (Slot.A,), {})
    a = torch.empty(16, 7168, dtype=torch.bfloat16)
    run(7, slots_of(a))
    assert started == [[3, 2, 1, 7, "function", "packed", None, None, None, a.data_ptr(), 64, True]]


def of_rows(base: object) -> TensorDescriptor:
    return TensorDescriptor(base, [16, 7168], [7168, 1], [16, 64])


@pytest.mark.parametrize("more", [0, 1])
def test_a_descriptor_of_triton_is_encoded_once_for_an_address(more, started, monkeypatch):
    """By Triton, whose function takes an argument more from 3.8 on."""
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    encoded: list[int] = []

    def encode(descriptor, meta):
        assert meta is DESCRIBED and descriptor.shape == [16, 7168] and descriptor.block_shape == [16, 64]
        encoded.append(descriptor.base.data_ptr())
        return [f"encoded {encoded[-1]}", "shape", "strides"]

    def encode_by_three(descriptor, meta, others):
        return encode(descriptor, meta)

    monkeypatch.setattr(driver, "make_tensordesc_arg", [encode, encode_by_three][more])
    monkeypatch.setattr(driver, "CudaLauncher", Launcher)
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    run, _ = loaded(monkeypatch, (Slot.A, 0), {Slot.A: of_rows}, tensordesc_meta=[DESCRIBED])
    one, other = (torch.empty(16, 7168, dtype=torch.bfloat16) for _ in range(2))
    for a in (one, other, one):
        run(7, slots_of(a))
    assert encoded == [one.data_ptr(), other.data_ptr()]
    assert [call[len(LAUNCHERS["3.7.1"]) :] for call in started] == [
        [f"encoded {a.data_ptr()}", 16, 7168, 7168, 1, 0, 64, True] for a in (one, other, one)
    ]


def test_a_launcher_of_triton_is_told_that_descriptors_are_encoded(monkeypatch):
    driver = pytest.importorskip("triton.backends.nvidia.driver")
    monkeypatch.setattr(driver, "CudaLauncher", Launcher)
    signature = {"a_ptr": "tensordesc<bf16[64, 64]>", "n": "i32", "BLOCK": "constexpr"}
    metadata = namedtuple("Metadata", "num_ctas tensordesc_meta")(1, [DESCRIBED])
    made = starting._taking_encoded(SimpleNamespace(src=SimpleNamespace(signature=signature), metadata=metadata))
    types = ["nvTmaDesc", "i32", "i32", "i64", "i64", "i32", "constexpr"]
    assert list(made.source.signature.values()) == types and not made.metadata.tensordesc_meta


@pytest.mark.parametrize("because", ["of a profiler's hooks", "descriptors are pointers and numbers, before Hopper"])
def test_what_is_not_known_is_left_to_tritons_own_call(because, started, monkeypatch):
    hooked = "hooks" in because
    described = {} if hooked else {Slot.A: of_rows}
    run, kernel = loaded(monkeypatch, (Slot.A, 256, Slot.TICKET), described, tensordesc_meta=None)
    if hooked:
        monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", SimpleNamespace(calls=["hook"]))
    a = torch.empty(16, 7168, dtype=torch.bfloat16)
    run(7, slots_of(a, 1024))
    options = {"EVEN": True, "BLOCK": 64, "num_warps": 4}
    assert kernel.called == [((3, 2), (a if hooked else of_rows(a), 256, 1024), options)] and not started
