"""Pauses of a subject between polls, which take next to no time on a simulated rank.

A very long delay has a thousand polls. The clocks of the rank go on as if it had waited. A name
that a subject imported before, as in `from time import sleep`, keeps its meaning.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from syncverify.sim.turns.decisions import SECONDS_BETWEEN_POLLS
from syncverify.sim.turns.scheduler import own_rank, pass_seconds, passed_seconds

_SHORTENED_SECONDS: Final = 1e-5
_CLOCKS: Final = ("monotonic", "perf_counter", "time")


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten the pauses of ranks, for the length of a block."""
    sleep = time.sleep

    def pause(seconds: float) -> None:
        is_short = own_rank() is not None and 0 < seconds <= SECONDS_BETWEEN_POLLS
        sleep(_SHORTENED_SECONDS if is_short else seconds)
        if is_short:
            pass_seconds(seconds)

    clocks: dict[str, Any] = {name: _ahead(getattr(time, name)) for name in _CLOCKS}
    with patch.multiple(time, sleep=pause, **clocks):
        yield


def _ahead(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that the time of a rank's pauses is added to."""
    return lambda: clock() + passed_seconds()
