"""Weighted choices: mostly a usual value, now and then one of a rare kind."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# An index above this bound is drawn like any other integer: small indices far more often.
_MAX_UNIFORM = 256


def with_rare(
    usual: Sequence[T], *rare: Sequence[T], one_in: int
) -> st.SearchStrategy[T]:
    """Return a strategy for usual values, and now and then for a value of a rare kind.

    A usual value keeps its index, with or without rare kinds. So shrinking leads from a
    rare value to a usual one, and a subject without rare kinds is searched with the same
    choices as if this function did not exist. A usual value takes one choice, a rare one
    up to three.

    Args:
        usual: Usual values, the simplest first; without any, rare ones take their place.
        rare: Rare kinds, chosen equally often, each with its values; a kind may be empty.
        one_in: Number of choices among which one is rare, on average.
    """
    kinds = [kind for kind in rare if kind]
    if not usual:
        usual, kinds = [value for kind in kinds for value in kind], []
    if not kinds:
        return st.sampled_from(usual)
    # `times` copies of the usual values outweigh `each` copies of every rare kind.
    share = (one_in - 1) * len(kinds)
    times = math.ceil(share / len(usual))
    each = round(times * len(usual) / share)
    branches = [*map(_branch, map(st.just, usual))] * times
    branches += [_branch(_uniform(kind)) for kind in kinds for _ in range(each)]
    return st.sampled_from(branches).flatmap(lambda branch: branch())


def _branch(drawn: st.SearchStrategy[T]) -> Callable[[], st.SearchStrategy[T]]:
    """Hide a strategy: `sampled_from` looks at all strategies whenever it draws one."""
    return lambda: drawn


def _uniform(choices: Sequence[T]) -> st.SearchStrategy[T]:
    """Choose any value equally often, also among more than `_MAX_UNIFORM` of them."""
    if len(choices) <= _MAX_UNIFORM:
        return st.sampled_from(choices)
    num_parts = math.ceil(len(choices) / _MAX_UNIFORM)
    parts = [st.sampled_from(choices[first::num_parts]) for first in range(num_parts)]
    return st.sampled_from(parts).flatmap(lambda part: part)
