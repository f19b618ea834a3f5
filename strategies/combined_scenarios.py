"""Scenarios that combine many rare features.

Features that are drawn one by one rarely meet: of a hundred words that each occur in one
scenario of a hundred, ten thousand scenarios show a given pair once. Two of three scenarios
are therefore combined: each step, each topic of the scenario and each topic of a parameter may
get one more rare word, so that one scenario shows many pairs.

Source:
    Groce et al., "Swarm Testing" (ISSTA 2012): random subsets of features.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import NEVER_WITH, PLAIN, TABLE
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import PARAMETER_WORDS, SCENARIO_WORDS, Scenario
from syncverify.strategies.word_choices import allowed_words


def _fits_any(name: str) -> bool:
    return name in TABLE and TABLE[name].fits_any


_IS_COMBINED = st.sampled_from([False, True, True])
# A topic of few words lists "no change" up to this often: its words do not occur in every
# scenario, and some of them occur with little else.
_MAX_NO_CHANGE = 12
# Topics that any scenario can take. Their order is part of the format of a seed.
_TOPICS_OF_SCENARIO = [name for name in SCENARIO_WORDS if _fits_any(name)]
_TOPICS_OF_PARAMETER = [name for name in PARAMETER_WORDS if _fits_any(name)]
_Change = Callable[[Scenario], Scenario]


@st.composite
def combined_scenarios(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Return a scenario itself, or two times out of three one with more rare features.

    Shrinks toward the scenario itself. No scenario has a pair of `NEVER_TOGETHER`.
    """
    if not _has_words(capabilities) or not draw(_IS_COMBINED):
        return scenario
    for change in _changes(draw, scenario, capabilities):
        changed = change(scenario)
        if has_no_impossible_pair(changed):
            scenario = changed
    return scenario


def has_no_impossible_pair(scenario: Scenario) -> bool:
    """Tell whether a scenario has no pair of `NEVER_TOGETHER`."""
    found = {*features_of(scenario)}
    return all(found.isdisjoint(NEVER_WITH.get(feature, ())) for feature in found)


@functools.cache
def _has_words(capabilities: Capabilities) -> bool:
    """Tell whether a contract covers any word that a change could add."""
    topics = ("event", *_TOPICS_OF_SCENARIO, *_TOPICS_OF_PARAMETER)
    return any(allowed_words(topic, capabilities=capabilities) for topic in topics)


@functools.cache
def _changed_words(
    topic: str, capabilities: Capabilities
) -> st.SearchStrategy[str | None]:
    """Generate words of a topic, or None for no change; shrinks toward None."""
    words = allowed_words(topic, capabilities=capabilities)
    num_none = max(1, _MAX_NO_CHANGE // max(1, len(words)))
    return st.sampled_from([*[None] * num_none, *words])


def _changes(
    draw: st.DrawFn, scenario: Scenario, capabilities: Capabilities
) -> Iterator[_Change]:
    """Yield one change for each topic, step and parameter that gets another word."""
    for topic in _TOPICS_OF_SCENARIO:
        word = draw(_changed_words(topic, capabilities))
        if word is not None:
            yield functools.partial(replace, **{topic: word})
    for step in range(scenario.num_steps):
        event = draw(_changed_words("event", capabilities))
        if event is not None:
            yield functools.partial(_with_event, step=step, event=event)
    for index, topic in itertools.product(
        range(len(scenario.parameters)), _TOPICS_OF_PARAMETER
    ):
        word = draw(_changed_words(topic, capabilities))
        if word is not None:
            yield functools.partial(_with_parameter, index=index, words={topic: word})


def _with_event(scenario: Scenario, *, step: int, event: str) -> Scenario:
    events = list(scenario.events or (PLAIN,) * scenario.num_steps)
    events[step] = event
    return replace(scenario, events=tuple(events))


def _with_parameter(
    scenario: Scenario, *, index: int, words: dict[str, Any]
) -> Scenario:
    changed = list(scenario.parameters)
    changed[index] = replace(changed[index], **words)
    return replace(scenario, parameters=tuple(changed))
