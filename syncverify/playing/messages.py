"""Messages between the process that leads and the processes of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    SubjectError,
    SyncverifyError,
)
from syncverify.processes.process_state import Work
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Fault
from syncverify.trace.source_lines import CodeLine


@dataclass(frozen=True, slots=True)
class Job:
    """A request to play one scenario as one rank."""

    number: int
    scenario: dict[str, Any]
    subject: bytes
    rank: int
    store_port: int


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A notice that a worker has taken a job, so that its end is in the job."""


@dataclass(frozen=True, slots=True)
class OfJob:
    """A message of a worker about one job.

    Attributes:
        number: Number of the job. A message about an earlier one may come late.
    """

    number: int
    message: JobStarted | Status | JobOutcome


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """A request for the status of a worker."""


@dataclass(frozen=True, slots=True)
class Status:
    """The position of a worker in its present job.

    Attributes:
        progress: Number of trace records so far.
        lines: Lines of the subject on the stack of the playing thread.
        in_torch: Whether the innermost line is torch's: the rank waits in a collective.
    """

    progress: int
    lines: tuple[CodeLine, ...]
    in_torch: bool
    launches: tuple[CollectiveLaunch, ...]


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A sign of life of a rank of a torchrun job, which renews it once a second.

    Attributes:
        job: Number of the job that the rank plays, or has played last.
    """

    number: int
    job: int
    status: Status
    processor_seconds: float
    helpers: Work


@dataclass(frozen=True, slots=True)
class Ready:
    """A notice that the worker has imported its modules."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a job.

    Attributes:
        result: The pickled `RankRun`, up to the end or to the fault; empty if none was kept.
        fault: The fault of the subject that ended the job early; None if none did.
        is_aftershock: Whether the fault is only that a peer is gone.
        harness_error: Traceback of an error of the harness; None if there was none.
        refusal: A part of the scenario that the backend does not play, in words; None if it
            played all.
        usage_error: Message of any other `UsageError`; None if there was none.
    """

    result: bytes = b""
    fault: Fault | None = None
    is_aftershock: bool = False
    harness_error: str | None = None
    refusal: str | None = None
    usage_error: str | None = None

    @property
    def is_failure(self) -> bool:
        """Tell whether the rank did not reach the end of the job."""
        errors = (self.harness_error, self.refusal, self.usage_error)
        return self.fault is not None or any(each is not None for each in errors)

    def raise_usage_error(self) -> None:
        """Raise the error of a job that cannot be played, if it is one.

        Raises:
            EnvironmentNotSupportedError: The backend does not play all of the scenario.
            SubjectError: The subject lacks a part of its API.
        """
        if self.refusal is not None:
            raise EnvironmentNotSupportedError(self.refusal)
        if self.usage_error is not None:
            raise SubjectError(self.usage_error)


def stopped_by(error: SyncverifyError) -> JobOutcome:
    """Return the outcome of a job that a refusal, or an error of the harness itself, ends."""
    if isinstance(error, InternalError):
        return JobOutcome(harness_error=str(error))
    return JobOutcome(refusal=str(error))
