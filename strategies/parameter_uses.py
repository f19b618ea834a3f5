"""Strategies for the losses that use a parameter, and for the operators that they apply."""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import EVERYTHING, Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.words import allowed_words
from syncverify.strategies.word_choices import word_choices

Parameters = tuple[ParameterSpec, ...]


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
