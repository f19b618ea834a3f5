"""Signs of life of a process, as the kernel shows them.

Where there is no `/proc` (macOS), a process seems to run and to use its time up.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

STOPPED = "does not answer: a signal has stopped it"


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process so far, without that of its children."""
    fields = _fields(pid)
    if fields is None:
        return time.monotonic()
    ticks = int(fields[11]) + int(fields[12])  # of the user, and of the kernel for it
    return ticks / os.sysconf("SC_CLK_TCK")


def queued_seconds(pid: int) -> float:
    """Return for how long the threads of a process were ready and had no processor.

    Of threads that have ended nothing is known.
    """
    waits = (_read(pid, f"task/{thread}/schedstat").split() for thread in _threads(pid))
    nanoseconds = sum(int(fields[1]) for fields in waits if fields)
    return nanoseconds / 1e9


def is_ready(pid: int) -> bool:
    """Tell whether a thread, other than the one that asks, runs or waits for the machine."""
    others = _threads(pid) - {threading.get_native_id()}
    states = (_fields(pid, f"task/{thread}/") for thread in others)
    return any(fields is not None and fields[0] in {"D", "R"} for fields in states)


def is_stopped(pid: int) -> bool:
    """Tell whether a signal such as SIGSTOP, or a debugger, keeps a process from running."""
    fields = _fields(pid)
    return fields is not None and fields[0] in {"T", "t"}


def waits_for_disk(pid: int) -> bool:
    """Tell whether a thread waits for a disk, or for memory that was swapped out."""
    states = (_fields(pid, f"task/{thread}/") for thread in _threads(pid))
    return any(fields is not None and fields[0] == "D" for fields in states)


def why_silent(pid: int) -> str:
    """Say why a process does not answer, though a thread of it would if Python ran."""
    if is_stopped(pid):
        return STOPPED
    return "does not answer: it is in C code that keeps Python from running"


def _fields(pid: int, thread: str = "") -> list[str] | None:
    """Return the fields of proc_pid_stat(5) from the third on; None if they cannot be read."""
    # The second field is a name in brackets, which may hold blanks and brackets.
    return _read(pid, f"{thread}stat").rpartition(")")[2].split() or None


def _threads(pid: int) -> set[int]:
    try:
        return {int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()


def _read(pid: int, name: str) -> str:
    """Return a file of a process, or "" if it cannot be read: a thread may have ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
