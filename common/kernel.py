"""The record that a kernel file registers, and the configuration that both languages share."""

import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.plan import Backend, Plan
from triton_vs_tilus.common.problem import Matmul, Problem
from triton_vs_tilus.common.protocol import Protocol

__all__ = [
    "GRID_LIMIT",
    "LANGUAGES",
    "Config",
    "Grid",
    "GroupedConfig",
    "Kernel",
    "Language",
    "MatmulConfig",
    "OwnProblem",
    "Space",
    "band_steps",
    "cdiv",
    "grid_of",
    "is_grouped",
    "nothing_to_search",
    "nothing_unfused",
    "problem_arguments",
    "space_of",
    "tiles_of",
    "too_large",
    "too_many_blocks",
]

GRID_LIMIT = 65535  # blocks along the second dimension of a grid, and along the third


class Language(str, Enum):
    TRITON = "triton"
    TILUS = "tilus"
    TORCH = "torch"
    CUBLASLT = "cublaslt"  # cuBLAS by its lower interface
    HELION = "helion"
    FLASHINFER = "flashinfer"  # CUDA C++ of the serving engines
    CUTE_DSL = "cute_dsl"  # CUTLASS' Python language
    HUMMING = "humming"  # CUDA C++ for quantized weights
    TLX = "tlx"  # Triton's low-level extensions
    GLUON = "gluon"  # the explicit language within Triton
    PUBLISHED_TILUS = "published_tilus"
    PUBLISHED_TRITON = "published_triton"  # a source's own design, written anew from its description
    CANDIDATE = "candidate"  # brought by a user, in whatever language

    @property
    def compiler(self) -> "Language":
        """Whose compiler compiles it: Triton's for Gluon; for a published design that of the language it is written in;
        for others their own."""
        return Language.TRITON if self is Language.GLUON else Language(self.value.removeprefix("published_"))


LANGUAGES = (Language.TRITON, Language.TILUS)  # that the pairs are written in

Config = Any  # of a kernel: a frozen dataclass whose fields are JSON values
OwnProblem = Any  # a Problem of the kernel's own operation
OwnPlaces = Any  # how its tensors lie: a Placement, of a matmul


@dataclass(frozen=True)
class MatmulConfig:
    """What a kernel is compiled for, whatever the size of the problem.

    A block computes a [block_m, block_n] tile of C over one of split_k contiguous bands of K, in steps of
    block_k, with num_warps warps and a pipeline of num_stages.

    AT_LAUNCH: the fields that a launch is told, so that configs which differ in these alone share what is compiled.
    """

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ("split_k",)

    block_m: int
    block_n: int
    block_k: int
    split_k: int
    num_warps: int
    num_stages: int

    def __str__(self) -> str:
        text = f"{self.block_m}x{self.block_n}x{self.block_k} s{self.split_k} w{self.num_warps} p{self.num_stages}"
        own = {name: value for name, value in asdict(self).items() if name not in MatmulConfig.__annotations__}
        return " ".join([text, *(f"{name}={value}" for name, value in own.items())])


@dataclass(frozen=True)
class GroupedConfig(MatmulConfig):
    """group_m: rows of tiles that are walked together, column by column, before the next group: blocks that run at the
    same time then share rows of A and columns of B in L2."""

    AT_LAUNCH: ClassVar[tuple[str, ...]] = ("split_k", "group_m")

    group_m: int = 8


class Grid(NamedTuple):
    """Blocks of a launch that splits K: (group_m, tiles_n, groups * split_k), the first running fastest and the split
    slowest. Where the last group has fewer rows, its other blocks end at once."""

    group_m: int
    tiles_n: int
    groups: int
    split_k: int

    @property
    def blocks(self) -> tuple[int, int, int]:
        return self.group_m, self.tiles_n, self.groups * self.split_k


def grid_of(problem: Matmul, config: GroupedConfig) -> Grid:
    """The grid of every kernel whose blocks compute one tile of one band each, in both languages."""
    tiles_m = cdiv(problem.m, config.block_m)
    group_m = min(config.group_m, tiles_m)
    return Grid(group_m, cdiv(problem.n, config.block_n), cdiv(tiles_m, group_m), config.split_k)


def is_grouped(problem: Matmul, config: "Config") -> bool:
    """Whether there are more rows of tiles than a group has: kernels are compiled for it."""
    return isinstance(config, GroupedConfig) and grid_of(problem, config).groups > 1


def too_large(grid: Grid) -> str | None:
    """Why a grid cannot be launched; None where it can."""
    return too_many_blocks({"N": grid.tiles_n, "groups of rows and splits": grid.groups * grid.split_k})


def nothing_unfused(problem: Matmul) -> str | None:
    """Why a variant that leaves the epilogue to torch sits out; None where there is one."""
    return "no epilogue to leave unfused" if problem.epilogue is Epilogue.NONE else None


class _Tiled(typing.Protocol):
    @property
    def block_m(self) -> int: ...

    @property
    def block_n(self) -> int: ...


def tiles_of(problem: Matmul, tile: _Tiled) -> int:
    """How many tiles of C [M, N] there are. tile: what has its sizes, a Tile or a config."""
    return cdiv(problem.m, tile.block_m) * cdiv(problem.n, tile.block_n)


def band_steps(k: int, block_k: int, split_k: int) -> int:
    """Steps of block_k in a band of K, the last band's perhaps fewer. The host passes it to a launch: a division on the
    device would come before the first copy."""
    return cdiv(cdiv(k, block_k), split_k)


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def too_many_blocks(blocks: Mapping[str, int]) -> str | None:
    """Why a grid cannot be launched that has so many blocks in its second or third dimension, by what is walked there;
    None where it can."""
    for name, count in blocks.items():
        if count > GRID_LIMIT:
            return f"{count} blocks along {name}; accepted: {GRID_LIMIT} or fewer, as a grid holds no more there"
    return None


def problem_arguments(problem: Problem, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What most kernels are launched with: the inputs as they are."""
    return problem.arguments(inputs)


@dataclass(frozen=True)
class Space:
    """What a search may try for a problem.

    configs  every one supported
    dropped  how many more both languages want of which this one cannot run any, by reason
    """

    configs: tuple[Config, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


def space_of(wanted: Iterable[Config | str], supports: Callable[[Config], str | None]) -> Space:
    """The wanted configs that `supports` takes, each once; the others counted by its reason. wanted: a string stands
    for a point that the language has no config for, and says why."""
    kept: dict[Config, None] = {}
    dropped: Counter[str] = Counter()
    for config in wanted:
        reason = config if isinstance(config, str) else supports(config)
        if reason is None:
            kept[config] = None
        else:
            dropped[reason] += 1
    return Space(tuple(kept), dict(dropped))


def nothing_to_search(problem: Problem) -> Space:
    """The space of a contender that has no configs of its own."""
    return Space()


@dataclass(frozen=True)
class Kernel:
    """One variant of one kernel in one language.

    name            the file's name, the same in both languages
    variant         what tells it from the others of its file; empty where there are none
    launch          matmul(a, b, *, epilogue, bias, out, out_dtype, config) -> C [M, N]; of other operations their own
                    arguments, then out and config
    config_type     the type of its configs; its fields are JSON values
    space           what a search may try for a problem
    default_config  the documented heuristic where no tuned config is known
    build           compiles a config into the language's on-disk cache, launching nothing (None: nothing to build)
    supports        None, or why this problem (on this config, where one is given) cannot be run
    deterministic   bitwise the same result in every run
    roundings       how often an element's running sum is rounded to the output's dtype
    workspace_bytes scratch memory of one call; None where it is not known
    launches        of GPU kernels in one call, an epilogue left to torch as 1; None where it is not known
    note            what a reader of its rows has to know beside the figures; asked for after a launch
    op              the operation of the problems that it solves
    arguments       what it is launched with for a problem's inputs, positional and by keyword, beside out and config.
                    What is laid out anew here, a weight for one, is laid out ahead of the calls that are timed
    tuned_as        full name of the kernel whose searched configs it takes, as it is that one but for a part that a
                    comparison takes out; of its own where empty
    instruction     that multiplies whatever the config says: 'mma', where the compiler has no wgmma for the product
    on_request      takes part only where it is asked for: it compiles or searches for long at every problem, or most
                    problems leave it nothing to do otherwise than another
    plan            what a call launches, for tensors that lie so; None for a reference
    backend         how that is launched
    """

    name: str
    variant: str
    language: Language
    protocol: Protocol
    launch: Callable[..., Tensor]
    config_type: type[Config]
    default_config: Callable[[OwnProblem], Config]
    build: Callable[[OwnProblem, Config], None] | None
    supports: Callable[[OwnProblem, Config | None], str | None]
    deterministic: bool
    roundings: Callable[[Config], int]
    workspace_bytes: Callable[[OwnProblem, Config], int | None]
    launches: int | None
    space: Callable[[OwnProblem], Space] = nothing_to_search
    note: Callable[[], str] = lambda: ""
    op: str = Matmul.op
    arguments: Callable[[OwnProblem, Any], tuple[tuple[Any, ...], dict[str, Any]]] = problem_arguments
    tuned_as: str = ""
    instruction: str = ""
    on_request: bool = False
    plan: Callable[[OwnProblem, Config, OwnPlaces], Plan] | None = None
    backend: Backend | None = None

    @property
    def full_name(self) -> str:
        """e.g. 'triton/decompose_k.vector', 'torch/mm': unique, and what --only, --skip and the tuned tables use."""
        apart = "" if not self.variant or self.variant.startswith("@") else "."
        return f"{self.language.value}/{self.name}{apart}{self.variant}"

    def configs(self, problem: Problem) -> tuple[Config, ...]:
        """The configs of its space."""
        return self.space(problem).configs

    def config_from(self, fields: dict[str, Any]) -> Config:
        """The config of this kernel that a JSON object holds. Raises TypeError for a field that is not its own."""
        return self.config_type(**fields)
