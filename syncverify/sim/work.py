"""Handles of simulated collectives: results arrive when they are waited for."""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.collectives import Call, compute, deliver
from syncverify.sim.meetings import Meeting
from syncverify.sim.streams import own_streams
from syncverify.trace import CollectiveLaunch

if TYPE_CHECKING:
    from syncverify.sim.communicator import SimulatedCommunicator


class SimulatedWork(dist.Work):
    """Handle of a simulated collective; results arrive when it is waited for."""

    def __init__(
        self,
        group: SimulatedCommunicator,
        meeting: Meeting,
        seat: int,
        call: Call,
        launched: CollectiveLaunch,
    ) -> None:
        super().__init__()
        self._group = group
        self._meeting = meeting
        self._seat = seat
        self._launched = launched
        self._delivered = False
        self._outputs = call.outputs
        # As NCCL's work does since torch 2.8 in place of `record_stream`: what it uses
        # goes back to its pool after a stream was told to wait for it, and not before.
        self._held = call.inputs
        self._streams = own_streams()
        if self._streams is not None:
            self._streams.in_flight.append(self)

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block this rank until all ranks arrived, then deliver."""
        if not self._delivered and not self._group.is_held_back(self):
            self._complete(self._await_and_deliver)
        return True

    @override
    def is_completed(self) -> bool:
        """Let other ranks move on, then tell whether it is done, as far as it shows."""
        if not self._delivered and self._shows():
            self._complete(self._deliver)
        return self._delivered

    def _shows(self) -> bool:
        # It may not show yet, though all ranks have arrived. But a communicator completes
        # in order: once a later collective has shown, so has this one.
        seen = self._group.num_seen_complete
        communicator, ranks, sequence = self._launched.place
        meetings = communicator, ranks
        if sequence >= seen[meetings] and not self._group.poll_meeting(
            self._meeting, self._launched
        ):
            return False
        seen[meetings] = max(seen[meetings], sequence + 1)
        return True

    @override
    def is_success(self) -> bool:
        return self._delivered

    @override
    def synchronize(self) -> None:
        self.wait()

    @override
    def result(self) -> list[torch.Tensor]:
        self.wait()
        return self._outputs

    @override
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a completed future.

        C++ code (the reducer of DistributedDataParallel) waits for futures where no turn
        can be given away, so the wait happens here.
        """
        self.wait()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._outputs)
        return future

    def _complete(self, deliver: Callable[[], None]) -> None:
        self._group.recorder.end(self._launched, deliver)
        if self._streams is not None:
            self._streams.in_flight.remove(self)
        self._delivered = True
        self._group.recorder.wait(self._launched)
        self._held = []

    def _await_and_deliver(self) -> None:
        self._group.await_meeting(self._meeting, self._launched)
        self._deliver()

    def _deliver(self) -> None:
        delivered = [call for call in self._meeting.calls if call is not None]
        with self._group.recorder.not_recording_accesses():
            deliver(compute(delivered, self._seat), self._outputs)
        # The meeting lives as long as the run, and must not hold the tensors any more.
        self._meeting.calls[self._seat] = dataclasses.replace(
            delivered[self._seat], outputs=[]
        )


class CoalescedWork(dist.Work):
    """Handle of several collectives that were issued as one.

    Args:
        works: Handles of the collectives.
    """

    def __init__(self, works: Sequence[SimulatedWork]) -> None:
        super().__init__()
        self._works = works

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for all of them."""
        return all(work.wait() for work in self._works)

    @override
    def is_completed(self) -> bool:
        """Let other ranks move on, then tell whether all are complete."""
        return all(work.is_completed() for work in self._works)

    @override
    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    @override
    def synchronize(self) -> None:
        self.wait()
