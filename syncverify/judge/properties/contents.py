"""The places of gradients in a collective, compared across ranks by their values.

A launch of `.grad` itself names its gradients. A copy of them has no name, but values are
known (Note [Names by value] in `sent.py`). Equal values may meet by chance, so places are
compared only to explain a gradient that is wrong, and never to find one.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.properties.judgement import Judgement, launches_of_step
from syncverify.judge.properties.sent import places_of
from syncverify.trace.records import CollectiveKey, CollectiveLaunch

# Places of gradients: parameter and first element; None where some value is not known.
Places = frozenset[tuple[str, int]] | None


class Contents:
    """The places of gradients in the reductions of one step, on all ranks."""

    def __init__(self, judgement: Judgement, step: int) -> None:
        self._places: dict[CollectiveKey, dict[int, Places]] = {}
        self._launches: dict[CollectiveKey, CollectiveLaunch] = {}
        for rank, rank_run in enumerate(judgement.run.ranks):
            for launch in launches_of_step(rank_run.trace, step):
                if launch.reduces:
                    known = _places(judgement, rank, launch)
                    self._places.setdefault(launch.key, {})[rank] = known
                    self._launches.setdefault(launch.key, launch)

    @property
    def may_differ(self) -> bool:
        """Tell whether some rank may have another gradient at a place than its peers."""
        return any(
            None in places.values() or len({*places.values()}) > 1
            for places in self._places.values()
        )

    def meeting(self, name: str, rank: int) -> str:
        """Tell, in words, where a gradient meets another one; "" if it does not."""
        for key, places in self._places.items():
            own = places.get(rank)
            for peer, theirs in places.items():
                for place in sorted(_crossed(name, own, theirs)):
                    return (
                        f"on rank {rank} it is sent from element {place} of a bucket, and on "
                        f"rank {peer} it is not, in {self._launches[key]}"
                    )
        return ""


def _places(judgement: Judgement, rank: int, launch: CollectiveLaunch) -> Places:
    if judgement.reference.rounds:
        return None
    found = places_of(judgement.reference, rank, launch)
    return None if found is None else frozenset(found)


def _crossed(name: str, own: Places, theirs: Places) -> Iterator[int]:
    """Yield the places of a gradient at which a peer has another one.

    Where both may have one and the same gradient, a value is equal by chance.
    """
    if own is None or theirs is None:
        return
    for parameter, start in own:
        mine = {one for one, at in own if at == start}
        others = {other for other, at in theirs if at == start}
        if parameter == name and others and not mine & others:
            yield start
