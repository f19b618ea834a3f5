"""Strategies for what is special about steps."""

from __future__ import annotations

import functools

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies.words import words
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import PLAIN


@functools.lru_cache
@st.composite
def events(
    draw: st.DrawFn,
    num_steps: int,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> tuple[str, ...]:
    """Generate what is special about each step: mostly nothing, else one or two things.

    Shrinks toward plain steps.

    Args:
        draw: Provided by Hypothesis.
        num_steps: Number of steps.
        beside: Features that the scenario has already, as `topic=value`.
        capabilities: What the subject promises.

    Returns:
        One word of `EVENTS` per step, or none where all are plain.

    Raises:
        InvalidArgument: There is no step.
    """
    if num_steps < 1:
        raise InvalidArgument(f"expected {num_steps=} of at least 1")
    kinds = words("event", PLAIN, beside=beside, capabilities=capabilities)
    happening = [PLAIN] * num_steps
    first = draw(kinds)
    if first == PLAIN:
        return ()
    for event in (draw(kinds), first):
        happening[draw(st.integers(0, num_steps - 1))] = event
    return tuple(happening)
