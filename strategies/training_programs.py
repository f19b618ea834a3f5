"""Strategies for the words of a training program: backward, streams, order, steps, uses."""

import functools
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.words import allowed_words

Parameters = tuple[ParameterSpec, ...]


@functools.lru_cache
def word_choices(
    topic: str,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = EVERYTHING,
) -> st.SearchStrategy[str]:
    """Return a strategy for words of a topic, one in `Topic.one_in` of them beyond the plain one.

    Shrinks toward the plain word. The scenario already has the features of `beside`, as
    `topic=value`.
    """
    plain = TABLE[topic].plain_word
    words = allowed_words(topic, beside=beside, capabilities=capabilities)
    if not words:
        return st.just(plain)
    return st.sampled_from([plain] * (TABLE[topic].one_in - 1) * len(words) + words)


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


@functools.lru_cache
@st.composite
def used_by(
    draw: st.DrawFn, parameters: Parameters, *, capabilities: Capabilities = EVERYTHING
) -> Parameters:
    """Generate the ranks and micro-batches whose losses use some neighboring parameters.

    Shrinks toward parameters that all losses use.
    """
    used = draw(word_choices("used", capabilities=capabilities))
    if used == TABLE["used"].plain_word:
        return parameters
    first, stop = _neighbors(draw, len(parameters))
    return tuple(
        replace(spec, used=used) if first <= index < stop else spec
        for index, spec in enumerate(parameters)
    )


@functools.lru_cache
@st.composite
def uses(
    draw: st.DrawFn,
    parameters: Parameters,
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = EVERYTHING,
) -> Parameters:
    """Generate the operators through which losses use parameters.

    Every second list has some neighbors that may have operators beyond a plain product. Shrinks
    toward one product for each parameter. The scenario already has the features of `beside`, as
    `topic=value`.
    """
    words = allowed_words("use", beside=beside, capabilities=capabilities)
    if not words or not draw(st.booleans()):
        return parameters
    first, stop = _neighbors(draw, len(parameters))
    word = st.sampled_from([PLAIN, *words])
    drawn = {index: draw(word) for index in range(first, stop)}
    return tuple(
        replace(spec, use=drawn.get(index, PLAIN))
        for index, spec in enumerate(parameters)
    )


def _neighbors(draw: st.DrawFn, num_parameters: int) -> tuple[int, int]:
    """Draw a range of parameters that is not empty: its first index and its end."""
    first = draw(st.integers(0, num_parameters - 1))
    return first, draw(st.integers(first + 1, num_parameters))
