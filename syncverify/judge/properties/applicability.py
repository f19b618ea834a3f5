"""Conditions: whether a property has something to judge in a run.

A property with nothing to judge holds trivially. These functions tell that case apart; a
report counts the scenarios in which they are true.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.streams import overlap
from syncverify.judge.reference import trainable
from syncverify.judge.traced import launches_of, shared_launches
from syncverify.scenario.feature_table import MANY, PLAIN
from syncverify.scenario.layout import reduce_axes
from syncverify.trace.records import (
    Access,
    StorageFreed,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.run import Observation


def to_every_run(judgement: Judgement) -> bool:
    """Every run."""
    return bool(judgement.run.ranks)


def ranks_meet(judgement: Judgement) -> bool:
    """A rank issues a collective over two ranks or more."""
    return any(shared_launches(_records(judgement)))


def ranks_meet_twice(judgement: Judgement) -> bool:
    """Some rank issues two collectives over two ranks or more."""
    shared = (islice(shared_launches(trace), 2) for trace in _traces(judgement))
    return any(len(list(first_two)) == 2 for first_two in shared)


def reduced_gradient_seen(judgement: Judgement) -> bool:
    """A trainable parameter is replicated over two ranks, and a `wait()` returned."""
    return owes_reduction(judgement) and _observed(judgement, "reduced")


def trainable_gradient_seen(judgement: Judgement) -> bool:
    """A `wait()` returned."""
    return _observed(judgement, "reduced")


def replicas_compared(judgement: Judgement) -> bool:
    """All ranks hold right gradients, one is replicated, and a `wait()` returned."""
    is_on_all = judgement.reference.capabilities.gradients == "all ranks"
    return is_on_all and reduced_gradient_seen(judgement)


def exact_gradient_seen(judgement: Judgement) -> bool:
    """A parameter is replicated, a `wait()` returned, and gradients are whole numbers."""
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
    return any(seen.micro_batch is not None for seen in _observations(judgement))


def zeroed(judgement: Judgement) -> bool:
    """A `zero_grad()` returned."""
    return _observed(judgement, "zeroed")


def unbound(judgement: Judgement) -> bool:
    """An `unbind()` returned."""
    return any(rank_run.leftovers is not None for rank_run in judgement.run.ranks)


def keeps_a_cap(judgement: Judgement) -> bool:
    """The subject promises to keep the bucket cap, and two gradients or more are reduced."""
    scenario, promises = judgement.scenario, judgement.reference.capabilities
    reduced = [s for s in trainable(scenario) if reduce_axes(scenario.mesh, s)]
    return promises.keeps_bucket_cap and len(reduced) > 1


def many_steps(judgement: Judgement) -> bool:
    """A program has many steps, and a subject came to the end of them."""
    most = max((len(rank_run.held) for rank_run in judgement.run.ranks), default=0)
    return most >= MANY["steps"]


def reduces_recorded_memory(judgement: Judgement) -> bool:
    """A rank reduces, and some memory is used on several streams (recorded on `sim`)."""
    return any(
        any(launch.reduces for launch in launches_of(trace))
        and any(isinstance(record, Access) for record in trace)
        for trace in _traces(judgement)
    )


def zeroes_recorded_memory(judgement: Judgement) -> bool:
    """`zero_grad()` touches memory that several streams use (recorded on `sim`)."""
    return any(
        isinstance(record, Access) and record.moment.phase == "zero_grad"
        for record in _records(judgement)
    )


def frees_memory(judgement: Judgement) -> bool:
    """Memory that several streams used is given back (recorded on `sim`)."""
    return any(isinstance(record, StorageFreed) for record in _records(judgement))


def calls_return(judgement: Judgement) -> bool:
    """A call of the subject returns."""
    return any(isinstance(record, SubjectReturn) for record in _records(judgement))


def could_overlap(judgement: Judgement) -> bool:
    """The subject promises to overlap, and in some step a reduction could (on `sim`)."""
    return judgement.reference.capabilities.overlaps_backward and bool(
        overlap(judgement.scenario, judgement.run).num_possible
    )


def played_twice(judgement: Judgement) -> bool:
    """The scenario was played twice (on `sim`: some of each search)."""
    return judgement.again is not None


def _traces(judgement: Judgement) -> Iterator[list[TraceRecord]]:
    return (rank_run.trace for rank_run in judgement.run.ranks)


def _records(judgement: Judgement) -> Iterator[TraceRecord]:
    return chain.from_iterable(_traces(judgement))


def _observations(judgement: Judgement) -> Iterator[Observation]:
    for rank_run in judgement.run.ranks:
        yield from rank_run.observations


def _observed(judgement: Judgement, point: str) -> bool:
    return any(seen.point == point for seen in _observations(judgement))
