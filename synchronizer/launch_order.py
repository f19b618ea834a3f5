"""The order in which buckets are launched: one, whatever order gradients come in."""

from collections.abc import Sequence

from .bucket import Bucket
from .bucket_state import BucketState
from .catching_up import catch_up
from .debugging import LaunchWatch
from .errors import InFlightWriteError
from .rendezvous import Rendezvous

_READY = BucketState.READY  # looked up once, and not in each hook


class LaunchOrder:
    """Launches buckets as far as they are ready, see Note [One launch order].

    Args:
        rendezvous: Where to meet ranks that share buckets; None where there are none.
        debug: Whether to compare what ranks launch, and to look for writes meanwhile.
    """

    def __init__(self, rendezvous: Rendezvous | None, *, debug: bool) -> None:
        # Those that communicate; local ones hold nobody up.
        self.buckets: list[Bucket] = []
        self._num_launched = 0
        self._rendezvous = rendezvous
        self._watch = LaunchWatch(rendezvous) if debug else None

    def enter(self, buckets: Sequence[Bucket]) -> None:
        """Take over the order of all buckets."""
        self.buckets = [bucket for bucket in buckets if bucket.communicates]

    def launch_ready(self) -> None:
        """Launch as far as the order allows."""
        for bucket in self.buckets[self._num_launched :]:
            if bucket.state is not _READY:
                return
            bucket.launch()
            if self._watch is not None:
                self._watch.note_launch(bucket)
            self._num_launched += 1

    def catch_up(self, *, call: str) -> None:
        """Launch what peers have launched, ready or not; the step is given up.

        Args:
            call: In which every peer does the same.
        """
        if self._rendezvous is not None:
            catch_up(self.buckets, self._rendezvous, call=call)

    def check(self) -> InFlightWriteError | None:
        """Compare what was launched between ranks, before anything can hang for it.

        Returns:
            What to raise for gradients that were written meanwhile, once the reductions
            are over; None where nobody looks.

        Raises:
            LaunchOrderError: Some rank has launched its share in another order.
        """
        if self._watch is None:
            return None
        self._watch.refuse_other_order()
        return self._watch.writes_in_flight()

    def restart(self) -> None:
        """Start the next step."""
        self._num_launched = 0
        if self._watch is not None:
            self._watch.restart()

    def forget(self) -> None:
        """Let go of every bucket."""
        self.buckets.clear()
        self._watch = None
