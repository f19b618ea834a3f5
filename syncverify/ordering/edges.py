"""Waits that a subject could have had, and the traces that it would have left then.

An edge stands for a line of code, so it is put wherever that line would run: on every
rank, in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from typing_extensions import override

from syncverify.ordering.happens_before import Traces
from syncverify.trace import (
    AUTOGRAD,
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Event,
    LifecycleReturn,
    Mark,
    Phase,
    StorageFreed,
    StreamWait,
)

# Recorded and waited for at once, so that one number serves all.
_INSERTED_MARK = -1
# What a recorder writes where no line of the subject asked for the work.
NO_LINES = frozenset({AUTOGRAD, "optimizer", "unknown line"})


@dataclass(frozen=True, slots=True)
class BeforeUse:
    """Before a line of code queues work on a stream."""

    source: str
    stream: str

    @override
    def __str__(self) -> str:
        """Say it in words."""
        if self.source in NO_LINES:
            return f"before {self.source} goes on"
        return f"before {self.source}"

    def is_before(self, event: Event) -> bool:
        """Tell whether an event is such work."""
        return (
            isinstance(event, Access | CollectiveLaunch)
            and event.source == self.source
            and event.stream == self.stream
        )


@dataclass(frozen=True, slots=True)
class BeforeReturn:
    """Before the subject returns from a call."""

    phase: Phase

    @override
    def __str__(self) -> str:
        """Say it in words."""
        return f"before {self.phase}() returns"

    def is_before(self, event: Event) -> bool:
        """Tell whether an event is such a return."""
        return isinstance(event, LifecycleReturn) and event.moment.phase == self.phase


@dataclass(frozen=True, slots=True)
class BeforeFree:
    """Before the last reference to memory of some stream's pool goes away."""

    stream: str

    @override
    def __str__(self) -> str:
        """Say it in words."""
        return "before the last reference to its memory goes away"

    def is_before(self, event: Event) -> bool:
        """Tell whether an event is such a free."""
        return isinstance(event, StorageFreed) and event.stream == self.stream


Place = BeforeUse | BeforeReturn | BeforeFree


@dataclass(frozen=True, slots=True)
class WaitForStream:
    """One stream waits for all that another one holds."""

    waiting: str
    awaited: str
    place: Place

    @override
    def __str__(self) -> str:
        """Say what to insert."""
        return f"insert `{self.waiting}.wait_stream({self.awaited})` {self.place}"

    def applied(self, traces: Traces) -> Traces:
        """Return what the traces would be."""

        def insert(event: Event, _before: Sequence[Event]) -> Iterator[Event]:
            yield Mark(event.moment, self.awaited, _INSERTED_MARK, "")
            yield StreamWait(event.moment, self.waiting, _INSERTED_MARK, "")

        return [_inserted(events, self.place, insert) for events in traces]


@dataclass(frozen=True, slots=True)
class WaitForWork:
    """A stream waits for collectives that a line launched."""

    waiting: str
    operation: str
    launched_at: str
    place: Place

    @override
    def __str__(self) -> str:
        """Say what to insert."""
        return (
            f"insert `work.wait()` of the {self.operation} launched at "
            f"{self.launched_at}, while `{self.waiting}` is current, {self.place}"
        )

    def applied(self, traces: Traces) -> Traces:
        """Return what the traces would be."""

        def insert(event: Event, before: Sequence[Event]) -> Iterator[Event]:
            for launch in before:
                if (
                    isinstance(launch, CollectiveLaunch)
                    and launch.source == self.launched_at
                ):
                    yield CollectiveWait(
                        event.moment,
                        launch.ranks,
                        launch.sequence,
                        self.waiting,
                        launch.communicator,
                    )

        return [_inserted(events, self.place, insert) for events in traces]


@dataclass(frozen=True, slots=True)
class RecordStream:
    """The allocator learns that a stream uses some memory."""

    stream: str
    used_at: str

    @override
    def __str__(self) -> str:
        """Say what to insert."""
        return (
            f"insert `tensor.record_stream({self.stream})` after {self.used_at}, or hold "
            f"a reference until its stream waited for `{self.stream}`"
        )

    def applied(self, traces: Traces) -> Traces:
        """Return what the traces would be."""
        return [self._applied(events) for events in traces]

    def _applied(self, events: Sequence[Event]) -> list[Event]:
        used = {
            storage
            for event in events
            if isinstance(event, Access | CollectiveLaunch)
            and event.source == self.used_at
            for storage in _storages(event)
        }
        return [
            replace(event, recorded_streams=(*event.recorded_streams, self.stream))
            if isinstance(event, StorageFreed) and event.storage in used
            else event
            for event in events
        ]


Edge = WaitForStream | WaitForWork | RecordStream


def _inserted(
    events: Sequence[Event],
    place: Place,
    insert: Callable[[Event, Sequence[Event]], Iterator[Event]],
) -> list[Event]:
    """Insert events at a place; `insert` also sees what came since the last one."""
    result: list[Event] = []
    since = 0
    for event in events:
        if place.is_before(event):
            inserted = list(insert(event, result[since:]))
            result += inserted
            since = len(result)
        result.append(event)
    return result


def _storages(use: Access | CollectiveLaunch) -> set[int]:
    if isinstance(use, Access):
        return {region.storage for region in (*use.reads, *use.writes)}
    return {region.storage for region in (*use.regions, *use.written)}
