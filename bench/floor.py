"""What this GPU cannot beat: launching nothing, and reading the problem's least bytes once. Same run, same clock.

The reader goes over A, B, bias and C once, as integers, and keeps an XOR of all; what it would store depends on that,
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


@triton.jit
def _read_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, sink_ptr, a_numel, b_numel, bias_numel, c_numel, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.int32)
    acc = _fold(b_ptr, b_numel, acc, BLOCK)
    acc = _fold(a_ptr, a_numel, acc, BLOCK)
    acc = _fold(bias_ptr, bias_numel, acc, BLOCK)
    acc = _fold(c_ptr, c_numel, acc, BLOCK)
    folded = tl.reduce(acc, 0, _xor)
    if folded == 0x2B992DDF:  # any value: it has to depend on what was loaded
        tl.store(sink_ptr, folded)


def _launch_nothing(a: Tensor, b: Tensor, out: Tensor, bias: Tensor, sink: Tensor, *, bias_numel: int) -> None:
    _empty_kernel[(1,)](sink)


def _read(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor,
    sink: Tensor,
    *,
    bias_numel: int,
    programs: int,
    block: int,
    warps: int,
) -> None:
    """Flat integer views of the tensors. sink: int32 [1]."""
    _read_kernel[(programs,)](
        *(a, b, bias, out, sink, a.numel(), b.numel(), bias_numel, out.numel()), BLOCK=block, num_warps=warps
    )


def floors(argument_sets: Sequence[Arguments], device: DeviceClock, mode: str, *, tell: Tell) -> list[Timed]:
    """The two floors as contenders, LAUNCH and READ, on the tensors of a problem's argument sets: calls of a launcher
    (a, b, epilogue=, bias=, out=, ...). The reader's configuration is the fastest of a search in this `mode`."""
    sink = torch.zeros(1, dtype=torch.int32, device=argument_sets[0].args[0].device)
    read_sets = []
    for (a, b), kwargs in argument_sets:
        bias = kwargs["bias"]
        tensors = (_flat(a), _flat(b), _flat(kwargs["out"]), sink if bias is None else _flat(bias), sink)
        read_sets.append(Arguments(tensors, {"bias_numel": 0 if bias is None else tensors[3].numel()}))

    elements = sum(tensor.numel() for tensor in read_sets[0].args[:3])
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
