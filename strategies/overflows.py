"""Scenarios in which the gradient of one parameter overflows, or has terms that cancel out."""

import functools
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import CANCELLING, PLAIN, TABLE, WORDS, ZERO
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.scenario.words import allowed_words, with_parameter, with_word

# Shrinks toward exact sums.
_ROUNDS = st.sampled_from([False, False, False, True])
_OVERFLOWS = st.sampled_from([*[False] * (TABLE["gradient"].one_in - 1), True])


@st.composite
def overflowing_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one with a special gradient.

    The gradient has Inf or NaN, or terms that cancel out. Shrinks toward the scenario itself.
    With a `wire_dtype`, all parameters of three scenarios in four have the word `cancelling`,
    and are judged exactly. Sums of the fourth round on the wire: replicas that are not the same
    bits show there alone.
    """
    if capabilities.wire_dtype:
        if scenario.module == PLAIN and draw(_ROUNDS):
            return scenario
        everywhere = range(len(scenario.parameters))
        return with_word(scenario, "gradient", CANCELLING, everywhere)
    words, listed = _words(capabilities), scenario.parameters
    candidates = [n for n, spec in enumerate(listed) if _takes_special_values(spec)]
    if words is None or not candidates or scenario.module != PLAIN:
        return scenario
    if not draw(_OVERFLOWS):
        return scenario
    word = draw(words)
    if word == CANCELLING:
        candidates = [n for n in candidates if _can_cancel(scenario, listed[n])]
    if not candidates:
        return scenario
    return with_word(scenario, "gradient", word, [draw(st.sampled_from(candidates))])


@functools.cache
def _words(capabilities: Capabilities) -> st.SearchStrategy[str] | None:
    """Generate words of the topic `gradient`; None if the contract leaves none."""
    words = allowed_words("gradient", capabilities=capabilities)
    covered = [word for word in words if word != ZERO]  # drawn last
    return st.sampled_from(covered) if covered else None


def _takes_special_values(spec: ParameterSpec) -> bool:
    # Other uses compute with the constant: NaN would come to other elements.
    return spec.requires_grad and spec.use == PLAIN and 0 not in spec.global_shape


def _can_cancel(scenario: Scenario, spec: ParameterSpec) -> bool:
    row = WORDS["gradient"][CANCELLING]
    is_used = spec.used == TABLE["used"].plain_word
    is_wide = spec.dtype == spec.effective_grad_dtype == "float32"
    is_long = max(scenario.accumulations) >= row.fewest_micro_batches
    return is_used and is_wide and is_long


def with_gradient(word: str, scenario: Scenario) -> Scenario:
    """Give the first parameter that fits a special gradient, without a draw; it may be none.

    Its use becomes a plain product in all losses.
    """
    plain: dict[str, Any] = {n: TABLE[n].plain_word for n in ("use", "used")}
    for place, spec in enumerate(scenario.parameters):
        simple = replace(spec, **plain)
        if spec.gradient != TABLE["gradient"].plain_word:
            return scenario
        is_zero = word == ZERO and bool(reduce_axes(scenario.mesh, simple))
        fits = is_zero or (word != ZERO and _can_cancel(scenario, simple))
        if fits and _takes_special_values(simple):
            return with_parameter(scenario, place, **plain, gradient=word)
    return scenario
