"""The launch order of buckets, which is the same for any order of gradients.

Note [Giving up a step]
~~~~~~~~~~~~~~~~~~~~~~~
An error in the middle of a backward finds ranks at different places: one has launched a
bucket, and another still misses the last gradient of that bucket. A launch cannot be
taken back, and it completes only after a launch on all ranks of the bucket. So no rank
may stop here. In `reset()`:

1. Each rank publishes, for each set of ranks, the number of launched buckets of that
   set.
2. Each rank launches further buckets of a set up to the largest published number.

All ranks of a set launch its buckets in one order, so the number identifies the
buckets. Ranks cannot wait for each other in a circle, because each of them goes through
its buckets in launch order. The sums are dropped.

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

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.gradient_view import GradientView
from syncverify.synchronizer.bucket.state import BucketState
from syncverify.synchronizer.contract.errors import CommHookError, InFlightWriteError
from syncverify.synchronizer.ranks.bound_ranks import BoundRanks
from syncverify.synchronizer.ranks.notes import Notes

_READY = BucketState.READY  # a global, so that a hook looks it up once
_TOPIC = "launched"


class LaunchOrder:
    """Launches buckets as soon as the order allows.

    See Note [One launch order] in `plan/grouping.py`.

    Args:
        notes: Notes to the peers; None without peers.
        bound: The ranks of this synchronizer, which tell of others that are bound.
    """

    def __init__(self, notes: Notes | None, bound: BoundRanks) -> None:
        # Buckets that communicate; a local bucket delays no other.
        self.buckets: list[Bucket] = []
        self._num_launched = 0
        self._notes = notes
        self._bound = bound
        self._watch = LaunchWatch()

    def set_buckets(self, buckets: Sequence[Bucket]) -> None:
        """Set the buckets, in launch order."""
        self.buckets = [bucket for bucket in buckets if bucket.communicates]

    def launch_ready(self, *, in_backward: bool = True) -> None:
        """Launch the ready buckets, up to the first one that is not ready.

        Backwards of two synchronizers may take turns in another way on each rank, and a
        collective of the one would meet a collective of the other. Calls of `wait()` have
        one order on all ranks, so with a second synchronizer, buckets are launched there.
        """
        if in_backward and self._bound.are_shared:
            return
        for bucket in self.buckets[self._num_launched :]:
            if bucket.state is not _READY:
                return
            bucket.launch()
            self._watch.note_launch(bucket)
            self._num_launched += 1

    def match_peer_launches(self, *, call: str) -> None:
        """Launch the buckets that peers have launched, in a step that is given up."""
        if self._notes is not None:
            _launch_as_peers_have(self.buckets, self._notes, call=call)

    def writes_in_flight(self) -> InFlightWriteError | None:
        """Return the error for gradients that were written since their launch.

        It is to be raised once the reductions are complete.
        """
        return self._watch.writes_in_flight()

    def restart(self) -> None:
        """Start the next step."""
        self._num_launched = 0
        self._watch.restart()

    def forget(self) -> None:
        """Drop the references to all buckets, and delay no other synchronizer."""
        self._bound.release()
        self.buckets.clear()
        self.restart()


class LaunchWatch:
    """Follows the launches of this rank in a step."""

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


def _versions(bucket: Bucket) -> tuple[int, ...]:
    """Return torch's count of writes to the buffer, and then to each DTensor."""
    versions = (view.gradient._version for view in bucket.dtensor_views)  # noqa: SLF001
    return (bucket.version, *versions)


def _written(bucket: Bucket, before: Sequence[int]) -> Iterator[str]:
    """Yield what was written, if anything: names of gradients, as exactly as torch counts."""
    buffer, *gradients = [
        now - then for now, then in zip(_versions(bucket), before, strict=True)
    ]
    if buffer:
        yield f"one of {_names(bucket.views)}"
        return
    changed = [v for v, n in zip(bucket.dtensor_views, gradients, strict=True) if n]
    if changed:
        yield _names(changed)


def _names(views: Sequence[GradientView]) -> str:
    return ", ".join(view.plan.name for view in views)


def _launch_as_peers_have(
    buckets: Sequence[Bucket], notes: Notes, *, call: str
) -> None:
    """Launch all buckets that a peer has launched in this step.

    Waits until every peer has published its launches in `call`, and raises
    `PlanMismatchError` where a peer does not in time. At most one call in a bind.
    """
    mine = Counter(_ranks(bucket) for bucket in buckets if _is_launched(bucket))
    listed = [[*ranks, count] for ranks, count in mine.items()]
    notes.write(_TOPIC, json.dumps(listed).encode())
    most = Counter(mine)
    for peer in notes.peers:
        theirs = json.loads(notes.read(_TOPIC, peer, call=call))
        # The maximum for each set. Sets without this rank have no effect.
        most |= Counter({tuple(ranks): count for *ranks, count in theirs})
    _launch(buckets, most)


def _launch(buckets: Sequence[Bucket], most: Counter[tuple[int, ...]]) -> None:
    """Launch the given number of buckets of each set of ranks."""
    num_left = Counter(most)
    for bucket in buckets:
        is_awaited = num_left[_ranks(bucket)] > 0
        num_left[_ranks(bucket)] -= 1
        if is_awaited and not _is_launched(bucket):
            with suppress(CommHookError):  # the step is given up already
                bucket.launch(packs=False)


def _ranks(bucket: Bucket) -> tuple[int, ...]:
    assert bucket.plan.scope is not None, "local buckets are not launched"
    return bucket.plan.scope.ranks


def _is_launched(bucket: Bucket) -> bool:
    return bucket.state in {BucketState.LAUNCHED, BucketState.REDUCED}
