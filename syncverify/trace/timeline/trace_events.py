"""A timeline in the trace event format, which Perfetto and Chrome read.

Ranks are processes and lanes are threads. A tick is a microsecond of the file. Arrows are
flow events: each binds to the slice that encloses it, so ends of arrows lie within slices.

Slices of one thread must nest. Collectives in flight side by side do not, so each further
one of a lane goes to a track of its own.

Source: "Trace Event Format", Google, section "Event Descriptions".
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from syncverify.trace.timeline.timeline import (
    LanePoint,
    RecordKey,
    Timeline,
    TimelineEvent,
)

_WITHIN: Final = 0.5  # from the begin of a tick to a point within it

TraceEvent = dict[str, Any]
Flow = tuple[str, TraceEvent, TraceEvent]  # a kind, and two slices


def trace_events(
    timeline: Timeline, race: tuple[RecordKey, RecordKey] | None = None, about: str = ""
) -> TraceEvent:
    """Return the document of a timeline, as plain JSON values.

    `race` has the two events that nothing orders, and `about` is its remedy, or any other text
    about the run.
    """
    tracks = _Tracks(timeline)
    flows = [*tracks.arrows(timeline)]
    if race is not None:
        first, second = (tracks.slices[key] for key in race)
        flows.append(("no order", first, second))
    events = [
        *tracks.names(),
        *tracks.slices.values(),
        *tracks.launching.values(),
        *_flow_events(flows),
    ]
    return {"traceEvents": events, "otherData": {"about": about, "unit": "tick"}}


class _Tracks:
    """Threads of all ranks, and slices on them."""

    def __init__(self, timeline: Timeline) -> None:
        self.slices: dict[RecordKey, TraceEvent] = {}
        # Slice on the stream that issued a collective, by rank and tick.
        self.launching: dict[tuple[int, int], TraceEvent] = {}
        # Ends of the open slices of each track, by rank and lane.
        self._open: dict[tuple[int, str], list[list[int]]] = {}
        self._threads: dict[tuple[int, str, int], int] = {}
        for rank, lanes in timeline.lanes.items():
            for lane in lanes:
                self._threads[rank, lane, 0] = len(self._threads) + 1
        # Of slices that begin together, the longer one encloses the other.
        events = timeline.events.items()
        for key, event in sorted(events, key=lambda e: (e[1].place.tick, -e[1].end)):
            self.slices[key] = self._slice_of(event)

    def arrows(self, timeline: Timeline) -> Iterator[Flow]:
        """Yield the two slices of each arrow."""
        at = {event.place: self.slices[key] for key, event in timeline.events.items()}
        for arrow in timeline.arrows:
            place = arrow.tail
            if arrow.kind == "launch":
                thread = self._threads[place.rank, place.lane, 0]
                made = _slice("launch", "launch", place, 1, thread)
                tail = self.launching.setdefault((place.rank, place.tick), made)
            else:
                tail = at[place]
            yield arrow.kind, tail, at[arrow.head]

    def names(self) -> Iterator[TraceEvent]:
        """Yield the names and the order of processes and threads."""
        for rank in dict.fromkeys(rank for rank, _, _ in self._threads):
            yield _metadata("process_name", rank, 0, name=f"rank {rank}")
            yield _metadata("process_sort_index", rank, 0, sort_index=rank)
        for (rank, lane, track), thread in self._threads.items():
            name = f"{lane}, {track + 1} in flight" if track else lane
            yield _metadata("thread_name", rank, thread, name=name)
            yield _metadata("thread_sort_index", rank, thread, sort_index=thread)

    def _slice_of(self, event: TimelineEvent) -> TraceEvent:
        place, new = event.place, len(self._threads) + 1
        on_track = (place.rank, place.lane, self._track(event))
        thread = self._threads.setdefault(on_track, new)
        length = event.end - place.tick
        return _slice(event.name, event.kind, place, length, thread) | {
            "args": {
                "moment": event.moment,
                "source": str(event.source or ""),
                "parameters": ", ".join(event.parameters),
                "bytes": event.num_bytes,
                "never ends": event.is_open,
            }
        }

    def _track(self, event: TimelineEvent) -> int:
        """Return the first track of the lane on which the event nests."""
        tracks = self._open.setdefault((event.place.rank, event.place.lane), [])
        for number, ends in enumerate(tracks):
            while ends and ends[-1] <= event.place.tick:
                ends.pop()
            if not ends or event.end <= ends[-1]:
                ends.append(event.end)
                return number
        tracks.append([event.end])
        return len(tracks) - 1


def _slice(
    name: str, category: str, place: LanePoint, length: int, thread: int
) -> TraceEvent:
    where = {"pid": place.rank, "tid": thread, "ts": place.tick, "dur": length}
    return {"ph": "X", "name": name, "cat": category, **where}


def _metadata(kind: str, rank: int, thread: int, **values: Any) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": rank, "tid": thread, "args": values}


def _flow_events(flows: Iterable[Flow]) -> Iterator[TraceEvent]:
    """Yield begin and end of each flow; it begins at the earlier slice."""
    for number, (kind, *slices) in enumerate(flows, start=1):
        first, second = sorted(slices, key=lambda each: each["ts"])
        flow = {"name": kind, "cat": kind, "id": number}
        yield {**flow, "ph": "s", **_within(first)}
        yield {**flow, "ph": "f", "bp": "e", **_within(second)}


def _within(made: TraceEvent) -> TraceEvent:
    return {"pid": made["pid"], "tid": made["tid"], "ts": made["ts"] + _WITHIN}
