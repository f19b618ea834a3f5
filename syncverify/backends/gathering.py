"""The outcomes of one scenario that workers play, gathered until all are there or none comes.

Note [Patience with processes]
    A rank that waits for a peer uses no processor time, and a rank that works uses some,
    however busy the machine is. So after each window without an outcome, processor time
    decides, as on `sim` (`HangDetector`): the run is over when no rank used any, or when one
    used a whole window of it and recorded nothing. A wall clock alone would accuse right
    subjects on a busy machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from syncverify.backends.messages import JobOutcome, JobStarted, Status, StatusRequest
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.processes.hang_detector import Finding, HangDetector
from syncverify.trace.run import Fault

_AFTERSHOCK_SECONDS = 2.0


@dataclass(slots=True)
class Gathering:
    """The outcomes of one scenario so far.

    Attributes:
        workers: One for each rank, in rank order.
        patience_seconds: Length of a window, in wall time and in processor time.
        started: Ranks of which the worker has taken the job.
        outcomes: The outcomes that arrived, by rank.
        died: The signal or exit code of each worker that died, by rank.
        statuses: In the end, the status of each rank that has no outcome, and answers.
    """

    workers: list[WorkerProcess]
    patience_seconds: float
    started: set[int] = field(default_factory=set)
    outcomes: dict[int, JobOutcome] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)
    statuses: dict[int, Status] = field(default_factory=dict)

    def pending(self) -> list[int]:
        """Return the ranks that have a live worker and no outcome."""
        ended = {*self.outcomes, *self.died}
        return [rank for rank in range(len(self.workers)) if rank not in ended]

    def silent(self) -> list[int]:
        """Return the pending ranks that did not answer."""
        return [rank for rank in self.pending() if rank not in self.statuses]

    def has_started(self, fault: Fault | None) -> bool:
        """Tell whether the workers at fault had taken the job."""
        return fault is not None and self.started.issuperset(fault.ranks)

    def send(self, rank: int, message: object) -> None:
        """Send a message to a rank; a rank that is gone has died."""
        try:
            self.workers[rank].connection.send(message)
        except OSError:
            self.died[rank] = self.workers[rank].exit_reason()

    def gather(self) -> None:
        """Receive outcomes until all are there, or the rest makes no progress."""
        detectors = {rank: self._detector(rank) for rank in self.pending()}
        while self.pending():
            patience = (
                _AFTERSHOCK_SECONDS if self._has_fault() else self.patience_seconds
            )
            if self._receive(patience):
                continue
            self._ask()
            findings = {rank: detectors[rank].look() for rank in self.pending()}
            if self._has_fault() or self._is_over(findings):
                return

    def _detector(self, rank: int) -> HangDetector:
        def progress() -> int:
            status = self.statuses.get(rank)
            return -1 if status is None else status.progress

        return HangDetector(
            self.patience_seconds, progress, self.workers[rank].processor_seconds
        )

    def _is_over(self, findings: dict[int, Finding]) -> bool:
        """Tell whether no rank will ever move."""
        if all(finding == "idle" for finding in findings.values()):
            return True
        return any(
            finding == "endless" or (finding == "spent" and self._is_in_subject(rank))
            for rank, finding in findings.items()
        )

    def _is_in_subject(self, rank: int) -> bool:
        # Without a line of the subject on its stack, a rank starts up or imports, which may
        # take much processor time and is no hang.
        status = self.statuses.get(rank)
        return status is None or bool(status.lines)

    def _has_fault(self) -> bool:
        """Tell whether a rank failed, so that others may never end."""
        return bool(self.died) or any(
            each.fault or each.harness_error or each.usage_error
            for each in self.outcomes.values()
        )

    def _receive(self, patience_seconds: float) -> bool:
        """Receive what arrives first; return False if nothing came within the time."""
        ranks = {self.workers[rank].connection: rank for rank in self.pending()}
        ready = await_any(list(ranks), patience_seconds)
        for connection in ready:
            self._take(ranks[connection])
        return bool(ready)

    def _take(self, rank: int) -> Status | None:
        """Receive one message of a rank; return it if it is a status."""
        worker = self.workers[rank]
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self.died[rank] = worker.exit_reason()
            return None
        if isinstance(message, JobStarted):
            self.started.add(rank)
        elif isinstance(message, JobOutcome):
            self.outcomes[rank] = message
        return message if isinstance(message, Status) else None

    def _ask(self) -> None:
        """Ask each pending rank for its status; an outcome may come instead."""
        self.statuses.clear()
        asked = self.pending()
        for rank in asked:
            self.send(rank, StatusRequest())
        for rank in asked:
            self._await_status(rank)

    def _await_status(self, rank: int) -> None:
        worker = self.workers[rank]
        patience = 0.0 if worker.is_stopped() else self.patience_seconds
        while rank in self.pending() and worker.connection.poll(patience):
            status = self._take(rank)
            if status is not None:
                self.statuses[rank] = status
                return
        if rank in self.pending() and worker.has_ended():
            # A process that the subject has forked may keep the connection open.
            self.died[rank] = worker.exit_reason()
