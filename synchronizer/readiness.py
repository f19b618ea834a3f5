"""In which order gradients become ready: observed in one step, agreed between ranks.

Note [Whose order counts]
~~~~~~~~~~~~~~~~~~~~~~~~~
Registration order is a guess, and the first step that is reduced shows better. But each
rank sees an order of its own, and buckets have to be the same on all of their ranks. So
for each set of ranks the lowest one decides: it leaves the positions that *it* has
observed for the parameters of that set, and the others take them over. Parameters of
one set are told apart by where they are registered among those of the set, which is the
same on all of its ranks.

A rank leaves its positions at the start of `wait()`, when nothing can be added to the
step any more, and reads those of others in `zero_grad()`. So nobody waits for a rank that
is slow to go on, and one that never calls `zero_grad()` holds nobody up. It leaves them
before anything can fail there: where `wait()` raises on one rank only, the other ranks of
its buckets have reduced them with it, and read its positions all the same.
"""

import json
from collections.abc import Iterable, Sequence

from torch import nn

from .grouping import Candidate
from .rendezvous import Rendezvous

_TOPIC = "readiness"

Ranks = tuple[int, ...]


def merge_order(planned: Sequence[int], observed: Sequence[int]) -> list[int]:
    """Put what was observed in order, and what was not next to what it followed.

    Args:
        planned: Items in the order of the plan.
        observed: Some of them, in the order in which they became ready.

    Returns:
        All items. One that was not observed comes right after the nearest one before it
        in the plan that was, or first if there is none.
    """
    ready = {item: index for index, item in enumerate(observed)}
    keys: dict[int, tuple[int, int]] = {}
    previous = -1
    for index, item in enumerate(planned):
        if item in ready:
            previous = ready[item]
        keys[item] = (previous, -1 if item in ready else index)
    return sorted(keys, key=keys.__getitem__)


class ReadinessOrder:
    """Learns in which order gradients become ready, until that was used once.

    Args:
        candidates: In registration order.
        rendezvous: Where to meet ranks that share buckets; None where there are none.
    """

    def __init__(
        self, candidates: Sequence[Candidate], rendezvous: Rendezvous | None
    ) -> None:
        self._candidates = candidates
        self._rendezvous = rendezvous
        self._index_of = {
            candidate.plan.parameter: index
            for index, candidate in enumerate(candidates)
        }
        self._own_positions: list[int] = []

    def leave(self, observed: Iterable[nn.Parameter]) -> None:
        """Settle this rank's positions, and leave those that it decides for others.

        Args:
            observed: Those that got gradients, in the order of their last ones.
        """
        planned = range(len(self._candidates))[::-1]
        order = merge_order(planned, [self._index_of[each] for each in observed])
        self._own_positions = [0] * len(order)
        for position, index in enumerate(order):
            self._own_positions[index] = position
        if self._rendezvous is not None:
            rank = self._rendezvous.rank
            led = [
                (ranks, [self._own_positions[index] for index in indices])
                for ranks, indices in self._sets().items()
                if ranks[0] == rank
            ]
            self._rendezvous.leave(_TOPIC, json.dumps(led).encode())

    def positions(self) -> list[int]:
        """Return the positions on which the ranks of each parameter agree.

        Returns:
            One for each candidate; this rank's own where it is alone with a parameter.

        Raises:
            PlanMismatchError: A rank that decides has left nothing in time.
        """
        agreed = list(self._own_positions)
        if self._rendezvous is None:
            return agreed
        sets = self._sets()
        # A set in which all shards are empty sums nothing, and its ranks never meet.
        leaders = {ranks[0] for ranks in sets} & {*self._rendezvous.peers}
        for leader in sorted(leaders):
            note = self._rendezvous.read(_TOPIC, leader, call="wait()")
            for ranks, positions in json.loads(note):
                for index, position in zip(
                    sets.get(tuple(ranks), []), positions, strict=False
                ):
                    agreed[index] = position
        return agreed

    def _sets(self) -> dict[Ranks, list[int]]:
        """List the candidates of each set of ranks, in registration order."""
        sets: dict[Ranks, list[int]] = {}
        for index, candidate in enumerate(self._candidates):
            if candidate.ranks:
                sets.setdefault(candidate.ranks, []).append(index)
        return sets
