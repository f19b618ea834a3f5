"""Lines that decide by a clock of the host, on several ranks.

On a cluster the clocks of ranks differ, and a run has one reading of each. Such a program may be
right, so it is a remark. A rank that decides alone may tell the others: that is none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from syncverify.trace.records import ClockCompared
from syncverify.trace.run import Run
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class ComparedClock:
    """A line that compares a time of a clock.

    Attributes:
        ranks: Global ranks that compared there.
    """

    source: Origin
    ranks: tuple[int, ...]

    @property
    def operation(self) -> str:
        """The action of the line."""
        return "clock"

    @property
    def lines(self) -> tuple[Origin, ...]:
        """The lines that the remark names."""
        return (self.source,)


def compared_clocks(run: Run) -> list[ComparedClock]:
    """Find the lines of a run at which several ranks compare times."""
    ranks = defaultdict[Origin, list[int]](list)
    for rank, rank_run in enumerate(run.ranks):
        for record in rank_run.trace:
            if isinstance(record, ClockCompared):
                ranks[record.source].append(rank)
    return [
        ComparedClock(source, tuple(found))
        for source, found in ranks.items()
        if len(found) > 1
    ]
