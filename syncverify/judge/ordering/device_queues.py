"""Whether devices get through the work that their hosts have queued.

Each stream is a queue, and runs its first entry alone. A collective is done once each of its
ranks runs it. So queues can wait for each other in a circle, though no host waits.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from syncverify.trace import records
from syncverify.trace.rounds import num_launches
from syncverify.trace.run import Trace, Traces

# Runs the first entry of a queue, and tells whether it is done.
_Entry = Callable[[], bool]


def waits_in_a_circle(traces: Traces) -> bool:
    """Return whether queued work waits in a circle.

    A rank that has not issued a collective may issue it later, so it counts as there.
    """
    absent = num_launches(traces)
    devices = [_Device(absent).queues_of(trace) for trace in traces]
    queues = [queue for own in devices for queue in own.values()]
    while any(_advance(queue) for queue in queues):
        pass
    return any(queues)


def _advance(queue: list[_Entry]) -> bool:
    """Run the entries of a queue up to one that waits; tell whether any was done."""
    num_done = 0
    while num_done < len(queue) and queue[num_done]():
        num_done += 1
    del queue[:num_done]
    return num_done > 0


@dataclass(slots=True)
class _Device:
    """The streams of one rank."""

    # By collective, number of ranks that have issued it and do not run it yet.
    absent: dict[records.CollectiveKey, int]
    # Marks that were reached, and keys of launches that the issuing stream has reached.
    reached: set[object] = field(default_factory=set)
    # Collectives that this rank runs, or has run.
    running: set[records.CollectiveKey] = field(default_factory=set)

    def queues_of(self, trace: Trace) -> dict[str, list[_Entry]]:
        queues = defaultdict[str, list[_Entry]](list)
        marked = set[int]()
        for record in trace:
            if isinstance(record, records.Mark):
                marked.add(record.mark)
            # CUDA does not wait for an event that was never recorded.
            if not isinstance(record, records.StreamWait) or record.mark in marked:
                for stream, entry in self._entries(record):
                    queues[stream].append(entry)
        return queues

    def _entries(self, record: records.TraceRecord) -> Iterator[tuple[str, _Entry]]:
        match record:
            case records.Mark():
                yield record.stream, lambda: self._reach(record.mark)
            case records.StreamWait():
                yield record.stream, lambda: record.mark in self.reached
            case records.CollectiveWait():
                yield record.stream, lambda: self._is_done(record.key)
            case records.CollectiveLaunch():
                runs_on = record.communication_stream
                if runs_on != record.stream:
                    yield record.stream, lambda: self._reach(record.key)
                    yield runs_on, lambda: record.key in self.reached
                yield runs_on, lambda: self._run(record.key)

    def _reach(self, mark: object) -> bool:
        self.reached.add(mark)
        return True

    def _run(self, key: records.CollectiveKey) -> bool:
        if key not in self.running:
            self.running.add(key)
            self.absent[key] -= 1
        return self._is_done(key)

    def _is_done(self, key: records.CollectiveKey) -> bool:
        return key in self.running and self.absent[key] <= 0
