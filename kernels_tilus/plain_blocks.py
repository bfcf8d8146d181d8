"""Kernels of plain blocks for Hopper, where tilus 0.2.0 compiles every kernel as one of clusters.

A Script that asks for no cluster has `cluster_blocks` (1, 1, 1), and tilus writes `__cluster_dims__(1, 1, 1)` for it. A
GPU starts clusters of one block more slowly than blocks (measured: notes/README.md). Without the attribute PTX takes
the block for a cluster of its own, so that instructions on clusters mean the same. A cluster of more blocks keeps it.

Importing this module changes tilus for the process; `launching` imports it, and so does every kernel.

Source: notes/tilus_compiler.md, 13; PTX ISA, "Cluster of Cooperative Thread Arrays".
"""

from typing import Any

import tilus.backends.codegen
from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.builders import FunctionBuilder
from tilus.hidet.ir.func import Function
from tilus.hidet.utils.doc import Doc


def _function_builder(*args: Any, cluster_dim: Any = None, **settings: Any) -> FunctionBuilder:
    """The builder of a kernel or of its host function, without an attribute that says nothing."""
    return FunctionBuilder(*args, cluster_dim=None if cluster_dim == (1, 1, 1) else cluster_dim, **settings)


_function = UpdatedCUDACodeGen.visit_Function


def _function_with_its_header(self: UpdatedCUDACodeGen, func: Function) -> Doc:
    """tilus includes the header of `cluster.sync` for the attribute, which a kernel may now call without."""
    written = _function(self, func)
    self.require_cooperative_groups |= "cooperative_groups::" in str(written)
    return written


tilus.backends.codegen.FunctionBuilder = _function_builder
UpdatedCUDACodeGen.visit_Function = _function_with_its_header
