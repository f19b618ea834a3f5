"""A window whose length differs from that of the first is reduced early, or never.

Reported in NovaSky-AI/SkyRL#2146.
"""

from typing_extensions import override

from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.bugbank.entry import reported


@reported(
    "NovaSky-AI/SkyRL#2146",
    trigger="2 ranks, windows of 1 and then of 2 micro-batches",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class LearnsCountOnce(ViewBuckets):
    """A window whose length differs from that of the first is reduced early, or never."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        pass
