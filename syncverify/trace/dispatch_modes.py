"""Dispatch modes of a thread: the harness's and those of the program.

A `TorchDispatchMode` sees the operators of the thread that entered it, and of no other
thread. A rank that starts threads would otherwise hide their operators.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from typing_extensions import override


class EagerMode(TorchDispatchMode):
    """Dispatch mode that torch does not wrap for programs that are compiled."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch

    @classmethod
    @override
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch wraps every call, and nothing here is compiled


class HarnessMode(TorchDispatchMode):
    """Dispatch mode of the harness, which no program has entered."""


def modes_of_program() -> list[TorchDispatchMode]:
    """Return the modes that a program entered, outermost first; none if one of them traces."""
    modes = [
        mode
        for mode in _get_current_dispatch_mode_stack()
        if not isinstance(mode, HarnessMode)
    ]
    # torch gives those that trace, such as `FakeTensorMode`, a place of their own.
    traces = any(getattr(mode, "_mode_key", None) is not None for mode in modes)
    return [] if traces else modes


def without_dispatch_modes() -> AbstractContextManager[None]:
    """Take all modes off the calling thread for a block, whose operators no mode sees."""
    return _with_stack([])


def modes_in_place(modes: Sequence[TorchDispatchMode]) -> AbstractContextManager[None]:
    """Put other modes in the place of a program's, above the harness's, for a block."""
    before = _get_current_dispatch_mode_stack()
    own = [mode for mode in before if isinstance(mode, HarnessMode)]
    return _with_stack([*own, *modes])


@contextmanager
def _with_stack(after: Sequence[TorchDispatchMode]) -> Iterator[None]:
    before = _get_current_dispatch_mode_stack()
    _change(before, after)
    try:
        yield
    finally:
        _change(after, before)


def _change(
    before: Sequence[TorchDispatchMode], after: Sequence[TorchDispatchMode]
) -> None:
    # torch's own `with` keeps flags for the whole process, which ranks would mix up.
    for _ in before:
        _pop_mode()
    for mode in after:
        _push_mode(mode)


def carry_dispatch_modes() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context manager with the calling thread's dispatch modes.

    The context manager turns modes on where they are off. Threads of autograd's engine have
    them already: the engine copies the modes of the thread that called `backward()`.
    """
    modes = _get_current_dispatch_mode_stack()

    def with_modes() -> AbstractContextManager[None]:
        active = _get_current_dispatch_mode_stack()
        return _with_stack([*active, *(mode for mode in modes if mode not in active)])

    return with_modes
