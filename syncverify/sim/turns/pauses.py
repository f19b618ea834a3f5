"""Pauses of a subject between polls, which take next to no time on a simulated rank.

A very long delay has a thousand polls. A name that a subject imported before, as in
`from time import sleep`, keeps its meaning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from syncverify.sim.turns.scheduler import own_rank

_SHORTENED_SECONDS: Final = 1e-5
_MOST_BETWEEN_POLLS_SECONDS: Final = 0.1


@contextmanager
def short_pauses() -> Iterator[None]:
    """Shorten the pauses of ranks, for the length of a block."""
    sleep = time.sleep

    def pause(seconds: float) -> None:
        is_short = own_rank() is not None and 0 < seconds <= _MOST_BETWEEN_POLLS_SECONDS
        sleep(_SHORTENED_SECONDS if is_short else seconds)

    with patch.object(time, "sleep", pause):
        yield
