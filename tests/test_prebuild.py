"""Programs built for a GPU that is not here: found again where they are carried to, refused by other compilers."""

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import tilus.drivers
import torch
import triton
from said import on_stderr
from tilus.hidet.backend.build import NVCC
from tilus.runtime import compiled_program_exists
from triton.runtime.cache import get_cache_manager

from triton_vs_tilus.bench import prebuild
from triton_vs_tilus.bench.cli import run_command
from triton_vs_tilus.bench.contenders import find, launched
from triton_vs_tilus.bench.diagnostics import sanitizer
from triton_vs_tilus.bench.search import prebuilt
from triton_vs_tilus.bench.search.race import Budget
from triton_vs_tilus.bench.search.space import compiled_fields
from triton_vs_tilus.common import compilers, files, tuned
from triton_vs_tilus.common.building import target_of
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import offline as of_tilus

KEY = "0123456789abcdef"  # of a program in Triton's cache
PROBLEMS = [Matmul(m, 256, 7168, layout=Layout.NK) for m in (1, 16)]


@pytest.fixture
def caches(monkeypatch, tmp_path):
    """This machine's, empty."""
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "here" / "triton"))
    before = tilus.option.get_option("cache_dir")
    tilus.option.cache_dir(str(tmp_path / "here" / "tilus"))
    yield tmp_path
    tilus.option.cache_dir(before)


def target_here() -> dict[str, str]:
    """Of the GPU, where there is one."""
    on_gpu = torch.cuda.is_available()
    return {"target": target_of(torch.cuda.get_device_capability())} if on_gpu else {}


def carried(root: Path) -> Path:
    """A folder as another machine's Triton and tilus leave it."""
    folder = root / "carried"
    triton.knobs.cache.dir, here = str(folder / "triton"), triton.knobs.cache.dir
    manager = get_cache_manager(KEY)
    files = {name: manager.put(b"its bytes", name) for name in ("kernel.cubin", "kernel.json")}
    manager.put_group("kernel.json", files)
    triton.knobs.cache.dir = here
    module = folder / "tilus" / "programs" / "0123456789ab" / "module"
    module.mkdir(parents=True)
    for path in (module / "lib.so", module.parent / "program.txt", module.parent / "options.txt"):
        path.write_text("its bytes")
    same = {language: {**prebuilt._offline(language).identity(), **target_here()} for language in ("triton", "tilus")}
    (folder / "identity.json").write_text(json.dumps(same))
    return folder


def test_carried_programs_are_found_by_the_languages_own_caches(caches, monkeypatch, capsys):
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0"})
    folder = carried(caches)
    moved = folder.rename(caches / "moved")
    triton_cache = get_cache_manager(KEY)
    assert triton_cache.get_group("kernel.json") is None
    assert run_command(prebuild.main, ["--adopt", str(moved)]) == 0
    said = capsys.readouterr().out
    assert "triton: 1 programs adopted" in said and "tilus: 1 programs adopted" in said
    found = triton_cache.get_group("kernel.json")
    assert {name: Path(path).read_bytes() for name, path in found.items()} == dict.fromkeys(found, b"its bytes")
    assert found.keys() == {"kernel.cubin", "kernel.json"}
    assert compiled_program_exists(Path(tilus.option.get_option("cache_dir")) / "programs" / "0123456789ab")


def test_programs_of_other_compilers_are_refused(caches, monkeypatch, capsys):
    monkeypatch.setattr(of_tilus, "identity", lambda: {"nvcc": "13.0"})
    folder = carried(caches)
    monkeypatch.setattr(of_tilus, "identity", lambda: {"nvcc": "12.9"})
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == 1
    assert "tilus: none adopted, as nvcc is 13.0 there, 12.9 here" in on_stderr(capsys)
    assert [path.name for path in (caches / "here").iterdir()] == ["triton"]
    assert run_command(prebuild.main, ["--adopt", str(caches)]) == 2
    assert "accepted: a folder that bench/prebuild.py built programs into" in on_stderr(capsys)


def test_programs_of_another_gpu_are_refused(caches, monkeypatch, capsys):
    """Where there is a GPU: nothing that is built for another one would be found."""
    monkeypatch.setattr(of_tilus, "identity", lambda: {"nvcc": "13.0"})
    folder = carried(caches)
    of_each = json.loads((folder / "identity.json").read_text())
    targets = {"triton": {"target": "sm_80"}, "tilus": {}}
    (folder / "identity.json").write_text(json.dumps({name: {**of_each[name], **targets[name]} for name in targets}))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == 1
    told = on_stderr(capsys)
    assert "triton: none adopted, as target is sm_80 there, sm_90a here" in told
    assert "tilus: none adopted, as target is not told there, sm_90a here" in told
    assert not (caches / "here").exists()


def test_an_identity_that_does_not_tell_a_compiler_is_refused(caches, monkeypatch, capsys):
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0"})
    folder = carried(caches)
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0", "nvcc": "13.0"})
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == 1
    assert "tilus: none adopted, as nvcc is not told there, 13.0 here" in on_stderr(capsys)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FileNotFoundError("nvcc is not found"), "FileNotFoundError: nvcc is not found"),
        (
            subprocess.CalledProcessError(1, "nvcc"),
            "CalledProcessError: Command 'nvcc' returned non-zero exit status 1",
        ),
        (PackageNotFoundError("tilus"), "PackageNotFoundError: No package metadata was found for tilus"),
    ],
)
def test_a_compiler_that_cannot_be_asked_costs_its_language_alone(caches, monkeypatch, capsys, error, told):
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0"})
    folder = carried(caches)

    def fails():
        raise error

    monkeypatch.setattr(of_tilus, "identity", fails)
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == 1
    said = capsys.readouterr()
    assert said.out == "triton: 1 programs adopted\n"
    assert f"tilus: none adopted, as this machine's compiler cannot be asked: {told}" in " ".join(said.err.split())


def test_the_nvcc_that_is_told_is_the_one_that_compiles(monkeypatch, tmp_path):
    """It need not be on PATH."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 12.3, V12.3.4\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(compilers, "nvcc", lambda: str(nvcc))
    assert of_tilus.identity()["nvcc"] == "12.3"
    monkeypatch.setattr(compilers, "nvcc", lambda: None)
    with pytest.raises(FileNotFoundError, match="nvcc"):
        of_tilus.identity()


@pytest.mark.parametrize("left", [["tilus"], ["triton"], []], ids=str)
def test_a_language_without_a_folder_has_no_program(caches, monkeypatch, capsys, left):
    """As where nothing of it could be built. Without any program nothing was adopted, and the command fails."""
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0"})
    folder = carried(caches)
    for language in ("triton", "tilus"):
        if language not in left:
            shutil.rmtree(folder / language)
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == (0 if left else 1)
    counts = {language: int(language in left) for language in ("triton", "tilus")}
    assert capsys.readouterr().out == "".join(f"{name}: {count} programs adopted\n" for name, count in counts.items())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"tilus": {"v": "1"}}}', "JSON is malformed"),
        ('{"triton": 3}', "Expected `object`, got `int`"),
        ('{"cuda": {}}', "cuda; accepted: triton, tilus"),
    ],
)
def test_a_broken_identity_is_one_error(tmp_path, capsys, text, told):
    (tmp_path / "identity.json").write_text(text)
    assert run_command(prebuild.main, ["--adopt", str(tmp_path)]) == 2
    assert f"prebuild.py: error: {tmp_path / 'identity.json'}: {told}" in on_stderr(capsys)
    with pytest.raises(files.InvalidFile):
        prebuilt.claim(tmp_path, "triton", {"version": "1"})


def test_two_builds_into_one_folder_both_leave_their_identity(tmp_path, monkeypatch):
    """One between the other's reading and writing."""
    read = prebuilt._read
    second = threading.Thread(target=prebuilt.claim, args=(tmp_path, "tilus", {"version": "2"}))

    def slow(folder):
        known = read(folder)
        if threading.current_thread() is not second:
            second.start()
            second.join(0.3)
        return known

    monkeypatch.setattr(prebuilt, "_read", slow)
    prebuilt.claim(tmp_path, "triton", {"version": "1"})
    second.join()
    assert json.loads((tmp_path / "identity.json").read_text()) == {
        "triton": {"version": "1"},
        "tilus": {"version": "2"},
    }
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]


def test_a_library_is_for_any_processor_and_whole_when_it_is_there(monkeypatch, tmp_path):
    """tilus takes a library that is there for a whole one, and compiles for the processor that it runs on."""
    seen = []

    def compiled(self, command, src_path, out_lib_path, keep_files):
        seen.append(command)
        assert not Path(out_lib_path).exists()
        Path(command.split(" -o ")[1].split()[0]).write_text("its bytes")

    monkeypatch.setattr(NVCC, "run_compile_command", compiled)
    monkeypatch.setattr(of_tilus, "_driver_stub", lambda folder: folder)
    source, library = tmp_path / "source.cu", tmp_path / "lib.so"
    source.write_text("int main() {}")
    of_tilus._Compiler(tmp_path).compile(str(source), str(library), tilus.target.nvgpu_sm90a)
    (command,) = seen
    assert "-march=x86-64," in command and "native" not in command and f"-L{tmp_path} " in command
    assert "--no-as-needed -lcuda" in command and "compute_90a,code=sm_90a" in command
    assert [path.name for path in tmp_path.iterdir()] == ["lib.so"]


def test_every_config_of_a_search_is_built_and_a_program_once(monkeypatch, tmp_path, tuned_tables):
    jobs = []

    class InProcess:
        def __init__(self, *_): ...

        def __enter__(self):
            return self

        def __exit__(self, *_): ...

        def each(self, function, arguments, finished=None):
            if function is prebuilt._identity:
                return [{"version": "1"}]
            jobs.extend(arguments)
            return [{} if name == "triton/atomic" else {"s2": "ptxas"} for name, *_ in arguments]

    monkeypatch.setattr(prebuilt, "Children", InProcess)
    kernels = [find("triton/atomic"), find("tilus/atomic"), find("torch/mm")]
    ample = Budget(10_000, 1.0)
    built = prebuilt.build(tmp_path, PROBLEMS, kernels, target="sm_90a", slug="none", budget=ample)
    asked = {(name, problem, config) for name, pairs, *_ in jobs for problem, config in pairs}
    own = [(kernel, problem) for kernel in kernels[:2] for problem in PROBLEMS]
    assert asked >= {
        (kernel.full_name, problem, config) for kernel, problem in own for config in kernel.configs(problem)
    }
    assert built.configs == len(asked)
    compiled = [(name, compiled_fields(config)) for name, pairs, *_ in jobs for _, config in pairs]
    assert len(jobs) == len(set(compiled)) < built.configs
    assert {name.partition(" ")[0] for name in built.failed} == {"tilus/atomic"}

    jobs.clear()
    unsearched = [*kernels, find("tilus/atomic@borrowed")]
    prebuilt.build(tmp_path, PROBLEMS, unsearched, target="sm_90a", slug="none", budget=None)
    launched = {(name, problem, config) for name, pairs, *_ in jobs for problem, config in pairs}
    assert launched == {(kernel.full_name, problem, kernel.default_config(problem)) for kernel, problem in own}
    (tmp_path / "identity.json").write_text(json.dumps({"triton": {"version": "2", "target": "sm_90a"}}))
    with pytest.raises(prebuilt.Mismatch, match="version is 2 there, 1 here"):
        prebuilt.build(tmp_path, PROBLEMS, kernels[:1], target="sm_90a", slug="none", budget=ample)


def test_what_the_sanitizer_launches_is_built(monkeypatch, tmp_path, capsys):
    asked = []

    def build_these(folder, wanted, **options):
        asked.extend(wanted)
        return prebuilt.Built(configs=len(asked))

    monkeypatch.setattr(prebuilt, "build_these", build_these)
    assert run_command(prebuild.main, ["--sanitizer", "--only", "data_parallel", "--into", str(tmp_path)]) == 0
    tasks = sanitizer.chosen_tasks(["data_parallel"])
    assert [(kernel.full_name, problem) for kernel, problem, _ in asked] == [
        (task.contender, task.solved()) for task in tasks
    ]
    assert "tilus/data_parallel.persistent" in {kernel.full_name for kernel, _, _ in asked}
    assert run_command(prebuild.main, ["--sanitizer", "--only", "nothing", "--into", str(tmp_path)]) == 2
    assert "--only is 'nothing'; accepted: names and parts of" in on_stderr(capsys)


@pytest.mark.parametrize("flags", [["--only", "torch"], ["--only", "decompose_k.vector_unfused"]])
def test_where_nothing_is_to_be_built_it_fails(tmp_path, capsys, flags):
    assert run_command(prebuild.main, ["--shape", "1x7x129", "--into", str(tmp_path / "built"), *flags]) == 1
    assert "nothing to build: no contender of these has a config" in on_stderr(capsys)


def test_folders_that_cannot_be_written_are_told(caches, tmp_path, monkeypatch, capsys):
    (tmp_path / "a file").touch()
    for into in (tmp_path / "a file", Path("/proc/none")):
        assert run_command(prebuild.main, ["--shape", "1x64x128", "--only", "triton/atomic", "--into", str(into)]) == 2
        assert f"--into {into}: " in (told := on_stderr(capsys)) and "accepted: a folder" in told
    monkeypatch.setattr(of_tilus, "identity", lambda: {"tilus": "0.2.0"})
    folder = carried(caches)
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "a file" / "triton"))
    assert run_command(prebuild.main, ["--adopt", str(folder)]) == 2
    assert f"--adopt {folder}: [Errno 20] Not a directory" in on_stderr(capsys)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--adopt", "built", "--workload", "router"], "--adopt does not use --workload; accepted beside it: nothing"),
        (["--adopt", "built", "--sanitizer"], "--adopt does not use --sanitizer"),
        (["--sanitizer", "--workload", "router"], "--sanitizer does not use --workload; accepted beside it: --only, "),
    ],
)
def test_flags_that_would_be_ignored_are_refused(capsys, flags, told):
    assert run_command(prebuild.main, flags) == 2
    assert told in on_stderr(capsys)


@pytest.mark.parametrize("slug", ["nosuchgpu", "h200", "h100-80gb-hbm3"])
def test_a_device_without_a_table_is_told_and_built_for(tmp_path, monkeypatch, capsys, slug):
    monkeypatch.setattr(prebuilt, "build", lambda *args, **options: prebuilt.Built(configs=1))
    assert run_command(prebuild.main, ["--shape", "1x64x128", "--device", slug, "--into", str(tmp_path)]) == 0
    told = "--device nosuchgpu: has no tuned table, so no searched config is built; those that have: "
    assert (told in on_stderr(capsys)) == (slug == "nosuchgpu")


def test_the_stub_takes_the_drivers_name(tmp_path):
    """What is linked with it asks for the driver's library where it is loaded."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not found")
    stub = of_tilus._driver_stub(tmp_path) / "libcuda.so"
    read = subprocess.run(["readelf", "-d", str(stub)], capture_output=True, text=True, check=True).stdout
    assert "[libcuda.so.1]" in read


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_what_a_test_launches_is_built_ahead(tmp_path):
    asked = "tests/test_data_parallel.py::TestDataParallel::test_strided_operands[tilus/data_parallel]"
    words = [
        sys.executable,
        "-m",
        "pytest",
        asked,
        "-n",
        "0",
        "-p",
        "ahead",
        "--ahead",
        tmp_path,
        "-p",
        "no:cacheprovider",
    ]
    tests = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(words, cwd=tests.parent, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and "1 skipped" in ran.stdout, ran.stdout
    assert prebuilt.programs(tmp_path, "tilus") == 1
    assert json.loads((tmp_path / "identity.json").read_text())["tilus"]["target"] == "sm_90a"


@pytest.mark.parametrize(
    ("name", "taken_from"),
    [
        ("tilus/atomic", "tilus/atomic"),
        ("tilus/atomic@s4", "tilus/atomic"),
        ("tilus/atomic@triton", "triton/atomic"),
        ("triton/atomic@tilus", "tilus/atomic"),
        ("tilus/atomic@borrowed", "tilus/atomic of 128 rows"),
    ],
)
def test_what_is_launched_is_that_of_the_named_device(name, taken_from):
    problem = Matmul(256, 256, 7168, layout=Layout.NK)
    fed_by_tma = {"tilus/atomic": {"engine": "wgmma"}, "triton/atomic": {"tma": True}}
    of_each = {"tilus/atomic": (64, 64, 128, 8, 4, 4), "triton/atomic": (64, 128, 64, 7, 4, 6)}
    configs = {each: find(each).config_type(*sizes, **fed_by_tma[each]) for each, sizes in of_each.items()}
    entries = [(each, tuned.Entry(problem=problem.key, config=asdict(config))) for each, config in configs.items()]
    nearest = replace(configs["tilus/atomic"], block_k=64)
    entries.append(("tilus/atomic", tuned.Entry(problem=replace(problem, m=128).key, config=asdict(nearest))))
    tuned.write("another-gpu-of-prebuild", entries, shipped=False)
    there = {**configs, "tilus/atomic of 128 rows": nearest}[taken_from]
    found = launched(find(name), problem, "another-gpu-of-prebuild")
    assert (found.block_m, found.block_n, found.block_k) == (there.block_m, there.block_n, there.block_k)
    assert found.split_k == (4 if name.endswith("@s4") else there.split_k)


def test_nothing_is_launched_where_the_other_languages_config_cannot_run():
    assert launched(find("tilus/atomic@triton"), Matmul(64, 256, 7168, layout=Layout.NK), "h200") is None
