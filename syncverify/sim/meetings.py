"""Where the calls of ranks meet: the n-th collective of each communicator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from syncverify.sim.collectives import Call
from syncverify.sim.scheduler import Scheduler
from syncverify.trace import Recorder


@dataclass(slots=True)
class Meeting:
    """The n-th collective of a communicator, filled as ranks arrive.

    Attributes:
        communicator: Name of the communicator, the same on every rank.
        sequence: Which of its collectives.
        calls: Each rank's call, by group rank; None until it arrives.
    """

    communicator: str
    sequence: int
    calls: list[Call | None]

    @property
    def name(self) -> str:
        """Name it among all things that ranks share, the same in every run."""
        return f"collective {self.communicator}#{self.sequence}"

    @property
    def is_complete(self) -> bool:
        """Tell whether every rank has arrived."""
        return all(call is not None for call in self.calls)


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
        meetings: Collectives by communicator, in order.
        mismatch: The first disagreement, which ended the run.
    """

    scheduler: Scheduler
    recorders: Sequence[Recorder]
    meetings: dict[str, list[Meeting]] = field(default_factory=dict)
    mismatch: Mismatch | None = None

    def meet(self, communicator: str, size: int, sequence: int) -> Meeting:
        """Find the n-th collective of a communicator, or open it."""
        opened = self.meetings.setdefault(communicator, [])
        while len(opened) <= sequence:
            opened.append(Meeting(communicator, len(opened), [None] * size))
        return opened[sequence]
