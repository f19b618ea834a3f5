"""What sees the operators of a thread, handed on to further threads of its rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)


def carried_modes() -> Callable[[], AbstractContextManager[None]]:
    """Take note of the dispatch modes of the calling thread.

    Returns:
        What turns them on, for the length of a block, on a thread where they are not.
        The engine does so itself for threads that it starts.
    """
    modes = _get_current_dispatch_mode_stack()

    @contextmanager
    def with_modes() -> Iterator[None]:
        there = _get_current_dispatch_mode_stack()
        missing = [mode for mode in modes if mode not in there]
        for mode in missing:
            _push_mode(mode)
        try:
            yield
        finally:
            for _ in missing:
                _pop_mode()

    return with_modes
