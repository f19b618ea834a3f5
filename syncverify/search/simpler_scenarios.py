"""Scenarios with one thing less than a scenario that shows a violation.

Hypothesis makes single choices smaller. A mesh with fewer ranks needs other choices after
it, so the violation may vanish, and four ranks stay where two are enough. Here one thing is
left out and everything else stays.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from syncverify.errors import ScenarioFormatError
from syncverify.playing.program.modules.named import require_own_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.other_meshes import TRANSPOSED, on_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import OWN_MESH, MeshSpec, ParameterSpec

# New values of fields of a scenario.
Changes = dict[str, Any]


def simpler_scenarios(
    scenario: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract that leave one thing out.

    The order: fewer axes and ranks, parameters, steps, micro-batches.
    """
    parameters, counts = scenario.parameters, scenario.accumulations
    for changes in itertools.chain(
        _fewer_ranks(scenario.mesh, parameters),
        ({"parameters": _without(parameters, n)} for n in range(len(parameters))),
        _fewer_steps(counts, scenario.events),
        _fewer_micro_batches(counts),
    ):
        with contextlib.suppress(ScenarioFormatError):  # such as: no parameter is left
            candidate = replace(scenario, **changes)
            if candidate.module != PLAIN:
                require_own_parameters(candidate)
            if not features_outside(candidate, capabilities):
                yield candidate


def one_axis(scenario: Scenario, axis: int, size: int) -> Changes:
    """Return mesh and parameters with one mesh axis alone, of a number of ranks."""
    return _on_axes(scenario.mesh, scenario.parameters, (axis,), {axis: size})


def _fewer_ranks(
    mesh: MeshSpec, parameters: Sequence[ParameterSpec]
) -> Iterator[Changes]:
    """Yield for each axis first the others alone, then fewer ranks on it."""
    axes = range(len(mesh.shape))
    for axis in axes:
        others = [each for each in axes if each != axis]
        yield _on_axes(mesh, parameters, others, {})
        yield from _smaller_axis(mesh, axis)


def _fewer_steps(
    counts: tuple[int, ...], all_events: tuple[str, ...]
) -> Iterator[Changes]:
    for step in range(len(counts)):
        events = _without(all_events, step)
        yield {
            "accumulations": _without(counts, step),
            "events": events if {*events} - {PLAIN} else (),
        }


def _without(entries: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return (*entries[:index], *entries[index + 1 :])


def _on_axes(
    mesh: MeshSpec,
    parameters: Sequence[ParameterSpec],
    axes: Sequence[int],
    sizes: Mapping[int, int],
) -> Changes:
    """Return mesh and parameters on some axes; `sizes` has those of another size."""

    def kept(entries: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(entries[axis] for axis in axes) if entries else ()

    shape = tuple(sizes.get(axis, mesh.shape[axis]) for axis in axes)
    smaller = replace(mesh, shape=shape, axis_names=kept(mesh.axis_names))

    def placed(spec: ParameterSpec) -> ParameterSpec:
        codes = spec.placements or ()
        if spec.on_mesh == TRANSPOSED:
            back = kept(codes[::-1])[::-1]
            word = TRANSPOSED if len(axes) > 1 else OWN_MESH
            return replace(spec, placements=back, on_mesh=word)
        if spec.on_mesh != OWN_MESH:
            return on_mesh(smaller, spec, spec.on_mesh)
        return replace(spec, placements=spec.placements and kept(codes))

    return {"mesh": smaller, "parameters": tuple(map(placed, parameters))}


def _smaller_axis(mesh: MeshSpec, axis: int) -> Iterator[Changes]:
    before, size, after = mesh.shape[:axis], mesh.shape[axis], mesh.shape[axis + 1 :]
    for fewer in sorted({1, 2, size // 2, size - 1}):
        if 1 <= fewer < size:
            yield {"mesh": replace(mesh, shape=(*before, fewer, *after))}


def _fewer_micro_batches(counts: tuple[int, ...]) -> Iterator[Changes]:
    """Yield first a bound on all steps, then fewer micro-batches of a single step."""
    for bound in range(1, max(counts)):
        yield {"accumulations": tuple(min(count, bound) for count in counts)}
    for step, count in enumerate(counts):
        for fewer in range(1, count):
            yield {"accumulations": (*counts[:step], fewer, *counts[step + 1 :])}
