"""The decompose-K study's own kernels, as published: partials in a workspace, and a reducer.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one program a tile and band of K / S
    C[m, n] = relu(sum over s of partials[s, m, n])                     fp32, one rounding; ReLU where it is asked for

first               the study's first kernel: the reducer is shaped like the tiles, and walks the splits one by one;
                    12 tiles of 4 warps
optimized           its optimized kernel: the reducer is a vector of XBLOCK elements of C by all splits, one `tl.sum`;
                    27 tiles, from 1 warp on, and more splits
*_unfused           either, with ReLU as a torch operation in place afterwards

Grid         partials: (tiles of C in groups of GROUP_M rows, splits); reducer: tiles of C, or blocks of elements of C
Deterministic yes
Workspace    4 * split_k * M * N bytes
Launches     2; unfused 3

Sizes and strides are compile-time constants, as there, so every shape is compiled anew. Source: "Decompose-K: From
torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls" (shreyansh26.github.io, 2026); the tiles and
splits that its text does not list are those of its repository (shreyansh26/MLSys-Experiments, decompose-k). What was
decided here: notes/as_published.md.
"""

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from triton_vs_tilus.bench.references.published_triton.grouping import tile_of
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import (
    GroupedConfig,
    Kernel,
    Language,
    Space,
    cdiv,
    nothing_unfused,
    space_of,
    tiles_of,
)
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.kernels_triton import launching
from triton_vs_tilus.kernels_triton.configs import SHARED_MEMORY_LIMIT


@dataclass(frozen=True)
class StudyConfig(GroupedConfig):
    """Each is compiled for itself."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ()


# (block_m, block_n, block_k, group_m, num_warps, num_stages)
FIRST_TILES = (
    (16, 16, 128, 8, 4, 4),
    (16, 32, 128, 8, 4, 4),
    (16, 32, 256, 8, 4, 4),
    (16, 64, 64, 8, 4, 4),
    (32, 16, 128, 8, 4, 4),
    (32, 16, 256, 8, 4, 4),
    (32, 32, 128, 8, 4, 4),
    (16, 128, 64, 8, 4, 4),
    (32, 64, 64, 8, 4, 4),
    (32, 128, 64, 8, 4, 4),
    (32, 128, 128, 8, 4, 4),
    (64, 64, 64, 4, 4, 4),
)
OPTIMIZED_TILES = (
    (16, 16, 32, 8, 1, 4),
    (16, 16, 64, 8, 2, 4),
    (16, 16, 64, 8, 4, 4),
    (16, 16, 64, 8, 1, 5),
    (16, 16, 128, 8, 2, 4),
    (16, 16, 128, 8, 4, 4),
    (16, 16, 128, 8, 1, 4),
    (16, 16, 128, 8, 1, 5),
    (16, 32, 64, 8, 1, 5),
    (16, 32, 128, 8, 1, 4),
    (32, 16, 64, 8, 1, 5),
    (32, 16, 128, 8, 1, 4),
    (32, 32, 64, 8, 2, 4),
    (32, 32, 128, 8, 2, 4),
    *((64, 32, block_k, 8, 4, 5) for block_k in (32, 64, 128)),
    *((32, 64, block_k, 8, 4, 5) for block_k in (32, 64, 128)),
    (64, 64, 32, 8, 4, 3),
    (64, 64, 32, 8, 4, 4),
    (64, 64, 64, 8, 4, 3),
    (64, 64, 128, 8, 4, 4),
    (64, 64, 128, 8, 4, 5),
    (64, 64, 64, 8, 8, 5),
    (64, 64, 128, 8, 8, 4),
)
POWERS = (2, 4, 8, 16, 32, 64, 128, 256)
FIRST_LIMIT, OPTIMIZED_LIMIT = 10, 16  # divisors of K that are tried, at most
REDUCER_STAGES = 3


def divisors(problem: Matmul, limit: int) -> list[int]:
    """The splits of Inductor's rule: divisors of K up to K / M and K / N, in bands of 128 or more; first those whose
    band is a power of two, then a multiple of 32, then the others."""
    k, most = problem.k, problem.k // max(problem.m, problem.n)
    bands = [(k // split, split) for split in range(2, most + 1) if k % split == 0 and k // split >= 128]

    def rank(band: int) -> int:
        return 0 if band & (band - 1) == 0 else 1 if band % 32 == 0 else 2

    return [split for band, split in islice(sorted(bands, key=lambda pair: rank(pair[0])), limit)]


def splits_of(problem: Matmul, variant: str) -> list[int]:
    """The splits that the study tries: the first kernel's are divisors of K; the optimized one's are the powers of two
    that leave a band of 16 or more, then divisors."""
    if variant == "first":
        return divisors(problem, FIRST_LIMIT)
    k, most = problem.k, problem.k // max(problem.m, problem.n)
    powers = [split for split in POWERS if split <= most and k % split == 0 and k // split >= 16]
    return list(dict.fromkeys([*powers, *divisors(problem, OPTIMIZED_LIMIT)]))


def space(problem: Matmul, *, variant: str) -> Space:
    """Every tile of the study with every split."""
    tiles = FIRST_TILES if variant == "first" else OPTIMIZED_TILES
    wanted = [
        StudyConfig(block_m, block_n, block_k, split_k, num_warps, num_stages, group_m)
        for split_k in splits_of(problem, variant)
        for block_m, block_n, block_k, group_m, num_warps, num_stages in tiles
    ]
    return space_of(wanted, partial(supports, problem, variant=variant))


def default_config(problem: Matmul, *, variant: str) -> StudyConfig:
    """The study names none, as it searches every shape: here the first tile, with the split nearest to 64."""
    first = space(problem, variant=variant).configs
    return min(first, key=lambda config: abs(config.split_k - 64))


def supports(problem: Matmul, config: StudyConfig | None = None, *, variant: str) -> str | None:
    """Products with no epilogue or ReLU, K in equal bands."""
    if problem.epilogue not in (Epilogue.NONE, Epilogue.RELU):
        return f"as published, the reducer fuses ReLU alone, not {problem.epilogue.value}"
    if config is None:
        if not splits_of(problem, variant):
            return f"as published, it splits K = {problem.k} into equal bands, up to K / M and K / N; there are none"
        return None
    if problem.k % config.split_k:
        return f"split_k is {config.split_k}; accepted: divisors of K = {problem.k}, as published"
    shared = (config.block_m + config.block_n) * config.block_k * problem.dtype.itemsize * (config.num_stages - 1)
    if shared > SHARED_MEMORY_LIMIT:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {SHARED_MEMORY_LIMIT}"
    return None


def supports_unfused(problem: Matmul, config: StudyConfig | None = None, *, variant: str) -> str | None:
    """Where there is a ReLU to leave to torch."""
    return nothing_unfused(problem) or supports(problem, config, variant=variant)


def workspace_bytes(problem: Matmul, config: StudyConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


@triton.jit
def _partials_kernel(
    a_ptr,
    b_ptr,
    partials_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    STRIDE_AM: tl.constexpr,
    STRIDE_BK: tl.constexpr,
    STRIDE_BN: tl.constexpr,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PRECISION: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    split = tl.program_id(1)
    band: tl.constexpr = K // SPLIT_K
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, band, BLOCK_K):
        in_band = start + tl.arange(0, BLOCK_K)
        offs_k = split * band + in_band
        mask_k = in_band < band
        a_ptrs = a_ptr + offs_m[:, None] * STRIDE_AM + offs_k[None, :]
        b_ptrs = b_ptr + offs_k[:, None] * STRIDE_BK + offs_n[None, :] * STRIDE_BN
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b, out_dtype=tl.float32, input_precision=PRECISION)
    partials_ptrs = partials_ptr + split * (M * N) + offs_m[:, None] * N + offs_n[None, :]
    tl.store(partials_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def _reduce_tile_kernel(
    partials_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    STRIDE_CM: tl.constexpr,
    STRIDE_CN: tl.constexpr,
    SPLIT_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
    RELU: tl.constexpr,
):
    pid_m, pid_n = tile_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    partials_ptrs = partials_ptr + offs_m[:, None] * N + offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for split in range(0, SPLIT_K):
        acc += tl.load(partials_ptrs + split * (M * N), mask=mask, other=0.0)
    if RELU:
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + offs_m[:, None] * STRIDE_CM + offs_n[None, :] * STRIDE_CN
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _reduce_vector_kernel(
    partials_ptr,
    c_ptr,
    M: tl.constexpr,
    N: tl.constexpr,
    STRIDE_CM: tl.constexpr,
    STRIDE_CN: tl.constexpr,
    SPLIT_K: tl.constexpr,
    XBLOCK: tl.constexpr,
    RBLOCK: tl.constexpr,
    FLAT: tl.constexpr,
    RELU: tl.constexpr,
):
    offs = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    splits = tl.arange(0, RBLOCK)[None, :]
    values = tl.load(
        partials_ptr + splits * (M * N) + offs[:, None], mask=(offs[:, None] < M * N) & (splits < SPLIT_K), other=0.0
    )
    acc = tl.sum(values, 1)
    if RELU:
        acc = tl.maximum(acc, 0.0)
    if FLAT:
        c_ptrs = c_ptr + offs
    else:
        row = offs // N
        c_ptrs = c_ptr + row * STRIDE_CM + (offs - row * N) * STRIDE_CN
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs < M * N)


def _xblock(split_k: int) -> int:
    """Elements of C that a program of the vector reducer sums."""
    return 32 if split_k <= 64 else 16 if split_k <= 128 else 8


def plan(problem: Matmul, config: StudyConfig, placement: Placement, *, variant: str, unfused: bool) -> Plan:
    """What a call launches."""
    m, n, k, split_k = problem.m, problem.n, problem.k, config.split_k
    tiles = tiles_of(problem, config)
    tile = {"BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "GROUP_M": config.group_m}
    strides = dict(zip(("STRIDE_AM", "STRIDE_BK", "STRIDE_BN"), placement.in_strides, strict=True))
    precision = "ieee" if problem.dtype is torch.float32 else "tf32"
    meta: dict[str, Any] = {"M": m, "N": n, "K": k, **strides, "SPLIT_K": split_k, **tile, "BLOCK_K": config.block_k}
    meta |= {"PRECISION": precision, "num_warps": config.num_warps, "num_stages": config.num_stages}
    partials = Launch(_partials_kernel, (Slot.A, Slot.B, Slot.SCRATCH), (tiles, split_k), meta)

    out_strides = dict(zip(("STRIDE_CM", "STRIDE_CN"), placement.out_strides, strict=True))
    relu = problem.epilogue is Epilogue.RELU and not unfused
    meta = {"M": m, "N": n, **out_strides, "SPLIT_K": split_k, "RELU": relu, "num_stages": REDUCER_STAGES}
    if variant == "first":
        kernel, grid = _reduce_tile_kernel, tiles
        meta |= {**tile, "num_warps": min(config.num_warps, 4)}
    else:
        kernel, grid = _reduce_vector_kernel, cdiv(m * n, _xblock(split_k))
        meta |= {"XBLOCK": _xblock(split_k), "RBLOCK": triton.next_power_of_2(split_k), "num_warps": 1}
        meta |= {"FLAT": placement.out_is_contiguous(problem)}
    reduction = Launch(kernel, (Slot.SCRATCH, Slot.C), (grid,), meta)
    left = problem.epilogue if unfused else Epilogue.NONE
    return Plan(problem, placement, (partials, reduction), scratch=(split_k, m, n), unfused=left)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: StudyConfig | None = None,
    variant: str = "optimized",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'first' or 'optimized', or either with '_unfused'. Raises ValueError for what `supports` refuses.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: StudyConfig, *, variant: str, unfused: bool) -> None:
    """Compiles for the current device into Triton's cache."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant, unfused=unfused))


def _kernel(variant: str, unfused: bool) -> Kernel:
    name = f"{variant}_unfused" if unfused else variant
    return Kernel(
        name="decompose_k",
        variant=name,
        language=Language.PUBLISHED_TRITON,
        protocol=Protocol.PARALLEL,
        launch=partial(matmul, variant=name),
        config_type=StudyConfig,
        space=partial(space, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant, unfused=unfused),
        supports=partial(supports_unfused if unfused else supports, variant=variant),
        deterministic=True,
        roundings=lambda config: 2 if unfused else 1,
        workspace_bytes=workspace_bytes,
        plan=partial(plan, variant=variant, unfused=unfused),
        backend=launching.BACKEND,
        launches=3 if unfused else 2,
        tuned_as=f"{Language.PUBLISHED_TRITON.value}/decompose_k.{variant}" if unfused else "",
        on_request=True,
    )


KERNELS = tuple(_kernel(variant, unfused) for variant in ("first", "optimized") for unfused in (False, True))
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
