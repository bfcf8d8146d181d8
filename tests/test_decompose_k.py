"""decompose_k, in every language that has it: the same cases for all."""

import matmul_cases as cases
import pytest

import kernels_tilus
import kernels_triton

KERNELS = [k for package in (kernels_triton, kernels_tilus) for k in package.KERNELS if k.name == "decompose_k"]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=cases.case_id)


@each_kernel
@pytest.mark.parametrize("problem", cases.PROBLEMS, ids=cases.case_id)
def test_matches_torch_and_float64(kernel, problem, device):
    cases.check_matches_torch_and_float64(kernel, problem, device, configs=1)


@pytest.mark.gpu
@each_kernel
@pytest.mark.parametrize("problem", cases.LARGE_PROBLEMS, ids=cases.case_id)
def test_large_problems_match(kernel, problem, device):
    cases.check_matches_torch_and_float64(kernel, problem, device, configs=1)


@each_kernel
def test_strided_operands(kernel, device):
    cases.check_strided_operands(kernel, device)


@each_kernel
def test_repeats_on_a_dirty_workspace(kernel, device):
    cases.check_repeats_on_a_dirty_workspace(kernel, device, runs=3 if device.type == "cpu" else 100)


@pytest.mark.gpu
@each_kernel
def test_graph_capture_and_replay(kernel, device):
    cases.check_graph(kernel, device)


@pytest.mark.gpu
@each_kernel
def test_two_streams(kernel, device):
    cases.check_two_streams(kernel, device)
