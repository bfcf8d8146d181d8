"""Thread blocks, and the groups of their threads that run together."""

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from tilus.hidet.ir.expr import Expr, Var
from tilus.hidet.ir.primitives.vars import lookup_primitive_variable
from tilus.hidet.ir.type import DataType
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor
from torch import Tensor as Tile

from triton_vs_tilus.kernels_tilus.interpreter.cluster import Cluster, leave
from triton_vs_tilus.kernels_tilus.interpreter.dtypes import torch_dtype
from triton_vs_tilus.kernels_tilus.interpreter.errors import (
    KernelError,
    Overflow,
    PendingProduct,
    Uninitialized,
    Unsupported,
)
from triton_vs_tilus.kernels_tilus.interpreter.expressions import UNASSIGNED, Partial, cast
from triton_vs_tilus.kernels_tilus.interpreter.memory import Addresses, Agent, Clock, Pointer, SharedBuffer, merge

WARP = 32  # threads


class Wait(Protocol):
    """A condition that threads wait for."""

    def over(self) -> bool: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Spawn:
    """Yielded in the place of a wait: threads that from now on run beside those that yield it."""

    threads: "Threads"
    steps: "Steps"


Steps = Generator[Wait | Spawn | None, None, None]


@dataclass(frozen=True)
class EndOfGroups:
    """A wait for groups of a block to reach the statement that they do together with its other threads."""

    groups: list["Threads"]

    def over(self) -> bool:
        return all(group.ended for group in self.groups)

    def __str__(self) -> str:
        names = ", ".join(group.name for group in self.groups if not group.ended)
        return f"{names} to come to what all threads do together"


@lru_cache(maxsize=1)
def _built_in() -> tuple[Var, ...]:
    """The variables of every Script, other than blockIdx."""
    names = [f"gridDim.{axis}" for axis in "xyz"]
    names += [f"{name}_{axis}" for name in ("clusterBlockIdx", "clusterDim", "clusterIdx") for axis in "xyz"]
    return tuple(lookup_primitive_variable(name) for name in (*names, "clusterBlockRank", "clusterSize"))


class Return(Exception):
    """Ends a Script."""


class Block:
    """A thread block: what its threads share. index, grid: None for the host's view of a launch."""

    def __init__(
        self, launch: Any, number: int, index: tuple[int, int, int] | None, grid: tuple[int, int, int] | None
    ) -> None:
        self.launch, self.number, self.index = launch, number, index
        self.grid = grid
        self.count = WARP * launch.function.metadata.num_warps
        self.cluster = Cluster()
        self.arrived_at: int | None = None  # the barrier of the cluster that it has still to wait for
        self.ended = False
        self.root: Threads | None = None  # all of its threads, once it runs
        self.shared: list[SharedBuffer] = []
        self.barriers: list[Any] = []
        self.barriers_of: dict[Any, Tile] = {}  # by the instruction that allocates them
        self.groups: dict[tuple[float, int], Threads] = {}
        self.leaving: list[Threads] = []  # groups that end the block's threads that they are
        self.addresses = Addresses()

    def threads(self) -> "Threads":
        """All of them, as the Script begins."""
        threads = self.root = Threads(self, 0, self.count)
        threads.values.update(self.launch.arguments)
        if self.index is not None:
            metadata = self.launch.function.metadata
            threads.values.update(zip(metadata.block_indices, self.index, strict=True))
            extents, rank, size = metadata.cluster_blocks, self.cluster.blocks.index(self), len(self.cluster.blocks)
            inside = [index % extent for index, extent in zip(self.index, extents, strict=True)]
            outside = [index // extent for index, extent in zip(self.index, extents, strict=True)]
            threads.values.update(zip(_built_in(), (*self.grid, *inside, *extents, *outside, rank, size), strict=True))
        return threads

    def run(self, threads: "Threads") -> Steps:
        """All of the Script."""
        try:
            with contextlib.suppress(Return):
                yield from threads.running(self.launch.body)
            threads.children += self.leaving
            yield from threads.join()
            leave(threads)
            self.ended = True
        except KernelError as error:
            raise error.at(threads.where()) from error
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            raise Unsupported(f"{error}, in torch on a CPU").at(threads.where()) from error
        finally:
            threads.values.clear()  # frees the tiles; the block is kept for its index
            self.groups.clear()
            if self.ended:
                for buffer in self.shared:
                    buffer.end()
                self.shared.clear()


class Threads(Agent):
    """A group of threads of a block that do the same.

    values maps a Var to a scalar or pointer, a tensor to its tile or view; a group has its own, as threads have.
    begin: the first thread in the block; of an elected thread, which any of its warp may be, that warp's and a half, so
    that it is a part of the warp, and no other thread for sure.
    """

    def __init__(self, block: Block, begin: float, count: int) -> None:
        super().__init__(block.launch, block, single=count == 1)
        self.begin, self.count = begin, count
        self.whole = count == block.count
        self.values: dict[Any, Any] = {}
        self.assigned: set[Any] = set()  # of values, since the group came apart from the threads around it
        self.children: list[Threads] = []  # that run beside it
        self.assigns: set[Any] = set()  # of variables and tensors, what its statements may assign, where it does
        self.ended = False
        self.side: Any = None  # whose part of a Partial a reduction over all threads reads
        self.polled = False
        # Copies by the thread (cp.async), TMA stores, and wgmmas: those of no group yet, and the groups.
        self.open_copies: list[Any] = []
        self.copy_groups: list[list[Any]] = []
        self.open_stores: list[Any] = []
        self.store_groups: list[list[Any]] = []
        self.open_products: list[Any] = []
        self.product_groups: list[list[Any]] = []
        self.summing: set[RegisterTensor] = set()  # accumulators of wgmmas under way
        self.multiplied: set[RegisterTensor] = set()  # operands of these in registers
        self.registers_before_fence: set[RegisterTensor] = set()  # written since the last wgmma.fence

    @property
    def name(self) -> str:
        if self.begin % 1:
            return f"a thread of warp {int(self.begin) // WARP}"
        return f"threads {self.begin} to {self.begin + self.count - 1}"

    def where(self) -> str:
        group = "" if self.whole else f", {self.name}"
        return f"in block {self.block.index}{group}, {self.launch.describe(self.place)}"

    # Groups

    def group(self, begin: int, count: int) -> "Threads":
        """The group of `count` threads from `begin` of this one on; from -1 on: of any that the hardware elects."""
        if count == self.count:
            return self
        if begin >= 0:
            first: float = self.begin + begin
        elif count > 1 and count % WARP == 0:
            raise Unsupported(
                f"any {count} of {self.count} threads: tilus 0.2.0 compares each warp with itself, and elects all"
            )
        else:  # tilus takes the first warp's, for which the hardware elects the same thread each time
            first = self.begin + (0.5 if self.count % WARP == 0 and count == 1 else 0)
        groups = self.block.groups
        if (first, count) not in groups:
            groups[first, count] = Threads(self.block, first, count)
        return groups[first, count]

    def contains(self, other: "Threads") -> bool:
        return self.begin <= other.begin and other.begin + other.count <= self.begin + self.count

    def overlaps(self, other: Agent) -> bool:
        if not isinstance(other, Threads):
            return False
        return self.begin < other.begin + other.count and other.begin < self.begin + self.count

    def depart(self, group: "Threads") -> None:
        """The group begins to do what the others do not."""
        group.values = dict(self.values)
        group.registers_before_fence = set(self.registers_before_fence)
        group.ended = False
        merge(group.known, self.known)
        for other in self.block.groups.values():
            if other is not group and other.contains(group):
                merge(group.known, other.known)

    def rejoin(self, group: "Threads") -> None:
        """The group does again what the others do: what it has assigned, it has alone."""
        own = group.begin, group.count
        for key in group.assigned:
            before, value = self.values.get(key, UNASSIGNED), group.values.get(key, UNASSIGNED)
            partial = before if before.__class__ is Partial else Partial({}, before)
            if value.__class__ is Partial:
                parts = value.parts
                partial = partial.assigned(own, value.outside)
                for part, held in parts.items():
                    partial = partial.assigned(part, held)
            else:
                partial = partial.assigned(own, value)
            self.values[key] = partial
        for key, value in group.values.items():  # tensors in memory are the block's
            if key.__class__ in (SharedTensor, GlobalTensor) and key not in self.values:
                self.values[key] = value
        if not self.whole:
            self.assigned |= group.assigned
        group.assigned.clear()
        group.values = {}
        group.ended = True

    def shrink(self, count: int) -> None:
        """All threads of the block are its first `count` from here on, and sync alone. Groups of others go on beside
        them, and end."""
        if any(group.begin < count for group in self.children):
            raise Unsupported(f"the first {count} threads alone, while a part of them is at work")
        self.block.leaving += self.children
        self.children = []
        self.count = count

    def join(self) -> Steps:
        """Waits for the groups that run beside these threads."""
        if self.children:
            groups = self.children
            wait = EndOfGroups(groups)
            if not wait.over():
                yield wait
            self.children = []

    def running(self, code: "Code") -> Steps:
        waits, run = code
        if waits:
            yield from run(self)
        else:
            run(self)

    def spawned(self, group: "Threads", code: "Code") -> Steps:
        """The steps of a group that runs beside these threads."""
        try:
            yield from group.running(code)
            yield from group.join()
        except KernelError as error:
            raise error.at(group.where()) from error
        except Return:
            raise Unsupported("a return by a part of the threads").at(group.where()) from None
        self.rejoin(group)

    # Values

    def value(self, expr: Expr | int | float) -> Any:
        return self.launch.compile(expr)(self) if isinstance(expr, Expr) else expr

    def tile(self, tensor: RegisterTensor) -> Tile:
        tile = self.values.get(tensor)
        if tile is None:
            raise Uninitialized("a register tensor is read before it is assigned")
        if tile.__class__ is Partial:
            tile = tile.read(self, "a register tensor")
        if self.summing and tensor in self.summing:
            self.fail(PendingProduct("an accumulator is read while a wgmma into it may be under way"))
        return tile

    def set_tile(self, tensor: RegisterTensor, tile: Tile) -> None:
        """tile: of the tensor's dtype and shape."""
        if self.summing and tensor in self.summing:
            self.fail(PendingProduct("an accumulator is written while a wgmma into it may be under way"))
        if self.multiplied and tensor in self.multiplied:
            self.fail(PendingProduct("an operand in registers is written while a wgmma that reads it may be under way"))
        self.registers_before_fence.add(tensor)
        self.values[tensor] = tile
        if not self.whole:
            self.assigned.add(tensor)

    def assign(self, var: Var, value: Any) -> None:
        """value: as `converter` has it."""
        self.values[var] = value
        if not self.whole:
            self.assigned.add(var)

    # Order

    def sync(self) -> None:
        for other in self.block.groups.values():
            if other is not self and self.contains(other):
                merge(self.known, other.known)
                self.known[other.number], self.known[~other.number] = other.epoch, other.atomics
                other.epoch += 1
        self.known[self.number], self.known[~self.number] = self.epoch, self.atomics
        self.epoch += 1

    def published(self) -> Clock:
        """What a release by one thread publishes: all that it knows, and what it has done itself."""
        clock = dict(self.known)
        if self.single:
            clock[self.number] = self.epoch
            self.epoch += 1
        clock[~self.number] = self.atomics
        return clock

    def published_by_all(self) -> Clock:
        """What a release by every thread publishes, once all have come."""
        clock = dict(self.known)
        for other in {self, *self.block.groups.values()}:
            if self.contains(other):
                merge(clock, other.known)
                clock[other.number], clock[~other.number] = other.epoch, other.atomics
                other.epoch += 1
        return clock


Code = tuple[bool, Callable[[Threads], Any]]  # whether it yields, and what it does


@lru_cache(maxsize=4096)
def converter(var: Var) -> Callable[[Any], Any]:
    """What turns a value into the one that the variable holds. Raises Overflow for a signed integer out of range."""
    to = var.type
    if not isinstance(to, DataType):
        return lambda value: value

    low, high = (int(to.min_value), int(to.max_value)) if to.is_integer() and to.name != "bool" else (1, 0)

    def convert(value: Any) -> Any:
        if value.__class__ is int:
            if low <= value <= high:
                return value
            if low < 0:
                raise Overflow(f"{value} does not fit {var.hint}: {to.name}")
        return value if value is None or isinstance(value, Pointer) else cast(value, to)

    return convert


def poison(dtype: DataType) -> float | int:
    """What memory and registers hold that nothing has written."""
    return float("nan") if torch_dtype(dtype).is_floating_point else 0
