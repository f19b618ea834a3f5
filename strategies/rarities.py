"""How often what is rare comes up among what is usual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# Hypothesis draws from longer lists as from other integers: small indices far more often.
_MAX_UNIFORM = 256


def with_rare(
    usual: Sequence[T], *rare: Sequence[T], one_in: int
) -> st.SearchStrategy[T]:
    """Choose what is usual, and now and then something of a rare kind.

    What is usual keeps its index, whatever is rare: shrinking leads from one to the other,
    and where nothing is rare, the same choices are drawn as if there were no such thing.

    Args:
        usual: The simplest first.
        rare: Kinds that are chosen equally often; each the simplest first, or empty.
        one_in: How many choices there are for one that is rare.

    Returns:
        A strategy that takes one choice for what is usual, and up to three otherwise.
    """
    kinds = [kind for kind in rare if kind]
    if not kinds:
        return st.sampled_from(usual)
    share = (one_in - 1) * len(kinds)
    times = math.ceil(share / len(usual))
    each = round(times * len(usual) / share)
    branches = [*map(st.just, usual)] * times
    branches += [_uniform(kind) for kind in kinds for _ in range(each)]
    return st.sampled_from(branches).flatmap(lambda branch: branch)


def _uniform(choices: Sequence[T]) -> st.SearchStrategy[T]:
    if len(choices) <= _MAX_UNIFORM:
        return st.sampled_from(choices)
    parts = math.ceil(len(choices) / _MAX_UNIFORM)
    dealt = [st.sampled_from(choices[first::parts]) for first in range(parts)]
    return st.sampled_from(dealt).flatmap(lambda part: part)
