"""A half-precision activation times a weight of four bits, laid out once as the tensor cores take it.

    C[m, n] = sum over groups g of scales[g, n] * sum over k in g of A[m, k] * (q[k, n] - zeros[g, n])

The inner sum is a product of the tensor cores; the scale is applied to it, once per group and element of C, in fp32.
Symmetric: the weight is an int4, q - 8. Asymmetric: it is a uint4, q, and the zero points come in after the product:

    sum over k in g of A[m, k] * (q[k, n] - zeros[g, n]) = (A @ q)[m, n] - zeros[g, n] * (sum over k in g of A[m, k])

The sums of A's rows are a product of the tensor cores too, by a matrix of ones eight columns wide.

Grid         (tiles of M, tiles of N, split_k); a split walks a band of K, or every split_k-th step of it
Who sums     a block its steps; the variants differ in how the splits meet
Variants     data_parallel: one block walks all of K
             atomic: fp32 atomics into one workspace, finished by the last to arrive (as kernels_tilus/atomic.py)
             last_arriver: fp32 partials, summed in split order by the last to arrive (as last_arriver.py)
             semaphore: the splits take turns, adding to an fp32 workspace (as semaphore.py)
Deterministic data_parallel, last_arriver and semaphore, yes; atomic, no
Workspace    none; or 4 bytes an element of C (atomic, semaphore), or that times split_k (last_arriver), and one int32 a
             tile
Launches     1

`lay_out` cuts the weight into tiles of 32 x 32. Of each, a thread of a warp holds 32 elements, those that it has in
the operand of an mma: 16 bytes, one load from shared memory without a bank conflict, one cp.async before that. tilus
gives them their type by a `view` and makes half precision of them by a `cast`. `restore` gives GPTQ's packing back.

Source: tilus' example of quantized products, `examples/quantization/matmul_a16wx.py`, for the layout by tiles, the view
and the cast; there symmetric types alone, scales applied to the weights, and turns taken in fp16. The splits and their
protocols: as in the Triton twin.
"""

from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any

import torch
from tilus import float16, float32, int4b, int32, uint4b, uint8, void_p
from tilus.hidet.ir.type import DataType
from tilus.ir.layout.ops import local, reduce, spatial
from tilus.ir.tensor import RegisterTensor
from tilus.utils import cdiv
from torch import Tensor

import kernels_tilus.casts  # noqa: F401, to bfloat16
from common import tuned, workspace
from common.epilogue import Epilogue
from common.kernel import Kernel, Language
from common.protocol import Protocol
from common.quantization import SYMMETRIC_ZERO, GPTQWeight, pack_rows, pack_zeros, unpack_rows
from common.w4a16 import (
    W4A16Config,
    W4A16Inputs,
    W4A16Matmul,
    checked,
    meeting,
    space,
    sums_shape,
    supports_config,
    w4a16_problem,
    with_default_split,
)
from kernels_tilus import band, launching
from kernels_tilus.arrival import Arrivals
from kernels_tilus.atomics import atomic_add
from kernels_tilus.epilogue import EpilogueScript

VARIANTS = ("data_parallel", "atomic", "last_arriver", "semaphore")
TILE = 32  # rows and columns of a tile of the laid out weight
TILE_BYTES = TILE * TILE // 2
VECTOR = 8  # half-precision elements of a 16-byte copy

# (block_m, block_n, block_k, num_warps, num_stages)
TILES = [
    *[(16, 64, 128, 1, stages) for stages in (3, 4, 6)],
    *[(16, 64, 128, 2, stages) for stages in (3, 4, 6)],
    *[(16, 128, 128, 2, stages) for stages in (3, 4)],
    *[(16, 128, 128, 4, stages) for stages in (3, 4, 5)],
    *[(16, 256, 128, 4, 3), (16, 64, 64, 1, 6), (16, 128, 64, 4, 6), (16, 64, 32, 1, 8), (16, 128, 32, 2, 8)],
    *[(32, 64, 128, 2, 4), (32, 128, 128, 4, 3), (32, 128, 64, 4, 5), (32, 128, 32, 4, 6)],
    *[(64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (64, 256, 64, 8, 3), (64, 128, 32, 4, 6)],
]


@dataclass(frozen=True, eq=False)
class TiledWeight:
    """A weight as `matmul` takes it; `lay_out` makes one, `restore` makes the GPTQWeight of it again.

    tiles       uint8 [K / 32, ceil(N / 32), 512], a tile of 32 x 32 in a row: 16 bytes for each lane of a warp. Int4 of
                q - 8 where symmetric, else uint4 of q; columns beyond N are zeros of that type
    scales      fp16 or bf16 [K / g, N]
    minus_zeros of the same shape and dtype, the zero points negated; None where symmetric
    """

    tiles: Tensor
    scales: Tensor
    minus_zeros: Tensor | None

    @property
    def k(self) -> int:
        return self.tiles.shape[0] * TILE

    @property
    def n(self) -> int:
        return self.scales.shape[1]

    @property
    def group_size(self) -> int:
        return self.k // self.scales.shape[0]

    @property
    def symmetric(self) -> bool:
        return self.minus_zeros is None


def lay_out(weight: GPTQWeight) -> TiledWeight:
    """Once per weight, when a model is loaded; see common.w4a16.checked for what is accepted and raised."""
    checked(weight)
    q = unpack_rows(weight.qweight).to(torch.uint8)
    if weight.symmetric:
        q ^= SYMMETRIC_ZERO  # the bits of an int4: q - 8 modulo 16
    k, n = q.shape
    q = torch.nn.functional.pad(q, (0, -n % TILE))
    # A row of 32 is two products deep, each of two halves, of which a lane has two neighbouring rows; a column of 32 is
    # four products wide, of each of which a lane has one column.
    split = q.view(k // TILE, 2, 2, 4, 2, -1, 4, 8)  # kt, depth, half, lane_k, pair, nt, width, lane_n
    by_lane = split.permute(0, 5, 7, 3, 1, 6, 2, 4).reshape(k // TILE, -1, TILE_BYTES, 2)
    tiles = (by_lane[..., 0] | by_lane[..., 1] << 4).contiguous()
    minus_zeros = None if weight.symmetric else (-weight.zeros()).to(weight.scales.dtype)
    return TiledWeight(tiles, weight.scales, minus_zeros)


def restore(weight: TiledWeight) -> GPTQWeight:
    """The weight that `lay_out` made this of, bit by bit."""
    by_lane = torch.stack((weight.tiles & 0xF, weight.tiles >> 4), dim=-1)
    split = by_lane.view(weight.k // TILE, -1, 8, 4, 2, 4, 2, 2)
    q = split.permute(0, 4, 6, 3, 7, 1, 5, 2).reshape(weight.k, -1)[:, : weight.n]
    if weight.symmetric:
        return GPTQWeight(pack_rows(q ^ SYMMETRIC_ZERO), weight.scales, None)
    return GPTQWeight(pack_rows(q), weight.scales, pack_zeros(-weight.minus_zeros.to(torch.int32)))


def configs(problem: W4A16Matmul, *, variant: str) -> list[W4A16Config]:
    return space(TILES, problem, partial(supports, variant=variant))


def default_config(problem: W4A16Matmul, *, variant: str) -> W4A16Config:
    """A warp for every 64 columns, of wide products 32; see common.w4a16.with_default_split."""
    if problem.m <= 16:
        block_m, block_n, num_warps = (16, 64, 1) if problem.n <= 4096 else (16, 128, 4)
    else:
        block_m, block_n, num_warps = (32, 128, 4) if problem.m <= 32 else (64, 128, 4)
    block_k = min(128 if block_m == 16 else 64, problem.group_size)
    return with_default_split((block_m, block_n, block_k, num_warps, 4), problem, variant)


def supports(problem: W4A16Matmul, config: W4A16Config | None = None, *, variant: str) -> str | None:
    """Any problem; a config must fit shared memory, share its columns out to whole warps, and block_k divide the group
    size."""
    if config is None:
        return None
    if config.block_m % 16 or config.block_n % (TILE * config.num_warps) or config.block_k % TILE:
        return (
            f"blocks {config.block_m}x{config.block_n}x{config.block_k} with {config.num_warps} warps; accepted: "
            f"block_m a multiple of 16, block_n of {TILE} for each warp, block_k of {TILE}"
        )
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}: the pipeline needs two"
    return supports_config(problem, config, variant, band.SHARED_MEMORY_LIMIT)


@dataclass(frozen=True)
class Build:
    """What a W4A16Script is compiled for. meet: 'none' or the variant; vector_c as in kernels_tilus/band.py."""

    dtype: DataType
    group_size: int
    symmetric: bool
    meet: str
    vector_c: int
    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    interleaved: bool


class W4A16Script(Arrivals, EpilogueScript):
    """One block: a tile of C over the steps of one split, and its part in how the splits meet."""

    def __init__(self, build):
        super().__init__(build.dtype, build.dtype, build.vector_c, Epilogue.NONE.value)
        self.group_size = build.group_size
        self.symmetric = build.symmetric
        self.block_m = build.block_m
        self.block_n = build.block_n
        self.block_k = build.block_k
        self.num_warps = build.num_warps
        self.num_stages = build.num_stages
        self.interleaved = build.interleaved
        self.meet = build.meet
        self.counted = self.meet == "atomic" or self.meet == "last_arriver"
        self.prepare_arrivals(self.num_stages * self.block_k * (4 * self.block_m + self.block_n) // 2)

        self.q_dtype = int4b if self.symmetric else uint4b
        self.k_tiles = self.block_k // TILE
        self.n_tiles = self.block_n // TILE
        rows, warps, per_warp = self.block_m // 16, self.num_warps, self.n_tiles // self.num_warps
        mma = self.cuda.atomic_mma_configs
        mma = mma.m16n8k16_f16_f32 if self.dtype == float16 else mma.m16n8k16_bf16_f32
        # The warps share the columns. Of a tile of the weight a lane has 16 bytes ...
        self.tiles_layout = spatial(warps, 1).local(per_warp, 1) * local(1, 1).spatial(1, 32).local(1, 16)
        # ... which are what it has of two by four operands of an mma; `lay_out` put them there.
        self.b_layout = spatial(1, warps).local(1, per_warp) * local(2, 4) * mma.lb
        self.acc_layout = spatial(1, warps).local(rows, 4 * per_warp) * mma.lc
        self.columns_layout = reduce(self.acc_layout, dims=[0], keepdims=True)
        all_warps = reduce(spatial(1, warps), dims=[1], keepdims=True)
        self.a_layout = all_warps.local(rows, 2) * mma.la
        self.ones_layout = all_warps.local(2, 1) * mma.lb
        self.row_sums_layout = all_warps.local(rows, 1) * mma.lc

    def split_product(
        self,
        acc: RegisterTensor,
        a_ptr: void_p,
        tiles_ptr: void_p,
        scales_ptr: void_p,
        minus_zeros_ptr: void_p,
        m: int32,
        n: int32,
        all_k_tiles: int32,
        all_n_tiles: int32,
        groups: int32,
        stride_am: int32,
        offset_m: int32,
        offset_n: int32,
        begin: int32,
        end: int32,
        stride: int32,
    ) -> None:
        """acc fp32 [block_m, block_n] += A[offset_m:] @ weight[:, offset_n:] over the steps begin, begin + stride, ...
        before end. cp.async pipeline of num_stages."""
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        # Extents are arguments: of a view whose extent is an expression moved out of a loop, tilus 0.2.0 makes a
        # second variable within the loop, which nobody declares.
        ga = self.global_view(a_ptr, dtype=self.dtype, shape=[all_k_tiles, m, TILE], strides=[TILE, stride_am, 1])
        gb = self.global_view(tiles_ptr, dtype=uint8, shape=[all_k_tiles, all_n_tiles, TILE_BYTES])
        gs = self.global_view(scales_ptr, dtype=self.dtype, shape=[groups, n])
        sa = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, self.k_tiles, block_m, TILE])
        sb = self.shared_tensor(dtype=uint8, shape=[self.num_stages, self.k_tiles, self.n_tiles, TILE_BYTES])
        ss = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, 1, block_n])
        if not self.symmetric:
            gz = self.global_view(minus_zeros_ptr, dtype=self.dtype, shape=[groups, n])
            sz = self.shared_tensor(dtype=self.dtype, shape=[self.num_stages, 1, block_n])
            ones = self.register_tensor(dtype=self.dtype, shape=[TILE, 8], init=1.0)
            self.annotate_layout(ones, self.ones_layout)

        for stage in range(self.num_stages - 1):
            first: int32 = begin + stage * stride
            if first < end:
                first_group: int32 = first * block_k // self.group_size
                self.copy_async(src=ga, dst=sa[stage], offsets=[first * self.k_tiles, offset_m, 0])
                self.copy_async(src=gb, dst=sb[stage], offsets=[first * self.k_tiles, offset_n // TILE, 0])
                self.copy_async(src=gs, dst=ss[stage], offsets=[first_group, offset_n])
                if not self.symmetric:
                    self.copy_async(src=gz, dst=sz[stage], offsets=[first_group, offset_n])
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=self.num_stages - 2)
        self.sync()

        current: int32 = 0
        preload: int32 = self.num_stages - 1
        for step in self.range(begin, end, stride):
            product = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            if not self.symmetric:
                row_sums = self.register_tensor(dtype=float32, shape=[block_m, 8], init=0.0)
                self.annotate_layout(row_sums, self.row_sums_layout)
            for i in self.range(self.k_tiles, unroll="all"):
                a = self.load_shared(sa[current, i])
                self.annotate_layout(a, self.a_layout)
                tiles = self.load_shared(sb[current, i])
                self.annotate_layout(tiles, self.tiles_layout)
                b = self.cast(self.view(tiles, dtype=self.q_dtype, layout=self.b_layout), dtype=self.dtype)
                self.dot(a, b, product, out=product)
                if not self.symmetric:
                    self.dot(a, ones, row_sums, out=row_sums)
            scales = self.cast(self.load_shared(ss[current]), dtype=float32)
            self.annotate_layout(scales, self.columns_layout)
            if not self.symmetric:
                row_sum = self.max(row_sums, dim=1, keepdim=True)  # its columns are one
                minus_zeros = self.cast(self.load_shared(sz[current]), dtype=float32)
                self.annotate_layout(minus_zeros, self.columns_layout)
                self.assign(product, product + row_sum * minus_zeros)
            self.assign(acc, acc + product * scales)

            ahead: int32 = step + (self.num_stages - 1) * stride
            if ahead < end:
                ahead_group: int32 = ahead * block_k // self.group_size
                self.copy_async(src=ga, dst=sa[preload], offsets=[ahead * self.k_tiles, offset_m, 0])
                self.copy_async(src=gb, dst=sb[preload], offsets=[ahead * self.k_tiles, offset_n // TILE, 0])
                self.copy_async(src=gs, dst=ss[preload], offsets=[ahead_group, offset_n])
                if not self.symmetric:
                    self.copy_async(src=gz, dst=sz[preload], offsets=[ahead_group, offset_n])
            self.copy_async_commit_group()
            current = (current + 1) % self.num_stages
            preload = (preload + 1) % self.num_stages
            self.copy_async_wait_group(n=self.num_stages - 2)
            self.sync()
        self.copy_async_wait_group(n=0)
        self.free_shared(sa)
        self.free_shared(sb)
        self.free_shared(ss)
        if not self.symmetric:
            self.free_shared(sz)

    def __call__(
        self,
        a_ptr: void_p,
        tiles_ptr: void_p,
        scales_ptr: void_p,
        minus_zeros_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        all_k_tiles: int32,
        all_n_tiles: int32,
        groups: int32,
        stride_am_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        split_k: int32,
        sums_ptr: void_p,
        counters_ptr: void_p,
        ticket: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        n: int32 = n_units * VECTOR
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * VECTOR, block_n), split_k]
        self.attrs.warps = self.num_warps
        tile: int32 = self.blockIdx.y * tiles_m + self.blockIdx.x
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        counters = self.global_view(counters_ptr, dtype=int32, shape=[tiles_m * tiles_n])
        if self.counted:
            self.announce(counters, tile, ticket)

        steps: int32 = all_k_tiles // self.k_tiles
        per_split: int32 = cdiv(steps, split_k)
        begin: int32 = split
        end: int32 = steps
        stride: int32 = split_k
        if not self.interleaved:
            begin = split * per_split
            end = min(begin + per_split, steps)
            stride = 1
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        self.annotate_layout(acc, self.acc_layout)
        # fmt: off
        self.split_product(
            acc, a_ptr, tiles_ptr, scales_ptr, minus_zeros_ptr, m, n, all_k_tiles, all_n_tiles, groups,
            stride_am_units * VECTOR, offset_m, offset_n, begin, end, stride,
        )
        # fmt: on

        if self.meet == "none":
            self.store(acc, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
        if self.meet == "atomic":
            sums = self.global_view(sums_ptr, dtype=float32, shape=[m, n])
            atomic_add(self, sums, acc, offsets=[offset_m, offset_n])
            if self.is_last(counters, tile, ticket, split_k):
                total = self.load_global(sums, offsets=[offset_m, offset_n], shape=[block_m, block_n])
                self.annotate_layout(total, self.wide_layout)
                self.store(total, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                # In the same registers, so that every element is zeroed by the thread that has loaded it.
                self.assign(total, self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0))
                self.store_global(sums, total, offsets=[offset_m, offset_n])
                self.reset(counters, tile)
        if self.meet == "last_arriver":
            partials = self.global_view(sums_ptr, dtype=float32, shape=[split_k, m, n])
            self.store_global(partials, acc, offsets=[split, offset_m, offset_n], dims=[1, 2])
            if self.is_last(counters, tile, ticket, split_k):
                total = self.sum_in_order(partials, 0, offset_m, offset_n)
                self.store(total, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.reset(counters, tile)
        if self.meet == "semaphore":
            running = self.global_view(sums_ptr, dtype=float32, shape=[m, n])
            semaphore: ~int32 = counters[tile].item_ptr()
            if split > 0:
                self.lock_semaphore(semaphore, value=ticket + split)
                self.add(
                    acc, self.load_global(running, offsets=[offset_m, offset_n], shape=[block_m, block_n]), out=acc
                )
            if split + 1 < split_k:
                self.store_global(running, acc, offsets=[offset_m, offset_n])
                self.sync()  # every thread's store comes before the one thread that hands over
                self.release_semaphore(semaphore, value=ticket + split + 1)
            else:
                self.store(acc, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                self.sync()
                self.release_semaphore(semaphore, value=0)


@lru_cache(maxsize=4096)
def _script(problem: W4A16Matmul, config: W4A16Config, meet: str, vector_c: int) -> W4A16Script:
    fields = {name: value for name, value in vars(config).items() if name != "split_k"}
    dtype = band.TILUS_DTYPE[problem.dtype]
    return W4A16Script(Build(dtype, problem.group_size, problem.symmetric, meet, vector_c, **fields))


def matmul(
    a: Tensor,
    weight: TiledWeight,
    *,
    out: Tensor | None = None,
    config: W4A16Config | None = None,
    variant: str = "last_arriver",
) -> Tensor:
    """C [M, N] = a [M, K] @ weight, see common.w4a16.w4a16_problem for what is accepted and raised.

    weight: as `lay_out` gives it. variant: one of VARIANTS. CPU tensors run in the interpreter.
    config: None takes the tuned one of this device. Raises ValueError for one that the problem cannot run on.
    """
    problem = w4a16_problem(a, weight, out, TiledWeight)
    if config is None:
        config, _ = tuned.pick(_BY_VARIANT[variant], problem, tuned.slug_of(a.device))
    elif reason := supports(problem, config, variant=variant):
        raise ValueError(f"config is {config}; {reason}")
    vector_c = band.vector_c(problem.n, out)
    if out is None:
        out = torch.empty(problem.m, problem.n, dtype=problem.dtype, device=a.device)
    meet = meeting(variant, config)
    sums, counters, ticket = None, None, 0
    if meet != "none":
        tiles = band.count_tiles(problem, config.block_m, config.block_n)
        ticket = workspace.next_ticket()
        if meet == "atomic":
            counters, sums = workspace.counters_and_sums(tiles, problem.m * problem.n, a.device)
        else:
            counters = workspace.semaphores(tiles, a.device)
            sums = torch.empty(sums_shape(problem, config, meet), dtype=torch.float32, device=a.device)
    launching.launch(
        _script(problem, config, meet, vector_c),
        *(a, weight.tiles, weight.scales, weight.minus_zeros, out),
        *(problem.m, problem.n // VECTOR, problem.k // TILE, cdiv(problem.n, TILE), problem.groups),
        *(a.stride(0) // VECTOR, out.stride(0) // max(vector_c, 1), out.stride(1), config.split_k),
        *(sums, counters, ticket),
    )
    return out


def build(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build(_script(problem, config, meeting(variant, config), band.vector_c(problem.n, None)))


def workspace_bytes(problem: W4A16Matmul, config: W4A16Config, *, variant: str) -> int:
    meet = meeting(variant, config)
    if meet == "none":
        return 0
    tiles = band.count_tiles(problem, config.block_m, config.block_n)
    return 4 * tiles + 4 * prod(sums_shape(problem, config, meet))


def arguments(problem: W4A16Matmul, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (inputs.a, lay_out(inputs.weight)), {}


PROTOCOLS = {
    "data_parallel": Protocol.NONE,
    "atomic": Protocol.ATOMIC,
    "last_arriver": Protocol.LAST_ARRIVER,
    "semaphore": Protocol.SERIAL,
}

KERNELS = tuple(
    Kernel(
        name="w4a16",
        variant=variant,
        language=Language.TILUS,
        protocol=PROTOCOLS[variant],
        launch=partial(matmul, variant=variant),
        config_type=W4A16Config,
        configs=partial(configs, variant=variant),
        default_config=partial(default_config, variant=variant),
        build=partial(build, variant=variant),
        supports=partial(supports, variant=variant),
        deterministic=PROTOCOLS[variant] is not Protocol.ATOMIC,
        roundings=lambda config: 1,
        workspace_bytes=partial(workspace_bytes, variant=variant),
        launches=1,
        op=W4A16Matmul.op,
        arguments=arguments,
    )
    for variant in VARIANTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
