"""A signal from one thread to another one: the turn of a rank, and its return."""

import contextlib
import threading

_FOR_EVER = -1.0


class Signal:
    """A signal that one thread gives and another one takes.

    A semaphore of `threading` is a condition and a counter in Python, and turns pass hundreds
    of times in a scenario. A lock of the interpreter passes them at a tenth of the cost. Given
    twice before it is taken, a signal counts once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()  # free only between `give` and `take`

    def give(self) -> None:
        """Let the thread that takes the signal go on."""
        with contextlib.suppress(RuntimeError):  # it has been given already
            self._lock.release()

    def take(self, timeout: float = _FOR_EVER) -> bool:
        """Wait for the signal; return False if it has not come in so many seconds."""
        return self._lock.acquire(timeout=timeout)
