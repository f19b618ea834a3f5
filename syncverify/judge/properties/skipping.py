"""The rank that skipped a collective, where its peers meet in a different one."""

from __future__ import annotations

from collections import Counter

from syncverify.trace.records import CollectiveLaunch

_PHASES = ("bind", "backward", "wait", "zero_grad", "unbind")


def skipper(
    launches: dict[int, CollectiveLaunch], earlier: list[CollectiveLaunch]
) -> tuple[int, CollectiveLaunch] | None:
    """Return the rank that skipped a collective, and the collective as a peer issued it.

    Args:
        launches: The launch of each rank that came to the meeting, by rank.
        earlier: Collectives of one rank on the communicator, in which ranks agreed.

    Returns:
        None where each of two ranks may be the one that left a collective out.
    """
    counted = Counter(_identity(launch) for launch in launches.values())
    (most, count), *others = counted.most_common()
    if others and count > others[0][1]:  # two of three ranks are right
        ahead = next(r for r, e in launches.items() if _identity(e) != most)
        usual = next(e for e in launches.values() if _identity(e) == most)
        return ahead, usual
    (one, launch), (other, theirs), *_ = launches.items()
    if _is_before(launch, theirs, earlier):
        return other, launch
    if _is_before(theirs, launch, earlier):
        return one, theirs
    return None


def _identity(launch: CollectiveLaunch) -> tuple[object, ...]:
    return launch.source, launch.parameters, launch.matched_arguments


def _is_before(
    one: CollectiveLaunch, other: CollectiveLaunch, earlier: list[CollectiveLaunch]
) -> bool:
    """Tell whether a collective comes before another one where ranks agree."""
    places = _place(one), _place(other)
    if places[0] != places[1]:
        return places[0] < places[1]
    order = [_identity(each) for each in earlier]
    first, second = _identity(one), _identity(other)
    return first in order and second in order[order.index(first) :] and first != second


def _place(launch: CollectiveLaunch) -> tuple[int, int, int]:
    moment = launch.moment
    phase = _PHASES.index(moment.phase) if moment.phase in _PHASES else len(_PHASES)
    return moment.step, phase, moment.micro_batch or 0
