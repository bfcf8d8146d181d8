"""atomic, in every language that has it; and what tilus' adds of tiles ask for."""

import matmul_cases as cases
import pytest
import tilus
from tilus import float32, target
from tilus.drivers import build_program
from tilus.ir.instructions import LoadGlobalInst, StoreGlobalInst, SyncThreadsInst
from tilus.ir.tools import collect

from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import launching
from triton_vs_tilus.kernels_tilus.atomics import atomic_add
from triton_vs_tilus.kernels_tilus.configs import BandConfig


class TestAtomic(cases.ArrivalTests):
    name = "atomic"


class _AddOfSixteen(tilus.Script):
    """By 32 threads: two hold each element."""

    def __call__(self, sums_ptr: ~float32, x_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        sums = self.global_view(sums_ptr, dtype=float32, shape=[16])
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[16]), offsets=[0], shape=[16])
        atomic_add(self, sums, x, offsets=[0])


def test_what_two_threads_hold_alike_is_not_added_twice(monkeypatch):
    monkeypatch.setattr(target, "_target", target.nvgpu_sm90a)
    with launching.programs_only() as programs:
        launching.build(_AddOfSixteen())
    with pytest.raises(ValueError, match="several threads hold alike"):
        build_program(programs[0])


@pytest.mark.parametrize(
    "config, threads",
    [
        (BandConfig(16, 8, 256, 2, 4, 4, engine="mma_sliced"), 4),
        (BandConfig(16, 16, 256, 2, 4, 4, engine="mma_sliced"), 2),
        (BandConfig(16, 32, 256, 2, 4, 4, engine="mma_sliced"), 1),
        (BandConfig(16, 64, 256, 2, 4, 4, engine="mma"), 1),
    ],
    ids=str,
)
def test_sums_that_several_warps_load_are_zeroed_when_all_have(config, threads, monkeypatch):
    """The interpreter runs a tile's load for all threads at once, and so cannot see a warp that comes late."""
    monkeypatch.setattr(target, "_target", target.nvgpu_sm90a)
    with launching.programs_only() as programs:
        find("tilus/atomic").build(Matmul(16, 64, 1024, layout=Layout.NK), config)
    (function,) = programs[0].functions.values()
    done = collect(function, [LoadGlobalInst, SyncThreadsInst, StoreGlobalInst])
    load = max(place for place, inst in enumerate(done) if isinstance(inst, LoadGlobalInst))
    loaded = (done[load].inputs[0], done[load].output)
    behind = done[load + 1 :]
    zeroed = next(place for place, inst in enumerate(behind) if tuple(inst.inputs[:2]) == loaded)
    assert (SyncThreadsInst in map(type, behind[:zeroed])) == (threads > 1)
