"""Strategies for optimizer steps and their micro-batches."""

import functools
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import numbers
from syncverify.scenario.feature_table import MAX_ACCUMULATIONS, MAX_STEPS


@functools.lru_cache
def accumulations(
    *,
    max_steps: int = MAX_STEPS,
    max_accumulations: int = MAX_ACCUMULATIONS,
    varying: bool = True,
    capabilities: Capabilities | None = None,
) -> st.SearchStrategy[tuple[int, ...]]:
    """Generate the number of micro-batches of each step; shrinks toward one step of one.

    Args:
        varying: Whether the number may change between steps.
        capabilities: Contract that may leave out numbers; None leaves out none.

    Raises:
        InvalidArgument: A largest number is below 1, or the contract leaves no number.
    """
    if max_steps < 1 or max_accumulations < 1:
        raise InvalidArgument(
            f"expected {max_steps=} and {max_accumulations=} of at least 1"
        )
    lengths: Sequence[int] = range(1, max_steps + 1)
    counts: Sequence[int] = range(1, max_accumulations + 1)
    if capabilities is not None:
        lengths = numbers("steps", max_steps, capabilities)
        counts = numbers("accumulations", max_accumulations, capabilities)
        varying = varying and capabilities.covers("accumulations", "varying")
    if not lengths or not counts:
        raise InvalidArgument("the contract leaves no number of steps or micro-batches")
    count = _one_of(counts)
    if varying:
        # Not st.lists: it would make most scenarios one step long.
        return st.one_of([st.tuples(*[count] * steps) for steps in lengths])
    return st.tuples(count, _one_of(lengths)).map(lambda drawn: (drawn[0],) * drawn[1])


def _one_of(listed: Sequence[int]) -> st.SearchStrategy[int]:
    first, last = listed[0], listed[-1]
    if len(listed) == last - first + 1:  # whole numbers shrink faster than an index
        return st.integers(first, last)
    return st.sampled_from(listed)
