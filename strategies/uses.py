"""Strategies for how losses use parameters."""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st

from strategies.words import drawable
from syncverify.scenario import ParameterSpec
from syncverify.subject import DEFAULT_CAPABILITIES, Capabilities
from syncverify.vocabulary import PLAIN


@functools.lru_cache
@st.composite
def uses(
    draw: st.DrawFn,
    parameters: tuple[ParameterSpec, ...],
    *,
    beside: frozenset[str] = frozenset(),
    capabilities: Capabilities = DEFAULT_CAPABILITIES,
) -> tuple[ParameterSpec, ...]:
    """Generate how losses use parameters: of every second list some neighbors specially.

    Shrinks toward one product for each parameter.

    Args:
        draw: Provided by Hypothesis.
        parameters: All of them.
        beside: Features that the scenario has already, as `topic=value`.
        capabilities: What the subject promises.

    Returns:
        The parameters.
    """
    words = drawable("use", beside=beside, capabilities=capabilities)
    if not words or not draw(st.booleans()):
        return parameters
    first = draw(st.integers(0, len(parameters) - 1))
    stop = draw(st.integers(first + 1, len(parameters)))
    one = st.sampled_from([PLAIN, *words])
    drawn = {index: draw(one) for index in range(first, stop)}
    return tuple(
        replace(spec, use=drawn.get(index, PLAIN))
        for index, spec in enumerate(parameters)
    )
