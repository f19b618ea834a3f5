"""What debug mode looks at in every step; costs a comparison through the store each.

Note [Writes that no hook sees]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Autograd tells us of what it accumulates. Whoever writes to a `.grad` by hand tells nobody,
and between launch and `wait()` races with the reduction. Torch counts in-place writes to
a tensor in its `_version`, which is how it finds writes to what autograd has saved. Views
share the count of their buffer; an operation on a DTensor is counted by the DTensor
alone. So we compare both. A process group writes its results uncounted (a test says so
of gloo). What torch does not count we do not see: `torch._foreach_...` on DTensors,
whatever a kernel does to a pointer, or a write through `.data` that was taken before.
"""

from collections.abc import Iterator, Sequence

from .agreement import Fingerprint, compare
from .bucket import Bucket
from .errors import InFlightWriteError, LaunchOrderError
from .gradient_view import GradientView
from .rendezvous import Rendezvous


class LaunchWatch:
    """Follows what a rank launches in a step.

    Args:
        rendezvous: Where to meet ranks that share buckets; None where there are none.
    """

    def __init__(self, rendezvous: Rendezvous | None) -> None:
        self._rendezvous = rendezvous
        self._step = 0
        # In order; what torch had counted when the bucket was launched.
        self._launched: dict[Bucket, tuple[int, ...]] = {}

    def note_launch(self, bucket: Bucket) -> None:
        """Take note of a launch.

        Args:
            bucket: Whose reduction was just started.
        """
        self._launched[bucket] = _versions(bucket)

    def restart(self) -> None:
        """Start the next step."""
        self._launched.clear()

    def refuse_other_order(self) -> None:
        """Refuse to wait for reductions that other ranks have launched otherwise.

        Waits until all ranks that share buckets have launched all of theirs.

        Raises:
            LaunchOrderError: Some rank has launched its share in another order.
            PlanMismatchError: Some rank does not wait in time.
        """
        if self._rendezvous is None:
            return
        step, self._step = self._step, self._step + 1
        mine = Fingerprint.of([bucket.plan for bucket in self._launched])
        call = f"wait() in step {step}"
        different = compare(self._rendezvous, _topic(step), mine, call=call)
        if step:
            # Everybody is in this step, so nobody reads notes on the one before.
            self._rendezvous.take_back(f"{_topic(step - 1)}/whole")
            self._rendezvous.take_back(f"{_topic(step - 1)}/digest")
        if different:
            peer, found = next(iter(different.items()))
            raise LaunchOrderError(
                f"ranks launched different reductions, first at {found.subject}",
                expected="one launch order on all ranks that share buckets",
                got=f"{found.here}, on this rank; {found.there}, on rank {peer}",
                where=f"step {step}, unlike rank " + ", ".join(map(str, different)),
            )

    def writes_in_flight(self) -> InFlightWriteError | None:
        """Look for gradients that were written since they were launched.

        Returns:
            What to raise, once the reductions are over; None where there were none.
        """
        written = {
            bucket: names
            for bucket, before in self._launched.items()
            if (names := list(_written(bucket, before)))
        }
        if not written:
            return None
        return InFlightWriteError(
            "a gradient was written while it was being reduced",
            expected="nobody to write to .grad between the last backward and wait()",
            got="; ".join(name for names in written.values() for name in names),
            where=", ".join(bucket.label for bucket in written),
        )


def _topic(step: int) -> str:
    return f"launches/{step}"


def _versions(bucket: Bucket) -> tuple[int, ...]:
    """Return what torch counts for the buffer, and then for each gradient."""
    return (bucket.version, *(view.gradient._version for view in bucket.views))  # noqa: SLF001


def _written(bucket: Bucket, before: Sequence[int]) -> Iterator[str]:
    """Yield who was written, as exactly as torch counts."""
    buffer, *gradients = [
        now - then for now, then in zip(_versions(bucket), before, strict=True)
    ]
    if buffer:
        yield f"one of {_names(bucket.views)}"
        return
    changed = [v for v, n in zip(bucket.views, gradients, strict=True) if n]
    if changed:
        yield _names(changed)


def _names(views: Sequence[GradientView]) -> str:
    return ", ".join(view.plan.name for view in views)
