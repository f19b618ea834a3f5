"""When each property has something to judge in a run.

A property that holds because there was nothing to judge says nothing. These functions tell
the two apart; a report counts the scenarios in which they are true.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from syncverify.layout import reduce_axes
from syncverify.oracle import trainable
from syncverify.properties.judgement import Judgement
from syncverify.properties.streams import overlap
from syncverify.run import Observation
from syncverify.trace import (
    POINT_TO_POINT,
    Access,
    CollectiveLaunch,
    Event,
    LifecycleReturn,
    StorageFreed,
)
from syncverify.vocabulary import PLAIN


def to_every_run(judgement: Judgement) -> bool:
    """Every run."""
    return bool(judgement.run.ranks)


def ranks_meet(judgement: Judgement) -> bool:
    """A rank issues a collective over two ranks or more."""
    return any(_shared_launches(judgement))


def ranks_meet_twice(judgement: Judgement) -> bool:
    """Some rank issues two collectives over two ranks or more."""
    return any(
        len(list(islice(_shared(events), 2))) == 2 for events in _traces(judgement)
    )


def reduced_gradient_seen(judgement: Judgement) -> bool:
    """A trainable parameter is replicated over two ranks, and a `wait()` returned."""
    return owes_reduction(judgement) and _observed(judgement, "reduced")


def exact_gradient_seen(judgement: Judgement) -> bool:
    """The same, where gradients are whole numbers: of sums of products."""
    return judgement.scenario.module == PLAIN and reduced_gradient_seen(judgement)


def module_gradient_seen(judgement: Judgement) -> bool:
    """A real module is trained, and a `wait()` returned."""
    is_module = judgement.scenario.module != PLAIN
    return is_module and _observed(judgement, "reduced")


def owes_reduction(judgement: Judgement) -> bool:
    """A trainable parameter is replicated over two ranks or more."""
    scenario = judgement.scenario
    return any(reduce_axes(scenario.mesh, spec) for spec in trainable(scenario))


def unreduced_gradient_seen(judgement: Judgement) -> bool:
    """A parameter is frozen or no axis reduces it, and a `wait()` returned."""
    mesh = judgement.scenario.mesh
    return _observed(judgement, "reduced") and any(
        not spec.requires_grad or not reduce_axes(mesh, spec)
        for spec in judgement.scenario.parameters
    )


def accumulates(judgement: Judgement) -> bool:
    """A step has two micro-batches or more, and gradients were read between them."""
    return any(
        observation.micro_batch is not None for observation in _observations(judgement)
    )


def zeroed(judgement: Judgement) -> bool:
    """A `zero_grad()` returned."""
    return _observed(judgement, "zeroed")


def unbound(judgement: Judgement) -> bool:
    """An `unbind()` returned."""
    return any(rank_run.leftovers is not None for rank_run in judgement.run.ranks)


def reduces_recorded_memory(judgement: Judgement) -> bool:
    """A rank reduces, and some memory is used on several streams (recorded on `sim`)."""
    return any(
        any(isinstance(event, CollectiveLaunch) and event.reduces for event in events)
        and any(isinstance(event, Access) for event in events)
        for events in _traces(judgement)
    )


def zeroes_recorded_memory(judgement: Judgement) -> bool:
    """`zero_grad()` touches memory that several streams use (recorded on `sim`)."""
    return any(
        isinstance(event, Access) and event.moment.phase == "zero_grad"
        for events in _traces(judgement)
        for event in events
    )


def frees_memory(judgement: Judgement) -> bool:
    """Memory that several streams used is given back (recorded on `sim`)."""
    return any(
        isinstance(event, StorageFreed)
        for events in _traces(judgement)
        for event in events
    )


def calls_return(judgement: Judgement) -> bool:
    """A call of the subject returns."""
    return any(
        isinstance(event, LifecycleReturn)
        for events in _traces(judgement)
        for event in events
    )


def could_overlap(judgement: Judgement) -> bool:
    """The subject promises to overlap, and in some step a reduction could (on `sim`)."""
    return judgement.reference.capabilities.overlaps_backward and bool(
        overlap(judgement.scenario, judgement.run).num_possible
    )


def played_twice(judgement: Judgement) -> bool:
    """The scenario was played twice (on `sim`: those larger than all before)."""
    return judgement.again is not None


def _traces(judgement: Judgement) -> Iterator[list[Event]]:
    return (rank_run.events for rank_run in judgement.run.ranks)


def _shared_launches(judgement: Judgement) -> Iterator[CollectiveLaunch]:
    for events in _traces(judgement):
        yield from _shared(events)


def _shared(events: list[Event]) -> Iterator[CollectiveLaunch]:
    for event in events:
        if (
            isinstance(event, CollectiveLaunch)
            and len(event.ranks) > 1
            and event.operation not in POINT_TO_POINT
        ):
            yield event


def _observations(judgement: Judgement) -> Iterator[Observation]:
    for rank_run in judgement.run.ranks:
        yield from rank_run.observations


def _observed(judgement: Judgement, point: str) -> bool:
    return any(seen.point == point for seen in _observations(judgement))
