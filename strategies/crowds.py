"""Strategies for scenarios in which much that is special happens at once.

Drawn one by one, what is rare hardly ever meets what is rare: of a hundred words that come
up in one scenario of a hundred, ten thousand scenarios show a given pair once. Most
scenarios are therefore crowded, and show many pairs each. (Swarm testing turns the same
knob: Groce et al., "Swarm Testing", ISSTA 2012.)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from syncverify.coverage import features
from syncverify.declared import drawable
from syncverify.features import BEYOND, NEVER_TOGETHER
from syncverify.scenario import ParameterSpec, Scenario
from syncverify.subject import Capabilities
from syncverify.vocabulary import PLAIN

_IS_CROWDED = (False, True, True)
# Of so few words each comes up often enough, and some go with little else.
_FEW = 12
_OF_SCENARIO = ("launch", "readiness", "backward")
_OF_PARAMETER = ("used", "use")
Change = Callable[[Scenario], Scenario]


@st.composite
def crowded(
    draw: st.DrawFn, scenario: Scenario, *, capabilities: Capabilities
) -> Scenario:
    """Generate the same scenario, or mostly one in which much else happens.

    Shrinks toward the same.

    Args:
        draw: Provided by Hypothesis.
        scenario: What was drawn otherwise.
        capabilities: What the subject promises.

    Returns:
        A scenario without pairs that make no sense together.
    """
    if not _whether(capabilities) or not draw(_is_crowded()):
        return scenario
    for change in _changes(draw, scenario, capabilities):
        changed = change(scenario)
        if makes_sense(changed):
            scenario = changed
    return scenario


def makes_sense(scenario: Scenario) -> bool:
    """Tell whether a scenario has no pair of `NEVER_TOGETHER`."""
    met = sorted({f"{topic}={name}" for topic, name in features(scenario)})
    return not any(map(NEVER_TOGETHER.__contains__, _pairs(met)))


def _pairs(met: list[str]) -> Iterator[frozenset[str]]:
    return map(frozenset, itertools.combinations(met, 2))


@functools.cache
def _is_crowded() -> st.SearchStrategy[bool]:
    return st.sampled_from(_IS_CROWDED)


@functools.cache
def _whether(capabilities: Capabilities) -> bool:
    topics = ("event", *_OF_SCENARIO, *_OF_PARAMETER)
    return any(drawable(topic, BEYOND[topic], capabilities) for topic in topics)


@functools.cache
def _words(topic: str, capabilities: Capabilities) -> st.SearchStrategy[str | None]:
    """Generate words of a topic, or None for what is there already; shrinks to that."""
    words = drawable(topic, BEYOND[topic], capabilities)
    return st.sampled_from([*[None] * (_FEW // max(1, len(words)) or 1), *words])


def _changes(
    draw: st.DrawFn, scenario: Scenario, capabilities: Capabilities
) -> Iterator[Change]:
    for topic in _OF_SCENARIO:
        word = draw(_words(topic, capabilities))
        if word is not None:
            yield functools.partial(_changed, words={topic: word})
    for step in range(scenario.num_steps):
        event = draw(_words("event", capabilities))
        if event is not None:
            yield functools.partial(_with_event, step=step, event=event)
    for index, topic in itertools.product(
        range(len(scenario.parameters)), _OF_PARAMETER
    ):
        word = draw(_words(topic, capabilities))
        if word is not None:
            yield functools.partial(_with_parameter, index=index, words={topic: word})


def _changed(scenario: Scenario, *, words: dict[str, Any]) -> Scenario:
    return replace(scenario, **words)


def _with_event(scenario: Scenario, *, step: int, event: str) -> Scenario:
    events = list(scenario.events or (PLAIN,) * scenario.num_steps)
    events[step] = event
    return replace(scenario, events=tuple(events))


def _with_parameter(
    scenario: Scenario, *, index: int, words: dict[str, Any]
) -> Scenario:
    changed: list[ParameterSpec] = list(scenario.parameters)
    changed[index] = replace(changed[index], **words)
    return replace(scenario, parameters=tuple(changed))
