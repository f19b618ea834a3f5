"""Strategies for the training program around the subject: backward, streams, order, steps."""

from __future__ import annotations

import functools

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.strategies.word_choices import word_choices

# The way in which backward runs, half of the time a plain `backward()`; the streams on which the
# training program works; and the order in which gradients become ready. Each draws words of its
# topic, and shrinks toward the plain word.
backwards = functools.partial(word_choices, "backward")
caller_streams = functools.partial(word_choices, "launch")
readiness_orders = functools.partial(word_choices, "readiness")


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

    Shrinks toward plain steps. The scenario already has the features of `beside`, as
    `topic=value`.

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
