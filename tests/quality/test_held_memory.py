"""Memory that `record_stream` holds back is measured, and is no violation."""

import re
from dataclasses import replace

import pytest

from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.trace.records import StorageFreed, TraceRecord
from tests.quality.planted.side_memory import HoldsUntilJoined, RecordsEachCopy

MANY_BUCKETS = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{index}", (64,), ("R",)) for index in range(50)),
    (1,),
    256,
)


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["current_stream", "parameter_streams"])
@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (RecordsEachCopy, HeldMemory(50, 12_800, 256, rank=0, step=0)),
        (HoldsUntilJoined, HeldMemory()),
    ],
)
def test_copies_pile_up_where_they_are_recorded(
    subject: type, expected: HeldMemory, launch: str
) -> None:
    """Memory that autograd records for the caller's own streams does not count."""
    found, scenario = resolve(subject), replace(MANY_BUCKETS, launch=launch)
    run = SimBackend().run(scenario, found)
    events = [rank_run.trace for rank_run in run.ranks]
    assert held_memory(events) == expected
    assert autograd_records(events) == (launch != "current_stream")
    assert check(scenario, run, found.capabilities) == []


def autograd_records(traces: list[list[TraceRecord]]) -> bool:
    return any(
        event.engine_streams
        for events in traces
        for event in events
        if isinstance(event, StorageFreed)
    )


@pytest.mark.long
def test_the_report_has_one_line_about_held_memory() -> None:
    def lines_about_memory(subject: type) -> list[str]:
        explored = verify(subject, ranks=2, examples=8, seed=0).explored
        return [line for line in explored if line.startswith("memory: ")]

    assert lines_about_memory(HoldsUntilJoined) == []
    (line,) = lines_about_memory(RecordsEachCopy)
    size = r"[1-9]\d*(\.\d+)? [KMG]?B"
    assert re.fullmatch(
        rf"memory: record_stream kept up to \d+ freed blocks \({size}, the largest {size}, "
        r"step \d, rank \d\) from reuse; freeing after stream.wait_event\(\) keeps none",
        line,
    )
