"""Points at which a subject synchronizes: calls that order work or keep memory, by line.

The simulated machine can ignore the calls of a point, as if the line were not there.
"""

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, Final, Literal, NamedTuple

from typing_extensions import override

from syncverify.holding import holding
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.stacks import ordering_line

PointKind = Literal[
    "stream_wait", "event", "host_wait", "work_wait", "record_stream", "barrier",
    "reference",
]  # fmt: skip
# The calls of each kind, in torch's words.
CALLS: Final[dict[PointKind, str]] = {
    "stream_wait": "wait_stream() or wait_event()",
    "event": "record_event()",
    "host_wait": "synchronize() or query()",
    "work_wait": "Work.wait()",
    "record_stream": "record_stream()",
    "barrier": "barrier()",
    "reference": "a reference kept after its last use",
}


class SyncPoint(NamedTuple):
    """All calls of one kind at one line of a subject."""

    kind: PointKind
    line: SourceLine

    @override
    def __str__(self) -> str:
        return f"{CALLS[self.kind]} at {self.line}"


# One value for all ranks: they are threads of this process.
_FOR_ALL: Final[Any] = SimpleNamespace(ignored=None)


def is_ignored(kind: PointKind) -> bool:
    """Tell whether the subject's present call is the one to ignore."""
    ignored: SyncPoint | None = _FOR_ALL.ignored
    if ignored is None or ignored.kind != kind:
        return False
    return ordering_line() == ignored.line


def ignoring(point: SyncPoint) -> AbstractContextManager[Any]:
    """Ignore the calls of a point, on all ranks, for the length of a block."""
    return holding(_FOR_ALL, "ignored", point)
