"""Bad input becomes one clear error that names the argument, its value and what is accepted, before any launch."""

from collections.abc import Mapping
from dataclasses import fields

import torch
from torch import Tensor
from torch.autograd import forward_ad

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Config, Kernel
from triton_vs_tilus.common.problem import SHORT_DTYPE, Layout, Matmul

__all__ = [
    "check_apart",
    "check_config",
    "check_no_gradient",
    "check_plain",
    "chosen_variant",
    "has_tangent",
    "layout_of",
    "matmul_problem",
    "overlaps_itself",
]


def matmul_problem(
    a: Tensor,
    b: Tensor,
    epilogue: Epilogue,
    bias: Tensor | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
) -> Matmul:
    """The problem that a launcher's arguments pose.

    Accepted: a [M, K] with unit stride along K; b [K, N] with unit stride along N (stored [K, N]) or along K
    (stored [N, K]); both of one dtype out of bf16, fp16, fp32, on one device; bias [N] of that dtype exactly where the
    epilogue has one; out [M, N] of any strides that do not overlap. M, N, K >= 1.

    Raises TypeError for what is not a tensor, an Epilogue, or of an accepted dtype; ValueError for the rest.
    """
    check_tensors(a=a, b=b, bias=bias, out=out)
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue is {epilogue!r}; accepted: {', '.join(map(str, Epilogue))}")
    check_plain(a=a, b=b, bias=bias, out=out)
    for name, tensor in (("a", a), ("b", b)):
        if tensor.dim() != 2:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; accepted: 2 dimensions")
        if 0 in tensor.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; accepted: no empty dimension")
    if a.dtype not in SHORT_DTYPE:
        raise TypeError(f"a has dtype {a.dtype}; accepted: {', '.join(map(str, SHORT_DTYPE))}")
    if b.dtype is not a.dtype:
        raise TypeError(f"b has dtype {b.dtype}; accepted: that of a, {a.dtype}")
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k:
        raise ValueError(f"b has shape {tuple(b.shape)}; accepted: ({k}, N), as a has shape {tuple(a.shape)}")
    if a.stride(1) != 1 and k > 1:
        raise ValueError(f"a has strides {a.stride()}; accepted: unit stride along K, (any, 1)")
    if m > 1 and a.stride(0) < k:
        raise ValueError(f"a has strides {a.stride()}; accepted: rows that do not overlap, ({k} or more, 1)")
    layout = layout_of(b)
    if layout is None:
        raise ValueError(
            f"b has strides {b.stride()}; accepted: unit stride along N or along K, (>= N, 1) or (1, >= K)"
        )
    if epilogue.has_bias:
        if bias is None:
            raise ValueError(f"bias is None; accepted: a tensor of shape ({n},), as the epilogue is {epilogue.value}")
        if tuple(bias.shape) != (n,) or (bias.stride(0) != 1 and n > 1):
            raise ValueError(
                f"bias has shape {tuple(bias.shape)}, stride {bias.stride()}; accepted: ({n},), contiguous"
            )
        if bias.dtype is not a.dtype:
            raise TypeError(f"bias has dtype {bias.dtype}; accepted: that of a, {a.dtype}")
    elif bias is not None:
        raise ValueError(f"bias has shape {tuple(bias.shape)}; accepted: None, as the epilogue is {epilogue.value}")
    if out_dtype is None:
        out_dtype = a.dtype if out is None else out.dtype
    if out_dtype not in (a.dtype, torch.float32):
        raise TypeError(f"out_dtype is {out_dtype}; accepted: that of a, {a.dtype}, or torch.float32")
    if out is not None:
        if tuple(out.shape) != (m, n):
            raise ValueError(f"out has shape {tuple(out.shape)}; accepted: ({m}, {n})")
        if out.dtype is not out_dtype:
            raise TypeError(f"out has dtype {out.dtype}; accepted: out_dtype, {out_dtype}")
        if overlaps_itself(out):
            raise ValueError(f"out has strides {out.stride()}; accepted: elements that do not overlap")
    for name, other in (("b", b), ("bias", bias), ("out", out)):
        if other is not None and other.device != a.device:
            raise ValueError(f"{name} is on {other.device}; accepted: the device of a, {a.device}")
    check_apart(out, a=a, b=b, bias=bias)
    return Matmul(m, n, k, a.dtype, out_dtype, layout, epilogue)


def chosen_variant(kernels: Mapping[str, Kernel], variant: str) -> Kernel:
    """The kernel of this variant. Raises ValueError for an unknown name."""
    if not isinstance(variant, str) or variant not in kernels:
        raise ValueError(f"variant is {variant!r}; accepted: {', '.join(kernels)}")
    return kernels[variant]


def check_config(kernel: Kernel, config: Config) -> None:
    """Raises TypeError for a config of another class than the kernel's, or with a field of another type; ValueError for
    a number below 1. Whether a problem can run on it is for `kernel.supports` to say."""
    if not isinstance(config, kernel.config_type):
        raise TypeError(f"config is {config!r}; accepted: {kernel.config_type.__name__} or None")
    for field in fields(config):
        value = getattr(config, field.name)
        if type(value) is not field.type:
            found = f"config.{field.name} is {value!r}, {type(value).__name__}"
            raise TypeError(f"{found}; accepted: {getattr(field.type, '__name__', field.type)}")
        if field.type is int and value < 1:
            raise ValueError(f"config.{field.name} is {value}; accepted: 1 or more")


def check_tensors(**given: object) -> None:
    """Raises TypeError, by its name, for what is no tensor; None is accepted as bias and as out."""
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) and not (tensor is None and name in ("bias", "out")):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: torch.Tensor")


def check_plain(**tensors: Tensor | None) -> None:
    """Raises ValueError for a tensor whose memory does not hold its numbers as they are: sparse, nested, a negated view
    or a conjugate one, on a device without memory (meta), or without memory of its own (torch's zero tensors, tensors
    around others); and as `check_no_gradient`."""
    check_no_gradient(**tensors)
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.is_nested:
            raise ValueError(f"{name} is nested; accepted: a tensor of one shape")
        if tensor.layout is not torch.strided:
            raise ValueError(f"{name} has layout {tensor.layout}; accepted: torch.strided")
        if tensor.is_neg() or tensor.is_conj():
            raise ValueError(f"{name} is a view that negates as it is read; accepted: {name}.resolve_neg()")
        if tensor.device.type not in ("cuda", "cpu"):
            raise ValueError(f"{name} is on {tensor.device}; accepted: a CUDA device, or a CPU for the interpreters")
        if tensor.numel() and not tensor.data_ptr():
            raise ValueError(
                f"{name} is {type(tensor).__name__} at address 0; accepted: a tensor with memory of its own"
            )


def check_no_gradient(**tensors: Tensor | None) -> None:
    """Raises ValueError for a tensor that requires a gradient while gradients are recorded, or that carries one
    forwards: a launcher's result would have none."""
    if torch.is_grad_enabled():
        for name, tensor in tensors.items():
            if tensor is not None and tensor.requires_grad:
                instead = f"{name}.detach(), a call under torch.no_grad(), or `linear` and `matmul` of the package"
                raise ValueError(f"{name} requires a gradient, and kernels have no backward; accepted: {instead}")
    if forward_ad._current_level >= 0:
        for name, tensor in tensors.items():
            if has_tangent(tensor):
                instead = "its primal (torch.autograd.forward_ad.unpack_dual), or `linear` and `matmul` of the package"
                raise ValueError(f"{name} has a tangent, and kernels have no derivative; accepted: {instead}")


def has_tangent(*tensors: Tensor | None) -> bool:
    """Whether one carries a gradient forwards. None does outside of a level, which takes an attribute to see."""
    return forward_ad._current_level >= 0 and any(
        tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


def layout_of(b: Tensor) -> Layout | None:
    """How b [K, N] is stored; None where neither dimension has unit stride, or rows overlap."""
    (k, n), (stride_k, stride_n) = b.shape, b.stride()
    if n == 1 and stride_k == 1:  # both at once: a column is best read along K
        return Layout.NK
    if (stride_n == 1 or n == 1) and (stride_k >= n or k == 1):
        return Layout.KN
    if (stride_k == 1 or k == 1) and (stride_n >= k or n == 1):
        return Layout.NK
    return None


def overlaps_itself(out: Tensor) -> bool:
    """Whether two elements of a tensor [M, N] are one in memory."""
    (m, n), (stride_m, stride_n) = out.shape, out.stride()
    if m == 1 or n == 1:
        return (m > 1 and stride_m == 0) or (n > 1 and stride_n == 0)
    inner_stride, inner_size, outer_stride = sorted([(stride_n, n, stride_m), (stride_m, m, stride_n)])[0]
    return inner_stride == 0 or outer_stride <= inner_stride * (inner_size - 1)


def check_apart(out: Tensor | None, **inputs: Tensor | None) -> None:
    """Raises ValueError where out shares memory with an input, which a kernel would read when it is overwritten."""
    for name, tensor in inputs.items():
        if out is not None and tensor is not None and _share_memory(out, tensor):
            found = f"out at {out.data_ptr():#x}, strides {out.stride()}, shares memory with {name}"
            raise ValueError(
                f"{found} at {tensor.data_ptr():#x}, strides {tensor.stride()}; accepted: memory of its own"
            )


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """By address, as a view of another library has a storage of its own: from first to last byte, unless both are
    columns of one matrix, side by side."""
    if one.device != other.device or not one.numel() or not other.numel() or not one.untyped_storage().data_ptr():
        return False
    lower, upper = (one, other) if one.data_ptr() <= other.data_ptr() else (other, one)
    # Nearly all calls end here, before strides are looked at.
    if lower.is_contiguous() and lower.data_ptr() + lower.nbytes <= upper.data_ptr():
        return False
    (first, size, row, width), (then, _, other_row, other_width) = _extent(lower), _extent(upper)
    if then >= first + size:
        return False
    beside = (then - first) % row if row else 0
    return row != other_row or beside < width or beside + other_width > row


def _extent(tensor: Tensor) -> tuple[int, int, int, int]:
    """First byte; bytes from there to the end, from row to row, and of a row. What has no rows is one."""
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    dims = sorted((stride * tensor.itemsize, size) for stride, size in pairs if size > 1)
    size = tensor.itemsize + sum(stride * (count - 1) for stride, count in dims)
    if len(dims) != 2:
        return tensor.data_ptr(), size, 0, size
    row, rows = dims[1]
    return tensor.data_ptr(), size, row, size - row * (rows - 1)
