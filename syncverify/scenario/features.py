"""Features: the special contents of a scenario, beyond plain training steps.

A feature is a topic and a value, spelled `topic=value`. Each feature demands one of two
promises from a subject: `right`, the right gradient; or `right_or_error`, the right gradient
or a clear error. A silently wrong gradient is always a violation. `Capabilities` names the
features that a subject promises.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from syncverify.scenario import vocabulary
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ABSENT, PARTIAL, MeshSpec, ParameterSpec

_REENTRANT = ("checkpointed_reentrant", "checkpointed_and_not", "checkpointed_nested")
# Later steps in which the effect of a step event is still present.
_LASTING = (*vocabulary.BEFORE_STEP, *vocabulary.BEFORE_ZERO)
_STEPS_AFTER = {
    "set_to_none": 1,
    "set_every_other_to_none": 1,
    **dict.fromkeys((*_LASTING, "failing_collectives"), math.inf),
}
_PLAIN_STEPS = "other features show on sums of products, at a fraction of the cost"
_EXCHANGING = ("cast", "cast_before_zero", "move")
_BESIDE_MODULES = ("mesh", "shape", "module")
# Pairs of features that no scenario combines, each with its reason.
NEVER_TOGETHER: Final[Mapping[frozenset[str], str]] = {
    frozenset({"mesh=unnamed", "placement=sub_mesh"}): "sub-meshes are found by name",
    frozenset(
        {"mesh=1 axis", "placement=sub_mesh"}
    ): "one axis has no axis to leave out",
    frozenset({"mesh=1 axis", "placement=strided"}): "it takes two axes to cut one dim",
    **{
        frozenset({f"module={module}", f"{topic}={value}"}): _PLAIN_STEPS
        for module in OPTIONAL_FEATURES["module"]
        for topic in OPTIONAL_FEATURES
        for value in OPTIONAL_FEATURES[topic]
        if topic not in _BESIDE_MODULES and value != "own gradient dtype"
    },
    **{
        frozenset({f"module={module}", f"shape={value}"}): "a module has its own shapes"
        for module in OPTIONAL_FEATURES["module"]
        for value in OPTIONAL_FEATURES["shape"]
        if not (module.startswith("conv") and value == "4 dims")
    },
    # A reentrant checkpoint hides its parameters from the graph around it.
    **{
        frozenset({f"use={use}", f"backward={backward}"}): (
            "reentrant checkpoints refuse a backward that names its inputs"
        )
        for use, backward in (
            *itertools.product(_REENTRANT, ("inputs", "inputs_in_turn", "split")),
            ("checkpointed_reentrant", "grad_beside"),
            ("checkpointed_nested", "grad_beside"),
        )
    },
    **{
        frozenset({f"launch={launch}", f"backward={backward}"}): (
            "another thread has another current stream"
        )
        for launch, backward in itertools.product(
            list(vocabulary.LAUNCHES)[1:], ("on_threads", "deep_reentrant")
        )
    },
    **{
        frozenset({"placement=partial", f"event={event}"}): (
            "DTensor parameters are exchanged and lose their hooks, so DTensor itself "
            "reduces the Partial gradient, before the subject can refuse"
        )
        for event in _EXCHANGING
    },
    **{
        frozenset({"backward=hooks_of_others", f"event={event}"}): (
            "once DTensor parameters are exchanged, torch never calls the user's next hooks"
        )
        for event in _EXCHANGING
    },
    frozenset({"use=added_to_another", "launch=parameter_streams"}): (
        "the sum of two parameters belongs to no stream of one of them"
    ),
    frozenset({"use=added_to_another", "backward=on_threads"}): (
        "the sum of two parameters belongs to no half of the parameters"
    ),
    **{
        frozenset({"backward=hook_writes_grad", f"event={event}"}): (
            "once DTensor parameters are exchanged, torch never calls the user's next hooks"
        )
        for event in _EXCHANGING
    },
    **{
        frozenset({"event=raise_in_backward", f"backward={backward}"}): (
            "backward never reaches the term that raises"
        )
        for backward in ("inputs", "inputs_in_turn", "split")
    },
}


def optional_features(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the features of `OPTIONAL_FEATURES` that a scenario has; pairs may repeat."""
    yield from optional_mesh_features(scenario.mesh)
    for event in scenario.events:
        yield from _if_listed("event", event)
    yield from _if_listed("launch", scenario.launch)
    yield from _if_listed("readiness", scenario.readiness)
    yield from _if_listed("synchronizers", scenario.synchronizers)
    yield from _if_listed("backward", scenario.backward)
    yield from _if_listed("module", scenario.module)
    for spec in scenario.parameters:
        yield from parameter_features(spec)


def optional_mesh_features(mesh: MeshSpec) -> Iterator[tuple[str, str]]:
    """Yield the features of `OPTIONAL_FEATURES` that a mesh has."""
    if len(mesh.shape) == 3:
        yield "mesh", "3 axes"
    if not mesh.axis_names:
        yield "mesh", "unnamed"
    if mesh.order != "row_major":
        yield "mesh", mesh.order


def may_raise(scenario: Scenario, capabilities: Capabilities, step: int) -> bool:
    """Return whether a clear error in a step is as good as the right gradient.

    A step event excuses no error before it or long after it.
    """
    return any(
        capabilities.may_refuse(topic, value)
        for topic, value in _features_in_step(scenario, step)
    )


def overflows(scenario: Scenario) -> bool:
    """Return whether a gradient of every other step overflows."""
    return any(spec.gradient != "finite" for spec in scenario.parameters)


def without_clear_errors(capabilities: Capabilities) -> Capabilities:
    """Return a contract without the features that a subject may answer with an error."""
    may_fail = {
        f"{topic}={value}"
        for topic, values in OPTIONAL_FEATURES.items()
        for value in values
        if capabilities.covers(topic, value) and capabilities.may_refuse(topic, value)
    }
    return replace(capabilities, outside=capabilities.outside | may_fail)


def _features_in_step(scenario: Scenario, step: int) -> Iterator[tuple[str, str]]:
    """Yield the features that have an effect in a step."""
    yield from (
        feature for feature in optional_features(scenario) if feature[0] != "event"
    )
    for event_step, event in enumerate(scenario.events):
        later = _STEPS_AFTER.get(vocabulary.base_word(event), 0)
        if event_step <= step <= event_step + later:
            yield from _if_listed("event", event)


def parameter_features(spec: ParameterSpec) -> Iterator[tuple[str, str]]:
    """Yield the features of `OPTIONAL_FEATURES` that one parameter has."""
    placements = spec.placements or ()
    if ABSENT in placements:
        yield "placement", "sub_mesh"
    if PARTIAL in placements:
        yield "placement", "partial"
    if any(code.startswith("_") for code in placements):
        yield "placement", "strided"
    if len(spec.global_shape) == 4:
        yield "shape", "4 dims"
    if 0 in spec.global_shape:
        yield "shape", "empty"
    if "float64" in {spec.dtype, spec.grad_dtype}:
        yield "dtype", "float64"
    if spec.effective_grad_dtype != spec.dtype:
        yield "dtype", "own gradient dtype"
    if spec.num_listed > 1:
        yield "listed", "twice"
    if spec.also_in_next_group:
        yield "listed", "in two groups"
    yield from _if_listed("memory_format", spec.memory_format)
    yield from _if_listed("used", spec.used)
    yield from _if_listed("use", spec.use)


def _if_listed(topic: str, value: str) -> Iterator[tuple[str, str]]:
    word = vocabulary.base_word(value)
    if word in OPTIONAL_FEATURES[topic]:
        yield topic, word
