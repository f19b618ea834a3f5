"""Timelines of traces that are written by hand, and their trace event format."""

import json
from collections import defaultdict
from typing import Any

from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StreamWait,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import Origin, SourceLine
from syncverify.trace.timeline.timeline import Arrow, LanePoint, timeline_of
from syncverify.trace.timeline.trace_events import trace_events
from tests.syncverify.judge.properties.handmade_traces import launch

NOW = Moment("wait", 0)
BYTES = MemoryRegion(0, 0, 16)
BOTH = (0, 1)
LINE = SourceLine("a.py", 1, "f")


def work(source: Origin = LINE, stream: str = "default") -> Access:
    return Access(NOW, stream, "aten.add_.Tensor", (), (BYTES,), source)


def wait(sequence: int = 0) -> CollectiveWait:
    return CollectiveWait(NOW, BOTH, sequence, "default", "c")


def reduction(sequence: int = 0, **changes: object) -> CollectiveLaunch:
    return launch("c", BOTH, sequence, communication_stream="nccl", **changes)


def test_absent_rank_leaves_a_collective_open() -> None:
    timeline = timeline_of([[reduction(), wait(), work()], [work()]])
    event = timeline.events[0, 0]
    assert (event.is_open, event.end) == (True, timeline.num_ticks)
    assert not timeline_of([[reduction()], [reduction()]]).events[0, 0].is_open


def test_arrows_of_a_collective() -> None:
    timeline = timeline_of([[reduction(), wait()], [reduction()]])
    launches = [
        Arrow("launch", LanePoint(r, "default", 0), LanePoint(r, "nccl", 0))
        for r in BOTH
    ]
    meeting = Arrow("match", LanePoint(0, "nccl", 0), LanePoint(1, "nccl", 0))
    waiting = Arrow("wait", LanePoint(0, "nccl", 0), LanePoint(0, "default", 1))
    assert timeline.arrows == (*launches, meeting, waiting)


def test_arrows_follow_events_of_streams() -> None:
    marks = [
        Mark(NOW, "side", 7, SourceLine("a.py", 2, "")),
        StreamWait(NOW, "default", 7, SourceLine("a.py", 3, "")),
    ]
    # A wait for an event that was never recorded.
    never = StreamWait(NOW, "default", 8, SourceLine("a.py", 4, ""))
    timeline = timeline_of(
        [[*marks, HostWait(NOW, 7, SourceLine("a.py", 5, "")), never]]
    )
    mark = LanePoint(0, "side", 0)
    heads = [LanePoint(0, "default", 1), LanePoint(0, "calls", 2)]
    assert timeline.arrows == tuple(Arrow("order", mark, head) for head in heads)


# By phase: fields that an event must have, beside those that every event has.
FIELDS = {
    "M": {"args"},
    "X": {"ts", "dur", "cat"},
    "s": {"ts", "id", "cat"},
    "f": {"ts", "id", "cat", "bp"},
}
TYPES = {
    **dict.fromkeys(("name", "cat", "ph", "bp"), str),
    **dict.fromkeys(("pid", "tid", "id"), int),
    **dict.fromkeys(("ts", "dur"), (int, float)),
    "args": dict,
}


def trace() -> list[TraceRecord]:
    """Two collectives in flight side by side, waited for in the order of their launch."""
    waits = [CollectiveWait(NOW, BOTH, n, "default", "c") for n in BOTH]
    marks = [
        Mark(NOW, "side", 1, SourceLine("a.py", 1, "")),
        StreamWait(NOW, "default", 1, SourceLine("a.py", 2, "")),
    ]
    work = [reduction(0), reduction(1), *waits, *marks]
    return [SubjectCall(NOW), *work, SubjectReturn(NOW)]


def document(**options: Any) -> dict[str, Any]:
    timeline = timeline_of([trace(), trace()])
    return json.loads(json.dumps(trace_events(timeline, **options)))


def problems(document: dict[str, Any]) -> list[str]:
    """Find events that a reader of the format drops or misplaces."""
    found = list[str]()
    slices, flows = defaultdict(list), defaultdict(list)
    for event in document["traceEvents"]:
        wanted = FIELDS[event["ph"]] | {"name", "ph", "pid", "tid"}
        if not wanted <= event.keys() <= wanted | {"args"}:
            found.append(f"fields {sorted(event)}")
        found += [k for k, value in event.items() if not isinstance(value, TYPES[k])]
        if event["ph"] == "X":
            end = event["ts"] + event["dur"]
            slices[event["pid"], event["tid"]].append((event["ts"], end))
        elif event["ph"] in "sf":
            flows[event["id"]].append(event)
    for own in slices.values():
        for first, end in own:
            if any(first < other < end < last for other, last in own):
                found.append(f"slices overlap at {first}")
    for ends in flows.values():
        if [each["ph"] for each in ends] != ["s", "f"] or ends[0]["ts"] > ends[1]["ts"]:
            found.append("a flow goes back")
        for each in ends:
            own = slices[each["pid"], each["tid"]]
            if not any(first <= each["ts"] < end for first, end in own):
                found.append(f"flow {each['name']} binds to no slice")
    return found


def test_document_follows_the_format() -> None:
    assert problems(document()) == []


def test_processes_are_ranks_and_threads_are_lanes() -> None:
    events = document()["traceEvents"]
    names = {
        (each["pid"], each["args"]["name"])
        for each in events
        if each["name"] in {"process_name", "thread_name"}
    }
    lanes = ("calls", "default", "nccl", "nccl, 2 in flight", "side")
    assert names == {(rank, name) for rank in BOTH for name in (f"rank {rank}", *lanes)}


def test_race_is_a_flow() -> None:
    made = document(race=((0, 2), (0, 1)), about="insert a wait")
    assert made["otherData"]["about"] == "insert a wait"
    race = [each for each in made["traceEvents"] if each["name"] == "no order"]
    assert [each["ph"] for each in race] == ["s", "f"]
    assert problems(made) == []
