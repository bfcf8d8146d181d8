"""Decompose-K: partial products in one launch, their sum in a second.

    partials[s, m, n] = sum over k in band s of A[m, k] * B[k, n]       fp32, one block a tile and band
    C[m, n] = epilogue(sum over s of partials[s, m, n])                 fp32, then one rounding

Grid         partials: (rows of tiles in a group, tiles of N, groups x split_k), common.kernel.Grid; reducer: strips of
             reduce_rows x reduce_block, or tiles of C
Who sums     a block its band, in steps of block_k; the reducer the bands, once, after all of them
Deterministic yes: each element's sum has one fixed order
Workspace    4 * split_k * M * N bytes, written by the first launch and read by the second
Launches     2; the unfused variant 3, with a bias and an activation 4
Variants     vector, tile: the two reducers; vector_unfused: the epilogue in torch; vector_pdl: programmatic dependent
             launch (dependent_launch.py), the reducer's blocks are set up while the partials are still computed;
             vector_prefetch: so is the product's launch, which copies its first stages of B before it waits for the
             kernel before

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

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.devices import lacks_dependent_launch
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, nothing_unfused, space_of, too_many_blocks
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import MOST_PARTIALS, reducers, splits, too_many_warps
from triton_vs_tilus.kernels_tilus import band, configs, launching
from triton_vs_tilus.kernels_tilus.band import BandScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig, band_space
from triton_vs_tilus.kernels_tilus.dependent_launch import after_kernel_before, start_dependents
from triton_vs_tilus.kernels_tilus.epilogue import EpilogueScript
from triton_vs_tilus.kernels_tilus.partials import sums_in_rows


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
    def reducer(self) -> tuple[int, int]:
        """Elements and warps."""
        return self.reduce_rows * self.reduce_block, self.reduce_warps

    # tilus alone: a block holds whole tiles, so that a reducer's elements are rows and columns; Triton's go over row
    # ends.
    @staticmethod
    def reducer_fields(problem: Matmul, split_k: int, elements: int, warps: int) -> dict[str, int]:
        """Of a config for a reducer of so many elements and warps: columns as C has them, and 16 bytes of a row a
        thread, as Triton's compiler lays its loads out; the threads that are left share elements."""
        threads = 32 * warps
        columns = min(elements, 1 << (problem.n - 1).bit_length())
        sharing = min(max(1, threads * configs.VECTOR // elements), 1 << split_k.bit_length() - 1, threads)
        return {
            "reduce_block": columns,
            "reduce_warps": warps,
            "reduce_rows": elements // columns,
            "reduce_threads": sharing,
        }

    @property
    def reduced_by_thread(self) -> int:
        """Elements of C."""
        return self.reduce_rows * self.reduce_block * self.reduce_threads // (32 * self.reduce_warps)

    @property
    def bands_of_thread(self) -> int:
        """Of an element; beyond split_k zeros."""
        return cdiv(self.split_k, self.reduce_threads)


def space(problem: Matmul, *, variant: str) -> Space:
    """Every wanted tile with every wanted split and, for the vector reducer, every wanted reducer of so many bands."""
    tiles = band_space(problem, splits(problem))
    wanted = [
        DecomposeKConfig(**vars(config), **DecomposeKConfig.reducer_fields(problem, config.split_k, elements, warps))
        for config in tiles.configs
        for elements, warps in reducers(config.split_k)[: 1 if variant == "tile" else None]
    ]
    supported = space_of(wanted, lambda config: _SUPPORTS[variant](problem, config))
    return Space(supported.configs, {**tiles.dropped, **supported.dropped})


def default_config(problem: Matmul) -> DecomposeKConfig:
    """At most 128 splits; the narrowest reducer."""
    chosen = configs.default_config(problem, most_splits=128)
    narrowest = reducers(chosen.split_k)[0]
    return DecomposeKConfig(**vars(chosen), **DecomposeKConfig.reducer_fields(problem, chosen.split_k, *narrowest))


def supports(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As every band kernel; the threads of the vector reducer share its strip evenly, and hold all bands of it."""
    if config is not None:
        if reason := too_many_warps(config.reduce_warps, "reduce_warps"):
            return reason
        strip = f"a strip of {config.reduce_rows} rows and {config.reduce_block} columns"
        if 32 * config.reduce_warps % config.reduce_threads:
            return f"{config.reduce_threads} threads an element do not divide {config.reduce_warps} warps"
        if strip_layout(config).shape[1:] != (config.reduce_rows, config.reduce_block):
            return f"{strip} is not shared evenly by the threads of {config.reduce_warps} warps"
        loaded = config.bands_of_thread * config.reduced_by_thread
        if loaded > MOST_PARTIALS:
            return f"{strip} of {config.split_k} bands takes {loaded} registers a thread, over {MOST_PARTIALS}"
    columns = (default_config(problem) if config is None else config).reduce_block
    return too_many_blocks({"N": cdiv(problem.n, columns)}) or supports_tile(problem, config)


def supports_tile(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As every band kernel, where offsets reach the partials: the tile reducer takes the tile of the product."""
    return configs.partials_out_of_reach(problem, config) or configs.supports(problem, config)


def supports_unfused(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """Where there is an epilogue to leave to torch."""
    return nothing_unfused(problem) or supports(problem, config)


def supports_pdl(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """On a device with programmatic dependent launch."""
    return lacks_dependent_launch() or supports(problem, config)


def supports_prefetch(problem: Matmul, config: DecomposeKConfig | None = None) -> str | None:
    """As vector_pdl, by mma: wgmma's copies of A and B are one loop, and a second one would need tensor maps of its
    own."""
    if (config or default_config(problem)).engine != "mma":
        return f"engine is {(config or default_config(problem)).engine}; accepted: mma, whose copies of B stand alone"
    return supports_pdl(problem, config)


def workspace_bytes(problem: Matmul, config: DecomposeKConfig) -> int:
    return 4 * config.split_k * problem.m * problem.n


# tilus alone: its layouts are the program's, not the compiler's.
def strip_layout(config: DecomposeKConfig) -> RegisterLayout:
    """[split_k or more, reduce_rows, reduce_block]: a thread's elements are side by side in a row, up to 16 bytes of
    them; neighbours have other elements, so that threads which share one are as far apart as a block allows."""
    sharing = config.reduce_threads
    threads, vector = 32 * config.reduce_warps // sharing, min(configs.VECTOR, max(1, config.reduced_by_thread))
    columns = min(threads, max(1, config.reduce_block // vector))
    rows = threads // columns
    times = max(1, config.reduce_rows // rows), max(1, config.reduce_block // (columns * vector))
    return _strip((config.bands_of_thread, *times), (sharing, rows, columns), vector)


@lru_cache(maxsize=4096)  # a space has thousands of configs, and few strips
def _strip(each: tuple[int, ...], threads: tuple[int, ...], vector: int) -> RegisterLayout:
    return local(*each).spatial(*threads).local(1, 1, vector)


class DecomposeKPartials(BandScript):
    """One block: a tile of C over one band of K, stored as it is."""

    def __init__(self, build, pdl, prefetch):
        super().__init__(build)
        self.pdl = pdl
        self.prefetch = prefetch

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        partials_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        group_m: int32,
        groups: int32,
        split_k: int32,  # tilus alone: a grid is part of the program
        band_steps: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [group_m, cdiv(n_units * self.vector_n, block_n), groups * split_k]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        if self.pdl:
            start_dependents()
        n: int32 = n_units * self.vector_n
        split: int32 = self.split_of(groups)
        offset_m: int32 = self.pid_m_of(group_m, groups) * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        if offset_m < m:  # the last group may have fewer rows
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            if self.prefetch:
                self.prefetched_product(
                    acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
                    offset_m, offset_n, split, band_steps,
                )
            else:
                self.band_product(
                    acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units,
                    offset_m, offset_n, split, band_steps,
                )
            # fmt: on
            partials = self.global_view(partials_ptr, dtype=float32, shape=[split_k, m, n])
            self.store_global(partials, sums_in_rows(self, acc), offsets=[split, offset_m, offset_n], dims=[1, 2])


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
        partials_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
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
    pdl, prefetch = variant in _DEPENDENT, variant == "vector_prefetch"
    if prefetch and build.tile.engine != "mma":
        raise ValueError(f"engine is {build.tile.engine}; accepted: mma, whose copies of B stand alone")
    return DecomposeKPartials(product, pdl, prefetch), DecomposeKReduction(reduced, config, variant != "tile", pdl)


def plan(problem: Matmul, config: DecomposeKConfig, placement: Placement, *, variant: str) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    unfused = problem.epilogue if variant == "vector_unfused" else Epilogue.NONE
    bias = None if variant == "vector_unfused" else bias_slot(problem)
    product, reduction = _scripts(problem, config, vectors, variant)
    m, n_units, k_units, stride_am_units, stride_b_units, *out_strides = band.arguments(problem, vectors, placement)
    partials = Launch(
        product,
        (
            *(Slot.A, Slot.B, Slot.SCRATCH, m, n_units, k_units, stride_am_units, stride_b_units),
            *(*band.place(problem, config), *band.bands(problem, config)),
        ),
    )
    sums = Launch(reduction, (Slot.SCRATCH, bias, Slot.C, m, n_units, *out_strides))
    scratch = config.split_k, problem.m, problem.n
    return Plan(problem, placement, (partials, sums), scratch=scratch, unfused=unfused)


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
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: 'vector' or 'tile' names the reducer; 'vector_pdl' launches it dependently (Hopper and later);
    'vector_prefetch' the product, too, which loads b before the kernel before has ended: that one must not write b;
    'vector_unfused' applies the epilogue in torch, afterwards.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: DecomposeKConfig, *, variant: str) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem), variant=variant))


_SUPPORTS = {
    "vector": supports,
    "tile": supports_tile,
    "vector_unfused": supports_unfused,
    "vector_pdl": supports_pdl,
    "vector_prefetch": supports_prefetch,
}
_DEPENDENT = ("vector_pdl", "vector_prefetch")
_TUNED_AS = {"vector_unfused": "tilus/decompose_k.vector", "vector_prefetch": "tilus/decompose_k.vector_pdl"}
_BY_VARIANT = {
    variant: Kernel(
        name="decompose_k",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.PARALLEL_PDL if variant in _DEPENDENT else Protocol.PARALLEL,
        launch=partial(matmul, variant=variant),
        config_type=DecomposeKConfig,
        space=partial(space, variant=variant),
        default_config=default_config,
        build=partial(build, variant=variant),
        supports=_SUPPORTS[variant],
        deterministic=True,
        # The unfused epilogue rounds the product, then its own result.
        roundings=lambda config, rounds=2 if variant == "vector_unfused" else 1: rounds,
        workspace_bytes=workspace_bytes,
        plan=partial(plan, variant=variant),
        backend=launching.BACKEND,
        launches=3 if variant == "vector_unfused" else 2,  # 4 with a bias and an activation: Epilogue.apply_
        tuned_as=_TUNED_AS.get(variant, ""),
    )
    for variant in _SUPPORTS
}
# No contender: it must not follow a kernel that writes the weight. bench/references/chain.py says what it follows.
PREFETCH = _BY_VARIANT["vector_prefetch"]
KERNELS = tuple(kernel for kernel in _BY_VARIANT.values() if kernel is not PREFETCH)
