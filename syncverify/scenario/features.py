"""The features of a scenario, read off by the feature table, and what a contract says of them.

Each feature demands one of two promises from a subject: `right`, the right gradient; or
`right_or_error`, the right gradient or a clear error. A silently wrong gradient breaks both.
`Capabilities` names the features that a subject promises.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_row import Feature, ScenarioPart, Topic, base_word
from syncverify.scenario.feature_table import EVENTS, OPTIONAL, TABLE, is_plain
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

# Lists the values of a topic in a part of a scenario.
_Reader = Callable[..., Iterable[str]]


def _words(topic: Topic, *read: Any) -> Iterator[str]:
    """Yield the values of the words in the last part that is read, but for the plain word."""
    for word in topic.words_in(read[-1]):
        if word != topic.plain_word:
            yield base_word(word)


def _if_occurs(occurs: Callable[..., bool], *found: str) -> _Reader:
    """Return a function that lists a value where it occurs; a draw asks for each of them."""
    return lambda *read: found if occurs(*read) else ()


def _readers(part: ScenarioPart) -> Iterator[tuple[str, _Reader]]:
    """Yield the functions that read a part of a scenario, each with its topic."""
    for topic in TABLE.values():
        if topic.part == part and (topic.values or topic.plain):
            yield topic.name, topic.values or partial(_words, topic)
        for row in topic.rows:
            if row.occurs is not None and (row.part or topic.part) == part:
                yield topic.name, _if_occurs(row.occurs, row.value)


_OF_MESH: Final = (*_readers("mesh"),)
_OF_PARAMETER: Final = (*_readers("parameter"),)
_OF_SCENARIO: Final = (*_readers("scenario"),)


def features_of(scenario: Scenario) -> Iterator[Feature]:
    """Yield the features of one scenario; a feature may repeat."""
    yield from mesh_features(scenario.mesh)
    for topic, values in _OF_SCENARIO:
        yield from (Feature(topic, value) for value in values(scenario))
    for spec in scenario.parameters:
        yield from features_of_parameter(scenario.mesh, spec)


# A draw asks after each change of one parameter, and a coverage asks again.
@functools.lru_cache(maxsize=4096)
def features_of_parameter(mesh: MeshSpec, spec: ParameterSpec) -> tuple[Feature, ...]:
    """Return the features of one parameter on a mesh; the result is cached."""
    return tuple(parameter_features(mesh, spec))


def mesh_features(mesh: MeshSpec) -> Iterator[Feature]:
    """Yield the features of a mesh."""
    for topic, values in _OF_MESH:
        yield from (Feature(topic, value) for value in values(mesh))


def parameter_features(
    mesh: MeshSpec, spec: ParameterSpec, topics: Collection[str] = TABLE.keys()
) -> Iterator[Feature]:
    """Yield the features of one parameter on a mesh, or those of some topics."""
    for topic, values in _OF_PARAMETER:
        if topic in topics:
            for value in values(mesh, spec):  # a generator of its own takes longer
                yield Feature(topic, value)


def optional_features(scenario: Scenario) -> Iterator[Feature]:
    """Yield the features beyond plain training steps that a scenario has; some may repeat."""
    return (feature for feature in features_of(scenario) if feature in OPTIONAL)


def features_outside(scenario: Scenario, capabilities: Capabilities) -> list[Feature]:
    """List the features of a scenario that a contract leaves out, each once."""
    found = dict.fromkeys(features_of(scenario))
    return [feature for feature in found if not capabilities.covers(*feature)]


def refuses_plain_steps(scenario: Scenario, capabilities: Capabilities) -> bool:
    """Tell whether a contract allows a clear error for a plain value of a scenario."""
    return any(
        is_plain(feature) and capabilities.may_refuse(*feature)
        for feature in features_of(scenario)
    )


def refusable_features(
    scenario: Scenario, capabilities: Capabilities, step: int
) -> Iterator[Feature]:
    """Yield the features with which a contract allows a clear error in a step.

    A step event excuses no error before it or long after it.
    """
    known = [f for f in features_of(scenario) if is_plain(f) or f in OPTIONAL]
    known = [feature for feature in known if feature.topic != "event"]
    for event_step, event in enumerate(scenario.events):
        feature = Feature("event", base_word(event))
        last = event_step + EVENTS[feature.value].lasts
        if feature in OPTIONAL and event_step <= step <= last:
            known.append(feature)
    return (f for f in known if capabilities.may_refuse(*f))


def overflows(scenario: Scenario) -> bool:
    """Return whether a gradient of every other step overflows."""
    return any(spec.gradient in {"inf", "nan"} for spec in scenario.parameters)


def without_clear_errors(capabilities: Capabilities) -> Capabilities:
    """Return a contract without the features that a subject may answer with an error."""
    covered = [feature for feature in OPTIONAL if capabilities.covers(*feature)]
    may_fail = {str(each) for each in covered if capabilities.may_refuse(*each)}
    return replace(capabilities, outside=capabilities.outside | may_fail)


def size_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the numbers that make a scenario long to read, the most important one first."""
    return (
        scenario.mesh.num_ranks,
        len(scenario.mesh.shape),
        len(scenario.parameters),
        scenario.num_steps,
        sum(scenario.accumulations),
        len(list(optional_features(scenario))),
        sum(math.prod(spec.global_shape) for spec in scenario.parameters),
    )
