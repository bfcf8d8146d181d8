"""Rows as a GPU would have made them, with made-up figures."""

import msgspec
from msgspec.structs import replace

from triton_vs_tilus.bench.rows.command import command_of
from triton_vs_tilus.bench.rows.row import (
    BASELINE,
    FORMER_CLOCK,
    PASSED,
    SCHEMA,
    AccuracyRecord,
    ClocksRecord,
    EnvironmentRecord,
    FloorRecord,
    Launch,
    LaunchEnvironment,
    ProblemRecord,
    Row,
    TimingRecord,
)
from triton_vs_tilus.common.problem import Layout, Matmul, Problem

VECTOR = "triton/decompose_k.vector"
FP32 = "tilus/semaphore.fp32"
MADE = {
    BASELINE: ("torch", "library", None),
    VECTOR: (
        "triton",
        "parallel",
        {"block_m": 16, "block_n": 16, "block_k": 128, "split_k": 8, "num_warps": 1, "num_stages": 4, "group_m": 8},
    ),
    FP32: (
        "tilus",
        "serial",
        {"block_m": 16, "block_n": 16, "block_k": 64, "split_k": 4, "num_warps": 2, "num_stages": 3},
    ),
}
MADE["triton/decompose_k.vector_unfused"] = MADE[VECTOR]
for variant in ("first", "first_unfused", "optimized", "optimized_unfused"):
    MADE[f"published_triton/decompose_k.{variant}"] = ("published_triton", *MADE[VECTOR][1:])


def router_problem(tokens: int) -> Matmul:
    return Matmul(tokens, 256, 7168, layout=Layout.NK)


def figures(us: float, baseline_us: float, verdict: str, spread: float = 0.01) -> TimingRecord:
    ratio = baseline_us / us
    return TimingRecord(
        method="cold L2: event pair around one launch, alone behind a delay on the GPU; made up",
        median_us=us,
        q1_us=us * (1 - spread),
        q3_us=us * (1 + spread),
        samples=600,
        rounds=30,
        speedup=ratio,
        speedup_low=ratio * 0.99,
        speedup_high=ratio * 1.01,
        verdict=verdict,
        times_floor=us / 5.0,
    )


def row(
    contender: str = BASELINE,
    tokens: int = 1,
    us: float | None = 10.0,
    *,
    baseline_us: float = 10.0,
    status: str = PASSED,
    message: str = "",
    timings: tuple[str, ...] = ("cold", "warm"),
    problem: Problem | None = None,
    workload: str = "router",
) -> Row:
    """Of cold, graph takes 0.7, warm half; us=None: not timed; problem=None: the router's, of so many tokens."""
    language, protocol, config = MADE.get(contender, (contender.partition("/")[0], "unknown", None))
    verdict = "faster" if us and us < baseline_us * 0.98 else "slower" if us and us > baseline_us * 1.02 else "tie"
    verdict = "baseline" if contender == BASELINE else verdict
    modes = timings if us is not None else ()
    share = {"cold": 1.0, "graph": 0.7, "warm": 0.5, "host": 0.8}
    problem = problem or router_problem(tokens)
    return Row(
        workload=workload,
        problem=ProblemRecord.from_problem(problem),
        asked=list(timings),
        contender=contender,
        language=language,
        protocol=protocol,
        variant=contender.rpartition(".")[2],
        config=config,
        config_source="tuned" if config else None,
        status=status,
        message=message,
        timing={name: figures(us * share[name], baseline_us * share[name], verdict) for name in modes},
        accuracy=AccuracyRecord(error_before=1e-3, error_after=1e-3, torch_error=1e-3, bound=3e-3, times_torch=1.0),
        bitwise_equal=True if us is not None else None,
        deterministic=True,
        workspace_bytes=None,
        launches=None,
        floor={name: FloorRecord(launch_us=2.0, read_us=5.0) for name in modes},
        noise={name: 0.004 for name in modes},
        clocks=ClocksRecord(
            available=True,
            reason="",
            sm_mhz=[1965, 1980],
            power_w=[200.0, 300.0],
            temperature_c=[40, 41],
            repeated_rounds=0,
        ),
        environment=EnvironmentRecord(
            device="NVIDIA H200",
            gpus=1,
            driver="580.1",
            cuda="13.0",
            torch="2.11.0",
            triton="3.6.0",
            tilus="0.2.0",
            python="3.12.1",
            git="0123456789ab",
        ),
        command=command_of(problem, contender, timings, {}),
        time="2026-11-21T08:00:00+00:00",
        schema=SCHEMA,
    )


def one_launch(contender: str, problem: Problem, metrics: dict[str, float | None], **values) -> Launch:
    """What ncu counted of a contender's first GPU kernel. values: other fields than its row would have."""
    made = row(contender, problem=problem)
    launch = Launch(
        workload=made.workload,
        problem=made.problem,
        contender=contender,
        language=made.language,
        protocol=made.protocol,
        config=made.config,
        status=made.status,
        message=made.message,
        gpu_kernel="kernel",
        launch=0,
        metrics=metrics,
        environment=LaunchEnvironment(**msgspec.to_builtins(made.environment), ncu="2025.3.1.0"),
        command="",
        time=made.time,
    )
    return replace(launch, **values)


def timed(speedup: float, low: float, high: float, noise: float = 0.0) -> Row:
    """VECTOR's at T = 1, timed cold alone, with this speed-up over torch.mm's 10 us."""
    made = row(VECTOR, 1, 10.0 / speedup, timings=("cold",))
    told = replace(made.timing["cold"], speedup=speedup, speedup_low=low, speedup_high=high)
    return replace(made, timing={"cold": told}, noise={"cold": noise})


def router_rows() -> list[Row]:
    """Three problems: a win, a tie and a loss of Triton; tilus slower, wrong, and not supporting."""
    return [
        row(BASELINE, 1),
        row(VECTOR, 1, 8.0),
        row(FP32, 1, 12.5),
        row(BASELINE, 16),
        row(VECTOR, 16, 10.0),
        row(FP32, 16, None, status="wrong", message="error 1 is over the bound 0.1"),
        row(BASELINE, 1024),
        row(VECTOR, 1024, 20.0),
        row(FP32, 1024, None, status="unsupported", message="M is [odd]"),
    ]


def by_former_clock(row: Row) -> Row:
    cold = replace(row.timing["cold"], method=f"{FORMER_CLOCK}; made up")
    return replace(row, timing={**row.timing, "cold": cold})
