"""Times of each bucket: ready, launched and done; and ranges for a profile."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch.autograd import profiler


@dataclass(frozen=True, slots=True)
class BucketTiming:
    """Times of one bucket in the newest step that was waited for.

    Times are those of the host, `time.perf_counter_ns`. On CPU the reduction is
    complete at `done_ns`. On an accelerator it is then only ordered before later work
    of the host; only a profile shows when the device is done.

    Attributes:
        index: Number of the bucket, as in messages.
        num_bytes: Size of the buffer, padding included.
        ready_ns: Time at which every gradient had come, or the step was flushed.
        launched_ns: Time at which the reduction was queued; None where the bucket stays
            local.
        done_ns: Time at which `wait()` had waited for the bucket.
    """

    index: int
    num_bytes: int
    ready_ns: int
    launched_ns: int | None
    done_ns: int


class Stopwatch:
    """Takes the times of one bucket."""

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


def profiled(name: str) -> AbstractContextManager[object]:
    """Return a range for a profile, free of cost without an active profiler.

    `torch.profiler.record_function` takes microseconds even without a profiler. So this
    function reads torch's own flag first; every profiler of `torch.profiler` and
    `torch.autograd.profiler` sets it.
    """
    if profiler._is_profiler_enabled:  # noqa: SLF001
        return profiler.record_function(f"GradientSynchronizer {name}")
    return nullcontext()
