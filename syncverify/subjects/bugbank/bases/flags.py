"""A flag says for each micro-batch whether to reduce, as `no_sync` does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from typing_extensions import override

from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


class FlagsMicroBatches(ViewBuckets):
    """Reduces buckets in the micro-batch with the flag, however many came before it."""

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        """Run forward and backward with a flag."""
        self.is_syncing = is_last
        compute_loss().backward()

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        counted = {bucket.counts[parameter] for parameter in bucket.parameters}
        return self.may_reduce(bucket) and len(counted) == 1

    def may_reduce(self, bucket: Bucket) -> bool:
        """Tell whether this micro-batch reduces a bucket."""
        return self.is_syncing
