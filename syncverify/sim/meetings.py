"""Where the calls of ranks meet: the n-th collective of each communicator.

A message from rank to rank is a meeting of two. NCCL pairs messages by their order alone,
whatever their tags, and so do we.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from syncverify.recorder import Recorder
from syncverify.sim.collectives import Call
from syncverify.sim.scheduler import Scheduler
from syncverify.trace import Place


@dataclass(slots=True)
class Meeting:
    """The n-th collective of a communicator, filled as ranks arrive.

    Attributes:
        ranks: Global ranks that meet, by seat: in group order, or sender and receiver.
        name: Its name among all things that ranks share, the same in every run.
        calls: Each rank's call, by seat; None until it arrives.
    """

    ranks: tuple[int, ...]
    name: str
    calls: list[Call | None]

    @property
    def is_complete(self) -> bool:
        """Tell whether every rank has arrived."""
        return all(call is not None for call in self.calls)

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the global ranks that have not arrived."""
        return tuple(
            rank
            for rank, call in zip(self.ranks, self.calls, strict=True)
            if call is None
        )


@dataclass(slots=True)
class Mismatch:
    """Two ranks that met in one collective and disagree.

    Attributes:
        ranks: Their global ranks.
        lines: What each issued, and where.
    """

    ranks: tuple[int, int]
    lines: tuple[str, str]


@dataclass(slots=True)
class SimulatedWorld:
    """What the simulated process groups of one run share.

    Attributes:
        scheduler: Hands out turns.
        recorders: One per global rank.
        meetings: Collectives by communicator and position.
        mismatch: The first disagreement, which ended the run.
    """

    scheduler: Scheduler
    recorders: Sequence[Recorder]
    meetings: dict[Place, Meeting] = field(default_factory=dict)
    mismatch: Mismatch | None = None

    def meet(self, place: Place) -> Meeting:
        """Find the n-th collective of a communicator, or open it."""
        if place not in self.meetings:
            communicator, ranks, sequence = place
            name = f"meeting {sequence} of {communicator}, {ranks}"
            self.meetings[place] = Meeting(ranks, name, [None] * len(ranks))
        return self.meetings[place]
