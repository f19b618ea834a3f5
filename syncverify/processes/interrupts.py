"""Ctrl-C does not reach a child process while it starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_blocked(*others: signal.Signals) -> Iterator[None]:
    """Block SIGINT in a block; processes that start in the block inherit the block.

    A worker ignores SIGINT, but only once it has imported its modules.

    Yields:
        Nothing. A blocked signal that came meanwhile is delivered at the end of the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *others})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
