"""Scenarios in which the gradient of one parameter overflows."""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.strategies.word_choices import allowed_words

_OVERFLOWS = st.sampled_from([*[False] * (TABLE["gradient"].one_in - 1), True])


@st.composite
def overflowing_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one with Inf or NaN in a gradient.

    Shrinks toward the scenario itself.
    """
    words, able = _words(capabilities), _able(scenario)
    if words is None or not able or not draw(_OVERFLOWS):
        return scenario
    chosen = draw(st.sampled_from(able))
    listed = [*scenario.parameters]
    listed[chosen] = replace(listed[chosen], gradient=draw(words))
    return replace(scenario, parameters=tuple(listed))


@functools.cache
def _words(capabilities: Capabilities) -> st.SearchStrategy[str] | None:
    """Generate words of the topic `gradient`; None if the contract leaves none."""
    covered = allowed_words("gradient", capabilities=capabilities)
    return st.sampled_from(covered) if covered else None


def _able(scenario: Scenario) -> list[int]:
    """List the positions of parameters with an element that may overflow."""
    if scenario.module != PLAIN:
        return []
    return [n for n, spec in enumerate(scenario.parameters) if _is_able(spec)]


def _is_able(spec: ParameterSpec) -> bool:
    # Other uses compute with the constant: NaN would come to other elements.
    return spec.requires_grad and spec.use == PLAIN and 0 not in spec.global_shape
