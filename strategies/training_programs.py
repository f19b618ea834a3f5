"""Strategies for the training program around the subject: backward, streams, order, steps."""

from __future__ import annotations

import functools

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.strategies.word_choices import word_choices


def backwards(
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[str]:
    """Generate the way in which backward runs: half of the time a plain `backward()`.

    Shrinks toward a plain `backward()`.

    Args:
        beside: Features that the scenario already has, as `topic=value`.
        capabilities: Contract of the subject.

    Returns:
        A strategy for words of the topic `backward` that are not rare.
    """
    return word_choices("backward", beside=beside, capabilities=capabilities)


def caller_streams(
    *, capabilities: Capabilities = EVERYTHING
) -> st.SearchStrategy[str]:
    """Generate the streams on which the training program works.

    Shrinks toward the current stream.

    Args:
        capabilities: Contract of the subject.

    Returns:
        A strategy for words of the topic `launch`.
    """
    return word_choices("launch", capabilities=capabilities)


def readiness_orders(
    *, capabilities: Capabilities = EVERYTHING
) -> st.SearchStrategy[str]:
    """Generate the order in which gradients become ready: equal on all ranks, or not.

    Shrinks toward one order on all ranks.

    Args:
        capabilities: Contract of the subject.

    Returns:
        A strategy for words of the topic `readiness`.
    """
    return word_choices("readiness", capabilities=capabilities)


@functools.lru_cache
@st.composite
def step_events(
    draw: st.DrawFn,
    num_steps: int,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = EVERYTHING,
) -> tuple[str, ...]:
    """Generate changes to single steps: mostly none, else one or two in the scenario.

    Shrinks toward plain steps.

    Args:
        draw: Provided by Hypothesis.
        num_steps: Number of steps.
        beside: Features that the scenario already has, as `topic=value`.
        capabilities: Contract of the subject.

    Returns:
        One word of the topic `event` per step; an empty tuple if all steps are plain.

    Raises:
        InvalidArgument: The number of steps is below 1.
    """
    if num_steps < 1:
        raise InvalidArgument(f"expected {num_steps=} of at least 1")
    words = word_choices("event", beside=beside, capabilities=capabilities)
    events = [PLAIN] * num_steps
    first = draw(words)
    if first == PLAIN:
        return ()
    # The first word is placed last: if both words take the same step, it stays, so the
    # scenario has at least one change.
    for word in (draw(words), first):
        events[draw(st.integers(0, num_steps - 1))] = word
    return tuple(events)
