"""Find accesses that nothing orders, and memory that is given back too early.

Two accesses of one rank to a common byte, one of them a write, are a race if neither
comes before the other: under some legal schedule of the streams they run in the wrong
order. One run shows all such pairs that its queues can have, for what a host queues does
not depend on when the device runs it.

Note [Memory that goes back to a side stream]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Memory is given out again by the pool of one stream, to what the host queues there next.
The default stream always goes on, whoever trains sees to that. A side stream may first
wait for whoever still used the memory, or never be used again: FSDP2's lets gradients go
to the pool of its reduce-scatter stream, which waits for the current stream before
anything else. So there an early free harms only if the stream's next entry comes before
the last use is over.

Kept are the last accesses only, so not every pair is reported; but each access that
races with an earlier one is, together with one that it races with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from syncverify.memory import MemoryRegion
from syncverify.ordering.clocks import Clock, Lane
from syncverify.ordering.happens_before import Semantics, Traces, walk
from syncverify.ordering.shadow import Last, StorageShadow
from syncverify.trace import (
    DEFAULT_STREAM,
    Access,
    CollectiveLaunch,
    Event,
    StorageFreed,
)

MemoryUse = Access | CollectiveLaunch


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """Two uses of common bytes that nothing orders; one of them writes.

    Attributes:
        rank: Whose they are.
        first_index: Position in the rank's trace of the one that was queued first.
        second_index: Position of the other one.
        first: The one that was queued first.
        second: The other one.
        region: Bytes in common, or where strided bytes meet.
    """

    rank: int
    first_index: int
    second_index: int
    first: MemoryUse
    second: MemoryUse
    region: MemoryRegion


@dataclass(frozen=True, slots=True, eq=False)
class EarlyFree:
    """Memory that may be given to somebody else while a stream still uses it.

    Attributes:
        rank: Whose it is.
        use_index: Position in the rank's trace of the last use on that stream.
        free_index: Position of the free.
        use: The last use.
        freed: The free.
    """

    rank: int
    use_index: int
    free_index: int
    use: MemoryUse
    freed: StorageFreed


@dataclass(frozen=True, slots=True)
class Orderings:
    """What is not ordered in a run.

    Attributes:
        races: By rank, and in the order in which the second use was queued.
        early_frees: By rank, in order.
        harmless_frees: Those of which nothing comes, by rank, in order; see
            Note [Memory that goes back to a side stream].
    """

    races: tuple[Race, ...] = ()
    early_frees: tuple[EarlyFree, ...] = ()
    harmless_frees: tuple[EarlyFree, ...] = ()


def judge_orderings(traces: Traces, semantics: Semantics = "stream") -> Orderings:
    """Find what is not ordered.

    Args:
        traces: Events of each rank, in host order. They may end early.
        semantics: `stream` as on a GPU, or `host` as gloo has it on CPU.

    Returns:
        All races and early frees.
    """
    if not any(_has_several_lanes(events) for events in traces):
        return Orderings()
    finder = _Finder(traces, tuple({} for _ in traces))
    walk(traces, semantics, finder)
    return Orderings(
        tuple(
            sorted(
                finder.races.values(),
                key=lambda race: (race.rank, race.second_index, race.first_index),
            )
        ),
        _sorted(finder.early_frees),
        _sorted(
            found
            for given_back in (finder.harmless_frees, *finder.given_back.values())
            for _, found in given_back
        ),
    )


def _sorted(frees: Iterable[EarlyFree]) -> tuple[EarlyFree, ...]:
    return tuple(sorted(frees, key=lambda found: (found.rank, found.free_index)))


def _has_several_lanes(events: Sequence[Event]) -> bool:
    """Tell whether a rank has more than one lane; what is on one of them is in order."""
    streams: set[str] = set()
    for event in events:
        if isinstance(event, (Access, StorageFreed)):  # for a union it is much slower
            streams.add(event.stream)
        elif isinstance(event, CollectiveLaunch):
            streams |= {event.stream, event.communication_stream}
        if len(streams) > 1:
            return True
    return False


@dataclass(slots=True)
class _Finder:
    """An observer that compares each use with those before it."""

    traces: Traces
    # Of each rank, by storage.
    storages: tuple[dict[int, StorageShadow], ...]
    races: dict[tuple[int, int, int], Race] = field(default_factory=dict)
    early_frees: list[EarlyFree] = field(default_factory=list)
    # By lane: what was given back to its pool since its last entry, each with its use.
    given_back: dict[int, list[tuple[Last, EarlyFree]]] = field(default_factory=dict)
    harmless_frees: list[tuple[Last, EarlyFree]] = field(default_factory=list)

    def queued(
        self,
        index: int,
        lane: Lane,
        reads: tuple[MemoryRegion, ...],
        writes: tuple[MemoryRegion, ...],
    ) -> None:
        """Compare each region with those who touched it before."""
        for use, found in self.given_back.pop(lane.index, ()):
            if _unordered(use, lane.clock):
                self.early_frees.append(found)
            else:
                self.harmless_frees.append((use, found))
        here = (lane.clock[lane.index], index)
        for region in reads:
            if region not in writes:  # which would find the same and more
                self._touch(region, lane, here, writes=False)
        for region in writes:
            self._touch(region, lane, here, writes=True)

    def freed(self, index: int, lane: Lane, event: StorageFreed) -> None:
        """Find lanes whose last use of the storage may be still to come."""
        storage = self.storages[lane.rank].pop(event.storage, None)
        if storage is None:
            return
        events = self.traces[lane.rank]
        for use_lane, (count, use_index) in _unordered(storage.last, lane.clock):
            use = _memory_use(events[use_index])
            if _stream_of(use) in (*event.recorded_streams, *event.engine_streams):
                continue
            found = EarlyFree(lane.rank, use_index, index, use, event)
            if lane.name != event.stream or lane.name == DEFAULT_STREAM:
                self.early_frees.append(found)  # as the host always goes on
            else:
                entry = ({use_lane: (count, use_index)}, found)
                self.given_back.setdefault(lane.index, []).append(entry)

    def waited_on_host(self, index: int, rank: int, clock: Clock) -> None:
        """Nothing: what the host queues next shows it."""

    def _touch(
        self, region: MemoryRegion, lane: Lane, here: tuple[int, int], *, writes: bool
    ) -> None:
        if region.start_byte >= region.end_byte:
            return
        storage = self._storage(lane.rank, region.storage)
        if len(storage.last) == (lane.index in storage.last):
            storage.last[lane.index] = here
            storage.note(region, here, writes=writes)
            return
        cell = storage.cell(region)
        clock = lane.clock
        for other in cell.neighbours:
            for last in (other.writes, other.reads) if writes else (other.writes,):
                for index, (count, first) in last.items():
                    if clock.get(index, 0) < count:
                        common = _common(region, other.region)
                        self._report(lane.rank, first, here[1], common)
        if writes:
            # Whoever races with what comes before this write races with this write.
            cell.reads = _still_unordered(cell.reads, clock)
            cell.writes = _still_unordered(cell.writes, clock)
        (cell.writes if writes else cell.reads)[lane.index] = here
        storage.last[lane.index] = here

    def _storage(self, rank: int, number: int) -> StorageShadow:
        storages = self.storages[rank]
        storage = storages.get(number)
        if storage is None:
            storage = storages[number] = StorageShadow()
        return storage

    def _report(self, rank: int, first: int, second: int, region: MemoryRegion) -> None:
        events = self.traces[rank]
        key = (rank, first, second)
        if key not in self.races:
            self.races[key] = Race(
                *key, _memory_use(events[first]), _memory_use(events[second]), region
            )


def _memory_use(event: Event) -> MemoryUse:
    assert isinstance(event, Access | CollectiveLaunch)
    return event


def _stream_of(use: MemoryUse) -> str:
    return use.stream if isinstance(use, Access) else use.communication_stream


def _unordered(last: Last, clock: Clock) -> list[tuple[int, tuple[int, int]]]:
    """List the entries that a clock does not contain."""
    return [(lane, at) for lane, at in last.items() if clock.get(lane, 0) < at[0]]


def _still_unordered(last: Last, clock: Clock) -> Last:
    if not last:
        return last
    return {lane: at for lane, at in last.items() if clock.get(lane, 0) < at[0]}


def _common(left: MemoryRegion, right: MemoryRegion) -> MemoryRegion:
    return MemoryRegion(
        left.storage,
        max(left.start_byte, right.start_byte),
        min(left.end_byte, right.end_byte),
    )
