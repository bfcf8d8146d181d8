"""Humming's product by a 4-bit weight: CUDA C++ for quantized weights, which vLLM brings too, compiled on first use.

    C = A @ W,  W[k, n] = dtype(scales[g, n] * (q[k, n] - zeros[g, n]))        sums in fp32; splits meet in C's dtype

W is made in registers and rounded as by torch/dequantized_mm. By Humming's own rule for the device and M a product is
mma.sync or wgmma, whole or stream-K: then a tile's slices, MOST_SLICES at most, add to C in turn or, where they are
more than 3 and not stored by TMA, the first stores and the others add by atomics, each sum in C's dtype.

Its integer zero points have 4 bits, 0 to 15, and GPTQ's reach 16: here they are numbers of the scales' dtype, exact,
and 12 bits more a column and group. A symmetric weight has none.

The weight is laid out by its own kernel, ahead of any call. A call is one launch, below HummingLayer, which would
compile kernels for every M. Locks are zero before a launch and after it. Source: humming-kernels 0.1.20
(vllm-project/humming), humming/transform.py, tune/sm90.py, ops/launcher.py, include/humming/scheduler.cuh, epilogue/.
"""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from triton_vs_tilus.bench.rows.environment import not_installed, version
from triton_vs_tilus.common.kernel import Kernel, Language
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import GPTQWeight
from triton_vs_tilus.common.w4a16 import W4A16Config, W4A16Inputs, W4A16Matmul, checked
from triton_vs_tilus.common.workspace import semaphores

COLUMNS = 128  # of its narrowest tile
LOCKS = 2048  # as many as HummingLayer has
MOST_SLICES = 10  # of a tile under stream-K


@lru_cache(maxsize=1)
def _humming() -> SimpleNamespace:
    """What is called of the package. Raises NotImplementedError where it cannot be imported."""
    try:
        from humming import dtypes, ops
        from humming.kernel.humming import HummingKernel
        from humming.schema import HummingWeightSchema
        from humming.transform import prepare_and_transform_humming_tensors
        from humming.tune import get_heuristics_config
    except Exception as error:  # whatever a package that does not fit this torch raises
        told = f"humming-kernels {version('humming-kernels')} cannot be imported"
        raise NotImplementedError(f"{told}: {type(error).__name__}: {error}") from error
    return SimpleNamespace(
        dtypes=dtypes,
        launch=ops.launch_kernel,
        prepare=HummingKernel.prepare_kernels,
        Schema=HummingWeightSchema,
        transform=prepare_and_transform_humming_tensors,
        choose=get_heuristics_config,
    )


def parts_of(weight: GPTQWeight) -> dict[str, Tensor]:
    """The weight as Humming takes it, before it lays it out. Raises what common.w4a16.checked does.

    weight        int32 [N, K / 8]; q[8 r + i, n] starts at bit 4 i of weight[n, r]
    weight_scale  [N, K / g], of the scales' dtype
    zero_point    likewise; of a symmetric weight there is none
    """
    parts = {
        "weight": checked(weight).qweight.T.contiguous(),
        "weight_scale": weight.scales.T.contiguous(),
    }
    if not weight.symmetric:
        parts["zero_point"] = weight.zeros().T.to(weight.scales.dtype).contiguous()
    return parts


class _W4A16:
    """Lays out, launches, and tells the schedule that Humming chose last."""

    def __init__(self) -> None:
        self._schedule: dict[str, Any] = {}

    def arguments(self, problem: W4A16Matmul, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """a [M, K]; the weight as Humming lays it out, and which kernel is launched. Compiles that where it is in no
        cache. Raises NotImplementedError where the package cannot be imported."""
        humming, device = _humming(), inputs.a.device
        schema = humming.Schema(
            b_dtype=humming.dtypes.uint4,
            bs_dtype=humming.dtypes.DataType.from_torch_dtype(problem.dtype),
            weight_scale_group_size=problem.group_size,
            has_zero_point=not problem.symmetric,
            is_fp_zero_point=not problem.symmetric,
        )
        layer, parts = humming.transform(
            parts_of(inputs.weight), problem.n, problem.k, schema, torch_dtype=problem.dtype, device=device
        )
        self._schedule = humming.choose(layer, shape_m=problem.m, device=device)
        kernel = humming.prepare(layer.to_str(), None, self._schedule, device)
        return (inputs.a, kernel), parts

    def launch(
        self,
        a: Tensor,
        kernel: Tensor,
        *,
        weight: Tensor,
        weight_scale: Tensor,
        zero_point: Tensor | None = None,
        out: Tensor | None = None,
        config: None = None,
    ) -> Tensor:
        """C [M, N] = a [M, K] @ the weight, of a's dtype; takes what `arguments` returns."""
        return _humming().launch(
            configs=kernel,
            inputs=a,
            weight=weight,
            weight_scale=weight_scale,
            zero_point=zero_point,
            outputs=out,
            locks=semaphores(LOCKS, a.device),
        )

    def note(self) -> str:
        package = f"humming-kernels {version('humming-kernels')}"
        if not (chosen := self._schedule):
            return package
        tile, meeting = "x".join(map(str, chosen["block_shape"])), "stream-K" if chosen["use_stream_k"] else "no split"
        pipeline = f"{tile} {chosen['mma_type']}, {chosen['num_stages']} stages"
        return f"{package}: {pipeline}, {meeting}, blocks an SM: {chosen['num_ctas_per_sm']}"


def supports(problem: W4A16Matmul, config: None = None) -> str | None:
    if problem.n % COLUMNS:
        return f"N is {problem.n}; accepted: multiples of {COLUMNS}, as its tiles are no narrower"
    return not_installed("humming-kernels", "humming")


_w4a16 = _W4A16()
KERNEL = Kernel(
    name="w4a16",
    variant="",
    language=Language.HUMMING,
    protocol=Protocol.LIBRARY,
    launch=_w4a16.launch,
    config_type=W4A16Config,
    default_config=lambda problem: None,
    build=None,
    supports=supports,
    deterministic=False,  # atomics, where a tile has more than 3 slices
    roundings=lambda config: 2 * MOST_SLICES - 1,  # each slice, and each sum but the first
    workspace_bytes=lambda problem, config: 4 * LOCKS,
    launches=1,
    note=_w4a16.note,
    op=W4A16Matmul.op,
    arguments=_w4a16.arguments,
    on_request=True,
)
