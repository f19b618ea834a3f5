"""Scenarios in which a change of the subject shows its cost: several buckets, steps and ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from syncverify.errors import ScenarioFormatError
from syncverify.explain.repair.needs import Needs
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

_MAX_RANKS = 4
_NEVER_FULL = 1 << 20
# Number of ranks, of parameters, and of those that a bucket holds; micro-batches of each step.
_SHAPES = (
    (2, 6, 2, (2, 2)),
    (2, 6, 1, (1, 1)),
    (3, 5, 2, (1, 3)),
    (4, 4, 2, (2, 1)),
    (2, 3, 3, (3, 2)),
)
# Shapes of parameters that differ in each number that code may take for another one: elements,
# dims, rows, columns, bytes. Placements on a mesh of two axes; micro-batches go up, down, and
# stay.
_VARIED = ((2, 3), (3,), (), (4, 1, 2), (1, 5), (3, 2))
_PLACED = (
    ("R", "R"),
    ("R", "S0"),
    ("R", "R"),
    ("S0", "R"),
    ("R", "S1"),
    ("S0", "R"),
)
_VARIED_STEPS = (2, 1, 1, 3)
_VARIED_CAP = 36


def measured_scenarios(
    found: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract that have several parameters, mostly some in a bucket.

    Args:
        found: The scenario of the violation. Its mesh and its parameters are repeated, so that
            some of the scenarios have all that the violation needs.
        capabilities: The contract.

    Yields:
        Scenarios with two ranks or more, each once.
    """
    seen = set[Scenario]()
    listed = (
        *_plain(capabilities),
        *_large(capabilities),
        *_varied(capabilities),
        *_like(found, capabilities),
    )
    for scenario in listed:
        if scenario not in seen and not features_outside(scenario, capabilities):
            seen.add(scenario)
            yield scenario


def _plain(capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield scenarios of plain steps with equal parameters on a mesh of one axis."""
    spec = ParameterSpec("p0", (3,), ("R",))
    for ranks, count, held, steps in _SHAPES:
        mesh = MeshSpec((ranks,), ("dp",))
        yield from _made(
            Scenario(mesh, _copies((spec,), count), (1,), _NEVER_FULL),
            steps=steps,
            held_bytes=held * 12,
            capabilities=capabilities,
        )


def _large(capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield a scenario in which a bucket outweighs the records about it."""
    spec = ParameterSpec("p0", (16, 32), ("R",))
    mesh = MeshSpec((2,), ("dp",))
    yield from _made(
        Scenario(mesh, _copies((spec,), 4), (1,), _NEVER_FULL),
        steps=(1, 1),
        held_bytes=2 * 16 * 32 * 4,
        capabilities=capabilities,
    )


def _varied(capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield scenarios of parameters, groups and steps that all differ."""
    row, square = MeshSpec((2,), ("dp",)), MeshSpec((2, 2), ("dp", "tp"))
    for mesh, num_groups in ((row, 1), (row, 2), (square, 2)):
        listed = enumerate(zip(_VARIED, _PLACED, strict=True))
        parameters = tuple(
            ParameterSpec(
                f"p{number}",
                shape,
                codes if mesh is square else ("R",),
                group=number % num_groups,
            )
            for number, (shape, codes) in listed
        )
        yield from _made(
            Scenario(mesh, parameters, (1,), _NEVER_FULL),
            steps=_VARIED_STEPS,
            held_bytes=_VARIED_CAP,
            capabilities=capabilities,
        )


def _like(found: Scenario, capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield scenarios with the mesh, the words and copies of the parameters of another one."""
    mesh = _of_several(found.mesh)
    if found.module != PLAIN or mesh.num_ranks > _MAX_RANKS:
        return
    for count, held in ((5, 2), (4, 4)):
        with contextlib.suppress(ScenarioFormatError):
            copies = _copies(found.parameters, count)
            larger = replace(found, mesh=mesh, parameters=copies)
            num_bytes = max(1, Needs.of(replace(larger, events=())).num_bytes)
            largest = num_bytes // (mesh.num_ranks * larger.num_steps * len(copies))
            yield replace(larger, bucket_cap_bytes=max(1, largest * held))


def _of_several(mesh: MeshSpec) -> MeshSpec:
    """Return the mesh with two ranks along its first axis if it has a single rank."""
    if mesh.num_ranks > 1:
        return mesh
    return replace(mesh, shape=(2, *mesh.shape[1:]))


def _copies(
    parameters: tuple[ParameterSpec, ...], count: int
) -> tuple[ParameterSpec, ...]:
    """Return at least a number of parameters: some parameters over and over, by new names."""
    rounds = -(-count // len(parameters))
    listed = parameters * rounds
    return tuple(replace(spec, name=f"p{index}") for index, spec in enumerate(listed))


def _made(
    base: Scenario,
    *,
    steps: tuple[int, ...],
    held_bytes: int,
    capabilities: Capabilities,
) -> Iterator[Scenario]:
    if not capabilities.varying_accumulations:
        steps = (max(steps),) * len(steps)
    with contextlib.suppress(ScenarioFormatError):
        yield replace(base, accumulations=steps, bucket_cap_bytes=held_bytes)
