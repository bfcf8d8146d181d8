"""Bad input: one clear error naming the argument, its value and what is accepted, and nothing launched."""

import inspect
import itertools
from dataclasses import replace

import matmul_cases as cases
import pytest
import torch
from torch import Tensor

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.bench import contenders
from triton_vs_tilus.common import call, checks
from triton_vs_tilus.common.accuracy import Judge
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import MatmulConfig, too_many_blocks
from triton_vs_tilus.common.plan import contiguous
from triton_vs_tilus.common.problem import Layout, Matmul
from triton_vs_tilus.kernels_tilus.launching import beyond_offsets

M, N, K = 8, 16, 64
BF16 = torch.bfloat16
KERNELS = [*cases.matmul_kernels(kernels_triton), *cases.matmul_kernels(kernels_tilus)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.full_name)


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
    "a every other of two columns": (
        lambda d: {"a": tensor(M, 4, device=d)[:, ::2], "b": tensor(2, N, device=d)},
        ValueError,
        r"a has strides \(4, 2\).*unit stride",
    ),
    "two rows of a overlap": (
        lambda d: {"a": tensor(2 * K, device=d).as_strided((2, K), (K - 1, 1))},
        ValueError,
        r"a has strides \(63, 1\).*rows that do not overlap",
    ),
    "b every other column": (
        lambda d: {"b": tensor(K, 2 * N, device=d)[:, ::2]},
        ValueError,
        r"b has strides \(32, 2\)",
    ),
    "b broadcast": (lambda d: {"b": tensor(1, N, device=d).expand(K, N)}, ValueError, r"b has strides \(0, 1\)"),
    "b without memory": (
        lambda d: {"b": tensor(K, N, device="meta")},
        ValueError,
        "b is on meta; accepted: a CUDA device, or a CPU",
    ),
    "a nested": (
        lambda d: {"a": torch.nested.nested_tensor([tensor(M, K, device=d)])},
        ValueError,
        "a is nested; accepted: a tensor of one shape",
    ),
    "b sparse": (
        lambda d: {"b": tensor(K, N, device=d).to_sparse()},
        ValueError,
        "b has layout torch.sparse_coo; accepted: torch.strided",
    ),
    "a negated view": (
        lambda d: {"a": torch._neg_view(tensor(M, K, device=d))},
        ValueError,
        r"a is a view that negates as it is read; accepted: a\.resolve_neg\(\)",
    ),
    "bias a negated view": (
        lambda d: {"epilogue": Epilogue.BIAS, "bias": torch._neg_view(tensor(N, device=d))},
        ValueError,
        r"bias is a view that negates as it is read; accepted: bias\.resolve_neg\(\)",
    ),
    "out a negated view": (
        lambda d: {"out": torch._neg_view(tensor(M, N, device=d))},
        ValueError,
        r"out is a view that negates as it is read; accepted: out\.resolve_neg\(\)",
    ),
    "epilogue by name": (lambda d: {"epilogue": "relu"}, TypeError, "epilogue is 'relu'; accepted"),
    "bias missing": (lambda d: {"epilogue": Epilogue.BIAS_RELU}, ValueError, r"bias is None; accepted.*\(16,\)"),
    "bias not asked for": (lambda d: {"bias": tensor(N, device=d)}, ValueError, "bias has shape.*accepted: None"),
    "bias too long": (
        lambda d: {"epilogue": Epilogue.BIAS_RELU, "bias": tensor(N + 1, device=d)},
        ValueError,
        r"bias has shape \(17,\)",
    ),
    "bias every other element": (
        lambda d: {"epilogue": Epilogue.BIAS_RELU, "bias": tensor(2 * N, device=d)[::2]},
        ValueError,
        r"bias has shape \(16,\), stride \(2,\); accepted: \(16,\), contiguous",
    ),
    "out of another shape": (lambda d: {"out": tensor(M, N + 1, device=d)}, ValueError, r"out has shape \(8, 17\)"),
    "out of another dtype": (
        lambda d: {"out": tensor(M, N, dtype=torch.float16, device=d)},
        TypeError,
        "out_dtype is torch.float16",
    ),
    "bias of another dtype": (
        lambda d: {"epilogue": Epilogue.BIAS_RELU, "bias": tensor(N, dtype=torch.float32, device=d)},
        TypeError,
        "bias has dtype torch.float32; accepted: that of a, torch.bfloat16",
    ),
    "out not of out_dtype": (
        lambda d: {"out": tensor(M, N, device=d), "out_dtype": torch.float32},
        TypeError,
        "out has dtype torch.bfloat16; accepted: out_dtype, torch.float32",
    ),
    "out overlaps itself": (
        lambda d: {"out": tensor(1, N, device=d).expand(M, N)},
        ValueError,
        r"out has strides \(0, 1\)",
    ),
    "out in memory of the bias": (
        lambda d: {"epilogue": Epilogue.BIAS, "out": (out := tensor(M, N, device=d)), "bias": out[0]},
        ValueError,
        "out at .* shares memory with bias at .*; accepted: memory of its own",
    ),
    "out_dtype int": (lambda d: {"out_dtype": torch.int32}, TypeError, "out_dtype is torch.int32"),
}


ABSENT = {"epilogue": Epilogue.NONE, "bias": None, "out": None, "out_dtype": None}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case, device):
    change, error, message = BAD[case]
    right = {"a": tensor(M, K, device=device), "b": tensor(K, N, device=device), **ABSENT}
    assert checks.matmul_problem(**right) == Matmul(M, N, K)
    with pytest.raises(error, match=message):
        checks.matmul_problem(**{**right, **change(device)})


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["b", "bias", "out"])
def test_an_operand_on_another_device_is_refused(name, device):
    given = {"a": tensor(M, K), "b": tensor(K, N), "bias": tensor(N), "out": tensor(M, N)}
    given = {each: held if each == name else held.to(device) for each, held in given.items()}
    with pytest.raises(ValueError, match=f"{name} is on cpu; accepted: the device of a, cuda:0"):
        checks.matmul_problem(**given, epilogue=Epilogue.BIAS, out_dtype=None)


def test_the_stride_of_a_dimension_of_size_1_refuses_nothing(device):
    """torch leaves it open: that of one row, of one column, of one element."""
    memory = tensor(K, device=device)
    row, column, element = (memory.as_strided(*lying) for lying in (((1, K), (3, 1)), ((M, 1), (1, 5)), ((1,), (2,))))
    assert checks.matmul_problem(row, tensor(K, N, device=device), **ABSENT) == Matmul(1, N, K)
    assert checks.matmul_problem(column, tensor(1, N, device=device), **ABSENT) == Matmul(M, N, 1)
    given = {**ABSENT, "epilogue": Epilogue.BIAS, "bias": element}
    found = checks.matmul_problem(tensor(M, K, device=device), tensor(K, 1, device=device), **given)
    assert found == Matmul(M, 1, K, layout=Layout.NK, epilogue=Epilogue.BIAS)


class Refused(Exception):
    pass


@each_kernel
def test_a_launcher_has_its_input_checked_before_anything_else(kernel, monkeypatch):
    """All of it, by checks.matmul_problem: nothing is allocated, and what that raises is what the caller gets."""
    a, b, bias, out = tensor(M, K), tensor(K, N), tensor(N), tensor(M, N, dtype=torch.float32)
    given = {"epilogue": Epilogue.BIAS_RELU, "bias": bias, "out": out, "out_dtype": torch.float32}

    def check(*args, **kwargs):
        bound = inspect.signature(checks.matmul_problem).bind(*args, **kwargs).arguments
        assert bound.keys() == {"a", "b", *given}
        assert all(bound[name] is value for name, value in {"a": a, "b": b, **given}.items())
        raise Refused

    def no_memory(*args, **kwargs):
        raise AssertionError("allocated before the input was checked")

    monkeypatch.setattr(call, "matmul_problem", check)
    monkeypatch.setattr(torch, "empty", no_memory)
    with pytest.raises(Refused):
        kernel.launch(a, b, **given)


def test_an_epilogue_by_name_is_refused_after_one_that_is_equal_to_it(device):
    a, b = tensor(M, K, device=device), tensor(K, N, device=device)
    kernel = next(kernel for kernel in KERNELS if kernel.full_name == "tilus/data_parallel")
    kernel.launch(a, b, epilogue=Epilogue.RELU)
    with pytest.raises(TypeError, match="epilogue is 'relu'; accepted"):
        kernel.launch(a, b, epilogue="relu")


@each_kernel
def test_a_config_that_cannot_run_is_refused(kernel, device):
    problem = Matmul(M, N, K, epilogue=Epilogue.RELU)
    too_large = replace(kernel.default_config(problem), block_k=1 << 16, num_stages=8)
    with pytest.raises(ValueError, match=r"bytes of shared memory|registers|products a thread"):
        cases.run(kernel, problem, problem.inputs(device), config=too_large)


TILUS = cases.matmul_kernels(kernels_tilus)
each_of_tilus = pytest.mark.parametrize("kernel", TILUS, ids=lambda kernel: kernel.full_name)
FEW = 8
MANY, MANY_MORE = 1 << 15, 1 << 16  # together one more than int32 counts to


@pytest.mark.parametrize(
    ("sizes", "name"),
    [((MANY_MORE, FEW, MANY), "A"), ((FEW, MANY_MORE, MANY), "B"), ((MANY_MORE, MANY, FEW), "C")],
)
@each_of_tilus
def test_what_offsets_do_not_reach_is_refused(kernel, sizes, name):
    reason = kernel.supports(Matmul(*sizes, epilogue=Epilogue.RELU), None)
    assert reason == f"{name} has 2147483648 elements: tilus' offsets are int32"
    fewer = [size - 512 if size == MANY_MORE else size for size in sizes]  # stream_k: and the tiles of its programs
    assert kernel.supports(Matmul(*fewer, epilogue=Epilogue.RELU), None) is None


@pytest.mark.parametrize("name", ["decompose_k", "last_arriver"])
def test_partials_that_offsets_do_not_reach_are_refused(name):
    problem = Matmul(MANY_MORE, MANY // 4, 4096, epilogue=Epilogue.RELU)
    for kernel in (kernel for kernel in TILUS if kernel.name == name):
        config = kernel.default_config(problem)
        assert kernel.supports(problem, replace(config, split_k=2)) is None
        reason = kernel.supports(problem, replace(config, split_k=4))
        assert reason == "the workspace has 2147483648 elements: tilus' offsets are int32"


@pytest.fixture(scope="module")
def far_memory(tmp_path_factory) -> torch.Tensor:
    """More elements than int32 counts to, in a sparse file that takes no disk and no memory."""
    file = tmp_path_factory.mktemp("far") / "memory"
    return torch.from_file(str(file), shared=True, size=(1 << 31) + 1024, dtype=BF16)


@each_of_tilus
@pytest.mark.parametrize("name", ["a", "b", "out"])
def test_rows_that_offsets_do_not_reach_are_refused(kernel, name, far_memory):
    shapes = {"a": (2, 16), "b": (16, 8), "out": (2, 8)}
    tensors = {name: torch.empty(shape, dtype=BF16) for name, shape in shapes.items()}
    apart = (1 << 31) // (shapes[name][0] - 1)
    tensors[name] = far_memory.as_strided(shapes[name], (apart + 16, 1))
    accepted = "fewer than 2147483648 elements, gaps included"
    with pytest.raises(ValueError, match=rf"{name} has \d+ rows, {apart + 16} elements apart; accepted: {accepted}"):
        kernel.launch(**tensors, epilogue=Epilogue.RELU)


@pytest.mark.parametrize("layout", Layout)
def test_rows_of_every_operand_end_within_int32(layout):
    problem = Matmul(M, N, K, layout=layout)
    of_b = ("b.T", "stride_bn", N) if layout is Layout.NK else ("b", "stride_bk", K)
    for name, stride, rows in (("a", "stride_am", M), of_b, ("out", "stride_cm", M), ("out.T", "stride_cn", N)):
        least = (1 << 31) // rows
        lying = [contiguous(problem)._replace(**{stride: apart}) for apart in (least - 1, least)]
        found = f"{name} has {rows} rows, {least} elements apart; accepted: fewer than 2147483648 elements, "
        assert [beyond_offsets(problem, placement) for placement in lying] == [None, f"{found}gaps included"]


@pytest.mark.gpu  # it takes 16 GiB, ...
@pytest.mark.xdist_group("rows far apart")  # ... once
@pytest.mark.parametrize("kernel", cases.matmul_kernels(kernels_triton), ids=lambda kernel: kernel.full_name)
def test_rows_that_int32_does_not_reach_are_read(kernel, device):
    block_k = kernel.default_config(Matmul(M, N, 1 << 12)).block_k
    problem = Matmul(M, N, 4 * block_k, epilogue=Epilogue.RELU)
    inputs = problem.inputs(device)
    rows_apart = torch.empty_strided((problem.k, N), ((1 << 31) // block_k + 16, 1), dtype=BF16, device=device)
    apart = inputs._replace(b=rows_apart.copy_(inputs.b))
    config = replace(kernel.default_config(problem), block_k=block_k)
    out = cases.run(kernel, problem, apart, config=config)
    cases.assert_right(kernel, problem, Judge(problem, inputs), out, config)


def test_what_the_vector_reducer_counts_is_refused_where_it_is_too_much():
    problem = Matmul(MANY_MORE, MANY, FEW, epilogue=Epilogue.RELU)
    runnable = [kernel for kernel in cases.matmul_kernels(kernels_triton) if not cases.lacks(kernel)]
    refused = {kernel.full_name for kernel in runnable if kernel.supports(problem, None)}
    assert refused == {f"triton/decompose_k.{variant}" for variant in ("vector", "vector_unfused", "vector_pdl")}


@each_kernel
def test_what_is_taken_fits_a_grid_by_the_rule(kernel):
    vocabulary = Matmul(1, 152064, 4096, layout=Layout.NK, epilogue=Epilogue.RELU)
    assert kernel.supports(vocabulary, None) is None
    for m, n, k in [(1, 152064, 4096), (4, 600_000, 64), (1, 4_000_000, 64), (1_000_000, 16, 64), (60_000_000, 1, 16)]:
        problem = Matmul(m, n, k, layout=Layout.NK, epilogue=Epilogue.RELU)
        if reason := kernel.supports(problem, None):
            of_sums = kernel.full_name == "tilus/stream_k" and "the workspace has " in reason  # they are whole tiles
            assert of_sums or "accepted: 65535 or fewer, as a grid holds no more there" in reason
        else:
            taken = [kernel.default_config(problem), *kernel.configs(problem)]
            assert [config for config in taken if kernel.supports(problem, config)] == []


@pytest.mark.parametrize("name", ["triton/decompose_k.tile", "tilus/decompose_k.tile"])
def test_more_splits_than_a_grid_holds_are_refused(name):
    (kernel,) = (kernel for kernel in KERNELS if kernel.full_name == name)
    problem = Matmul(M, N, K)
    assert too_many_blocks({"N": (1 << 16) - 1}) is None
    config = replace(kernel.default_config(problem), split_k=1 << 16)
    assert kernel.supports(problem, config) == (
        "65536 blocks along groups of rows and splits; accepted: 65535 or fewer, as a grid holds no more there"
    )


@each_kernel
def test_an_output_in_memory_of_an_input_is_refused(kernel, device):
    """A kernel would read what it has written already."""
    problem = Matmul(16, 64, 64, BF16, epilogue=cases._any_epilogue(kernel))
    inputs = problem.inputs(device)
    for name, out in (("a", inputs.a), ("b", inputs.b[8:24])):
        before = out.clone()
        with pytest.raises(ValueError, match=rf"out at .* shares memory with {name} at .*; accepted: memory"):
            cases.run(kernel, problem, inputs, out=out)
        assert torch.equal(out, before)


def test_a_view_of_another_library_shares_memory_too():
    base = torch.zeros(1024)
    out = torch.from_dlpack(base.numpy()[16:528]).view(8, 64)
    with pytest.raises(ValueError, match="shares memory with a"):
        checks.check_apart(out, a=base[:512].view(8, 64))
    checks.check_apart(out, a=base[528:].view(8, 62))


def test_columns_side_by_side_share_no_memory(device):
    whole = torch.zeros(8, 64 + 16, dtype=BF16, device=device)
    a, out = whole[:, :64], whole[:, 64:]
    checks.check_apart(out, a=a)
    checks.check_apart(a, b=out)
    checks.check_apart(whole[4:, 64:], a=whole[:4])
    for overlapping in (whole[:, 63:79], whole[2:6, :16], whole.T, whole[:, ::2], whole[3]):
        with pytest.raises(ValueError, match="shares memory with a"):
            checks.check_apart(overlapping, a=a)
    wrapped = whole.as_strided((7, 16), (80, 1), 70)  # its rows end in the next ones of a
    with pytest.raises(ValueError, match="shares memory with a"):
        checks.check_apart(wrapped, a=a)


def test_memory_is_told_apart_as_addresses_do():
    """All that have an address in common are found; what lies behind the other, or row behind row, is let through."""
    memory = torch.zeros(64)
    views = [
        memory.as_strided((2, 3), (row, column), start)
        for row in range(8)
        for column in range(3)
        for start in (0, 3, 4, 6, 9)
    ]
    addresses = {id(view): [view[i, j].data_ptr() for i in range(2) for j in range(3)] for view in views}
    for view in views:
        row, column = view.stride()
        if len(set(addresses[id(view)])) < 6:
            assert checks.overlaps_itself(view)
        elif row > 2 * column or column > row:
            assert not checks.overlaps_itself(view), view.stride()
    single = memory[:1].view(1, 1)
    assert [checks.overlaps_itself(single.expand(shape)) for shape in ((1, 3), (3, 1), (1, 1))] == [True, True, False]
    for shape, strides in (((1, 3), (0, 1)), ((3, 1), (1, 0))):  # the 0 is of what is there once
        assert not checks.overlaps_itself(memory.as_strided(shape, strides))
    for one, other in itertools.combinations(views, 2):
        here, there = addresses[id(one)], addresses[id(other)]
        if not set(here).isdisjoint(there):
            assert checks._share_memory(one, other)
        elif max(here) < min(there):
            assert not checks._share_memory(one, other)


@pytest.mark.parametrize(
    "shape, strides, layout",
    [
        ((4, 3), (3, 1), Layout.KN),
        ((4, 3), (2, 1), None),
        ((4, 3), (1, 4), Layout.NK),
        ((4, 3), (1, 3), None),
        ((4, 3), (8, 2), None),
        ((4, 1), (1, 1), Layout.NK),
        ((4, 1), (5, 1), Layout.KN),
        ((1, 3), (1, 1), Layout.KN),
        ((1, 3), (1, 2), Layout.NK),
    ],
)
def test_the_layout_is_that_of_the_strides(shape, strides, layout):
    assert checks.layout_of(torch.zeros(64).as_strided(shape, strides)) is layout


@each_kernel
@pytest.mark.parametrize("num_warps", [0, 64])
def test_a_block_has_at_most_32_warps(kernel, num_warps):
    problem = Matmul(M, 256, 7168, epilogue=Epilogue.RELU)
    if lacks := kernel.supports(problem, None):
        pytest.skip(lacks)
    config = replace(kernel.default_config(problem), num_warps=num_warps)
    assert kernel.supports(problem, config) == (
        f"num_warps is {num_warps}; accepted: 1 to 32, as a block has 1024 threads at most"
    )


@each_kernel
def test_a_config_holds_what_its_fields_say(kernel):
    """True is equal to 1, and as a number no split."""
    config = kernel.default_config(Matmul(M, N, K))
    checks.check_config(kernel, config)
    with pytest.raises(TypeError, match=r"config\.split_k is True, bool; accepted: int"):
        checks.check_config(kernel, replace(config, split_k=True))
    with pytest.raises(TypeError, match=rf"accepted: {kernel.config_type.__name__} or None"):
        checks.check_config(kernel, tuple(vars(config).values()))


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_a_block_of_the_reducer_has_at_most_32_warps(language):
    (kernel,) = (kernel for kernel in KERNELS if kernel.full_name == f"{language}/decompose_k.vector")
    problem = Matmul(M, 256, 7168)
    config = replace(kernel.default_config(problem), reduce_warps=64)
    assert kernel.supports(problem, config).startswith("reduce_warps is 64; accepted: 1 to 32")


@pytest.mark.parametrize("language", ["triton", "tilus"])
def test_steps_that_int32_does_not_count_are_refused(language):
    (kernel,) = (kernel for kernel in KERNELS if kernel.full_name == f"{language}/stream_k")
    assert kernel.supports(Matmul(*[65536] * 3, dtype=torch.float32, layout=Layout.NK), None) == (
        "2147483648 steps of all tiles; accepted: fewer than 2^31, as a program counts them in int32"
    )
    assert kernel.supports(Matmul(*[32768] * 3, dtype=torch.float32, layout=Layout.NK), None) is None


@pytest.mark.parametrize("name", ["semaphore.fp32", "cluster", "sliced_k.mma", "sliced_k.fma"])
def test_bands_that_int32_does_not_count_are_refused(name):
    """K itself is within reach, and its last step: whole bands, or in sliced_k whole steps, are not."""
    (kernel,) = (kernel for kernel in KERNELS if kernel.full_name == f"triton/{name}")
    if lacking := cases.lacks(kernel):
        pytest.skip(lacking)
    problem = Matmul(1, 1, (1 << 31) - (8 if name.startswith("sliced_k") else 128))
    config = kernel.default_config(problem)
    if not name.startswith("sliced_k"):
        config = replace(config, block_k=64, split_k=4)
    refused = kernel.supports(problem, config)
    assert refused.endswith("bands of K end at 2147483648; accepted: less than 2^31, as a program counts K in int32")
    assert kernel.supports(replace(problem, k=1 << 30), config) is None


def test_a_workspace_of_whole_tiles_that_offsets_do_not_reach_is_refused():
    (kernel,) = (kernel for kernel in KERNELS if kernel.full_name == "tilus/stream_k")
    problem = Matmul(33, 34_004_000, 63, torch.float32, layout=Layout.NK)  # C is within reach
    assert kernel.supports(problem, None) == "the workspace has 2177866609 elements: tilus' offsets are int32"


def test_the_default_tile_is_of_one_rule_where_a_grid_has_no_room():
    problem = Matmul(1, 2_000_000, 64, layout=Layout.NK)
    for name in ("data_parallel", "decompose_k.vector", "semaphore.fp32", "atomic", "last_arriver"):
        triton, tilus = (kernel for kernel in KERNELS if kernel.full_name.endswith(f"/{name}"))
        assert triton.supports(problem, None) == tilus.supports(problem, None) is None
        assert triton.default_config(problem).block_n == tilus.default_config(problem).block_n == 32


def of_another_kind(tensor: Tensor) -> list[Tensor]:
    """As many as differ from it in one thing each: shape, strides, alignment, dtype, a lazy sign, memory; and one that
    differs from the last in its device."""
    rows, columns = tensor.shape
    freed = tensor.clone()
    freed.untyped_storage().resize_(0)
    apart = tensor.new_zeros(rows, 2 * columns)[:, :columns]
    shifted = tensor.new_zeros(tensor.numel() + 1)[1:].view(rows, columns)
    return [tensor[:-16], apart, shifted, tensor.half(), torch._neg_view(tensor), freed, tensor.to("meta")]


def test_a_call_that_differs_in_anything_is_settled_on_its_own(monkeypatch):
    """And one that differs in nothing is not settled again."""
    settled = []

    def settle(*given):
        settled.append(given)
        return lambda out, **inputs: out

    monkeypatch.setattr(call, "_planned", settle)
    kernel, config = contenders.find("triton/data_parallel"), MatmulConfig(16, 16, 64, 1, 4, 2)
    a, b, out = (torch.zeros(64, 64, dtype=torch.bfloat16) for _ in range(3))
    usual = {"a": a, "b": b, "epilogue": Epilogue.NONE, "bias": None, "out": out, "out_dtype": None, "config": None}
    others = [{name: tensor} for name in ("a", "b", "out") for tensor in of_another_kind(usual[name])]
    others += [{"out": None}, {"bias": torch.zeros(64)}, {"out_dtype": torch.float32}, {"epilogue": Epilogue.RELU}]
    others += [{"epilogue": Epilogue.NONE.value}, {"config": config}, {"config": replace(config, num_stages=3)}]
    others += [{"kernel": contenders.find("triton/atomic")}, {"kernel": contenders.find("tilus/data_parallel")}]
    for changed in ({}, *others):
        before = len(settled)
        for _ in range(3):
            call.launched(**{"kernel": kernel} | usual | changed)
        assert len(settled) == before + 1, changed
