"""Times of each bucket: ready, launched and done; and ranges for a profile."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch.autograd import profiler


@dataclass(slots=True)
class BucketTimes:
    """Times of one bucket in the newest step in which it became ready.

    Times are those of the host, `time.perf_counter_ns`. On CPU the reduction is complete
    at `done_ns`. On an accelerator it is then only ordered before later work of the host;
    only a profile shows when the device is done.

    Attributes:
        ready_ns: Time at which every gradient had come, or the step was flushed.
        launched_ns: Time at which the reduction was queued; None where the bucket stays
            local.
        done_ns: Time at which the first `wait()` had waited for the bucket.
    """

    ready_ns: int
    launched_ns: int | None = None
    done_ns: int | None = None


def profiled(name: str) -> AbstractContextManager[object]:
    """Return a range for a profile, free of cost without an active profiler.

    `torch.profiler.record_function` takes microseconds even without a profiler. So this
    function reads torch's own flag first; every profiler of `torch.profiler` and
    `torch.autograd.profiler` sets it.
    """
    if profiler._is_profiler_enabled:  # noqa: SLF001
        return profiler.record_function(f"GradientSynchronizer {name}")
    return nullcontext()
