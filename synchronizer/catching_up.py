"""Ranks that give a step up launch what their peers have launched, so that nobody hangs.

Note [Catching up]
~~~~~~~~~~~~~~~~~~
An error in the middle of a backward finds ranks at different places: one has launched a
bucket, and for another its last gradient has not come. What is launched cannot be called
back, and does not end before all of its ranks have launched it. So each rank leaves, for
each set of ranks, how many of the buckets of that set it has launched, and then launches
as many as any of them. Which those are is no question: all of the set launch its buckets
in one order. Nor can ranks wait for each other in a circle, since each of them goes through
its buckets in launch order. What comes of it is thrown away.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from .bucket import Bucket
from .bucket_state import BucketState
from .errors import CommHookError
from .rendezvous import Rendezvous

_TOPIC = "launched"
Ranks = tuple[int, ...]


def catch_up(buckets: Sequence[Bucket], rendezvous: Rendezvous, *, call: str) -> None:
    """Launch all buckets that some peer has launched in this step.

    Waits until every peer has told what it launched. May be called once in a bind.

    Args:
        buckets: Those that communicate, in launch order.
        rendezvous: Where the peers are.
        call: In which every peer does the same.

    Raises:
        PlanMismatchError: A peer did not, in the store's time.
    """
    mine = Counter(
        ranks for bucket in buckets if _is_launched(bucket) for ranks in _scopes(bucket)
    )
    listed = [[*ranks, count] for ranks, count in mine.items()]
    rendezvous.leave(_TOPIC, json.dumps(listed).encode())
    most = mine
    for peer in rendezvous.peers:
        theirs = json.loads(rendezvous.read(_TOPIC, peer, call=call))
        # Of the larger count, set by set; sets that this rank is not in do no harm.
        most |= Counter({tuple(ranks): count for *ranks, count in theirs})
    _launch(buckets, most)


def _launch(buckets: Sequence[Bucket], most: Counter[Ranks]) -> None:
    """Launch the first so many buckets of each set of ranks."""
    for bucket in buckets:
        is_awaited = any(most[ranks] > 0 for ranks in _scopes(bucket))
        most.subtract(_scopes(bucket))
        if is_awaited and not _is_launched(bucket):
            with suppress(CommHookError):  # it has been raised where the hook is called
                bucket.launch()


def _scopes(bucket: Bucket) -> Iterator[Ranks]:
    """Yield the ranks that a bucket is summed over, or compared with."""
    for scope in (bucket.plan.scope, bucket.plan.check):
        if scope:
            yield scope.ranks


def _is_launched(bucket: Bucket) -> bool:
    return bucket.state in {BucketState.LAUNCHED, BucketState.REDUCED}
