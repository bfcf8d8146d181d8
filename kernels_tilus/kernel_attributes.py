"""The attributes of tilus' kernels, which decide how a GPU starts a kernel's blocks and how many registers ptxas takes.

No cluster of one block: a Script that asks for no cluster has `cluster_blocks` (1, 1, 1), and tilus 0.2.0 writes
`__cluster_dims__(1, 1, 1)` for it where the GPU is a Hopper or later. A GPU starts clusters of one block more slowly
than blocks (measured: notes/counters.md). Without the attribute PTX takes the block for a cluster of its own, so that
instructions on clusters mean the same. A cluster of more blocks keeps it.

All registers of a multiprocessor for a block: tilus writes `__launch_bounds__(threads)`, by which ptxas spares
registers, so that many blocks fit, and for that delays loads until those before them are used: trips to memory one
after the other (measured: notes/semaphore.md). With 1 as second number they go out at once. No attribute of a Script
says it.

Importing this module changes tilus for the process; `launching` imports it, and so does every kernel.

Source: notes/tilus_compiler.md, 13 and 19; PTX ISA, "Cluster of Cooperative Thread Arrays"; CUDA C++ Programming Guide,
"Launch Bounds".
"""

from typing import Any

import tilus.backends.codegen
from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.builders import FunctionBuilder
from tilus.hidet.ir.func import Function
from tilus.hidet.utils.doc import Doc


def _function_builder(*args: Any, **settings: Any) -> FunctionBuilder:
    """The builder of a kernel, or of its host function, which has no threads to a block."""
    if "block_dim" in settings:
        settings["min_blocks"] = 1
        if settings["cluster_dim"] == (1, 1, 1):
            settings["cluster_dim"] = None
    return FunctionBuilder(*args, **settings)


_function = UpdatedCUDACodeGen.visit_Function


def _function_with_its_header(self: UpdatedCUDACodeGen, func: Function) -> Doc:
    """tilus includes the header of `cluster.sync` for the attribute, which a kernel may now call without."""
    written = _function(self, func)
    self.require_cooperative_groups |= "cooperative_groups::" in str(written)
    return written


tilus.backends.codegen.FunctionBuilder = _function_builder
UpdatedCUDACodeGen.visit_Function = _function_with_its_header
