"""The property of the order in which ranks use their common communicators, and where ranks part."""

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping

from syncverify.judge.evidence import Disagreement, Event, Launched, Parting, Way
from syncverify.judge.properties.disagreements import Rows, own_line
from syncverify.judge.properties.judgement import Needs, Property
from syncverify.judge.traced import Traced, launches_of, shared_launches
from syncverify.judge.violation import Violation, finding
from syncverify.trace.operations import POINT_TO_POINT
from syncverify.trace.records import CollectiveKey, CollectiveLaunch
from syncverify.trace.run import Run, Trace

# By rank that does not reach its end: the launch at which it stands, and the ranks that are
# missing there.
Stuck = Mapping[int, tuple[CollectiveLaunch, set[int]]]


def _meets_twice(trace: Trace) -> bool:
    return len([launch for launch in launches_of(trace) if len(launch.ranks) > 1]) > 1


@Property(
    needs=Needs.RUN,
    order=40,
    condition="Some rank issues two collectives over two ranks or more, or two messages.",
    applies=lambda seen: any(map(_meets_twice, seen.traces)),
    example="mesh axes taken in turns that depend on the rank",
    needs_data=False,
    leads_to=("every_wait_completes",),
)
def launch_order_agrees(traced: Traced) -> Iterator[Violation]:
    """All ranks launch the collectives that they share in one common order.

    For all ranks: the launches of each rank, on all its communicators, fit into one order
    of all collectives of the run. Waits between launches do not matter.

    Catches: axes, buckets or communicators taken in turns that depend on the rank. Such a
    run may reach its end, or hang on NCCL: a collective occupies the device until its peers
    arrive, and any wait of the device for it (an implicit synchronization, too few
    resources for two collectives at once) closes the circle. Messages are judged for pairs
    of ranks that never batch them: NCCL runs the messages of a pair one by one, so two
    ranks that both send first wait for each other. Says nothing about one order being
    faster.
    """
    traces = enumerate(rank_run.trace for rank_run in traced.run.ranks)
    launches = {rank: [*launches_of(trace)] for rank, trace in traces}
    shared = {rank: [*shared_launches(own)] for rank, own in launches.items()}
    stuck = _stuck(_in_step(shared))
    if stuck:
        yield from _findings(stuck, "deadlock_hazard", "launch collectives")
    for messages in _messages(launches):
        stuck = _stuck(messages)
        if stuck:
            action = "exchange messages one by one"
            yield from _findings(stuck, "opposing_messages", action)
            return


def _findings(stuck: Stuck, cause: str, action: str) -> Iterator[Violation]:
    cycle = _circle_of(stuck)
    orders = f"{action} in orders that exclude each other"
    summary = f"ranks {sorted(cycle)} {orders}: a deadlock hazard on NCCL"
    events = list[Event]()
    for waiting, rank in itertools.pairwise([*cycle, cycle[0]]):
        first, later = stuck[rank][0], stuck[waiting][0]
        one, other = (f"group {each.communicator}: " for each in (first, later))
        # Groups are named where their ranks are the same.
        if first.ranks != later.ranks or one == other:
            one = other = ""
        events.append(Event(f"rank {rank}: {one}{first}; then {other}{later}", first))
    for rank in sorted(cycle):
        evidence = Disagreement(events=tuple(events))
        yield finding(cause, summary, rank, None, evidence)


def _messages(launches: Rows) -> Iterator[Rows]:
    """Yield, for each pair of ranks, the order of its messages on each of the two.

    NCCL runs messages of a pair one after the other, but those of a batch together. So
    pairs with batched messages are left out, and pairs where the backend cannot tell.
    """
    pairs = defaultdict[object, dict[int, list[CollectiveLaunch]]](dict)
    for rank, own in launches.items():
        for launch in own:
            if launch.operation in POINT_TO_POINT and len({*launch.ranks}) > 1:
                orders = pairs[launch.communicator, tuple(sorted(launch.ranks))]
                orders.setdefault(rank, []).append(launch)
    for orders in pairs.values():
        if all(launch.is_batched is False for own in orders.values() for launch in own):
            yield orders


def _in_step(orders: Rows) -> Rows:
    """Return the launches on communicators whose ranks launch equally often."""
    # If the counts differ, `collectives_match_across_ranks` reports it: the n-th launches of
    # two ranks are different collectives.
    counts = defaultdict[object, Counter[int]](Counter)
    for rank, launches in orders.items():
        for launch in launches:
            counts[launch.key[:2]][rank] += 1
    even = {key for key, count in counts.items() if len({*count.values()}) == 1}
    return {r: [e for e in own if e.key[:2] in even] for r, own in orders.items()}


def _stuck(orders: Rows) -> Stuck:
    """Return the ranks that are stuck where each waits at each launch for its peers."""
    members = matched(orders)
    missing = {place: {*ranks} for place, ranks in members.items()}
    heads, ready = dict.fromkeys(orders, 0), deque(orders)
    while ready:
        rank = ready.popleft()
        if heads[rank] == len(orders[rank]):
            continue
        place = orders[rank][heads[rank]].key
        missing[place].discard(rank)
        if not missing[place]:
            for member in members[place]:
                heads[member] += 1
                ready.append(member)
    stuck = {r: own[heads[r]] for r, own in orders.items() if heads[r] < len(own)}
    return {rank: (launch, missing[launch.key]) for rank, launch in stuck.items()}


def matched(
    rows: Mapping[int, Iterable[CollectiveLaunch]],
) -> dict[CollectiveKey, dict[int, CollectiveLaunch]]:
    """Return the launch of each collective on each rank that launches it."""
    found = dict[CollectiveKey, dict[int, CollectiveLaunch]]()
    for rank, launches in rows.items():
        for launch in launches:
            found.setdefault(launch.key, {})[rank] = launch
    return found


def _circle_of(stuck: Stuck) -> list[int]:
    """Return a short cycle of ranks in which each rank waits for the next one."""
    cycles = []
    for start in stuck:
        walked = [start]
        while (following := min(stuck[walked[-1]][1])) not in walked:
            walked.append(following)
        cycles.append(walked[walked.index(following) :])
    return min(cycles, key=len)


def parting(run: Run, met: CollectiveKey | None = None) -> Parting | None:
    """Return where ranks part, by default those of the first collective that lacks a rank.

    None if the traces tell nothing: ranks that never met, and no line that a rank launches again.
    """
    played = {rank: own.trace for rank, own in enumerate(run.ranks) if own.trace}
    rows = {rank: [*shared_launches(trace)] for rank, trace in played.items()}
    crossed = tuple[Way, ...]()
    if met is None:
        stuck = _lacking(rows)
        crossed = tuple(_crossed(stuck))
        waiting = [way.launch for way in crossed] or [one for one, _ in stuck.values()]
        if not waiting:
            return None
        met = waiting[0].key
    ranks = tuple(rank for rank in met.ranks if rank in rows)
    own = {rank: [e for e in rows[rank] if e.key[:2] == met[:2]] for rank in ranks}
    common = set.intersection(*({e.sequence for e in row} for row in own.values()))
    earlier = {number for number in common if number < met.sequence}
    last = next((e for e in reversed(own[ranks[0]]) if e.sequence in earlier), None)
    found = Parting(ranks, last, crossed, tuple(_unequal(own)))
    return found if found.last or crossed or found.unequal else None


def _lacking(rows: Rows) -> Stuck:
    """Return the first launch of each rank that lacks ranks, and these."""
    present = matched(rows).items()
    lacking = {key: ({*key.ranks} & rows.keys()) - own.keys() for key, own in present}
    lacks = {rank: [e for e in own if lacking[e.key]] for rank, own in rows.items()}
    return {rank: (own[0], lacking[own[0].key]) for rank, own in lacks.items() if own}


def _crossed(stuck: Stuck) -> Iterator[Way]:
    """Yield the collectives of a circle of ranks, where no rank that is not stuck is missing."""
    while not all(lacking <= stuck.keys() for _, lacking in stuck.values()):
        stuck = {rank: own for rank, own in stuck.items() if own[1] <= stuck.keys()}
    if not stuck:
        return
    for key in dict.fromkeys(stuck[rank][0].key for rank in sorted(_circle_of(stuck))):
        launches = {rank: own for rank, (own, _) in stuck.items() if own.key == key}
        yield Way(tuple(launches), next(iter(launches.values())))


def _unequal(rows: Rows) -> Iterator[Launched]:
    """Yield the lines that some ranks launch more often than others, and not once alone."""
    counts = [Counter((e.operation, own_line(e)) for e in own) for own in rows.values()]
    for place in dict.fromkeys(place for own in counts for place in own):
        times = tuple(own[place] for own in counts)
        if len({*times}) > 1 < max(times):
            yield Launched(*place, times)
