"""A simulated machine that ignores one call of the subject: as if its line were not there."""

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, Final

from syncverify.holding import holding
from syncverify.trace.stacks import ordering_line
from syncverify.trace.sync_points import PointKind, SyncPoint

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
