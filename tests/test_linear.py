"""`linear` and `matmul`: the operator in torch's own tests, and which way a call goes, with interpreters for a GPU."""

import copy
import io
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import BaseTorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from triton_vs_tilus import kernels_tilus, kernels_triton
from triton_vs_tilus.common import building, call, devices, dispatch, linear, plan, tuned
from triton_vs_tilus.common.dispatch import Choice
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Language
from triton_vs_tilus.common.problem import Layout, Matmul

BF16 = torch.bfloat16
CHOOSE = dispatch.choose  # where a test has another in its place
PACKAGES = {"triton": kernels_triton, "tilus": kernels_tilus}
each_package = pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
ON_CPU = [
    pytest.param(kernels_triton, id="triton", marks=pytest.mark.interpreted),
    pytest.param(kernels_tilus, id="tilus"),
]
each_package_on_cpu = pytest.mark.parametrize("package", ON_CPU)


def tensors(*lead: int, n: int = 16, k: int = 64, dtype: torch.dtype = BF16):
    return torch.randn(*lead, k).to(dtype), (torch.randn(n, k) / k**0.5).to(dtype), torch.randn(n).to(dtype)


def operator(package):
    return package.linear.__self__


# In torch


def test_a_plain_call_on_a_gpu_alone_goes_past_torchs_dispatcher(monkeypatch):
    def is_eager(*given):
        return linear._is_eager(*given)

    x, weight, bias = tensors(4)
    assert not is_eager(x, weight, None)  # on a CPU
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: True), raising=False)
    assert is_eager(x, weight, None) and is_eager(x, weight, bias)

    parameter = torch.nn.Parameter(weight)
    assert not is_eager(x, parameter, bias) and not is_eager(x, weight, parameter)
    with torch.no_grad():
        assert is_eager(x, parameter, bias)
    with torch.inference_mode():
        assert is_eager(x, parameter, bias)
    assert not is_eager(x.as_subclass(type("Own", (torch.Tensor,), {})), weight, None)
    assert not is_eager(torch._neg_view(x), weight, None) and not is_eager(x, weight, torch._neg_view(bias))

    assert not is_eager(torch._efficientzerotensor(x.shape, dtype=BF16), weight, None)

    torch.set_autocast_enabled("cuda", True)
    try:
        assert not is_eager(x, weight, None)
    finally:
        torch.set_autocast_enabled("cuda", False)
    for mode in (BaseTorchFunctionMode, TorchDispatchMode):
        with mode():
            assert not linear._is_eager(x, weight, None)
    with forward_ad.dual_level():
        assert not is_eager(x, weight, None)
    seen = []
    torch.vmap(lambda row: seen.append(is_eager(row, weight, None)) or row)(x)
    torch.jit.trace(lambda x: seen.append(is_eager(x, weight, None)) or x, x, check_trace=False)
    torch.compile(lambda x: x + is_eager(x, weight, None), backend=lambda graph, _: seen.append(graph) or graph)(x)
    assert seen[:2] == [False, False] and "is_eager" not in seen[2].code


@each_package
def test_torchs_own_checks_of_an_operator_pass(package):
    x, weight, bias = tensors(2, 3, dtype=torch.float32)
    op = operator(package).op
    torch.library.opcheck(op, (*map(torch.Tensor.requires_grad_, (x, weight, bias)), "silu", False, None))
    torch.library.opcheck(op, (*(tensors(4)[:2]), None, None, True, torch.float32))


@each_package
@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (0,), (2, 0)])
def test_it_is_torchs_linear_of_any_leading_dimensions(package, lead):
    x, weight, bias = tensors(*lead)
    expected = torch.nn.functional.linear(x, weight, bias)
    assert torch.equal(package.linear(x, weight, bias), expected)
    assert torch.equal(package.linear(x, weight, bias, "sigmoid"), torch.sigmoid(expected))
    assert torch.equal(package.matmul(x, weight.t()), torch.nn.functional.linear(x, weight))
    wide = package.linear(x, weight, out_dtype=torch.float32)
    assert torch.equal(wide, torch.nn.functional.linear(x.float(), weight.float()))


@pytest.mark.parametrize("shape", [(0, 64), (2, 0, 64), (3, 0), (64,)])
def test_without_a_kernel_a_wider_output_has_the_leading_dimensions_of_x_empty_ones_too(shape):
    with FakeTensorMode():
        x, weight = (torch.empty(size, dtype=BF16, device="cuda") for size in (shape, (16, shape[-1])))
        y = linear._by_torch(x, weight, None, None, False, torch.float32)
    assert (y.shape, y.dtype) == ((*shape[:-1], 16), torch.float32)


@each_package
@pytest.mark.parametrize("learns", [False, True])
def test_compiled_whole_it_takes_any_number_of_tokens_without_compiling_anew(package, learns):
    weight = tensors()[1].requires_grad_(learns)
    torch._dynamo.reset()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x: package.linear(x, weight, activation="relu"), fullgraph=True, backend=count)
    for tokens in (2, 3, 17):
        x = tensors(tokens)[0]
        torch._dynamo.mark_dynamic(x, 0)
        y = compiled(x)
        assert torch.equal(y, torch.relu(torch.nn.functional.linear(x, weight)))
        if learns:
            (mine,), (theirs,) = (
                torch.autograd.grad(out.float().square().sum(), weight)
                for out in (y, torch.relu(torch.nn.functional.linear(x, weight)))
            )
            torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    assert len(graphs) == 1


class Router(torch.nn.Module):
    def __init__(self, package, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.linear = package.linear

    def forward(self, x):
        return self.linear(x, self.weight)

    def exported(self, x):
        """For any number of tokens."""
        return torch.export.export(self, (x,), dynamic_shapes={"x": {0: torch.export.Dim("tokens")}})


@each_package
def test_it_is_exported_as_one_operator(package):
    exported = Router(package, tensors()[1]).exported(tensors(4)[0])
    called = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert called == [operator(package).op]
    assert exported.module()(tensors(7)[0]).shape == (7, 16)


@each_package
def test_a_module_that_holds_it_is_copied_and_saved(package):
    module = Router(package, tensors()[1])
    saved = io.BytesIO()
    torch.save(module, saved)
    saved.seek(0)
    for other in (copy.deepcopy(module), torch.load(saved, weights_only=False)):
        assert other.linear.__self__ is operator(package) and other.weight is not module.weight


@each_package
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("activation", [None, "relu", "silu", "sigmoid"])
def test_gradients_are_torchs(package, activation, create_graph):
    leaves = [tensor.requires_grad_() for tensor in tensors(2, 3, dtype=torch.float32)]
    expected = torch.nn.functional.linear(*leaves)
    expected = getattr(torch.nn.functional, activation)(expected) if activation else expected
    upstream = torch.randn_like(expected)
    theirs = torch.autograd.grad(expected, leaves, upstream)
    found = torch.autograd.grad(package.linear(*leaves, activation), leaves, upstream, create_graph=create_graph)
    for mine, other in zip(found, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@each_package
@pytest.mark.parametrize("activation", [None, "silu"])
def test_an_output_that_backward_does_not_read_may_be_changed_in_place(package, activation):
    x, weight, _ = tensors(4, dtype=torch.float32)
    weight.requires_grad_()
    doubled, plain = (package.linear(x, weight, None, activation) for _ in range(2))
    doubled.mul_(2)
    grads = [torch.autograd.grad(y.sum(), weight)[0] for y in (doubled, plain)]
    torch.testing.assert_close(grads[0], 2 * grads[1])


@each_package
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize("out_dtype", [None, torch.float32])
def test_tangents_are_torchs(package, activation, out_dtype):
    given = tensors(2, 3)
    tangents = tuple(map(torch.randn_like, given))

    def theirs(*given):
        y = torch.nn.functional.linear(*(each.to(out_dtype or BF16) for each in given))
        return torch.nn.functional.silu(y) if activation else y

    def mine(*given):
        return package.linear(*given, activation, out_dtype=out_dtype)

    assert all(map(torch.equal, torch.func.jvp(mine, given, tangents), torch.func.jvp(theirs, given, tangents)))
    with forward_ad.dual_level():
        x = forward_ad.make_dual(given[0].requires_grad_(), tangents[0])
        assert forward_ad.unpack_dual(mine(x, *given[1:])).tangent is not None
        plain = mine(given[0].detach(), *given[1:])
        assert forward_ad.unpack_dual(plain).tangent is None and torch.equal(plain, theirs(*given))
    with FakeTensorMode():  # as on a GPU, where torch has a product into another dtype, of which it has no derivative
        given, tangents = (
            [torch.empty(each.shape, dtype=each.dtype, device="cuda") for each in some] for some in (given, tangents)
        )
        y, tangent = torch.func.jvp(mine, tuple(given), tuple(tangents))
    assert y.dtype == tangent.dtype == (out_dtype or BF16) and y.shape == tangent.shape == (2, 3, 16)


@each_package
@pytest.mark.parametrize("out_dtype", [None, torch.float32])
def test_transformed_it_is_torchs(package, out_dtype):
    """As for gradients of each sample by itself."""
    x, weight, bias = tensors(4)

    def loss(weight, bias, row, linear):
        return linear(row, weight, bias).float().square().sum()

    def mine(*given):
        return package.linear(*given, out_dtype=out_dtype)

    def theirs(*given):
        return torch.nn.functional.linear(*(each.to(out_dtype or BF16) for each in given))

    samples = [
        torch.vmap(torch.func.grad(partial(loss, linear=linear), argnums=(0, 1)), in_dims=(None, None, 0))(
            weight, bias, x
        )
        for linear in (mine, theirs)
    ]
    assert all(map(torch.equal, *samples))
    by_row = [torch.vmap(linear, in_dims=(0, None, None))(x, weight, bias) for linear in (mine, theirs)]
    assert torch.equal(*by_row)


@each_package
@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"activation": torch.relu}, ValueError, "activation is <built-in method relu"),
        ({"activation": ["relu"]}, ValueError, r"activation is \['relu'\]; accepted: None, 'relu'"),
        ({"out_dtype": "float32"}, TypeError, "out_dtype is 'float32'; accepted: None, that of x"),
        ({"bias": 5.0}, TypeError, "bias is float; accepted: torch.Tensor"),
    ],
)
def test_what_the_dispatcher_would_refuse_is_named(package, options, error, told):
    x, weight, _ = tensors(4)
    with pytest.raises(error, match=told):
        package.linear(x, weight, **options)


@each_package
@pytest.mark.parametrize(
    ("weight", "bias", "told"),
    [((64,), None, r"weight has shape \(64,\)"), ((16, 64), (1,), r"bias has shape \(1,\); accepted: \(16,\)")],
)
def test_under_autocast_shapes_must_fit_too(package, weight, bias, told):
    given = [torch.randn(4, 64), torch.randn(weight), None if bias is None else torch.randn(bias)]
    with torch.autocast("cpu", BF16), pytest.raises(ValueError, match=told):
        package.linear(*given)


def test_what_lacks_a_compiler_is_explained_and_not_prepared(monkeypatch):
    weight = tensors()[1]
    monkeypatch.setattr(kernels_tilus.linear.__self__, "lacks", lambda: "nvcc is not on PATH")
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda", 0), raising=False)
    assert kernels_tilus.explain(tensors(4)[0], weight).why == "nvcc is not on PATH"
    assert kernels_tilus.explain(tensors(4)[0], weight, device="h200").why != "nvcc is not on PATH"
    with pytest.raises(RuntimeError, match="tilus's kernels cannot be built: nvcc is not on PATH"):
        kernels_tilus.prepare(weight)
    with pytest.raises(TypeError, match=r"weight is list; accepted: torch\.Tensor"):
        kernels_tilus.prepare([1])


@each_package
@pytest.mark.parametrize("activation", ["relu", "silu", "sigmoid"])
def test_gradients_of_gradients_are_right(package, activation):
    leaves = [tensor.double().requires_grad_() for tensor in (torch.randn(2, 3), torch.randn(4, 3), torch.randn(4))]
    assert torch.autograd.gradgradcheck(lambda *given: package.linear(*given, activation), leaves)


@each_package
def test_relu_lets_no_gradient_through_where_it_is_0_not_even_an_infinite_one(package):
    x = torch.tensor([[1.0, -100.0]], requires_grad=True)
    y = package.linear(x, torch.eye(2), None, "relu")
    theirs = torch.nn.functional.linear(x, torch.eye(2)).relu()
    grad, expected = (torch.autograd.grad(out, x, torch.full_like(out, float("inf")))[0] for out in (y, theirs))
    assert grad[0, 0] == float("inf")
    torch.testing.assert_close(grad, expected, equal_nan=True)


@each_package
@pytest.mark.parametrize("shapes", [((2, 4), (0, 4)), ((2, 0), (3, 0)), ((0, 4), (3, 4))], ids=str)
def test_gradients_of_nothing_have_its_shape(package, shapes):
    leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
    package.linear(*leaves).sum().backward()
    assert [leaf.grad.shape for leaf in leaves] == [leaf.shape for leaf in leaves]


@each_package
def test_autocast_casts_as_it_does_for_torch(package):
    x, weight, bias = tensors(4, dtype=torch.float32)
    weight.requires_grad_()
    with torch.autocast("cpu", BF16):
        y = package.linear(x, weight, bias)
        assert torch.equal(y, torch.nn.functional.linear(x, weight, bias)) and y.dtype is BF16
        assert package.linear(x, weight, out_dtype=torch.float32).dtype is torch.float32
        assert package.matmul(x.to(BF16), weight.t()).dtype is BF16
        doubles = x.double(), weight.double()
        for out_dtype in (None, torch.float64):
            assert torch.equal(package.linear(*doubles, out_dtype=out_dtype), torch.nn.functional.linear(*doubles))
        with pytest.raises(ValueError, match="activation is 'gelu'; accepted: None, 'relu', 'silu', 'sigmoid'"):
            package.linear(x, weight, activation="gelu")
        words = "out_dtype is torch.float16; accepted: None, that of autocast, torch.bfloat16, torch.float32"
        with pytest.raises(TypeError, match=words):
            package.linear(x.half(), weight.half(), out_dtype=torch.float16)
    y.sum().backward()
    assert weight.grad.dtype is torch.float32


@each_package
def test_inference_mode_and_tensors_without_data(package):
    x, weight, _ = tensors(4)
    with torch.inference_mode():
        assert package.linear(x, weight).is_inference()
    with FakeTensorMode() as mode:
        fake = package.linear(*map(mode.from_tensor, (x, weight)), out_dtype=torch.float32)
    assert (fake.shape, fake.dtype) == ((4, 16), torch.float32)


@each_package
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x": torch.ones(4, 63, dtype=BF16)}, ValueError, r"x has shape \(4, 63\); accepted: \(..., 64\)"),
        ({"x": torch.ones(4, 64)}, TypeError, "weight has dtype torch.bfloat16; accepted: that of x, torch.float32"),
        ({"weight": torch.ones(64, dtype=BF16)}, ValueError, r"weight has shape \(64,\); accepted: \(N, K\)"),
        ({"x": torch.ones((), dtype=BF16)}, ValueError, r"x has shape \(\); accepted: \(..., 64\)"),
        ({"bias": torch.ones(15, dtype=BF16)}, ValueError, r"bias has shape \(15,\); accepted: \(16,\)"),
        ({"bias": torch.ones(1, 16, dtype=BF16)}, ValueError, r"bias has shape \(1, 16\); accepted: \(16,\)"),
        (
            {"weight": torch.ones(16, 64, device="meta", dtype=BF16)},
            ValueError,
            "weight is on meta; accepted: the device",
        ),
        ({"bias": torch.ones(16, device="meta", dtype=BF16)}, ValueError, "bias is on meta; accepted: the device of x"),
        ({"activation": "gelu"}, ValueError, "activation is 'gelu'; accepted: None, 'relu', 'silu', 'sigmoid'"),
        ({"out_dtype": torch.float16}, TypeError, "out_dtype is torch.float16; accepted: None, that of x"),
        ({"x": [1.0]}, TypeError, r"x is list; accepted: torch\.Tensor"),
        (
            {name: torch.ones(1, 1).double() for name in ("x", "weight")} | {"bias": None, "out_dtype": torch.float32},
            TypeError,
            "out_dtype is torch.float32; accepted: None, that of x, torch.float64$",
        ),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_error(package, change, error, words):
    x, weight, bias = tensors(4)
    with pytest.raises(error, match=words):
        package.linear(**({"x": x, "weight": weight, "bias": bias} | change))


@each_package
def test_bad_input_of_a_product_is_one_clear_error(package):
    with pytest.raises(TypeError, match=r"a is list; accepted: torch\.Tensor"):
        package.matmul([1.0], torch.ones(1, 1))
    with pytest.raises(TypeError, match=r"b has dtype torch\.float16; accepted: that of a, torch\.float32"):
        package.matmul(torch.ones(1, 1), torch.ones(1, 1).half())
    with pytest.raises(ValueError, match=r"a has shape \(\); accepted: \(..., K\)"):
        package.matmul(torch.tensor(1.0), torch.ones(1, 1))
    with pytest.raises(ValueError, match=r"b has shape \(4,\); accepted: \(4, N\), as a has shape \(2, 4\)"):
        package.matmul(torch.ones(2, 4), torch.ones(4))
    with pytest.raises(ValueError, match="b is on meta; accepted: the device of a, cpu"):
        package.matmul(torch.ones(2, 4), torch.ones(4, 3, device="meta"))
    with pytest.raises(ValueError, match="weight is on cpu; accepted: a weight that `linear` takes, on a CUDA device"):
        package.prepare(torch.ones(16, 64, dtype=BF16))
    with pytest.raises(ValueError, match=r"weight has shape \(\); accepted: \(N, K\)"):
        package.prepare(torch.tensor(1.0))
    with pytest.raises(ValueError, match="max_tokens is None; accepted: an int, 1 or more"):
        package.prepare(torch.ones(1, 1), None)


@each_package
def test_no_tokens_are_nothing_to_prepare_for(package):
    with pytest.raises(ValueError, match="max_tokens is 0; accepted: an int, 1 or more"):
        package.prepare(tensors()[1], max_tokens=0)


# As on a GPU: which way a call goes


class FakeGpu:
    """What stands for an H200 around `_on_gpu` on CPU tensors: interpreters launch, builds are done when they say."""

    def __init__(self, package, monkeypatch):
        self.made = linear._Language.__new__(linear._Language)
        for name, value in vars(operator(package)).items():
            setattr(self.made, name, type(value)() if isinstance(value, dict | set) else value)
        self.jobs: list[SimpleNamespace] = []
        self.capturing = False
        monkeypatch.setattr(tuned, "slug_of", lambda device: "h200")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        monkeypatch.setattr(linear, "is_capturing", lambda device: self.capturing)
        monkeypatch.setattr(building, "build_in_background", self.build)
        monkeypatch.setattr(linear.dispatch, "choose", self.choose)
        linear._say_once.cache_clear()

    def choose(self, kernels, problem, slug, deterministic):
        kernel = next(kernel for kernel in kernels if kernel.name == "last_arriver")
        return Choice(kernel, kernel.default_config(problem), "made")

    def build(self, program, device):
        self.jobs.append(SimpleNamespace(program=program, done=False, reason=""))
        return self.jobs[-1]

    def __call__(self, x, weight, bias=None, activation=None, deterministic=False, out_dtype=None):
        return self.made._on_gpu(x, weight, bias, activation, deterministic, out_dtype)


@pytest.fixture(params=ON_CPU)
def gpu(request, monkeypatch):
    return FakeGpu(request.param, monkeypatch)


@pytest.fixture
def launches(monkeypatch):
    """The plans that are launched."""
    launched = []
    real = plan.Call.__call__
    monkeypatch.setattr(plan.Call, "__call__", lambda self, *args: (launched.append(self.plan), real(self, *args))[1])
    return launched


def assert_close(y, x, weight, bias=None):
    torch.testing.assert_close(y.float(), torch.nn.functional.linear(x, weight, bias).float(), rtol=2e-2, atol=2e-2)


def test_until_its_kernel_is_built_a_call_takes_torchs_path(gpu, launches):
    x, weight, _ = tensors(4)
    for _ in range(2):
        assert torch.equal(gpu(x, weight), torch.nn.functional.linear(x, weight))
    assert len(gpu.jobs) == 1 and not launches
    gpu.jobs[0].done = True
    gpu(x, weight)  # finds that it is
    for _ in range(2):
        assert_close(gpu(x, weight), x, weight)
    assert len(gpu.jobs) == 1 and len(launches) == 2
    assert launches[0] is launches[1]  # planned once
    more = tensors(5)[0]  # what is built serves every number of tokens
    assert_close(gpu(more, weight), more, weight)
    assert len(gpu.jobs) == 1 and len(launches) == 3


def built(gpu, *args, **options):
    """What a call returns once all is built."""
    gpu(*args, **options)
    for job in gpu.jobs:
        job.done = True
    gpu(*args, **options)
    return gpu(*args, **options)


@pytest.mark.parametrize("order", ["contiguous", "transposed"])
def test_a_kernel_takes_rows_of_any_leading_dimensions_and_strides(gpu, launches, order):
    x, weight, bias = tensors(2, 3)
    if order == "transposed":
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    y = built(gpu, x, weight, bias, out_dtype=torch.float32)
    assert launches and y.shape == (2, 3, 16) and y.dtype is torch.float32
    assert_close(y, x, weight, bias)


def test_rows_beyond_the_reach_of_offsets_are_torchs_and_spoil_nothing_for_others(monkeypatch):
    """No kernel of tilus adds up offsets beyond int32. An operand's last row here is not there to be read."""
    gpu = FakeGpu(kernels_tilus, monkeypatch)
    problem = Matmul(1024, 16, 64, layout=Layout.NK)
    lying = plan.contiguous(problem)._replace(stride_am=1 << 21)
    given = (kernels_tilus.KERNELS, problem, lying, "h200", "sm_90a", False)
    choice, program = linear.way(*given)
    assert program is None and choice.kernel is None and "a has 1024 rows, 2097152 elements apart" in choice.why
    assert linear.way(given[0], replace(problem, m=512), *given[2:])[1] is not None

    x, weight, _ = tensors(4)
    monkeypatch.setattr(linear, "placement_of", lambda *given: lying._replace(stride_am=1 << 30))
    for _ in range(2):
        assert torch.equal(gpu(x, weight), torch.nn.functional.linear(x, weight))
    assert not gpu.jobs


def test_a_weight_in_either_layout_is_read_as_it_stands(gpu, launches):
    x, weight, _ = tensors(4)
    assert_close(built(gpu, x, weight.t().contiguous().t()), x, weight)
    assert launches[0].problem.layout is Layout.KN


def test_another_alignment_is_another_plan(gpu, launches):
    x, weight, _ = tensors(4)
    wide = torch.zeros(4, 65, dtype=BF16)
    wide[:, 1:] = x
    assert_close(built(gpu, wide[:, 1:], weight), x, weight)
    assert_close(built(gpu, x, weight), x, weight)
    assert [each.placement.align_a for each in launches] == [2, plan.WIDEST]


def test_a_call_that_differs_in_anything_is_settled_on_its_own(gpu, monkeypatch):
    settled = []

    def settle(key, *given):
        settled.append(key)
        gpu.made._runs[key] = lambda x, weight, bias: x
        return gpu.made._runs[key]

    def beside(tensor):
        """The same numbers at an address that is aligned to 2 bytes."""
        memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
        return memory[1:].view(tensor.shape).copy_(tensor)

    monkeypatch.setattr(gpu.made, "_settled", settle)
    x, weight, bias = tensors(4, k=16)
    calls = [
        ((x, weight), {}),
        ((x[:3], weight), {}),
        ((x.t().contiguous().t(), weight), {}),
        ((x.half(), weight), {}),
        ((beside(x), weight), {}),
        ((x, weight[:8]), {}),
        ((x, weight.t()), {}),
        ((x, weight.half()), {}),
        ((x, beside(weight)), {}),
        ((x, weight, bias), {}),
        ((x, weight, bias[:8]), {}),
        ((x, weight, bias.half()), {}),
        ((x, weight, torch.stack([bias, bias], 1)[:, 0]), {}),
        ((x, weight, beside(bias)), {}),
        ((x, weight), {"activation": "relu"}),
        ((x, weight), {"deterministic": True}),
        ((x, weight), {"out_dtype": torch.float32}),
    ]
    for _ in range(2):  # each once
        for given, options in calls:
            gpu(*given, **options)
    assert len(settled) == len(set(settled)) == len(calls)


@pytest.fixture
def precision():
    """Sets torch's precision of fp32 products by any of its settings; the former one is back afterwards."""
    settings = {
        "older": torch.set_float32_matmul_precision,
        "newer": partial(setattr, torch.backends.cuda.matmul, "fp32_precision"),
        "of all": partial(setattr, torch.backends, "fp32_precision"),
    }

    def reset():
        for setting, value in (("older", "highest"), ("newer", "none"), ("of all", "none")):
            settings[setting](value)

    reset()
    yield lambda setting, value: settings[setting](value)
    reset()


@pytest.mark.parametrize(
    ("setting", "value", "back"), [("older", "high", "highest"), ("newer", "tf32", "ieee"), ("of all", "tf32", "none")]
)
def test_fp32_is_torchs_while_it_may_round_to_tf32_and_settled_anew_after(gpu, precision, setting, value, back):
    rounds = []
    real, gpu.made._settled = gpu.made._settled, lambda *given: rounds.append(dispatch.rounds_to_tf32()) or real(*given)
    x, weight, _ = tensors(4, dtype=torch.float32)
    problem = Matmul(16, 256, 7168, torch.float32, layout=Layout.NK)
    for now in (back, value, back):
        precision(setting, now)
        assert ("TF32" in CHOOSE(kernels_triton.KERNELS, problem, "h200").why) is (now == value)
        gpu(x, weight)
        gpu(x, weight)
    assert rounds == [False, True]


def test_no_more_kinds_of_calls_are_kept_than_there_is_room_for(gpu, monkeypatch):
    monkeypatch.setattr(linear, "MOST_RUNS", 2)
    weight = tensors()[1]
    gpu.made.lacks = lambda: "no compiler"
    with pytest.warns(RuntimeWarning, match="no compiler"):
        for tokens in range(1, 6):
            gpu(tensors(tokens)[0], weight)
            assert 1 <= len(gpu.made._runs) <= 2


def test_rows_that_overlap_or_have_no_unit_stride_are_copied():
    memory = torch.arange(24.0)
    for rows in (memory.as_strided((3, 8), (4, 1)), memory.view(8, 3).t(), memory[:8].expand(3, 8)):
        assert torch.equal(linear._rows(rows), rows) and linear._rows(rows).is_contiguous()
    for rows in (memory.view(3, 8), memory.view(3, 8)[:, :5], memory[:8].view(1, 8), memory.as_strided((3, 1), (2, 5))):
        assert linear._rows(rows).data_ptr() == rows.data_ptr()


def test_what_no_kernel_reads_is_torchs():
    x, weight, bias = tensors(4)
    pose = partial(linear._problem, activation=None, out_dtype=None)
    assert isinstance(pose(x, weight, bias), Matmul)
    for given in [
        (x, weight, torch.stack([bias, bias], 1)[:, 0]),
        (x, torch._neg_view(weight), None),
        (torch._neg_view(x), weight, None),
    ]:
        assert pose(*given) == "weight or bias is a view that no kernel reads"
    for empty in ((x[:0], weight, bias), (x, weight[:0], bias[:0]), (x[:, :0], weight[:, :0], bias)):
        assert pose(*empty) == "nothing is to be computed"
    assert pose(x.double(), weight.double(), None).endswith("not torch.float64")


@each_package
def test_determinism_is_asked_for_by_every_way(package, monkeypatch):
    asked = []
    x, weight, _ = tensors(4)

    def choose(kernels, problem, slug, deterministic):
        asked.append((problem.m, deterministic))
        return Choice(None, None, "made")

    monkeypatch.setattr(linear.dispatch, "choose", choose)
    problem = Matmul(1, 16, 64, layout=Layout.NK)
    linear.ways(package.KERNELS, problem, 3, plan.contiguous(problem), "h200", "sm_90a", True)
    package.explain(x, weight, device="h200", deterministic=True)
    package.explain(x, weight, device="h200")
    assert asked == [(1, True), (2, True), (3, True), (4, True), (4, False)]

    given = []
    language = operator(package)
    monkeypatch.setattr(language, "op", lambda *all_of_it: given.append(all_of_it[4]))
    for wanted in (True, False):
        language.matmul(x, weight.t(), deterministic=wanted)
    assert given == [True, False]


def test_a_call_that_asks_for_determinism_gets_it(gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(linear.dispatch, "choose", lambda *given: asked.append(given[3]) or Choice(None, None, "made"))
    for wanted in (True, False):
        gpu(*tensors(4)[:2], deterministic=wanted)
    assert asked == [True, False]


def test_within_a_capture_nothing_is_loaded(gpu, launches):
    x, weight, _ = tensors(4)
    gpu(x, weight)
    gpu.jobs[0].done = True
    gpu.capturing = True
    for _ in range(2):
        assert torch.equal(gpu(x, weight), torch.nn.functional.linear(x, weight))
    assert not launches
    gpu.capturing = False
    gpu(x, weight)
    assert launches


def test_torch_stands_in_with_the_activation_and_the_dtype_that_are_asked_for(gpu, launches):
    x, weight, bias = tensors(4)
    plain = torch.nn.functional.linear(x, weight, bias)
    assert torch.equal(gpu(x, weight, bias, activation="relu"), plain.relu()) and (plain < 0).any()
    assert gpu(x, weight, out_dtype=torch.float32).dtype is torch.float32
    assert gpu.jobs and not launches


def test_what_cannot_be_built_is_said_once_and_left_to_torch(gpu, launches):
    x, weight, _ = tensors(4)
    gpu(x, weight)
    gpu.jobs[0].done, gpu.jobs[0].reason = True, "nvcc fatal"
    gpu(x, weight)
    with pytest.warns(RuntimeWarning, match="cannot be built, and torch is taken: nvcc fatal"):
        gpu(x, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(gpu(x, weight), torch.nn.functional.linear(x, weight))
    assert len(gpu.jobs) == 1 and not launches


def assert_warns_once(gpu, words):
    """At the first call, and not for other tokens by the same weight."""
    x, weight, _ = tensors(4)
    with pytest.warns(RuntimeWarning, match=words):
        gpu(x, weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gpu(tensors(5)[0], weight)


def test_without_a_compiler_torch_is_taken_and_it_is_said_once(gpu):
    gpu.made.lacks = lambda: "tilus compiles with nvcc and g++: nvcc not found on PATH"
    assert_warns_once(gpu, "takes torch's path: tilus compiles with nvcc")
    assert not gpu.jobs


def test_a_device_without_a_table_is_said_once(gpu, monkeypatch):
    monkeypatch.setattr(tuned, "slug_of", lambda device: "a100")
    assert_warns_once(gpu, "no kernel was timed on a100")


@pytest.mark.parametrize("known", [True, False])
def test_what_a_call_allocates_is_as_torch_allocates_it(known, monkeypatch):
    """By a function that is private to torch, or without it."""
    if not known:
        monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu")
    empty = plan._allocator(torch.device("cpu"))
    for inference in (False, True):
        with torch.inference_mode(inference):
            y, like = empty(*plan._contiguous((3, 1, 5), BF16)), torch.empty(3, 1, 5, dtype=BF16)
        assert (y.shape, y.stride(), y.dtype, y.device) == (like.shape, like.stride(), like.dtype, like.device)
        assert y.is_inference() is inference and not y.requires_grad


@each_package
def test_torch_is_asked_for_determinism_too(package, monkeypatch):
    """By a call, by `prepare` and by `explain`."""
    gpu, asked = FakeGpu(package, monkeypatch), []
    monkeypatch.setattr(linear.dispatch, "choose", lambda *given: asked.append(given[3]) or Choice(None, None, "made"))
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    x, weight, _ = tensors(4)
    gpu(x, weight)
    gpu.made.explain(x, weight, device="h200")
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda", 0), raising=False)
    monkeypatch.setattr(devices, "on", lambda device: nullcontext())
    gpu.made.prepare(weight, max_tokens=1)
    assert asked == [True] * 3


@each_package_on_cpu
def test_a_launcher_refuses_what_requires_a_gradient_and_loses_it(package):
    x, weight, _ = tensors(4)
    weight.requires_grad_()
    kernel = next(kernel for kernel in package.KERNELS if kernel.name == "data_parallel")
    words = r"b requires a gradient, and kernels have no backward; accepted: b\.detach\(\), a call under torch\.no_grad"
    with torch.no_grad():
        kernel.launch(x, weight.t())
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            kernel.launch(x, weight.t())
    out = torch.empty(4, 16, dtype=BF16)
    with torch.no_grad():
        kernel.launch(x, weight.t(), out=out)
    with pytest.raises(ValueError, match="out requires a gradient"):
        kernel.launch(x, weight.detach().t(), out=out.requires_grad_())
    with forward_ad.dual_level(), torch.no_grad():
        kernel.launch(x, weight.t())
        with pytest.raises(ValueError, match="a has a tangent, and kernels have no derivative; accepted: its primal"):
            kernel.launch(forward_ad.make_dual(x, x), weight.t())


class Around(torch.Tensor):
    """Has another tensor's sizes, and no memory."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, strides=inner.stride())

    @classmethod
    def __torch_dispatch__(cls, *given):
        raise AssertionError("computed")


@each_package_on_cpu
@pytest.mark.parametrize("without", [lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype), Around])
def test_a_launcher_refuses_what_has_no_memory(package, without):
    x, weight, _ = tensors(4)
    kernel = next(kernel for kernel in package.KERNELS if kernel.name == "data_parallel")
    for _ in range(2):  # before and after a plain tensor of this kind
        with pytest.raises(ValueError, match=r"a is .* at address 0; accepted: a tensor with memory of its own"):
            kernel.launch(without(x), weight.t())
        kernel.launch(x, weight.t())


@each_package_on_cpu
def test_autograd_sees_that_out_was_written_to(package):
    x, weight, _ = tensors(4)
    kernel = next(kernel for kernel in package.KERNELS if kernel.name == "data_parallel")
    factor, out = torch.ones(4, 16, dtype=BF16, requires_grad=True), torch.ones(4, 16, dtype=BF16)
    product = factor * out
    with torch.no_grad():
        kernel.launch(x, weight.t(), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()
    with torch.inference_mode():
        assert kernel.launch(x, weight.t(), out=torch.empty_like(out)).is_inference()


@each_package_on_cpu
def test_what_was_made_in_inference_mode_is_written_to_outside_of_it(package):
    """Also by a step of torch's own behind the kernels."""
    x, weight, _ = tensors(4)
    for name in ("data_parallel", "decompose_k.vector_unfused"):
        kernel = next(kernel for kernel in package.KERNELS if kernel.full_name.endswith(f"/{name}"))
        with torch.inference_mode():
            out = torch.empty(4, 16, dtype=BF16)
        kernel.launch(x, weight.t(), out=out, epilogue=Epilogue.RELU)
        assert torch.equal(out, kernel.launch(x, weight.t(), epilogue=Epilogue.RELU))


def test_a_program_that_cannot_be_loaded_is_not_there(gpu, launches, monkeypatch):
    x, weight, _ = tensors(4)
    gpu(x, weight)
    gpu.jobs[0].done = True
    gpu(x, weight)  # finds that it is

    def no_memory(*_):
        raise torch.OutOfMemoryError("none left")

    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
        patch.setattr(linear, "Call", no_memory)
        gpu(x, weight)
    gpu.capturing = True  # within which nothing is loaded
    assert torch.equal(gpu(x, weight), torch.nn.functional.linear(x, weight)) and not launches
    gpu.capturing = False
    assert_close(gpu(x, weight), x, weight)
    assert len(launches) == 1


@each_package_on_cpu
def test_a_launcher_plans_a_kind_of_call_once_and_checks_out_at_each(package, plans):
    x, weight, _ = tensors(4)
    kernel = next(kernel for kernel in package.KERNELS if kernel.name == "data_parallel")
    out = torch.empty(4, 16, dtype=BF16)
    for _ in range(2):
        assert kernel.launch(x, weight.t(), out=out) is out
    assert len(plans) == 1
    memory = torch.zeros(4 * 64 + 64, dtype=BF16)
    a = memory[: 4 * 64].view(4, 64)
    kernel.launch(a, weight.t(), out=out)
    with pytest.raises(ValueError, match=r"out at .* shares memory with a"):
        kernel.launch(a, weight.t(), out=memory[4 * 64 - 16 : 4 * 64 + 48].view(4, 16))


# What models need


@each_package
@pytest.mark.parametrize(("n", "k"), [(256, 7168), (128, 2048), (384, 7168), (64, 2048)])
def test_six_programs_at_most_serve_all_numbers_of_tokens(package, n, k):
    problem = Matmul(1, n, k, layout=Layout.NK)
    found = linear.ways(package.KERNELS, problem, 1024, plan.contiguous(problem), "h200", "sm_90a")
    assert 1 <= len(found) <= building.BUILDS_AT_ONCE
    for program in found:
        assert building.program_from(program.to_json(), package.KERNELS) == program


@each_package
def test_an_explanation_says_which_why_and_from_which_rows(package):
    x, weight = torch.empty(16, 7168, dtype=BF16), torch.empty(256, 7168, dtype=BF16)
    choice = package.explain(x, weight, device="h200")
    assert choice.kernel.language in (Language.TRITON, Language.TILUS) and choice.rows == "router-nk"
    assert choice.measured == Matmul(16, 256, 7168, layout=Layout.NK).key and choice.us < choice.torch_us
    assert package.explain(x, weight).why == "x is on cpu"
    assert package.explain(x[:0], weight, device="h200").why == "nothing is to be computed"
    assert "kernels take" in package.explain(x.double(), weight.double(), device="h200").why
    with pytest.raises(ValueError, match="device is 'H200'; accepted: h100-80gb-hbm3, h200, or None"):
        package.explain(x, weight, device="H200")
    assert set(dispatch.devices()) == set(dispatch.CAPABILITIES) >= {"h200"}
    assert Epilogue.of("relu", True) is Epilogue.BIAS_RELU


def test_support_is_asked_of_the_gpu_that_is_meant(current, monkeypatch):
    """Beside another one, which has no clusters and is the current one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: ((8, 0), (9, 0))[current[0]])
    monkeypatch.setattr(tuned, "slug_of", lambda device: "h200")
    tuned.refresh()
    x, weight = torch.empty(16, 7168, dtype=BF16), torch.empty(256, 7168, dtype=BF16)
    assert kernels_tilus.explain(x, weight, device="h200").kernel.name == "cluster"
    kernel = next(each for each in kernels_tilus.KERNELS if each.name == "cluster")
    problem = Matmul(16, 256, 7168, layout=Layout.NK)
    assert call.chosen_config(kernel, problem, None, torch.device("cuda", 1))
    with pytest.raises(ValueError, match=r"compute capability 9\.0"):
        call.chosen_config(kernel, problem, None, torch.device("cuda", 0))
    monkeypatch.setattr(torch.Tensor, "device", torch.device("cuda", 1), raising=False)
    assert kernels_tilus.explain(x, weight).kernel.name == "cluster"


# On a GPU


@pytest.fixture
def on_gpu(device):
    """x [T, 2048] of up to 64 rows and a router's weight [128, 2048]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 2048, generator=generator).to(device, BF16)
    return x, (torch.randn(128, 2048, generator=generator) / 2048**0.5).to(device, BF16)


def takes_a_kernel(package, x, weight, activation=None) -> bool:
    """By what is explained: of some numbers of tokens, and on some devices, torch is taken."""
    return package.explain(x, weight, activation=activation).kernel is not None


def assert_right_as_explained(package, call, launches, x, weight):
    """Torch's path is right as well, and so must be seen not to be taken in a kernel's place."""
    launches.clear()
    assert_close(call(x), x, weight)
    assert len(launches) == takes_a_kernel(package, x, weight)


@pytest.mark.gpu
@each_package
def test_prepared_it_is_right_at_every_number_of_tokens(package, on_gpu, launches):
    x, weight = on_gpu
    package.prepare(weight, max_tokens=64)
    for tokens in (1, 2, 5, 16, 33, 64):
        assert_right_as_explained(package, lambda x: package.linear(x, weight), launches, x[:tokens], weight)
    torch.library.opcheck(operator(package).op, (x[:4], weight, None, None, False, None))


@pytest.mark.gpu
@each_package
def test_captured_by_hand_and_by_inductor_it_follows_new_numbers(package, on_gpu, launches):
    x, weight = on_gpu
    package.prepare(weight, max_tokens=16, activation="sigmoid")
    graph, given = torch.cuda.CUDAGraph(), x[:16].clone()
    with torch.cuda.graph(graph):
        y = package.linear(given, weight, activation="sigmoid")
    expects_a_kernel = takes_a_kernel(package, given, weight, "sigmoid")
    assert len(launches) == expects_a_kernel
    launches.clear()  # from here on inductor's, before it replays
    compiled = torch.compile(
        lambda x: package.linear(x, weight, activation="sigmoid"), mode="reduce-overhead", fullgraph=True
    )
    for seed in range(3):
        given.copy_(x[16 * seed : 16 * seed + 16])
        graph.replay()
        expected = torch.sigmoid(torch.nn.functional.linear(given, weight))
        torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(compiled(given), expected, rtol=2e-2, atol=2e-2)
    assert bool(launches) is expects_a_kernel


@pytest.mark.gpu
@each_package
def test_compiled_ahead_of_time_by_inductor_it_is_right_at_every_number_of_tokens(package, on_gpu, launches, tmp_path):
    x, weight = on_gpu
    package.prepare(weight, max_tokens=64)
    exported = Router(package, weight).exported(x)
    archive = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "router.pt2"))
    loaded = torch._inductor.aoti_load_package(archive)
    for tokens in (2, 33, 64):
        assert_right_as_explained(package, loaded, launches, x[:tokens], weight)


@pytest.mark.gpu
@each_package
def test_streams_and_gpus_do_not_meet(package, on_gpu, launches):
    x, weight = on_gpu
    x = x[:16]
    if (choice := package.explain(x, weight)).kernel is None:
        pytest.skip(f"torch is taken here: {choice.why}")
    for index in range(torch.cuda.device_count()):
        there, mine = weight.to(f"cuda:{index}"), x.to(f"cuda:{index}")
        package.prepare(there, max_tokens=64)
        streams = [torch.cuda.Stream(index) for _ in range(2)]
        torch.cuda.synchronize(index)
        results = []
        for _ in range(50):
            for stream in streams:
                with torch.cuda.stream(stream):
                    results.append(package.linear(mine, there))
        torch.cuda.synchronize(index)
        for y in results:
            assert_close(y, mine, there)
    assert len(launches) >= 100 * torch.cuda.device_count()


@pytest.mark.gpu
@each_package
def test_an_unprepared_call_does_not_wait_for_its_build(package, on_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "user_cache_path", lambda app: tmp_path)  # nothing counts as built
    x, weight = on_gpu
    x, weight = x[:, :1536].contiguous(), weight[:, :1536].contiguous()
    jobs, build = [], building.build_in_background
    monkeypatch.setattr(building, "build_in_background", lambda *given: jobs.append(build(*given)) or jobs[-1])
    began = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began[0].record()
    y = package.linear(x[:3], weight)
    began[1].record()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.nn.functional.linear(x[:3], weight))  # by torch
    assert len(jobs) == takes_a_kernel(package, x[:3], weight)  # until then
    assert began[0].elapsed_time(began[1]) < 1000  # milliseconds; a build takes 7000
