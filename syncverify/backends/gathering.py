"""The outcomes of one scenario that workers play, gathered until all are there or none comes.

Note [Patience with processes]
    A rank that waits for a peer uses no processor time, and a rank that works uses some,
    however busy the machine is. So after each window without an outcome, processor time
    decides, as on `sim` (`HangDetector`): the run is over when no rank used any, or when one
    used a whole window of it and recorded nothing. A rank whose child works is slow as well;
    see Note [A rank may wait for a process]. A wall clock alone would accuse right subjects
    on a busy machine.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from typing_extensions import override

from syncverify.backends.faults import launches_of, unmatched_fault
from syncverify.backends.messages import (
    JobOutcome,
    JobStarted,
    OfJob,
    Status,
    StatusRequest,
    unpack_result,
)
from syncverify.backends.pool import WorkerProcess, await_any
from syncverify.errors import InternalError, SubjectError
from syncverify.processes.hang_detector import Finding, HangDetector
from syncverify.processes.process_state import Work
from syncverify.trace.run import Fault, RankRun
from syncverify.trace.source_lines import CodeLine


class RankProcess(Protocol):
    """The process of a rank, as the process that gathers sees it."""

    @property
    def pid(self) -> int | None:
        """The process on this machine; None if it is on another one."""

    def why_silent(self) -> str:
        """Say why the process does not answer."""

    def lines_of_hang(self) -> Sequence[CodeLine]:
        """Return the subject's lines in a process that does not answer, and end it."""

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used."""

    def work_of_descendants(self) -> Work:
        """Return the work of the processes that the process has started."""


Process = TypeVar("Process", bound=RankProcess)

# Share of a window in which a rank answers where Python runs: a thread of its own does so.
_ANSWER_SHARE = 0.6
_SLOW: Final[frozenset[Finding]] = frozenset({"moved", "slow"})


@dataclass
class Gathering(ABC, Generic[Process]):
    """The outcomes of one scenario so far.

    Attributes:
        processes: One for each rank, in rank order.
        patience_seconds: Length of a window, in wall time and in processor time.
        outcomes: The outcomes that arrived, by rank.
        died: The signal or exit code of each process that died, by rank.
        statuses: In the end, the status of each rank that has no outcome, and answers.
    """

    aftershock_seconds: ClassVar[float] = 2.0  # after a fault, for the other ranks

    processes: Sequence[Process]
    patience_seconds: float
    outcomes: dict[int, JobOutcome] = field(default_factory=dict)
    died: dict[int, str] = field(default_factory=dict)
    statuses: dict[int, Status] = field(default_factory=dict)

    def pending(self) -> list[int]:
        """Return the ranks that have a live worker and no outcome."""
        ended = {*self.outcomes, *self.died}
        return [rank for rank in range(len(self.processes)) if rank not in ended]

    def silent(self) -> list[int]:
        """Return the pending ranks that did not answer."""
        return [rank for rank in self.pending() if rank not in self.statuses]

    def raise_errors(self) -> None:
        """Raise the error of a rank that is no fault of the subject, if there is one.

        Groups that are being set up when a peer is lost raise too: the loss counts then.

        Raises:
            SubjectError: The subject lacks a part of its API.
            InternalError: The harness failed on some rank.
        """
        for rank, outcome in sorted(self.outcomes.items()):
            if outcome.usage_error is not None:
                raise SubjectError(outcome.usage_error)
            if outcome.is_aftershock and self._has_cause():
                continue
            if outcome.harness_error is not None:
                raise InternalError(f"rank {rank}:\n{outcome.harness_error}")

    def broken_connection(self) -> str:
        """Say which rank could not connect to its peers, though no process was lost.

        The harness connects groups before the subject runs. On a busy machine that may fail.

        Returns:
            The rank and the error, or "" if all are connected, or a peer is the cause.
        """
        if self._has_cause():
            return ""
        for rank, outcome in sorted(self.outcomes.items()):
            if outcome.is_aftershock and outcome.harness_error is not None:
                error = outcome.harness_error.strip().splitlines()[-1]
                return f"rank {rank}: {error}"
        return ""

    def _has_cause(self) -> bool:
        """Tell whether a rank was lost or has a fault, so that its peers cannot go on."""
        has_fault = any(each.fault is not None for each in self.outcomes.values())
        return bool(has_fault or self.died or self.silent())

    def rank_runs(self) -> tuple[RankRun, ...]:
        """Return the part of each rank, empty where none arrived."""
        outcomes = [self.outcomes.get(rank) for rank in range(len(self.processes))]
        return tuple(
            RankRun() if each is None else unpack_result(each.result)
            for each in outcomes
        )

    def gather(self) -> None:
        """Receive outcomes until all are there, or the rest makes no progress."""
        detectors = {rank: self._detector(rank) for rank in self.pending()}
        while self.pending():
            patience = (
                self.aftershock_seconds if self._has_fault() else self.patience_seconds
            )
            pause = min(each.pause_seconds for each in detectors.values())
            if self._receive(pause) or self._has_moved(detectors, pause):
                continue
            if self._receive(patience - pause):
                continue
            self._ask(self.patience_seconds)
            findings = {
                rank: detectors[rank].look(is_silent=rank not in self.statuses)
                for rank in self.pending()
            }
            if self._has_fault():
                # A rank that waits for the failed one sleeps. One that a busy machine keeps
                # from running may fail as well, and the report names the first of them.
                if _SLOW.isdisjoint(findings.values()):
                    return
            elif self._is_over(findings):
                return

    def _has_moved(
        self, detectors: dict[int, HangDetector], pause_seconds: float
    ) -> bool:
        """Tell whether a rank that answers at once had an event since the last question."""
        if self._has_fault():
            return False
        self._ask(pause_seconds)
        pending = [rank for rank in self.pending() if rank in self.statuses]
        moved = [rank for rank in pending if detectors[rank].has_moved()]
        return bool(moved)

    def _detector(self, rank: int) -> HangDetector:
        reached = -1

        def progress() -> int:
            nonlocal reached  # a rank that is silent has reached no more
            status = self.statuses.get(rank)
            reached = reached if status is None else status.progress
            return reached

        process = self.processes[rank]
        return HangDetector(
            self.patience_seconds,
            progress,
            process.processor_seconds,
            pid=process.pid,
            helpers=process.work_of_descendants,
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
        return bool(self.died or self._failed())

    def _failed(self) -> list[JobOutcome]:
        return [
            each
            for each in self.outcomes.values()
            if each.fault or each.harness_error or each.usage_error
        ]

    @abstractmethod
    def _receive(self, patience_seconds: float) -> bool:
        """Receive what arrives first; return False if nothing came within the time."""

    @abstractmethod
    def _ask(self, seconds: float) -> None:
        """Ask each pending rank for its status; an outcome may come instead.

        Args:
            seconds: Length of a window, of which a rank that answers takes a share.
        """


@dataclass(kw_only=True)
class WorkerGathering(Gathering[WorkerProcess]):
    """The outcomes that workers of this machine send on their connections.

    Attributes:
        processes: The workers, one for each rank, in rank order.
        job: Number of the job; messages about other jobs come too late.
        started: Ranks of which the worker has taken the job.
    """

    job: int
    started: set[int] = field(default_factory=set)

    def has_started(self, fault: Fault | None) -> bool:
        """Tell whether the workers at fault had taken the job."""
        return fault is not None and self.started.issuperset(fault.ranks)

    def has_unmatched(self) -> bool:
        """Tell whether the ranks issued collectives that do not match."""
        launches = launches_of(self.outcomes)
        return unmatched_fault(launches, self.outcomes) is not None

    def send(self, rank: int, message: object) -> None:
        """Send a message to a rank; a rank that is gone has died."""
        try:
            self.processes[rank].connection.send(message)
        except OSError:
            self.died[rank] = self.processes[rank].exit_reason()

    @override
    def _receive(self, patience_seconds: float) -> bool:
        ranks = {self.processes[rank].connection: rank for rank in self.pending()}
        ready = await_any(list(ranks), patience_seconds)
        for connection in ready:
            self._take(ranks[connection])
        return bool(ready)

    def _take(self, rank: int) -> Status | None:
        """Receive one message of a rank; return it if it is a status."""
        worker = self.processes[rank]
        try:
            received = worker.connection.recv()
        except (EOFError, OSError):
            self.died[rank] = worker.exit_reason()
            return None
        if not isinstance(received, OfJob) or received.number != self.job:
            return None
        message = received.message
        if isinstance(message, JobStarted):
            self.started.add(rank)
        elif isinstance(message, JobOutcome):
            self.outcomes[rank] = message
        return message if isinstance(message, Status) else None

    @override
    def _ask(self, seconds: float) -> None:
        self.statuses.clear()
        asked = self.pending()
        for rank in asked:
            self.send(rank, StatusRequest())
        # All ranks answer meanwhile: two that are silent cost the time of one.
        deadline = time.monotonic() + _ANSWER_SHARE * seconds
        for rank in asked:
            self._await_status(rank, deadline)

    def _await_status(self, rank: int, deadline: float) -> None:
        worker = self.processes[rank]
        while rank in self.pending() and worker.connection.poll(
            0.0 if worker.is_stopped() else max(0.0, deadline - time.monotonic())
        ):
            status = self._take(rank)
            if status is not None:
                self.statuses[rank] = status
                return
        if rank in self.pending() and worker.has_ended():
            # A process that the subject has forked may keep the connection open.
            self.died[rank] = worker.exit_reason()
