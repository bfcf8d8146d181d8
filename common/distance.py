"""How far one product is from another, by their sizes alone."""

from collections.abc import Mapping
from math import log2
from typing import Any

__all__ = ["SIZES", "distance"]

SIZES = ("m", "n", "k")


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """|log2| of the ratio of each size, summed; of what holds m, n, k, a problem's key for example."""
    return sum(abs(log2(other[size] / one[size])) for size in SIZES)
