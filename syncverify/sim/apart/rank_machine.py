"""The simulated machine in the process of one rank: its streams, groups, store and trace.

Each process has a copy of the state that ranks share, collectives and store. A rank that changes
it notes an update, and other ranks make the same change before their next turn. One rank runs at
a time, so that all copies pass through the same states.
"""

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from typing_extensions import override

from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import Arrived, RankEnded, SharedChange, StoreSet
from syncverify.sim.apart.remote_turns import RemoteTurns, TraceReporter
from syncverify.sim.device.streams import own_streams, use_streams
from syncverify.sim.machine import simulated_torch
from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.network.communicator import leave_groups
from syncverify.sim.network.rendezvous import Rendezvous, SimulatedWorld
from syncverify.sim.network.store import SimulatedStore
from syncverify.sim.network.work import without_memory
from syncverify.sim.recording.data_names import NamingRecorder
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.scheduler import enter_rank
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


class RankMachine(NamedTuple):
    """The simulated machine of one rank, for the player of its program."""

    turns: RemoteTurns
    recorder: RankRecorder
    world: SharedWorld
    store: SharedStore

    def ended(self, came_to: object, warnings: Iterable[str] = ()) -> RankEnded:
        """Return the last word of the rank, with the outcome of its program."""
        turns = self.turns
        ended = self.recorder.trace, self.world.mismatch, turns.stack
        return RankEnded(came_to, *ended, tuple(turns.updates), tuple(warnings))


class RankPlace(NamedTuple):
    """The place of a rank in a simulated machine."""

    rank: int
    num_ranks: int
    is_for_nccl: bool
    device: int | None = None  # number of the GPU that the program hears of, if any
    num_devices: int | None = None  # number of GPUs that it may name; None for any


@functools.cache
def _leave_in_children() -> None:
    """Let a process that a rank has forked, such as a loader of data, be no rank."""

    def leave() -> None:
        streams = own_streams()
        if streams is not None:
            streams.recorder.not_recording_accesses().__enter__()  # for good
            use_streams(None)
            enter_rank(None)
            leave_groups()

    os.register_at_fork(after_in_child=leave)


@contextmanager
def rank_machine(wire: Wire, place: RankPlace) -> Iterator[RankMachine]:
    """Make this thread a rank of a simulated machine, for the length of a block."""
    recorders = [NamingRecorder() for _ in range(place.num_ranks)]
    own = recorders[place.rank]  # the others record nothing
    if place.is_for_nccl:
        own.streams.backends.default = "nccl"
    if place.device is not None:
        own.streams.tell(torch.device("cuda", place.device), place.num_devices)
    telling = TraceReporter(wire, own)

    def take(updates: Iterable[SharedChange]) -> None:
        for update in updates:
            if isinstance(update, StoreSet):
                store.take(update)
            else:
                world.take(update)

    turns = RemoteTurns(wire, take, telling)
    own.streams.scheduler = turns
    tell, in_order = turns.updates.append, place.is_for_nccl
    world = SharedWorld(turns, recorders, completes_in_order=in_order, note=tell)
    store = SharedStore(turns, tell)

    _leave_in_children()
    enter_rank(place.rank)
    use_streams(own.streams)
    # The beat is no thread of the program, so it begins before those are watched.
    with telling.beating(), simulated_torch(world, store):
        yield RankMachine(turns, own, world, store)
