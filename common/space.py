"""What a search wants to try of every matmul kernel, in both languages: tiles, splits, products a thread.

Each language makes a config of every wanted point, or says why it has none, and keeps those that its kernel supports;
the rest is counted by reason (`space_of`). A list or a cap that only one language has would be an unequal search.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeVar

from triton_vs_tilus.common.kernel import (
    GRID_LIMIT,
    Config,
    Kernel,
    MatmulConfig,
    Space,
    band_steps,
    cdiv,
    space_of,
    tiles_of,
)
from triton_vs_tilus.common.problem import Layout, Matmul

__all__ = [
    "CLUSTER_BLOCKS",
    "COPY_SLICED_TILES",
    "COPY_TILES",
    "COPY_TRANSPOSED_NARROW_TILES",
    "COPY_TRANSPOSED_TILES",
    "CUDA_CORE_TILES",
    "DEFAULT_PROGRAMS",
    "FMA_COLUMNS",
    "FMA_LOADS",
    "FMA_ROWS",
    "FMA_WARPS",
    "MOST_LOADED",
    "MOST_PARTIALS",
    "MOST_PRODUCTS",
    "MOST_SLICED_ROWS",
    "MULTIPROCESSORS",
    "PROGRAMS",
    "REDUCERS",
    "SLICED_MMA_TILES",
    "STUDY_TILES",
    "TMA_PAIRS_TILES",
    "TMA_PRODUCER_TILES",
    "TMA_TILES",
    "TMA_TRANSPOSED_TILES",
    "TURNS",
    "WIDEST_LOAD",
    "Fed",
    "Feed",
    "Tile",
    "default_config",
    "default_sliced_fma_config",
    "default_sliced_mma_config",
    "fma_step",
    "has_steps",
    "matched",
    "point_of",
    "programs_space",
    "reducers",
    "sliced_fma_config",
    "sliced_fma_configs",
    "sliced_mma_configs",
    "split_tiles",
    "split_where_possible",
    "splits",
    "tiles",
    "too_many_loaded",
]

MULTIPROCESSORS = 132  # of Hopper
DEFAULT_PROGRAMS = 2 * MULTIPROCESSORS
PROGRAMS = tuple(count * MULTIPROCESSORS for count in (1, 2, 3, 4))  # stream_k, persistent: blocks of a launch
TURNS = (1, 2, 3, 4, 6, 8)  # semaphore: splits of a tile, few, as they form a chain
CLUSTER_BLOCKS = (1, 2, 3, 4, 6, 8)  # cluster: splits of a tile; 8 is the largest cluster that every device runs
WIDEST_LOAD = 16  # bytes
AnyProgramsConfig = TypeVar("AnyProgramsConfig", bound=MatmulConfig)  # a language's own


class Feed(str, Enum):
    """How the tiles of A and B reach the warps that multiply them, through shared memory."""

    COPY = "copy"  # by pointers, cp.async
    COPY_SLICED = "copy_sliced"  # likewise; every warp takes a slice of block_k, and the warps' sums meet at the end
    TMA = "tma"  # by the tensor memory accelerator, Hopper and later
    TMA_PRODUCER = "tma_producer"  # likewise; a warp that does nothing else issues the copies
    TMA_PAIRS = "tma_pairs"  # by TMA; two blocks, neighbours along M, share each tile of B (multicast)


@dataclass(frozen=True)
class Tile:
    """What a block computes, and with what. transposed: the tile is computed as its transpose, so that its columns, and
    not its rows, are the 64 rows of a wgmma (16 of an mma)."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    feed: Feed = Feed.COPY
    transposed: bool = False


class Fed(NamedTuple):
    """How a config's tiles reach what multiplies them, in words of both languages. instruction: wgmma, mma or simt."""

    feed: Feed
    transposed: bool
    instruction: str


def point_of(config: Config) -> dict[str, Any]:
    """What was wanted of both languages when this config was made: its fields, with feed and transposed, and reducer,
    in place of those that are its language's own.

    FED_BY: a config's fields that say how it is fed, where it has any. reducer: the elements and warps of one, where
    the config has one, in fields that begin with 'reduce_'.
    """
    own = getattr(config, "FED_BY", ())
    reducer = getattr(config, "reducer", None)
    point = {
        name: value
        for name, value in vars(config).items()
        if name not in own and not (reducer and name.startswith("reduce_"))
    }
    point |= {"reducer": reducer} if reducer else {}
    return {**point, "feed": config.fed.feed.value, "transposed": config.fed.transposed} if own else point


@lru_cache(maxsize=4096)
def matched(kernel: Kernel, problem: Matmul, twin: Kernel, config: Config) -> Config | str:
    """The kernel's own config that is `config` of another one, its twin in the other language or of its own: the same
    in every field that both have, fed alike, multiplied by the same instruction; or why there is none."""
    wanted = point_of(config)

    def agrees(point: dict[str, Any]) -> bool:
        return all(value == wanted.get(name, value) for name, value in point.items())

    found = next((own for point, own in _points(kernel, problem) if agrees(point)), None)
    if found is None:  # another problem's config, or one that the language cannot run
        default = kernel.default_config(problem)
        shared = {name: value for name, value in wanted.items() if name in vars(default)}
        own = default.own_fields(config.fed.feed, config.fed.transposed) if "feed" in wanted else {}
        if isinstance(own, str):
            return own
        if "reducer" in wanted:
            own = {**own, **default.reducer_fields(problem, wanted["split_k"], *wanted["reducer"])}
        found = replace(default, **shared, **own)
        if reason := kernel.supports(problem, found):
            return reason
    if "feed" in wanted:
        here, there = kernel.instruction or found.fed.instruction, twin.instruction or config.fed.instruction
        if here != there:
            return f"the tile is multiplied by {here} here, by {there} there"
    return found


@lru_cache(maxsize=16)  # a space may hold thousands
def _points(kernel: Kernel, problem: Matmul) -> list[tuple[dict[str, Any], Config]]:
    return [(point_of(config), config) for config in kernel.configs(problem)]


# (block_m, block_n, block_k, num_warps, num_stages): the 27 of the decompose-K study's optimized kernel.
STUDY_TILES = [
    *[(16, 16, 32, 1, 4), (16, 16, 64, 2, 4), (16, 16, 64, 4, 4), (16, 16, 64, 1, 5), (16, 16, 128, 2, 4)],
    *[(16, 16, 128, 4, 4), (16, 16, 128, 1, 4), (16, 16, 128, 1, 5), (16, 32, 64, 1, 5), (16, 32, 128, 1, 4)],
    *[(32, 16, 64, 1, 5), (32, 16, 128, 1, 4), (32, 32, 64, 2, 4), (32, 32, 128, 2, 4)],
    *[(64, 32, 32, 4, 5), (64, 32, 64, 4, 5), (64, 32, 128, 4, 5)],
    *[(32, 64, 32, 4, 5), (32, 64, 64, 4, 5), (32, 64, 128, 4, 5)],
    *[(64, 64, 32, 4, 3), (64, 64, 32, 4, 4), (64, 64, 64, 4, 3), (64, 64, 128, 4, 4), (64, 64, 128, 4, 5)],
    *[(64, 64, 64, 8, 5), (64, 64, 128, 8, 4)],
]
COPY_TILES = [
    *STUDY_TILES,
    # Narrow, so that few bands make many blocks; deep, as long bands want many bytes in flight.
    *[(16, 8, 128, 1, 6), (16, 8, 256, 1, 4), (16, 8, 256, 1, 6), (16, 8, 512, 1, 3), (16, 16, 256, 2, 4)],
    *[(16, 16, 256, 4, 4), (16, 16, 512, 2, 3), (16, 32, 128, 2, 4), (16, 32, 128, 4, 4), (16, 32, 256, 4, 3)],
    *[(32, 16, 128, 2, 4), (32, 16, 256, 4, 4), (32, 32, 64, 4, 6), (32, 32, 128, 4, 4), (32, 64, 128, 4, 4)],
    # Wider, for many rows or columns.
    *[(16, 64, 128, 4, 4), (16, 64, 256, 4, 3), (64, 16, 128, 4, 4), (64, 32, 128, 4, 4), (64, 64, 64, 4, 4)],
    *[(64, 64, 128, 4, 3), (64, 128, 32, 4, 4), (64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3)],
    *[(128, 64, 32, 4, 5), (128, 64, 64, 4, 4), (128, 64, 64, 4, 5), (128, 64, 128, 4, 4)],
    # As wide as the tutorials', and wider, where tiles are many.
    *[(32, 256, 32, 8, 4), (128, 128, 32, 4, 4), (128, 128, 32, 8, 5), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4)],
    *[(128, 128, 64, 8, 6), (128, 128, 128, 8, 3), (128, 256, 32, 8, 4), (128, 256, 64, 8, 4), (256, 128, 32, 8, 4)],
]
COPY_TRANSPOSED_TILES = [
    *[(16, 64, 64, 4, 5), (16, 64, 128, 4, 3), (16, 64, 128, 4, 5), (16, 64, 256, 4, 2), (16, 64, 256, 4, 4)],
    *[(32, 64, 64, 4, 5), (32, 64, 128, 4, 4), (32, 64, 256, 4, 2), (32, 128, 64, 4, 4), (32, 128, 128, 8, 3)],
]
# 16 columns for an mma, which takes its first operand from columns stored along K alone.
COPY_TRANSPOSED_NARROW_TILES = [(8, 16, 128, 1, 4), (8, 16, 256, 2, 4), (8, 32, 128, 2, 4), (8, 32, 256, 4, 3)]
# Of few rows and columns, which leave warps nothing to share but K. Deep, as all of a band may be in flight at once.
COPY_SLICED_TILES = [
    *[(16, 8, 256, 4, 4), (16, 8, 512, 4, 3), (16, 8, 1024, 4, 2)],
    *[(16, 16, 128, 4, 8), (16, 16, 256, 4, 4), (16, 16, 256, 4, 5), (16, 16, 512, 4, 3), (16, 16, 512, 8, 3)],
    *[(16, 16, 1024, 8, 2), (16, 32, 128, 4, 6), (16, 32, 256, 4, 4), (16, 32, 512, 8, 3)],
    *[(32, 16, 128, 4, 6), (32, 16, 256, 4, 4), (32, 16, 512, 8, 3)],
    *[(32, 32, 128, 4, 4), (32, 32, 128, 4, 8), (32, 32, 256, 4, 4), (32, 32, 256, 8, 4)],
    *[(64, 16, 128, 4, 4), (64, 16, 256, 8, 4)],
]
MOST_SLICED_ROWS = 128  # of A: with more, tiles are high enough for each warp to have products of its own
TMA_TILES = [
    *[(64, 32, 128, 4, 4), (64, 64, 64, 4, 6), (64, 64, 128, 4, 3), (64, 64, 128, 4, 4), (64, 128, 64, 4, 4)],
    *[(64, 128, 64, 4, 5), (64, 128, 128, 4, 3), (64, 256, 64, 4, 4), (128, 64, 64, 4, 4), (128, 64, 64, 4, 6)],
    *[(128, 64, 128, 4, 4), (128, 128, 64, 4, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 4), (128, 128, 64, 8, 6)],
    *[(128, 128, 128, 4, 3), (128, 128, 128, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 4)],
    # As many bytes in flight as shared memory holds, for one block a multiprocessor.
    *[(64, 32, 128, 4, 8), (64, 64, 64, 4, 12), (64, 64, 128, 4, 6), (64, 128, 64, 4, 8), (64, 128, 128, 4, 4)],
    *[(64, 256, 64, 4, 5), (128, 64, 64, 4, 8), (128, 128, 64, 4, 6)],
]
TMA_TRANSPOSED_TILES = [
    *[(8, 16, 256, 1, 4), (16, 16, 256, 1, 4), (16, 32, 256, 2, 3), (16, 64, 64, 4, 6), (16, 64, 128, 4, 4)],
    *[(16, 64, 128, 4, 5), (16, 64, 256, 4, 2), (16, 64, 256, 4, 5), (16, 128, 128, 4, 6)],
    *[(32, 64, 128, 4, 3), (32, 64, 128, 4, 4), (32, 64, 256, 4, 4), (32, 128, 128, 4, 5)],
    *[(16, 64, 128, 4, 10), (32, 64, 128, 4, 8)],
]
# One block a multiprocessor, two warpgroups that multiply where the tile has rows for both.
TMA_PRODUCER_TILES = [
    *[(64, 64, 64, 4, 12), (64, 64, 128, 4, 6), (64, 128, 64, 4, 8), (64, 256, 64, 4, 5)],
    *[(128, 64, 64, 8, 8), (128, 128, 64, 8, 6), (128, 128, 128, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 4)],
]
# As many bytes in flight as shared memory holds, as a stage waits for both blocks before it is filled again.
TMA_PAIRS_TILES = [
    *[(64, 64, 128, 4, 6), (64, 128, 64, 4, 8), (64, 128, 128, 4, 4), (64, 256, 64, 4, 5), (128, 64, 64, 4, 8)],
    *[(128, 64, 64, 8, 8), (128, 128, 64, 4, 6), (128, 128, 64, 8, 6), (128, 256, 64, 8, 4)],
]
# Multiplied on CUDA cores, fp32: the study's tiles, and each of their shapes with one step loaded while one is
# multiplied, as registers need no more.
CUDA_CORE_TILES = [
    *STUDY_TILES,
    *[(16, 8, 32, 1, 2), (16, 16, 32, 1, 2), (16, 16, 32, 2, 2), (16, 16, 32, 4, 2), (16, 32, 32, 1, 2)],
    *[(16, 32, 32, 4, 2), (32, 16, 32, 1, 2), (32, 16, 32, 2, 2), (32, 32, 32, 2, 2), (32, 32, 32, 4, 2)],
    *[(32, 64, 32, 4, 2), (64, 32, 32, 4, 2), (64, 64, 32, 4, 2), (64, 64, 32, 8, 2), (128, 64, 32, 4, 2)],
]


def tiles(problem: Matmul) -> Iterator[Tile]:
    """The wanted tiles whose rows fit the problem's."""
    if problem.dtype.itemsize == 4:
        wanted = [Tile(*tile) for tile in CUDA_CORE_TILES]
    else:
        narrow = COPY_TRANSPOSED_NARROW_TILES if problem.layout is Layout.NK else []
        wanted = [
            *(Tile(*tile) for tile in COPY_TILES),
            *(Tile(*tile, Feed.COPY, transposed=True) for tile in COPY_TRANSPOSED_TILES + narrow),
            *(Tile(*tile, Feed.COPY_SLICED) for tile in COPY_SLICED_TILES if problem.m <= MOST_SLICED_ROWS),
            *(Tile(*tile, Feed.TMA) for tile in TMA_TILES),
            *(Tile(*tile, Feed.TMA, transposed=True) for tile in TMA_TRANSPOSED_TILES),
            *(Tile(*tile, Feed.TMA_PRODUCER) for tile in TMA_PRODUCER_TILES),
            *(Tile(*tile, Feed.TMA_PAIRS) for tile in TMA_PAIRS_TILES),
        ]
    return (tile for tile in wanted if _rows_fit(tile.block_m, problem.m))


def _rows_fit(block_m: int, m: int) -> bool:
    """Whether tiles of block_m rows are wanted for m: at most twice as high, and no more than 32 of them along M."""
    rows = 1 << (m - 1).bit_length()
    return min(64, rows // 32) <= block_m <= max(16, 2 * rows)


def splits(problem: Matmul) -> tuple[int, ...]:
    """1, powers of two, divisors of K that leave bands of 128 and more, then those of which a wanted tile makes as many
    blocks as there are multiprocessors; beyond 8 none finer than K over the longer side of C, as partial sums then
    outweigh the inputs."""
    finest = max(8, min(problem.k // problem.m, problem.k // problem.n, 256))
    powers = [1 << i for i in range(1, 9) if 1 << i <= finest and problem.k >> i >= 16]
    divisors = [s for s in range(2, finest + 1) if problem.k % s == 0 and problem.k // s >= 128 and s not in powers]
    filling = {MULTIPROCESSORS // tiles_of(problem, tile) for tile in tiles(problem)}
    fitting = [s for s in sorted(filling) if 1 < s <= finest and problem.k // s >= 128]
    return tuple(dict.fromkeys((1, *(powers + divisors)[:16], *fitting)))


def split_tiles(
    problem: Matmul,
    split_ks: Iterable[int],
    config_of: Callable[[Tile, int], Config | str],
    supports: Callable[[Config], str | None],
) -> Space:
    """The space of a kernel that splits K: every wanted tile with each of these splits of which every band has a step.
    split_k = 1 stays only where nothing else fits, as it is another kernel."""
    wanted = [
        config_of(tile, split_k)
        for tile, split_k in product(tiles(problem), split_ks)
        if has_steps(problem, tile.block_k, split_k)
    ]
    space = space_of(wanted, supports)
    return Space(tuple(split_where_possible(space.configs)), space.dropped)


def has_steps(problem: Matmul, block_k: int, split_k: int) -> bool:
    """Whether every band has a step of block_k."""
    return (split_k - 1) * band_steps(problem.k, block_k, split_k) * block_k < problem.k


def split_where_possible(configs: Iterable[Config]) -> list[Config]:
    """Those with split_k > 1; all of them where none has."""
    configs = list(configs)
    return [config for config in configs if config.split_k > 1] or configs


def too_many_steps(problem: Matmul, config: MatmulConfig) -> str | None:
    """Why programs cannot share out the steps of all tiles, which they count in int32; None where they can."""
    steps = cdiv(problem.k, config.block_k)
    if (work := tiles_of(problem, config) * steps) + steps < 1 << 31:
        return None
    return f"{work} steps of all tiles; accepted: fewer than 2^31, as a program counts them in int32"


def programs_space(
    unsplit: Space,
    config_of: Callable[..., AnyProgramsConfig],
    supports: Callable[[AnyProgramsConfig], str | None],
    most: Callable[[Config], int],
) -> Space:
    """The space of a kernel whose programs walk tiles: every config of `unsplit`, with 1 to 4 programs on each
    multiprocessor: 1 always, more where there are no more programs than `most` says of the config. config_of: makes
    the kernel's config of an unsplit one's fields and `programs`."""
    wanted = [
        config_of(**vars(config), programs=programs)
        for config in unsplit.configs
        for programs in PROGRAMS
        if programs == PROGRAMS[0] or programs <= most(config)
    ]
    space = space_of(wanted, supports)
    return Space(space.configs, {**unsplit.dropped, **space.dropped})


WIDEST_DEFAULT = 64  # columns of default_config's tiles
MOST_WARPS = 32  # of a block, which has 1024 threads at most


def too_many_warps(num_warps: int, name: str = "num_warps") -> str | None:
    """Why a block cannot have so many warps; None where it can."""
    if 1 <= num_warps <= MOST_WARPS:
        return None
    return f"{name} is {num_warps}; accepted: 1 to {MOST_WARPS}, as a block has 1024 threads at most"


def default_config(problem: Matmul, most_splits: int) -> MatmulConfig:
    """The rule of both languages where no config was searched: tiles that cover M up to 64 rows, and a power of two of
    splits, at most most_splits, for two blocks on each of Hopper's multiprocessors, in bands of 128 and more; wider
    tiles where a grid has no room for so many."""
    block_m = min(64, max(16, 1 << (problem.m - 1).bit_length()))
    block_n = 16 if problem.m <= 16 else 32 if problem.m <= 64 else WIDEST_DEFAULT
    while block_n < WIDEST_DEFAULT and cdiv(problem.n, block_n) > GRID_LIMIT:
        block_n *= 2
    block_k = 128 if problem.dtype.itemsize == 2 else 32
    tile = MatmulConfig(block_m, block_n, block_k, split_k=1, num_warps=1 if block_m == 16 else 4, num_stages=4)
    most_splits = min(most_splits, DEFAULT_PROGRAMS // tiles_of(problem, tile), problem.k // 128)
    return replace(tile, split_k=1 << max(1, most_splits).bit_length() - 1)


# decompose_k: (elements of C of a block, its warps) of the reducer that is laid out around the split axis.
REDUCERS = ((8, 1), (16, 1), (32, 1), (32, 4), (128, 4), (512, 4), (1024, 4))
MOST_PARTIALS = 128  # that a thread of the reducer holds at once, in registers


def reducers(split_k: int) -> list[tuple[int, int]]:
    """(elements, warps) whose threads hold 1 to 128 partial sums each, the narrowest first."""
    return [
        (elements, warps) for elements, warps in REDUCERS if 1 <= elements * split_k / (32 * warps) <= MOST_PARTIALS
    ]


# sliced_k, mma: (block_m, block_n, block_k, num_warps, num_stages); the warps share block_k.
SLICED_MMA_TILES = [
    # Few columns make many blocks.
    *[(16, 2, 512, 4, 4), (16, 2, 512, 4, 8), (16, 2, 1024, 8, 4), (16, 2, 512, 8, 6), (16, 2, 1024, 4, 4)],
    *[(16, 4, 512, 4, 4), (16, 4, 512, 4, 8), (16, 4, 1024, 8, 4), (16, 4, 512, 8, 6), (16, 4, 1024, 4, 4)],
    *[(16, 8, 512, 4, 4), (16, 8, 512, 4, 8), (16, 8, 1024, 8, 4), (16, 8, 512, 8, 6), (16, 8, 1024, 4, 4)],
    # More rows and columns reread less.
    *[(16, 16, 256, 2, 4), (16, 16, 128, 4, 6), (16, 16, 256, 4, 4), (16, 16, 512, 4, 4), (16, 16, 512, 8, 4)],
    *[(32, 8, 256, 4, 6), (32, 8, 512, 4, 4), (32, 16, 256, 4, 4), (32, 16, 512, 8, 4), (32, 32, 128, 2, 4)],
    *[(32, 32, 256, 4, 4), (64, 8, 256, 4, 4), (64, 16, 128, 2, 4), (64, 16, 256, 4, 4), (64, 32, 128, 4, 4)],
    *[(64, 32, 256, 4, 3), (16, 64, 256, 4, 4), (64, 64, 64, 2, 4), (64, 64, 128, 2, 3), (64, 64, 128, 4, 3)],
]
# sliced_k, fma: of a thread.
FMA_ROWS = FMA_COLUMNS = (1, 2, 4, 8, 16)
FMA_LOADS = (8, 7, 4, 2, 1)  # of 16 bytes, a column and step; 7 x 4 warps are the 7168 of a router
FMA_WARPS = (4, 8, 2, 16)
MOST_LOADED = 160  # of a thread's 255 registers, by what it loads for a step, beside what it sums
MOST_PRODUCTS = 512  # of a step, each in its place in unrolled code


def sliced_mma_configs() -> list[MatmulConfig]:
    """Every tile; all warps share K, so split_k is their number."""
    return [
        MatmulConfig(block_m, block_n, block_k, num_warps, num_warps, stages)
        for block_m, block_n, block_k, num_warps, stages in SLICED_MMA_TILES
    ]


def sliced_fma_configs(problem: Matmul) -> list[MatmulConfig]:
    """Rows up to the next power of two of M, columns up to that of N, loads as registers hold, no longer steps than K
    needs."""
    wanted = []
    for block_m, block_n, loads, num_warps in product(FMA_ROWS, FMA_COLUMNS, FMA_LOADS, FMA_WARPS):
        config = sliced_fma_config(problem, block_m, block_n, loads, num_warps)
        if (
            block_m < 2 * problem.m
            and block_n < 2 * problem.n
            and (loads == 1 or config.block_k < 2 * problem.k)
            and too_many_loaded(problem, config) is None
            and block_m * block_n * config.block_k <= MOST_PRODUCTS * 32 * num_warps
        ):
            wanted.append(config)
    return wanted


def sliced_fma_config(problem: Matmul, block_m: int, block_n: int, loads: int, num_warps: int) -> MatmulConfig:
    """Whose threads load `loads` times 16 bytes of each column a step."""
    return MatmulConfig(
        block_m, block_n, loads * num_warps * fma_step(problem, block_n), num_warps, num_warps, num_stages=1
    )


def fma_step(problem: Matmul, block_n: int) -> int:
    """Along K, what one load of 16 bytes by every lane of a warp covers of block_n columns: with the weight stored
    [N, K] each lane has its own k; stored [K, N], up to 16 bytes of neighbouring columns are one lane's."""
    elements = WIDEST_LOAD // problem.dtype.itemsize
    return 32 * elements // (1 if problem.layout is Layout.NK else min(block_n, elements))


def too_many_loaded(problem: Matmul, config: MatmulConfig) -> str | None:
    """Why a thread of sliced_k's fma has no registers for what it loads in a step; None where it has."""
    values = (config.block_m + config.block_n) * config.block_k // (32 * config.num_warps)
    most = MOST_LOADED * 8 // max(8, config.num_warps)  # 8 warps of 255 registers are all that a block has
    if (registers := values * problem.dtype.itemsize // 4) <= most:
        return None
    step = f"a step of {config.block_m} rows and {config.block_n} columns by {config.num_warps} warps"
    return f"{step} loads {registers} registers a thread, over {most}"


def default_sliced_mma_config(problem: Matmul) -> MatmulConfig:
    """Tiles that cover M up to 64 rows."""
    rows = 1 << (problem.m - 1).bit_length()
    return MatmulConfig(min(64, max(16, rows)), 16, 256, split_k=4, num_warps=4, num_stages=4)


def default_sliced_fma_config(problem: Matmul) -> MatmulConfig:
    """Rows for which B is read once, up to 8; one column (16 bytes of columns with the weight stored [K, N]); as much
    of K at once as registers hold."""
    rows = min(8, 1 << (problem.m - 1).bit_length())
    columns = 1
    if problem.layout is Layout.KN:
        columns = min(WIDEST_LOAD // problem.dtype.itemsize, 1 << (problem.n - 1).bit_length())
    num_warps = 4 if rows == 1 else 8
    tiles = (sliced_fma_config(problem, rows, columns, loads, num_warps) for loads in (8, 4, 2, 1))
    wanted = sliced_fma_configs(problem)
    return next(tile for tile in tiles if tile in wanted)
