"""Traces of simulated ranks, for tests that play no scenario."""

from collections.abc import Callable
from typing import Any

import pytest

from syncverify.sim.machine import SimulatedMachine
from syncverify.trace.records import (
    Moment,
    StreamCreated,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
)


@pytest.fixture
def traced() -> Callable[..., list[TraceRecord]]:
    """Return a function that plays a program and returns the events of rank 0.

    It leaves out the call around the program, and the creation of streams: a stream that
    is used shows in the events of its use.
    """

    def run(program: Callable[[int], Any], num_ranks: int = 1) -> list[TraceRecord]:
        machine = SimulatedMachine(num_ranks)

        def play(rank: int) -> None:
            with machine.recorders[rank].calling(Moment("bind", 0)):
                program(rank)

        threads, stall = machine.run(play)
        for thread in threads:
            if thread.error is not None:
                raise thread.error
        assert stall is None, stall
        frame = (SubjectCall, SubjectReturn, StreamCreated)
        return [e for e in machine.recorders[0].trace if not isinstance(e, frame)]

    return run


@pytest.fixture
def lines_of(traced: Callable[..., list[TraceRecord]]) -> Callable[..., list[str]]:
    """Return a function that plays a program and returns a line for each event of rank 0."""

    def run(program: Callable[[int], Any], num_ranks: int = 1) -> list[str]:
        return [in_few_words(event) for event in traced(program, num_ranks)]

    return run


def in_few_words(event: Any) -> str:
    match type(event).__name__:
        case "Mark":
            return f"mark {event.mark} in {event.stream}"
        case "StreamWait":
            return f"{event.stream} waits for {event.mark}"
        case "HostWait":
            return f"host waits for {event.mark}"
        case "Access":
            reads = " ".join(_region(region) for region in event.reads)
            writes = " ".join(_region(region) for region in event.writes)
            name = event.operator.removeprefix("aten.").partition(".")[0]
            return f"{event.stream}: {name} reads [{reads}] writes [{writes}]"
        case "StorageFreed":
            held = "".join(f", held for {s}" for s in event.recorded_streams)
            passed = "".join(f", passed to {s}" for s in event.engine_streams)
            return f"storage {event.storage} of {event.stream} freed{held}{passed}"
        case "CollectiveLaunch":
            return (
                f"{event.operation} from {event.stream} on {event.communication_stream}"
            )
        case "GroupMade":
            return str(event)
        case _:
            return f"{event.stream} waits for collective {event.sequence}"


def _region(region: Any) -> str:
    repeats = "".join(f"x{count}@{distance}" for count, distance in region.repeats)
    return f"{region.storage}:{region.start_byte}-{region.end_byte}{repeats}"
