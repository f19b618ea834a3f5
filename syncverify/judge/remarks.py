"""Remarks on a run: what may be meant, and is often a mistake.

| remark | why it is no violation |
|---|---|
| a clock of the host decides on several ranks | a rank that decides alone may tell the others |
| nothing waits for a collective | nothing may read the result |
| two ranks issue equal collectives in opposite orders | the values may be meant to be exchanged |
| a message meets a receive of another tag | the program may not care which of two messages it gets |

Note [A later wait on the same group]
    The stream of a communicator runs in order, so a wait for a later collective waits for the
    earlier ones too. Programs rely on that, and read all results after the last wait. Where nothing
    ever reads a result, the later wait was hardly meant for it: that is a remark, too. A line whose
    results are read in another step is none.

Note [When collectives are swapped]
    NCCL matches collectives by their order alone. Two that are equal in operation, size and dtype
    meet without an error, and the ranks get each other's values. The lines of ranks may differ, as
    where stages of a pipeline take other branches. So a swap is told only where both ranks issue the
    same collectives, each as often, in different orders. What makes two collectives the same is:

    1. the line that issues them, with the lines that led to it; or, where these agree,
    2. the data, by its name; data without a name, by the number that the rank gave its memory.

    Both tell apart only calls of one operation, size, dtype and root. Data misleads where a rank
    makes the same tensors in an order of its own, and does not reduce them in that order.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from itertools import chain

from typing_extensions import override

from syncverify.judge.traced import launches_of
from syncverify.plain_text import named
from syncverify.trace import records
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Run, Trace
from syncverify.trace.source_lines import Origin

_Launches = list[records.CollectiveLaunch]


@dataclass(frozen=True, slots=True)
class Remark:
    """A remark, one for all ranks and times of its lines."""

    operation: str  # a collective, `message` or `clock`
    ranks: tuple[int, ...]  # of two that meet, in the order of the lines
    lines: tuple[Origin, ...]  # named by the sentence
    sentence: str
    is_swap: bool = False  # two ranks exchange their values in this order of the ranks

    @override
    def __str__(self) -> str:
        return self.sentence


def remarks_on(run: Run, guilty_lines: Set[object]) -> Iterator[Remark]:
    """Yield the remarks on a run that name no line of a violation."""
    found = list[Remark]()
    if run.fault is None:  # else a wait may come later, and calls may not be complete
        found += [*_forgotten_handles(run), *_swapped_collectives(run), *_tags(run)]
    for each in [*found, *_compared_clocks(run)]:
        if guilty_lines.isdisjoint(each.lines):
            yield each


def _compared_clocks(run: Run) -> Iterator[Remark]:
    """Yield the lines at which several ranks compare times of a clock."""
    by_line = defaultdict[Origin, list[int]](list)
    for rank, rank_run in enumerate(run.ranks):
        for record in rank_run.trace:
            if isinstance(record, records.ClockCompared):
                by_line[record.source].append(rank)
    for line, ranks in by_line.items():
        if len(ranks) > 1:
            sentence = (
                f"a clock decides at {line} ({named('rank', ranks)}): on a cluster the clocks of "
                "ranks differ, and other times were not tried; let one rank decide, and "
                "broadcast its choice"
            )
            yield Remark("clock", tuple(ranks), (line,), sentence)


def _forgotten_handles(run: Run) -> Iterator[Remark]:
    """Yield the lines whose collectives no stream and no host ever waits for."""
    by_line = defaultdict[tuple[str, Origin, bool], set[int]](set)
    for rank, rank_run in enumerate(run.ranks):
        for launch, is_ordered in _forgotten(rank_run.trace):
            if not launch.is_of_torch:  # no program can wait for one of torch
                by_line[launch.operation, launch.source, is_ordered].add(rank)
    for (operation, line, is_ordered), found in by_line.items():
        ranks = tuple(sorted(found))
        harm = (
            ": its result may never be there, and NCCL keeps the memory of its tensors"
        )
        if is_ordered:
            harm = (
                ", and nothing reads its result: only a wait for a later collective of its group "
                "orders it"
            )
        place = f"{operation} at {line} ({named('rank', ranks)})"
        sentence = f"nothing waits for {place}{harm}"
        yield Remark(operation, ranks, (line,), sentence)


def _forgotten(trace: Trace) -> Iterator[tuple[records.CollectiveLaunch, bool]]:
    """Yield the launches of a rank that nothing waits for, and whether a later wait orders them."""
    issued = defaultdict[str, _Launches](list)  # by stream that runs them
    # By stream, the number of first launches that waits for collectives order, and for marks.
    awaited, marked = Counter[str](), Counter[str]()
    places = dict[object, tuple[str, int]]()  # of collectives and marks
    keys = set[records.CollectiveKey]()  # of collectives that are waited for themselves
    for record in trace:
        match record:
            case records.CollectiveLaunch() if record.runs_on != record.stream:
                issued[record.runs_on].append(record)
                places[record.key] = record.runs_on, len(issued[record.runs_on])
            case records.Mark():
                count = len(issued.get(record.stream, ()))
                places[record.mark] = record.stream, count
            case records.StreamWait() | records.HostWait() if record.mark in places:
                stream, count = places[record.mark]
                marked[stream] = max(marked[stream], count)
            case records.CollectiveWait() if record.key in places:
                stream, count = places[record.key]
                keys.add(record.key)
                awaited[stream] = max(awaited[stream], count)
    ordered: _Launches = []
    for stream, launches in issued.items():
        end = max(awaited[stream], marked[stream])
        yield from ((each, False) for each in launches[end:])
        between = launches[marked[stream] : end]
        ordered += [e for e in between if e.key not in keys and e.written]
    yield from ((each, True) for each in _unread(trace, ordered))


def _unread(trace: Trace, launches: _Launches) -> Iterator[records.CollectiveLaunch]:
    """Yield the launches of which nothing reads a result, nor those of their line."""
    if not any(isinstance(record, records.Access) for record in trace):
        return  # accesses were not recorded
    reads = defaultdict[int, list[tuple[int, MemoryRegion]]](list)
    places = dict[int, int]()
    for place, record in enumerate(trace if launches else ()):
        if isinstance(record, records.Access | records.CollectiveLaunch):
            places[id(record)] = place
            for region in record.reads:
                reads[region.storage].append((place, region))
    read_lines = {
        launch.source
        for launch in launches
        for written in launch.written
        for place, region in reads[written.storage]
        if place > places[id(launch)] and region.overlaps(written)
    }
    yield from (each for each in launches if each.source not in read_lines)


def _swapped_collectives(run: Run) -> Iterator[Remark]:
    """Yield the swaps, one for each pair of lines; see Note [When collectives are swapped]."""
    by_group = defaultdict[object, dict[int, _Launches]](dict)
    for rank, rank_run in enumerate(run.ranks):
        for launch in launches_of(rank_run.trace):
            if launch.operation not in POINT_TO_POINT | {"barrier"}:
                group = by_group[launch.communicator, launch.ranks]
                group.setdefault(rank, []).append(launch)
    found = dict[tuple[Origin, ...], Remark]()
    for by_rank in by_group.values():
        first, *others = sorted(by_rank)
        for other in others:
            swap = _swap((first, other), by_rank[first], by_rank[other])
            if swap is not None:
                found.setdefault(swap.lines, swap)
    yield from found.values()


def _swap(ranks: tuple[int, int], one: _Launches, other: _Launches) -> Remark | None:
    position = _first_swap(one, other, _lines)
    if position is None and [e.source for e in one] == [e.source for e in other]:
        position = _first_swap(one, other, _data)
    if position is None:
        return None
    pair = one[position], other[position]
    calls = zip(*map(_lines, pair), strict=False)
    # The nearest lines in which two calls differ; the first ones if they differ in data alone.
    first = pair[0].source, pair[1].source
    line, their_line = next((lines for lines in calls if lines[0] != lines[1]), first)
    operation, (rank, peer) = _words(pair[0]), ranks
    which = "of other memory" if line == their_line else f"at {their_line}"
    sentence = (
        f"{operation} at {line} on rank {rank} meets that {which} on rank {peer}, and the other "
        f"way round: ranks {rank} and {peer} issue the same collectives in different orders; "
        "unless that is meant, they exchange their values"
    )
    return Remark(operation, ranks, (line, their_line), sentence, is_swap=True)


def _first_swap(
    one: _Launches, other: _Launches, tell: Callable[[records.CollectiveLaunch], object]
) -> int | None:
    """Return where two orders of the same collectives differ first; None if they do not."""
    # Each owner in turn broadcasts from a line of its own: the root tells these calls apart.
    ours, theirs = ([(_words(e), e.root, tell(e)) for e in own] for own in (one, other))
    if ours == theirs or Counter(ours) != Counter(theirs):
        return None
    pairs = zip(ours, theirs, strict=True)
    return next(place for place, pair in enumerate(pairs) if pair[0] != pair[1])


def _words(launch: records.CollectiveLaunch) -> str:
    reduce_op = f" {launch.reduce_op}" if launch.reduce_op else ""
    return f"{launch.operation}{reduce_op} of {launch.numel} x {launch.dtype}"


def _lines(launch: records.CollectiveLaunch) -> tuple[Origin, ...]:
    return launch.source, *launch.callers


def _data(launch: records.CollectiveLaunch) -> tuple[tuple[object, int], ...]:
    regions, known = launch.regions or launch.written, list[tuple[str, int]]()
    for name, region in zip(launch.data_names, regions, strict=False):
        # The result of an all-gather in place starts at one byte on all ranks.
        is_gathered = launch.operation.startswith("all_gather")
        results = launch.written if is_gathered else ()
        starts = [e.start_byte for e in results if e.storage == region.storage]
        known.append((name, min(starts, default=region.start_byte)))
    if known and all(name for name, _ in known):
        return tuple(known)
    return tuple((region.storage, region.start_byte) for region in regions)


def _tags(run: Run) -> Iterator[Remark]:
    """Yield the messages that meet a receive of another tag, one for each pair of lines.

    NCCL pairs the messages from one rank to another by their order alone. Where the receiver takes
    them in an order of its own, by tag, each receive gets another message.

    Source:
        `ProcessGroupNCCL::send` and `recv` in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp,
        which leave their argument `tag` unused.
    """
    by_pair = defaultdict[object, tuple[_Launches, _Launches]](lambda: ([], []))
    for launch in launches_of(chain.from_iterable(e.trace for e in run.ranks)):
        if launch.operation in POINT_TO_POINT:
            messages = by_pair[launch.communicator, launch.ranks]
            messages[launch.operation == "recv"].append(launch)
    found = dict[tuple[Origin, ...], Remark]()
    for sent, received in by_pair.values():
        if Counter(e.tag for e in sent) != Counter(e.tag for e in received):
            continue  # more than their order differs
        pairs = zip(sent, received, strict=True)
        for one, other in [pair for pair in pairs if pair[0].tag != pair[1].tag][:1]:
            lines, (sender, receiver) = (one.source, other.source), one.ranks
            sentence = (
                f"the message with tag {one.tag} at {lines[0]} on rank {sender} meets the receive "
                f"with tag {other.tag} at {lines[1]} on rank {receiver}: NCCL matches messages by "
                "their order, and does not look at tags; receive them in the order in which they "
                "are sent"
            )
            found.setdefault(lines, Remark("message", one.ranks, lines, sentence))
    yield from found.values()
