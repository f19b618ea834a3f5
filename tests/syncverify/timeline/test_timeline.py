"""Timelines of traces that are written by hand."""

import pytest

from syncverify.timeline.layout import timeline_of
from syncverify.timeline.ticks import ticks_of
from syncverify.timeline.timeline import Arrow, LanePoint
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StorageFreed,
    StreamCreated,
    StreamWait,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine, Origin, SourceLine
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


def test_wait_comes_after_the_last_launch() -> None:
    ticks = ticks_of([[reduction(), wait()], [work(), work(), work(), reduction()]])
    assert ticks.of_records == [[0, 4], [0, 1, 2, 3]]
    assert ticks.ends == {reduction().key: 4}
    assert ticks.last == 5


def test_ranks_that_wait_for_each_other_still_get_places() -> None:
    """On a real machine both ranks hang: each waits before it launches the other's."""
    first, second = reduction(0), reduction(1)
    ticks = ticks_of([[first, wait(0), second], [second, wait(1), first]])
    assert ticks.of_records == [[0, 1, 2], [0, 3, 4]]


def test_absent_rank_leaves_a_collective_open() -> None:
    timeline = timeline_of([[reduction(), wait(), work()], [work()]])
    event = timeline.events[0, 0]
    assert (event.is_open, event.end) == (True, timeline.num_ticks)
    assert not timeline_of([[reduction()], [reduction()]]).events[0, 0].is_open


def test_rank_that_did_not_play_is_not_waited_for() -> None:
    """Of a large world, the fake backend plays some ranks."""
    timeline = timeline_of([[reduction(), wait()], []])
    assert not timeline.events[0, 0].is_open
    assert timeline.lanes.keys() == {0}


def test_collective_lasts_until_its_rank_waits() -> None:
    trace = [reduction(), work(), work(), wait()]
    timeline = timeline_of([trace, [reduction()]])
    assert [timeline.events[rank, 0].end for rank in BOTH] == [3, 1]


def test_arrows_of_a_collective() -> None:
    timeline = timeline_of([[reduction(), wait()], [reduction()]])
    launches = [
        Arrow("launch", LanePoint(r, "default", 0), LanePoint(r, "nccl", 0))
        for r in BOTH
    ]
    meeting = Arrow("match", LanePoint(0, "nccl", 0), LanePoint(1, "nccl", 0))
    waiting = Arrow("wait", LanePoint(0, "nccl", 0), LanePoint(0, "default", 1))
    assert timeline.arrows == (*launches, meeting, waiting)


def test_ranks_that_disagree_are_marked() -> None:
    timeline = timeline_of([[reduction()], [reduction(numel=5)]])
    assert [a.kind for a in timeline.arrows] == ["launch", "launch", "mismatch"]


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


def test_call_lasts_until_its_return() -> None:
    calls: list[TraceRecord] = [SubjectCall(NOW), work(), SubjectReturn(NOW)]
    timeline = timeline_of([[*calls, SubjectCall(NOW)]])
    assert [*timeline.events] == [(0, 0), (0, 1), (0, 3)]
    assert [timeline.events[0, at].end for at in (0, 3)] == [2, 4]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (NoLine.AUTOGRAD, "accumulate"),
        (NoLine.OPTIMIZER, "optimizer"),
        (SourceLine("a.py", 1, ""), "operator"),
    ],
)
def test_kind_of_work_follows_from_its_origin(source: Origin, kind: str) -> None:
    assert timeline_of([[work(source)]]).events[0, 0].kind == kind


def test_work_names_the_gradients_in_its_memory() -> None:
    held = SubjectReturn(NOW, gradients={"p": BYTES, "q": MemoryRegion(1, 0, 4)})
    timeline = timeline_of([[SubjectCall(NOW), work(), held]])
    event = timeline.events[0, 1]
    assert (event.parameters, event.num_bytes) == (("p",), 16)


def test_lanes_are_the_streams_in_the_order_of_their_use() -> None:
    records = [
        StreamCreated(NOW, "side", SourceLine("a.py", 1, "")),
        reduction(stream="side"),
        work(),
        StorageFreed(NOW, 0, "side", num_bytes=8),
    ]
    timeline = timeline_of([records])
    assert timeline.lanes == {0: ("calls", "side", "nccl", "default")}
    assert timeline.events[0, 3].num_bytes == 8
