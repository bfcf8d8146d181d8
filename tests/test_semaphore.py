"""semaphore, in every language that has it; and what tilus' pool and copies ask for besides."""

import matmul_cases as cases
import pytest
import tilus
from tilus import int32

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.problem import Layout, Matmul


class TestSemaphore(cases.MatmulTests):
    name = "semaphore"


def of(full_name):
    return next(kernel for kernel in cases.kernels_named("semaphore") if kernel.full_name == full_name)


OF_THE_WORKSPACE = [each for each in cases.kernels_named("semaphore") if each.full_name != "tilus/semaphore.in_place"]


@pytest.mark.parametrize("kernel", OF_THE_WORKSPACE, ids=lambda kernel: kernel.full_name)
def test_leftovers_count_for_nothing(kernel, device, monkeypatch):
    """tilus' in_place takes its turns in tilus' pool: below."""
    cases.check_leftovers(kernel, device, monkeypatch)


class _DirtyPool(tilus.Script):
    """Leaves a number in the first words of tilus' pool of clean global tensors, as an aborted launch would."""

    def __call__(self, value: int32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        words = self.global_tensor(dtype=int32, shape=[256], requires_clean=True)
        self.store_global(words, self.register_tensor(dtype=int32, shape=[256], init=lambda i: value), offsets=[0])


@pytest.mark.gpu
@pytest.mark.parametrize("left", [1, 2, 3, 7, -1])
def test_a_dirty_pool_is_nobodys_turn(left, device):
    """1 to 3 are what the tutorial's turns would mistake for their own."""
    problem = Matmul(16, 256, 4096, layout=Layout.NK)
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    in_place = of("tilus/semaphore.in_place")
    config = next(config for config in in_place.configs(problem) if config.split_k == 4)
    cases.run(in_place, problem, inputs, config=config)
    _DirtyPool()(left)
    for _ in range(3):
        cases.assert_right(in_place, problem, judge, cases.run(in_place, problem, inputs, config=config), config)


@pytest.mark.gpu
def test_a_dirty_workspace_is_nobodys_turn(device):
    problem = Matmul(16, 256, 4096, layout=Layout.NK)
    inputs = problem.inputs(device)
    judge = Judge(problem, inputs)
    fp32 = of("tilus/semaphore.fp32")
    config = next(config for config in fp32.configs(problem) if config.split_k == 4)
    for left in (1, 2, 3, 7, -1):
        workspace.semaphores(256, inputs.a.device).fill_(left)
        cases.assert_right(fp32, problem, judge, cases.run(fp32, problem, inputs, config=config), config)
    workspace.reset()
    assert (workspace.semaphores(256, inputs.a.device) == 0).all()
