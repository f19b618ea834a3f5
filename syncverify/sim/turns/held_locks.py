"""Locks that ranks share because they are threads; ranks of a real job have one each."""

from __future__ import annotations

import linecache
import re
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import shown_path

_LOCKS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Semaphore,
)


def refusal_of_lock(
    rank: int, frame: FrameType | None
) -> EnvironmentNotSupportedError | None:
    """Return a refusal to judge if a rank waits for a lock of a module or a class.

    Another rank may hold the lock in a collective. In a job of processes each rank has a
    lock of its own, and nobody waits.

    Args:
        rank: The rank, which makes no progress.
        frame: Its innermost frame.

    Returns:
        The refusal; None if the line of the subject names no such lock that is held.
    """
    while frame is not None and not is_subject_line(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    place = f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    words = {*re.findall(r"\w+", text)}
    for name, lock in _shared(frame):
        if name in words and _is_held(lock):
            return EnvironmentNotSupportedError(
                f"rank {rank} waits at {place} for {name}, a lock that all ranks of the sim "
                "backend share, since they are threads of one process; ranks that are "
                "processes have one each, as those of `syncverify record` for a script, and of "
                "`syncverify run --backend gloo` for a class"
            )
    return None


def _shared(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Yield the locks of the frame's module and of the class of its first argument."""
    first = next(iter(frame.f_locals.values()), None)
    for owner in (frame.f_globals, *(vars(each) for each in type(first).__mro__)):
        for name, value in [*owner.items()]:
            if isinstance(value, _LOCKS):
                yield name, value


def _is_held(lock: Any) -> bool:
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True
