"""A simulated machine that ignores one call of the subject: as if its line were not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncverify.trace.stacks import ordering_line
from syncverify.trace.sync_points import PointKind, SyncPoint

# One value for all ranks: they are threads of this process.
_ignored: SyncPoint | None = None


def is_ignored(kind: PointKind) -> bool:
    """Tell whether the subject's present call is the one to ignore."""
    if _ignored is None or _ignored.kind != kind:
        return False
    return ordering_line() == _ignored.line


@contextmanager
def ignoring(point: SyncPoint) -> Iterator[None]:
    """Ignore the calls of a point, on all ranks, for the length of a block."""
    global _ignored
    before, _ignored = _ignored, point
    try:
        yield
    finally:
        _ignored = before
