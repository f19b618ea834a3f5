"""The launch order of buckets, which is the same for any order of gradients."""

from collections.abc import Sequence

from syncverify.synchronizer.bucket.bucket import Bucket
from syncverify.synchronizer.bucket.state import BucketState
from syncverify.synchronizer.contract.errors import InFlightWriteError
from syncverify.synchronizer.ranks.bound_ranks import BoundRanks
from syncverify.synchronizer.ranks.notes import Notes
from syncverify.synchronizer.step.given_up import launch_as_peers_have
from syncverify.synchronizer.step.launch_watch import LaunchWatch

_READY = BucketState.READY  # a global, so that a hook looks it up once


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

        Two synchronizers may launch in another order on each rank in backward. A collective
        of one would then meet a collective of the other. Calls of `wait()` have one order on
        all ranks, so with a second synchronizer, buckets are launched there.
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
        """Launch the buckets that peers have launched, in a step that is given up.

        Raises `PlanMismatchError` where a peer does not publish its launches in time.
        """
        if self._notes is not None:
            launch_as_peers_have(self.buckets, self._notes, call=call)

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
