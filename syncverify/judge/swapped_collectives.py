"""Equal collectives that two ranks issue in opposite orders, and that so meet each other.

NCCL matches collectives by their order alone. Two that are equal in operation, size and dtype meet
without an error, and the ranks get each other's values. A program may mean that, so it is a remark.

Note [When collectives are swapped]
    The lines of ranks may differ, as where stages of a pipeline take other branches. So a swap is
    told only where both ranks issue the same collectives, each as often, in different orders. What
    makes two collectives the same is:

    1. the line that issues them, with the lines that led to it; or, where these agree,
    2. the data, by its name; data without a name, by the number that the rank gave its memory.

    Both tell apart only calls of one operation, size, dtype and root. Data misleads where a rank
    makes the same tensors in an order of its own, and does not reduce them in that order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveLaunch
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.run import Run
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class SwappedCollectives:
    """Two ranks that issue the same collectives in different orders.

    Attributes:
        operation: The first collective in which they differ, in words.
        ranks: The two global ranks.
        sources: The line of each rank that issues it; twice the same line where the two collectives
            are of different memory.
    """

    operation: str
    ranks: tuple[int, int]
    sources: tuple[Origin, Origin]

    @property
    def lines(self) -> tuple[Origin, ...]:
        """The lines that the remark names."""
        return self.sources


def swapped_collectives(run: Run) -> list[SwappedCollectives]:
    """Find the swaps of a run that came to its end, one for each pair of lines."""
    if run.fault is not None:  # the calls of the ranks may not be complete
        return []
    found = dict[tuple[Origin, Origin], SwappedCollectives]()
    for by_rank in _by_communicator(run).values():
        first, *others = sorted(by_rank)
        for other in others:
            for each in _swaps((first, other), by_rank[first], by_rank[other]):
                found.setdefault(each.sources, each)
    return [*found.values()]


def _by_communicator(run: Run) -> dict[object, dict[int, list[CollectiveLaunch]]]:
    """Return the collectives with data, by communicator and rank, in their order."""
    found = defaultdict[object, dict[int, list[CollectiveLaunch]]](dict)
    for rank, rank_run in enumerate(run.ranks):
        for record in rank_run.trace:
            if isinstance(record, CollectiveLaunch) and _has_peers_data(record):
                by_rank = found[record.communicator, record.ranks]
                by_rank.setdefault(rank, []).append(record)
    return found


def _has_peers_data(launch: CollectiveLaunch) -> bool:
    return launch.operation not in POINT_TO_POINT | {"barrier"}


def _swaps(
    ranks: tuple[int, int],
    one: Sequence[CollectiveLaunch],
    other: Sequence[CollectiveLaunch],
) -> Iterator[SwappedCollectives]:
    """Yield the first swap of two ranks; see Note [When collectives are swapped]."""
    position = _first_swap(one, other, _call)
    if position is None and [*map(_line, one)] == [*map(_line, other)]:
        position = _first_swap(one, other, _call_with_data)
    if position is not None:
        pair = one[position], other[position]
        sources = _differing_lines(*map(_lines, pair))
        yield SwappedCollectives(_words(pair[0]), ranks, sources)


def _first_swap(
    one: Sequence[CollectiveLaunch],
    other: Sequence[CollectiveLaunch],
    identity: Callable[[CollectiveLaunch], object],
) -> int | None:
    """Return where two orders of the same collectives differ first; None if they do not."""
    orders = [*map(identity, one)], [*map(identity, other)]
    if orders[0] == orders[1] or Counter(orders[0]) != Counter(orders[1]):
        return None
    pairs = zip(*orders, strict=True)
    return next(place for place, pair in enumerate(pairs) if pair[0] != pair[1])


def _line(launch: CollectiveLaunch) -> Origin:
    return launch.source


def _call(launch: CollectiveLaunch) -> object:
    # Each owner in turn broadcasts from a line of its own: the root tells these calls apart.
    return _words(launch), launch.root, _lines(launch)


def _lines(launch: CollectiveLaunch) -> tuple[Origin, ...]:
    return launch.source, *launch.callers


def _call_with_data(launch: CollectiveLaunch) -> object:
    return _words(launch), launch.root, _data(launch)


def _data(launch: CollectiveLaunch) -> tuple[tuple[object, int], ...]:
    regions = launch.regions or launch.written
    starts = [_start_byte(region, launch) for region in regions]
    named = [*zip(launch.data_names, starts, strict=False)]
    if named and all(name for name, _ in named):
        return tuple(named)
    return tuple((region.storage, region.start_byte) for region in regions)


def _start_byte(region: MemoryRegion, launch: CollectiveLaunch) -> int:
    """Return where data starts; of an all-gather in place, where its result starts on each rank."""
    results = (each for each in launch.written if each.storage == region.storage)
    is_gather = launch.operation.startswith("all_gather")
    first = min(results, default=None, key=lambda each: each.start_byte)
    return first.start_byte if is_gather and first else region.start_byte


def _differing_lines(
    one: tuple[Origin, ...], other: tuple[Origin, ...]
) -> tuple[Origin, Origin]:
    """Return the nearest lines in which two calls differ; the first ones if in none."""
    pairs = zip(one, other, strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), (one[0], other[0]))


def _words(launch: CollectiveLaunch) -> str:
    reduce_op = f" {launch.reduce_op}" if launch.reduce_op else ""
    return f"{launch.operation}{reduce_op} of {launch.numel} x {launch.dtype}"
