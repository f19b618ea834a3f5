"""When each bucket of a step was ready, launched and done."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BucketTiming:
    """One bucket of the newest step that was waited for.

    Times are those of the host, `time.perf_counter_ns`. On CPU a reduction is over when
    it is done. On an accelerator it is then ordered before whatever the host queues
    next; when the device is done, only a profile tells.

    Attributes:
        index: As in messages.
        num_bytes: Of the buffer, padding included.
        ready_ns: Every gradient had come, or the step was flushed.
        launched_ns: The reduction was queued; None where the bucket stays local.
        done_ns: `wait()` had waited for it.
    """

    index: int
    num_bytes: int
    ready_ns: int
    launched_ns: int | None
    done_ns: int


class Stopwatch:
    """Notes the times of one bucket.

    Args:
        index: Of the bucket.
        num_bytes: Of its buffer.
    """

    def __init__(self, index: int, num_bytes: int) -> None:
        self.newest: BucketTiming | None = None
        self._index = index
        self._num_bytes = num_bytes
        self._ready_ns = 0
        self._launched_ns: int | None = None

    def note_ready(self) -> None:
        """Take the time at which the bucket became ready."""
        self._ready_ns = time.perf_counter_ns()

    def note_launched(self) -> None:
        """Take the time at which the reduction was queued."""
        self._launched_ns = time.perf_counter_ns()

    def note_done(self) -> None:
        """Take the time at which the bucket was waited for, and complete its record."""
        done_ns = time.perf_counter_ns()
        self.newest = BucketTiming(
            self._index, self._num_bytes, self._ready_ns, self._launched_ns, done_ns
        )
