"""The words between the ranks of a run, each a process, and the process that hands out turns.

The hub sends `YourTurn`, `GoOn` and `End`; a rank sends the others.
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
    """All is imported, and the program of a rank starts."""


class TurnOver(NamedTuple):
    """A rank waits or lets others run, or asks for its first turn."""

    can_go_on: bool
    awaited: Wait | None
    line: CodeLine | NoLine
    updates: Sequence[SharedChange]
    paused_seconds: float  # length of its sleeps since its last turn
    num_records: int


class YourTurn(NamedTuple):
    """A rank may go on."""

    updates: Sequence[SharedChange]  # what other ranks did meanwhile


class GoOn:
    """No rank can run any more, so hosts go on in waits of streams, without values."""


class End:
    """The run is over: unwind."""


class Moved(NamedTuple):
    """A rank has recorded something: told once a second, and as `TraceReporter` says."""

    num_records: int
    last_launch: CollectiveLaunch | None = None  # that it has issued
    trace: list[TraceRecord] | None = None  # so far


class RankEnded(NamedTuple):
    """A rank has returned, raised or been unwound: its last word.

    `came_to` is the outcome of its program, as the player says it; `is_failure` ends the run. None
    if the player has none.
    """

    came_to: Any
    trace: list[TraceRecord]
    mismatch: Mismatch | None = None
    stack: tuple[CodeLine, ...] = ()
    updates: Sequence[SharedChange] = ()
    warnings: tuple[str, ...] = ()
