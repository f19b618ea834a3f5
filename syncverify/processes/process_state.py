"""Signs of life of a process, as the kernel shows them.

Where there is no `/proc` (macOS), a process seems to run and to use its time up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STOPPED = "does not answer: a signal has stopped it"


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, without that of its children."""
    fields = _fields(pid)
    if fields is None:
        return time.monotonic()
    return _seconds(fields[11:13])


def processor_seconds_of_ended(pid: int) -> float:
    """Return the processor time of the children that ended and that a process waited for.

    Their own children count with them. The time is 0.0 where it is not known.
    """
    fields = _fields(pid)
    return 0.0 if fields is None else _seconds(fields[13:15])


def processor_seconds_with_ended(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    fields = _fields(pid)
    return 0.0 if fields is None else _seconds(fields[11:15])


def is_ready(pid: int) -> bool:
    """Tell whether a process runs, queues for a processor, or waits for a disk."""
    fields = _fields(pid)
    return fields is not None and fields[0] in {"R", "D"}


def children(pid: int | str) -> list[int]:
    """List the children of a process; none where the kernel does not tell them."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    texts = (_read(pid, f"task/{thread.name}/children") for thread in threads)
    return [int(child) for text in texts for child in text.split()]


def is_stopped(pid: int) -> bool:
    """Tell whether a signal such as SIGSTOP, or a debugger, keeps a process from running."""
    fields = _fields(pid)
    return fields is not None and fields[0] in {"T", "t"}


def why_silent(pid: int) -> str:
    """Say why a process does not answer, though a thread of it would if Python ran."""
    if is_stopped(pid):
        return STOPPED
    return "does not answer: it is in C code that keeps Python from running"


def _seconds(fields: list[str]) -> float:
    """Add times: of the user and of the kernel for it, then the same of ended children."""
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str] | None:
    """Return the fields of proc_pid_stat(5) from the third on; None if they cannot be read."""
    # The second field is a name in brackets, which may hold blanks and brackets.
    return _read(pid, "stat").rpartition(")")[2].split() or None


def _read(pid: int | str, name: str) -> str:
    """Return a file of a process, or "" if it cannot be read: it may have ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
