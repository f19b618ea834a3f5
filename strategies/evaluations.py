"""Scenarios with forwards that have no backward."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.scenario import Scenario
from syncverify.strategies.word_choices import word_choices


@st.composite
def evaluated_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or one time out of twelve one that evaluates before steps.

    Shrinks toward the scenario itself.
    """
    if scenario.module != PLAIN:
        return scenario
    word = draw(word_choices("evaluation", capabilities=capabilities))
    if word == TABLE["evaluation"].plain_word:
        return scenario
    return replace(scenario, evaluation=word)
