"""Asynchronous operations of Hopper and Blackwell: barriers in shared memory (mbarrier), copies that arrive at them or
are committed in groups (TMA), wgmma, and the control of clusters that have not started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from tilus.ir.instructions.cuda.clc import ClusterLaunchControlQueryResponseInst, ClusterLaunchControlTryCancelInst
from tilus.ir.instructions.cuda.cp_async_tensor import (
    CopyAsyncTensorCommitGroupInst,
    CopyAsyncTensorGlobalToSharedInst,
    CopyAsyncTensorSharedToGlobalInst,
    CopyAsyncTensorWaitGroupInst,
)
from tilus.ir.instructions.cuda.fence import FenceProxyAsync, FenceProxyAsyncRelease
from tilus.ir.instructions.cuda.mapa import MapSharedAddrInst
from tilus.ir.instructions.cuda.mbarrier import (
    AllocBarrierInst,
    ArriveBarrierInst,
    ArriveExpectTxBarrierInst,
    ArriveExpectTxMulticastBarrierInst,
    ArriveExpectTxRemoteBarrierInst,
    WaitBarrierInst,
)
from tilus.ir.instructions.cuda.wgmma import (
    WgmmaCommitGroupInst,
    WgmmaFenceInst,
    WgmmaMmaRSInst,
    WgmmaMmaSSInst,
    WgmmaWaitGroupInst,
)
from tilus.ir.tensor import GlobalTensor, RegisterTensor
from torch import Tensor as Tile

from triton_vs_tilus.kernels_tilus.interpreter.cluster import peer_of
from triton_vs_tilus.kernels_tilus.interpreter.errors import (
    KernelError,
    MissingFence,
    UseAfterFree,
    WrongThreads,
)
from triton_vs_tilus.kernels_tilus.interpreter.machine import (
    Program,
    Run,
    View,
    check_same_bits,
    instruction,
    region_of,
    setter,
)
from triton_vs_tilus.kernels_tilus.interpreter.memory import (
    Agent,
    Clock,
    Event,
    Region,
    SharedTile,
    check_started,
    fence,
    load,
    merge,
    store,
)
from triton_vs_tilus.kernels_tilus.interpreter.threads import WARP, Block, Steps, Threads
from triton_vs_tilus.kernels_tilus.push import PushRowsInst
from triton_vs_tilus.kernels_tilus.wgmma import STEP_K, CopyChunksInst, ReadFromHereInst
from triton_vs_tilus.kernels_tilus.wgmma_specialized import ArriveOnceAWarpInst

WARPGROUP = 128  # threads
TMA_ALIGNMENT = 16  # bytes
MULTICAST_THREADS = 16  # tilus uses a thread for each block that a cluster may have
PEER = 1 << 16  # an address of a barrier holds its number, and, times this, one more than the rank it is mapped to
RESPONSE_BYTES = 16  # of a request to cancel a cluster

# Barriers


class Barrier(Agent):
    """A phase ends when `count` threads and all bytes that they announced have arrived.

    The bytes of a copy by another block may arrive before they are announced. A copy lands as late as possible: when a
    wait would not end without it. As an agent it is what writes the copies; its epoch is the phase.
    """

    def __init__(self, block: Block, name: str, count: int) -> None:
        super().__init__(block.launch, block, single=True)
        self.name, self.count = name, count
        self.missing = count  # arrivals in this phase
        self.phase, self.missing_bytes = 0, 0
        self.copies: list[Any] = []
        # What arrivals have published, of threads of the block and of its peers: of this phase, and of those before.
        self.arriving: tuple[Clock, Clock] = {}, {}
        self.visits: dict[int, Event] = {}  # by phase that no wait has seen end: the last arrival by a peer
        self.published: tuple[Clock, Clock] = {}, {}

    def arrive(self, t: Threads, arrivals: int, clock: Clock | None, announced_bytes: int = 0) -> None:
        """clock: what the arrivals of these threads release; None for relaxed ones."""
        own = t.block is self.block
        if not own:
            self.visits[self.phase] = t.now()
        if arrivals > self.missing:
            raise KernelError(
                f"{arrivals} arrive at {self.name}, where phase {self.phase} misses {self.missing}: "
                "nothing has waited for the phase before"
            )
        self.missing -= arrivals
        self.missing_bytes += announced_bytes
        if clock is not None:
            merge(self.arriving[not own], clock)
        self._end_phase()

    def land(self) -> None:
        for copy in self.copies:
            copy.land(self)
            self.missing_bytes -= copy.nbytes
        self.arriving[0][self.number] = self.phase
        self.copies.clear()
        self._end_phase()

    def _end_phase(self) -> None:
        if self.missing == 0 and self.missing_bytes == 0 and not self.copies:
            self.phase += 1
            self.epoch = self.phase
            self.missing = self.count
            for published, arriving in zip(self.published, self.arriving, strict=True):
                merge(published, arriving)
            self.arriving = {}, {}


@dataclass(frozen=True)
class PhaseWait:
    """A wait for the end of the phase of this parity."""

    barrier: Barrier
    parity: int

    def over(self) -> bool:
        if self.barrier.phase % 2 == self.parity:
            self.barrier.land()
        return self.barrier.phase % 2 != self.parity

    def __str__(self) -> str:
        barrier = self.barrier
        missing = f"{barrier.missing} arrivals and {barrier.missing_bytes} bytes"
        return f"the end of phase {barrier.phase} of {barrier.name}, which misses {missing}"


def _barrier(t: Threads, address: int, block: Block | None = None) -> Barrier:
    """The barrier at an address, or the one at the same place in another block."""
    rank, number = divmod(int(address), PEER)
    block = block or (peer_of(t.block, rank - 1) if rank else t.block)
    if number >= len(block.barriers):
        raise KernelError(f"block {block.index} has not allocated the barrier that is arrived at")
    return block.barriers[number]


@instruction.register(AllocBarrierInst)
def _(i: AllocBarrierInst, program: Program) -> Run:
    """Barriers are allocated once, before the Script's first instruction, however often this instruction runs."""
    counts, put = [None if count is None else program.value(count) for count in i.counts], setter(i.register_output)

    def run(t: Threads) -> None:
        block = t.block
        if i not in block.barriers_of:
            name, first = t.launch.name_of(i) or "barriers", len(block.barriers)
            for slot, count in enumerate(counts):
                block.barriers.append(Barrier(block, f"{name}[{slot}]", t.count if count is None else count(t)))
            block.barriers_of[i] = torch.arange(first, len(block.barriers))
        put(t, block.barriers_of[i])

    return run


@instruction.register(MapSharedAddrInst)
def _(i: MapSharedAddrInst, program: Program) -> Run:
    source, rank, put = i.inputs[0], program.value(i.target_rank), setter(i.register_output)

    def run(t: Threads) -> None:
        peer_of(t.block, rank(t))
        put(t, t.tile(source) % PEER + PEER * (rank(t) + 1))

    return run


def _arrive(t: Threads, barrier: Barrier, each: int, i: Any, announced_bytes: int = 0) -> None:
    """Every thread arrives `each` times."""
    clock = t.published_by_all() if i.sem == "release" else None
    barrier.arrive(t, t.count * each, clock, t.count * announced_bytes)


@instruction.register(ArriveBarrierInst)
def _(i: ArriveBarrierInst, program: Program) -> Run:
    address, count = program.value(i.barrier), program.value(i.count)

    def run(t: Threads) -> Steps:
        yield
        _arrive(t, _barrier(t, address(t)), count(t), i)

    return run


@instruction.register(ArriveOnceAWarpInst)
def _(i: ArriveOnceAWarpInst, program: Program) -> Run:
    address = program.value(i.barrier)

    def run(t: Threads) -> Steps:
        yield
        _barrier(t, address(t)).arrive(t, t.count // WARP, t.published_by_all())

    return run


@instruction.register(ArriveExpectTxBarrierInst)
def _(i: ArriveExpectTxBarrierInst, program: Program) -> Run:
    address, nbytes = program.value(i.barrier), program.value(i.transaction_bytes)
    return lambda t: _arrive(t, _barrier(t, address(t)), 1, i, nbytes(t))


@instruction.register(ArriveExpectTxRemoteBarrierInst)
def _(i: ArriveExpectTxRemoteBarrierInst, program: Program) -> Run:
    address, nbytes, rank = program.value(i.barrier), program.value(i.transaction_bytes), program.value(i.target_rank)

    def run(t: Threads) -> Steps:
        yield
        (peer,) = _receivers(t, 1 << rank(t))
        _arrive(t, _barrier(t, address(t), peer), 1, i, nbytes(t))

    return run


@instruction.register(ArriveExpectTxMulticastBarrierInst)
def _(i: ArriveExpectTxMulticastBarrierInst, program: Program) -> Run:
    """One thread arrives at each block of the mask: it releases what all knew to be done."""
    address, nbytes, mask = program.value(i.barrier), program.value(i.transaction_bytes), program.value(i.multicast)

    def run(t: Threads) -> Steps:
        yield
        if t.count < MULTICAST_THREADS:
            raise WrongThreads(f"a multicast arrival by {t.count} threads; accepted: {MULTICAST_THREADS} or more")
        clock = t.published() if i.sem == "release" else None
        for peer in _receivers(t, mask(t)):
            _barrier(t, address(t), peer).arrive(t, 1, clock, nbytes(t))

    return run


def _receivers(t: Threads, mask: int) -> list[Block]:
    """The blocks of the cluster whose ranks are set in the mask."""
    blocks = t.block.cluster.blocks
    if mask >> len(blocks):
        raise KernelError(f"mask {mask:#b} names blocks that a cluster of {len(blocks)} does not have")
    named = [peer for rank, peer in enumerate(blocks) if mask >> rank & 1]
    if ended := [peer for peer in named if peer.ended]:
        raise UseAfterFree(f"the shared memory of block {ended[0].index} is sent to, and that block has ended")
    for peer in named:
        check_started(t, peer)
    return named


@instruction.register(WaitBarrierInst)
def _(i: WaitBarrierInst, program: Program) -> Run:
    """Relaxed it orders nothing; of the scope of a block nothing that a peer did."""
    address, phase = program.value(i.barrier), program.value(i.phase)

    def run(t: Threads) -> Steps:
        yield
        wait = PhaseWait(_barrier(t, address(t)), phase(t))
        if not wait.over():
            yield wait
        barrier = wait.barrier
        if barrier.visits:
            barrier.visits = {phase: event for phase, event in barrier.visits.items() if phase >= barrier.phase}
        if i.sem == "acquire":
            own, peers = barrier.published
            merge(t.known, own)
            if i.scope == "cluster":
                merge(t.known, peers)

    return run


# Copies


def _check_warp(t: Threads, what: str) -> None:
    if t.count != WARP or t.begin % WARP:
        t.fail(WrongThreads(f"{what} by {t.count} threads; tilus 0.2.0 takes one whole warp"))


class TensorLoad:
    """A TMA load into the shared memory of one block, until it lands."""

    kind = "a TMA load"

    def __init__(self, t: Threads, tile: SharedTile, region: Region) -> None:
        self.tile, self.region, self.threads, self.place = tile, region, t, t.place
        self.nbytes = tile.nbytes
        tile.begin_copy(t, self, by_tma=True)

    def land(self, barrier: Barrier) -> None:
        event = Event(barrier, barrier.phase, self.place)
        self.tile.land(self, load(self.threads, self.region, event), event, by_tma=True)


@instruction.register(CopyAsyncTensorGlobalToSharedInst)
def _(i: CopyAsyncTensorGlobalToSharedInst, program: Program) -> Run:
    target, source = i.inputs
    check_same_bits(source, target)
    region_at = region_of(program, source, i.offsets, i.dims, target.shape)
    address, check = program.value(i.mbarrier), _tensor_map_check(source, i.dims, "load from")
    mask = None if i.multicast_mask is None else program.value(i.multicast_mask)

    def run(t: Threads) -> Steps:
        yield
        _check_warp(t, "a TMA load")
        check(t)
        tile, region = t.values[target], region_at(t)
        load(t, region)  # the global memory may be read from now on, until the copy has landed
        for receiver in [t.block] if mask is None else _receivers(t, mask(t)):
            held = tile if receiver is t.block else _same_place(tile, t.block, receiver)
            number = int(address(t))
            own = mask is None or receiver is t.block
            barrier = _barrier(t, number) if own else _barrier(t, number, receiver)
            barrier.copies.append(TensorLoad(t, held, region))

    return run


@instruction.register(CopyChunksInst)
def _(i: CopyChunksInst, program: Program) -> Run:
    first, source = i.inputs
    check_same_bits(source, first)
    places = [
        tuple(at + chunk * STEP_K * (dim == i.along) for dim, at in enumerate(i.offsets)) for chunk in range(i.chunks)
    ]
    regions_at = [region_of(program, source, place, (0, 1), first.shape) for place in places]
    address, check = program.value(i.mbarrier), _tensor_map_check(source, (0, 1), "load from")
    elements = i.chunk_nbytes // first.dtype.nbytes

    def run(t: Threads) -> Steps:
        yield
        if t.count % WARP or t.begin % WARP:
            t.fail(WrongThreads(f"TMA loads by {t.count} threads from {t.begin} on; accepted: whole warps"))
        check(t)
        barrier = _barrier(t, int(address(t)))
        for chunk, region_at in enumerate(regions_at):
            tile, region = _moved(t.values[first], chunk * elements), region_at(t)
            load(t, region)  # as above
            barrier.copies.append(TensorLoad(t, tile, region))

    return run


def _moved(tile: SharedTile, elements: int) -> SharedTile:
    """The tile so many elements further in its shared memory."""

    def view(data: Tile) -> Tile:
        return data.as_strided(data.size(), data.stride(), data.storage_offset() + elements)

    return tile.view(("moved", elements), view)


class Push:
    """What a block stores to its place in the shared memory of one block of the cluster, until it lands."""

    kind = "a push"

    def __init__(self, t: Threads, target: SharedTile, tile: torch.Tensor) -> None:
        self.target, self.tile, self.place = target, tile, t.place
        self.nbytes = target.nbytes
        target.begin_copy(t, self, by_tma=False)

    def land(self, barrier: Barrier) -> None:
        self.target.land(self, self.tile, Event(barrier, barrier.phase, self.place), by_tma=False)


@instruction.register(PushRowsInst)
def _(i: PushRowsInst, program: Program) -> Run:
    source, target = i.inputs
    address = program.value(i.mbarrier)

    def run(t: Threads) -> Steps:
        yield
        shares = t.tile(source).split(target.shape[0])
        for receiver, share in zip(_receivers(t, (1 << len(shares)) - 1), shares, strict=True):
            held, barrier = t.values[target], int(address(t))
            if receiver is not t.block:
                held = _same_place(held, t.block, receiver)
            _barrier(t, barrier, receiver).copies.append(Push(t, held, share))

    return run


def _same_place(tile: SharedTile, block: Block, peer: Block) -> SharedTile:
    """The tile at the same addresses in the shared memory of another block of the cluster."""
    place = block.shared.index(tile.buffer)
    if len(peer.shared) <= place:
        raise UseAfterFree(f"{tile.buffer.name} of block {peer.index} is sent to, which has not allocated it")
    data = tile.data
    view = partial(torch.as_strided, size=data.size(), stride=data.stride(), storage_offset=data.storage_offset())
    return peer.shared[place].tile().view(("same", data.size(), data.stride(), data.storage_offset()), view)


def _tensor_map_check(tensor: GlobalTensor, dims: Sequence[int], what: str) -> Callable[[Threads], None]:
    """What raises KernelError for a tensor that TMA cannot address, or a tile along some of its dimensions: of those
    tilus 0.2.0 makes the tensor map, and of all the instruction."""
    nbytes, rank = tensor.dtype.nbytes, len(tensor.shape)

    def check(t: Threads) -> None:
        view: View = t.values[tensor]
        if len(dims) != rank:
            raise KernelError(
                f"a TMA {what} {view.pointer.name} with dims={list(dims)}: tilus 0.2.0 encodes a tensor map of rank "
                f"{len(dims)}, and issues cp.async.bulk.tensor.{rank}d, an illegal instruction on a GPU; accepted: a "
                f"shared tile of the tensor's rank, {rank}, with 1 along the other dimensions"
            )
        strides = view.strides or (0,)
        units = [view.pointer.offset, *strides[:-1]]
        if strides[-1] != 1 or any(unit * nbytes % TMA_ALIGNMENT for unit in units):
            raise KernelError(
                f"a TMA {what} {view.pointer.name}, which starts at element {view.pointer.offset} and has strides "
                f"{list(strides)}; accepted: unit stride along the last dimension, the rest multiples of "
                f"{TMA_ALIGNMENT} bytes"
            )

    return check


class TensorStore:
    """A TMA store: it reads shared memory until a wait for reads, and has written global memory after a full wait."""

    kind = "a TMA store"

    def __init__(self, tile: SharedTile, epoch: int) -> None:
        self.tile, self.epoch, self.reads = tile, epoch, True


@instruction.register(CopyAsyncTensorSharedToGlobalInst)
def _(i: CopyAsyncTensorSharedToGlobalInst, program: Program) -> Run:
    """What orders accesses to the global memory after it is the full wait; the data is there at once."""
    target, source = i.inputs
    if not isinstance(target, GlobalTensor):
        target, source = source, target
    check_same_bits(source, target)
    region_at = region_of(program, target, i.offsets, i.dims, source.shape)
    check = _tensor_map_check(target, i.dims, "store to")

    def run(t: Threads) -> Steps:
        yield
        _check_warp(t, "a TMA store")
        check(t)
        unit = t.launch.unit(t)
        unit.epoch += 1
        stored = TensorStore(t.values[source], unit.epoch)
        tile = stored.tile.load_async(t, stored)
        store(t, region_at(t), tile, Event(unit, unit.epoch, t.place))
        t.open_stores.append(stored)

    return run


@instruction.register(CopyAsyncTensorCommitGroupInst)
def _(i: CopyAsyncTensorCommitGroupInst, program: Program) -> Run:
    def run(t: Threads) -> None:
        t.store_groups.append(t.open_stores)
        t.open_stores = []

    return run


@instruction.register(CopyAsyncTensorWaitGroupInst)
def _(i: CopyAsyncTensorWaitGroupInst, program: Program) -> Run:
    """With `read` only the shared memory may be written again; the stores may still be under way."""
    keep = program.value(i.n)

    def run(t: Threads) -> None:
        over = t.store_groups[: max(0, len(t.store_groups) - keep(t))]
        for stored in (stored for group in over for stored in group):
            if stored.reads:
                stored.reads = False
                stored.tile.over(t, stored)
            if not i.read:
                merge(t.known, {t.launch.unit(t).number: stored.epoch})
        if not i.read:
            t.store_groups = t.store_groups[len(over) :]

    return run


@instruction.register(FenceProxyAsync)
@instruction.register(FenceProxyAsyncRelease)
def _(i: Any, program: Program) -> Run:
    """From here on TMA and tensor cores may read and overwrite what threads have written."""
    return lambda t: fence(t, t.block.shared)


# Clusters that have not started


class Response:
    """Of a request to cancel a cluster, in the form of a copy: whether it is, and its first block."""

    kind = "a response"
    nbytes = RESPONSE_BYTES

    def __init__(self, t: Threads, tile: SharedTile, values: tuple[int, ...]) -> None:
        self.tile, self.values, self.place = tile, values, t.place
        tile.begin_copy(t, self, by_tma=True)

    def land(self, barrier: Barrier) -> None:
        tile = torch.tensor(self.values, dtype=torch.int32).view(self.tile.data.dtype).view(self.tile.data.shape)
        self.tile.land(self, tile, Event(barrier, barrier.phase, self.place), by_tma=True)


@instruction.register(ClusterLaunchControlTryCancelInst)
def _(i: ClusterLaunchControlTryCancelInst, program: Program) -> Run:
    """Cancels the next cluster that is not resident; a schedule with `resident` has some."""
    response, address, multicast = i.inputs[0], program.value(i.mbarrier), program.value(i.multicast)

    def run(t: Threads) -> Steps:
        yield
        _check_warp(t, "a request to cancel a cluster")
        first = t.launch.cancel()
        values = (0, 0, 0, 0) if first is None else (1, *first)
        tile = t.values[response]
        if tile.nbytes != RESPONSE_BYTES:
            raise KernelError(f"a response of {tile.nbytes} bytes; accepted: {RESPONSE_BYTES}")
        for receiver in t.block.cluster.blocks if multicast(t) else [t.block]:
            held = tile if receiver is t.block else _same_place(tile, t.block, receiver)
            _barrier(t, address(t), receiver).copies.append(Response(t, held, values))

    return run


@instruction.register(ClusterLaunchControlQueryResponseInst)
def _(i: ClusterLaunchControlQueryResponseInst, program: Program) -> Run:
    source, put = i.inputs[0], setter(i.register_output)
    return lambda t: put(t, t.values[source].load(t).contiguous().view(torch.int32).view(4))


# Products


class Product:
    """A wgmma, until it is waited for. a: its operand in registers; None where it has none."""

    kind = "a wgmma"

    def __init__(self, acc: RegisterTensor, a: RegisterTensor | None, tiles: list[SharedTile]) -> None:
        self.acc, self.a, self.tiles = acc, a, tiles


@instruction.register(WgmmaFenceInst)
def _(i: WgmmaFenceInst, program: Program) -> Run:
    return lambda t: t.registers_before_fence.clear()


@instruction.register(WgmmaMmaSSInst)
@instruction.register(WgmmaMmaRSInst)
def _(i: Any, program: Program) -> Run:
    """Computed at once. Until a wait its operands may not be written, and its accumulator neither read nor written."""
    a, b, acc = i.inputs
    in_registers = isinstance(a, RegisterTensor)

    def run(t: Threads) -> None:
        if t.count % WARPGROUP or t.begin % WARPGROUP:
            raise WrongThreads(f"a wgmma by {t.count} threads; accepted: whole warpgroups, of {WARPGROUP}")
        if acc in t.registers_before_fence or (in_registers and a in t.registers_before_fence):
            t.fail(MissingFence("a wgmma takes registers that were written after the last wgmma.fence"))
        tiles = [t.values[operand] for operand in ((b,) if in_registers else (a, b))]
        product = Product(acc, a if in_registers else None, tiles)
        operands = [tile.load_async(t, product).float() for tile in product.tiles]
        if in_registers:
            operands.insert(0, t.tile(a).float())
        under_way, t.summing = t.summing, set()
        total: Tile = t.tile(acc) + operands[0] @ operands[1]
        t.values[acc] = total.to(t.tile(acc).dtype)
        if not t.whole:
            t.assigned.add(acc)
        t.summing = {*under_way, acc}
        if in_registers:
            t.multiplied.add(a)
        t.open_products.append(product)

    return run


@instruction.register(WgmmaCommitGroupInst)
def _(i: WgmmaCommitGroupInst, program: Program) -> Run:
    def run(t: Threads) -> None:
        t.product_groups.append(t.open_products)
        t.open_products = []

    return run


@instruction.register(ReadFromHereInst)
def _(i: ReadFromHereInst, program: Program) -> Run:
    def run(t: Threads) -> None:
        t.tile(i.register_input)

    return run


@instruction.register(WgmmaWaitGroupInst)
def _(i: WgmmaWaitGroupInst, program: Program) -> Run:
    keep = program.value(i.n)

    def run(t: Threads) -> None:
        over = t.product_groups[: max(0, len(t.product_groups) - keep(t))]
        t.product_groups = t.product_groups[len(over) :]
        for product in (product for group in over for product in group):
            for tile in product.tiles:
                tile.over(t, product)
        under_way = [product for group in (*t.product_groups, t.open_products) for product in group]
        t.summing = {product.acc for product in under_way}
        t.multiplied = {product.a for product in under_way if product.a is not None}

    return run
