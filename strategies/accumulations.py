"""Strategies for optimizer steps and their micro-batches."""

from __future__ import annotations

import functools

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument


@functools.lru_cache
def accumulations(
    *, max_steps: int = 3, max_accumulations: int = 4, varying: bool = True
) -> st.SearchStrategy[tuple[int, ...]]:
    """Generate the number of micro-batches of each step.

    Shrinks toward one step of one micro-batch.

    Args:
        max_steps: Largest number of steps.
        max_accumulations: Largest number of micro-batches per step.
        varying: Whether the number may change between steps.

    Returns:
        A strategy for tuples with one count per step.

    Raises:
        InvalidArgument: A largest number is below 1.
    """
    if max_steps < 1 or max_accumulations < 1:
        raise InvalidArgument(
            f"expected {max_steps=} and {max_accumulations=} of at least 1"
        )
    counts = st.integers(1, max_accumulations)
    if varying:
        # Not st.lists: it would make most scenarios one step long.
        return st.one_of(
            [st.tuples(*[counts] * steps) for steps in range(1, max_steps + 1)]
        )
    return st.tuples(counts, st.integers(1, max_steps)).map(
        lambda drawn: (drawn[0],) * drawn[1]
    )
