"""Measure freed memory that `record_stream` keeps from being used again.

Note [When recorded memory goes back]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
When such a block is freed, torch's allocator records a CUDA event on each recorded stream. It
gives the block out again once the host sees that the device has passed all these events.
Only a host that waits knows how far the device is; until then the device may not have
started. So a block counts from its free until the host has waited for a mark that comes
after all work that its recorded streams held at the free.

A host that never waits lets such blocks pile up, as many as it frees (pytorch#147168). A
block needs no record, and can go out again at once, if the stream of its pool has waited
for the last use before the free.

Such a pile is legal and may be intended, so this is a measure and not a property. Blocks
that autograd records, for gradients that go from stream to stream, do not count: the
subject did not record them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from typing_extensions import override

from syncverify.judge.ordering.happens_before import Clock, Lane, Observer, join, walk
from syncverify.trace.records import StorageFreed, TraceRecord
from syncverify.trace.run import Trace, Traces


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The most memory that could not be used again at one time."""

    num_blocks: int = 0
    num_bytes: int = 0
    largest: int = 0  # bytes of the largest block
    rank: int = 0
    step: int = 0  # in which the last block was freed

    @property
    def is_pile(self) -> bool:
        """Tell whether several blocks pile up; one at a time is the normal use of a record."""
        return self.num_blocks > 1

    @property
    def extent(self) -> tuple[bool, int, int]:
        """Return the key that sorts measures: the worst is the largest."""
        return self.is_pile, self.num_bytes, self.num_blocks


def held_memory(traces: Traces) -> HeldMemory:
    """Return the worst of all ranks and moments, the first of equals; see the Note above."""
    frees = (r for trace in traces for r in trace if type(r) is StorageFreed)
    if not any(record.recorded_streams for record in frees):
        return HeldMemory()
    measure = _Measure()
    walk([list(_with_deferring(trace)) for trace in traces], "stream", measure)
    worst = [measure.worst[rank] for rank in sorted(measure.worst)]
    return max(worst, key=lambda held: held.extent, default=HeldMemory())


def _with_deferring(trace: Trace) -> Iterator[TraceRecord]:
    """Move each free to its recorded streams, as the allocator records its events."""
    for record in trace:
        if type(record) is not StorageFreed:
            yield record
            continue
        for stream in record.recorded_streams:
            if stream != record.stream:  # its pool's stream is in order anyway
                yield replace(record, stream=stream)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that was freed and cannot be used again yet."""

    num_bytes: int
    # Join of the clocks of its recorded streams at the free.
    clock: Clock = field(default_factory=dict)


@dataclass(slots=True)
class _Measure(Observer):
    """An observer that keeps freed blocks until the host has waited for their streams."""

    worst: dict[int, HeldMemory] = field(default_factory=dict)  # by rank
    # Clock of the last host wait, by rank.
    hosts: dict[int, Clock] = field(default_factory=dict)
    # Held blocks by number of their storage, by rank.
    blocks: dict[int, dict[int, _Block]] = field(default_factory=dict)

    @override
    def freed(
        self, index: int, lane: Lane, record: StorageFreed, recorded: Sequence[Clock]
    ) -> None:
        """Keep a block, unless the host has waited for its recorded stream already."""
        if not record.num_bytes or _contains(self.hosts.get(lane.rank, {}), lane.clock):
            return
        blocks = self.blocks.setdefault(lane.rank, {})
        block = blocks.setdefault(record.storage, _Block(record.num_bytes))
        join(block.clock, lane.clock)
        sizes = [held.num_bytes for held in blocks.values()]
        step = record.moment.step
        now = HeldMemory(len(sizes), sum(sizes), max(sizes), lane.rank, step)
        if now.extent > self.worst.get(lane.rank, HeldMemory()).extent:
            self.worst[lane.rank] = now

    @override
    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        self.hosts[rank] = clock
        held = self.blocks.get(rank, {}).items()
        self.blocks[rank] = {n: e for n, e in held if not _contains(clock, e.clock)}


def _contains(clock: Clock, other: Clock) -> bool:
    return all(clock.get(lane, 0) >= count for lane, count in other.items())
