"""A parameter that the last micro-batch does not use counts as unused in the whole step.

Reported in pytorch/pytorch#69031.
"""

from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful
from syncverify.bugbank.bases.placements import slices
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/pytorch#69031",
    trigger="2 micro-batches, of which the last does not use the parameter",
    violates="unreduced_stay_local",
    cause="erased",
    uses_streams=True,
)
class ForgetsEarlierMicroBatches(Careful):
    """A parameter that the last micro-batch does not use counts as unused in the whole step."""

    features = frozenset({"used=not_in_last_micro_batch"})

    @override
    def launch(self, bucket: Bucket) -> None:
        for parameter, part in slices(bucket.buffer, bucket.parameters):
            if bucket.counts[parameter] < self.required:
                part.zero_()
        super().launch(bucket)
