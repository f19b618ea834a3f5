"""Words that one scenario takes for several values that no scenario had.

A search of few scenarios lacks more values than it has scenarios left. Most of these values are
words that any scenario can take. So a scenario that is played for one value takes words of
others too: one for each step, each parameter and each topic of the scenario.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import NEVER_WITH, PLAIN, TABLE
from syncverify.scenario.features import features_of, features_outside
from syncverify.scenario.scenario import Scenario


def with_added_words(
    scenario: Scenario, values: Iterable[Feature], coverage: Coverage
) -> Scenario:
    """Return a scenario with words of some values, on which it judges something.

    What the scenario judged without the words, it judges with them.
    """
    judged = coverage.judged(scenario)
    if scenario.module != PLAIN:
        return scenario
    for value in values:
        if value in judged or not TABLE[value.topic].fits_any:
            continue
        for candidate in _candidates(scenario, *value):
            found = coverage.judged(candidate)
            if found >= {*judged, value} and _is_legal(candidate, coverage):
                scenario, judged = candidate, found
                break
    return scenario


def _candidates(scenario: Scenario, topic: str, word: str) -> Iterator[Scenario]:
    """Yield the scenario with a word in the place of a plain one, once for each place."""
    if topic == "event":
        words = scenario.events or (PLAIN,) * scenario.num_steps
        for step, event in enumerate(words):
            if event == PLAIN:
                events = (*words[:step], word, *words[step + 1 :])
                yield replace(scenario, events=events)
        return
    changed: dict[str, Any] = {topic: word}
    plain = TABLE[topic].plain_word
    if TABLE[topic].part == "scenario":
        if getattr(scenario, topic) == plain:
            yield replace(scenario, **changed)
        return
    listed = scenario.parameters
    for place, spec in enumerate(listed):
        if getattr(spec, topic) == plain and spec.requires_grad:
            with contextlib.suppress(ScenarioFormatError):
                with_word = replace(spec, **changed)
                others = (*listed[:place], with_word, *listed[place + 1 :])
                yield replace(scenario, parameters=others)


def _is_legal(scenario: Scenario, coverage: Coverage) -> bool:
    """Tell whether the contract covers a scenario that has no pair of `NEVER_TOGETHER`."""
    found = {*features_of(scenario)}
    return not features_outside(scenario, coverage.space.capabilities) and all(
        found.isdisjoint(NEVER_WITH.get(feature, ())) for feature in found
    )
