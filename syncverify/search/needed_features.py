"""The features that a violation needs: all others of its scenario become plain.

Shrinking makes a scenario small, but a feature costs nothing there: a violation of two
features that do not go together kept seven. Delta debugging over the features, one at a time
until none can go, leaves those that matter together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.coverage import features_outside
from syncverify.scenario.features import optional_features, parameter_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ABSENT, PARTIAL, REPLICATE, ParameterSpec
from syncverify.scenario.vocabulary import PLAIN, base_word
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge

_MAX_RUNS: Final = 60


def with_needed_features(judge: Judge, found: FoundViolation) -> FoundViolation:
    """Return a violation of the same identity in which no single feature can become plain.

    Args:
        judge: Judge of the scenarios, under the contract of the violation.
        found: The violation.

    Returns:
        The violation, as far as 60 runs lead.
    """
    identity, best = found.violation.identity, found
    judge.budget.runs_left = _MAX_RUNS
    with contextlib.suppress(OutOfBudgetError):
        candidates = _with_one_feature_less(best.scenario)
        while (scenario := next(candidates, None)) is not None:
            if features_outside(scenario, judge.subject.capabilities):
                continue
            judged = judge.judge_schedule(scenario, best.schedule)
            if identity in judged.violations:
                best = judged.violations[identity]
                candidates = _with_one_feature_less(best.scenario)
    return best


def _with_one_feature_less(scenario: Scenario) -> Iterator[Scenario]:
    for topic, value in dict.fromkeys(optional_features(scenario)):
        with contextlib.suppress(ScenarioFormatError):
            candidate = _without(scenario, topic, value)
            if (topic, value) not in optional_features(candidate):
                yield candidate


def _without(scenario: Scenario, topic: str, value: str) -> Scenario:
    """Return a scenario whose part with a feature is plain."""
    if topic in _PLAIN_OF_SCENARIO:
        return replace(scenario, **{topic: _PLAIN_OF_SCENARIO[topic]})
    if topic == "mesh":
        return replace(scenario, mesh=replace(scenario.mesh, order="row_major"))
    if topic == "event":
        events = tuple(
            PLAIN if base_word(event) == value else event for event in scenario.events
        )
        return replace(scenario, events=events if {*events} - {PLAIN} else ())
    return replace(
        scenario,
        parameters=tuple(
            _plainer(spec, topic)
            if (topic, value) in parameter_features(spec)
            else spec
            for spec in scenario.parameters
        ),
    )


def _plainer(spec: ParameterSpec, topic: str) -> ParameterSpec:
    return replace(spec, **_PLAIN_OF_PARAMETER[topic](spec))


_PLAIN_OF_SCENARIO: Final[Mapping[str, Any]] = {
    each.name: each.default
    for each in fields(Scenario)
    if each.name in {"launch", "readiness", "synchronizers", "backward", "module"}
}
_PLAIN_OF_PARAMETER: Final[Mapping[str, Callable[[ParameterSpec], dict[str, Any]]]] = {
    "placement": lambda spec: {
        "placements": spec.placements
        and tuple(
            REPLICATE if code in {ABSENT, PARTIAL} else code.removeprefix("_")
            for code in spec.placements
        )
    },
    "shape": lambda spec: {
        "global_shape": tuple(n or 1 for n in spec.global_shape[:2])
    },
    "dtype": lambda _: {"dtype": "float32", "grad_dtype": None},
    "listed": lambda _: {"num_listed": 1, "also_in_next_group": False},
    "memory_format": lambda _: {"memory_format": "contiguous"},
    "used": lambda _: {"used": "always"},
    "use": lambda _: {"use": PLAIN},
}
