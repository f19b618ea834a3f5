"""Strategies for whose losses depend on which parameters."""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st

from strategies.words import words
from syncverify.scenario import ParameterSpec
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities

_ALWAYS = "always"


@functools.lru_cache
@st.composite
def usages(
    draw: st.DrawFn,
    parameters: tuple[ParameterSpec, ...],
    *,
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> tuple[ParameterSpec, ...]:
    """Generate whose losses depend on some neighbors among parameters.

    Shrinks toward the use of every parameter by everybody.

    Args:
        draw: Provided by Hypothesis.
        parameters: All of them.
        capabilities: What the subject promises.

    Returns:
        The parameters.
    """
    used = draw(words("used", _ALWAYS, capabilities=capabilities))
    if used == _ALWAYS:
        return parameters
    first = draw(st.integers(0, len(parameters) - 1))
    stop = draw(st.integers(first + 1, len(parameters)))
    return tuple(
        replace(spec, used=used) if first <= index < stop else spec
        for index, spec in enumerate(parameters)
    )
