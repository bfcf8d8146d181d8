"""Thread block clusters: their barrier, and addresses in the shared memory of a block's peers."""

from dataclasses import dataclass, field
from typing import Any

from triton_vs_tilus.kernels_tilus.interpreter.errors import BarrierOverlap, KernelError, PendingCopy, Race, Unsupported
from triton_vs_tilus.kernels_tilus.interpreter.memory import (
    NOTHING,
    Clock,
    PeerMemory,
    Pointer,
    SharedBuffer,
    merge,
    unseen_by,
)


@dataclass(eq=False)
class Cluster:
    """Blocks that run together. After a barrier each knows what all of them did before it."""

    blocks: list[Any] = field(default_factory=list)  # by rank
    arrived: int = 0
    barriers: int = 0
    gathered: Clock = field(default_factory=dict)
    published: Clock = field(default_factory=dict)  # of the last barrier

    def sync(self, threads):
        yield
        _check_whole(threads)
        threads.sync()
        yield from self._until_over(threads, self._count(threads.published()))

    def arrive(self, threads):
        """Publishes what each thread did before, in this epoch too, as every thread arrives."""
        yield
        _check_whole(threads)
        block = threads.block
        _check_waited(block)
        block.arrived_at = self._count(threads.published_by_all())

    def arrive_relaxed(self, threads):
        """Publishes that the block has started, and nothing that it did."""
        yield
        _check_whole(threads)
        block = threads.block
        _check_waited(block)
        block.arrived_at = self._count({block.root.number: NOTHING})

    def wait(self, threads):
        """Does not order what threads of the block did after their arrival."""
        yield
        block = threads.block
        if block.arrived_at is None:
            raise KernelError("the block waits at the cluster's barrier, where it has not arrived")
        barrier, block.arrived_at = block.arrived_at, None
        yield from self._until_over(threads, barrier)

    def _count(self, clock: Clock) -> int:
        """Counts an arrival; the number of the barrier that the block arrives at."""
        merge(self.gathered, clock)
        self.arrived += 1
        barrier = self.barriers
        if self.arrived == len(self.blocks):
            self.arrived, self.barriers = 0, barrier + 1
            self.published, self.gathered = self.gathered, {}
        return barrier

    def _until_over(self, threads, barrier: int):
        yield ClusterWait(self, barrier)
        merge(threads.known, self.published)


def _check_whole(threads) -> None:
    if not threads.whole:
        raise Unsupported(
            f"the cluster's barrier by {threads.count} of the block's {threads.block.count} threads; it waits for all"
        )


def _check_waited(block: Any) -> None:
    if block.arrived_at is not None:
        raise KernelError("the block arrives at the cluster's barrier again, before it waited")


@dataclass(frozen=True)
class ClusterWait:
    cluster: Cluster
    barrier: int

    def over(self) -> bool:
        return self.cluster.barriers > self.barrier

    def __str__(self) -> str:
        return f"{len(self.cluster.blocks) - self.cluster.arrived} blocks of its cluster, at the cluster's barrier"


# By tilus' names.
BARRIER = {
    "this_cluster.sync": Cluster.sync,
    "cuda_cluster_arrive": Cluster.arrive,
    "cuda_cluster_arrive_relaxed": Cluster.arrive_relaxed,
    "cuda_cluster_wait": Cluster.wait,
}


def address_of(buffer: SharedBuffer, offset: int) -> Pointer:
    """A pointer to element `offset` of the block's own shared tensor."""
    return Pointer(buffer, offset, 0, buffer.data.numel(), buffer.name, buffer.form)


def mapped(pointer: Pointer, rank: int) -> Pointer:
    """The same address in the shared memory of the block with this rank in the cluster."""
    own = pointer.buffer.owner
    return pointer._replace(buffer=PeerMemory(peer_of(own, rank), own.shared.index(pointer.buffer)))


def peer_of(block: Any, rank: int) -> Any:
    """The block of this rank in the block's cluster."""
    if not 0 <= rank < len(block.cluster.blocks):
        raise KernelError(f"rank {rank} is mapped to in a cluster of {len(block.cluster.blocks)} blocks")
    return block.cluster.blocks[rank]


BARRIER_BYTES = 8


def _check_barriers(threads) -> None:
    """Fails where tilus 0.2.0 has barriers in the memory of a tensor: it gives them theirs last of all, of what is free
    by then, though they are valid all along."""
    block = threads.block
    if not block.barriers:
        return
    nbytes = BARRIER_BYTES * len(block.barriers)
    begin = block.addresses.take(nbytes)
    for buffer in block.shared:
        written = any(cell.write is not None for cell in buffer.cells.all)
        if written and buffer.address < begin + nbytes and begin < buffer.address + buffer.nbytes:
            place = threads.launch.describe(buffer.freed_at)
            threads.fail(
                BarrierOverlap(
                    f"{block.barriers[0].name} and the other barriers have the memory of {buffer.name}, freed at "
                    f"{place}, which is written over them: tilus 0.2.0 gives barriers what is free as the Script ends"
                )
            )
            return


def leave(threads) -> None:
    """Ends a block. Fails where a peer may still be reading its shared memory or arriving there, or a copy that an
    mbarrier counts is still writing it."""
    _check_barriers(threads)
    for buffer in threads.block.shared:
        if event := unseen_by(threads, buffer):
            threads.fail(
                Race(
                    f"the block ends, and {buffer.name} is read by block {event.who.block.index} at "
                    f"{threads.launch.describe(event.place)}: no barrier of the cluster lies between"
                )
            )
    for event in (event for barrier in threads.block.barriers for event in barrier.visits.values()):
        if not threads.ordered(event):
            threads.fail(
                Race(
                    f"the block ends, and block {event.who.block.index} arrives at a barrier of it at "
                    f"{threads.launch.describe(event.place)}: nothing says that it has"
                )
            )
    for buffer in threads.block.shared:
        if kind := next((copy.kind for cell in buffer.cells.all for copy in cell.copies if copy.kind), None):
            threads.fail(PendingCopy(f"the block ends while {kind} into {buffer.name} may be under way"))
