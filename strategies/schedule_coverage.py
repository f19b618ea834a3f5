"""What a search knows about the schedules of the scenarios that it played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from syncverify.sim.pct import DEFAULT_DEPTH

SAME = "all: order cannot matter"
FIRST = "the default"
DRAWN = "the default and one drawn"
COMPLETE = "one of each class"
RANDOM = "random priorities"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """How much of a scenario's schedules was played.

    Attributes:
        extent: One of the words above.
        num_classes: Classes of interleavings, where each was played.
        num_interleavings: What they stand for; None where that was not counted.
        probability: Least probability of meeting a bug of `DEFAULT_DEPTH` ordered moves,
            where priorities were random.
    """

    extent: str
    num_classes: int = 0
    num_interleavings: int | None = None
    probability: float = 0.0


def counts(known: Collection[Knowledge]) -> dict[str, int]:
    """Return the number of scenarios by extent, of those extents that were met."""
    met = Counter(each.extent for each in known)
    order = (SAME, FIRST, DRAWN, COMPLETE, RANDOM)
    return {extent: met[extent] for extent in order if met[extent]}


def summary(known: Collection[Knowledge]) -> Iterator[str]:
    """Say in words what was explored beyond single schedules."""
    complete = [each for each in known if each.extent == COMPLETE]
    if complete:
        classes = sum(each.num_classes for each in complete)
        yield (
            f"schedules of {len(complete)} scenario(s) complete: {classes} classes of "
            f"{_interleavings(complete)} interleavings"
        )
    chances = [each.probability for each in known if each.extent == RANDOM]
    if chances:
        yield (
            f"schedules of {len(chances)} scenario(s) by random priorities: in each, a bug "
            f"of {DEFAULT_DEPTH} ordered moves was met with a probability of at least "
            f"{min(chances):.2g}"
        )


def _interleavings(complete: Collection[Knowledge]) -> str:
    counted = [each.num_interleavings for each in complete]
    total = sum(count for count in counted if count is not None)
    return f"more than {total}" if None in counted else str(total)
