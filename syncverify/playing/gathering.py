"""The outcomes of one scenario, gathered until all are there or none comes.

Note [Patience with processes]
    A rank that waits for a peer uses no processor time, and a rank that works uses some,
    however busy the machine is. So after each window without an outcome, processor time
    decides, as on `sim` (Note [When a silence is a hang]). The run is over in three cases:

    * no rank used any processor time;
    * a rank in a line of the subject used a window of processor time, and recorded nothing;
    * a rank slept and woke for many windows, and recorded nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Protocol, TypeVar

from syncverify.errors import InternalError
from syncverify.playing.faults import (
    awaits_peers,
    death_fault,
    launches_of,
    outcomes_fault,
    positions,
    stall_fault,
    stands,
    unmatched_fault,
)
from syncverify.playing.messages import JobOutcome, Status, unpack_result
from syncverify.processes.silence import Silence, SilenceKind, Watched, pause_seconds
from syncverify.trace.run import Detail, Fault, RankRun
from syncverify.trace.stacks import frames_in_dump


class RankProcess(Watched, Protocol):
    """The process of a rank, as the process that gathers sees it."""

    def why_silent(self) -> str:
        """Say why the process does not answer."""

    def stacks(self) -> str:
        """Return the stacks of a process that does not answer; "" for none. It may end."""


Process = TypeVar("Process", bound=RankProcess)


@dataclass
class Gathering(ABC, Generic[Process]):
    """The outcomes of one scenario so far."""

    aftershock_seconds: ClassVar[float] = 2.0  # after a fault, for the other ranks

    processes: Sequence[Process]
    # Length of a window, in wall time and in processor time.
    patience_seconds: float
    outcomes: dict[int, JobOutcome] = field(default_factory=dict)
    # The signal or exit code of each process that died, by rank.
    died: dict[int, str] = field(default_factory=dict)
    # In the end, the status of each rank that has no outcome, and answers.
    statuses: dict[int, Status] = field(default_factory=dict)

    def pending(self) -> list[int]:
        """Return the ranks that have a live worker and no outcome."""
        ended = {*self.outcomes, *self.died}
        return [rank for rank in range(len(self.processes)) if rank not in ended]

    def silent(self) -> list[int]:
        """Return the pending ranks that did not answer."""
        return [rank for rank in self.pending() if rank not in self.statuses]

    def raise_errors(self) -> None:
        """Raise the error of a rank that is no fault of the subject, if there is one."""
        for _, outcome in sorted(self.outcomes.items()):
            outcome.raise_usage_error()
        for rank, outcome in sorted(self.outcomes.items()):
            # Groups that are being set up when a peer is lost raise too: the loss counts.
            if outcome.is_aftershock and self._has_cause():
                continue
            if outcome.harness_error is not None:
                raise InternalError(f"rank {rank}:\n{outcome.harness_error}")

    def broken_connection(self) -> str:
        """Return the error of a rank that could not connect to its peers, though none was lost.

        The harness connects groups before the subject runs. On a busy machine that may fail.
        """
        if self._has_cause():
            return ""
        for rank, outcome in sorted(self.outcomes.items()):
            if outcome.is_aftershock and outcome.harness_error is not None:
                error = outcome.harness_error.strip().splitlines()[-1]
                return f"rank {rank}: {error}"
        return ""

    def _has_cause(self) -> bool:
        """Tell whether a rank was lost, failed or refused, so that its peers cannot go on."""
        has_ended = any(each.harness_error is None for each in self._failed())
        return bool(has_ended or self.died or self.silent())

    def may_leave_collectives(self) -> bool:
        """Tell whether a collective may wait on: a rank failed or is lost, or some do not match."""
        if self.died or self.pending() or self._failed():
            return True
        return unmatched_fault(launches_of(self.outcomes), self.outcomes) is not None

    def rank_runs(self) -> tuple[RankRun, ...]:
        """Return the run of each rank, empty where none arrived."""
        results = {rank: each.result for rank, each in self.outcomes.items()}
        return tuple(
            unpack_result(results[rank]) if rank in results else RankRun()
            for rank in range(len(self.processes))
        )

    def fault(self) -> Fault | None:
        """Return the reason why not all ranks reached their end."""
        if self.died:
            ranks = tuple(sorted(self.died))
            return death_fault(ranks, [f"rank {r}: {self.end_of(r)}" for r in ranks])
        fault = outcomes_fault(self.outcomes)
        if fault is None and self.pending():
            return self._stall()
        return fault

    def end_of(self, rank: int) -> str:
        """Say how the process of a rank ended, or why it does not answer."""
        if rank in self.died:
            return f"ended by {self.died[rank]}"
        return self.processes[rank].why_silent()

    def _stall(self) -> Fault:
        """Return the fault of a rank that loops or is silent, not of the ranks that wait for it."""
        finished, stalled = set(self.outcomes), self.statuses
        issued = {rank: status.launches for rank, status in stalled.items()}
        launches = {**issued, **launches_of(self.outcomes)}
        # The innermost Python line belongs to the subject also while it calls C++, as in
        # `work.wait()`. A rank there has issued a collective that a peer has not.
        own_loop = [
            rank
            for rank, status in stalled.items()
            if not (status.in_torch or awaits_peers(rank, launches))
        ]
        silent = self.silent()
        if silent:
            # All that is known of their peers is that some wait.
            lines = list[Detail]()
            for rank in silent:
                lines.append(f"rank {rank}: {self.end_of(rank)}")
                lines += frames_in_dump(self.processes[rank].stacks())
            return stall_fault(
                "never_returns",
                tuple(sorted([*silent, *own_loop])),
                (*lines, *positions(launches, finished)),
                stands(launches),
            )
        if own_loop:
            rank = own_loop[0]
            return stall_fault("never_returns", (rank,), stalled[rank].lines)
        stood = positions(launches, finished)
        return unmatched_fault(launches, finished) or stall_fault(
            "deadlock", tuple(sorted(launches)), stood, stands(launches)
        )

    def gather(self) -> None:
        """Receive outcomes until all are there, or the rest makes no progress."""
        silences = {
            rank: Silence(self.processes[rank], tick=0.0) for rank in self.pending()
        }
        while self.pending():
            patience = (
                self.aftershock_seconds if self._has_fault() else self.patience_seconds
            )
            pause = pause_seconds(self.patience_seconds)
            if self._receive(pause) or self._has_moved(silences, pause):
                continue
            if self._receive(patience - pause):
                continue
            self._ask(self.patience_seconds)
            findings = {
                rank: self._finding(rank, silences[rank]) for rank in self.pending()
            }
            if self._has_fault():
                # A rank that waits for the failed one sleeps. One that a busy machine keeps
                # from running may fail as well, and the report names the first failure.
                if "slow" not in findings.values():
                    return
            elif self._is_over(findings):
                return

    def _has_moved(self, silences: dict[int, Silence], pause_seconds: float) -> bool:
        """Tell whether a rank that answers at once had an event since the last question."""
        if self._has_fault():
            return False
        self._ask(pause_seconds)
        answered = [rank for rank in self.pending() if rank in self.statuses]
        moved = [silences[r].has_moved(self.statuses[r].progress) for r in answered]
        return any(moved)

    def _finding(self, rank: int, silence: Silence) -> SilenceKind:
        """Return the finding of a window that passed without an outcome of the rank."""
        status = self.statuses.get(rank)
        if status is not None and silence.has_moved(status.progress):
            return "slow"
        silence.go_on(self.patience_seconds, is_silent=status is None)
        return silence.finding(self.patience_seconds)

    def _is_over(self, findings: dict[int, SilenceKind]) -> bool:
        """Tell whether no rank will ever move."""
        if all(finding == "idle" for finding in findings.values()):
            return True
        # Without a line of the subject on its stack, a rank starts up or imports, which may
        # take much processor time and is no hang.
        starting = {rank for rank, status in self.statuses.items() if not status.lines}
        return any(
            finding == "endless" or (finding == "spent" and rank not in starting)
            for rank, finding in findings.items()
        )

    def _has_fault(self) -> bool:
        """Tell whether a rank failed, so that others may never end."""
        return bool(self.died or self._failed())

    def _failed(self) -> list[JobOutcome]:
        return [each for each in self.outcomes.values() if each.is_failure]

    @abstractmethod
    def _receive(self, patience_seconds: float) -> bool:
        """Receive what arrives first; return False if nothing came within the time."""

    @abstractmethod
    def _ask(self, seconds: float) -> None:
        """Ask each pending rank for its status; an outcome may come instead.

        Answers are awaited for a share of a window of some seconds, at most.
        """
