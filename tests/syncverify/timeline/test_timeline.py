"""Timelines of traces that are written by hand."""

from syncverify.timeline.layout import timeline_of
from syncverify.timeline.timeline import Arrow, LanePoint
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
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import Origin, SourceLine
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


def test_rank_that_did_not_play_is_not_waited_for() -> None:
    """Of a large world, the fake backend plays some ranks."""
    timeline = timeline_of([[reduction(), wait()], []])
    assert not timeline.events[0, 0].is_open
    assert timeline.lanes.keys() == {0}


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


def test_work_names_the_gradients_in_its_memory() -> None:
    held = SubjectReturn(NOW, gradients={"p": BYTES, "q": MemoryRegion(1, 0, 4)})
    timeline = timeline_of([[SubjectCall(NOW), work(), held]])
    event = timeline.events[0, 1]
    assert (event.parameters, event.num_bytes) == (("p",), 16)
