"""Statistics of samples: medians of rounds, ratios paired over rounds, their bootstrap interval, a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

RESAMPLES = 2000
LEAST_ROUNDS = 6  # the median lies outside of their whole range in 2^(1 - 6), 3 %, of the cases; of 5 in 6 %

Rounds = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Summary:
    """Microseconds. median_us: the median of the rounds' medians. q1_us, q3_us, mean_us: of all samples."""

    median_us: float
    q1_us: float
    q3_us: float
    samples: int
    rounds: int
    mean_us: float


@dataclass(frozen=True)
class Ratio:
    """The baseline's time over another's: the median over rounds, and its 95 % percentile-bootstrap interval."""

    value: float
    low: float
    high: float

    def verdict(self, noise: float) -> Literal["faster", "slower", "tie"]:
        """'faster', 'slower', or 'tie' where the interval spans 1 or the ratio lies within `noise` of 1."""
        if self.low <= 1 <= self.high or abs(1 - self.value) <= noise:
            return "tie"
        return "faster" if self.value > 1 else "slower"


def round_medians(rounds: Rounds) -> np.ndarray:
    return np.array([np.median(samples) for samples in rounds])


def summary(rounds: Rounds) -> Summary:
    samples = np.concatenate([np.asarray(samples) for samples in rounds])
    q1, q3 = np.percentile(samples, [25, 75])
    median = float(np.median(round_medians(rounds)))
    return Summary(median, float(q1), float(q3), len(samples), len(rounds), float(samples.mean()))


def paired_ratio(baseline: Rounds, other: Rounds, seed: int = 0) -> Ratio:
    """The ratio of round i to round i, so that drift over rounds cancels. The bootstrap resamples rounds and not
    samples, as samples of one round are not independent. Raises ValueError for different numbers of rounds."""
    if len(baseline) != len(other):
        raise ValueError(f"{len(baseline)} rounds of the baseline, {len(other)} of the other; accepted: as many")
    ratios = round_medians(baseline) / round_medians(other)
    resampled = np.random.default_rng(seed).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[resampled], axis=1), [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def noise(baseline: Rounds, again: Rounds) -> float:
    """|1 - ratio| of one contender to itself: smaller differences between contenders are ties."""
    return abs(1 - float(np.median(round_medians(baseline) / round_medians(again))))
