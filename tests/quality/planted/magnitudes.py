"""Numbers of another size or factor: of gradients, of counts, and of divisions."""

import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from studies.redteam.bases import Main, Plain
from studies.redteam.second.wrong.numbers import ChunksOfSixtyFourKi, LargeInHalfWidth
from studies.redteam.wrong.sizes import FoldsOnePair
from studies.redteam.wrong.values import (
    ClearsByProduct,
    SkipsOnOverflow,
    SkipsZeroSums,
    TurnsNanToZero,
)
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import HUGE, VAST
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import (
    AveragedMainGrads,
    Bucket,
    MainGrads,
)
from syncverify.subjects.bugbank.bases.placements import local
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.bases.view_buckets import Bucket as ViewBucket
from syncverify.subjects.bugbank.bases.view_buckets import ReducesInWait, ViewBuckets
from tests.quality.planted.planted import (
    LOCAL,
    VALUE,
    WAITS,
    ZERO,
    Planted,
    built_in,
    plant,
    planted,
    right,
    training,
)


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


# Defects that one large number shows, and right twins; each is right in small scenarios.


BUCKET_BITS = 16
WARM_UP = 5
COUNTER = 8


def with_gradient(word: str) -> Scenario:
    """Return a program with one gradient of a kind beside another one."""
    special = ParameterSpec("p0", (3,), ("R",), gradient=word)
    other = ParameterSpec("p1", (2,), ("R",))
    return Scenario(MeshSpec((3,), ("dp",)), (special, other), (2, 1), 1 << 20)


class MasksBuckets(ReducesInWait):
    """A word of 16 bits says which buckets are in flight."""

    bits = BUCKET_BITS

    def wait(self) -> None:
        for bucket in self.buckets:
            self.launch(bucket)
        in_flight = 0
        for place in range(len(self.buckets)):
            in_flight |= 1 << place % self.bits
        for place, bucket in enumerate(self.buckets):
            if in_flight >> place & 1:
                self.finish(bucket)


class MasksManyBuckets(MasksBuckets):
    """Correct: the word has more bits than there are buckets."""

    bits = 2**16


class WrapsAfterFirstStep(PlainGrads):
    """Step 0 learns the order of gradients; later ones keep three bits of each place."""

    capabilities = Capabilities(varying_accumulations=True)

    def bind(self) -> None:
        self.is_learned = False

    def wait(self) -> None:
        places = range(len(self.parameters))
        for place in places:
            parameter = self.parameters[place % COUNTER if self.is_learned else place]
            if parameter.grad is not None:
                self.reduce(parameter.grad)
        self.is_learned = True


class SkipsAfterWarmUp(ReducesInWait):
    """Later steps take a short way, which leaves out the last bucket."""

    warm_up = WARM_UP

    def bind(self) -> None:
        self.num_steps = 0
        super().bind()

    def order(self) -> list[ViewBucket]:
        self.num_steps += 1
        return self.buckets if self.num_steps <= self.warm_up else self.buckets[:-1]


class SkipsFromTenthStep(SkipsAfterWarmUp):
    """The short way starts after ten steps, and leaves out the last bucket."""

    warm_up = 10


class CountsInThreeBits(ViewBuckets):
    """Counts wrap around at eight, on both sides of the comparison."""

    def is_ready(self, bucket: ViewBucket) -> bool:
        agreed = self.required % COUNTER
        return all(bucket.counts[p] % COUNTER == agreed for p in bucket.parameters)


def of(
    ranks: int, count: int, numel: int, cap_bytes: int = 2**23, steps: int = 1
) -> Scenario:
    """Return plain steps of `count` replicated parameters of `numel` elements."""
    counts = (1,) * steps
    return training(
        count, shape=(numel,), ranks=ranks, accumulations=counts, cap_bytes=cap_bytes
    )


def costly(
    subject: type, twin: type, size: str, below: Scenario, large: Scenario
) -> Planted:
    """Plant a defect of a size of which a search keeps one scenario."""
    assert ("size", size) in {*features_of(large)}
    return plant(subject, (), twin=twin, scenarios=(large,), elsewhere=(below,))


ZEROS, FINITE = with_gradient("zero"), with_gradient("finite")


# A declared divide factor holds on each group, also on one of one rank.


FACTOR = 4


def placed(shape: tuple[int, ...], *placements: str) -> Scenario:
    """Return a step of one parameter on a mesh of this shape."""
    mesh = MeshSpec(shape, ("dp", "tp")[: len(shape)])
    parameter = {"placements": placements}
    return training(mesh=mesh, accumulations=(2,), cap_bytes=64, parameter=parameter)


ONE_RANK = (placed((1,), "R"), placed((2, 1), "S0", "R"))
SEVERAL = (placed((2,), "R"), placed((2, 2), "R", "R"), placed((2, 2), "S0", "S0"))


@right(*ONE_RANK, *SEVERAL)
class Divides(PlainGrads):
    """Divides each sum by the declared factor."""

    capabilities = Capabilities(varying_accumulations=True, divide_factor=FACTOR)
    fewest_ranks = 1

    def reduce(self, gradient: torch.Tensor) -> None:
        super().reduce(gradient)
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        sizes = [
            mesh.size(axis)
            for axis, placement in enumerate(gradient.placements)
            if placement.is_replicate()
        ]
        if sizes and max(sizes) >= self.fewest_ranks:
            local(gradient).div_(FACTOR)


@planted(
    (LOCAL, "scaled"),
    scenarios=ONE_RANK,
    elsewhere=SEVERAL,
    says=("divided by 1 or not at all, and the contract divides by 4",),
)
class DropsTheFactorOfOneRank(Divides):
    """Leaves a gradient as it is where no rank sends anything."""

    fewest_ranks = 2


OTHERS = [
    plant(TurnsNanToZero, (VALUE, "overflow_hidden"), scenarios=OVERFLOWS),
    plant(ClearsByProduct, (ZERO, "gradient_left"), scenarios=OVERFLOWS),
    plant(SkipsOnOverflow, (WAITS, "deadlock"), scenarios=OVERFLOWS),
    plant(MainGrads, None, scenarios=(*OVERFLOWS, INFINITE)),
    plant(AveragedMainGrads, None, scenarios=OVERFLOWS),
    plant(ViewBuckets, None, scenarios=OVERFLOWS),
    plant(SkipsZeroSums, (), scenarios=(ZEROS,), elsewhere=(FINITE,)),
    *built_in("synchronizer", "ddp", scenarios=(ZEROS,)),
    costly(ChunksOfSixtyFourKi, Plain, "huge parameter", of(2, 1, HUGE), of(2, 1, HUGE + 1)),
    costly(LargeInHalfWidth, Main, "vast parameter", of(2, 1, 2 * HUGE), of(2, 1, VAST)),
    costly(MasksBuckets, MasksManyBuckets, "many buckets", of(2, 16, 3, 12), of(2, 17, 3, 12)),
    costly(FoldsOnePair, PlainGrads, "many ranks", of(5, 1, 3), of(6, 1, 3)),
    costly(SkipsFromTenthStep, ReducesInWait, "long training", of(2, 1, 3, steps=10), of(2, 1, 3, steps=12)),
]  # fmt: skip
