"""The state that ranks share, collectives and store, as each process knows it.

Each process has a copy. A rank that changes it notes an update, and other ranks make the same
change before their next turn. One rank runs at a time, so that all copies pass through the same
states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from typing_extensions import override

from syncverify.sim.apart.messages import Arrived, SharedChange, StoreSet
from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.network.rendezvous import Rendezvous, SimulatedWorld
from syncverify.sim.network.store import SimulatedStore
from syncverify.sim.network.work import without_memory
from syncverify.sim.turns.stalls import TurnTaking
from syncverify.trace.records import CollectiveKey

TellChange = Callable[[SharedChange], object]


@dataclass(slots=True)
class _OwnRendezvous(Rendezvous):
    """A rendezvous in one process, which drops all tensors once its rank has the results."""

    @override
    def forget(self, seat: int) -> None:
        self.calls[:] = [
            call and replace(call, inputs=[], outputs=[]) for call in self.calls
        ]


@dataclass(slots=True)
class SharedWorld(SimulatedWorld):
    """The collectives of all ranks."""

    note: TellChange = field(kw_only=True)

    @override
    def rendezvous(self, key: CollectiveKey) -> Rendezvous:
        if key not in self.collectives:
            found = super(SharedWorld, self).rendezvous(key)
            self.collectives[key] = _OwnRendezvous(found.ranks, found.name, found.calls)
        return self.collectives[key]

    @override
    def arrive(self, key: CollectiveKey, seat: int, call: CollectiveCall) -> None:
        super(SharedWorld, self).arrive(key, seat, call)
        arrived = replace(call, outputs=without_memory(call.outputs))
        self.note(Arrived(key, seat, arrived))

    def take(self, update: Arrived) -> None:
        """Make a change that another rank has made."""
        # Not `arrive`: the rank that issued the call has told all others.
        self.rendezvous(update.key).calls[update.seat] = update.call


class SharedStore(SimulatedStore):
    """The store of all ranks."""

    def __init__(self, turns: TurnTaking, note: TellChange) -> None:
        super().__init__(turns)
        self._note = note

    @override
    def _changed(self, key: str) -> None:
        self._note(StoreSet(key, self._values.get(key)))

    def take(self, update: StoreSet) -> None:
        """Make a change that another rank has made."""
        if update.value is None:
            self._values.pop(update.key, None)
        else:
            self._values[update.key] = update.value
