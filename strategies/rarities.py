"""How often what is rare comes up among what is usual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def with_rare(usual: Sequence[T], rare: Sequence[T], *, one_in: int) -> list[T]:
    """List choices such that about one in so many is rare.

    What is usual keeps its index, whatever is rare: shrinking leads from one to the other,
    and where nothing is rare, the same choices are drawn as if there were no such thing.

    Args:
        usual: The simplest first.
        rare: The simplest first; may be empty.
        one_in: How many choices there are for each rare one.

    Returns:
        Usual choices, then rare ones, each as often as it takes.
    """
    if not rare:
        return list(usual)
    others = one_in - 1
    times = math.ceil(others * len(rare) / len(usual))
    return [*usual] * times + [*rare] * max(1, len(usual) // (others * len(rare)))
