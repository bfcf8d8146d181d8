"""Named lists of problems, lists of a user's own from a file, and problems given by their sizes."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from triton_vs_tilus.bench.cli import named_by
from triton_vs_tilus.bench.models import ROUTERS
from triton_vs_tilus.bench.shapes import Shape, parse_shape
from triton_vs_tilus.common.chain import Chain
from triton_vs_tilus.common.distance import SIZES
from triton_vs_tilus.common.epilogue import Epilogue
from triton_vs_tilus.common.or_reduce import OrReduce
from triton_vs_tilus.common.problem import DTYPES, Layout, Matmul, Problem, short_dtype
from triton_vs_tilus.common.quantization import PACKED
from triton_vs_tilus.common.w4a16 import DTYPES as W4A16_DTYPES
from triton_vs_tilus.common.w4a16 import GROUP_SIZES, W4A16Matmul

ROUTER_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 768, 1024)
ROUTER_HIDDEN = 7168
CHAIN_TOKENS = (1, 4, 16, 64, 256)
ROUTER_EXPERTS = 256

SKINNY_SIZES = (16, 32, 48, 64)
SKINNY_DEPTHS = range(8192, 32768 + 1, 4096)
SKINNY = tuple((size, size, k) for size in SKINNY_SIZES for k in SKINNY_DEPTHS)

# The study's list goes up in steps of 128 and leaves one out; it gives them as (M, K, N).
GENERATED = tuple((m, m + 256, m + 128) for m in range(256, 4096 + 1, 128) if m != 1920)

CROSSOVER_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # M = N, at K = 8192
CROSSOVER_DEPTHS = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)  # K, at M = N = 64
CROSSOVER = (*((size, size, 8192) for size in CROSSOVER_SIZES), *((64, 64, k) for k in CROSSOVER_DEPTHS))

# Rows of 7168 elements; of 64 more, which begin at lines of 128 bytes too, though splits leave bands uneven; of 8 more,
# which do not; of an odd number. And few tiles for a GPU, where torch.mm has been fastest.
CLIFF_DEPTHS = (7168, 7232, 7176, 7175)
CLIFFS = (
    *((tokens, ROUTER_EXPERTS, k) for tokens in (16, 256) for k in CLIFF_DEPTHS),
    *((384, experts, k) for experts in (128, 256, 512) for k in (2048, 7168)),
)


@dataclass(frozen=True)
class Suite:
    """Problems of one kind. dtype and epilogue, by their short names: what makes this suite, None: as asked.
    layout: where none is asked for. tokens: M is a number of tokens, for which others can be asked."""

    name: str
    about: str
    shapes: tuple[Shape, ...]
    layout: str = "nk"
    dtype: str | None = None
    epilogue: str | None = None
    tokens: bool = False

    def agrees(self, dtype: str | None, epilogue: str | None) -> bool:
        return dtype in (None, self.dtype or dtype) and epilogue in (None, self.epilogue or epilogue)

    def problems(self, tokens: Sequence[int] | None, asked: "Asked") -> list[Problem]:
        shapes = self.shapes
        if tokens:
            weights = dict.fromkeys((n, k) for _, n, k in shapes)
            shapes = tuple((m, n, k) for n, k in weights for m in tokens)
        return [asked.problem(shape, self.layout, self.dtype, self.epilogue) for shape in shapes]


@dataclass(frozen=True)
class Listed:
    """Problems of any operation, each as it stands: what is asked for picks among them."""

    name: str
    about: str
    listed: tuple[Problem, ...]

    dtype: ClassVar[str] = "as listed"
    epilogue: ClassVar[str] = "none"
    tokens: ClassVar[bool] = False

    def agrees(self, dtype: str | None, epilogue: str | None) -> bool:
        return bool(self.problems(None, Asked(dtype=dtype, epilogue=epilogue)))

    def problems(self, tokens: Sequence[int] | None, asked: "Asked") -> list[Problem]:
        wanted = {name: value for name, value in asdict(asked).items() if value is not None}
        return [problem for problem in self.listed if wanted.items() <= problem.fields.items()]


# Of the manual-unrolling study of tl.reduce, the last K of each being what is reduced.
OR_SHAPES = ((64, 128, 4), (128, 256, 8), (256, 512, 16), (512, 1024, 4), (1024, 2048, 8), (2048, 4096, 16))
OR_RAGGED = ((7, 9, 3), (33, 65, 5), (129, 77, 64), (513, 1025, 33), (1000, 333, 48))

# (N, K) of the SplitK W4A16 paper's squares, and of the projections of Llama models.
W4A16_SQUARES = tuple((1 << i, 1 << i) for i in range(9, 15))
W4A16_LLAMA = ((4096, 11008), (11008, 4096), (8192, 28672), (28672, 8192))
W4A16_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
W4A16_4096 = W4A16Matmul(16, 4096, 4096)
W4A16_KINDS = (
    *(replace(W4A16_4096, group_size=size) for size in (32, 64)),
    replace(W4A16_4096, symmetric=True),
    replace(W4A16_4096, dtype=torch.bfloat16),
)

DECOMPOSE_K = "M = N and a deep K, as in the decompose-K study"
TUTORIAL = "the shapes of the tilus tutorial's split-K"
UNROLLING = "the shapes of the manual-unrolling study of tl.reduce"

SUITES = (
    Suite(
        "router",
        "the expert scores of DeepSeek-V3's mixture-of-experts router, T tokens",
        tuple((tokens, ROUTER_EXPERTS, ROUTER_HIDDEN) for tokens in ROUTER_TOKENS),
        tokens=True,
    ),
    Suite(
        "models",
        f"the routers of {len(ROUTERS)} public models (bench/models.py), T tokens",
        tuple((tokens, router.experts, router.hidden) for router in ROUTERS for tokens in ROUTER_TOKENS),
        tokens=True,
    ),
    Suite("skinny-epilogue-bf16", f"{DECOMPOSE_K}, with ReLU", SKINNY, "kn", "bf16", "relu"),
    Suite("skinny-matmul-bf16", DECOMPOSE_K, SKINNY, "kn", "bf16", "none"),
    Suite("skinny-matmul-fp16", DECOMPOSE_K, SKINNY, "kn", "fp16", "none"),
    Suite("skinny-matmul-fp32", DECOMPOSE_K, SKINNY, "kn", "fp32", "none"),
    Suite("square-tutorial", TUTORIAL, ((4096, 4096, 4096), (4096, 4096, 14336)), "kn", "fp16", "none"),
    Suite("square-generated", "the sweep of the kernel-generation study", GENERATED, "kn", "bf16", "none"),
    Suite("cliffs", "where a product next to a fast one has been slow: K of 64 or 8 more, odd K; T = 384", CLIFFS),
    Suite("crossover", "where splitting K stops paying: M = N at K = 8192, K at M = N = 64", CROSSOVER, "kn"),
    Listed(
        "chain",
        "RMSNorm, router, scores and top-k of 3 models, as a decode step has them",
        tuple(
            Chain(tokens, router.experts, router.hidden, scoring=router.scoring, top_k=router.top_k)
            for router in ROUTERS
            if router.model in ("DeepSeek-V3", "Qwen3-30B-A3B", "gpt-oss-120b")
            for tokens in CHAIN_TOKENS
        ),
    ),
    Listed("or_reduce-int64", UNROLLING, tuple(OrReduce(*shape) for shape in OR_SHAPES)),
    Listed("or_reduce-int32", UNROLLING, tuple(OrReduce(*shape, torch.int32) for shape in OR_SHAPES)),
    Listed("or_reduce-ragged", "no power of two anywhere", tuple(OrReduce(*shape) for shape in OR_RAGGED)),
    Listed(
        "or_reduce-control",
        f"{UNROLLING}, of a constant tile: only the reduction",
        tuple(OrReduce(*shape, constant=True) for shape in OR_SHAPES),
    ),
    Listed(
        "w4a16-square",
        "the SplitK W4A16 paper's: M = 1 and 16, N = K",
        tuple(W4A16Matmul(m, n, k) for m in (1, 16) for n, k in W4A16_SQUARES),
    ),
    Listed(
        "w4a16-llama",
        "projections of Llama models, M = 1 and 16",
        tuple(W4A16Matmul(m, n, k) for m in (1, 16) for n, k in W4A16_LLAMA),
    ),
    Listed(
        "w4a16-tokens",
        "few to many rows, N = K = 4096",
        tuple(replace(W4A16_4096, m=tokens) for tokens in W4A16_TOKENS),
    ),
    Listed("w4a16-kinds", "other group sizes, symmetric, bf16, at M = 16, N = K = 4096", W4A16_KINDS),
    Listed(
        "w4a16-bf16",
        "the squares in bf16, beside torch's own product by a weight of four bits",
        tuple(W4A16Matmul(m, n, k, torch.bfloat16) for m in (1, 16) for n, k in W4A16_SQUARES),
    ),
    Listed(
        "w4a16-grid",
        "few to many rows at every square",
        tuple(W4A16Matmul(m, n, k) for m in W4A16_TOKENS for n, k in W4A16_SQUARES),
    ),
)
GROUPS = ("skinny", "square", "or_reduce", "w4a16")
# By the name that --workload takes: a suite, or all those whose names begin so.
WORKLOADS = {
    **{suite.name: (suite,) for suite in SUITES},
    **{name: tuple(suite for suite in SUITES if suite.name.startswith(f"{name}-")) for name in GROUPS},
}

SMALL: Shape = (16, 64, 1024)  # what an interpreter of kernels computes in a second or two

# The name of the workload of problems that --shape gives.
SHAPE = "shape"


@dataclass(frozen=True)
class Asked:
    """What the command line says of problems, by short names; None: nothing."""

    layout: str | None = None
    dtype: str | None = None
    out_dtype: str | None = None
    epilogue: str | None = None

    def problem(
        self, shape: Shape, layout: str = "nk", dtype: str | None = None, epilogue: str | None = None
    ) -> Matmul:
        """layout gives way to what is asked, dtype and epilogue do not. Raises ValueError for an out_dtype that is
        neither that of the inputs nor fp32."""
        dtype = dtype or self.dtype or "bf16"
        if self.out_dtype not in (None, dtype, "fp32"):
            raise ValueError(f"out_dtype is {self.out_dtype}; accepted: that of the inputs, {dtype}, or fp32")
        return Matmul(
            *shape,
            layout=Layout(self.layout or layout),
            dtype=DTYPES[dtype],
            out_dtype=DTYPES[self.out_dtype or dtype],
            epilogue=Epilogue(epilogue or self.epilogue or "none"),
        )


def parse_tokens(text: str) -> list[int]:
    """'1,16,64' -> [1, 16, 64]. Raises ValueError for anything else."""
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise ValueError(f"tokens are {text!r}; accepted: positive integers with commas between, e.g. 1,16,64")
    return [int(size) for size in text.split(",")]


def problems(
    workload: str | None,
    shapes: Sequence[Shape] = (),
    *,
    names: Sequence[str] = (),
    tokens: Sequence[int] | None = None,
    layout: str | None = None,
    dtype: str | None = None,
    out_dtype: str | None = None,
    epilogue: str | None = None,
    for_cpu: bool = False,
) -> list[tuple[str, Problem]]:
    """(workload, problem) pairs of a named workload or of a FILE.json, then those of other workloads by their names,
    then products of the shapes (M, N, K); each problem once.

    layout, dtype, out_dtype and epilogue are short names, as tables have them; where nothing is asked for they are the
    workload's, else nk, bf16, that of the inputs, none. Of several suites those that agree with dtype and epilogue are
    taken. for_cpu: in place of the workload's problems one that a CPU checks in seconds, unless tokens say which.

    Raises ValueError for an unknown workload or name, for what a workload does not have, and for a file that is not a
    list of problems.
    """
    asked = Asked(layout, dtype, out_dtype, epilogue)
    chosen: list[tuple[str, Problem]] = []
    if workload is not None and workload.endswith(".json"):
        if tokens:
            raise ValueError(f"tokens are asked for; {workload} says itself what M is")
        chosen = [(Path(workload).stem, problem) for problem in _from_file(Path(workload), asked)]
    elif workload is not None:
        chosen = [
            (suite.name, problem)
            for suite in _suites(workload, tokens, asked)
            for problem in suite.problems(tokens, asked)
        ]
        if not chosen:
            wanted = ", ".join(f"{name} {value}" for name, value in asdict(asked).items() if value is not None)
            raise ValueError(f"{workload} has no problem of {wanted}")
    if for_cpu and chosen and not tokens:
        name, problem = min(chosen, key=lambda pair: pair[1].flops)
        chosen = [(name, small(problem))]
    chosen += [named(name) for name in names]
    chosen += [(SHAPE, asked.problem(shape)) for shape in shapes]
    once: dict[Problem, str] = {}
    for name, problem in chosen:
        once.setdefault(problem, name)
    return [(name, problem) for problem, name in once.items()]


def small(problem: Problem) -> Problem:
    """A problem of the same kind, of at most SMALL's sizes."""
    sizes = {size: min(getattr(problem, size), most) for size, most in zip(SIZES, SMALL, strict=True)}
    return type(problem).from_fields(problem.fields | sizes)


def _suites(workload: str, tokens: Sequence[int] | None, asked: Asked) -> list[Suite | Listed]:
    if workload not in WORKLOADS:
        accepted = named_by("bench/compare.py --list", workload, WORKLOADS)
        raise ValueError(f"workload is {workload!r}; accepted: a FILE.json, or {accepted}")
    suites = WORKLOADS[workload]
    if tokens and not all(suite.tokens for suite in suites):
        having = ", ".join(suite.name for suite in SUITES if suite.tokens)
        raise ValueError(f"tokens are asked for; of the workloads {having} have some, {workload} has not")
    agreeing = [suite for suite in suites if suite.agrees(asked.dtype, asked.epilogue)]
    if not agreeing:
        wanted = [f"--{name} is {value}" for name in ("dtype", "epilogue") if (value := getattr(asked, name))]
        there = ", ".join(f"{suite.name} ({suite.dtype}, {suite.epilogue})" for suite in suites)
        raise ValueError(f"{', '.join(wanted)}; accepted with --workload {workload}: what its problems have, {there}")
    return agreeing


def named(name: str) -> tuple[str, Problem]:
    """A problem by the name that rows have, and its workload, where it stands so or in another layout or out_dtype; or
    a product of any other shape. Raises ValueError for what is no such name."""
    others = (Asked(layout, out_dtype=out_dtype) for layout in _CHOICES["layout"] for out_dtype in (None, "fp32"))
    for asked in (Asked(), *others):
        for suite in SUITES:
            for problem in suite.problems(None, asked):
                if problem.name == name:
                    return suite.name, problem
    if match := _NAME.fullmatch(name):
        sizes, dtype, layout, epilogue, out_dtype = match.groups()
        return SHAPE, Asked(layout, dtype, out_dtype, epilogue).problem(parse_shape(sizes))
    if match := _W4A16_NAME.fullmatch(name):
        sizes, dtype, group, symmetric = match.groups()
        (m, n, k), group_size = parse_shape(sizes), int(group.removeprefix("g"))
        if k % group_size or n % PACKED:
            raise ValueError(f"problem is {name!r}; accepted: K a multiple of {group_size}, N of {PACKED}")
        return SHAPE, W4A16Matmul(m, n, k, DTYPES[dtype], group_size, bool(symmetric))
    raise ValueError(f"problem is {name!r}{_wrong_part(name)}")


def _wrong_part(name: str) -> str:
    """What is wrong in what is no name of a product, and what is accepted there."""
    quantized = name.startswith(f"{W4A16Matmul.op}-")
    parts, last = (_W4A16_PARTS, ("symmetric",)) if quantized else (_PARTS, _LAST)
    sizes, *given = name.removeprefix(f"{W4A16Matmul.op}-").split("-")
    if not re.fullmatch(_SHAPE, sizes):
        return "; accepted: a name as rows have it, e.g. 16x256x7168-bf16-nk"
    for what, accepted in parts.items():
        part = given.pop(0) if given else ""
        if part not in accepted:
            return (f", its {what} {part!r}" if part else f", without a {what}") + f"; accepted: {', '.join(accepted)}"
    return f", its end {'-'.join(given)!r}; accepted: {', '.join(last)}"


_CHOICES = {
    "dtype": tuple(DTYPES),
    "out_dtype": tuple(DTYPES),
    "layout": tuple(layout.value for layout in Layout),
    "epilogue": tuple(epilogue.value for epilogue in Epilogue),
}
_ONE_OF = {name: "|".join(choices) for name, choices in _CHOICES.items()}
# What the names of products are made of, beside their sizes.
_PARTS = {name: _CHOICES[name] for name in ("dtype", "layout")}
_LAST = (*_CHOICES["epilogue"], *(f"{dtype}out" for dtype in _CHOICES["out_dtype"]))
_W4A16_PARTS = {"dtype": tuple(map(short_dtype, W4A16_DTYPES)), "group": tuple(f"g{size}" for size in GROUP_SIZES)}
_SHAPE = r"[1-9]\d*x[1-9]\d*x[1-9]\d*"
_NAME = re.compile(
    rf"({_SHAPE})-({_ONE_OF['dtype']})-({_ONE_OF['layout']})"
    rf"(?:-({_ONE_OF['epilogue']}))?(?:-({_ONE_OF['out_dtype']})out)?"
)
_W4A16_NAME = re.compile(
    rf"{W4A16Matmul.op}-({_SHAPE})-({'|'.join(_W4A16_PARTS['dtype'])})-({'|'.join(_W4A16_PARTS['group'])})(-symmetric)?"
)
EXAMPLE = '[{"m": 16, "n": 4096, "k": 14336, "dtype": "fp16", "epilogue": "relu"}, ...]'


def _from_file(path: Path, asked: Asked) -> list[Matmul]:
    """Raises ValueError."""
    if path.exists() and not path.is_file():  # reading a FIFO would wait for its writer
        raise ValueError(f"workload {path} is not a regular file")
    try:
        entries = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"workload {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not JSON, or not text
        raise ValueError(f"workload {path} is not JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"workload {path} is not a list of problems; accepted: {EXAMPLE}")
    found = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(_from_entry(entry, asked))
        except ValueError as error:
            raise ValueError(f"workload {path}, problem {number}: {error}") from None
    return found


def _from_entry(entry: Any, asked: Asked) -> Matmul:
    """What an entry does not say is as asked. Raises ValueError."""
    if not isinstance(entry, dict):
        raise ValueError(f"it is {entry!r}; accepted: an object with m, n, k")
    if unknown := entry.keys() - {*SIZES, *_CHOICES}:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; accepted: {', '.join((*SIZES, *_CHOICES))}")
    for name in SIZES:
        size = entry.get(name)
        if type(size) is not int or size < 1:
            raise ValueError(f"{name} is {size!r}; accepted: a positive integer")
    for name, accepted in _CHOICES.items():
        if name in entry and entry[name] not in accepted:
            raise ValueError(f"{name} is {entry[name]!r}; accepted: {', '.join(accepted)}")
    said = {field.name: entry.get(field.name, getattr(asked, field.name)) for field in fields(Asked)}
    return Asked(**said).problem((entry["m"], entry["n"], entry["k"]))
