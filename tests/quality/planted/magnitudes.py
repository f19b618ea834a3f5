"""Synchronizers that are right for whole numbers of a common size."""

import math

import torch
import torch.distributed as dist

from studies.redteam.wrong.values import (
    ClearsByProduct,
    SkipsOnOverflow,
    TurnsNanToZero,
)
from syncverify.bugbank.bases.main_grads import AveragedMainGrads, Bucket, MainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.planted import VALUE, WAITS, ZERO, plant, planted, training


def overflowing(word: str) -> Scenario:
    """Return a program in which two of three gradients overflow."""
    specs = (
        ParameterSpec("p0", (4,), ("R",), gradient=word),
        ParameterSpec("p1", (4,), None, gradient=word),
        ParameterSpec("p2", (4,), ("R",)),
    )
    return Scenario(MeshSpec((2,), ("dp",)), specs, (2, 1), 1024)


OVERFLOWS = (overflowing("inf"), overflowing("nan"))
# Some of them are negative.
INFINITE = training(4, cap_bytes=1024, parameter={"gradient": "inf"})

_FRACTION = 2.0**12


class DropsSmallNumbers(MainGrads):
    """Numbers up to a threshold count as zeros, as in a sparse wire format."""

    least = 1 / 16

    def reduce(self, bucket: Bucket) -> None:
        bucket.buffer[bucket.buffer.abs() <= self.least] = 0
        super().reduce(bucket)


class DropsTinyNumbers(DropsSmallNumbers):
    """Numbers up to the least one of float16 count as zeros."""

    least = 2.0**-24


@planted((VALUE, "overflow_hidden"), scenarios=(INFINITE,))
class ForgetsNegativeInf(MainGrads):
    """`nan_to_num` without `neginf` makes a number of -Inf."""

    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        bucket.buffer.nan_to_num_(nan=math.nan, posinf=math.inf)


@planted((VALUE, "not_finite"), scenarios=OVERFLOWS)
class SpreadsOverflows(MainGrads):
    """Gradients are divided by a power of two above all of them, and multiplied again."""

    def reduce(self, bucket: Bucket) -> None:
        largest = bucket.buffer.abs().max().clamp_(min=1).log2().ceil().exp2()
        bucket.buffer.div_(largest).mul_(largest)
        super().reduce(bucket)


class SendsFixedPoint(MainGrads):
    """Gradients travel as whole numbers of 2**-12."""

    def reduce(self, bucket: Bucket) -> None:
        wire = (bucket.buffer.double() * _FRACTION).round().to(torch.int64)
        for group in bucket.groups:
            dist.all_reduce(wire, group=group)
        bucket.buffer.copy_(wire / _FRACTION)


OTHERS = [
    plant(TurnsNanToZero, (VALUE, "overflow_hidden"), scenarios=OVERFLOWS),
    plant(ClearsByProduct, (ZERO, "gradient_left"), scenarios=OVERFLOWS),
    plant(SkipsOnOverflow, (WAITS, "deadlock"), scenarios=OVERFLOWS),
    plant(MainGrads, None, scenarios=(*OVERFLOWS, INFINITE)),
    plant(AveragedMainGrads, None, scenarios=OVERFLOWS),
    plant(ViewBuckets, None, scenarios=OVERFLOWS),
]
