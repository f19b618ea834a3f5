"""Where the ways of ranks part that have to meet, by the collectives that each launches."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from syncverify.judge.evidence import Launched, Parting, Way
from syncverify.judge.properties.disagreements import Rows, own_line
from syncverify.judge.properties.launch_order import Stuck, circle_of
from syncverify.judge.traced import shared_launches
from syncverify.trace.records import CollectiveKey
from syncverify.trace.run import Run


def parting(run: Run, met: CollectiveKey | None = None) -> Parting | None:
    """Return where ranks part, by default those of the first collective that lacks a rank.

    None if the traces tell nothing: ranks that never met, and no line that a rank launches again.
    """
    rows = {
        rank: [*shared_launches(own.trace)]
        for rank, own in enumerate(run.ranks)
        if own.trace
    }
    crossed = tuple[Way, ...]()
    if met is None:
        stuck = _stuck(rows)
        crossed = tuple(_crossed(stuck))
        waiting = [way.launch for way in crossed] or [one for one, _ in stuck.values()]
        if not waiting:
            return None
        met = waiting[0].key
    group, ranks = met[:2], tuple(rank for rank in met.ranks if rank in rows)
    own = {rank: [e for e in rows[rank] if e.key[:2] == group] for rank in ranks}
    common = set.intersection(*({e.sequence for e in row} for row in own.values()))
    met_before = [
        e for e in own[ranks[0]] if e.sequence in common and e.sequence < met.sequence
    ]
    last = met_before[-1] if met_before else None
    found = Parting(ranks, last, crossed, tuple(_unequal(own)))
    return found if found.last or crossed or found.unequal else None


def _stuck(rows: Rows) -> Stuck:
    """Return the first launch of each rank that lacks ranks, and these."""
    present = defaultdict[CollectiveKey, set[int]](set)
    for rank, launches in rows.items():
        for launch in launches:
            present[launch.key].add(rank)
    lacking = {key: ({*key.ranks} & rows.keys()) - own for key, own in present.items()}
    firsts = {
        rank: next((each for each in launches if lacking[each.key]), None)
        for rank, launches in rows.items()
    }
    return {
        rank: (launch, lacking[launch.key]) for rank, launch in firsts.items() if launch
    }


def _crossed(stuck: Stuck) -> Iterator[Way]:
    """Yield the collectives of a circle of ranks, where no rank that is not stuck is missing."""
    while not all(lacking <= stuck.keys() for _, lacking in stuck.values()):
        stuck = {rank: own for rank, own in stuck.items() if own[1] <= stuck.keys()}
    if not stuck:
        return
    for key in dict.fromkeys(stuck[rank][0].key for rank in sorted(circle_of(stuck))):
        launches = {rank: own for rank, (own, _) in stuck.items() if own.key == key}
        yield Way(tuple(launches), next(iter(launches.values())))


def _unequal(rows: Rows) -> Iterator[Launched]:
    """Yield the lines that some ranks launch more often than others, and not once alone."""
    counts = [
        Counter((each.operation, own_line(each)) for each in launches)
        for launches in rows.values()
    ]
    for place in dict.fromkeys(place for own in counts for place in own):
        times = tuple(own[place] for own in counts)
        if len({*times}) > 1 < max(times):
            yield Launched(*place, times)
