"""Stream-K: a fixed number of blocks, `programs`, each with an even share of all steps of K of all tiles.

    steps = ceil(K / block_k) a tile;  the tiles' steps one after the other;  program p walks the p-th share of them
    a tile of one program    C[m, n] = epilogue(sum over k of A[m, k] * B[k, n])
    a tile of several        partials[p + tile, m, n] = sum over p's steps of the tile of A[m, k] * B[k, n]
                             last arriver: C[m, n] = epilogue(sum over p of partials[p + tile, m, n])

Grid         (programs,), no more than there are steps
Who sums     a program its steps, tile after tile; the last program of a shared tile the partial sums, in their order
             along K, whichever it is
Deterministic yes: shares are settled by sizes and config, and their order along K is summation order
Workspace    4 * (programs + tiles - 1) * block_m * block_n bytes, those of shared tiles written and read once; one
             int32 a tile, zero before a launch and after it
Launches     1

Shares differ by one step at most, so that programs end together however many tiles there are: the split of a tile need
not be the same for all of them, nor a whole number. `programs` takes the place of `split_k`. No program waits for
another.

Where a program leaves a tile for the next, or a tile changes programs, a segment of the walk begins: p + tile numbers
the segments one after the other, so that the partials of a tile lie next to each other.

Source: "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU" (Osama et al.,
arXiv 2301.03598); there the owner of a tile's first step waits for the others, here the last to arrive sums.
"""

from functools import lru_cache

import torch
from tilus import boolean, float32, int32, void_p
from tilus.utils import cdiv
from torch import Tensor

from triton_vs_tilus.common import workspace
from triton_vs_tilus.common.call import launched
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.kernel import Kernel, Language, Space, grid_of, tiles_of
from triton_vs_tilus.common.plan import Launch, Placement, Plan, Slot, bias_slot, contiguous
from triton_vs_tilus.common.problem import Matmul
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.space import DEFAULT_PROGRAMS, programs_space, too_many_steps
from triton_vs_tilus.kernels_tilus import arrival, band, configs, launching
from triton_vs_tilus.kernels_tilus.arrival import ArrivalScript
from triton_vs_tilus.kernels_tilus.configs import BandConfig, ProgramsConfig, band_space
from triton_vs_tilus.kernels_tilus.partials import sums_in_rows


def space(problem: Matmul) -> Space:
    """Every wanted tile, with 1 to 4 programs on each multiprocessor where each then has 2 steps or more."""
    return programs_space(
        band_space(problem, (1,)),
        ProgramsConfig,
        lambda config: supports(problem, config),
        most=lambda tile: _work(problem, tile) // 2,
    )


def default_config(problem: Matmul) -> ProgramsConfig:
    """Two programs on each of Hopper's 132 multiprocessors."""
    return ProgramsConfig(**vars(configs.default_config(problem, most_splits=1)), programs=DEFAULT_PROGRAMS)


def supports(problem: Matmul, config: ProgramsConfig | None = None) -> str | None:
    """As the product of every band kernel; and a ticket must have room for as many arrivals as a tile has programs."""
    if config is not None and config.split_k != 1:
        return f"split_k is {config.split_k}; accepted: 1, as K is shared out by programs"
    if config is not None and not 1 <= config.programs < 1 << workspace.TICKET_BITS:
        return f"programs is {config.programs}; accepted: 1 to {(1 << workspace.TICKET_BITS) - 1}, as a ticket counts"
    if config is not None and config.engine == "wgmma_pairs":
        return "engine is wgmma_pairs; accepted: others, as programs walk tiles of their own, not in pairs"
    if config is not None and config.engine == "wgmma_specialized":
        return "engine is wgmma_specialized; accepted: others, as its producer warp ends with the first product"
    chosen = config or default_config(problem)
    if reason := too_many_steps(problem, chosen) or configs.supports_product(problem, config):
        return reason
    if reason := arrival.supports_partials(chosen):
        return reason
    return launching.out_of_reach({"the workspace": workspace_bytes(problem, chosen) // 4})


def workspace_bytes(problem: Matmul, config: ProgramsConfig) -> int:
    tiles = tiles_of(problem, config)
    return 4 * tiles + 4 * (_programs(problem, config) + tiles - 1) * config.block_m * config.block_n


def _work(problem: Matmul, config: BandConfig) -> int:
    """Steps of all tiles."""
    return tiles_of(problem, config) * cdiv(problem.k, config.block_k)


def _programs(problem: Matmul, config: ProgramsConfig) -> int:
    """Each has a step at least."""
    return min(config.programs, _work(problem, config))


class StreamKMatmul(ArrivalScript):
    """One block: a program, and its share of all steps of all tiles."""

    def share_begin(self, program: int32, share: int32, longer: int32) -> int32:
        """The first step of a program's share: `share` steps, and one more for the first `longer` programs."""
        return program * share + min(program, longer)

    def program_of(self, step: int32, share: int32, longer: int32) -> int32:
        """The program whose share `step` lies in: the first term counts longer shares, and is the larger until they
        end."""
        return max(step // (share + 1), (step - longer) // share)

    def __call__(
        self,
        a_ptr: void_p,
        b_ptr: void_p,
        bias_ptr: void_p,
        c_ptr: void_p,
        counters_ptr: void_p,
        partials_ptr: void_p,
        m: int32,
        n_units: int32,
        k_units: int32,
        stride_am_units: int32,
        stride_b_units: int32,
        stride_cm_units: int32,
        stride_cn: int32,
        group_m: int32,
        steps: int32,
        share: int32,
        longer: int32,
        ticket: int32,
        programs: int32,  # tilus alone: a grid is part of the program
        tiles: int32,  # tilus alone: a view has a shape
    ):
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        self.attrs.blocks = [programs]
        self.attrs.warps = self.num_warps
        n: int32 = n_units * self.vector_n
        k: int32 = k_units * self.vector_k
        tiles_m: int32 = cdiv(m, block_m)
        tiles_n: int32 = cdiv(n, block_n)
        program: int32 = self.blockIdx.x
        begin: int32 = self.share_begin(program, share, longer)
        end: int32 = self.share_begin(program + 1, share, longer)

        counters = self.global_view(counters_ptr, dtype=int32, shape=[tiles])

        for tile in self.range(begin // steps, cdiv(end, steps), 1):
            first_step: int32 = tile * steps
            shared: boolean = begin > first_step or end < first_step + steps
            if shared:
                self.announce(counters, tile, ticket)

            offset_m: int32 = self.pid_m_of_tile(tile, tiles_m, tiles_n, group_m) * block_m
            offset_n: int32 = self.pid_n_of_tile(tile, tiles_m, tiles_n, group_m) * block_n
            begin_here: int32 = max(begin, first_step)
            end_here: int32 = min(end, first_step + steps)
            acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
            # fmt: off
            self.range_product(
                acc, a_ptr, b_ptr, m, n_units, k_units, stride_am_units, stride_b_units, offset_m, offset_n,
                (begin_here - first_step) * block_k, min((end_here - first_step) * block_k, k), begin_here - begin,
            )
            # fmt: on

            sums = sums_in_rows(self, acc)  # once: tilus 0.2.0 places too many shared tensors in a row wrongly
            if not shared:
                self.finish(sums, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
            else:
                # Who shares the tile is worked out behind the product: copies would wait for the divisions.
                first_program: int32 = self.program_of(first_step, share, longer)
                last_program: int32 = self.program_of(first_step + steps - 1, share, longer)
                rows: int32 = min(m - offset_m, block_m)
                # As long as the tile's last segment: where the sum ends.
                partials = self.global_view(
                    partials_ptr,
                    dtype=float32,
                    shape=[last_program + tile + 1, rows, block_n],
                    strides=[block_m * block_n, block_n, 1],
                )
                self.store_global(partials, sums, offsets=[program + tile, 0, 0], dims=[1, 2])
                if self.is_last(counters, tile, ticket, last_program - first_program + 1):
                    total = self.sum_in_order(partials, first_program + tile, 0, 0)
                    self.finish(total, bias_ptr, c_ptr, m, n, stride_cm_units, stride_cn, offset_m, offset_n)
                    self.reset(counters, tile)

            if self.fed_by_tma:
                self.fence.proxy_async()  # the next tile's TMA writes where sums and terms have been copied to
                self.sync()


@lru_cache(maxsize=4096)
def _script(problem: Matmul, config: ProgramsConfig, vectors: band.Vectors):
    return StreamKMatmul(band.settings(problem, config, vectors))


def plan(problem: Matmul, config: ProgramsConfig, placement: Placement) -> Plan:
    """What a call launches."""
    vectors = band.vectors(problem, placement)
    programs, tiles = _programs(problem, config), tiles_of(problem, config)
    share, longer = divmod(_work(problem, config), programs)
    launch = Launch(
        _script(problem, config, vectors),
        (
            *(Slot.A, Slot.B, bias_slot(problem), Slot.C, Slot.COUNTERS, Slot.SCRATCH),
            *band.arguments(problem, vectors, placement),
            *(grid_of(problem, config).group_m, cdiv(problem.k, config.block_k)),
            *(share, longer, Slot.TICKET, programs, tiles),
        ),
    )
    segments = programs + tiles - 1
    scratch = segments, config.block_m, config.block_n
    return Plan(problem, placement, (launch,), scratch=scratch, counters=tiles)


def matmul(
    a: Tensor,
    b: Tensor,
    *,
    epilogue: Epilogue = Epilogue.NONE,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    config: ProgramsConfig | None = None,
) -> Tensor:
    """C [M, N] = epilogue(a [M, K] @ b [K, N]); common.checks.matmul_problem says what is accepted and raised.

    CPU tensors run in the interpreter. config: None takes the tuned one of this device. Raises ValueError for one that
    the problem cannot run on.
    """
    return launched(KERNEL, a, b, epilogue, bias, out, out_dtype, config)


def build(problem: Matmul, config: ProgramsConfig) -> None:
    """Compiles for the current target into tilus' cache, for tensors as the launcher and the problem allocate them."""
    launching.build_plan(plan(problem, config, contiguous(problem)))


KERNEL = Kernel(
    name="stream_k",
    variant="",
    language=Language.TILUS,
    protocol=Protocol.STREAM_K,
    launch=matmul,
    config_type=ProgramsConfig,
    space=space,
    default_config=default_config,
    build=build,
    supports=supports,
    deterministic=True,
    roundings=lambda config: 1,
    workspace_bytes=workspace_bytes,
    plan=plan,
    backend=launching.BACKEND,
    launches=1,
)
