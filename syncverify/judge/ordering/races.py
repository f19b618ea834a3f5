"""Find accesses without an order, and memory that is given back too early.

Two accesses of one rank to a common byte, one of them a write, are a race if neither
happens before the other: under some legal schedule of the streams they run in the wrong
order. One run shows all races of its queues, because the host queues the same work
whenever the device runs it.

Note [Memory that goes back to a pool]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The allocator keeps one pool per stream. Freed memory is given out again to work that the
host queues on the stream of its pool. That work may wait for the last use first, or never
come. So an early free is harmful only if the next entry of the stream does not wait for the
last use. Examples without harm:

- FSDP2 returns gradients to the pool of its reduce-scatter stream, and that stream first
  waits for the current stream.
- FSDP2's default stream waits for an all-gather after the last reference to its input is gone.

The trace of a subject is a part of the work only: the training program queues work of its
own on the default stream, and other training programs queue other work there. So an early
free into the pool of that stream is always harmful. The trace of any other program has all
of its work.

Only the last accesses are kept, so not every pair is reported. But each access that races
with an earlier one is reported, together with one such earlier access.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from typing_extensions import override

from syncverify.judge.ordering.happens_before import (
    Clock,
    Lane,
    Observer,
    Semantics,
    walk,
)
from syncverify.judge.ordering.shadow import Last, LastUse, StorageShadow
from syncverify.trace.records import (
    DEFAULT_STREAM,
    Access,
    CollectiveLaunch,
    MemoryUse,
    StorageFreed,
    SubjectCall,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Run, Trace, Traces
from syncverify.trace.timeline.timeline import RecordKey

_USES = (Access, CollectiveLaunch)  # `isinstance` is much slower on their union


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """Two uses of common bytes that nothing orders; one of them writes."""

    rank: int
    first_index: int  # position in the trace of the rank
    second_index: int  # position in the trace of the rank
    first: MemoryUse  # queued first
    second: MemoryUse
    region: MemoryRegion  # the common bytes; of strided regions, the range in which they meet


@dataclass(frozen=True, slots=True, eq=False)
class EarlyFree:
    """Memory that may be given out again while a stream still uses it."""

    rank: int
    use_index: int  # position in the trace of the rank
    free_index: int  # position in the trace of the rank
    use: MemoryUse  # the last use on the stream
    freed: StorageFreed


Unordered = Race | EarlyFree


def is_same_work(one: Unordered, other: Unordered) -> bool:
    """Tell whether two runs of a scenario leave the same work without an order."""
    # Memory is left out: a run that records more accesses gives storages other numbers.
    # The rounds of a loop at one moment count as the same work.
    match one, other:
        case Race(), Race():
            mine, theirs = (one.first, one.second), (other.first, other.second)
            return [*map(_work, mine)] == [*map(_work, theirs)]
        case EarlyFree(), EarlyFree():
            is_same_pool = one.freed.stream == other.freed.stream
            return is_same_pool and _work(one.use) == _work(other.use)
    return False


def _work(use: MemoryUse) -> tuple[object, ...]:
    """Return the fields of a use but its memory and its place on the communicator."""
    if isinstance(use, Access):
        return (use.moment, use.stream, use.operator, use.source)
    place = (use.moment, use.source, use.communication_stream)
    return (*place, use.ranks, use.signature, use.root)


def places_of(
    unordered: Unordered | None, run: Run
) -> tuple[RecordKey, RecordKey] | None:
    """Return the places of two records that nothing orders; None if the run lacks one."""
    match unordered:
        case Race():
            pair: tuple[object, object] = (unordered.first, unordered.second)
        case EarlyFree():
            pair = (unordered.use, unordered.freed)
        case None:
            return None
    # By identity: the judge may have left records out, which moves the others.
    trace = run.ranks[unordered.rank].trace
    places = {id(record): index for index, record in enumerate(trace)}
    first, second = (places.get(id(record)) for record in pair)
    if first is None or second is None:  # the run does not show the violation any more
        return None
    return (unordered.rank, first), (unordered.rank, second)


@dataclass(frozen=True, slots=True)
class Orderings:
    """All races and early frees of a run."""

    races: tuple[Race, ...] = ()  # sorted by rank, then by position of the second use
    # Sorted by rank, then by position of the free.
    early_frees: tuple[EarlyFree, ...] = ()
    # See Note [Memory that goes back to a pool].
    harmless_frees: tuple[EarlyFree, ...] = ()


def judge_orderings(traces: Traces, semantics: Semantics = "stream") -> Orderings:
    """Return all races and early frees of the traces of all ranks, which may end early."""
    if not any(_has_several_lanes(trace) for trace in traces):
        return Orderings()
    ranks_of_subjects = {
        rank
        for rank, trace in enumerate(traces)
        if any(isinstance(record, SubjectCall) for record in trace)
    }
    finder = _Finder(traces, tuple({} for _ in traces), ranks_of_subjects)
    walk(traces, semantics, finder)
    by_second = sorted(finder.races, key=lambda key: (key[0], key[2], key[1]))
    given_back = (finder.harmless_frees, *finder.given_back.values())
    return Orderings(
        tuple(finder.races[key] for key in by_second),
        _sorted(finder.early_frees),
        _sorted(found for listed in given_back for _, found in listed),
    )


def _sorted(frees: Iterable[EarlyFree]) -> tuple[EarlyFree, ...]:
    return tuple(sorted(frees, key=lambda found: (found.rank, found.free_index)))


def _has_several_lanes(trace: Trace) -> bool:
    """Tell whether a rank uses several lanes; the entries of one lane are in order."""
    streams: set[str] = set()
    for record in trace:
        if isinstance(record, (Access, StorageFreed)):  # faster than with a union
            streams.add(record.stream)
        elif isinstance(record, CollectiveLaunch):
            streams |= {record.stream, record.communication_stream}
        if len(streams) > 1:
            return True
    return False


@dataclass(slots=True)
class _Finder(Observer):
    """An observer that compares each use with the uses before it."""

    traces: Traces
    # Shadows by storage, one mapping for each rank.
    storages: tuple[dict[int, StorageShadow], ...]
    ranks_of_subjects: Set[int]  # they play a training program around a subject
    # By rank, and by the positions of both uses.
    races: dict[tuple[int, int, int], Race] = field(default_factory=dict)
    early_frees: list[EarlyFree] = field(default_factory=list)
    # Early frees into a pool, by lane. The next entry of the lane tells whether they are harmful;
    # until then they are not.
    given_back: dict[int, list[tuple[Last, EarlyFree]]] = field(default_factory=dict)
    # Early frees that the next entry of their lane proved harmless.
    harmless_frees: list[tuple[Last, EarlyFree]] = field(default_factory=list)

    @override
    def queued(self, index: int, lane: Lane, use: MemoryUse) -> None:
        for last, found in self.given_back.pop(lane.index, ()):
            if _unordered(last, lane.clock):
                self.early_frees.append(found)
            else:
                self.harmless_frees.append((last, found))
        here = (lane.clock[lane.index], index)
        writes = use.writes
        for region in use.reads:
            if region not in writes:  # the write finds these races and more
                self._touch(region, lane, here, writes=False)
        for region in writes:
            self._touch(region, lane, here, writes=True)

    @override
    def freed(
        self, index: int, lane: Lane, record: StorageFreed, recorded: Sequence[Clock]
    ) -> None:
        """Find lanes whose last use of the storage may run after the free.

        The allocator waits for all work that is queued on the recorded streams, and so for
        all work that they wait for.
        """
        storage = self.storages[lane.rank].pop(record.storage, None)
        if storage is None:
            return
        trace = self.traces[lane.rank]
        is_of_subject = lane.rank in self.ranks_of_subjects
        uses = _unordered(storage.last, lane.clock)
        for clock in recorded:
            uses = _unordered(uses, clock)
        for use_lane, last in uses.items():
            use = _memory_use(trace[last[1]])
            if use.runs_on in (*record.recorded_streams, *record.engine_streams):
                continue
            found = EarlyFree(lane.rank, last[1], index, use, record)
            # The training program around a subject queues work that the trace lacks.
            lacks_work = lane.name == DEFAULT_STREAM and is_of_subject
            if lane.name != record.stream or lacks_work:
                self.early_frees.append(found)  # the pool is in use again for certain
            else:
                entry = ({use_lane: last}, found)
                self.given_back.setdefault(lane.index, []).append(entry)

    def _touch(
        self, region: MemoryRegion, lane: Lane, here: LastUse, *, writes: bool
    ) -> None:
        if region.start_byte >= region.end_byte:
            return
        storages = self.storages[lane.rank]
        storage = storages.get(region.storage)
        if storage is None:
            storage = storages[region.storage] = StorageShadow(lane.index)
        if storage.only_lane is not None:
            if storage.only_lane == lane.index:
                storage.note(here)
                return
            self._unfold(lane.rank, region.storage, storage)
        cell = storage.cell(region)
        clock = lane.clock
        for other in cell.neighbours:
            earlier = (other.writes, other.reads) if writes else (other.writes,)
            for last in earlier:
                for index, (count, first) in last.items():
                    if clock.get(index, 0) < count:
                        key = (lane.rank, first, here[1])
                        self._report(key, region, other.region)
        if writes:
            # Accesses before this write are forgotten: a later use that races with one of
            # them races with this write too.
            cell.reads = _unordered(cell.reads, clock)
            cell.writes = _unordered(cell.writes, clock)
        (cell.writes if writes else cell.reads)[lane.index] = here
        storage.last[lane.index] = here

    def _unfold(self, rank: int, number: int, storage: StorageShadow) -> None:
        """Put the uses of a storage that were only noted into the cells of their bytes."""
        (lane,), noted = storage.last, storage.noted
        storage.only_lane, storage.noted = None, []
        for at in noted:
            use = self.traces[rank][at[1]]
            assert isinstance(use, _USES)
            writes = use.writes
            for region in use.reads:
                if region.storage == number and region not in writes:
                    storage.cell(region).reads[lane] = at
            for region in writes:
                if region.storage == number:
                    cell = storage.cell(region)
                    cell.reads.clear()
                    cell.writes[lane] = at

    def _report(
        self, key: tuple[int, int, int], left: MemoryRegion, right: MemoryRegion
    ) -> None:
        if key not in self.races:
            rank, *pair = key
            first, second = (_memory_use(self.traces[rank][index]) for index in pair)
            start = max(left.start_byte, right.start_byte)
            end = min(left.end_byte, right.end_byte)
            common = MemoryRegion(left.storage, start, end)
            self.races[key] = Race(*key, first, second, common)


def _memory_use(record: TraceRecord) -> MemoryUse:
    assert isinstance(record, _USES)
    return record


def _unordered(last: Last, clock: Clock) -> Last:
    """Return the uses that a clock does not contain."""
    if not last:
        return last
    return {lane: at for lane, at in last.items() if clock.get(lane, 0) < at[0]}
