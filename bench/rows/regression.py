"""Old rows against new: what became faster, slower or broken."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from triton_vs_tilus.bench.rows.queries import run_to_run
from triton_vs_tilus.bench.rows.row import PASSED, TIMINGS, Row, TimingName, TimingRecord

TIMED_OTHERWISE = "timed otherwise"


@dataclass(frozen=True)
class Change:
    """One contender on one problem in two files; of one timing, where both have it.

    speedup  the new speed-up over the old, each against the baseline of its own run: what slows the whole machine
             cancels
    verdict  'faster' or 'slower': the 95 % intervals of the two speed-ups do not overlap, and they differ by more than
             two runs of one config do; else 'tie'
             'baseline': the speed-ups are 1 by definition
             'broken': passed before, and now failed, has no row on a problem that has others, or lacks a timing that
             was asked for
             'repaired': failed before, passed now; 'failed': neither passed
             TIMED_OTHERWISE: by another procedure, so the times do not compare
    """

    problem: str
    contender: str
    timing: str
    old_us: float | None
    new_us: float | None
    speedup: float | None
    verdict: str
    message: str = ""


def changes(
    new: Sequence[Row],
    old: Sequence[Row],
    between_runs: Callable[[Sequence[Row]], Mapping[TimingName, float]] = lambda rows: {},
) -> list[Change]:
    """A change for each row that both hold and each timing that both have; and what `new` lacks of its own problems.

    between_runs: how far two runs of one config lie apart, as queries.between_runs; asked for each row. Where none is
    known, the noise of the baseline against itself within either run stands for it, which is less.
    """
    before, after = ({(row.problem.name, row.contender): row for row in rows} for rows in (old, new))
    timed_before, timed_after = (
        {(row.problem.name, row.contender, timing): row for row in rows for timing in row.timing} for rows in (old, new)
    )
    asked = {(row.problem.name, row.contender, timing) for row in new for timing in row.asked}
    found = []
    for where, now in after.items():
        if (was := before.get(where)) is None:
            continue
        if now.status == was.status == PASSED:
            for timing in TIMINGS:
                if (then := timed_before.get((*where, timing))) is None:
                    continue
                if later := timed_after.get((*where, timing)):
                    within = max(then.noise.get(timing, 0.0), later.noise.get(timing, 0.0))
                    noise = max(within, run_to_run(between_runs([later]), timing))
                    found.append(_change(*where, timing, then.timing[timing], later.timing[timing], noise))
                elif (*where, timing) in asked:
                    found.append(Change(*where, timing, None, None, None, "broken", f"not timed: {now.message}"))
        else:
            verdict = "broken" if was.status == PASSED else "repaired" if now.status == PASSED else "failed"
            found.append(Change(*where, "", None, None, None, verdict, f"{now.status}: {now.message}"))
    problems = {problem for problem, _ in after}
    for where, was in before.items():
        if was.status == PASSED and where[0] in problems and where not in after:
            found.append(Change(*where, "", None, None, None, "broken", "no row any more"))
    return found


def refuse_other_devices(new: Sequence[Row], old: Sequence[Row]) -> None:
    """Raises ValueError where the rows of both are not of one device: their times do not compare, and of a problem that
    two devices have `changes` would take only the last row."""
    devices = dict.fromkeys(row.environment.device for row in (*new, *old))
    if len(devices) > 1:
        raise ValueError(f"--against: rows are of {' and of '.join(devices)}; accepted: all rows of one GPU")


def _change(problem: str, contender: str, timing: str, was: TimingRecord, now: TimingRecord, noise: float) -> Change:
    if "baseline" in (was.verdict, now.verdict):
        verdict = "baseline"
    elif was.procedure != now.procedure:
        return Change(problem, contender, timing, None, None, None, TIMED_OTHERWISE)
    elif abs(1 - now.speedup / was.speedup) <= noise:
        verdict = "tie"
    elif now.speedup_high < was.speedup_low:
        verdict = "slower"
    else:
        verdict = "faster" if now.speedup_low > was.speedup_high else "tie"
    return Change(problem, contender, timing, was.median_us, now.median_us, now.speedup / was.speedup, verdict)


def regressions(found: Iterable[Change], fail_over: float) -> list[Change]:
    """Those that are broken, or slower by more than `fail_over` percent."""
    slowest = 1 / (1 + fail_over / 100)
    return [
        change
        for change in found
        if change.verdict == "broken"
        or (change.verdict == "slower" and change.speedup is not None and change.speedup < slowest)
    ]
