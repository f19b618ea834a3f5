"""Requests of this process to its system: how children end, and how many files are open.

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

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from syncverify.errors import EnvironmentNotSupportedError


def end_when_closed(descriptor: int, pid: int) -> None:
    """Let the kernel end a process, or a process group, when the parent closes a pipe.

    Parent and child share the setting, so either of them may make this call. On macOS the
    call ends nothing; see Note [A child ends with its parent].

    Args:
        descriptor: Reading end of the pipe, which the process keeps open.
        pid: Id of the process; negative: id of a process group.

    Raises:
        OSError: The descriptor is closed, or the process does not exist.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, pid)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


@contextmanager
def interrupts_blocked(*others: signal.Signals) -> Iterator[None]:
    """Block SIGINT in a block; processes that start in the block inherit the block.

    A worker ignores SIGINT, but only once it has imported its modules. A signal that came
    meanwhile is delivered at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *others})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of all orphans among the processes that this one starts, on Linux.

    A process that a subject leaves behind, such as a daemon, may start a session of its own. It
    is then in no process group that the owner ends, and the owner adopts it instead.

    Source: PR_SET_CHILD_SUBREAPER in prctl(2).
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


# A rank that meets the limit hangs or raises, and that would look like the subject's fault.
_NUM_NEEDED = 256


def require_descriptors() -> None:
    """Raise the limit of this process, which its children inherit, as far as needed.

    Raises:
        EnvironmentNotSupportedError: The system allows fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _NUM_NEEDED:
        return
    if hard != resource.RLIM_INFINITY and hard < _NUM_NEEDED:
        raise EnvironmentNotSupportedError(
            f"expected a limit of {_NUM_NEEDED} open files or more, which ranks with sockets "
            f"need, got {hard}; raise it by `ulimit -n 1024`, or play on sim"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (_NUM_NEEDED, hard))
