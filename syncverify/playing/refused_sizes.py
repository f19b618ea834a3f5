"""Two sizes that torch refused to use together, as its errors name them."""

from __future__ import annotations

import math
import re
from typing import Final

_SHAPE: Final = r"\[([\d, ]*)\]"
_PAIRS: Final = tuple(
    re.compile(each)
    for each in (
        rf"shape '{_SHAPE}' is invalid for input of size (\d+)",
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)",
        rf"output with shape {_SHAPE} doesn't match the broadcast shape {_SHAPE}",
    )
)
_SLICE: Final = re.compile(
    r"start \((\d+)\) \+ length \((\d+)\) exceeds dimension size \((\d+)\)"
)


def refused_sizes(message: str) -> tuple[int, ...]:
    """Return the two sizes that an error of torch names, in elements.

    Torch has no exception with these numbers, so they are read from its words.

    Returns:
        Sizes, in elements; of a slice, its length and the elements that are left for it. Empty
        for any other error.
    """
    if found := _SLICE.search(message):
        start, length, whole = map(int, found.groups())
        return length, whole - start
    pairs = (pattern.search(message) for pattern in _PAIRS)
    return next((tuple(map(_numel, each.groups())) for each in pairs if each), ())


def _numel(shape: str) -> int:
    return math.prod(int(each) for each in shape.split(",") if each.strip())
