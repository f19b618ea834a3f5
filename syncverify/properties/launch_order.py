"""In which order ranks use communicators that they share."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from syncverify.properties.judgement import Finding, Judgement
from syncverify.trace import POINT_TO_POINT, CollectiveLaunch, Place

Orders = Mapping[int, Sequence[CollectiveLaunch]]
# Of each rank that does not reach its end: where it stands, and who is missing there.
Stuck = Mapping[int, tuple[CollectiveLaunch, set[int]]]


def launch_order_agrees(judgement: Judgement) -> Iterator[Finding]:
    """All ranks launch the collectives that they share in one common order.

    For all ranks: what each launches, on all its communicators, fits into one order of
    all collectives of the run. Whether a rank waits in between does not matter.

    Catches: axes, buckets or communicators taken in turns that depend on the rank. The
    run may well reach its end. On NCCL it may also hang: a collective occupies the device
    until its peers arrive, and whatever makes the device wait for it (an implicit
    synchronization, too few resources for two collectives at once) closes the circle.
    Of messages, looks at pairs of ranks that never batch theirs: NCCL runs those of a pair
    one by one, so that two ranks which both send first wait for each other. Says nothing
    about one order being faster.
    """
    launches = {
        rank: [e for e in rank_run.events if isinstance(e, CollectiveLaunch)]
        for rank, rank_run in enumerate(judgement.run.ranks)
    }
    stuck = _stuck(_in_step(_collectives(launches)))
    if stuck:
        yield from _findings(stuck, "deadlock_hazard", "launch collectives")
    for orders in _messages(launches):
        stuck = _stuck(orders)
        if stuck:
            yield from _findings(
                stuck, "opposing_messages", "exchange messages one by one"
            )
            return


def _findings(stuck: Stuck, cause: str, what_they_do: str) -> Iterator[Finding]:
    circle = _circle(stuck)
    ranks = sorted(circle)
    summary = (
        f"ranks {ranks} {what_they_do} in orders that exclude each other: a deadlock "
        "hazard on NCCL"
    )
    lines = [
        f"rank {rank}: {stuck[rank][0]}; then {stuck[waiting][0]}"
        for waiting, rank in itertools.pairwise([*circle, circle[0]])
    ]
    for rank in ranks:
        yield Finding(cause, summary, rank, None, {"details": lines})


def _collectives(launches: Orders) -> Orders:
    return {
        rank: [
            launch
            for launch in own
            if len(launch.ranks) > 1 and launch.operation not in POINT_TO_POINT
        ]
        for rank, own in launches.items()
    }


def _messages(launches: Orders) -> Iterator[Orders]:
    """Yield, for each pair of ranks, the order of its messages on each of the two.

    NCCL runs messages of a pair one after the other, but those of a batch together: of a
    batch, and of what a backend cannot tell, nothing is asked.
    """
    pairs: dict[tuple[str, tuple[int, ...]], dict[int, list[CollectiveLaunch]]] = {}
    for rank, own in launches.items():
        for launch in own:
            if launch.operation in POINT_TO_POINT and len({*launch.ranks}) > 1:
                key = (launch.communicator, tuple(sorted(launch.ranks)))
                pairs.setdefault(key, {}).setdefault(rank, []).append(launch)
    for orders in pairs.values():
        if all(launch.is_batched is False for own in orders.values() for launch in own):
            yield orders


def _in_step(orders: Orders) -> Orders:
    """Leave out communicators whose ranks launch unequally often.

    The n-th launch of one is then another collective than that of its peer, which
    `collectives_match_across_ranks` says.

    Returns:
        What is left of each rank's order.
    """
    counts: dict[tuple[str, tuple[int, ...]], Counter[int]] = {}
    for rank, launches in orders.items():
        for launch in launches:
            key = (launch.communicator, launch.ranks)
            counts.setdefault(key, Counter())[rank] += 1
    uneven = {key for key, count in counts.items() if len({*count.values()}) > 1}
    return {
        rank: [own for own in launches if (own.communicator, own.ranks) not in uneven]
        for rank, launches in orders.items()
    }


def _stuck(orders: Orders) -> Stuck:
    """Let every rank launch in its order, and none go on before its peers arrived.

    Args:
        orders: What each rank launches, in order.

    Returns:
        Of each rank that does not reach its end, where it stands and which ranks have
        not arrived there; nobody, if one order suits all.
    """
    members: dict[Place, set[int]] = {}
    for rank, launches in orders.items():
        for launch in launches:
            members.setdefault(launch.place, set()).add(rank)
    heads = dict.fromkeys(orders, 0)
    missing = {place: {*ranks} for place, ranks in members.items()}
    ready = deque(orders)
    while ready:
        rank = ready.popleft()
        if heads[rank] == len(orders[rank]):
            continue
        place = orders[rank][heads[rank]].place
        missing[place].discard(rank)
        if not missing[place]:
            for member in members[place]:
                heads[member] += 1
                ready.append(member)
    standing = {
        rank: launches[heads[rank]]
        for rank, launches in orders.items()
        if heads[rank] < len(launches)
    }
    return {rank: (head, missing[head.place]) for rank, head in standing.items()}


def _circle(stuck: Stuck) -> list[int]:
    """Return the smallest circle of ranks, each of which the one before waits for."""
    circles = []
    for start in stuck:
        walked = [start]
        while (following := min(stuck[walked[-1]][1])) not in walked:
            walked.append(following)
        circles.append(walked[walked.index(following) :])
    return min(circles, key=len)
