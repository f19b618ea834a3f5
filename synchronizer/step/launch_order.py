"""The launch order of buckets, which is the same for any order of gradients.

Note [Writes that no hook sees]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd calls a hook for each accumulation. A write to `.grad` by other code calls no
hook, and between launch and `wait()` it races with the reduction. torch counts in-place
writes to a tensor in `_version`, which is how it detects writes to tensors that
autograd has saved. Views share the count of their buffer; a DTensor counts its
operations by itself. So both counts are compared. Such a write may come from a hook of
the user on an AccumulateGrad node, which torch calls after the hooks of the parameter.

    counted        in-place operations on the buffer, on a view, on a DTensor
    not counted    results of a process group (a test shows it for gloo): no false alarm
    not seen       `torch._foreach_...` on DTensors, writes of a kernel through a
                   pointer, writes through a `.data` that was taken before
"""

from collections.abc import Iterable, Sequence

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.bucket.state import BucketState
from syncverify.synchronizer.contract.errors import InFlightWriteError
from syncverify.synchronizer.ranks.bound_ranks import BoundRanks

_READY = BucketState.READY  # a global, so that a hook looks it up once


class LaunchOrder:
    """Launches buckets as soon as the order allows.

    See Note [One launch order] in `plan/grouping.py`.

    Args:
        bound: The ranks of this synchronizer, which tell of others that are bound.
    """

    def __init__(self, bound: BoundRanks) -> None:
        # Buckets that communicate; a local bucket delays no other.
        self.buckets: list[Bucket] = []
        # The first of them, each with torch's counts of writes at its launch.
        self._launched: dict[Bucket, tuple[int, ...]] = {}
        self._bound = bound

    def set_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Set the buckets, in launch order."""
        self.buckets = [bucket for bucket in buckets if bucket.communicates]

    def launch_ready(self, *, in_backward: bool = True) -> None:
        """Launch the ready buckets, up to the first one that is not ready.

        Two synchronizers may launch in another order on each rank in backward. A collective
        of one would then meet a collective of the other. Calls of `wait()` have one order on
        all ranks, so with a second synchronizer, buckets are launched there.
        """
        if in_backward and self._bound.are_shared:
            return
        for bucket in self.buckets[len(self._launched) :]:
            if bucket.state is not _READY:
                return
            bucket.launch()
            self._launched[bucket] = _versions(bucket)

    def writes_in_flight(self) -> InFlightWriteError | None:
        """Return the error for gradients that were written since their launch.

        It is to be raised once the reductions are complete.
        """
        written = {
            bucket: names
            for bucket, before in self._launched.items()
            if (names := _written(bucket, before))
        }
        if not written:
            return None
        return InFlightWriteError(
            "a gradient was written while it was being reduced",
            expected="no write to .grad between the last backward and wait()",
            got="; ".join(written.values()),
            where=", ".join(bucket.label for bucket in written),
        )

    def restart(self) -> None:
        """Start the next step."""
        self._launched.clear()

    def forget(self) -> None:
        """Drop the references to all buckets, and delay no other synchronizer."""
        self._bound.release()
        self.buckets.clear()
        self.restart()


def _versions(bucket: Bucket) -> tuple[int, ...]:
    """Return torch's count of writes to the buffer, and then to each DTensor."""
    versions = (view.gradient._version for view in bucket.dtensor_views)  # noqa: SLF001
    return (bucket.version, *versions)


def _written(bucket: Bucket, before: Iterable[int]) -> str:
    """Return the names of gradients that were written since; "" for none.

    A write to the buffer is counted for all its views together.
    """
    buffer, *gradients = [
        now - then for now, then in zip(_versions(bucket), before, strict=True)
    ]
    if buffer:
        return f"one of {_names(bucket.views)}"
    counts = zip(bucket.dtensor_views, gradients, strict=True)
    return _names([view for view, num_writes in counts if num_writes])


def _names(views: Iterable[GradientView]) -> str:
    return ", ".join(view.plan.name for view in views)
