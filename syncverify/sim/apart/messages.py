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

from collections.abc import Sequence
from typing import Any, NamedTuple

from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.network.rendezvous import Mismatch
from syncverify.sim.turns.stalls import Wait
from syncverify.trace.records import CollectiveKey, CollectiveLaunch, TraceRecord
from syncverify.trace.source_lines import CodeLine, NoLine


class Arrived(NamedTuple):
    """A rank has issued its call for a collective."""

    key: CollectiveKey
    seat: int  # place of the rank in the group
    call: CollectiveCall


class StoreSet(NamedTuple):
    """A key of the store that changed."""

    key: str
    value: bytes | None  # None where the key was deleted


SharedChange = Arrived | StoreSet


class Begun:
    """The program of a rank starts."""


class TurnOver(NamedTuple):
    """A rank gives its turn back, or asks for its first one."""

    can_go_on: bool
    awaited: Wait | None
    line: CodeLine | NoLine
    updates: Sequence[SharedChange]
    paused_seconds: float  # length of its sleeps since its last turn
    num_records: int


class YourTurn(NamedTuple):
    """A rank may go on."""

    updates: Sequence[SharedChange]


class GoOn:
    """No rank can run any more, so hosts go on in waits of streams."""


class End:
    """The run is over: unwind."""


class Moved(NamedTuple):
    """A rank has recorded something."""

    num_records: int
    last_launch: CollectiveLaunch | None = None  # that it has issued
    trace: list[TraceRecord] | None = None  # so far


class RankEnded(NamedTuple):
    """A rank has ended.

    `came_to` is the outcome of its program, as the player says it; `is_failure` ends the run. None
    if the player has none.
    """

    came_to: Any
    trace: list[TraceRecord]
    mismatch: Mismatch | None = None
    stack: tuple[CodeLine, ...] = ()
    updates: Sequence[SharedChange] = ()
    warnings: tuple[str, ...] = ()
