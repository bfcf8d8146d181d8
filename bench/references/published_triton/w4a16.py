"""The W4A16 SplitK paper's two kernels, as published: a weight as GPTQ packs it, dequantized beside the product.

    C[m, n] = sum over k of A[m, k] * (q[k, n] * scales[g, n] - zeros[g, n] * scales[g, n])     g = k / group size

data_parallel  one program walks all of K
splitk         split s takes the steps s, s + split_k, ... of K; each adds its sum to C by atomics of fp16 (Algorithm 1)

Every q is shifted out of its word, scaled and shifted by its zero point in fp16, before the product of the tensor
cores. Words, scales and zero points are read as GPTQ stores them.

Grid         (tiles of C in groups of 8 rows, splits)
Deterministic data_parallel; the atomics are not
Workspace    none
Launches     1; splitk 2, the first of them zeroes C

Source: "Accelerating a Triton Fused Kernel for W4A16 Quantized Inference with SplitK Work Decomposition" (arXiv
2402.00025); the tiles, warps and stages that it fixes, and does not name, are those of its repository
(foundation-model-stack, branch triton). What was decided here: notes/as_published.md.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references.published_triton.grouping import tile_of
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.kernel import Kernel, Language, Space, space_of
from triton_vs_tilus.common.plan import Launch, Plan, Slot
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import GPTQWeight
from triton_vs_tilus.common.w4a16 import (
    W4A16Config,
    W4A16Inputs,
    W4A16Matmul,
    W4A16Places,
    checked,
    contiguous,
    count_tiles,
    launched,
)
from triton_vs_tilus.kernels_triton import launching

GROUP_M = 8


@dataclass(frozen=True)
class PaperConfig(W4A16Config):
    """Each is compiled for itself."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ()


DATA_PARALLEL = PaperConfig(block_m=16, block_n=32, block_k=256, split_k=1, num_warps=4, num_stages=4)
SPLITK = PaperConfig(block_m=16, block_n=32, block_k=128, split_k=4, num_warps=4, num_stages=3, interleaved=True)
SPLITS = (2, 4, 8, 16)
SPACES = {
    "data_parallel": (DATA_PARALLEL,),
    "splitk": tuple(replace(SPLITK, split_k=split_k) for split_k in SPLITS),
}
PROTOCOLS = {"data_parallel": Protocol.DATA_PARALLEL, "splitk": Protocol.ATOMIC}


def space(problem: W4A16Matmul, *, variant: str) -> Space:
    """One tile: of data_parallel alone, of splitk with 2 to 16 splits."""
    return space_of(SPACES[variant], partial(supports, problem, variant=variant))


def default_config(problem: W4A16Matmul, *, variant: str) -> PaperConfig:
    """4 splits, those of the repository and of the launch that the paper counts."""
    return SPLITK if variant == "splitk" else DATA_PARALLEL


def supports(problem: W4A16Matmul, config: PaperConfig | None = None, *, variant: str) -> str | None:
    """fp16 with zero points, whole tiles of N, whole steps of K."""
    if problem.dtype is not torch.float16 or problem.symmetric:
        return "as published, fp16 with zero points alone"
    config = config or default_config(problem, variant=variant)
    if problem.n % config.block_n or problem.k % config.block_k:
        return f"N, K are {problem.n}, {problem.k}; accepted: multiples of {config.block_n}, {config.block_k}, unmasked"
    if variant == "data_parallel" and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1 for data_parallel"
    return None


@triton.jit
def _w4a16_kernel(
    a_ptr,
    words_ptr,
    scales_ptr,
    zeros_ptr,
    c_ptr,
    m,
    n,
    k,
    stride_am,
    stride_cm,
    stride_cn,
    GROUP_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
    ADDS: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    GROUPS: tl.constexpr = BLOCK_K // GROUP_SIZE  # of a step
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = split * BLOCK_K + tl.arange(0, BLOCK_K)
    groups = tl.arange(0, GROUPS)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :]
    word_ptrs = words_ptr + (offs_k // 8)[:, None] * n + offs_n[None, :]
    shift = (offs_k % 8 * 4)[:, None]
    zeros_shift = (offs_n % 8 * 4)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(split, k // BLOCK_K, SPLIT_K):
        a = tl.load(a_ptrs, mask=offs_m[:, None] < m, other=0.0)
        words = tl.load(word_ptrs)
        group = (step * GROUPS + groups)[:, None]
        scales = tl.load(scales_ptr + group * n + offs_n[None, :])
        zeros = tl.load(zeros_ptr + group * (n // 8) + (offs_n // 8)[None, :])
        zeros = (((zeros >> zeros_shift) & 0xF) + 1).to(scales.dtype) * scales
        q = ((words >> shift) & 0xF).to(scales.dtype).reshape(GROUPS, GROUP_SIZE, BLOCK_N)
        b = q * scales[:, None, :] - zeros[:, None, :]
        acc += tl.dot(a, b.reshape(BLOCK_K, BLOCK_N))
        a_ptrs += BLOCK_K * SPLIT_K
        word_ptrs += BLOCK_K // 8 * SPLIT_K * n
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    if ADDS:
        tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m[:, None] < m, sem="release")
    else:
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m[:, None] < m)


def plan(problem: W4A16Matmul, config: PaperConfig, places: W4A16Places, *, variant: str) -> Plan:
    """What a call launches."""
    adds = variant == "splitk"
    meta: dict[str, Any] = {"GROUP_SIZE": problem.group_size, "BLOCK_M": config.block_m, "BLOCK_N": config.block_n}
    meta |= {"BLOCK_K": config.block_k, "GROUP_M": GROUP_M, "SPLIT_K": config.split_k, "ADDS": adds}
    meta |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    slots = Slot.A, Slot.TILES, Slot.SCALES, Slot.MINUS_ZEROS, Slot.C
    numbers = problem.m, problem.n, problem.k, places.stride_am, places.stride_cm, places.stride_cn
    grid = count_tiles(problem, config.block_m, config.block_n), config.split_k
    launch = Launch(_w4a16_kernel, (*slots, *numbers), grid, meta)
    read_as = {Slot.TILES: torch.int32, Slot.MINUS_ZEROS: torch.int32}
    return Plan(problem, places, (launch,), read_as=read_as, zeroed=adds)


@dataclass(frozen=True, eq=False)
class PackedWeight(GPTQWeight):
    """A weight as GPTQ stores it, and as `matmul` takes it."""

    @property
    def parts(self) -> dict[str, Tensor | None]:
        """As a launch takes them: q in words, scales, zero points in words."""
        return {"tiles": self.qweight, "scales": self.scales, "minus_zeros": self.qzeros}


def matmul(
    a: Tensor,
    weight: PackedWeight,
    *,
    out: Tensor | None = None,
    config: PaperConfig | None = None,
    variant: str = "splitk",
) -> Tensor:
    """C [M, N] = a [M, K] @ weight, see common.w4a16.w4a16_problem for what is accepted and raised.

    variant: 'data_parallel' or 'splitk'. Raises ValueError for what `supports` refuses.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, weight, out, config, PackedWeight)


def build(problem: W4A16Matmul, config: PaperConfig, *, variant: str) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


def arguments(problem: W4A16Matmul, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a benchmark launches `matmul` with: the weight as it is stored."""
    return (inputs.a, PackedWeight(**vars(checked(inputs.weight)))), {}


KERNELS = tuple(
    Kernel(
        name="w4a16",
        variant=variant,
        language=Language.PUBLISHED_TRITON,
        protocol=PROTOCOLS[variant],
        launch=partial(matmul, variant=variant),
        config_type=PaperConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=variant == "data_parallel",
        roundings=lambda config: config.split_k,
        workspace_bytes=lambda problem, config: 0,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=2 if variant == "splitk" else 1,
        op=W4A16Matmul.op,
        arguments=arguments,
        on_request=True,
    )
    for variant in SPACES
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
