"""The first micro-batch starts the reduction, and a flag keeps later ones from it.

Reported in InfiniTensor/InfiniTrain#213.
"""

from typing_extensions import override

from syncverify.bugbank.bases.side_streams import SideStreams
from syncverify.bugbank.bases.view_buckets import Bucket
from syncverify.bugbank.entry import reported


@reported(
    "InfiniTensor/InfiniTrain#213",
    trigger="2 ranks, 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
    uses_streams=True,
)
class DispatchesOnce(SideStreams):
    """The first micro-batch starts the reduction, and a flag keeps later ones from it."""

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[p] == 1 for p in bucket.parameters)
