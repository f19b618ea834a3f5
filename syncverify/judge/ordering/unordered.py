"""The two records of a violation that nothing orders, as places in a timeline."""

from __future__ import annotations

from syncverify.judge.ordering.races import EarlyFree, Race, Unordered
from syncverify.trace.run import Run
from syncverify.trace.timeline.timeline import RecordKey


def places_of(
    unordered: Unordered | None, run: Run
) -> tuple[RecordKey, RecordKey] | None:
    """Return the places of two records that nothing orders; None if the run lacks one."""
    match unordered:
        case Race():
            pair: tuple[object, object] = (unordered.first, unordered.second)
        case EarlyFree():
            pair = (unordered.use, unordered.freed)
        case None:
            return None
    # By identity: the judge may have left records out, which moves the others.
    trace = run.ranks[unordered.rank].trace
    places = {id(record): index for index, record in enumerate(trace)}
    first, second = (places.get(id(record)) for record in pair)
    if first is None or second is None:  # the run does not show the violation any more
        return None
    return (unordered.rank, first), (unordered.rank, second)
