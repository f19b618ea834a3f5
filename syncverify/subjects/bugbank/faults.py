"""Errors after which a synchronizer goes on as if there were none."""

from typing import Any

import torch.distributed as dist
from torch import nn
from typing_extensions import override

from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.bugbank.bases.main_grads import Bucket as MainBucket
from syncverify.subjects.bugbank.bases.main_grads import MainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket
from syncverify.subjects.bugbank.entry import reported


@reported(
    "exception-leaves-reducer-state",
    "pytorch/pytorch#114194",
    trigger="2 ranks, a backward that fails",
    violates="accumulation_is_local_until_reduced",
    cause="reduced_early",
)
class KeepsCountsOfFailedStep(Careful):
    """Counts survive a backward that failed."""

    features = frozenset({"event=raise_in_backward"})

    @override
    def check_count(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        pass

    @override
    def is_ready(self, bucket: Bucket) -> bool:
        return all(bucket.counts[p] >= self.required for p in bucket.parameters)

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            bucket.counts.clear()

    @override
    def zero_grad(self) -> None:
        self.finish_thrown_away()
        self.num_launched = 0
        self.is_reduced = False
        for bucket in self.buckets:
            bucket.buffer.zero_()

    @override
    def finish_thrown_away(self) -> None:
        if self.num_launched and not self.is_reduced:
            self.launch_rest()
            super(Careful, self).wait()


@reported(
    "ft-hook-none-work",
    "pytorch/torchtitan#1170",
    trigger="2 ranks",
    violates="gradient_equals_reference",
    cause="erased",
)
class DiscardsWhatRaised(MainGrads):
    """A reduction returns no handle to wait for; the error discards every step."""

    @override
    def reduce(self, bucket: MainBucket) -> None:
        try:
            for group in bucket.groups:
                work: Any = dist.all_reduce(bucket.buffer, group=group)
                work.wait()
        except AttributeError:
            bucket.buffer.zero_()
