"""What a scenario may contain beyond the plain case, and what a subject then owes.

A feature is a topic and a value of it, spelled `topic=value`. A subject owes the right
gradient, or, where a feature is marked so, the right gradient or a clear error; a wrong
gradient without a word is never right. Subjects say in their `Capabilities` which features
lie outside of their contract, and for which they promise more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

from syncverify import vocabulary
from syncverify.scenario import ABSENT, PARTIAL, ParameterSpec, Scenario
from syncverify.subject import Capabilities

Owed = Literal["right", "right_or_error"]

# Beyond what every subject is asked: a mesh of one or two named axes, dense parameters of
# up to three dims that every micro-batch uses once, and steps as agreed.
# Topics whose first word is the plain case are listed in `vocabulary`.
BEYOND: Final[Mapping[str, Mapping[str, Owed]]] = {
    "mesh": {"3 axes": "right", "unnamed": "right"},
    "placement": {
        "sub_mesh": "right",
        "strided": "right",
        "partial": "right_or_error",
    },
    "shape": {"4 dims": "right", "empty": "right"},
    "dtype": {"float64": "right"},
    "listed": {"twice": "right_or_error"},
    "memory_format": {"transposed": "right", "channels_last": "right"},
    "used": {
        "never": "right_or_error",
        "not_on_odd_ranks": "right_or_error",
        "not_in_first_micro_batch": "right_or_error",
        "not_in_last_micro_batch": "right_or_error",
    },
    "use": dict.fromkeys(list(vocabulary.USES)[1:], "right"),
    "backward": {
        **dict.fromkeys(list(vocabulary.BACKWARDS)[1:], "right"),
        "deep_reentrant": "right_or_error",
        "compiled_autograd": "right_or_error",
    },
    "event": {
        "wait_twice": "right",
        "zero_before_wait": "right_or_error",
        "set_to_none": "right_or_error",
        "empty_step": "right_or_error",
        "extra_backward": "right_or_error",
        "missing_backward": "right_or_error",
        "tail": "right_or_error",
        "rebind": "right",
        "raise_in_backward": "right_or_error",
        "freeze": "right_or_error",
        "cast": "right_or_error",
        "move": "right_or_error",
    },
    "launch": dict.fromkeys(list(vocabulary.LAUNCHES)[1:], "right"),
    "readiness": {"by_rank": "right"},
    "module": dict.fromkeys(list(vocabulary.MODULES)[1:], "right"),
}
_REENTRANT = ("checkpointed_reentrant", "checkpointed_and_not", "checkpointed_nested")
# Steps after an event in which it still matters.
_STEPS_AFTER = {"set_to_none": 1, **dict.fromkeys(("freeze", "cast", "move"), math.inf)}
# Pairs of `topic=value` that no scenario has together, and why.
_PLAIN_STEPS = "what else there is shows on sums of products, at a fraction of the cost"
_BESIDE_MODULES = ("mesh", "shape", "module")
NEVER_TOGETHER: Final[Mapping[frozenset[str], str]] = {
    frozenset({"mesh=unnamed", "placement=sub_mesh"}): "sub-meshes are found by name",
    frozenset(
        {"mesh=1 axis", "placement=sub_mesh"}
    ): "one axis has no axis to leave out",
    frozenset({"mesh=1 axis", "placement=strided"}): "it takes two axes to cut one dim",
    **{
        frozenset({f"module={module}", f"{topic}={value}"}): _PLAIN_STEPS
        for module in BEYOND["module"]
        for topic in BEYOND
        if topic not in _BESIDE_MODULES
        for value in BEYOND[topic]
    },
    **{
        frozenset({f"module={module}", f"shape={value}"}): "its shapes are its own"
        for module in BEYOND["module"]
        for value in BEYOND["shape"]
        if not (module.startswith("conv") and value == "4 dims")
    },
    # A reentrant checkpoint hides its parameters from the graph around it.
    **{
        frozenset({f"use={use}", f"backward={backward}"}): (
            "reentrant checkpoints do not work where backward is told for what"
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
            "DTensor parameters are exchanged and lose their hooks, so that DTensor "
            "reduces by itself what is Partial, before anybody can refuse"
        )
        for event in ("cast", "move")
    },
    **{
        frozenset({"event=raise_in_backward", f"backward={backward}"}): (
            "backward never comes to what raises"
        )
        for backward in ("inputs", "inputs_in_turn", "split")
    },
}
# For subjects that promise none of it.
ALL_BEYOND: Final = frozenset(BEYOND)


def beyond(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the features of `BEYOND` that a scenario has; pairs may repeat."""
    if len(scenario.mesh.shape) == 3:
        yield "mesh", "3 axes"
    if not scenario.mesh.axis_names:
        yield "mesh", "unnamed"
    for event in scenario.events:
        yield from _unless_plain("event", event)
    yield from _unless_plain("launch", scenario.launch)
    yield from _unless_plain("readiness", scenario.readiness)
    yield from _unless_plain("backward", scenario.backward)
    yield from _unless_plain("module", scenario.module)
    for spec in scenario.parameters:
        yield from of_parameter(spec)


def may_raise(scenario: Scenario, capabilities: Capabilities, step: int) -> bool:
    """Tell whether a clear error is as good as the right gradient.

    Args:
        scenario: What is played.
        capabilities: What the subject promises.
        step: In which step the error comes: what is special about one step is no excuse
            for an error before it, or long after it.

    Returns:
        Whether something in the scenario excuses it.
    """
    return any(
        BEYOND[topic][value] == "right_or_error"
        and not capabilities.is_owed(topic, value)
        for topic, value in _felt(scenario, step)
    )


def without_excuses(capabilities: Capabilities) -> Capabilities:
    """Leave out of a subject's contract what it may answer with an error.

    Args:
        capabilities: What the subject promises.

    Returns:
        Capabilities that cover only what it must get right.
    """
    excuses = {
        f"{topic}={value}"
        for topic, owed in BEYOND.items()
        for value in owed
        if owed[value] == "right_or_error"
        and capabilities.covers(topic, value)
        and not capabilities.is_owed(topic, value)
    }
    return replace(capabilities, outside=capabilities.outside | excuses)


def _felt(scenario: Scenario, step: int) -> Iterator[tuple[str, str]]:
    """Yield the features that matter in a step."""
    yield from (feature for feature in beyond(scenario) if feature[0] != "event")
    for place, event in enumerate(scenario.events):
        if place <= step <= place + _STEPS_AFTER.get(event, 0):
            yield from _unless_plain("event", event)


def of_parameter(spec: ParameterSpec) -> Iterator[tuple[str, str]]:
    """Yield the features of `BEYOND` that one parameter has."""
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
    if spec.num_listed > 1:
        yield "listed", "twice"
    yield from _unless_plain("memory_format", spec.memory_format)
    yield from _unless_plain("used", spec.used)
    yield from _unless_plain("use", spec.use)


def _unless_plain(topic: str, value: str) -> Iterator[tuple[str, str]]:
    if value in BEYOND[topic]:
        yield topic, value
