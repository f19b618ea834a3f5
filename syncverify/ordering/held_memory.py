"""Measure memory that was freed and that `record_stream` kept from being used again.

Note [When recorded memory goes back]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Torch's allocator records an event on each recorded stream when such a block is freed, and
gives the block out again once it sees, on the host, that all of them are passed. How far
the device is nobody knows but a host that waits: until then the device may not have
started. So a block counts from its free until the host has waited for something that
comes after all that its recorded streams held at the free. A host that never waits lets
such blocks pile up, as many as it frees (pytorch#147168). A block that was freed after
the stream it came from had waited needs no record, and can go out again at once.

That is legal, and may be what somebody wants: it is a measure, and no property. Blocks
that autograd records, of gradients that go from stream to stream, are not the subject's
doing, and do not count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from syncverify.memory import MemoryRegion
from syncverify.ordering.clocks import Clock, Lane, join
from syncverify.ordering.happens_before import Traces, walk
from syncverify.trace import Event, StorageFreed


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The most that could not be used again at one time.

    Attributes:
        num_blocks: Freed blocks.
        num_bytes: All together.
        largest: Bytes of the largest among them.
        rank: Whose they are.
        step: When the last of them was freed.
    """

    num_blocks: int = 0
    num_bytes: int = 0
    largest: int = 0
    rank: int = 0
    step: int = 0

    @property
    def is_pile(self) -> bool:
        """Whether blocks pile up; one at a time is what recording a stream is for."""
        return self.num_blocks > 1

    @property
    def extent(self) -> tuple[bool, int, int]:
        """Return what says which of two is worse."""
        return self.is_pile, self.num_bytes, self.num_blocks


def held_memory(traces: Traces) -> HeldMemory:
    """Measure what `record_stream` held back; see Note [When recorded memory goes back].

    Args:
        traces: Events of each rank, in host order. They may end early.

    Returns:
        The worst of all ranks and moments; of equals the first.
    """
    if not any(_is_deferred(event) for events in traces for event in events):
        return HeldMemory()
    measure = _Measure()
    walk([list(_with_deferring(events)) for events in traces], "stream", measure)
    return max(
        (measure.worst[rank] for rank in sorted(measure.worst)),
        key=lambda held: held.extent,
        default=HeldMemory(),
    )


def _is_deferred(event: Event) -> bool:
    return type(event) is StorageFreed and bool(event.recorded_streams)


def _with_deferring(events: Sequence[Event]) -> Iterator[Event]:
    """Let frees happen on the streams whose end they wait for, as the allocator does."""
    for event in events:
        if type(event) is not StorageFreed:
            yield event
            continue
        for stream in event.recorded_streams:
            if stream != event.stream:  # which orders what it is given next anyway
                yield dataclasses.replace(event, stream=stream)


@dataclass(frozen=True, slots=True)
class _Block:
    num_bytes: int
    # What comes before its recorded streams let go of it.
    clock: Clock = field(default_factory=dict)


@dataclass(slots=True)
class _Measure:
    """An observer that keeps the freed blocks of each rank until its host knows enough."""

    worst: dict[int, HeldMemory] = field(default_factory=dict)
    # By rank; blocks by storage.
    hosts: dict[int, Clock] = field(default_factory=dict)
    blocks: dict[int, dict[int, _Block]] = field(default_factory=dict)

    def queued(
        self,
        index: int,
        lane: Lane,
        reads: tuple[MemoryRegion, ...],
        writes: tuple[MemoryRegion, ...],
    ) -> None:
        """Nothing: only what a stream holds at a free counts."""

    def freed(self, index: int, lane: Lane, event: StorageFreed) -> None:
        """Keep a block, unless the host knows that a recorded stream is done."""
        if not event.num_bytes or _contains(self.hosts.get(lane.rank, {}), lane.clock):
            return
        blocks = self.blocks.setdefault(lane.rank, {})
        block = blocks.setdefault(event.storage, _Block(event.num_bytes))
        join(block.clock, lane.clock)
        sizes = [held.num_bytes for held in blocks.values()]
        now = HeldMemory(
            len(sizes), sum(sizes), max(sizes), lane.rank, event.moment.step
        )
        if now.extent > self.worst.get(lane.rank, HeldMemory()).extent:
            self.worst[lane.rank] = now

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        """Let go of the blocks whose streams the host has waited for."""
        self.hosts[rank] = clock
        self.blocks[rank] = {
            storage: block
            for storage, block in self.blocks.get(rank, {}).items()
            if not _contains(clock, block.clock)
        }


def _contains(clock: Clock, other: Clock) -> bool:
    return all(clock.get(lane, 0) >= count for lane, count in other.items())
