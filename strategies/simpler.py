"""Scenarios with less in them than one that shows a violation.

Hypothesis makes single choices smaller. A mesh with fewer ranks asks for other choices
after it, so what shows the violation may be lost with it, and four ranks stay where two
would do. Here one thing is left out, and all others stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from syncverify.errors import ScenarioFormatError
from syncverify.modules.named import require_own_parameters
from syncverify.scenario import MeshSpec, Scenario
from syncverify.subject import Capabilities
from syncverify.vocabulary import PLAIN

Changes = dict[str, Any]


def simpler(scenario: Scenario, capabilities: Capabilities) -> Iterator[Scenario]:
    """Leave out one thing.

    Args:
        scenario: What to make simpler.
        capabilities: What its subject promises; no scenario is outside of it.

    Yields:
        Scenarios with fewer ranks, axes, parameters, steps, or micro-batches, in this order.
    """
    for changes in _changes(scenario):
        with contextlib.suppress(ScenarioFormatError):  # say, no parameter is left
            candidate = replace(scenario, **changes)
            if candidate.module != PLAIN:
                require_own_parameters(candidate)
            if not capabilities.lacking(candidate):
                yield candidate


def _changes(scenario: Scenario) -> Iterator[Changes]:
    for axis in range(len(scenario.mesh.shape)):
        yield _without_axis(scenario, axis)
        yield from _smaller_axis(scenario.mesh, axis)
    for place in range(len(scenario.parameters)):
        yield {"parameters": _without(scenario.parameters, place)}
    for step in range(scenario.num_steps):
        events = _without(scenario.events, step)
        yield {
            "accumulations": _without(scenario.accumulations, step),
            "events": events if {*events} - {PLAIN} else (),
        }
    yield from _fewer_micro_batches(scenario.accumulations)


def _without(entries: tuple[Any, ...], place: int) -> tuple[Any, ...]:
    return (*entries[:place], *entries[place + 1 :])


def _without_axis(scenario: Scenario, axis: int) -> Changes:
    mesh = MeshSpec(
        _without(scenario.mesh.shape, axis), _without(scenario.mesh.axis_names, axis)
    )
    return {
        "mesh": mesh,
        "parameters": tuple(
            replace(
                spec, placements=spec.placements and _without(spec.placements, axis)
            )
            for spec in scenario.parameters
        ),
    }


def _smaller_axis(mesh: MeshSpec, axis: int) -> Iterator[Changes]:
    before, size, after = mesh.shape[:axis], mesh.shape[axis], mesh.shape[axis + 1 :]
    for fewer in sorted({1, 2, size // 2, size - 1}):
        if 1 <= fewer < size:
            yield {"mesh": replace(mesh, shape=(*before, fewer, *after))}


def _fewer_micro_batches(counts: tuple[int, ...]) -> Iterator[Changes]:
    for most in range(1, max(counts)):
        yield {"accumulations": tuple(min(count, most) for count in counts)}
    for step, count in enumerate(counts):
        for fewer in range(1, count):
            yield {"accumulations": (*counts[:step], fewer, *counts[step + 1 :])}
