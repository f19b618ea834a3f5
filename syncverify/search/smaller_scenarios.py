"""Smaller scenarios than one that shows a violation.

Hypothesis makes single choices smaller. A mesh with fewer ranks needs other choices after
it, so the violation may vanish, and four ranks stay where two are enough. Here one thing is
left out and everything else stays.

`simpler_scenarios` and `with_one_feature_less` go down from a scenario: each one that still fails
is a step. Where a failing run takes seconds, a search goes up instead, by `parts_of`: parts that
hold cost little, and the first one that fails is the last one that is played.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from syncverify.errors import ScenarioFormatError
from syncverify.playing.program.modules.layers import require_own_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import AXIS_NAMES
from syncverify.scenario.feature_row import Feature, base_word
from syncverify.scenario.feature_table import PLAIN, TABLE
from syncverify.scenario.features import (
    features_outside,
    optional_features,
    parameter_features,
)
from syncverify.scenario.layout import TRANSPOSED, on_mesh
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import (
    ABSENT,
    OWN_MESH,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
)
from syncverify.scenario.words import unless_plain, with_word, words_at

_Changes = dict[str, Any]  # new values of fields of a scenario
_PLAIN_WORDS: Final[_Changes] = {
    name: topic.plain_word
    for name, topic in TABLE.items()
    if topic.fits_any and topic.part == "scenario" and name != "event"
}


def simpler_scenarios(
    scenario: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract that leave one thing out.

    The order: fewer axes and ranks, parameters, steps, micro-batches.
    """
    parameters, counts = scenario.parameters, scenario.accumulations
    for changes in itertools.chain(
        _fewer_ranks(scenario.mesh, parameters),
        ({"parameters": _with_entry(parameters, n)} for n in range(len(parameters))),
        _fewer_steps(counts, scenario.events),
        _fewer_micro_batches(counts),
    ):
        yield from _changed(scenario, changes, capabilities)


def _changed(
    scenario: Scenario, changes: _Changes, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield the scenario with changes, if it is one, and within the contract."""
    with contextlib.suppress(ScenarioFormatError):  # such as: no parameter is left
        changed = replace(scenario, **changes)
        if changed.module != PLAIN:
            require_own_parameters(changed)
        if not features_outside(changed, capabilities):
            yield changed


def _fewer_ranks(
    mesh: MeshSpec, parameters: Sequence[ParameterSpec]
) -> Iterator[_Changes]:
    """Yield for each axis first the others alone, then fewer ranks on it."""
    axes = range(len(mesh.shape))
    for axis in axes:
        others = [each for each in axes if each != axis]
        yield _on_axes(mesh, parameters, others, {})
        size = mesh.shape[axis]
        for fewer in sorted({1, 2, size // 2, size - 1}):
            if 1 <= fewer < size:
                shape = _with_entry(mesh.shape, axis, fewer)
                yield {"mesh": replace(mesh, shape=shape)}


def _fewer_steps(
    counts: tuple[int, ...], all_events: tuple[str, ...]
) -> Iterator[_Changes]:
    for step in range(len(counts)):
        events = unless_plain(_with_entry(all_events, step))
        yield {"accumulations": _with_entry(counts, step), "events": events}


def _fewer_micro_batches(counts: tuple[int, ...]) -> Iterator[_Changes]:
    """Yield first a bound on all steps, then fewer micro-batches of a single step."""
    for bound in range(1, max(counts)):
        yield {"accumulations": tuple(min(count, bound) for count in counts)}
    for step, count in enumerate(counts):
        for fewer in range(1, count):
            yield {"accumulations": _with_entry(counts, step, fewer)}


def _with_entry(entries: tuple[Any, ...], index: int, *new: int) -> tuple[Any, ...]:
    """Return entries with another one in a place, or without it."""
    return (*entries[:index], *new, *entries[index + 1 :])


def _on_axes(
    mesh: MeshSpec,
    parameters: Sequence[ParameterSpec],
    axes: Sequence[int],
    sizes: Mapping[int, int],
) -> _Changes:
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


def parts_of(scenario: Scenario, capabilities: Capabilities) -> Iterator[Scenario]:
    """Yield the parts of a scenario within a contract, those with the fewest things first.

    A part has the whole mesh or one axis, all parameters or one, all steps or one, all
    micro-batches or one, and the words of the scenario or plain ones.
    """
    ways: list[list[Any]] = [
        [*_axes(scenario.mesh), None],
        [*((spec,) for spec in scenario.parameters), scenario.parameters],
        [*_steps(scenario), {}],
        [_PLAIN_WORDS, {}],
    ]
    yielded = {scenario}
    numbered = itertools.product(*(enumerate(way) for way in ways))
    for chosen_ways in sorted(numbered, key=lambda each: sum(n for n, _ in each)):
        axis, parameters, steps, words = (way for _, way in chosen_ways)
        with contextlib.suppress(ScenarioFormatError):  # such as: no parameter trains
            chosen = replace(scenario, parameters=parameters)
            changes = {**steps, **words}
            if axis is not None:
                # The mesh decides about the placements of the parameters that are left.
                number, size = axis
                changes |= _on_axes(chosen.mesh, parameters, [number], {number: size})
            for part in _changed(chosen, changes, capabilities):
                if part not in yielded:
                    yielded.add(part)
                    yield part


def _axes(mesh: MeshSpec) -> Iterator[tuple[int, int]]:
    """Yield each axis with a size: of one rank, of two, and as it is."""
    for size in (1, 2, None):
        for axis, most in enumerate(mesh.shape):
            yield axis, most if size is None else min(size, most)


def _steps(scenario: Scenario) -> Iterator[_Changes]:
    """Yield one step with one micro-batch, without and with an event; then each step as it is.

    The last one has all steps, each with one micro-batch.
    """
    events = words_at(scenario, "event")
    yield {"accumulations": (1,), "events": ()}
    for each in sorted({*events} - {PLAIN}):
        yield {"accumulations": (1,), "events": (each,)}
    for count, event in zip(scenario.accumulations, events, strict=True):
        yield {"accumulations": (count,), "events": unless_plain((event,))}
    yield {"accumulations": (1,) * scenario.num_steps}


def with_one_feature_less(
    scenario: Scenario, capabilities: Capabilities
) -> Iterator[Scenario]:
    """Yield scenarios within a contract in which one feature has become plain.

    The number of mesh axes stays. Placements and shape of a parameter become plain as a whole.
    """
    for feature in dict.fromkeys(optional_features(scenario)):
        with contextlib.suppress(ScenarioFormatError):
            candidate = _without_feature(scenario, feature)
            is_less = feature not in optional_features(candidate)
            if is_less and not features_outside(candidate, capabilities):
                yield candidate


def _without_feature(scenario: Scenario, feature: Feature) -> Scenario:
    """Return a scenario whose part with a feature is plain."""
    (topic, value), mesh = feature, scenario.mesh
    if topic == "mesh":
        plain: _Changes = {"order": "row_major"}
        if value == "unnamed":
            plain = {"axis_names": AXIS_NAMES[: len(mesh.shape)]}
        return replace(scenario, mesh=replace(mesh, **plain))
    if TABLE[topic].part == "scenario":
        words = enumerate(words_at(scenario, topic))
        places = [n for n, word in words if base_word(word) == value]
        return with_word(scenario, topic, TABLE[topic].plain_word, places)
    parameters = (
        _plainer(mesh, s, feature) if feature in parameter_features(mesh, s) else s
        for s in scenario.parameters
    )
    return replace(scenario, parameters=tuple(parameters))


def _plainer(mesh: MeshSpec, spec: ParameterSpec, feature: Feature) -> ParameterSpec:
    """Return a parameter of the scenario's mesh without a feature."""
    fields: _Changes
    match feature.topic:
        case "on_mesh":
            return on_mesh(mesh, spec, OWN_MESH)
        case "placement":
            plain = (
                REPLICATE if code in {ABSENT, PARTIAL} else code.removeprefix("_")
                for code in spec.placements or ()
            )
            fields = {"placements": spec.placements and tuple(plain)}
        case "shape":
            fields = {"global_shape": tuple(n or 1 for n in spec.global_shape[:2])}
        case "dtype" if feature.value == "own gradient dtype":
            fields = {"grad_dtype": None}
        case "dtype":
            fields = {"dtype": "float32", "grad_dtype": None}
        case "listed":
            fields = {"num_listed": 1, "also_in_next_group": False}
        case topic:
            fields = {topic: TABLE[topic].plain_word}
    return replace(spec, **fields)
