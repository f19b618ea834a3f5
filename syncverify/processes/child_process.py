"""The kernel ends a child process with its parent, on Linux.

Note [A child ends with its parent]
    A child that watches its parent on a thread needs that thread to run. The thread does not
    run while torch is imported, or while C++ code keeps the GIL: `FileStore` keeps it for five
    minutes when its folder is gone. An interrupt between the start of a child and the note of
    its id leaves such a child behind, and the child holds stdout open.

    So the kernel watches on Linux. The parent alone holds the writing end of a pipe and writes
    nothing. When the parent ends, in any way, the kernel sends SIGKILL to the owner of the
    reading end, which is a process or a process group. SIGKILL ends a stopped process as well.

    macOS has no F_SETSIG: the signal is SIGIO there, and macOS discards SIGIO unless the
    process handles it. There a child ends only when one of its threads reads the end of its
    connection to the parent.

Source: fcntl(2), F_SETOWN, F_SETSIG and O_ASYNC; signal(7); signal(3) of macOS.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys


def end_when_closed(descriptor: int, pid: int) -> None:
    """Let the kernel end a process, or a process group, when the parent closes a pipe.

    Parent and child share the setting, so either of them may make this call. On macOS the
    call ends nothing; see Note [A child ends with its parent].

    Args:
        descriptor: Reading end of the pipe. The process keeps this end open, and the parent
            alone holds the writing end.
        pid: Id of the process; negative: id of a process group.

    Raises:
        OSError: The descriptor is closed, or the process does not exist.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, pid)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
