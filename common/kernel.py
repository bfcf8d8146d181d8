"""The record that a kernel file registers, and the configuration that both languages share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, ClassVar

from torch import Tensor

from common.epilogue import Epilogue
from common.problem import Matmul, Problem
from common.protocol import Protocol

DEFAULT_PROGRAMS = 264  # two for each of Hopper's 132 multiprocessors
GRID_LIMIT = 65535  # blocks along the second dimension of a grid, and along the third


class Language(str, Enum):
    TRITON = "triton"
    TILUS = "tilus"
    TORCH = "torch"
    HELION = "helion"
    FLASHINFER = "flashinfer"  # CUDA C++ of the serving engines
    TLX = "tlx"  # Triton's low-level extensions
    CANDIDATE = "candidate"  # brought by a user, in whatever language


Config = Any  # of a kernel: a frozen dataclass whose fields are JSON values


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


def rows_fit(block_m: int, m: int) -> bool:
    """Whether a search tries tiles of block_m rows for m: neither far higher than they are, nor so low that B goes to
    more than 32 of them."""
    rows = 1 << (m - 1).bit_length()
    return min(64, rows // 32) <= block_m <= max(16, 2 * rows)


def nothing_unfused(problem: Matmul) -> str | None:
    """Why a variant that leaves the epilogue to torch sits out; None where there is one."""
    return "no epilogue to leave unfused" if problem.epilogue is Epilogue.NONE else None


def splits(problem: Matmul) -> tuple[int, ...]:
    """What a search tries in both languages: 1, powers of two, then divisors of K that leave bands of 128 and more;
    beyond 8 none finer than K over the longer side of C, as then the partial sums outweigh the inputs."""
    finest = max(8, min(problem.k // problem.m, problem.k // problem.n, 256))
    powers = [1 << i for i in range(1, 9) if 1 << i <= finest and problem.k >> i >= 16]
    divisors = [s for s in range(2, finest + 1) if problem.k % s == 0 and problem.k // s >= 128 and s not in powers]
    return (1, *(powers + divisors)[:16])


def default_splits(problem: Matmul, tiles: int, most: int) -> int:
    """What a kernel splits K into by its own rule, in both languages: a power of two, as many as make DEFAULT_PROGRAMS
    of these tiles, in bands of 128 and more."""
    split_k = 1
    while split_k * 2 <= most and split_k * 2 * tiles <= DEFAULT_PROGRAMS and problem.k // (split_k * 2) >= 128:
        split_k *= 2
    return split_k


def band_steps(problem: Matmul, config: MatmulConfig) -> int:
    """Steps of block_k in a band, the last one's perhaps fewer. For a launch to tell: loads would wait for a program's
    own division."""
    steps = -(-problem.k // config.block_k)
    return -(-steps // config.split_k)


def has_steps(problem: Matmul, config: MatmulConfig) -> bool:
    """Whether every band has a step of block_k and more: a search tries no others, in either language."""
    return (config.split_k - 1) * band_steps(problem, config) * config.block_k < problem.k


def split_where_possible(configs: list[Config]) -> list[Config]:
    """Those that split K: of a kernel that does, the one band is another kernel. All of them where none splits."""
    return [config for config in configs if config.split_k > 1] or configs


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
class Kernel:
    """One variant of one kernel in one language.

    name            the file's name, the same in both languages
    variant         what tells it from the others of its file; empty where there are none
    launch          matmul(a, b, *, epilogue, bias, out, out_dtype, config) -> C [M, N]; of other operations their own
                    arguments, then out and config
    config_type     the type of its configs; its fields are JSON values
    configs         the search space for a problem, every one supported
    default_config  the documented heuristic where no tuned config is known
    build           compiles a config into the language's on-disk cache, launching nothing (None: nothing to build)
    supports        None, or why this problem (on this config, where one is given) cannot be run
    deterministic   bitwise the same result in every run
    roundings       how often an element's running sum is rounded to the output's dtype
    workspace_bytes scratch memory of one call; None where it is not known
    launches        of GPU kernels in one call; None where it is not known
    note            what a reader of its rows has to know beside the figures; asked for after a launch
    op              the operation of the problems that it solves
    arguments       what it is launched with for a problem's inputs, positional and by keyword, beside out and config.
                    What is laid out anew here, a weight for one, is laid out ahead of the calls that are timed
    tuned_as        full name of the kernel whose searched configs it takes, as it is that one but for a part that a
                    comparison takes out; of its own where empty
    on_request      takes part only where it is asked for: it compiles or searches for long at every problem
    """

    name: str
    variant: str
    language: Language
    protocol: Protocol
    launch: Callable[..., Tensor]
    config_type: type[Config]
    configs: Callable[[Problem], Sequence[Config]]
    default_config: Callable[[Problem], Config]
    build: Callable[[Problem, Config], None] | None
    supports: Callable[[Problem, Config | None], str | None]
    deterministic: bool
    roundings: Callable[[Config], int]
    workspace_bytes: Callable[[Problem, Config], int | None]
    launches: int | None
    note: Callable[[], str] = lambda: ""
    op: str = Matmul.op
    arguments: Callable[[Problem, Any], tuple[tuple[Any, ...], dict[str, Any]]] = problem_arguments
    tuned_as: str = ""
    on_request: bool = False

    @property
    def full_name(self) -> str:
        """e.g. 'triton/decompose_k.vector', 'torch/mm': unique, and what --only, --skip and the tuned tables use."""
        return f"{self.language.value}/{self.name}" + (f".{self.variant}" if self.variant else "")

    def config_from(self, fields: dict[str, Any]) -> Config:
        """The config of this kernel that a JSON object holds. Raises TypeError for a field that is not its own."""
        return self.config_type(**fields)
