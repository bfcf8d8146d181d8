"""How far one product is from another, by their sizes, and by how many bytes their rows are copied."""

from collections.abc import Mapping
from math import gcd, log2, prod
from typing import Any

__all__ = ["OTHER_ROWS", "SIZES", "WIDEST", "bytes_of_copies", "distance", "gap"]

SIZES = ("m", "n", "k")
WIDEST = 16  # bytes of a copy
# Farther than any limit: in rows of other bytes, other engines multiply and other copies feed them (notes/cliffs.md).
OTHER_ROWS = 16.0


def distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """|log2| of the ratio of each size, summed; of what holds m, n, k, a problem's key for example. By one division of
    whole numbers, so that what is as near is told as near, in either order."""
    pairs = [(one[size], other[size]) for size in SIZES]
    return log2(prod(map(max, pairs)) / prod(map(min, pairs)))


def gap(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """`distance`, and OTHER_ROWS where rows are not copied by as many bytes: how little the time of one says of the
    other's. Of what holds m, n, k, dtype and, for a weight that is stored [K, N], layout."""
    return distance(one, other) + OTHER_ROWS * (bytes_of_copies(one) != bytes_of_copies(other))


def bytes_of_copies(product: Mapping[str, Any]) -> int:
    """As many as divide each row of A and of the weight, WIDEST at most."""
    elements = gcd(product["k"], product["n"]) if product.get("layout") == "kn" else product["k"]
    return gcd(elements * (4 if product["dtype"] == "fp32" else 2), WIDEST)
