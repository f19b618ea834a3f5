"""The words between the ranks of a run, each a process, and the process that hands out turns.

| word | from | when |
|---|---|---|
| `YourTurn` | the hub | a rank may go on; it hears what other ranks did meanwhile |
| `GoOn` | the hub | no rank can run: hosts go on in waits of streams, without values |
| `End` | the hub | the run is over |
| `Begun` | a rank | all is imported, and its program starts |
| `TurnOver` | a rank | it waits, or lets others run |
| `Moved` | a rank | once a second, if it has recorded anything since; it has issued collectives; its trace has grown by a quarter: a rank that is lost has told most of it |
| `RankEnded` | a rank | it has returned, raised or been unwound; its last word |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.network.rendezvous import Mismatch
from syncverify.sim.turns.stalls import Wait
from syncverify.trace.records import CollectiveKey, CollectiveLaunch, TraceRecord
from syncverify.trace.source_lines import CodeLine, NoLine


@dataclass(frozen=True, slots=True)
class Arrived:
    """A rank has issued its call for a collective."""

    key: CollectiveKey
    # Place of the rank in the group.
    seat: int
    call: CollectiveCall


@dataclass(frozen=True, slots=True)
class StoreSet:
    """A key of the store that changed."""

    key: str
    # The new value; None where the key was deleted.
    value: bytes | None


SharedChange = Arrived | StoreSet


@dataclass(frozen=True, slots=True)
class Begun:
    """The program of a rank starts."""


@dataclass(frozen=True, slots=True)
class TurnOver:
    """A rank gives its turn back, or asks for its first one."""

    can_go_on: bool
    awaited: Wait | None
    line: CodeLine | NoLine
    updates: tuple[SharedChange, ...]
    # Length of its sleeps since its last turn.
    paused_seconds: float
    num_records: int


@dataclass(frozen=True, slots=True)
class YourTurn:
    """A rank may go on."""

    updates: Sequence[SharedChange]


@dataclass(frozen=True, slots=True)
class GoOn:
    """No rank can run any more, so hosts go on in waits of streams."""


@dataclass(frozen=True, slots=True)
class End:
    """The run is over: unwind."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A rank has recorded something: told once a second, and where a part is told at once."""

    num_records: int
    # The last collective that it has issued, as its record in the trace says it.
    last_launch: CollectiveLaunch | None = None
    # The trace of the rank so far.
    trace: list[TraceRecord] | None = None


@dataclass(frozen=True, slots=True)
class RankEnded:
    """A rank has ended."""

    # Outcome of its program, as the player says it; `is_failure` ends the run. None if
    # the player has none.
    came_to: Any
    trace: list[TraceRecord]
    mismatch: Mismatch | None = None
    stack: tuple[CodeLine, ...] = ()
    updates: tuple[SharedChange, ...] = ()
    warnings: tuple[str, ...] = ()
