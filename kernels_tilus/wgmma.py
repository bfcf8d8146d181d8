"""The product of a band on Hopper's tensor cores: wgmma on tiles in shared memory that TMA fills.

No warp for the copies alone: the product of a step is issued before the tensor cores are done with the one before,
whose stage TMA fills again as soon as they are, each warp issuing the loads of some of its chunks. A stage holds [rows,
block_k] of both operands, cut along K into chunks of 128 bytes a row, the widest swizzle; one mbarrier a stage counts
the bytes that arrive. What lies beyond an operand's extents arrives as zeros.

Two warpgroups share a tile: each has half of its rows, or, of a tile of 64 rows, half of its columns. tilus 0.2.0 has a
wgmma of one warpgroup; `_WgmmaOfWarpgroups` issues one a warpgroup, each from where its part of the operands begins.

tilus 0.2.0 issues every wgmma with the transpose bits 0, for operands stored along K; `_WgmmaOfWarpgroups` sets them
where a tile's layout says so. Of a Script with `b_along_n` B is stored [K, N], and read along N, with `a_along_m` A
[K, M]: in tiles of 64 by 64, one swizzled row of TMA each, side by side in the operand of a wgmma.

Of a Script that is `paired`, blocks 2i and 2i + 1 along x are a cluster with the same columns and the same K. Each
loads its own rows of A, and half of the columns of B, for both (multicast): B is read from L2 once for two blocks.
As either writes stages of the other, a second mbarrier a stage counts that both have read it. A stage is filled again
PAIR_SLACK steps later than in a block alone, as what one block arrives at reaches the other late.

Source: tilus' examples/hopper_matmul, matmul_v2 and v3, which 0.2.0 refuses (a whole warp must issue the TMA) and
would not compile for Hopper (`_HopperTensorCopy` below).
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import tilus
from tilus import RegisterLayout, bfloat16, float32, int32, uint8, uint32, uint64
from tilus.backends.context import BaseEmitContext
from tilus.backends.contexts.contexts import EmitContexts
from tilus.backends.emitter import BaseInstEmitter, register_emitter
from tilus.backends.emitters.cuda.cp_async_tensor import CopyAsyncTensorGlobalToSharedInstEmitter
from tilus.backends.emitters.cuda.wgmma import WgmmaBaseEmitter, WgmmaMmaSSEmitter, encode_swizzle_mode
from tilus.hidet.ir.expr import Expr, Var, cast
from tilus.hidet.ir.primitives.cuda.cluster import cluster_arrive_relaxed, cluster_wait
from tilus.hidet.ir.primitives.cuda.elect import shfl_sync_i32
from tilus.hidet.ir.primitives.cuda.vars import threadIdx
from tilus.hidet.ir.primitives.cuda.wgmma import WgmmaConfig, wgmma_async, wgmma_fence_operand
from tilus.hidet.ir.stmt import DeclareStmt
from tilus.hidet.ir.type import DataType
from tilus.ir.inst import Instruction
from tilus.ir.instructions.cuda.cp_async_tensor import CopyAsyncTensorGlobalToSharedInst
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.layout.cuda.tcgen05.smem import canonicalize_shared_layout
from tilus.ir.layout.inference.inference_rules.empty_rule import EmptyRule
from tilus.ir.layout.inference.inference_rules.wgmma import WgmmaMmaSSRule, generate_wgmma_register_layout
from tilus.ir.layout.inference.rule import LayoutInferenceContext, register_rule
from tilus.ir.layout.inference.validation_rules.always_ok import AlwaysOkayRule
from tilus.ir.layout.ops import shared_row_major, spatial
from tilus.ir.layout.shared_layout import SharedLayout, Swizzle
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor
from tilus.target import nvgpu_sm90, nvgpu_sm90a
from tilus.utils import cdiv

from triton_vs_tilus.common import devices
from triton_vs_tilus.common.kernel import MatmulConfig
from triton_vs_tilus.common.problem import Layout, Matmul

ROWS = 64  # of one wgmma
COLUMNS = 16  # of the narrowest tile; wgmma's are 8, mma.py's rows 16
STEP_K = 64  # half-precision elements of a 128-byte row, the widest swizzle
WIDEST_SWIZZLE = Swizzle(base=3, bits=3, shift=3)  # of half-precision elements: the 16 bytes of 8, in rows of 128 bytes
ALIGNMENT = 8  # elements: TMA takes addresses and row strides of 16 bytes
WARPGROUP = 4  # warps
WARPGROUPS = (1, 2)  # of a block
MOST_ROWS = 256  # of one TMA
MOST_SUMS = 128  # in registers, of a thread
PAIR = 2  # blocks of a cluster that share B
PAIR_SLACK = 1
UNIT = 16  # bytes, of what a descriptor counts
PLACES = 0x3FFF  # the bits of a descriptor for where its operand begins
BOTH = 0b11  # of a pair, as a mask
BARRIERS_BYTES = 1024  # at the start of shared memory; what follows is aligned for the widest swizzle


class _HopperTensorCopy(CopyAsyncTensorGlobalToSharedInstEmitter):
    """tilus 0.2.0 names the CTA group of every TMA load, as Blackwell's PTX may; ptxas refuses that for Hopper. A group
    of one is what PTX means without it."""

    def emit(self, inst: CopyAsyncTensorGlobalToSharedInst) -> None:
        super().emit(replace(inst, cta_group=None) if inst.cta_group == 1 else inst)


BaseInstEmitter.REGISTRY[CopyAsyncTensorGlobalToSharedInst][nvgpu_sm90] = _HopperTensorCopy


@dataclass(frozen=True, eq=False)
class CopyChunksInst(Instruction):
    """TMA loads of the chunks of a stage by the warps of a block. inputs: the place of the first chunk, to which the
    others lie next, chunk_nbytes each, and the operand. offsets: of the first chunk in the operand; along: which of
    them counts K, of which each chunk has STEP_K."""

    offsets: tuple[Expr, ...]
    mbarrier: Expr
    along: int
    chunks: int
    chunk_nbytes: int


register_rule(CopyChunksInst)(EmptyRule)
register_rule(CopyChunksInst)(AlwaysOkayRule)


class _WarpOfBlock(BaseEmitContext):
    """The number of a warp in its block, computed once a kernel, by a shuffle: ptxas then knows it to be the same in
    all lanes, and TMA and wgmma take places from uniform registers."""

    var: Var | None = None

    @classmethod
    def of(cls, contexts: EmitContexts) -> Var:
        context = vars(contexts).setdefault("warp_of_block", cls(contexts.codegen))
        if context.var is None:
            context.var = Var("warp_of_block", type=int32)
        return context.var

    def finalize(self) -> None:
        warp = shfl_sync_i32(uint32(0xFFFFFFFF), threadIdx.x // 32, int32(0))
        self.kernel_prepend(DeclareStmt(self.var, init=warp))


@register_emitter(CopyChunksInst, target=nvgpu_sm90)
class _CopyOfChunks(_HopperTensorCopy):
    """tilus 0.2.0 has every TMA load issued by one warp, which a whole step of them keeps from the next product. Here
    each warp issues those of its own chunks."""

    def assert_is_warp_aligned(self, inst: Instruction, msg: str) -> None:
        """One lane of each warp issues its loads."""
        if self.current_thread_group_begin % 32 or self.current_num_threads % 32:
            raise ValueError(f"{inst}: {msg}")

    def emit(self, inst: CopyChunksInst) -> None:
        warps = self.current_num_threads // 32
        first, places = inst.inputs[0].as_shared_tensor(), self.shared_tensor_shared_space_addr
        address = places[first]
        warp = _WarpOfBlock.of(self.contexts) - self.current_thread_group_begin // 32
        with self.for_range(cdiv(inst.chunks, warps)) as turn:
            chunk = self.declare_var("chunk", int32, turn * warps + warp)
            with self.if_then(chunk < inst.chunks) if inst.chunks % warps else nullcontext():
                places[first] = self.declare_var("address_of_chunk", int32, address + chunk * inst.chunk_nbytes)
                offsets = list(inst.offsets)
                offsets[inst.along] = offsets[inst.along] + chunk * STEP_K
                operand = inst.inputs[1].as_global_tensor()
                load = CopyAsyncTensorGlobalToSharedInst.create(operand, first, offsets, (0, 1), inst.mbarrier, 1)
                super().emit(load)
        places[first] = address


class _Operand:
    """An operand of a wgmma in shared memory, as its descriptors give it: [M or N, K], stored along either.

    Raises ValueError for a layout that has no descriptor. Source: PTX ISA, "Matrix Descriptor Format" and "Strides" of
    wgmma.
    """

    def __init__(self, address: Expr, layout: SharedLayout, dtype: DataType) -> None:
        found = canonicalize_shared_layout(layout, dtype=dtype)
        if found is None:
            raise ValueError(f"wgmma has no descriptor for an operand of the layout {layout}")
        self.address, self.canonical, self.nbytes = address, found, dtype.nbytes
        self.transposed = int(found.major_kind == "MN")

    def offset(self, row: int, k: int) -> int:
        """In bytes, of what begins there, at a whole pattern of the swizzle."""
        return self.canonical.swizzled_cute_layout.layout(row, k) * self.nbytes

    def place(self) -> Expr:
        """Where the operand begins, as descriptors count: in units of 16 bytes, of this block's shared memory. In a
        cluster the address has the block's rank above; there a descriptor has its leading offset."""
        return (cast(self.address, uint32) // uint32(UNIT)) & uint32(PLACES)

    def descriptor(self, place: Expr, row: int, k: int) -> Expr:
        """Of the instruction's part that begins there, at a whole pattern of the swizzle, of an operand at `place`.

        A sum in 32 bits beside a constant: tilus' own encoder adds to the address, shifts and masks it for every
        instruction anew. The sum stays within the mask, as shared memory does."""
        canonical = self.canonical
        fixed = canonical.LBO * self.nbytes // UNIT << 16 | canonical.SBO * self.nbytes // UNIT << 32
        fixed |= encode_swizzle_mode(canonical.swizzle_mode) << 62
        return uint64(fixed) | cast(place + uint32(self.offset(row, k) // UNIT), uint64)


def warpgroups_along(rows: int, warpgroups: int) -> tuple[int, int]:
    """Of a tile of `rows` rows: how many share its rows, and how many its columns."""
    return (warpgroups, 1) if rows % (warpgroups * ROWS) == 0 else (1, warpgroups)


def layout_of_sums(rows: int, columns: int, warpgroups: int) -> RegisterLayout:
    """fp32 [rows, columns] in the registers of so many warpgroups, each of which has a part of its own: of a product in
    half precision."""
    along_m, along_n = warpgroups_along(rows, warpgroups)
    m, n = rows // along_m, columns // along_n
    inst_m, inst_n, inst_k = WgmmaMmaSSInst.get_inst_mnk(m, n, STEP_K, bfloat16, bfloat16, float32)
    return spatial(along_m, along_n) * generate_wgmma_register_layout(m, n, inst_m, inst_n, inst_k)


class _WgmmaOfWarpgroups(WgmmaMmaSSEmitter):
    """tilus 0.2.0 has a wgmma of one warpgroup, which takes whole operands. It finds the descriptor of a tile stored
    along M or N, and then issues it as one stored along K."""

    def emit_wgmma(self, inst: WgmmaMmaSSInst) -> None:
        a, b = (tensor.as_shared_tensor() for tensor in inst.inputs[:2])
        d = inst.inputs[2].as_register_tensor()
        warpgroups = self.current_num_threads // (32 * WARPGROUP)
        along_m, along_n = warpgroups_along(d.shape[0], warpgroups)
        m, n, k = d.shape[0] // along_m, d.shape[1] // along_n, a.shape[1]
        inst_m, inst_n, inst_k = inst.get_inst_mnk(m, n, k, a.dtype, b.dtype, d.dtype)
        dtypes = a.dtype.short_name, b.dtype.short_name, d.dtype.short_name
        config = WgmmaConfig.get(inst_m, inst_n, inst_k, *dtypes)
        address = self.shared_tensor_shared_space_addr
        rows = _Operand(address[a], a.layout, a.dtype)
        columns = _Operand(address[b], b.layout.transpose(), b.dtype)
        if warpgroups > 1:
            shared, size = (rows, m) if along_m > 1 else (columns, n)
            warp = _WarpOfBlock.of(self.contexts) - self.current_thread_group_begin // 32
            begin = shared.address + warp // WARPGROUP * shared.offset(size, 0)
            shared.address = self.declare_var("shared_addr_of_warpgroup", int32, begin)
        sums = d.layout.local_size * inst_m * inst_n // (m * n)  # of a thread, in one instruction
        place_of_rows = self.declare_var("place_of_rows", uint32, rows.place())
        place_of_columns = self.declare_var("place_of_columns", uint32, columns.place())
        for step, i, j in product(range(k // inst_k), range(m // inst_m), range(n // inst_n)):
            self.append(
                wgmma_async(
                    config,
                    rows.descriptor(place_of_rows, i * inst_m, step * inst_k),
                    ~self.tensor2var[d][0] + (i * (n // inst_n) + j) * sums,
                    columns.descriptor(place_of_columns, j * inst_n, step * inst_k),
                    trans_a=rows.transposed,
                    trans_b=columns.transposed,
                )
            )


def _check_warpgroups(emitter: WgmmaBaseEmitter) -> None:
    begin, count = emitter.current_thread_group_begin, emitter.current_num_threads
    if begin % (32 * WARPGROUP) or count % (32 * WARPGROUP):
        raise ValueError(f"a wgmma by {count} threads from {begin} on; accepted: whole warpgroups")


_infer = WgmmaMmaSSRule.inference


def _infer_for_warpgroups(context: LayoutInferenceContext, inst: WgmmaMmaSSInst) -> dict[Any, Any]:
    found = _infer(context, inst)
    sums, warpgroups = inst.inputs[2], context.num_threads // (32 * WARPGROUP)
    if warpgroups > 1 and sums in found:
        found[sums] = layout_of_sums(*sums.shape, warpgroups)
    return found


WgmmaMmaSSRule.inference = staticmethod(_infer_for_warpgroups)
WgmmaBaseEmitter.check_warp_group = _check_warpgroups  # tilus' own takes one warpgroup, for a wait or a fence, too
BaseInstEmitter.REGISTRY[WgmmaMmaSSInst][nvgpu_sm90a] = _WgmmaOfWarpgroups


@dataclass(frozen=True, eq=False)
class ReadFromHereInst(Instruction):
    """Of the input, an accumulator that has been waited for."""


register_rule(ReadFromHereInst)(EmptyRule)
register_rule(ReadFromHereInst)(AlwaysOkayRule)


@register_emitter(ReadFromHereInst, target=nvgpu_sm90)
class ReadFromHereEmitter(BaseInstEmitter):
    def emit(self, inst: ReadFromHereInst) -> None:
        registers = self.tensor2var[inst.register_input]
        for i in range(inst.register_input.local_size):
            self.append(wgmma_fence_operand(registers[i]))


def read_from_here(script: tilus.Script, acc: RegisterTensor) -> None:
    """After the wait for the last product, and before acc is read. tilus' wait does not name the registers that it is
    for: nvcc else moves reads of them before it, and ptxas then serializes every wgmma."""
    script._builder.append(ReadFromHereInst(None, (acc,)))


def supports(problem: Matmul, config: MatmulConfig, *, swapped: bool = False) -> str | None:
    """swapped: a tile is computed as its transpose."""
    rows, columns = (config.block_n, config.block_m) if swapped else (config.block_m, config.block_n)
    if (devices.capability() or (9, 0)) != (9, 0):
        return "wgmma is Hopper's alone, compute capability 9.0"
    stored_kn = problem.layout is Layout.KN
    if problem.k % ALIGNMENT:
        return f"K = {problem.k}: TMA takes rows of 16-byte multiples, K a multiple of {ALIGNMENT}"
    if stored_kn and problem.n % ALIGNMENT:
        return f"N = {problem.n}: TMA takes rows of 16-byte multiples, N a multiple of {ALIGNMENT}"
    if config.num_warps not in [WARPGROUP * count for count in WARPGROUPS]:
        return f"{config.num_warps} warps; accepted: 4 or 8, as wgmma is a warpgroup's, 4 warps, and two share a tile"
    if config.num_stages < 2:
        return f"num_stages is {config.num_stages}; accepted: 2 or more, as a stage is filled while one is multiplied"
    _, warpgroups_along_n = warpgroups_along(rows, config.num_warps // WARPGROUP)
    least_columns = warpgroups_along_n * (STEP_K if stored_kn and not swapped else COLUMNS)
    if rows % ROWS or columns % least_columns or config.block_k % STEP_K:
        least = f"{ROWS}x{least_columns}x{STEP_K}"
        return f"wgmma of {rows}x{columns}x{config.block_k}: not a multiple of {least}"
    if max(rows, columns) > MOST_ROWS:
        return f"wgmma of {rows}x{columns}: a TMA copies {MOST_ROWS} rows at most"
    if rows * columns > MOST_SUMS * 32 * config.num_warps:
        return f"wgmma of {rows}x{columns}: more than {MOST_SUMS} sums a thread"
    return None


def supports_pairs(problem: Matmul, config: MatmulConfig) -> str | None:
    """Of what `supports` takes."""
    if problem.layout is Layout.KN:
        return "pairs of blocks read the weight along K: it must be stored [N, K]"
    if (tiles := cdiv(problem.m, config.block_m)) % PAIR:
        return (
            f"M = {problem.m} is {tiles} tiles of {config.block_m}; accepted: an even number, as blocks come in pairs"
        )
    return None


def shared_beside_barriers(script: tilus.Script, dtype: DataType, shape: Sequence[int]) -> SharedTensor:
    """A shared tensor that leaves the first BARRIERS_BYTES free, as every one must of a program with a wgmma product,
    after the product as well.

    tilus 0.2.0 gives barriers their memory last: the lowest that is free as the program ends, though they are valid all
    along, as nothing invalidates them. What an ordinary store to a valid barrier does PTX leaves undefined (see
    notes/cluster.md).
    """
    place_of_barriers = script.shared_tensor(dtype=uint8, shape=[BARRIERS_BYTES])
    tensor = script.shared_tensor(dtype=dtype, shape=shape)
    script.free_shared(place_of_barriers)
    return tensor


def stages(script: tilus.Script, extent: int, stored_along_k: bool, parts: int = 1) -> SharedTensor:
    """Chunks of STEP_K of an operand: [extent, STEP_K] each, of several parts [extent / parts, STEP_K] one after the
    other, or tiles of [STEP_K along K, STEP_K]."""
    chunks = script.num_stages * (script.block_k // STEP_K)
    if stored_along_k and parts == 1:
        return shared_beside_barriers(script, dtype=script.dtype, shape=[chunks, extent, STEP_K])
    shape = [chunks, parts, extent // parts, STEP_K] if stored_along_k else [chunks, extent // STEP_K, STEP_K, STEP_K]
    tiles = shared_beside_barriers(script, dtype=script.dtype, shape=shape)
    script.annotate_layout(tiles, shared_row_major(*shape).apply_swizzle(WIDEST_SWIZZLE))
    return tiles


def copy_chunks(
    script: tilus.Script,
    operand: GlobalTensor,
    chunk: SharedTensor,
    barrier: RegisterTensor,
    offset: int32,
    offset_k: int32,
) -> None:
    """A stage of an operand, of which `chunk` is the first, by the warps of a block, each a chunk or more."""
    builder = script._builder

    def copy(tile: SharedTensor, offsets: Sequence[Expr], along: int) -> None:
        builder.append(
            CopyChunksInst(
                output=None,
                inputs=(tile, operand),
                offsets=tuple(offsets),
                mbarrier=builder.tensor_item_value(barrier),
                along=along,
                chunks=script.block_k // STEP_K,
                chunk_nbytes=prod(chunk.shape) * chunk.dtype.nbytes,
            )
        )

    if len(chunk.shape) == 2:
        copy(chunk, (offset, offset_k), 1)
    else:
        with builder.for_range(chunk.shape[0]) as tile:
            copy(builder.slice_shared(chunk, [tile, 0, 0], [1, 2], [STEP_K] * 2), (offset_k, offset + tile * STEP_K), 0)


class WgmmaProduct(tilus.Script):
    """Of a Script with block_k, num_stages, num_warps and dtype, fp16 or bf16; with paired, a_along_m and b_along_n,
    see above, weight_is_a, where the product is swapped, and cluster_m: PAIR where it is paired, else 1."""

    def wgmma_product(
        self,
        acc: RegisterTensor,
        ga: GlobalTensor,
        gb: GlobalTensor,
        offset_a: int32,
        offset_b: int32,
        k_begin: int32,
        k_end: int32,
        steps_before: int32,
    ) -> None:
        """acc fp32 [rows, columns] += A[offset_a:, k_begin:k_end] @ B[offset_b:, k_begin:k_end].T. A is stored so, or,
        a_along_m, [K, M]; B so, or, b_along_n, [K, N]. steps_before: of earlier products of this block here, as
        barriers go on counting; none where paired. Ends in a sync, of the cluster where paired."""
        rows, columns = acc.shape
        chunks = self.block_k // STEP_K
        sa = stages(self, rows, not self.a_along_m)
        sb = stages(self, columns, not self.b_along_n, self.cluster_m)
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.num_stages)])
        if self.paired:
            read = self.mbarrier.alloc(counts=[PAIR for _ in range(self.num_stages)])
            cluster_arrive_relaxed()
            cluster_wait()  # the other's barriers are there

        # One loop, so that there is one TMA an operand in it: 0.2.0 encodes a tensor map for each.
        slack = min(PAIR_SLACK, self.num_stages - 2) if self.paired else 0
        lag = self.num_stages - 1 - slack
        steps: int32 = cdiv(k_end - k_begin, self.block_k)
        current: int32 = steps_before % self.num_stages
        phase: int32 = steps_before // self.num_stages % 2
        fill: int32 = current
        fill_phase: int32 = 1  # at first nothing is to be waited for
        fill_k: int32 = k_begin
        if steps > 0:  # around the last wait, too: joined by a path without a product, ptxas serializes every wgmma
            for step in self.range(steps + lag):
                if step >= lag:
                    self.mbarrier.wait(full[current], phase=phase)
                    self.wgmma.fence()
                    for chunk in range(chunks):
                        self.multiply_chunk(acc, sa[current * chunks + chunk], sb[current * chunks + chunk])
                    self.wgmma.commit_group()
                    current += 1
                    if current == self.num_stages:
                        current = 0
                        phase = 1 - phase
                    self.wgmma.wait_group(1)  # for the product before; the tensor cores have the next one by now
                    self.sync()  # every warp has waited: the stage of the product before may be filled during this one
                    if self.paired:
                        with self.single_warp():
                            if step > lag and fill_k + slack * self.block_k < k_end:  # it will be filled again
                                # Its reads are over. By tilus' default, a release to the cluster, a MEMBAR.ALL.GPU
                                # would stand here: 0.5 us a step on an H200. CUTLASS' ClusterBarrier has none either.
                                self.mbarrier.arrive_and_expect_tx_multicast(
                                    read[(current + self.num_stages - 2) % self.num_stages],
                                    transaction_bytes=0,
                                    multicast_mask=BOTH,
                                    scope="cta",
                                )
                if fill_k < k_end:
                    if self.paired:
                        with self.single_warp():
                            self.mbarrier.wait(read[fill], phase=fill_phase, scope="cluster")
                            self.fill_stage(ga, gb, sa, sb, full, fill, rows + columns, offset_a, offset_b, fill_k)
                    else:
                        self.fill_stage_by_warps(ga, gb, sa, sb, full, fill, rows + columns, offset_a, offset_b, fill_k)
                fill_k += self.block_k
                fill += 1
                if fill == self.num_stages:
                    fill = 0
                    fill_phase = 1 - fill_phase
            self.wgmma.wait_group(0)
            read_from_here(self, acc)
        if self.paired:  # the other has what this block sends: PTX does not say what becomes of that once a block ends
            cluster_arrive_relaxed()
            cluster_wait()
        self.sync()
        self.free_shared(sa)
        self.free_shared(sb)

    def multiply_chunk(self, acc: RegisterTensor, a: SharedTensor, b: SharedTensor) -> None:
        """acc += a @ b, chunks of STEP_K as `stages` has them: tiles of one are put side by side."""
        rows, columns = acc.shape
        if self.a_along_m:
            self.wgmma.mma(self.reshape_shared(a.permute([0, 2, 1]), [rows, STEP_K]), b.transpose(), acc)
        elif self.b_along_n:
            self.wgmma.mma(a, self.reshape_shared(b.permute([1, 0, 2]), [STEP_K, columns]), acc)
        elif self.paired:
            self.wgmma.mma(a, self.reshape_shared(b, [columns, STEP_K]).transpose(), acc)
        else:
            self.wgmma.mma(a, b.transpose(), acc)

    def fill_stage(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        full: RegisterTensor,
        stage: int32,
        extent: int,
        offset_a: int32,
        offset_b: int32,
        offset_k: int32,
    ) -> None:
        """By one warp: its TMA loads, which arrive at the stage's barrier. extent: of both operands together."""
        with self.single_thread():
            self.expect_stage(full[stage], extent)
        # The weight first: few rows of activations, which all tiles share, are soon in L2.
        if self.weight_is_a:
            self.load_chunks_of_a(ga, sa, full[stage], stage, offset_a, offset_k)
            self.load_chunks_of_b(gb, sb, full[stage], stage, offset_b, offset_k)
        else:
            self.load_chunks_of_b(gb, sb, full[stage], stage, offset_b, offset_k)
            self.load_chunks_of_a(ga, sa, full[stage], stage, offset_a, offset_k)

    def fill_stage_by_warps(
        self,
        ga: GlobalTensor,
        gb: GlobalTensor,
        sa: SharedTensor,
        sb: SharedTensor,
        full: RegisterTensor,
        stage: int32,
        extent: int,
        offset_a: int32,
        offset_b: int32,
        offset_k: int32,
    ) -> None:
        """As fill_stage, by all warps. A load may arrive before its bytes are expected: the phase ends with both."""
        with self.thread_group(thread_begin=0, num_threads=1):
            self.expect_stage(full[stage], extent)
        chunk = stage * (self.block_k // STEP_K)
        if self.weight_is_a:
            copy_chunks(self, ga, sa[chunk], full[stage], offset_a, offset_k)
            copy_chunks(self, gb, sb[chunk], full[stage], offset_b, offset_k)
        else:
            copy_chunks(self, gb, sb[chunk], full[stage], offset_b, offset_k)
            copy_chunks(self, ga, sa[chunk], full[stage], offset_a, offset_k)

    def expect_stage(self, barrier: RegisterTensor, extent: int) -> None:
        self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=extent * self.block_k * self.dtype.nbytes)

    def load_chunks_of_a(
        self,
        ga: GlobalTensor,
        sa: SharedTensor,
        barrier: RegisterTensor,
        stage: int32,
        offset_a: int32,
        offset_k: int32,
    ) -> None:
        chunks = self.block_k // STEP_K
        for chunk in range(chunks):
            chunk_k: int32 = offset_k + chunk * STEP_K
            self.load_chunk(ga, sa[stage * chunks + chunk], barrier, offset_a, chunk_k, False)

    def load_chunks_of_b(
        self,
        gb: GlobalTensor,
        sb: SharedTensor,
        barrier: RegisterTensor,
        stage: int32,
        offset_b: int32,
        offset_k: int32,
    ) -> None:
        """Of a pair each block its half, into both."""
        chunks = self.block_k // STEP_K
        for chunk in range(chunks):
            chunk_k: int32 = offset_k + chunk * STEP_K
            chunk_of_b = sb[stage * chunks + chunk]
            if self.paired:
                part: int32 = self.blockIdx.x % PAIR
                offset_of_part: int32 = offset_b + part * chunk_of_b.shape[1]
                self.load_chunk(gb, chunk_of_b[part], barrier, offset_of_part, chunk_k, True)
            else:
                self.load_chunk(gb, chunk_of_b, barrier, offset_b, chunk_k, False)

    def load_chunk(
        self,
        operand: GlobalTensor,
        chunk: SharedTensor,
        barrier: RegisterTensor,
        offset: int32,
        offset_k: int32,
        multicast: bool,
    ) -> None:
        """By TMA, which arrives at the barrier: a chunk of an operand as `stages` has it."""
        if len(chunk.shape) == 2:
            self.tma.global_to_shared(
                src=operand,
                dst=chunk,
                offsets=[offset, offset_k],
                mbarrier=barrier,
                multicast_mask=BOTH if multicast else None,
            )
        else:
            for tile in range(chunk.shape[0]):
                self.tma.global_to_shared(
                    src=operand, dst=chunk[tile], offsets=[offset_k, offset + tile * STEP_K], mbarrier=barrier
                )
