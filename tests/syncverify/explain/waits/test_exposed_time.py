"""The time of a play on a link, in microseconds."""

from collections.abc import Sequence

import pytest

from syncverify.explain.waits.exposed_time import Link, microseconds
from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.source_lines import NoLine

NOW = Moment("backward", 0, 0)
LINK = Link(latency_microseconds=100, gigabytes_per_second=1)
NOWHERE = NoLine.UNKNOWN


def work(stream: str = "default") -> Access:
    return Access(NOW, stream, "aten.mul", (), (), NOWHERE)


def launch(numel: int = 0, stream: str = "default") -> CollectiveLaunch:
    return CollectiveLaunch(
        NOW, (0, 1), 0, "all_reduce", "SUM", "float32", numel, (), (), NOWHERE,
        stream=stream, communication_stream="nccl",
    )  # fmt: skip


WAIT = CollectiveWait(NOW, (0, 1), 0)


def time_of(*traces: Sequence[TraceRecord]) -> float:
    return microseconds(traces, LINK)


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        ([], 0),
        ([work()], 2 + 5),
        ([work(), work()], 2 + 5 + 5),
        ([work(), work("side")], 2 + 2 + 5),
        ([work(), Mark(NOW, "default", 1, NOWHERE), StreamWait(NOW, "side", 1, NOWHERE),
            work("side")], 2 + 5 + 5),
        ([work(), Mark(NOW, "default", 1, NOWHERE), HostWait(NOW, 1, NOWHERE),
            work("side")], 2 + 5 + 2 + 5),
        # An event that was never recorded orders nothing.
        ([work(), StreamWait(NOW, "side", 1, NOWHERE), work("side")], 2 + 2 + 5),
    ],
)  # fmt: skip
def test_work_of_one_rank(trace: list[TraceRecord], expected: float) -> None:
    assert time_of(trace) == expected


def test_a_collective_ends_a_latency_and_its_bytes_after_the_last_start() -> None:
    # The launch starts at 7 us, and sends 4000 bytes at 1000 a microsecond.
    late = [work(), launch(1000)]
    assert time_of([launch(1000), WAIT, work()], late) == 7 + 100 + 4 + 5
    assert time_of([launch(1000), work()], late) == 7 + 100 + 4


def test_a_rank_that_never_comes_ends_nothing() -> None:
    assert time_of([launch(), WAIT, work()], []) == 2 + 100 + 5
