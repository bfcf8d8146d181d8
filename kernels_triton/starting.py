"""How a compiled kernel is started, and what of that differs between versions of Triton.

By Triton's launcher in C, with TMA descriptors that were encoded before.
Triton's own call, a function of Python around that launcher, encodes its descriptors anew each time. In versions that
are not named here it is called, with encoded descriptors.

tilus has no such file: what it compiles has a launch function that takes the tensors themselves and encodes its
descriptors (kernels_tilus/launching.py).
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import signature
from types import SimpleNamespace
from typing import Any

import triton
from triton.tools.tensor_descriptor import TensorDescriptor

KEPT = 1024  # encoded descriptors of an argument: of as many weights, or addresses of activations
PREFERRED_CARVEOUT, ALL_SHARED_MEMORY = 9, 100  # a CUfunction_attribute, and its value in percent

# Starts a kernel on a stream, given by its handle, with all of its arguments; a descriptor's are the encoded one, its
# shape and its strides.
Start = Callable[[int, Sequence[Any]], None]


def start_of(compiled: Any, grid: tuple[int, ...], *, lets_next_start: bool) -> Start:
    """Of a compiled kernel of a GPU, which is loaded here. lets_next_start: the next one is launched dependently."""
    run = compiled.run  # loads it
    if lets_next_start:
        _prefer_shared_memory(compiled.function)
    launcher = _taking_encoded(compiled) if _descriptors(compiled) else run
    x, y, z = (*grid, 1, 1)[:3]
    function, packed = compiled.function, compiled.packed_metadata

    def start(stream: int, args: Sequence[Any]) -> None:
        launcher(x, y, z, stream, function, packed, None, None, None, *args)

    version = ".".join(triton.__version__.split(".")[:2])
    if _needs_more(launcher) or version not in ("3.6", "3.7", "3.8", "3.9"):
        return start
    launch, flags = launcher.launch, (launcher.launch_cooperative_grid, launcher.launch_pdl)

    def start_3_6(stream: int, args: Sequence[Any]) -> None:
        launch(x, y, z, stream, function, *flags, None, None, packed, None, None, None, *args)

    if version == "3.6":
        return start_3_6
    head, tail = (*flags, packed, *[None] * 5), (launcher.arg_annotations, launcher.kernel_signature)

    def start_3_7(stream: int, args: Sequence[Any]) -> None:
        launch(x, y, z, stream, function, *head, *tail, args)

    return start_3_7


def _prefer_shared_memory(function: int) -> None:
    """Of a loaded kernel that lets the next one start: kernels_tilus/dependent_launch.py says why. By itself Triton's
    loader asks for it only where a block takes more than 48 KiB. Raises RuntimeError with the driver's error."""
    driver = ctypes.CDLL("libcuda.so.1")
    if error := driver.cuFuncSetAttribute(ctypes.c_void_p(function), PREFERRED_CARVEOUT, ALL_SHARED_MEMORY):
        raise RuntimeError(f"cuFuncSetAttribute of the carveout of shared memory: CUDA error {error}")


def _needs_more(launcher: Any) -> bool:
    """Whether a launch takes memory or arguments that the launcher adds."""
    return launcher.global_scratch_size or launcher.profile_scratch_size or getattr(launcher, "gsan_enabled", False)


def encoders_of(compiled: Any) -> list[Callable[[TensorDescriptor], Callable[[int], Any]]]:
    """For each argument of a compiled kernel that is a descriptor: what makes of one such the function that encodes it
    for an address. It keeps what it has encoded, which depends on nothing but the address."""
    from triton.backends.nvidia.driver import make_tensordesc_arg

    unused = [None] * (len(signature(make_tensordesc_arg).parameters) - 2)  # from 3.8 on, the launch's other arguments

    def encoder_of(meta: Any) -> Callable[[TensorDescriptor], Callable[[int], Any]]:
        def encoder(descriptor: TensorDescriptor) -> Callable[[int], Any]:
            @lru_cache(KEPT)
            def encode(address: int) -> Any:
                at = object.__new__(type(descriptor))  # without checks: the descriptor has passed them
                vars(at).update(vars(descriptor), base=SimpleNamespace(data_ptr=lambda: address))
                return make_tensordesc_arg(at, meta, *unused)[0]

            return encode

        return encoder

    return [encoder_of(meta) for meta in _descriptors(compiled)]


def _descriptors(compiled: Any) -> Sequence[Any]:
    """What the compiler says of the arguments that are descriptors."""
    return getattr(compiled.metadata, "tensordesc_meta", None) or ()


def _taking_encoded(compiled: Any) -> Any:
    """Triton's launcher of a compiled kernel, as for one whose descriptors have been encoded."""
    from triton.backends.nvidia.driver import CudaLauncher

    types: list[Any] = []
    for each in compiled.src.signature.values():
        if isinstance(each, str) and each.startswith("tensordesc"):
            rank = each.partition("[")[2].partition("]")[0].count(",") + 1
            types += ["nvTmaDesc", *["i32"] * rank, *["i64"] * rank]
        else:
            types.append(each)
    source = SimpleNamespace(signature=dict(enumerate(types)))
    return CudaLauncher(source, compiled.metadata._replace(tensordesc_meta=None))
