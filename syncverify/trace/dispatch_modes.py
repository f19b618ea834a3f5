"""Dispatch modes of a thread, carried over to other threads of its rank.

A `TorchDispatchMode` sees the operators of the thread that entered it, and of no other
thread. A rank that starts threads would otherwise hide their operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)


def carry_dispatch_modes() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context manager with the calling thread's dispatch modes.

    The context manager turns modes on where they are off. Threads of autograd's engine have
    them already: the engine copies the modes of the thread that called `backward()`.
    """
    modes = _get_current_dispatch_mode_stack()

    @contextmanager
    def with_modes() -> Iterator[None]:
        active = _get_current_dispatch_mode_stack()
        missing = [mode for mode in modes if mode not in active]
        for mode in missing:
            _push_mode(mode)
        try:
            yield
        finally:
            for _ in missing:
                _pop_mode()

    return with_modes
