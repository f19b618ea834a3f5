"""Validation: refuse a scenario that no rank program can play.

The checks read a scenario from its JSON as well as one that Python code made, so they take
nothing for granted, not even the types.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from syncverify.errors import ScenarioFormatError, UnknownLayerError
from syncverify.scenario import bounds
from syncverify.scenario.feature_table import OWN_LAYERS, PLAIN, TABLE, WORDS
from syncverify.scenario.layout import TRANSPOSED, mesh_of
from syncverify.scenario.specs import (
    ABSENT,
    DTYPES,
    ORDERS,
    OWN_MESH,
    PARTIAL,
    REPLICATE,
    MeshSpec,
    ParameterSpec,
    Placements,
    num_pieces,
    shard,
    sharded_dim,
    strided_shard,
)


def require(condition: object, expectation: str) -> None:
    """Refuse a scenario by `ScenarioFormatError` if it does not meet an expectation, a sentence."""
    if not condition:
        raise ScenarioFormatError(f"malformed scenario: {expectation}")


def check_names(names: Iterable[object]) -> None:
    """Refuse names that are no short, printable text: a terminal obeys control characters."""
    limit = bounds.MAX_NAME_LENGTH
    require(
        all(
            isinstance(name, str) and len(name) <= limit and name.isprintable()
            for name in names
        ),
        f"names are printable text of at most {limit} characters",
    )


def check_types(
    mesh: MeshSpec, parameters: tuple[ParameterSpec, ...], counts: Iterable[int]
) -> None:
    """Refuse types that JSON lets through: `True` and 2.5 pass every comparison."""
    numbers = [*mesh.shape, *counts]
    names: list[object] = list(mesh.axis_names)
    for parameter in parameters:
        numbers += [*parameter.global_shape, parameter.group, parameter.num_listed]
        names.append(parameter.name)
        flags = {type(parameter.requires_grad), type(parameter.also_in_next_group)}
        require(
            flags == {bool}, "requires_grad and also_in_next_group are true or false"
        )
    require(all(type(n) is int for n in numbers), "sizes are whole numbers")
    check_names(names)


def check_bounds(
    mesh: MeshSpec,
    parameters: tuple[ParameterSpec, ...],
    accumulations: tuple[int, ...],
    bucket_cap_bytes: int,
) -> None:
    """Refuse a scenario that no machine can play; sizes are whole numbers."""
    for limit, value, noun in _limits(
        mesh, parameters, sum(accumulations) + len(accumulations), bucket_cap_bytes
    ):
        # Python refuses to print a number of more than 4,300 digits.
        shown = value if value < bounds.MAX_COUNT else f"over {bounds.MAX_COUNT}"
        require(value <= limit, f"expected at most {limit} {noun}, got {shown}")


def _limits(
    mesh: MeshSpec,
    parameters: tuple[ParameterSpec, ...],
    num_micro_batches: int,
    bucket_cap_bytes: int,
) -> Iterator[tuple[int, int, str]]:
    """Yield each limit with a number and its noun; those of factors before their product."""
    yield bounds.MAX_AXES, len(mesh.shape), "mesh axes"
    for size in mesh.shape:  # the product may have a million digits
        yield bounds.MAX_RANKS_OF_ANY_BACKEND, size, "ranks"
    yield bounds.MAX_RANKS_OF_ANY_BACKEND, mesh.num_ranks, "ranks"
    yield bounds.MAX_PARAMETERS, len(parameters), "parameters"
    yield bounds.MAX_MICRO_BATCHES, num_micro_batches, "micro-batches"
    yield bounds.MAX_BUCKET_CAP_BYTES, bucket_cap_bytes, "bytes of a bucket"
    numel = 0
    for parameter in parameters:
        yield bounds.MAX_DIMS, len(parameter.global_shape), "dims"
        yield bounds.MAX_PARAMETERS, parameter.group, "as the index of a group"
        yield bounds.MAX_TIMES_LISTED, parameter.num_listed, "times in a group"
        for size in parameter.global_shape:
            yield bounds.MAX_ELEMENTS, size, "elements"
        # A dim of size 0 counts as 1: torch computes strides from the other dims.
        numel += math.prod(max(1, size) for size in parameter.global_shape)
    yield bounds.MAX_ELEMENTS, numel, "elements"
    # Of a larger world, a few ranks play for all.
    num_seen = min(mesh.num_ranks, bounds.MAX_RANKS["sim"]) * num_micro_batches
    num_gradients = num_seen * len(parameters)
    yield bounds.MAX_OBSERVED_GRADIENTS, num_gradients, "observed gradients"
    yield (
        bounds.MAX_OBSERVED_ELEMENTS,
        num_seen * numel,
        "elements of observed gradients",
    )


def check_mesh(mesh: MeshSpec) -> None:
    """Refuse a mesh without axes, an empty axis, equal or missing names, an unknown order."""
    require(len(mesh.shape) >= 1, "a mesh has at least one axis")
    require(
        len(set(mesh.axis_names)) == len(mesh.axis_names)
        and len(mesh.axis_names) in {0, len(mesh.shape)},
        "each mesh axis has a name of its own, or none has a name",
    )
    require(all(size >= 1 for size in mesh.shape), "mesh axes have sizes >= 1")
    require(mesh.order in ORDERS, f"order is one of {ORDERS}, not {mesh.order!r}")


def check_parameters(parameters: tuple[ParameterSpec, ...], mesh: MeshSpec) -> None:
    """Refuse equal names, fields out of range, and placements that do not fit on the mesh."""
    names = [parameter.name for parameter in parameters]
    require(len(set(names)) == len(names), "parameter names are unique")
    for parameter in parameters:
        _check_fields(parameter)
        _check_own_mesh(parameter, mesh)
        if parameter.placements is not None:
            _check_placements(parameter, parameter.placements, mesh_of(mesh, parameter))


def check_step_events(events: tuple[str, ...], num_steps: int) -> None:
    """Refuse step events that are not one per step, and a list of plain ones."""
    require(
        not events or len(events) == num_steps, "events are as many as steps, or none"
    )
    # A scenario of plain steps has one spelling only, so that equal scenarios are equal.
    require(set(events) != {PLAIN}, "events are left out where all are plain")


def check_words(scenario: object, parameters: tuple[ParameterSpec, ...]) -> None:
    """Refuse a word that its topic does not have; an unknown module is an `UnknownLayerError`."""
    for topic in WORDS:
        known = (*WORDS[topic], *(OWN_LAYERS if topic == "module" else ()))
        is_of_scenario = TABLE[topic].part == "scenario"
        parts: tuple[Any, ...] = (scenario,) if is_of_scenario else parameters
        for part in parts:
            for word in TABLE[topic].words_in(part):
                if word in known:
                    continue
                owner = "" if is_of_scenario else f" of {part.name!r}"
                fact = f"{topic}{owner} is one of {known}, not {word!r}"
                if topic == "module":
                    raise UnknownLayerError(
                        f"malformed scenario: {fact}; a layer of your own needs the contract "
                        "whose `layers` has it"
                    )
                require(False, fact)


def _check_fields(parameter: ParameterSpec) -> None:
    name, dims = parameter.name, parameter.global_shape
    for field in ("dtype", "effective_grad_dtype"):
        named = f"{field.removeprefix('effective_')} of {name!r}"
        require(getattr(parameter, field) in DTYPES, f"{named} is one of {DTYPES}")
    require(min(dims, default=0) >= 0, "sizes are >= 0")
    require(parameter.group >= 0, "group indices are >= 0")
    require(parameter.num_listed >= 1, "parameters are listed at least once")
    fewest = WORDS["memory_format"][parameter.memory_format].fewest_dims
    require(
        len(dims) >= fewest,
        f"{name!r} has {fewest} dims or more, to be {parameter.memory_format}",
    )


def _check_own_mesh(parameter: ParameterSpec, mesh: MeshSpec) -> None:
    """Refuse a mesh that a parameter does not need, or that the scenario's mesh does not make."""
    name, word = parameter.name, parameter.on_mesh
    require(
        word == OWN_MESH or parameter.placements is not None,
        f"{name!r} has placements, to lie on a mesh that is {word}",
    )
    require(
        word != TRANSPOSED or len(mesh.shape) > 1,
        f"a mesh of two axes or more, to be transposed for {name!r}",
    )


def _check_placements(
    parameter: ParameterSpec, placements: Placements, mesh: MeshSpec
) -> None:
    dims = range(len(parameter.global_shape))
    legal = {REPLICATE, PARTIAL, ABSENT, *map(shard, dims), *map(strided_shard, dims)}
    require(
        len(placements) == len(mesh.shape) and set(placements) <= legal,
        f"{parameter.name!r} has one placement of {sorted(legal)} per mesh axis, "
        f"not {placements}",
    )
    require(
        ABSENT not in placements or (mesh.axis_names and set(placements) != {ABSENT}),
        f"{parameter.name!r} lives on some axis of a mesh with names: others have no "
        "sub-meshes",
    )
    for axis in range(len(mesh.shape)):
        _check_strided(parameter, placements, axis, mesh)


def _check_strided(
    parameter: ParameterSpec, placements: Placements, axis: int, mesh: MeshSpec
) -> None:
    """Refuse a strided shard that no later axis cuts first, or that is uneven."""
    dim = sharded_dim(placements[axis])
    if dim is None or placements[axis] != strided_shard(dim):
        return
    require(
        shard(dim) in placements[axis + 1 :],
        f"an axis after axis {axis} cuts dim {dim} of {parameter.name!r} first",
    )
    # Uneven strided shards are left out: `layout.local_shape` then needs no order of cuts.
    pieces = num_pieces(mesh, placements, dim)
    require(
        parameter.global_shape[dim] % pieces == 0,
        f"dim {dim} of {parameter.name!r} is strided and divides by {pieces}",
    )
