"""Global and shared memory, and the checks that something orders two accesses to one element.

Who accesses memory is an `Agent`: the threads of a group, or a unit that works for them, such as TMA. An access carries
its agent and that agent's epoch, a number that grows with every sync and release. An agent knows up to which epoch the
accesses of the others come before its own: a sync, a release met by an acquire, or a barrier tells it. An access meets
another of the same element, one of them a write, that its agent does not know of: nothing orders the two.

What is recorded of an element is the same for all elements that every access so far has touched together: a `Cell`.
A buffer begins as one cell; an access to a part of a cell splits it. So a pipeline of tiles costs a look-up a tile.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from triton_vs_tilus.kernels_tilus.interpreter.dtypes import Form
from triton_vs_tilus.kernels_tilus.interpreter.errors import (
    Divergent,
    KernelError,
    MissingFence,
    MissingSync,
    OutOfBounds,
    PendingCopy,
    PendingProduct,
    Race,
    Uninitialized,
    Unsupported,
    UseAfterFree,
)

# What an agent knows of the others: the accesses of agent a up to epoch clock[a], and its first clock[~a] atomics. One
# thread does these in order, so that they need no sync.
Clock = dict[int, int]


NOTHING = -1  # of an agent that is known to have started: no event of any epoch


def merge(into: Clock, other: Clock) -> None:
    """Adds to `into` what `other` knows."""
    for agent, epoch in other.items():
        if agent not in into or epoch > into[agent]:
            into[agent] = epoch


class Agent:
    """What accesses memory. single: one thread, or a unit whose accesses keep their order."""

    def __init__(self, launch: Any, block: Any, single: bool) -> None:
        self.launch, self.block, self.single = launch, block, single
        self.number = launch.next_agent()
        self.epoch, self.atomics = 0, 0
        self.known: Clock = {}
        self.place: Any = None

    def ordered(self, event: "Event") -> bool:
        """Whether the event comes before what the agent does now."""
        who = event.who
        if who is self and self.single:
            return True
        return self.known.get(who.number, NOTHING) >= event.epoch

    def now(self) -> "Event":
        return Event(self, self.epoch, self.place)

    def fail(self, error: KernelError) -> None:
        """Raises the error, or warns of it, where the launch has its check made a warning."""
        self.launch.fail(self, error)


class Event(NamedTuple):
    """An access: who, in which of its epochs, and the instruction or statement. several: more than one thread of `who`
    accesses each element."""

    who: Agent
    epoch: int
    place: Any
    several: bool = False


class Cell:
    """Elements of a buffer that every access has touched together.

    write     the last one
    reads     since then, by agent the last
    adds      since then: atomic adds of tiles
    copies    under way into it
    readers   wgmmas and TMA stores under way that read it
    generic   the last write by threads that no proxy fence has followed
    """

    __slots__ = ("adds", "copies", "generic", "lists", "number", "readers", "reads", "size", "write")

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.write: Event | None = None
        self.reads: dict[Agent, Event] = {}
        self.adds: dict[Agent, Event] = {}
        self.copies: set[Any] = set()
        self.readers: set[Any] = set()
        self.generic: Event | None = None
        self.lists: list[list[Cell]] = []  # of the cells of a view; all that hold this one

    def split(self, number: int, size: int) -> "Cell":
        """Takes `size` elements out, as a cell of its own with the same state."""
        part = Cell(number, size)
        part.write, part.generic = self.write, self.generic
        part.reads, part.adds = dict(self.reads), dict(self.adds)
        part.copies, part.readers = set(self.copies), set(self.readers)
        part.lists = list(self.lists)
        for cells in part.lists:
            cells.append(part)
        self.size -= size
        return part


class Cells:
    """The partition of `size` units of memory. like: one that the same accesses were met by, of another block, whose
    parts this one has from the start."""

    def __init__(self, size: int, like: "Cells | None" = None) -> None:
        self._of: dict[Any, list[Cell]] = {}
        self._parts: dict[Any, list[int]] = {}  # by view, the numbers of its cells, as long as it is not in `_of`
        if like is None:
            self.all = [Cell(0, size)]
            self.labels = np.zeros(size, dtype=np.int32)
        else:
            self.all = [Cell(cell.number, cell.size) for cell in like.all]
            self.labels = like.labels
            like._shared_labels = True
            self._parts = {**like._parts, **{key: [c.number for c in cells] for key, cells in like._of.items()}}
        self._shared_labels = like is not None

    def of(self, key: Any, units: Callable[[], np.ndarray]) -> list[Cell]:
        """The cells that a view covers; `key` names it, `units` gives its elements, each once."""
        found = self._of.get(key)
        if found is None:
            found = self._known(key) if key in self._parts else self._covered(units())
            self._of[key] = found
        return found

    def _known(self, key: Any) -> list[Cell]:
        cells = [self.all[number] for number in self._parts.pop(key)]
        for cell in cells:
            cell.lists.append(cells)
        return cells

    def _covered(self, units: np.ndarray) -> list[Cell]:
        labels = self.labels[units]
        covered: list[Cell] = []
        counts = np.bincount(labels)
        for label in counts.nonzero()[0].tolist():
            cell, count = self.all[label], int(counts[label])
            if count < cell.size:
                self._own()
                cell = cell.split(len(self.all), count)
                self.all.append(cell)
                self.labels[units if count == units.size else units[labels == label]] = cell.number
            covered.append(cell)
        for cell in covered:
            cell.lists.append(covered)
        return covered

    def _own(self) -> None:
        """Before a split, of which each view has to know."""
        for key in list(self._parts):
            self._of[key] = self._known(key)
        if self._shared_labels:
            self.labels, self._shared_labels = self.labels.copy(), False

    def refine(self, factor: int) -> None:
        """Makes each unit `factor` units."""
        self.labels = np.repeat(self.labels, factor)
        self._of.clear()
        for cell in self.all:
            cell.size *= factor
            cell.lists.clear()


def box(offset: int, sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """The elements of a strided box, in its shape."""
    index = np.array(offset, dtype=np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        index = index[..., None] + np.arange(size) * stride
    return index


def once(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a strided box has each of its elements once, for sure."""
    span = 0
    for stride, size in sorted(zip(map(abs, strides), sizes, strict=True)):
        if size > 1:
            if stride <= span:
                return False
            span += (size - 1) * stride
    return True


class Buffer:
    """One allocation of global memory."""

    def __init__(self, name: str, memory: Tensor, form: Form, uninitialized: bool = False) -> None:
        self.name, self.form = name, form
        self.uninitialized = uninitialized  # what nothing has written in this launch
        self._typed = {memory.dtype: memory}
        self._unit = form.nbits if form.stored is not None else 8  # bits
        self._units = memory.numel() * memory.itemsize * 8 // self._unit
        # Until something writes, reads need not be told apart: by view its region, and by agent its last read.
        self.recorded: dict[Any, tuple[Region, dict[Agent, Event]]] | None = None if uninitialized else {}
        self.released: dict[int, Clock] = {}  # by bit: what the last release there published
        self.atomics: dict[int, dict[Agent, Event]] = {}  # by bit and agent: its last atomic there
        self.atomic_writes: dict[int, dict[Agent, Event]] = {}  # the last of these that wrote
        self.left: dict[int, Event] = {}  # by bit: the last atomic there that wrote

    def typed(self, dtype: torch.dtype) -> Tensor:
        """All of it, flat, in another dtype."""
        if dtype not in self._typed:
            storage = next(iter(self._typed.values())).untyped_storage()
            elements = storage.nbytes() // dtype.itemsize
            self._typed[dtype] = torch.empty(0, dtype=dtype).set_(storage, 0, (elements,), (1,))
        return self._typed[dtype]

    @cached_property
    def cells(self) -> Cells:
        return Cells(self._units)

    def cells_of(self, region: "Region") -> list[Cell]:
        def units() -> np.ndarray:
            bits = region.elements().ravel() * nbits
            first, count = bits // self._unit, max(1, nbits // self._unit)
            if nbits % 8:
                return np.unique(np.concatenate([first, (bits + nbits - 1) // self._unit]))
            found = (first[:, None] + np.arange(count)).ravel() if count > 1 else first
            return found if region.flat is None and once(region.sizes, region.strides) else np.unique(found)

        nbits = region.form.nbits
        if nbits < self._unit:
            smaller = nbits if nbits % 8 == 0 else 8
            if smaller < self._unit:
                self.cells.refine(self._unit // smaller)
                self._unit = smaller
        return self.cells.of(region.key, units)

    def written(self) -> None:
        """From now on reads and writes are told apart."""
        if self.recorded is not None:
            recorded, self.recorded = self.recorded, None
            for region, reads in recorded.values():
                for cell in self.cells_of(region):
                    cell.reads.update(reads)

    def read(self, region: "Region") -> Tensor:
        """The tile there; a copy."""
        form = region.form
        if form.stored is None:
            data = self.typed(torch.uint8)
            bits = torch.from_numpy(region.elements() * form.nbits)
            low = bits >> 3
            word = data[low].to(torch.int64) | data[((bits + form.nbits - 1) >> 3)].to(torch.int64) << 8
            return form.values(word >> (bits & 7) & ((1 << form.nbits) - 1))
        return form.from_memory(region.of(self.typed(form.stored)))

    def write(self, region: "Region", tile: Tensor) -> None:
        form = region.form
        if form.stored is not None:
            region.put(self.typed(form.stored), form.to_memory(tile))
            return
        elements = region.elements()
        values = form.bits(tile.expand(elements.shape)).numpy()
        places = elements[..., None] * form.nbits + np.arange(form.nbits)
        first, last = int(places.min()) // 8, int(places.max()) // 8
        data = self.typed(torch.uint8).numpy()[first : last + 1]
        bits = np.unpackbits(data, bitorder="little")
        bits[places - 8 * first] = values[..., None] >> np.arange(form.nbits) & 1
        data[:] = np.packbits(bits, bitorder="little")


class Pointer(NamedTuple):
    """An element of a buffer, and the bounds of its tensor; `valid` says which elements a tensor with gaps has."""

    buffer: Any
    offset: int
    low: int
    high: int
    name: str
    form: Form
    valid: Tensor | None = None

    def __add__(self, elements: int) -> "Pointer":
        return self._replace(offset=self.offset + elements)

    def __sub__(self, elements: int) -> "Pointer":
        return self._replace(offset=self.offset - elements)

    def __index__(self) -> int:
        """A made-up address, for what prints one."""
        return getattr(self.buffer, "address", 0) + self.offset * self.form.nbits // 8

    def viewed(self, form: Form) -> "Pointer":
        """The same address, as of elements of another type."""
        own, other = self.form.nbits, form.nbits
        if own == other or self.buffer is None:
            return self._replace(form=form)
        if self.offset * own % other:
            raise KernelError(f"{self.name} + {self.offset} elements of {own} bits is no multiple of {other} bits")
        valid = self.valid
        if valid is not None:
            if own % other:
                raise Unsupported(f"a view of {self.name}, which has gaps, as {form.name}")
            valid = valid.repeat_interleave(own // other)
        low, high = -(-self.low * own // other), self.high * own // other
        return Pointer(self.buffer, self.offset * own // other, low, high, self.name, form, valid)

    @property
    def bit(self) -> int:
        return self.offset * self.form.nbits


class Region:
    """Elements that one instruction accesses, for a tile of `shape`.

    Either a box: from `offset` on `sizes` elements, `strides` apart; or the elements `flat`. Where only a part of the
    tile is within bounds, the box is that part, the tile[window]; the elements are those where `mask` holds.
    """

    __slots__ = ("_index", "flat", "form", "key", "mask", "offset", "pointer", "shape", "sizes", "strides", "window")

    def __init__(
        self,
        pointer: Pointer,
        shape: tuple[int, ...],
        offset: int = 0,
        sizes: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        window: tuple[slice, ...] | None = None,
        flat: Tensor | None = None,
        mask: Tensor | None = None,
        index: tuple[list[int], tuple[int, ...]] | None = None,
    ) -> None:
        """index: of the tile's first element in its tensor, and the dimension along which each of the box runs."""
        self.pointer, self.form, self.shape, self._index = pointer, pointer.form, shape, index
        self.offset, self.sizes, self.strides, self.window = offset, sizes, strides, window
        self.flat, self.mask = flat, mask
        if flat is None:
            self.key: Any = (pointer.form.nbits, offset, sizes, strides)
        else:
            self.key = (pointer.form.nbits, flat.numpy().tobytes())

    @property
    def empty(self) -> bool:
        return 0 in self.sizes if self.flat is None else not self.flat.numel()

    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest element."""
        if self.flat is not None:
            low, high = self.flat.aminmax()
            return int(low), int(high)
        low = high = self.offset
        for size, stride in zip(self.sizes, self.strides, strict=True):
            if stride >= 0:
                high += (size - 1) * stride
            else:
                low += (size - 1) * stride
        return low, high

    def elements(self) -> np.ndarray:
        if self.flat is not None:
            return self.flat.numpy()
        return box(self.offset, self.sizes, self.strides)

    def of(self, data: Tensor) -> Tensor:
        return data[self.flat] if self.flat is not None else data.as_strided(self.sizes, self.strides, self.offset)

    def put(self, data: Tensor, values: Tensor) -> None:
        if self.flat is not None:
            data[self.flat] = values
        else:
            data.as_strided(self.sizes, self.strides, self.offset).copy_(values)

    def filled(self, values: Tensor) -> Tensor:
        """The tile that has these values, and zeros elsewhere."""
        if self.window is None and self.mask is None:
            return values
        tile = torch.zeros(self.shape, dtype=values.dtype)
        if self.mask is None:
            tile[self.window] = values
        else:
            tile[self.mask] = values
        return tile

    def chosen(self, tile: Tensor) -> Tensor:
        """Of a tile the elements that the region has."""
        if self.mask is not None:
            return tile[self.mask]
        return tile if self.window is None else tile[self.window]

    def name_of(self, position: int) -> str:
        """Of the element at this position of `elements()`, flattened."""
        if self._index is None:
            return element_name(self.pointer, int(self.elements().flat[position]))
        index, dims = list(self._index[0]), self._index[1]
        if self.flat is not None:
            at = np.argwhere(np.ones(self.shape, dtype=bool) if self.mask is None else self.mask.numpy())[position]
        else:
            at = np.unravel_index(position, self.sizes)
        for dim, along in zip(dims, at, strict=True):
            index[dim] += int(along)
        return f"{self.pointer.name}{index}"


def scalar_region(pointer: Pointer) -> Region:
    return Region(pointer, (), pointer.offset)


def element_name(pointer: Pointer, element: int) -> str:
    if isinstance(pointer.buffer, SharedBuffer):
        return pointer.buffer.name_of(element)
    return f"{pointer.name}[{element - pointer.low}]"


# Global memory: tiles


def _checked(agent: Agent, region: Region) -> Buffer:
    pointer = region.pointer
    if pointer.buffer is None:
        raise OutOfBounds(f"{region.name_of(0)} is accessed, and no tensor was given for {pointer.name}")
    low, high = region.bounds()
    if low < pointer.low or high >= pointer.high or pointer.valid is not None:
        flat = region.elements().ravel()
        outside = (flat < pointer.low) | (flat >= pointer.high)
        elements = pointer.high - pointer.low
        if pointer.valid is not None and elements:
            outside |= ~pointer.valid.numpy()[(flat - pointer.low).clip(0, elements - 1)]
        if outside.any():
            position = int(outside.argmax())
            raise OutOfBounds(
                f"{region.name_of(position)} is outside of its tensor: "
                f"element {int(flat[position]) - pointer.low} of memory that holds {elements}"
            )
    return pointer.buffer.held(agent, pointer.name) if pointer.buffer.__class__ is PeerMemory else pointer.buffer


def load(agent: Agent, region: Region, by: Event | None = None) -> Tensor:
    """The tile; what is out of bounds is zero. by: the access that is recorded, where it is not the agent's now."""
    if region.empty:
        return torch.zeros(region.shape, dtype=region.form.tile)
    buffer = _checked(agent, region)
    if buffer.__class__ is SharedBuffer:
        return buffer.read_at(agent, region)
    event = by or Event(agent, agent.epoch, agent.place)
    if buffer.recorded is not None:
        found = buffer.recorded.get(region.key)
        if found is None:
            found = buffer.recorded[region.key] = region, {}
        found[1][event.who] = event
    else:
        for cell in buffer.cells_of(region):
            if cell.write is None:
                if buffer.uninitialized and not cell.adds:
                    name = _first(region, cell)
                    agent.fail(Uninitialized(f"{name} is read, and nothing has written it"))
            elif not agent.ordered(cell.write):
                _race(agent, cell.write, region, cell, "reads", "wrote")
            if cell.adds:
                _after(agent, cell.adds, region, cell, "reads", "adds to")
            cell.reads[event.who] = event
    _after_atomics(agent, region, "reads", buffer.atomic_writes)
    return region.filled(buffer.read(region))


def store(agent: Agent, region: Region, tile: Tensor, by: Event | None = None) -> None:
    """by: as in `load`."""
    if region.empty:
        return
    buffer = _checked(agent, region)
    if buffer.__class__ is SharedBuffer:
        raise Unsupported("a store through a pointer into shared memory")
    buffer.written()
    event = by or Event(agent, agent.epoch, agent.place)
    for cell in buffer.cells_of(region):
        if cell.write is not None and not agent.ordered(cell.write):
            _race(agent, cell.write, region, cell, "writes", "wrote")
        _after(agent, cell.reads, region, cell, "writes", "reads")
        if cell.adds:
            _after(agent, cell.adds, region, cell, "writes", "adds to")
            cell.adds = {}
        cell.write = event
        cell.reads = {}
    _after_atomics(agent, region, "writes", buffer.atomics)
    buffer.write(region, region.chosen(tile.expand(region.shape)))
    agent.launch.version += 1
    if buffer.released:
        for bit in set((region.elements().ravel() * region.form.nbits).tolist()) & buffer.released.keys():
            del buffer.released[bit]


def add(agent: Agent, region: Region, tile: Tensor) -> None:
    """A relaxed atomic add: adds need no order among each other, but one with reads and writes."""
    if region.empty:
        return
    buffer = _checked(agent, region)
    buffer.written()
    for cell in buffer.cells_of(region):
        if cell.write is not None and not agent.ordered(cell.write):
            _race(agent, cell.write, region, cell, "adds to", "wrote")
        _after(agent, cell.reads, region, cell, "adds to", "reads")
        cell.adds[agent] = agent.now()
    data = buffer.typed(region.form.stored)
    values = region.form.to_memory(region.chosen(tile.expand(region.shape)))
    data.index_put_((torch.from_numpy(region.elements()),), values, accumulate=True)
    agent.launch.version += 1


def _first(region: Region, cell: Cell) -> str:
    """The name of the first element of the region that lies in the cell."""
    buffer = region.pointer.buffer
    units = region.elements().ravel() * region.form.nbits // buffer._unit
    return region.name_of(int((buffer.cells.labels[units] == cell.number).argmax()))


def _after(agent: Agent, events: dict[Agent, Event], region: Region, cell: Cell, does: str, did: str) -> None:
    for event in events.values():
        # A write over a group's own read is taken for one by the same thread, where one thread alone has read.
        own = did == "reads" and not event.several and _related(agent, event.who)
        if not agent.ordered(event) and not own:
            _race(agent, event, region, cell, does, did)


def _related(agent: Agent, other: Agent) -> bool:
    return agent is other or (agent.block is other.block and agent.overlaps(other))


def _race(agent: Agent, event: Event, region: Region, cell: Cell, does: str, did: str) -> None:
    own = event.who.block is agent.block
    reason = (
        "no sync lies between, and threads may hold different elements there and here"
        if own
        else "no release after a sync there, met by an acquire here, orders the two"
    )
    other = "it" if own else f"block {event.who.block.index}"
    place = agent.launch.describe(event.place)
    agent.fail(Race(f"{does} {_first(region, cell)}, which {other} {did} at {place}: {reason}"))


def _after_atomics(agent: Agent, region: Region, does: str, atomics: dict[int, dict[Agent, Event]]) -> None:
    if not atomics:
        return
    for position, bit in enumerate((region.elements().ravel() * region.form.nbits).tolist()):
        for event in atomics.get(bit, {}).values():
            if event.who is not agent and agent.known.get(~event.who.number, NOTHING) < event.epoch:
                own = event.who.block is agent.block
                other = "a part of the block's threads" if own else f"block {event.who.block.index}"
                reason = "no sync lies between" if own else "nothing orders the two"
                agent.fail(
                    Race(
                        f"{does} {region.name_of(position)} plainly, which {other} accesses atomically at "
                        f"{agent.launch.describe(event.place)}: {reason}"
                    )
                )


def wait_for_kernel_before(agent: Agent, pointer: Pointer) -> Pointer:
    """The pointer to what the kernel before writes, which this block must not have accessed until here."""
    buffer = pointer.buffer
    if buffer.recorded is not None:
        events = [event for _, reads in buffer.recorded.values() for event in reads.values()]
    else:
        events = [event for cell in buffer.cells.all for event in (*cell.reads.values(), cell.write) if event]
    for event in events:
        if event.who.block is agent.block:
            place = agent.launch.describe(event.place)
            agent.fail(Race(f"accesses {pointer.name} at {place}, before the wait for the kernel that writes it"))
    return pointer


# Global memory: scalars


def load_scalar(threads: Any, pointer: Pointer, order: str | None = None) -> int | float:
    """A load by every active thread. order: None for a plain load, 'relaxed' or 'acquire'."""
    if order is None:
        return load(threads, scalar_region(pointer)).item()
    buffer = _atomic_access(threads, pointer, writes=False)
    threads.polled = True
    if order == "acquire":
        merge(threads.known, buffer.released.get(pointer.bit, {}))
    return buffer.read(scalar_region(pointer)).item()


def store_scalar(threads: Any, pointer: Pointer, value: int | float, order: str | None = None) -> None:
    """A store of one value by every active thread. order: None for a plain store, 'relaxed' or 'release'."""
    region = scalar_region(pointer)
    tile = torch.tensor(value, dtype=pointer.form.tile)
    if order is None:
        store(threads, region, tile)
        return
    buffer = _atomic_access(threads, pointer, writes=True)
    buffer.released.pop(pointer.bit, None)
    if order == "release":
        buffer.released[pointer.bit] = threads.published()
    buffer.write(region, tile)
    threads.launch.version += 1


def read_modify_write(threads: Any, pointer: Pointer, combine: Callable, order: str) -> int | float:
    """The old value. The element keeps what earlier releases have published."""
    if not threads.single:
        raise Divergent(f"an atomic by all {threads.count} threads; do it in `with self.single_thread():`")
    buffer = _atomic_access(threads, pointer, writes=True)
    region = scalar_region(pointer)
    old = buffer.read(region).item()
    if order in ("acquire", "acq_rel"):
        merge(threads.known, buffer.released.get(pointer.bit, {}))
    if order in ("release", "acq_rel"):
        merge(buffer.released.setdefault(pointer.bit, {}), threads.published())
    buffer.write(region, torch.tensor(combine(old), dtype=pointer.form.tile))
    threads.launch.version += 1
    return old


def _atomic_access(threads: Any, pointer: Pointer, writes: bool) -> Buffer:
    region = scalar_region(pointer)
    buffer = _checked(threads, region)
    if buffer.__class__ is SharedBuffer:
        raise Unsupported("an atomic on shared memory")
    buffer.written()
    for cell in buffer.cells_of(region):
        if cell.write is not None and not threads.ordered(cell.write):
            _race(threads, cell.write, region, cell, "accesses atomically", "wrote")
        if writes:
            _after(threads, cell.reads, region, cell, "writes", "reads")
        elif buffer.uninitialized and cell.write is None and not buffer.atomics.get(pointer.bit):
            threads.fail(Uninitialized(f"{region.name_of(0)} is read, and nothing has written it"))
    threads.atomics += 1
    event = Event(threads, threads.atomics, threads.place)
    buffer.atomics.setdefault(pointer.bit, {})[threads] = event
    if writes:
        buffer.atomic_writes.setdefault(pointer.bit, {})[threads] = event
        buffer.left[pointer.bit] = event
    return buffer


# Shared memory


class Addresses:
    """Shared memory handed out as tilus 0.2.0 does: of what is free the lowest that is large enough."""

    ALIGNMENT = 128  # bytes

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = [(0, 1 << 62)]

    def take(self, nbytes: int) -> int:
        nbytes = -(-nbytes // self.ALIGNMENT) * self.ALIGNMENT
        place = next(i for i, (begin, end) in enumerate(self._free) if begin + nbytes <= end)
        begin, end = self._free[place]
        self._free[place : place + 1] = [(begin + nbytes, end)] if begin + nbytes < end else []
        return begin

    def give_back(self, begin: int, nbytes: int) -> None:
        end = begin + -(-nbytes // self.ALIGNMENT) * self.ALIGNMENT
        joined: list[tuple[int, int]] = []
        for first, last in sorted([*self._free, (begin, end)]):
            if joined and joined[-1][1] == first:
                joined[-1] = joined[-1][0], last
            else:
                joined.append((first, last))
        self._free = joined


class SharedBuffer:
    """One shared tensor of one block."""

    recorded = None

    def __init__(self, block: Any, name: str, shape: tuple[int, ...], form: Form, like: Cells | None = None) -> None:
        """like: see `Cells`."""
        poison = float("nan") if form.tile.is_floating_point else 0
        self.owner, self.name, self.form = block, name, form
        self.data = torch.full(shape, poison, dtype=form.tile)
        self.cells = Cells(self.data.numel(), like)
        self.freed_at: Any = None
        self.nbytes = -(-self.data.numel() * form.nbits // 8)
        self.address = block.addresses.take(self.nbytes)
        # Freed tensors whose memory it may have, as long as something may still be under way there.
        self.over = [old for old in block.shared if old.freed_at is not None]
        self.generic = False  # whether a cell has one
        self.peers: dict[Agent, Event] = {}  # by agent of another block, its last read of any element
        self.tiles: dict[Any, SharedTile] = {}
        self.atomics: dict = {}
        block.shared.append(self)

    def free(self, agent: Agent) -> None:
        """What is under way there matters where other memory takes its place."""
        self.check_alive(agent)
        self.freed_at = agent.place
        self.owner.addresses.give_back(self.address, self.nbytes)

    def end(self) -> None:
        """Lets go of its data, as the block ends."""
        self.tiles.clear()
        self.data = self.data[:0]

    def tile(self) -> "SharedTile":
        return self.tile_of(self.data)

    def tile_of(self, data: Tensor) -> "SharedTile":
        """The tile of a view of the data."""
        return SharedTile(self, data, self._cells_at(data.storage_offset(), tuple(data.shape), data.stride()))

    def _cells_at(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[Cell]:
        key = offset, *sorted(zip(strides, shape, strict=True))

        return self.cells.of(key, lambda: box(offset, shape, strides).ravel())

    def name_of(self, element: int) -> str:
        index = []
        for stride in self.data.stride():
            index.append(element // stride)
            element %= stride
        return f"{self.name}{index}"

    def first(self, cell: Cell, data: Tensor | None = None) -> str:
        """The name of the first element of a view, or of all, that lies in the cell."""
        labels = self.cells.labels
        if data is not None:
            units = box(data.storage_offset(), data.shape, data.stride()).ravel()
            return self.name_of(int(units[(labels[units] == cell.number).argmax()]))
        return self.name_of(int((labels == cell.number).argmax()))

    def check_alive(self, agent: Agent, what: str = "is used") -> None:
        if self.freed_at is not None:
            place = agent.launch.describe(self.freed_at)
            raise UseAfterFree(f"{self.name} {what}, and was freed at {place}")

    def hazards(self, agent: Agent) -> Iterator[KernelError]:
        """What may still be under way in its memory, as another tensor takes it: errors without the other's name."""
        freed = f"memory that {self.name} had, freed at {agent.launch.describe(self.freed_at)}"
        for cell in self.cells.all:
            if cell.copies:
                yield PendingCopy(f"{freed} while a copy into it may be under way")
            if cell.readers:
                yield PendingProduct(
                    f"{freed} while {min(r.kind for r in cell.readers)} that reads it may be under way"
                )
            if cell.write is not None and not agent.ordered(cell.write):
                yield MissingSync(f"{freed}: is written over another write, with no sync between")
            if any(not agent.ordered(event) for event in cell.reads.values()):
                yield MissingSync(f"{freed}: is written over a read, with no sync between")

    # Through a pointer, maybe by a peer

    def read_at(self, agent: Agent, region: Region) -> Tensor:
        name = self.name if agent.block is self.owner else f"{self.name} of block {self.owner.index}"
        if self.owner.ended:
            raise UseAfterFree(f"{name} is read, and that block has ended")
        self.check_alive(agent, "is read")
        if region.form is not self.form:
            raise Unsupported(f"{name} holds {self.form.name} and is read as {region.form.name} through a pointer")
        for cell in self.cells.of(("pointer", region.key), lambda: region.elements().ravel()):
            if cell.copies:
                agent.fail(PendingCopy(f"{name} is read while a copy into it may be under way"))
            if cell.write is None:
                agent.fail(Uninitialized(f"{name} is read, and nothing has written it"))
            elif not agent.ordered(cell.write):
                if self.owner is agent.block:
                    agent.fail(MissingSync(f"{name} is read, and no sync lies between that and its write"))
                else:
                    agent.fail(Race(f"reads {name}, and no barrier of the cluster lies between that and its write"))
            cell.reads[agent] = agent.now()
        if agent.block is not self.owner:
            self.peers[agent] = agent.now()
        return region.filled(region.of(self.data.view(-1)).clone())


def check_started(agent: Agent, peer: Any) -> None:
    """Fails where nothing says that a block of the cluster, whose shared memory is used, has started."""
    if peer is not agent.block and (peer.root is None or peer.root.number not in agent.known):
        agent.fail(
            Race(
                f"the shared memory of block {peer.index} is used, which may not have started: no barrier of the "
                "cluster lies before"
            )
        )


class PeerMemory(NamedTuple):
    """The shared tensor at the same place in the memory of another block of the cluster, once it has one there."""

    block: Any
    place: int

    @property
    def address(self) -> int:
        return (self.block.cluster.blocks.index(self.block) + 1 << 24) + self.place * 1024

    def held(self, agent: Agent, name: str) -> SharedBuffer:
        if self.block.ended or len(self.block.shared) <= self.place:
            state = "has ended" if self.block.ended else "has not allocated it"
            raise UseAfterFree(f"{name} is accessed in block {self.block.index}, which {state}")
        check_started(agent, self.block)
        return self.block.shared[self.place]


class SharedTile:
    """A view of a shared tensor."""

    __slots__ = ("buffer", "cells", "data")

    def __init__(self, buffer: SharedBuffer, data: Tensor, cells: list[Cell]) -> None:
        self.buffer, self.data, self.cells = buffer, data, cells

    @property
    def nbytes(self) -> int:
        return self.data.numel() * self.buffer.form.nbits // 8

    def reshaped(self, shape: Sequence[int]) -> "SharedTile":
        """The view of another shape; one to read alone where strides cannot say it."""
        try:
            return self.view(("reshape", *shape), lambda data: data.view(shape))
        except RuntimeError:
            return ReadTile(self, shape)

    def view(self, key: Any, change: Callable[[Tensor], Tensor]) -> "SharedTile":
        """The view `change` of this one; `key` names the change."""
        key = self.data.storage_offset(), tuple(self.data.shape), self.data.stride(), key
        found = self.buffer.tiles.get(key)
        if found is None:
            found = self.buffer.tiles[key] = self.buffer.tile_of(change(self.data))
        return found

    def check_read(self, agent: Agent) -> None:
        """Raises where the agent may not read now."""
        buffer = self.buffer
        if buffer.freed_at is not None:
            buffer.check_alive(agent)
        for cell in self.cells:
            if cell.copies:
                name = buffer.first(cell, self.data)
                agent.fail(PendingCopy(f"{name} is read while a copy into it may be under way: no wait covers it yet"))
            write = cell.write
            if write is None:
                if not cell.copies:
                    name = buffer.first(cell, self.data)
                    agent.fail(Uninitialized(f"{name} is read, and nothing has written it"))
            elif not agent.ordered(write):
                self._unordered(agent, cell, write, "is read, and no sync lies between that and its write")

    def load(self, agent: Agent) -> Tensor:
        self.check_read(agent)
        event = Event(agent, agent.epoch, agent.place)
        for cell in self.cells:
            cell.reads[agent] = event
        return self.data.clone()

    def load_async(self, agent: Agent, reader: Any) -> Tensor:
        """As `load`, by a unit that may read until it is waited for: a wgmma or a TMA store."""
        for cell in self.cells:
            if cell.generic is not None:
                agent.fail(
                    MissingFence(
                        f"{reader.kind} reads {self.buffer.name}, which threads have written: no proxy fence lies "
                        "between"
                    )
                )
                break
        self.check_read(agent)
        for cell in self.cells:
            cell.readers.add(reader)
        return self.data.clone()

    def over(self, agent: Agent, reader: Any) -> None:
        """Ends a `load_async`: from now on it is a read by the agent."""
        for cell in self.cells:
            if reader in cell.readers:
                cell.readers.discard(reader)
                cell.reads[agent] = agent.now()

    def claim(self, agent: Agent, by_tma: bool = False) -> None:
        """Starts a write; raises where the agent may not write now."""
        buffer = self.buffer
        if buffer.freed_at is not None:
            buffer.check_alive(agent)
        if buffer.over:
            self._claim_freed(agent, by_tma)
        for cell in self.cells:
            if cell.copies:
                name = buffer.first(cell, self.data)
                agent.fail(PendingCopy(f"{name} is written over a copy that may be under way"))
            if cell.readers:
                name, kind = buffer.first(cell, self.data), min(reader.kind for reader in cell.readers)
                agent.fail(PendingProduct(f"{name} is written over while {kind} that reads it may be under way"))
            unread = next((event for event in cell.reads.values() if not agent.ordered(event)), None)
            if unread is not None:
                self._unordered(agent, cell, unread, "is written over a read, with no sync between")
            elif cell.write is not None and not agent.ordered(cell.write):
                self._unordered(agent, cell, cell.write, "is written over another write, with no sync between")
            cell.reads = {}
            if by_tma and cell.generic is not None:
                self._missing_fence(agent)
        if buffer.peers:
            self._check_peers(agent)

    def store(self, agent: Agent, tile: Tensor) -> None:
        self.claim(agent)
        self._written(Event(agent, agent.epoch, agent.place))
        self.data.copy_(tile)

    def begin_copy(self, agent: Agent, copy: Any, by_tma: bool) -> None:
        self.claim(agent, by_tma)
        for cell in self.cells:
            cell.copies.add(copy)

    def land(self, copy: Any, tile: Tensor, event: Event, by_tma: bool) -> None:
        """Stores the data of a copy that has been waited for, written by the event."""
        for cell in self.cells:
            cell.copies.discard(copy)
        if by_tma:
            for cell in self.cells:
                cell.write = event
        else:
            self._written(event)
        self.data.copy_(tile)

    def _written(self, event: Event) -> None:
        self.buffer.generic = True
        for cell in self.cells:
            cell.write = cell.generic = event

    def _claim_freed(self, agent: Agent, by_tma: bool) -> None:
        buffer = self.buffer
        for old in buffer.over:
            for error in old.hazards(agent):
                agent.fail(type(error)(f"{buffer.name} takes {error}"))
            if by_tma and old.generic:
                self._missing_fence(agent)
        if agent.whole and not any(old.generic for old in buffer.over):
            buffer.over = []

    def _missing_fence(self, agent: Agent) -> None:
        agent.fail(
            MissingFence(f"TMA writes {self.buffer.name}, where threads may have written: no proxy fence between")
        )

    def _unordered(self, agent: Agent, cell: Cell, event: Event, what: str) -> None:
        name, place = self.buffer.first(cell, self.data), agent.launch.describe(event.place)
        if event.who.block is agent.block:
            agent.fail(MissingSync(f"{name} {what}, at {place}"))
        else:
            other = f"{self.buffer.name} of block {self.buffer.owner.index}"
            agent.fail(Race(f"{other} {what.replace('sync', 'barrier of the cluster')}, at {place}"))

    def _check_peers(self, agent: Agent) -> None:
        if event := unseen_by(agent, self.buffer):
            agent.fail(
                Race(
                    f"writes {self.buffer.name}, which block {event.who.block.index} reads at "
                    f"{agent.launch.describe(event.place)}: no barrier of the cluster lies between"
                )
            )


class ReadTile(SharedTile):
    """A view in a shape that no strides give, as of tiles side by side: it can be read, and neither written nor viewed
    again."""

    __slots__ = ("shape",)

    def __init__(self, tile: SharedTile, shape: Sequence[int]) -> None:
        super().__init__(tile.buffer, tile.data, tile.cells)
        self.shape = tuple(shape)

    def load(self, agent: Agent) -> Tensor:
        return super().load(agent).reshape(self.shape)

    def load_async(self, agent: Agent, reader: Any) -> Tensor:
        return super().load_async(agent, reader).reshape(self.shape)

    def claim(self, agent: Agent, by_tma: bool = False) -> None:
        raise Unsupported(f"{self.buffer.name} is written in a shape {self.shape} that no strides give")

    def view(self, key: Any, change: Callable[[Tensor], Tensor]) -> SharedTile:
        raise Unsupported(f"{self.buffer.name} is viewed again in a shape {self.shape} that no strides give")


def unseen_by(agent: Agent, buffer: SharedBuffer) -> Event | None:
    """A peer's read of the block's shared memory that may still be under way; None where there is none."""
    peers = (event for event in buffer.peers.values() if event.who.block is not agent.block)
    return next((event for event in peers if not agent.ordered(event)), None)


def fence(agent: Agent, buffers: list[SharedBuffer]) -> None:
    """A proxy fence: TMA and tensor cores see what the agent has written, and what it knows to be written."""
    for buffer in buffers:
        if buffer.generic:
            cells = [cell for cell in buffer.cells.all if cell.generic is not None]
            for cell in cells:
                if cell.generic.who is agent or agent.ordered(cell.generic):
                    cell.generic = None
            buffer.generic = any(cell.generic is not None for cell in cells)
