"""wait() flushes buckets without work in flight: those that it just finished.

Reported in pytorch/pytorch#115967.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#115967",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="reduced_twice",
)
class ReducesWhatIsReduced(ViewBuckets):
    """wait() flushes buckets without work in flight: those that it just finished."""

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            if bucket.work is None:
                self.launch(bucket)
                self.finish(bucket)
