"""Runs tilus Scripts on the CPU, checks how their threads and blocks meet, and shows what they hold.

tilus has no interpreter. This one executes the tile-level Program that a Script is transpiled to, before the compiler:
tiles are torch tensors, every thread block is a coroutine, layouts are ignored. See notes/interpreter.md.

For Triton a file is enough, kernels_triton/interpreter.py, as Triton brings an interpreter, which it mends.
"""

from kernels_tilus.interpreter.errors import (
    Deadlock,
    Divergent,
    KernelError,
    MissingFence,
    MissingSync,
    NotClean,
    OutOfBounds,
    Overflow,
    PendingCopy,
    PendingProduct,
    Race,
    Uninitialized,
    Unsupported,
    UseAfterFree,
)
from kernels_tilus.interpreter.launch import run, run_program, transpile, using
from kernels_tilus.interpreter.machine import Step
from kernels_tilus.interpreter.schedule import Schedule

__all__ = [
    "Deadlock",
    "Divergent",
    "KernelError",
    "MissingFence",
    "MissingSync",
    "NotClean",
    "OutOfBounds",
    "Overflow",
    "PendingCopy",
    "PendingProduct",
    "Race",
    "Schedule",
    "Step",
    "Uninitialized",
    "Unsupported",
    "UseAfterFree",
    "run",
    "run_program",
    "transpile",
    "using",
]
