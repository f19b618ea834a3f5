"""Handles of simulated collectives: results arrive when they are waited for."""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

import dataclasses
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
    from syncverify.sim.process_group import SimulatedProcessGroup


class SimulatedWork(dist.Work):
    """Handle of a simulated collective; results arrive when it is waited for."""

    def __init__(
        self,
        group: SimulatedProcessGroup,
        meeting: Meeting,
        call: Call,
        launched: CollectiveLaunch,
    ) -> None:
        super().__init__()
        self._group = group
        self._meeting = meeting
        self._launched = launched
        self._delivered = False
        self._outputs = call.outputs
        self._streams = own_streams()
        if self._streams is not None:
            self._streams.in_flight.append(self)

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block this rank until all ranks arrived, then deliver."""
        if not self._delivered:
            self._group.await_meeting(self._meeting, self._launched)
            self._deliver()
        return True

    @override
    def is_completed(self) -> bool:
        """Let other ranks move on, then tell whether all have arrived."""
        self._group.world.scheduler.yield_turn()
        if self._meeting.is_complete and not self._delivered:
            self._deliver()
        return self._delivered

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

    def _deliver(self) -> None:
        delivered = [call for call in self._meeting.calls if call is not None]
        with self._group.recorder.not_recording_accesses():
            values = compute(delivered, self._group.rank())
            deliver(values, self._outputs)
        # The meeting lives as long as the run, and must not hold the tensors any more.
        own, calls = self._group.rank(), self._meeting.calls
        calls[own] = dataclasses.replace(delivered[own], outputs=[])
        if self._streams is not None:
            self._streams.in_flight.remove(self)
        self._delivered = True
        self._group.recorder.wait(self._launched)
