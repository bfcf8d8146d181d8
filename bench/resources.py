"""What the kernels of both languages are compiled to, side by side: registers, shared memory, spills, instructions.

    python bench/resources.py
    python bench/resources.py --target sm_90a --only semaphore --shape 16x256x7168 --layout kn --markdown

Needs no GPU. Without --shape: every config of the tuned tables; and for two router shapes, and a problem of each other
operation, the configs that launchers take and a few more of the search space. Triton's kernels are compiled by the
ptxas that comes with it, tilus' by nvcc.
Exits 1 where a config that launchers take does not compile, or not fit, for the last target.
"""

import argparse
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import compress, groupby
from pathlib import Path
from tempfile import TemporaryDirectory

if not __package__:  # run as a script: what to import from is the folder above, not this one
    sys.path[:1] = [str(Path(__file__).resolve().parent.parent)]

from bench import contenders, workloads
from bench.environment import ROOT, version
from bench.ops import OPS
from bench.process import Children, Died
from bench.tables import Table, console
from common import tuned
from common.epilogue import Epilogue
from common.kernel import Config, Kernel, Language
from common.or_reduce import OrReduce
from common.problem import Layout, Matmul, Problem
from common.w4a16 import W4A16Matmul

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton-vs-tilus" / "resources"
DEADLINE_S = 600  # of one config, all of its GPU kernels
TOKENS = (16, 256)  # of the router, without --shape: few rows and many
OTHER_OPERATIONS = (OrReduce(2048, 4096, 16), W4A16Matmul(16, 4096, 4096))  # as well
OTHERS = 2  # configs of the search space, beside those that launchers take

SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90a": 227 * 1024}  # bytes a block; its keys are the targets
REGISTERS_OF_THREAD = 255
REGISTERS_OF_BLOCK = 65536  # as on every target; given to a thread in eights

GROUPS = ("tensor cores", "async copies", "global loads", "global stores", "atomics and order", "barriers")


@dataclass(frozen=True)
class GpuKernel:
    """What one compiled GPU kernel takes: registers of a thread, threads and shared bytes of a block, spill and stack
    bytes of a thread; and how often each class of PTX instructions stands in it, by group."""

    name: str
    threads: int
    registers: int
    static_shared: int
    dynamic_shared: int
    spill_stores: int
    spill_loads: int
    stack: int
    instructions: dict[str, dict[str, int]]

    @property
    def shared(self) -> int:
        return self.static_shared + self.dynamic_shared

    @property
    def spills(self) -> int:
        return self.spill_stores + self.spill_loads

    def over(self, target: str) -> str:
        """Why a GPU of this target cannot launch it; empty where it can."""
        of_block = math.ceil(self.registers / 8) * 8 * self.threads
        reasons = (
            (self.shared > SHARED_LIMIT[target], f"{self.shared} bytes of shared memory, over {SHARED_LIMIT[target]}"),
            (self.registers > REGISTERS_OF_THREAD, f"{self.registers} registers, over {REGISTERS_OF_THREAD}"),
            (of_block > REGISTERS_OF_BLOCK, f"{of_block} registers in a block, over {REGISTERS_OF_BLOCK}"),
        )
        return "; ".join(reason for holds, reason in reasons if holds)


@dataclass(frozen=True)
class Task:
    """A config to compile. origin: 'tuned', 'nearest' or 'heuristic', as of tuned.pick, all of which launchers take;
    'space' for others."""

    kernel: Kernel
    problem: Problem
    config: Config
    origin: str
    target: str


@dataclass(frozen=True)
class Built:
    """What came of a task: its GPU kernels, in the order of their launches, or what the compiler said, or what is
    missing here to compile it."""

    task: Task
    gpu_kernels: tuple[GpuKernel, ...] = ()
    error: str = ""
    skipped: str = ""

    @property
    def broken(self) -> bool:
        """Whether a GPU of the target could not launch it."""
        return bool(self.error) or any(gpu_kernel.over(self.task.target) for gpu_kernel in self.gpu_kernels)


# What some kernels of an operation need of a problem.
NEEDED = {Matmul: {"epilogue": Epilogue.RELU}, OrReduce: {"constant": True}}


def runnable(kernel: Kernel, problem: Problem) -> Problem | None:
    """The problem, or with what the kernel needs of it, an epilogue or a constant A; None where it supports neither, or
    is of another operation."""
    if kernel.op != problem.op:
        return None
    changed = replace(problem, **NEEDED.get(type(problem), {}))
    return next((tried for tried in (problem, changed) if kernel.supports(tried, None) is None), None)


def tuned_problems(kernel: Kernel) -> list[Problem]:
    """Those that some device's table holds a config of this kernel for."""
    problems = []
    for path in sorted(tuned.TABLES.glob("*.json")):
        for entry in tuned.table(path.stem).get(kernel.full_name, []):
            known = OPS[kernel.op].problem.from_fields(entry["problem"])
            if (problem := runnable(kernel, known)) and problem not in problems:
                problems.append(problem)
    return problems


def shipped(kernel: Kernel, problem: Problem) -> dict[Config, str]:
    """The configs that a launcher takes for this problem on some device, with their origin."""
    devices = [path.stem for path in sorted(tuned.TABLES.glob("*.json"))]
    picked = dict(tuned.pick(kernel, problem, device) for device in devices)
    return {kernel.default_config(problem): "heuristic"} | picked


def spread(kernel: Kernel, problem: Problem, count: int) -> list[Config]:
    """`count` configs or fewer, at even distances in the search space."""
    space = kernel.configs(problem)
    return [space[(2 * i + 1) * len(space) // (2 * count)] for i in range(min(count, len(space)))]


def tasks(
    kernels: Iterable[Kernel], problems: Iterable[Problem], targets: Sequence[str], others: int = OTHERS
) -> Iterator[Task]:
    """For each kernel and each problem that it supports: what is shipped, and `others` more."""
    problems = list(problems)
    for kernel in kernels:
        for problem in filter(None, (runnable(kernel, problem) for problem in problems)):
            origins = shipped(kernel, problem)
            for config in dict.fromkeys([*origins, *spread(kernel, problem, others)]):
                for target in targets:
                    yield Task(kernel, problem, config, origins.get(config, "space"), target)


def compile_all(todo: Sequence[Task], cache: Path = CACHE, workers: int | None = None) -> list[Built]:
    """Each task's outcome, in their order. workers: processes (None: one per CPU of this machine)."""
    places = {task: cache / f"{_key(task)}.json" for task in todo if not _lacks(task)}
    missing = [task for task, place in places.items() if not place.exists()]
    arguments = [
        (task.kernel.full_name, task.problem, asdict(task.config), task.target, str(places[task])) for task in missing
    ]
    with Children(workers or len(os.sched_getaffinity(0)), DEADLINE_S) as children:
        outcomes = children.each(compile_one, arguments)
    errors = {
        task: outcome.message if isinstance(outcome, Died) else outcome
        for task, outcome in zip(missing, outcomes, strict=True)
    }

    def built(task: Task) -> Built:
        if task not in places:
            return Built(task, skipped=_lacks(task))
        if error := errors.get(task):
            return Built(task, error=error)
        return Built(task, tuple(GpuKernel(**fields) for fields in json.loads(places[task].read_text())))

    return [built(task) for task in todo]


def _lacks(task: Task) -> str:
    """What is missing here to compile it, empty where nothing is."""
    if task.kernel.language is Language.TILUS and contenders.nvcc() is None:
        return "skipped: tilus compiles with nvcc, which is not found"
    return ""


@lru_cache(maxsize=4096)
def _key(task: Task) -> str:
    """Of all that decides what a task compiles to: kernel, problem, config and target, sources, compilers."""
    package = contenders.PACKAGES[task.kernel.language]
    sources = [Path(__file__), *sorted(ROOT.glob(f"{package}/*.py")), *sorted(ROOT.glob("common/*.py"))]
    config = sorted(asdict(task.config).items())
    what = [task.kernel.full_name, task.problem.name, str(config), task.target, *_compilers(task.kernel.language)]
    return hashlib.sha256("\0".join([*what, *map(Path.read_text, sources)]).encode()).hexdigest()[:24]


@lru_cache(maxsize=2)
def _compilers(language: Language) -> tuple[str, ...]:
    if language is Language.TRITON:
        return (f"triton {version('triton')}",)
    said = subprocess.run([contenders.nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    return f"tilus {version('tilus')}", f"apache-tvm-ffi {version('apache-tvm-ffi')}", said


def compile_one(
    full_name: str,
    problem: Problem,
    fields: dict[str, object],
    target: str,
    place: str,
    *,
    tell: Callable[[str], None],
) -> str:
    """Compiles in this process and leaves the GPU kernels as JSON in `place`. Returns why it cannot, in a line, or ''.

    A fresh process, as Triton settles when it is imported whether its kernels are compiled or interpreted.
    """
    os.environ.pop("TRITON_INTERPRET", None)
    kernel = contenders.find(full_name)
    tell(full_name)
    compile_kernel = {Language.TRITON: _compile_triton, Language.TILUS: _compile_tilus}[kernel.language]
    try:
        with TemporaryDirectory() as folder:
            gpu_kernels = compile_kernel(kernel, problem, kernel.config_from(fields), target, Path(folder))
    except Exception as error:  # whatever a compiler raises on the way is the outcome
        return _in_a_line(error)
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(f"{place}.{os.getpid()}")
    unfinished.write_text(json.dumps([asdict(gpu_kernel) for gpu_kernel in gpu_kernels]))
    unfinished.replace(place)
    return ""


def _in_a_line(error: BaseException) -> str:
    while error.__cause__:
        error = error.__cause__
    said = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()] or [""]
    telling = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
    return f"{type(error).__name__}: {telling}"


class _Target:
    """A driver for Triton that has one GPU, never launched on. Each is a device of its own, for which nothing has been
    compiled yet."""

    def __init__(self, arch: int):
        self.arch = arch

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self):
        return self

    def get_current_stream(self, device: "_Target") -> int:
        return 0


def _compile_triton(kernel: Kernel, problem: Problem, config: Config, target: str, folder: Path) -> list[GpuKernel]:
    from triton import knobs
    from triton.runtime import driver

    driver.set_active(_Target(int(re.search(r"\d+", target).group())))
    knobs.cache.dir = str(folder)
    knobs.nvidia.dump_ptxas_log = True  # printed as each kernel is compiled
    gpu_kernels: list[GpuKernel] = []
    log = io.StringIO()

    def compiled(*, metadata: dict[str, object], metadata_group: dict[str, str], **_: object) -> None:
        ptx = next(Path(path).read_text() for path in metadata_group.values() if path.endswith(".ptx"))
        gpu_kernels.extend(read(ptx, log.getvalue(), {metadata["name"]: metadata["shared"]}))
        log.seek(0)
        log.truncate()

    knobs.compilation.listener = compiled
    with redirect_stdout(log):
        kernel.build(problem, config)
    return gpu_kernels


def _compile_tilus(kernel: Kernel, problem: Problem, config: Config, target: str, folder: Path) -> list[GpuKernel]:
    import tilus
    from tilus.backends.codegen import generate_ir_module
    from tilus.drivers import BuildOptions, optimize_ir_module, optimize_program
    from tilus.hidet.backend.codegen import codegen
    from tilus.ir.tools import verify

    from kernels_tilus.launching import programs_only

    tilus.option.cache_dir(str(folder))
    tilus.target.set_current_target(getattr(tilus.target, f"nvgpu_{target.replace('_', '')}"))
    with programs_only() as programs:
        kernel.build(problem, config)
    gpu_kernels = []
    for program in programs:
        verify(program)
        module = optimize_ir_module(generate_ir_module(optimize_program(program, BuildOptions(), folder)), folder)
        codegen(module, src_out_path=str(folder / "source.cu"), target="cuda")
        log = nvcc(folder / "source.cu", target)
        shared = {
            function.name: int(function.get_attr("cuda.dynamic_smem_bytes", 0))
            for function in module.functions.values()
            if function.kind == "cuda_kernel"
        }
        gpu_kernels += read((folder / "source.ptx").read_text(), log, shared)
    return gpu_kernels


def nvcc(source: Path, target: str) -> str:
    """Compiles what tilus has generated, as tilus would, and leaves the PTX beside it; what `ptxas -v` told."""
    import tvm_ffi.libinfo
    from tilus.hidet import libinfo

    arch, folder = target.removeprefix("sm_"), source.parent
    include = [*libinfo.get_include_dirs(), libinfo.find_include_path(), tvm_ffi.libinfo.find_include_path()]
    command = [contenders.nvcc(), "-cubin", "-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-std=c++17", "-O3", "-ftz=true", "-prec-div=false", "--ptxas-options=-v"]
    command += ["--keep", "--keep-dir", str(folder), *(f"-I{path}" for path in include)]
    command += [str(source), "-o", str(source.with_suffix(".cubin"))]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stderr


ENTRY_LOG = re.compile(
    r"Compiling entry function '(?P<name>[^']+)'.*?"
    r"(?P<stack>\d+) bytes stack frame, (?P<spill_stores>\d+) bytes spill stores, "
    r"(?P<spill_loads>\d+) bytes spill loads\s*\n"
    r"[^\n]*Used (?P<registers>\d+) registers(?:[^\n]*?(?P<static_shared>\d+) bytes smem)?",
    re.DOTALL,
)
FUNCTION = re.compile(r"^(?:\.\w+ )*\.(entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)", re.MULTILINE)
THREADS = re.compile(r"^\s*\.(?:maxntid|reqntid)\s+([\d, ]+)", re.MULTILINE)


def read(ptx: str, log: str, dynamic_shared: dict[str, int]) -> Iterator[GpuKernel]:
    """The GPU kernels of a PTX text, from it and from what `ptxas -v` told of it.

    dynamic_shared: bytes of each launch by the kernel's name, which its name in PTX contains.
    """
    logged = {match["name"]: match for match in ENTRY_LOG.finditer(log)}
    starts = [*FUNCTION.finditer(ptx)]
    ends = [match.start() for match in starts[1:]] + [len(ptx)]
    for match, end in zip(starts, ends, strict=True):
        kind, entry = match.groups()
        if kind != "entry":
            continue
        text = ptx[match.end() : end]
        name = max((name for name in dynamic_shared if name in entry), key=len)
        figures = {key: int(value or 0) for key, value in logged[entry].groupdict().items() if key != "name"}
        threads = math.prod(int(size) for size in THREADS.search(text).group(1).split(","))
        yield GpuKernel(name, threads, dynamic_shared=dynamic_shared[name], instructions=count(text), **figures)


# A statement of PTX, or of the assembly inlined in it: after braces, labels and a predicate, the opcode and the rest.
STATEMENT = re.compile(r"(?:[\s{}]|[$\w]+:(?!:))*(?:@!?%?[$\w]+\s+)?([a-z][\w.:]*)(.*)", re.DOTALL)
NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file|section)\b[^\n]*", re.DOTALL | re.MULTILINE)


def count(text: str) -> dict[str, dict[str, int]]:
    """How often each class of instructions stands in a PTX function, by group; a loop's body counts once."""
    counts: dict[str, Counter[str]] = {group: Counter() for group in GROUPS}
    for statement in NOT_CODE.sub("", text).split(";"):
        if (match := STATEMENT.fullmatch(statement)) and (found := classify(match[1], match[2])):
            group, name = found
            counts[group][name] += 1
    return {group: dict(counter) for group, counter in counts.items() if counter}


SPACES = ("global", "shared", "local", "param", "const")
ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio")
SCOPES = ("cta", "cluster", "gpu", "sys")


def classify(opcode: str, operands: str) -> tuple[str, str] | None:
    """(group, class) of a PTX instruction, or None for one that is not told.

    >>> classify("ld.global.nc.v4.b32", "{%r1, %r2, %r3, %r4}, [%rd1]")
    ('global loads', '16 B')
    """
    parts = opcode.split(".")
    space = next((part.partition("::")[0] for part in parts if part.partition("::")[0] in SPACES), "generic")
    order = next((part for part in parts if part in ORDERS), None)
    scope = next((part for part in parts if part in SCOPES), None)
    if parts[0] == "mma" or opcode.startswith("wgmma.mma_async"):
        return "tensor cores", ".".join(parts[:2])
    if parts[0] == "cp":
        return _classify_copy(parts, operands)
    if parts[0] in ("ld", "st") and space in ("global", "generic"):
        if order:
            return "atomics and order", ".".join(filter(None, (parts[0], order, scope)))
        group = "global loads" if parts[0] == "ld" else "global stores"
        size = f"{_access_bytes(parts)} B"
        return group, size if space == "global" else f"{size} generic"
    if parts[0] in ("atom", "red", "multimem"):
        operation = next(part for part in parts[1:] if part not in (*SPACES, *ORDERS, *SCOPES))
        where = None if space in ("global", "generic") else space
        return "atomics and order", ".".join(filter(None, (parts[0], where, order or "relaxed", scope, operation)))
    if parts[0] in ("fence", "membar", "griddepcontrol"):
        return "atomics and order", opcode
    if parts[0] in ("bar", "barrier", "mbarrier"):
        # bar.sync is barrier.cta.sync, and barrier.sync as well.
        name = opcode.replace("barrier.cta", "bar").replace("barrier.sync", "bar.sync")
        return "barriers", ".".join(name.split(".")[:2])
    return None


def _classify_copy(parts: list[str], operands: str) -> tuple[str, str] | None:
    """cp.async by its bytes; cp(.reduce).async.bulk(.tensor) by its direction; None for what groups and awaits them."""
    if "bulk" in parts:
        spaces = [part.partition("::")[0] for part in parts if part.partition("::")[0] in ("global", "shared")]
        if len(spaces) < 2:
            return None
        unit = "tensor" if "tensor" in parts else "bulk"
        verb = "reduce" if "reduce" in parts else "load" if spaces[0] == "shared" else "store"
        return "async copies", f"{unit} {verb}"
    if parts[2] in ("ca", "cg"):
        return "async copies", f"cp.async {int(operands.split(',')[2], 0)} B"
    return None


def _access_bytes(parts: list[str]) -> int:
    vector = next((int(part[1:]) for part in parts if re.fullmatch(r"v\d", part)), 1)
    bits, pair = re.fullmatch(r"[a-z]+(\d+)(x2)?", parts[-1]).groups()
    return vector * int(bits) * (2 if pair else 1) // 8


FIGURES = ["threads", "registers", "shared", "spills", "stack"]
HEADER = ["kernel", "configuration", "from", "GPU kernel", *FIGURES, *GROUPS, "note"]
FOOT = "Shared memory in bytes a block; spills, stack in bytes a thread; instructions as they stand in PTX, loops once."


def table(built: Sequence[Built]) -> Table:
    """One problem on one target: a line for each GPU kernel of each config; a column for what any of them has."""
    task = built[0].task
    lines = []
    for of_config in built:
        first = [of_config.task.kernel.full_name, str(of_config.task.config), of_config.task.origin]
        for gpu_kernel in of_config.gpu_kernels:
            figures = [str(getattr(gpu_kernel, name)) for name in FIGURES]
            counts = [_counts_text(gpu_kernel.instructions.get(group, {})) for group in GROUPS]
            lines.append([*first, gpu_kernel.name, *figures, *counts, gpu_kernel.over(task.target)])
            first = ["", "", ""]
        if why := of_config.error or of_config.skipped:
            lines.append([*first, *[""] * (len(HEADER) - len(first) - 1), why])
    used = [any(cells) for cells in zip(*lines, strict=True)]
    header, *lines = (list(compress(cells, used)) for cells in (HEADER, *lines))
    return Table(f"{task.problem.name}, {task.target}", header, lines, foot=FOOT)


def _counts_text(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} x{counts[name]}" for name in sorted(counts))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(SHARED_LIMIT), help="of the GPU (default: each of them)")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="as in compare.py; repeatable")
    parser.add_argument("--shape", metavar="MxNxK", action="append", default=[], help="one problem; repeatable")
    layouts = [layout.value for layout in Layout]
    parser.add_argument("--layout", choices=layouts, default="nk", help="of the weight (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="for a page instead of a terminal")
    args = parser.parse_args(arguments)
    targets = [args.target] if args.target else list(SHARED_LIMIT)
    try:
        kernels = [kernel for kernel in contenders.choose(contenders.all_contenders(), args.only) if kernel.build]
        shapes = [workloads.parse_shape(text) for text in args.shape]
    except ValueError as error:
        parser.error(str(error))
    workload = None if shapes else "router"
    problems = [problem for _, problem in workloads.problems(workload, shapes, tokens=TOKENS, layout=args.layout)]
    todo = list(tasks(kernels, problems, targets))
    if not shapes:
        todo += tasks(kernels, OTHER_OPERATIONS, targets)
        for kernel in kernels:
            todo += tasks([kernel], tuned_problems(kernel), targets, others=0)
    todo = list(dict.fromkeys(todo))

    def place(one: Built) -> tuple[str, str]:
        return one.task.problem.name, one.task.target

    print(f"{len(todo)} configs, but for those compiled before", file=sys.stderr)
    built = compile_all(todo)
    for _, group in groupby(sorted(built, key=place), key=place):
        shown = table(list(group))
        print(shown.markdown()) if args.markdown else console().print(shown)
    wrong = [one for one in built if one.broken and one.task.target == targets[-1] and one.task.origin != "space"]
    return 1 if wrong else 0


if __name__ == "__main__":
    from bench import resources  # under its own name, by which the processes find what to run

    sys.exit(resources.main())
