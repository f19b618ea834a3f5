"""An inserted wait stands where its line would run, and nowhere else."""

from dataclasses import replace

from syncverify.judge.ordering.missing_waits import (
    BeforeFree,
    BeforeReturn,
    BeforeUse,
    InsertionPoint,
    RecordStream,
    WaitForStream,
    WaitForWork,
)
from syncverify.trace.records import (
    CollectiveWait,
    Mark,
    Moment,
    StorageFreed,
    StreamWait,
)
from syncverify.trace.source_lines import NoLine
from tests.syncverify.judge.ordering.micro_traces import AT, labelled, traces

PROGRAM = """
    call wait 0; @copy r b[0:4] side; @copy r b[0:4] default; @other r b[0:4] side; return;
    call zero_grad 0; @copy r c[0:4] side; free b default; free c side; return
"""


def wait_at(point: InsertionPoint) -> WaitForStream:
    return WaitForStream("side", "default", point)


def test_a_use_is_its_line_on_its_stream() -> None:
    (before,) = traces(PROGRAM)
    (after,) = wait_at(BeforeUse(labelled("copy"), "side")).applied([before])
    assert [
        before.index(after[position + 1])
        for position, event in enumerate(after)
        if isinstance(event, StreamWait)
    ] == [1, 6]


def test_a_return_is_that_of_one_method() -> None:
    (before,) = traces(PROGRAM)
    (after,) = wait_at(BeforeReturn("wait")).applied([before])
    added = [event for event in after if event not in before]
    assert len(added) == 2
    assert after[4:6] == added
    assert isinstance(added[0], Mark)
    assert isinstance(added[1], StreamWait)
    assert (added[0].stream, added[1].stream) == ("default", "side")
    assert added[0].moment == added[1].moment == Moment("wait", 0)
    assert added[0].source == added[1].source == NoLine.UNKNOWN


def test_a_free_is_one_to_the_pool_of_a_stream() -> None:
    (before,) = traces(PROGRAM)
    (after,) = wait_at(BeforeFree("side")).applied([before])
    (freed,) = (
        after[position + 1]
        for position, event in enumerate(after)
        if isinstance(event, StreamWait)
    )
    assert isinstance(freed, StorageFreed)
    assert freed.storage == ord("c")


def test_work_is_what_its_line_has_launched_by_then() -> None:
    program = """
        @launch reduce a b[0:4] default>nccl; @elsewhere reduce d b[4:8] default>nccl;
        @use r b[0:4] default; @launch reduce e b[0:4] default>nccl; @use r b[0:4] default;
        @launch reduce f b[0:4] default>nccl
    """
    edge = WaitForWork(
        "default",
        "all_reduce",
        labelled("launch"),
        BeforeUse(labelled("use"), "default"),
    )
    (after,) = edge.applied(traces(program))
    waits = [event.sequence for event in after if isinstance(event, CollectiveWait)]
    assert waits == [ord("a"), ord("e")]


def test_work_is_known_by_its_communicator_and_its_ranks() -> None:
    ranks = traces("@launch reduce a b[0:4] default>nccl; @use r b[0:4] side")
    launched = replace(ranks[0][0], communicator="dp", ranks=(0, 1))
    edge = WaitForWork(
        "side", "all_reduce", labelled("launch"), BeforeUse(labelled("use"), "side")
    )
    (after,) = edge.applied([[launched, ranks[0][1]]])
    assert after[1] == CollectiveWait(AT, (0, 1), ord("a"), "side", "dp")


def test_a_stream_is_recorded_for_what_its_line_has_used() -> None:
    (after,) = RecordStream("side", labelled("other")).applied(traces(PROGRAM))
    freed = {
        e.storage: e.recorded_streams for e in after if isinstance(e, StorageFreed)
    }
    assert freed == {ord("b"): ("side",), ord("c"): ()}
