"""What the kernels of both languages are compiled to, without a GPU: registers, shared memory, spills, instructions.

Triton's kernels are compiled by the ptxas that comes with Triton, tilus' by nvcc, as the launchers would. Outcomes are
kept in the user's cache folder, by a hash of kernel, problem, config, target, sources and compilers.
"""

import hashlib
import io
import logging
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import msgspec
from platformdirs import user_cache_path

from triton_vs_tilus.bench import ROOT, contenders, workloads
from triton_vs_tilus.bench.diagnostics import loops, ptx, sass
from triton_vs_tilus.bench.diagnostics.ptx import GpuKernel
from triton_vs_tilus.bench.measure.process import Children, Died
from triton_vs_tilus.bench.ops import OPS
from triton_vs_tilus.bench.rows.environment import version
from triton_vs_tilus.common import compilers, space, tuned
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.files import replace_text
from triton_vs_tilus.common.kernel import Config, Kernel, Language
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import Matmul, Problem
from triton_vs_tilus.common.w4a16 import W4A16Matmul

LOG = logging.getLogger(__name__)
CACHE = user_cache_path(tuned.APP) / "resources"
DEADLINE_S = 600  # for one config, with all of its GPU kernels
ROUTER_TOKENS = (16, 256)
MATCHED_TOKENS, MATCHED_ON = 16, "h200"  # whose table the one config of a pair is from
OTHER_OPERATIONS = (OrReduce(2048, 4096, 16), W4A16Matmul(16, 4096, 4096))
OTHERS = 2  # configs of the search space, beside those that launchers take


@dataclass(frozen=True)
class Task:
    """A config to compile.

    origin: 'tuned', 'nearest' or 'heuristic' (as in tuned.pick), which launchers take; 'space' for other configs.
    """

    kernel: Kernel
    problem: Problem
    config: Config
    origin: str
    target: str


@dataclass(frozen=True)
class Built:
    """The outcome of a task: its GPU kernels in the order of their launches, or an error of the compiler, or why this
    machine cannot compile it."""

    task: Task
    gpu_kernels: tuple[GpuKernel, ...] = ()
    error: str = ""
    skipped: str = ""

    @property
    def broken(self) -> bool:
        """Whether it did not compile, or exceeds a limit of the target."""
        return bool(self.error) or any(gpu_kernel.over(self.task.target) for gpu_kernel in self.gpu_kernels)


# What a problem gets where a kernel does not support it as it is.
NEEDED: Mapping[type[Problem], Mapping[str, Any]] = {Matmul: {"epilogue": Epilogue.RELU}, OrReduce: {"constant": True}}


def runnable(kernel: Kernel, problem: Problem) -> Problem | None:
    """The problem, or the problem with an epilogue or a constant A where only that is supported.

    None where the kernel supports neither, or solves another operation.
    """
    if kernel.op != problem.op:
        return None
    changed: Problem = replace(cast(Any, problem), **NEEDED.get(type(problem), {}))
    return next((tried for tried in (problem, changed) if kernel.supports(tried, None) is None), None)


def tuned_problems(kernel: Kernel) -> list[Problem]:
    """The problems for which any device's table has a config of this kernel."""
    problems: list[Problem] = []
    for slug in tuned.devices():
        for entry in tuned.table(slug).get(kernel.full_name, []):
            known = OPS[kernel.op].problem.from_fields(entry["problem"])
            if (problem := runnable(kernel, known)) and problem not in problems:
                problems.append(problem)
    return problems


def shipped(kernel: Kernel, problem: Problem) -> dict[Config, str]:
    """The configs that a launcher takes for this problem on any device with a table, each with its origin."""
    picked = dict(tuned.pick(kernel, problem, slug) for slug in tuned.devices())
    return {kernel.default_config(problem): "heuristic"} | picked


def spread(kernel: Kernel, problem: Problem, count: int) -> list[Config]:
    """At most `count` configs, at even distances in the search space."""
    space = kernel.configs(problem)
    return [space[(2 * i + 1) * len(space) // (2 * count)] for i in range(min(count, len(space)))]


def tasks(
    kernels: Iterable[Kernel], problems: Iterable[Problem], targets: Sequence[str], others: int = OTHERS
) -> Iterator[Task]:
    """For each kernel and each problem that it supports: the shipped configs, and at most `others` more."""
    problems = list(problems)
    for kernel in kernels:
        for problem in filter(None, (runnable(kernel, problem) for problem in problems)):
            origins = shipped(kernel, problem)
            for config in dict.fromkeys([*origins, *spread(kernel, problem, others)]):
                for target in targets:
                    yield Task(kernel, problem, config, origins.get(config, "space"), target)


def chosen_tasks(
    kernels: Sequence[Kernel], shapes: Sequence[tuple[int, int, int]], layout: str, targets: Sequence[str]
) -> list[Task]:
    """The tasks for these shapes; without shapes, for 2 router problems, for 1 problem of each other operation, and
    for every problem that a table of tuned configs holds."""
    workload = None if shapes else "router"
    problems = [problem for _, problem in workloads.problems(workload, shapes, tokens=ROUTER_TOKENS, layout=layout)]
    chosen = list(tasks(kernels, problems, targets))
    if not shapes:
        chosen += tasks(kernels, OTHER_OPERATIONS, targets)
        for kernel in kernels:
            chosen += tasks([kernel], tuned_problems(kernel), targets, others=0)
    return list(dict.fromkeys(chosen))


def matched_tasks(kernels: Sequence[Kernel], target: str) -> list[Task]:
    """Of each tilus kernel and its twin in Triton the same config, which tilus' launcher takes for the router's product
    at MATCHED_TOKENS; of OTHER_OPERATIONS, whose configs have no twins, what each launcher takes. A twin that cannot
    run tilus' config is left out."""
    known = {kernel.full_name: kernel for kernel in kernels}
    found = []
    for kernel in kernels:
        twin = known.get(contenders.counterpart(kernel.full_name) or "")
        if kernel.language is not Language.TILUS or twin is None:
            continue
        products = workloads.problems("router", [], tokens=[MATCHED_TOKENS], layout="nk")
        problem = runnable(kernel, next(one for one in (products[0][1], *OTHER_OPERATIONS) if one.op == kernel.op))
        if problem is None:
            continue
        config, origin = tuned.pick(kernel, problem, MATCHED_ON)
        found.append(Task(kernel, problem, config, origin, target))
        same = tuned.pick(twin, problem, MATCHED_ON)[0]
        if isinstance(problem, Matmul):
            same = space.matched(twin, problem, kernel, config)
        if not isinstance(same, str):
            found.append(Task(twin, problem, same, origin, target))
    return found


def compile_all(todo: Sequence[Task], cache: Path = CACHE, workers: int | None = None) -> list[Built]:
    """The outcomes of the tasks, in the order of the tasks. workers: processes (None: one for each CPU)."""
    places = {task: cache / f"{_key(task)}.json" for task in todo if not _lacks(task)}
    missing = [task for task, place in places.items() if not place.exists()]
    arguments = [
        (task.kernel.full_name, task.problem, asdict(task.config), task.target, str(places[task])) for task in missing
    ]
    with Children(workers or len(os.sched_getaffinity(0)), DEADLINE_S) as children:
        outcomes = children.each(compile_one, arguments)
    compiled = dict(zip(missing, outcomes, strict=True))
    if any(isinstance(outcome, tuple) and not places[task].exists() for task, outcome in compiled.items()):
        LOG.warning("%s cannot be written: what was compiled is compiled again next time", cache)

    def built(task: Task) -> Built:
        if task not in places:
            return Built(task, skipped=_lacks(task))
        if task not in compiled:
            return Built(task, msgspec.json.decode(places[task].read_bytes(), type=tuple[GpuKernel, ...]))
        outcome = compiled[task]
        if isinstance(outcome, tuple):
            return Built(task, outcome)
        return Built(task, error=outcome.message if isinstance(outcome, Died) else outcome)

    return [built(task) for task in todo]


def _lacks(task: Task) -> str:
    """Why this machine cannot compile the task; empty where it can."""
    if task.kernel.language.compiler is Language.TILUS and compilers.nvcc() is None:
        return "skipped: tilus compiles with nvcc, which is not found"
    return ""


@lru_cache(maxsize=4096)
def _key(task: Task) -> str:
    """A hash of all that the outcome depends on: kernel, problem, config, target, sources and compilers."""
    language = task.kernel.language
    packages = {contenders.PACKAGES[of].partition(".")[2] for of in (language, language.compiler)} | {"common"}
    sources = [Path(__file__), Path(loops.__file__), Path(ptx.__file__), Path(sass.__file__)]
    sources += [file for of in sorted(packages) for file in sorted(ROOT.joinpath(*of.split(".")).glob("*.py"))]
    config = sorted(asdict(task.config).items())
    what = [task.kernel.full_name, task.problem.name, str(config), task.target, *compilers_of(language.compiler)]
    return hashlib.sha256("\0".join([*what, *map(Path.read_text, sources)]).encode()).hexdigest()[:24]


@lru_cache(maxsize=2)
def compilers_of(language: Language) -> tuple[str, ...]:
    if language is Language.TRITON:
        return (f"triton {version('triton')}",)
    release = subprocess.run([_nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    return f"tilus {version('tilus')}", f"apache-tvm-ffi {version('apache-tvm-ffi')}", release


def _nvcc() -> str:
    found = compilers.nvcc()
    assert found is not None, "tasks of tilus are skipped where there is no nvcc"
    return found


def compile_one(
    full_name: str,
    problem: Problem,
    fields: dict[str, Any],
    target: str,
    place: str,
    *,
    announce: Callable[[str], None],
) -> tuple[GpuKernel, ...] | str:
    """Compiles in this process. Returns the GPU kernels, and keeps them as JSON at `place` where that can be written;
    or the error in one line.

    Runs in a fresh process: whether Triton compiles or interprets kernels is settled when Triton is imported.
    """
    os.environ.pop("TRITON_INTERPRET", None)
    kernel = contenders.find(full_name)
    announce(full_name)
    if kernel.build is None:
        return f"{full_name} has nothing to compile"
    try:
        build = partial(kernel.build, problem, kernel.config_from(fields))
        with TemporaryDirectory() as folder:
            gpu_kernels = tuple(COMPILE[kernel.language.compiler](build, target, Path(folder)))
    except Exception as error:  # a compiler may raise anything
        return _in_a_line(error)
    with suppress(OSError):
        replace_text(Path(place), msgspec.json.encode(gpu_kernels).decode())
    return gpu_kernels


def _in_a_line(error: BaseException) -> str:
    while error.__cause__:
        error = error.__cause__
    text = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    last_error = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
    return f"{type(error).__name__}: {last_error}"


def compile_triton(build: Callable[[], None], target: str, folder: Path) -> list[GpuKernel]:
    """What `build` compiles, in a process that compiles Triton kernels for this target alone."""
    from triton import knobs

    from triton_vs_tilus.kernels_triton import offline

    offline.compile_for(target, folder)
    knobs.nvidia.dump_ptxas_log = True  # printed as each kernel is compiled
    gpu_kernels: list[GpuKernel] = []
    log = io.StringIO()

    def compiled(*, metadata: dict[str, Any], metadata_group: dict[str, str], **_: object) -> None:
        text, cubin = (
            next(Path(path) for path in metadata_group.values() if path.endswith(kind)) for kind in (".ptx", ".cubin")
        )
        shared = {metadata["name"]: metadata["shared"]}
        gpu_kernels.extend(ptx.read(text.read_text(), log.getvalue(), sass.disassembled(cubin), shared))
        log.seek(0)
        log.truncate()

    knobs.compilation.listener = compiled
    with redirect_stdout(log):
        build()
    return gpu_kernels


def compile_tilus(build: Callable[[], None], target: str, folder: Path) -> list[GpuKernel]:
    """What `build` compiles, in a process that compiles tilus' programs for this target alone."""
    import tilus
    from tilus.backends.codegen import generate_ir_module
    from tilus.drivers import BuildOptions, optimize_ir_module, optimize_program
    from tilus.hidet.backend.codegen import codegen
    from tilus.ir.tools import verify

    from triton_vs_tilus.kernels_tilus.launching import one_a_launch, programs_only

    tilus.option.cache_dir(str(folder))
    tilus.target.set_current_target(getattr(tilus.target, f"nvgpu_{target.replace('_', '')}"))
    with programs_only() as programs:
        build()
    gpu_kernels: list[GpuKernel] = []
    for program in one_a_launch(programs):
        verify(program)
        module = optimize_ir_module(generate_ir_module(optimize_program(program, BuildOptions(), folder)), folder)
        codegen(module, src_out_path=str(folder / "source.cu"), target="cuda")
        log = nvcc(folder / "source.cu", target)
        shared = {
            function.name: int(function.get_attr("cuda.dynamic_smem_bytes", 0))
            for function in module.functions.values()
            if function.kind == "cuda_kernel"
        }
        machine_code = sass.disassembled(folder / "source.cubin")
        gpu_kernels += ptx.read((folder / "source.ptx").read_text(), log, machine_code, shared)
    return gpu_kernels


COMPILE = {Language.TRITON: compile_triton, Language.TILUS: compile_tilus}


def nvcc(source: Path, target: str) -> str:
    """Compiles the GPU's half of the CUDA source that tilus generated, with tilus' own flags; keeps the PTX beside the
    source, which is cut to that half.

    Returns what `ptxas -v` printed.
    """
    import tvm_ffi.libinfo
    from tilus.hidet import libinfo

    arch, folder = target.removeprefix("sm_"), source.parent
    source.write_text(device_half(source.read_text()))
    include = [*libinfo.get_include_dirs(), libinfo.find_include_path(), tvm_ffi.libinfo.find_include_path()]
    command = [_nvcc(), "-cubin", "-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-std=c++17", "-O3", "-ftz=true", "-prec-div=false", "--ptxas-options=-v"]
    command += ["--keep", "--keep-dir", str(folder), *(f"-I{path}" for path in include)]
    command += [str(source), "-o", str(source.with_suffix(".cubin"))]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stderr


def device_half(text: str) -> str:
    """CUDA source of tilus without the launcher at its end and its headers: parsing those takes most of the time."""
    device, launcher, _ = text.partition("\nDLL ")
    assert launcher, "tilus writes the launcher behind the kernels"
    unread = ["tvm/ffi/", "tilus/runtime.h", "TilusContext"]
    if "cooperative_groups::" not in device:
        unread.append("cooperative_groups.h")  # which tilus includes for every cluster
    lines = device.splitlines(keepends=True)
    return "".join(
        line for line in lines if not (line.startswith(("#include", "extern")) and any(name in line for name in unread))
    )
