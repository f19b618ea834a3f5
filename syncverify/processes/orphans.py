"""Processes that a subject leaves behind, such as daemons, end with the command.

A process that starts a session of its own is in no process group that the owner ends. On
Linux the owner adopts it instead: the kernel makes a subreaper the parent of orphans.

Source: PR_SET_CHILD_SUBREAPER in prctl(2), and proc_pid_task(5) for the children.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all orphans among the processes that this one starts."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End all children of this process, and their children, which it adopts then."""
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    """List the children of this process; none where the kernel does not tell them."""
    threads = Path("/proc/self/task").glob("*/children")
    with contextlib.suppress(OSError):  # a thread has just ended
        return [int(pid) for each in threads for pid in each.read_text().split()]
    return []
