"""atomic, in every language that has it; and what tilus' adds of tiles ask for."""

from dataclasses import replace

import matmul_cases as cases
import mutants
import pytest
import tilus
import torch
from tilus import float32, target
from tilus.drivers import build_program
from tilus.ir.instructions import AllocateRegisterInst

from triton_vs_tilus.bench.contenders import find
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus import launching
from triton_vs_tilus.kernels_tilus.atomics import atomic_add
from triton_vs_tilus.kernels_tilus.configs import BandConfig
from triton_vs_tilus.kernels_tilus.interpreter import Race, Schedule


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


SMALL = BandConfig(16, 8, 256, 2, 4, 4, engine="mma_sliced")  # fewer than 4 elements a thread: several warps load one


class WithoutSyncBeforeZeros(mutants.WithoutSync):
    def between(self, before, after):
        return mutants.holds(after, AllocateRegisterInst)


@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_a_sum_zeroed_before_all_warps_have_loaded_it_is_a_race(order):
    problem = Matmul(16, 16, 1024, layout=Layout.NK)
    inputs, kernel = problem.inputs(torch.device("cpu")), find("tilus/atomic")
    words = r"writes sums_ptr\[\d+, \d+\], which it reads at .*: no sync lies between"
    with mutants.launched(WithoutSyncBeforeZeros(), Schedule(order)), pytest.raises(Race, match=words):
        cases.run(kernel, problem, inputs, config=SMALL)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, block_n=16), replace(SMALL, block_n=32)], ids=str)
def test_tiles_of_few_elements_a_thread_are_right(config, device):
    problem = Matmul(16, 64, 1024, layout=Layout.NK)
    judge = Judge(problem, problem.inputs(device))
    cases.check_config(find("tilus/atomic"), judge, config)
