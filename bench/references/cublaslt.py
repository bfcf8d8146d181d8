"""cuBLAS at its best: every algorithm that cublasLt's heuristic offers for a problem, for several sizes of workspace.

    C = epilogue(A @ B)        by cublasLtMatmul, ReLU and bias in its own epilogue

torch.mm takes the heuristic's first. Here the algorithm is the config: `--tune` searches it with the clock and the
checks of every other kernel, and without a search it is the first, with torch's own workspace on Hopper. cublasLt is
column-major: it computes C^T [N, M] = B^T @ A^T, and neither operand is copied.

The library is the one that torch has loaded; the binding is by ctypes, so a call costs the host more than torch.mm's.
Source: cublasLt.h of CUDA 13.0, whose numbers stand below.
"""

import ctypes
from ctypes import POINTER, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from triton_vs_tilus.common.checks import matmul_problem
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.common.protocol import Protocol

WORKSPACES = (0, 4, 32, 64)  # MiB; torch's own is 32 on Hopper
OFFERED = 16  # algorithms asked for

DATA_TYPE = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
COMPUTE_32F = 68  # cublasComputeType_t: fp32 sums, and of fp32 inputs no TF32
TRANSPOSED = 1  # cublasOperation_t
EPILOGUE = {Epilogue.NONE: 1, Epilogue.RELU: 2, Epilogue.BIAS: 4, Epilogue.BIAS_RELU: 6}  # cublasLtEpilogue_t
OF_PRODUCT = {"transa": 3, "transb": 4, "epilogue": 7, "bias": 8}  # cublasLtMatmulDescAttributes_t
MAX_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
MIN_ALIGNMENTS = (5, 6, 7, 8)  # likewise: of A, B, C, D
WIDEST_ALIGNMENT = 256  # bytes, what the heuristic takes for granted
OF_ALGORITHM = {"id": 0, "tile": 1, "split-K": 2, "reduction": 3, "stages": 6}  # cublasLtMatmulAlgoConfigAttributes_t


@dataclass(frozen=True)
class Algorithm:
    """The index-th that the heuristic offers, from 0, where it may use so many MiB of workspace."""

    workspace_mib: int = 32
    index: int = 0

    def __str__(self) -> str:
        return f"{self.workspace_mib} MiB #{self.index}"


class _Chosen(ctypes.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", c_uint64 * 8),)


class _Offer(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", _Chosen),
        ("workspace", c_size_t),
        ("status", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


SIGNATURES: dict[str, list[Any]] = {
    "cublasLtCreate": [POINTER(c_void_p)],
    "cublasLtMatmulDescCreate": [POINTER(c_void_p), c_int, c_int],
    "cublasLtMatmulDescSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatrixLayoutCreate": [POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64],
    "cublasLtMatmulPreferenceCreate": [POINTER(c_void_p)],
    "cublasLtMatmulPreferenceSetAttribute": [c_void_p, c_int, c_void_p, c_size_t],
    "cublasLtMatmulAlgoGetHeuristic": [*[c_void_p] * 7, c_int, POINTER(_Offer), POINTER(c_int)],
    "cublasLtMatmulAlgoConfigGetAttribute": [POINTER(_Chosen), c_int, c_void_p, c_size_t, POINTER(c_size_t)],
    "cublasLtMatmul": [
        *(c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_void_p, c_void_p, POINTER(_Chosen), c_void_p, c_size_t, c_void_p),
    ],
}


class CublasLt:
    """The functions used here; each raises RuntimeError with its name and status where it fails."""

    def __init__(self, path: str):
        library = ctypes.CDLL(path)
        self._functions = {name: getattr(library, name) for name in SIGNATURES}
        for name, types in SIGNATURES.items():
            self._functions[name].argtypes, self._functions[name].restype = types, c_int

    def call(self, name: str, *arguments: Any) -> None:
        if status := self._functions[name](*arguments):
            raise RuntimeError(f"{name}: status {status}")

    def created(self, name: str, *arguments: Any) -> c_void_p:
        """What a ...Create makes. It is never destroyed: there are few, one for each problem and algorithm."""
        made = c_void_p()
        self.call(name, byref(made), *arguments)
        return made


@lru_cache(maxsize=1)
def library() -> CublasLt:
    """torch's. Raises OSError where there is none."""
    return CublasLt(f"libcublasLt.so.{str(torch.version.cuda).partition('.')[0]}")


@lru_cache(maxsize=8)
def _handle(device: torch.device) -> c_void_p:
    return library().created("cublasLtCreate")


class Plan:
    """One problem by one algorithm. alignments: bytes, of B, A, C and C, the order in which cublasLt takes them."""

    def __init__(self, problem: Matmul, config: Algorithm, alignments: tuple[int, ...], device: torch.device):
        lt, self.device = library(), device
        m, n, k = problem.m, problem.n, problem.k
        weight_is_transposed = problem.layout is Layout.NK
        dtype, out_dtype = DATA_TYPE[problem.dtype], DATA_TYPE[problem.out_dtype]
        self._product = lt.created("cublasLtMatmulDescCreate", COMPUTE_32F, DATA_TYPE[torch.float32])
        self._set("transa", c_int32(TRANSPOSED if weight_is_transposed else 0))
        self._set("epilogue", c_uint32(EPILOGUE[problem.epilogue]))
        weight = (k, n, k) if weight_is_transposed else (n, k, n)  # rows, columns, elements from column to column
        self._weight = lt.created("cublasLtMatrixLayoutCreate", dtype, *weight)
        self._rows = lt.created("cublasLtMatrixLayoutCreate", dtype, k, m, k)
        self._out = lt.created("cublasLtMatrixLayoutCreate", out_dtype, n, m, n)
        wishes = lt.created("cublasLtMatmulPreferenceCreate")
        limit = c_uint64(config.workspace_mib << 20)
        lt.call("cublasLtMatmulPreferenceSetAttribute", wishes, MAX_WORKSPACE, byref(limit), 8)
        for attribute, alignment in zip(MIN_ALIGNMENTS, alignments, strict=True):
            lt.call("cublasLtMatmulPreferenceSetAttribute", wishes, attribute, byref(c_uint32(alignment)), 4)
        offers, count = (_Offer * OFFERED)(), c_int()
        layouts = self._product, self._weight, self._rows, self._out, self._out
        lt.call("cublasLtMatmulAlgoGetHeuristic", _handle(device), *layouts, wishes, OFFERED, offers, byref(count))
        if config.index >= count.value:
            offered = f"{count.value} algorithms for {problem.name} and {config.workspace_mib} MiB of workspace"
            raise NotImplementedError(f"cublasLt offers {offered}; there is no #{config.index}")
        self._algorithm, self.workspace = offers[config.index].algorithm, offers[config.index].workspace

    def _set(self, attribute: str, value: Any) -> None:
        size = ctypes.sizeof(value)
        library().call("cublasLtMatmulDescSetAttribute", self._product, OF_PRODUCT[attribute], byref(value), size)

    def run(self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, stream: int) -> None:
        """On the stream. Host memory of a workspace is torch's, newly allocated."""
        if bias is not None:
            self._set("bias", c_void_p(bias.data_ptr()))
        workspace = torch.empty(self.workspace, dtype=torch.uint8, device=self.device)
        one, zero, c = byref(c_float(1.0)), byref(c_float(0.0)), out.data_ptr()
        operands = b.data_ptr(), self._weight, a.data_ptr(), self._rows
        where = byref(self._algorithm), workspace.data_ptr(), self.workspace, stream
        library().call(
            "cublasLtMatmul",
            *(_handle(self.device), self._product, one, *operands, zero, c, self._out, c, self._out, *where),
        )

    def __str__(self) -> str:
        values = {}
        for name, attribute in OF_ALGORITHM.items():
            found, written = c_int32(), c_size_t()
            arguments = byref(self._algorithm), attribute, byref(found), 4, byref(written)
            library().call("cublasLtMatmulAlgoConfigGetAttribute", *arguments)
            values[name] = found.value
        described = ", ".join(f"{name} {value}" for name, value in values.items())
        return f"cublasLt algorithm {described}, {self.workspace} bytes of workspace"


_plan = lru_cache(maxsize=1024)(Plan)
_last: list[Plan] = []


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: Algorithm | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); see common.checks.matmul_problem for what is accepted and raised.
    Raises NotImplementedError for what `supports` refuses, and for an algorithm that cublasLt does not offer."""
    problem = matmul_problem(a, b, epilogue, bias, out, out_dtype)
    if reason := supports(problem):
        raise NotImplementedError(reason)
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.out_dtype, device=a.device)
    alignments = tuple(_alignment(tensor) for tensor in (b, a, out, out))
    plan = _plan(problem, config or Algorithm(), alignments, a.device)
    _last[:] = [plan]
    plan.run(a, b, bias, out, torch.cuda.current_stream(a.device).cuda_stream if a.is_cuda else 0)
    return out


def _alignment(tensor: Tensor) -> int:
    address = tensor.data_ptr()
    return min(WIDEST_ALIGNMENT, address & -address)


def supports(problem: Matmul, config: Algorithm | None = None) -> str | None:
    if problem.epilogue not in EPILOGUE:
        known = ", ".join(epilogue.value for epilogue in EPILOGUE)
        return f"cublasLt has no epilogue {problem.epilogue.value}; here are {known}"
    if problem.epilogue.has_bias and problem.out_dtype is not problem.dtype:
        return "cublasLt takes a bias of the output's dtype alone"
    return _lacks_library()


@lru_cache(maxsize=1)
def _lacks_library() -> str | None:
    if torch.version.cuda is None:
        return "this torch is built without CUDA, and brings no cublasLt"
    try:
        library()
    except (OSError, AttributeError) as error:
        return f"cublasLt cannot be loaded: {error}"
    return None


def space(problem: Matmul) -> Space:
    """As many as may be offered; a search passes over those that are not."""
    return Space(tuple(Algorithm(*pair) for pair in product(WORKSPACES, range(OFFERED))))


KERNEL = Kernel(
    name="best",
    variant="",
    language=Language.CUBLASLT,
    protocol=Protocol.LIBRARY,
    launch=matmul,
    config_type=Algorithm,
    space=space,
    default_config=lambda problem: Algorithm(),
    build=None,
    supports=supports,
    deterministic=False,  # not claimed
    roundings=lambda config: 1,
    workspace_bytes=lambda problem, config: None,
    launches=None,
    note=lambda: str(_last[0]) if _last else "",
)
