"""The features that a violation needs: others of its scenario become plain.

Shrinking does not count features: a violation that needs two features may be reported with
seven. So features are taken away one at a time (delta debugging), until each one that is left is
needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from syncverify.errors import ScenarioFormatError
from syncverify.scenario.contract_meshes import AXIS_NAMES
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.features import (
    features_outside,
    optional_features,
    parameter_features,
)
from syncverify.scenario.other_meshes import on_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import (
    ABSENT,
    OWN_MESH,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
)
from syncverify.search.budget import OutOfBudgetError
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge

_MAX_RUNS: Final = 60


def with_needed_features(judge: Judge, found: FoundViolation) -> FoundViolation:
    """Return a violation of the same identity with fewer features, as few as 60 runs find.

    Limits the runs that the judge has left. The number of mesh axes stays. Placements and shape of
    a parameter become plain as a whole.

    Args:
        judge: Judge of the scenarios, under the contract of the violation.
        found: The violation.

    Returns:
        The violation; `found` itself if it needs all of its features.
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
    for feature in dict.fromkeys(optional_features(scenario)):
        with contextlib.suppress(ScenarioFormatError):
            candidate = _without(scenario, feature)
            if feature not in optional_features(candidate):
                yield candidate


def _without(scenario: Scenario, feature: Feature) -> Scenario:
    """Return a scenario whose part with a feature is plain."""
    topic = feature.topic
    if topic == "mesh":
        return replace(scenario, mesh=_plainer_mesh(scenario.mesh, feature.value))
    if topic == "event":
        events = tuple(
            PLAIN if base_word(event) == feature.value else event
            for event in scenario.events
        )
        return replace(scenario, events=events if {*events} - {PLAIN} else ())
    if TABLE[topic].part == "scenario":
        plain: dict[str, Any] = {topic: TABLE[topic].plain_word}
        return replace(scenario, **plain)
    return replace(
        scenario,
        parameters=tuple(
            _plainer(scenario.mesh, spec, feature)
            if feature in parameter_features(scenario.mesh, spec)
            else spec
            for spec in scenario.parameters
        ),
    )


def _plainer_mesh(mesh: MeshSpec, value: str) -> MeshSpec:
    if value == "unnamed":
        return replace(mesh, axis_names=AXIS_NAMES[: len(mesh.shape)])
    return replace(mesh, order="row_major")


def _plainer(mesh: MeshSpec, spec: ParameterSpec, feature: Feature) -> ParameterSpec:
    """Return a parameter of the scenario's mesh without a feature."""
    if feature.topic == "on_mesh":
        return on_mesh(mesh, spec, OWN_MESH)
    return replace(spec, **_plainer_fields(spec, feature))


def _plainer_fields(spec: ParameterSpec, feature: Feature) -> dict[str, Any]:
    """Return values of fields with which a parameter lacks a feature."""
    match feature.topic:
        case "placement":
            plain = (
                REPLICATE if code in {ABSENT, PARTIAL} else code.removeprefix("_")
                for code in spec.placements or ()
            )
            return {"placements": spec.placements and tuple(plain)}
        case "shape":
            return {"global_shape": tuple(n or 1 for n in spec.global_shape[:2])}
        case "dtype" if feature.value == "own gradient dtype":
            return {"grad_dtype": None}
        case "dtype":
            return {"dtype": "float32", "grad_dtype": None}
        case "listed":
            return {"num_listed": 1, "also_in_next_group": False}
    return {feature.topic: TABLE[feature.topic].plain_word}
