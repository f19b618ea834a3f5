"""Writes to gradients between the launch of their bucket and `wait()`.

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

from collections.abc import Sequence

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import InFlightWriteError


class LaunchWatch:
    """Finds writes to gradients that are being reduced; see the note above."""

    def __init__(self) -> None:
        # Buckets in launch order, each with torch's counts of writes at the launch.
        self._launched: dict[Bucket, tuple[int, ...]] = {}

    def note_launch(self, bucket: Bucket) -> None:
        """Record a bucket whose reduction was just started."""
        self._launched[bucket] = _versions(bucket)

    def restart(self) -> None:
        """Start the next step."""
        self._launched.clear()

    def writes_in_flight(self) -> InFlightWriteError | None:
        """Return the error for gradients that were written since their launch."""
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


def _versions(bucket: Bucket) -> tuple[int, ...]:
    """Return torch's count of writes to the buffer, and then to each DTensor."""
    versions = (view.gradient._version for view in bucket.dtensor_views)  # noqa: SLF001
    return (bucket.version, *versions)


def _written(bucket: Bucket, before: Sequence[int]) -> str:
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


def _names(views: Sequence[GradientView]) -> str:
    return ", ".join(view.plan.name for view in views)
