"""For what is not ordered, the smallest edge that orders it, tried out.

A trace does not depend on when queued work runs, so a missing wait can be put into a
trace that lacks it, and the trace judged again: if nothing is found any more, the wait
is what was missing. What one remedy removes is one disorder, told once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from syncverify.ordering.edges import (
    NO_LINES,
    BeforeFree,
    BeforeReturn,
    BeforeUse,
    Edge,
    Place,
    RecordStream,
    WaitForStream,
    WaitForWork,
)
from syncverify.ordering.happens_before import Semantics, Traces
from syncverify.ordering.races import (
    EarlyFree,
    MemoryUse,
    Orderings,
    Race,
    judge_orderings,
)
from syncverify.trace import (
    CollectiveLaunch,
    CollectiveWait,
    Event,
    LifecycleCall,
    LifecycleReturn,
)

Found = Race | EarlyFree
# Of one remedy; more waits than that are no remedy but another design.
_MAX_EDGES = 4


@dataclass(frozen=True, slots=True)
class Remedy:
    """Edges that order what was not ordered, as judging the trace again has shown.

    Attributes:
        edges: What to insert.
        num_removed: Races and early frees that are gone with them.
        num_left: Those that are not.
    """

    edges: tuple[Edge, ...]
    num_removed: int
    num_left: int

    @override
    def __str__(self) -> str:
        """Say what to insert, and what comes of it."""
        edges = " and ".join(map(str, self.edges))
        if not self.num_left:
            return f"{edges}: holds"
        everything = self.num_removed + self.num_left
        return f"{edges}: orders {self.num_removed} of {everything} such pairs"


@dataclass(frozen=True, slots=True)
class Disorder:
    """One thing that is wrong, with all that follows from it.

    Attributes:
        found: The race or early free that shows it, and others that the same remedy
            removes.
        remedy: What removes them; None if nothing simple does.
        semantics: By which rules it is wrong.
    """

    found: tuple[Found, ...]
    remedy: Remedy | None
    semantics: Semantics


def disorders(traces: Traces, semantics: Semantics = "stream") -> list[Disorder]:
    """Find what is not ordered, and what would order it.

    Args:
        traces: Events of each rank, in host order.
        semantics: What orders queued work.

    Returns:
        What is wrong, each with a remedy that leaves less of it.
    """
    result: list[Disorder] = []
    left = _all(judge_orderings(traces, semantics))
    while left:
        before = left
        edges, traces = _edges_for(before[0], traces, semantics)
        left = _all(judge_orderings(traces, semantics))
        keys = {_key(found) for found in left}
        removed = tuple(found for found in before if _key(found) not in keys)
        if not removed:
            result.append(Disorder(tuple(before), None, semantics))
            break
        remedy = Remedy(edges, len(removed), len(left))
        result.append(Disorder(removed, remedy, semantics))
    return result


def last_turn(
    events: Sequence[Event], index: int
) -> LifecycleCall | LifecycleReturn | None:
    """Return the last call or return before an event.

    Args:
        events: Of a rank.
        index: Which of them.
    """
    for event in reversed(events[:index]):
        if isinstance(event, LifecycleCall | LifecycleReturn):
            return event
    return None


def _all(orderings: Orderings) -> list[Found]:
    """List everything; of several that a use races with, the latest one comes first."""
    races = sorted(
        orderings.races, key=lambda r: (r.rank, r.second_index, -r.first_index)
    )
    return [*races, *orderings.early_frees]


def _key(found: Found) -> tuple[int, int, int]:
    """Identify it by events, whose positions change when edges are inserted."""
    if isinstance(found, Race):
        return (found.rank, id(found.first), id(found.second))
    return (found.rank, id(found.use), found.freed.storage)


def _edges_for(
    target: Found, traces: Traces, semantics: Semantics
) -> tuple[tuple[Edge, ...], Traces]:
    """Add edges until the event that comes too early comes after all that it must."""
    edges: list[Edge] = []
    remaining: Found | None = target
    while remaining is not None and len(edges) < _MAX_EDGES:
        best = _best_edge(remaining, traces, semantics)
        if best is None:
            break
        edges.append(best)
        traces = best.applied(traces)
        left = _all(judge_orderings(traces, semantics))
        remaining = next((found for found in left if _alike(found, target)), None)
    return tuple(edges), traces


def _alike(found: Found, target: Found) -> bool:
    """Tell whether it is another pair of the same event; a free has one use a pair."""
    if isinstance(found, Race) and isinstance(target, Race):
        return found.second is target.second
    return False


def _best_edge(target: Found, traces: Traces, semantics: Semantics) -> Edge | None:
    """Return the edge that orders a pair and leaves the least; the first of equals."""
    best: Edge | None = None
    fewest_left = math.inf
    for edge in _candidates(target, traces[target.rank]):
        left = _all(judge_orderings(edge.applied(traces), semantics))
        if _key(target) in {_key(found) for found in left}:
            continue
        if len(left) < fewest_left:
            best, fewest_left = edge, len(left)
        if not left:
            break
    return best


def _candidates(target: Found, events: Sequence[Event]) -> Iterator[Edge]:
    if isinstance(target, Race):
        for place in _places(target, events):
            yield from _waits(target.first, events, target.second.stream, place)
    elif _runs_aside(target.use):
        waiting = target.freed.stream
        yield from _waits(target.use, events, waiting, BeforeFree(waiting))
    else:
        yield RecordStream(target.use.stream, target.use.source)


def _places(race: Race, events: Sequence[Event]) -> Iterator[Place]:
    """Where a wait may be: in the subject, rather than in whoever uses it."""
    turn = last_turn(events, race.second_index)
    use = BeforeUse(race.second.source, race.second.stream)
    if isinstance(turn, LifecycleReturn):
        yield BeforeReturn(turn.moment.phase)
    elif use.source in NO_LINES:
        between = events[race.first_index : race.second_index]
        for event in reversed(between):
            if isinstance(event, LifecycleReturn):
                yield BeforeReturn(event.moment.phase)
                break
    yield use


def _waits(
    awaited: MemoryUse, events: Sequence[Event], waiting: str, place: Place
) -> Iterator[Edge]:
    if not _runs_aside(awaited):
        yield WaitForStream(waiting, awaited.stream, place)
        return
    assert isinstance(awaited, CollectiveLaunch)
    # A stream that has the result by then is easier to wait for than the work.
    for stream in _streams_that_get(awaited, events):
        if stream != waiting:
            yield WaitForStream(waiting, stream, place)
    yield WaitForWork(waiting, awaited.operation, awaited.source, place)


def _runs_aside(use: MemoryUse) -> bool:
    """Tell whether it runs on a stream that the subject cannot name."""
    return isinstance(use, CollectiveLaunch) and use.communication_stream != use.stream


def _streams_that_get(launch: CollectiveLaunch, events: Sequence[Event]) -> list[str]:
    waits = (
        event
        for event in events
        if isinstance(event, CollectiveWait) and event.place == launch.place
    )
    return list(dict.fromkeys(wait.stream for wait in waits))
