"""Child processes: Ctrl-C does not reach them, and they end with their parent.

Note [A child ends with its parent]
A child that watches its parent on a thread needs that thread to run. The thread does not
run while torch is imported, or while C++ code keeps the GIL: `FileStore` keeps it for five
minutes when its folder is gone. An interrupt between the start of a child and the note of
its id leaves such a child behind, and the child holds stdout open.

So the kernel watches. The parent alone holds the writing end of a pipe and writes nothing.
When the parent ends, in any way, the kernel sends a signal to the owner of the reading end,
which is a process or a process group. Linux sends SIGKILL, which ends a stopped process as
well. Elsewhere the signal is SIGIO, which ends a process that does not handle it; where it
does not (macOS), a thread of the child must watch the parent.

Source: fcntl(2), F_SETOWN, F_SETSIG and O_ASYNC; signal(7).
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def end_when_closed(descriptor: int, pid: int) -> None:
    """Let the kernel end a process, or the group -pid, when a pipe's writing end is closed.

    The process keeps the descriptor of the reading end open. Parent and child share the
    setting, so either of them may make this call.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, pid)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


@contextmanager
def interrupts_blocked(*others: signal.Signals) -> Iterator[None]:
    """Block SIGINT, and let processes that start meanwhile inherit the block.

    A worker ignores SIGINT, but only once it has imported its modules.

    Args:
        *others: Further signals to block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *others})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
