"""Remedies: the few edges that order a race or early free, each tried out.

A trace does not depend on the time at which queued work runs. So a wait can be inserted into
a trace that lacks it, and the trace judged again. If the race is gone, that wait was
missing. All races and early frees that one remedy removes are one disorder.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from typing_extensions import override

from syncverify.judge.ordering import missing_waits
from syncverify.judge.ordering.happens_before import Semantics
from syncverify.judge.ordering.races import Orderings, Race, Unordered, judge_orderings
from syncverify.trace.operations import LENDING
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    MemoryUse,
    StorageFreed,
    SubjectCall,
    SubjectReturn,
)
from syncverify.trace.run import Trace, Traces
from syncverify.trace.source_lines import NoLine

_TURNS = (SubjectCall, SubjectReturn)
# Edges of one remedy, at most; a subject that lacks more waits needs another design.
_MAX_EDGES = 4


@dataclass(frozen=True, slots=True)
class Remedy:
    """Edges that remove races and early frees, as judging the trace again has shown."""

    edges: tuple[missing_waits.Edge, ...]
    num_removed: int  # races and early frees that the edges remove
    left: tuple[Unordered, ...]  # those that remain

    @override
    def __str__(self) -> str:
        edges = " and ".join(map(str, self.edges))
        if not self.left:
            return f"{edges}: holds"
        everything = self.num_removed + len(self.left)
        calls = " or ".join(dict.fromkeys(map(_call_for, self.left)))
        others = "the other needs" if len(self.left) == 1 else "the others need"
        ordered = f"orders {self.num_removed} of {everything} such pairs"
        return f"{edges}: {ordered}; {others} another {calls}"


@dataclass(frozen=True, slots=True)
class Disorder:
    """One missing order, with all races and early frees that it causes."""

    # The race or early free that shows the disorder, then all others that the same remedy removes;
    # without a remedy, all that are left.
    found: tuple[Unordered, ...]
    remedy: Remedy | None  # None where no few edges order the work
    semantics: Semantics  # under which the order is missing


def disorders(traces: Traces, semantics: Semantics = "stream") -> list[Disorder]:
    """List the disorders of a run in the order in which they show, each with its remedy."""
    result: list[Disorder] = []
    left = _all(judge_orderings(traces, semantics))
    places = [_places(trace) for trace in traces] if left else []
    while left:
        before = left
        edges, traces = _edges_for(before[0], traces, semantics)
        left = _all(judge_orderings(traces, semantics))
        keys = {_key(found) for found in left}
        # Edges of the disorders before have moved records, so places are looked up.
        before = [_placed(found, places[found.rank]) for found in before]
        removed = tuple(found for found in before if _key(found) not in keys)
        if not removed:
            result.append(Disorder(tuple(before), None, semantics))
            break
        remedy = Remedy(edges, len(removed), tuple(left))
        result.append(Disorder(removed, remedy, semantics))
    return result


def _places(trace: Trace) -> dict[int, int]:
    """Return the positions of records by identity, and of frees by the storage's number.

    A remedy may replace the record of a free. Numbers of storages are made negative, so
    that none is taken for the identity of a record.
    """
    return {
        ~each.storage if isinstance(each, StorageFreed) else id(each): index
        for index, each in enumerate(trace)
    }


def _placed(found: Unordered, places: Mapping[int, int]) -> Unordered:
    if isinstance(found, Race):
        first, second = places[id(found.first)], places[id(found.second)]
        return replace(found, first_index=first, second_index=second)
    use, free = places[id(found.use)], places[~found.freed.storage]
    return replace(found, use_index=use, free_index=free)


def last_turn(trace: Trace, index: int) -> SubjectCall | SubjectReturn | None:
    """Return the last call or return of the subject before the record at `index`."""
    turns = (e for e in reversed(trace[:index]) if isinstance(e, _TURNS))
    return next(turns, None)


def _all(orderings: Orderings) -> list[Unordered]:
    """List races, then early frees; a use that races with several: the latest first."""
    races = sorted(
        orderings.races, key=lambda r: (r.rank, r.second_index, -r.first_index)
    )
    return [*races, *orderings.early_frees]


def _key(found: Unordered) -> tuple[int, int, int]:
    """Identify a pair by its records: inserted edges change positions, not records."""
    if isinstance(found, Race):
        return (found.rank, id(found.first), id(found.second))
    return (found.rank, id(found.use), found.freed.storage)


def _edges_for(
    target: Unordered, traces: Traces, semantics: Semantics
) -> tuple[tuple[missing_waits.Edge, ...], Traces]:
    """Add edges until the second use of a pair races with nothing any more."""
    edges: list[missing_waits.Edge] = []
    second = target.second if isinstance(target, Race) else None
    remaining: Unordered | None = target
    while remaining is not None and len(edges) < _MAX_EDGES:
        best = _best_edge(remaining, traces, semantics)
        if best is None:
            break
        edges.append(best)
        traces = missing_waits.with_edge(traces, best)
        # Races with one second use are alike. Of frees each pair is apart.
        left = judge_orderings(traces, semantics)
        alike = (e for e in _all(left) if isinstance(e, Race) and e.second is second)
        remaining = next(alike, None)
    return tuple(edges), traces


def _best_edge(
    target: Unordered, traces: Traces, semantics: Semantics
) -> missing_waits.Edge | None:
    """Return the edge that orders a pair and leaves the fewest; the first of equals."""
    best: missing_waits.Edge | None = None
    fewest_left = math.inf
    for edge in _candidates(target, traces[target.rank]):
        left = _all(judge_orderings(missing_waits.with_edge(traces, edge), semantics))
        if _key(target) in {_key(found) for found in left}:
            continue
        if len(left) < fewest_left:
            best, fewest_left = edge, len(left)
        if not left:
            break
    return best


def _candidates(target: Unordered, trace: Trace) -> Iterator[missing_waits.Edge]:
    if isinstance(target, Race):
        for point in _insertion_points(target, trace):
            yield from _waits(target.first, trace, target.second.stream, point)
    elif _runs_aside(target.use):
        waiting = target.freed.stream
        yield from _waits(target.use, trace, waiting, missing_waits.BeforeFree(waiting))
    else:
        yield missing_waits.RecordStream(target.use.stream, target.use.source)


def _call_for(found: Unordered) -> str:
    """Name the call of the remedies that `_candidates` has for a pair."""
    is_free = not isinstance(found, Race) and not _runs_aside(found.use)
    return "`record_stream()`" if is_free else "wait"


def _insertion_points(
    race: Race, trace: Trace
) -> Iterator[missing_waits.InsertionPoint]:
    """Yield points for a wait: in the subject's code before the training program's."""
    turn = last_turn(trace, race.second_index)
    second = race.second
    is_of_view = isinstance(second, Access) and second.operator in LENDING
    use = missing_waits.BeforeUse(second.source, second.stream, is_of_view)
    if isinstance(turn, SubjectReturn):
        yield missing_waits.BeforeReturn(turn.moment.phase)
    elif isinstance(use.source, NoLine):
        between = trace[race.first_index : race.second_index]
        for record in reversed(between):
            if isinstance(record, SubjectReturn):
                yield missing_waits.BeforeReturn(record.moment.phase)
                break
    yield use


def _waits(
    awaited: MemoryUse, trace: Trace, waiting: str, point: missing_waits.InsertionPoint
) -> Iterator[missing_waits.Edge]:
    if not _runs_aside(awaited):
        yield missing_waits.WaitForStream(waiting, awaited.stream, point)
        return
    assert isinstance(awaited, CollectiveLaunch)
    # `wait_stream` for a stream that waited for the work is tried first: the subject may
    # have dropped the `Work` by then.
    for stream in _streams_that_get(awaited, trace):
        if stream != waiting:
            yield missing_waits.WaitForStream(waiting, stream, point)
    yield missing_waits.WaitForWork(
        waiting, awaited.operation, awaited.source, point, awaited.is_functional
    )


def _runs_aside(use: MemoryUse) -> bool:
    """Tell whether a use runs on a communication stream, which the subject cannot name."""
    return isinstance(use, CollectiveLaunch) and use.communication_stream != use.stream


def _streams_that_get(launch: CollectiveLaunch, trace: Trace) -> list[str]:
    waits = (e for e in trace if isinstance(e, CollectiveWait) and e.key == launch.key)
    return list(dict.fromkeys(wait.stream for wait in waits))
