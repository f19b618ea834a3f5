"""Nothing overlaps with backward: `wait()` reduces bucket after bucket."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.view_buckets import Bucket, ViewBuckets


class ReducesInWait(ViewBuckets):
    """Launches nothing in backward, and bucket after bucket in `wait()`."""

    @override
    def on_accumulated(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def wait(self) -> None:
        for bucket in self.order():
            self.launch(bucket)
        super().wait()

    def order(self) -> list[Bucket]:
        """List buckets in the order in which they are launched."""
        return self.buckets


def is_odd() -> bool:
    """Tell whether this rank's number is odd."""
    # In reports, data, a flag, addresses or a clock make ranks differ. Numbers do in every run.
    return dist.get_rank() % 2 == 1
