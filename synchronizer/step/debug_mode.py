"""Checks of launches: writes meanwhile, and in debug mode the order on other ranks.

A comparison of orders goes through the store in each step.

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

from collections.abc import Iterator, Sequence

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.contract.errors import InFlightWriteError, LaunchOrderError
from syncverify.synchronizer.plan.plan_agreement import Fingerprint, compare
from syncverify.synchronizer.ranks.rendezvous import Rendezvous
from syncverify.synchronizer.ranks.scope import rank_list


class LaunchWatch:
    """Follows the launches of this rank in a step."""

    def __init__(self, rendezvous: Rendezvous | None) -> None:
        self._rendezvous = rendezvous
        self._step = 0
        # Buckets in launch order, each with torch's counts of writes at the launch.
        self._launched: dict[Bucket, tuple[int, ...]] = {}

    def note_launch(self, bucket: Bucket) -> None:
        """Record a bucket whose reduction was just started."""
        self._launched[bucket] = _versions(bucket)

    def restart(self) -> None:
        """Start the next step."""
        self._launched.clear()

    def refuse_other_order(self) -> None:
        """Refuse to wait where other ranks have launched in another order.

        Waits until all ranks that share buckets have launched all of them.

        Raises:
            LaunchOrderError: A rank has launched its buckets in another order.
            PlanMismatchError: A rank does not call `wait()` in time.
        """
        if self._rendezvous is None:
            return
        step, self._step = self._step, self._step + 1
        mine = Fingerprint.of([bucket.plan for bucket in self._launched])
        call = f"wait() in step {step}"
        different = compare(self._rendezvous, _topic(step), mine, call=call)
        if step:
            # All peers are in this step, so no rank reads notes of the previous one.
            self._rendezvous.delete(f"{_topic(step - 1)}/whole")
            self._rendezvous.delete(f"{_topic(step - 1)}/digest")
        if different:
            peer, found = next(iter(different.items()))
            raise LaunchOrderError(
                f"ranks launched different reductions, first at {found.subject}",
                expected="one launch order on all ranks that share buckets",
                got=f"{found.here}, on this rank; {found.there}, on rank {peer}",
                where=f"step {step}, unlike rank " + rank_list(different),
            )

    def writes_in_flight(self) -> InFlightWriteError | None:
        """Return the error for gradients that were written since their launch."""
        written = {
            bucket: names
            for bucket, before in self._launched.items()
            if (names := list(_written(bucket, before)))
        }
        if not written:
            return None
        return InFlightWriteError(
            "a gradient was written while it was being reduced",
            expected="no write to .grad between the last backward and wait()",
            got="; ".join(name for names in written.values() for name in names),
            where=", ".join(bucket.label for bucket in written),
        )


def _topic(step: int) -> str:
    return f"launches/{step}"


def _versions(bucket: Bucket) -> tuple[int, ...]:
    """Return torch's count of writes to the buffer, and then to each gradient."""
    return (bucket.version, *(view.gradient._version for view in bucket.views))  # noqa: SLF001


def _written(bucket: Bucket, before: Sequence[int]) -> Iterator[str]:
    """Yield the names of written gradients, as exactly as torch counts."""
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
