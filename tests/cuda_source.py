"""The CUDA source that tilus makes of a kernel, without a GPU or nvcc; and what of shared memory it names."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import tilus
from tilus.backends.codegen import generate_ir_module
from tilus.backends.contexts.smem_alloc_ctx import SharedMemoryAllocator
from tilus.drivers import BuildOptions, optimize_ir_module, optimize_program
from tilus.hidet.backend.codegen import codegen
from tilus.ir.prog import Program
from tilus.lang.instantiated_script import InstantiatedScript

from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.plan import Plan
from triton_vs_tilus.common.problem import Problem
from triton_vs_tilus.kernels_tilus import interpreter
from triton_vs_tilus.kernels_tilus.launching import build_plan, one_a_launch, programs_only


def cuda_sources(kernel: Kernel, problem: Problem, config: Config, folder: Path) -> list[str]:
    """Of each program of the kernel, for Hopper."""
    return _sources_of(lambda: kernel.build(problem, config), folder)


def plan_sources(plan: Plan, folder: Path) -> list[str]:
    """Of each launch of a plan, for Hopper."""
    return _sources_of(lambda: build_plan(plan), folder)


def _sources_of(build: Callable[[], object], folder: Path) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tilus.target, "_target", tilus.target.nvgpu_sm90a)
        with programs_only() as programs:
            build()
        sources = [_cuda_source(program, folder) for program in one_a_launch(programs)]
    for source in sources:
        assert not WRONG_CAST.search(source), "a cast that is wrong (notes/tilus_compiler.md, 25)"
    return sources


def source_of(script: InstantiatedScript, *args: object, folder: Path) -> str:
    """Of a Script called with these arguments, for Hopper."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tilus.target, "_target", tilus.target.nvgpu_sm90a)
        return _cuda_source(interpreter.transpile(script, *args), folder)


_SOURCES: dict[str, str] = {}  # by the text of the program: variants of a kernel share some


def _cuda_source(program: Program, folder: Path) -> str:
    if (text := str(program)) not in _SOURCES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SharedMemoryAllocator, "allocate", _allocated_apart)
            module = generate_ir_module(optimize_program(program, BuildOptions(), folder))
        codegen(optimize_ir_module(module, folder), src_out_path=str(folder / "source.cu"), target="cuda")
        _SOURCES[text] = (folder / "source.cu").read_text()
    return _SOURCES[text]


_allocate = SharedMemoryAllocator.allocate


def _allocated_apart(self: SharedMemoryAllocator, *args: int, **kwargs: int) -> int:
    """As tilus allocates; and not in the memory of a tensor that is not freed (notes/tilus_compiler.md, 24)."""
    begin = _allocate(self, *args, **kwargs)
    end = begin + self.addr2nbytes[begin]
    others = ((other, other + nbytes) for other, nbytes in self.addr2nbytes.items() if other != begin)
    assert all(end <= first or last <= begin for first, last in others), "two live tensors in the same shared memory"
    return begin


class Place(NamedTuple):
    """Bytes of shared memory, from `begin` to before `end`."""

    name: str
    begin: int
    end: int

    def overlaps(self, other: "Place") -> bool:
        return self.begin < other.end and other.begin < self.end


WRONG_CAST = re.compile(r"src_uint32\[\w+\] \^ |float8_e4m3")
BARRIERS = re.compile(r"uint32_t barriers = [^;]*dynamic_shared_memory_uint64\((\d+)\)")
BARRIER = re.compile(r"^\s+tilus_cuda_mbarrier_init_shared\(", re.MULTILINE)
TENSOR = re.compile(
    r"= AllocateShared\(\)  # shared, (?P<dtype>\w+)\[[^\]]*\], size=(?P<size>\d+),[^\n]*\s*\*/\s*"
    r"\w+ \*(?P<name>\w+) = tilus_cuda_dynamic_shared_memory_\w+\((?P<begin>\d+)\);\s*"
    r"int32_t (?P<address>\w+) = [^;]*;"
)
WORKSPACE = re.compile(r"(shared_workspace) = [^;]*dynamic_shared_memory_uint8\((\d+)\)")
DYNAMIC_BYTES = re.compile(r"<<<.*, (\d+), \(cudaStream_t\)")


def barriers(source: str) -> Place | None:
    """The mbarriers, all that are initialised; None where there are none."""
    if not (place := BARRIERS.search(source)):
        return None
    begin = int(place[1])
    return Place("barriers", begin, begin + 8 * len(BARRIER.findall(source)))


def tensors(source: str) -> list[Place]:
    """Shared tensors that are read or written, and tilus' own workspace, for which the rest is."""
    code = re.sub(r"/\*.*?\*/", "", source[source.index("__global__") :], flags=re.DOTALL)
    found = []
    for match in TENSOR.finditer(source):
        mentions = re.findall(rf"\b(?:{match['name']}|{match['address']})\b", code)
        if len(mentions) > 3:  # two are declared, the second by the first
            begin, element_bytes = int(match["begin"]), getattr(tilus, match["dtype"]).nbytes
            found.append(Place(match["name"], begin, begin + int(match["size"]) * element_bytes))
    for name, begin in WORKSPACE.findall(source):
        found.append(Place(name, int(begin), int(DYNAMIC_BYTES.search(source)[1])))
    return found
