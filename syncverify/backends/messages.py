"""What the parent and its warm workers say to each other."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch

from syncverify.run import Fault, RankRun
from syncverify.subject import Subject
from syncverify.trace import CollectiveLaunch


@dataclass(frozen=True, slots=True)
class Job:
    """Play one scenario as one rank.

    Attributes:
        number: Distinguishes the process groups of one job from those of others.
        scenario: The scenario's JSON.
        subject: The pickled subject.
        rank: Global rank to play.
        store_port: Port of the parent's TCPStore on the loopback interface.
    """

    number: int
    scenario: dict[str, Any]
    subject: bytes
    rank: int
    store_port: int


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Ask a worker where it stands."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a worker stands.

    Attributes:
        progress: Events recorded in the present job.
        lines: The subject's lines of the playing thread's stack.
        in_torch: Whether the innermost line is torch's: it waits in a collective.
        launches: Collectives issued in the present job.
    """

    progress: int
    lines: tuple[str, ...]
    in_torch: bool
    launches: tuple[CollectiveLaunch, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has imported what it needs."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a job ended.

    Attributes:
        number: The job's number.
        result: The pickled `RankRun`, as far as it got.
        fault: What the subject did to end it early.
        is_aftershock: Whether the fault only says that a peer went away.
        harness_error: What went wrong in the harness itself.
        usage_error: What the caller must change.
    """

    number: int
    result: bytes
    fault: Fault | None = None
    is_aftershock: bool = False
    harness_error: str | None = None
    usage_error: str | None = None


def pack_subject(subject: Subject) -> bytes:
    """Pickle a subject for another process, by value where it cannot be imported there."""
    packed: bytes = cloudpickle.dumps(subject)
    return packed


def unpack_subject(packed: bytes) -> Subject:
    """Read `pack_subject`'s result."""
    subject: Subject = cloudpickle.loads(packed)
    return subject


def pack_result(result: RankRun) -> bytes:
    """Pickle a rank's run, tensors by value."""
    buffer = io.BytesIO()
    torch.save(result, buffer)
    return buffer.getvalue()


def unpack_result(packed: bytes) -> RankRun:
    """Read `pack_result`'s result; it comes from our own worker."""
    result: RankRun = torch.load(io.BytesIO(packed), weights_only=False)
    return result
