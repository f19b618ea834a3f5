"""A synchronizer whose constructor takes no count, and mistakes with the announced count.

`set_required_accumulations()` comes after `bind()` and before the first step, as d9d 0.24 calls
it, and again where the count changes.
"""

from torch import nn
from typing_extensions import override

from syncverify.bugbank.bases.careful import Careful

NO_COUNT = 0


class AnnouncedCount(Careful):
    """Takes the count by a call alone, at once and over rebinds."""

    features = frozenset({"event=rebind", "event=rebind_announced", "event=remade"})

    def __init__(
        self, param_groups: list[list[nn.Parameter]], bucket_size_mb: float
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, NO_COUNT)


class LosesCountOnBind(AnnouncedCount):
    """`bind()` forgets the count."""

    @override
    def bind(self) -> None:
        self.required = 1
        super().bind()


class TellsBoundBucketsAlone(AnnouncedCount):
    """Drops a count that comes while there are no buckets, so between `unbind()` and `bind()`."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        if self.buckets:
            super().set_required_accumulations(require_accumulations)


class AppliesCountOneStepLate(AnnouncedCount):
    """A count takes effect in the next `zero_grad()`, but for the first one."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.announced = require_accumulations
        self.required = self.required or require_accumulations

    @override
    def zero_grad(self) -> None:
        super().zero_grad()
        self.required = self.announced


class AppliesCountOneStepEarly(AnnouncedCount):
    """A count is compared at once with the accumulations of the step that has ended."""

    @override
    def zero_grad(self) -> None:
        ended = [bucket.counts.copy() for bucket in self.buckets]
        super().zero_grad()
        self.ended = ended

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        super().set_required_accumulations(require_accumulations)
        ended = getattr(self, "ended", [bucket.counts for bucket in self.buckets])
        for bucket, counts in zip(self.buckets, ended, strict=True):
            bucket.counts = counts
            if self.is_ready(bucket):
                self.launch_ready()
            bucket.counts.clear()
