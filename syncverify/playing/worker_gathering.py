"""The outcomes of one scenario that workers of this machine send on their connections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from syncverify.playing.gathering import Gathering
from syncverify.playing.messages import (
    JobOutcome,
    JobStarted,
    OfJob,
    Status,
    StatusRequest,
)
from syncverify.processes.supervised import HungUp, Supervised, heard_from
from syncverify.trace.run import Fault

# A rank in which Python runs answers within this share of a window, on a thread for that.
_ANSWER_SHARE = 0.6


@dataclass(kw_only=True)
class WorkerGathering(Gathering[Supervised]):
    """The outcomes that workers send.

    Attributes:
        started: Ranks of which the worker has taken the job.
    """

    job: int
    started: set[int] = field(default_factory=set)

    def has_started(self, fault: Fault | None) -> bool:
        """Tell whether the workers at fault had taken the job."""
        return fault is not None and self.started.issuperset(fault.ranks)

    def send(self, rank: int, message: object) -> None:
        """Send a message to a rank; a rank that is gone has died."""
        try:
            self.processes[rank].send(message)
        except OSError:
            self.died[rank] = self.processes[rank].exit_reason()

    @override
    def _receive(self, patience_seconds: float) -> bool:
        return self._receive_from(self.pending(), patience_seconds)

    def _receive_from(self, ranks: Sequence[int], seconds: float) -> bool:
        """Receive what some ranks send first; return False if nothing came in the time."""
        by_process = {self.processes[rank]: rank for rank in ranks}
        heard = heard_from([*by_process], seconds)
        for process in heard:
            for message in process.hear():
                self._note(by_process[process], message)
        return bool(heard)

    def _note(self, rank: int, received: object) -> None:
        if isinstance(received, HungUp):
            self.died[rank] = self.processes[rank].exit_reason()
        if not isinstance(received, OfJob) or received.number != self.job:
            return
        match received.message:
            case JobStarted():
                self.started.add(rank)
            case JobOutcome():
                self.outcomes[rank] = received.message
                self.statuses.pop(rank, None)
            case Status() if rank not in self.outcomes:
                self.statuses[rank] = received.message

    @override
    def _ask(self, seconds: float) -> None:
        self.statuses.clear()
        for rank in self.pending():
            self.send(rank, StatusRequest())
        # All ranks answer meanwhile: two that are silent cost the time of one.
        deadline = time.monotonic() + _ANSWER_SHARE * seconds
        while asked := [
            rank for rank in self.silent() if not self.processes[rank].is_stopped()
        ]:
            if not self._receive_from(asked, max(0.0, deadline - time.monotonic())):
                break
        for rank in self.silent():
            # A process that the subject has forked may keep the connection open.
            if self.processes[rank].has_ended():
                self.died[rank] = self.processes[rank].exit_reason()
