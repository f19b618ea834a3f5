"""Messages between the parent and its worker processes, and the pickles in them.

Note [Outcomes are data]
A worker of the `gloo` backend answers on a pipe that it inherits from its parent. The processes
of a torchrun job answer in torchrun's store, and every process that reaches the port of the
store may write to it. A pickle runs code when it is read, so these answers are read by torch's
unpickler for weights, which makes objects of listed classes alone.
"""

from __future__ import annotations

import io
import pickletools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import cloudpickle
import torch

from syncverify.errors import InternalError
from syncverify.processes.process_state import Work
from syncverify.subjects.subject import Subject
from syncverify.trace import engine_log, records, regions, run, slots, source_lines
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.run import Fault, RankRun
from syncverify.trace.source_lines import CodeLine

_Data = TypeVar("_Data")


@dataclass(frozen=True, slots=True)
class Job:
    """A request to play one scenario as one rank.

    Attributes:
        number: Number of the job; each job has its own process groups.
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
class JobStarted:
    """A notice that a worker has taken a job, so that its end is in the job."""


@dataclass(frozen=True, slots=True)
class OfJob:
    """A message of a worker about one job.

    Attributes:
        number: Number of the job. A message about an earlier one may come late.
        message: The message.
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
        launches: Collectives issued so far.
    """

    progress: int
    lines: tuple[CodeLine, ...]
    in_torch: bool
    launches: tuple[CollectiveLaunch, ...]


@dataclass(frozen=True, slots=True)
class SignOfLife:
    """A sign of life of a rank of a torchrun job, which renews it once a second.

    Attributes:
        number: Number of the sign; it shows that the process lives.
        job: Number of the job that the rank plays, or has played last.
        status: Position of the rank in the job.
        processor_seconds: Processor time of the process so far.
        helpers: Work of the descendants of the process.
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
        result: The pickled `RankRun`, up to the end or to the fault.
        fault: The fault of the subject that ended the job early; None if none did.
        is_aftershock: Whether the fault is only that a peer is gone.
        harness_error: Traceback of an error of the harness; None if there was none.
        usage_error: Message of a `UsageError`; None if there was none.
    """

    result: bytes = b""
    fault: Fault | None = None
    is_aftershock: bool = False
    harness_error: str | None = None
    usage_error: str | None = None


def pack_subject(subject: Subject) -> bytes:
    """Pickle a subject for another process, by value where it cannot be imported there."""
    by_value: list[ModuleType] = []
    try:
        while True:
            packed: bytes = cloudpickle.dumps(subject)
            found = [
                module
                for module in _named_modules(packed)
                if module not in by_value and not _can_be_imported(module)
            ]
            if not found:
                return packed
            for module in found:
                cloudpickle.register_pickle_by_value(module)
                by_value.append(module)
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _named_modules(packed: bytes) -> list[ModuleType]:
    """Return the imported modules that a pickle names, as imports or as text."""
    arguments = (argument for _, argument, _ in pickletools.genops(packed))
    names = dict.fromkeys(name for name in arguments if isinstance(name, str))
    return [sys.modules[name] for name in names if name in sys.modules]


def _can_be_imported(module: ModuleType) -> bool:
    """Tell whether another interpreter with our `sys.path` would find the module."""
    # Test runners load files under names that exist in this process only. A module without
    # a file has no code to pickle.
    file = getattr(module, "__file__", None)
    parts = module.__name__.split(".")
    has_file = isinstance(file, str) and Path(file).is_file()
    if parts[0] in {*sys.stdlib_module_names, "__main__"} or not has_file:
        return True
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return spec is not None and spec.origin == file


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    # importlib.util.find_spec would ask sys.modules first.
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def unpack_subject(packed: bytes) -> Subject:
    """Unpickle the result of `pack_subject`."""
    subject: Subject = cloudpickle.loads(packed)
    return subject


def pack_result(result: RankRun) -> bytes:
    """Pickle the run of one rank, with tensors by value."""
    return _saved(result)


def unpack_result(packed: bytes) -> RankRun:
    """Unpickle the result of `pack_result`; it comes from our own worker."""
    result: RankRun = torch.load(io.BytesIO(packed), weights_only=False)
    return result


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def pack_outcome(outcome: JobOutcome) -> bytes:
    """Pack an outcome for torchrun's store."""
    return _saved(outcome)


def pack_sign(sign: SignOfLife) -> bytes:
    """Pack a sign of life for torchrun's store."""
    return _saved(sign)


def unpack_sign(packed: bytes) -> SignOfLife:
    """Unpack a sign of life; see Note [Outcomes are data]."""
    return _read_as_data(packed, SignOfLife)


def unpack_outcome(packed: bytes) -> JobOutcome:
    """Unpack the result of `pack_outcome`; see Note [Outcomes are data].

    Returns:
        The outcome.

    Raises:
        InternalError: It is no outcome.
    """
    outcome = _read_as_data(packed, JobOutcome)
    if not outcome.result:
        return outcome
    # Packed again, because `unpack_result` trusts its argument.
    return replace(outcome, result=pack_result(_read_as_data(outcome.result, RankRun)))


_DATA_CLASSES: Final = (
    JobOutcome,
    SignOfLife,
    Status,
    Work,
    bytes,  # an outcome without a result has empty ones
    frozenset,
    *(
        kind
        for module in (engine_log, records, regions, run, slots, source_lines)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    ),
)


def _read_as_data(packed: bytes, expected: type[_Data]) -> _Data:
    try:
        with torch.serialization.safe_globals(list(_DATA_CLASSES)):
            found = torch.load(io.BytesIO(packed), weights_only=True)
    except Exception as error:  # any, by a file that somebody made up
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
