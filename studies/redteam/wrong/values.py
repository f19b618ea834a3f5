"""Defects that small whole numbers do not show."""

import torch
import torch.distributed as dist
from typing_extensions import override

from studies.redteam.bases import local_of
from studies.redteam.program import wrong
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import (
    Bucket,
    ReducesInWait,
    ViewBuckets,
)


@wrong(trigger="a gradient that is NaN: the loss scaler never sees it")
class TurnsNanToZero(ReducesInWait):
    """NaN is replaced by a number before the reduction."""

    @override
    def launch(self, bucket: Bucket) -> None:
        torch.nan_to_num_(bucket.buffer, nan=0.0)
        super().launch(bucket)


@wrong(trigger="an infinite gradient; the next step is NaN")
class ClearsByProduct(ViewBuckets):
    """Buckets are cleared by a product with 0."""

    @override
    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.counts.clear()
            bucket.buffer.mul_(0)


@wrong(trigger="an infinite gradient on one of 2 ranks: the others hang")
class SkipsOnOverflow(ReducesInWait):
    """A rank with an overflow leaves the reduction out."""

    @override
    def launch(self, bucket: Bucket) -> None:
        if bool(bucket.buffer.isfinite().all()):
            super().launch(bucket)


@wrong(trigger="a gradient beyond 1e5")
class ClampsLargeOnes(ReducesInWait):
    """Gradients are clamped to a range that the contract does not have."""

    @override
    def wait(self) -> None:
        super().wait()
        for bucket in self.buckets:
            if bucket.buffer.dtype != torch.float16:  # which ends before
                bucket.buffer.clamp_(-1e5, 1e5)


@wrong(trigger="a gradient below 1e-6")
class FlushesTinyOnes(PlainGrads):
    """Gradients below a threshold are flushed to zero before the reduction."""

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            if parameter.grad is not None:
                gradient = local_grad(parameter).detach()
                gradient.masked_fill_(gradient.abs() < 1e-6, 0)
        super().wait()


@wrong(trigger="a float32 gradient beyond 65504, or with more than 11 bits")
class SendsHalf(ReducesInWait):
    """Buckets of float32 are reduced in float16 if all of their numbers look small."""

    @override
    def launch(self, bucket: Bucket) -> None:
        if bucket.buffer.dtype != torch.float32:
            super().launch(bucket)
            return
        sent = bucket.buffer.half()
        for group in bucket.groups:
            dist.all_reduce(sent, group=group)
        bucket.buffer.copy_(sent)


@wrong(trigger="a gradient with a sum of exactly 0 on one of 2 ranks")
class SkipsZeroSums(PlainGrads):
    """A gradient that sums up to zero counts as not used, and is not reduced."""

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        if float(local_of(gradient).sum()) != 0:
            super().reduce(gradient)


@wrong(trigger="a float32 gradient beyond 2**24 in a sum with small ones")
class SumsWholeNumbers(ReducesInWait):
    """Float32 buckets are reduced as 32-bit whole numbers, since the values looked whole."""

    @override
    def launch(self, bucket: Bucket) -> None:
        if bucket.buffer.dtype != torch.float32:
            super().launch(bucket)
            return
        sent = bucket.buffer.to(torch.int32)
        for group in bucket.groups:
            dist.all_reduce(sent, group=group)
        bucket.buffer.copy_(sent)
