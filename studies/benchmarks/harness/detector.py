"""The cost of one access: microseconds of the race detector, on a trace made by hand."""

import time

from syncverify.judge.ordering.races import judge_orderings
from syncverify.trace.records import Access, Mark, Moment, StreamWait, TraceRecord
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine

NUM_STORAGES = 16
CHUNKS_A_STORAGE = 32
CHUNK_BYTES = 64
STREAMS = ("compute", "communication")
MOMENT = Moment("backward", 0, 0)


def microseconds_an_access(num_accesses: int) -> float:
    """Time the judgement of a trace without a race, in microseconds for each access."""
    events = trace(num_accesses)
    start = time.perf_counter()
    found = judge_orderings([events])
    seconds = time.perf_counter() - start
    assert not found.races, "each stream waits for the other before its turn"
    return 1e6 * seconds / num_accesses


def trace(num_accesses: int) -> list[TraceRecord]:
    """Make a trace: one stream writes slices, the other waits and writes them again."""
    events: list[TraceRecord] = []
    for index in range(num_accesses):
        turn, place = divmod(index, CHUNKS_A_STORAGE)
        stream, other = STREAMS[turn % 2], STREAMS[1 - turn % 2]
        if place == 0:
            events.append(Mark(MOMENT, other, turn, NoLine.UNKNOWN))
            events.append(StreamWait(MOMENT, stream, turn, NoLine.UNKNOWN))
        start = place * CHUNK_BYTES
        region = MemoryRegion(turn // 2 % NUM_STORAGES, start, start + CHUNK_BYTES)
        events.append(
            Access(
                moment=MOMENT,
                stream=stream,
                operator="aten.add_.Tensor",
                reads=(region,),
                writes=(region,),
                source=NoLine.UNKNOWN,
            )
        )
    return events
