"""What this GPU cannot beat: launching nothing, and reading the problem's least bytes once. Same run, same clock.

The reader goes over inputs and output once, as integers, and keeps an XOR of all; what it would store depends on that,
so the loads cannot be left out. Its grid and block are searched, as those of any contender.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product

import torch
import triton
import triton.language as tl
from torch import Tensor

from bench.clock import Arguments, DeviceClock, Tell, Timed, time_together
from bench.stats import summary

LAUNCH = "floor/launch"
READ = "floor/read"
SEARCH_ROUNDS = 5


@triton.jit
def _empty_kernel(sink_ptr):
    pass


@triton.jit
def _fold(x_ptr, numel, acc, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, numel, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        acc ^= tl.load(x_ptr + offs, mask=offs < numel, other=0).to(tl.int32)
    return acc


@triton.jit
def _xor(x, y):
    return x ^ y


MOST = 6  # tensors that the reader takes


@triton.jit
def _read_kernel(x0, x1, x2, x3, x4, x5, n0, n1, n2, n3, n4, n5, sink_ptr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.int32)
    acc = _fold(x0, n0, acc, BLOCK)
    acc = _fold(x1, n1, acc, BLOCK)
    acc = _fold(x2, n2, acc, BLOCK)
    acc = _fold(x3, n3, acc, BLOCK)
    acc = _fold(x4, n4, acc, BLOCK)
    acc = _fold(x5, n5, acc, BLOCK)
    folded = tl.reduce(acc, 0, _xor)
    if folded == 0x2B992DDF:  # any value: it has to depend on what was loaded
        tl.store(sink_ptr, folded)


def _launch_nothing(tensors: Sequence[Tensor], numels: Sequence[int], sink: Tensor) -> None:
    _empty_kernel[(1,)](sink)


def _read(
    tensors: Sequence[Tensor], numels: Sequence[int], sink: Tensor, *, programs: int, block: int, warps: int
) -> None:
    """Flat integer views of MOST tensors, and how much of each is read. sink: int32 [1]."""
    _read_kernel[(programs,)](*tensors, *numels, sink, BLOCK=block, num_warps=warps)


def floors(tensor_sets: Sequence[Sequence[Tensor]], device: DeviceClock, mode: str, *, tell: Tell) -> list[Timed]:
    """The two floors as contenders, LAUNCH and READ, each set being what a call of a problem must read and write. The
    reader's configuration is the fastest of a search in this `mode`. Raises ValueError for more than MOST tensors."""
    sink = torch.zeros(1, dtype=torch.int32, device=tensor_sets[0][0].device)
    read_sets = []
    for tensors in tensor_sets:
        if len(tensors) > MOST:
            raise ValueError(f"{len(tensors)} tensors to read; accepted: {MOST} and fewer")
        flat = sorted(map(_flat, tensors), key=Tensor.numel, reverse=True)
        padding = [sink] * (MOST - len(flat))
        numels = [*map(Tensor.numel, flat), *(0 for _ in padding)]
        read_sets.append(Arguments(([*flat, *padding], numels, sink), {}))

    elements = sum(read_sets[0].args[1])
    processors = torch.cuda.get_device_properties(sink.device).multi_processor_count
    trials = []
    for block, warps, waves in product((1024, 2048, 4096), (4, 8), (1, 2, 4, None)):
        programs = triton.cdiv(elements, block) if waves is None else waves * processors
        name = f"{READ} {programs} programs of {block}, {warps} warps"
        trials.append(Timed(name, partial(_read, programs=programs, block=block, warps=warps), read_sets))
    tried = time_together(trials, mode, SEARCH_ROUNDS, device, tell=tell)
    _, best = min((summary(samples.rounds).median_us, index) for index, samples in enumerate(tried))

    return [Timed(LAUNCH, _launch_nothing, read_sets), Timed(READ, trials[best].fn, read_sets)]


def _flat(tensor: Tensor) -> Tensor:
    """The bytes of a dense tensor in the order of memory, as int32 where that comes out even."""
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(torch.int32 if flat.nbytes % 4 == 0 else torch.int16)
