"""GPTQ's packing, bit by bit, and what rounding to it costs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_vs_tilus.common.quantization import GPTQWeight, pack_rows, pack_zeros, quantize, unpack_rows, unpack_zeros


def test_rows_are_packed_as_gptq_packs_them():
    q = torch.tensor([[1, 15], [2, 0], [3, 0], [4, 0], [5, 0], [6, 0], [7, 0], [8, 15]])
    assert pack_rows(q).tolist() == [[0x87654321 - (1 << 32), 0xF000000F - (1 << 32)]]
    assert pack_rows(q).dtype is torch.int32


def test_zero_points_are_packed_one_less():
    zeros = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 16]])
    assert pack_zeros(zeros).tolist() == [[0xF6543210 - (1 << 32)]]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_packing_comes_back(words, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(0, 16, (8 * words, 8 * columns), generator=generator)
    zeros = torch.randint(1, 17, (words, 8 * columns), generator=generator)
    assert torch.equal(unpack_rows(pack_rows(q)), q.int())
    assert torch.equal(unpack_zeros(pack_zeros(zeros)), zeros.int())
    packed = torch.randint(-(2**31), 2**31, (words, columns), dtype=torch.int32, generator=generator)
    assert torch.equal(pack_rows(unpack_rows(packed)), packed)
    assert torch.equal(pack_zeros(unpack_zeros(packed)), packed)


def test_dequantized_by_hand():
    q = torch.arange(64).view(32, 2) % 16
    q = torch.cat([q, 15 - q, q, q], dim=1)
    zeros = torch.tensor([[1, 16, 8, 8, 3, 3, 5, 7]])
    scales = torch.tensor([[0.5, 1.0, 2.0, 4.0, 0.25, 1.0, 1.0, 1.0]], dtype=torch.float16)
    weight = GPTQWeight(pack_rows(q), scales, pack_zeros(zeros))
    assert (weight.k, weight.n, weight.group_size, weight.symmetric) == (32, 8, 32, False)
    assert torch.equal(weight.dequantized(), (q - zeros) * scales.double())
    symmetric = GPTQWeight(pack_rows(q), scales, None)
    assert torch.equal(symmetric.dequantized(torch.float32), (q - 8) * scales.float())


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("group_size", [32, 64, 128])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
def test_no_element_moves_by_more_than_half_a_scale(shift, group_size, symmetric):
    weight = torch.randn(256, 24, generator=torch.Generator().manual_seed(0)) + shift
    quantized = quantize(weight, group_size, symmetric=symmetric)
    moved = (quantized.dequantized() - weight).abs()
    scales = quantized.scales.double().repeat_interleave(group_size, dim=0)
    # What the rounding of a scale to half precision adds, at 15 scales from zero.
    assert (moved <= scales * (0.5 + 15 * 2**-11)).all()
    assert quantized.symmetric is symmetric and quantized.group_size == group_size


@pytest.mark.parametrize("low, symmetric, scale", [(-3.0, True, 1.0), (-3.0, False, 0.7), (3.0, False, 7.5 / 14)])
def test_a_scale_is_that_of_the_largest_weights(low, symmetric, scale):
    weight = torch.tensor([7.5, low]).repeat(16)[:, None].expand(32, 8)
    assert quantize(weight, 32, symmetric=symmetric).scales.float() == pytest.approx(
        torch.full((1, 8), scale), rel=1e-3
    )


@pytest.mark.parametrize("symmetric", [False, True])
def test_zeros_stay_zeros(symmetric):
    assert (quantize(torch.zeros(64, 8), 32, symmetric=symmetric).dequantized() == 0).all()


def test_a_column_too_small_for_its_scale_is_zero_and_spoils_no_other():
    weight = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    weight[:, 0] = 1e-8  # its scale is 0 in half precision
    quantized = quantize(weight, 32)
    assert (quantized.dequantized()[:, 0] == 0).all()
    assert torch.equal(quantized.zeros()[:, 1:], quantize(weight[:, [1, *range(1, 8)]], 32).zeros()[:, 1:])


def test_what_lies_on_the_grid_stays_there():
    grid = torch.arange(32).view(32, 1).expand(32, 8) % 16 - 3.0
    quantized = quantize(grid, 32, dtype=torch.bfloat16)
    assert torch.equal(quantized.dequantized(), grid.double())
    assert quantized.scales.dtype is torch.bfloat16


@pytest.mark.parametrize(
    "shape, group_size, error",
    [
        ((100, 8), 32, r"weight has shape \(100, 8\); accepted: \(K, N\), K a multiple of group_size, 32, N of 8"),
        ((64, 12), 32, r"weight has shape \(64, 12\)"),
        ((64,), 32, r"weight has shape \(64,\)"),
        ((0, 8), 32, r"weight has shape \(0, 8\)"),
        ((64, 8), 12, "group_size is 12; accepted: multiples of 8"),
        ((64, 8), 0, "group_size is 0"),
    ],
)
def test_bad_input_is_named(shape, group_size, error):
    with pytest.raises(ValueError, match=error):
        quantize(torch.zeros(shape), group_size)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("value", "scale"), [(1e6, "(133333|66666.7|71428.6)"), (float("nan"), "nan"), (float("inf"), "inf")]
)
def test_what_no_scale_can_represent_is_refused(value, scale, symmetric):
    weight = torch.zeros(64, 8)
    weight[40, 3] = value
    with pytest.raises(ValueError, match=f"weight has a scale of {scale}; accepted: finite ones, in torch.float16 too"):
        quantize(weight, 32, symmetric=symmetric)


def test_scales_have_half_precision():
    with pytest.raises(TypeError, match=r"dtype is torch.float32; accepted: torch.float16, torch.bfloat16"):
        quantize(torch.zeros(64, 8), 32, dtype=torch.float32)


def test_integers_are_refused():
    with pytest.raises(TypeError, match=r"weight has dtype torch.int64"):
        quantize(torch.zeros(64, 8, dtype=torch.int64), 32)


def test_a_weight_that_learns_and_is_transposed_is_taken_as_it_is():
    stored = torch.nn.Parameter(torch.randn(16, 128))  # [N, K], as torch stores it
    made, expected = quantize(stored.T, 32), quantize(stored.detach().T.contiguous(), 32)
    for name in ("qweight", "scales", "qzeros"):
        tensor = getattr(made, name)
        assert torch.equal(tensor, getattr(expected, name))
        assert tensor.is_contiguous() and not tensor.requires_grad


def test_a_weight_without_numbers_is_refused():
    with pytest.raises(ValueError, match="weight is on meta; accepted: a device that holds numbers"):
        quantize(torch.empty(64, 16, device="meta"), 32)
