"""Calls by which a program acts on its process, which several ranks may share here.

`sys.exit` and `os._exit` end the rank, as they end the process of a rank under torchrun. A
sleep gives the turn away, so that other ranks move meanwhile, and is short: no time passes on
the simulated machine. A name that a program imported before, as in `from time import sleep`,
keeps its meaning.

`torch.distributed.checkpoint.async_save` may start a process for each rank, and these processes
would be ranks of another group. Such a call is refused.

Note [What shows that a clock decides]
    A clock gives a line of the program's own files a number that is an instance of `float` or
    `int`, and so do sums and differences with it. The number notes where it is compared. A
    program that prints times compares none. Numbers of packages that are installed, of torch and
    of Python's library are plain.

    Not seen: `datetime`, a name that was imported before the run, and `int(time.time())`.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn
from unittest.mock import patch

from syncverify.sim.device.streams import own_streams
from syncverify.sim.device.torch_internals import saver_in_a_process
from syncverify.sim.turns.refusals import refusal
from syncverify.sim.turns.scheduler import own_rank
from syncverify.sim.turns.stalls import TurnTaking
from syncverify.trace.source_files import is_own_line
from syncverify.trace.stacks import is_subject_above

# A program may wait for another process, and look for it after each sleep.
_MAX_SLEEP_SECONDS = 0.05
_REFUSE_SAVER = refusal("checkpoints that another process saves")
_CLOCKS: Final = (
    *("monotonic", "perf_counter", "process_time", "time"),
    *("monotonic_ns", "perf_counter_ns", "process_time_ns", "time_ns"),
)
_ARITHMETIC: Final = (
    "add", "floordiv", "mod", "mul", "radd", "rmul", "rsub", "sub", "truediv",
)  # fmt: skip
_COMPARISONS: Final = ("ge", "gt", "le", "lt")


@contextmanager
def calls_on_ranks(scheduler: TurnTaking) -> Iterator[None]:
    """Let calls of a rank's thread act on the rank, for the length of a block."""
    process, leave, sleep = os.getpid(), os._exit, time.sleep

    def leave_rank(status: int) -> NoReturn:
        if own_rank() is None or os.getpid() != process:  # such as a forked child
            leave(status)
        raise SystemExit(status)

    def sleep_shortly(seconds: float) -> None:
        if own_rank() is None or not is_subject_above(2):
            sleep(seconds)
            return
        scheduler.yield_turn()
        pause = min(seconds, _MAX_SLEEP_SECONDS)
        sleep(pause)
        scheduler.note_pause(pause)

    clocks: dict[str, Any] = {name: _noting(getattr(time, name)) for name in _CLOCKS}
    with (
        patch.object(os, "_exit", leave_rank),
        patch.object(time, "sleep", sleep_shortly),
        patch.object(*saver_in_a_process(), _REFUSE_SAVER),
        patch.multiple(time, **clocks),
    ):
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
    names = *_ARITHMETIC, *_COMPARISONS
    methods = {f"__{name}__": _method(number, name) for name in names}
    # A file, or another rank, gets the number alone.
    methods["__reduce__"] = lambda self: (number, (number(self),))
    return type(f"Time as {number.__name__}", (number,), {"__slots__": (), **methods})


def _method(number: type, name: str) -> Any:
    own = getattr(number, f"__{name}__")

    def method(self: Any, other: Any) -> Any:
        if name in _COMPARISONS and (streams := own_streams()) is not None:
            streams.note_clock()
        return _time(own(self, other))

    return method


_KINDS: Final = {number: _kind(number) for number in (float, int)}
