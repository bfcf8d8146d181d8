"""The sizes of a product as a command line has them."""

import re

Shape = tuple[int, int, int]  # M, N, K


def parse_shape(text: str) -> Shape:
    """'16x256x7168' -> (16, 256, 7168): M, N, K. Raises ValueError for anything else."""
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text.lower())):
        raise ValueError(f"shape is {text!r}; accepted: MxNxK, three positive integers, e.g. 16x256x7168")
    m, n, k = map(int, match.groups())
    return m, n, k
