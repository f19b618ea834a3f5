"""Rendezvous: the calls of all ranks for the n-th collective of a communicator.

A message from rank to rank is a rendezvous of two. NCCL pairs messages by their order alone
and ignores their tags. gloo pairs those of one tag, which have a communicator of their own here.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from syncverify.sim.network.collectives import CollectiveCall
from syncverify.sim.turns.stalls import TurnTaking
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.source_lines import Origin


@dataclass(slots=True)
class Rendezvous:
    """The n-th collective of a communicator, filled as ranks arrive.

    A seat is a position in group order; a message has two seats, sender and receiver.
    """

    ranks: tuple[int, ...]  # global ranks, by seat
    name: str  # among all resources that ranks share, the same in every run
    calls: list[CollectiveCall | None]  # by seat; None until the rank arrives
    fails: bool = False  # each wait for it raises; nothing is written then

    @property
    def is_complete(self) -> bool:
        """Tell whether every rank has arrived."""
        return all(call is not None for call in self.calls)

    def forget(self, seat: int) -> None:
        """Let go of the tensors that a rank has received; the rendezvous lives on."""
        call = self.calls[seat]
        self.calls[seat] = call and dataclasses.replace(call, outputs=[])

    def missing_ranks(self) -> tuple[int, ...]:
        """Return the global ranks that have not arrived."""
        return tuple(
            rank
            for rank, call in zip(self.ranks, self.calls, strict=True)
            if call is None
        )


@dataclass(slots=True)
class Mismatch:
    """Two global ranks whose calls for one collective do not fit together."""

    ranks: tuple[int, int]
    lines: tuple[str, str]  # call of each rank in words, with the line that issued it
    sources: tuple[Origin, Origin]  # that line


@dataclass(slots=True)
class Failures:
    """The collectives between ranks that fail, as after the loss of a connection.

    Collectives of `bind()` never fail: they come before the loss.
    """

    from_step: int
    is_first_alone: bool = False  # only the first one of each communicator fails
    _first: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)

    def include(self, launched: CollectiveLaunch) -> bool:
        """Tell whether a collective fails."""
        moment, (communicator, ranks, sequence) = launched.moment, launched.key
        if moment.step < self.from_step or moment.phase == "bind" or len(ranks) == 1:
            return False
        first = self._first.setdefault((communicator, ranks), sequence)
        return not self.is_first_alone or sequence == first


@dataclass(slots=True)
class SimulatedWorld:
    """State that the simulated process groups of one run share."""

    scheduler: TurnTaking
    recorders: Sequence[Recorder]  # one per global rank
    collectives: dict[CollectiveKey, Rendezvous] = field(default_factory=dict)
    mismatch: Mismatch | None = None  # the first disagreement, which ended the run
    # The collectives of a communicator complete in the order of their calls, as on NCCL.
    completes_in_order: bool = False
    # The host waits for each collective where it issues it. No stream waits with it, so the
    # trace is that of a device that is faster than the host.
    is_prompt: bool = False
    # That the program of a rank has made.
    num_default_groups: Counter[int | None] = field(default_factory=Counter)
    # By name of the communicator: global ranks, and a rank and a line that used it.
    groups: dict[str, tuple[tuple[int, ...], int, Origin]] = field(default_factory=dict)
    failures: Failures | None = None

    def rendezvous(self, key: CollectiveKey) -> Rendezvous:
        """Return the rendezvous of a collective; the first rank opens it."""
        if key not in self.collectives:
            communicator, ranks, sequence = key
            name = f"rendezvous {sequence} of {communicator}, {ranks}"
            self.collectives[key] = Rendezvous(ranks, name, [None] * len(ranks))
        return self.collectives[key]

    def arrive(self, key: CollectiveKey, seat: int, call: CollectiveCall) -> None:
        """Note the call of a rank, whose inputs are copies."""
        self.rendezvous(key).calls[seat] = call

    def fails(self, launched: CollectiveLaunch) -> bool:
        """Tell whether a collective fails."""
        return self.failures is not None and self.failures.include(launched)
