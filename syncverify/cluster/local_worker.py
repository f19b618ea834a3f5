"""A worker of this machine: Ctrl-C reaches the whole process group, and the command ends workers."""

from __future__ import annotations

import signal


def dask_setup(_worker: object) -> None:
    """Ignore interrupts, in a worker that begins; `distributed` calls this by its name."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
