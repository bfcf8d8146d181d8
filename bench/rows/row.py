"""What a row is: one contender's result on one problem; what a launch is, as Nsight Compute counted it; what a
stage is, a part of a contender that was timed alone; and what a verdict is, of an adversary.

Reading checks what the structs are made from: a field that is missing, unknown or of another type is an error that
names it. Times are in microseconds. A field that older rows lack has a default, and is not written where it has that.
"""

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from triton_vs_tilus.bench.ops import MATMUL, OPS

if TYPE_CHECKING:
    from triton_vs_tilus.common.problem import Problem

SCHEMA = 4

PASSED: Final = "passed"
WRONG: Final = "wrong"
UNSUPPORTED: Final = "unsupported"
COMPILE_ERROR: Final = "compile error"
CRASHED: Final = "crashed"
TIMED_OUT: Final = "timed out"
OUT_OF_MEMORY: Final = "out of memory"
SUSPICIOUS: Final = "suspicious"  # right as far as can be told, and faster than can be believed
Status = Literal[
    "passed", "wrong", "unsupported", "compile error", "crashed", "timed out", "out of memory", "suspicious"
]
ConfigSource = Literal["search", "tuned", "stale", "nearest", "split", "matched", "heuristic"]
# The sources' kernels that were published with one config, also by a given split: a search has nothing to find.
ONE_CONFIG = (
    *("published_tilus/matmul.v0", "published_tilus/matmul.v1", "published_triton/matmul.makora"),
    *("published_triton/or_reduce.reduce_64x64", "published_triton/or_reduce.unrolled_64x64"),
    *("published_triton/template", "published_triton/w4a16.data_parallel", "published_triton/w4a16.splitk@s"),
)

BASELINE = OPS[MATMUL].baseline
BORROWED = "@borrowed"  # ends the name of a kernel with the config that it would take without one of its own
MATCHED = re.compile(r"@(?!s\d+$|borrowed$)([\w.]+)$")  # likewise with another kernel's config: '@cluster'
LANGUAGES = ("triton", "tilus")  # common.kernel's by name, which come with torch there

Key = tuple[str, str, tuple[str, ...]]
TimingName = Literal["cold", "graph", "warm", "host"]
TIMINGS: tuple[TimingName, ...] = ("cold", "graph", "warm", "host")
TEMPERATURES: dict[TimingName, str] = {
    "cold": "cold L2",
    "graph": "cold L2, in a CUDA graph",
    "warm": "warm L2",
    "host": "host time of a call",
}
Config = dict[str, int | bool | str]  # the fields of a kernel's config, which differ by kernel


_BESIDE_FIELDS = ("name", "op", "flops", "least_bytes")


class ProblemRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A problem as a row holds it; dtypes and choices by their short names. None: the operation has no such field.

    Raises ValueError for an unknown operation, and for fields that are not the operation's.
    """

    name: str
    op: str
    m: int
    n: int
    k: int
    dtype: str
    out_dtype: str | None = None
    layout: str | None = None
    epilogue: str | None = None
    group_size: int | None = None
    symmetric: bool | None = None
    constant: bool | None = None
    scoring: str | None = None
    top_k: int | None = None
    flops: int
    least_bytes: int

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise ValueError(f"unknown operation {self.op!r}; accepted: {', '.join(OPS)}")
        own, given = {"m", "n", "k", "dtype", *OPS[self.op].fields}, self.fields.keys()
        if given != own:
            raise ValueError(f"fields {sorted(given ^ own)} differ from those of operation {self.op}")

    @classmethod
    def from_problem(cls, problem: "Problem") -> "ProblemRecord":
        sizes = {"flops": problem.flops, "least_bytes": problem.least_bytes}
        return msgspec.convert({"name": problem.name, "op": problem.op, **problem.fields, **sizes}, cls)

    def to_problem(self) -> "Problem":
        return OPS[self.op].problem.from_fields(self.fields)

    @property
    def fields(self) -> dict[str, Any]:
        """As the problem's own `fields`."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None and name not in _BESIDE_FIELDS}

    @property
    def is_plain_product(self) -> bool:
        """Whether it is what torch.mm computes: a product without an epilogue, in the dtype of its inputs."""
        return self.op == MATMUL and self.epilogue == "none" and self.out_dtype == self.dtype

    @property
    def shape(self) -> tuple[int, int, int]:
        """(m, n, k)"""
        return self.m, self.n, self.k

    @property
    def baseline(self) -> str:
        """The contender that the others are compared with on this problem."""
        return OPS[self.op].baseline


# How cold was timed at first: launches waited in a queue, in which each takes longer (notes/method.md).
FORMER_CLOCK = "cold L2: event pair per launch, all enqueued behind a delay on the GPU"


class TimingRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One contender timed in one way.

    method       how it was timed
    speedup      the baseline's time over this one's, paired over rounds; low and high: its 95 % bootstrap interval
    verdict      of the contender against the baseline
    times_floor  the median as a multiple of the floor's read_us; None for host
    mean_us      of all samples; None in rows older than it
    energy_uj    microjoules of one launch, of the whole GPU; None where it was not measured
    """

    method: str
    median_us: float
    q1_us: float
    q3_us: float
    samples: int
    rounds: int
    speedup: float
    speedup_low: float
    speedup_high: float
    verdict: Literal["baseline", "faster", "slower", "tie"]
    times_floor: float | None
    mean_us: float | None = None
    energy_uj: float | None = None

    @property
    def procedure(self) -> str:
        """The method up to what the problem decides: its wording is the key. Times of two procedures do not compare."""
        return self.method.partition(";")[0]

    @property
    def by_former_clock(self) -> bool:
        return self.procedure == FORMER_CLOCK


class AccuracyRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Errors and their bound, as in common.accuracy. All None where the contender was not checked.

    error_after  after the timing; None if not timed
    times_torch  the error as a multiple of torch_error
    times_study  the error as a multiple of what the decompose-K study tolerates; None for other problems than its
    """

    error_before: float | None = None
    error_after: float | None = None
    torch_error: float | None = None
    bound: float | None = None
    times_torch: float | None = None
    times_study: float | None = None


class FloorRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What bounds a time from below: an empty launch, and reading the problem's least bytes."""

    launch_us: float
    read_us: float


class ClocksRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The GPU's readings during the timing, each [least, most], or [] where `reason` says why there are none.

    max_sm_mhz  the SM clock that this GPU may reach; None in rows older than it
    """

    available: bool
    reason: str
    sm_mhz: list[int | float]
    power_w: list[float]
    temperature_c: list[int | float]
    repeated_rounds: int
    max_sm_mhz: float | None = None


class EnvironmentRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Device and versions. None: not there, or not recorded.

    gpus   of the host, used or not
    git    the revision, with '+' where files differ from it
    tuned  hash of the device's table of configs
    """

    device: str
    gpus: int | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    triton: str | None = None
    tilus: str | None = None
    python: str | None = None
    git: str | None = None
    tuned: str | None = None


class LaunchEnvironment(EnvironmentRecord, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """With the version of Nsight Compute."""

    ncu: str


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The search that found a config.

    tried        configs of the space that entered, of `space`; equal: it was searched whole
    out_of_time  whether the budget's seconds ended it
    us           the config's cold time, from samples that it was not chosen by
    seconds      of checking and timing; build_seconds: of building, all processes together, near 0 where a cache had
                 the programs
    """

    tried: int
    space: int
    out_of_time: bool
    us: float
    seconds: float
    build_seconds: float

    def __str__(self) -> str:
        return f"tried {self.tried} of {self.space} configs{', out of time' * self.out_of_time}"


class AgainstRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One language against the other, or a borrowed config against the kernel's own: how many times as fast the row's
    contender is as `contender`, the same kernel.

    The ratio is paired over rounds; low and high: its 95 % bootstrap interval.
    """

    contender: str
    ratio: float
    low: float
    high: float


class Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one contender did on one problem.

    asked          the timings asked for
    config         None where the contender has none
    config_source  where the config is from: a search of this run, the tuned table's entry for this problem ('tuned';
                   'stale' where the kernel or its space has changed since, or nobody knows), the one for another
                   problem or of the device's stand-in ('nearest'), a given split ('split'), the tuned one of another
                   kernel, in the other language or in its own ('matched'), the kernel's own rule ('heuristic')
    search         that found the config: of this run, or as the tuned table tells of an entry for this problem; None
                   where nobody knows
    timing, floor  by how it was timed
    against        by how it was timed: its speed over the other language's, of a borrowed config over its own one's,
                   where that was timed with it
    noise          |1 - ratio| of the baseline to itself under a second name, by how it was timed
    order_seeds    of the order of turns, by how it was timed; empty in rows older than it
    timeline_us    that the GPU was busy in one call on cold L2, by its own timeline; None where it was not asked
    command        measures only this row
    time           UTC, ISO 8601
    """

    workload: str
    problem: ProblemRecord
    asked: list[TimingName]
    contender: str
    language: str
    protocol: str
    variant: str
    config: Config | None
    config_source: ConfigSource | None
    search: SearchRecord | None = None
    status: Status
    message: str
    timing: dict[TimingName, TimingRecord]
    accuracy: AccuracyRecord
    bitwise_equal: bool | None
    deterministic: bool
    workspace_bytes: int | None
    launches: int | None
    against: dict[TimingName, AgainstRecord] = {}
    floor: dict[TimingName, FloorRecord]
    noise: dict[TimingName, float]
    order_seeds: dict[TimingName, int] = {}
    timeline_us: float | None = None
    clocks: ClocksRecord
    environment: EnvironmentRecord
    command: str
    time: str
    schema: int

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema}; accepted: {SCHEMA}")

    @property
    def key(self) -> Key:
        """(problem name, contender, timings asked): two rows of one key measure the same thing."""
        return self.problem.name, self.contender, tuple(sorted(self.asked))

    @property
    def measurement(self) -> tuple[str, str]:
        """The problem, and the run's own readings: equal for rows that were timed together, and for no others."""
        readings = msgspec.json.encode([self.floor, self.noise, self.clocks], order="deterministic")
        return self.problem.name, readings.decode()

    @property
    def is_baseline(self) -> bool:
        """Whether the other contenders of its problem are compared with it."""
        return self.contender == self.problem.baseline

    @property
    def not_searched(self) -> bool:
        """Whether its config was found for another shape or GPU, before the kernel or its space changed, by a search
        that ran out of time, or by no search: by the kernel's own rule."""
        return self.borrowed or self.config_source == "stale" or (self.search is not None and self.search.out_of_time)

    @property
    def borrowed(self) -> bool:
        """Whether its config was found for another shape or GPU, or by no search where there is more than one."""
        return self.config_source in ("nearest", "heuristic") and not self.contender.startswith(ONE_CONFIG)

    @property
    def is_control(self) -> bool:
        """Whether it leaves out a part of the operation, to measure what that part costs: no rival of the others."""
        return self.variant.startswith("control_")

    @property
    def is_matched(self) -> bool:
        """Whether it runs the config of another kernel: held against that one, no rival of the others."""
        return MATCHED.search(self.variant) is not None

    @property
    def is_held_out(self) -> bool:
        """Whether it runs the config that its kernel would take without the one searched for the problem: held against
        the kernel with that one, no rival of the others."""
        return self.variant.endswith(BORROWED)

    @property
    def contends(self) -> bool:
        """Whether it is a rival of the others: no control, and no config of another kernel or problem."""
        return not (self.is_control or self.is_matched or self.is_held_out)

    def to_json(self) -> dict[str, Any]:
        """As JSON values. An accuracy that was not measured is {}."""
        values = msgspec.to_builtins(self)
        return values if self.accuracy != AccuracyRecord() else {**values, "accuracy": {}}


class Launch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What Nsight Compute counted in one launch of one GPU kernel. Fields that a row has too mean the same.

    message     of a contender that failed, for which there is one Launch: the reason
    gpu_kernel  its name without parameters; None where the contender failed
    launch      its place among the GPU kernels of one call of the contender, from 0; None likewise
    metrics     by the names of counters.METRICS; None for what this ncu, or this GPU, cannot count
    command     counts this contender, beside the baseline
    """

    workload: str
    problem: ProblemRecord
    contender: str
    language: str
    protocol: str
    config: Config | None
    status: str
    message: str
    gpu_kernel: str | None
    launch: int | None
    metrics: dict[str, float | None]
    environment: LaunchEnvironment
    command: str
    time: str

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Two launches of one key measure the same thing."""
        return self.problem.name, self.contender, self.launch

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)


StageName = Literal["whole", "product", "boundary", "meeting"]


class Stage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a part of a contender takes alone, beside the contender whole. Fields that a row has too mean the same.

    stage   whole     the contender, judged as in any row
            product   its blocks' products, whose partial sums stand in global memory and are not summed
            boundary  the product, and behind it a launch of as many blocks as the meeting has that does nothing
            meeting   the sum of partial sums that stand there
    launch  the name of what was timed: 'tilus/decompose_k.vector_pdl#1' is the first launch of that kernel
    config  of what was timed
    """

    workload: str
    problem: ProblemRecord
    contender: str
    language: str
    protocol: str
    stage: StageName
    launch: str
    config: Config | None
    timing: dict[TimingName, TimingRecord]
    floor: dict[TimingName, FloorRecord]
    noise: dict[TimingName, float]
    clocks: ClocksRecord
    environment: EnvironmentRecord
    command: str
    time: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Two stages of one key measure the same thing."""
        return self.problem.name, self.contender, self.stage

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)


class Verdict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the referee said of one adversary. Fields that a row has too mean the same.

    adversary  a function of tests/adversaries.py
    does       what it does, in its own words
    expected   the status that it should get, with a message that contains expected_message
    """

    adversary: str
    does: str
    expected: Status
    expected_message: str
    status: Status
    message: str
    environment: EnvironmentRecord
    time: str

    @property
    def as_expected(self) -> bool:
        return self.status == self.expected and self.expected_message in self.message

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return msgspec.to_builtins(self)


Record = Row | Launch | Stage | Verdict
