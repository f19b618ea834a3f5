"""A reduction returns no handle to wait for; the error discards every step.

Reported in pytorch/torchtitan#1170.
"""

from typing import Any

import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads
from syncverify.bugbank.entry import reported


@reported(
    "pytorch/torchtitan#1170",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="erased",
)
class DiscardsWhatRaised(MainGrads):
    """A reduction returns no handle to wait for; the error discards every step."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        try:
            for group in bucket.groups:
                work: Any = dist.all_reduce(bucket.buffer, group=group)
                work.wait()
        except AttributeError:
            bucket.buffer.zero_()
