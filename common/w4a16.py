"""A half-precision activation times a weight of four bits: the problem, the config of its kernels, and what their
launchers accept."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from common.checks import check_apart, overlaps_itself
from common.kernel import MatmulConfig, split_where_possible
from common.problem import SHORT_DTYPE, Problem
from common.quantization import PACKED, GPTQWeight, unpack_rows
from common.workspace import TICKET_BITS

DTYPES = (torch.float16, torch.bfloat16)
GROUP_SIZES = (32, 64, 128)


class W4A16Inputs(NamedTuple):
    """a [M, K] row-major of the problem's dtype; weight as GPTQ stores it, scales of that dtype too."""

    a: Tensor
    weight: GPTQWeight

    @property
    def b(self) -> Tensor:
        """The weight that is meant, float64 [K, N], unrounded; made anew each time."""
        return self.weight.dequantized()


@dataclass(frozen=True)
class W4A16Matmul(Problem):
    """C[M, N] = A[M, K] @ (scales * (q - zeros)), q of four bits, scales and zeros by group of K; the sum in fp32.

    dtype, fp16 or bf16, is that of A, of the scales and of C. K is a multiple of group_size, N of 8.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.float16
    group_size: int = 128
    symmetric: bool = False

    op: ClassVar[str] = "w4a16"

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
        """Multiply-adds, counted as two; the dequantization is not counted."""
        return 2 * self.m * self.n * self.k

    @property
    def least_bytes(self) -> int:
        """A, the packed weight, scales and zero points read once, C written once."""
        zeros = 0 if self.symmetric else self.groups * self.n // 2
        halves = self.m * self.k + self.groups * self.n + self.m * self.n
        return self.k * self.n // 2 + zeros + halves * self.dtype.itemsize

    def inputs(self, device: torch.device | str, seed: int = 0) -> W4A16Inputs:
        """Standard normal A; every q and every zero point as likely as any other, and scales that leave C of order
        one at every K. Drawn on the CPU, packed as they are: the same numbers on every device."""
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
        """The weight as GPTQ packs it; a kernel file's `lay_out` makes of it what its launcher takes."""
        return (inputs.a, inputs.weight), {}

    def reference(self, inputs: W4A16Inputs) -> Tensor:
        """The answer in float64, of the weight unrounded, on the inputs' device. [M, N]."""
        return inputs.a.double() @ inputs.b

    def reordering(self, inputs: W4A16Inputs) -> float:
        """As of Matmul: sqrt(K) * 2^-24 * max(|A| @ |B|)."""
        return self.k**0.5 * 2.0**-24 * (inputs.a.double().abs() @ inputs.b.abs()).max().item()

    def torch_answer(self, inputs: W4A16Inputs) -> Tensor:
        """torch.mm on the weight rounded to dtype."""
        return torch.mm(inputs.a, inputs.weight.dequantized(self.dtype))


@dataclass(frozen=True)
class W4A16Config(MatmulConfig):
    """interleaved: split s takes the steps s, s + split_k, s + 2 split_k, ... of block_k, instead of a band of
    neighbouring ones."""

    interleaved: bool = False

    def __str__(self) -> str:
        fields = asdict(self)
        own = "interleaved" if fields.pop("interleaved") else "bands"
        return f"{MatmulConfig(**fields)} {own}"


SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
# A chain of turns is as long as the split.
MOST_TURNS = 8
MULTIPROCESSORS = 132  # of Hopper
WARPS_WANTED = 4 * MULTIPROCESSORS

# block_m, block_n, block_k, num_warps, num_stages
Tile = tuple[int, int, int, int, int]


def space(
    tiles: Iterable[Tile], problem: W4A16Matmul, supports: Callable[[W4A16Matmul, W4A16Config], str | None]
) -> list[W4A16Config]:
    """Every tile with every split that leaves each two steps of block_k and more, in bands and interleaved; of one
    split only where there is no other."""
    candidates = [
        W4A16Config(block_m, block_n, block_k, split_k, num_warps, num_stages, interleaved)
        for block_m, block_n, block_k, num_warps, num_stages in tiles
        for split_k in SPLITS
        for interleaved in ([False] if split_k == 1 else [False, True])
        if split_k == 1 or split_k * 2 * block_k <= problem.k
    ]
    return split_where_possible([config for config in candidates if supports(problem, config) is None])


def with_default_split(tile: Tile, problem: W4A16Matmul, variant: str) -> W4A16Config:
    """In bands, as many as make the warps that are wanted, or fewer: four where they take turns, and each of them two
    steps or more."""
    block_m, block_n, block_k, num_warps, num_stages = tile
    warps = -(-problem.m // block_m) * -(-problem.n // block_n) * num_warps
    most = {"data_parallel": 1, "semaphore": 4}.get(variant, SPLITS[-1])
    split_k = 1
    while 2 * split_k <= most and split_k * warps < WARPS_WANTED and 4 * split_k * block_k <= problem.k:
        split_k *= 2
    return W4A16Config(block_m, block_n, block_k, split_k, num_warps, num_stages)


def supports_config(problem: W4A16Matmul, config: W4A16Config, variant: str, shared_limit: int) -> str | None:
    """What holds in both languages: a step has one scale a column, one split where it is data parallel, and fits
    shared memory, shared_limit bytes."""
    if config.block_k < 1 or problem.group_size % config.block_k:
        return f"block_k is {config.block_k}; accepted: divisors of the group size, {problem.group_size}"
    most = {"data_parallel": 1, "semaphore": MOST_TURNS}.get(variant, (1 << TICKET_BITS) - 1)
    if not 1 <= config.split_k <= most:
        return f"split_k is {config.split_k}; accepted: 1 to {most} for {variant}"
    a, weight = config.block_m * config.block_k * 2, config.block_n * config.block_k // 2
    scales_and_zeros = config.block_n * 4
    shared = (a + weight + scales_and_zeros) * config.num_stages
    if shared > shared_limit:
        return f"{config.num_stages} stages take {shared} bytes of shared memory, over {shared_limit}"
    return None


def meeting(variant: str, config: W4A16Config) -> str:
    """How the splits meet: as the variant says, or 'none' where there is but one."""
    return "none" if config.split_k == 1 else variant


def sums_shape(problem: W4A16Matmul, config: W4A16Config, meet: str) -> tuple[int, ...]:
    """Of the fp32 workspace in which the splits meet: a partial sum each, or one for all."""
    return (config.split_k, *problem.out_shape) if meet == "last_arriver" else problem.out_shape


def w4a16_problem(a: Tensor, weight: Any, out: Tensor | None, weight_type: type) -> W4A16Matmul:
    """The problem that a launcher's arguments pose.

    Accepted: a [M, K] fp16 or bf16 with unit stride along K, rows 16 bytes apart and 16-byte aligned; weight a
    `weight_type` of that K, scale dtype and device; out [M, N] of that dtype, of any strides that do not overlap.

    Raises TypeError for what is of another type or dtype; ValueError for the rest.
    """
    for name, tensor in (("a", a), ("out", out)):
        if not isinstance(tensor, Tensor) and not (tensor is None and name == "out"):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: torch.Tensor")
    if not isinstance(weight, weight_type):
        raise TypeError(f"weight is {type(weight).__name__}; accepted: {weight_type.__name__}, as lay_out gives it")
    if a.dtype not in DTYPES:
        raise TypeError(f"a has dtype {a.dtype}; accepted: {', '.join(map(str, DTYPES))}")
    if a.dim() != 2 or a.shape[0] < 1 or a.shape[1] != weight.k:
        raise ValueError(f"a has shape {tuple(a.shape)}; accepted: (M, {weight.k}), K being that of the weight")
    m, k = a.shape
    if a.stride(1) != 1 or (m > 1 and (a.stride(0) < k or a.stride(0) % 8)) or a.data_ptr() % 16:
        raise ValueError(
            f"a has strides {a.stride()} at address {a.data_ptr():#x}; accepted: unit stride along K, rows that do not "
            "overlap, multiples of 16 bytes apart, from an address that is one"
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
    for name, tensor in (("weight", weight.scales), ("out", out)):
        if tensor is not None and tensor.device != a.device:
            raise ValueError(f"{name} is on {tensor.device}; accepted: the device of a, {a.device}")
    check_apart(out, a=a)
    return W4A16Matmul(m, weight.n, k, a.dtype, weight.group_size, weight.symmetric)


def checked(weight: GPTQWeight) -> GPTQWeight:
    """The weight, if its parts fit each other: shapes and dtypes as in GPTQWeight, contiguous, on one device, 16-byte
    aligned; K a multiple of the group size, the group size 32, 64 or 128.

    Raises TypeError for another type or dtype; ValueError for the rest.
    """
    if not isinstance(weight, GPTQWeight):
        raise TypeError(f"weight is {type(weight).__name__}; accepted: GPTQWeight")
    parts = {"qweight": weight.qweight, "scales": weight.scales}
    if weight.qzeros is not None:
        parts["qzeros"] = weight.qzeros
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


TILE = 32  # rows and columns of a tile of a laid out weight
TILE_BYTES = TILE * TILE // 2


@dataclass(frozen=True)
class Operand:
    """What the tensor cores take for a q: unit * q + offset, its four bits being the lowest of a half; times
    upper_weight where they are the next four."""

    unit: float
    offset: int
    upper_weight: int


# In fp16 a number below 2^-14 is its bits times 2^-24; bf16 has no exponents to spare, but 128 as its upper half.
OPERANDS = {torch.float16: Operand(2.0**-24, 0, 16), torch.bfloat16: Operand(1.0, 128, 1)}


def tiles_of(weight: GPTQWeight) -> Tensor:
    """uint8 [K / 32, ceil(N / 32), 512], a tile of 32 x 32 in a row: for each lane of a warp 16 bytes, four words, of
    each of which `word & 0x000F000F` are two of its numbers in an operand of m16n8k16, and so on with every nibble;
    zeros beyond N."""
    q = padded(unpack_rows(weight.qweight)).to(torch.uint8)
    k = q.shape[0]
    # A row of 32 is two products deep, each of two halves, of which a lane has two neighbouring rows; a column of 32 is
    # four products wide, of each of which a lane has one column. Two widths, two rows and two halves are a word.
    split = q.view(k // TILE, 2, 2, 4, 2, -1, 2, 2, 8)  # kt, depth, half, lane_k, row, nt, widths, width, lane_n
    by_lane = split.permute(0, 5, 8, 3, 1, 6, 4, 2, 7).reshape(k // TILE, -1, TILE_BYTES, 2)
    return (by_lane[..., 0] | by_lane[..., 1] << 4).contiguous()


def q_of(tiles: Tensor, n: int) -> Tensor:
    """The q [K, n] that `tiles_of` made these tiles of."""
    by_lane = torch.stack((tiles & 0xF, tiles >> 4), dim=-1)
    split = by_lane.view(len(tiles), -1, 8, 4, 2, 2, 2, 2, 2)
    return split.permute(0, 4, 7, 3, 6, 1, 5, 8, 2).reshape(TILE * len(tiles), -1)[:, :n]


def padded(columns: Tensor) -> Tensor:
    """With zeros up to whole tiles."""
    return torch.nn.functional.pad(columns, (0, -columns.shape[1] % TILE))


def minus_operands(zeros: Tensor, dtype: torch.dtype) -> Tensor:
    """Minus what the zero points, int32 [G, N], N of whole tiles, are as operands, without the unit; exact in dtype."""
    operands = (zeros + OPERANDS[dtype].offset).view(len(zeros), -1, 2, 8) * _weights(dtype, zeros)
    return -operands.view(zeros.shape).to(dtype)


def zeros_of(minus: Tensor) -> Tensor:
    """The zero points that `minus_operands` made this of, int32."""
    zeros = -minus.to(torch.int32).view(len(minus), -1, 2, 8) // _weights(minus.dtype, minus)
    return zeros.view(minus.shape) - OPERANDS[minus.dtype].offset


def _weights(dtype: torch.dtype, like: Tensor) -> Tensor:
    """[2, 1]: of two neighbouring eights of columns the second has the upper nibbles."""
    return torch.tensor([[1], [OPERANDS[dtype].upper_weight]], device=like.device)
