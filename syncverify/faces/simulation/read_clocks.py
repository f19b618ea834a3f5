"""Clocks of the host: a program may read them, and it may decide by them what it does.

Note [What shows that a clock decides]
    A clock gives a line of the program's own files a number that is an instance of `float` or
    `int`, and so do sums and differences with it. The number notes where it is compared. A
    program that prints times compares none. Numbers of packages that are installed, of torch and
    of Python's library are plain.

    Not seen: `datetime`, a name that was imported before the run, and `int(time.time())`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from syncverify.sim.device.streams import own_streams
from syncverify.trace.source_files import is_own_line

_CLOCKS: Final = ("monotonic", "perf_counter", "process_time", "time")
_ARITHMETIC: Final = (
    "add", "floordiv", "mod", "mul", "radd", "rmul", "rsub", "sub", "truediv",
)  # fmt: skip
_COMPARISONS: Final = ("ge", "gt", "le", "lt")


@contextmanager
def clocks_noted() -> Iterator[None]:
    """Note where a rank compares a time of a clock, for the length of a block."""
    with ExitStack() as patches:
        for name in (*_CLOCKS, *(f"{clock}_ns" for clock in _CLOCKS)):
            clock = _noting(getattr(time, name))
            patches.enter_context(patch.object(time, name, clock))
        yield


def _noting(clock: Callable[[], Any]) -> Callable[[], Any]:
    def reading() -> Any:
        own = sys._getframe(1).f_code.co_filename
        if own_streams() is None or not is_own_line(own):
            return clock()
        return _time(clock())

    return reading


def _time(value: Any) -> Any:
    """Return a number that notes where it is compared; any other value as it is."""
    kind = _KINDS.get(type(value))
    return value if kind is None else kind(value)


def _kind(number: type) -> Any:
    """Return the class of times that are of one class of numbers."""
    methods = {f"__{name}__": _calculating(number, name) for name in _ARITHMETIC}
    methods |= {f"__{name}__": _comparing(number, name) for name in _COMPARISONS}
    # A file, or another rank, gets the number alone.
    methods["__reduce__"] = lambda self: (number, (number(self),))
    return type(f"Time as {number.__name__}", (number,), {"__slots__": (), **methods})


def _calculating(number: type, name: str) -> Any:
    own = getattr(number, f"__{name}__")
    return lambda self, other: _time(own(self, other))


def _comparing(number: type, name: str) -> Any:
    own = getattr(number, f"__{name}__")

    def compare(self: Any, other: Any) -> Any:
        streams = own_streams()
        if streams is not None:
            streams.note_clock()
        return own(self, other)

    return compare


_KINDS: Final = {number: _kind(number) for number in (float, int)}
