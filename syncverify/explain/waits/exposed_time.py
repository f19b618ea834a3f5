"""How long the traces of all ranks take on a machine with a stated link.

Note [A machine in a few numbers]
    A host queues an operator or a collective in `HOST_MICROSECONDS`, and each operator takes
    `OPERATOR_MICROSECONDS` on its stream. A collective starts on a rank once its stream is
    there. It ends on all ranks after the last start, a latency and the time of its bytes later.
    The model compares two traces of one run; it predicts no step of a real machine.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from syncverify.explain.repair.cost import bytes_of
from syncverify.scenario.settings import GIGABYTES_PER_SECOND, LATENCY_MICROSECONDS
from syncverify.trace import records
from syncverify.trace.rounds import Meeting, num_launches, walk_together
from syncverify.trace.run import Traces

HOST_MICROSECONDS: Final = 2.0
OPERATOR_MICROSECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Link:
    """The link between ranks."""

    latency_microseconds: float = LATENCY_MICROSECONDS  # of a collective without a byte
    gigabytes_per_second: float = GIGABYTES_PER_SECOND  # of one collective

    def microseconds(self, num_bytes: int) -> float:
        """Return the time of a collective of so many bytes on each rank."""
        return self.latency_microseconds + num_bytes / self.gigabytes_per_second / 1e3


@dataclass(slots=True, eq=False)
class _Meeting(Meeting):
    """Ranks that meet in a collective."""

    end: float = 0.0  # of the collective, in microseconds


def microseconds(traces: Traces, link: Link) -> float:
    """Return the time until all ranks are done with the work of their traces."""
    meetings = {key: _Meeting(number) for key, number in num_launches(traces).items()}
    ranks = [_RankClock(link, meetings) for _ in traces]
    walk_together(map(_RankClock.steps, ranks, traces))
    ends = (max(rank.host, *rank.streams.values(), 0.0) for rank in ranks)
    return max(ends, default=0.0)


@dataclass(slots=True)
class _RankClock:
    """The times of one rank, in microseconds."""

    link: Link
    meetings: dict[records.CollectiveKey, _Meeting]
    host: float = 0.0
    streams: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    marks: dict[int, float] = field(default_factory=dict)
    # The last collective of each communication stream, whose end its next entry waits for.
    running: dict[str, records.CollectiveKey] = field(default_factory=dict)

    def steps(self, trace: Sequence[records.TraceRecord]) -> Iterator[_Meeting]:
        """Walk a trace; yield a collective whose other ranks are not there yet."""
        for record in trace:
            match record:
                case records.Access():
                    self.host += HOST_MICROSECONDS
                    yield from self._settle(record.stream)
                    self._advance(record.stream, OPERATOR_MICROSECONDS)
                    if record.stream == records.HOST:
                        self.host = max(self.host, self.streams[records.HOST])
                case records.Mark():
                    yield from self._settle(record.stream)
                    self.marks[record.mark] = self.streams[record.stream]
                case records.StreamWait():
                    yield from self._settle(record.stream)
                    self._not_before(record.stream, self.marks.get(record.mark, 0.0))
                case records.HostWait():
                    self.host = max(self.host, self.marks.get(record.mark, 0.0))
                case records.CollectiveLaunch():
                    yield from self._launch(record)
                case records.CollectiveWait() if record.key in self.meetings:
                    yield from self._ended(record.key, record.stream)
                    if record.stream == records.HOST:
                        self.host = max(self.host, self.streams[records.HOST])
        for stream in [*self.running]:
            yield from self._settle(stream)

    def _launch(self, record: records.CollectiveLaunch) -> Iterator[_Meeting]:
        self.host += HOST_MICROSECONDS
        yield from self._settle(record.stream)
        yield from self._settle(record.runs_on)
        self._not_before(record.runs_on, self.streams[record.stream])
        self._advance(record.runs_on, 0.0)
        meeting = self.meetings[record.key]
        took = self.link.microseconds(bytes_of(record))
        meeting.end = max(meeting.end, self.streams[record.runs_on] + took)
        meeting.num_absent -= 1
        self.running[record.runs_on] = record.key

    def _settle(self, stream: str) -> Iterator[_Meeting]:
        key = self.running.pop(stream, None)
        if key is not None:
            yield from self._ended(key, stream)

    def _ended(self, key: records.CollectiveKey, stream: str) -> Iterator[_Meeting]:
        """Let a stream wait for a collective."""
        while self.meetings[key].num_absent > 0:
            yield self.meetings[key]
        self._not_before(stream, self.meetings[key].end)

    def _advance(self, stream: str, took: float) -> None:
        """Put an entry on a stream, which starts once the host has queued it."""
        self.streams[stream] = max(self.streams[stream], self.host) + took

    def _not_before(self, stream: str, time: float) -> None:
        self.streams[stream] = max(self.streams[stream], time)
