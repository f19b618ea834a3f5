"""Handles of simulated collectives: results arrive when they are waited for."""

# torch's stubs overload these methods for call styles that no caller uses here.
# mypy: disable-error-code="override, assignment"

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.sim.collectives import Call, compute, deliver
from syncverify.sim.meetings import Meeting
from syncverify.trace import CollectiveLaunch

if TYPE_CHECKING:
    from syncverify.sim.process_group import SimulatedProcessGroup


class SimulatedWork(dist.Work):
    """Handle of a simulated collective; results arrive when it is waited for."""

    def __init__(
        self, group: SimulatedProcessGroup, meeting: Meeting, launched: CollectiveLaunch
    ) -> None:
        super().__init__()
        self._group = group
        self._meeting = meeting
        self._launched = launched
        self._delivered = False

    @override
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block this rank until all ranks arrived, then deliver."""
        if not self._delivered:
            self._group.await_meeting(self._meeting, self._launched)
            self._deliver()
        return True

    @override
    def is_completed(self) -> bool:
        """Let other ranks move on, then tell whether it is done, as far as it shows."""
        if not self._delivered and self._shows():
            self._deliver()
        return self._delivered

    def _shows(self) -> bool:
        # It may not show yet, though all ranks have arrived. But a communicator completes
        # in order: once a later collective has shown, so has this one.
        sequence, group = self._meeting.sequence, self._group
        if sequence >= group.num_seen_complete and not group.world.scheduler.poll(
            "is_completed", self._meeting.name, lambda: self._meeting.is_complete
        ):
            return False
        group.num_seen_complete = max(group.num_seen_complete, sequence + 1)
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
        return self._own_call().outputs

    @override
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a completed future.

        C++ code (the reducer of DistributedDataParallel) waits for futures where no turn
        can be given away, so the wait happens here.
        """
        self.wait()
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._own_call().outputs)
        return future

    def _own_call(self) -> Call:
        call = self._meeting.calls[self._group.rank()]
        assert call is not None  # this rank arrived when the work was made
        return call

    def _deliver(self) -> None:
        calls = [call for call in self._meeting.calls if call is not None]
        values = compute(calls, self._group.rank())
        deliver(values, self._own_call().outputs)
        self._delivered = True
        self._group.recorder.wait(self._launched)
