"""The simulated machine in the process of one rank: its streams, groups, store and trace."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

from syncverify.processes.owner_link import start_beat
from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import Moved, RankEnded
from syncverify.sim.apart.remote_turns import RemoteTurns
from syncverify.sim.apart.shared_state import SharedState, SharedStore, SharedWorld
from syncverify.sim.device.streams import own_streams, use_streams
from syncverify.sim.machine import simulated_torch
from syncverify.sim.network.communicator import leave_groups
from syncverify.sim.recording.data_names import NamingRecorder
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.scheduler import enter_rank
from syncverify.trace.records import CollectiveLaunch

# A rank tells its trace when it has grown by this share, so that a lost rank loses no more.
_NEW_PART: Final = 0.25


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


class _TraceReporter:
    """Tells the trace of a rank before the rank ends."""

    def __init__(self, wire: Wire, recorder: RankRecorder) -> None:
        self._wire = wire
        self._recorder = recorder
        self._next_told = 1.0
        self._num_seen = self._num_told = 0

    def num_records(self) -> int:
        """Return the number of records so far, accesses included."""
        return self._recorder.num_recorded

    def tell_what_is_new(self) -> None:
        """Tell the last collective that is new, and the trace so far if much of it is new."""
        trace = self._recorder.trace
        new, self._num_seen = trace[self._num_seen :], len(trace)
        launches = [each for each in new if isinstance(each, CollectiveLaunch)]
        num_records = self.num_records()
        if num_records >= self._next_told:
            self._next_told = (1 + _NEW_PART) * num_records + 1
            self.tell(*launches[-1:])
        elif launches:
            self._wire.send(Moved(num_records, launches[-1]))

    def tell(self, last_launch: CollectiveLaunch | None = None) -> None:
        """Tell the trace so far."""
        trace = self._recorder.recorded_so_far()
        self._wire.send(Moved(self.num_records(), last_launch, trace))

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Tell once a second, within a block, that the rank has recorded something since."""
        end = threading.Event()
        thread = start_beat(self._beat, OSError, end)
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _beat(self) -> None:
        if self.num_records() != self._num_told:
            self._num_told = self.num_records()
            self._wire.send(Moved(self._num_told))


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
    telling = _TraceReporter(wire, own)
    turns = RemoteTurns(
        wire,
        lambda updates: state.take(updates),
        telling.num_records,
        telling.tell_what_is_new,
        telling.tell,
    )
    own.streams.scheduler = turns
    world = SharedWorld(
        turns,
        recorders,
        completes_in_order=place.is_for_nccl,
        note=turns.updates.append,
    )
    store = SharedStore(turns, turns.updates.append)
    state = SharedState(world, store)

    _leave_in_children()
    enter_rank(place.rank)
    use_streams(own.streams)
    # The beat is no thread of the program, so it begins before those are watched.
    with telling.beating(), simulated_torch(world, store):
        yield RankMachine(turns, own, world, store)
