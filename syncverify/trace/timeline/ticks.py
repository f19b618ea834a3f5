"""Logical time of the records of a run.

Note [Ticks]
    A trace has an order and no clock, so its time is counted in ticks:

    * A record is one tick after the record before it on the same rank.
    * A collective begins at its launch. It ends one tick after its last rank has launched it,
      and never if some rank does not launch it. Ranks without a trace do not count.
    * A wait for a collective comes at its end or later. A wait for one that never ends is at the
      next tick, so that the rest of the trace has a place as well.

    Queued work stands at the tick at which the host queued it. A device may run it later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncverify.trace.records import (
    CollectiveKey,
    CollectiveLaunch,
    CollectiveWait,
    TraceRecord,
)
from syncverify.trace.run import Traces


@dataclass(frozen=True, slots=True)
class Ticks:
    """The logical time of a run."""

    of_records: Sequence[Sequence[int]]  # by rank and position in the trace
    # Tick at which a collective has ended; those that never end are left out.
    ends: Mapping[CollectiveKey, int]

    @property
    def last(self) -> int:
        """Return one past the last tick of the run."""
        return max((tick for own in self.of_records for tick in own), default=0) + 1


def ticks_of(traces: Traces) -> Ticks:
    """Give each record of all ranks its tick; ranks without a trace take no part."""
    walk = _TickWalk(traces)
    while any(map(walk.advances, range(len(traces)))) or walk.gives_up():
        pass
    ends = {key: end for key, end in walk.ends.items() if not walk.absent[key]}
    return Ticks(walk.ticks, ends)


class _TickWalk:
    """A walk through all traces, in which ranks wait for each other's collectives."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        playing = {rank for rank, trace in enumerate(traces) if trace}
        # Ranks with a trace that have yet to launch each collective.
        self.absent = {
            record.key: playing & {*record.ranks}
            for trace in traces
            for record in trace
            if isinstance(record, CollectiveLaunch)
        }
        self.ticks: list[list[int]] = [[] for _ in traces]
        self.ends: dict[CollectiveKey, int] = {}
        self._given_up: set[CollectiveKey] = set()

    def advances(self, rank: int) -> bool:
        """Advance a rank as far as it goes; tell whether it could go on."""
        trace, own = self._traces[rank], self.ticks[rank]
        before = len(own)
        while len(own) < len(trace) and not self._waits(trace[len(own)]):
            self._place(rank, trace[len(own)])
        return len(own) > before

    def gives_up(self) -> bool:
        """Let the first rank that stands go on; tell whether one stood."""
        for trace, own in zip(self._traces, self.ticks, strict=True):
            if len(own) < len(trace):
                record = trace[len(own)]
                assert isinstance(record, CollectiveWait)
                self._given_up.add(record.key)
                return True
        return False

    def _waits(self, record: TraceRecord) -> bool:
        """Tell whether a record waits for a collective that other ranks may still launch."""
        if not isinstance(record, CollectiveWait) or record.key in self._given_up:
            return False
        return bool(self.absent.get(record.key))

    def _place(self, rank: int, record: TraceRecord) -> None:
        own = self.ticks[rank]
        tick = own[-1] + 1 if own else 0
        if isinstance(record, CollectiveWait):
            tick = max(tick, self.ends.get(record.key, 0))
        elif isinstance(record, CollectiveLaunch):
            self.absent[record.key].discard(rank)
            self.ends[record.key] = max(self.ends.get(record.key, 0), tick + 1)
        own.append(tick)
