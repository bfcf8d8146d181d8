"""Named lists of problems, and problems given by their sizes."""

import re
from collections.abc import Callable, Sequence

import torch

from common.epilogue import Epilogue
from common.problem import DTYPES, Layout, Matmul

ROUTER_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024)
ROUTER_HIDDEN = 7168
ROUTER_EXPERTS = 256

Numbers = dict[str, torch.dtype | Layout | Epilogue | None]


def router(tokens: Sequence[int] | None, numbers: Numbers) -> list[Matmul]:
    """The expert scores of DeepSeek-V3's mixture-of-experts router: [T, 7168] @ [7168, 256], T tokens."""
    return [Matmul(m=t, n=ROUTER_EXPERTS, k=ROUTER_HIDDEN, **numbers) for t in tokens or ROUTER_TOKENS]


WORKLOADS: dict[str, Callable[[Sequence[int] | None, Numbers], list[Matmul]]] = {"router": router}

# The name of the workload of problems that --shape gives.
SHAPE = "shape"


def parse_shape(text: str) -> tuple[int, int, int]:
    """'16x256x7168' -> (16, 256, 7168): M, N, K. Raises ValueError for anything else."""
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text.lower())):
        raise ValueError(f"shape is {text!r}; accepted: MxNxK, three positive integers, e.g. 16x256x7168")
    return tuple(int(size) for size in match.groups())


def parse_tokens(text: str) -> list[int]:
    """'1,16,64' -> [1, 16, 64]. Raises ValueError for anything else."""
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise ValueError(f"tokens are {text!r}; accepted: positive integers with commas between, e.g. 1,16,64")
    return [int(size) for size in text.split(",")]


def problems(
    workload: str | None,
    shapes: Sequence[tuple[int, int, int]] = (),
    *,
    tokens: Sequence[int] | None = None,
    layout: str = "nk",
    dtype: str = "bf16",
    out_dtype: str | None = None,
    epilogue: str = "none",
) -> list[tuple[str, Matmul]]:
    """(workload, problem) pairs of a named workload, then of the shapes (M, N, K); each problem once.

    layout, dtype, out_dtype (None: dtype) and epilogue are short names, as tables have them. Raises ValueError for an
    unknown workload, KeyError or ValueError for an unknown short name.
    """
    numbers = {
        "layout": Layout(layout),
        "dtype": DTYPES[dtype],
        "out_dtype": None if out_dtype is None else DTYPES[out_dtype],
        "epilogue": Epilogue(epilogue),
    }
    chosen = []
    if workload is not None:
        if workload not in WORKLOADS:
            raise ValueError(f"workload is {workload!r}; accepted: {', '.join(WORKLOADS)}")
        chosen += [(workload, problem) for problem in WORKLOADS[workload](tokens, numbers)]
    chosen += [(SHAPE, Matmul(m, n, k, **numbers)) for m, n, k in shapes]
    once: dict[Matmul, str] = {}
    for name, problem in chosen:
        once.setdefault(problem, name)
    return [(name, problem) for problem, name in once.items()]
