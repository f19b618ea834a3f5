"""Defects that one large number shows, and right twins; each is right in small scenarios."""

from studies.redteam.bases import Main, Plain
from studies.redteam.second.wrong.numbers import (
    ChunksOfSixtyFourKi,
    LargeInHalfWidth,
)
from studies.redteam.wrong.sizes import FoldsOnePair
from studies.redteam.wrong.values import SkipsZeroSums
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.bases.view_buckets import Bucket, ViewBuckets
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import HUGE, VAST
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.planted import Planted, built_in, plant, training

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

    def order(self) -> list[Bucket]:
        self.num_steps += 1
        return self.buckets if self.num_steps <= self.warm_up else self.buckets[:-1]


class SkipsFromTenthStep(SkipsAfterWarmUp):
    """The short way starts after ten steps, and leaves out the last bucket."""

    warm_up = 10


class CountsInThreeBits(ViewBuckets):
    """Counts wrap around at eight, on both sides of the comparison."""

    def is_ready(self, bucket: Bucket) -> bool:
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


ZERO, FINITE = with_gradient("zero"), with_gradient("finite")
OTHERS = [
    plant(SkipsZeroSums, (), scenarios=(ZERO,), elsewhere=(FINITE,)),
    *built_in("synchronizer", "ddp", scenarios=(ZERO,)),
    costly(ChunksOfSixtyFourKi, Plain, "huge parameter", of(2, 1, HUGE), of(2, 1, HUGE + 1)),
    costly(LargeInHalfWidth, Main, "vast parameter", of(2, 1, 2 * HUGE), of(2, 1, VAST)),
    costly(MasksBuckets, MasksManyBuckets, "many buckets", of(2, 16, 3, 12), of(2, 17, 3, 12)),
    costly(FoldsOnePair, PlainGrads, "many ranks", of(5, 1, 3), of(6, 1, 3)),
    costly(SkipsFromTenthStep, ReducesInWait, "long training", of(2, 1, 3, steps=10), of(2, 1, 3, steps=12)),
]  # fmt: skip
