"""A step that is given up: each rank launches the buckets that its peers have launched.

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
"""

import json
from collections import Counter
from contextlib import suppress

from syncverify.synchronizer.bucket.bucket import Bucket, BucketState
from syncverify.synchronizer.contract.errors import CommHookError
from syncverify.synchronizer.step.sequence import BucketSequence

_TOPIC = "launched"


def match_peer_launches(sequence: BucketSequence, *, call: str) -> None:
    """Launch all buckets that a peer has launched in this step.

    Waits until every peer has published its launches in `call`, and raises
    `PlanMismatchError` where a peer does not in time. At most one call in a bind.
    """
    notes, buckets = sequence.notes, sequence.shared_buckets
    if notes is None:
        return
    most = Counter(_ranks(bucket) for bucket in buckets if _is_launched(bucket))
    # In JSON: for each set of ranks a list of its ranks, with the count as its last element.
    listed = [[*ranks, count] for ranks, count in most.items()]
    notes.write(_TOPIC, json.dumps(listed).encode())
    for peer in notes.peers:
        theirs = json.loads(notes.read(_TOPIC, peer, call=call))
        # The maximum for each set. Sets without this rank have no effect.
        most |= Counter({tuple(ranks): count for *ranks, count in theirs})
    num_seen = Counter[tuple[int, ...]]()
    for bucket in buckets:
        num_seen[_ranks(bucket)] += 1
        is_awaited = num_seen[_ranks(bucket)] <= most[_ranks(bucket)]
        if is_awaited and not _is_launched(bucket):
            with suppress(CommHookError):  # the step is given up already
                bucket.launch(packs=False)


def _ranks(bucket: Bucket) -> tuple[int, ...]:
    assert bucket.plan.scope is not None, "local buckets are not launched"
    return bucket.plan.scope.ranks


def _is_launched(bucket: Bucket) -> bool:
    return bucket.state in {BucketState.LAUNCHED, BucketState.REDUCED}
