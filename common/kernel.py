"""The record that a kernel file registers, and the configuration that both languages share."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from torch import Tensor

from common.problem import Matmul
from common.protocol import Protocol


class Language(str, Enum):
    TRITON = "triton"
    TILUS = "tilus"
    TORCH = "torch"
    CANDIDATE = "candidate"  # brought by a user, in whatever language


@dataclass(frozen=True)
class MatmulConfig:
    """What a kernel is compiled for, whatever the size of the problem.

    A block computes a [block_m, block_n] tile of C over one of split_k contiguous bands of K, in steps of
    block_k, with num_warps warps and a pipeline of num_stages.
    """

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
class Kernel:
    """One variant of one kernel in one language.

    name            the file's name, the same in both languages
    variant         what tells it from the others of its file; empty where there are none
    launch          matmul(a, b, *, epilogue, bias, out, out_dtype, config) -> C [M, N]
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
    """

    name: str
    variant: str
    language: Language
    protocol: Protocol
    launch: Callable[..., Tensor]
    config_type: type[MatmulConfig]
    configs: Callable[[Matmul], Sequence[MatmulConfig]]
    default_config: Callable[[Matmul], MatmulConfig]
    build: Callable[[Matmul, MatmulConfig], None] | None
    supports: Callable[[Matmul, MatmulConfig | None], str | None]
    deterministic: bool
    roundings: Callable[[MatmulConfig], int]
    workspace_bytes: Callable[[Matmul, MatmulConfig], int | None]
    launches: int | None
    note: Callable[[], str] = lambda: ""

    @property
    def full_name(self) -> str:
        """e.g. 'triton/decompose_k.vector', 'torch/mm': unique, and what --only, --skip and the tuned tables use."""
        return f"{self.language.value}/{self.name}" + (f".{self.variant}" if self.variant else "")

    def config_from(self, fields: dict[str, Any]) -> MatmulConfig:
        """The config of this kernel that a JSON object holds. Raises TypeError for a field that is not its own."""
        return self.config_type(**fields)
