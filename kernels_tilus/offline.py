"""Compiling for a GPU that is not here, into a cache that can be carried to it.

tilus 0.2.0 finds a program by a hash of its text, the target and the build options, of which one is this project's
(build_options.py). Its own version, nvcc's and the paths are not in it, so `identity` names what has to be equal beside
it. What it builds is a shared library of the host, for the processor that it runs on, linked with the driver's library:
here for any x86-64, linked with a stub.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import tilus
import tilus.drivers
from tilus.hidet.backend.build import NVCC
from tilus.target import Target

from triton_vs_tilus.common import compilers
from triton_vs_tilus.kernels_tilus.launching import programs_only

PROGRAMS = "programs/*/module/lib.so"  # in the cache: a file for each program
_CARRIED = {"lib.so"}  # of a program's module


class _Compiler(NVCC):
    """tilus' own, for the processor and the driver of another machine."""

    def __init__(self, stubs: Path):
        super().__init__()
        self.library_dirs.append(str(_driver_stub(stubs)))

    def run_compile_command(self, command: str, src_path: str, out_lib_path: str, keep_files) -> None:
        command = command.replace("-march=native", "-march=x86-64")
        command = command.replace("-lcuda ", "-Xlinker --no-as-needed -lcuda ")  # the stub has none of its symbols
        if "cooperative_groups::" not in Path(src_path).read_text():
            command += " -D_COOPERATIVE_GROUPS_H_"  # tilus includes the header for every cluster: a third of the time
        # A library that is there counts as whole.
        unfinished = f"{out_lib_path}.{os.getpid()}"
        command = command.replace(f"-o {out_lib_path}", f"-o {unfinished}")
        super().run_compile_command(command, src_path, out_lib_path, keep_files)
        os.replace(unfinished, out_lib_path)
        for left in Path(out_lib_path).parent.iterdir():
            if left.name not in _CARRIED:
                left.unlink()


def _driver_stub(folder: Path) -> Path:
    """The folder, with a libcuda.so in it to link with: on the GPU's machine the driver's takes its place."""
    stub = folder / "libcuda.so"
    if not stub.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"libcuda.{os.getpid()}"
        options = ["-shared", "-Wl,-soname,libcuda.so.1", "-x", "c", os.devnull, "-o", str(unfinished)]
        subprocess.run(["g++", *options], check=True, capture_output=True)
        unfinished.replace(stub)
    return folder


def compile_for(target: str, cache: Path) -> None:
    """From here on this process compiles for the target ('sm_90a'), into the cache; it can launch nothing."""
    tilus.option.cache_dir(str(cache))
    tilus.target.set_current_target(getattr(tilus.target, f"nvgpu_{target.replace('_', '')}"))

    def compile_source(source_file: str, output_library_file: str, target: Target) -> None:
        _Compiler(cache / "stubs").compile(source_file, output_library_file, target)

    tilus.drivers.compile_source = compile_source  # its own first asks for a GPU


def build(compile_kernel: Callable[[], None]) -> None:
    """Compiles what compile_kernel, of a Kernel's record, compiles, without loading it. Raises what the compiler
    does."""
    with programs_only() as programs:
        compile_kernel()
    for program in programs:
        tilus.drivers.build_program(program)


def identity() -> dict[str, str]:
    """What must be equal where a program is built and where it is found, so that it is right and can be loaded. Raises
    FileNotFoundError where there is no nvcc, CalledProcessError where it fails, PackageNotFoundError."""
    nvcc = compilers.nvcc()
    if nvcc is None:
        raise FileNotFoundError("tilus compiles with nvcc, which is not found")
    release = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    versions = {name: metadata.version(name) for name in ("tilus", "apache-tvm-ffi")}
    return {**versions, "nvcc": release.partition("release ")[2].partition(",")[0], "machine": platform.machine()}


def adopt(carried: Path) -> int:
    """Copies a carried cache into this machine's. Returns the number of programs."""
    shutil.copytree(carried / "programs", Path(tilus.option.get_option("cache_dir")) / "programs", dirs_exist_ok=True)
    return len(list(carried.glob(PROGRAMS)))
