"""Words at the places of a scenario: which words a topic allows, and scenarios with another word."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import FEATURES, NEVER_WITH, PLAIN, TABLE
from syncverify.scenario.features import features_of, features_outside
from syncverify.scenario.scenario import Scenario


def allowed_words(
    topic: str, *, capabilities: Capabilities, beside: Collection[str] = ()
) -> list[str]:
    """Return the words of a topic that a scenario with the features of `beside` may have.

    The contract covers each word. None is rare, none forms a pair of `NEVER_TOGETHER` with a
    feature of `beside`, and none is the plain word. Variants of these words follow.
    """
    found = frozenset(map(Feature.of, beside))
    words = [
        feature.value
        for feature, row in FEATURES.items()
        if feature.topic == topic and capabilities.covers(*feature) and not row.rare
        if found.isdisjoint(NEVER_WITH.get(feature, ()))
    ]
    variants = [
        row.value
        for row in TABLE[topic].rows
        if row.since <= capabilities.table_version and row.value not in words
    ]
    return words + [word for word in variants if base_word(word) in words]


def words_at(scenario: Scenario, topic: str) -> Sequence[str]:
    """Return the words of a topic: of each step, of each parameter, or of the scenario."""
    if topic == "event":
        return scenario.events or (PLAIN,) * scenario.num_steps
    if TABLE[topic].part == "scenario":
        return [getattr(scenario, topic)]
    return [getattr(spec, topic) for spec in scenario.parameters]


def with_word(
    scenario: Scenario, topic: str, word: str, places: Collection[int]
) -> Scenario:
    """Return the scenario with a word at some places of `words_at`."""
    changed: dict[str, Any] = {topic: word}
    if topic == "event":
        words = enumerate(words_at(scenario, topic))
        events = tuple(word if n in places else known for n, known in words)
        return replace(scenario, events=unless_plain(events))
    if TABLE[topic].part == "scenario":
        return replace(scenario, **changed)
    listed = [*scenario.parameters]
    for place in places:
        listed[place] = replace(listed[place], **changed)
    return replace(scenario, parameters=tuple(listed))


def unless_plain(events: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the events of steps where all are plain, as a scenario asks for it."""
    return events if {*events} - {PLAIN} else ()


def with_parameter(scenario: Scenario, place: int, **changes: Any) -> Scenario:
    """Return the scenario with a changed parameter at a place."""
    listed = [*scenario.parameters]
    listed[place] = replace(listed[place], **changes)
    return replace(scenario, parameters=tuple(listed))


def has_no_impossible_pair(scenario: Scenario) -> bool:
    """Tell whether a scenario has no pair of `NEVER_TOGETHER`."""
    found = {*features_of(scenario)}
    return all(found.isdisjoint(NEVER_WITH.get(feature, ())) for feature in found)


def may_be_drawn(scenario: Scenario, capabilities: Capabilities) -> bool:
    """Tell whether a contract covers a scenario that has no pair of `NEVER_TOGETHER`."""
    is_covered = not features_outside(scenario, capabilities)
    return is_covered and has_no_impossible_pair(scenario)
