"""Decompose-K: partial products in one launch, their sum in a second.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one block a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (tiles of M, tiles of N, split_k); reducer: strips of reduce_rows x reduce_block
Who sums     a block its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the unfused variant 3, with bias_relu 4
Variants     vector, tile: the two reducers; vector_unfused: the epilogue in torch; vector_pdl: programmatic dependent
             launch (dependent_launch.py), the reducer's blocks are set up while the partials are still computed

Two reducers, as in the Triton twin: *vector*, one load of [split_k, reduce_rows, reduce_block] and a sum over the
split axis, and *tile*, shaped like the tiles of the product, adding the bands one by one. A block of a tilus Script
holds whole tiles, so a strip of the vector reducer has rows and columns, where Triton's goes over the ends of rows.

Source: "Decompose-K: From torch.compile to Hand-Tuned Triton Kernels for Skinny Large-K Matmuls"
(shreyansh26.github.io, 2026), for the two launches and the reducer around the split axis.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from tilus import RegisterLayout, float32, int32, void_p
from tilus.ir.layout.ops import local
from tilus.utils import cdiv
from torch import Tensor

from common.call import prepared
from common.devices import lacks_dependent_launch
from common.epilogue import Epilogue
from common.kernel import Kernel, Language, nothing_unfused, splits, too_many_blocks
from common.problem import Matmul
from common.protocol import Protocol
from kernels_tilus import band, launching
from kernels_tilus.arrival import VECTOR
from kernels_tilus.band import BandConfig, BandScript
from kernels_tilus.dependent_launch import after_kernel_before, start_dependents
from kernels_tilus.epilogue import EpilogueScript


@dataclass(frozen=True)
class DecomposeKConfig(BandConfig):
    """reduce_block, reduce_rows: columns and rows of C that a block of the vector reducer sums; reduce_warps: its
    warps; reduce_threads: those that share an element, each adds one band in so many. The tile reducer takes the tile
    of the product."""

    reduce_block: int = 32
    reduce_warps: int = 1
    reduce_rows: int = 1
    reduce_threads: int = 1

    @property
    def reduced_by_thread(self) -> int:
        """Elements of C."""
        return self.reduce_rows * self.reduce_block * self.reduce_threads // (32 * self.reduce_warps)

    @property
    def bands_of_thread(self) -> int:
        """Of an element; beyond split_k zeros."""
        return cdiv(self.split_k, self.reduce_threads)


# reduce_block, reduce_warps, reduce_rows, reduce_threads: a thread an element, for few rows, or 16 bytes of a row and
# more, for many. tilus launches blocks as clusters of one, which come to a multiprocessor more slowly than plain ones.
STRIPS = ((32, 1, 1, 1), (128, 4, 1, 1), (128, 4, 4, 1), (64, 4, 8, 1), (128, 4, 8, 1))
# Of many bands also: 16 bytes of a row to as many threads as there are left, so that each has few loads, and wide ones.
SHARED_STRIPS = ((32, 1, 1, 4), (16, 1, 1, 8), (32, 4, 1, 16))
MANY_BANDS = 16
MOST_LOADED = 128  # registers of a thread, for all that it adds at once


def configs(problem: Matmul, *, variant: str) -> list[DecomposeKConfig]:
    """Every tile with every split of which each band has a step, as band.space has them; for the vector reducer with
    every strip that is no higher than C."""
    check = _supports_tile if variant == "tile" else supports
    space = [
        DecomposeKConfig(
            **vars(config), reduce_block=columns, reduce_warps=warps, reduce_rows=rows, reduce_threads=threads
        )
        for config in band.space(problem, splits(problem))
        for columns, warps, rows, threads in (STRIPS[:1] if variant == "tile" else _strips(config.split_k))
        if rows <= problem.m
    ]
    return [config for config in space if check(problem, config) is None]


def _strips(split_k: int) -> tuple[tuple[int, int, int, int], ...]:
    return STRIPS + SHARED_STRIPS if split_k >= MANY_BANDS else STRIPS


def default_config(problem: Matmul) -> DecomposeKConfig:
    """A block or two on each of Hopper's 132 multiprocessors."""
    chosen = band.default_config(problem, most_splits=128)
    return DecomposeKConfig(**vars(chosen))


def supports(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As every band kernel; the threads of the vector reducer share its strip evenly, and hold all bands of it."""
    columns = DecomposeKConfig.reduce_block if config is None else config.reduce_block
    if reason := too_many_blocks({"N": cdiv(problem.n, columns)}):
        return reason
    if config is not None:
        strip = f"a strip of {config.reduce_rows} rows and {config.reduce_block} columns"
        if 32 * config.reduce_warps % config.reduce_threads:
            return f"{config.reduce_threads} threads an element do not divide {config.reduce_warps} warps"
        if strip_layout(config).shape[1:] != (config.reduce_rows, config.reduce_block):
            return f"{strip} is not shared evenly by the threads of {config.reduce_warps} warps"
        loaded = config.bands_of_thread * config.reduced_by_thread
        if loaded > MOST_LOADED:
            return f"{strip} of {config.split_k} bands takes {loaded} registers a thread, over {MOST_LOADED}"
    return _supports_tile(problem, config)


def _supports_tile(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    return band.partials_out_of_reach(problem, config) or band.supports(problem, config)


def strip_layout(config: DecomposeKConfig) -> RegisterLayout:
    """[split_k or more, reduce_rows, reduce_block]: a thread's elements are side by side in a row, up to 16 bytes of
    them; neighbours have other elements, so that threads which share one are as far apart as a block allows."""
    sharing = config.reduce_threads
    threads, vector = 32 * config.reduce_warps // sharing, min(VECTOR, max(1, config.reduced_by_thread))
    columns = min(threads, max(1, config.reduce_block // vector))
    rows = threads // columns
    times = max(1, config.reduce_rows // rows), max(1, config.reduce_block // (columns * vector))
    return local(config.bands_of_thread, *times).spatial(sharing, rows, columns).local(1, 1, vector)


class DecomposeKPartials(BandScript):
    """One block: a tile of C over one band of K, stored as it is."""

    def __init__(self, build, pdl):
        super().__init__(build)
        self.pdl = pdl

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        partials_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        split_k: int32,
        stride_am_units: int32,
        stride_b_units: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n), split_k]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        if self.pdl:
            start_dependents()
        n: int32 = n_units * self.vector_n
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n
        split: int32 = self.blockIdx.z

        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        # fmt: off
        self.band_product(
            acc, a_ptr, b_ptr, m, n_units, k_units, split_k, stride_am_units, stride_b_units, offset_m, offset_n, split
        )
        # fmt: on
        partials = self.global_view(partials_ptr, dtype=float32, shape=[split_k, m, n])
        self.store_global(partials, acc, offsets=[split, offset_m, offset_n], dims=[1, 2])


class DecomposeKReduction(EpilogueScript):
    """One block: a tile of C, [reduce_rows, reduce_block] for the vector reducer, over all splits."""

    def __init__(self, build, config, vector, pdl):
        super().__init__(build.dtype, build.out_dtype, build.vectors.c, build.epilogue)
        self.split_k = config.split_k
        self.pdl = pdl
        self.vector = vector
        if vector:
            self.block_m, self.block_n = config.reduce_rows, config.reduce_block
            self.num_warps = config.reduce_warps
            # Inference would settle on the layout of the store first, and then find none for the load that the sum
            # could come from.
            self.bands_layout = strip_layout(config)
        else:
            self.block_m, self.block_n = config.block_m, config.block_n
            self.num_warps = min(config.num_warps, 4)
        self.vector_n = build.vectors.n

    def __call__(
        self,
        bias_ptr: void_p,
        c_ptr: void_p,
        partials_ptr: void_p,
        m: int32,
        n_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [cdiv(m, block_m), cdiv(n_units * self.vector_n, block_n)]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        offset_m: int32 = self.blockIdx.x * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        written: void_p = after_kernel_before(partials_ptr) if self.pdl else partials_ptr
        partials = self.global_view(written, dtype=float32, shape=[self.split_k, m, n])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        if self.vector:
            bands = self.load_global(partials, offsets=[0, offset_m, offset_n], shape=self.bands_layout.shape)
            self.annotate_layout(bands, self.bands_layout)
            self.assign(acc, self.sum(bands, dim=0))
        else:
            for split in range(self.split_k):
                addend = self.load_global(
                    partials, offsets=[split, offset_m, offset_n], shape=[block_m, block_n], dims=[1, 2]
                )
                self.add(acc, addend, out=acc)

        self.finish(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


@lru_cache(maxsize=4096)
def _scripts(problem: Matmul, config: DecomposeKConfig, vectors: band.Vectors, variant: str):
    build = band.settings(problem, config, vectors)
    # The product does not depend on the epilogue: one build serves all.
    product = replace(build, epilogue=Epilogue.NONE.value)
    reduced = product if variant == "vector_unfused" else build
    pdl = variant == "vector_pdl"
    return DecomposeKPartials(product, pdl), DecomposeKReduction(reduced, config, variant != "tile", pdl)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: DecomposeKConfig | None = None,
    variant: str = "vector",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]), see common.checks.matmul_problem for what is accepted and raised.

    variant: 'vector' or 'tile' names the reducer; 'vector_pdl' launches it dependently (Hopper and later);
    'vector_unfused' applies the epilogue in torch, afterwards.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    problem, config, out = prepared(_BY_VARIANT[variant], a, b, epilogue, bias, out, out_dtype, config)
    vectors, operands = band.operands(problem, config, a, b, bias, out)
    a, stored_b, bias, out, m, n_units, k_units, split_k, stride_am, stride_b, *out_strides = operands
    partials = torch.empty(split_k, m, problem.n, dtype=torch.float32, device=a.device)
    unfused = variant == "vector_unfused"
    product, reduction = _scripts(problem, config, vectors, variant)
    launching.launch(product, a, stored_b, partials, m, n_units, k_units, split_k, stride_am, stride_b)
    launching.launch(reduction, None if unfused else bias, out, partials, m, n_units, *out_strides)
    return epilogue.apply_(out, bias) if unfused else out


def build(problem: Matmul, config: DecomposeKConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    for script in _scripts(problem, config, band.vectors(problem), variant):
        launching.build(script)


def workspace_bytes(problem: Matmul, config: DecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


def _supports_unfused(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    return nothing_unfused(problem) or supports(problem, config)


def _supports_pdl(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    return lacks_dependent_launch() or supports(problem, config)


_SUPPORTS = {
    "vector": supports,
    "tile": _supports_tile,
    "vector_unfused": _supports_unfused,
    "vector_pdl": _supports_pdl,
}
KERNELS = tuple(
    Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.SEPARATE_PDL if variant == "vector_pdl" else Protocol.SEPARATE,
        launch=partial(matmul, variant=variant),
        config_type=DecomposeKConfig,
        configs=partial(configs, variant=variant),
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=_SUPPORTS[variant],
        deterministic=True,
        # The unfused epilogue rounds the product, then its own result.
        roundings=lambda config, rounds=2 if variant == "vector_unfused" else 1: rounds,
        workspace_bytes=workspace_bytes,
        launches=3 if variant == "vector_unfused" else 2,
        tuned_as="tilus/decompose_k.vector" if variant == "vector_unfused" else "",
    )
    for variant in _SUPPORTS
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
