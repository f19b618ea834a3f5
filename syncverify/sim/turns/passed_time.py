"""Time that passes for a rank in its pauses, and between the polls of a very long delay.

The host does not wait for it: the clocks of Python's `time` are ahead by this time on the rank.
"""

from __future__ import annotations

import threading

# The threads of a run are new ones, so each run begins at 0.
_OWN = threading.local()


def passed_seconds() -> float:
    """Return the time that has passed for the rank of this thread."""
    seconds: float = getattr(_OWN, "seconds", 0.0)
    return seconds


def pass_seconds(seconds: float) -> None:
    """Let time pass for the rank of this thread."""
    _OWN.seconds = passed_seconds() + seconds
