"""No split: one block walks all of K.

    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])        fp32, then one rounding

Grid         (rows of tiles in a group, tiles of N, groups), x fastest: blocks that run together share rows of A and
             columns of B in L2: common.kernel.Grid; persistent: (programs,), which take the tiles in that order
Who sums     a block its tile, or its tiles one after the other, in steps of block_k
Variants     "": a block a tile; persistent: as many blocks as run at once, each with every programs-th tile. A producer
             warp (wgmma_specialized) is then at the next tile's steps while the others store this one
Deterministic yes: each element's sum has one fixed order
Workspace    none
Launches     1

What every split is held against: a skinny product has fewer tiles than the GPU has multiprocessors, and most of them
stand idle here.

Source: tilus tutorial "Matrix multiplication" (matmul_v4); the order of tiles is that of Triton's tutorial; persistent
blocks: CUTLASS' sm90 persistent tile scheduler.
"""

from functools import lru_cache, partial

import torch
from tilus import float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.checks import chosen_variant
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import programs_space
from triton_vs_tilus.kernels_tilus import band, configs, launching, wgmma
from triton_vs_tilus.kernels_tilus.band import BandScript, view_of_a, view_of_b
from triton_vs_tilus.kernels_tilus.configs import BandConfig, ProgramsConfig, band_space
from triton_vs_tilus.kernels_tilus.wgmma_specialized import WARP, add_producer_warp, only_first_threads


def space(problem: Matmul) -> Space:
    """Every wanted tile."""
    return band_space(problem, (1,))


def persistent_space(problem: Matmul) -> Space:
    """Every wanted tile, with 1 to 4 programs on each multiprocessor where there are more tiles."""
    return programs_space(
        space(problem),
        ProgramsConfig,
        lambda config: supports_persistent(problem, config),
        most=lambda tile: tiles_of(problem, tile) - 1,
    )


def default_config(problem: Matmul) -> BandConfig:
    """One split."""
    return configs.default_config(problem, most_splits=1)


def persistent_default_config(problem: Matmul) -> ProgramsConfig:
    """The same, and a program on each of Hopper's 132 multiprocessors."""
    return ProgramsConfig(**vars(default_config(problem)))


def _splits(config: BandConfig | None) -> str | None:
    """Why a config that splits is none."""
    if config is None or config.split_k == 1:
        return None
    return f"split_k is {config.split_k}; accepted: 1, as nothing is split"


def supports(problem: Matmul, config: BandConfig | None = None) -> str | None:
    """As every band kernel; and there is one band."""
    return _splits(config) or configs.supports(problem, config)


def supports_persistent(problem: Matmul, config: ProgramsConfig | None = None) -> str | None:
    """As the product of every band kernel; and a program walks tiles of its own."""
    if reason := _splits(config):
        return reason
    if config is not None and config.programs < 1:
        return f"programs is {config.programs}; accepted: 1 or more"
    if config is not None and config.engine == "wgmma_pairs":
        return "engine is wgmma_pairs; accepted: others, as programs walk tiles of their own, not in pairs"
    return configs.supports_product(problem, config)


class DataParallelMatmul(BandScript):
    """One block: a tile of C."""

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        group_m: int32,
        groups: int32,
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [group_m, cdiv(n_units * self.vector_n, block_n), groups]
        self.attrs.cluster_blocks = [self.cluster_m, 1, 1]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        offset_m: int32 = self.pid_m_of(group_m, groups) * block_m
        offset_n: int32 = self.blockIdx.y * block_n

        if offset_m < m:  # the last group may have fewer rows
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.range_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units, offset_m, offset_n,
                0, k_units * self.vector_k, 0,
            )
            # fmt: on
            self.finish_in_rows(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)


class PersistentMatmul(BandScript):
    """One block: a program, and its tiles of C."""

    def __init__(self, build):
        super().__init__(build)
        if self.engine == "wgmma_specialized":  # on its way to memory C lies beside the stages of the next tile
            stages = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes * self.num_stages
            tile = self.block_m * self.block_n * self.out_dtype.nbytes
            fits = stages + wgmma.BARRIERS_BYTES + tile <= configs.SHARED_MEMORY_LIMIT
            self.stored_in_rows = self.stored_in_rows and fits

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        group_m: int32,
        tiles: int32,
        programs: int32,  # tilus alone: a grid is part of the program
    ):
        block_m, block_n = self.block_m, self.block_n
        self.attrs.blocks = [programs]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        steps: int32 = cdiv(k, self.block_k)
        walked: int32 = 0  # steps of the tiles before

        if self.engine == "wgmma_specialized":
            consumers = self.num_warps * WARP
            add_producer_warp(self)
            sa = wgmma.stages(self, block_m, True)
            sb = wgmma.stages(self, block_n, self.stored_nk)
            full = self.mbarrier.alloc(counts=[1 for _ in range(self.num_stages)])
            read = self.mbarrier.alloc(counts=[self.num_warps for _ in range(self.num_stages)])
            with self.thread_group(consumers, WARP):
                ga = view_of_a(self, a_ptr, m, k, stride_am_units)
                gb = view_of_b(self, b_ptr, n, k, stride_b_units)
                copied: int32 = 0
                for tile in self.range(self.blockIdx.x, tiles, programs):
                    offset_a: int32 = self.pid_m_of_tile(tile, tiles_m, tiles_n, group_m) * block_m
                    offset_b: int32 = self.pid_n_of_tile(tile, tiles_m, tiles_n, group_m) * block_n
                    self.produce(ga, gb, sa, sb, full, read, block_m + block_n, offset_a, offset_b, 0, k, copied)
                    copied += steps
            only_first_threads(self, consumers)

        for tile in self.range(self.blockIdx.x, tiles, programs):
            offset_m: int32 = self.pid_m_of_tile(tile, tiles_m, tiles_n, group_m) * block_m
            offset_n: int32 = self.pid_n_of_tile(tile, tiles_m, tiles_n, group_m) * block_n
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            if self.engine == "wgmma_specialized":
                self.consume(acc, sa, sb, full, read, steps, walked)
            else:
                # fmt: off
                self.range_product(
                    acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units, offset_m, offset_n,
                    0, k, walked,
                )
                # fmt: on
            walked += steps
            self.finish_in_rows(acc, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
            if self.stored_in_rows:
                if self.engine != "wgmma_specialized":
                    self.fence.proxy_async()  # the next tile's TMA writes where this one has been copied to
                self.sync()

        if self.engine == "wgmma_specialized":
            self.sync()
            self.free_shared(sa)
            self.free_shared(sb)


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: BandConfig, vectors: band.Vectors):
    return DataParallelMatmul(band.settings(problem, config, vectors))


@lru_cache(maxsize=4096)
def _persistent_script(problem: Matmul, config: ProgramsConfig, vectors: band.Vectors):
    return PersistentMatmul(band.settings(problem, config, vectors))


def plan(problem: Matmul, config: BandConfig, placement: Placement) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    launch = Launch(
        _script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C),
            *(*band.arguments(problem, vectors, placement), *band.place(problem, config)),
        ),
    )
    return Plan(problem, placement, (launch,))


def persistent_plan(problem: Matmul, config: ProgramsConfig, placement: Placement) -> Plan:
    """What a call of the persistent variant launches."""
    vectors, tiles = band.vectors(problem, placement), tiles_of(problem, config)
    launch = Launch(
        _persistent_script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, *band.arguments(problem, vectors, placement)),
            *(grid_of(problem, config).group_m, tiles, min(config.programs, tiles)),
        ),
    )
    return Plan(problem, placement, (launch,))


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: BandConfig | None = None,
    variant: str = "",
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    variant: "", a block a tile, or 'persistent', whose blocks walk tiles, with a ProgramsConfig.
    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(chosen_variant(_BY_VARIANT, variant), a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: BandConfig, *, variant: str = "") -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(_BY_VARIANT[variant].plan(problem, config, contiguous(problem)))


KERNELS = tuple(
    Kernel(
        name="data_parallel",
        variant=variant,
        language=Language.TILUS,
        protocol=Protocol.DATA_PARALLEL,
        launch=partial(matmul, variant=variant),
        config_type=config_type,
        space=of_problem,
        default_config=default,
        build=partial(build, variant=variant),
        supports=supported,
        deterministic=True,
        roundings=lambda config: 1,
        workspace_bytes=lambda problem, config: 0,
        plan=planned,
        backend=launching.BACKEND,
        launches=1,
        on_request=variant == "persistent",  # it differs where there are more tiles than blocks run at once
    )
    for variant, config_type, of_problem, default, supported, planned in (
        ("", BandConfig, space, default_config, supports, plan),
        (
            *("persistent", ProgramsConfig, persistent_space, persistent_default_config),
            *(supports_persistent, persistent_plan),
        ),
    )
)
_BY_VARIANT = {kernel.variant: kernel for kernel in KERNELS}
