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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from syncverify.trace.records import CollectiveKey, CollectiveLaunch, CollectiveWait
from syncverify.trace.rounds import Meeting, walk_together
from syncverify.trace.run import Trace, Traces


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
    playing = {rank for rank, trace in enumerate(traces) if trace}
    members = {
        record.key: len(playing & {*record.ranks})
        for trace in traces
        for record in trace
        if isinstance(record, CollectiveLaunch)
    }
    meetings = {key: _TickMeeting(number, number) for key, number in members.items()}
    ticks: list[list[int]] = [[] for _ in traces]
    walk_together(
        _placed(trace, own, meetings) for trace, own in zip(traces, ticks, strict=True)
    )
    ends = {key: each.end for key, each in meetings.items() if not each.num_missing}
    return Ticks(ticks, ends)


@dataclass(slots=True, eq=False)
class _TickMeeting(Meeting):
    """A collective, and its end."""

    num_missing: int = 0  # ranks with a trace that have yet to launch it
    end: int = 0  # tick

    def launch(self, tick: int) -> None:
        """Launch it on one more rank."""
        self.num_missing -= 1
        self.num_absent -= 1
        self.end = max(self.end, tick + 1)


def _placed(
    trace: Trace, own: list[int], meetings: Mapping[CollectiveKey, _TickMeeting]
) -> Iterator[Meeting]:
    """Give the records of a rank their ticks; yield a collective that others may still launch."""
    for record in trace:
        tick = own[-1] + 1 if own else 0
        if isinstance(record, CollectiveWait) and record.key in meetings:
            yield from meetings[record.key].awaited()
            tick = max(tick, meetings[record.key].end)
        elif isinstance(record, CollectiveLaunch):
            meetings[record.key].launch(tick)
        own.append(tick)
