"""torch's CUDA sanitizer, fed with traces: the races that it reports, and those that it misses."""

from collections.abc import Callable

import pytest

from studies.comparison.cases import Case
from studies.comparison.methods.cuda_sanitizer import sanitized
from studies.comparison.rigs import Rigs
from syncverify.trace.records import (
    Access,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StorageFreed,
    StreamCreated,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import SourceLine
from tests.syncverify.judge.properties.handmade_traces import judgement, launch

NOW = Moment("wait", 0)
BUFFER, ITS_SECOND_HALF = MemoryRegion(0, 0, 16), MemoryRegion(0, 8, 16)
CREATED = StreamCreated(NOW, "side", SourceLine("a.py", 1, ""))


def writes(stream: str, region: MemoryRegion = BUFFER) -> Access:
    return Access(
        NOW, stream, "aten.add_", (region,), (region,), SourceLine("a.py", 2, "")
    )


def says(*events: TraceRecord) -> str:
    return sanitized(judgement(events)).words


def test_writes_on_two_streams_are_a_race() -> None:
    reports = says(CREATED, writes("default"), writes("side"))
    assert reports == "rank 0: data race: aten.add_ on side, and aten.add_ before it"


@pytest.mark.parametrize(
    "order",
    [
        [Mark(NOW, "default", 0, ""), StreamWait(NOW, "side", 0, "")],
        [Mark(NOW, "default", 0, ""), HostWait(NOW, 0, "")],
    ],
)
def test_writes_with_a_wait_between_are_no_race(order: list[TraceRecord]) -> None:
    assert not says(CREATED, writes("default"), *order, writes("side"))


def collective() -> TraceRecord:
    return launch(
        "c",
        (0, 1),
        0,
        regions=(BUFFER,),
        written=(BUFFER,),
        communication_stream="nccl",
    )


def test_a_collective_comes_after_what_its_stream_holds() -> None:
    assert not says(writes("default"), collective())


def test_a_collective_that_nobody_waits_for_races_with_a_read() -> None:
    wait = CollectiveWait(NOW, (0, 1), 0, communicator="c")
    assert "all_reduce before it" in says(collective(), writes("default"))
    assert not says(collective(), wait, writes("default"))


def test_bytes_that_are_shared_are_missed_where_addresses_differ() -> None:
    assert not says(CREATED, writes("default"), writes("side", ITS_SECOND_HALF))


def test_memory_that_was_freed_is_forgotten() -> None:
    freed = StorageFreed(NOW, 0, "default")
    assert not says(CREATED, writes("default"), freed, writes("side"))


@pytest.mark.parametrize(
    ("entry", "is_caught"),
    [("comm-stream-not-after-producer", True), ("avg-divides-by-numel", False)],
)
def test_defects_of_the_bank(
    entry: str, *, is_caught: bool, case: Callable[[str], Case], rigs: Rigs
) -> None:
    found = case(entry)
    defect, twin = (
        sanitized(rigs.play("sim, trained", found, each))
        for each in (found.defect, found.twin)
    )
    assert (defect.alarmed, twin.alarmed) == (is_caught, False)
