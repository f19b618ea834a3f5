"""Messages between the process that leads and the processes of ranks, and the bytes of some.

Note [Outcomes are data]
A worker of the `gloo` backend answers on a pipe that it inherits from its parent. The processes
of a torchrun job answer in torchrun's store, and every process that reaches the port of the
store may write to it. A pickle runs code when it is read, so these answers are read by torch's
unpickler for weights, which makes objects of listed classes alone.
"""

import io
import itertools
import pickletools
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self, TypeVar

import cloudpickle
import torch

from syncverify.errors import (
    EnvironmentNotSupportedError,
    InternalError,
    SubjectError,
    SyncverifyError,
)
from syncverify.playing.program.modules import provide_layers
from syncverify.processes.process_state import Work
from syncverify.subjects.subject import Subject
from syncverify.trace import engine_log, records, regions, run, source_lines
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Fault, RankRun
from syncverify.trace.source_files import is_torch_line
from syncverify.trace.source_lines import CodeLine
from syncverify.trace.stacks import outermost_frames

_Data = TypeVar("_Data")


@dataclass(frozen=True, slots=True)
class Job:
    """A request to play one scenario as one rank, with the scenario as JSON and a packed subject."""

    scenario: dict[str, Any]
    subject: bytes
    rank: int
    # Number of the job on `gloo`; each job has its own process groups.
    number: int = 0
    # Port of the parent's TCPStore on the loopback interface, on `gloo`.
    store_port: int = 0


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A notice that a worker has taken a job, so that its end is in the job."""


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """A request for the status of a worker."""


@dataclass(frozen=True, slots=True)
class Status:
    """The position of a rank in its present job."""

    # Number of trace records so far.
    progress: int
    # Lines of the subject on the stack of the playing thread.
    lines: tuple[CodeLine, ...]
    # Whether the innermost line is torch's: the rank waits in a collective.
    in_torch: bool
    launches: tuple[CollectiveLaunch, ...]

    @classmethod
    def of(cls, player: threading.Thread, recorder: Recorder) -> Self:
        """Return the position of the thread that plays, as another thread sees it."""
        frame = sys._current_frames().get(player.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        events = list(recorder.trace)
        return cls(
            progress=len(events),
            lines=tuple(outermost_frames(stack)),
            in_torch=bool(stack) and is_torch_line(stack[-1].filename),
            launches=tuple(e for e in events if isinstance(e, CollectiveLaunch)),
        )


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A sign of life of a rank of a torchrun job, which renews it once a second."""

    # Number of the sign; it shows that the process lives.
    number: int
    # Number of the job that the rank plays, or has played last.
    job: int
    status: Status
    processor_seconds: float
    # Work of the descendants of the process.
    helpers: Work


@dataclass(frozen=True, slots=True)
class Ready:
    """A notice that the worker has imported its modules."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a program on a rank that is a process."""

    # The pickled `RankRun`, up to the end or to the fault; empty if none was kept.
    result: bytes = b""
    fault: Fault | None = None
    # Whether the fault is only that a peer is gone.
    is_aftershock: bool = False
    # Traceback of an error of the harness.
    harness_error: str | None = None
    # A part of the program that the backend does not play, in words.
    refusal: str | None = None
    # Message of any other `UsageError`.
    usage_error: str | None = None

    @property
    def is_failure(self) -> bool:
        """Tell whether the rank did not reach the end of the job."""
        errors = (self.harness_error, self.refusal, self.usage_error)
        return self.fault is not None or any(each is not None for each in errors)

    def raise_usage_error(self) -> None:
        """Raise the refusal of a backend, or of a subject that lacks a part of its API."""
        if self.refusal is not None:
            raise EnvironmentNotSupportedError(self.refusal)
        if self.usage_error is not None:
            raise SubjectError(self.usage_error)


@dataclass(frozen=True, slots=True)
class OfJob:
    """A message of a worker about the job of a number; one about an earlier job may come late."""

    number: int
    message: JobStarted | Status | JobOutcome


def stopped_by(error: SyncverifyError) -> JobOutcome:
    """Return the outcome of a job that a refusal, or an error of the harness itself, ends."""
    if isinstance(error, InternalError):
        return JobOutcome(harness_error=str(error))
    return JobOutcome(refusal=str(error))


def pack(value: RankRun | JobOutcome | SignOfLife) -> bytes:
    """Pickle a value, with tensors by value."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def unpack_result(packed: bytes) -> RankRun:
    """Unpickle the run of one rank; it comes from our own worker."""
    result: RankRun = torch.load(io.BytesIO(packed), weights_only=False)
    return result


def unpack_outcome(packed: bytes) -> JobOutcome:
    """Unpack an outcome of torchrun's store; see Note [Outcomes are data]."""
    outcome = unpack_data(packed, JobOutcome)
    if not outcome.result:
        return outcome
    # Packed again, because `unpack_result` trusts its argument.
    return replace(outcome, result=pack(unpack_data(outcome.result, RankRun)))


_DATA_CLASSES: Final = (
    JobOutcome,
    SignOfLife,
    Status,
    Work,
    bytes,  # an outcome without a result has empty ones
    frozenset,
    *(
        kind
        for module in (engine_log, records, regions, run, source_lines)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ),
)


def unpack_data(packed: bytes, expected: type[_Data]) -> _Data:
    """Unpack a value of torchrun's store, or refuse bytes; see Note [Outcomes are data]."""
    try:
        with torch.serialization.safe_globals(list(_DATA_CLASSES)):
            found = torch.load(io.BytesIO(packed), weights_only=True)
    except Exception as error:  # bytes that somebody made up may raise any
        raise InternalError(
            f"expected an outcome in torchrun's store, got {len(packed)} bytes that are none: "
            f"{type(error).__name__}"
        ) from error
    if not isinstance(found, expected):
        raise InternalError(
            f"expected a {expected.__name__} in torchrun's store, got a "
            f"{type(found).__name__}"
        )
    return found


def pack_subject(subject: Subject) -> bytes:
    """Pickle a subject for another process, by value where it cannot be imported there."""
    by_value: list[ModuleType] = []
    try:
        while True:
            packed: bytes = cloudpickle.dumps(subject)
            # A pickle names modules as imports or as text.
            texts = [each for _, each, _ in pickletools.genops(packed)]
            named = (sys.modules.get(t) for t in texts if isinstance(t, str))
            found = {
                module: None
                for module in named
                if module and module not in by_value and not _can_be_imported(module)
            }
            if not found:
                return packed
            for module in found:
                cloudpickle.register_pickle_by_value(module)
                by_value.append(module)
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _can_be_imported(module: ModuleType) -> bool:
    """Tell whether another interpreter with our `sys.path` would find the module."""
    # Test runners load files under names that exist in this process only. A module without
    # a file has no code to pickle.
    file = getattr(module, "__file__", None)
    parts = module.__name__.split(".")
    if not isinstance(file, str) or not Path(file).is_file():
        return True
    if parts[0] in {*sys.stdlib_module_names, "__main__", "syncverify"}:
        return True  # see Note [Every process imports this package]
    path: Sequence[str] | None = None
    origin: str | None = None
    for name in itertools.accumulate(parts, "{}.{}".format):
        # importlib.util.find_spec would ask sys.modules first.
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next(filter(None, specs), None)
        if spec is None:
            return False
        path, origin = spec.submodule_search_locations, spec.origin
    # An entry of `sys.path` may have `..` or a link in it, and so has the name of the file then.
    return origin is not None and Path(origin).resolve() == Path(file).resolve()


def unpack_subject(packed: bytes) -> Subject:
    """Unpickle the result of `pack_subject`, and let scenarios train the layers of its contract."""
    subject: Subject = cloudpickle.loads(packed)
    provide_layers(subject.capabilities)
    return subject
