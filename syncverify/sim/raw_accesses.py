"""What is written down while a rank runs, and how it becomes events afterwards.

Note [What a recording costs]
    Almost all operators touch memory that only one stream ever sees, which can neither
    race nor be freed too early. So while a rank runs we write down no more than raw
    facts, and turn into events, at the end, those about storages that several streams had
    to do with. Storages are numbered then, in order of appearance among those that are
    left, so that a trace does not depend on what was left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

from typing_extensions import override

from syncverify.memory import MemoryRegion, strided_region
from syncverify.sim.storages import Storage
from syncverify.sourcelines import line_of
from syncverify.trace import (
    Access,
    CollectiveLaunch,
    Event,
    HostWait,
    LifecycleReturn,
    Mark,
    Moment,
    StorageFreed,
    StreamWait,
)

# A tensor's place in memory: storage, offset, shape, strides, bytes of an element.
Touch = tuple[Storage, int, Sequence[int], Sequence[int], int]


# An access: how many events there were before, when, on which stream, which operator, what
# it reads, what it writes, and code and instruction that asked for it, or words instead.
RawAccess = tuple[
    int,
    Moment,
    str,
    str,
    Sequence[Touch],
    Sequence[Touch],
    "tuple[CodeType, int] | str",
]
# A storage that went away: how many events there were before, when, which.
RawFree = tuple[int, Moment, Storage]


def merged(
    events: Sequence[Event],
    raw: Iterable[RawAccess | RawFree],
    *,
    keeps_everything: bool = False,
) -> Iterator[Event]:
    """Yield a rank's events in host order.

    Args:
        events: All but those about accesses.
        raw: The rest.
        keeps_everything: Whether to yield operators of one stream's own memory, too,
            without that memory, and to leave the numbers of storages alone.
    """
    numbers = _GivenNumbers() if keeps_everything else _FinalNumbers()
    done = 0
    for entry in sorted(raw, key=lambda entry: entry[0]):
        yield from map(numbers.renumber, events[done : entry[0]])
        done = entry[0]
        if len(entry) == 3:
            yield _freed(entry, numbers)
        else:
            yield from _access(entry, numbers)
    yield from map(numbers.renumber, events[done:])


def without_order(events: Iterable[Event]) -> list[Event]:
    """Leave out what orders streams: there is only one."""
    order = (Mark, StreamWait, HostWait)
    return [event for event in events if not isinstance(event, order)]


class _FinalNumbers:
    keeps_everything = False

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def of(self, number: int) -> int:
        return self._numbers.setdefault(number, len(self._numbers))

    def renumber(self, event: Event) -> Event:
        if isinstance(event, LifecycleReturn):
            lie = {name: self._region(own) for name, own in event.gradients.items()}
            return dataclasses.replace(event, gradients=lie)
        if not isinstance(event, CollectiveLaunch):
            return event
        return dataclasses.replace(
            event,
            regions=tuple(map(self._region, event.regions)),
            written=tuple(map(self._region, event.written)),
        )

    def _region(self, region: MemoryRegion) -> MemoryRegion:
        return dataclasses.replace(region, storage=self.of(region.storage))


class _GivenNumbers(_FinalNumbers):
    keeps_everything = True

    @override
    def of(self, number: int) -> int:
        return number


def _freed(raw: RawFree, numbers: _FinalNumbers) -> StorageFreed:
    _, moment, storage = raw
    number = numbers.of(storage.number)
    return StorageFreed(
        moment,
        number,
        storage.stream,
        storage.recorded_streams,
        storage.num_bytes,
        storage.engine_streams,
    )


def _access(raw: RawAccess, numbers: _FinalNumbers) -> Iterator[Access]:
    _, moment, stream, operator, read, written, place = raw
    reads, writes = _regions(read, numbers), _regions(written, numbers)
    if reads or writes or numbers.keeps_everything:
        line = place if isinstance(place, str) else line_of(*place)
        yield Access(moment, stream, operator, reads, writes, line)


def _regions(
    touches: Iterable[Touch], numbers: _FinalNumbers
) -> tuple[MemoryRegion, ...]:
    regions = [
        strided_region(numbers.of(storage.number), offset, shape, strides, width)
        for storage, offset, shape, strides, width in touches
        if storage.is_shared and 0 not in shape
    ]
    return tuple(dict.fromkeys(regions))  # an operator may be given a tensor twice
