"""Times that are too good: a contender that has them is suspicious, which no check of its answers can say.

The limits lie apart from what honest contenders reach (notes/referee.md: the least of all recorded times).
"""

from triton_vs_tilus.bench.measure.stats import Summary
from triton_vs_tilus.bench.rows.row import FloorRecord

MOST_NOISE = 0.1  # that an empty launch's time is lowered by: recorded runs have 0.05, and 1 would allow any time
READ_SHARE = 0.8  # of the time of reading the problem's least bytes
PARTED = 1.2  # the mean over the median
BUSIER = 1.1  # the GPU's timeline over the events
EVENT_STEP_US = 0.5  # that an event's time may be short of: the resolution of CUDA's events
# An event's time holds a launch, during which the GPU is idle by its own timeline: a tighter limit for short kernels.
BUSIER_THAN_REST = 1.2  # the GPU's timeline over the events less an empty launch
REST_SHORT_US = 1.2  # that those may be short of


def suspicion(summary: Summary, floor: FloorRecord | None, noise: float, timeline_us: float | None) -> str:
    """Why these times of the GPU cannot be believed; '' where they can.

    summary      of one contender in one mode
    floor        of the same mode and run
    noise        of the baseline against itself; MOST_NOISE of it counts
    timeline_us  that the GPU was busy in one call, on its own timeline
    """
    us = summary.median_us
    if floor is not None and us < floor.launch_us * (1 - min(noise, MOST_NOISE)):
        return f"{us:.2f} us is faster than an empty launch, {floor.launch_us:.2f} us"
    if floor is not None and us < READ_SHARE * floor.read_us:
        return f"{us:.2f} us is faster than the bytes allow: reading them alone takes {floor.read_us:.2f} us"
    if summary.mean_us > PARTED * us:
        return f"the mean, {summary.mean_us:.2f} us, is far from the median, {us:.2f} us: not every call does the work"
    most_us = BUSIER * us + EVENT_STEP_US
    if floor is not None:
        most_us = min(most_us, BUSIER_THAN_REST * (us - floor.launch_us) + REST_SHORT_US)
    if timeline_us is not None and timeline_us > most_us:
        return f"{us:.2f} us by events, {timeline_us:.2f} us by the GPU's timeline: work runs outside of its window"
    return ""
