"""Synchronizers that are right for whole numbers of a common size."""

import math

import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.main_grads import Bucket, MainGrads

_FRACTION = 2.0**12


class DropsSmallNumbers(MainGrads):
    """Numbers up to a threshold count as zeros, as in a sparse wire format."""

    least = 1 / 16

    @override
    def reduce(self, bucket: Bucket) -> None:
        bucket.buffer[bucket.buffer.abs() <= self.least] = 0
        super().reduce(bucket)


class DropsTinyNumbers(DropsSmallNumbers):
    """Numbers up to the least one of float16 count as zeros."""

    least = 2.0**-24


class ForgetsNegativeInf(MainGrads):
    """`nan_to_num` without `neginf` makes a number of -Inf."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        bucket.buffer.nan_to_num_(nan=math.nan, posinf=math.inf)


class SpreadsOverflows(MainGrads):
    """Gradients are divided by a power of two above all of them, and multiplied again."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        largest = bucket.buffer.abs().max().clamp_(min=1).log2().ceil().exp2()
        bucket.buffer.div_(largest).mul_(largest)
        super().reduce(bucket)


class SendsFixedPoint(MainGrads):
    """Gradients travel as whole numbers of 2**-12."""

    @override
    def reduce(self, bucket: Bucket) -> None:
        wire = (bucket.buffer.double() * _FRACTION).round().to(torch.int64)
        for group in bucket.groups:
            dist.all_reduce(wire, group=group)
        bucket.buffer.copy_(wire / _FRACTION)
