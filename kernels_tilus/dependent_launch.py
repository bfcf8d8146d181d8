"""Programmatic dependent launch, which tilus 0.2.0 does not have: the blocks of a kernel may start while the one before
it on the stream is running, and go on to where they wait for it.

Two functions add what the kernels say: `start_dependents` in the one before, `after_kernel_before` in the one after.
How they are launched is the host's matter. tilus writes `kernel<<<...>>>`, which has no place for the attribute that
lets a kernel start early, so kernels that wait are given another launch here. And a multiprocessor gives its blocks
about as much shared memory as they ask for, the rest to its level 1 cache, and keeps that until they have ended: the
blocks of the kernel after, each of which takes 1 KiB, would find no room beside them. So the kernel before asks for
all of it, as Triton's does (kernels_triton/starting.py).

Source: CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization", and "Shared Memory" of compute
capability 9.0; PTX ISA, `griddepcontrol`.
"""

from typing import no_type_check

from tilus.hidet.backend.codegen import UpdatedCUDACodeGen
from tilus.hidet.ir.dtypes import uint64
from tilus.hidet.ir.expr import Expr, cast
from tilus.hidet.ir.primitives.cuda.funcs import call_cuda
from tilus.hidet.ir.primitives.func import register_primitive_function
from tilus.hidet.ir.stmt import AsmStmt, LaunchKernelStmt, asm
from tilus.hidet.ir.tools import collect
from tilus.hidet.ir.type import void_p
from tilus.hidet.lang import attrs, script
from tilus.hidet.utils.doc import Doc, NewLine, Text, doc_join

WAIT = "griddepcontrol.wait;"
LET_START = "griddepcontrol.launch_dependents;"


@no_type_check
def _register() -> None:
    @script
    def start_dependents():
        attrs.func_name = "cuda_start_dependents"
        attrs.func_kind = "cuda_internal"
        asm(template=LET_START, is_volatile=True)

    # The address comes out of the wait, so that no load from it can be moved before, and none takes what it reads for
    # constant while the kernel runs (`ld.global.nc`), which is true of all memory else that a kernel does not write.
    @script
    def after_kernel_before(pointer: void_p) -> uint64:
        attrs.func_name = "cuda_after_kernel_before"
        attrs.func_kind = "cuda_internal"
        written: uint64 = 0
        asm(
            template=WAIT + " mov.u64 %0, %1;",
            outputs=[written],
            inputs=[pointer],
            is_volatile=True,
            memory_fence=True,
        )
        return written

    for function in (start_dependents, after_kernel_before):
        register_primitive_function(name=function.name, func_or_type=function)


_register()
_launch = UpdatedCUDACodeGen.visit_LaunchKernelStmt


def _launch_dependently(self: UpdatedCUDACodeGen, stmt: LaunchKernelStmt) -> Doc:
    written = {statement.template_string for statement in collect(self.ir_module, AsmStmt)}
    launch = _launch_early(self, stmt) if any(WAIT in text for text in written) else _launch(self, stmt)
    if LET_START not in written:
        return launch
    kernel, attribute = self.canonize_funcname(stmt.func_var.name), "cudaFuncAttributePreferredSharedMemoryCarveout"
    room = Text(f"cudaFuncSetAttribute({kernel}, {attribute}, cudaSharedmemCarveoutMaxShared);")
    return NewLine() + room + launch


def _launch_early(self: UpdatedCUDACodeGen, stmt: LaunchKernelStmt) -> Doc:
    dims = [Text("dim3(") + self(dim) + ")" for dim in (stmt.grid_dim, stmt.block_dim)]
    config = doc_join([*dims, self(stmt.shared_mem_bytes), "(cudaStream_t)get_cuda_stream()", "&early", "1"], ", ")
    kernel = self.canonize_funcname(stmt.func_var.name)
    lines = [
        "cudaLaunchAttribute early = {};",
        "early.id = cudaLaunchAttributeProgrammaticStreamSerialization;",
        "early.val.programmaticStreamSerializationAllowed = 1;",
        Text("cudaLaunchConfig_t config = {") + config + "};",
        Text(f"cudaLaunchKernelEx(&config, {kernel}, ") + self(stmt.args) + ");",
    ]
    return doc_join([NewLine() + line for line in lines], "")


UpdatedCUDACodeGen.visit_LaunchKernelStmt = _launch_dependently


def start_dependents() -> Expr:
    """A statement of the kernel before, for every block, as soon as the one after may take up room beside it."""
    return call_cuda("start_dependents", args=[])


def after_kernel_before(pointer: Expr) -> Expr:
    """The pointer to what the kernel before writes, once all of its blocks have ended. The kernel that says so is
    launched dependently, and reads nothing else of what the one before writes."""
    return cast(call_cuda("after_kernel_before", args=[pointer]), void_p)
