"""Raw accesses, noted while a rank runs, and the records made of them afterwards.

Note [What a recording costs]
    Almost all operators touch memory that only one stream ever uses. Such memory can
    neither race nor be freed too early. So a running rank notes raw facts alone. At the end,
    the facts about storages that several streams used become records. The storages are
    numbered at the end too, in order of appearance among those that remain, so a trace does
    not depend on the storages that were left out.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncverify.sim.recording.storages import NO_PARTS, PartsOfMemory, Storage
from syncverify.trace import records
from syncverify.trace.regions import MemoryRegion, strided_region
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import RawFrames, frames_of, line_of


class RawRegion(NamedTuple):
    """Where a tensor lies in memory, not worked out yet."""

    storage: Storage
    offset_numel: int  # elements of the storage before the first one of the tensor
    shape: Sequence[int]
    strides: Sequence[int]  # in elements, one a dim
    width_bytes: int  # of an element


class RawAccess(NamedTuple):
    """An operator that reads or writes memory."""

    position: int
    moment: records.Moment
    stream: str
    operator: str
    reads: Sequence[RawRegion]
    writes: Sequence[RawRegion]
    # Lines that called the operator, or its origin if none did.
    line: RawFrames | NoLine
    made: Sequence[RawRegion] = ()  # memory that the operator allocates


class RawFree(NamedTuple):
    """A storage that went away after `position` events of the rank were recorded."""

    position: int
    moment: records.Moment
    storage: Storage


@dataclass(slots=True)
class RawPlace:
    """A place in a rank's trace."""

    position: int
    index: int = 0  # number of records of the finished trace before it


def merged(
    events: Sequence[records.TraceRecord],
    raw: Iterable[RawAccess | RawFree | RawPlace],
    moved: PartsOfMemory = NO_PARTS,
    *,
    keeps_everything: bool = False,
) -> list[records.TraceRecord]:
    """Return a rank's events in host order, and find the index of each place.

    Accesses and frees come from `raw`, all other records from `events`. `keeps_everything`
    yields operators on memory of one stream too, without that memory, and keeps the numbers
    of storages. Else such an operator is left out, unless it is the first one on the stream of
    a pool since memory came back there: it may get that memory.
    """
    numbers = _Numbers(moved, are_final=not keeps_everything)
    found, done = list[records.TraceRecord](), 0
    given_back = set[str]()
    for entry in sorted(raw, key=lambda entry: entry.position):
        found += map(numbers.renumber, events[done : entry.position])
        done = entry.position
        if isinstance(entry, RawPlace):
            entry.index = len(found)
        elif isinstance(entry, RawFree):
            found.append(_freed(entry, numbers))
            given_back.add(entry.storage.stream)
        else:
            is_kept = keeps_everything or entry.stream in given_back
            given_back.discard(entry.stream)
            used = (*entry.reads, *entry.writes)  # mostly by one stream alone
            if is_kept or any(one.storage.is_shared for one in used):
                reads, writes = map(numbers.regions, (entry.reads, entry.writes))
                if reads or writes or is_kept:
                    found.append(_access(entry, reads, writes))
    found += map(numbers.renumber, events[done:])
    return found


def without_order(
    events: Sequence[records.TraceRecord], places: Sequence[RawPlace] = ()
) -> list[records.TraceRecord]:
    """Return the events but marks and waits, which order nothing where there is one stream.

    Places are moved to where they are among those.
    """
    orders = records.Mark | records.StreamWait | records.HostWait
    is_kept = [not isinstance(event, orders) for event in events]
    num_kept = [0, *itertools.accumulate(is_kept)]
    for place in places:
        place.position = num_kept[place.position]
    return list(itertools.compress(events, is_kept))


class _Numbers:
    """The numbers of storages in the finished trace.

    `moved` has memories that are parts of others: `StorageTable.moved`. Final numbers are in order
    of the first use in the trace, others are those that storages got while the rank ran.
    """

    def __init__(self, moved: PartsOfMemory, *, are_final: bool) -> None:
        self._numbers: dict[int, int] = {}
        self._moved = moved
        self._are_final = are_final

    def place_of(self, number: int) -> tuple[int, int]:
        """Return the number of a memory, and where it begins in a memory that it is a part of."""
        begin = 0
        while number in self._moved:
            number, position = self._moved[number]
            begin += position
        if self._are_final:
            number = self._numbers.setdefault(number, len(self._numbers))
        return number, begin

    def renumber(self, event: records.TraceRecord) -> records.TraceRecord:
        if isinstance(event, records.SubjectReturn):
            regions = {name: self._region(own) for name, own in event.gradients.items()}
            return dataclasses.replace(event, gradients=regions)
        if not isinstance(event, records.CollectiveLaunch):
            return event
        return dataclasses.replace(
            event,
            regions=tuple(map(self._region, event.regions)),
            written=tuple(map(self._region, event.written)),
        )

    def _region(self, region: MemoryRegion) -> MemoryRegion:
        number, begin = self.place_of(region.storage)
        ends = region.start_byte + begin, region.end_byte + begin
        return MemoryRegion(number, *ends, region.repeats)

    def regions(self, raw: Iterable[RawRegion]) -> tuple[MemoryRegion, ...]:
        """Return the regions of shared memory; an operator may be given a tensor twice."""
        regions = list[MemoryRegion]()
        for storage, offset, shape, strides, width in raw:
            if storage.is_shared and 0 not in shape:
                number, begin = self.place_of(storage.number)
                begin += storage.first_byte
                regions.append(
                    strided_region(number, offset, shape, strides, width, begin)
                )
        return tuple(dict.fromkeys(regions) if len(regions) > 1 else regions)


def _freed(raw: RawFree, numbers: _Numbers) -> records.StorageFreed:
    storage, made_at = raw.storage, raw.storage.made_at
    return records.StorageFreed(
        raw.moment,
        numbers.place_of(storage.number)[0],
        storage.stream,
        storage.recorded_streams,
        storage.num_bytes,
        storage.engine_streams,
        storage.recorded_at,
        made_at if isinstance(made_at, NoLine) else line_of(*made_at[0]),
    )


def _access(
    raw: RawAccess, reads: tuple[MemoryRegion, ...], writes: tuple[MemoryRegion, ...]
) -> records.Access:
    lines = (raw.line,) if isinstance(raw.line, NoLine) else frames_of(raw.line)
    source, *callers = lines
    done = raw.moment, raw.stream, raw.operator, reads, writes, source
    return records.Access(*done, callers=tuple(callers))
