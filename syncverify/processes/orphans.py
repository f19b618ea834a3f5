"""Processes that a subject leaves behind, such as daemons, end with the command.

A process that starts a session of its own is in no process group that the owner ends. On
Linux the owner adopts it instead: the kernel makes a subreaper the parent of orphans.

Source: PR_SET_CHILD_SUBREAPER in prctl(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys

import psutil

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all orphans among the processes that this one starts.

    Other systems have no such parent: nothing is done there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """End all children of this process.

    After `adopt_orphans()` on Linux it adopts their children then, and ends those too.
    Elsewhere they go on.
    """
    while found := psutil.Process().children():
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
                each.wait()
