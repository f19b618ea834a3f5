"""Vector clocks: what has certainly run before the next thing in a queue.

A lane is a queue whose entries run one after the other: a stream of one rank. A clock
says for each lane how many of its entries come before a point. A lane that a clock does
not name has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Clock = dict[int, int]


def join(clock: Clock, other: Clock) -> None:
    """Let what comes before another point come before this one too.

    Args:
        clock: Of this point; changed in place.
        other: Of the other one.
    """
    for lane, count in other.items():
        if clock.get(lane, 0) < count:
            clock[lane] = count


@dataclass(slots=True, eq=False)
class Meeting:
    """A collective, which ends on no rank before all of its ranks have started it.

    Attributes:
        num_absent: Ranks that have yet to start it. Ranks whose trace ends before are
            not counted: nothing is known of them.
        starts: What comes before the start on some rank.
    """

    num_absent: int = 0
    starts: Clock = field(default_factory=dict)

    def arrive(self, start: Clock) -> None:
        """Start it on one more rank.

        Args:
            start: What comes before.
        """
        join(self.starts, start)
        self.num_absent -= 1


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of one rank.

    Attributes:
        index: Its number among the lanes of all ranks.
        rank: Whose it is.
        name: Of the stream.
        clock: What comes before the next entry.
        meetings: Collectives that the next entry must wait for besides.
        num_host_waits: How many waits of the host the clock contains.
    """

    index: int
    rank: int
    name: str
    clock: Clock
    meetings: list[Meeting] = field(default_factory=list)
    num_host_waits: int = 0

    def push(self) -> int:
        """Add an entry, and return its number, from 1."""
        count = self.clock[self.index] + 1
        self.clock[self.index] = count
        return count
