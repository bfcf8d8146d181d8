"""Bad input: one clear error naming the argument, its value and what is accepted, and nothing launched."""

import matmul_cases as cases
import pytest
import torch

import kernels_tilus
import kernels_triton
from common.epilogue import Epilogue
from common.problem import Matmul

M, N, K = 8, 16, 64
BF16 = torch.bfloat16
KERNELS = [*cases.matmul_kernels(kernels_triton), *cases.matmul_kernels(kernels_tilus)]


def tensor(*shape, dtype=BF16, device="cpu"):
    return torch.ones(*shape, dtype=dtype, device=device)


# what is changed in a call that is otherwise right, the error, and what its message must say
BAD = {
    "a is no tensor": (lambda d: {"a": [1, 2]}, TypeError, "a is list; accepted: torch.Tensor"),
    "a has three dimensions": (lambda d: {"a": tensor(1, M, K, device=d)}, ValueError, r"a has shape \(1, 8, 64\)"),
    "a is empty": (lambda d: {"a": tensor(0, K, device=d)}, ValueError, r"a has shape \(0, 64\).*no empty dimension"),
    "K is empty": (lambda d: {"a": tensor(M, 0, device=d)}, ValueError, r"a has shape \(8, 0\).*no empty dimension"),
    "a is int8": (lambda d: {"a": tensor(M, K, dtype=torch.int8, device=d)}, TypeError, "a has dtype torch.int8"),
    "b of another dtype": (
        lambda d: {"b": tensor(K, N, dtype=torch.float16, device=d)},
        TypeError,
        "b has dtype torch.float16; accepted: that of a, torch.bfloat16",
    ),
    "inner sizes differ": (
        lambda d: {"b": tensor(K + 1, N, device=d)},
        ValueError,
        r"b has shape \(65, 16\).*\(64, N\)",
    ),
    "a column-major": (lambda d: {"a": tensor(K, M, device=d).T}, ValueError, r"a has strides \(1, 8\).*unit stride"),
    "b every other column": (
        lambda d: {"b": tensor(K, 2 * N, device=d)[:, ::2]},
        ValueError,
        r"b has strides \(32, 2\)",
    ),
    "b broadcast": (lambda d: {"b": tensor(1, N, device=d).expand(K, N)}, ValueError, r"b has strides \(0, 1\)"),
    "b on another device": (
        lambda d: {"b": tensor(K, N, device="meta")},
        ValueError,
        "b is on meta; accepted: the device",
    ),
    "epilogue by name": (lambda d: {"epilogue": "relu"}, TypeError, "epilogue is 'relu'; accepted"),
    "bias missing": (lambda d: {"epilogue": Epilogue.BIAS_RELU}, ValueError, r"bias is None; accepted.*\(16,\)"),
    "bias not asked for": (lambda d: {"bias": tensor(N, device=d)}, ValueError, "bias has shape.*accepted: None"),
    "bias too long": (
        lambda d: {"epilogue": Epilogue.BIAS_RELU, "bias": tensor(N + 1, device=d)},
        ValueError,
        r"bias has shape \(17,\)",
    ),
    "out of another shape": (lambda d: {"out": tensor(M, N + 1, device=d)}, ValueError, r"out has shape \(8, 17\)"),
    "out of another dtype": (
        lambda d: {"out": tensor(M, N, dtype=torch.float16, device=d)},
        TypeError,
        "out_dtype is torch.float16",
    ),
    "out overlaps itself": (
        lambda d: {"out": tensor(1, N, device=d).expand(M, N)},
        ValueError,
        r"out has strides \(0, 1\)",
    ),
    "out_dtype int": (lambda d: {"out_dtype": torch.int32}, TypeError, "out_dtype is torch.int32"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)
def test_bad_input_is_refused(kernel, case, device, monkeypatch):
    change, error, message = BAD[case]
    given = {"a": tensor(M, K, device=device), "b": tensor(K, N, device=device), **change(device)}

    def no_memory(*args, **kwargs):
        raise AssertionError("allocated before the input was checked")

    monkeypatch.setattr(torch, "empty", no_memory)
    with pytest.raises(error, match=message):
        kernel.launch(given.pop("a"), given.pop("b"), **given)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)
def test_a_config_that_cannot_run_is_refused(kernel, device):
    from dataclasses import replace

    problem = Matmul(M, N, K, epilogue=Epilogue.RELU)
    too_large = replace(kernel.default_config(problem), block_k=1 << 16, num_stages=8)
    with pytest.raises(ValueError, match=r"bytes of shared memory|registers|sums a thread"):
        cases.run(kernel, problem, problem.inputs(device), config=too_large)
