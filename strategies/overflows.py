"""Scenarios in which the gradient of one parameter overflows, or has terms that cancel out."""

from __future__ import annotations

import functools
from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import (
    CANCELLING,
    PLAIN,
    TABLE,
    WORDS,
    ZERO,
)
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec
from syncverify.strategies.word_choices import allowed_words

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
        is_exact = scenario.module != PLAIN or not draw(_ROUNDS)
        return _with_terms_that_cancel(scenario) if is_exact else scenario
    words, candidates = _words(capabilities), _positions_for_special_values(scenario)
    if words is None or not candidates or not draw(_OVERFLOWS):
        return scenario
    word, listed = draw(words), [*scenario.parameters]
    if word == CANCELLING:
        candidates = [n for n in candidates if _can_cancel(scenario, listed[n])]
    if not candidates:
        return scenario
    chosen = draw(st.sampled_from(candidates))
    listed[chosen] = replace(listed[chosen], gradient=word)
    return replace(scenario, parameters=tuple(listed))


@functools.cache
def _words(capabilities: Capabilities) -> st.SearchStrategy[str] | None:
    """Generate words of the topic `gradient`; None if the contract leaves none."""
    words = allowed_words("gradient", capabilities=capabilities)
    covered = [word for word in words if word != ZERO]  # drawn last
    return st.sampled_from(covered) if covered else None


def _positions_for_special_values(scenario: Scenario) -> list[int]:
    """List the positions of parameters with an element that may overflow."""
    if scenario.module != PLAIN:
        return []
    return [
        n for n, spec in enumerate(scenario.parameters) if _takes_special_values(spec)
    ]


def _takes_special_values(spec: ParameterSpec) -> bool:
    # Other uses compute with the constant: NaN would come to other elements.
    return spec.requires_grad and spec.use == PLAIN and 0 not in spec.global_shape


def _can_cancel(scenario: Scenario, spec: ParameterSpec) -> bool:
    row = WORDS["gradient"][CANCELLING]
    is_used = spec.used == TABLE["used"].plain_word
    is_wide = spec.dtype == spec.effective_grad_dtype == "float32"
    is_long = max(scenario.accumulations) >= row.fewest_micro_batches
    return is_used and is_wide and is_long


def with_zeros(scenario: Scenario) -> Scenario:
    """Make the gradient of the first parameter that fits zero on one rank, without a draw.

    Its use becomes a plain product in all losses.

    Returns:
        The changed scenario, or the scenario itself where no parameter fits.
    """
    plain = {name: TABLE[name].plain_word for name in ("gradient", "use", "used")}
    listed = [*scenario.parameters]
    if any(spec.gradient != plain["gradient"] for spec in listed):
        return scenario
    for place in range(len(listed)):
        simple = replace(listed[place], use=plain["use"], used=plain["used"])
        if _takes_special_values(simple) and reduce_axes(scenario.mesh, simple):
            listed[place] = replace(simple, gradient=ZERO)
            return replace(scenario, parameters=tuple(listed))
    return scenario


def with_a_term_that_cancels(scenario: Scenario) -> Scenario:
    """Make terms cancel out in the first parameter that fits, without a draw.

    Its use becomes a plain product in all losses.

    Returns:
        The changed scenario, or the scenario itself where no parameter fits.
    """
    plain = {name: TABLE[name].plain_word for name in ("gradient", "use", "used")}
    listed = [*scenario.parameters]
    for place, spec in enumerate(listed):
        simple = replace(spec, use=plain["use"], used=plain["used"])
        if spec.gradient != plain["gradient"]:
            return scenario
        if _takes_special_values(simple) and _can_cancel(scenario, simple):
            listed[place] = replace(simple, gradient=CANCELLING)
            return replace(scenario, parameters=tuple(listed))
    return scenario


def _with_terms_that_cancel(scenario: Scenario) -> Scenario:
    """Give all parameters the word `cancelling`."""
    listed = (replace(spec, gradient=CANCELLING) for spec in scenario.parameters)
    return replace(scenario, parameters=tuple(listed))
