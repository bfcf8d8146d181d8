"""`linear` and `matmul` of a language: one call that takes the fastest kernel known for the device and the sizes, or
torch where none is known to win (common/dispatch.py). An operator of torch, for eager, compiled, exported and captured
code.

A call never waits for a compiler. A kernel that is not built yet is built in the background, and until then the call
takes torch's path; `prepare` builds ahead. What a call of these shapes, strides, dtypes and alignments launches is
worked out once (common/plan.py).
"""

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import linear as torch_linear

from triton_vs_tilus.common import building, devices, dispatch, tuned
from triton_vs_tilus.common.building import Program
from triton_vs_tilus.common.checks import has_tangent, layout_of
from triton_vs_tilus.common.dispatch import Choice
from triton_vs_tilus.common.epilogue import ACTIVATIONS, Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language
from triton_vs_tilus.common.plan import WIDEST, Call, Placement, placement_of
from triton_vs_tilus.common.problem import SHORT_DTYPE, Matmul
from triton_vs_tilus.common.workspace import is_capturing

__all__ = ["Operators", "operators", "ways"]

NAMESPACE = "triton_vs_tilus"
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")
MOST_RUNS = 4096  # kept of a language; a server meets as many kinds as it has batch sizes

Run = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Operators(NamedTuple):
    """What a kernel package offers: see the functions of `_Language`."""

    linear: Callable[..., Tensor]
    matmul: Callable[..., Tensor]
    explain: Callable[..., Choice]
    prepare: Callable[..., list[Choice]]


def operators(
    language: Language, kernels: Sequence[Kernel], lacks: Callable[[], str | None] = lambda: None
) -> Operators:
    """lacks: why this machine cannot build the language's kernels, or None."""
    made = _Language(language, tuple(kernels), lacks)
    return Operators(made.linear, made.matmul, made.explain, made.prepare)


class _Language:
    """The call's cache, and the operator `triton_vs_tilus::<language>_linear`."""

    def __init__(self, language: Language, kernels: tuple[Kernel, ...], lacks: Callable[[], str | None]):
        self.language, self.kernels, self.lacks = language, kernels, lacks
        self._runs: dict[tuple[Any, ...], Run] = {}
        # By Program.compiled_for: builds under way; what is built and in this process; and on which device it has been.
        self._jobs: dict[tuple[Any, ...], building.Job] = {}
        self._loaded: set[tuple[Any, ...]] = set()
        self._on_gpus: set[tuple[torch.device, tuple[Any, ...]]] = set()
        name = f"{language.value}_linear"
        _LIBRARY.define(
            f"{name}(Tensor x, Tensor weight, Tensor? bias, str? activation, bool deterministic, "
            "ScalarType? out_dtype) -> Tensor"
        )
        _LIBRARY.impl(name, self._on_gpu, "CUDA")
        _LIBRARY.impl(name, _on_cpu, "CPU")
        for key, device in (("AutocastCUDA", "cuda"), ("AutocastCPU", "cpu")):
            _LIBRARY.impl(name, _autocast(self, device, getattr(torch._C.DispatchKey, key)), key)
        full_name = f"{NAMESPACE}::{name}"
        torch.library.register_fake(full_name, _fake, lib=_LIBRARY)
        torch.library.register_autograd(full_name, _backward, setup_context=_remember, lib=_LIBRARY)
        self.op = getattr(getattr(torch.ops, NAMESPACE), name).default

    def __reduce__(self) -> tuple[Callable[[str], "_Language"], tuple[str]]:
        """By name: a copy, or what another process loads, is the one that the operator and its builds belong to."""
        return _language_of, (self.language.value,)

    def linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: str | None = None,
        *,
        deterministic: bool = False,
        out_dtype: torch.dtype | None = None,
    ) -> Tensor:
        """activation(x [..., K] @ weight.T [K, N] + bias [N]), of shape [..., N], as torch.nn.functional.linear.

        activation: None, 'relu', 'silu' or 'sigmoid', of the whole fp32 sum. deterministic: bitwise the same result in
        every call, once the kernel is built (`prepare`); torch.use_deterministic_algorithms asks for it, too.
        out_dtype: by default that of x; of half-precision inputs also torch.float32, which keeps the sum as it is.

        Differentiable, by products of torch; what carries tangents forwards, or is transformed by torch.func, torch
        computes alone. Raises TypeError for tensors of different dtypes, and for an out_dtype that is none of those;
        ValueError for such an activation, for shapes that do not fit, and for tensors on different devices.
        """
        # The operator's way through torch's dispatcher takes as long as a launch.
        if _is_eager(x, weight, bias):
            return self._on_gpu(x, weight, bias, activation, deterministic, out_dtype)
        if not (
            isinstance(x, Tensor)
            and isinstance(weight, Tensor)
            and (bias is None or isinstance(bias, Tensor))
            and (activation is None or isinstance(activation, str))
            and (out_dtype is None or isinstance(out_dtype, torch.dtype))
        ):  # of which the dispatcher says less
            checked(x, weight, bias, activation, out_dtype)
        # The operator has no rule for tangents, and would drop them in silence; nor has it one for functorch.
        if has_tangent(x, weight, bias) or _is_transformed():
            checked(x, weight, bias, activation, out_dtype)
            return _by_torch(x, weight, bias, activation, deterministic, out_dtype, derived=True)
        return self.op(x, weight, bias, activation, deterministic, out_dtype)

    def matmul(
        self, a: Tensor, b: Tensor, *, deterministic: bool = False, out_dtype: torch.dtype | None = None
    ) -> Tensor:
        """a [..., K] @ b [K, N], of shape [..., N]; b stored [K, N] or [N, K]. As `linear` for all else."""
        for name, tensor in (("a", a), ("b", b)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name} is {type(tensor).__name__}; accepted: torch.Tensor")
        if not a.dim():
            raise ValueError("a has shape (); accepted: (..., K)")
        if b.device != a.device:
            raise ValueError(f"b is on {b.device}; accepted: the device of a, {a.device}")
        if b.dim() != 2 or a.shape[-1] != b.shape[0]:
            accepted = f"({a.shape[-1]}, N), as a has shape {tuple(a.shape)}"
            raise ValueError(f"b has shape {tuple(b.shape)}; accepted: {accepted}")
        if b.dtype is not a.dtype and not (
            a.device.type in ("cuda", "cpu") and torch.is_autocast_enabled(a.device.type)
        ):
            raise TypeError(f"b has dtype {b.dtype}; accepted: that of a, {a.dtype}")
        return self.linear(a, b.t(), deterministic=deterministic, out_dtype=out_dtype)

    def explain(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: str | None = None,
        *,
        deterministic: bool = False,
        out_dtype: torch.dtype | None = None,
        device: str | None = None,
    ) -> Choice:
        """What `linear` takes for these tensors, and why; whether it is built does not matter here.

        device: the slug of a device, e.g. 'h200', to ask for another than the tensors' own, whose compilers are taken
        to be there.

        Raises ValueError for a device that no kernel was timed on.
        """
        if device is not None and device not in dispatch.devices():
            raise ValueError(f"device is {device!r}; accepted: {', '.join(dispatch.devices())}, or None")
        problem = _problem(x, weight, bias, activation, out_dtype)
        if isinstance(problem, Matmul) and x.device.type != "cuda" and device is None:
            problem = f"x is on {x.device}"
        if isinstance(problem, str):
            return Choice(None, None, problem)
        if device is None and (reason := self.lacks()):
            return Choice(None, None, reason)
        deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
        slug = device or tuned.slug_of(x.device)
        placement = placement_of(problem, _rows(x), weight.t(), bias, None)
        with devices.compiling_for(dispatch.CAPABILITIES[device]) if device else devices.on(x.device):
            target = building.target_of(dispatch.CAPABILITIES[device] if device else torch.cuda.get_device_capability())
            choice, program = way(self.kernels, problem, placement, slug, target, deterministic)
        return choice if program is None else replace(choice, config=program.config)

    def prepare(
        self,
        weight: Tensor,
        max_tokens: int = 1024,
        *,
        bias: Tensor | None = None,
        activation: str | None = None,
        deterministic: bool = False,
        out_dtype: torch.dtype | None = None,
    ) -> list[Choice]:
        """Builds and loads all that `linear` takes for contiguous x of 1 to max_tokens rows, and waits for it. Returns
        the kernels' choices; for the rest torch is taken.

        Builds run side by side, at most 6 of a weight. They stay in the language's cache on disk.
        Raises as `linear`; ValueError for a weight that no kernel takes or that is on no CUDA device, and for
        max_tokens below 1; RuntimeError where a compiler is missing, or with its words.
        """
        if not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens!r}; accepted: an int, 1 or more")
        if not isinstance(weight, Tensor):
            raise TypeError(f"weight is {type(weight).__name__}; accepted: torch.Tensor")
        row = weight[:1] if weight.dim() else weight
        problem = _problem(row, weight, bias, activation, out_dtype)
        if weight.device.type != "cuda":
            problem = f"weight is on {weight.device}"
        if isinstance(problem, str):
            raise ValueError(f"{problem}; accepted: a weight that `linear` takes, on a CUDA device")
        if reason := self.lacks():
            raise RuntimeError(f"{self.language.value}'s kernels cannot be built: {reason}")
        deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
        placement = placement_of(problem, None, weight.t(), bias, None)
        with devices.on(weight.device):
            target = building.target_of(torch.cuda.get_device_capability())
            slug = tuned.slug_of(weight.device)
            taken = ways(self.kernels, problem, max_tokens, placement, slug, target, deterministic)
            for program, reason in building.build_now(list(taken)).items():
                raise RuntimeError(f"{program} cannot be built: {reason}")
            for program in taken:
                Call(program.plan, weight.device, program.backend)
                self._loaded.add(program.compiled_for)
                self._on_gpus.add((weight.device, program.compiled_for))
        return list(taken.values())

    def _on_gpu(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        activation: str | None,
        deterministic: bool,
        out_dtype: torch.dtype | None,
    ) -> Tensor:
        deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
        dtype = x.dtype
        # fmt: off
        key = (
            x.shape, x.stride(), dtype, x.data_ptr() % WIDEST, x.get_device(),
            weight.shape, weight.stride(), weight.dtype, weight.data_ptr() % WIDEST, weight.get_device(),
            activation, deterministic, out_dtype, dtype is torch.float32 and dispatch.rounds_to_tf32(),
            None if bias is None else
            (bias.shape, bias.stride(), bias.dtype, bias.data_ptr() % WIDEST, bias.get_device()),
        )
        # fmt: on
        try:
            run = self._runs.get(key)
        except TypeError:  # an activation that cannot be looked up
            checked(x, weight, bias, activation, out_dtype)
            raise
        if run is None:
            run = self._settled(key, x, weight, bias, activation, deterministic, out_dtype)
        return run(x, weight, bias)

    def _settled(
        self,
        key: tuple[Any, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        activation: str | None,
        deterministic: bool,
        out_dtype: torch.dtype | None,
    ) -> Run:
        """What computes the calls of this kind; this call alone where a later one may have better."""

        def as_torch(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return _by_torch(x, weight, bias, activation, deterministic, out_dtype)

        by_torch: Run = torch_linear if activation is None and out_dtype in (None, x.dtype) else as_torch

        def keep(run: Run) -> Run:
            if len(self._runs) >= MOST_RUNS:
                self._runs.clear()
            self._runs[key] = run
            return run

        device = x.device
        problem = _problem(x, weight, bias, activation, out_dtype)
        if isinstance(problem, str):
            return keep(by_torch)
        if reason := self.lacks():
            _say_once(f"{self.language.value}'s `linear` takes torch's path: {reason}")
            return keep(by_torch)
        slug = tuned.slug_of(device)
        if not dispatch.table(slug):
            _say_once(f"no kernel was timed on {slug}: `linear` takes the rule of thumb of common/dispatch.py")
        rows = _rows(x)
        placement = placement_of(problem, rows, weight.t(), bias, None)
        with devices.on(device):
            target = building.target_of(torch.cuda.get_device_capability())
            _, program = way(self.kernels, problem, placement, slug, target, deterministic)
        if program is None:
            return keep(by_torch)

        compiled_for = program.compiled_for
        if compiled_for not in self._loaded:
            job = self._jobs.get(compiled_for)
            if job is None:
                job = self._jobs[compiled_for] = building.build_in_background(program, device)

            def until_built(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
                if job.done:
                    self._runs.pop(key, None)
                return by_torch(x, weight, bias)

            if not job.done:
                return keep(until_built)
            if job.reason:
                _say_once(f"{program} cannot be built, and torch is taken: {job.reason}")
                return keep(by_torch)
            self._loaded.add(compiled_for)
        if (device, compiled_for) not in self._on_gpus and is_capturing(device):  # a module is not loaded within one
            return by_torch
        call = Call(program.plan, device, program.backend, (*x.shape[:-1], problem.n))
        self._on_gpus.add((device, compiled_for))  # not before: what could not be loaded is not there
        laid_out = rows.data_ptr() == x.data_ptr()

        def by_kernel(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return call(None, x if laid_out else _rows(x), weight, bias)

        return keep(by_kernel)


def _language_of(name: str) -> _Language:
    package: Any = importlib.import_module(f"triton_vs_tilus.kernels_{name}")
    return package.linear.__self__


_TENSORS = {Tensor, torch.nn.Parameter}


def _is_eager(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether only the GPU's implementation of the operator would see the call: plain tensors on a GPU, nothing to
    differentiate, cast, negate, trace, transform or intercept."""
    if (
        torch.compiler.is_compiling()
        or torch._C._is_torch_function_mode_enabled()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cuda")
    ):
        return False
    gradients = torch.is_grad_enabled()
    for tensor in (x, weight) if bias is None else (x, weight, bias):
        if type(tensor) not in _TENSORS or not tensor.is_cuda or (gradients and tensor.requires_grad):
            return False
        if tensor.is_neg() or tensor._is_zerotensor():  # for which torch's dispatcher makes memory of such numbers
            return False
    return True


def _is_transformed() -> bool:
    """Whether torch.func transforms the call; where a compiler traces it, the compiler sees to that, but for `grad`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def way(
    kernels: Sequence[Kernel], problem: Matmul, placement: Placement, slug: str, target: str, deterministic: bool
) -> tuple[Choice, Program | None]:
    """What computes a problem on this device, out of these kernels, and why. None: torch."""
    choice = dispatch.choose(kernels, problem, slug, deterministic)
    if choice.kernel is None:
        return choice, None
    assert choice.kernel.backend is not None
    if reason := choice.kernel.backend.lacks(problem, placement):
        return Choice(None, None, reason), None
    config = choice.kernel.backend.fit(choice.kernel, problem, choice.config, placement)
    return choice, Program(choice.kernel, problem, config, placement, target)


def ways(
    kernels: Sequence[Kernel],
    problem: Matmul,
    max_tokens: int,
    placement: Placement,
    slug: str,
    target: str,
    deterministic: bool = False,
) -> dict[Program, Choice]:
    """What 1 to max_tokens rows take beside torch, one of the programs that share what is compiled, and why."""
    found: dict[tuple[Any, ...], tuple[Program, Choice]] = {}
    for tokens in range(1, max_tokens + 1):
        choice, program = way(kernels, replace(problem, m=tokens), placement, slug, target, deterministic)
        if program is not None:
            found.setdefault(program.compiled_for, (program, choice))
    return dict(found.values())


def checked(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None, out_dtype: torch.dtype | None
) -> None:
    """Raises as `_Language.linear`."""
    _check_sizes(x, weight, bias)
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype is not x.dtype:
            raise TypeError(f"{name} has dtype {tensor.dtype}; accepted: that of x, {x.dtype}")
    _check_activation(activation)
    wider = (torch.float32,) if x.dtype in (torch.float16, torch.bfloat16) else ()
    if out_dtype not in (None, x.dtype, *wider):
        accepted = ", ".join(["None", f"that of x, {x.dtype}", *map(str, wider)])
        raise TypeError(f"out_dtype is {out_dtype!r}; accepted: {accepted}")


def _check_sizes(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Of what is asked for under autocast, too, where dtypes may differ."""
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "bias"):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: torch.Tensor")
    if weight.dim() != 2:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; accepted: (N, K)")
    n, k = weight.shape
    if not x.dim() or x.shape[-1] != k:
        raise ValueError(f"x has shape {tuple(x.shape)}; accepted: (..., {k}), as weight has shape ({n}, {k})")
    if bias is not None and tuple(bias.shape) != (n,):
        raise ValueError(f"bias has shape {tuple(bias.shape)}; accepted: ({n},)")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"{name} is on {tensor.device}; accepted: the device of x, {x.device}")


def _check_activation(activation: str | None) -> None:
    if activation is not None and not (isinstance(activation, str) and activation in ACTIVATIONS):
        raise ValueError(f"activation is {activation!r}; accepted: None, {', '.join(map(repr, ACTIVATIONS))}")


def _problem(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None, out_dtype: torch.dtype | None
) -> Matmul | str:
    """What the tensors pose, or why no kernel takes it. Raises as `checked`."""
    checked(x, weight, bias, activation, out_dtype)
    if not x.numel() or not weight.numel():
        return "nothing is to be computed"
    if x.dtype not in SHORT_DTYPE:
        return f"kernels take {', '.join(map(str, SHORT_DTYPE))}, not {x.dtype}"
    layout = layout_of(weight.t())
    if layout is None or weight.is_neg() or x.is_neg() or (bias is not None and not bias.is_contiguous()):
        return "weight or bias is a view that no kernel reads"
    epilogue = Epilogue.of(activation, bias is not None)
    n, k = weight.shape
    return Matmul(x.numel() // k, n, k, x.dtype, out_dtype or x.dtype, layout, epilogue)


def _flattened(x: Tensor) -> Tensor:
    """x [..., K] as [rows, K]."""
    # Not -1, which has no size where x is empty; nor numel(), which makes a graph of each number of rows.
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _rows(x: Tensor) -> Tensor:
    """x as [rows, K], a copy where its strides allow no view of unit stride along K and rows that do not overlap."""
    rows = _flattened(x)
    apart = rows.shape[0] == 1 or rows.stride(0) >= rows.shape[1]
    return rows if (rows.stride(1) == 1 or rows.shape[1] == 1) and apart else rows.contiguous()


def _by_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    deterministic: bool,
    out_dtype: torch.dtype | None,
    *,
    derived: bool = False,
) -> Tensor:
    """torch's path. It rounds to the output's dtype before the activation. derived: torch differentiates it, or
    transforms it, which it can of no product into another dtype."""
    if out_dtype in (None, x.dtype):
        y = torch_linear(x, weight, bias)
    elif x.is_cuda and not derived:
        y = torch.mm(_rows(x), weight.t(), out_dtype=out_dtype).view(*x.shape[:-1], weight.shape[0])
        y = y if bias is None else y.add_(bias)
    else:
        y = torch_linear(x.to(out_dtype), weight.to(out_dtype), None if bias is None else bias.to(out_dtype))
    return ACTIVATIONS[activation](y) if activation else y


def _on_cpu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    deterministic: bool,
    out_dtype: torch.dtype | None,
) -> Tensor:
    checked(x, weight, bias, activation, out_dtype)
    return _by_torch(x, weight, bias, activation, deterministic, out_dtype)


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str | None,
    deterministic: bool,
    out_dtype: torch.dtype | None,
) -> Tensor:
    checked(x, weight, bias, activation, out_dtype)
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=out_dtype or x.dtype)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, bias, ctx.activation, _, _ = inputs
    # The caller may change an output in place that backward does not read.
    ctx.save_for_backward(x, weight, bias, output if ctx.activation in ("relu", "sigmoid") else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """By products of torch, as nn.Linear's."""
    x, weight, bias, y = ctx.saved_tensors
    if ctx.activation == "relu":
        grad = torch.ops.aten.threshold_backward(grad, y, 0)
    elif ctx.activation == "sigmoid":
        grad = grad * y * (1 - y)
    elif ctx.activation == "silu":
        grad = _through_silu(grad, torch_linear(x, weight, bias).to(grad.dtype))
    grad = grad.to(x.dtype)
    grad_x, grad_weight, grad_bias = ctx.needs_input_grad[:3]
    rows = _flattened(grad)
    return (
        grad @ weight if grad_x else None,
        rows.t() @ _flattened(x) if grad_weight else None,
        rows.sum(0) if grad_bias else None,
        *(None, None, None),
    )


def _through_silu(grad: Tensor, z: Tensor) -> Tensor:
    """torch's own derivative has none itself."""
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(grad, z)
    sigmoid = z.sigmoid()
    return grad * sigmoid * (1 + z * (1 - sigmoid))


def _autocast(language: _Language, device_type: str, key: Any) -> Callable[..., Tensor]:
    def cast(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        activation: str | None,
        deterministic: bool,
        out_dtype: torch.dtype | None,
    ) -> Tensor:
        """As F.linear under autocast. Where something is cast, torch does it all: it keeps the casts of weights."""
        _check_sizes(x, weight, bias)
        _check_activation(activation)
        dtype = torch.get_autocast_dtype(device_type)
        if out_dtype is None and any(tensor is not None and tensor.dtype is not dtype for tensor in (x, weight, bias)):
            y = torch_linear(x, weight, bias)
            return ACTIVATIONS[activation](y) if activation else y
        is_cast = x.dtype is not torch.float64  # which torch's autocast leaves as it is
        if is_cast and out_dtype not in (None, dtype, torch.float32):
            raise TypeError(f"out_dtype is {out_dtype}; accepted: None, that of autocast, {dtype}, torch.float32")
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            if is_cast:
                x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
            return language.op(x, weight, bias, activation, deterministic, out_dtype)

    return cast


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=2)
