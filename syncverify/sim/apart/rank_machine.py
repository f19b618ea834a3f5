"""The simulated machine in the process of one rank: its streams, groups, store and trace."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import RankEnded, SharedChange, StoreSet
from syncverify.sim.apart.remote_turns import RemoteTurns, TraceReporter
from syncverify.sim.apart.shared_state import SharedStore, SharedWorld
from syncverify.sim.device.streams import own_streams, use_streams
from syncverify.sim.machine import simulated_torch
from syncverify.sim.network.communicator import leave_groups
from syncverify.sim.recording.data_names import NamingRecorder
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.scheduler import enter_rank


@dataclass(frozen=True, slots=True)
class RankMachine:
    """The simulated machine of one rank, for the player of its program."""

    turns: RemoteTurns
    recorder: RankRecorder
    world: SharedWorld
    store: SharedStore

    def ended(self, came_to: object, warnings: Iterable[str] = ()) -> RankEnded:
        """Return the last word of the rank, with the outcome of its program."""
        return RankEnded(
            came_to,
            self.recorder.trace,
            self.world.mismatch,
            self.turns.stack,
            tuple(self.turns.updates),
            tuple(warnings),
        )


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The place of a rank in a simulated machine."""

    rank: int
    num_ranks: int
    is_for_nccl: bool
    # Number of the GPU that the program hears of; None for the CPU.
    device: int | None = None
    # Number of GPUs that the program may name; None for any number.
    num_devices: int | None = None

    def recorders(self) -> list[RankRecorder]:
        """Make the recorders of all ranks, of which one records."""
        recorders: list[RankRecorder] = [
            NamingRecorder() for _ in range(self.num_ranks)
        ]
        streams = recorders[self.rank].streams
        if self.is_for_nccl:
            streams.backends.default = "nccl"
        if self.device is not None:
            streams.tell(torch.device("cuda", self.device), self.num_devices)
        return recorders


@functools.cache
def _leave_in_children() -> None:
    os.register_at_fork(after_in_child=_leave)


def _leave() -> None:
    """Let a process that a rank has forked, such as a loader of data, be no rank."""
    streams = own_streams()
    if streams is not None:
        streams.recorder.not_recording_accesses().__enter__()  # for good
        use_streams(None)
        enter_rank(None)
        leave_groups()


@contextmanager
def rank_machine(wire: Wire, place: RankPlace) -> Iterator[RankMachine]:
    """Make this thread a rank of a simulated machine, for the length of a block."""
    recorders = place.recorders()
    own = recorders[place.rank]
    telling = TraceReporter(wire, own)

    def take(updates: Iterable[SharedChange]) -> None:
        for update in updates:
            if isinstance(update, StoreSet):
                store.take(update)
            else:
                world.take(update)

    turns = RemoteTurns(wire, take, telling)
    own.streams.scheduler = turns
    world = SharedWorld(
        turns,
        recorders,
        completes_in_order=place.is_for_nccl,
        note=turns.updates.append,
    )
    store = SharedStore(turns, turns.updates.append)

    _leave_in_children()
    enter_rank(place.rank)
    use_streams(own.streams)
    # The beat is no thread of the program, so it begins before those are watched.
    with telling.beating(), simulated_torch(world, store):
        yield RankMachine(turns, own, world, store)
