"""Happens-before as a plain graph: every node, every edge, depth-first search.

Written from the rules alone, without clocks. A collective is four nodes on each of its
ranks: its issue, its start, its accesses, its end. Each other record is one node.
"""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    StorageFreed,
    StreamWait,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion

Node = Hashable
Found = set[tuple[int, int, int]]


class CyclicError(Exception):
    """No order satisfies the trace: on a machine it is a deadlock."""


@dataclass
class Graph:
    after: dict[Node, set[Node]] = field(default_factory=lambda: defaultdict(set))

    def edge(self, before: Node | None, after: Node) -> None:
        if before is not None:
            self.after[before].add(after)

    def reachable(self, start: Node) -> set[Node]:
        seen: set[Node] = set()
        stack = [start]
        while stack:
            for node in self.after[stack.pop()]:
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
        return seen


def bytes_of(region: MemoryRegion) -> set[tuple[int, int]]:
    reach = sum((count - 1) * distance for count, distance in region.repeats)
    run = region.end_byte - region.start_byte - reach
    offsets = [0]
    for count, distance in region.repeats:
        offsets = [base + i * distance for base in offsets for i in range(count)]
    return {
        (region.storage, region.start_byte + offset + i)
        for offset in offsets
        for i in range(run)
    }


class Reachability:
    """All pairs of accesses of a rank, and all frees, judged one by one."""

    def __init__(self, traces: Sequence[Sequence[TraceRecord]], semantics: str) -> None:
        self.traces = traces
        self.on_host = semantics == "host"
        self.graph = Graph()
        # By free: the last nodes of the streams for which the allocator waits.
        self.awaited: dict[tuple[int, int], list[Node]] = {}
        self.starts: dict[tuple[tuple[int, ...], int], list[Node]] = defaultdict(list)
        for rank, events in enumerate(traces):
            for index, event in enumerate(events):
                if isinstance(event, CollectiveLaunch):
                    self.starts[event.key].append(("start", rank, index))
        for rank, events in enumerate(traces):
            self._add_rank(rank, events)
        self.later: dict[Node, set[Node]] = {}

    def _add_rank(self, rank: int, events: Sequence[TraceRecord]) -> None:
        graph = self.graph
        tails: dict[str, Node] = {}  # last node of each stream
        marks: dict[int, Node] = {}
        ends: dict[tuple[tuple[int, ...], int], Node] = {}
        host: Node = ("host", rank, -1)

        def queue(node: Node, stream: str) -> None:
            name = "host" if self.on_host else stream
            graph.edge(tails.get(name), node)
            graph.edge(host, node)
            tails[name] = node

        for index, event in enumerate(events):
            now: Node = ("host", rank, index)
            graph.edge(host, now)
            host = now
            node: Node = ("node", rank, index)
            if isinstance(event, Access):
                queue(node, event.stream)
            elif isinstance(event, Mark):
                queue(node, event.stream)
                marks[event.mark] = node
            elif isinstance(event, StreamWait):
                graph.edge(marks.get(event.mark), node)
                queue(node, event.stream)
            elif isinstance(event, HostWait):
                graph.edge(marks.get(event.mark), host)
            elif isinstance(event, StorageFreed):
                streams = (*event.recorded_streams, *event.engine_streams)
                self.awaited[rank, index] = [
                    tails[each] for each in streams if each in tails
                ]
                queue(node, event.stream)
            elif isinstance(event, CollectiveWait):
                graph.edge(ends.get(event.key), node)
                queue(node, event.stream)
            elif isinstance(event, CollectiveLaunch):
                key = event.key
                start, end = ("start", rank, index), ("end", rank, index)
                issued: Node = ("issued", rank, index)
                queue(issued, event.stream)
                graph.edge(issued, start)
                graph.edge(start, node)
                graph.edge(node, end)
                for other in self.starts[key]:
                    graph.edge(other, end)
                ends[key] = end
                if event.communication_stream == event.stream:
                    queue(end, event.stream)
                elif not self.on_host:
                    queue(start, event.communication_stream)
                    tails[event.communication_stream] = end

    def is_before(self, first: Node, second: Node) -> bool:
        if first not in self.later:
            self.later[first] = self.graph.reachable(first)
        return second in self.later[first]

    def refuse_cycles(self) -> None:
        for starts in self.starts.values():
            for start in starts:
                if self.is_before(start, start):
                    raise CyclicError

    def races(self) -> Found:
        return {
            (rank, first, second)
            for rank, events in enumerate(self.traces)
            for first, second in itertools.combinations(self._uses(events), 2)
            if self._conflict(events[first], events[second])
            and not self._ordered(rank, first, second)
        }

    def early_frees(self) -> Found:
        """Return (rank, use, free) of all uses that may come after the free."""
        found: Found = set()
        for rank, events in enumerate(self.traces):
            gone: set[int] = set()
            for index, event in enumerate(events):
                if isinstance(event, StorageFreed) and event.storage not in gone:
                    gone.add(event.storage)
                    for use in self._uses(events[:index]):
                        if self._is_early(rank, use, index):
                            found.add((rank, use, index))
        return found

    def _is_early(self, rank: int, use: int, free: int) -> bool:
        event, freed = self.traces[rank][use], self.traces[rank][free]
        assert isinstance(freed, StorageFreed)
        reads, writes = _touched(event)
        storages = {storage for storage, _ in reads | writes}
        stream = (
            event.communication_stream
            if isinstance(event, CollectiveLaunch)
            else event.stream  # type: ignore[union-attr]  # an access
        )
        return (
            freed.storage in storages
            and stream not in (*freed.recorded_streams, *freed.engine_streams)
            and not self.is_before(("node", rank, use), ("node", rank, free))
            and not any(
                self.is_before(("node", rank, use), node)
                for node in self.awaited[rank, free]
            )
        )

    def _uses(self, events: Sequence[TraceRecord]) -> Iterator[int]:
        for index, event in enumerate(events):
            if isinstance(event, Access | CollectiveLaunch):
                yield index

    def _conflict(self, first: TraceRecord, second: TraceRecord) -> bool:
        reads, writes = _touched(first)
        other_reads, other_writes = _touched(second)
        return bool(writes & (other_reads | other_writes) or reads & other_writes)

    def _ordered(self, rank: int, first: int, second: int) -> bool:
        one, other = ("node", rank, first), ("node", rank, second)
        return self.is_before(one, other) or self.is_before(other, one)


Bytes = set[tuple[int, int]]


def _touched(event: TraceRecord) -> tuple[Bytes, Bytes]:
    if isinstance(event, CollectiveLaunch):
        reads, writes = event.regions, event.written
    else:
        assert isinstance(event, Access)
        reads, writes = event.reads, event.writes
    return (set().union(*map(bytes_of, reads)), set().union(*map(bytes_of, writes)))
