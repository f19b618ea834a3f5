"""Vector clocks: the entries of each lane that run before a given point.

A lane is a queue of one rank, such as a stream; its entries run one after the other. A
clock maps each lane to the number of its entries that come before the point. A lane that
the clock does not name counts as 0.
"""

from dataclasses import dataclass, field

from syncverify.trace.rounds import Meeting

Clock = dict[int, int]


def join(clock: Clock, other: Clock) -> None:
    """Order the point of `clock` after that of `other`: take the larger count of each lane."""
    for lane, count in other.items():
        if clock.get(lane, 0) < count:
            clock[lane] = count


@dataclass(slots=True, eq=False)
class CollectiveClock(Meeting):
    """Clock of one collective: it ends on a rank after those that send to this rank started it."""

    # Join of the clocks with which the ranks started it: of all ranks, or of the one that sends.
    starts: Clock = field(default_factory=dict)

    def arrive(self, start: Clock, *, sends: bool = True) -> None:
        """Start the collective on one more rank, with its clock; others may depend on a sender."""
        if sends:
            join(self.starts, start)
        self.num_absent -= 1


@dataclass(slots=True, eq=False)
class Lane:
    """A queue of one rank."""

    index: int  # among the lanes of all ranks
    rank: int
    name: str  # of the stream
    clock: Clock  # of the next entry
    # Collectives that the next entry waits for and that are not joined into the clock yet.
    collectives: list[CollectiveClock] = field(default_factory=list)
    num_host_waits: int = 0  # waits and operators of the host that the clock contains

    def push(self) -> int:
        """Add an entry, and return its number in the lane, from 1."""
        count = self.clock[self.index] + 1
        self.clock[self.index] = count
        return count
