"""Scenarios in which the gradient of one parameter overflows, or has terms that cancel out."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Final

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE, WORDS
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.strategies.word_choices import allowed_words

CANCELLING: Final = "cancelling"
_OVERFLOWS = st.sampled_from([*[False] * (TABLE["gradient"].one_in - 1), True])


@st.composite
def overflowing_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one with a special gradient.

    It has Inf or NaN, or terms that cancel out. Shrinks toward the scenario itself.
    """
    if capabilities.wire_dtype:  # other sums would round on the wire
        return _with_terms_that_cancel(scenario)
    words, able = _words(capabilities), _able(scenario)
    if words is None or not able or not draw(_OVERFLOWS):
        return scenario
    word, listed = draw(words), [*scenario.parameters]
    chosen = draw(st.sampled_from(able))
    listed[chosen] = replace(listed[chosen], gradient=word)
    if word == CANCELLING:
        listed[chosen] = _that_cancels(listed[chosen])
    found = replace(scenario, parameters=tuple(listed))
    is_right = word != CANCELLING or _may_cancel(found, capabilities)
    return found if is_right else scenario


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


def _that_cancels(spec: ParameterSpec) -> ParameterSpec:
    """Make all losses use a parameter, in a dtype that has room for terms that cancel out."""
    used = TABLE["used"].plain_word
    return replace(spec, used=used, dtype="float32", grad_dtype=None)


def _may_cancel(scenario: Scenario, capabilities: Capabilities) -> bool:
    row = WORDS["gradient"][CANCELLING]
    is_long = max(scenario.accumulations) >= row.fewest_micro_batches
    return is_long and not features_outside(scenario, capabilities)


def _with_terms_that_cancel(scenario: Scenario) -> Scenario:
    listed = (replace(spec, gradient=CANCELLING) for spec in scenario.parameters)
    return replace(scenario, parameters=tuple(listed))
