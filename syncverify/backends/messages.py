"""What the parent and its warm workers say to each other."""

from __future__ import annotations

import io
import pickletools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
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
    """List the modules that a pickle names, those that it says to import among them."""
    arguments = (argument for _, argument, _ in pickletools.genops(packed))
    names = dict.fromkeys(name for name in arguments if isinstance(name, str))
    return [sys.modules[name] for name in names if name in sys.modules]


def _can_be_imported(module: ModuleType) -> bool:
    """Tell whether another interpreter with our `sys.path` would find the module."""
    # Test runners and the like load files under names that exist in this process only.
    # A module without a file of its own is nobody's code to carry along.
    file = getattr(module, "__file__", None)
    parts = module.__name__.split(".")
    if parts[0] in {*sys.stdlib_module_names, "__main__"} or not _is_file(file):
        return True
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return spec is not None and spec.origin == file


def _is_file(path: object) -> bool:
    return isinstance(path, str) and Path(path).is_file()


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    # importlib.util.find_spec would ask sys.modules first.
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


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
