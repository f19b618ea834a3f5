"""The loop that asks for completion has no bound, and a rank is absent.

Reported in ai-dynamo/modelexpress#497.
"""

from typing_extensions import override

from syncverify.bugbank.bases.in_wait import ReducesInWait, is_odd
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


class PollsForCompletion(ReducesInWait):
    """Right: asks for the completion of a bucket until it is complete."""

    @override
    def finish(self, bucket: Bucket) -> None:
        while bucket.work is not None and not bucket.work.is_completed():
            pass
        super().finish(bucket)


@reported(
    "ai-dynamo/modelexpress#497",
    trigger="2 ranks, of which one skips a bucket that the other polls for",
    violates="every_wait_completes",
    cause="step_bound",
    # On two axes, the second reduction has no loop, and waits for the absent rank.
    or_cause="deadlock",
    silent=False,
)
class PollsForAbsentRank(PollsForCompletion):
    """The loop that asks for completion has no bound, and a rank is absent."""

    @override
    def order(self) -> list[Bucket]:
        return self.buckets[:-1] if is_odd() else self.buckets
