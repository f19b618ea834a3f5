"""Properties of what streams may run in the wrong order.

Note [One disorder, one property]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A missing wait shows in many pairs of accesses. All pairs that one remedy removes are one
disorder, and its first pair says which property it violates:

    memory that is given back early                     memory_outlives_its_streams
    one of the two is of zero_grad()                    zero_grad_waits_for_reduce
    the second is no call of the subject                wait_orders_reads_after_reduce
    the second is a collective, the first is not        reduce_reads_after_accumulation
    the first is a collective, or uses what one has     bucket_is_exclusive_while_reducing
      touched in this step
    otherwise                                           reduce_reads_after_accumulation
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncverify.memory import MemoryRegion
from syncverify.ordering.races import EarlyFree, MemoryUse, Race
from syncverify.ordering.remedies import Disorder, last_turn
from syncverify.properties.judgement import Finding, Judgement
from syncverify.trace import (
    AUTOGRAD,
    Access,
    CollectiveLaunch,
    Event,
    LifecycleReturn,
    StreamCreated,
)

_ON_GLOO = ", on gloo, which runs collectives side by side (NCCL does not)"


def reduce_reads_after_accumulation(judgement: Judgement) -> Iterator[Finding]:
    """A reduction reads gradients only after all that was queued before to make them.

    For all ranks: whatever the reduction reads or writes, be it the collective or what
    the subject queues to prepare it, is ordered after each accumulation that its host
    queued before and that touches the same bytes.

    Catches: a communication stream that does not wait for the stream that filled the
    bucket, or for only one of several. Does not judge what the host queues later, which
    `bucket_is_exclusive_while_reducing` does.
    """
    yield from _of_family(
        judgement, {"reduced_before_accumulated", "accumulated_unordered"}
    )


def bucket_is_exclusive_while_reducing(judgement: Judgement) -> Iterator[Finding]:
    """While a reduction is in flight, nothing else touches what it reads or writes.

    For all ranks: what the subject, or a backward under its care, queues after a
    collective was launched is ordered after it wherever they share a byte, unless both
    only read.

    Catches: buckets launched before their last gradient, buffers refilled early, results
    copied out without waiting, two communicators on one bucket. Does not promise that what
    was launched was complete: values tell.
    """
    yield from _of_family(judgement, {"touched_in_flight", "collectives_overlap"})


def wait_orders_reads_after_reduce(judgement: Judgement) -> Iterator[Finding]:
    """What uses gradients after the subject's calls runs after what those calls queued.

    For all ranks: each use of a gradient by the training program itself, on the stream
    that is current, is ordered after every write of the subject to the same bytes.

    Catches: a `wait()` that waits for nothing, or on the wrong stream, or for the wrong
    work. Does not promise anything to streams other than the current one.
    """
    yield from _of_family(judgement, {"read_before_reduced"})


def zero_grad_waits_for_reduce(judgement: Judgement) -> Iterator[Finding]:
    """`zero_grad()` clears after all that still uses a gradient, and before all that will.

    For all ranks: what it queues is ordered after everything queued earlier that touches
    the same bytes, and before everything queued later that does.

    Catches: buffers cleared in flight, or cleared on a stream that the next backward
    does not wait for. Does not promise that they are cleared: `zero_grad_clears` does.
    """
    yield from _of_family(judgement, {"zeroed_in_flight", "used_before_zeroed"})


def memory_outlives_its_streams(judgement: Judgement) -> Iterator[Finding]:
    """Memory goes back to its pool only when no other stream may still use it.

    For all ranks: each use of a storage that is freed is ordered before what the stream
    of its pool is given next, or on a stream that `record_stream` named.

    Catches: temporaries of a side stream that are dropped while it still uses them,
    buffers allocated on one stream and replaced on another. Does not promise that memory
    is given back at all.
    """
    yield from _of_family(judgement, {"freed_in_use"})


def unordered(judgement: Judgement, cause: str) -> Iterator[Race | EarlyFree]:
    """Yield what shows a cause, first what a violation tells of it.

    Args:
        judgement: Of a run.
        cause: Of a property of this module; of others there is nothing.
    """
    for disorder in judgement.disorders:
        if _cause(judgement, disorder.found[0]) == cause:
            yield from disorder.found


def in_words(found: Race | EarlyFree) -> tuple[str, str]:
    """Say what should come first, and what comes without waiting for it."""
    if isinstance(found, Race):
        return _use(found.first), _use(found.second)
    pool = found.freed.stream
    return _use(
        found.use
    ), f"whoever gets the memory next from the pool of stream {pool!r}"


def _of_family(judgement: Judgement, causes: set[str]) -> Iterator[Finding]:
    for disorder in judgement.disorders:
        cause = _cause(judgement, disorder.found[0])
        if cause in causes:
            yield from _findings(judgement, disorder, cause)


def _cause(judgement: Judgement, found: Race | EarlyFree) -> str:
    if isinstance(found, EarlyFree):
        return "freed_in_use"
    if found.second.moment.phase == "zero_grad":
        return "zeroed_in_flight"
    if found.first.moment.phase == "zero_grad":
        return "used_before_zeroed"
    events = judgement.run.ranks[found.rank].events
    if _is_outside(events, found.second_index):
        return "read_before_reduced"
    first_reduces = isinstance(found.first, CollectiveLaunch)
    if isinstance(found.second, CollectiveLaunch):
        return "collectives_overlap" if first_reduces else "reduced_before_accumulated"
    if first_reduces or _follows_a_collective(events, found):
        return "touched_in_flight"
    return "accumulated_unordered"


def _is_outside(events: list[Event], index: int) -> bool:
    """Tell whether the training program did it, not a call of the subject."""
    turn = last_turn(events, index)
    return isinstance(turn, LifecycleReturn) or (
        turn is not None and turn.moment.phase == "after_unbind"
    )


def _follows_a_collective(events: list[Event], race: Race) -> bool:
    """Tell whether the first use is part of a reduction: a copy of its result, say."""
    return any(
        isinstance(event, CollectiveLaunch)
        and event.moment.step == race.first.moment.step
        and any(race.region.overlaps(region) for region in _regions(event))
        for event in events[: race.first_index]
    )


def _findings(
    judgement: Judgement, disorder: Disorder, cause: str
) -> Iterator[Finding]:
    told: set[tuple[int, str | None]] = set()
    for found in disorder.found:
        parameters = ", ".join(_parameters(judgement, found)) or None
        if (found.rank, parameters) not in told:
            told.add((found.rank, parameters))
            created = _created(judgement.run.ranks[found.rank].events)
            yield _finding(found, disorder, cause, parameters, created)


def _created(events: list[Event]) -> dict[str, str]:
    """Return the lines that made streams, by name."""
    return {e.stream: e.source for e in events if isinstance(e, StreamCreated)}


def _finding(
    found: Race | EarlyFree,
    disorder: Disorder,
    cause: str,
    parameters: str | None,
    created: dict[str, str],
) -> Finding:
    first, second = in_words(found)
    remedy = str(disorder.remedy or "no single wait orders them")
    named = re.findall(r"\bstream \d+\b", f"{first} {second} {remedy}")
    gradients = f" (gradients of {parameters})" if parameters else ""
    if isinstance(found, Race):
        region = found.region
        memory = f"bytes {region.start_byte} to {region.end_byte} of storage {region.storage}"
        summary = f"{_in_short(found.first)} before {_in_short(found.second)}"
    else:
        memory = f"storage {found.freed.storage}, freed in {found.freed.moment}"
        summary = f"{_in_short(found.use)} before its memory goes to somebody else"
    on_gloo = _ON_GLOO * (disorder.semantics == "host")
    return Finding(
        cause,
        f"rank {found.rank}: nothing orders {summary}{gradients}{on_gloo}",
        found.rank,
        parameters,
        {
            "rank": found.rank,
            "first": first,
            "second": second,
            "memory": f"{memory}{gradients}",
            "remedy": remedy,
            "streams": [
                f"{stream} is made at {created[stream]}"
                for stream in dict.fromkeys(named)
            ],
        },
    )


def _use(use: MemoryUse) -> str:
    if isinstance(use, CollectiveLaunch):
        on = use.communication_stream
        return f"{use} ({use.moment}), running on stream {on!r}"
    return f"{_in_short(use)} ({use.moment}), on stream {use.stream!r}"


def _in_short(use: MemoryUse) -> str:
    if isinstance(use, CollectiveLaunch):
        return f"{use.operation} at {use.source}"
    by = "by autograd" if use.source == AUTOGRAD else f"at {use.source}"
    return f"{use.operator} {by}"


def _parameters(judgement: Judgement, found: Race | EarlyFree) -> tuple[str, ...]:
    """Name the parameters whose gradients are concerned, by the collectives' lists."""
    uses = (found.first, found.second) if isinstance(found, Race) else (found.use,)
    for use in uses:
        if isinstance(use, CollectiveLaunch) and use.parameters:
            return use.parameters
    regions = [region for use in uses for region in _regions(use)]
    names = (
        event.parameters
        for event in judgement.run.ranks[found.rank].events
        if isinstance(event, CollectiveLaunch)
        and any(one.overlaps(other) for one in regions for other in _regions(event))
    )
    return next(names, ())


def _regions(use: Access | CollectiveLaunch) -> tuple[MemoryRegion, ...]:
    if isinstance(use, Access):
        return (*use.reads, *use.writes)
    return (*use.regions, *use.written)
