"""Ranges in a profile, named by bucket, at no cost where nobody profiles.

`torch.profiler.record_function` takes microseconds even then. So torch's own flag is
read first; every profiler of `torch.profiler` and `torch.autograd.profiler` sets it.
"""

from contextlib import AbstractContextManager, nullcontext

from torch.autograd import profiler


def profiled(name: str) -> AbstractContextManager[object]:
    """Return a range for a profile.

    Args:
        name: What the range is called, after "GradientSynchronizer ".
    """
    if profiler._is_profiler_enabled:  # noqa: SLF001
        return profiler.record_function(f"GradientSynchronizer {name}")
    return nullcontext()
