"""The timeline of a run as a value: events in lanes, and the arrows between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from syncverify.trace.source_lines import Origin

CALLS = "calls"  # lane of the program that queues all work

EventKind = Literal[
    "call",
    "accumulate",
    "operator",
    "optimizer",
    "collective",
    "wait",
    "mark",
    "stream_wait",
    "host_wait",
    "stream_created",
    "freed",
]
ArrowKind = Literal["launch", "match", "mismatch", "wait", "order"]
RecordKey = tuple[int, int]  # rank, and position in its trace


@dataclass(frozen=True, slots=True)
class LanePoint:
    """A point of the timeline.

    Attributes:
        lane: Name of the lane.
        tick: Tick in the lane.
    """

    rank: int
    lane: str
    tick: int


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One action of a rank.

    Attributes:
        place: Where the event begins.
        end: Tick at which the event has ended. A collective may use its memory until the rank
            waits for it.
        kind: Kind of the action.
        name: The action in a few words.
        moment: Point of the training run, in words.
        source: Origin of the work; None where a record has none.
        parameters: Names of parameters with gradients in the memory.
        num_bytes: Bytes that are written, or else read, gaps included; of a collective, bytes
            that the rank contributes; of memory that is freed, its size.
        is_open: Whether a collective never ends, because some rank never launches it.
    """

    place: LanePoint
    end: int
    kind: EventKind
    name: str
    moment: str
    source: Origin | None = None
    parameters: tuple[str, ...] = ()
    num_bytes: int = 0
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A relation of two places.

    Attributes:
        kind: A launch, two ranks that meet in a collective (`match`, or `mismatch` where they
            disagree), a wait for a collective, or an order between streams or of the host.
        tail: Place that comes first: of an event, or of a launch on the stream that issued it.
        head: Place of the event that follows.
    """

    kind: ArrowKind
    tail: LanePoint
    head: LanePoint


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events and arrows of a run.

    Attributes:
        lanes: Lanes of each rank, `calls` first, then streams in the order of their use.
        events: One entry for each record except `SubjectReturn`, by rank and position.
        arrows: Relations between places.
        num_ticks: Length in ticks.
    """

    lanes: Mapping[int, tuple[str, ...]]
    events: Mapping[RecordKey, TimelineEvent]
    arrows: tuple[Arrow, ...]
    num_ticks: int
