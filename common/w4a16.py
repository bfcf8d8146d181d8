"""A half-precision activation times a weight of 4 bits: the problem, the kernels' configs, what launchers accept.

The weight's layout for the tensor cores stands here too, as both languages take the same tiles.
"""

from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from triton_vs_tilus.common.call import Posed, cached_launch
from triton_vs_tilus.common.checks import check_apart, check_plain, check_tensors, overlaps_itself
from triton_vs_tilus.common.kernel import Kernel, MatmulConfig, cdiv, too_many_blocks
from triton_vs_tilus.common.plan import WIDEST, Slot, alignment
from triton_vs_tilus.common.problem import SHORT_DTYPE, Problem
from triton_vs_tilus.common.protocol import Protocol
from triton_vs_tilus.common.quantization import DTYPES, PACKED, GPTQWeight, unpack_rows
from triton_vs_tilus.common.space import MULTIPROCESSORS, split_where_possible
from triton_vs_tilus.common.workspace import TICKET_BITS

__all__ = [
    "DTYPES",
    "GROUP_SIZES",
    "MOST_TURNS",
    "MOST_WARPS",
    "OPERANDS",
    "PROTOCOLS",
    "SLICED_K",
    "SLICED_ROWS",
    "SLICED_TILES",
    "SPLITS",
    "TILE",
    "TILES",
    "TILE_BYTES",
    "WARPS_WANTED",
    "Operand",
    "Tile",
    "W4A16Config",
    "W4A16Inputs",
    "W4A16Matmul",
    "W4A16Places",
    "checked",
    "contiguous",
    "count_tiles",
    "default_config",
    "default_sliced_config",
    "launched",
    "meeting",
    "meeting_place",
    "minus_operands",
    "most_splits",
    "padded",
    "q_of",
    "shared_bytes",
    "sliced_config",
    "sums_shape",
    "tiles_of",
    "unsupported",
    "unsupported_sliced",
    "w4a16_problem",
    "wanted",
    "wanted_sliced",
    "workspace_bytes",
    "zeros_of",
]

GROUP_SIZES = (32, 64, 128)


class W4A16Inputs(NamedTuple):
    """a [M, K] row-major of the problem's dtype; weight as GPTQ stores it, scales of that dtype too."""

    a: Tensor
    weight: GPTQWeight

    @property
    def b(self) -> Tensor:
        """The dequantized weight, float64 [K, N], unrounded; computed at each access."""
        return self.weight.dequantized()


@dataclass(frozen=True)
class W4A16Matmul(Problem):
    """C[M, N] = A[M, K] @ (scales * (q - zeros)), q of 4 bits, scales and zeros by group of K, the sum in fp32.

    dtype: fp16 or bf16, of A, of the scales and of C. K is a multiple of group_size, N of 8.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.float16
    group_size: int = 128
    symmetric: bool = False

    op: ClassVar[str] = "w4a16"
    laid_out: ClassVar[frozenset[str]] = frozenset(("weight",))

    @property
    def name(self) -> str:
        """Unique among problems, e.g. 'w4a16-16x4096x4096-fp16-g128' or 'w4a16-1x512x512-bf16-g32-symmetric'."""
        parts = [self.op, f"{self.m}x{self.n}x{self.k}", SHORT_DTYPE[self.dtype], f"g{self.group_size}"]
        return "-".join([*parts, *["symmetric"] * self.symmetric])

    @property
    def groups(self) -> int:
        return self.k // self.group_size

    @property
    def out_shape(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def out_dtype(self) -> torch.dtype:
        return self.dtype

    @property
    def flops(self) -> int:
        """A multiply-add counts as 2; the dequantization is not counted."""
        return 2 * self.m * self.n * self.k

    @property
    def least_bytes(self) -> int:
        """A, the packed weight, scales and zero points are read once, C is written once."""
        zeros = 0 if self.symmetric else self.groups * self.n // 2
        halves = self.m * self.k + self.groups * self.n + self.m * self.n
        return self.k * self.n // 2 + zeros + halves * self.dtype.itemsize

    def inputs(self, device: torch.device | str, seed: int = 0) -> W4A16Inputs:
        """Standard normal A, uniform q and zero points, and scales that make C of order 1 at every K.

        The numbers are drawn on the CPU, already packed, so that they are the same on every device.
        """
        generator = torch.Generator().manual_seed(seed)

        def words(rows: int, columns: int) -> Tensor:
            drawn = torch.randint(-(1 << 31), 1 << 31, (rows, columns), dtype=torch.int32, generator=generator)
            return drawn.to(device)

        a = torch.randn(self.m, self.k, generator=generator).to(device, self.dtype)
        qweight = words(self.k // PACKED, self.n)
        qzeros = None if self.symmetric else words(self.groups, self.n // PACKED)
        spread = 4.6 if self.symmetric else 6.5  # standard deviation of q - zero
        scales = torch.rand(self.groups, self.n, generator=generator) + 0.5
        return W4A16Inputs(a, GPTQWeight(qweight, (scales / (spread * self.k**0.5)).to(device, self.dtype), qzeros))

    def arguments(self, inputs: W4A16Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The weight as GPTQ packs it; a kernel file's `lay_out` turns it into what its launcher takes."""
        return (inputs.a, inputs.weight), {}

    def reference(self, inputs: W4A16Inputs) -> Tensor:
        """The answer in float64 [M, N], from the unrounded weight, on the inputs' device."""
        return inputs.a.double() @ inputs.b

    def reordering(self, inputs: W4A16Inputs) -> float:
        """sqrt(K) * 2^-24 * max(|A| @ |B|): more than that of Matmul, and little beside the output's own rounding."""
        return self.k**0.5 * 2.0**-24 * (inputs.a.double().abs() @ inputs.b.abs()).max().item()

    def torch_answer(self, inputs: W4A16Inputs) -> Tensor:
        """torch.mm on the weight, rounded to dtype."""
        return torch.mm(inputs.a, inputs.weight.dequantized(self.dtype))


@dataclass(frozen=True)
class W4A16Config(MatmulConfig):
    """interleaved: split s takes the steps s, s + split_k, s + 2 split_k, ... of block_k.

    Otherwise it takes a band of neighbouring steps.
    """

    interleaved: bool = False

    def __str__(self) -> str:
        fields = asdict(self)
        own = "interleaved" if fields.pop("interleaved") else "bands"
        return f"{MatmulConfig(**fields)} {own}"


# How the splits of each variant meet. Deterministic are all but the atomics.
PROTOCOLS = {
    "data_parallel": Protocol.DATA_PARALLEL,
    "atomic": Protocol.ATOMIC,
    "atomic_in_place": Protocol.ATOMIC,
    "last_arriver": Protocol.LAST_ARRIVER,
    "semaphore": Protocol.SERIAL,
    "sliced_k": Protocol.SLICED_K,
}
SLICED_K = "sliced_k"  # of PROTOCOLS, the one whose warps share K; its configs are wanted_sliced's

# block_m, block_n, block_k, num_warps, num_stages
Tile = tuple[int, int, int, int, int]
TILES: tuple[Tile, ...] = (
    *((16, 64, 128, 1, stages) for stages in (3, 4, 6)),
    *((16, 64, 128, 2, stages) for stages in (3, 4, 5, 8)),
    *((16, 64, 128, 4, stages) for stages in (3, 4, 6)),
    *((16, 128, 128, 2, stages) for stages in (3, 4, 6)),
    *((16, 128, 128, 4, stages) for stages in (3, 4, 5, 6, 8)),
    *((16, 256, 128, warps, stages) for warps in (4, 8) for stages in (3, 4)),
    *((16, 64, 64, 1, 6), (16, 128, 64, 4, 6), (16, 64, 32, 1, 8), (16, 128, 32, 2, 8), (16, 128, 32, 4, 8)),
    *((32, 64, 128, 2, 4), (32, 128, 128, 4, 3), (32, 128, 128, 4, 4)),
    *((32, 128, 64, 4, 5), (32, 256, 64, 4, 4), (32, 128, 32, 4, 6)),
    *((64, 128, 128, 4, 3), (64, 128, 64, 4, 4), (64, 128, 64, 4, 6)),
    *((64, 256, 64, 8, 3), (64, 256, 64, 8, 4), (64, 128, 32, 4, 6)),
    (16, 32, 128, 4, 3),  # that of arXiv 2402.00025
)
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
MOST_TURNS = 8  # a chain of turns is as long as the split
MOST_WARPS = 32  # of a block
SLICED_ROWS = 16  # the highest tile of sliced_k
# block_n, num_warps, num_stages, of sliced_k: from all of a block's K in flight at once to several blocks on each
# multiprocessor
SLICED_TILES = (
    *((32, 4, stages) for stages in (3, 5, 8)),
    *((32, 8, stages) for stages in (3, 4, 5, 8)),
    *((32, 16, stages) for stages in (3, 4, 5)),
    *((64, 4, stages) for stages in (4, 6)),
    (64, 8, 6),
    (64, 16, 3),
)
WARPS_WANTED = 4 * MULTIPROCESSORS


def wanted(problem: W4A16Matmul, variant: str) -> list[W4A16Config]:
    """The configs that a search should try, in both languages.

    Every tile whose block_k divides the group size, with every split that leaves each band two steps or more, in bands
    and interleaved. Split 1 only where there is no other.
    """
    return split_where_possible(
        [
            W4A16Config(block_m, block_n, block_k, split_k, num_warps, num_stages, interleaved)
            for block_m, block_n, block_k, num_warps, num_stages in TILES
            if problem.group_size % block_k == 0
            for split_k in SPLITS
            if split_k <= most_splits(variant) and (split_k == 1 or split_k * 2 * block_k <= problem.k)
            for interleaved in ([False] if split_k == 1 else [False, True])
        ]
    )


def wanted_sliced(problem: W4A16Matmul) -> list[W4A16Config]:
    """The configs of sliced_k that a search should try, in both languages: those whose warps all have a group of K, or,
    where K has few, those of the fewest warps."""
    most = max(problem.groups, min(num_warps for _, num_warps, _ in SLICED_TILES))
    return [sliced_config(problem, *tile) for tile in SLICED_TILES if tile[1] <= most]


def sliced_config(problem: W4A16Matmul, block_n: int, num_warps: int, num_stages: int) -> W4A16Config:
    """Of sliced_k: a warp takes a group of K in each step, so that it has one scale a column."""
    block_m = min(SLICED_ROWS, 1 << (problem.m - 1).bit_length())
    return W4A16Config(block_m, block_n, num_warps * problem.group_size, num_warps, num_warps, num_stages)


def most_splits(variant: str) -> int:
    """1 for data_parallel, MOST_TURNS for semaphore, and for the others as many as a ticket counts."""
    return {"data_parallel": 1, "semaphore": MOST_TURNS}.get(variant, (1 << TICKET_BITS) - 1)


def default_config(problem: W4A16Matmul, variant: str, *, least_columns: int) -> W4A16Config:
    """Small tiles where rows are few, a warp for every 32 columns, and bands.

    As many splits as make WARPS_WANTED warps, at most 4 of a semaphore; each split has two steps or more.
    least_columns: of a tile, below which the language's product is slow.
    """
    block_m = 16 if problem.m <= 16 else 32 if problem.m <= 32 else 64
    block_n = max(64 if block_m == 16 and problem.n <= 4096 else 128, least_columns)
    block_k = min(128 if block_m == 16 else 64, problem.group_size)
    num_warps, num_stages = block_n // 32, 4
    warps = count_tiles(problem, block_m, block_n) * num_warps
    most = {"data_parallel": 1, "semaphore": 4}.get(variant, SPLITS[-1])
    split_k = 1
    while 2 * split_k <= most and split_k * warps < WARPS_WANTED and 4 * split_k * block_k <= problem.k:
        split_k *= 2
    return W4A16Config(block_m, block_n, block_k, split_k, num_warps, num_stages)


def default_sliced_config(problem: W4A16Matmul) -> W4A16Config:
    """Of sliced_k: 32 columns; 8 warps where each block has a multiprocessor to itself, else 4; 3 stages."""
    alone = count_tiles(problem, SLICED_ROWS, TILE) <= MULTIPROCESSORS
    return sliced_config(problem, TILE, 8 if alone else 4, 3)


def unsupported(problem: W4A16Matmul, config: W4A16Config, variant: str, shared_limit: int) -> str | None:
    """None, or why the config is refused in both languages.

    A step of block_k has one scale a column; a data-parallel kernel has one split; the grid is one that a GPU takes;
    the pipeline fits shared memory of shared_limit bytes.
    """
    if reason := too_many_blocks({"N": cdiv(problem.n, config.block_n), "K": config.split_k}):
        return reason
    if problem.group_size % config.block_k:
        return f"block_k is {config.block_k}; accepted: divisors of the group size, {problem.group_size}"
    if config.split_k > most_splits(variant):
        return f"split_k is {config.split_k}; accepted: 1 to {most_splits(variant)} for {variant}"
    if config.num_warps > MOST_WARPS:
        return f"num_warps is {config.num_warps}; accepted: 1 to {MOST_WARPS}"
    shared = shared_bytes(config)
    if shared > shared_limit:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {shared_limit}"
    return None


def unsupported_sliced(problem: W4A16Matmul, config: W4A16Config, shared_limit: int, rows: int) -> str | None:
    """As `unsupported`, of sliced_k: its warps share each step of K, a group a warp. rows: of A in shared memory."""
    if reason := too_many_blocks({"M": cdiv(problem.m, config.block_m)}):
        return reason
    if config.interleaved:
        return "interleaved is True; accepted: False, as one block has all steps"
    if config.num_warps > MOST_WARPS:
        return f"num_warps is {config.num_warps}; accepted: 1 to {MOST_WARPS}"
    least = config.num_warps * problem.group_size
    if (config.split_k, config.block_k) != (config.num_warps, least):
        return (
            f"split_k is {config.split_k}, block_k {config.block_k}; accepted: num_warps, {config.num_warps}, as all "
            f"warps share K, and {least}, as each takes a group of {problem.group_size}"
        )
    # The scales of a step are those of its warps' groups.
    pipeline = shared_bytes(replace(config, block_m=rows))
    stages = pipeline + (config.num_warps - 1) * config.block_n * 4 * config.num_stages
    sums = 4 * config.num_warps * max(rows, 8) * config.block_n  # an mma has 8 rows of A, or more
    if (shared := max(stages, sums)) > shared_limit:
        held = f"{config.num_stages} stages, or the sums of the warps, take {shared} bytes of shared memory"
        return f"{held}, over {shared_limit}"
    return None


def shared_bytes(config: W4A16Config) -> int:
    """Shared memory of the pipeline: A, the weight, and 4 bytes a column for scale and zero point, in each stage."""
    a, weight = config.block_m * config.block_k * 2, config.block_n * config.block_k // 2
    return (a + weight + config.block_n * 4) * config.num_stages


def count_tiles(problem: W4A16Matmul, block_m: int, block_n: int) -> int:
    """Tiles of C."""
    return cdiv(problem.m, block_m) * cdiv(problem.n, block_n)


def meeting(variant: str, config: W4A16Config) -> str:
    """How the splits meet: as the variant says, or 'none' where there is one split."""
    return "none" if config.split_k == 1 else variant


def sums_shape(problem: W4A16Matmul, config: W4A16Config, meet: str) -> tuple[int, ...]:
    """Shape of the fp32 workspace in which the splits meet: a partial sum each, or one sum for all."""
    return (config.split_k, *problem.out_shape) if meet == "last_arriver" else problem.out_shape


def meeting_place(problem: W4A16Matmul, config: W4A16Config, meet: str) -> dict[str, Any]:
    """What a Plan has of a workspace."""
    if meet in ("none", "atomic_in_place"):
        return {}
    counters = count_tiles(problem, config.block_m, config.block_n)
    if meet == "atomic":
        return {"counters": counters, "sums": problem.m * problem.n}
    return {"counters": counters, "scratch": sums_shape(problem, config, meet)}


def workspace_bytes(problem: W4A16Matmul, config: W4A16Config, variant: str) -> int:
    """Bytes of the sums and of one int32 counter a tile; 0 where nothing meets outside of C."""
    meet = meeting(variant, config)
    if meet in ("none", "atomic_in_place"):
        return 0
    counters = count_tiles(problem, config.block_m, config.block_n)
    return 4 * counters + 4 * prod(sums_shape(problem, config, meet))


def w4a16_problem(a: Tensor, weight: Any, out: Tensor | None, weight_type: type[Any]) -> W4A16Matmul:
    """The problem that a launcher's arguments pose.

    Accepted: a [M, K] fp16 or bf16 with unit stride along K, rows that do not overlap and begin at multiples of 16
    bytes; weight a `weight_type` of that K, scale dtype and device; out [M, N] of that dtype, of any strides that do
    not overlap.

    Raises TypeError for what is of another type or dtype; ValueError for the rest, and for an out that shares memory
    with an input.
    """
    check_tensors(a=a, out=out)
    if not isinstance(weight, weight_type):
        found = f"{type(weight).__module__}.{type(weight).__name__}"
        accepted = f"{weight_type.__module__}.{weight_type.__name__}"
        raise TypeError(f"weight is {found}; accepted: {accepted}, as its lay_out returns it")
    check_plain(a=a, out=out)
    if a.dtype not in DTYPES:
        raise TypeError(f"a has dtype {a.dtype}; accepted: {', '.join(map(str, DTYPES))}")
    if a.dim() != 2 or a.shape[0] < 1 or a.shape[1] != weight.k:
        raise ValueError(f"a has shape {tuple(a.shape)}; accepted: (M, {weight.k}), K being that of the weight")
    m, k = a.shape
    if a.stride(1) != 1 or (m > 1 and (a.stride(0) < k or a.stride(0) % 8)) or a.data_ptr() % 16:
        raise ValueError(
            f"a has strides {a.stride()} at address {a.data_ptr():#x}; accepted: unit stride along K, and rows that do "
            "not overlap and start at multiples of 16 bytes"
        )
    if weight.scales.dtype is not a.dtype:
        raise TypeError(f"weight has scales of dtype {weight.scales.dtype}; accepted: that of a, {a.dtype}")
    if out is not None:
        if tuple(out.shape) != (m, weight.n):
            raise ValueError(f"out has shape {tuple(out.shape)}; accepted: ({m}, {weight.n})")
        if out.dtype is not a.dtype:
            raise TypeError(f"out has dtype {out.dtype}; accepted: that of a, {a.dtype}")
        if overlaps_itself(out):
            raise ValueError(f"out has strides {out.stride()}; accepted: elements that do not overlap")
    for name, tensor in (*((f"weight's {part}", held) for part, held in weight.parts.items()), ("out", out)):
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{name} is on {tensor.device}; accepted: the device of a, {a.device}")
    check_apart(out, a=a, **weight.parts)
    return W4A16Matmul(m, weight.n, k, a.dtype, weight.group_size, weight.symmetric)


class W4A16Places(NamedTuple):
    """How the tensors of a call lie: strides in elements, alignments of addresses in bytes, WIDEST at most.

    stride_am is K where A has one row, whatever torch has there.
    """

    stride_am: int
    stride_cm: int
    stride_cn: int
    align_a: int = WIDEST
    align_c: int = WIDEST
    align_weight: int = WIDEST  # of all its parts

    def alignment_of(self, slot: Slot) -> int:
        return {Slot.A: self.align_a, Slot.C: self.align_c}.get(slot, self.align_weight)


def contiguous(problem: W4A16Matmul) -> W4A16Places:
    """Of tensors as torch allocates them."""
    return W4A16Places(problem.k, problem.n, 1)


def launched(
    kernel: Kernel, a: Tensor, weight: Any, out: Tensor | None, config: W4A16Config | None, weight_type: type[Any]
) -> Tensor:
    """C. weight: a `weight_type`, whose parts are named as Call takes them.

    Raises as `w4a16_problem` and common.call.cached_launch.
    """

    def pose() -> Posed:
        problem = w4a16_problem(a, weight, out, weight_type)
        stride_am = problem.k if problem.m == 1 else a.stride(0)
        stride_cm, stride_cn = (problem.n, 1) if out is None else out.stride()
        stride_cm = problem.n * stride_cn if problem.m == 1 else stride_cm
        align_weight = min(map(alignment, weight.parts.values()))
        return problem, W4A16Places(stride_am, stride_cm, stride_cn, alignment(a), alignment(out), align_weight)

    if not isinstance(weight, weight_type):
        pose()  # says so
    return cached_launch(kernel, pose, {"a": a, **weight.parts}, out, config, weight.n, weight.symmetric)


def checked(weight: GPTQWeight) -> GPTQWeight:
    """The weight, if its parts fit each other.

    Accepted: shapes and dtypes as in GPTQWeight, contiguous, on one device, 16-byte aligned; groups of 32, 64 or 128;
    K a multiple of the group size.

    Raises TypeError for another type or dtype; ValueError for the rest.
    """
    if not isinstance(weight, GPTQWeight):
        raise TypeError(f"weight is {type(weight).__name__}; accepted: GPTQWeight")
    parts = {"qweight": weight.qweight, "scales": weight.scales}
    if weight.qzeros is not None:
        parts["qzeros"] = weight.qzeros
    check_tensors(**parts)
    check_plain(**parts)
    for name, part in parts.items():
        accepted = DTYPES if name == "scales" else (torch.int32,)
        if part.dtype not in accepted:
            raise TypeError(f"{name} has dtype {part.dtype}; accepted: {', '.join(map(str, accepted))}")
        if part.dim() != 2 or 0 in part.shape or not part.is_contiguous() or part.data_ptr() % 16:
            raise ValueError(
                f"{name} has shape {tuple(part.shape)}, strides {part.stride()}, address {part.data_ptr():#x}; "
                "accepted: 2 dimensions, none of them 0, contiguous, 16-byte aligned"
            )
        if part.device != weight.qweight.device:
            raise ValueError(f"{name} is on {part.device}; accepted: the device of qweight, {weight.qweight.device}")
    groups, n = weight.scales.shape
    if n != weight.n or n % PACKED:
        raise ValueError(f"scales has {n} columns, qweight {weight.n}; accepted: as many, a multiple of {PACKED}")
    if weight.k % groups or weight.group_size not in GROUP_SIZES:
        raise ValueError(
            f"qweight has K = {weight.k}, scales {groups} groups; accepted: groups of "
            f"{', '.join(map(str, GROUP_SIZES))}"
        )
    if weight.qzeros is not None and tuple(weight.qzeros.shape) != (groups, n // PACKED):
        raise ValueError(f"qzeros has shape {tuple(weight.qzeros.shape)}; accepted: ({groups}, {n // PACKED})")
    return weight


TILE = 32  # rows and columns of a tile of a weight that is laid out
TILE_BYTES = TILE * TILE // 2


@dataclass(frozen=True)
class Operand:
    """The number that the tensor cores read for a q: unit * q + offset, where its 4 bits are the lowest of a half.

    Where they are the next 4 bits, it is upper_weight times that.
    """

    unit: float
    offset: int
    upper_weight: int


# In fp16 a number below 2^-14 is its bits times 2^-24. In bf16 0x4300 | q is 128 + q.
OPERANDS = {torch.float16: Operand(2.0**-24, 0, 16), torch.bfloat16: Operand(1.0, 128, 1)}


def tiles_of(weight: GPTQWeight) -> Tensor:
    """uint8 [K / 32, ceil(N / 32), 512]: each 32 x 32 tile is one row, with 16 bytes, or 4 words, for each lane.

    `word & 0x000F000F` is a pair of the lane's numbers in an operand of m16n8k16, and so on with each nibble. Columns
    beyond N are zero.
    """
    q = padded(unpack_rows(weight.qweight)).to(torch.uint8)
    k = q.shape[0]
    # 32 rows are 2 products deep. Each product has 2 halves, and a lane holds 2 neighbouring rows of each half.
    # 32 columns are 4 products wide, and a lane holds 1 column of each. A word is 2 widths x 2 rows x 2 halves.
    split = q.view(k // TILE, 2, 2, 4, 2, -1, 2, 2, 8)  # kt, depth, half, lane_k, row, nt, widths, width, lane_n
    by_lane = split.permute(0, 5, 8, 3, 1, 6, 4, 2, 7).reshape(k // TILE, -1, TILE_BYTES, 2)
    return (by_lane[..., 0] | by_lane[..., 1] << 4).contiguous()


def q_of(tiles: Tensor, n: int) -> Tensor:
    """The inverse of `tiles_of`: q [K, n]."""
    by_lane = torch.stack((tiles & 0xF, tiles >> 4), dim=-1)
    split = by_lane.view(len(tiles), -1, 8, 4, 2, 2, 2, 2, 2)
    return split.permute(0, 4, 7, 3, 6, 1, 5, 8, 2).reshape(TILE * len(tiles), -1)[:, :n]


def padded(columns: Tensor) -> Tensor:
    """The columns [G, N] and zeros up to a whole number of tiles."""
    return torch.nn.functional.pad(columns, (0, -columns.shape[1] % TILE))


def minus_operands(zeros: Tensor, dtype: torch.dtype) -> Tensor:
    """Minus the operands of the zero points, without the unit; exact in dtype.

    zeros: int32 [G, N], N a multiple of TILE.
    """
    operands = (zeros + OPERANDS[dtype].offset).view(len(zeros), -1, 2, 8) * _weights(dtype, zeros)
    return -operands.view(zeros.shape).to(dtype)


def zeros_of(minus: Tensor) -> Tensor:
    """The inverse of `minus_operands`: the zero points, int32 [G, N]."""
    zeros = -minus.to(torch.int32).view(len(minus), -1, 2, 8) // _weights(minus.dtype, minus)
    return zeros.view(minus.shape) - OPERANDS[minus.dtype].offset


def _weights(dtype: torch.dtype, like: Tensor) -> Tensor:
    """[2, 1]: the factors of 2 neighbouring groups of 8 columns, of which the second has the upper nibbles."""
    return torch.tensor([[1], [OPERANDS[dtype].upper_weight]], device=like.device)
