"""The sizes of a product as a command line has them."""

import re

Shape = tuple[int, int, int]  # M, N, K
# Of a size: more than any GPU holds, and few enough that the product of three is a float.
MOST_DIGITS = 10


def parse_shape(text: str) -> Shape:
    """'16x256x7168' -> (16, 256, 7168): M, N, K. Raises ValueError for anything else, and for more than MOST_DIGITS."""
    if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text.lower())):
        raise ValueError(f"shape is {text!r}; accepted: MxNxK, three positive integers, e.g. 16x256x7168")
    for size, digits in zip("MNK", match.groups(), strict=True):
        if len(digits) > MOST_DIGITS:
            value = digits if len(digits) <= 2 * MOST_DIGITS else f"{digits[:MOST_DIGITS]}... of {len(digits)} digits"
            raise ValueError(f"{size} is {value}; accepted: at most {MOST_DIGITS} digits")
    m, n, k = map(int, match.groups())
    return m, n, k
