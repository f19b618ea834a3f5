"""A synchronizer whose constructor takes no count, and mistakes with the announced count.

`set_required_accumulations()` comes after `bind()` and before the first step, as d9d 0.24 calls
it, and again where the count changes.
"""

from torch import nn

from syncverify.scenario.feature_table import PLAIN
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.bases.careful import Careful
from tests.quality.planted.planted import (
    ACCUMULATE,
    ONCE,
    built_in,
    planted,
    right,
    training,
)

NO_COUNT = 0
PLAIN_COUNTS = (2, 3, 3, 1)
EVENTS = (
    PLAIN,
    "rebind",
    "rebind_announced",
    "rebind_announced/unbound",
    "remade",
    "unbind_early",
)
REDUCED_EARLY = (ACCUMULATE, "reduced_early")
NOT_REDUCED = (ONCE, "not_reduced")


def after(event: str, *accumulations: int) -> Scenario:
    """Return steps with these counts, and an event in the first of them."""
    later = [PLAIN] * (len(accumulations) - 1)
    events = () if event == PLAIN else (event, *later)
    return training(
        2, shape=(3,), accumulations=accumulations, cap_bytes=12, events=events
    )


ANNOUNCED = tuple(
    after(event, *accumulations)
    for event in EVENTS
    for accumulations in (PLAIN_COUNTS, (3, 1, 2), (1, 1, 1), (2, 2, 2))
)
KEEPS, CHANGES = after(PLAIN, 2, 2, 2), after(PLAIN, *PLAIN_COUNTS)


@right(*ANNOUNCED)
class AnnouncedCount(Careful):
    """Takes the count by a call alone, at once and over rebinds."""

    features = frozenset({"event=rebind", "event=rebind_announced", "event=remade"})

    def __init__(
        self, param_groups: list[list[nn.Parameter]], bucket_size_mb: float
    ) -> None:
        super().__init__(param_groups, bucket_size_mb, NO_COUNT)


@planted(
    REDUCED_EARLY,
    scenarios=(
        after("rebind", 2, 2, 2),
        after("unbind_early", 2, 2, 2),
        after("rebind_announced", *PLAIN_COUNTS),
        after("rebind_announced/unbound", *PLAIN_COUNTS),
    ),
    elsewhere=(KEEPS, CHANGES),
)
class LosesCountOnBind(AnnouncedCount):
    """`bind()` forgets the count."""

    def bind(self) -> None:
        self.required = 1
        super().bind()


@planted(
    REDUCED_EARLY,
    scenarios=(after("rebind_announced/unbound", *PLAIN_COUNTS),),
    elsewhere=(CHANGES,),
)
class TellsBoundBucketsAlone(AnnouncedCount):
    """Drops a count that comes while there are no buckets, so between `unbind()` and `bind()`."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        if self.buckets:
            super().set_required_accumulations(require_accumulations)


@planted(REDUCED_EARLY, scenarios=(CHANGES,))
class AppliesCountOneStepLate(AnnouncedCount):
    """A count takes effect in the next `zero_grad()`, but for the first one."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.announced = require_accumulations
        self.required = self.required or require_accumulations

    def zero_grad(self) -> None:
        super().zero_grad()
        self.required = self.announced


@planted(NOT_REDUCED, scenarios=(CHANGES,))
class AppliesCountOneStepEarly(AnnouncedCount):
    """A count is compared at once with the accumulations of the step that has ended."""

    def zero_grad(self) -> None:
        ended = [bucket.counts.copy() for bucket in self.buckets]
        super().zero_grad()
        self.ended = ended

    def set_required_accumulations(self, require_accumulations: int) -> None:
        super().set_required_accumulations(require_accumulations)
        ended = getattr(self, "ended", [bucket.counts for bucket in self.buckets])
        for bucket, counts in zip(self.buckets, ended, strict=True):
            bucket.counts = counts
            if self.is_ready(bucket):
                self.launch_ready()
            bucket.counts.clear()


OTHERS = built_in("synchronizer", scenarios=ANNOUNCED)
